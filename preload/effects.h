/* SPDX-License-Identifier: Apache-2.0 */
/*
 * effects.h - the words of calls.def: what a call means to memory and streams.
 *
 * Included by driver.c and runtime.c only. Both use the same words; in runtime.c what the driver
 * calls inside have said already is not said again (struct wg_thread.gave): the runtime's own view
 * counts only where it took a way past our doors.
 *
 * Memory is told at the outermost of runtime and driver: a driver allocation or free directly inside
 * a runtime one is the same allocation (absorbed() in effects.c).
 */
#ifndef WG_EFFECTS_H
#define WG_EFFECTS_H

#include <errno.h>

#include "cuda_types.h"
#include "inflight.h"
#include "streams.h"

#define U(x) ((uint64_t)(x))
#define OUT(p) ((p) ? (uint64_t)*(p) : 0)
#define IN(p, field) ((p) ? (uint64_t)(p)->field : 0)
#define BOX(x, y, z) (U(x) * (y) * (z))

#define NOSTREAM WG_NOSTREAM
/* In brackets, so that a row stays one argument a column; UNPACK takes them off. */
#define V0() (0, 0, 0, 0, 0)
#define V1(a) (1, U(a), 0, 0, 0)
#define V2(a, b) (2, U(a), U(b), 0, 0)
#define V3(a, b, c) (3, U(a), U(b), U(c), 0)
#define V4(a, b, c, d) (4, U(a), U(b), U(c), U(d))
#define UNPACK(...) __VA_ARGS__
#define FIRST_VALUE(n, a, ...) (a)

/* Flags of the table. The lower bits go into wgrec_call.flags. */
#define PTSZ_FLAG(ptsz) ((ptsz) ? WGREC_CALLF_PTSZ : 0)
#define BLOCKS 0x100u
#define TIMED 0x200u
#define BY_FUNCTION 0x400u

#define S ((struct wg_streamref){ fr.site.stream, wg_ptsz, fr.began })
#define BEFORE(call) do { struct wg_before b_ = (call); fr.note = b_.where; fr.seq = b_.seq; } while (0)
#define WHAT_WAS ((struct wg_before){ fr.note, fr.seq })

#define NOTHING (void)0

/* ---- memory ---- */
#define ALLOCATED(kind, p, bytes) wg_did_allocate(&fr, r, kind, U(p), U(bytes))
#define FAILED(kind, bytes) wg_did_fail(&fr, r, kind, U(bytes))
#define FREEING(kind, p) wg_will_free(&fr, kind, U(p))
#define FREED(kind, p) wg_did_free(&fr, r, kind, U(p))
#define CREATED(h, size, prop) wg_did_create(&fr, r, U(h), U(size), prop)
#define MAPPED(p, size, h) (fr.site.handle = U(h), wg_did_allocate(&fr, r, WG_MEM_VMM_MAP, U(p), U(size)))
#define UNMAPPING(p, size) (fr.site.bytes = U(size), wg_will_free(&fr, WG_MEM_VMM_MAP, U(p)))
#define UNMAPPED(p, size) (fr.site.bytes = U(size), wg_did_free(&fr, r, WG_MEM_VMM_MAP, U(p)))
#define POOL(pool) wg_pool_now(&fr, r, U(pool), true)
#define POOL_OF_DEVICE wg_pool_now(&fr, r, 0, false)
#define POOL_GONE(pool) wg_did_free(&fr, r, WG_MEM_POOL, U(pool))
#define MEASURE wg_measure(&fr)
#define MODULE_LOADED(m) wg_module_loaded(&fr, r, U(m))
#define FUNCTIONS_GONE wg_streams_functions_gone()

/* ---- contexts ---- */
#define CONTEXT_MADE(dev) wg_context_made(&fr, r, dev)
#define CONTEXT_GOING(ctx) wg_context_going(&fr, U(ctx))
#define CONTEXT_GONE wg_context_gone(&fr, r)
#define PRIMARY_RETAINED(dev) wg_primary_retained(&fr, r, dev)
#define PRIMARY_GOING(dev) wg_primary_going(&fr, dev)
#define PRIMARY_RELEASED(dev) wg_primary_released(&fr, r, dev, false)
#define PRIMARY_RESET(dev) wg_primary_released(&fr, r, dev, true)
#define CONTEXT_CHANGED wg_context_changed(r)

/* ---- streams. TOLD: the effects of this call, unless an inner call told them ---- */
#define TOLD(statement) do { if (!r && WG_FIRST) { statement; WG_TELL; } } while (0)
#define MARK BEFORE(wg_stream_await(S))
#define MARK_BEFORE wg_stream_mark(S)
#define MARK_ALL wg_stream_mark_all()
#define SEQ BEFORE(wg_stream_before(S))
#define SYNCED do { if (!r) wg_stream_proven(WHAT_WAS); } while (0)
#define QUERIED wg_queried(r, WHAT_WAS, fr.began)
#define DEVICE_SYNC(ctx) (fr.note = wg_device_sync_begins(U(ctx)))
#define DEVICE_SYNCED wg_device_synced(fr.note, r)
#define GIVE(op, object, value) GIVE_FLAGS(op, object, value, 0)
#define GIVE_FLAGS(op, object, value, flags)                                                        \
	TOLD(wg_stream_give(S, WGREC_OP_##op, U(object), U(value), (uint16_t)(flags)); wg_gave(fr.began))
#define COPIED(op, object, bytes, proves) TOLD(wg_copied(S, WGREC_OP_##op, U(object), U(bytes), proves))
#define BEFORE_KERNEL(k) (fr.note = wg_stream_before_kernel(S, U(k)))
#define GIVE_KERNEL(k) TOLD(wg_stream_give_kernel(S, U(k), fr.note); wg_gave(fr.began))
#define GIVE_MANY(list, n) TOLD(wg_gave_many(list, n, wg_ptsz, fr.began))
#define BATCH(n, list) TOLD(wg_gave_batch(S, n, list))
#define BEFORE_WAIT(e) wg_stream_before_wait(S, U(e))
#define WAIT_EVENT(e) TOLD(wg_stream_wait_event(S, U(e)))
#define STREAM_CREATED(h, flags) TOLD(wg_stream_created(U(h), (uint32_t)(flags)))
#define STREAM_DESTROYING wg_stream_destroying(fr.site.stream)
#define STREAM_DESTROYED wg_destroyed(r, fr.site.stream)
#define CAPTURE(begins) wg_captured(r, WG_FIRST, S, begins); WG_TELL
#define EVENT_CREATED(e, ipc) TOLD(wg_event_created(U(e), ipc))
#define EVENT_DESTROYED(e) TOLD(wg_event_destroyed(U(e)))
#define EVENT_RECORDED(e) TOLD(wg_event_recorded(U(e), S))
#define EVENT_MARK(e) BEFORE(wg_event_await(U(e)))
#define EVENT_SEQ(e) BEFORE(wg_event_before(U(e)))
#define EVENT_SYNCED do { if (!r) wg_event_proven(WHAT_WAS); } while (0)
#define EVENT_QUERIED wg_event_queried(r, WHAT_WAS, fr.began)

void wg_did_allocate(struct wg_frame *f, int r, enum wg_mem_kind kind, uint64_t p, uint64_t bytes);
void wg_did_fail(struct wg_frame *f, int r, enum wg_mem_kind kind, uint64_t bytes);
void wg_will_free(struct wg_frame *f, enum wg_mem_kind kind, uint64_t p);
void wg_did_free(struct wg_frame *f, int r, enum wg_mem_kind kind, uint64_t p);
void wg_did_create(struct wg_frame *f, int r, uint64_t handle, uint64_t bytes,
		   const struct wg_allocation_prop *prop);
void wg_pool_now(struct wg_frame *f, int r, uint64_t pool, bool at_once);
void wg_measure(struct wg_frame *f);
void wg_module_loaded(struct wg_frame *f, int r, uint64_t module);

void wg_context_made(struct wg_frame *f, int r, int device);
void wg_context_going(struct wg_frame *f, uint64_t ctx);
void wg_context_gone(struct wg_frame *f, int r);
void wg_primary_retained(struct wg_frame *f, int r, int device);
void wg_primary_going(struct wg_frame *f, int device);
void wg_primary_released(struct wg_frame *f, int r, int device, bool reset);
void wg_context_changed(int r);
int wg_device_of(void *ctx); /* ordinal, -1 unknown */

/* Something was given to a stream of the current device by a call that began then. */
void wg_gave(uint64_t began);
void wg_queried(int r, struct wg_before b, uint64_t began);
void wg_destroyed(int r, uint64_t stream);
void wg_captured(int r, bool first, struct wg_streamref s, bool begins);
void wg_event_queried(int r, struct wg_before b, uint64_t began);
void wg_copied(struct wg_streamref s, enum wgrec_op op, uint64_t object, uint64_t bytes,
	       bool proves);
void wg_gave_many(const struct wg_launch_params *list, unsigned int n, bool ptsz, uint64_t began);
void wg_gave_batch(struct wg_streamref s, unsigned int n, const union wg_batch_op *list);

uint64_t wg_array_v1_bytes(const struct wg_array_v1 *d);
uint64_t wg_array_bytes(const struct wg_array *d);
uint64_t wg_array3d_v1_bytes(const struct wg_array3d_v1 *d);
uint64_t wg_array3d_bytes(const struct wg_array3d *d, unsigned int levels);
uint64_t wg_channel_bytes(const struct wg_channel_format *d, size_t width, size_t height,
			  size_t depth, unsigned int levels);

#endif
