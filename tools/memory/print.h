/* SPDX-License-Identifier: Apache-2.0 */
/* print.h - the analysis as text for people and as waitgraph-mem/1. */
#ifndef WG_MEMORY_PRINT_H
#define WG_MEMORY_PRINT_H

#include <stdio.h>

#include <jansson.h>

#include "analysis.h"

/* "4.7 GiB"; in one of eight static buffers, for printf. "unknown" for WGM_NONE. */
const char *wgm_size(uint64_t bytes);
/* "12.3 s", "3 min 4 s", "2 h 5 min"; static like wgm_size(). */
const char *wgm_time(double s);

void wgm_print(FILE *out, struct wgm_analysis *a, unsigned int rows);
json_t *wgm_json(struct wgm_analysis **all, size_t n); /* the whole document */
json_t *wgm_json_stack(const struct wgm_frame *f, size_t n);
/* The sentence about one failure, for text and reports. */
const char *wgm_failure_text(struct wgm_analysis *a, const struct wgm_device *d,
			     const struct wgm_failure *f);

/*
 * Open what the arguments name: traces, or directories with *.trace in them. The ones that
 * cannot be read are told on stderr; returns 0 or the exit code of the worst (65, 66, 77).
 * *all is malloc'ed; close with wgm_close_all().
 */
int wgm_open_all(const char *verb, char **paths, int n, struct wgm_analysis ***all, size_t *count,
		 struct wgm_analysis *(*analyse)(struct wgm_trace *));
void wgm_close_all(struct wgm_analysis **all, size_t n);

#endif
