/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs.c - processes and threads as /proc shows them.
 *
 * What is read and what it costs stands in docs/facts.md. Everything of one process comes
 * in one or two bulk jobs (bulk.h): a job that does not answer leaves what it had read, and
 * the rest stands in `missing`.
 *
 * The time a thread last ran comes from se.exec_start in /proc/TID/sched. That is on the
 * scheduler's clock of the CPU where it ran, which is neither CLOCK_MONOTONIC nor the same on
 * every CPU (time stolen and spent in interrupts is left out): it is calibrated by running
 * there ourselves for a moment and reading our own.
 */
#include "procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "bulk.h"
#include "sampling.h"

#define PROC_DEADLINE_S 1.0
#define MOMENTS 4	/* of 0.3 ms, in one process: for threads that are met awake, at the first look */
#define MOMENTS_AGAIN 20 /* and at the second, when it is known that they mostly sleep */
#define THREADS_DEADLINE_S 3.0
#define COMMAND_MAX 8192
#define INIT_PIDNS 0xEFFFFFFCu /* the kernel's fixed inode of the first PID namespace */

enum { R_STAT = 1, R_STATUS, R_IO, R_CGROUP, R_LIMITS, R_EXE, R_NS_PID, R_NS_NET, R_NS_MNT,
       R_NS_TIME, R_CMDLINE, R_ENVIRON, R_TASK, R_T_STAT, R_T_STATUS, R_T_SYSCALL, R_T_WCHAN,
       R_T_STACK, R_T_SCHED, R_T_SCHEDSTAT, R_T_SAME, R_BEGIN, R_PART_THREADS, R_PART_FILES,
       R_PART_END };

/* ---- the context ------------------------------------------------------------- */

static double clock_s(clockid_t id)
{
	struct timespec t;

	if (clock_gettime(id, &t))
		return NAN;
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

double wg_mono(void)
{
	return clock_s(CLOCK_MONOTONIC);
}

static ssize_t slurp(const char *path, char *buf, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t k;

	buf[0] = 0;
	if (fd < 0)
		return -errno;
	k = read(fd, buf, n - 1);
	if (k < 0)
		k = -errno;
	else
		buf[k] = 0;
	close(fd);
	return k;
}

uint64_t wg_link_ino(const char *link, const char *prefix)
{
	size_t n = strlen(prefix);
	char *end;
	uint64_t v;

	if (!link || strncmp(link, prefix, n))
		return 0;
	v = strtoull(link + n, &end, 10);
	return *end == ']' ? v : 0;
}

static uint64_t own_ns(const char *path, const char *prefix)
{
	char buf[128];
	ssize_t n = readlink(path, buf, sizeof(buf) - 1);

	if (n < 0)
		return 0;
	buf[n] = 0;
	return wg_link_ino(buf, prefix);
}

struct wg_pctx *wg_pctx(struct wg_facts *f)
{
	struct wg_pctx *c = f->collect;
	struct utsname u;
	char buf[128];

	if (c)
		return c;
	c = f->collect = wg_alloc(f->arena, sizeof(*c));
	c->f = f;
	c->procfd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	c->given_dirfd = c->given_memfd = -1;
	c->euid = (uint32_t)geteuid();
	c->hz = sysconf(_SC_CLK_TCK);
	if (c->hz <= 0)
		c->hz = 100;
	c->deadline = wg_mono() + 10;
	c->boot_minus_mono = clock_s(CLOCK_BOOTTIME) - wg_mono();
	c->pidns = own_ns("/proc/self/ns/pid", "pid:[");
	c->netns = own_ns("/proc/self/ns/net", "net:[");
	c->mntns = own_ns("/proc/self/ns/mnt", "mnt:[");
	c->timens = own_ns("/proc/self/ns/time", "time:[");
	c->init_pidns = c->pidns == INIT_PIDNS;
	f->is_root = c->euid == 0;
	f->live = true;
	if (!f->host && !uname(&u))
		f->host = wg_str(f->arena, u.nodename);
	if (!f->boot && slurp("/proc/sys/kernel/random/boot_id", buf, sizeof(buf)) > 0) {
		buf[strcspn(buf, "\n")] = 0;
		f->boot = wg_str(f->arena, buf);
	}
	return c;
}

void wg_pctx_free(struct wg_facts *f)
{
	struct wg_pctx *c = f->collect;

	if (!c)
		return;
	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_pproc *k = f->procs.v[i]->collect;

		if (!k)
			continue;
		if (k->dirfd >= 0)
			close(k->dirfd);
		free(k->tasks);
		f->procs.v[i]->collect = NULL;
	}
	if (c->procfd >= 0)
		close(c->procfd);
	wg_sockets_free(c);
	free(c->host.holders);
	free(c->cpu_offset);
	free(c->cpu_tried);
	free(c->given_syscalls);
	f->collect = NULL;
}

double wg_pctx_left(const struct wg_pctx *c, double cap)
{
	double left = c->deadline - wg_mono();

	if (left > cap)
		left = cap;
	return left < 0.01 ? 0.01 : left;
}

struct wg_pproc *wg_pproc(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pproc *k = p->collect;

	if (!k) {
		k = p->collect = wg_alloc(f->arena, sizeof(*k));
		k->p = p;
		k->dirfd = -1;
		k->cgroup_periods = k->cgroup_throttled = WG_NO_INT;
	}
	return k;
}

struct wg_ptask *wg_ptask(struct wg_pproc *k, int32_t tid)
{
	size_t lo = 0, hi = k->ntasks;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (k->tasks[mid].tid < tid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < k->ntasks && k->tasks[lo].tid == tid ? &k->tasks[lo] : NULL;
}

int32_t wg_pid_from_ns(struct wg_facts *f, const struct wg_process *p, int32_t ns_pid)
{
	struct wg_pctx *c = wg_pctx(f);

	if (!p->pidns || p->pidns == c->pidns)
		return ns_pid;
	for (size_t i = 0; i < f->procs.n; i++) {
		const struct wg_process *q = f->procs.v[i];

		if (!q->from_snapshot && q->pidns == p->pidns && q->ns_pid == ns_pid)
			return q->pid;
	}
	/* Not collected: ask those that the number can mean, children first. */
	wg_host_scan(f);
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < c->host.procs.n; i++) {
			const struct wg_hostproc *h = &c->host.procs.v[i];
			struct wg_pt_status st;
			char path[64], buf[4096], link[64];
			ssize_t n;

			if ((h->ppid == p->pid) != !pass)
				continue;
			snprintf(path, sizeof(path), "/proc/%d/ns/pid", h->pid);
			n = readlink(path, link, sizeof(link) - 1);
			if (n <= 0)
				continue;
			link[n] = 0;
			if (wg_link_ino(link, "pid:[") != p->pidns)
				continue;
			snprintf(path, sizeof(path), "/proc/%d/status", h->pid);
			if (slurp(path, buf, sizeof(buf)) > 0 && wg_pt_status(buf, &st) &&
			    st.nspid == ns_pid)
				return h->pid;
		}
	return 0;
}

/* ---- the scheduler's clock ------------------------------------------------------ */

static double own_exec_start(void)
{
	struct wg_pt_sched s;
	char buf[4096];

	if (slurp("/proc/thread-self/sched", buf, sizeof(buf)) <= 0 || !wg_pt_sched(buf, &s))
		return NAN;
	return s.exec_start_ms * 1e-3;
}

double wg_cpu_clock_offset(struct wg_pctx *c, int cpu)
{
	cpu_set_t *old, *one;
	size_t size;
	double v = NAN;

	if (!c->cpu_offset) {
		long n = sysconf(_SC_NPROCESSORS_CONF);

		c->ncpus = n > 0 && n <= 65536 ? (int)n : 1;
		c->cpu_offset = calloc((size_t)c->ncpus, sizeof(double));
		c->cpu_tried = calloc((size_t)c->ncpus, sizeof(bool));
	}
	if (cpu < 0 || cpu >= c->ncpus || !c->cpu_offset || !c->cpu_tried)
		return NAN;
	if (c->cpu_tried[cpu])
		return c->cpu_offset[cpu];
	c->cpu_tried[cpu] = true;
	size = CPU_ALLOC_SIZE(c->ncpus);
	old = CPU_ALLOC(c->ncpus);
	one = CPU_ALLOC(c->ncpus);
	if (old && one && !sched_getaffinity(0, size, old)) {
		CPU_ZERO_S(size, one);
		CPU_SET_S((size_t)cpu, size, one);
		if (!sched_setaffinity(0, size, one)) {
			sched_yield(); /* brings our own stamp up to now */
			v = wg_mono() - own_exec_start();
			sched_setaffinity(0, size, old);
		} else {
			/*
			 * A CPU that we may not use: our own clock is the best guess, and good
			 * unless the two CPUs spend their time very differently in interrupts.
			 */
			sched_yield();
			v = wg_mono() - own_exec_start();
		}
	}
	CPU_FREE(old);
	CPU_FREE(one);
	c->cpu_offset[cpu] = v;
	return v;
}

/* ---- one process ------------------------------------------------------------------- */

struct process_arg {
	size_t n;
	int dirfd[]; /* -1: that one is not asked */
};

static void read_processes(struct wg_bulk *b)
{
	struct process_arg *a = wg_bulk_arg(b);

	for (size_t i = 0; i < a->n; i++) {
		int d = a->dirfd[i], id = (int)i;

		if (d < 0)
			continue;
		wg_bulk_file(b, d, "stat", R_STAT, id, 4096);
		wg_bulk_file(b, d, "status", R_STATUS, id, 8192);
		wg_bulk_link(b, d, "exe", R_EXE, id);
		wg_bulk_link(b, d, "ns/pid", R_NS_PID, id);
		wg_bulk_link(b, d, "ns/net", R_NS_NET, id);
		wg_bulk_link(b, d, "ns/mnt", R_NS_MNT, id);
		wg_bulk_link(b, d, "ns/time", R_NS_TIME, id);
		wg_bulk_file(b, d, "io", R_IO, id, 4096);
		wg_bulk_file(b, d, "cgroup", R_CGROUP, id, 64 * 1024);
		wg_bulk_file(b, d, "limits", R_LIMITS, id, 8192);
	}
}

/* These two take the target's memory lock, and so can wait for ever: last. */
static void read_memory_files(struct wg_bulk *b)
{
	struct process_arg *a = wg_bulk_arg(b);

	for (size_t i = 0; i < a->n; i++) {
		if (a->dirfd[i] < 0)
			continue;
		wg_bulk_put(b, R_BEGIN, (int)i, 0, NULL, 0);
		wg_bulk_file(b, a->dirfd[i], "cmdline", R_CMDLINE, (int)i, 128 * 1024);
		wg_bulk_file(b, a->dirfd[i], "environ", R_ENVIRON, (int)i, 1024 * 1024);
	}
}

/* Names worth keeping: what the job told CUDA, NCCL, the frameworks and their thread pools. */
static bool env_matters(const char *name, size_t n)
{
	static const char *const prefixes[] = { "CUDA_", "NCCL_", "PYTORCH_", "TORCH_", "TORCHELASTIC_",
		"OMP_", "KMP_", "GOMP_", "MKL_", "GLOO_", "UCX_", "NVIDIA_", "NVSHMEM_", "XLA_", "JAX_",
		"TF_", "TRITON_", "VLLM_", "HOROVOD_", "DEEPSPEED_", "OMPI_COMM_WORLD_", "PMI_", "PMIX_",
		"WAITGRAPH_", "SIMGPU_", NULL };
	static const char *const exact[] = { "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE",
		"GROUP_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID", "SLURM_LOCALID",
		"SLURM_NODEID", "SLURM_NTASKS", "SLURM_JOB_ID", "SLURM_STEP_ID", "PYTHONUNBUFFERED",
		"PYTHONFAULTHANDLER", "OPENBLAS_NUM_THREADS", "TOKENIZERS_PARALLELISM", "LD_PRELOAD",
		"OMPI_MCA_orte_ess_jobid", NULL };
	static const char *const secret[] = { "TOKEN", "SECRET", "PASSW", "CRED", "KEY", NULL };
	bool hit = false;

	for (int i = 0; exact[i]; i++)
		if (strlen(exact[i]) == n && !memcmp(exact[i], name, n))
			return true;
	for (int i = 0; prefixes[i] && !hit; i++)
		hit = strlen(prefixes[i]) < n && !memcmp(prefixes[i], name, strlen(prefixes[i]));
	for (int i = 0; secret[i] && hit; i++)
		hit = !memmem(name, n, secret[i], strlen(secret[i]));
	return hit;
}

static int64_t env_number(const struct wg_process *p, const char *name)
{
	for (size_t i = 0; i < p->env.n; i++)
		if (!strcmp(p->env.v[i].name, name)) {
			char *end;
			long v = strtol(p->env.v[i].value, &end, 10);

			return end != p->env.v[i].value && !*end && v >= 0 && v < 100000000 ? v :
											  WG_NO_INT;
		}
	return WG_NO_INT;
}

static void take_environ(struct wg_facts *f, struct wg_process *p, const char *text, size_t len)
{
	static const char *const ranks[][2] = {
		{ "RANK", "WORLD_SIZE" }, { "SLURM_PROCID", "SLURM_NTASKS" },
		{ "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE" }, { "PMI_RANK", "PMI_SIZE" },
		{ "PMIX_RANK", "WORLD_SIZE" }, { NULL, NULL } };
	const char *name, *value;
	size_t at = 0, nn, vn;

	p->env.n = 0;
	while (wg_pt_env(text, len, &at, &name, &nn, &value, &vn) && p->env.n < 256) {
		struct wg_env *e;

		if (!env_matters(name, nn))
			continue;
		e = wg_push(f->arena, &p->env);
		e->name = wg_strn(f->arena, name, nn);
		e->value = wg_strn(f->arena, value, vn > 1024 ? 1024 : vn);
	}
	for (int i = 0; ranks[i][0] && !wg_has_int(p->rank); i++) {
		p->rank = env_number(p, ranks[i][0]);
		if (!wg_has_int(p->rank))
			continue;
		p->rank_source = ranks[i][0];
		p->world = env_number(p, ranks[i][1]);
	}
}

static void take_cmdline(struct wg_facts *f, struct wg_process *p, char *text, size_t len)
{
	while (len && !text[len - 1])
		len--;
	if (!len)
		return;
	if (len > COMMAND_MAX)
		len = COMMAND_MAX;
	for (size_t i = 0; i < len; i++)
		if (!text[i])
			text[i] = ' ';
	p->command = wg_strn(f->arena, text, len);
}

static void take_stat(struct wg_facts *f, struct wg_process *p, struct wg_pproc *k,
		      const struct wg_pt_stat *s, double at)
{
	struct wg_pctx *c = wg_pctx(f);
	double now = at + c->boot_minus_mono, age = now - (double)s->start / (double)c->hz;

	k->stat = *s;
	k->got_stat = true;
	k->at = at;
	k->children_ticks = s->cutime + s->cstime;
	p->ppid = s->ppid;
	p->pgid = s->pgid;
	p->sid = s->sid;
	p->tty_pgrp = s->tty && s->tpgid > 0 ? s->tpgid : 0;
	p->start_ticks = s->start;
	p->comm = wg_str(f->arena, s->comm);
	p->state = s->state;
	p->alive = s->state != 'X' && !(s->state == 'Z' && s->nthreads <= 1);
	p->exiting = s->flags & WG_PF_EXITING;
	p->forked = s->flags & WG_PF_FORKNOEXEC && !(s->flags & WG_PF_KTHREAD);
	/*
	 * By our own clock: the age must lie between nothing and the time since boot. Some
	 * sandboxes and emulated /proc files give start times that do not.
	 */
	p->age_s = WG_NO_SEC;
	if (age > -1 && age <= now + 1)
		p->age_s = age > 0 ? age : 0;
	else
		wg_add_missing(f, p, "age of the process", "its start time in /proc is implausible",
			       NULL);
	p->fork_age_s = p->forked ? p->age_s : WG_NO_SEC;
	if (!p->alive && s->has_exit_code && !k->denied) {
		p->end.known = true;
		p->end.status = s->exit_code >> 8 & 0xff;
		p->end.signal = s->exit_code & 0x7f;
	}
}

static void take_status(struct wg_process *p, struct wg_pproc *k, const struct wg_pt_status *s)
{
	k->status = *s;
	p->uid = s->uid;
	p->tracer_pid = s->tracer;
	p->ns_pid = s->nspid;
	p->memlock_used = s->lck_kb != INT64_MIN ? s->lck_kb * 1024 : WG_NO_INT;
	if (s->pin_kb != INT64_MIN && wg_has_int(p->memlock_used))
		p->memlock_used += s->pin_kb * 1024;
}

static void why_denied(struct wg_facts *f, struct wg_process *p, const char *what, int err)
{
	const struct wg_pctx *c = wg_pctx(f);
	const char *why = wg_fmt(f->arena, "%s", strerror(-err));
	const char *remedy = NULL;

	if (err == -EACCES || err == -EPERM)
		remedy = wg_has_int(p->uid) && (uint32_t)p->uid != c->euid ?
			 "run as root or as the owner of the process" :
			 "run as root, or start the program with `waitgraph run`";
	if (err == -ETIMEDOUT)
		why = "the kernel did not answer in time (the memory of the process is locked)";
	wg_add_missing(f, p, what, why, remedy);
}

static int open_process(struct wg_facts *f, struct wg_process *p, struct wg_pproc *k)
{
	struct wg_pctx *c = wg_pctx(f);
	char name[16];

	if (k->dirfd >= 0)
		return 0;
	if (c->given_dirfd >= 0 && c->given_pid == p->pid) {
		k->dirfd = fcntl(c->given_dirfd, F_DUPFD_CLOEXEC, 3);
		if (k->dirfd >= 0)
			return 0;
	}
	snprintf(name, sizeof(name), "%d", p->pid);
	k->dirfd = openat(c->procfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (k->dirfd >= 0)
		return 0;
	if (errno == ENOENT) /* hidepid makes the directory invisible, not the process */
		return !kill(p->pid, 0) || errno == EPERM ? -EACCES : -ESRCH;
	return -errno;
}

struct arrived { /* of one process in a job */
	struct wg_pt_stat stat;
	bool got_stat, got_cmdline, got_environ;
	double at;
};

static void take_process_record(struct wg_facts *f, struct wg_process *p, struct arrived *v,
				struct wg_raw *r)
{
	struct wg_pproc *k = wg_pproc(f, p);
	struct wg_pt_status st;

	switch (r->kind) {
	case R_STAT:
		v->got_stat = !r->err && wg_pt_stat(r->text, &v->stat);
		v->at = r->at;
		break;
	case R_STATUS:
		if (!r->err && wg_pt_status(r->text, &st))
			take_status(p, k, &st);
		break;
	case R_EXE:
		if (!r->err)
			p->exe = wg_strn(f->arena, r->text, r->len);
		break;
	case R_NS_PID:
		p->pidns = r->err ? 0 : wg_link_ino(r->text, "pid:[");
		k->denied = r->err == -EACCES || r->err == -EPERM;
		break;
	case R_NS_NET:
		k->netns = r->err ? 0 : wg_link_ino(r->text, "net:[");
		break;
	case R_NS_MNT:
		k->mntns = r->err ? 0 : wg_link_ino(r->text, "mnt:[");
		break;
	case R_NS_TIME:
		k->timens = r->err ? 0 : wg_link_ino(r->text, "time:[");
		break;
	case R_IO:
		if (!r->err && wg_pt_io(r->text, &k->io)) {
			p->rchar = k->io.rchar;
			p->wchar = k->io.wchar;
		} else {
			k->io.rchar = WG_NO_INT;
		}
		break;
	case R_CGROUP:
		k->cgroup_text = r->err ? NULL : wg_alloc(f->arena, r->len + 1);
		if (k->cgroup_text)
			memcpy((char *)k->cgroup_text, r->text, r->len);
		break;
	case R_LIMITS:
		k->limits_text = r->err ? NULL : wg_alloc(f->arena, r->len + 1);
		if (k->limits_text)
			memcpy((char *)k->limits_text, r->text, r->len);
		break;
	case R_CMDLINE:
		v->got_cmdline = true;
		if (!r->err)
			take_cmdline(f, p, r->text, r->len);
		break;
	case R_ENVIRON:
		v->got_environ = true;
		if (!r->err)
			take_environ(f, p, r->text, r->len);
		else if (r->err != -ESRCH)
			why_denied(f, p, "environment", r->err);
		break;
	}
}

static int finish_process(struct wg_facts *f, struct wg_process *p, struct arrived *v)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);

	if (!v->got_stat)
		return -ESRCH;
	take_stat(f, p, k, &v->stat, v->at);
	if (!v->got_cmdline)
		why_denied(f, p, "command line", -ETIMEDOUT);
	if (!v->got_environ)
		why_denied(f, p, "environment", -ETIMEDOUT);
	p->host = f->host;
	p->boot = f->boot;
	if (!p->ns_pid && p->pidns && p->pidns == c->pidns)
		p->ns_pid = p->pid;
	if (!p->command && p->comm)
		p->command = wg_fmt(f->arena, "[%s]", p->comm);
	if (p->exiting)
		p->phase = "teardown";
	wg_add_source(f, p, "procfs");
	return 0;
}

/* One pass of a job over those that `todo` still has. */
static int run_processes(struct wg_facts *f, struct wg_process *const *ps, size_t n, bool *todo,
			 struct arrived *v, void (*fn)(struct wg_bulk *b))
{
	struct wg_pctx *c = wg_pctx(f);
	struct process_arg *a;
	struct wg_bulk *b;
	size_t cursor = 0;
	struct wg_raw r;
	int rc, last = -1;

	b = wg_bulk_new((4 << 20) + n * (64 << 10), sizeof(*a) + n * sizeof(int));
	if (!b)
		return -ENOMEM;
	a = wg_bulk_arg(b);
	a->n = n;
	for (size_t i = 0; i < n; i++)
		a->dirfd[i] = todo[i] ? wg_bulk_own_fd(b, wg_pproc(f, ps[i])->dirfd) : -1;
	rc = wg_bulk_run(b, wg_pctx_left(c, PROC_DEADLINE_S), fn);
	while (wg_bulk_next(b, &cursor, &r)) {
		last = r.id;
		take_process_record(f, ps[r.id], &v[r.id], &r);
	}
	wg_bulk_free(b);
	/* Up to the one that did not answer everything is there. */
	for (int i = 0; i < (int)n && (rc != -ETIMEDOUT || i <= last); i++)
		todo[i] = false;
	return rc;
}

int wg_procfs_processes(struct wg_facts *f, struct wg_process *const *ps, size_t n, int *rcs)
{
	struct arrived *v = calloc(n + 1, sizeof(*v));
	bool *todo = calloc(n + 1, sizeof(*todo));
	int rc = 0;

	if (!v || !todo) {
		rc = -ENOMEM;
		goto out;
	}
	for (int pass = 0; pass < 2; pass++) {
		for (size_t i = 0; i < n; i++) {
			if (!pass)
				rcs[i] = open_process(f, ps[i], wg_pproc(f, ps[i]));
			todo[i] = pass ? !rcs[i] && v[i].got_stat : !rcs[i];
		}
		for (int tries = 0; tries < 3; tries++)
			if (run_processes(f, ps, n, todo, v, pass ? read_memory_files :
					  read_processes) != -ETIMEDOUT)
				break;
	}
	for (size_t i = 0; i < n; i++)
		if (!rcs[i])
			rcs[i] = finish_process(f, ps[i], &v[i]);
out:
	free(v);
	free(todo);
	return rc;
}

int wg_procfs_process(struct wg_facts *f, struct wg_process *p)
{
	int rc, one = 0;

	rc = wg_procfs_processes(f, &p, 1, &one);
	return rc ? rc : one;
}

/* ---- its threads ----------------------------------------------------------------------- */

struct old_task { /* what the reading thread needs to know of the sample before */
	int32_t tid;
	bool asleep;
	uint64_t slices, run_ns;
	double at; /* CLOCK_MONOTONIC */
};
struct threads_item { /* one process in a job */
	int dirfd, taskfd;
	bool stacks, again, files;
	struct old_task *old;
	size_t nold;
	/* Found out on the way. */
	bool stack_denied;
	int count;
	int moments; /* spent on threads that were met awake */
};
struct threads_arg {
	size_t n;
	struct threads_item item[]; /* and behind them the old tasks of all */
};

static const struct old_task *find_old(const struct threads_item *a, int32_t tid)
{
	size_t lo = 0, hi = a->nold;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (a->old[mid].tid < tid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < a->nold && a->old[lo].tid == tid ? &a->old[lo] : NULL;
}

static void name_of(char *buf, int tid, const char *file)
{
	char digits[12];
	int n = 0;

	do
		digits[n++] = (char)('0' + tid % 10);
	while (tid /= 10);
	while (n)
		*buf++ = digits[--n];
	*buf++ = '/';
	strcpy(buf, file);
}

/*
 * A thread that sleeps all but some thousandths of the time, met awake (on a loaded machine: for as
 * long as it waits for a processor): a moment later it stands again where it stands.
 */
static bool soon_asleep(struct threads_item *a, const struct old_task *old, const char *schedstat)
{
	uint64_t ns, slices;
	struct timespec t;
	double dt;

	if (a->moments >= (a->again ? MOMENTS_AGAIN : MOMENTS))
		return false;
	if (!a->again)
		return true;
	clock_gettime(CLOCK_MONOTONIC, &t);
	if (!old || !schedstat || !wg_pt_schedstat(schedstat, &ns, &slices) || slices == old->slices)
		return false;
	dt = (double)t.tv_sec + (double)t.tv_nsec * 1e-9 - old->at;
	return dt > 0 && (double)(ns - old->run_ns) * 1e-9 < dt * 0.05;
}

static char state_in(const char *stat)
{
	const char *close = strrchr(stat, ')');

	return close && close[1] == ' ' ? close[2] : '?';
}

static void read_thread(struct wg_bulk *b, int tid, void *arg)
{
	struct threads_item *a = arg;
	const struct old_task *old = a->again ? find_old(a, tid) : NULL;
	char name[40], state, schedstat[64] = "";

	if (a->count++ >= WG_MAX_THREADS)
		return;
	wg_bulk_put(b, R_TASK, tid, 0, NULL, 0);
	name_of(name, tid, "schedstat");
	if (!wg_bulk_file(b, a->taskfd, name, R_T_SCHEDSTAT, tid, 256) && old) {
		uint64_t ns, slices;

		snprintf(schedstat, sizeof(schedstat), "%s", wg_bulk_last(b));
		/* It has not run since: nothing else can be different. */
		if (old->asleep && wg_pt_schedstat(schedstat, &ns, &slices) && slices == old->slices) {
			wg_bulk_put(b, R_T_SAME, tid, 0, NULL, 0);
			return;
		}
	}
	name_of(name, tid, "stat");
	if (wg_bulk_file(b, a->taskfd, name, R_T_STAT, tid, 4096))
		return;
	state = state_in(wg_bulk_last(b));
	while (state == 'R' && soon_asleep(a, old, schedstat)) {
		struct timespec moment = { 0, 300000 };

		a->moments++;
		nanosleep(&moment, NULL);
		if (wg_bulk_file(b, a->taskfd, name, R_T_STAT, tid, 4096)) /* the last one counts */
			return;
		state = state_in(wg_bulk_last(b));
	}
	name_of(name, tid, "syscall");
	wg_bulk_file(b, a->taskfd, name, R_T_SYSCALL, tid, 256);
	name_of(name, tid, "sched");
	wg_bulk_file(b, a->taskfd, name, R_T_SCHED, tid, 4096);
	if (!old) {
		name_of(name, tid, "status");
		wg_bulk_file(b, a->taskfd, name, R_T_STATUS, tid, 8192);
	}
	if (state == 'R' || state == 'Z' || state == 'X')
		return;
	if (a->stacks && !a->stack_denied) {
		int rc;

		name_of(name, tid, "stack");
		rc = wg_bulk_file(b, a->taskfd, name, R_T_STACK, tid, 8192);
		a->stack_denied = rc == -EACCES || rc == -EPERM || rc == -ENOENT;
		if (!rc && *wg_bulk_last(b))
			return; /* its first line is where it sleeps */
	}
	name_of(name, tid, "wchan");
	wg_bulk_file(b, a->taskfd, name, R_T_WCHAN, tid, 256);
}

static void read_threads_of(struct wg_bulk *b, struct threads_item *a)
{
	if (a->again)
		wg_bulk_file(b, a->dirfd, "io", R_IO, 0, 4096);
	a->taskfd = openat(a->dirfd, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (a->taskfd < 0) {
		wg_bulk_put(b, R_TASK, -1, -errno, NULL, 0);
		return;
	}
	wg_bulk_numbers(b, a->dirfd, "task", -1, read_thread, a);
	close(a->taskfd);
	if (a->again) /* after the threads: their CPU time has been brought up to date */
		wg_bulk_file(b, a->dirfd, "stat", R_STAT, 0, 4096);
}

static void read_threads(struct wg_bulk *b)
{
	struct threads_arg *a = wg_bulk_arg(b);

	for (size_t i = 0; i < a->n; i++) {
		wg_bulk_put(b, R_PART_THREADS, (int)i, 0, NULL, 0);
		read_threads_of(b, &a->item[i]);
		wg_bulk_put(b, R_PART_FILES, (int)i, 0, NULL, 0);
		if (a->item[i].files)
			wg_files_read(b, a->item[i].dirfd);
		wg_bulk_put(b, R_PART_END, (int)i, 0, NULL, 0);
	}
}

static int by_tid(const void *x, const void *y)
{
	const struct wg_thread *a = x, *b = y;

	if ((a->tid == a->pid) != (b->tid == b->pid))
		return a->tid == a->pid ? -1 : 1;
	return a->tid < b->tid ? -1 : a->tid > b->tid;
}

static int by_task(const void *x, const void *y)
{
	const struct wg_ptask *a = x, *b = y;

	return a->tid < b->tid ? -1 : a->tid > b->tid;
}

struct sample { /* one thread while its records come in */
	struct wg_ptask t;
	struct wg_pt_status status;
	struct wg_pt_stat stat;
	bool same, got_status, got_sched, named;
	const char *stack;
	int syscall_err;
};

static void take_record(struct wg_facts *f, struct sample *s, const struct wg_raw *r)
{
	struct wg_pt_sched sched;

	switch (r->kind) {
	case R_T_SCHEDSTAT:
		s->t.got_schedstat = !r->err && wg_pt_schedstat(r->text, &s->t.run_ns, &s->t.slices);
		s->t.at = r->at;
		break;
	case R_T_SAME:
		s->same = true;
		break;
	case R_T_STAT:
		if (r->err || !wg_pt_stat(r->text, &s->stat))
			break;
		s->t.got_stat = true;
		s->t.state = s->stat.state;
		s->t.utime = s->stat.utime;
		s->t.stime = s->stat.stime;
		s->t.start = s->stat.start;
		s->t.cpu = s->stat.cpu;
		s->t.flags = s->stat.flags;
		s->t.at = r->at;
		break;
	case R_T_SYSCALL:
		s->syscall_err = r->err;
		s->t.got_sys = !r->err && wg_pt_syscall(r->text, &s->t.sys);
		/* The kernel's own threads (io_uring's workers too) have no call and no user's registers. */
		if (s->t.got_sys && !s->t.sys.running && !s->t.sys.sp && !s->t.sys.pc)
			s->t.got_sys = false;
		break;
	case R_T_SCHED:
		if (!r->err && wg_pt_sched(r->text, &sched)) {
			s->got_sched = true;
			s->t.exec_start = sched.exec_start_ms * 1e-3;
			s->t.switches = sched.switches;
		}
		break;
	case R_T_STATUS:
		if (!r->err && wg_pt_status(r->text, &s->status)) {
			s->got_status = true;
			if (!s->got_sched)
				s->t.switches = s->status.switches;
		}
		break;
	case R_T_STACK:
		if (!r->err && r->len)
			s->stack = r->text;
		break;
	case R_T_WCHAN:
		if (!r->err && r->len && strcmp(r->text, "0"))
			s->t.wchan = wg_strn(f->arena, r->text, r->len);
		break;
	}
}

/* What the process alone could read, where ptrace is forbidden to us. */
static void given_syscall(struct wg_pctx *c, const struct wg_process *p, struct sample *s)
{
	const struct wg_pproc *k = p->collect;
	const struct wg_thread *t = s->status.nspid ? NULL : wg_find_thread(p, s->t.tid);
	int32_t ns_tid = t ? t->ns_tid : s->status.nspid; /* status is read at the first sample only */
	const char *line;

	if (!ns_tid)
		ns_tid = s->t.tid;

	if (s->t.got_sys)
		return;
	for (size_t i = 0; i < k->nown_calls && s->t.got_schedstat; i++) {
		const struct wg_rec_task *own = &k->own_calls[i];

		/* It has run since: then it may be in another call by now. */
		if (own->ns_tid != ns_tid || own->slices != s->t.slices)
			continue;
		s->t.got_sys = wg_pt_syscall(own->syscall, &s->t.sys);
		if (s->t.got_sys)
			s->syscall_err = 0;
		return;
	}
	/* In no call, or none that could be read from anywhere: nothing that privilege would add. */
	if (s->t.state == 'R' || s->t.state == 'Z' || s->t.state == 'X' || ns_tid == k->helper)
		s->syscall_err = 0;
	if (!c->given_syscalls || c->given_pid != p->pid)
		return;
	for (line = c->given_syscalls; *line; line = strchr(line, '\n') + 1) {
		char *end;
		long tid = strtol(line, &end, 10);

		if (end != line && *end == ' ' &&
		    tid == ns_tid) {
			s->t.got_sys = wg_pt_syscall(end + 1, &s->t.sys);
			if (s->t.got_sys)
				s->syscall_err = 0;
			return;
		}
		if (!strchr(line, '\n'))
			return;
	}
}

static void set_times(struct wg_facts *f, struct wg_thread *t, struct wg_ptask *k)
{
	struct wg_pctx *c = wg_pctx(f);
	double age = k->at + c->boot_minus_mono - (double)k->start / (double)c->hz;

	t->start_age_s = age >= 0 && age <= k->at + c->boot_minus_mono + 1 ? age : WG_NO_SEC;
	t->cpu_s = (double)(k->utime + k->stime) / (double)c->hz;
	k->ran_at = NAN;
	if (!isnan(k->exec_start))
		k->ran_at = k->exec_start + wg_cpu_clock_offset(c, k->cpu);
	t->wait.since_s = t->last_ran_s = WG_NO_SEC;
	if (k->state == 'R') {
		t->last_ran_s = 0;
	} else if (!isnan(k->ran_at)) {
		double ago = k->at - k->ran_at;

		/* Older than the thread, or in the future by more than noise: not to be believed. */
		if (ago > -0.1 && (!wg_has_sec(t->start_age_s) || ago < t->start_age_s + 1.0)) {
			t->last_ran_s = ago > 0 ? ago : 0;
			t->wait.since_s = t->last_ran_s;
		}
	}
}

static void take_stack(struct wg_facts *f, struct wg_thread *t, struct sample *s)
{
	const char *line = s->stack;
	char name[128];

	t->kernel_stack.n = 0;
	if (!line)
		return;
	while (wg_pt_stack_line(&line, name, sizeof(name)) && t->kernel_stack.n < 64)
		*wg_push(f->arena, &t->kernel_stack) = wg_str(f->arena, name);
	if (t->kernel_stack.n)
		s->t.wchan = t->kernel_stack.v[0];
}

/*
 * Would the end of a child end this wait for a signal? timeout(1) and the wait of some shells are
 * sigsuspend(2). While it lasts, the mask in status is the one that it was given.
 */
static bool awaits_child(const struct wg_process *p, const struct wg_wait *w,
			 const struct wg_pt_status *s, struct wg_mem *m)
{
	const uint64_t child = 1ull << (SIGCHLD - 1);
	uint64_t set;

	if ((!p->children.n && p->pid != (int32_t)getppid()) || !w->syscall_name)
		return false;
	if (!strncmp(w->syscall_name, "rt_sigtimedwait", 15))
		return m && w->has_args && !wg_mem_read(m, w->args[0], &set, sizeof(set)) && set & child;
	return s->got_caught && s->caught & child && !(s->blocked & child);
}

/*
 * pause() and sigsuspend() return after a handler has run. Where none is installed for any signal
 * that is let through, nothing ends them but the end of the process. (libc's own two signals and
 * the recorder's are no handlers of the program's.)
 */
static bool never_woken(struct wg_facts *f, struct wg_process *p, const struct wg_wait *w,
			const struct wg_pt_status *s, struct wg_mem *m)
{
	uint64_t own = 3ull << 31, blocked = s->blocked, mask;

	if (!s->got_caught || !w->syscall_name)
		return false;
	if (!strcmp(w->syscall_name, "rt_sigsuspend")) {
		if (!m || !w->has_args || wg_mem_read(m, w->args[0], &mask, sizeof(mask)))
			return false;
		blocked = mask;
	} else if (strcmp(w->syscall_name, "pause")) {
		return false;
	}
	if (wg_pproc(f, p)->rec)
		own |= 1ull << (SIGURG - 1);
	return !(s->caught & ~blocked & ~own);
}

static void take_thread(struct wg_facts *f, struct wg_process *p, struct wg_thread *t,
			struct sample *s, struct wg_mem *m)
{
	struct wg_pctx *c = wg_pctx(f);

	t->tid = s->t.tid;
	t->name = wg_str(f->arena, s->stat.comm);
	t->ours = t->ours || !strcmp(s->stat.comm, WG_SCOUT_NAME);
	t->state = s->t.state;
	if (s->got_status) {
		t->ns_tid = s->status.nspid;
		if (s->status.sigblk[0])
			t->sigmask = wg_str(f->arena, s->status.sigblk);
	}
	if (!t->ns_tid && p->pidns && p->pidns == c->pidns)
		t->ns_tid = t->tid;
	set_times(f, t, &s->t);
	take_stack(f, t, s);
	t->wchan = s->t.wchan;
	wg_wait_decode(f, p, t, &s->t, m);
	if (t->wait.op == WG_OP_SIGWAIT && s->got_status && awaits_child(p, &t->wait, &s->status, m))
		t->wait.child = -1;
	if (t->wait.op == WG_OP_SIGWAIT && s->got_status)
		t->wait.no_handler = never_woken(f, p, &t->wait, &s->status, m);
}

static void why_no_syscalls(struct wg_facts *f, struct wg_process *p, int err)
{
	if (err == -ENOENT)
		wg_add_missing(f, p, "blocked system calls", "this kernel has no /proc/TID/syscall",
			       "run as root: BPF tells them");
	else
		why_denied(f, p, "blocked system calls", err);
}

static bool is_32bit(const struct wg_pproc *k)
{
#if defined(__x86_64__) || defined(__aarch64__)
	/* A 64-bit program's stack lies far above 4 GiB; one of 32 bits cannot. */
	return k->stat.start_stack && k->stat.start_stack < 1ull << 32;
#else
	(void)k;
	return false;
#endif
}

static struct wg_bulk *threads_job(struct wg_facts *f, struct wg_process *const *ps, size_t n,
				   bool again, bool files, int *rc)
{
	struct wg_pctx *c = wg_pctx(f);
	size_t room = 1 << 20, nold = 0;
	struct threads_arg *a;
	struct old_task *old;
	struct wg_bulk *b;

	for (size_t i = 0; i < n; i++) {
		const struct wg_pproc *k = wg_pproc(f, ps[i]);
		int64_t t = k->stat.nthreads;

		room += (size_t)(t > 0 && t < WG_MAX_THREADS ? t + 64 : WG_MAX_THREADS) * 12288;
		room += files ? 4 << 20 : 0;
		nold += again ? k->ntasks : 0;
	}
	/* The old samples travel with the job: it owns all that it touches. */
	b = wg_bulk_new(room, sizeof(*a) + n * sizeof(a->item[0]) + nold * sizeof(*old));
	if (!b) {
		*rc = -ENOMEM;
		return NULL;
	}
	a = wg_bulk_arg(b);
	a->n = n;
	old = (struct old_task *)&a->item[n];
	for (size_t i = 0; i < n; i++) {
		struct wg_pproc *k = wg_pproc(f, ps[i]);
		struct threads_item *x = &a->item[i];

		x->dirfd = wg_bulk_own_fd(b, k->dirfd);
		x->stacks = !k->stacks_denied;
		x->again = again;
		x->files = files;
		x->old = old;
		for (size_t j = 0; again && j < k->ntasks; j++) {
			const struct wg_ptask *t = &k->tasks[j];

			if (!t->got_schedstat)
				continue;
			old->tid = t->tid;
			old->slices = t->slices;
			old->run_ns = t->run_ns;
			old->at = t->at;
			old->asleep = t->state != 'R' && t->got_stat;
			old++;
			x->nold++;
		}
	}
	*rc = wg_bulk_run(b, wg_pctx_left(c, THREADS_DEADLINE_S), read_threads);
	for (size_t i = 0; *rc != -ETIMEDOUT && i < n; i++) {
		struct wg_pproc *k = wg_pproc(f, ps[i]);

		if (!a->item[i].stack_denied || k->stacks_denied)
			continue;
		k->stacks_denied = true;
		wg_add_missing(f, ps[i], "kernel stacks", "/proc/TID/stack: needs CAP_SYS_ADMIN",
			       "run as root");
	}
	return b;
}

struct wg_bulk *wg_prefetch(struct wg_facts *f, struct wg_process *const *ps, size_t n, bool again)
{
	size_t cursor = 0, at = 0;
	struct wg_bulk *b;
	struct wg_raw r;
	int rc;

	if (n < 2) /* its own job does as well */
		return NULL;
	b = threads_job(f, ps, n, again, true, &rc);
	/* Complete parts only: who was being read when the time was up gets a job of his own. */
	for (size_t next = 0; b && wg_bulk_next(b, &cursor, &r); at = next) {
		struct wg_pproc *k;

		next = cursor;
		if (r.kind < R_PART_THREADS || r.kind > R_PART_END)
			continue;
		k = wg_pproc(f, ps[r.id]);
		if (r.kind == R_PART_THREADS) {
			k->threads_part.from = cursor;
		} else if (r.kind == R_PART_FILES) {
			k->threads_part.b = b;
			k->threads_part.to = at;
			k->files_part.from = cursor;
		} else {
			k->files_part.b = b;
			k->files_part.to = at;
		}
	}
	return b;
}

void wg_prefetch_free(struct wg_facts *f, struct wg_bulk *b, struct wg_process *const *ps, size_t n)
{
	for (size_t i = 0; b && i < n; i++) {
		struct wg_pproc *k = wg_pproc(f, ps[i]);

		k->threads_part.b = k->files_part.b = NULL;
	}
	wg_bulk_free(b);
}

/* The records of p's threads: prefetched, or from a job of its own. */
static struct wg_bulk *threads_of(struct wg_facts *f, struct wg_process *p, bool again,
				  struct wg_part *part, int *rc)
{
	struct wg_pproc *k = wg_pproc(f, p);

	*part = k->threads_part;
	k->threads_part.b = NULL;
	*rc = 0;
	if (part->b)
		return part->b;
	part->b = threads_job(f, &p, 1, again, false, rc);
	part->from = 0;
	part->to = SIZE_MAX;
	return part->b;
}

static void ended_while_reading(struct wg_process *p)
{
	p->alive = false;
	p->state = 'X';
	p->threads.n = 0;
}

int wg_procfs_threads(struct wg_facts *f, struct wg_process *p, struct wg_mem *m)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	struct sample s;
	struct wg_bulk *b;
	struct wg_part part;
	size_t cursor, cap = 0;
	struct wg_raw r;
	bool have = false, more, ours;
	int rc, denied = 0;

	if (k->dirfd < 0)
		return -ESRCH;
	p->threads.n = 0;
	k->ntasks = 0;
	k->mem = m;
	k->is_32bit = is_32bit(k);
	ours = !k->threads_part.b;
	b = threads_of(f, p, false, &part, &rc);
	if (!b)
		return rc;
	cursor = part.from;
	if (rc == -ETIMEDOUT)
		wg_add_missing(f, p, "threads", "/proc/PID/task did not answer in time", NULL);
	memset(&s, 0, sizeof(s));
	do {
		more = cursor < part.to && wg_bulk_next(b, &cursor, &r);
		if (!more || r.kind == R_TASK) {
			if (have && s.t.got_stat) {
				struct wg_ptask *kept;

				if (k->ntasks == cap) {
					cap = cap ? cap * 2 : 64;
					kept = realloc(k->tasks, cap * sizeof(*kept));
					if (!kept) {
						rc = -ENOMEM;
						break;
					}
					k->tasks = kept;
				}
				given_syscall(c, p, &s);
				if (s.syscall_err && s.syscall_err != -ESRCH)
					denied = s.syscall_err;
				take_thread(f, p, wg_add_thread(f, p), &s, m);
				k->tasks[k->ntasks++] = s.t;
				c->nthreads++;
			}
			if (more && r.err) {
				rc = r.err;
				break;
			}
			memset(&s, 0, sizeof(s));
			s.t.exec_start = s.t.ran_at = NAN;
			s.t.switches = WG_NO_INT;
			s.t.tid = more ? r.id : 0;
			s.t.cpu = -1;
			have = more;
		} else {
			take_record(f, &s, &r);
		}
	} while (more);
	if (ours)
		wg_bulk_free(b);
	if (rc == -ESRCH || rc == -ENOENT || (!rc && !k->ntasks)) {
		ended_while_reading(p);
		return 0;
	}
	p->calls_denied = denied == -EPERM || denied == -EACCES;
	if (denied)
		why_no_syscalls(f, p, denied);
	if (k->stat.nthreads > WG_MAX_THREADS)
		wg_add_missing(f, p, "threads beyond the first 20000", "the limit of one collection",
			       NULL);
	qsort(k->tasks, k->ntasks, sizeof(*k->tasks), by_task);
	if (p->threads.n)
		qsort(p->threads.v, p->threads.n, sizeof(*p->threads.v), by_tid);
	k->full = true;
	return rc == -ETIMEDOUT ? 0 : rc;
}

/* ---- the second sample -------------------------------------------------------------------- */

static void drop_thread(struct wg_process *p, size_t i)
{
	memmove(&p->threads.v[i], &p->threads.v[i + 1],
		(p->threads.n - i - 1) * sizeof(*p->threads.v));
	p->threads.n--;
}

static void shares(struct wg_facts *f, struct wg_thread *t, const struct wg_ptask *old,
		   const struct wg_ptask *new)
{
	double dt = new->at - old->at, hz = (double)wg_pctx(f)->hz, u, s;

	if (dt <= 0.001)
		return;
	u = new->utime >= old->utime ? (double)(new->utime - old->utime) / hz / dt : 0;
	s = new->stime >= old->stime ? (double)(new->stime - old->stime) / hz / dt : 0;
	t->cpu_share = u + s;
	if (old->got_schedstat && new->got_schedstat) { /* in nanoseconds, not in ticks */
		t->cpu_share = new->run_ns >= old->run_ns ?
			       (double)(new->run_ns - old->run_ns) * 1e-9 / dt : 0;
		if (u + s > 0) {
			double scale = t->cpu_share / (u + s);

			u *= scale;
			s *= scale;
		} else if (t->cpu_share > 0) {
			return; /* less than a tick: not known where it was spent */
		}
	}
	t->user_share = u;
	t->sys_share = s;
}

static bool same_call(const struct wg_ptask *a, const struct wg_ptask *b)
{
	if (a->got_sys != b->got_sys || a->state != b->state)
		return false;
	if (!a->got_sys)
		return a->wchan && b->wchan && !strcmp(a->wchan, b->wchan);
	return !a->sys.running && !b->sys.running &&
	       !memcmp(&a->sys, &b->sys, sizeof(a->sys));
}

/* From the looks: what it does again and again. */
static void repeats(struct wg_facts *f, struct wg_process *p, struct wg_thread *t,
		    const struct wg_ptask *k)
{
	int best = 0;
	const struct wg_pt_syscall *which = NULL;

	for (int i = 0; i < k->looks; i++) {
		int same = 0;

		if (k->seen[i].running || k->seen[i].nr < 0)
			continue;
		for (int j = 0; j < k->looks; j++)
			same += !k->seen[j].running && k->seen[j].nr == k->seen[i].nr;
		if (same > best) {
			best = same;
			which = &k->seen[i];
		}
	}
	/* Seen at half of the looks, and it ran in between: it came back to the same call. */
	if (which && !t->repeat_syscall && best * 2 >= k->looks && k->moved >= 2) {
		t->repeat_syscall = wg_syscall_name(which->nr);
		t->repeat_path = wg_wait_path(f, p, which, wg_pproc(f, p)->mem);
	}
}

static void again_thread(struct wg_facts *f, struct wg_process *p, struct sample *s,
			 struct wg_mem *m, double gap_s)
{
	struct wg_pproc *k = wg_pproc(f, p);
	struct wg_thread *t = wg_find_thread(p, s->t.tid);
	struct wg_ptask *old = wg_ptask(k, s->t.tid);

	if (!t || !old) { /* born between the samples: has one only */
		if (s->t.got_stat)
			take_thread(f, p, wg_add_thread(f, p), s, m);
		return;
	}
	t->sampled_twice = true;
	if (s->same) {
		double dt = s->t.at - old->at;

		t->same_place = true;
		t->switches = 0;
		t->cpu_share = t->user_share = t->sys_share = 0;
		t->last_ran_s += dt; /* NAN stays NAN */
		t->wait.since_s += dt;
		t->start_age_s += dt;
		old->at = s->t.at;
		return;
	}
	if (!s->t.got_stat)
		return;
	shares(f, t, old, &s->t);
	if (wg_has_int(s->t.switches) && wg_has_int(old->switches) && s->t.switches >= old->switches)
		t->switches = s->t.switches - old->switches;
	t->same_place = same_call(old, &s->t);
	t->ready_twice = old->state == 'R' && s->t.state == 'R' && old->looks >= 2;
	for (int i = 0; i < old->looks; i++) /* and never asleep in between, as far as we looked */
		t->ready_twice &= old->seen[i].running;
	if (t->same_place && t->switches == 0 && s->t.state == old->state) {
		/* Only its clock was read anew (no schedstat in this kernel). */
		t->wait.since_s += s->t.at - old->at;
		t->last_ran_s += s->t.at - old->at;
		t->start_age_s += s->t.at - old->at;
	} else if (s->t.state == 'R' && old->state == 'S' && t->wait.op == WG_OP_SLEEP &&
		   t->cpu_share < 0.02) {
		/* Met awake between two sleeps, in which it spends nearly all of its time: they say more. */
		t->last_ran_s = 0;
		t->start_age_s += s->t.at - old->at;
	} else {
		take_thread(f, p, t, s, m);
	}
	s->t.looks = old->looks;
	s->t.moved = old->moved;
	memcpy(s->t.seen, old->seen, sizeof(old->seen));
	repeats(f, p, t, &s->t);
	*old = s->t;
	(void)gap_s;
}

int wg_procfs_again(struct wg_facts *f, struct wg_process *p, struct wg_mem *m, double gap_s)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	struct sample s;
	struct wg_bulk *b;
	struct wg_part part;
	size_t cursor, nold = p->threads.n;
	struct wg_raw r;
	struct wg_pt_stat st;
	struct wg_pt_io io;
	bool have = false, more, ours, got_stat = false, *seen;
	double sum = 0;
	int rc;

	if (k->dirfd < 0 || !p->alive)
		return 0;
	if (m)
		wg_mem_forget(m);
	ours = !k->threads_part.b;
	b = threads_of(f, p, true, &part, &rc);
	if (!b)
		return rc;
	cursor = part.from;
	seen = calloc(nold + 1, sizeof(*seen));
	if (!seen) {
		if (ours)
			wg_bulk_free(b);
		return -ENOMEM;
	}
	memset(&s, 0, sizeof(s));
	do {
		more = cursor < part.to && wg_bulk_next(b, &cursor, &r);
		if (!more || r.kind == R_TASK) {
			if (have && (s.t.got_stat || s.same)) {
				struct wg_thread *t = wg_find_thread(p, s.t.tid);

				given_syscall(c, p, &s);
				if (t && (size_t)(t - p->threads.v) < nold)
					seen[t - p->threads.v] = true;
				again_thread(f, p, &s, m, gap_s);
			}
			if (more && r.err)
				break;
			memset(&s, 0, sizeof(s));
			s.t.exec_start = s.t.ran_at = NAN;
			s.t.switches = WG_NO_INT;
			s.t.tid = more ? r.id : 0;
			s.t.cpu = -1;
			have = more;
		} else if (r.kind == R_IO) {
			if (!r.err && wg_pt_io(r.text, &io) && wg_has_int(k->io.rchar)) {
				p->rchar_delta = io.rchar - k->io.rchar;
				p->wchar_delta = io.wchar - k->io.wchar;
				if (wg_has_int(io.read_bytes) && wg_has_int(k->io.read_bytes))
					p->read_bytes_delta = io.read_bytes - k->io.read_bytes;
				if (wg_has_int(io.write_bytes) && wg_has_int(k->io.write_bytes))
					p->write_bytes_delta = io.write_bytes - k->io.write_bytes;
				p->rchar = io.rchar;
				p->wchar = io.wchar;
			}
		} else if (r.kind == R_STAT) {
			got_stat = !r.err && wg_pt_stat(r.text, &st) && st.start == k->stat.start;
			if (got_stat) {
				double dt = r.at - k->at;

				p->majflt_delta = (int64_t)(st.majflt - k->stat.majflt);
				p->state = st.state;
				p->exiting = st.flags & WG_PF_EXITING;
				p->alive = st.state != 'X' && !(st.state == 'Z' && st.nthreads <= 1);
				/* Children that came and went: their time arrives when they are reaped. */
				if (dt > 0.001)
					p->children_cpu_share =
						(double)(st.cutime + st.cstime - k->children_ticks) /
						(double)c->hz / dt;
			}
		} else {
			take_record(f, &s, &r);
		}
	} while (more);
	if (ours)
		wg_bulk_free(b);
	if (rc != -ETIMEDOUT)
		for (size_t i = nold; i-- > 0;)
			if (!seen[i])
				drop_thread(p, i);
	free(seen);
	if (rc == -ETIMEDOUT)
		wg_add_missing(f, p, "second sample", "/proc/PID/task did not answer in time", NULL);
	else if (!got_stat && !p->threads.n)
		ended_while_reading(p);
	if (p->threads.n)
		qsort(p->threads.v, p->threads.n, sizeof(*p->threads.v), by_tid);
	for (size_t i = 0; i < p->threads.n; i++)
		if (wg_has_sec(p->threads.v[i].cpu_share))
			sum += p->threads.v[i].cpu_share;
	p->cpu_share = sum;
	return 0;
}

void wg_procfs_ages(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = p->collect;
	double dt;

	if (!k || !k->got_stat)
		return;
	dt = c->sampled_at - k->at;
	if (!(dt > 0))
		dt = 0;
	p->age_s += dt; /* NAN stays NAN */
	p->fork_age_s += dt;
	for (size_t i = 0; i < p->threads.n; i++) {
		struct wg_thread *t = &p->threads.v[i];
		struct wg_ptask *x = wg_ptask(k, t->tid);

		t->between_unseen = t->wait.op == WG_OP_SLEEP && (!x || !x->calls_seen);
		/* A thread that was sampled twice has its ages from the second time. */
		if (x && !t->sampled_twice) {
			double late = c->sampled_at - x->at;

			if (late > 0) {
				t->start_age_s += late;
				if (t->state != 'R')
					t->last_ran_s += late;
				t->wait.since_s += late;
			}
		}
	}
	k->at = c->sampled_at;
}

/* ---- quick looks between the samples ----------------------------------------------------------- */

#define MAX_LOOKED 64

struct look_arg {
	size_t n;
	struct {
		int dirfd;
		int32_t tid;
	} at[MAX_LOOKED];
};

static void read_looks(struct wg_bulk *b)
{
	struct look_arg *a = wg_bulk_arg(b);

	for (size_t i = 0; i < a->n; i++) {
		char name[48] = "task/";

		name_of(name + 5, a->at[i].tid, "syscall");
		wg_bulk_file(b, a->at[i].dirfd, name, R_T_SYSCALL, (int)i, 256);
		name_of(name + 5, a->at[i].tid, "schedstat");
		wg_bulk_file(b, a->at[i].dirfd, name, R_T_SCHEDSTAT, (int)i, 256);
	}
}

static void nap(double s)
{
	struct timespec t;

	if (s <= 0)
		return;
	t.tv_sec = (time_t)s;
	t.tv_nsec = (long)((s - (double)t.tv_sec) * 1e9);
	while (nanosleep(&t, &t) && errno == EINTR)
		;
}

int wg_procfs_looks(struct wg_facts *f, double seconds, struct wg_sampling *sampling)
{
	struct wg_pctx *c = wg_pctx(f);
	double start = wg_mono(), step = seconds / (WG_LOOKS + 1);
	struct {
		struct wg_process *p;
		int32_t tid;
		uint64_t slices;
	} who[MAX_LOOKED];
	size_t n = 0;

	for (size_t i = 0; i < f->procs.n && n < MAX_LOOKED; i++) {
		struct wg_process *p = f->procs.v[i];
		struct wg_pproc *k = p->collect;

		if (!k || !k->full || k->dirfd < 0 || k->denied)
			continue;
		for (size_t j = 0; j < k->ntasks && n < MAX_LOOKED; j++) {
			const struct wg_ptask *x = &k->tasks[j];

			if (x->state != 'R' && !(x->at - x->ran_at < 1.0))
				continue;
			who[n].p = p;
			who[n].tid = x->tid;
			who[n++].slices = x->slices;
		}
	}
	for (int look = 0; (n || wg_sampling_any(sampling)) && look < WG_LOOKS; look++) {
		struct look_arg *a;
		struct wg_bulk *b;
		size_t cursor = 0;
		struct wg_raw r;
		int rc;

		nap(start + step * (look + 1) - wg_mono());
		wg_sampling_drain(sampling);
		if (!n)
			continue;
		b = wg_bulk_new(1 << 20, sizeof(*a));
		if (!b)
			break;
		a = wg_bulk_arg(b);
		a->n = n;
		for (size_t i = 0; i < n; i++) {
			a->at[i].dirfd = wg_pproc(f, who[i].p)->dirfd;
			a->at[i].tid = who[i].tid;
		}
		rc = wg_bulk_run(b, wg_pctx_left(c, 0.5), read_looks);
		while (wg_bulk_next(b, &cursor, &r)) {
			struct wg_process *p = who[r.id].p;
			struct wg_ptask *x = wg_ptask(wg_pproc(f, p), who[r.id].tid);
			struct wg_pt_syscall s;
			uint64_t ns, slices;

			if (!x || r.err)
				continue;
			if (r.kind == R_T_SYSCALL && x->looks < WG_LOOKS && wg_pt_syscall(r.text, &s)) {
				struct wg_thread *t = wg_find_thread(p, x->tid);
				const char *path;

				x->seen[x->looks++] = s;
				/* Caught inside a call that names a file: read it while it is there. */
				path = s.running || s.nr < 0 || !t ? NULL :
				       wg_wait_path(f, p, &s, wg_pproc(f, p)->mem);
				if (path) {
					t->repeat_syscall = wg_syscall_name(s.nr);
					t->repeat_path = path;
				}
			} else if (r.kind == R_T_SCHEDSTAT && wg_pt_schedstat(r.text, &ns, &slices)) {
				x->moved += slices != who[r.id].slices;
				who[r.id].slices = slices;
			}
		}
		wg_bulk_free(b);
		if (rc == -ETIMEDOUT)
			break;
	}
	nap(start + seconds - wg_mono());
	return 0;
}
