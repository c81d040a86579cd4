/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bulk.h - read many small files of /proc on a thread that can be left behind.
 *
 * A file of /proc can block for ever: `cmdline` and `environ` behind the memory lock that
 * a driver holds, `fdinfo` behind an epoll set's, a stat behind a dead file server. So the
 * reading happens on a thread of its own, into memory of its own, and the collector takes
 * whatever was complete when the time is up.
 *
 * The reading thread appends records; the collector walks them. Everything a job needs
 * (its argument, descriptors) belongs to the job.
 */
#ifndef WG_BULK_H
#define WG_BULK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wg_bulk;

struct wg_raw { /* one record */
	int kind, id; /* as the job named them */
	int err;      /* 0 or -errno: then text is "" */
	double at;    /* CLOCK_MONOTONIC when it was read */
	char *text;   /* NUL-ended; may hold NULs inside (cmdline, environ) */
	size_t len;
};

/* A job with room for `cap` bytes of records (reserved, not touched) and a zeroed argument. */
struct wg_bulk *wg_bulk_new(size_t cap, size_t arg_size);
void *wg_bulk_arg(struct wg_bulk *b);
/* Descriptor that the job uses: duplicated, closed with the job. -1 or the duplicate. */
int wg_bulk_own_fd(struct wg_bulk *b, int fd);
/* 0, or -ETIMEDOUT: what was read so far can be walked until wg_bulk_free(). */
int wg_bulk_run(struct wg_bulk *b, double seconds, void (*fn)(struct wg_bulk *b));
void wg_bulk_free(struct wg_bulk *b);
/* Start with *cursor = 0. False at the end. */
bool wg_bulk_next(struct wg_bulk *b, size_t *cursor, struct wg_raw *out);

/* For the job's function only. All append one record and return its err. */
int wg_bulk_file(struct wg_bulk *b, int dirfd, const char *name, int kind, int id, size_t max);
int wg_bulk_link(struct wg_bulk *b, int dirfd, const char *name, int kind, int id);
int wg_bulk_put(struct wg_bulk *b, int kind, int id, int err, const void *data, size_t len);
/* Text of the last record (only for the job). */
const char *wg_bulk_last(const struct wg_bulk *b);
/* Numeric names in a directory, each appended as a record without text. Count or -errno. */
int wg_bulk_numbers(struct wg_bulk *b, int dirfd, const char *name, int kind,
		    void (*each)(struct wg_bulk *b, int number, void *arg), void *arg);

/*
 * When the leader of the process with this directory has ended and other threads go on: the
 * directory of one of those, which shows the descriptors and mappings that its own no longer does.
 * Else -1. To be closed.
 */
int wg_living_dir(int piddir);

#endif
