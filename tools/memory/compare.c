/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compare.c - see compare.h. A library or call site is the same in both runs when its text is:
 * addresses move from run to run, names do not.
 */
#include "compare.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static uint64_t amount(const struct wgm_pair *p, uint64_t peak, uint64_t end)
{
	return p->at_end || peak == WGM_NONE ? end : peak;
}

static struct wgm_change *entry(struct wgm_change **v, size_t *n, const char *name,
				const char *library)
{
	struct wgm_change *c;

	for (size_t i = 0; i < *n; i++)
		if (!strcmp((*v)[i].name, name) &&
		    !strcmp((*v)[i].library ? (*v)[i].library : "", library ? library : ""))
			return &(*v)[i];
	*v = realloc(*v, (*n + 1) * sizeof(**v));
	if (!*v)
		abort();
	c = &(*v)[(*n)++];
	memset(c, 0, sizeof(*c));
	c->name = name;
	c->library = library;
	return c;
}

static void gather(struct wgm_pair *p, const struct wgm_device *d, bool second)
{
	if (!d)
		return;
	for (size_t i = 0; i < d->libraries.n; i++) {
		const struct wgm_library *l = &d->libraries.v[i];
		struct wgm_change *c = entry(&p->libraries, &p->nlibraries, l->library, NULL);

		*(second ? &c->b : &c->a) += amount(p, l->live_at_peak, l->live_at_end);
		*(second ? &c->allocations_b : &c->allocations_a) += l->allocations;
	}
	for (size_t i = 0; i < d->sites.n; i++) {
		const struct wgm_site *s = d->sites.v[i];
		struct wgm_change *c = entry(&p->sites, &p->nsites, s->text, s->library);

		*(second ? &c->b : &c->a) += amount(p, s->live_at_peak, s->live_at_end);
		*(second ? &c->allocations_b : &c->allocations_a) += s->allocations;
	}
}

static int64_t delta(const struct wgm_change *c)
{
	return (int64_t)(c->b - c->a);
}

static int by_change(const void *a, const void *b)
{
	const struct wgm_change *x = a, *y = b;
	int64_t dx = llabs(delta(x)), dy = llabs(delta(y));

	if (dx != dy)
		return dx < dy ? 1 : -1;
	if (x->b != y->b)
		return x->b < y->b ? 1 : -1;
	return strcmp(x->name, y->name);
}

static void fill(struct wgm_pair *p)
{
	p->at_end = (p->da && !p->da->peak_exact && !p->da->raw->peak_snapshot_at) ||
		    (p->db && !p->db->peak_exact && !p->db->raw->peak_snapshot_at);
	gather(p, p->da, false);
	gather(p, p->db, true);
	if (p->nlibraries)
		qsort(p->libraries, p->nlibraries, sizeof(*p->libraries), by_change);
	if (p->nsites)
		qsort(p->sites, p->nsites, sizeof(*p->sites), by_change);
}

static int by_rank(const void *a, const void *b)
{
	const struct wgm_trace *x = (*(struct wgm_analysis *const *)a)->t;
	const struct wgm_trace *y = (*(struct wgm_analysis *const *)b)->t;

	if (x->h.rank != y->h.rank)
		return x->h.rank < y->h.rank ? -1 : 1;
	if (x->h.clock.real0_ns != y->h.clock.real0_ns)
		return x->h.clock.real0_ns < y->h.clock.real0_ns ? -1 : 1;
	return 0;
}

static void add(struct wgm_pair **out, size_t *n, struct wgm_analysis *a, struct wgm_analysis *b)
{
	for (int i = 0; i < WGTR_DEVICES; i++) {
		struct wgm_pair *p;

		if (!(a && a->devices[i].used) && !(b && b->devices[i].used))
			continue;
		*out = realloc(*out, (*n + 1) * sizeof(**out));
		if (!*out)
			abort();
		p = &(*out)[(*n)++];
		memset(p, 0, sizeof(*p));
		p->a = a;
		p->b = b;
		p->da = a && a->devices[i].used ? &a->devices[i] : NULL;
		p->db = b && b->devices[i].used ? &b->devices[i] : NULL;
		fill(p);
	}
}

size_t wgm_compare(struct wgm_analysis **a, size_t na, struct wgm_analysis **b, size_t nb,
		   struct wgm_pair **out)
{
	size_t i = 0, k = 0, n = 0;

	*out = NULL;
	qsort(a, na, sizeof(*a), by_rank);
	qsort(b, nb, sizeof(*b), by_rank);
	while (i < na || k < nb) {
		int32_t ra = i < na ? a[i]->t->h.rank : INT32_MAX;
		int32_t rb = k < nb ? b[k]->t->h.rank : INT32_MAX;

		if (i < na && k < nb && (ra == rb || (na == 1 && nb == 1)))
			add(out, &n, a[i++], b[k++]);
		else if (i < na && (k >= nb || ra < rb))
			add(out, &n, a[i++], NULL);
		else
			add(out, &n, NULL, b[k++]);
	}
	return n;
}

void wgm_compare_free(struct wgm_pair *pairs, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		free(pairs[i].libraries);
		free(pairs[i].sites);
	}
	free(pairs);
}

/* ---- text -------------------------------------------------------------------------- */

static const char *signed_size(struct wg_arena *m, int64_t d)
{
	return wg_fmt(m, "%s%s", d > 0 ? "+" : d < 0 ? "-" : "", wgm_size((uint64_t)llabs(d)));
}

static void line(FILE *out, struct wg_arena *m, const char *what, uint64_t a, uint64_t b)
{
	fprintf(out, "  %-34s%14s%14s%14s\n", what, wgm_size(a), wgm_size(b),
		a == WGM_NONE || b == WGM_NONE ? "" : signed_size(m, (int64_t)(b - a)));
}

static void table(FILE *out, struct wg_arena *m, const char *title, const struct wgm_change *v,
		  size_t n, unsigned int rows)
{
	unsigned int shown = 0;

	for (size_t i = 0; i < n && shown < rows; i++) {
		const char *name = v[i].library ?
			wg_fmt(m, "%s [%s]", v[i].name, v[i].library) : v[i].name;
		size_t width = strlen(name);

		if (!v[i].a && !v[i].b)
			continue;
		if (!shown++)
			fprintf(out, "\n  %-46s%14s%14s%14s\n", title, "A", "B", "change");
		fprintf(out, "    %-44.*s%14s%14s%14s\n", width > 44 ? 41 : 44, name, wgm_size(v[i].a),
			wgm_size(v[i].b), signed_size(m, delta(&v[i])));
	}
}

static uint64_t failures(const struct wgm_device *d)
{
	return d ? d->raw->failures : 0;
}

void wgm_compare_print(FILE *out, const struct wgm_pair *p, unsigned int rows)
{
	struct wg_arena *m = (p->a ? p->a : p->b)->t->arena;
	const struct wgm_device *da = p->da, *db = p->db;
	int32_t rank = (p->a ? p->a : p->b)->t->h.rank;
	int index = da ? da->index : db->index;

	if (!da || !db) {
		fprintf(out, "%sGPU %d: used in %s only (%s at its peak)\n",
			rank >= 0 ? wg_fmt(m, "rank %d, ", rank) : "", index, da ? "A" : "B",
			wgm_size(da ? da->peak_own : db->peak_own));
		return;
	}
	fputs(wg_fmt(m, "%sGPU %d: ", rank >= 0 ? wg_fmt(m, "rank %d, ", rank) : "", index), out);
	if (da->least_free != WGM_NONE && db->least_free != WGM_NONE && da->least_free != db->least_free)
		fprintf(out, "B left %s %s headroom than A", wgm_size((uint64_t)
			llabs((int64_t)(db->least_free - da->least_free))),
			db->least_free < da->least_free ? "less" : "more");
	else if (da->peak_own != db->peak_own)
		fprintf(out, "B held %s %s at its peak than A",
			wgm_size((uint64_t)llabs((int64_t)(db->peak_own - da->peak_own))),
			db->peak_own > da->peak_own ? "more" : "less");
	else
		fputs("no difference in the peak", out);
	if (p->nlibraries && delta(&p->libraries[0]))
		fprintf(out, "; most of all %s (%s)", p->libraries[0].name,
			signed_size(m, delta(&p->libraries[0])));
	fprintf(out, "\n\n  %-34s%14s%14s%14s\n", "", "A", "B", "change");
	line(out, m, "peak", da->peak_own, db->peak_own);
	line(out, m, "least headroom", da->least_free, db->least_free);
	line(out, m, "held at the end", da->own_at_end, db->own_at_end);
	line(out, m, "contexts and modules", da->context_and_modules, db->context_and_modules);
	line(out, m, "not recorded here (others)", da->unaccounted, db->unaccounted);
	fprintf(out, "  %-34s%14" PRIu64 "%14" PRIu64 "%+14" PRId64 "\n", "allocations",
		da->allocations, db->allocations, (int64_t)(db->allocations - da->allocations));
	fprintf(out, "  %-34s%14" PRIu64 "%14" PRIu64 "%+14" PRId64 "\n", "failed allocations",
		failures(da), failures(db), (int64_t)(failures(db) - failures(da)));
	table(out, m, p->at_end ? "by library, at the end" : "by library, at the peak",
	      p->libraries, p->nlibraries, rows);
	table(out, m, p->at_end ? "by call site, at the end" : "by call site, at the peak",
	      p->sites, p->nsites, rows);
}

/* ---- JSON --------------------------------------------------------------------------------- */

static void put(json_t *o, const char *key, uint64_t a, uint64_t b)
{
	json_t *x = json_object();

	if (a != WGM_NONE)
		json_object_set_new(x, "a", json_integer((json_int_t)a));
	if (b != WGM_NONE)
		json_object_set_new(x, "b", json_integer((json_int_t)b));
	if (a != WGM_NONE && b != WGM_NONE)
		json_object_set_new(x, "change", json_integer((json_int_t)(b - a)));
	json_object_set_new(o, key, x);
}

static json_t *changes(const struct wgm_change *v, size_t n, const char *key)
{
	json_t *all = json_array();

	for (size_t i = 0; i < n; i++) {
		json_t *o = json_object();

		json_object_set_new(o, key, json_string(v[i].name));
		if (v[i].library)
			json_object_set_new(o, "library", json_string(v[i].library));
		json_object_set_new(o, "a", json_integer((json_int_t)v[i].a));
		json_object_set_new(o, "b", json_integer((json_int_t)v[i].b));
		json_object_set_new(o, "change", json_integer((json_int_t)delta(&v[i])));
		json_object_set_new(o, "allocations_a", json_integer((json_int_t)v[i].allocations_a));
		json_object_set_new(o, "allocations_b", json_integer((json_int_t)v[i].allocations_b));
		json_array_append_new(all, o);
	}
	return all;
}

json_t *wgm_compare_json(const struct wgm_pair *p, size_t n)
{
	json_t *doc = json_object(), *all = json_array();

	json_object_set_new(doc, "schema", json_string("waitgraph-diff/1"));
	for (size_t i = 0; i < n; i++, p++) {
		json_t *o = json_object();
		const struct wgm_device *da = p->da, *db = p->db;

		if (p->a)
			json_object_set_new(o, "a", json_string(p->a->t->path));
		if (p->b)
			json_object_set_new(o, "b", json_string(p->b->t->path));
		if ((p->a ? p->a : p->b)->t->h.rank >= 0)
			json_object_set_new(o, "rank",
					    json_integer((p->a ? p->a : p->b)->t->h.rank));
		json_object_set_new(o, "index", json_integer(da ? da->index : db->index));
		put(o, "peak_own", da ? da->peak_own : WGM_NONE, db ? db->peak_own : WGM_NONE);
		put(o, "least_free", da ? da->least_free : WGM_NONE, db ? db->least_free : WGM_NONE);
		put(o, "own_at_end", da ? da->own_at_end : WGM_NONE, db ? db->own_at_end : WGM_NONE);
		put(o, "context_and_modules", da ? da->context_and_modules : WGM_NONE,
		    db ? db->context_and_modules : WGM_NONE);
		put(o, "allocations", da ? da->allocations : WGM_NONE,
		    db ? db->allocations : WGM_NONE);
		put(o, "failures", da ? failures(da) : WGM_NONE, db ? failures(db) : WGM_NONE);
		json_object_set_new(o, "sizes_are", json_string(p->at_end ? "live_at_end" :
								"live_at_peak"));
		json_object_set_new(o, "by_library", changes(p->libraries, p->nlibraries, "library"));
		json_object_set_new(o, "by_site", changes(p->sites, p->nsites, "site"));
		json_array_append_new(all, o);
	}
	json_object_set_new(doc, "devices", all);
	return doc;
}
