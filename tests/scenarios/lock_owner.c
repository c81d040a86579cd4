/* scenario
 * section: host-lock, fork
 * story: one thread waits in pthread_mutex_lock and nothing happens
 * proof: built so that the owner is known: it called gettid() while holding the lock, and what it
 *        then did (end, lock again, fork, compute) is the only code it has
 * case: self class=lock-self hung=true culprit=tid
 * case: recursive class=idle|progressing hung=false
 * case: thread_gone class=lock-orphaned hung=true culprit=tid
 * case: process_gone class=lock-orphaned hung=true culprit=pid
 * case: computing class=busy-cpu hung=false culprit=tid
 * case: after_fork class=lock-after-fork hung=true culprit=pid
 * case: fork_computes class=busy-cpu hung=false culprit=pid
 * case: timed_forever class=deadlock|lock-orphaned|lock-self|no-waker|unknown hung=true
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

#include "scenario.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static volatile double sink;
static void compute(void)
{
	for (unsigned long i = 1;; i++)
		sink = sink * 0.999 + (double)(i % 977) / 3.0;
}

static void *leaves(void *arg)
{
	tell("culprit_tid %d", tid_now());
	pthread_mutex_lock(&lock);
	return arg;
}

static void *computes(void *arg)
{
	tell("culprit_tid %d", tid_now());
	pthread_mutex_lock(&lock);
	compute();
	return arg;
}

static void *holds(void *arg)
{
	pthread_mutex_lock(&lock);
	sleep(1); /* long enough for the fork below */
	pthread_mutex_unlock(&lock);
	forever();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t attr;
	pthread_mutex_t *shared;
	int status;
	pid_t pid;

	if (is(argc, argv, "self")) {
		tell("culprit_tid %d", tid_now());
		pthread_mutex_lock(&lock);
		ready();
		pthread_mutex_lock(&lock);
	} else if (is(argc, argv, "recursive")) {
		pthread_mutexattr_init(&attr);
		pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
		pthread_mutex_init(&lock, &attr);
		pthread_mutex_lock(&lock);
		pthread_mutex_lock(&lock);
		ready();
		for (;;)
			sleep(1);
	} else if (is(argc, argv, "thread_gone")) {
		pthread_join(spawn(leaves, NULL), NULL);
		ready();
		pthread_mutex_lock(&lock);
	} else if (is(argc, argv, "process_gone")) {
		shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		pthread_mutexattr_init(&attr);
		pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
		pthread_mutex_init(shared, &attr);
		pid = fork();
		if (pid == 0) {
			pthread_mutex_lock(shared);
			_exit(0);
		}
		tell("culprit_pid %d", pid);
		waitpid(pid, &status, 0);
		ready();
		pthread_mutex_lock(shared);
	} else if (is(argc, argv, "computing")) {
		spawn(computes, NULL);
		usleep(200000);
		ready();
		pthread_mutex_lock(&lock);
	} else if (is(argc, argv, "after_fork") || is(argc, argv, "fork_computes")) {
		spawn(holds, NULL);
		usleep(200000);
		pid = fork();
		if (pid == 0) {
			tell("culprit_pid %d", (int)getpid());
			if (is(argc, argv, "fork_computes"))
				compute();
			pthread_mutex_lock(&lock);
			_exit(0);
		}
		sleep(1);
		ready();
		waitpid(pid, &status, 0);
	} else { /* a loop of timed locks on a lock that its owner took with it */
		pthread_join(spawn(leaves, NULL), NULL);
		ready();
		for (;;) {
			struct timespec ts;

			clock_gettime(CLOCK_REALTIME, &ts);
			ts.tv_sec += 3600;
			pthread_mutex_timedlock(&lock, &ts);
		}
	}
	return 0;
}
