// SPDX-License-Identifier: Apache-2.0
/*
 * events.c - where each CUDA event was recorded last.
 *
 * The table in the file is for readers. Its pair (stream, item) could be read half-changed by
 * another thread of ours that makes a stream wait, so the same pair is kept in one private word
 * an entry.
 */
#include <string.h>

#include "queues.h"

#define PROBES 32u
#define MAX_EVENTS 65536u
#define NEVER 0ull

static _Atomic uint64_t where[MAX_EVENTS]; /* (stream + 1) << 48 | seq */
static uint32_t mask;

static int32_t find(uint64_t event)
{
	uint32_t h = (uint32_t)(wgrec_hash(event) >> 32);

	for (uint32_t step = 0; wg_q.events && step < PROBES; step++) {
		uint32_t at = (h + step) & mask;
		uint64_t key = __atomic_load_n(&wg_q.events[at].handle, __ATOMIC_ACQUIRE);

		if (key == event)
			return (int32_t)at;
		if (!key)
			return -1;
	}
	return -1;
}

static int32_t find_or_add(uint64_t event, uint32_t flags)
{
	uint32_t h = (uint32_t)(wgrec_hash(event) >> 32);
	int32_t at = find(event);

	if (at >= 0 || !wg_q.events || event <= 1)
		return at;
	for (uint32_t step = 0; step < PROBES; step++) {
		struct wgrec_event *e = &wg_q.events[(h + step) & mask];
		uint64_t key = __atomic_load_n(&e->handle, __ATOMIC_ACQUIRE);

		if (key > 1 || !__atomic_compare_exchange_n(&e->handle, &key, event, false,
							    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			continue;
		e->stream = UINT32_MAX;
		e->flags = flags;
		e->seq = e->at = 0;
		atomic_store(&where[(h + step) & mask], NEVER);
		return (int32_t)((h + step) & mask);
	}
	__atomic_fetch_add(&wg_rec->lost_events, 1, __ATOMIC_RELAXED);
	return -1;
}

void wg_event_created(uint64_t event, bool from_ipc)
{
	int32_t at = find_or_add(event, from_ipc ? 1 : 0);

	if (at < 0)
		return;
	/* An address used again: its destruction was not seen. */
	atomic_store(&where[at], NEVER);
	wg_q.events[at].stream = UINT32_MAX;
	wg_q.events[at].flags = from_ipc ? 1 : 0;
	wg_q.events[at].seq = 0;
}

void wg_event_recorded(uint64_t event, struct wg_streamref s)
{
	struct wg_given given;
	int32_t at;

	if (wg_unlikely(!wg_q.streams))
		return;
	if (!s.at)
		s.at = wg_ticks();
	given = wg_give(s, WGREC_OP_RECORD_EVENT, event, 0, 0, 0, UINT32_MAX);
	at = find_or_add(event, 0);
	if (at < 0)
		return;
	/* Captured (or unrecorded): nothing outside its graph waits for it. */
	if (!given.seq) {
		atomic_store(&where[at], NEVER);
		__atomic_store_n(&wg_q.events[at].stream, UINT32_MAX, __ATOMIC_RELEASE);
		return;
	}
	atomic_store_explicit(&where[at], (uint64_t)(given.slot + 1) << 48 |
						  (given.seq & 0xffffffffffffull),
			      memory_order_release);
	wg_q.events[at].seq = given.seq;
	wg_q.events[at].at = s.at;
	__atomic_store_n(&wg_q.events[at].stream, (uint32_t)given.slot, __ATOMIC_RELEASE);
}

void wg_event_where(uint64_t event, uint32_t *stream, uint64_t *seq, uint16_t *flags)
{
	int32_t at = find(event);
	uint64_t v;

	if (at < 0)
		return;
	v = atomic_load_explicit(&where[at], memory_order_acquire);
	*flags = wg_q.events[at].flags & 1;
	if (v == NEVER)
		return;
	*stream = (uint32_t)(v >> 48) - 1;
	*seq = v & 0xffffffffffffull;
}

struct wg_before wg_event_before(uint64_t event)
{
	int32_t at = wg_likely(wg_q.streams) ? find(event) : -1;

	if (at < 0)
		return (struct wg_before){ 0, 0 };
	return (struct wg_before){ (uint64_t)at + 1,
				   atomic_load_explicit(&where[at], memory_order_acquire) };
}

/* The stream of that record; -1 when there was none. */
static int32_t recorded_in(struct wg_before b, uint64_t *seq)
{
	uint32_t stream = (uint32_t)(b.seq >> 48) - 1;

	*seq = b.seq & 0xffffffffffffull;
	return b.where && b.seq != NEVER && stream < wg_q.nstreams ? (int32_t)stream : -1;
}

/*
 * If it was recorded again meanwhile, that may have been before the wait really began, in another
 * stream: the wait was then for that record and proves nothing of this one.
 */
void wg_event_proven(struct wg_before b)
{
	uint64_t seq;
	int32_t i = recorded_in(b, &seq);

	if (i < 0 || b.where > wg_q.nevents ||
	    atomic_load_explicit(&where[b.where - 1], memory_order_acquire) != b.seq)
		return;
	wg_max64(&wg_stream_at(i)->proven, seq, NULL);
}

struct wg_before wg_event_await(uint64_t event)
{
	struct wg_before b = wg_event_before(event);
	uint64_t seq;
	int32_t i = recorded_in(b, &seq);

	if (i >= 0 && seq > __atomic_load_n(&wg_stream_at(i)->marked, __ATOMIC_RELAXED))
		wg_position_mark_worth(i, true, WG_WORTH_IT, 0);
	return b;
}

void wg_event_poll(struct wg_before b, uint64_t began_ticks)
{
	uint64_t seq;
	int32_t i = recorded_in(b, &seq);

	if (i >= 0 && seq > __atomic_load_n(&wg_stream_at(i)->marked, __ATOMIC_RELAXED))
		wg_position_poll(i, began_ticks);
}

void wg_event_destroyed(uint64_t event)
{
	int32_t at = find(event);

	if (at < 0)
		return;
	atomic_store(&where[at], NEVER);
	__atomic_store_n(&wg_q.events[at].handle, 1, __ATOMIC_RELEASE);
}

void wg_events_start(void)
{
	uint64_t capacity = 0;

	wg_q.events = wg_rec_section(WGREC_EVENTS, &capacity);
	if (capacity > MAX_EVENTS)
		capacity = 0; /* readers hash by the section's capacity: ours must be the same */
	/* Hashed: all of it may be touched. */
	if (!capacity || (capacity & (capacity - 1)) || !wg_rec_use(WGREC_EVENTS, capacity))
		wg_q.events = NULL;
	mask = (uint32_t)capacity - 1;
	wg_q.nevents = (uint32_t)capacity;
}

void wg_events_fork_child(void)
{
	memset((void *)where, 0, sizeof(where));
	mask = 0;
}
