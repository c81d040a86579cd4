/* SPDX-License-Identifier: Apache-2.0 */
/*
 * files.c - the descriptors of a process.
 *
 * From readlink and fdinfo, which ask no file system: kind, inode, position, flags, locks,
 * the counters of eventfd and timerfd, what an epoll set watches. A stat can hang behind a
 * server that does not answer, so files of remote file systems are asked last, without
 * asking the server to bring its answer up to date, and a mount that did not answer is not
 * asked again.
 *
 * Opening /proc/PID/fd/N is never done: it would make us a reader of the pipe (or break a
 * lease, or wake a daemon). Where the kernel must be asked about the very object (how full a
 * pipe is, a socket's timeout, a file's dirty pages) the descriptor is duplicated with
 * pidfd_getfd() for some microseconds, only for objects that a thread is blocked on, or for
 * files on local file systems, where closing a duplicate does nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "bulk.h"
#include "procfs.h"

#ifndef SYS_cachestat
#define SYS_cachestat 451
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define FILES_DEADLINE_S 2.0
#define STAT_DEADLINE_S 0.5
#define MAX_TFD 1024
#define MAX_HUNG 3
#define MAX_CACHESTAT 32

enum { R_LINK = 1, R_INFO, R_MOUNTS, R_STATING, R_STATX, R_COUNT, R_PIPE, R_TIMEO, R_DIRTY };

/* ---- mounts ---------------------------------------------------------------------- */

struct mounts_arg {
	int dirfd;
};

static void read_mounts(struct wg_bulk *b)
{
	struct mounts_arg *a = wg_bulk_arg(b);

	wg_bulk_file(b, a->dirfd, "mountinfo", R_MOUNTS, 0, 8 << 20);
}

struct wg_mounts *wg_mounts_of(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	struct wg_mounts *m;
	struct mounts_arg *a;
	struct wg_pt_mount one;
	size_t cursor = 0;
	struct wg_bulk *b;
	struct wg_raw r;

	if (k->mounts)
		return k->mounts;
	for (size_t i = 0; k->mntns && i < c->mounts.n; i++)
		if (c->mounts.v[i]->ns == k->mntns)
			return k->mounts = c->mounts.v[i];
	if (k->dirfd < 0)
		return NULL;
	m = wg_alloc(f->arena, sizeof(*m));
	m->ns = k->mntns;
	b = wg_bulk_new(16 << 20, sizeof(*a));
	if (!b)
		return NULL;
	a = wg_bulk_arg(b);
	a->dirfd = wg_bulk_own_fd(b, k->dirfd);
	if (wg_bulk_run(b, wg_pctx_left(c, 0.5), read_mounts) == -ETIMEDOUT)
		wg_add_missing(f, p, "mounts", "/proc/PID/mountinfo did not answer in time", NULL);
	while (wg_bulk_next(b, &cursor, &r)) {
		const char *s = r.text;

		while (!r.err && wg_pt_mount(&s, &one)) {
			struct wg_mount *x = wg_push(f->arena, &m->v);

			x->id = one.id;
			x->dev = one.dev;
			x->point = wg_str(f->arena, one.point);
			x->type = wg_str(f->arena, one.type);
			x->source = wg_str(f->arena, one.source);
			x->remote = wg_pt_remote_fs(one.type);
		}
	}
	wg_bulk_free(b);
	*wg_push(f->arena, &c->mounts) = m;
	return k->mounts = m;
}

const struct wg_mount *wg_mount_by_id(const struct wg_mounts *m, int32_t id)
{
	for (size_t i = 0; m && i < m->v.n; i++)
		if (m->v.v[i].id == id)
			return &m->v.v[i];
	return NULL;
}

const struct wg_mount *wg_mount_by_path(const struct wg_mounts *m, const char *path)
{
	const struct wg_mount *best = NULL;
	size_t len = 0;

	for (size_t i = 0; m && path && i < m->v.n; i++) {
		const char *point = m->v.v[i].point;
		size_t n = strlen(point);

		if (n == 1)
			n = 0; /* "/" is a prefix of all */
		/* Later mounts cover earlier ones at the same point. */
		if (!strncmp(path, point, n) && (path[n] == '/' || !path[n]) && (!best || n >= len)) {
			best = &m->v.v[i];
			len = n;
		}
	}
	return best;
}

/* ---- the table of descriptors ------------------------------------------------------ */

struct files_arg {
	int dirfd;
};
struct fd_reader {
	int fddir, infodir;
	int count;
};

static void read_fd(struct wg_bulk *b, int fd, void *arg)
{
	struct fd_reader *a = arg;
	char name[16];

	if (a->count++ >= WG_MAX_FILES)
		return;
	snprintf(name, sizeof(name), "%d", fd);
	if (!wg_bulk_link(b, a->fddir, name, R_LINK, fd) && a->infodir >= 0)
		wg_bulk_file(b, a->infodir, name, R_INFO, fd, 1 << 20);
}

static int read_fds(struct wg_bulk *b, int dirfd, bool last)
{
	struct fd_reader a = { .count = 0 };
	int rc;

	a.fddir = openat(dirfd, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (a.fddir < 0) {
		rc = -errno;
		if (last)
			wg_bulk_put(b, R_COUNT, 0, rc, NULL, 0);
		return rc;
	}
	a.infodir = openat(dirfd, "fdinfo", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	rc = wg_bulk_numbers(b, dirfd, "fd", -1, read_fd, &a);
	if (last || a.count)
		wg_bulk_put(b, R_COUNT, a.count, rc < 0 ? rc : 0, NULL, 0);
	close(a.fddir);
	if (a.infodir >= 0)
		close(a.infodir);
	return a.count;
}

void wg_files_read(struct wg_bulk *b, int dirfd)
{
	int living;

	if (read_fds(b, dirfd, false) > 0)
		return;
	living = wg_living_dir(dirfd);
	read_fds(b, living >= 0 ? living : dirfd, true);
	if (living >= 0)
		close(living);
}

/* Where its descriptors are shown: k->dirfd, or a directory of a thread's, to be closed. */
static int files_dir(const struct wg_pproc *k)
{
	int living = k->got_stat && k->stat.state == 'Z' ? wg_living_dir(k->dirfd) : -1;

	return living >= 0 ? living : k->dirfd;
}

static void read_files(struct wg_bulk *b)
{
	wg_files_read(b, ((struct files_arg *)wg_bulk_arg(b))->dirfd);
}

/* The records of p's descriptors: prefetched with the threads, or from a job of their own. */
static struct wg_bulk *files_of(struct wg_facts *f, struct wg_process *p, struct wg_part *part,
				int *rc)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	struct wg_bulk *b;

	*part = k->files_part;
	k->files_part.b = NULL;
	*rc = 0;
	if (part->b)
		return part->b;
	b = wg_bulk_new(64 << 20, sizeof(struct files_arg));
	if (!b)
		return NULL;
	((struct files_arg *)wg_bulk_arg(b))->dirfd = wg_bulk_own_fd(b, k->dirfd);
	*rc = wg_bulk_run(b, wg_pctx_left(c, FILES_DEADLINE_S), read_files);
	part->b = b;
	part->from = 0;
	part->to = SIZE_MAX;
	return b;
}

static enum wg_file_kind kind_of_link(const char *s)
{
	static const struct {
		const char *name;
		enum wg_file_kind kind;
	} anon[] = { { "eventfd", WG_FILE_EVENTFD }, { "eventpoll", WG_FILE_EPOLL },
		     { "inotify", WG_FILE_INOTIFY }, { "timerfd", WG_FILE_TIMERFD },
		     { "signalfd", WG_FILE_SIGNALFD }, { "pidfd", WG_FILE_PIDFD },
		     { "io_uring", WG_FILE_URING } };

	if (!strncmp(s, "pipe:[", 6))
		return WG_FILE_PIPE;
	if (!strncmp(s, "socket:[", 8))
		return WG_FILE_SOCKET;
	if (!strncmp(s, "pidfd:[", 7))
		return WG_FILE_PIDFD;
	if (!strncmp(s, "/memfd:", 7))
		return WG_FILE_MEMFD;
	if (!strncmp(s, "/dev/pts/", 9) || !strcmp(s, "/dev/ptmx") || !strcmp(s, "/dev/tty") ||
	    !strcmp(s, "/dev/console") || !strncmp(s, "/dev/ttyS", 9))
		return WG_FILE_TTY;
	if (!strncmp(s, "anon_inode:", 11)) {
		s += 11;
		s += *s == '[';
		for (size_t i = 0; i < sizeof(anon) / sizeof(anon[0]); i++)
			if (!strncmp(s, anon[i].name, strlen(anon[i].name)))
				return anon[i].kind;
	}
	return WG_FILE_OTHER;
}

static void take_link(struct wg_facts *f, struct wg_file *x, char *s, size_t len)
{
	static const char gone[] = " (deleted)";

	if (len > sizeof(gone) && !strcmp(s + len - (sizeof(gone) - 1), gone)) {
		x->deleted = true;
		len -= sizeof(gone) - 1;
		s[len] = 0;
	}
	x->kind = kind_of_link(s);
	if (x->kind == WG_FILE_MEMFD)
		x->deleted = false; /* it never had a name to delete */
	x->path = wg_strn(f->arena, s, len);
	x->ino = wg_link_ino(s, x->kind == WG_FILE_PIPE ? "pipe:[" : "socket:[");
	if (x->kind == WG_FILE_TTY && !strncmp(s, "/dev/pts/", 9) && s[9] >= '0' && s[9] <= '9')
		x->pty_index = atoi(s + 9);
}

static void take_info(struct wg_facts *f, struct wg_process *p, struct wg_file *x, const char *text)
{
	struct wg_pproc *k = wg_pproc(f, p);
	static struct wg_pt_tfd tfd[MAX_TFD];
	struct wg_pt_fdinfo i;
	const struct wg_mount *m;

	if (!wg_pt_fdinfo(text, &i, tfd, MAX_TFD))
		return;
	x->flags = i.flags;
	x->pos = i.pos;
	if (i.ino && !x->ino)
		x->ino = i.ino;
	x->lock_kind = i.lock_kind;
	m = wg_mount_by_id(wg_mounts_of(f, p), i.mnt_id);
	if (m && x->path && x->path[0] == '/') {
		x->dev = m->dev;
		x->fs_type = m->type;
		x->fs_mount = m->point;
		x->fs_source = m->source;
		x->remote_fs = m->remote;
	}
	switch (x->kind) {
	case WG_FILE_EVENTFD:
		x->event_count = i.event_count;
		x->ino = i.event_id != INT64_MIN ? (uint64_t)i.event_id : 0;
		x->dev = 0;
		break;
	case WG_FILE_TIMERFD:
		if (i.has_timer)
			x->timer_left_s = (double)i.timer_s + (double)i.timer_ns * 1e-9;
		break;
	case WG_FILE_PIDFD:
		x->pidfd_pid = i.pid != INT32_MAX ? i.pid : 0;
		break;
	case WG_FILE_EPOLL:
		for (size_t n = 0; n < i.ntfd && n < MAX_TFD; n++) {
			struct wg_pollfd *e = wg_push(f->arena, &x->epoll);

			e->fd = tfd[n].fd;
			e->events = (int16_t)(tfd[n].events & 0x7fff);
		}
		if (i.ntfd > MAX_TFD)
			wg_add_missing(f, p, "part of a very large epoll set", "more than 1024 descriptors",
				       NULL);
		break;
	case WG_FILE_TTY:
		if (i.tty_index >= 0)
			x->pty_index = i.tty_index;
		if (x->path && !strcmp(x->path, "/dev/tty")) {
			unsigned int t = (unsigned int)k->stat.tty;
			unsigned int maj = t >> 8 & 0xfff, min = (t & 0xff) | (t >> 12 & 0xfff00);

			if (maj >= 136 && maj <= 143)
				x->pty_index = (int32_t)(min + (maj - 136) * 256);
		}
		/*
		 * A master opened through /dev/ptmx lies on the file system of /dev; what tells two
		 * instances of devpts apart is the one that this process has mounted.
		 */
		if (m && strcmp(m->type, "devpts")) {
			const struct wg_mount *pts = wg_mount_by_path(wg_mounts_of(f, p), "/dev/pts");

			x->dev = pts && !strcmp(pts->type, "devpts") ? pts->dev : 0;
		}
		break;
	default:
		break;
	}
	if (i.fuse_connection != INT64_MIN && x->path && !strcmp(x->path, "/dev/fuse"))
		x->event_count = i.fuse_connection; /* the minor of the mounts it serves */
}

/* ---- stat ------------------------------------------------------------------------------- */

struct stat_arg {
	int fddir;
	size_t n;
	int32_t fd[]; /* in the order to ask */
};

static void read_stats(struct wg_bulk *b)
{
	struct stat_arg *a = wg_bulk_arg(b);
	struct statx st;
	char name[16];

	for (size_t i = 0; i < a->n; i++) {
		int rc;

		wg_bulk_put(b, R_STATING, a->fd[i], 0, NULL, 0);
		snprintf(name, sizeof(name), "%d", a->fd[i]);
		rc = statx(a->fddir, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT,
			   STATX_BASIC_STATS, &st);
		wg_bulk_put(b, R_STATX, a->fd[i], rc ? -errno : 0, &st, rc ? 0 : sizeof(st));
	}
}

/* Since 6.15 the kernel no longer keeps the times of anonymous pipes. */
static bool pipes_have_times(void)
{
	static int known;
	struct utsname u;
	int maj, min;

	if (!known)
		known = !uname(&u) && sscanf(u.release, "%d.%d", &maj, &min) == 2 &&
				(maj < 6 || (maj == 6 && min < 15)) ? 1 : -1;
	return known > 0;
}

static void take_stat(struct wg_file *x, const struct statx *st, bool again)
{
	struct timespec now;
	double age;

	if (x->kind == WG_FILE_OTHER || again) {
		switch (st->stx_mode & S_IFMT) {
		case S_IFREG:
			x->kind = x->kind == WG_FILE_MEMFD ? WG_FILE_MEMFD : WG_FILE_REG;
			break;
		case S_IFDIR:
			x->kind = WG_FILE_DIR;
			break;
		case S_IFIFO:
			x->kind = x->kind == WG_FILE_PIPE ? WG_FILE_PIPE : WG_FILE_FIFO;
			break;
		case S_IFCHR:
			x->kind = x->kind == WG_FILE_TTY || st->stx_rdev_major == 4 ||
				  (st->stx_rdev_major >= 136 && st->stx_rdev_major <= 143) ?
				  WG_FILE_TTY : WG_FILE_CHAR;
			break;
		case S_IFBLK:
			x->kind = WG_FILE_BLOCK;
			break;
		}
	}
	if (!x->ino)
		x->ino = st->stx_ino;
	if (!x->dev && x->path && x->path[0] == '/' && x->kind != WG_FILE_TTY)
		x->dev = (uint64_t)st->stx_dev_major << 20 | (st->stx_dev_minor & 0xfffff);
	if (x->kind != WG_FILE_REG && x->kind != WG_FILE_MEMFD && x->kind != WG_FILE_FIFO &&
	    !(x->kind == WG_FILE_PIPE && pipes_have_times()))
		return;
	if (x->kind == WG_FILE_REG || x->kind == WG_FILE_MEMFD) {
		if (again && wg_has_int(x->size))
			x->size_delta = (int64_t)st->stx_size - x->size;
		x->size = (int64_t)st->stx_size;
	}
	clock_gettime(CLOCK_REALTIME, &now);
	age = (double)(now.tv_sec - st->stx_mtime.tv_sec) +
	      (double)((int64_t)now.tv_nsec - (int64_t)st->stx_mtime.tv_nsec) * 1e-9;
	/* A server that tells no times says 1970. */
	x->last_write_age_s = !st->stx_mtime.tv_sec ? WG_NO_SEC : age >= 0 ? age : age > -2 ? 0 : WG_NO_SEC;
}

static bool wants_stat(const struct wg_file *x)
{
	return x->path && (x->path[0] == '/' || (x->kind == WG_FILE_PIPE && pipes_have_times()));
}

static void mark_hung(struct wg_facts *f, struct wg_process *p, const struct wg_file *x)
{
	struct wg_mounts *m = wg_mounts_of(f, p);

	for (size_t i = 0; m && x && i < m->v.n; i++)
		if (x->dev && m->v.v[i].dev == x->dev)
			m->v.v[i].hung = true;
	wg_add_missing(f, p,
		       wg_fmt(f->arena, "size and age of files on %s",
			      x && x->fs_mount ? x->fs_mount : "a file system"),
		       "the file system did not answer a stat in time", NULL);
}

static bool is_hung(struct wg_facts *f, struct wg_process *p, const struct wg_file *x)
{
	const struct wg_mounts *m = wg_mounts_of(f, p);

	for (size_t i = 0; m && i < m->v.n; i++)
		if (m->v.v[i].hung && m->v.v[i].dev == x->dev)
			return true;
	return false;
}

static bool stat_one(struct wg_file *x, int fddir, bool again)
{
	struct statx st;
	char name[16];

	snprintf(name, sizeof(name), "%d", x->fd);
	if (statx(fddir, name, AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &st))
		return false;
	take_stat(x, &st, again);
	return true;
}

/*
 * Stat p's files from index `from` on; `again` only those that can have grown. What lies on
 * a local file system is in memory and answers at once (there is no path to walk); the rest
 * is asked on a thread that can be left behind.
 */
static void stat_files(struct wg_facts *f, struct wg_process *p, size_t from, bool again)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	bool *done = calloc(p->files.n + 1, sizeof(*done));
	int dir = files_dir(k), fddir = openat(dir, "fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (dir != k->dirfd)
		close(dir);
	for (size_t i = from; done && fddir >= 0 && i < p->files.n; i++) {
		struct wg_file *x = &p->files.v[i];

		done[i] = !wants_stat(x) || (again && !(x->kind == WG_FILE_REG && wg_has_int(x->flags) &&
							(x->flags & O_ACCMODE) != O_RDONLY));
		if (done[i] || x->remote_fs || (!x->fs_type && x->kind != WG_FILE_PIPE)) /* unknown */
			continue;
		stat_one(x, fddir, again);
		done[i] = true;
	}
	for (int hung = 0; done && fddir >= 0 && hung < MAX_HUNG; hung++) {
		struct wg_bulk *b;
		int32_t asking = -1;
		struct stat_arg *a;
		size_t cursor = 0, n = 0;
		struct wg_raw r;
		int rc;

		for (size_t i = from; i < p->files.n; i++)
			n += !done[i] && !is_hung(f, p, &p->files.v[i]);
		if (!n)
			break;
		b = wg_bulk_new(16 << 20, sizeof(*a) + n * sizeof(a->fd[0]));
		if (!b)
			break;
		a = wg_bulk_arg(b);
		for (size_t i = from; i < p->files.n; i++)
			if (!done[i] && !is_hung(f, p, &p->files.v[i]))
				a->fd[a->n++] = p->files.v[i].fd;
		a->fddir = wg_bulk_own_fd(b, fddir);
		rc = wg_bulk_run(b, wg_pctx_left(c, STAT_DEADLINE_S), read_stats);
		while (wg_bulk_next(b, &cursor, &r)) {
			struct wg_file *x = wg_find_file(p, r.id);

			if (r.kind == R_STATING) {
				asking = r.id;
				continue;
			}
			if (x)
				done[x - p->files.v] = true;
			asking = -1;
			if (x && !r.err && r.len == sizeof(struct statx)) {
				struct statx st;

				memcpy(&st, r.text, sizeof(st));
				take_stat(x, &st, again);
			}
		}
		wg_bulk_free(b);
		if (rc != -ETIMEDOUT)
			break;
		if (asking >= 0) {
			struct wg_file *x = wg_find_file(p, asking);

			mark_hung(f, p, x);
			if (x)
				done[x - p->files.v] = true;
		}
	}
	for (size_t i = from; i < p->files.n; i++) {
		struct wg_file *x = &p->files.v[i];

		/* Not told: but what else would a program read and write on a file server? */
		if (x->kind == WG_FILE_OTHER && x->remote_fs && wg_has_int(x->flags))
			x->kind = x->flags & O_DIRECTORY ? WG_FILE_DIR : WG_FILE_REG;
		/* A descriptor that was only written: its position is what went through it. */
		if (x->kind == WG_FILE_REG && wg_has_int(x->flags) && wg_has_int(x->pos) &&
		    (x->flags & O_ACCMODE) == O_WRONLY)
			x->written_bytes = x->pos;
	}
	if (fddir >= 0)
		close(fddir);
	free(done);
}

/* ---- duplicates: what only the object itself can tell --------------------------------------- */

struct dup_arg {
	size_t n;
	struct {
		int pidfd;
		int32_t fd;
		int what; /* R_PIPE, R_TIMEO, R_DIRTY */
	} at[];
};

static void read_dups(struct wg_bulk *b)
{
	struct dup_arg *a = wg_bulk_arg(b);

	for (size_t i = 0; i < a->n; i++) {
		int fd = (int)syscall(SYS_pidfd_getfd, a->at[i].pidfd, a->at[i].fd, 0);
		int64_t v[2] = { -1, -1 };

		if (fd < 0) {
			wg_bulk_put(b, a->at[i].what, (int)i, -errno, NULL, 0);
			continue;
		}
		if (a->at[i].what == R_PIPE) {
			int n;

			if (!ioctl(fd, FIONREAD, &n))
				v[0] = n;
			v[1] = fcntl(fd, F_GETPIPE_SZ);
		} else if (a->at[i].what == R_TIMEO) {
			struct timeval t;
			socklen_t len = sizeof(t);

			if (!getsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &t, &len))
				v[0] = (int64_t)t.tv_sec * 1000000 + t.tv_usec;
			len = sizeof(t);
			if (!getsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, &len))
				v[1] = (int64_t)t.tv_sec * 1000000 + t.tv_usec;
		} else {
			struct {
				uint64_t off, len;
			} range = { 0, 0 };
			struct {
				uint64_t cache, dirty, writeback, evicted, recent;
			} st;

			if (!syscall(SYS_cachestat, fd, &range, &st, 0)) {
				v[0] = (int64_t)st.dirty * sysconf(_SC_PAGESIZE);
				v[1] = (int64_t)st.writeback * sysconf(_SC_PAGESIZE);
			}
		}
		close(fd);
		wg_bulk_put(b, a->at[i].what, (int)i, 0, v, sizeof(v));
	}
}

int wg_pidfd_getfd(struct wg_pproc *k, int fd)
{
	int pidfd = (int)syscall(SYS_pidfd_open, k->p->pid, 0), copy;

	if (pidfd < 0)
		return -errno;
	copy = (int)syscall(SYS_pidfd_getfd, pidfd, fd, 0);
	if (copy < 0)
		copy = -errno;
	close(pidfd);
	return copy;
}

struct dup_list {
	size_t n, cap;
	struct {
		struct wg_process *p;
		int32_t fd;
		int what;
	} *v;
};

static void dup_want(struct dup_list *l, struct wg_process *p, int32_t fd, int what)
{
	for (size_t i = 0; i < l->n; i++)
		if (l->v[i].p == p && l->v[i].fd == fd && l->v[i].what == what)
			return;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 32;
		void *v = realloc(l->v, cap * sizeof(*l->v));

		if (!v)
			return;
		l->v = v;
		l->cap = cap;
	}
	l->v[l->n].p = p;
	l->v[l->n].fd = fd;
	l->v[l->n++].what = what;
}

static void dup_run(struct wg_facts *f, struct dup_list *l)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_bulk *b;
	struct dup_arg *a;
	size_t cursor = 0;
	struct wg_raw r;
	int pidfd = -1;

	if (!l->n)
		return;
	b = wg_bulk_new(1 << 20, sizeof(*a) + l->n * sizeof(a->at[0]));
	if (!b)
		return;
	a = wg_bulk_arg(b);
	for (size_t i = 0; i < l->n; i++) {
		if (!i || l->v[i].p != l->v[i - 1].p) {
			int fd = (int)syscall(SYS_pidfd_open, l->v[i].p->pid, 0);

			/* Leaked with the job if that is left behind; else closed below. */
			pidfd = fd;
		}
		a->at[i].pidfd = pidfd;
		a->at[i].fd = l->v[i].fd;
		a->at[i].what = l->v[i].what;
	}
	a->n = l->n;
	if (wg_bulk_run(b, wg_pctx_left(c, 0.5), read_dups) != -ETIMEDOUT)
		for (size_t i = 0; i < l->n; i++)
			if ((!i || a->at[i].pidfd != a->at[i - 1].pidfd) && a->at[i].pidfd >= 0)
				close(a->at[i].pidfd);
	while (wg_bulk_next(b, &cursor, &r)) {
		struct wg_process *p = l->v[r.id].p;
		struct wg_file *x = wg_find_file(p, l->v[r.id].fd);
		int64_t v[2];

		if (r.err == -EPERM || r.err == -EACCES)
			wg_add_missing(f, p, r.kind == R_PIPE ? "how full pipes are" :
				       r.kind == R_TIMEO ? "timeouts of sockets" :
				       "dirty bytes of files", "pidfd_getfd: Operation not permitted",
				       "run as root");
		if (!x || r.err || r.len != sizeof(v))
			continue;
		memcpy(v, r.text, sizeof(v));
		if (r.kind == R_PIPE) {
			x->pipe_fill = v[0] >= 0 ? v[0] : WG_NO_INT;
			x->pipe_size = v[1] > 0 ? v[1] : WG_NO_INT;
		} else if (r.kind == R_TIMEO) {
			x->sock_rcv_timeout_s = v[0] >= 0 ? (double)v[0] * 1e-6 : WG_NO_SEC;
			x->sock_snd_timeout_s = v[1] >= 0 ? (double)v[1] * 1e-6 : WG_NO_SEC;
		} else {
			x->dirty_bytes = v[0] >= 0 ? v[0] : WG_NO_INT;
			x->writeback_bytes = v[1] >= 0 ? v[1] : WG_NO_INT;
		}
	}
	wg_bulk_free(b);
}

/* A duplicate's close does nothing there (on NFS and FUSE it is a request to the server). */
static bool close_is_free(const char *type)
{
	static const char *const local[] = { "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs",
					     "overlay", "ramfs", "bcachefs", NULL };

	for (size_t i = 0; type && local[i]; i++)
		if (!strcmp(type, local[i]))
			return true;
	return false;
}

static void want_fd(struct dup_list *l, struct wg_process *p, int64_t fd)
{
	const struct wg_file *x = wg_find_file(p, fd);

	if (!x)
		return;
	if (x->kind == WG_FILE_PIPE || x->kind == WG_FILE_FIFO)
		dup_want(l, p, x->fd, R_PIPE);
	else if (x->kind == WG_FILE_SOCKET)
		dup_want(l, p, x->fd, R_TIMEO);
}

void wg_files_pipes(struct wg_facts *f)
{
	struct dup_list l = { 0 };

	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];
		struct wg_pproc *k = p->collect;
		int dirty = 0;

		if (!k || !k->files_done || k->dirfd < 0 || !p->alive || k->denied)
			continue;
		for (size_t j = 0; j < p->threads.n; j++) {
			const struct wg_wait *w = &p->threads.v[j].wait;

			if (wg_has_int(w->fd))
				want_fd(&l, p, w->fd);
			for (size_t n = 0; n < w->fds.n && n < 32; n++)
				want_fd(&l, p, w->fds.v[n].fd);
		}
		for (size_t j = 0; j < p->files.n && dirty < MAX_CACHESTAT; j++) {
			const struct wg_file *x = &p->files.v[j];

			if (x->kind == WG_FILE_REG && wg_has_int(x->flags) && !x->remote_fs &&
			    (x->flags & O_ACCMODE) != O_RDONLY && close_is_free(x->fs_type)) {
				dup_want(&l, p, x->fd, R_DIRTY);
				dirty++;
			}
		}
	}
	dup_run(f, &l);
	free(l.v);
	for (size_t i = 0; i < f->procs.n; i++) { /* timeouts are known now */
		struct wg_pproc *k = f->procs.v[i]->collect;

		if (k && k->files_done)
			wg_wait_with_files(f, f->procs.v[i]);
	}
}

/* ---- entry points ---------------------------------------------------------------------------- */

static int collect(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pproc *k = wg_pproc(f, p);
	bool ours = !k->files_part.b;
	struct wg_file *x = NULL;
	struct wg_part part;
	struct wg_bulk *b;
	struct wg_raw r;
	size_t cursor;
	int rc, err = 0;

	if (k->dirfd < 0)
		return -ESRCH;
	b = files_of(f, p, &part, &rc);
	if (!b)
		return -ENOMEM;
	for (cursor = part.from; cursor < part.to && wg_bulk_next(b, &cursor, &r);) {
		switch (r.kind) {
		case R_LINK:
			x = NULL;
			if (r.err)
				break;
			x = wg_add_file(f, p);
			x->fd = r.id;
			take_link(f, x, r.text, r.len);
			break;
		case R_INFO:
			if (x && x->fd == r.id && !r.err)
				take_info(f, p, x, r.text);
			break;
		case R_COUNT:
			err = r.err;
			if (!err)
				p->nofile_used = r.id;
			break;
		}
	}
	if (ours)
		wg_bulk_free(b);
	if (rc == -ETIMEDOUT)
		wg_add_missing(f, p, "descriptors", "/proc/PID/fd did not answer in time", NULL);
	else if (err == -EACCES || err == -EPERM)
		wg_add_missing(f, p, "descriptors", "/proc/PID/fd: Permission denied",
			       "run as root or as the owner of the process");
	if (wg_has_int(p->nofile_used) && p->nofile_used > WG_MAX_FILES)
		wg_add_missing(f, p, "descriptors beyond the first 4096", "the limit of one collection",
			       NULL);
	stat_files(f, p, 0, false);
	return 0;
}

int wg_files_collect(struct wg_facts *f, struct wg_process *p)
{
	struct wg_pproc *k = wg_pproc(f, p);
	int rc;

	p->files.n = 0;
	rc = collect(f, p);
	k->files_done = true;
	for (size_t i = 0; i < p->files.n; i++) {
		const char *s = p->files.v[i].path;

		if (s && !strncmp(s, "/dev/nvidia", 11) && s[11] >= '0' && s[11] <= '9')
			p->cuda_up = true;
	}
	wg_sockets_fill(f, p);
	wg_wait_with_files(f, p);
	return rc;
}

/*
 * One descriptor of a process that is merely the other end of something: a link and its
 * fdinfo, which for a pipe, a socket or a terminal wait for nobody.
 */
struct wg_file *wg_files_add_end(struct wg_facts *f, struct wg_process *p, int32_t fd)
{
	struct wg_pproc *k = wg_pproc(f, p);
	struct wg_file *x = wg_find_file(p, fd);
	char name[32], text[4096];
	ssize_t n;
	int in, dir;

	if (x || k->files_done || k->dirfd < 0)
		return x;
	dir = files_dir(k);
	snprintf(name, sizeof(name), "fd/%d", fd);
	n = readlinkat(dir, name, text, sizeof(text) - 1);
	if (n <= 0) {
		if (dir != k->dirfd)
			close(dir);
		return NULL;
	}
	text[n] = 0;
	x = wg_add_file(f, p);
	x->fd = fd;
	take_link(f, x, text, (size_t)n);
	snprintf(name, sizeof(name), "fdinfo/%d", fd);
	in = x->kind == WG_FILE_EPOLL ? -1 : openat(dir, name, O_RDONLY | O_CLOEXEC);
	if (dir != k->dirfd)
		close(dir);
	n = in >= 0 ? read(in, text, sizeof(text) - 1) : -1;
	if (in >= 0)
		close(in);
	if (n > 0) {
		text[n] = 0;
		take_info(f, p, x, text);
	}
	stat_files(f, p, p->files.n - 1, false);
	wg_sockets_fill(f, p);
	return wg_find_file(p, fd);
}

const char *wg_file_link(struct wg_facts *f, struct wg_process *p, int64_t fd)
{
	struct wg_pproc *k = wg_pproc(f, p);
	struct wg_file *x = wg_find_file(p, fd);
	char name[32], link[4096];
	ssize_t n;
	int dir;

	if (x)
		return x->path;
	if (k->dirfd < 0 || fd < 0)
		return NULL;
	snprintf(name, sizeof(name), "fd/%d", (int)fd);
	dir = files_dir(k);
	n = readlinkat(dir, name, link, sizeof(link));
	if (dir != k->dirfd)
		close(dir);
	return n > 0 && link[0] == '/' ? wg_strn(f->arena, link, (size_t)n) : NULL;
}

/* The second sample: positions, growth, and descriptors that came since. */
int wg_files_again(struct wg_facts *f, struct wg_process *p, double gap_s)
{
	struct wg_pproc *k = wg_pproc(f, p);
	bool ours = !k->files_part.b;
	size_t cursor, old = p->files.n;
	struct wg_file *x = NULL;
	struct wg_part part;
	struct wg_bulk *b;
	struct wg_raw r;
	int rc;

	(void)gap_s;
	if (k->dirfd < 0 || !p->alive || !k->files_done)
		return 0;
	stat_files(f, p, 0, true);
	b = files_of(f, p, &part, &rc);
	if (!b)
		return -ENOMEM;
	for (cursor = part.from; cursor < part.to && wg_bulk_next(b, &cursor, &r);) {
		if (r.kind == R_COUNT && !r.err) {
			p->nofile_used = r.id;
		} else if (r.kind == R_LINK && !r.err) {
			x = wg_find_file(p, r.id);
			if (x && x->path && !strncmp(x->path, r.text, strlen(x->path))) {
				x->epoll.n = 0;
				continue;
			}
			if (x) { /* the number now means something else */
				size_t at = (size_t)(x - p->files.v);

				memmove(x, x + 1, (p->files.n - at - 1) * sizeof(*x));
				p->files.n--;
				old -= at < old;
			}
			x = wg_add_file(f, p);
			x->fd = r.id;
			take_link(f, x, r.text, r.len);
		} else if (r.kind == R_INFO && !r.err && x && x->fd == r.id) {
			uint64_t dev = x->dev;

			take_info(f, p, x, r.text);
			if (!x->dev)
				x->dev = dev;
		}
	}
	if (ours)
		wg_bulk_free(b);
	if (rc != -ETIMEDOUT && old < p->files.n)
		stat_files(f, p, old, false);
	wg_sockets_fill(f, p);
	wg_wait_with_files(f, p);
	return 0;
}
