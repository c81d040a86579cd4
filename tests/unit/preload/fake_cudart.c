// SPDX-License-Identifier: Apache-2.0
/* fake_cudart.c - built twice, as two releases of the runtime: each call says whose it is. */
#include <stdint.h>

#define API(name, params)                                     \
	__attribute__((visibility("default"))) int name params; \
	int name params

API(cudaRuntimeGetVersion, (int *v)) { *v = RELEASE; return 0; }
API(cudaStreamQuery, (void *s)) { (void)s; return RELEASE; }
API(cudaMalloc, (void **p, unsigned long n)) { *p = (void *)(uintptr_t)(RELEASE + n); return 0; }
struct dim { unsigned int x, y, z; };
API(cudaLaunchKernel, (const void *f, struct dim grid, struct dim block, void **args, unsigned long shared,
		       void *stream))
{
	(void)f;
	(void)args;
	(void)shared;
	(void)stream;
	return grid.x == block.x ? RELEASE : -1;
}
