/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_procfs.c - threads that block in known ways, seen from outside; and the texts of /proc
 * through their parsers, hostile ones included.
 *
 * Each kind of wait is planted in a forked child; the facts about it must be the planted
 * ones. Everything is done twice when started as root: as root, and as an ordinary user
 * looking at his own processes.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <math.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "collect/mem.h"
#include "collect/procfs.h"
#include "plant.h"

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

/* ---- futexes --------------------------------------------------------------------------- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;

static void *locker(void *arg)
{
	(void)arg;
	ready();
	pthread_mutex_lock(&mutex);
	return NULL;
}

static void in_mutex(void)
{
	pthread_t t;

	pthread_mutex_lock(&mutex);
	sh->v[0] = (int64_t)syscall(SYS_gettid);
	sh->v[1] = (int64_t)(uintptr_t)&mutex;
	pthread_create(&t, NULL, locker, NULL);
	for (;;)
		pause();
}

static void test_mutex(void **state)
{
	struct plant x;
	struct wg_wait *w;

	(void)state;
	plant(&x, in_mutex, false);
	w = &x.t->wait;
	assert_int_equal(w->op, WG_OP_FUTEX);
	assert_string_equal(w->syscall_name, "futex");
	assert_true(w->has_args);
	assert_int_equal(w->futex.addr, sh->v[1]);
	assert_int_equal(w->futex.op & 0x7f, FUTEX_WAIT);
	assert_int_equal(w->futex.val, 2);
	assert_true(w->futex.nwords >= 5);
	assert_int_equal(w->futex.words[0], 2);
	assert_int_equal(w->futex.words[2], sh->v[0]);
	assert_false(w->futex.is_shared);
	assert_true(w->timeout_known);
	assert_true(isnan(w->timeout_s));
	assert_true(w->since_s >= 0.01 && w->since_s < 30);
	assert_true(x.t->sp && x.t->pc);
	assert_int_equal(x.p->threads.n, 2);
	assert_int_equal(x.p->threads.v[0].tid, x.pid); /* the leader comes first */
	assert_int_equal(x.p->threads.v[0].wait.op, WG_OP_SIGWAIT);
	reap(&x);
}

static void in_cond(void)
{
	struct timespec t;

	pthread_mutex_lock(&mutex);
	clock_gettime(CLOCK_REALTIME, &t);
	t.tv_sec += 500;
	ready();
	pthread_cond_timedwait(&cond, &mutex, &t);
}

static void test_cond_timeout(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_cond, false);
	assert_int_equal(x.t->wait.op, WG_OP_FUTEX);
	assert_int_equal(x.t->wait.futex.op & 0x7f, FUTEX_WAIT_BITSET);
	assert_true(x.t->wait.futex.op & FUTEX_CLOCK_REALTIME);
	assert_true(x.t->wait.timeout_known);
	near(x.t->wait.timeout_s, 500, 2);
	reap(&x);
}

static void in_relative_futex(void)
{
	struct timespec t = { 77, 500000000 };
	uint32_t word = 5;

	ready();
	syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 5, &t, NULL, 0);
}

static void test_relative_futex(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_relative_futex, false);
	assert_int_equal(x.t->wait.futex.val, 5);
	assert_int_equal(x.t->wait.futex.words[0], 5);
	near(x.t->wait.timeout_s, 77.5, 1e-6);
	reap(&x);
}

static void in_shared_sem(void)
{
	sem_init(&sh->sem, 1, 0);
	ready();
	sem_wait(&sh->sem);
}

static void test_shared_futex(void **state)
{
	struct plant x, y;

	(void)state;
	plant(&x, in_shared_sem, false);
	assert_true(x.t->wait.futex.is_shared);
	assert_true(x.t->wait.futex.has_map);
	assert_true(x.t->wait.futex.map_ino != 0);
	/* A second process: the same identity. */
	plant(&y, in_shared_sem, false);
	assert_int_equal(x.t->wait.futex.map_ino, y.t->wait.futex.map_ino);
	assert_int_equal(x.t->wait.futex.map_dev, y.t->wait.futex.map_dev);
	assert_int_equal(x.t->wait.futex.map_off, y.t->wait.futex.map_off);
	reap(&y);
	reap(&x);
}

static void in_pi(void)
{
	pthread_mutexattr_t a;
	static pthread_mutex_t m;
	pthread_t t;

	pthread_mutexattr_init(&a);
	pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&m, &a);
	pthread_mutex_lock(&m);
	sh->v[0] = (int64_t)syscall(SYS_gettid);
	sh->v[1] = (int64_t)(uintptr_t)&m;
	(void)t;
	if (!pthread_create(&t, NULL, (void *(*)(void *))(void *)pthread_mutex_lock, &m))
		while (!sh->ready) { /* the other thread's number: the other task */
			DIR *d = opendir("/proc/self/task");
			struct dirent *e;

			while (d && (e = readdir(d)))
				if (atoi(e->d_name) > 0 && atoi(e->d_name) != (int)sh->v[0]) {
					sh->tid = atoi(e->d_name);
					sh->ready = 1;
				}
			if (d)
				closedir(d);
		}
	for (;;)
		pause();
}

static void test_pi(void **state)
{
	struct plant x;
	pid_t pid;

	(void)state;
	pid = start(in_pi);
	while (!sh->ready && !waitpid(pid, NULL, WNOHANG))
		nap(0.01);
	nap(0.1);
	sh->tid = pid; /* whichever number the other one has, it is in the list */
	look(&x, pid, false);
	assert_int_equal(x.p->threads.n, 2);
	x.t = &x.p->threads.v[1];
	assert_int_equal(x.t->wait.op, WG_OP_FUTEX);
	assert_int_equal(x.t->wait.futex.op & 0x7f, FUTEX_LOCK_PI);
	assert_int_equal(x.t->wait.futex.words[0] & FUTEX_TID_MASK, sh->v[0]);
	reap(&x);
}

static void in_waitv(void)
{
	struct {
		uint64_t val, uaddr;
		uint32_t flags, reserved;
	} v[2] = { { 0, (uintptr_t)&sh->word, 2 | 128, 0 }, { 0, (uintptr_t)&sh->word, 2 | 128, 0 } };

	ready();
	if (syscall(SYS_futex_waitv, v, 2, 0, NULL, 0) < 0 && errno == ENOSYS)
		for (sh->v[7] = 1;;)
			pause();
}

static void test_waitv(void **state)
{
	struct plant x;

	(void)state;
	sh->v[7] = 0;
	plant(&x, in_waitv, false);
	if (!sh->v[7]) {
		assert_int_equal(x.t->wait.op, WG_OP_FUTEX);
		assert_int_equal(x.t->wait.futex.nwaitv, 2);
		assert_int_equal(x.t->wait.futex.addr, (uintptr_t)&sh->word);
	}
	reap(&x);
}

/* ---- pipes and sockets ---------------------------------------------------------------------- */

static void in_pipe_read(void)
{
	int p[2];
	char c[123];

	if (pipe(p))
		return;
	sh->v[0] = p[0];
	ready();
	(void)!read(p[0], c, sizeof(c));
}

static void test_pipe_read(void **state)
{
	struct plant x;
	struct wg_file *file;

	(void)state;
	plant(&x, in_pipe_read, false);
	assert_int_equal(x.t->wait.op, WG_OP_READ);
	assert_int_equal(x.t->wait.fd, sh->v[0]);
	assert_int_equal(x.t->wait.bytes, 123);
	file = wg_find_file(x.p, sh->v[0]);
	assert_non_null(file);
	assert_int_equal(file->kind, WG_FILE_PIPE);
	assert_int_equal(file->flags & O_ACCMODE, O_RDONLY);
	assert_int_equal(file->pipe_fill, 0);
	assert_int_equal(file->pipe_size, 65536);
	assert_true(file->ino != 0);
	reap(&x);
}

static void in_pipe_write(void)
{
	static char buf[300000];
	int p[2];

	if (pipe(p))
		return;
	sh->v[0] = p[1];
	ready();
	(void)!write(p[1], buf, sizeof(buf));
}

static void test_pipe_write(void **state)
{
	struct plant x;
	struct wg_file *file;

	(void)state;
	plant(&x, in_pipe_write, false);
	assert_int_equal(x.t->wait.op, WG_OP_WRITE);
	assert_int_equal(x.t->wait.fd, sh->v[0]);
	assert_int_equal(x.t->wait.bytes, 300000);
	file = wg_find_file(x.p, sh->v[0]);
	assert_int_equal(file->flags & O_ACCMODE, O_WRONLY);
	assert_int_equal(file->pipe_fill, file->pipe_size);
	reap(&x);
}

static void in_readv(void)
{
	char a[10], b[20];
	struct iovec v[2] = { { a, sizeof(a) }, { b, sizeof(b) } };
	int p[2];

	if (pipe(p))
		return;
	sh->v[0] = p[0];
	ready();
	(void)!readv(p[0], v, 2);
}

static void in_recvmsg(void)
{
	char a[11], b[22];
	struct iovec v[2] = { { a, sizeof(a) }, { b, sizeof(b) } };
	struct msghdr m = { .msg_iov = v, .msg_iovlen = 2 };
	int p[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, p))
		return;
	sh->v[0] = p[0];
	sh->v[1] = p[1];
	ready();
	(void)!recvmsg(p[0], &m, 0);
}

static void test_vectors(void **state)
{
	struct plant x;
	struct wg_file *a, *b;

	(void)state;
	plant(&x, in_readv, false);
	assert_int_equal(x.t->wait.op, WG_OP_READ);
	assert_int_equal(x.t->wait.bytes, 30);
	reap(&x);
	plant(&x, in_recvmsg, false);
	assert_int_equal(x.t->wait.op, WG_OP_READ);
	assert_int_equal(x.t->wait.fd, sh->v[0]);
	assert_int_equal(x.t->wait.bytes, 33);
	assert_true(x.t->wait.timeout_known && isnan(x.t->wait.timeout_s));
	a = wg_find_file(x.p, sh->v[0]);
	b = wg_find_file(x.p, sh->v[1]);
	assert_int_equal(a->kind, WG_FILE_SOCKET);
	assert_int_equal(a->sock_family, AF_UNIX);
	assert_int_equal(a->sock_type, SOCK_STREAM);
	assert_int_equal(a->sock_state, WG_SOCK_CONNECTED);
	assert_int_equal(a->sock_peer_ino, b->ino);
	assert_int_equal(b->sock_peer_ino, a->ino);
	reap(&x);
}

static void in_recv_timeout(void)
{
	struct timeval t = { 33, 0 };
	int p[2];
	char c;

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, p) ||
	    setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof(t)))
		return;
	ready();
	(void)!recv(p[0], &c, 1, 0);
}

static void test_recv_timeout(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_recv_timeout, false);
	assert_int_equal(x.t->wait.op, WG_OP_READ);
	assert_true(x.t->wait.timeout_known);
	near(x.t->wait.timeout_s, 33, 0.1);
	reap(&x);
}

static int tcp(bool listening, uint16_t *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(a);
	int s = socket(AF_INET, SOCK_STREAM, 0);

	if (listening) {
		if (bind(s, (void *)&a, sizeof(a)) || listen(s, 4) ||
		    getsockname(s, (void *)&a, &len))
			return -1;
		*port = ntohs(a.sin_port);
		return s;
	}
	a.sin_port = htons(*port);
	return connect(s, (void *)&a, sizeof(a)) ? -1 : s;
}

static void in_tcp(void)
{
	uint16_t port;
	int l = tcp(true, &port), c = tcp(false, &port), s = accept(l, NULL, NULL);
	char b[5];

	if (c < 0 || s < 0)
		return;
	(void)!write(s, "xyz", 3);
	sh->v[0] = c;
	sh->v[1] = s;
	sh->v[2] = l;
	sh->v[3] = port;
	ready();
	(void)!read(s, b, sizeof(b));
}

static void test_tcp(void **state)
{
	struct wg_file *c, *s, *l;
	struct plant x;
	char want[32];

	(void)state;
	plant(&x, in_tcp, false);
	assert_int_equal(x.t->wait.op, WG_OP_READ);
	assert_int_equal(x.t->wait.fd, sh->v[1]);
	c = wg_find_file(x.p, sh->v[0]);
	s = wg_find_file(x.p, sh->v[1]);
	l = wg_find_file(x.p, sh->v[2]);
	snprintf(want, sizeof(want), "127.0.0.1:%d", (int)sh->v[3]);
	assert_string_equal(l->sock_local, want);
	assert_int_equal(l->sock_state, WG_SOCK_LISTEN);
	assert_int_equal(l->sock_backlog, 0);
	assert_string_equal(c->sock_remote, want);
	assert_int_equal(c->sock_state, WG_SOCK_CONNECTED);
	assert_int_equal(c->sock_rxq, 3); /* came and was not read */
	assert_int_equal(c->sock_peer_ino, s->ino);
	assert_int_equal(s->sock_peer_ino, c->ino);
	reap(&x);
}

static void in_accept(void)
{
	uint16_t port;
	int l = tcp(true, &port);

	sh->v[0] = l;
	ready();
	accept(l, NULL, NULL);
}

static void in_connect(void)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int l = socket(AF_UNIX, SOCK_STREAM, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/sock", dir);
	unlink(a.sun_path);
	if (bind(l, (void *)&a, sizeof(a)) || listen(l, 0))
		return;
	sh->v[1] = l;
	for (;;) { /* one fits into the queue */
		int c = socket(AF_UNIX, SOCK_STREAM, 0);

		sh->v[0] = c;
		ready();
		connect(c, (void *)&a, sizeof(a));
	}
}

static void test_accept_connect(void **state)
{
	struct wg_file *c, *l;
	struct plant x;

	(void)state;
	plant(&x, in_accept, false);
	assert_int_equal(x.t->wait.op, WG_OP_ACCEPT);
	assert_int_equal(x.t->wait.fd, sh->v[0]);
	reap(&x);
	plant(&x, in_connect, false);
	assert_int_equal(x.t->wait.op, WG_OP_CONNECT);
	assert_int_equal(x.t->wait.fd, sh->v[0]);
	assert_non_null(strstr(x.t->wait.path, "/sock"));
	c = wg_find_file(x.p, sh->v[0]);
	l = wg_find_file(x.p, sh->v[1]);
	assert_int_equal(l->sock_state, WG_SOCK_LISTEN);
	assert_true(l->sock_backlog >= 1);
	assert_string_equal(c->sock_remote, x.t->wait.path);
	assert_int_equal(c->sock_peer_ino, l->ino);
	reap(&x);
}

static void in_splice(void)
{
	int a[2], b[2];

	if (pipe(a) || pipe(b))
		return;
	sh->v[0] = a[0];
	sh->v[1] = b[1];
	ready();
	splice(a[0], NULL, b[1], NULL, 4096, 0);
}

static void test_splice(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_splice, false);
	/* Where the kernel function tells it, which end stands still; else both ends. */
	if (x.t->wait.op == WG_OP_READ) {
		assert_int_equal(x.t->wait.fd, sh->v[0]);
	} else {
		assert_int_equal(x.t->wait.op, WG_OP_SPLICE);
		assert_int_equal(x.t->wait.fds.n, 2);
		assert_int_equal(x.t->wait.fds.v[0].fd, sh->v[0]);
		assert_int_equal(x.t->wait.fds.v[1].fd, sh->v[1]);
	}
	reap(&x);
}

/* ---- polls ---------------------------------------------------------------------------------- */

static int two_pipes(int *a, int *b)
{
	return pipe(a) || pipe(b);
}

static void in_poll(void)
{
	int a[2], b[2];
	struct pollfd v[3];

	if (two_pipes(a, b))
		return;
	v[0] = (struct pollfd){ a[0], POLLIN, 0 };
	v[1] = (struct pollfd){ -1, POLLIN, 0 }; /* not asked */
	v[2] = (struct pollfd){ b[0], POLLIN | POLLPRI, 0 };
	sh->v[0] = a[0];
	sh->v[1] = b[0];
	ready();
	poll(v, 3, 45000);
}

static void in_select(void)
{
	struct timeval t = { 61, 250000 };
	int a[2], b[2];
	static char fill[65536];
	fd_set r, w;

	if (two_pipes(a, b) || write(b[1], fill, sizeof(fill)) != sizeof(fill))
		return;
	FD_ZERO(&r);
	FD_ZERO(&w);
	FD_SET(a[0], &r);
	FD_SET(b[1], &w);
	sh->v[0] = a[0];
	sh->v[1] = b[1];
	ready();
	select(b[1] + 1, &r, &w, NULL, &t);
}

static void in_epoll(void)
{
	int a[2], b[2], e = epoll_create1(0);
	struct epoll_event ev = { .events = EPOLLIN };

	if (two_pipes(a, b) || epoll_ctl(e, EPOLL_CTL_ADD, a[0], &ev))
		return;
	ev.events = EPOLLPRI | EPOLLET;
	if (epoll_ctl(e, EPOLL_CTL_ADD, b[0], &ev))
		return;
	sh->v[0] = a[0];
	sh->v[1] = b[0];
	sh->v[2] = e;
	ready();
	epoll_wait(e, &ev, 1, -1);
}

static void in_poll_nothing(void)
{
	ready();
	poll(NULL, 0, 90000);
}

static void test_polls(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_poll, false);
	assert_int_equal(x.t->wait.op, WG_OP_POLL);
	assert_int_equal(x.t->wait.fds.n, 2);
	assert_int_equal(x.t->wait.fds.v[0].fd, sh->v[0]);
	assert_int_equal(x.t->wait.fds.v[0].events, POLLIN);
	assert_int_equal(x.t->wait.fds.v[1].fd, sh->v[1]);
	assert_int_equal(x.t->wait.fds.v[1].events, POLLIN | POLLPRI);
	near(x.t->wait.timeout_s, 45, 1e-6);
	reap(&x);

	plant(&x, in_select, false);
	assert_int_equal(x.t->wait.op, WG_OP_POLL);
	assert_int_equal(x.t->wait.fds.n, 2);
	assert_int_equal(x.t->wait.fds.v[0].fd, sh->v[0]);
	assert_int_equal(x.t->wait.fds.v[0].events, POLLIN);
	assert_int_equal(x.t->wait.fds.v[1].fd, sh->v[1]);
	assert_int_equal(x.t->wait.fds.v[1].events, POLLOUT);
	assert_true(x.t->wait.timeout_known);
	near(x.t->wait.timeout_s, 61.25, 1);
	reap(&x);

	plant(&x, in_epoll, false);
	assert_int_equal(x.t->wait.op, WG_OP_EPOLL);
	assert_int_equal(x.t->wait.fd, sh->v[2]);
	assert_int_equal(x.t->wait.fds.n, 2);
	assert_true(x.t->wait.timeout_known && isnan(x.t->wait.timeout_s));
	for (int i = 0; i < 2; i++) {
		int fd = x.t->wait.fds.v[i].fd;

		assert_true(fd == sh->v[0] || fd == sh->v[1]);
		assert_true(x.t->wait.fds.v[i].events & (fd == sh->v[0] ? POLLIN : POLLPRI));
	}
	reap(&x);

	plant(&x, in_poll_nothing, false);
	assert_int_equal(x.t->wait.op, WG_OP_SLEEP);
	near(x.t->wait.timeout_s, 90, 1e-6);
	reap(&x);
}

/* ---- children, locks, sleeps, signals -------------------------------------------------------- */

static void in_wait(void)
{
	pid_t c = fork();

	if (!c)
		for (;;)
			pause();
	sh->v[0] = c;
	ready();
	waitpid(c, NULL, 0);
}

static void in_wait_any(void)
{
	pid_t c = fork();

	if (!c)
		for (;;)
			pause();
	sh->v[0] = c;
	ready();
	wait(NULL);
}

static void in_wait_pidfd(void)
{
	siginfo_t si;
	pid_t c = fork();

	if (!c)
		for (;;)
			pause();
	sh->v[0] = c;
	sh->v[1] = syscall(SYS_pidfd_open, c, 0);
	ready();
	syscall(SYS_waitid, 3 /* P_PIDFD */, sh->v[1], &si, WEXITED, NULL);
}

static void in_vfork(void)
{
	ready();
	if (!vfork()) {
		sh->v[0] = getpid();
		syscall(SYS_pause);
		_exit(0);
	}
}

static void end_child(struct plant *x)
{
	pid_t c = (pid_t)sh->v[0];

	if (c > 0)
		kill(c, SIGKILL);
	reap(x);
}

static void test_wait(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_wait, false);
	assert_int_equal(x.t->wait.op, WG_OP_WAIT);
	assert_int_equal(x.t->wait.child, sh->v[0]);
	assert_int_equal(x.p->children.n, 1);
	assert_int_equal(x.p->children.v[0], sh->v[0]);
	end_child(&x);
	plant(&x, in_wait_any, false);
	assert_int_equal(x.t->wait.op, WG_OP_WAIT);
	assert_int_equal(x.t->wait.child, -1);
	end_child(&x);
	plant(&x, in_wait_pidfd, false);
	assert_int_equal(x.t->wait.op, WG_OP_WAIT);
	assert_int_equal(x.t->wait.child, sh->v[0]);
	assert_int_equal(wg_find_file(x.p, sh->v[1])->kind, WG_FILE_PIDFD);
	end_child(&x);
	sh->v[0] = 0;
	plant(&x, in_vfork, true);
	assert_int_equal(x.t->wait.op, WG_OP_WAIT);
	assert_true(x.t->wait.child == sh->v[0] || x.t->wait.child == -1);
	end_child(&x);
}

static int lock_file(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/lock", dir);
	return open(path, O_RDWR | O_CREAT, 0600);
}

static void in_flock(void)
{
	int a = lock_file(), b;

	flock(a, LOCK_EX);
	b = lock_file();
	sh->v[0] = b;
	ready();
	flock(b, LOCK_EX);
}

static void in_fcntl(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 10, .l_len = 5 };
	int fd = lock_file();
	pid_t c;

	fcntl(fd, F_SETLK, &l);
	sh->v[1] = getpid();
	c = fork();
	if (!c) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sh->v[0] = getpid();
		ready();
		fcntl(fd, F_SETLKW, &l);
	}
	for (;;)
		pause();
}

static void in_ofd(void)
{
	struct flock l = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	int a = lock_file(), b = lock_file();

	fcntl(a, F_OFD_SETLKW, &l);
	sh->v[0] = b;
	ready();
	fcntl(b, F_OFD_SETLKW, &l);
}

static const struct wg_file_lock *find_lock(const struct wg_facts *f, const struct wg_file *x,
					    bool blocked)
{
	for (size_t i = 0; i < f->locks.n; i++)
		if (f->locks.v[i].ino == x->ino && f->locks.v[i].dev == x->dev &&
		    f->locks.v[i].blocked == blocked)
			return &f->locks.v[i];
	return NULL;
}

static void test_locks(void **state)
{
	const struct wg_file_lock *l, *b;
	struct wg_file *x0;
	struct plant x;
	pid_t parent;

	(void)state;
	plant(&x, in_flock, false);
	assert_int_equal(x.t->wait.op, WG_OP_FLOCK);
	assert_int_equal(x.t->wait.fd, sh->v[0]);
	x0 = wg_find_file(x.p, sh->v[0]);
	assert_int_equal(x0->kind, WG_FILE_REG);
	l = find_lock(x.f, x0, false);
	b = find_lock(x.f, x0, true);
	assert_non_null(l);
	assert_non_null(b);
	assert_int_equal(l->kind, 'f');
	assert_true(l->write);
	assert_int_equal(l->pid, x.pid);
	assert_int_equal(l->id, b->id);
	assert_true(l->holder_alive_known && l->holder_alive);
	reap(&x);

	parent = start(in_fcntl);
	while (!sh->ready)
		nap(0.01);
	nap(0.1);
	look(&x, (pid_t)sh->v[0], true);
	assert_int_equal(x.t->wait.op, WG_OP_FCNTL);
	x0 = wg_find_file(x.p, x.t->wait.fd);
	l = find_lock(x.f, x0, false);
	assert_non_null(l);
	assert_int_equal(l->kind, 'p');
	assert_int_equal(l->pid, sh->v[1]);
	assert_int_equal(l->start, 10);
	assert_int_equal(l->end, 14);
	assert_non_null(wg_find_process(x.f, parent)); /* the owner was followed */
	assert_false(wg_find_process(x.f, parent)->stub);
	kill(parent, SIGKILL);
	waitpid(parent, NULL, 0);
	wg_facts_free(x.f);

	plant(&x, in_ofd, true);
	assert_int_equal(x.t->wait.op, WG_OP_FCNTL);
	x0 = wg_find_file(x.p, sh->v[0]);
	l = find_lock(x.f, x0, false);
	assert_non_null(l);
	assert_int_equal(l->kind, 'o');
	assert_int_equal(l->taken_by, -1);
	assert_int_equal(l->pid, x.pid); /* fdinfo tells who has it */
	reap(&x);
}

static void in_nanosleep(void)
{
	struct timespec t = { 200, 0 };

	ready();
	syscall(SYS_nanosleep, &t, NULL);
}

static void in_clock_sleep(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += 300;
	ready();
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

static void in_overwritten_sleep(void)
{
	/* In memory that the test can write to: what stands there is no longer what was passed. */
	struct timespec *t = (struct timespec *)(void *)&sh->v[0];

	clock_gettime(CLOCK_MONOTONIC, t);
	t->tv_sec += 300;
	ready();
	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, t, NULL);
}

/* A time that nobody can mean is not told as a fact, whatever became of the memory. */
static void test_implausible_sleep(void **state)
{
	static const int64_t nonsense[][2] = { { 140720308486144, 5 }, { 1, 0 }, { -7, 3 },
					       { 1000, -1 }, { 1000, 2000000000 }, { INT64_MAX, 0 } };
	struct plant x;
	pid_t pid;

	(void)state;
	pid = start(in_overwritten_sleep);
	settle(pid);
	for (size_t i = 0; i < sizeof(nonsense) / sizeof(nonsense[0]); i++) {
		sh->v[0] = nonsense[i][0];
		sh->v[1] = nonsense[i][1];
		look(&x, pid, false);
		assert_int_equal(x.t->wait.op, WG_OP_SLEEP);
		assert_false(x.t->wait.timeout_known);
		assert_true(isnan(x.t->wait.timeout_s));
		wg_facts_free(x.f);
	}
	look(&x, pid, false);
	reap(&x);
}

/* The kernel's log: errors that can explain a hang, since the process began, in the kernel's own words. */
static void test_kmsg(void **state)
{
	static const struct {
		const char *line;
		bool taken;
	} lines[] = {
		{ "3,100,90000000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", true },
		{ "6,101,90000000,-;oom-kill:constraint=CONSTRAINT_MEMCG,task=python,pid=7", true },
		{ "3,102,90000000,-;INFO: task python:77 blocked for more than 122 seconds.", true },
		{ "3,103,90000000,-;blk_update_request: I/O error, dev sda, sector 8", true },
		{ "5,104,90000000,-;nfs: server store not responding, still trying", true },
		{ "3,105,90000000,-;pcieport 0000:00:1c.0: AER: Uncorrected (Fatal) error", true },
		{ "4,106,90000000,-;BUG: soft lockup - CPU#3 stuck for 26s!", true },
		/* Greetings, of any time. */
		{ "5,107,90000000,-;Kernel command line: quiet nvidia.x=1 hung_task_panic=0", false },
		{ "6,108,90000000,-;fuse: init (API version 7.45)", false },
		{ "4,109,90000000,-;nvidia: loading out-of-tree module taints kernel.", false },
		{ "3,110,90000000,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.159", false },
		{ "6,111,90000000,-;pcieport 0000:00:1c.0: AER: enabled with IRQ 122", false },
		{ "6,112,90000000,-;XFS (sda1): Ending clean mount", false },
		{ "6,113,90000000,-;mlx5_core 0000:5e:00.0: firmware version: 28.39", false },
		/* Before the process began. */
		{ "3,114,10000000,-;NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", false },
		/* Written by a program, not by the kernel; no record at all. */
		{ "11,115,90000000,-;NVRM: Xid (PCI:0000:3b:00): 79", false },
		{ "Out of memory", false },
		{ ";Out of memory", false },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char line[256];
		double ago = -1;
		const char *text;

		snprintf(line, sizeof(line), "%s\n SUBSYSTEM=pci\n", lines[i].line);
		text = wg_kmsg_record(line, 100.0, 50.0, &ago);
		if (!!text != lines[i].taken)
			fail_msg("%s", lines[i].line);
		if (text) {
			near(ago, 10, 1e-6);
			assert_string_equal(text, strchr(lines[i].line, ';') + 1);
		}
	}
}

static void test_sleeps(void **state)
{
	struct plant x;
	pid_t pid;

	(void)state;
	plant(&x, in_nanosleep, false);
	assert_int_equal(x.t->wait.op, WG_OP_SLEEP);
	near(x.t->wait.timeout_s, 200, 1e-6);
	reap(&x);
	plant(&x, in_clock_sleep, false);
	assert_int_equal(x.t->wait.op, WG_OP_SLEEP);
	assert_true(x.t->wait.timeout_known);
	near(x.t->wait.timeout_s, 300, 2);
	reap(&x);
	/* Stopped and continued: the kernel goes on under another system call. */
	pid = start(in_nanosleep);
	settle(pid);
	kill(pid, SIGSTOP);
	nap(0.05);
	look(&x, pid, false);
	assert_int_equal(x.t->state, 'T');
	assert_int_equal(x.p->state, 'T');
	wg_facts_free(x.f);
	kill(pid, SIGCONT);
	nap(0.1);
	look(&x, pid, false);
	assert_int_equal(x.t->wait.op, WG_OP_SLEEP);
	near(x.t->wait.timeout_s, 200, 1e-6);
	reap(&x);
}

static void in_pause(void)
{
	ready();
	pause();
}

static void in_sigtimedwait(void)
{
	struct timespec t = { 88, 0 };
	sigset_t s;

	sigemptyset(&s);
	sigaddset(&s, SIGUSR2);
	sigprocmask(SIG_BLOCK, &s, NULL);
	ready();
	sigtimedwait(&s, NULL, &t);
}

static void in_sigsuspend(void)
{
	sigset_t s;

	sigemptyset(&s);
	ready();
	sigsuspend(&s);
}

static void test_signals(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_pause, false);
	assert_int_equal(x.t->wait.op, WG_OP_SIGWAIT);
	reap(&x);
	plant(&x, in_sigtimedwait, false);
	assert_int_equal(x.t->wait.op, WG_OP_SIGWAIT);
	near(x.t->wait.timeout_s, 88, 1e-6);
	assert_non_null(x.t->sigmask);
	/* While it waits the kernel unblocks what it waits for: the mask is what it is now. */
	assert_int_equal(strlen(x.t->sigmask), 16);
	reap(&x);
	plant(&x, in_sigsuspend, false);
	assert_int_equal(x.t->wait.op, WG_OP_SIGWAIT);
	reap(&x);
}

/* ---- files and the rest ------------------------------------------------------------------------ */

static void in_open_fifo(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/fifo", dir);
	unlink(path);
	mkfifo(path, 0600);
	if (chdir(dir))
		return;
	ready();
	(void)!open("fifo", O_RDONLY); /* relative on purpose */
}

static void test_open(void **state)
{
	struct plant x;
	char want[128];

	(void)state;
	plant(&x, in_open_fifo, false);
	assert_int_equal(x.t->wait.op, WG_OP_OPEN);
	snprintf(want, sizeof(want), "%s/fifo", dir);
	assert_string_equal(x.t->wait.path, want);
	reap(&x);
}

static void in_semop(void)
{
	struct sembuf b = { 0, -1, 0 };
	struct timespec t = { 25, 0 };
	int id = semget(IPC_PRIVATE, 1, 0600);

	sh->v[0] = id;
	ready();
	semtimedop(id, &b, 1, &t);
}

static void in_msgrcv(void)
{
	struct {
		long type;
		char text[10];
	} m;
	int id = msgget(IPC_PRIVATE, 0600);

	sh->v[0] = id;
	ready();
	(void)!msgrcv(id, &m, sizeof(m.text), 0, 0);
}

static void test_sysv(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_semop, false);
	assert_int_equal(x.t->wait.op, WG_OP_SYSV);
	assert_int_equal(x.t->wait.key, sh->v[0]);
	near(x.t->wait.timeout_s, 25, 1e-6);
	reap(&x);
	semctl((int)sh->v[0], 0, IPC_RMID);
	plant(&x, in_msgrcv, false);
	assert_int_equal(x.t->wait.op, WG_OP_SYSV);
	assert_int_equal(x.t->wait.key, sh->v[0]);
	reap(&x);
	msgctl((int)sh->v[0], IPC_RMID, NULL);
}

static void in_uring(void)
{
	struct io_uring_params p;
	int fd;

	memset(&p, 0, sizeof(p));
	fd = (int)syscall(SYS_io_uring_setup, 4, &p);
	sh->v[0] = fd;
	ready();
	if (fd < 0)
		for (;;)
			pause();
	syscall(SYS_io_uring_enter, fd, 0, 1, IORING_ENTER_GETEVENTS, NULL, 0);
}

static void test_uring(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_uring, false);
	if (sh->v[0] >= 0) {
		assert_int_equal(x.t->wait.op, WG_OP_IOURING);
		assert_int_equal(x.t->wait.fd, sh->v[0]);
		assert_int_equal(wg_find_file(x.p, sh->v[0])->kind, WG_FILE_URING);
	}
	reap(&x);
}

static void in_fault(void)
{
	struct uffdio_api api = { .api = UFFD_API };
	struct uffdio_register reg = { 0 };
	long fd = syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */);
	char *m;

	if (fd < 0 || ioctl((int)fd, UFFDIO_API, &api)) {
		sh->v[0] = -1;
		in_pause();
	}
	m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	reg.range.start = (uintptr_t)m;
	reg.range.len = 4096;
	reg.mode = UFFDIO_REGISTER_MODE_MISSING;
	if (ioctl((int)fd, UFFDIO_REGISTER, &reg)) {
		sh->v[0] = -1;
		in_pause();
	}
	ready();
	*(volatile char *)m = 1; /* nobody will ever provide the page */
}

static void test_fault(void **state)
{
	struct plant x;

	(void)state;
	sh->v[0] = 0;
	plant(&x, in_fault, false);
	if (!sh->v[0])
		assert_int_equal(x.t->wait.op, WG_OP_FAULT);
	reap(&x);
}

static void in_spin(void)
{
	ready();
	for (;;)
		__asm__ volatile("" ::: "memory");
}

static void test_running(void **state)
{
	struct plant x;
	pid_t pid;

	(void)state;
	pid = start(in_spin);
	while (!sh->ready)
		nap(0.01);
	nap(0.05);
	look(&x, pid, false);
	assert_int_equal(x.t->state, 'R');
	assert_int_equal(x.t->wait.op, WG_OP_RUNNING);
	assert_true(x.t->sampled_twice);
	assert_true(x.t->cpu_share > 0.01); /* the machine may be busy */
	assert_true(x.f->interval_s > 0.1);
	assert_false(x.t->same_place);
	assert_true(x.p->cpu_share > 0.01);
	reap(&x);
}

static void in_fds(void)
{
	struct itimerspec it = { .it_value = { 50, 0 } };
	struct epoll_event ev = { .events = EPOLLIN };
	char path[128];
	int e;

	sh->v[0] = eventfd(7, 0);
	sh->v[1] = timerfd_create(CLOCK_MONOTONIC, 0);
	timerfd_settime((int)sh->v[1], 0, &it, NULL);
	e = epoll_create1(0);
	sh->v[2] = e;
	epoll_ctl(e, EPOLL_CTL_ADD, (int)sh->v[0], &ev);
	sh->v[3] = memfd_create("thing", 0);
	snprintf(path, sizeof(path), "%s/log", dir);
	sh->v[4] = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
	(void)!write((int)sh->v[4], "hello\n", 6);
	sh->v[5] = posix_openpt(O_RDWR | O_NOCTTY);
	snprintf(path, sizeof(path), "%s/gone", dir);
	sh->v[6] = open(path, O_RDWR | O_CREAT, 0600);
	unlink(path);
	in_pause();
}

static void test_descriptors(void **state)
{
	struct wg_file *x0;
	struct plant x;

	(void)state;
	plant(&x, in_fds, false);
	x0 = wg_find_file(x.p, sh->v[0]);
	assert_int_equal(x0->kind, WG_FILE_EVENTFD);
	assert_int_equal(x0->event_count, 7);
	x0 = wg_find_file(x.p, sh->v[1]);
	assert_int_equal(x0->kind, WG_FILE_TIMERFD);
	assert_true(x0->timer_left_s > 30 && x0->timer_left_s <= 50);
	x0 = wg_find_file(x.p, sh->v[2]);
	assert_int_equal(x0->kind, WG_FILE_EPOLL);
	assert_int_equal(x0->epoll.n, 1);
	assert_int_equal(x0->epoll.v[0].fd, sh->v[0]);
	assert_int_equal(wg_find_file(x.p, sh->v[3])->kind, WG_FILE_MEMFD);
	x0 = wg_find_file(x.p, sh->v[4]);
	assert_int_equal(x0->kind, WG_FILE_REG);
	assert_int_equal(x0->size, 6);
	assert_int_equal(x0->pos, 6);
	assert_int_equal(x0->written_bytes, 6);
	assert_true(x0->flags & O_APPEND);
	assert_true(x0->last_write_age_s >= 0 && x0->last_write_age_s < 30);
	assert_non_null(x0->fs_type);
	x0 = wg_find_file(x.p, sh->v[5]);
	assert_int_equal(x0->kind, WG_FILE_TTY);
	assert_true(x0->pty_index >= 0);
	x0 = wg_find_file(x.p, sh->v[6]);
	assert_true(x0->deleted);
	assert_int_equal(x.p->nofile_used, x.p->files.n);
	assert_true(x.p->nofile_limit > 0);
	reap(&x);
}

static void in_growing_log(void)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "%s/log", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	sh->v[0] = fd;
	ready();
	for (;;) {
		(void)!write(fd, "0123456789", 10);
		nap(0.005);
	}
}

static void test_growth(void **state)
{
	struct plant x;
	pid_t pid;

	(void)state;
	pid = start(in_growing_log);
	while (!sh->ready)
		nap(0.01);
	look(&x, pid, false);
	assert_true(wg_find_file(x.p, sh->v[0])->size_delta > 0);
	assert_true(x.p->wchar_delta > 0);
	assert_true(x.t->switches > 0);
	assert_true(wg_has_int(x.p->rchar_delta));
	reap(&x);
}

/* ---- identity -------------------------------------------------------------------------------- */

static void test_identity(void **state)
{
	struct plant x;
	struct stat st;

	(void)state;
	plant(&x, in_pause, false);
	assert_int_equal(x.p->ppid, getpid());
	assert_int_equal(x.p->pgid, getpgrp());
	assert_int_equal(x.p->uid, geteuid());
	assert_true(x.p->alive);
	assert_true(x.p->forked); /* this program forked it and it has not exec'ed */
	assert_true(x.p->start_ticks > 0);
	assert_true(x.p->age_s >= 0 && x.p->age_s < 60);
	near(x.p->fork_age_s, x.p->age_s, 1e-9);
	assert_true(x.t->start_age_s >= 0 && x.t->start_age_s < 60);
	assert_int_equal(x.p->ns_pid, x.pid);
	assert_int_equal(stat("/proc/self/ns/pid", &st), 0);
	assert_int_equal(x.p->pidns, st.st_ino);
	assert_non_null(strstr(x.p->exe, "test_procfs"));
	assert_int_equal(x.f->asked.n, 1);
	assert_true(x.f->live);
	assert_non_null(x.f->boot);
	assert_null(x.f->collect);
	assert_null(x.p->collect);
	reap(&x);
}

static void test_rank(void **state)
{
	int32_t pid;
	struct wg_collect_options o;
	struct wg_facts *f;
	struct wg_process *p;
	bool secret = false, nccl = false;

	(void)state;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		char *argv[] = { "sleep", "100", NULL };
		char *env[] = { "RANK=3", "WORLD_SIZE=8", "SLURM_PROCID=5", "NCCL_DEBUG=INFO",
				"CUDA_SECRET_KEY=x", "HOME=/", "MASTER_PORT=1", NULL };

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		execve("/bin/sleep", argv, env);
		_exit(1);
	}
	nap(0.2);
	o = options(&pid);
	f = wg_facts_new();
	assert_int_equal(wg_collect(f, &o), 0);
	p = f->procs.v[0];
	assert_int_equal(p->rank, 3);
	assert_int_equal(p->world, 8);
	assert_string_equal(p->rank_source, "RANK");
	assert_false(p->forked);
	assert_string_equal(p->command, "sleep 100");
	for (size_t i = 0; i < p->env.n; i++) {
		secret |= strstr(p->env.v[i].name, "SECRET") != NULL;
		nccl |= !strcmp(p->env.v[i].name, "NCCL_DEBUG");
		assert_string_not_equal(p->env.v[i].name, "HOME");
	}
	assert_true(nccl);
	assert_false(secret);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	wg_facts_free(f);
}

static void test_zombie(void **state)
{
	struct wg_collect_options o;
	struct wg_facts *f;
	int32_t pid;

	(void)state;
	for (int i = 0; i < 2; i++) {
		fflush(NULL);
		pid = fork();
		if (!pid) {
			if (i)
				raise(SIGKILL);
			_exit(17);
		}
		nap(0.1);
		o = options(&pid);
		f = wg_facts_new();
		assert_int_equal(wg_collect(f, &o), 0);
		assert_false(f->procs.v[0]->alive);
		assert_int_equal(f->procs.v[0]->state, 'Z');
		assert_true(f->procs.v[0]->end.known);
		assert_int_equal(f->procs.v[0]->end.status, i ? 0 : 17);
		assert_int_equal(f->procs.v[0]->end.signal, i ? SIGKILL : 0);
		waitpid(pid, NULL, 0);
		wg_facts_free(f);
		f = wg_facts_new();
		assert_int_equal(wg_collect(f, &o), -ESRCH);
		wg_facts_free(f);
	}
}

static void *stay(void *arg)
{
	ready();
	while (!arg)
		pause();
	return NULL;
}

static void in_dead_leader(void)
{
	pthread_t t;

	pthread_create(&t, NULL, stay, NULL);
	syscall(SYS_exit, 0);
}

/* The leader has ended, the process has not. */
static void test_dead_leader(void **state)
{
	struct plant x;

	(void)state;
	plant(&x, in_dead_leader, false);
	assert_true(x.p->alive);
	assert_int_equal(x.p->threads.n, 2);
	assert_int_equal(x.p->threads.v[0].state, 'Z');
	assert_int_equal(x.t->wait.op, WG_OP_SIGWAIT);
	reap(&x);
}

/* Asked by the number of a thread. */
static void test_thread_number(void **state)
{
	struct wg_collect_options o;
	struct wg_facts *f;
	struct plant x;
	int32_t tid;

	(void)state;
	plant(&x, in_mutex, false);
	tid = x.tid;
	assert_int_not_equal(tid, x.pid);
	o = options(&tid);
	f = wg_facts_new();
	assert_int_equal(wg_collect(f, &o), 0);
	assert_int_equal(f->procs.v[0]->pid, x.pid);
	wg_facts_free(f);
	reap(&x);
}

/* ---- decoding calls that cannot be planted everywhere -------------------------------------------- */

struct fake {
	uint64_t base;
	unsigned char bytes[4096];
};

static int fake_read(void *arg, uint64_t addr, void *buf, size_t n)
{
	struct fake *k = arg;
	size_t at;

	if (addr < k->base || addr >= k->base + sizeof(k->bytes))
		return -EFAULT;
	at = (size_t)(addr - k->base);
	if (n > sizeof(k->bytes) - at)
		n = sizeof(k->bytes) - at;
	memcpy(buf, k->bytes + at, n);
	return (int)n;
}

static void decode(struct wg_facts *f, struct wg_thread *t, const char *name, struct fake *k,
		   uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3)
{
	static const struct wg_map maps[] = {
		{ .lo = 0x10000, .hi = 0x11000, .r = true, .w = true, .shared = true, .dev = 5 << 20,
		  .ino = 77, .off = 0x2000, .path = "/mnt/data/file" } };
	struct wg_process *p = f->procs.n ? f->procs.v[0] : wg_add_process(f);
	struct wg_mem *m = wg_mem_open_fake(maps, 1, 1, fake_read, k);
	struct wg_ptask task = { .tid = 1, .state = 'D', .got_stat = true, .got_sys = true };

	p->pid = 1;
	memset(&task.sys, 0, sizeof(task.sys));
	for (task.sys.nr = 0; task.sys.nr < 500; task.sys.nr++)
		if (wg_syscall_name(task.sys.nr) && !strcmp(wg_syscall_name(task.sys.nr), name))
			break;
	assert_true(task.sys.nr < 500);
	task.sys.args[0] = a0;
	task.sys.args[1] = a1;
	task.sys.args[2] = a2;
	task.sys.args[3] = a3;
	task.sys.sp = 0x10100;
	memset(t, 0, sizeof(*t));
	t->tid = 1;
	t->state = 'D';
	t->wait.since_s = 3;
	wg_wait_decode(f, p, t, &task, m);
	wg_mem_close(m);
}

static void test_decode(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct fake k = { .base = 0x10000 };
	struct wg_thread t;
	int64_t ts[2] = { 3, 500000000 };

	(void)state;
	strcpy((char *)k.bytes + 0x10, "/mnt/data/ckpt.pt");
	strcpy((char *)k.bytes + 0x40, "/mnt/data/new.pt");
	memcpy(k.bytes + 0x80, ts, sizeof(ts));

	decode(f, &t, "fsync", &k, 5, 0, 0, 0);
	assert_int_equal(t.wait.op, WG_OP_SYNC);
	assert_int_equal(t.wait.fd, 5);
	decode(f, &t, "sync", &k, 0, 0, 0, 0);
	assert_int_equal(t.wait.op, WG_OP_SYNC);
	assert_false(wg_has_int(t.wait.fd));
	decode(f, &t, "msync", &k, 0x10000, 4096, 4, 0);
	assert_int_equal(t.wait.op, WG_OP_SYNC);
	assert_string_equal(t.wait.path, "/mnt/data/file");
	decode(f, &t, "pwrite64", &k, 4, 0x10000, 100, 0);
	assert_int_equal(t.wait.op, WG_OP_WRITE);
	assert_int_equal(t.wait.bytes, 100);
	decode(f, &t, "ioctl", &k, 6, 0xc0204600, 0, 0);
	assert_int_equal(t.wait.op, WG_OP_IOCTL);
	assert_int_equal(t.wait.fd, 6);
	decode(f, &t, "renameat2", &k, (uint64_t)AT_FDCWD, 0x10010, (uint64_t)AT_FDCWD, 0x10040);
	assert_int_equal(t.wait.op, WG_OP_FSMETA);
	assert_string_equal(t.wait.path, "/mnt/data/ckpt.pt");
	decode(f, &t, "newfstatat", &k, (uint64_t)AT_FDCWD, 0x10010, 0, 0);
	assert_int_equal(t.wait.op, WG_OP_FSMETA);
	assert_string_equal(t.wait.path, "/mnt/data/ckpt.pt");
	decode(f, &t, "ftruncate", &k, 9, 0, 0, 0);
	assert_int_equal(t.wait.op, WG_OP_FSMETA);
	assert_int_equal(t.wait.fd, 9);
	decode(f, &t, "openat", &k, (uint64_t)AT_FDCWD, 0x10040, 0, 0);
	assert_int_equal(t.wait.op, WG_OP_OPEN);
	assert_string_equal(t.wait.path, "/mnt/data/new.pt");
	decode(f, &t, "sendfile", &k, 3, 4, 0, 1 << 20);
	assert_int_equal(t.wait.op, WG_OP_WRITE);
	assert_int_equal(t.wait.fd, 3);
	assert_int_equal(t.wait.bytes, 1 << 20);
	decode(f, &t, "ppoll", &k, 0x10200, 0, 0x10080, 0);
	assert_int_equal(t.wait.op, WG_OP_SLEEP);
	near(t.wait.timeout_s, 3.5, 1e-9);
	decode(f, &t, "mmap", &k, 0, 4096, 0, 0);
	assert_int_equal(t.wait.op, WG_OP_OTHER);
	assert_string_equal(t.wait.syscall_name, "mmap");
	/* fcntl that does not wait for a lock */
	decode(f, &t, "fcntl", &k, 3, F_GETFL, 0, 0);
	assert_int_equal(t.wait.op, WG_OP_OTHER);
	/* Pointers into nowhere: what cannot be read stays absent. */
	decode(f, &t, "openat", &k, (uint64_t)AT_FDCWD, 0xdead0000, 0, 0);
	assert_null(t.wait.path);
	decode(f, &t, "ppoll", &k, 0xdead0000, 5, 0xdead0000, 0);
	assert_false(t.wait.timeout_known);
	assert_int_equal(t.wait.fds.n, 0);
	decode(f, &t, "futex", &k, 0xdead0000, 128, 2, 0);
	assert_int_equal(t.wait.futex.nwords, 0);
	assert_false(t.wait.futex.has_map);
	/* A futex at the very end of its mapping: fewer words, no failure. */
	decode(f, &t, "futex", &k, 0x10ff8, 128, 2, 0);
	assert_int_equal(t.wait.futex.nwords, 2);
	/* Huge counts are not believed. */
	decode(f, &t, "readv", &k, 3, 0x10000, 1u << 30, 0);
	assert_false(wg_has_int(t.wait.bytes));
	decode(f, &t, "poll", &k, 0x10000, UINT64_MAX, 5, 0);
	decode(f, &t, "select", &k, UINT64_MAX, 0x10000, 0, 0);
	wg_facts_free(f);
}

static void test_wchan(void **state)
{
	(void)state;
	assert_int_equal(wg_op_of_wchan("futex_wait_queue"), WG_OP_FUTEX);
	assert_int_equal(wg_op_of_wchan("anon_pipe_read"), WG_OP_READ);
	assert_int_equal(wg_op_of_wchan("do_wait"), WG_OP_WAIT);
	assert_int_equal(wg_op_of_wchan("hrtimer_nanosleep"), WG_OP_SLEEP);
	assert_int_equal(wg_op_of_wchan("nfs_wait_bit_killable"), WG_OP_UNKNOWN);
	assert_int_equal(wg_op_of_wchan(NULL), WG_OP_UNKNOWN);
}

/* ---- texts ---------------------------------------------------------------------------------------- */

static const char stat_line[] =
	"4242 (a) b (c) R 1 2 3 34817 5 4194368 10 20 30 40 500 600 70 80 20 0 7 0 12345 1000 20 "
	"18446744073709551615 94000000000000 2 140730000000000 0 0 0 0 0 0 0 0 0 17 3 0 0 0 0 0 0 0 0 "
	"140730000001000 0 0 0 256\n";

static void test_stat_text(void **state)
{
	struct wg_pt_stat s;

	(void)state;
	assert_true(wg_pt_stat(stat_line, &s));
	assert_string_equal(s.comm, "a) b (c");
	assert_int_equal(s.state, 'R');
	assert_int_equal(s.ppid, 1);
	assert_int_equal(s.flags, 4194368);
	assert_true(s.flags & WG_PF_FORKNOEXEC);
	assert_int_equal(s.majflt, 30);
	assert_int_equal(s.utime, 500);
	assert_int_equal(s.stime, 600);
	assert_int_equal(s.nthreads, 7);
	assert_int_equal(s.start, 12345);
	assert_int_equal(s.cpu, 3);
	assert_true(s.has_exit_code);
	assert_int_equal(s.exit_code, 256);
	assert_int_equal(s.arg_start, 140730000001000);
	assert_false(wg_pt_stat("", &s));
	assert_false(wg_pt_stat("12", &s));
	assert_false(wg_pt_stat("12 (x", &s));
	assert_false(wg_pt_stat("12 )x( R 1", &s));
	assert_false(wg_pt_stat("12 (x) R 1 2 3", &s)); /* cut short */
	assert_false(wg_pt_stat("x (x) R 1", &s));
}

static void test_small_texts(void **state)
{
	struct wg_pt_syscall c;
	struct wg_pt_status st;
	struct wg_pt_sched sc;
	struct wg_pt_io io;
	uint64_t ns, n;
	const char *s;
	char name[8];

	(void)state;
	assert_true(wg_pt_syscall("running\n", &c));
	assert_true(c.running);
	assert_true(wg_pt_syscall("-1 0x7ffe 0x400\n", &c));
	assert_int_equal(c.nr, -1);
	assert_int_equal(c.sp, 0x7ffe);
	assert_true(wg_pt_syscall("202 0x1 0x80 0x2 0x0 0x0 0xffffffffffffffff 0x10 0x20\n", &c));
	assert_int_equal(c.nr, 202);
	assert_int_equal(c.args[5], UINT64_MAX);
	assert_int_equal(c.pc, 0x20);
	assert_false(wg_pt_syscall("202 0x1 0x80\n", &c));
	assert_false(wg_pt_syscall("", &c));
	assert_false(wg_pt_syscall("garbage", &c));

	assert_true(wg_pt_status("Name:\tx\nState:\tS (sleeping)\nTgid:\t7\nTracerPid:\t9\n"
				 "Uid:\t1\t2\t3\t4\nNSpid:\t70\t7\t1\nThreads:\t4\n"
				 "SigBlk:\t0000000000000010\nvoluntary_ctxt_switches:\t5\n"
				 "nonvoluntary_ctxt_switches:\t6\nVmLck:\t 12 kB\n", &st));
	assert_int_equal(st.uid, 2);
	assert_int_equal(st.tracer, 9);
	assert_int_equal(st.nspid, 1);
	assert_int_equal(st.ns_depth, 3);
	assert_int_equal(st.switches, 11);
	assert_int_equal(st.lck_kb, 12);
	assert_string_equal(st.sigblk, "0000000000000010");
	/* A name that pretends to be other lines cannot: the kernel escapes newlines. */
	assert_true(wg_pt_status("Name:\tUid: 9\\nState\nState:\tR\nUid:\t3\t3\t3\t3\n", &st));
	assert_int_equal(st.uid, 3);
	assert_false(wg_pt_status("nothing", &st));

	assert_true(wg_pt_sched("x (1, #threads: 1)\nse.exec_start    :  1234.5678\n"
				"nr_switches        :   42\n", &sc));
	near(sc.exec_start_ms, 1234.5678, 1e-6);
	assert_int_equal(sc.switches, 42);
	assert_true(wg_pt_schedstat("123 45 6\n", &ns, &n));
	assert_int_equal(ns, 123);
	assert_int_equal(n, 6);
	assert_false(wg_pt_schedstat("123 45\n", &ns, &n));
	assert_true(wg_pt_io("rchar: 1\nwchar: 2\nsyscr: 3\nread_bytes: 4\nwrite_bytes: 5\n", &io));
	assert_int_equal(io.write_bytes, 5);
	assert_false(wg_pt_io("", &io));

	s = "[<0>] anon_pipe_read+0x1/0x2\n[<ffff>] fuse_x+0x1/0x2 [fuse]\njunk\n[<0>] 0xffff\n[<0>] z+";
	assert_true(wg_pt_stack_line(&s, name, sizeof(name)));
	assert_string_equal(name, "anon_pi"); /* cut to the buffer */
	assert_true(wg_pt_stack_line(&s, name, sizeof(name)));
	assert_string_equal(name, "fuse_x");
	assert_true(wg_pt_stack_line(&s, name, sizeof(name)));
	assert_string_equal(name, "z");
	assert_false(wg_pt_stack_line(&s, name, sizeof(name)));
}

static void test_fdinfo_text(void **state)
{
	struct wg_pt_fdinfo i;
	struct wg_pt_tfd t[2];

	(void)state;
	assert_true(wg_pt_fdinfo("pos:\t12\nflags:\t02100002\nmnt_id:\t24\nino:\t90\ntty-index:\t3\n"
				 "lock:\t1: FLOCK  ADVISORY  WRITE 9 00:2a:77 0 EOF\n", &i, NULL, 0));
	assert_int_equal(i.pos, 12);
	assert_int_equal(i.flags, 02100002);
	assert_int_equal(i.mnt_id, 24);
	assert_int_equal(i.ino, 90);
	assert_int_equal(i.tty_index, 3);
	assert_int_equal(i.lock_kind, 'f');
	assert_true(i.lock_write);
	assert_true(wg_pt_fdinfo("pos:\t0\nflags:\t02\ntfd:        4 events:       19 data: 4  pos:0 "
				 "ino:40f sdev:10\ntfd: 5 events: 1 data: 0\ntfd: 6 events: 1\n"
				 "tfd: 7\n", &i, t, 2));
	assert_int_equal(i.ntfd, 3);
	assert_int_equal(t[0].fd, 4);
	assert_int_equal(t[0].events, 0x19);
	assert_int_equal(t[1].fd, 5);
	assert_true(wg_pt_fdinfo("pos:\t0\neventfd-count:               1f\neventfd-id: 8\n", &i,
				 NULL, 0));
	assert_int_equal(i.event_count, 0x1f);
	assert_int_equal(i.event_id, 8);
	assert_true(wg_pt_fdinfo("pos:\t0\nit_value: (12, 500000000)\n", &i, NULL, 0));
	assert_true(i.has_timer);
	assert_int_equal(i.timer_s, 12);
	assert_int_equal(i.timer_ns, 500000000);
	assert_true(wg_pt_fdinfo("pos:\t0\nPid:\t-1\n", &i, NULL, 0));
	assert_int_equal(i.pid, -1);
	assert_false(wg_pt_fdinfo("", &i, NULL, 0));
	assert_false(wg_pt_fdinfo("lock:\nlock:\t\ntfd:\nit_value:\n:\n::::\n", &i, NULL, 0));
}

static void test_mount_text(void **state)
{
	const char *s = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n"
			"garbage\n"
			"40 27 0:41 /sub /mnt/with\\040space rw master:3 propagate_from:2 - fuse.sshfs "
			"u@h:/x rw,user_id=0\n"
			"41 27 0:42 / /cut rw -\n"
			"42 27 0:43 / /n rw - nfs4 host:/e rw";
	struct wg_pt_mount m;

	(void)state;
	assert_true(wg_pt_mount(&s, &m));
	assert_int_equal(m.id, 27);
	assert_int_equal(m.dev, 254 << 20);
	assert_string_equal(m.point, "/");
	assert_string_equal(m.type, "ext4");
	assert_string_equal(m.options, "rw,discard");
	assert_true(wg_pt_mount(&s, &m));
	assert_string_equal(m.point, "/mnt/with space");
	assert_string_equal(m.root, "/sub");
	assert_string_equal(m.source, "u@h:/x");
	assert_true(wg_pt_remote_fs(m.type));
	assert_true(wg_pt_mount(&s, &m));
	assert_string_equal(m.type, "nfs4");
	assert_false(wg_pt_mount(&s, &m));
	assert_false(wg_pt_remote_fs("ext4"));
	assert_false(wg_pt_remote_fs(NULL));
	assert_true(wg_pt_remote_fs("fuse"));
	assert_true(wg_pt_remote_fs("lustre"));
}

static void test_lock_text(void **state)
{
	const char *s = "1: POSIX  ADVISORY  WRITE 123 fe:01:456 0 EOF\n"
			"1: -> POSIX  ADVISORY  READ 124 fe:01:456 5 9\n"
			"2: OFDLCK ADVISORY  READ -1 00:1f:7 0 99\n"
			"3: broken\n4: FLOCK\n\n5: FLOCK  ADVISORY  WRITE 9 zz:00:1 0 EOF\n"
			"6: LEASE  ACTIVE    READ 77 08:02:9 0 EOF\n";
	struct wg_pt_lock l;

	(void)state;
	assert_true(wg_pt_lock(&s, &l));
	assert_int_equal(l.kind, 'p');
	assert_true(l.write && !l.blocked);
	assert_int_equal(l.pid, 123);
	assert_int_equal(l.dev, 0xfe << 20 | 1);
	assert_int_equal(l.ino, 456);
	assert_int_equal(l.end, INT64_MIN);
	assert_true(wg_pt_lock(&s, &l));
	assert_true(l.blocked && !l.write);
	assert_int_equal(l.id, 1);
	assert_int_equal(l.start, 5);
	assert_int_equal(l.end, 9);
	assert_true(wg_pt_lock(&s, &l));
	assert_int_equal(l.kind, 'o');
	assert_int_equal(l.pid, -1);
	assert_true(wg_pt_lock(&s, &l));
	assert_int_equal(l.kind, 'l');
	assert_false(wg_pt_lock(&s, &l));
}

static void test_net_text(void **state)
{
	const char *t = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid\n"
			"   0: 0100007F:1F90 0200007F:C001 01 00000010:00000020 00:00000000 00000000  1000   "
			"     0 55555 1 0000000000000000 20 4 30 10 -1\n   1: short\n";
	const char *u = "Num       RefCount Protocol Flags    Type St Inode Path\n"
			"0000000000000000: 00000002 00000000 00010000 0001 01  1234 /run/x y.sock\n"
			"0000000000000000: 00000003 00000000 00000000 0001 03  99\n";
	struct wg_pt_sock x;

	(void)state;
	assert_true(wg_pt_inet(&t, AF_INET, SOCK_STREAM, &x));
	assert_int_equal(x.lport, 0x1f90);
	assert_int_equal(x.rport, 0xc001);
	assert_int_equal(x.state, 1);
	assert_int_equal(x.txq, 16);
	assert_int_equal(x.rxq, 32);
	assert_int_equal(x.ino, 55555);
	assert_int_equal(x.laddr[0], 127);
	assert_false(wg_pt_inet(&t, AF_INET, SOCK_STREAM, &x));
	assert_true(wg_pt_unix(&u, &x));
	assert_true(x.listening);
	assert_string_equal(x.path, "/run/x y.sock");
	assert_true(wg_pt_unix(&u, &x));
	assert_int_equal(x.ino, 99);
	assert_false(x.listening);
	assert_false(wg_pt_unix(&u, &x));
}

static void test_other_texts(void **state)
{
	static const char limits[] = "Limit                     Soft Limit           Hard Limit\n"
				     "Max open files            1024                 4096 files\n"
				     "Max locked memory         unlimited            unlimited bytes\n";
	static const char groups[] = "4:cpu,cpuacct:/a/b\n3:pids:/c\n0::/user.slice/x:y\n";
	static const char env[] = "A=1\0NOEQ\0=x\0RANK=7\0B=";
	const char *n, *v;
	size_t at = 0, nn, vn;
	char out[64];

	(void)state;
	assert_int_equal(wg_pt_limit(limits, "Max open files"), 1024);
	assert_int_equal(wg_pt_limit(limits, "Max locked memory"), INT64_MAX);
	assert_int_equal(wg_pt_limit(limits, "Max processes"), INT64_MIN);
	assert_true(wg_pt_cgroup(groups, "", out, sizeof(out)));
	assert_string_equal(out, "/user.slice/x:y");
	assert_true(wg_pt_cgroup(groups, "cpuacct", out, sizeof(out)));
	assert_string_equal(out, "/a/b");
	assert_true(wg_pt_cgroup(groups, "pids", out, sizeof(out)));
	assert_string_equal(out, "/c");
	assert_false(wg_pt_cgroup(groups, "pid", out, sizeof(out)));
	assert_false(wg_pt_cgroup("junk", "", out, sizeof(out)));
	assert_int_equal(wg_pt_number("max\n"), INT64_MAX);
	assert_int_equal(wg_pt_number(" 12\n"), 12);
	assert_int_equal(wg_pt_number("x"), INT64_MIN);
	assert_int_equal(wg_pt_value("nr_periods 5\nnr_throttled 3\n", "nr_throttled"), 3);
	assert_true(wg_pt_env(env, sizeof(env), &at, &n, &nn, &v, &vn));
	assert_int_equal(nn, 1);
	assert_true(wg_pt_env(env, sizeof(env), &at, &n, &nn, &v, &vn));
	assert_memory_equal(n, "RANK", 4);
	assert_int_equal(vn, 1);
	assert_true(wg_pt_env(env, sizeof(env), &at, &n, &nn, &v, &vn));
	assert_int_equal(vn, 0);
	assert_false(wg_pt_env(env, sizeof(env), &at, &n, &nn, &v, &vn));
}

/* Every text cut at every place, and with every byte damaged: no crash, no read beyond. */
static void test_damaged_texts(void **state)
{
	static const char *const texts[] = {
		stat_line,
		"Name:\tx\nState:\tS\nUid:\t1\t2\t3\t4\nNSpid:\t70\t7\nSigBlk:\t00000010\n",
		"202 0x1 0x80 0x2 0x0 0x0 0xffffffffffffffff 0x10 0x20\n",
		"pos:\t12\nflags:\t02\ntfd: 4 events: 19\nlock:\t1: FLOCK ADVISORY WRITE 9 0:2a:7 0 EOF\n"
		"it_value: (1, 2)\nPid:\t4\n",
		"40 27 0:41 /s /m\\040s rw master:3 - fuse.sshfs u@h:/x rw\n",
		"1: -> POSIX  ADVISORY  READ 124 fe:01:456 5 9\n",
		"   0: 0100007F:1F90 0200007F:C001 01 0:0 0:0 0  1000 0 55555 1\n",
		"0: 2 0 00010000 0001 01  1234 /run/x\n",
		"4:cpu,cpuacct:/a/b\n0::/x\n",
		"[<0>] anon_pipe_read+0x1/0x2\n",
	};

	(void)state;
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		size_t n = strlen(texts[i]);

		for (size_t cut = 0; cut <= n; cut++)
			for (int c = -1; c < 256; c += 23) {
				/* Its own allocation, so that a sanitizer sees a step beyond it. */
				char *copy = malloc(cut + 1);
				struct wg_pt_stat a;
				struct wg_pt_status b;
				struct wg_pt_syscall d;
				struct wg_pt_fdinfo e;
				struct wg_pt_tfd tfd[2];
				struct wg_pt_mount g;
				struct wg_pt_lock h;
				struct wg_pt_sock k;
				struct wg_pt_sched l;
				const char *s;
				char out[16];

				memcpy(copy, texts[i], cut);
				copy[cut] = 0;
				if (c > 0 && cut)
					copy[cut / 2] = (char)c;
				wg_pt_stat(copy, &a);
				wg_pt_status(copy, &b);
				wg_pt_syscall(copy, &d);
				wg_pt_sched(copy, &l);
				wg_pt_fdinfo(copy, &e, tfd, 2);
				for (s = copy; wg_pt_mount(&s, &g);)
					;
				for (s = copy; wg_pt_lock(&s, &h);)
					;
				for (s = copy; wg_pt_inet(&s, AF_INET, 1, &k);)
					;
				for (s = copy; wg_pt_inet(&s, AF_INET6, 1, &k);)
					;
				for (s = copy; wg_pt_unix(&s, &k);)
					;
				for (s = copy; wg_pt_stack_line(&s, out, sizeof(out));)
					;
				wg_pt_cgroup(copy, "cpu", out, sizeof(out));
				wg_pt_limit(copy, "Max");
				free(copy);
			}
	}
}

/* ---- running it ------------------------------------------------------------------------------------ */

static int run_all(const char *who)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stat_text),
		cmocka_unit_test(test_small_texts),
		cmocka_unit_test(test_fdinfo_text),
		cmocka_unit_test(test_mount_text),
		cmocka_unit_test(test_lock_text),
		cmocka_unit_test(test_net_text),
		cmocka_unit_test(test_other_texts),
		cmocka_unit_test(test_damaged_texts),
		cmocka_unit_test(test_decode),
		cmocka_unit_test(test_wchan),
		cmocka_unit_test(test_identity),
		cmocka_unit_test(test_rank),
		cmocka_unit_test(test_zombie),
		cmocka_unit_test(test_dead_leader),
		cmocka_unit_test(test_thread_number),
		cmocka_unit_test(test_mutex),
		cmocka_unit_test(test_cond_timeout),
		cmocka_unit_test(test_relative_futex),
		cmocka_unit_test(test_shared_futex),
		cmocka_unit_test(test_pi),
		cmocka_unit_test(test_waitv),
		cmocka_unit_test(test_pipe_read),
		cmocka_unit_test(test_pipe_write),
		cmocka_unit_test(test_vectors),
		cmocka_unit_test(test_recv_timeout),
		cmocka_unit_test(test_tcp),
		cmocka_unit_test(test_accept_connect),
		cmocka_unit_test(test_splice),
		cmocka_unit_test(test_polls),
		cmocka_unit_test(test_wait),
		cmocka_unit_test(test_locks),
		cmocka_unit_test(test_sleeps),
		cmocka_unit_test(test_implausible_sleep),
		cmocka_unit_test(test_kmsg),
		cmocka_unit_test(test_signals),
		cmocka_unit_test(test_open),
		cmocka_unit_test(test_sysv),
		cmocka_unit_test(test_uring),
		cmocka_unit_test(test_fault),
		cmocka_unit_test(test_running),
		cmocka_unit_test(test_descriptors),
		cmocka_unit_test(test_growth),
	};
	int rc;

	snprintf(dir, sizeof(dir), "/tmp/wg-test-XXXXXX");
	if (!mkdtemp(dir))
		return 1;
	make_shared();
	rc = cmocka_run_group_tests_name(who, tests, NULL, NULL);
	for (int i = 0; i < 4; i++) {
		static const char *const names[] = { "lock", "fifo", "log", "sock" };
		char path[128];

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
	return rc;
}

int main(int argc, char **argv)
{
	int rc, st = 0;
	pid_t pid;

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);

	rc = run_all(geteuid() ? "user" : "root");
	if (geteuid())
		return rc;
	fflush(NULL);
	pid = fork();
	if (!pid) {
		if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
			_exit(1);
		prctl(PR_SET_DUMPABLE, 1); /* changing the user had switched it off */
		exit(run_all("nobody"));
	}
	waitpid(pid, &st, 0);
	return rc || st;
}
