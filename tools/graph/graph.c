/* SPDX-License-Identifier: Apache-2.0 */
/* graph.c - the engine's entry: facts in, graph and verdict out. */
#include "internal.h"

static struct wg_graph *build(const struct wg_facts *f, bool with_deaths_since)
{
	struct wg_arena *a = wg_arena_new();
	struct wg_graph *g = wg_alloc(a, sizeof(*g));
	struct wg_b b = {.g = g, .f = f, .a = a, .with_deaths_since = with_deaths_since};

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

/*
 * What died after the job's snapshots were taken is no cause of what they show. Only when they
 * show nothing wrong does its end explain why the others, who still live, stand now.
 */
struct wg_graph *wg_graph_build(const struct wg_facts *f)
{
	struct wg_graph *g = build(f, false), *after;
	bool died = false;

	for (size_t i = 0; i < f->procs.n; i++)
		died |= f->procs.v[i]->died_since;
	if (!died || g->verdict.hung == WG_HUNG_YES)
		return g;
	after = build(f, true);
	if (after->verdict.hung != WG_HUNG_YES) {
		wg_graph_free(after);
		return g;
	}
	wg_graph_free(g);
	return after;
}

void wg_graph_free(struct wg_graph *g)
{
	if (g)
		wg_arena_free(g->arena);
}
