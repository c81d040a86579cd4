/* SPDX-License-Identifier: Apache-2.0 */
/*
 * queues.h - what streams.c, positions.c, pace.c, events.c and kernels.c share (internal to these).
 *
 * The entries in the recorder file are for the reader; what the writer needs for itself (keys,
 * claims, states) stands in private arrays of the same index, so that nothing another process
 * writes into the file can lead this one astray.
 *
 * Indices into STREAMS are int32_t; -1 is "unrecorded": no recorder, no context, tables full.
 */
#ifndef WG_QUEUES_H
#define WG_QUEUES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "hooks.h"
#include "recorder.h"
#include "streams.h"

#define WG_MAX_STREAMS 1024
#define WG_MAX_CONTEXTS 64
#define WG_TLS __attribute__((tls_model("initial-exec")))
#ifndef wg_likely
#define wg_likely(x) __builtin_expect(!!(x), 1)
#define wg_unlikely(x) __builtin_expect(!!(x), 0)
#endif

/* Results of the driver that matter here. */
enum {
	WG_CUDA_SUCCESS = 0,
	WG_CUDA_INVALID_CONTEXT = 201,
	WG_CUDA_CONTEXT_DESTROYED = 709,
	WG_CUDA_ALREADY_REGISTERED = 712,
	WG_CUDA_CAPTURE_FIRST = 900, /* ... 908: the many ways of "not during capture" */
	WG_CUDA_CAPTURE_LAST = 908,
};

/* libcuda's own functions, legacy flavour; NULL where the driver lacks one. */
struct wg_real_queues {
	int (*ctx_current)(uint64_t *ctx);
	int (*ctx_device)(int *device);
	int (*ctx_id)(uint64_t ctx, unsigned long long *id);
	int (*ctx_push)(uint64_t ctx);
	int (*ctx_pop)(uint64_t *ctx);
	int (*is_capturing)(uint64_t stream, int *status);
	int (*stream_flags)(uint64_t stream, unsigned int *flags);
	int (*stream_ctx)(uint64_t stream, uint64_t *ctx);
	int (*write32)(uint64_t stream, uint64_t address, uint32_t value, unsigned int flags);
	int (*capture_mode)(int *mode);
	int (*host_register)(void *address, uint64_t bytes, unsigned int flags);
	int (*host_pointer)(uint64_t *device_address, void *address, unsigned int flags);
	int (*func_name)(const char **name, uint64_t function);
	int (*kernel_name)(const char **name, uint64_t kernel);
};
extern struct wg_real_queues wg_rq;

enum wg_slot_state { WG_SLOT_FREE, WG_SLOT_LIVE, WG_SLOT_DYING, WG_SLOT_GONE };

/*
 * Private half of a STREAMS entry. One cache line that every item reads, one that writes change: a thread
 * that marks its stream must not take the line away under another thread that gives to the next one.
 */
struct wg_slot {
	_Atomic uint32_t state; /* enum wg_slot_state */
	uint64_t handle;	/* the key: 0 legacy, 2 per-thread, else CUstream */
	uint64_t ctx;
	uint32_t tid;
	int32_t context;	/* index into contexts, -1 none */
	uint32_t ring;		/* first entry in ITEMS, UINT32_MAX none (yet) */
	bool no_ring;		/* none was left */
	uint32_t word;		/* index into POSITIONS, UINT32_MAX none yet */
	_Atomic uint32_t stop;	/* writes were refused: no more on this stream */
	bool blocking;		/* waits for the legacy default stream and is waited for by it */
	uint64_t moved_at;	/* tick: last time that it moved or had nothing to do. The helper's */

	_Atomic uint64_t claimed __attribute__((aligned(64))); /* newest value set out to write */
	_Atomic uint64_t mark_at; /* ticks of the last write */
	_Atomic uint64_t turn;	/* of its context: when it came after another (wg_context_gave()) */
	_Atomic uint32_t busy;	/* threads inside a position write on this handle */
	_Atomic uint64_t next_seq; /* from this item on a write may be due, whatever the clock says */
	_Atomic uint64_t paced_seq; /* from this one on it is, by the stream's own time */
	_Atomic uint64_t looked_at; /* ticks: the GPU was behind at the writes since; 0 it was not */
	_Atomic uint64_t looked_done; /* and how far it had come then */
};
_Static_assert(sizeof(struct wg_slot) == 128, "two cache lines");

struct wg_queues { /* set up once; zero until then */
	struct wgrec_stream *streams;
	struct wgrec_item *items;
	uint32_t *positions;
	struct wgrec_event *events;
	uint32_t nstreams, nrings, nevents, npositions;
	uint64_t poll_ticks; /* who polls for longer than this gets a write */
	_Atomic uint64_t rest_ticks; /* pace.c: a stream this long without a write gets one */
	_Atomic uint32_t captures; /* graph captures under way, as far as seen */
};
extern struct wg_queues wg_q;
extern struct wg_slot wg_slots[WG_MAX_STREAMS];

/* streams.c */
extern uint64_t wg_destroy_patience; /* ns that a destroy waits for another thread's write */
int32_t wg_slot_find(struct wg_streamref s, bool create);
/* wg_stream_give(), which also says to which stream. seq 0: unrecorded or captured */
struct wg_given {
	uint64_t seq;
	int32_t slot;
};
struct wg_given wg_give(struct wg_streamref s, enum wgrec_op op, uint64_t object, uint64_t value,
			uint16_t flags, uint32_t name, uint32_t other);
uint32_t wg_own_tid(void);
uint64_t wg_current_ctx(void); /* 0 none */
void wg_slot_retire(int32_t i); /* its context is gone, or it was destroyed */
static inline struct wgrec_stream *wg_stream_at(int32_t i) { return &wg_q.streams[i]; }

/* pace.c */
enum wg_worth { WG_WORTH_IT, WG_WORTH_COLLECTIVE };
/* Is a write due with this item? Not for what is decided by next_seq and rest_ticks alone. */
bool wg_pace_due(int32_t i, uint64_t seq, enum wgrec_op op, uint64_t now);
/* May this thread spend a write on what is about to hold the stream up? Counts it as spent. */
bool wg_pace_afford(uint64_t now, enum wg_worth worth);
/* A write of seq was issued; before it, `marked` was the newest and the GPU had come to `done`. */
void wg_pace_wrote(int32_t i, uint64_t seq, uint64_t marked, uint64_t done, uint64_t began,
		   uint64_t ended);
void wg_pace_forget(int32_t i); /* a new stream in the entry */
void wg_pace_tick(void);
void wg_pace_start(uint64_t tick_ns_20);

/* Up to here a write stands, or it is done anyway. */
static inline uint64_t wg_not_covered_from(const struct wgrec_stream *st)
{
	uint64_t marked = __atomic_load_n(&st->marked, __ATOMIC_RELAXED);
	uint64_t proven = __atomic_load_n(&st->proven, __ATOMIC_RELAXED);

	return marked > proven ? marked : proven;
}

/* positions.c */
int32_t wg_context_find(uint64_t ctx); /* adds it; -1 table full */
void wg_context_gave(int32_t context, int32_t stream); /* work went to a blocking stream */
void wg_position_prepare(int32_t i);
void wg_position_mark(int32_t i, bool push); /* push: make its context current meanwhile */
/* The same if there is anything to cover and this thread can afford it (pace.c). Is all covered? */
bool wg_position_mark_worth(int32_t i, bool push, enum wg_worth worth, uint64_t now);
void wg_position_poll(int32_t i, uint64_t now);
bool wg_context_waits(int32_t context); /* for its page, or to be looked at again */
/* 1 capturing, 0 not, -1 may not be asked or written now */
int wg_capture_status(int32_t i);
extern _Atomic uint32_t wg_generation; /* +1 when contexts may have gone */
extern __thread uint32_t wg_last_generation WG_TLS;
static inline bool wg_contexts_changed(void) /* a reset or release went by, unseen by this thread */
{
	return atomic_load_explicit(&wg_generation, memory_order_relaxed) != wg_last_generation;
}
void wg_positions_start(void);
void wg_positions_fork_child(void);

/* kernels.c */
#define WG_KERNELS 16384u
extern struct wg_kernel {
	_Atomic uint64_t function;
	_Atomic uint64_t check_name; /* hash << 32 | string reference */
} wg_kernels[WG_KERNELS];
bool wg_kernel_search(uint64_t f, uint32_t *name);
static inline bool wg_kernel_known(uint64_t f, uint32_t *name) /* launched before; its string or 0 */
{
	uint64_t h = wgrec_hash(f), v;
	struct wg_kernel *k = &wg_kernels[(h >> 32) % WG_KERNELS];

	if (wg_likely(atomic_load_explicit(&k->function, memory_order_acquire) == f)) {
		v = atomic_load_explicit(&k->check_name, memory_order_acquire);
		*name = (uint32_t)v;
		if (wg_likely(v >> 32 == (uint32_t)h))
			return true;
	}
	return wg_kernel_search(f, name);
}
uint32_t wg_kernel_ask(uint64_t f); /* the driver, and keep it; 0 unknown */

/* events.c: where the event was recorded last; flags get WAIT_EVENT flags. */
void wg_event_where(uint64_t event, uint32_t *stream, uint64_t *seq, uint16_t *flags);
void wg_events_start(void);
void wg_events_fork_child(void);

static inline void wg_max64(uint64_t *word, uint64_t value, uint64_t *before)
{
	uint64_t old = __atomic_load_n(word, __ATOMIC_RELAXED);

	while (old < value && !__atomic_compare_exchange_n(word, &old, value, true,
							   __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		;
	if (before)
		*before = old;
}

#endif
