/* scenario
 * section: host-lock, rendezvous
 * story: main waits on a condition, semaphore, barrier or eventfd for ever
 * proof: the program has no other thread that refers to the object (nobody), or one that does and
 *        whose own state is what it is by construction
 * case: cond_nobody class=no-waker hung=true
 * case: sem_nobody class=no-waker hung=true
 * case: barrier_short class=no-waker hung=true
 * case: eventfd_nobody class=no-waker hung=true
 * case: cond_timer class=idle|progressing hung=false
 * case: cond_worker_computes class=busy-cpu|unknown|progressing hung=false
 * case: join_computing class=busy-cpu hung=false culprit=tid
 * case: join_sleeper class=idle|progressing hung=false
 * case: join_stuck class=lock-orphaned hung=true
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <semaphore.h>
#include <sys/eventfd.h>

#include "scenario.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, gone = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t barrier;
static volatile double sink;
static int go_on = 1;

static void *ticks(void *arg)
{
	for (;;) {
		usleep(200000);
		pthread_mutex_lock(&lock);
		pthread_cond_signal(&cond);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

static void *computes(void *arg)
{
	tell("culprit_tid %d", tid_now());
	for (unsigned long i = 1; go_on; i++)
		sink = sink * 0.999 + (double)(i % 977) / 3.0;
	pthread_mutex_lock(&lock);
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&lock);
	return arg;
}

static void *sleeps(void *arg)
{
	for (;;)
		sleep(1);
	return arg;
}

static void *takes(void *arg)
{
	pthread_mutex_lock(&gone);
	return arg;
}

static void *stuck(void *arg)
{
	pthread_mutex_lock(&gone);
	return arg;
}

static void *arrives(void *arg)
{
	pthread_barrier_wait(&barrier);
	return arg;
}

int main(int argc, char **argv)
{
	sem_t sem;
	uint64_t v;

	if (is(argc, argv, "sem_nobody")) {
		sem_init(&sem, 0, 0);
		ready();
		sem_wait(&sem);
	} else if (is(argc, argv, "barrier_short")) {
		pthread_barrier_init(&barrier, NULL, 4);
		spawn(arrives, NULL);
		spawn(arrives, NULL);
		ready();
		pthread_barrier_wait(&barrier);
	} else if (is(argc, argv, "eventfd_nobody")) {
		int fd = eventfd(0, EFD_CLOEXEC);

		ready();
		if (read(fd, &v, sizeof(v)))
			return 0;
	} else if (is(argc, argv, "join_computing")) {
		pthread_t t = spawn(computes, NULL);

		ready();
		pthread_join(t, NULL);
	} else if (is(argc, argv, "join_sleeper")) {
		pthread_t t = spawn(sleeps, NULL);

		ready();
		pthread_join(t, NULL);
	} else if (is(argc, argv, "join_stuck")) {
		pthread_join(spawn(takes, NULL), NULL);
		pthread_t t = spawn(stuck, NULL);

		ready();
		pthread_join(t, NULL);
	}
	if (is(argc, argv, "cond_timer"))
		spawn(ticks, NULL);
	if (is(argc, argv, "cond_worker_computes"))
		spawn(computes, NULL);
	ready();
	pthread_mutex_lock(&lock);
	for (;;)
		pthread_cond_wait(&cond, &lock);
}
