/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: io (PIPE_BACKPRESSURE), dead-peer
 * story: a process waits for a FIFO, a terminal, a timer, a watch or a socket that has nobody behind it
 * proof: both ends are made below and what each does is written there
 * case: fifo_writer_silent class=peer-silent hung=true culprit=pid
 * case: fifo_writer_stopped class=stopped hung=true culprit=pid
 * case: fifo_open_nobody class=no-waker|pipe-full|peer-silent hung=true says=scenario.fifo
 * case: fifo_kept_open class=idle hung=false
 * case: fifo_served class=idle|progressing|busy-cpu hung=false
 * case: pty_unread class=pipe-full hung=true culprit=pid
 * case: pty_unread_waited class=deadlock hung=true
 * case: pty_read class=idle|progressing|busy-cpu hung=false
 * case: timerfd class=idle|progressing hung=false
 * case: signalfd class=idle hung=false
 * case: inotify class=idle|unknown hung=any
 * case: eventfd_child_stopped class=stopped hung=true culprit=pid
 * case: eventfd_child_computing class=busy-cpu|unknown hung=any culprit=pid
 * case: send_full_stuck class=lock-self hung=true culprit=pid
 * case: send_cycle class=deadlock hung=true
 * case: backlog_full class=lock-self hung=true culprit=pid
 * case: echo_served class=idle|progressing|busy-cpu hung=false
 * case: reader_of_three class=stopped hung=true culprit=pid
 * case: select_silent class=peer-silent hung=true
 */
#include <netinet/in.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/select.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>

#include "scenario.h"

static const char *kase;
static char block[65536];

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void stuck_for_good(void)
{
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

	pthread_mutex_lock(&m);
	pthread_mutex_lock(&m);
}

static ssize_t drop(ssize_t n)
{
	return n;
}

static int fifos(void)
{
	const char *path = "scenario.fifo";
	char c;
	int fd;

	if (mkfifo(path, 0600))
		return 3;
	if (in("fifo_open_nobody")) {
		ready();
		return open(path, O_WRONLY);
	}
	if (in("fifo_kept_open")) { /* for both ways, so that it never ends: it serves whoever comes */
		fd = open(path, O_RDWR);
		ready();
		return read(fd, &c, 1) < 0;
	}
	if (fork() == 0) {
		tell("culprit_pid %d", (int)getpid());
		fd = open(path, O_WRONLY);
		if (in("fifo_writer_stopped"))
			raise(SIGSTOP);
		while (in("fifo_served")) {
			usleep(100000);
			drop(write(fd, "x", 1));
		}
		forever();
	}
	fd = open(path, O_RDONLY);
	ready();
	while (read(fd, &c, 1) == 1)
		;
	return 0;
}

static int ptys(void)
{
	int master, status;
	pid_t child = forkpty(&master, NULL, NULL, NULL);

	if (child == 0) {
		for (;;) {
			drop(write(1, block, 1000));
			usleep(1000);
		}
	}
	tell("culprit_pid %d", (int)getpid());
	tell("ask_pid %d", (int)child);
	usleep(500000);
	ready();
	if (in("pty_unread_waited"))
		return waitpid(child, &status, 0);
	while (in("pty_read")) {
		drop(read(master, block, sizeof(block)));
		usleep(1000);
	}
	for (;;)
		pause();
}

static int waits_by_design(void)
{
	struct itimerspec every = { { 0, 300000000 }, { 0, 300000000 } };
	struct signalfd_siginfo si;
	unsigned long n;
	sigset_t set;
	int fd;

	ready();
	if (in("timerfd")) {
		fd = timerfd_create(CLOCK_MONOTONIC, 0);
		timerfd_settime(fd, 0, &every, NULL);
		for (;;)
			drop(read(fd, &n, sizeof(n)));
	}
	if (in("signalfd")) {
		sigemptyset(&set);
		sigaddset(&set, SIGTERM);
		sigprocmask(SIG_BLOCK, &set, NULL);
		fd = signalfd(-1, &set, 0);
		return read(fd, &si, sizeof(si)) < 0;
	}
	fd = inotify_init();
	inotify_add_watch(fd, ".", IN_CREATE);
	return read(fd, block, sizeof(block)) < 0;
}

static int events(void)
{
	unsigned long n;
	int fd = eventfd(0, 0);

	if (fork() == 0) {
		tell("culprit_pid %d", (int)getpid());
		if (in("eventfd_child_stopped"))
			raise(SIGSTOP);
		burn();
	}
	usleep(200000);
	ready();
	return read(fd, &n, sizeof(n)) < 0;
}

static int sockets(void)
{
	struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t len = sizeof(addr);
	int pair[2], listener;

	if (in("backlog_full")) { /* the server listens, then stands still; the queue is full before us */
		listener = socket(AF_INET, SOCK_STREAM, 0);
		if (bind(listener, (struct sockaddr *)&addr, sizeof(addr)) || listen(listener, 0) ||
		    getsockname(listener, (struct sockaddr *)&addr, &len))
			return 3;
		if (fork() == 0) {
			tell("culprit_pid %d", (int)getpid());
			stuck_for_good();
		}
		close(listener);
		usleep(200000);
		for (int i = 0;; i++) {
			if (i == 1)
				ready();
			if (connect(socket(AF_INET, SOCK_STREAM, 0), (struct sockaddr *)&addr, sizeof(addr)))
				return 4;
		}
	}
	if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 3;
	if (fork() == 0) {
		tell("culprit_pid %d", (int)getpid());
		close(pair[0]);
		if (in("send_full_stuck"))
			stuck_for_good();
		while (in("echo_served")) {
			drop(read(pair[1], block, 100));
			usleep(20000);
			drop(write(pair[1], block, 100));
		}
		for (;;)
			drop(write(pair[1], block, sizeof(block)));
	}
	close(pair[1]);
	if (in("echo_served")) {
		ready();
		for (;;) {
			drop(write(pair[0], block, 100));
			drop(read(pair[0], block, 100));
		}
	}
	usleep(200000);
	ready();
	for (;;)
		drop(write(pair[0], block, sizeof(block)));
}

/* One waiter, three writers in a poll set; the one that has not answered yet is stopped. */
static int gather(void)
{
	struct pollfd set[3];
	int fds[2], left = 3;
	fd_set readable;
	char c;

	for (int i = 0; i < 3; i++) {
		if (pipe(fds))
			return 3;
		if (fork() == 0) {
			for (int k = 0; k < i; k++)
				close(set[k].fd);
			close(fds[0]);
			if (in("select_silent"))
				forever();
			if (i == 1) {
				tell("culprit_pid %d", (int)getpid());
				raise(SIGSTOP);
			}
			drop(write(fds[1], "x", 1));
			_exit(0);
		}
		close(fds[1]);
		set[i] = (struct pollfd){ .fd = fds[0], .events = POLLIN };
	}
	usleep(300000);
	ready();
	while (in("select_silent")) {
		FD_ZERO(&readable);
		for (int i = 0; i < 3; i++)
			FD_SET(set[i].fd, &readable);
		select(set[2].fd + 1, &readable, NULL, NULL, NULL);
	}
	while (left && poll(set, 3, -1) > 0)
		for (int i = 0; i < 3; i++)
			if (set[i].revents) {
				drop(read(set[i].fd, &c, 1));
				set[i].fd = -1;
				set[i].revents = 0;
				left--;
			}
	return 0;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	kase = argv[1];
	if (!strncmp(kase, "fifo", 4))
		return fifos();
	if (!strncmp(kase, "pty", 3))
		return ptys();
	if (!strncmp(kase, "eventfd", 7))
		return events();
	if (in("timerfd") || in("signalfd") || in("inotify"))
		return waits_by_design();
	if (in("reader_of_three") || in("select_silent"))
		return gather();
	return sockets();
}
