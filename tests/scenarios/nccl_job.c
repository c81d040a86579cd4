/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: collective (COLL_INIT_PEERS, COLL_INIT_FAILED_PEER, COLL_UNEVEN, COLL_FROM_DESTRUCTOR, COLL_MISMATCH), oom, dead-peer, file-lock
 * story: a launcher started three ranks, each a program of its own; the job stands still
 * proof: the launcher below starts each rank by exec with RANK set; what one of them does instead is written in `leave`
 * case: init_killed class=peer-dead hung=true culprit=pid needs=nccl settle=5
 * case: init_locked class=lock-self hung=true culprit=pid needs=nccl settle=5
 * case: init_computing class=busy-cpu hung=false culprit=pid needs=nccl settle=5
 * case: init_stopped class=stopped hung=true culprit=pid needs=nccl settle=5
 * case: init_oom class=oom-swallowed hung=true culprit=pid needs=nccl settle=5
 * case: init_asked_launcher class=stopped hung=true culprit=pid needs=nccl settle=5
 * case: step_oom class=oom-swallowed hung=true culprit=pid needs=nccl settle=5
 * case: step_worker_stopped class=stopped hung=true culprit=pid needs=nccl settle=5
 * case: step_worker_killed class=peer-dead hung=true culprit=pid needs=nccl settle=5
 * case: step_flock_cycle class=collective-cycle hung=true needs=nccl settle=5
 * case: step_barrier_cycle class=collective-cycle hung=true needs=nccl settle=5
 * case: step_extra class=collective-mismatch hung=true needs=nccl settle=5
 * case: step_atexit class=collective-missing-rank hung=true needs=nccl settle=5
 * case: step_killed_launcher class=peer-dead hung=true culprit=pid needs=nccl settle=5
 * case: step_checkpoint class=pipe-full hung=true culprit=pid needs=nccl settle=5
 * case: step_slow_rank class=busy-cpu|busy-gpu|progressing|idle hung=false needs=nccl settle=4
 */
#include <cuda.h>
#include <nccl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "demo/demo.h"
#include "scenario.h"

#define RANKS 3
#define NCCL(call)                          \
	do {                                \
		if ((call) != ncclSuccess)  \
			_exit(4);           \
	} while (0)

static const char *kase;
static CUdeviceptr buf;
static ncclComm_t comm;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void all_reduce(size_t n)
{
	NCCL(ncclAllReduce((void *)buf, (void *)buf, n, ncclFloat, ncclSum, comm, NULL));
	CHECK(cuStreamSynchronize(NULL));
}

static void at_exit(void)
{
	all_reduce(1 << 18); /* a destructor's own collective */
}

static void fails_to_allocate(void)
{
	size_t free_bytes, total;
	CUdeviceptr p;
	char c;
	int fds[2];

	tell("culprit_pid %d", (int)getpid());
	CHECK(cuMemGetInfo(&free_bytes, &total));
	if (cuMemAlloc(&p, free_bytes + 170 * MIB) == CUDA_SUCCESS || pipe(fds))
		_exit(5);
	pause(); /* the error is printed, and everybody waits */
	_exit(read(fds[0], &c, 1) < 0);
}

/* A data loader's worker, which this rank reads its batches from. */
static void reads_worker(bool dead)
{
	int fds[2];
	pid_t child;
	char c;

	if (pipe(fds))
		_exit(5);
	child = fork();
	if (child == 0) {
		if (dead && fork() == 0)
			forever(); /* has the pipe, too */
		usleep(100000);
		kill(getpid(), dead ? SIGKILL : SIGSTOP);
	}
	tell("culprit_pid %d", (int)child);
	close(fds[1]);
	_exit(read(fds[0], &c, 1) < 0);
}

static void leave(int rank)
{
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	int fds[2];

	if (in("step_flock_cycle")) {
		int fd = open("cache.lock", O_RDWR | O_CREAT, 0600);

		if (rank == 2)
			usleep(300000);
		flock(fd, LOCK_EX); /* rank 0 keeps it over the collective */
		return;
	}
	if (in("step_extra") && rank == 2) {
		all_reduce(1025);
		return;
	}
	if (in("step_atexit") && rank == 0) {
		atexit(at_exit);
		exit(0);
	}
	if (in("step_atexit") && rank == 1)
		for (;;)
			sleep(1000);
	if (rank != 2)
		return;
	if (strstr(kase, "oom"))
		fails_to_allocate();
	if (strstr(kase, "worker"))
		reads_worker(in("step_worker_killed"));
	if (in("step_checkpoint")) { /* to an uploader that does not read */
		pid_t uploader;

		if (pipe(fds))
			_exit(5);
		uploader = fork();
		if (uploader == 0)
			forever();
		tell("culprit_pid %d", (int)uploader);
		close(fds[0]);
		while (write(fds[1], &m, sizeof(m)) > 0)
			;
	}
	tell("culprit_pid %d", (int)getpid());
	if (strstr(kase, "killed"))
		kill(getpid(), SIGKILL);
	if (strstr(kase, "locked")) {
		pthread_mutex_lock(&m);
		pthread_mutex_lock(&m);
	}
	if (strstr(kase, "computing"))
		burn();
	if (strstr(kase, "stopped") || in("init_asked_launcher"))
		raise(SIGSTOP);
}

static int rank_main(int rank)
{
	CUcontext context;
	ncclUniqueId id;
	char c;
	int fd;

	CHECK(cuInit(0));
	CHECK(cuDevicePrimaryCtxSetFlags(rank % 2, CU_CTX_SCHED_BLOCKING_SYNC));
	CHECK(cuDevicePrimaryCtxRetain(&context, rank % 2));
	CHECK(cuCtxSetCurrent(context));
	CHECK(cuMemAlloc(&buf, 16 * MIB));
	fd = open("id", O_RDONLY);
	if (read(fd, &id, sizeof(id)) != sizeof(id))
		return 3;
	close(fd);
	if (!strncmp(kase, "init", 4)) {
		if (rank == 2)
			usleep(300000);
		leave(rank);
	}
	NCCL(ncclCommInitRank(&comm, RANKS, id, rank));
	for (int step = 0;; step++) {
		if (step == 20) {
			if (rank == 0)
				ready();
			leave(rank);
			if (in("step_barrier_cycle") && rank == 2) { /* left the epoch; rank 0 has yet to say so */
				fd = open("done.0", O_RDONLY);
				return read(fd, &c, 1) < 0;
			}
			if (in("step_barrier_cycle") && rank == 0)
				fd = open("done.0", O_RDWR);
		}
		if (in("step_slow_rank") && rank == 2)
			usleep(100000);
		all_reduce(1 << 18);
	}
}

int main(int argc, char **argv)
{
	const char *rank = getenv("RANK");
	ncclUniqueId id;
	char text[8];
	pid_t pid, first = 0;
	int fd, status;

	if (argc < 2)
		return 2;
	kase = argv[1];
	if (rank)
		return rank_main(atoi(rank));
	NCCL(ncclGetUniqueId(&id));
	fd = open("id", O_RDWR | O_CREAT, 0600);
	if (write(fd, &id, sizeof(id)) != sizeof(id) || mkfifo("done.0", 0600))
		return 3;
	close(fd);
	setenv("WORLD_SIZE", "3", 1);
	for (int r = 0; r < RANKS; r++) {
		snprintf(text, sizeof(text), "%d", r);
		setenv("RANK", text, 1);
		setenv("LOCAL_RANK", text, 1);
		pid = fork();
		if (pid == 0) {
			execv("/proc/self/exe", argv);
			_exit(9);
		}
		if (r == 0)
			first = pid;
		if (!strstr(kase, "launcher") && !in("init_killed"))
			tell("ask_pid %d", (int)pid);
		else if (in("init_killed") && r == 0)
			tell("ask_pid %d", (int)pid);
	}
	if (!strncmp(kase, "init", 4)) {
		usleep(1500000);
		ready();
	}
	return waitpid(first, &status, 0) < 0;
}
