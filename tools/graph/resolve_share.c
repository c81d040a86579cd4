/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_share.c - objects that processes share without a descriptor: futex words in shared
 * memory and System V semaphores and queues.
 *
 * Neither names an owner. What the kernel does tell bounds who can act: who has the memory
 * mapped, and who operated on the semaphore or queue last.
 */
#include "internal.h"

static bool same_program(const struct wg_process *a, const struct wg_process *b)
{
	return a->exe && b->exe ? !strcmp(a->exe, b->exe)
				: a->comm && b->comm && !strcmp(a->comm, b->comm);
}

static void could_act(struct wg_ctx *c, uint32_t from, int32_t proc, const char *how)
{
	struct wg_b *b = c->b;
	struct wg_iedge *e =
		wg_edge(b, from, wg_process_actor(b, proc), WG_EDGE_WOKEN_BY, false, how);

	e->guess = true;
	e->since = c->t->wait.since_s;
	if (!b->pi[proc].dead)
		e->idle_cls = CL_NO_WAKER;
}

static bool kin_of(const struct wg_process *o, const struct wg_process *p)
{
	return o->ppid == p->pid || p->ppid == o->pid || (o->ppid == p->ppid && o->ppid > 1);
}

/*
 * A lock that one process alone can have, and nobody who lives says that he has it: of its family
 * that has ended, he who was killed, else who ended last, had it.
 */
static bool dead_holder(struct wg_ctx *c, uint32_t lock)
{
	struct wg_b *b = c->b;
	int32_t best = -1;
	struct wg_iend *e;

	for (uint32_t i = 0; i < b->np; i++) {
		const struct wg_process *o = b->pi[i].p, *x = best < 0 ? NULL : b->pi[best].p;

		if (!b->pi[i].dead || !kin_of(o, c->p) ||
		    b->pi[i].host != b->pi[c->proc].host || !same_program(o, c->p))
			continue;
		if (!x || (o->end.signal && !x->end.signal) ||
		    (!o->end.signal == !x->end.signal && wg_has_sec(o->end.age_s) &&
		     wg_has_sec(x->end.age_s) && o->end.age_s < x->end.age_s))
			best = (int32_t)i;
	}
	if (best < 0)
		return false;
	if (b->n.v[lock].has_end)
		return true;
	wg_set_end(b, lock, CL_LOCK_ORPHANED, FATE_STUCK, WG_LIKELY,
		   wg_say(b,
			  "nobody who lives has it; pid %d, a process of its family, has ended, "
			  "most likely while it held the lock",
			  b->pi[best].p->pid));
	e = &b->n.v[lock].end;
	e->gone = true;
	e->pid = b->pi[best].p->pid;
	e->who = wg_say(b, "process %d, which has ended", b->pi[best].p->pid);
	return true;
}

/*
 * Everybody who has the word's memory mapped, and those of its family that had it until they
 * ended. False: nothing is known, or nobody is there.
 */
static uint32_t sharers(struct wg_ctx *c, uint32_t lock)
{
	const struct wg_wait *w = &c->t->wait;
	const struct wg_process *p = c->p;
	const struct wg_pylock *l = wg_pylock_of(c);
	bool exclusive = l && l->exclusive;
	struct wg_b *b = c->b;
	uint32_t n = 0;

	for (size_t i = 0; i < w->sharers.n; i++) {
		int32_t o = wg_pid_proc(b, b->pi[c->proc].host, w->sharers.v[i]);

		if (o < 0 || o == c->proc || b->pi[o].dead)
			continue;
		could_act(c, lock, o, "it has the memory mapped");
		n++;
	}
	if (exclusive && dead_holder(c, lock))
		return true;
	for (uint32_t i = 0; i < b->np; i++) {
		const struct wg_process *o = b->pi[i].p;

		if (!b->pi[i].dead || !kin_of(o, p) || b->pi[i].host != b->pi[c->proc].host ||
		    !same_program(o, p))
			continue;
		could_act(c, lock, (int32_t)i, "a process of its family that has ended");
		n++;
	}
	return n;
}

bool wg_sharer_targets(struct wg_ctx *c, uint32_t lock)
{
	const struct wg_wait *w = &c->t->wait;
	struct wg_b *b = c->b;

	if (w->op != WG_OP_FUTEX || !w->sharers_known) {
		const struct wg_pylock *l = wg_pylock_of(c);
		bool any = wg_kin_targets(c, lock);

		return (l && l->exclusive && dead_holder(c, lock)) || any;
	}
	if (sharers(c, lock))
		return true;
	wg_set_end(b, lock, CL_NO_WAKER, FATE_STUCK, WG_LIKELY,
		   "no other process has the memory mapped, and no thread of this one acts");
	return true;
}

/* The same for a word of shared memory that is polled. */
bool wg_polled_targets(struct wg_ctx *c, uint32_t from)
{
	return c->t->wait.sharers_known ? sharers(c, from) > 0 : wg_kin_targets(c, from);
}

static bool same_sem(const struct wg_wait *a, const struct wg_wait *b)
{
	return a->op == WG_OP_SYSV && b->op == WG_OP_SYSV && a->key == b->key &&
	       a->ipc_num == b->ipc_num;
}

/*
 * A semaphore at 0: who operated on it last took it. Not so when that one waits at the same
 * semaphore: then both are takers, and somebody else gives.
 */
static bool sem_holder(struct wg_ctx *c, uint32_t node)
{
	const struct wg_wait *w = &c->t->wait;
	struct wg_b *b = c->b;
	int32_t o = wg_pid_proc(b, b->pi[c->proc].host, w->ipc_last);
	const struct wg_process *p = o < 0 ? NULL : b->pi[o].p;
	struct wg_iedge *e;
	struct wg_iend *x;

	if (!w->ipc_last || w->ipc_value != 0 || w->ipc_last == c->p->pid)
		return false;
	for (size_t i = 0; p && i < p->threads.n; i++)
		if (same_sem(&p->threads.v[i].wait, w))
			return false;
	if (p && !b->pi[o].dead) {
		e = wg_edge(b, node, wg_process_actor(b, o), WG_EDGE_HELD_BY, false,
			    "it was the last to operate on the semaphore, which is 0 since");
		e->since = w->since_s;
		e->idle_cls = CL_NO_WAKER;
		return true;
	}
	if (w->ipc_last_alive) /* it lives, and is not among the facts */
		return false;
	wg_set_end(b, node, CL_LOCK_ORPHANED, FATE_STUCK, WG_LIKELY,
		   wg_say(b, "pid %d was the last to operate on it, left it at 0 and has ended",
			  w->ipc_last));
	x = &b->n.v[node].end;
	x->gone = true;
	x->pid = w->ipc_last;
	x->who = wg_say(b, "process %d, which has ended", w->ipc_last);
	return true;
}

/* False: the kernel names nobody. */
bool wg_sysv_targets(struct wg_ctx *c, uint32_t node)
{
	const struct wg_wait *w = &c->t->wait;
	bool sem = w->syscall_name && !strncmp(w->syscall_name, "sem", 3);
	bool sends = w->syscall_name && !strcmp(w->syscall_name, "msgsnd");
	struct wg_b *b = c->b;
	struct wg_iedge *e;
	int32_t o;

	if (!w->ipc_known)
		return false;
	if (sem)
		return sem_holder(c, node);
	o = wg_pid_proc(b, b->pi[c->proc].host, w->ipc_last);
	if (o < 0 || o == c->proc)
		return false;
	e = wg_edge(b, node, wg_process_actor(b, o), sends ? WG_EDGE_READ_BY : WG_EDGE_WRITTEN_BY,
		    false,
		    sends ? "it was the last to receive from the queue"
			  : "it was the last to send to the queue");
	e->since = w->since_s;
	if (!b->pi[o].dead)
		e->idle_cls = sends ? CL_PIPE_FULL : CL_PEER_SILENT;
	return true;
}
