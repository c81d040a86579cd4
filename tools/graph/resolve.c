/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve.c - each thread goes to the resolver of its kind of wait; then the nodes that stand
 * for "some thread of that process" get their targets.
 */
#include "internal.h"

#include <poll.h>

static void describe(struct wg_ctx *c, const char *kind, const char *does)
{
	struct wg_inode *n = &c->b->n.v[c->node];

	n->wkind = kind;
	n->wdoes = does;
	if (!n->wcall)
		n->wcall = c->t->wait.syscall_name;
}

static const char *const op_kind[] = {
	[WG_OP_UNKNOWN] = "other",   [WG_OP_RUNNING] = NULL,   [WG_OP_FUTEX] = "futex",
	[WG_OP_READ] = "read",	     [WG_OP_WRITE] = "write",  [WG_OP_SYNC] = "sync",
	[WG_OP_POLL] = "poll",	     [WG_OP_EPOLL] = "poll",   [WG_OP_ACCEPT] = "accept",
	[WG_OP_CONNECT] = "connect", [WG_OP_WAIT] = "child",   [WG_OP_FLOCK] = "file-lock",
	[WG_OP_FCNTL] = "file-lock", [WG_OP_SLEEP] = "sleep",  [WG_OP_SIGWAIT] = "signal",
	[WG_OP_OPEN] = "other",	     [WG_OP_FSMETA] = "other", [WG_OP_IOCTL] = "other",
	[WG_OP_IOURING] = "other",   [WG_OP_SYSV] = "other",   [WG_OP_FAULT] = "read",
	[WG_OP_SPLICE] = "write",    [WG_OP_OTHER] = "other",
};

static const char *const op_does[] = {
	[WG_OP_UNKNOWN] = "waits in the kernel",
	[WG_OP_RUNNING] = "runs",
	[WG_OP_FUTEX] = "waits",
	[WG_OP_READ] = "reads",
	[WG_OP_WRITE] = "writes",
	[WG_OP_SYNC] = "waits for its writes to reach storage",
	[WG_OP_POLL] = "polls",
	[WG_OP_EPOLL] = "waits for events",
	[WG_OP_ACCEPT] = "waits for a connection",
	[WG_OP_CONNECT] = "connects",
	[WG_OP_WAIT] = "waits for a child",
	[WG_OP_FLOCK] = "waits",
	[WG_OP_FCNTL] = "waits",
	[WG_OP_SLEEP] = "sleeps",
	[WG_OP_SIGWAIT] = "waits for a signal",
	[WG_OP_OPEN] = "opens a file",
	[WG_OP_FSMETA] = "changes or asks a file",
	[WG_OP_IOCTL] = "waits in an ioctl",
	[WG_OP_IOURING] = "waits for I/O completions",
	[WG_OP_SYSV] = "waits for a System V object",
	[WG_OP_FAULT] = "faults a page in",
	[WG_OP_SPLICE] = "copies between descriptors",
	[WG_OP_OTHER] = "waits in the kernel",
};

static void end_here(struct wg_ctx *c, enum wg_class cls, enum wg_fate fate, const char *text)
{
	wg_set_end(c->b, c->node, cls, fate, WG_CERTAIN, text);
}

static bool resolve_stopped(struct wg_ctx *c)
{
	const struct wg_process *p = c->p;
	const struct wg_thread *t = c->t;
	struct wg_b *b = c->b;
	const char *text;

	if (t->state == 't' || (t->state == 'T' && p->tracer_pid)) {
		int32_t tr = wg_pid_proc(b, b->pi[c->proc].host, p->tracer_pid);

		if (p->tracer_pid)
			text = wg_say(b, "it is held in a tracing stop by pid %d%s%s%s",
				      p->tracer_pid, tr >= 0 && b->pi[tr].p->comm ? " (" : "",
				      tr >= 0 && b->pi[tr].p->comm ? b->pi[tr].p->comm : "",
				      tr >= 0 && b->pi[tr].p->comm ? ")" : "");
		else
			text = "it is held in a tracing stop by a debugger";
	} else if (t->state == 'T') {
		if (p->tty_pgrp && p->tty_pgrp != p->pgid)
			text = "it is stopped (state T); its process group is in the background of "
			       "its terminal, so SIGTTIN or SIGTTOU is the likely cause";
		else
			text = "it is stopped (state T)";
	} else if (p->cgroup.frozen) {
		text = wg_say(b, "its control group %s is frozen",
			      p->cgroup.path ? p->cgroup.path : "");
	} else {
		return false;
	}
	describe(c, "stopped", "is stopped");
	end_here(c, CL_STOPPED, FATE_STUCK, text);
	return true;
}

/*
 * Burning CPU is work or polling. What was seen of it decides; else what was not seen is named:
 * the fact that would be needed. NULL: it works.
 */
static const char *work_or_poll(const struct wg_thread *t)
{
	uint64_t lo, hi;

	if (t->round == WG_ROUND_SAME && t->polled_changed)
		return NULL;
	if (t->round == WG_ROUND_SAME && t->round_clock)
		return "whether it computes, or passes the time until a moment that it waits for";
	if (t->round == WG_ROUND_SAME)
		return "whether its loop is meant to end: a round of it changes nothing";
	if (t->round_fixed_reads && !t->polled_changed)
		return "whether it computes, or polls words that never change and counts its "
		       "rounds";
	if (t->round != WG_ROUND_UNKNOWN || t->python_stack.n)
		return NULL;
	if (!t->sample_pc[0] && t->own_memory == WG_MEMORY_CHANGED)
		return "whether it computes or polls: its memory changes, which speaks for work, "
		       "but where it "
		       "runs could not be looked at";
	if (!t->sample_pc[0])
		return "whether it computes or polls: where it runs could not be looked at";
	if (wg_loop_kind(t, &lo, &hi) == LOOP_COMPUTES && hi - lo <= 256)
		return NULL;
	return "whether it computes or polls: what one round of it does could not be followed";
}

/* "; its control group may use ..." where a quota is what makes it slow; else "". */
static const char *quota(struct wg_ctx *c)
{
	const struct wg_cgroup *g = &c->p->cgroup;
	int64_t periods = g->cpu_periods, held = g->cpu_throttled;

	if (!wg_has_sec(g->cpu_quota))
		return "";
	if (wg_has_int(g->cpu_periods_delta) && g->cpu_periods_delta >= 2) {
		periods = g->cpu_periods_delta;
		held = g->cpu_throttled_delta;
	}
	if (!wg_has_int(periods) || !wg_has_int(held) || periods < 1 || held * 2 < periods)
		return "";
	return wg_say(c->b,
		      "; its control group may use %.3g %% of a processor and was throttled in "
		      "%lld of %lld periods",
		      g->cpu_quota * 100, (long long)held, (long long)periods);
}

static void resolve_running(struct wg_ctx *c)
{
	struct wg_inode *n = &c->b->n.v[c->node];
	const char *doubt = work_or_poll(c->t);

	n->wkind = NULL;
	if (wg_resolve_spin(c) || wg_resolve_limits(c))
		return;
	n = &c->b->n.v[c->node];
	if (doubt && c->t->own_memory == WG_MEMORY_SAME && !c->t->sample_pc[0]) {
		/* Nothing tells where it runs, and it leaves no trace: a poll looks just like that.
		 */
		n->wdoes = "burns CPU";
		wg_set_end(c->b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "it burns CPU, and nothing in its memory changed between the two looks");
		n->end.missing = doubt;
		return;
	}
	if (wg_has_sec(c->t->cpu_share) && c->t->cpu_share < 0.02 && c->t->sampled_twice &&
	    (c->t->same_place || c->t->ready_twice)) {
		/* Runnable all the time and given no processor: a quota, or a starved machine. */
		wg_set_end(c->b, c->node, CL_BUSY_CPU, FATE_PENDING, WG_LIKELY,
			   wg_say(c->b, "it is ready to run and got almost no processor time%s",
				  quota(c)));
		n->end.missing = doubt;
		n->wdoes = "is ready to run";
		return;
	}
	if (wg_has_sec(c->t->cpu_share) && c->t->cpu_share < 0.02) {
		/* It mostly sleeps and was met awake. */
		n->wdoes = "runs";
		if (quota(c)[0]) {
			wg_set_end(c->b, c->node, CL_BUSY_CPU, FATE_PENDING, WG_LIKELY,
				   wg_say(c->b, "it is ready to run%s", quota(c)));
			return;
		}
		wg_set_end(c->b, c->node, CL_PROGRESSING, FATE_MOVING, WG_LIKELY,
			   "it was just awake");
		c->b->n.v[c->node].end.missing =
			"what it does when it wakes, mostly asleep as it is";
		return;
	}
	n->wdoes = "computes";
	wg_set_end(c->b, c->node, CL_BUSY_CPU, FATE_MOVING, doubt ? WG_LIKELY : WG_CERTAIN,
		   wg_has_sec(c->t->cpu_share)
			   ? wg_say(c->b, "it used %.0f %% of a processor between the two looks%s",
				    c->t->cpu_share * 100, quota(c))
			   : NULL);
	c->b->n.v[c->node].end.missing = doubt;
}

static bool gave_work(const struct wg_ctx *c)
{
	bool more = false;

	for (size_t i = 0; i < c->p->threads.n; i++)
		if (&c->p->threads.v[i] != c->t && !c->p->threads.v[i].ours &&
		    !wg_is_bystander(c->b, c->proc, &c->p->threads.v[i]))
			return false;
	for (size_t i = 0; i < c->p->streams.n; i++)
		more |= c->p->streams.v[i].enqueued_delta > 0;
	return more;
}

/* Waits of which neither the state nor the time says that anything is wrong. */
static void resolve_sleep(struct wg_ctx *c)
{
	double len = wg_timeout(c->t);
	struct wg_inode *n;

	if (wg_resolve_spin(c) || wg_resolve_limits(c))
		return;
	end_here(c, CL_IDLE, FATE_IDLE,
		 wg_has_sec(len) ? wg_say(c->b, "a timer of %s wakes it", wg_secs(c->b, len))
				 : "a timer wakes it");
	n = &c->b->n.v[c->node];
	n->end.timer_s = wg_has_sec(len) ? len : WG_NO_SEC;
	if (!c->t->between_unseen)
		return;
	/* Work was given to the GPU meanwhile, and nobody but this thread could have. */
	if (gave_work(c)) {
		n->end.cls = CL_PROGRESSING;
		n->end.fate = FATE_MOVING;
		n->end.text = "it gave the GPU work between the two looks";
		return;
	}
	/* What polls a lock file sleeps like this too: nobody saw what it does when it wakes. */
	n->end.certainty = WG_LIKELY;
	if (wg_has_sec(len) && len < 0.5) {
		n->end.cls = CL_UNKNOWN;
		n->end.fate = FATE_UNKNOWN;
		n->end.missing = "what it does between its short sleeps";
	}
}

static void resolve_unknown(struct wg_ctx *c)
{
	struct wg_inode *n;

	if (wg_resolve_storage(c))
		return;
	end_here(c, CL_UNKNOWN, FATE_UNKNOWN,
		 c->t->wait.op == WG_OP_UNKNOWN
			 ? "it sleeps in the kernel, and its system call could not be read"
			 : wg_say(c->b, "it waits in %s, of which the other side is not visible",
				  c->t->wait.syscall_name ? c->t->wait.syscall_name
							  : "a system call"));
	n = &c->b->n.v[c->node];
	n->end.missing = c->t->wait.op == WG_OP_UNKNOWN ? "the system call of this thread"
							: "who would complete this call";
}

/*
 * Inside the GPU's driver or its communication library with nothing recorded: burning CPU or
 * sleeping on a condition of theirs is how they wait for the GPU, and for what is not visible.
 */
static bool resolve_unrecorded(struct wg_ctx *c)
{
	const struct wg_frame *f = wg_caller(c->t);
	struct wg_b *b = c->b;
	const char *where;

	if (c->t->calls.n || b->n.v[c->node].bystander || !f ||
	    !(wg_module_is(f, "libcuda.so") || wg_module_is(f, "libcuda-") ||
	      wg_module_is(f, "libnccl")))
		return false;
	if (c->t->wait.op != WG_OP_RUNNING && c->t->wait.op != WG_OP_FUTEX &&
	    c->t->wait.op != WG_OP_IOCTL)
		return false;
	if (c->t->wait.op == WG_OP_FUTEX && wg_futex_owned(c))
		return true;
	where = f->symbol ? f->symbol : wg_base(f->module);
	b->n.v[c->node].wkind = wg_module_is(f, "libnccl") ? "nccl" : "cuda";
	b->n.v[c->node].wdoes = wg_say(b, "is inside %s", wg_base(f->module));
	b->n.v[c->node].polls_cpu = true;
	wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
		   wg_say(b, "it is inside %s, and what the GPU was given is not recorded", where));
	b->n.v[c->node].end.missing =
		c->p->recorded
			? "the call: it did not come through a door that the recorder watches"
			: "the recorder: the process was started without it";
	return true;
}

/* From one descriptor to another: an empty source is waited for, else room at the target. */
static void resolve_splice(struct wg_ctx *c)
{
	const struct wg_wait *w = &c->t->wait;
	const struct wg_file *in = NULL, *out = NULL;
	bool full;

	for (size_t i = 0; i < w->fds.n; i++) {
		const struct wg_file *x = wg_fd(c->b, c->proc, w->fds.v[i].fd);

		if (w->fds.v[i].events & POLLIN)
			in = x;
		if (w->fds.v[i].events & POLLOUT)
			out = x;
	}
	if (!in && !out)
		out = wg_fd(c->b, c->proc, w->fd);
	full = out && wg_has_int(out->pipe_fill) && wg_has_int(out->pipe_size) &&
	       out->pipe_fill > out->pipe_size - 4096;
	if (in && !full &&
	    (in->kind == WG_FILE_PIPE || in->kind == WG_FILE_FIFO || in->kind == WG_FILE_SOCKET) &&
	    !(wg_has_int(in->pipe_fill) && in->pipe_fill > 0) &&
	    !(wg_has_int(in->sock_rxq) && in->sock_rxq > 0))
		wg_resolve_fd_io(c, in, false, WG_NO_SEC);
	else
		wg_resolve_fd_io(c, out, true, WG_NO_SEC);
}

static void resolve_op(struct wg_ctx *c)
{
	const struct wg_wait *w = &c->t->wait;
	const struct wg_file *file = wg_fd(c->b, c->proc, w->fd);

	switch (w->op) {
	case WG_OP_RUNNING:
		resolve_running(c);
		return;
	case WG_OP_FUTEX:
		wg_resolve_futex(c);
		return;
	case WG_OP_READ:
	case WG_OP_ACCEPT:
		if (!wg_resolve_storage(c))
			wg_resolve_fd_io(c, file, false, wg_timeout(c->t));
		return;
	case WG_OP_SPLICE:
		if (!wg_resolve_storage(c))
			resolve_splice(c);
		return;
	case WG_OP_WRITE:
	case WG_OP_CONNECT:
		if (!wg_resolve_storage(c))
			wg_resolve_fd_io(c, file, true, wg_timeout(c->t));
		return;
	case WG_OP_SYNC:
	case WG_OP_FSMETA:
	case WG_OP_FAULT:
		if (!wg_resolve_storage(c))
			resolve_unknown(c);
		return;
	case WG_OP_OPEN:
		if (!wg_resolve_storage(c))
			wg_resolve_fd_io(c, NULL, false, WG_NO_SEC);
		return;
	case WG_OP_POLL:
	case WG_OP_EPOLL:
		wg_resolve_poll(c);
		return;
	case WG_OP_WAIT:
		wg_resolve_wait(c);
		return;
	case WG_OP_FLOCK:
	case WG_OP_FCNTL:
		wg_resolve_file_lock(c);
		return;
	case WG_OP_SLEEP:
		resolve_sleep(c);
		return;
	case WG_OP_SYSV:
		wg_resolve_ipc(c);
		return;
	case WG_OP_SIGWAIT:
		if (wg_resolve_sigwait(c))
			return;
		end_here(c, CL_IDLE, FATE_IDLE, NULL);
		return;
	default:
		resolve_unknown(c);
		return;
	}
}

static void resolve_thread(struct wg_b *b, int32_t proc, uint32_t thr)
{
	const struct wg_process *p = b->pi[proc].p;
	struct wg_ctx c = {b, proc, p, &p->threads.v[thr], b->pi[proc].tbase + thr};
	struct wg_inode *n = &b->n.v[c.node];
	const struct wg_thread *t = c.t;

	n->bystander = wg_is_bystander(b, proc, t);
	if (t->state == 'Z' || t->state == 'X') {
		n->wdoes = "has ended";
		wg_set_end(b, c.node, CL_IDLE, FATE_IDLE, WG_CERTAIN, "it has ended");
		return;
	}
	if (resolve_stopped(&c))
		return;
	describe(&c, (unsigned int)t->wait.op <= WG_OP_OTHER ? op_kind[t->wait.op] : "other",
		 (unsigned int)t->wait.op <= WG_OP_OTHER ? op_does[t->wait.op] : "waits");
	if (wg_resolve_driver(&c) || wg_resolve_gil(&c))
		return;
	if (t->calls.n && wg_resolve_gpu_call(&c))
		return;
	if (resolve_unrecorded(&c))
		return;
	if ((t->wait.op == WG_OP_READ || t->wait.op == WG_OP_POLL || t->wait.op == WG_OP_FUTEX) &&
	    wg_awaits_task(p, t)) {
		b->n.v[c.node].awaits_task = true;
		b->n.v[c.node].wdoes = "waits for its next task";
		end_here(&c, CL_IDLE, FATE_IDLE, NULL);
		return;
	}
	if (wg_resolve_runtime(&c))
		return;
	resolve_op(&c);
}

/* ---- nodes that stand for several threads ----------------------------------- */

uint32_t wg_process_actor(struct wg_b *b, int32_t proc)
{
	return b->pi[proc].node;
}

/*
 * A pipe inside the process is read or written by another thread than the one that waits. In a
 * process of very many threads the common node serves, which costs a little precision.
 */
uint32_t wg_wakers_but(struct wg_b *b, int32_t proc, const struct wg_thread *t)
{
	const struct wg_process *p = b->pi[proc].p;
	bool fresh;
	uint32_t n;

	if (p->threads.n > 64)
		return wg_wakers(b, proc);
	n = wg_node(b, IT_WAKERS, (uint64_t)proc, 1 + (uint64_t)(t - p->threads.v), &fresh);
	if (fresh) {
		b->n.v[n].proc = proc;
		b->n.v[n].mode = MODE_ANY;
	}
	return n;
}

uint32_t wg_wakers(struct wg_b *b, int32_t proc)
{
	bool fresh;
	uint32_t n = wg_node(b, IT_WAKERS, (uint64_t)proc, 0, &fresh);

	if (fresh) {
		b->n.v[n].proc = proc;
		b->n.v[n].mode = MODE_ANY;
	}
	return n;
}

static const char *describe_end(struct wg_b *b, const struct wg_process *p)
{
	if (p->end.known && p->end.oom_killed)
		return "it was killed because memory ran out";
	if (p->end.known && p->end.signal && p->end.killer_pid)
		return wg_say(b, "it was killed by signal %d from pid %d%s%s%s", p->end.signal,
			      p->end.killer_pid, p->end.killer_name ? " (" : "",
			      p->end.killer_name ? p->end.killer_name : "",
			      p->end.killer_name ? ")" : "");
	if (p->end.known && p->end.signal)
		return wg_say(b, "it was ended by signal %d", p->end.signal);
	if (p->end.known)
		return wg_say(b, "it has exited with status %d", p->end.status);
	if (p->state == 'Z')
		return "it has ended and is a zombie";
	return "it no longer exists";
}

static void finish_process(struct wg_b *b, int32_t proc)
{
	struct wg_pinfo *pi = &b->pi[proc];
	const struct wg_process *p = pi->p;
	uint32_t main_node = pi->main_thr < 0 ? WG_NONE : pi->tbase + (uint32_t)pi->main_thr;
	uint32_t n = 0;
	bool visible = b->n.v[pi->node].visible;

	if (pi->dead) {
		wg_set_end(b, pi->node, CL_PEER_DEAD, FATE_STUCK,
			   p->from_snapshot && p->trace_only && !p->end.known ? WG_LIKELY
									      : WG_CERTAIN,
			   describe_end(b, p));
		b->n.v[pi->node].end.gone = true;
		return;
	}
	if (!b->n.v[pi->node].visible && p->threads.n)
		return; /* nobody waits for it */
	if (pi->is_self) {
		wg_set_end(b, pi->node, CL_IDLE, FATE_IDLE, WG_CERTAIN, "it answers this question");
		return;
	}
	for (uint32_t i = 0; i < p->threads.n; i++) {
		const struct wg_inode *t = &b->n.v[pi->tbase + i];
		struct wg_iedge *e;

		if (p->threads.v[i].state == 'Z' || p->threads.v[i].state == 'X')
			continue;
		if (pi->tbase + i != main_node && (t->bystander || t->ownerless))
			continue;
		e = wg_edge(b, pi->node, pi->tbase + i, WG_EDGE_CHILD_OF, true,
			    "thread of the process");
		e->hidden = true;
		n++;
	}
	b->n.v[pi->node].visible = visible;
	if (n > 1) /* which of them would act is not known */
		for (uint32_t x = b->n.v[pi->node].first; x; x = b->e.v[x - 1].next)
			b->e.v[x - 1].certain = b->e.v[x - 1].to == main_node;
	if (n && p->threads.v[0].state != 'Z')
		b->n.v[pi->node].mode = MODE_ACTOR;
	if (n)
		return;
	if (p->stub && wg_has_sec(p->cpu_share) && p->cpu_share >= 0.2)
		wg_set_end(b, pi->node, CL_BUSY_CPU, FATE_MOVING, WG_CERTAIN, "it uses the CPU");
	else if (p->state == 'T' || p->state == 't')
		wg_set_end(b, pi->node, CL_STOPPED, FATE_STUCK, WG_CERTAIN,
			   "it is stopped (state T)");
	else if (p->stub && !wg_cut_short(p) && (p->state == 'S' || p->state == 'I'))
		wg_set_end(b, pi->node, CL_IDLE, FATE_IDLE, WG_LIKELY, "it sleeps");
	else {
		wg_set_end(b, pi->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "its threads could not be read");
		b->n.v[pi->node].end.missing = "the threads of that process";
	}
}

static void finish_wakers(struct wg_b *b, uint32_t hub)
{
	struct wg_pinfo *pi = &b->pi[b->n.v[hub].proc];
	uint64_t but = b->n.v[hub].b; /* index + 1 of the thread that is left out */

	for (uint32_t i = 0; i < pi->p->threads.n; i++) {
		const struct wg_inode *t = &b->n.v[pi->tbase + i];
		struct wg_iedge *e;

		/* One that waits for a signal itself sends none, unless it was seen to go on. */
		if (t->bystander || pi->p->threads.v[i].state == 'Z' || i + 1 == but ||
		    (t->ownerless && !(t->has_end && t->end.fate == FATE_MOVING)))
			continue;
		/* In pause() for a signal that nobody handles: it will never do anything again. */
		if (pi->p->threads.v[i].wait.op == WG_OP_SIGWAIT &&
		    pi->p->threads.v[i].wait.no_handler)
			continue;
		e = wg_edge(b, hub, pi->tbase + i, WG_EDGE_WOKEN_BY, false,
			    "another thread of this process, which could act");
		e->hidden = true;
	}
}

void wg_resolve_all(struct wg_b *b)
{
	for (uint32_t i = 0; i < b->np; i++) {
		if (b->pi[i].dead || b->pi[i].is_self)
			continue;
		for (uint32_t k = 0; k < b->pi[i].p->threads.n; k++)
			resolve_thread(b, (int32_t)i, k);
	}
	wg_resolve_streams(b);
	wg_resolve_collectives(b);
	for (uint32_t i = 0; i < b->np; i++)
		finish_process(b, (int32_t)i);
	for (uint32_t i = 0; i < b->n.n; i++)
		if (b->n.v[i].type == IT_WAKERS)
			finish_wakers(b, i);
	/* With one thread left it must be that one; with several it is only one of them. */
	for (size_t i = 0; i < b->e.n; i++)
		if (b->n.v[b->e.v[i].to].type == IT_WAKERS && b->n.v[b->e.v[i].to].nout > 1)
			b->e.v[i].guess = true;
}
