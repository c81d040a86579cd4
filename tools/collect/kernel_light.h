/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel_light.h - the observer's task iterator, loaded by the kernel's own means.
 *
 * libbpf reads all of the kernel's type information (some megabytes) to place a program's
 * accesses: 15-20 ms, most of an answer. Since 5.17 the kernel does that itself, from a loader
 * program that bpftool makes of the same object: 1-2 ms. Where it does not, observer.h serves.
 */
#ifndef WG_KERNEL_LIGHT_H
#define WG_KERNEL_LIGHT_H

#include <stdint.h>

#include "bpf/observer.h"

struct wg_light;
/* 0 or -errno: then nothing is known but that this way is not open. Needs CAP_BPF and CAP_PERFMON. */
int wg_light_open(struct wg_light **out);
void wg_light_close(struct wg_light *l);
/* As wg_observer_tasks(). -EOPNOTSUPP: this kernel (before 6.1) cannot be asked for one process. */
int wg_light_tasks(struct wg_light *l, int32_t pid,
		   int (*each)(const struct wg_obs_task *t, void *arg), void *arg);

#endif
