/* SPDX-License-Identifier: Apache-2.0 */
/*
 * streams.h - what the wrappers tell about the GPU's queues.
 *
 * The seam between the wrappers (driver.c, runtime.c, nccl.c) and streams.c, which
 * keeps, per stream, what was given to it (ring of items), how far the GPU has come
 * (position words that the GPU itself writes into the recorder's page), and where
 * events were recorded. Called on the calling thread. No function here may block,
 * take a lock that a fork could leave held, call malloc, change the CUDA error state
 * or the current context, or issue anything into a capturing stream.
 *
 * Hot: wg_stream_give() is on the launch path; its budget is 15 ns, and for position writes a
 * 500th of the thread's time (pace.c).
 */
#ifndef WG_STREAMS_H
#define WG_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder.h"

/*
 * How a call names its stream: the handle, and whether the call is of the per-thread
 * flavour (then handle 0 means this thread's own default stream). Handle 1 is
 * CU_STREAM_LEGACY, 2 CU_STREAM_PER_THREAD in either flavour.
 */
struct wg_streamref { /* two registers */
	uint64_t handle;
	uint64_t ptsz : 1;
	uint64_t at : 63; /* ticks at entry of the call, 0: not known, ask */
};

/* What a wait waits for, as it stood before the wait began. All 0: for nothing that is known. */
struct wg_before {
	uint64_t where; /* stream or event, + 1 */
	uint64_t seq;	/* stream: its newest item. Event: its last record, as a word of events.c */
};

/*
 * After a successful call that put work on the stream, while that call is still the thread's
 * call in flight (a position write may block as a launch does, when the queue is full: then the
 * record shows the launch). Returns the item's seq; 0 if unrecorded, or captured into a graph.
 */
uint64_t wg_stream_give(struct wg_streamref s, enum wgrec_op op, uint64_t object, uint64_t value,
			uint16_t flags);
/*
 * The same for a kernel: f is a CUfunction or CUkernel; its name is asked for once and kept. `known` is
 * what wg_stream_before_kernel() returned, 0 when it was not called.
 */
uint64_t wg_stream_give_kernel(struct wg_streamref s, uint64_t f, uint64_t known);
/*
 * Before a kernel launch: makes the position cover all that was given before when this function
 * was never launched before, so that a kernel that hangs at its first launch is named exactly
 * and not as one of many. A table look-up otherwise (2 ns). Returns what is known
 * of it, for wg_stream_give_kernel().
 */
uint64_t wg_stream_before_kernel(struct wg_streamref s, uint64_t f);
/*
 * Make the position cover all that was given: before a call that may block on this stream, and
 * before what may hold the stream up for long (host functions, value waits, graph launches), as
 * long as this thread's time allows (pace.c). Nothing happens when it is covered already.
 */
void wg_stream_mark(struct wg_streamref s);
/* The same before a wait for an event, if what it waits for is not known to be done. */
void wg_stream_before_wait(struct wg_streamref s, uint64_t event);
/*
 * Before a synchronisation (await: as wg_stream_mark()) or a query (before). Afterwards, on success:
 * proven(); on "not ready": poll(), which marks now and then.
 */
struct wg_before wg_stream_await(struct wg_streamref s);
struct wg_before wg_stream_before(struct wg_streamref s);
void wg_stream_proven(struct wg_before b);
void wg_stream_poll(struct wg_before b, uint64_t began_ticks);
void wg_stream_mark_all(void); /* before context and device synchronisations, synchronous copies */
/* Everything up to this item of the stream is known to be done. */
void wg_stream_synced(struct wg_streamref s, uint64_t seq);
uint64_t wg_stream_seq(struct wg_streamref s); /* of its newest item */
/*
 * Around a synchronisation with all of a context (0: the current one): what was given before it began
 * is done if r is 0. begins() marks all, like wg_stream_mark_all(); its result must be passed on.
 */
uint64_t wg_device_sync_begins(uint64_t ctx);
void wg_device_synced(uint64_t begun, int r);

/*
 * destroying: before the real destroy (it also keeps other threads' position writes away from
 * the dying handle); destroyed: after it returned success, created() again if it failed.
 */
void wg_stream_created(uint64_t handle, uint32_t flags);
void wg_stream_destroying(uint64_t handle);
void wg_stream_destroyed(uint64_t handle);
/* begins: after every successful begin; otherwise after EVERY end, whatever it returned. */
void wg_stream_capture(struct wg_streamref s, bool begins);
void wg_event_created(uint64_t event, bool from_ipc);
void wg_event_recorded(uint64_t event, struct wg_streamref s);
/*
 * Before a wait for it (await: as wg_stream_mark(), its stream) or a query (before). Afterwards as with
 * streams: only the record that was its last before the wait began is proven.
 */
struct wg_before wg_event_await(uint64_t event);
struct wg_before wg_event_before(uint64_t event);
void wg_event_proven(struct wg_before b);
void wg_event_poll(struct wg_before b, uint64_t began_ticks);
void wg_event_destroyed(uint64_t event);
void wg_stream_wait_event(struct wg_streamref s, uint64_t event);

int wg_streams_start(void);	  /* after cuInit; each context's page comes with the context */
/*
 * A context may have become current on this thread: after a successful cuCtxCreate*,
 * cuCtxSetCurrent, cuCtxPushCurrent. A context that was not seen before gets its page of
 * positions registered here, before it has any work: pinning can wait for running work, so
 * later is not safe. A few ns when nothing is new.
 */
void wg_streams_context_ready(void);
/* BEFORE the real reset, destroy or release: the registered page becomes invalid; it is registered
 * again if the context turns out to live on. */
void wg_streams_context_gone(int device);
void wg_streams_functions_gone(void); /* a module or library was unloaded: ask names anew */
void wg_streams_tick(void);	  /* helper thread, about once a second: stamps seen/seen_at */
void wg_streams_fork_child(void);

/*
 * For nccl.c, which must name a stream after other contexts became current: its index in STREAMS
 * (made known if need be; UINT32_MAX unrecorded), the item of a collective (`comm` its index in
 * COMMS; 0 when captured), and a mark.
 */
uint32_t wg_stream_index(struct wg_streamref s);
bool wg_stream_captures(uint32_t stream_index); /* is it being captured now? */
uint64_t wg_stream_give_collective(uint32_t stream_index, uint64_t handle, uint64_t sequence,
				   uint32_t comm, uint16_t flags, uint32_t name);
void wg_stream_mark_index(uint32_t stream_index); /* whatever context is current */
/* Lower bound of what is done on STREAMS[index], from positions and proofs. */
uint64_t wg_stream_done(uint32_t index);
/* Nesting depth of NCCL calls on this thread: what is given inside is NCCL's own. */
extern __thread unsigned int wg_in_nccl __attribute__((tls_model("initial-exec")));

#endif
