/* SPDX-License-Identifier: Apache-2.0 */
/*
 * samples.h - when files were last written that keep no time of their own (pipes, TCP sockets), or
 * whose file system is not to be asked: from looks at them, one a second, by waitgraphd. Remembers
 * of each look what a write would have changed. Knows no BPF and no clock, so it is tested as it is.
 *
 * Bounded: so many files in all, of one process, of one user other than root; what does not fit
 * is counted. All functions may be called from several threads.
 */
#ifndef WG_SAMPLES_H
#define WG_SAMPLES_H

#include <stdint.h>

#include "observer.h"

#define WG_SAMPLES_MOST 32768
#define WG_SAMPLES_OF_PROCESS 1024
#define WG_SAMPLES_OF_USER 16384 /* other than root */

struct wg_samples;
struct wg_samples *wg_samples_new(void); /* NULL: no memory */
void wg_samples_free(struct wg_samples *s);

struct wg_look { /* one look at all files of a process: begin, note each, end */
	int32_t pid;
	uint32_t uid;
	uint64_t start; /* identity with pid */
	uint64_t number;
};
void wg_samples_begin(struct wg_samples *s, struct wg_look *l, int32_t pid, uint64_t start,
		      uint32_t uid);
/* now: CLOCK_MONOTONIC ns. Files that cannot be written through this descriptor are not kept. */
void wg_samples_note(struct wg_samples *s, const struct wg_look *l, const struct wg_obs_file *f,
		     uint64_t now);
/* What was not seen any more is closed: forgotten. Only after a look that saw all files. */
void wg_samples_end(struct wg_samples *s, const struct wg_look *l);

struct wg_sampled {
	uint64_t since;	   /* first seen: before that nothing is known */
	uint64_t wrote_at; /* the look that last found it written; 0 none has */
};
/* 0 or -ENOENT. */
int wg_samples_find(struct wg_samples *s, int32_t pid, uint64_t dev, uint64_t ino,
		    struct wg_sampled *out);
/* Forget processes of which alive() says false. */
void wg_samples_sweep(struct wg_samples *s, int (*alive)(int32_t pid, uint64_t start, void *arg),
		      void *arg);

struct wg_samples_counts {
	uint64_t held;	  /* files now */
	uint64_t dropped; /* not kept for want of room, each time that they were seen */
};
void wg_samples_counts(struct wg_samples *s, struct wg_samples_counts *out);

#endif
