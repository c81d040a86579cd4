/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadline.c - run something that may never come back.
 *
 * A read of /proc/PID/maps, of another process' memory or of a driver's library can
 * block for ever behind a lock that the very hang we look at holds. Nothing can
 * interrupt such a call, so it gets a thread that can be left behind: the thread owns
 * everything it touches, and nobody joins it.
 */
#include "sources.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

struct left_behind {
	pthread_mutex_t lock;
	pthread_cond_t done_cond;
	void (*fn)(void *);
	void *arg;
	bool done;
	int users; /* the last one frees */
};

static void put(struct left_behind *b)
{
	int left;

	pthread_mutex_lock(&b->lock);
	left = --b->users;
	pthread_mutex_unlock(&b->lock);
	if (left)
		return;
	pthread_cond_destroy(&b->done_cond);
	pthread_mutex_destroy(&b->lock);
	free(b);
}

static void *run(void *arg)
{
	struct left_behind *b = arg;

	b->fn(b->arg);
	pthread_mutex_lock(&b->lock);
	b->done = true;
	pthread_cond_signal(&b->done_cond);
	pthread_mutex_unlock(&b->lock);
	put(b);
	return NULL;
}

int wg_with_deadline(double seconds, void (*fn)(void *), void *arg)
{
	struct left_behind *b = calloc(1, sizeof(*b));
	pthread_condattr_t ca;
	pthread_attr_t ta;
	struct timespec until;
	sigset_t all, old;
	pthread_t thread;
	int err = 0;

	if (!b)
		return -ENOMEM;
	b->fn = fn;
	b->arg = arg;
	b->users = 2;
	pthread_mutex_init(&b->lock, NULL);
	pthread_condattr_init(&ca);
	pthread_condattr_setclock(&ca, CLOCK_MONOTONIC);
	pthread_cond_init(&b->done_cond, &ca);
	pthread_condattr_destroy(&ca);

	pthread_attr_init(&ta);
	pthread_attr_setdetachstate(&ta, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&ta, 1024 * 1024);
	sigfillset(&all); /* signals belong to the thread that can act on them */
	pthread_sigmask(SIG_BLOCK, &all, &old);
	err = pthread_create(&thread, &ta, run, b);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&ta);
	if (err) {
		b->users = 1;
		put(b);
		return -err;
	}

	if (seconds < 0)
		seconds = 0;
	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_sec += (time_t)seconds;
	until.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
	if (until.tv_nsec >= 1000000000) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000;
	}
	pthread_mutex_lock(&b->lock);
	while (!b->done && !err)
		err = pthread_cond_timedwait(&b->done_cond, &b->lock, &until);
	err = b->done ? 0 : -ETIMEDOUT;
	pthread_mutex_unlock(&b->lock);
	put(b);
	return err;
}
