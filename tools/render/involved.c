/* SPDX-License-Identifier: Apache-2.0 */
#include "involved.h"

#include <stdlib.h>

static uint32_t culprit_node(const struct wg_graph *g)
{
	const struct wg_culprit *c = &g->verdict.culprit;
	uint32_t process = UINT32_MAX;

	if (!c->present)
		return UINT32_MAX;
	for (size_t i = 0; i < g->nodes.n; i++) {
		const struct wg_node *x = &g->nodes.v[i];

		if (x->kind == WG_NODE_THREAD && x->thread && x->thread->tid == c->tid &&
		    (!wg_has_int(c->pid) || x->thread->pid == c->pid))
			return (uint32_t)i;
		if (x->kind == WG_NODE_PROCESS && x->process && x->process->pid == c->pid &&
		    process == UINT32_MAX)
			process = (uint32_t)i;
	}
	return process;
}

const bool *wg_involved(const struct wg_graph *g, struct wg_arena *a, uint32_t **edges,
			size_t *nedges)
{
	size_t nn = g->nodes.n, ne = g->edges.n, n = 0, head = 0, tail = 0;
	uint32_t *queue = wg_alloc(a, (nn + 1) * sizeof(*queue)), goal = culprit_node(g);
	uint32_t *first = wg_alloc(a, (nn + 1) * sizeof(*first));
	uint32_t *next = wg_alloc(a, (ne + 1) * sizeof(*next));
	uint32_t *list = wg_alloc(a, (ne + 1) * sizeof(*list));
	bool *seen = wg_alloc(a, nn + 1);

	*edges = list;
	if (goal == UINT32_MAX) {
		for (size_t i = 0; i < ne; i++)
			list[n++] = (uint32_t)i;
		*nedges = n;
		return seen;
	}
	for (size_t i = 0; i < ne; i++) /* edges by the node they lead to */
		if (g->edges.v[i].to < nn && g->edges.v[i].from < nn) {
			next[i] = first[g->edges.v[i].to];
			first[g->edges.v[i].to] = (uint32_t)i + 1;
		}
	queue[tail++] = goal;
	seen[goal] = true;
	while (head < tail)
		for (uint32_t e = first[queue[head++]]; e; e = next[e - 1]) {
			uint32_t from = g->edges.v[e - 1].from;

			list[n++] = e - 1;
			if (!seen[from]) {
				seen[from] = true;
				queue[tail++] = from;
			}
		}
	*nedges = n;
	return seen;
}

static int by_address(const void *a, const void *b)
{
	const struct wg_thread *x = *(const struct wg_thread *const *)a;
	const struct wg_thread *y = *(const struct wg_thread *const *)b;

	return x < y ? -1 : x > y;
}

const bool *wg_idle_threads(const struct wg_graph *g, struct wg_arena *a)
{
	bool *idle = wg_alloc(a, g->waits.n + 1);
	const struct wg_thread **busy = wg_alloc(a, (g->nodes.n + 1) * sizeof(*busy));
	const bool *in;
	uint32_t *edges;
	size_t n = 0, ne;

	in = wg_involved(g, a, &edges, &ne);
	for (size_t i = 0; i < g->nodes.n; i++)
		if (in[i] && g->nodes.v[i].thread && g->verdict.hung != WG_HUNG_NO)
			busy[n++] = g->nodes.v[i].thread;
	if (n)
		qsort(busy, n, sizeof(*busy), by_address);
	for (size_t i = 0; i < g->waits.n; i++) {
		const struct wg_thread *t = g->waits.v[i].thread;

		/* A worker that others wait for is no bystander, however it waits. */
		idle[i] = g->waits.v[i].bystander &&
			  !(n && bsearch(&t, busy, n, sizeof(*busy), by_address));
	}
	return idle;
}
