/* SPDX-License-Identifier: Apache-2.0 */
/* snapshot_write.c - graph and facts to JSON, schema waitgraph/1 (docs/snapshot-format.md). */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "render/involved.h"
#include "snapshot.h"
#include "snapshot_fields.h"

static void put(json_t *obj, const char *key, json_t *v)
{
	json_object_set_new_nocheck(obj, key, v);
}

static void put_str(json_t *obj, const char *key, const char *s)
{
	json_t *j = s ? json_string(s) : NULL;

	if (j)
		put(obj, key, j);
}

static void put_sec(json_t *obj, const char *key, double v)
{
	if (wg_has_sec(v) && isfinite(v))
		put(obj, key, json_real(round(v * 1e6) / 1e6));
}

static void put_int(json_t *obj, const char *key, int64_t v)
{
	if (wg_has_int(v))
		put(obj, key, json_integer(v));
}

static void rfc3339(double t, char *out, size_t size)
{
	time_t s = (time_t)t;
	struct tm tm;
	char date[40];

	if (!(t >= 0 && t < 253402300800.0) || !gmtime_r(&s, &tm) ||
	    !strftime(date, sizeof(date), "%Y-%m-%dT%H:%M:%S", &tm)) {
		snprintf(out, size, "1970-01-01T00:00:00Z");
		return;
	}
	snprintf(out, size, "%s.%03dZ", date, (int)((t - (double)s) * 1000));
}

/* The contract's coarse words; our `type` beside it tells more. */
static const char *file_kind(enum wg_file_kind k)
{
	switch (k) {
	case WG_FILE_REG:
		return "file";
	case WG_FILE_PIPE:
	case WG_FILE_FIFO:
		return "pipe";
	case WG_FILE_SOCKET:
		return "socket";
	case WG_FILE_TTY:
		return "tty";
	default:
		return NULL; /* as `type` says */
	}
}

/* Name of what the stream is at, when that is known. */
static const char *running(const struct wg_stream *s)
{
	if (s->completed >= s->enqueued || s->pending_truncated)
		return NULL;
	for (size_t i = 0; i < s->pending.n; i++) {
		const struct wg_gpu_item *x = &s->pending.v[i];

		if (x->op == WG_GPU_MARK)
			continue;
		return s->completed_exact || s->pending.n == 1 ? x->name : NULL;
	}
	return NULL;
}

static void wait_json(json_t *obj, const struct wg_thread *t, const struct wg_wait_view *w,
		      bool idle)
{
	json_t *wait, *args;
	const struct wg_call *c = NULL;

	if (!w || !w->kind)
		return;
	wait = json_object();
	put_str(wait, "kind", w->kind);
	put_str(wait, "object", w->object);
	put_sec(wait, "since_s", w->since_s);
	put_str(wait, "call", w->call);
	args = json_object();
	for (size_t i = 0; w->call && i < t->calls.n; i++)
		if (t->calls.v[i].function && (!strcmp(t->calls.v[i].function, w->call) ||
					       (t->calls.v[i].inner &&
						!strcmp(t->calls.v[i].inner, w->call))))
			c = &t->calls.v[i];
	for (size_t i = 0; c && i < c->args.n; i++)
		put_str(args, c->args.v[i].name, c->args.v[i].text);
	put(wait, "args", args);
	if (idle)
		put(wait, "by_design", json_true());
	put(obj, "wait", wait);
}

static json_t *process_json(const struct wg_process *p, const struct wg_wait_view *views,
			    const bool *idle, size_t nviews)
{
	json_t *o = json_object(), *list, *x;
	size_t i;

	wg_encode(&wg_desc_process, p, o);
	list = json_array();
	for (i = 0; i < p->missing.n; i++) {
		const struct wg_missing *m = &p->missing.v[i];
		char line[1024];

		snprintf(line, sizeof(line), "%s: %s%s%s%s", m->what ? m->what : "?",
			 m->why ? m->why : "not known", m->remedy ? " (" : "",
			 m->remedy ? m->remedy : "", m->remedy ? ")" : "");
		x = json_string(line);
		/* Cut in the middle of a character. */
		for (size_t n = strlen(line); !x && n; x = json_string(line))
			line[--n] = 0;
		json_array_append_new(list, x ? x : json_string("?"));
	}
	put(o, "missing", list);
	list = json_object_get(o, "threads");
	json_array_foreach(list, i, x)
		wait_json(x, &p->threads.v[i], i < nviews ? &views[i] : NULL, i < nviews && idle[i]);
	list = json_object_get(o, "files");
	json_array_foreach(list, i, x) {
		const char *k = file_kind(p->files.v[i].kind);

		put_str(x, "kind", k ? k : json_string_value(json_object_get(x, "type")));
	}
	list = json_object_get(o, "streams");
	json_array_foreach(list, i, x)
		put_str(x, "running", running(&p->streams.v[i]));
	list = json_object_get(o, "peers");
	json_array_foreach(list, i, x)
		if (p->peers.v[i].alive_known)
			put(x, "alive", json_boolean(p->peers.v[i].alive));
	list = json_array();
	for (i = 0; i < p->comms.n; i++) {
		const struct wg_comm *c = &p->comms.v[i];

		for (size_t k = 0; k < c->recent.n; k++) {
			x = json_object();
			put_str(x, "comm", c->id);
			put_int(x, "rank", c->rank);
			put_int(x, "size", c->size);
			wg_encode(&wg_desc_collective, &c->recent.v[k], x);
			/* Two ranks of one communicator can live in one process. */
			put(x, "comm_index", json_integer((json_int_t)i));
			json_array_append_new(list, x);
		}
	}
	put(o, "collectives", list);
	return o;
}

static json_t *verdict_json(const struct wg_verdict *v)
{
	static const char *const confidence[] = { "certain", "likely", "guess" };
	json_t *o = json_object(), *list;

	put_str(o, "class", v->class_name ? v->class_name : "unknown");
	put(o, "hung", v->hung == WG_HUNG_NULL ? json_null() : json_boolean(v->hung == WG_HUNG_YES));
	put_str(o, "confidence", confidence[v->confidence <= WG_CONF_GUESS ? v->confidence : 2]);
	put_str(o, "summary", v->summary ? v->summary : "");
	put_str(o, "phase", v->phase);
	list = json_array();
	for (size_t i = 0; i < v->not_established.n; i++)
		json_array_append_new(list, json_string(v->not_established.v[i]));
	put(o, "not_established", list);
	if (v->culprit.present) {
		json_t *c = json_object();

		put_int(c, "pid", v->culprit.pid);
		put_int(c, "tid", v->culprit.tid);
		put_int(c, "rank", v->culprit.rank);
		put_str(c, "thread_name", v->culprit.thread_name);
		put_str(c, "comm", v->culprit.comm);
		put_str(c, "what", v->culprit.what);
		put(o, "culprit", c);
	}
	list = json_array();
	for (size_t i = 0; i < v->chain.n; i++)
		json_array_append_new(list, json_string(v->chain.v[i]));
	put(o, "chain", list);
	put_str(o, "advice", v->advice);
	return o;
}

json_t *wg_snapshot_json(const struct wg_graph *g)
{
	const struct wg_facts *f = g->facts;
	const bool *idle = wg_idle_threads(g, g->arena);
	json_t *doc = json_object(), *list;
	size_t view = 0;
	char when[64];

	put_str(doc, "schema", "waitgraph/1");
	rfc3339(f->taken_at, when, sizeof(when));
	put_str(doc, "host", f->host ? f->host : "");
	put_str(doc, "taken_at", when);
	list = json_array();
	for (size_t i = 0; i < f->procs.n; i++) {
		const struct wg_process *p = f->procs.v[i];
		size_t left = view < g->waits.n ? g->waits.n - view : 0;

		if (left > p->threads.n)
			left = p->threads.n;
		json_array_append_new(list, process_json(p, left ? g->waits.v + view : NULL,
								  left ? idle + view : NULL, left));
		view += left;
	}
	put(doc, "processes", list);
	list = json_array();
	for (size_t i = 0; i < g->nodes.n; i++) {
		const struct wg_node *n = &g->nodes.v[i];
		json_t *o = json_object();

		put_str(o, "id", n->id);
		put_str(o, "kind", wg_node_kind_names[n->kind]);
		put_str(o, "label", n->label ? n->label : n->id);
		json_array_append_new(list, o);
	}
	put(doc, "nodes", list);
	list = json_array();
	for (size_t i = 0; i < g->edges.n; i++) {
		const struct wg_edge *e = &g->edges.v[i];
		json_t *o = json_object();

		if (e->from >= g->nodes.n || e->to >= g->nodes.n)
			continue;
		put_str(o, "from", g->nodes.v[e->from].id);
		put_str(o, "to", g->nodes.v[e->to].id);
		put_str(o, "kind", wg_edge_kind_names[e->kind]);
		put_sec(o, "since_s", e->since_s);
		put_str(o, "evidence", e->evidence ? e->evidence : "");
		put(o, "certain", json_boolean(e->certain));
		json_array_append_new(list, o);
	}
	put(doc, "edges", list);
	put(doc, "verdict", verdict_json(&g->verdict));
	/* What the contract has no key for: so that a saved snapshot judges as the live one did. */
	wg_encode(&wg_desc_facts, f, doc);
	return doc;
}
