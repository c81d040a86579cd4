/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_collect.c - from one PID to everything that it waits on, across processes, and the
 * ways in which that goes wrong: processes that vanish while they are read, file systems
 * that do not answer, other users, other namespaces.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "plant.h"

static int expired(double since, double seconds)
{
	return now_s() - since > seconds;
}

static struct wg_process *full(struct wg_facts *f, int64_t pid)
{
	struct wg_process *p = wg_find_process(f, (int32_t)pid);

	assert_non_null(p);
	assert_false(p->stub);
	return p;
}

/* Fork inside of a planted child: dies with its parent. */
static pid_t under(void (*fn)(void))
{
	pid_t pid = fork();

	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn();
		for (;;)
			pause();
	}
	return pid;
}

static void forever(void)
{
	for (;;)
		pause();
}

/* ---- ends of pipes, sockets, terminals ---------------------------------------------------- */

static int pipe_fds[2];

static void hold_write_end(void)
{
	close(pipe_fds[0]);
	forever();
}

static void in_read_of_silent_child(void)
{
	char c;

	if (pipe(pipe_fds))
		return;
	sh->v[0] = under(hold_write_end);
	close(pipe_fds[1]);
	sh->v[1] = pipe_fds[0];
	ready();
	(void)!read(pipe_fds[0], &c, 1);
}

static void test_pipe_to_child(void **state)
{
	struct wg_process *child;
	struct wg_file *here, *there = NULL;
	struct plant x;

	(void)state;
	plant(&x, in_read_of_silent_child, true);
	child = full(x.f, sh->v[0]);
	here = wg_find_file(x.p, sh->v[1]);
	for (size_t i = 0; i < child->files.n; i++)
		if (child->files.v[i].ino == here->ino)
			there = &child->files.v[i];
	assert_non_null(there);
	assert_int_equal(there->flags & O_ACCMODE, O_WRONLY);
	assert_int_equal(child->threads.v[0].wait.op, WG_OP_SIGWAIT);
	assert_true(child->forked);
	reap(&x);
}

/* The other end is neither parent nor child: it has to be searched for. */
static int sock_fds[2];

static void hold_socket(void)
{
	setsid();
	close(sock_fds[0]);
	sh->v[0] = getpid();
	forever();
}

static void in_recv_from_stranger(void)
{
	char c;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, sock_fds))
		return;
	if (!fork()) {
		if (!fork())
			hold_socket();
		_exit(0); /* the grandchild is nobody's child of ours */
	}
	wait(NULL);
	close(sock_fds[1]);
	while (!sh->v[0])
		nap(0.01);
	sh->v[1] = sock_fds[0];
	ready();
	(void)!recv(sock_fds[0], &c, 1, 0);
}

static void test_socket_to_stranger(void **state)
{
	struct wg_process *other;
	bool found = false;
	struct plant x;
	uint64_t peer;

	(void)state;
	sh->v[0] = 0;
	plant(&x, in_recv_from_stranger, true);
	other = full(x.f, sh->v[0]);
	peer = wg_find_file(x.p, sh->v[1])->sock_peer_ino;
	assert_true(peer != 0);
	for (size_t i = 0; i < other->files.n; i++)
		found |= other->files.v[i].ino == peer;
	assert_true(found);
	kill((pid_t)sh->v[0], SIGKILL);
	reap(&x);
}

static void in_tcp_across(void)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int l = socket(AF_INET, SOCK_STREAM, 0), c;
	socklen_t len = sizeof(a);
	pid_t pid;
	char b;

	if (bind(l, (void *)&a, sizeof(a)) || listen(l, 4) || getsockname(l, (void *)&a, &len))
		return;
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (sh->v[2])
			accept(l, NULL, NULL);
		forever();
	}
	sh->v[0] = pid;
	close(l);
	c = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(c, (void *)&a, sizeof(a)))
		return;
	sh->v[1] = c;
	(void)!write(c, "question", 8);
	ready();
	(void)!read(c, &b, 1);
}

static void test_tcp_across(void **state)
{
	(void)state;
	/* Accepted by the other process, and not accepted by anybody: who listens is to blame. */
	for (int accepted = 0; accepted < 2; accepted++) {
		struct wg_process *server;
		struct wg_file *mine, *theirs = NULL;
		struct plant x;

		sh->v[2] = accepted;
		plant(&x, in_tcp_across, true);
		server = full(x.f, sh->v[0]);
		mine = wg_find_file(x.p, sh->v[1]);
		assert_true(mine->sock_peer_ino != 0);
		for (size_t i = 0; i < server->files.n; i++)
			if (server->files.v[i].ino == mine->sock_peer_ino)
				theirs = &server->files.v[i];
		assert_non_null(theirs);
		assert_int_equal(theirs->sock_state, accepted ? WG_SOCK_CONNECTED : WG_SOCK_LISTEN);
		if (!accepted)
			assert_int_equal(theirs->sock_backlog, 1);
		/* Who asked whom, and that there is no answer yet. */
		assert_int_equal(mine->sock_role, 1);
		assert_int_equal(mine->sock_sent_bytes, 8);
		assert_int_equal(mine->sock_recv_bytes, 0);
		assert_true(mine->sock_sent_age_s >= 0 && mine->sock_sent_age_s < 60);
		if (accepted) {
			assert_int_equal(theirs->sock_role, 2);
			assert_int_equal(theirs->sock_recv_bytes, 8);
			assert_int_equal(theirs->sock_sent_bytes, 0);
		}
		reap(&x);
	}
}

static void in_read_of_terminal(void)
{
	pid_t pid;
	int m, s;
	char c;

	if (openpty(&m, &s, NULL, NULL, NULL))
		return;
	pid = fork();
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(s);
		forever();
	}
	sh->v[0] = pid;
	close(m);
	sh->v[1] = s;
	ready();
	(void)!read(s, &c, 1);
}

static void test_terminal(void **state)
{
	struct wg_process *other;
	struct wg_file *mine;
	bool found = false;
	struct plant x;

	(void)state;
	plant(&x, in_read_of_terminal, true);
	mine = wg_find_file(x.p, sh->v[1]);
	assert_int_equal(mine->kind, WG_FILE_TTY);
	other = full(x.f, sh->v[0]);
	for (size_t i = 0; i < other->files.n; i++) {
		const struct wg_file *y = &other->files.v[i];

		found |= y->kind == WG_FILE_TTY && y->pty_index == mine->pty_index &&
			 strstr(y->path, "ptmx") && (!y->dev || !mine->dev || y->dev == mine->dev);
	}
	assert_true(found);
	reap(&x);
}

static void in_fifo(void)
{
	char path[128], c;
	int r;

	snprintf(path, sizeof(path), "%s/fifo", dir);
	mkfifo(path, 0600);
	if (!fork()) {
		if (!fork()) {
			sh->v[0] = getpid();
			(void)!open(path, O_WRONLY);
			forever();
		}
		_exit(0);
	}
	wait(NULL);
	r = open(path, O_RDONLY);
	sh->v[1] = r;
	ready();
	(void)!read(r, &c, 1);
}

static void test_fifo(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_fifo, true);
	assert_int_equal(wg_find_file(x.p, sh->v[1])->kind, WG_FILE_FIFO);
	full(x.f, sh->v[0]);
	kill((pid_t)sh->v[0], SIGKILL);
	reap(&x);
}

/* ---- locks and shared memory ----------------------------------------------------------------- */

static int lock_fd(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/lock", dir);
	return open(path, O_RDWR | O_CREAT, 0600);
}

/* The taker has gone; a child that inherited the description still holds the lock. */
static void in_flock_of_the_dead(void)
{
	int fd;

	if (!fork()) {
		fd = lock_fd();
		flock(fd, LOCK_EX);
		sh->v[1] = getpid();
		if (!fork()) {
			sh->v[0] = getpid();
			forever();
		}
		_exit(0);
	}
	wait(NULL);
	while (!sh->v[0])
		nap(0.01);
	fd = lock_fd();
	sh->v[2] = fd;
	ready();
	flock(fd, LOCK_EX);
}

static void test_inherited_flock(void **state)
{
	const struct wg_file_lock *held = NULL;
	struct wg_file *mine;
	struct plant x;

	(void)state;
	sh->v[0] = 0;
	plant(&x, in_flock_of_the_dead, true);
	mine = wg_find_file(x.p, sh->v[2]);
	for (size_t i = 0; i < x.f->locks.n; i++)
		if (x.f->locks.v[i].ino == mine->ino && !x.f->locks.v[i].blocked)
			held = &x.f->locks.v[i];
	assert_non_null(held);
	assert_int_equal(held->taken_by, sh->v[1]);
	assert_int_equal(held->pid, sh->v[0]);
	assert_true(held->holder_alive);
	assert_non_null(wg_find_process(x.f, (int32_t)sh->v[0]));
	kill((pid_t)sh->v[0], SIGKILL);
	reap(&x);
}

static void map_word(void)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/shared", dir);
	fd = open(path, O_RDWR | O_CREAT, 0600);
	(void)!ftruncate(fd, 4096);
	sh->v[3] = (int64_t)(uintptr_t)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
}

static void in_shared_file_futex(void)
{
	if (!fork()) {
		if (!fork()) {
			map_word();
			sh->v[0] = getpid();
			forever();
		}
		_exit(0);
	}
	wait(NULL);
	while (!sh->v[0])
		nap(0.01);
	map_word();
	ready();
	sem_init((sem_t *)(uintptr_t)sh->v[3], 1, 0);
	sem_wait((sem_t *)(uintptr_t)sh->v[3]);
}

static void test_mappers(void **state)
{
	struct plant x;

	(void)state;
	sh->v[0] = 0;
	plant(&x, in_shared_file_futex, true);
	assert_int_equal(x.t->wait.op, WG_OP_FUTEX);
	assert_non_null(strstr(x.t->wait.futex.map_path, "/shared"));
	full(x.f, sh->v[0]);
	kill((pid_t)sh->v[0], SIGKILL);
	reap(&x);
}

/* ---- families ----------------------------------------------------------------------------------- */

static void with_grandchild(void)
{
	pid_t pid;

	sh->v[1] = under(forever);
	pid = fork();
	if (!pid)
		_exit(3);
	sh->v[2] = pid;
	forever();
}

static void in_wait_for_family(void)
{
	sh->v[0] = under(with_grandchild);
	while (!sh->v[2])
		nap(0.01);
	nap(0.05);
	ready();
	waitpid((pid_t)sh->v[0], NULL, 0);
}

static void test_family(void **state)
{
	struct wg_process *child, *zombie;
	struct plant x;

	(void)state;
	sh->v[2] = 0;
	plant(&x, in_wait_for_family, true);
	child = full(x.f, sh->v[0]);
	full(x.f, sh->v[1]);
	zombie = wg_find_process(x.f, (int32_t)sh->v[2]);
	assert_non_null(zombie);
	assert_false(zombie->alive);
	assert_true(zombie->end.known);
	assert_int_equal(zombie->end.status, 3);
	assert_int_equal(child->children.n, 2);
	assert_int_equal(child->ppid, x.pid);
	reap(&x);
}

static void in_stopped_child(void)
{
	sh->v[0] = under(forever);
	nap(0.05);
	kill((pid_t)sh->v[0], SIGSTOP);
	ready();
	waitpid((pid_t)sh->v[0], NULL, 0);
}

static void test_stopped(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_stopped_child, true);
	assert_int_equal(full(x.f, sh->v[0])->state, 'T');
	assert_int_equal(full(x.f, sh->v[0])->threads.v[0].state, 'T');
	kill((pid_t)sh->v[0], SIGKILL);
	reap(&x);
}

static void in_traced_child(void)
{
	sh->v[0] = under(forever);
	nap(0.05);
	ptrace(PTRACE_SEIZE, (pid_t)sh->v[0], NULL, NULL);
	ptrace(PTRACE_INTERRUPT, (pid_t)sh->v[0], NULL, NULL);
	nap(0.05);
	ready();
	forever();
}

static void test_traced(void **state)
{
	struct wg_process *p;
	struct plant x;

	(void)state;
	plant(&x, in_traced_child, true);
	p = full(x.f, sh->v[0]);
	assert_int_equal(p->threads.v[0].state, 't');
	assert_int_equal(p->tracer_pid, x.pid);
	kill((pid_t)sh->v[0], SIGKILL);
	reap(&x);
}

static pid_t rank_process(const char *rank, const char *port)
{
	pid_t pid;

	fflush(NULL);
	pid = fork();
	if (!pid) {
		char r[32], p[32];
		char *env[] = { r, p, "WORLD_SIZE=2", "MASTER_ADDR=localhost", NULL };
		char *argv[] = { "sleep", "100", NULL };

		snprintf(r, sizeof(r), "RANK=%s", rank);
		snprintf(p, sizeof(p), "MASTER_PORT=%s", port);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setsid();
		execve("/bin/sleep", argv, env);
		_exit(1);
	}
	return pid;
}

static void test_ranks(void **state)
{
	char port[16], other[16];
	struct wg_facts *f = wg_facts_new();
	struct wg_collect_options o;
	int32_t a, b, c;

	(void)state;
	snprintf(port, sizeof(port), "%d", getpid());
	snprintf(other, sizeof(other), "%d1", getpid());
	a = rank_process("0", port);
	b = rank_process("1", port);
	c = rank_process("1", other); /* another job */
	nap(0.2);
	o = options(&a);
	o.follow = true;
	assert_int_equal(wg_collect(f, &o), 0);
	assert_int_equal(full(f, b)->rank, 1);
	/* It may turn up as another writer of our own output, not as a rank. */
	assert_true(!wg_find_process(f, c) || wg_find_process(f, c)->stub);
	kill(a, SIGKILL);
	kill(b, SIGKILL);
	kill(c, SIGKILL);
	waitpid(a, NULL, 0);
	waitpid(b, NULL, 0);
	waitpid(c, NULL, 0);
	wg_facts_free(f);
}

/* In a child that has become an ordinary user: 0 when all is as it must be, else a line. */
static int as_nobody(int (*fn)(int32_t pid), int32_t pid)
{
	int st = 0;
	pid_t c;

	fflush(NULL);
	c = fork();
	if (!c) {
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(1);
		prctl(PR_SET_DUMPABLE, 1);
		_exit(fn(pid));
	}
	waitpid(c, &st, 0);
	return WIFEXITED(st) ? WEXITSTATUS(st) : 250;
}

/* ---- samples ----------------------------------------------------------------------------------------- */

static void in_poll_loop(void)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/nothing-here", dir);
	ready();
	for (;;) {
		if (!stat(path, &st))
			return;
		nap(0.01);
	}
}

static bool misses(const struct wg_missing_list *m, const char *what)
{
	for (size_t i = 0; i < m->n; i++)
		if (strstr(m->v[i].what, what))
			return m->v[i].why != NULL;
	return false;
}

/* What it polls between its sleeps is seen, or it is said that it cannot be. */
static int look_at_a_poller(int32_t pid)
{
	struct wg_collect_options o = options(&pid);
	struct wg_facts *f = wg_facts_new();
	struct wg_thread *t;
	int rc = 1;

	if (!wg_collect(f, &o)) {
		t = wg_find_thread(f->procs.v[0], sh->tid);
		if (t && t->sampled_twice && t->switches >= 2 && t->repeat_syscall) {
			if (misses(&f->procs.v[0]->missing, "what polling threads poll"))
				rc = strstr(t->repeat_syscall, "nanosleep") &&
				     (t->between_unseen || t->wait.op != WG_OP_SLEEP) ? 0 : 2;
			else if (t->between_unseen)
				rc = 5;
			else if (!t->repeat_path || !strstr(t->repeat_path, "nothing-here"))
				rc = 3;
			else if (t->repeat_exists != 0 || t->repeat_errno != ENOENT)
				rc = 4;
			else
				rc = 0;
		}
	}
	wg_facts_free(f);
	return rc;
}

static void test_repeats(void **state)
{
	pid_t pid;

	(void)state;
	pid = start(in_poll_loop);
	while (!sh->ready)
		nap(0.01);
	assert_int_equal(look_at_a_poller(pid), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void in_poll_loop_as_nobody(void)
{
	if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
		return;
	prctl(PR_SET_DUMPABLE, 1);
	in_poll_loop();
}

static void test_repeats_as_user(void **state)
{
	pid_t pid;

	(void)state;
	if (geteuid())
		skip();
	pid = start(in_poll_loop_as_nobody);
	while (!sh->ready)
		nap(0.01);
	assert_int_equal(as_nobody(look_at_a_poller, pid), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* A thread that burns in user space: where, and what code that is. */
static void in_spin(void)
{
	ready();
	for (;;)
		if (sh->v[5])
			return;
}

static void test_spinning(void **state)
{
	struct plant x;
	pid_t pid;
	int n = 0;

	(void)state;
	sh->v[5] = 0;
	pid = start(in_spin);
	while (!sh->ready)
		nap(0.01);
	look(&x, pid, false);
	if (!misses(&x.p->missing, "where running threads are")) {
		while (n < 8 && x.t->sample_pc[n])
			n++;
		assert_true(n >= 3);
		for (int i = 0; i < n; i++) {
			assert_true(x.t->sample_pc[i] >= (uintptr_t)in_spin);
			assert_true(x.t->sample_pc[i] < (uintptr_t)in_spin + 256);
		}
		assert_non_null(x.t->code);
		assert_true(x.t->code_at < (uintptr_t)in_spin + 256);
		/* The bytes are those of the program. */
		assert_memory_equal(x.t->code, (void *)(uintptr_t)x.t->code_at, x.t->code_len);
	}
	assert_null(x.t->repeat_syscall);
	reap(&x);
}

/* Reading and writing is work, however often the same call comes. */
static void in_copy_loop(void)
{
	char buf[64];
	int p[2];

	if (pipe(p))
		return;
	ready();
	for (;;) {
		(void)!write(p[1], buf, sizeof(buf));
		(void)!read(p[0], buf, sizeof(buf));
		nap(0.01);
	}
}

static void test_work_is_no_polling(void **state)
{
	struct plant x;
	pid_t pid;

	(void)state;
	pid = start(in_copy_loop);
	while (!sh->ready)
		nap(0.01);
	look(&x, pid, false);
	assert_true(!x.t->repeat_syscall || strstr(x.t->repeat_syscall, "nanosleep"));
	reap(&x);
}

static void test_one_sample(void **state)
{
	struct plant x;
	pid_t pid;

	(void)state;
	pid = start(in_read_of_silent_child);
	settle(pid);
	nap(1.3); /* longer ago than what is worth a second look */
	look(&x, pid, false);
	if (wg_has_sec(x.t->last_ran_s)) {
		assert_true(x.t->last_ran_s > 1.0 && x.t->last_ran_s < 20);
		assert_false(x.t->sampled_twice);
		assert_true(x.f->interval_s == 0);
	}
	reap(&x);
}

/* ---- what goes wrong ----------------------------------------------------------------------------------- */

static void churn(void)
{
	ready();
	for (;;) {
		pid_t pid = fork();

		if (!pid)
			_exit(0);
		if (pid > 0)
			waitpid(pid, NULL, 0);
	}
}

static void *short_thread(void *arg)
{
	return arg;
}

static void churn_threads(void)
{
	ready();
	for (;;) {
		pthread_t t[4];

		for (int i = 0; i < 4; i++)
			pthread_create(&t[i], NULL, short_thread, NULL);
		for (int i = 0; i < 4; i++)
			pthread_join(t[i], NULL);
	}
}

static void test_vanishing(void **state)
{
	(void)state;
	for (int kind = 0; kind < 2; kind++) {
		pid_t pid = start(kind ? churn_threads : churn);

		while (!sh->ready)
			nap(0.01);
		for (int i = 0; i < 15; i++) {
			struct wg_facts *f = wg_facts_new();
			int32_t asked = pid;
			struct wg_collect_options o = options(&asked);

			o.follow = true;
			o.gap_s = 0.02;
			assert_int_equal(wg_collect(f, &o), 0);
			assert_true(f->procs.v[0]->alive);
			wg_facts_free(f);
		}
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
	}
	/* The asked one itself ends at any moment. */
	for (int i = 0; i < 25; i++) {
		struct wg_facts *f = wg_facts_new();
		struct wg_collect_options o;
		int32_t pid;
		int rc;

		fflush(NULL);
		pid = fork();
		if (!pid) {
			nap(0.0005 * i);
			_exit(0);
		}
		o = options(&pid);
		o.follow = true;
		o.gap_s = 0.01;
		rc = wg_collect(f, &o);
		assert_true(rc == 0 || rc == -ESRCH);
		waitpid(pid, NULL, 0);
		wg_facts_free(f);
	}
}

static int open_descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 2048; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void test_nothing_leaks(void **state)
{
	struct plant x;
	int before, after;
	pid_t pid;

	(void)state;
	pid = start(in_read_of_silent_child);
	settle(pid);
	look(&x, pid, true);
	wg_facts_free(x.f);
	/*
	 * A source that does not answer in time leaves its descriptor with the thread left behind, by
	 * design, and a loaded machine makes that happen. What leaks, leaks in every round.
	 */
	for (int round = 0; round < 4; round++) {
		before = open_descriptors();
		for (int i = 0; i < 3; i++) {
			look(&x, pid, true);
			wg_facts_free(x.f);
		}
		after = open_descriptors();
		if (before == after)
			break;
	}
	assert_int_equal(before, after);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static void *sleeper(void *arg)
{
	while (!arg)
		pause();
	return NULL;
}

static void in_many_threads(void)
{
	pthread_attr_t a;
	pthread_t t;

	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 65536);
	for (int i = 0; i < 400; i++)
		if (pthread_create(&t, &a, sleeper, NULL))
			break;
	ready();
	forever();
}

static void test_many_threads(void **state)
{
	struct plant x;
	double t;

	(void)state;
	plant(&x, in_many_threads, false);
	assert_int_equal(x.p->threads.n, 401);
	for (size_t i = 2; i < x.p->threads.n; i++)
		assert_true(x.p->threads.v[i].tid > x.p->threads.v[i - 1].tid);
	wg_facts_free(x.f);
	t = now_s();
	look(&x, x.pid, false);
	assert_false(expired(t, 3)); /* 20 ms and a gap on an idle machine */
	reap(&x);
}

/* ---- a file system that does not answer ------------------------------------------------------------------- */

static void fuse_reply(int fd, uint64_t unique, int error, const void *data, size_t n)
{
	char buf[512];
	struct fuse_out_header h = { .len = (uint32_t)(sizeof(h) + n), .error = error, .unique = unique };

	memcpy(buf, &h, sizeof(h));
	memcpy(buf + sizeof(h), data, n);
	(void)!write(fd, buf, sizeof(h) + n);
}

static struct fuse_attr fuse_attr_of(uint64_t node)
{
	struct fuse_attr a = { .ino = node, .mode = node == 1 ? S_IFDIR | 0755 : S_IFREG | 0644,
			       .nlink = 1, .blksize = 4096 };

	return a;
}

/* Opens are answered, everything that moves data or looks up "stuck" is not. */
static void fuse_daemon(int fd)
{
	static char buf[256 * 1024];

	for (;;) {
		ssize_t n = read(fd, buf, sizeof(buf));
		struct fuse_in_header *h = (void *)buf;
		void *arg = buf + sizeof(*h);

		if (n < (ssize_t)sizeof(*h)) {
			if (n < 0 && errno == EINTR)
				continue;
			return;
		}
		switch (h->opcode) {
		case FUSE_INIT: {
			struct fuse_init_out o = { .major = FUSE_KERNEL_VERSION,
						   .minor = FUSE_KERNEL_MINOR_VERSION,
						   .max_write = 65536, .max_background = 12,
						   .congestion_threshold = 9 };

			fuse_reply(fd, h->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_LOOKUP: {
			struct fuse_entry_out o = { .nodeid = 2, .attr_valid = 3600, .entry_valid = 3600 };

			if (!strcmp(arg, "stuck"))
				break;
			o.attr = fuse_attr_of(2);
			fuse_reply(fd, h->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_GETATTR: {
			struct fuse_attr_out o = { .attr_valid = 3600 };

			o.attr = fuse_attr_of(h->nodeid);
			fuse_reply(fd, h->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_OPEN: {
			struct fuse_open_out o = { .fh = 1, .open_flags = FOPEN_DIRECT_IO };

			fuse_reply(fd, h->unique, 0, &o, sizeof(o));
			break;
		}
		case FUSE_WRITE:
		case FUSE_READ:
		case FUSE_FSYNC:
		case FUSE_FORGET:
		case FUSE_BATCH_FORGET:
		case FUSE_INTERRUPT:
			break;
		case FUSE_RELEASE:
		case FUSE_FLUSH:
			fuse_reply(fd, h->unique, 0, NULL, 0);
			break;
		default:
			fuse_reply(fd, h->unique, -ENOSYS, NULL, 0);
			break;
		}
	}
}

static char mount_dir[128];

static void in_stuck_write(void)
{
	char path[160];
	int fd;

	snprintf(path, sizeof(path), "%s/ckpt", mount_dir);
	fd = open(path, O_RDWR);
	sh->v[1] = fd;
	ready();
	(void)!write(fd, path, sizeof(path));
}

static void in_stuck_stat(void)
{
	struct stat st;
	char path[160];

	snprintf(path, sizeof(path), "%s/stuck", mount_dir);
	ready();
	(void)!stat(path, &st);
}

static void test_stuck_file_system(void **state)
{
	struct wg_file *file;
	char options_text[128];
	pid_t daemon, stuck[2];
	struct plant x;
	double t;
	int fd;

	(void)state;
	if (geteuid())
		skip();
	fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
	if (fd < 0)
		skip();
	snprintf(mount_dir, sizeof(mount_dir), "%s/mnt", dir);
	mkdir(mount_dir, 0700);
	snprintf(options_text, sizeof(options_text), "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
	if (mount("wgtest", mount_dir, "fuse.wgtest", 0, options_text)) {
		close(fd);
		skip();
	}
	fflush(NULL);
	daemon = fork();
	if (!daemon) {
		fuse_daemon(fd);
		_exit(0);
	}
	close(fd);
	for (int i = 0; i < 2; i++) {
		t = now_s();
		plant(&x, i ? in_stuck_stat : in_stuck_write, true);
		assert_false(expired(t, 8));
		assert_true(x.t->state == 'S' || x.t->state == 'D');
		assert_int_equal(x.t->wait.op, i ? WG_OP_FSMETA : WG_OP_WRITE);
		assert_string_equal(x.t->wait.fs_type, "fuse.wgtest");
		assert_string_equal(x.t->wait.fs_mount, mount_dir);
		assert_true(x.t->wait.remote_fs);
		assert_int_equal(x.t->wait.fs_daemon_pid, daemon);
		full(x.f, daemon);
		if (i) {
			assert_non_null(strstr(x.t->wait.path, "/mnt/stuck"));
		} else {
			file = wg_find_file(x.p, sh->v[1]);
			assert_int_equal(file->kind, WG_FILE_REG);
			assert_int_equal(file->fs_daemon_pid, daemon);
			assert_true(file->remote_fs);
		}
		kill(x.pid, SIGKILL); /* a killed request ends when the daemon goes */
		stuck[i] = x.pid;
		wg_facts_free(x.f);
	}
	kill(daemon, SIGKILL);
	waitpid(daemon, NULL, 0);
	waitpid(stuck[0], NULL, 0);
	waitpid(stuck[1], NULL, 0);
	umount2(mount_dir, MNT_DETACH);
	rmdir(mount_dir);
}

/* ---- other users, other namespaces --------------------------------------------------------------------------- */

#define must(x)             \
	do {                \
		if (!(x))   \
			return __LINE__ & 0xff ? __LINE__ & 0xff : 1; \
	} while (0)

static int look_at_a_stranger(int32_t pid)
{
	struct wg_collect_options o = options(&pid);
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p;

	o.follow = true;
	must(wg_collect(f, &o) == 0);
	p = f->procs.v[0];
	must(p->alive && p->threads.n == 1);
	must(p->threads.v[0].state == 'S');
	must(p->threads.v[0].wait.op == WG_OP_UNKNOWN); /* nothing told: nothing claimed */
	must(p->uid == 0);
	must(p->comm && p->command);
	must(misses(&p->missing, "system calls"));
	must(misses(&p->missing, "descriptors"));
	must(misses(&p->missing, "memory"));
	must(!f->fd_scan_complete);
	must(!f->is_root);
	return 0;
}

static void test_strangers(void **state)
{
	pid_t pid;

	(void)state;
	if (geteuid())
		skip();
	pid = start(in_read_of_silent_child);
	settle(pid);
	assert_int_equal(as_nobody(look_at_a_stranger, pid), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

static int look_at_the_hidden(int32_t pid)
{
	struct wg_collect_options o = options(&pid);
	struct wg_facts *f = wg_facts_new();

	must(wg_collect(f, &o) == -EACCES);
	return 0;
}

/* A /proc that hides the processes of others: there, but not to be seen. */
static void test_hidden(void **state)
{
	int st = 0;
	pid_t pid, c;

	(void)state;
	if (geteuid())
		skip();
	pid = start(in_read_of_silent_child);
	settle(pid);
	fflush(NULL);
	c = fork();
	if (!c) {
		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("proc", "/proc", "proc", 0, "hidepid=2"))
			_exit(77);
		_exit(as_nobody(look_at_the_hidden, pid));
	}
	waitpid(c, &st, 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (WIFEXITED(st) && WEXITSTATUS(st) == 77)
		skip();
	assert_int_equal(st, 0);
}

static void in_container(void)
{
	char c;

	/* PID 1 of its own namespace, with a child that it waits for by the inner number. */
	if (pipe(pipe_fds))
		return;
	sh->v[1] = under(hold_write_end);
	if (!fork()) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pipe_fds[1]);
		(void)!read(pipe_fds[0], &c, 1);
		forever();
	}
	sh->v[2] = 1;
	waitpid((pid_t)sh->v[1], NULL, 0);
}

static void test_container(void **state)
{
	struct wg_process *inside;
	struct wg_facts *f = wg_facts_new();
	struct wg_collect_options o;
	int32_t outer;

	(void)state;
	if (geteuid()) {
		wg_facts_free(f);
		skip();
	}
	sh->v[0] = sh->v[2] = 0;
	fflush(NULL);
	outer = fork();
	if (!outer) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (unshare(CLONE_NEWPID | CLONE_NEWNET)) {
			sh->v[2] = -1;
			_exit(0);
		}
		pid_t inner = fork();

		if (!inner) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			in_container();
			forever();
		}
		sh->v[0] = inner;
		forever();
	}
	while (!sh->v[2])
		nap(0.01);
	if (sh->v[2] < 0) {
		waitpid(outer, NULL, 0);
		wg_facts_free(f);
		skip();
	}
	nap(0.2);
	o = options(&outer);
	o.follow = true;
	assert_int_equal(wg_collect(f, &o), 0);
	inside = full(f, sh->v[0]);
	assert_int_equal(inside->ns_pid, 1);
	assert_int_not_equal(inside->pidns, f->procs.v[0]->pidns);
	assert_int_equal(inside->threads.v[0].ns_tid, 1);
	assert_int_equal(inside->children.n, 2);
	/* waitpid(2) was called with the number of inside; the fact has the number of outside. */
	assert_int_equal(inside->threads.v[0].wait.op, WG_OP_WAIT);
	assert_true(sh->v[1] > 1 && sh->v[1] < 10);
	assert_true(inside->threads.v[0].wait.child > 10);
	assert_int_equal(full(f, inside->threads.v[0].wait.child)->ns_pid, sh->v[1]);
	kill((pid_t)sh->v[0], SIGKILL);
	kill(outer, SIGKILL);
	waitpid(outer, NULL, 0);
	wg_facts_free(f);
}

/* ---- with what the process itself handed out -------------------------------------------------------------------- */

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;

static void *want_held(void *arg)
{
	ready();
	pthread_mutex_lock(&held);
	return arg;
}

static int given_dir, given_mem, given_calls;

static int look_with_descriptors(int32_t pid)
{
	struct wg_collect_options o = options(&pid);
	struct wg_facts *f = wg_facts_new();
	struct wg_thread *t;

	o.proc_fd = given_dir;
	o.mem_fd = given_mem;
	o.syscall_fd = given_calls;
	must(wg_collect(f, &o) == 0);
	t = wg_find_thread(f->procs.v[0], sh->tid);
	must(t);
	must(t->wait.op == WG_OP_FUTEX);
	must(t->wait.has_args);
	must(t->wait.futex.addr == (uintptr_t)&held);
	/* Another user may not read the maps, without which no memory is touched. */
	must(!t->wait.futex.nwords || (pid_t)t->wait.futex.words[2] == pid);
	return 0;
}

static void in_self_dump(void)
{
	char path[64], line[256];
	pthread_t t;
	ssize_t n;
	int fd;

	pthread_mutex_lock(&held);
	pthread_create(&t, NULL, want_held, NULL);
	while (!sh->ready)
		nap(0.01);
	nap(0.1);
	given_dir = open("/proc/self", O_RDONLY | O_DIRECTORY);
	given_mem = open("/proc/self/mem", O_RDONLY);
	given_calls = memfd_create("calls", 0);
	snprintf(path, sizeof(path), "/proc/self/task/%d/syscall", sh->tid);
	fd = open(path, O_RDONLY);
	n = read(fd, line, sizeof(line));
	dprintf(given_calls, "%d %.*s", getpid(), 8, "running\n");
	dprintf(given_calls, "%d %.*s", sh->tid, (int)(n > 0 ? n : 0), line);
	sh->v[0] = as_nobody(look_with_descriptors, getpid());
	sh->v[1] = 1;
	forever();
}

/* As when ptrace is forbidden: another user, but with the descriptors of the process. */
static void test_given_descriptors(void **state)
{
	pid_t pid;

	(void)state;
	if (geteuid())
		skip();
	sh->v[0] = -1;
	sh->v[1] = 0;
	pid = start(in_self_dump);
	while (!sh->v[1] && !waitpid(pid, NULL, WNOHANG))
		nap(0.01);
	assert_int_equal(sh->v[0], 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
}

/* ---- control groups ---------------------------------------------------------------------------------------------- */

static int write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY), rc;

	if (fd < 0)
		return -1;
	rc = write(fd, text, strlen(text)) < 0 ? -1 : 0;
	close(fd);
	return rc;
}

static void test_frozen(void **state)
{
	static const char *const places[] = { "/sys/fs/cgroup/freezer", "/sys/fs/cgroup/unified",
					      "/sys/fs/cgroup" };
	char group[160], path[200], text[16];
	struct plant x;
	bool done = false;
	pid_t pid;

	(void)state;
	if (geteuid())
		skip();
	for (int i = 0; i < 3; i++) {
		snprintf(group, sizeof(group), "%s/wg-test-%d", places[i], getpid());
		if (access(places[i], F_OK) || mkdir(group, 0755))
			continue;
		snprintf(path, sizeof(path), "%s/%s", group, i ? "cgroup.freeze" : "freezer.state");
		if (!access(path, W_OK)) {
			char procs[200];

			pid = start(in_read_of_silent_child);
			settle(pid);
			snprintf(procs, sizeof(procs), "%s/cgroup.procs", group);
			snprintf(text, sizeof(text), "%d", pid);
			if (!write_file(procs, text)) {
				assert_int_equal(write_file(path, i ? "1" : "FROZEN"), 0);
				nap(0.2);
				look(&x, pid, false);
				assert_true(x.p->cgroup.frozen);
				wg_facts_free(x.f);
				assert_int_equal(write_file(path, i ? "0" : "THAWED"), 0);
				nap(0.1);
				look(&x, pid, false);
				assert_false(x.p->cgroup.frozen);
				wg_facts_free(x.f);
				done = true;
			}
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
			nap(0.1);
		}
		rmdir(group);
	}
	if (!done)
		skip();
}

/* Quota and throttling, and the number of tasks: version 1 here, version 2 elsewhere. */
static void test_limits_of_group(void **state)
{
	char cpu[160], pids[160], path[200], text[16];
	struct plant x;
	pid_t pid;

	(void)state;
	if (geteuid())
		skip();
	snprintf(cpu, sizeof(cpu), "/sys/fs/cgroup/cpu/wg-test-%d", getpid());
	snprintf(pids, sizeof(pids), "/sys/fs/cgroup/pids/wg-test-%d", getpid());
	if (mkdir(cpu, 0755) || mkdir(pids, 0755)) {
		rmdir(cpu);
		skip();
	}
	pid = start(in_spin);
	while (!sh->ready)
		nap(0.01);
	snprintf(text, sizeof(text), "%d", pid);
	snprintf(path, sizeof(path), "%s/cgroup.procs", cpu);
	assert_int_equal(write_file(path, text), 0);
	snprintf(path, sizeof(path), "%s/cgroup.procs", pids);
	assert_int_equal(write_file(path, text), 0);
	snprintf(path, sizeof(path), "%s/pids.max", pids);
	assert_int_equal(write_file(path, "7"), 0);
	snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", cpu);
	write_file(path, "20000");
	snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", cpu);
	if (!write_file(path, "2000")) {
		nap(0.2);
		look(&x, pid, false);
		near(x.p->cgroup.cpu_quota, 0.1, 1e-6);
		assert_true(x.p->cgroup.cpu_throttled > 0);
		assert_true(x.p->cgroup.cpu_throttled_delta > 0);
		assert_true(x.p->cgroup.cpu_periods_delta >= x.p->cgroup.cpu_throttled_delta);
		assert_int_equal(x.p->cgroup.pids_max, 7);
		assert_int_equal(x.p->cgroup.pids_current, 1);
		wg_facts_free(x.f);
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	nap(0.1);
	rmdir(cpu);
	rmdir(pids);
}

/* A kernel thread has no system call, though /proc prints zeroes for one. */
static void test_kernel_thread(void **state)
{
	struct wg_facts *f = wg_facts_new();
	int32_t pid = 2;
	struct wg_collect_options o = options(&pid);
	bool kernel;

	(void)state;
	kernel = !wg_collect(f, &o) && f->procs.n && !strcmp(f->procs.v[0]->comm, "kthreadd");
	if (kernel) {
		assert_int_equal(f->procs.v[0]->threads.n, 1);
		assert_int_equal(f->procs.v[0]->threads.v[0].wait.op, WG_OP_UNKNOWN);
		assert_false(wg_has_int(f->procs.v[0]->threads.v[0].wait.fd));
	}
	wg_facts_free(f);
	if (!kernel)
		skip(); /* a container */
}

static int clean_up(void **state)
{
	static const char *const names[] = { "lock", "fifo", "shared" };

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[128];

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pipe_to_child),
		cmocka_unit_test(test_socket_to_stranger),
		cmocka_unit_test(test_tcp_across),
		cmocka_unit_test(test_terminal),
		cmocka_unit_test(test_fifo),
		cmocka_unit_test_teardown(test_inherited_flock, clean_up),
		cmocka_unit_test(test_mappers),
		cmocka_unit_test(test_family),
		cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_traced),
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_repeats),
		cmocka_unit_test(test_repeats_as_user),
		cmocka_unit_test(test_spinning),
		cmocka_unit_test(test_work_is_no_polling),
		cmocka_unit_test(test_one_sample),
		cmocka_unit_test(test_vanishing),
		cmocka_unit_test(test_nothing_leaks),
		cmocka_unit_test(test_many_threads),
		cmocka_unit_test(test_stuck_file_system),
		cmocka_unit_test(test_strangers),
		cmocka_unit_test(test_hidden),
		cmocka_unit_test(test_container),
		cmocka_unit_test(test_given_descriptors),
		cmocka_unit_test(test_frozen),
		cmocka_unit_test(test_limits_of_group),
		cmocka_unit_test(test_kernel_thread),
	};
	int rc;

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	snprintf(dir, sizeof(dir), "/tmp/wg-test-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	make_shared();
	rc = cmocka_run_group_tests(tests, NULL, NULL);
	clean_up(NULL);
	rmdir(dir);
	return rc;
}
