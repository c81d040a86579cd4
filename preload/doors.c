// SPDX-License-Identifier: Apache-2.0
/*
 * doors.c - the ways by which a program comes to a CUDA function.
 *
 * dlsym and dlvsym themselves are in doors_*.S: what is not in our table, and every RTLD_NEXT, is a
 * tail jump, because libc looks at the return address to know who asks. Here is what happens for
 * the names that are ours. The real look-up always comes first and only what it found is replaced:
 * no function is invented that the program would not have had.
 */
#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <string.h>

#include "doors.h"
#include "effects.h"
#include "lifecycle.h"
#include "nccl.h"
#include "wrappers.h"

void *wg_reals[WG_FN_COUNT];
static void *driver[WG_FN_COUNT]; /* what libcuda itself exports */
static uint32_t driver_known;	  /* ... has been looked up */
static uint32_t interposed;	  /* somebody stands between us and libcuda */
__thread void *wg_thunk_real WG_INITIAL_EXEC;
volatile uint32_t wg_dlopens = 1;
volatile uint32_t wg_settled;
struct wg_libc wg_libc;

/* ---- libc behind us ---------------------------------------------------------------- */

static const char libc_names[][24] = {
	"dlsym", "dlvsym", "dlopen", "dlmopen",
#define LIBC(name) #name,
#include "libc.def"
#undef LIBC
};
_Static_assert(sizeof(wg_libc) == sizeof(libc_names) / 24 * sizeof(void *), "libc.def");

void wg_doors_init(void)
{
	static uint32_t done;
	void *out[sizeof(libc_names) / 24] = { 0 };

	if (__atomic_load_n(&done, __ATOMIC_ACQUIRE))
		return;
	wg_find_behind(libc_names, out, sizeof(libc_names) / 24);
	for (unsigned int i = 0; i < sizeof(libc_names) / 24; i++)
		__atomic_store_n((void **)&wg_libc + i, out[i], __ATOMIC_RELAXED);
	__atomic_store_n(&done, 1, __ATOMIC_RELEASE);
}

/* ---- our functions ------------------------------------------------------------------- */

static void *const wrappers[WG_FN_NCCL_FIRST] = {
	NULL,
#define WG_CALL(api, symbol, shown, ptsz, kind, flags, stream, P, A, names, values, b, a) symbol,
#define WG_HAND(api, symbol, shown, ptsz, kind) symbol,
#define WG_SIX(api, symbol, shown, ptsz, kind, flags) symbol,
#include "calls_expand.h"
};

static bool is_runtime(uint16_t fn)
{
	return wg_names[fn].api == WGREC_API_RUNTIME;
}

/* ---- thunks: a second real function for the same name ------------------------------------ */

#define THUNKS 512
#define THUNK_SIZE 64 /* doors_*.S */
struct thunk {
	void *real, *wrapper;
} wg_thunks[THUNKS] __attribute__((visibility("hidden")));
extern const char wg_thunk_code[] __attribute__((visibility("hidden")));
static uint32_t thunks_used;

static void *thunk_for(void *real, void *wrapper)
{
	uint32_t n = __atomic_load_n(&thunks_used, __ATOMIC_ACQUIRE), i;

	for (i = 0; i < n && i < THUNKS; i++)
		if (wg_thunks[i].real == real && wg_thunks[i].wrapper == wrapper)
			return (void *)(wg_thunk_code + i * THUNK_SIZE);
	i = __atomic_fetch_add(&thunks_used, 1, __ATOMIC_ACQ_REL);
	if (i >= THUNKS) {
		__atomic_store_n(&thunks_used, THUNKS, __ATOMIC_RELAXED);
		wg_note("too many libraries with the same CUDA functions: some calls unseen");
		return real;
	}
	wg_thunks[i].wrapper = wrapper;
	__atomic_store_n(&wg_thunks[i].real, real, __ATOMIC_RELEASE);
	return (void *)(wg_thunk_code + i * THUNK_SIZE);
}

/* `real` was found for fn: remember it, and say what to hand out. */
static void *take(uint16_t fn, void *real)
{
	void *known = NULL;

	/*
	 * What the linker bound goes where the linker would have led it. Without a look round first it
	 * would go to whichever library was looked up first: one of another namespace, or a private one.
	 */
	if (fn < WG_FN_NCCL_FIRST && !is_runtime(fn))
		wg_resolve_driver();
	/* A binding of the linker must still come to whoever stands behind us, not past him. */
	if (wg_unlikely(interposed) && fn < WG_FN_NCCL_FIRST && !is_runtime(fn))
		wg_real_slow(fn, NULL, NULL);
	if (__atomic_compare_exchange_n(&wg_reals[fn], &known, real, false, __ATOMIC_ACQ_REL,
					__ATOMIC_ACQUIRE) || known == real)
		return wrappers[fn];
	if (!wg_is_loaded(known)) { /* its library was closed since */
		if (!is_runtime(fn) && !wg_on())
			__atomic_store_n(&driver_known, 0, __ATOMIC_RELEASE);
		__atomic_store_n(&wg_reals[fn], real, __ATOMIC_RELEASE);
		return wrappers[fn];
	}
	return thunk_for(real, wrappers[fn]);
}

/* ---- real functions that nobody has looked up (ELF binding, our own needs) ---------------- */

void wg_resolve_driver(void)
{
	static const char *const often_hooked[] = { "cuGetProcAddress_v2", "cuMemAlloc_v2",
						    "cuMemGetInfo_v2", "cuLaunchKernel" };
	struct wg_found found[8];
	const struct wg_found *cuda = NULL;
	uint16_t end = 1;
	int n;

	if (__atomic_load_n(&driver_known, __ATOMIC_ACQUIRE))
		return;
	n = wg_find_exports("cuInit", found, 8);
	for (int i = 0; i < n; i++) /* the one that is called so, else the last in order */
		if (!cuda || strncmp(cuda->name, "libcuda.so", 10))
			cuda = &found[i];
	if (!cuda)
		return;
	while (end < WG_FN_NCCL_FIRST && !is_runtime(end))
		end++;
	memset(driver, 0, sizeof(driver));
	wg_object_symbols(cuda->address, 1, end, driver);
	for (unsigned int i = 0; i < sizeof(often_hooked) / sizeof(often_hooked[0]); i++) {
		struct wg_found other[2];

		n = wg_find_exports(often_hooked[i], other, 2);
		if (n > 1 || (n == 1 && other[0].object != cuda->object))
			interposed = 1;
	}
	for (uint16_t fn = 1; fn < end && !interposed; fn++) {
		void *known = wg_reals[fn];

		if (!known || (known != driver[fn] && !wg_is_loaded(known)))
			__atomic_store_n(&wg_reals[fn], driver[fn], __ATOMIC_RELEASE);
	}
	__atomic_store_n(&driver_known, 1, __ATOMIC_RELEASE);
}

/*
 * Before cuInit() a runtime may have closed libcuda again, and it may lie elsewhere now; afterwards
 * it must not go any more: our thread asks it, and what was registered with it is in use.
 */
void wg_pin_driver(void)
{
	struct wg_found found[8];
	int n;

	__atomic_store_n(&driver_known, 0, __ATOMIC_RELEASE);
	wg_resolve_driver();
	n = wg_find_exports("cuInit", found, 8);
	for (int i = 0; i < n && wg_libc.dlopen; i++)
		if (found[i].address == driver[WG_FN_cuInit])
			wg_libc.dlopen(found[i].path, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/*
 * More than one runtime: which one does this call belong to? The object that a kernel's stub lies in
 * says it for launches, the caller's object otherwise. (A library that ends in a jump to the runtime
 * has its own caller stand there: then it may be unknown. Streams, events and memory are the
 * driver's and either runtime's; only functions are not.) Remembered per object.
 */
#define BINDINGS 1024u
static struct binding {
	uint64_t key; /* object and function mixed; 0 free; written last */
	void *real;
} bindings[BINDINGS];

static void *runtime_for(uint16_t fn, const void *where)
{
	const void *object = where ? wg_object_start(where) : NULL;
	uint64_t key = ((uint64_t)(uintptr_t)object << 12) ^ ((uint64_t)fn << 48) ^ fn;
	struct binding *b = &bindings[wgrec_hash(key) >> 54];
	struct wg_found found[8];
	int n, i;

	if (!object)
		return NULL;
	if (__atomic_load_n(&b->key, __ATOMIC_ACQUIRE) == key) {
		void *real = __atomic_load_n(&b->real, __ATOMIC_RELAXED);

		if (__atomic_load_n(&b->key, __ATOMIC_ACQUIRE) == key)
			return real;
	}
	n = wg_find_exports(wg_symbols[fn], found, 8);
	i = wg_which_export(found, n, where);
	__atomic_store_n(&b->key, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&b->real, i < 0 ? NULL : found[i].address, __ATOMIC_RELEASE);
	__atomic_store_n(&b->key, key, __ATOMIC_RELEASE);
	return i < 0 ? NULL : found[i].address;
}

static uint32_t several_runtimes;
static uint64_t look_at;    /* ticks: not before that are the runtimes counted again */
static uint64_t opened_at;  /* ns: when wg_dlopens was last seen to move */
static uint32_t opened_seen;

/*
 * One runtime is the rule and costs two loads a call. After each dlopen() they are counted again, at
 * most every 50 ms, until two seconds have passed without another: the door counts when a dlopen
 * begins, and loading takes its time. In between a call pays one look at the counter.
 */
static __attribute__((noinline)) void count_runtimes(uint32_t opened)
{
	uint64_t now = wg_mono_ns(), fifty = 50 * 1000000ull, tick = wg_ticks_to_ns(1u << 20);
	int *errno_at = &errno, errno_was = *errno_at;
	struct wg_found found[2];

	if (opened != opened_seen) {
		opened_seen = opened;
		opened_at = now;
	}
	look_at = wg_stamp() + (tick ? (fifty << 20) / tick : fifty);
	/* One that was closed since: its functions are looked up anew. */
	for (uint16_t fn = 1; fn < WG_FN_NCCL_FIRST; fn++) {
		void *real = __atomic_load_n(&wg_reals[fn], __ATOMIC_ACQUIRE);

		if (is_runtime(fn) && real && !wg_is_loaded(real))
			__atomic_compare_exchange_n(&wg_reals[fn], &real, NULL, false,
						    __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	}
	if (wg_find_exports("cudaRuntimeGetVersion", found, 2) > 1)
		__atomic_store_n(&several_runtimes, 1, __ATOMIC_RELEASE);
	else if (now - opened_at > 2000 * 1000000ull)
		wg_settled = opened;
	*errno_at = errno_was;
}

static inline void may_count_runtimes(void)
{
	uint32_t opened = wg_dlopens;

	if (opened != opened_seen || (int64_t)(wg_stamp() - look_at) >= 0)
		count_runtimes(opened);
}

/* The caller's own, else the first in search order. */
static void *pick(const struct wg_found *found, int n, const void *caller)
{
	int i = wg_which_export(found, n, caller);

	return found[i < 0 ? 0 : i].address;
}

void *wg_real_slow(uint16_t fn, const void *caller, const void *function)
{
	void *real = __atomic_load_n(&wg_reals[fn], __ATOMIC_ACQUIRE);
	int *errno_at = &errno, errno_was = *errno_at;
	struct wg_found found[8];
	int n;

	if (is_runtime(fn)) {
		if (!several_runtimes) {
			may_count_runtimes();
			real = __atomic_load_n(&wg_reals[fn], __ATOMIC_ACQUIRE);
			if (!several_runtimes && real)
				return real;
		}
		if (several_runtimes) {
			void *own = function ? runtime_for(fn, function) : NULL;

			if (!own)
				own = runtime_for(fn, caller);
			if (own) {
				real = own;
				goto out;
			}
			wg_note("two CUDA runtimes are loaded, and some calls do not show which they mean");
		}
	}
	if (real && !wg_is_loaded(real))
		__atomic_compare_exchange_n(&wg_reals[fn], &real, NULL, false, __ATOMIC_ACQ_REL,
					    __ATOMIC_ACQUIRE);
	else if (real)
		goto out;
	real = NULL;
	n = wg_find_exports(wg_symbols[fn], found, 8);
	if (n) {
		void *none = NULL;

		real = pick(found, n, caller);
		if (!__atomic_compare_exchange_n(&wg_reals[fn], &none, real, false,
						 __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
			real = none;
	}
out:
	*errno_at = errno_was;
	return real;
}

void *wg_real_export(const char *symbol, const void *caller)
{
	struct wg_found found[8];
	int n = wg_find_exports(symbol, found, 8);

	return n ? pick(found, n, caller) : NULL;
}

void *wg_real_symbol(const char *symbol)
{
	uint16_t fn = wg_fn_by_name(symbol);
	void *inside;

	wg_resolve_driver();
	inside = driver[WG_FN_cuInit];
	if (fn && fn < WG_FN_NCCL_FIRST && driver[fn])
		return driver[fn];
	return inside ? wg_object_symbol(inside, symbol) : NULL;
}

/* ---- dlsym, dlvsym ------------------------------------------------------------------------ */

static void *replace(uint16_t fn, void *real)
{
	if (wg_is_before_us(real)) /* another interposer, or a runtime inside the program */
		return real;
	if (fn >= WG_FN_NCCL_FIRST)
		return wg_nccl_door(wg_symbols[fn], real);
	return take(fn, real);
}

/* RTLD_DEFAULT, and handles whose search leads to us: does anybody else have it? */
static void *default_scope(uint16_t fn, const char *name, const void *caller)
{
	struct wg_found found[8];
	void *first = wg_find_before(name);
	int n;

	if (first)
		return first;
	n = wg_find_exports(name, found, 8);
	if (!n) /* says so in dlerror() as well */
		return wg_libc.dlsym ? wg_libc.dlsym(RTLD_NEXT, name) : NULL;
	return replace(fn, pick(found, n, caller));
}

void *wg_door_dlsym(void *handle, const char *name, const void *caller, uint16_t fn);
void *wg_door_dlsym(void *handle, const char *name, const void *caller, uint16_t fn)
{
	void *real;

	if (handle == RTLD_DEFAULT)
		return default_scope(fn, name, caller);
	real = wg_libc.dlsym(handle, name);
	if (!real)
		return NULL;
	return wg_is_ours(real) ? default_scope(fn, name, caller) : replace(fn, real);
}

void *wg_door_dlvsym(void *handle, const char *name, const char *version, const void *caller,
		     uint16_t fn);
void *wg_door_dlvsym(void *handle, const char *name, const char *version, const void *caller,
		     uint16_t fn)
{
	void *real;

	/* Our definitions have no version, so they answer to every one: only others count. */
	real = wg_libc.dlvsym(handle, name, version);
	if (!real)
		return NULL;
	return wg_is_ours(real) ? default_scope(fn, name, caller) : replace(fn, real);
}

/* ---- cuGetProcAddress ------------------------------------------------------------------------ */

static const struct row {
	char name[56], symbol[56];
	int version;
	uint8_t flavour;
} rows[] = {
#define V(name_, version_, flavour_, symbol_)                                                        \
	{ .name = #name_, .symbol = #symbol_, .version = version_, .flavour = flavour_ },
#include "driver_versions.def"
#undef V
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))
#define ROW_INDEX 2048u

static uint16_t row_fn[ROWS];	       /* function id of the row's symbol, 0: not wrapped */
static uint16_t row_index[ROW_INDEX];  /* first row of a name, + 1 */
static uint32_t rows_built;
static int newest_version;

static uint32_t row_hash(const char *s)
{
	uint32_t h = 2166136261u;

	for (; *s; s++)
		h = (h ^ (unsigned char)*s) * 16777619u;
	return h ^ (h >> 15);
}

static void build_rows(void)
{
	int newest = 0;

	for (unsigned int i = 0; i < ROWS; i++) {
		row_fn[i] = wg_fn_by_name(rows[i].symbol);
		if (rows[i].version > newest)
			newest = rows[i].version;
		if (i && !strcmp(rows[i].name, rows[i - 1].name))
			continue;
		for (uint32_t at = row_hash(rows[i].name);; at++) {
			uint16_t none = 0;

			if (__atomic_compare_exchange_n(&row_index[at % ROW_INDEX], &none,
							(uint16_t)(i + 1), false, __ATOMIC_RELAXED,
							__ATOMIC_RELAXED) || none == i + 1)
				break;
		}
	}
	newest_version = newest / 1000 * 1000 + 999; /* this major release was looked through */
	__atomic_store_n(&rows_built, 1, __ATOMIC_RELEASE);
}

static int first_row(const char *name)
{
	for (uint32_t at = row_hash(name);; at++) {
		uint16_t i = row_index[at % ROW_INDEX];

		if (!i || !strcmp(rows[i - 1].name, name))
			return (int)i - 1;
	}
}

/*
 * Which exported symbol did the driver mean? Its address says so for certain: the driver hands out
 * what it exports. Where no address fits, name, version and flavour decide by the table, but only
 * up to the release that the table knows: a newer one may have put another signature behind the
 * same name, and then the call stays unseen.
 */
void *wg_replace_driver(const char *name, int version, bool known_version, uint64_t flags,
			void *found)
{
	int flavour = (flags & 2) != 0, best[2] = { -1, -1 }, first, i;

	if (!found || wg_is_ours(found))
		return found;
	if (wg_unlikely(!__atomic_load_n(&rows_built, __ATOMIC_ACQUIRE)))
		build_rows();
	wg_resolve_driver();
	first = first_row(name);
	if (first < 0)
		return found;
	for (i = first; i < (int)ROWS && !strcmp(rows[i].name, name); i++) {
		if (row_fn[i] && driver[row_fn[i]] == found)
			return take(row_fn[i], found);
		if (rows[i].version <= version)
			best[rows[i].flavour] = i; /* sorted by version within a flavour */
	}
	i = flavour && best[1] >= 0 ? best[1] : best[0];
	if (i < 0 || !row_fn[i])
		return found;
	if (!known_version || version > newest_version) {
		wg_note("a driver function newer than our table was asked for: its calls are unseen");
		return found;
	}
	return take(row_fn[i], found);
}

int cuGetProcAddress(const char *symbol, void **pfn, int version, uint64_t flags)
{
	int (*real)(const char *, void **, int, uint64_t) =
		wg_real_driver(WG_FN_cuGetProcAddress);
	int r;

	if (!real)
		return WG_CU_SYMBOL_NOT_FOUND;
	r = real(symbol, pfn, version, flags);
	if (!r && symbol && pfn && *pfn)
		*pfn = wg_replace_driver(symbol, version, true, flags, *pfn);
	return r;
}

int cuGetProcAddress_v2(const char *symbol, void **pfn, int version, uint64_t flags, int *status)
{
	int (*real)(const char *, void **, int, uint64_t, int *) =
		wg_real_driver(WG_FN_cuGetProcAddress_v2);
	int r;

	if (!real)
		return WG_CU_SYMBOL_NOT_FOUND;
	r = real(symbol, pfn, version, flags, status);
	if (!r && symbol && pfn && *pfn)
		*pfn = wg_replace_driver(symbol, version, true, flags, *pfn);
	return r;
}

/* ---- cudaGetDriverEntryPoint --------------------------------------------------------------- */

/*
 * The runtime asks cuGetProcAddress for this, mostly through our own door; then the answer is ours
 * already. The version that the plain form asks for is the runtime's own, which only it knows: what
 * is not recognised by its address stays as it is.
 */
#define ENTRY_POINT(suffix, ptsz)                                                                  \
	int cudaGetDriverEntryPoint##suffix(const char *symbol, void **pfn, uint64_t flags,        \
					    int *status)                                           \
	{                                                                                          \
		int (*real)(const char *, void **, uint64_t, int *) =                              \
			wg_real_runtime(WG_FN_cudaGetDriverEntryPoint##suffix,                     \
					__builtin_return_address(0), NULL);                              \
		int r;                                                                             \
                                                                                                   \
		if (!real)                                                                         \
			return WG_CU_SYMBOL_NOT_FOUND;                                             \
		r = real(symbol, pfn, flags, status);                                              \
		if (!r && symbol && pfn && *pfn)                                                   \
			*pfn = wg_replace_driver(symbol, 0, false, ptsz && !flags ? 2 : flags, *pfn); \
		return r;                                                                          \
	}                                                                                          \
                                                                                                   \
	int cudaGetDriverEntryPointByVersion##suffix(const char *symbol, void **pfn,               \
						     unsigned int version, uint64_t flags,         \
						     int *status)                                  \
	{                                                                                          \
		int (*real)(const char *, void **, unsigned int, uint64_t, int *) =                \
			wg_real_runtime(WG_FN_cudaGetDriverEntryPointByVersion##suffix,            \
					__builtin_return_address(0), NULL);                              \
		int r;                                                                             \
                                                                                                   \
		if (!real)                                                                         \
			return WG_CU_SYMBOL_NOT_FOUND;                                             \
		r = real(symbol, pfn, version, flags, status);                                     \
		if (!r && symbol && pfn && *pfn)                                                   \
			*pfn = wg_replace_driver(symbol, (int)version, true,                       \
						 ptsz && !flags ? 2 : flags, *pfn);                \
		return r;                                                                          \
	}

ENTRY_POINT(, 0)
ENTRY_POINT(_ptsz, 1)
