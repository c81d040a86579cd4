/* SPDX-License-Identifier: Apache-2.0 */
/* symbols.h - what the unwinder needs of symbols.c beyond sources.h. */
#ifndef WG_SYMBOLS_H
#define WG_SYMBOLS_H

#include "elf_image.h"

struct wg_module { /* one ELF file at one place in the process */
	uint64_t base;	/* lowest address of its first mapping */
	uint64_t bias;
	uint64_t lo, hi; /* address range of its segments */
	struct wg_image *image;
	const char *path; /* for people */
	bool usable;
};
/* The module that pc's mapping belongs to; NULL: anonymous memory, or not ELF. */
struct wg_module *wg_symbols_module(struct wg_symbols *s, uint64_t pc);
struct wg_mem *wg_symbols_mem(struct wg_symbols *s);
/* Address of a section of that name in a module named like python; 0 none. */
uint64_t wg_symbols_section(struct wg_symbols *s, const char *name);
/* Is the mapping at pc executable? */
bool wg_symbols_is_code(struct wg_symbols *s, uint64_t pc);

#endif
