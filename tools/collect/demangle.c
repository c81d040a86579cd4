/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demangle.c - C++ and Rust names for people.
 *
 * The names come from the target's files: a short mangled name can stand for gigabytes of
 * text, so the output is bounded and the demangler is left by longjmp when it exceeds
 * that. Its callback variants hold no memory, which makes that safe.
 */
#include "sources.h"

#include <setjmp.h>
#include <string.h>

#ifdef WG_HAVE_IBERTY
#include <libiberty/demangle.h>

#define MAX_IN 8192
#define MAX_OUT 4096

struct out {
	jmp_buf too_long;
	size_t n;
	char text[MAX_OUT];
};

static void take(const char *s, size_t n, void *arg)
{
	struct out *o = arg;

	if (n >= sizeof(o->text) - o->n)
		longjmp(o->too_long, 1);
	memcpy(o->text + o->n, s, n);
	o->n += n;
}

const char *wg_demangle(struct wg_facts *f, const char *mangled)
{
	const int options = DMGL_PARAMS | DMGL_ANSI;
	struct out o;

	if (!mangled)
		return NULL;
	o.n = 0;
	if ((strncmp(mangled, "_Z", 2) && strncmp(mangled, "_R", 2) &&
	     strncmp(mangled, "___Z", 4)) ||
	    strlen(mangled) > MAX_IN || setjmp(o.too_long))
		return wg_str(f->arena, mangled);
	/* Rust's older names look like C++ with a hash at the end: ask Rust first. */
	if (rust_demangle_callback(mangled, options, take, &o) && o.n)
		return wg_strn(f->arena, o.text, o.n);
	o.n = 0;
	if (cplus_demangle_v3_callback(mangled, options, take, &o) && o.n)
		return wg_strn(f->arena, o.text, o.n);
	return wg_str(f->arena, mangled);
}
#else
const char *wg_demangle(struct wg_facts *f, const char *mangled)
{
	return wg_str(f->arena, mangled);
}
#endif
