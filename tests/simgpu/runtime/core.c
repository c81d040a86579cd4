// SPDX-License-Identifier: Apache-2.0
/* core.c - loading the driver, devices, contexts, errors. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "rt.h"

struct rt_driver rt;

static CUresult (*look_up)(const char *, void **, int, cuuint64_t,
			   CUdriverProcAddressQueryResult *);
static cudaError_t init_error;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static CUcontext primary[64];
static pthread_mutex_t primary_lock = PTHREAD_MUTEX_INITIALIZER;

static __thread int device = -1; /* -1: none chosen yet, which means 0 */
static __thread cudaError_t last_error;

static const struct {
	const char *name;
	int version, thread;
	const char *symbol;
} versions[] = {
#define V(name, version, flavour, symbol) {#name, version, flavour, #symbol},
#include "../../../preload/driver_versions.def"
#undef V
	{"cuProfilerStart", 4000, 0, "cuProfilerStart"},
	{"cuProfilerStop", 4000, 0, "cuProfilerStop"},
};

static void resolve(const char *symbol, void **out)
{
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
		CUdriverProcAddressQueryResult status;

		if (strcmp(versions[i].symbol, symbol))
			continue;
		/* The newest row of that version and below; a per-thread one came later (7000). */
		look_up(versions[i].name, &out[0], versions[i].version,
			CU_GET_PROC_ADDRESS_LEGACY_STREAM, &status);
		look_up(versions[i].name, &out[1],
			versions[i].version > 7000 ? versions[i].version : 7000,
			CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, &status);
		return;
	}
}

static void load(void)
{
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);

	init_error = cudaErrorInsufficientDriver;
	if (!lib)
		return;
	*(void **)&look_up = dlsym(lib, "cuGetProcAddress_v2");
	if (!look_up)
		return;
#define X(sym) resolve(#sym, (void **)rt.sym);
	RT_DRIVER(X)
#undef X
	init_error = DRV(cuInit, 0, 0);
}

cudaError_t rt_init(void)
{
	pthread_once(&once, load);
	return init_error;
}

int rt_device(void)
{
	return device < 0 ? 0 : device;
}

/* The device's primary context, retained once for the process. */
static cudaError_t retain(int dev, CUcontext *out)
{
	cudaError_t e = cudaSuccess;

	if (dev < 0 || dev >= 64)
		return cudaErrorInvalidDevice;
	pthread_mutex_lock(&primary_lock);
	if (!primary[dev])
		e = DRV(cuDevicePrimaryCtxRetain, 0, &primary[dev], dev);
	*out = primary[dev];
	pthread_mutex_unlock(&primary_lock);
	return e;
}

bool rt_context_of(int dev, CUcontext *out)
{
	return !retain(dev, out);
}

cudaError_t rt_enter(void)
{
	CUcontext c = NULL;
	cudaError_t e = rt_init();

	if (e)
		return e;
	e = DRV(cuCtxGetCurrent, 0, &c);
	if (e || c)
		return e;
	e = retain(rt_device(), &c);
	return e ? e : DRV(cuCtxSetCurrent, 0, c);
}

cudaError_t rt_return(cudaError_t e)
{
	if (e)
		last_error = e;
	return e;
}

/* -- errors ----------------------------------------------------------------------------------- */

cudaError_t cudaGetLastError(void)
{
	cudaError_t e = last_error;

	last_error = cudaSuccess;
	return e;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

const char *cudaGetErrorName(cudaError_t error)
{
	switch ((int)error) {
#define E(name, number)                                                                            \
	case number:                                                                               \
		return #name;
#include "simgpu/runtime_errors.def"
#undef E
	default:
		return "unrecognized error code";
	}
}

const char *cudaGetErrorString(cudaError_t error)
{
	const char *s = NULL;

	if (error == cudaErrorInsufficientDriver)
		return "CUDA driver version is insufficient for CUDA runtime version";
	if (rt_init() && !rt.cuGetErrorString[0])
		return cudaGetErrorName(error);
	rt.cuGetErrorString[0]((CUresult)error, &s);
	return s ? s : "unrecognized error code";
}

/* -- versions --------------------------------------------------------------------------------- */

cudaError_t cudaDriverGetVersion(int *version)
{
	if (!version)
		return rt_return(cudaErrorInvalidValue);
	*version = 0;
	if (rt_init() == cudaErrorInsufficientDriver)
		return cudaSuccess; /* no driver: 0, as documented */
	return rt_return(DRV(cuDriverGetVersion, 0, version));
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	if (!version)
		return rt_return(cudaErrorInvalidValue);
	*version = CUDART_VERSION;
	return cudaSuccess;
}

static cudaError_t entry_point(const char *symbol, void **fn, int version, unsigned long long flags,
			       enum cudaDriverEntryPointQueryResult *status, int pt)
{
	CUdriverProcAddressQueryResult found;
	cudaError_t e = rt_init();

	if (e)
		return rt_return(e);
	if (!symbol || !fn)
		return rt_return(cudaErrorInvalidValue);
	if (!flags) /* the default is that of how the program was built */
		flags = pt ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
			   : CU_GET_PROC_ADDRESS_LEGACY_STREAM;
	e = (cudaError_t)look_up(symbol, fn, version, flags, &found);
	if (e)
		return rt_return(e);
	if (status)
		*status = (enum cudaDriverEntryPointQueryResult)found;
	else if (found != CU_GET_PROC_ADDRESS_SUCCESS)
		return rt_return(cudaErrorSymbolNotFound);
	return cudaSuccess;
}

BOTH(cudaGetDriverEntryPoint, _ptsz,
     (const char *symbol, void **fn, unsigned long long flags,
      enum cudaDriverEntryPointQueryResult *status),
     return entry_point(symbol, fn, CUDART_VERSION, flags, status, pt);)
BOTH(cudaGetDriverEntryPointByVersion, _ptsz,
     (const char *symbol, void **fn, unsigned int version, unsigned long long flags,
      enum cudaDriverEntryPointQueryResult *status),
     return entry_point(symbol, fn, (int)version, flags, status, pt);)

cudaError_t cudaGetExportTable(const void **table, const cudaUUID_t *id)
{
	(void)id;
	if (table)
		*table = NULL;
	return cudaErrorSymbolNotFound;
}

/* -- devices ---------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t e = rt_init();

	if (!count)
		return rt_return(cudaErrorInvalidValue);
	*count = 0;
	return rt_return(e ? e : DRV(cuDeviceGetCount, 0, count));
}

cudaError_t cudaSetDevice(int dev)
{
	CUcontext c;
	cudaError_t e = rt_init();
	int count;

	if (!e)
		e = DRV(cuDeviceGetCount, 0, &count);
	if (!e && (dev < 0 || dev >= count))
		e = cudaErrorInvalidDevice;
	if (!e)
		e = retain(dev, &c);
	if (!e)
		e = DRV(cuCtxSetCurrent, 0, c);
	if (!e)
		device = dev;
	return rt_return(e);
}

cudaError_t cudaInitDevice(int dev, unsigned int device_flags, unsigned int flags)
{
	CUcontext c;
	cudaError_t e = rt_init();

	if (!e && (flags & cudaInitDeviceFlagsAreValid))
		e = DRV(cuDevicePrimaryCtxSetFlags_v2, 0, dev, device_flags);
	return rt_return(e ? e : retain(dev, &c));
}

cudaError_t cudaGetDevice(int *dev)
{
	cudaError_t e = rt_init();
	CUcontext c = NULL;

	if (e)
		return rt_return(e);
	if (!dev)
		return rt_return(cudaErrorInvalidValue);
	if (!DRV(cuCtxGetCurrent, 0, &c) && c && !DRV(cuCtxGetDevice, 0, dev))
		return cudaSuccess;
	*dev = rt_device();
	return cudaSuccess;
}

cudaError_t cudaSetValidDevices(int *list, int n)
{
	return rt_return(list || !n ? rt_init() : cudaErrorInvalidValue);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
	cudaError_t e = rt_init();

	return rt_return(
		e ? e
		  : DRV(cuDevicePrimaryCtxSetFlags_v2, 0, rt_device(), flags & ~cudaDeviceMapHost));
}

cudaError_t cudaGetDeviceFlags(unsigned int *flags)
{
	cudaError_t e = rt_init();
	int active;

	if (!e)
		e = flags ? DRV(cuDevicePrimaryCtxGetState, 0, rt_device(), flags, &active)
			  : cudaErrorInvalidValue;
	if (!e)
		*flags |= cudaDeviceMapHost;
	return rt_return(e);
}

cudaError_t cudaDeviceReset(void)
{
	cudaError_t e = rt_init();
	int dev = rt_device();

	if (e)
		return rt_return(e);
	cudaGetDevice(&dev);
	e = DRV(cuDevicePrimaryCtxReset_v2, 0, dev);
	pthread_mutex_lock(&primary_lock);
	if (primary[dev])
		DRV(cuDevicePrimaryCtxRelease_v2, 0, dev);
	primary[dev] = NULL;
	pthread_mutex_unlock(&primary_lock);
	DRV(cuCtxSetCurrent, 0, NULL);
	last_error = cudaSuccess;
	return rt_return(e);
}

cudaError_t cudaDeviceSynchronize(void)
{
	CALL(DRV(cuCtxSynchronize, 0));
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int dev)
{
	cudaError_t e = rt_init();

	return rt_return(e ? e
			   : DRV(cuDeviceGetAttribute, 0, value, (CUdevice_attribute)attr, dev));
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int len, int dev)
{
	cudaError_t e = rt_init();

	return rt_return(e ? e : DRV(cuDeviceGetPCIBusId, 0, id, len, dev));
}

cudaError_t cudaDeviceGetByPCIBusId(int *dev, const char *id)
{
	cudaError_t e = rt_init();

	return rt_return(e ? e : DRV(cuDeviceGetByPCIBusId, 0, dev, id));
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int a, int b)
{
	cudaError_t e = rt_init();

	return rt_return(e ? e : DRV(cuDeviceCanAccessPeer, 0, can, a, b));
}

cudaError_t cudaDeviceGetP2PAttribute(int *value, enum cudaDeviceP2PAttr attr, int a, int b)
{
	cudaError_t e = rt_init();

	return rt_return(
		e ? e : DRV(cuDeviceGetP2PAttribute, 0, value, (CUdevice_P2PAttribute)attr, a, b));
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
	CUcontext c;

	if (rt_init() || !rt_context_of(peer, &c))
		return rt_return(cudaErrorInvalidDevice);
	CALL(DRV(cuCtxEnablePeerAccess, 0, c, flags));
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
	CUcontext c;

	if (rt_init() || !rt_context_of(peer, &c))
		return rt_return(cudaErrorInvalidDevice);
	CALL(DRV(cuCtxDisablePeerAccess, 0, c));
}

cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value)
{
	CALL(DRV(cuCtxSetLimit, 0, (CUlimit)limit, value));
}

cudaError_t cudaDeviceGetLimit(size_t *value, enum cudaLimit limit)
{
	CALL(DRV(cuCtxGetLimit, 0, value, (CUlimit)limit));
}

cudaError_t cudaDeviceGetCacheConfig(enum cudaFuncCache *config)
{
	CALL(DRV(cuCtxGetCacheConfig, 0, (CUfunc_cache *)config));
}

cudaError_t cudaDeviceSetCacheConfig(enum cudaFuncCache config)
{
	CALL(DRV(cuCtxSetCacheConfig, 0, (CUfunc_cache)config));
}

cudaError_t cudaDeviceGetSharedMemConfig(enum cudaSharedMemConfig *config)
{
	if (!config)
		return rt_return(cudaErrorInvalidValue);
	*config = cudaSharedMemBankSizeFourByte;
	CALL(cudaSuccess);
}

cudaError_t cudaDeviceSetSharedMemConfig(enum cudaSharedMemConfig config)
{
	(void)config;
	CALL(cudaSuccess);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	CALL(DRV(cuCtxGetStreamPriorityRange, 0, least, greatest));
}

cudaError_t cudaCtxResetPersistingL2Cache(void)
{
	CALL(DRV(cuCtxResetPersistingL2Cache, 0));
}

cudaError_t cudaDeviceFlushGPUDirectRDMAWrites(enum cudaFlushGPUDirectRDMAWritesTarget target,
					       enum cudaFlushGPUDirectRDMAWritesScope scope)
{
	(void)target;
	(void)scope;
	CALL(cudaSuccess);
}

cudaError_t cudaProfilerStart(void)
{
	CALL(DRV(cuProfilerStart, 0));
}

cudaError_t cudaProfilerStop(void)
{
	CALL(DRV(cuProfilerStop, 0));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int dev)
{
	cudaError_t e = rt_init();
	CUuuid id;
	size_t total;

	if (e)
		return rt_return(e);
	if (!p)
		return rt_return(cudaErrorInvalidValue);
	memset(p, 0, sizeof(*p));
	e = DRV(cuDeviceGetName, 0, p->name, (int)sizeof(p->name), dev);
	if (!e)
		e = DRV(cuDeviceGetUuid_v2, 0, &id, dev);
	if (!e)
		e = DRV(cuDeviceTotalMem_v2, 0, &total, dev);
	if (e)
		return rt_return(e);
	memcpy(&p->uuid, &id, sizeof(p->uuid));
	p->totalGlobalMem = total;
#define ATTR(field, attr)                                                                          \
	do {                                                                                       \
		int v_ = 0;                                                                        \
		DRV(cuDeviceGetAttribute, 0, &v_, CU_DEVICE_ATTRIBUTE_##attr, dev);                \
		p->field = (__typeof__(p->field))v_;                                               \
	} while (0)
	ATTR(sharedMemPerBlock, MAX_SHARED_MEMORY_PER_BLOCK);
	ATTR(regsPerBlock, MAX_REGISTERS_PER_BLOCK);
	ATTR(warpSize, WARP_SIZE);
	ATTR(memPitch, MAX_PITCH);
	ATTR(maxThreadsPerBlock, MAX_THREADS_PER_BLOCK);
	ATTR(maxThreadsDim[0], MAX_BLOCK_DIM_X);
	ATTR(maxThreadsDim[1], MAX_BLOCK_DIM_Y);
	ATTR(maxThreadsDim[2], MAX_BLOCK_DIM_Z);
	ATTR(maxGridSize[0], MAX_GRID_DIM_X);
	ATTR(maxGridSize[1], MAX_GRID_DIM_Y);
	ATTR(maxGridSize[2], MAX_GRID_DIM_Z);
	ATTR(totalConstMem, TOTAL_CONSTANT_MEMORY);
	ATTR(major, COMPUTE_CAPABILITY_MAJOR);
	ATTR(minor, COMPUTE_CAPABILITY_MINOR);
	ATTR(textureAlignment, TEXTURE_ALIGNMENT);
	ATTR(texturePitchAlignment, TEXTURE_PITCH_ALIGNMENT);
	ATTR(multiProcessorCount, MULTIPROCESSOR_COUNT);
	ATTR(canMapHostMemory, CAN_MAP_HOST_MEMORY);
	ATTR(surfaceAlignment, SURFACE_ALIGNMENT);
	ATTR(concurrentKernels, CONCURRENT_KERNELS);
	ATTR(pciBusID, PCI_BUS_ID);
	ATTR(pciDeviceID, PCI_DEVICE_ID);
	ATTR(pciDomainID, PCI_DOMAIN_ID);
	ATTR(asyncEngineCount, ASYNC_ENGINE_COUNT);
	ATTR(unifiedAddressing, UNIFIED_ADDRESSING);
	ATTR(memoryBusWidth, GLOBAL_MEMORY_BUS_WIDTH);
	ATTR(l2CacheSize, L2_CACHE_SIZE);
	ATTR(maxThreadsPerMultiProcessor, MAX_THREADS_PER_MULTIPROCESSOR);
	ATTR(streamPrioritiesSupported, STREAM_PRIORITIES_SUPPORTED);
	ATTR(globalL1CacheSupported, GLOBAL_L1_CACHE_SUPPORTED);
	ATTR(localL1CacheSupported, LOCAL_L1_CACHE_SUPPORTED);
	ATTR(sharedMemPerMultiprocessor, MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
	ATTR(regsPerMultiprocessor, MAX_REGISTERS_PER_MULTIPROCESSOR);
	ATTR(managedMemory, MANAGED_MEMORY);
	ATTR(concurrentManagedAccess, CONCURRENT_MANAGED_ACCESS);
	ATTR(computePreemptionSupported, COMPUTE_PREEMPTION_SUPPORTED);
	ATTR(canUseHostPointerForRegisteredMem, CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM);
	ATTR(cooperativeLaunch, COOPERATIVE_LAUNCH);
	ATTR(sharedMemPerBlockOptin, MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
	ATTR(maxBlocksPerMultiProcessor, MAX_BLOCKS_PER_MULTIPROCESSOR);
	ATTR(reservedSharedMemPerBlock, RESERVED_SHARED_MEMORY_PER_BLOCK);
	ATTR(hostRegisterSupported, HOST_REGISTER_SUPPORTED);
	ATTR(hostRegisterReadOnlySupported, READ_ONLY_HOST_REGISTER_SUPPORTED);
	ATTR(memoryPoolsSupported, MEMORY_POOLS_SUPPORTED);
	ATTR(clusterLaunch, CLUSTER_LAUNCH);
	ATTR(unifiedFunctionPointers, UNIFIED_FUNCTION_POINTERS);
	ATTR(ipcEventSupported, IPC_EVENT_SUPPORTED);
#undef ATTR
	return cudaSuccess;
}

cudaError_t cudaChooseDevice(int *dev, const struct cudaDeviceProp *want)
{
	if (!dev || !want)
		return rt_return(cudaErrorInvalidValue);
	*dev = 0; /* they are all alike */
	return rt_return(rt_init());
}

cudaError_t cudaDeviceGetTexture1DLinearMaxWidth(size_t *width,
						 const struct cudaChannelFormatDesc *desc, int dev)
{
	(void)desc;
	(void)dev;
	if (!width)
		return rt_return(cudaErrorInvalidValue);
	*width = 1u << 28;
	return cudaSuccess;
}
