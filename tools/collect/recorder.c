/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.c - facts from one recorder file (format: preload/recorder.h).
 *
 * The file is written by the process it tells about, so it is hostile input. The
 * reader never maps it: a hostile owner could truncate it under a mapping and kill
 * the reader with SIGBUS. It copies the used part of each section with pread() and
 * works on the copy. What is being written meanwhile is read twice and taken only
 * when both copies agree.
 */
#include "recorder_priv.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- the whole --------------------------------------------------------------------------- */

static void fill_env(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	const struct wg_rec_sec *s = &r->sec[WGREC_ENV];
	uint64_t i = 0;

	if (wg_rec_load(r, WGREC_ENV) || s->entry_size != 1)
		return;
	while (i < s->n && p->env.n < 512) {
		size_t n = strnlen((char *)s->data + i, s->n - i);
		char *eq = memchr(s->data + i, '=', n);
		bool known = false;

		if (eq && eq != (char *)s->data + i) {
			size_t k = (size_t)(eq - ((char *)s->data + i));
			const char *name = wg_strn(f->arena, (char *)s->data + i, k);

			for (size_t j = 0; j < p->env.n; j++)
				known = known || !strcmp(p->env.v[j].name, name);
			if (!known) {
				struct wg_env *e = wg_push(f->arena, &p->env);

				e->name = name;
				e->value = wg_strn(f->arena, eq + 1, n - k - 1);
			}
		}
		i += n + 1;
	}
}

static void fill_notes(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	wg_rec_load(r, WGREC_NOTES);
	for (uint64_t i = 0; i < r->sec[WGREC_NOTES].n && i < 256; i++) {
		struct wgrec_note e;
		const char *text;

		wg_rec_entry(r, WGREC_NOTES, i, &e, sizeof(e));
		text = wg_rec_fixed(f, e.text, sizeof(e.text));
		if (!e.count || !text)
			continue;
		*wg_push(f->arena, &p->notes) = e.count > 1
							? wg_fmt(f->arena, "%s (%llu times)", text,
								 (unsigned long long)e.count)
							: text;
	}
	if (r->h.flags & WGREC_F_DEEPBIND)
		wg_add_missing(
			f, p, "some CUDA or NCCL calls",
			"a library was loaded with RTLD_DEEPBIND or dlmopen, which goes past "
			"preloading: its calls may be unseen",
			NULL);
	static const struct {
		size_t at;
		const char *what;
	} lost[] = {
		{offsetof(struct wgrec_header, lost_threads), "threads in the record"},
		{offsetof(struct wgrec_header, lost_streams), "streams in the record"},
		{offsetof(struct wgrec_header, lost_events), "events in the record"},
		{offsetof(struct wgrec_header, lost_items), "things given to streams"},
		{offsetof(struct wgrec_header, lost_comms), "communicators in the record"},
		{offsetof(struct wgrec_header, trace_lost), "events of the trace"},
	};
	for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
		uint64_t n;

		memcpy(&n, (char *)&r->h + lost[i].at, sizeof(n));
		if (n)
			wg_add_missing(f, p, lost[i].what,
				       wg_fmt(f->arena, "%llu lost: the recorder's table was full",
					      (unsigned long long)n),
				       NULL);
	}
	if (r->h.flags & WGREC_F_CUDA_UP && !(r->h.flags & WGREC_F_POSITIONS))
		wg_add_missing(f, p, "position of the GPU",
			       "CUDA did not take the recorder's page: only synchronisations that "
			       "returned prove progress",
			       NULL);
}

static void fill_progress(struct wg_process *p, struct wg_rec *r, uint64_t last_launch,
			  uint64_t calls_sum)
{
	uint64_t last = r->h.last_call_end > last_launch ? r->h.last_call_end : last_launch;
	uint64_t calls = calls_sum > r->h.calls ? calls_sum : r->h.calls;

	p->progress_age_s = wg_rec_age(r, last);
	p->longest_sync_s = r->h.longest_sync ? wg_rec_span(r, r->h.longest_sync) : WG_NO_SEC;
	p->calls = wg_rec_bytes(calls);
}

static void fill_changing(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
			  struct wg_mem *m, struct wg_symbols *s)
{
	uint64_t last_launch = 0, sum;

	wg_rec_load(r, WGREC_NAMES);
	wg_rec_load(r, WGREC_STRINGS);
	wg_rec_fill_comms(f, p, r);
	wg_rec_fill_streams(f, p, r, m, s);
	wg_rec_fill_collectives(f, p, r);
	sum = wg_rec_fill_threads(f, p, r, &last_launch); /* after the streams: calls name events */
	wg_rec_awaited(p, r);
	fill_progress(p, r, last_launch, sum);
	if (r->first_done)
		p->calls_delta = sum >= r->calls_sum ? (int64_t)(sum - r->calls_sum) : 0;
	else
		r->calls_sum = sum;
}

int wg_rec_collect(struct wg_facts *f, struct wg_process *p, struct wg_rec *r, struct wg_mem *m,
		   struct wg_symbols *s)
{
	bool dead = !p->threads.n;

	p->recorded = true;
	wg_add_source(f, p, "recorder");
	p->cuda_up = p->cuda_up || r->h.flags & WGREC_F_CUDA_UP;
	p->forked = p->forked || r->h.flags & WGREC_F_FORKED;
	if (r->h.flags & WGREC_F_EXITING && !p->phase)
		p->phase = "teardown";
	if (!wg_has_int(p->rank) && r->h.rank >= 0) {
		p->rank = r->h.rank;
		p->rank_source = wg_rec_fixed(f, r->h.rank_source, sizeof(r->h.rank_source));
	}
	if (!wg_has_int(p->world) && r->h.world > 0)
		p->world = r->h.world;
	if (!p->command)
		p->command = wg_rec_fixed(f, r->h.command, sizeof(r->h.command));
	if (!p->host)
		p->host = wg_rec_fixed(f, r->h.host, sizeof(r->h.host));
	if (!p->boot)
		p->boot = wg_rec_fixed(f, r->h.boot_id, sizeof(r->h.boot_id));
	p->state_dir = wg_rec_fixed(f, r->h.dir, sizeof(r->h.dir));
	p->trace_path = wg_rec_fixed(f, r->h.trace_path, sizeof(r->h.trace_path));
	fill_env(f, p, r);
	fill_notes(f, p, r);
	wg_rec_fill_devices(f, p, r);
	fill_changing(f, p, r, m, s);
	if (dead)
		for (size_t i = 0; i < p->threads.n; i++)
			p->threads.v[i].state = 0;
	if (wg_rec_add_failures(f, p, r) && s)
		wg_stacks_symbolize(f, p, s);
	wg_rec_peers(f, p, &r->h);
	/* What the second sample is compared with. */
	r->nfirst = r->sec[WGREC_STREAMS].n;
	r->first = calloc(r->nfirst + 1, sizeof(*r->first));
	for (uint64_t i = 0; r->first && i < r->nfirst; i++) {
		struct wgrec_stream e;
		bool pos;

		wg_rec_entry(r, WGREC_STREAMS, i, &e, sizeof(e));
		r->first[i].completed = wg_rec_reached(r, &e, &pos);
		r->first[i].enqueued = e.enqueued;
	}
	if (!r->first)
		r->nfirst = 0;
	r->first_done = true;
	return 0;
}

int wg_rec_again(struct wg_facts *f, struct wg_process *p, struct wg_rec *r, double gap_s)
{
	const char *why = NULL;
	int rc = wg_rec_load_header(r, &why);

	(void)gap_s;
	if (rc) {
		wg_add_missing(f, p, "second look at the recorder", why ? why : strerror(-rc),
			       NULL);
		return 0;
	}
	free(r->fn_names); /* its size follows the table's */
	r->fn_names = NULL;
	wg_rec_fill_devices(f, p, r);
	fill_changing(f, p, r, NULL, NULL);
	wg_rec_add_failures(f, p, r);
	return 0;
}
