/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: stopped (STOPPED), signal
 * story: some threads of a process go on, others stand still
 * proof: a child of this program attaches to the threads that it was told of and interrupts them, and goes to sleep
 * case: half class=stopped hung=true culprit=tid
 * case: half_works class=busy-cpu hung=false culprit=tid
 * case: detached class=busy-cpu hung=false
 * case: group_stopped class=stopped hung=true
 * case: reader_of_stopped class=stopped hung=true culprit=pid
 */
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "scenario.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static const char *kase;
static int owner_tid, idle_tid;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void *owner(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&m);
	tell("culprit_tid %d", tid_now());
	__atomic_store_n(&owner_tid, tid_now(), __ATOMIC_SEQ_CST);
	burn();
	return NULL;
}

static void *idles(void *arg)
{
	__atomic_store_n(&idle_tid, tid_now(), __ATOMIC_SEQ_CST);
	for (;;)
		pause();
	return arg;
}

int main(int argc, char **argv)
{
	int fds[2], status;
	pid_t child, target;
	char c;

	if (argc < 2 || pipe(fds))
		return 2;
	kase = argv[1];
	prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
	if (in("group_stopped") || in("reader_of_stopped")) {
		child = fork();
		if (child == 0) {
			close(fds[0]);
			for (int i = 0; i < 3; i++)
				spawn(idles, NULL);
			tell("culprit_pid %d", (int)getpid());
			kill(getpid(), SIGSTOP);
			burn();
		}
		close(fds[1]);
		usleep(300000);
		ready();
		if (in("group_stopped"))
			return waitpid(child, &status, 0) < 0;
		return read(fds[0], &c, 1) < 0;
	}
	spawn(owner, NULL);
	spawn(idles, NULL);
	while (!__atomic_load_n(&owner_tid, __ATOMIC_SEQ_CST) || !__atomic_load_n(&idle_tid, __ATOMIC_SEQ_CST))
		usleep(1000);
	target = in("half_works") ? idle_tid : owner_tid;
	if (fork() == 0) {
		if (ptrace(PTRACE_SEIZE, target, NULL, NULL) || ptrace(PTRACE_INTERRUPT, target, NULL, NULL))
			_exit(5);
		if (in("detached")) {
			waitpid(target, &status, __WALL);
			ptrace(PTRACE_DETACH, target, NULL, NULL);
		}
		forever();
	}
	usleep(300000);
	ready();
	pthread_mutex_lock(&m);
	return 0;
}
