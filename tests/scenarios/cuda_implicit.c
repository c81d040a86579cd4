/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: cuda-driver (CUDA_IMPLICIT_SYNC, CUDA_LAZY_LOAD), hardware (FABRIC_SERVICE), gpu-kernel, slow-not-hung (SLOW_PIN)
 * story: a call that is no synchronisation does not return, or a callback, or two streams that wait for each other
 * proof: the order of the calls is below and the simulated GPU does what its README says. Who would have written a memory value
 *        is not to be seen where that thread has not come to the call, so those end in either class.
 * case: launch_blocking class=implicit-sync|gpu-wait-unsignaled hung=true culprit=tid needs=simgpu env=CUDA_LAUNCH_BLOCKING=1 settle=5 says=cuLaunchKernel
 * case: launch_blocking_works class=busy-gpu|progressing|busy-cpu hung=false needs=simgpu env=CUDA_LAUNCH_BLOCKING=1 settle=3
 * case: lazy_load class=implicit-sync hung=true needs=simgpu env=CUDA_MODULE_LOADING=LAZY settle=5
 * case: lazy_load_works class=busy-gpu|progressing|busy-cpu hung=false needs=simgpu env=CUDA_MODULE_LOADING=LAZY settle=3
 * case: free_host class=implicit-sync|gpu-wait-unsignaled hung=true needs=simgpu settle=5 says=cuMemFreeHost
 * case: free_behind_work class=busy-gpu|progressing|busy-cpu hung=false needs=simgpu settle=3
 * case: alloc_behind_spin class=gpu-kernel-stuck hung=true needs=simgpu env=SIMGPU_ALLOC_SYNC=1 settle=12 says=spin_attention
 * case: copy_behind_spin class=gpu-kernel-stuck hung=true needs=simgpu settle=12 says=spin_attention
 * case: graph_spin class=gpu-kernel-stuck hung=true needs=simgpu settle=12
 * case: one_device_stuck class=gpu-kernel-stuck hung=true needs=simgpu settle=12 says=spin_attention
 * case: multicast_missing class=driver-blocked hung=true culprit=tid needs=simgpu settle=5 says=cuMulticastBindMem
 * case: multicast_formed class=busy-gpu|progressing|busy-cpu hung=false needs=simgpu settle=3
 * case: pin_slow class=progressing|busy-cpu|busy-gpu|idle|unknown hung=any needs=simgpu env=SIMGPU_PIN_RATE=4000000 settle=3
 * case: callback_no_post class=gpu-host-callback|no-waker hung=true needs=simgpu settle=5
 * case: callback_reads class=peer-silent hung=true culprit=pid needs=simgpu settle=5
 * case: callback_computing class=busy-cpu hung=false culprit=tid needs=simgpu settle=4
 * case: callback_short class=busy-gpu|progressing|busy-cpu|idle hung=false needs=simgpu settle=3
 * case: values_cycle class=deadlock hung=true needs=simgpu settle=6
 * case: values_in_order class=busy-gpu|progressing|busy-cpu hung=false needs=simgpu settle=3
 */
#include <semaphore.h>
#include <stdbool.h>

#include "demo/demo.h"
#include "scenario.h"

static CUcontext context;
static CUdeviceptr flag;
static CUstream s, t;
static sem_t never;
static void *pinned;
static int fds[2];
static const char *kase;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void works_on(CUfunction f, CUstream stream)
{
	for (;;) {
		for (int i = 0; i < 10; i++)
			launch(f, stream);
		CHECK(cuStreamSynchronize(stream));
	}
}

static void *first_launch(void *arg) /* of a function that the device has not seen yet */
{
	CHECK(cuCtxSetCurrent(context));
	launch(kernel("relu_new"), t);
	return arg;
}

static void *frees(void *arg)
{
	CHECK(cuCtxSetCurrent(context));
	tell("culprit_tid %d", tid_now());
	usleep(200000);
	CHECK(cuMemFreeHost(pinned));
	CHECK(cuStreamWriteValue32(t, flag, 1, 0)); /* never reached */
	return arg;
}

static void callback(void *arg)
{
	char c;

	(void)arg;
	if (in("callback_no_post"))
		sem_wait(&never);
	if (in("callback_reads") && read(fds[0], &c, 1) < 0)
		_exit(4);
	if (in("callback_computing")) {
		tell("culprit_tid %d", tid_now());
		burn();
	}
	usleep(20000);
}

static void *second_device(void *arg)
{
	CUcontext other;

	CHECK(cuDevicePrimaryCtxRetain(&other, 1));
	CHECK(cuCtxSetCurrent(other));
	works_on(kernel("sleep_us_2000_other"), NULL);
	return arg;
}

static void multicast(bool all)
{
	CUmulticastObjectProp team = { .numDevices = 2, .size = 2 * MIB };
	CUmemAllocationProp prop = { .type = CU_MEM_ALLOCATION_TYPE_PINNED,
				     .location = { .type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0 } };
	CUmemGenericAllocationHandle group, part;

	CHECK(cuMulticastCreate(&group, &team));
	CHECK(cuMemCreate(&part, 2 * MIB, &prop, 0));
	CHECK(cuMulticastAddDevice(group, 0));
	if (all)
		CHECK(cuMulticastAddDevice(group, 1));
	tell("culprit_tid %d", tid_now());
	if (!all)
		ready();
	CHECK(cuMulticastBindMem(group, 0, part, 0, 2 * MIB, 0));
}

int main(int argc, char **argv)
{
	CUfunction forward, spin;
	CUdeviceptr mem;
	CUgraph graph;
	CUgraphExec exec;

	if (argc < 2)
		return 2;
	kase = argv[1];
	if (in("callback_reads")) { /* before CUDA starts: the process that never sends */
		pid_t child;

		if (pipe(fds))
			return 2;
		child = fork();
		if (child == 0) {
			close(fds[0]);
			forever();
		}
		close(fds[1]);
		tell("culprit_pid %d", (int)child);
	}
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, 0));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(cuStreamCreate(&t, CU_STREAM_NON_BLOCKING));
	CHECK(cuMemAlloc(&flag, 4096));
	CHECK(cuMemsetD32(flag, 0, 1024));
	CHECK(cuMemAlloc(&mem, 1 << 20));
	CHECK(cuMemHostAlloc(&pinned, 1 << 20, 0));
	forward = kernel("sleep_us_2000_forward");
	spin = kernel("spin_attention");
	for (int i = 0; i < 20; i++)
		launch(forward, s);
	CHECK(cuStreamSynchronize(s));

	if (in("launch_blocking")) {
		tell("culprit_tid %d", tid_now());
		CHECK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
		ready();
		launch(forward, s);
		CHECK(cuStreamWriteValue32(t, flag, 1, 0));
		CHECK(cuStreamSynchronize(s));
	} else if (in("lazy_load")) {
		CHECK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
		spawn(first_launch, NULL);
		usleep(300000);
		ready();
		CHECK(cuStreamWriteValue32(t, flag, 1, 0));
	} else if (in("free_host")) {
		CHECK(cuStreamWaitValue32(s, flag, 1, CU_STREAM_WAIT_VALUE_GEQ));
		spawn(frees, NULL);
		ready();
		CHECK(cuStreamSynchronize(s));
	} else if (in("free_behind_work")) {
		ready();
		for (;;) {
			CHECK(cuMemAlloc(&mem, 1 << 20));
			for (int i = 0; i < 10; i++)
				launch(forward, s);
			CHECK(cuMemFree(mem));
		}
	} else if (in("alloc_behind_spin") || in("copy_behind_spin")) {
		launch(spin, NULL);
		ready();
		if (in("alloc_behind_spin"))
			CHECK(cuMemAlloc(&mem, 1 << 20));
		CHECK(cuMemcpyDtoH(pinned, mem, 4096));
	} else if (in("graph_spin")) {
		CHECK(cuStreamBeginCapture(s, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
		launch(forward, s);
		launch(spin, s);
		CHECK(cuStreamEndCapture(s, &graph));
		CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
		CHECK(cuGraphLaunch(exec, s));
		ready();
		CHECK(cuStreamSynchronize(s));
	} else if (in("one_device_stuck")) {
		spawn(second_device, NULL);
		launch(spin, s);
		ready();
		CHECK(cuStreamSynchronize(s));
	} else if (in("multicast_missing")) {
		multicast(false);
	} else if (in("multicast_formed")) {
		multicast(true);
	} else if (in("pin_slow")) {
		void *more;

		ready();
		CHECK(cuMemHostAlloc(&more, 200 * MIB, 0));
	} else if (!strncmp(kase, "callback", 8)) {
		if (!in("callback_computing"))
			ready();
		do {
			launch(forward, s);
			CHECK(cuLaunchHostFunc(s, callback, NULL));
			if (in("callback_computing"))
				ready();
			CHECK(cuStreamSynchronize(s));
		} while (in("callback_short"));
	} else if (in("values_cycle") || in("values_in_order")) {
		CUdeviceptr a = flag, b = flag + 512;

		if (in("values_in_order"))
			CHECK(cuStreamWriteValue32(s, b, 1, 0));
		CHECK(cuStreamWaitValue32(s, a, 1, CU_STREAM_WAIT_VALUE_GEQ));
		CHECK(cuStreamWriteValue32(s, b, 1, 0));
		CHECK(cuStreamWaitValue32(t, b, 1, CU_STREAM_WAIT_VALUE_GEQ));
		CHECK(cuStreamWriteValue32(t, a, 1, 0));
		if (in("values_cycle"))
			ready();
		CHECK(cuStreamSynchronize(s));
	}
	ready();
	if (in("lazy_load_works"))
		launch(kernel("relu_new"), t);
	works_on(forward, s);
}
