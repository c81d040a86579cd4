/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_observer.c - waitgraphd against workloads of exactly known counts, with wait4 and /proc as
 * the second tool. Needs root and BPF: skipped otherwise, but for what is told to those who lack them.
 */
#include <setjmp.h>
#include <stdbool.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collect/observer_client.h"

#define DAEMON WG_BUILD_DIR "/bin/waitgraphd"
#define NOBODY 65534

static pid_t daemon_pid;
static char sock[64];
static bool usable;

/* ---- the daemon ------------------------------------------------------------------------------ */

/* Start it; what it says on stderr goes to said. True when it listens. */
static bool daemon_start(const char *arg, const char *value, uid_t uid, char *said, size_t n, int *status)
{
	size_t have = 0;
	int fd[2];

	assert_int_equal(pipe(fd), 0);
	daemon_pid = fork();
	if (!daemon_pid) {
		dup2(fd[1], 2);
		close(fd[0]);
		close(fd[1]);
		if (uid && (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid)))
			_exit(1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execl(DAEMON, DAEMON, "--socket", sock, arg, value, NULL);
		_exit(127);
	}
	close(fd[1]);
	said[0] = 0;
	while (have < n - 1) {
		struct pollfd p = { .fd = fd[0], .events = POLLIN };
		ssize_t k = poll(&p, 1, 20000) == 1 ? read(fd[0], said + have, n - 1 - have) : -1;

		if (k <= 0)
			break;
		have += (size_t)k;
		said[have] = 0;
		if (strstr(said, "listening"))
			return true; /* fd[0] stays open for its later messages */
	}
	waitpid(daemon_pid, status, 0);
	daemon_pid = 0;
	close(fd[0]);
	return false;
}

static void daemon_stop(int sig)
{
	if (daemon_pid > 0) {
		kill(daemon_pid, sig);
		waitpid(daemon_pid, NULL, 0);
	}
	daemon_pid = 0;
}

static int setup(void **state)
{
	char said[4096];
	int status = 0;

	(void)state;
	snprintf(sock, sizeof(sock), "/tmp/wg-test-observer-%d.sock", getpid());
	setenv("WAITGRAPH_SOCKET", sock, 1);
	usable = !geteuid() && daemon_start(NULL, NULL, 0, said, sizeof(said), &status);
	if (!usable)
		print_message("no waitgraphd here: %s\n", geteuid() ? "not root" : said);
	/* As root on a kernel with BTF it has to start. */
	return !usable && !geteuid() && !access("/sys/kernel/btf/vmlinux", R_OK) &&
	       WEXITSTATUS(status) == 70;
}

static int teardown(void **state)
{
	(void)state;
	daemon_stop(SIGTERM);
	/* It leaves nothing behind. */
	return access(sock, F_OK) == 0;
}

/* ---- asking ------------------------------------------------------------------------------------ */

struct got {
	struct wg_wire_task tasks[64];
	struct wg_wire_proc procs[256];
	int ntasks, nprocs;
	struct wg_wire_done done;
};

static void each(const void *record, int size, void *arg)
{
	const struct wg_wire_head *h = record;
	struct got *g = arg;

	if (h->type == WG_WIRE_TASK && g->ntasks < 64)
		g->ntasks += wg_wire_take(record, size, &g->tasks[g->ntasks], sizeof(g->tasks[0]),
					  sizeof(g->tasks[0]));
	if (h->type == WG_WIRE_PROC && g->nprocs < 256)
		g->nprocs += wg_wire_take(record, size, &g->procs[g->nprocs], sizeof(g->procs[0]),
					  sizeof(g->procs[0]));
}

static int ask(enum wg_wire_type what, pid_t pid, struct got *g)
{
	struct wg_observer_client *c;
	int rc = wg_observer_client_open(&c);

	memset(g, 0, sizeof(*g));
	if (rc)
		return rc;
	rc = wg_observer_client_ask(c, what, pid, each, g, &g->done);
	wg_observer_client_close(c);
	return rc ? rc : -g->done.error;
}

static const struct wg_wire_task *task(const struct got *g, pid_t tid)
{
	for (int i = 0; i < g->ntasks; i++)
		if (g->tasks[i].tid == tid)
			return &g->tasks[i];
	return NULL;
}

static const struct wg_wire_proc *proc(const struct got *g, pid_t pid)
{
	for (int i = 0; i < g->nprocs; i++)
		if (g->procs[i].pid == pid)
			return &g->procs[i];
	return NULL;
}

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static char state_of(pid_t pid, pid_t tid)
{
	char path[64], buf[512], *p;
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	fd = open(path, O_RDONLY);
	n = fd < 0 ? 0 : read(fd, buf, sizeof(buf) - 1);
	close(fd);
	buf[n > 0 ? n : 0] = 0;
	p = strrchr(buf, ')');
	return p ? p[2] : 0;
}

/* How often it has blocked, by /proc. */
static long blocked(pid_t pid, pid_t tid)
{
	char path[64], line[128];
	long n = -1;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/status", pid, tid);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		sscanf(line, "voluntary_ctxt_switches: %ld", &n);
	if (f)
		fclose(f);
	assert_true(n >= 0);
	return n;
}

static void until(pid_t pid, pid_t tid, char state)
{
	for (int i = 0; i < 20000 && state_of(pid, tid) != state; i++)
		usleep(200);
	assert_int_equal(state_of(pid, tid), state);
}

/* ---- who woke whom -------------------------------------------------------------------------------- */

#define ROUNDS 150

struct guest { /* shared with the child */
	volatile pid_t reader, timer, writer;
	volatile int go, read, slept;
};
static struct guest *guest;
static int bytes[2];

static void *reader(void *arg)
{
	char c;

	guest->reader = (pid_t)syscall(SYS_gettid);
	while (read(bytes[0], &c, 1) == 1)
		guest->read++;
	return arg;
}

static void *timer(void *arg)
{
	guest->timer = (pid_t)syscall(SYS_gettid);
	while (!guest->go)
		usleep(1000);
	for (int i = 0; i < ROUNDS; i++) {
		struct timespec t = { 0, 300000 };

		nanosleep(&t, NULL);
		guest->slept++;
	}
	pause();
	return arg;
}

/* Writes only when the reader sleeps in its read: each write is one wake-up. */
static void wakers_guest(void)
{
	pthread_t t;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	pthread_create(&t, NULL, reader, NULL);
	pthread_create(&t, NULL, timer, NULL);
	guest->writer = getpid();
	while (!guest->go)
		usleep(1000);
	for (int i = 0; i < ROUNDS; i++) {
		until(getpid(), guest->reader, 'S');
		if (write(bytes[1], "x", 1) != 1)
			_exit(1);
		while (guest->read != i + 1)
			usleep(50);
	}
	pause();
}

static void test_wakers(void **state)
{
	const struct wg_wire_task *r, *t;
	long sleeps;
	struct got g;
	double from;
	pid_t pid;

	(void)state;
	if (!usable)
		skip();
	memset(guest, 0, sizeof(*guest));
	assert_int_equal(pipe(bytes), 0);
	pid = fork();
	if (!pid) {
		wakers_guest();
		_exit(0);
	}
	while (!guest->reader || !guest->timer || !guest->writer)
		usleep(1000);
	until(pid, guest->reader, 'S');
	/* Asking begins the tracking. */
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, pid, &g), 0);
	assert_int_equal(g.ntasks, 3);
	r = task(&g, guest->reader);
	t = task(&g, guest->timer);
	assert_non_null(r);
	assert_non_null(t);
	assert_true(r->flags & WG_TASK_TRACKED);
	assert_int_equal(r->wakes, 0);
	sleeps = blocked(pid, guest->timer);
	guest->go = 1;
	while (guest->slept != ROUNDS || guest->read != ROUNDS)
		usleep(1000);
	until(pid, guest->reader, 'S');
	until(pid, guest->timer, 'S');
	from = now();
	usleep(100000);
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, pid, &g), 0);
	r = task(&g, guest->reader);
	t = task(&g, guest->timer);
	/* A wake-up of a thread on its way into sleep counts too; none is lost, none invented. */
	assert_int_equal(r->wakes, ROUNDS);
	assert_int_equal(r->waker_tid, guest->writer);
	assert_int_equal(r->waker_pid, pid);
	/* It sleeps since then, by the stamp of the switch. */
	assert_true(r->blocked_ago >= 90000000 && (double)r->blocked_ago * 1e-9 < now() - from + 5);
	assert_true(r->woken_ago >= r->blocked_ago);
	/*
	 * The timer's thread was woken by no thread. As often as it blocked, but for the last time,
	 * an interrupt woke it (a timer can also fire before its thread sleeps).
	 */
	sleeps = blocked(pid, guest->timer) - sleeps;
	if (t->irq_kind == -1)
		print_message("this kernel does not say whether an interrupt woke a thread\n");
	assert_true(sleeps > ROUNDS / 4);
	assert_true(t->irq_wakes >= (uint64_t)sleeps - 1);
	assert_int_equal(t->wakes, 0);
	assert_int_equal(t->waker_tid, 0);
	assert_true(t->irq_kind == 2 || t->irq_kind == -1 || t->irq_kind == 1);
	/* Kernel stacks are names: the one that the kernel itself tells root. */
	assert_true(r->nkstack > 2);
	assert_non_null(strstr(r->kstack[0], "pipe_read"));
	assert_int_equal(r->nr, SYS_read);
	assert_int_equal(r->args[0], bytes[0]);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(bytes[0]);
	close(bytes[1]);
}

/* ---- ends ------------------------------------------------------------------------------------------- */

#define KIDS 24

/* A tracked parent whose children end in known ways; what wait4 tells is the truth. */
static void test_ends(void **state)
{
	static int truth[KIDS];
	static pid_t pids[KIDS];
	const struct wg_wire_proc *p;
	struct got *g = calloc(1, sizeof(*g));
	pid_t killer;
	int kills = 0, matched = 0;

	(void)state;
	if (!usable)
		skip();
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, getpid(), g), 0); /* tracked: what it forks is, too */
	for (int i = 0; i < KIDS; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (i % 4 == 0)
				_exit(i);
			if (i % 4 == 1)
				pause();
			if (i % 4 == 2)
				raise(SIGUSR1);
			signal(SIGSEGV, SIG_DFL);
			*(volatile int *)mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) = 0;
			_exit(200);
		}
	}
	killer = fork();
	if (!killer) {
		prctl(PR_SET_NAME, "the-killer");
		for (int i = 1; i < KIDS; i += 4)
			kill(pids[i], i % 8 == 1 ? SIGKILL : SIGTERM);
		_exit(0);
	}
	waitpid(killer, NULL, 0);
	for (int i = 0; i < KIDS; i++)
		assert_int_equal(waitpid(pids[i], &truth[i], 0), pids[i]);
	assert_int_equal(ask(WG_WIRE_ASK_ENDS, 0, g), 0);
	for (int i = 0; i < KIDS; i++) {
		p = proc(g, pids[i]);
		assert_non_null(p);
		assert_true(p->flags & WG_PROC_ENDED);
		assert_int_equal(p->exit_code & 0xff7f, truth[i] & 0xff7f);
		assert_int_equal(p->ppid, getpid());
		assert_true(p->ended_ago < 30000000000u);
		assert_false(p->flags & WG_PROC_OOM);
		matched++;
		if (i % 4 == 1) {
			assert_int_equal(p->signal, WTERMSIG(truth[i]));
			assert_int_equal(p->killer_pid, killer);
			assert_string_equal(p->killer_comm, "the-killer");
			kills++;
		} else if (i % 4 == 2) { /* by itself */
			assert_int_equal(p->signal, SIGUSR1);
			assert_int_equal(p->killer_pid, pids[i]);
		} else if (i % 4 == 3) { /* by the kernel, for a fault */
			assert_int_equal(p->signal, SIGSEGV);
			assert_true(p->flags & WG_PROC_BY_KERNEL);
			assert_int_equal(p->killer_pid, 0);
		} else {
			assert_int_equal(p->signal, 0);
		}
	}
	assert_int_equal(matched, KIDS);
	assert_int_equal(kills, KIDS / 4);
	free(g);
}

static void test_stop(void **state)
{
	const struct wg_wire_proc *p;
	struct got *g = calloc(1, sizeof(*g));
	pid_t pid;

	(void)state;
	if (!usable)
		skip();
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			pause();
	}
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, pid, g), 0);
	kill(pid, SIGSTOP);
	until(pid, pid, 'T');
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, pid, g), 0);
	p = proc(g, pid);
	assert_non_null(p);
	assert_true(p->flags & WG_PROC_STOPPED);
	assert_int_equal(p->signal, SIGSTOP);
	assert_int_equal(p->killer_pid, getpid());
	kill(pid, SIGCONT);
	until(pid, pid, 'S');
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, pid, g), 0);
	p = proc(g, pid);
	assert_non_null(p);
	assert_false(p->flags & WG_PROC_STOPPED);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	free(g);
}

static int put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), rc;

	if (fd < 0)
		return -1;
	rc = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
	close(fd);
	return rc;
}

/* A memory cgroup of 16 MiB, of either version. */
static bool oom_group(char *dir, size_t n, int pid)
{
	char path[200], text[32];
	bool v1 = !access("/sys/fs/cgroup/memory/memory.limit_in_bytes", F_OK);

	snprintf(dir, n, "/sys/fs/cgroup%s/wg-test-%d", v1 ? "/memory" : "", getpid());
	if (mkdir(dir, 0755) && errno != EEXIST)
		return false;
	snprintf(path, sizeof(path), "%s/%s", dir, v1 ? "memory.limit_in_bytes" : "memory.max");
	if (put(path, "16777216"))
		return false;
	snprintf(path, sizeof(path), "%s/cgroup.procs", dir);
	snprintf(text, sizeof(text), "%d", pid);
	return !put(path, text);
}

static void test_oom(void **state)
{
	const struct wg_wire_proc *p;
	struct got *g = calloc(1, sizeof(*g));
	char dir[128];
	int status, go[2];
	pid_t pid;

	(void)state;
	if (!usable)
		skip();
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, getpid(), g), 0);
	assert_int_equal(pipe(go), 0);
	pid = fork();
	if (!pid) {
		char c, *m;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (read(go[0], &c, 1) != 1)
			_exit(1);
		m = mmap(NULL, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memset(m, 1, 64 << 20);
		_exit(0);
	}
	if (!oom_group(dir, sizeof(dir), pid)) {
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		rmdir(dir);
		print_message("no memory cgroup can be made here\n");
		skip();
	}
	assert_int_equal(write(go[1], "x", 1), 1);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	rmdir(dir);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL); /* there was no room: else no test */
	assert_int_equal(ask(WG_WIRE_ASK_ENDS, pid, g), 0);
	p = proc(g, pid);
	assert_non_null(p);
	assert_int_equal(p->exit_code & 0x7f, SIGKILL);
	assert_true(p->flags & WG_PROC_OOM);
	assert_int_equal(p->killer_pid, 0);
	free(g);
}

/* ---- whom it answers ------------------------------------------------------------------------------------ */

/* Run f in a child as that user; its result. */
static int as_user(uid_t uid, int (*f)(pid_t), pid_t arg)
{
	pid_t pid = fork();
	int status;

	if (!pid) {
		if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
			_exit(99);
		prctl(PR_SET_DUMPABLE, 1); /* changing the user cleared it */
		_exit(f(arg));
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

static struct got scratch;

static int asks_for(pid_t pid)
{
	return -ask(WG_WIRE_ASK_TASKS, pid, &scratch);
}

static int asks_for_itself(pid_t pid)
{
	int rc = -ask(WG_WIRE_ASK_TASKS, getpid(), &scratch);

	(void)pid;
	return rc ? rc : scratch.ntasks == 1 ? 0 : 98;
}

static int asks_undumpable(pid_t pid)
{
	prctl(PR_SET_DUMPABLE, 0);
	return asks_for_itself(pid);
}

static int asks_for_ends(pid_t pid)
{
	(void)pid;
	if (ask(WG_WIRE_ASK_ENDS, 0, &scratch))
		return 98;
	for (int i = 0; i < scratch.nprocs; i++)
		if (scratch.procs[i].uid != getuid())
			return 1;
	return 0;
}

/* A child of another's: forked by root, so its waker and its numbers are not his. */
static pid_t of_user(uid_t uid, bool dumpable)
{
	int fd[2];
	char c;
	pid_t pid;

	assert_int_equal(pipe(fd), 0);
	pid = fork();
	if (!pid) {
		if (setgroups(0, NULL) || setresgid(uid, uid, uid) || setresuid(uid, uid, uid))
			_exit(99);
		prctl(PR_SET_DUMPABLE, dumpable);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (write(fd[1], "x", 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	assert_int_equal(read(fd[0], &c, 1), 1);
	close(fd[0]);
	close(fd[1]);
	return pid;
}

static void test_access(void **state)
{
	pid_t his, hidden, others;

	(void)state;
	if (!usable)
		skip();
	his = of_user(NOBODY, true);
	hidden = of_user(NOBODY, false);
	others = of_user(NOBODY - 1, true);
	assert_int_equal(as_user(NOBODY, asks_for_itself, 0), 0);
	assert_int_equal(as_user(NOBODY, asks_for, his), 0);
	assert_int_equal(as_user(NOBODY, asks_for, hidden), EACCES);
	assert_int_equal(as_user(NOBODY, asks_for, others), EACCES);
	assert_int_equal(as_user(NOBODY, asks_for, getpid()), EACCES);
	assert_int_equal(as_user(NOBODY, asks_for, 1), EACCES);
	/* That it does not exist is not told apart from that it is not his. */
	assert_int_equal(as_user(NOBODY, asks_for, 0x3fffff), EACCES);
	assert_int_equal(as_user(NOBODY, asks_for, -1), EACCES);
	assert_int_equal(as_user(NOBODY, asks_undumpable, 0), EACCES);
	/* Those of root that the tests before left in the ring are none of his. */
	assert_int_equal(as_user(NOBODY, asks_for_ends, 0), 0);
	/* root may all. */
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, hidden, &scratch), 0);
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, 0x3fffff, &scratch), -ESRCH);
	kill(his, SIGKILL);
	kill(hidden, SIGKILL);
	kill(others, SIGKILL);
	while (waitpid(-1, NULL, WNOHANG) > 0)
		;
	waitpid(his, NULL, 0);
	waitpid(hidden, NULL, 0);
	waitpid(others, NULL, 0);
}

/* From inside a PID namespace the numbers are those that hold there, and nothing outside has one. */
static int in_namespace(void)
{
	pid_t pid, dead, outside = getppid();
	int status, rc;

	if (unshare(CLONE_NEWPID))
		return 97;
	pid = fork();
	if (!pid) {
		pid_t kid = fork();

		if (!kid)
			for (;;)
				pause();
		until(outside, outside, 'S');
		if (getpid() != 1 || ask(WG_WIRE_ASK_TASKS, 1, &scratch) || scratch.ntasks != 1 ||
		    scratch.tasks[0].tid != 1 || scratch.tasks[0].pid != 1)
			_exit(2);
		usleep(20000);
		if (ask(WG_WIRE_ASK_TASKS, kid, &scratch) || scratch.ntasks != 1 ||
		    scratch.tasks[0].tid != kid || strcmp(scratch.tasks[0].kstack[0], "__x64_sys_pause") == 1)
			_exit(3);
		if (ask(WG_WIRE_ASK_TASKS, outside, &scratch) != -ESRCH)
			_exit(4);
		dead = kid;
		kill(kid, SIGKILL);
		waitpid(kid, NULL, 0);
		if (ask(WG_WIRE_ASK_ENDS, 0, &scratch) || !proc(&scratch, dead))
			_exit(5);
		for (int i = 0; i < scratch.nprocs; i++)
			if (scratch.procs[i].pid != dead)
				_exit(6);
		if (proc(&scratch, dead)->killer_pid != 1 || proc(&scratch, dead)->ppid != 1)
			_exit(7);
		_exit(0);
	}
	rc = waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 96;
	return rc;
}

static void test_namespace(void **state)
{
	pid_t pid;
	int status;

	(void)state;
	if (!usable)
		skip();
	pid = fork();
	if (!pid)
		_exit(in_namespace());
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- it bears what clients do ------------------------------------------------------------------------------ */

static int raw(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(a.sun_path, sock);
	if (connect(fd, (struct sockaddr *)&a, sizeof(a))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* More connections than are served, none of them speaking; others must be served meanwhile. */
static int hogs(pid_t pid)
{
	int fds[40], open_ones = 0;
	char c;

	for (int i = 0; i < 40; i++)
		fds[i] = raw();
	usleep(200000);
	for (int i = 0; i < 40; i++)
		/* Refused ones were told so and closed. */
		open_ones += fds[i] >= 0 && recv(fds[i], &c, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;
	if (open_ones < 1 || open_ones > 16)
		return 100 + open_ones;
	/* This user has used up his share and hears why. */
	if (ask(WG_WIRE_ASK_TASKS, getpid(), &scratch) != -EBUSY)
		return 2;
	kill(pid, SIGUSR1);
	pause();
	return 0;
}

static volatile sig_atomic_t told;
static void tell(int sig)
{
	(void)sig;
	told = 1;
}

static void test_hostile(void **state)
{
	static const char junk[100] = "GET / HTTP/1.1\r\n";
	struct wg_wire_request q;
	struct got g;
	char c;
	int fd, status;
	pid_t pid;

	(void)state;
	if (!usable)
		skip();
	fd = raw();
	assert_true(fd >= 0);
	assert_int_equal(write(fd, junk, sizeof(junk)), sizeof(junk));
	assert_true(read(fd, &c, 1) <= 0); /* hung up, at once */
	close(fd);
	/* A record that claims to be larger than any is. */
	fd = raw();
	wg_wire_begin(&q, WG_WIRE_ASK_TASKS, sizeof(q));
	q.head.size = 0x7fffffff;
	assert_int_equal(write(fd, &q, sizeof(q)), sizeof(q));
	assert_true(read(fd, &c, 1) <= 0);
	close(fd);
	/* An unknown request is answered, and the conversation goes on. */
	assert_int_equal(ask((enum wg_wire_type)55, 1, &g), -ENOSYS);
	signal(SIGUSR1, tell);
	pid = fork();
	if (!pid) {
		if (setgroups(0, NULL) || setresgid(NOBODY, NOBODY, NOBODY) || setresuid(-1, NOBODY, -1))
			_exit(99);
		prctl(PR_SET_DUMPABLE, 1);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		_exit(hogs(getppid()));
	}
	for (int i = 0; i < 100 && !told && waitpid(pid, &status, WNOHANG) == 0; i++)
		usleep(50000);
	if (!told)
		print_message("hogs: %d\n", WEXITSTATUS(status));
	assert_true(told);
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, getpid(), &g), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	signal(SIGUSR1, SIG_DFL);
}

/* Killed and started anew: the socket that it left is taken over, the present state is there. */
static void test_restart(void **state)
{
	char said[4096], other[64];
	struct got g;
	pid_t first;
	int status;

	(void)state;
	if (!usable)
		skip();
	/* A second one beside it is refused, and harms nothing. */
	first = daemon_pid;
	assert_false(daemon_start(NULL, NULL, 0, said, sizeof(said), &status));
	assert_non_null(strstr(said, "already listens"));
	assert_int_equal(WEXITSTATUS(status), 73);
	daemon_pid = first;
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, getpid(), &g), 0);
	daemon_stop(SIGKILL);
	assert_int_equal(access(sock, F_OK), 0);
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, getpid(), &g), -ECONNREFUSED);
	snprintf(other, sizeof(other), "%d", getpid());
	assert_true(daemon_start("--pid", other, 0, said, sizeof(said), &status));
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, getpid(), &g), 0);
	assert_true(g.ntasks > 0 && g.tasks[0].nkstack > 0);
}

/* A recorded process is found by the name of the recorder's helper thread, with nobody asking. */
static void *helper(void *arg)
{
	prctl(PR_SET_NAME, "waitgraph");
	pause();
	return arg;
}

static void test_discovery(void **state)
{
	struct got *g = calloc(1, sizeof(*g));
	char said[4096];
	pid_t recorded, plain;
	int status;

	(void)state;
	if (!usable)
		skip();
	daemon_stop(SIGTERM); /* this one tracks us and what we fork */
	assert_true(daemon_start(NULL, NULL, 0, said, sizeof(said), &status));
	recorded = fork();
	if (!recorded) {
		pthread_t t;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		pthread_create(&t, NULL, helper, NULL);
		for (;;)
			pause();
	}
	plain = fork();
	if (!plain) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		prctl(PR_SET_NAME, "waitgraph"); /* the main thread is no helper */
		for (;;)
			pause();
	}
	usleep(4500000); /* it looks every three seconds */
	kill(recorded, SIGKILL);
	kill(plain, SIGKILL);
	waitpid(recorded, NULL, 0);
	waitpid(plain, NULL, 0);
	assert_int_equal(ask(WG_WIRE_ASK_ENDS, 0, g), 0);
	assert_non_null(proc(g, recorded));
	assert_int_equal(proc(g, recorded)->killer_pid, getpid());
	assert_false(proc(g, recorded)->flags & WG_PROC_INHERITED);
	assert_null(proc(g, plain));
	free(g);
}

/* ---- what --trace adds ----------------------------------------------------------------------------------- */

#define WRITES 70

static void a_file(const void *record, int size, void *arg)
{
	const struct wg_wire_head *h = record;
	struct wg_wire_file f, *want = arg;

	if (h->type == WG_WIRE_FILE && wg_wire_take(record, size, &f, sizeof(f), sizeof(f)) && f.fd == want->fd)
		*want = f;
}

static struct wg_wire_file file_of(pid_t pid, int fd)
{
	struct wg_wire_file f = { .fd = fd };
	struct wg_observer_client *c;
	struct wg_wire_done done;

	assert_int_equal(wg_observer_client_open(&c), 0);
	assert_int_equal(wg_observer_client_ask(c, WG_WIRE_ASK_FILES, pid, a_file, &f, &done), 0);
	assert_int_equal(done.error, 0);
	wg_observer_client_close(c);
	return f;
}

static void test_trace(void **state)
{
	char said[4096], buf[4096] = { 0 };
	struct wg_wire_file f;
	int p[2], status, go[2];
	pid_t pid;

	(void)state;
	if (!usable)
		skip();
	assert_int_equal(pipe(p), 0);
	assert_int_equal(pipe(go), 0);
	/* Without: who has the pipe open, as /proc says, and nothing of writes. */
	f = file_of(getpid(), p[1]);
	assert_int_equal(f.pipe_readers, 1);
	assert_int_equal(f.pipe_writers, 1);
	assert_true(f.traced_ago == WG_WIRE_NEVER && f.last_write_ago == WG_WIRE_NEVER);
	daemon_stop(SIGTERM);
	assert_true(daemon_start("--trace", NULL, 0, said, sizeof(said), &status));
	assert_non_null(strstr(said, "slower"));
	assert_int_equal(ask(WG_WIRE_ASK_TASKS, getpid(), &scratch), 0);
	pid = fork();
	if (!pid) {
		char c;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (int i = 0; i < WRITES; i++)
			if (write(p[1], "1234567", 7) != 7)
				_exit(1);
		fcntl(p[1], F_SETPIPE_SZ, 4096);
		if (read(go[0], &c, 1) != 1)
			_exit(1);
		/* Blocked until somebody reads. */
		if (write(p[1], buf, sizeof(buf)) != sizeof(buf))
			_exit(1);
		pause();
	}
	until(pid, pid, 'S');
	f = file_of(pid, p[1]);
	assert_int_equal(f.writes, WRITES);
	assert_int_equal(f.written_bytes, WRITES * 7);
	assert_int_equal(f.writes_failed, 0);
	assert_int_equal(f.pipe_writers, 1); /* one open description, two processes */
	assert_true(f.last_write_ago < 60000000000u);
	assert_int_equal(write(go[1], "x", 1), 1);
	usleep(50000);
	until(pid, pid, 'S');
	usleep(300000);
	f = file_of(pid, p[1]);
	assert_int_equal(f.writes, WRITES); /* it has not returned, so it has not written */
	for (int left = WRITES * 7 + (int)sizeof(buf); left > 0;) {
		ssize_t n = read(p[0], buf, sizeof(buf));

		assert_true(n > 0);
		left -= (int)n;
	}
	usleep(50000);
	until(pid, pid, 'S');
	f = file_of(pid, p[1]);
	assert_int_equal(f.writes, WRITES + 1);
	assert_int_equal(f.written_bytes, WRITES * 7 + sizeof(buf));
	assert_true(f.longest_write_ns >= 300000000);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(p[0]);
	close(p[1]);
	close(go[0]);
	close(go[1]);
}

/* ---- those who lack what it needs --------------------------------------------------------------------------- */

static void test_unprivileged(void **state)
{
	pid_t keep = daemon_pid;
	char said[4096], keep_sock[64];
	int status = 0;

	(void)state;
	memcpy(keep_sock, sock, sizeof(sock));
	snprintf(sock, sizeof(sock), "/tmp/wg-test-observer-%d.none", getpid());
	assert_false(daemon_start(NULL, NULL, geteuid() ? 0 : NOBODY, said, sizeof(said), &status));
	if (!access("/sys/kernel/btf/vmlinux", R_OK)) {
		assert_int_equal(WEXITSTATUS(status), 77);
		assert_non_null(strstr(said, "CAP_BPF"));
	}
	memcpy(sock, keep_sock, sizeof(sock));
	daemon_pid = keep;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_wakers),	 cmocka_unit_test(test_ends),
		cmocka_unit_test(test_stop),	 cmocka_unit_test(test_oom),
		cmocka_unit_test(test_access),	 cmocka_unit_test(test_namespace),
		cmocka_unit_test(test_hostile),	 cmocka_unit_test(test_restart),
		cmocka_unit_test(test_discovery), cmocka_unit_test(test_trace),	 cmocka_unit_test(test_unprivileged),
	};

	signal(SIGPIPE, SIG_IGN);
	guest = mmap(NULL, sizeof(*guest), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (access(DAEMON, X_OK)) {
		printf("built without waitgraphd\n");
		return 0;
	}
	return cmocka_run_group_tests(tests, setup, teardown);
}
