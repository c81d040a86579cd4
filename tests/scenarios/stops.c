/* scenario
 * section: stopped
 * story: nothing moves, and nothing waits
 * proof: the program stops a process with a signal, a tracer or the freezer, and /proc says so
 * case: child class=stopped hung=true culprit=pid
 * case: self class=stopped hung=true culprit=pid
 * case: traced class=stopped hung=true culprit=pid
 * case: ttou class=stopped hung=true culprit=pid
 * case: child_working class=busy-cpu hung=false culprit=pid
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <pty.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <termios.h>

#include "scenario.h"

static volatile double sink;

int main(int argc, char **argv)
{
	int status, master;
	pid_t pid;

	if (is(argc, argv, "self")) {
		tell("culprit_pid %d", (int)getpid());
		ready();
		raise(SIGSTOP);
		return 0;
	}
	if (is(argc, argv, "ttou")) { /* a background job of a shell touches the terminal */
		pid = forkpty(&master, NULL, NULL, NULL);
		if (pid == 0) {
			pid_t job = fork();

			if (job == 0) {
				struct termios t;

				setpgid(0, 0);
				tell("culprit_pid %d", (int)getpid());
				tcgetattr(0, &t);
				tcsetattr(0, TCSANOW, &t); /* SIGTTOU stops us here */
				_exit(0);
			}
			waitpid(job, &status, 0);
			_exit(0);
		}
		usleep(500000);
		ready();
		waitpid(pid, &status, 0);
		return 0;
	}
	pid = fork();
	if (pid)
		tell("culprit_pid %d", (int)pid);
	if (pid == 0) {
		if (is(argc, argv, "child"))
			raise(SIGSTOP);
		for (unsigned long i = 1;; i++) {
			sink = sink * 0.999 + (double)(i % 977) / 3.0;
			if (is(argc, argv, "traced"))
				usleep(1000);
		}
	}
	if (is(argc, argv, "traced")) {
		pid_t tracer = fork();

		if (tracer == 0) {
			ptrace(PTRACE_SEIZE, pid, NULL, NULL);
			ptrace(PTRACE_INTERRUPT, pid, NULL, NULL);
			forever();
		}
	}
	usleep(300000);
	ready();
	waitpid(pid, &status, 0);
	return 0;
}
