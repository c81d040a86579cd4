/* SPDX-License-Identifier: Apache-2.0 */
/* involved.h - which parts of the graph the verdict is about. */
#ifndef WG_INVOLVED_H
#define WG_INVOLVED_H

#include "../graph/graph.h"

/*
 * Nodes from which the culprit is reached, by node; and their edges, those nearest to the
 * culprit first (*edges, *nedges). Where the culprit has no node (a rank that left nothing)
 * no node is involved and the edges are all, in order. In the arena a.
 */
const bool *wg_involved(const struct wg_graph *g, struct wg_arena *a, uint32_t **edges,
			size_t *nedges);
/* By index in g->waits: does this thread wait by design, and is nobody's trouble? */
const bool *wg_idle_threads(const struct wg_graph *g, struct wg_arena *a);

#endif
