// SPDX-License-Identifier: Apache-2.0
/*
 * nccl.c - wrappers of the NCCL API, one set a library.
 *
 * Two NCCLs can be loaded at once (PyTorch's own and one that was opened by path), and functions
 * without a communicator do not say which is meant. So each function exists once as an exported
 * symbol, for callers that the linker bound to us (the library is found from the communicator,
 * else from the caller), and WG_NCCL_LIBRARIES times as a door, handed out by dlsym for one
 * library's function.
 *
 * Inside an NCCL call (wg_in_nccl) NCCL's own calls of its API pass unrecorded, and what it gives
 * to streams is marked as its own.
 *
 * Between ncclGroupStart and ncclGroupEnd nothing is given to a stream: the calls are noted in
 * this thread's group and given when the outermost end has returned success; when it says "in
 * progress" (a non-blocking communicator), when ncclCommGetAsyncError says success.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <string.h>

#include "comms.h"
#include "doors.h"
#include "hooks.h"
#include "inflight.h"
#include "nccl.h"
#include "streams.h"

#define LIBRARIES 4
#define EXPORT WG_EXPORT
#define MAX_GIVEN 24
#define MAX_INITS 24
#define MAX_WAITING 1024
#define ROOMS 256 /* threads with an open group at a time */
#define NO_ROOT (-1)
#define NO_REDOP 255
#define NO_COLOR (-1)

enum { NCCL_SUCCESS = 0, NCCL_INTERNAL_ERROR = 3, NCCL_IN_PROGRESS = 7 };

enum nccl_fn {
#define NCCL(name, kind, blocking, args) I_##name,
#include "nccl.def"
#undef NCCL
	NCCL_FNS,
	/* Not wrapped, but asked. */
	I_ncclCommCount = NCCL_FNS,
	I_ncclCommUserRank,
	I_ncclCommCuDevice,
	NCCL_REALS
};
static const char *const names[NCCL_REALS] = {
#define NCCL(name, kind, blocking, args) [I_##name] = #name,
#include "nccl.def"
#undef NCCL
	[I_ncclCommCount] = "ncclCommCount",
	[I_ncclCommUserRank] = "ncclCommUserRank",
	[I_ncclCommCuDevice] = "ncclCommCuDevice",
};

struct nccl_id { /* passed by value: on the stack on x86-64, by reference on aarch64 */
	char bytes[WG_ID_BYTES];
};

struct nccl_config { /* the head that all versions have in common, then what newer ones added */
	size_t size;
	unsigned int magic, version;
	int blocking, cga, min_ctas, max_ctas;
	const char *net;
	int split_share, traffic_class; /* 2.26 */
	const char *name;		/* 2.27 */
};

struct library {
	_Atomic uintptr_t base; /* 0 free, 1 being filled in */
	char path[256];
	void *real[NCCL_REALS];
};
static struct library libraries[LIBRARIES];
static _Atomic uint32_t nlibraries;
static struct { _Atomic uintptr_t page; _Atomic uint32_t library_plus_1; } callers[64];

struct given { /* calls that wait for their stream: numbers first ... end - 1 */
	int32_t comm;
	uint32_t stream_index;
	uint64_t first, end, p2p_first, p2p_end;
	uint16_t fn, p2p_fn;
};
/*
 * What a thread's open group holds is lent to it. As thread-local memory it would be more than the
 * loader has to spare when LD_AUDIT is set, and then no program starts under us at all.
 */
struct room {
	uint32_t taken;
	struct given given[MAX_GIVEN];
	struct {
		int32_t comm;
		void **out;
	} inits[MAX_INITS];
};
static struct room rooms[ROOMS];
struct group {
	uint32_t depth, calls, ngiven, ninits;
	struct room *room; /* NULL: nothing in it yet */
};
static __thread struct group group WG_INITIAL_EXEC;
/* Non-blocking communicators: given when they say that they are ready. By index in COMMS. */
static struct given waiting[MAX_WAITING];
/* A communicator's creation that is itself the program's first use of CUDA. */
static __thread struct {
	const struct wg_comm_init *how;
	int32_t comm;
} early WG_INITIAL_EXEC;

/* ---- which library --------------------------------------------------------------- */

static struct library *library_at(uintptr_t base, const void *inside, const char *path)
{
	for (uint32_t k = 0; k < LIBRARIES; k++) {
		struct library *l = &libraries[k];
		uintptr_t now = atomic_load_explicit(&l->base, memory_order_acquire), none = 0;
		uint32_t n;

		if (now == base)
			return l;
		if (now || !atomic_compare_exchange_strong(&l->base, &none, 1)) {
			if (now == 1 || none == 1)
				return NULL; /* being filled in: only this look-up is lost */
			continue;
		}
		strncpy(l->path, path ? path : "", sizeof(l->path) - 1);
		for (int i = 0; i < NCCL_REALS; i++)
			l->real[i] = wg_object_symbol(inside, names[i]);
		atomic_store_explicit(&l->base, base, memory_order_release);
		for (n = atomic_load(&nlibraries);
		     n < k + 1 && !atomic_compare_exchange_weak(&nlibraries, &n, k + 1);)
			;
		return l;
	}
	wg_note("more NCCL libraries than are kept apart: the calls into one are not seen");
	return NULL;
}

static struct library *library_of(void *real)
{
	const void *start = real ? wg_object_start(real) : NULL;
	Dl_info info = { 0 };

	if (!start || wg_is_ours(real))
		return NULL;
	for (uint32_t k = 0; k < LIBRARIES; k++)
		if (atomic_load_explicit(&libraries[k].base, memory_order_acquire) ==
		    (uintptr_t)start)
			return &libraries[k];
	/* Once a library, and only within a look-up that takes the loader's lock as well. */
	if (!dladdr(real, &info))
		info.dli_fname = NULL;
	return library_at((uintptr_t)start, real, info.dli_fname);
}

/* A call that came by ELF binding. */
static struct library *elf_library(uint64_t comm, enum nccl_fn fn, const void *caller)
{
	uint32_t n = atomic_load_explicit(&nlibraries, memory_order_acquire), slot, known;
	uintptr_t page = (uintptr_t)caller >> 12;
	struct library *l;
	int32_t c;

	if (n > 1 && comm) {
		c = wg_comm_library(wg_comm_find(comm));
		if (c >= 0)
			return &libraries[c];
	}
	slot = (uint32_t)(page % 64);
	known = atomic_load_explicit(&callers[slot].library_plus_1, memory_order_acquire);
	if (known && atomic_load_explicit(&callers[slot].page, memory_order_relaxed) == page)
		return &libraries[known - 1];
	l = library_of(wg_real_export(names[fn], caller));
	if (l) {
		atomic_store_explicit(&callers[slot].library_plus_1, 0, memory_order_release);
		atomic_store_explicit(&callers[slot].page, page, memory_order_relaxed);
		atomic_store_explicit(&callers[slot].library_plus_1, (uint32_t)(l - libraries) + 1,
				      memory_order_release);
	}
	return l;
}

static int32_t library_index(const struct library *l)
{
	return (int32_t)(l - libraries);
}

static uint32_t library_name(const struct library *l)
{
	static _Atomic uint32_t refs[LIBRARIES];
	uint32_t k = (uint32_t)library_index(l), ref = atomic_load(&refs[k]);

	if (!ref) {
		ref = wg_rec_string(l->path);
		atomic_store(&refs[k], ref);
	}
	return ref;
}

static uint32_t fn_string(uint16_t fn)
{
	static _Atomic uint32_t refs[NCCL_FNS];
	uint32_t k = fn - WG_FN_NCCL_FIRST, ref;

	if (k >= NCCL_FNS)
		return 0;
	ref = atomic_load(&refs[k]);
	if (!ref) {
		ref = wg_rec_string(names[k]);
		atomic_store(&refs[k], ref);
	}
	return ref;
}

/* ---- communicators -------------------------------------------------------------------- */

static int ask(const struct library *l, enum nccl_fn fn, uint64_t comm)
{
	int v = -1;

	if (!l->real[fn] || ((int (*)(uint64_t, int *))l->real[fn])(comm, &v))
		return -1;
	return v;
}

/* NCCL answers these from the communicator itself, once it is ready. */
static void ask_who(const struct library *l, int32_t c, uint64_t comm)
{
	if (c < 0 || wg_comm_state_of(c) != WGREC_COMM_READY || !comm)
		return;
	wg_comm_who(c, ask(l, I_ncclCommUserRank, comm), ask(l, I_ncclCommCount, comm),
		    ask(l, I_ncclCommCuDevice, comm));
}

static void read_config(struct wg_comm_init *how, const void *config)
{
	const struct nccl_config *cfg = config;

	if (!cfg || cfg->magic != 0xcafebeefu || cfg->size < 20)
		return;
	how->nonblocking = cfg->blocking == 0;
	if (cfg->size >= sizeof(*cfg) && cfg->version >= 22700)
		how->name = cfg->name;
}

/* Where the call in flight shows the communicator's index, known only now. */
static void show_comm(const struct wg_frame *f, int32_t c)
{
	if (f && f->slot && f->index < WGREC_DEPTH && c >= 0)
		__atomic_store_n(&f->slot->calls[f->index].args[0], (uint64_t)c, __ATOMIC_RELEASE);
}

static int32_t init_begin(const struct library *l, const struct wg_frame *f,
			  struct wg_comm_init *how)
{
	int32_t c;

	how->library = library_index(l);
	if (!wg_on()) { /* CUDA is not up: added when it comes up within this call, or after it */
		early.how = how;
		early.comm = -1;
		return -1;
	}
	how->library_name = library_name(l);
	if (how->device < 0)
		how->device = wg_real_current_device();
	c = wg_comm_add(how);
	show_comm(f, c);
	return c;
}

void wg_nccl_cuda_up(void)
{
	struct wg_comm_init how;

	if (!early.how || early.comm >= 0)
		return;
	how = *early.how;
	how.library_name = library_name(&libraries[how.library]);
	early.comm = wg_comm_add(&how);
}

static void created(const struct library *l, int32_t c, void **out, int r)
{
	uint64_t handle = out ? (uint64_t)(uintptr_t)*out : 0;

	if (c < 0)
		return;
	if (r != NCCL_SUCCESS && r != NCCL_IN_PROGRESS) {
		wg_comm_state(c, WGREC_COMM_FAILED);
		return;
	}
	wg_comm_handle(c, handle);
	if (r == NCCL_SUCCESS && handle) {
		wg_comm_state(c, WGREC_COMM_READY);
		ask_who(l, c, handle);
	}
}

static bool have_room(void)
{
	for (uint32_t i = 0; !group.room && i < ROOMS; i++)
		if (!__atomic_exchange_n(&rooms[i].taken, 1, __ATOMIC_ACQ_REL))
			group.room = &rooms[i];
	return group.room != NULL;
}

static void init_end(const struct library *l, int32_t c, void **out, int r)
{
	int saved = errno;

	if (early.how) {
		wg_nccl_cuda_up();
		c = early.comm;
		early.how = NULL;
	}
	if (group.depth && (r == NCCL_SUCCESS || r == NCCL_IN_PROGRESS)) {
		if (c >= 0 && group.ninits < MAX_INITS && have_room()) {
			group.room->inits[group.ninits].comm = c;
			group.room->inits[group.ninits++].out = out;
		}
	} else {
		created(l, c, out, r);
	}
	errno = saved;
}

/* ---- collectives ------------------------------------------------------------------------- */

struct coll {
	int32_t comm;
	uint64_t number;
	struct wg_coll_args a;
};

static void coll_begin(const struct library *l, struct coll *k, uint64_t comm)
{
	struct wg_streamref s = { .handle = k->a.stream };
	int saved = errno;

	k->comm = wg_comm_find_or_add(comm, library_index(l), library_name(l));
	if (k->comm >= 0 && !wg_comm_who_known(k->comm))
		ask_who(l, k->comm, comm);
	k->a.grouped = group.depth != 0;
	k->a.stream_index = wg_stream_index(s);
	/* So that a collective that hangs is exactly at the head. */
	if (!group.depth)
		wg_stream_mark_index(k->a.stream_index);
	k->number = wg_coll_enter(k->comm, &k->a);
	errno = saved;
}

static void note_given(struct given *g, const struct coll *k)
{
	if (k->a.p2p) {
		if (g->p2p_end == 0)
			g->p2p_first = k->number;
		g->p2p_end = k->number + 1;
		g->p2p_fn = k->a.fn;
	} else {
		if (g->end == 0)
			g->first = k->number;
		g->end = k->number + 1;
		g->fn = k->a.fn;
	}
}

static void group_note(const struct coll *k)
{
	group.calls++;
	for (uint32_t n = 0; n < group.ngiven; n++)
		if (group.room->given[n].comm == k->comm &&
		    group.room->given[n].stream_index == k->a.stream_index) {
			note_given(&group.room->given[n], k);
			return;
		}
	if (group.ngiven == MAX_GIVEN || !have_room()) {
		wg_note("an NCCL group of more communicators and streams than are kept");
		return;
	}
	group.room->given[group.ngiven] = (struct given){ .comm = k->comm,
						    .stream_index = k->a.stream_index };
	note_given(&group.room->given[group.ngiven++], k);
}

static void give(const struct given *g)
{
	if (g->end)
		wg_coll_given(g->comm, false, g->first, g->end - 1, g->stream_index,
			      fn_string(g->fn));
	if (g->p2p_end)
		wg_coll_given(g->comm, true, g->p2p_first, g->p2p_end - 1, g->stream_index,
			      fn_string(g->p2p_fn));
}

static void failed(const struct given *g)
{
	for (uint64_t n = g->first; n < g->end; n++)
		wg_coll_returned(g->comm, false, n, WGREC_COLLF_FAILED);
	for (uint64_t n = g->p2p_first; n < g->p2p_end; n++)
		wg_coll_returned(g->comm, true, n, WGREC_COLLF_FAILED);
}

/* In progress: NCCL's own thread gives it to the stream, at a time that only NCCL knows. */
static void wait_for_comm(const struct given *g)
{
	struct given *w;

	if (g->comm < 0 || g->comm >= MAX_WAITING)
		return;
	w = &waiting[g->comm];
	if (!w->end && !w->p2p_end) {
		*w = *g;
		return;
	}
	if (g->end) {
		w->first = w->end ? w->first : g->first;
		w->end = g->end;
		w->fn = g->fn;
	}
	if (g->p2p_end) {
		w->p2p_first = w->p2p_end ? w->p2p_first : g->p2p_first;
		w->p2p_end = g->p2p_end;
		w->p2p_fn = g->p2p_fn;
	}
	w->stream_index = g->stream_index;
}

static void settle(const struct given *g, int r)
{
	if (r == NCCL_SUCCESS)
		give(g);
	else if (r == NCCL_IN_PROGRESS)
		wait_for_comm(g);
	else
		failed(g);
}

static int coll_end(struct coll *k, int r)
{
	int saved = errno;

	if (k->comm < 0)
		return r;
	if (r != NCCL_SUCCESS && r != NCCL_IN_PROGRESS) {
		wg_coll_returned(k->comm, k->a.p2p, k->number, WGREC_COLLF_FAILED);
	} else if (group.depth) {
		group_note(k);
		wg_coll_returned(k->comm, k->a.p2p, k->number, 0);
	} else {
		struct given g = { .comm = k->comm, .stream_index = k->a.stream_index };

		note_given(&g, k);
		settle(&g, r);
		wg_coll_returned(k->comm, k->a.p2p, k->number, 0);
	}
	errno = saved;
	return r;
}

static void group_end(const struct library *l, int r)
{
	int saved = errno;

	for (uint32_t n = 0; n < group.ninits; n++)
		created(l, group.room->inits[n].comm, group.room->inits[n].out, r);
	for (uint32_t n = 0; n < group.ngiven; n++)
		settle(&group.room->given[n], r);
	group.ninits = group.ngiven = group.calls = 0;
	if (group.room)
		__atomic_store_n(&group.room->taken, 0, __ATOMIC_RELEASE);
	group.room = NULL;
	errno = saved;
}

/* ---- the wrappers ------------------------------------------------------------------------- */

#define REAL(l, name, params) ((int(*) params)(l)->real[I_##name])
#define WITH_LF(...) (l, f __VA_OPT__(, ) __VA_ARGS__)
#define U(x) ((uint64_t)(uintptr_t)(x))
#define V0() 0, 0, 0, 0, 0
#define V1(a) 1, U(a), 0, 0, 0
#define V2(a, b) 2, U(a), U(b), 0, 0
#define V3(a, b, c) 3, U(a), U(b), U(c), 0
#define V4(a, b, c, d) 4, U(a), U(b), U(c), U(d)

static inline bool recorded(void)
{
	return wg_on() && !wg_in_nccl;
}

/*
 * One function: body_NAME(l, f, parameters...) does the work; f is NULL while nothing is recorded.
 * In creations it then remembers (CUDA comes up inside), elsewhere it only passes on.
 */
#define ENTRY(storage, symbol, which, name, kind, stream, params, args, ...)                      \
	storage int symbol params                                                                 \
	{                                                                                         \
		const struct library *l = which;                                                  \
		struct wg_frame frame, *f = NULL;                                                 \
		int r;                                                                            \
                                                                                                  \
		if (wg_unlikely(!l || !l->real[I_##name]))                                        \
			return NCCL_INTERNAL_ERROR;                                               \
		if (wg_unlikely(!recorded())) {                                                   \
			if (wg_in_nccl || kind != WGREC_CALL_COMM)                                \
				return REAL(l, name, params) args;                                \
			return body_##name WITH_LF args;                                          \
		}                                                                                 \
		f = &frame;                                                                       \
		wg_enter(f, WG_FN_##name, WGREC_API_NCCL, kind, 0, stream, __VA_ARGS__);          \
		wg_in_nccl++;                                                                     \
		r = body_##name WITH_LF args;                                                     \
		wg_in_nccl--;                                                                     \
		wg_leave_timed(f);                                                                \
		return r;                                                                         \
	}

#define WRAP(name, kind, stream, comm, params, args, ...)                                         \
	EXPORT int name params;                                                                   \
	ENTRY(EXPORT, name,                                                                       \
	      elf_library(U(comm), I_##name, __builtin_return_address(0)), name, kind, stream,    \
	      params, args, __VA_ARGS__)                                                          \
	ENTRY(static, door0_##name, &libraries[0], name, kind, stream, params, args, __VA_ARGS__) \
	ENTRY(static, door1_##name, &libraries[1], name, kind, stream, params, args, __VA_ARGS__) \
	ENTRY(static, door2_##name, &libraries[2], name, kind, stream, params, args, __VA_ARGS__) \
	ENTRY(static, door3_##name, &libraries[3], name, kind, stream, params, args, __VA_ARGS__)

#define BODY(name, ...)                                                                           \
	static __attribute__((noinline)) int body_##name(const struct library *l,                 \
							 struct wg_frame *f __VA_OPT__(, )        \
								 __VA_ARGS__)
#define UNPACK(...) __VA_ARGS__

/* A call on a communicator that is only seen. */
#define SEEN(name, kind, comm, params, args, ...)                                                 \
	BODY(name, UNPACK params)                                                                 \
	{                                                                                         \
		(void)f;                                                                          \
		return REAL(l, name, params) args;                                                \
	}                                                                                         \
	WRAP(name, kind, WG_NOSTREAM, comm, params, args, __VA_ARGS__)

#define COLL(name, is_p2p, n, ty, op, rt, params, args, ...)                                      \
	BODY(name, UNPACK params)                                                                 \
	{                                                                                         \
		struct coll k = { .a = { .fn = WG_FN_##name, .p2p = is_p2p, .count = n,           \
					 .type = (uint8_t)(ty), .redop = (uint8_t)(op),           \
					 .root = rt, .stream = U(stream) } };                     \
                                                                                                  \
		(void)f;                                                                          \
		coll_begin(l, &k, U(comm));                                                       \
		return coll_end(&k, REAL(l, name, params) args);                                  \
	}                                                                                         \
	WRAP(name, WGREC_CALL_COLLECTIVE, U(stream), comm, params, args, __VA_ARGS__)

/* clang-format off */
COLL(ncclAllReduce, false, count, type, op, NO_ROOT,
	(const void *send, void *recv, size_t count, int type, int op, void *comm, void *stream),
	(send, recv, count, type, op, comm, stream), V4(comm, count, type, op))
COLL(ncclBroadcast, false, count, type, NO_REDOP, root,
	(const void *send, void *recv, size_t count, int type, int root, void *comm, void *stream),
	(send, recv, count, type, root, comm, stream), V4(comm, count, type, root))
COLL(ncclBcast, false, count, type, NO_REDOP, root,
	(void *buffer, size_t count, int type, int root, void *comm, void *stream),
	(buffer, count, type, root, comm, stream), V4(comm, count, type, root))
COLL(ncclReduce, false, count, type, op, root,
	(const void *send, void *recv, size_t count, int type, int op, int root, void *comm,
	 void *stream),
	(send, recv, count, type, op, root, comm, stream), V4(comm, count, type, root))
COLL(ncclAllGather, false, count, type, NO_REDOP, NO_ROOT,
	(const void *send, void *recv, size_t count, int type, void *comm, void *stream),
	(send, recv, count, type, comm, stream), V3(comm, count, type))
COLL(ncclReduceScatter, false, count, type, op, NO_ROOT,
	(const void *send, void *recv, size_t count, int type, int op, void *comm, void *stream),
	(send, recv, count, type, op, comm, stream), V4(comm, count, type, op))
COLL(ncclAlltoAll, false, count, type, NO_REDOP, NO_ROOT,
	(const void *send, void *recv, size_t count, int type, void *comm, void *stream),
	(send, recv, count, type, comm, stream), V3(comm, count, type))
COLL(ncclGather, false, count, type, NO_REDOP, root,
	(const void *send, void *recv, size_t count, int type, int root, void *comm, void *stream),
	(send, recv, count, type, root, comm, stream), V4(comm, count, type, root))
COLL(ncclScatter, false, count, type, NO_REDOP, root,
	(const void *send, void *recv, size_t count, int type, int root, void *comm, void *stream),
	(send, recv, count, type, root, comm, stream), V4(comm, count, type, root))
COLL(ncclSend, true, count, type, NO_REDOP, peer,
	(const void *send, size_t count, int type, int peer, void *comm, void *stream),
	(send, count, type, peer, comm, stream), V4(comm, count, type, peer))
COLL(ncclRecv, true, count, type, NO_REDOP, peer,
	(void *recv, size_t count, int type, int peer, void *comm, void *stream),
	(recv, count, type, peer, comm, stream), V4(comm, count, type, peer))

SEEN(ncclGetUniqueId, WGREC_CALL_COMM, NULL, (void *id), (id), V0())
SEEN(ncclCommRegister, WGREC_CALL_COMM, comm,
	(void *comm, void *buffer, size_t size, void **handle), (comm, buffer, size, handle),
	V3(comm, buffer, size))
SEEN(ncclCommDeregister, WGREC_CALL_COMM, comm, (void *comm, void *handle), (comm, handle),
	V2(comm, handle))
SEEN(ncclCommWindowRegister, WGREC_CALL_COMM, comm,
	(void *comm, void *buffer, size_t size, void **window, int flags),
	(comm, buffer, size, window, flags), V3(comm, buffer, size))
SEEN(ncclCommWindowDeregister, WGREC_CALL_COMM, comm, (void *comm, void *window), (comm, window),
	V2(comm, window))
SEEN(ncclDevCommCreate, WGREC_CALL_COMM, comm, (void *comm, const void *needs, void *out),
	(comm, needs, out), V1(comm))
SEEN(ncclDevCommDestroy, WGREC_CALL_COMM, comm, (void *comm, const void *dev), (comm, dev),
	V1(comm))
SEEN(ncclMemAlloc, WGREC_CALL_ALLOC, NULL, (void **pointer, size_t size), (pointer, size), V1(size))
SEEN(ncclMemFree, WGREC_CALL_FREE, NULL, (void *pointer), (pointer), V1(pointer))
/* clang-format on */

/* ---- groups ---- */

BODY(ncclGroupStart)
{
	int r = REAL(l, ncclGroupStart, (void))();

	(void)f;
	if (r == NCCL_SUCCESS)
		group.depth++;
	return r;
}
WRAP(ncclGroupStart, WGREC_CALL_COLLECTIVE, WG_NOSTREAM, NULL, (void), (), V0())

BODY(ncclGroupEnd)
{
	int r;

	(void)f;
	if (group.depth == 1)
		for (uint32_t n = 0; n < group.ngiven; n++)
			wg_stream_mark_index(group.room->given[n].stream_index);
	r = REAL(l, ncclGroupEnd, (void))();
	if (group.depth && !--group.depth)
		group_end(l, r);
	return r;
}
WRAP(ncclGroupEnd, WGREC_CALL_COLLECTIVE, WG_NOSTREAM, NULL, (void), (), V1(group.calls))

BODY(ncclGroupSimulateEnd, void *info)
{
	int r = REAL(l, ncclGroupSimulateEnd, (void *))(info);

	(void)f;
	/* It ends the group and gives nothing to any stream. */
	if (group.depth && !--group.depth)
		group_end(l, NCCL_INTERNAL_ERROR);
	return r;
}
WRAP(ncclGroupSimulateEnd, WGREC_CALL_COLLECTIVE, WG_NOSTREAM, NULL, (void *info), (info),
     V1(group.calls))

/* ---- creation ---- */

static void init_defaults(struct wg_comm_init *how, int rank, int size)
{
	*how = (struct wg_comm_init){ .parent = -1, .rank = rank, .size = size, .device = -1 };
}

BODY(ncclCommInitRank, void **out, int size, struct nccl_id id, int rank)
{
	struct wg_comm_init how;
	int32_t c;
	int r;

	init_defaults(&how, rank, size);
	how.ids = &id;
	how.nids = 1;
	c = init_begin(l, f, &how);
	r = REAL(l, ncclCommInitRank, (void **, int, struct nccl_id, int))(out, size, id, rank);
	init_end(l, c, out, r);
	return r;
}
WRAP(ncclCommInitRank, WGREC_CALL_COMM, WG_NOSTREAM, NULL,
     (void **out, int size, struct nccl_id id, int rank), (out, size, id, rank),
     V3(UINT64_MAX, size, rank))

BODY(ncclCommInitRankConfig, void **out, int size, struct nccl_id id, int rank, void *config)
{
	struct wg_comm_init how;
	int32_t c;
	int r;

	init_defaults(&how, rank, size);
	how.ids = &id;
	how.nids = 1;
	read_config(&how, config);
	c = init_begin(l, f, &how);
	r = REAL(l, ncclCommInitRankConfig, (void **, int, struct nccl_id, int, void *))(
		out, size, id, rank, config);
	init_end(l, c, out, r);
	return r;
}
WRAP(ncclCommInitRankConfig, WGREC_CALL_COMM, WG_NOSTREAM, NULL,
     (void **out, int size, struct nccl_id id, int rank, void *config),
     (out, size, id, rank, config), V3(UINT64_MAX, size, rank))

BODY(ncclCommInitRankScalable, void **out, int size, int rank, int nids, struct nccl_id *ids,
     void *config)
{
	struct wg_comm_init how;
	int32_t c;
	int r;

	init_defaults(&how, rank, size);
	how.ids = nids > 0 ? ids : NULL;
	how.nids = nids > 0 ? (uint32_t)nids : 0;
	how.how = "scalable";
	read_config(&how, config);
	c = init_begin(l, f, &how);
	r = REAL(l, ncclCommInitRankScalable, (void **, int, int, int, struct nccl_id *, void *))(
		out, size, rank, nids, ids, config);
	init_end(l, c, out, r);
	return r;
}
WRAP(ncclCommInitRankScalable, WGREC_CALL_COMM, WG_NOSTREAM, NULL,
     (void **out, int size, int rank, int nids, struct nccl_id *ids, void *config),
     (out, size, rank, nids, ids, config), V3(UINT64_MAX, size, rank))

#define MAX_ALL 64 /* devices of one process */
BODY(ncclCommInitAll, void **out, int n, const int *devices)
{
	struct wg_comm_init how;
	int32_t c[MAX_ALL];
	uint64_t nth = wg_comm_child(-1);
	int r, saved;

	for (int k = 0; f && k < n && k < MAX_ALL; k++) {
		init_defaults(&how, k, n);
		how.how = "all";
		how.nth = nth;
		how.device = devices ? devices[k] : k;
		c[k] = init_begin(l, f, &how);
	}
	r = REAL(l, ncclCommInitAll, (void **, int, const int *))(out, n, devices);
	saved = errno;
	for (int k = 0; f && k < n && k < MAX_ALL; k++)
		created(l, c[k], out ? &out[k] : NULL, r);
	errno = saved;
	return r;
}
WRAP(ncclCommInitAll, WGREC_CALL_COMM, WG_NOSTREAM, NULL,
     (void **out, int n, const int *devices), (out, n, devices), V2(UINT64_MAX, n))

/* A child of a communicator: it has its parent's device. */
static int32_t child_begin(const struct library *l, const struct wg_frame *f, void *comm,
			   const char *kind, int color, void *config)
{
	struct wg_comm_init how;

	init_defaults(&how, -1, -1);
	how.parent = wg_comm_find_or_add(U(comm), library_index(l), library_name(l));
	how.how = kind;
	how.color = color;
	if (how.parent < 0)
		return -1;
	how.nth = wg_comm_child(how.parent);
	if (color == NO_COLOR)
		return -1; /* this rank is in no child, but it counts the split as all ranks do */
	how.device = wg_comm_at(how.parent)->device;
	how.library = library_index(l);
	how.library_name = library_name(l);
	read_config(&how, config);
	(void)f;
	return wg_comm_add(&how);
}

BODY(ncclCommSplit, void *comm, int color, int key, void **out, void *config)
{
	int32_t c = f ? child_begin(l, f, comm, "split", color, config) : -1;
	int r = REAL(l, ncclCommSplit, (void *, int, int, void **, void *))(comm, color, key, out,
									    config);

	init_end(l, c, out, r);
	return r;
}
WRAP(ncclCommSplit, WGREC_CALL_COMM, WG_NOSTREAM, comm,
     (void *comm, int color, int key, void **out, void *config), (comm, color, key, out, config),
     V3(comm, color, key))

BODY(ncclCommShrink, void *comm, int *excluded, int nexcluded, void **out, void *config, int flags)
{
	int32_t c = f ? child_begin(l, f, comm, "shrink", 0, config) : -1;
	int r = REAL(l, ncclCommShrink, (void *, int *, int, void **, void *, int))(
		comm, excluded, nexcluded, out, config, flags);

	init_end(l, c, out, r);
	return r;
}
WRAP(ncclCommShrink, WGREC_CALL_COMM, WG_NOSTREAM, comm,
     (void *comm, int *excluded, int nexcluded, void **out, void *config, int flags),
     (comm, excluded, nexcluded, out, config, flags), V3(comm, nexcluded, flags))

/*
 * Members of the old communicator and newcomers share nothing that all of them pass in: members
 * know it by its lineage, newcomers by the unique id. (2.29)
 */
BODY(ncclCommGrow, void *comm, int size, const struct nccl_id *id, int rank, void **out,
     void *config)
{
	struct wg_comm_init how;
	int32_t c = -1;
	int r;

	if (f && comm) {
		c = child_begin(l, f, comm, "grow", 0, config);
		wg_comm_who(c, wg_comm_at(wg_comm_find(U(comm))) ?
				       wg_comm_at(wg_comm_find(U(comm)))->rank : -1, size, -1);
	} else if (f && id) {
		init_defaults(&how, rank, size);
		how.ids = id;
		how.nids = 1;
		read_config(&how, config);
		c = init_begin(l, f, &how);
	}
	r = REAL(l, ncclCommGrow, (void *, int, const struct nccl_id *, int, void **, void *))(
		comm, size, id, rank, out, config);
	init_end(l, c, out, r);
	return r;
}
WRAP(ncclCommGrow, WGREC_CALL_COMM, WG_NOSTREAM, comm,
     (void *comm, int size, const struct nccl_id *id, int rank, void **out, void *config),
     (comm, size, id, rank, out, config), V3(comm, size, rank))

/* ---- the end of a communicator ---- */

static int ending(const struct library *l, enum nccl_fn fn, const struct wg_frame *f, void *comm,
		  enum wgrec_comm_state during, enum wgrec_comm_state after)
{
	int (*real)(void *) = (int (*)(void *))l->real[fn];
	enum wgrec_comm_state before;
	int32_t c;
	int r, saved;

	if (!f)
		return real(comm);
	c = wg_comm_find(U(comm));
	before = wg_comm_state_of(c);
	wg_comm_state(c, during);
	r = real(comm);
	saved = errno;
	if (r == NCCL_SUCCESS)
		wg_comm_state(c, after);
	else if (r != NCCL_IN_PROGRESS)
		wg_comm_state(c, before);
	errno = saved;
	return r;
}

BODY(ncclCommFinalize, void *comm)
{
	return ending(l, I_ncclCommFinalize, f, comm, WGREC_COMM_FINALIZING,
		      WGREC_COMM_FINALIZING);
}
WRAP(ncclCommFinalize, WGREC_CALL_COMM, WG_NOSTREAM, comm, (void *comm), (comm), V1(comm))

BODY(ncclCommDestroy, void *comm)
{
	return ending(l, I_ncclCommDestroy, f, comm, WGREC_COMM_DESTROYING, WGREC_COMM_DESTROYED);
}
WRAP(ncclCommDestroy, WGREC_CALL_COMM, WG_NOSTREAM, comm, (void *comm), (comm), V1(comm))

BODY(ncclCommAbort, void *comm)
{
	return ending(l, I_ncclCommAbort, f, comm, WGREC_COMM_ABORTING, WGREC_COMM_DESTROYED);
}
WRAP(ncclCommAbort, WGREC_CALL_COMM, WG_NOSTREAM, comm, (void *comm), (comm), V1(comm))

BODY(ncclCommRevoke, void *comm, int flags)
{
	int r;

	if (f)
		wg_comm_state(wg_comm_find(U(comm)), WGREC_COMM_ABORTING);
	r = REAL(l, ncclCommRevoke, (void *, int))(comm, flags);
	if (f && r != NCCL_SUCCESS && r != NCCL_IN_PROGRESS)
		wg_comm_state(wg_comm_find(U(comm)), WGREC_COMM_READY);
	return r;
}
WRAP(ncclCommRevoke, WGREC_CALL_COMM, WG_NOSTREAM, comm, (void *comm, int flags), (comm, flags),
     V2(comm, flags))

/* Polled by watchdogs; the answer also says when a non-blocking communicator has caught up. */
BODY(ncclCommGetAsyncError, void *comm, int *error)
{
	int r = REAL(l, ncclCommGetAsyncError, (void *, int *))(comm, error);
	int saved = errno;
	int32_t c;

	if (!f || r != NCCL_SUCCESS || !error)
		return r;
	c = wg_comm_find(U(comm));
	if (c < 0)
		return r;
	wg_comm_async_error(c, *error == NCCL_IN_PROGRESS ? 0 : *error);
	if (*error == NCCL_SUCCESS) {
		if (wg_comm_state_of(c) == WGREC_COMM_INIT)
			wg_comm_state(c, WGREC_COMM_READY);
		if (!wg_comm_who_known(c))
			ask_who(l, c, U(comm));
		if (c < MAX_WAITING && (waiting[c].end || waiting[c].p2p_end)) {
			give(&waiting[c]);
			memset(&waiting[c], 0, sizeof(waiting[c]));
		}
	} else if (*error != NCCL_IN_PROGRESS && wg_comm_state_of(c) == WGREC_COMM_INIT) {
		wg_comm_state(c, WGREC_COMM_FAILED);
		wg_comm_handle(c, U(comm)); /* it still has to be aborted by this name */
	}
	errno = saved;
	return r;
}
WRAP(ncclCommGetAsyncError, WGREC_CALL_COMM, WG_NOSTREAM, comm, (void *comm, int *error),
     (comm, error), V1(comm))

/* ---- doors ------------------------------------------------------------------------- */

static const struct {
	void *exported, *doors[LIBRARIES];
} wrappers[NCCL_FNS] = {
#define NCCL(name, kind, blocking, args)                                                  \
	[I_##name] = { (void *)name,                                                      \
		       { (void *)door0_##name, (void *)door1_##name, (void *)door2_##name, \
			 (void *)door3_##name } },
#include "nccl.def"
#undef NCCL
};

void *wg_nccl_door(const char *symbol, void *real)
{
	struct library *l;

	if (!real || strncmp(symbol, "nccl", 4))
		return real;
	for (int i = 0; i < NCCL_FNS; i++) {
		if (strcmp(symbol, names[i]))
			continue;
		/* Found ours by name: true only if a library has it, too. */
		if (real == wrappers[i].exported)
			return wg_real_export(symbol, __builtin_return_address(0)) ? real : NULL;
		for (int k = 0; k < LIBRARIES; k++)
			if (real == wrappers[i].doors[k])
				return real;
		l = library_of(real);
		if (!l || l->real[i] != real)
			return real; /* an alias of something else: not what we would call */
		return wrappers[i].doors[library_index(l)];
	}
	return real;
}

void wg_nccl_tick(void)
{
	wg_comms_tick();
}

void wg_nccl_fork_child(void)
{
	memset(&group, 0, sizeof(group));
	for (uint32_t i = 0; i < ROOMS; i++)
		rooms[i].taken = 0;
	memset(waiting, 0, sizeof(waiting));
	early.how = NULL;
	wg_in_nccl = 0;
	wg_comms_fork_child();
}
