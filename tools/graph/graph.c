/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - the engine's entry: facts in, graph and verdict out. */
#include "internal.h"

struct wg_graph *wg_graph_build(const struct wg_facts *f)
{
	struct wg_arena *a = wg_arena_new();
	struct wg_graph *g = wg_alloc(a, sizeof(*g));
	struct wg_b b = {.g = g, .f = f, .a = a};

	g->arena = a;
	g->facts = f;
	wg_index(&b);
	wg_resolve_all(&b);
	wg_fates(&b);
	wg_cycles(&b);
	wg_verdict(&b);
	wg_emit(&b);
	return g;
}

void wg_graph_free(struct wg_graph *g)
{
	if (g)
		wg_arena_free(g->arena);
}
