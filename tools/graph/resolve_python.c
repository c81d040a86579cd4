/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_python.c - the GIL, and what Python frames tell about locks that have no owner word.
 */
#include "internal.h"

bool wg_resolve_gil(struct wg_ctx *c)
{
	struct wg_b *b = c->b;
	const struct wg_python *py = &c->p->python;
	const struct wg_thread *t = c->t;
	uint64_t addr = t->wait.futex.addr;
	bool certain = py->gil_cond && addr >= py->gil_cond && addr < py->gil_cond_end;
	struct wg_iedge *e;
	struct wg_inode *n;
	uint32_t gil, holder;
	bool fresh, woken = false;

	/* Caught in the moment when it woke to ask again: it runs, and gets nothing done. */
	if (t->wait.op == WG_OP_RUNNING && t->has_python && py->gil_known && py->gil_held &&
	    py->gil_holder && py->gil_holder != t->tid && wg_has_sec(t->cpu_share) &&
	    t->cpu_share < 0.1 && (py->gil_cond || wg_has_symbol_prefix(t, "take_gil")))
		woken = true;
	else if (t->wait.op != WG_OP_FUTEX)
		return false;
	if (!woken && !certain && !(wg_has_symbol_prefix(t, "take_gil") && !py->gil_cond))
		return false;
	gil = wg_node(b, IT_GIL, (uint64_t)c->proc, 0, &fresh);
	n = &b->n.v[gil];
	if (fresh) {
		n->proc = c->proc;
		n->label = wg_say(b, "GIL of pid %d", c->p->pid);
		n->id = wg_say(b, "gil:%d", c->p->pid);
	}
	n = &b->n.v[c->node];
	n->wkind = "gil";
	n->wobject = "GIL";
	n->wdoes = "waits for the GIL";
	n->wsince = WG_NO_SEC;
	e = wg_edge(b, c->node, gil, WG_EDGE_WAITS_FOR, certain,
		    certain ? "the futex lies inside the GIL's condition"
		    : woken ? "it runs Python without the GIL and uses no CPU time"
			    : "take_gil is on its stack");
	/* It wakes every 5 ms to ask again: how long it waits is not the age of its futex call. */
	e->since = WG_NO_SEC;
	if (b->n.v[gil].nout || b->n.v[gil].has_end)
		return true;
	if (py->gil_known && py->gil_held && py->gil_holder) {
		holder = wg_any_tid_node(b, b->pi[c->proc].host, py->gil_holder);
		if (holder == WG_NONE || b->n.v[holder].proc != c->proc)
			holder = wg_tid_node(b, c->proc, py->gil_holder);
		if (holder != WG_NONE) {
			wg_edge(b, gil, holder, WG_EDGE_HELD_BY, true,
				"the interpreter's last holder");
			return true;
		}
		if (c->p->forked)
			wg_set_end(b, gil, CL_LOCK_AFTER_FORK, FATE_STUCK, WG_LIKELY,
				   "the thread that held the GIL exists only in the parent");
		else
			wg_set_end(b, gil, CL_LOCK_ORPHANED, FATE_STUCK, WG_LIKELY,
				   wg_say(b, "its holder, thread %d, has ended", py->gil_holder));
		n = &b->n.v[gil];
		n->end.gone = true;
		n->end.pid = c->p->pid;
		n->end.tid = c->p->forked ? t->tid : py->gil_holder;
		n->end.who = "holder of the GIL, which has ended";
		return true;
	}
	if (py->gil_known && !py->gil_held) {
		wg_set_end(b, gil, CL_PROGRESSING, FATE_MOVING, WG_LIKELY, "it is free right now");
		return true;
	}
	wg_set_end(b, gil, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS, "its holder could not be read");
	b->n.v[gil].end.missing = "the holder of the GIL";
	return true;
}

static bool is_join(const struct wg_thread *t)
{
	return wg_frames_py_at(t, "threading.py", "join") ||
	       wg_frames_py_at(t, "threading.py", "_shutdown") ||
	       wg_frames_py_at(t, "threading.py", "_wait_for_tstate_lock");
}

/* Which lock of Python's is it, as far as its owner could be read? */
const struct wg_pylock *wg_pylock_of(const struct wg_ctx *c)
{
	const struct wg_python *py = &c->p->python;

	for (size_t i = 0; i < py->locks.n; i++)
		if (py->locks.v[i].waiter_tid && py->locks.v[i].waiter_tid == c->t->tid)
			return &py->locks.v[i];
	for (size_t i = 0; i < py->locks.n; i++)
		if (py->locks.v[i].futex && py->locks.v[i].futex == c->t->wait.futex.addr)
			return &py->locks.v[i];
	return NULL;
}

/* multiprocessing: the lock's word is shared, and the process that has it knows that it does. */
static bool shared_pylock(struct wg_ctx *c, uint32_t lock)
{
	const struct wg_futex *fx = &c->t->wait.futex;
	struct wg_b *b = c->b;
	const struct wg_pylock *l;
	uint32_t v, owner;
	int32_t proc;

	if (!wg_shared_word(fx) || !fx->map_ino)
		return false;
	v = wg_map_get(&b->pylocks, fx->map_dev, fx->map_ino, fx->map_off);
	if (v == WG_NONE)
		return false;
	proc = (int32_t)((v - 1) >> 12);
	l = &b->pi[proc].p->python.locks.v[(v - 1) & 4095];
	owner = l->owner_tid ? wg_any_tid_node(b, b->pi[proc].host, l->owner_tid) : WG_NONE;
	if (owner != WG_NONE && !b->pi[proc].dead) {
		if (!b->n.v[lock].nout)
			wg_edge(b, lock, owner, WG_EDGE_HELD_BY, l->certainty == WG_CERTAIN,
				l->evidence ? l->evidence : "the process that has it says so");
		return true;
	}
	if (!l->owner_gone && !b->pi[proc].dead)
		return false;
	if (!b->n.v[lock].has_end) {
		wg_set_end(b, lock, CL_LOCK_ORPHANED, FATE_STUCK, l->certainty,
			   wg_say(b, "its owner, %s %d, has ended while it held the lock",
				  l->owner_tid ? "thread" : "process",
				  l->owner_tid ? l->owner_tid : b->pi[proc].p->pid));
		b->n.v[lock].end.gone = true;
		b->n.v[lock].end.pid = b->pi[proc].p->pid;
		b->n.v[lock].end.tid = l->owner_tid ? l->owner_tid : WG_NO_INT;
	}
	return true;
}

static uint32_t joined_node(struct wg_ctx *c)
{
	struct wg_b *b = c->b;
	uint32_t n, count = 0;
	bool fresh;

	n = wg_node(b, IT_JOINED, (uint64_t)c->proc, (uint64_t)c->t->tid, &fresh);
	if (!fresh)
		return n;
	b->n.v[n].proc = c->proc;
	b->n.v[n].mode = MODE_ONE;
	for (uint32_t i = 0; i < c->p->threads.n; i++) {
		const struct wg_thread *o = &c->p->threads.v[i];

		if (o == c->t || o->ours || o->tid == c->p->pid)
			continue;
		if (o->has_python || o->python_stack.n)
			count++;
	}
	for (uint32_t i = 0; i < c->p->threads.n; i++) {
		const struct wg_thread *o = &c->p->threads.v[i];
		struct wg_iedge *e;

		if (o == c->t || o->ours || o->tid == c->p->pid)
			continue;
		if (!o->has_python && !o->python_stack.n)
			continue;
		e = wg_edge(
			b, n, b->pi[c->proc].tbase + i, WG_EDGE_WAITS_FOR, false,
			count == 1
				? "it is the only other Python thread"
				: "one of the Python threads is joined; which could not be read");
		e->hidden = true;
	}
	return n;
}

/* It waits for the result of a task of a thread pool. */
static bool awaits_task(const struct wg_thread *t)
{
	return wg_frames_py_at(t, "threading.py", "wait") &&
	       (wg_py_has(t, "concurrent/futures/_base.py", NULL) ||
		wg_py_has(t, "multiprocessing/pool.py", "get"));
}

static bool pool_worker(const struct wg_thread *t)
{
	return wg_py_has(t, "concurrent/futures/thread.py", "_worker") ||
	       wg_py_has(t, "multiprocessing/pool.py", "worker");
}

static bool resolve_pool(struct wg_ctx *c, uint32_t lock)
{
	struct wg_b *b = c->b;
	uint32_t workers = 0, inside = 0, first = WG_NONE;

	if (!awaits_task(c->t))
		return false;
	for (uint32_t i = 0; i < c->p->threads.n; i++) {
		const struct wg_thread *o = &c->p->threads.v[i];

		if (!pool_worker(o))
			continue;
		workers++;
		if (awaits_task(o) && wg_still(b, c->p, o) != STILL_NO) {
			inside++;
			if (first == WG_NONE && o != c->t)
				first = b->pi[c->proc].tbase + i;
		}
	}
	if (!workers || inside < workers)
		return false;
	/* Every worker waits for a task that only a free worker could run. */
	if (first == WG_NONE) {
		first = c->node; /* a pool of one: it waits for itself */
	}
	b->n.v[c->node].wdoes = "waits for a future of a thread pool";
	if (b->n.v[lock].nout)
		return true;
	wg_edge(b, lock, first, WG_EDGE_WAITS_FOR, false,
		wg_say(b,
		       "all %u workers of the thread pool wait for tasks that only a free worker "
		       "could run",
		       workers));
	return true;
}

/* A worker process of a pool, at rest in the pool's own code: it owes nothing to anybody. */
bool wg_awaits_task(const struct wg_process *p, const struct wg_thread *t)
{
	if (t->tid != p->pid || !t->python_stack.n)
		return false;
	for (size_t i = 0; i < t->python_stack.n; i++) {
		const struct wg_pyframe *f = &t->python_stack.v[i];
		bool std = f->file && (f->file[0] == '<' || (strstr(f->file, "/lib/python") &&
							     !strstr(f->file, "-packages/")));

		if (wg_frames_py_is(f, "multiprocessing/pool.py", "worker") ||
		    wg_frames_py_is(f, "concurrent/futures/process.py", "_process_worker") ||
		    wg_frames_py_is(f, "torch/utils/data/_utils/worker.py", "_worker_loop"))
			return true;
		if (!std)
			return false;
	}
	return false;
}

bool wg_resolve_python(struct wg_ctx *c, uint32_t lock)
{
	struct wg_b *b = c->b;
	const struct wg_pylock *l;
	struct wg_inode *n = &b->n.v[c->node];
	uint32_t owner;

	if (shared_pylock(c, lock))
		return true;
	if (!c->t->python_stack.n && !c->p->python.locks.n)
		return false;
	l = wg_pylock_of(c);
	if (l) {
		if (l->kind)
			b->n.v[lock].label =
				wg_say(b, "%s 0x%llx", l->kind,
				       (unsigned long long)(l->object ? l->object : l->futex));
		n->wobject = b->n.v[lock].label;
		if (l->task && l->owner_gone) {
			if (!b->n.v[lock].has_end)
				wg_set_end(b, lock, CL_NO_WAKER, FATE_STUCK, l->certainty,
					   l->evidence);
			return true;
		}
		if (l->owner_tid || l->owner_gone) {
			owner = wg_any_tid_node(b, b->pi[c->proc].host, l->owner_tid);
			if (owner != WG_NONE && wg_thr(b, &b->n.v[owner])->state != 'Z') {
				if (!b->n.v[lock].nout)
					wg_edge(b, lock, owner,
						l->task ? WG_EDGE_WAITS_FOR : WG_EDGE_HELD_BY,
						l->certainty == WG_CERTAIN,
						l->evidence ? l->evidence : "the lock's owner")
						->says = l->task ? "comes with the end of" : NULL;
				if (is_join(c->t)) {
					n->wkind = "join";
					n->wdoes = "joins a Python thread";
				}
				return true;
			}
			if (!b->n.v[lock].has_end) {
				struct wg_iend *e;

				wg_set_end(b, lock,
					   c->p->forked ? CL_LOCK_AFTER_FORK : CL_LOCK_ORPHANED,
					   FATE_STUCK, l->certainty,
					   wg_say(b, "its owner%s %s",
						  l->owner_tid ? wg_say(b, ", thread %d,", l->owner_tid) : " thread",
						  c->p->forked
							  ? "exists only in the parent"
							  : "has ended while it held the lock"));
				e = &b->n.v[lock].end;
				e->gone = true;
				e->pid = c->p->pid;
				e->tid = c->p->forked	? c->t->tid
					 : l->owner_tid ? l->owner_tid
							: WG_NO_INT;
				e->who = wg_say(b, "%s, which %s",
						l->owner_tid ? wg_say(b, "thread %d", l->owner_tid)
							     : "a thread",
						c->p->forked ? "exists only in the parent"
							     : "has ended");
			}
			return true;
		}
	}
	if (is_join(c->t)) {
		uint32_t j = joined_node(c);

		n = &b->n.v[c->node];
		n->wkind = "join";
		n->wdoes = wg_py_has(c->t, "threading.py", "_shutdown")
				   ? "has left the program and joins its threads"
				   : "joins a Python thread";
		if (!b->n.v[j].nout)
			return false;
		wg_edge(b, lock, j, WG_EDGE_WAITS_FOR, false, "threading.py is joining")->hidden =
			true;
		return true;
	}
	if (resolve_pool(c, lock))
		return true;
	n = &b->n.v[c->node];
	if (wg_py_has(c->t, "queue.py", "get"))
		n->wdoes = "waits for an item of a queue";
	else if (wg_py_has(c->t, "queue.py", "put"))
		n->wdoes = "waits for room in a queue";
	else if (wg_frames_py_at(c->t, "threading.py", "wait"))
		n->wdoes = wg_py_has(c->t, "threading.py", "Event.wait") ? "waits for an event"
									 : "waits for a condition";
	return false;
}
