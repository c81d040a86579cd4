// SPDX-License-Identifier: Apache-2.0
/* stream.c - streams, events, capture. Handles are the driver's own. */
#include <stdlib.h>

#include "rt.h"

/* -- streams ---------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
	CALL(DRV(cuStreamCreate, 0, out, CU_STREAM_DEFAULT));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
	CALL(DRV(cuStreamCreate, 0, out, flags));
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority)
{
	CALL(DRV(cuStreamCreateWithPriority, 0, out, flags, priority));
}

cudaError_t cudaStreamDestroy(cudaStream_t s)
{
	CALL(DRV(cuStreamDestroy_v2, 0, s));
}

BOTH(cudaStreamQuery, _ptsz, (cudaStream_t s), CALL(DRV(cuStreamQuery, pt, s));)
BOTH(cudaStreamSynchronize, _ptsz, (cudaStream_t s), CALL(DRV(cuStreamSynchronize, pt, s));)
BOTH(cudaStreamWaitEvent, _ptsz, (cudaStream_t s, cudaEvent_t e, unsigned int flags),
     CALL(DRV(cuStreamWaitEvent, pt, s, e, flags));)
BOTH(cudaStreamGetPriority, _ptsz, (cudaStream_t s, int *out),
     CALL(DRV(cuStreamGetPriority, pt, s, out));)
BOTH(cudaStreamGetFlags, _ptsz, (cudaStream_t s, unsigned int *out),
     CALL(DRV(cuStreamGetFlags, pt, s, out));)
BOTH(cudaStreamGetId, _ptsz, (cudaStream_t s, unsigned long long *out),
     CALL(DRV(cuStreamGetId, pt, s, out));)
BOTH(cudaStreamGetDevice, _ptsz, (cudaStream_t s, int *out),
     CALL(DRV(cuStreamGetDevice, pt, s, out));)
BOTH(cudaStreamCopyAttributes, _ptsz, (cudaStream_t d, cudaStream_t s),
     CALL(DRV(cuStreamCopyAttributes, pt, d, s));)
BOTH(cudaStreamGetAttribute, _ptsz, (cudaStream_t s, cudaStreamAttrID id, cudaStreamAttrValue *v),
     CALL(DRV(cuStreamGetAttribute, pt, s, (CUstreamAttrID)id, (CUstreamAttrValue *)v));)
BOTH(cudaStreamSetAttribute, _ptsz,
     (cudaStream_t s, cudaStreamAttrID id, const cudaStreamAttrValue *v),
     CALL(DRV(cuStreamSetAttribute, pt, s, (CUstreamAttrID)id, (const CUstreamAttrValue *)v));)
BOTH(cudaStreamAttachMemAsync, _ptsz, (cudaStream_t s, void *p, size_t n, unsigned int flags),
     CALL(DRV(cuStreamAttachMemAsync, pt, s, (CUdeviceptr)p, n, flags));)
BOTH(cudaLaunchHostFunc, _ptsz, (cudaStream_t s, cudaHostFn_t fn, void *user),
     CALL(DRV(cuLaunchHostFunc, pt, s, fn, user));)

struct callback {
	cudaStreamCallback_t fn;
	void *user;
};

static void callback(CUstream s, CUresult status, void *arg)
{
	struct callback c = *(struct callback *)arg;

	free(arg);
	c.fn(s, (cudaError_t)status, c.user);
}

static cudaError_t add_callback(cudaStream_t s, cudaStreamCallback_t fn, void *user,
				unsigned int flags, int pt)
{
	struct callback *c = malloc(sizeof(*c));
	cudaError_t e;

	if (!c)
		return cudaErrorMemoryAllocation;
	c->fn = fn;
	c->user = user;
	e = fn ? DRV(cuStreamAddCallback, pt, s, callback, c, flags) : cudaErrorInvalidValue;
	if (e)
		free(c);
	return e;
}
BOTH(cudaStreamAddCallback, _ptsz,
     (cudaStream_t s, cudaStreamCallback_t fn, void *user, unsigned int flags),
     CALL(add_callback(s, fn, user, flags, pt));)

/* -- events ----------------------------------------------------------------------------------- */

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
	CALL(DRV(cuEventCreate, 0, out, CU_EVENT_DEFAULT));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
	CALL(DRV(cuEventCreate, 0, out, flags));
}

cudaError_t cudaEventDestroy(cudaEvent_t e)
{
	CALL(DRV(cuEventDestroy_v2, 0, e));
}

cudaError_t cudaEventQuery(cudaEvent_t e)
{
	CALL(DRV(cuEventQuery, 0, e));
}

cudaError_t cudaEventSynchronize(cudaEvent_t e)
{
	CALL(DRV(cuEventSynchronize, 0, e));
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b)
{
	CALL(DRV(cuEventElapsedTime_v2, 0, ms, a, b));
}

BOTH(cudaEventRecord, _ptsz, (cudaEvent_t e, cudaStream_t s), CALL(DRV(cuEventRecord, pt, e, s));)
BOTH(cudaEventRecordWithFlags, _ptsz, (cudaEvent_t e, cudaStream_t s, unsigned int flags),
     CALL(DRV(cuEventRecordWithFlags, pt, e, s, flags));)

cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t *out, cudaEvent_t e)
{
	CALL(DRV(cuIpcGetEventHandle, 0, (CUipcEventHandle *)out, e));
}

cudaError_t cudaIpcOpenEventHandle(cudaEvent_t *out, cudaIpcEventHandle_t h)
{
	CUipcEventHandle d;

	_Static_assert(sizeof(d) == sizeof(h), "one layout");
	__builtin_memcpy(&d, &h, sizeof(d));
	CALL(DRV(cuIpcOpenEventHandle, 0, out, d));
}

/* -- capture ---------------------------------------------------------------------------------- */

BOTH(cudaStreamBeginCapture, _ptsz, (cudaStream_t s, enum cudaStreamCaptureMode mode),
     CALL(DRV(cuStreamBeginCapture_v2, pt, s, (CUstreamCaptureMode)mode));)
BOTH(cudaStreamEndCapture, _ptsz, (cudaStream_t s, cudaGraph_t *out),
     CALL(DRV(cuStreamEndCapture, pt, s, out));)
BOTH(cudaStreamIsCapturing, _ptsz, (cudaStream_t s, enum cudaStreamCaptureStatus *out),
     CALL(DRV(cuStreamIsCapturing, pt, s, (CUstreamCaptureStatus *)out));)
BOTH(cudaStreamGetCaptureInfo, _ptsz,
     (cudaStream_t s, enum cudaStreamCaptureStatus *status, unsigned long long *id,
      cudaGraph_t *graph, const cudaGraphNode_t **deps, const cudaGraphEdgeData **edges,
      size_t *count),
     CALL(DRV(cuStreamGetCaptureInfo_v3, pt, s, (CUstreamCaptureStatus *)status, (cuuint64_t *)id,
	      graph, deps, (const CUgraphEdgeData **)edges, count));)
BOTH(cudaStreamUpdateCaptureDependencies, _ptsz,
     (cudaStream_t s, cudaGraphNode_t *deps, const cudaGraphEdgeData *edges, size_t count,
      unsigned int flags),
     CALL(DRV(cuStreamUpdateCaptureDependencies_v2, pt, s, deps, (const CUgraphEdgeData *)edges,
	      count, flags));)
BOTH(cudaStreamBeginCaptureToGraph, _ptsz,
     (cudaStream_t s, cudaGraph_t g, const cudaGraphNode_t *deps, const cudaGraphEdgeData *edges,
      size_t count, enum cudaStreamCaptureMode mode),
     CALL(DRV(cuStreamBeginCaptureToGraph, pt, s, g, deps, (const CUgraphEdgeData *)edges, count,
	      (CUstreamCaptureMode)mode));)

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
	cudaError_t e = rt_init();

	return rt_return(
		e ? e : DRV(cuThreadExchangeStreamCaptureMode, 0, (CUstreamCaptureMode *)mode));
}
