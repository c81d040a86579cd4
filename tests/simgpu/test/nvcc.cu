// SPDX-License-Identifier: Apache-2.0
// A program as people write them, compiled by nvcc and run on the simulated GPU.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#define CHECK(x)                                                                                   \
	do {                                                                                       \
		if (!(x)) {                                                                        \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #x);                    \
			exit(1);                                                                   \
		}                                                                                  \
	} while (0)
#define OK(x) CHECK((x) == cudaSuccess)

__device__ int counter[4];
__constant__ float table[16];
__managed__ int shared_with_host = 3;

namespace {
__global__ void spin_here(volatile int *flag)
{
	while (!*flag)
		;
}
}
template <typename T> __global__ void add(T *a, const T *b, int n)
{
	int i = blockIdx.x * blockDim.x + threadIdx.x;

	if (i < n)
		a[i] += b[i];
}
__global__ void sleep_us_50000(void)
{
}

int main(int argc, char **argv)
{
	bool per_thread = argc > 1 && !strcmp(argv[1], "per-thread");
	float *a, *b, in[16] = { 1 };
	int v[4] = { 1, 2, 3, 4 }, out[4] = { 0 };
	cudaDeviceProp prop;
	cudaFuncAttributes attr;
	cudaStream_t s;

	OK(cudaGetDeviceProperties(&prop, 0));
	CHECK(!strcmp(prop.name, "Simulated GPU") && prop.major == 9);
	OK(cudaMalloc(&a, 4096));
	OK(cudaMalloc(&b, 4096));
	add<float><<<4, 256>>>(a, b, 1024);
	OK(cudaGetLastError());
	add<double><<<4, 256, 128>>>((double *)a, (double *)b, 512);
	OK(cudaDeviceSynchronize());
	add<float><<<0, 1>>>(a, b, 1);
	CHECK(cudaGetLastError() == cudaErrorInvalidConfiguration);
	OK(cudaMemcpyToSymbol(counter, v, sizeof(v)));
	OK(cudaMemcpyFromSymbol(out, counter, sizeof(out)));
	CHECK(!memcmp(v, out, sizeof(v)));
	OK(cudaMemcpyToSymbol(table, in, sizeof(in)));
	shared_with_host++;
	OK(cudaFuncGetAttributes(&attr, add<float>));
	OK(cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking));
	sleep_us_50000<<<1, 1, 0, s>>>();
	CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
	OK(cudaStreamSynchronize(s));
	spin_here<<<1, 1, 0, s>>>((volatile int *)a);
	CHECK(cudaStreamQuery(s) == cudaErrorNotReady);
	/* <<<1, 1>>> goes to the stream that the program was built for. */
	sleep_us_50000<<<1, 1>>>();
	CHECK(cudaStreamQuery(per_thread ? cudaStreamPerThread : cudaStreamLegacy) == cudaErrorNotReady);
	std::thread([&] {
		OK(cudaStreamQuery(cudaStreamPerThread) == cudaSuccess || !per_thread ? cudaSuccess
										      : cudaErrorUnknown);
	}).join();
	OK(cudaStreamSynchronize(0));
	puts("ok");
	return 0;
}
