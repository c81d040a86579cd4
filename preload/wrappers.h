/* SPDX-License-Identifier: Apache-2.0 */
/*
 * wrappers.h - declares every wrapper of calls.def.
 */
#ifndef WG_WRAPPERS_H
#define WG_WRAPPERS_H

#include "cuda_types.h"
#include "doors.h"

#define WG_CALL(api, symbol, shown, ptsz, kind, flags, stream, PARAMS, A, names, values, b, a)         \
	WG_EXPORT int symbol PARAMS;
#define WG_HAND(api, symbol, shown, ptsz, kind)
#define WG_SIX(api, symbol, shown, ptsz, kind, flags)                                                \
	WG_EXPORT int symbol(uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e, uint64_t f);
#include "calls_expand.h"

WG_EXPORT int cuInit(unsigned int flags);
WG_EXPORT int cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags);
WG_EXPORT int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags,
				  int *status);
WG_EXPORT int cudaGetDriverEntryPoint(const char *symbol, void **pfn, uint64_t flags, int *status);
WG_EXPORT int cudaGetDriverEntryPoint_ptsz(const char *symbol, void **pfn, uint64_t flags,
					   int *status);
WG_EXPORT int cudaGetDriverEntryPointByVersion(const char *symbol, void **pfn, unsigned int version,
					       uint64_t flags, int *status);
WG_EXPORT int cudaGetDriverEntryPointByVersion_ptsz(const char *symbol, void **pfn,
						    unsigned int version, uint64_t flags,
						    int *status);

#endif
