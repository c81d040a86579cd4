/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wording.c - sentences for people.
 *
 * The summary names the culprit, the thing and the time; the chain has one step a line, symptom
 * first; the advice says what to do about this kind, with the numbers at hand.
 */
#include "internal.h"

/* What a rank starts inherits the launcher's variables, and is not the rank for that. */
static bool helper_of_rank(const struct wg_b *b, int32_t proc)
{
	const struct wg_pinfo *pi = &b->pi[proc];

	if (!wg_has_int(pi->rank) || pi->p->cuda_up || pi->p->comms.n)
		return false;
	for (int32_t i = pi->parent, n = 0; i >= 0 && n < 64; i = b->pi[i].parent, n++)
		if (b->pi[i].rank == pi->rank)
			return true;
	return false;
}

const char *wg_name_process(struct wg_b *b, int32_t proc)
{
	struct wg_pinfo *pi = &b->pi[proc];
	const char *host = "";

	if (pi->name)
		return pi->name;
	if (b->hosts.n > 1 && pi->p->host)
		host = wg_say(b, " on %s", pi->p->host);
	if (helper_of_rank(b, proc))
		pi->name = wg_say(b, "%s (pid %d%s, a child of rank %lld)",
				  pi->p->comm ? pi->p->comm : "process", pi->p->pid, host,
				  (long long)pi->rank);
	else if (wg_has_int(pi->rank))
		pi->name = wg_say(b, "rank %lld (pid %d%s)", (long long)pi->rank, pi->p->pid, host);
	else
		pi->name = wg_say(b, "%s (pid %d%s)", pi->p->comm ? pi->p->comm : "process",
				  pi->p->pid, host);
	return pi->name;
}

const char *wg_name_thread(struct wg_b *b, uint32_t node)
{
	const struct wg_inode *n = &b->n.v[node];
	const struct wg_process *p = wg_proc(b, n);
	const struct wg_thread *t = wg_thr(b, n);

	if (t->tid == p->pid)
		return p->threads.n == 1
			       ? wg_name_process(b, n->proc)
			       : wg_say(b, "main thread of %s", wg_name_process(b, n->proc));
	return wg_say(b, "thread %d%s%s%s of %s", t->tid, t->name ? " '" : "",
		      t->name ? t->name : "", t->name ? "'" : "", wg_name_process(b, n->proc));
}

const char *wg_name_node(struct wg_b *b, uint32_t node)
{
	const struct wg_inode *n = &b->n.v[node];

	switch (n->type) {
	case IT_THREAD:
		return wg_name_thread(b, node);
	case IT_PROCESS:
		return wg_name_process(b, n->proc);
	case IT_GIL:
		return "the GIL";
	case IT_WAKERS:
		return "the other threads of the process";
	case IT_JOINED:
		return "one of the other Python threads";
	default:
		return n->label ? n->label : "something";
	}
}

const char *wg_phase(struct wg_b *b, int32_t proc)
{
	const struct wg_process *p;
	const struct wg_thread *t;

	if (proc < 0)
		return NULL;
	p = b->pi[proc].p;
	if (p->phase)
		return p->phase;
	if (p->exiting || p->python.finalizing || p->python.main_in_shutdown)
		return "teardown";
	for (size_t i = 0; i < p->comms.n; i++) {
		const char *s = p->comms.v[i].state;

		if (s && (!strcmp(s, "finalizing") || !strcmp(s, "aborting") ||
			  !strcmp(s, "destroying")))
			return "teardown";
	}
	if (b->pi[proc].main_thr < 0)
		return NULL;
	t = &p->threads.v[b->pi[proc].main_thr];
	if (wg_has_symbol(t, "__run_exit_handlers") || wg_has_symbol(t, "_dl_fini") ||
	    wg_has_symbol(t, "Py_FinalizeEx") || wg_py_has(t, "threading.py", "_shutdown"))
		return "teardown";
	for (size_t i = 0; i < p->comms.n; i++)
		if (p->comms.v[i].state && !strcmp(p->comms.v[i].state, "init") &&
		    !p->comms.v[i].next_sequence)
			return "startup";
	for (size_t i = 0; i < t->python_stack.n; i++)
		if (t->python_stack.v[i].file && strstr(t->python_stack.v[i].file, "importlib"))
			return "startup";
	if (t->calls.n && t->calls.v[0].kind == WG_CALL_CONTEXT)
		return "startup";
	if (wg_has_symbol(t, "_dl_start_user") && !wg_has_symbol(t, "main"))
		return "startup";
	return "running";
}

/* The function of the C library that a user knows: pthread_mutex_lock rather than futex. */
static const char *known_function(const struct wg_thread *t)
{
	static const char *const names[] = {"pthread_", "sem_", "std::condition_variable",
					    "std::mutex"};

	for (size_t i = 0; i < t->native_stack.n && i < 8; i++) {
		const char *s = t->native_stack.v[i].symbol;

		if (!s)
			continue;
		while (*s == '_')
			s++;
		for (size_t k = 0; k < sizeof(names) / sizeof(names[0]); k++)
			if (!strncmp(s, names[k], strlen(names[k])))
				return s;
		if (!wg_is_plumbing(&t->native_stack.v[i]))
			break;
	}
	return NULL;
}

/* "reads from a pipe", "waits for a mutex"; NULL where the words say it already. */
static const char *preposition(const struct wg_inode *n)
{
	static const char *const by_kind[][2] = {
		{"read", " from "},	{"write", " to "}, {"futex", " for "},
		{"poll", " for "},	{"cuda", " on "},  {"nccl", " for "},
		{"file-lock", " for "}, {"sync", " on "},  {"accept", " on "},
		{"connect", " with "},	{"spin", " on "},  {"other", " on "},
	};

	if (n->polls_cpu)
		return !strcmp(n->wkind, "poll") ? " on " : " ";
	for (size_t i = 0; i < sizeof(by_kind) / sizeof(by_kind[0]); i++)
		if (!strcmp(n->wkind, by_kind[i][0]))
			return by_kind[i][1];
	return NULL;
}

/* What a thread does, with the place in its program and the time. */
static const char *doing_for(struct wg_b *b, uint32_t node, bool object)
{
	const struct wg_inode *n = &b->n.v[node];
	const struct wg_thread *t = wg_thr(b, n);
	const char *where = wg_where(b, t), *does = n->wdoes ? n->wdoes : "waits", *call = NULL;
	const char *since = wg_has_sec(n->wsince) ? wg_say(b, " (%s)", wg_secs(b, n->wsince)) : "";
	bool futex = n->wkind && !strcmp(n->wkind, "futex");

	if (t->calls.n && t->calls.v[0].function)
		call = t->calls.v[0].function;
	else if (futex && !t->python_stack.n)
		call = known_function(t);
	else if (n->wcall && n->wkind && !futex && strcmp(n->wkind, "gil") &&
		 strcmp(n->wkind, "join") && !n->polls_cpu && !t->python_stack.n)
		call = n->wcall;
	if (where && call && !strncmp(where, call, strlen(call)))
		call = NULL; /* the place says it already */
	object = object && n->wobject && n->wkind && preposition(n);
	return wg_say(b, "%s%s%s%s%s%s%s%s", does, object ? preposition(n) : "",
		      object ? n->wobject : "", call ? " in " : "", call ? call : "",
		      where ? " at " : "", where ? where : "", since);
}

static const char *doing(struct wg_b *b, uint32_t node)
{
	return doing_for(b, node, false);
}

static const char *link_says(const struct wg_iedge *e)
{
	switch (e->kind) {
	case WG_EDGE_HELD_BY:
		return "is held by";
	case WG_EDGE_WRITTEN_BY:
		return "should be written by";
	case WG_EDGE_READ_BY:
		return "should be read by";
	case WG_EDGE_ENQUEUED_ON:
		return "comes after what is on";
	case WG_EDGE_RUNS:
		return "is at";
	case WG_EDGE_MEMBER:
		return "waits for";
	case WG_EDGE_CHILD_OF:
		return "is the process";
	case WG_EDGE_WOKEN_BY:
		return "could be signalled by";
	default:
		return "waits for";
	}
}

static void step(struct wg_b *b, const char *line)
{
	struct wg_verdict *v = &b->g->verdict;

	if (v->chain.n && !strcmp(v->chain.v[v->chain.n - 1], line))
		return;
	*wg_push(b->a, &v->chain) = line;
}

static bool passes(const struct wg_inode *n)
{
	return n->type == IT_WAKERS || n->type == IT_JOINED;
}

static void tell_chain(struct wg_b *b, const struct wg_finding *f)
{
	uint32_t at = f->start;
	size_t i = 0;

	for (size_t k = 0; k < f->npath; k++)
		b->e.v[f->path[k]].step = (uint32_t)k + 1;
	while (i < f->npath) {
		const struct wg_iedge *e = &b->e.v[f->path[i]];
		const struct wg_inode *from = &b->n.v[at];
		const char *unsure;
		uint32_t to = e->to;
		bool certain = e->certain, guess = e->guess && !e->certain;
		const char *evidence = e->evidence;

		/* Past the nodes that only stand for "some thread of". */
		while (i + 1 < f->npath &&
		       (passes(&b->n.v[to]) ||
			(b->n.v[to].type == IT_PROCESS &&
			 b->n.v[b->e.v[f->path[i + 1]].to].type == IT_THREAD))) {
			const struct wg_iedge *x = &b->e.v[f->path[++i]];

			certain &= x->certain;
			guess |= x->guess && !x->certain;
			to = x->to;
		}
		unsure = certain ? "" : guess ? " [by elimination]" : " [likely]";
		if (from->type == IT_THREAD) {
			const char *obj = wg_name_node(b, to);
			bool named = from->wobject && from->wkind && preposition(from) &&
				     !strcmp(from->wobject, obj);

			if (named || (from->wkind && !strcmp(from->wkind, "gil")))
				step(b, wg_say(b, "%s %s%s", wg_name_thread(b, at),
					       doing_for(b, at, named), unsure));
			else
				step(b,
				     wg_say(b, "%s %s %s %s%s", wg_name_thread(b, at), doing(b, at),
					    e->says			   ? e->says
					    : b->n.v[to].type == IT_THREAD ? "behind"
									   : "for",
					    obj, unsure));
		} else if (from->type == IT_STREAM && e->kind == WG_EDGE_RUNS &&
			   b->n.v[to].type == IT_COLLECTIVE) {
			step(b, wg_say(b, "%s is at %s%s", wg_name_node(b, at), wg_name_node(b, to),
				       unsure));
		} else if (from->type == IT_STREAM && e->kind == WG_EDGE_RUNS) {
			step(b, wg_say(b, "%s waits for a host function, which runs on %s%s",
				       wg_name_node(b, at), wg_name_node(b, to), unsure));
		} else if (from->type == IT_COLLECTIVE) {
			step(b, wg_say(b, "%s waits for %s: %s%s", wg_name_node(b, at),
				       wg_name_node(b, to), evidence ? evidence : "", unsure));
		} else {
			step(b,
			     wg_say(b, "%s %s %s%s", wg_name_node(b, at),
				    e->says ? e->says : link_says(e), wg_name_node(b, to), unsure));
		}
		at = to;
		i++;
	}
	if (f->cycle) {
		step(b, wg_say(b, "and that is where the ring closes: %s", wg_name_node(b, at)));
		return;
	}
	if (b->n.v[at].type == IT_THREAD) {
		const struct wg_inode *n = &b->n.v[at];

		step(b, wg_say(b, "%s %s%s%s", wg_name_thread(b, at), doing_for(b, at, true),
			       n->has_end && n->end.text ? ": " : "",
			       n->has_end && n->end.text ? n->end.text : ""));
	} else if (b->n.v[at].has_end && b->n.v[at].end.text) {
		step(b, wg_say(b, "%s: %s", wg_name_node(b, at), b->n.v[at].end.text));
	}
}

/* "A waits for L held by B, B waits for M held by A" */
static const char *tell_ring(struct wg_b *b, const struct wg_finding *f)
{
	const char *s = NULL;
	size_t said = 0;

	for (size_t i = f->cycle_from; i < f->npath; i++) {
		const struct wg_iedge *e = &b->e.v[f->path[i]];
		const struct wg_inode *from = &b->n.v[e->from], *to = &b->n.v[e->to];
		const char *one;

		if (from->type != IT_THREAD &&
		    !(from->type == IT_STREAM || from->type == IT_COLLECTIVE))
			continue;
		if (passes(to) || to->type == IT_PROCESS)
			one = wg_say(b, "%s %s", wg_name_node(b, e->from),
				     from->type == IT_THREAD ? doing(b, e->from) : "waits");
		else if (from->type == IT_THREAD &&
			 (from->wobject || (from->wkind && !strcmp(from->wkind, "gil"))) &&
			 !e->says)
			one = wg_say(b, "%s %s", wg_name_node(b, e->from),
				     doing_for(b, e->from, true));
		else if (from->type == IT_THREAD)
			one = wg_say(b, "%s %s %s %s", wg_name_node(b, e->from), doing(b, e->from),
				     e->says ? e->says : "for", wg_name_node(b, e->to));
		else
			one = wg_say(b, "%s waits for %s", wg_name_node(b, e->from),
				     wg_name_node(b, e->to));
		if (said++ >= 6)
			return wg_say(b, "%s ...", s);
		s = s ? wg_say(b, "%s; %s", s, one) : one;
	}
	return s ? s : "a ring of waits";
}

static const char *ring_of(const struct wg_b *b, const struct wg_finding *f)
{
	int32_t proc = -1;
	bool threads = false, processes = false;

	for (size_t i = f->cycle_from; i < f->npath; i++) {
		const struct wg_inode *n = &b->n.v[b->e.v[f->path[i]].from];

		if (n->type != IT_THREAD)
			continue;
		processes |= threads && n->proc != proc;
		threads = true;
		proc = n->proc;
	}
	return f->cls == CL_COLL_CYCLE ? "Ranks"
	       : processes	       ? "Processes"
	       : threads	       ? "Threads"
				       : "Streams";
}

static const char *bare(const struct wg_b *b, const struct wg_finding *f)
{
	const struct wg_inode *n = &b->n.v[f->endnode];

	return n->has_end && n->end.text ? n->end.text : NULL;
}

static const char *advice_for(struct wg_b *b, enum wg_class c)
{
	switch (c) {
	case CL_DEADLOCK:
		return "Take the locks in one order everywhere, or give one up (the GIL too) "
		       "before waiting for "
		       "the other thread.";
	case CL_LOCK_SELF:
		return "The thread took a lock that it already holds: use a recursive lock, or do "
		       "not take it "
		       "again (look for signal handlers and callbacks on its stack).";
	case CL_LOCK_ORPHANED:
		return "Nobody will release this lock: restart the process, and release locks on "
		       "every way out of "
		       "the thread (or use a robust mutex).";
	case CL_LOCK_AFTER_FORK:
		return "Do not fork a process with threads and go on without exec: use spawn or "
		       "forkserver, or "
		       "start the pool after the fork.";
	case CL_NO_WAKER:
		return "Look for the thread that should have signalled: it ended, raised, or was "
		       "never started.";
	case CL_COLL_MISSING:
		return "Look at the rank that did not come: why did it leave the loop or take "
		       "another branch?";
	case CL_COLL_CYCLE:
		return "Issue collectives of different communicators and devices in one order on "
		       "all ranks, or in "
		       "one group.";
	case CL_COLL_MISMATCH:
		return "Make all ranks call the same collective with the same size, type and root "
		       "at this point.";
	case CL_PEER_DEAD:
		return "Find out why that process ended (its log, exit status, the kernel log); "
		       "the job has to be "
		       "started again.";
	case CL_PEER_SILENT:
		return "Look at what the other process does instead of sending.";
	case CL_KERNEL_STUCK:
		return "Look at that kernel: a loop or a flag that never comes (cuda-gdb -p shows "
		       "where it is).";
	case CL_GPU_UNSIGNALED:
		return "Find who should have written that value or recorded that event, and why he "
		       "did not.";
	case CL_HOST_CALLBACK:
		return "A host function must not block: the stream stands as long as it does.";
	case CL_OOM_SWALLOWED:
		return "The failed allocation is the cause: make room, or let the error end the "
		       "program instead of "
		       "going on without the work.";
	case CL_PIPE_FULL:
		return "Read the other end while the writer runs (communicate() instead of "
		       "wait()), or send the "
		       "output to a file.";
	case CL_WRITE_BLOCKED:
	case CL_READ_BLOCKED:
		return "Look at that storage (server, mount, kernel log); the process cannot be "
		       "helped from user "
		       "space.";
	case CL_FILE_LOCK:
		return "If its holder is gone, remove the lock file; otherwise look at the process "
		       "that holds it.";
	case CL_STOPPED:
		return "Continue it: kill -CONT PID, end the debugger, or thaw the control group.";
	case CL_IMPLICIT_SYNC:
		return "Keep calls that wait for the device (free, allocation, first launch of a "
		       "kernel) away from "
		       "work that needs this thread; CUDA_MODULE_LOADING=EAGER for lazy loading.";
	case CL_SPIN_WAIT:
		return "Find who should change what is polled.";
	case CL_RESOURCE:
		return "Raise the limit, or find what uses it up.";
	case CL_DRIVER_BLOCKED:
		return "Look at the kernel log for Xid messages; a reset of the GPU or the node "
		       "may be needed.";
	case CL_BUSY_CPU:
	case CL_BUSY_GPU:
		return "Nothing is stuck; profile it if it is too slow.";
	case CL_LOG_BUFFERED:
		return "Flush the log: python -u, PYTHONUNBUFFERED=1, flush=True, or stdbuf -oL.";
	case CL_IDLE:
	case CL_PROGRESSING:
		return "Nothing to do.";
	default:
		return b->f->is_root
			       ? "Ask again in a while, or with the recorder: see what is missing."
			       : "Ask again in a while, or as root, or with the recorder: see what is "
				 "missing.";
	}
}

/* Of the culprit's own process: it may be named for what it holds, and not for having ended. */
static bool lives(const struct wg_b *b, int64_t pid)
{
	for (uint32_t i = 0; i < b->np; i++)
		if (b->pi[i].p->pid == pid && !b->pi[i].dead)
			return true;
	return false;
}

/* A ring that needs a pipe or socket to be emptied is not cured by the order of locks. */
static bool through_pipe(const struct wg_b *b, const struct wg_finding *f)
{
	for (size_t i = 0; i < f->npath; i++) {
		enum wg_itype t = b->n.v[b->e.v[f->path[i]].to].type;

		if (t == IT_PIPE || t == IT_SOCKET)
			return true;
	}
	return false;
}

static const char *concrete_advice(struct wg_b *b, const struct wg_finding *f)
{
	const struct wg_culprit *c = &b->g->verdict.culprit;
	const struct wg_inode *n = f->endnode == WG_NONE ? NULL : &b->n.v[f->endnode];

	if (f->cls == CL_STOPPED && c->present && wg_has_int(c->pid)) {
		int32_t i = n && n->proc >= 0 ? n->proc : -1;

		if (i >= 0 && b->pi[i].p->cgroup.frozen)
			return wg_say(b, "Thaw its control group %s (cgroup.freeze).",
				      b->pi[i].p->cgroup.path ? b->pi[i].p->cgroup.path : "");
		if (i >= 0 && b->pi[i].p->tracer_pid)
			return wg_say(b,
				      "Detach or end the tracer, pid %d; if it then stays stopped: "
				      "kill -CONT "
				      "%lld",
				      b->pi[i].p->tracer_pid, (long long)c->pid);
		return wg_say(b, "kill -CONT %lld", (long long)c->pid);
	}
	if (f->cls == CL_DEADLOCK && through_pipe(b, f))
		return "Read what the other side writes before waiting for it to end "
		       "(communicate() "
		       "instead of wait()), and close the ends that are not needed.";
	if (!c->present || !wg_has_int(c->pid) || c->pid <= 0)
		return advice_for(b, f->cls);
	if (f->cls == CL_WRITE_BLOCKED || f->cls == CL_READ_BLOCKED) {
		/* fuse_conn_destroy() and an abort end every request with an error: no reboot. */
		if (n && n->has_end && n->end.pid == (int32_t)c->pid)
			return wg_say(
				b,
				"See what the daemon, pid %lld, does instead of answering; ending "
				"it "
				"(or writing 1 to the connection's abort file under "
				"/sys/fs/fuse/connections) makes the call fail instead of wait.",
				(long long)c->pid);
	} else if (f->cls == CL_COLL_MISSING && wg_has_int(c->rank)) {
		return wg_say(
			b,
			"Look at rank %lld (pid %lld), which did not come: why did it leave the "
			"loop or take another branch?",
			(long long)c->rank, (long long)c->pid);
	} else if (f->cls == CL_PEER_DEAD && lives(b, c->pid)) {
		return wg_say(
			b,
			"The end of file never comes while pid %lld holds that end: close it "
			"there (close_fds, O_CLOEXEC) or end that process, and find out why the "
			"writer ended.",
			(long long)c->pid);
	} else if (f->cls == CL_PEER_DEAD) {
		return wg_say(
			b,
			"Find out why pid %lld ended (its log, exit status, the kernel log); what "
			"waits for it has to be started again.",
			(long long)c->pid);
	} else if (f->cls == CL_PEER_SILENT) {
		return wg_say(b, "Look at what pid %lld does instead of sending.",
			      (long long)c->pid);
	} else if (f->cls == CL_PIPE_FULL) {
		return wg_say(b,
			      "Let pid %lld read while the writer runs (communicate() instead of "
			      "wait()), or send the output to a file.",
			      (long long)c->pid);
	}
	return advice_for(b, f->cls);
}

/* What the way to the end leaves open. */
static void tell_open(struct wg_b *b, const struct wg_finding *f)
{
	struct wg_verdict *v = &b->g->verdict;
	uint32_t at = f->endnode;
	double T;

	for (size_t i = 0; i < f->npath; i++) {
		const struct wg_iedge *e = &b->e.v[f->path[i]];

		if (e->certain || e->hidden)
			continue;
		*wg_push(b->a, &v->not_established) =
			wg_say(b, "that %s %s %s: %s", wg_name_node(b, e->from), link_says(e),
			       wg_name_node(b, e->to), e->evidence ? e->evidence : "inferred");
	}
	for (size_t i = 0; i < f->npath; i++)
		if (b->e.v[f->path[i]].guess && !b->e.v[f->path[i]].certain) {
			*wg_push(b->a, &v->not_established) =
				"who was meant to signal: concluded from who is left, not read";
			break;
		}
	if (f->end && f->end->missing)
		*wg_push(b->a, &v->not_established) = f->end->missing;
	if (f->cls == CL_KERNEL_STUCK)
		*wg_push(b->a, &v->not_established) =
			"whether the kernel would still end: judged by how long work took before";
	if (f->cls == CL_COLL_MISMATCH && at != WG_NONE && b->n.v[at].obj) {
		const struct wg_comm *c = b->n.v[at].obj;
		struct wg_group *g = wg_group_of(b, c->id);

		if (g && !g->mismatch_certain)
			*wg_push(b->a, &v->not_established) = "which of the two ranks is right";
	}
	if (b->n.v[f->start].type == IT_THREAD) {
		const struct wg_thread *t = wg_thr(b, &b->n.v[f->start]);

		T = wg_timeout(t);
		const struct wg_inode *n = &b->n.v[f->start];

		if (wg_has_sec(T) && v->hung == WG_HUNG_YES && !n->polls_cpu && n->wkind &&
		    strcmp(n->wkind, "stopped") && strcmp(n->wkind, "gil") &&
		    strcmp(n->wkind, "sleep"))
			*wg_push(b->a, &v->not_established) =
				wg_say(b, "what happens at its timeout of %s", wg_secs(b, T));
	}
}

static const char *symptom(struct wg_b *b, const struct wg_finding *f)
{
	const struct wg_inode *n = &b->n.v[f->start];

	if (n->type == IT_PROCESS)
		return wg_name_process(b, n->proc);
	if (n->type != IT_THREAD)
		return wg_say(b, "%s of %s stands still", wg_name_node(b, f->start),
			      n->proc >= 0 ? wg_name_process(b, n->proc) : "a process");
	return wg_say(b, "%s %s", wg_name_thread(b, f->start), doing_for(b, f->start, true));
}

static int32_t oom_proc(const struct wg_b *b, const struct wg_finding *f,
			const struct wg_failure *oom)
{
	for (uint32_t i = 0; i < b->np; i++)
		for (size_t k = 0; k < b->pi[i].p->devices.n; k++) {
			const struct wg_device *d = &b->pi[i].p->devices.v[k];

			if (d->failures.n && oom >= d->failures.v &&
			    oom < d->failures.v + d->failures.n)
				return (int32_t)i;
		}
	return b->n.v[f->start].proc;
}

static const char *tell_oom(struct wg_b *b, const struct wg_finding *f, const struct wg_failure *x)
{
	const char *where = wg_where_failed(b, x), *asked = "memory";

	if (wg_has_int(x->asked))
		asked = wg_bytes(b, x->asked);
	return wg_say(b,
		      "an allocation of %s%s failed %s ago in thread %d%s%s%s of %s%s%s%s%s (%s free, "
		      "short by %s) and the program went on without it",
		      asked,
		      wg_has_int(x->device) ? wg_say(b, " on GPU %lld", (long long)x->device) :
					      " of device memory",
		      wg_secs(b, x->age_s), x->tid, x->thread_name ? " '" : "",
		      x->thread_name ? x->thread_name : "", x->thread_name ? "'" : "",
		      wg_name_process(b, oom_proc(b, f, x)),
		      x->function ? " in " : "", x->function ? x->function : "", where ? " at " : "",
		      where ? where : "", wg_has_int(x->free) ? wg_bytes(b, x->free) : "unknown",
		      wg_has_int(x->short_by) ? wg_bytes(b, x->short_by) : "an unknown amount");
}

static const char *root(struct wg_b *b, const struct wg_finding *f, const struct wg_failure *oom)
{
	uint32_t at = f->endnode;
	const struct wg_inode *n = &b->n.v[at];
	const char *text = bare(b, f), *who = wg_name_node(b, at);
	const char *act = n->type == IT_THREAD ? doing_for(b, at, true) : NULL;

	if (oom)
		return tell_oom(b, f, oom);
	if (f->cls == CL_COLL_MISSING && f->by) {
		const struct wg_inode *m = &b->n.v[f->by->to];

		return wg_say(
			b, "%s never came to %s (%s); it %s%s%s",
			m->proc >= 0 ? wg_name_process(b, m->proc) : wg_name_node(b, f->by->to),
			wg_name_node(b, f->by->from), f->by->evidence ? f->by->evidence : "",
			m->type == IT_THREAD ? doing(b, f->by->to) : "lives",
			at != f->by->to && text ? ", where " : "",
			at != f->by->to && text ? wg_say(b, "%s %s", who, act ? act : text) : "");
	}
	if (f->by &&
	    (f->cls == CL_PEER_SILENT || f->cls == CL_PIPE_FULL || f->cls == CL_FILE_LOCK ||
	     f->cls == CL_HOST_CALLBACK || f->cls == CL_GPU_UNSIGNALED)) {
		uint32_t it = wg_idler(b, f);
		const struct wg_inode *m = &b->n.v[it];
		const char *peer = m->proc >= 0 && m->type == IT_PROCESS
					   ? wg_name_process(b, m->proc)
					   : wg_name_node(b, it);
		const char *what = f->cls == CL_PEER_SILENT ? "lives and does not send"
				   : f->cls == CL_PIPE_FULL ? "does not read"
				   : f->cls == CL_FILE_LOCK ? "holds the file lock"
				   : f->cls == CL_HOST_CALLBACK
					   ? "runs the host function and is blocked"
					   : "could write the value and does not";

		if (m->type == IT_THREAD)
			act = doing_for(b, it, true);
		else if (n->proc != m->proc)
			act = NULL; /* that is what somebody else does */
		return wg_say(b, "%s %s%s%s", peer, what, act ? "; it " : "", act ? act : "");
	}
	if (n->type == IT_THREAD && f->npath)
		return wg_say(b, "%s %s%s%s", who, act, text ? ": " : "", text ? text : "");
	if (text) {
		const char *object = b->n.v[f->start].wobject;

		/* "waits for mutex 0x10: its owner has ended": the object is named once. */
		if (!f->npath || n->type == IT_THREAD ||
		    (f->npath == 1 && object && !strcmp(object, who)))
			return text;
		return wg_say(b, "%s: %s", who, text);
	}
	return NULL;
}

void wg_word(struct wg_b *b, const struct wg_finding *f, const struct wg_failure *oom,
	     const struct wg_file *log)
{
	struct wg_verdict *v = &b->g->verdict;
	struct wg_culprit *c = &v->culprit;
	const char *r;

	v->advice = concrete_advice(b, f);
	if (f->start == WG_NONE) {
		v->summary = b->np ? "Nothing that was asked about is alive, and what is known of "
				     "it does not "
				     "tell why it ended."
				   : "There is no process to look at.";
		*wg_push(b->a, &v->not_established) =
			"what the process waited for: there are no facts of it";
		return;
	}
	tell_chain(b, f);
	if (oom && v->chain.n) {
		r = tell_oom(b, f, oom);
		step(b, wg_say(b, "%c%s", r[0] - 'a' + 'A', r + 1));
	}
	tell_open(b, f);
	r = f->cycle ? tell_ring(b, f) : root(b, f, oom);
	if (f->cls == CL_IMPLICIT_SYNC && !f->cycle)
		r = wg_say(b,
			   "a call that is no named synchronisation waits for the whole device, "
			   "other calls "
			   "wait behind it for the context, and the running work may need one of "
			   "them: %s",
			   r ? r : "");
	if (f->cycle && f->cls == CL_LOCK_SELF)
		r = wg_say(b, "%s, which it holds itself", r);
	else if (f->cycle)
		r = wg_say(b, "%s wait for each other: %s", ring_of(b, f), r);
	if (f->cycle)
		v->summary =
			f->cycle_from
				? wg_say(b, "%s; at the end of that chain %c%s.", symptom(b, f),
					 r[0] >= 'A' && r[0] <= 'Z' ? r[0] + 32 : r[0], r + 1)
				: wg_say(b, "%s.", r);
	else if (log)
		v->summary = wg_say(b,
				    "Not hung: %s%s%s; its log %s is silent because %lld bytes of "
				    "it sit in the "
				    "buffer of a %s%s.",
				    symptom(b, f), r ? ": " : "", r ? r : "",
				    log->path ? log->path : "", (long long)log->user_buffered_bytes,
				    log->user_buffer_owner ? log->user_buffer_owner : "program",
				    wg_has_sec(log->last_write_age_s)
					    ? wg_say(b, ", nothing was written for %s",
						     wg_secs(b, log->last_write_age_s))
					    : "");
	else
		v->summary = wg_say(b, "%s%s%s%s.", v->hung == WG_HUNG_NO ? "Not hung: " : "",
				    symptom(b, f), r ? ": " : "", r ? r : "");
	if (f->cls == CL_UNKNOWN && v->not_established.n)
		v->summary =
			wg_say(b, "%s: %s%s%s; missing: %s.",
			       v->hung == WG_HUNG_YES ? "Hung, and the cause is not established"
						      : "Undecided",
			       symptom(b, f), r ? ": " : "", r ? r : "",
			       v->not_established.v[v->not_established.n - 1]);
	if (c->present && !c->what) {
		const struct wg_inode *n = &b->n.v[f->endnode];

		c->what = n->type == IT_THREAD	      ? doing_for(b, f->endnode, true)
			  : n->has_end && n->end.text ? n->end.text
						      : wg_name_node(b, f->endnode);
		for (size_t i = f->cycle_from; f->cycle && i < f->npath; i++) {
			uint32_t from = b->e.v[f->path[i]].from;
			const struct wg_thread *t = wg_thr(b, &b->n.v[from]);

			c->what = "is part of the ring";
			if (t && t->tid == c->tid) {
				c->what = doing_for(b, from, true);
				break;
			}
		}
	}
}
