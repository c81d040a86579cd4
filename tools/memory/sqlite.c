/* SPDX-License-Identifier: Apache-2.0 */
/* sqlite.c - traces as a database, for questions that nobody foresaw. */
#ifdef WG_HAVE_SQLITE
#include "export.h"

#include <errno.h>
#include <math.h>
#include <sqlite3.h>
#include <string.h>

static const char schema[] =
	"CREATE TABLE trace(id INTEGER PRIMARY KEY, path TEXT, host TEXT, pid INT, rank INT,"
	" command TEXT, complete INT, lost_events INT, detail_from_s REAL, duration_s REAL);"
	"CREATE TABLE device(trace INT, device INT, uuid TEXT, name TEXT, total INT, peak_own INT,"
	" peak_at_s REAL, least_free INT, own_at_end INT, allocations INT, frees INT);"
	"CREATE TABLE site(trace INT, site INT, device INT, kind TEXT, function TEXT, library TEXT,"
	" text TEXT, live_at_peak INT, live_at_end INT, allocations INT, frees INT, total INT,"
	" PRIMARY KEY(trace, site));"
	"CREATE TABLE frame(trace INT, site INT, depth INT, module TEXT, symbol TEXT, offset INT,"
	" file TEXT, line INT);"
	"CREATE TABLE event(trace INT, at_s REAL, tid INT, event TEXT, address INT, bytes INT,"
	" site INT, device INT, own INT);"
	"CREATE TABLE sample(trace INT, at_s REAL, device INT, free INT, own INT);"
	"CREATE TABLE wait(trace INT, at_s REAL, tid INT, function TEXT, seconds REAL);"
	"CREATE TABLE failure(trace INT, number INT, at_s REAL, tid INT, device INT, function TEXT,"
	" kind TEXT, asked INT, free INT, short_by INT, recovered INT);"
	"CREATE TABLE failure_frame(trace INT, number INT, depth INT, python INT, module TEXT,"
	" symbol TEXT, file TEXT, line INT);";

struct db {
	sqlite3 *db;
	sqlite3_stmt *event, *sample, *wait;
	struct wgm_analysis *a;
	sqlite3_int64 trace;
	int err;
};

/* "i" integer (WGM_NONE: NULL), "d" double, "t" text */
static void put(struct db *d, sqlite3_stmt *s, const char *types, ...)
{
	va_list ap;

	va_start(ap, types);
	for (int i = 1; *types; types++, i++) {
		if (*types == 'i') {
			uint64_t v = va_arg(ap, uint64_t);

			if (v == WGM_NONE)
				sqlite3_bind_null(s, i);
			else
				sqlite3_bind_int64(s, i, (sqlite3_int64)v);
		} else if (*types == 'd') {
			double v = va_arg(ap, double);

			if (isnan(v))
				sqlite3_bind_null(s, i);
			else
				sqlite3_bind_double(s, i, v);
		} else {
			sqlite3_bind_text(s, i, va_arg(ap, const char *), -1, SQLITE_TRANSIENT);
		}
	}
	va_end(ap);
	if (sqlite3_step(s) != SQLITE_DONE)
		d->err = -EIO;
	sqlite3_reset(s);
}

static sqlite3_stmt *prepare(struct db *d, const char *table, int columns)
{
	char sql[200] = "INSERT INTO ";
	sqlite3_stmt *s = NULL;

	strcat(sql, table);
	strcat(sql, " VALUES(?");
	while (--columns > 0)
		strcat(sql, ",?");
	strcat(sql, ")");
	if (sqlite3_prepare_v2(d->db, sql, -1, &s, NULL) != SQLITE_OK)
		d->err = -EIO;
	return s;
}

static void on_block(void *arg, const struct wgm_block *b)
{
	struct db *d = arg;

	put(d, d->event, "iditiiiii", (uint64_t)d->trace, b->at_s, (uint64_t)b->tid,
	    b->is_free ? "free" : b->from_before ? "held" : "alloc", b->addr, b->size,
	    b->site ? (uint64_t)b->site->id : WGM_NONE,
	    b->device >= 0 ? (uint64_t)b->device : WGM_NONE, b->own);
}

static void on_event(void *arg, const struct wgm_event *e, double at_s)
{
	struct db *d = arg;
	struct wgm_trace *t = d->a->t;

	if (e->tag == WGTR_E_SAMPLE)
		put(d, d->sample, "idiii", (uint64_t)d->trace, at_s, e->v[0], e->v[1], e->v[2]);
	else if (e->tag == WGTR_E_WAIT)
		put(d, d->wait, "iditd", (uint64_t)d->trace, wgm_seconds(t, e->v[3]),
		    (uint64_t)e->tid, wgm_function(t, (uint32_t)e->v[0]),
		    wgm_span(t, e->v[4]));
}

static void one(struct db *d, struct wgm_analysis *a)
{
	struct wgm_watch w = { d, on_block, on_event };
	struct wgm_trace *t = a->t;
	sqlite3_stmt *trace = prepare(d, "trace", 10), *device = prepare(d, "device", 11);
	sqlite3_stmt *site = prepare(d, "site", 12), *frame = prepare(d, "frame", 8);
	sqlite3_stmt *failure = prepare(d, "failure", 11), *ff = prepare(d, "failure_frame", 8);

	d->a = a;
	d->trace++;
	if (d->err)
		goto out;
	put(d, trace, "ittiitiidd", (uint64_t)d->trace, t->path, t->h.host, (uint64_t)t->h.pid,
	    t->h.rank >= 0 ? (uint64_t)t->h.rank : WGM_NONE, t->h.command, (uint64_t)a->complete,
	    t->lost, a->whole_from_s, a->duration_s);
	for (int i = 0; i < WGTR_DEVICES; i++) {
		const struct wgm_device *v = &a->devices[i];

		if (v->used)
			put(d, device, "iittiidiiii", (uint64_t)d->trace, (uint64_t)i, v->uuid,
			    v->raw->name, v->total, v->peak_own, v->peak_at_s, v->least_free,
			    v->own_at_end, v->allocations, v->frees);
	}
	for (size_t i = 0; i < a->nsites; i++) {
		struct wgm_site *s = &a->sites[i];

		if (!s->raw->kind || !s->raw->allocs)
			continue;
		wgm_attribute(a, s);
		put(d, site, "iiitttt" "iiiii", (uint64_t)d->trace, (uint64_t)i,
		    s->raw->device >= 0 ? (uint64_t)s->raw->device : WGM_NONE,
		    wgm_kind(s->raw->kind - 1u), wgm_function(t, s->raw->fn), s->library, s->text,
		    s->live_at_peak, s->live_at_end, s->allocations, s->frees, s->total);
		for (size_t k = 0; k < s->nframes; k++)
			put(d, frame, "iiittiti", (uint64_t)d->trace, (uint64_t)i, (uint64_t)k,
			    s->frames[k].path, s->frames[k].symbol, s->frames[k].offset,
			    s->frames[k].file,
			    s->frames[k].line ? (uint64_t)s->frames[k].line : WGM_NONE);
	}
	for (size_t i = 0; i < t->failures.n; i++) {
		const struct wgm_failure *f = &t->failures.v[i];
		const struct wgm_frame *frames;
		size_t n;

		put(d, failure, "iidiittiiii", (uint64_t)d->trace, f->number,
		    wgm_seconds(t, f->at), (uint64_t)f->tid,
		    f->device >= 0 ? (uint64_t)f->device : WGM_NONE, wgm_function(t, f->fn),
		    wgm_kind(f->kind), f->asked, f->free, wgm_short_by(f), (uint64_t)f->recovered);
		frames = wgm_frames(t, &f->stack, &n);
		for (size_t k = 0; k < n; k++)
			put(d, ff, "iiiittti", (uint64_t)d->trace, f->number, (uint64_t)k,
			    (uint64_t)0, frames[k].path, frames[k].symbol, frames[k].file,
			    frames[k].line ? (uint64_t)frames[k].line : WGM_NONE);
		for (uint32_t k = 0; k < f->npy; k++)
			put(d, ff, "iiiittti", (uint64_t)d->trace, f->number, (uint64_t)k,
			    (uint64_t)1, NULL, f->py[k].function, f->py[k].file,
			    f->py[k].line ? (uint64_t)f->py[k].line : WGM_NONE);
	}
	if (!wgm_replay(t, &w))
		d->err = -EBADMSG;
out:
	sqlite3_finalize(trace);
	sqlite3_finalize(device);
	sqlite3_finalize(site);
	sqlite3_finalize(frame);
	sqlite3_finalize(failure);
	sqlite3_finalize(ff);
}

int wgm_write_sqlite(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end)
{
	struct db d = { 0 };

	(void)out;
	(void)end;
	if (sqlite3_open(path, &d.db) != SQLITE_OK)
		d.err = -EIO;
	if (!d.err && sqlite3_exec(d.db, "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; BEGIN;",
				   NULL, NULL, NULL) != SQLITE_OK)
		d.err = -EIO;
	if (!d.err && sqlite3_exec(d.db, schema, NULL, NULL, NULL) != SQLITE_OK)
		d.err = -EIO;
	if (!d.err) {
		d.event = prepare(&d, "event", 9);
		d.sample = prepare(&d, "sample", 5);
		d.wait = prepare(&d, "wait", 5);
	}
	for (size_t i = 0; i < n && !d.err; i++)
		one(&d, all[i]);
	if (!d.err && sqlite3_exec(d.db, "CREATE INDEX event_at ON event(trace, at_s); COMMIT;",
				   NULL, NULL, NULL) != SQLITE_OK)
		d.err = -EIO;
	if (d.err == -EIO)
		fprintf(stderr, "waitgraph export: %s: %s\n", path, sqlite3_errmsg(d.db));
	sqlite3_finalize(d.event);
	sqlite3_finalize(d.sample);
	sqlite3_finalize(d.wait);
	sqlite3_close(d.db);
	return d.err;
}
#endif
typedef int wgm_sqlite_is_optional; /* an empty file is no C */
