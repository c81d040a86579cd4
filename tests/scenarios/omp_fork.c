/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: fork (FORK_INHERITED_LOCK, FORK_LOST_THREADS)
 * story: a worker process never returns its first item
 * proof: libgomp's (or our own) pool of threads was started before fork(), and fork() copies one thread; the child
 *        then gives work to threads that it does not have. In the twins the pool is started after the fork.
 * case: gomp_lost class=lock-after-fork hung=true culprit=pid
 * case: gomp_in_child class=busy-cpu hung=false culprit=pid
 * case: pool_lost class=lock-after-fork hung=true culprit=pid
 * case: pool_in_child class=busy-cpu|unknown|progressing hung=any
 * case: malloc_like class=lock-after-fork hung=true culprit=pid
 * case: two_levels class=lock-after-fork hung=true culprit=pid
 */
#include <omp.h>
#include <stdbool.h>
#include <sys/wait.h>

#include "scenario.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER, done = PTHREAD_COND_INITIALIZER;
static int jobs, finished;
static const char *kase;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void *pool_thread(void *arg)
{
	pthread_mutex_lock(&m);
	for (;;) {
		while (!jobs)
			pthread_cond_wait(&more, &m);
		jobs--;
		pthread_mutex_unlock(&m);
		if (arg)
			burn();
		usleep(1000);
		pthread_mutex_lock(&m);
		finished++;
		pthread_cond_broadcast(&done);
	}
	return NULL;
}

static void pool_run(int n)
{
	pthread_mutex_lock(&m);
	jobs = n;
	finished = 0;
	pthread_cond_broadcast(&more);
	while (finished < n)
		pthread_cond_wait(&done, &m);
	pthread_mutex_unlock(&m);
}

static void *keeps(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&m);
	for (;;)
		pause();
	return NULL;
}

static long region(bool endless)
{
	long sum = 0;

#pragma omp parallel num_threads(3) reduction(+ : sum)
	{
		sum += omp_get_thread_num();
		if (endless)
			burn();
	}
	return sum;
}

static void child_main(void)
{
	tell("culprit_pid %d", (int)getpid());
	if (in("gomp_lost"))
		region(false);
	if (in("gomp_in_child"))
		region(true);
	if (in("pool_in_child"))
		for (int i = 0; i < 2; i++)
			spawn(pool_thread, &m);
	if (in("pool_lost") || in("pool_in_child"))
		pool_run(4);
	pthread_mutex_lock(&m);
	_exit(0);
}

int main(int argc, char **argv)
{
	pid_t child;
	int status;

	if (argc < 2)
		return 2;
	kase = argv[1];
	if (in("gomp_lost"))
		region(false);
	if (in("pool_lost")) {
		for (int i = 0; i < 2; i++)
			spawn(pool_thread, NULL);
		pool_run(4);
	}
	if (in("malloc_like") || in("two_levels"))
		spawn(keeps, NULL);
	usleep(200000);
	child = fork();
	if (child == 0) {
		if (in("two_levels")) { /* the one that hangs is a grandchild */
			pid_t next = fork();

			if (next)
				_exit(waitpid(next, &status, 0) < 0);
		}
		child_main();
	}
	usleep(500000);
	ready();
	return waitpid(child, &status, 0) < 0;
}
