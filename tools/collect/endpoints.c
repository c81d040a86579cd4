/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endpoints.c - from what a thread waits on to who is at the other end.
 *
 * One pass over /proc gives every process with its parent and, when something needs it,
 * every descriptor: pipes and sockets by inode, terminals by index, files by path, FUSE
 * devices by connection. Links are read, nothing is opened and no file system is asked.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "bulk.h"
#include "procfs.h"

#define SCAN_DEADLINE_S 1.0
#define FDS_DEADLINE_S 2.0
#define MAPS_DEADLINE_S 1.0
#define BIG_SET 32 /* a server's set: its members are ends, not suspects */

enum { R_PROC = 1, R_UID, R_HOLD, R_SEEN, R_DENIED, R_DONE, R_MAPPER, R_ENV, R_CMD, R_IO };

/* ---- keys ---------------------------------------------------------------------------- */

uint64_t wg_key_ino(int type, uint64_t ino)
{
	return (uint64_t)type << 60 | (ino & ((1ull << 60) - 1));
}

static uint64_t hash_path(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ull; /* FNV-1a */

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return h;
}

static bool is_ptmx(const char *link)
{
	size_t n = strlen(link);

	return n >= 5 && link[0] == '/' && !strcmp(link + n - 5, "/ptmx");
}

uint64_t wg_key_of_link(const char *link)
{
	uint64_t ino;

	if ((ino = wg_link_ino(link, "pipe:[")))
		return wg_key_ino(WG_KEY_PIPE, ino);
	if ((ino = wg_link_ino(link, "socket:[")))
		return wg_key_ino(WG_KEY_SOCKET, ino);
	if (!strncmp(link, "/dev/pts/", 9) && link[9] >= '0' && link[9] <= '9')
		return wg_key_ino(WG_KEY_PTY, strtoull(link + 9, NULL, 10));
	if (link[0] != '/' || !strcmp(link, "/dev/null") || is_ptmx(link))
		return 0;
	return wg_key_ino(WG_KEY_PATH, hash_path(link));
}

/* ---- every process ---------------------------------------------------------------------- */

struct scan_arg {
	int procfd;
	size_t n;
	int32_t pid[]; /* for the passes that go over a known list */
};

static void scan_one(struct wg_bulk *b, int pid, void *arg)
{
	struct scan_arg *a = arg;
	char name[24];
	struct stat st;
	int64_t uid;

	snprintf(name, sizeof(name), "%d/stat", pid);
	if (wg_bulk_file(b, a->procfd, name, R_PROC, pid, 4096))
		return;
	snprintf(name, sizeof(name), "%d", pid);
	uid = fstatat(a->procfd, name, &st, 0) ? -1 : (int64_t)st.st_uid;
	wg_bulk_put(b, R_UID, pid, 0, &uid, sizeof(uid));
}

static void scan_procs(struct wg_bulk *b)
{
	struct scan_arg *a = wg_bulk_arg(b);

	wg_bulk_numbers(b, a->procfd, ".", -1, scan_one, a);
}

static int by_pid(const void *x, const void *y)
{
	const struct wg_hostproc *a = x, *b = y;

	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

/*
 * What a signal made a recorded process start (preload/dump.c) is no part of the program: neither
 * its child, nor an end of its pipes, nor a process of the job. The keeper is known by its name,
 * the reader by its parent.
 */
static void forget_readers(struct wg_pctx *c)
{
	struct wg_host *h = &c->host;
	int32_t keepers[64];
	size_t n = 0, k = 0;

	for (size_t i = 0; i < h->procs.n && n < 64; i++)
		if (!strcmp(h->procs.v[i].comm, WG_KEEPER_NAME))
			keepers[n++] = h->procs.v[i].pid;
	for (size_t i = 0; n && i < h->procs.n; i++) {
		bool ours = false;

		for (size_t j = 0; j < n && !ours; j++)
			ours = h->procs.v[i].pid == keepers[j] || h->procs.v[i].ppid == keepers[j];
		if (!ours)
			h->procs.v[k++] = h->procs.v[i];
	}
	if (n)
		h->procs.n = k;
}

void wg_host_scan(struct wg_facts *f)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_hostproc *h = NULL;
	struct wg_bulk *b;
	struct scan_arg *a;
	struct wg_pt_stat st;
	size_t cursor = 0;
	struct wg_raw r;

	if (c->host.done)
		return;
	c->host.done = true;
	b = wg_bulk_new(256 << 20, sizeof(*a));
	if (!b)
		return;
	a = wg_bulk_arg(b);
	a->procfd = wg_bulk_own_fd(b, c->procfd);
	if (wg_bulk_run(b, wg_pctx_left(c, SCAN_DEADLINE_S), scan_procs) == -ETIMEDOUT)
		wg_add_missing(f, NULL, "part of the host's processes",
			       "/proc did not answer in time", NULL);
	while (wg_bulk_next(b, &cursor, &r)) {
		if (r.kind == R_PROC) {
			h = NULL;
			if (r.err || !wg_pt_stat(r.text, &st))
				continue;
			h = wg_push(f->arena, &c->host.procs);
			h->pid = r.id;
			h->ppid = st.ppid;
			h->pgid = st.pgid;
			h->sid = st.sid;
			h->state = st.state;
			h->nthreads = st.nthreads;
			h->start = st.start;
			h->kthread = st.flags & WG_PF_KTHREAD;
			h->uid = -1;
			memcpy(h->comm, st.comm, sizeof(h->comm) - 1);
		} else if (r.kind == R_UID && h && h->pid == r.id) {
			memcpy(&h->uid, r.text, sizeof(h->uid));
		}
	}
	wg_bulk_free(b);
	if (c->host.procs.n)
		qsort(c->host.procs.v, c->host.procs.n, sizeof(*c->host.procs.v), by_pid);
	forget_readers(c);
}

const struct wg_hostproc *wg_host_proc(const struct wg_pctx *c, int32_t pid)
{
	struct wg_hostproc key = { .pid = pid };

	return c->host.procs.n ? bsearch(&key, c->host.procs.v, c->host.procs.n,
					 sizeof(*c->host.procs.v), by_pid) : NULL;
}

/* ---- and its descriptors --------------------------------------------------------------------- */

struct hold { /* of one record */
	uint64_t key;
	int32_t fd, pad;
};

struct fd_scan { /* on the reading thread */
	struct wg_bulk *b;
	int32_t pid;
	int fddir, infodir, piddir;
};

static void fd_info(struct fd_scan *s, int fd, char *buf, size_t n)
{
	char name[32];
	ssize_t k = -1;
	int in;

	buf[0] = 0;
	snprintf(name, sizeof(name), "fdinfo/%d", fd);
	in = openat(s->piddir, name, O_RDONLY | O_CLOEXEC);
	if (in >= 0) {
		k = read(in, buf, n - 1);
		close(in);
	}
	buf[k > 0 ? k : 0] = 0;
}

static void hold_fd(struct wg_bulk *b, int fd, void *arg)
{
	struct fd_scan *s = arg;
	char name[16], link[1024], info[1024];
	struct hold h = { .fd = fd };
	struct wg_pt_fdinfo i;
	ssize_t n;

	snprintf(name, sizeof(name), "%d", fd);
	n = readlinkat(s->fddir, name, link, sizeof(link) - 1);
	if (n <= 0)
		return;
	link[n] = 0;
	h.key = wg_key_of_link(link);
	if (is_ptmx(link)) {
		fd_info(s, fd, info, sizeof(info));
		if (wg_pt_fdinfo(info, &i, NULL, 0) && i.tty_index >= 0)
			h.key = wg_key_ino(WG_KEY_PTY, (uint64_t)i.tty_index);
	} else if (!strcmp(link, "/dev/fuse")) {
		fd_info(s, fd, info, sizeof(info));
		/* Newer kernels say which connection it is: 0 stands for one that does not. */
		h.key = wg_key_ino(WG_KEY_FUSE, wg_pt_fdinfo(info, &i, NULL, 0) &&
				   i.fuse_connection != INT64_MIN ?
				   (uint64_t)i.fuse_connection + 1 : 0);
	}
	if (h.key)
		wg_bulk_put(b, R_HOLD, s->pid, 0, &h, sizeof(h));
}

/* Nothing in this directory of descriptors: nearly always that of a process whose leader has ended. */
static bool no_names(int fddir)
{
	char buf[512] __attribute__((aligned(8)));
	long n = syscall(SYS_getdents64, fddir, buf, sizeof(buf));

	return n >= 0 && n <= 48; /* "." and ".." */
}

static void scan_fds(struct wg_bulk *b)
{
	struct scan_arg *a = wg_bulk_arg(b);
	char name[24];

	for (size_t i = 0; i < a->n; i++) {
		struct fd_scan s = { .b = b, .pid = a->pid[i] };

		snprintf(name, sizeof(name), "%d", a->pid[i]);
		s.piddir = openat(a->procfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (s.piddir < 0) {
			wg_bulk_put(b, R_SEEN, a->pid[i], 0, NULL, 0); /* gone: holds nothing */
			continue;
		}
		s.fddir = openat(s.piddir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (s.fddir < 0 || no_names(s.fddir)) {
			int living = wg_living_dir(s.piddir);

			if (living >= 0) {
				if (s.fddir >= 0)
					close(s.fddir);
				close(s.piddir);
				s.piddir = living;
				s.fddir = openat(living, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			}
		}
		if (s.fddir >= 0) {
			int rc = wg_bulk_numbers(b, s.piddir, "fd", -1, hold_fd, &s);

			wg_bulk_put(b, rc < 0 && rc != -ESRCH ? R_DENIED : R_SEEN, a->pid[i], 0, NULL, 0);
			close(s.fddir);
		} else {
			wg_bulk_put(b, errno == EACCES || errno == EPERM ? R_DENIED : R_SEEN, a->pid[i],
				    0, NULL, 0);
		}
		close(s.piddir);
	}
	wg_bulk_put(b, R_DONE, 0, 0, NULL, 0);
}

static int by_key(const void *x, const void *y)
{
	const struct wg_holder *a = x, *b = y;

	if (a->key != b->key)
		return a->key < b->key ? -1 : 1;
	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	return a->fd < b->fd ? -1 : a->fd > b->fd;
}

/* A job over the listed user processes of this host. */
static struct wg_bulk *list_job(struct wg_facts *f, size_t room, int64_t uid)
{
	struct wg_pctx *c = wg_pctx(f);
	struct scan_arg *a;
	struct wg_bulk *b;

	wg_host_scan(f);
	b = wg_bulk_new(room, sizeof(*a) + c->host.procs.n * sizeof(int32_t));
	if (!b)
		return NULL;
	a = wg_bulk_arg(b);
	a->procfd = wg_bulk_own_fd(b, c->procfd);
	for (size_t i = 0; i < c->host.procs.n; i++) {
		const struct wg_hostproc *h = &c->host.procs.v[i];

		/* A leader that has ended, with threads that go on, is no dead process. */
		if (!h->kthread && (h->state != 'Z' || h->nthreads > 1) && h->state != 'X' && (uid < 0 || h->uid == uid))
			a->pid[a->n++] = h->pid;
	}
	return b;
}

void wg_host_scan_fds(struct wg_facts *f)
{
	struct wg_pctx *c = wg_pctx(f);
	size_t cursor = 0, cap = 0, denied = 0;
	struct wg_bulk *b;
	struct wg_raw r;
	bool done = false;

	if (c->host.fds_done)
		return;
	c->host.fds_done = true;
	b = list_job(f, 512 << 20, -1);
	if (!b)
		return;
	wg_bulk_run(b, wg_pctx_left(c, FDS_DEADLINE_S), scan_fds);
	while (wg_bulk_next(b, &cursor, &r)) {
		struct wg_hostproc *h;
		struct hold hold;

		switch (r.kind) {
		case R_DONE:
			done = true;
			break;
		case R_DENIED:
			denied++;
			break;
		case R_SEEN:
			h = (struct wg_hostproc *)wg_host_proc(c, r.id);
			if (h)
				h->fds_seen = true;
			break;
		case R_HOLD:
			if (c->host.nholders == cap) {
				size_t more = cap ? cap * 2 : 4096;
				void *v = realloc(c->host.holders, more * sizeof(*c->host.holders));

				if (!v)
					break;
				c->host.holders = v;
				cap = more;
			}
			memcpy(&hold, r.text, sizeof(hold));
			c->host.holders[c->host.nholders].key = hold.key;
			c->host.holders[c->host.nholders].pid = r.id;
			c->host.holders[c->host.nholders++].fd = hold.fd;
			break;
		}
	}
	wg_bulk_free(b);
	if (c->host.nholders)
		qsort(c->host.holders, c->host.nholders, sizeof(*c->host.holders), by_key);
	f->fd_scan_complete = done && !denied;
	if (denied)
		wg_add_missing(f, NULL, "descriptors of other users' processes",
			       wg_fmt(f->arena, "/proc/PID/fd of %zu processes: Permission denied", denied),
			       "run as root");
	if (!done)
		wg_add_missing(f, NULL, "descriptors of a part of the host's processes",
			       "/proc did not answer in time", NULL);
	if (!c->init_pidns)
		wg_add_missing(f, NULL, "processes outside of this container",
			       "another PID namespace", "run on the host");
}

const struct wg_holder *wg_host_holders(const struct wg_pctx *c, uint64_t key, size_t *n)
{
	size_t lo = 0, hi = c->host.nholders, first;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (c->host.holders[mid].key < key)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (first = lo; lo < c->host.nholders && c->host.holders[lo].key == key; lo++)
		;
	*n = key ? lo - first : 0;
	return c->host.holders + first;
}

/* ---- who else has a piece of memory mapped -------------------------------------------------------- */

/*
 * Every shared mapping of every process, in one pass: a job of 64 ranks asks for the same few
 * again and again. A private mapping shares nothing, whatever its file is.
 */
struct mapping { /* of one record */
	uint64_t dev, ino;
};

static bool shared_mapping(const char *line, struct mapping *m)
{
	const char *s = strchr(line, ' '); /* "LO-HI rw-s OFFSET MAJOR:MINOR INODE  PATH" */
	uint64_t major, minor;
	char *e;

	if (!s || strnlen(s, 6) < 6 || s[4] != 's')
		return false;
	s = strchr(s + 1, ' ');
	s = s ? strchr(s + 1, ' ') : NULL;
	if (!s)
		return false;
	major = strtoull(s + 1, &e, 16);
	if (*e != ':')
		return false;
	minor = strtoull(e + 1, &e, 16);
	m->dev = major << 20 | minor;
	m->ino = strtoull(e, NULL, 10);
	return m->ino != 0;
}

static const char *pid_name(int32_t pid, char *buf)
{
	sprintf(buf, "%d", pid);
	return buf;
}

static void scan_maps(struct wg_bulk *b)
{
	enum { LAST = 16 }; /* one object is often mapped in pieces */
	struct scan_arg *a = wg_bulk_arg(b);
	size_t cap = 256 << 10;
	char *buf = malloc(cap);

	for (size_t i = 0; buf && i < a->n; i++) {
		struct mapping last[LAST] = { 0 };
		char name[24], *line, *end;
		size_t n = 0, at = 0;
		ssize_t k = -1;
		int fd;

		snprintf(name, sizeof(name), "%d/maps", a->pid[i]);
		fd = openat(a->procfd, name, O_RDONLY | O_CLOEXEC);
		if (fd < 0) {
			if (errno == EACCES || errno == EPERM)
				wg_bulk_put(b, R_DENIED, a->pid[i], 0, NULL, 0);
			continue;
		}
		k = read(fd, buf, 1);
		if (!k) { /* no memory: an ended leader shows none */
			int dir = openat(a->procfd, pid_name(a->pid[i], name), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
			int living = dir >= 0 ? wg_living_dir(dir) : -1;

			if (dir >= 0)
				close(dir);
			if (living >= 0) {
				close(fd);
				fd = openat(living, "maps", O_RDONLY | O_CLOEXEC);
				close(living);
				if (fd < 0)
					continue;
			}
		} else if (k > 0) {
			n = (size_t)k;
		}
		/* By pieces: some processes have megabytes of them. */
		while ((k = read(fd, buf + n, cap - 1 - n)) > 0) {
			n += (size_t)k;
			buf[n] = 0;
			for (line = buf; (end = memchr(line, '\n', n - (size_t)(line - buf)));
			     line = end + 1) {
				struct mapping m;
				bool have = false;

				*end = 0;
				if (!shared_mapping(line, &m))
					continue;
				for (int j = 0; j < LAST && !have; j++)
					have = last[j].ino == m.ino && last[j].dev == m.dev;
				if (have)
					continue;
				last[at++ % LAST] = m;
				if (wg_bulk_put(b, R_MAPPER, a->pid[i], 0, &m, sizeof(m)) == -ENOSPC) {
					close(fd);
					goto out;
				}
			}
			n -= (size_t)(line - buf);
			memmove(buf, line, n);
			if (n >= cap - 1) /* no line is that long */
				break;
		}
		close(fd);
	}
	if (buf)
		wg_bulk_put(b, R_DONE, 0, 0, NULL, 0);
out:
	free(buf);
}

static int by_mapping(const void *x, const void *y)
{
	const struct wg_mapper *a = x, *b = y;

	if (a->dev != b->dev)
		return a->dev < b->dev ? -1 : 1;
	if (a->ino != b->ino)
		return a->ino < b->ino ? -1 : 1;
	return a->pid < b->pid ? -1 : a->pid > b->pid;
}

static void scan_mappers(struct wg_facts *f)
{
	struct wg_pctx *c = wg_pctx(f);
	size_t cursor = 0;
	bool done = false, denied = false;
	struct wg_bulk *b;
	struct wg_raw r;

	if (c->host.maps_done)
		return;
	c->host.maps_done = true;
	b = list_job(f, 128 << 20, -1);
	if (!b)
		return;
	wg_bulk_run(b, wg_pctx_left(c, MAPS_DEADLINE_S), scan_maps);
	while (wg_bulk_next(b, &cursor, &r)) {
		struct wg_mapper *x;
		struct mapping m;

		done |= r.kind == R_DONE;
		denied |= r.kind == R_DENIED;
		if (r.kind != R_MAPPER)
			continue;
		memcpy(&m, r.text, sizeof(m));
		x = wg_push(f->arena, &c->host.mappers);
		x->dev = m.dev;
		x->ino = m.ino;
		x->pid = r.id;
	}
	wg_bulk_free(b);
	c->host.maps_complete = done && !denied;
	if (!done)
		wg_add_missing(f, NULL, "some users of a shared mapping",
			       "/proc/PID/maps did not answer in time", NULL);
	if (c->host.mappers.n)
		qsort(c->host.mappers.v, c->host.mappers.n, sizeof(*c->host.mappers.v), by_mapping);
}

size_t wg_host_mappers(struct wg_facts *f, uint64_t dev, uint64_t ino, int32_t *out, size_t n)
{
	const struct wg_pctx *c = wg_pctx(f);
	struct wg_mapper key = { .dev = dev, .ino = ino };
	size_t lo = 0, hi, k = 0;

	scan_mappers(f);
	hi = c->host.mappers.n;
	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (by_mapping(&c->host.mappers.v[mid], &key) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (; k < n && lo < c->host.mappers.n; lo++) {
		const struct wg_mapper *x = &c->host.mappers.v[lo];

		if (x->dev != dev || x->ino != ino)
			break;
		if (!k || out[k - 1] != x->pid)
			out[k++] = x->pid;
	}
	return k;
}

/* ---- FUSE daemons ----------------------------------------------------------------------------------- */

struct cmd_arg {
	int procfd;
	int32_t pid;
};

static void read_cmd(struct wg_bulk *b)
{
	struct cmd_arg *a = wg_bulk_arg(b);
	char name[24];

	snprintf(name, sizeof(name), "%d/cmdline", a->pid);
	wg_bulk_file(b, a->procfd, name, R_CMD, a->pid, 64 * 1024);
}

static bool command_names(struct wg_facts *f, int32_t pid, const char *path)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_bulk *b = wg_bulk_new(1 << 18, sizeof(struct cmd_arg));
	size_t cursor = 0, n = strlen(path);
	bool hit = false;
	struct cmd_arg *a;
	struct wg_raw r;

	if (!b)
		return false;
	a = wg_bulk_arg(b);
	a->procfd = wg_bulk_own_fd(b, c->procfd);
	a->pid = pid;
	wg_bulk_run(b, wg_pctx_left(c, 0.2), read_cmd);
	while (wg_bulk_next(b, &cursor, &r))
		for (size_t at = 0; !r.err && at < r.len && !hit;) {
			size_t k = strnlen(r.text + at, r.len - at), bare = k;

			while (bare > 1 && r.text[at + bare - 1] == '/')
				bare--;
			hit = bare == n && !memcmp(r.text + at, path, n);
			at += k + 1;
		}
	wg_bulk_free(b);
	return hit;
}

struct io_arg {
	int procfd;
	size_t n;
	int32_t pid[16];
};

static void read_ios(struct wg_bulk *b)
{
	struct io_arg *a = wg_bulk_arg(b);
	char name[24];

	for (size_t i = 0; i < a->n; i++) {
		snprintf(name, sizeof(name), "%d/io", a->pid[i]);
		wg_bulk_file(b, a->procfd, name, R_IO, a->pid[i], 4096);
	}
}

/*
 * Children are given away when their maker ends, so its number is not in them any more. While its
 * own end has not been collected it is the one zombie of their name, session and group that is
 * older. 0: none, or several.
 */
static int32_t dead_maker(const struct wg_pctx *c, const struct wg_hostproc *orphan)
{
	int32_t found = 0;

	for (size_t i = 0; orphan && i < c->host.procs.n; i++) {
		const struct wg_hostproc *p = &c->host.procs.v[i];

		if ((p->state != 'Z' && p->state != 'X') || p->sid != orphan->sid || p->pgid != orphan->pgid ||
		    p->start > orphan->start || strcmp(p->comm, orphan->comm))
			continue;
		if (found)
			return 0;
		found = p->pid;
	}
	return found;
}

/*
 * A daemon lives on reading requests; a process that has never read anything since it was
 * forked merely inherited the descriptor. Of the holders the eldest that may be one; 0: none
 * of them is, and the process that made them (or its parent) is looked for.
 */
static int32_t serving(struct wg_facts *f, const struct wg_holder *h, size_t n, bool *gone)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_bulk *b = wg_bulk_new(1 << 18, sizeof(struct io_arg));
	int32_t best = h[0].pid;
	size_t cursor = 0;
	struct io_arg *a;
	struct wg_pt_io io;
	struct wg_raw r;
	bool may[16] = { false };

	if (!b)
		return best;
	a = wg_bulk_arg(b);
	a->procfd = wg_bulk_own_fd(b, c->procfd);
	for (size_t i = 0; i < n && a->n < 16; i++)
		if (!a->n || a->pid[a->n - 1] != h[i].pid)
			a->pid[a->n++] = h[i].pid;
	memset(may, true, a->n);
	wg_bulk_run(b, wg_pctx_left(c, 0.2), read_ios);
	while (wg_bulk_next(b, &cursor, &r))
		for (size_t i = 0; i < a->n; i++)
			if (a->pid[i] == r.id && !r.err && wg_pt_io(r.text, &io) && io.rchar == 0)
				may[i] = false;
	for (size_t i = 0; i < a->n; i++)
		if (may[i]) {
			best = a->pid[i];
			wg_bulk_free(b);
			return best;
		}
	wg_bulk_free(b);
	*gone = true;
	return dead_maker(c, wg_host_proc(c, h[0].pid));
}

/* Of several holders of one connection (a daemon that forked) the one to name is the eldest. */
int32_t wg_fuse_daemon(struct wg_facts *f, const struct wg_mount *m, bool *gone)
{
	struct wg_pctx *c = wg_pctx(f);
	const struct wg_holder *h;
	int32_t named = 0, only = 0;
	bool many = false;
	size_t n;

	*gone = false;
	if (!m || strncmp(m->type, "fuse", 4))
		return 0;
	wg_host_scan_fds(f);
	h = wg_host_holders(c, wg_key_ino(WG_KEY_FUSE, (m->dev & 0xfffff) + 1), &n);
	if (n)
		return serving(f, h, n, gone);
	h = wg_host_holders(c, wg_key_ino(WG_KEY_FUSE, 0), &n);
	for (size_t i = 0; i < n; i++) {
		many |= only && only != h[i].pid;
		only = h[i].pid;
	}
	if (!many)
		return n ? serving(f, h, n, gone) : 0;
	/* Several file systems: the daemon was usually started with the mount point's name. */
	many = false;
	for (size_t i = 0; i < n; i++) {
		if (h[i].pid == named || !command_names(f, h[i].pid, m->point))
			continue;
		many |= named != 0;
		named = h[i].pid;
	}
	return many ? 0 : named;
}

/* ---- ranks of one job --------------------------------------------------------------------------------- */

static void read_environs(struct wg_bulk *b)
{
	struct scan_arg *a = wg_bulk_arg(b);
	char name[24];

	for (size_t i = 0; i < a->n; i++) {
		snprintf(name, sizeof(name), "%d/environ", a->pid[i]);
		wg_bulk_file(b, a->procfd, name, R_ENV, a->pid[i], 256 * 1024);
	}
}

/* Which job, and which rank in it: "" when the environment does not say. */
static void job_of(const char *text, size_t len, char *out, size_t n, char *rank, size_t rn)
{
	static const char *const names[] = { "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
		"SLURM_JOB_ID", "SLURM_STEP_ID", "OMPI_MCA_orte_ess_jobid", "PMIX_NAMESPACE",
		"OMPI_MCA_ess_base_jobid", NULL };
	static const char *const ranks[] = { "RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK",
					     "PMIX_RANK", NULL };
	const char *name, *value;
	size_t at, nn, vn, k = 0;

	out[0] = rank[0] = 0;
	for (int i = 0; ranks[i] && !rank[0]; i++)
		for (at = 0; wg_pt_env(text, len, &at, &name, &nn, &value, &vn);)
			if (nn == strlen(ranks[i]) && !memcmp(name, ranks[i], nn) && vn && vn < rn) {
				memcpy(rank, value, vn);
				rank[vn] = 0;
			}
	if (!rank[0])
		return;
	for (int i = 0; names[i]; i++)
		for (at = 0; wg_pt_env(text, len, &at, &name, &nn, &value, &vn);)
			if (nn == strlen(names[i]) && !memcmp(name, names[i], nn) && k + vn + nn + 3 < n)
				k += (size_t)snprintf(out + k, n - k, "%s=%.*s;", names[i], (int)vn, value);
}

size_t wg_host_same_job(struct wg_facts *f, struct wg_process *p, int32_t *out, size_t n)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_bulk *b = list_job(f, 512 << 20, p->uid);
	char job[1024], mine[1024] = "", rank[32], myrank[32] = "";
	size_t cursor = 0, k = 0;
	struct wg_raw r;

	if (!b)
		return 0;
	if (wg_bulk_run(b, wg_pctx_left(c, 1.0), read_environs) == -ETIMEDOUT)
		wg_add_missing(f, NULL, "some ranks of this job on this host",
			       "/proc/PID/environ did not answer in time", NULL);
	while (wg_bulk_next(b, &cursor, &r))
		if (r.id == p->pid && !r.err)
			job_of(r.text, r.len, mine, sizeof(mine), myrank, sizeof(myrank));
	for (cursor = 0; mine[0] && k < n && wg_bulk_next(b, &cursor, &r);) {
		const struct wg_hostproc *h = wg_host_proc(c, r.id);

		if (r.err || !h || r.id == p->pid)
			continue;
		job_of(r.text, r.len, job, sizeof(job), rank, sizeof(rank));
		/* A worker inherits its rank's environment: it comes as that rank's child. */
		if (!strcmp(job, mine) && strcmp(rank, myrank))
			out[k++] = r.id;
	}
	wg_bulk_free(b);
	return k;
}

/* ---- the ends of one process' waits ---------------------------------------------------------------------- */

typedef void want_fn(struct wg_facts *f, struct wg_process *from, int32_t pid, int32_t fd,
		     bool full);

static void want_key(struct wg_facts *f, struct wg_process *p, uint64_t key, bool full,
		     want_fn *want)
{
	const struct wg_holder *h;
	size_t n;

	wg_host_scan_fds(f);
	h = wg_host_holders(wg_pctx(f), key, &n);
	for (size_t i = 0; i < n; i++)
		if (h[i].pid != p->pid)
			want(f, p, h[i].pid, h[i].fd, full);
}

/* The scan hashed the link as the kernel shows it: what has no name any more says so. */
static uint64_t key_of_file(const struct wg_file *x)
{
	char link[4096 + 16];

	if (!x->deleted)
		return wg_key_of_link(x->path);
	snprintf(link, sizeof(link), "%s (deleted)", x->path);
	return wg_key_of_link(link);
}

static void want_file(struct wg_facts *f, struct wg_process *p, const struct wg_file *x, bool full,
		      want_fn *want)
{
	switch (x->kind) {
	case WG_FILE_PIPE:
		want_key(f, p, wg_key_ino(WG_KEY_PIPE, x->ino), full, want);
		break;
	case WG_FILE_FIFO:
		if (x->path)
			want_key(f, p, key_of_file(x), full, want);
		break;
	case WG_FILE_SOCKET:
		if (x->sock_peer_ino)
			want_key(f, p, wg_key_ino(WG_KEY_SOCKET, x->sock_peer_ino), full, want);
		/* Whoever shares this end could take the message instead. */
		want_key(f, p, wg_key_ino(WG_KEY_SOCKET, x->ino), false, want);
		break;
	case WG_FILE_TTY:
		if (x->pty_index >= 0)
			want_key(f, p, wg_key_ino(WG_KEY_PTY, (uint64_t)x->pty_index), full, want);
		break;
	case WG_FILE_PIDFD:
		if (x->pidfd_pid > 0)
			want(f, p, x->pidfd_pid, -1, full);
		break;
	default:
		break;
	}
}

static void want_locks(struct wg_facts *f, struct wg_process *p, uint64_t dev, uint64_t ino,
		       uint64_t key, want_fn *want)
{
	for (size_t i = 0; i < f->locks.n; i++) {
		const struct wg_file_lock *l = &f->locks.v[i];

		if (l->blocked || l->ino != ino || l->dev != dev)
			continue;
		if (l->pid > 0 && l->pid != p->pid)
			want(f, p, l->pid, -1, true);
		/* Who has it through an inherited or open-description lock shows in fdinfo. */
		if (l->kind != 'p' && key) {
			const struct wg_holder *h;
			size_t n;

			wg_host_scan_fds(f);
			h = wg_host_holders(wg_pctx(f), key, &n);
			for (size_t k = 0; k < n; k++)
				if (h[k].pid != p->pid && h[k].pid != l->pid)
					want(f, p, h[k].pid, h[k].fd, false);
		}
	}
}

static void want_file_system(struct wg_facts *f, struct wg_process *p, struct wg_wait *w,
			     struct wg_file *x, want_fn *want)
{
	const struct wg_mounts *mounts = wg_mounts_of(f, p);
	const struct wg_mount *m = NULL;

	if (x && x->path && x->path[0] == '/') {
		for (size_t i = 0; mounts && i < mounts->v.n && !m; i++)
			if (mounts->v.v[i].dev == x->dev && x->dev)
				m = &mounts->v.v[i];
	} else if (w->path && w->path[0] == '/' && w->op != WG_OP_CONNECT) {
		m = wg_mount_by_path(mounts, w->path);
	}
	if (!m)
		return;
	w->fs_type = m->type;
	w->fs_mount = m->point;
	w->remote_fs = m->remote;
	w->fs_daemon_pid = wg_fuse_daemon(f, m, &w->fs_daemon_gone);
	if (x)
		x->fs_daemon_pid = w->fs_daemon_pid;
	if (w->fs_daemon_pid && w->fs_daemon_pid != p->pid)
		want(f, p, w->fs_daemon_pid, -1, true);
}

/* Everybody who has this memory mapped. */
static void want_mappers(struct wg_facts *f, struct wg_process *p, struct wg_wait *w, uint64_t dev,
			 uint64_t ino, want_fn *want)
{
	int32_t pids[64];
	size_t n = wg_host_mappers(f, dev, ino, pids, sizeof(pids) / sizeof(pids[0]));

	w->sharers.n = 0;
	w->sharers_known = wg_pctx(f)->host.maps_complete && n < sizeof(pids) / sizeof(pids[0]);
	for (size_t i = 0; i < n; i++)
		if (pids[i] != p->pid) {
			*wg_push(f->arena, &w->sharers) = pids[i];
			want(f, p, pids[i], -1, true);
		}
}

static void want_sharers(struct wg_facts *f, struct wg_process *p, struct wg_wait *w,
			 const struct wg_wait **last, want_fn *want)
{
	w->sharers.n = 0;
	w->sharers_known = false;
	if (!w->futex.is_shared || !w->futex.map_ino)
		return;
	/* All threads of a pool wait on one object: once is enough. */
	if (*last && (*last)->futex.map_dev == w->futex.map_dev &&
	    (*last)->futex.map_ino == w->futex.map_ino) {
		for (size_t i = 0; i < (*last)->sharers.n; i++)
			*wg_push(f->arena, &w->sharers) = (*last)->sharers.v[i];
		w->sharers_known = (*last)->sharers_known;
		return;
	}
	*last = w;
	want_mappers(f, p, w, w->futex.map_dev, w->futex.map_ino, want);
}

static void want_wait(struct wg_facts *f, struct wg_process *p, struct wg_thread *t,
		      const struct wg_wait **last, want_fn *want)
{
	struct wg_wait *w = &t->wait;
	struct wg_file *x = wg_has_int(w->fd) ? wg_find_file(p, w->fd) : NULL;

	if (x && w->op != WG_OP_EPOLL)
		want_file(f, p, x, true, want);
	for (size_t i = 0; i < w->fds.n; i++) {
		const struct wg_file *y = wg_find_file(p, w->fds.v[i].fd);

		if (y)
			want_file(f, p, y, w->fds.n <= BIG_SET, want);
	}
	if (x && (w->op == WG_OP_FLOCK || w->op == WG_OP_FCNTL))
		want_locks(f, p, x->dev, x->ino, x->path ? key_of_file(x) : 0, want);
	if (w->child > 0)
		want(f, p, (int32_t)w->child, -1, true);
	switch (w->op) {
	case WG_OP_READ:
	case WG_OP_WRITE:
	case WG_OP_SYNC:
	case WG_OP_OPEN:
	case WG_OP_FSMETA:
	case WG_OP_FAULT:
	case WG_OP_SPLICE:
	case WG_OP_FLOCK:
	case WG_OP_FCNTL:
	case WG_OP_IOCTL:
		want_file_system(f, p, w, x, want);
		break;
	case WG_OP_FUTEX:
		want_sharers(f, p, w, last, want);
		break;
	case WG_OP_SYSV:
		if (x && x->path) /* a POSIX queue: whoever has it open is at the other end */
			want_key(f, p, key_of_file(x), true, want);
		wg_ipc_collect(f, p, t);
		if (w->ipc_last)
			want(f, p, w->ipc_last, -1, true);
		break;
	default:
		break;
	}
	if (t->repeat_syscall &&
	    (!strcmp(t->repeat_syscall, "fcntl") || !strcmp(t->repeat_syscall, "flock"))) {
		const struct wg_file *y =
			wg_has_int(t->repeat_fd) ? wg_find_file(p, t->repeat_fd) : NULL;

		if (y)
			want_locks(f, p, y->dev, y->ino, y->path ? key_of_file(y) : 0, want);
		else if (t->repeat_ino)
			want_locks(f, p, t->repeat_dev, t->repeat_ino,
				   wg_key_of_link(t->repeat_path), want);
	}
	for (size_t i = 0; i < t->polled.n; i++)
		if (t->polled.v[i].map_ino) {
			want_mappers(f, p, w, t->polled.v[i].map_dev, t->polled.v[i].map_ino, want);
			break;
		}
	if (t->repeat_path && t->repeat_path[0] == '/')
		want_key(f, p, wg_key_of_link(t->repeat_path), false, want);
}

void wg_endpoints(struct wg_facts *f, struct wg_process *p, want_fn *want)
{
	const struct wg_wait *last = NULL;

	for (size_t i = 0; i < p->children.n; i++)
		want(f, p, p->children.v[i], -1, true);
	/* The parent of a fork has the threads and locks that the child was copied from. */
	if (p->ppid > 1 || (p->ppid == 1 && p->forked))
		want(f, p, p->ppid, -1, p->forked && p->ppid > 1);
	if (p->tracer_pid)
		want(f, p, p->tracer_pid, -1, true);
	for (size_t i = 0; i < p->threads.n; i++)
		if (!p->threads.v[i].ours)
			want_wait(f, p, &p->threads.v[i], &last, want);
	for (int fd = 1; fd <= 2; fd++) { /* who should be reading what it prints */
		const struct wg_file *x = wg_find_file(p, fd);

		if (x)
			want_file(f, p, x, false, want);
	}
}
