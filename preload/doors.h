/* SPDX-License-Identifier: Apache-2.0 */
/*
 * doors.h - the ways by which a program comes to a CUDA function, and the real functions behind.
 *
 * 1 ELF binding: we export the name. 2 dlsym, dlvsym. 3 cuGetProcAddress. 4 cudaGetDriverEntryPoint.
 * cuGetExportTable stays untouched.
 *
 * wg_reals[fn] is the one real function for that symbol and flavour, or NULL until it is known. A
 * second library with the same names (two libcudart of different releases) is kept apart: pointers
 * handed out by dlsym go through thunks that carry their own real function, and calls that the
 * linker bound are told apart by the caller's object.
 */
#ifndef WG_DOORS_H
#define WG_DOORS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "calls.h"
#include "inflight.h"

#define WG_EXPORT __attribute__((visibility("default")))

extern void *wg_reals[WG_FN_COUNT];
extern __thread void *wg_thunk_real WG_INITIAL_EXEC; /* set by a thunk for the wrapper it enters */
extern volatile uint32_t wg_dlopens;	/* counted by the door */
extern volatile uint32_t wg_settled;	/* value of wg_dlopens up to which one runtime is loaded */

/* Finds it; NULL when nobody has it. function: one of the program's, NULL none. */
void *wg_real_slow(uint16_t fn, const void *caller, const void *function);

static inline void *wg_take_thunk(void)
{
	void *real = wg_thunk_real;

	if (wg_unlikely(real))
		wg_thunk_real = NULL;
	return real;
}

static inline void *wg_real_driver(uint16_t fn)
{
	void *real = wg_take_thunk();

	if (wg_unlikely(real))
		return real;
	real = __atomic_load_n(&wg_reals[fn], __ATOMIC_RELAXED);
	return wg_likely(real) ? real : wg_real_slow(fn, NULL, NULL);
}

static inline void *wg_real_runtime(uint16_t fn, const void *caller, const void *function)
{
	void *real = wg_take_thunk();

	if (wg_unlikely(real))
		return real;
	real = __atomic_load_n(&wg_reals[fn], __ATOMIC_RELAXED);
	return wg_likely(real && wg_dlopens == wg_settled) ? real : wg_real_slow(fn, caller, function);
}

/* Fill in every driver function that libcuda exports: once, when its first function is known. */
void wg_resolve_driver(void);
void wg_pin_driver(void); /* at cuInit's success */
bool wg_is_ours(const void *p);	     /* inside this library */
bool wg_is_before_us(const void *p); /* in an object that search comes to before us */
void *wg_find_before(const char *symbol);

/* doors.c: the wrapper for what the driver found, or `found` itself. */
void *wg_replace_driver(const char *name, int version, bool known_version, uint64_t flags,
			void *found);

/* libc's own functions behind the names that we export (doors.c fills them in at load). */
extern struct wg_libc {
	void *(*dlsym)(void *, const char *);
	void *(*dlvsym)(void *, const char *, const char *);
	void *(*dlopen)(const char *, int);
	void *(*dlmopen)(long, const char *, int);
#define LIBC(name) void *name;
#include "libc.def"
#undef LIBC
} wg_libc;
void wg_doors_init(void); /* idempotent; called at load and by a look-up that comes earlier */

/* objects.c: definitions in the objects that are loaded. Take the loader's list lock. */
struct wg_found {
	void *address;
	const void *object; /* start of its first segment */
	char name[128];	    /* last part of its path, cut */
	char soname[64];
	char path[256];
};
/* Up to max definitions of an exported function behind us, in search order. Count. */
int wg_find_exports(const char *symbol, struct wg_found *out, int max);
/* The definition that belongs to the object which contains `caller`; index into found, -1 unknown. */
int wg_which_export(const struct wg_found *found, int n, const void *caller);
/* One function in the object that contains `inside`. NULL none. No lock (glibc 2.35 and newer). */
void *wg_object_symbol(const void *inside, const char *symbol);
/* All driver symbols at once: fills reals[fn] for each fn in [first, end) that the object has. */
void wg_object_symbols(const void *inside, uint16_t first, uint16_t end, void **reals);
const void *wg_object_start(const void *inside); /* NULL: in none */
/* libc's definitions of names that we export too: those behind us in search order. */
void wg_find_behind(const char (*names)[24], void **out, unsigned int n);
bool wg_is_loaded(const void *address); /* inside an object; true when it cannot be told */

#endif
