/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - inside the simulated libcuda.so.1.
 *
 * One lock, sg.lock, guards every structure; it is never held while anything waits. Streams,
 * events and contexts come from pools that never give memory back, and a stream's sequence
 * numbers only grow, also when its structure is used again: "(stream, seq) is done" is always
 * a question that can be asked, without a lock, by reading stream->completed.
 *
 * What is measured or documented about the real driver stands beside the code that copies it.
 */
#ifndef SIMGPU_SIM_H
#define SIMGPU_SIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include "cuda.h"
#pragma GCC visibility pop

#include "image.h"

#define SG_MAX_DEVICES 16
#define SG_QUEUE 1024	      /* launches a stream takes before the launching call waits */
#define SG_STAGED (64u << 10) /* pageable copies up to this size are staged and return at once */
#define SG_ALIGN 512u
#define SG_PAGE 4096u
#define SG_GRANULARITY (2u << 20) /* of virtual memory, as on the real ones */
#define SG_CTX_STACK 64

#define SG_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SG_MAX(a, b) ((a) > (b) ? (a) : (b))
#define SG_UP(x, a) (((x) + (a)-1) / (a) * (a))

struct sg_ctx;
struct sg_stream;
struct sg_event;
struct sg_graph;
struct sg_capture;
struct sg_pool;

/* Free ranges of an address space, sorted by start. */
struct sg_span {
	uint64_t start, size;
};
struct sg_space {
	struct sg_span *free;
	size_t count, room;
};

struct sg_device {
	int index;
	uint8_t *arena; /* all device memory of this process: one mapping of one memfd */
	size_t arena_size;
	int memfd;
	struct sg_space space;
	struct sg_ctx *primary;
	unsigned int primary_flags;
	int primary_refs;
	struct sg_pool *default_pool, *pool;
	size_t graph_reserved, graph_reserved_high;
};

enum sg_kind { /* of memory */
	       SG_MEM_DEVICE = 1,
	       SG_MEM_MANAGED,
	       SG_MEM_HOST, /* cuMemHostAlloc */
	       SG_MEM_REGISTERED,
	       SG_MEM_POOL,   /* stream-ordered */
	       SG_MEM_CHUNK,  /* what a pool holds of the device; not found by address */
	       SG_MEM_MAPPED, /* virtual memory with something mapped */
	       SG_MEM_IPC,
	       SG_MEM_ARRAY,
	       SG_MEM_GLOBAL, /* a module's variable */
};

struct sg_alloc {
	uint64_t addr;
	uint64_t size;	  /* as asked */
	uint64_t charged; /* what it takes of the device */
	enum sg_kind kind;
	int device; /* -1: host */
	struct sg_ctx *ctx;
	unsigned int flags;
	uint64_t buffer_id;
	uint64_t map_base, map_size; /* host mapping to undo, when there is one */
	struct sg_pool *pool;
	struct sg_chunk *chunk;
	struct sg_stream *free_stream; /* freed in this stream's order, not reached yet */
	bool taken;		       /* ... and given out again in the same order meanwhile */
	struct sg_alloc *next_freed;
	struct sg_vmm *vmm;
	uint64_t vmm_offset;
	unsigned int access; /* bit per device, VMM */
	bool freeing;
	bool sync_memops;
	int refs;
	char ipc_key[64];
};

enum sg_stream_kind { SG_STREAM_USER, SG_STREAM_LEGACY, SG_STREAM_THREAD, SG_STREAM_INTERNAL };

#define SG_STREAM_MAGIC 0x53545245u
#define SG_EVENT_MAGIC 0x45564e54u
#define SG_CTX_MAGIC 0x43545854u

struct sg_waiter { /* an API call that blocks instead of polling */
	struct sg_waiter *next;
	uint64_t seq;
	int eventfd;
};

struct sg_stream {
	uint32_t magic;
	struct sg_ctx *ctx;
	struct sg_device *dev;
	enum sg_stream_kind kind;
	unsigned int flags; /* CU_STREAM_NON_BLOCKING */
	int priority;
	uint64_t id;
	_Atomic uint64_t enqueued, completed;
	_Atomic int pending; /* items in the queue, running one included */
	struct sg_item *head, *tail;
	bool busy;   /* the worker is executing the head */
	bool worker; /* a thread serves it */
	bool sleeping;
	pthread_cond_t wake; /* worker: something to do */
	pthread_cond_t done; /* other workers: completed has grown */
	int done_waiters;
	struct sg_waiter *waiters;
	struct sg_capture *capture;
	struct sg_node_set *capture_deps;
	struct sg_stream *next; /* in the context's list */
	CUstreamAttrValue attrs[8];
};

struct sg_event_slot { /* shared between processes, for events with CU_EVENT_INTERPROCESS */
	_Atomic uint64_t recorded, completed;
	_Atomic uint32_t used, nonce;
};

struct sg_event {
	uint32_t magic;
	struct sg_ctx *ctx;
	unsigned int flags;
	struct sg_stream *stream; /* where it was last recorded; NULL: never */
	uint64_t seq;
	uint64_t done_ns; /* CLOCK_MONOTONIC when that record was reached */
	struct sg_capture *capture;
	uint64_t capture_id;
	struct sg_node_set *capture_deps;
	struct sg_event_slot *slot;
	bool imported;
	struct sg_event *next;
};

struct sg_ctx {
	uint32_t magic;
	struct sg_device *dev;
	bool primary;
	bool dead;
	unsigned int flags;
	uint64_t id;
	unsigned int api_version;
	_Atomic int fault; /* sticky CUresult */
	pthread_mutex_t
		api; /* held over a lazy load: every other call of the context queues here */
	_Atomic int api_held;
	struct sg_stream legacy; /* never in the list of streams */
	struct sg_stream *streams;
	struct sg_module *modules;
	unsigned int peers; /* bit per device */
	size_t limits[16];
	CUfunc_cache cache;
	CUsharedconfig sharing;
	struct sg_ctx *next;
};

enum sg_behaviour { SG_K_END, SG_K_SPIN, SG_K_SLEEP, SG_K_NATIVE };

struct sg_func {
	uint32_t magic;
	char *name; /* as it was asked for */
	enum sg_behaviour what;
	uint64_t sleep_us;
	const struct simgpu_kernel *native;
	struct sg_module *module;
	_Atomic int loaded;
	int attrs[24];
	struct sg_func *next;
	struct sg_kernel *kernel; /* the library kernel this is an instance of, or NULL */
};

struct sg_module {
	uint32_t magic;
	struct sg_ctx *ctx;
	struct sg_library *library;
	const struct simgpu_image *native;
	struct sg_func *funcs;
	struct sg_global *globals;
	struct sg_module *next;
	char **names; /* kernels found in the image, when it could be read */
	unsigned int name_count;
	bool unloaded;
};

struct sg_copy { /* a box of bytes */
	uint8_t *dst;
	const uint8_t *src;
	size_t dpitch, dslice, spitch, sslice;
	size_t width, height, depth;
	void *staged; /* to free afterwards */
};

struct sg_set {
	uint8_t *dst;
	size_t pitch, width, height; /* width in elements */
	uint32_t value;
	uint8_t elem;
};

enum sg_op_kind {
	SG_OP_KERNEL = 1,
	SG_OP_COPY,
	SG_OP_SET,
	SG_OP_HOST,
	SG_OP_CALLBACK,
	SG_OP_RECORD,
	SG_OP_WAIT, /* until (stream, seq) is done, or a shared slot has completed seq */
	SG_OP_WAIT_VALUE,
	SG_OP_WRITE_VALUE,
	SG_OP_FREE,
	SG_OP_NOP,
	SG_OP_CHILD, /* graphs only */
	SG_OP_ALLOC, /* graphs only */
	SG_OP_BATCH, /* graphs only */
};

struct sg_op {
	enum sg_op_kind kind;
	union {
		struct {
			struct sg_func *func;
			void *params;			 /* owned; for native kernels */
			CUDA_KERNEL_NODE_PARAMS_v2 node; /* as graphs report it; params not owned */
		} kernel;
		struct {
			struct sg_copy box;
			CUDA_MEMCPY3D node;
		} copy;
		struct {
			struct sg_set box;
			CUDA_MEMSET_NODE_PARAMS node;
		} set;
		struct {
			CUhostFn fn;
			void *user;
		} host;
		struct {
			CUstreamCallback fn;
			void *user;
		} callback;
		struct {
			struct sg_event *event;
			uint64_t slot_seq;
			unsigned int flags;
		} record;
		struct {
			struct sg_event *event;
			struct sg_stream *stream;
			struct sg_event_slot *slot;
			uint64_t seq;
		} wait;
		struct {
			uint64_t addr, value;
			unsigned int flags;
			bool wide;
		} value;
		struct {
			struct sg_alloc *alloc;
		} free;
		struct {
			struct sg_graph *graph;
		} child;
		struct {
			CUDA_MEM_ALLOC_NODE_PARAMS node;
		} alloc;
		struct {
			CUstreamBatchMemOpParams *ops;
			unsigned int count;
		} batch;
	};
};

struct sg_dep {
	struct sg_stream *stream;
	uint64_t seq;
};

struct sg_item {
	struct sg_item *next;
	uint64_t seq;
	struct sg_op op;
	struct sg_dep *deps;
	unsigned int dep_count;
};

struct sg_state {
	pthread_mutex_t lock;
	_Atomic int ready;  /* cuInit succeeded */
	_Atomic int forked; /* this is a child of a process that had initialised */
	int devices;
	uint64_t memory, context_cost;
	bool launch_blocking, lazy, lazy_sync, alloc_sync;
	uint64_t pin_rate;
	struct sg_device dev[SG_MAX_DEVICES];
	struct sg_ctx *contexts;
	uint64_t next_id;
	int log_fd;
};
extern struct sg_state sg;

/* entry.c */
CUresult sg_enter(void);		    /* initialised, and not a forked child */
CUresult sg_enter_ctx(struct sg_ctx **out); /* ... and a current context without a sticky error */
void sg_log(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
#define SG_LOG(...)                                                                                \
	do {                                                                                       \
		if (sg.log_fd >= 0)                                                                \
			sg_log(__VA_ARGS__);                                                       \
	} while (0)
uint64_t sg_now_ns(void);
uint64_t sg_parse_size(const char *name, uint64_t fallback);
void sg_lock(void);
void sg_unlock(void);

/* account.c: device memory of all processes, in a shared file */
int sg_account_open(void);
int sg_charge(int dev, uint64_t bytes); /* 0 or -1 */
void sg_uncharge(int dev, uint64_t bytes);
uint64_t sg_used(int dev); /* by all live processes */

/* context.c */
struct sg_ctx *sg_current(void);
CUresult sg_ctx_create(struct sg_device *dev, unsigned int flags, bool primary,
		       struct sg_ctx **out);
CUresult sg_ctx_valid(struct sg_ctx *ctx);
CUresult sg_primary_get(struct sg_device *dev, struct sg_ctx **out); /* created when missing */
void sg_api_gate(struct sg_ctx *ctx); /* waits while another thread holds the context */
void sg_api_hold(struct sg_ctx *ctx);
void sg_api_release(struct sg_ctx *ctx);
void sg_device_drain(struct sg_device *dev, unsigned int sched);

/* memory.c */
struct sg_alloc *sg_find(uint64_t addr); /* locked */
void sg_ranges_add(struct sg_alloc *a);
void sg_ranges_del(struct sg_alloc *a);
int sg_space_take(struct sg_space *s, uint64_t size, uint64_t align, uint64_t *start);
void sg_space_give(struct sg_space *s, uint64_t start, uint64_t size);
CUresult sg_device_take(struct sg_device *dev, uint64_t size, uint64_t align, uint64_t *addr);
void sg_device_give(struct sg_device *dev, uint64_t addr, uint64_t size);
bool sg_backed(uint64_t addr, uint64_t size); /* device code may touch it; locked */
bool sg_is_pinned(const void *p);
void sg_ctx_free_memory(struct sg_ctx *ctx);
uint64_t sg_array_data(CUarray a, size_t *pitch, size_t *height, size_t *elem);
int sg_open_peer_fd(pid_t pid, int fd);

/* stream.c */
extern __thread bool sg_in_callback; /* this thread runs a host function: CUDA is not permitted */
CUresult sg_stream_resolve(CUstream h, bool pt,
			   struct sg_stream **out); /* with its context checks */
struct sg_stream *sg_stream_new(struct sg_ctx *ctx, enum sg_stream_kind kind, unsigned int flags,
				int priority);
void sg_stream_init(struct sg_stream *s, struct sg_ctx *ctx, enum sg_stream_kind kind);
void sg_stream_drop(struct sg_stream *s);
CUresult sg_submit(struct sg_stream *s, struct sg_op *op, uint64_t *seq); /* takes op's memory */
uint64_t sg_enqueue_locked(struct sg_stream *s, struct sg_op *op, const struct sg_dep *deps,
			   unsigned int dep_count);
void sg_op_free(struct sg_op *op);
void sg_wait_seq(struct sg_stream *s, uint64_t seq, unsigned int sched);
bool sg_done(const struct sg_stream *s, uint64_t seq);
void sg_ctx_drain(struct sg_ctx *ctx, unsigned int sched);
void sg_all_drain(unsigned int sched);
CUresult sg_ctx_idle(struct sg_ctx *ctx);
unsigned int sg_sched(struct sg_ctx *ctx);
void sg_fault(struct sg_ctx *ctx, CUresult why);
CUresult sg_event_valid(struct sg_event *e);
void sg_event_mark(struct sg_event *e, struct sg_stream *s, uint64_t seq);

/* module.c */
struct sg_func *sg_func_of(CUfunction f, struct sg_ctx *ctx); /* a CUfunction or a CUkernel */
CUresult sg_native_params(const struct sg_func *f, void **params, void **extra, void **out);
void sg_name_behaviour(const char *name, enum sg_behaviour *what, uint64_t *sleep_us);
void sg_ctx_free_modules(struct sg_ctx *ctx);

/* pool.c */
struct sg_pool *sg_pool_default(struct sg_device *dev);
void sg_pool_return(struct sg_alloc *a);   /* reached in stream order; locked */
void sg_pools_trim(struct sg_device *dev); /* after a synchronisation; locked */
CUresult sg_pool_alloc(struct sg_pool *p, struct sg_stream *s, uint64_t size, uint64_t *addr);
void sg_pools_gone(struct sg_device *dev); /* the device's last context ends */
void sg_pool_stream_gone(struct sg_stream *s);

/* vmm.c */
bool sg_vmm_backed(struct sg_alloc *a, uint64_t addr, uint64_t size);

/* capture.c */
bool sg_event_captured(struct sg_event *e);			   /* locked */
CUresult sg_capture_op(struct sg_stream *s, struct sg_op *op);	   /* locked; s captures */
CUresult sg_capture_wait(struct sg_stream *s, struct sg_event *e); /* locked; e was captured */
void sg_capture_record(struct sg_stream *s, struct sg_event *e);   /* locked */
CUresult sg_capture_unsafe(struct sg_ctx *ctx); /* a call that a global capture forbids */
CUresult sg_capture_sync(struct sg_stream *s);	/* a call that breaks a capture of this stream */
CUresult sg_capture_legacy(struct sg_ctx *ctx); /* the legacy stream while others capture */
void sg_capture_event_gone(struct sg_event *e);

#endif
