// SPDX-License-Identifier: Apache-2.0
/*
 * vmm.c - virtual memory management and multicast objects.
 *
 * A reservation is address space without access; physical memory is a range of the device's memfd,
 * or a memfd of its own when it may be exported; mapping is mmap at a fixed address; access is
 * mprotect. A multicast object is a memfd whose last page is shared state, so that it holds
 * between processes: binding waits until every device was added, as on the real one.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

#define VMM_MAGIC 0x564d4d48u

struct team { /* shared, in the last page of a multicast object */
	_Atomic uint32_t want, added;
};

struct sg_vmm {
	uint32_t magic;
	int device; /* -1: host */
	uint64_t size;
	uint64_t arena_addr; /* in the device's arena, or 0 */
	int fd;		     /* own memfd, or -1 */
	bool charged;	     /* own memfd, counted on the device */
	int refs;
	CUmemAllocationProp prop;
	struct team *team; /* multicast */
};

struct reservation {
	uint64_t addr, size;
	struct reservation *next;
};
static struct reservation *reservations;
static uint64_t reserved;

CUresult cuMemGetAllocationGranularity(size_t *out, const CUmemAllocationProp *prop,
				       CUmemAllocationGranularity_flags option)
{
	CUresult e = sg_enter();

	(void)option;
	if (e)
		return e;
	if (!out || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	if (prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
	    (prop->location.id < 0 || prop->location.id >= sg.devices))
		return CUDA_ERROR_INVALID_DEVICE;
	*out = SG_GRANULARITY;
	return CUDA_SUCCESS;
}

CUresult cuMemAddressReserve(CUdeviceptr *out, size_t size, size_t align, CUdeviceptr hint,
			     unsigned long long flags)
{
	uint64_t limit = sg_parse_size("SIMGPU_ADDRESS_SPACE", 0);
	CUresult e = sg_enter();
	uint64_t at, head;
	struct reservation *r;
	void *p;

	if (e)
		return e;
	if (!out || !size || size % SG_GRANULARITY || flags || (align & (align - 1)))
		return CUDA_ERROR_INVALID_VALUE;
	align = SG_MAX(align, (size_t)SG_GRANULARITY);
	if (limit && reserved + size > limit)
		return CUDA_ERROR_OUT_OF_MEMORY;
	p = mmap((void *)hint, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (p == MAP_FAILED)
		return CUDA_ERROR_OUT_OF_MEMORY;
	at = SG_UP((uint64_t)p, align);
	head = at - (uint64_t)p;
	if (head)
		munmap(p, head);
	munmap((void *)(at + size), align - head);
	r = malloc(sizeof(*r));
	r->addr = at;
	r->size = size;
	sg_lock();
	r->next = reservations;
	reservations = r;
	reserved += size;
	sg_unlock();
	*out = at;
	SG_LOG("reserve addr=%#llx bytes=%zu", (unsigned long long)at, size);
	return CUDA_SUCCESS;
}

CUresult cuMemAddressFree(CUdeviceptr p, size_t size)
{
	struct reservation **at, *r;
	CUresult e = sg_enter();

	if (e)
		return e;
	sg_lock();
	for (at = &reservations; *at && (*at)->addr != p; at = &(*at)->next)
		;
	r = *at;
	if (!r || r->size != size) {
		sg_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	for (uint64_t a = p; a < p + size; a += SG_GRANULARITY) {
		if (sg_find(a)) {
			sg_unlock();
			return CUDA_ERROR_INVALID_VALUE; /* something is mapped */
		}
	}
	*at = r->next;
	reserved -= size;
	sg_unlock();
	munmap((void *)p, size);
	free(r);
	return CUDA_SUCCESS;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *out, size_t size,
		     const CUmemAllocationProp *prop, unsigned long long flags)
{
	struct sg_vmm *v;
	char name[32];
	CUresult e = sg_enter();
	bool host;

	if (e)
		return e;
	if (!out || !size || !prop || flags || prop->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    size % SG_GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	host = prop->location.type == CU_MEM_LOCATION_TYPE_HOST ||
	       prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA ||
	       prop->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT;
	if (!host && prop->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
		return CUDA_ERROR_INVALID_VALUE;
	if (!host && (prop->location.id < 0 || prop->location.id >= sg.devices))
		return CUDA_ERROR_INVALID_DEVICE;
	if (prop->requestedHandleTypes & ~(unsigned int)CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_NOT_SUPPORTED;
	v = calloc(1, sizeof(*v));
	if (!v)
		return CUDA_ERROR_OUT_OF_MEMORY;
	v->magic = VMM_MAGIC;
	v->device = host ? -1 : prop->location.id;
	v->size = size;
	v->fd = -1;
	v->refs = 1;
	v->prop = *prop;
	if (!host && !prop->requestedHandleTypes) {
		e = sg_device_take(&sg.dev[v->device], size, SG_GRANULARITY, &v->arena_addr);
	} else {
		if (!host && sg_charge(v->device, size)) {
			e = CUDA_ERROR_OUT_OF_MEMORY;
		} else {
			v->charged = !host;
			snprintf(name, sizeof(name), "simgpu-vmm-%d", v->device);
			v->fd = memfd_create(name, MFD_CLOEXEC);
			if (v->fd < 0 || ftruncate(v->fd, (off_t)size)) {
				if (v->charged)
					sg_uncharge(v->device, size);
				e = CUDA_ERROR_OPERATING_SYSTEM;
			}
		}
	}
	SG_LOG("create device=%d bytes=%zu error=%d", v->device, size, (int)e);
	if (e) {
		free(v);
		return e;
	}
	*out = (CUmemGenericAllocationHandle)v;
	return CUDA_SUCCESS;
}

static struct sg_vmm *handle(CUmemGenericAllocationHandle h)
{
	struct sg_vmm *v = (struct sg_vmm *)h;

	return (uintptr_t)v > 4095 && v->magic == VMM_MAGIC && v->refs > 0 ? v : NULL;
}

/* Locked. */
static void put(struct sg_vmm *v)
{
	if (--v->refs)
		return;
	v->magic = 0;
	if (v->arena_addr)
		sg_device_give(&sg.dev[v->device], v->arena_addr, v->size);
	if (v->charged)
		sg_uncharge(v->device, v->size);
	if (v->team)
		munmap(v->team, SG_PAGE);
	if (v->fd >= 0)
		close(v->fd);
	free(v);
}

CUresult cuMemRelease(CUmemGenericAllocationHandle h)
{
	struct sg_vmm *v = handle(h);

	if (!v)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	put(v);
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *addr)
{
	struct sg_alloc *a;

	sg_lock();
	a = sg_find((uint64_t)addr);
	if (a && a->kind == SG_MEM_MAPPED)
		a->vmm->refs++;
	else
		a = NULL;
	sg_unlock();
	if (!a || !out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUmemGenericAllocationHandle)a->vmm;
	return CUDA_SUCCESS;
}

CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp *prop,
						CUmemGenericAllocationHandle h)
{
	struct sg_vmm *v = handle(h);

	if (!v || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = v->prop;
	return CUDA_SUCCESS;
}

CUresult cuMemMap(CUdeviceptr p, size_t size, size_t offset, CUmemGenericAllocationHandle h,
		  unsigned long long flags)
{
	struct sg_vmm *v = handle(h);
	struct sg_alloc *a;
	bool inside = false;
	void *m;
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!v || !size || size % SG_GRANULARITY || p % SG_GRANULARITY || offset || flags ||
	    size > v->size)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	for (struct reservation *r = reservations; r; r = r->next)
		inside |= p >= r->addr && p + size <= r->addr + r->size;
	for (uint64_t at = p; inside && at < p + size; at += SG_GRANULARITY)
		if (sg_find(at))
			inside = false;
	if (!inside) {
		sg_unlock();
		return CUDA_ERROR_INVALID_VALUE;
	}
	if (v->arena_addr)
		m = mmap((void *)p, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE,
			 sg.dev[v->device].memfd,
			 (off_t)(v->arena_addr - (uint64_t)sg.dev[v->device].arena));
	else
		m = mmap((void *)p, size, PROT_NONE, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, v->fd,
			 0);
	if (m == MAP_FAILED) {
		sg_unlock();
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	madvise(m, size, MADV_DONTFORK);
	a = calloc(1, sizeof(*a));
	a->addr = p;
	a->size = size;
	a->kind = SG_MEM_MAPPED;
	a->device = v->device;
	a->ctx = NULL;
	a->vmm = v;
	v->refs++;
	sg_ranges_add(a);
	sg_unlock();
	SG_LOG("map addr=%#llx bytes=%zu", (unsigned long long)p, size);
	return CUDA_SUCCESS;
}

CUresult cuMemUnmap(CUdeviceptr p, size_t size)
{
	uint64_t at = p;
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!size || size % SG_GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	while (at < p + size) { /* whole mappings only */
		struct sg_alloc *a = sg_find(at);

		if (!a || a->kind != SG_MEM_MAPPED || a->addr != at || at + a->size > p + size) {
			sg_unlock();
			return CUDA_ERROR_INVALID_VALUE;
		}
		at += a->size;
	}
	for (at = p; at < p + size;) {
		struct sg_alloc *a = sg_find(at);

		at += a->size;
		sg_ranges_del(a);
		put(a->vmm);
		free(a);
	}
	if (mmap((void *)p, size, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
		e = CUDA_ERROR_OPERATING_SYSTEM;
	sg_unlock();
	SG_LOG("unmap addr=%#llx bytes=%zu", (unsigned long long)p, size);
	return e;
}

CUresult cuMemSetAccess(CUdeviceptr p, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	CUresult e = sg_enter();
	int prot = PROT_NONE;

	if (e)
		return e;
	if (!desc || !count || !size || size % SG_GRANULARITY)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	for (uint64_t at = p; at < p + size;) {
		struct sg_alloc *a = sg_find(at);

		if (!a || a->kind != SG_MEM_MAPPED) {
			sg_unlock();
			return CUDA_ERROR_INVALID_VALUE;
		}
		for (size_t i = 0; i < count; i++) {
			unsigned int bit = desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE
						   ? 1u << desc[i].location.id
						   : 1u << 31;

			if (desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE)
				a->access &= ~bit;
			else
				a->access |= bit;
		}
		if (a->access)
			prot = PROT_READ | PROT_WRITE;
		at = a->addr + a->size;
	}
	if (mprotect((void *)p, size, prot))
		e = CUDA_ERROR_OPERATING_SYSTEM;
	sg_unlock();
	return e;
}

CUresult cuMemGetAccess(unsigned long long *flags, const CUmemLocation *l, CUdeviceptr p)
{
	struct sg_alloc *a;
	unsigned int bit;

	if (!flags || !l)
		return CUDA_ERROR_INVALID_VALUE;
	bit = l->type == CU_MEM_LOCATION_TYPE_DEVICE ? 1u << l->id : 1u << 31;
	sg_lock();
	a = sg_find(p);
	if (a && a->kind == SG_MEM_MAPPED)
		*flags = a->access & bit ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : 0;
	else
		a = NULL;
	sg_unlock();
	return a ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuMemExportToShareableHandle(void *out, CUmemGenericAllocationHandle h,
				      CUmemAllocationHandleType type, unsigned long long flags)
{
	struct sg_vmm *v = handle(h);
	int fd;

	if (!v || !out || flags || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || v->fd < 0)
		return CUDA_ERROR_INVALID_VALUE;
	fd = fcntl(v->fd, F_DUPFD_CLOEXEC, 0);
	if (fd < 0)
		return CUDA_ERROR_OPERATING_SYSTEM;
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

static struct team *team_map(int fd, uint64_t size)
{
	void *p = mmap(NULL, SG_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)size);

	return p == MAP_FAILED ? NULL : p;
}

CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle *out, void *os,
					CUmemAllocationHandleType type)
{
	int fd = (int)(intptr_t)os, device;
	char path[64], link[64];
	struct sg_vmm *v;
	struct stat st;
	ssize_t n;
	CUresult e = sg_enter();
	bool multicast;

	if (e)
		return e;
	if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	n = readlink(path, link, sizeof(link) - 1);
	if (n <= 0)
		return CUDA_ERROR_INVALID_VALUE;
	link[n] = 0;
	multicast = !strncmp(link, "/memfd:simgpu-team", 18);
	if ((!multicast && sscanf(link, "/memfd:simgpu-vmm-%d", &device) != 1) || fstat(fd, &st))
		return CUDA_ERROR_INVALID_VALUE;
	v = calloc(1, sizeof(*v));
	if (!v)
		return CUDA_ERROR_OUT_OF_MEMORY;
	v->magic = VMM_MAGIC;
	v->refs = 1;
	v->size = (uint64_t)st.st_size - (multicast ? SG_PAGE : 0);
	v->device = multicast ? 0 : device;
	v->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	v->prop.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
	v->prop.location.type =
		v->device < 0 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE;
	v->prop.location.id = SG_MAX(v->device, 0);
	v->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	if (multicast)
		v->team = team_map(v->fd, v->size);
	*out = (CUmemGenericAllocationHandle)v;
	return CUDA_SUCCESS;
}

/* -- multicast -------------------------------------------------------------------------------- */

CUresult cuMulticastGetGranularity(size_t *out, const CUmulticastObjectProp *prop,
				   CUmulticastGranularity_flags option)
{
	(void)option;
	if (!out || !prop)
		return CUDA_ERROR_INVALID_VALUE;
	*out = SG_GRANULARITY;
	return CUDA_SUCCESS;
}

CUresult cuMulticastCreate(CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *prop)
{
	struct sg_vmm *v;
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!out || !prop || !prop->numDevices || !prop->size || prop->size % SG_GRANULARITY ||
	    prop->flags)
		return CUDA_ERROR_INVALID_VALUE;
	v = calloc(1, sizeof(*v));
	if (!v)
		return CUDA_ERROR_OUT_OF_MEMORY;
	v->magic = VMM_MAGIC;
	v->refs = 1;
	v->size = prop->size;
	v->prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
	v->prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
	v->fd = memfd_create("simgpu-team", MFD_CLOEXEC);
	if (v->fd >= 0 && !ftruncate(v->fd, (off_t)(v->size + SG_PAGE)))
		v->team = team_map(v->fd, v->size);
	if (!v->team) {
		if (v->fd >= 0)
			close(v->fd);
		free(v);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	atomic_store(&v->team->want, prop->numDevices);
	*out = (CUmemGenericAllocationHandle)v;
	return CUDA_SUCCESS;
}

CUresult cuMulticastAddDevice(CUmemGenericAllocationHandle h, CUdevice dev)
{
	struct sg_vmm *v = handle(h);
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!v || !v->team)
		return CUDA_ERROR_INVALID_VALUE;
	if (dev < 0 || dev >= sg.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	if (atomic_load(&v->team->added) >= atomic_load(&v->team->want))
		return CUDA_ERROR_INVALID_VALUE;
	atomic_fetch_add(&v->team->added, 1);
	SG_LOG("multicast-add added=%u want=%u", v->team->added, v->team->want);
	return CUDA_SUCCESS;
}

static CUresult bind(CUmemGenericAllocationHandle h, size_t size)
{
	struct sg_vmm *v = handle(h);
	CUresult e = sg_enter();

	if (e)
		return e;
	if (!v || !v->team || !size || size > v->size)
		return CUDA_ERROR_INVALID_VALUE;
	SG_LOG("multicast-bind added=%u want=%u", v->team->added, v->team->want);
	while (atomic_load(&v->team->added) < atomic_load(&v->team->want))
		poll(NULL, 0, 1);
	return CUDA_SUCCESS;
}

CUresult cuMulticastBindMem(CUmemGenericAllocationHandle mc, size_t mc_offset,
			    CUmemGenericAllocationHandle mem, size_t offset, size_t size,
			    unsigned long long flags)
{
	(void)mc_offset;
	(void)offset;
	return flags || !handle(mem) ? CUDA_ERROR_INVALID_VALUE : bind(mc, size);
}

CUresult cuMulticastBindAddr(CUmemGenericAllocationHandle mc, size_t mc_offset, CUdeviceptr p,
			     size_t size, unsigned long long flags)
{
	(void)mc_offset;
	return flags || !p ? CUDA_ERROR_INVALID_VALUE : bind(mc, size);
}

CUresult cuMulticastUnbind(CUmemGenericAllocationHandle mc, CUdevice dev, size_t offset,
			   size_t size)
{
	(void)dev;
	(void)offset;
	(void)size;
	return handle(mc) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
