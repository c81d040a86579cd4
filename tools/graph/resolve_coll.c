/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_coll.c - collectives over all ranks that are known: who is in, who never came, who
 * brought something else.
 *
 * Ranks are joined by the communicator's id and by sequence numbers that each rank counts for
 * itself. Sends and receives are counted apart and matched in pairs.
 */
#include "internal.h"

static bool same(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

static const struct wg_collective *find_coll(const struct wg_comm *c, uint64_t seq, bool p2p)
{
	if (!c)
		return NULL;
	for (size_t i = c->recent.n; i-- > 0;)
		if (c->recent.v[i].sequence == seq && c->recent.v[i].p2p == p2p)
			return &c->recent.v[i];
	return NULL;
}

static const char *rank_name(struct wg_b *b, const struct wg_group *g, int64_t r)
{
	const struct wg_member *m = &g->member[r];

	if (m->proc >= 0)
		return wg_say(b, "rank %lld (pid %d)", (long long)r, b->pi[m->proc].p->pid);
	if (m->peer && wg_has_int(m->peer->pid))
		return wg_say(b, "rank %lld (pid %lld%s%s)", (long long)r, (long long)m->peer->pid,
			      m->peer->host ? " on " : "", m->peer->host ? m->peer->host : "");
	return wg_say(b, "rank %lld", (long long)r);
}

static const char *args_of(struct wg_b *b, const struct wg_collective *x)
{
	const char *count = wg_has_int(x->count) ? wg_say(b, " of %lld", (long long)x->count) : "";
	const char *root = wg_has_int(x->root) && x->root >= 0
				   ? wg_say(b, ", root %lld", (long long)x->root)
				   : "";

	return wg_say(b, "%s%s%s%s%s%s%s", x->op ? x->op : "a collective", count,
		      x->type ? " " : "", x->type ? x->type : "", root, x->redop ? ", " : "",
		      x->redop ? x->redop : "");
}

static bool rooted(const char *op)
{
	return op && (!strcmp(op, "Broadcast") || !strcmp(op, "Bcast") || !strcmp(op, "Reduce") ||
		      !strcmp(op, "Gather") || !strcmp(op, "Scatter"));
}

static bool differ(const struct wg_collective *x, const struct wg_collective *y)
{
	if (x->op && y->op && strcmp(x->op, y->op))
		return true;
	if (wg_has_int(x->count) && wg_has_int(y->count) && x->count != y->count)
		return true;
	if (x->type && y->type && strcmp(x->type, y->type))
		return true;
	/* Another reduction gives wrong numbers and often returns: no cause of a later hang. */
	if (x->redop && y->redop && strcmp(x->redop, y->redop) &&
	    !(x->state == WG_COLL_DONE && y->state == WG_COLL_DONE))
		return true;
	return rooted(x->op) && rooted(y->op) && wg_has_int(x->root) && wg_has_int(y->root) &&
	       x->root != y->root;
}

/*
 * The earliest sequence number at which two ranks brought different things. It may lie before
 * the one that is stuck: a wrong root often returns, and an innocent later call hangs.
 */
static void find_mismatch(struct wg_b *b, struct wg_group *g)
{
	struct wg_map first = {0}; /* sequence -> rank that was seen first with it */
	uint64_t at = ~0ull;
	const struct wg_collective *a = NULL;
	int64_t odd = -1, n_odd = 0, n_all = 0, other = -1;

	for (int64_t r = 0; r < g->nmember; r++) {
		const struct wg_comm *c = g->member[r].comm;

		for (size_t i = 0; c && i < c->recent.n; i++) {
			const struct wg_collective *x = &c->recent.v[i];
			uint32_t f;

			if (x->p2p || x->failed || x->captured || x->sequence >= at)
				continue;
			f = wg_map_get(&first, x->sequence, 0, 0);
			if (f == WG_NONE) {
				wg_map_put(b->a, &first, x->sequence, 0, 0, (uint32_t)r);
				continue;
			}
			if (differ(x, find_coll(g->member[f].comm, x->sequence, false)))
				at = x->sequence;
		}
	}
	if (at == ~0ull)
		return;
	/* The minority is named: with two ranks that is a convention, and is said. */
	for (int64_t r = 0; r < g->nmember; r++) {
		const struct wg_collective *x = find_coll(g->member[r].comm, at, false);
		int64_t like = 0;

		if (!x || x->failed || x->captured)
			continue;
		n_all++;
		for (int64_t q = 0; q < g->nmember && q < 4096; q++) {
			const struct wg_collective *y = find_coll(g->member[q].comm, at, false);

			like += y && !y->failed && !y->captured && !differ(x, y);
		}
		if (odd < 0 || like < n_odd || (like == n_odd && r > odd)) {
			odd = r;
			n_odd = like;
		}
		if (g->nmember > 256 && n_odd * 2 < n_all && n_all > 64)
			break; /* clear enough: do not compare a thousand ranks with each other */
	}
	a = find_coll(g->member[odd].comm, at, false);
	for (int64_t r = 0; r < g->nmember && other < 0; r++) {
		const struct wg_collective *x = find_coll(g->member[r].comm, at, false);

		if (r != odd && x && !x->failed && !x->captured && differ(x, a))
			other = r;
	}
	if (other < 0)
		return;
	g->mismatch_seq = (int64_t)at;
	g->mismatch_rank = odd;
	g->mismatch_certain = n_all > 2 && n_odd * 2 < n_all;
	g->mismatch_text = wg_say(b, "at #%llu %s did %s, and %s did %s", (unsigned long long)at,
				  rank_name(b, g, odd), args_of(b, a),
				  n_all > 2 && n_odd == 1 ? "the others" : rank_name(b, g, other),
				  args_of(b, find_coll(g->member[other].comm, at, false)));
}

static uint32_t group_ix(const struct wg_b *b, const struct wg_group *g)
{
	return (uint32_t)(g - b->groups.v);
}

static const char *comm_name(struct wg_b *b, const struct wg_comm *c)
{
	if (c->name)
		return wg_say(b, "communicator \"%s\"", c->name);
	return wg_say(b, "communicator %.12s", c->id ? c->id : "?");
}

uint32_t wg_collective_node(struct wg_b *b, int32_t proc, const struct wg_comm *c, uint64_t seq,
			    bool p2p)
{
	struct wg_group *g = wg_group_of(b, c->id);
	uint64_t k = group_ix(b, g);
	const struct wg_collective *x;
	struct wg_inode *n;
	uint32_t node;
	bool fresh;

	/* A send and its receive are two nodes: each rank counts its own. */
	if (p2p)
		k |= 1ull << 63 | ((uint64_t)c->rank + 1) << 32;
	node = wg_node(b, IT_COLLECTIVE, k, seq, &fresh);
	n = &b->n.v[node];
	x = find_coll(c, seq, p2p);
	if (x && (!wg_has_sec(n->wsince) || x->age_s > n->wsince))
		n->wsince = x->age_s;
	if (!fresh)
		return node;
	n->proc = proc;
	n->obj = c;
	n->mode = MODE_ALL;
	if (seq == WG_COMM_INIT_SEQ)
		n->label = wg_say(b, "initialisation of %s", comm_name(b, c));
	else if (seq == WG_COMM_END_SEQ)
		n->label = wg_say(b, "end of %s", comm_name(b, c));
	else if (p2p && x)
		n->label = wg_say(b, "%s %s rank %lld on %s", x->op ? x->op : "transfer",
				  x->op && x->op[0] == 'R' ? "from" : "to", (long long)x->root,
				  comm_name(b, c));
	else
		n->label = wg_say(b, "%s #%llu on %s", x && x->op ? x->op : "collective",
				  (unsigned long long)seq, comm_name(b, c));
	n->id = wg_say(b, "c:%s:%s%lld%s", c->id ? c->id : "?", p2p ? "p" : "",
		       seq == WG_COMM_INIT_SEQ	? -1LL
		       : seq == WG_COMM_END_SEQ ? -2LL
						: (long long)seq,
		       p2p ? wg_say(b, ":%lld", (long long)c->rank) : "");
	return node;
}

/* Where threads are ranks: the one that entered collectives of another communicator there. */
static uint32_t driver_of_device(struct wg_b *b, const struct wg_member *m)
{
	const struct wg_process *p = b->pi[m->proc].p;
	uint32_t t = WG_NONE;
	double age = INFINITY;

	if (!m->comm || !wg_has_int(m->comm->device))
		return WG_NONE;
	for (size_t i = 0; i < p->comms.n; i++) {
		const struct wg_comm *c = &p->comms.v[i];
		const struct wg_collective *x =
			c->recent.n ? &c->recent.v[c->recent.n - 1] : NULL;
		uint32_t o;

		if (!x || !x->tid || c->device != m->comm->device || !(x->age_s < age))
			continue;
		o = wg_any_tid_node(b, b->pi[m->proc].host, x->tid);
		if (o == WG_NONE || b->n.v[o].proc != m->proc)
			continue;
		t = o;
		age = x->age_s;
	}
	return t;
}

/* The thread of this rank that would enter: the one that entered the last collective, else main. */
static uint32_t entering(struct wg_b *b, const struct wg_member *m, bool *sure)
{
	const struct wg_pinfo *pi = &b->pi[m->proc];
	uint32_t t = WG_NONE;
	size_t n = 0;

	*sure = true;
	if (m->comm && m->comm->recent.n) {
		int32_t tid = m->comm->recent.v[m->comm->recent.n - 1].tid;

		if (tid)
			t = wg_any_tid_node(b, pi->host, tid);
		if (t != WG_NONE && b->n.v[t].proc != m->proc)
			t = WG_NONE;
	}
	if (t != WG_NONE)
		return t;
	t = driver_of_device(b, m);
	if (t != WG_NONE) {
		*sure = false;
		return t;
	}
	for (size_t i = 0; i < pi->p->threads.n; i++)
		n += !pi->p->threads.v[i].ours;
	*sure = n == 1;
	if (pi->main_thr >= 0)
		return pi->tbase + (uint32_t)pi->main_thr;
	return WG_NONE;
}

/* Ranks can be threads: the tid of the one that drove this rank, if it has ended; else 0. */
static int32_t driver_gone(struct wg_b *b, const struct wg_member *m)
{
	const struct wg_process *p = b->pi[m->proc].p;
	int32_t tid =
		m->comm && m->comm->recent.n ? m->comm->recent.v[m->comm->recent.n - 1].tid : 0;
	const struct wg_thread *t;

	if (!tid || p->stub || !p->threads.n)
		return 0;
	t = wg_find_thread(p, tid);
	return t && t->state != 'Z' && t->state != 'X' ? 0 : tid;
}

/* It has ended; another thread may take its place, if one still moves. */
static void left_by_thread(struct wg_b *b, uint32_t node, const struct wg_group *g, int64_t r,
			   int32_t tid, uint32_t other, const char *evidence)
{
	const struct wg_member *m = &g->member[r];
	uint32_t t = wg_node(b, IT_RANK, group_ix(b, g), (uint64_t)r, NULL);
	struct wg_iedge *e;
	struct wg_inode *n;

	if (!b->n.v[t].has_end) {
		wg_set_end(
			b, t, CL_COLL_MISSING, FATE_STUCK, WG_LIKELY,
			wg_say(b, "thread %d, which drove %s, has ended", tid, rank_name(b, g, r)));
		n = &b->n.v[t];
		n->label = rank_name(b, g, r);
		n->id = wg_say(b, "r:%s:%lld", g->id, (long long)r);
		n->mode = MODE_ANY;
		n->proc = m->proc;
		n->end.pid = b->pi[m->proc].p->pid;
		n->end.tid = tid;
		n->end.rank = r;
		n->end.comm = g->id;
		n->end.who = wg_say(b, "thread %d of %s, which has ended", tid, rank_name(b, g, r));
		if (other != WG_NONE) {
			e = wg_edge(b, t, other, WG_EDGE_WOKEN_BY, false,
				    "another thread could take its place");
			e->guess = true;
			e->idle_cls = CL_COLL_MISSING;
			e->since = b->n.v[node].wsince;
		}
	}
	e = wg_edge(b, node, t, WG_EDGE_MEMBER, true, evidence);
	e->since = b->n.v[node].wsince;
}

/* It lives, and its record is not among the facts: not made, of another user, or out of time. */
static bool record_unread(const struct wg_process *p)
{
	return p->stub || !p->recorded;
}

static void add_missing(struct wg_b *b, uint32_t node, const struct wg_group *g, int64_t r,
			const char *evidence)
{
	const struct wg_member *m = &g->member[r];
	struct wg_iedge *e;
	bool sure = false;
	int32_t gone;
	uint32_t t;

	if (m->dead && m->proc >= 0) {
		e = wg_edge(b, node, b->pi[m->proc].node, WG_EDGE_MEMBER, !m->guessed, evidence);
		e->since = b->n.v[node].wsince;
		return;
	}
	if (m->proc >= 0) {
		t = entering(b, m, &sure);
		gone = driver_gone(b, m);
		if (gone) {
			left_by_thread(b, node, g, r, gone, t, evidence);
			return;
		}
		if (t == WG_NONE) {
			t = b->pi[m->proc].node;
			sure = true;
		}
		e = wg_edge(b, node, t, WG_EDGE_MEMBER, sure, evidence);
		e->idle_cls = CL_COLL_MISSING;
		e->since = b->n.v[node].wsince;
		if (!m->comm && record_unread(b->pi[m->proc].p)) {
			/* Not to know whether it entered is no word that it did not. */
			e->certain = false;
			e->guess = true;
		}
		return;
	}
	t = wg_node(b, IT_RANK, group_ix(b, g), (uint64_t)r, NULL);
	if (!b->n.v[t].has_end) {
		struct wg_inode *n;

		if (m->dead) {
			wg_set_end(b, t, CL_PEER_DEAD, FATE_STUCK, WG_CERTAIN,
				   wg_say(b, "%s no longer exists", rank_name(b, g, r)));
			b->n.v[t].end.gone = true;
		} else if (b->f->live && b->f->asked.n) {
			/* Perhaps on another host: that it is not seen here says nothing. */
			wg_set_end(b, t, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
				   wg_say(b,
					  "%s is not among the processes that could be looked at",
					  rank_name(b, g, r)));
			b->n.v[t].end.missing = wg_say(b, "a snapshot of %s", rank_name(b, g, r));
		} else {
			wg_set_end(b, t, CL_COLL_MISSING, FATE_STUCK, WG_LIKELY,
				   wg_say(b, "%s left no snapshot", rank_name(b, g, r)));
		}
		n = &b->n.v[t];
		n->label = rank_name(b, g, r);
		n->id = wg_say(b, "r:%s:%lld", g->id, (long long)r);
		n->end.rank = r;
		n->end.comm = g->id;
		n->end.pid = m->peer && wg_has_int(m->peer->pid) ? m->peer->pid : WG_NO_INT;
		n->end.who = rank_name(b, g, r);
		n->mode = MODE_ANY;
	}
	e = wg_edge(b, node, t, WG_EDGE_MEMBER, m->dead, evidence);
	e->since = b->n.v[node].wsince;
}

/* Entered but not begun on its GPU: something stands before it on that rank's stream. */
static bool behind(struct wg_b *b, uint32_t node, const struct wg_member *m,
		   const struct wg_collective *x, bool *runs)
{
	const struct wg_process *p = b->pi[m->proc].p;

	*runs = false;
	for (size_t i = 0; i < p->streams.n; i++) {
		const struct wg_stream *s = &p->streams.v[i];
		bool sure;
		int h;

		if (s->handle != x->stream || !s->pending.n ||
		    (wg_has_int(m->comm->device) && wg_has_int(s->device) &&
		     m->comm->device != s->device))
			continue;
		h = wg_stream_head(b, m->proc, s, &sure);
		if (h < 0)
			return false;
		if (s->pending.v[h].op == WG_GPU_COLLECTIVE &&
		    s->pending.v[h].coll_seq == x->sequence && s->pending.v[h].p2p == x->p2p &&
		    wg_has_int(s->pending.v[h].comm) && s->pending.v[h].comm >= 0 &&
		    (uint64_t)s->pending.v[h].comm < p->comms.n &&
		    &p->comms.v[s->pending.v[h].comm] == m->comm) {
			*runs = true;
			return false;
		}
		/* Is it on this stream at all, behind the head? */
		for (size_t k = (size_t)h + 1; k < s->pending.n; k++) {
			const struct wg_gpu_item *it = &s->pending.v[k];

			if (it->op != WG_GPU_COLLECTIVE || it->coll_seq != x->sequence ||
			    it->p2p != x->p2p)
				continue;
			wg_edge(b, node, wg_stream_node(b, m->proc, i), WG_EDGE_ENQUEUED_ON, sure,
				wg_say(b,
				       "rank %lld has given it to that stream, where other work is "
				       "first",
				       (long long)m->comm->rank));
			return true;
		}
		return false;
	}
	return false;
}

static void all_inside(struct wg_b *b, uint32_t node, struct wg_group *g, double age,
		       const char *what)
{
	const struct wg_stream *s = NULL;
	enum wg_certainty sure;
	enum wg_fate fate;
	const char *why;
	int32_t proc = b->n.v[node].proc;

	for (size_t i = 0; i < b->pi[proc].p->streams.n && !s; i++)
		if (wg_stream_pending(&b->pi[proc].p->streams.v[i]))
			s = &b->pi[proc].p->streams.v[i];
	fate = wg_gpu_age(b, proc, s, age, &sure, &why);
	if (fate == FATE_STUCK) {
		wg_set_end(b, node, CL_KERNEL_STUCK, FATE_STUCK, sure,
			   wg_say(b,
				  "all %lld ranks are inside %s with equal arguments for %s and it "
				  "does "
				  "not end%s: look at the data path (peer access, fabric, network)",
				  (long long)g->nmember, what, wg_secs(b, age), why));
	} else if (fate == FATE_MOVING) {
		wg_set_end(b, node, CL_BUSY_GPU, FATE_MOVING, WG_LIKELY,
			   wg_say(b, "all ranks are inside %s for %s", what, wg_secs(b, age)));
	} else {
		wg_set_end(b, node, CL_UNKNOWN, fate, WG_GUESS,
			   wg_say(b, "all ranks are inside %s with equal arguments for %s", what,
				  wg_secs(b, age)));
		b->n.v[node].end.missing = "whether the collective still ends";
	}
}

/* Called between ncclGroupStart and an ncclGroupEnd that has not been reached: nothing runs. */
static bool in_open_group(struct wg_b *b, const struct wg_member *m, const struct wg_collective *x)
{
	const struct wg_thread *t;

	if (!x->ungiven || m->proc < 0)
		return false;
	t = wg_find_thread(b->pi[m->proc].p, x->tid);
	for (size_t i = 0; t && i < t->calls.n; i++)
		if (t->calls.v[i].function && strstr(t->calls.v[i].function, "GroupEnd"))
			return false;
	return true;
}

static void build_p2p(struct wg_b *b, uint32_t node, struct wg_group *g, const struct wg_comm *c,
		      uint64_t seq)
{
	const struct wg_collective *x = find_coll(c, seq, true);
	const struct wg_member *m;
	const char *want;
	size_t mine = 0, theirs = 0;
	const struct wg_collective *match = NULL;
	bool runs;

	if (!x || !wg_has_int(x->root) || x->root < 0 || x->root >= g->nmember) {
		wg_set_end(b, node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "its other rank is not in the record");
		b->n.v[node].end.missing = "the peer of a send or receive";
		return;
	}
	want = x->op && x->op[0] == 'R' ? "Send" : "Recv";
	m = &g->member[x->root];
	/* Transfers of one pair are taken in order: the n-th unfinished one here is the n-th there.
	 */
	for (size_t i = 0; i < c->recent.n; i++) {
		const struct wg_collective *y = &c->recent.v[i];

		if (y->p2p && same(y->op, x->op) && y->root == x->root &&
		    y->state != WG_COLL_DONE && y->sequence <= seq && !y->failed && !y->captured)
			mine++;
	}
	for (size_t i = 0; m->comm && i < m->comm->recent.n; i++) {
		const struct wg_collective *y = &m->comm->recent.v[i];

		if (y->p2p && same(y->op, want) && y->root == c->rank && y->state != WG_COLL_DONE &&
		    !y->failed && !y->captured && ++theirs == mine)
			match = y;
	}
	if (m->dead || !match) {
		add_missing(b, node, g, x->root,
			    wg_say(b, "rank %lld has not called %s %s rank %lld",
				   (long long)x->root, want, want[0] == 'S' ? "to" : "from",
				   (long long)c->rank));
		return;
	}
	if (wg_has_int(x->count) && wg_has_int(match->count) && x->count != match->count) {
		wg_set_end(b, node, CL_COLL_MISMATCH, FATE_STUCK, WG_LIKELY,
			   wg_say(b, "rank %lld does %s of %lld elements and rank %lld %s of %lld",
				  (long long)c->rank, x->op, (long long)x->count,
				  (long long)x->root, want, (long long)match->count));
		b->n.v[node].end.rank = x->root;
		b->n.v[node].end.comm = g->id;
		return;
	}
	if (!behind(b, node, m, match, &runs))
		all_inside(b, node, g, x->age_s, "the transfer");
}

static const struct wg_comm *comm_of_id(const struct wg_process *p, const char *id)
{
	for (size_t i = 0; i < p->comms.n; i++)
		if (same(p->comms.v[i].id, id))
			return &p->comms.v[i];
	return NULL;
}

/*
 * A split is a collective of the parent's ranks, whatever color they give, and until it returns
 * nobody knows how many share his own. Who has begun fewer of them than this rank has not come.
 */
static bool split_missing(struct wg_b *b, uint32_t node, const struct wg_comm *c)
{
	const struct wg_comm *mine = comm_of_id(b->pi[b->n.v[node].proc].p, c->parent);
	struct wg_group *g = c->parent ? wg_group_of(b, c->parent) : NULL;
	int64_t unseen = 0;
	bool any = false;

	if (!g || !mine || !wg_has_int(mine->children) || !mine->children)
		return false;
	for (int64_t r = 0; r < g->nmember; r++) {
		const struct wg_member *m = &g->member[r];
		bool known = m->comm && wg_has_int(m->comm->children);

		if (known && m->comm->children >= mine->children && !m->dead)
			continue;
		if (m->comm && !known && !m->dead)
			continue;
		if (m->proc < 0 && !m->comm && !m->dead && ++unseen > 64)
			continue;
		any = true;
		add_missing(b, node, g, r,
			    m->dead ? wg_say(b, "rank %lld of the parent is gone", (long long)r)
			    : known ? wg_say(b,
					     "rank %lld of the parent has entered %lld of its splits, "
					     "and this is number %lld",
					     (long long)r, (long long)m->comm->children,
					     (long long)mine->children)
				    : wg_say(b, "nothing is known of rank %lld of the parent",
					     (long long)r));
	}
	return any;
}

static void build(struct wg_b *b, uint32_t node)
{
	const struct wg_comm *c = b->n.v[node].obj;
	struct wg_group *g = wg_group_of(b, c->id);
	uint64_t seq = b->n.v[node].b;
	bool p2p = b->n.v[node].a >> 63, init = seq == WG_COMM_INIT_SEQ,
	     end = seq == WG_COMM_END_SEQ;
	double youngest = INFINITY;
	int64_t inside = 0, outside = 0, waiting = 0, done = 0, unseen = 0;
	const char *what = b->n.v[node].label;

	if (p2p) {
		build_p2p(b, node, g, c, seq);
		return;
	}
	if (init && split_missing(b, node, c))
		return;
	if (!init && !end && g->mismatch_seq >= 0 && (uint64_t)g->mismatch_seq <= seq) {
		struct wg_iend *x;
		int32_t mp = g->member[g->mismatch_rank].proc;

		wg_set_end(b, node, CL_COLL_MISMATCH, FATE_STUCK,
			   (uint64_t)g->mismatch_seq == seq ? WG_CERTAIN : WG_LIKELY,
			   g->mismatch_text);
		x = &b->n.v[node].end;
		x->rank = g->mismatch_rank;
		x->comm = g->id;
		x->pid = mp >= 0 ? b->pi[mp].p->pid : WG_NO_INT;
		x->who = wg_say(b, "rank %lld, which brought something else at #%lld",
				(long long)g->mismatch_rank, (long long)g->mismatch_seq);
	}
	for (int64_t r = 0; r < g->nmember; r++) {
		const struct wg_member *m = &g->member[r];
		const struct wg_collective *x = NULL;
		bool entered, runs;

		/* Of ranks that nobody knows a few will do: a file may claim a million. */
		if (m->proc < 0 && !m->comm && !m->dead && ++unseen > 64) {
			outside++;
			continue;
		}

		if (init)
			entered = m->comm && m->comm->state && strcmp(m->comm->state, "failed");
		else if (end)
			entered = m->comm && m->comm->state && strcmp(m->comm->state, "ready");
		else
			entered = m->comm && m->comm->next_sequence > seq;
		x = init || end ? NULL : find_coll(m->comm, seq, false);
		if (entered && x && (x->failed || x->captured))
			x = NULL;
		if (entered && x && x->state == WG_COLL_DONE && x->state_known) {
			done++;
			continue;
		}
		if (entered && !init && !end && m->comm->done_known && m->comm->done > seq) {
			done++;
			continue;
		}
		if (m->dead) {
			add_missing(
				b, node, g, r,
				entered ? wg_say(b, "rank %lld was in it and is gone", (long long)r)
					: wg_say(b, "rank %lld never entered it and is gone",
						 (long long)r));
			outside++;
			continue;
		}
		if (entered && x && in_open_group(b, m, x)) {
			outside++;
			add_missing(b, node, g, r,
				    wg_say(b,
					   "rank %lld has called it inside a group that it has not "
					   "ended",
					   (long long)r));
			continue;
		}
		if (entered) {
			inside++;
			if (init && (!m->comm->state || strcmp(m->comm->state, "init"))) {
				done++;
				continue;
			}
			if (wg_has_sec(init || end ? m->comm->age_s : x ? x->age_s : WG_NO_SEC)) {
				double a = init || end ? m->comm->age_s : x->age_s;

				if (a < youngest)
					youngest = a;
			}
			if (x && behind(b, node, m, x, &runs))
				waiting++;
			continue;
		}
		outside++;
		if (init)
			add_missing(b, node, g, r,
				    m->comm ? wg_say(b, "its initialisation failed on rank %lld",
						     (long long)r)
					    : wg_say(b, "rank %lld has not begun to initialise it",
						     (long long)r));
		else if (end)
			add_missing(b, node, g, r,
				    wg_say(b, "rank %lld still uses it", (long long)r));
		else if (m->comm && m->comm->state &&
			 (!strcmp(m->comm->state, "destroyed") ||
			  !strcmp(m->comm->state, "finalizing") ||
			  !strcmp(m->comm->state, "destroying") ||
			  !strcmp(m->comm->state, "aborting")))
			add_missing(b, node, g, r,
				    wg_say(b,
					   "rank %lld has left: its communicator is %s after %llu "
					   "collectives",
					   (long long)r, m->comm->state,
					   (unsigned long long)m->comm->next_sequence));
		else if (m->comm)
			add_missing(
				b, node, g, r,
				m->comm->next_sequence
					? wg_say(b,
						 "rank %lld has entered %llu collectives, the last "
						 "was #%llu",
						 (long long)r,
						 (unsigned long long)m->comm->next_sequence,
						 (unsigned long long)m->comm->next_sequence - 1)
					: wg_say(b, "rank %lld has entered none", (long long)r));
		else
			add_missing(b, node, g, r,
				    wg_say(b, "nothing is known of rank %lld in this communicator",
					   (long long)r));
	}
	if (outside || waiting || b->n.v[node].has_end)
		return;
	if (g->size < 0) {
		wg_set_end(b, node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "the communicator's size is not known");
		b->n.v[node].end.missing = "the number of ranks of the communicator";
		return;
	}
	if (!inside) {
		wg_set_end(b, node, CL_BUSY_GPU, FATE_MOVING, WG_LIKELY, "it has just been done");
		return;
	}
	all_inside(b, node, g, isinf(youngest) ? b->n.v[node].wsince : youngest, what);
}

void wg_resolve_collectives(struct wg_b *b)
{
	for (size_t i = 0; i < b->groups.n; i++)
		find_mismatch(b, &b->groups.v[i]);
	/* A communicator whose making is only polled for: no call waits for it. */
	for (uint32_t i = 0; i < b->np; i++)
		for (size_t k = 0; !b->pi[i].dead && k < b->pi[i].p->comms.n; k++) {
			const struct wg_comm *c = &b->pi[i].p->comms.v[k];
			uint32_t n;

			if (!c->id || !c->state || strcmp(c->state, "init"))
				continue;
			n = wg_collective_node(b, (int32_t)i, c, WG_COMM_INIT_SEQ, false);
			if (!wg_has_sec(b->n.v[n].wsince) || c->age_s > b->n.v[n].wsince)
				b->n.v[n].wsince = c->age_s;
		}
	/* Nodes can be added on the way. */
	for (uint32_t i = 0; i < b->n.n; i++)
		if (b->n.v[i].type == IT_COLLECTIVE)
			build(b, i);
}
