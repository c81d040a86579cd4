/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.c - what can stop a process without any lock: control groups (both versions),
 * resource limits, /dev/shm, and what the kernel's log says.
 *
 * A group's limits are those of all its ancestors: for each kind the level that leaves the
 * least is reported. Paths are those that the asker sees; inside a container that is the
 * container's own part of the tree, and what lies above stays unknown.
 */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "bulk.h"
#include "procfs.h"

#define MAX_KMSG 64
#define MAX_LEVELS 12

enum { R_SHM = 1, R_FILE, R_KMSG, R_OWN_MOUNTS };

/* ---- where the hierarchies are ---------------------------------------------------------- */

enum { V2, V1_FREEZER, V1_PIDS, V1_MEMORY, V1_CPU, HIERARCHIES };
static const char *const controllers[HIERARCHIES] = { "", "freezer", "pids", "memory", "cpu" };

struct wg_cgroups {
	const char *point[HIERARCHIES], *root[HIERARCHIES]; /* NULL not mounted */
};

static void read_own_mounts(struct wg_bulk *b)
{
	wg_bulk_file(b, AT_FDCWD, "/proc/self/mountinfo", R_OWN_MOUNTS, 0, 4 << 20);
}

static bool has_option(const char *options, const char *name)
{
	size_t n = strlen(name);

	for (const char *s = options; (s = strstr(s, name)); s += n)
		if ((s == options || s[-1] == ',') && (!s[n] || s[n] == ','))
			return true;
	return false;
}

static const struct wg_cgroups *hierarchies(struct wg_facts *f)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_bulk *b;
	size_t cursor = 0;
	struct wg_raw r;

	if (c->cgroups)
		return c->cgroups;
	c->cgroups = wg_alloc(f->arena, sizeof(*c->cgroups));
	b = wg_bulk_new(8 << 20, 0);
	if (!b)
		return c->cgroups;
	wg_bulk_run(b, wg_pctx_left(c, 0.5), read_own_mounts);
	while (wg_bulk_next(b, &cursor, &r)) {
		const char *s = r.text;
		struct wg_pt_mount m;

		while (!r.err && wg_pt_mount(&s, &m))
			for (int i = 0; i < HIERARCHIES; i++) {
				if (i == V2 ? strcmp(m.type, "cgroup2") != 0 :
					      strcmp(m.type, "cgroup") != 0 ||
					      !has_option(m.options, controllers[i]))
					continue;
				if (c->cgroups->point[i])
					continue;
				c->cgroups->point[i] = wg_str(f->arena, m.point);
				c->cgroups->root[i] = wg_str(f->arena, m.root);
			}
	}
	wg_bulk_free(b);
	return c->cgroups;
}

/* ---- reading the groups' files --------------------------------------------------------------- */

enum what { W_FREEZE, W_EVENTS, W_V1_STATE, W_PIDS_MAX, W_PIDS_CUR, W_MEM_MAX, W_MEM_CUR,
	    W_MEM_EVENTS, W_CPU_MAX, W_V1_QUOTA, W_V1_PERIOD, W_CPU_STAT, WHATS };

static const struct {
	int hierarchy;
	enum what what;
	const char *file;
} wanted[] = {
	{ V2, W_FREEZE, "cgroup.freeze" },
	{ V2, W_EVENTS, "cgroup.events" },
	{ V2, W_PIDS_MAX, "pids.max" },
	{ V2, W_PIDS_CUR, "pids.current" },
	{ V2, W_MEM_MAX, "memory.max" },
	{ V2, W_MEM_CUR, "memory.current" },
	{ V2, W_MEM_EVENTS, "memory.events" },
	{ V2, W_CPU_MAX, "cpu.max" },
	{ V2, W_CPU_STAT, "cpu.stat" },
	{ V1_FREEZER, W_V1_STATE, "freezer.state" },
	{ V1_PIDS, W_PIDS_MAX, "pids.max" },
	{ V1_PIDS, W_PIDS_CUR, "pids.current" },
	{ V1_MEMORY, W_MEM_MAX, "memory.limit_in_bytes" },
	{ V1_MEMORY, W_MEM_CUR, "memory.usage_in_bytes" },
	{ V1_MEMORY, W_MEM_EVENTS, "memory.oom_control" },
	{ V1_CPU, W_V1_QUOTA, "cpu.cfs_quota_us" },
	{ V1_CPU, W_V1_PERIOD, "cpu.cfs_period_us" },
	{ V1_CPU, W_CPU_STAT, "cpu.stat" },
};

struct cg_arg {
	char dir[HIERARCHIES][MAX_LEVELS][1024]; /* from the group upwards; "" none */
};

static int id_of(size_t want, int level)
{
	return (int)want * MAX_LEVELS + level;
}

static void read_groups(struct wg_bulk *b)
{
	struct cg_arg *a = wg_bulk_arg(b);
	char path[1100];

	for (int level = 0; level < MAX_LEVELS; level++)
		for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
			const char *dir = a->dir[wanted[i].hierarchy][level];

			if (!*dir)
				continue;
			snprintf(path, sizeof(path), "%s/%s", dir, wanted[i].file);
			wg_bulk_file(b, AT_FDCWD, path, R_FILE, id_of(i, level), 8192);
		}
}

static void levels(struct cg_arg *a, int h, const char *point, const char *root, const char *path)
{
	char rel[1024];
	size_t n = strlen(root);
	int level = 0;

	/* A bind mount of a part of the tree: paths begin with that part. */
	if (n > 1 && !strncmp(path, root, n) && (path[n] == '/' || !path[n]))
		path += n;
	if (strstr(path, "..")) /* outside of what we see */
		return;
	snprintf(rel, sizeof(rel), "%s", strcmp(path, "/") ? path : "");
	for (;;) {
		char *slash;
		int k;

		k = snprintf(a->dir[h][level], sizeof(a->dir[h][level]), "%s%s", point, rel);
		if (k < 0 || (size_t)k >= sizeof(a->dir[h][level]))
			a->dir[h][level][0] = 0;
		level++;
		slash = strrchr(rel, '/');
		if (!slash || level == MAX_LEVELS)
			return;
		*slash = 0;
	}
}

struct level {
	int64_t v[WHATS], v2[WHATS]; /* second number of two */
	bool has[WHATS];
};

static void take_value(struct level *l, enum what w, const char *text)
{
	int64_t a = WG_NO_INT, b = WG_NO_INT;

	switch (w) {
	case W_EVENTS:
		a = wg_pt_value(text, "frozen");
		break;
	case W_V1_STATE:
		a = !strncmp(text, "FROZEN", 6) || !strncmp(text, "FREEZING", 8);
		break;
	case W_MEM_EVENTS:
		a = wg_pt_value(text, "oom_kill");
		break;
	case W_CPU_MAX:
		a = wg_pt_number(text);
		text = strchr(text, ' ');
		b = text ? wg_pt_number(text + 1) : WG_NO_INT;
		break;
	case W_CPU_STAT:
		a = wg_pt_value(text, "nr_periods");
		b = wg_pt_value(text, "nr_throttled");
		break;
	default:
		a = wg_pt_number(text);
		break;
	}
	if (a == WG_NO_INT)
		return;
	l->v[w] = a;
	l->v2[w] = b;
	l->has[w] = true;
}

/* Version 1 has no word for "no limit": it prints the largest page count. */
static bool is_limit(int64_t v)
{
	return v >= 0 && v < INT64_MAX / 2;
}

static void choose(struct wg_cgroup *g, const struct level *l, int n)
{
	int64_t room_pids = INT64_MAX, room_mem = INT64_MAX;
	double least = INFINITY;
	int mem_level = 0;

	for (int i = 0; i < n; i++) {
		const struct level *x = &l[i];
		double quota = WG_NO_SEC;

		g->frozen |= (x->has[W_FREEZE] && x->v[W_FREEZE] == 1) ||
			     (x->has[W_EVENTS] && x->v[W_EVENTS] == 1) ||
			     (x->has[W_V1_STATE] && x->v[W_V1_STATE]);
		if (x->has[W_PIDS_MAX] && x->has[W_PIDS_CUR] && is_limit(x->v[W_PIDS_MAX]) &&
		    x->v[W_PIDS_MAX] - x->v[W_PIDS_CUR] < room_pids) {
			room_pids = x->v[W_PIDS_MAX] - x->v[W_PIDS_CUR];
			g->pids_max = x->v[W_PIDS_MAX];
			g->pids_current = x->v[W_PIDS_CUR];
		}
		if (x->has[W_MEM_MAX] && x->has[W_MEM_CUR] && is_limit(x->v[W_MEM_MAX]) &&
		    x->v[W_MEM_MAX] - x->v[W_MEM_CUR] < room_mem) {
			room_mem = x->v[W_MEM_MAX] - x->v[W_MEM_CUR];
			g->mem_max = x->v[W_MEM_MAX];
			g->mem_current = x->v[W_MEM_CUR];
			mem_level = i;
		}
		if (x->has[W_CPU_MAX] && is_limit(x->v[W_CPU_MAX]) && x->v2[W_CPU_MAX] > 0)
			quota = (double)x->v[W_CPU_MAX] / (double)x->v2[W_CPU_MAX];
		if (x->has[W_V1_QUOTA] && x->has[W_V1_PERIOD] && x->v[W_V1_QUOTA] > 0 &&
		    x->v[W_V1_PERIOD] > 0)
			quota = (double)x->v[W_V1_QUOTA] / (double)x->v[W_V1_PERIOD];
		if (wg_has_sec(quota) && quota < least) {
			least = g->cpu_quota = quota;
			g->cpu_periods = x->has[W_CPU_STAT] ? x->v[W_CPU_STAT] : WG_NO_INT;
			g->cpu_throttled = x->has[W_CPU_STAT] ? x->v2[W_CPU_STAT] : WG_NO_INT;
		}
	}
	if (n && !wg_has_int(g->mem_current) && l[0].has[W_MEM_CUR])
		g->mem_current = l[0].v[W_MEM_CUR];
	for (int i = mem_level; i >= 0 && !wg_has_int(g->oom_kills); i--)
		if (i < n && l[i].has[W_MEM_EVENTS])
			g->oom_kills = l[i].v[W_MEM_EVENTS];
}

static void read_cgroup(struct wg_facts *f, struct wg_process *p, struct wg_cgroup *g)
{
	const struct wg_cgroups *all = hierarchies(f);
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	struct level l[MAX_LEVELS];
	struct cg_arg *a;
	struct wg_bulk *b;
	size_t cursor = 0;
	struct wg_raw r;
	char path[1024];
	int n = 0;

	if (!k->cgroup_text)
		return;
	/* Processes of one group share the answer. */
	for (size_t i = 0; i < f->procs.n; i++) {
		const struct wg_pproc *o = f->procs.v[i]->collect;

		if (f->procs.v[i] != p && o && o->cgroup_round == c->round + 1 &&
		    !strcmp(o->cgroup_text, k->cgroup_text)) {
			*g = f->procs.v[i]->cgroup;
			k->cgroup_round = o->cgroup_round;
			return;
		}
	}
	k->cgroup_round = c->round + 1;
	b = wg_bulk_new(4 << 20, sizeof(*a));
	if (!b)
		return;
	a = wg_bulk_arg(b);
	for (int h = 0; h < HIERARCHIES; h++) {
		if (!wg_pt_cgroup(k->cgroup_text, controllers[h], path, sizeof(path)))
			continue;
		if (!g->path || (h == V2 ? false : !strcmp(g->path, "/")))
			g->path = wg_str(f->arena, path);
		if (all->point[h])
			levels(a, h, all->point[h], all->root[h], path);
	}
	memset(l, 0, sizeof(l));
	if (wg_bulk_run(b, wg_pctx_left(c, 0.5), read_groups) == -ETIMEDOUT)
		wg_add_missing(f, p, "limits of the control group", "its files did not answer in time",
			       NULL);
	while (wg_bulk_next(b, &cursor, &r)) {
		int level = r.id % MAX_LEVELS;

		if (r.err)
			continue;
		take_value(&l[level], wanted[r.id / MAX_LEVELS].what, r.text);
		if (level >= n)
			n = level + 1;
	}
	wg_bulk_free(b);
	choose(g, l, n);
}

/* ---- /dev/shm and rlimits -------------------------------------------------------------------- */

struct shm_arg {
	int dirfd;
	bool own; /* the same mount namespace: our own path will do */
};

static void read_shm(struct wg_bulk *b)
{
	struct shm_arg *a = wg_bulk_arg(b);
	int fd = -1, err = 0;
	struct statvfs st;

	fd = a->own ? open("/dev/shm", O_PATH | O_DIRECTORY | O_CLOEXEC) :
		      openat(a->dirfd, "root/dev/shm", O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fstatvfs(fd, &st))
		err = -errno;
	if (fd >= 0)
		close(fd);
	wg_bulk_put(b, R_SHM, 0, err, &st, err ? 0 : sizeof(st));
}

static void take_shm(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	struct shm_arg *a;
	struct wg_bulk *b;
	size_t cursor = 0;
	struct wg_raw r;

	/* Processes of one mount namespace see the same one: asked once. */
	for (size_t i = 0; i < f->procs.n; i++) {
		const struct wg_process *q = f->procs.v[i];
		const struct wg_pproc *o = q->collect;

		if (q != p && o && k->mntns && o->mntns == k->mntns && wg_has_int(q->shm_size)) {
			p->shm_size = q->shm_size;
			p->shm_free = q->shm_free;
			return;
		}
	}
	b = wg_bulk_new(1 << 16, sizeof(*a));
	if (!b)
		return;
	a = wg_bulk_arg(b);
	a->dirfd = wg_bulk_own_fd(b, k->dirfd);
	a->own = k->mntns && k->mntns == c->mntns;
	wg_bulk_run(b, wg_pctx_left(c, 0.3), read_shm);
	if (wg_bulk_next(b, &cursor, &r) && !r.err && r.len == sizeof(struct statvfs)) {
		struct statvfs st;

		memcpy(&st, r.text, sizeof(st));
		if (st.f_blocks) { /* 0: a tmpfs without a limit */
			p->shm_size = (int64_t)(st.f_blocks * st.f_frsize);
			p->shm_free = (int64_t)(st.f_bavail * st.f_frsize);
		}
	}
	wg_bulk_free(b);
}

int wg_limits_collect(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);

	if (k->limits_text) {
		p->nofile_limit = wg_pt_limit(k->limits_text, "Max open files");
		p->nproc_limit = wg_pt_limit(k->limits_text, "Max processes");
		p->memlock_limit = wg_pt_limit(k->limits_text, "Max locked memory");
	} else {
		wg_add_missing(f, p, "resource limits", "/proc/PID/limits: Permission denied",
			       "run as root or as the owner of the process");
	}
	if (c->host.done && wg_has_int(p->uid)) {
		int64_t n = 0;

		for (size_t i = 0; i < c->host.procs.n; i++)
			if (c->host.procs.v[i].uid == p->uid)
				n += c->host.procs.v[i].nthreads;
		p->nproc_used = n;
	}
	read_cgroup(f, p, &p->cgroup);
	k->cgroup_periods = p->cgroup.cpu_periods;
	k->cgroup_throttled = p->cgroup.cpu_throttled;
	if (k->dirfd >= 0)
		take_shm(f, p);
	return 0;
}

void wg_limits_again(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pproc *k = wg_pproc(f, p);
	struct wg_cgroup g = p->cgroup;

	if (!wg_has_int(k->cgroup_periods) || !p->alive)
		return;
	g.frozen = false;
	g.cpu_periods = g.cpu_throttled = WG_NO_INT;
	read_cgroup(f, p, &g);
	p->cgroup.frozen = g.frozen;
	if (!wg_has_int(g.cpu_periods) || !wg_has_int(g.cpu_throttled))
		return;
	p->cgroup.cpu_periods = g.cpu_periods;
	p->cgroup.cpu_throttled = g.cpu_throttled;
	p->cgroup.cpu_periods_delta = g.cpu_periods - k->cgroup_periods;
	p->cgroup.cpu_throttled_delta = g.cpu_throttled - k->cgroup_throttled;
}

/* ---- the kernel's log ------------------------------------------------------------------------- */

struct kmsg_arg {
	double now; /* on the log's clock, which stands still in suspend as CLOCK_MONOTONIC does */
	double oldest; /* seconds ago: what came before the asked processes began is not theirs */
};

/*
 * What can explain a hang: errors of devices and storage, kills, tasks that hang, crashes. The same
 * drivers also say hello at boot (at the levels "notice" and "info", some even as a warning), so for
 * most of them the level decides as well.
 */
static bool kmsg_matters(const char *s, int level)
{
	static const struct {
		const char *word;
		int level; /* this one or a more serious one */
	} known[] = {
		{ "Xid", 7 }, { "fallen off the bus", 7 }, { "NVRM:", 4 }, { "nvidia", 3 },
		{ "oom-kill:", 7 }, { "Out of memory", 7 }, { "out of memory", 5 },
		{ "Killed process", 7 }, { "invoked oom-killer", 7 }, { "oom_reaper:", 7 },
		{ "blocked for more than", 7 }, { "soft lockup", 7 }, { "hard LOCKUP", 7 },
		{ "self-detected stall", 7 }, { "detected stalls on", 7 }, { "PCIe Bus Error", 7 },
		{ "AER: Uncorrected", 7 }, { "AER: Corrected", 7 }, { "AER: Correctable", 7 },
		{ "AER: Uncorrectable", 7 }, { "AER: Multiple", 7 }, { "I/O error", 7 },
		{ "EXT4-fs error", 7 }, { "BTRFS error", 7 }, { "XFS (", 4 }, { "nvme", 4 },
		{ "nfs: server", 7 }, { "not responding", 5 }, { "LustreError", 7 }, { "ceph:", 4 },
		{ "fuse:", 4 }, { "device offline", 7 }, { "segfault at", 7 },
		{ "general protection", 7 }, { "traps:", 7 }, { "Hardware Error", 7 },
		{ "Machine check", 4 }, { "EDAC", 4 }, { "DMAR:", 4 }, { "IO_PAGE_FAULT", 7 },
		{ "mlx5_core", 4 }, { "uverbs", 4 }, { "ink is down", 6 }, { "ink is Down", 6 },
		{ "cgroup: fork rejected", 7 }, { "vm.max_map_count", 7 },
		{ "ext4_mb_generate_buddy", 7 }, { "Remounting filesystem read-only", 7 },
	};
	static const char *const greetings[] = { "Kernel command line", "taints kernel",
		"tainting kernel", "NVRM: loading ", "enabled with IRQ", NULL };

	for (size_t i = 0; greetings[i]; i++)
		if (strstr(s, greetings[i]))
			return false;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (level <= known[i].level && strstr(s, known[i].word))
			return true;
	return false;
}

/* One record "priority,sequence,microseconds,flags[,...];text". Returns the text, NULL: not ours. */
const char *wg_kmsg_record(char *line, double now, double oldest, double *ago)
{
	unsigned int priority;
	unsigned long long usec;
	char *text = strchr(line, ';'), *end;

	if (!text || sscanf(line, "%u,%*u,%llu", &priority, &usec) != 2)
		return NULL;
	text++;
	end = strchr(text, '\n');
	if (end)
		*end = 0;
	/* Other facilities than the kernel's: any root process may have written it. */
	if (priority >> 3)
		return NULL;
	*ago = now - (double)usec * 1e-6;
	if (*ago < 0)
		*ago = 0;
	if (*ago > oldest || !kmsg_matters(text, (int)(priority & 7)))
		return NULL;
	return text;
}

static void read_kmsg(struct wg_bulk *b)
{
	struct kmsg_arg *a = wg_bulk_arg(b);
	int fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char line[8192], out[700];

	if (fd < 0) {
		wg_bulk_put(b, R_KMSG, 0, -errno, NULL, 0);
		return;
	}
	for (int n = 0; n < 200000; n++) {
		ssize_t k = read(fd, line, sizeof(line) - 1);
		const char *text;
		double ago;

		if (k < 0 && errno == EPIPE) /* overwritten while we read: go on with the next */
			continue;
		if (k <= 0)
			break;
		line[k] = 0;
		text = wg_kmsg_record(line, a->now, a->oldest, &ago);
		if (!text)
			continue;
		k = snprintf(out, sizeof(out), "%.0f s ago: %s", ago, text);
		wg_bulk_put(b, R_KMSG, 0, 0, out,
			    (size_t)k < sizeof(out) ? (size_t)k : sizeof(out) - 1);
	}
	close(fd);
}

/* How long ago the oldest of the asked processes began; without end when one is not known. */
static double oldest_asked(const struct wg_facts *f)
{
	double oldest = 0;

	for (size_t i = 0; i < f->asked.n; i++) {
		const struct wg_process *p = wg_find_process(f, f->asked.v[i]);

		if (!p || !wg_has_sec(p->age_s))
			return INFINITY;
		if (p->age_s > oldest)
			oldest = p->age_s;
	}
	return f->asked.n ? oldest + 1 : INFINITY;
}

void wg_kmsg_collect(struct wg_facts *f)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_bulk *b = wg_bulk_new(16 << 20, sizeof(struct kmsg_arg));
	size_t cursor = 0, n = 0, skip;
	struct wg_raw r;

	if (!b)
		return;
	((struct kmsg_arg *)wg_bulk_arg(b))->now = wg_mono();
	((struct kmsg_arg *)wg_bulk_arg(b))->oldest = oldest_asked(f);
	wg_bulk_run(b, wg_pctx_left(c, 0.5), read_kmsg);
	while (wg_bulk_next(b, &cursor, &r)) {
		if (r.err)
			wg_add_missing(f, NULL, "kernel log", strerror(-r.err), "run as root");
		n += !r.err;
	}
	skip = n > MAX_KMSG ? n - MAX_KMSG : 0; /* the newest are the ones that matter */
	for (cursor = 0; wg_bulk_next(b, &cursor, &r);) {
		if (r.err)
			continue;
		if (skip) {
			skip--;
			continue;
		}
		*wg_push(f->arena, &f->kmsg) = wg_strn(f->arena, r.text, r.len);
	}
	wg_bulk_free(b);
}
