/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.c - the verdict for people: what a tired engineer reads first.
 *
 * One label a line of thought, at most 24 lines, so that it fits a terminal that was
 * opened at night beside others. What is cut is said to be cut.
 */
#include "text.h"

#include <stdlib.h>
#include <string.h>

static const struct { const char *name, *words; } classes[] = {
	{ "deadlock", "they wait for each other in a cycle" },
	{ "lock-self", "a thread waits for a lock that it holds itself" },
	{ "lock-orphaned", "the owner of the lock is gone" },
	{ "lock-after-fork", "the lock was held in the parent when this process was forked" },
	{ "no-waker", "nobody left alive can signal it" },
	{ "collective-missing-rank", "not every rank entered the collective" },
	{ "collective-cycle", "ranks wait for each other across communicators" },
	{ "collective-mismatch", "ranks entered different collectives" },
	{ "peer-dead", "the other end is dead" },
	{ "peer-silent", "the other end lives and does not send" },
	{ "gpu-kernel-stuck", "a GPU kernel does not end" },
	{ "gpu-wait-unsignaled", "the GPU waits for a signal that nothing will give" },
	{ "gpu-host-callback", "the GPU waits for a host function that is blocked" },
	{ "oom-swallowed", "a failed GPU allocation was not noticed" },
	{ "pipe-full", "a writer waits for a reader that does not read" },
	{ "write-blocked", "a write waits for storage" },
	{ "read-blocked", "a read waits for storage" },
	{ "file-lock", "a file lock is held elsewhere or was left behind" },
	{ "stopped", "a process is stopped, traced or frozen" },
	{ "implicit-sync", "a CUDA call waits for GPU work that needs the waiting threads" },
	{ "spin-wait", "a thread polls for what does not come" },
	{ "resource-exhausted", "a limit of the system stops it" },
	{ "driver-blocked", "a call does not return from the GPU's kernel driver" },
	{ "busy-cpu", "it computes on the CPU" },
	{ "busy-gpu", "the GPU makes progress" },
	{ "log-buffered", "it works; its output sits in a buffer" },
	{ "idle", "it waits by design" },
	{ "progressing", "it makes progress" },
	{ "unknown", "the evidence does not decide" },
};

static const char *class_words(const char *name)
{
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++)
		if (!strcmp(classes[i].name, name))
			return classes[i].words;
	return NULL;
}

/* ---- the label column ------------------------------------------------------------- */

#define LABEL 10
static const char pad[] = "          ";

/* "chain     1. text", wrapped; the label only in front of the first line of a section. */
static void labelled(struct wg_page *p, const char *label, const char *mark, const char *text,
		     size_t max)
{
	size_t at = p->lines.n;
	char first[64], rest[64];

	snprintf(first, sizeof(first), "%-*s%s", LABEL, label, mark);
	snprintf(rest, sizeof(rest), "%s%*s", pad, (int)strlen(mark), "");
	wg_wrap_cut(p, WG_PLAIN, first, rest, text, max);
	p->lines.v[at].label = *label ? LABEL : 0;
}

const struct wg_process *wg_text_main(const struct wg_graph *g)
{
	const struct wg_facts *f = g->facts;

	for (size_t i = 0; i < f->asked.n; i++)
		for (size_t k = 0; k < f->procs.n; k++)
			if (f->procs.v[k]->pid == f->asked.v[i])
				return f->procs.v[k];
	for (size_t k = 0; k < f->procs.n; k++)
		if (!f->procs.v[k]->stub && !f->procs.v[k]->trace_only)
			return f->procs.v[k];
	return f->procs.n ? f->procs.v[0] : NULL;
}

const char *wg_text_process(struct wg_arena *a, const struct wg_process *p)
{
	const char *name = p->command ? p->command : p->comm ? p->comm : "(command not known)";
	const char *s = wg_fmt(a, "pid %d", p->pid);

	if (wg_has_int(p->rank))
		s = wg_has_int(p->world) && p->world > 1 ?
			    wg_fmt(a, "%s, rank %lld of %lld", s, (long long)p->rank,
				   (long long)p->world) :
			    wg_fmt(a, "%s, rank %lld", s, (long long)p->rank);
	if (!p->alive)
		s = wg_fmt(a, "%s, %s", s, p->trace_only ? "known by its trace only" : "dead");
	else if (wg_has_sec(p->age_s))
		s = wg_fmt(a, "%s, up %s", s, wg_time_text(a, p->age_s));
	return wg_fmt(a, "%s: %s", s, name);
}

static void who(struct wg_page *page, const struct wg_graph *g)
{
	const struct wg_facts *f = g->facts;
	const struct wg_process *p = wg_text_main(g);
	size_t asked = 0, others = 0, threads = 0, hosts = 0;
	const char *s;

	if (!p) {
		labelled(page, "who", "", "no process is known", 1);
		return;
	}
	for (size_t i = 0; i < f->procs.n; i++) {
		const struct wg_process *q = f->procs.v[i];
		bool seen = false;

		for (size_t k = 0; k < q->threads.n; k++)
			threads += !q->threads.v[k].ours;
		if (q->stub)
			others++;
		else
			asked++;
		for (size_t k = 0; k < i; k++)
			seen = seen || (f->procs.v[k]->host && q->host &&
					!strcmp(f->procs.v[k]->host, q->host));
		hosts += !seen && q->host;
	}
	s = wg_text_process(page->arena, p);
	if (asked > 1)
		s = wg_fmt(page->arena, "%zu processes%s, %zu threads%s%s; first %s", asked,
			   hosts > 1 ? wg_fmt(page->arena, " on %zu hosts", hosts) : "", threads,
			   p->from_snapshot ? ", from snapshots" : "",
			   others ? wg_fmt(page->arena, ", and %zu more at the other ends", others) : "",
			   s);
	else if (p->from_snapshot)
		s = wg_fmt(page->arena, "%s (from a snapshot%s)", s,
			   wg_has_sec(p->snapshot_age_s) && p->snapshot_age_s >= 1 ?
				   wg_fmt(page->arena, ", %s old",
					  wg_time_text(page->arena, p->snapshot_age_s)) :
				   "");
	labelled(page, "who", "", s, 2);
}

/* The lines that the chain takes, each step cut to `per`. */
static size_t chain_lines(struct wg_page *page, const struct wg_verdict *v, size_t per, size_t *lines)
{
	size_t total = 0;

	for (size_t i = 0; i < v->chain.n; i++) {
		struct wg_page probe = { .arena = page->arena, .width = page->width };

		labelled(&probe, "", "99. ", v->chain.v[i], per);
		lines[i] = probe.lines.n;
		total += lines[i];
	}
	return total;
}

/*
 * The chain: symptom first. When it is too long its steps are cut to two lines, then its middle
 * goes: both ends matter most.
 */
static void chain(struct wg_page *page, const struct wg_graph *g, size_t budget, bool all)
{
	const struct wg_verdict *v = &g->verdict;
	size_t n = v->chain.n, used = 0, total, per = SIZE_MAX;
	size_t *lines = wg_alloc(page->arena, (n + 1) * sizeof(*lines));
	size_t from = n, to = n, room = budget > 6 ? budget - 3 : budget; /* the rest: evidence */

	total = chain_lines(page, v, per, lines);
	if (!all && total > room) {
		per = 2;
		total = chain_lines(page, v, per, lines);
	}
	/* A whole chain is worth more than a second line of evidence. */
	budget = total < budget ? total : room;
	if (!all && total > budget && n > 2) {
		/* Keep the last two and as many of the first as fit, less a line that says so. */
		used = lines[n - 1] + lines[n - 2] + 1;
		for (from = 0; from < n - 2 && used + lines[from] <= budget; from++)
			used += lines[from];
		to = n - 2;
		if (from >= to)
			from = to = n;
	}
	for (size_t i = 0; i < n; i++) {
		char mark[24];

		if (i == from && from < to) {
			labelled(page, i ? "" : "chain", "    ",
				 wg_fmt(page->arena, "... %zu more step%s: --all", to - from,
					to - from == 1 ? "" : "s"), 1);
			i = to - 1;
			continue;
		}
		snprintf(mark, sizeof(mark), "%zu. ", i + 1);
		labelled(page, i ? "" : "chain", mark, v->chain.v[i], per);
	}
}

static const char *node_name(struct wg_page *page, const struct wg_graph *g, uint32_t i)
{
	const char *s = i < g->nodes.n ? g->nodes.v[i].label : NULL, *of = NULL;
	const struct wg_process *q = wg_text_main(g);

	if (!s)
		return "?";
	/* "thread 17 'x' of python3 (pid 12)": the process is named above. */
	if (q && strstr(s, wg_fmt(page->arena, "(pid %d)", q->pid)))
		for (const char *p = s; (p = strstr(p, " of ")); p += 4)
			of = p;
	return of ? wg_fmt(page->arena, "%.*s", (int)(of - s), s) : wg_cut(page->arena, s, 48);
}

static int by_step(const void *a, const void *b)
{
	const struct wg_edge *x = *(const struct wg_edge *const *)a;
	const struct wg_edge *y = *(const struct wg_edge *const *)b;

	return x->step > y->step ? -1 : x->step < y->step;
}

/*
 * What was seen of the chain's own links, and of nothing else: a process has many waits, and
 * those beside the chain prove nothing about it.
 */
static void evidence(struct wg_page *page, const struct wg_graph *g, size_t budget)
{
	const struct wg_edge **list = wg_alloc(page->arena, (g->edges.n + 1) * sizeof(*list));
	size_t n = 0, shown = 0, start = page->lines.n;

	for (size_t i = 0; i < g->edges.n; i++)
		if (g->edges.v[i].step)
			list[n++] = &g->edges.v[i];
	/* Nearest to the cause first: that is what a doubter asks for. */
	if (n)
		qsort(list, n, sizeof(*list), by_step);
	for (size_t i = 0; i < n && page->lines.n - start < budget; i++) {
		const struct wg_edge *e = list[i];
		size_t left = budget - (page->lines.n - start);
		bool told = !e->evidence || !*e->evidence;

		for (size_t k = 0; k < i && !told; k++) /* one observation can carry several edges */
			told = list[k]->evidence && !strcmp(list[k]->evidence, e->evidence);
		if (told)
			continue;
		labelled(page, shown ? "" : "seen", e->certain ? "- " : "~ ",
			 wg_fmt(page->arena, "%s -> %s: %s", node_name(page, g, e->from),
				node_name(page, g, e->to), e->evidence),
			 left < 2 ? left : 2);
		shown++;
	}
}

static void not_established(struct wg_page *page, const struct wg_graph *g, size_t budget)
{
	const struct wg_verdict *v = &g->verdict;
	size_t start = page->lines.n;

	for (size_t i = 0; i < v->not_established.n; i++) {
		size_t used = page->lines.n - start;

		if (used + 1 >= budget && i + 1 < v->not_established.n) {
			labelled(page, "", "  ",
				 wg_fmt(page->arena, "... and %zu more: --all",
					v->not_established.n - i), 1);
			break;
		}
		labelled(page, i ? "" : "not known", "- ", v->not_established.v[i],
			 budget == SIZE_MAX ? SIZE_MAX : budget - used < 2 ? 1 : 2);
	}
}

const char *wg_text_next(const struct wg_graph *g, bool dump)
{
	const struct wg_process *p = wg_text_main(g);
	const struct wg_culprit *c = &g->verdict.culprit;
	const struct wg_facts *f = g->facts;
	int64_t pid = c->present && wg_has_int(c->pid) ? c->pid : p ? p->pid : WG_NO_INT;
	const struct wg_process *q = NULL;

	for (size_t i = 0; i < f->procs.n && !q; i++)
		if (f->procs.v[i]->pid == pid)
			q = f->procs.v[i];
	if (!q && p) { /* not here to be asked */
		q = p;
		pid = p->pid;
	}
	if (!wg_has_int(pid) || !q || !q->alive || (q->from_snapshot && !q->alive_known)) {
		/* Gone, or on another host: what is left of it. */
		for (size_t i = 0; q && q->trace_path && i < q->devices.n; i++)
			if (q->devices.v[i].failures.n)
				return wg_fmt(g->arena, "waitgraph mem %s", q->trace_path);
		return dump || !p ? NULL : "the same command with --all: every thread and stack";
	}
	/* More rights only where they could change the answer. */
	if (!f->is_root && g->verdict.confidence != WG_CONF_CERTAIN)
		for (size_t i = 0; i < q->missing.n; i++)
			if (q->missing.v[i].remedy && strstr(q->missing.v[i].remedy, "root"))
				return wg_fmt(g->arena, "sudo waitgraph why %lld", (long long)pid);
	if (!dump || (p && pid != p->pid))
		return wg_fmt(g->arena, "waitgraph dump %lld", (long long)pid);
	return wg_fmt(g->arena, "waitgraph dump %lld --all", (long long)pid);
}

void wg_text_head(struct wg_page *page, const struct wg_graph *g, const struct wg_text_options *o,
		  bool dump)
{
	static const char *const sure[] = { "certain", "likely", "a guess" };
	const struct wg_verdict *v = &g->verdict;
	const char *cls = v->class_name ? v->class_name : "unknown", *words = class_words(cls);
	const char *confidence = sure[v->confidence <= WG_CONF_GUESS ? v->confidence : 2];
	const char *next = o->next ? o->next : wg_text_next(g, dump);
	size_t max = o->all ? SIZE_MAX : 0, left;
	struct wg_page tail = { .arena = page->arena, .width = page->width };
	struct wg_page mid = { .arena = page->arena, .width = page->width };

	if (v->hung == WG_HUNG_YES)
		wg_line(page, WG_BAD, "HUNG      %s (%s): %s", cls, confidence, words ? words : "");
	else if (v->hung == WG_HUNG_NO)
		wg_line(page, WG_GOOD, "NOT HUNG  %s (%s): %s", cls, confidence, words ? words : "");
	else
		wg_line(page, WG_DOUBT, "UNDECIDED %s: %s", cls, words ? words : "");
	labelled(page, "what", "", v->summary && *v->summary ? v->summary : "(no summary)",
		 max ? max : 6);
	who(page, g);
	if (v->phase && (o->all || strcmp(v->phase, "running"))) /* running is what one expects */
		labelled(page, "phase", "", v->phase, 1);
	/* The end is composed first: advice and the next command must not fall off. */
	if (v->advice && *v->advice)
		labelled(&tail, "do", "", v->advice, max ? max : 3);
	if (next)
		labelled(&tail, "next", "", next, 2);
	left = page->lines.n + tail.lines.n < WG_HEAD_LINES ?
		       WG_HEAD_LINES - page->lines.n - tail.lines.n : 3;
	not_established(&mid, g, max ? max : v->not_established.n > 1 ? 3 : 2);
	left -= left > mid.lines.n + 3 ? mid.lines.n : 0;
	chain(page, g, left, o->all);
	left = page->lines.n + mid.lines.n + tail.lines.n;
	if (o->all || left < WG_HEAD_LINES)
		evidence(page, g, o->all ? 64 : WG_HEAD_LINES - left < 5 ? WG_HEAD_LINES - left : 5);
	for (size_t i = 0; i < mid.lines.n; i++)
		*wg_push(page->arena, &page->lines) = mid.lines.v[i];
	for (size_t i = 0; i < tail.lines.n; i++)
		*wg_push(page->arena, &page->lines) = tail.lines.v[i];
}

/* Degraded modes, each with its remedy. The same gap in several processes is told once. */
void wg_text_missing(struct wg_page *page, const struct wg_graph *g, size_t budget)
{
	const struct wg_facts *f = g->facts;
	const struct wg_missing **told = NULL;
	size_t ntold = 0, total = f->missing.n, left_out = 0, start = page->lines.n;

	for (size_t i = 0; i < f->procs.n; i++)
		total += f->procs.v[i]->stub ? 0 : f->procs.v[i]->missing.n;
	if (!total)
		return;
	told = wg_alloc(page->arena, total * sizeof(*told));
	for (size_t i = 0; i <= f->procs.n; i++) {
		const struct wg_missing_list *m = i ? &f->procs.v[i - 1]->missing : &f->missing;

		if (i && f->procs.v[i - 1]->stub)
			continue;
		for (size_t k = 0; k < m->n; k++) {
			const struct wg_missing *x = &m->v[k];
			bool dup = false;

			for (size_t j = 0; j < ntold; j++)
				dup = dup || (!strcmp(told[j]->what, x->what) &&
					      !strcmp(told[j]->why, x->why));
			if (dup)
				continue;
			told[ntold++] = x;
			if (page->lines.n - start >= budget) {
				left_out++;
				continue;
			}
			labelled(page, ntold == 1 ? "missing" : "", "- ",
				 x->remedy ? wg_fmt(page->arena, "%s: %s. Remedy: %s", x->what,
						    x->why, x->remedy) :
					     wg_fmt(page->arena, "%s: %s", x->what, x->why),
				 budget == SIZE_MAX ? SIZE_MAX : 2);
		}
	}
	if (left_out)
		labelled(page, "", "  ", wg_fmt(page->arena, "... and %zu more: --all", left_out), 1);
}

static int width_of(const struct wg_text_options *o)
{
	return !o->width ? 100 : o->width < 40 ? 40 : o->width;
}

int wg_render_why(FILE *out, const struct wg_graph *g, const struct wg_text_options *o)
{
	struct wg_page page = { .arena = g->arena, .width = width_of(o) };

	wg_text_head(&page, g, o, false);
	if (o->all) {
		wg_text_body(&page, g, o);
		wg_line(&page, WG_PLAIN, "%s", "");
	}
	wg_text_missing(&page, g, o->all ? SIZE_MAX : 8);
	return wg_page_print(out, &page, o->color);
}

int wg_render_dump(FILE *out, const struct wg_graph *g, const struct wg_text_options *o)
{
	struct wg_page page = { .arena = g->arena, .width = width_of(o) };

	wg_text_head(&page, g, o, true);
	wg_text_body(&page, g, o);
	wg_line(&page, WG_PLAIN, "%s", "");
	wg_text_missing(&page, g, o->all ? SIZE_MAX : 24);
	return wg_page_print(out, &page, o->color);
}
