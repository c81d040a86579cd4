/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.c - what the kernel observer knows: registers, waits and kernel stacks of all threads
 * without stopping one, who used to wake them, and how processes ended.
 *
 * waitgraphd is asked where it runs: it has history and answers ordinary users. Where it does not,
 * BPF is used directly when permitted: present state only, as root needs no daemon.
 */
#include "sources.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "observer_client.h"

#ifdef WG_HAVE_BPF
#include "bpf/observer.h"
#else
struct wg_observer;
#endif

#define TICK_NS 10000000u /* USER_HZ is 100 on every architecture that counts here */
#define MOST_DEAD 64	  /* dead children that are added in one collection */

struct wg_kernel {
	struct wg_facts *f;
	struct wg_observer_client *daemon;
	struct wg_observer *observer;
	bool tried;   /* to open the observer */
	bool opening; /* it is being opened by that thread: a quarter of a whole answer's time */
	pthread_t opener;
	int opened;   /* 0 or -errno */
	const char *why;
	bool stacks;  /* the daemon gave kernel stacks */
	bool init_ns; /* we see the kernel's own numbers */
};

struct gather {
	struct wg_kernel *k;
	struct wg_facts *f;
	struct wg_process *p;
	WG_VEC(struct wg_regs) regs;
	size_t seen;
	bool unwatched; /* a thread of it: what that wrote is not known */
};

/* Inode of the initial PID namespace, the same on every kernel (PROC_PID_INIT_INO). */
#define INIT_PIDNS 0xEFFFFFFCu

/* ---- BPF directly --------------------------------------------------------------------------- */

#ifdef WG_HAVE_BPF
static void *open_it(void *arg)
{
	struct wg_kernel *k = arg;

	k->opened = wg_observer_open(&k->observer, &k->why);
	return NULL;
}
#endif

/* While /proc is read. What cannot be had is said when it is asked for. */
static void open_early(struct wg_kernel *k)
{
#ifdef WG_HAVE_BPF
	sigset_t all, old;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &old);
	k->opening = !pthread_create(&k->opener, NULL, open_it, k);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
#else
	(void)k;
#endif
}

static bool open_observer(struct wg_kernel *k)
{
	const char *why = "this waitgraph was built without it", *remedy = "start waitgraphd";

	if (k->tried)
		return k->observer;
	k->tried = true;
#ifdef WG_HAVE_BPF
	if (k->opening)
		pthread_join(k->opener, NULL);
	else
		open_it(k);
	if (!k->opened)
		return true;
	why = k->why ? k->why : strerror(-k->opened);
	remedy = wg_observer_remedy(k->opened);
#endif
	wg_add_missing(k->f, NULL, "the kernel observer (BPF)", why, remedy);
	return false;
}

#ifdef WG_HAVE_BPF
static int each_direct(const struct wg_obs_task *o, void *arg)
{
	struct gather *g = arg;
	int32_t tid = g->k->init_ns ? o->tid : o->ns_tid;
	struct wg_thread *t = wg_find_thread(g->p, tid);
	struct wg_regs *r;

	g->seen++;
	if (!t)
		return 0; /* born since the list was made: the next dump has it */
	r = wg_push(g->f->arena, &g->regs);
	r->tid = tid;
	r->full = true;
	/* A thread on a CPU has moved on: these are of its last entry into the kernel. */
	r->approximate = o->on_cpu || (o->state & 0xffff) == 0;
	r->ip = o->ip;
	r->sp = o->sp;
	r->bp = o->bp;
	r->bx = o->bx;
	r->r12 = o->r12;
	r->r13 = o->r13;
	r->r14 = o->r14;
	r->r15 = o->r15;
	r->fsbase = o->fsbase;
	if (!t->fsbase)
		t->fsbase = o->fsbase;
	if (!wg_has_sec(t->last_ran_s) && o->now > o->exec_start)
		t->last_ran_s = (double)(o->now - o->exec_start) / 1e9;
	return 0;
}
#endif

static int ask_directly(struct wg_kernel *k, struct gather *g)
{
	if (!open_observer(k))
		return -ENOSYS;
#ifdef WG_HAVE_BPF
	return wg_observer_tasks(k->observer, g->p->pid, each_direct, g);
#else
	(void)g;
	return -ENOSYS;
#endif
}

/* ---- waitgraphd ------------------------------------------------------------------------------ */

static double seconds(uint64_t ago)
{
	return ago == WG_WIRE_NEVER ? WG_NO_SEC : (double)ago * 1e-9;
}

static void take_wakes(struct wg_thread *t, const struct wg_wire_task *r)
{
	bool asleep = (r->state & 0xffff) != 0 && !(r->flags & WG_TASK_ON_CPU);

	t->waker_count = r->wakes <= INT64_MAX ? (int64_t)r->wakes : INT64_MAX;
	t->waker_age_s = seconds(r->woken_ago);
	t->waker_pid = r->waker_pid > 0 ? r->waker_pid : 0;
	t->waker_tid = r->waker_tid > 0 ? r->waker_tid : 0;
	t->waker_is_timer = r->flags & WG_TASK_IRQ_LAST && r->irq_kind == 2;
	/* The stamp of the switch itself, where /proc has only the scheduler's own clock. */
	if (asleep && r->blocked_ago != WG_WIRE_NEVER && t->state != 'R') {
		t->last_ran_s = seconds(r->blocked_ago);
		if (wg_has_sec(t->wait.since_s) || t->wait.op != WG_OP_UNKNOWN)
			t->wait.since_s = t->last_ran_s;
	} else if (!wg_has_sec(t->last_ran_s)) {
		t->last_ran_s = seconds(r->ran_ago);
	}
}

/* The last write of any of its threads counts. */
static void newest_write(struct wg_process *p, double age_s)
{
	if (wg_has_sec(age_s) && !(p->last_write_age_s <= age_s))
		p->last_write_age_s = age_s;
}

static void take_task(struct gather *g, const struct wg_wire_task *r)
{
	struct wg_thread *t = wg_find_thread(g->p, r->tid);
	struct wg_regs *x;

	g->seen++;
	if (!t)
		return;
	if (r->flags & WG_TASK_REGS) {
		x = wg_push(g->f->arena, &g->regs);
		x->tid = r->tid;
		x->full = true;
		x->approximate = r->flags & WG_TASK_ON_CPU || (r->state & 0xffff) == 0;
		x->ip = r->ip;
		x->sp = r->sp;
		x->bp = r->bp;
		x->bx = r->bx;
		x->r12 = r->r12;
		x->r13 = r->r13;
		x->r14 = r->r14;
		x->r15 = r->r15;
		x->fsbase = r->fsbase;
		if (!t->fsbase)
			t->fsbase = r->fsbase;
	}
	newest_write(g->p, seconds(r->wrote_ago));
	/* Of threads that came later it is known from their beginning. */
	if (r->wrote_bytes == WG_WIRE_NEVER)
		g->unwatched = true;
	else if (r->tid == g->p->pid)
		g->p->quiet_s = seconds(r->tracked_ago);
	if (r->flags & WG_TASK_TRACKED)
		take_wakes(t, r);
	else if (!wg_has_sec(t->last_ran_s))
		t->last_ran_s = seconds(r->ran_ago);
	if (!t->kernel_stack.n && t->state != 'R')
		for (uint32_t i = 0; i < r->nkstack && i < WG_WIRE_KSTACK; i++)
			*wg_push(g->f->arena, &t->kernel_stack) =
				wg_strn(g->f->arena, r->kstack[i], strnlen(r->kstack[i], WG_WIRE_NAME));
	if (!t->wchan && t->kernel_stack.n)
		t->wchan = t->kernel_stack.v[0];
	g->k->stacks |= t->kernel_stack.n > 0;
}

/* What /proc refused has come by another way. */
static void stacks_not_missing(struct wg_process *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->missing.n; i++)
		if (strcmp(p->missing.v[i].what, "kernel stacks"))
			p->missing.v[n++] = p->missing.v[i];
	p->missing.n = n;
}

/* Ages count back from the second sample. */
static void finish(struct wg_kernel *k)
{
	for (size_t i = 0; i < k->f->procs.n; i++) {
		struct wg_process *p = k->f->procs.v[i];

		if (k->stacks && !p->from_snapshot)
			stacks_not_missing(p);
		for (size_t j = 0; j < p->threads.n; j++)
			p->threads.v[j].waker_age_s += k->f->interval_s; /* NAN stays NAN */
	}
}

static void take_end(struct wg_facts *f, struct wg_process *p, const struct wg_wire_proc *r)
{
	bool matched = r->signal && (int)(r->exit_code & 0x7f) == r->signal;

	p->end.known = true;
	p->end.signal = (int32_t)(r->exit_code & 0x7f);
	p->end.status = (int32_t)(r->exit_code >> 8 & 0xff);
	p->end.age_s = seconds(r->ended_ago);
	/* The OOM killer's own kill, not an exit that came before it. */
	p->end.oom_killed |= r->flags & WG_PROC_OOM && p->end.signal == 9;
	if (matched && !(r->flags & WG_PROC_BY_KERNEL) && !p->end.oom_killed) {
		p->end.killer_pid = r->killer_pid > 0 ? r->killer_pid : 0;
		p->end.killer_name = wg_strn(f->arena, r->killer_comm,
					     strnlen(r->killer_comm, sizeof(r->killer_comm)));
	}
}

static void take_stop(struct gather *g, const struct wg_wire_proc *r)
{
	if (!(r->flags & WG_PROC_STOPPED) || r->flags & WG_PROC_BY_KERNEL || g->p->state != 'T')
		return;
	*wg_push(g->f->arena, &g->p->notes) = wg_fmt(g->f->arena, "stopped by signal %d from %s%d (%.*s)",
		r->signal, r->killer_pid > 0 ? "pid " : "uid ",
		r->killer_pid > 0 ? r->killer_pid : (int)r->killer_uid,
		(int)strnlen(r->killer_comm, sizeof(r->killer_comm)), r->killer_comm);
}

static void each_record(const void *record, int size, void *arg)
{
	const struct wg_wire_head *h = record;
	struct gather *g = arg;
	struct wg_wire_task t;
	struct wg_wire_proc p;

	if (h->type == WG_WIRE_TASK && wg_wire_take(record, size, &t, sizeof(t), WG_WIRE_TASK_LEAST)) {
		if (size < (int)sizeof(t)) /* of a daemon that is older than we are */
			t.wrote_ago = t.wrote_bytes = WG_WIRE_NEVER;
		take_task(g, &t);
	}
	if (h->type == WG_WIRE_PROC && wg_wire_take(record, size, &p, sizeof(p), WG_WIRE_PROC_LEAST)) {
		if (size >= (int)sizeof(p))
			newest_write(g->p, seconds(p.wrote_ago));
		take_stop(g, &p);
	}
}

static void lose_daemon(struct wg_kernel *k, int rc)
{
	wg_add_missing(k->f, NULL, "waitgraphd's answer", strerror(-rc), "look at waitgraphd's messages");
	wg_observer_client_close(k->daemon);
	k->daemon = NULL;
}

/* ---- files -------------------------------------------------------------------------------------- */

static void take_file(struct gather *g, int32_t fd, uint64_t dev, uint64_t ino, int32_t error)
{
	struct wg_file *x = wg_find_file(g->p, fd);

	/* Only if it still is the file that /proc showed under that number. */
	if (!x || x->ino != ino || (x->kind != WG_FILE_REG && x->kind != WG_FILE_BLOCK))
		return;
	(void)dev; /* stat's and the kernel's differ on some file systems (btrfs, overlay) */
	x->write_error = error >= 0 && error < 4096 ? error : WG_NO_INT;
}

/*
 * Pipes and sockets keep no time of their own, and a remote file's is what its server last told:
 * what the daemon's looks have seen, to a second. A write that left no mark there (over what was in
 * a remote file before) is not seen, so that nothing is said of how long such a one was quiet.
 */
static void take_samples(struct gather *g, const struct wg_wire_file *r)
{
	struct wg_file *x = wg_find_file(g->p, r->fd);
	double at = seconds(r->wrote_ago);

	if (!x || x->ino != r->ino)
		return;
	if (r->pipe_size && !wg_has_int(x->pipe_fill)) {
		x->pipe_fill = r->pipe_fill;
		x->pipe_size = r->pipe_size;
	}
	if (r->sampled_ago == WG_WIRE_NEVER)
		return;
	if (wg_has_sec(at) && (!wg_has_sec(x->last_write_age_s) || (x->remote_fs && at < x->last_write_age_s)))
		x->last_write_age_s = at;
	if (!wg_has_sec(x->last_write_age_s) && !x->remote_fs)
		x->quiet_s = seconds(r->sampled_ago);
}

/* Only a trace of the writes tells the time of each. */
static void take_trace(struct gather *g, const struct wg_wire_file *r)
{
	struct wg_file *x = wg_find_file(g->p, r->fd);

	if (!x || x->ino != r->ino || r->last_write_ago == WG_WIRE_NEVER)
		return;
	x->last_write_age_s = seconds(r->last_write_ago);
}

static void each_wire_file(const void *record, int size, void *arg)
{
	const struct wg_wire_head *h = record;
	struct wg_wire_file r;

	if (h->type != WG_WIRE_FILE || !wg_wire_take(record, size, &r, sizeof(r), WG_WIRE_FILE_LEAST))
		return;
	if (size < (int)sizeof(r)) /* of a daemon that is older than we are */
		r.sampled_ago = r.wrote_ago = WG_WIRE_NEVER;
	take_file(arg, r.fd, r.dev, r.ino, r.write_error);
	take_samples(arg, &r);
	take_trace(arg, &r);
}

#ifdef WG_HAVE_BPF
static int each_obs_file(const struct wg_obs_file *r, void *arg)
{
	take_file(arg, r->fd, r->dev, r->ino, (int32_t)r->write_error);
	return 0;
}
#endif

/* Worth loading programs for (1-2 ms): something was written, and storing it may have failed. */
static bool writes_matter(const struct wg_process *p)
{
	for (size_t i = 0; i < p->files.n; i++) {
		const struct wg_file *x = &p->files.v[i];

		if ((x->kind == WG_FILE_REG || x->kind == WG_FILE_BLOCK) && wg_has_int(x->flags) &&
		    (x->flags & O_ACCMODE) != O_RDONLY)
			return true;
	}
	return false;
}

static void collect_files(struct wg_kernel *k, struct gather *g)
{
	struct wg_wire_done done;

	if (k->daemon)
		wg_observer_client_ask(k->daemon, WG_WIRE_ASK_FILES, g->p->pid, each_wire_file, g, &done);
#ifdef WG_HAVE_BPF
	else if (k->observer && writes_matter(g->p))
		wg_observer_files(k->observer, g->p->pid, each_obs_file, g);
#else
	(void)writes_matter;
#endif
}

/* ---- the ends of processes ---------------------------------------------------------------------- */

struct ends {
	struct wg_kernel *k;
	int added;
};

static bool same_start(uint64_t ticks, const struct wg_wire_proc *r)
{
	return !ticks || ticks == r->start_ns / TICK_NS;
}

/* A rank of this host that the facts know only through its peers. */
static bool is_peer(const struct wg_facts *f, const struct wg_wire_proc *r)
{
	for (size_t i = 0; i < f->procs.n; i++) {
		const struct wg_process *p = f->procs.v[i];

		for (size_t j = 0; j < p->peers.n; j++) {
			const struct wg_peer *x = &p->peers.v[j];

			if (x->pid == r->pid && wg_has_int(x->start) &&
			    same_start((uint64_t)x->start, r) && x->host && f->host &&
			    !strcmp(x->host, f->host))
				return true;
		}
	}
	return false;
}

static void each_end(const void *record, int size, void *arg)
{
	const struct wg_wire_head *h = record;
	struct ends *e = arg;
	struct wg_facts *f = e->k->f;
	struct wg_process *p, *parent;
	struct wg_wire_proc r;

	if (h->type != WG_WIRE_PROC || !wg_wire_take(record, size, &r, sizeof(r), WG_WIRE_PROC_LEAST) ||
	    !(r.flags & WG_PROC_ENDED) || r.pid <= 0)
		return;
	p = wg_find_process(f, r.pid);
	if (p) {
		if (!p->alive && !p->from_snapshot && same_start(p->start_ticks, &r)) {
			take_end(f, p, &r);
			wg_add_source(f, p, "waitgraphd");
		}
		return;
	}
	/*
	 * One that is gone without a trace in /proc: of use where it may be what somebody waits
	 * for. Children that ended as they should are what every launcher has by the thousand.
	 */
	parent = r.ppid > 0 ? wg_find_process(f, r.ppid) : NULL;
	if (!(parent && !parent->stub && !parent->from_snapshot && r.exit_code) && !is_peer(f, &r))
		return;
	if (e->added++ >= MOST_DEAD)
		return;
	p = wg_add_process(f);
	p->pid = r.pid;
	p->ppid = r.ppid;
	p->uid = r.uid;
	p->start_ticks = r.start_ns / TICK_NS;
	p->stub = true;
	p->alive = false;
	p->host = f->host;
	p->boot = f->boot;
	p->comm = wg_strn(f->arena, r.comm, strnlen(r.comm, sizeof(r.comm)));
	wg_add_source(f, p, "waitgraphd");
	take_end(f, p, &r);
}

/* ---- entry points ------------------------------------------------------------------------------- */

struct wg_kernel *wg_kernel_open(struct wg_facts *f)
{
	struct wg_kernel *k = wg_alloc(f->arena, sizeof(*k));
	struct stat st;
	int rc = wg_observer_client_open(&k->daemon);

	k->f = f;
	k->init_ns = !stat("/proc/self/ns/pid", &st) && st.st_ino == INIT_PIDNS;
	if (rc == -EACCES)
		wg_add_missing(f, NULL, "waitgraphd's answer",
			       "its socket is not for this user, or whoever listens there is not root",
			       "look at WAITGRAPH_SOCKET");
	if (!k->daemon)
		open_early(k);
	return k;
}

void wg_kernel_close(struct wg_kernel *k)
{
	struct ends e = { .k = k };
	struct wg_wire_done done;

	if (!k)
		return;
	/* Last, when it is known who is dead. */
	if (k->daemon && k->f->procs.n)
		wg_observer_client_ask(k->daemon, WG_WIRE_ASK_ENDS, 0, each_end, &e, &done);
	wg_observer_client_close(k->daemon);
	finish(k);
#ifdef WG_HAVE_BPF
	if (k->opening && !k->tried)
		pthread_join(k->opener, NULL);
	wg_observer_close(k->observer);
#endif
}

int wg_kernel_collect(struct wg_kernel *k, struct wg_facts *f, struct wg_process *p,
		      struct wg_regs **regs, size_t *nregs)
{
	struct gather g = { .k = k, .f = f, .p = p };
	struct wg_wire_done done = { 0 };
	const char *why = NULL, *remedy = NULL, *source = "waitgraphd";
	int rc = -ENOTCONN;

	if (k->daemon) {
		rc = wg_observer_client_ask(k->daemon, WG_WIRE_ASK_TASKS, p->pid, each_record, &g, &done);
		if (rc && !done.error)
			lose_daemon(k, rc);
		if (!rc && done.error) {
			rc = -done.error;
			why = wg_str(f->arena, done.why);
			remedy = done.remedy[0] ? wg_str(f->arena, done.remedy) : NULL;
		}
	}
	if (rc && (!k->daemon || (f->is_root && rc != -ESRCH))) {
		g.regs.n = 0;
		source = "bpf";
		rc = ask_directly(k, &g);
	}
	*regs = g.regs.v;
	*nregs = g.regs.n;
	if (g.unwatched)
		p->last_write_age_s = p->quiet_s = WG_NO_SEC;
	else if (wg_has_sec(p->last_write_age_s))
		p->quiet_s = p->last_write_age_s;
	if (!rc) {
		collect_files(k, &g);
		wg_add_source(f, p, "bpf");
		if (k->daemon && strcmp(source, "bpf"))
			wg_add_source(f, p, source);
	} else if (rc != -ENOSYS || why)
		wg_add_missing(f, p, "registers by the kernel observer", why ? why : strerror(-rc), remedy);
	return 0;
}
