/* SPDX-License-Identifier: Apache-2.0 */
/*
 * watch.h - the always-on half of the observer, loaded by the daemon only. All functions may be
 * called from several threads once wg_watch_open() has returned.
 */
#ifndef WG_WATCH_H
#define WG_WATCH_H

#include "observer.h"

struct wg_watch;
/* Load and attach. 0 or -errno with *why (static). Not thread-safe. */
int wg_watch_open(struct wg_watch **out, const char **why);
void wg_watch_close(struct wg_watch *w);
/* The task storage, for the programs that answer on demand. */
int wg_watch_wakes_fd(const struct wg_watch *w);
/* From now on track this process and what it forks. Idempotent. -ESRCH, -errno. */
int wg_watch_track(struct wg_watch *w, int32_t pid);
/* When nobody is tracked any more, let go of the scheduler's tracepoints. */
void wg_watch_rest(struct wg_watch *w);
/* Is this one tracked? Fills *out when it is. 0 or -ENOENT. */
int wg_watch_proc(struct wg_watch *w, int32_t pid, struct wg_obs_proc *out);
/* Recorded processes that are not tracked yet, by their helper thread. Returns how many went into pids. */
int wg_watch_find(struct wg_watch *w, int32_t *pids, int most);
/* Tracked processes that have run since wg_watch_wrote() was last called for them. How many, or -errno. */
int wg_watch_due(struct wg_watch *w, int32_t *pids, int most);
/* See which of its threads have written since the last look (wg_obs_wake). 0 or -errno. */
int wg_watch_wrote(struct wg_watch *w, int32_t pid);
/* Every end still in the ring, in no order. Stops when each() returns non-zero, and returns that. */
int wg_watch_ends(struct wg_watch *w, int (*each)(const struct wg_obs_proc *p, void *arg), void *arg);
/* Trace writes, too: slows every system call of the machine. 0 or -errno with *why. */
int wg_watch_trace(struct wg_watch *w, const char **why);
/* What was written to an inode since it is traced. 0 or -ENOENT. */
int wg_watch_written(struct wg_watch *w, uint64_t dev, uint64_t ino, struct wg_obs_written *out);
/* Forget processes that are gone but whose end was missed. To be called now and then. */
void wg_watch_sweep(struct wg_watch *w);
void wg_watch_counts(const struct wg_watch *w, struct wg_obs_counts *out);

#endif
