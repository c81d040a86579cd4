/* SPDX-License-Identifier: Apache-2.0 */
/* recorder_streams.c - what streams were given and how far the GPU has come. */
#include "recorder_priv.h"

#include <stdlib.h>
#include <string.h>

#define MAX_STREAMS 4096
#define MAX_PENDING_HEAD 64    /* unfinished items kept from the oldest on ... */
#define MAX_CANDIDATES 256     /* ... and all of those that may be the running one */
#define MAX_PENDING_NOTABLE 64 /* ... and of those behind, the ones that can wait for something */

/* ---- streams ------------------------------------------------------------------------ */

/*
 * How far the GPU has come. The word is the low half of a position that grows: of all
 * numbers with that low half the one nearest to the newest mark is meant (it may have moved
 * on since the mark was read, so it can lie on either side).
 */
uint64_t wg_rec_reached(const struct wg_rec *r, const struct wgrec_stream *e, bool *has_position)
{
	uint64_t done = e->proven > e->seen ? e->proven : e->seen;
	uint32_t word;

	if (done < e->first) /* of an earlier stream that had this entry */
		done = e->first;

	*has_position = false;
	if (r->h.flags & WGREC_F_POSITIONS && e->position != UINT32_MAX && e->marked &&
	    wg_rec_entry(r, WGREC_POSITIONS, e->position, &word, sizeof(word))) {
		int32_t off = (int32_t)(word - (uint32_t)e->marked);
		uint64_t at = e->marked + (uint64_t)(int64_t)off;

		/* Never written yet: the word is 0 and the sum would be below zero. */
		if (off < 0 && -(uint64_t)(int64_t)off > e->marked)
			at = 0;
		if (at <= e->enqueued) {
			*has_position = true;
			if (at > done)
				done = at;
		}
	}
	return done < e->enqueued ? done : e->enqueued;
}

static int item_by_seq(const void *a, const void *b)
{
	const struct wgrec_item *x = a, *y = b;

	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* The ring of one stream, sorted, without slots that changed between two reads. */
static size_t load_items(const struct wg_rec *r, const struct wgrec_stream *e,
			 struct wgrec_item *out)
{
	static _Thread_local struct wgrec_item again[WGREC_STREAM_ITEMS];
	const struct wg_rec_sec *s = &r->sec[WGREC_ITEMS];
	uint64_t offset, bytes = WGREC_STREAM_ITEMS * sizeof(*out);
	size_t n = 0;

	if (s->entry_size != sizeof(*out) || e->items_first >= s->capacity ||
	    s->capacity - e->items_first < WGREC_STREAM_ITEMS)
		return 0;
	offset = s->offset + (uint64_t)e->items_first * s->entry_size;
	if (wg_rec_read_at(r, out, bytes, offset) != bytes ||
	    wg_rec_read_at(r, again, bytes, offset) != bytes)
		return 0;
	for (size_t i = 0; i < WGREC_STREAM_ITEMS; i++)
		if (out[i].seq && !memcmp(&out[i], &again[i], sizeof(again[i])))
			out[n++] = out[i];
	qsort(out, n, sizeof(*out), item_by_seq);
	return n;
}

static bool notable(uint16_t op)
{
	return op == WGREC_OP_HOSTFN || op == WGREC_OP_WAIT_EVENT || op == WGREC_OP_WAIT_VALUE ||
	       op == WGREC_OP_COLLECTIVE || op == WGREC_OP_RECORD_EVENT ||
	       op == WGREC_OP_WRITE_VALUE;
}

static void add_item(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
		     struct wg_stream *s, const struct wgrec_item *e, struct wg_mem *m,
		     struct wg_symbols *sym)
{
	struct wg_gpu_item *x = wg_add_gpu_item(f, s);
	struct wgrec_stream other;
	struct wgrec_event ev;

	x->seq = e->seq;
	x->op = e->op <= WG_GPU_MARK ? (enum wg_gpu_op)e->op : WG_GPU_OTHER;
	x->name = wg_rec_string_at(r, e->name);
	x->object = e->object;
	x->value = e->value;
	x->flags = e->flags & 0xff;
	x->nccl_inner = e->flags & WGREC_ITEMF_NCCL && e->op != WGREC_OP_COLLECTIVE;
	x->age_s = wg_rec_age(r, e->at);
	x->tid = wg_rec_tid_of(p, e->tid);
	switch (x->op) {
	case WG_GPU_WAIT_EVENT:
		x->value = 0;
		x->event_remote =
			e->flags & 1 || (wg_rec_find_event(r, e->object, &ev) && ev.flags & 1);
		x->flags = 0;
		if (e->value && e->other != UINT32_MAX &&
		    wg_rec_entry(r, WGREC_STREAMS, e->other, &other, sizeof(other))) {
			x->event_recorded = true;
			x->event_seq = e->value;
			x->event_stream = other.handle;
			x->event_device = other.device;
			if (e->other < r->nstream_ix)
				x->event_stream_ix = r->stream_ix[e->other];
		}
		break;
	case WG_GPU_WAIT_VALUE: {
		uint64_t v = 0;
		bool wide = e->flags & WGREC_ITEMF_64 || e->value > UINT32_MAX;
		size_t n = wide ? 8 : 4;

		if (m && !wg_mem_read(m, e->object, &v, n)) {
			x->current = v;
			x->has_current = true;
		}
		break;
	}
	case WG_GPU_COLLECTIVE:
		x->value = 0;
		x->coll_seq = e->value;
		x->p2p = e->flags & WGREC_ITEMF_P2P;
		if (e->other < r->ncomm_ix)
			x->comm = r->comm_ix[e->other];
		break;
	case WG_GPU_HOSTFN:
		if (!x->name && sym && e->object) {
			struct wg_frame fr = {.line = WG_NO_INT};

			wg_symbols_frame(sym, f, e->object, false, &fr);
			x->name = fr.symbol;
		}
		break;
	default:
		break;
	}
}

/* What only the first look could read (memory, symbols) still holds for the same item. */
static void keep_known(struct wg_stream *s, const struct wg_stream *before)
{
	struct wg_gpu_item *x = &s->pending.v[s->pending.n - 1];

	for (size_t i = 0; i < before->pending.n; i++) {
		const struct wg_gpu_item *b = &before->pending.v[i];

		if (b->seq != x->seq)
			continue;
		if (!x->name)
			x->name = b->name;
		if (!x->has_current && b->has_current) {
			x->has_current = true;
			x->current = b->current;
		}
		return;
	}
}

/*
 * Is the first unfinished thing certainly what the GPU is at? The word says what has been
 * passed. Only when the next write stands behind one thing has it not been passed; otherwise
 * it, and what follows up to the next write, may be done as well: *window counts these. What
 * one NCCL call gave (its own kernels, then the collectives that they are) is one thing here,
 * and what ends when it is reached (an event's record) is none.
 */
static bool exact(const struct wgrec_stream *e, uint64_t done, const struct wgrec_item *items,
		  size_t n, uint64_t *window)
{
	size_t things = 0;
	bool inner = false;

	*window = 0;
	for (size_t i = 0; i < n && items[i].seq == done + 1 + i; i++) {
		const struct wgrec_item *it = &items[i];
		bool collective = it->flags & WGREC_ITEMF_NCCL || it->op == WGREC_OP_COLLECTIVE;

		if (it->op != WGREC_OP_RECORD_EVENT && it->op != WGREC_OP_WRITE_VALUE)
			things += !(collective && inner);
		inner = collective;
		if (it->flags & WGREC_ITEMF_MARKED || e->marked == it->seq) {
			*window = i + 1;
			return things <= 1;
		}
	}
	return false;
}

/*
 * A thread that set out to synchronise when one item was left spends no write on it: while it
 * is still in there, that item is not done. Needs the threads' calls in flight.
 */
void wg_rec_awaited(struct wg_process *p, struct wg_rec *r)
{
	for (uint64_t i = 0; i < r->nstream_ix; i++) {
		struct wgrec_stream e;
		struct wg_stream *s;

		if (r->stream_ix[i] == WG_NO_INT)
			continue;
		s = &p->streams.v[r->stream_ix[i]];
		wg_rec_entry(r, WGREC_STREAMS, i, &e, sizeof(e));
		if (!e.awaited || e.proven >= e.awaited || s->completed + 1 != e.awaited ||
		    s->completed >= s->enqueued || s->pending_truncated)
			continue;
		for (size_t t = 0; t < p->threads.n && !s->completed_exact; t++)
			for (size_t k = 0; k < p->threads.v[t].calls.n; k++) {
				const struct wg_call *c = &p->threads.v[t].calls.v[k];

				bool here = c->has_stream    ? c->stream == s->handle :
					    c->event_known ? c->event_stream == s->handle :
							     true; /* of all streams */

				if ((c->kind == WG_CALL_SYNC || c->kind == WG_CALL_COPY) && here)
					s->completed_exact = true;
			}
	}
}

void wg_rec_fill_streams(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
			 struct wg_mem *m, struct wg_symbols *sym)
{
	struct wgrec_item *items = malloc(sizeof(*items) * WGREC_STREAM_ITEMS);
	__typeof__(p->streams) before = p->streams; /* of the first sample; stays in the arena */
	int64_t *before_ix = r->stream_ix;
	uint64_t nbefore = r->nstream_ix, n, skipped = 0;

	memset(&p->streams, 0, sizeof(p->streams));
	/* Positions before streams: then no position is ahead of what was given. */
	wg_rec_load(r, WGREC_POSITIONS);
	wg_rec_load(r, WGREC_STREAMS);
	n = r->sec[WGREC_STREAMS].n;
	r->stream_ix = malloc((n + 1) * sizeof(*r->stream_ix));
	r->nstream_ix = r->stream_ix ? n : 0;
	/* Two passes: items name streams that stand later in the table. */
	for (uint64_t i = 0; i < r->nstream_ix; i++) {
		struct wgrec_stream e;
		bool pos;

		wg_rec_entry(r, WGREC_STREAMS, i, &e, sizeof(e));
		r->stream_ix[i] = WG_NO_INT;
		if (!e.valid || (e.valid != 1 && wg_rec_reached(r, &e, &pos) >= e.enqueued))
			continue; /* free, or destroyed with all its work done */
		if (p->streams.n >= MAX_STREAMS) {
			skipped++;
			continue;
		}
		r->stream_ix[i] = (int64_t)p->streams.n;
		wg_add_stream(f, p);
	}
	for (uint64_t i = 0; items && i < r->nstream_ix; i++) {
		struct wgrec_stream e;
		struct wg_stream *s;
		size_t k, head = 0, rest = 0, nitems;

		if (r->stream_ix[i] == WG_NO_INT)
			continue;
		s = &p->streams.v[r->stream_ix[i]];
		wg_rec_entry(r, WGREC_STREAMS, i, &e, sizeof(e));
		s->device = e.device >= 0 ? e.device : WG_NO_INT;
		s->handle = e.handle == 1 ? 0 : e.handle;
		s->owner_tid = e.owner_tid ? wg_rec_tid_of(p, e.owner_tid) : 0;
		s->flags = e.flags;
		s->enqueued = e.enqueued;
		s->completed = wg_rec_reached(r, &e, &s->has_position);
		s->capturing = e.capturing != 0;
		/* seen_at is the helper's stamp; a position that moved since is younger. */
		s->progress_age_s = s->completed > e.seen ? 0 : wg_rec_age(r, e.seen_at);
		if (e.longest_gap)
			s->longest_gap_s = wg_rec_span(r, e.longest_gap);
		if (r->first_done && i < r->nfirst) {
			if (s->completed >= r->first[i].completed)
				s->completed_delta = s->completed - r->first[i].completed;
			if (s->enqueued >= r->first[i].enqueued)
				s->enqueued_delta = s->enqueued - r->first[i].enqueued;
			if (s->completed_delta)
				s->progress_age_s = 0;
		}
		if (s->completed >= s->enqueued)
			continue;
		nitems = load_items(r, &e, items);
		for (k = 0; k < nitems && items[k].seq <= s->completed; k++)
			;
		s->pending_truncated = k == nitems || items[k].seq != s->completed + 1;
		s->completed_exact = s->has_position && !s->pending_truncated &&
				     exact(&e, s->completed, items + k, nitems - k, &s->candidates);
		if (s->completed_exact || s->candidates > MAX_CANDIDATES)
			s->candidates = 0;
		for (; k < nitems && items[k].seq <= e.enqueued; k++) {
			if (head < MAX_PENDING_HEAD || head < s->candidates)
				head++;
			else if (notable(items[k].op) && rest < MAX_PENDING_NOTABLE)
				rest++;
			else
				continue;
			add_item(f, p, r, s, &items[k], m, sym);
			if (i < nbefore && before_ix[i] != WG_NO_INT)
				keep_known(s, &before.v[before_ix[i]]);
		}
	}
	free(before_ix);
	free(items);
	if (skipped)
		wg_add_missing(f, p, "streams",
			       wg_fmt(f->arena, "%llu more than %d are left out",
				      (unsigned long long)skipped, MAX_STREAMS),
			       NULL);
}
