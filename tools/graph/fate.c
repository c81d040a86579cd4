/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fate.c - the least fixpoint over the and/or graph.
 *
 * Everything begins stuck; a node rises only when its targets give it a reason. All steps are
 * monotone in the order of enum wg_fate, so a worklist ends, and what is still stuck then has no
 * way out: with ANY edges that is a knot, with ALL edges a cycle or a stuck end.
 */
#include "internal.h"

#define SHORT_TIMER 30.0 /* a sleeper up to here may be on its way; a longer one is silent */

/* A relation whose other side merely idles is itself a reason to stand still. */
enum wg_fate wg_edge_fate(const struct wg_b *b, const struct wg_iedge *e)
{
	const struct wg_inode *to = &b->n.v[e->to];
	double T = to->timer;

	if (e->lost)
		return FATE_STUCK;
	if (!e->idle_cls || to->fate > FATE_IDLE)
		return to->fate;
	if (to->fate == FATE_UNKNOWN)
		return e->guess ? FATE_UNKNOWN : FATE_STUCK;
	if (to->fate == FATE_STUCK)
		return FATE_STUCK;
	/* What waits for a person at the far end is not hung, whoever passes it on. */
	if (to->fate == FATE_IDLE && to->person)
		return FATE_IDLE;
	/*
	 * It sleeps. One sleep that is longer than this wait has lasted may be the one after which
	 * it acts; a loop of shorter ones has come round without acting.
	 */
	if (wg_has_sec(T) && T <= SHORT_TIMER && T > (wg_has_sec(e->since) ? e->since : 5.0))
		return FATE_PENDING;
	return FATE_STUCK;
}

struct reverse {
	uint32_t *start, *edge;
};

static enum wg_fate evaluate(const struct wg_b *b, const struct wg_inode *n, double *timer)
{
	enum wg_fate lo = FATE_MOVING, hi = FATE_STUCK;
	bool any = false, endless = false;
	double T = WG_NO_SEC;

	for (uint32_t x = n->first; x; x = b->e.v[x - 1].next) {
		const struct wg_iedge *e = &b->e.v[x - 1];
		enum wg_fate f = wg_edge_fate(b, e);

		any = true;
		if (f < lo)
			lo = f;
		if (f > hi)
			hi = f;
		if (f == FATE_IDLE) {
			double t = b->n.v[e->to].timer;

			if (!wg_has_sec(t) || t > SHORT_TIMER)
				endless = true;
			else if (!wg_has_sec(T) || t > T)
				T = t;
		}
	}
	if (n->has_end) {
		any = true;
		if (n->end.fate < lo)
			lo = n->end.fate;
		if (n->end.fate > hi)
			hi = n->end.fate;
		if (n->end.fate == FATE_IDLE) {
			if (!wg_has_sec(n->end.timer_s) || n->end.timer_s > SHORT_TIMER)
				endless = true;
			else if (!wg_has_sec(T) || n->end.timer_s > T)
				T = n->end.timer_s;
		}
	}
	*timer = T;
	(void)endless;
	if (!any)
		return n->type == IT_WAKERS ? FATE_STUCK : FATE_UNKNOWN;
	switch (n->mode) {
	case MODE_ALL:
		return lo;
	case MODE_ONE:
		/* One of them is waited for: that another one idles proves nothing either way. */
		return hi == FATE_IDLE && lo < FATE_IDLE ? FATE_UNKNOWN : hi;
	case MODE_ACTOR:
		/*
		 * A thread that hangs says more about a process than one that idles beside it: a
		 * heartbeat beside a deadlocked main thread, a server in accept beside a handler.
		 */
		return hi < FATE_PENDING ? lo : hi;
	default:
		return hi;
	}
}

void wg_fates(struct wg_b *b)
{
	uint32_t n = (uint32_t)b->n.n, head = 0, count = 0;
	struct reverse r;
	uint32_t *queue;
	uint8_t *queued, *rounds;

	r.start = wg_alloc(b->a, (n + 2) * sizeof(*r.start));
	r.edge = wg_alloc(b->a, (b->e.n + 1) * sizeof(*r.edge));
	for (size_t i = 0; i < b->e.n; i++)
		r.start[b->e.v[i].to + 2]++;
	for (uint32_t i = 0; i < n; i++)
		r.start[i + 2] += r.start[i + 1];
	for (size_t i = 0; i < b->e.n; i++)
		r.edge[r.start[b->e.v[i].to + 1]++] = (uint32_t)i;
	queue = wg_alloc(b->a, (n + 1) * sizeof(*queue));
	/*
	 * Who can be reached by a key press, first: were it found out on the way, two who wait for
	 * each other would keep alive what was believed of them before.
	 */
	for (uint32_t i = 0; i < n; i++) {
		struct wg_inode *x = &b->n.v[i];

		x->person = x->has_end && x->end.person && x->end.fate == FATE_IDLE;
		if (x->person)
			queue[count++] = i;
	}
	while (count) {
		uint32_t i = queue[--count];

		for (uint32_t k = r.start[i]; k < r.start[i + 1]; k++) {
			uint32_t from = b->e.v[r.edge[k]].from;

			if (b->n.v[from].person || b->n.v[from].mode == MODE_ALL)
				continue;
			b->n.v[from].person = true;
			queue[count++] = from;
		}
	}
	queued = wg_alloc(b->a, n + 1);
	rounds = wg_alloc(b->a, n + 1);
	for (uint32_t i = 0; i < n; i++) {
		b->n.v[i].fate = FATE_STUCK;
		b->n.v[i].timer = WG_NO_SEC;
		queue[i] = i;
		queued[i] = 1;
	}
	count = n;
	while (count) {
		uint32_t i = queue[head];
		struct wg_inode *x = &b->n.v[i];
		enum wg_fate f;
		double timer;

		head = head + 1 == n ? 0 : head + 1;
		count--;
		queued[i] = 0;
		f = evaluate(b, x, &timer);
		if (f == x->fate && (f != FATE_IDLE || timer == x->timer ||
				     (!wg_has_sec(timer) && !wg_has_sec(x->timer))))
			continue;
		/* Rounds are bounded: a timer that is passed round a loop must not keep us here. */
		if (rounds[i]++ > 32)
			continue;
		x->fate = f;
		x->timer = timer;
		for (uint32_t k = r.start[i]; k < r.start[i + 1]; k++) {
			uint32_t from = b->e.v[r.edge[k]].from;

			if (queued[from])
				continue;
			queued[from] = 1;
			queue[(head + count) % n] = from;
			count++;
		}
	}
}
