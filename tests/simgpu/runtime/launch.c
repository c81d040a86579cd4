// SPDX-License-Identifier: Apache-2.0
/*
 * launch.c - what nvcc's code calls: registration of images, kernels and variables, launches.
 *
 * Images become driver libraries at first use. Kernels are found by the address of their host
 * stub, variables by the address of their shadow.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "rt.h"

struct image {
	const void *data;
	CUlibrary library;
	struct image *next;
};

struct symbol {
	const void *host;
	char *name;
	struct image *image;
	size_t size; /* of a variable; 0: a kernel */
	CUkernel kernel;
	CUdeviceptr big[64]; /* variables larger than the driver gives to an unknown one */
	struct symbol *next;
};

/* nvcc's wrapper around an image */
struct wrapper {
	int magic, version;
	const void *data;
	void *filename_or_fatbins;
};
#define WRAPPER_MAGIC 0x466243b1

static struct image *images;
static struct symbol *buckets[1024];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#pragma GCC visibility push(default)
void **__cudaRegisterFatBinary(void *wrapper);
void __cudaRegisterFatBinaryEnd(void **handle);
void __cudaUnregisterFatBinary(void **handle);
void __cudaRegisterFunction(void **handle, const char *host, char *device_fun, const char *name,
			    int thread_limit, uint3 *tid, uint3 *bid, dim3 *bdim, dim3 *gdim,
			    int *wsize);
void __cudaRegisterVar(void **handle, char *host, char *device_address, const char *name, int ext,
		       size_t size, int constant, int global);
void __cudaRegisterManagedVar(void **handle, void **host, char *device_address, const char *name,
			      int ext, size_t size, int constant, int global);
void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t size);
char __cudaInitModule(void **handle);
unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream);
cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream);
cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *entry);
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
			       size_t shared, cudaStream_t stream);
cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void **args,
				    size_t shared, cudaStream_t stream);
#pragma GCC visibility pop

static unsigned int bucket(const void *p)
{
	return (unsigned int)(((uintptr_t)p * 0x9e3779b97f4a7c15ull) >> 54);
}

void **__cudaRegisterFatBinary(void *arg)
{
	struct wrapper *w = arg;
	struct image *i = calloc(1, sizeof(*i));

	if (!i)
		abort();
	i->data = w && w->magic == WRAPPER_MAGIC ? w->data : arg;
	pthread_mutex_lock(&lock);
	i->next = images;
	images = i;
	pthread_mutex_unlock(&lock);
	return (void **)i;
}

void __cudaRegisterFatBinaryEnd(void **handle)
{
	(void)handle;
}

/* At exit, when the driver may be gone: what the process holds ends with it. */
void __cudaUnregisterFatBinary(void **handle)
{
	struct image *i = (struct image *)handle;

	pthread_mutex_lock(&lock);
	for (size_t b = 0; b < 1024; b++) {
		for (struct symbol **at = &buckets[b]; *at;) {
			if ((*at)->image == i)
				*at = (*at)->next; /* a dlclose()d library's stubs may be another's
						      soon */
			else
				at = &(*at)->next;
		}
	}
	pthread_mutex_unlock(&lock);
}

static struct symbol *add(void **handle, const void *host, const char *name, size_t size)
{
	struct symbol *s = calloc(1, sizeof(*s));

	if (!s)
		abort();
	s->host = host;
	s->name = strdup(name);
	s->image = (struct image *)handle;
	s->size = size;
	pthread_mutex_lock(&lock);
	s->next = buckets[bucket(host)];
	buckets[bucket(host)] = s;
	pthread_mutex_unlock(&lock);
	return s;
}

void __cudaRegisterFunction(void **handle, const char *host, char *device_fun, const char *name,
			    int thread_limit, uint3 *tid, uint3 *bid, dim3 *bdim, dim3 *gdim,
			    int *wsize)
{
	(void)device_fun;
	(void)thread_limit;
	(void)tid;
	(void)bid;
	(void)bdim;
	(void)gdim;
	(void)wsize;
	add(handle, host, name, 0);
}

void __cudaRegisterVar(void **handle, char *host, char *device_address, const char *name, int ext,
		       size_t size, int constant, int global)
{
	(void)device_address;
	(void)ext;
	(void)constant;
	(void)global;
	add(handle, host, name, size);
}

/* Kernels do not compute: host memory is all that a managed variable needs. */
void __cudaRegisterManagedVar(void **handle, void **host, char *device_address, const char *name,
			      int ext, size_t size, int constant, int global)
{
	(void)device_address;
	(void)ext;
	(void)constant;
	(void)global;
	*host = calloc(1, size);
	add(handle, *host, name, size);
}

void __cudaRegisterHostVar(void **handle, const char *name, char *host, size_t size)
{
	(void)handle;
	(void)name;
	(void)host;
	(void)size;
}

char __cudaInitModule(void **handle)
{
	(void)handle;
	return rt_init() == cudaSuccess;
}

static struct symbol *find(const void *host)
{
	struct symbol *s;

	pthread_mutex_lock(&lock);
	for (s = buckets[bucket(host)]; s && s->host != host; s = s->next)
		;
	pthread_mutex_unlock(&lock);
	return s;
}

static cudaError_t library(struct image *i, CUlibrary *out)
{
	cudaError_t e = cudaSuccess;

	pthread_mutex_lock(&lock);
	if (!i->library)
		e = DRV(cuLibraryLoadData, 0, &i->library, i->data, NULL, NULL, 0, NULL, NULL, 0);
	*out = i->library;
	pthread_mutex_unlock(&lock);
	return e;
}

/* Unlocked look at s->kernel: it is set once, and twice would be the same. */
CUfunction rt_function(const void *host, cudaError_t *e)
{
	struct symbol *s = find(host);
	CUlibrary l;
	CUkernel k;

	*e = cudaErrorInvalidDeviceFunction;
	if (!s || s->size)
		return NULL;
	*e = cudaSuccess;
	if (s->kernel)
		return (CUfunction)s->kernel;
	*e = library(s->image, &l);
	if (!*e)
		*e = DRV(cuLibraryGetKernel, 0, &k, l, s->name);
	if (*e)
		return NULL;
	s->kernel = k;
	return (CUfunction)k;
}

cudaError_t rt_symbol(const void *host, CUdeviceptr *addr, size_t *size)
{
	struct symbol *s = find(host);
	int dev = 0;
	CUlibrary l;
	cudaError_t e;
	size_t have;

	if (!s || !s->size)
		return cudaErrorInvalidSymbol;
	e = library(s->image, &l);
	if (!e)
		e = DRV(cuLibraryGetGlobal, 0, addr, &have, l, s->name);
	if (e)
		return e;
	if (have < s->size) {
		e = DRV(cuCtxGetDevice, 0, &dev);
		if (!e && !s->big[dev])
			e = DRV(cuMemAlloc_v2, 0, &s->big[dev], s->size);
		*addr = s->big[dev];
	}
	if (size)
		*size = s->size;
	return e;
}

cudaError_t cudaGetSymbolAddress(void **out, const void *symbol)
{
	CUdeviceptr p;

	if (!out)
		return rt_return(cudaErrorInvalidValue);
	CALL(({
		cudaError_t e2 = rt_symbol(symbol, &p, NULL);
		if (!e2)
			*out = (void *)p;
		e2;
	}));
}

cudaError_t cudaGetSymbolSize(size_t *out, const void *symbol)
{
	CUdeviceptr p;

	if (!out)
		return rt_return(cudaErrorInvalidValue);
	CALL(rt_symbol(symbol, &p, out));
}

/* -- launching -------------------------------------------------------------------------------- */

#define NEST 16
static __thread struct {
	dim3 grid, block;
	size_t shared;
	void *stream;
} configs[NEST];
static __thread int config_count;

unsigned int __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void *stream)
{
	if (config_count == NEST)
		return 1;
	configs[config_count].grid = grid;
	configs[config_count].block = block;
	configs[config_count].shared = shared;
	configs[config_count++].stream = stream;
	return 0;
}

cudaError_t __cudaPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, void *stream)
{
	if (!config_count)
		return cudaErrorMissingConfiguration;
	config_count--;
	*grid = configs[config_count].grid;
	*block = configs[config_count].block;
	*shared = configs[config_count].shared;
	*(void **)stream = configs[config_count].stream;
	return cudaSuccess;
}

static cudaError_t launch(const void *host, dim3 g, dim3 b, void **args, size_t shared,
			  cudaStream_t stream, int pt, bool cooperative)
{
	cudaError_t e = rt_enter();
	CUfunction f;

	if (e)
		return rt_return(e);
	f = rt_function(host, &e);
	if (e)
		return rt_return(e);
	if (cooperative)
		e = DRV(cuLaunchCooperativeKernel, pt, f, g.x, g.y, g.z, b.x, b.y, b.z,
			(unsigned int)shared, (CUstream)stream, args);
	else
		e = DRV(cuLaunchKernel, pt, f, g.x, g.y, g.z, b.x, b.y, b.z, (unsigned int)shared,
			(CUstream)stream, args, NULL);
	if (e == cudaErrorInvalidValue)
		e = cudaErrorInvalidConfiguration;
	return rt_return(e);
}

BOTH(cudaLaunchKernel, _ptsz,
     (const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s),
     return launch(f, g, b, args, shared, s, pt, false);)
BOTH(cudaLaunchCooperativeKernel, _ptsz,
     (const void *f, dim3 g, dim3 b, void **args, size_t shared, cudaStream_t s),
     return launch(f, g, b, args, shared, s, pt, true);)

static cudaError_t launch_ex(const cudaLaunchConfig_t *c, const void *host, void **args, int pt)
{
	CUlaunchConfig d = {0};
	CUlaunchAttribute attrs[16];
	cudaError_t e = rt_enter();
	CUfunction f;

	_Static_assert(sizeof(attrs[0]) == sizeof(c->attrs[0]), "the same attributes");
	if (e)
		return rt_return(e);
	if (!c || c->numAttrs > 16)
		return rt_return(cudaErrorInvalidValue);
	f = rt_function(host, &e);
	if (e)
		return rt_return(e);
	d.gridDimX = c->gridDim.x;
	d.gridDimY = c->gridDim.y;
	d.gridDimZ = c->gridDim.z;
	d.blockDimX = c->blockDim.x;
	d.blockDimY = c->blockDim.y;
	d.blockDimZ = c->blockDim.z;
	d.sharedMemBytes = (unsigned int)c->dynamicSmemBytes;
	d.hStream = (CUstream)c->stream;
	if (c->numAttrs)
		memcpy(attrs, c->attrs, c->numAttrs * sizeof(attrs[0]));
	d.attrs = attrs;
	d.numAttrs = c->numAttrs;
	e = DRV(cuLaunchKernelEx, pt, &d, f, args, NULL);
	return rt_return(e == cudaErrorInvalidValue ? cudaErrorInvalidConfiguration : e);
}

BOTH(cudaLaunchKernelExC, _ptsz, (const cudaLaunchConfig_t *c, const void *host, void **args),
     return launch_ex(c, host, args, pt);)

cudaError_t __cudaGetKernel(cudaKernel_t *kernel, const void *entry)
{
	return cudaGetKernel(kernel, entry);
}

static cudaError_t launch_kernel(cudaKernel_t k, dim3 g, dim3 b, void **args, size_t shared,
				 cudaStream_t stream, int pt)
{
	cudaError_t e = rt_enter();

	if (!e)
		e = DRV(cuLaunchKernel, pt, (CUfunction)k, g.x, g.y, g.z, b.x, b.y, b.z,
			(unsigned int)shared, (CUstream)stream, args, NULL);
	return rt_return(e == cudaErrorInvalidValue ? cudaErrorInvalidConfiguration : e);
}

cudaError_t __cudaLaunchKernel(cudaKernel_t k, dim3 g, dim3 b, void **args, size_t shared,
			       cudaStream_t s)
{
	return launch_kernel(k, g, b, args, shared, s, 0);
}

cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t k, dim3 g, dim3 b, void **args, size_t shared,
				    cudaStream_t s)
{
	return launch_kernel(k, g, b, args, shared, s, 1);
}

/* -- functions -------------------------------------------------------------------------------- */

cudaError_t cudaGetKernel(cudaKernel_t *out, const void *entry)
{
	cudaError_t e = rt_enter();

	if (!e && !out)
		e = cudaErrorInvalidValue;
	if (!e)
		*out = (cudaKernel_t)rt_function(entry, &e);
	return rt_return(e);
}

cudaError_t cudaGetFuncBySymbol(cudaFunction_t *out, const void *symbol)
{
	cudaError_t e = rt_enter();
	CUfunction f;

	if (!e && !out)
		e = cudaErrorInvalidValue;
	if (!e) {
		f = rt_function(symbol, &e);
		if (!e)
			e = DRV(cuKernelGetFunction, 0, &f, (CUkernel)f);
		if (!e)
			*out = (cudaFunction_t)f;
	}
	return rt_return(e);
}

cudaError_t cudaFuncGetName(const char **out, const void *symbol)
{
	cudaError_t e = rt_enter();
	CUfunction f;

	if (!e) {
		f = rt_function(symbol, &e);
		if (!e)
			e = DRV(cuFuncGetName, 0, out, f);
	}
	return rt_return(e);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *symbol)
{
	cudaError_t e = rt_enter();
	CUfunction f;
	int v = 0;

	if (e)
		return rt_return(e);
	f = rt_function(symbol, &e);
	if (e)
		return rt_return(e);
	if (!a)
		return rt_return(cudaErrorInvalidValue);
	memset(a, 0, sizeof(*a));
#define GET(field, attr)                                                                           \
	do {                                                                                       \
		DRV(cuFuncGetAttribute, 0, &v, CU_FUNC_ATTRIBUTE_##attr, f);                       \
		a->field = (__typeof__(a->field))v;                                                \
	} while (0)
	GET(sharedSizeBytes, SHARED_SIZE_BYTES);
	GET(constSizeBytes, CONST_SIZE_BYTES);
	GET(localSizeBytes, LOCAL_SIZE_BYTES);
	GET(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
	GET(numRegs, NUM_REGS);
	GET(ptxVersion, PTX_VERSION);
	GET(binaryVersion, BINARY_VERSION);
	GET(maxDynamicSharedSizeBytes, MAX_DYNAMIC_SHARED_SIZE_BYTES);
	GET(preferredShmemCarveout, PREFERRED_SHARED_MEMORY_CARVEOUT);
#undef GET
	return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *symbol, enum cudaFuncAttribute attr, int value)
{
	cudaError_t e = rt_enter();
	CUfunction f;

	if (!e) {
		f = rt_function(symbol, &e);
		if (!e)
			e = DRV(cuFuncSetAttribute, 0, f, (CUfunction_attribute)attr, value);
	}
	return rt_return(e);
}

cudaError_t cudaFuncSetCacheConfig(const void *symbol, enum cudaFuncCache config)
{
	cudaError_t e = rt_enter();
	CUfunction f;

	if (!e) {
		f = rt_function(symbol, &e);
		if (!e)
			e = DRV(cuFuncSetCacheConfig, 0, f, (CUfunc_cache)config);
	}
	return rt_return(e);
}

cudaError_t cudaFuncSetSharedMemConfig(const void *symbol, enum cudaSharedMemConfig config)
{
	(void)symbol;
	(void)config;
	CALL(cudaSuccess);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *symbol,
								   int size, size_t shared,
								   unsigned int flags)
{
	cudaError_t e = rt_enter();
	CUfunction f;

	if (!e) {
		f = rt_function(symbol, &e);
		if (!e)
			e = DRV(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, 0, n, f, size,
				shared, flags);
	}
	return rt_return(e);
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *symbol, int size,
							  size_t shared)
{
	return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, symbol, size, shared, 0);
}

cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t *bytes, const void *symbol, int blocks,
						      int size)
{
	cudaError_t e = rt_enter();
	CUfunction f;

	if (!e) {
		f = rt_function(symbol, &e);
		if (!e)
			e = DRV(cuOccupancyAvailableDynamicSMemPerBlock, 0, bytes, f, blocks, size);
	}
	return rt_return(e);
}

cudaError_t cudaOccupancyMaxPotentialClusterSize(int *size, const void *symbol,
						 const cudaLaunchConfig_t *c)
{
	cudaError_t e = rt_enter();
	CUfunction f;

	(void)c;
	if (!e) {
		f = rt_function(symbol, &e);
		if (!e)
			e = DRV(cuOccupancyMaxPotentialClusterSize, 0, size, f, NULL);
	}
	return rt_return(e);
}

cudaError_t cudaOccupancyMaxActiveClusters(int *n, const void *symbol, const cudaLaunchConfig_t *c)
{
	cudaError_t e = rt_enter();
	CUfunction f;

	(void)c;
	if (!e) {
		f = rt_function(symbol, &e);
		if (!e)
			e = DRV(cuOccupancyMaxActiveClusters, 0, n, f, NULL);
	}
	return rt_return(e);
}

cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t k, enum cudaFuncAttribute attr, int value,
					    int dev)
{
	CALL(DRV(cuKernelSetAttribute, 0, (CUfunction_attribute)attr, value, (CUkernel)k, dev));
}

/* -- libraries -------------------------------------------------------------------------------- */

cudaError_t cudaLibraryLoadData(cudaLibrary_t *out, const void *code, enum cudaJitOption *jit,
				void **jit_values, unsigned int jit_count,
				enum cudaLibraryOption *options, void **values, unsigned int count)
{
	CALL(DRV(cuLibraryLoadData, 0, (CUlibrary *)out, code, (CUjit_option *)jit, jit_values,
		 jit_count, (CUlibraryOption *)options, values, count));
}

cudaError_t cudaLibraryLoadFromFile(cudaLibrary_t *out, const char *path, enum cudaJitOption *jit,
				    void **jit_values, unsigned int jit_count,
				    enum cudaLibraryOption *options, void **values,
				    unsigned int count)
{
	CALL(DRV(cuLibraryLoadFromFile, 0, (CUlibrary *)out, path, (CUjit_option *)jit, jit_values,
		 jit_count, (CUlibraryOption *)options, values, count));
}

cudaError_t cudaLibraryUnload(cudaLibrary_t l)
{
	CALL(DRV(cuLibraryUnload, 0, (CUlibrary)l));
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *out, cudaLibrary_t l, const char *name)
{
	CALL(DRV(cuLibraryGetKernel, 0, (CUkernel *)out, (CUlibrary)l, name));
}

cudaError_t cudaLibraryGetKernelCount(unsigned int *count, cudaLibrary_t l)
{
	CALL(DRV(cuLibraryGetKernelCount, 0, count, (CUlibrary)l));
}

cudaError_t cudaLibraryEnumerateKernels(cudaKernel_t *out, unsigned int n, cudaLibrary_t l)
{
	CALL(DRV(cuLibraryEnumerateKernels, 0, (CUkernel *)out, n, (CUlibrary)l));
}

cudaError_t cudaLibraryGetGlobal(void **addr, size_t *bytes, cudaLibrary_t l, const char *name)
{
	CALL(DRV(cuLibraryGetGlobal, 0, (CUdeviceptr *)addr, bytes, (CUlibrary)l, name));
}

cudaError_t cudaLibraryGetManaged(void **addr, size_t *bytes, cudaLibrary_t l, const char *name)
{
	CALL(DRV(cuLibraryGetManaged, 0, (CUdeviceptr *)addr, bytes, (CUlibrary)l, name));
}
