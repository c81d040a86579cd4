// SPDX-License-Identifier: Apache-2.0
/* bench_fake_runtime.c - a libcudart over bench_fake.c: PyTorch's way, two hooks for one call. */
#include <dlfcn.h>
#include <stddef.h>

struct dim { unsigned int x, y, z; };
static int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *,
		     void **, void **);
static int (*query)(void *);

__attribute__((constructor)) static void bind(void)
{
	void *cuda = dlopen("libcuda.so.1", RTLD_NOW);

	*(void **)&launch = dlsym(cuda, "cuLaunchKernel");
	*(void **)&query = dlsym(cuda, "cuEventQuery");
}

#define FAKE(name, params) __attribute__((visibility("default"))) int name params; int name params

FAKE(cudaLaunchKernel, (const void *f, struct dim g, struct dim b, void **args, size_t shared, void *stream))
{
	return launch((void *)f, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned)shared, stream, args, NULL);
}
FAKE(cudaEventQuery, (void *e)) { return query(e); }
/* What PyTorch asks around every launch. Not wrapped: nothing of it blocks or changes what is recorded. */
FAKE(cudaGetDevice, (int *d)) { *d = 0; return 0; }
FAKE(cudaPeekAtLastError, (void)) { return 0; }
FAKE(cudaGetLastError, (void)) { return 0; }
FAKE(cudaStreamIsCapturing, (void *s, int *status)) { (void)s; *status = 0; return 0; }
FAKE(cudaFuncGetAttributes, (void *a, const void *f)) { (void)a; (void)f; return 0; }
