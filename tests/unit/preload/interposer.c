// SPDX-License-Identifier: Apache-2.0
/* interposer.c - another preloaded tool: counts a call and hands it on to the "next" one. */
#include <dlfcn.h>
#include <stddef.h>

int interposed;

int cuMemGetInfo_v2(size_t *f, size_t *t);
int cuMemGetInfo_v2(size_t *f, size_t *t)
{
	static int (*next)(size_t *, size_t *);

	interposed++;
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "cuMemGetInfo_v2");
	return next ? next(f, t) : 999;
}
