/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: oom (OOM_VA_EXHAUSTED, OOM_HIDDEN_CONSUMER, OOM_MISATTRIBUTED, OOM_ORPHAN_HOLDER)
 * story: the error of an allocation was dropped; what should have followed never came
 * proof: each request is larger than what cuMemGetInfo, the address space or the host limit allows, by the numbers below; the worker then
 *        ends or goes on as written. A twin recovers as the contract defines it.
 * case: async_alloc class=oom-swallowed hung=true culprit=tid needs=simgpu settle=3
 * case: address_space class=oom-swallowed|no-waker hung=true needs=simgpu env=SIMGPU_ADDRESS_SPACE=16G settle=3
 * case: neighbour_holds class=oom-swallowed hung=true culprit=tid needs=simgpu settle=3
 * case: pinned class=oom-swallowed|no-waker hung=true needs=simgpu settle=3
 * case: smaller_then_waits class=oom-swallowed hung=true culprit=tid needs=simgpu settle=3
 * case: freed_and_got class=no-waker hung=true needs=simgpu settle=3
 * case: launched_after class=no-waker hung=true needs=simgpu settle=3
 * case: failed_then_works class=busy-gpu|progressing|busy-cpu hung=false needs=simgpu settle=3
 * case: failed_then_locked class=lock-self hung=true culprit=tid needs=simgpu settle=3
 */
#include <stdbool.h>
#include <sys/mman.h>

#include "demo/demo.h"
#include "scenario.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t arrived = PTHREAD_COND_INITIALIZER;
static CUcontext context;
static const char *kase;
static int have;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void must_fail(CUresult r)
{
	if (r == CUDA_SUCCESS)
		_exit(3);
}

static void *loader(void *arg)
{
	CUdeviceptr p, q;
	size_t free_bytes, total;
	void *host;

	tell("culprit_tid %d", tid_now());
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemGetInfo(&free_bytes, &total));
	if (in("async_alloc")) {
		must_fail(cuMemAllocAsync(&p, free_bytes + 170 * MIB, NULL));
	} else if (in("address_space")) {
		must_fail(cuMemAddressReserve(&p, 64ull << 30, 0, 0, 0));
	} else if (in("pinned")) {
		host = mmap(NULL, 520ull << 30, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		must_fail(host == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : cuMemHostRegister(host, 520ull << 30, 0));
	} else if (in("freed_and_got")) {
		CHECK(cuMemAlloc(&q, free_bytes - 64 * MIB));
		must_fail(cuMemAlloc(&p, 256 * MIB));
		CHECK(cuMemFree(q));
		CHECK(cuMemAlloc(&p, 256 * MIB));
	} else {
		must_fail(cuMemAlloc(&p, in("neighbour_holds") ? 2048 * MIB : free_bytes + 170 * MIB));
	}
	if (in("smaller_then_waits"))
		cuMemFree(0);
	if (in("launched_after") || in("failed_then_works"))
		launch(kernel("backward"), NULL);
	if (in("failed_then_locked")) {
		static pthread_mutex_t other = PTHREAD_MUTEX_INITIALIZER;

		pthread_mutex_lock(&other);
		pthread_mutex_lock(&other);
	}
	while (in("failed_then_works")) {
		launch(kernel("sleep_us_3000_backward"), NULL);
		CHECK(cuStreamSynchronize(NULL));
		pthread_mutex_lock(&m);
		have = 1;
		pthread_cond_signal(&arrived);
		pthread_mutex_unlock(&m);
	}
	return arg; /* nobody will signal `arrived` */
}

int main(int argc, char **argv)
{
	pthread_t t;

	if (argc < 2)
		return 2;
	kase = argv[1];
	if (in("neighbour_holds")) { /* another process has 7 of 8 GiB */
		int fds[2];
		char c;

		if (pipe(fds))
			return 3;
		if (fork() == 0) {
			CUdeviceptr p;

			CHECK(cuInit(0));
			CHECK(cuDevicePrimaryCtxRetain(&context, 0));
			CHECK(cuCtxSetCurrent(context));
			CHECK(cuMemAlloc(&p, 7000 * MIB));
			if (write(fds[1], "x", 1) != 1)
				_exit(3);
			forever();
		}
		if (read(fds[0], &c, 1) != 1)
			return 3;
	}
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	t = spawn(loader, NULL);
	if (in("failed_then_locked")) {
		ready();
		return pthread_join(t, NULL);
	}
	ready();
	for (;;) {
		pthread_mutex_lock(&m);
		while (!have)
			pthread_cond_wait(&arrived, &m);
		have = 0;
		pthread_mutex_unlock(&m);
	}
}
