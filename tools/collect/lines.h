/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lines.h - source lines and inlined functions, where DWARF is at hand.
 *
 * Asked for in one batch with a budget of time. libdw works in a child process: debug
 * information comes from the target's files, may be gigabytes, truncated while it is read,
 * or made to crash its reader, and none of that may cost more than the lines.
 */
#ifndef WG_LINES_H
#define WG_LINES_H

#include "symbols.h"

struct wg_line {
	const char *function; /* inlined function's name, demangled; NULL for the outermost */
	const char *file;
	int64_t line;
};

struct wg_lines;
struct wg_lines **wg_symbols_lines(struct wg_symbols *s);
void wg_lines_free(struct wg_lines *l);

/* A new batch; lines known from the one before are kept. Strings live in f's arena. */
void wg_lines_start(struct wg_symbols *s, struct wg_facts *f);
/* pc: an address inside the instruction (a return address minus one). */
void wg_lines_want(struct wg_symbols *s, uint64_t pc);
void wg_lines_run(struct wg_symbols *s, double budget_s);
/* How many lines pc has (innermost first, the function itself last); 0 unknown. */
size_t wg_lines_of(struct wg_symbols *s, uint64_t pc, const struct wg_line **lines);

#endif
