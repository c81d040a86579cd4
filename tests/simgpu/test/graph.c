// SPDX-License-Identifier: Apache-2.0
/* graph.c - capture and graphs. */
#include <cuda.h>
#include <pthread.h>
#include <stdbool.h>

#include "tests.h"

static CUcontext ctx;
static CUmodule module;
static CUstream a, b;
static CUdeviceptr gate;
static volatile uint32_t *w;

static void up(void)
{
	void *p;

	OK(cuInit(0));
	OK(cuCtxCreate_v2(&ctx, 0, 0));
	OK(cuModuleLoadData(&module, "any image"));
	OK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
	OK(cuMemHostAlloc(&p, 4096, 0));
	memset(p, 0, 4096);
	w = p;
	gate = (CUdeviceptr)p;
}

static CUresult launch(const char *name, CUstream s)
{
	CUfunction f;

	OK(cuModuleGetFunction(&f, module, name));
	return cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
}

static size_t nodes_of(CUgraph g)
{
	size_t n;

	OK(cuGraphGetNodes(g, NULL, &n));
	return n;
}

static void t_capture(void)
{
	CUstreamCaptureStatus st;
	CUgraphNodeType type;
	const CUgraphNode *deps;
	CUgraphNode nodes[8];
	CUgraphExec x;
	CUgraph g, now;
	CUdeviceptr d;
	size_t n = 8, count;
	cuuint64_t id;

	up();
	OK(cuMemAlloc(&d, 64));
	OK(cuMemsetD32(d, 1, 16));
	OK(cuStreamIsCapturing(a, &st));
	IS(st, CU_STREAM_CAPTURE_STATUS_NONE);
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	IS(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED), CUDA_ERROR_ILLEGAL_STATE);
	OK(launch("sleep_us_30000", a));
	OK(cuMemsetD32Async(d, 2, 16, a));
	OK(cuMemcpyDtoHAsync((void *)(w + 8), d, 4, a));
	OK(cuStreamGetCaptureInfo_v3(a, &st, &id, &now, &deps, NULL, &count));
	IS(st, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	IS(count, 1);
	OK(cuGraphNodeGetType(deps[0], &type));
	IS(type, CU_GRAPH_NODE_TYPE_MEMCPY);
	OK(cuStreamEndCapture(a, &g));
	CHECK(g == now);
	IS(nodes_of(g), 3);
	OK(cuGraphGetNodes(g, nodes, &n));
	IS(n, 3);
	OK(cuGraphGetEdges(g, NULL, NULL, NULL, &n));
	IS(n, 2);
	IS(w[8], 0); /* nothing ran */
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphDestroy(g));
	for (int i = 0; i < 3; i++) {
		w[8] = 0;
		OK(cuGraphLaunch(x, a));
		IS(w[8], 0);
		OK(cuStreamSynchronize(a));
		IS(w[8], 2);
	}
	/* Launched into a capture it becomes a child of what is captured. */
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuGraphLaunch(x, a));
	OK(cuStreamWriteValue32(a, gate + 36, 5, 0));
	OK(cuStreamEndCapture(a, &g));
	IS(nodes_of(g), 2);
	OK(cuGraphExecDestroy(x));
	OK(cuGraphInstantiate(&x, g, 0));
	w[8] = 0;
	OK(cuGraphLaunch(x, a));
	IS(w[8], 0);
	OK(cuStreamSynchronize(a));
	CHECK(w[8] == 2 && w[9] == 5);
	OK(cuGraphExecDestroy(x));
	/* A synchronisation breaks it. */
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(cuStreamSynchronize(a), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(launch("k", a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	IS(cuStreamEndCapture(a, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	CHECK(!g);
	OK(launch("k", a));
	OK(cuStreamSynchronize(a));
	IS(cuStreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED),
	   CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

/* A capture spreads through an event to a second stream and comes back. */
static void t_spread(void)
{
	CUstreamCaptureStatus st;
	CUevent fork_, join;
	CUgraphExec x;
	CUgraph g;
	size_t n;

	up();
	OK(cuEventCreate(&fork_, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(launch("first", a));
	OK(cuEventRecord(fork_, a));
	OK(cuStreamWaitEvent(b, fork_, 0));
	OK(cuStreamIsCapturing(b, &st));
	IS(st, CU_STREAM_CAPTURE_STATUS_ACTIVE);
	OK(launch("side", b));
	OK(launch("main", a));
	OK(cuEventRecord(join, b));
	IS(cuStreamEndCapture(b, &g), CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
	IS(cuStreamWaitEvent(a, join, 0), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	IS(cuStreamEndCapture(a, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	/* Again, without the mistake. */
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(launch("first", a));
	OK(cuEventRecord(fork_, a));
	OK(cuStreamWaitEvent(b, fork_, 0));
	OK(launch("side", b));
	OK(launch("main", a));
	OK(cuEventRecord(join, b));
	OK(cuStreamWaitEvent(a, join, 0));
	OK(launch("last", a));
	OK(cuStreamEndCapture(a, &g));
	OK(cuStreamIsCapturing(b, &st));
	IS(st, CU_STREAM_CAPTURE_STATUS_NONE);
	IS(nodes_of(g), 4);
	OK(cuGraphGetEdges(g, NULL, NULL, NULL, &n));
	IS(n, 4);
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphLaunch(x, a));
	OK(cuStreamSynchronize(a));
	/* Outside: the events of the capture hold nobody up. */
	OK(cuStreamWaitEvent(b, join, 0));
	OK(cuStreamSynchronize(b));
}

static void t_unjoined(void)
{
	CUevent e, f;
	CUgraph g;

	up();
	OK(cuEventCreate(&e, CU_EVENT_DISABLE_TIMING));
	OK(cuEventCreate(&f, CU_EVENT_DISABLE_TIMING));
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(launch("k", a));
	OK(cuEventRecord(e, a));
	OK(cuStreamWaitEvent(b, e, 0));
	OK(launch("lost", b));
	IS(cuStreamEndCapture(a, &g), CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
	OK(launch("k", b));
	OK(cuStreamSynchronize(b));
	/* A wait for what was recorded outside of the capture. */
	OK(cuEventRecord(f, b));
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(cuStreamWaitEvent(a, f, 0), CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
	OK(cuStreamEndCapture(a, &g));
}

static CUresult asked[2];

static void *ask(void *arg)
{
	CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUevent e;

	(void)arg;
	OK(cuCtxSetCurrent(ctx));
	OK(cuEventCreate(&e, 0));
	OK(cuThreadExchangeStreamCaptureMode(&relaxed));
	IS(relaxed, CU_STREAM_CAPTURE_MODE_GLOBAL);
	asked[0] = cuEventQuery(e);
	OK(cuThreadExchangeStreamCaptureMode(&relaxed));
	asked[1] = cuEventQuery(e);
	return NULL;
}

/* A helper thread that asks an event kills a global capture, unless its mode says otherwise. */
static void t_modes(void)
{
	CUdeviceptr d;
	CUstream blocking;
	pthread_t t;
	CUgraph g;

	up();
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	OK(pthread_create(&t, NULL, ask, NULL));
	OK(pthread_join(t, NULL));
	OK(asked[0]);
	IS(asked[1], CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamEndCapture(a, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
	OK(pthread_create(&t, NULL, ask, NULL));
	OK(pthread_join(t, NULL));
	OK(asked[1]);
	IS(cuMemAlloc(&d, 16), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
	IS(cuStreamEndCapture(a, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAlloc(&d, 16));
	OK(cuStreamEndCapture(a, &g));
	/* The legacy stream would have to wait for a blocking stream that captures. */
	OK(cuStreamCreate(&blocking, 0));
	OK(cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
	IS(launch("k", NULL), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
	IS(cuStreamEndCapture(blocking, &g), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
	OK(launch("k", NULL));
}

static volatile int calls;
static void CUDA_CB count_call(void *arg)
{
	calls += (int)(intptr_t)arg;
}

static volatile int destroyed;
static void CUDA_CB destroy_object(void *arg)
{
	destroyed += (int)(intptr_t)arg;
}

static void t_nodes(void)
{
	CUDA_KERNEL_NODE_PARAMS k = {.gridDimX = 2,
				     .gridDimY = 1,
				     .gridDimZ = 1,
				     .blockDimX = 64,
				     .blockDimY = 1,
				     .blockDimZ = 1},
				got;
	CUDA_HOST_NODE_PARAMS h = {count_call, (void *)1};
	CUDA_MEMSET_NODE_PARAMS m = {
		.pitch = 64, .value = 7, .elementSize = 4, .width = 16, .height = 1};
	CUgraphNode kernel, set, host, host2, empty, record, child, list[8];
	CUgraph g, inner, clone;
	CUuserObject o;
	CUgraphExec x;
	CUdeviceptr d;
	uint32_t v = 0;
	CUevent e;
	size_t n;

	up();
	OK(cuMemAlloc(&d, 64));
	OK(cuEventCreate(&e, 0));
	OK(cuModuleGetFunction(&k.func, module, "some_kernel"));
	m.dst = d;
	OK(cuGraphCreate(&inner, 0));
	OK(cuGraphAddHostNode(&host2, inner, NULL, 0, &h));
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddKernelNode(&kernel, g, NULL, 0, &k));
	OK(cuGraphAddMemsetNode(&set, g, &kernel, 1, &m, ctx));
	OK(cuGraphAddChildGraphNode(&child, g, &set, 1, inner));
	OK(cuGraphAddEmptyNode(&empty, g, NULL, 0));
	OK(cuGraphAddDependencies(g, &child, &empty, NULL, 1));
	h.userData = (void *)10;
	OK(cuGraphAddHostNode(&host, g, &empty, 1, &h));
	OK(cuGraphAddEventRecordNode(&record, g, &host, 1, e));
	IS(nodes_of(g), 6);
	OK(cuGraphKernelNodeGetParams(kernel, &got));
	CHECK(got.func == k.func && got.gridDimX == 2 && got.blockDimX == 64);
	OK(cuGraphGetRootNodes(g, list, (n = 8, &n)));
	IS(n, 1);
	CHECK(list[0] == kernel);
	OK(cuGraphNodeGetDependentNodes(set, list, NULL, (n = 8, &n)));
	CHECK(n == 1 && list[0] == child);
	OK(cuGraphClone(&clone, g));
	OK(cuGraphNodeFindInClone(&list[0], host, clone));
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphLaunch(x, a));
	OK(cuStreamSynchronize(a));
	IS(calls, 11);
	OK(cuEventQuery(e));
	OK(cuMemcpyDtoH(&v, d + 60, 4));
	IS(v, 7);
	h.userData = (void *)100;
	OK(cuGraphExecHostNodeSetParams(x, host, &h));
	OK(cuGraphNodeSetEnabled(x, set, 0));
	OK(cuMemsetD32(d, 0, 16));
	OK(cuGraphLaunch(x, a));
	OK(cuStreamSynchronize(a));
	IS(calls, 112);
	OK(cuMemcpyDtoH(&v, d, 4));
	IS(v, 0);
	OK(cuGraphDestroyNode(record));
	OK(cuUserObjectCreate(&o, (void *)5, destroy_object, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
	OK(cuGraphRetainUserObject(g, o, 1, CU_GRAPH_USER_OBJECT_MOVE));
	OK(cuGraphDestroy(g));
	IS(destroyed, 5);
	/* A cycle has no order. */
	OK(cuGraphCreate(&g, 0));
	OK(cuGraphAddEmptyNode(&list[0], g, NULL, 0));
	OK(cuGraphAddEmptyNode(&list[1], g, &list[0], 1));
	OK(cuGraphAddDependencies(g, &list[1], &list[0], NULL, 1));
	IS(cuGraphInstantiate(&x, g, 0), CUDA_ERROR_INVALID_VALUE);
}

/* Branches run side by side: one that waits for a value that the other writes. */
static void t_branches(void)
{
	CUstreamBatchMemOpParams wait = {.waitValue = {CU_STREAM_MEM_OP_WAIT_VALUE_32}};
	CUstreamBatchMemOpParams write = {.writeValue = {CU_STREAM_MEM_OP_WRITE_VALUE_32}};
	CUDA_BATCH_MEM_OP_NODE_PARAMS p = {.count = 1, .paramArray = &wait};
	CUgraphNode n[4];
	CUgraphExec x;
	CUgraph g;

	up();
	wait.waitValue.address = gate;
	wait.waitValue.value = 1;
	write.writeValue.address = gate;
	write.writeValue.value = 1;
	OK(cuGraphCreate(&g, 0));
	p.ctx = ctx;
	OK(cuGraphAddBatchMemOpNode(&n[0], g, NULL, 0, &p));
	p.paramArray = &write;
	OK(cuGraphAddBatchMemOpNode(&n[1], g, NULL, 0, &p));
	OK(cuGraphAddEmptyNode(&n[2], g, n, 2));
	OK(cuGraphInstantiate(&x, g, 0));
	for (int i = 0; i < 20; i++) {
		w[0] = 0;
		OK(cuGraphLaunch(x, a));
		OK(cuStreamSynchronize(a));
	}
	OK(cuGraphExecDestroy(x));
	/* What stands behind the graph waits for all of it. */
	write.writeValue.address = gate + 8;
	OK(cuGraphCreate(&g, 0));
	p.paramArray = &wait;
	OK(cuGraphAddBatchMemOpNode(&n[0], g, NULL, 0, &p));
	p.paramArray = &write;
	OK(cuGraphAddBatchMemOpNode(&n[1], g, NULL, 0, &p));
	OK(cuGraphInstantiate(&x, g, 0));
	w[0] = 0;
	OK(cuGraphLaunch(x, a));
	OK(cuStreamWriteValue32(a, gate + 12, 1, 0));
	sleep_ms(20);
	IS(w[2], 1);
	IS(w[3], 0);
	w[0] = 1;
	OK(cuStreamSynchronize(a));
	IS(w[3], 1);
}

static CUgraph captured_set(CUdeviceptr d, unsigned int v, const char *extra)
{
	CUgraph g;

	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemsetD32Async(d, v, 1, a));
	if (extra)
		OK(launch(extra, a));
	OK(cuStreamEndCapture(a, &g));
	return g;
}

static void t_update(void)
{
	CUgraphExecUpdateResultInfo info;
	CUgraphExec x;
	CUdeviceptr d;
	uint32_t v = 0;

	up();
	OK(cuMemAlloc(&d, 64));
	OK(cuGraphInstantiate(&x, captured_set(d, 1, NULL), 0));
	OK(cuGraphExecUpdate(x, captured_set(d, 2, NULL), &info));
	IS(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
	OK(cuGraphLaunch(x, a));
	OK(cuStreamSynchronize(a));
	OK(cuMemcpyDtoH(&v, d, 4));
	IS(v, 2);
	IS(cuGraphExecUpdate(x, captured_set(d, 3, "k"), &info),
	   CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
	IS(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
}

/* Value waits and writes in a capture; an external event is recorded when the graph runs. */
static void t_values(void)
{
	CUgraphExec x;
	CUgraph g;
	CUevent e;

	up();
	OK(cuEventCreate(&e, 0));
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuStreamWaitValue32(a, gate, 1, 0));
	OK(cuStreamWriteValue32(a, gate + 4, 6, 0));
	OK(cuEventRecordWithFlags(e, a, CU_EVENT_RECORD_EXTERNAL));
	OK(cuLaunchHostFunc(a, count_call, (void *)1));
	OK(cuStreamEndCapture(a, &g));
	IS(nodes_of(g), 4);
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphLaunch(x, b));
	sleep_ms(10);
	IS(w[1], 0);
	IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
	w[0] = 1;
	OK(cuEventSynchronize(e));
	OK(cuStreamSynchronize(b));
	IS(w[1], 6);
	IS(calls, 1);
}

static void t_memory(void)
{
	size_t before, f, t;
	CUgraphExec x;
	CUgraph g;
	CUdeviceptr d;

	up();
	OK(cuMemGetInfo(&before, &t));
	OK(cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_RELAXED));
	OK(cuMemAllocAsync(&d, 1 << 20, a));
	OK(cuMemsetD32Async(d, 3, 16, a));
	OK(cuMemFreeAsync(d, a));
	OK(cuStreamEndCapture(a, &g));
	IS(nodes_of(g), 3);
	OK(cuGraphInstantiate(&x, g, 0));
	OK(cuGraphDestroy(g));
	for (int i = 0; i < 3; i++)
		OK(cuGraphLaunch(x, a));
	OK(cuStreamSynchronize(a));
	OK(cuGraphExecDestroy(x));
	OK(cuCtxSynchronize());
	OK(cuMemGetInfo(&f, &t));
	IS(f, before);
}

MAIN({"capture", t_capture}, {"spread", t_spread}, {"unjoined", t_unjoined}, {"modes", t_modes},
     {"nodes", t_nodes}, {"branches", t_branches}, {"update", t_update}, {"values", t_values},
     {"memory", t_memory})
