/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plant.h - a forked child that blocks in a known way, and one look at it through the
 * collectors. Shared by the tests of tools/collect that look at live processes.
 */
#ifndef WG_PLANT_H
#define WG_PLANT_H

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "collect/collect.h"

struct plant {
	pid_t pid;
	int32_t tid; /* the thread that blocks */
	struct wg_facts *f;
	struct wg_process *p;
	struct wg_thread *t;
};

struct shared { /* between the test and its child */
	volatile int32_t tid, ready;
	volatile int64_t v[8];
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	sem_t sem;
	uint32_t word;
};
static struct shared *sh;
static char dir[64];

static void make_shared(void)
{
	sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	assert_true(sh != MAP_FAILED);
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void nap(double s)
{
	struct timespec t = { (time_t)s, (long)((s - (double)(time_t)s) * 1e9) };

	nanosleep(&t, NULL);
}

/* State of a thread, and how often it ran. */
static char state_of(pid_t pid, pid_t tid, unsigned long *slices)
{
	char path[64], buf[512];
	FILE *f;
	char *p, s = 0;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
	f = fopen(path, "r");
	if (!f)
		return 0;
	if (fgets(buf, sizeof(buf), f) && (p = strrchr(buf, ')')))
		s = p[2];
	fclose(f);
	*slices = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", pid, tid);
	f = fopen(path, "r");
	if (f) {
		if (fscanf(f, "%*u %*u %lu", slices) != 1)
			*slices = 0;
		fclose(f);
	}
	return s;
}

/* Until it has blocked: ready is set and it has not run for some looks. */
static void settle(pid_t pid)
{
	unsigned long last = 0, n;
	double end = now_s() + 10;
	int quiet = 0;

	while (now_s() < end && quiet < 4) {
		char s;

		nap(0.005);
		if (!sh->ready)
			continue;
		s = state_of(pid, sh->tid, &n);
		assert_true(s != 'Z'); /* it should have blocked, and it ended */
		quiet = s && s != 'R' && n == last ? quiet + 1 : 0;
		last = n;
	}
	assert_true(quiet >= 4);
}

static void ready(void)
{
	sh->tid = (int32_t)syscall(SYS_gettid);
	sh->ready = 1;
}

static pid_t start(void (*fn)(void))
{
	pid_t pid;

	sh->ready = 0;
	fflush(NULL);
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		fn();
		_exit(99);
	}
	return pid;
}

static struct wg_collect_options options(const int32_t *pid)
{
	struct wg_collect_options o = { .pids = pid, .npids = 1, .no_stacks = true, .no_bpf = true,
					.mem_fd = -1, .proc_fd = -1 };

	return o;
}

static inline void look(struct plant *x, pid_t pid, bool follow)
{
	int32_t asked = pid;
	struct wg_collect_options o = options(&asked);

	o.follow = follow;
	o.gap_s = 0.12;
	x->pid = pid;
	x->tid = sh->tid;
	x->f = wg_facts_new();
	assert_int_equal(wg_collect(x->f, &o), 0);
	x->p = wg_find_process(x->f, pid);
	assert_non_null(x->p);
	x->t = wg_find_thread(x->p, x->tid);
	if (!x->t)
		print_message("no thread %d in %d (%zu threads, state %c)\n", x->tid, pid,
			      x->p->threads.n, x->p->state ? x->p->state : '?');
	assert_non_null(x->t);
}

static inline void plant(struct plant *x, void (*fn)(void), bool follow)
{
	pid_t pid = start(fn);

	settle(pid);
	look(x, pid, follow);
}

static inline void reap(struct plant *x)
{
	kill(x->pid, SIGKILL);
	kill(x->pid, SIGCONT);
	waitpid(x->pid, NULL, 0);
	wg_facts_free(x->f);
}

#define near(a, b, tol) assert_true(fabs((double)(a) - (double)(b)) <= (tol))

#endif
