// SPDX-License-Identifier: Apache-2.0
/*
 * copy.c - the memcpy and memset families.
 *
 * Who waits, as CUDA documents it ("API synchronization behavior"): a copy that is no Async waits,
 * unless it is from device to device; an Async copy to pageable memory waits, one from pageable
 * memory is staged up to 64 KiB and waits beyond; memsets of device memory never wait.
 */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

enum side { SIDE_PAGEABLE, SIDE_PINNED, SIDE_DEVICE, SIDE_BAD };

/* What a pointer is; device: the caller says that it is device memory. */
static enum side side_of(uint64_t p, size_t size, bool device)
{
	struct sg_alloc *a;
	enum side s;

	sg_lock();
	a = sg_find(p);
	if (!a)
		s = device ? SIDE_BAD : SIDE_PAGEABLE;
	else if (!sg_backed(p, size))
		s = a->kind == SG_MEM_REGISTERED ? SIDE_PAGEABLE : SIDE_BAD;
	else if (a->kind == SG_MEM_HOST || a->kind == SG_MEM_REGISTERED)
		s = SIDE_PINNED;
	else
		s = SIDE_DEVICE;
	sg_unlock();
	return s;
}

static size_t reach(size_t width, size_t pitch, size_t height, size_t slice, size_t depth)
{
	if (!width || !height || !depth)
		return 0;
	return (depth - 1) * slice + (height - 1) * pitch + width;
}

static CUresult give(struct sg_stream *s, struct sg_op *op, bool wait)
{
	struct sg_ctx *ctx = s->ctx;
	bool capturing = s->capture != NULL;
	uint64_t seq;
	CUresult e = sg_submit(s, op, &seq);

	if (e || !wait || capturing)
		return e;
	sg_wait_seq(s, seq, sg_sched(ctx));
	return (CUresult)ctx->fault;
}

static CUresult copy(CUstream h, bool pt, bool async, struct sg_copy *b, bool dst_device,
		     bool src_device, const CUDA_MEMCPY3D *node)
{
	struct sg_op op = {.kind = SG_OP_COPY};
	struct sg_stream *s;
	enum side d, r;
	size_t total;
	CUresult e = sg_stream_resolve(h, pt, &s);
	bool wait;

	if (e)
		return e;
	total = b->width * b->height * b->depth;
	if (!total)
		return CUDA_SUCCESS;
	d = side_of((uint64_t)b->dst, reach(b->width, b->dpitch, b->height, b->dslice, b->depth),
		    dst_device);
	r = side_of((uint64_t)b->src, reach(b->width, b->spitch, b->height, b->sslice, b->depth),
		    src_device);
	if (d == SIDE_BAD || r == SIDE_BAD || !b->dst || !b->src)
		return CUDA_ERROR_INVALID_VALUE;
	if (async)
		wait = d == SIDE_PAGEABLE || (r == SIDE_PAGEABLE && total > SG_STAGED);
	else
		wait = !(d == SIDE_DEVICE && r == SIDE_DEVICE);
	op.copy.box = *b;
	if (!s->capture && !wait && r == SIDE_PAGEABLE) {
		uint8_t *to = op.copy.box.staged = malloc(total);

		if (!to)
			return CUDA_ERROR_OUT_OF_MEMORY;
		for (size_t z = 0; z < b->depth; z++)
			for (size_t y = 0; y < b->height; y++, to += b->width)
				memcpy(to, b->src + z * b->sslice + y * b->spitch, b->width);
		op.copy.box.src = op.copy.box.staged;
		op.copy.box.spitch = b->width;
		op.copy.box.sslice = b->width * b->height;
	}
	if (node) {
		op.copy.node = *node;
	} else {
		op.copy.node = (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_UNIFIED,
					       .srcDevice = (CUdeviceptr)b->src,
					       .dstMemoryType = CU_MEMORYTYPE_UNIFIED,
					       .dstDevice = (CUdeviceptr)b->dst,
					       .srcPitch = b->spitch,
					       .dstPitch = b->dpitch,
					       .WidthInBytes = b->width,
					       .Height = b->height,
					       .Depth = b->depth};
	}
	return give(s, &op, wait);
}

static CUresult copy1(CUstream h, bool pt, bool async, uint64_t dst, uint64_t src, size_t n,
		      bool dst_device, bool src_device)
{
	struct sg_copy b = {.dst = (uint8_t *)dst,
			    .src = (const uint8_t *)src,
			    .dpitch = n,
			    .dslice = n,
			    .spitch = n,
			    .sslice = n,
			    .width = n,
			    .height = 1,
			    .depth = 1};

	return copy(h, pt, async, &b, dst_device, src_device, NULL);
}

/* Both flavours: params without the stream, and the call. */
#define SYNC(name, thread, params, dst, src, n, dd, sd)                                            \
	CUresult name params                                                                       \
	{                                                                                          \
		return copy1(NULL, false, false, (uint64_t)(dst), (uint64_t)(src), n, dd, sd);     \
	}                                                                                          \
	CUresult thread params                                                                     \
	{                                                                                          \
		return copy1(NULL, true, false, (uint64_t)(dst), (uint64_t)(src), n, dd, sd);      \
	}
#define ASYNC(name, thread, params, dst, src, n, dd, sd)                                           \
	CUresult name params                                                                       \
	{                                                                                          \
		return copy1(s, false, true, (uint64_t)(dst), (uint64_t)(src), n, dd, sd);         \
	}                                                                                          \
	CUresult thread params                                                                     \
	{                                                                                          \
		return copy1(s, true, true, (uint64_t)(dst), (uint64_t)(src), n, dd, sd);          \
	}

SYNC(cuMemcpy, cuMemcpy_ptds, (CUdeviceptr d, CUdeviceptr r, size_t n), d, r, n, false, false)
ASYNC(cuMemcpyAsync, cuMemcpyAsync_ptsz, (CUdeviceptr d, CUdeviceptr r, size_t n, CUstream s), d, r,
      n, false, false)
SYNC(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2_ptds, (CUdeviceptr d, const void *r, size_t n), d, r, n, true,
     false)
ASYNC(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2_ptsz,
      (CUdeviceptr d, const void *r, size_t n, CUstream s), d, r, n, true, false)
SYNC(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2_ptds, (void *d, CUdeviceptr r, size_t n), d, r, n, false,
     true)
ASYNC(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2_ptsz,
      (void *d, CUdeviceptr r, size_t n, CUstream s), d, r, n, false, true)
SYNC(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2_ptds, (CUdeviceptr d, CUdeviceptr r, size_t n), d, r, n, true,
     true)
ASYNC(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2_ptsz,
      (CUdeviceptr d, CUdeviceptr r, size_t n, CUstream s), d, r, n, true, true)
SYNC(cuMemcpyPeer, cuMemcpyPeer_ptds,
     (CUdeviceptr d, CUcontext dc __attribute__((unused)), CUdeviceptr r,
      CUcontext rc __attribute__((unused)), size_t n),
     d, r, n, true, true)
ASYNC(cuMemcpyPeerAsync, cuMemcpyPeerAsync_ptsz,
      (CUdeviceptr d, CUcontext dc __attribute__((unused)), CUdeviceptr r,
       CUcontext rc __attribute__((unused)), size_t n, CUstream s),
      d, r, n, true, true)

#define ARRAY_AT(a, off) ((a) ? sg_array_data(a, NULL, NULL, NULL) + (off) : 0)
SYNC(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2_ptds, (CUarray d, size_t o, CUdeviceptr r, size_t n),
     ARRAY_AT(d, o), r, n, true, true)
SYNC(cuMemcpyAtoD_v2, cuMemcpyAtoD_v2_ptds, (CUdeviceptr d, CUarray r, size_t o, size_t n), d,
     ARRAY_AT(r, o), n, true, true)
SYNC(cuMemcpyHtoA_v2, cuMemcpyHtoA_v2_ptds, (CUarray d, size_t o, const void *r, size_t n),
     ARRAY_AT(d, o), r, n, true, false)
SYNC(cuMemcpyAtoH_v2, cuMemcpyAtoH_v2_ptds, (void *d, CUarray r, size_t o, size_t n), d,
     ARRAY_AT(r, o), n, false, true)
SYNC(cuMemcpyAtoA_v2, cuMemcpyAtoA_v2_ptds, (CUarray d, size_t p, CUarray r, size_t o, size_t n),
     ARRAY_AT(d, p), ARRAY_AT(r, o), n, true, true)
ASYNC(cuMemcpyHtoAAsync_v2, cuMemcpyHtoAAsync_v2_ptsz,
      (CUarray d, size_t o, const void *r, size_t n, CUstream s), ARRAY_AT(d, o), r, n, true, false)
ASYNC(cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2_ptsz,
      (void *d, CUarray r, size_t o, size_t n, CUstream s), d, ARRAY_AT(r, o), n, false, true)

/* -- boxes ------------------------------------------------------------------------------------ */

static uint64_t corner(CUmemorytype type, const void *host, CUdeviceptr dev, CUarray array,
		       size_t x, size_t y, size_t z, size_t *pitch, size_t *rows, bool *device)
{
	uint64_t base;

	*device = type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_ARRAY;
	switch (type) {
	case CU_MEMORYTYPE_HOST:
		base = (uint64_t)host;
		break;
	case CU_MEMORYTYPE_DEVICE:
	case CU_MEMORYTYPE_UNIFIED:
		base = dev;
		break;
	case CU_MEMORYTYPE_ARRAY:
		base = sg_array_data(array, pitch, rows, NULL);
		break;
	default:
		return 0;
	}
	return base ? base + z * *pitch * *rows + y * *pitch + x : 0;
}

CUresult sg_box3d(const CUDA_MEMCPY3D *p, struct sg_copy *b, bool *dst_device, bool *src_device);
CUresult sg_box3d(const CUDA_MEMCPY3D *p, struct sg_copy *b, bool *dst_device, bool *src_device)
{
	size_t sp = p->srcPitch ? p->srcPitch : p->WidthInBytes,
	       sr = p->srcHeight ? p->srcHeight : p->Height;
	size_t dp = p->dstPitch ? p->dstPitch : p->WidthInBytes,
	       dr = p->dstHeight ? p->dstHeight : p->Height;

	memset(b, 0, sizeof(*b));
	b->src = (const uint8_t *)corner(p->srcMemoryType, p->srcHost, p->srcDevice, p->srcArray,
					 p->srcXInBytes, p->srcY, p->srcZ, &sp, &sr, src_device);
	b->dst = (uint8_t *)corner(p->dstMemoryType, p->dstHost, p->dstDevice, p->dstArray,
				   p->dstXInBytes, p->dstY, p->dstZ, &dp, &dr, dst_device);
	if (!b->src || !b->dst)
		return CUDA_ERROR_INVALID_VALUE;
	if (p->Height > 1 && (sp < p->WidthInBytes || dp < p->WidthInBytes))
		return CUDA_ERROR_INVALID_VALUE;
	b->spitch = sp;
	b->sslice = sp * sr;
	b->dpitch = dp;
	b->dslice = dp * dr;
	b->width = p->WidthInBytes;
	b->height = p->Height;
	b->depth = p->Depth;
	return CUDA_SUCCESS;
}

static CUresult copy3(const CUDA_MEMCPY3D *p, CUstream h, bool pt, bool async)
{
	bool dd, sd;
	struct sg_copy b;
	CUresult e;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	if (!p->WidthInBytes || !p->Height || !p->Depth)
		return CUDA_SUCCESS;
	e = sg_box3d(p, &b, &dd, &sd);
	return e ? e : copy(h, pt, async, &b, dd, sd, p);
}

static CUresult copy2(const CUDA_MEMCPY2D *p, CUstream h, bool pt, bool async)
{
	CUDA_MEMCPY3D q = {0};

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	q.srcXInBytes = p->srcXInBytes;
	q.srcY = p->srcY;
	q.srcMemoryType = p->srcMemoryType;
	q.srcHost = p->srcHost;
	q.srcDevice = p->srcDevice;
	q.srcArray = p->srcArray;
	q.srcPitch = p->srcPitch;
	q.dstXInBytes = p->dstXInBytes;
	q.dstY = p->dstY;
	q.dstMemoryType = p->dstMemoryType;
	q.dstHost = p->dstHost;
	q.dstDevice = p->dstDevice;
	q.dstArray = p->dstArray;
	q.dstPitch = p->dstPitch;
	q.WidthInBytes = p->WidthInBytes;
	q.Height = p->Height;
	q.Depth = 1;
	return copy3(&q, h, pt, async);
}

static CUresult copy_peer3(const CUDA_MEMCPY3D_PEER *p, CUstream h, bool pt, bool async)
{
	CUDA_MEMCPY3D q;

	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	_Static_assert(sizeof(q) == sizeof(*p),
		       "differs only in what stands in the reserved words");
	memcpy(&q, p, sizeof(q));
	return copy3(&q, h, pt, async);
}

#define BOX(name, thread, type, fn)                                                                \
	CUresult name(const type *p)                                                               \
	{                                                                                          \
		return fn(p, NULL, false, false);                                                  \
	}                                                                                          \
	CUresult thread(const type *p)                                                             \
	{                                                                                          \
		return fn(p, NULL, true, false);                                                   \
	}
#define BOX_ASYNC(name, thread, type, fn)                                                          \
	CUresult name(const type *p, CUstream s)                                                   \
	{                                                                                          \
		return fn(p, s, false, true);                                                      \
	}                                                                                          \
	CUresult thread(const type *p, CUstream s)                                                 \
	{                                                                                          \
		return fn(p, s, true, true);                                                       \
	}
BOX(cuMemcpy2D_v2, cuMemcpy2D_v2_ptds, CUDA_MEMCPY2D, copy2)
BOX(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2_ptds, CUDA_MEMCPY2D, copy2)
BOX_ASYNC(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2_ptsz, CUDA_MEMCPY2D, copy2)
BOX(cuMemcpy3D_v2, cuMemcpy3D_v2_ptds, CUDA_MEMCPY3D, copy3)
BOX_ASYNC(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2_ptsz, CUDA_MEMCPY3D, copy3)
BOX(cuMemcpy3DPeer, cuMemcpy3DPeer_ptds, CUDA_MEMCPY3D_PEER, copy_peer3)
BOX_ASYNC(cuMemcpy3DPeerAsync, cuMemcpy3DPeerAsync_ptsz, CUDA_MEMCPY3D_PEER, copy_peer3)

static CUresult batch(CUdeviceptr *d, CUdeviceptr *r, size_t *n, size_t count, CUstream s, bool pt)
{
	CUresult e = CUDA_SUCCESS;

	if (!d || !r || !n || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && !e; i++)
		e = copy1(s, pt, true, d[i], r[i], n[i], false, false);
	return e;
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *d, CUdeviceptr *r, size_t *n, size_t count,
			       CUmemcpyAttributes *attrs, size_t *index, size_t attr_count,
			       CUstream s)
{
	(void)attrs;
	(void)index;
	(void)attr_count;
	return batch(d, r, n, count, s, false);
}

CUresult cuMemcpyBatchAsync_v2_ptsz(CUdeviceptr *d, CUdeviceptr *r, size_t *n, size_t count,
				    CUmemcpyAttributes *attrs, size_t *index, size_t attr_count,
				    CUstream s)
{
	(void)attrs;
	(void)index;
	(void)attr_count;
	return batch(d, r, n, count, s, true);
}

/* -- setting ---------------------------------------------------------------------------------- */

static CUresult set(CUstream h, bool pt, bool async, uint64_t dst, size_t pitch, uint32_t value,
		    uint8_t elem, size_t width, size_t height)
{
	struct sg_op op = {.kind = SG_OP_SET};
	struct sg_stream *s;
	enum side d;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if (!width || !height)
		return CUDA_SUCCESS;
	if (dst % elem || (height > 1 && pitch < width * elem))
		return CUDA_ERROR_INVALID_VALUE;
	d = side_of(dst, (height - 1) * pitch + width * elem, true);
	if (d == SIDE_BAD)
		return CUDA_ERROR_INVALID_VALUE;
	op.set.box = (struct sg_set){(uint8_t *)dst, pitch, width, height, value, elem};
	op.set.node = (CUDA_MEMSET_NODE_PARAMS){.dst = dst,
						.pitch = pitch,
						.value = value,
						.elementSize = elem,
						.width = width,
						.height = height};
	return give(s, &op, !async && d == SIDE_PINNED);
}

#define SET(name, sync_suffix, type, elem)                                                         \
	CUresult name##_v2(CUdeviceptr d, type v, size_t n)                                        \
	{                                                                                          \
		return set(NULL, false, false, d, n * elem, v, elem, n, 1);                        \
	}                                                                                          \
	CUresult name##_v2_ptds(CUdeviceptr d, type v, size_t n)                                   \
	{                                                                                          \
		return set(NULL, true, false, d, n * elem, v, elem, n, 1);                         \
	}                                                                                          \
	CUresult name##Async(CUdeviceptr d, type v, size_t n, CUstream s)                          \
	{                                                                                          \
		return set(s, false, true, d, n * elem, v, elem, n, 1);                            \
	}                                                                                          \
	CUresult name##Async_ptsz(CUdeviceptr d, type v, size_t n, CUstream s)                     \
	{                                                                                          \
		return set(s, true, true, d, n * elem, v, elem, n, 1);                             \
	}
SET(cuMemsetD8, _v2, unsigned char, 1)
SET(cuMemsetD16, _v2, unsigned short, 2)
SET(cuMemsetD32, _v2, unsigned int, 4)

#define SET2(name, type, elem)                                                                     \
	CUresult name##_v2(CUdeviceptr d, size_t pitch, type v, size_t w, size_t h)                \
	{                                                                                          \
		return set(NULL, false, false, d, pitch, v, elem, w, h);                           \
	}                                                                                          \
	CUresult name##_v2_ptds(CUdeviceptr d, size_t pitch, type v, size_t w, size_t h)           \
	{                                                                                          \
		return set(NULL, true, false, d, pitch, v, elem, w, h);                            \
	}                                                                                          \
	CUresult name##Async(CUdeviceptr d, size_t pitch, type v, size_t w, size_t h, CUstream s)  \
	{                                                                                          \
		return set(s, false, true, d, pitch, v, elem, w, h);                               \
	}                                                                                          \
	CUresult name##Async_ptsz(CUdeviceptr d, size_t pitch, type v, size_t w, size_t h,         \
				  CUstream s)                                                      \
	{                                                                                          \
		return set(s, true, true, d, pitch, v, elem, w, h);                                \
	}
SET2(cuMemsetD2D8, unsigned char, 1)
SET2(cuMemsetD2D16, unsigned short, 2)
SET2(cuMemsetD2D32, unsigned int, 4)
