// SPDX-License-Identifier: Apache-2.0
/*
 * pool.c - stream-ordered allocation.
 *
 * A pool takes chunks of the device (32 MiB, or what is asked when more) and gives out parts. A
 * freed part is free for its own stream at once and for everyone when the stream has reached the
 * free. A synchronisation gives whole unused chunks back, down to the pool's release threshold.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

#define POOL_MAGIC 0x504f4f4cu
#define CHUNK (32ull << 20)

struct sg_chunk {
	uint64_t addr, size;
	struct sg_space space;
	unsigned int parts; /* given out, or freed and not yet reached */
	struct sg_chunk *next;
};

struct sg_pool {
	uint32_t magic;
	struct sg_device *dev;
	struct sg_pool *next;
	struct sg_chunk *chunks;
	struct sg_alloc *freed; /* freed, not reached */
	int reuse[4];
	uint64_t threshold, max;
	uint64_t reserved, reserved_high, used, used_high;
	CUmemAccess_flags access[SG_MAX_DEVICES];
	bool is_default, destroyed;
};

static struct sg_pool *pools;

static struct sg_pool *pool_new(struct sg_device *dev)
{
	struct sg_pool *p = calloc(1, sizeof(*p));

	if (!p)
		return NULL;
	p->magic = POOL_MAGIC;
	p->dev = dev;
	p->reuse[1] = p->reuse[2] = p->reuse[3] = 1;
	p->access[dev->index] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
	p->next = pools;
	pools = p;
	return p;
}

/* Locked. */
struct sg_pool *sg_pool_default(struct sg_device *dev)
{
	if (!dev->default_pool) {
		dev->default_pool = dev->pool = pool_new(dev);
		if (dev->default_pool)
			dev->default_pool->is_default = true;
	}
	return dev->default_pool;
}

static void trim(struct sg_pool *p, uint64_t keep)
{
	struct sg_chunk **at = &p->chunks;

	while (*at && p->reserved > keep) {
		struct sg_chunk *c = *at;

		if (c->parts) {
			at = &c->next;
			continue;
		}
		*at = c->next;
		p->reserved -= c->size;
		sg_device_give(p->dev, c->addr, c->size);
		SG_LOG("pool-shrink pool=%p bytes=%llu", (void *)p, (unsigned long long)c->size);
		free(c->space.free);
		free(c);
	}
}

void sg_pools_trim(struct sg_device *dev)
{
	for (struct sg_pool *p = pools; p; p = p->next)
		if (p->dev == dev)
			trim(p, p->destroyed ? 0 : p->threshold);
}

static void part_back(struct sg_pool *p, struct sg_alloc *a)
{
	sg_space_give(&a->chunk->space, a->addr, a->charged);
	a->chunk->parts--;
	if (p->destroyed)
		trim(p, 0);
}

/* The stream has reached the free, or the memory was freed with a synchronisation. */
void sg_pool_return(struct sg_alloc *a)
{
	struct sg_pool *p = a->pool;

	for (struct sg_alloc **at = &p->freed; *at; at = &(*at)->next_freed) {
		if (*at == a) {
			*at = a->next_freed;
			break;
		}
	}
	if (!a->taken) {
		sg_ranges_del(a);
		if (!a->free_stream)
			p->used -= a->charged;
		part_back(p, a);
	}
	free(a);
}

/* What was freed in the order of a stream that is destroyed can no longer be reused in its order.
 */
void sg_pool_stream_gone(struct sg_stream *s)
{
	for (struct sg_pool *p = pools; p; p = p->next)
		for (struct sg_alloc *a = p->freed; a; a = a->next_freed)
			if (a->free_stream == s)
				a->free_stream = (struct sg_stream *)-1;
}

static struct sg_alloc *part(struct sg_pool *p, struct sg_chunk *c, uint64_t addr, uint64_t size,
			     uint64_t charged)
{
	struct sg_alloc *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->addr = addr;
	a->size = size;
	a->charged = charged;
	a->kind = SG_MEM_POOL;
	a->device = p->dev->index;
	a->ctx = p->dev->primary ? p->dev->primary : sg_current();
	a->pool = p;
	a->chunk = c;
	sg_ranges_add(a);
	p->used += charged;
	p->used_high = SG_MAX(p->used_high, p->used);
	return a;
}

/* Locked: from what the pool has. */
static struct sg_alloc *from_pool(struct sg_pool *p, struct sg_stream *s, uint64_t size,
				  uint64_t need)
{
	uint64_t at;

	for (struct sg_alloc *a = p->freed; a; a = a->next_freed) {
		if (a->free_stream != s || a->taken || a->charged != need)
			continue;
		a->taken = true;
		sg_ranges_del(a);
		return part(p, a->chunk, a->addr, size, need);
	}
	for (struct sg_chunk *c = p->chunks; c; c = c->next) {
		if (!sg_space_take(&c->space, need, SG_ALIGN, &at)) {
			c->parts++;
			return part(p, c, at, size, need);
		}
	}
	return NULL;
}

CUresult sg_pool_alloc(struct sg_pool *p, struct sg_stream *s, uint64_t size, uint64_t *addr)
{
	uint64_t need, at = 0, chunk;
	struct sg_alloc *a;
	struct sg_chunk *c;
	CUresult e;

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > sg.memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	need = SG_UP(size, SG_ALIGN);
	sg_lock();
	a = from_pool(p, s, size, need);
	if (!a && p->max && p->reserved + need > p->max) {
		sg_unlock();
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	sg_unlock();
	if (a) {
		*addr = a->addr;
		return CUDA_SUCCESS;
	}
	chunk = SG_MAX(CHUNK, SG_UP(size, SG_GRANULARITY));
	e = sg_device_take(p->dev, chunk, SG_GRANULARITY, &at);
	if (e) {
		/* Less may do; then what pools hold unused may do. */
		chunk = SG_UP(size, SG_GRANULARITY);
		e = sg_device_take(p->dev, chunk, SG_GRANULARITY, &at);
	}
	if (e) {
		sg_lock();
		for (struct sg_pool *q = pools; q; q = q->next)
			if (q->dev == p->dev)
				trim(q, 0);
		sg_unlock();
		e = sg_device_take(p->dev, chunk, SG_GRANULARITY, &at);
	}
	if (e)
		return e;
	SG_LOG("pool-grow pool=%p bytes=%llu", (void *)p, (unsigned long long)chunk);
	c = calloc(1, sizeof(*c));
	c->addr = at;
	c->size = chunk;
	sg_lock();
	sg_space_give(&c->space, at, chunk);
	c->next = p->chunks;
	p->chunks = c;
	p->reserved += chunk;
	p->reserved_high = SG_MAX(p->reserved_high, p->reserved);
	sg_space_take(&c->space, need, SG_ALIGN, &at);
	c->parts++;
	a = part(p, c, at, size, need);
	sg_unlock();
	*addr = a->addr;
	return CUDA_SUCCESS;
}

void sg_pools_gone(struct sg_device *dev)
{
	struct sg_alloc *a;

	sg_lock();
	for (struct sg_pool *p = pools; p; p = p->next) {
		if (p->dev != dev)
			continue;
		/* Everything lies in the chunks: find what is still given out by its address. */
		for (struct sg_chunk *c = p->chunks; c; c = c->next) {
			for (uint64_t at = c->addr; at < c->addr + c->size; at += SG_ALIGN) {
				a = sg_find(at);
				if (!a || a->kind != SG_MEM_POOL)
					continue;
				at = a->addr + a->charged - SG_ALIGN;
				sg_ranges_del(a);
			}
			c->parts = 0;
		}
		p->freed = NULL;
		p->used = 0;
		trim(p, 0);
	}
	sg_unlock();
}

/* -- calls ------------------------------------------------------------------------------------ */

static struct sg_pool *pool_of(CUmemoryPool h)
{
	struct sg_pool *p = (struct sg_pool *)h;

	return (uintptr_t)p > 4095 && p->magic == POOL_MAGIC && !p->destroyed ? p : NULL;
}

static CUresult alloc_async(struct sg_pool *p, CUdeviceptr *out, size_t size, CUstream h, bool pt)
{
	struct sg_stream *s;
	struct sg_op op = {.kind = SG_OP_NOP};
	uint64_t at;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if (!out || !size)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	if (!p) {
		sg_pool_default(s->dev);
		p = s->dev->pool;
	}
	sg_unlock();
	if (sg.alloc_sync && !s->capture)
		sg_ctx_drain(s->ctx, sg_sched(s->ctx));
	e = sg_pool_alloc(p, s, size, &at);
	SG_LOG("alloc-async device=%d bytes=%zu error=%d", p->dev->index, size, (int)e);
	if (e)
		return e;
	*out = at;
	if (s->capture) {
		op.kind = SG_OP_ALLOC;
		op.alloc.node.poolProps.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
		op.alloc.node.poolProps.location.id = p->dev->index;
		op.alloc.node.bytesize = size;
		op.alloc.node.dptr = at;
		return sg_submit(s, &op, NULL);
	}
	return CUDA_SUCCESS;
}

CUresult cuMemAllocAsync(CUdeviceptr *out, size_t size, CUstream s)
{
	return alloc_async(NULL, out, size, s, false);
}

CUresult cuMemAllocAsync_ptsz(CUdeviceptr *out, size_t size, CUstream s)
{
	return alloc_async(NULL, out, size, s, true);
}

CUresult cuMemAllocFromPoolAsync(CUdeviceptr *out, size_t size, CUmemoryPool h, CUstream s)
{
	return pool_of(h) ? alloc_async(pool_of(h), out, size, s, false) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAllocFromPoolAsync_ptsz(CUdeviceptr *out, size_t size, CUmemoryPool h, CUstream s)
{
	return pool_of(h) ? alloc_async(pool_of(h), out, size, s, true) : CUDA_ERROR_INVALID_VALUE;
}

static CUresult free_async(CUdeviceptr p, CUstream h, bool pt)
{
	struct sg_op op = {.kind = SG_OP_FREE};
	struct sg_stream *s;
	struct sg_alloc *a;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if (!p)
		return CUDA_SUCCESS;
	sg_lock();
	a = sg_find(p);
	if (!a || a->addr != p || a->kind != SG_MEM_POOL || a->freeing) {
		sg_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (!s->capture) {
		a->freeing = true;
		a->free_stream = s;
		a->pool->used -= a->charged;
		a->next_freed = a->pool->freed;
		a->pool->freed = a;
	}
	sg_unlock();
	SG_LOG("free-async addr=%#llx", (unsigned long long)p);
	op.free.alloc = a;
	return sg_submit(s, &op, NULL);
}

CUresult cuMemFreeAsync(CUdeviceptr p, CUstream s)
{
	return free_async(p, s, false);
}

CUresult cuMemFreeAsync_ptsz(CUdeviceptr p, CUstream s)
{
	return free_async(p, s, true);
}

static CUresult of_device(int dev, struct sg_pool **out)
{
	CUresult e = sg_enter();

	if (e)
		return e;
	if (dev < 0 || dev >= sg.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	sg_lock();
	*out = sg_pool_default(&sg.dev[dev]);
	sg_unlock();
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *out, CUdevice dev)
{
	struct sg_pool *p;
	CUresult e = of_device(dev, &p);

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUmemoryPool)p;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetMemPool(CUmemoryPool *out, CUdevice dev)
{
	struct sg_pool *p;
	CUresult e = of_device(dev, &p);

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUmemoryPool)sg.dev[dev].pool;
	return CUDA_SUCCESS;
}

CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool h)
{
	struct sg_pool *p;
	CUresult e = of_device(dev, &p);

	if (e)
		return e;
	p = pool_of(h);
	if (!p || p->dev->index != dev)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	sg.dev[dev].pool = p;
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuMemGetDefaultMemPool(CUmemoryPool *out, CUmemLocation *l, CUmemAllocationType type)
{
	(void)type;
	if (!l || l->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuDeviceGetDefaultMemPool(out, l->id);
}

CUresult cuMemGetMemPool(CUmemoryPool *out, CUmemLocation *l, CUmemAllocationType type)
{
	(void)type;
	if (!l || l->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuDeviceGetMemPool(out, l->id);
}

CUresult cuMemSetMemPool(CUmemLocation *l, CUmemAllocationType type, CUmemoryPool h)
{
	(void)type;
	if (!l || l->type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_NOT_SUPPORTED;
	return cuDeviceSetMemPool(l->id, h);
}

CUresult cuMemPoolCreate(CUmemoryPool *out, const CUmemPoolProps *props)
{
	struct sg_pool *p;
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED)
		return CUDA_ERROR_INVALID_VALUE;
	if (props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || props->handleTypes)
		return CUDA_ERROR_NOT_SUPPORTED;
	e = of_device(props->location.id, &p);
	if (e)
		return e;
	sg_lock();
	p = pool_new(&sg.dev[props->location.id]);
	sg_unlock();
	if (!p)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p->max = props->maxSize;
	*out = (CUmemoryPool)p;
	return CUDA_SUCCESS;
}

CUresult cuMemPoolDestroy(CUmemoryPool h)
{
	struct sg_pool *p = pool_of(h);

	if (!p || p->is_default)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	p->destroyed = true;
	if (p->dev->pool == p)
		p->dev->pool = p->dev->default_pool;
	trim(p, 0);
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuMemPoolTrimTo(CUmemoryPool h, size_t keep)
{
	struct sg_pool *p = pool_of(h);

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	trim(p, keep);
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAttribute(CUmemoryPool h, CUmemPool_attribute attr, void *value)
{
	struct sg_pool *p = pool_of(h);
	CUresult e = CUDA_SUCCESS;

	if (!p || !value)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		*(int *)value = p->reuse[attr];
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		*(cuuint64_t *)value = p->threshold;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
		*(cuuint64_t *)value = p->reserved;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		*(cuuint64_t *)value = p->reserved_high;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
		*(cuuint64_t *)value = p->used;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		*(cuuint64_t *)value = p->used_high;
		break;
	default:
		e = CUDA_ERROR_INVALID_VALUE;
	}
	sg_unlock();
	return e;
}

CUresult cuMemPoolSetAttribute(CUmemoryPool h, CUmemPool_attribute attr, void *value)
{
	struct sg_pool *p = pool_of(h);
	CUresult e = CUDA_SUCCESS;

	if (!p || !value)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	switch (attr) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
		p->reuse[attr] = *(int *)value;
		break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
		p->threshold = *(cuuint64_t *)value;
		break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
		if (*(cuuint64_t *)value)
			e = CUDA_ERROR_INVALID_VALUE;
		else
			p->reserved_high = p->reserved;
		break;
	case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (*(cuuint64_t *)value)
			e = CUDA_ERROR_INVALID_VALUE;
		else
			p->used_high = p->used;
		break;
	default:
		e = CUDA_ERROR_INVALID_VALUE;
	}
	sg_unlock();
	return e;
}

CUresult cuMemPoolSetAccess(CUmemoryPool h, const CUmemAccessDesc *map, size_t count)
{
	struct sg_pool *p = pool_of(h);

	if (!p || !map)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (map[i].location.type != CU_MEM_LOCATION_TYPE_DEVICE || map[i].location.id < 0 ||
		    map[i].location.id >= sg.devices)
			return CUDA_ERROR_INVALID_DEVICE;
		p->access[map[i].location.id] = map[i].flags;
	}
	return CUDA_SUCCESS;
}

CUresult cuMemPoolGetAccess(CUmemAccess_flags *flags, CUmemoryPool h, CUmemLocation *l)
{
	struct sg_pool *p = pool_of(h);

	if (!p || !flags || !l || l->type != CU_MEM_LOCATION_TYPE_DEVICE || l->id < 0 ||
	    l->id >= sg.devices)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = p->access[l->id];
	return CUDA_SUCCESS;
}

CUresult cuDeviceGraphMemTrim(CUdevice dev)
{
	struct sg_pool *p;

	return of_device(dev, &p);
}

CUresult cuDeviceGetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void *value)
{
	struct sg_pool *p;
	CUresult e = of_device(dev, &p);

	(void)attr;
	if (e)
		return e;
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	*(cuuint64_t *)value = 0; /* graph memory lies in the pools here */
	return CUDA_SUCCESS;
}

CUresult cuDeviceSetGraphMemAttribute(CUdevice dev, CUgraphMem_attribute attr, void *value)
{
	struct sg_pool *p;

	(void)attr;
	(void)value;
	return of_device(dev, &p);
}
