// SPDX-License-Identifier: Apache-2.0
/*
 * comms.c - communicators, and the collectives this rank entered on each.
 *
 * A call gets its number when the rank enters it, before NCCL is asked, so a call that blocks in
 * the host has one. Collectives and send/recv are counted apart: all ranks enter the same
 * collectives in the same order, but each has its own neighbours.
 */
#include <sched.h>
#include <stdatomic.h>
#include <string.h>

#include "comms.h"
#include "peers.h"
#include "hooks.h"
#include "memory.h"
#include "streams.h"

#define MAX_COMMS 1024
#define RING (WGREC_COMM_COLLS + WGREC_COMM_P2P)
#define TLS __attribute__((tls_model("initial-exec")))

struct comm { /* private half of a COMMS entry */
	_Atomic uint64_t handle; /* 0: none (yet, or any more) */
	_Atomic uint64_t children;
	int32_t library;
	uint32_t colls; /* first of RING entries, UINT32_MAX none */
};

static struct comm comms[MAX_COMMS];
static _Atomic uint32_t ncomms;
static _Atomic uint32_t adding;
static _Atomic uint64_t alls; /* ncclCommInitAll calls of this process */
static __thread struct { uint64_t handle; int32_t c_plus_1; } last TLS;

/* The sections may appear with CUDA's initialisation, or never. */
static struct wgrec_comm *section(uint32_t *capacity)
{
	static _Atomic(struct wgrec_header *) of;
	static struct wgrec_comm *entries;
	static uint32_t n;
	struct wgrec_header *rec = wg_rec;

	if (!rec)
		return NULL;
	if (atomic_load_explicit(&of, memory_order_acquire) != rec) {
		uint64_t cap = 0;
		struct wgrec_comm *e = wg_rec_section(WGREC_COMMS, &cap);

		n = cap < MAX_COMMS ? (uint32_t)cap : MAX_COMMS;
		entries = e;
		atomic_store_explicit(&of, rec, memory_order_release);
	}
	*capacity = n;
	return entries;
}

static struct wgrec_coll *coll_section(uint64_t *capacity)
{
	return wg_rec ? wg_rec_section(WGREC_COLLS, capacity) : NULL;
}

struct wgrec_comm *wg_comm_at(int32_t c)
{
	uint32_t n = 0;
	struct wgrec_comm *e = section(&n);

	return e && c >= 0 && (uint32_t)c < n ? &e[c] : NULL;
}

/* ---- ids --------------------------------------------------------------------------- */

struct hash {
	uint64_t a, b;
};

static uint64_t mix(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static void hash_add(struct hash *h, const void *data, size_t n)
{
	const unsigned char *p = data;
	uint64_t v;

	for (size_t k = 0; k < n; k += 8) {
		v = 0;
		memcpy(&v, p + k, n - k < 8 ? n - k : 8);
		h->a = mix(h->a ^ v) + 0x9e3779b97f4a7c15ull;
		h->b = mix(h->b + (v ^ 0xd6e8feb86659fd93ull)) ^ h->a >> 7;
	}
	h->a = mix(h->a ^ n);
	h->b = mix(h->b + n);
}

static void hash_text(const struct hash *h, char *out)
{
	static const char digits[] = "0123456789abcdef";

	for (int k = 0; k < 16; k++) {
		out[k] = digits[h->a >> (60 - 4 * k) & 15];
		out[16 + k] = digits[h->b >> (60 - 4 * k) & 15];
	}
	out[32] = 0;
}

static void make_id(const struct wg_comm_init *how, char *out)
{
	const struct wgrec_comm *parent = wg_comm_at(how->parent);
	struct hash h = { 0x6a09e667f3bcc908ull, 0xbb67ae8584caa73bull };

	if (how->ids) {
		hash_add(&h, how->ids, (size_t)how->nids * WG_ID_BYTES);
	} else if (parent && !parent->id[0]) {
		out[0] = 0; /* the parent's own creation was not seen */
		return;
	} else if (parent) {
		hash_add(&h, parent->id, strnlen(parent->id, sizeof(parent->id)));
		hash_add(&h, how->how, strlen(how->how));
		hash_add(&h, &how->nth, sizeof(how->nth));
		hash_add(&h, &how->color, sizeof(how->color));
	} else {
		/* All ranks are in this process: it needs to be the same for these only. */
		hash_add(&h, how->how, strlen(how->how));
		hash_add(&h, &how->nth, sizeof(how->nth));
		hash_add(&h, &wg_rec->pid, sizeof(wg_rec->pid));
		hash_add(&h, &wg_rec->start_ticks, sizeof(wg_rec->start_ticks));
		hash_add(&h, wg_rec->boot_id, sizeof(wg_rec->boot_id));
	}
	hash_text(&h, out);
}

/* ---- the table ------------------------------------------------------------------------ */

static int32_t take_entry(struct wgrec_comm *entries, uint32_t n)
{
	uint32_t used = atomic_load(&ncomms);
	int32_t oldest = -1;

	if (used < n && wg_rec_use(WGREC_COMMS, used + 1)) {
		atomic_store(&ncomms, used + 1);
		return (int32_t)used;
	}
	for (uint32_t c = 0; c < n; c++)
		if ((entries[c].state == WGREC_COMM_DESTROYED ||
		     entries[c].state == WGREC_COMM_FAILED) && !atomic_load(&comms[c].handle) &&
		    (oldest < 0 || entries[c].state_at < entries[oldest].state_at))
			oldest = (int32_t)c;
	return oldest;
}

int32_t wg_comm_add(const struct wg_comm_init *how)
{
	uint32_t n = 0, spins = 0;
	struct wgrec_comm *entries = section(&n), *e;
	uint64_t ncolls = 0;
	struct wgrec_coll *colls = coll_section(&ncolls);
	const struct wgrec_comm *parent;
	int32_t c;

	if (!entries || !n)
		return -1;
	while (atomic_exchange_explicit(&adding, 1, memory_order_acquire))
		if (++spins > 100000)
			return -1;
		else if (spins > 100)
			sched_yield();
	c = take_entry(entries, n);
	if (c < 0) {
		__atomic_fetch_add(&wg_rec->lost_comms, 1, __ATOMIC_RELAXED);
		goto out;
	}
	e = &entries[c];
	__atomic_store_n(&e->valid, 0, __ATOMIC_RELEASE);
	memset(e, 0, sizeof(*e));
	comms[c].library = how->library;
	comms[c].colls = UINT32_MAX;
	atomic_store(&comms[c].children, 0);
	if (colls && ((uint64_t)c + 1) * RING <= ncolls &&
	    wg_rec_use(WGREC_COLLS, ((uint64_t)c + 1) * RING)) {
		comms[c].colls = (uint32_t)c * RING;
		for (uint32_t k = 0; k < RING; k++)
			colls[comms[c].colls + k].sequence_plus_1 = 0;
	}
	e->colls_first = comms[c].colls;
	e->peers_first = UINT32_MAX;
	e->state = WGREC_COMM_INIT;
	e->state_at = wg_ticks();
	e->rank = how->rank;
	e->size = how->size;
	e->device = how->device;
	e->library = how->library_name;
	e->blocking = !how->nonblocking;
	e->init_tid = wg_rec_thread() ? wg_rec_thread()->tid : 0;
	if (how->name) {
		size_t len = strnlen(how->name, sizeof(e->name) - 1);

		memcpy(e->name, how->name, len);
	}
	make_id(how, e->id);
	parent = wg_comm_at(how->parent);
	if (parent)
		memcpy(e->parent, parent->id, sizeof(e->parent) - 1);
	__atomic_store_n(&e->valid, 1, __ATOMIC_RELEASE);
out:
	atomic_store_explicit(&adding, 0, memory_order_release);
	return c;
}

int32_t wg_comm_find(uint64_t handle)
{
	uint32_t n = atomic_load_explicit(&ncomms, memory_order_acquire);
	int32_t c = last.c_plus_1 - 1;

	if (!handle)
		return -1;
	if (c >= 0 && last.handle == handle &&
	    atomic_load_explicit(&comms[c].handle, memory_order_acquire) == handle)
		return c;
	for (c = (int32_t)n - 1; c >= 0; c--)
		if (atomic_load_explicit(&comms[c].handle, memory_order_acquire) == handle) {
			last.handle = handle;
			last.c_plus_1 = c + 1;
			return c;
		}
	return -1;
}

/* A handle whose creation was not seen: its id stays unknown, its rank and size can be asked. */
int32_t wg_comm_find_or_add(uint64_t handle, int32_t library, uint32_t library_name)
{
	int32_t c = wg_comm_find(handle);
	struct wg_comm_init how = { .parent = -1, .rank = -1, .size = -1, .device = -1,
				    .how = "unseen", .library = library,
				    .library_name = library_name };
	struct wgrec_comm *e;

	if (c >= 0 || !handle)
		return c;
	c = wg_comm_add(&how);
	e = wg_comm_at(c);
	if (!e)
		return -1;
	memset(e->id, 0, sizeof(e->id));
	wg_comm_handle(c, handle);
	wg_comm_state(c, WGREC_COMM_READY);
	return c;
}

int32_t wg_comm_library(int32_t c)
{
	return c >= 0 ? comms[c].library : -1;
}

uint64_t wg_comm_child(int32_t c)
{
	uint64_t nth = atomic_fetch_add(c >= 0 ? &comms[c].children : &alls, 1);
	struct wgrec_comm *e = wg_comm_at(c);

	if (e)
		__atomic_store_n(&e->children, (uint32_t)nth + 1, __ATOMIC_RELAXED);
	return nth;
}

void wg_comm_handle(int32_t c, uint64_t handle)
{
	struct wgrec_comm *e = wg_comm_at(c);

	if (!e || !handle)
		return;
	atomic_store_explicit(&comms[c].handle, handle, memory_order_release);
	__atomic_store_n(&e->handle, handle, __ATOMIC_RELEASE);
}

void wg_comm_who(int32_t c, int32_t rank, int32_t size, int32_t device)
{
	struct wgrec_comm *e = wg_comm_at(c);

	if (!e)
		return;
	if (rank >= 0)
		__atomic_store_n(&e->rank, rank, __ATOMIC_RELAXED);
	if (size > 0)
		__atomic_store_n(&e->size, size, __ATOMIC_RELAXED);
	if (device >= 0)
		__atomic_store_n(&e->device, device, __ATOMIC_RELAXED);
}

bool wg_comm_who_known(int32_t c)
{
	const struct wgrec_comm *e = wg_comm_at(c);

	return !e || (e->rank >= 0 && e->size > 0 && e->device >= 0);
}

enum wgrec_comm_state wg_comm_state_of(int32_t c)
{
	const struct wgrec_comm *e = wg_comm_at(c);

	return e ? (enum wgrec_comm_state)e->state : WGREC_COMM_FAILED;
}

void wg_comm_state(int32_t c, enum wgrec_comm_state state)
{
	struct wgrec_comm *e = wg_comm_at(c);

	if (!e || e->state == (uint32_t)state)
		return;
	e->state_at = wg_ticks();
	__atomic_store_n(&e->state, (uint32_t)state, __ATOMIC_RELEASE);
	if (state == WGREC_COMM_DESTROYED || state == WGREC_COMM_FAILED)
		atomic_store(&comms[c].handle, 0); /* NCCL may use the address again */
}

void wg_comm_async_error(int32_t c, int32_t error)
{
	struct wgrec_comm *e = wg_comm_at(c);

	if (e && e->async_error != error)
		__atomic_store_n(&e->async_error, error, __ATOMIC_RELAXED);
}

/* ---- collectives ------------------------------------------------------------------------ */

static struct wgrec_coll *coll_at(int32_t c, bool p2p, uint64_t number)
{
	uint64_t n = 0;
	struct wgrec_coll *colls = coll_section(&n);
	uint64_t at;

	if (!colls || c < 0 || comms[c].colls == UINT32_MAX)
		return NULL;
	at = comms[c].colls + (p2p ? WGREC_COMM_COLLS + number % WGREC_COMM_P2P :
				     number % WGREC_COMM_COLLS);
	return at < n ? &colls[at] : NULL;
}

/* Still that call's entry, and not one of a later call? */
static struct wgrec_coll *coll_of(int32_t c, bool p2p, uint64_t number)
{
	struct wgrec_coll *x = coll_at(c, p2p, number);

	return x && __atomic_load_n(&x->sequence_plus_1, __ATOMIC_ACQUIRE) == number + 1 ? x : NULL;
}

uint64_t wg_coll_enter(int32_t c, const struct wg_coll_args *a)
{
	struct wgrec_comm *e = wg_comm_at(c);
	struct wgrec_thread *t = wg_rec_thread();
	struct wgrec_coll *x;
	uint64_t number;

	if (!e)
		return 0;
	number = __atomic_load_n(a->p2p ? &e->p2p_entered : &e->entered, __ATOMIC_RELAXED);
	/*
	 * The entry before the count: who reads the count finds it. One thread at a time enters a
	 * communicator, NCCL demands it; if two do, one number is used twice.
	 */
	x = coll_at(c, a->p2p, number);
	if (x) {
		__atomic_store_n(&x->sequence_plus_1, 0, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_RELEASE);
		x->count = a->count;
		x->at = wg_ticks();
		x->stream = a->stream;
		x->stream_index = a->stream_index;
		x->tid = t ? t->tid : 0;
		x->stream_seq = 0;
		x->fn = a->fn;
		x->type = a->type;
		x->redop = a->redop;
		x->root = a->root;
		x->returned = 0;
		x->flags = a->grouped ? WGREC_COLLF_GROUPED : 0;
		__atomic_store_n(&x->sequence_plus_1, number + 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(a->p2p ? &e->p2p_entered : &e->entered, number + 1, __ATOMIC_RELEASE);
	if (t)
		t->last_launch = wg_ticks();
	wg_mem_device_used(e->device);
	wg_trace_collective(e->id, e->rank, number, a->fn, a->count, a->type);
	return number;
}

void wg_coll_returned(int32_t c, bool p2p, uint64_t number, uint32_t flags)
{
	struct wgrec_coll *x = coll_of(c, p2p, number);

	if (!x)
		return;
	x->flags |= flags;
	__atomic_store_n(&x->returned, 1, __ATOMIC_RELEASE);
}

void wg_coll_given(int32_t c, bool p2p, uint64_t first, uint64_t last_number,
		   uint32_t stream_index, uint32_t name)
{
	const struct wgrec_comm *e = wg_comm_at(c);
	uint64_t ring = p2p ? WGREC_COMM_P2P : WGREC_COMM_COLLS, seq = 0;
	uint16_t flags = p2p ? WGREC_ITEMF_P2P : 0;
	bool captured = wg_stream_captures(stream_index);

	if (!e || last_number < first)
		return;
	if (!p2p && last_number - first > ring)
		first = last_number - ring; /* older ones have no entry any more */
	if (p2p && !captured)
		seq = wg_stream_give_collective(stream_index, e->handle, last_number, (uint32_t)c,
						flags, name);
	if (p2p && last_number - first > ring)
		first = last_number - ring;
	for (uint64_t number = first; number <= last_number; number++) {
		struct wgrec_coll *x = coll_of(c, p2p, number);

		if (!p2p && !captured)
			seq = wg_stream_give_collective(stream_index, e->handle, number,
							(uint32_t)c, flags, name);
		if (!x)
			continue;
		if (captured)
			x->flags |= WGREC_COLLF_CAPTURED;
		x->stream_index = stream_index;
		__atomic_store_n(&x->stream_seq, seq, __ATOMIC_RELEASE);
	}
	if (!captured)
		wg_stream_mark_index(stream_index);
}

/* A communicator's calls run in order: all before the newest one that is done are done. */
static void follow(int32_t c, bool p2p, uint64_t entered, uint64_t *done)
{
	uint64_t ring = p2p ? WGREC_COMM_P2P : WGREC_COMM_COLLS;
	uint64_t low = *done, n;

	if (entered - low > ring)
		low = entered - ring;
	for (n = entered; n > low; n--) {
		struct wgrec_coll *x = coll_of(c, p2p, n - 1);
		uint64_t seq = x ? __atomic_load_n(&x->stream_seq, __ATOMIC_ACQUIRE) : 0;

		if (seq && x->stream_index != UINT32_MAX && wg_stream_done(x->stream_index) >= seq)
			break;
	}
	/* Failed and captured ones are nothing to wait for when their turn has come. */
	if (n <= low)
		n = *done;
	while (n < entered) {
		struct wgrec_coll *x = coll_of(c, p2p, n);

		if (!x || !(x->flags & (WGREC_COLLF_FAILED | WGREC_COLLF_CAPTURED)))
			break;
		n++;
	}
	if (n > *done)
		__atomic_store_n(done, n, __ATOMIC_RELEASE);
}

void wg_comms_tick(void)
{
	uint32_t n = atomic_load(&ncomms);

	for (int32_t c = 0; c < (int32_t)n; c++) {
		struct wgrec_comm *e = wg_comm_at(c);

		if (!e || !__atomic_load_n(&e->valid, __ATOMIC_ACQUIRE))
			continue;
		follow(c, false, __atomic_load_n(&e->entered, __ATOMIC_ACQUIRE), &e->done);
		follow(c, true, __atomic_load_n(&e->p2p_entered, __ATOMIC_ACQUIRE), &e->p2p_done);
	}
	wg_peers_tick(n);
}

void wg_comms_fork_child(void)
{
	memset(comms, 0, sizeof(comms));
	atomic_store(&ncomms, 0);
	atomic_store(&adding, 0);
	last.handle = 0;
	last.c_plus_1 = 0;
	wg_peers_fork_child();
}
