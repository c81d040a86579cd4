/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_dir.c - a job from the files that its ranks left: snapshots and traces of any
 * number of hosts, read one after the other.
 */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "preload/trace.h"
#include "snapshot.h"

#define MAX_FILES 1000000

struct found { /* HOST-PID-START-N.json, HOST-PID-START.trace, or any other name */
	char *path;
	size_t prefix;	/* bytes of path up to the end of START; 0: the name is not of that form */
	long n;		/* N; -1 */
	bool trace, named; /* named: by the user himself */
};
struct files {
	struct found *v;
	size_t n, cap;
};

/* Bytes of HOST-PID-START at the start of a file name whose rest is `tail`; 0 when it is not. */
static size_t stem(const char *name, long *n, bool *trace)
{
	size_t len = strlen(name), end, i;

	*n = -1;
	*trace = false;
	if (len > 6 && !strcmp(name + len - 6, ".trace")) {
		*trace = true;
		end = len - 6;
	} else if (len > 5 && !strcmp(name + len - 5, ".json")) {
		i = len - 5;
		while (i && isdigit((unsigned char)name[i - 1]))
			i--;
		if (i == len - 5 || !i || name[i - 1] != '-' || len - 5 - i > 9)
			return 0;
		*n = strtol(name + i, NULL, 10);
		end = i - 1;
	} else {
		return 0;
	}
	i = end;
	for (int part = 0; part < 2; part++) { /* START, then PID; the host may hold dashes */
		size_t stop = i;

		while (i && isdigit((unsigned char)name[i - 1]))
			i--;
		if (i == stop || !i || name[i - 1] != '-')
			return 0;
		i--;
	}
	return i ? end : 0;
}

static int add_file(struct files *all, const char *path, bool named)
{
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	struct found *x;
	size_t k;

	if (all->n >= MAX_FILES)
		return -E2BIG;
	if (all->n == all->cap) {
		size_t cap = all->cap ? all->cap * 2 : 64;
		struct found *v = realloc(all->v, cap * sizeof(*v));

		if (!v)
			return -ENOMEM;
		all->v = v;
		all->cap = cap;
	}
	x = &all->v[all->n];
	x->path = strdup(path);
	if (!x->path)
		return -ENOMEM;
	k = stem(name, &x->n, &x->trace);
	x->prefix = k ? (size_t)(name - path) + k : 0;
	x->named = named;
	all->n++;
	return 0;
}

static int add_dir(struct files *all, const char *path)
{
	size_t n = strlen(path);
	struct dirent *e;
	DIR *d = opendir(path);
	int rc = 0;

	if (!d)
		return -errno;
	while (!rc && (e = readdir(d))) {
		size_t k = strlen(e->d_name);
		char *full;

		if (e->d_name[0] == '.' ||
		    !((k > 5 && !strcmp(e->d_name + k - 5, ".json")) ||
		      (k > 6 && !strcmp(e->d_name + k - 6, ".trace"))))
			continue;
		if (asprintf(&full, "%s%s%s", path, n && path[n - 1] == '/' ? "" : "/", e->d_name) < 0)
			rc = -ENOMEM;
		else {
			rc = add_file(all, full, false);
			free(full);
		}
	}
	closedir(d);
	return rc;
}

/* By stem, the newest of each first; a trace after the snapshots of its process. */
static int by_stem(const void *a, const void *b)
{
	const struct found *x = a, *y = b;
	size_t n = x->prefix < y->prefix ? x->prefix : y->prefix;
	int c;

	if (!x->prefix || !y->prefix)
		return !x->prefix && !y->prefix ? strcmp(x->path, y->path) :
						  (int)!x->prefix - (int)!y->prefix;
	c = memcmp(x->path, y->path, n);
	if (c)
		return c;
	if (x->prefix != y->prefix)
		return x->prefix < y->prefix ? -1 : 1;
	if (x->trace != y->trace)
		return (int)x->trace - (int)y->trace;
	return x->n > y->n ? -1 : x->n < y->n;
}

static bool same_stem(const struct found *a, const struct found *b)
{
	return a->prefix && a->prefix == b->prefix && !memcmp(a->path, b->path, a->prefix);
}

/* ---- identity ------------------------------------------------------------------------- */

static bool equal(const char *a, const char *b)
{
	return a && b && !strcmp(a, b);
}

static int32_t own_pid(const struct wg_process *p)
{
	return p->ns_pid ? p->ns_pid : p->pid;
}

/* Boot first: it is unique; hosts can share a name. PIDs as the process itself sees them. */
static int by_identity(const void *a, const void *b)
{
	const struct wg_process *x = *(struct wg_process *const *)a;
	const struct wg_process *y = *(struct wg_process *const *)b;
	const char *hx = x->boot ? x->boot : x->host ? x->host : "";
	const char *hy = y->boot ? y->boot : y->host ? y->host : "";
	int c = strcmp(hx, hy);

	if (c)
		return c;
	if (x->start_ticks != y->start_ticks)
		return x->start_ticks < y->start_ticks ? -1 : 1;
	if (own_pid(x) != own_pid(y))
		return own_pid(x) < own_pid(y) ? -1 : 1;
	return 0;
}

/* Readers that another rank's signal had started, seen as its children: no part of the job. */
static bool is_reader(const struct wg_process *p)
{
	const char *slash = p->exe ? strrchr(p->exe, '/') : NULL;

	if (p->recorded)
		return false;
	return (p->comm && !strcmp(p->comm, "waitgraph-keep")) ||
	       (slash && !strcmp(slash, "/waitgraph") && p->command &&
		strstr(p->command, "--from-signal"));
}

static int fullness(const struct wg_process *p)
{
	return p->trace_only ? 0 : p->stub ? 1 : 2;
}

/* The same process from several files: the fullest counts, of those the newest. */
static void keep_newest(struct wg_facts *f)
{
	size_t n = f->procs.n, k = 0;
	struct wg_process **order = malloc((n + 1) * sizeof(*order));

	if (!order)
		return;
	memcpy(order, f->procs.v, n * sizeof(*order));
	qsort(order, n, sizeof(*order), by_identity);
	for (size_t i = 0; i < n;) {
		struct wg_process *best = order[i];
		size_t j = i + 1;

		for (; j < n && !by_identity(&order[i], &order[j]); j++) {
			struct wg_process *x = order[j];

			if (fullness(x) > fullness(best) ||
			    (fullness(x) == fullness(best) && x->taken_at >= best->taken_at))
				best = x;
		}
		for (size_t m = i; m < j; m++) {
			struct wg_process *x = order[m];

			if (x == best)
				continue;
			/* Somebody saw later that it had ended. */
			if (!x->alive && best->alive && x->taken_at > best->taken_at) {
				best->alive = false;
				if (x->end.known)
					best->end = x->end;
			}
			if (!best->trace_path)
				best->trace_path = x->trace_path;
			if (x->trace_only && x->taken_at > best->stamped_at)
				best->stamped_at = x->taken_at;
			x->pid = -1; /* marked */
		}
		i = j;
	}
	free(order);
	for (size_t i = 0; i < n; i++)
		if (f->procs.v[i]->pid >= 0 && !is_reader(f->procs.v[i]))
			f->procs.v[k++] = f->procs.v[i];
	f->procs.n = k;
}

/* ---- traces ------------------------------------------------------------------------------ */

static double real_of(const struct wgrec_clock *c, uint64_t ticks)
{
	double d = c->mult ? (double)(int64_t)(((__int128)(int64_t)(ticks - c->tsc0) *
						(__int128)c->mult) >> 32) * 1e-9 :
			     ((double)ticks - (double)c->mono0_ns) * 1e-9;

	return (double)c->real0_ns * 1e-9 + d;
}

static int read_trace(struct wg_facts *f, const char *path, const char **why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc = -EINVAL;
	struct wgtr_header h;
	struct wg_process *p = NULL;
	struct stat st;
	ssize_t n;
	double last;

	*why = NULL;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode)) {
		*why = "not a regular file";
		goto out;
	}
	n = pread(fd, &h, sizeof(h), 0);
	if (n < (ssize_t)sizeof(h) || memcmp(h.magic, WGTR_MAGIC, 8)) {
		*why = "not a trace";
		goto out;
	}
	if (h.endian != WGTR_ENDIAN) {
		*why = "written on a machine of the other byte order";
		goto out;
	}
	if (h.min_version > WGTR_VERSION) {
		*why = "written by a newer recorder";
		rc = -EPROTO;
		goto out;
	}
	if (!h.pid || h.pid > INT32_MAX) {
		*why = "corrupt header";
		goto out;
	}
	h.boot_id[sizeof(h.boot_id) - 1] = h.host[sizeof(h.host) - 1] = 0;
	h.rank_source[sizeof(h.rank_source) - 1] = h.command[sizeof(h.command) - 1] = 0;
	h.exe[sizeof(h.exe) - 1] = 0;
	p = wg_add_process(f);
	p->pid = p->ns_pid = (int32_t)h.pid;
	p->start_ticks = h.start_ticks;
	p->pidns = h.pidns;
	p->host = h.host[0] ? wg_str(f->arena, h.host) : NULL;
	p->boot = h.boot_id[0] ? wg_str(f->arena, h.boot_id) : NULL;
	p->command = h.command[0] ? wg_str(f->arena, h.command) : NULL;
	p->exe = h.exe[0] ? wg_str(f->arena, h.exe) : NULL;
	p->uid = st.st_uid;
	if (h.rank >= 0) {
		p->rank = h.rank;
		p->rank_source = wg_str(f->arena, h.rank_source);
	}
	if (h.world > 0)
		p->world = h.world;
	p->from_snapshot = p->trace_only = p->recorded = p->cuda_up = true;
	p->trace_path = wg_str(f->arena, path);
	wg_add_source(f, p, "trace");
	wg_add_missing(f, p, "everything but its trace", "it left no snapshot",
		       "ask it while it lives: waitgraph dump PID on its host");
	last = real_of(&h.clock, h.ended ? h.ended : h.touched);
	if (last > 0 && last < 253402300800.0)
		p->taken_at = last;
	p->alive = !h.ended;
	p->alive_known = h.ended != 0;
	*wg_push(f->arena, &p->notes) = h.ended ? "its trace was closed: it exited by itself" :
						  "its trace was not closed: it runs, or was killed";
	rc = 0;
out:
	close(fd);
	return rc;
}

/*
 * A process known by its trace alone, not closed: its helper thread stamped it about once a
 * second, so a stamp long before the others were looked at means that it was gone (or
 * stopped) by then. Clocks of other hosts may differ by more.
 */
static void settle_traces(struct wg_facts *f)
{
	const struct wg_process *newest = NULL;

	for (size_t i = 0; i < f->procs.n; i++)
		if (!f->procs.v[i]->trace_only &&
		    (!newest || f->procs.v[i]->taken_at > newest->taken_at))
			newest = f->procs.v[i];
	for (size_t i = 0; i < f->procs.n && !f->live; i++)
		if (f->procs.v[i]->trace_only)
			f->asked.n = 0; /* not one document's question: the whole job is */
	for (size_t i = 0; newest && i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];

		if (!p->trace_only || !p->trace_path || !p->alive || p->taken_at <= 0)
			continue;
		if (newest->taken_at - p->taken_at > (equal(p->boot, newest->boot) ? 5 : 30)) {
			p->alive = false;
			p->alive_known = true;
		}
	}
}

/* ---- who else there must be ------------------------------------------------------------------ */

struct index { /* processes by boot (or host), start and PID; open addressing */
	struct { uint64_t hash; struct wg_process *p; } *v;
	size_t size;
};

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static uint64_t key_of(const char *place, uint64_t start, int64_t pid)
{
	uint64_t h = 0x1234567;

	for (; place && *place; place++)
		h = mix(h, (unsigned char)*place);
	h = mix(mix(h, start), (uint64_t)pid);
	return h ? h : 1;
}

static bool is_process(const struct wg_process *p, const char *place, uint64_t start, int64_t pid)
{
	return (equal(p->boot, place) || equal(p->host, place)) && p->start_ticks == start &&
	       (p->pid == pid || p->ns_pid == pid);
}

static void put(struct index *ix, const char *place, struct wg_process *p, int64_t pid)
{
	uint64_t h = key_of(place, p->start_ticks, pid);

	if (!place || !pid)
		return;
	for (size_t i = h & (ix->size - 1);; i = (i + 1) & (ix->size - 1))
		if (!ix->v[i].hash) {
			ix->v[i].hash = h;
			ix->v[i].p = p;
			return;
		} else if (ix->v[i].p == p && ix->v[i].hash == h) {
			return;
		}
}

static void put_all(struct index *ix, struct wg_process *p)
{
	put(ix, p->boot, p, p->pid);
	put(ix, p->boot, p, p->ns_pid);
	put(ix, p->host, p, p->pid);
	put(ix, p->host, p, p->ns_pid);
}

static struct wg_process *get(const struct index *ix, const char *place, uint64_t start, int64_t pid)
{
	uint64_t h = key_of(place, start, pid);

	for (size_t i = h & (ix->size - 1); ix->v[i].hash; i = (i + 1) & (ix->size - 1))
		if (ix->v[i].hash == h && is_process(ix->v[i].p, place, start, pid))
			return ix->v[i].p;
	return NULL;
}

static void add_peers(struct wg_facts *f)
{
	size_t n = f->procs.n, npeers = 0;
	struct index ix = { .size = 64 };

	for (size_t i = 0; i < n; i++)
		npeers += f->procs.v[i]->peers.n;
	if (!npeers)
		return;
	while (ix.size < 8 * (n + npeers) + 8) /* four keys each, half full at most */
		ix.size *= 2;
	ix.v = calloc(ix.size, sizeof(*ix.v));
	if (!ix.v)
		return;
	for (size_t i = 0; i < n; i++)
		put_all(&ix, f->procs.v[i]);
	for (size_t i = 0; i < n; i++) {
		const struct wg_process *p = f->procs.v[i];
		int64_t largest = 0;

		for (size_t c = 0; c < p->comms.n; c++)
			if (p->comms.v[c].size > largest)
				largest = p->comms.v[c].size;
		for (size_t j = 0; j < p->peers.n; j++) {
			const struct wg_peer *x = &p->peers.v[j];
			const char *place = x->boot && *x->boot ? x->boot : x->host;
			struct wg_process *q;
			int64_t size = 0;

			/* A number without its start could be anybody's. */
			if (!wg_has_int(x->pid) || x->pid <= 0 || x->pid > INT32_MAX || !place ||
			    !wg_has_int(x->start) || x->start <= 0)
				continue;
			q = get(&ix, place, (uint64_t)x->start, x->pid);
			for (size_t c = 0; c < p->comms.n; c++)
				if (equal(p->comms.v[c].id, x->comm))
					size = p->comms.v[c].size;
			if (!q) {
				q = wg_add_process(f);
				q->pid = (int32_t)x->pid;
				q->start_ticks = (uint64_t)x->start;
				q->host = x->host;
				q->boot = x->boot;
				q->from_snapshot = q->trace_only = true;
				q->alive = !x->alive_known || x->alive;
				q->taken_at = p->taken_at;
				q->recorded = true;
				wg_add_source(f, q, "peers");
				wg_add_missing(f, q, "everything about this rank",
					       "it left no snapshot and no trace: it is known only "
					       "because another rank named it", NULL);
				put_all(&ix, q);
			} else if (!q->trace_only) {
				continue;
			}
			/* The rank in the largest communicator, as for a launcher that says none. */
			if (!wg_has_int(q->rank) && size && size == largest) {
				q->rank = x->rank;
				q->rank_source = "communicator";
			}
		}
	}
	free(ix.v);
}

/* ---- who still lives ---------------------------------------------------------------------------- */

static void read_line(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, buf, size - 1);

	buf[n > 0 ? n : 0] = 0;
	buf[strcspn(buf, "\n")] = 0;
	if (fd >= 0)
		close(fd);
}

/* 1 lives, 0 gone, -1 not to be seen from here. */
static int lives(const struct wg_process *p, uint64_t own_ns)
{
	unsigned long long start;
	char path[64], buf[1024], *s, state;

	if (p->pidns && own_ns && p->pidns != own_ns && p->pid == p->ns_pid)
		return -1; /* a number of another PID namespace */
	snprintf(path, sizeof(path), "/proc/%d/stat", p->pid);
	read_line(path, buf, sizeof(buf));
	s = strrchr(buf, ')');
	if (!s) /* no /proc, or it is hidden there (hidepid): then it is not known whose number it is */
		return access("/proc/self/stat", R_OK) || !kill(p->pid, 0) || errno == EPERM ? -1 : 0;
	if (sscanf(s + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
		   "%*d %llu", &state, &start) != 2)
		return -1;
	if (state == 'Z' || state == 'X')
		return 0;
	return !p->start_ticks || start == p->start_ticks;
}

/*
 * It is gone now. Was it gone already when the job was looked at last? Another rank's later
 * snapshot says so, or its helper thread had stopped stamping its trace by then.
 */
static bool died_before(const struct wg_facts *f, const struct wg_process *p)
{
	double newest = 0;

	for (size_t i = 0; i < f->procs.n; i++) {
		const struct wg_process *q = f->procs.v[i];

		if (q == p || q->stub || q->trace_only || !equal(q->boot, p->boot))
			continue;
		if (q->taken_at > newest)
			newest = q->taken_at;
		for (size_t k = 0; q->taken_at > p->taken_at && k < q->peers.n; k++) {
			const struct wg_peer *x = &q->peers.v[k];

			if (x->alive_known && !x->alive && x->pid == p->pid && wg_has_int(x->start) &&
			    (uint64_t)x->start == p->start_ticks)
				return true;
		}
	}
	return p->stamped_at > 0 && p->stamped_at >= p->taken_at && newest - p->stamped_at > 5;
}

static void look_up(struct wg_facts *f)
{
	char boot[64];
	struct stat st;
	uint64_t ns = stat("/proc/self/ns/pid", &st) ? 0 : st.st_ino;
	size_t living = 0, gone = 0;

	read_line("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	if (!*boot)
		return;
	for (size_t i = 0; i < f->procs.n; i++) {
		const struct wg_process *p = f->procs.v[i];
		int l = equal(p->boot, boot) && p->pid > 0 ? lives(p, ns) : -1;

		if (l < 0 || p->stub) /* the other end of something is not the job */
			continue;
		if (l)
			living++;
		else
			gone++;
	}
	/*
	 * Processes that lived when they were looked at and are gone now: while others of the job
	 * still stand there, that may be why they stand, but not where they were seen standing
	 * while it still lived. When all are gone the job was ended after the snapshots, which
	 * then tell of a time when they lived.
	 */
	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];

		int l = living && equal(p->boot, boot) && p->pid > 0 ? lives(p, ns) : -1;

		if (l < 0)
			continue;
		p->died_since = !l && p->alive && !p->trace_only && !p->stub && !died_before(f, p);
		p->alive_known = true;
		p->alive = l > 0;
	}
	if (gone && !living)
		wg_add_missing(f, NULL, "how these processes are now",
			       "they have ended since the snapshots were taken; the verdict is of then",
			       NULL);
}

/* ---- the whole ------------------------------------------------------------------------------------ */

int wg_snapshot_load(struct wg_facts *f, const char *const *paths, size_t n, const char **why)
{
	struct files all = { 0 };
	size_t before = f->procs.n, skipped = 0;
	const char *first_why = NULL;
	int rc = 0, first_rc = 0;

	*why = NULL;
	for (size_t i = 0; i < n; i++) {
		struct stat st;

		if (stat(paths[i], &st)) {
			rc = -errno;
			*why = wg_fmt(f->arena, "%s: %s", paths[i], strerror(errno));
			goto out;
		}
		rc = S_ISDIR(st.st_mode) ? add_dir(&all, paths[i]) : add_file(&all, paths[i], true);
		if (rc) {
			*why = wg_fmt(f->arena, "%s: %s", paths[i], strerror(-rc));
			goto out;
		}
	}
	if (!all.n) {
		*why = wg_fmt(f->arena, "%s: no snapshots and no traces in there", n ? paths[0] : "");
		rc = -ENOENT;
		goto out;
	}
	qsort(all.v, all.n, sizeof(*all.v), by_stem);
	for (size_t i = 0; i < all.n; i++) {
		const struct found *x = &all.v[i];
		const char *reason = NULL;
		bool done = false;

		/* The newest readable one of each process is enough; a named file is always read. */
		for (size_t k = i; !x->named && !x->trace && k > 0 && same_stem(&all.v[k - 1], x); k--)
			done = done || all.v[k - 1].n == -2;
		if (done) {
			all.v[i].n = -2;
			continue;
		}
		if (x->trace) {
			rc = read_trace(f, x->path, &reason);
		} else {
			rc = wg_snapshot_read(f, x->path, &reason);
			/* A trace under another name. */
			if (rc == -EINVAL && x->named && !read_trace(f, x->path, &reason))
				rc = 0;
			else if (rc == -EINVAL && x->named)
				wg_snapshot_read(f, x->path, &reason);
		}
		if (!rc) {
			all.v[i].n = -2; /* read */
			continue;
		}
		reason = wg_fmt(f->arena, "%s: %s", x->path, reason ? reason : strerror(-rc));
		if (x->named) {
			*why = reason;
			goto out;
		}
		if (!first_rc) {
			first_rc = rc;
			first_why = reason;
		}
		if (++skipped <= 16)
			wg_add_missing(f, NULL, "a file of the directory", reason, NULL);
		rc = 0;
	}
	if (skipped > 16)
		wg_add_missing(f, NULL, "more files of the directory",
			       wg_fmt(f->arena, "%zu more could not be read", skipped - 16), NULL);
	if (f->procs.n == before) {
		rc = first_rc ? first_rc : -ENOENT;
		*why = first_why ? first_why : "no process in there";
		goto out;
	}
	keep_newest(f);
	settle_traces(f);
	add_peers(f);
	look_up(f);
	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];

		if (p->from_snapshot && p->taken_at > 0 && f->taken_at > 0)
			p->snapshot_age_s = f->taken_at > p->taken_at ? f->taken_at - p->taken_at : 0;
	}
	if (f->taken_at <= 0) /* traces alone */
		for (size_t i = 0; i < f->procs.n; i++)
			if (f->procs.v[i]->taken_at > f->taken_at)
				f->taken_at = f->procs.v[i]->taken_at;
out:
	for (size_t i = 0; i < all.n; i++)
		free(all.v[i].path);
	free(all.v);
	return rc;
}
