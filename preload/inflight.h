/* SPDX-License-Identifier: Apache-2.0 */
/*
 * inflight.h - calls in flight: what every wrapper does before and after the real call.
 *
 *	struct wg_frame f;
 *
 *	if (!wg_on())
 *		return real(...);
 *	wg_enter(&f, WG_FN_x, WGREC_API_NCCL, WGREC_CALL_COLLECTIVE, flags, stream, n, a, b, c, d);
 *	r = real(...);
 *	...effects, with errno saved...
 *	wg_leave(&f);			// wg_leave_timed(&f) for calls worth a second time stamp
 *
 * Always inlined into the wrapper, which must be compiled with a frame pointer: stack pointer, frame
 * pointer and return address of the wrapper's caller are taken from it. One rdtsc (10 ns, half of
 * it all), some stores. The driver call that a runtime call of the same kind makes first takes that
 * one's stamp.
 *
 * A frame that never returned (longjmp, a C++ exception or a cancellation through a callback) is
 * noticed at the next call: its stack pointer is below that of the new caller.
 *
 * What decides anything is in thread-local memory; the slot in the recorder file is only written.
 */
#ifndef WG_INFLIGHT_H
#define WG_INFLIGHT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calls.h"
#include "hooks.h"
#include "memory.h"
#include "recorder.h"

#define WG_INITIAL_EXEC __attribute__((tls_model("initial-exec")))
#ifndef wg_likely
#define wg_likely(x) __builtin_expect(!!(x), 1)
#endif
#ifndef wg_unlikely
#define wg_unlikely(x) __builtin_expect(!!(x), 0)
#endif

#define WG_NOSTREAM UINT64_MAX
/* Known when compiled in every wrapper: a parameter is a stream, whatever its value. */
#define WG_HAS_STREAM(stream) (!__builtin_constant_p(stream) || (stream) != WG_NOSTREAM)
#define WG_DEVICE_UNKNOWN (-2) /* the cache below is empty; -1 is "no device" */

struct wg_up { /* a call in flight, for the calls that it makes */
	uint64_t sp;
	uint16_t fn;
	uint8_t api, kind;
};

struct wg_thread {
	struct wgrec_thread *slot; /* NULL: none yet, or the table is full */
	uint32_t depth;		   /* calls in flight */
	int32_t device;		   /* ordinal of the current context, WG_DEVICE_UNKNOWN */
	uint32_t gave;		   /* driver calls whose effects were told to streams.c */
	uint64_t began;		   /* of the runtime call at the bottom ... */
	uint8_t began_for;	   /* ... for the first call inside it, if of this kind */
	bool no_slot;		   /* the table was full: do not search at every call */
	bool measuring;
	struct wg_up up[WGREC_DEPTH];
};
extern __thread struct wg_thread wg_self WG_INITIAL_EXEC;

#define WG_NOBODY 0xff
#define WG_FAR (64ull << 20) /* farther apart than this, frames are not on one stack */

struct wg_frame { /* lives on the wrapper's stack */
	struct wg_site site; /* device is filled by whoever needs it: wg_site_device() */
	uint64_t began;	     /* ticks */
	uint64_t seq;	     /* of the stream, before the call */
	uint64_t note;	     /* free for the effects */
	uint32_t index;	     /* calls in flight around this one */
	uint32_t gave;
	uint8_t api, kind;
	bool slotted;		   /* slot is not NULL */
	struct wgrec_thread *slot; /* NULL: the table was full */
};

/*
 * 1 while the record is kept: CUDA is up, not disabled, and this is not a forked child. In memory
 * that a child finds zeroed, so that even one made by clone() without fork handlers keeps away
 * from its parent's file.
 */
extern volatile uint32_t *wg_gate;
static inline bool wg_on(void)
{
	/* Acquire: who finds it open finds all that was set up before. Costs nothing on x86-64. */
	return wg_likely(__atomic_load_n(__atomic_load_n(&wg_gate, __ATOMIC_RELAXED),
					  __ATOMIC_ACQUIRE));
}

extern bool wg_no_tsc;
static inline uint64_t wg_stamp(void)
{
#if defined(__x86_64__)
	if (wg_likely(!wg_no_tsc))
		return __builtin_ia32_rdtsc();
#elif defined(__aarch64__)
	uint64_t v;

	if (wg_likely(!wg_no_tsc)) {
		__asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
		return v;
	}
#endif
	return wg_ticks();
}

/* The first call of a thread, or one deep inside others: all that wg_enter() does after the stamp. */
void wg_enter_nested(struct wg_frame *f, uint16_t flags, uint64_t stream, unsigned int nargs,
		     uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3);
void wg_waited(const struct wg_frame *f, uint64_t ended); /* a long call ended */
extern uint64_t wg_long_wait; /* ticks */

/* The frame's device, after the call (which may have made the context). */
int wg_device(void); /* ordinal of this thread's current context, -1 none; cached */

typedef uint64_t __attribute__((may_alias)) wg_word;
/* fn, flags, device and nargs, which stand together, in one store. */
static inline void wg_call_head(struct wgrec_call *c, uint16_t fn, uint16_t flags, int32_t device,
				uint16_t nargs)
{
	uint64_t head = (uint64_t)fn | (uint64_t)flags << 16 | (uint64_t)nargs << 48 |
			(uint64_t)(uint16_t)(device < 0 ? -1 : device) << 32;

	_Static_assert(offsetof(struct wgrec_call, fn) == 32 && offsetof(struct wgrec_call, nargs) == 38,
		       "the fifth word");
	((wg_word *)c)[4] = head;
}

__attribute__((always_inline)) static inline void
wg_enter(struct wg_frame *f, uint16_t fn, uint8_t api, uint8_t kind, uint16_t flags,
	 uint64_t stream, unsigned int nargs, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3)
{
	struct wg_thread *self = &wg_self;
	const uint64_t *frame = __builtin_frame_address(0);
	struct wgrec_thread *slot = self->slot;
	uint32_t depth = self->depth;
	struct wgrec_call *c;

	f->site.fn = fn;
	f->site.device = -1;
	f->site.sp = (uint64_t)(uintptr_t)(frame + 2); /* both machines: saved fp, ra */
	f->site.fp = frame[0];
	f->site.ra = (uint64_t)(uintptr_t)__builtin_return_address(0);
	f->site.stream = WG_HAS_STREAM(stream) ? stream : 0;
	f->site.wrapper_frame = frame;
	f->site.handle = f->site.bytes = 0;
	f->seq = f->note = 0;
	f->gave = self->gave;
	f->api = api;
	f->kind = kind;
	/*
	 * The driver's call inside the runtime's: PyTorch's every launch. Cheap as well, if that one's
	 * frame is still there.
	 */
	if (api == WGREC_API_DRIVER && depth == 1 && wg_likely(slot) &&
	    self->up[0].sp - f->site.sp - 1 < WG_FAR) {
		f->began = self->began_for == kind && self->up[0].api == WGREC_API_RUNTIME ?
				   self->began :
				   wg_stamp();
		self->began_for = WG_NOBODY;
	} else {
		f->began = wg_stamp();
		if (wg_unlikely(!slot || depth)) {
			/* A copy: so *f can live in registers on the usual way. */
			struct wg_frame g = *f;

			wg_enter_nested(&g, flags, stream, nargs, a0, a1, a2, a3);
			*f = g;
			return;
		}
		if (api == WGREC_API_RUNTIME) {
			self->began = f->began;
			self->began_for = kind;
		}
	}
	f->index = depth;
	f->slotted = true;
	f->slot = slot;
	self->up[depth].sp = f->site.sp;
	self->up[depth].fn = fn;
	self->up[depth].api = api;
	self->up[depth].kind = kind;
	self->depth = depth + 1;
	c = &slot->calls[depth];
	c->since = f->began;
	c->sp = f->site.sp;
	c->fp = f->site.fp;
	c->ra = f->site.ra;
	wg_call_head(c, fn, (uint16_t)(flags | (WG_HAS_STREAM(stream) ? WGREC_CALLF_STREAM : 0)),
		     self->device, (uint16_t)nargs);
	c->stream = f->site.stream;
	if (nargs > 0)
		c->args[0] = a0;
	if (nargs > 1)
		c->args[1] = a1;
	if (nargs > 2)
		c->args[2] = a2;
	if (nargs > 3)
		c->args[3] = a3;
	__atomic_store_n(&slot->seq, slot->seq + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->depth, depth + 1, __ATOMIC_RELEASE);
}

__attribute__((always_inline)) static inline void wg_leave(const struct wg_frame *f)
{
	struct wgrec_thread *slot = f->slot;

	wg_self.depth = f->index;
	/* The slot may have been given back meanwhile (a callback that ended its thread's record). */
	if (wg_unlikely(!slot || slot != wg_self.slot))
		return;
	if (!f->index)
		__atomic_store_n(&slot->calls_done, slot->calls_done + 1, __ATOMIC_RELAXED);
	__atomic_store_n(&slot->depth, f->index, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->seq, slot->seq + 1, __ATOMIC_RELEASE);
}

__attribute__((always_inline)) static inline void wg_leave_timed(const struct wg_frame *f)
{
	uint64_t now = wg_stamp();

	wg_leave(f);
	if (wg_unlikely(now - f->began > __atomic_load_n(&wg_long_wait, __ATOMIC_RELAXED)))
		wg_waited(f, now);
}

#endif
