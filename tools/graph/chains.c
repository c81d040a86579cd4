/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chains.c - the walk from a symptom to its end.
 *
 * From a node only those edges are followed that give it its fate, so a stuck thread is led to
 * what keeps it stuck and a moving one to what moves. All ends are collected and the contract's
 * order chooses; among equals the surer and then the shorter way.
 */
#include "internal.h"

/* Contract, "Which class, when several fit": rule 1, rule 2, then the list of rule 3. */
static int class_score(enum wg_class c)
{
	switch (c) {
	case CL_LOCK_ORPHANED:
		return 10;
	case CL_LOCK_AFTER_FORK:
		return 11;
	case CL_PEER_DEAD:
		return 12;
	case CL_COLL_CYCLE:
		return 20;
	case CL_IMPLICIT_SYNC:
		return 21;
	case CL_LOCK_SELF:
		return 22;
	case CL_DEADLOCK:
		return 23;
	case CL_STOPPED:
		return 30;
	case CL_DRIVER_BLOCKED:
		return 31;
	case CL_WRITE_BLOCKED:
		return 32;
	case CL_READ_BLOCKED:
		return 33;
	case CL_FILE_LOCK:
		return 34;
	case CL_RESOURCE:
		return 35;
	case CL_COLL_MISMATCH:
		return 40;
	case CL_KERNEL_STUCK:
		return 41;
	case CL_GPU_UNSIGNALED:
		return 42;
	case CL_COLL_MISSING:
		return 43;
	case CL_HOST_CALLBACK:
		return 44;
	case CL_PIPE_FULL:
		return 50;
	case CL_PEER_SILENT:
		return 51;
	case CL_NO_WAKER:
		return 60;
	case CL_SPIN_WAIT:
		return 61;
	case CL_BUSY_GPU:
		return 70;
	case CL_BUSY_CPU:
		return 71;
	case CL_PROGRESSING:
		return 72;
	case CL_IDLE:
		return 73;
	default:
		return 80;
	}
}

struct wg_walk {
	struct wg_b *b;
	uint32_t *parent; /* edge + 1 by which a node was reached */
	uint32_t *cost;
	uint32_t *order; /* nodes in the order reached */
	size_t norder;
	uint32_t *seen;		       /* round * 2: reached, + 1: done */
	uint32_t *queue, *back, *mark; /* loop_path() */
	uint32_t round;
	WG_VEC(uint32_t) bucket[32];
};

static struct wg_walk *the_walk(struct wg_b *b)
{
	struct wg_walk *w = b->walk;
	size_t n = (b->n.n + 1) * sizeof(uint32_t);

	if (!w) {
		w = b->walk = wg_alloc(b->a, sizeof(*w));
		w->b = b;
		w->parent = wg_alloc(b->a, n);
		w->cost = wg_alloc(b->a, n);
		w->order = wg_alloc(b->a, n);
		w->seen = wg_alloc(b->a, n);
		w->queue = wg_alloc(b->a, n);
		w->back = wg_alloc(b->a, n);
		w->mark = wg_alloc(b->a, n);
	}
	w->round++;
	w->norder = 0;
	return w;
}

static uint32_t edge_cost(const struct wg_iedge *e)
{
	return (e->guess ? 16 : 0) + (e->certain ? 0 : 4);
}

/* Shortest ways by cost: a ring of buckets, as costs are small numbers. */
static void explore(struct wg_walk *w, uint32_t start)
{
	struct wg_b *b = w->b;
	uint32_t at = 0, left, reached = w->round * 2, done = reached + 1;

	w->cost[start] = 0;
	w->seen[start] = reached;
	w->parent[start] = 0;
	*wg_push(b->a, &w->bucket[0]) = start;
	left = 1;
	while (left) {
		uint32_t v;

		while (!w->bucket[at % 32].n)
			at++;
		v = w->bucket[at % 32].v[--w->bucket[at % 32].n];
		left--;
		if (w->seen[v] == done || w->cost[v] != at)
			continue;
		w->seen[v] = done;
		w->order[w->norder++] = v;
		for (uint32_t k = b->n.v[v].first; k; k = b->e.v[k - 1].next) {
			const struct wg_iedge *e = &b->e.v[k - 1];
			uint32_t c;

			if (wg_edge_fate(b, e) != b->n.v[v].fate)
				continue;
			c = at + 1 + edge_cost(e);
			if (w->seen[e->to] == done ||
			    (w->seen[e->to] == reached && w->cost[e->to] <= c))
				continue;
			w->seen[e->to] = reached;
			w->cost[e->to] = c;
			w->parent[e->to] = k;
			*wg_push(b->a, &w->bucket[c % 32]) = e->to;
			left++;
		}
	}
}

static size_t trace(const struct wg_walk *w, uint32_t to, uint32_t **path)
{
	size_t n = 0, i;

	for (uint32_t k = w->parent[to]; k; k = w->parent[w->b->e.v[k - 1].from])
		n++;
	*path = wg_alloc(w->b->a, (n + 1) * sizeof(**path));
	i = n;
	for (uint32_t k = w->parent[to]; k; k = w->parent[w->b->e.v[k - 1].from])
		(*path)[--i] = k - 1;
	return n;
}

/* The relation by which a node was reached, past the nodes that only stand for a process. */
static const struct wg_iedge *relation(const struct wg_walk *w, uint32_t node)
{
	uint32_t k = w->parent[node];

	while (k) {
		const struct wg_iedge *e = &w->b->e.v[k - 1];
		enum wg_itype from = w->b->n.v[e->from].type;

		if (from != IT_PROCESS && from != IT_WAKERS)
			return e;
		k = w->parent[e->from];
	}
	return NULL;
}

/* The first edge on the way at which mere idling became a reason to stand still. */
static const struct wg_iedge *converted(const struct wg_walk *w, uint32_t node)
{
	const struct wg_iedge *hit = NULL;

	for (uint32_t k = w->parent[node]; k; k = w->parent[w->b->e.v[k - 1].from]) {
		const struct wg_iedge *e = &w->b->e.v[k - 1];

		if (e->idle_cls && w->b->n.v[e->to].fate != FATE_STUCK &&
		    wg_edge_fate(w->b, e) == FATE_STUCK)
			hit = e;
	}
	return hit;
}

/* In an unnamed synchronisation, or behind a lock of which the owner is known. */
static bool held_up(const struct wg_b *b, uint32_t thread)
{
	for (uint32_t k = b->n.v[thread].first; k; k = b->e.v[k - 1].next) {
		uint32_t to = b->e.v[k - 1].to;

		if (b->e.v[k - 1].implicit)
			return true;
		for (uint32_t i = b->n.v[to].type == IT_LOCK || b->n.v[to].type == IT_GIL
					  ? b->n.v[to].first
					  : 0;
		     i; i = b->e.v[i - 1].next)
			if (b->e.v[i - 1].kind == WG_EDGE_HELD_BY && !b->e.v[i - 1].guess)
				return true;
	}
	return false;
}

/* Shortest way from `from` back to itself inside its component. */
static bool loop_path(struct wg_b *b, uint32_t from, bool loose, uint32_t **path, size_t *n)
{
	struct wg_walk *w = b->walk;
	uint32_t *parent = w->back, *queue = w->queue;
	uint32_t comp = loose ? b->n.v[from].loose : b->n.v[from].scc;
	size_t head = 0, tail = 0, len = 0;
	uint32_t last = 0;

	queue[tail++] = from;
	while (head < tail && !last) {
		uint32_t v = queue[head++];

		for (uint32_t k = b->n.v[v].first; k && !last; k = b->e.v[k - 1].next) {
			const struct wg_iedge *e = &b->e.v[k - 1];
			const struct wg_inode *to = &b->n.v[e->to];

			if (to->fate != FATE_STUCK || (!loose && e->guess) ||
			    (loose ? to->loose : to->scc) != comp)
				continue;
			if (e->to == from) {
				/* A guessed cycle must come home through a lock that `from` holds.
				 */
				if (loose && e->kind != WG_EDGE_HELD_BY &&
				    b->n.v[from].type != IT_EVENT)
					continue;
				last = k;
				break;
			}
			if (w->mark[e->to] == w->round)
				continue;
			/* Round a value: by a thread that something shown holds up. */
			if (loose && b->n.v[from].type == IT_EVENT && b->n.v[v].type == IT_WAKERS &&
			    !held_up(b, e->to))
				continue;
			w->mark[e->to] = w->round;
			parent[e->to] = k;
			queue[tail++] = e->to;
		}
	}
	if (!last)
		return false;
	for (uint32_t k = last;; k = parent[b->e.v[k - 1].from]) {
		len++;
		if (b->e.v[k - 1].from == from)
			break;
	}
	*path = wg_alloc(b->a, (len + 1) * sizeof(**path));
	*n = len;
	for (uint32_t k = last;; k = parent[b->e.v[k - 1].from]) {
		(*path)[--len] = k - 1;
		if (b->e.v[k - 1].from == from)
			break;
	}
	return true;
}

static enum wg_class cycle_class(const struct wg_b *b, const uint32_t *path, size_t n)
{
	const void *comm = NULL;
	bool implicit = false, locks_only = true, held = false;
	int comms = 0, threads = 0;
	uint32_t last = WG_NONE;

	for (size_t i = 0; i < n; i++) {
		const struct wg_iedge *e = &b->e.v[path[i]];
		const struct wg_inode *x = &b->n.v[e->from];

		implicit |= e->implicit;
		held |= e->kind == WG_EDGE_HELD_BY;
		if (x->type == IT_THREAD && e->from != last) {
			threads++;
			last = e->from;
		}
		if (x->type == IT_COLLECTIVE) {
			uint64_t g = x->a & 0xffffffffu;

			if (!comms || comm != (const void *)(uintptr_t)(g + 1)) {
				comms++;
				comm = (const void *)(uintptr_t)(g + 1);
			}
		}
		if (x->type != IT_THREAD && x->type != IT_LOCK && x->type != IT_GIL &&
		    x->type != IT_FILE_LOCK && x->type != IT_PROCESS)
			locks_only = false;
	}
	if (comms >= 2)
		return CL_COLL_CYCLE;
	if (implicit)
		return CL_IMPLICIT_SYNC;
	if (comms)
		return CL_COLL_CYCLE;
	if (threads <= 1 && locks_only && held)
		return CL_LOCK_SELF;
	return CL_DEADLOCK;
}

struct best {
	int score;
	uint32_t cost;
	uint32_t node;
	enum wg_class cls;
	const struct wg_iedge *by;
	bool cycle, loose, found;
};

static void offer(struct best *best, int score, uint32_t cost, uint32_t node, enum wg_class cls,
		  const struct wg_iedge *by, bool cycle, bool loose)
{
	if (best->found && (score > best->score || (score == best->score && cost >= best->cost)))
		return;
	*best = (struct best){score, cost, node, cls, by, cycle, loose, true};
}

static void offer_node(const struct wg_walk *w, struct best *best, uint32_t v)
{
	const struct wg_b *b = w->b;
	const struct wg_inode *n = &b->n.v[v];
	const struct wg_iedge *conv = converted(w, v), *rel;
	enum wg_class cls;

	if (n->has_end && n->end.fate == n->fate) {
		cls = n->end.cls;
		if (conv && n->awaits_task) {
			/*
			 * It owes nothing: only where there is no other explanation is it named.
			 * What is waited for was never given to it, or to one that is no more.
			 */
			offer(best, 65, w->cost[v], v, CL_NO_WAKER, conv, false, false);
		} else if (conv) {
			offer(best, class_score(conv->idle_cls), w->cost[v], v, conv->idle_cls,
			      conv, false, false);
		} else {
			rel = relation(w, v);
			/* The last node's own wait says less than what it owes to those before it.
			 */
			if ((cls == CL_NO_WAKER || cls == CL_SPIN_WAIT) && rel && rel->idle_cls &&
			    rel->idle_cls != CL_GPU_UNSIGNALED)
				offer(best, class_score(rel->idle_cls), w->cost[v], v,
				      rel->idle_cls, rel, false, false);
			else
				offer(best, class_score(cls), w->cost[v], v, cls, NULL, false,
				      false);
		}
	} else if (!n->first && !n->has_end) {
		if (conv)
			offer(best, class_score(conv->idle_cls), w->cost[v], v, conv->idle_cls,
			      conv, false, false);
		else if (n->type != IT_WAKERS)
			offer(best, class_score(CL_UNKNOWN), w->cost[v], v, CL_UNKNOWN, NULL, false,
			      false);
	} else if (n->mode == MODE_ONE && n->fate == FATE_UNKNOWN) {
		offer(best, class_score(CL_UNKNOWN), w->cost[v], v, CL_UNKNOWN, NULL, false, false);
	}
	if (n->fate != FATE_STUCK)
		return;
	if (n->cyclic)
		offer(best, n->closed ? 25 : 54, w->cost[v], v, CL_DEADLOCK, NULL, true, false);
	else if (n->value_cycle)
		offer(best, 27, w->cost[v] + 8, v, CL_IMPLICIT_SYNC, NULL, true, true);
	else if (n->loose_cycle && n->ownerless)
		offer(best, 26, w->cost[v] + 8, v, CL_DEADLOCK, NULL, true, true);
	/* A peer that is stuck only together with the one who waits for it is silent. */
	rel = relation(w, v);
	if (rel && rel->idle_cls && n->type == IT_THREAD && rel->idle_cls != CL_GPU_UNSIGNALED)
		offer(best, 56, w->cost[v], v, rel->idle_cls, rel, false, false);
}

bool wg_find(struct wg_b *b, uint32_t start, struct wg_finding *out)
{
	struct wg_walk *w = the_walk(b);
	struct best best = {0};
	uint32_t *loop = NULL;
	size_t nloop = 0;

	memset(out, 0, sizeof(*out));
	explore(w, start);
	for (size_t i = 0; i < w->norder; i++)
		offer_node(w, &best, w->order[i]);
	out->start = start;
	out->fate = b->n.v[start].fate;
	if (!best.found) {
		out->cls = CL_UNKNOWN;
		out->endnode = start;
		out->score = 99;
		return false;
	}
	out->endnode = best.node;
	out->cls = best.cls;
	out->by = best.by;
	out->end = b->n.v[best.node].has_end ? &b->n.v[best.node].end : NULL;
	out->npath = trace(w, best.node, &out->path);
	out->cycle_from = out->npath;
	if (best.cycle && loop_path(b, best.node, best.loose, &loop, &nloop)) {
		uint32_t *path = wg_alloc(b->a, (out->npath + nloop + 1) * sizeof(*path));

		memcpy(path, out->path, out->npath * sizeof(*path));
		memcpy(path + out->npath, loop, nloop * sizeof(*path));
		out->path = path;
		out->npath += nloop;
		out->cycle = true;
		out->end = NULL;
		out->cls = cycle_class(b, loop, nloop);
	}
	out->score = out->cycle && best.score < 50 ? class_score(out->cls) : best.score;
	out->certain = true;
	for (size_t i = 0; i < out->npath; i++) {
		const struct wg_iedge *e = &b->e.v[out->path[i]];

		out->certain &= e->certain;
		out->guessed |= e->guess;
	}
	if (out->end && out->end->certainty != WG_CERTAIN && !out->by)
		out->certain = false;
	return true;
}

uint32_t wg_idler(const struct wg_b *b, const struct wg_finding *f)
{
	const struct wg_inode *end = &b->n.v[f->endnode];

	/*
	 * A server that reads from one client alone serves nobody else meanwhile: the silence is
	 * that client's. One that polls many merely waits.
	 */
	if (f->cls != CL_PEER_SILENT || end->type != IT_THREAD ||
	    end->proc == b->n.v[f->by->to].proc)
		return f->by->to;
	for (size_t i = f->npath; i-- > 0;) {
		const struct wg_inode *n = &b->n.v[b->e.v[f->path[i]].from];

		if (n->type == IT_THREAD && n->proc != end->proc)
			return wg_thr(b, n)->wait.op == WG_OP_READ ? f->endnode : f->by->to;
	}
	return f->by->to;
}
