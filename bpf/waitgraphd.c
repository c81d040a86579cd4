/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waitgraphd.c - the observer as a daemon, in the foreground. Loads the programs, finds recorded
 * processes, listens. One thread a client, few of each user: a client that is slow or worse holds
 * up nobody but himself.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/openat2.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "answers.h"

#define CLIENTS 64
#define CLIENTS_OF_ONE 8 /* of one user other than root */
#define LOOK_MS 3000	 /* between two looks for recorded processes */
#define WRITES_MS 1000	 /* between two looks at what tracked processes write, and of that */
#define WRITES_AT_MOST_MS 10 /* so long: what was not reached waits for the next */
#define SWEEP_EVERY 32
#define MOST_PIDS 1024
#define STACK_SIZE (256 << 10)
#define INIT_PIDNS 0xEFFFFFFCu
#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

struct slot {
	bool used;
	uid_t uid;
	int fd;
};

static struct wg_answers answers;
static struct slot slots[CLIENTS];
static pthread_mutex_t slots_lock = PTHREAD_MUTEX_INITIALIZER;

struct options {
	const char *socket;
	int32_t pids[64];
	int npids;
	const char *cgroups[16];
	int ncgroups;
	bool trace;
};

static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	fputs("waitgraphd: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
}

/* ---- clients -------------------------------------------------------------------------------- */

static void release(struct slot *s)
{
	pthread_mutex_lock(&slots_lock);
	close(s->fd);
	s->used = false;
	pthread_mutex_unlock(&slots_lock);
}

static void *serve(void *arg)
{
	struct slot *s = arg;
	struct wg_client c = { .answers = &answers };
	struct wg_wire_done no;
	int rc = wg_access_asker(s->fd, &c.asker);

	if (!rc) {
		wg_session_run(s->fd, wg_answers_give, &c);
	} else {
		wg_wire_begin(&no, WG_WIRE_DONE, sizeof(no));
		no.error = -rc;
		snprintf(no.why, sizeof(no.why), "waitgraphd cannot see who asks (another PID namespace, or no CAP_SYS_PTRACE)");
		snprintf(no.remedy, sizeof(no.remedy), "run waitgraphd as root on the host");
		send(s->fd, &no, sizeof(no), MSG_NOSIGNAL | MSG_DONTWAIT);
	}
	release(s);
	return NULL;
}

static struct slot *admit(int fd)
{
	socklen_t n = sizeof(struct ucred);
	struct slot *s = NULL;
	struct ucred peer;
	int same = 0, all = 0;

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n))
		return NULL;
	pthread_mutex_lock(&slots_lock);
	for (int i = 0; i < CLIENTS; i++) {
		if (!slots[i].used) {
			s = &slots[i];
			continue;
		}
		all++;
		same += slots[i].uid == peer.uid;
	}
	/* The last places are kept for root. */
	if (peer.uid && (same >= CLIENTS_OF_ONE || all >= CLIENTS - 4))
		s = NULL;
	if (s) {
		s->used = true;
		s->uid = peer.uid;
		s->fd = fd;
	}
	pthread_mutex_unlock(&slots_lock);
	return s;
}

static void accept_one(int listener, const pthread_attr_t *attr)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC), off = 0;
	struct wg_wire_done busy;
	struct slot *s;
	pthread_t t;

	if (fd < 0)
		return;
	/* A descriptor that comes along could block whoever closes it. */
	setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &off, sizeof(off));
	s = admit(fd);
	if (s && !pthread_create(&t, attr, serve, s))
		return;
	answers.refused++;
	wg_wire_begin(&busy, WG_WIRE_DONE, sizeof(busy));
	busy.error = EBUSY;
	snprintf(busy.why, sizeof(busy.why), "waitgraphd serves too many clients already");
	snprintf(busy.remedy, sizeof(busy.remedy), "ask again");
	send(fd, &busy, sizeof(busy), MSG_NOSIGNAL | MSG_DONTWAIT);
	if (s)
		release(s);
	else
		close(fd);
}

static int listen_at(const char *path)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	char dir[sizeof(a.sun_path)];
	struct stat st;
	int fd, probe, rc;

	if (strlen(path) >= sizeof(a.sun_path)) {
		say("%s: longer than a socket's path may be", path);
		return -ENAMETOOLONG;
	}
	strcpy(a.sun_path, path);
	strcpy(dir, path);
	if (strrchr(dir, '/') && strrchr(dir, '/') != dir) {
		*strrchr(dir, '/') = 0;
		mkdir(dir, 0755);
	}
	if (!lstat(path, &st)) {
		if (!S_ISSOCK(st.st_mode)) {
			say("%s exists and is no socket", path);
			return -EEXIST;
		}
		probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		rc = connect(probe, (struct sockaddr *)&a, sizeof(a));
		close(probe);
		if (!rc) {
			say("another waitgraphd already listens on %s", path);
			return -EADDRINUSE;
		}
		unlink(path); /* left behind by one that was killed */
	}
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) || chmod(path, 0666) ||
	    listen(fd, 64)) {
		rc = -errno;
		say("cannot listen on %s: %s", path, strerror(-rc));
		if (fd >= 0)
			close(fd);
		return rc;
	}
	return fd;
}

/* ---- whom to track ---------------------------------------------------------------------------- */

static void track(int32_t pid)
{
	struct wg_obs_proc p;

	if (pid > 0 && wg_watch_proc(answers.watch, pid, &p))
		wg_watch_track(answers.watch, pid);
}

/*
 * /dev/shm/waitgraph-UID/PID-START.rec: names only, no file of a stranger is opened. Nor is a
 * directory entered that is a mount of its own (it could be a file system that does not answer).
 */
static void look_at_records(void)
{
	struct open_how how = { .flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW,
				.resolve = RESOLVE_NO_XDEV | RESOLVE_NO_SYMLINKS | RESOLVE_BENEATH };
	DIR *shm = opendir("/dev/shm");
	struct dirent *e, *r;
	int dirs = 0;

	while (shm && dirs < 256 && (e = readdir(shm))) {
		unsigned int uid;
		int fd, files = 0;
		struct stat st;
		DIR *d;

		if (sscanf(e->d_name, "waitgraph-%u", &uid) != 1)
			continue;
		dirs++;
		fd = (int)syscall(SYS_openat2, dirfd(shm), e->d_name, &how, sizeof(how));
		if (fd < 0)
			continue;
		if (fstat(fd, &st) || st.st_uid != uid || !(d = fdopendir(fd))) {
			close(fd);
			continue;
		}
		while (files++ < MOST_PIDS && (r = readdir(d))) {
			unsigned long long start;
			char path[32];
			int pid;

			if (sscanf(r->d_name, "%d-%llu.rec", &pid, &start) != 2 || pid <= 0)
				continue;
			/* His own processes only: else anybody could fill the table with others'. */
			snprintf(path, sizeof(path), "/proc/%d", pid);
			if (!stat(path, &st) && (st.st_uid == uid || uid == 0))
				track(pid);
		}
		closedir(d);
	}
	if (shm)
		closedir(shm);
}

static void look_at_cgroup(const char *path, int depth)
{
	char name[4096];
	struct dirent *e;
	FILE *f;
	DIR *d;
	int pid;

	snprintf(name, sizeof(name), "%s/cgroup.procs", path);
	f = fopen(name, "re");
	while (f && fscanf(f, "%d", &pid) == 1)
		track(pid);
	if (f)
		fclose(f);
	d = depth < 16 ? opendir(path) : NULL;
	while (d && (e = readdir(d))) {
		if (e->d_type != DT_DIR || e->d_name[0] == '.')
			continue;
		if ((size_t)snprintf(name, sizeof(name), "%s/%s", path, e->d_name) < sizeof(name))
			look_at_cgroup(name, depth + 1);
	}
	if (d)
		closedir(d);
}

static void look(const struct options *o)
{
	static int32_t pids[MOST_PIDS];
	static unsigned int looks;
	int n = wg_watch_find(answers.watch, pids, MOST_PIDS);

	for (int i = 0; i < n; i++)
		track(pids[i]);
	look_at_records();
	for (int i = 0; i < o->ncgroups; i++)
		look_at_cgroup(o->cgroups[i], 0);
	if (++looks % 10 == 0)
		wg_watch_sweep(answers.watch);
	wg_watch_rest(answers.watch);
}

/* ---- what they write -------------------------------------------------------------------------- */

static uint64_t mono(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int still_tracked(int32_t pid, uint64_t start, void *arg)
{
	struct wg_obs_proc p;

	(void)arg;
	return !wg_watch_proc(answers.watch, pid, &p) && p.start == start;
}

/*
 * A thread and an observer of its own: letting go of a file that its process has just closed can
 * be the last close, which on a network file system may take its time.
 */
static void *look_at_writes(void *arg)
{
	static int32_t due[WG_OBS_MAX_PROCS];
	struct wg_observer *o = arg;
	unsigned int first = 0;

	for (unsigned int round = 1;; round++) {
		struct timespec t = { 0, WRITES_MS * 1000000L - 1 };
		uint64_t end;
		int n, done;

		nanosleep(&t, NULL);
		if (round % SWEEP_EVERY == 0)
			wg_samples_sweep(answers.samples, still_tracked, NULL);
		n = wg_watch_due(answers.watch, due, WG_OBS_MAX_PROCS);
		end = mono() + WRITES_AT_MOST_MS * 1000000u;
		for (done = 0; done < n && mono() < end; done++)
			wg_answers_look(&answers, o, due[(first + (unsigned int)done) % (unsigned int)n]);
		/* Those that were not reached are due the next time, and then it begins with them. */
		first = done < n ? first + (unsigned int)done : 0;
		__atomic_fetch_add(&answers.looks_late, (unsigned long)(n > done ? n - done : 0),
				   __ATOMIC_RELAXED);
	}
	return NULL;
}

/* ---- start ---------------------------------------------------------------------------------------- */

static void usage(FILE *to)
{
	fputs("usage: waitgraphd [options]\n"
	      "Watches recorded processes from the kernel's side and answers waitgraph. Runs in the foreground.\n\n"
	      "  --pid PID        track this process, too, and what it starts (may be repeated)\n"
	      "  --cgroup DIR     track every process of this cgroup directory and those below it\n"
	      "  --trace          also trace each write of tracked processes: when pipes and sockets were last\n"
	      "                   written. Its price: every system call of the machine takes 50-100 ns more\n"
	      "  --socket PATH    listen here (default: WAITGRAPH_SOCKET, else " WG_SOCKET_PATH ")\n"
	      "  --version, --help\n\n"
	      "Needs root, or CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE, CAP_SYSLOG and CAP_DAC_READ_SEARCH.\n", to);
}

static int parse(int argc, char **argv, struct options *o)
{
	static const struct option longs[] = {
		{ "pid", required_argument, NULL, 'p' },   { "cgroup", required_argument, NULL, 'c' },
		{ "socket", required_argument, NULL, 's' }, { "version", no_argument, NULL, 'V' },
		{ "trace", no_argument, NULL, 't' },
		{ "help", no_argument, NULL, 'h' },	   { NULL, 0, NULL, 0 },
	};
	char *end;
	long v;
	int c;

	o->socket = getenv("WAITGRAPH_SOCKET");
	if (!o->socket || !*o->socket)
		o->socket = WG_SOCKET_PATH;
	while ((c = getopt_long(argc, argv, "", longs, NULL)) != -1) {
		switch (c) {
		case 'p':
			v = strtol(optarg, &end, 10);
			if (*end || v <= 0 || v > INT32_MAX || o->npids == 64) {
				say("--pid %s: no process number, or too many", optarg);
				return 64;
			}
			o->pids[o->npids++] = (int32_t)v;
			break;
		case 'c':
			if (o->ncgroups == 16) {
				say("--cgroup: at most 16");
				return 64;
			}
			o->cgroups[o->ncgroups++] = optarg;
			break;
		case 't':
			o->trace = true;
			break;
		case 's':
			o->socket = optarg;
			break;
		case 'V':
			printf("waitgraphd %s (protocol %d)\n", WG_VERSION, WG_WIRE_VERSION);
			exit(0);
		case 'h':
			usage(stdout);
			exit(0);
		default:
			usage(stderr);
			return 64;
		}
	}
	if (optind < argc) {
		usage(stderr);
		return 64;
	}
	return 0;
}

static struct wg_observer *writes;

/* It runs without these, and does less. */
static void lacks(void)
{
	uint64_t caps = wg_observer_capabilities();

	if (!(caps >> WG_CAP_SYS_PTRACE & 1))
		say("CAP_SYS_PTRACE is missing: it can look at processes of user %u only, and answers nobody else; "
		    "give it that capability, or run it as root", geteuid());
	if (geteuid() && !(caps >> WG_CAP_DAC_READ_SEARCH & 1))
		say("CAP_DAC_READ_SEARCH is missing: recorded processes of other users are found by their helper thread only");
	if (geteuid())
		say("it does not run as root: waitgraph believes it only when user %u asks", geteuid());
}

static int load(void)
{
	const char *why = NULL;
	struct stat st;
	int rc, hidden;

	if (stat("/proc/self/ns/pid", &st) || st.st_ino != INIT_PIDNS) {
		say("this is not the host's PID namespace, so the kernel's process numbers are not those seen here; "
		    "start it on the host (in a container: hostPID, --pid=host)");
		return -EPERM;
	}
	wg_observer_quiet();
	rc = wg_watch_open(&answers.watch, &why);
	if (!rc)
		rc = wg_observer_open_watched(&answers.observer, wg_watch_wakes_fd(answers.watch), &why);
	if (rc) {
		bool caps = wg_observer_capabilities() >> WG_CAP_BPF & 1;

		say("%s (%s); %s", why ? why : "the programs could not be loaded", strerror(-rc),
		    (rc == -EPERM || rc == -EACCES) && !caps ?
			    "run it as root, or give it the capabilities that --help names" :
			    wg_observer_remedy(rc));
		return rc;
	}
	rc = wg_observer_open(&writes, &why);
	if (rc) {
		say("%s (%s)", why ? why : "the programs could not be loaded", strerror(-rc));
		return rc;
	}
	answers.kallsyms = wg_kallsyms_open(&hidden);
	answers.samples = wg_samples_new();
	if (!answers.kallsyms || !answers.samples)
		return -ENOMEM;
	lacks();
	if (hidden)
		say("the kernel hides its symbols (CAP_SYSLOG is missing, or kernel.kptr_restrict is 2): "
		    "there will be no kernel stacks");
	malloc_trim(0); /* the kernel's types took tens of MiB while loading */
	return 0;
}

int main(int argc, char **argv)
{
	struct options o = { 0 };
	struct pollfd p[2];
	struct timespec t;
	pthread_attr_t attr;
	pthread_t looker;
	double next = 0;
	sigset_t set;
	int rc = parse(argc, argv, &o);

	if (rc)
		return rc;
	/* Arenas for each thread would cost more memory than all the rest. */
	mallopt(M_ARENA_MAX, 2);
	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	rc = load();
	if (rc)
		return rc == -EPERM || rc == -EACCES ? 77 : rc == -ENOSYS ? 69 : 70;
	clock_gettime(CLOCK_MONOTONIC, &t);
	answers.started = (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
	if (o.trace) {
		const char *why;

		rc = wg_watch_trace(answers.watch, &why);
		if (rc) {
			say("%s (%s)", why, strerror(-rc));
			return 69;
		}
		answers.tracing = true;
		say("tracing writes: every system call of this machine is slower for it, tracked or not");
	}
	for (int i = 0; i < o.npids; i++) {
		rc = wg_watch_track(answers.watch, o.pids[i]);
		if (rc)
			say("process %d cannot be tracked: %s", o.pids[i], strerror(-rc));
	}
	p[0].fd = listen_at(o.socket);
	if (p[0].fd < 0)
		return 73;
	p[1].fd = signalfd(-1, &set, SFD_CLOEXEC);
	p[0].events = p[1].events = POLLIN;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, STACK_SIZE);
	if (pthread_create(&looker, &attr, look_at_writes, writes)) {
		say("no thread can be started");
		return 70;
	}
	say("listening on %s", o.socket);
	for (;;) {
		double now;

		clock_gettime(CLOCK_MONOTONIC, &t);
		now = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
		if (now >= next) {
			look(&o);
			next = now + LOOK_MS / 1000.0;
		}
		rc = poll(p, 2, (int)((next - now) * 1000) + 1);
		if (rc > 0 && p[1].revents)
			break;
		if (rc > 0 && p[0].revents)
			accept_one(p[0].fd, &attr);
	}
	unlink(o.socket);
	/* Clients' threads may still read the maps: the kernel frees everything at the exit. */
	return 0;
}
