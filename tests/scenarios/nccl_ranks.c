/* scenario
 * section: collective
 * story: ranks stand in a collective; which one is to blame?
 * proof: each rank's program is below; ranks that leave the loop do so at a step written there
 * case: missing_lock class=lock-self hung=true culprit=pid needs=nccl settle=8
 * case: missing_pause class=collective-missing-rank|idle hung=true culprit=pid needs=nccl settle=8
 * case: missing_computing class=busy-cpu hung=false culprit=pid needs=nccl settle=8
 * case: exited class=peer-dead hung=true culprit=pid needs=nccl settle=8
 * case: killed class=peer-dead hung=true culprit=pid needs=nccl settle=8
 * case: stopped class=stopped hung=true culprit=pid needs=nccl settle=8
 * case: mismatch_count class=collective-mismatch hung=true needs=nccl settle=8
 * case: mismatch_op class=collective-mismatch hung=true needs=nccl settle=8
 * case: cycle class=collective-cycle hung=true needs=nccl settle=8
 * case: healthy class=busy-gpu|progressing|idle|busy-cpu hung=false needs=nccl settle=4
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <nccl.h>
#include <signal.h>
#include <sys/wait.h>

#include "demo/demo.h"
#include "scenario.h"

#define RANKS 3
#define NCCL(call)                        \
	do {                              \
		if ((call) != ncclSuccess) \
			_exit(4);         \
	} while (0)

static volatile double sink;

static void leave(const char *kase)
{
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

	tell("culprit_pid %d", (int)getpid());
	if (!strcmp(kase, "missing_lock")) {
		pthread_mutex_lock(&m);
		pthread_mutex_lock(&m);
	}
	if (!strcmp(kase, "missing_pause"))
		forever();
	if (!strcmp(kase, "missing_computing"))
		for (unsigned long i = 1;; i++)
			sink = sink * 0.999 + (double)(i % 977) / 3.0;
	if (!strcmp(kase, "exited"))
		_exit(0);
	if (!strcmp(kase, "killed"))
		kill(getpid(), SIGKILL);
	if (!strcmp(kase, "stopped"))
		kill(getpid(), SIGSTOP);
}

static int rank_main(int rank, ncclUniqueId a, ncclUniqueId b, const char *kase)
{
	CUcontext context;
	CUdeviceptr x;
	ncclComm_t one, two;
	char name[4];
	size_t count = 1 << 20;

	snprintf(name, sizeof(name), "%d", rank);
	setenv("RANK", name, 1);
	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxRetain(&context, rank % 2));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc(&x, 16 * MIB));
	NCCL(ncclCommInitRank(&one, RANKS, a, rank));
	NCCL(ncclCommInitRank(&two, RANKS, b, rank));
	for (int step = 0;; step++) {
		if (step == 20) {
			if (rank == 0)
				ready();
			if (rank == 2)
				leave(kase);
			if (!strcmp(kase, "mismatch_count") && rank == 1)
				count /= 2;
			if (!strcmp(kase, "mismatch_op") && rank == 1) {
				NCCL(ncclBroadcast((void *)x, (void *)x, count, ncclFloat, 0, one, NULL));
				CHECK(cuStreamSynchronize(NULL));
			}
			if (!strcmp(kase, "cycle")) {
				ncclComm_t order[2] = { rank ? one : two, rank ? two : one };

				for (int i = 0; i < 2; i++) {
					NCCL(ncclAllReduce((void *)x, (void *)x, count, ncclFloat,
							   ncclSum, order[i], NULL));
					CHECK(cuStreamSynchronize(NULL));
				}
			}
		}
		NCCL(ncclAllReduce((void *)x, (void *)x, count, ncclFloat, ncclSum, one, NULL));
		CHECK(cuStreamSynchronize(NULL));
		usleep(10000);
	}
}

int main(int argc, char **argv)
{
	int fds[RANKS][2], rank = 0;
	ncclUniqueId id[2];

	(void)argc;
	for (int r = 1; r < RANKS; r++) {
		if (pipe(fds[r]))
			return 1;
		if (fork() == 0) {
			rank = r;
			break;
		}
	}
	if (rank) {
		if (read(fds[rank][0], id, sizeof(id)) != sizeof(id))
			return 1;
	} else {
		NCCL(ncclGetUniqueId(&id[0]));
		NCCL(ncclGetUniqueId(&id[1]));
		for (int r = 1; r < RANKS; r++)
			if (write(fds[r][1], id, sizeof(id)) != sizeof(id))
				return 1;
	}
	return rank_main(rank, id[0], id[1], argv[1]);
}
