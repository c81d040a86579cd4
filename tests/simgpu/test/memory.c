// SPDX-License-Identifier: Apache-2.0
/* memory.c - device memory between allocations and between processes. */
#include <cuda.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/vfs.h>

#include "tests.h"

#define MIB (1ull << 20)
#define CONTEXT (256 * MIB)

static CUcontext ctx;

static void up(void)
{
	OK(cuInit(0));
	OK(cuDevicePrimaryCtxRetain(&ctx, 0));
	OK(cuCtxSetCurrent(ctx));
}

static size_t room(void)
{
	size_t f, t;

	OK(cuMemGetInfo(&f, &t));
	IS(t, 8192 * MIB);
	return f;
}

/* Exactly what is free can be had, and not 512 bytes more. */
static void t_oom(void)
{
	CUdeviceptr a, b, c;

	up();
	IS(room(), 8192 * MIB - CONTEXT);
	OK(cuMemAlloc(&a, 5000 * MIB));
	IS(room(), 8192 * MIB - CONTEXT - 5000 * MIB);
	IS(cuMemAlloc(&b, room() + 1), CUDA_ERROR_OUT_OF_MEMORY);
	IS(cuMemAlloc(&b, 1ull << 62), CUDA_ERROR_OUT_OF_MEMORY);
	IS(cuMemAllocAsync(&b, room() + 1, NULL), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemAlloc(&b, room()));
	IS(room(), 0);
	IS(cuMemAlloc(&c, 1), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemFree(b));
	OK(cuMemAlloc(&c, 1));
	IS(room(), 8192 * MIB - CONTEXT - 5000 * MIB - 512);
	IS(cuMemAlloc(&b, 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemFree(a));
	OK(cuMemFree(c));
	/* The other device has a memory of its own; a context must fit too. */
	OK(cuMemAlloc(&a, 7900 * MIB));
	IS(cuCtxCreate_v2(&(CUcontext){0}, 0, 0), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuCtxCreate_v2(&(CUcontext){0}, 0, 1));
}

/* kill -9 frees what a process held, at once, while its zombie is still there. */
static void t_kill(void)
{
	size_t before;
	pid_t pid;
	int fds[2];
	char c;

	CHECK(!pipe(fds));
	pid = fork();
	if (!pid) {
		CUdeviceptr d;

		up();
		OK(cuMemAlloc(&d, 3000 * MIB));
		CHECK(write(fds[1], "x", 1) == 1);
		pause();
	}
	CHECK(read(fds[0], &c, 1) == 1);
	up();
	before = room();
	IS(before, 8192 * MIB - 2 * CONTEXT - 3000 * MIB);
	kill(pid, SIGKILL);
	for (int i = 0; i < 200 && room() == before; i++)
		sleep_ms(5);
	IS(room(), 8192 * MIB - CONTEXT);
	IS(reap(pid), 128 + SIGKILL);
}

/* Eight processes ask for a fifth each: five get it, none waits, nothing is counted twice. */
static void t_shared(void)
{
	pid_t pids[8];
	int got = 0, go[2], done[2];
	char c;

	setenv("SIMGPU_CONTEXT", "0", 1);
	CHECK(!pipe(go) && !pipe(done));
	for (int i = 0; i < 8; i++) {
		pids[i] = fork();
		if (!pids[i]) {
			CUdeviceptr d;
			CUresult e;

			close(go[1]);
			up();
			CHECK(read(go[0], &c, 1) == 0);
			e = cuMemAlloc(&d, 1600 * MIB);
			c = e == CUDA_SUCCESS ? 'y' : 'n';
			CHECK(write(done[1], &c, 1) == 1);
			pause();
		}
	}
	close(go[0]);
	sleep_ms(200);
	close(go[1]);
	for (int i = 0; i < 8; i++) {
		CHECK(read(done[0], &c, 1) == 1);
		got += c == 'y';
	}
	up();
	IS(got, 5);
	IS(room(), 192 * MIB);
	for (int i = 0; i < 8; i++)
		kill(pids[i], SIGKILL);
	for (int i = 0; i < 8; i++)
		reap(pids[i]);
	IS(room(), 8192 * MIB);
}

static uint64_t attr(CUmemoryPool p, CUmemPool_attribute a)
{
	cuuint64_t v;

	OK(cuMemPoolGetAttribute(p, a, &v));
	return v;
}

static void t_pool(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool p, q;
	CUdeviceptr a, b;
	cuuint64_t v = 64 * MIB;
	CUstream s;
	size_t at_first;

	up();
	at_first = room();
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuDeviceGetDefaultMemPool(&p, 0));
	OK(cuDeviceGetMemPool(&q, 0));
	CHECK(p == q);
	OK(cuMemAllocAsync(&a, 1000, s));
	IS(attr(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1024);
	IS(attr(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
	IS(room(), at_first - 32 * MIB);
	OK(cuMemAllocAsync(&b, 50 * MIB, s));
	IS(attr(p, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 82 * MIB);
	OK(cuMemFreeAsync(b, s));
	OK(cuMemFreeAsync(a, s));
	IS(cuMemFreeAsync(a, s), CUDA_ERROR_INVALID_VALUE);
	IS(attr(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	IS(attr(p, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 50 * MIB + 1024);
	IS(room(), at_first - 82 * MIB); /* nothing goes back before a synchronisation */
	OK(cuStreamSynchronize(s));
	IS(room(), at_first);
	/* With a threshold it stays, until it is trimmed. */
	OK(cuMemPoolSetAttribute(p, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &v));
	OK(cuMemAllocAsync(&a, 40 * MIB, s));
	OK(cuMemFreeAsync(a, s));
	OK(cuStreamSynchronize(s));
	IS(room(), at_first - 40 * MIB);
	OK(cuMemPoolTrimTo(p, 0));
	IS(room(), at_first);
	v = 0;
	OK(cuMemPoolSetAttribute(p, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &v));
	IS(attr(p, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
	OK(cuMemPoolCreate(&q, &props));
	OK(cuDeviceSetMemPool(0, q));
	OK(cuMemAllocAsync(&a, 100, s));
	IS(attr(q, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 512);
	IS(attr(p, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	OK(cuMemFree(a)); /* a synchronous free takes it too */
	IS(attr(q, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
	OK(cuMemPoolDestroy(q));
	IS(cuMemPoolDestroy(p), CUDA_ERROR_INVALID_VALUE);
	OK(cuStreamSynchronize(s));
	IS(room(), at_first);
}

/* Freed in a stream's order: that stream may have it again at once, another only afterwards. */
static void t_pool_order(void)
{
	CUdeviceptr a, b, c, gate;
	CUstream s, other;
	volatile uint32_t *w;
	void *p;

	up();
	OK(cuMemHostAlloc(&p, 4096, 0));
	w = p;
	*w = 0;
	gate = (CUdeviceptr)p;
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
	OK(cuMemAllocAsync(&a, 4096, s));
	OK(cuStreamWaitValue32(s, gate, 1, 0));
	OK(cuMemsetD32Async(a, 7, 1024, s));
	OK(cuMemFreeAsync(a, s));
	OK(cuMemAllocAsync(&b, 4096, other));
	CHECK(b != a);
	OK(cuMemAllocAsync(&c, 4096, s));
	CHECK(c == a);
	*w = 1;
	OK(cuStreamSynchronize(s));
	OK(cuMemFreeAsync(c, s));
	OK(cuStreamSynchronize(s));
	OK(cuMemAllocAsync(&a, 4096, other));
	CHECK(a == c);
}

static CUmemAllocationProp prop(CUmemAllocationHandleType handles)
{
	CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				 .requestedHandleTypes = handles,
				 .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

	return p;
}

static void t_vmm(void)
{
	CUmemAccessDesc rw = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemAllocationProp p = prop(0);
	CUmemGenericAllocationHandle h[3], same;
	CUdeviceptr va, other;
	unsigned long long flags;
	size_t g, at_first;
	uint32_t v = 0;

	up();
	at_first = room();
	OK(cuMemGetAllocationGranularity(&g, &p, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
	IS(g, 2 * MIB);
	OK(cuMemAddressReserve(&va, 1ull << 40, 0, 0, 0)); /* address space is not memory */
	IS(room(), at_first);
	IS(cuMemCreate(&h[0], 1000, &p, 0), CUDA_ERROR_INVALID_VALUE);
	for (int i = 0; i < 3; i++)
		OK(cuMemCreate(&h[i], g, &p, 0));
	IS(room(), at_first - 3 * g);
	IS(cuMemCreate(&same, room() + g, &p, 0), CUDA_ERROR_OUT_OF_MEMORY);
	OK(cuMemMap(va, g, 0, h[0], 0));
	IS(cuMemsetD32(va, 5, 1), CUDA_ERROR_INVALID_VALUE); /* no access yet */
	OK(cuMemMap(va + g, g, 0, h[1], 0));
	IS(cuMemMap(va + g, g, 0, h[2], 0), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemSetAccess(va, 2 * g, &rw, 1));
	OK(cuMemGetAccess(&flags, &rw.location, va));
	IS(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	OK(cuMemsetD32(va, 5, 2 * g / 4)); /* across the two */
	OK(cuMemcpyDtoH(&v, va + 2 * g - 4, 4));
	IS(v, 5);
	/* The same memory at a second address. */
	OK(cuMemAddressReserve(&other, g, 0, 0, 0));
	OK(cuMemMap(other, g, 0, h[1], 0));
	OK(cuMemSetAccess(other, g, &rw, 1));
	OK(cuMemsetD32(other, 9, 1));
	OK(cuMemcpyDtoH(&v, va + g, 4));
	IS(v, 9);
	OK(cuMemRetainAllocationHandle(&same, (void *)(va + g + 100)));
	CHECK(same == h[1]);
	OK(cuMemRelease(same));
	for (int i = 0; i < 3; i++)
		OK(cuMemRelease(h[i]));
	IS(room(), at_first - 2 * g); /* what is mapped stays */
	IS(cuMemAddressFree(va, 1ull << 40), CUDA_ERROR_INVALID_VALUE);
	IS(cuMemUnmap(va, g / 2), CUDA_ERROR_INVALID_VALUE);
	OK(cuMemUnmap(va, 2 * g));
	IS(room(), at_first - g);
	OK(cuMemUnmap(other, g));
	IS(room(), at_first);
	OK(cuMemAddressFree(va, 1ull << 40));
	OK(cuMemAddressFree(other, g));
}

static void send_fd(int sock, int fd)
{
	char buf[CMSG_SPACE(sizeof(int))] = {0}, x = 'x';
	struct iovec io = {&x, 1};
	struct msghdr m = {
		.msg_iov = &io, .msg_iovlen = 1, .msg_control = buf, .msg_controllen = sizeof(buf)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);

	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(int));
	CHECK(sendmsg(sock, &m, 0) == 1);
}

static int recv_fd(int sock)
{
	char buf[CMSG_SPACE(sizeof(int))], x;
	struct iovec io = {&x, 1};
	struct msghdr m = {
		.msg_iov = &io, .msg_iovlen = 1, .msg_control = buf, .msg_controllen = sizeof(buf)};
	int fd;

	CHECK(recvmsg(sock, &m, 0) == 1 && CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(int));
	return fd;
}

static CUdeviceptr map_all(CUmemGenericAllocationHandle h, size_t size)
{
	CUmemAccessDesc rw = {{CU_MEM_LOCATION_TYPE_DEVICE, 0}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUdeviceptr va;

	OK(cuMemAddressReserve(&va, size, 0, 0, 0));
	OK(cuMemMap(va, size, 0, h, 0));
	OK(cuMemSetAccess(va, size, &rw, 1));
	return va;
}

static void t_vmm_fd(void)
{
	CUmemAllocationProp p = prop(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR), none = prop(0);
	CUmemGenericAllocationHandle h, plain;
	uint32_t v = 0;
	int sv[2], fd;
	pid_t pid;

	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, sv));
	pid = fork();
	if (!pid) {
		up();
		fd = recv_fd(sv[1]);
		OK(cuMemImportFromShareableHandle(&h, (void *)(intptr_t)fd,
						  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
		OK(cuMemsetD32(map_all(h, 4 * MIB), 1234, 4 * MIB / 4));
		OK(cuCtxSynchronize());
		exit(0);
	}
	up();
	OK(cuMemCreate(&plain, 2 * MIB, &none, 0));
	IS(cuMemExportToShareableHandle(&fd, plain, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
	   CUDA_ERROR_INVALID_VALUE);
	OK(cuMemCreate(&h, 4 * MIB, &p, 0));
	OK(cuMemExportToShareableHandle(&fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	send_fd(sv[0], fd);
	IS(reap(pid), 0);
	OK(cuMemcpyDtoH(&v, map_all(h, 4 * MIB) + 4 * MIB - 4, 4));
	IS(v, 1234);
}

static void t_ipc(void)
{
	CUipcMemHandle handle;
	CUdeviceptr d, again;
	size_t before;
	uint32_t v = 42;
	int fds[2];
	pid_t pid;

	CHECK(!pipe(fds));
	pid = fork();
	if (!pid) {
		up();
		CHECK(read(fds[0], &handle, sizeof(handle)) == sizeof(handle));
		before = room();
		OK(cuIpcOpenMemHandle(&d, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		IS(room(), before); /* it is the other's memory */
		OK(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
		CHECK(again == d);
		OK(cuMemcpyDtoH(&v, d, 4));
		IS(v, 42);
		OK(cuMemsetD32(d + 4, 43, 1));
		OK(cuCtxSynchronize());
		OK(cuIpcCloseMemHandle(d));
		OK(cuIpcCloseMemHandle(d));
		IS(cuIpcCloseMemHandle(d), CUDA_ERROR_INVALID_VALUE);
		exit(0);
	}
	up();
	OK(cuMemAlloc(&again, 100)); /* so that the next one does not begin a page */
	OK(cuMemAlloc(&d, 5000));
	OK(cuMemcpyHtoD(d, &v, 4));
	OK(cuIpcGetMemHandle(&handle, d));
	IS(cuIpcOpenMemHandle(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
	   CUDA_ERROR_INVALID_CONTEXT);
	CHECK(write(fds[1], &handle, sizeof(handle)) == sizeof(handle));
	IS(reap(pid), 0);
	OK(cuMemcpyDtoH(&v, d + 4, 4));
	IS(v, 43);
}

static void t_ipc_event(void)
{
	CUipcEventHandle handle;
	CUevent e;
	CUstream s;
	void *p;
	int fds[2], back[2];
	char c;
	pid_t pid;

	CHECK(!pipe(fds) && !pipe(back));
	pid = fork();
	if (!pid) {
		up();
		CHECK(read(fds[0], &handle, sizeof(handle)) == sizeof(handle));
		OK(cuIpcOpenEventHandle(&e, handle));
		OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
		IS(cuEventQuery(e), CUDA_ERROR_NOT_READY);
		OK(cuStreamWaitEvent(s, e, 0));
		sleep_ms(10);
		IS(cuStreamQuery(s), CUDA_ERROR_NOT_READY);
		CHECK(write(back[1], "x", 1) == 1);
		OK(cuStreamSynchronize(s));
		OK(cuEventSynchronize(e));
		exit(0);
	}
	up();
	OK(cuMemHostAlloc(&p, 4096, 0));
	*(volatile uint32_t *)p = 0;
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	OK(cuEventCreate(&e, CU_EVENT_INTERPROCESS | CU_EVENT_DISABLE_TIMING));
	OK(cuIpcGetEventHandle(&handle, e));
	OK(cuStreamWaitValue32(s, (CUdeviceptr)p, 1, 0));
	OK(cuEventRecord(e, s));
	CHECK(write(fds[1], &handle, sizeof(handle)) == sizeof(handle));
	CHECK(read(back[0], &c, 1) == 1);
	*(volatile uint32_t *)p = 1;
	IS(reap(pid), 0);
	IS(cuEventCreate(&e, CU_EVENT_INTERPROCESS), CUDA_ERROR_INVALID_VALUE);
}

static volatile int bound;
static CUmemGenericAllocationHandle team, part;

static void *bind_team(void *arg)
{
	OK(cuCtxSetCurrent(arg));
	OK(cuMulticastBindMem(team, 0, part, 0, 2 * MIB, 0));
	bound = 1;
	return NULL;
}

/* Binding waits until every device was added. */
static void t_multicast(void)
{
	CUmulticastObjectProp mp = {.numDevices = 2,
				    .size = 2 * MIB,
				    .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR};
	CUmemAllocationProp p = prop(0);
	pthread_t t;
	size_t g;

	up();
	OK(cuMulticastGetGranularity(&g, &mp, CU_MULTICAST_GRANULARITY_MINIMUM));
	OK(cuMulticastCreate(&team, &mp));
	OK(cuMemCreate(&part, 2 * MIB, &p, 0));
	OK(cuMulticastAddDevice(team, 0));
	OK(pthread_create(&t, NULL, bind_team, ctx));
	sleep_ms(100);
	IS(bound, 0);
	OK(cuMulticastAddDevice(team, 1));
	OK(pthread_join(t, NULL));
	IS(bound, 1);
	IS(cuMulticastAddDevice(team, 1), CUDA_ERROR_INVALID_VALUE);
}

/* /dev/shm and memfds can be pinned and mapped; a shared mapping of a disk file cannot. */
static void t_register(void)
{
	char name[] = "simgpu-test-XXXXXX";
	int fd = memfd_create("x", MFD_CLOEXEC), disk;
	struct statfs fs;
	CUdeviceptr d;
	CUstream s;
	void *p, *q, *h;

	up();
	OK(cuStreamCreate(&s, CU_STREAM_NON_BLOCKING));
	CHECK(fd >= 0 && !ftruncate(fd, 8192));
	p = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	CHECK(p != MAP_FAILED);
	OK(cuMemHostRegister(p, 8192, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE));
	IS(cuMemHostRegister(p, 4096, 0), CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
	OK(cuMemHostGetDevicePointer(&d, p, 0));
	OK(cuStreamWriteValue32(s, d + 4096, 99, 0));
	OK(cuStreamSynchronize(s));
	IS(*(uint32_t *)((char *)p + 4096), 99);
	OK(cuMemHostUnregister(p));
	IS(cuMemHostUnregister(p), CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
	IS(cuMemHostRegister((void *)4096, 4096, 0),
	   CUDA_ERROR_INVALID_VALUE); /* nothing is there */
	h = malloc(100000);
	memset(h, 1, 100000);
	OK(cuMemHostRegister(h, 100000, 0));
	OK(cuMemHostUnregister(h));
	free(h);
	disk = mkstemp(name);
	CHECK(disk >= 0 && !unlink(name) && !ftruncate(disk, 4096));
	if (!fstatfs(disk, &fs) && fs.f_type != 0x01021994) {
		q = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, disk, 0);
		CHECK(q != MAP_FAILED);
		IS(cuMemHostRegister(q, 4096, CU_MEMHOSTREGISTER_DEVICEMAP),
		   CUDA_ERROR_INVALID_VALUE);
		q = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, disk, 0);
		OK(cuMemHostRegister(q, 4096, 0));
	}
	IS(cuMemHostRegister(p, 600ull << 30, 0), CUDA_ERROR_OUT_OF_MEMORY);
}

static void t_arrays(void)
{
	CUDA_ARRAY3D_DESCRIPTOR d3 = {.Width = 7,
				      .Height = 5,
				      .Depth = 3,
				      .Format = CU_AD_FORMAT_FLOAT,
				      .NumChannels = 1};
	float in[3][5][7], out[3][5][7];
	CUDA_MEMCPY3D c = {0};
	CUDA_MEMCPY2D m = {0};
	CUdeviceptr p;
	size_t pitch, before;
	CUarray a;
	char row[4] = "abc", back[4] = "";

	up();
	before = room();
	OK(cuArray3DCreate(&a, &d3));
	for (int i = 0; i < 105; i++)
		(&in[0][0][0])[i] = (float)i;
	c.srcMemoryType = CU_MEMORYTYPE_HOST;
	c.srcHost = in;
	c.srcPitch = 28;
	c.srcHeight = 5;
	c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
	c.dstArray = a;
	c.WidthInBytes = 28;
	c.Height = 5;
	c.Depth = 3;
	OK(cuMemcpy3D(&c));
	memset(&c, 0, sizeof(c));
	c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
	c.srcArray = a;
	c.dstMemoryType = CU_MEMORYTYPE_HOST;
	c.dstHost = out;
	c.dstPitch = 28;
	c.dstHeight = 5;
	c.WidthInBytes = 28;
	c.Height = 5;
	c.Depth = 3;
	OK(cuMemcpy3D(&c));
	CHECK(!memcmp(in, out, sizeof(in)));
	OK(cuArrayDestroy(a));
	OK(cuMemAllocPitch(&p, &pitch, 3, 4, 4));
	IS(pitch, 512);
	OK(cuMemsetD2D8(p, pitch, 0x55, 3, 4));
	m.srcMemoryType = CU_MEMORYTYPE_HOST;
	m.srcHost = row;
	m.dstMemoryType = CU_MEMORYTYPE_DEVICE;
	m.dstDevice = p;
	m.dstPitch = pitch;
	m.dstY = 3;
	m.WidthInBytes = 3;
	m.Height = 1;
	OK(cuMemcpy2D(&m));
	OK(cuMemcpyDtoH(back, p + 3 * pitch, 3));
	CHECK(!strcmp(back, "abc"));
	OK(cuMemcpyDtoH(back, p + 2 * pitch, 3));
	IS(back[2], 0x55);
	OK(cuMemFree(p));
	IS(room(), before);
}

static void t_pointers(void)
{
	CUpointer_attribute which[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
				       CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
	CUdeviceptr d, m, base;
	unsigned int type = 77;
	int dev = 77;
	void *data[] = {&type, &dev};
	size_t size;
	CUcontext c;

	up();
	OK(cuMemAlloc(&d, 1000));
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, d + 999));
	IS(type, CU_MEMORYTYPE_DEVICE);
	OK(cuPointerGetAttribute(&c, CU_POINTER_ATTRIBUTE_CONTEXT, d));
	CHECK(c == ctx);
	OK(cuMemGetAddressRange(&base, &size, d + 500));
	CHECK(base == d && size == 1000);
	IS(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)&dev),
	   CUDA_ERROR_INVALID_VALUE);
	OK(cuPointerGetAttributes(2, which, data, (CUdeviceptr)&dev));
	IS(type, 0);
	IS(dev, -2);
	OK(cuMemAllocManaged(&m, 100ull << 30,
			     CU_MEM_ATTACH_GLOBAL)); /* more than the device has */
	*(char *)m = 5;
	OK(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_IS_MANAGED, m));
	IS(type, 1);
	OK(cuMemFree(m));
}

static unsigned long shared_kib(void)
{
	char line[256];
	unsigned long kib = 0;
	FILE *f = fopen("/proc/self/status", "r");

	CHECK(f);
	while (fgets(line, sizeof(line), f))
		sscanf(line, "RssShmem: %lu", &kib);
	fclose(f);
	return kib;
}

/* Only what is touched takes memory of the host, and a free gives it back. */
static void t_sparse(void)
{
	unsigned long before;
	CUdeviceptr d;

	up();
	before = shared_kib();
	OK(cuMemAlloc(&d, 7000 * MIB));
	CHECK(shared_kib() - before < 1024);
	OK(cuMemsetD8(d + 100 * MIB, 1, 10 * MIB));
	OK(cuCtxSynchronize());
	CHECK(shared_kib() - before > 9 * 1024 && shared_kib() - before < 12 * 1024);
	OK(cuMemFree(d));
	CHECK(shared_kib() - before < 1024);
}

MAIN({"oom", t_oom}, {"kill", t_kill}, {"shared", t_shared}, {"pool", t_pool},
     {"pool-order", t_pool_order}, {"vmm", t_vmm}, {"vmm-fd", t_vmm_fd}, {"ipc", t_ipc},
     {"ipc-event", t_ipc_event}, {"multicast", t_multicast}, {"register", t_register},
     {"arrays", t_arrays}, {"pointers", t_pointers}, {"sparse", t_sparse})
