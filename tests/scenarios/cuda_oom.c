/* scenario
 * section: oom
 * story: an allocation failed somewhere; now main waits on a condition for ever
 * proof: the failing request is 170 MiB more than cuMemGetInfo says is free; the worker's only code
 *        after it is to return (or to free and go on)
 * case: swallowed class=oom-swallowed hung=true culprit=tid needs=simgpu settle=5 says=170
 * case: retried class=busy-gpu|progressing|idle hung=false needs=simgpu settle=5
 * case: retried_then_stuck class=no-waker hung=true needs=simgpu settle=5
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "demo/demo.h"
#include "scenario.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER, taken = PTHREAD_COND_INITIALIZER;
static int full;
static const char *kase;

static void *worker(void *arg)
{
	CUcontext context;
	CUfunction f;
	CUdeviceptr p;
	size_t free_bytes, total;

	CHECK(cuDevicePrimaryCtxRetain(&context, 1));
	CHECK(cuCtxSetCurrent(context));
	f = kernel("sleep_us_5000_backward");
	tell("culprit_tid %d", tid_now());
	for (int i = 0;; i++) {
		if (i == 20) {
			CHECK(cuMemGetInfo(&free_bytes, &total));
			if (cuMemAlloc(&p, free_bytes + 170 * MIB) == CUDA_SUCCESS)
				_exit(3);
			if (!strcmp(kase, "swallowed"))
				return arg;
			CHECK(cuMemAlloc(&p, 64 * MIB));
		}
		launch(f, NULL);
		CHECK(cuStreamSynchronize(NULL));
		if (i == 40 && !strcmp(kase, "retried_then_stuck"))
			return arg;
		pthread_mutex_lock(&lock);
		full = 1;
		pthread_cond_signal(&arrived);
		while (full)
			pthread_cond_wait(&taken, &lock);
		pthread_mutex_unlock(&lock);
	}
}

int main(int argc, char **argv)
{
	(void)argc;
	kase = argv[1];
	CHECK(cuInit(0));
	spawn(worker, NULL);
	ready();
	for (;;) {
		pthread_mutex_lock(&lock);
		while (!full)
			pthread_cond_wait(&arrived, &lock);
		full = 0;
		pthread_cond_signal(&taken);
		pthread_mutex_unlock(&lock);
	}
}
