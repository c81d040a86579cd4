/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hooks.h - what the parts of the recorder share with each other (internal).
 *
 * Read RULES.md first: this code runs inside someone else's process.
 */
#ifndef WG_HOOKS_H
#define WG_HOOKS_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder.h"

/* The mapped recorder file, or NULL (no CUDA yet, disabled, no room): check every time. */
extern struct wgrec_header *wg_rec;
void *wg_rec_section(enum wgrec_kind kind, uint64_t *capacity); /* NULL when there is no file */
struct wgrec_thread *wg_rec_thread(void); /* this thread's slot, claimed at first use; NULL if full */
/*
 * Reserve entries [0, upto) of a section before they are touched, and raise its `used` to that.
 * false: tmpfs is full, or beyond the capacity; touching them would then be a SIGBUS. Some entries
 * of each section are reserved at start. Costs system calls when new pages are needed, else a look.
 */
bool wg_rec_use(enum wgrec_kind kind, uint64_t upto);
uint32_t wg_rec_string(const char *s);	  /* interned; 0 when full. Lock-free */
void wg_note(const char *text);		  /* "where the recorder stepped aside"; static strings only */

uint64_t wg_ticks(void);		  /* rdtsc, cntvct, or CLOCK_MONOTONIC ns */
uint64_t wg_ticks_to_ns(uint64_t ticks);  /* a duration */

/* Settings, read once from the environment when CUDA comes up (getenv is not for hot paths). */
struct wg_settings {
	char dir[256];
	int signal;	      /* 0: none */
	unsigned int stall_s; /* 0: off */
	enum { WG_STACKS_OFF, WG_STACKS_ALLOC, WG_STACKS_ALL } stacks;
	uint64_t trace_max;
	char tool[256];	      /* WAITGRAPH_TOOL or "" */
	bool disabled;
	bool emulated; /* under valgrind, which ends a program that uses clone() as our dump does */
};
extern struct wg_settings wg_settings;

/* Real driver functions for our own use. NULL when the driver lacks them. No hook is entered. */
int wg_real_mem_info(uint64_t *free_bytes, uint64_t *total_bytes); /* current context; CUresult */
int wg_real_current_device(void);		  /* ordinal of the current context, -1 none */
/*
 * A function that libcuda itself exports, by its ELF name ("cuStreamWriteValue32_v2", with
 * "_ptsz" where that flavour is meant). Never a hook. NULL when the driver lacks it or is not
 * loaded yet. Not for hot paths: keep the result.
 */
void *wg_real_symbol(const char *symbol);
/*
 * The library's own definition of an exported symbol for a call that came by ELF binding: next in
 * search order, else in any loaded object (libraries opened RTLD_LOCAL), never ours. NULL none.
 */
void *wg_real_export(const char *symbol, const void *caller);

#endif
