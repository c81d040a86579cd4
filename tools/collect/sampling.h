/* SPDX-License-Identifier: Apache-2.0 */
/* sampling.h - what threads do between the two samples (see sampling.c). */
#ifndef WG_SAMPLING_H
#define WG_SAMPLING_H

#include "procfs.h"

struct wg_sampling;
/* Begin to watch every thread that ran lately. NULL: nothing to watch with. */
struct wg_sampling *wg_sampling_start(struct wg_facts *f);
bool wg_sampling_any(const struct wg_sampling *s);
bool wg_sampling_sees_calls(const struct wg_sampling *s); /* of every thread that it watches */
void wg_sampling_drain(struct wg_sampling *s); /* now and then: the rings are small */
bool wg_sampling_hungry(const struct wg_sampling *s); /* of a thread that runs nothing was seen yet */
/* Registers of p's running threads, as of the latest sample. How many. */
size_t wg_sampling_regs(struct wg_sampling *s, struct wg_process *p, struct wg_regs *out, size_t n);
/* After the second sample: fills sample_pc, code and repeat_* and frees s. */
void wg_sampling_finish(struct wg_sampling *s);

#endif
