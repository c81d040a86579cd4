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
 * Hot: wg_stream_give() is on the launch path; its budget is 15 ns, and one position
 * write every WG_MARK_EVERY launches (0.1 us a launch on an H200).
 */
#ifndef WG_STREAMS_H
#define WG_STREAMS_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder.h"

#define WG_MARK_EVERY 8

/*
 * How a call names its stream: the handle, and whether the call is of the per-thread
 * flavour (then handle 0 means this thread's own default stream). Handle 1 is
 * CU_STREAM_LEGACY, 2 CU_STREAM_PER_THREAD in either flavour.
 */
struct wg_streamref {
	uint64_t handle;
	bool ptsz;
};

/* After a successful call that put work on the stream. Returns the item's seq, 0 if unrecorded. */
uint64_t wg_stream_give(struct wg_streamref s, enum wgrec_op op, uint64_t object, uint64_t value,
			uint16_t flags);
/* The same for a kernel: f is a CUfunction or CUkernel; its name is asked for once and kept. */
uint64_t wg_stream_give_kernel(struct wg_streamref s, uint64_t f);
/* Before a call that may block on this stream: make the position cover all that was given. */
void wg_stream_mark(struct wg_streamref s);
void wg_stream_mark_all(void); /* before context and device synchronisations, synchronous copies */
/* After a synchronisation or query that returned success: everything given before it began is done. */
void wg_stream_synced(struct wg_streamref s, uint64_t seq_before);
uint64_t wg_stream_seq(struct wg_streamref s); /* seq now: pass it to wg_stream_synced() later */
void wg_device_synced(int device, uint64_t began_ticks);

void wg_stream_created(uint64_t handle, uint32_t flags);
void wg_stream_destroyed(uint64_t handle);
void wg_stream_capture(struct wg_streamref s, bool begins);
void wg_event_created(uint64_t event, bool from_ipc);
void wg_event_recorded(uint64_t event, struct wg_streamref s);
void wg_event_synced(uint64_t event); /* synchronised or queried with success */
void wg_event_destroyed(uint64_t event);
void wg_stream_wait_event(struct wg_streamref s, uint64_t event);

int wg_streams_start(void);	  /* after cuInit; positions are registered with the first context */
void wg_streams_tick(void);	  /* helper thread, about once a second: stamps seen/seen_at */
void wg_streams_context_gone(int device); /* reset or destroy: the registered page is invalid */
void wg_streams_fork_child(void);

#endif
