/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rt.h - inside the simulated libcudart.so.13.
 *
 * It reaches the driver the way the real one does: dlopen("libcuda.so.1"), dlsym for
 * cuGetProcAddress_v2, then a versioned look-up for each function, once for the legacy and once
 * for the per-thread default stream. Whatever interposes on those doors sees it.
 */
#ifndef SIMGPU_RT_H
#define SIMGPU_RT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define __CUDA_API_VERSION_INTERNAL
#include "cuda.h"
#pragma GCC visibility push(default)
#include "cuda_runtime_api.h"
#pragma GCC visibility pop

/* The driver's functions that this runtime uses, by symbol. */
/* clang-format off */
#define RT_DRIVER(X)                                                                               \
	X(cuInit) X(cuDriverGetVersion) X(cuDeviceGet) X(cuDeviceGetCount) X(cuDeviceGetName)      \
	X(cuDeviceGetUuid_v2) X(cuDeviceTotalMem_v2) X(cuDeviceGetAttribute)                       \
	X(cuDeviceGetPCIBusId) X(cuDeviceGetByPCIBusId) X(cuDeviceCanAccessPeer)                   \
	X(cuDeviceGetP2PAttribute) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2)     \
	X(cuDevicePrimaryCtxReset_v2) X(cuDevicePrimaryCtxSetFlags_v2)                             \
	X(cuDevicePrimaryCtxGetState) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxGetDevice)      \
	X(cuCtxSynchronize) X(cuCtxSetLimit) X(cuCtxGetLimit) X(cuCtxGetFlags)                     \
	X(cuCtxGetCacheConfig) X(cuCtxSetCacheConfig) X(cuCtxGetStreamPriorityRange)               \
	X(cuCtxResetPersistingL2Cache) X(cuCtxEnablePeerAccess) X(cuCtxDisablePeerAccess)          \
	X(cuGetErrorName) X(cuGetErrorString) X(cuProfilerStart) X(cuProfilerStop)                 \
	X(cuMemAlloc_v2) X(cuMemAllocPitch_v2) X(cuMemAllocManaged) X(cuMemFree_v2)                \
	X(cuMemGetInfo_v2) X(cuMemHostAlloc) X(cuMemAllocHost_v2) X(cuMemFreeHost)                 \
	X(cuMemHostRegister_v2) X(cuMemHostUnregister) X(cuMemHostGetDevicePointer_v2)             \
	X(cuMemHostGetFlags) X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemAllocFromPoolAsync)       \
	X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolTrimTo) X(cuMemPoolGetAttribute)         \
	X(cuMemPoolSetAttribute) X(cuMemPoolSetAccess) X(cuMemPoolGetAccess)                       \
	X(cuDeviceGetDefaultMemPool) X(cuDeviceGetMemPool) X(cuDeviceSetMemPool)                   \
	X(cuDeviceGraphMemTrim) X(cuDeviceGetGraphMemAttribute) X(cuDeviceSetGraphMemAttribute)    \
	X(cuMemcpy) X(cuMemcpyAsync) X(cuMemcpyHtoD_v2) X(cuMemcpyHtoDAsync_v2)                    \
	X(cuMemcpyDtoH_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoD_v2) X(cuMemcpyDtoDAsync_v2)      \
	X(cuMemcpyPeer) X(cuMemcpyPeerAsync) X(cuMemcpy2DUnaligned_v2) X(cuMemcpy2DAsync_v2)       \
	X(cuMemcpy3D_v2) X(cuMemcpy3DAsync_v2) X(cuMemsetD8_v2) X(cuMemsetD8Async)                 \
	X(cuMemsetD2D8_v2) X(cuMemsetD2D8Async) X(cuMemAdvise_v2) X(cuMemPrefetchAsync_v2)         \
	X(cuMemRangeGetAttribute) X(cuMemRangeGetAttributes) X(cuPointerGetAttributes)             \
	X(cuPointerGetAttribute) X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle_v2)                     \
	X(cuIpcCloseMemHandle) X(cuIpcGetEventHandle) X(cuIpcOpenEventHandle)                      \
	X(cuArray3DCreate_v2) X(cuArrayDestroy) X(cuArray3DGetDescriptor_v2)                       \
	X(cuMipmappedArrayCreate) X(cuMipmappedArrayDestroy) X(cuMipmappedArrayGetLevel)           \
	X(cuStreamCreate) X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2) X(cuStreamQuery)     \
	X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamAddCallback) X(cuLaunchHostFunc)     \
	X(cuStreamGetPriority) X(cuStreamGetFlags) X(cuStreamGetId) X(cuStreamGetDevice)           \
	X(cuStreamCopyAttributes) X(cuStreamGetAttribute) X(cuStreamSetAttribute)                  \
	X(cuStreamAttachMemAsync) X(cuStreamBeginCapture_v2) X(cuStreamBeginCaptureToGraph)        \
	X(cuStreamEndCapture) X(cuStreamIsCapturing) X(cuStreamGetCaptureInfo_v3)                  \
	X(cuStreamUpdateCaptureDependencies_v2) X(cuThreadExchangeStreamCaptureMode)               \
	X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord) X(cuEventRecordWithFlags)           \
	X(cuEventQuery) X(cuEventSynchronize) X(cuEventElapsedTime_v2) X(cuLibraryLoadData)        \
	X(cuLibraryLoadFromFile) X(cuLibraryUnload) X(cuLibraryGetKernel)                          \
	X(cuLibraryGetKernelCount) X(cuLibraryEnumerateKernels) X(cuLibraryGetGlobal)              \
	X(cuLibraryGetManaged) X(cuKernelGetFunction) X(cuKernelGetName) X(cuFuncGetName)          \
	X(cuFuncGetAttribute) X(cuFuncSetAttribute) X(cuFuncSetCacheConfig)                        \
	X(cuKernelSetAttribute) X(cuLaunchKernel) X(cuLaunchKernelEx)                              \
	X(cuLaunchCooperativeKernel) X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags)       \
	X(cuOccupancyAvailableDynamicSMemPerBlock) X(cuOccupancyMaxPotentialClusterSize)           \
	X(cuOccupancyMaxActiveClusters) X(cuGraphCreate) X(cuGraphDestroy)                         \
	X(cuGraphAddKernelNode_v2) X(cuGraphAddMemcpyNode) X(cuGraphAddMemsetNode)                 \
	X(cuGraphAddHostNode) X(cuGraphAddEmptyNode) X(cuGraphAddChildGraphNode)                   \
	X(cuGraphAddEventRecordNode) X(cuGraphAddEventWaitNode) X(cuGraphAddDependencies_v2)       \
	X(cuGraphRemoveDependencies_v2) X(cuGraphInstantiateWithFlags) X(cuGraphLaunch)            \
	X(cuGraphUpload) X(cuGraphExecDestroy) X(cuGraphExecUpdate_v2) X(cuGraphGetNodes)          \
	X(cuGraphGetRootNodes) X(cuGraphGetEdges_v2) X(cuGraphNodeGetType)                         \
	X(cuGraphNodeGetDependencies_v2) X(cuGraphNodeGetDependentNodes_v2)                        \
	X(cuGraphDestroyNode) X(cuGraphClone) X(cuGraphDebugDotPrint)                              \
	X(cuGraphKernelNodeGetParams_v2) X(cuGraphKernelNodeSetParams_v2)                          \
	X(cuGraphExecKernelNodeSetParams_v2) X(cuGraphHostNodeGetParams)                           \
	X(cuGraphHostNodeSetParams) X(cuGraphExecHostNodeSetParams) X(cuGraphExecGetFlags)         \
	X(cuGraphChildGraphNodeGetGraph) X(cuUserObjectCreate) X(cuUserObjectRetain)               \
	X(cuUserObjectRelease) X(cuGraphRetainUserObject) X(cuGraphReleaseUserObject)              \
	X(cuGraphNodeSetEnabled) X(cuGraphNodeGetEnabled) X(cuGraphNodeFindInClone)                \
	X(cuGraphMemcpyNodeSetParams) X(cuGraphExecMemcpyNodeSetParams)                            \
	X(cuGraphMemsetNodeGetParams) X(cuGraphMemsetNodeSetParams)                                \
	X(cuGraphExecMemsetNodeSetParams) X(cuGraphEventRecordNodeGetEvent)                        \
	X(cuGraphEventRecordNodeSetEvent) X(cuGraphExecEventRecordNodeSetEvent)                    \
	X(cuGraphEventWaitNodeGetEvent) X(cuGraphEventWaitNodeSetEvent)                            \
	X(cuGraphExecEventWaitNodeSetEvent) X(cuGraphAddMemAllocNode) X(cuGraphAddMemFreeNode)     \
	X(cuGraphKernelNodeCopyAttributes) X(cuGraphKernelNodeGetAttribute)                        \
	X(cuGraphKernelNodeSetAttribute) X(cuMemGetDefaultMemPool) X(cuMemGetMemPool)              \
	X(cuMemSetMemPool)
/* clang-format on */

struct rt_driver {
#define X(sym) __typeof__(&sym) sym[2];
	RT_DRIVER(X)
#undef X
};
extern struct rt_driver rt;

/* pt: 0 legacy default stream, 1 per thread. A missing function says so instead of crashing. */
#define DRV(sym, pt, ...)                                                                          \
	(rt.sym[pt] ? (cudaError_t)rt.sym[pt](__VA_ARGS__) : cudaErrorNotSupported)

cudaError_t rt_init(void);	     /* the driver is loaded and initialised */
cudaError_t rt_enter(void);	     /* ... and this thread has a context */
cudaError_t rt_return(cudaError_t e); /* remembers an error for cudaGetLastError */
int rt_device(void);
bool rt_context_of(int device, CUcontext *out);
CUfunction rt_function(const void *symbol, cudaError_t *e); /* a kernel by its host stub */
cudaError_t rt_symbol(const void *symbol, CUdeviceptr *addr, size_t *size);
cudaError_t rt_box(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *out);

/* Body of a call that needs a context: e is what it returns. */
#define CALL(...)                                                                                  \
	do {                                                                                       \
		cudaError_t e_ = rt_enter();                                                       \
		if (!e_)                                                                           \
			e_ = (__VA_ARGS__);                                                        \
		return rt_return(e_);                                                              \
	} while (0)

/* A function in both flavours; in its body pt is 0 or 1. */
#define BOTH(name, suffix, params, ...)                                                            \
	cudaError_t CUDARTAPI name params                                                          \
	{                                                                                          \
		enum { pt = 0 };                                                                   \
		__VA_ARGS__                                                                        \
	}                                                                                          \
	cudaError_t CUDARTAPI name##suffix params                                                  \
	{                                                                                          \
		enum { pt = 1 };                                                                   \
		__VA_ARGS__                                                                        \
	}

#endif
