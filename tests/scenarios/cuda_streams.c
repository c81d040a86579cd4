/* scenario
 * section: gpu-kernel, cuda-driver
 * story: the main thread is in a synchronisation; the GPU is busy
 * proof: what was put on the stream is written below, and the simulated GPU runs it in order
 * case: kernel_stuck class=gpu-kernel-stuck hung=true needs=simgpu settle=14 says=spin_forever
 * case: kernel_behind_healthy class=gpu-kernel-stuck hung=true needs=simgpu settle=14 says=spin_forever
 * case: many_short class=busy-gpu|progressing hung=false needs=simgpu settle=5
 * case: long_kernels class=busy-gpu|progressing hung=false needs=simgpu settle=12
 * case: wait_value class=gpu-wait-unsignaled hung=true needs=simgpu settle=8
 * case: wait_value_served class=busy-gpu|progressing|idle hung=false needs=simgpu settle=4
 * case: event_never_recorded class=busy-gpu|progressing|idle hung=false needs=simgpu settle=4
 * case: event_behind_spin class=gpu-kernel-stuck hung=true needs=simgpu settle=14 says=spin_forever
 * case: callback_blocked class=lock-orphaned|gpu-host-callback hung=true needs=simgpu settle=6
 * case: callback_cycle class=deadlock hung=true needs=simgpu settle=6
 * case: queue_full class=gpu-kernel-stuck hung=true needs=simgpu settle=14 says=spin_forever
 * case: free_waits class=implicit-sync|gpu-wait-unsignaled hung=true needs=simgpu settle=8
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include "demo/demo.h"
#include "scenario.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUdeviceptr flag;
static CUcontext context;

static void *takes(void *arg)
{
	pthread_mutex_lock(&lock);
	return arg;
}

static void locks(void *arg)
{
	(void)arg;
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

static void *serves(void *arg)
{
	CUstream s;

	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	for (unsigned int i = 1;; i++) {
		usleep(20000);
		CHECK(cuStreamWriteValue32(s, flag, i, 0));
	}
	return arg;
}

int main(int argc, char **argv)
{
	CUfunction forward, spin;
	CUstream s, t;
	CUevent e;
	CUdeviceptr mem;

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CHECK(cuEventCreate(&e, 0));
	CHECK(cuMemAlloc(&flag, 4096));
	CHECK(cuMemAlloc(&mem, 1 << 20));
	CHECK(cuMemsetD32(flag, 0, 1024));
	forward = kernel("sleep_us_3000_forward");
	spin = kernel("spin_forever");
	for (int i = 0; i < 50; i++) {
		launch(forward, s);
		if (i % 10 == 9)
			CHECK(cuStreamSynchronize(s));
	}
	if (is(argc, argv, "kernel_stuck")) {
		launch(spin, s);
		ready();
		CHECK(cuStreamSynchronize(s));
	} else if (is(argc, argv, "kernel_behind_healthy")) {
		for (int i = 0; i < 13; i++)
			launch(forward, s);
		launch(spin, s);
		for (int i = 0; i < 13; i++)
			launch(forward, s);
		ready();
		CHECK(cuStreamSynchronize(s));
	} else if (is(argc, argv, "many_short")) {
		ready();
		for (;;) {
			for (int i = 0; i < 400; i++)
				launch(forward, s);
			CHECK(cuStreamSynchronize(s));
		}
	} else if (is(argc, argv, "long_kernels")) {
		CUfunction slow = kernel("sleep_us_2500000_long");

		ready();
		for (;;) {
			launch(slow, s);
			CHECK(cuStreamSynchronize(s));
		}
	} else if (is(argc, argv, "wait_value")) {
		CHECK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
		launch(forward, s);
		ready();
		CHECK(cuStreamSynchronize(s));
	} else if (is(argc, argv, "wait_value_served")) {
		spawn(serves, NULL);
		ready();
		for (unsigned int i = 1;; i++) {
			CHECK(cuStreamWaitValue32(s, flag, i, CU_STREAM_WAIT_VALUE_GEQ));
			CHECK(cuStreamSynchronize(s));
		}
	} else if (is(argc, argv, "event_never_recorded")) {
		CHECK(cuStreamWaitEvent(s, e, 0));
		ready();
		for (;;) {
			launch(forward, s);
			CHECK(cuStreamSynchronize(s));
			CHECK(cuEventSynchronize(e));
		}
	} else if (is(argc, argv, "event_behind_spin")) {
		launch(forward, t);
		launch(spin, t);
		CHECK(cuEventRecord(e, t));
		CHECK(cuStreamWaitEvent(s, e, 0));
		launch(forward, s);
		ready();
		CHECK(cuStreamSynchronize(s));
	} else if (is(argc, argv, "callback_blocked")) {
		pthread_join(spawn(takes, NULL), NULL);
		CHECK(cuLaunchHostFunc(s, locks, NULL));
		ready();
		CHECK(cuStreamSynchronize(s));
	} else if (is(argc, argv, "callback_cycle")) {
		pthread_mutex_lock(&lock);
		CHECK(cuLaunchHostFunc(s, locks, NULL));
		ready();
		CHECK(cuStreamSynchronize(s));
	} else if (is(argc, argv, "queue_full")) {
		launch(spin, s);
		ready();
		for (;;)
			launch(forward, s);
	} else if (is(argc, argv, "free_waits")) {
		/* the stream waits for a value that this very thread would write after the free */
		CHECK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
		launch(forward, s);
		ready();
		CHECK(cuMemFree(mem));
		CHECK(cuStreamWriteValue32(t, flag, 1, 0));
	}
	return 0;
}
