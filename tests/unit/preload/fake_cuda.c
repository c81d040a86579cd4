// SPDX-License-Identifier: Apache-2.0
/*
 * fake_cuda.c - a libcuda.so.1 that does what a test of the wrappers needs, and no more: calls that
 * block for ever and can be cancelled, calls that call back, and flavours that can be told apart.
 */
#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define API(name, params)                                     \
	__attribute__((visibility("default"))) int name params; \
	int name params

static uint64_t next = 0x7000000000;
static __thread int device = -1;
static int up;

API(cuInit, (unsigned int flags))
{
	if (getenv("FAKE_NO_GPU"))
		return 100;
	up = 1;
	return (int)(flags & 0);
}
API(cuDeviceGet, (int *d, int i)) { *d = i; return up ? 0 : 3; }
API(cuDevicePrimaryCtxRetain, (void **c, int d)) { *c = (void *)(uintptr_t)(0x100 + d); return up ? 0 : 3; }
API(cuDevicePrimaryCtxGetState, (int d, unsigned int *f, int *a)) { *f = 0; *a = d >= 0; return 0; }
API(cuCtxSetCurrent, (void *c)) { device = c ? (int)(uintptr_t)c - 0x100 : -1; return 0; }
API(cuCtxGetCurrent, (void **c)) { *c = device < 0 ? NULL : (void *)(uintptr_t)(0x100 + device); return 0; }
API(cuCtxGetDevice, (int *d)) { *d = device; return device < 0 ? 201 : 0; }
API(cuCtxSynchronize, (void)) { return 0; }
API(cuCtxSynchronize_v2, (void *ctx)) { return ctx ? 0 : 201; }
API(cuMemGetInfo_v2, (size_t *f, size_t *t))
{
	if (f)
		*f = 1ul << 32;
	if (t)
		*t = 1ul << 33;
	return 0;
}
API(cuMemAlloc_v2, (uint64_t *p, size_t n))
{
	errno = ENOMSG; /* drivers leave things there */
	if (n > 1ul << 32)
		return 2;
	*p = next;
	next += (n + 511) / 512 * 512;
	return 0;
}
API(cuMemFree_v2, (uint64_t p)) { return p ? 0 : 1; }
API(cuStreamCreate, (void **s, unsigned int f)) { *s = (void *)(uintptr_t)(0x5000 + f); return 0; }
/* 0x91: for ever, 0x92: a second, anything else: at once */
static int synchronize(void *s, int result)
{
	if (s == (void *)0x91)
		for (;;)
			pause();
	if (s == (void *)0x92)
		sleep(1);
	return result;
}
API(cuStreamSynchronize, (void *s)) { return synchronize(s, 0); }
API(cuStreamSynchronize_ptsz, (void *s)) { return synchronize(s, 77); }
API(cuStreamQuery, (void *s)) { return s ? 0 : 600; }
API(cuStreamQuery_ptsz, (void *s)) { return s ? 0 : 78; }
API(cuEventQuery, (void *e)) { return e ? 0 : 600; }
/* Not what it is in CUDA: calls back, to leave by longjmp or to call again. */
API(cuMemAdvise, (uint64_t callback, size_t n, int a, int d))
{
	(void)a;
	(void)d;
	if (callback)
		((void (*)(size_t))(uintptr_t)callback)(n);
	return 0;
}
API(cuGetProcAddress_v2, (const char *name, void **p, int version, uint64_t flags, int *status))
{
	char symbol[64];

	*p = NULL;
	if (!strcmp(name, "cuStreamSynchronize") || !strcmp(name, "cuStreamQuery")) {
		strcpy(symbol, name);
		if (flags & 2)
			strcat(symbol, "_ptsz");
	} else if (!strcmp(name, "cuCtxSynchronize")) {
		strcpy(symbol, version >= 13000 ? "cuCtxSynchronize_v2" : "cuCtxSynchronize");
	} else if (!strcmp(name, "cuGetProcAddress")) {
		strcpy(symbol, "cuGetProcAddress_v2");
	} else if (!strcmp(name, "cuMemAlloc") || !strcmp(name, "cuMemFree") ||
		   !strcmp(name, "cuMemGetInfo")) {
		strcpy(symbol, name);
		strcat(symbol, "_v2");
	} else {
		strncpy(symbol, name, sizeof(symbol) - 1);
		symbol[sizeof(symbol) - 1] = 0;
	}
	if (!strcmp(name, "cuFutureThing"))
		*p = (void *)cuMemAdvise; /* a name that no table knows */
	else if (!strcmp(name, "cuEventQuery") && version > 99000)
		*p = (void *)cuDeviceGet; /* a future signature behind a known name */
	if (!*p) {
		static const struct {
			const char *name;
			void *f;
		} all[] = {
			{ "cuInit", (void *)cuInit },
			{ "cuStreamSynchronize", (void *)cuStreamSynchronize },
			{ "cuStreamSynchronize_ptsz", (void *)cuStreamSynchronize_ptsz },
			{ "cuStreamQuery", (void *)cuStreamQuery },
			{ "cuStreamQuery_ptsz", (void *)cuStreamQuery_ptsz },
			{ "cuCtxSynchronize", (void *)cuCtxSynchronize },
			{ "cuCtxSynchronize_v2", (void *)cuCtxSynchronize_v2 },
			{ "cuGetProcAddress_v2", (void *)cuGetProcAddress_v2 },
			{ "cuMemAlloc_v2", (void *)cuMemAlloc_v2 },
			{ "cuMemFree_v2", (void *)cuMemFree_v2 },
			{ "cuMemGetInfo_v2", (void *)cuMemGetInfo_v2 },
			{ "cuEventQuery", (void *)cuEventQuery },
			{ "cuDeviceGet", (void *)cuDeviceGet },
		};

		for (unsigned int i = 0; i < sizeof(all) / sizeof(all[0]); i++)
			if (!strcmp(all[i].name, symbol))
				*p = all[i].f;
	}
	if (status)
		*status = *p ? 0 : 1; /* found, symbol not found */
	return *p ? 0 : 500;
}
