/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_spin.c - threads that poll: a flag in memory, one call over and over, a lock file; and
 * limits that make a call fail each time.
 *
 * A poll ends when somebody else acts. Another thread of the process that still works may be
 * that somebody, so a poll is a wait like one without an owner: the process' other threads
 * stand behind it.
 */
#include "internal.h"

#include <errno.h>

#define MAX_POLLED 8 /* words that a poll may read */

static bool one_of(const char *s, const char *const *list)
{
	for (; s && *list; list++)
		if (!strcmp(s, *list))
			return true;
	return false;
}

static void polls(struct wg_ctx *c, enum wg_class cls, enum wg_certainty sure, const char *object,
		  const char *text)
{
	struct wg_b *b = c->b;
	struct wg_inode *n = &b->n.v[c->node];
	struct wg_iedge *e;
	uint32_t own = b->pi[c->proc].nown;
	bool known = false, shared = false;

	n->wkind = cls == CL_FILE_LOCK ? "file-lock" : "spin";
	n->wdoes = "polls";
	n->wobject = object;
	n->ownerless = true;
	n->polls_cpu = true;
	n->wsince = WG_NO_SEC; /* one round is short, however long it has gone round */
	wg_set_end(b, c->node, cls, FATE_STUCK, sure, text);
	/* A flag in shared memory is set by another process of the job: one that works may yet do
	 * it. */
	for (size_t i = 0; i < c->t->polled.n; i++) {
		known |= !c->t->polled.v[i].stack;
		shared |= c->t->polled.v[i].map_ino != 0;
	}
	if (cls == CL_SPIN_WAIT && !object && (shared || !known)) {
		uint32_t e0 = (uint32_t)b->e.n;

		wg_polled_targets(c, c->node);
		for (uint32_t k = e0; k < b->e.n; k++)
			if (b->e.v[k].idle_cls) {
				/* One that sleeps for a moment may set it each time that it wakes.
				 */
				b->e.v[k].idle_cls = CL_SPIN_WAIT;
				b->e.v[k].since = 0;
			}
	}
	if (own < 2 || cls == CL_FILE_LOCK)
		return;
	e = wg_edge(b, c->node, wg_wakers(b, c->proc), WG_EDGE_WOKEN_BY, false,
		    "another thread of the process could end the polling");
	e->guess = e->hidden = true;
	/* Its words were watched: who sleeps and wakes again and again in that time did not write.
	 */
	if (cls == CL_SPIN_WAIT && known && wg_has_sec(c->t->polled_for_s)) {
		e->idle_cls = CL_SPIN_WAIT;
		e->since = c->t->polled_for_s;
	}
}

static const char *file_of(const struct wg_process *p, uint64_t dev, uint64_t ino)
{
	for (size_t i = 0; i < p->files.n; i++)
		if (p->files.v[i].ino == ino && p->files.v[i].dev == dev)
			return p->files.v[i].path;
	return NULL;
}

static bool looks_like_lock(const char *path)
{
	const char *base = wg_base(path);

	return base && (strstr(base, "lock") || strstr(base, "LOCK") || strstr(base, ".lck") ||
			strstr(base, "Lock"));
}

/* Who has the polled file open? Then it is held, not left behind. */
static int32_t opener(const struct wg_ctx *c, const char *path)
{
	for (uint32_t i = 0; i < c->b->np && path; i++) {
		const struct wg_process *p = c->b->pi[i].p;

		if ((int32_t)i == c->proc || c->b->pi[i].dead)
			continue;
		for (size_t k = 0; k < p->files.n; k++)
			if (p->files.v[k].path && !strcmp(p->files.v[k].path, path))
				return (int32_t)i;
	}
	return -1;
}

static void poll_path(struct wg_ctx *c, const char *call, const char *path)
{
	static const char *const opens[] = {"open",    "openat",    "openat2", "creat",
					    "mkdir",   "mkdirat",   "link",    "linkat",
					    "symlink", "symlinkat", NULL};
	const struct wg_thread *t = c->t;
	struct wg_b *b = c->b;
	bool creates = one_of(call, opens) && t->repeat_errno == EEXIST;
	bool there = t->repeat_exists == 1 || (!wg_has_int(t->repeat_exists) &&
					       wg_has_int(t->repeat_errno) && !t->repeat_errno);
	bool absent = t->repeat_exists == 0 || t->repeat_errno == ENOENT;
	const char *age =
		wg_has_sec(t->repeat_file_age_s)
			? wg_say(b, ", last touched %s ago", wg_secs(b, t->repeat_file_age_s))
			: "";
	int32_t who;

	if (absent && !creates) {
		polls(c, CL_SPIN_WAIT, WG_LIKELY, path,
		      wg_say(b, "it polls with %s for %s, which does not appear", call, path));
		return;
	}
	if (creates || (there && looks_like_lock(path)) ||
	    (!there && !absent && looks_like_lock(path))) {
		who = opener(c, path);
		polls(c, CL_FILE_LOCK, creates ? WG_CERTAIN : WG_LIKELY, path,
		      who >= 0 ? wg_say(b,
					"it polls with %s for the lock file %s to go away%s; pid "
					"%d has "
					"it open",
					call, path, age, b->pi[who].p->pid)
			       : wg_say(b,
					"it polls with %s for the lock file %s to go away%s; no "
					"process "
					"that could be looked at has it open",
					call, path, age));
		if (who >= 0) {
			struct wg_iedge *e =
				wg_edge(b, c->node, wg_process_actor(b, who), WG_EDGE_HELD_BY,
					false, "it has the lock file open");

			e->idle_cls = CL_FILE_LOCK;
			b->n.v[c->node].end.pid = b->pi[who].p->pid;
		}
		return;
	}
	polls(c, CL_SPIN_WAIT, WG_LIKELY, path,
	      wg_say(b, "it repeats %s on %s%s, and what it waits for does not come", call, path,
		     age));
}

/* Its GPU work goes on, or CUDA calls of it return: no thread of it can be said to poll in vain. */
static bool program_moves(const struct wg_process *p)
{
	if (wg_has_int(p->calls_delta) && p->calls_delta > 0)
		return true;
	for (size_t i = 0; i < p->streams.n; i++)
		if (p->streams.v[i].completed_delta > 0)
			return true;
	return false;
}

/*
 * A round of its loop leaves its registers and its memory as they were, and it was on that round at
 * every look: it goes on like this until somebody writes one of the words that it reads. A poll
 * reads few. A loop that reads none, or a whole table, does the same work over and over: that is a
 * strange way to work, and no wait. So does an interpreter whose program goes round.
 */
static bool goes_round(struct wg_ctx *c)
{
	const struct wg_thread *t = c->t;
	const struct wg_polled *x = t->polled.n ? &t->polled.v[0] : NULL;
	struct wg_b *b = c->b;
	const char *where = wg_where(b, t), *words;

	if (!x || x->stack || t->round_reads > MAX_POLLED || t->python_stack.n || t->has_python)
		return false;
	if (t->polled_changed) /* it is served: see resolve_running() */
		return false;
	words = wg_say(b, "%s 0x%llx%s%s (%llu)",
		       t->round_reads > 1 ? "words like the one at" : "the word at",
		       (unsigned long long)x->addr, x->map_path ? " in " : "",
		       x->map_path ? wg_base(x->map_path) : "", (unsigned long long)x->value);
	polls(c, CL_SPIN_WAIT,
	      t->round_clock || x->map_ino || b->pi[c->proc].nown > 1 ? WG_LIKELY : WG_CERTAIN,
	      NULL,
	      wg_say(b,
		     "it goes round a loop of %u instructions%s%s that changes nothing and reads "
		     "%s, "
		     "which nobody wrote while we looked%s",
		     t->round_insns, where ? " in " : "", where ? where : "", words,
		     t->round_clock ? "; it asks for the time too" : ""));
	if (t->round_clock)
		b->n.v[c->node].end.missing = "whether it gives up by itself after some time";
	return true;
}

bool wg_resolve_spin(struct wg_ctx *c)
{
	static const char *const sleeps[] = {
		"nanosleep",	"clock_nanosleep", "select",	  "pselect6", "poll",
		"ppoll",	"epoll_wait",	   "epoll_pwait", "futex",    "restart_syscall",
		"gettimeofday", "clock_gettime",   NULL};
	static const char *const waits[] = {"wait4", "waitid", NULL};
	static const char *const named[] = {"stat",	  "lstat",     "newfstatat", "statx",
					    "access",	  "faccessat", "faccessat2", "readlink",
					    "readlinkat", "open",      "openat",     "openat2",
					    "mkdir",	  "mkdirat",   "link",	     "linkat",
					    "symlink",	  "symlinkat", NULL};
	static const char *const locks[] = {"flock", "fcntl", NULL};
	static const char *const reads[] = {"read",  "recvfrom", "recvmsg",
					    "readv", "pread64",	 NULL};
	static const char *const asks[] = {
		"sched_yield", "stat",	    "lstat",	  "fstat",	"newfstatat", "statx",
		"access",      "faccessat", "faccessat2", "readlink",	"readlinkat", "kill",
		"tgkill",      "getppid",   "getpgid",	  "getsockopt", "times",      "getrusage",
		"sysinfo",     "mincore",   "lseek",	  NULL};
	static const char *const writes[] = {"write", "sendto", "sendmsg", "writev", NULL};
	const struct wg_thread *t = c->t;
	const char *call = t->repeat_syscall;
	struct wg_b *b = c->b;
	uint64_t lo, hi;
	enum wg_loop kind;
	const struct wg_file *x;

	if (call) {
		x = wg_fd(b, c->proc, t->repeat_fd);
		if (one_of(call, sleeps))
			return false;
		/* Between calls that return and a GPU that moves on, a yield is how it waits, not
		 * for what. */
		if (!strcmp(call, "sched_yield") && program_moves(c->p))
			return false;
		if (!strcmp(call, "sched_yield") && t->round == WG_ROUND_SAME)
			return goes_round(c);
		if (wg_resolve_limits(c))
			return true;
		if (one_of(call, waits)) {
			b->n.v[c->node].wkind = "child";
			b->n.v[c->node].polls_cpu = true;
			b->n.v[c->node].wsince = WG_NO_SEC;
			b->n.v[c->node].wdoes = "asks for the end of a child, over and over";
			wg_resolve_wait(c);
			return true;
		}
		/* Asked for and had: it does not stand for want of that lock. */
		if (one_of(call, locks) && wg_has_int(t->repeat_errno) && !t->repeat_errno)
			return false;
		if (one_of(call, locks) &&
		    (x || t->repeat_path || t->repeat_errno == EAGAIN || t->repeat_errno == EACCES)) {
			const char *path = t->repeat_path ? t->repeat_path : x ? x->path : NULL;
			const char *held = "";
			bool unsupported = t->repeat_errno == ENOSYS || t->repeat_errno == ENOLCK ||
					   t->repeat_errno == EOPNOTSUPP;

			if ((x || t->repeat_ino) && !unsupported) {
				/* the lock's holders, as for a blocking request */
				uint32_t k =
					x ? wg_map_get(&b->flocks, x->dev, x->ino, 0)
					  : wg_map_get(&b->flocks, t->repeat_dev, t->repeat_ino, 0);

				for (; k && k != WG_NONE; k = b->flock_next[k - 1]) {
					const struct wg_file_lock *l = &b->f->locks.v[k - 1];
					int32_t i = wg_pid_proc(b, b->pi[c->proc].host, l->pid);
					struct wg_iedge *e;

					if (l->blocked || i < 0 || i == c->proc || b->pi[i].dead)
						continue;
					e = wg_edge(b, c->node, wg_process_actor(b, i),
						    WG_EDGE_HELD_BY, true,
						    "the kernel's lock table");
					e->idle_cls = CL_FILE_LOCK;
					e->since = t->wait.since_s;
					b->n.v[c->node].end.pid = l->pid;
					if (!path)
						path = file_of(b->pi[i].p, l->dev, l->ino);
					held = wg_say(b, "; %s holds it", wg_name_process(b, i));
				}
			}
			polls(c, CL_FILE_LOCK, WG_LIKELY, path,
			      unsupported
				      ? wg_say(b,
					       "%s on %s fails each time: its file system does not "
					       "support such locks, nobody holds it",
					       call, path ? path : "a file")
				      : wg_say(b,
					       "it asks with %s for the lock on %s over and over%s",
					       call,
					       path ? path
						    : "a file that it closes in between, so that "
						      "its name is not known,",
					       held));
			return true;
		}
		/* Emptying what it was woken by, after it has woken, tells nothing of the wait. */
		if (x && one_of(call, reads) && t->repeat_errno == EAGAIN && wg_own_ends(c, x))
			return false;
		if (x && (one_of(call, reads) || one_of(call, writes)) && x->kind != WG_FILE_REG) {
			b->n.v[c->node].polls_cpu = true;
			b->n.v[c->node].wsince = WG_NO_SEC;
			wg_resolve_fd_io(c, x, one_of(call, writes), WG_NO_SEC);
			return true;
		}
		if (t->repeat_path && !x) {
			poll_path(c, call, t->repeat_path);
			return true;
		}
		if (one_of(call, named) && !x) { /* a lock file, or one that is to appear? */
			b->n.v[c->node].polls_cpu = true;
			wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
				   wg_say(b,
					  "it repeats %s for a file whose name could not be read",
					  call));
			b->n.v[c->node].end.missing =
				wg_say(b, "the name of the file that it asks for with %s", call);
			return true;
		}
		/*
		 * A call that succeeds each time and does something (an accept, an open) is work;
		 * one that fails each time, or only asks, is a poll.
		 */
		if (!(wg_has_int(t->repeat_errno) && t->repeat_errno != 0) && !one_of(call, asks))
			return false;
		polls(c, CL_SPIN_WAIT, WG_LIKELY, x ? x->path : t->repeat_path,
		      wg_say(b, "it repeats %s%s%s%s%s%s, and what it waits for does not come",
			     call, x && x->path ? " on " : "", x && x->path ? x->path : "",
			     wg_has_int(t->repeat_errno) && t->repeat_errno ? " (" : "",
			     wg_has_int(t->repeat_errno) && t->repeat_errno
				     ? strerrordesc_np((int)t->repeat_errno)
				     : "",
			     wg_has_int(t->repeat_errno) && t->repeat_errno ? ")" : ""));
		return true;
	}
	if (t->wait.op != WG_OP_RUNNING || program_moves(c->p))
		return false;
	if (t->round == WG_ROUND_SAME)
		return goes_round(c);
	if (!wg_on_cpu(b, c->p, t) || (t->round_fixed_reads && t->polled_changed))
		return false;
	kind = wg_loop_kind(t, &lo, &hi);
	/*
	 * Without the loop's code a few bytes are all there is to go by: summing an array can be
	 * as tight as polling, so nothing is claimed from that.
	 */
	if (kind != LOOP_POLLS)
		return false;
	polls(c, CL_SPIN_WAIT, WG_LIKELY, NULL,
	      wg_say(b,
		     "it burns CPU in a loop of at most %llu bytes%s%s that only reads memory and "
		     "compares",
		     (unsigned long long)(hi - lo + 16), wg_where(b, t) ? " in " : "",
		     wg_where(b, t) ? wg_where(b, t) : ""));
	return true;
}

/* ---- limits ------------------------------------------------------------------------ */

static bool at(int64_t used, int64_t limit)
{
	return wg_has_int(used) && wg_has_int(limit) && limit > 0 && used >= limit;
}

bool wg_resolve_limits(struct wg_ctx *c)
{
	static const char *const forks[] = {"clone", "clone3", "fork", "vfork", NULL};
	static const char *const opens[] = {
		"open",	 "openat",	   "openat2", "socket",	  "accept",	   "accept4",
		"pipe",	 "pipe2",	   "dup",     "eventfd2", "epoll_create1", "memfd_create",
		"creat", "timerfd_create", NULL};
	static const char *const spaces[] = {"fallocate", "ftruncate", "write",
					     "pwrite64",  "mmap",      NULL};
	static const char *const pins[] = {
		"mlock", "mlock2", "mlockall", "mmap", "io_uring_register", NULL};
	const struct wg_process *p = c->p;
	const struct wg_thread *t = c->t;
	const struct wg_cgroup *g = &p->cgroup;
	struct wg_b *b = c->b;
	const char *call = t->repeat_syscall, *what = NULL;
	bool retries = wg_has_sec(wg_timeout(t)) && wg_timeout(t) <= WG_SHORT_TIMEOUT;
	bool fails = call && (!wg_has_int(t->repeat_errno) || t->repeat_errno != 0);

	if (wg_kernel_has(t, "mem_cgroup_oom") || wg_kernel_has(t, "pagefault_out_of_memory"))
		what = wg_say(b,
			      "its control group %s has reached its memory limit%s%s, and nobody "
			      "makes room",
			      g->path ? g->path : "", wg_has_int(g->mem_max) ? " of " : "",
			      wg_has_int(g->mem_max) ? wg_bytes(b, g->mem_max) : "");
	else if (wg_kernel_has(t, "mem_cgroup_handle_over_high"))
		what = wg_say(b, "its control group %s is over its memory limit and is throttled",
			      g->path ? g->path : "");
	else if (at(g->pids_current, g->pids_max) &&
		 ((fails && one_of(call, forks)) || (!call && retries)))
		what = wg_say(b, "its control group has reached its limit of %lld tasks",
			      (long long)g->pids_max);
	else if (at(p->nproc_used, p->nproc_limit) &&
		 ((fails && one_of(call, forks)) || (!call && retries)))
		what = wg_say(b, "its user has reached the limit of %lld processes and threads",
			      (long long)p->nproc_limit);
	else if (at(p->nofile_used, p->nofile_limit) &&
		 ((fails && one_of(call, opens)) || (!call && retries)))
		what = wg_say(b, "it has reached its limit of %lld open descriptors",
			      (long long)p->nofile_limit);
	else if (wg_has_int(p->shm_free) && p->shm_free < 65536 && wg_has_int(p->shm_size) &&
		 p->shm_size > 0 &&
		 ((fails && one_of(call, spaces) &&
		   (!wg_has_int(t->repeat_errno) || t->repeat_errno == ENOSPC)) ||
		  (!call && retries)))
		what = wg_say(b, "/dev/shm is full: %s of %s free", wg_bytes(b, p->shm_free),
			      wg_bytes(b, p->shm_size));
	else if (at(p->memlock_used, p->memlock_limit) &&
		 ((fails && one_of(call, pins)) || (!call && retries)))
		what = wg_say(b, "it has reached its limit of %s of locked memory",
			      wg_bytes(b, p->memlock_limit));
	else if (wg_has_int(g->cpu_periods_delta) && g->cpu_periods_delta >= 2 &&
		 wg_has_int(g->cpu_throttled_delta) &&
		 g->cpu_throttled_delta * 10 >= g->cpu_periods_delta * 9 &&
		 wg_has_sec(g->cpu_quota) && g->cpu_quota <= 0.1 && t->wait.op == WG_OP_RUNNING)
		what = wg_say(
			b,
			"its control group may use %.0f %% of one processor and is throttled in "
			"%lld of %lld periods",
			g->cpu_quota * 100, (long long)g->cpu_throttled_delta,
			(long long)g->cpu_periods_delta);
	/* The error itself tells of a limit, whichever it was and whoever set it. */
	if (!what && call && wg_has_int(t->repeat_errno)) {
		const char *path = t->repeat_path ? wg_say(b, " for %s", t->repeat_path) : "";

		if (t->repeat_errno == EMFILE || t->repeat_errno == ENFILE)
			what = wg_say(b, "%s fails each time: too many open descriptors", call);
		else if (t->repeat_errno == ENOSPC || t->repeat_errno == EDQUOT)
			what = wg_say(b, "%s%s fails each time: no space left", call, path);
		else if (one_of(call, forks) &&
			 (t->repeat_errno == EAGAIN || t->repeat_errno == ENOMEM))
			what = wg_say(
				b, "%s fails each time: no more processes or threads may be made",
				call);
		else if (one_of(call, pins) &&
			 (t->repeat_errno == ENOMEM || t->repeat_errno == EAGAIN ||
			  t->repeat_errno == EPERM))
			what = wg_say(b, "%s fails each time: no more memory may be %s", call,
				      !strcmp(call, "mmap") ? "mapped" : "locked");
	}
	if (!what)
		return false;
	b->n.v[c->node].wdoes =
		call ? "repeats a call that a limit makes fail" : "waits to try again";
	b->n.v[c->node].wobject = call;
	b->n.v[c->node].polls_cpu = true;
	b->n.v[c->node].wsince = WG_NO_SEC;
	wg_set_end(b, c->node, CL_RESOURCE, FATE_STUCK, call ? WG_CERTAIN : WG_LIKELY, what);
	return true;
}
