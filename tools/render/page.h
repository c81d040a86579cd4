/* SPDX-License-Identifier: Apache-2.0 */
/*
 * page.h - lines of text before they are printed: wrapped to columns, counted, cut to a
 * budget, then coloured. Widths are terminal columns, not bytes.
 */
#ifndef WG_PAGE_H
#define WG_PAGE_H

#include <stdio.h>

#include "render.h"

enum wg_style { WG_PLAIN, WG_HEAD, WG_BAD, WG_GOOD, WG_DOUBT, WG_DIM };

struct wg_line {
	const char *text;
	enum wg_style style;
	int label; /* columns at the start that are printed in bold */
};
struct wg_page {
	struct wg_arena *arena;
	int width;
	WG_VEC(struct wg_line) lines;
};

/* Columns that s takes on a terminal (n bytes of it). */
int wg_columns(const char *s, size_t n);
void wg_line(struct wg_page *p, enum wg_style style, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Text wrapped at words: `first` opens the first line, `rest` the others. */
void wg_wrap(struct wg_page *p, enum wg_style style, const char *first, const char *rest,
	     const char *text);
/* The same, but at most `max` lines: what is cut ends in "...". */
void wg_wrap_cut(struct wg_page *p, enum wg_style style, const char *first, const char *rest,
		 const char *text, size_t max);
/* Text cut to so many columns, with "..." where it was; in the middle for paths (tail is kept). */
const char *wg_cut(struct wg_arena *a, const char *s, int columns);
const char *wg_cut_path(struct wg_arena *a, const char *s, int columns);
int wg_page_print(FILE *out, const struct wg_page *p, bool color);

/* Numbers as people read them. */
const char *wg_bytes_text(struct wg_arena *a, int64_t v);  /* "1.5 GiB"; "?" absent */
const char *wg_ranges_text(struct wg_arena *a, const int64_t *v, size_t n); /* "0-4, 6", rising */
const char *wg_time_text(struct wg_arena *a, double s);	   /* "3 min 20 s"; "?" absent */

#endif
