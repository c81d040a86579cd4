/* SPDX-License-Identifier: Apache-2.0 */
/*
 * oom: eight workers, one GPU each. On one GPU an activation buffer does not fit by 170 MiB;
 * its worker gives up in silence, and everybody else waits for its gradients.
 */
#include "demo.h"

#define WORKERS 8

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER, go = PTHREAD_COND_INITIALIZER;
static int gradients, step;

static void *worker(void *arg)
{
	int device = (int)(long)arg;
	CUcontext context;
	CUdeviceptr weights, extra, activations;
	CUfunction backward;
	size_t free_bytes, total, want = 1024 * MIB;
	char name[16];

	snprintf(name, sizeof(name), "worker-%d", device);
	pthread_setname_np(pthread_self(), name);
	CHECK(cuDevicePrimaryCtxRetain(&context, device));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc(&weights, 5 * 1024 * MIB));
	if (device == 5) { /* somebody's debug copy of the optimizer state */
		CHECK(cuMemGetInfo(&free_bytes, &total));
		CHECK(cuMemAlloc(&extra, free_bytes - want + 170 * MIB));
	}
	backward = kernel("sleep_us_20000_backward");
	for (int mine = 0;; mine++) {
		if (mine == 3 && cuMemAlloc(&activations, want) != CUDA_SUCCESS)
			return NULL; /* the exception ends in a thread that nobody joins */
		launch(backward, NULL);
		CHECK(cuStreamSynchronize(NULL));
		pthread_mutex_lock(&lock);
		gradients++;
		pthread_cond_signal(&arrived);
		while (step <= mine)
			pthread_cond_wait(&go, &lock);
		pthread_mutex_unlock(&lock);
	}
}

int main(void)
{
	pthread_t thread;

	CHECK(cuInit(0));
	for (long i = 0; i < WORKERS; i++)
		pthread_create(&thread, NULL, worker, (void *)i);
	for (;;) {
		pthread_mutex_lock(&lock);
		while (gradients < WORKERS)
			pthread_cond_wait(&arrived, &lock);
		gradients = 0;
		printf("step %d done\n", step++);
		fflush(stdout);
		pthread_cond_broadcast(&go);
		pthread_mutex_unlock(&lock);
	}
}
