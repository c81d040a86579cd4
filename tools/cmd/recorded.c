/* SPDX-License-Identifier: Apache-2.0 */
/* recorded.c - the table of recorded processes (see recorded.h). */
#include "recorded.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../collect/sources.h"
#include "../render/page.h"
#include "../snapshot.h"

const char *const wg_recorded_sort_names[] = { "oldest wait", "pid", "rank", "last progress",
					       "least free" };

static int each(const char *path, void *arg)
{
	struct wg_recorded_list *l = arg;
	struct wg_process *p;
	const char *why;

	switch (wg_rec_add_process(l->f, path, true, &p, &why)) {
	case 0:
	case -ESTALE: /* of another process, or from before its exec */
	case -ENOENT: /* it ended meanwhile */
		break;
	default:
		l->refused++;
		wg_add_missing(l->f, NULL, path, why ? why : "cannot be read", NULL);
	}
	return 0;
}

static void add_row(struct wg_recorded_list *l, const struct wg_process *p)
{
	struct wg_recorded *r = wg_push(l->f->arena, &l->rows);

	r->p = p;
	r->rank = p->rank;
	r->calls_per_s = WG_NO_SEC;
	for (size_t i = 0; i < p->devices.n; i++) {
		const struct wg_device *d = &p->devices.v[i];

		if (wg_has_int(d->free) && (!r->tightest || d->free < r->tightest->free))
			r->tightest = d;
	}
	for (size_t i = 0; i < p->threads.n; i++) {
		const struct wg_thread *t = &p->threads.v[i];

		if (t->ours || !t->calls.n || !wg_has_sec(t->calls.v[0].since_s))
			continue;
		if (!r->wait || t->calls.v[0].since_s > r->wait->since_s) {
			r->waiter = t;
			r->wait = &t->calls.v[0];
		}
	}
	for (size_t i = 0; i < p->streams.n; i++)
		r->behind += p->streams.v[i].enqueued - p->streams.v[i].completed;
	for (size_t i = 0; i < p->comms.n; i++)
		if (wg_has_int(p->comms.v[i].size) &&
		    (!r->comm || p->comms.v[i].size > r->comm->size))
			r->comm = &p->comms.v[i];
	if (!wg_has_int(r->rank) && r->comm)
		r->rank = r->comm->rank;
}

int wg_recorded_load(struct wg_recorded_list *l, const char *dir, const char **why)
{
	struct timespec now;
	char host[256] = "";
	int rc = 0;

	memset(l, 0, sizeof(*l));
	*why = NULL;
	l->f = wg_facts_new();
	if (dir) {
		rc = wg_snapshot_load(l->f, &dir, 1, why);
	} else {
		l->f->live = true;
		rc = wg_rec_list(l->f, each, l);
		clock_gettime(CLOCK_REALTIME, &now);
		l->f->taken_at = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
	}
	gethostname(host, sizeof(host) - 1);
	if (!l->f->host)
		l->f->host = wg_str(l->f->arena, host);
	for (size_t i = 0; !rc && i < l->f->procs.n; i++)
		if (!l->f->procs.v[i]->stub && l->f->procs.v[i]->recorded)
			add_row(l, l->f->procs.v[i]);
	wg_recorded_sort(l, WG_SORT_RANK);
	return rc;
}

void wg_recorded_free(struct wg_recorded_list *l)
{
	wg_facts_free(l->f);
	l->f = NULL;
}

static _Thread_local enum wg_recorded_sort sort_by;

static int descending(double a, double b)
{
	if (!wg_has_sec(a) || !wg_has_sec(b))
		return (int)!wg_has_sec(a) - (int)!wg_has_sec(b);
	return a > b ? -1 : a < b;
}

static int order(const void *x, const void *y)
{
	const struct wg_recorded *a = x, *b = y;
	int c = 0;

	if (a->p->alive != b->p->alive)
		return a->p->alive ? -1 : 1;
	switch (sort_by) {
	case WG_SORT_WAIT:
		c = descending(a->wait ? a->wait->since_s : WG_NO_SEC,
			       b->wait ? b->wait->since_s : WG_NO_SEC);
		break;
	case WG_SORT_PROGRESS:
		c = descending(a->p->progress_age_s, b->p->progress_age_s);
		break;
	case WG_SORT_FREE:
		c = descending(a->tightest ? -(double)a->tightest->free : WG_NO_SEC,
			       b->tightest ? -(double)b->tightest->free : WG_NO_SEC);
		break;
	case WG_SORT_RANK:
		if (a->rank != b->rank)
			c = wg_has_int(a->rank) && (!wg_has_int(b->rank) || a->rank < b->rank) ? -1 : 1;
		break;
	default:
		break;
	}
	return c ? c : a->p->pid < b->p->pid ? -1 : a->p->pid > b->p->pid;
}

void wg_recorded_sort(struct wg_recorded_list *l, enum wg_recorded_sort by)
{
	sort_by = by;
	if (l->rows.n)
		qsort(l->rows.v, l->rows.n, sizeof(*l->rows.v), order);
}

static const char *devices_text(struct wg_arena *a, const struct wg_process *p)
{
	int64_t *index = wg_alloc(a, (p->devices.n + 1) * sizeof(*index));
	size_t n = 0;

	for (size_t i = 0; i < p->devices.n; i++)
		if (wg_has_int(p->devices.v[i].index))
			index[n++] = p->devices.v[i].index;
	return n ? wg_ranges_text(a, index, n) : "-";
}

/* The name without where it lies; arguments stay. */
static const char *short_command(const char *command)
{
	size_t n = strcspn(command, " ");

	for (const char *c = command + n; c > command; c--)
		if (c[-1] == '/')
			return c;
	return command;
}

const char *wg_recorded_line(struct wg_recorded_list *l, const struct wg_recorded *r, int width)
{
	struct wg_arena *a = l->f->arena;
	const char *wait = "-", *free_text = "-", *state, *command;
	const struct wg_process *p;
	bool narrow = width < 130; /* what tells processes apart has to fit, too */

	if (!r)
		return wg_cut(a, narrow ? wg_fmt(a, "%8s %4s %-7s %-5s %8s %11s  %-24s %s", "PID", "RANK",
						 "STATE", "GPU", "HEADROOM", "PROGRESS",
						 "OLDEST CALL", "COMMAND") :
					  wg_fmt(a, "%8s %5s %-8s %-5s %17s %11s  %-30s %s", "PID",
						 "RANK", "STATE", "GPU", "HEADROOM", "PROGRESS",
						 "OLDEST CALL", "COMMAND"), width);
	p = r->p;
	if (r->tightest)
		free_text = wg_has_int(r->tightest->total) && !narrow ?
				    wg_fmt(a, "%s/%s", wg_bytes_text(a, r->tightest->free),
					   wg_bytes_text(a, r->tightest->total)) :
				    wg_bytes_text(a, r->tightest->free);
	if (r->wait) {
		const char *since = wg_time_text(a, r->wait->since_s);
		int room = narrow ? 23 - (int)strlen(since) : 20;

		wait = wg_fmt(a, "%s %s", wg_cut(a, r->wait->function ? r->wait->function : "?", room),
			      since);
	}
	state = !p->alive	    ? "dead" :
		p->state == 'T'	    ? "stopped" :
		p->state == 't'	    ? "traced" :
		p->from_snapshot    ? narrow ? "saved" : "snapshot" :
		!p->alive_known	    ? "?" :
				      "alive";
	command = !p->command ? "-" : narrow ? short_command(p->command) : p->command;
	return wg_cut(a,
		      wg_fmt(a, narrow ? "%8d %4s %-7s %-5s %8s %11s  %-24s %s" :
					 "%8d %5s %-8s %-5s %17s %11s  %-30s %s",
			     p->pid, wg_has_int(r->rank) ? wg_fmt(a, "%lld", (long long)r->rank) : "-",
			     state, devices_text(a, p), free_text,
			     wg_has_sec(p->progress_age_s) ? wg_time_text(a, p->progress_age_s) : "-",
			     wait, command), width);
}
