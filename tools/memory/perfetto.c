/* SPDX-License-Identifier: Apache-2.0 */
/*
 * perfetto.c - TrackEvent protobuf: counters of what is held and what is free, failures as
 * instants, long waits as slices of their threads. The wire format is a few lines, so it is
 * written by hand; field numbers are those of perfetto/trace/trace_packet.proto and
 * track_event/{track_event,track_descriptor,counter_descriptor,debug_annotation}.proto.
 */
#include "export.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct pb { /* a message being built */
	uint8_t *p;
	size_t n, cap;
};

static void raw(struct pb *m, const void *p, size_t n)
{
	if (m->n + n > m->cap) {
		m->cap = 2 * (m->n + n) + 64;
		m->p = realloc(m->p, m->cap);
		if (!m->p)
			abort();
	}
	memcpy(m->p + m->n, p, n);
	m->n += n;
}

static void varint(struct pb *m, uint64_t v)
{
	uint8_t b[10];
	size_t n = 0;

	for (; v >= 0x80; v >>= 7)
		b[n++] = (uint8_t)(v | 0x80);
	b[n++] = (uint8_t)v;
	raw(m, b, n);
}

static void number(struct pb *m, unsigned int field, uint64_t v)
{
	varint(m, (uint64_t)field << 3);
	varint(m, v);
}

static void bytes(struct pb *m, unsigned int field, const void *p, size_t n)
{
	varint(m, (uint64_t)field << 3 | 2);
	varint(m, n);
	raw(m, p, n);
}

static void text(struct pb *m, unsigned int field, const char *s)
{
	if (s)
		bytes(m, field, s, strlen(s));
}

static void message(struct pb *m, unsigned int field, struct pb *inner)
{
	bytes(m, field, inner->p ? inner->p : (uint8_t *)"", inner->n);
	free(inner->p);
	memset(inner, 0, sizeof(*inner));
}

enum { SLICE_BEGIN = 1, SLICE_END, INSTANT, COUNTER };

struct writer {
	FILE *out;
	struct wgm_analysis *a;
	uint64_t process;	/* uuid of the process' track */
	uint64_t threads[4096]; /* tids that have a track */
	size_t nthreads;
	uint64_t last_own[WGTR_DEVICES];
	bool counters[WGTR_DEVICES][2];
};

static void packet(struct writer *w, struct pb *m)
{
	struct pb trace = { 0 };

	number(m, 10, 1); /* trusted_packet_sequence_id */
	message(&trace, 1, m);
	fwrite(trace.p, 1, trace.n, w->out);
	free(trace.p);
}

static uint64_t uuid(const struct writer *w, uint64_t what)
{
	return (w->process ^ what * 0x9e3779b97f4a7c15ull) | 1;
}

static void process_track(struct writer *w)
{
	const struct wgm_trace *t = w->a->t;
	struct pb m = { 0 }, track = { 0 }, process = { 0 };

	number(&process, 1, t->h.pid);
	text(&process, 6, wg_fmt(t->arena, "%s%.60s", t->h.rank >= 0 ?
				 wg_fmt(t->arena, "rank %d: ", t->h.rank) : "",
				 wg_str(t->arena, t->h.command)));
	number(&track, 1, w->process);
	message(&track, 3, &process);
	message(&m, 60, &track);
	packet(w, &m);
}

static uint64_t counter_track(struct writer *w, int device, bool is_free)
{
	uint64_t id = uuid(w, 0x10000u + (uint64_t)device * 2 + is_free);
	struct pb m = { 0 }, track = { 0 }, counter = { 0 };

	if (w->counters[device][is_free])
		return id;
	w->counters[device][is_free] = true;
	number(&counter, 3, 3); /* UNIT_SIZE_BYTES */
	number(&track, 1, id);
	text(&track, 2, wg_fmt(w->a->t->arena, "GPU %d memory %s", device,
			       is_free ? "free" : "held by this process"));
	number(&track, 5, w->process);
	message(&track, 8, &counter);
	message(&m, 60, &track);
	packet(w, &m);
	return id;
}

static uint64_t thread_track(struct writer *w, uint32_t tid)
{
	uint64_t id = uuid(w, 0x1000000u + tid);
	struct pb m = { 0 }, track = { 0 }, thread = { 0 };

	for (size_t i = 0; i < w->nthreads; i++)
		if (w->threads[i] == tid)
			return id;
	if (w->nthreads < sizeof(w->threads) / sizeof(w->threads[0]))
		w->threads[w->nthreads++] = tid;
	number(&thread, 1, w->a->t->h.pid);
	number(&thread, 2, tid);
	text(&thread, 5, wgm_thread_name(w->a->t, tid));
	number(&track, 1, id);
	number(&track, 5, w->process);
	message(&track, 4, &thread);
	message(&m, 60, &track);
	packet(w, &m);
	return id;
}

static void track_event(struct writer *w, uint64_t ticks, int type, uint64_t track,
			const char *category, const char *name, struct pb *notes, uint64_t value)
{
	struct pb m = { 0 }, e = { 0 };

	number(&m, 8, wgm_mono_ns(w->a->t, ticks));
	number(&m, 58, 3); /* timestamp_clock_id: MONOTONIC */
	number(&e, 9, (uint64_t)type);
	number(&e, 11, track);
	text(&e, 22, category);
	text(&e, 23, name);
	if (type == COUNTER)
		number(&e, 30, value);
	if (notes && notes->n) {
		raw(&e, notes->p, notes->n);
		free(notes->p);
		memset(notes, 0, sizeof(*notes));
	}
	message(&m, 11, &e);
	packet(w, &m);
}

static void note_number(struct pb *notes, const char *name, uint64_t v)
{
	struct pb a = { 0 };

	if (v == WGM_NONE)
		return;
	text(&a, 10, name);
	number(&a, 3, v);
	message(notes, 4, &a);
}

static void note_text(struct pb *notes, const char *name, const char *v)
{
	struct pb a = { 0 };

	if (!v)
		return;
	text(&a, 10, name);
	text(&a, 6, v);
	message(notes, 4, &a);
}

static void on_block(void *arg, const struct wgm_block *b)
{
	struct writer *w = arg;
	struct pb notes = { 0 };

	if (b->device < 0 || b->own == WGM_NONE)
		return;
	if (b->own != w->last_own[b->device]) {
		w->last_own[b->device] = b->own;
		track_event(w, b->at, COUNTER, counter_track(w, b->device, false), NULL, NULL, NULL,
			    b->own);
	}
	if (b->from_before || b->size < 1u << 20)
		return; /* small ones only as a level */
	if (b->site)
		wgm_attribute(w->a, (struct wgm_site *)b->site);
	note_number(&notes, "bytes", b->size);
	note_number(&notes, "address", b->addr);
	note_text(&notes, "site", b->site ? b->site->text : NULL);
	note_text(&notes, "library", b->site ? b->site->library : NULL);
	track_event(w, b->at, INSTANT, thread_track(w, b->tid), "memory", b->is_free ? "free" : "alloc",
		    &notes, 0);
}

static void on_event(void *arg, const struct wgm_event *e, double at_s)
{
	struct writer *w = arg;
	struct wgm_trace *t = w->a->t;

	(void)at_s;
	if (e->tag == WGTR_E_SAMPLE && e->v[0] < WGTR_DEVICES) {
		track_event(w, e->at, COUNTER, counter_track(w, (int)e->v[0], true), NULL, NULL, NULL,
			    e->v[1]);
	} else if (e->tag == WGTR_E_WAIT) {
		uint64_t track = thread_track(w, e->tid);

		track_event(w, e->v[3], SLICE_BEGIN, track, "wait",
			    wgm_function(t, (uint32_t)e->v[0]), NULL, 0);
		track_event(w, e->v[3] + e->v[4], SLICE_END, track, NULL, NULL, NULL, 0);
	} else if (e->tag == WGTR_E_COLLECTIVE) {
		struct pb notes = { 0 };

		note_text(&notes, "communicator",
			  e->v[0] < t->nstrings ? t->strings[e->v[0]] : NULL);
		note_number(&notes, "sequence", e->v[2]);
		note_number(&notes, "count", e->v[4]);
		track_event(w, e->at, INSTANT, thread_track(w, e->tid), "collective",
			    wgm_function(t, (uint32_t)e->v[3]), &notes, 0);
	} else if (e->tag == WGTR_E_MODULE) {
		struct pb notes = { 0 };

		note_number(&notes, "bytes", e->v[2]);
		track_event(w, e->at, INSTANT, thread_track(w, e->tid), "module",
			    wgm_function(t, (uint32_t)e->v[0]), &notes, 0);
	}
}

static void on_failure(struct writer *w, const struct wgm_failure *f)
{
	struct wgm_trace *t = w->a->t;
	struct pb notes = { 0 };

	note_number(&notes, "asked", f->asked);
	note_number(&notes, "free", f->free);
	note_number(&notes, "short_by", wgm_short_by(f));
	note_text(&notes, "recovered", f->recovered ? "yes" : "no");
	for (uint32_t i = 0; i < f->npy; i++)
		note_text(&notes, wg_fmt(t->arena, "python %u", i),
			  wg_fmt(t->arena, "%s (%s:%u)", f->py[i].function, f->py[i].file,
				 f->py[i].line));
	track_event(w, f->at, INSTANT, thread_track(w, f->tid), "failure",
		    wg_fmt(t->arena, "%s failed: %s asked", wgm_function(t, f->fn),
			   wgm_size(f->asked)), &notes, 0);
}

int wgm_write_perfetto(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end)
{
	struct writer *w = calloc(1, sizeof(*w));
	int err = 0;

	(void)path;
	(void)end;
	if (!w)
		abort();
	for (size_t i = 0; i < n && !err; i++) {
		struct wgm_watch watch = { w, on_block, on_event };

		memset(w, 0, sizeof(*w));
		w->out = out;
		w->a = all[i];
		w->process = (i + 1) << 40 | all[i]->t->h.pid;
		process_track(w);
		if (!wgm_replay(all[i]->t, &watch))
			err = -EBADMSG;
		for (size_t k = 0; k < all[i]->t->failures.n; k++)
			on_failure(w, &all[i]->t->failures.v[k]);
	}
	free(w);
	return err;
}
