/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls.h - the functions that are wrapped, by number.
 *
 * WG_FN_<symbol> is the function id of the recorder's NAMES section. The numbers are private to
 * one build: readers go by NAMES.
 */
#ifndef WG_CALLS_H
#define WG_CALLS_H

#include <stdint.h>

#include "recorder.h"

enum wg_fn {
	WG_FN_NONE, /* "": no function */
#define WG_CALL(api, symbol, shown, ptsz, kind, flags, stream, P, A, names, values, before, after) \
	WG_FN_##symbol,
#define WG_HAND(api, symbol, shown, ptsz, kind) WG_FN_##symbol,
#define WG_SIX(api, symbol, shown, ptsz, kind, flags) WG_FN_##symbol,
#include "calls_expand.h"
	WG_FN_NCCL_FIRST,
	WG_FN_BEFORE_NCCL = WG_FN_NCCL_FIRST - 1,
#define NCCL(name, kind, blocking, args) WG_FN_##name,
#include "nccl.def"
#undef NCCL
	WG_FN_COUNT
};

extern const struct wgrec_name wg_names[WG_FN_COUNT];
extern const char wg_symbols[WG_FN_COUNT][48]; /* the names in the ELF sense, with _ptsz */

/* Exact names only, 0 when it is not one of ours (nor one of nccl.def). Never allocates or locks. */
uint16_t wg_fn_by_name(const char *symbol);

#endif
