/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h - what the memory reader offers beyond sources.h: batches for speed, and a
 * memory that does not come from a process, for tests and fuzzers.
 */
#ifndef WG_MEM_H
#define WG_MEM_H

#include "sources.h"

struct wg_span {
	uint64_t addr;
	size_t n;
};
/*
 * Bring the pages of these spans into the cache in one go: the hand-over to the reading
 * thread is paid once. What cannot be read is simply not cached. Never fails.
 */
void wg_mem_prefetch(struct wg_mem *m, const struct wg_span *spans, size_t n);

/*
 * Run a call on the target's files (open, read) on a thread that can be left behind: they
 * may lie on a file system that does not answer. 0; -ETIMEDOUT: arg belongs to that thread
 * now; -EBUSY: too many have timed out, fn was not called.
 */
int wg_mem_slow_call(struct wg_mem *m, void (*fn)(void *), void *arg);

/*
 * Parse the text of a maps file. Entries that contradict themselves or each other are
 * dropped; the result is sorted and free of overlaps. Strings and array live in `a`.
 */
const struct wg_map *wg_maps_parse(struct wg_arena *a, char *text, size_t len, size_t *n);

/* A memory served by a callback, for tests: read returns bytes or -errno. */
struct wg_mem *wg_mem_open_fake(const struct wg_map *maps, size_t nmaps, int pid,
				int (*read)(void *arg, uint64_t addr, void *buf, size_t n),
				void *arg);

/* Times that the other process was really asked, and bytes it gave: for benchmarks. */
void wg_mem_stats(const struct wg_mem *m, uint64_t *reads, uint64_t *bytes);

#endif
