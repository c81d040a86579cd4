/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - waitgraph-mem/1. What the trace does not tell is absent, never 0. */
#include "print.h"

#include <math.h>

static void put_bytes(json_t *o, const char *key, uint64_t v)
{
	if (v != WGM_NONE && v <= INT64_MAX)
		json_object_set_new(o, key, json_integer((json_int_t)v));
}

static void put_time(json_t *o, const char *key, double s)
{
	if (isfinite(s))
		json_object_set_new(o, key, json_real(round(s * 1e6) / 1e6));
}

static void put_text(json_t *o, const char *key, const char *s)
{
	if (s)
		json_object_set_new(o, key, json_string(s));
}

json_t *wgm_json_stack(const struct wgm_frame *f, size_t n)
{
	json_t *all = json_array();

	for (size_t i = 0; i < n; i++) {
		json_t *o = json_object();

		put_text(o, "module", f[i].path);
		put_text(o, "symbol", f[i].symbol);
		put_bytes(o, "offset", f[i].library ? f[i].offset : f[i].pc);
		put_text(o, "file", f[i].file);
		if (f[i].line)
			put_bytes(o, "line", f[i].line);
		json_array_append_new(all, o);
	}
	return all;
}

static json_t *python(const struct wgm_pyline *p, uint32_t n)
{
	json_t *all = json_array();

	for (uint32_t i = 0; i < n; i++) {
		json_t *l = json_object();

		put_text(l, "function", p[i].function);
		put_text(l, "file", p[i].file);
		if (p[i].line)
			put_bytes(l, "line", p[i].line);
		json_array_append_new(all, l);
	}
	return all;
}

static json_t *failure(struct wgm_analysis *a, const struct wgm_failure *f)
{
	json_t *o = json_object();
	size_t n;
	const struct wgm_frame *frames = wgm_frames(a->t, &f->stack, &n);
	int caller = wgm_caller(frames, n);

	put_time(o, "at_s", wgm_seconds(a->t, f->at));
	put_bytes(o, "tid", f->tid);
	put_text(o, "thread_name", *f->thread ? f->thread : NULL);
	put_text(o, "function", wgm_function(a->t, f->fn));
	put_text(o, "kind", wgm_kind(f->kind));
	if (f->asked) /* a context, a module: nobody knows */
		put_bytes(o, "asked", f->asked);
	put_bytes(o, "free", f->free);
	put_bytes(o, "total", f->total);
	put_bytes(o, "short_by", wgm_short_by(f));
	put_bytes(o, "own", f->own);
	if (f->pieces > 1)
		put_bytes(o, "pieces", f->pieces);
	put_bytes(o, "repeats", f->repeats);
	json_object_set_new(o, "recovered", json_boolean(f->recovered));
	put_bytes(o, "error", (uint64_t)f->error);
	if (caller >= 0)
		put_text(o, "library", frames[caller].library);
	if (f->holders.n) {
		json_t *held = json_array(), *x;

		for (size_t i = 0; i < f->holders.n; i++) {
			json_array_append_new(held, x = json_object());
			put_text(x, "library", f->holders.v[i].library);
			put_bytes(x, "bytes", f->holders.v[i].bytes);
		}
		json_object_set_new(o, "held_by_library", held);
	}
	json_object_set_new(o, "stack", wgm_json_stack(frames, n));
	json_object_set_new(o, "python_stack", python(f->py, f->npy));
	return o;
}

static json_t *site(const struct wgm_trace *t, const struct wgm_site *s)
{
	json_t *o = json_object();

	put_text(o, "site", s->text);
	put_text(o, "library", s->library);
	put_text(o, "kind", wgm_kind(s->raw->kind - 1u));
	json_object_set_new(o, "stack", wgm_json_stack(s->frames, s->nframes));
	if (s->id < t->npython && t->python[s->id].n) /* of its first allocation */
		json_object_set_new(o, "first_python_stack",
				    python(t->python[s->id].v, t->python[s->id].n));
	put_bytes(o, "live_at_peak", s->live_at_peak);
	put_bytes(o, "live_at_end", s->live_at_end);
	put_bytes(o, "allocations", s->allocations);
	put_bytes(o, "frees", s->frees);
	put_bytes(o, "total_allocated", s->total);
	return o;
}

static json_t *device(struct wgm_analysis *a, const struct wgm_device *d)
{
	json_t *o = json_object(), *list, *x;

	put_bytes(o, "index", (uint64_t)d->index);
	put_text(o, "uuid", d->uuid);
	put_text(o, "name", *d->raw->name ? wg_str(a->t->arena, d->raw->name) : NULL);
	put_bytes(o, "total", d->total);
	put_bytes(o, "peak_own", d->peak_own);
	put_time(o, "peak_at_s", d->peak_at_s);
	put_bytes(o, "least_free", d->least_free);
	put_time(o, "least_free_at_s", d->least_free_at_s);
	put_bytes(o, "own_at_end", d->own_at_end);
	put_bytes(o, "live_at_end", d->live_at_end);
	put_bytes(o, "allocations", d->allocations);
	put_bytes(o, "frees", d->frees);
	put_bytes(o, "reserved_at_peak", d->reserved_at_peak);
	put_bytes(o, "context_and_modules", d->context_and_modules);
	put_bytes(o, "not_recorded_here", d->unaccounted);
	if (d->managed_peak) {
		put_bytes(o, "managed_peak", d->managed_peak);
		put_bytes(o, "managed_at_end", d->managed_at_end);
	}
	json_object_set_new(o, "peak_exact", json_boolean(d->peak_exact));
	json_object_set_new(o, "other_processes", list = json_array());
	for (size_t i = 0; i < d->others.n; i++) {
		json_array_append_new(list, x = json_object());
		put_bytes(x, "pid", d->others.v[i].pid);
		put_bytes(x, "bytes", d->others.v[i].bytes);
	}
	json_object_set_new(o, "failures", list = json_array());
	for (size_t i = 0; i < d->failures.n; i++)
		json_array_append_new(list, failure(a, d->failures.v[i]));
	json_object_set_new(o, "by_library", list = json_array());
	for (size_t i = 0; i < d->libraries.n; i++) {
		const struct wgm_library *l = &d->libraries.v[i];

		json_array_append_new(list, x = json_object());
		put_text(x, "library", l->library);
		put_bytes(x, "live_at_peak", l->live_at_peak);
		put_bytes(x, "live_at_end", l->live_at_end);
		put_bytes(x, "allocations", l->allocations);
		put_bytes(x, "frees", l->frees);
	}
	json_object_set_new(o, "by_site", list = json_array());
	for (size_t i = 0; i < d->sites.n; i++)
		json_array_append_new(list, site(a->t, d->sites.v[i]));
	json_object_set_new(o, "growing", list = json_array());
	for (size_t i = 0; i < d->growing.n; i++) {
		const struct wgm_growth *g = &d->growing.v[i];

		json_array_append_new(list, x = json_object());
		put_text(x, "site", g->site->text);
		put_text(x, "library", g->site->library);
		put_time(x, "bytes_per_s", g->bytes_per_s);
		put_bytes(x, "live_at_end", g->live_at_end);
	}
	json_object_set_new(o, "fragmentation", x = json_object());
	put_bytes(x, "free", d->fragmentation.free);
	if (d->fragmentation.free != WGM_NONE)
		put_time(x, "free_at_s", wgm_seconds(a->t, d->raw->free_at));
	put_bytes(x, "largest_possible", d->fragmentation.largest_possible);
	if (d->fragmentation.bound)
		json_object_set_new(x, "largest_possible_is", json_string("upper bound"));
	put_bytes(x, "reserved_unused", d->fragmentation.reserved_unused);
	put_bytes(x, "address_space_reserved", d->fragmentation.address_space_reserved);
	return o;
}

static json_t *trace(struct wgm_analysis *a)
{
	const struct wgm_trace *t = a->t;
	json_t *o = json_object(), *list, *x;

	put_text(o, "path", t->path);
	put_text(o, "host", wg_str(t->arena, t->h.host));
	put_bytes(o, "pid", t->h.pid);
	put_bytes(o, "start", t->h.start_ticks);
	if (t->h.rank >= 0)
		put_bytes(o, "rank", (uint64_t)t->h.rank);
	put_text(o, "command", wg_str(t->arena, t->h.command));
	json_object_set_new(o, "complete", json_boolean(a->complete));
	put_bytes(o, "events", t->events + t->h.folded_events);
	put_bytes(o, "lost_events", t->lost);
	put_bytes(o, "folded_events", t->h.folded_events);
	put_time(o, "detail_from_s", a->whole_from_s);
	put_time(o, "begin_s", a->begin_s);
	put_time(o, "duration_s", a->duration_s);
	json_object_set_new(o, "devices", list = json_array());
	for (int i = 0; i < WGTR_DEVICES; i++)
		if (a->devices[i].used)
			json_array_append_new(list, device(a, &a->devices[i]));
	json_object_set_new(o, "host_pinned", x = json_object());
	put_bytes(x, "peak", a->host_peak);
	put_bytes(x, "live_at_end", a->host_at_end);
	if (t->notes.n) {
		json_object_set_new(o, "notes", list = json_array());
		for (size_t i = 0; i < t->notes.n; i++)
			json_array_append_new(list, json_string(t->notes.v[i]));
	}
	return o;
}

json_t *wgm_json(struct wgm_analysis **all, size_t n)
{
	json_t *o = json_object(), *traces = json_array();

	json_object_set_new(o, "schema", json_string("waitgraph-mem/1"));
	for (size_t i = 0; i < n; i++)
		json_array_append_new(traces, trace(all[i]));
	json_object_set_new(o, "traces", traces);
	return o;
}
