/* SPDX-License-Identifier: Apache-2.0 */
/* check.h - for the simulated GPU's own tests: a failed check says where and what, and ends it. */
#ifndef SIMGPU_CHECK_H
#define SIMGPU_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define CHECK(cond)                                                                                \
	do {                                                                                       \
		if (!(cond)) {                                                                     \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                 \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)

/* The value of call is want. */
#define IS(call, want)                                                                             \
	do {                                                                                       \
		long long got_ = (long long)(call), want_ = (long long)(want);                     \
		if (got_ != want_) {                                                               \
			fprintf(stderr, "%s:%d: %s is %lld, not %s (%lld)\n", __FILE__, __LINE__,  \
				#call, got_, #want, want_);                                        \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define OK(call) IS(call, 0)

static inline uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000u + (uint64_t)t.tv_nsec / 1000u;
}

static inline void sleep_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

/* Waits for a child and returns its exit status; 128 + signal when it was killed. */
static inline int reap(pid_t pid)
{
	int status = 0;

	if (waitpid(pid, &status, 0) != pid)
		return -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

#endif
