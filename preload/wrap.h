/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrap.h - the wrapper that a row of calls.def becomes. Included by driver.c and runtime.c, which
 * define WG_API, WG_FIRST, WG_TELL and WG_REAL(fn, function) first.
 */
#ifndef WG_WRAP_H
#define WG_WRAP_H

#include "doors.h"
#include "effects.h"
#include "wrappers.h"

/* What we do around the real call must not be seen in errno. gcc drops this around NOTHING. */
#define WG_QUIET(statements)                                                                       \
	do {                                                                                       \
		int *errno_at = __errno_location(), errno_was = *errno_at;                         \
		statements;                                                                        \
		*errno_at = errno_was;                                                             \
	} while (0)

#define WG_WRAP(symbol, ptsz, kind_, flags, stream_, PARAMS, ARGS, values, before, after)             \
	int symbol PARAMS                                                                \
	{                                                                                          \
		int(*real) PARAMS = \
			WG_REAL(WG_FN_##symbol, (flags) & BY_FUNCTION ? FIRST_VALUE values : 0);                                         \
		enum { wg_ptsz = ptsz };                                                           \
		struct wg_frame fr;                                                                 \
		int r;                                                                             \
                                                                                                   \
		(void)wg_ptsz;                                                                     \
		if (wg_unlikely(!real))                                                            \
			return WG_CU_SYMBOL_NOT_FOUND;                                             \
		if (!wg_on())                                                                      \
			return real ARGS;                                                          \
		wg_enter(&fr, WG_FN_##symbol, WG_API, WGREC_CALL_##kind_, PTSZ_FLAG(ptsz),          \
			 U(stream_), UNPACK values);                                                      \
		WG_QUIET(before);                                                                  \
		r = real ARGS;                                                                     \
		WG_QUIET(after);                                                                   \
		if ((flags) & TIMED)                                                               \
			wg_leave_timed(&fr);                                                        \
		else                                                                               \
			wg_leave(&fr);                                                              \
		return r;                                                                          \
	}

#endif
