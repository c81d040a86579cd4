// SPDX-License-Identifier: Apache-2.0
/*
 * memory.c - device, managed and host memory, what a pointer is, memory between processes, arrays.
 *
 * Device memory is one sparse memfd a device, mapped once; an allocation is a range of it. So
 * another process of the user can map a range (IPC) through /proc/PID/fd, and what is not
 * touched takes nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

/* -- address spaces --------------------------------------------------------------------------- */

void sg_space_give(struct sg_space *s, uint64_t start, uint64_t size)
{
	size_t lo = 0, hi = s->count;
	bool left, right;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (s->free[mid].start < start)
			lo = mid + 1;
		else
			hi = mid;
	}
	left = lo && s->free[lo - 1].start + s->free[lo - 1].size == start;
	right = lo < s->count && start + size == s->free[lo].start;
	if (left) {
		s->free[lo - 1].size += size;
		if (right) {
			s->free[lo - 1].size += s->free[lo].size;
			memmove(&s->free[lo], &s->free[lo + 1],
				(--s->count - lo) * sizeof(*s->free));
		}
		return;
	}
	if (right) {
		s->free[lo].start = start;
		s->free[lo].size += size;
		return;
	}
	if (s->count == s->room) {
		s->room = s->room ? s->room * 2 : 64;
		s->free = realloc(s->free, s->room * sizeof(*s->free));
	}
	memmove(&s->free[lo + 1], &s->free[lo], (s->count - lo) * sizeof(*s->free));
	s->free[lo].start = start;
	s->free[lo].size = size;
	s->count++;
}

/* First fit, so that a freed address comes back soon, as it does on the real one. */
int sg_space_take(struct sg_space *s, uint64_t size, uint64_t align, uint64_t *start)
{
	for (size_t i = 0; i < s->count; i++) {
		uint64_t at = SG_UP(s->free[i].start, align),
			 end = s->free[i].start + s->free[i].size;
		uint64_t head = at - s->free[i].start;

		if (at + size > end || at + size < at)
			continue;
		*start = at;
		if (!head && at + size == end) {
			memmove(&s->free[i], &s->free[i + 1], (--s->count - i) * sizeof(*s->free));
		} else if (!head) {
			s->free[i].start += size;
			s->free[i].size -= size;
		} else {
			s->free[i].size = head;
			if (at + size < end)
				sg_space_give(s, at + size, end - at - size);
		}
		return 0;
	}
	return -1;
}

/* Unlocked: charges and takes. */
CUresult sg_device_take(struct sg_device *dev, uint64_t size, uint64_t align, uint64_t *addr)
{
	int rc;

	if (size > sg.memory || sg_charge(dev->index, size))
		return CUDA_ERROR_OUT_OF_MEMORY;
	sg_lock();
	rc = sg_space_take(&dev->space, size, align, addr);
	sg_unlock();
	if (rc) {
		sg_uncharge(dev->index, size);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

/* Locked. The pages go back to the host. */
void sg_device_give(struct sg_device *dev, uint64_t addr, uint64_t size)
{
	fallocate(dev->memfd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
		  (off_t)(addr - (uint64_t)dev->arena), (off_t)size);
	sg_space_give(&dev->space, addr, size);
	sg_uncharge(dev->index, size);
}

/* -- what lies at an address ------------------------------------------------------------------ */

static struct sg_alloc **ranges;
static size_t range_count, range_room;

static size_t range_index(uint64_t addr) /* first whose start is above addr */
{
	size_t lo = 0, hi = range_count;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (ranges[mid]->addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct sg_alloc *sg_find(uint64_t addr)
{
	size_t i = range_index(addr);

	if (!i || addr - ranges[i - 1]->addr >= ranges[i - 1]->size)
		return NULL;
	return ranges[i - 1];
}

void sg_ranges_add(struct sg_alloc *a)
{
	size_t i = range_index(a->addr);

	if (range_count == range_room) {
		range_room = range_room ? range_room * 2 : 256;
		ranges = realloc(ranges, range_room * sizeof(*ranges));
	}
	memmove(&ranges[i + 1], &ranges[i], (range_count - i) * sizeof(*ranges));
	ranges[i] = a;
	range_count++;
	a->buffer_id = ++sg.next_id;
}

void sg_ranges_del(struct sg_alloc *a)
{
	size_t i = range_index(a->addr);

	if (!i || ranges[i - 1] != a)
		return;
	memmove(&ranges[i - 1], &ranges[i], (range_count - i) * sizeof(*ranges));
	range_count--;
}

bool sg_backed(uint64_t addr, uint64_t size)
{
	while (size) {
		struct sg_alloc *a = sg_find(addr);
		uint64_t n;

		if (!a || (a->kind == SG_MEM_MAPPED && !a->access))
			return false;
		n = SG_MIN(size, a->addr + a->size - addr);
		addr += n;
		size -= n;
	}
	return true;
}

bool sg_is_pinned(const void *p)
{
	bool known;

	sg_lock();
	known = sg_find((uint64_t)p) != NULL;
	sg_unlock();
	return known;
}

static struct sg_alloc *alloc_new(struct sg_ctx *ctx, enum sg_kind kind, uint64_t addr,
				  uint64_t size, uint64_t charged)
{
	struct sg_alloc *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	a->addr = addr;
	a->size = size;
	a->charged = charged;
	a->kind = kind;
	a->ctx = ctx;
	a->device = ctx->dev->index;
	sg_lock();
	sg_ranges_add(a);
	sg_unlock();
	return a;
}

/* -- device memory ---------------------------------------------------------------------------- */

static CUresult enter_alloc(struct sg_ctx **ctx)
{
	CUresult e = sg_enter_ctx(ctx);

	if (!e)
		e = sg_capture_unsafe(*ctx);
	if (!e && sg.alloc_sync)
		sg_ctx_drain(*ctx, sg_sched(*ctx));
	return e;
}

static CUresult device_alloc(struct sg_ctx *ctx, enum sg_kind kind, size_t size, uint64_t *out)
{
	uint64_t charged = SG_UP((uint64_t)size, SG_ALIGN), at;
	CUresult e;

	if (!size)
		return CUDA_ERROR_INVALID_VALUE;
	if (size > sg.memory)
		e = CUDA_ERROR_OUT_OF_MEMORY;
	else
		e = sg_device_take(ctx->dev, charged, SG_ALIGN, &at);
	SG_LOG("alloc device=%d bytes=%zu error=%d addr=%#llx", ctx->dev->index, size, (int)e,
	       e ? 0ull : (unsigned long long)at);
	if (e)
		return e;
	if (!alloc_new(ctx, kind, at, size, charged))
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = at;
	return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *out, size_t size)
{
	struct sg_ctx *ctx;
	uint64_t at;
	CUresult e = enter_alloc(&ctx);

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	e = device_alloc(ctx, SG_MEM_DEVICE, size, &at);
	if (!e)
		*out = at;
	return e;
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *out, size_t *pitch, size_t width, size_t height,
			    unsigned int elem)
{
	struct sg_ctx *ctx;
	uint64_t at;
	CUresult e = enter_alloc(&ctx);

	if (e)
		return e;
	if (!out || !pitch || !width || !height || (elem != 4 && elem != 8 && elem != 16))
		return CUDA_ERROR_INVALID_VALUE;
	if (width > SIZE_MAX / 2 / height)
		return CUDA_ERROR_OUT_OF_MEMORY;
	e = device_alloc(ctx, SG_MEM_DEVICE, SG_UP(width, 512) * height, &at);
	if (e)
		return e;
	*out = at;
	*pitch = SG_UP(width, 512);
	return CUDA_SUCCESS;
}

static uint64_t host_map(size_t size)
{
	void *p = mmap(NULL, SG_UP(size, SG_PAGE), PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? 0 : (uint64_t)p;
}

/* Managed memory lives in host pages here and counts nothing on the device: it may exceed it. */
CUresult cuMemAllocManaged(CUdeviceptr *out, size_t size, unsigned int flags)
{
	struct sg_ctx *ctx;
	struct sg_alloc *a;
	uint64_t at;
	CUresult e = enter_alloc(&ctx);

	if (e)
		return e;
	if (!out || !size || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	at = host_map(size);
	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	a = alloc_new(ctx, SG_MEM_MANAGED, at, size, 0);
	a->flags = flags;
	a->map_base = at;
	a->map_size = SG_UP(size, SG_PAGE);
	*out = at;
	return CUDA_SUCCESS;
}

/* Locked; a leaves the ranges and gives back what it held. */
static void release(struct sg_alloc *a)
{
	sg_ranges_del(a);
	SG_LOG("free addr=%#llx bytes=%llu", (unsigned long long)a->addr,
	       (unsigned long long)a->size);
	switch (a->kind) {
	case SG_MEM_DEVICE:
	case SG_MEM_ARRAY:
	case SG_MEM_GLOBAL:
		sg_device_give(&sg.dev[a->device], a->addr, a->charged);
		break;
	case SG_MEM_MANAGED:
	case SG_MEM_HOST:
	case SG_MEM_IPC:
		munmap((void *)a->map_base, a->map_size);
		break;
	default:
		break;
	}
	free(a);
}

CUresult cuMemFree_v2(CUdeviceptr p)
{
	struct sg_ctx *ctx;
	struct sg_alloc *a;
	CUresult e = sg_enter_ctx(&ctx);
	int of;

	if (!e)
		e = sg_capture_unsafe(ctx);
	if (e)
		return e;
	if (!p)
		return CUDA_SUCCESS;
	sg_lock();
	a = sg_find(p);
	if (!a || a->addr != p || a->freeing ||
	    (a->kind != SG_MEM_DEVICE && a->kind != SG_MEM_MANAGED && a->kind != SG_MEM_POOL)) {
		sg_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->freeing = true;
	of = a->device;
	sg_unlock();
	/* Freeing waits for what the device is doing: the memory may be in use. */
	sg_device_drain(&sg.dev[of], sg_sched(ctx));
	sg_lock();
	if (a->kind == SG_MEM_POOL)
		sg_pool_return(a);
	else
		release(a);
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
	struct sg_ctx *ctx;
	CUresult e = sg_enter_ctx(&ctx);
	uint64_t used;

	if (e)
		return e;
	used = sg_used(ctx->dev->index);
	if (free_bytes)
		*free_bytes = sg.memory - SG_MIN(used, sg.memory);
	if (total)
		*total = sg.memory;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr p)
{
	struct sg_alloc *a;
	CUresult e = sg_enter_ctx(NULL);

	if (e)
		return e;
	sg_lock();
	a = sg_find(p);
	if (a) {
		if (base)
			*base = a->addr;
		if (size)
			*size = a->size;
	}
	sg_unlock();
	return a ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

void sg_ctx_free_memory(struct sg_ctx *ctx)
{
	sg_lock();
	for (size_t i = range_count; i-- > 0;) {
		struct sg_alloc *a = ranges[i];

		if (a->ctx != ctx)
			continue;
		if (a->kind == SG_MEM_REGISTERED) {
			sg_ranges_del(a);
			free(a);
		} else if (a->kind != SG_MEM_POOL && a->kind != SG_MEM_MAPPED) {
			release(a);
		}
		if (i > range_count)
			i = range_count;
	}
	sg_unlock();
}

/* -- host memory ------------------------------------------------------------------------------ */

static void pin_time(size_t size)
{
	struct timespec t;
	uint64_t ns;

	if (!sg.pin_rate)
		return;
	ns = (uint64_t)((double)size / (double)sg.pin_rate * 1e9);
	t.tv_sec = (time_t)(ns / 1000000000u);
	t.tv_nsec = (long)(ns % 1000000000u);
	nanosleep(&t, NULL);
}

CUresult cuMemHostAlloc(void **out, size_t size, unsigned int flags)
{
	struct sg_ctx *ctx;
	struct sg_alloc *a;
	uint64_t at;
	CUresult e = enter_alloc(&ctx);

	if (e)
		return e;
	if (!out || !size || (flags & ~7u))
		return CUDA_ERROR_INVALID_VALUE;
	at = host_map(size);
	if (!at)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pin_time(size);
	a = alloc_new(ctx, SG_MEM_HOST, at, size, 0);
	a->flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;
	a->map_base = at;
	a->map_size = SG_UP(size, SG_PAGE);
	*out = (void *)at;
	SG_LOG("host-alloc bytes=%zu addr=%#llx", size, (unsigned long long)at);
	return CUDA_SUCCESS;
}

CUresult cuMemAllocHost_v2(void **out, size_t size)
{
	return cuMemHostAlloc(out, size, 0);
}

CUresult cuMemFreeHost(void *p)
{
	struct sg_ctx *ctx;
	struct sg_alloc *a;
	CUresult e = sg_enter_ctx(&ctx);

	if (!e)
		e = sg_capture_unsafe(ctx);
	if (e)
		return e;
	if (!p)
		return CUDA_SUCCESS;
	sg_lock();
	a = sg_find((uint64_t)p);
	if (!a || a->addr != (uint64_t)p || a->kind != SG_MEM_HOST || a->freeing) {
		sg_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	a->freeing = true;
	sg_unlock();
	sg_all_drain(sg_sched(ctx)); /* every device may reach it */
	sg_lock();
	release(a);
	sg_unlock();
	return CUDA_SUCCESS;
}

/*
 * Which mappings can be pinned: private ones, and shared ones of memory file systems. Shared file
 * mappings of a disk were refused on the real one (error 1).
 */
static bool pinnable(uint64_t start, uint64_t size)
{
	uint64_t end = start + size, at = start;
	struct stat shm;
	bool have_shm = !stat("/dev/shm", &shm), ok = true;
	char *line = NULL;
	size_t room = 0;
	FILE *f = fopen("/proc/self/maps", "re");

	if (!f)
		return true;
	while (ok && at < end && getline(&line, &room, f) > 0) {
		unsigned long long lo, hi, off, ino;
		unsigned int major_no, minor_no;
		char perm[8];
		int path = 0;
		struct statfs fs;

		if (sscanf(line, "%llx-%llx %7s %llx %x:%x %llu %n", &lo, &hi, perm, &off,
			   &major_no, &minor_no, &ino, &path) < 7)
			continue;
		if (hi <= at)
			continue;
		if (lo > at || perm[0] != 'r') {
			ok = false;
			break;
		}
		at = hi;
		line[strcspn(line, "\n")] = 0;
		if (perm[3] != 's' || !ino)
			continue;
		if (!strncmp(line + path, "/memfd:", 7) || !strncmp(line + path, "/dev/zero", 9) ||
		    !strncmp(line + path, "/SYSV", 5))
			continue;
		if (have_shm && makedev(major_no, minor_no) == shm.st_dev)
			continue;
		if (statfs(line + path, &fs) ||
		    (fs.f_type != 0x01021994 /* tmpfs */ &&
		     (uint32_t)fs.f_type != 0x958458f6u /* hugetlbfs */ &&
		     (uint32_t)fs.f_type != 0x858458f6u /* ramfs */))
			ok = false;
	}
	free(line);
	fclose(f);
	return ok && at >= end;
}

CUresult cuMemHostRegister_v2(void *p, size_t size, unsigned int flags)
{
	uint64_t start = (uint64_t)p;
	struct sg_ctx *ctx;
	struct sg_alloc *a;
	bool overlap = false;
	CUresult e = enter_alloc(&ctx);

	if (e)
		return e;
	if (!p || !size || (flags & ~15u) || start + size < start)
		return CUDA_ERROR_INVALID_VALUE;
	/* The driver's page tables end there. */
	if (size >= 512ull << 30)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (!pinnable(start & ~(uint64_t)(SG_PAGE - 1),
		      SG_UP(start + size, SG_PAGE) - (start & ~(uint64_t)(SG_PAGE - 1))))
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	if (sg_find(start) || sg_find(start + size - 1))
		overlap = true;
	sg_unlock();
	if (overlap)
		return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	pin_time(size);
	a = alloc_new(ctx, SG_MEM_REGISTERED, start, size, 0);
	a->flags = flags;
	SG_LOG("host-register addr=%p bytes=%zu", p, size);
	return CUDA_SUCCESS;
}

CUresult cuMemHostRegister(void *p, size_t size, unsigned int flags)
{
	return cuMemHostRegister_v2(p, size, flags);
}

CUresult cuMemHostUnregister(void *p)
{
	struct sg_ctx *ctx;
	struct sg_alloc *a;
	CUresult e = sg_enter_ctx(&ctx);

	if (!e)
		e = sg_capture_unsafe(ctx);
	if (e)
		return e;
	sg_lock();
	a = sg_find((uint64_t)p);
	if (!a || a->addr != (uint64_t)p || a->kind != SG_MEM_REGISTERED || a->freeing) {
		sg_unlock();
		return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
	}
	a->freeing = true;
	sg_unlock();
	sg_all_drain(sg_sched(ctx));
	sg_lock();
	sg_ranges_del(a);
	sg_unlock();
	free(a);
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned int flags)
{
	struct sg_alloc *a;
	CUresult e = sg_enter_ctx(NULL);

	if (e)
		return e;
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	a = sg_find((uint64_t)p);
	sg_unlock();
	if (!a || (a->kind != SG_MEM_HOST && a->kind != SG_MEM_REGISTERED))
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUdeviceptr)p; /* one address space */
	return CUDA_SUCCESS;
}

CUresult cuMemHostGetFlags(unsigned int *flags, void *p)
{
	struct sg_alloc *a;
	CUresult e = sg_enter_ctx(NULL);

	if (e)
		return e;
	sg_lock();
	a = sg_find((uint64_t)p);
	sg_unlock();
	if (!flags || !a || a->kind != SG_MEM_HOST)
		return CUDA_ERROR_INVALID_VALUE;
	*flags = a->flags;
	return CUDA_SUCCESS;
}

/* -- pointers --------------------------------------------------------------------------------- */

static CUresult pointer_attribute(void *data, CUpointer_attribute attr, const struct sg_alloc *a,
				  uint64_t p)
{
	bool host = a && (a->kind == SG_MEM_HOST || a->kind == SG_MEM_REGISTERED);

	switch (attr) {
	case CU_POINTER_ATTRIBUTE_CONTEXT:
		if (!a)
			return CUDA_ERROR_INVALID_VALUE;
		*(CUcontext *)data = a->kind == SG_MEM_POOL || a->kind == SG_MEM_MAPPED
					     ? NULL
					     : (CUcontext)a->ctx;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
		if (!a)
			return CUDA_ERROR_INVALID_VALUE;
		*(unsigned int *)data = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
		if (!a)
			return CUDA_ERROR_INVALID_VALUE;
		*(CUdeviceptr *)data = p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_HOST_POINTER:
		if (!host && !(a && a->kind == SG_MEM_MANAGED))
			return CUDA_ERROR_INVALID_VALUE;
		*(void **)data = (void *)p;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
		*(unsigned int *)data = a && a->sync_memops;
		return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_BUFFER_ID:
		if (!a)
			return CUDA_ERROR_INVALID_VALUE;
		*(unsigned long long *)data = a->buffer_id;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
		*(unsigned int *)data = a && a->kind == SG_MEM_MANAGED;
		return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
		if (!a)
			return CUDA_ERROR_INVALID_VALUE;
		*(int *)data = a->device;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
		*(unsigned int *)data = a && a->kind == SG_MEM_DEVICE;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
		*(CUdeviceptr *)data = a ? a->addr : 0;
		return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
		*(size_t *)data = a ? a->size : 0;
		return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_MAPPED:
		*(unsigned int *)data = a != NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
		*(unsigned long long *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
		*(unsigned int *)data = 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		*(int *)data = a ? CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE : 0;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
		*(CUmemoryPool *)data = a && a->kind == SG_MEM_POOL ? (CUmemoryPool)a->pool : NULL;
		return CUDA_SUCCESS;
	case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
		*(size_t *)data = a ? a->size : 0;
		return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
		*(CUdeviceptr *)data = a ? a->addr : 0;
		return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
		*(unsigned long long *)data = a ? a->buffer_id : 0;
		return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	default:
		return CUDA_ERROR_INVALID_VALUE;
	}
}

CUresult cuPointerGetAttribute(void *data, CUpointer_attribute attr, CUdeviceptr p)
{
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!data)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	e = pointer_attribute(data, attr, sg_find(p), p);
	sg_unlock();
	return e;
}

static size_t attribute_size(CUpointer_attribute attr)
{
	switch (attr) {
	case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
	case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
	case CU_POINTER_ATTRIBUTE_IS_MANAGED:
	case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
	case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
	case CU_POINTER_ATTRIBUTE_MAPPED:
	case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
	case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
		return 4;
	default:
		return 8;
	}
}

CUresult cuPointerGetAttributes(unsigned int n, CUpointer_attribute *attrs, void **data,
				CUdeviceptr p)
{
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!attrs || !data)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	for (unsigned int i = 0; i < n; i++) {
		/* An unknown pointer is no error here: what is not so is 0; the ordinal is -2. */
		if (pointer_attribute(data[i], attrs[i], sg_find(p), p))
			memset(data[i], 0, attribute_size(attrs[i]));
		if (!sg_find(p) && attrs[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
			*(int *)data[i] = -2;
	}
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuPointerSetAttribute(const void *value, CUpointer_attribute attr, CUdeviceptr p)
{
	struct sg_alloc *a;
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!value || attr != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	a = sg_find(p);
	if (a)
		a->sync_memops = *(const unsigned int *)value != 0;
	sg_unlock();
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise(CUdeviceptr p, size_t size, CUmem_advise advice, CUdevice dev)
{
	bool ok;

	(void)advice;
	(void)dev;
	if (sg_enter_ctx(NULL))
		return sg_enter_ctx(NULL);
	sg_lock();
	ok = sg_backed(p, size);
	sg_unlock();
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemAdvise_v2(CUdeviceptr p, size_t size, CUmem_advise advice, CUmemLocation where)
{
	return cuMemAdvise(p, size, advice, where.id);
}

static CUresult prefetch(CUdeviceptr p, size_t size, CUstream h, bool pt)
{
	struct sg_op op = {.kind = SG_OP_NOP};
	struct sg_stream *s;
	CUresult e = sg_stream_resolve(h, pt, &s);
	bool ok;

	if (e)
		return e;
	sg_lock();
	ok = sg_backed(p, size);
	sg_unlock();
	return ok ? sg_submit(s, &op, NULL) : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemPrefetchAsync(CUdeviceptr p, size_t size, CUdevice dev, CUstream s)
{
	(void)dev;
	return prefetch(p, size, s, false);
}

CUresult cuMemPrefetchAsync_ptsz(CUdeviceptr p, size_t size, CUdevice dev, CUstream s)
{
	(void)dev;
	return prefetch(p, size, s, true);
}

CUresult cuMemPrefetchAsync_v2(CUdeviceptr p, size_t size, CUmemLocation l, unsigned int f,
			       CUstream s)
{
	(void)l;
	(void)f;
	return prefetch(p, size, s, false);
}

CUresult cuMemPrefetchAsync_v2_ptsz(CUdeviceptr p, size_t size, CUmemLocation l, unsigned int f,
				    CUstream s)
{
	(void)l;
	(void)f;
	return prefetch(p, size, s, true);
}

CUresult cuMemRangeGetAttribute(void *data, size_t bytes, CUmem_range_attribute attr, CUdeviceptr p,
				size_t size)
{
	struct sg_alloc *a;

	(void)size;
	if (sg_enter())
		return sg_enter();
	if (!data || !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	a = sg_find(p);
	sg_unlock();
	if (!a || a->kind != SG_MEM_MANAGED)
		return CUDA_ERROR_INVALID_VALUE;
	memset(data, 0, bytes);
	if (attr != CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY && bytes >= 4)
		*(int *)data = CU_DEVICE_INVALID;
	return CUDA_SUCCESS;
}

CUresult cuMemRangeGetAttributes(void **data, size_t *bytes, CUmem_range_attribute *attrs, size_t n,
				 CUdeviceptr p, size_t size)
{
	CUresult e = CUDA_SUCCESS;

	for (size_t i = 0; i < n && !e; i++)
		e = cuMemRangeGetAttribute(data[i], bytes[i], attrs[i], p, size);
	return e;
}

/* -- memory between processes ----------------------------------------------------------------- */

struct mem_handle {
	char magic[8];
	int32_t pid, fd;
	uint64_t offset, size;
	uint64_t buffer_id;
	int32_t device;
};
_Static_assert(sizeof(struct mem_handle) <= sizeof(CUipcMemHandle), "fits");

/* A descriptor of another process of this user; -1 when it is gone or not ours to see. */
int sg_open_peer_fd(pid_t pid, int fd)
{
	char path[64], link[64];
	ssize_t n;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	n = readlink(path, link, sizeof(link) - 1);
	if (n <= 0)
		return -1;
	link[n] = 0;
	if (strncmp(link, "/memfd:simgpu-", 14))
		return -1;
	return open(path, O_RDWR | O_CLOEXEC);
}

CUresult cuIpcGetMemHandle(CUipcMemHandle *out, CUdeviceptr p)
{
	struct mem_handle *h = (struct mem_handle *)out;
	struct sg_alloc *a;
	CUresult e = sg_enter_ctx(NULL);

	if (e)
		return e;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	memset(out, 0, sizeof(*out));
	sg_lock();
	a = sg_find(p);
	if (a && a->kind == SG_MEM_DEVICE) {
		memcpy(h->magic, "SIMMEMH", 8);
		h->pid = getpid();
		h->fd = sg.dev[a->device].memfd;
		h->offset = a->addr - (uint64_t)sg.dev[a->device].arena;
		h->size = a->size;
		h->buffer_id = a->buffer_id;
		h->device = a->device;
	} else {
		e = CUDA_ERROR_INVALID_VALUE;
	}
	sg_unlock();
	return e;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	struct mem_handle *h = (struct mem_handle *)&handle;
	struct sg_ctx *ctx;
	struct sg_alloc *a = NULL;
	uint64_t lo, span;
	void *map;
	CUresult e = sg_enter_ctx(&ctx);
	int fd;

	if (e)
		return e;
	if (!out || memcmp(h->magic, "SIMMEMH", 8) || (flags & ~1u))
		return CUDA_ERROR_INVALID_VALUE;
	if (h->pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	sg_lock();
	for (size_t i = 0; i < range_count && !a; i++)
		if (ranges[i]->kind == SG_MEM_IPC && !memcmp(ranges[i]->ipc_key, &handle, 64))
			a = ranges[i];
	if (a) {
		a->refs++;
		*out = a->addr;
	}
	sg_unlock();
	if (a)
		return CUDA_SUCCESS;
	fd = sg_open_peer_fd(h->pid, h->fd);
	if (fd < 0)
		return CUDA_ERROR_MAP_FAILED;
	lo = h->offset & ~(uint64_t)(SG_PAGE - 1);
	span = SG_UP(h->offset + h->size, SG_PAGE) - lo;
	map = mmap(NULL, span, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, (off_t)lo);
	close(fd);
	if (map == MAP_FAILED)
		return CUDA_ERROR_MAP_FAILED;
	a = alloc_new(ctx, SG_MEM_IPC, (uint64_t)map + (h->offset - lo), h->size, 0);
	a->map_base = (uint64_t)map;
	a->map_size = span;
	a->refs = 1;
	memcpy(a->ipc_key, &handle, 64);
	*out = a->addr;
	SG_LOG("ipc-open pid=%d bytes=%llu addr=%#llx", h->pid, (unsigned long long)h->size,
	       (unsigned long long)a->addr);
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle(CUdeviceptr *out, CUipcMemHandle handle, unsigned int flags)
{
	return cuIpcOpenMemHandle_v2(out, handle, flags);
}

CUresult cuIpcCloseMemHandle(CUdeviceptr p)
{
	struct sg_ctx *ctx;
	struct sg_alloc *a;
	bool last = false;
	CUresult e = sg_enter_ctx(&ctx);

	if (e)
		return e;
	sg_lock();
	a = sg_find(p);
	if (!a || a->kind != SG_MEM_IPC || a->addr != p)
		a = NULL;
	else
		last = !--a->refs;
	sg_unlock();
	if (!a)
		return CUDA_ERROR_INVALID_VALUE;
	if (last) {
		sg_device_drain(ctx->dev, sg_sched(ctx));
		sg_lock();
		release(a);
		sg_unlock();
	}
	return CUDA_SUCCESS;
}

/* -- arrays ----------------------------------------------------------------------------------- */

#define ARRAY_MAGIC 0x41525259u

struct sg_array {
	uint32_t magic;
	uint64_t addr;
	size_t elem, pitch;
	CUDA_ARRAY3D_DESCRIPTOR desc;
	bool level; /* of a mipmapped array */
};

struct sg_mipmap {
	uint32_t magic;
	unsigned int levels;
	struct sg_array level[16];
};

static size_t format_bytes(CUarray_format f)
{
	switch (f) {
	case CU_AD_FORMAT_UNSIGNED_INT8:
	case CU_AD_FORMAT_SIGNED_INT8:
		return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16:
	case CU_AD_FORMAT_SIGNED_INT16:
	case CU_AD_FORMAT_HALF:
		return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32:
	case CU_AD_FORMAT_SIGNED_INT32:
	case CU_AD_FORMAT_FLOAT:
		return 4;
	default:
		return 0;
	}
}

static CUresult array_make(struct sg_array *a, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	struct sg_ctx *ctx;
	CUresult e = enter_alloc(&ctx);
	size_t rows;

	if (e)
		return e;
	if (!d || !d->Width || !format_bytes(d->Format) ||
	    (d->NumChannels != 1 && d->NumChannels != 2 && d->NumChannels != 4))
		return CUDA_ERROR_INVALID_VALUE;
	a->magic = ARRAY_MAGIC;
	a->desc = *d;
	a->elem = format_bytes(d->Format) * d->NumChannels;
	a->pitch = SG_UP(d->Width * a->elem, 512);
	rows = SG_MAX(d->Height, (size_t)1) * SG_MAX(d->Depth, (size_t)1);
	return device_alloc(ctx, SG_MEM_ARRAY, a->pitch * rows, &a->addr);
}

CUresult cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	struct sg_array *a = calloc(1, sizeof(*a));
	CUresult e = a && out ? array_make(a, d) : CUDA_ERROR_INVALID_VALUE;

	if (e)
		free(a);
	else
		*out = (CUarray)a;
	return e;
}

CUresult cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *d)
{
	CUDA_ARRAY3D_DESCRIPTOR d3 = {0};

	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	d3.Width = d->Width;
	d3.Height = d->Height;
	d3.Format = d->Format;
	d3.NumChannels = d->NumChannels;
	return cuArray3DCreate_v2(out, &d3);
}

static struct sg_array *array_of(CUarray h)
{
	struct sg_array *a = (struct sg_array *)h;

	return (uintptr_t)a > 4095 && a->magic == ARRAY_MAGIC ? a : NULL;
}

uint64_t sg_array_data(CUarray h, size_t *pitch, size_t *height, size_t *elem)
{
	struct sg_array *a = array_of(h);

	if (!a)
		return 0;
	if (pitch)
		*pitch = a->pitch;
	if (height)
		*height = SG_MAX(a->desc.Height, (size_t)1);
	if (elem)
		*elem = a->elem;
	return a->addr;
}

static CUresult array_drop(struct sg_array *a)
{
	struct sg_ctx *ctx;
	struct sg_alloc *m;
	CUresult e = sg_enter_ctx(&ctx);

	if (e)
		return e;
	sg_device_drain(ctx->dev, sg_sched(ctx));
	sg_lock();
	m = sg_find(a->addr);
	if (m)
		release(m);
	a->magic = 0;
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuArrayDestroy(CUarray h)
{
	struct sg_array *a = array_of(h);
	CUresult e = a && !a->level ? array_drop(a) : CUDA_ERROR_INVALID_HANDLE;

	if (!e)
		free(a);
	return e;
}

CUresult cuArray3DGetDescriptor_v2(CUDA_ARRAY3D_DESCRIPTOR *out, CUarray h)
{
	struct sg_array *a = array_of(h);

	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = a->desc;
	return CUDA_SUCCESS;
}

CUresult cuArrayGetDescriptor_v2(CUDA_ARRAY_DESCRIPTOR *out, CUarray h)
{
	struct sg_array *a = array_of(h);

	if (!a)
		return CUDA_ERROR_INVALID_HANDLE;
	*out = (CUDA_ARRAY_DESCRIPTOR){.Width = a->desc.Width,
				       .Height = a->desc.Height,
				       .Format = a->desc.Format,
				       .NumChannels = a->desc.NumChannels};
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *d,
				unsigned int levels)
{
	CUDA_ARRAY3D_DESCRIPTOR at;
	struct sg_mipmap *m;
	CUresult e = CUDA_SUCCESS;

	if (!out || !d || !levels || levels > 16)
		return CUDA_ERROR_INVALID_VALUE;
	m = calloc(1, sizeof(*m));
	at = *d;
	for (m->levels = 0; m->levels < levels && !e; m->levels += !e) {
		e = array_make(&m->level[m->levels], &at);
		m->level[m->levels].level = true;
		at.Width = SG_MAX(at.Width / 2, (size_t)1);
		at.Height = at.Height ? SG_MAX(at.Height / 2, (size_t)1) : 0;
		at.Depth = at.Depth ? SG_MAX(at.Depth / 2, (size_t)1) : 0;
	}
	if (e) {
		while (m->levels--)
			array_drop(&m->level[m->levels]);
		free(m);
		return e;
	}
	m->magic = ARRAY_MAGIC + 1;
	*out = (CUmipmappedArray)m;
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayGetLevel(CUarray *out, CUmipmappedArray h, unsigned int level)
{
	struct sg_mipmap *m = (struct sg_mipmap *)h;

	if ((uintptr_t)m < 4096 || m->magic != ARRAY_MAGIC + 1)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!out || level >= m->levels)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUarray)&m->level[level];
	return CUDA_SUCCESS;
}

CUresult cuMipmappedArrayDestroy(CUmipmappedArray h)
{
	struct sg_mipmap *m = (struct sg_mipmap *)h;

	if ((uintptr_t)m < 4096 || m->magic != ARRAY_MAGIC + 1)
		return CUDA_ERROR_INVALID_HANDLE;
	for (unsigned int i = 0; i < m->levels; i++)
		array_drop(&m->level[i]);
	m->magic = 0;
	free(m);
	return CUDA_SUCCESS;
}
