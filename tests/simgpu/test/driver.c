// SPDX-License-Identifier: Apache-2.0
/* driver.c - what the driver promises about streams, waits and synchronisation. */
#include <cuda.h>
#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include <stdbool.h>

#include "tests.h"

static CUcontext ctx;
static CUmodule module;

static void up_with(unsigned int flags)
{
	OK(cuInit(0));
	OK(cuCtxCreate_v2(&ctx, flags, 0));
	OK(cuModuleLoadData(&module, "any image"));
}

static void up(void)
{
	up_with(0);
}

static CUfunction kernel(const char *name)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, module, name));
	return f;
}

static CUresult launch(CUfunction f, CUstream s)
{
	return cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
}

static CUstream stream(unsigned int flags)
{
	CUstream s;

	OK(cuStreamCreate(&s, flags));
	return s;
}

/* A word that the GPU and we see. */
static volatile uint32_t *word(CUdeviceptr *dev)
{
	void *p;

	OK(cuMemHostAlloc(&p, 4096, CU_MEMHOSTALLOC_DEVICEMAP));
	OK(cuMemHostGetDevicePointer(dev, p, 0));
	memset(p, 0, 4096);
	return p;
}

static void t_init(void)
{
	char name[64];
	const char *s;
	CUdevice dev;
	CUuuid a, b;
	size_t total;
	int n;

	IS(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
	IS(cuInit(1), CUDA_ERROR_INVALID_VALUE);
	OK(cuInit(0));
	OK(cuDeviceGetCount(&n));
	IS(n, 2);
	OK(cuDeviceGet(&dev, 1));
	IS(cuDeviceGet(&dev, 2), CUDA_ERROR_INVALID_DEVICE);
	OK(cuDeviceGetName(name, sizeof(name), 0));
	CHECK(strstr(name, "Simulated"));
	OK(cuDeviceTotalMem(&total, 0));
	IS(total, 8ull << 30);
	OK(cuDeviceGetUuid(&a, 0));
	OK(cuDeviceGetUuid(&b, 1));
	CHECK(memcmp(&a, &b, sizeof(a)));
	OK(cuDriverGetVersion(&n));
	IS(n, 13000);
	OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &s));
	CHECK(!strcmp(s, "CUDA_ERROR_OUT_OF_MEMORY"));
	OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &s));
	CHECK(!strcmp(s, "out of memory"));
	IS(cuGetErrorName((CUresult)12345, &s), CUDA_ERROR_INVALID_VALUE);
	CHECK(!s);
	IS(cuMemAlloc(&(CUdeviceptr){0}, 16), CUDA_ERROR_INVALID_CONTEXT);
}

static void t_context(void)
{
	CUcontext a, b, c;
	size_t before, after, total;
	unsigned int flags;
	int active;
	CUdevice dev;

	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&a, 0));
	OK(cuDevicePrimaryCtxRetain(&b, 0));
	CHECK(a == b);
	OK(cuCtxSetCurrent(a));
	OK(cuMemGetInfo(&before, &total));
	IS(total - before, 256u << 20);
	OK(cuCtxCreate_v3(&c, NULL, 0, CU_CTX_SCHED_YIELD, 0));
	OK(cuMemGetInfo(&after, &total));
	IS(before - after, 256u << 20);
	OK(cuCtxGetFlags(&flags));
	IS(flags, CU_CTX_SCHED_YIELD);
	OK(cuCtxPopCurrent(&b));
	CHECK(b == c);
	OK(cuCtxGetCurrent(&b));
	CHECK(b == a);
	OK(cuCtxPushCurrent(c));
	OK(cuCtxDestroy(c));
	OK(cuCtxGetCurrent(&b));
	CHECK(b == a);
	IS(cuCtxPushCurrent(c), CUDA_ERROR_CONTEXT_IS_DESTROYED);
	OK(cuMemGetInfo(&after, &total));
	IS(after, before);
	OK(cuCtxCreate_v4(&c, NULL, 0, 1));
	OK(cuCtxGetDevice_v2(&dev, NULL));
	IS(dev, 1);
	OK(cuCtxSynchronize_v2(c));
	OK(cuCtxEnablePeerAccess(a, 0));
	IS(cuCtxEnablePeerAccess(a, 0), CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
	OK(cuCtxDestroy(c));
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	IS(active, 1);
	OK(cuDevicePrimaryCtxRelease(0));
	OK(cuDevicePrimaryCtxRelease(0));
	IS(cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
	OK(cuDevicePrimaryCtxGetState(0, &flags, &active));
	IS(active, 0);
	IS(cuMemGetInfo(&after, &total), CUDA_ERROR_CONTEXT_IS_DESTROYED);
}

static void t_order(void)
{
	CUevent a, b;
	CUstream s;
	float ms;
	uint64_t t;

	up();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuEventCreate(&a, 0));
	OK(cuEventCreate(&b, 0));
	OK(cuEventRecord(a, s));
	t = now_us();
	OK(launch(kernel("sleep_us_60000_and_more"), s));
	OK(cuEventRecord(b, s));
	CHECK(now_us() - t < 40000); /* a launch does not wait */
	IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	IS(cuEventQuery(b), CUDA_ERROR_NOT_READY);
	IS(cuEventElapsedTime(&ms, a, b), CUDA_ERROR_NOT_READY);
	OK(cuEventSynchronize(b));
	CHECK(now_us() - t >= 60000);
	OK(cuEventElapsedTime(&ms, a, b));
	CHECK(ms >= 59 && ms < 1000);
	OK(cuStreamQuery(s));
	OK(launch(kernel("anything"), s));
	OK(cuStreamSynchronize(s));
	OK(cuStreamDestroy(s));
	IS(cuStreamQuery(s), CUDA_ERROR_INVALID_HANDLE);
}

/* A kernel that never ends holds its stream, nobody else, and not the process's exit. */
static void t_spin(void)
{
	pid_t pid = fork();
	CUstream a, b;
	size_t f, t;

	if (!pid) {
		up();
		a = stream(CU_STREAM_NON_BLOCKING);
		b = stream(CU_STREAM_NON_BLOCKING);
		OK(launch(kernel("spin_for_ever"), a));
		OK(launch(kernel("after"), a));
		OK(launch(kernel("other"), b));
		OK(cuStreamSynchronize(b));
		IS(cuStreamQuery(a), CUDA_ERROR_NOT_READY);
		OK(cuMemGetInfo(&f, &t));
		OK(cuStreamDestroy(a)); /* returns; the work goes on */
		exit(0);
	}
	IS(reap(pid), 0);
}

static void t_legacy(void)
{
	CUdeviceptr d;
	volatile uint32_t *w;
	CUstream blocking, loose;

	up();
	w = word(&d);
	blocking = stream(0);
	loose = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamWaitValue32(blocking, d, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(launch(kernel("k"), NULL)); /* behind the blocking stream */
	OK(cuStreamWriteValue32(NULL, d + 4, 7, 0));
	OK(cuStreamWriteValue32(loose, d + 8, 8, 0));
	OK(cuStreamSynchronize(loose));
	IS(w[2], 8);
	sleep_ms(30);
	IS(w[1], 0);
	IS(cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
	w[0] = 1;
	OK(cuStreamSynchronize(NULL));
	IS(w[1], 7);
	/* The other way round: blocking streams wait for the legacy one. */
	w[0] = 0;
	OK(cuStreamWaitValue32(CU_STREAM_LEGACY, d, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamWriteValue32(blocking, d + 12, 9, 0));
	sleep_ms(30);
	IS(w[3], 0);
	w[0] = 1;
	OK(cuStreamSynchronize(blocking));
	IS(w[3], 9);
}

static void *thread_work(void *arg)
{
	CUstream *mine = arg;
	unsigned long long id;

	OK(cuCtxSetCurrent(ctx));
	OK(cuStreamGetId(CU_STREAM_PER_THREAD, &id));
	*(unsigned long long *)mine = id;
	OK(launch(kernel("k"), CU_STREAM_PER_THREAD));
	OK(cuStreamSynchronize_ptsz(NULL));
	return NULL;
}

static void t_thread_streams(void)
{
	unsigned long long here, there, legacy;
	pthread_t t;
	CUdeviceptr d;
	volatile uint32_t *w;

	up();
	w = word(&d);
	/* Ours waits; the other thread's own default stream does not. */
	OK(cuStreamWaitValue32_ptsz(NULL, d, 1, CU_STREAM_WAIT_VALUE_EQ));
	OK(cuStreamGetId_ptsz(NULL, &here));
	OK(cuStreamGetId(NULL, &legacy));
	OK(pthread_create(&t, NULL, thread_work, &there));
	OK(pthread_join(t, NULL));
	CHECK(here != there && here != legacy);
	IS(cuStreamQuery(CU_STREAM_PER_THREAD), CUDA_ERROR_NOT_READY);
	w[0] = 1;
	OK(cuStreamSynchronize_ptsz(NULL));
}

static void t_values(void)
{
	static const struct {
		unsigned int flags;
		uint32_t want, no, yes;
	} cases[] = {
		{CU_STREAM_WAIT_VALUE_GEQ, 5, 4, 6},
		{CU_STREAM_WAIT_VALUE_GEQ, 0xfffffffeu, 0xfffffffdu, 2}, /* cyclic */
		{CU_STREAM_WAIT_VALUE_EQ, 5, 6, 5},
		{CU_STREAM_WAIT_VALUE_AND, 6, 1, 2},
		{CU_STREAM_WAIT_VALUE_NOR, 0xfffffff0u, 0x0000000fu, 1},
		{CU_STREAM_WAIT_VALUE_EQ | CU_STREAM_WAIT_VALUE_FLUSH, 5, 6, 5},
	};
	CUstream s;
	CUdeviceptr d;
	volatile uint32_t *w;
	uint32_t pageable = 0;

	up();
	w = word(&d);
	s = stream(CU_STREAM_NON_BLOCKING);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		w[0] = cases[i].no;
		OK(cuStreamWaitValue32(s, d, cases[i].want, cases[i].flags));
		OK(cuStreamWriteValue32(s, d + 4, (uint32_t)i + 1, 0));
		sleep_ms(5);
		IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
		w[0] = cases[i].yes;
		OK(cuStreamSynchronize(s));
		IS(w[1], i + 1);
	}
	*(volatile uint64_t *)(w + 4) = 1ull << 40;
	OK(cuStreamWaitValue64(s, d + 16, 2ull << 40, CU_STREAM_WAIT_VALUE_GEQ));
	sleep_ms(5);
	IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
	*(volatile uint64_t *)(w + 4) = 3ull << 40;
	OK(cuStreamSynchronize(s));
	OK(cuStreamWriteValue64(s, d + 16, 77, 0));
	OK(cuStreamSynchronize(s));
	IS(*(volatile uint64_t *)(w + 4), 77);
	IS(cuStreamWriteValue32(s, (CUdeviceptr)&pageable, 1, 0), CUDA_ERROR_INVALID_VALUE);
	IS(cuStreamWriteValue32(s, d, 1, CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER),
	   CUDA_ERROR_INVALID_VALUE);
	IS(cuStreamWaitValue32(s, d + 2, 1, 0), CUDA_ERROR_INVALID_VALUE);
}

static void t_batch(void)
{
	CUstreamBatchMemOpParams p[3];
	CUstream s;
	CUdeviceptr d;
	volatile uint32_t *w;

	up();
	w = word(&d);
	s = stream(CU_STREAM_NON_BLOCKING);
	memset(p, 0, sizeof(p));
	p[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
	p[0].writeValue.address = d;
	p[0].writeValue.value = 11;
	p[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
	p[1].waitValue.address = d + 4;
	p[1].waitValue.value = 1;
	p[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
	p[2].writeValue.address = d + 8;
	p[2].writeValue.value64 = 22;
	OK(cuStreamBatchMemOp(s, 3, p, 0));
	sleep_ms(10);
	IS(w[0], 11);
	IS(w[2], 0);
	w[1] = 1;
	OK(cuStreamSynchronize(s));
	IS(w[2], 22);
}

static void t_events(void)
{
	CUevent never, e;
	CUstream a, b;
	CUdeviceptr d;
	volatile uint32_t *w;
	float ms;

	up();
	w = word(&d);
	a = stream(CU_STREAM_NON_BLOCKING);
	b = stream(CU_STREAM_NON_BLOCKING);
	OK(cuEventCreate(&never, 0));
	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamWaitEvent(a, never, 0));
	OK(cuStreamSynchronize(a));
	OK(cuEventQuery(never));
	OK(cuEventSynchronize(never));
	IS(cuEventElapsedTime(&ms, e, e), CUDA_ERROR_INVALID_HANDLE);
	/* b waits for what e stood for at the call; recording e again does not move that. */
	OK(cuStreamWaitValue32(a, d, 1, 0));
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	OK(cuStreamWaitValue32(a, d, 2, 0));
	OK(cuEventRecord(e, a));
	OK(cuStreamWriteValue32(b, d + 4, 5, 0));
	sleep_ms(10);
	IS(w[1], 0);
	w[0] = 1;
	OK(cuStreamSynchronize(b));
	IS(w[1], 5);
	IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	w[0] = 2;
	OK(cuEventSynchronize(e));
	OK(cuEventDestroy(e));
	IS(cuEventQuery(e), CUDA_ERROR_INVALID_HANDLE);
}

static volatile int called;
static CUresult in_callback;

static void CUDA_CB host_fn(void *arg)
{
	CUdeviceptr p;

	sleep_ms(20);
	in_callback = cuMemAlloc(&p, 16);
	called += (int)(intptr_t)arg;
}

static void CUDA_CB stream_fn(CUstream s, CUresult status, void *arg)
{
	CHECK(s == *(CUstream *)arg);
	IS(status, CUDA_SUCCESS);
	called = called * 10;
}

static void t_callbacks(void)
{
	CUstream s;

	up();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuLaunchHostFunc(s, host_fn, (void *)3));
	OK(cuStreamAddCallback(s, stream_fn, &s, 0));
	OK(cuLaunchHostFunc(s, host_fn, (void *)4));
	IS(called, 0);
	OK(cuStreamSynchronize(s));
	IS(called, 34);
	IS(in_callback, CUDA_ERROR_NOT_PERMITTED);
}

static volatile int launched;

static void *launch_many(void *arg)
{
	OK(cuCtxSetCurrent(ctx));
	for (int i = 0; i < 1500; i++) {
		OK(launch(kernel("k"), arg));
		launched = i + 1;
	}
	return NULL;
}

/* A full queue makes the launch wait. */
static void t_queue(void)
{
	CUstream s;
	CUdeviceptr d;
	volatile uint32_t *w;
	pthread_t t;
	int at;

	up();
	w = word(&d);
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamWaitValue32(s, d, 1, 0));
	OK(pthread_create(&t, NULL, launch_many, s));
	sleep_ms(200);
	at = launched;
	CHECK(at > 900 && at < 1100);
	sleep_ms(50);
	IS(launched, at);
	w[0] = 1;
	OK(pthread_join(t, NULL));
	IS(launched, 1500);
	OK(cuStreamSynchronize(s));
}

static void t_launch_blocking(void)
{
	uint64_t t;

	setenv("CUDA_LAUNCH_BLOCKING", "1", 1);
	up();
	t = now_us();
	OK(launch(kernel("sleep_us_50000"), NULL));
	CHECK(now_us() - t >= 50000);
}

static volatile uint64_t copied;

static void *copy_later(void *arg)
{
	static char buf[64];

	(void)arg;
	OK(cuCtxSetCurrent(ctx));
	sleep_ms(60);
	OK(cuMemcpyHtoDAsync(*(CUdeviceptr *)arg, buf, sizeof(buf), CU_STREAM_PER_THREAD));
	copied = now_us();
	return NULL;
}

/* The first launch of a function holds the context and waits until the device is idle. */
static void t_lazy(void)
{
	CUdeviceptr d;
	CUstream a, b;
	CUfunction busy, late;
	pthread_t t;
	uint64_t began, launched_at;

	setenv("CUDA_MODULE_LOADING", "LAZY", 1);
	up();
	OK(cuMemAlloc(&d, 64));
	a = stream(CU_STREAM_NON_BLOCKING);
	b = stream(CU_STREAM_NON_BLOCKING);
	busy = kernel("sleep_us_300000");
	late = kernel("late");
	OK(pthread_create(&t, NULL, copy_later, &d));
	began = now_us();
	OK(launch(busy, a)); /* the device is idle: at once */
	CHECK(now_us() - began < 200000);
	OK(launch(late, b));
	launched_at = now_us();
	CHECK(launched_at - began >= 290000);
	OK(pthread_join(t, NULL));
	CHECK(copied - began >= 290000); /* an unrelated copy queued behind the held context */
	began = now_us();
	OK(launch(busy, a));
	OK(launch(late, b)); /* loaded by now */
	CHECK(now_us() - began < 200000);
}

static void t_free_waits(void)
{
	CUdeviceptr d, e;
	CUstream s;
	uint64_t t;

	up();
	OK(cuMemAlloc(&d, 1 << 20));
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(launch(kernel("sleep_us_80000"), s));
	t = now_us();
	OK(cuMemAlloc(&e, 1 << 20));
	CHECK(now_us() - t < 60000);
	OK(cuMemFree(d));
	CHECK(now_us() - t >= 70000);
	IS(cuMemFree(d), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree(0));
	OK(cuMemFree(e));
}

static void t_host_free_waits(void)
{
	CUcontext other;
	CUstream s;
	CUmodule m;
	CUfunction f;
	void *p;
	uint64_t t;

	up();
	OK(cuMemHostAlloc(&p, 4096, 0));
	OK(cuCtxCreate_v2(&other, 0, 1));
	OK(cuModuleLoadData(&m, "x"));
	OK(cuModuleGetFunction(&f, m, "sleep_us_80000"));
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(launch(f, s));
	OK(cuCtxSetCurrent(ctx));
	t = now_us();
	OK(cuMemFreeHost(p)); /* the other device may be using it */
	CHECK(now_us() - t >= 70000);
}

static void t_pageable(void)
{
	static char big[1 << 20];
	CUdeviceptr d;
	CUstream s;
	char small[64] = "abc", back[64] = "";
	void *pinned;
	uint64_t t;

	up();
	OK(cuMemAlloc(&d, sizeof(big)));
	OK(cuMemHostAlloc(&pinned, 64, 0));
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(launch(kernel("sleep_us_80000"), s));
	t = now_us();
	OK(cuMemcpyHtoDAsync(d, small, sizeof(small), s)); /* staged */
	memset(small, 0, sizeof(small));
	OK(cuMemcpyDtoHAsync(pinned, d, 64, s)); /* really asynchronous */
	CHECK(now_us() - t < 60000);
	OK(cuMemcpyDtoHAsync(back, d, sizeof(back), s)); /* waits */
	CHECK(now_us() - t >= 70000);
	CHECK(!strcmp(back, "abc"));
	CHECK(!strcmp(pinned, "abc"));
	OK(launch(kernel("sleep_us_80000"), s));
	t = now_us();
	OK(cuMemcpyHtoDAsync(d, big, sizeof(big), s)); /* too large to stage */
	CHECK(now_us() - t >= 70000);
	IS(cuMemcpyHtoD((CUdeviceptr)small, big, 8), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemcpyHtoD(d, big, sizeof(big) + 1), CUDA_ERROR_INVALID_VALUE);
}

static void t_fork(void)
{
	size_t f, t;
	pid_t pid;
	int n;

	up();
	OK(launch(kernel("spin"), stream(CU_STREAM_NON_BLOCKING)));
	pid = fork();
	if (!pid) {
		IS(cuInit(0), CUDA_ERROR_NOT_INITIALIZED);
		IS(cuDeviceGetCount(&n), CUDA_ERROR_NOT_INITIALIZED);
		IS(cuMemGetInfo(&f, &t), CUDA_ERROR_NOT_INITIALIZED);
		IS(cuStreamSynchronize(NULL), CUDA_ERROR_NOT_INITIALIZED);
		exit(0);
	}
	IS(reap(pid), 0);
	OK(cuMemGetInfo(&f, &t));
	IS(t - f, 256u << 20); /* the child's end freed nothing of ours */
}

/* The GPU writes where nothing is any more: the context is broken for good. */
static void t_fault(void)
{
	CUdeviceptr gate;
	volatile uint32_t *w;
	static _Alignas(4096) char page[4096];
	CUstream s;
	size_t f, t;

	up();
	w = word(&gate);
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemHostRegister(page, sizeof(page), CU_MEMHOSTREGISTER_DEVICEMAP));
	OK(cuStreamWaitValue32(s, gate, 1, 0));
	OK(cuStreamWriteValue32(s, (CUdeviceptr)page, 1, 0));
	w[0] = 1;
	OK(cuStreamSynchronize(s));
	IS(*(uint32_t *)page, 1);
	{
		CUdeviceptr d;

		OK(cuMemAllocAsync(&d, 64, s));
		OK(cuStreamSynchronize(s));
		w[0] = 0;
		OK(cuStreamWaitValue32(s, gate, 1, 0));
		OK(cuMemFreeAsync(d, s));
		OK(cuStreamWriteValue32(s, d, 1, 0));
		w[0] = 1;
	}
	IS(cuStreamSynchronize(s), CUDA_ERROR_ILLEGAL_ADDRESS);
	IS(cuMemGetInfo(&f, &t), CUDA_ERROR_ILLEGAL_ADDRESS);
	IS(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS);
}

static volatile pid_t sync_tid;
static CUstream sync_stream;

static void *sync_thread(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(ctx));
	sync_tid = (pid_t)syscall(SYS_gettid);
	OK(cuStreamSynchronize(sync_stream));
	return NULL;
}

/* CPU ticks and state of a thread that is inside a synchronisation. */
static char state_of(pid_t tid, unsigned long *ticks)
{
	char path[64], line[512], *p;
	unsigned long user, sys;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", tid);
	f = fopen(path, "r");
	CHECK(f && fgets(line, sizeof(line), f));
	fclose(f);
	p = strrchr(line, ')') + 2;
	CHECK(sscanf(p, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &sys) == 2);
	*ticks = user + sys;
	return *p;
}

static void sync_style(unsigned int flags, bool sleeps)
{
	CUdeviceptr d;
	volatile uint32_t *w;
	unsigned long before, after;
	int running = 0;
	pthread_t t;

	up_with(flags);
	w = word(&d);
	sync_stream = stream(CU_STREAM_NON_BLOCKING);
	OK(cuStreamWaitValue32(sync_stream, d, 1, 0));
	OK(pthread_create(&t, NULL, sync_thread, NULL));
	while (!sync_tid)
		sleep_ms(1);
	sleep_ms(100);
	state_of(sync_tid, &before);
	for (int i = 0; i < 20; i++) {
		running += state_of(sync_tid, &after) == 'R';
		sleep_ms(10);
	}
	if (sleeps) {
		CHECK(running == 0 && after - before <= 1);
	} else {
		CHECK(running >= 15);
		/* On a busy machine it gets its share late. */
		for (int i = 0; i < 2000 && after == before; i++) {
			sleep_ms(10);
			state_of(sync_tid, &after);
		}
		CHECK(after > before);
	}
	w[0] = 1;
	OK(pthread_join(t, NULL));
}

static void t_blocking_sync(void)
{
	sync_style(CU_CTX_SCHED_BLOCKING_SYNC, true);
}

static void t_spin_sync(void)
{
	sync_style(CU_CTX_SCHED_AUTO, false);
}

/* The workers are named, and take no signal that is meant for the program. */
static void t_workers(void)
{
	char path[300], line[256];
	struct dirent *e;
	int found = 0;
	DIR *d;

	up();
	OK(launch(kernel("spin"), stream(CU_STREAM_NON_BLOCKING)));
	d = opendir("/proc/self/task");
	CHECK(d);
	while ((e = readdir(d))) {
		unsigned long long blocked = 0;
		int ours = 0, tries = 0;
		FILE *f;

		if (e->d_name[0] == '.' || atoi(e->d_name) == getpid())
			continue;
		snprintf(path, sizeof(path), "/proc/self/task/%s/status", e->d_name);
		do { /* it names itself, when it first runs */
			if (tries)
				sleep_ms(10);
			f = fopen(path, "r");
			CHECK(f);
			while (fgets(line, sizeof(line), f)) {
				ours |= !strncmp(line, "Name:\tcuda-sim", 14);
				sscanf(line, "SigBlk: %llx", &blocked);
			}
			fclose(f);
		} while (!ours && !getenv("LD_PRELOAD") && ++tries < 500);
		if (!ours && getenv("LD_PRELOAD"))
			continue; /* what is preloaded has threads of its own */
		CHECK(ours);
		CHECK(blocked & (1ull << 22)); /* SIGURG */
		found++;
	}
	closedir(d);
	IS(found, 1);
}

/* What a kernel does by its name, with C++ names. */
static void t_names(void)
{
	static const struct {
		const char *name;
		int spins;
	} cases[] = {
		{"spin", 1},
		{"spinning_kernel", 1},
		{"Spin", 0},
		{"no_spin", 0},
		{"_Z4spinPi", 1},
		{"_Z9not_spun_v", 0},
		{"_ZN2ns8spin_allEPf", 1},
		{"_ZN12_GLOBAL__N_14spinEv", 1},
		{"_Z4spinIfEvPT_", 1},
		{"_ZN3FooIiE4spinEv", 1},
		{"_ZN4spin3runEv", 0},
		{"_Z3runI4spinEvT_", 0},
		{"", 0},
	};
	const char *name;

	up();
	for (size_t i = 0; cases[i].name[0]; i++) {
		CUstream s = stream(CU_STREAM_NON_BLOCKING);
		CUfunction f = kernel(cases[i].name);

		OK(cuFuncGetName(&name, f));
		CHECK(!strcmp(name, cases[i].name));
		OK(launch(f, s));
		sleep_ms(2);
		if ((cuStreamQuery(s) == CUDA_ERROR_NOT_READY) != cases[i].spins) {
			fprintf(stderr, "%s\n", cases[i].name);
			exit(1);
		}
	}
	IS(cuLaunchKernel(kernel("k"), 0, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL),
	   CUDA_ERROR_INVALID_VALUE);
	IS(cuLaunchKernel(kernel("k"), 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL),
	   CUDA_ERROR_INVALID_VALUE);
	IS(cuModuleGetFunction(&(CUfunction){0}, module, ""), CUDA_ERROR_INVALID_VALUE);
}

/* SIMGPU_LOG: a line an event, for tests that want to know what really happened. */
static void t_log(void)
{
	char path[] = "simgpu-log-XXXXXX", line[512];
	int fd = mkstemp(path), launches = 0, starts = 0, allocs = 0;
	CUdeviceptr d;
	CUstream s;
	FILE *f;

	CHECK(fd >= 0);
	setenv("SIMGPU_LOG", path, 1);
	up();
	s = stream(CU_STREAM_NON_BLOCKING);
	OK(cuMemAlloc(&d, 12345));
	OK(launch(kernel("sleep_us_10"), s));
	OK(launch(kernel("quick"), s));
	OK(cuStreamSynchronize(s));
	f = fopen(path, "r");
	CHECK(f && !unlink(path));
	while (fgets(line, sizeof(line), f)) {
		unsigned long long ns;
		int pid, tid;
		char what[32];

		CHECK(sscanf(line, "%llu %d %d %31s", &ns, &pid, &tid, what) == 4);
		IS(pid, getpid());
		launches += !strcmp(what, "launch");
		starts += !strcmp(what, "start") && strstr(line, "kernel=sleep_us_10");
		allocs += !strcmp(what, "alloc") && strstr(line, "bytes=12345 error=0");
	}
	fclose(f);
	IS(launches, 2);
	IS(starts, 1);
	IS(allocs, 1);
}

MAIN({"init", t_init}, {"context", t_context}, {"order", t_order}, {"spin", t_spin},
     {"legacy", t_legacy}, {"thread-streams", t_thread_streams}, {"values", t_values},
     {"batch", t_batch}, {"events", t_events}, {"callbacks", t_callbacks}, {"queue", t_queue},
     {"launch-blocking", t_launch_blocking}, {"lazy", t_lazy}, {"free-waits", t_free_waits},
     {"host-free-waits", t_host_free_waits}, {"pageable", t_pageable}, {"fork", t_fork},
     {"fault", t_fault}, {"blocking-sync", t_blocking_sync}, {"spin-sync", t_spin_sync},
     {"workers", t_workers}, {"names", t_names}, {"log", t_log})
