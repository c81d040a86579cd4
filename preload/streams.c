// SPDX-License-Identifier: Apache-2.0
/*
 * streams.c - which streams there are, and what each was given.
 *
 * Finding a stream: a real handle is unique in the process; the two default streams are found by
 * the current context (and the thread). One look into a thread-local memory, else an open-
 * addressed index. Adding one is rare and serialised by a short spin lock that covers no call to
 * the driver and that a forked child resets.
 *
 * An entry is used again for another stream when its own is destroyed and drained; the count goes
 * on where it stood, so an event that was recorded in the former stream still means "done".
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "inflight.h"
#include "lifecycle.h"
#include "nccl.h"
#include "queues.h"

#define INDEX_SIZE (WG_MAX_STREAMS * 4)
#define PROBES 64
#define TOMBSTONE 0xffffu

struct wg_real_queues wg_rq;
struct wg_queues wg_q;
struct wg_slot wg_slots[WG_MAX_STREAMS];
__thread unsigned int wg_in_nccl WG_TLS;

static _Atomic uint16_t table[INDEX_SIZE]; /* slot + 1 */
static _Atomic uint32_t adding;		   /* the spin lock */
static _Atomic uint32_t fresh;		   /* entries never used start here */
static uint32_t fresh_rings;
static uint32_t hand;			   /* where the search for a drained entry goes on */

struct remembered {
	uint64_t handle, ctx;
	int32_t slot_plus_1;
};
static __thread struct remembered last_handle WG_TLS, last_default WG_TLS;
static __thread uint32_t own_tid WG_TLS;

uint32_t wg_own_tid(void)
{
	if (wg_unlikely(!own_tid))
		own_tid = (uint32_t)syscall(SYS_gettid);
	return own_tid;
}

uint64_t wg_current_ctx(void)
{
	uint64_t ctx = 0;

	if (wg_unlikely(!wg_rq.ctx_current) || wg_rq.ctx_current(&ctx))
		return 0;
	return ctx;
}

static uint32_t key_hash(uint64_t handle, uint64_t ctx, uint32_t tid)
{
	uint64_t key = handle > 2 ? handle : handle ^ ctx ^ ((uint64_t)tid << 20);

	return (uint32_t)(wgrec_hash(key) >> 32);
}

static bool key_is(const struct wg_slot *slot, uint64_t handle, uint64_t ctx, uint32_t tid)
{
	return slot->handle == handle &&
	       (handle > 2 || (slot->ctx == ctx && slot->tid == tid)) &&
	       atomic_load_explicit(&slot->state, memory_order_acquire) == WG_SLOT_LIVE;
}

static int32_t index_find(uint64_t handle, uint64_t ctx, uint32_t tid)
{
	uint32_t h = key_hash(handle, ctx, tid);

	for (uint32_t step = 0; step < PROBES; step++) {
		uint16_t v = atomic_load_explicit(&table[(h + step) % INDEX_SIZE],
						  memory_order_acquire);

		if (!v)
			return -1;
		if (v != TOMBSTONE && key_is(&wg_slots[v - 1], handle, ctx, tid))
			return v - 1;
	}
	return -1;
}

static int index_add(int32_t i)
{
	uint32_t h = key_hash(wg_slots[i].handle, wg_slots[i].ctx, wg_slots[i].tid);

	for (uint32_t step = 0; step < PROBES; step++) {
		_Atomic uint16_t *at = &table[(h + step) % INDEX_SIZE];
		uint16_t v = atomic_load(at);

		if (v && v != TOMBSTONE)
			continue;
		atomic_store_explicit(at, (uint16_t)(i + 1), memory_order_release);
		return 0;
	}
	return -ENOSPC;
}

static void index_remove(int32_t i)
{
	uint32_t h = key_hash(wg_slots[i].handle, wg_slots[i].ctx, wg_slots[i].tid);

	for (uint32_t step = 0; step < PROBES; step++) {
		uint16_t v = (uint16_t)(i + 1);

		if (atomic_compare_exchange_strong(&table[(h + step) % INDEX_SIZE], &v, TOMBSTONE))
			return;
		if (!v)
			return;
	}
}

/* Bounded: whoever holds it makes no call that can block, but may be off the CPU. */
static bool lock_table(void)
{
	for (unsigned int spins = 0; spins < 100000; spins++) {
		if (!atomic_exchange_explicit(&adding, 1, memory_order_acquire))
			return true;
		if (spins > 100)
			sched_yield();
	}
	return false;
}

static void unlock_table(void)
{
	atomic_store_explicit(&adding, 0, memory_order_release);
}

static bool drained(int32_t i)
{
	const struct wgrec_stream *st = wg_stream_at(i);
	uint64_t done = wg_stream_done((uint32_t)i);

	/* The write that is still to come would fall into the new stream's word. */
	return done >= st->enqueued || (done >= st->marked && !atomic_load(&wg_slots[i].busy));
}

static bool owner_is_gone(const struct wg_slot *slot)
{
	return slot->handle == 2 && atomic_load(&slot->state) == WG_SLOT_LIVE &&
	       syscall(SYS_tgkill, getpid(), (int)slot->tid, 0) == -1 && errno == ESRCH;
}

static int32_t take_entry(void)
{
	if (fresh < wg_q.nstreams && wg_rec_use(WGREC_STREAMS, fresh + 1))
		return (int32_t)atomic_fetch_add(&fresh, 1);
	for (uint32_t n = 0; n < wg_q.nstreams; n++) {
		int32_t i = (int32_t)(hand++ % wg_q.nstreams);

		if (atomic_load(&wg_slots[i].state) == WG_SLOT_GONE && drained(i))
			return i;
	}
	/* Default streams of threads that ended: nobody tells us about these. */
	for (int32_t i = 0; i < (int32_t)wg_q.nstreams; i++) {
		if (owner_is_gone(&wg_slots[i]) && drained(i)) {
			wg_slot_retire(i);
			return i;
		}
	}
	return -1;
}

static uint32_t take_ring(int32_t i)
{
	if (fresh_rings < wg_q.nrings &&
	    wg_rec_use(WGREC_ITEMS, (fresh_rings + 1ull) * WGREC_STREAM_ITEMS))
		return fresh_rings++ * WGREC_STREAM_ITEMS;
	for (int32_t k = 0; k < (int32_t)wg_q.nstreams; k++) {
		uint32_t ring = wg_slots[k].ring;

		if (k == i || atomic_load(&wg_slots[k].state) != WG_SLOT_GONE ||
		    ring == UINT32_MAX || !drained(k))
			continue;
		wg_slots[k].ring = UINT32_MAX;
		__atomic_store_n(&wg_stream_at(k)->items_first, UINT32_MAX, __ATOMIC_RELEASE);
		return ring;
	}
	return UINT32_MAX;
}

static int32_t add_stream(uint64_t handle, uint64_t ctx, uint32_t tid, uint32_t flags,
			  int32_t device)
{
	struct wgrec_stream *st;
	struct wg_slot *slot;
	int32_t i, context = ctx ? wg_context_find(ctx) : -1;

	if (!lock_table())
		return -1;
	i = index_find(handle, ctx, tid); /* another thread was faster */
	if (i >= 0)
		goto out;
	i = take_entry();
	if (i < 0) {
		__atomic_fetch_add(&wg_rec->lost_streams, 1, __ATOMIC_RELAXED);
		goto out;
	}
	slot = &wg_slots[i];
	st = wg_stream_at(i);
	if (atomic_load(&slot->state) == WG_SLOT_FREE)
		slot->ring = UINT32_MAX;
	slot->handle = handle;
	slot->ctx = ctx;
	slot->tid = tid;
	slot->context = context;
	slot->blocking = !(flags & 1) || handle <= 2;
	slot->moved_at = wg_ticks();
	atomic_store(&slot->stop, 0);
	wg_pace_forget(i);
	atomic_store(&slot->turn, 0);
	atomic_store(&slot->claimed, st->enqueued);

	__atomic_store_n(&st->valid, 0, __ATOMIC_RELEASE);
	/* Of the entry's former stream, or none: then the first item takes one. */
	st->items_first = slot->ring;
	slot->no_ring = false;
	st->device = device;
	st->handle = handle;
	st->owner_tid = tid;
	st->flags = flags;
	st->ctx = ctx;
	st->capturing = 0;
	st->marks_lost = 0;
	st->awaited = 0;
	st->first = st->enqueued;
	st->marked = st->proven = st->seen = st->enqueued;
	st->seen_at = wg_ticks();
	st->longest_gap = 0;
	wg_position_prepare(i);
	atomic_store_explicit(&slot->state, WG_SLOT_LIVE, memory_order_release);
	if (index_add(i) < 0) {
		atomic_store(&slot->state, WG_SLOT_GONE);
		__atomic_store_n(&st->valid, 2, __ATOMIC_RELEASE);
		__atomic_fetch_add(&wg_rec->lost_streams, 1, __ATOMIC_RELAXED);
		i = -1;
		goto out;
	}
	__atomic_store_n(&st->valid, 1, __ATOMIC_RELEASE);
out:
	unlock_table();
	return i;
}

/* A stream that nobody told us about: made by a call that was not seen. */
static int32_t add_unknown(uint64_t handle, uint64_t ctx, uint32_t tid)
{
	unsigned int flags = 0;
	uint64_t own = 0;
	int device = -1;

	if (handle > 2) {
		if (wg_rq.stream_flags && wg_rq.stream_flags(handle, &flags))
			flags = 0;
		if (wg_rq.stream_ctx && !wg_rq.stream_ctx(handle, &own) && own)
			ctx = own;
	}
	if (!ctx)
		ctx = wg_current_ctx();
	if (!ctx)
		return -1;
	if (wg_current_ctx() == ctx && (!wg_rq.ctx_device || wg_rq.ctx_device(&device)))
		device = -1;
	return add_stream(handle, ctx, tid, flags, device);
}

static __attribute__((noinline)) int32_t find_slowly(struct wg_streamref s, bool create)
{
	uint64_t handle = s.handle, ctx = 0;
	struct remembered *memory = &last_handle;
	uint32_t tid = 0;
	int32_t i;

	if (wg_unlikely(!wg_q.streams))
		return -1;
	if (handle <= 2) {
		handle = handle == 2 || (handle == 0 && s.ptsz) ? 2 : 0;
		ctx = wg_current_ctx();
		if (wg_unlikely(!ctx))
			return -1;
		if (handle == 2)
			tid = wg_own_tid();
		memory = &last_default;
	}
	i = memory->slot_plus_1 - 1;
	if (i >= 0 && memory->handle == handle && memory->ctx == ctx &&
	    key_is(&wg_slots[i], handle, ctx, tid))
		return i;
	i = index_find(handle, ctx, tid);
	if (i < 0 && create)
		i = add_unknown(handle, ctx, tid);
	if (i >= 0)
		*memory = (struct remembered){ handle, ctx, i + 1 };
	return i;
}

/* The stream of the thread's last call, mostly. */
static inline int32_t find(struct wg_streamref s, bool create)
{
	int32_t i = last_handle.slot_plus_1 - 1;

	/* The entry's own key decides; what is remembered only says where to look. */
	if (wg_likely(s.handle > 2 && i >= 0 && wg_slots[i].handle == s.handle &&
		      atomic_load_explicit(&wg_slots[i].state, memory_order_acquire) ==
			      WG_SLOT_LIVE))
		return i;
	return find_slowly(s, create);
}

int32_t wg_slot_find(struct wg_streamref s, bool create)
{
	return find(s, create);
}

void wg_slot_retire(int32_t i)
{
	struct wg_slot *slot = &wg_slots[i];

	atomic_store_explicit(&slot->state, WG_SLOT_GONE, memory_order_release);
	__atomic_store_n(&wg_stream_at(i)->valid, 2, __ATOMIC_RELEASE);
	index_remove(i);
}

/* ---- giving ------------------------------------------------------------------ */

/* At its first item: PyTorch makes 128 streams at once and uses two. */
static __attribute__((noinline)) uint32_t first_ring(int32_t i)
{
	struct wg_slot *slot = &wg_slots[i];

	if (slot->no_ring || !lock_table())
		return UINT32_MAX;
	if (slot->ring == UINT32_MAX) {
		uint32_t ring = take_ring(i);

		slot->no_ring = ring == UINT32_MAX;
		if (slot->no_ring)
			wg_note("more streams in use than rings of items: some are only counted");
		wg_stream_at(i)->items_first = ring;
		__atomic_store_n(&slot->ring, ring, __ATOMIC_RELEASE);
	}
	unlock_table();
	return slot->ring;
}

static inline void two_words(void *at, uint32_t first, uint32_t second)
{
	/* Both machines are little-endian. */
	__atomic_store_n((wg_word *)at, (uint64_t)second << 32 | first, __ATOMIC_RELAXED);
}

/*
 * A thread that is off the CPU in here for a whole turn of the ring spoils one newer entry; readers
 * see that by its seq, unless it hits the same moment once more.
 */
static uint64_t put_item(int32_t i, enum wgrec_op op, uint64_t object, uint64_t value,
			 uint16_t flags, uint32_t name, uint32_t other, uint64_t now)
{
	struct wgrec_stream *st = wg_stream_at(i);
	uint64_t seq = __atomic_add_fetch(&st->enqueued, 1, __ATOMIC_ACQ_REL);
	uint32_t first = __atomic_load_n(&wg_slots[i].ring, __ATOMIC_ACQUIRE);
	struct wgrec_item *it;

	__atomic_store_n(&st->last_enqueue_at, now, __ATOMIC_RELAXED);
	if (wg_unlikely(first == UINT32_MAX))
		first = first_ring(i);
	if (wg_unlikely(first == UINT32_MAX)) {
		__atomic_fetch_add(&wg_rec->lost_items, 1, __ATOMIC_RELAXED);
		return seq;
	}
	it = &wg_q.items[first + seq % WGREC_STREAM_ITEMS];
	__atomic_store_n(&it->seq, 0, __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
	if (wg_unlikely(wg_in_nccl) && op != WGREC_OP_COLLECTIVE)
		flags |= WGREC_ITEMF_NCCL;
	two_words(&it->name, name, (uint32_t)op | (uint32_t)flags << 16);
	__atomic_store_n(&it->object, object, __ATOMIC_RELAXED);
	__atomic_store_n(&it->value, value, __ATOMIC_RELAXED);
	__atomic_store_n(&it->at, now, __ATOMIC_RELAXED);
	two_words(&it->tid, wg_own_tid(), other);
	__atomic_store_n(&it->seq, seq, __ATOMIC_RELEASE);
	return seq;
}

/* By the clock and by count; pace.c decides about the rest. */
__attribute__((always_inline)) static inline bool due(int32_t i, uint64_t seq, enum wgrec_op op,
						       uint64_t now)
{
	const struct wg_slot *slot = &wg_slots[i];

	if (wg_likely((int64_t)(now - atomic_load_explicit(&slot->mark_at, memory_order_relaxed)) <
			      (int64_t)atomic_load_explicit(&wg_q.rest_ticks, memory_order_relaxed) &&
		      seq < atomic_load_explicit(&slot->next_seq, memory_order_relaxed)))
		return false;
	return wg_pace_due(i, seq, op, now);
}

__attribute__((always_inline)) static inline struct wg_given
give(struct wg_streamref s, enum wgrec_op op, uint64_t object, uint64_t value, uint16_t flags,
     uint32_t name, uint32_t other)
{
	uint64_t now, seq;
	int32_t i;

	if (wg_unlikely(wg_contexts_changed()))
		wg_streams_context_ready();
	i = find(s, true);
	if (wg_unlikely(i < 0))
		return (struct wg_given){ 0, -1 };
	/* Captured work is not given to the stream: the graph's launches will be. */
	if (wg_unlikely(atomic_load_explicit(&wg_q.captures, memory_order_relaxed)) &&
	    wg_capture_status(i) == 1)
		return (struct wg_given){ 0, i };
	now = wg_likely(s.at) ? s.at : wg_stamp();
	seq = put_item(i, op, object, value, flags, name, other, now);
	if (wg_slots[i].blocking)
		wg_context_gave(wg_slots[i].context, i);
	if (op == WGREC_OP_HOSTFN || op == WGREC_OP_WAIT_VALUE)
		wg_position_mark_worth(i, false, WG_WORTH_IT, now);
	else if (wg_unlikely(due(i, seq, op, now)))
		wg_position_mark(i, false);
	return (struct wg_given){ seq, i };
}

struct wg_given wg_give(struct wg_streamref s, enum wgrec_op op, uint64_t object, uint64_t value,
			uint16_t flags, uint32_t name, uint32_t other)
{
	return give(s, op, object, value, flags, name, other);
}

uint64_t wg_stream_give(struct wg_streamref s, enum wgrec_op op, uint64_t object, uint64_t value,
			uint16_t flags)
{
	return give(s, op, object, value, flags, 0, UINT32_MAX).seq;
}

/* Loading a function cost more than this, and it happens once. */
static __attribute__((noinline)) void mark_surely(struct wg_streamref s)
{
	int32_t i = wg_slot_find(s, false);

	if (i >= 0)
		wg_position_mark(i, false);
}

#define KNOWN (1ull << 32) /* its name, a string reference, is below */

uint64_t wg_stream_give_kernel(struct wg_streamref s, uint64_t f, uint64_t known)
{
	uint32_t name = (uint32_t)known;
	uint64_t seq;
	bool first = false;

	if (wg_unlikely(!wg_q.streams))
		return 0;
	if (wg_unlikely(!known) && !wg_kernel_known(f, &name)) {
		name = wg_kernel_ask(f);
		first = true;
	}
	seq = give(s, WGREC_OP_KERNEL, f, 0, 0, name, UINT32_MAX).seq;
	if (wg_unlikely(first) && seq)
		mark_surely(s);
	return seq;
}

uint64_t wg_stream_before_kernel(struct wg_streamref s, uint64_t f)
{
	uint32_t name;

	if (wg_unlikely(!wg_q.streams))
		return 0;
	if (wg_likely(wg_kernel_known(f, &name)))
		return KNOWN | name;
	/*
	 * The last moment before a context has work: a primary one may be current before it
	 * lives.
	 */
	wg_streams_context_ready();
	mark_surely(s);
	return 0;
}

uint32_t wg_stream_index(struct wg_streamref s)
{
	int32_t i = wg_slot_find(s, true);

	return i < 0 ? UINT32_MAX : (uint32_t)i;
}

bool wg_stream_captures(uint32_t stream_index)
{
	return stream_index < wg_q.nstreams &&
	       atomic_load_explicit(&wg_q.captures, memory_order_relaxed) &&
	       wg_capture_status((int32_t)stream_index) == 1;
}

uint64_t wg_stream_give_collective(uint32_t stream_index, uint64_t handle, uint64_t sequence,
				   uint32_t comm, uint16_t flags, uint32_t name)
{
	int32_t i = (int32_t)stream_index;
	uint64_t seq;

	if (stream_index >= wg_q.nstreams || wg_stream_captures(stream_index))
		return 0;
	seq = put_item(i, WGREC_OP_COLLECTIVE, handle, sequence, flags, name, comm, wg_ticks());
	if (wg_slots[i].blocking)
		wg_context_gave(wg_slots[i].context, i);
	return seq;
}

void wg_stream_wait_event(struct wg_streamref s, uint64_t event)
{
	uint32_t stream = UINT32_MAX;
	uint64_t seq = 0;
	uint16_t flags = 0;

	if (wg_unlikely(!wg_q.streams))
		return;
	wg_event_where(event, &stream, &seq, &flags);
	wg_give(s, WGREC_OP_WAIT_EVENT, event, seq, flags, 0, stream);
}

/* ---- knowing what is done ------------------------------------------------------ */

uint64_t wg_stream_done(uint32_t i)
{
	const struct wgrec_stream *st = &wg_q.streams[i];
	uint64_t marked = __atomic_load_n(&st->marked, __ATOMIC_ACQUIRE);
	uint64_t proven = __atomic_load_n(&st->proven, __ATOMIC_ACQUIRE);
	uint32_t p = __atomic_load_n(&wg_slots[i].word, __ATOMIC_ACQUIRE), behind;
	uint64_t done;

	if (p >= wg_q.npositions)
		return proven;
	/* marked may lag behind the word for a moment: the difference is signed. */
	behind = (uint32_t)marked - __atomic_load_n(&wg_q.positions[p], __ATOMIC_ACQUIRE);
	done = (int32_t)behind > 0 ? marked - (behind <= marked ? behind : marked) : marked;
	return done > proven ? done : proven;
}

uint64_t wg_stream_seq(struct wg_streamref s)
{
	int32_t i = wg_slot_find(s, false);

	return i < 0 ? 0 : __atomic_load_n(&wg_stream_at(i)->enqueued, __ATOMIC_ACQUIRE);
}

static void prove(int32_t i, uint64_t seq)
{
	wg_max64(&wg_stream_at(i)->proven, seq, NULL);
	/* Perhaps idle now: see wg_device_synced(). */
	if (wg_unlikely(wg_context_waits(wg_slots[i].context)) || wg_contexts_changed())
		wg_streams_context_ready();
}

void wg_stream_synced(struct wg_streamref s, uint64_t seq)
{
	int32_t i = wg_slot_find(s, false);

	if (i >= 0)
		prove(i, seq);
}

/*
 * Synchronisations with a context that are under way, and how far each of its streams had been given
 * work when they began. A thread takes one or two (runtime and driver); one that is stuck keeps its own.
 */
#define SYNCS 16
static struct sync {
	_Atomic uint32_t taken;
	int32_t n;
	uint64_t ctx;
	uint64_t seq[WG_MAX_STREAMS];
} syncs[SYNCS];

uint64_t wg_device_sync_begins(uint64_t ctx)
{
	uint32_t k, none;

	if (wg_unlikely(!wg_q.streams))
		return 0;
	if (!ctx)
		ctx = wg_current_ctx();
	wg_stream_mark_all();
	for (k = 0; ctx && k < SYNCS; k++) {
		none = 0;
		if (!atomic_compare_exchange_strong(&syncs[k].taken, &none, 1))
			continue;
		syncs[k].ctx = ctx;
		syncs[k].n = (int32_t)atomic_load(&fresh);
		for (int32_t i = 0; i < syncs[k].n; i++)
			syncs[k].seq[i] = wg_slots[i].ctx == ctx ?
				__atomic_load_n(&wg_stream_at(i)->enqueued, __ATOMIC_ACQUIRE) : 0;
		return k + 1ull;
	}
	return 0;
}

void wg_device_synced(uint64_t begun, int r)
{
	struct sync *k;

	/* Taken since begins(), or by nobody: in a forked child. */
	if (begun && begun <= SYNCS && atomic_load(&syncs[begun - 1].taken)) {
		k = &syncs[begun - 1];
		for (int32_t i = 0; !r && wg_q.streams && i < k->n; i++)
			if (k->seq[i] && wg_slots[i].ctx == k->ctx)
				wg_max64(&wg_stream_at(i)->proven, k->seq[i], NULL);
		atomic_store_explicit(&k->taken, 0, memory_order_release);
	}
	if (!r)
		wg_streams_context_ready(); /* idle now: one first seen at work gets its page */
}

void wg_stream_mark(struct wg_streamref s)
{
	int32_t i = wg_slot_find(s, false);

	if (i >= 0)
		wg_position_mark_worth(i, false, WG_WORTH_IT, s.at);
}

/*
 * In training streams wait for each other around every collective. Whether a kernel before the wait
 * hangs or the wait itself makes all the difference.
 */
void wg_stream_before_wait(struct wg_streamref s, uint64_t event)
{
	uint32_t on = UINT32_MAX;
	uint16_t flags = 0;
	uint64_t seq = 0;
	int32_t i;

	if (wg_unlikely(!wg_q.streams))
		return;
	wg_event_where(event, &on, &seq, &flags);
	if (!(flags & 1) && (on >= wg_q.nstreams || wg_stream_done(on) >= seq))
		return;
	i = wg_slot_find(s, false);
	if (i >= 0 && (uint32_t)i != on)
		wg_position_mark_worth(i, false, WG_WORTH_IT, s.at);
}

/*
 * A write costs the GPU a microsecond or two between the last kernel and the synchronisation's
 * end. Where only one item is open, the synchronisation itself says what a write would: that item
 * is not done. In a loop of short synchronisations it must do for more than one.
 */
struct wg_before wg_stream_await(struct wg_streamref s)
{
	struct wg_before b = wg_stream_before(s);
	struct wgrec_stream *st;

	if (!b.where)
		return b;
	st = wg_stream_at((int32_t)b.where - 1);
	if (b.seq == wg_not_covered_from(st) + 1 ||
	    !wg_position_mark_worth((int32_t)b.where - 1, false, WG_WORTH_IT, s.at))
		__atomic_store_n(&st->awaited, b.seq, __ATOMIC_RELEASE);
	return b;
}

struct wg_before wg_stream_before(struct wg_streamref s)
{
	int32_t i = wg_slot_find(s, false);

	if (i < 0)
		return (struct wg_before){ 0, 0 };
	return (struct wg_before){ (uint64_t)i + 1,
				   __atomic_load_n(&wg_stream_at(i)->enqueued, __ATOMIC_ACQUIRE) };
}

/*
 * The entry may be another stream's by now (destroyed meanwhile, drained, taken again): its count went
 * on from there, so this is true of it as well.
 */
void wg_stream_proven(struct wg_before b)
{
	if (b.where && b.where <= wg_q.nstreams)
		prove((int32_t)b.where - 1, b.seq);
}

void wg_stream_poll(struct wg_before b, uint64_t began_ticks)
{
	if (b.where && b.where <= wg_q.nstreams)
		wg_position_poll((int32_t)b.where - 1, began_ticks);
}

void wg_stream_mark_index(uint32_t stream_index)
{
	if (stream_index < wg_q.nstreams)
		wg_position_mark_worth((int32_t)stream_index, true, WG_WORTH_COLLECTIVE, 0);
}

void wg_stream_mark_all(void)
{
	uint64_t ctx;

	if (wg_unlikely(!wg_q.streams))
		return;
	ctx = wg_current_ctx();
	for (int32_t i = 0; ctx && i < (int32_t)fresh; i++)
		/* A per-thread default stream can be named by its own thread only. */
		if (atomic_load_explicit(&wg_slots[i].state, memory_order_acquire) ==
			    WG_SLOT_LIVE &&
		    wg_slots[i].ctx == ctx &&
		    (wg_slots[i].handle != 2 || wg_slots[i].tid == wg_own_tid()))
			wg_position_mark_worth(i, false, WG_WORTH_IT, 0);
}

/* ---- life of a stream ---------------------------------------------------------- */

void wg_stream_created(uint64_t handle, uint32_t flags)
{
	struct wg_streamref s = { .handle = handle };
	uint64_t ctx;
	int device = -1;
	int32_t i;

	if (!wg_q.streams || handle <= 2)
		return;
	i = wg_slot_find(s, false);
	if (i >= 0)
		wg_slot_retire(i); /* its destruction was not seen */
	wg_streams_context_ready();
	ctx = wg_current_ctx();
	if (!ctx || !wg_rq.ctx_device || wg_rq.ctx_device(&device))
		device = -1;
	if (ctx)
		add_stream(handle, ctx, 0, flags, device);
}

uint64_t wg_destroy_patience = 50000000;

static __attribute__((noinline)) void wait_for_writes(int32_t i)
{
	uint64_t began = wg_mono_ns();

	while (atomic_load(&wg_slots[i].busy) && wg_mono_ns() - began < wg_destroy_patience)
		sched_yield();
}

void wg_stream_destroying(uint64_t handle)
{
	struct wg_streamref s = { .handle = handle };
	int32_t i = handle > 2 ? wg_slot_find(s, false) : -1;

	if (i < 0)
		return;
	wg_position_mark(i, false);
	atomic_store(&wg_slots[i].state, WG_SLOT_DYING);
	/*
	 * Another thread may be writing its position before a device synchronisation, and the handle
	 * must not die under it. It takes a microsecond, on a busy machine a turn of the scheduler
	 * more; it may also be stuck behind a full queue, then the program's destroy must not wait for
	 * it for ever.
	 */
	if (wg_unlikely(atomic_load(&wg_slots[i].busy)))
		wait_for_writes(i);
}

static int32_t find_dying(uint64_t handle)
{
	uint32_t h = key_hash(handle, 0, 0);

	for (uint32_t step = 0; step < PROBES; step++) {
		uint16_t v = atomic_load(&table[(h + step) % INDEX_SIZE]);

		if (!v)
			break;
		if (v != TOMBSTONE && wg_slots[v - 1].handle == handle &&
		    atomic_load(&wg_slots[v - 1].state) == WG_SLOT_DYING)
			return v - 1;
	}
	return -1;
}

void wg_stream_destroyed(uint64_t handle)
{
	struct wg_streamref s = { .handle = handle };
	int32_t i;

	if (!wg_q.streams || handle <= 2)
		return;
	i = find_dying(handle);
	if (i < 0)
		i = wg_slot_find(s, false);
	if (i >= 0)
		wg_slot_retire(i);
}

void wg_stream_capture(struct wg_streamref s, bool begins)
{
	int32_t i = wg_slot_find(s, begins);

	if (wg_unlikely(!wg_q.streams))
		return;
	if (begins) {
		atomic_fetch_add(&wg_q.captures, 1);
		if (i >= 0)
			__atomic_store_n(&wg_stream_at(i)->capturing, 1, __ATOMIC_RELAXED);
		return;
	}
	if (i >= 0 && wg_capture_status(i) != 1)
		__atomic_store_n(&wg_stream_at(i)->capturing, 0, __ATOMIC_RELAXED);
	for (uint32_t n = atomic_load(&wg_q.captures); n > 0;)
		if (atomic_compare_exchange_weak(&wg_q.captures, &n, n - 1)) {
			if (n > 1)
				return;
			break;
		}
	/* The last one ended: streams that had joined a capture are back, too. */
	for (int32_t k = 0; k < (int32_t)fresh; k++)
		if (wg_stream_at(k)->capturing)
			__atomic_store_n(&wg_stream_at(k)->capturing, 0, __ATOMIC_RELAXED);
}

/* ---- life cycle ----------------------------------------------------------------- */

void wg_streams_tick(void)
{
	uint64_t now = wg_ticks();

	if (wg_q.streams)
		wg_pace_tick();
	for (int32_t i = 0; wg_q.streams && i < (int32_t)fresh; i++) {
		struct wgrec_stream *st = wg_stream_at(i);
		uint64_t done, enqueued, gap;

		if (__atomic_load_n(&st->valid, __ATOMIC_ACQUIRE) == 0)
			continue;
		enqueued = __atomic_load_n(&st->enqueued, __ATOMIC_ACQUIRE);
		done = wg_stream_done((uint32_t)i);
		if (done > st->seen) {
			gap = now - wg_slots[i].moved_at;
			if (st->seen < enqueued && gap > st->longest_gap)
				__atomic_store_n(&st->longest_gap, gap, __ATOMIC_RELAXED);
			__atomic_store_n(&st->seen, done, __ATOMIC_RELEASE);
			__atomic_store_n(&st->seen_at, now, __ATOMIC_RELEASE);
			wg_slots[i].moved_at = now;
		} else if (done >= enqueued) {
			wg_slots[i].moved_at = now; /* nothing to do is no gap */
		}
	}
}

static void *symbol(const char *name, const char *older)
{
	void *f = wg_real_symbol(name);

	return f || !older ? f : wg_real_symbol(older);
}

int wg_streams_start(void)
{
	uint64_t cap_streams = 0, cap_items = 0, ns;
	struct wgrec_stream *streams = wg_rec_section(WGREC_STREAMS, &cap_streams);

	if (!streams)
		return -ENOENT;
	if (wg_q.streams)
		return 0;
	*(void **)&wg_rq.ctx_current = symbol("cuCtxGetCurrent", NULL);
	*(void **)&wg_rq.ctx_device = symbol("cuCtxGetDevice", NULL);
	*(void **)&wg_rq.ctx_id = symbol("cuCtxGetId", NULL);
	*(void **)&wg_rq.ctx_push = symbol("cuCtxPushCurrent_v2", NULL);
	*(void **)&wg_rq.ctx_pop = symbol("cuCtxPopCurrent_v2", NULL);
	*(void **)&wg_rq.is_capturing = symbol("cuStreamIsCapturing", NULL);
	*(void **)&wg_rq.stream_flags = symbol("cuStreamGetFlags", NULL);
	*(void **)&wg_rq.stream_ctx = symbol("cuStreamGetCtx", NULL);
	*(void **)&wg_rq.func_name = symbol("cuFuncGetName", NULL);
	*(void **)&wg_rq.kernel_name = symbol("cuKernelGetName", NULL);
	if (!wg_rq.ctx_current)
		return -ENOSYS;
	ns = wg_ticks_to_ns(1u << 20); /* how long a tick is */
	wg_q.poll_ticks = ns ? 100000ull * (1u << 20) / ns : 100000;
	wg_pace_start(ns);
	wg_q.items = wg_rec_section(WGREC_ITEMS, &cap_items);
	wg_q.nrings = wg_q.items ? (uint32_t)(cap_items / WGREC_STREAM_ITEMS) : 0;
	wg_q.nstreams = cap_streams < WG_MAX_STREAMS ? (uint32_t)cap_streams : WG_MAX_STREAMS;
	wg_positions_start();
	wg_events_start();
	__atomic_store_n(&wg_q.streams, streams, __ATOMIC_RELEASE);
	wg_streams_context_ready();
	wg_nccl_cuda_up();
	return 0;
}

void wg_streams_fork_child(void)
{
	/*
	 * CUDA does not work in a forked child: forget everything, touch nothing of the parent's.
	 */
	memset(&wg_q, 0, sizeof(wg_q));
	memset(wg_slots, 0, sizeof(wg_slots));
	memset((void *)table, 0, sizeof(table));
	atomic_store(&adding, 0);
	atomic_store(&fresh, 0);
	for (unsigned int k = 0; k < SYNCS; k++)
		atomic_store(&syncs[k].taken, 0);
	fresh_rings = hand = 0;
	last_handle = last_default = (struct remembered){ 0 };
	own_tid = 0;
	wg_in_nccl = 0;
	wg_positions_fork_child();
	wg_events_fork_child();
}
