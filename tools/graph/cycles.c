/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cycles.c - strongly connected parts of what is stuck (Tarjan, without recursion).
 *
 * Twice: over edges that something shows, and with the guesses ("another thread could signal
 * it"). A cycle of the second kind counts only when somebody in it holds a lock that another
 * one in it wants, while he himself waits to be signalled: then the lock is what keeps the
 * signal from coming. Two threads that both merely wait for a signal are no deadlock.
 */
#include "internal.h"

struct frame {
	uint32_t node, edge; /* next edge + 1 to look at */
};

static bool in_graph(const struct wg_b *b, const struct wg_iedge *e, bool guesses)
{
	return (guesses || !e->guess) && b->n.v[e->to].fate == FATE_STUCK;
}

static void tarjan(struct wg_b *b, bool guesses)
{
	uint32_t n = (uint32_t)b->n.n, next = 1, sp = 0, cp = 0, comp = 0;
	uint32_t *index = wg_alloc(b->a, (n + 1) * sizeof(*index));
	uint32_t *low = wg_alloc(b->a, (n + 1) * sizeof(*low));
	uint32_t *stack = wg_alloc(b->a, (n + 1) * sizeof(*stack));
	uint8_t *on = wg_alloc(b->a, n + 1);
	struct frame *call = wg_alloc(b->a, (n + 1) * sizeof(*call));

	for (uint32_t root = 0; root < n; root++) {
		if (index[root] || b->n.v[root].fate != FATE_STUCK || !b->n.v[root].first)
			continue;
		call[cp++] = (struct frame){root, b->n.v[root].first};
		index[root] = low[root] = next++;
		stack[sp++] = root;
		on[root] = 1;
		while (cp) {
			struct frame *f = &call[cp - 1];
			uint32_t v = f->node, w;

			if (f->edge) {
				const struct wg_iedge *e = &b->e.v[f->edge - 1];

				f->edge = e->next;
				if (!in_graph(b, e, guesses))
					continue;
				w = e->to;
				if (!index[w]) {
					index[w] = low[w] = next++;
					stack[sp++] = w;
					on[w] = 1;
					call[cp++] = (struct frame){w, b->n.v[w].first};
				} else if (on[w] && index[w] < low[v]) {
					low[v] = index[w];
				}
				continue;
			}
			cp--;
			if (cp && low[v] < low[call[cp - 1].node])
				low[call[cp - 1].node] = low[v];
			if (low[v] != index[v])
				continue;
			comp++;
			do {
				w = stack[--sp];
				on[w] = 0;
				if (guesses)
					b->n.v[w].loose = comp;
				else
					b->n.v[w].scc = comp;
			} while (w != v);
		}
	}
}

/* More than the one thread could write it: alone it may be waiting for anybody. */
static bool others_wait(const struct wg_b *b, const struct wg_inode *x)
{
	for (uint32_t k = x->first; k; k = b->e.v[k - 1].next)
		if (b->e.v[k - 1].guess && b->n.v[b->e.v[k - 1].to].type == IT_WAKERS)
			return b->n.v[b->e.v[k - 1].to].nout >= 2;
	return false;
}

static bool waits_for_stream(const struct wg_b *b, const struct wg_inode *x)
{
	for (uint32_t k = x->first; k; k = b->e.v[k - 1].next)
		if (b->n.v[b->e.v[k - 1].to].type == IT_STREAM)
			return true;
	return false;
}

void wg_cycles(struct wg_b *b)
{
	uint32_t n = (uint32_t)b->n.n;
	uint32_t *size = wg_alloc(b->a, (n + 2) * sizeof(*size));
	uint8_t *flags = wg_alloc(b->a, n + 2); /* of strict components: 1 loop, 2 leads out */
	uint8_t *loose = wg_alloc(b->a, n + 2); /* of loose ones: 1 a waiter holds a lock */

	tarjan(b, false);
	tarjan(b, true);
	for (uint32_t i = 0; i < n; i++)
		size[b->n.v[i].scc]++;
	for (uint32_t i = 0; i < n; i++) {
		const struct wg_inode *x = &b->n.v[i];

		if (x->fate != FATE_STUCK)
			continue;
		for (uint32_t k = x->first; k; k = b->e.v[k - 1].next) {
			const struct wg_iedge *e = &b->e.v[k - 1];
			const struct wg_inode *to = &b->n.v[e->to];

			if (wg_edge_fate(b, e) != FATE_STUCK)
				continue;
			if (x->scc && to->scc == x->scc && in_graph(b, e, false)) {
				flags[x->scc] |= 1;
			} else if (x->mode != MODE_ALL && x->scc && !e->guess) {
				flags[x->scc] |= 2;
			}
			if (x->loose && to->loose == x->loose && to->fate == FATE_STUCK &&
			    e->kind == WG_EDGE_HELD_BY && to->ownerless && !e->guess)
				loose[x->loose] |= 1;
			/* A stream waits for a value, and a host thread that could write it is held
			 * in an unnamed synchronisation with that stream. */
			if (x->loose && to->loose == x->loose && e->implicit &&
			    x->type == IT_THREAD && to->type == IT_STREAM)
				loose[x->loose] |= 2;
			/* Or it waits for a lock, which one who waits for that stream holds. */
			if (x->loose && to->loose == x->loose && e->kind == WG_EDGE_HELD_BY &&
			    !e->guess && to->type == IT_THREAD && waits_for_stream(b, to))
				loose[x->loose] |= 2;
		}
	}
	for (uint32_t i = 0; i < n; i++) {
		struct wg_inode *x = &b->n.v[i];

		x->cyclic = x->scc && (flags[x->scc] & 1);
		x->closed = x->cyclic && !(flags[x->scc] & 2);
		x->loose_cycle = x->loose && (loose[x->loose] & 1);
		x->value_cycle = x->loose && (loose[x->loose] & 2) && x->type == IT_EVENT &&
				 others_wait(b, x);
	}
}
