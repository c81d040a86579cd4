// SPDX-License-Identifier: Apache-2.0
/*
 * A C program that the linker bound to NCCL: guest_nccl MODE.
 *   whole   a communicator of one rank, two collectives in a group, then it waits
 *   first   the creation, which never ends for want of a second rank, is its first use of CUDA
 */
#include <nccl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <unistd.h>

#define OK(call)                                                              \
	do {                                                                  \
		int r_ = (int)(call);                                         \
		if (r_) {                                                     \
			fprintf(stderr, "guest: %d from %s\n", r_, #call);    \
			return 71;                                            \
		}                                                             \
	} while (0)

int main(int argc, char **argv)
{
	ncclUniqueId id;
	ncclComm_t comm;
	static float x[64];

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	OK(ncclGetUniqueId(&id));
	if (argc > 1 && !strcmp(argv[1], "first")) {
		printf("rank 0 %d\n", getpid());
		fflush(stdout);
		OK(ncclCommInitRank(&comm, 2, id, 0));
		return 0;
	}
	OK(ncclCommInitRank(&comm, 1, id, 0));
	OK(ncclGroupStart());
	OK(ncclAllReduce(x, x, 16, ncclFloat, ncclMax, comm, NULL));
	OK(ncclBroadcast(x, x, 8, ncclDouble, 0, comm, NULL));
	OK(ncclGroupEnd());
	printf("rank 0 %d\n", getpid());
	fflush(stdout);
	for (;;)
		pause();
}
