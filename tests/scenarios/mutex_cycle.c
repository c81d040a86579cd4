/* scenario
 * story: two threads of one process stand still, no CPU is used, the log has stopped
 * proof: each thread holds one mutex and asks for the other's; nothing else runs, so by
 *        construction neither lock can ever be released. The twin takes them in one order.
 * case: cycle class=deadlock hung=true culprit=tid
 * case: ordered class=idle|progressing|busy-cpu hung=false
 * case: chain class=idle|progressing|busy-cpu hung=false
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "scenario.h"

static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;
static int ordered;

static void *second(void *arg)
{
	tell("culprit_tid %d", tid_now());
	for (;;) {
		pthread_mutex_lock(ordered ? &a : &b);
		usleep(300000);
		pthread_mutex_lock(ordered ? &b : &a);
		pthread_mutex_unlock(&a);
		pthread_mutex_unlock(&b);
	}
	return arg;
}

static void *sleeper(void *arg)
{
	pthread_mutex_lock(&a);
	for (;;)
		sleep(1); /* holds the lock and goes on by itself: slow, but no cycle */
	return arg;
}

int main(int argc, char **argv)
{
	ordered = is(argc, argv, "ordered");
	tell("culprit_tid %d", tid_now());
	if (is(argc, argv, "chain")) {
		spawn(sleeper, NULL);
		usleep(100000);
		ready();
		pthread_mutex_lock(&a);
		return 0;
	}
	pthread_mutex_lock(&a);
	spawn(second, NULL);
	usleep(200000);
	ready();
	for (;;) {
		pthread_mutex_lock(&b);
		pthread_mutex_unlock(&b);
		pthread_mutex_unlock(&a);
		usleep(1000);
		pthread_mutex_lock(&a);
	}
}
