/* SPDX-License-Identifier: Apache-2.0 */
/*
 * unwind.h - raw stacks: program counters of one thread, from its registers.
 *
 * libunwind's remote interface over our own readers. All reads are bounded in number,
 * since unwind tables are programs that come from the target.
 */
#ifndef WG_UNWIND_H
#define WG_UNWIND_H

#include "symbols.h"

#define WG_WALK_MAX 512

enum wg_walk_end {
	WG_WALK_START,	 /* the thread's first function: complete */
	WG_WALK_ZERO,	 /* a return address of 0: complete if everything else was exact */
	WG_WALK_NEEDS,	 /* needs a register that is not known, see needs */
	WG_WALK_LOST,	 /* no unwind information, or memory that cannot be read */
	WG_WALK_LIMIT,
};
struct wg_step {
	uint64_t pc, sp;
	bool is_return;
	bool guessed; /* found through a frame pointer, without unwind information */
};
struct wg_walk {
	struct wg_step step[WG_WALK_MAX];
	size_t n;
	enum wg_walk_end end;
	int needs; /* libunwind's register number */
	bool guessed;
};

struct wg_unwinder;
struct wg_unwinder *wg_unwinder_open(struct wg_symbols *s);
void wg_unwinder_close(struct wg_unwinder *u);
/* From r (r->full: all registers; else sp and ip, and bp when has_bp). */
void wg_unwind(struct wg_unwinder *u, const struct wg_regs *r, bool has_bp, bool ip_is_return,
	       struct wg_walk *w);
/*
 * sp and ip only, where a frame needs the frame pointer: values for it are taken from the
 * stack and kept if every return address on the way to the thread's start is one. When
 * call_sp is not 0 the stack must also pass through that recorded call. False: none fits.
 * *weak: found, but others fit as well, or a caller seems to call something else.
 */
bool wg_unwind_guess(struct wg_unwinder *u, const struct wg_regs *r, uint64_t call_sp,
		     uint64_t call_ra, struct wg_walk *w, bool *weak);

#endif
