/* SPDX-License-Identifier: Apache-2.0 */
/* compare.h - two runs' memory side by side. */
#ifndef WG_MEMORY_COMPARE_H
#define WG_MEMORY_COMPARE_H

#include "print.h"

struct wgm_change { /* one library or call site; sizes at the peak, else at the end */
	const char *name, *library;
	uint64_t a, b;
	uint64_t allocations_a, allocations_b;
};

struct wgm_pair { /* one device of one process in both runs; either may be NULL */
	struct wgm_analysis *a, *b;
	const struct wgm_device *da, *db;
	bool at_end; /* the peak's distribution is not known on both sides: that of the end */
	struct wgm_change *libraries, *sites; /* most changed first */
	size_t nlibraries, nsites;
};

/* Ranks are matched by rank, else processes in the order of their start. malloc'ed. */
size_t wgm_compare(struct wgm_analysis **a, size_t na, struct wgm_analysis **b, size_t nb,
		   struct wgm_pair **out);
void wgm_compare_free(struct wgm_pair *pairs, size_t n);
void wgm_compare_print(FILE *out, const struct wgm_pair *p, unsigned int rows);
json_t *wgm_compare_json(const struct wgm_pair *p, size_t n); /* waitgraph-diff/1 */

#endif
