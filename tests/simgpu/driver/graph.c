// SPDX-License-Identifier: Apache-2.0
/*
 * graph.c - graphs: building them, instantiating, launching.
 *
 * A launch puts the nodes on lanes: the launching stream and as many streams of the executable's
 * own as there are branches, with dependencies across. So branches run side by side, and a node
 * that never ends holds up only what depends on it. Child graphs are laid out flat.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph.h"

CUresult sg_box3d(const CUDA_MEMCPY3D *p, struct sg_copy *b, bool *dst_device, bool *src_device);

struct exec_node {
	struct sg_op op;
	const struct sg_node *origin;
	bool disabled;
	size_t *deps, dep_count;
	size_t lane;
};

struct sg_exec {
	uint32_t magic;
	struct exec_node *node; /* in an order that respects the dependencies */
	size_t count;
	size_t lanes;
	struct sg_stream **lane; /* [0] is not used */
	struct sg_ctx *lane_ctx;
	struct sg_dep last; /* the previous launch: two of one executable do not overlap */
	struct sg_graph_memory *memory;
	struct sg_graph
		*source; /* as it was: a launch into a capture becomes a child graph of it */
	uint64_t flags;
};

/* -- sets, nodes, graphs ---------------------------------------------------------------------- */

bool sg_set_add(struct sg_node_set *s, struct sg_node *n)
{
	for (size_t i = 0; i < s->n; i++)
		if (s->v[i] == n)
			return false;
	if (s->n == s->room) {
		s->room = s->room ? 2 * s->room : 4;
		s->v = realloc(s->v, s->room * sizeof(*s->v));
	}
	s->v[s->n++] = n;
	return true;
}

void sg_set_clear(struct sg_node_set *s)
{
	free(s->v);
	memset(s, 0, sizeof(*s));
}

struct sg_graph *sg_graph_new(void)
{
	struct sg_graph *g = calloc(1, sizeof(*g));

	if (!g)
		return NULL;
	g->magic = GRAPH_MAGIC;
	g->memory = calloc(1, sizeof(*g->memory));
	g->memory->refs = 1;
	return g;
}

struct sg_graph *sg_graph_of(CUgraph h)
{
	struct sg_graph *g = (struct sg_graph *)h;

	return (uintptr_t)g > 4095 && g->magic == GRAPH_MAGIC ? g : NULL;
}

struct sg_node *sg_node_of(CUgraphNode h)
{
	struct sg_node *n = (struct sg_node *)h;

	return (uintptr_t)n > 4095 && n->magic == NODE_MAGIC ? n : NULL;
}

static struct sg_exec *exec_of(CUgraphExec h)
{
	struct sg_exec *x = (struct sg_exec *)h;

	return (uintptr_t)x > 4095 && x->magic == EXEC_MAGIC ? x : NULL;
}

struct sg_node *sg_node_new(struct sg_graph *g, CUgraphNodeType type, const struct sg_op *op)
{
	struct sg_node *n = calloc(1, sizeof(*n));

	if (!n)
		return NULL;
	n->magic = NODE_MAGIC;
	n->graph = g;
	n->type = type;
	n->op = *op;
	sg_set_add(&g->nodes, n);
	if (op->kind == SG_OP_ALLOC) {
		g->memory->addr = realloc(g->memory->addr, (g->memory->n + 1) * sizeof(uint64_t));
		g->memory->addr[g->memory->n++] = op->alloc.node.dptr;
	}
	return n;
}

static void memory_put(struct sg_graph_memory *m)
{
	if (--m->refs)
		return;
	for (size_t i = 0; i < m->n; i++) {
		struct sg_alloc *a = sg_find(m->addr[i]);

		if (a && a->addr == m->addr[i] && a->kind == SG_MEM_POOL && !a->freeing)
			sg_pool_return(a);
	}
	free(m->addr);
	free(m);
}

static void object_put(struct sg_user_object *o, int n)
{
	if (atomic_fetch_sub(&o->refs, n) > n)
		return;
	o->destroy(o->ptr);
	free(o);
}

void sg_graph_free(struct sg_graph *g)
{
	g->magic = 0;
	for (size_t i = 0; i < g->nodes.n; i++) {
		struct sg_node *n = g->nodes.v[i];

		if (n->op.kind == SG_OP_CHILD)
			sg_graph_free(n->op.child.graph);
		else
			sg_op_free(&n->op);
		sg_set_clear(&n->deps);
		n->magic = 0;
		free(n);
	}
	sg_set_clear(&g->nodes);
	memory_put(g->memory);
	free(g->objects);
	free(g);
}

/* A copy of an operation whose memory is its own. */
static struct sg_op op_copy(const struct sg_op *from)
{
	struct sg_op op = *from;

	if (op.kind == SG_OP_KERNEL && from->kernel.params) {
		op.kernel.params = malloc(from->kernel.func->native->param_bytes);
		memcpy(op.kernel.params, from->kernel.params,
		       from->kernel.func->native->param_bytes);
	} else if (op.kind == SG_OP_BATCH) {
		op.batch.ops = malloc(from->batch.count * sizeof(*op.batch.ops));
		memcpy(op.batch.ops, from->batch.ops, from->batch.count * sizeof(*op.batch.ops));
	}
	return op;
}

static struct sg_graph *graph_copy(const struct sg_graph *from)
{
	struct sg_graph *g = sg_graph_new();

	memory_put(g->memory);
	g->memory = from->memory;
	g->memory->refs++;
	for (size_t i = 0; i < from->nodes.n; i++) {
		struct sg_node *o = from->nodes.v[i], *n = calloc(1, sizeof(*n));

		n->magic = NODE_MAGIC;
		n->graph = g;
		n->type = o->type;
		n->op = op_copy(&o->op);
		if (o->op.kind == SG_OP_CHILD)
			n->op.child.graph = graph_copy(o->op.child.graph);
		n->origin = o;
		o->copy = n;
		sg_set_add(&g->nodes, n);
		/* Nodes may come in any order: edges in a second round. */
	}
	for (size_t i = 0; i < from->nodes.n; i++)
		for (size_t j = 0; j < from->nodes.v[i]->deps.n; j++)
			sg_set_add(&g->nodes.v[i]->deps, from->nodes.v[i]->deps.v[j]->copy);
	return g;
}

CUresult cuGraphCreate(CUgraph *out, unsigned int flags)
{
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUgraph)sg_graph_new();
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuGraphDestroy(CUgraph h)
{
	struct sg_graph *g = sg_graph_of(h);
	struct sg_user_object **objects;
	size_t n;

	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	objects = g->objects;
	n = g->object_count;
	g->objects = NULL;
	sg_graph_free(g);
	sg_unlock();
	for (size_t i = 0; i < n; i++)
		object_put(objects[i], 1); /* the program's function: not under our lock */
	free(objects);
	return CUDA_SUCCESS;
}

CUresult cuGraphClone(CUgraph *out, CUgraph h)
{
	struct sg_graph *g = sg_graph_of(h);

	if (!g || !out)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	*out = (CUgraph)graph_copy(g);
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeFindInClone(CUgraphNode *out, CUgraphNode h, CUgraph clone)
{
	struct sg_graph *g = sg_graph_of(clone);

	if (!g || !out)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < g->nodes.n; i++) {
		if (g->nodes.v[i]->origin == (struct sg_node *)h) {
			*out = (CUgraphNode)g->nodes.v[i];
			return CUDA_SUCCESS;
		}
	}
	return CUDA_ERROR_INVALID_VALUE;
}

/* -- adding nodes ----------------------------------------------------------------------------- */

static CUresult add(CUgraphNode *out, CUgraph h, const CUgraphNode *deps, size_t count,
		    CUgraphNodeType type, struct sg_op *op)
{
	struct sg_graph *g = sg_graph_of(h);
	struct sg_node *n;
	CUresult e = sg_enter();

	if (!e && (!g || !out || (count && !deps)))
		e = CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && !e; i++)
		if (!sg_node_of(deps[i]) || sg_node_of(deps[i])->graph != g)
			e = CUDA_ERROR_INVALID_VALUE;
	if (e) {
		sg_op_free(op);
		return e;
	}
	sg_lock();
	n = sg_node_new(g, type, op);
	for (size_t i = 0; i < count; i++)
		sg_set_add(&n->deps, sg_node_of(deps[i]));
	sg_unlock();
	*out = (CUgraphNode)n;
	return CUDA_SUCCESS;
}

static CUresult kernel_op(const CUDA_KERNEL_NODE_PARAMS *p, struct sg_op *op)
{
	struct sg_ctx *ctx = p && p->ctx ? (struct sg_ctx *)p->ctx : sg_current();
	struct sg_func *f;

	memset(op, 0, sizeof(*op));
	if (!p || !ctx)
		return CUDA_ERROR_INVALID_VALUE;
	f = sg_func_of(p->func ? p->func : (CUfunction)p->kern, ctx);
	if (!f)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!p->gridDimX || !p->gridDimY || !p->gridDimZ || !p->blockDimX || !p->blockDimY ||
	    !p->blockDimZ)
		return CUDA_ERROR_INVALID_VALUE;
	op->kind = SG_OP_KERNEL;
	op->kernel.func = f;
	op->kernel.node = *p;
	op->kernel.node.kernelParams = NULL; /* not kept: their sizes are unknown */
	op->kernel.node.extra = NULL;
	return sg_native_params(f, p->kernelParams, p->extra, &op->kernel.params);
}

static CUresult copy_op(const CUDA_MEMCPY3D *p, struct sg_op *op)
{
	bool dd, sd;

	memset(op, 0, sizeof(*op));
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	op->kind = SG_OP_COPY;
	op->copy.node = *p;
	return sg_box3d(p, &op->copy.box, &dd, &sd);
}

static CUresult set_op(const CUDA_MEMSET_NODE_PARAMS *p, struct sg_op *op)
{
	bool ok;

	memset(op, 0, sizeof(*op));
	if (!p || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4) ||
	    !p->width || !p->height)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	ok = sg_backed(p->dst, (p->height - 1) * p->pitch + p->width * p->elementSize);
	sg_unlock();
	if (!ok)
		return CUDA_ERROR_INVALID_VALUE;
	op->kind = SG_OP_SET;
	op->set.node = *p;
	op->set.box = (struct sg_set){(uint8_t *)p->dst, p->pitch, p->width,
				      p->height,	 p->value, (uint8_t)p->elementSize};
	return CUDA_SUCCESS;
}

static CUresult host_op(const CUDA_HOST_NODE_PARAMS *p, struct sg_op *op)
{
	memset(op, 0, sizeof(*op));
	if (!p || !p->fn)
		return CUDA_ERROR_INVALID_VALUE;
	op->kind = SG_OP_HOST;
	op->host.fn = p->fn;
	op->host.user = p->userData;
	return CUDA_SUCCESS;
}

static CUresult event_op(CUevent h, bool record, struct sg_op *op)
{
	struct sg_event *e = (struct sg_event *)h;

	memset(op, 0, sizeof(*op));
	op->kind = record ? SG_OP_RECORD : SG_OP_WAIT;
	if (record)
		op->record.event = e;
	else
		op->wait.event = e;
	return sg_event_valid(e) ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult batch_op(const CUDA_BATCH_MEM_OP_NODE_PARAMS *p, struct sg_op *op)
{
	memset(op, 0, sizeof(*op));
	if (!p || !p->count || !p->paramArray || p->flags || p->count > 256)
		return CUDA_ERROR_INVALID_VALUE;
	op->kind = SG_OP_BATCH;
	op->batch.count = p->count;
	op->batch.ops = malloc(p->count * sizeof(*op->batch.ops));
	memcpy(op->batch.ops, p->paramArray, p->count * sizeof(*op->batch.ops));
	return CUDA_SUCCESS;
}

CUresult cuGraphAddKernelNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
				 const CUDA_KERNEL_NODE_PARAMS *p)
{
	struct sg_op op;
	CUresult e = kernel_op(p, &op);

	return e ? e : add(out, g, d, n, CU_GRAPH_NODE_TYPE_KERNEL, &op);
}

static CUDA_KERNEL_NODE_PARAMS from_v1(const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS q = {0};

	memcpy(&q, p, sizeof(*p)); /* v2 only adds at the end */
	return q;
}

CUresult cuGraphAddKernelNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
			      const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS q;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	q = from_v1(p);
	return cuGraphAddKernelNode_v2(out, g, d, n, &q);
}

CUresult cuGraphAddMemcpyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
			      const CUDA_MEMCPY3D *p, CUcontext ctx)
{
	struct sg_op op;
	CUresult e = copy_op(p, &op);

	(void)ctx;
	return e ? e : add(out, g, d, n, CU_GRAPH_NODE_TYPE_MEMCPY, &op);
}

CUresult cuGraphAddMemsetNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
			      const CUDA_MEMSET_NODE_PARAMS *p, CUcontext ctx)
{
	struct sg_op op;
	CUresult e = set_op(p, &op);

	(void)ctx;
	return e ? e : add(out, g, d, n, CU_GRAPH_NODE_TYPE_MEMSET, &op);
}

CUresult cuGraphAddHostNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
			    const CUDA_HOST_NODE_PARAMS *p)
{
	struct sg_op op;
	CUresult e = host_op(p, &op);

	return e ? e : add(out, g, d, n, CU_GRAPH_NODE_TYPE_HOST, &op);
}

CUresult cuGraphAddEmptyNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n)
{
	struct sg_op op = {.kind = SG_OP_NOP};

	return add(out, g, d, n, CU_GRAPH_NODE_TYPE_EMPTY, &op);
}

CUresult cuGraphAddEventRecordNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
				   CUevent ev)
{
	struct sg_op op;
	CUresult e = event_op(ev, true, &op);

	return e ? e : add(out, g, d, n, CU_GRAPH_NODE_TYPE_EVENT_RECORD, &op);
}

CUresult cuGraphAddEventWaitNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
				 CUevent ev)
{
	struct sg_op op;
	CUresult e = event_op(ev, false, &op);

	return e ? e : add(out, g, d, n, CU_GRAPH_NODE_TYPE_WAIT_EVENT, &op);
}

CUresult cuGraphAddChildGraphNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
				  CUgraph child)
{
	struct sg_op op = {.kind = SG_OP_CHILD};

	if (!sg_graph_of(child) || !sg_graph_of(g))
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	op.child.graph = graph_copy(sg_graph_of(child));
	sg_unlock();
	return add(out, g, d, n, CU_GRAPH_NODE_TYPE_GRAPH, &op);
}

CUresult cuGraphAddBatchMemOpNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
				  const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
{
	struct sg_op op;
	CUresult e = batch_op(p, &op);

	return e ? e : add(out, g, d, n, CU_GRAPH_NODE_TYPE_BATCH_MEM_OP, &op);
}

CUresult cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
				CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	struct sg_op op = {.kind = SG_OP_ALLOC};
	struct sg_pool *pool;
	uint64_t at;
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!p || !p->bytesize || p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE ||
	    p->poolProps.location.id < 0 || p->poolProps.location.id >= sg.devices)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	pool = sg_pool_default(&sg.dev[p->poolProps.location.id]);
	sg_unlock();
	e = sg_pool_alloc(pool, NULL, p->bytesize, &at);
	if (e)
		return e;
	p->dptr = at;
	op.alloc.node = *p;
	return add(out, g, d, n, CU_GRAPH_NODE_TYPE_MEM_ALLOC, &op);
}

CUresult cuGraphAddMemFreeNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
			       CUdeviceptr p)
{
	struct sg_op op = {.kind = SG_OP_FREE};

	sg_lock();
	op.free.alloc = sg_find(p);
	sg_unlock();
	if (!op.free.alloc || op.free.alloc->addr != p)
		return CUDA_ERROR_INVALID_VALUE;
	return add(out, g, d, n, CU_GRAPH_NODE_TYPE_MEM_FREE, &op);
}

CUresult cuGraphAddNode_v2(CUgraphNode *out, CUgraph g, const CUgraphNode *d,
			   const CUgraphEdgeData *x, size_t n, CUgraphNodeParams *p)
{
	CUDA_MEMSET_NODE_PARAMS set;
	CUDA_HOST_NODE_PARAMS host;
	CUDA_KERNEL_NODE_PARAMS kernel;
	CUDA_MEM_ALLOC_NODE_PARAMS alloc;
	CUDA_BATCH_MEM_OP_NODE_PARAMS batch;
	CUresult e;

	(void)x;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		memcpy(&kernel, &p->kernel, sizeof(kernel));
		return cuGraphAddKernelNode_v2(out, g, d, n, &kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return cuGraphAddMemcpyNode(out, g, d, n, &p->memcpy.copyParams, p->memcpy.copyCtx);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		set = (CUDA_MEMSET_NODE_PARAMS){p->memset.dst,	 p->memset.pitch,
						p->memset.value, p->memset.elementSize,
						p->memset.width, p->memset.height};
		return cuGraphAddMemsetNode(out, g, d, n, &set, p->memset.ctx);
	case CU_GRAPH_NODE_TYPE_HOST:
		host = (CUDA_HOST_NODE_PARAMS){p->host.fn, p->host.userData};
		return cuGraphAddHostNode(out, g, d, n, &host);
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return cuGraphAddChildGraphNode(out, g, d, n, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_EMPTY:
		return cuGraphAddEmptyNode(out, g, d, n);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return cuGraphAddEventWaitNode(out, g, d, n, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return cuGraphAddEventRecordNode(out, g, d, n, p->eventRecord.event);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		alloc = (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = p->alloc.poolProps,
						     .bytesize = p->alloc.bytesize};
		e = cuGraphAddMemAllocNode(out, g, d, n, &alloc);
		p->alloc.dptr = alloc.dptr;
		return e;
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		return cuGraphAddMemFreeNode(out, g, d, n, p->free.dptr);
	case CU_GRAPH_NODE_TYPE_BATCH_MEM_OP:
		batch = (CUDA_BATCH_MEM_OP_NODE_PARAMS){p->memOp.ctx, p->memOp.count,
							p->memOp.paramArray, p->memOp.flags};
		return cuGraphAddBatchMemOpNode(out, g, d, n, &batch);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuGraphAddNode(CUgraphNode *out, CUgraph g, const CUgraphNode *d, size_t n,
			CUgraphNodeParams *p)
{
	return cuGraphAddNode_v2(out, g, d, NULL, n, p);
}

/* -- looking at graphs ------------------------------------------------------------------------ */

static CUresult list(struct sg_node **v, size_t n, CUgraphNode *out, size_t *count)
{
	if (!count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; out && i < *count; i++)
		out[i] = i < n ? (CUgraphNode)v[i] : NULL;
	if (!out || *count > n)
		*count = n;
	return CUDA_SUCCESS;
}

CUresult cuGraphGetNodes(CUgraph h, CUgraphNode *out, size_t *count)
{
	struct sg_graph *g = sg_graph_of(h);

	return g ? list(g->nodes.v, g->nodes.n, out, count) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphGetRootNodes(CUgraph h, CUgraphNode *out, size_t *count)
{
	struct sg_graph *g = sg_graph_of(h);
	struct sg_node_set roots = {0};
	CUresult e;

	if (!g)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < g->nodes.n; i++)
		if (!g->nodes.v[i]->deps.n)
			sg_set_add(&roots, g->nodes.v[i]);
	e = list(roots.v, roots.n, out, count);
	sg_set_clear(&roots);
	return e;
}

CUresult cuGraphGetEdges_v2(CUgraph h, CUgraphNode *from, CUgraphNode *to, CUgraphEdgeData *edges,
			    size_t *count)
{
	struct sg_graph *g = sg_graph_of(h);
	size_t n = 0;

	if (!g || !count || !from != !to)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < g->nodes.n; i++) {
		for (size_t j = 0; j < g->nodes.v[i]->deps.n; j++, n++) {
			if (!from || n >= *count)
				continue;
			from[n] = (CUgraphNode)g->nodes.v[i]->deps.v[j];
			to[n] = (CUgraphNode)g->nodes.v[i];
			if (edges)
				memset(&edges[n], 0, sizeof(edges[n]));
		}
	}
	if (!from || *count > n)
		*count = n;
	return CUDA_SUCCESS;
}

CUresult cuGraphGetEdges(CUgraph h, CUgraphNode *from, CUgraphNode *to, size_t *count)
{
	return cuGraphGetEdges_v2(h, from, to, NULL, count);
}

CUresult cuGraphNodeGetType(CUgraphNode h, CUgraphNodeType *out)
{
	struct sg_node *n = sg_node_of(h);

	if (!n || !out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = n->type;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetDependencies_v2(CUgraphNode h, CUgraphNode *out, CUgraphEdgeData *edges,
				       size_t *count)
{
	struct sg_node *n = sg_node_of(h);

	if (!n)
		return CUDA_ERROR_INVALID_VALUE;
	if (edges && count)
		memset(edges, 0, *count * sizeof(*edges));
	return list(n->deps.v, n->deps.n, out, count);
}

CUresult cuGraphNodeGetDependencies(CUgraphNode h, CUgraphNode *out, size_t *count)
{
	return cuGraphNodeGetDependencies_v2(h, out, NULL, count);
}

CUresult cuGraphNodeGetDependentNodes_v2(CUgraphNode h, CUgraphNode *out, CUgraphEdgeData *edges,
					 size_t *count)
{
	struct sg_node *n = sg_node_of(h);
	struct sg_node_set s = {0};
	CUresult e;

	if (!n)
		return CUDA_ERROR_INVALID_VALUE;
	if (edges && count)
		memset(edges, 0, *count * sizeof(*edges));
	for (size_t i = 0; i < n->graph->nodes.n; i++)
		for (size_t j = 0; j < n->graph->nodes.v[i]->deps.n; j++)
			if (n->graph->nodes.v[i]->deps.v[j] == n)
				sg_set_add(&s, n->graph->nodes.v[i]);
	e = list(s.v, s.n, out, count);
	sg_set_clear(&s);
	return e;
}

CUresult cuGraphNodeGetDependentNodes(CUgraphNode h, CUgraphNode *out, size_t *count)
{
	return cuGraphNodeGetDependentNodes_v2(h, out, NULL, count);
}

CUresult cuGraphAddDependencies_v2(CUgraph h, const CUgraphNode *from, const CUgraphNode *to,
				   const CUgraphEdgeData *edges, size_t count)
{
	(void)edges;
	if (!sg_graph_of(h) || (count && (!from || !to)))
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	for (size_t i = 0; i < count; i++) {
		if (!sg_node_of(from[i]) || !sg_node_of(to[i]) ||
		    !sg_set_add(&sg_node_of(to[i])->deps, sg_node_of(from[i]))) {
			sg_unlock();
			return CUDA_ERROR_INVALID_VALUE;
		}
	}
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuGraphAddDependencies(CUgraph h, const CUgraphNode *from, const CUgraphNode *to,
				size_t count)
{
	return cuGraphAddDependencies_v2(h, from, to, NULL, count);
}

static bool set_remove(struct sg_node_set *s, const struct sg_node *n)
{
	for (size_t i = 0; i < s->n; i++) {
		if (s->v[i] == n) {
			memmove(&s->v[i], &s->v[i + 1], (--s->n - i) * sizeof(*s->v));
			return true;
		}
	}
	return false;
}

CUresult cuGraphRemoveDependencies_v2(CUgraph h, const CUgraphNode *from, const CUgraphNode *to,
				      const CUgraphEdgeData *edges, size_t count)
{
	CUresult e = CUDA_SUCCESS;

	(void)edges;
	if (!sg_graph_of(h))
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	for (size_t i = 0; i < count && !e; i++)
		if (!sg_node_of(to[i]) ||
		    !set_remove(&sg_node_of(to[i])->deps, sg_node_of(from[i])))
			e = CUDA_ERROR_INVALID_VALUE;
	sg_unlock();
	return e;
}

CUresult cuGraphRemoveDependencies(CUgraph h, const CUgraphNode *from, const CUgraphNode *to,
				   size_t count)
{
	return cuGraphRemoveDependencies_v2(h, from, to, NULL, count);
}

CUresult cuGraphDestroyNode(CUgraphNode h)
{
	struct sg_node *n = sg_node_of(h);

	if (!n)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	set_remove(&n->graph->nodes, n);
	for (size_t i = 0; i < n->graph->nodes.n; i++)
		set_remove(&n->graph->nodes.v[i]->deps, n);
	if (n->op.kind == SG_OP_CHILD)
		sg_graph_free(n->op.child.graph);
	else
		sg_op_free(&n->op);
	sg_set_clear(&n->deps);
	n->magic = 0;
	free(n);
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuGraphDebugDotPrint(CUgraph h, const char *path, unsigned int flags)
{
	static const char *const names[] = {
		"KERNEL",    "MEMCPY",	   "MEMSET",	   "HOST",	 "GRAPH",
		"EMPTY",     "WAIT_EVENT", "EVENT_RECORD", "SIGNAL",	 "WAIT",
		"MEM_ALLOC", "MEM_FREE",   "BATCH_MEM_OP", "CONDITIONAL"};
	struct sg_graph *g = sg_graph_of(h);
	FILE *f;

	(void)flags;
	if (!g || !path)
		return CUDA_ERROR_INVALID_VALUE;
	f = fopen(path, "we");
	if (!f)
		return CUDA_ERROR_OPERATING_SYSTEM;
	fprintf(f, "digraph simgpu {\n");
	for (size_t i = 0; i < g->nodes.n; i++) {
		struct sg_node *n = g->nodes.v[i];

		fprintf(f, "\tn%p [label=\"%s%s%s\"];\n", (void *)n, names[n->type],
			n->op.kind == SG_OP_KERNEL ? " " : "",
			n->op.kind == SG_OP_KERNEL ? n->op.kernel.func->name : "");
		for (size_t j = 0; j < n->deps.n; j++)
			fprintf(f, "\tn%p -> n%p;\n", (void *)n->deps.v[j], (void *)n);
	}
	fprintf(f, "}\n");
	return fclose(f) ? CUDA_ERROR_OPERATING_SYSTEM : CUDA_SUCCESS;
}

/* -- parameters of nodes ---------------------------------------------------------------------- */

static struct sg_node *typed(CUgraphNode h, CUgraphNodeType type)
{
	struct sg_node *n = sg_node_of(h);

	return n && n->type == type ? n : NULL;
}

static CUresult replace(struct sg_op *at, const struct sg_op *by)
{
	sg_lock();
	sg_op_free(at);
	*at = *by;
	sg_unlock();
	return CUDA_SUCCESS;
}

#define GETTER(name, TYPE, type, expr)                                                             \
	CUresult name(CUgraphNode h, type *out)                                                    \
	{                                                                                          \
		struct sg_node *n = typed(h, CU_GRAPH_NODE_TYPE_##TYPE);                           \
                                                                                                   \
		if (!n || !out)                                                                    \
			return CUDA_ERROR_INVALID_VALUE;                                           \
		expr;                                                                              \
		return CUDA_SUCCESS;                                                               \
	}
GETTER(cuGraphKernelNodeGetParams_v2, KERNEL, CUDA_KERNEL_NODE_PARAMS, *out = n->op.kernel.node)
GETTER(cuGraphKernelNodeGetParams, KERNEL, CUDA_KERNEL_NODE_PARAMS_v1,
       memcpy(out, &n->op.kernel.node, sizeof(*out)))
GETTER(cuGraphMemcpyNodeGetParams, MEMCPY, CUDA_MEMCPY3D, *out = n->op.copy.node)
GETTER(cuGraphMemsetNodeGetParams, MEMSET, CUDA_MEMSET_NODE_PARAMS, *out = n->op.set.node)
GETTER(cuGraphHostNodeGetParams, HOST, CUDA_HOST_NODE_PARAMS,
       *out = ((CUDA_HOST_NODE_PARAMS){n->op.host.fn, n->op.host.user}))
GETTER(cuGraphEventRecordNodeGetEvent, EVENT_RECORD, CUevent, *out = (CUevent)n->op.record.event)
GETTER(cuGraphEventWaitNodeGetEvent, WAIT_EVENT, CUevent, *out = (CUevent)n->op.wait.event)
GETTER(cuGraphChildGraphNodeGetGraph, GRAPH, CUgraph, *out = (CUgraph)n->op.child.graph)
GETTER(cuGraphMemAllocNodeGetParams, MEM_ALLOC, CUDA_MEM_ALLOC_NODE_PARAMS, *out = n->op.alloc.node)
GETTER(cuGraphMemFreeNodeGetParams, MEM_FREE, CUdeviceptr, *out = n->op.free.alloc->addr)
GETTER(cuGraphBatchMemOpNodeGetParams, BATCH_MEM_OP, CUDA_BATCH_MEM_OP_NODE_PARAMS,
       *out = ((CUDA_BATCH_MEM_OP_NODE_PARAMS){
	       .count = n->op.kind == SG_OP_BATCH ? n->op.batch.count : 0,
	       .paramArray = n->op.kind == SG_OP_BATCH ? n->op.batch.ops : NULL}))

static struct exec_node *exec_node(CUgraphExec x, CUgraphNode h)
{
	struct sg_exec *e = exec_of(x);

	for (size_t i = 0; e && i < e->count; i++)
		if (e->node[i].origin == (struct sg_node *)h)
			return &e->node[i];
	return NULL;
}

/* The setter of a node, and of that node in an executable. */
#define SETTER(name, exec_name, TYPE, make, params, ...)                                           \
	CUresult name(CUgraphNode h, params)                                                       \
	{                                                                                          \
		struct sg_node *n = typed(h, CU_GRAPH_NODE_TYPE_##TYPE);                           \
		struct sg_op op;                                                                   \
		CUresult e = n ? make : CUDA_ERROR_INVALID_VALUE;                                  \
                                                                                                   \
		return e ? e : replace(&n->op, &op);                                               \
	}                                                                                          \
	CUresult exec_name(CUgraphExec x, CUgraphNode h, params __VA_ARGS__)                       \
	{                                                                                          \
		struct exec_node *n = exec_node(x, h);                                             \
		struct sg_op op;                                                                   \
		CUresult e = n ? make : CUDA_ERROR_INVALID_VALUE;                                  \
                                                                                                   \
		return e ? e : replace(&n->op, &op);                                               \
	}
#define UNUSED_CTX , CUcontext c __attribute__((unused))
SETTER(cuGraphKernelNodeSetParams_v2, cuGraphExecKernelNodeSetParams_v2, KERNEL, kernel_op(p, &op),
       const CUDA_KERNEL_NODE_PARAMS *p)
SETTER(cuGraphHostNodeSetParams, cuGraphExecHostNodeSetParams, HOST, host_op(p, &op),
       const CUDA_HOST_NODE_PARAMS *p)
SETTER(cuGraphMemsetNodeSetParams, cuGraphExecMemsetNodeSetParams, MEMSET, set_op(p, &op),
       const CUDA_MEMSET_NODE_PARAMS *p, UNUSED_CTX)
SETTER(cuGraphMemcpyNodeSetParams, cuGraphExecMemcpyNodeSetParams, MEMCPY, copy_op(p, &op),
       const CUDA_MEMCPY3D *p, UNUSED_CTX)
SETTER(cuGraphBatchMemOpNodeSetParams, cuGraphExecBatchMemOpNodeSetParams, BATCH_MEM_OP,
       batch_op(p, &op), const CUDA_BATCH_MEM_OP_NODE_PARAMS *p)
SETTER(cuGraphEventRecordNodeSetEvent, cuGraphExecEventRecordNodeSetEvent, EVENT_RECORD,
       event_op(p, true, &op), CUevent p)
SETTER(cuGraphEventWaitNodeSetEvent, cuGraphExecEventWaitNodeSetEvent, WAIT_EVENT,
       event_op(p, false, &op), CUevent p)

CUresult cuGraphKernelNodeSetParams(CUgraphNode h, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS q;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	q = from_v1(p);
	return cuGraphKernelNodeSetParams_v2(h, &q);
}

CUresult cuGraphExecKernelNodeSetParams(CUgraphExec x, CUgraphNode h,
					const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	CUDA_KERNEL_NODE_PARAMS q;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	q = from_v1(p);
	return cuGraphExecKernelNodeSetParams_v2(x, h, &q);
}

static CUresult set_params(CUgraphExec x, CUgraphNode h, CUgraphNodeParams *p)
{
	CUDA_MEMSET_NODE_PARAMS set;
	CUDA_HOST_NODE_PARAMS host;
	CUDA_KERNEL_NODE_PARAMS kernel;
	struct sg_node *n = sg_node_of(h);

	if (!n || !p || n->type != p->type)
		return CUDA_ERROR_INVALID_VALUE;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		memcpy(&kernel, &p->kernel, sizeof(kernel));
		return x ? cuGraphExecKernelNodeSetParams_v2(x, h, &kernel)
			 : cuGraphKernelNodeSetParams_v2(h, &kernel);
	case CU_GRAPH_NODE_TYPE_MEMCPY:
		return x ? cuGraphExecMemcpyNodeSetParams(x, h, &p->memcpy.copyParams,
							  p->memcpy.copyCtx)
			 : cuGraphMemcpyNodeSetParams(h, &p->memcpy.copyParams);
	case CU_GRAPH_NODE_TYPE_MEMSET:
		set = (CUDA_MEMSET_NODE_PARAMS){p->memset.dst,	 p->memset.pitch,
						p->memset.value, p->memset.elementSize,
						p->memset.width, p->memset.height};
		return x ? cuGraphExecMemsetNodeSetParams(x, h, &set, p->memset.ctx)
			 : cuGraphMemsetNodeSetParams(h, &set);
	case CU_GRAPH_NODE_TYPE_HOST:
		host = (CUDA_HOST_NODE_PARAMS){p->host.fn, p->host.userData};
		return x ? cuGraphExecHostNodeSetParams(x, h, &host)
			 : cuGraphHostNodeSetParams(h, &host);
	case CU_GRAPH_NODE_TYPE_WAIT_EVENT:
		return x ? cuGraphExecEventWaitNodeSetEvent(x, h, p->eventWait.event)
			 : cuGraphEventWaitNodeSetEvent(h, p->eventWait.event);
	case CU_GRAPH_NODE_TYPE_EVENT_RECORD:
		return x ? cuGraphExecEventRecordNodeSetEvent(x, h, p->eventRecord.event)
			 : cuGraphEventRecordNodeSetEvent(h, p->eventRecord.event);
	default:
		return CUDA_ERROR_NOT_SUPPORTED;
	}
}

CUresult cuGraphNodeSetParams(CUgraphNode h, CUgraphNodeParams *p)
{
	return set_params(NULL, h, p);
}

CUresult cuGraphExecNodeSetParams(CUgraphExec x, CUgraphNode h, CUgraphNodeParams *p)
{
	return exec_of(x) ? set_params(x, h, p) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphNodeSetEnabled(CUgraphExec x, CUgraphNode h, unsigned int on)
{
	struct exec_node *n = exec_node(x, h);

	if (!n)
		return CUDA_ERROR_INVALID_VALUE;
	n->disabled = !on;
	return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetEnabled(CUgraphExec x, CUgraphNode h, unsigned int *on)
{
	struct exec_node *n = exec_node(x, h);

	if (!n || !on)
		return CUDA_ERROR_INVALID_VALUE;
	*on = !n->disabled;
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeCopyAttributes(CUgraphNode to, CUgraphNode from)
{
	return typed(to, CU_GRAPH_NODE_TYPE_KERNEL) && typed(from, CU_GRAPH_NODE_TYPE_KERNEL)
		       ? CUDA_SUCCESS
		       : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphKernelNodeGetAttribute(CUgraphNode h, CUkernelNodeAttrID id,
				       CUkernelNodeAttrValue *v)
{
	(void)id;
	if (!typed(h, CU_GRAPH_NODE_TYPE_KERNEL) || !v)
		return CUDA_ERROR_INVALID_VALUE;
	memset(v, 0, sizeof(*v));
	return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeSetAttribute(CUgraphNode h, CUkernelNodeAttrID id,
				       const CUkernelNodeAttrValue *v)
{
	(void)id;
	return typed(h, CU_GRAPH_NODE_TYPE_KERNEL) && v ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- executables ------------------------------------------------------------------------------ */

struct layout {
	struct exec_node *node;
	size_t count, room;
};

static size_t put_node(struct layout *l, const struct sg_op *op, const struct sg_node *origin,
		       const size_t *deps, size_t n)
{
	struct exec_node *x;

	if (l->count == l->room) {
		l->room = l->room ? 2 * l->room : 16;
		l->node = realloc(l->node, l->room * sizeof(*l->node));
	}
	x = &l->node[l->count];
	memset(x, 0, sizeof(*x));
	x->op = op_copy(op);
	x->origin = origin;
	x->dep_count = n;
	x->deps = malloc((n + 1) * sizeof(*deps));
	if (n)
		memcpy(x->deps, deps, n * sizeof(*deps));
	return l->count++;
}

/*
 * Appends a graph's nodes in dependency order; entry: what its roots wait for. A child graph
 * becomes its nodes and one empty node that stands for its end. false: there is a cycle.
 */
static bool flatten(struct layout *l, struct sg_graph *g, const size_t *entry, size_t entry_count,
		    size_t *end)
{
	size_t placed = 0, n = g->nodes.n, *sinks = malloc((n + 1) * sizeof(*sinks)),
	       sink_count = 0;
	bool *done = calloc(n + 1, 1), ok = true;

	for (size_t i = 0; i < n; i++)
		g->nodes.v[i]->index = i;
	{
		size_t *at =
			malloc((n + 1) * sizeof(*at)); /* where a node of the graph came to lie */
		bool *inner = calloc(n + 1, 1);

		while (placed < n && ok) {
			bool moved = false;

			for (size_t i = 0; i < n && ok; i++) {
				struct sg_node *o = g->nodes.v[i];
				size_t *deps, m = 0, j;

				if (done[i])
					continue;
				for (j = 0; j < o->deps.n && done[o->deps.v[j]->index]; j++)
					;
				if (j < o->deps.n)
					continue;
				deps = malloc((o->deps.n + entry_count + 1) * sizeof(*deps));
				for (j = 0; j < o->deps.n; j++) {
					deps[m++] = at[o->deps.v[j]->index];
					inner[o->deps.v[j]->index] = true;
				}
				if (!m)
					for (j = 0; j < entry_count; j++)
						deps[m++] = entry[j];
				if (o->op.kind == SG_OP_CHILD) {
					ok = flatten(l, o->op.child.graph, deps, m, &at[i]);
					/* its scratch indices are its own graph's: ours stand */
				} else {
					at[i] = put_node(l, &o->op, o, deps, m);
				}
				free(deps);
				done[i] = true;
				placed++;
				moved = true;
			}
			if (!moved)
				ok = false;
		}
		for (size_t i = 0; i < n && ok; i++)
			if (!inner[i])
				sinks[sink_count++] = at[i];
		free(at);
		free(inner);
	}
	if (ok && end) {
		struct sg_op nop = {.kind = SG_OP_NOP};

		if (!n)
			for (size_t j = 0; j < entry_count; j++)
				sinks = realloc(sinks, (entry_count + 1) * sizeof(*sinks)),
				sinks[sink_count++] = entry[j];
		*end = put_node(l, &nop, NULL, sinks, sink_count);
	}
	free(sinks);
	free(done);
	return ok;
}

/* A node goes on the lane of one it depends on when that lane ends there, else on a new one. */
static void assign_lanes(struct sg_exec *x)
{
	size_t *tail = malloc((x->count + 2) * sizeof(*tail));

	x->lanes = 0;
	for (size_t i = 0; i < x->count; i++) {
		struct exec_node *n = &x->node[i];
		size_t lane = SIZE_MAX;

		for (size_t j = 0; j < n->dep_count && lane == SIZE_MAX; j++)
			if (tail[x->node[n->deps[j]].lane] == n->deps[j])
				lane = x->node[n->deps[j]].lane;
		if (lane == SIZE_MAX)
			lane = x->lanes++;
		n->lane = lane;
		tail[lane] = i;
	}
	free(tail);
}

static void layout_free(struct exec_node *v, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		sg_op_free(&v[i].op);
		free(v[i].deps);
	}
	free(v);
}

static CUresult instantiate(CUgraphExec *out, CUgraph h, uint64_t flags)
{
	struct sg_graph *g = sg_graph_of(h);
	struct layout l = {0};
	struct sg_exec *x;
	CUresult e = sg_enter();
	bool ok;

	if (e)
		return e;
	if (!g || !out)
		return CUDA_ERROR_INVALID_VALUE;
	x = calloc(1, sizeof(*x));
	if (!x)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_lock();
	ok = flatten(&l, g, NULL, 0, NULL);
	if (ok) {
		g->memory->refs++;
		x->memory = g->memory;
		x->source = graph_copy(g);
	}
	sg_unlock();
	if (!ok) {
		layout_free(l.node, l.count);
		free(x);
		return CUDA_ERROR_INVALID_VALUE;
	}
	x->magic = EXEC_MAGIC;
	x->flags = flags;
	x->node = l.node;
	x->count = l.count;
	assign_lanes(x);
	for (size_t i = 0; i < x->count; i++)
		if (x->node[i].op.kind == SG_OP_KERNEL)
			atomic_store(&x->node[i].op.kernel.func->loaded, 1);
	*out = (CUgraphExec)x;
	SG_LOG("instantiate nodes=%zu lanes=%zu", x->count, x->lanes);
	return CUDA_SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(CUgraphExec *out, CUgraph g, unsigned long long flags)
{
	return instantiate(out, g, flags);
}

CUresult cuGraphInstantiate(CUgraphExec *out, CUgraph g, CUgraphNode *node, char *log, size_t size)
{
	if (node)
		*node = NULL;
	if (log && size)
		log[0] = 0;
	return instantiate(out, g, 0);
}

CUresult cuGraphInstantiate_v2(CUgraphExec *out, CUgraph g, CUgraphNode *node, char *log,
			       size_t size)
{
	return cuGraphInstantiate(out, g, node, log, size);
}

CUresult cuGraphInstantiateWithParams(CUgraphExec *out, CUgraph g, CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	CUresult e = p ? instantiate(out, g, p->flags) : CUDA_ERROR_INVALID_VALUE;

	if (p) {
		p->hErrNode_out = NULL;
		p->result_out = e ? CUDA_GRAPH_INSTANTIATE_ERROR : CUDA_GRAPH_INSTANTIATE_SUCCESS;
	}
	return e;
}

CUresult cuGraphInstantiateWithParams_ptsz(CUgraphExec *out, CUgraph g,
					   CUDA_GRAPH_INSTANTIATE_PARAMS *p)
{
	return cuGraphInstantiateWithParams(out, g, p);
}

CUresult cuGraphExecGetFlags(CUgraphExec h, cuuint64_t *flags)
{
	struct sg_exec *x = exec_of(h);

	if (!x || !flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = x->flags;
	return CUDA_SUCCESS;
}

static void drop_lanes(struct sg_exec *x)
{
	for (size_t i = 1; x->lane && i < x->lanes; i++)
		if (x->lane[i] && !x->lane_ctx->dead)
			sg_stream_drop(x->lane[i]);
	free(x->lane);
	x->lane = NULL;
}

CUresult cuGraphExecDestroy(CUgraphExec h)
{
	struct sg_exec *x = exec_of(h);

	if (!x)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	x->magic = 0;
	drop_lanes(x); /* what was launched still ends */
	memory_put(x->memory);
	sg_graph_free(x->source);
	layout_free(x->node, x->count);
	sg_unlock();
	free(x);
	return CUDA_SUCCESS;
}

CUresult cuGraphExecUpdate_v2(CUgraphExec h, CUgraph gh, CUgraphExecUpdateResultInfo *info)
{
	struct sg_exec *x = exec_of(h);
	struct sg_graph *g = sg_graph_of(gh);
	struct layout l = {0};
	bool same;

	if (!x || !g || !info)
		return CUDA_ERROR_INVALID_VALUE;
	memset(info, 0, sizeof(*info));
	sg_lock();
	same = flatten(&l, g, NULL, 0, NULL) && l.count == x->count;
	info->result =
		same ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
	for (size_t i = 0; same && i < l.count; i++) {
		if (l.node[i].dep_count != x->node[i].dep_count ||
		    memcmp(l.node[i].deps, x->node[i].deps, l.node[i].dep_count * sizeof(size_t))) {
			same = false;
			info->result = CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED;
		} else if (l.node[i].op.kind != x->node[i].op.kind) {
			same = false;
			info->result = CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED;
			info->errorNode = (CUgraphNode)l.node[i].origin;
		}
	}
	for (size_t i = 0; same && i < l.count; i++) {
		struct sg_op op = x->node[i].op;

		x->node[i].op = l.node[i].op;
		l.node[i].op = op;
	}
	if (same) {
		sg_graph_free(x->source);
		x->source = graph_copy(g);
	}
	layout_free(l.node, l.count);
	sg_unlock();
	return same ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
}

CUresult cuGraphExecUpdate(CUgraphExec x, CUgraph g, CUgraphNode *node,
			   CUgraphExecUpdateResult *result)
{
	CUgraphExecUpdateResultInfo info = {0};
	CUresult e = cuGraphExecUpdate_v2(x, g, &info);

	if (node)
		*node = info.errorNode;
	if (result)
		*result = info.result;
	return e;
}

/* One node, with the values of this launch. Returns its sequence number on its lane. */
static uint64_t launch_node(struct sg_stream *s, const struct exec_node *n,
			    const struct sg_dep *deps, unsigned int count)
{
	struct sg_op op = op_copy(&n->op), one = {0};
	uint64_t seq = 0;

	if (n->disabled || op.kind == SG_OP_ALLOC || op.kind == SG_OP_FREE) {
		sg_op_free(&op);
		op.kind = SG_OP_NOP;
	}
	if (op.kind == SG_OP_BATCH) {
		for (unsigned int i = 0; i < op.batch.count; i++) {
			const CUstreamBatchMemOpParams *p = &op.batch.ops[i];
			bool wide = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64 ||
				    p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64;

			one.kind = p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_32 ||
						   p->operation == CU_STREAM_MEM_OP_WAIT_VALUE_64
					   ? SG_OP_WAIT_VALUE
				   : p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_32 ||
						   p->operation == CU_STREAM_MEM_OP_WRITE_VALUE_64
					   ? SG_OP_WRITE_VALUE
					   : SG_OP_NOP;
			one.value.addr = p->waitValue.address;
			one.value.value = wide ? p->waitValue.value64 : p->waitValue.value;
			one.value.flags = p->waitValue.flags;
			one.value.wide = wide;
			seq = sg_enqueue_locked(s, &one, deps, count);
		}
		sg_op_free(&op);
		return seq;
	}
	if (op.kind == SG_OP_WAIT) {
		struct sg_event *e = op.wait.event;

		if (e->slot) {
			op.wait.slot = e->slot;
			op.wait.seq = atomic_load(&e->slot->recorded);
		} else if (e->stream) {
			op.wait.stream = e->stream;
			op.wait.seq = e->seq;
		} else {
			op.kind = SG_OP_NOP;
		}
	}
	if (op.kind == SG_OP_RECORD) {
		struct sg_event *e = op.record.event;

		if (e->slot)
			op.record.slot_seq = atomic_fetch_add(&e->slot->recorded, 1) + 1;
		seq = sg_enqueue_locked(s, &op, deps, count);
		sg_event_mark(e, s, seq);
		return seq;
	}
	return sg_enqueue_locked(s, &op, deps, count);
}

static CUresult launch(CUgraphExec h, CUstream stream, bool pt)
{
	struct sg_exec *x = exec_of(h);
	struct sg_stream *s;
	struct sg_dep *deps, begin;
	uint64_t *seq;
	size_t *tail;
	CUresult e = sg_stream_resolve(stream, pt, &s);

	if (e)
		return e;
	if (!x)
		return CUDA_ERROR_INVALID_VALUE;
	if (s->capture) {
		struct sg_op child = {.kind = SG_OP_CHILD};

		sg_lock();
		child.child.graph = graph_copy(x->source);
		sg_unlock();
		return sg_submit(s, &child, NULL);
	}
	while (atomic_load(&s->pending) >= SG_QUEUE && !s->ctx->fault)
		sched_yield();
	SG_LOG("graph-launch stream=%p nodes=%zu", (void *)s, x->count);
	deps = malloc((x->count + 2) * sizeof(*deps));
	seq = malloc((x->count + 1) * sizeof(*seq));
	tail = malloc((x->lanes + 1) * sizeof(*tail));
	sg_lock();
	e = s->kind == SG_STREAM_LEGACY ? sg_capture_legacy(s->ctx) : CUDA_SUCCESS;
	if (!e && x->lane_ctx != s->ctx)
		drop_lanes(x);
	if (!e && !x->lane) {
		x->lane = calloc(x->lanes + 1, sizeof(*x->lane));
		x->lane_ctx = s->ctx;
		for (size_t i = 1; i < x->lanes; i++)
			x->lane[i] = sg_stream_new(s->ctx, SG_STREAM_INTERNAL,
						   CU_STREAM_NON_BLOCKING, 0);
	}
	if (!e) {
		struct sg_op nop = {.kind = SG_OP_NOP};
		unsigned int n = x->last.stream ? 1 : 0;

		/* The beginning: after what the stream has, and after this graph's previous launch.
		 */
		begin.stream = s;
		begin.seq = sg_enqueue_locked(s, &nop, &x->last, n);
		x->lane[0] = s;
		for (size_t i = 0; i < x->count; i++) {
			struct exec_node *v = &x->node[i];
			struct sg_stream *t = x->lane[v->lane];

			n = 0;
			for (size_t j = 0; j < v->dep_count; j++) {
				deps[n].stream = x->lane[x->node[v->deps[j]].lane];
				deps[n++].seq = seq[v->deps[j]];
			}
			if (!n && v->lane)
				deps[n++] = begin;
			seq[i] = launch_node(t, v, deps, n);
			tail[v->lane] = i;
		}
		n = 0;
		for (size_t i = 1; i < x->lanes; i++) {
			deps[n].stream = x->lane[i];
			deps[n++].seq = seq[tail[i]];
		}
		nop.kind = SG_OP_NOP;
		x->last.stream = s;
		x->last.seq = sg_enqueue_locked(s, &nop, deps, n);
	}
	sg_unlock();
	free(deps);
	free(seq);
	free(tail);
	if (!e && sg.launch_blocking) {
		sg_wait_seq(s, x->last.seq, sg_sched(s->ctx));
		e = (CUresult)s->ctx->fault;
	}
	return e;
}

CUresult cuGraphLaunch(CUgraphExec x, CUstream s)
{
	return launch(x, s, false);
}

CUresult cuGraphLaunch_ptsz(CUgraphExec x, CUstream s)
{
	return launch(x, s, true);
}

CUresult cuGraphUpload(CUgraphExec x, CUstream s)
{
	struct sg_stream *t;
	CUresult e = sg_stream_resolve(s, false, &t);

	return e ? e : exec_of(x) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGraphUpload_ptsz(CUgraphExec x, CUstream s)
{
	struct sg_stream *t;
	CUresult e = sg_stream_resolve(s, true, &t);

	return e ? e : exec_of(x) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- user objects ----------------------------------------------------------------------------- */

CUresult cuUserObjectCreate(CUuserObject *out, void *ptr, CUhostFn destroy, unsigned int refs,
			    unsigned int flags)
{
	struct sg_user_object *o;

	if (!out || !destroy || !refs || flags != CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
		return CUDA_ERROR_INVALID_VALUE;
	o = calloc(1, sizeof(*o));
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->ptr = ptr;
	o->destroy = destroy;
	o->refs = (int)refs;
	*out = (CUuserObject)o;
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRetain(CUuserObject h, unsigned int n)
{
	if (!h || !n)
		return CUDA_ERROR_INVALID_VALUE;
	atomic_fetch_add(&((struct sg_user_object *)h)->refs, (int)n);
	return CUDA_SUCCESS;
}

CUresult cuUserObjectRelease(CUuserObject h, unsigned int n)
{
	if (!h || !n)
		return CUDA_ERROR_INVALID_VALUE;
	object_put((struct sg_user_object *)h, (int)n);
	return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(CUgraph gh, CUuserObject h, unsigned int n, unsigned int flags)
{
	struct sg_graph *g = sg_graph_of(gh);
	struct sg_user_object *o = (struct sg_user_object *)h;

	if (!g || !o || !n || (flags & ~1u))
		return CUDA_ERROR_INVALID_VALUE;
	if (!(flags & CU_GRAPH_USER_OBJECT_MOVE))
		atomic_fetch_add(&o->refs, (int)n);
	sg_lock();
	g->objects = realloc(g->objects, (g->object_count + n) * sizeof(*g->objects));
	for (unsigned int i = 0; i < n; i++)
		g->objects[g->object_count++] = o;
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuGraphReleaseUserObject(CUgraph gh, CUuserObject h, unsigned int n)
{
	struct sg_graph *g = sg_graph_of(gh);
	unsigned int found = 0;

	if (!g || !h || !n)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	for (size_t i = 0; i < g->object_count && found < n;) {
		if (g->objects[i] != (struct sg_user_object *)h) {
			i++;
			continue;
		}
		g->objects[i] = g->objects[--g->object_count];
		found++;
	}
	sg_unlock();
	if (found)
		object_put((struct sg_user_object *)h, (int)found);
	return found == n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
