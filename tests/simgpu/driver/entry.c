// SPDX-License-Identifier: Apache-2.0
/*
 * entry.c - the ways in: initialisation, look-ups, versions, errors, devices.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

struct sg_state sg = {.lock = PTHREAD_MUTEX_INITIALIZER, .log_fd = -1};

/* -- small things ---------------------------------------------------------------------------- */

void sg_lock(void)
{
	pthread_mutex_lock(&sg.lock);
}

void sg_unlock(void)
{
	pthread_mutex_unlock(&sg.lock);
}

uint64_t sg_now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sg_log(const char *fmt, ...)
{
	char line[512];
	int n, m, saved = errno;
	va_list ap;

	n = snprintf(line, sizeof(line), "%llu %d %ld ", (unsigned long long)sg_now_ns(), getpid(),
		     syscall(SYS_gettid));
	va_start(ap, fmt);
	m = vsnprintf(line + n, sizeof(line) - (size_t)n - 1, fmt, ap);
	va_end(ap);
	n = SG_MIN(n + m, (int)sizeof(line) - 2);
	line[n++] = '\n';
	if (write(sg.log_fd, line, (size_t)n) < 0)
		sg.log_fd = -1;
	errno = saved;
}

uint64_t sg_parse_size(const char *name, uint64_t fallback)
{
	const char *s = getenv(name);
	char *end;
	unsigned long long v;

	if (!s || !*s)
		return fallback;
	errno = 0;
	v = strtoull(s, &end, 10);
	if (end != s && !errno) {
		switch (*end) {
		case 'T':
		case 't':
			v <<= 10;
			/* fall through */
		case 'G':
		case 'g':
			v <<= 10;
			/* fall through */
		case 'M':
		case 'm':
			v <<= 10;
			/* fall through */
		case 'K':
		case 'k':
			v <<= 10;
			end++;
			break;
		default:
			break;
		}
		if (!strcmp(end, "") || !strcmp(end, "B") || !strcmp(end, "iB"))
			return v;
	}
	dprintf(2, "simgpu: %s=%s is no size; using %llu\n", name, s, (unsigned long long)fallback);
	return fallback;
}

static bool env_is(const char *name, const char *value)
{
	const char *s = getenv(name);

	return s && !strcmp(s, value);
}

/* -- initialisation -------------------------------------------------------------------------- */

static void fork_child(void)
{
	if (sg.ready)
		sg.forked = 1;
	sg.ready = 0;
}

static int device_init(struct sg_device *d, int index)
{
	char name[32];

	d->index = index;
	/* Room for fragments: addresses cost nothing. */
	d->arena_size = SG_MAX(SG_UP(sg.memory, SG_GRANULARITY) * 4, 64ull << 30);
	snprintf(name, sizeof(name), "simgpu-device-%d", index);
	d->memfd = memfd_create(name, MFD_CLOEXEC);
	if (d->memfd < 0)
		return -errno;
	if (ftruncate(d->memfd, (off_t)d->arena_size))
		return -errno;
	d->arena = mmap(NULL, d->arena_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
			d->memfd, 0);
	if (d->arena == MAP_FAILED)
		return -errno;
	/* A child has no use for it, and must not keep the pages of a killed parent. */
	madvise(d->arena, d->arena_size, MADV_DONTFORK);
	sg_space_give(&d->space, (uint64_t)d->arena, d->arena_size);
	return 0;
}

static CUresult init_once(void)
{
	const char *n = getenv("SIMGPU_DEVICES"), *log = getenv("SIMGPU_LOG");
	int rc;

	sg.devices = 2;
	if (n && *n) {
		char *end;
		long v = strtol(n, &end, 10);

		if (*end || v < 0 || v > SG_MAX_DEVICES)
			dprintf(2, "simgpu: SIMGPU_DEVICES=%s is not 0..%d; using 2\n", n,
				SG_MAX_DEVICES);
		else
			sg.devices = (int)v;
	}
	sg.memory = sg_parse_size("SIMGPU_MEMORY", 8ull << 30);
	sg.context_cost = sg_parse_size("SIMGPU_CONTEXT", 256ull << 20);
	sg.pin_rate = sg_parse_size("SIMGPU_PIN_RATE", 0);
	sg.launch_blocking = getenv("CUDA_LAUNCH_BLOCKING") && atoi(getenv("CUDA_LAUNCH_BLOCKING"));
	sg.lazy = env_is("CUDA_MODULE_LOADING", "LAZY");
	sg.lazy_sync =
		env_is("SIMGPU_LAZY_SYNC", "1") || (sg.lazy && !env_is("SIMGPU_LAZY_SYNC", "0"));
	sg.alloc_sync = env_is("SIMGPU_ALLOC_SYNC", "1");
	if (log && *log && sg.log_fd < 0)
		sg.log_fd = !strcmp(log, "stderr")
				    ? fcntl(2, F_DUPFD_CLOEXEC, 10)
				    : open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (!sg.devices)
		return CUDA_ERROR_NO_DEVICE;
	rc = sg_account_open();
	if (rc) {
		dprintf(2, "simgpu: the shared account cannot be opened: %s\n", strerror(-rc));
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	for (int i = 0; i < sg.devices; i++) {
		rc = device_init(&sg.dev[i], i);
		if (rc) {
			dprintf(2, "simgpu: device %d: %s\n", i, strerror(-rc));
			return CUDA_ERROR_OPERATING_SYSTEM;
		}
	}
	pthread_atfork(NULL, NULL, fork_child);
	SG_LOG("init devices=%d memory=%llu", sg.devices, (unsigned long long)sg.memory);
	return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
	static pthread_mutex_t once = PTHREAD_MUTEX_INITIALIZER;
	static CUresult result = CUDA_ERROR_NOT_INITIALIZED;
	static bool tried;

	if (flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (sg.forked)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (sg.ready)
		return CUDA_SUCCESS;
	pthread_mutex_lock(&once);
	if (!tried) {
		tried = true;
		result = init_once();
		if (!result)
			sg.ready = 1;
	}
	pthread_mutex_unlock(&once);
	return result;
}

CUresult sg_enter(void)
{
	return sg.ready ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

CUresult sg_enter_ctx(struct sg_ctx **out)
{
	struct sg_ctx *c;

	if (!sg.ready)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (sg_in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	c = sg_current();
	if (!c)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (c->dead)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	sg_api_gate(c);
	if (c->fault)
		return (CUresult)c->fault;
	if (out)
		*out = c;
	return CUDA_SUCCESS;
}

/* -- look-ups -------------------------------------------------------------------------------- */

struct export
{
	const char *name;
	void *fn;
};
extern const struct export sg_exports[]; /* generated: every cu... that this library defines, sorted
					  */
extern const unsigned int sg_export_count;

static int by_name(const void *key, const void *row)
{
	return strcmp(key, ((const struct export *)row)->name);
}

static void *exported(const char *name)
{
	const struct export *e =
		bsearch(name, sg_exports, sg_export_count, sizeof(*sg_exports), by_name);

	return e ? e->fn : NULL;
}

struct version_row {
	const char *name;
	int version;
	int thread;
	const char *symbol;
};

static const struct version_row versions[] = {
#define V(name, version, flavour, symbol) {#name, version, flavour, #symbol},
#include "driver_versions.def"
#undef V
	{"cuProfilerStart", 4000, 0, "cuProfilerStart"},
	{"cuProfilerStop", 4000, 0, "cuProfilerStop"},
};
#define VERSIONS (sizeof(versions) / sizeof(versions[0]))

static size_t first_row(const char *name)
{
	size_t lo = 0, hi = VERSIONS - 2; /* the last two stand outside the order */

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (strcmp(versions[mid].name, name) < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < VERSIONS - 2 && !strcmp(versions[lo].name, name))
		return lo;
	for (lo = VERSIONS - 2; lo < VERSIONS; lo++)
		if (!strcmp(versions[lo].name, name))
			return lo;
	return VERSIONS;
}

static CUdriverProcAddressQueryResult find(const char *name, int version, bool thread, void **out)
{
	CUdriverProcAddressQueryResult why = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
	void *best = NULL;
	int best_thread = -1;

	*out = NULL;
	for (size_t i = first_row(name); i < VERSIONS && !strcmp(versions[i].name, name); i++) {
		const struct version_row *r = &versions[i];
		void *fn;

		if (r->thread && !thread)
			continue;
		fn = exported(r->symbol);
		if (!fn)
			continue;
		if (r->version > version) {
			if (!best)
				why = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
			continue;
		}
		if (r->thread >= best_thread) { /* rows are sorted by flavour, then version */
			best = fn;
			best_thread = r->thread;
			why = CU_GET_PROC_ADDRESS_SUCCESS;
		}
	}
	*out = best;
	return why;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version, cuuint64_t flags,
			     CUdriverProcAddressQueryResult *status)
{
	CUdriverProcAddressQueryResult found;

	if (!symbol || !pfn || flags > 2)
		return CUDA_ERROR_INVALID_VALUE;
	found = find(symbol, version, flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, pfn);
	if (status) {
		*status = found;
		return CUDA_SUCCESS;
	}
	return found == CU_GET_PROC_ADDRESS_SUCCESS ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	return cuGetProcAddress_v2(symbol, pfn, version, flags, NULL);
}

CUresult cuGetExportTable(const void **table, const CUuuid *id)
{
	if (!table || !id)
		return CUDA_ERROR_INVALID_VALUE;
	*table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

CUresult cuDriverGetVersion(int *version)
{
	if (!version)
		return CUDA_ERROR_INVALID_VALUE;
	*version = CUDA_VERSION;
	return CUDA_SUCCESS;
}

/* -- errors ---------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	CUresult code;
} errors[] = {
#define E(name, number) {#name, number},
#include "simgpu/driver_errors.def"
#undef E
};

CUresult cuGetErrorName(CUresult error, const char **out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++)
		if (errors[i].code == error)
			*out = errors[i].name;
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **out)
{
	static char text[sizeof(errors) / sizeof(errors[0])][64];
	static const struct {
		CUresult code;
		const char *text;
	} known[] = {
		{CUDA_SUCCESS, "no error"},
		{CUDA_ERROR_INVALID_VALUE, "invalid argument"},
		{CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
		{CUDA_ERROR_DEINITIALIZED, "driver shutting down"},
		{CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"},
		{CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
		{CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
		{CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
		{CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
		{CUDA_ERROR_NOT_FOUND, "named symbol not found"},
		{CUDA_ERROR_NOT_READY, "device not ready"},
		{CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
		{CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
		{CUDA_ERROR_NOT_PERMITTED, "operation not permitted"},
		{CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
		{CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, "peer access is already enabled"},
		{CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, "peer access has not been enabled"},
		{CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED,
		 "part or all of the requested memory range is already mapped"},
		{CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED,
		 "pointer does not correspond to a registered memory region"},
		{CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
		 "operation not permitted when stream is capturing"},
		{CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
		 "operation failed due to a previous error during capture"},
		{CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not initiated in this stream"},
		{CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"},
		{CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
		 "operation would make the legacy stream depend on a capturing blocking stream"},
		{CUDA_ERROR_UNKNOWN, "unknown error"},
	};

	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (known[i].code == error) {
			*out = known[i].text;
			return CUDA_SUCCESS;
		}
	}
	*out = NULL;
	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		const char *s = errors[i].name + strlen("CUDA_ERROR_");
		char made[64];
		size_t n = 0;

		if (errors[i].code != error)
			continue;
		for (; *s && n < sizeof(made) - 1; s++)
			made[n++] = *s == '_' ? ' ' : (char)(*s >= 'A' && *s <= 'Z' ? *s + 32 : *s);
		made[n] = 0;
		memcpy(text[i], made, sizeof(made)); /* the same bytes whoever comes first */
		*out = text[i];
	}
	return *out ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* -- devices --------------------------------------------------------------------------------- */

#define DEVICE(d)                                                                                  \
	do {                                                                                       \
		CUresult e_ = sg_enter();                                                          \
		if (e_)                                                                            \
			return e_;                                                                 \
		if ((d) < 0 || (d) >= sg.devices)                                                  \
			return CUDA_ERROR_INVALID_DEVICE;                                          \
	} while (0)

CUresult cuDeviceGet(CUdevice *out, int ordinal)
{
	if (sg_enter())
		return sg_enter();
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	DEVICE(ordinal);
	*out = ordinal;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetCount(int *out)
{
	if (sg_enter())
		return sg_enter();
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = sg.devices;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	DEVICE(dev);
	if (!name || len < 1)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(name, (size_t)len, "Simulated GPU");
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
	DEVICE(dev);
	if (!uuid)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(uuid->bytes, "simulated-gpu-\0\0", 16);
	uuid->bytes[15] = (char)dev;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
	return cuDeviceGetUuid_v2(uuid, dev);
}

CUresult cuDeviceGetLuid(char *luid, unsigned int *mask, CUdevice dev)
{
	(void)luid;
	(void)mask;
	DEVICE(dev);
	return CUDA_ERROR_NOT_SUPPORTED; /* as on Linux */
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	DEVICE(dev);
	if (!bytes)
		return CUDA_ERROR_INVALID_VALUE;
	*bytes = sg.memory;
	return CUDA_SUCCESS;
}

CUresult cuDeviceTotalMem(unsigned int *bytes, CUdevice dev)
{
	size_t n;
	CUresult e = cuDeviceTotalMem_v2(&n, dev);

	if (!e && !bytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (!e)
		*bytes = (unsigned int)SG_MIN(n, 0xffffffffu);
	return e;
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
	DEVICE(dev);
	if (!major || !minor)
		return CUDA_ERROR_INVALID_VALUE;
	*major = 9;
	*minor = 0;
	return CUDA_SUCCESS;
}

static const struct {
	CUdevice_attribute attr;
	int value;
} attributes[] = {
	{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
	{CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
	{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
	{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
	{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
	{CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
	{CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
	{CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
	{CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
	{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
	{CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
	{CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
	{CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
	{CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 4096},
	{CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 33554432},
	{CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
	{CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
	{CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
	{CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
	{CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
	{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16},
	{CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
	{CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
	{CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, CU_COMPUTEMODE_DEFAULT},
	{CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
	{CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
	{CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
	{CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
	{CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS_V1, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR_V1, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
	{CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES, 1},
	{CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1},
	{CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0},
	{CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 1},
	{CU_DEVICE_ATTRIBUTE_DEFERRED_MAPPING_CUDA_ARRAY_SUPPORTED, 0},
	{CU_DEVICE_ATTRIBUTE_IPC_EVENT_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, 1},
	{CU_DEVICE_ATTRIBUTE_UNIFIED_FUNCTION_POINTERS, 1},
	{CU_DEVICE_ATTRIBUTE_NUMA_ID, 0},
	{CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID, 0},
	{CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID, 0},
	{CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE1D_WIDTH, 131072},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_WIDTH, 131072},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE2D_HEIGHT, 65536},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_WIDTH, 16384},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_HEIGHT, 16384},
	{CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE3D_DEPTH, 16384},
	{CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE, 0},
	{CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE, 0},
};

CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attr, CUdevice dev)
{
	DEVICE(dev);
	if (!value || attr < 1 || attr >= CU_DEVICE_ATTRIBUTE_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0; /* what stands in no row is a feature that is not there */
	if (attr == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)
		*value = dev + 1;
	for (size_t i = 0; i < sizeof(attributes) / sizeof(attributes[0]); i++)
		if (attributes[i].attr == attr)
			*value = attributes[i].value;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetProperties(CUdevprop *prop, CUdevice dev)
{
	DEVICE(dev);
	if (!prop)
		return CUDA_ERROR_INVALID_VALUE;
	*prop = (CUdevprop){
		.maxThreadsPerBlock = 1024,
		.maxThreadsDim = {1024, 1024, 64},
		.maxGridSize = {2147483647, 65535, 65535},
		.sharedMemPerBlock = 49152,
		.totalConstantMemory = 65536,
		.SIMDWidth = 32,
		.memPitch = 2147483647,
		.regsPerBlock = 65536,
		.clockRate = 1000000,
		.textureAlign = 512,
	};
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetPCIBusId(char *id, int len, CUdevice dev)
{
	DEVICE(dev);
	if (!id || len < 1)
		return CUDA_ERROR_INVALID_VALUE;
	snprintf(id, (size_t)len, "0000:%02X:00.0", dev + 1);
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *id)
{
	unsigned int domain = 0, bus, slot;

	if (sg_enter())
		return sg_enter();
	if (!dev || !id)
		return CUDA_ERROR_INVALID_VALUE;
	if (sscanf(id, "%x:%x:%x", &domain, &bus, &slot) != 3) {
		domain = 0;
		if (sscanf(id, "%x:%x", &bus, &slot) != 2)
			return CUDA_ERROR_INVALID_VALUE;
	}
	if (domain || slot || bus < 1 || bus > (unsigned int)sg.devices)
		return CUDA_ERROR_INVALID_DEVICE;
	*dev = (CUdevice)bus - 1;
	return CUDA_SUCCESS;
}

CUresult cuDeviceCanAccessPeer(int *can, CUdevice a, CUdevice b)
{
	DEVICE(a);
	DEVICE(b);
	if (!can)
		return CUDA_ERROR_INVALID_VALUE;
	*can = a != b;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attr, CUdevice a, CUdevice b)
{
	DEVICE(a);
	DEVICE(b);
	if (!value || a == b)
		return CUDA_ERROR_INVALID_VALUE;
	*value = attr != CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetExecAffinitySupport(int *value, CUexecAffinityType type, CUdevice dev)
{
	(void)type;
	DEVICE(dev);
	if (!value)
		return CUDA_ERROR_INVALID_VALUE;
	*value = 0;
	return CUDA_SUCCESS;
}

CUresult cuDeviceGetTexture1DLinearMaxWidth(size_t *width, CUarray_format format,
					    unsigned int channels, CUdevice dev)
{
	(void)format;
	(void)channels;
	DEVICE(dev);
	if (!width)
		return CUDA_ERROR_INVALID_VALUE;
	*width = 1u << 28;
	return CUDA_SUCCESS;
}

CUresult cuFlushGPUDirectRDMAWrites(CUflushGPUDirectRDMAWritesTarget target,
				    CUflushGPUDirectRDMAWritesScope scope)
{
	(void)target;
	(void)scope;
	return sg_enter_ctx(NULL);
}

CUresult cuProfilerStart(void)
{
	return sg_enter_ctx(NULL);
}

CUresult cuProfilerStop(void)
{
	return sg_enter_ctx(NULL);
}
