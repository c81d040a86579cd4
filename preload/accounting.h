/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accounting.h - between the memory side's own files (devices, callsite, trace,
 * failure, pyframes). Nobody else includes it.
 *
 * All of it runs inside someone else's thread: no malloc, no stdio, no pthread lock.
 * Where two threads must not meet there is struct wg_lock: taken by trying for a
 * bounded time, given up then (the event is counted as lost), reset in a forked child,
 * and taken over from a thread that no longer exists.
 */
#ifndef WG_ACCOUNTING_H
#define WG_ACCOUNTING_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "hooks.h"
#include "memory.h"
#include "trace.h"

#define wg_likely(x) __builtin_expect(!!(x), 1)
#define wg_unlikely(x) __builtin_expect(!!(x), 0)
#define WG_LOCAL __attribute__((visibility("hidden")))

/* ---- this thread --------------------------------------------------------- */

struct wg_run { /* equal pieces of physical memory created one after the other (see failure.c) */
	uint64_t size;	 /* of one piece */
	uint32_t pieces; /* created and not mapped yet; 0: no run */
	uint32_t site;
	int16_t device;
};

struct wg_mem_thread {
	uint32_t tid;	     /* 0 not asked yet */
	uint32_t writer;     /* + 1 */
	bool named;
	uint64_t failed;     /* devices (bit, 63 for the rest) with a failure not made good */
	struct wg_run run;
	struct wgtr_live freed; /* the last one, for wg_mem_unfree() */
	uint8_t freed_kind;
};
/* initial-exec: no __tls_get_addr, which may allocate. We are loaded at start. */
extern __thread struct wg_mem_thread wg_mt
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

WG_LOCAL uint32_t wg_tid_slow(void);
static inline uint32_t wg_tid(void)
{
	uint32_t tid = wg_mt.tid;

	return wg_likely(tid) ? tid : wg_tid_slow();
}

/* ---- a lock that nobody can be left waiting for ----------------------------- */

struct wg_lock {
	_Atomic uint32_t tid;
};
WG_LOCAL bool wg_lock_slow(struct wg_lock *l);
static inline bool wg_lock_try(struct wg_lock *l)
{
	uint32_t none = 0;

	return atomic_compare_exchange_strong_explicit(&l->tid, &none, wg_tid(),
						       memory_order_acquire, memory_order_relaxed);
}
/* false: it could not be had in a millisecond or so; or this very thread has it (a signal). */
static inline bool wg_lock_take(struct wg_lock *l)
{
	return wg_likely(wg_lock_try(l)) || wg_lock_slow(l);
}
static inline void wg_lock_drop(struct wg_lock *l)
{
	atomic_store_explicit(&l->tid, 0, memory_order_release);
}

/* ---- raw help ------------------------------------------------------------------ */

WG_LOCAL void *wg_pages(size_t bytes);	       /* anonymous, zeroed; NULL when there are none */
WG_LOCAL void wg_pages_free(void *p, size_t bytes);
WG_LOCAL int wg_raw_open(const char *path);    /* O_RDONLY|O_CLOEXEC; fd or -errno */
WG_LOCAL long wg_raw_read(int fd, void *buf, size_t n); /* all there is, up to n; or -errno */
WG_LOCAL void wg_raw_close(int fd);
/* A read of our own memory that fails instead of faulting. 0 or -EFAULT. */
WG_LOCAL int wg_peek(uint64_t addr, void *buf, size_t n);

/* ---- the trace (trace.c) ---------------------------------------------------------- */

extern struct wgtr_header *wg_trace_header WG_LOCAL; /* never NULL once started; perhaps not a file */
WG_LOCAL int wg_trace_open(void);
WG_LOCAL void wg_trace_tick(void);
WG_LOCAL void wg_trace_end(void);
WG_LOCAL void wg_trace_fork_child(void);
WG_LOCAL struct wgtr_device *wg_trace_device(int device); /* NULL out of range */

/* Entries that stay where they are. NULL when there is no room for more. */
WG_LOCAL struct wgtr_site *wg_trace_site(uint32_t site);
WG_LOCAL struct wgtr_site *wg_trace_site_new(uint32_t *site); /* caller holds the sites' lock */
WG_LOCAL struct wgtr_live *wg_trace_live(uint32_t slot);
WG_LOCAL int wg_trace_live_block(uint32_t *first, uint32_t *n); /* fresh slots */
#define WG_LIVE_BLOCK 16u

/* Compact and other records. Never fail visibly: what could not be written is counted. */
WG_LOCAL uint64_t wg_trace_alloc(bool is_free, uint32_t site, uint64_t addr, uint64_t size);
WG_LOCAL void wg_trace_event(uint8_t tag, const uint64_t *values, unsigned int n);
WG_LOCAL bool wg_trace_def(uint8_t tag, const uint8_t *payload, size_t n);
WG_LOCAL uint32_t wg_trace_string(const char *s); /* id; 0 when full */
WG_LOCAL void wg_trace_name(uint16_t fn);	  /* writes the function's name once */
WG_LOCAL bool wg_trace_is_file(void);
/* Levels of one device for the timeline; free_bytes WGTR_UNKNOWN where it was not asked. */
enum wg_level { WG_LEVEL_ALLOC, WG_LEVEL_FREE, WG_LEVEL_SAMPLE, WG_LEVEL_TICK };
WG_LOCAL void wg_trace_timeline(int device, enum wg_level what, uint64_t own, uint64_t free_bytes,
				uint64_t now);

struct wg_out { /* a payload being put together */
	uint8_t *p, *end;
};
static inline void wg_out_varint(struct wg_out *o, uint64_t v)
{
	while (v >= 0x80 && o->p < o->end) {
		*o->p++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	if (o->p < o->end)
		*o->p++ = (uint8_t)v;
}
static inline uint64_t wg_zigzag(uint64_t from, uint64_t to)
{
	int64_t d = (int64_t)(to - from);

	return ((uint64_t)d << 1) ^ (uint64_t)(d >> 63);
}
WG_LOCAL void wg_out_bytes(struct wg_out *o, const void *p, size_t n);

/* ---- call sites (callsite.c) --------------------------------------------------------- */

WG_LOCAL uint32_t wg_site_of(const struct wg_site *s, enum wg_mem_kind kind, int device);
WG_LOCAL int wg_stack_take(const struct wg_site *s, uint64_t *frames, int max); /* innermost first */
WG_LOCAL void wg_callsite_start(void);
WG_LOCAL void wg_callsite_fork_child(void);
WG_LOCAL bool wg_objects_stale(void); /* a stack pointed outside all known objects */
WG_LOCAL void wg_objects_scan(void);  /* /proc/self/maps -> OBJECT definitions; finds Python */

/* ---- devices (devices.c) ---------------------------------------------------------------- */

WG_LOCAL int wg_mem_device_of(const struct wg_site *s);
WG_LOCAL uint64_t wg_mem_own(int device);
WG_LOCAL struct wgrec_device *wg_mem_rec_device(int device);
WG_LOCAL bool wg_mem_sample(int device, uint64_t *free_bytes, uint64_t *total); /* asks the driver */

/* ---- failures (failure.c) ------------------------------------------------------------------ */

WG_LOCAL void wg_failure_allocated(int device, enum wg_mem_kind kind, uint64_t bytes, uint32_t site);
WG_LOCAL void wg_failure_other(void); /* any other event on this thread: the run is over */
WG_LOCAL void wg_failure_fork_child(void);

/* ---- Python (pyframes.h) ---------------------------------------------------------------------- */

struct wg_pyline {
	uint32_t line;
	char function[60];
	char file[128];
};

#endif
