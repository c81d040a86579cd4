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
	int32_t at, i;
	uint64_t seq;

	if (wg_unlikely(!wg_q.streams))
		return;
	seq = wg_stream_give(s, WGREC_OP_RECORD_EVENT, event, 0, 0);
	at = find_or_add(event, 0);
	if (at < 0)
		return;
	i = seq ? wg_slot_find(s, false) : -1;
	/* Captured (or unrecorded): nothing outside its graph waits for it. */
	if (i < 0) {
		atomic_store(&where[at], NEVER);
		__atomic_store_n(&wg_q.events[at].stream, UINT32_MAX, __ATOMIC_RELEASE);
		return;
	}
	atomic_store_explicit(&where[at], (uint64_t)(i + 1) << 48 | (seq & 0xffffffffffffull),
			      memory_order_release);
	wg_q.events[at].seq = seq;
	wg_q.events[at].at = wg_ticks();
	__atomic_store_n(&wg_q.events[at].stream, (uint32_t)i, __ATOMIC_RELEASE);
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

void wg_event_synced_since(uint64_t event, uint64_t began_ticks)
{
	uint32_t stream = UINT32_MAX;
	uint64_t seq = 0;
	uint16_t flags = 0;
	int32_t at;

	if (wg_unlikely(!wg_q.streams))
		return;
	/* The stamp first: a record that comes between makes the pair newer, never the stamp. */
	at = find(event);
	if (at < 0)
		return;
	wg_event_where(event, &stream, &seq, &flags);
	if (stream >= wg_q.nstreams || wg_stream_done(stream) >= seq)
		return;
	if (wg_slots[stream].ring != UINT32_MAX) {
		/* The record's own item carries the stamp that belongs to exactly this record. */
		struct wgrec_item *it =
			&wg_q.items[wg_slots[stream].ring + seq % WGREC_STREAM_ITEMS];

		if (__atomic_load_n(&it->seq, __ATOMIC_ACQUIRE) != seq || it->at > began_ticks)
			return;
		wg_max64(&wg_stream_at((int32_t)stream)->proven, seq, NULL);
	}
}

void wg_event_synced(uint64_t event)
{
	struct wgrec_thread *t = wg_rec_thread();
	uint32_t depth = t ? t->depth : 0;

	if (!depth)
		return;
	if (depth > WGREC_DEPTH)
		depth = WGREC_DEPTH; /* an outer call began earlier: proves less, never too much */
	wg_event_synced_since(event, t->calls[depth - 1].since);
}

/* The stream of its last record, when a write does not stand behind that yet; -1. */
static int32_t uncovered(uint64_t event)
{
	uint32_t stream = UINT32_MAX;
	uint64_t seq = 0;
	uint16_t flags = 0;

	if (wg_unlikely(!wg_q.streams))
		return -1;
	wg_event_where(event, &stream, &seq, &flags);
	return stream < wg_q.nstreams && seq > wg_stream_at((int32_t)stream)->marked ?
		       (int32_t)stream :
		       -1;
}

void wg_event_mark(uint64_t event)
{
	int32_t i = uncovered(event);

	if (i >= 0)
		wg_position_mark(i, true);
}

void wg_event_poll(uint64_t event)
{
	int32_t i = uncovered(event);

	if (i >= 0)
		wg_position_poll(i);
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
