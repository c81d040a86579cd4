// SPDX-License-Identifier: Apache-2.0
/* graph.c - graphs: the driver's, with the runtime's way of naming kernels and memory. */
#include <string.h>

#include "rt.h"

static cudaError_t kernel_params(const struct cudaKernelNodeParams *p, CUDA_KERNEL_NODE_PARAMS *q)
{
	cudaError_t e;

	memset(q, 0, sizeof(*q));
	if (!p)
		return cudaErrorInvalidValue;
	q->kern = (CUkernel)rt_function(p->func, &e);
	q->gridDimX = p->gridDim.x;
	q->gridDimY = p->gridDim.y;
	q->gridDimZ = p->gridDim.z;
	q->blockDimX = p->blockDim.x;
	q->blockDimY = p->blockDim.y;
	q->blockDimZ = p->blockDim.z;
	q->sharedMemBytes = p->sharedMemBytes;
	q->kernelParams = p->kernelParams;
	q->extra = p->extra;
	return e;
}

static cudaError_t memset_params(const struct cudaMemsetParams *p, CUDA_MEMSET_NODE_PARAMS *q)
{
	if (!p)
		return cudaErrorInvalidValue;
	*q = (CUDA_MEMSET_NODE_PARAMS){(CUdeviceptr)p->dst, p->pitch, p->value,
				       p->elementSize,	    p->width, p->height};
	return cudaSuccess;
}

static void box1(void *d, const void *s, size_t n, CUDA_MEMCPY3D *q)
{
	memset(q, 0, sizeof(*q));
	q->srcMemoryType = q->dstMemoryType = CU_MEMORYTYPE_UNIFIED;
	q->srcDevice = (CUdeviceptr)s;
	q->dstDevice = (CUdeviceptr)d;
	q->WidthInBytes = n;
	q->Height = q->Depth = 1;
}

cudaError_t cudaGraphCreate(cudaGraph_t *out, unsigned int flags)
{
	CALL(DRV(cuGraphCreate, 0, out, flags));
}

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
	CALL(DRV(cuGraphDestroy, 0, g));
}

cudaError_t cudaGraphClone(cudaGraph_t *out, cudaGraph_t g)
{
	CALL(DRV(cuGraphClone, 0, out, g));
}

cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *d,
				   size_t n, const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS q;
	cudaError_t e = rt_enter();

	if (!e)
		e = kernel_params(p, &q);
	return rt_return(e ? e : DRV(cuGraphAddKernelNode_v2, 0, out, g, d, n, &q));
}

cudaError_t cudaGraphKernelNodeSetParams(cudaGraphNode_t h, const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS q;
	cudaError_t e = rt_enter();

	if (!e)
		e = kernel_params(p, &q);
	return rt_return(e ? e : DRV(cuGraphKernelNodeSetParams_v2, 0, h, &q));
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t h,
					     const struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS q;
	cudaError_t e = rt_enter();

	if (!e)
		e = kernel_params(p, &q);
	return rt_return(e ? e : DRV(cuGraphExecKernelNodeSetParams_v2, 0, x, h, &q));
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t h, struct cudaKernelNodeParams *p)
{
	CUDA_KERNEL_NODE_PARAMS q;
	cudaError_t e = rt_enter();

	if (!e && !p)
		e = cudaErrorInvalidValue;
	if (!e)
		e = DRV(cuGraphKernelNodeGetParams_v2, 0, h, &q);
	if (e)
		return rt_return(e);
	memset(p, 0, sizeof(*p));
	p->func = q.func ? (void *)q.func : (void *)q.kern;
	p->gridDim = (dim3){q.gridDimX, q.gridDimY, q.gridDimZ};
	p->blockDim = (dim3){q.blockDimX, q.blockDimY, q.blockDimZ};
	p->sharedMemBytes = q.sharedMemBytes;
	return cudaSuccess;
}

cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *d,
				   size_t n, const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D q;
	cudaError_t e = rt_enter();

	if (!e)
		e = rt_box(p, &q);
	return rt_return(e ? e : DRV(cuGraphAddMemcpyNode, 0, out, g, d, n, &q, NULL));
}

cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *d,
				     size_t n, void *dst, const void *src, size_t bytes,
				     enum cudaMemcpyKind kind)
{
	CUDA_MEMCPY3D q;

	(void)kind; /* the addresses say it */
	box1(dst, src, bytes, &q);
	CALL(DRV(cuGraphAddMemcpyNode, 0, out, g, d, n, &q, NULL));
}

cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *d,
				   size_t n, const struct cudaMemsetParams *p)
{
	CUDA_MEMSET_NODE_PARAMS q;
	cudaError_t e = rt_enter();

	if (!e)
		e = memset_params(p, &q);
	return rt_return(e ? e : DRV(cuGraphAddMemsetNode, 0, out, g, d, n, &q, NULL));
}

cudaError_t cudaGraphAddHostNode(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *d,
				 size_t n, const struct cudaHostNodeParams *p)
{
	CALL(DRV(cuGraphAddHostNode, 0, out, g, d, n, (const CUDA_HOST_NODE_PARAMS *)p));
}

cudaError_t cudaGraphHostNodeGetParams(cudaGraphNode_t h, struct cudaHostNodeParams *p)
{
	CALL(DRV(cuGraphHostNodeGetParams, 0, h, (CUDA_HOST_NODE_PARAMS *)p));
}

cudaError_t cudaGraphHostNodeSetParams(cudaGraphNode_t h, const struct cudaHostNodeParams *p)
{
	CALL(DRV(cuGraphHostNodeSetParams, 0, h, (const CUDA_HOST_NODE_PARAMS *)p));
}

cudaError_t cudaGraphExecHostNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t h,
					   const struct cudaHostNodeParams *p)
{
	CALL(DRV(cuGraphExecHostNodeSetParams, 0, x, h, (const CUDA_HOST_NODE_PARAMS *)p));
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *d,
				  size_t n)
{
	CALL(DRV(cuGraphAddEmptyNode, 0, out, g, d, n));
}

cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t *out, cudaGraph_t g,
				       const cudaGraphNode_t *d, size_t n, cudaGraph_t child)
{
	CALL(DRV(cuGraphAddChildGraphNode, 0, out, g, d, n, child));
}

cudaError_t cudaGraphChildGraphNodeGetGraph(cudaGraphNode_t h, cudaGraph_t *out)
{
	CALL(DRV(cuGraphChildGraphNodeGetGraph, 0, h, out));
}

cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t *out, cudaGraph_t g,
					const cudaGraphNode_t *d, size_t n, cudaEvent_t e)
{
	CALL(DRV(cuGraphAddEventRecordNode, 0, out, g, d, n, e));
}

cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *d,
				      size_t n, cudaEvent_t e)
{
	CALL(DRV(cuGraphAddEventWaitNode, 0, out, g, d, n, e));
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t g, const cudaGraphNode_t *from,
				     const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
				     size_t n)
{
	CALL(DRV(cuGraphAddDependencies_v2, 0, g, from, to, (const CUgraphEdgeData *)edges, n));
}

cudaError_t cudaGraphRemoveDependencies(cudaGraph_t g, const cudaGraphNode_t *from,
					const cudaGraphNode_t *to, const cudaGraphEdgeData *edges,
					size_t n)
{
	CALL(DRV(cuGraphRemoveDependencies_v2, 0, g, from, to, (const CUgraphEdgeData *)edges, n));
}

cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *out, size_t *n)
{
	CALL(DRV(cuGraphGetNodes, 0, g, out, n));
}

cudaError_t cudaGraphGetRootNodes(cudaGraph_t g, cudaGraphNode_t *out, size_t *n)
{
	CALL(DRV(cuGraphGetRootNodes, 0, g, out, n));
}

cudaError_t cudaGraphGetEdges(cudaGraph_t g, cudaGraphNode_t *from, cudaGraphNode_t *to,
			      cudaGraphEdgeData *edges, size_t *n)
{
	CALL(DRV(cuGraphGetEdges_v2, 0, g, from, to, (CUgraphEdgeData *)edges, n));
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t h, enum cudaGraphNodeType *out)
{
	CALL(DRV(cuGraphNodeGetType, 0, h, (CUgraphNodeType *)out));
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t h, cudaGraphNode_t *out,
					 cudaGraphEdgeData *edges, size_t *n)
{
	CALL(DRV(cuGraphNodeGetDependencies_v2, 0, h, out, (CUgraphEdgeData *)edges, n));
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t h, cudaGraphNode_t *out,
					   cudaGraphEdgeData *edges, size_t *n)
{
	CALL(DRV(cuGraphNodeGetDependentNodes_v2, 0, h, out, (CUgraphEdgeData *)edges, n));
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t h)
{
	CALL(DRV(cuGraphDestroyNode, 0, h));
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t g, const char *path, unsigned int flags)
{
	CALL(DRV(cuGraphDebugDotPrint, 0, g, path, flags));
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags)
{
	CALL(DRV(cuGraphInstantiateWithFlags, 0, out, g, flags));
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t g,
					  unsigned long long flags)
{
	CALL(DRV(cuGraphInstantiateWithFlags, 0, out, g, flags));
}

static cudaError_t instantiate(cudaGraphExec_t *out, cudaGraph_t g, cudaGraphInstantiateParams *p,
			       int pt)
{
	cudaError_t e = rt_enter();

	if (!p)
		return rt_return(cudaErrorInvalidValue);
	if (!e)
		e = DRV(cuGraphInstantiateWithFlags, pt, out, g, p->flags);
	p->errNode_out = NULL;
	p->result_out = e ? cudaGraphInstantiateError : cudaGraphInstantiateSuccess;
	return rt_return(e);
}

BOTH(cudaGraphInstantiateWithParams, _ptsz,
     (cudaGraphExec_t * out, cudaGraph_t g, cudaGraphInstantiateParams *p),
     return instantiate(out, g, p, pt);)
BOTH(cudaGraphLaunch, _ptsz, (cudaGraphExec_t x, cudaStream_t s),
     CALL(DRV(cuGraphLaunch, pt, x, s));)
BOTH(cudaGraphUpload, _ptsz, (cudaGraphExec_t x, cudaStream_t s),
     CALL(DRV(cuGraphUpload, pt, x, s));)

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
	CALL(DRV(cuGraphExecDestroy, 0, x));
}

cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t x, unsigned long long *flags)
{
	CALL(DRV(cuGraphExecGetFlags, 0, x, (cuuint64_t *)flags));
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t x, cudaGraph_t g,
				cudaGraphExecUpdateResultInfo *info)
{
	CALL(DRV(cuGraphExecUpdate_v2, 0, x, g, (CUgraphExecUpdateResultInfo *)info));
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t *out, void *ptr, cudaHostFn_t destroy,
				 unsigned int refs, unsigned int flags)
{
	CALL(DRV(cuUserObjectCreate, 0, (CUuserObject *)out, ptr, destroy, refs, flags));
}

cudaError_t cudaUserObjectRetain(cudaUserObject_t o, unsigned int n)
{
	CALL(DRV(cuUserObjectRetain, 0, (CUuserObject)o, n));
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t o, unsigned int n)
{
	CALL(DRV(cuUserObjectRelease, 0, (CUuserObject)o, n));
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t g, cudaUserObject_t o, unsigned int n,
				      unsigned int flags)
{
	CALL(DRV(cuGraphRetainUserObject, 0, g, (CUuserObject)o, n, flags));
}

cudaError_t cudaGraphReleaseUserObject(cudaGraph_t g, cudaUserObject_t o, unsigned int n)
{
	CALL(DRV(cuGraphReleaseUserObject, 0, g, (CUuserObject)o, n));
}

/* -- the rest of a node's life ---------------------------------------------------------------- */

cudaError_t cudaGraphNodeSetEnabled(cudaGraphExec_t x, cudaGraphNode_t h, unsigned int on)
{
	CALL(DRV(cuGraphNodeSetEnabled, 0, x, h, on));
}

cudaError_t cudaGraphNodeGetEnabled(cudaGraphExec_t x, cudaGraphNode_t h, unsigned int *on)
{
	CALL(DRV(cuGraphNodeGetEnabled, 0, x, h, on));
}

cudaError_t cudaGraphNodeFindInClone(cudaGraphNode_t *out, cudaGraphNode_t h, cudaGraph_t g)
{
	CALL(DRV(cuGraphNodeFindInClone, 0, out, h, g));
}

cudaError_t cudaGraphMemcpyNodeSetParams(cudaGraphNode_t h, const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D q;
	cudaError_t e = rt_enter();

	if (!e)
		e = rt_box(p, &q);
	return rt_return(e ? e : DRV(cuGraphMemcpyNodeSetParams, 0, h, &q));
}

cudaError_t cudaGraphMemcpyNodeSetParams1D(cudaGraphNode_t h, void *d, const void *s, size_t n,
					   enum cudaMemcpyKind kind)
{
	CUDA_MEMCPY3D q;

	(void)kind;
	box1(d, s, n, &q);
	CALL(DRV(cuGraphMemcpyNodeSetParams, 0, h, &q));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t h,
					     const struct cudaMemcpy3DParms *p)
{
	CUDA_MEMCPY3D q;
	cudaError_t e = rt_enter();

	if (!e)
		e = rt_box(p, &q);
	return rt_return(e ? e : DRV(cuGraphExecMemcpyNodeSetParams, 0, x, h, &q, NULL));
}

cudaError_t cudaGraphExecMemcpyNodeSetParams1D(cudaGraphExec_t x, cudaGraphNode_t h, void *d,
					       const void *s, size_t n, enum cudaMemcpyKind kind)
{
	CUDA_MEMCPY3D q;

	(void)kind;
	box1(d, s, n, &q);
	CALL(DRV(cuGraphExecMemcpyNodeSetParams, 0, x, h, &q, NULL));
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t h, struct cudaMemsetParams *p)
{
	_Static_assert(sizeof(*p) == sizeof(CUDA_MEMSET_NODE_PARAMS), "one layout");
	CALL(DRV(cuGraphMemsetNodeGetParams, 0, h, (CUDA_MEMSET_NODE_PARAMS *)p));
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t h, const struct cudaMemsetParams *p)
{
	CALL(DRV(cuGraphMemsetNodeSetParams, 0, h, (const CUDA_MEMSET_NODE_PARAMS *)p));
}

cudaError_t cudaGraphExecMemsetNodeSetParams(cudaGraphExec_t x, cudaGraphNode_t h,
					     const struct cudaMemsetParams *p)
{
	CALL(DRV(cuGraphExecMemsetNodeSetParams, 0, x, h, (const CUDA_MEMSET_NODE_PARAMS *)p,
		 NULL));
}

cudaError_t cudaGraphEventRecordNodeGetEvent(cudaGraphNode_t h, cudaEvent_t *e)
{
	CALL(DRV(cuGraphEventRecordNodeGetEvent, 0, h, e));
}

cudaError_t cudaGraphEventRecordNodeSetEvent(cudaGraphNode_t h, cudaEvent_t e)
{
	CALL(DRV(cuGraphEventRecordNodeSetEvent, 0, h, e));
}

cudaError_t cudaGraphExecEventRecordNodeSetEvent(cudaGraphExec_t x, cudaGraphNode_t h,
						 cudaEvent_t e)
{
	CALL(DRV(cuGraphExecEventRecordNodeSetEvent, 0, x, h, e));
}

cudaError_t cudaGraphEventWaitNodeGetEvent(cudaGraphNode_t h, cudaEvent_t *e)
{
	CALL(DRV(cuGraphEventWaitNodeGetEvent, 0, h, e));
}

cudaError_t cudaGraphEventWaitNodeSetEvent(cudaGraphNode_t h, cudaEvent_t e)
{
	CALL(DRV(cuGraphEventWaitNodeSetEvent, 0, h, e));
}

cudaError_t cudaGraphExecEventWaitNodeSetEvent(cudaGraphExec_t x, cudaGraphNode_t h, cudaEvent_t e)
{
	CALL(DRV(cuGraphExecEventWaitNodeSetEvent, 0, x, h, e));
}

cudaError_t cudaGraphAddMemAllocNode(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *d,
				     size_t n, struct cudaMemAllocNodeParams *p)
{
	_Static_assert(sizeof(*p) == sizeof(CUDA_MEM_ALLOC_NODE_PARAMS), "one layout");
	CALL(DRV(cuGraphAddMemAllocNode, 0, out, g, d, n, (CUDA_MEM_ALLOC_NODE_PARAMS *)p));
}

cudaError_t cudaGraphAddMemFreeNode(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *d,
				    size_t n, void *p)
{
	CALL(DRV(cuGraphAddMemFreeNode, 0, out, g, d, n, (CUdeviceptr)p));
}

cudaError_t cudaGraphKernelNodeCopyAttributes(cudaGraphNode_t to, cudaGraphNode_t from)
{
	CALL(DRV(cuGraphKernelNodeCopyAttributes, 0, to, from));
}

cudaError_t cudaGraphKernelNodeGetAttribute(cudaGraphNode_t h, cudaLaunchAttributeID id,
					    cudaLaunchAttributeValue *v)
{
	CALL(DRV(cuGraphKernelNodeGetAttribute, 0, h, (CUkernelNodeAttrID)id,
		 (CUkernelNodeAttrValue *)v));
}

cudaError_t cudaGraphKernelNodeSetAttribute(cudaGraphNode_t h, cudaLaunchAttributeID id,
					    const cudaLaunchAttributeValue *v)
{
	CALL(DRV(cuGraphKernelNodeSetAttribute, 0, h, (CUkernelNodeAttrID)id,
		 (const CUkernelNodeAttrValue *)v));
}

cudaError_t cudaGraphAddNode(cudaGraphNode_t *out, cudaGraph_t g, const cudaGraphNode_t *d,
			     const cudaGraphEdgeData *edges, size_t n,
			     struct cudaGraphNodeParams *p)
{
	struct cudaKernelNodeParams kernel;
	struct cudaMemsetParams set;
	struct cudaHostNodeParams host;

	(void)edges;
	if (!p)
		return rt_return(cudaErrorInvalidValue);
	switch (p->type) {
	case cudaGraphNodeTypeKernel:
		memcpy(&kernel, &p->kernel, sizeof(kernel));
		return cudaGraphAddKernelNode(out, g, d, n, &kernel);
	case cudaGraphNodeTypeMemcpy:
		return cudaGraphAddMemcpyNode(out, g, d, n, &p->memcpy.copyParams);
	case cudaGraphNodeTypeMemset:
		memcpy(&set, &p->memset, sizeof(set));
		return cudaGraphAddMemsetNode(out, g, d, n, &set);
	case cudaGraphNodeTypeHost:
		memcpy(&host, &p->host, sizeof(host));
		return cudaGraphAddHostNode(out, g, d, n, &host);
	case cudaGraphNodeTypeGraph:
		return cudaGraphAddChildGraphNode(out, g, d, n, p->graph.graph);
	case cudaGraphNodeTypeEmpty:
		return cudaGraphAddEmptyNode(out, g, d, n);
	case cudaGraphNodeTypeWaitEvent:
		return cudaGraphAddEventWaitNode(out, g, d, n, p->eventWait.event);
	case cudaGraphNodeTypeEventRecord:
		return cudaGraphAddEventRecordNode(out, g, d, n, p->eventRecord.event);
	case cudaGraphNodeTypeMemFree:
		return cudaGraphAddMemFreeNode(out, g, d, n, p->free.dptr);
	default:
		return rt_return(cudaErrorNotSupported);
	}
}
