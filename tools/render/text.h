/* SPDX-License-Identifier: Apache-2.0 */
/* text.h - text.c (the verdict) and text_body.c (everything below it) share these. */
#ifndef WG_TEXT_H
#define WG_TEXT_H

#include "page.h"

#define WG_HEAD_LINES 24u

void wg_text_head(struct wg_page *page, const struct wg_graph *g, const struct wg_text_options *o,
		  bool dump);
void wg_text_body(struct wg_page *page, const struct wg_graph *g, const struct wg_text_options *o);
void wg_text_missing(struct wg_page *page, const struct wg_graph *g, size_t budget);
const struct wg_process *wg_text_main(const struct wg_graph *g); /* NULL: no process at all */
const char *wg_text_process(struct wg_arena *a, const struct wg_process *p);
/* The next useful command; NULL when there is none. */
const char *wg_text_next(const struct wg_graph *g, bool dump);

#endif
