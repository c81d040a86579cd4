// SPDX-License-Identifier: Apache-2.0
/*
 * driver.c - wrappers of the driver API.
 *
 * Everything ordinary comes from calls.def. By hand: cuInit, whose success is where the recorder's
 * life begins (lifecycle.c); cuGetProcAddress is a door (doors.c).
 */
#define WG_API WGREC_API_DRIVER
#define WG_FIRST true
#define WG_TELL (wg_self.gave++)
#define WG_REAL(fn, function) wg_real_driver(fn)
#include "wrap.h"

#include "lifecycle.h"

#define wg_drop_DRIVER(...) WG_WRAP(__VA_ARGS__)
#define wg_drop_RUNTIME(...)
#define WG_CALL(api, symbol, shown, ptsz, kind, flags, stream, PARAMS, ARGS, names, values, before, after) \
	wg_drop_##api(symbol, ptsz, kind, flags, stream, PARAMS, ARGS, values, before, after)
#define WG_HAND(api, symbol, shown, ptsz, kind)
#define WG_SIX(api, symbol, shown, ptsz, kind, flags)
#include "calls_expand.h"

int cuInit(unsigned int flags)
{
	int (*real)(unsigned int) = wg_real_driver(WG_FN_cuInit);
	struct wg_frame f;
	struct wg_clock_sample before;
	int r;

	if (wg_unlikely(!real))
		return WG_CU_SYMBOL_NOT_FOUND;
	if (wg_on()) {
		wg_enter(&f, WG_FN_cuInit, WGREC_API_DRIVER, WGREC_CALL_CONTEXT, 0, WG_NOSTREAM,
			 0, 0, 0, 0, 0);
		r = real(flags);
		wg_leave(&f);
		return r;
	}
	wg_clock_sample(&before);
	r = real(flags);
	if (!r)
		WG_QUIET(wg_start(&before));
	return r;
}
