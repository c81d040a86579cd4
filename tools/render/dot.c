/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dot.c - the wait-graph for graphviz. Threads that wait by design and have no edge to
 * anything else become one box for each process: 200 pool workers are no picture.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "involved.h"
#include "page.h"

static const struct { const char *shape, *color; } looks[] = {
	[WG_NODE_THREAD] = { "box", "#dbe9ff" },
	[WG_NODE_LOCK] = { "diamond", "#ffe0b3" },
	[WG_NODE_EVENT] = { "ellipse", "#e8e8e8" },
	[WG_NODE_STREAM] = { "cds", "#d9f2d9" },
	[WG_NODE_COLLECTIVE] = { "hexagon", "#e6d9f2" },
	[WG_NODE_FILE] = { "note", "#fff7cc" },
	[WG_NODE_PIPE] = { "rarrow", "#fff7cc" },
	[WG_NODE_SOCKET] = { "ellipse", "#fff7cc" },
	[WG_NODE_PROCESS] = { "box3d", "#f2f2f2" },
	[WG_NODE_FILE_LOCK] = { "diamond", "#fff7cc" },
	[WG_NODE_GIL] = { "diamond", "#ffd1d1" },
};

/* A dot string: quotes and backslashes escaped, wrapped. */
static void quoted(FILE *out, struct wg_arena *a, const char *s, int width)
{
	struct wg_page page = { .arena = a, .width = width };

	wg_wrap_cut(&page, WG_PLAIN, "", "", s && *s ? s : "?", 5);
	fputc('"', out);
	for (size_t i = 0; i < page.lines.n; i++) {
		if (i)
			fputs("\\n", out);
		for (const char *c = page.lines.v[i].text; *c; c++) {
			if (*c == '"' || *c == '\\')
				fputc('\\', out);
			fputc(*c, out);
		}
	}
	fputc('"', out);
}

static int by_thread(const void *a, const void *b)
{
	const struct wg_thread *x = (*(const struct wg_wait_view *const *)a)->thread;
	const struct wg_thread *y = (*(const struct wg_wait_view *const *)b)->thread;

	return x < y ? -1 : x > y;
}

static const struct wg_wait_view *view_of(const struct wg_wait_view **sorted, size_t n,
					  const struct wg_thread *t)
{
	struct wg_wait_view key = { .thread = t };
	const struct wg_wait_view *k = &key, **at;

	at = n ? bsearch(&k, sorted, n, sizeof(*sorted), by_thread) : NULL;
	return at ? *at : NULL;
}

static bool culprit(const struct wg_graph *g, const struct wg_node *n)
{
	const struct wg_culprit *c = &g->verdict.culprit;

	if (!c->present)
		return false;
	if (n->thread)
		return n->thread->tid == c->tid && n->thread->pid == c->pid;
	return n->kind == WG_NODE_PROCESS && n->process && n->process->pid == c->pid &&
	       !wg_has_int(c->tid);
}

int wg_render_dot(FILE *out, const struct wg_graph *g)
{
	struct wg_arena *a = g->arena;
	size_t *degree = wg_alloc(a, (g->nodes.n + 1) * sizeof(*degree));
	bool *hidden = wg_alloc(a, g->nodes.n + 1);
	const struct wg_facts *f = g->facts;
	const struct wg_verdict *v = &g->verdict;
	const bool *idle = wg_idle_threads(g, a);
	const struct wg_wait_view **sorted = wg_alloc(a, (g->waits.n + 1) * sizeof(*sorted));

	for (size_t i = 0; i < g->waits.n; i++)
		sorted[i] = &g->waits.v[i];
	if (g->waits.n)
		qsort(sorted, g->waits.n, sizeof(*sorted), by_thread);
	errno = 0;
	for (size_t i = 0; i < g->edges.n; i++)
		if (g->edges.v[i].from < g->nodes.n && g->edges.v[i].to < g->nodes.n) {
			degree[g->edges.v[i].from]++;
			degree[g->edges.v[i].to]++;
		}
	for (size_t i = 0; i < g->nodes.n; i++) {
		const struct wg_node *n = &g->nodes.v[i];
		const struct wg_wait_view *w = n->thread ? view_of(sorted, g->waits.n, n->thread) : NULL;

		hidden[i] = n->kind == WG_NODE_THREAD && n->thread && !culprit(g, n) &&
			    (n->thread->ours || !degree[i] || (w && idle[w - g->waits.v] && degree[i] < 2));
	}
	fputs("digraph waitgraph {\n\trankdir=LR; nodesep=0.25; ranksep=0.6; compound=true;\n"
	      "\tfontname=\"sans-serif\"; labelloc=t; labeljust=l;\n"
	      "\tnode [fontname=\"sans-serif\", fontsize=10, style=filled, color=\"#808080\"];\n"
	      "\tedge [fontname=\"sans-serif\", fontsize=9];\n\tlabel=", out);
	quoted(out, a, wg_fmt(a, "%s (%s): %s", v->class_name ? v->class_name : "unknown",
			      v->hung == WG_HUNG_YES  ? "hung" :
			      v->hung == WG_HUNG_NO   ? "not hung" :
							"undecided",
			      v->summary ? v->summary : ""), 110);
	fputs(";\n", out);
	for (size_t p = 0; p <= f->procs.n; p++) {
		const struct wg_process *q = p < f->procs.n ? f->procs.v[p] : NULL;
		size_t nrest = 0, any = 0;

		for (size_t i = 0; i < g->nodes.n; i++)
			any += g->nodes.v[i].process == q;
		if (!any)
			continue;
		if (q) {
			fprintf(out, "\tsubgraph cluster_%zu {\n\t\tcolor=\"#b0b0b0\"; label=", p);
			quoted(out, a, wg_fmt(a, "pid %d%s%s", q->pid,
					      wg_has_int(q->rank) ?
						      wg_fmt(a, ", rank %lld", (long long)q->rank) :
						      "",
					      q->alive ? "" : " (dead)"), 60);
			fputs(";\n", out);
		}
		for (size_t i = 0; q && i < q->threads.n; i++)
			nrest += !q->threads.v[i].ours;
		for (size_t i = 0; i < g->nodes.n; i++) {
			const struct wg_node *n = &g->nodes.v[i];
			size_t kind = n->kind < sizeof(looks) / sizeof(looks[0]) ? n->kind : 0;

			if (n->process != q)
				continue;
			if (hidden[i])
				continue;
			nrest -= n->thread && !n->thread->ours && n->kind == WG_NODE_THREAD;
			fprintf(out, "\t\tn%zu [shape=%s, fillcolor=\"%s\"%s, label=", i,
				looks[kind].shape, looks[kind].color,
				culprit(g, n) ? ", color=red, penwidth=3" : "");
			quoted(out, a, n->label ? n->label : n->id, 40);
			fputs("];\n", out);
		}
		if (nrest)
			fprintf(out,
				"\t\trest%zu [shape=box, style=\"filled,dashed\", "
				"fillcolor=\"#f7f7f7\", label=\"%zu more thread%s without a part in it\"];\n",
				p, nrest, nrest == 1 ? "" : "s");
		if (q)
			fputs("\t}\n", out);
	}
	for (size_t i = 0; i < g->edges.n; i++) {
		const struct wg_edge *e = &g->edges.v[i];

		if (e->from >= g->nodes.n || e->to >= g->nodes.n || hidden[e->from] || hidden[e->to])
			continue;
		fprintf(out, "\tn%u -> n%u [label=", e->from, e->to);
		quoted(out, a, wg_has_sec(e->since_s) ?
				       wg_fmt(a, "%s, %s", wg_edge_kind_names[e->kind],
					      wg_time_text(a, e->since_s)) :
				       wg_edge_kind_names[e->kind], 40);
		fprintf(out, "%s%s, edgetooltip=", e->certain ? "" : ", style=dashed",
			e->step ? ", color=\"#c00000\", penwidth=2" : "");
		quoted(out, a, e->evidence, 60);
		fputs("];\n", out);
	}
	fputs("}\n", out);
	if (fflush(out) || ferror(out))
		return errno ? -errno : -EIO;
	return 0;
}
