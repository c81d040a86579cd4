/* SPDX-License-Identifier: Apache-2.0 */
/* recorded.h - the table of recorded processes that `ps` prints and `top` redraws. */
#ifndef WG_CMD_RECORDED_H
#define WG_CMD_RECORDED_H

#include <stdio.h>

#include "../facts.h"

struct wg_recorded {
	const struct wg_process *p;
	int64_t rank;
	const struct wg_device *tightest; /* the device with the least free; NULL */
	const struct wg_thread *waiter;	  /* of the oldest call in flight; NULL */
	const struct wg_call *wait;
	const struct wg_comm *comm;	  /* largest communicator; NULL */
	uint64_t behind;		  /* things given to streams and not known to be done */
	double calls_per_s;		  /* top: since the last look; WG_NO_SEC */
};
struct wg_recorded_list {
	struct wg_facts *f;
	WG_VEC(struct wg_recorded) rows;
	size_t refused; /* files that could not be read */
};

enum wg_recorded_sort { WG_SORT_WAIT, WG_SORT_PID, WG_SORT_RANK, WG_SORT_PROGRESS, WG_SORT_FREE,
			WG_SORT_KINDS };
extern const char *const wg_recorded_sort_names[];

/*
 * All recorder files of this host that this user may read, alive or dead; with dir, what
 * the snapshots and traces in there tell instead. 0 or -errno with *why.
 */
int wg_recorded_load(struct wg_recorded_list *l, const char *dir, const char **why);
void wg_recorded_free(struct wg_recorded_list *l);
void wg_recorded_sort(struct wg_recorded_list *l, enum wg_recorded_sort by);
/* One line of the table, cut to `width` columns; row NULL: the heading. In f's arena. */
const char *wg_recorded_line(struct wg_recorded_list *l, const struct wg_recorded *row, int width);

#endif
