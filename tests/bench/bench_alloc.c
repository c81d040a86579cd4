/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_alloc.c - what the memory side costs an allocation and its free: bare (a driver
 * that does nothing), recorded without stacks, recorded with stacks of about 20 frames,
 * from one place (remembered trace) and from ever other depths (unwound anew); and how many
 * bytes an event takes in the trace.
 *
 * The driver's own 30 us are left out: these are the nanoseconds that we add.
 */
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

#include "../unit/memory_guest.h"

#define BASE 0x7f1200000000ull

static uint64_t random_state = 88172645463325252ull;
static volatile uint64_t sink;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static double now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1e9 + (double)ts.tv_nsec;
}

static bool recorded;

static __attribute__((noinline)) void allocate(uint64_t p, uint64_t n)
{
	if (recorded)
		guest_alloc(0, WG_MEM_DEVICE, p, n);
	else
		sink += p + n;
}

static __attribute__((noinline)) void release(uint64_t p)
{
	if (recorded)
		guest_free(0, WG_MEM_DEVICE, p);
	else
		sink += p;
}

enum pattern { CHURN, RANDOM, DEPTHS };

static __attribute__((noinline)) void work(enum pattern what, uint64_t n)
{
	static uint64_t size[4096];

	for (uint64_t i = 0; i < n; i++) {
		uint64_t k, p;

		switch (what) {
		case CHURN: /* the same few blocks again and again */
			p = BASE + i % 16 * (2u << 20);
			allocate(p, 2u << 20);
			release(p);
			break;
		default: /* 4096 places, 64 sizes, random order */
			k = next_random() % 4096;
			p = BASE + k * (64u << 20);
			if (size[k])
				release(p);
			else
				allocate(p, (1 + next_random() % 64) << 20);
			size[k] = !size[k];
		}
	}
}

static __attribute__((noinline)) void down(int depth, enum pattern what, uint64_t n)
{
	if (depth)
		down(depth - 1, what, n);
	else
		work(what, n);
	__asm__ volatile("" ::: "memory");
}

/* Every allocation from another stack pointer: nothing that is remembered fits. */
static void depths(uint64_t n)
{
	for (uint64_t i = 0; i < n; i++) {
		volatile char *gap = __builtin_alloca(16 + next_random() % 64 * 16);

		gap[0] = 0;
		down(16, CHURN, 1);
	}
}

static void one(const char *name, bool record, int stacks, enum pattern what, uint64_t n)
{
	char dir[] = "/tmp/wg-bench-XXXXXX", command[64];
	int status;
	pid_t pid;

	fflush(stdout);
	if (!mkdtemp(dir))
		return;
	pid = fork();
	if (!pid) {
		double began, best = 1e18;
		uint64_t events = 0, bytes = 0, used = 0;

		recorded = record;
		if (record && guest_start(dir, 1ull << 30))
			_exit(1);
		wg_settings.stacks = stacks;
		for (int round = 0; round < 5; round++) {
			began = now_ns();
			if (what == DEPTHS)
				depths(n);
			else
				down(16, what, n);
			began = now_ns() - began;
			best = began < best ? began : best;
		}
		events = what == RANDOM ? n : 2 * n;
		for (int i = 0; i < WGTR_WRITERS; i++)
			if (record && tr_writers[i].chunk) {
				used += tr_writers[i].pos;
				bytes += (tr_writers[i].ordinal - 1ull) * tr_writers[i].room;
			}
		printf("%-34s %8.1f ns an event", name, best / (double)events);
		if (record)
			printf("  %5.2f bytes an event", (double)(bytes + used) / (5.0 * (double)events));
		printf("\n");
		fflush(stdout);
		_exit(0);
	}
	waitpid(pid, &status, 0);
	snprintf(command, sizeof(command), "rm -r %s", dir);
	if (system(command))
		perror(command);
}

int main(int argc, char **argv)
{
	uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000;

	one("bare", false, WG_STACKS_OFF, CHURN, n);
	one("stacks off, few blocks", true, WG_STACKS_OFF, CHURN, n);
	one("stacks, few blocks", true, WG_STACKS_ALLOC, CHURN, n);
	one("stacks off, 4096 blocks at random", true, WG_STACKS_OFF, RANDOM, n);
	one("stacks, 4096 blocks at random", true, WG_STACKS_ALLOC, RANDOM, n);
	one("stacks, never the same place", true, WG_STACKS_ALLOC, DEPTHS, n / 20);
	return 0;
}
