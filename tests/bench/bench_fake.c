// SPDX-License-Identifier: Apache-2.0
/*
 * bench_fake.c - a libcuda whose functions return at once, for bench_wrapper. Its GPU is always done:
 * a position write stores its value at once, an event has always happened.
 */
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define FAKE(name, params) __attribute__((visibility("default"))) int name params; int name params

/*
 * What a call takes, for the loop that is to look like PyTorch's: BENCH_LAUNCH_NS, BENCH_WRITE_NS (an H200:
 * about 2,000 inside the driver, and 1,000). 0, the default: it returns at once.
 */
static uint64_t launch_ticks, write_ticks;
static void busy(uint64_t ticks)
{
	uint64_t began = __builtin_ia32_rdtsc();

	while (__builtin_ia32_rdtsc() - began < ticks)
		;
}

FAKE(bench_fake_takes, (uint64_t launch, uint64_t write))
{
	launch_ticks = launch;
	write_ticks = write;
	return 0;
}

static uint64_t next = 0x700000000000, next_stream = 0x4000, next_event = 0x8000;

FAKE(cuInit, (unsigned int f)) { return (int)(f & 0); }
FAKE(cuDeviceGet, (int *d, int i)) { *d = i; return 0; }
FAKE(cuDevicePrimaryCtxRetain, (void **c, int d)) { *c = (void *)(0x100 + (uintptr_t)d); return 0; }
FAKE(cuCtxSetCurrent, (void *c)) { (void)c; return 0; }
FAKE(cuCtxGetCurrent, (void **c)) { *c = (void *)0x100; return 0; }
FAKE(cuCtxGetDevice, (int *d)) { *d = 0; return 0; }
FAKE(cuStreamCreate, (void **s, unsigned int f)) { (void)f; *s = (void *)(next_stream += 0x100); return 0; }
FAKE(cuStreamSynchronize, (void *s)) { (void)s; return 0; }
FAKE(cuStreamIsCapturing, (void *s, int *status)) { (void)s; *status = 0; return 0; }
FAKE(cuStreamWriteValue32_v2, (void *s, uint64_t at, uint32_t value, unsigned int f))
{
	(void)s; (void)f;
	if (write_ticks)
		busy(write_ticks);
	__atomic_store_n((uint32_t *)at, value, __ATOMIC_RELEASE);
	return 0;
}
FAKE(cuMemHostRegister_v2, (void *p, size_t n, unsigned int f)) { (void)p; (void)n; (void)f; return 0; }
FAKE(cuMemHostGetDevicePointer_v2, (uint64_t *d, void *p, unsigned int f)) { (void)f; *d = (uint64_t)p; return 0; }
FAKE(cuFuncGetName, (const char **name, void *f)) { (void)f; *name = "kernel"; return 0; }
FAKE(cuEventCreate, (void **e, unsigned int f)) { (void)f; *e = (void *)(next_event += 0x80); return 0; }
FAKE(cuEventRecord, (void *e, void *s)) { (void)e; (void)s; return 0; }
FAKE(cuEventQuery, (void *e)) { (void)e; return 0; }
FAKE(cuMemAlloc_v2, (uint64_t *p, size_t n)) { *p = next; next += (n + 511) / 512 * 512; return 0; }
FAKE(cuMemFree_v2, (uint64_t p)) { (void)p; return 0; }
FAKE(cuMemGetInfo_v2, (size_t *f, size_t *t)) { *f = 1ul << 33; *t = 1ul << 34; return 0; }
FAKE(cuMemcpyHtoDAsync_v2, (uint64_t d, const void *h, size_t n, void *s))
{
	(void)d; (void)h; (void)n; (void)s;
	return 0;
}
FAKE(cuLaunchKernel, (void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g,
		      unsigned h, void *s, void **p, void **x))
{
	(void)f; (void)a; (void)b; (void)c; (void)d; (void)e; (void)g; (void)h; (void)s; (void)p; (void)x;
	if (launch_ticks)
		busy(launch_ticks);
	return 0;
}
FAKE(cuGetProcAddress_v2, (const char *name, void **p, int version, uint64_t flags, int *status))
{
	(void)version; (void)flags; (void)status;
	*p = !strcmp(name, "cuMemcpyHtoDAsync") ? (void *)cuMemcpyHtoDAsync_v2 : NULL;
	return *p ? 0 : 500;
}
FAKE(cuMemAdvise, (uint64_t p, size_t n, int a, int d)) { (void)p; (void)n; (void)a; (void)d; return 0; }
