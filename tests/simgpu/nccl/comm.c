// SPDX-License-Identifier: Apache-2.0
/* comm.c - the calls: making and ending communicators, groups, launching operations. */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim.h"

#define COMM_MAGIC 0x6e63636c636f6d6dull
#define BUFFER_BYTES (4u << 20) /* device memory that a communicator takes */

/* pncclX is the same function under the profiling name, as in the real library. */
#define API(name, params)                                                                          \
	__typeof__(name) p##name __attribute__((alias(#name)));                                    \
	ncclResult_t name params

struct sn_driver sn;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool driver_up;
static __thread char thread_error[160];

/* -- the driver ------------------------------------------------------------------------------- */

static const struct {
	const char *name;
	int version, thread;
	const char *symbol;
} versions[] = {
#define V(name, version, flavour, symbol) {#name, version, flavour, #symbol},
#include "../../../preload/driver_versions.def"
#undef V
};

static void load(void)
{
	CUresult (*look_up)(const char *, void **, int, cuuint64_t,
			    CUdriverProcAddressQueryResult *);
	void *lib = dlopen("libcuda.so.1", RTLD_NOW);

	if (!lib)
		return;
	*(void **)&look_up = dlsym(lib, "cuGetProcAddress_v2");
	if (!look_up)
		return;
#define X(sym)                                                                                     \
	for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {                      \
		CUdriverProcAddressQueryResult status;                                             \
		if (!versions[i].thread && !strcmp(versions[i].symbol, #sym))                      \
			look_up(versions[i].name, (void **)&sn.sym, versions[i].version, 0,        \
				&status);                                                          \
	}
	SN_DRIVER(X)
#undef X
	driver_up = sn.cuInit && !sn.cuInit(0) && sn.cuLaunchKernelEx && sn.cuModuleLoadData;
}

static ncclResult_t fail(struct ncclComm *c, ncclResult_t r, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static ncclResult_t fail(struct ncclComm *c, ncclResult_t r, const char *fmt, ...)
{
	const char *debug = getenv("NCCL_DEBUG");
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(thread_error, sizeof(thread_error), fmt, ap);
	va_end(ap);
	if (c)
		memcpy(c->last_error, thread_error, sizeof(c->last_error));
	if (debug && strcmp(debug, "VERSION"))
		dprintf(2, "simulated NCCL: pid %d: %s\n", getpid(), thread_error);
	return r;
}

static ncclResult_t cuda_fail(struct ncclComm *c, const char *call, CUresult e)
{
	return fail(c, ncclUnhandledCudaError, "%s failed with CUDA error %d%s", call, (int)e,
		    e == CUDA_ERROR_OUT_OF_MEMORY ? " (out of memory)" : "");
}

/* The context of the calling thread, made as the runtime would make it. */
static CUresult current_context(CUcontext *ctx, int *device)
{
	CUresult e;

	pthread_once(&once, load);
	if (!driver_up)
		return CUDA_ERROR_NOT_INITIALIZED;
	e = sn.cuCtxGetCurrent(ctx);
	if (!e && !*ctx) {
		e = sn.cuDevicePrimaryCtxRetain(ctx, 0);
		if (!e)
			e = sn.cuCtxSetCurrent(*ctx);
	}
	return e ? e : sn.cuCtxGetDevice(device);
}

/* -- unique ids and the file of a communicator ------------------------------------------------ */

static void key_of(const void *data, size_t size, char out[40])
{
	uint64_t a = 0xcbf29ce484222325ull, b = 0x84222325cbf29ce4ull;

	for (size_t i = 0; i < size; i++) {
		a = (a ^ ((const uint8_t *)data)[i]) * 0x100000001b3ull;
		b = (b ^ ((const uint8_t *)data)[i]) * 0x100000001b3ull + (a >> 7);
	}
	memset(out, 0, 40); /* a split hashes all of it */
	snprintf(out, 40, "%016llx%016llx", (unsigned long long)a, (unsigned long long)b);
}

static void path_of(const char *key, char *out, size_t size)
{
	snprintf(out, size, "/dev/shm/simnccl-%u-%s", geteuid(), key);
}

/* Removes what communicators left behind whose ranks were all killed before they had met. */
static void sweep(void)
{
	char prefix[32], path[320];
	DIR *d = opendir("/dev/shm");
	struct dirent *e;
	int n;

	if (!d)
		return;
	n = snprintf(prefix, sizeof(prefix), "simnccl-%u-", geteuid());
	while ((e = readdir(d))) {
		struct sn_shared *s;
		struct stat st;
		bool alive = false;
		int fd;

		if (strncmp(e->d_name, prefix, (size_t)n))
			continue;
		snprintf(path, sizeof(path), "/dev/shm/%s", e->d_name);
		fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0)
			continue;
		s = MAP_FAILED;
		if (!fstat(fd, &st) && st.st_uid == geteuid() && st.st_mtime + 10 < time(NULL) &&
		    (size_t)st.st_size > sizeof(*s))
			s = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
		close(fd);
		if (s == MAP_FAILED)
			continue;
		if (atomic_load(&s->magic) == SN_MAGIC) {
			uint32_t ranks = atomic_load(&s->ranks);

			for (uint32_t r = 0; r < ranks && !alive; r++) {
				pid_t pid;

				if (sizeof(*s) + (r + 1) * sizeof(s->rank[0]) > (size_t)st.st_size)
					break;
				pid = (pid_t)atomic_load(&s->rank[r].pid);
				alive = pid > 0 && (!kill(pid, 0) || errno != ESRCH);
			}
			if (!alive)
				unlink(path);
		}
		munmap(s, (size_t)st.st_size);
	}
	closedir(d);
}

API(ncclGetUniqueId, (ncclUniqueId * id))
{
	if (!id)
		return fail(NULL, ncclInvalidArgument, "ncclGetUniqueId: id is NULL");
	memset(id, 0, sizeof(*id));
	if (getrandom(id->internal, 64, 0) != 64)
		return fail(NULL, ncclSystemError, "no random bytes");
	memcpy(id->internal, "SIMNCCL", 8);
	sweep();
	return ncclSuccess;
}

/* Opens or makes the file and takes the rank's own part of it. */
static ncclResult_t attach(struct ncclComm *c)
{
	size_t stages = (size_t)(sn_stage(c, 0) - (uint8_t *)c->s), total;
	struct sn_rank *me;
	char path[128];
	uint64_t zero = 0;
	uint32_t none = 0;
	int fd, err;

	total = stages + 2 * (size_t)c->ranks * SN_STAGE;
	path_of(c->key, path, sizeof(path));
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return fail(c, ncclSystemError, "%s: %s", path, strerror(errno));
	/* Own parts are reserved before they are touched: a full /dev/shm is an error, not a
	 * SIGBUS. */
	err = posix_fallocate(fd, 0, (off_t)stages);
	if (!err)
		err = posix_fallocate(fd, (off_t)(stages + (size_t)c->rank * SN_STAGE), SN_STAGE);
	if (!err)
		err = posix_fallocate(fd, (off_t)(stages + (size_t)(c->ranks + c->rank) * SN_STAGE),
				      SN_STAGE);
	if (!err && lseek(fd, 0, SEEK_END) < (off_t)total)
		err = posix_fallocate(fd, (off_t)total - 1, 1);
	if (err) {
		close(fd);
		return fail(c, ncclSystemError, "posix_fallocate of %zu bytes in /dev/shm: %s",
			    stages + 2 * SN_STAGE, strerror(err));
	}
	c->s = mmap(NULL, total, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (c->s == MAP_FAILED) {
		c->s = NULL;
		return fail(c, ncclSystemError, "mmap: %s", strerror(errno));
	}
	c->mapped = total;
	if (!atomic_compare_exchange_strong(&c->s->ranks, &none, (uint32_t)c->ranks) &&
	    none != (uint32_t)c->ranks)
		return fail(c, ncclInvalidArgument, "ranks disagree about their number: %u and %d",
			    none, c->ranks);
	me = &c->s->rank[c->rank];
	if (!atomic_compare_exchange_strong(&me->pid, &zero, (uint64_t)getpid()))
		return fail(c, ncclInvalidUsage, "rank %d is there already (pid %llu)", c->rank,
			    (unsigned long long)zero);
	me->device = c->device;
	atomic_store(&c->s->magic, SN_MAGIC);
	atomic_store(&me->here, 1);
	if (atomic_fetch_add(&c->s->attached, 1) + 1 == (uint32_t)c->ranks)
		unlink(path);
	/* The bootstrap: every rank waits for every other. */
	while (atomic_load(&c->s->attached) < (uint32_t)c->ranks) {
		if (atomic_load(&c->abort))
			return fail(c, ncclInternalError, "aborted during init");
		poll(NULL, 0, 2);
	}
	return ncclSuccess;
}

/* -- device memory, as NCCL takes it ---------------------------------------------------------- */

static bool use_vmm(void)
{
	const char *s = getenv("NCCL_CUMEM_ENABLE");

	return !s || strcmp(s, "0");
}

static CUresult vmm_alloc(int device, size_t size, uint64_t *addr, CUmemGenericAllocationHandle *h)
{
	CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
				    .requestedHandleTypes =
					    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				    .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	CUmemAccessDesc access[64];
	CUdeviceptr p = 0;
	int devices = 1;
	CUresult e = sn.cuMemCreate(h, size, &prop, 0);

	if (e)
		return e;
	sn.cuDeviceGetCount(&devices);
	for (int i = 0; i < devices && i < 64; i++)
		access[i] = (CUmemAccessDesc){{CU_MEM_LOCATION_TYPE_DEVICE, i},
					      CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	e = sn.cuMemAddressReserve(&p, size, 0, 0, 0);
	if (!e)
		e = sn.cuMemMap(p, size, 0, *h, 0);
	if (!e)
		e = sn.cuMemSetAccess(p, size, access, (size_t)devices);
	if (e) {
		if (p)
			sn.cuMemAddressFree(p, size);
		sn.cuMemRelease(*h);
		return e;
	}
	*addr = p;
	return CUDA_SUCCESS;
}

static void vmm_free(uint64_t addr, size_t size, CUmemGenericAllocationHandle h)
{
	sn.cuMemUnmap(addr, size);
	sn.cuMemAddressFree(addr, size);
	sn.cuMemRelease(h);
}

static ncclResult_t take_buffer(struct ncclComm *c)
{
	CUresult e;

	c->buffer_bytes = BUFFER_BYTES;
	if (use_vmm())
		e = vmm_alloc(c->device, c->buffer_bytes, &c->buffer, &c->buffer_handle);
	else
		e = sn.cuMemAlloc_v2((CUdeviceptr *)&c->buffer, c->buffer_bytes);
	return e ? cuda_fail(c, use_vmm() ? "cuMemCreate" : "cuMemAlloc", e) : ncclSuccess;
}

static void give_buffer(struct ncclComm *c)
{
	CUcontext old;

	if (!c->buffer || sn.cuCtxPushCurrent_v2(c->ctx))
		return;
	if (c->buffer_handle)
		vmm_free(c->buffer, c->buffer_bytes, c->buffer_handle);
	else
		sn.cuMemFree_v2(c->buffer);
	sn.cuCtxPopCurrent_v2(&old);
	c->buffer = 0;
}

API(ncclMemAlloc, (void **out, size_t size))
{
	CUmemGenericAllocationHandle h;
	CUcontext ctx;
	uint64_t p;
	int dev;
	CUresult e = current_context(&ctx, &dev);

	if (!out || !size)
		return fail(NULL, ncclInvalidArgument, "ncclMemAlloc: NULL or no size");
	if (e)
		return cuda_fail(NULL, "cuCtxGetCurrent", e);
	if (use_vmm()) {
		e = vmm_alloc(dev, (size + (2u << 20) - 1) >> 21 << 21, &p, &h);
		if (e)
			return cuda_fail(NULL, "cuMemCreate", e);
	} else {
		e = sn.cuMemAlloc_v2((CUdeviceptr *)&p, size);
		if (e)
			return cuda_fail(NULL, "cuMemAlloc", e);
	}
	*out = (void *)p;
	return ncclSuccess;
}

API(ncclMemFree, (void *p))
{
	CUmemGenericAllocationHandle h;
	CUdeviceptr base;
	size_t size;

	if (!p)
		return ncclSuccess;
	pthread_once(&once, load);
	if (sn.cuMemRetainAllocationHandle(&h, p))
		return sn.cuMemFree_v2((CUdeviceptr)p)
			       ? fail(NULL, ncclInvalidArgument, "ncclMemFree: not ours")
			       : ncclSuccess;
	sn.cuMemRelease(h);
	if (sn.cuMemGetAddressRange_v2(&base, &size, (CUdeviceptr)p))
		return fail(NULL, ncclInvalidArgument, "ncclMemFree: not ours");
	vmm_free(base, size, h);
	return ncclSuccess;
}

/* -- init ------------------------------------------------------------------------------------- */

struct init { /* one communicator to make: an item of a group, or a call */
	struct ncclComm *comm, *parent;
	enum { INIT_RANK, INIT_SPLIT, INIT_SHRINK } kind;
	int color, key;
	ncclResult_t result;
	pthread_t thread;
	bool threaded;
	ncclComm_t *out;
	struct init *next;
};

static struct ncclComm *comm_new(int rank, int ranks, CUcontext ctx, int device,
				 const ncclConfig_t *config)
{
	struct ncclComm *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->magic = COMM_MAGIC;
	c->rank = rank;
	c->ranks = ranks;
	c->ctx = ctx;
	c->device = device;
	c->blocking = !config || config->blocking != 0;
	pthread_mutex_init(&c->order, NULL);
	pthread_mutex_init(&c->launching, NULL);
	pthread_cond_init(&c->served, NULL);
	return c;
}

static bool comm_valid(const struct ncclComm *c)
{
	return (uintptr_t)c > 4095 && c->magic == COMM_MAGIC;
}

static ncclResult_t split_members(struct init *i)
{
	struct ncclComm *p = i->parent, *c = i->comm;
	struct sn_rank *me = &p->s->rank[p->rank];
	uint64_t number = ++p->splits;
	struct {
		char parent[40];
		uint64_t number;
		int color;
	} name;

	/* Nobody overwrites what another still reads: entered counts in, then out. */
	me->color = i->color;
	me->key = i->key;
	atomic_store(&me->split, 2 * number - 1);
	for (int r = 0; r < p->ranks; r++) {
		while (atomic_load(&p->s->rank[r].split) < 2 * number - 1) {
			if (atomic_load(&p->abort))
				return fail(p, ncclInternalError, "aborted during split");
			poll(NULL, 0, 1);
		}
	}
	c->ranks = c->rank = 0;
	for (int r = 0; r < p->ranks; r++) {
		struct sn_rank *o = &p->s->rank[r];

		if (o->color != i->color)
			continue;
		c->ranks++;
		c->rank += o->key < i->key || (o->key == i->key && r < p->rank);
	}
	atomic_store(&me->split, 2 * number);
	for (int r = 0; r < p->ranks; r++) {
		while (atomic_load(&p->s->rank[r].split) < 2 * number) {
			if (atomic_load(&p->abort))
				return fail(p, ncclInternalError, "aborted during split");
			poll(NULL, 0, 1);
		}
	}
	memset(&name, 0, sizeof(name));
	memcpy(name.parent, p->key, sizeof(name.parent));
	name.number = number;
	name.color = i->color;
	key_of(&name, sizeof(name), c->key);
	return ncclSuccess;
}

static void *init_run(void *arg)
{
	struct init *i = arg;
	struct ncclComm *c = i->comm;
	CUcontext old;
	CUresult e = sn.cuCtxPushCurrent_v2(c->ctx);
	ncclResult_t r = ncclSuccess;

	if (e)
		r = cuda_fail(c, "cuCtxPushCurrent", e);
	if (!r && i->kind == INIT_SPLIT)
		r = split_members(i);
	if (!r && i->kind == INIT_SPLIT && i->color < 0) {
		c->ranks = 0; /* in no new communicator */
	} else if (!r) {
		c->sends = calloc((size_t)c->ranks, sizeof(*c->sends));
		c->recvs = calloc((size_t)c->ranks, sizeof(*c->recvs));
		r = take_buffer(c);
		if (!r)
			r = attach(c);
		e = r ? CUDA_SUCCESS : sn.cuModuleLoadData(&c->module, sn_image());
		if (e)
			r = cuda_fail(c, "cuModuleLoadData", e);
	}
	if (!e)
		sn.cuCtxPopCurrent_v2(&old);
	i->result = r;
	atomic_store(&c->async, (int)r);
	return NULL;
}

static void *init_alone(void *arg)
{
	pthread_setname_np(pthread_self(), "simnccl-init");
	init_run(arg);
	free(arg);
	return NULL;
}

/* -- groups ----------------------------------------------------------------------------------- */

static __thread struct {
	int depth;
	struct init *inits, **init_end;
	struct sn_task *tasks, **task_end;
	ncclResult_t error;
} group;

static ncclResult_t launch(struct sn_task *t)
{
	struct ncclComm *c = t->comm;
	CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
	CUlaunchConfig config = {1, 1, 1, 512, 1, 1, 0, t->stream, NULL, 0};
	void *params[] = {&t};
	bool captured = false; /* t may have run and be gone once it is launched */
	CUfunction f;
	CUcontext old;
	char name[96];
	CUresult e = sn.cuCtxPushCurrent_v2(c->ctx);

	if (e)
		return cuda_fail(c, "cuCtxPushCurrent", e);
	e = sn.cuStreamIsCapturing(t->stream, &capture);
	if (!e)
		e = sn.cuModuleGetFunction(&f, c->module, sn_kernel_name(t, name, sizeof(name)));
	if (!e) {
		t->captured = captured = capture == CU_STREAM_CAPTURE_STATUS_ACTIVE;
		if (!captured) {
			/* Numbered and launched in one: two threads must not swap. */
			pthread_mutex_lock(&c->launching);
			t->ticket = c->tickets++;
			atomic_fetch_add(&c->outstanding, 1);
		}
		e = sn.cuLaunchKernelEx(&config, f, params, NULL);
		if (!captured) {
			c->tickets -= e != CUDA_SUCCESS;
			pthread_mutex_unlock(&c->launching);
		}
		if (e && !captured)
			atomic_fetch_sub(&c->outstanding, 1);
	}
	sn.cuCtxPopCurrent_v2(&old);
	return e ? cuda_fail(c, "cuLaunchKernelEx", e) : ncclSuccess;
}

static ncclResult_t run_inits(void)
{
	struct init *next;
	ncclResult_t r = ncclSuccess;
	bool several = group.inits && group.inits->next;

	for (struct init *i = group.inits; i; i = i->next) {
		if (several)
			i->threaded = !pthread_create(&i->thread, NULL, init_run, i);
		if (!i->threaded)
			init_run(i);
	}
	for (struct init *i = group.inits; i; i = next) {
		next = i->next;
		if (i->threaded)
			pthread_join(i->thread,
				     NULL); /* all of them, whatever one says: as the real one */
		if (i->result && !r)
			r = i->result;
		if (i->kind == INIT_SPLIT && !i->comm->ranks && i->out)
			*i->out = NULL;
		free(i);
	}
	group.inits = NULL;
	return r;
}

/* Sends and receives of one communicator and stream become one kernel; the rest goes in order. */
static void fuse(void)
{
	for (struct sn_task *t = group.tasks; t; t = t->next) {
		struct sn_task **at;

		if (t->offer.op != SN_P2P)
			continue;
		for (at = &t->next; *at;) {
			struct sn_task *o = *at;

			if (o->offer.op != SN_P2P || o->comm != t->comm || o->stream != t->stream) {
				at = &o->next;
				continue;
			}
			t->p2p = realloc(t->p2p, (t->p2p_count + 1) * sizeof(*t->p2p));
			t->p2p[t->p2p_count++] = o->p2p[0];
			*at = o->next;
			free(o->p2p);
			free(o);
		}
	}
}

static ncclResult_t group_end(void)
{
	ncclResult_t r = group.error;
	struct sn_task *t, *next;

	if (--group.depth)
		return ncclSuccess;
	group.error = ncclSuccess;
	if (group.inits) {
		ncclResult_t ir = run_inits();

		r = r ? r : ir;
	}
	fuse();
	for (t = group.tasks; t; t = next) {
		next = t->next;
		if (!r)
			r = launch(t);
		else
			free(t);
	}
	group.tasks = NULL;
	return r;
}

API(ncclGroupStart, (void))
{
	group.depth++;
	return ncclSuccess;
}

API(ncclGroupEnd, (void))
{
	if (!group.depth)
		return fail(NULL, ncclInvalidUsage, "ncclGroupEnd: not in a group");
	return group_end();
}

API(ncclGroupSimulateEnd, (ncclSimInfo_t * info))
{
	struct sn_task *next;

	if (!group.depth)
		return fail(NULL, ncclInvalidUsage, "ncclGroupSimulateEnd: not in a group");
	if (info)
		info->estimatedTime = 1.0f;
	if (--group.depth)
		return ncclSuccess;
	for (struct sn_task *t = group.tasks; t; t = next) {
		next = t->next;
		free(t->p2p);
		free(t);
	}
	group.tasks = NULL;
	group.error = ncclSuccess;
	return ncclSuccess;
}

static ncclResult_t begin(struct init *i, ncclComm_t *out)
{
	struct ncclComm *c = i->comm;
	pthread_t t;

	i->out = out;
	*out = c;
	if (!c->blocking && !group.depth) {
		atomic_store(&c->async, ncclInProgress);
		if (pthread_create(&t, NULL, init_alone, i))
			return fail(c, ncclSystemError, "no thread");
		pthread_detach(t);
		return ncclInProgress;
	}
	group.depth++;
	if (!group.inits)
		group.init_end = &group.inits;
	*group.init_end = i;
	group.init_end = &i->next;
	return group_end();
}

static ncclResult_t init_rank(ncclComm_t *out, int ranks, const char *key, int rank, CUcontext ctx,
			      int dev, const ncclConfig_t *config)
{
	struct init *i;

	if (!out || ranks < 1 || ranks > SN_MAX_RANKS || rank < 0 || rank >= ranks)
		return fail(NULL, ncclInvalidArgument, "init: rank %d of %d", rank, ranks);
	i = calloc(1, sizeof(*i));
	if (i)
		i->comm = comm_new(rank, ranks, ctx, dev, config);
	if (!i || !i->comm)
		return fail(NULL, ncclSystemError, "no memory");
	memcpy(i->comm->key, key, sizeof(i->comm->key));
	return begin(i, out);
}

static ncclResult_t init_ids(ncclComm_t *out, int ranks, const ncclUniqueId *id, int rank,
			     const ncclConfig_t *config)
{
	CUcontext ctx;
	char key[40];
	int dev;
	CUresult e = current_context(&ctx, &dev);

	if (e)
		return cuda_fail(NULL, "cuCtxGetCurrent", e);
	if (memcmp(id->internal, "SIMNCCL", 8))
		return fail(NULL, ncclInvalidArgument, "the unique id is not from ncclGetUniqueId");
	key_of(id, sizeof(*id), key);
	return init_rank(out, ranks, key, rank, ctx, dev, config);
}

API(ncclCommInitRank, (ncclComm_t * out, int ranks, ncclUniqueId id, int rank))
{
	return init_ids(out, ranks, &id, rank, NULL);
}

API(ncclCommInitRankConfig,
    (ncclComm_t * out, int ranks, ncclUniqueId id, int rank, ncclConfig_t *config))
{
	if (config && config->magic != 0xcafebeef)
		return fail(NULL, ncclInvalidArgument, "the config was not initialised");
	return init_ids(out, ranks, &id, rank, config);
}

API(ncclCommInitRankScalable,
    (ncclComm_t * out, int ranks, int rank, int count, ncclUniqueId *ids, ncclConfig_t *config))
{
	if (count < 1 || !ids || (config && config->magic != 0xcafebeef))
		return fail(NULL, ncclInvalidArgument, "no id, or the config was not initialised");
	return init_ids(out, ranks, ids, rank, config);
}

API(ncclCommInitAll, (ncclComm_t * comms, int count, const int *devices))
{
	ncclUniqueId id;
	CUcontext ctx;
	char key[40];
	int dev, n = 0;
	CUresult e = current_context(&ctx, &dev);
	ncclResult_t r = ncclGetUniqueId(&id), end;

	if (e)
		return cuda_fail(NULL, "cuCtxGetCurrent", e);
	sn.cuDeviceGetCount(&n);
	if (!comms || count < 1 || count > n)
		return fail(NULL, ncclInvalidArgument, "ncclCommInitAll: %d devices of %d", count,
			    n);
	key_of(&id, sizeof(id), key);
	group.depth++;
	for (int i = 0; i < count && !r; i++) {
		dev = devices ? devices[i] : i;
		e = sn.cuDevicePrimaryCtxRetain(&ctx, dev);
		r = e ? cuda_fail(NULL, "cuDevicePrimaryCtxRetain", e)
		      : init_rank(&comms[i], count, key, i, ctx, dev, NULL);
	}
	end = group_end();
	return r ? r : end;
}

API(ncclCommSplit, (ncclComm_t parent, int color, int key, ncclComm_t *out, ncclConfig_t *config))
{
	struct init *i;

	if (!comm_valid(parent) || !out || (color < 0 && color != NCCL_SPLIT_NOCOLOR))
		return fail(NULL, ncclInvalidArgument,
			    "ncclCommSplit: no communicator, or color %d", color);
	i = calloc(1, sizeof(*i));
	i->comm = comm_new(0, 1, parent->ctx, parent->device, config);
	i->comm->blocking = config ? config->blocking != 0 : parent->blocking;
	i->parent = parent;
	i->kind = INIT_SPLIT;
	i->color = color;
	i->key = key;
	return begin(i, out);
}

API(ncclCommShrink,
    (ncclComm_t parent, int *without, int count, ncclComm_t *out, ncclConfig_t *config, int flags))
{
	struct {
		char parent[40];
		uint64_t number;
		uint8_t gone[SN_MAX_RANKS];
	} name;
	int rank = 0, ranks = 0;

	if (!comm_valid(parent) || !out || (count && !without) || count < 0 ||
	    count >= parent->ranks)
		return fail(NULL, ncclInvalidArgument,
			    "ncclCommShrink: no communicator or no list");
	memset(&name, 0, sizeof(name));
	memcpy(name.parent, parent->key, sizeof(name.parent));
	name.number = ++parent->shrinks | 1ull << 63;
	for (int i = 0; i < count; i++) {
		if (without[i] < 0 || without[i] >= parent->ranks || without[i] == parent->rank)
			return fail(parent, ncclInvalidArgument, "ncclCommShrink: rank %d",
				    without[i]);
		name.gone[without[i]] = 1;
	}
	for (int r = 0; r < parent->ranks; r++) {
		rank += r < parent->rank && !name.gone[r];
		ranks += !name.gone[r];
	}
	if (flags & NCCL_SHRINK_ABORT)
		atomic_store(&parent->abort, 1);
	{
		char key[40];

		key_of(&name, sizeof(name), key);
		return init_rank(out, ranks, key, rank, parent->ctx, parent->device, config);
	}
}

/* -- the end of a communicator ---------------------------------------------------------------- */

static void wait_outstanding(struct ncclComm *c)
{
	while (atomic_load(&c->outstanding))
		poll(NULL, 0, 1);
}

API(ncclCommFinalize, (ncclComm_t c))
{
	if (!comm_valid(c))
		return fail(NULL, ncclInvalidArgument, "ncclCommFinalize: not a communicator");
	if (c->finalized)
		return fail(c, ncclInvalidArgument, "ncclCommFinalize: called before");
	c->finalized = true;
	if (c->blocking)
		wait_outstanding(c);
	return ncclSuccess;
}

static void comm_free(struct ncclComm *c)
{
	give_buffer(c);
	c->magic = 0;
	if (c->s) {
		char path[128];

		path_of(c->key, path, sizeof(path));
		if (atomic_load(&c->s->attached) < (uint32_t)c->ranks)
			unlink(path); /* an init that was given up */
		munmap(c->s, c->mapped);
	}
	free(c->sends);
	free(c->recvs);
	free(c);
}

API(ncclCommDestroy, (ncclComm_t c))
{
	if (!c)
		return ncclSuccess;
	if (!comm_valid(c))
		return fail(NULL, ncclInvalidArgument, "ncclCommDestroy: not a communicator");
	wait_outstanding(c);
	comm_free(c);
	return ncclSuccess;
}

API(ncclCommAbort, (ncclComm_t c))
{
	if (!c)
		return ncclSuccess;
	if (!comm_valid(c))
		return fail(NULL, ncclInvalidArgument, "ncclCommAbort: not a communicator");
	atomic_store(&c->abort, 1);
	while (atomic_load(&c->async) == ncclInProgress)
		poll(NULL, 0, 1);
	/* Kernels that the stream has not reached yet end at once when it does. */
	wait_outstanding(c);
	comm_free(c);
	return ncclSuccess;
}

API(ncclCommRevoke, (ncclComm_t c, int flags))
{
	if (!comm_valid(c) || flags)
		return fail(NULL, ncclInvalidArgument, "ncclCommRevoke: not a communicator");
	atomic_store(&c->abort, 1);
	return ncclSuccess;
}

/* -- questions -------------------------------------------------------------------------------- */

API(ncclCommGetAsyncError, (ncclComm_t c, ncclResult_t *out))
{
	if (!comm_valid(c) || !out)
		return fail(NULL, ncclInvalidArgument, "ncclCommGetAsyncError: not a communicator");
	*out = (ncclResult_t)atomic_load(&c->async);
	if (*out == ncclSuccess && c->finalized && atomic_load(&c->outstanding))
		*out = ncclInProgress;
	return ncclSuccess;
}

API(ncclCommCount, (const ncclComm_t c, int *out))
{
	if (!comm_valid(c) || !out)
		return fail(NULL, ncclInvalidArgument, "ncclCommCount: not a communicator");
	*out = c->ranks;
	return ncclSuccess;
}

API(ncclCommCuDevice, (const ncclComm_t c, int *out))
{
	if (!comm_valid(c) || !out)
		return fail(NULL, ncclInvalidArgument, "ncclCommCuDevice: not a communicator");
	*out = c->device;
	return ncclSuccess;
}

API(ncclCommUserRank, (const ncclComm_t c, int *out))
{
	if (!comm_valid(c) || !out)
		return fail(NULL, ncclInvalidArgument, "ncclCommUserRank: not a communicator");
	*out = c->rank;
	return ncclSuccess;
}

API(ncclGetVersion, (int *out))
{
	if (!out)
		return fail(NULL, ncclInvalidArgument, "ncclGetVersion: NULL");
	*out = NCCL_VERSION_CODE;
	return ncclSuccess;
}

__typeof__(ncclGetErrorString) pncclGetErrorString __attribute__((alias("ncclGetErrorString")));
const char *ncclGetErrorString(ncclResult_t r)
{
	switch ((int)r) {
	case ncclSuccess:
		return "no error";
	case ncclUnhandledCudaError:
		return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
	case ncclSystemError:
		return "unhandled system error (run with NCCL_DEBUG=INFO for details)";
	case ncclInternalError:
		return "internal error - please report this issue to the NCCL developers";
	case ncclInvalidArgument:
		return "invalid argument (run with NCCL_DEBUG=WARN for details)";
	case ncclInvalidUsage:
		return "invalid usage (run with NCCL_DEBUG=WARN for details)";
	case ncclRemoteError:
		return "remote process exited or there was a network error";
	case ncclInProgress:
		return "NCCL operation in progress";
	default:
		return "unknown result code";
	}
}

__typeof__(ncclGetLastError) pncclGetLastError __attribute__((alias("ncclGetLastError")));
const char *ncclGetLastError(ncclComm_t c)
{
	return comm_valid(c) && c->last_error[0] ? c->last_error : thread_error;
}

__typeof__(ncclResetDebugInit) pncclResetDebugInit __attribute__((alias("ncclResetDebugInit")));
void ncclResetDebugInit(void)
{
}

API(ncclCommRegister, (const ncclComm_t c, void *buf, size_t size, void **handle))
{
	if (!comm_valid(c) || !buf || !size || !handle)
		return fail(NULL, ncclInvalidArgument, "ncclCommRegister: NULL");
	*handle = buf;
	return ncclSuccess;
}

API(ncclCommDeregister, (const ncclComm_t c, void *handle))
{
	(void)handle;
	return comm_valid(c) ? ncclSuccess
			     : fail(NULL, ncclInvalidArgument, "ncclCommDeregister: NULL");
}

API(ncclRedOpCreatePreMulSum, (ncclRedOp_t * op, void *scalar, ncclDataType_t type,
			       ncclScalarResidence_t where, ncclComm_t c))
{
	if (!op || !scalar || !comm_valid(c) || type < 0 || type >= ncclNumTypes)
		return fail(NULL, ncclInvalidArgument, "ncclRedOpCreatePreMulSum: NULL, or type %d",
			    (int)type);
	for (int i = 0; i < 32; i++) {
		if (c->redops[i].used)
			continue;
		c->redops[i].used = true;
		c->redops[i].type = (int)type;
		c->redops[i].device = where == ncclScalarDevice;
		c->redops[i].where = scalar;
		if (!c->redops[i].device) {
			float wide[2] = {0, 0};

			switch (type) {
			case ncclInt8:
				c->redops[i].value = *(int8_t *)scalar;
				break;
			case ncclUint8:
				c->redops[i].value = *(uint8_t *)scalar;
				break;
			case ncclInt32:
				c->redops[i].value = *(int32_t *)scalar;
				break;
			case ncclUint32:
				c->redops[i].value = *(uint32_t *)scalar;
				break;
			case ncclInt64:
				c->redops[i].value = (double)*(int64_t *)scalar;
				break;
			case ncclUint64:
				c->redops[i].value = (double)*(uint64_t *)scalar;
				break;
			case ncclFloat32:
				c->redops[i].value = (double)*(float *)scalar;
				break;
			case ncclFloat64:
				c->redops[i].value = *(double *)scalar;
				break;
			default: /* narrow: keep its bits and read them when it runs */
				memcpy(wide, scalar, sn_type_size(type));
				c->redops[i].where = memcpy(malloc(8), wide, 8);
				c->redops[i].device = true;
			}
		}
		*op = (ncclRedOp_t)(ncclNumOps + i);
		return ncclSuccess;
	}
	return fail(c, ncclInternalError, "too many reduction operations");
}

API(ncclRedOpDestroy, (ncclRedOp_t op, ncclComm_t c))
{
	int i = (int)op - (int)ncclNumOps;

	if (!comm_valid(c) || i < 0 || i >= 32 || !c->redops[i].used)
		return fail(NULL, ncclInvalidArgument, "ncclRedOpDestroy: not one");
	c->redops[i].used = false;
	return ncclSuccess;
}

/* -- operations ------------------------------------------------------------------------------- */

static ncclResult_t give(struct ncclComm *c, const struct sn_offer *o, const void *send, void *recv,
			 struct sn_p2p *p2p, cudaStream_t stream)
{
	struct sn_task *t;
	ncclResult_t r = ncclSuccess;

	if (!comm_valid(c))
		r = fail(NULL, ncclInvalidArgument, "not a communicator");
	else if (o->type >= ncclNumTypes)
		r = fail(c, ncclInvalidArgument, "type %u", o->type);
	else if (o->redop >= ncclNumOps && o->op != SN_P2P &&
		 (o->redop >= ncclNumOps + 32 || !c->redops[o->redop - ncclNumOps].used))
		r = fail(c, ncclInvalidArgument, "reduction operation %u", o->redop);
	else if ((int)o->root < 0 || (int)o->root >= c->ranks)
		r = fail(c, ncclInvalidArgument, "root or peer %d of %d", (int)o->root, c->ranks);
	else if (atomic_load(&c->async) == ncclInProgress || c->finalized)
		r = fail(c, ncclInvalidUsage, "the communicator is not ready");
	if (r) {
		if (group.depth)
			group.error = r;
		return r;
	}
	t = calloc(1, sizeof(*t));
	if (!t)
		return fail(c, ncclSystemError, "no memory");
	t->comm = c;
	t->offer = *o;
	t->send = send;
	t->recv = recv;
	t->stream = (CUstream)stream;
	if (p2p) {
		t->p2p = malloc(sizeof(*p2p));
		*t->p2p = *p2p;
		t->p2p_count = 1;
	}
	group.depth++;
	if (!group.tasks)
		group.task_end = &group.tasks;
	*group.task_end = t;
	group.task_end = &t->next;
	return group_end();
}

API(ncclAllReduce, (const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op,
		    ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_ALLREDUCE, t, op, 0, n};

	return give(c, &o, s, r, NULL, st);
}

API(ncclReduce, (const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op, int root,
		 ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_REDUCE, t, op, (uint32_t)root, n};

	return give(c, &o, s, r, NULL, st);
}

API(ncclBroadcast,
    (const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_BROADCAST, t, 0, (uint32_t)root, n};

	return give(c, &o, s, r, NULL, st);
}

API(ncclBcast, (void *b, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_BROADCAST, t, 0, (uint32_t)root, n};

	return give(c, &o, b, b, NULL, st);
}

API(ncclAllGather,
    (const void *s, void *r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_ALLGATHER, t, 0, 0, n};

	return give(c, &o, s, r, NULL, st);
}

API(ncclReduceScatter, (const void *s, void *r, size_t n, ncclDataType_t t, ncclRedOp_t op,
			ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_REDUCESCATTER, t, op, 0, n};

	return give(c, &o, s, r, NULL, st);
}

API(ncclAlltoAll,
    (const void *s, void *r, size_t n, ncclDataType_t t, ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_ALLTOALL, t, 0, 0, n};

	return give(c, &o, s, r, NULL, st);
}

API(ncclGather,
    (const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_GATHER, t, 0, (uint32_t)root, n};

	return give(c, &o, s, r, NULL, st);
}

API(ncclScatter,
    (const void *s, void *r, size_t n, ncclDataType_t t, int root, ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_SCATTER, t, 0, (uint32_t)root, n};

	return give(c, &o, s, r, NULL, st);
}

API(ncclSend, (const void *s, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_P2P, t, 0, (uint32_t)peer, n};
	struct sn_p2p p = {
		.send = true, .peer = peer, .buf = (void *)s, .bytes = n * sn_type_size(t)};

	return give(c, &o, NULL, NULL, &p, st);
}

API(ncclRecv, (void *r, size_t n, ncclDataType_t t, int peer, ncclComm_t c, cudaStream_t st))
{
	struct sn_offer o = {SN_P2P, t, 0, (uint32_t)peer, n};
	struct sn_p2p p = {.peer = peer, .buf = r, .bytes = n * sn_type_size(t)};

	return give(c, &o, NULL, NULL, &p, st);
}
