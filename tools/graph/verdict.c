/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verdict.c - which symptom, which class, hung or not, how sure.
 *
 * Symptoms in the order in which a user means them: the main threads of what was asked about;
 * their other threads, where a chain stands still that by its nature should not; the children
 * that a launcher merely polls; at last streams and collectives that nobody waits for yet.
 */
#include "internal.h"

/* Classes that do not depend on patience: the structure itself shows that nothing can move. */
static bool structural(enum wg_class c)
{
	switch (c) {
	case CL_DEADLOCK:
	case CL_LOCK_SELF:
	case CL_LOCK_ORPHANED:
	case CL_LOCK_AFTER_FORK:
	case CL_COLL_CYCLE:
	case CL_COLL_MISMATCH:
	case CL_IMPLICIT_SYNC:
	case CL_PEER_DEAD:
	case CL_STOPPED:
	case CL_KERNEL_STUCK: /* has its own patience */
	case CL_OOM_SWALLOWED:
		return true;
	default:
		return false;
	}
}

/* A wait of a thread that is not the main one is a symptom only if no design explains it. */
static bool hard(enum wg_class c)
{
	switch (c) {
	case CL_NO_WAKER:
	case CL_PEER_SILENT:
	case CL_SPIN_WAIT:
	case CL_UNKNOWN:
	case CL_NONE:
		return false;
	default:
		return true;
	}
}

static enum wg_certainty path_stillness(const struct wg_b *b, const struct wg_finding *f)
{
	enum wg_certainty sure = WG_CERTAIN;

	for (size_t i = 0; i <= f->npath; i++) {
		uint32_t ix = i < f->npath ? b->e.v[f->path[i]].from : f->endnode;
		const struct wg_inode *n = &b->n.v[ix];
		const struct wg_thread *t = wg_thr(b, n);
		enum wg_still s;

		if (n->type != IT_THREAD || !t || t->calls.n || n->polls_cpu ||
		    (n->wkind && !strcmp(n->wkind, "gil")))
			continue;
		s = wg_still(b, wg_proc(b, n), t);
		if (s == STILL_UNKNOWN && sure < WG_LIKELY)
			sure = WG_LIKELY;
		if (s == STILL_UNKNOWN && !wg_has_sec(n->wsince))
			sure = WG_GUESS; /* one look, and nothing tells how long it has been so */
	}
	return sure;
}

static bool is_hung(const struct wg_b *b, const struct wg_finding *f)
{
	return f->fate == FATE_STUCK && f->cls != CL_UNKNOWN && f->cls != CL_NONE && b;
}

static double waited(const struct wg_b *b, const struct wg_finding *f)
{
	double s = b->n.v[f->start].wsince;

	/* From a poll an edge's time is how long it was watched, not how long it has polled. */
	for (size_t i = 0; i < f->npath && !wg_has_sec(s); i++)
		if (!b->n.v[b->e.v[f->path[i]].from].polls_cpu)
			s = b->e.v[f->path[i]].since;
	return s;
}

/* Too young to call, where patience is what tells silence from a pause. */
static bool too_young(const struct wg_b *b, const struct wg_finding *f)
{
	double s = waited(b, f);

	return !structural(f->cls) && wg_has_sec(s) && s < WG_PATIENCE;
}

struct choice {
	struct wg_finding f;
	bool found;
	double since;
};

static void prefer(const struct wg_b *b, struct choice *c, const struct wg_finding *f)
{
	double since = waited(b, f);

	if (c->found) {
		if (f->score > c->f.score)
			return;
		if (f->score == c->f.score) {
			if (f->certain != c->f.certain) {
				if (!f->certain)
					return;
			} else if (!wg_has_sec(since) ||
				   (wg_has_sec(c->since) && since <= c->since)) {
				return;
			}
		}
	}
	c->f = *f;
	c->since = since;
	c->found = true;
}

/* Where the chain ends: whose process is it? */
static int32_t end_proc(const struct wg_b *b, const struct wg_finding *f)
{
	const struct wg_inode *n = &b->n.v[f->endnode];

	if (n->end.cls == CL_COLL_MISMATCH && wg_has_int(n->end.rank)) {
		const struct wg_comm *c = n->obj;
		struct wg_group *g = c ? wg_group_of((struct wg_b *)b, c->id) : NULL;

		if (g && n->end.rank < g->nmember)
			return g->member[n->end.rank].proc;
	}
	/* What failed on a rank that never came failed there, whatever it idles on now. */
	if (f->by && f->cls == CL_COLL_MISSING && b->n.v[f->by->to].proc >= 0)
		return b->n.v[f->by->to].proc;
	return n->proc;
}

/* A worker that waits for its idle parent's next order is not what is wrong with the job. */
static bool awaits_orders(const struct wg_b *b, const struct wg_finding *f)
{
	int32_t from = b->n.v[f->start].proc, to;

	if (f->cls != CL_PEER_SILENT && f->cls != CL_NO_WAKER)
		return false;
	to = f->by ? b->n.v[f->by->to].proc : end_proc(b, f);
	return to >= 0 && to != from && b->pi[to].asked && wg_is_ancestor(b, to, from) &&
	       b->pi[to].main_thr >= 0 &&
	       b->n.v[b->pi[to].tbase + (uint32_t)b->pi[to].main_thr].fate >= FATE_IDLE;
}

static void consider(struct wg_b *b, uint32_t node, bool only_hard, struct choice *hung,
		     struct choice *young)
{
	struct wg_finding f;

	if (b->n.v[node].fate != FATE_STUCK || !wg_find(b, node, &f))
		return;
	if (!is_hung(b, &f) || (only_hard && !hard(f.cls)) || awaits_orders(b, &f))
		return;
	/* A thread that a debugger holds and nobody waits for holds nothing up. */
	if (only_hard && f.cls == CL_STOPPED && !f.npath)
		return;
	prefer(b, too_young(b, &f) ? young : hung, &f);
}

/*
 * It asks again every few seconds for something that can not come: a lock whose owner is gone, a
 * worker that is deadlocked. The thread moves, its chain does not. Only for what a wait names
 * itself, and only where nothing behind it moves or merely idles.
 */
static void consider_poll(struct wg_b *b, uint32_t node, struct choice *hung)
{
	struct wg_inode *n = &b->n.v[node];
	const struct wg_thread *t = wg_thr(b, n);
	struct wg_finding f;
	enum wg_fate fate = n->fate;
	bool any = false;

	if (!n->has_end || n->end.cls != CL_IDLE || fate != FATE_IDLE || !n->first ||
	    !wg_has_sec(n->end.timer_s) || t->wait.op == WG_OP_EPOLL)
		return;
	for (uint32_t k = n->first; k; k = b->e.v[k - 1].next) {
		if (wg_edge_fate(b, &b->e.v[k - 1]) != FATE_STUCK)
			return;
		any = true;
	}
	if (!any)
		return;
	n->has_end = false;
	n->fate = FATE_STUCK;
	if (wg_find(b, node, &f) && hard(f.cls) && !awaits_orders(b, &f)) {
		f.certain = false;
		prefer(b, hung, &f);
	}
	n->has_end = true;
	n->fate = fate;
}

static bool polls_children(const struct wg_b *b, int32_t i)
{
	const struct wg_pinfo *pi = &b->pi[i];
	const struct wg_inode *n;

	if (pi->main_thr < 0)
		return false;
	n = &b->n.v[pi->tbase + (uint32_t)pi->main_thr];
	return n->fate == FATE_IDLE && wg_has_sec(n->timer) && n->timer <= WG_SHORT_TIMEOUT;
}

/*
 * A rank that merely waits for a signal is found by itself; that the others' collective misses
 * it they may only poll for, in calls that return. Then the collective is the better symptom.
 */
static void consider_polled(struct wg_b *b, struct choice *hung)
{
	uint32_t budget = 128;

	if (hung->f.cls != CL_NO_WAKER && hung->f.cls != CL_SPIN_WAIT &&
	    hung->f.cls != CL_PEER_SILENT)
		return;
	for (uint32_t i = 0; i < b->n.n && budget; i++) {
		const struct wg_inode *n = &b->n.v[i];
		struct wg_finding f;

		if (n->type != IT_COLLECTIVE || n->fate != FATE_STUCK || n->proc < 0 ||
		    !b->pi[n->proc].asked)
			continue;
		budget--;
		if (wg_find(b, i, &f) && is_hung(b, &f) &&
		    (f.cls == CL_COLL_MISSING || f.cls == CL_COLL_MISMATCH ||
		     f.cls == CL_COLL_CYCLE || f.cls == CL_PEER_DEAD) &&
		    !too_young(b, &f))
			prefer(b, hung, &f);
	}
}

static void find_hung(struct wg_b *b, struct choice *hung, struct choice *young)
{
	uint32_t budget = 512;

	for (uint32_t i = 0; i < b->np; i++)
		if (b->pi[i].asked && !b->pi[i].dead && b->pi[i].main_thr >= 0)
			consider(b, b->pi[i].tbase + (uint32_t)b->pi[i].main_thr, false, hung,
				 young);
	if (hung->found) {
		consider_polled(b, hung);
		return;
	}
	for (uint32_t i = 0; i < b->np; i++) {
		if (!b->pi[i].asked || b->pi[i].dead)
			continue;
		for (uint32_t k = 0; k < b->pi[i].p->threads.n && budget; k++) {
			const struct wg_inode *n = &b->n.v[b->pi[i].tbase + k];

			if ((int32_t)k == b->pi[i].main_thr || n->bystander ||
			    n->fate != FATE_STUCK)
				continue;
			budget--;
			consider(b, b->pi[i].tbase + k, true, hung, young);
		}
	}
	if (hung->found)
		return;
	for (uint32_t i = 0; i < b->np; i++)
		if (b->pi[i].asked && !b->pi[i].dead && b->pi[i].main_thr >= 0)
			consider_poll(b, b->pi[i].tbase + (uint32_t)b->pi[i].main_thr, hung);
	if (hung->found)
		return;
	for (uint32_t i = 0; i < b->np; i++) {
		bool under = false;

		if (b->pi[i].asked || b->pi[i].dead || b->pi[i].main_thr < 0)
			continue;
		for (uint32_t k = 0; k < b->np && !under; k++)
			under = b->pi[k].asked && wg_is_ancestor(b, (int32_t)k, (int32_t)i) &&
				polls_children(b, (int32_t)k);
		if (under)
			consider(b, b->pi[i].tbase + (uint32_t)b->pi[i].main_thr, false, hung,
				 young);
	}
	if (hung->found)
		return;
	for (uint32_t i = 0; i < b->n.n; i++) {
		const struct wg_inode *n = &b->n.v[i];

		if ((n->type != IT_STREAM && n->type != IT_COLLECTIVE) || n->fate != FATE_STUCK ||
		    n->proc < 0 || !b->pi[n->proc].asked || !budget)
			continue;
		budget--;
		consider(b, i, true, hung, young);
	}
}

/* ---- oom-swallowed, implicit-sync ------------------------------------------------ */

static const struct wg_failure *swallowed(const struct wg_b *b, int32_t proc)
{
	const struct wg_failure *best = NULL;
	const struct wg_process *p;

	if (proc < 0)
		return NULL;
	p = b->pi[proc].p;
	for (size_t i = 0; i < p->devices.n; i++)
		for (size_t k = 0; k < p->devices.v[i].failures.n; k++) {
			const struct wg_failure *x = &p->devices.v[i].failures.v[k];

			if (x->recovered || !x->recovered_known || x->host_memory)
				continue;
			if (!best || (wg_has_sec(x->age_s) && wg_has_sec(best->age_s) &&
				      x->age_s < best->age_s))
				best = x;
		}
	return best;
}

/* Of a thread that stands in this ring and has failed to allocate, without having recovered. */
static const struct wg_failure *failed_in_ring(const struct wg_b *b, const struct wg_finding *f)
{
	for (size_t i = f->cycle_from; i < f->npath; i++) {
		const struct wg_inode *n = &b->n.v[b->e.v[f->path[i]].from];
		const struct wg_thread *t = wg_thr(b, n);
		const struct wg_failure *x = t ? swallowed(b, n->proc) : NULL;

		if (x && x->tid == t->tid)
			return x;
	}
	return NULL;
}

/*
 * A launch or module load that waits for the whole device, while another thread's call waits
 * behind it for the context: the running kernel may well be waiting for that call.
 */
static bool queued_behind(const struct wg_b *b, const struct wg_finding *f)
{
	for (size_t i = 0; i < f->npath; i++) {
		const struct wg_iedge *e = &b->e.v[f->path[i]];
		const struct wg_thread *t = wg_thr(b, &b->n.v[e->from]);
		const struct wg_call *call;

		if (!e->implicit || b->n.v[e->to].type != IT_STREAM || !t || !t->calls.n)
			continue;
		call = &t->calls.v[t->calls.n - 1];
		if (call->kind != WG_CALL_MODULE && call->kind != WG_CALL_LAUNCH)
			continue;
		if (call->has_stream &&
		    ((const struct wg_stream *)b->n.v[e->to].obj)->handle == call->stream)
			continue;
		for (size_t k = 0; k < b->e.n; k++)
			if (b->e.v[k].implicit && b->e.v[k].kind == WG_EDGE_HELD_BY &&
			    b->e.v[k].to == e->from)
				return true;
	}
	return false;
}

static void refine(struct wg_b *b, struct wg_finding *f, const struct wg_failure **oom)
{
	if (f->cls == CL_KERNEL_STUCK && queued_behind(b, f)) {
		f->cls = CL_IMPLICIT_SYNC;
		f->certain = false;
	}
	/* A ring that is closed by elimination alone: somebody in it failed and waits since. */
	if (f->cls == CL_DEADLOCK && f->cycle && f->guessed) {
		*oom = failed_in_ring(b, f);
		if (*oom) {
			f->cls = CL_OOM_SWALLOWED;
			f->cycle = false;
			f->npath = f->cycle_from;
		}
		return;
	}
	if (f->cls == CL_NO_WAKER || f->cls == CL_COLL_MISSING || f->cls == CL_PEER_DEAD) {
		*oom = swallowed(b, end_proc(b, f));
		if (*oom)
			f->cls = CL_OOM_SWALLOWED;
	}
}

/* ---- not hung --------------------------------------------------------------------- */

static const struct wg_file *buffered_log(const struct wg_b *b, int32_t proc, bool moves)
{
	const struct wg_process *p = b->pi[proc].p;

	for (size_t i = 0; i < p->files.n && moves; i++) {
		const struct wg_file *x = &p->files.v[i];
		bool grows = wg_has_int(x->user_buffered_delta) && x->user_buffered_delta > 0;

		if (!wg_has_int(x->user_buffered_bytes) || x->user_buffered_bytes <= 0 ||
		    (x->kind != WG_FILE_REG && x->kind != WG_FILE_PIPE && x->kind != WG_FILE_FIFO))
			continue;
		if (x->fd != 1 && x->fd != 2 && x->kind != WG_FILE_REG)
			continue;
		/* No pipe says when it was last written: not silent while the process writes at all. */
		if (x->kind != WG_FILE_REG && wg_has_int(p->wchar_delta) && p->wchar_delta > 0)
			continue;
		/* A line that was left behind at the start is no log that is being written. */
		if (!grows && x->user_buffered_bytes < 48)
			continue;
		if (!grows && wg_has_sec(x->last_write_age_s) && x->last_write_age_s < 2)
			continue;
		return x;
	}
	return NULL;
}

static bool gpu_moves(const struct wg_process *p)
{
	for (size_t i = 0; i < p->streams.n; i++)
		if (p->streams.v[i].completed_delta > 0)
			return true;
	return false;
}

static int rank_of_fate(const struct wg_b *b, const struct wg_finding *f)
{
	const struct wg_process *p = wg_proc(b, &b->n.v[f->start]);

	if (awaits_orders(b, f))
		return 0;
	switch (f->fate) {
	case FATE_PENDING:
		return f->cls == CL_UNKNOWN && p && p->recorded ? 5 : 3;
	case FATE_MOVING:
		return 4;
	case FATE_UNKNOWN:
	case FATE_STUCK:
		return 2;
	default:
		return 1;
	}
}

static void not_hung(struct wg_b *b, struct wg_finding *best, const struct wg_file **log)
{
	bool have = false;
	int32_t proc;

	for (uint32_t i = 0; i < b->np; i++) {
		struct wg_finding f;
		uint32_t node;

		if (!b->pi[i].asked || b->pi[i].dead)
			continue;
		node = b->pi[i].main_thr >= 0 ? b->pi[i].tbase + (uint32_t)b->pi[i].main_thr
					      : b->pi[i].node;
		wg_find(b, node, &f);
		if (!have || rank_of_fate(b, &f) > rank_of_fate(b, best))
			*best = f;
		have = true;
	}
	if (!have)
		return;
	proc = b->n.v[best->start].proc;
	/* Idle or merely awake in front: what its other threads and its GPU do says more. */
	if (best->fate == FATE_IDLE || (best->fate == FATE_MOVING && best->cls != CL_BUSY_GPU)) {
		for (uint32_t i = 0; i < b->np; i++)
			if (b->pi[i].asked && !b->pi[i].dead && gpu_moves(b->pi[i].p) &&
			    (best->fate == FATE_MOVING || (int32_t)i == proc)) {
				for (uint32_t k = 0; k < b->n.n; k++) {
					struct wg_finding f;

					if (b->n.v[k].type != IT_STREAM ||
					    b->n.v[k].proc != (int32_t)i ||
					    b->n.v[k].fate != FATE_MOVING || !wg_find(b, k, &f) ||
					    f.cls != CL_BUSY_GPU)
						continue;
					*best = f;
					break;
				}
				break;
			}
	}
	if (best->fate == FATE_IDLE) {
		const struct wg_pinfo *pi = &b->pi[proc];

		for (uint32_t k = 0; k < pi->p->threads.n; k++) {
			const struct wg_inode *n = &b->n.v[pi->tbase + k];
			struct wg_finding f;

			if (n->bystander || !n->has_end || n->end.cls != CL_BUSY_CPU ||
			    n->fate != FATE_MOVING || !wg_find(b, pi->tbase + k, &f))
				continue;
			*best = f;
			break;
		}
	}
	if (best->cls == CL_IDLE || best->cls == CL_PROGRESSING || best->cls == CL_BUSY_CPU ||
	    best->cls == CL_BUSY_GPU) {
		const struct wg_process *p = b->pi[proc].p;
		const struct wg_thread *t = wg_thr(b, &b->n.v[best->start]);
		bool moves = best->fate == FATE_MOVING ||
			     (wg_has_int(p->calls_delta) && p->calls_delta > 0) ||
			     (wg_has_sec(p->cpu_share) && p->cpu_share > 0.001) ||
			     (t && wg_has_int(t->switches) && t->switches > 0) ||
			     (t && wg_has_sec(t->last_ran_s) && t->last_ran_s < 2);

		*log = buffered_log(b, proc, moves);
		if (*log)
			best->cls = CL_LOG_BUFFERED;
	}
}

/*
 * Hung although nobody can say why: a call that is meant to return has lasted a minute and far
 * longer than any before, or the kernel does not give a thread back, and nothing moves.
 */
static bool stands_still(const struct wg_b *b, const struct wg_finding *f)
{
	const struct wg_process *p;
	const struct wg_thread *t;
	double longest;

	if (f->start == WG_NONE || f->fate != FATE_UNKNOWN)
		return false;
	p = wg_proc(b, &b->n.v[f->start]);
	t = wg_thr(b, &b->n.v[f->start]);
	if (!t || wg_still(b, p, t) == STILL_UNKNOWN || gpu_moves(p) ||
	    (wg_has_int(p->calls_delta) && p->calls_delta > 0))
		return false;
	if (t->state == 'D' && wg_still(b, p, t) == STILL_YES && wg_has_sec(t->wait.since_s))
		return t->wait.since_s >= 30;
	longest = wg_has_sec(p->longest_sync_s) ? p->longest_sync_s : 0;
	return t->calls.n && wg_has_sec(t->calls.v[0].since_s) && t->calls.v[0].since_s >= 60 &&
	       t->calls.v[0].since_s >= 20 * longest;
}

/* ---- culprit ----------------------------------------------------------------------- */

static void culprit_thread(struct wg_b *b, uint32_t node)
{
	struct wg_culprit *c = &b->g->verdict.culprit;
	const struct wg_inode *n = &b->n.v[node];
	const struct wg_process *p = wg_proc(b, n);
	const struct wg_thread *t = wg_thr(b, n);

	if (!p)
		return;
	c->present = true;
	c->pid = p->pid;
	c->rank = b->pi[n->proc].rank;
	if (t) {
		c->tid = t->tid;
		c->thread_name = t->name;
	} else if (b->pi[n->proc].main_thr >= 0) {
		t = &p->threads.v[b->pi[n->proc].main_thr];
		c->tid = t->tid;
		c->thread_name = t->name;
	} else {
		c->tid = p->pid;
	}
}

/* The last thread of the way: where the end is no thread itself. */
static uint32_t last_thread(const struct wg_b *b, const struct wg_finding *f)
{
	if (b->n.v[f->endnode].type == IT_THREAD)
		return f->endnode;
	for (size_t i = f->npath; i-- > 0;)
		if (b->n.v[b->e.v[f->path[i]].from].type == IT_THREAD)
			return b->e.v[f->path[i]].from;
	return b->n.v[f->start].type == IT_THREAD ? f->start : WG_NONE;
}

static void set_culprit(struct wg_b *b, const struct wg_finding *f, const struct wg_failure *oom)
{
	struct wg_culprit *c = &b->g->verdict.culprit;
	const struct wg_inode *n = &b->n.v[f->endnode];
	uint32_t t;

	c->pid = c->tid = c->rank = WG_NO_INT;
	if (f->cycle) {
		/* Who came last closed the ring: of its threads the one that waits shortest. */
		double best = INFINITY;

		t = WG_NONE;
		for (size_t i = f->cycle_from; i < f->npath; i++) {
			uint32_t from = b->e.v[f->path[i]].from;
			double s = b->n.v[from].wsince;

			if (b->n.v[from].type != IT_THREAD)
				continue;
			if (t == WG_NONE || (wg_has_sec(s) && s < best)) {
				t = from;
				best = wg_has_sec(s) ? s : best;
			}
		}
		for (size_t i = f->cycle_from; i < f->npath && t == WG_NONE; i++) {
			int32_t proc = b->n.v[b->e.v[f->path[i]].from].proc; /* streams alone */

			if (proc >= 0)
				t = b->pi[proc].node;
		}
		if (t != WG_NONE)
			culprit_thread(b, t);
		return;
	}
	if (n->type == IT_THREAD || n->type == IT_PROCESS) {
		culprit_thread(b, f->endnode);
		/* Who should have come, sent or read is named, not what he idles on. */
		if (f->by && f->cls == f->by->idle_cls &&
		    (b->n.v[f->by->to].type == IT_THREAD || b->n.v[f->by->to].type == IT_PROCESS)) {
			culprit_thread(b, wg_idler(b, f));
			return;
		}
	} else if (n->proc >= 0) {
		t = last_thread(b, f);
		if (n->type == IT_STREAM && n->obj) {
			const struct wg_stream *s = n->obj;
			uint32_t giver = s->pending.n && s->pending.v[0].tid
						 ? wg_any_tid_node(b, b->pi[n->proc].host,
								   s->pending.v[0].tid)
						 : WG_NONE;

			if (giver != WG_NONE && b->n.v[giver].proc == n->proc)
				t = giver;
			else if (t == WG_NONE || b->n.v[t].proc != n->proc)
				t = b->pi[n->proc].node;
		}
		if (t != WG_NONE && b->n.v[t].proc >= 0)
			culprit_thread(b, t);
		else
			culprit_thread(b, b->pi[n->proc].node);
	}
	if (f->end &&
	    (wg_has_int(f->end->pid) || wg_has_int(f->end->tid) || wg_has_int(f->end->rank)) &&
	    !(f->by && f->cls == CL_COLL_MISSING)) {
		int32_t i = wg_has_int(f->end->pid) && n->proc >= 0
				    ? wg_pid_proc(b, b->pi[n->proc].host, (int32_t)f->end->pid)
				    : -1;

		c->present = true;
		c->pid = f->end->pid;
		c->tid = f->end->tid;
		c->rank = f->end->rank;
		c->thread_name = NULL;
		/* The launcher's number counts, where it gave one. */
		if (i >= 0 && (!wg_has_int(c->rank) || wg_has_int(b->pi[i].p->rank)))
			c->rank = b->pi[i].rank;
		if (!wg_has_int(c->tid) && wg_has_int(c->pid) && f->cls != CL_LOCK_ORPHANED)
			c->tid = c->pid;
		if (wg_has_int(c->tid) && n->proc >= 0) {
			uint32_t x = wg_any_tid_node(b, b->pi[n->proc].host, (int32_t)c->tid);

			if (x != WG_NONE)
				c->thread_name = wg_thr(b, &b->n.v[x])->name;
		}
	}
	if (f->end && f->end->who)
		c->what = f->end->who;
	if (f->end && f->end->comm)
		c->comm = f->end->comm;
	for (size_t i = f->npath; i-- > 0 && !c->comm;) {
		const struct wg_inode *x = &b->n.v[b->e.v[f->path[i]].from];

		if (x->type == IT_COLLECTIVE &&
		    (f->cls == CL_COLL_MISSING || f->cls == CL_PEER_DEAD ||
		     f->cls == CL_OOM_SWALLOWED || f->cls == CL_STOPPED)) {
			const struct wg_comm *cm = x->obj;
			struct wg_group *g = wg_group_of(b, cm->id);
			int32_t proc = -1;

			c->comm = cm->id;
			/* The launcher's rank counts; without one the communicator's own. */
			if (wg_has_int(c->pid))
				proc = wg_pid_proc(b, b->pi[x->proc].host, (int32_t)c->pid);
			for (int64_t r = 0; g && r < g->nmember && !wg_has_int(c->rank); r++)
				if (proc >= 0 && g->member[r].proc == proc)
					c->rank = r;
		}
	}
	if (oom) {
		c->present = true;
		c->tid = oom->tid;
		c->thread_name = oom->thread_name;
		c->what = wg_say(b, "thread %d, whose device allocation failed%s", oom->tid,
				 oom->thread_alive ? "" : "; it has ended");
	}
}

void wg_verdict(struct wg_b *b)
{
	struct wg_verdict *v = &b->g->verdict;
	struct choice hung = {0}, young = {0};
	const struct wg_failure *oom = NULL;
	const struct wg_file *log = NULL;
	struct wg_finding f = {0};
	enum wg_certainty still;

	v->culprit.pid = v->culprit.tid = v->culprit.rank = WG_NO_INT;
	find_hung(b, &hung, &young);
	if (hung.found) {
		f = hung.f;
		refine(b, &f, &oom);
		still = path_stillness(b, &f);
		if (still == WG_GUESS && !wg_has_sec(waited(b, &f))) {
			v->hung = WG_HUNG_NULL;
			v->confidence = WG_CONF_GUESS;
			v->class_name = wg_class_names[CL_UNKNOWN];
			*wg_push(b->a, &v->not_established) =
				wg_say(b,
				       "whether it stands still: there was only one look (it looks "
				       "like %s)",
				       wg_class_names[f.cls]);
			f.cls = CL_UNKNOWN;
		} else {
			v->hung = WG_HUNG_YES;
			v->class_name = wg_class_names[f.cls];
			v->confidence =
				f.certain && still == WG_CERTAIN ? WG_CONF_CERTAIN : WG_CONF_LIKELY;
			if (f.end && f.end->certainty == WG_GUESS && !f.by)
				v->confidence = WG_CONF_GUESS;
		}
	} else if (young.found) {
		f = young.f;
		*wg_push(b->a, &v->not_established) = wg_say(
			b, "whether this is more than a pause: it has lasted %s (it looks like %s)",
			wg_secs(b, young.since), wg_class_names[f.cls]);
		f.cls = CL_UNKNOWN;
		v->hung = WG_HUNG_NULL;
		v->confidence = WG_CONF_GUESS;
		v->class_name = wg_class_names[CL_UNKNOWN];
	} else {
		f.start = f.endnode = WG_NONE;
		not_hung(b, &f, &log);
		if (f.start == WG_NONE || f.cls == CL_UNKNOWN || f.cls == CL_NONE ||
		    f.fate == FATE_UNKNOWN || f.fate == FATE_STUCK ||
		    (f.fate == FATE_PENDING && f.cls != CL_IDLE && f.cls != CL_BUSY_CPU &&
		     f.cls != CL_BUSY_GPU && f.cls != CL_LOG_BUFFERED)) {
			f.cls = CL_UNKNOWN;
			v->hung = stands_still(b, &f) ? WG_HUNG_YES : WG_HUNG_NULL;
			v->confidence = v->hung == WG_HUNG_YES ? WG_CONF_LIKELY : WG_CONF_GUESS;
		} else {
			v->hung = WG_HUNG_NO;
			v->confidence = f.certain && f.fate != FATE_PENDING ? WG_CONF_CERTAIN
									    : WG_CONF_LIKELY;
		}
		v->class_name = wg_class_names[f.cls];
	}
	if (f.start != WG_NONE) {
		set_culprit(b, &f, oom);
		v->phase = wg_phase(b, b->n.v[f.start].proc);
	}
	wg_word(b, &f, oom, log);
}
