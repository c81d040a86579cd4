/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: host-lock
 * story: threads or processes wait for a read-write, robust, inheriting or shared lock
 * proof: who holds what follows from the code below; a lock's readers leave no name in it, so where only
 *        readers hold it the contract lets the answer end in no-waker or unknown
 * case: writers_cycle class=deadlock hung=true
 * case: readers_cycle class=deadlock|no-waker|unknown hung=any
 * case: writer_gone class=lock-orphaned hung=true culprit=tid
 * case: writer_computing class=busy-cpu hung=false culprit=tid
 * case: upgrade class=lock-self|no-waker|unknown hung=any
 * case: pi_cycle class=deadlock hung=true
 * case: pi_holder_reads class=peer-silent hung=true culprit=pid
 * case: robust_recovered class=idle|progressing hung=false
 * case: robust_holder_stuck class=lock-self hung=true culprit=tid
 * case: shared_cycle class=deadlock hung=true
 * case: shared_holder_stopped class=stopped hung=true culprit=pid
 * case: shared_holder_computing class=busy-cpu hung=false culprit=pid
 * case: shared_holder_killed class=lock-orphaned hung=true culprit=pid
 * case: shared_chain class=stopped hung=true culprit=pid
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "scenario.h"

static pthread_rwlock_t a = PTHREAD_RWLOCK_INITIALIZER, b = PTHREAD_RWLOCK_INITIALIZER;
static pthread_mutex_t m, n;
static const char *kase;
static int silent[2];

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void make(pthread_mutex_t *mutex, int shared, int robust, int protocol)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, shared);
	pthread_mutexattr_setrobust(&attr, robust);
	pthread_mutexattr_setprotocol(&attr, protocol);
	if (pthread_mutex_init(mutex, &attr))
		_exit(3);
}

static void *rw_other(void *arg)
{
	(void)arg;
	if (in("writers_cycle"))
		pthread_rwlock_wrlock(&b);
	else if (in("readers_cycle"))
		pthread_rwlock_rdlock(&b);
	else
		pthread_rwlock_wrlock(&a);
	tell("culprit_tid %d", tid_now());
	if (in("writer_gone"))
		return NULL;
	if (in("writer_computing"))
		burn();
	usleep(300000);
	pthread_rwlock_wrlock(&a);
	return NULL;
}

static void *mutex_other(void *arg)
{
	char c;

	(void)arg;
	pthread_mutex_lock(&n);
	if (in("pi_holder_reads")) {
		if (read(silent[0], &c, 1) < 0)
			_exit(4);
	} else if (in("robust_holder_stuck")) {
		static pthread_mutex_t self = PTHREAD_MUTEX_INITIALIZER;

		tell("culprit_tid %d", tid_now());
		pthread_mutex_lock(&self);
		pthread_mutex_lock(&self);
	} else if (in("robust_recovered")) {
		return NULL;
	}
	usleep(300000);
	pthread_mutex_lock(&m);
	return NULL;
}

/* Locks that live in memory shared by several processes. */
static int shared_main(void)
{
	pthread_mutex_t *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child, last = 0;

	for (int i = 0; i < 3; i++)
		make(&s[i], PTHREAD_PROCESS_SHARED, PTHREAD_MUTEX_STALLED, PTHREAD_PRIO_NONE);
	if (in("shared_chain")) { /* parent -> s[0] of child -> s[1] of grandchild, stopped */
		last = fork();
		if (last == 0) {
			pthread_mutex_lock(&s[1]);
			tell("culprit_pid %d", (int)getpid());
			raise(SIGSTOP);
			_exit(0);
		}
		usleep(200000);
	}
	child = fork();
	if (child == 0) {
		pthread_mutex_lock(&s[0]);
		if (!in("shared_chain"))
			tell("culprit_pid %d", (int)getpid());
		if (in("shared_holder_stopped"))
			raise(SIGSTOP);
		if (in("shared_holder_computing"))
			burn();
		if (in("shared_holder_killed"))
			kill(getpid(), SIGKILL);
		usleep(300000);
		pthread_mutex_lock(&s[1]);
		_exit(0);
	}
	if (in("shared_cycle"))
		pthread_mutex_lock(&s[1]);
	usleep(600000);
	ready();
	pthread_mutex_lock(&s[0]);
	return 0;
}

int main(int argc, char **argv)
{
	int rc = 0;

	if (argc < 2)
		return 2;
	kase = argv[1];
	if (!strncmp(kase, "shared", 6))
		return shared_main();
	if (!strncmp(kase, "pi_", 3) || !strncmp(kase, "robust_", 7)) {
		int robust = kase[0] == 'r' ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED;

		make(&m, PTHREAD_PROCESS_PRIVATE, robust, kase[0] == 'p' ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
		make(&n, PTHREAD_PROCESS_PRIVATE, robust, kase[0] == 'p' ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE);
		if (pipe(silent))
			return 3;
		if (in("pi_holder_reads")) {
			pid_t child = fork();

			if (child == 0) { /* keeps the write end and never sends */
				close(silent[0]);
				forever();
			}
			tell("culprit_pid %d", (int)child);
			close(silent[1]);
		}
		pthread_mutex_lock(&m);
		spawn(mutex_other, NULL);
		usleep(600000);
		ready();
		rc = pthread_mutex_lock(&n);
		while (in("robust_recovered") && rc == EOWNERDEAD)
			sleep(1000);
		return 0;
	}
	if (in("writers_cycle"))
		pthread_rwlock_wrlock(&a);
	if (in("readers_cycle"))
		pthread_rwlock_rdlock(&a);
	if (in("upgrade")) {
		pthread_rwlock_rdlock(&a);
		ready();
		return pthread_rwlock_wrlock(&a);
	}
	spawn(rw_other, NULL);
	usleep(500000);
	ready();
	rc = in("writers_cycle") || in("readers_cycle") ? pthread_rwlock_wrlock(&b) : pthread_rwlock_rdlock(&a);
	return rc;
}
