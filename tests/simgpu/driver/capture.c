// SPDX-License-Identifier: Apache-2.0
/*
 * capture.c - stream capture.
 *
 * A capturing stream's work becomes nodes of a graph; the stream keeps the set of nodes that its
 * next one depends on. A capture spreads to streams that wait for an event recorded in it, and
 * they have to come back to the stream where it began.
 */
#include <stdlib.h>
#include <string.h>

#include "graph.h"

static struct sg_capture *captures; /* under way */
static _Atomic int capture_count;
static __thread CUstreamCaptureMode thread_mode = CU_STREAM_CAPTURE_MODE_GLOBAL;

static struct sg_node_set *set_new(const struct sg_node_set *from)
{
	struct sg_node_set *s = calloc(1, sizeof(*s));

	for (size_t i = 0; from && i < from->n; i++)
		sg_set_add(s, from->v[i]);
	return s;
}

static void leave(struct sg_stream *s)
{
	s->capture = NULL;
	if (s->capture_deps) {
		sg_set_clear(s->capture_deps);
		free(s->capture_deps);
	}
	s->capture_deps = NULL;
}

/* An event that was recorded in a capture that has ended counts as never recorded. */
static struct sg_capture *capture_of(struct sg_event *e)
{
	if (e->capture && e->capture->ended) {
		e->capture = NULL;
		e->capture_deps = NULL; /* its nodes may be gone */
		e->stream = NULL;
	}
	return e->capture;
}

static void break_captures(struct sg_ctx *ctx, bool of_blocking)
{
	for (struct sg_capture *c = captures; c; c = c->next) {
		if (ctx && c->origin->ctx != ctx)
			continue;
		if (of_blocking && (c->origin->flags & CU_STREAM_NON_BLOCKING))
			continue;
		c->broken = true;
	}
}

static CUgraphNodeType node_type(const struct sg_op *op)
{
	switch (op->kind) {
	case SG_OP_KERNEL:
		return CU_GRAPH_NODE_TYPE_KERNEL;
	case SG_OP_COPY:
		return CU_GRAPH_NODE_TYPE_MEMCPY;
	case SG_OP_SET:
		return CU_GRAPH_NODE_TYPE_MEMSET;
	case SG_OP_HOST:
		return CU_GRAPH_NODE_TYPE_HOST;
	case SG_OP_RECORD:
		return CU_GRAPH_NODE_TYPE_EVENT_RECORD;
	case SG_OP_WAIT:
		return CU_GRAPH_NODE_TYPE_WAIT_EVENT;
	case SG_OP_WAIT_VALUE:
	case SG_OP_WRITE_VALUE:
		return CU_GRAPH_NODE_TYPE_BATCH_MEM_OP;
	case SG_OP_ALLOC:
		return CU_GRAPH_NODE_TYPE_MEM_ALLOC;
	case SG_OP_FREE:
		return CU_GRAPH_NODE_TYPE_MEM_FREE;
	case SG_OP_CHILD:
		return CU_GRAPH_NODE_TYPE_GRAPH;
	default:
		return CU_GRAPH_NODE_TYPE_EMPTY;
	}
}

CUresult sg_capture_op(struct sg_stream *s, struct sg_op *op)
{
	struct sg_capture *c = s->capture;
	struct sg_node *n;

	if (c->broken)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	n = sg_node_new(c->graph, node_type(op), op);
	if (!n)
		return CUDA_ERROR_OUT_OF_MEMORY;
	for (size_t i = 0; i < s->capture_deps->n; i++)
		sg_set_add(&n->deps, s->capture_deps->v[i]);
	s->capture_deps->n = 0;
	sg_set_add(s->capture_deps, n);
	return CUDA_SUCCESS;
}

CUresult sg_capture_wait(struct sg_stream *s, struct sg_event *e)
{
	struct sg_capture *c = capture_of(e);

	if (!c)
		return CUDA_SUCCESS;
	if (c->broken)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (s->kind == SG_STREAM_LEGACY) {
		c->broken = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (s->capture && s->capture != c) {
		c->broken = s->capture->broken = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (!s->capture) {
		s->capture = c;
		s->capture_deps = set_new(NULL);
	}
	for (size_t i = 0; i < e->capture_deps->n; i++)
		sg_set_add(s->capture_deps, e->capture_deps->v[i]);
	return CUDA_SUCCESS;
}

void sg_capture_record(struct sg_stream *s, struct sg_event *e)
{
	e->capture = s->capture;
	e->capture_deps = set_new(s->capture_deps);
	e->stream = NULL;
}

/* Locked. Is the event part of a capture that is under way? */
bool sg_event_captured(struct sg_event *e)
{
	return capture_of(e) != NULL;
}

void sg_capture_event_gone(struct sg_event *e)
{
	e->capture = NULL;
	e->capture_deps = NULL;
}

/*
 * Calls that may synchronise by themselves (allocations, event queries, module loads) are not
 * allowed while a global capture is under way anywhere, nor in a thread that captures; a thread
 * may say by its mode that it knows better.
 */
CUresult sg_capture_unsafe(struct sg_ctx *ctx)
{
	bool bad = false;

	(void)ctx;
	if (!atomic_load(&capture_count) || thread_mode == CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_SUCCESS;
	sg_lock();
	for (struct sg_capture *c = captures; c; c = c->next) {
		bool own = pthread_equal(c->thread, pthread_self());

		if ((own && c->mode != CU_STREAM_CAPTURE_MODE_RELAXED) ||
		    (thread_mode == CU_STREAM_CAPTURE_MODE_GLOBAL &&
		     c->mode == CU_STREAM_CAPTURE_MODE_GLOBAL)) {
			c->broken = true;
			bad = true;
		}
	}
	sg_unlock();
	return bad ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : CUDA_SUCCESS;
}

/* A synchronisation or query of this stream. */
CUresult sg_capture_sync(struct sg_stream *s)
{
	CUresult e = CUDA_SUCCESS;

	if (!atomic_load(&capture_count))
		return e;
	sg_lock();
	if (s->capture) {
		s->capture->broken = true;
		e = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	} else if (s->kind == SG_STREAM_LEGACY) {
		e = sg_capture_legacy(s->ctx);
	}
	sg_unlock();
	return e;
}

/* Locked: work for, or a wait for, the legacy stream would depend on blocking streams that capture.
 */
CUresult sg_capture_legacy(struct sg_ctx *ctx)
{
	if (!atomic_load(&capture_count))
		return CUDA_SUCCESS;
	for (struct sg_stream *s = ctx->streams; s; s = s->next) {
		if (s->capture && !(s->flags & CU_STREAM_NON_BLOCKING)) {
			break_captures(ctx, true);
			return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
		}
	}
	return CUDA_SUCCESS;
}

/* A synchronisation of the whole context. */
CUresult sg_ctx_idle(struct sg_ctx *ctx)
{
	CUresult e = CUDA_SUCCESS;

	if (!atomic_load(&capture_count))
		return e;
	sg_lock();
	for (struct sg_stream *s = ctx->streams; s; s = s->next)
		if (s->capture)
			e = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if (e)
		break_captures(ctx, false);
	sg_unlock();
	return e;
}

/* -- calls ------------------------------------------------------------------------------------ */

static CUresult begin(CUstream h, CUstreamCaptureMode mode, struct sg_graph *graph,
		      const CUgraphNode *deps, size_t count, bool pt)
{
	struct sg_stream *s;
	struct sg_capture *c;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if (mode < 0 || mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	if (s->kind == SG_STREAM_LEGACY)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	c = calloc(1, sizeof(*c)); /* stays: events point to it. Small */
	if (!c)
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_lock();
	if (s->capture) {
		sg_unlock();
		free(c);
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	c->id = ++sg.next_id;
	c->mode = mode;
	c->origin = s;
	c->given = graph != NULL;
	c->graph = graph ? graph : sg_graph_new();
	c->thread = pthread_self();
	c->next = captures;
	captures = c;
	atomic_fetch_add(&capture_count, 1);
	s->capture = c;
	s->capture_deps = set_new(NULL);
	for (size_t i = 0; i < count; i++)
		if (sg_node_of(deps[i]))
			sg_set_add(s->capture_deps, sg_node_of(deps[i]));
	sg_unlock();
	SG_LOG("capture-begin stream=%p", (void *)s);
	return CUDA_SUCCESS;
}

/* Does target come before (or stand in) the nodes that the origin depends on? */
static bool joined(const struct sg_node *at, const struct sg_node *target, unsigned int depth)
{
	if (at == target)
		return true;
	if (depth > 100000)
		return true;
	for (size_t i = 0; i < at->deps.n; i++)
		if (joined(at->deps.v[i], target, depth + 1))
			return true;
	return false;
}

static CUresult end(CUstream h, CUgraph *out, bool pt)
{
	struct sg_stream *s;
	struct sg_capture *c, **at;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	sg_lock();
	c = s->capture;
	if (!c) {
		sg_unlock();
		return CUDA_ERROR_ILLEGAL_STATE;
	}
	if (c->origin != s) {
		c->broken = true;
		sg_unlock();
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (c->mode != CU_STREAM_CAPTURE_MODE_RELAXED &&
	    !pthread_equal(c->thread, pthread_self())) {
		sg_unlock();
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	}
	if (c->broken)
		e = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	for (struct sg_stream *t = s->ctx->streams; t; t = t->next) {
		if (t == s || t->capture != c)
			continue;
		for (size_t i = 0; !e && i < t->capture_deps->n; i++) {
			bool back = false;

			for (size_t j = 0; j < s->capture_deps->n && !back; j++)
				back = joined(s->capture_deps->v[j], t->capture_deps->v[i], 0);
			if (!back)
				e = CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
		}
	}
	for (struct sg_ctx *x = sg.contexts; x; x = x->next)
		for (struct sg_stream *t = x->streams; t; t = t->next)
			if (t->capture == c)
				leave(t);
	c->ended = true;
	for (at = &captures; *at != c; at = &(*at)->next)
		;
	*at = c->next;
	atomic_fetch_sub(&capture_count, 1);
	if (!e)
		*out = (CUgraph)c->graph;
	else if (!c->given)
		sg_graph_free(c->graph);
	sg_unlock();
	SG_LOG("capture-end stream=%p error=%d", (void *)s, (int)e);
	return e;
}

static CUresult info(CUstream h, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
		     const CUgraphNode **deps, const CUgraphEdgeData **edges, size_t *count,
		     bool pt)
{
	struct sg_stream *s;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	if (s->kind == SG_STREAM_LEGACY) {
		for (struct sg_stream *t = s->ctx->streams; t; t = t->next)
			if (t->capture && !(t->flags & CU_STREAM_NON_BLOCKING))
				e = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (!s->capture) {
		*status = CU_STREAM_CAPTURE_STATUS_NONE;
	} else {
		*status = s->capture->broken ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
					     : CU_STREAM_CAPTURE_STATUS_ACTIVE;
		if (id)
			*id = s->capture->id;
		if (graph)
			*graph = (CUgraph)s->capture->graph;
		if (deps)
			*deps = (const CUgraphNode *)s->capture_deps->v;
		if (edges)
			*edges = NULL;
		if (count)
			*count = s->capture_deps->n;
	}
	sg_unlock();
	return e;
}

static CUresult update(CUstream h, CUgraphNode *deps, size_t count, unsigned int flags, bool pt)
{
	struct sg_stream *s;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if (flags > CU_STREAM_SET_CAPTURE_DEPENDENCIES || (count && !deps))
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	if (!s->capture) {
		e = CUDA_ERROR_ILLEGAL_STATE;
	} else {
		if (flags == CU_STREAM_SET_CAPTURE_DEPENDENCIES)
			s->capture_deps->n = 0;
		for (size_t i = 0; i < count && !e; i++) {
			if (sg_node_of(deps[i]))
				sg_set_add(s->capture_deps, sg_node_of(deps[i]));
			else
				e = CUDA_ERROR_INVALID_VALUE;
		}
	}
	sg_unlock();
	return e;
}

static CUresult to_graph(CUstream s, CUgraph h, const CUgraphNode *deps, size_t count,
			 CUstreamCaptureMode mode, bool pt)
{
	struct sg_graph *g = sg_graph_of(h);

	return g && (deps || !count) ? begin(s, mode, g, deps, count, pt)
				     : CUDA_ERROR_INVALID_VALUE;
}

#define BOTH(sym, thread_sym, params, legacy_call, thread_call)                                    \
	CUresult sym params                                                                        \
	{                                                                                          \
		return legacy_call;                                                                \
	}                                                                                          \
	CUresult thread_sym params                                                                 \
	{                                                                                          \
		return thread_call;                                                                \
	}
BOTH(cuStreamBeginCapture, cuStreamBeginCapture_ptsz, (CUstream s),
     begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0, false),
     begin(s, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, 0, true))
BOTH(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2_ptsz, (CUstream s, CUstreamCaptureMode m),
     begin(s, m, NULL, NULL, 0, false), begin(s, m, NULL, NULL, 0, true))
BOTH(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph_ptsz,
     (CUstream s, CUgraph g, const CUgraphNode *d, const CUgraphEdgeData *x, size_t n,
      CUstreamCaptureMode m),
     ((void)x, to_graph(s, g, d, n, m, false)), ((void)x, to_graph(s, g, d, n, m, true)))
BOTH(cuStreamEndCapture, cuStreamEndCapture_ptsz, (CUstream s, CUgraph *g), end(s, g, false),
     end(s, g, true))
BOTH(cuStreamIsCapturing, cuStreamIsCapturing_ptsz, (CUstream s, CUstreamCaptureStatus *out),
     info(s, out, NULL, NULL, NULL, NULL, NULL, false),
     info(s, out, NULL, NULL, NULL, NULL, NULL, true))
BOTH(cuStreamGetCaptureInfo, cuStreamGetCaptureInfo_ptsz,
     (CUstream s, CUstreamCaptureStatus *out, cuuint64_t *id),
     info(s, out, id, NULL, NULL, NULL, NULL, false),
     info(s, out, id, NULL, NULL, NULL, NULL, true))
BOTH(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2_ptsz,
     (CUstream s, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *g, const CUgraphNode **d,
      size_t *n),
     info(s, out, id, g, d, NULL, n, false), info(s, out, id, g, d, NULL, n, true))
BOTH(cuStreamGetCaptureInfo_v3, cuStreamGetCaptureInfo_v3_ptsz,
     (CUstream s, CUstreamCaptureStatus *out, cuuint64_t *id, CUgraph *g, const CUgraphNode **d,
      const CUgraphEdgeData **x, size_t *n),
     info(s, out, id, g, d, x, n, false), info(s, out, id, g, d, x, n, true))
BOTH(cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies_ptsz,
     (CUstream s, CUgraphNode *d, size_t n, unsigned int f), update(s, d, n, f, false),
     update(s, d, n, f, true))
BOTH(cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies_v2_ptsz,
     (CUstream s, CUgraphNode *d, const CUgraphEdgeData *x, size_t n, unsigned int f),
     ((void)x, update(s, d, n, f, false)), ((void)x, update(s, d, n, f, true)))

CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	CUstreamCaptureMode old = thread_mode;

	if (!mode || *mode < 0 || *mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	thread_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}
