// SPDX-License-Identifier: Apache-2.0
/*
 * runtime.c - wrappers of the runtime API, for the name that the user wrote.
 *
 * The work itself is seen at the driver, which the runtime calls through our doors: what those
 * inner calls have told is not told twice (WG_FIRST).
 */
#define WG_API WGREC_API_RUNTIME
#define WG_FIRST (fr.gave == wg_self.gave)
#define WG_TELL (void)0
#define WG_REAL(fn, function)                                                                        \
	wg_real_runtime(fn, __builtin_return_address(0), (const void *)(uintptr_t)(function))
#include "wrap.h"

#define wg_drop_DRIVER(...)
#define wg_drop_RUNTIME(...) WG_WRAP(__VA_ARGS__)
#define WG_CALL(api, symbol, shown, ptsz, kind, flags, stream, PARAMS, ARGS, names, values, before, after) \
	wg_drop_##api(symbol, ptsz, kind, flags, stream, PARAMS, ARGS, values, before, after)
#define WG_HAND(api, symbol, shown, ptsz, kind)
#define WG_SIX(api, symbol, shown, ptsz, kind, flags)                                                \
	WG_WRAP(symbol, ptsz, kind, flags, NOSTREAM,                                               \
		(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t g),          \
		(a, b, c, d, e, g), V0(), NOTHING, NOTHING)
#include "calls_expand.h"
