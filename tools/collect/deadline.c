/* SPDX-License-Identifier: Apache-2.0 */
/*
 * deadline.c - run something that may never come back.
 *
 * A read of /proc/PID/maps, of another process' memory or of a driver's library can
 * block for ever behind a lock that the very hang we look at holds. Nothing can
 * interrupt such a call, so it gets a thread that can be left behind: the thread owns
 * everything it touches, and nobody joins it.
 */
#include "deadline.h"
#include "sources.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int start_detached(size_t stack, void *(*fn)(void *), void *arg)
{
	pthread_attr_t ta;
	sigset_t all, old;
	pthread_t thread;
	int err;

	pthread_attr_init(&ta);
	pthread_attr_setdetachstate(&ta, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&ta, stack);
	sigfillset(&all); /* signals belong to the thread that can act on them */
	pthread_sigmask(SIG_BLOCK, &all, &old);
	err = pthread_create(&thread, &ta, fn, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	pthread_attr_destroy(&ta);
	return -err;
}

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
	struct timespec until;
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

	err = start_detached(1024 * 1024, run, b);
	if (err) {
		b->users = 1;
		put(b);
		return err;
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

/* ---- the kept thread ----------------------------------------------------------- */

enum { IDLE, ASKED, DONE, QUIT };
#define MAX_SPIN 1000
#define MIN_SPIN 32

struct wg_patient { /* owned by its thread once it is told to quit */
	_Atomic uint32_t state;
	_Atomic uint32_t asleep; /* bit 0: the thread sleeps, bit 1: who asked sleeps */
	bool spin;
	int patience; /* turns to spin for the next call: fewer where it used to come later */
	void (*fn)(void *);
	void *arg;
};

static void futex_sleep(_Atomic uint32_t *w, uint32_t val, double seconds)
{
	struct timespec ts = { .tv_sec = (time_t)seconds,
			       .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9) };

	syscall(SYS_futex, w, FUTEX_WAIT_PRIVATE, val, seconds < 0 ? NULL : &ts, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *w)
{
	syscall(SYS_futex, w, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static inline void relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void *patient_main(void *arg)
{
	struct wg_patient *p = arg;

	for (;;) {
		uint32_t s = IDLE;
		int i = 0;

		for (; p->spin && i < p->patience; i++) {
			s = atomic_load(&p->state);
			if (s == ASKED || s == QUIT)
				break;
			relax();
		}
		p->patience = i < p->patience ? MAX_SPIN : p->patience / 2 + MIN_SPIN / 2;
		while ((s = atomic_load(&p->state)) != ASKED && s != QUIT) {
			atomic_fetch_or(&p->asleep, 1);
			if (atomic_load(&p->state) == s)
				futex_sleep(&p->state, s, -1);
			atomic_fetch_and(&p->asleep, ~1u);
		}
		if (s == QUIT)
			break;
		p->fn(p->arg);
		s = ASKED;
		/* Left behind meanwhile: QUIT was set and must stand. */
		if (!atomic_compare_exchange_strong(&p->state, &s, DONE))
			break;
		if (atomic_load(&p->asleep) & 2)
			futex_wake(&p->state);
	}
	free(p);
	return NULL;
}

int wg_patient_do(struct wg_patient **pp, double seconds, void (*fn)(void *), void *arg)
{
	struct wg_patient *p = *pp;
	double end = 0;

	if (!p) {
		cpu_set_t cpus;
		int err;

		p = calloc(1, sizeof(*p));
		if (!p)
			return -ENOMEM;
		p->patience = MAX_SPIN;
		p->spin = !sched_getaffinity(0, sizeof(cpus), &cpus) && CPU_COUNT(&cpus) > 1;
		err = start_detached(256 * 1024, patient_main, p);
		if (err) {
			free(p);
			return err;
		}
		*pp = p;
	}
	p->fn = fn;
	p->arg = arg;
	atomic_store(&p->state, ASKED);
	if (atomic_load(&p->asleep) & 1)
		futex_wake(&p->state);
	for (int i = 0; p->spin && i < 1000; i++) {
		if (atomic_load(&p->state) == DONE)
			return 0;
		relax();
	}
	while (atomic_load(&p->state) == ASKED) {
		double t = now_s();

		if (!end)
			end = t + seconds;
		if (t >= end) {
			uint32_t s = ASKED;

			if (!atomic_compare_exchange_strong(&p->state, &s, QUIT))
				break; /* it answered this very moment */
			*pp = NULL;
			return -ETIMEDOUT;
		}
		atomic_fetch_or(&p->asleep, 2);
		if (atomic_load(&p->state) == ASKED)
			futex_sleep(&p->state, ASKED, end - t);
		atomic_fetch_and(&p->asleep, ~2u);
	}
	return 0;
}

void wg_patient_end(struct wg_patient **pp)
{
	struct wg_patient *p = *pp;

	*pp = NULL;
	if (!p)
		return;
	atomic_store(&p->state, QUIT);
	futex_wake(&p->state); /* p may be gone by now: the kernel only takes the address */
}
