// SPDX-License-Identifier: Apache-2.0
/*
 * stress.c - threads that create, use and destroy everything at once, for a second. What is
 * checked: order within a stream, event dependencies across streams, and that all memory comes
 * back.
 */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>

#include "tests.h"

#define THREADS 4
#define STREAMS 3

static CUcontext ctx;
static CUmodule module;
static uint64_t until;

struct chain { /* what a stream's host functions see */
	unsigned int next;
	unsigned int seen;
	unsigned int wrong;
};

struct step {
	struct chain *chain;
	unsigned int number;
	struct chain *after; /* another chain that must have come this far */
	unsigned int after_number;
};

static void CUDA_CB step(void *arg)
{
	struct step *s = arg;

	if (__atomic_load_n(&s->chain->seen, __ATOMIC_ACQUIRE) + 1 != s->number)
		s->chain->wrong++;
	if (s->after && __atomic_load_n(&s->after->seen, __ATOMIC_ACQUIRE) < s->after_number)
		s->chain->wrong++;
	__atomic_store_n(&s->chain->seen, s->number, __ATOMIC_RELEASE);
	free(s);
}

static unsigned int rnd(unsigned int *state)
{
	*state = *state * 1664525u + 1013904223u;
	return *state >> 8;
}

static void give(CUstream s, struct chain *c, struct chain *after)
{
	struct step *p = malloc(sizeof(*p));

	p->chain = c;
	p->number = ++c->next;
	p->after = after;
	p->after_number = after ? after->next : 0;
	OK(cuLaunchHostFunc(s, step, p));
}

static void *work(void *arg)
{
	unsigned int state = (unsigned int)(uintptr_t)arg * 77777u + 1;
	CUfunction quick, slow;

	OK(cuCtxSetCurrent(ctx));
	OK(cuModuleGetFunction(&quick, module, "quick"));
	OK(cuModuleGetFunction(&slow, module, "sleep_us_50"));
	while (now_us() < until) {
		struct chain *c = calloc(STREAMS, sizeof(*c));
		CUstream s[STREAMS];
		CUevent e;
		CUdeviceptr d, p;

		for (int i = 0; i < STREAMS; i++)
			OK(cuStreamCreate(&s[i], rnd(&state) % 4 ? CU_STREAM_NON_BLOCKING : 0));
		OK(cuEventCreate(&e, 0));
		OK(cuMemAlloc(&d, 1 + rnd(&state) % 100000));
		for (int n = 0; n < 40; n++) {
			int i = (int)(rnd(&state) % STREAMS), j = (int)(rnd(&state) % STREAMS);

			switch (rnd(&state) % 8) {
			case 0:
				OK(cuLaunchKernel(slow, 1, 1, 1, 1, 1, 1, 0, s[i], NULL, NULL));
				break;
			case 1:
				OK(cuLaunchKernel(quick, 1, 1, 1, 1, 1, 1, 0,
						  rnd(&state) % 8 ? s[i] : NULL, NULL, NULL));
				break;
			case 2:
				give(s[i], &c[i], NULL);
				break;
			case 3: /* j goes on after i */
				OK(cuEventRecord(e, s[i]));
				OK(cuStreamWaitEvent(s[j], e, 0));
				give(s[j], &c[j], i == j ? NULL : &c[i]);
				break;
			case 4:
				OK(cuMemsetD8Async(d, 1, 1, s[i]));
				break;
			case 5:
				OK(cuMemAllocAsync(&p, 1 + rnd(&state) % 70000, s[i]));
				OK(cuMemsetD8Async(p, 2, 1, s[i]));
				OK(cuMemFreeAsync(p, s[i]));
				break;
			case 6:
				OK(cuMemsetD8Async(d, 3, 1, CU_STREAM_PER_THREAD));
				break;
			default:
				if (rnd(&state) % 4 == 0)
					OK(cuStreamSynchronize(s[i]));
				else
					CHECK(cuStreamQuery(s[i]) == CUDA_SUCCESS ||
					      cuStreamQuery(s[i]) != CUDA_ERROR_INVALID_HANDLE);
			}
		}
		if (rnd(&state) % 2)
			OK(cuMemFree(d)); /* waits for all */
		for (int i = 0; i < STREAMS; i++) {
			OK(cuStreamSynchronize(s[i]));
			IS(c[i].seen, c[i].next);
			IS(c[i].wrong, 0);
			OK(cuStreamDestroy(s[i]));
		}
		OK(cuEventDestroy(e));
		free(c);
	}
	return NULL;
}

static void t_mixed(void)
{
	pthread_t t[THREADS];
	size_t f, total;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&ctx, CU_CTX_SCHED_BLOCKING_SYNC, 0));
	OK(cuModuleLoadData(&module, "x"));
	until = now_us() + 1000000;
	for (uintptr_t i = 0; i < THREADS; i++)
		OK(pthread_create(&t[i], NULL, work, (void *)i));
	for (int i = 0; i < THREADS; i++)
		OK(pthread_join(t[i], NULL));
	OK(cuCtxDestroy(ctx));
	OK(cuCtxCreate_v2(&ctx, 0, 0));
	OK(cuMemGetInfo(&f, &total));
	IS(total - f, 256u << 20);
}

MAIN({"mixed", t_mixed})
