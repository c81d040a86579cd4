/* SPDX-License-Identifier: Apache-2.0 */
/* emit.c - the graph that is shown: without the nodes that only serve the walk. */
#include "internal.h"

static const enum wg_node_kind shown_kind[] = {
	[IT_THREAD] = WG_NODE_THREAD,
	[IT_PROCESS] = WG_NODE_PROCESS,
	[IT_LOCK] = WG_NODE_LOCK,
	[IT_GIL] = WG_NODE_GIL,
	[IT_STREAM] = WG_NODE_STREAM,
	[IT_EVENT] = WG_NODE_EVENT,
	[IT_COLLECTIVE] = WG_NODE_COLLECTIVE,
	[IT_PIPE] = WG_NODE_PIPE,
	[IT_SOCKET] = WG_NODE_SOCKET,
	[IT_FILE] = WG_NODE_FILE,
	[IT_FILE_LOCK] = WG_NODE_FILE_LOCK,
	[IT_RANK] = WG_NODE_PROCESS,
};

static bool serves_walk(const struct wg_inode *n)
{
	return n->type == IT_WAKERS || n->type == IT_JOINED;
}

static const char *node_id(struct wg_b *b, const struct wg_inode *n)
{
	const struct wg_process *p = wg_proc(b, n);

	if (n->type == IT_THREAD)
		return wg_say(b, "t:%d:%d", p->pid, wg_thr(b, n)->tid);
	if (n->type == IT_PROCESS)
		return wg_say(b, "pr:%d", p->pid);
	if (n->type == IT_LOCK)
		return wg_say(b, "l:%d:0x%llx", p->pid, (unsigned long long)n->b);
	return n->id ? n->id : wg_say(b, "x:%u", (uint32_t)(n - b->n.v));
}

/* A handle that was given out again, a pid of two snapshots: the first has the plain name. */
static const char *unique(struct wg_b *b, const char *id)
{
	uint64_t h = 0xcbf29ce484222325ull;
	uint32_t n;

	for (const char *s = id; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	n = wg_map_get(&b->ids, h, 0, 0);
	wg_map_put(b->a, &b->ids, h, 0, 0, n == WG_NONE ? 1 : n + 1);
	return n == WG_NONE ? id : wg_say(b, "%s#%u", id, n + 1);
}

static uint32_t show(struct wg_b *b, uint32_t ix)
{
	struct wg_inode *n = &b->n.v[ix];
	struct wg_node *x;

	if (n->shown)
		return n->shown - 1;
	x = wg_push(b->a, &b->g->nodes);
	n->shown = (uint32_t)b->g->nodes.n;
	x->id = node_id(b, n);
	/* The same pid on two hosts, and two processes' names for one object, stay apart. */
	if (n->proc >= 0 && b->hosts.n > 1)
		x->id = wg_say(b, "%s@%u", x->id, b->pi[n->proc].host);
	x->id = unique(b, x->id);
	x->kind = shown_kind[n->type];
	x->label = n->type == IT_THREAD || n->type == IT_PROCESS ? wg_name_node(b, ix)
		   : n->label					 ? n->label
								 : x->id;
	x->process = wg_proc(b, n);
	x->thread = wg_thr(b, n);
	return n->shown - 1;
}

void wg_emit(struct wg_b *b)
{
	struct wg_graph *g = b->g;
	size_t threads = b->np ? b->pi[b->np - 1].tbase + b->pi[b->np - 1].p->threads.n : 0;

	g->waits.cap = threads + 1;
	g->waits.v = wg_alloc(b->a, g->waits.cap * sizeof(*g->waits.v));
	for (uint32_t i = 0; i < b->e.n; i++) {
		const struct wg_iedge *e = &b->e.v[i];
		struct wg_edge *x;

		/* Spare hands at rest are told by their wait alone: a pool of a thousand is no
		 * graph. */
		if (e->hidden || b->n.v[e->from].bystander || serves_walk(&b->n.v[e->from]) ||
		    serves_walk(&b->n.v[e->to]))
			continue;
		x = wg_push(b->a, &g->edges);
		x->from = show(b, e->from);
		x->to = show(b, e->to);
		x->kind = e->kind;
		x->since_s = e->since;
		x->evidence = e->evidence ? e->evidence : "";
		x->certain = e->certain;
		x->step = e->step;
	}
	for (uint32_t i = 0; i < b->np; i++) {
		for (uint32_t k = 0; k < b->pi[i].p->threads.n; k++) {
			const struct wg_inode *n = &b->n.v[b->pi[i].tbase + k];
			struct wg_wait_view *v = wg_push(b->a, &g->waits);

			v->thread = &b->pi[i].p->threads.v[k];
			v->kind = n->wkind;
			v->object = n->wobject;
			v->call = n->wcall ? n->wcall : v->thread->wait.syscall_name;
			v->since_s = n->wsince;
			v->bystander = n->bystander;
		}
	}
}
