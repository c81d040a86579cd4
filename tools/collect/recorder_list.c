/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder_list.c - which recorder files there are, and which process each belongs to.
 *
 * A file is found by the numbers that its process knows of itself (PID and start in
 * its own namespaces), and believed only when the process that the kernel shows has
 * those numbers and the file belongs to that process' user. So neither a left-over of a
 * reused PID nor a file planted by another user speaks for a process.
 */
#include "recorder_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

/* ---- /proc, as little as identity needs ---------------------------------------- */

static ssize_t read_file(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	if (fd < 0)
		return -errno;
	n = read(fd, buf, size - 1);
	if (n < 0)
		n = -errno;
	else
		buf[n] = 0;
	close(fd);
	return n;
}

int wg_rec_stat(int32_t pid, char *state, uint64_t *start_ticks)
{
	char path[64], buf[1024], *p;
	unsigned long long start;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	n = read_file(path, buf, sizeof(buf));
	if (n < 0)
		return (int)n;
	p = strrchr(buf, ')'); /* a name may hold spaces and parentheses */
	if (!p || sscanf(p + 1,
			 " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
			 "%*d %llu", state, &start) != 2)
		return -EINVAL;
	*start_ticks = start;
	return 0;
}

int wg_rec_status(int32_t pid, int32_t *ns_pid, uint32_t uid[4])
{
	char path[64], buf[4096], *s, *e;
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	n = read_file(path, buf, sizeof(buf));
	if (n < 0)
		return (int)n;
	*ns_pid = 0;
	s = strstr(buf, "\nUid:");
	if (!s || sscanf(s + 5, "%u %u %u %u", &uid[0], &uid[1], &uid[2], &uid[3]) != 4)
		return -EINVAL;
	s = strstr(buf, "\nNSpid:");
	if (s) {
		s += 7;
		e = strchr(s, '\n');
		if (e)
			*e = 0;
		e = strrchr(s, '\t');
		*ns_pid = (int32_t)strtol(e ? e : s, NULL, 10);
	}
	return 0;
}

const char *wg_rec_boot_id(void)
{
	static char id[40];

	if (!*id && read_file("/proc/sys/kernel/random/boot_id", id, sizeof(id)) > 0)
		id[strcspn(id, "\n")] = 0;
	return id;
}

uint64_t wg_rec_ns_inode(int32_t pid, const char *ns)
{
	char path[64];
	struct stat st;

	if (pid)
		snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, ns);
	else
		snprintf(path, sizeof(path), "/proc/self/ns/%s", ns);
	return stat(path, &st) ? 0 : st.st_ino;
}

static int64_t boottime_offset(const char *path)
{
	char buf[256], *s;
	long long sec, ns;

	if (read_file(path, buf, sizeof(buf)) <= 0)
		return 0;
	s = strstr(buf, "boottime");
	if (!s || sscanf(s + 8, " %lld %lld", &sec, &ns) != 2)
		return 0;
	return (int64_t)((__int128)sec * sysconf(_SC_CLK_TCK) + ns / (1000000000 / sysconf(_SC_CLK_TCK)));
}

int64_t wg_rec_time_offset(int32_t pid)
{
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/timens_offsets", pid);
	return boottime_offset(path) - boottime_offset("/proc/self/timens_offsets");
}

/* A start time is compared with a tick of tolerance: two time namespaces round apart. */
static bool same_start(uint64_t a, uint64_t b)
{
	return a == b || a + 1 == b || b + 1 == a;
}

static bool is_it(int32_t pid, const struct wgrec_header *h, struct wg_rec_who *who)
{
	uint64_t start, ns;
	int32_t ns_pid;
	int64_t off;

	if (wg_rec_stat(pid, &who->state, &start) || wg_rec_status(pid, &ns_pid, who->uid))
		return false;
	if (ns_pid && (uint32_t)ns_pid != h->pid)
		return false;
	off = wg_rec_time_offset(pid);
	if (off ? !same_start(start + (uint64_t)off, h->start_ticks) : start != h->start_ticks)
		return false;
	ns = h->pidns ? wg_rec_ns_inode(pid, "pid") : 0;
	return !ns || ns == h->pidns;
}

static bool is_hidden(int32_t pid)
{
	uint64_t start;
	char state;

	return wg_rec_stat(pid, &state, &start) == -ENOENT && (!kill(pid, 0) || errno == EPERM);
}

void wg_rec_whose(const struct wgrec_header *h, struct wg_rec_who *who)
{
	uint64_t own = wg_rec_ns_inode(0, "pid");
	struct dirent *e;
	DIR *d;

	memset(who, 0, sizeof(*who));
	who->pid = h->pid <= INT32_MAX ? (int32_t)h->pid : 0;
	if (h->boot_id[0] && strcmp(h->boot_id, wg_rec_boot_id()))
		return; /* another machine, or before a reboot: not to be seen from here */
	if (!h->pidns || h->pidns == own) {
		who->alive = who->pid > 0 && is_it(who->pid, h, who) && who->state != 'Z' &&
			     who->state != 'X';
		/* Not in /proc and yet there: hidden (hidepid), so whose number it is is not known. */
		who->alive_known = who->alive || who->pid <= 0 || !is_hidden(who->pid);
		return;
	}
	/* 0xEFFFFFFC: the first PID namespace sees all others. */
	who->alive_known = own == 0xEFFFFFFCu;
	d = opendir("/proc");
	while (d && (e = readdir(d))) {
		int32_t pid = (int32_t)strtol(e->d_name, NULL, 10);
		struct wg_rec_who it = { .pid = pid, .alive_known = true };

		/* First, as it is cheapest. Not readable is not enough: PIDs repeat in containers. */
		if (pid <= 0 || wg_rec_ns_inode(pid, "pid") != h->pidns || !is_it(pid, h, &it))
			continue;
		it.alive = it.state != 'Z' && it.state != 'X';
		*who = it;
		break;
	}
	if (d)
		closedir(d);
}

static bool owner_fits(const struct wg_rec *r, const uint32_t uid[4])
{
	/* A process that gave root away wrote its file as root; nobody else may speak for it. */
	return !r->owner || r->owner == uid[0] || r->owner == uid[1] || r->owner == uid[2] ||
	       r->owner == uid[3];
}

/* ---- the file of one live process -------------------------------------------------- */

/* Does this file tell about that process? */
static int belongs(struct wg_rec *r, int32_t pid, const char **why)
{
	struct wg_rec_who who = { .pid = pid };

	if (r->h.flags & WGREC_F_RETIRED) {
		*why = "the process replaced itself with exec()";
		return -ESTALE;
	}
	if (r->h.boot_id[0] && strcmp(r->h.boot_id, wg_rec_boot_id())) {
		*why = "written before the last boot";
		return -ESTALE;
	}
	if (!is_it(pid, &r->h, &who)) {
		*why = "it belongs to another process";
		return -ESTALE;
	}
	if (!owner_fits(r, who.uid)) {
		*why = "it belongs to another user than the process does";
		return -EPERM;
	}
	return 0;
}

static int try_path(struct wg_facts *f, const char *path, int32_t pid, struct wg_rec **out,
		    const char **why)
{
	int rc = wg_rec_open_file(f, path, out, why);

	if (rc)
		return rc;
	rc = belongs(*out, pid, why);
	if (rc) {
		wg_rec_close(*out);
		*out = NULL;
	}
	return rc;
}

/* First uid of a mapping that covers `outside`; the number itself when there is none. */
static uint32_t inside_uid(int32_t pid, uint32_t outside)
{
	char path[64], buf[4096], *line, *save = NULL;
	unsigned int in, out, n;

	snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
	if (read_file(path, buf, sizeof(buf)) <= 0)
		return outside;
	for (line = strtok_r(buf, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
		if (sscanf(line, "%u %u %u", &in, &out, &n) == 3 && outside >= out &&
		    outside - out < n)
			return in + (outside - out);
	return outside;
}

static int find_memfd(struct wg_facts *f, int32_t pid, struct wg_rec **out, const char **why)
{
	char dir[64], path[96], link[64];
	struct dirent *e;
	int rc = -ENOENT, seen = 0;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", pid);
	d = opendir(dir);
	if (!d)
		return -errno;
	while (rc && (e = readdir(d)) && seen++ < 65536) {
		ssize_t n;

		if (e->d_name[0] < '0' || e->d_name[0] > '9' || strlen(e->d_name) > 10)
			continue;
		snprintf(path, sizeof(path), "%s/%.10s", dir, e->d_name);
		n = readlink(path, link, sizeof(link) - 1);
		if (n < 20 || strncmp(link, "/memfd:waitgraph-rec", 20))
			continue;
		/* A forked child holds its parent's too: only the fitting one is taken. */
		rc = try_path(f, path, pid, out, why);
	}
	closedir(d);
	return rc;
}

int wg_rec_open_pid(struct wg_facts *f, const struct wg_process *p, struct wg_rec **out)
{
	uint32_t uid[4], ids[8], n = 0;
	const char *why = NULL, *reason = NULL;
	int32_t ns_pid = p->ns_pid, status_ns;
	uint64_t start;
	char state, path[128];
	int rc, worst = -ENOENT;

	*out = NULL;
	rc = wg_rec_stat(p->pid, &state, &start);
	if (rc)
		return rc == -ENOENT ? -ESRCH : rc;
	if (p->start_ticks && p->start_ticks != start)
		return -ESRCH; /* the number was reused while we were looking */
	rc = wg_rec_status(p->pid, &status_ns, uid);
	if (rc)
		return rc == -ENOENT ? -ESRCH : rc;
	if (status_ns)
		ns_pid = status_ns;
	if (!ns_pid)
		ns_pid = p->pid;
	start += (uint64_t)wg_rec_time_offset(p->pid);
	for (int i = 0; i < 4; i++) {
		uint32_t both[2] = { inside_uid(p->pid, uid[i]), uid[i] };

		for (int k = 0; k < 2; k++) {
			bool known = false;

			for (uint32_t j = 0; j < n; j++)
				known = known || ids[j] == both[k];
			if (!known && n < 8)
				ids[n++] = both[k];
		}
	}
	/* Its own view first; ours when its root may not be looked through (often the same). */
	for (int own = 0; own < 2; own++) {
		for (uint32_t i = 0; i < n; i++) {
			for (int d = 0; d < 3; d++) { /* clocks of two namespaces round apart */
				static const int delta[] = { 0, -1, 1 };
				char prefix[32] = "";

				if (!own)
					snprintf(prefix, sizeof(prefix), "/proc/%d/root", p->pid);
				snprintf(path, sizeof(path), "%s" WGREC_DIR_FMT "/%d-%llu.rec",
					 prefix, ids[i], ns_pid,
					 (unsigned long long)(start + (uint64_t)(int64_t)delta[d]));
				rc = try_path(f, path, p->pid, out, &why);
				if (!rc)
					return 0;
				if (rc == -ETIMEDOUT) {
					worst = rc;
					reason = why;
					break;
				}
				if (rc != -ENOENT && rc != -ENOTDIR) {
					worst = rc;
					reason = why;
				}
			}
		}
	}
	why = NULL;
	rc = find_memfd(f, p->pid, out, &why);
	if (!rc)
		return 0;
	if (rc != -ENOENT && rc != -ENOTDIR && worst == -ENOENT) {
		worst = rc;
		reason = why;
	}
	if (reason)
		wg_add_missing(f, (struct wg_process *)p, "recorder file", reason, NULL);
	return worst;
}

int wg_rec_identity(struct wg_facts *f, const struct wg_process *p, struct wg_rec_identity *out)
{
	struct wg_rec *r;
	int rc = wg_rec_open_pid(f, p, &r);

	if (rc)
		return rc;
	memset(out, 0, sizeof(*out));
	out->pid = r->h.pid;
	out->start_ticks = r->h.start_ticks;
	out->signal = r->h.signal > 0 && r->h.signal < 65 ? r->h.signal : 0;
	memcpy(out->dir, r->h.dir, sizeof(out->dir));
	wg_rec_close(r);
	return 0;
}

/* ---- all files of the host ------------------------------------------------------------ */

struct scan { /* on the heap: a deadline may leave it behind */
	char **paths;
	size_t n, cap;
	struct { uint64_t dev, ino; } seen[4096];
	size_t nseen;
};

static bool first_time(struct scan *s, uint64_t dev, uint64_t ino)
{
	for (size_t i = 0; i < s->nseen; i++)
		if (s->seen[i].dev == dev && s->seen[i].ino == ino)
			return false;
	if (s->nseen == sizeof(s->seen) / sizeof(s->seen[0]))
		return false;
	s->seen[s->nseen].dev = dev;
	s->seen[s->nseen++].ino = ino;
	return true;
}

static void add_path(struct scan *s, const char *path)
{
	if (s->n >= 65536)
		return;
	if (s->n == s->cap) {
		size_t cap = s->cap ? s->cap * 2 : 64;
		char **v = realloc(s->paths, cap * sizeof(*v));

		if (!v)
			return;
		s->paths = v;
		s->cap = cap;
	}
	s->paths[s->n] = strdup(path);
	if (s->paths[s->n])
		s->n++;
}

static void scan_shm(struct scan *s, const char *root)
{
	char path[PATH_MAX];
	struct dirent *e, *x;
	struct stat st;
	DIR *d, *sub;

	snprintf(path, sizeof(path), "%s/dev/shm", root);
	if (stat(path, &st) || !S_ISDIR(st.st_mode) || !first_time(s, st.st_dev, st.st_ino))
		return;
	d = opendir(path);
	while (d && (e = readdir(d))) {
		if (strncmp(e->d_name, "waitgraph-", 10))
			continue;
		snprintf(path, sizeof(path), "%s/dev/shm/%s", root, e->d_name);
		if (lstat(path, &st) || !S_ISDIR(st.st_mode))
			continue;
		sub = opendir(path);
		while (sub && (x = readdir(sub))) {
			size_t n = strlen(x->d_name);
			char file[PATH_MAX + 300];

			if (x->d_name[0] < '0' || x->d_name[0] > '9' || n < 5 ||
			    strcmp(x->d_name + n - 4, ".rec"))
				continue;
			snprintf(file, sizeof(file), "%s/%s", path, x->d_name);
			add_path(s, file);
		}
		if (sub)
			closedir(sub);
	}
	if (d)
		closedir(d);
}

/* Other mount namespaces, and recorders that had to be memfds. */
static void scan_processes(void *arg)
{
	uint64_t mnt, own = wg_rec_ns_inode(0, "mnt");
	struct scan *s = arg;
	struct dirent *e, *x;
	DIR *d = opendir("/proc"), *fds;
	char path[96], link[64];

	while (d && (e = readdir(d))) {
		int32_t pid = (int32_t)strtol(e->d_name, NULL, 10);
		int seen = 0;

		if (pid <= 0)
			continue;
		mnt = wg_rec_ns_inode(pid, "mnt");
		if (mnt && mnt != own && first_time(s, UINT64_MAX, mnt)) {
			snprintf(path, sizeof(path), "/proc/%d/root", pid);
			scan_shm(s, path);
		}
		snprintf(path, sizeof(path), "/proc/%d/fd", pid);
		fds = opendir(path);
		while (fds && (x = readdir(fds)) && seen++ < 4096) {
			ssize_t n;

			if (x->d_name[0] < '0' || x->d_name[0] > '9' || strlen(x->d_name) > 10)
				continue;
			snprintf(path, sizeof(path), "/proc/%d/fd/%.10s", pid, x->d_name);
			n = readlink(path, link, sizeof(link) - 1);
			if (n >= 20 && !strncmp(link, "/memfd:waitgraph-rec", 20))
				add_path(s, path);
		}
		if (fds)
			closedir(fds);
	}
	if (d)
		closedir(d);
}

int wg_rec_list(struct wg_facts *f, int (*each)(const char *path, void *arg), void *arg)
{
	struct scan *here = calloc(1, sizeof(*here)), *there = calloc(1, sizeof(*there));
	int rc = 0;

	if (!here || !there) {
		free(here);
		free(there);
		return -ENOMEM;
	}
	scan_shm(here, "");
	memcpy(there->seen, here->seen, sizeof(there->seen));
	there->nseen = here->nseen;
	for (size_t i = 0; i < here->n && !rc; i++)
		rc = each(here->paths[i], arg);
	/* A container's /dev/shm may be anything, also a file system that does not answer. */
	if (!rc && wg_with_deadline(3.0, scan_processes, there)) {
		wg_add_missing(f, NULL, "recorder files in containers",
			       "a file system did not answer within 3 s", NULL);
		there = NULL;
	}
	for (size_t i = 0; there && i < there->n && !rc; i++)
		rc = each(there->paths[i], arg);
	for (size_t i = 0; i < here->n; i++)
		free(here->paths[i]);
	free(here->paths);
	free(here);
	if (there) {
		for (size_t i = 0; i < there->n; i++)
			free(there->paths[i]);
		free(there->paths);
		free(there);
	}
	return rc;
}

/*
 * Open a file of the list. A file of a process that lives is taken when it is that process'
 * own; one of the dead when it belongs to the asker or the asker is root.
 */
static int open_listed(struct wg_facts *f, const char *path, struct wg_rec **out,
		       struct wg_rec_who *who, const char **why)
{
	int rc = wg_rec_open_file(f, path, out, why), holder = 0;

	if (rc)
		return rc;
	if ((*out)->h.flags & WGREC_F_RETIRED) {
		*why = "the process replaced itself with exec()";
		rc = -ESTALE;
		goto out;
	}
	wg_rec_whose(&(*out)->h, who);
	if (who->alive) {
		/* The memfd of another process, held by a child or sent over a socket: once is enough. */
		if (sscanf(path, "/proc/%d/fd/", &holder) == 1 && strstr(path, "/fd/") &&
		    holder != who->pid) {
			*why = "held for another process";
			rc = -ESTALE;
		} else if (!owner_fits(*out, who->uid)) {
			*why = "it belongs to another user than the process does";
			rc = -EPERM;
		}
	} else if (geteuid() && (*out)->owner != geteuid()) {
		*why = "it belongs to another user";
		rc = -EPERM;
	}
out:
	if (rc) {
		wg_rec_close(*out);
		*out = NULL;
	}
	return rc;
}

int wg_rec_open_path(struct wg_facts *f, const char *path, struct wg_rec **out, const char **why)
{
	struct wg_rec_who who;

	return open_listed(f, path, out, &who, why);
}

int wg_rec_add_process(struct wg_facts *f, const char *path, bool full, struct wg_process **out,
		       const char **why)
{
	struct wg_rec_who who;
	struct wg_process *p;
	struct wg_rec *r;
	double now, started;
	struct timespec up;
	int rc = open_listed(f, path, &r, &who, why);

	*out = NULL;
	if (rc)
		return rc;
	p = wg_add_process(f);
	p->pid = who.pid;
	p->ns_pid = (int32_t)r->h.pid;
	p->ppid = 0;
	p->pidns = r->h.pidns;
	p->start_ticks = r->h.start_ticks;
	p->alive = who.alive || !who.alive_known;
	p->alive_known = who.alive_known;
	p->state = who.alive ? who.state : 0;
	p->uid = who.alive ? (int64_t)who.uid[0] : (int64_t)r->owner;
	p->host = wg_str(f->arena, r->h.host);
	p->boot = wg_str(f->arena, r->h.boot_id);
	p->command = r->h.command[0] ? wg_str(f->arena, r->h.command) : NULL;
	clock_gettime(CLOCK_BOOTTIME, &up);
	now = (double)up.tv_sec + (double)up.tv_nsec * 1e-9;
	started = (double)r->h.start_ticks / (double)sysconf(_SC_CLK_TCK);
	if (started > 0 && started <= now)
		p->age_s = now - started;
	p->recorded = true;
	if (full) {
		rc = wg_rec_collect(f, p, r, NULL, NULL);
		if (!who.alive && who.alive_known)
			wg_add_missing(f, p, "what the kernel knows",
				       "the process has ended: only its recorder file is left", NULL);
	}
	wg_rec_close(r);
	*out = p;
	return rc;
}

/* ---- other ranks ------------------------------------------------------------------------ */

void wg_rec_add_peer(struct wg_facts *f, struct wg_process *p, const char *comm, int64_t rank,
		     const char *host, const char *boot, int64_t pid, int64_t start, bool alive,
		     bool alive_known)
{
	struct wg_peer *x = NULL;

	if (!comm)
		return;
	for (size_t i = 0; i < p->peers.n && !x; i++)
		if (p->peers.v[i].rank == rank && !strcmp(p->peers.v[i].comm, comm))
			x = &p->peers.v[i];
	if (!x) {
		x = wg_push(f->arena, &p->peers);
		x->comm = wg_str(f->arena, comm);
		x->rank = rank;
		x->pid = x->start = WG_NO_INT;
	}
	if (host && *host)
		x->host = wg_str(f->arena, host);
	if (boot && *boot)
		x->boot = wg_str(f->arena, boot);
	if (wg_has_int(pid))
		x->pid = pid;
	if (wg_has_int(start))
		x->start = start;
	if (alive_known) {
		x->alive = alive;
		x->alive_known = true;
	}
}

/*
 * What every recorder file of the host says of its communicators. Asked once per facts:
 * with N ranks on a host each would otherwise open N files.
 */
struct brief {
	struct wg_rec_who who;
	uint64_t start, pidns;
	const char *host, *boot;
	struct { const char *id; int64_t rank; } *comms;
	size_t ncomms;
};
struct cache {
	struct timespec at;
	WG_VEC(struct brief) briefs;
};

static int each_brief(const char *path, void *arg)
{
	struct wg_facts *f = arg;
	struct cache *cache = f->recorder_cache;
	struct wg_rec_who who;
	const char *why;
	struct wg_rec *r;
	struct brief *b;
	uint64_t n;

	if (open_listed(f, path, &r, &who, &why))
		return 0;
	wg_rec_load(r, WGREC_COMMS);
	n = r->sec[WGREC_COMMS].n < 1024 ? r->sec[WGREC_COMMS].n : 1024;
	b = wg_push(f->arena, &cache->briefs);
	b->who = who;
	b->start = r->h.start_ticks;
	b->pidns = r->h.pidns;
	b->host = wg_str(f->arena, r->h.host);
	b->boot = wg_str(f->arena, r->h.boot_id);
	b->comms = wg_alloc(f->arena, (n + 1) * sizeof(*b->comms));
	for (uint64_t i = 0; i < n; i++) {
		struct wgrec_comm e;

		wg_rec_entry(r, WGREC_COMMS, i, &e, sizeof(e));
		e.id[sizeof(e.id) - 1] = 0;
		if (!e.valid || !e.id[0] || e.rank < 0)
			continue;
		b->comms[b->ncomms].id = wg_str(f->arena, e.id);
		b->comms[b->ncomms++].rank = e.rank;
	}
	wg_rec_close(r);
	return 0;
}

void wg_rec_peers(struct wg_facts *f, struct wg_process *p, const struct wgrec_header *h)
{
	struct cache *cache = f->recorder_cache;
	struct timespec now;

	if (!p->comms.n)
		return;
	clock_gettime(CLOCK_MONOTONIC, &now);
	if (!cache || now.tv_sec - cache->at.tv_sec > 5) {
		cache = f->recorder_cache = wg_alloc(f->arena, sizeof(*cache));
		cache->at = now;
		wg_rec_list(f, each_brief, f);
	}
	for (size_t i = 0; i < cache->briefs.n; i++) {
		const struct brief *b = &cache->briefs.v[i];

		if (b->start == h->start_ticks && b->pidns == h->pidns && b->who.pid == p->pid)
			continue; /* ourselves */
		for (size_t k = 0; k < b->ncomms; k++)
			for (size_t c = 0; c < p->comms.n; c++) {
				if (!p->comms.v[c].id || strcmp(p->comms.v[c].id, b->comms[k].id) ||
				    p->comms.v[c].rank == b->comms[k].rank)
					continue;
				wg_rec_add_peer(f, p, b->comms[k].id, b->comms[k].rank, b->host,
						b->boot, b->who.pid, (int64_t)b->start,
						b->who.alive, b->who.alive_known);
				break;
			}
	}
}
