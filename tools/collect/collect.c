/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collect.c - from PIDs to facts: which processes, in which order, how often.
 *
 * 1. The asked processes, then, breadth first, everything their threads wait on. A process
 *    that is merely the other end of something stays a stub (identity and that descriptor);
 *    it becomes a full one when a thread waits on it.
 * 2. Stacks, Python and stdio, which use the time until the second sample.
 * 3. The second sample, when anything ran recently: for a thread that has slept for long the
 *    time it last ran is the first sample already.
 *
 * Every step takes its share of one deadline; what did not fit stands in `missing`.
 */
#include "collect.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "procfs.h"
#include "sampling.h"

#define DEFAULT_GAP_S 0.3
#define DEFAULT_DEADLINE_S 10.0
#define RECENT_S 1.0   /* what ran within it gets a second look */
#define MIN_LOOK_S 0.12
#define MAX_RANKS 256
#define BATCH 64	 /* processes that are read in one job */
#define MAX_WANTED 65536
#define LONGEST_POLL_S 1.0 /* an asked thread that sleeps that long between looks is waited for */
#define HUNGRY_LOOKS 15 /* of twice CLOCK_LOOK_S: what a running thread that leaves none is waited for */
#define CLOCK_LOOK_S 0.015 /* what running threads need to leave some samples */

struct wanted { /* somebody at the other end, not looked at yet */
	struct wg_process *from;
	int32_t pid, fd;
	bool full;
};

struct dead_rank { /* a rank that has ended: a zombie beside us, and the record that it left */
	int32_t pid;
	int64_t rank, world;
	const char *source;
};

struct run {
	struct wg_facts *f;
	const struct wg_collect_options *o;
	struct wg_kernel *kernel;
	bool kernel_later; /* its observer is still being loaded */
	struct rlimit old_files;
	bool raised;
	double start, sampled; /* CLOCK_MONOTONIC */
	WG_VEC(struct wg_process *) queue; /* full ones, in the order found */
	size_t next;			   /* first of the queue that is not collected */
	WG_VEC(struct wanted) wanted;
	WG_VEC(struct dead_rank) dead_ranks;
	bool too_many;
};
static struct run *current; /* for the callbacks of sources; one collection at a time */

/* ---- a process, by and by -------------------------------------------------------------- */

static void enqueue(struct run *r, struct wg_process *p)
{
	p->stub = false;
	*wg_push(r->f->arena, &r->queue) = p;
}

/* Remembered only: who turns up is then read in one job. */
static void want(struct wg_facts *f, struct wg_process *from, int32_t pid, int32_t fd, bool full)
{
	struct run *r = current;
	const struct wanted *last = r->wanted.n ? &r->wanted.v[r->wanted.n - 1] : NULL;
	struct wanted *w;

	if (pid <= 0 || pid == getpid() || r->wanted.n >= MAX_WANTED)
		return;
	if (last && last->pid == pid && last->fd == fd && last->full == full)
		return;
	w = wg_push(f->arena, &r->wanted);
	w->from = from;
	w->pid = pid;
	w->fd = fd;
	w->full = full;
}

/* The processes that nobody has asked for before, as stubs. */
static void add_new(struct run *r)
{
	struct wg_facts *f = r->f;
	size_t base = f->procs.n, n;
	struct wg_process **fresh;
	int *rcs;

	for (size_t i = 0; i < r->wanted.n; i++) {
		const struct wanted *w = &r->wanted.v[i];
		struct wg_process *p;

		if (wg_find_process(f, w->pid))
			continue;
		if (f->procs.n >= WG_MAX_PROCS) {
			r->too_many = true;
			break;
		}
		p = wg_add_process(f);
		p->pid = w->pid;
		p->stub = true;
		wg_pproc(f, p)->depth = wg_pproc(f, w->from)->depth + 1;
		wg_pproc(f, p)->wanted_by = w->from;
	}
	n = f->procs.n - base;
	fresh = calloc(n + 1, sizeof(*fresh));
	rcs = calloc(n + 1, sizeof(*rcs));
	if (fresh && rcs && n) {
		memcpy(fresh, f->procs.v + base, n * sizeof(*fresh));
		wg_procfs_processes(f, fresh, n, rcs);
		f->procs.n = base; /* only those that are still there */
		for (size_t i = 0; i < n; i++) {
			struct wg_pproc *k = fresh[i]->collect;

			if (!rcs[i]) {
				*wg_push(f->arena, &f->procs) = fresh[i];
				continue;
			}
			if (k->dirfd >= 0)
				close(k->dirfd);
			fresh[i]->collect = NULL;
			if (rcs[i] != -ESRCH)
				wg_add_missing(f, k->wanted_by, wg_fmt(f->arena, "process %d", fresh[i]->pid),
					       strerror(-rcs[i]), "run as root");
		}
	}
	free(fresh);
	free(rcs);
}

static void resolve_wanted(struct run *r)
{
	struct wg_facts *f = r->f;

	add_new(r);
	for (size_t i = 0; i < r->wanted.n; i++) {
		const struct wanted *w = &r->wanted.v[i];
		struct wg_process *p = wg_find_process(f, w->pid);
		struct wg_pproc *k = p ? p->collect : NULL;

		if (!k)
			continue;
		if (w->full && p->stub && !(k->got_stat && (k->stat.flags & WG_PF_KTHREAD)))
			enqueue(r, p);
	}
	for (size_t i = 0; i < r->wanted.n; i++) {
		const struct wanted *w = &r->wanted.v[i];
		struct wg_process *p = w->fd >= 0 ? wg_find_process(f, w->pid) : NULL;

		if (p && p->stub && p->collect)
			wg_files_add_end(f, p, w->fd);
	}
	r->wanted.n = 0;
}

static void take_children(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pctx *c = wg_pctx(f);

	p->children.n = 0;
	for (size_t i = 0; i < c->host.procs.n; i++)
		if (c->host.procs.v[i].ppid == p->pid && c->host.procs.v[i].pid != getpid())
			*wg_push(f->arena, &p->children) = c->host.procs.v[i].pid;
}

static bool module_matters(const char *name)
{
	static const char *const prefixes[] = { "libcuda.so", "libcudart", "libnccl", "libtorch",
		"libc10", "libgomp", "libiomp", "libomp.", "libmkl_", "libopenblas", "libmpi.", "libmpi_",
		"libucp", "libuct", "libucs", "libfabric", "libibverbs", "libtriton", "libpython",
		"libnvrtc", "libnvJitLink", "libnvidia-ptxjit", "libnvidia-nvvm", "libcudnn", "libcublas",
		"libtcmalloc", "libjemalloc", "libtbb", "libopencv", "libtokenizers", "libasan", "libtsan",
		"libtensorflow", "libjax", "xla_extension", "libwaitgraph", "libcupti", "libnvshmem",
		"libgloo", "libceph", "libfuse", "libc.so", "libpthread", "libstdc++", NULL };

	for (int i = 0; prefixes[i]; i++)
		if (!strncmp(name, prefixes[i], strlen(prefixes[i])))
			return true;
	return false;
}

static void take_modules(struct wg_facts *f, struct wg_process *p, struct wg_mem *m)
{
	const struct wg_map *maps;
	const char *last = NULL;
	size_t n;

	if (wg_mem_error(m))
		return;
	maps = wg_mem_maps(m, &n);
	for (size_t i = 0; i < n && p->modules.n < 64; i++) {
		const char *base;
		bool have = false;

		if (!maps[i].path || maps[i].path[0] != '/' || maps[i].path == last)
			continue;
		last = maps[i].path;
		base = strrchr(last, '/') + 1;
		if (!module_matters(base))
			continue;
		for (size_t k = 0; k < p->modules.n && !have; k++)
			have = !strcmp(p->modules.v[k], base);
		if (!have)
			*wg_push(f->arena, &p->modules) = wg_str(f->arena, base);
	}
}

static void ask_kernel(struct run *r, struct wg_process *p)
{
	struct wg_pproc *k = wg_pproc(r->f, p);
	struct wg_regs *regs = NULL;
	size_t n = 0;

	if (!r->kernel || wg_kernel_collect(r->kernel, r->f, p, &regs, &n))
		return;
	k->regs = regs;
	k->nregs = n;
}

static void collect_full(struct run *r, struct wg_process *p)
{
	struct wg_facts *f = r->f;
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	int rc;

	if (c->deadline - wg_mono() < 0.3) {
		p->stub = true;
		wg_add_missing(f, p, "threads and files", "the time of this collection was up",
			       "give it more with --deadline");
		return;
	}
	if (c->nthreads + (size_t)(k->stat.nthreads > 0 ? k->stat.nthreads : 1) > WG_MAX_THREADS &&
	    c->nthreads) {
		p->stub = true;
		wg_add_missing(f, p, "threads and files", "the limit of one collection (20000 threads)",
			       "ask about it alone");
		return;
	}
	take_children(f, p);
	k->mem = wg_mem_open(f, p, c->given_pid == p->pid ? c->given_memfd : -1);
	if (!wg_rec_open_pid(f, p, &k->rec) && k->rec) {
		k->helper = wg_rec_helper(k->rec);
		k->own_calls = wg_rec_tasks(f, k->rec, &k->nown_calls);
	}
	rc = wg_procfs_threads(f, p, k->mem);
	if (rc && rc != -ESRCH)
		wg_add_missing(f, p, "threads", strerror(-rc), "run as root");
	if (!p->alive || rc)
		return;
	if (wg_mem_error(k->mem) && k->got_stat && p->state != 'Z')
		wg_add_missing(f, p, "memory of the process (arguments of calls, locks, stacks)",
			       strerror(-wg_mem_error(k->mem)),
			       "run as root, or start the program with `waitgraph run`");
	p->memory_denied = wg_mem_error(k->mem) == -EPERM || wg_mem_error(k->mem) == -EACCES;
	wg_files_collect(f, p);
	wg_limits_collect(f, p);
	take_modules(f, p, k->mem);
	if (k->rec) {
		struct wg_symbols *s = wg_symbols_open(k->mem);

		wg_rec_collect(f, p, k->rec, k->mem, s);
		wg_symbols_close(s);
	}
	if (!r->kernel_later)
		ask_kernel(r, p);
}

/* ---- other ranks of this host -------------------------------------------------------------- */

struct rank_search {
	struct run *r;
	struct wg_process *p;
	struct wg_facts *scratch;
};

static bool shares_comm(const struct wg_process *a, const struct wg_process *b)
{
	for (size_t i = 0; i < a->comms.n; i++)
		for (size_t k = 0; k < b->comms.n; k++)
			if (a->comms.v[i].id && b->comms.v[k].id &&
			    !strcmp(a->comms.v[i].id, b->comms.v[k].id))
				return true;
	return false;
}

/*
 * A rank that was killed is a zombie of the same parent until that one collects it. Its environment
 * is gone with its memory, but the record that it left behind says which rank it was.
 */
static void dead_sibling(struct rank_search *s, const struct wg_process *q)
{
	const struct wg_hostproc *h = wg_host_proc(wg_pctx(s->r->f), q->pid);
	struct dead_rank *d;

	if (!h || (h->state != 'Z' && h->state != 'X') || h->start != q->start_ticks ||
	    h->ppid != s->p->ppid || h->ppid <= 1 || !wg_has_int(q->rank) || !wg_has_int(s->p->rank) ||
	    q->rank == s->p->rank || (wg_has_int(q->world) && wg_has_int(s->p->world) &&
				      q->world != s->p->world))
		return;
	d = wg_push(s->r->f->arena, &s->r->dead_ranks);
	d->pid = q->pid;
	d->rank = q->rank;
	d->world = q->world;
	d->source = wg_str(s->r->f->arena, q->rank_source);
	want(s->r->f, s->p, q->pid, -1, true);
}

static void name_dead_ranks(struct run *r)
{
	for (size_t i = 0; i < r->dead_ranks.n; i++) {
		const struct dead_rank *d = &r->dead_ranks.v[i];
		struct wg_process *p = wg_find_process(r->f, d->pid);

		if (!p || p->alive || wg_has_int(p->rank))
			continue;
		p->rank = d->rank;
		p->world = d->world;
		p->rank_source = d->source;
	}
}

static int each_record(const char *path, void *arg)
{
	struct rank_search *s = arg;
	struct wg_process *q = NULL;
	const char *why;

	if (wg_rec_add_process(s->scratch, path, true, &q, &why) || !q)
		return 0;
	if (q->alive && q->pid > 0 && q->pid != s->p->pid && shares_comm(s->p, q))
		want(s->r->f, s->p, q->pid, -1, true);
	else if (q->pid > 0)
		dead_sibling(s, q);
	return 0;
}

static void follow_ranks(struct run *r, struct wg_process *p)
{
	struct wg_facts *f = r->f;
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	struct rank_search s = { .r = r, .p = p };
	int32_t pids[MAX_RANKS];
	size_t n;

	if (k->depth > 0 && !p->comms.n)
		return; /* found as an end, and no rank that anybody knows of */
	if (wg_has_int(p->rank) && k->depth == 0) {
		n = wg_host_same_job(f, p, pids, MAX_RANKS);
		for (size_t i = 0; i < n; i++)
			want(f, p, pids[i], -1, true);
	}
	for (size_t i = 0; i < p->peers.n; i++) {
		const struct wg_peer *x = &p->peers.v[i];
		const struct wg_hostproc *h;
		int32_t pid;

		if (!x->host || !x->boot || !f->host || !f->boot || strcmp(x->host, f->host) ||
		    strcmp(x->boot, f->boot) || !wg_has_int(x->pid))
			continue;
		pid = wg_pid_from_ns(f, p, (int32_t)x->pid);
		h = wg_host_proc(c, pid);
		if (h && pid != p->pid && (!wg_has_int(x->start) || h->start == (uint64_t)x->start))
			want(f, p, pid, -1, true);
	}
	if (p->comms.n && k->depth == 0) {
		s.scratch = wg_facts_new();
		wg_rec_list(s.scratch, each_record, &s);
		wg_facts_free(s.scratch);
	}
	/* No word from a launcher nor from a recorder: brothers that use the GPU alike. */
	if (p->cuda_up && !p->recorded && !wg_has_int(p->rank) && k->depth == 0 && p->ppid > 1)
		for (size_t i = 0; i < c->host.procs.n; i++) {
			const struct wg_hostproc *h = &c->host.procs.v[i];

			if (h->ppid == p->ppid && h->pid != p->pid && p->comm &&
			    !strncmp(h->comm, p->comm, sizeof(h->comm)))
				want(f, p, h->pid, -1, true);
		}
}

/* Until nothing new turns up: a generation at a time. */
static void closure(struct run *r)
{
	struct wg_facts *f = r->f;

	while (r->next < r->queue.n) {
		size_t from = r->next, n = r->queue.n - from, todo = 0;
		struct wg_process *all[BATCH], *fresh[BATCH];
		struct wg_bulk *b;

		if (n > BATCH)
			n = BATCH;
		memcpy(all, r->queue.v + from, n * sizeof(all[0]));
		r->next = from + n;
		for (size_t i = 0; i < n; i++)
			if (!wg_pproc(f, all[i])->full && all[i]->alive)
				fresh[todo++] = all[i];
		b = wg_prefetch(f, fresh, todo, false);
		for (size_t i = 0; i < todo; i++)
			collect_full(r, fresh[i]);
		wg_prefetch_free(f, b, fresh, todo);
		if (!r->o->follow || wg_pctx_left(wg_pctx(f), 1.0) < 0.3)
			continue;
		for (size_t i = 0; i < n; i++) {
			if (!all[i]->alive || all[i]->stub)
				continue;
			wg_endpoints(f, all[i], want);
			follow_ranks(r, all[i]);
		}
		resolve_wanted(r);
		name_dead_ranks(r);
	}
}

/* ---- stacks and languages -------------------------------------------------------------------- */

static void collect_stacks(struct run *r)
{
	struct wg_facts *f = r->f;

	for (size_t i = 0; i < r->queue.n; i++) {
		struct wg_process *p = r->queue.v[i];
		struct wg_pproc *k = wg_pproc(f, p);
		struct wg_symbols *s;

		if (p->stub || !p->alive || !k->mem)
			continue;
		if (wg_pctx_left(wg_pctx(f), 1.0) < 0.5) {
			wg_add_missing(f, p, "stacks", "the time of this collection was up",
				       "give it more with --deadline");
			continue;
		}
		s = wg_symbols_open(k->mem);
		if (!r->o->no_stacks)
			wg_stacks_collect(f, p, k->mem, s, k->regs, k->nregs, r->o->allow_ptrace);
		wg_python_collect(f, p, k->mem, s);
		wg_stdio_collect(f, p, k->mem, s);
		if (!r->o->no_stacks)
			wg_stacks_symbolize(f, p, s);
		wg_symbols_close(s);
	}
}

/*
 * Where the running threads are, before stacks are taken: of them nothing else tells without
 * the observer.
 */
static void regs_of_running(struct run *r, struct wg_sampling *s)
{
	bool wanted = false;
	struct timespec t = { 0, (long)(CLOCK_LOOK_S * 1e9) };

	for (size_t i = 0; i < r->queue.n; i++) {
		const struct wg_process *p = r->queue.v[i];

		for (size_t j = 0; !p->stub && j < p->threads.n; j++)
			wanted |= p->threads.v[j].state == 'R';
	}
	if (!wanted || !wg_sampling_any(s))
		return;
	nanosleep(&t, NULL);
	wg_sampling_drain(s);
	for (size_t i = 0; i < r->queue.n; i++) {
		struct wg_pproc *k = wg_pproc(r->f, r->queue.v[i]);
		struct wg_regs got[32], *all;
		size_t n = wg_sampling_regs(s, r->queue.v[i], got, 32), keep = 0;

		if (!n)
			continue;
		/* Newer than those of the last kernel entry, which is all that the observer has. */
		all = wg_alloc(r->f->arena, (k->nregs + n) * sizeof(*all));
		for (size_t j = 0; j < k->nregs; j++) {
			bool newer = false;

			for (size_t x = 0; x < n; x++)
				if (got[x].tid == k->regs[j].tid) {
					got[x].fsbase = k->regs[j].fsbase;
					newer = true;
				}
			if (!newer)
				all[keep++] = k->regs[j];
		}
		memcpy(all + keep, got, n * sizeof(*all));
		k->regs = all;
		k->nregs = keep + n;
	}
}

/* ---- the second sample -------------------------------------------------------------------------- */

static bool ran_recently(const struct run *r)
{
	for (size_t i = 0; i < r->queue.n; i++) {
		const struct wg_process *p = r->queue.v[i];

		if (p->stub || !p->alive)
			continue;
		for (size_t k = 0; k < p->threads.n; k++) {
			const struct wg_thread *t = &p->threads.v[k];

			if (t->ours || t->state == 'Z' || t->state == 'X')
				continue;
			if (t->state == 'R' || !wg_has_sec(t->last_ran_s) || t->last_ran_s < RECENT_S)
				return true;
		}
		/* The GPU can go on while every thread sleeps. */
		for (size_t k = 0; k < p->streams.n; k++)
			if (p->streams.v[k].enqueued > p->streams.v[k].completed)
				return true;
	}
	return false;
}

/*
 * Between the samples a thread of the asked processes that polls has to come by once, or what
 * it polls is not seen.
 */
static double gap_for_pollers(struct run *r, double gap)
{
	for (size_t i = 0; i < r->queue.n; i++) {
		const struct wg_process *p = r->queue.v[i];

		if (p->stub || wg_pproc(r->f, (struct wg_process *)p)->depth > 0)
			continue;
		for (size_t k = 0; k < p->threads.n; k++) {
			const struct wg_wait *w = &p->threads.v[k].wait;

			if (w->op == WG_OP_SLEEP && w->timeout_s <= LONGEST_POLL_S &&
			    w->timeout_s + 0.1 > gap)
				gap = w->timeout_s + 0.1;
		}
	}
	return gap;
}

/* On a loaded machine a thread gets a processor now and then: where it is then, is worth a wait. */
static void wait_for_samples(struct run *r, struct wg_sampling *s)
{
	struct timespec t = { 0, (long)(CLOCK_LOOK_S * 2e9) };

	for (int i = 0; i < HUNGRY_LOOKS && wg_sampling_hungry(s) && wg_pctx_left(wg_pctx(r->f), 1.0) > 0.5; i++) {
		nanosleep(&t, NULL);
		wg_sampling_drain(s);
	}
}

static void second_sample(struct run *r, double since)
{
	struct wg_facts *f = r->f;
	double gap = wg_mono() - since;

	wg_sockets_again(f);
	wg_pctx(f)->round++;
	for (size_t i = 0; i < r->queue.n;) {
		struct wg_process *all[BATCH];
		struct wg_bulk *b;
		size_t n = 0;

		for (; i < r->queue.n && n < BATCH; i++)
			if (!r->queue.v[i]->stub && r->queue.v[i]->alive &&
			    wg_pproc(f, r->queue.v[i])->full)
				all[n++] = r->queue.v[i];
		b = wg_prefetch(f, all, n, true);
		for (size_t j = 0; j < n; j++) {
			struct wg_pproc *k = wg_pproc(f, all[j]);

			wg_procfs_again(f, all[j], k->mem, gap);
			if (!all[j]->alive)
				continue;
			wg_files_again(f, all[j], gap);
			wg_limits_again(f, all[j]);
			wg_waits_long_writes(all[j]);
			if (k->rec)
				wg_rec_again(f, all[j], k->rec, gap);
			if (k->mem && wg_stdio_doubtful(all[j])) {
				struct wg_symbols *s = wg_symbols_open(k->mem);

				wg_stdio_again(f, all[j], k->mem, s);
				wg_symbols_close(s);
			}
		}
		wg_prefetch_free(f, b, all, n);
	}
	f->interval_s = gap;
}

/* ---- what belongs to the whole -------------------------------------------------------------------- */

static double cpu_below(struct wg_facts *f, const struct wg_process *p, int depth)
{
	double sum = 0;

	for (size_t i = 0; depth < 32 && i < p->children.n; i++) {
		const struct wg_process *q = wg_find_process(f, p->children.v[i]);

		if (!q || q == p)
			continue;
		if (wg_has_sec(q->cpu_share))
			sum += q->cpu_share;
		sum += cpu_below(f, q, depth + 1);
	}
	return sum;
}

static void add_children_cpu(struct run *r)
{
	for (size_t i = 0; i < r->queue.n; i++) {
		struct wg_process *p = r->queue.v[i];

		if (wg_has_sec(p->cpu_share)) {
			double reaped = wg_has_sec(p->children_cpu_share) ? p->children_cpu_share : 0;

			p->children_cpu_share = reaped + cpu_below(r->f, p, 0);
		}
	}
}

/*
 * A shared lock names its owner by number alone. Whether that thread still exists anybody may look
 * up, where processes are not hidden from others.
 */
static void look_for_owners(struct wg_facts *f)
{
	struct wg_pctx *c = wg_pctx(f);
	bool hidden = faccessat(c->procfd, "1/stat", F_OK, 0) != 0;

	for (size_t i = 0; i < f->procs.n && !hidden; i++) {
		const struct wg_process *p = f->procs.v[i];

		if (!p->alive || p->from_snapshot || (p->ns_pid && p->ns_pid != p->pid))
			continue;
		for (size_t k = 0; k < p->threads.n; k++) {
			const struct wg_wait *w = &p->threads.v[k].wait;
			const struct wg_futex *x = &w->futex;
			uint32_t named[4] = { 0 };

			if (w->op != WG_OP_FUTEX || !x->is_shared || !x->map_ino)
				continue;
			named[0] = x->nwords > 0 ? x->words[0] & 0x3fffffff : 0; /* robust, inheriting */
			for (int j = 2; j < 5 && j < x->nwords; j++) /* mutexes, read-write locks */
				named[j - 1] = x->words[j];
			for (int j = 0; j < 4; j++) {
				char name[24];
				bool known = !named[j] || named[j] > 4194304 ||
					     wg_find_process(f, (int32_t)named[j]);

				for (size_t g = 0; g < f->gone_tids.n && !known; g++)
					known = f->gone_tids.v[g] == (int32_t)named[j];
				snprintf(name, sizeof(name), "%u/stat", named[j]);
				if (!known && faccessat(c->procfd, name, F_OK, 0) && errno == ENOENT)
					*wg_push(f->arena, &f->gone_tids) = (int32_t)named[j];
			}
		}
	}
}

/* The kernel's log tells of processes that were killed for memory. Its numbers are the host's. */
static void oom_kills(struct wg_facts *f)
{
	if (!wg_pctx(f)->init_pidns)
		return;
	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];
		char text[48];

		if (p->alive || p->from_snapshot)
			continue;
		snprintf(text, sizeof(text), "Killed process %d (", p->pid);
		for (size_t k = 0; k < f->kmsg.n; k++)
			if (strstr(f->kmsg.v[k], text)) {
				double ago = strtod(f->kmsg.v[k], NULL);

				/* Not of an earlier process with the same number. */
				if (!wg_has_sec(p->age_s) || ago <= p->age_s + 1) {
					p->end.oom_killed = true;
					if (!wg_has_sec(p->end.age_s))
						p->end.age_s = ago;
				}
			}
	}
}

static void given_descriptors(struct run *r)
{
	struct wg_pctx *c = wg_pctx(r->f);
	const struct wg_collect_options *o = r->o;

	c->given_pid = o->npids ? o->pids[0] : 0;
	c->given_dirfd = o->proc_fd;
	c->given_memfd = o->mem_fd;
	if (o->syscall_fd > 0) {
		size_t cap = 4 << 20, n = 0;
		ssize_t k;

		c->given_syscalls = malloc(cap);
		while (c->given_syscalls && n < cap - 1 &&
		       (k = pread(o->syscall_fd, c->given_syscalls + n, cap - 1 - n, (off_t)n)) > 0)
			n += (size_t)k;
		if (c->given_syscalls)
			c->given_syscalls[n] = 0;
	}
}

struct dead_search {
	int32_t pid;
	char path[512];
	time_t newest;
};

static int each_dead(const char *path, void *arg)
{
	struct dead_search *d = arg;
	const char *base = strrchr(path, '/');
	struct stat st;
	char want_name[16];

	snprintf(want_name, sizeof(want_name), "%d-", d->pid);
	base = base ? base + 1 : path;
	if (strncmp(base, want_name, strlen(want_name)) || stat(path, &st) || st.st_mtime < d->newest)
		return 0;
	d->newest = st.st_mtime;
	snprintf(d->path, sizeof(d->path), "%s", path);
	return 0;
}

/* A process that is gone but left its recorder file: all that it wrote is still true. */
static int from_record(struct wg_facts *f, int32_t pid)
{
	struct dead_search d = { .pid = pid };
	struct wg_process *p = NULL;
	const char *why = NULL;

	wg_rec_list(f, each_dead, &d);
	if (!d.path[0] || wg_rec_add_process(f, d.path, true, &p, &why) || !p)
		return -ESRCH;
	if (p->pid <= 0)
		p->pid = pid;
	return 0;
}

static void drop(struct wg_process *p)
{
	struct wg_pproc *k = p->collect;

	if (k && k->dirfd >= 0)
		close(k->dirfd);
	free(k ? k->tasks : NULL);
	p->collect = NULL;
}

/* One that was asked for and could be read, or rc says why not. */
static int opened(struct run *r, struct wg_process *p, int rc, bool first)
{
	struct wg_facts *f = r->f;
	struct wg_pproc *k = p->collect;
	int32_t pid = p->pid;

	if (!rc && k->status.tgid && k->status.tgid != pid) {
		/* A thread was named: its process is what can be asked about. */
		pid = k->status.tgid;
		drop(p);
		if (wg_find_process(f, pid))
			return 0;
		p = wg_add_process(f);
		p->pid = pid;
		rc = wg_procfs_process(f, p);
		f->procs.n--;
	} else if (!rc && wg_find_process(f, pid)) { /* by one of its threads */
		drop(p);
		return 0;
	}
	if (!rc) {
		*wg_push(f->arena, &f->procs) = p;
		*wg_push(f->arena, &f->asked) = pid;
		enqueue(r, p);
		return 0;
	}
	drop(p);
	if (rc == -ESRCH)
		rc = from_record(f, pid);
	if (rc && first)
		return rc;
	if (rc) { /* of several the others can still be asked */
		p = wg_add_process(f);
		p->pid = pid;
		p->host = f->host;
		p->boot = f->boot;
		wg_add_missing(f, p, "everything about it", strerror(-rc), NULL);
	}
	*wg_push(f->arena, &f->asked) = pid;
	return 0;
}

static int open_asked(struct run *r)
{
	struct wg_facts *f = r->f;
	size_t base = f->procs.n, n;
	struct wg_process **all;
	int rc = -ENOMEM, *rcs;

	for (size_t i = 0; i < r->o->npids; i++)
		if (!wg_find_process(f, r->o->pids[i]))
			wg_add_process(f)->pid = r->o->pids[i];
	n = f->procs.n - base;
	all = calloc(n + 1, sizeof(*all));
	rcs = calloc(n + 1, sizeof(*rcs));
	if (!all || !rcs)
		goto out;
	if (n)
		memcpy(all, f->procs.v + base, n * sizeof(*all));
	rc = wg_procfs_processes(f, all, n, rcs);
	f->procs.n = base; /* only those that are there, in their order */
	for (size_t i = 0; i < n; i++) {
		if (rc)
			drop(all[i]);
		else
			rc = opened(r, all[i], rcs[i], !i);
	}
	if (!rc && !f->procs.n)
		rc = -ESRCH;
out:
	free(all);
	free(rcs);
	return rc;
}

static void raise_limit(struct run *r)
{
	struct rlimit l;

	/* A descriptor or three for each process that is looked at. */
	if (getrlimit(RLIMIT_NOFILE, &r->old_files))
		return;
	l = r->old_files;
	l.rlim_cur = l.rlim_max > 16384 ? 16384 : l.rlim_max;
	if (l.rlim_cur > r->old_files.rlim_cur)
		r->raised = !setrlimit(RLIMIT_NOFILE, &l);
}

static bool nothing_to_list(const struct wg_facts *f)
{
	const struct wg_process *p = f->procs.n ? f->procs.v[0] : NULL;

	return p && p->alive && !p->threads.n && !p->from_snapshot && !p->trace_only && !p->recorded;
}

int wg_collect(struct wg_facts *f, const struct wg_collect_options *o)
{
	struct run r = { .f = f, .o = o };
	struct wg_pctx *c = wg_pctx(f);
	struct wg_sampling *sampling = NULL;
	struct timespec now;
	double first;
	bool twice;
	int rc;

	r.start = wg_mono();
	c->deadline = r.start + (o->deadline_s > 0 ? o->deadline_s : DEFAULT_DEADLINE_S);
	current = &r;
	raise_limit(&r);
	given_descriptors(&r);
	wg_host_scan(f);
	f->self_pid = (int32_t)getpid();
	f->self_ppid = (int32_t)getppid();
	rc = open_asked(&r);
	if (rc)
		goto out;
	if (!o->no_bpf)
		r.kernel = wg_kernel_open(f);
	wg_locks_collect(f);
	r.kernel_later = true;
	closure(&r);
	r.kernel_later = false;
	for (size_t i = 0; i < r.queue.n; i++)
		if (!r.queue.v[i]->stub && r.queue.v[i]->alive && r.queue.v[i]->threads.n)
			ask_kernel(&r, r.queue.v[i]);
	if (r.queue.n && nothing_to_list(f)) {
		rc = -EACCES;
		goto out;
	}
	first = c->sampled_at = wg_mono();
	twice = o->second_always || ran_recently(&r);
	if (twice) {
		sampling = wg_sampling_start(f);
		regs_of_running(&r, sampling);
	}
	collect_stacks(&r);
	if (twice) {
		double gap = o->gap_s > 0 ? o->gap_s : DEFAULT_GAP_S, left;

		if (wg_sampling_sees_calls(sampling))
			gap = gap_for_pollers(&r, gap);
		left = first + gap - wg_mono();
		if (left < MIN_LOOK_S)
			left = MIN_LOOK_S;
		wg_procfs_looks(f, wg_pctx_left(c, left), sampling);
		wait_for_samples(&r, sampling);
		second_sample(&r, first);
		wg_sampling_finish(sampling);
		c->sampled_at = wg_mono();
		wg_locks_collect(f);
		/* A thread that has just begun to wait: its end was not looked for yet. */
		r.next = 0;
		closure(&r);
	}
	wg_locks_holders(f);
	wg_files_pipes(f);
	wg_kmsg_collect(f);
	for (size_t i = 0; i < r.queue.n; i++)
		if (r.queue.v[i]->cuda_up) {
			wg_gpu_collect(f);
			break;
		}
	add_children_cpu(&r);
	look_for_owners(f);
	oom_kills(f);
	for (size_t i = 0; i < f->procs.n; i++)
		wg_procfs_ages(f, f->procs.v[i]);
	if (r.too_many)
		wg_add_missing(f, NULL, "processes beyond the first 512", "the limit of one collection",
			       "ask about fewer");
	clock_gettime(CLOCK_REALTIME, &now);
	f->taken_at = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
out:
	wg_kernel_close(r.kernel);
	for (size_t i = 0; i < r.queue.n; i++) {
		struct wg_pproc *k = r.queue.v[i]->collect;

		if (!k)
			continue;
		if (k->rec)
			wg_rec_close(k->rec);
		if (k->mem)
			wg_mem_close(k->mem);
		k->rec = NULL;
		k->mem = NULL;
	}
	wg_pctx_free(f);
	if (r.raised)
		setrlimit(RLIMIT_NOFILE, &r.old_files);
	current = NULL;
	return rc;
}
