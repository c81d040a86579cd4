/* SPDX-License-Identifier: Apache-2.0 */
/* export.c - the list of forms, and those that are lines of text. */
#include "export.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

const struct wgm_form wgm_forms[] = {
	{ "perfetto", "TrackEvent protobuf for ui.perfetto.dev", true, false, wgm_write_perfetto },
	{ "folded", "stacks and bytes alive at the peak, for flame graphs", false, false,
	  wgm_write_folded },
	{ "csv", "one line an event", false, false, wgm_write_csv },
#ifdef WG_HAVE_SQLITE
	{ "sqlite", "a database (needs -o)", true, true, wgm_write_sqlite },
#endif
	{ "memory-viz", "PyTorch's snapshot pickle, for pytorch.org/memory_viz", true, false,
	  wgm_write_memory_viz },
	{ "openmetrics", "levels and counters for Prometheus", false, false, wgm_write_openmetrics },
	{ NULL, NULL, false, false, NULL },
};

const struct wgm_form *wgm_form_find(const char *name)
{
	for (const struct wgm_form *f = wgm_forms; f->name; f++)
		if (!strcmp(f->name, name))
			return f;
	return NULL;
}

/* ---- folded stacks ------------------------------------------------------------------ */

static void folded_name(FILE *out, const struct wgm_frame *f)
{
	char hex[32];
	const char *s = f->symbol;

	if (!s && f->library) {
		snprintf(hex, sizeof(hex), "+0x%" PRIx64, f->offset);
		fputs(f->library, out);
		s = hex;
	} else if (!s) {
		snprintf(hex, sizeof(hex), "0x%" PRIx64, f->pc);
		s = hex;
	}
	for (; *s; s++) /* the two characters that mean something there */
		fputc(*s == ';' ? ':' : *s == '\n' ? ' ' : *s, out);
}

int wgm_write_folded(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool at_end)
{
	(void)path;
	for (size_t i = 0; i < n; i++)
		for (int d = 0; d < WGTR_DEVICES; d++) {
			struct wgm_device *dev = &all[i]->devices[d];

			for (size_t k = 0; k < dev->sites.n; k++) {
				const struct wgm_site *s = dev->sites.v[k];
				uint64_t bytes = at_end || s->live_at_peak == WGM_NONE ?
						 s->live_at_end : s->live_at_peak;

				if (!bytes)
					continue;
				if (n > 1)
					fprintf(out, "pid %u;", all[i]->t->h.pid);
				fprintf(out, "GPU %d;", d);
				for (size_t f = s->nframes; f-- > 0;) {
					folded_name(out, &s->frames[f]);
					fputc(';', out);
				}
				fprintf(out, "%s %" PRIu64 "\n", wgm_function(all[i]->t, s->raw->fn),
					bytes);
			}
		}
	return 0;
}

/* ---- CSV -------------------------------------------------------------------------------- */

struct csv {
	FILE *out;
	struct wgm_analysis *a;
};

static void quoted(FILE *out, const char *s)
{
	fputc('"', out);
	for (; s && *s; s++) {
		if (*s == '"')
			fputc('"', out);
		fputc(*s, out);
	}
	fputc('"', out);
}

static void csv_begin(struct csv *c, double at_s, uint32_t tid, int device, const char *event)
{
	fprintf(c->out, "%.9f,%u,", at_s, c->a->t->h.pid);
	if (c->a->t->h.rank >= 0)
		fprintf(c->out, "%d", c->a->t->h.rank);
	fprintf(c->out, ",%u,", tid);
	if (device >= 0)
		fprintf(c->out, "%d", device);
	fprintf(c->out, ",%s,", event);
}

static void csv_block(void *arg, const struct wgm_block *b)
{
	struct csv *c = arg;

	if (b->site)
		wgm_attribute(c->a, (struct wgm_site *)b->site);
	csv_begin(c, b->at_s, b->tid, b->device, b->is_free ? "free" : b->from_before ? "held" :
		  "alloc");
	fprintf(c->out, "%s,0x%" PRIx64 ",%" PRIu64 ",", wgm_kind(b->kind), b->addr, b->size);
	if (b->own != WGM_NONE)
		fprintf(c->out, "%" PRIu64, b->own);
	fputs(",,", c->out);
	quoted(c->out, b->site ? b->site->library : NULL);
	fputc(',', c->out);
	quoted(c->out, b->site ? b->site->text : NULL);
	fputc('\n', c->out);
}

static void csv_event(void *arg, const struct wgm_event *e, double at_s)
{
	struct csv *c = arg;
	struct wgm_trace *t = c->a->t;

	switch (e->tag) {
	case WGTR_E_SAMPLE:
		csv_begin(c, at_s, e->tid, (int)(e->v[0] & 63), "sample");
		fprintf(c->out, ",,,%" PRIu64 ",%" PRIu64 ",,\n", e->v[2], e->v[1]);
		break;
	case WGTR_E_FAILURE:
		csv_begin(c, at_s, e->tid, (int)(e->v[1] & 63) - 1, "failed");
		fprintf(c->out, "%s,,%" PRIu64 ",,,,\n", wgm_kind((uint32_t)e->v[3]), e->v[2]);
		break;
	case WGTR_E_WAIT:
		csv_begin(c, wgm_seconds(t, e->v[3]), e->tid, (int)(e->v[1] & 63) - 1, "wait");
		fprintf(c->out, ",,%.0f,,,,", wgm_span(t, e->v[4]) * 1e9);
		quoted(c->out, wgm_function(t, (uint32_t)e->v[0]));
		fputc('\n', c->out);
		break;
	case WGTR_E_MODULE:
		csv_begin(c, at_s, e->tid, (int)(e->v[1] & 63) - 1, "module");
		fprintf(c->out, ",,%" PRIu64 ",,,,", e->v[2]);
		quoted(c->out, wgm_function(t, (uint32_t)e->v[0]));
		fputc('\n', c->out);
		break;
	default:
		break;
	}
}

int wgm_write_csv(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end)
{
	(void)path;
	(void)end;
	fputs("time_s,pid,rank,tid,device,event,kind,address,bytes,own,free,library,site\n", out);
	for (size_t i = 0; i < n; i++) {
		struct csv c = { out, all[i] };
		struct wgm_watch w = { &c, csv_block, csv_event };

		if (!wgm_replay(all[i]->t, &w))
			return -EBADMSG;
	}
	return 0;
}

/* ---- OpenMetrics --------------------------------------------------------------------------- */

static void label(FILE *out, const char *name, const char *value, bool first)
{
	fprintf(out, "%s%s=\"", first ? "" : ",", name);
	for (const char *c = value ? value : ""; *c; c++) {
		if (*c == '"' || *c == '\\')
			fputc('\\', out);
		fputc(*c == '\n' ? ' ' : *c, out);
	}
	fputc('"', out);
}

static void labels(FILE *out, struct wgm_analysis *a, const struct wgm_device *d)
{
	char text[24];

	fputc('{', out);
	label(out, "host", a->t->h.host, true);
	snprintf(text, sizeof(text), "%u", a->t->h.pid);
	label(out, "pid", text, false);
	if (a->t->h.rank >= 0) {
		snprintf(text, sizeof(text), "%d", a->t->h.rank);
		label(out, "rank", text, false);
	}
	if (!d)
		return;
	snprintf(text, sizeof(text), "%d", d->index);
	label(out, "device", text, false);
	if (d->uuid)
		label(out, "uuid", d->uuid, false);
}

static uint64_t own_now(const struct wgm_device *d) { return d->own_at_end; }
static uint64_t peak(const struct wgm_device *d) { return d->peak_own; }
static uint64_t least(const struct wgm_device *d) { return d->least_free; }
static uint64_t total(const struct wgm_device *d) { return d->total; }
static uint64_t free_now(const struct wgm_device *d) { return d->raw->free; }
static uint64_t allocations(const struct wgm_device *d) { return d->allocations; }
static uint64_t frees(const struct wgm_device *d) { return d->frees; }
static uint64_t failures(const struct wgm_device *d) { return d->raw->failures; }

int wgm_write_openmetrics(struct wgm_analysis **all, size_t n, FILE *out, const char *path, bool end)
{
	static const struct {
		const char *name, *type, *unit, *help;
		uint64_t (*value)(const struct wgm_device *);
	} metrics[] = {
		{ "waitgraph_gpu_memory_own_bytes", "gauge", "bytes",
		  "Device memory held by this process through recorded allocations", own_now },
		{ "waitgraph_gpu_memory_peak_bytes", "gauge", "bytes", "Its peak", peak },
		{ "waitgraph_gpu_memory_free_bytes", "gauge", "bytes",
		  "Free memory of the device at the last look", free_now },
		{ "waitgraph_gpu_memory_least_free_bytes", "gauge", "bytes",
		  "Least free memory of the device that was seen", least },
		{ "waitgraph_gpu_memory_total_bytes", "gauge", "bytes", "Memory of the device", total },
		{ "waitgraph_gpu_allocations", "counter", "", "Allocations", allocations },
		{ "waitgraph_gpu_frees", "counter", "", "Frees", frees },
		{ "waitgraph_gpu_allocation_failures", "counter", "", "Allocations that failed",
		  failures },
	};

	(void)path;
	(void)end;
	for (size_t m = 0; m < sizeof(metrics) / sizeof(metrics[0]); m++) {
		bool counter = !strcmp(metrics[m].type, "counter");

		fprintf(out, "# TYPE %s %s\n", metrics[m].name, metrics[m].type);
		if (*metrics[m].unit)
			fprintf(out, "# UNIT %s %s\n", metrics[m].name, metrics[m].unit);
		fprintf(out, "# HELP %s %s.\n", metrics[m].name, metrics[m].help);
		for (size_t i = 0; i < n; i++)
			for (int d = 0; d < WGTR_DEVICES; d++) {
				const struct wgm_device *dev = &all[i]->devices[d];
				uint64_t v = dev->used ? metrics[m].value(dev) : WGM_NONE;

				if (v == WGM_NONE)
					continue;
				fprintf(out, "%s%s", metrics[m].name, counter ? "_total" : "");
				labels(out, all[i], dev);
				fprintf(out, "} %" PRIu64 "\n", v);
			}
	}
	fputs("# TYPE waitgraph_gpu_memory_library_bytes gauge\n"
	      "# UNIT waitgraph_gpu_memory_library_bytes bytes\n"
	      "# HELP waitgraph_gpu_memory_library_bytes Alive at the end, by calling library.\n", out);
	for (size_t i = 0; i < n; i++)
		for (int d = 0; d < WGTR_DEVICES; d++)
			for (size_t k = 0; k < all[i]->devices[d].libraries.n; k++) {
				fputs("waitgraph_gpu_memory_library_bytes", out);
				labels(out, all[i], &all[i]->devices[d]);
				label(out, "library", all[i]->devices[d].libraries.v[k].library, false);
				fprintf(out, "} %" PRIu64 "\n",
					all[i]->devices[d].libraries.v[k].live_at_end);
			}
	fputs("# EOF\n", out);
	return 0;
}
