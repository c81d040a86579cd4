// SPDX-License-Identifier: Apache-2.0
/* nccl.c - collectives between processes: they meet, they compute, and they hang as they should. */
#include <cuda_runtime_api.h>
#include <math.h>
#include <nccl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "tests.h"

#define RANKS 3

static int rank;
static ncclComm_t comm;
static cudaStream_t stream;
static volatile int *board; /* shared by the ranks of a test */

/* Runs body in RANKS processes, each with a communicator of all. Returns their exit codes' or. */
static int ranks_with(ncclUniqueId *id, void (*body)(void), int want)
{
	pid_t pids[RANKS];
	int rc = 0;

	OK(ncclGetUniqueId(id));
	board = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	for (rank = 0; rank < RANKS; rank++) {
		pids[rank] = fork();
		if (pids[rank])
			continue;
		OK(cudaSetDevice(rank % 2));
		OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
		OK(ncclCommInitRank(&comm, RANKS, *id, rank));
		body();
		exit(0);
	}
	for (int r = 0; r < RANKS; r++) {
		int code = reap(pids[r]);

		if (code != want) {
			fprintf(stderr, "rank %d: %d\n", r, code);
			rc = 1;
		}
	}
	return rc;
}

static void ranks(void (*body)(void))
{
	ncclUniqueId id;

	OK(ranks_with(&id, body, 0));
}

static void *device(const void *from, size_t n)
{
	void *d;

	OK(cudaMalloc(&d, n));
	if (from)
		OK(cudaMemcpy(d, from, n, cudaMemcpyHostToDevice));
	return d;
}

static void host(void *to, const void *d, size_t n)
{
	OK(cudaStreamSynchronize(stream));
	OK(cudaMemcpy(to, d, n, cudaMemcpyDeviceToHost));
}

static bool stuck(void)
{
	sleep_ms(300);
	return cudaStreamQuery(stream) == cudaErrorNotReady;
}

/* -- reductions: larger than a stage, in place, every operation ------------------------------- */

static void r_reduce(void)
{
	enum { N = 700001 };
	float *in = malloc(N * 4), *out = malloc(N * 4), scale = 3;
	static const float want[] = {6, 6, 3, 1, 2};
	ncclRedOp_t twice;
	float *d, *e, *factor;

	for (int i = 0; i < N; i++)
		in[i] = (float)(rank + 1) + (float)(i % 7) * 0;
	in[N - 1] = (float)(100 * (rank + 1));
	d = device(in, N * 4);
	e = device(NULL, N * 4);
	for (int op = ncclSum; op <= ncclAvg; op++) {
		OK(ncclAllReduce(d, e, N, ncclFloat32, (ncclRedOp_t)op, comm, stream));
		host(out, e, N * 4);
		for (int i = 0; i < N - 1; i++)
			CHECK(out[i] == want[op]);
	}
	OK(ncclAllReduce(d, d, N, ncclFloat32, ncclSum, comm, stream));
	host(out, d, N * 4);
	CHECK(out[N - 1] == 600);
	OK(cudaMemcpy(d, in, N * 4, cudaMemcpyHostToDevice));
	OK(ncclReduce(d, e, N, ncclFloat32, ncclMax, 1, comm, stream));
	host(out, e, N * 4);
	CHECK(out[N - 1] ==
	      (rank == 1 ? 300 : 200)); /* others keep what they had: the average of before */
	/* Multiplied first, by a number on the host and by one on the device. */
	OK(ncclRedOpCreatePreMulSum(&twice, &scale, ncclFloat32, ncclScalarHostImmediate, comm));
	OK(ncclAllReduce(d, e, 10, ncclFloat32, twice, comm, stream));
	host(out, e, 40);
	CHECK(out[3] == 18);
	OK(ncclRedOpDestroy(twice, comm));
	factor = device(&scale, 4);
	OK(ncclRedOpCreatePreMulSum(&twice, factor, ncclFloat32, ncclScalarDevice, comm));
	OK(ncclAllReduce(d, e, 10, ncclFloat32, twice, comm, stream));
	host(out, e, 40);
	CHECK(out[3] == 18);
	IS(ncclAllReduce(d, e, 1, ncclFloat32, (ncclRedOp_t)(twice + 1), comm, stream),
	   ncclInvalidArgument);
	IS(ncclAllReduce(d, e, 1, (ncclDataType_t)99, ncclSum, comm, stream), ncclInvalidArgument);
	IS(ncclBroadcast(d, e, 1, ncclInt8, RANKS, comm, stream), ncclInvalidArgument);
	OK(ncclAllReduce(d, e, 0, ncclFloat32, ncclSum, comm, stream));
	OK(cudaStreamSynchronize(stream));
	OK(ncclCommDestroy(comm));
}

static void t_reduce(void)
{
	ranks(r_reduce);
}

/* Rank r brings r + 1, twice; the sum is 6, the product 6, the average 2. */
static void r_types(void)
{
	static const struct {
		int type;
		uint64_t in[3], sum; /* as bits */
	} cases[] = {
		{ncclInt8, {1, 2, 3}, 6},
		{ncclUint8, {100, 100, 55}, 255},
		{ncclInt32, {(uint32_t)-1, 2, 3}, 4},
		{ncclUint32, {1u << 31, 1u << 30, 5}, (3u << 30) + 5},
		{ncclInt64, {1ull << 40, 2, 3}, (1ull << 40) + 5},
		{ncclUint64, {1ull << 63, 2, 3}, (1ull << 63) + 5},
		{ncclFloat16, {0x3c00, 0x4000, 0x4200}, 0x4600},
		{ncclFloat32, {0x3f800000, 0x40000000, 0x40400000}, 0x40c00000},
		{ncclFloat64,
		 {0x3ff0000000000000, 0x4000000000000000, 0x4008000000000000},
		 0x4018000000000000},
		{ncclBfloat16, {0x3f80, 0x4000, 0x4040}, 0x40c0},
		{ncclFloat8e4m3, {0x38, 0x40, 0x44}, 0x4c},
		{ncclFloat8e5m2, {0x3c, 0x40, 0x42}, 0x46},
		{ncclFloat16, {0x0001, 0x0001, 0x0001}, 0x0003}, /* subnormal */
		{ncclFloat16, {0x7bff, 0x7bff, 0}, 0x7c00},	 /* to infinity */
	};
	static const int size[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int z = size[cases[i].type];
		uint64_t out = 0;
		void *d = device(&cases[i].in[rank], (size_t)z);

		OK(ncclAllReduce(d, d, 1, (ncclDataType_t)cases[i].type, ncclSum, comm, stream));
		host(&out, d, (size_t)z);
		if (out != cases[i].sum) {
			fprintf(stderr, "case %zu: %#llx\n", i, (unsigned long long)out);
			exit(1);
		}
	}
}

static void t_types(void)
{
	ranks(r_types);
}

static void r_collectives(void)
{
	enum { N = 300000 };
	int *in = malloc(RANKS * N * 4), *out = malloc(RANKS * N * 4);
	int *d, *e;

	d = device(NULL, RANKS * N * 4);
	e = device(NULL, RANKS * N * 4);
	for (int i = 0; i < RANKS * N; i++)
		in[i] = rank * 10000000 + i;
	OK(cudaMemcpy(d, in, RANKS * N * 4, cudaMemcpyHostToDevice));
#define AT(r, i) ((r)*10000000 + (i))
	OK(ncclAllGather(d, e, N, ncclInt32, comm, stream));
	host(out, e, RANKS * N * 4);
	for (int r = 0; r < RANKS; r++)
		for (int i = 0; i < N; i++)
			CHECK(out[r * N + i] == AT(r, i));
	OK(ncclReduceScatter(d, e, N, ncclInt32, ncclMax, comm, stream));
	host(out, e, N * 4);
	for (int i = 0; i < N; i++)
		CHECK(out[i] == AT(RANKS - 1, rank * N + i));
	OK(ncclBroadcast(d, e, N, ncclInt32, 2, comm, stream));
	host(out, e, N * 4);
	for (int i = 0; i < N; i++)
		CHECK(out[i] == AT(2, i));
	OK(ncclAlltoAll(d, e, N, ncclInt32, comm, stream));
	host(out, e, RANKS * N * 4);
	for (int r = 0; r < RANKS; r++)
		for (int i = 0; i < N; i++)
			CHECK(out[r * N + i] == AT(r, rank * N + i));
	OK(cudaMemset(e, 0, RANKS * N * 4)); /* on another stream */
	OK(cudaDeviceSynchronize());
	OK(ncclGather(d, e, N, ncclInt32, 1, comm, stream));
	host(out, e, RANKS * N * 4);
	for (int r = 0; r < RANKS; r++)
		CHECK(out[r * N + 5] == (rank == 1 ? AT(r, 5) : 0));
	OK(ncclScatter(d, e, N, ncclInt32, 0, comm, stream));
	host(out, e, N * 4);
	for (int i = 0; i < N; i++)
		CHECK(out[i] == AT(0, rank * N + i));
	OK(ncclBcast(d, N, ncclInt32, 0, comm, stream));
	host(out, d, N * 4);
	CHECK(out[9] == AT(0, 9));
	OK(ncclCommFinalize(comm));
	OK(ncclCommDestroy(comm));
}

static void t_collectives(void)
{
	ranks(r_collectives);
}

/* A ring and an exchange with everyone, both ways at once; a send to oneself. */
static void r_point_to_point(void)
{
	enum { N = 200000 };
	int next = (rank + 1) % RANKS, prev = (rank + RANKS - 1) % RANKS;
	int *in = malloc(N * 4), *out = malloc(RANKS * N * 4);
	int *d, *e;

	for (int i = 0; i < N; i++)
		in[i] = rank * N + i;
	d = device(in, N * 4);
	e = device(NULL, RANKS * N * 4);
	for (int k = 0; k < 5; k++) {
		OK(ncclGroupStart());
		OK(ncclSend(d, N, ncclInt32, next, comm, stream));
		OK(ncclRecv(e, N, ncclInt32, prev, comm, stream));
		OK(ncclGroupEnd());
	}
	host(out, e, N * 4);
	for (int i = 0; i < N; i++)
		CHECK(out[i] == prev * N + i);
	OK(ncclGroupStart());
	for (int r = 0; r < RANKS; r++) {
		OK(ncclSend(d, N, ncclInt32, r, comm, stream));
		OK(ncclRecv(e + (size_t)r * N, N, ncclInt32, r, comm, stream));
	}
	OK(ncclGroupEnd());
	host(out, e, RANKS * N * 4);
	for (int r = 0; r < RANKS; r++)
		CHECK(out[r * N + 77] == r * N + 77);
	/* Without a group: first one way, then the other. Empty messages meet too. */
	if (rank == 0)
		OK(ncclSend(d, 0, ncclInt8, 1, comm, stream));
	if (rank == 1)
		OK(ncclRecv(d, 0, ncclInt8, 0, comm, stream));
	OK(cudaStreamSynchronize(stream));
	/* Nobody receives: it does not end. */
	if (rank == 2) {
		OK(ncclSend(d, 1, ncclInt8, 0, comm, stream));
		CHECK(stuck());
		OK(ncclCommAbort(comm));
		OK(cudaStreamSynchronize(stream));
	}
}

static void t_point_to_point(void)
{
	ranks(r_point_to_point);
}

static void r_split(void)
{
	ncclComm_t half, none;
	int n, r, v = rank, out = -1;
	int *d = device(&v, 4);

	/* 0 and 2 in one, in the other order; 1 alone. */
	OK(ncclCommSplit(comm, rank % 2, -rank, &half, NULL));
	OK(ncclCommCount(half, &n));
	OK(ncclCommUserRank(half, &r));
	IS(n, rank == 1 ? 1 : 2);
	IS(r, rank == 0 ? 1 : 0);
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, half, stream));
	host(&out, d, 4);
	IS(out, rank == 1 ? 1 : 2);
	OK(ncclCommSplit(comm, rank ? NCCL_SPLIT_NOCOLOR : 0, 0, &none, NULL));
	CHECK((rank != 0) == (none == NULL));
	/* The parent still works, and another split is another communicator. */
	OK(ncclCommSplit(comm, 7, 0, &none, NULL));
	OK(ncclCommCount(none, &n));
	IS(n, RANKS);
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, none, stream));
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, comm, stream));
	host(&out, d, 4);
	IS(out, 15);
	OK(ncclCommDestroy(half));
	OK(ncclCommCuDevice(comm, &n));
	IS(n, rank % 2);
}

static void t_split(void)
{
	ranks(r_split);
}

static void r_shrink(void)
{
	ncclComm_t less;
	int gone = 1, n, v = rank + 1, out;
	int *d = device(&v, 4);

	if (rank == 1)
		return;
	OK(ncclCommShrink(comm, &gone, 1, &less, NULL, NCCL_SHRINK_DEFAULT));
	OK(ncclCommCount(less, &n));
	IS(n, 2);
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, less, stream));
	host(&out, d, 4);
	IS(out, 4);
}

static void t_shrink(void)
{
	ranks(r_shrink);
}

static void r_groups(void)
{
	int v[2] = {rank, 10 * rank}, out[2];
	cudaStream_t other;
	int *d = device(v, 8);

	OK(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
	IS(ncclGroupEnd(), ncclInvalidUsage);
	OK(ncclGroupStart());
	OK(ncclGroupStart());
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, comm, stream));
	OK(ncclGroupEnd());
	sleep_ms(5);
	OK(ncclAllReduce(d + 1, d + 1, 1, ncclInt32, ncclSum, comm, other));
	OK(ncclGroupEnd());
	OK(cudaStreamSynchronize(other));
	host(out, d, 8);
	IS(out[0], 3);
	IS(out[1], 30);
	/* An error in a group is told at its end, and nothing of it runs. */
	OK(ncclGroupStart());
	IS(ncclBroadcast(d, d, 1, ncclInt32, 99, comm, stream), ncclInvalidArgument);
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, comm, stream));
	IS(ncclGroupEnd(), ncclInvalidArgument);
	host(out, d, 8);
	IS(out[0], 3);
	CHECK(strlen(ncclGetLastError(comm)) > 0);
	CHECK(!strcmp(ncclGetErrorString(ncclSuccess), "no error"));
}

static void t_groups(void)
{
	ranks(r_groups);
}

/* Different counts, operations, types, roots: nobody ends, nobody reports. */
static void mismatch(int what)
{
	ncclResult_t e;
	int *d = device(NULL, 4096);

	OK(ncclAllReduce(d, d, 4, ncclInt32, ncclSum, comm, stream));
	if (what == 0)
		OK(ncclAllReduce(d, d, rank == 1 ? 8 : 16, ncclInt32, ncclSum, comm, stream));
	else if (what == 1)
		OK(rank == 1 ? ncclBroadcast(d, d, 16, ncclInt32, 0, comm, stream)
			     : ncclAllReduce(d, d, 16, ncclInt32, ncclSum, comm, stream));
	else if (what == 2)
		OK(ncclReduce(d, d, 16, ncclInt32, ncclSum, rank, comm, stream));
	else
		OK(ncclAllReduce(d, d, 16, rank == 1 ? ncclFloat32 : ncclInt32, ncclSum, comm,
				 stream));
	CHECK(stuck());
	OK(ncclCommGetAsyncError(comm, &e));
	IS(e, ncclSuccess);
	IS(ncclCommAbort(comm), ncclSuccess);
	OK(cudaStreamSynchronize(stream));
}

static void r_mismatch_count(void)
{
	mismatch(0);
}
static void r_mismatch_op(void)
{
	mismatch(1);
}
static void r_mismatch_root(void)
{
	mismatch(2);
}
static void r_mismatch_type(void)
{
	mismatch(3);
}

static void t_mismatch(void)
{
	ranks(r_mismatch_count);
	ranks(r_mismatch_op);
	ranks(r_mismatch_root);
	ranks(r_mismatch_type);
}

/* Rank 2 stays away for a while, then comes. */
static void r_missing(void)
{
	int v = 1, out;
	int *d = device(&v, 4);

	if (rank == 2) {
		while (board[0] < 2)
			sleep_ms(2);
	}
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, comm, stream));
	if (rank != 2) {
		CHECK(stuck());
		__sync_fetch_and_add(&board[0], 1);
	}
	host(&out, d, 4);
	IS(out, 3);
}

static void t_missing(void)
{
	ranks(r_missing);
}

static void *abort_it(void *arg)
{
	sleep_ms(100);
	OK(ncclCommAbort(arg));
	return NULL;
}

/* An abort from another thread releases who waits, and what is queued behind. */
static void r_abort(void)
{
	pthread_t t;
	int *d = device(NULL, 4096);

	if (rank == 0)
		return;
	for (int i = 0; i < 3; i++)
		OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, comm, stream));
	OK(pthread_create(&t, NULL, abort_it, comm));
	OK(cudaStreamSynchronize(stream));
	OK(pthread_join(t, NULL));
	OK(cudaMemset(d, 0, 16));
}

static void t_abort(void)
{
	ranks(r_abort);
}

/* A rank that is killed leaves the others waiting, for ever and without an error. */
static void r_killed(void)
{
	ncclResult_t e;
	int *d = device(NULL, 4096);

	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, comm, stream));
	OK(cudaStreamSynchronize(stream));
	if (rank == 2)
		raise(SIGKILL);
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, comm, stream));
	CHECK(stuck());
	OK(ncclCommGetAsyncError(comm, &e));
	IS(e, ncclSuccess);
	raise(SIGKILL);
}

static void t_killed(void)
{
	ncclUniqueId id;
	size_t f, t;

	OK(ranks_with(&id, r_killed, 128 + SIGKILL));
	OK(cudaMemGetInfo(&f, &t));
	IS(t - f, 256u << 20);
}

static void t_nonblocking(void)
{
	ncclConfig_t c = NCCL_CONFIG_INITIALIZER;
	ncclResult_t e;
	ncclUniqueId id;
	ncclComm_t n;
	pid_t pid;
	int v = 2, out, ranks_, r;
	int *d;

	OK(ncclGetUniqueId(&id));
	pid = fork();
	if (!pid) {
		sleep_ms(200);
		d = device(&v, 4);
		OK(ncclCommInitRank(&n, 2, id, 1));
		OK(ncclAllReduce(d, d, 1, ncclInt32, ncclProd, n, NULL));
		OK(cudaDeviceSynchronize());
		exit(0);
	}
	c.blocking = 0;
	d = device(&v, 4);
	IS(ncclCommInitRankConfig(&n, 2, id, 0, &c), ncclInProgress);
	OK(ncclCommGetAsyncError(n, &e));
	IS(e, ncclInProgress);
	IS(ncclAllReduce(d, d, 1, ncclInt32, ncclProd, n, NULL), ncclInvalidUsage);
	do {
		sleep_ms(1);
		OK(ncclCommGetAsyncError(n, &e));
	} while (e == ncclInProgress);
	IS(e, ncclSuccess);
	OK(ncclCommCount(n, &ranks_));
	OK(ncclCommUserRank(n, &r));
	CHECK(ranks_ == 2 && r == 0);
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclProd, n, NULL));
	OK(cudaMemcpy(&out, d, 4, cudaMemcpyDeviceToHost));
	IS(out, 4);
	IS(reap(pid), 0);
	/* An abort ends an init for which nobody comes. */
	OK(ncclGetUniqueId(&id));
	IS(ncclCommInitRankConfig(&n, 2, id, 0, &c), ncclInProgress);
	sleep_ms(50);
	OK(ncclCommAbort(n));
	c.magic = 0;
	IS(ncclCommInitRankConfig(&n, 2, id, 0, &c), ncclInvalidArgument);
}

/* Two devices of one process, by one thread. */
static void t_one_process(void)
{
	ncclComm_t c[2];
	cudaStream_t s[2];
	ncclUniqueId id;
	int v[2] = {5, 6}, out;
	int *d[2];

	OK(ncclCommInitAll(c, 2, NULL));
	for (int i = 0; i < 2; i++) {
		OK(cudaSetDevice(i));
		OK(cudaStreamCreate(&s[i]));
		d[i] = device(&v[i], 4);
	}
	OK(ncclGroupStart());
	for (int i = 0; i < 2; i++)
		OK(ncclAllReduce(d[i], d[i], 1, ncclInt32, ncclSum, c[i], s[i]));
	OK(ncclGroupEnd());
	for (int i = 0; i < 2; i++) {
		OK(cudaSetDevice(i));
		OK(cudaStreamSynchronize(s[i]));
		OK(cudaMemcpy(&out, d[i], 4, cudaMemcpyDeviceToHost));
		IS(out, 11);
		OK(ncclCommDestroy(c[i]));
	}
	/* The same with explicit ranks in a group. */
	OK(ncclGetUniqueId(&id));
	OK(ncclGroupStart());
	for (int i = 0; i < 2; i++) {
		OK(cudaSetDevice(i));
		OK(ncclCommInitRankScalable(&c[i], 2, i, 1, &id, NULL));
	}
	OK(ncclGroupEnd());
	OK(ncclCommCuDevice(c[1], &out));
	IS(out, 1);
	OK(ncclCommDestroy(c[0]));
	OK(ncclCommDestroy(c[1]));
}

/* Init takes device memory: without room it is a CUDA error, and says which. */
static void t_oom(void)
{
	ncclUniqueId id;
	ncclComm_t n;
	size_t f, t;
	void *d, *m;

	OK(cudaMemGetInfo(&f, &t));
	OK(ncclMemAlloc(&m, 100));
	OK(cudaMemset(m, 1, 100));
	OK(cudaDeviceSynchronize());
	OK(ncclMemFree(m));
	OK(cudaMalloc(&d, f - (1 << 20)));
	OK(ncclGetUniqueId(&id));
	IS(ncclCommInitRank(&n, 1, id, 0), ncclUnhandledCudaError);
	CHECK(strstr(ncclGetLastError(NULL), "out of memory"));
	OK(cudaFree(d));
	OK(ncclGetUniqueId(&id));
	OK(ncclCommInitRank(&n, 1, id, 0));
	OK(cudaMemGetInfo(&t, &(size_t){0}));
	IS(f - t, 4u << 20);
	OK(ncclCommDestroy(n));
	OK(cudaMemGetInfo(&t, &(size_t){0}));
	IS(f, t);
}

static void r_graph(void)
{
	int v = 1, out;
	int *d = device(&v, 4);
	cudaGraphExec_t x;
	cudaGraph_t g;

	OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, comm, stream));
	OK(ncclAllReduce(d, d, 1, ncclInt32, ncclSum, comm, stream));
	OK(cudaStreamEndCapture(stream, &g));
	OK(cudaGraphInstantiate(&x, g, 0));
	for (int i = 0; i < 3; i++) {
		OK(cudaGraphLaunch(x, stream));
		OK(ncclAllReduce(d, d, 1, ncclInt32, ncclMax, comm, stream));
	}
	host(&out, d, 4);
	IS(out, 729);
}

static void t_graph(void)
{
	ranks(r_graph);
}

/* Does a child that runs body hang? Ends it. */
static bool hangs(void (*body)(void))
{
	int status;
	pid_t pid = fork();
	bool hung;

	if (!pid) {
		body();
		_exit(0);
	}
	sleep_ms(600);
	hung = waitpid(pid, &status, WNOHANG) == 0;
	if (hung) {
		kill(pid, SIGKILL);
		reap(pid);
	}
	return hung;
}

static void group_of_two(void)
{
	ncclComm_t c[2];
	void *d[2];

	OK(ncclCommInitAll(c, 2, NULL));
	for (int i = 0; i < 2; i++) {
		OK(cudaSetDevice(i));
		d[i] = device(NULL, 4);
	}
	OK(ncclGroupStart());
	for (int i = 0; i < 2; i++)
		OK(ncclAllReduce(d[i], d[i], 1, ncclInt32, ncclSum, c[i], NULL));
	OK(ncclGroupEnd());
	for (int i = 0; i < 2; i++) {
		OK(cudaSetDevice(i));
		OK(cudaDeviceSynchronize());
	}
}

/* One thread, two devices, blocking launches: the first launch waits for the second. */
static void t_launch_blocking(void)
{
	CHECK(!hangs(group_of_two));
	setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
	CHECK(hangs(group_of_two));
}

static void init_without_room(void)
{
	ncclComm_t c[2];
	size_t f, t;
	void *d;

	OK(cudaSetDevice(1));
	OK(cudaMemGetInfo(&f, &t));
	OK(cudaMalloc(&d, f));
	ncclCommInitAll(c, 2, NULL);
}

/* One rank of a grouped init fails; the other waits for it, and the group for the other. */
static void t_init_fails(void)
{
	CHECK(hangs(init_without_room));
}

MAIN({"reduce", t_reduce}, {"types", t_types}, {"collectives", t_collectives},
     {"point-to-point", t_point_to_point}, {"split", t_split}, {"groups", t_groups},
     {"mismatch", t_mismatch}, {"missing", t_missing}, {"abort", t_abort}, {"killed", t_killed},
     {"nonblocking", t_nonblocking}, {"one-process", t_one_process}, {"oom", t_oom},
     {"graph", t_graph}, {"shrink", t_shrink}, {"launch-blocking", t_launch_blocking},
     {"init-fails", t_init_fails})
