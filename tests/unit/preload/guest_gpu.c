// SPDX-License-Identifier: Apache-2.0
/*
 * A program under the recorder: guest_gpu SCENE. Says "ready ..." when its scene stands, then blocks in
 * it (or ends). It comes to CUDA and NCCL by dlsym, as Python does; guest_nccl.c by the linker.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void *cuda, *nccl;

#define CU(name, params) ((int (*) params)need(cuda, #name))
#define NC(name, params) ((int (*) params)need(nccl, #name))
#define OK(call) check(call, #call, __LINE__)

static void *need(void *lib, const char *name)
{
	void *f = dlsym(lib, name);

	if (!f) {
		fprintf(stderr, "guest: no %s\n", name);
		exit(70);
	}
	return f;
}

static void check(int r, const char *what, int line)
{
	if (!r)
		return;
	fprintf(stderr, "guest: line %d: %d from %s\n", line, r, what);
	exit(71);
}

static void say(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
}

static void *module;
static void *context(int device)
{
	void *ctx;

	if (!cuda)
		cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!cuda) {
		fprintf(stderr, "guest: %s\n", dlerror());
		exit(70);
	}
	OK(CU(cuInit, (unsigned int))(0));
	OK(CU(cuDevicePrimaryCtxRetain, (void **, int))(&ctx, device));
	OK(CU(cuCtxSetCurrent, (void *))(ctx));
	OK(CU(cuModuleLoadData, (void **, const void *))(&module, "any"));
	return ctx;
}

static void *kernel(const char *name)
{
	void *f;

	OK(CU(cuModuleGetFunction, (void **, void *, const char *))(&f, module, name));
	return f;
}

static void *stream(unsigned int flags)
{
	void *s;

	OK(CU(cuStreamCreate, (void **, unsigned int))(&s, flags));
	return s;
}

typedef int (*launch_fn)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
			 unsigned, void *, void **, void **);
static void launch(void *s, void *f, int n)
{
	static launch_fn real;

	if (!real)
		real = (launch_fn)need(cuda, "cuLaunchKernel");
	while (n-- > 0)
		OK(real(f, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL));
}

static int sync_stream(void *s) { return CU(cuStreamSynchronize, (void *))(s); }

/* ---- streams ------------------------------------------------------------------------ */

static void spin(void)
{
	void *s, *quick, *forever;

	context(0);
	s = stream(1);
	quick = kernel("quick");
	forever = kernel("spin_the_wheel");
	launch(s, quick, 20);
	launch(s, forever, 1);
	launch(s, quick, 30);
	say("ready %p", s);
	sync_stream(s);
}

static void legacy(void)
{
	context(0);
	launch(NULL, kernel("quick"), 3);
	launch(NULL, kernel("spin"), 1);
	launch(NULL, kernel("quick"), 30);
	say("ready");
	CU(cuCtxSynchronize, (void))();
}

static void capture(void)
{
	void *s, *other, *graph, *exec, *quick;

	context(0);
	s = stream(1);
	other = stream(1);
	quick = kernel("quick");
	launch(s, quick, 5);
	OK(CU(cuStreamBeginCapture_v2, (void *, int))(s, 0));
	launch(s, quick, 40);
	launch(other, quick, 7);
	OK(CU(cuStreamEndCapture, (void *, void **))(s, &graph));
	OK(CU(cuGraphInstantiateWithFlags, (void **, void *, unsigned long long))(&exec, graph, 0));
	OK(CU(cuGraphLaunch, (void *, void *))(exec, s));
	launch(s, kernel("spin"), 1);
	say("ready %p %p %p", s, other, exec);
	sync_stream(s);
}

static void *default_user(void *arg)
{
	launch_fn f = (launch_fn)need(cuda, "cuLaunchKernel_ptsz");
	int n = *(int *)arg;
	void *ctx;

	OK(CU(cuDevicePrimaryCtxRetain, (void **, int))(&ctx, 0));
	OK(CU(cuCtxSetCurrent, (void *))(ctx));
	for (int k = 0; k < n; k++)
		OK(f(kernel("quick"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	/* Each its own: a function that was launched before is not bracketed by position writes. */
	OK(f(kernel(n == 5 ? "spin_five" : "spin_nine"), 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	say("thread %d %d", n, (int)syscall(SYS_gettid));
	CU(cuStreamSynchronize_ptsz, (void *))(NULL);
	return NULL;
}

static void per_thread(void)
{
	static int counts[2] = { 5, 9 };
	pthread_t t[2];

	context(0);
	for (int k = 0; k < 2; k++)
		pthread_create(&t[k], NULL, default_user, &counts[k]);
	for (int k = 0; k < 2; k++)
		pthread_join(t[k], NULL);
}

static void events(void)
{
	void *a, *b, *never, *recorded;

	context(0);
	a = stream(1);
	b = stream(1);
	OK(CU(cuEventCreate, (void **, unsigned int))(&never, 0));
	OK(CU(cuEventCreate, (void **, unsigned int))(&recorded, 0));
	OK(CU(cuStreamWaitEvent, (void *, void *, unsigned int))(b, never, 0));
	launch(b, kernel("quick"), 2);
	OK(sync_stream(b)); /* waits for nothing */
	launch(a, kernel("spin"), 1);
	OK(CU(cuEventRecord, (void *, void *))(recorded, a));
	OK(CU(cuStreamWaitEvent, (void *, void *, unsigned int))(b, recorded, 0));
	launch(b, kernel("quick"), 1);
	say("ready %p %p %p %p", a, b, never, recorded);
	sync_stream(b);
}

static void wait_value(void)
{
	uint64_t word;
	void *s;

	context(0);
	s = stream(1);
	OK(CU(cuMemAlloc_v2, (uint64_t *, size_t))(&word, 4096));
	launch(s, kernel("quick"), 3);
	OK(CU(cuStreamWaitValue32_v2, (void *, uint64_t, uint32_t, unsigned int))(s, word, 5, 1));
	launch(s, kernel("quick"), 1);
	say("ready %p %llx", s, (unsigned long long)word);
	sync_stream(s);
}

static void in_callback(void *arg)
{
	(void)arg;
	pause();
}

static void host_function(void)
{
	void *s;

	context(0);
	s = stream(1);
	launch(s, kernel("quick"), 3);
	OK(CU(cuLaunchHostFunc, (void *, void (*)(void *), void *))(s, in_callback, NULL));
	launch(s, kernel("quick"), 1);
	say("ready %p %p", s, (void *)in_callback);
	sync_stream(s);
}

/* The program must see what it would see without us. */
static void results(void)
{
	int (*query)(void *);
	void *s, *e, *ctx, *now;

	ctx = context(0);
	s = stream(1);
	query = (int (*)(void *))need(cuda, "cuStreamQuery");
	errno = 77;
	launch(s, kernel("sleep_us_300000"), 1);
	for (int k = 0; k < 20; k++)
		launch(s, kernel("quick"), 1);
	if (query(s) != 600)
		exit(72);
	OK(CU(cuEventCreate, (void **, unsigned int))(&e, 0));
	OK(CU(cuEventRecord, (void *, void *))(e, s));
	if (CU(cuEventQuery, (void *))(e) != 600)
		exit(73);
	OK(sync_stream(s));
	if (query(s))
		exit(74);
	OK(CU(cuCtxGetCurrent, (void **))(&now));
	if (now != ctx)
		exit(75);
	OK(CU(cuStreamDestroy_v2, (void *))(s));
	OK(CU(cuDevicePrimaryCtxReset_v2, (int))(0));
	context(0);
	s = stream(1);
	launch(s, kernel("quick"), 30);
	OK(sync_stream(s));
	say("ready %p", s);
	pause();
}

/* ---- collectives: ranks are processes --------------------------------------------------- */

struct id { char b[128]; };
static struct id unique;
static int rank, size;
static void *comm, *nstream;

static void nccl_up(void)
{
	context(rank % 2);
	nccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
	if (!nccl) {
		fprintf(stderr, "guest: %s\n", dlerror());
		exit(70);
	}
	nstream = stream(1);
}

static void join_comm(void **c, struct id id)
{
	OK(NC(ncclCommInitRank, (void **, int, struct id, int))(c, size, id, rank));
}

static void reduce(void *c, size_t count)
{
	static float *buffer;
	uint64_t p;

	if (!buffer) {
		OK(CU(cuMemAlloc_v2, (uint64_t *, size_t))(&p, 1 << 20));
		buffer = (float *)(uintptr_t)p;
	}
	OK(NC(ncclAllReduce, (const void *, void *, size_t, int, int, void *, void *))(
		buffer, buffer, count, 7, 0, c, nstream));
}

static void fork_ranks(int n, void (*body)(void))
{
	int fd[64][2];

	size = n;
	for (int k = 0; k < n; k++)
		if (socketpair(AF_UNIX, SOCK_STREAM, 0, fd[k]))
			exit(76);
	for (int k = 0; k < n; k++) {
		int pid = fork();

		if (!pid) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			rank = k;
			nccl_up();
			if (!rank) {
				OK(NC(ncclGetUniqueId, (struct id *))(&unique));
				for (int j = 1; j < n; j++)
					if (write(fd[j][0], &unique, sizeof(unique)) != sizeof(unique))
						exit(76);
			} else if (read(fd[rank][1], &unique, sizeof(unique)) != sizeof(unique)) {
				exit(76);
			}
			body();
			say("idle %d %d", rank, getpid());
			for (;;)
				pause();
		}
	}
	while (wait(NULL) > 0 || errno == EINTR)
		;
}

static void stands(void)
{
	say("rank %d %d", rank, getpid());
	sync_stream(nstream);
}

static void missing(void)
{
	join_comm(&comm, unique);
	for (int k = 0; k < 3; k++)
		reduce(comm, 1000);
	OK(sync_stream(nstream));
	if (rank != 1) {
		reduce(comm, 2000);
		stands();
	}
}

static void mismatch(void)
{
	join_comm(&comm, unique);
	reduce(comm, 100);
	reduce(comm, rank ? 300 : 200);
	stands();
}

static void missing_at_creation(void)
{
	if (rank == 1)
		return;
	say("rank %d %d", rank, getpid());
	join_comm(&comm, unique);
}

static void group_and_split(void)
{
	void *half = NULL;
	int next = (rank + 1) % size, before = (rank + size - 1) % size;
	uint64_t p;

	join_comm(&comm, unique);
	OK(CU(cuMemAlloc_v2, (uint64_t *, size_t))(&p, 1 << 20));
	OK(NC(ncclGroupStart, (void))());
	OK(NC(ncclSend, (const void *, size_t, int, int, void *, void *))((void *)p, 10, 7, next,
									comm, nstream));
	OK(NC(ncclRecv, (void *, size_t, int, int, void *, void *))((void *)(p + 4096), 10, 7,
								    before, comm, nstream));
	OK(NC(ncclGroupEnd, (void))());
	reduce(comm, 100);
	OK(NC(ncclCommSplit, (void *, int, int, void **, void *))(comm, rank % 2, rank, &half,
								  NULL));
	reduce(half, 50);
	OK(sync_stream(nstream));
	/* The other half never comes. */
	if (rank != 3)
		reduce(half, 60);
	stands();
}

int main(int argc, char **argv)
{
	const char *scene = argc > 1 ? argv[1] : "";
	static const struct { const char *name; void (*run)(void); int ranks; } scenes[] = {
		{ "spin", spin, 0 },
		{ "legacy", legacy, 0 },
		{ "capture", capture, 0 },
		{ "per-thread", per_thread, 0 },
		{ "events", events, 0 },
		{ "wait-value", wait_value, 0 },
		{ "host-function", host_function, 0 },
		{ "results", results, 0 },
		{ "missing", missing, 3 },
		{ "mismatch", mismatch, 2 },
		{ "missing-at-creation", missing_at_creation, 3 },
		{ "group-and-split", group_and_split, 4 },
	};

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (size_t k = 0; k < sizeof(scenes) / sizeof(*scenes); k++)
		if (!strcmp(scene, scenes[k].name)) {
			if (scenes[k].ranks)
				fork_ranks(scenes[k].ranks, scenes[k].run);
			else
				scenes[k].run();
			return 0;
		}
	return 64;
}
