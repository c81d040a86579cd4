/* SPDX-License-Identifier: Apache-2.0 */
/* answers.h - what the daemon tells an asker: records made from the observer's facts, within his rights. */
#ifndef WG_ANSWERS_H
#define WG_ANSWERS_H

#include "access.h"
#include "kallsyms.h"
#include "observer.h"
#include "samples.h"
#include "session.h"
#include "watch.h"

struct wg_answers { /* shared by all clients */
	struct wg_observer *observer;
	struct wg_watch *watch;
	struct wg_kallsyms *kallsyms;
	struct wg_samples *samples;
	unsigned long looks_late;
	uint64_t started; /* CLOCK_MONOTONIC ns */
	unsigned long refused;
	bool tracing;
};

struct wg_client {
	struct wg_answers *answers;
	struct wg_asker asker;
};

/* One look at what a tracked process writes, with an observer of the caller's. 0 or -errno. */
int wg_answers_look(struct wg_answers *a, struct wg_observer *o, int32_t pid);
/* A wg_answer_fn; arg is a struct wg_client. */
void wg_answers_give(void *arg, const struct wg_wire_request *q, struct wg_out *o,
		     struct wg_wire_done *done);

#endif
