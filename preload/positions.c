// SPDX-License-Identifier: Apache-2.0
/*
 * positions.c - the GPU writes how far it has come into the recorder file.
 *
 * Each context has a page of POSITIONS of its own, pinned and mapped for that context alone:
 * another context's end cannot leave it dangling, which would be a fault on the device. A
 * stream's word is the one of its index in the page. What is written is the low half of the
 * stream's count of items, read before the write is issued: every item up to it is ahead of the
 * write in the stream.
 *
 * A write must not change what the program's own work waits for. On streams that take part in
 * legacy default stream semantics it can: a write to the legacy stream waits for all blocking
 * streams and they wait for it, and a write to a blocking stream waits for the legacy stream. It
 * adds nothing directly after an item of the same stream, so it is left out when, as far as was
 * seen, the other side was given work in between.
 *
 * Pinning may wait for work that runs (it did not on an H200 with driver 580: 0.24 ms beside a
 * spinning kernel), so a page is registered only while its context is idle: when the context
 * first becomes current. The thread's capture mode is relaxed meanwhile, or another thread's
 * capture would be broken by it.
 */
#include <string.h>
#include <unistd.h>

#include "inflight.h"
#include "queues.h"

#define REGISTER_PORTABLE_DEVICEMAP 3u
#define CAPTURE_MODE_RELAXED 2
#define NO_PAGE UINT32_MAX

enum context_state { CTX_FREE, CTX_NEW, CTX_REGISTERING, CTX_READY, CTX_REFUSED, CTX_SUSPENDED };

struct context {
	_Atomic uint64_t handle;
	_Atomic uint32_t state;
	_Atomic int32_t device;
	uint32_t refusals;
	uint32_t page;		/* number, NO_PAGE: more contexts than pages */
	unsigned long long id;	/* tells it from a later one at the same address; 0 unknown */
	uint64_t address;	/* the page as the device sees it */
	_Atomic int32_t last;	/* stream given work last, of those with legacy semantics */
	_Atomic uint64_t turns;	/* how often that has been another one */
	_Atomic int32_t legacy; /* its legacy default stream, -1 not seen */
};

static struct context contexts[WG_MAX_CONTEXTS];
static _Atomic uint32_t ncontexts;
static uint32_t page_bytes, page_words;
_Atomic uint32_t wg_generation;
static __thread uint64_t last_ready WG_TLS;
__thread uint32_t wg_last_generation WG_TLS;

static void streams_gone(uint32_t k)
{
	for (uint32_t i = 0; i < wg_q.nstreams; i++) {
		if (wg_slots[i].context != (int32_t)k ||
		    atomic_load(&wg_slots[i].state) == WG_SLOT_FREE)
			continue;
		/* Nothing of it will ever run, and nobody waits for it. */
		wg_max64(&wg_stream_at((int32_t)i)->proven, wg_stream_at((int32_t)i)->enqueued,
			 NULL);
		wg_slot_retire((int32_t)i);
	}
}

/*
 * All entries are taken: one that was suspended and never seen again was destroyed. (If it was not,
 * its streams are found anew, and its page is registered already.)
 */
static int32_t take_gone(uint64_t ctx)
{
	for (uint32_t k = 0; k < WG_MAX_CONTEXTS; k++) {
		uint32_t state = CTX_SUSPENDED;

		if (!atomic_compare_exchange_strong(&contexts[k].state, &state, CTX_REGISTERING))
			continue;
		streams_gone(k);
		contexts[k].address = 0;
		atomic_store_explicit(&contexts[k].handle, ctx, memory_order_release);
		return (int32_t)k;
	}
	return -1;
}

static void fill_in(uint32_t k, uint64_t ctx)
{
	struct context *c = &contexts[k];
	int device = -1;

	if (wg_current_ctx() != ctx || !wg_rq.ctx_device || wg_rq.ctx_device(&device))
		device = -1;
	c->device = device;
	c->page = page_words && (k + 1) * page_words <= wg_q.npositions &&
				  wg_rec_use(WGREC_POSITIONS, (k + 1ull) * page_words) ?
			  k : NO_PAGE;
	if (!wg_rq.ctx_id || wg_rq.ctx_id(ctx, &c->id))
		c->id = 0;
	c->refusals = 0;
	atomic_store(&c->last, -1);
	atomic_store(&c->legacy, -1);
	atomic_store_explicit(&c->state, CTX_NEW, memory_order_release);
}

/*
 * Callers may race: the handle is claimed by compare-and-swap; a duplicate would only waste a
 * page.
 */
int32_t wg_context_find(uint64_t ctx)
{
	uint32_t n = atomic_load_explicit(&ncontexts, memory_order_acquire);
	uint64_t none;
	int32_t gone;

	for (uint32_t k = 0; k < n && k < WG_MAX_CONTEXTS; k++)
		if (atomic_load_explicit(&contexts[k].handle, memory_order_acquire) == ctx)
			return (int32_t)k;
	for (uint32_t k = 0; k < WG_MAX_CONTEXTS; k++) {
		none = 0;
		if (!atomic_compare_exchange_strong(&contexts[k].handle, &none, ctx)) {
			if (none == ctx)
				return (int32_t)k;
			continue;
		}
		fill_in(k, ctx);
		for (n = atomic_load(&ncontexts);
		     n < k + 1 && !atomic_compare_exchange_weak(&ncontexts, &n, k + 1);)
			;
		return (int32_t)k;
	}
	gone = take_gone(ctx);
	if (gone >= 0)
		fill_in((uint32_t)gone, ctx);
	return gone;
}

void wg_context_gave(int32_t context, int32_t stream)
{
	struct context *c;

	if (context < 0)
		return;
	c = &contexts[context];
	if (wg_unlikely(atomic_load_explicit(&c->last, memory_order_relaxed) != stream)) {
		atomic_store_explicit(&c->last, stream, memory_order_relaxed);
		atomic_store_explicit(&wg_slots[stream].turn,
				      atomic_fetch_add_explicit(&c->turns, 1, memory_order_relaxed) + 1,
				      memory_order_relaxed);
	}
	if (wg_unlikely(wg_slots[stream].handle == 0) &&
	    atomic_load_explicit(&c->legacy, memory_order_relaxed) != stream)
		atomic_store_explicit(&c->legacy, stream, memory_order_relaxed);
}

bool wg_context_waits(int32_t context)
{
	uint32_t state;

	if (context < 0)
		return true;
	state = atomic_load_explicit(&contexts[context].state, memory_order_relaxed);
	return state != CTX_READY && state != CTX_REFUSED;
}

static bool idle(int32_t context)
{
	for (uint32_t i = 0; i < wg_q.nstreams && wg_q.streams; i++)
		/* The slot first: an entry that nobody has reserved must not even be read. */
		if (atomic_load(&wg_slots[i].state) != WG_SLOT_FREE &&
		    wg_slots[i].context == context && wg_stream_at((int32_t)i)->valid &&
		    wg_stream_done(i) < wg_stream_at((int32_t)i)->enqueued)
			return false;
	return true;
}

static const char *why_refused(int rc)
{
	switch (rc) {
	case 1:
		return "no GPU positions: pinning their page: invalid value";
	case 2:
		return "no GPU positions: pinning their page: out of memory (memlock limit?)";
	case 3:
		return "no GPU positions: pinning their page: driver not initialised";
	case 304:
		return "no GPU positions: pinning their page: operating system call failed";
	case 800:
		return "no GPU positions: pinning their page: not permitted";
	case 801:
		return "no GPU positions: pinning their page: not supported";
	default:
		return "no GPU positions: the driver refused to pin their page";
	}
}

/* Context k is current, new and idle. */
static void register_page(uint32_t k)
{
	struct context *c = &contexts[k];
	uint32_t state = CTX_NEW;
	int mode = CAPTURE_MODE_RELAXED, rc;
	unsigned long long id = 0;
	void *page;

	if (c->page == NO_PAGE || !wg_rq.write32 || !wg_rq.host_register || !wg_rq.host_pointer) {
		if (atomic_compare_exchange_strong(&c->state, &state, CTX_REFUSED))
			wg_note(c->page == NO_PAGE ?
					"no page of positions left for a further CUDA context" :
					"the driver has no stream memory writes: no GPU positions");
		return;
	}
	if (atomic_load(&wg_q.captures) && !wg_rq.capture_mode)
		return;
	if (!atomic_compare_exchange_strong(&c->state, &state, CTX_REGISTERING))
		return;
	page = (char *)wg_q.positions + (size_t)c->page * page_bytes;
	if (wg_rq.capture_mode && wg_rq.capture_mode(&mode))
		mode = -1;
	rc = wg_rq.host_register(page, page_bytes, REGISTER_PORTABLE_DEVICEMAP);
	/* Left over from a context that was not seen to go, or registered before it was reset. */
	if (rc == WG_CUDA_ALREADY_REGISTERED)
		rc = WG_CUDA_SUCCESS;
	if (!rc)
		rc = wg_rq.host_pointer(&c->address, page, 0);
	if (mode >= 0 && wg_rq.capture_mode)
		wg_rq.capture_mode(&mode);
	/* A primary context can be current before it is alive (709, seen under PyTorch): later. */
	if (rc == WG_CUDA_CONTEXT_DESTROYED || rc == WG_CUDA_INVALID_CONTEXT) {
		atomic_store(&c->state, CTX_NEW);
		return;
	}
	if (rc) {
		wg_note(why_refused(rc));
		atomic_store(&c->state, ++c->refusals < 3 ? CTX_NEW : CTX_REFUSED);
		return;
	}
	if (wg_rq.ctx_id && !wg_rq.ctx_id(atomic_load(&c->handle), &id))
		c->id = id; /* of the living context */
	atomic_store_explicit(&c->state, CTX_READY, memory_order_release);
	__atomic_fetch_or(&wg_rec->flags, WGREC_F_POSITIONS, __ATOMIC_RELAXED);
}

/*
 * Context k was about to be reset, destroyed or released, and now a context with its handle is
 * current. Still the same one? Then its page still has its address. Otherwise its streams are
 * gone.
 */
static void look_again(uint32_t k)
{
	struct context *c = &contexts[k];
	unsigned long long id = 0;
	uint64_t address = 0;
	bool same;

	same = wg_rq.ctx_id && !wg_rq.ctx_id(atomic_load(&c->handle), &id) && id == c->id && id;
	if (same && c->address)
		same = !wg_rq.host_pointer(&address, (char *)wg_q.positions +
					   (size_t)c->page * page_bytes, 0) &&
		       address == c->address;
	if (same) {
		atomic_store(&c->state, c->address ? CTX_READY : CTX_NEW);
	} else {
		streams_gone(k);
		c->id = id;
		c->address = 0;
		atomic_store(&c->last, -1);
		atomic_store(&c->legacy, -1);
		atomic_store(&c->state, CTX_NEW);
	}
}

void wg_streams_context_ready(void)
{
	uint32_t state, now = atomic_load(&wg_generation);
	int device = -1;
	uint64_t ctx;
	int32_t k;

	if (wg_unlikely(!wg_q.streams))
		return;
	ctx = wg_current_ctx();
	if (!ctx || (ctx == last_ready && now == wg_last_generation))
		return;
	wg_last_generation = now;
	k = wg_context_find(ctx);
	if (k < 0)
		return;
	if (contexts[k].device < 0 && wg_rq.ctx_device && !wg_rq.ctx_device(&device))
		contexts[k].device = device;
	state = atomic_load(&contexts[k].state);
	if (state == CTX_SUSPENDED &&
	    atomic_compare_exchange_strong(&contexts[k].state, &state, CTX_REGISTERING))
		look_again((uint32_t)k);
	if (atomic_load(&contexts[k].state) == CTX_NEW && idle(k))
		register_page((uint32_t)k);
	state = atomic_load(&contexts[k].state);
	if (state == CTX_READY || state == CTX_REFUSED)
		last_ready = ctx;
}

void wg_streams_context_gone(int device)
{
	uint32_t n = atomic_load(&ncontexts);

	for (uint32_t k = 0; k < n; k++) {
		struct context *c = &contexts[k];
		uint32_t state = atomic_load(&c->state);

		if (device >= 0 && c->device >= 0 && c->device != device)
			continue;
		if (state == CTX_NEW || state == CTX_READY || state == CTX_REFUSED)
			atomic_compare_exchange_strong(&c->state, &state, CTX_SUSPENDED);
	}
	atomic_fetch_add(&wg_generation, 1);
}

/* ---- capture ---------------------------------------------------------------------- */

int wg_capture_status(int32_t i)
{
	int status = 0, rc;

	if (!wg_rq.is_capturing)
		return atomic_load(&wg_q.captures) ? -1 : 0;
	rc = wg_rq.is_capturing(wg_slots[i].handle, &status);
	if (rc)
		return -1; /* legacy while a blocking one is captured, or a broken context */
	return status ? 1 : 0;
}

/* ---- the write ----------------------------------------------------------------------- */

static void refused(int32_t i, struct context *c, int rc)
{
	__atomic_fetch_add(&wg_stream_at(i)->marks_lost, 1, __ATOMIC_RELAXED);
	if (rc >= WG_CUDA_CAPTURE_FIRST && rc <= WG_CUDA_CAPTURE_LAST)
		return;
	atomic_store(&wg_slots[i].stop, 1);
	if (rc == 801 || rc == 1) { /* not supported, invalid value: on every stream */
		uint32_t state = CTX_READY;

		atomic_compare_exchange_strong(&c->state, &state, CTX_REFUSED);
		wg_note("the driver refuses stream memory writes: no GPU positions");
		return;
	}
	wg_note("a position write failed: no more on that stream");
}

/* Would a write to stream i now wait for, or hold up, what the program's own work would not? */
static bool would_order(int32_t i, const struct context *c)
{
	int32_t legacy = atomic_load_explicit(&c->legacy, memory_order_relaxed);

	if (!wg_slots[i].blocking)
		return false;
	if (wg_slots[i].handle == 0)
		return atomic_load_explicit(&c->last, memory_order_relaxed) != i;
	if (legacy < 0 || wg_stream_done((uint32_t)legacy) >= wg_stream_at(legacy)->enqueued)
		return false;
	return atomic_load_explicit(&wg_slots[legacy].turn, memory_order_relaxed) >=
	       atomic_load_explicit(&wg_slots[i].turn, memory_order_relaxed);
}

/* Before the stream can be found by anybody: its word starts where its count does. */
void wg_position_prepare(int32_t i)
{
	int32_t k = wg_slots[i].context;

	/* Published with the first write. */
	wg_slots[i].word = wg_stream_at(i)->position = UINT32_MAX;
	if (k >= 0 && contexts[k].page != NO_PAGE)
		__atomic_store_n(&wg_q.positions[contexts[k].page * page_words +
						 (uint32_t)i % page_words],
				 (uint32_t)wg_stream_at(i)->enqueued, __ATOMIC_RELEASE);
}

/* The reader wants to know where the writes stand between the items. */
static void tell_marked(int32_t i, uint64_t seq)
{
	uint32_t ring = __atomic_load_n(&wg_slots[i].ring, __ATOMIC_ACQUIRE);
	struct wgrec_item *it;

	if (ring == UINT32_MAX)
		return;
	it = &wg_q.items[ring + seq % WGREC_STREAM_ITEMS];
	if (__atomic_load_n(&it->seq, __ATOMIC_ACQUIRE) == seq)
		__atomic_fetch_or(&it->flags, WGREC_ITEMF_MARKED, __ATOMIC_RELAXED);
}

/*
 * Two threads may write to one stream at once. Who finds after its write that somebody set out
 * with a newer count writes again, so the last write issued always carries the newest.
 */
static void write_position(int32_t i, struct context *c)
{
	struct wgrec_stream *st = wg_stream_at(i);
	uint32_t word = (uint32_t)i % page_words, index = c->page * page_words + word;
	uint64_t value, claimed, marked, done, began;
	int rc;

	if (wg_unlikely(__atomic_load_n(&wg_slots[i].word, __ATOMIC_ACQUIRE) == UINT32_MAX)) {
		__atomic_store_n(&wg_slots[i].word, index, __ATOMIC_RELEASE);
		__atomic_store_n(&st->position, index, __ATOMIC_RELEASE);
	}
	for (int n = 0; n < 4; n++) {
		value = __atomic_load_n(&st->enqueued, __ATOMIC_ACQUIRE);
		for (claimed = atomic_load(&wg_slots[i].claimed);
		     claimed < value &&
		     !atomic_compare_exchange_weak(&wg_slots[i].claimed, &claimed, value);)
			;
		marked = __atomic_load_n(&st->marked, __ATOMIC_RELAXED);
		done = wg_stream_done((uint32_t)i);
		began = wg_stamp();
		rc = wg_rq.write32(wg_slots[i].handle, c->address + 4ull * word, (uint32_t)value,
				   0);
		if (rc) {
			refused(i, c, rc);
			return;
		}
		tell_marked(i, value);
		wg_max64(&st->marked, value, NULL);
		wg_pace_wrote(i, value, marked, done, began, wg_stamp());
		if (atomic_load(&wg_slots[i].claimed) <= value)
			return;
	}
}

void wg_position_mark(int32_t i, bool push)
{
	struct wgrec_stream *st = wg_stream_at(i);
	struct wg_slot *slot = &wg_slots[i];
	uint64_t enqueued = __atomic_load_n(&st->enqueued, __ATOMIC_ACQUIRE);
	uint64_t popped;
	struct context *c;
	bool pushed = false;

	if (enqueued <= __atomic_load_n(&st->marked, __ATOMIC_ACQUIRE) ||
	    enqueued <= __atomic_load_n(&st->proven, __ATOMIC_ACQUIRE) || slot->context < 0 ||
	    atomic_load_explicit(&slot->stop, memory_order_relaxed))
		return;
	c = &contexts[slot->context];
	if (wg_unlikely(atomic_load_explicit(&c->state, memory_order_acquire) != CTX_READY)) {
		__atomic_fetch_add(&st->marks_lost, 1, __ATOMIC_RELAXED);
		return;
	}
	if (would_order(i, c))
		return;
	if (slot->handle == 2 && slot->tid != wg_own_tid())
		return;
	atomic_fetch_add_explicit(&slot->busy, 1, memory_order_seq_cst);
	if (atomic_load_explicit(&slot->state, memory_order_seq_cst) != WG_SLOT_LIVE)
		goto out;
	/*
	 * The driver takes a write to a stream of another context, but a default stream has no
	 * name.
	 */
	if (slot->handle <= 2 && wg_current_ctx() != slot->ctx) {
		if (!push || !wg_rq.ctx_push || !wg_rq.ctx_pop || wg_rq.ctx_push(slot->ctx))
			goto out;
		pushed = true;
	}
	if (wg_unlikely(wg_capture_status(i))) {
		__atomic_fetch_add(&st->marks_lost, 1, __ATOMIC_RELAXED);
		wg_note("no position write during graph capture");
	} else {
		write_position(i, c);
	}
	if (pushed)
		wg_rq.ctx_pop(&popped);
out:
	atomic_fetch_sub_explicit(&slot->busy, 1, memory_order_seq_cst);
}

bool wg_position_mark_worth(int32_t i, bool push, enum wg_worth worth, uint64_t now)
{
	const struct wgrec_stream *st = wg_stream_at(i);

	if (__atomic_load_n(&st->enqueued, __ATOMIC_ACQUIRE) <= wg_not_covered_from(st))
		return true;
	if (!wg_pace_afford(now ? now : wg_stamp(), worth))
		return false;
	wg_position_mark(i, push);
	return true;
}

/*
 * Programs that poll do so often; one that polls for long hangs, and then this comes early
 * enough.
 */
void wg_position_poll(int32_t i, uint64_t now)
{
	const struct wgrec_stream *st = wg_stream_at(i);
	int64_t long_enough = (int64_t)wg_q.poll_ticks;

	/* Signed: `now` is when this call began, another thread may have written since. */
	if ((int64_t)(now - atomic_load_explicit(&wg_slots[i].mark_at, memory_order_relaxed)) >
		    long_enough &&
	    (int64_t)(now - __atomic_load_n(&st->last_enqueue_at, __ATOMIC_RELAXED)) > long_enough)
		wg_position_mark(i, true);
}

/* ---- life cycle -------------------------------------------------------------------------- */

void wg_positions_start(void)
{
	uint64_t capacity = 0;

	wg_q.positions = wg_rec_section(WGREC_POSITIONS, &capacity);
	wg_q.npositions = wg_q.positions ? (uint32_t)capacity : 0;
	page_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
	page_words = page_bytes / 4;
	/*
	 * A page must lie within the section as a whole, or pinning would take its neighbours
	 * along.
	 */
	if ((uintptr_t)wg_q.positions % page_bytes || wg_q.npositions < page_words)
		page_words = 0;
	/*
	 * Only the v2 call: the attribute CAN_USE_STREAM_MEM_OPS speaks of the first version (an
	 * H200 says 0 and takes v2 writes), which no driver of the last years lets a process use.
	 */
	*(void **)&wg_rq.write32 = wg_real_symbol("cuStreamWriteValue32_v2");
	*(void **)&wg_rq.capture_mode = wg_real_symbol("cuThreadExchangeStreamCaptureMode");
	*(void **)&wg_rq.host_register = wg_real_symbol("cuMemHostRegister_v2");
	*(void **)&wg_rq.host_pointer = wg_real_symbol("cuMemHostGetDevicePointer_v2");
}

void wg_positions_fork_child(void)
{
	memset(contexts, 0, sizeof(contexts));
	atomic_store(&ncontexts, 0);
	atomic_store(&wg_generation, 0);
	last_ready = 0;
	wg_last_generation = 0;
}
