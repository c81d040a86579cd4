/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rank: two ranks all-reduce. Rank 1 leaves the loop to wait for a lock that its own
 * background thread holds while it, in turn, waits for rank 1's next step.
 */
#include <nccl.h>
#include <sys/wait.h>

#include "demo.h"

static pthread_mutex_t metrics = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t steps = PTHREAD_MUTEX_INITIALIZER;

static void *reporter(void *arg)
{
	pthread_setname_np(pthread_self(), "reporter");
	for (;;) {
		usleep(200000);
		pthread_mutex_lock(&metrics);
		pthread_mutex_lock(&steps); /* held by the training thread for the whole step */
		pthread_mutex_unlock(&steps);
		pthread_mutex_unlock(&metrics);
	}
	return arg;
}

static int train(int rank, ncclUniqueId id)
{
	CUcontext context;
	CUdeviceptr gradients;
	ncclComm_t comm;
	pthread_t thread;
	char name[4];

	snprintf(name, sizeof(name), "%d", rank);
	setenv("RANK", name, 1);
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, rank));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc(&gradients, 64 * MIB));
	if (ncclCommInitRank(&comm, 2, id, rank) != ncclSuccess)
		return 1;
	pthread_create(&thread, NULL, reporter, NULL);
	for (int step = 0;; step++) {
		pthread_mutex_lock(&steps);
		if (rank == 1 && step == 30) {
			sleep(2);
			pthread_mutex_lock(&metrics); /* never returns */
		}
		ncclAllReduce((void *)gradients, (void *)gradients, 1 << 20, ncclFloat, ncclSum, comm,
			      NULL);
		CHECK(cuStreamSynchronize(NULL));
		pthread_mutex_unlock(&steps);
		usleep(rank == 1 && step > 25 ? 1000 : 50000);
	}
}

int main(void)
{
	int fds[2], rank = 0;
	ncclUniqueId id;

	/* CUDA must be started after the fork: the id travels through a pipe. */
	if (pipe(fds))
		return 1;
	if (fork() == 0) {
		rank = 1;
		if (read(fds[0], &id, sizeof(id)) != sizeof(id))
			return 1;
	} else {
		ncclGetUniqueId(&id);
		if (write(fds[1], &id, sizeof(id)) != sizeof(id))
			return 1;
	}
	return train(rank, id);
}
