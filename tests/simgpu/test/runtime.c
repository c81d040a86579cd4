// SPDX-License-Identifier: Apache-2.0
/*
 * runtime.c - the runtime, with kernels registered the way nvcc's code does it, so that no nvcc is
 * needed here.
 */
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdbool.h>

#include "tests.h"

#ifdef __cplusplus
#error "C only"
#endif

void **__cudaRegisterFatBinary(void *);
void __cudaRegisterFatBinaryEnd(void **);
void __cudaRegisterFunction(void **, const char *, char *, const char *, int, uint3 *, uint3 *,
			    dim3 *, dim3 *, int *);
void __cudaRegisterVar(void **, char *, char *, const char *, int, size_t, int, int);
unsigned int __cudaPushCallConfiguration(dim3, dim3, size_t, void *);
cudaError_t __cudaPopCallConfiguration(dim3 *, dim3 *, size_t *, void *);

/* What nvcc writes: a wrapper around an image, host stubs and shadow variables. */
static const struct {
	int magic, version;
	const void *data;
	void *more;
} wrapper = {0x466243b1, 1, "an image", NULL};

static void stub(dim3 dummy)
{
	(void)dummy;
}
static char spin_stub, quick_stub, slow_stub;
static char variable[100], large[1 << 20];
static const dim3 one = {1, 1, 1};

__attribute__((constructor)) static void register_all(void)
{
	void **h = __cudaRegisterFatBinary((void *)&wrapper);

	__cudaRegisterFunction(h, (const char *)stub, (char *)"_Z5plainv", "_Z5plainv", -1, 0, 0, 0,
			       0, 0);
	__cudaRegisterFunction(h, &spin_stub, (char *)"_Z4spinv", "_Z4spinv", -1, 0, 0, 0, 0, 0);
	__cudaRegisterFunction(h, &quick_stub, (char *)"_Z5quickPf", "_Z5quickPf", -1, 0, 0, 0, 0,
			       0);
	__cudaRegisterFunction(h, &slow_stub, (char *)"_Z14sleep_us_80000v", "_Z14sleep_us_80000v",
			       -1, 0, 0, 0, 0, 0);
	__cudaRegisterVar(h, variable, variable, "variable", 0, sizeof(variable), 0, 0);
	__cudaRegisterVar(h, large, large, "large", 0, sizeof(large), 0, 0);
	__cudaRegisterFatBinaryEnd(h);
}

/* kernel<<<g, b, shared, stream>>>() as nvcc compiles it */
static cudaError_t chevrons(const void *f, cudaStream_t stream)
{
	dim3 g, b;
	size_t shared;
	void *s;

	if (__cudaPushCallConfiguration(one, one, 16, stream))
		return cudaErrorUnknown;
	OK(__cudaPopCallConfiguration(&g, &b, &shared, &s));
	IS(shared, 16);
	return cudaLaunchKernel(f, g, b, NULL, shared, (cudaStream_t)s);
}

static void t_kernels(void)
{
	struct cudaFuncAttributes a;
	cudaLaunchConfig_t c = {.gridDim = {1, 1, 1}, .blockDim = {32, 1, 1}};
	cudaStream_t s, t;
	const char *name;
	cudaFunction_t f;
	uint64_t at;
	int n;

	OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	OK(cudaStreamCreateWithFlags(&t, cudaStreamNonBlocking));
	OK(chevrons((const void *)stub, s));
	OK(cudaFuncGetName(&name, &quick_stub));
	CHECK(!strcmp(name, "_Z5quickPf"));
	OK(cudaFuncGetAttributes(&a, &quick_stub));
	IS(a.maxThreadsPerBlock, 1024);
	OK(cudaGetFuncBySymbol(&f, &quick_stub));
	OK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, &quick_stub, 256, 0));
	IS(n, 8);
	at = now_us();
	OK(chevrons(&slow_stub, s));
	CHECK(now_us() - at < 60000);
	OK(cudaStreamSynchronize(s));
	CHECK(now_us() - at >= 80000);
	c.stream = t;
	OK(cudaLaunchKernelExC(&c, &quick_stub, NULL));
	OK(cudaStreamSynchronize(t));
	OK(chevrons(&spin_stub, s));
	IS(cudaStreamQuery(s), cudaErrorNotReady);
	IS(cudaLaunchKernel("nobody's stub", one, one, NULL, 0, s), cudaErrorInvalidDeviceFunction);
	IS(cudaLaunchKernel(&quick_stub, (dim3){0, 1, 1}, one, NULL, 0, t),
	   cudaErrorInvalidConfiguration);
	/* On the second device it is another instance of the same kernel. */
	OK(cudaSetDevice(1));
	OK(cudaLaunchKernel(&quick_stub, one, one, NULL, 0, NULL));
	OK(cudaDeviceSynchronize());
}

static void t_memory(void)
{
	struct cudaPointerAttributes a;
	char in[300], out[300];
	size_t f, t, pitch, before;
	void *d, *h, *m, *e;
	cudaStream_t s;

	OK(cudaFree(0));
	OK(cudaMemGetInfo(&before, &t));
	IS(t - before, 256u << 20);
	for (int i = 0; i < 300; i++)
		in[i] = (char)i;
	OK(cudaMalloc(&d, 300));
	OK(cudaMemcpy(d, in, 300, cudaMemcpyHostToDevice));
	OK(cudaMemcpy(out, d, 300, cudaMemcpyDefault));
	CHECK(!memcmp(in, out, 300));
	OK(cudaMemset(d, 9, 300));
	OK(cudaMemcpy(out, d, 300, cudaMemcpyDeviceToHost));
	IS(out[299], 9);
	OK(cudaPointerGetAttributes(&a, d));
	IS(a.type, cudaMemoryTypeDevice);
	OK(cudaPointerGetAttributes(&a, in));
	IS(a.type, cudaMemoryTypeUnregistered);
	OK(cudaMallocHost(&h, 300));
	OK(cudaPointerGetAttributes(&a, h));
	IS(a.type, cudaMemoryTypeHost);
	OK(cudaMallocManaged(&m, 300, cudaMemAttachGlobal));
	OK(cudaPointerGetAttributes(&a, m));
	IS(a.type, cudaMemoryTypeManaged);
	OK(cudaStreamCreate(&s));
	OK(cudaMallocAsync(&e, 1 << 20, s));
	OK(cudaMemcpyAsync(e, d, 300, cudaMemcpyDeviceToDevice, s));
	OK(cudaMemcpyAsync(h, e, 300, cudaMemcpyDeviceToHost, s));
	OK(cudaFreeAsync(e, s));
	OK(cudaStreamSynchronize(s));
	IS(((char *)h)[0], 9);
	IS(cudaMalloc(&e, 9ull << 30), cudaErrorMemoryAllocation);
	IS(cudaGetLastError(), cudaErrorMemoryAllocation);
	IS(cudaGetLastError(), cudaSuccess);
	OK(cudaMalloc(&e, 0));
	CHECK(!e);
	OK(cudaFree(d));
	OK(cudaFree(m));
	OK(cudaFreeHost(h));
	OK(cudaMallocPitch(&d, &pitch, 100, 3));
	IS(pitch, 512);
	OK(cudaMemcpy2D(d, pitch, in, 100, 100, 3, cudaMemcpyHostToDevice));
	OK(cudaMemcpy2D(out, 100, d, pitch, 100, 3, cudaMemcpyDeviceToHost));
	CHECK(!memcmp(in, out, 300));
	OK(cudaFree(d));
	OK(cudaMemGetInfo(&f, &t));
	IS(f, before);
	OK(cudaDeviceReset());
	OK(cudaMalloc(&d, 16)); /* comes up again by itself */
}

static volatile int called;
static void CUDART_CB count_call(void *arg)
{
	called += (int)(intptr_t)arg;
}
static void CUDART_CB stream_call(cudaStream_t s, cudaError_t e, void *arg)
{
	(void)s;
	IS(e, cudaSuccess);
	called *= (int)(intptr_t)arg;
}

static void *other_thread(void *arg)
{
	(void)arg;
	/* Device 0 is every thread's own beginning; the per-thread stream is its own. */
	OK(chevrons(&quick_stub, cudaStreamPerThread));
	OK(cudaStreamSynchronize(cudaStreamPerThread));
	return NULL;
}

static void t_streams(void)
{
	cudaEvent_t a, b;
	cudaStream_t s;
	pthread_t t;
	float ms;
	int dev;

	OK(cudaSetDevice(1));
	OK(cudaGetDevice(&dev));
	IS(dev, 1);
	OK(cudaStreamCreateWithPriority(&s, cudaStreamNonBlocking, -2));
	OK(cudaStreamGetPriority(s, &dev));
	IS(dev, -2);
	OK(cudaStreamGetDevice(s, &dev));
	IS(dev, 1);
	OK(cudaEventCreate(&a));
	OK(cudaEventCreateWithFlags(&b, cudaEventBlockingSync));
	OK(cudaEventRecord(a, s));
	OK(chevrons(&slow_stub, s));
	OK(cudaLaunchHostFunc(s, count_call, (void *)2));
	OK(cudaStreamAddCallback(s, stream_call, (void *)5, 0));
	OK(cudaEventRecord(b, s));
	IS(cudaEventQuery(b), cudaErrorNotReady);
	OK(cudaEventSynchronize(b));
	IS(called, 10);
	OK(cudaEventElapsedTime(&ms, a, b));
	CHECK(ms >= 79);
	OK(chevrons(&spin_stub, cudaStreamPerThread));
	OK(cudaSetDevice(0));
	OK(pthread_create(&t, NULL, other_thread, NULL));
	OK(pthread_join(t, NULL));
}

static void t_properties(void)
{
	struct cudaDeviceProp p;
	char id[32];
	int n, v;

	OK(cudaGetDeviceCount(&n));
	IS(n, 2);
	OK(cudaGetDeviceProperties(&p, 1));
	CHECK(strstr(p.name, "Simulated"));
	IS(p.totalGlobalMem, 8ull << 30);
	IS(p.major, 9);
	IS(p.warpSize, 32);
	IS(p.pciBusID, 2);
	IS(cudaGetDeviceProperties(&p, 7), cudaErrorInvalidDevice);
	OK(cudaDeviceGetAttribute(&v, cudaDevAttrMultiProcessorCount, 0));
	CHECK(v > 0);
	OK(cudaDeviceGetPCIBusId(id, sizeof(id), 1));
	OK(cudaDeviceGetByPCIBusId(&v, id));
	IS(v, 1);
	OK(cudaRuntimeGetVersion(&v));
	IS(v, 13000);
	OK(cudaDriverGetVersion(&v));
	IS(v, 13000);
	OK(cudaDeviceCanAccessPeer(&v, 0, 1));
	IS(v, 1);
	OK(cudaDeviceEnablePeerAccess(1, 0));
	IS(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled);
}

static void t_errors(void)
{
	enum cudaDriverEntryPointQueryResult st;
	void *p, *q;

	CHECK(!strcmp(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation"));
	CHECK(!strcmp(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory"));
	IS(cudaSetDevice(99), cudaErrorInvalidDevice);
	IS(cudaPeekAtLastError(), cudaErrorInvalidDevice);
	IS(cudaPeekAtLastError(), cudaErrorInvalidDevice);
	IS(cudaGetLastError(), cudaErrorInvalidDevice);
	IS(cudaPeekAtLastError(), cudaSuccess);
	OK(cudaGetDriverEntryPointByVersion("cuLaunchKernel", &p, 13000, cudaEnableLegacyStream,
					    &st));
	IS(st, cudaDriverEntryPointSuccess);
	OK(cudaGetDriverEntryPointByVersion("cuLaunchKernel", &q, 13000,
					    cudaEnablePerThreadDefaultStream, &st));
	CHECK(p && q && p != q);
	OK(cudaGetDriverEntryPointByVersion("cuNothing", &p, 13000, cudaEnableDefault, &st));
	IS(st, cudaDriverEntryPointSymbolNotFound);
	if (!fork()) { /* before CUDA came up: a child may use it */
		IS(cudaFree(0), cudaSuccess);
		exit(0);
	}
	wait(NULL);
	OK(cudaFree(0));
	{
		pid_t pid = fork();

		if (!pid) {
			IS(cudaFree(0), cudaErrorInitializationError);
			exit(0);
		}
		IS(reap(pid), 0);
	}
}

static void t_symbols(void)
{
	char in[100], out[100] = "";
	size_t size;
	void *p, *q;

	memset(in, 7, sizeof(in));
	OK(cudaGetSymbolSize(&size, variable));
	IS(size, sizeof(variable));
	OK(cudaMemcpyToSymbol(variable, in, 50, 50, cudaMemcpyHostToDevice));
	OK(cudaMemcpyFromSymbol(out, variable, 100, 0, cudaMemcpyDeviceToHost));
	IS(out[49], 0);
	IS(out[99], 7);
	OK(cudaGetSymbolAddress(&p, variable));
	OK(cudaGetSymbolAddress(&q, large));
	CHECK(p && q && p != q);
	OK(cudaMemset(q, 1, sizeof(large)));
	IS(cudaMemcpyToSymbol(variable, in, 100, 1, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
	IS(cudaGetSymbolAddress(&p, "nobody's"), cudaErrorInvalidSymbol);
}

static void t_graphs(void)
{
	struct cudaKernelNodeParams k = {
		.func = &quick_stub, .gridDim = {1, 1, 1}, .blockDim = {1, 1, 1}};
	struct cudaHostNodeParams h = {count_call, (void *)1};
	enum cudaStreamCaptureStatus st;
	cudaGraphNode_t n[2];
	cudaGraphExec_t x;
	cudaStream_t s;
	cudaGraph_t g;

	OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal));
	OK(chevrons(&quick_stub, s));
	OK(cudaLaunchHostFunc(s, count_call, (void *)10));
	OK(cudaStreamIsCapturing(s, &st));
	IS(st, cudaStreamCaptureStatusActive);
	OK(cudaStreamEndCapture(s, &g));
	OK(cudaGraphAddKernelNode(&n[0], g, NULL, 0, &k));
	OK(cudaGraphAddHostNode(&n[1], g, n, 1, &h));
	OK(cudaGraphInstantiate(&x, g, 0));
	OK(cudaGraphLaunch(x, s));
	OK(cudaGraphLaunch(x, s));
	OK(cudaStreamSynchronize(s));
	IS(called, 22);
	OK(cudaGraphExecDestroy(x));
	OK(cudaGraphDestroy(g));
}

MAIN({"kernels", t_kernels}, {"memory", t_memory}, {"streams", t_streams},
     {"properties", t_properties}, {"errors", t_errors}, {"symbols", t_symbols},
     {"graphs", t_graphs})
