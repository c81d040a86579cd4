/* SPDX-License-Identifier: Apache-2.0 */
/* recorder_threads.c - threads and their calls in flight, from the recorder file. */
#include "recorder_priv.h"

#include <string.h>

/* ---- threads and their calls in flight --------------------------------------------- */

static bool has_word(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = list; (p = strstr(p, name)); p += n)
		if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
			return true;
	return false;
}

/* Arguments that are counts read better in decimal, addresses and handles in hex. */
static const char *arg_text(struct wg_facts *f, const char *name, uint64_t v)
{
	static const char decimal[] =
		"bytes size count n flags width height depth rank nranks root "
		"peer device ordinal dev value color key gridX gridY gridZ "
		"grid block threads shared num numBytes pitch type op nranks "
		"align alignment kind magic elements ndev";

	if (has_word(decimal, name))
		return wg_fmt(f->arena, "%lld", (long long)v);
	return wg_fmt(f->arena, "0x%llx", (unsigned long long)v);
}

bool wg_rec_find_event(const struct wg_rec *r, uint64_t handle, struct wgrec_event *out)
{
	uint64_t cap = r->sec[WGREC_EVENTS].capacity;

	if (handle <= 1 || !cap || cap & (cap - 1))
		return false;
	for (uint64_t k = 0; k < 32; k++) {
		uint64_t slot = ((wgrec_hash(handle) >> 32) + k) & (cap - 1);

		if (!wg_rec_fetch(r, WGREC_EVENTS, slot, out, sizeof(*out)) || !out->handle)
			return false;
		if (out->handle == handle)
			return true;
	}
	return false;
}

static void add_args(struct wg_facts *f, struct wg_rec *r, struct wg_call *c,
		     const struct wgrec_call *e)
{
	static const char objects[] = "event comm module library function func kernel graph exec "
				      "graphExec object handle ptr dptr addr host semaphore array "
				      "context ctx pool";
	struct wgrec_event ev;
	struct wgrec_name name;
	char *save = NULL;
	uint32_t i = 0;

	if (!wg_rec_fn(r, e->fn, &name))
		return;
	for (char *s = strtok_r(name.args, ", ", &save); s && i < WGREC_ARGS && i < e->nargs;
	     s = strtok_r(NULL, ", ", &save), i++) {
		struct wg_arg *a;
		bool known = false;

		for (size_t k = 0; k < c->args.n; k++)
			known = known || !strcmp(c->args.v[k].name, s);
		if (known) /* the runtime call had it already */
			continue;
		a = wg_push(f->arena, &c->args);
		a->name = wg_str(f->arena, s);
		a->value = e->args[i];
		a->text = arg_text(f, s, a->value);
		if (!c->object && has_word(objects, s))
			c->object = a->value;
		if (!c->event_known && strcasestr(s, "event") &&
		    wg_rec_find_event(r, a->value, &ev)) {
			struct wgrec_stream st;

			c->object = a->value;
			c->event_known = true;
			c->event_remote = ev.flags & 1;
			if (ev.stream != UINT32_MAX && ev.seq &&
			    wg_rec_entry(r, WGREC_STREAMS, ev.stream, &st, sizeof(st)) &&
			    st.valid) {
				c->event_recorded = true;
				c->event_stream = st.handle;
				c->event_device = st.device;
				c->event_seq = ev.seq;
				if (ev.stream < r->nstream_ix)
					c->event_stream_ix = r->stream_ix[ev.stream];
			}
		}
	}
}

static void set_place(struct wg_call *c, const struct wgrec_call *e)
{
	if (c->device == WG_NO_INT && e->device >= 0)
		c->device = e->device;
	if (!c->has_stream && e->flags & WGREC_CALLF_STREAM) {
		c->has_stream = true;
		c->stream = e->stream;
		/* As the record of streams names them: 0 the legacy one, 2 this thread's own. */
		if (e->stream == 0 && e->flags & WGREC_CALLF_PTSZ)
			c->stream = 2;
		else if (e->stream == 1)
			c->stream = 0;
	}
}

static void add_calls(struct wg_facts *f, struct wg_rec *r, struct wg_thread *t,
		      const struct wgrec_thread *e)
{
	uint32_t depth = e->depth < WGREC_DEPTH ? e->depth : WGREC_DEPTH;
	uint8_t outer_api = 255;
	struct wg_call *c = NULL;

	memset(&t->calls, 0, sizeof(t->calls));
	for (uint32_t i = 0; i < depth; i++) {
		const struct wgrec_call *x = &e->calls[i];
		struct wgrec_name name;
		bool named = wg_rec_fn(r, x->fn, &name);

		/* A driver call inside a runtime call is the same call with its inner name. */
		if (c && named && !c->inner && outer_api == WGREC_API_RUNTIME &&
		    name.api == WGREC_API_DRIVER) {
			c->inner = wg_rec_fn_name(r, x->fn);
			set_place(c, x);
			add_args(f, r, c, x);
			if (c->kind == WG_CALL_OTHER && name.kind <= WG_CALL_COMM)
				c->kind = name.kind;
			continue;
		}
		c = wg_add_call(f, t);
		c->function = named ? wg_rec_fn_name(r, x->fn) : "(unknown call)";
		c->kind = named && name.kind <= WG_CALL_COMM ? (enum wg_call_kind)name.kind
							     : WG_CALL_OTHER;
		c->since_s = wg_rec_age(r, x->since);
		c->sp = x->sp;
		c->fp = x->fp;
		c->ra = x->ra;
		set_place(c, x);
		add_args(f, r, c, x);
		outer_api = named ? name.api : 255;
	}
}

/* The slot of a thread being written: the writer bumps seq, two equal copies are a whole one. */
static bool stable_thread(struct wg_rec *r, uint64_t i, struct wgrec_thread *out)
{
	struct wgrec_thread again;

	for (int tries = 0; tries < 16; tries++) {
		if (!wg_rec_fetch(r, WGREC_THREADS, i, out, sizeof(*out)) ||
		    !wg_rec_fetch(r, WGREC_THREADS, i, &again, sizeof(again)))
			return false;
		if (!memcmp(out, &again, sizeof(again)))
			return true;
	}
	return true; /* so busy that any of its calls is young: the last copy will do */
}

struct wg_thread *wg_rec_thread_of(struct wg_process *p, uint32_t ns_tid)
{
	for (size_t i = 0; i < p->threads.n; i++) {
		struct wg_thread *t = &p->threads.v[i];

		if (t->ns_tid ? (uint32_t)t->ns_tid == ns_tid : (uint32_t)t->tid == ns_tid)
			return t;
	}
	return NULL;
}

int32_t wg_rec_helper(const struct wg_rec *r)
{
	return r->h.helper_tid <= INT32_MAX ? (int32_t)r->h.helper_tid : 0;
}

const struct wg_rec_task *wg_rec_tasks(struct wg_facts *f, struct wg_rec *r, size_t *n)
{
	struct wg_rec_task *out;

	*n = 0;
	if (wg_rec_load(r, WGREC_TASKS) || !r->sec[WGREC_TASKS].n)
		return NULL;
	out = wg_alloc(f->arena, r->sec[WGREC_TASKS].n * sizeof(*out));
	for (uint64_t i = 0; i < r->sec[WGREC_TASKS].n; i++) {
		struct wgrec_task e;

		wg_rec_entry(r, WGREC_TASKS, i, &e, sizeof(e));
		if (!e.tid || e.tid > INT32_MAX || !e.slices || !e.syscall[0])
			continue;
		out[*n].ns_tid = (int32_t)e.tid;
		out[*n].slices = e.slices;
		memcpy(out[*n].syscall, e.syscall, sizeof(out->syscall));
		out[(*n)++].syscall[sizeof(out->syscall) - 1] = 0;
	}
	return out;
}

/* The asker's number of a recorded thread, as far as it can be known. */
int32_t wg_rec_tid_of(struct wg_process *p, uint32_t ns_tid)
{
	struct wg_thread *t = wg_rec_thread_of(p, ns_tid);

	return t ? t->tid : (int32_t)ns_tid;
}

uint64_t wg_rec_fill_threads(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
			     uint64_t *last_launch)
{
	bool create = !p->threads.n; /* dead: the record is all there is */
	uint64_t sum = 0;

	for (size_t i = 0; i < p->threads.n; i++)
		memset(&p->threads.v[i].calls, 0, sizeof(p->threads.v[i].calls));
	for (uint64_t i = 0; i < r->sec[WGREC_THREADS].used; i++) {
		struct wgrec_thread e;
		struct wg_thread *t;
		double since = WG_NO_SEC;

		if (!stable_thread(r, i, &e) || !e.tid || e.tid > INT32_MAX)
			continue;
		sum += e.calls_done;
		if (e.last_launch > *last_launch && wg_has_sec(wg_rec_age(r, e.last_launch)))
			*last_launch = e.last_launch;
		t = wg_rec_thread_of(p, e.tid);
		if (!t && create) {
			t = wg_add_thread(f, p);
			t->tid = t->ns_tid = (int32_t)e.tid;
			t->name = wg_rec_fixed(f, e.name, sizeof(e.name));
		}
		if (!t)
			continue; /* ended without telling */
		if (e.depth)
			since = wg_rec_age(r, e.calls[0].since);
		/* A slot that an ended thread left behind, its number given to a new one. */
		if (wg_has_sec(since) && wg_has_sec(t->start_age_s) && since > t->start_age_s + 1)
			continue;
		if (t->fsbase && e.fsbase && t->fsbase != e.fsbase)
			continue;
		if (t->calls.n && !e.depth)
			continue;
		if (!t->fsbase)
			t->fsbase = e.fsbase;
		t->ours = r->h.helper_tid && e.tid == r->h.helper_tid;
		add_calls(f, r, t, &e);
	}
	if (r->h.helper_tid) {
		struct wg_thread *t = wg_rec_thread_of(p, r->h.helper_tid);

		if (t)
			t->ours = true;
	}
	if (create && !wg_rec_thread_of(p, r->h.pid) && r->h.pid <= INT32_MAX) {
		struct wg_thread *t = wg_add_thread(f, p);

		t->tid = t->ns_tid = (int32_t)r->h.pid;
	}
	return sum;
}
