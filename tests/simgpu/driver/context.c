// SPDX-License-Identifier: Apache-2.0
/* context.c - contexts, primary ones and made ones, and what a thread has current. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

static __thread struct sg_ctx *stack[SG_CTX_STACK];
static __thread int depth;
static __thread struct sg_ctx *holding;

struct sg_ctx *sg_current(void)
{
	return depth ? stack[depth - 1] : NULL;
}

CUresult sg_ctx_valid(struct sg_ctx *c)
{
	if ((uintptr_t)c < 4096 || c->magic != SG_CTX_MAGIC)
		return CUDA_ERROR_INVALID_CONTEXT;
	return c->dead ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS;
}

/* The lock that a lazy load holds over its wait for the device; see module.c. */
void sg_api_gate(struct sg_ctx *c)
{
	if (!atomic_load(&c->api_held) || holding == c)
		return;
	pthread_mutex_lock(&c->api);
	pthread_mutex_unlock(&c->api);
}

void sg_api_hold(struct sg_ctx *c)
{
	pthread_mutex_lock(&c->api);
	atomic_store(&c->api_held, 1);
	holding = c;
}

void sg_api_release(struct sg_ctx *c)
{
	holding = NULL;
	atomic_store(&c->api_held, 0);
	pthread_mutex_unlock(&c->api);
}

CUresult sg_ctx_create(struct sg_device *dev, unsigned int flags, bool primary, struct sg_ctx **out)
{
	struct sg_ctx *c;

	if (sg_charge(dev->index, sg.context_cost))
		return CUDA_ERROR_OUT_OF_MEMORY;
	c = calloc(1, sizeof(*c));
	if (!c) {
		sg_uncharge(dev->index, sg.context_cost);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->magic = SG_CTX_MAGIC;
	c->dev = dev;
	c->primary = primary;
	c->flags = flags;
	c->api_version = 13000;
	c->limits[CU_LIMIT_STACK_SIZE] = 1024;
	c->limits[CU_LIMIT_PRINTF_FIFO_SIZE] = 1 << 20;
	c->limits[CU_LIMIT_MALLOC_HEAP_SIZE] = 8 << 20;
	c->limits[CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH] = 2;
	c->limits[CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT] = 2048;
	c->limits[CU_LIMIT_MAX_L2_FETCH_GRANULARITY] = 64;
	pthread_mutex_init(&c->api, NULL);
	sg_lock();
	c->id = ++sg.next_id;
	sg_stream_init(&c->legacy, c, SG_STREAM_LEGACY);
	c->next = sg.contexts;
	sg.contexts = c;
	sg_unlock();
	SG_LOG("context-create context=%p device=%d", (void *)c, dev->index);
	*out = c;
	return CUDA_SUCCESS;
}

/* Its work is waited for, as cuCtxDestroy does, unless the context is broken. Never freed. */
static void destroy(struct sg_ctx *c)
{
	bool last = true;

	if (!c->fault)
		sg_ctx_drain(c, sg_sched(c));
	SG_LOG("context-destroy context=%p", (void *)c);
	sg_lock();
	c->dead = true;
	if (c->dev->primary == c)
		c->dev->primary = NULL;
	for (struct sg_stream *s = c->streams, *next; s; s = next) {
		next = s->next;
		s->capture = NULL;
		pthread_cond_broadcast(&s->wake);
		if (s->kind != SG_STREAM_INTERNAL)
			sg_stream_drop(s);
	}
	pthread_cond_broadcast(&c->legacy.wake);
	for (struct sg_ctx *o = sg.contexts; o; o = o->next)
		last &= o->dead || o->dev != c->dev;
	sg_unlock();
	if (last)
		sg_pools_gone(c->dev);
	sg_ctx_free_modules(c);
	sg_ctx_free_memory(c);
	sg_uncharge(c->dev->index, sg.context_cost);
}

CUresult sg_primary_get(struct sg_device *dev, struct sg_ctx **out)
{
	static pthread_mutex_t making = PTHREAD_MUTEX_INITIALIZER;
	CUresult e = CUDA_SUCCESS;

	pthread_mutex_lock(&making);
	if (!dev->primary)
		e = sg_ctx_create(dev, dev->primary_flags, true, &dev->primary);
	*out = dev->primary;
	pthread_mutex_unlock(&making);
	return e;
}

void sg_device_drain(struct sg_device *dev, unsigned int sched)
{
	struct sg_ctx *list[64];
	unsigned int n = 0;

	sg_lock();
	for (struct sg_ctx *c = sg.contexts; c && n < 64; c = c->next)
		if (!c->dead && c->dev == dev)
			list[n++] = c;
	sg_unlock();
	for (unsigned int i = 0; i < n; i++)
		sg_ctx_drain(list[i], sched);
}

#define DEVICE(d)                                                                                  \
	do {                                                                                       \
		CUresult e_ = sg_enter();                                                          \
		if (e_)                                                                            \
			return e_;                                                                 \
		if ((d) < 0 || (d) >= sg.devices)                                                  \
			return CUDA_ERROR_INVALID_DEVICE;                                          \
	} while (0)

/* -- primary contexts ------------------------------------------------------------------------ */

CUresult cuDevicePrimaryCtxRetain(CUcontext *out, CUdevice dev)
{
	struct sg_ctx *c;
	CUresult e;

	DEVICE(dev);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	e = sg_primary_get(&sg.dev[dev], &c);
	if (e)
		return e;
	sg_lock();
	sg.dev[dev].primary_refs++;
	sg_unlock();
	*out = (CUcontext)c;
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice dev)
{
	struct sg_ctx *gone = NULL;

	DEVICE(dev);
	sg_lock();
	if (!sg.dev[dev].primary || sg.dev[dev].primary_refs <= 0) {
		sg_unlock();
		return CUDA_ERROR_INVALID_CONTEXT;
	}
	if (!--sg.dev[dev].primary_refs)
		gone = sg.dev[dev].primary;
	sg_unlock();
	if (gone)
		destroy(gone);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxRelease(CUdevice dev)
{
	return cuDevicePrimaryCtxRelease_v2(dev);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice dev)
{
	struct sg_ctx *c;

	DEVICE(dev);
	sg_lock();
	c = sg.dev[dev].primary;
	sg_unlock();
	if (c)
		destroy(c);
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxReset(CUdevice dev)
{
	return cuDevicePrimaryCtxReset_v2(dev);
}

CUresult cuDevicePrimaryCtxSetFlags_v2(CUdevice dev, unsigned int flags)
{
	DEVICE(dev);
	if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	sg.dev[dev].primary_flags = flags;
	if (sg.dev[dev].primary)
		sg.dev[dev].primary->flags = flags;
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuDevicePrimaryCtxSetFlags(CUdevice dev, unsigned int flags)
{
	return cuDevicePrimaryCtxSetFlags_v2(dev, flags);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice dev, unsigned int *flags, int *active)
{
	DEVICE(dev);
	if (!flags || !active)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = sg.dev[dev].primary_flags;
	*active = sg.dev[dev].primary != NULL;
	return CUDA_SUCCESS;
}

/* -- made contexts --------------------------------------------------------------------------- */

static CUresult create(CUcontext *out, unsigned int flags, CUdevice dev)
{
	struct sg_ctx *c;
	CUresult e;

	DEVICE(dev);
	if (!out || (flags & ~(unsigned int)CU_CTX_FLAGS_MASK) ||
	    ((flags & CU_CTX_SCHED_MASK) & ((flags & CU_CTX_SCHED_MASK) - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	if (depth == SG_CTX_STACK)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e = sg_ctx_create(&sg.dev[dev], flags, false, &c);
	if (e)
		return e;
	stack[depth++] = c;
	*out = (CUcontext)c;
	return CUDA_SUCCESS;
}

CUresult cuCtxCreate(CUcontext *out, unsigned int flags, CUdevice dev)
{
	return create(out, flags, dev);
}

CUresult cuCtxCreate_v2(CUcontext *out, unsigned int flags, CUdevice dev)
{
	return create(out, flags, dev);
}

CUresult cuCtxCreate_v3(CUcontext *out, CUexecAffinityParam *params, int count, unsigned int flags,
			CUdevice dev)
{
	if (params && count)
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(out, flags, dev);
}

CUresult cuCtxCreate_v4(CUcontext *out, CUctxCreateParams *params, unsigned int flags, CUdevice dev)
{
	if (params && (params->numExecAffinityParams || params->cigParams))
		return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
	return create(out, flags, dev);
}

CUresult cuCtxDestroy_v2(CUcontext h)
{
	struct sg_ctx *c = (struct sg_ctx *)h;
	CUresult e = sg_enter();

	if (!e)
		e = sg_ctx_valid(c);
	if (e)
		return e;
	if (c->primary)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (depth && stack[depth - 1] == c)
		depth--;
	destroy(c);
	return CUDA_SUCCESS;
}

CUresult cuCtxDestroy(CUcontext h)
{
	return cuCtxDestroy_v2(h);
}

CUresult cuCtxDetach(CUcontext h)
{
	return cuCtxDestroy_v2(h);
}

CUresult cuCtxPushCurrent_v2(CUcontext h)
{
	CUresult e = sg_enter();

	if (!e)
		e = sg_ctx_valid((struct sg_ctx *)h);
	if (e)
		return e;
	if (depth == SG_CTX_STACK)
		return CUDA_ERROR_INVALID_VALUE;
	stack[depth++] = (struct sg_ctx *)h;
	return CUDA_SUCCESS;
}

CUresult cuCtxPushCurrent(CUcontext h)
{
	return cuCtxPushCurrent_v2(h);
}

CUresult cuCtxPopCurrent_v2(CUcontext *out)
{
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!depth)
		return CUDA_ERROR_INVALID_CONTEXT;
	depth--;
	if (out)
		*out = (CUcontext)stack[depth];
	return CUDA_SUCCESS;
}

CUresult cuCtxPopCurrent(CUcontext *out)
{
	return cuCtxPopCurrent_v2(out);
}

CUresult cuCtxSetCurrent(CUcontext h)
{
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!h) {
		if (depth)
			depth--;
		return CUDA_SUCCESS;
	}
	e = sg_ctx_valid((struct sg_ctx *)h);
	if (e)
		return e;
	if (!depth)
		depth = 1;
	stack[depth - 1] = (struct sg_ctx *)h;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCurrent(CUcontext *out)
{
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUcontext)sg_current();
	return CUDA_SUCCESS;
}

/* A given context, or the current one. */
static CUresult chosen(CUcontext h, struct sg_ctx **out)
{
	CUresult e;

	if (!h)
		return sg_enter_ctx(out);
	e = sg_enter();
	if (!e)
		e = sg_ctx_valid((struct sg_ctx *)h);
	if (e)
		return e;
	*out = (struct sg_ctx *)h;
	sg_api_gate(*out);
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice_v2(CUdevice *out, CUcontext h)
{
	struct sg_ctx *c;
	CUresult e = chosen(h, &c);

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = c->dev->index;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *out)
{
	struct sg_ctx *c = sg_current(); /* works in a broken context too */

	if (sg_enter())
		return sg_enter();
	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = c->dev->index;
	return CUDA_SUCCESS;
}

static CUresult synchronize(struct sg_ctx *c)
{
	CUresult e = sg_ctx_idle(c);

	if (e)
		return e;
	sg_ctx_drain(c, sg_sched(c));
	sg_lock();
	sg_pools_trim(c->dev);
	sg_unlock();
	return (CUresult)c->fault;
}

CUresult cuCtxSynchronize(void)
{
	struct sg_ctx *c;
	CUresult e = sg_enter_ctx(&c);

	return e ? e : synchronize(c);
}

CUresult cuCtxSynchronize_v2(CUcontext h)
{
	struct sg_ctx *c;
	CUresult e = chosen(h, &c);

	return e ? e : synchronize(c);
}

CUresult cuCtxGetFlags(unsigned int *flags)
{
	struct sg_ctx *c;
	CUresult e = sg_enter_ctx(&c);

	if (e)
		return e;
	if (!flags)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = c->flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetFlags(unsigned int flags)
{
	struct sg_ctx *c;
	CUresult e = sg_enter_ctx(&c);

	if (e)
		return e;
	if (flags & ~(unsigned int)CU_CTX_FLAGS_MASK)
		return CUDA_ERROR_INVALID_VALUE;
	c->flags = flags;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetId(CUcontext h, unsigned long long *id)
{
	struct sg_ctx *c;
	CUresult e = chosen(h, &c);

	if (e)
		return e;
	if (!id)
		return CUDA_ERROR_INVALID_VALUE;
	*id = c->id;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetApiVersion(CUcontext h, unsigned int *version)
{
	struct sg_ctx *c;
	CUresult e = chosen(h, &c);

	if (e)
		return e;
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = c->api_version;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	struct sg_ctx *c;
	CUresult e = sg_enter_ctx(&c);

	if (e)
		return e;
	if (limit < 0 || limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	c->limits[limit] = value;
	return CUDA_SUCCESS;
}

CUresult cuCtxGetLimit(size_t *value, CUlimit limit)
{
	struct sg_ctx *c;
	CUresult e = sg_enter_ctx(&c);

	if (e)
		return e;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	if (limit < 0 || limit >= CU_LIMIT_MAX)
		return CUDA_ERROR_UNSUPPORTED_LIMIT;
	*value = c->limits[limit];
	return CUDA_SUCCESS;
}

CUresult cuCtxGetCacheConfig(CUfunc_cache *out)
{
	struct sg_ctx *c;
	CUresult e = sg_enter_ctx(&c);

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = c->cache;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetCacheConfig(CUfunc_cache config)
{
	struct sg_ctx *c;
	CUresult e = sg_enter_ctx(&c);

	if (!e)
		c->cache = config;
	return e;
}

CUresult cuCtxGetSharedMemConfig(CUsharedconfig *out)
{
	struct sg_ctx *c;
	CUresult e = sg_enter_ctx(&c);

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = c->sharing;
	return CUDA_SUCCESS;
}

CUresult cuCtxSetSharedMemConfig(CUsharedconfig config)
{
	struct sg_ctx *c;
	CUresult e = sg_enter_ctx(&c);

	if (!e)
		c->sharing = config;
	return e;
}

CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest)
{
	CUresult e = sg_enter_ctx(NULL);

	if (e)
		return e;
	if (least)
		*least = 0;
	if (greatest)
		*greatest = -5;
	return CUDA_SUCCESS;
}

CUresult cuCtxResetPersistingL2Cache(void)
{
	return sg_enter_ctx(NULL);
}

CUresult cuCtxGetExecAffinity(CUexecAffinityParam *param, CUexecAffinityType type)
{
	(void)param;
	(void)type;
	return CUDA_ERROR_UNSUPPORTED_EXEC_AFFINITY;
}

CUresult cuCtxEnablePeerAccess(CUcontext peer, unsigned int flags)
{
	struct sg_ctx *c, *p = (struct sg_ctx *)peer;
	CUresult e = sg_enter_ctx(&c);

	if (!e)
		e = sg_ctx_valid(p);
	if (e)
		return e;
	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->dev == c->dev)
		return CUDA_ERROR_INVALID_DEVICE;
	if (c->peers & (1u << p->dev->index))
		return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
	c->peers |= 1u << p->dev->index;
	return CUDA_SUCCESS;
}

CUresult cuCtxDisablePeerAccess(CUcontext peer)
{
	struct sg_ctx *c, *p = (struct sg_ctx *)peer;
	CUresult e = sg_enter_ctx(&c);

	if (!e)
		e = sg_ctx_valid(p);
	if (e)
		return e;
	if (!(c->peers & (1u << p->dev->index)))
		return CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	c->peers &= ~(1u << p->dev->index);
	return CUDA_SUCCESS;
}
