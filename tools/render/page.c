/* SPDX-License-Identifier: Apache-2.0 */
/* page.c - lines before they are printed (see page.h). */
#include "page.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* One character: its bytes and columns. Facts are valid UTF-8; a stray byte counts as one. */
static size_t char_at(const char *s, int *columns)
{
	const unsigned char *u = (const unsigned char *)s;
	unsigned int cp;
	size_t n;

	*columns = 1;
	if (u[0] < 0x80)
		return 1;
	if ((u[0] & 0xe0) == 0xc0 && (u[1] & 0xc0) == 0x80) {
		cp = (u[0] & 31u) << 6 | (u[1] & 63u);
		n = 2;
	} else if ((u[0] & 0xf0) == 0xe0 && (u[1] & 0xc0) == 0x80 && (u[2] & 0xc0) == 0x80) {
		cp = (u[0] & 15u) << 12 | (u[1] & 63u) << 6 | (u[2] & 63u);
		n = 3;
	} else if ((u[0] & 0xf8) == 0xf0 && (u[1] & 0xc0) == 0x80 && (u[2] & 0xc0) == 0x80 &&
		   (u[3] & 0xc0) == 0x80) {
		cp = (u[0] & 7u) << 18 | (u[1] & 63u) << 12 | (u[2] & 63u) << 6 | (u[3] & 63u);
		n = 4;
	} else {
		return 1;
	}
	/* The C locale knows no widths, and the reader must not depend on the user's. */
	if ((cp >= 0x300 && cp <= 0x36f) || (cp >= 0x200b && cp <= 0x200f) || cp == 0xfeff ||
	    (cp >= 0xfe00 && cp <= 0xfe0f))
		*columns = 0;
	else if ((cp >= 0x1100 && cp <= 0x115f) || (cp >= 0x2e80 && cp <= 0xa4cf) ||
		 (cp >= 0xac00 && cp <= 0xd7a3) || (cp >= 0xf900 && cp <= 0xfaff) ||
		 (cp >= 0xfe30 && cp <= 0xfe6f) || (cp >= 0xff00 && cp <= 0xff60) ||
		 (cp >= 0xffe0 && cp <= 0xffe6) || (cp >= 0x1f300 && cp <= 0x1faff) ||
		 (cp >= 0x20000 && cp <= 0x3fffd))
		*columns = 2;
	return n;
}

int wg_columns(const char *s, size_t n)
{
	int cols = 0, c;

	for (size_t i = 0; i < n && s[i];) {
		i += char_at(s + i, &c);
		cols += c;
	}
	return cols;
}

static void push(struct wg_page *p, enum wg_style style, const char *text, int label)
{
	struct wg_line *l = wg_push(p->arena, &p->lines);

	l->text = text;
	l->style = style;
	l->label = label;
}

void wg_line(struct wg_page *p, enum wg_style style, const char *fmt, ...)
{
	va_list ap;
	char *s = NULL;
	int n;

	va_start(ap, fmt);
	n = vasprintf(&s, fmt, ap);
	va_end(ap);
	if (n < 0)
		return;
	push(p, style, wg_cut(p->arena, wg_strn(p->arena, s, (size_t)n), p->width), 0);
	free(s);
}

/* How many bytes of s fit into `room` columns, ending at a word if one ends there. */
static size_t fit(const char *s, int room)
{
	size_t i = 0, word = 0;
	int cols = 0, c;

	while (s[i]) {
		size_t n = char_at(s + i, &c);

		if (cols + c > room)
			break;
		if (s[i] == ' ')
			word = i;
		cols += c;
		i += n;
	}
	if (!s[i] || s[i] == ' ')
		return i;
	/* A word of half a line or more (a path, a C++ name) is broken rather than moved. */
	if (word && wg_columns(s, word) > room / 2)
		return word;
	return word && wg_columns(s + word + 1, strcspn(s + word + 1, " ")) <= room ? word :
	       i						   ? i :
								     1;
}

void wg_wrap_cut(struct wg_page *p, enum wg_style style, const char *first, const char *rest,
		 const char *text, size_t max)
{
	const char *lead;
	size_t used = 0;

	/* A lead of hostile length must leave room for the text. */
	first = wg_cut(p->arena, first, p->width * 2 / 3);
	rest = wg_cut(p->arena, rest, p->width / 2);
	lead = first;
	while (*text == ' ')
		text++;
	do {
		int room = p->width - wg_columns(lead, strlen(lead));
		size_t n = fit(text, room > 10 ? room : 10), skip = n;

		while (text[skip] == ' ')
			skip++;
		if (++used == max && text[skip]) {
			push(p, style,
			     wg_fmt(p->arena, "%s%s", lead,
				    wg_cut(p->arena, text, room > 10 ? room : 10)),
			     used == 1 ? (int)strlen(first) : 0);
			return;
		}
		push(p, style, wg_fmt(p->arena, "%s%.*s", lead, (int)n, text),
		     used == 1 ? (int)strlen(first) : 0);
		text += skip;
		lead = rest;
	} while (*text);
}

void wg_wrap(struct wg_page *p, enum wg_style style, const char *first, const char *rest,
	     const char *text)
{
	wg_wrap_cut(p, style, first, rest, text, SIZE_MAX);
}

const char *wg_cut(struct wg_arena *a, const char *s, int columns)
{
	size_t i = 0;
	int cols = 0, c;

	if (!s)
		return NULL;
	if (wg_columns(s, strlen(s)) <= columns)
		return s;
	while (s[i]) {
		size_t n = char_at(s + i, &c);

		if (cols + c > columns - 3)
			break;
		cols += c;
		i += n;
	}
	return wg_fmt(a, "%.*s...", (int)i, s);
}

const char *wg_cut_path(struct wg_arena *a, const char *s, int columns)
{
	int cols;
	size_t i = 0;
	int c;

	if (!s)
		return NULL;
	cols = wg_columns(s, strlen(s));
	if (cols <= columns)
		return s;
	while (s[i] && cols > columns - 3) {
		i += char_at(s + i, &c);
		cols -= c;
	}
	return wg_fmt(a, "...%s", s + i);
}

int wg_page_print(FILE *out, const struct wg_page *p, bool color)
{
	static const char *const code[] = { [WG_PLAIN] = "", [WG_HEAD] = "\033[1m",
					    [WG_BAD] = "\033[1;31m", [WG_GOOD] = "\033[1;32m",
					    [WG_DOUBT] = "\033[1;33m", [WG_DIM] = "\033[2m" };

	errno = 0;
	for (size_t i = 0; i < p->lines.n; i++) {
		const struct wg_line *l = &p->lines.v[i];
		size_t n = strlen(l->text);

		while (n && l->text[n - 1] == ' ')
			n--;
		if (!color || !n)
			fprintf(out, "%.*s\n", (int)n, l->text);
		else if (l->style != WG_PLAIN)
			fprintf(out, "%s%.*s\033[0m\n", code[l->style], (int)n, l->text);
		else if (l->label > 0 && (size_t)l->label < n && l->text[0] != ' ')
			fprintf(out, "\033[1m%.*s\033[0m%.*s\n", l->label, l->text,
				(int)(n - (size_t)l->label), l->text + l->label);
		else
			fprintf(out, "%.*s\n", (int)n, l->text);
	}
	if (fflush(out) || ferror(out))
		return errno ? -errno : -EIO;
	return 0;
}

const char *wg_bytes_text(struct wg_arena *a, int64_t v)
{
	static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
	double x = (double)v;
	int u = 0;

	if (!wg_has_int(v))
		return "?";
	while ((x >= 1024 || x <= -1024) && u < 6) {
		x /= 1024;
		u++;
	}
	if (!u)
		return wg_fmt(a, "%lld B", (long long)v);
	return wg_fmt(a, x < 100 ? "%.1f %s" : "%.0f %s", x, units[u]);
}

const char *wg_ranges_text(struct wg_arena *a, const int64_t *v, size_t n)
{
	const char *s = "";

	for (size_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k] == v[k - 1] + 1; k++)
			;
		s = wg_fmt(a, k - i > 2 ? "%s%s%lld-%lld" : k - i == 2 ? "%s%s%lld, %lld" : "%s%s%lld", s,
			   i ? ", " : "", (long long)v[i], (long long)v[k - 1]);
	}
	return s;
}

const char *wg_time_text(struct wg_arena *a, double s)
{
	if (!wg_has_sec(s))
		return "?";
	if (s < 0)
		s = 0;
	if (s < 0.0995)
		return wg_fmt(a, "%.0f ms", s * 1000);
	if (s < 9.95)
		return wg_fmt(a, "%.1f s", s);
	if (s < 119.5)
		return wg_fmt(a, "%.0f s", s);
	if (s < 7200)
		return wg_fmt(a, "%d min %d s", (int)(s / 60), (int)s % 60);
	if (s < 2 * 86400.0)
		return wg_fmt(a, "%d h %d min", (int)(s / 3600), (int)(s / 60) % 60);
	if (s < 1e9)
		return wg_fmt(a, "%d days %d h", (int)(s / 86400), (int)(s / 3600) % 24);
	return "?";
}
