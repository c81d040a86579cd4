/* SPDX-License-Identifier: Apache-2.0 */
/*
 * loop.h - what one round of a running thread's loop does: its own instructions, run here over a
 * copy of its registers and memory. Nothing of the process is touched. See loop.c.
 */
#ifndef WG_LOOP_H
#define WG_LOOP_H

#include "sources.h"

struct wg_loop_regs { /* as the processor numbers them: ax cx dx bx sp bp si di r8-r15 */
	uint64_t r[16];
	uint64_t ip, flags;
	uint64_t fsbase; /* 0: unknown */
};

#define WG_LOOP_WORDS 16
#define WG_LOOP_STATES 1024
#define WG_LOOP_STUBS 4

struct wg_loop_word {
	uint64_t addr;
	uint64_t value;
	uint8_t size;
	bool stack; /* near the thread's stack pointer */
};

struct wg_loop {
	enum wg_round kind;
	uint32_t insns;	 /* of one round; SAME */
	uint64_t lo, hi; /* its lowest and highest instruction */
	bool clock;	 /* it asks for the time, which stood still here */
	bool yields;	 /* it calls sched_yield() */
	bool stubbed;	 /* it calls functions that were not followed instruction by instruction */
	uint64_t stubs[WG_LOOP_STUBS]; /* their entries */
	/*
	 * A system call of which only the call is known: it was taken to answer "not yet" (EAGAIN,
	 * ENOENT, no child), so SAME says what it would do then, and nothing is proven. WG_NO_INT.
	 */
	int64_t call;
	uint64_t call_args[6];
	const char *why; /* UNKNOWN: what stopped the run */
	struct wg_loop_word
		words[WG_LOOP_WORDS]; /* what it reads and did not write in that round */
	int nwords;
	uint32_t reads;	  /* how many different words of others it reads; some may not be among
			     `words` */
	bool fixed_reads; /* CHANGES: round after round it reads the same words of others */
	/* SAME: hashes of the states it goes through (instruction and registers), sorted. */
	uint64_t states[WG_LOOP_STATES];
	int nstates;
	bool all_states; /* else there were more */
};

/* Runs at most `budget` instructions. Takes a millisecond or two. */
void wg_loop_run(struct wg_mem *m, const struct wg_loop_regs *regs, uint32_t budget,
		 struct wg_loop *out);
/* For tests: follow until `stop` is reached, at most `budget` instructions; *regs as they are then.
 */
bool wg_loop_follow(struct wg_mem *m, struct wg_loop_regs *regs, uint64_t stop, uint32_t budget);
/* Is the thread with these registers at a point of that round? */
bool wg_loop_has(const struct wg_loop *l, const struct wg_loop_regs *regs);

#endif
