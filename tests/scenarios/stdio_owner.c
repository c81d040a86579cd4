/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: host-lock, signal (SIGNAL_SELF_DEADLOCK)
 * story: a thread stands in printf or in its own signal handler
 * proof: flockfile() is called by the thread named below, and by no other; handlers run on the thread that
 *        raise() interrupts
 * case: file_owner_computing class=busy-cpu hung=false culprit=tid
 * case: file_owner_gone class=lock-orphaned hung=true
 * case: file_mutex_cycle class=deadlock hung=true
 * case: file_owner_reads class=peer-silent hung=true culprit=pid
 * case: file_short_holds class=busy-cpu|progressing|idle hung=false
 * case: handler_self class=lock-self hung=true culprit=tid
 * case: handler_other_thread class=lock-self hung=true culprit=tid
 * case: handler_returns class=idle|progressing hung=false
 * case: errorcheck class=idle|progressing hung=false
 */
#include <signal.h>
#include <stdbool.h>

#include "scenario.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static const char *kase;
static FILE *shared;
static int fds[2];

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void *owner(void *arg)
{
	char c;

	(void)arg;
	while (in("file_short_holds")) {
		flockfile(shared);
		usleep(2000);
		funlockfile(shared);
		usleep(2000);
	}
	flockfile(shared);
	if (!in("file_owner_reads"))
		tell("culprit_tid %d", tid_now());
	if (in("file_owner_computing"))
		burn();
	if (in("file_owner_reads") && read(fds[0], &c, 1) < 0)
		_exit(4);
	usleep(400000);
	if (in("file_mutex_cycle"))
		pthread_mutex_lock(&m);
	return NULL;
}

static void on_usr1(int sig)
{
	(void)sig;
	pthread_mutex_lock(&m);
	pthread_mutex_unlock(&m);
}

static void *interrupted(void *arg)
{
	(void)arg;
	tell("culprit_tid %d", tid_now());
	pthread_mutex_lock(&m);
	if (in("handler_other_thread"))
		ready();
	raise(SIGUSR1);
	pthread_mutex_unlock(&m);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t;

	if (argc < 2)
		return 2;
	kase = argv[1];
	shared = fopen("/dev/null", "w");
	if (!strncmp(kase, "handler", 7)) {
		signal(SIGUSR1, on_usr1);
		if (in("handler_other_thread")) {
			t = spawn(interrupted, NULL);
			return pthread_join(t, NULL);
		}
		if (in("handler_returns")) {
			raise(SIGUSR1);
			ready();
			for (;;)
				sleep(1000);
		}
		ready();
		interrupted(NULL);
		return 0;
	}
	if (in("errorcheck")) { /* the second lock fails with EDEADLK: no hang */
		pthread_mutexattr_t attr;

		pthread_mutexattr_init(&attr);
		pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_ERRORCHECK);
		pthread_mutex_init(&m, &attr);
		pthread_mutex_lock(&m);
		if (!pthread_mutex_lock(&m))
			return 3;
		ready();
		for (;;)
			sleep(1000);
	}
	if (in("file_owner_reads")) {
		pid_t child;

		if (pipe(fds))
			return 3;
		child = fork();
		if (child == 0) {
			close(fds[0]);
			forever();
		}
		close(fds[1]);
		tell("culprit_pid %d", (int)child);
	}
	if (in("file_mutex_cycle"))
		pthread_mutex_lock(&m);
	spawn(owner, NULL);
	usleep(600000);
	ready();
	do
		fprintf(shared, "step\n");
	while (in("file_short_holds"));
	return 0;
}
