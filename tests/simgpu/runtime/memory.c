// SPDX-License-Identifier: Apache-2.0
/* memory.c - allocation, copies, memsets, pools, arrays, pointers, memory between processes. */
#include <stdlib.h>
#include <string.h>

#include "rt.h"

/* -- allocation ------------------------------------------------------------------------------- */

cudaError_t cudaMalloc(void **out, size_t size)
{
	if (!out)
		return rt_return(cudaErrorInvalidValue);
	if (!size) {
		*out = NULL;
		return cudaSuccess;
	}
	CALL(DRV(cuMemAlloc_v2, 0, (CUdeviceptr *)out, size));
}

cudaError_t cudaFree(void *p)
{
	if (!p)
		CALL(cudaSuccess); /* brings the context up: cudaFree(0) is used for that */
	CALL(DRV(cuMemFree_v2, 0, (CUdeviceptr)p));
}

cudaError_t cudaMallocManaged(void **out, size_t size, unsigned int flags)
{
	CALL(DRV(cuMemAllocManaged, 0, (CUdeviceptr *)out, size, flags));
}

cudaError_t cudaMallocPitch(void **out, size_t *pitch, size_t width, size_t height)
{
	CALL(DRV(cuMemAllocPitch_v2, 0, (CUdeviceptr *)out, pitch, width, height, 4));
}

cudaError_t cudaMalloc3D(struct cudaPitchedPtr *out, struct cudaExtent e)
{
	if (!out)
		return rt_return(cudaErrorInvalidValue);
	out->xsize = e.width;
	out->ysize = e.height;
	CALL(DRV(cuMemAllocPitch_v2, 0, (CUdeviceptr *)&out->ptr, &out->pitch, e.width,
		 e.height * e.depth, 4));
}

cudaError_t cudaMallocHost(void **out, size_t size)
{
	CALL(DRV(cuMemAllocHost_v2, 0, out, size));
}

cudaError_t cudaHostAlloc(void **out, size_t size, unsigned int flags)
{
	CALL(DRV(cuMemHostAlloc, 0, out, size, flags));
}

cudaError_t cudaFreeHost(void *p)
{
	if (!p)
		return rt_return(rt_init());
	CALL(DRV(cuMemFreeHost, 0, p));
}

cudaError_t cudaHostRegister(void *p, size_t size, unsigned int flags)
{
	CALL(DRV(cuMemHostRegister_v2, 0, p, size, flags));
}

cudaError_t cudaHostUnregister(void *p)
{
	CALL(DRV(cuMemHostUnregister, 0, p));
}

cudaError_t cudaHostGetDevicePointer(void **out, void *p, unsigned int flags)
{
	CALL(DRV(cuMemHostGetDevicePointer_v2, 0, (CUdeviceptr *)out, p, flags));
}

cudaError_t cudaHostGetFlags(unsigned int *flags, void *p)
{
	CALL(DRV(cuMemHostGetFlags, 0, flags, p));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
	CALL(DRV(cuMemGetInfo_v2, 0, free_bytes, total));
}

/* -- stream-ordered allocation ---------------------------------------------------------------- */

static cudaError_t alloc_async(void **out, size_t size, cudaStream_t s, int pt)
{
	if (!out)
		return cudaErrorInvalidValue;
	*out = NULL;
	return size ? DRV(cuMemAllocAsync, pt, (CUdeviceptr *)out, size, s) : cudaSuccess;
}

BOTH(cudaMallocAsync, _ptsz, (void **out, size_t size, cudaStream_t s),
     CALL(alloc_async(out, size, s, pt));)
BOTH(cudaFreeAsync, _ptsz, (void *p, cudaStream_t s),
     CALL(DRV(cuMemFreeAsync, pt, (CUdeviceptr)p, s));)
BOTH(cudaMallocFromPoolAsync, _ptsz, (void **out, size_t size, cudaMemPool_t pool, cudaStream_t s),
     CALL(DRV(cuMemAllocFromPoolAsync, pt, (CUdeviceptr *)out, size, (CUmemoryPool)pool, s));)

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *out, int dev)
{
	CALL(DRV(cuDeviceGetDefaultMemPool, 0, (CUmemoryPool *)out, dev));
}

cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *out, int dev)
{
	CALL(DRV(cuDeviceGetMemPool, 0, (CUmemoryPool *)out, dev));
}

cudaError_t cudaDeviceSetMemPool(int dev, cudaMemPool_t pool)
{
	CALL(DRV(cuDeviceSetMemPool, 0, dev, (CUmemoryPool)pool));
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t *out, const struct cudaMemPoolProps *props)
{
	_Static_assert(sizeof(struct cudaMemPoolProps) == sizeof(CUmemPoolProps), "one layout");
	CALL(DRV(cuMemPoolCreate, 0, (CUmemoryPool *)out, (const CUmemPoolProps *)props));
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool)
{
	CALL(DRV(cuMemPoolDestroy, 0, (CUmemoryPool)pool));
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep)
{
	CALL(DRV(cuMemPoolTrimTo, 0, (CUmemoryPool)pool, keep));
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value)
{
	CALL(DRV(cuMemPoolGetAttribute, 0, (CUmemoryPool)pool, (CUmemPool_attribute)attr, value));
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, enum cudaMemPoolAttr attr, void *value)
{
	CALL(DRV(cuMemPoolSetAttribute, 0, (CUmemoryPool)pool, (CUmemPool_attribute)attr, value));
}

cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const struct cudaMemAccessDesc *map, size_t n)
{
	CALL(DRV(cuMemPoolSetAccess, 0, (CUmemoryPool)pool, (const CUmemAccessDesc *)map, n));
}

cudaError_t cudaMemPoolGetAccess(enum cudaMemAccessFlags *flags, cudaMemPool_t pool,
				 struct cudaMemLocation *l)
{
	CALL(DRV(cuMemPoolGetAccess, 0, (CUmemAccess_flags *)flags, (CUmemoryPool)pool,
		 (CUmemLocation *)l));
}

cudaError_t cudaMemGetDefaultMemPool(cudaMemPool_t *out, struct cudaMemLocation *l,
				     enum cudaMemAllocationType type)
{
	CALL(DRV(cuMemGetDefaultMemPool, 0, (CUmemoryPool *)out, (CUmemLocation *)l,
		 (CUmemAllocationType)type));
}

cudaError_t cudaMemGetMemPool(cudaMemPool_t *out, struct cudaMemLocation *l,
			      enum cudaMemAllocationType type)
{
	CALL(DRV(cuMemGetMemPool, 0, (CUmemoryPool *)out, (CUmemLocation *)l,
		 (CUmemAllocationType)type));
}

cudaError_t cudaMemSetMemPool(struct cudaMemLocation *l, enum cudaMemAllocationType type,
			      cudaMemPool_t pool)
{
	CALL(DRV(cuMemSetMemPool, 0, (CUmemLocation *)l, (CUmemAllocationType)type,
		 (CUmemoryPool)pool));
}

cudaError_t cudaDeviceGraphMemTrim(int dev)
{
	CALL(DRV(cuDeviceGraphMemTrim, 0, dev));
}

cudaError_t cudaDeviceGetGraphMemAttribute(int dev, enum cudaGraphMemAttributeType attr,
					   void *value)
{
	CALL(DRV(cuDeviceGetGraphMemAttribute, 0, dev, (CUgraphMem_attribute)attr, value));
}

cudaError_t cudaDeviceSetGraphMemAttribute(int dev, enum cudaGraphMemAttributeType attr,
					   void *value)
{
	CALL(DRV(cuDeviceSetGraphMemAttribute, 0, dev, (CUgraphMem_attribute)attr, value));
}

/* -- copies ----------------------------------------------------------------------------------- */

static cudaError_t copy(void *d, const void *s, size_t n, enum cudaMemcpyKind kind, int pt)
{
	if (!n)
		return cudaSuccess;
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return DRV(cuMemcpyHtoD_v2, pt, (CUdeviceptr)d, s, n);
	case cudaMemcpyDeviceToHost:
		return DRV(cuMemcpyDtoH_v2, pt, d, (CUdeviceptr)s, n);
	case cudaMemcpyDeviceToDevice:
		return DRV(cuMemcpyDtoD_v2, pt, (CUdeviceptr)d, (CUdeviceptr)s, n);
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return DRV(cuMemcpy, pt, (CUdeviceptr)d, (CUdeviceptr)s, n);
	default:
		return cudaErrorInvalidMemcpyDirection;
	}
}

static cudaError_t copy_async(void *d, const void *s, size_t n, enum cudaMemcpyKind kind,
			      cudaStream_t stream, int pt)
{
	if (!n)
		return cudaSuccess;
	switch (kind) {
	case cudaMemcpyHostToDevice:
		return DRV(cuMemcpyHtoDAsync_v2, pt, (CUdeviceptr)d, s, n, stream);
	case cudaMemcpyDeviceToHost:
		return DRV(cuMemcpyDtoHAsync_v2, pt, d, (CUdeviceptr)s, n, stream);
	case cudaMemcpyDeviceToDevice:
		return DRV(cuMemcpyDtoDAsync_v2, pt, (CUdeviceptr)d, (CUdeviceptr)s, n, stream);
	case cudaMemcpyHostToHost:
	case cudaMemcpyDefault:
		return DRV(cuMemcpyAsync, pt, (CUdeviceptr)d, (CUdeviceptr)s, n, stream);
	default:
		return cudaErrorInvalidMemcpyDirection;
	}
}

BOTH(cudaMemcpy, _ptds, (void *d, const void *s, size_t n, enum cudaMemcpyKind kind),
     CALL(copy(d, s, n, kind, pt));)
BOTH(cudaMemcpyAsync, _ptsz,
     (void *d, const void *s, size_t n, enum cudaMemcpyKind kind, cudaStream_t t),
     CALL(copy_async(d, s, n, kind, t, pt));)

static cudaError_t peers(int dd, int sd, CUcontext *dc, CUcontext *sc)
{
	return rt_context_of(dd, dc) && rt_context_of(sd, sc) ? cudaSuccess
							      : cudaErrorInvalidDevice;
}

cudaError_t cudaMemcpyPeer(void *d, int dd, const void *s, int sd, size_t n)
{
	CUcontext dc, sc;
	cudaError_t e = rt_enter();

	if (!e)
		e = peers(dd, sd, &dc, &sc);
	return rt_return(e ? e : DRV(cuMemcpyPeer, 0, (CUdeviceptr)d, dc, (CUdeviceptr)s, sc, n));
}

cudaError_t cudaMemcpyPeerAsync(void *d, int dd, const void *s, int sd, size_t n, cudaStream_t t)
{
	CUcontext dc, sc;
	cudaError_t e = rt_enter();

	if (!e)
		e = peers(dd, sd, &dc, &sc);
	return rt_return(
		e ? e : DRV(cuMemcpyPeerAsync, 0, (CUdeviceptr)d, dc, (CUdeviceptr)s, sc, n, t));
}

static CUmemorytype side(bool dst, enum cudaMemcpyKind kind)
{
	switch (kind) {
	case cudaMemcpyHostToHost:
		return CU_MEMORYTYPE_HOST;
	case cudaMemcpyHostToDevice:
		return dst ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
	case cudaMemcpyDeviceToHost:
		return dst ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
	case cudaMemcpyDeviceToDevice:
		return CU_MEMORYTYPE_DEVICE;
	default:
		return CU_MEMORYTYPE_UNIFIED;
	}
}

/* One side of a 2D copy: memory or an array. */
struct side2 {
	void *ptr;
	size_t pitch;
	cudaArray_t array;
	size_t x, y;
};

static cudaError_t copy2(const struct side2 *d, const struct side2 *s, size_t width, size_t height,
			 enum cudaMemcpyKind kind, bool async, cudaStream_t t, int pt)
{
	CUDA_MEMCPY2D p = {.srcXInBytes = s->x,
			   .srcY = s->y,
			   .srcMemoryType = side(false, kind),
			   .srcHost = s->ptr,
			   .srcDevice = (CUdeviceptr)s->ptr,
			   .srcPitch = s->pitch,
			   .dstXInBytes = d->x,
			   .dstY = d->y,
			   .dstMemoryType = side(true, kind),
			   .dstHost = d->ptr,
			   .dstDevice = (CUdeviceptr)d->ptr,
			   .dstPitch = d->pitch,
			   .WidthInBytes = width,
			   .Height = height};

	if (s->array) {
		p.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		p.srcArray = (CUarray)s->array;
	}
	if (d->array) {
		p.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		p.dstArray = (CUarray)d->array;
	}
	return async ? DRV(cuMemcpy2DAsync_v2, pt, &p, t) : DRV(cuMemcpy2DUnaligned_v2, pt, &p);
}

#define MEM(p, pitch_)                                                                             \
	{                                                                                          \
		(void *)(p), pitch_, NULL, 0, 0                                                    \
	}
#define ARR(a, x_, y_)                                                                             \
	{                                                                                          \
		NULL, 0, (cudaArray_t)(a), x_, y_                                                  \
	}
#define COPY2(dst, src, w, h, kind, async, stream)                                                 \
	struct side2 d_ = dst, s_ = src;                                                           \
	CALL(copy2(&d_, &s_, w, h, kind, async, stream, pt));

/* Two pitched memories: a row must fit into both pitches. */
static cudaError_t copy2_plain(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h,
			       enum cudaMemcpyKind k, bool async, cudaStream_t t, int pt)
{
	struct side2 to = MEM(d, dp), from = MEM(s, sp);

	if (dp < w || sp < w)
		return cudaErrorInvalidPitchValue;
	return copy2(&to, &from, w, h, k, async, t, pt);
}

BOTH(cudaMemcpy2D, _ptds,
     (void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, enum cudaMemcpyKind k),
     CALL(copy2_plain(d, dp, s, sp, w, h, k, false, NULL, pt));)
BOTH(cudaMemcpy2DAsync, _ptsz,
     (void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h, enum cudaMemcpyKind k,
      cudaStream_t t),
     CALL(copy2_plain(d, dp, s, sp, w, h, k, true, t, pt));)
BOTH(cudaMemcpy2DToArray, _ptds,
     (cudaArray_t d, size_t x, size_t y, const void *s, size_t sp, size_t w, size_t h,
      enum cudaMemcpyKind k),
     COPY2(ARR(d, x, y), MEM(s, sp), w, h, k, false, NULL))
BOTH(cudaMemcpy2DToArrayAsync, _ptsz,
     (cudaArray_t d, size_t x, size_t y, const void *s, size_t sp, size_t w, size_t h,
      enum cudaMemcpyKind k, cudaStream_t t),
     COPY2(ARR(d, x, y), MEM(s, sp), w, h, k, true, t))
BOTH(cudaMemcpy2DFromArray, _ptds,
     (void *d, size_t dp, cudaArray_const_t s, size_t x, size_t y, size_t w, size_t h,
      enum cudaMemcpyKind k),
     COPY2(MEM(d, dp), ARR(s, x, y), w, h, k, false, NULL))
BOTH(cudaMemcpy2DFromArrayAsync, _ptsz,
     (void *d, size_t dp, cudaArray_const_t s, size_t x, size_t y, size_t w, size_t h,
      enum cudaMemcpyKind k, cudaStream_t t),
     COPY2(MEM(d, dp), ARR(s, x, y), w, h, k, true, t))
BOTH(cudaMemcpy2DArrayToArray, _ptds,
     (cudaArray_t d, size_t dx, size_t dy, cudaArray_const_t s, size_t sx, size_t sy, size_t w,
      size_t h, enum cudaMemcpyKind k),
     COPY2(ARR(d, dx, dy), ARR(s, sx, sy), w, h, k, false, NULL))
BOTH(cudaMemcpyArrayToArray, _ptds,
     (cudaArray_t d, size_t dx, size_t dy, cudaArray_const_t s, size_t sx, size_t sy, size_t n,
      enum cudaMemcpyKind k),
     COPY2(ARR(d, dx, dy), ARR(s, sx, sy), n, 1, k, false, NULL))
BOTH(cudaMemcpyToArray, _ptds,
     (cudaArray_t d, size_t x, size_t y, const void *s, size_t n, enum cudaMemcpyKind k),
     COPY2(ARR(d, x, y), MEM(s, n), n, 1, k, false, NULL))
BOTH(cudaMemcpyFromArray, _ptds,
     (void *d, cudaArray_const_t s, size_t x, size_t y, size_t n, enum cudaMemcpyKind k),
     COPY2(MEM(d, n), ARR(s, x, y), n, 1, k, false, NULL))
BOTH(cudaMemcpyToArrayAsync, _ptsz,
     (cudaArray_t d, size_t x, size_t y, const void *s, size_t n, enum cudaMemcpyKind k,
      cudaStream_t t),
     COPY2(ARR(d, x, y), MEM(s, n), n, 1, k, true, t))
BOTH(cudaMemcpyFromArrayAsync, _ptsz,
     (void *d, cudaArray_const_t s, size_t x, size_t y, size_t n, enum cudaMemcpyKind k,
      cudaStream_t t),
     COPY2(MEM(d, n), ARR(s, x, y), n, 1, k, true, t))

static size_t element(cudaArray_const_t a)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	size_t bytes = 1;

	if (DRV(cuArray3DGetDescriptor_v2, 0, &d, (CUarray)a))
		return 1;
	if (d.Format == CU_AD_FORMAT_UNSIGNED_INT16 || d.Format == CU_AD_FORMAT_SIGNED_INT16 ||
	    d.Format == CU_AD_FORMAT_HALF)
		bytes = 2;
	else if (d.Format == CU_AD_FORMAT_UNSIGNED_INT32 || d.Format == CU_AD_FORMAT_SIGNED_INT32 ||
		 d.Format == CU_AD_FORMAT_FLOAT)
		bytes = 4;
	return bytes * d.NumChannels;
}

/* The extent counts elements where an array takes part, else bytes; positions likewise. */
cudaError_t rt_box(const struct cudaMemcpy3DParms *p, CUDA_MEMCPY3D *out)
{
	size_t se, de, e;

	if (!p)
		return cudaErrorInvalidValue;
	se = p->srcArray ? element(p->srcArray) : 1;
	de = p->dstArray ? element(p->dstArray) : 1;
	e = p->srcArray ? se : de;
	memset(out, 0, sizeof(*out));
	out->srcXInBytes = p->srcPos.x * se;
	out->srcY = p->srcPos.y;
	out->srcZ = p->srcPos.z;
	out->srcMemoryType = p->srcArray ? CU_MEMORYTYPE_ARRAY : side(false, p->kind);
	out->srcArray = (CUarray)p->srcArray;
	out->srcHost = p->srcPtr.ptr;
	out->srcDevice = (CUdeviceptr)p->srcPtr.ptr;
	out->srcPitch = p->srcPtr.pitch;
	out->srcHeight = p->srcPtr.ysize;
	out->dstXInBytes = p->dstPos.x * de;
	out->dstY = p->dstPos.y;
	out->dstZ = p->dstPos.z;
	out->dstMemoryType = p->dstArray ? CU_MEMORYTYPE_ARRAY : side(true, p->kind);
	out->dstArray = (CUarray)p->dstArray;
	out->dstHost = p->dstPtr.ptr;
	out->dstDevice = (CUdeviceptr)p->dstPtr.ptr;
	out->dstPitch = p->dstPtr.pitch;
	out->dstHeight = p->dstPtr.ysize;
	out->WidthInBytes = p->extent.width * e;
	out->Height = p->extent.height;
	out->Depth = p->extent.depth;
	return cudaSuccess;
}

static cudaError_t copy3(const struct cudaMemcpy3DParms *p, bool async, cudaStream_t t, int pt)
{
	CUDA_MEMCPY3D q;
	cudaError_t e = rt_box(p, &q);

	if (e)
		return e;
	return async ? DRV(cuMemcpy3DAsync_v2, pt, &q, t) : DRV(cuMemcpy3D_v2, pt, &q);
}

static cudaError_t copy3_peer(const struct cudaMemcpy3DPeerParms *p, bool async, cudaStream_t t,
			      int pt)
{
	struct cudaMemcpy3DParms q;

	if (!p)
		return cudaErrorInvalidValue;
	q = (struct cudaMemcpy3DParms){p->srcArray, p->srcPos, p->srcPtr, p->dstArray,
				       p->dstPos,   p->dstPtr, p->extent, cudaMemcpyDefault};
	return copy3(&q, async, t, pt);
}

BOTH(cudaMemcpy3D, _ptds, (const struct cudaMemcpy3DParms *p), CALL(copy3(p, false, NULL, pt));)
BOTH(cudaMemcpy3DAsync, _ptsz, (const struct cudaMemcpy3DParms *p, cudaStream_t t),
     CALL(copy3(p, true, t, pt));)
BOTH(cudaMemcpy3DPeer, _ptds, (const struct cudaMemcpy3DPeerParms *p),
     CALL(copy3_peer(p, false, NULL, pt));)
BOTH(cudaMemcpy3DPeerAsync, _ptsz, (const struct cudaMemcpy3DPeerParms *p, cudaStream_t t),
     CALL(copy3_peer(p, true, t, pt));)

static cudaError_t batch(void *const *d, const void *const *s, const size_t *n, size_t count,
			 const struct cudaMemcpyAttributes *hints, const size_t *index,
			 size_t hint_count, cudaStream_t t, int pt)
{
	cudaError_t e = d && s && n && count ? cudaSuccess : cudaErrorInvalidValue;

	(void)hints;
	(void)index;
	(void)hint_count;
	for (size_t i = 0; i < count && !e; i++)
		e = copy_async(d[i], s[i], n[i], cudaMemcpyDefault, t, pt);
	return e;
}
BOTH(cudaMemcpyBatchAsync, _ptsz,
     (void *const *d, const void *const *s, const size_t *n, size_t count,
      struct cudaMemcpyAttributes *a, size_t *index, size_t attrs, cudaStream_t t),
     CALL(batch(d, s, n, count, a, index, attrs, t, pt));)

static cudaError_t symbol_copy(const void *symbol, void *host, size_t n, size_t off,
			       enum cudaMemcpyKind kind, bool to, bool async, cudaStream_t t,
			       int pt)
{
	CUdeviceptr p;
	size_t size;
	cudaError_t e = rt_symbol(symbol, &p, &size);

	if (e)
		return e;
	if (off > size || n > size - off)
		return cudaErrorInvalidValue;
	if (to)
		return async ? copy_async((void *)(p + off), host, n, kind, t, pt)
			     : copy((void *)(p + off), host, n, kind, pt);
	return async ? copy_async(host, (void *)(p + off), n, kind, t, pt)
		     : copy(host, (void *)(p + off), n, kind, pt);
}

BOTH(cudaMemcpyToSymbol, _ptds,
     (const void *y, const void *s, size_t n, size_t o, enum cudaMemcpyKind k),
     CALL(symbol_copy(y, (void *)s, n, o, k, true, false, NULL, pt));)
BOTH(cudaMemcpyToSymbolAsync, _ptsz,
     (const void *y, const void *s, size_t n, size_t o, enum cudaMemcpyKind k, cudaStream_t t),
     CALL(symbol_copy(y, (void *)s, n, o, k, true, true, t, pt));)
BOTH(cudaMemcpyFromSymbol, _ptds,
     (void *d, const void *y, size_t n, size_t o, enum cudaMemcpyKind k),
     CALL(symbol_copy(y, d, n, o, k, false, false, NULL, pt));)
BOTH(cudaMemcpyFromSymbolAsync, _ptsz,
     (void *d, const void *y, size_t n, size_t o, enum cudaMemcpyKind k, cudaStream_t t),
     CALL(symbol_copy(y, d, n, o, k, false, true, t, pt));)

/* -- memsets ---------------------------------------------------------------------------------- */

BOTH(cudaMemset, _ptds, (void *d, int v, size_t n),
     CALL(DRV(cuMemsetD8_v2, pt, (CUdeviceptr)d, (unsigned char)v, n));)
BOTH(cudaMemsetAsync, _ptsz, (void *d, int v, size_t n, cudaStream_t t),
     CALL(DRV(cuMemsetD8Async, pt, (CUdeviceptr)d, (unsigned char)v, n, t));)
BOTH(cudaMemset2D, _ptds, (void *d, size_t pitch, int v, size_t w, size_t h),
     CALL(DRV(cuMemsetD2D8_v2, pt, (CUdeviceptr)d, pitch, (unsigned char)v, w, h));)
BOTH(cudaMemset2DAsync, _ptsz, (void *d, size_t pitch, int v, size_t w, size_t h, cudaStream_t t),
     CALL(DRV(cuMemsetD2D8Async, pt, (CUdeviceptr)d, pitch, (unsigned char)v, w, h, t));)

static cudaError_t set3(struct cudaPitchedPtr p, int v, struct cudaExtent x, bool async,
			cudaStream_t t, int pt)
{
	cudaError_t e = cudaSuccess;

	for (size_t z = 0; z < x.depth && !e; z++) {
		CUdeviceptr d = (CUdeviceptr)p.ptr + z * p.pitch * p.ysize;

		e = async ? DRV(cuMemsetD2D8Async, pt, d, p.pitch, (unsigned char)v, x.width,
				x.height, t)
			  : DRV(cuMemsetD2D8_v2, pt, d, p.pitch, (unsigned char)v, x.width,
				x.height);
	}
	return e;
}
BOTH(cudaMemset3D, _ptds, (struct cudaPitchedPtr p, int v, struct cudaExtent x),
     CALL(set3(p, v, x, false, NULL, pt));)
BOTH(cudaMemset3DAsync, _ptsz,
     (struct cudaPitchedPtr p, int v, struct cudaExtent x, cudaStream_t t),
     CALL(set3(p, v, x, true, t, pt));)

/* -- managed memory, pointers ----------------------------------------------------------------- */

cudaError_t cudaMemAdvise(const void *p, size_t n, enum cudaMemoryAdvise advice,
			  struct cudaMemLocation l)
{
	CUmemLocation where = {(CUmemLocationType)l.type, l.id};

	CALL(DRV(cuMemAdvise_v2, 0, (CUdeviceptr)p, n, (CUmem_advise)advice, where));
}

static cudaError_t prefetch(const void *p, size_t n, struct cudaMemLocation l, unsigned int flags,
			    cudaStream_t t, int pt)
{
	CUmemLocation where = {(CUmemLocationType)l.type, l.id};

	return DRV(cuMemPrefetchAsync_v2, pt, (CUdeviceptr)p, n, where, flags, t);
}

BOTH(cudaMemPrefetchAsync, _ptsz,
     (const void *p, size_t n, struct cudaMemLocation l, unsigned int flags, cudaStream_t t),
     CALL(prefetch(p, n, l, flags, t, pt));)

cudaError_t cudaMemRangeGetAttribute(void *data, size_t size, enum cudaMemRangeAttribute attr,
				     const void *p, size_t n)
{
	CALL(DRV(cuMemRangeGetAttribute, 0, data, size, (CUmem_range_attribute)attr, (CUdeviceptr)p,
		 n));
}

cudaError_t cudaMemRangeGetAttributes(void **data, size_t *sizes, enum cudaMemRangeAttribute *attrs,
				      size_t count, const void *p, size_t n)
{
	CALL(DRV(cuMemRangeGetAttributes, 0, data, sizes, (CUmem_range_attribute *)attrs, count,
		 (CUdeviceptr)p, n));
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p)
{
	CUpointer_attribute attrs[] = {
		CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
		CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
		CU_POINTER_ATTRIBUTE_HOST_POINTER};
	unsigned int type = 0, managed = 0;
	int dev = 0;
	void *dp = NULL, *hp = NULL;
	void *out[] = {&type, &managed, &dev, &dp, &hp};
	cudaError_t e = rt_init();

	if (!e && !a)
		e = cudaErrorInvalidValue;
	if (!e)
		e = DRV(cuPointerGetAttributes, 0, 5, attrs, out, (CUdeviceptr)p);
	if (e)
		return rt_return(e);
	memset(a, 0, sizeof(*a));
	a->type = managed			 ? cudaMemoryTypeManaged
		  : type == CU_MEMORYTYPE_HOST	 ? cudaMemoryTypeHost
		  : type == CU_MEMORYTYPE_DEVICE ? cudaMemoryTypeDevice
						 : cudaMemoryTypeUnregistered;
	a->device = dev;
	a->devicePointer = a->type == cudaMemoryTypeUnregistered ? NULL : (void *)p;
	a->hostPointer = a->type == cudaMemoryTypeDevice ? NULL : (void *)p;
	return cudaSuccess;
}

cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t *out, void *p)
{
	CALL(DRV(cuIpcGetMemHandle, 0, (CUipcMemHandle *)out, (CUdeviceptr)p));
}

cudaError_t cudaIpcOpenMemHandle(void **out, cudaIpcMemHandle_t h, unsigned int flags)
{
	CUipcMemHandle d;

	_Static_assert(sizeof(d) == sizeof(h), "one layout");
	memcpy(&d, &h, sizeof(d));
	CALL(DRV(cuIpcOpenMemHandle_v2, 0, (CUdeviceptr *)out, d, flags));
}

cudaError_t cudaIpcCloseMemHandle(void *p)
{
	CALL(DRV(cuIpcCloseMemHandle, 0, (CUdeviceptr)p));
}

/* -- arrays ----------------------------------------------------------------------------------- */

struct cudaChannelFormatDesc cudaCreateChannelDesc(int x, int y, int z, int w,
						   enum cudaChannelFormatKind f)
{
	struct cudaChannelFormatDesc d = {x, y, z, w, f};

	return d;
}

static bool describe(const struct cudaChannelFormatDesc *c, CUDA_ARRAY3D_DESCRIPTOR *d)
{
	if (!c)
		return false;
	d->NumChannels = c->w ? 4 : c->y ? 2 : 1;
	switch (c->f) {
	case cudaChannelFormatKindSigned:
		d->Format = c->x == 8	 ? CU_AD_FORMAT_SIGNED_INT8
			    : c->x == 16 ? CU_AD_FORMAT_SIGNED_INT16
					 : CU_AD_FORMAT_SIGNED_INT32;
		return true;
	case cudaChannelFormatKindUnsigned:
		d->Format = c->x == 8	 ? CU_AD_FORMAT_UNSIGNED_INT8
			    : c->x == 16 ? CU_AD_FORMAT_UNSIGNED_INT16
					 : CU_AD_FORMAT_UNSIGNED_INT32;
		return true;
	case cudaChannelFormatKindFloat:
		d->Format = c->x == 16 ? CU_AD_FORMAT_HALF : CU_AD_FORMAT_FLOAT;
		return true;
	default:
		return false;
	}
}

cudaError_t cudaMalloc3DArray(cudaArray_t *out, const struct cudaChannelFormatDesc *c,
			      struct cudaExtent x, unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {
		.Width = x.width, .Height = x.height, .Depth = x.depth, .Flags = flags};

	if (!describe(c, &d))
		return rt_return(cudaErrorInvalidChannelDescriptor);
	CALL(DRV(cuArray3DCreate_v2, 0, (CUarray *)out, &d));
}

cudaError_t cudaMallocArray(cudaArray_t *out, const struct cudaChannelFormatDesc *c, size_t w,
			    size_t h, unsigned int flags)
{
	struct cudaExtent x = {w, h, 0};

	return cudaMalloc3DArray(out, c, x, flags);
}

cudaError_t cudaFreeArray(cudaArray_t a)
{
	if (!a)
		return cudaSuccess;
	CALL(DRV(cuArrayDestroy, 0, (CUarray)a));
}

cudaError_t cudaMallocMipmappedArray(cudaMipmappedArray_t *out,
				     const struct cudaChannelFormatDesc *c, struct cudaExtent x,
				     unsigned int levels, unsigned int flags)
{
	CUDA_ARRAY3D_DESCRIPTOR d = {
		.Width = x.width, .Height = x.height, .Depth = x.depth, .Flags = flags};

	if (!describe(c, &d))
		return rt_return(cudaErrorInvalidChannelDescriptor);
	CALL(DRV(cuMipmappedArrayCreate, 0, (CUmipmappedArray *)out, &d, levels));
}

cudaError_t cudaFreeMipmappedArray(cudaMipmappedArray_t a)
{
	if (!a)
		return cudaSuccess;
	CALL(DRV(cuMipmappedArrayDestroy, 0, (CUmipmappedArray)a));
}

cudaError_t cudaGetMipmappedArrayLevel(cudaArray_t *out, cudaMipmappedArray_const_t a,
				       unsigned int level)
{
	CALL(DRV(cuMipmappedArrayGetLevel, 0, (CUarray *)out, (CUmipmappedArray)a, level));
}

static cudaError_t array_info(struct cudaChannelFormatDesc *c, struct cudaExtent *x,
			      unsigned int *flags, cudaArray_const_t a)
{
	CUDA_ARRAY3D_DESCRIPTOR d;
	cudaError_t e = DRV(cuArray3DGetDescriptor_v2, 0, &d, (CUarray)a);
	int bits;

	if (e)
		return e;
	if (x)
		*x = (struct cudaExtent){d.Width, d.Height, d.Depth};
	if (flags)
		*flags = d.Flags;
	if (!c)
		return cudaSuccess;
	bits = (int)(element(a) / d.NumChannels * 8);
	c->x = bits;
	c->y = d.NumChannels > 1 ? bits : 0;
	c->z = c->w = d.NumChannels > 2 ? bits : 0;
	c->f = d.Format == CU_AD_FORMAT_HALF || d.Format == CU_AD_FORMAT_FLOAT
		       ? cudaChannelFormatKindFloat
	       : d.Format >= CU_AD_FORMAT_SIGNED_INT8 ? cudaChannelFormatKindSigned
						      : cudaChannelFormatKindUnsigned;
	return cudaSuccess;
}

cudaError_t cudaArrayGetInfo(struct cudaChannelFormatDesc *c, struct cudaExtent *x,
			     unsigned int *flags, cudaArray_t a)
{
	CALL(array_info(c, x, flags, a));
}

cudaError_t cudaGetChannelDesc(struct cudaChannelFormatDesc *c, cudaArray_const_t a)
{
	CALL(array_info(c, NULL, NULL, a));
}
