/* scenario
 * section: io, dead-peer
 * story: a process stands in write() or read() on a pipe or socket
 * proof: parent and child are this file: what each end does is written below
 * case: full_waitpid class=deadlock hung=true
 * case: full_idle_reader class=pipe-full hung=true culprit=pid
 * case: full_stopped_reader class=stopped hung=true culprit=pid
 * case: slow_reader class=idle|progressing|busy-cpu hung=false
 * case: empty_silent class=peer-silent hung=true culprit=pid
 * case: empty_computing class=busy-cpu hung=false culprit=pid
 * case: empty_leaked class=peer-dead hung=true culprit=pid user=unknown
 * case: socket_silent class=peer-silent hung=true culprit=pid
 * case: socket_deadlocked class=lock-self hung=true culprit=pid
 * case: tcp_silent class=peer-silent hung=true culprit=pid
 * case: tcp_stopped class=stopped hung=true culprit=pid
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "scenario.h"

static volatile double sink;

static void compute(void)
{
	for (unsigned long i = 1;; i++)
		sink = sink * 0.999 + (double)(i % 977) / 3.0;
}

static void fill(int fd)
{
	char block[4096] = "x";

	for (;;)
		if (write(fd, block, sizeof(block)) <= 0)
			_exit(1);
}

int main(int argc, char **argv)
{
	int fds[2], status;
	char c;
	pid_t pid;

	if (is(argc, argv, "tcp_silent") || is(argc, argv, "tcp_stopped")) {
		struct sockaddr_in a = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		socklen_t n = sizeof(a);
		int s = socket(AF_INET, SOCK_STREAM, 0);

		if (bind(s, (void *)&a, sizeof(a)) || listen(s, 1) || getsockname(s, (void *)&a, &n))
			return 1;
		pid = fork();
		if (pid == 0) {
			int k = accept(s, NULL, NULL);

			tell("culprit_pid %d", (int)getpid());
			if (is(argc, argv, "tcp_stopped"))
				raise(SIGSTOP);
			close(s);
			forever();
			return k;
		}
		close(s);
		s = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(s, (void *)&a, sizeof(a)))
			return 1;
		ready();
		return recv(s, &c, 1, 0) == 1;
	}
	if (is(argc, argv, "socket_silent") || is(argc, argv, "socket_deadlocked")) {
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
			return 1;
		pid = fork();
		if (pid == 0) {
			static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

			close(fds[0]);
			tell("culprit_pid %d", (int)getpid());
			if (is(argc, argv, "socket_deadlocked")) {
				pthread_mutex_lock(&m);
				pthread_mutex_lock(&m);
			}
			forever();
		}
		close(fds[1]);
		ready();
		return read(fds[0], &c, 1) == 1;
	}
	if (pipe(fds))
		return 1;
	pid = fork();
	if (is(argc, argv, "full_waitpid")) {
		if (pid == 0) {
			close(fds[0]);
			fill(fds[1]);
		}
		close(fds[1]);
		ready();
		waitpid(pid, &status, 0);
	} else if (!strncmp(argv[1], "full_", 5) || is(argc, argv, "slow_reader")) {
		if (pid == 0) { /* the reader */
			close(fds[1]);
			tell("culprit_pid %d", (int)getpid());
			if (is(argc, argv, "full_stopped_reader"))
				raise(SIGSTOP);
			while (is(argc, argv, "slow_reader")) {
				char block[512];

				if (read(fds[0], block, sizeof(block)) <= 0)
					break;
				usleep(20000);
			}
			forever();
		}
		close(fds[0]);
		ready();
		fill(fds[1]);
	} else if (is(argc, argv, "empty_leaked")) {
		if (pid == 0) { /* the writer leaves the descriptor to a child that knows nothing of it */
			close(fds[0]);
			tell("culprit_pid %d", (int)getpid());
			if (fork() == 0) {
				setsid();
				tell("culprit_pid %d", (int)getpid()); /* all that is left: the writer is reaped */
				tell("cleanup_pid %d", (int)getpid());
				forever();
			}
			_exit(0);
		}
		close(fds[1]);
		waitpid(pid, &status, 0);
		ready();
		return read(fds[0], &c, 1) == 1;
	} else { /* empty_* */
		if (pid == 0) {
			close(fds[0]);
			tell("culprit_pid %d", (int)getpid());
			if (is(argc, argv, "empty_computing"))
				compute();
			forever();
		}
		close(fds[1]);
		ready();
		return read(fds[0], &c, 1) == 1;
	}
	return 0;
}
