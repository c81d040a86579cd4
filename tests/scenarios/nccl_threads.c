/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: cuda-driver (CUDA_IMPLICIT_SYNC), collective (COLL_MISMATCH, COLL_MISSING_RANK), gpu-kernel, teardown
 * story: one process drives two devices, a rank each, and its all-reduce never ends
 * proof: what each rank's thread calls, and in which order, is below; the simulated NCCL lets ranks meet or wait
 * case: free_host class=implicit-sync hung=true culprit=tid needs=nccl settle=6 says=cuMemFreeHost
 * case: one_thread_blocking class=implicit-sync hung=true culprit=tid needs=nccl env=CUDA_LAUNCH_BLOCKING=1 settle=6
 * case: one_thread class=busy-gpu|progressing|busy-cpu|idle hung=false needs=nccl settle=3
 * case: rank_locked class=lock-self hung=true culprit=tid needs=nccl settle=6
 * case: rank_computing class=busy-cpu hung=false culprit=tid needs=nccl settle=6
 * case: rank_gone class=peer-dead|collective-missing-rank hung=true needs=nccl settle=6
 * case: rank_reads class=peer-silent hung=true culprit=pid needs=nccl settle=6
 * case: send_send class=collective-cycle hung=true needs=nccl settle=6
 * case: send_recv class=busy-gpu|progressing|busy-cpu|idle hung=false needs=nccl settle=3
 * case: root_differs class=collective-mismatch hung=true needs=nccl settle=6
 * case: type_differs class=collective-mismatch hung=true needs=nccl settle=6
 * case: comm_order class=collective-cycle hung=true needs=nccl settle=6
 * case: behind_spin class=gpu-kernel-stuck hung=true needs=nccl settle=12 says=spin_gelu
 * case: watchdog_abort class=gpu-kernel-stuck hung=true needs=nccl settle=12 says=spin_gelu
 * case: joins_other class=collective-cycle hung=true needs=nccl settle=6
 */
#include <cuda.h>
#include <nccl.h>
#include <stdbool.h>

#include "demo/demo.h"
#include "scenario.h"

#define NCCL(call)                          \
	do {                                \
		if ((call) != ncclSuccess)  \
			_exit(4);           \
	} while (0)

static ncclComm_t comm[2], other[2];
static CUcontext context[2];
static CUstream stream[2];
static CUdeviceptr buf[2];
static pthread_t rank_thread[2];
static int fds[2];
static const char *kase;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void all_reduce(int r, ncclComm_t c, size_t n)
{
	NCCL(ncclAllReduce((void *)buf[r], (void *)buf[r], n, ncclFloat, ncclSum, c, stream[r]));
}

static void sync_rank(int r)
{
	CHECK(cuStreamSynchronize(stream[r]));
}

static void *aborts(void *arg)
{
	CHECK(cuCtxSetCurrent(context[1]));
	usleep(500000);
	ncclCommAbort(comm[1]);
	ncclCommDestroy(other[1]);
	return arg;
}

/* What rank 1 does in place of, or before, its 21st all-reduce. */
static void special(int r)
{
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	void *pinned;
	char c;

	if (r == 1 && !in("rank_reads"))
		tell("culprit_tid %d", tid_now());
	if (in("send_send") || in("send_recv")) {
		bool first = in("send_send") || r == 0;

		for (int i = 0; i < 2; i++)
			if (first == !i)
				NCCL(ncclSend((void *)buf[r], 4096, ncclFloat, !r, comm[r], stream[r]));
			else
				NCCL(ncclRecv((void *)buf[r], 4096, ncclFloat, !r, comm[r], stream[r]));
	} else if (in("root_differs")) {
		NCCL(ncclReduce((void *)buf[r], (void *)buf[r], 4096, ncclFloat, ncclSum, r, comm[r], stream[r]));
	} else if (in("type_differs")) {
		NCCL(ncclAllReduce((void *)buf[r], (void *)buf[r], 4096, r ? ncclHalf : ncclFloat, ncclSum, comm[r],
				   stream[r]));
	} else if (in("comm_order")) {
		all_reduce(r, r ? other[r] : comm[r], 4096);
		sync_rank(r);
		all_reduce(r, r ? comm[r] : other[r], 4096);
	} else if (r == 0) {
		return;
	} else if (in("free_host")) {
		CHECK(cuMemHostAlloc(&pinned, 4096, 0));
		usleep(300000); /* so that the other rank's kernel runs */
		CHECK(cuMemFreeHost(pinned));
	} else if (in("rank_locked")) {
		pthread_mutex_lock(&m);
		pthread_mutex_lock(&m);
	} else if (in("rank_computing")) {
		burn();
	} else if (in("rank_gone")) {
		pthread_exit(NULL);
	} else if (in("rank_reads")) {
		if (read(fds[0], &c, 1) < 0)
			_exit(4);
	} else if (in("behind_spin") || in("watchdog_abort")) {
		launch(kernel("spin_gelu"), stream[r]);
		if (in("watchdog_abort"))
			spawn(aborts, NULL);
	} else if (in("joins_other")) { /* joins rank 0's thread instead of its collective */
		pthread_join(rank_thread[0], NULL);
	}
}

static void *rank_main(void *arg)
{
	int r = (int)(long)arg;

	CHECK(cuCtxSetCurrent(context[r]));
	for (int step = 0;; step++) {
		if (step == 20) {
			if (r == 0)
				ready();
			special(r);
		}
		all_reduce(r, comm[r], 1 << 16);
		sync_rank(r);
		usleep(5000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int devices[2] = { 0, 1 };

	if (argc < 2)
		return 2;
	kase = argv[1];
	if (in("rank_reads")) {
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
	for (int r = 0; r < 2; r++) {
		CHECK(cuDevicePrimaryCtxSetFlags(r, CU_CTX_SCHED_BLOCKING_SYNC));
		CHECK(cuDevicePrimaryCtxRetain(&context[r], r));
		CHECK(cuCtxSetCurrent(context[r]));
		CHECK(cuStreamCreate(&stream[r], CU_STREAM_NON_BLOCKING));
		CHECK(cuMemAlloc(&buf[r], MIB));
	}
	NCCL(ncclCommInitAll(comm, 2, devices));
	NCCL(ncclCommInitAll(other, 2, devices));
	if (!strncmp(kase, "one_thread", 10)) { /* in turn, without a group */
		tell("culprit_tid %d", tid_now());
		ready();
		for (;;) {
			for (int r = 0; r < 2; r++) {
				CHECK(cuCtxSetCurrent(context[r]));
				all_reduce(r, comm[r], 1 << 16);
			}
			for (int r = 0; r < 2; r++)
				sync_rank(r);
			usleep(5000);
		}
	}
	for (int r = 0; r < 2; r++)
		rank_thread[r] = spawn(rank_main, (void *)(long)r);
	for (int r = 1; r >= 0; r--)
		if (r == 1 || !in("joins_other"))
			pthread_join(rank_thread[r], NULL);
	return 0;
}
