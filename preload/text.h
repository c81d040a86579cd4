/* SPDX-License-Identifier: Apache-2.0 */
/*
 * text.h - putting small texts together where stdio may not be used: no allocation, no locale, no
 * locks. A text that does not fit is cut; it always ends with NUL.
 */
#ifndef WG_TEXT_H
#define WG_TEXT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct wg_text {
	char *at;
	size_t n, size;
};

static inline struct wg_text wg_text(char *buf, size_t size)
{
	buf[0] = 0;
	return (struct wg_text){ .at = buf, .size = size };
}

static inline void wg_puts(struct wg_text *t, const char *s)
{
	while (*s && t->n + 1 < t->size)
		t->at[t->n++] = *s++;
	t->at[t->n] = 0;
}

static inline void wg_putn(struct wg_text *t, const char *s, size_t max) /* ends earlier at a NUL */
{
	for (size_t i = 0; i < max && s[i] && t->n + 1 < t->size; i++)
		t->at[t->n++] = s[i];
	t->at[t->n] = 0;
}

static inline void wg_putu(struct wg_text *t, uint64_t v)
{
	char digits[24], *p = digits + sizeof(digits) - 1;

	*p = 0;
	do {
		*--p = (char)('0' + v % 10);
		v /= 10;
	} while (v);
	wg_puts(t, p);
}

static inline void wg_puti(struct wg_text *t, int64_t v)
{
	if (v < 0)
		wg_puts(t, "-");
	wg_putu(t, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

static inline void wg_putx(struct wg_text *t, uint64_t v)
{
	static const char hex[] = "0123456789abcdef";
	int shift = 60;

	wg_puts(t, "0x");
	while (shift && !(v >> shift))
		shift -= 4;
	for (; shift >= 0; shift -= 4) {
		char c[2] = { hex[(v >> shift) & 15], 0 };

		wg_puts(t, c);
	}
}

static inline void wg_put_seconds(struct wg_text *t, uint64_t ns) /* 12.3 */
{
	wg_putu(t, ns / 1000000000);
	wg_puts(t, ".");
	wg_putu(t, ns / 100000000 % 10);
}

#endif
