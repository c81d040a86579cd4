/* SPDX-License-Identifier: Apache-2.0 */
/*
 * calls_expand.h - expands calls.def once, with WG_CALL, WG_HAND and WG_SIX defined by whoever
 * includes it. No include guard on purpose.
 */
#define D(s, ...) WG_CALL(DRIVER, s, #s, 0, __VA_ARGS__)
#define DZ(s, ...) D(s, __VA_ARGS__) WG_CALL(DRIVER, s##_ptsz, #s, 1, __VA_ARGS__)
#define DS(s, ...) D(s, __VA_ARGS__) WG_CALL(DRIVER, s##_ptds, #s, 1, __VA_ARGS__)
#define R(s, ...) WG_CALL(RUNTIME, s, #s, 0, __VA_ARGS__)
#define RZ(s, ...) R(s, __VA_ARGS__) WG_CALL(RUNTIME, s##_ptsz, #s, 1, __VA_ARGS__)
#define RS(s, ...) R(s, __VA_ARGS__) WG_CALL(RUNTIME, s##_ptds, #s, 1, __VA_ARGS__)
#define D_HAND(s, kind) WG_HAND(DRIVER, s, #s, 0, kind)
#define R_HAND(s, kind) WG_HAND(RUNTIME, s, #s, 0, kind)
#define RZ_HAND(s, kind) R_HAND(s, kind) WG_HAND(RUNTIME, s##_ptsz, #s, 1, kind)
#define RG(s, kind, flags) WG_SIX(RUNTIME, s, #s, 0, kind, flags)
#define RGZ(s, kind, flags) RG(s, kind, flags) WG_SIX(RUNTIME, s##_ptsz, #s, 1, kind, flags)

#include "calls.def"

#undef D
#undef DZ
#undef DS
#undef R
#undef RZ
#undef RS
#undef D_HAND
#undef R_HAND
#undef RZ_HAND
#undef RG
#undef RGZ
#undef WG_CALL
#undef WG_HAND
#undef WG_SIX
