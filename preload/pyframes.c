/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pyframes.c - Python frames of the calling thread, from inside, without the interpreter's help.
 *
 * No Python function is called: the GIL may be elsewhere, and code that fails an allocation
 * may be deep in C++ with it released. The interpreter's structures are read as raw memory by
 * the same table of offsets that the reader outside uses; every read goes through wg_peek(),
 * so an offset that does not fit (a debug build, a patched interpreter) yields no frames and
 * not a crash. The own thread is recognised by pthread_self(), which every version stores.
 *
 * Other threads may change the lists while they are walked: each walk is bounded, and a wrong
 * turn ends in memory that cannot be read or a thread that is not ours.
 */
#include <elf.h>
#include <pthread.h>
#include <string.h>

#include "accounting.h"
#include "pyframes.h"

#define PY_NONE 0xffffu
#define PY_FIRST 8 /* 3.8 is the oldest known */
#define PY_WALK 8192

enum py_style { PY_OBJECT, PY_CFRAME, PY_DIRECT }; /* how a thread state leads to its frame */

/* Release builds with the GIL, 64 bit; x86-64 and aarch64 agree in all of these. */
static const struct py_layout {
	uint16_t style;
	uint16_t heads, interp_next, threads, ts_next, ts_id, ts_frame, cf_frame;
	uint16_t fr_back, fr_code, fr_pos, fr_owner;
	uint16_t co_name, co_qualname, co_file, co_first, co_lines, co_code, co_traceable;
	uint16_t by_data, un_state, un_ascii, un_compact, un_data;
} py_layouts[] = {
	/* 3.8 */
	{ PY_OBJECT, 32, 0, 8, 8, 176, 24, PY_NONE, 24, 32, 104, PY_NONE,
	  112, PY_NONE, 104, 40, 120, PY_NONE, PY_NONE, 32, 32, 48, 72, 72 },
	/* 3.9 */
	{ PY_OBJECT, 32, 0, 8, 8, 176, 24, PY_NONE, 24, 32, 104, PY_NONE,
	  112, PY_NONE, 104, 40, 120, PY_NONE, PY_NONE, 32, 32, 48, 72, 72 },
	/* 3.10 */
	{ PY_OBJECT, 32, 0, 8, 8, 176, 24, PY_NONE, 24, 32, 96, PY_NONE,
	  112, PY_NONE, 104, 40, 120, PY_NONE, PY_NONE, 32, 32, 48, 72, 72 },
	/* 3.11 */
	{ PY_CFRAME, 40, 0, 16, 8, 152, 56, 8, 48, 32, 56, 69,
	  120, 128, 112, 72, 136, 184, 168, 32, 32, 48, 72, 72 },
	/* 3.12 */
	{ PY_CFRAME, 40, 0, 72, 8, 136, 56, 0, 8, 0, 56, 70,
	  120, 128, 112, 68, 136, 192, 176, 32, 32, 40, 56, 56 },
	/* 3.13 */
	{ PY_DIRECT, 632, 7264, 7344, 8, 152, 72, PY_NONE, 8, 0, 56, 70,
	  120, 128, 112, 68, 136, 200, 184, 32, 32, 40, 56, 56 },
	/* 3.14 */
	{ PY_DIRECT, 808, 7272, 7344, 8, 152, 72, PY_NONE, 8, 0, 56, 74,
	  120, 128, 112, 68, 136, 208, 192, 32, 32, 40, 56, 56 },
};
#define PY_SIZE_AT 16 /* ob_size of bytes, length of str: in all versions */

static struct {
	_Atomic uint64_t runtime; /* address of _PyRuntime; 0 no interpreter seen */
	_Atomic int minor;	  /* 0 unknown */
} py;

static uint64_t word(uint64_t addr)
{
	uint64_t v = 0;

	return wg_peek(addr, &v, sizeof(v)) ? 0 : v;
}

static bool int_at(uint64_t addr, int32_t *v)
{
	return !wg_peek(addr, v, sizeof(*v));
}

/* ---- finding the interpreter ------------------------------------------------------ */

struct elf_view {
	uint64_t bias, symbols, strings, hash;
};

static bool view(uint64_t base, struct elf_view *v)
{
	Elf64_Ehdr eh;
	Elf64_Phdr ph;
	uint64_t dynamic = 0;
	bool have_bias = false;

	memset(v, 0, sizeof(*v));
	if (wg_peek(base, &eh, sizeof(eh)) || memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
	    eh.e_ident[EI_CLASS] != ELFCLASS64 || eh.e_phentsize != sizeof(ph))
		return false;
	for (unsigned int i = 0; i < eh.e_phnum && i < 64; i++) {
		if (wg_peek(base + eh.e_phoff + i * sizeof(ph), &ph, sizeof(ph)))
			return false;
		if (ph.p_type == PT_LOAD && !have_bias) {
			v->bias = base - (ph.p_vaddr - ph.p_offset);
			have_bias = true;
		} else if (ph.p_type == PT_DYNAMIC) {
			dynamic = ph.p_vaddr;
		}
	}
	if (!have_bias || !dynamic)
		return false;
	dynamic += v->bias;
	for (int i = 0; i < 256; i++) {
		Elf64_Dyn d;

		if (wg_peek(dynamic + (uint64_t)i * sizeof(d), &d, sizeof(d)))
			return false;
		if (d.d_tag == DT_NULL)
			break;
		/* The loader has relocated these in place, except in read-only sections (vdso). */
		if (d.d_un.d_ptr < v->bias)
			d.d_un.d_ptr += v->bias;
		if (d.d_tag == DT_SYMTAB)
			v->symbols = d.d_un.d_ptr;
		else if (d.d_tag == DT_STRTAB)
			v->strings = d.d_un.d_ptr;
		else if (d.d_tag == DT_GNU_HASH)
			v->hash = d.d_un.d_ptr;
	}
	return v->symbols && v->strings && v->hash;
}

/* Address of an exported data symbol, by the GNU hash table in memory; 0 not there. */
static uint64_t exported(const struct elf_view *v, const char *name)
{
	struct {
		uint32_t buckets, first, bloom, shift;
	} h;
	uint32_t hash = 5381, at, chain;
	uint64_t buckets, chains;
	size_t len = strlen(name) + 1;
	char found[32];

	for (const char *c = name; *c; c++)
		hash = hash * 33 + (uint8_t)*c;
	if (wg_peek(v->hash, &h, sizeof(h)) || !h.buckets || len > sizeof(found))
		return 0;
	buckets = v->hash + sizeof(h) + 8ull * h.bloom;
	chains = buckets + 4ull * h.buckets;
	if (wg_peek(buckets + 4ull * (hash % h.buckets), &at, 4) || at < h.first)
		return 0;
	for (int i = 0; i < 4096; i++, at++) {
		Elf64_Sym sym;

		if (wg_peek(chains + 4ull * (at - h.first), &chain, 4))
			return 0;
		if ((chain | 1) == (hash | 1) &&
		    !wg_peek(v->symbols + (uint64_t)at * sizeof(sym), &sym, sizeof(sym)) &&
		    sym.st_shndx != SHN_UNDEF &&
		    !wg_peek(v->strings + sym.st_name, found, len) && !memcmp(found, name, len))
			return v->bias + sym.st_value;
		if (chain & 1)
			return 0;
	}
	return 0;
}

/* "…/python3.10/…", "libpython3.10.so", "….cpython-310-x86_64…": for versions that keep no number. */
static int minor_in(const char *path)
{
	const char *p;
	int minor = 0;

	if ((p = strstr(path, "python3.")))
		p += 8;
	else if ((p = strstr(path, "cpython-3")))
		p += 9;
	else
		return 0;
	while (*p >= '0' && *p <= '9' && minor < 100)
		minor = minor * 10 + (*p++ - '0');
	return minor;
}

static int minor_of(uint64_t runtime, const struct elf_view *v)
{
	char cookie[8];
	uint64_t number, at;

	if (!wg_peek(runtime, cookie, 8) && !memcmp(cookie, "xdebugpy", 8)) {
		if (word(runtime + 16)) /* free-threaded: another layout */
			return -1;
		number = word(runtime + 8);
	} else {
		at = exported(v, "Py_Version"); /* 3.11 and later */
		number = at ? word(at) : 0;
	}
	return number >> 24 == 3 ? (int)(number >> 16 & 0xff) : 0;
}

void wg_python_object(uint64_t base, const char *path)
{
	struct elf_view v;
	uint64_t runtime;
	int minor;

	if (!atomic_load(&py.runtime) && base && view(base, &v)) {
		runtime = exported(&v, "_PyRuntime");
		if (runtime) {
			minor = minor_of(runtime, &v);
			if (minor)
				atomic_store(&py.minor, minor);
			atomic_store(&py.runtime, runtime);
		}
	}
	if (!atomic_load(&py.minor)) {
		minor = minor_in(path);
		if (minor)
			atomic_store(&py.minor, minor);
	}
}

void wg_python_fork_child(void)
{
	/* Same addresses in the child, but its record starts with a scan of its own. */
	atomic_store(&py.runtime, 0);
	atomic_store(&py.minor, 0);
}

/* ---- strings --------------------------------------------------------------------------- */

/* A str object as UTF-8; its end when it is longer than the buffer and `tail`. */
static bool text(const struct py_layout *l, uint64_t str, char *out, size_t room, bool tail)
{
	uint32_t state, kind;
	uint64_t length, data;
	uint8_t raw[512] __attribute__((aligned(8)));
	size_t n, at = 0;

	out[0] = 0;
	if (!str || wg_peek(str + l->un_state, &state, 4))
		return false;
	length = word(str + PY_SIZE_AT);
	kind = state >> 2 & 7;
	if (length > 1u << 20 || (kind != 1 && kind != 2 && kind != 4))
		return false;
	if (state & 0x20) /* compact */
		data = str + (state & 0x40 ? l->un_ascii : l->un_compact);
	else
		data = word(str + l->un_data);
	n = length * kind < sizeof(raw) ? length : sizeof(raw) / kind;
	if (n > room)
		n = room;
	if (tail)
		data += (length - n) * kind;
	if (n && wg_peek(data, raw, n * kind))
		return false;
	for (int pass = tail ? 0 : 1; pass < 2; pass++) {
		/* With `tail`, first find how many characters at the end fit as UTF-8. */
		size_t first = 0, bytes = 0;

		for (size_t i = n; !pass && i-- > 0;) {
			uint32_t c = kind == 1 ? raw[i] : kind == 2 ? ((uint16_t *)raw)[i] :
				     ((uint32_t *)raw)[i];

			bytes += c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
			if (bytes >= room) {
				first = i + 1;
				break;
			}
		}
		if (!pass) {
			n -= first;
			memmove(raw, raw + first * kind, n * kind);
		}
	}
	for (size_t i = 0; i < n; i++) {
		uint32_t c = kind == 1 ? raw[i] : kind == 2 ? ((uint16_t *)raw)[i] :
			     ((uint32_t *)raw)[i];
		size_t need = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;

		if (at + need >= room)
			break;
		if (need == 1) {
			out[at++] = (char)c;
		} else if (need == 2) {
			out[at++] = (char)(0xc0 | c >> 6);
			out[at++] = (char)(0x80 | (c & 0x3f));
		} else if (need == 3) {
			out[at++] = (char)(0xe0 | c >> 12);
			out[at++] = (char)(0x80 | (c >> 6 & 0x3f));
			out[at++] = (char)(0x80 | (c & 0x3f));
		} else {
			out[at++] = (char)(0xf0 | (c >> 18 & 7));
			out[at++] = (char)(0x80 | (c >> 12 & 0x3f));
			out[at++] = (char)(0x80 | (c >> 6 & 0x3f));
			out[at++] = (char)(0x80 | (c & 0x3f));
		}
	}
	out[at] = 0;
	return true;
}

/* ---- lines ------------------------------------------------------------------------------- */

struct bytes { /* a bytes object, read in pieces */
	uint64_t data, length, at;
	uint8_t buf[256];
	uint64_t from, have;
};

static int next(struct bytes *b)
{
	if (b->at >= b->length)
		return -1;
	if (b->at < b->from || b->at >= b->from + b->have) {
		b->from = b->at;
		b->have = b->length - b->at < sizeof(b->buf) ? b->length - b->at : sizeof(b->buf);
		if (wg_peek(b->data + b->from, b->buf, b->have)) {
			b->length = 0;
			return -1;
		}
	}
	return b->buf[b->at++ - b->from];
}

static int64_t varint(struct bytes *b)
{
	int64_t v = 0;

	for (int shift = 0; shift < 36; shift += 6) {
		int c = next(b);

		if (c < 0)
			return 0;
		v |= (int64_t)(c & 63) << shift;
		if (!(c & 64))
			break;
	}
	return v;
}

static uint32_t line_of(const struct py_layout *l, int minor, uint64_t code, int64_t lasti)
{
	struct bytes b = { 0 };
	uint64_t table = word(code + l->co_lines);
	int32_t first;
	int64_t line, at = 0;
	int c;

	if (!table || !int_at(code + l->co_first, &first))
		return 0;
	b.data = table + l->by_data;
	b.length = word(table + PY_SIZE_AT);
	line = first;
	if (b.length > 1u << 24)
		return 0;
	if (lasti < 0)
		return (uint32_t)first;
	while ((c = next(&b)) >= 0) {
		if (minor <= 10) {
			int d = next(&b);

			if (d < 0)
				break;
			if (minor < 10) { /* bytes, then the line from there on */
				at += c;
				if (at > lasti)
					break;
				line += (int8_t)d;
			} else { /* the line of so many bytes */
				if ((int8_t)d != -128)
					line += (int8_t)d;
				if (lasti < at + c)
					return (int8_t)d == -128 ? 0 : (uint32_t)line;
				at += c;
			}
			continue;
		}
		int form = c >> 3 & 15, units = (c & 7) + 1;

		if (form == 13 || form == 14) {
			int64_t v = varint(&b);

			line += v & 1 ? -(v >> 1) : v >> 1;
			if (form == 14)
				for (int i = 0; i < 3; i++)
					varint(&b);
		} else if (form >= 10 && form <= 12) {
			line += form - 10;
			next(&b);
			next(&b);
		} else if (form < 10) {
			next(&b);
		}
		if (lasti < at + units * 2)
			return form == 15 ? 0 : (uint32_t)line;
		at += units * 2;
	}
	return minor < 10 ? (uint32_t)line : 0;
}

/* ---- frames ---------------------------------------------------------------------------------- */

static uint64_t own_state(const struct py_layout *l, uint64_t runtime)
{
	uint64_t self = (uint64_t)pthread_self(), interp = word(runtime + l->heads);
	int steps = PY_WALK;

	for (; interp && steps > 0; interp = word(interp + l->interp_next))
		for (uint64_t ts = word(interp + l->threads); ts && steps-- > 0;
		     ts = word(ts + l->ts_next))
			if (word(ts + l->ts_id) == self)
				return ts;
	return 0;
}

int wg_python_take(struct wg_pyline *out, int max)
{
	uint64_t runtime = atomic_load(&py.runtime), ts, frame;
	int minor = atomic_load(&py.minor), n = 0;
	const struct py_layout *l;

	if (!runtime || minor < PY_FIRST ||
	    minor - PY_FIRST >= (int)(sizeof(py_layouts) / sizeof(py_layouts[0])))
		return 0;
	l = &py_layouts[minor - PY_FIRST];
	ts = own_state(l, runtime);
	if (!ts)
		return 0;
	frame = word(ts + l->ts_frame);
	if (l->style == PY_CFRAME)
		frame = frame ? word(frame + l->cf_frame) : 0;
	for (int steps = 0; frame && n < max && steps < 1024; steps++) {
		uint64_t here = frame, code = word(frame + l->fr_code) & ~3ull, start, pos;
		struct wg_pyline *p = &out[n];
		int32_t value;
		int64_t lasti;
		uint8_t owner = 0;

		frame = word(frame + l->fr_back);
		if (l->fr_owner != PY_NONE && (wg_peek(here + l->fr_owner, &owner, 1) || owner >= 3))
			continue; /* a frame of the interpreter itself */
		if (l->style == PY_OBJECT) {
			if (!int_at(here + l->fr_pos, &value))
				break;
			lasti = minor == 10 ? (int64_t)value * 2 : value;
		} else {
			start = code + l->co_code;
			pos = word(here + l->fr_pos);
			lasti = (int64_t)(pos - start);
			if (l->style == PY_CFRAME && owner == 0 &&
			    int_at(code + l->co_traceable, &value) && lasti < 2 * (int64_t)value)
				continue; /* still being set up */
		}
		if (!text(l, word(code + l->co_file), p->file, sizeof(p->file), true) ||
		    !text(l, word(code + (l->co_qualname != PY_NONE ? l->co_qualname : l->co_name)),
			  p->function, sizeof(p->function), false))
			break;
		p->line = line_of(l, minor, code, lasti);
		n++;
	}
	return n;
}
