/* SPDX-License-Identifier: Apache-2.0 */
/* text.c - the analysis for people: the finding first, at most 100 columns. */
#include "print.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WIDTH 100

static char *next_buffer(void)
{
	static char buffers[8][48];
	static unsigned int i;

	return buffers[i++ % 8];
}

const char *wgm_size(uint64_t bytes)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	char *b = next_buffer();
	double v = (double)bytes;
	int i = 0;

	if (bytes == WGM_NONE)
		return "unknown";
	while (v >= 1024 && i < 6) {
		v /= 1024;
		i++;
	}
	if (!i)
		snprintf(b, 48, "%" PRIu64 " B", bytes);
	else
		snprintf(b, 48, "%.*f %s", v < 10 ? 2 : v < 100 ? 1 : 0, v, units[i]);
	return b;
}

const char *wgm_time(double s)
{
	char *b = next_buffer();

	if (!isfinite(s))
		return "unknown";
	if (s < 0.001)
		snprintf(b, 48, "%.0f us", s * 1e6);
	else if (s < 1)
		snprintf(b, 48, "%.0f ms", s * 1e3);
	else if (s < 120)
		snprintf(b, 48, "%.1f s", s);
	else if (s < 7200) /* cut, not rounded: 2 min 60 s is no time */
		snprintf(b, 48, "%.0f min %.0f s", floor(s / 60), floor(fmod(s, 60)));
	else
		snprintf(b, 48, "%.0f h %.0f min", floor(s / 3600), floor(fmod(s / 60, 60)));
	return b;
}

/* Writes text into `width` columns, cut in the middle with "..." (names end in what matters). */
static void fit(FILE *out, const char *s, int width, bool left)
{
	int n = 0;

	for (const char *c = s; *c; c++)
		n += (*c & 0xc0) != 0x80;
	if (n <= width) {
		if (!left)
			fprintf(out, "%*s", width - n, "");
		fputs(s, out);
		if (left && width < WIDTH - 10) /* a column, not the rest of a line */
			fprintf(out, "%*s", width - n, "");
		return;
	}
	n = 0; /* cut on characters, not bytes */
	for (const char *c = s; *c && n < width - 3; ) {
		do
			fputc(*c++, out);
		while ((*c & 0xc0) == 0x80);
		n++;
	}
	fputs("...", out);
}

/* Words of s, broken at 100 columns, later lines indented. */
static void wrap(FILE *out, int indent, const char *s)
{
	int at = indent;

	fprintf(out, "%*s", indent, "");
	while (*s) {
		size_t n = strcspn(s, " ");
		int width = 0;

		for (size_t i = 0; i < n; i++)
			width += (s[i] & 0xc0) != 0x80;
		if (at > indent && at + 1 + width > WIDTH) {
			fprintf(out, "\n%*s", indent + 2, "");
			at = indent + 2;
		} else if (at > indent) {
			fputc(' ', out);
			at++;
		}
		fwrite(s, 1, n, out);
		at += width;
		s += n;
		s += strspn(s, " ");
	}
	fputc('\n', out);
}

const char *wgm_failure_text(struct wgm_analysis *a, const struct wgm_device *d,
			     const struct wgm_failure *f)
{
	struct wg_arena *m = a->t->arena;
	uint64_t by = wgm_short_by(f);
	size_t n;
	const struct wgm_frame *frames = wgm_frames(a->t, &f->stack, &n);
	int who = wgm_caller(frames, n);
	const char *s, *pieces = "", *end;

	if (f->pieces > 1)
		pieces = wg_fmt(m, " (so far, in pieces of %s; the %" PRIu64 ". failed)",
				wgm_size(f->asked / f->pieces), f->pieces);
	if (!f->asked)
		s = wg_fmt(m, "%s found no memory (%s)", wgm_function(a->t, f->fn),
			   f->free == WGM_NONE ? "how much was free is not known" :
			   wg_fmt(m, "%s were free", wgm_size(f->free)));
	else if (f->kind == WG_MEM_VA)
		s = wg_fmt(m, "%s asked for %s of GPU address space%s and got none: %s of it was "
			   "reserved already; memory was not what ran out",
			   wgm_function(a->t, f->fn), wgm_size(f->asked), pieces,
			   wgm_size(f->va_reserved));
	else if (!wgm_on_card(f->kind))
		s = wg_fmt(m, "%s asked for %s of %s memory%s and got none (%s were pinned): this is "
			   "not GPU memory",
			   wgm_function(a->t, f->fn), wgm_size(f->asked), wgm_kind(f->kind), pieces,
			   wgm_size(f->host_live));
	else if (f->free == WGM_NONE)
		s = wg_fmt(m, "%s asked for %s%s and got none; how much was free is not known",
			   wgm_function(a->t, f->fn), wgm_size(f->asked), pieces);
	else if (by)
		s = wg_fmt(m, "%s asked for %s%s, %s of %s were free: short by %s",
			   wgm_function(a->t, f->fn), wgm_size(f->asked), pieces, wgm_size(f->free),
			   wgm_size(f->total), wgm_size(by));
	else
		s = wg_fmt(m, "%s asked for %s%s and got none although %s were free: not in one "
			   "piece",
			   wgm_function(a->t, f->fn), wgm_size(f->asked), pieces,
			   wgm_size(f->free));
	end = f->recovered == 2 ? "later an allocation of that size succeeded" :
	      f->recovered ? "its thread went on using the GPU" :
	      "nothing followed on that device by its thread";
	(void)d;
	return wg_fmt(m, "at %s %s%s%s%s%s", wgm_time(wgm_seconds(a->t, f->at)), s,
		      who >= 0 ? ", asked by " : "", who >= 0 ? frames[who].library : "", "; ", end);
}

static void print_failure(FILE *out, struct wgm_analysis *a, const struct wgm_device *d,
			  const struct wgm_failure *f)
{
	size_t n;
	const struct wgm_frame *frames = wgm_frames(a->t, &f->stack, &n);
	int who = wgm_caller(frames, n), shown = 0;

	wrap(out, 2, wg_fmt(a->t->arena, "FAILED  %s.", wgm_failure_text(a, d, f)));
	if (f->holders.n && wgm_on_card(f->kind)) {
		const char *held = NULL;

		for (size_t i = 0; i < f->holders.n && i < 3; i++)
			held = wg_fmt(a->t->arena, "%s%s%s %s%s", held ? held : "", held ? ", " : "",
				      f->holders.v[i].library, wgm_size(f->holders.v[i].bytes),
				      f->total != WGM_NONE && f->total ?
				      wg_fmt(a->t->arena, " (%.0f %% of the card)",
					     100.0 * (double)f->holders.v[i].bytes /
						     (double)f->total) : "");
		wrap(out, 10, wg_fmt(a->t->arena, "held then: %s", held));
	}
	if (f->repeats)
		fprintf(out, "          the same call failed %" PRIu64 " times more\n", f->repeats);
	for (uint32_t i = 0; i < f->npy && i < 6; i++) {
		fputs("          ", out);
		fit(out, wg_fmt(a->t->arena, "%s:%u in %s", f->py[i].file, f->py[i].line,
				f->py[i].function), WIDTH - 10, true);
		fputc('\n', out);
	}
	for (size_t i = who < 0 ? 0 : (size_t)who; i < n && shown < (f->npy ? 3 : 6); i++, shown++) {
		fputs("          ", out);
		fit(out, wg_fmt(a->t->arena, "%s%s%s%s", wgm_frame_text(a->t->arena, &frames[i]),
				frames[i].symbol && frames[i].library ? "  [" : "",
				frames[i].symbol && frames[i].library ? frames[i].library : "",
				frames[i].symbol && frames[i].library ? "]" : ""), WIDTH - 10, true);
		fputc('\n', out);
	}
}

static void print_holders(FILE *out, const struct wgm_device *d)
{
	char line[400];
	size_t at = 0, n = 0;

	for (size_t i = 0; i < d->libraries.n && n < 3; i++) {
		const struct wgm_library *l = &d->libraries.v[i];

		if (!l->live_at_peak || l->live_at_peak == WGM_NONE)
			continue;
		at += (size_t)snprintf(line + at, sizeof(line) - at, "%s%s %s", n ? ", " : "",
				       l->library, wgm_size(l->live_at_peak));
		if (d->peak_own && at < sizeof(line))
			at += (size_t)snprintf(line + at, sizeof(line) - at, " (%.0f %%)",
					       100.0 * (double)l->live_at_peak /
						       (double)d->peak_own);
		if (at >= sizeof(line) - 100)
			break;
		n++;
	}
	if (n) {
		fputs("  held    ", out);
		fit(out, line, WIDTH - 10, true);
		fputs("\n", out);
	}
}

static void print_device(FILE *out, struct wgm_analysis *a, const struct wgm_device *d,
			 unsigned int rows)
{
	const struct wgtr_device *raw = d->raw;
	unsigned int shown = 0, hidden = 0;

	fprintf(out, "%s%s%s\n", *raw->name ? "  " : "", wg_str(a->t->arena, raw->name),
		d->total != WGM_NONE ? wg_fmt(a->t->arena, ", %s", wgm_size(d->total)) : "");
	for (size_t i = 0; i < d->failures.n; i++) { /* what was never made good comes first */
		if (d->failures.v[i]->recovered)
			continue;
		if (shown++ < 4)
			print_failure(out, a, d, d->failures.v[i]);
		else
			hidden++;
	}
	for (size_t i = 0; i < d->failures.n; i++) {
		if (!d->failures.v[i]->recovered)
			continue;
		if (shown++ < 4)
			print_failure(out, a, d, d->failures.v[i]);
		else
			hidden++;
	}
	if (hidden)
		fprintf(out, "          %u more failures: --json has them\n", hidden);
	fprintf(out, "  peak    %s at %s", wgm_size(d->peak_own), wgm_time(d->peak_at_s));
	if (d->reserved_at_peak)
		fprintf(out, ", %s of it in pools and segments", wgm_size(d->reserved_at_peak));
	fputc('\n', out);
	print_holders(out, d);
	if (d->least_free != WGM_NONE)
		fprintf(out, "  left    at least %s were free (least at %s)\n",
			wgm_size(d->least_free), wgm_time(d->least_free_at_s));
	fprintf(out, "  end     %s held, %" PRIu64 " allocations, %" PRIu64 " frees\n",
		wgm_size(d->own_at_end), d->allocations, d->frees);
	if (d->context_and_modules != WGM_NONE)
		fprintf(out, "  context %s for contexts and modules, measured\n",
			wgm_size(d->context_and_modules));
	if (d->unaccounted != WGM_NONE && d->unaccounted > 1u << 20)
		fprintf(out, "  others  %s in use beyond that: contexts, modules, other processes\n",
			wgm_size(d->unaccounted));
	for (size_t i = 0; i < d->others.n && i < 4; i++)
		fprintf(out, "          process %u held %s\n", d->others.v[i].pid,
			wgm_size(d->others.v[i].bytes));
	if (d->managed_peak)
		fprintf(out, "  managed %s at its peak, %s at the end; its pages wander%s\n",
			wgm_size(d->managed_peak), wgm_size(d->managed_at_end),
			d->total != WGM_NONE && d->managed_peak > d->total ?
				": more than the card has, they will thrash" : "");
	if (d->fragmentation.reserved_unused)
		fprintf(out, "  unused  %s reserved in pools and segments and not handed out\n",
			wgm_size(d->fragmentation.reserved_unused));
	if (d->fragmentation.bound)
		fprintf(out, "  pieces  %s were free at the last look, but less than %s in one piece\n",
			wgm_size(d->fragmentation.free),
			wgm_size(d->fragmentation.largest_possible + 1));
	if (d->growing.n) {
		fputs("\n  growing                                                         "
		      "      a second      at end\n", out);
		for (size_t i = 0; i < d->growing.n && i < rows; i++) {
			const struct wgm_growth *g = &d->growing.v[i];

			fputs("    ", out);
			fit(out, g->site->text, 62, true);
			fit(out, wgm_size((uint64_t)g->bytes_per_s), 14, false);
			fit(out, wgm_size(g->live_at_end), 12, false);
			fputc('\n', out);
		}
	}
	if (d->libraries.n) {
		fputs("\n  by library                             at peak      at end "
		      "allocations       frees\n", out);
		for (size_t i = 0; i < d->libraries.n && i < rows; i++) {
			const struct wgm_library *l = &d->libraries.v[i];

			fputs("    ", out);
			fit(out, l->library, 30, true);
			fit(out, wgm_size(l->live_at_peak), 14, false);
			fit(out, wgm_size(l->live_at_end), 12, false);
			fprintf(out, "%12" PRIu64 "%12" PRIu64 "\n", l->allocations, l->frees);
		}
		if (!d->peak_exact)
			fputs(d->raw->peak_snapshot_at ?
			      "    (at peak: as looked at within a second; the detail of that time was "
			      "folded)\n" :
			      "    (at peak: the detail of that time was folded before anybody looked)"
			      "\n", out);
	}
	if (d->sites.n) {
		fprintf(out, "\n  %-72s%14s%12s\n", "by call site", "at peak", "at end");
		for (size_t i = 0; i < d->sites.n && i < rows; i++) {
			const struct wgm_site *s = d->sites.v[i];

			fputs("    ", out);
			/* "first": of a script, whose library is the interpreter and says nothing. */
			fit(out, s->library && strncmp(s->text, "first ", 6) ?
			    wg_fmt(a->t->arena, "%s [%s]", s->text, s->library) : s->text, 70, true);
			fit(out, wgm_size(s->live_at_peak), 14, false);
			fit(out, wgm_size(s->live_at_end), 12, false);
			fputc('\n', out);
		}
		if (d->sites.n > rows)
			fprintf(out, "    %zu more: --top N, or --json\n", d->sites.n - rows);
	}
}

static bool in_vain(const struct wgm_device *d)
{
	for (size_t i = 0; i < d->failures.n; i++)
		if (!d->failures.v[i]->recovered)
			return true;
	return false;
}

/* "0-4, 6" */
static void print_indices(FILE *out, const int *index, int n)
{
	for (int i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && index[k] == index[k - 1] + 1; k++)
			;
		fprintf(out, "%s%d", i ? ", " : "", index[i]);
		if (k - i > 2)
			fprintf(out, "-%d", index[k - 1]);
		else if (k - i == 2)
			fprintf(out, ", %d", index[k - 1]);
	}
}

/*
 * Devices of which there is the same to say are told once: eight workers that do alike are one
 * paragraph. Those that came short come first.
 */
static void print_devices(FILE *out, struct wgm_analysis *a, unsigned int rows)
{
	char *body[WGTR_DEVICES] = { NULL };

	for (int i = 0; i < WGTR_DEVICES; i++) {
		size_t n = 0;
		FILE *f = a->devices[i].used ? open_memstream(&body[i], &n) : NULL;

		if (!f)
			continue;
		print_device(f, a, &a->devices[i], rows);
		fclose(f);
	}
	for (int pass = 0; pass < 2; pass++)
		for (int i = 0; i < WGTR_DEVICES; i++) {
			int index[WGTR_DEVICES], n = 0;

			if (!body[i] || in_vain(&a->devices[i]) != (pass == 0))
				continue;
			for (int k = i; k < WGTR_DEVICES; k++) {
				if (!body[k] || strcmp(body[i], body[k]))
					continue;
				index[n++] = a->devices[k].index;
				if (k > i) {
					free(body[k]);
					body[k] = NULL;
				}
			}
			fputs("\nGPU ", out);
			print_indices(out, index, n);
			fputs(n > 1 ? ", each" : "", out);
			fputs(body[i], out);
			free(body[i]);
			body[i] = NULL;
		}
}

void wgm_print(FILE *out, struct wgm_analysis *a, unsigned int rows)
{
	struct wgm_trace *t = a->t;
	int used = 0;
	const char *rank = t->h.rank >= 0 ? wg_fmt(t->arena, ", rank %d", t->h.rank) : "";

	wrap(out, 0, wg_fmt(t->arena, "%.80s  (pid %u%s on %s, %s, %s)",
			    wg_str(t->arena, t->h.command), t->h.pid, rank,
			    wg_str(t->arena, t->h.host), wgm_time(a->duration_s),
			    wgm_killed(t) ? "no normal end: killed, or still running" :
			    "ended normally"));
	for (int i = 0; i < WGTR_DEVICES; i++)
		used += a->devices[i].used;
	if (!used)
		fputs("\nNo device memory was allocated, and none asked for in vain.\n", out);
	print_devices(out, a, rows);
	if (a->host_peak)
		fprintf(out, "\nPinned host memory: %s at its peak (%s), %s at the end\n",
			wgm_size(a->host_peak), wgm_time(a->host_peak_at_s),
			wgm_size(a->host_at_end));
	if (a->waits && a->longest_wait)
		fprintf(out, "\nLong blocking calls: %" PRIu64 ", the longest %s in %s\n", a->waits,
			wgm_time(a->longest_wait_s), a->longest_wait);
	if (t->lost)
		fprintf(out, "\nLOST: %" PRIu64 " events could not be written; levels and what is "
			"alive are still exact\n", t->lost);
	if (t->h.folded_events)
		fprintf(out, "\nFolded: %" PRIu64 " older events (before %s) are kept as sums only "
			"(WAITGRAPH_TRACE_MAX)\n", t->h.folded_events, wgm_time(a->whole_from_s));
	for (size_t i = 0; i < t->notes.n; i++)
		fprintf(out, "\nNote: %s\n", t->notes.v[i]);
}
