/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - see report.h. */
#include "report.h"

#include <errno.h>
#include <glob.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define POINTS 2000  /* of a curve */
#define STALLS 200
#define FLAME_SITES 400
#define FLAME_NODES 4000
#define ROWS 40
#define PROCESSES 64
#define WIDTH 1060.0 /* of the drawings, in their own units */
#define HEIGHT 220.0

static void esc(FILE *out, const char *s)
{
	for (; s && *s; s++) {
		switch (*s) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		case '\'':
			fputs("&#39;", out);
			break;
		default:
			fputc(*s, out);
		}
	}
}

/* ---- curves -------------------------------------------------------------------------- */

struct point {
	double at;
	uint64_t v;
};

struct curve { /* thinned out by halves as it grows; each stretch keeps its worst value */
	struct point v[POINTS];
	size_t n;
	unsigned int stride, pending; /* values that one point stands for; how many it has */
	bool keep_least;
};

static void point(struct curve *c, double at, uint64_t v)
{
	struct point *last = c->n ? &c->v[c->n - 1] : NULL;

	if (last && c->pending < c->stride) {
		if (c->keep_least ? v < last->v : v > last->v)
			last->v = v;
		c->pending++;
		return;
	}
	if (c->n == POINTS) {
		for (size_t i = 0; i < POINTS / 2; i++) {
			struct point a = c->v[2 * i], b = c->v[2 * i + 1];

			if (c->keep_least ? b.v < a.v : b.v > a.v)
				a.v = b.v;
			c->v[i] = a;
		}
		c->n = POINTS / 2;
		c->stride *= 2;
	}
	c->v[c->n].at = at;
	c->v[c->n++].v = v;
	c->pending = 1;
}

struct stall {
	double at, seconds;
	uint32_t tid;
	const char *function;
};

struct gathered {
	struct wgm_analysis *a;
	struct curve *own[WGTR_DEVICES], *free[WGTR_DEVICES];
	struct stall stalls[STALLS]; /* the longest */
	size_t nstalls;
};

static struct curve *new_curve(bool least)
{
	struct curve *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	c->stride = 1;
	c->keep_least = least;
	return c;
}

static void on_block(void *arg, const struct wgm_block *b)
{
	struct gathered *g = arg;

	if (b->device < 0 || b->own == WGM_NONE || b->from_before)
		return;
	if (!g->own[b->device])
		g->own[b->device] = new_curve(false);
	point(g->own[b->device], b->at_s, b->own);
}

static int longest_first(const void *a, const void *b)
{
	const struct stall *x = a, *y = b;

	return x->seconds < y->seconds ? 1 : x->seconds > y->seconds ? -1 : 0;
}

static void on_event(void *arg, const struct wgm_event *e, double at_s)
{
	struct gathered *g = arg;
	struct wgm_trace *t = g->a->t;

	if (e->tag == WGTR_E_SAMPLE && e->v[0] < WGTR_DEVICES) {
		if (!g->free[e->v[0]])
			g->free[e->v[0]] = new_curve(true);
		point(g->free[e->v[0]], at_s, e->v[1]);
	} else if (e->tag == WGTR_E_WAIT) {
		struct stall s = { wgm_seconds(t, e->v[3]), wgm_span(t, e->v[4]),
				   e->tid, wgm_function(t, (uint32_t)e->v[0]) };

		if (g->nstalls < STALLS) {
			g->stalls[g->nstalls++] = s;
			if (g->nstalls == STALLS)
				qsort(g->stalls, STALLS, sizeof(s), longest_first);
		} else if (s.seconds > g->stalls[STALLS - 1].seconds) {
			size_t i = STALLS - 1;

			for (; i && g->stalls[i - 1].seconds < s.seconds; i--)
				g->stalls[i] = g->stalls[i - 1];
			g->stalls[i] = s;
		}
	}
}

/* Before the detail begins there are only the sums of the timeline. */
static void from_timeline(struct gathered *g)
{
	struct wgm_trace *t = g->a->t;

	for (int d = 0; d < WGTR_DEVICES && t->h.folded_until; d++) {
		const struct wgm_timeline *l = &t->timeline[d];

		for (size_t i = 0; i < l->n; i++) {
			double at = wgm_seconds(t, l->v[i].from);

			if (l->v[i].from > t->h.folded_until)
				break;
			if (!g->own[d])
				g->own[d] = new_curve(false);
			point(g->own[d], at, l->v[i].own_max);
			if (l->v[i].free_min == WGM_NONE)
				continue;
			if (!g->free[d])
				g->free[d] = new_curve(true);
			point(g->free[d], at, l->v[i].free_min);
		}
	}
}

/* ---- the chart ------------------------------------------------------------------------------ */

struct scale {
	double t0, t1, top;
};

static double x_of(const struct scale *s, double t)
{
	double x = (t - s->t0) / (s->t1 - s->t0) * WIDTH;

	return x < 0 ? 0 : x > WIDTH ? WIDTH : x;
}

static double y_of(const struct scale *s, uint64_t v)
{
	double y = HEIGHT - (double)v / s->top * HEIGHT;

	return y < 0 ? 0 : y;
}

static void path(FILE *out, const struct scale *s, const struct curve *c, bool area)
{
	if (!c || !c->n)
		return;
	fprintf(out, "<path class=\"%s\" d=\"M", area ? "own" : "free");
	fprintf(out, "%.1f,%.1f", x_of(s, c->v[0].at), y_of(s, c->v[0].v));
	for (size_t i = 1; i < c->n; i++)
		fprintf(out, "H%.1fV%.1f", x_of(s, c->v[i].at), y_of(s, c->v[i].v));
	fprintf(out, "H%.1f", WIDTH);
	if (area)
		fprintf(out, "V%.1fH%.1fZ", HEIGHT, x_of(s, c->v[0].at));
	fputs("\"/>\n", out);
}

static void chart(FILE *out, struct gathered *g, const struct wgm_device *d)
{
	struct wgm_trace *t = g->a->t;
	struct scale s = { g->a->begin_s, g->a->duration_s > g->a->begin_s ? g->a->duration_s :
			   g->a->begin_s + 1, 1 };
	const struct curve *own = g->own[d->index], *fr = g->free[d->index];

	s.top = d->total != WGM_NONE ? (double)d->total : (double)d->peak_own * 1.1 + 1;
	fprintf(out, "<svg viewBox=\"-90 -14 %.0f %.0f\" role=\"img\" aria-label=\"memory over time\">\n",
		WIDTH + 110, HEIGHT + 46);
	for (int i = 0; i <= 4; i++) {
		double v = s.top * i / 4;

		fprintf(out, "<line class=\"grid\" x1=\"0\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\"/>"
			"<text class=\"axis\" x=\"-8\" y=\"%.1f\" text-anchor=\"end\">%s</text>\n",
			WIDTH, HEIGHT - HEIGHT * i / 4, HEIGHT - HEIGHT * i / 4,
			HEIGHT - HEIGHT * i / 4 + 4, wgm_size((uint64_t)v));
	}
	for (int i = 0; i <= 6; i++)
		fprintf(out, "<text class=\"axis\" x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%s</text>\n",
			WIDTH * i / 6, HEIGHT + 18, wgm_time(s.t0 + (s.t1 - s.t0) * i / 6));
	path(out, &s, own, true);
	path(out, &s, fr, false);
	if (g->a->whole_from_s > 0)
		fprintf(out, "<line class=\"fold\" x1=\"%.1f\" x2=\"%.1f\" y1=\"0\" y2=\"%.0f\"><title>"
			"before this only sums are kept</title></line>\n",
			x_of(&s, g->a->whole_from_s), x_of(&s, g->a->whole_from_s), HEIGHT);
	for (size_t i = 0; i < g->nstalls; i++) {
		const struct stall *w = &g->stalls[i];
		double x = x_of(&s, w->at), width = x_of(&s, w->at + w->seconds) - x;

		fprintf(out, "<rect class=\"stall\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"5\"><title>%s "
			"in ", x, HEIGHT + 1, width < 1 ? 1 : width, wgm_time(w->seconds));
		esc(out, w->function);
		fputs("</title></rect>\n", out);
	}
	if (isfinite(d->peak_at_s))
		fprintf(out, "<circle class=\"peak\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"><title>peak: %s</title>"
			"</circle>\n", x_of(&s, d->peak_at_s), y_of(&s, d->peak_own),
			wgm_size(d->peak_own));
	for (size_t i = 0; i < d->failures.n && i < 200; i++) {
		const struct wgm_failure *f = d->failures.v[i];
		double x = x_of(&s, wgm_seconds(t, f->at));

		fprintf(out, "<line class=\"fail\" x1=\"%.1f\" x2=\"%.1f\" y1=\"-8\" y2=\"%.0f\"><title>", x, x,
			HEIGHT);
		esc(out, wgm_failure_text(g->a, d, f));
		fputs("</title></line>\n", out);
	}
	fputs("</svg>\n<p class=\"legend\"><span class=\"k own\"></span>held by this process "
	      "<span class=\"k free\"></span>free on the card <span class=\"k fail\"></span>failed "
	      "allocation <span class=\"k stall\"></span>long blocking call</p>\n", out);
}

/* ---- the flame graph -------------------------------------------------------------------------- */

struct node {
	const char *name;
	uint64_t bytes;
	struct node *child, *next;
	int depth;
};

static struct node *child_of(struct wg_arena *m, struct node *p, const char *name, size_t *count)
{
	struct node **at = &p->child;

	for (; *at; at = &(*at)->next)
		if (!strcmp((*at)->name, name))
			return *at;
	if (*count >= FLAME_NODES)
		return NULL;
	++*count;
	*at = wg_alloc(m, sizeof(**at));
	(*at)->name = name;
	(*at)->depth = p->depth + 1;
	return *at;
}

static int deepest(const struct node *n)
{
	int most = n->depth;

	for (const struct node *c = n->child; c; c = c->next) {
		int d = deepest(c);

		most = d > most ? d : most;
	}
	return most;
}

static void boxes(FILE *out, const struct node *n, double x, double width)
{
	unsigned int hue = 0;

	for (const char *c = n->name; *c; c++)
		hue = hue * 31 + (unsigned char)*c;
	fprintf(out, "<div class=\"b\" data-x=\"%.6f\" data-w=\"%.6f\" style=\"left:%.4f%%;width:%.4f%%;"
		"top:%dpx;background:hsl(%u 62%% 66%%)\" title=\"", x, width, x * 100, width * 100,
		n->depth * 19, hue % 70 + 5);
	esc(out, n->name);
	fprintf(out, " &#8212; %s\">", wgm_size(n->bytes));
	esc(out, n->name);
	fputs("</div>\n", out);
	for (const struct node *c = n->child; c; c = c->next) {
		double w = width * (double)c->bytes / (double)n->bytes;

		if (w > 0.0008)
			boxes(out, c, x, w);
		x += w;
	}
}

static void flame(FILE *out, struct wgm_analysis *a, const struct wgm_device *d)
{
	struct wg_arena *m = a->t->arena;
	struct node root = { .name = wg_fmt(m, "GPU %d", d->index) };
	bool at_peak = false;
	size_t count = 0;

	for (size_t i = 0; i < d->sites.n; i++)
		at_peak |= d->sites.v[i]->live_at_peak != WGM_NONE && d->sites.v[i]->live_at_peak;
	for (size_t i = 0; i < d->sites.n && i < FLAME_SITES; i++) {
		const struct wgm_site *s = d->sites.v[i];
		uint64_t bytes = at_peak ? s->live_at_peak : s->live_at_end;
		struct node *n = &root;

		if (!bytes || bytes == WGM_NONE || s->raw->kind - 1u == WG_MEM_MANAGED)
			continue;
		root.bytes += bytes;
		for (size_t f = s->nframes; n && f-- > 0;) {
			n = child_of(m, n, wgm_frame_text(m, &s->frames[f]), &count);
			if (n)
				n->bytes += bytes;
		}
		n = n ? child_of(m, n, wgm_function(a->t, s->raw->fn), &count) : NULL;
		if (n)
			n->bytes += bytes;
	}
	if (!root.bytes)
		return;
	fprintf(out, "<h4>Who held it %s</h4><p class=\"hint\">Outermost call at the top; a click "
		"enlarges, a click on the first row shows all.</p>\n"
		"<div class=\"flame\" style=\"height:%dpx\">\n", at_peak ? "at the peak" : "at the end",
		(deepest(&root) + 1) * 19 + 2);
	boxes(out, &root, 0, 1);
	fputs("</div>\n", out);
}

/* ---- tables --------------------------------------------------------------------------------------- */

static void cell(FILE *out, uint64_t v)
{
	fprintf(out, "<td class=\"n\">%s</td>", wgm_size(v));
}

static void libraries(FILE *out, const struct wgm_device *d)
{
	if (!d->libraries.n)
		return;
	fputs("<h4>By library</h4><table><tr><th>library<th class=\"n\">at peak<th class=\"n\">at end"
	      "<th class=\"n\">allocations<th class=\"n\">frees</tr>\n", out);
	for (size_t i = 0; i < d->libraries.n && i < ROWS; i++) {
		const struct wgm_library *l = &d->libraries.v[i];

		fputs("<tr><td>", out);
		esc(out, l->library);
		fputs("</td>", out);
		cell(out, l->live_at_peak);
		cell(out, l->live_at_end);
		fprintf(out, "<td class=\"n\">%" PRIu64 "</td><td class=\"n\">%" PRIu64 "</td></tr>\n",
			l->allocations, l->frees);
	}
	fputs("</table>\n", out);
}

static void sites(FILE *out, const struct wgm_device *d)
{
	if (!d->sites.n)
		return;
	fputs("<h4>By call site</h4><table><tr><th>site<th>library<th class=\"n\">at peak<th class=\"n\">at "
	      "end<th class=\"n\">allocations</tr>\n", out);
	for (size_t i = 0; i < d->sites.n && i < ROWS; i++) {
		const struct wgm_site *s = d->sites.v[i];

		fputs("<tr><td><details><summary>", out);
		esc(out, s->text);
		fputs("</summary><pre>", out);
		for (size_t f = 0; f < s->nframes; f++) {
			struct wgm_frame x = s->frames[f];

			fprintf(out, "%2zu  ", f);
			esc(out, x.symbol ? x.symbol : x.library ? x.library : "??");
			fprintf(out, "+0x%" PRIx64 "  ", x.offset);
			if (x.file) {
				esc(out, x.file);
				fprintf(out, ":%u", x.line);
			} else if (x.symbol) {
				esc(out, x.library);
			}
			fputc('\n', out);
		}
		fputs("</pre></details></td><td>", out);
		esc(out, s->library ? s->library : "");
		fputs("</td>", out);
		cell(out, s->live_at_peak);
		cell(out, s->live_at_end);
		fprintf(out, "<td class=\"n\">%" PRIu64 "</td></tr>\n", s->allocations);
	}
	fputs("</table>\n", out);
}

static void growing(FILE *out, const struct wgm_device *d)
{
	if (!d->growing.n)
		return;
	fputs("<h4>Growing</h4><table><tr><th>site<th class=\"n\">a second<th class=\"n\">at end</tr>\n",
	      out);
	for (size_t i = 0; i < d->growing.n && i < ROWS; i++) {
		fputs("<tr><td>", out);
		esc(out, d->growing.v[i].site->text);
		fputs("</td>", out);
		cell(out, (uint64_t)d->growing.v[i].bytes_per_s);
		cell(out, d->growing.v[i].live_at_end);
		fputs("</tr>\n", out);
	}
	fputs("</table>\n", out);
}

static void stalls(FILE *out, struct gathered *g)
{
	if (!g->nstalls)
		return;
	qsort(g->stalls, g->nstalls, sizeof(g->stalls[0]), longest_first);
	fputs("<h3>Stalls</h3><table><tr><th>call<th>thread<th class=\"n\">at<th class=\"n\">for</tr>\n",
	      out);
	for (size_t i = 0; i < g->nstalls && i < ROWS; i++) {
		const char *name = wgm_thread_name(g->a->t, g->stalls[i].tid);

		fputs("<tr><td>", out);
		esc(out, g->stalls[i].function);
		fprintf(out, "</td><td>%u ", g->stalls[i].tid);
		esc(out, name ? name : "");
		fprintf(out, "</td><td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
			wgm_time(g->stalls[i].at), wgm_time(g->stalls[i].seconds));
	}
	fputs("</table>\n", out);
}

static void failure(FILE *out, struct wgm_analysis *a, const struct wgm_device *d,
		    const struct wgm_failure *f)
{
	size_t n;
	const struct wgm_frame *frames = wgm_frames(a->t, &f->stack, &n);

	fprintf(out, "<details class=\"%s\"><summary>", f->recovered ? "mild" : "bad");
	esc(out, wgm_failure_text(a, d, f));
	fputs("</summary><pre>", out);
	for (uint32_t i = 0; i < f->npy; i++) {
		esc(out, f->py[i].file);
		fprintf(out, ":%u  ", f->py[i].line);
		esc(out, f->py[i].function);
		fputc('\n', out);
	}
	for (size_t i = 0; i < n; i++) {
		esc(out, wgm_frame_text(a->t->arena, &frames[i]));
		fputs("  ", out);
		esc(out, frames[i].library ? frames[i].library : "");
		fputc('\n', out);
	}
	fputs("</pre></details>\n", out);
}

static void device(FILE *out, struct gathered *g, const struct wgm_device *d)
{
	struct wg_arena *m = g->a->t->arena;

	fprintf(out, "<h3>GPU %d ", d->index);
	esc(out, wg_str(m, d->raw->name));
	fputs("</h3>\n", out);
	for (int recovered = 0; recovered < 2; recovered++)
		for (size_t i = 0; i < d->failures.n && i < ROWS; i++)
			if ((d->failures.v[i]->recovered != 0) == recovered)
				failure(out, g->a, d, d->failures.v[i]);
	fprintf(out, "<p>Peak <b>%s</b> at %s; at least <b>%s</b> of %s were free; <b>%s</b> held at the "
		"end.</p>\n", wgm_size(d->peak_own), wgm_time(d->peak_at_s), wgm_size(d->least_free),
		wgm_size(d->total), wgm_size(d->own_at_end));
	chart(out, g, d);
	growing(out, d);
	flame(out, g->a, d);
	libraries(out, d);
	sites(out, d);
}

/* ---- the verdict that a snapshot beside the trace holds ------------------------------------------- */

static void verdict(FILE *out, const struct wgm_trace *t)
{
	const char *dot = strrchr(t->path, '.');
	json_t *doc, *v, *edges, *chain, *x;
	char pattern[4096];
	glob_t found;
	size_t newest = 0, i;
	long most = -1;

	if (!dot || strlen(t->path) + 16 > sizeof(pattern))
		return;
	for (const char *c = t->path; *c; c++)
		if (strchr("*?[\\", *c))
			return; /* a name that is a pattern */
	snprintf(pattern, sizeof(pattern), "%.*s-[0-9]*.json", (int)(dot - t->path), t->path);
	if (glob(pattern, 0, NULL, &found))
		return;
	for (i = 0; i < found.gl_pathc; i++) {
		long number = atol(found.gl_pathv[i] + (dot - t->path) + 1);

		if (number > most) {
			most = number;
			newest = i;
		}
	}
	doc = json_load_file(found.gl_pathv[newest], 0, NULL);
	v = json_object_get(doc, "verdict");
	if (json_is_object(v)) {
		fputs("<h3>Wait-graph</h3><p class=\"verdict\"><b>", out);
		esc(out, json_string_value(json_object_get(v, "class")));
		fputs("</b> ", out);
		esc(out, json_string_value(json_object_get(v, "summary")));
		fputs("</p><ol>", out);
		chain = json_object_get(v, "chain");
		json_array_foreach(chain, i, x) {
			fputs("<li>", out);
			esc(out, json_string_value(x));
			fputs("</li>", out);
		}
		fputs("</ol>\n", out);
		edges = json_object_get(doc, "edges");
		if (json_array_size(edges)) {
			fputs("<details><summary>all edges</summary><table>", out);
			json_array_foreach(edges, i, x) {
				if (i >= 500)
					break;
				fputs("<tr><td>", out);
				esc(out, json_string_value(json_object_get(x, "from")));
				fputs("</td><td>", out);
				esc(out, json_string_value(json_object_get(x, "kind")));
				fputs("</td><td>", out);
				esc(out, json_string_value(json_object_get(x, "to")));
				fputs("</td><td>", out);
				esc(out, json_string_value(json_object_get(x, "evidence")));
				fputs("</td></tr>\n", out);
			}
			fputs("</table></details>\n", out);
		}
		fputs("<p class=\"hint\">from ", out);
		esc(out, found.gl_pathv[newest]);
		fputs("</p>\n", out);
	}
	json_decref(doc);
	globfree(&found);
}

/* ---- the page ----------------------------------------------------------------------------------------- */

static const char head[] =
	"<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">\n"
	"<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
	"style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n"
	"<meta name=\"viewport\" content=\"width=device-width\"><title>Waitgraph report</title><style>\n"
	":root{color-scheme:light dark;--fg:#1a1d21;--bg:#fff;--dim:#6b7280;--line:#e2e5ea;--own:#4c78a8;"
	"--free:#2f9e63;--bad:#c92a2a;--stall:#e08a00}\n"
	"@media(prefers-color-scheme:dark){:root{--fg:#e4e6ea;--bg:#16181c;--dim:#9aa0aa;--line:#2c3036}}\n"
	"body{font:15px/1.45 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:1180px;"
	"margin:24px auto;padding:0 18px}\n"
	"h1{font-size:22px}h2{font-size:18px;margin-top:36px;border-top:1px solid var(--line);padding-top:14px}"
	"h3{font-size:16px}h4{font-size:14px;margin:18px 0 4px}\n"
	"table{border-collapse:collapse;width:100%;font-size:13.5px}th,td{text-align:left;padding:3px 10px 3px 0;"
	"border-bottom:1px solid var(--line);vertical-align:top}th{color:var(--dim);font-weight:500}"
	".n{text-align:right;white-space:nowrap}\n"
	"pre{font-size:12.5px;white-space:pre-wrap;overflow-wrap:anywhere;margin:6px 0}\n"
	"svg{width:100%;height:auto}.grid{stroke:var(--line)}.axis{fill:var(--dim);font-size:12px}"
	"path.own{fill:var(--own);opacity:.75}path.free{fill:none;stroke:var(--free);stroke-width:1.8}"
	".fail{stroke:var(--bad);stroke-width:2}.fold{stroke:var(--dim);stroke-dasharray:3 4}"
	".peak{fill:var(--own);stroke:var(--bg);stroke-width:1.5}rect.stall{fill:var(--stall)}\n"
	".legend,.hint{color:var(--dim);font-size:13px;margin:2px 0 8px}.k{display:inline-block;width:11px;"
	"height:11px;margin:0 5px 0 14px;border-radius:2px}.k.own{background:var(--own)}"
	".k.free{background:var(--free)}.k.fail{background:var(--bad)}.k.stall{background:var(--stall)}\n"
	"details.bad>summary{color:var(--bad);font-weight:600}summary{cursor:pointer}.verdict{font-size:16px}\n"
	".flame{position:relative;overflow:hidden;font-size:11.5px;color:#1a1d21}.b{position:absolute;height:18px;"
	"line-height:18px;overflow:hidden;white-space:nowrap;padding:0 3px;box-sizing:border-box;border-radius:2px;"
	"cursor:pointer;border-right:1px solid var(--bg)}\n"
	"</style></head><body>\n<h1>Waitgraph report</h1>\n";

static const char tail[] =
	"<script>\n"
	"document.querySelectorAll('.flame').forEach(f=>{const all=[...f.children];f.addEventListener('click',e=>{"
	"const t=e.target.closest('.b');if(!t)return;const x0=+t.dataset.x,w0=+t.dataset.w;all.forEach(b=>{"
	"const x=(+b.dataset.x-x0)/w0,w=+b.dataset.w/w0,l=Math.max(0,x),r=Math.min(1,x+w);"
	"b.style.display=r-l>0.0005?'':'none';b.style.left=l*100+'%';b.style.width=(r-l)*100+'%'})})})\n"
	"</script></body></html>\n";

static int process(FILE *out, struct wgm_analysis *a)
{
	struct wgm_trace *t = a->t;
	struct gathered *g = calloc(1, sizeof(*g));
	struct wgm_watch w = { g, on_block, on_event };
	int err = 0;

	if (!g)
		abort();
	g->a = a;
	from_timeline(g);
	if (!wgm_replay(t, &w))
		err = -EBADMSG;
	fputs("<h2>", out);
	if (t->h.rank >= 0)
		fprintf(out, "rank %d: ", t->h.rank);
	esc(out, wg_str(t->arena, t->h.command));
	fprintf(out, "</h2><p class=\"hint\">pid %u on ", t->h.pid);
	esc(out, wg_str(t->arena, t->h.host));
	fprintf(out, ", %s, %s", wgm_time(a->duration_s), wgm_killed(t) ?
		"no normal end (killed, or still running)" : "ended normally");
	if (t->lost)
		fprintf(out, ", <b>%" PRIu64 " events lost</b>", t->lost);
	if (t->h.folded_events)
		fprintf(out, ", detail from %s on", wgm_time(a->whole_from_s));
	fputs("</p>\n", out);
	verdict(out, t);
	for (int i = 0; i < WGTR_DEVICES; i++)
		if (a->devices[i].used)
			device(out, g, &a->devices[i]);
	stalls(out, g);
	if (a->host_peak)
		fprintf(out, "<p>Pinned host memory: %s at its peak, %s at the end.</p>\n",
			wgm_size(a->host_peak), wgm_size(a->host_at_end));
	for (int i = 0; i < WGTR_DEVICES; i++) {
		free(g->own[i]);
		free(g->free[i]);
	}
	free(g);
	return err;
}

int wgm_report(FILE *out, struct wgm_analysis **all, size_t n)
{
	int err = 0;

	fputs(head, out);
	if (n > 1) {
		fputs("<table><tr><th>process<th class=\"n\">GPU<th class=\"n\">peak<th class=\"n\">least free"
		      "<th class=\"n\">failures</tr>\n", out);
		for (size_t i = 0; i < n; i++)
			for (int d = 0; d < WGTR_DEVICES; d++) {
				const struct wgm_device *v = &all[i]->devices[d];

				if (!v->used)
					continue;
				fputs("<tr><td>", out);
				if (all[i]->t->h.rank >= 0)
					fprintf(out, "rank %d, ", all[i]->t->h.rank);
				fprintf(out, "pid %u</td><td class=\"n\">%d</td>", all[i]->t->h.pid, d);
				cell(out, v->peak_own);
				cell(out, v->least_free);
				fprintf(out, "<td class=\"n\">%" PRIu64 "</td></tr>\n",
					v->raw->failures);
			}
		fputs("</table>\n", out);
	}
	for (size_t i = 0; i < n && i < PROCESSES && !err; i++)
		err = process(out, all[i]);
	if (n > PROCESSES)
		fprintf(out, "<p>%zu more processes are in the table only.</p>\n", n - PROCESSES);
	fputs(tail, out);
	return err;
}
