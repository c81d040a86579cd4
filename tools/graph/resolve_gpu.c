/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_gpu.c - from a CUDA call that does not return to the stream, and from the stream to
 * what holds its head up.
 */
#include "internal.h"

bool wg_stream_pending(const struct wg_stream *s)
{
	return s->enqueued > s->completed || s->pending.n;
}

uint32_t wg_stream_node(struct wg_b *b, int32_t proc, size_t ix)
{
	const struct wg_process *p = b->pi[proc].p;
	const struct wg_stream *s = &p->streams.v[ix];
	bool fresh;
	uint32_t node = wg_node(b, IT_STREAM, (uint64_t)proc, ix, &fresh);
	struct wg_inode *n = &b->n.v[node];

	if (!fresh)
		return node;
	n->proc = proc;
	n->obj = s;
	n->mode = MODE_ALL;
	n->wsince = s->progress_age_s;
	if (s->handle == 0 || s->handle == 1)
		n->label = wg_say(b, "default stream of device %lld",
				  (long long)(wg_has_int(s->device) ? s->device : 0));
	else
		n->label = wg_say(b, "stream 0x%llx of device %lld", (unsigned long long)s->handle,
				  (long long)(wg_has_int(s->device) ? s->device : 0));
	n->id = wg_say(b, "st:%d:%lld:0x%llx:%d", p->pid, (long long)s->device,
		       (unsigned long long)s->handle, s->owner_tid);
	return node;
}

static int find_stream(const struct wg_process *p, uint64_t handle, int64_t device, int32_t tid)
{
	int best = -1;

	for (size_t i = 0; i < p->streams.n; i++) {
		const struct wg_stream *s = &p->streams.v[i];

		if (handle == 2 ? !(s->handle == 2 && (!s->owner_tid || s->owner_tid == tid))
				: s->handle != handle && !(handle == 1 && s->handle == 0))
			continue;
		if (wg_has_int(device) && wg_has_int(s->device) && s->device != device) {
			/* Handles are unique but for the default streams, of which each device has
			 * one. */
			if (handle <= 2)
				continue;
		}
		if (best < 0 || wg_stream_pending(s))
			best = (int)i;
	}
	return best;
}

static bool value_reached(const struct wg_gpu_item *it, uint64_t now)
{
	switch (it->flags & 3) {
	case 0: /* GEQ, cyclic */
		return (int64_t)(now - it->value) >= 0 &&
		       (int32_t)((uint32_t)now - (uint32_t)it->value) >= 0;
	case 1:
		return now == it->value;
	case 2:
		return (now & it->value) != 0;
	default:
		return (~(now | it->value) & 0xffffffffu) != 0;
	}
}

static int event_stream(const struct wg_process *p, const struct wg_gpu_item *it)
{
	if (wg_has_int(it->event_stream_ix) && it->event_stream_ix >= 0 &&
	    (uint64_t)it->event_stream_ix < p->streams.n)
		return (int)it->event_stream_ix;
	return find_stream(p, it->event_stream, it->event_device, 0);
}

/* The thread that runs this host function: its code is on that thread's stack. */
static uint32_t callback_thread(struct wg_b *b, int32_t proc, const struct wg_gpu_item *it,
				bool *sure)
{
	const struct wg_process *p = b->pi[proc].p;
	uint32_t other = WG_NONE;

	for (uint32_t i = 0; i < p->threads.n; i++) {
		const struct wg_thread *t = &p->threads.v[i];
		const struct wg_frame *start = wg_start_function(t);
		bool driver = start && (wg_module_is(start, "libcuda.so") ||
					wg_module_is(start, "libcuda-"));

		for (size_t k = 0; k < t->native_stack.n; k++) {
			const struct wg_frame *f = &t->native_stack.v[k];

			if ((it->object && f->pc && f->symbol && f->pc - f->offset == it->object) ||
			    (it->name && f->symbol && !strcmp(it->name, f->symbol) && driver)) {
				*sure = true;
				return b->pi[proc].tbase + i;
			}
			if (driver && f->module && !wg_is_plumbing(f) &&
			    !wg_module_is(f, "libcuda"))
				other = b->pi[proc].tbase + i;
		}
	}
	*sure = false;
	return other;
}

/* Does this item, by what is known of it, hold the stream up? 1 yes, 0 not known, -1 no. */
static int holds(struct wg_b *b, int32_t proc, const struct wg_stream *s,
		 const struct wg_gpu_item *it)
{
	const struct wg_process *p = b->pi[proc].p;
	bool sure;
	int i;

	switch (it->op) {
	case WG_GPU_WAIT_VALUE:
		if (it->has_current)
			return value_reached(it, it->current) ? -1 : 1;
		return 0;
	case WG_GPU_WAIT_EVENT:
		if (!it->event_recorded && !it->event_remote)
			return -1; /* waiting for an event that was never recorded is no wait */
		if (it->event_remote)
			return 0;
		i = event_stream(p, it);
		if (i < 0)
			return 0;
		if (&p->streams.v[i] == s || p->streams.v[i].completed >= it->event_seq)
			return -1;
		return 1;
	case WG_GPU_HOSTFN:
		return callback_thread(b, proc, it, &sure) != WG_NONE && sure ? 1 : 0;
	case WG_GPU_COLLECTIVE:
		return 1;
	case WG_GPU_RECORD_EVENT:
	case WG_GPU_MARK:
	case WG_GPU_WRITE_VALUE:
		return -1; /* end as soon as they are reached */
	default:
		return 0;
	}
}

int wg_stream_head(struct wg_b *b, int32_t proc, const struct wg_stream *s, bool *sure)
{
	int first = -1;

	*sure = s->completed_exact;
	for (size_t i = 0; i < s->pending.n; i++) {
		const struct wg_gpu_item *it = &s->pending.v[i];
		int h;

		if (it->nccl_inner) {
			/* NCCL's own kernel: the collective behind it says more. */
			size_t k = i + 1;

			while (k < s->pending.n && s->pending.v[k].nccl_inner)
				k++;
			if (k < s->pending.n && s->pending.v[k].op == WG_GPU_COLLECTIVE)
				continue;
		}
		h = holds(b, proc, s, it);
		if (h < 0) {
			/* What lies behind a position write cannot have begun before it. */
			if (it->op == WG_GPU_MARK && first >= 0)
				return first;
			continue;
		}
		if (s->completed_exact)
			return (int)i;
		if (h > 0) {
			if (first >= 0)
				*sure = false;
			else
				*sure = true;
			return (int)i;
		}
		if (first < 0)
			first = (int)i;
	}
	return first;
}

static const struct wg_device *device_of(const struct wg_process *p, int64_t index)
{
	for (size_t i = 0; i < p->devices.n; i++)
		if (p->devices.v[i].index == index)
			return &p->devices.v[i];
	return NULL;
}

/*
 * When is work on the GPU stuck and not merely long? Nothing tells for certain: a kernel says
 * nothing while it runs. What is known is how long work on this stream took before, and what the
 * card draws. So: it is called stuck when it has lasted ten seconds AND five times the longest
 * that this program's work ever took; a factor, because programs differ by four orders of
 * magnitude, and a floor, because a program that has only warmed up has a history of
 * microseconds. A card at full "utilization" that draws little power spins (an idle H200 with a
 * spinning kernel draws 119 W, at work 400-700): then half the floor will do. One that draws
 * much computes: then a minute. It stays likely, never certain. Between twice the longest and
 * that limit nothing is claimed.
 */
enum wg_fate wg_gpu_age(struct wg_b *b, int32_t proc, const struct wg_stream *s, double age,
			enum wg_certainty *sure, const char **why)
{
	const struct wg_process *p = b->pi[proc].p;
	const struct wg_device *d = device_of(p, s ? s->device : 0);
	double longest = s && wg_has_sec(s->longest_gap_s) ? s->longest_gap_s : 0;
	double floor_s = 10, factor = 5;
	bool spins = false, history;

	if (longest <= 0 && wg_has_sec(p->longest_sync_s))
		longest = p->longest_sync_s;
	history = longest > 0;
	if (d && wg_has_int(d->utilization) && d->utilization >= 90 && wg_has_sec(d->power_w) &&
	    wg_has_sec(d->power_limit_w) && d->power_limit_w > 0) {
		if (d->power_w < 0.35 * d->power_limit_w) {
			spins = true;
			floor_s = 5;
		} else if (d->power_w > 0.6 * d->power_limit_w) {
			floor_s = 60;
			factor = 20;
		}
	}
	*why = spins	 ? wg_say(b,
				  "; the card reports %lld %% utilization at %.0f W of %.0f: it spins",
				  (long long)d->utilization, d->power_w, d->power_limit_w)
	       : history ? wg_say(b, "; the longest before took at most %s", wg_secs(b, longest))
			 : "";
	*sure = history && age >= 50 * longest ? WG_LIKELY : spins ? WG_LIKELY : WG_GUESS;
	if (!wg_has_sec(age))
		return FATE_UNKNOWN;
	if (age > floor_s && age > factor * longest)
		return FATE_STUCK;
	if (age <= 1 || (history && age <= 2 * longest))
		return FATE_MOVING;
	return FATE_PENDING;
}

static double run_age(const struct wg_stream *s, const struct wg_gpu_item *it)
{
	double a = it ? it->age_s : WG_NO_SEC;

	if (!wg_has_sec(a))
		return s->progress_age_s;
	if (wg_has_sec(s->progress_age_s) && s->progress_age_s < a)
		return s->progress_age_s;
	return a;
}

#define MAX_NAMED 4

/* Who runs, when the position does not say which of several it is. */
static const char *one_of(struct wg_b *b, const struct wg_stream *s, const struct wg_gpu_item *it,
			  const char *what)
{
	const char *named[MAX_NAMED], *text = "";
	size_t n = 0, launches = 0;
	bool others = false;

	for (size_t i = 0; i < s->pending.n && (!s->candidates || i < s->candidates); i++) {
		const struct wg_gpu_item *x = &s->pending.v[i];
		size_t k;

		if (x->op != it->op || x->nccl_inner)
			continue;
		launches++;
		for (k = 0; k < n && x->name && strcmp(named[k], x->name); k++)
			;
		if (k == n && n < MAX_NAMED && x->name)
			named[n++] = x->name;
		else if (k == n)
			others = true;
	}
	if (launches < 2 || !n)
		return wg_say(b, "probably its %s%s%s", what, it->name ? " " : "",
			      it->name ? it->name : "");
	if (n == 1 && !others)
		return wg_say(b, "its %s %s (one of %zu launches of it)", what, named[0], launches);
	for (size_t k = 0; k < n; k++)
		text = wg_say(b, "%s%s%s", text, !k ? "" : k + 1 == n && !others ? " or " : ", ",
			      named[k]);
	return wg_say(b, "one of %zu %ss (%s%s)", launches, what, text, others ? " or another" : "");
}

static void kernel_end(struct wg_b *b, uint32_t node, int32_t proc, const struct wg_stream *s,
		       const struct wg_gpu_item *it, bool exact)
{
	double age = run_age(s, it);
	bool kernel = it->op == WG_GPU_KERNEL || it->op == WG_GPU_GRAPH;
	const char *what = it->op == WG_GPU_KERNEL	 ? "kernel"
			   : it->op == WG_GPU_GRAPH	 ? "graph"
			   : it->op == WG_GPU_COPY	 ? "copy"
			   : it->op == WG_GPU_SET	 ? "memory set"
			   : it->op == WG_GPU_COLLECTIVE ? "collective"
							 : "work";
	const char *name = it->name ? wg_say(b, " %s", it->name) : "", *why;
	enum wg_certainty sure;
	enum wg_fate fate = wg_gpu_age(b, proc, s, age, &sure, &why);
	struct wg_inode *n;

	if (fate == FATE_STUCK && !kernel) {
		wg_set_end(b, node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   wg_say(b, "its %s has been at the head for %s%s", what, wg_secs(b, age),
				  why));
		b->n.v[node].end.missing =
			wg_say(b, "why the %s at the head of the stream does not end", what);
		return;
	}
	if (fate == FATE_STUCK)
		wg_set_end(b, node, CL_KERNEL_STUCK, FATE_STUCK, sure,
			   wg_say(b, "%s has run for %s%s",
				  exact ? wg_say(b, "its %s%s", what, name)
					: one_of(b, s, it, what),
				  wg_secs(b, age), why));
	else if (fate == FATE_MOVING)
		wg_set_end(b, node, CL_BUSY_GPU, FATE_MOVING, WG_CERTAIN,
			   wg_say(b, "its %s%s has run for %s", what, name, wg_secs(b, age)));
	else {
		wg_set_end(b, node, CL_UNKNOWN, fate, WG_GUESS,
			   wg_say(b, "its %s%s has run for %s%s: too short to call it stuck", what,
				  name, wg_secs(b, age), why));
		n = &b->n.v[node];
		n->end.missing = wg_say(
			b, "whether %s%s still ends: a running kernel does not tell", what, name);
	}
}

/* A call in flight that would write this address, could it only get through. */
static void add_writers(struct wg_b *b, uint32_t node, int32_t proc, const struct wg_gpu_item *it)
{
	const struct wg_process *p = b->pi[proc].p;

	for (uint32_t i = 0; i < p->threads.n; i++) {
		const struct wg_thread *t = &p->threads.v[i];

		for (size_t k = 0; k < t->calls.n; k++) {
			const struct wg_call *call = &t->calls.v[k];
			bool hit = call->object && call->object == it->object;

			if (call->kind != WG_CALL_COPY && call->kind != WG_CALL_LAUNCH &&
			    call->kind != WG_CALL_OTHER)
				continue;
			for (size_t a = 0; a < call->args.n; a++)
				hit |= call->args.v[a].value == it->object && it->object;
			if (!hit)
				continue;
			wg_edge(b, node, b->pi[proc].tbase + i, WG_EDGE_WRITTEN_BY, true,
				wg_say(b, "its %s, which has not returned, writes that address",
				       call->function ? call->function : "call"));
			break;
		}
	}
}

static void value_targets(struct wg_b *b, uint32_t stream, int32_t proc,
			  const struct wg_gpu_item *it)
{
	const struct wg_process *p = b->pi[proc].p;
	struct wg_iedge *e;
	struct wg_inode *n;
	uint32_t node;
	bool fresh;

	node = wg_node(b, IT_EVENT, (uint64_t)proc << 32 | 1, it->object ^ it->value << 48, &fresh);
	n = &b->n.v[node];
	if (fresh) {
		n->proc = proc;
		n->label = wg_say(b, "memory value %llu at 0x%llx", (unsigned long long)it->value,
				  (unsigned long long)it->object);
		n->id = wg_say(b, "v:%d:0x%llx:%llu", p->pid, (unsigned long long)it->object,
			       (unsigned long long)it->value);
		n->mode = MODE_ANY;
		n->wsince = it->age_s;
	}
	e = wg_edge(b, stream, node, WG_EDGE_WAITS_FOR, true,
		    it->has_current
			    ? wg_say(b, "it waits for %llu and the word holds %llu",
				     (unsigned long long)it->value, (unsigned long long)it->current)
			    : "a memory-value wait is at the head of the stream");
	e->since = it->age_s;
	if (!fresh)
		return;
	for (size_t i = 0; i < p->streams.n; i++) {
		const struct wg_stream *o = &p->streams.v[i];

		for (size_t k = 0; k < o->pending.n; k++) {
			const struct wg_gpu_item *w = &o->pending.v[k];

			if (w->op != WG_GPU_WRITE_VALUE || w->object != it->object ||
			    !value_reached(it, w->value))
				continue;
			wg_edge(b, node, wg_stream_node(b, proc, i), WG_EDGE_ENQUEUED_ON, true,
				"the write of that value is behind on this stream");
			break;
		}
	}
	add_writers(b, node, proc, it);
	if (b->n.v[node].nout)
		return; /* who writes it is known */
	/* Whoever else could write it is a thread of the host; a silent one does not. */
	e = wg_edge(b, node, wg_wakers(b, proc), WG_EDGE_WRITTEN_BY, false,
		    "a thread of the host could write it");
	e->guess = e->hidden = true;
	e->idle_cls = CL_GPU_UNSIGNALED;
	e->since = it->age_s;
	wg_set_end(
		b, node, CL_GPU_UNSIGNALED, FATE_STUCK, WG_LIKELY,
		it->has_current
			? wg_say(b,
				 "the word holds %llu, no stream has a write of it queued, and no "
				 "thread that runs would write it",
				 (unsigned long long)it->current)
			: "no stream has a write of it queued, and no thread that runs would write "
			  "it");
}

static void event_targets(struct wg_b *b, uint32_t stream, int32_t proc,
			  const struct wg_gpu_item *it)
{
	const struct wg_process *p = b->pi[proc].p;
	struct wg_iedge *e;
	struct wg_inode *n;
	uint32_t node;
	bool fresh;
	int i;

	node = wg_node(b, IT_EVENT, (uint64_t)proc << 32, it->object, &fresh);
	n = &b->n.v[node];
	if (fresh) {
		n->proc = proc;
		n->label = wg_say(b, "event 0x%llx", (unsigned long long)it->object);
		n->id = wg_say(b, "e:%d:0x%llx", p->pid, (unsigned long long)it->object);
		n->wsince = it->age_s;
	}
	e = wg_edge(b, stream, node, WG_EDGE_WAITS_FOR, true,
		    "an event wait is at the head of the stream");
	e->since = it->age_s;
	if (!fresh)
		return;
	if (it->event_remote) {
		wg_set_end(b, node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "another process should record it");
		b->n.v[node].end.missing = "the process that records a shared event";
		return;
	}
	i = event_stream(p, it);
	if (i < 0) {
		wg_set_end(b, node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "where it was recorded is no longer known");
		b->n.v[node].end.missing = "the stream on which an event was recorded";
		return;
	}
	wg_edge(b, node, wg_stream_node(b, proc, (size_t)i), WG_EDGE_ENQUEUED_ON, true,
		wg_say(b, "it was recorded there as item %llu, and the GPU has reached %llu",
		       (unsigned long long)it->event_seq,
		       (unsigned long long)p->streams.v[i].completed));
}

/* The legacy default stream and the blocking streams of its device wait for each other. */
static bool legacy_order(struct wg_b *b, uint32_t node, int32_t proc, const struct wg_stream *s,
			 const struct wg_gpu_item *head)
{
	const struct wg_process *p = b->pi[proc].p;
	bool legacy = s->handle <= 1, any = false;

	if (!head || !wg_has_sec(head->age_s) || (!legacy && s->flags & 1))
		return false;
	for (size_t i = 0; i < p->streams.n; i++) {
		const struct wg_stream *o = &p->streams.v[i];

		if (o == s || o->device != s->device || !o->pending.n || o->flags & 1)
			continue;
		if (legacy == (o->handle <= 1))
			continue;
		if (!wg_has_sec(o->pending.v[0].age_s) || o->pending.v[0].age_s <= head->age_s)
			continue;
		wg_edge(b, node, wg_stream_node(b, proc, i), WG_EDGE_WAITS_FOR, true,
			"the default stream and blocking streams run in the order given, and older "
			"work "
			"is unfinished there");
		any = true;
	}
	return any;
}

static void resolve_stream(struct wg_b *b, int32_t proc, size_t ix)
{
	const struct wg_process *p = b->pi[proc].p;
	const struct wg_stream *s = &p->streams.v[ix];
	uint32_t node = wg_stream_node(b, proc, ix), t;
	const struct wg_gpu_item *it;
	struct wg_iedge *e;
	bool sure;
	int h;

	if (s->completed_delta > 0) {
		wg_set_end(b, node, CL_BUSY_GPU, FATE_MOVING, WG_CERTAIN,
			   wg_say(b, "the GPU finished %llu things on it between the two looks",
				  (unsigned long long)s->completed_delta));
		return;
	}
	h = wg_stream_head(b, proc, s, &sure);
	it = h >= 0 ? &s->pending.v[h] : NULL;
	if (legacy_order(b, node, proc, s, it))
		return;
	if (!it) {
		wg_set_end(b, node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   s->pending_truncated ? "what is at its head is no longer in the record"
						: "nothing that could hold it up is in the record");
		b->n.v[node].end.missing = "what the GPU is doing on this stream";
		return;
	}
	switch (it->op) {
	case WG_GPU_WAIT_VALUE:
		value_targets(b, node, proc, it);
		return;
	case WG_GPU_WAIT_EVENT:
		event_targets(b, node, proc, it);
		return;
	case WG_GPU_HOSTFN:
		t = callback_thread(b, proc, it, &sure);
		if (t == WG_NONE) {
			wg_set_end(b, node, CL_UNKNOWN,
				   wg_has_sec(run_age(s, it)) && run_age(s, it) < WG_PATIENCE
					   ? FATE_PENDING
					   : FATE_UNKNOWN,
				   WG_GUESS,
				   wg_say(b,
					  "host function%s%s runs for it, and its thread was not "
					  "found",
					  it->name ? " " : "", it->name ? it->name : ""));
			b->n.v[node].end.missing = "the thread that runs the host function";
			return;
		}
		e = wg_edge(b, node, t, WG_EDGE_RUNS, sure,
			    wg_say(b, "host function%s%s is on that thread's stack",
				   it->name ? " " : "", it->name ? it->name : ""));
		e->idle_cls = CL_HOST_CALLBACK;
		e->since = run_age(s, it);
		b->n.v[t].bystander = false;
		return;
	case WG_GPU_COLLECTIVE:
		if (wg_has_int(it->comm) && it->comm >= 0 && (uint64_t)it->comm < p->comms.n &&
		    p->comms.v[it->comm].id) {
			uint32_t cn = wg_collective_node(b, proc, &p->comms.v[it->comm],
							 it->coll_seq, it->p2p);

			e = wg_edge(b, node, cn, WG_EDGE_RUNS, sure,
				    "the collective is at its head");
			e->since = run_age(s, it);
			return;
		}
		kernel_end(b, node, proc, s, it, sure);
		return;
	default:
		kernel_end(b, node, proc, s, it, sure || s->pending.n == 1);
		return;
	}
}

void wg_resolve_streams(struct wg_b *b)
{
	for (uint32_t i = 0; i < b->np; i++) {
		if (b->pi[i].dead)
			continue;
		for (size_t k = 0; k < b->pi[i].p->streams.n; k++)
			if (wg_stream_pending(&b->pi[i].p->streams.v[k]))
				resolve_stream(b, (int32_t)i, k);
	}
}

/* ---- calls ----------------------------------------------------------------------- */

static bool has(const char *s, const char *part)
{
	return s && strstr(s, part);
}

static bool stream_edge(struct wg_ctx *c, int ix, const struct wg_call *call, bool implicit,
			const char *ev)
{
	struct wg_b *b = c->b;
	const struct wg_stream *s;
	struct wg_iedge *e;
	uint32_t node;

	if (ix < 0)
		return false;
	s = &c->p->streams.v[ix];
	node = wg_stream_node(b, c->proc, (size_t)ix);
	e = wg_edge(b, c->node, node, WG_EDGE_WAITS_FOR, !implicit, ev);
	e->since = call->since_s;
	e->implicit = implicit;
	if (!wg_stream_pending(s) && !b->n.v[node].has_end) {
		wg_set_end(b, node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "nothing that the record knows of is left on it");
		b->n.v[node].end.missing = "what the GPU is doing on this stream";
	}
	if (!b->n.v[c->node].wobject)
		b->n.v[c->node].wobject = b->n.v[node].label;
	return true;
}

static size_t all_streams(struct wg_ctx *c, const struct wg_call *call, bool any_device,
			  bool implicit, const char *ev)
{
	size_t n = 0;

	for (size_t i = 0; i < c->p->streams.n; i++) {
		const struct wg_stream *s = &c->p->streams.v[i];

		if (!wg_stream_pending(s))
			continue;
		if (!any_device && wg_has_int(call->device) && wg_has_int(s->device) &&
		    s->device != call->device)
			continue;
		n += stream_edge(c, (int)i, call, implicit, ev);
	}
	return n;
}

static const struct wg_comm *comm_by_handle(const struct wg_process *p, uint64_t handle)
{
	for (size_t i = 0; i < p->comms.n && handle; i++)
		if (p->comms.v[i].handle == handle)
			return &p->comms.v[i];
	return NULL;
}

static bool comm_edge(struct wg_ctx *c, const struct wg_comm *cm, uint64_t seq, bool p2p,
		      double since, const char *ev)
{
	struct wg_iedge *e;
	uint32_t node;

	if (!cm || !cm->id)
		return false;
	node = wg_collective_node(c->b, c->proc, cm, seq, p2p);
	e = wg_edge(c->b, c->node, node, WG_EDGE_MEMBER, true, ev);
	e->since = since;
	c->b->n.v[c->node].wobject = c->b->n.v[node].label;
	return true;
}

static bool resolve_collective_call(struct wg_ctx *c, const struct wg_call *call)
{
	const struct wg_comm *best = NULL;
	const struct wg_collective *at = NULL;

	for (size_t i = 0; i < c->p->comms.n; i++) {
		const struct wg_comm *cm = &c->p->comms.v[i];

		if (call->object && cm->handle && cm->handle != call->object)
			continue;
		for (size_t k = cm->recent.n; k-- > 0;) {
			const struct wg_collective *x = &cm->recent.v[k];

			if (x->state == WG_COLL_DONE || x->failed || x->captured)
				continue;
			if (x->tid && x->tid != c->t->tid)
				continue;
			if (!x->host_blocked && !call->object)
				continue;
			if (!at || (x->host_blocked && !at->host_blocked)) {
				best = cm;
				at = x;
			}
		}
	}
	if (!at)
		return false;
	if (!comm_edge(c, best, at->sequence, at->p2p, call->since_s, "the call in flight"))
		return false;
	/* What it is held in is a launch or allocation of its own: no named synchronisation. */
	if (c->t->calls.v[c->t->calls.n - 1].kind == WG_CALL_LAUNCH)
		c->b->e.v[c->b->e.n - 1].implicit = true;
	return true;
}

static bool resolve_comm_call(struct wg_ctx *c, const struct wg_call *call)
{
	const struct wg_comm *cm = comm_by_handle(c->p, call->object);
	bool init = has(call->function, "Init") || has(call->function, "Split");
	struct wg_b *b = c->b;
	bool any = false;

	if (init || !cm) {
		for (size_t i = 0; i < c->p->comms.n; i++) {
			const struct wg_comm *x = &c->p->comms.v[i];

			if (x->state && !strcmp(x->state, "init") && init)
				any |= comm_edge(c, x, WG_COMM_INIT_SEQ, false, call->since_s,
						 "the initialisation has not returned");
		}
		if (any || init)
			return any;
	}
	if (!cm)
		return false;
	/* Ending a communicator first waits for what is still under way on it. */
	for (size_t k = 0; k < cm->recent.n; k++)
		if (cm->recent.v[k].state != WG_COLL_DONE && !cm->recent.v[k].failed &&
		    !cm->recent.v[k].captured && cm->recent.v[k].sequence >= cm->done)
			return comm_edge(c, cm, cm->recent.v[k].sequence, cm->recent.v[k].p2p,
					 call->since_s,
					 "an unfinished collective of that communicator");
	if (has(call->function, "Finalize") || has(call->function, "Destroy"))
		any = comm_edge(c, cm, WG_COMM_END_SEQ, false, call->since_s,
				"finalising waits for the other ranks");
	(void)b;
	return any;
}

/* Threads of this process that are inside an unnamed synchronisation hold the context. */
static bool behind_others(struct wg_ctx *c, const struct wg_call *call)
{
	struct wg_b *b = c->b;
	bool any = false;

	for (uint32_t i = 0; i < c->p->threads.n; i++) {
		const struct wg_thread *o = &c->p->threads.v[i];
		const struct wg_call *oc = o->calls.n ? &o->calls.v[o->calls.n - 1] : NULL;
		struct wg_iedge *e;

		if (o == c->t || !oc || oc->kind == WG_CALL_SYNC)
			continue;
		/* The one that came first is inside; who came later waits for it. */
		if (!wg_has_sec(oc->since_s) || !wg_has_sec(call->since_s) ||
		    oc->since_s <= call->since_s)
			continue;
		if (oc->kind != WG_CALL_MODULE && oc->kind != WG_CALL_LAUNCH &&
		    oc->kind != WG_CALL_FREE && oc->kind != WG_CALL_ALLOC &&
		    oc->kind != WG_CALL_PIN && oc->kind != WG_CALL_CONTEXT)
			continue;
		e = wg_edge(b, c->node, b->pi[c->proc].tbase + i, WG_EDGE_HELD_BY, false,
			    wg_say(b, "it is inside %s since before: the context is taken",
				   oc->function ? oc->function : "a CUDA call"));
		e->since = call->since_s;
		e->implicit = true;
		any = true;
	}
	return any;
}

static void young_or_unknown(struct wg_ctx *c, const struct wg_call *call, bool young)
{
	struct wg_b *b = c->b;

	if (young) {
		wg_set_end(b, c->node, CL_PROGRESSING, FATE_MOVING, WG_LIKELY,
			   wg_say(b, "it has been in %s for only %s",
				  call->function ? call->function : "the call",
				  wg_secs(b, call->since_s)));
		return;
	}
	wg_set_end(
		b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
		wg_say(b, "it has been in %s for %s, and what that waits for is not in the record",
		       call->function ? call->function : "a CUDA call", wg_secs(b, call->since_s)));
	b->n.v[c->node].end.missing =
		wg_say(b, "what %s waits for", call->function ? call->function : "the CUDA call");
}

static bool resolve_call(struct wg_ctx *c, const struct wg_call *call, bool inner)
{
	struct wg_b *b = c->b;
	const struct wg_process *p = c->p;
	const char *fn = call->function ? call->function : "";
	struct wg_inode *n = &b->n.v[c->node];
	bool young = wg_has_sec(call->since_s) &&
		     call->since_s < (b->f->interval_s > 0.3 ? b->f->interval_s : 0.3);
	const struct wg_env *blocking = wg_env_of(p, "CUDA_LAUNCH_BLOCKING");
	int s = call->has_stream ? find_stream(p, call->stream, call->device, c->t->tid) : -1;
	bool query = has(fn, "Query") && !has(fn, "MemInfo");

	n->mode = MODE_ALL;
	switch (call->kind) {
	case WG_CALL_SYNC:
		if (call->event_known) {
			if (!call->event_recorded) {
				young_or_unknown(c, call, young);
				return true;
			}
			if (call->event_remote) {
				wg_set_end(
					b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
					"it waits for an event that another process should record");
				b->n.v[c->node].end.missing =
					"the process that records a shared event";
				return true;
			}
			if (!wg_has_int(call->event_stream_ix))
				s = find_stream(p, call->event_stream, call->event_device, 0);
			else if (call->event_stream_ix >= 0 &&
				 (uint64_t)call->event_stream_ix < p->streams.n)
				s = (int)call->event_stream_ix;
			if (s >= 0 && p->streams.v[s].completed >= call->event_seq) {
				young_or_unknown(c, call, young);
				return true;
			}
			return stream_edge(c, s, call, false,
					   "the event was recorded on that stream");
		}
		if (call->has_stream) {
			if (s >= 0 && !wg_stream_pending(&p->streams.v[s]) && young) {
				young_or_unknown(c, call, true);
				return true;
			}
			return stream_edge(c, s, call, false, "argument of the call");
		}
		if (all_streams(c, call, false, false,
				"the call waits for all streams of the device"))
			return true;
		if (young) {
			young_or_unknown(c, call, true);
			return true;
		}
		return false;
	case WG_CALL_COPY:
		if (young) {
			young_or_unknown(c, call, true);
			return true;
		}
		if (s < 0)
			s = find_stream(p, 0, call->device, c->t->tid);
		if (s >= 0 && wg_stream_pending(&p->streams.v[s]))
			return stream_edge(c, s, call, true,
					   "a synchronous copy waits for its stream");
		/* On the default stream it waits for every blocking stream. */
		if (all_streams(c, call, false, true,
				"a synchronous copy waits for the device's streams"))
			return true;
		return behind_others(c, call);
	case WG_CALL_LAUNCH:
		if (young) {
			young_or_unknown(c, call, true);
			return true;
		}
		/* The launch inside a collective is not counted before it returns: the collective
		 * is. */
		if (inner && (s < 0 || !wg_stream_pending(&p->streams.v[s])))
			return false;
		if (s >= 0 && p->streams.v[s].enqueued - p->streams.v[s].completed >= 256) {
			n->wdoes = "launches, and the stream's queue is full";
			return stream_edge(c, s, call, true, "the stream's queue is full");
		}
		if (blocking && blocking->value && strcmp(blocking->value, "0") &&
		    blocking->value[0]) {
			n->wdoes = "launches with CUDA_LAUNCH_BLOCKING set";
			return stream_edge(c, s, call, true,
					   "CUDA_LAUNCH_BLOCKING makes the launch wait");
		}
		if (behind_others(c, call))
			return true;
		return all_streams(c, call, false, true,
				   "the launch does not return: it loads code or waits for the "
				   "device") > 0;
	case WG_CALL_ALLOC:
	case WG_CALL_FREE:
	case WG_CALL_MODULE:
	case WG_CALL_PIN:
		if (young) {
			young_or_unknown(c, call, true);
			return true;
		}
		if (behind_others(c, call))
			return true;
		return all_streams(c, call, call->kind == WG_CALL_PIN || call->kind == WG_CALL_FREE,
				   true,
				   "the call waits for work of the GPU, though it is no named "
				   "synchronisation") > 0;
	case WG_CALL_MULTICAST:
		if (young) {
			young_or_unknown(c, call, true);
			return true;
		}
		n->wdoes = "is inside the GPU's driver";
		wg_set_end(b, c->node, CL_DRIVER_BLOCKED,
			   wg_has_sec(call->since_s) && call->since_s < WG_PATIENCE ? FATE_PENDING
										    : FATE_STUCK,
			   WG_LIKELY,
			   wg_say(b,
				  "%s has lasted %s: the driver waits until every GPU of the "
				  "multicast "
				  "group is in (fabric manager, or a process that never came)",
				  fn, wg_secs(b, call->since_s)));
		return true;
	case WG_CALL_COLLECTIVE:
		n->wkind = "nccl";
		return resolve_collective_call(c, call);
	case WG_CALL_COMM:
		n->wkind = "nccl";
		return resolve_comm_call(c, call);
	case WG_CALL_CONTEXT:
		if (young) {
			young_or_unknown(c, call, true);
			return true;
		}
		if (has(fn, "Destroy") || has(fn, "Reset") || has(fn, "Release"))
			return all_streams(c, call, false, true,
					   "ending a context waits for its work") > 0;
		return behind_others(c, call);
	default:
		if (query) {
			/* One look of a poll loop: what it asks about is what it waits for. */
			n->polls_cpu = true;
			n->wdoes = "polls the GPU";
			if (call->event_known && call->event_recorded && !call->event_remote) {
				if (wg_has_int(call->event_stream_ix) &&
				    call->event_stream_ix >= 0 &&
				    (uint64_t)call->event_stream_ix < p->streams.n)
					s = (int)call->event_stream_ix;
				return stream_edge(c, s, call, false,
						   "the event that it asks about");
			}
			return stream_edge(c, s, call, false, "the stream that it asks about");
		}
		if (young) {
			young_or_unknown(c, call, true);
			return true;
		}
		return behind_others(c, call);
	}
}

bool wg_resolve_gpu_call(struct wg_ctx *c)
{
	const struct wg_thread *t = c->t;
	struct wg_b *b = c->b;
	struct wg_inode *n = &b->n.v[c->node];
	const struct wg_call *outer = &t->calls.v[0];
	enum wg_mode mode = n->mode;

	n->wkind = "cuda";
	n->wcall = outer->function;
	n->wdoes = outer->kind == WG_CALL_SYNC ? "synchronises" : "is inside a CUDA call";
	n->wsince = outer->since_s;
	if (outer->kind == WG_CALL_COLLECTIVE || outer->kind == WG_CALL_COMM) {
		n->wkind = "nccl";
		n->wdoes = "is inside an NCCL call";
	}
	/* A lock whose owner is another thread of the program's own says more than the call. */
	if (t->wait.op == WG_OP_FUTEX && wg_still(b, c->p, t) != STILL_NO && wg_futex_owned(c)) {
		b->n.v[c->node].wkind = outer->kind == WG_CALL_COLLECTIVE ? "nccl" : "cuda";
		return true;
	}
	/* Innermost first: a collective's own cudaMalloc may be what blocks. */
	for (size_t i = t->calls.n; i-- > 0;) {
		if (resolve_call(c, &t->calls.v[i],
				 i > 0 && t->calls.v[0].kind == WG_CALL_COLLECTIVE))
			return true;
		if (t->calls.v[i].kind == WG_CALL_OTHER && i + 1 == t->calls.n && i > 0)
			continue;
	}
	n = &b->n.v[c->node];
	n->mode = mode;
	/* Blocked in the kernel on something that has an answer of its own (a file, a lock)? */
	if (t->wait.op == WG_OP_READ || t->wait.op == WG_OP_WRITE || t->wait.op == WG_OP_SYNC ||
	    t->wait.op == WG_OP_FLOCK || t->wait.op == WG_OP_WAIT)
		return false;
	if (wg_has_sec(outer->since_s) && outer->since_s < 0.3) {
		young_or_unknown(c, outer, true);
		return true;
	}
	if (outer->kind == WG_CALL_OTHER && t->wait.op == WG_OP_FUTEX)
		return false;
	young_or_unknown(c, outer, false);
	return true;
}
