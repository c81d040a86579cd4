// SPDX-License-Identifier: Apache-2.0
/*
 * kernels.c - the name of a kernel, asked for once and kept.
 *
 * An open-addressed table of function handles. The second word of an entry repeats a part of the
 * handle's hash, so that a reader that meets an entry half replaced takes it for unknown, never for
 * another kernel's name.
 */
#include <string.h>

#include "queues.h"

#define PROBES 32u

struct wg_kernel wg_kernels[WG_KERNELS];

enum found { ABSENT, FOUND, CROWDED };

static enum found find(uint64_t f, uint32_t *name)
{
	uint64_t h = wgrec_hash(f);

	for (uint32_t step = 0; step < PROBES; step++) {
		uint32_t at = ((uint32_t)(h >> 32) + step) % WG_KERNELS;
		uint64_t key = atomic_load_explicit(&wg_kernels[at].function, memory_order_acquire);
		uint64_t v;

		if (!key)
			return ABSENT;
		if (key != f)
			continue;
		v = atomic_load_explicit(&wg_kernels[at].check_name, memory_order_acquire);
		if (v >> 32 != (uint32_t)h)
			return ABSENT;
		*name = (uint32_t)v;
		return FOUND;
	}
	return CROWDED;
}

static void keep(uint64_t f, uint32_t name)
{
	uint64_t h = wgrec_hash(f);

	for (uint32_t step = 0; step < PROBES; step++) {
		uint32_t at = ((uint32_t)(h >> 32) + step) % WG_KERNELS;
		uint64_t none = 0;

		if (!atomic_compare_exchange_strong(&wg_kernels[at].function, &none, f) && none != f)
			continue;
		atomic_store_explicit(&wg_kernels[at].check_name, (uint64_t)(uint32_t)h << 32 | name,
				      memory_order_release);
		return;
	}
}

bool wg_kernel_search(uint64_t f, uint32_t *name)
{
	*name = 0;
	/* No place for more: without a name, but not asked and bracketed at every launch either. */
	return find(f, name) != ABSENT;
}

uint32_t wg_kernel_ask(uint64_t f)
{
	const char *text = NULL;
	uint32_t name = 0;

	/* A launch takes either kind of handle; the driver tells them apart. */
	if ((wg_rq.func_name && !wg_rq.func_name(&text, f) && text) ||
	    (wg_rq.kernel_name && !wg_rq.kernel_name(&text, f) && text))
		name = wg_rec_string(text);
	else if (!wg_rq.func_name)
		wg_note("the driver does not tell kernels' names (older than 12.3)");
	keep(f, name);
	return name;
}

void wg_streams_functions_gone(void)
{
	for (uint32_t k = 0; k < WG_KERNELS; k++) {
		if (!atomic_load_explicit(&wg_kernels[k].function, memory_order_relaxed))
			continue;
		atomic_store_explicit(&wg_kernels[k].check_name, 0, memory_order_release);
		atomic_store_explicit(&wg_kernels[k].function, 0, memory_order_release);
	}
}
