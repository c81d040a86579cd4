/* SPDX-License-Identifier: Apache-2.0 */
/* access.c - the asker's rights over processes, and his names for them. */
#include "access.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif
#define NS_GET_PARENT_ 0xb702 /* _IO(0xb7, 2): linux/nsfs.h is newer than some build machines */
#define DEEPEST 32	      /* the kernel's own limit of nested PID namespaces */

struct status {
	uid_t uid[4];
	gid_t gid[4];
	uint64_t caps;
	pid_t ppid;
	int depth; /* how many numbers NSpid has, less one */
	pid_t nspid[DEEPEST + 1];
};

static ssize_t slurp(int dir, const char *name, char *buf, size_t n)
{
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t got;

	if (fd < 0)
		return -errno;
	got = read(fd, buf, n - 1);
	if (got < 0)
		got = -errno;
	else
		buf[got] = 0;
	close(fd);
	return got;
}

static const char *field(const char *text, const char *name)
{
	size_t n = strlen(name);

	/* Line starts only: a process may put anything into its own name, but no line feed. */
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, name, n))
			return line + n;
	}
	return NULL;
}

static int read_status(int dir, struct status *s)
{
	char buf[4096];
	const char *p;
	ssize_t n = slurp(dir, "status", buf, sizeof(buf));

	if (n < 0)
		return (int)n;
	memset(s, 0, sizeof(*s));
	p = field(buf, "Uid:");
	if (!p || sscanf(p, "%u %u %u %u", &s->uid[0], &s->uid[1], &s->uid[2], &s->uid[3]) != 4)
		return -EIO;
	p = field(buf, "Gid:");
	if (!p || sscanf(p, "%u %u %u %u", &s->gid[0], &s->gid[1], &s->gid[2], &s->gid[3]) != 4)
		return -EIO;
	p = field(buf, "CapPrm:");
	if (!p)
		return -EIO;
	s->caps = strtoull(p, NULL, 16);
	p = field(buf, "PPid:");
	s->ppid = p ? (pid_t)strtol(p, NULL, 10) : 0;
	p = field(buf, "NSpid:");
	s->depth = -1;
	while (p && *p && *p != '\n' && s->depth < DEEPEST) {
		char *end;
		long v;

		while (*p == ' ' || *p == '\t')
			p++;
		v = strtol(p, &end, 10);
		if (end == p)
			break;
		s->nspid[++s->depth] = (pid_t)v;
		p = end;
	}
	return s->depth < 0 ? -EIO : 0;
}

static int proc_dir(pid_t pid)
{
	char path[32];
	int fd;

	snprintf(path, sizeof(path), "/proc/%d", pid);
	fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	return fd < 0 ? -errno : fd;
}

static uint64_t ns_inode(int dir, const char *name)
{
	struct stat st;

	return fstatat(dir, name, &st, 0) ? 0 : st.st_ino;
}

int wg_access_asker(int fd, struct wg_asker *a)
{
	socklen_t n = sizeof(struct ucred);
	struct status s;
	struct ucred peer;
	int dir, pidfd = -1, self, rc;

	memset(a, 0, sizeof(*a));
	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n))
		return -errno;
	/* 0: it lives in a PID namespace that this one does not contain. */
	if (peer.pid <= 0)
		return -EACCES;
	n = sizeof(pidfd);
	if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &n))
		pidfd = -1; /* before 6.5 */
	a->pid = peer.pid;
	a->uid = peer.uid;
	a->gid = peer.gid;
	dir = proc_dir(peer.pid);
	if (dir < 0) {
		rc = dir;
		goto out;
	}
	rc = read_status(dir, &s);
	if (rc)
		goto out;
	a->caps = s.caps;
	a->pidns = ns_inode(dir, "ns/pid");
	a->userns = ns_inode(dir, "ns/user");
	if (!a->pidns || !a->userns) {
		rc = -EACCES;
		goto out;
	}
	/* Was all that about the process that connected, and not about a later one of its number? */
	if (pidfd >= 0) {
		struct pollfd p = { .fd = pidfd, .events = POLLIN };

		if (poll(&p, 1, 0) != 0) {
			rc = -ESRCH;
			goto out;
		}
	}
	self = proc_dir(getpid());
	if (self >= 0) {
		a->same_pidns = ns_inode(self, "ns/pid") == a->pidns;
		a->all = a->uid == 0 && ns_inode(self, "ns/user") == a->userns;
		close(self);
	}
out:
	if (dir >= 0)
		close(dir);
	if (pidfd >= 0)
		close(pidfd);
	return rc;
}

/* Is the asker's PID namespace that of this process, or one that contains it? How deep below, or -1. */
static int below(const struct wg_asker *a, int dir)
{
	int ns = openat(dir, "ns/pid", O_RDONLY | O_CLOEXEC), depth = 0;

	while (ns >= 0) {
		struct stat st;
		int parent;

		if (!fstat(ns, &st) && st.st_ino == a->pidns) {
			close(ns);
			return depth;
		}
		parent = ioctl(ns, NS_GET_PARENT_);
		close(ns);
		ns = parent;
		if (++depth > DEEPEST) {
			if (ns >= 0)
				close(ns);
			break;
		}
	}
	return -1;
}

static pid_t shown(const struct wg_asker *a, int dir)
{
	struct status s;
	int up = below(a, dir);

	if (up < 0 || read_status(dir, &s) || s.depth < up)
		return 0;
	return s.nspid[s.depth - up];
}

pid_t wg_access_shown(const struct wg_asker *a, pid_t pid)
{
	pid_t got;
	int dir;

	if (a->same_pidns || pid <= 0)
		return pid;
	dir = proc_dir(pid); /* threads have a directory, too, if not a listed one */
	if (dir < 0)
		return 0;
	got = shown(a, dir);
	close(dir);
	return got;
}

pid_t wg_access_pid(const struct wg_asker *a, pid_t pid)
{
	struct dirent *e;
	pid_t found = 0;
	DIR *d;

	if (a->same_pidns || pid <= 0)
		return pid;
	d = opendir("/proc");
	while (d && !found && (e = readdir(d))) {
		struct status s;
		int dir;

		if (!isdigit((unsigned char)e->d_name[0]))
			continue;
		dir = openat(dirfd(d), e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (dir < 0)
			continue;
		/* Its status first: namespaces are only looked at where a number fits. */
		if (!read_status(dir, &s))
			for (int i = 1; i <= s.depth && !found; i++)
				if (s.nspid[i] == pid && shown(a, dir) == pid)
					found = s.nspid[0];
		close(dir);
	}
	if (d)
		closedir(d);
	return found;
}

/* __ptrace_may_access() without the ptrace: identity, dumpable, capabilities. */
static bool allowed(const struct wg_asker *a, int dir)
{
	struct status s;
	struct stat st;

	if (a->all)
		return true;
	/* Not the directory: that is its user's whatever the process is. */
	if (read_status(dir, &s) || fstatat(dir, "status", &st, 0))
		return false;
	for (int i = 0; i < 3; i++)
		if (s.uid[i] != a->uid || s.gid[i] != a->gid)
			return false;
	/* What is in it belongs to root when the process is not dumpable. */
	if (st.st_uid != a->uid)
		return false;
	if (s.caps & ~a->caps)
		return false;
	/* Capabilities over another user namespace cannot be told from outside: not his. */
	return ns_inode(dir, "ns/user") == a->userns;
}

static int yama(void)
{
	char buf[16];
	ssize_t n = slurp(AT_FDCWD, "/proc/sys/kernel/yama/ptrace_scope", buf, sizeof(buf));

	return n > 0 ? atoi(buf) : 0;
}

static bool ancestor(pid_t who, pid_t of)
{
	for (int i = 0; i < 64 && of > 1; i++) {
		struct status s;
		int dir = proc_dir(of);

		if (dir < 0)
			return false;
		if (read_status(dir, &s))
			s.ppid = 0;
		close(dir);
		of = s.ppid;
		if (of == who)
			return true;
	}
	return false;
}

int wg_access_open(const struct wg_asker *a, pid_t pid, struct wg_target *t)
{
	char buf[1024];
	const char *p;
	struct status s;
	int scope;

	memset(t, 0, sizeof(*t));
	t->pid = pid;
	t->dir = pid > 0 ? proc_dir(pid) : -ESRCH;
	if (t->dir < 0)
		return a->all ? -ESRCH : -EACCES;
	if (!allowed(a, t->dir) || read_status(t->dir, &s) || s.nspid[0] != pid ||
	    slurp(t->dir, "stat", buf, sizeof(buf)) <= 0) {
		wg_access_close(t);
		return -EACCES;
	}
	p = strrchr(buf, ')');
	for (int i = 0; p && i < 20; i++) /* the 22nd field; the 2nd ends with the last parenthesis */
		p = strchr(p + 1, ' ');
	t->start_ticks = p ? strtoull(p + 1, NULL, 10) : 0;
	scope = yama();
	t->registers = a->all || a->caps >> 19 & 1 /* CAP_SYS_PTRACE */ || scope == 0 ||
		       (scope == 1 && (a->pid == pid || ancestor(a->pid, pid)));
	return 0;
}

bool wg_access_still(const struct wg_asker *a, const struct wg_target *t)
{
	return allowed(a, t->dir);
}

void wg_access_close(struct wg_target *t)
{
	if (t->dir >= 0)
		close(t->dir);
	t->dir = -1;
}
