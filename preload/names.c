// SPDX-License-Identifier: Apache-2.0
/*
 * names.c - function ids, their names, and the exact look-up from name to id.
 *
 * The index over the names is built at the first look-up: a program that never asks for a CUDA
 * function pays nothing. Building it twice at once does no harm (every slot gets what it would
 * have got), and who comes meanwhile searches the list.
 */
#include <stdbool.h>
#include <string.h>

#include "calls.h"

#define D_BLOCKS 0x100u
#define BLOCKS D_BLOCKS
#define TIMED 0
#define BY_FUNCTION 0

const struct wgrec_name wg_names[WG_FN_COUNT] = {
	{ .name = "" },
#define WG_CALL(api_, symbol, shown, ptsz, kind_, flags, stream, P, A, names, values, b, a)           \
	{ .name = shown, .api = WGREC_API_##api_, .kind = WGREC_CALL_##kind_,                      \
	  .blocking = ((flags) & D_BLOCKS) != 0, .args = names },
#define WG_HAND(api_, symbol, shown, ptsz, kind_)                                                    \
	{ .name = shown, .api = WGREC_API_##api_, .kind = WGREC_CALL_##kind_, .blocking = 1 },
#define WG_SIX(api_, symbol, shown, ptsz, kind_, flags)                                              \
	{ .name = shown, .api = WGREC_API_##api_, .kind = WGREC_CALL_##kind_,                      \
	  .blocking = ((flags) & D_BLOCKS) != 0 },
#include "calls_expand.h"
#define NCCL(name_, kind_, blocking_, args_)                                                         \
	{ .name = #name_, .api = WGREC_API_NCCL, .kind = WGREC_CALL_##kind_,                       \
	  .blocking = blocking_, .args = args_ },
#include "nccl.def"
#undef NCCL
};

const char wg_symbols[WG_FN_COUNT][48] = {
	"",
#define WG_CALL(api, symbol, shown, ptsz, kind, flags, stream, P, A, names, values, b, a) #symbol,
#define WG_HAND(api, symbol, shown, ptsz, kind) #symbol,
#define WG_SIX(api, symbol, shown, ptsz, kind, flags) #symbol,
#include "calls_expand.h"
#define NCCL(name, kind, blocking, args) #name,
#include "nccl.def"
#undef NCCL
};

#define INDEX 2048u /* a power of two, at most 40 % full */
_Static_assert(WG_FN_COUNT * 5 < INDEX * 2, "index over the names too small");

static uint16_t name_index[INDEX];
static uint32_t built;

static uint32_t hash(const char *s)
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	return h ^ (h >> 15);
}

static void build(void)
{
	for (uint16_t fn = 1; fn < WG_FN_COUNT; fn++)
		for (uint32_t at = hash(wg_symbols[fn]);; at++) {
			uint16_t none = 0;

			if (__atomic_compare_exchange_n(&name_index[at % INDEX], &none, fn, false,
							__ATOMIC_RELAXED, __ATOMIC_RELAXED) ||
			    none == fn)
				break;
		}
	__atomic_store_n(&built, 1, __ATOMIC_RELEASE);
}

uint16_t wg_fn_by_name(const char *symbol)
{
	if (__builtin_expect(!__atomic_load_n(&built, __ATOMIC_ACQUIRE), 0))
		build();
	for (uint32_t at = hash(symbol);; at++) {
		uint16_t fn = __atomic_load_n(&name_index[at % INDEX], __ATOMIC_RELAXED);

		if (!fn || !strcmp(wg_symbols[fn], symbol))
			return fn;
	}
}
