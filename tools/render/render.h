/* SPDX-License-Identifier: Apache-2.0 */
/* render.h - graph and facts to text, JSON and pictures. Knows nothing of how they were found. */
#ifndef WG_RENDER_H
#define WG_RENDER_H

#include <stdio.h>

#include "../graph/graph.h"

struct wg_text_options {
	bool color;	 /* the caller has checked the terminal and NO_COLOR */
	bool all;	 /* every thread and frame; otherwise merged and cut */
	int width;	 /* columns; 0: 100 */
	const char *next; /* the next command to type, or NULL: chosen here */
};

/*
 * The first 24 lines hold verdict, chain, evidence, what is not established, and what to do next.
 * With `all` everything that dump prints follows (also of snapshots).
 */
int wg_render_why(FILE *out, const struct wg_graph *g, const struct wg_text_options *o);
/* The same, then devices, files, threads merged by equal stacks. */
int wg_render_dump(FILE *out, const struct wg_graph *g, const struct wg_text_options *o);
/* Schema waitgraph/1, one document. Carries enough to rebuild the facts (see snapshot.h). */
int wg_render_json(FILE *out, const struct wg_graph *g);
int wg_render_dot(FILE *out, const struct wg_graph *g);
int wg_render_svg(FILE *out, const struct wg_graph *g); /* lays out with graphviz; -ENOENT without */

#endif
