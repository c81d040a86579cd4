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
#include "../tools/collect/python_offsets.h"

#define PY_WALK 8192
#define PY_SIZE_AT 16 /* ob_size of bytes, length of str: in all versions */

static struct {
	_Atomic uint64_t runtime; /* address of _PyRuntime; 0 no interpreter seen */
	_Atomic int minor;	  /* 0 unknown */
	_Atomic int ready;	  /* 0 layout not filled, 1 being filled, 2 filled, -1 none fits */
	struct wg_py_offsets layout;
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
	atomic_store(&py.ready, 0);
}

/* ---- strings --------------------------------------------------------------------------- */

/* A str object as UTF-8; its end when it is longer than the buffer and `tail`. */
static bool text(const struct wg_py_offsets *l, uint64_t str, char *out, size_t room, bool tail)
{
	uint32_t state, kind;
	uint64_t length, data;
	uint8_t raw[512] __attribute__((aligned(8)));
	size_t n, at = 0;

	out[0] = 0;
	if (!str || wg_peek(str + l->unicode_state, &state, 4))
		return false;
	length = word(str + PY_SIZE_AT);
	kind = state >> 2 & 7;
	if (length > 1u << 20 || (kind != 1 && kind != 2 && kind != 4))
		return false;
	if (state & 0x20) /* compact */
		data = str + (state & 0x40 ? l->unicode_ascii_data : l->unicode_compact_data);
	else
		data = word(str + l->unicode_noncompact_data_ptr);
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

static uint32_t line_of(const struct wg_py_offsets *l, int minor, uint64_t code, int64_t lasti)
{
	struct bytes b = { 0 };
	uint64_t table = word(code + (minor < 10 ? l->code_lnotab : l->code_linetable));
	int32_t first;
	int64_t line, at = 0;
	int c;

	if (!table || !int_at(code + l->code_firstlineno, &first))
		return 0;
	b.data = table + l->bytes_ob_sval;
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

static uint64_t own_state(const struct wg_py_offsets *l, uint64_t runtime)
{
	uint64_t self = (uint64_t)pthread_self(), interp = word(runtime + l->runtime_interpreters_head);
	int steps = PY_WALK;

	for (; interp && steps > 0; interp = word(interp + l->interp_next))
		for (uint64_t ts = word(interp + l->interp_threads_head); ts && steps-- > 0;
		     ts = word(ts + l->tstate_next))
			if (word(ts + l->tstate_thread_id) == self)
				return ts;
	return 0;
}

/* The table's row for this version, and on top of it what the interpreter itself publishes. */
static const struct wg_py_offsets *layout(uint64_t runtime, int minor)
{
	const struct wg_py_published *published = NULL;
	size_t n = 0;
	int state = 0;

	if (atomic_load_explicit(&py.ready, memory_order_acquire) == 2)
		return &py.layout;
	if (!atomic_compare_exchange_strong(&py.ready, &state, 1))
		return NULL; /* another thread is at it, or there is none */
	for (size_t i = 0; i < sizeof(wg_py_table) / sizeof(wg_py_table[0]); i++)
		if (wg_py_table[i].major == 3 && wg_py_table[i].minor == minor) {
			py.layout = wg_py_table[i];
			state = 2;
		}
	if (state != 2) {
		atomic_store(&py.ready, -1);
		return NULL;
	}
	if (minor == 13) {
		published = wg_py_published_3_13;
		n = sizeof(wg_py_published_3_13) / sizeof(wg_py_published_3_13[0]);
	} else if (minor == 14) {
		published = wg_py_published_3_14;
		n = sizeof(wg_py_published_3_14) / sizeof(wg_py_published_3_14[0]);
	}
	for (size_t i = 0; i < n; i++) {
		uint64_t v;

		if (!wg_peek(runtime + published[i].at, &v, sizeof(v)) && v < WG_PY_ABSENT)
			*(uint16_t *)((char *)&py.layout + published[i].field) = (uint16_t)v;
	}
	atomic_store_explicit(&py.ready, 2, memory_order_release);
	return &py.layout;
}

int wg_python_take(struct wg_pyline *out, int max)
{
	uint64_t runtime = atomic_load(&py.runtime), ts, frame;
	int minor = atomic_load(&py.minor), n = 0;
	const struct wg_py_offsets *l;

	l = runtime && minor > 0 ? layout(runtime, minor) : NULL;
	ts = l ? own_state(l, runtime) : 0;
	if (!ts)
		return 0;
	frame = word(ts + (l->style == WG_PY_PYFRAME ? l->tstate_frame :
			   l->style == WG_PY_CFRAME ? l->tstate_cframe : l->tstate_current_frame));
	if (l->style == WG_PY_CFRAME)
		frame = frame ? word(frame + l->cframe_current_frame) : 0;
	for (int steps = 0; frame && n < max && steps < 1024; steps++) {
		uint64_t here = frame, code, start, pos;
		struct wg_pyline *p = &out[n];
		int32_t value;
		int64_t lasti;
		uint8_t owner = 0;

		code = word(here + (l->style == WG_PY_DIRECT ? l->frame_executable :
				    l->frame_code)) & ~3ull; /* 3.14 keeps marks in the low bits */
		frame = word(here + (l->style == WG_PY_PYFRAME ? l->frame_back : l->frame_previous));
		if (l->style == WG_PY_PYFRAME) {
			if (!int_at(here + l->frame_lasti, &value))
				break;
			lasti = minor == 10 ? (int64_t)value * 2 : value;
		} else {
			if (wg_peek(here + l->frame_owner, &owner, 1) || owner >= 3)
				continue; /* a frame of the interpreter itself */
			start = code + l->code_code_adaptive;
			pos = word(here + (l->style == WG_PY_CFRAME ? l->frame_prev_instr :
					   l->frame_instr_ptr));
			lasti = (int64_t)(pos - start);
			if (l->style == WG_PY_CFRAME && owner == 0 &&
			    int_at(code + l->code_firsttraceable, &value) &&
			    lasti < 2 * (int64_t)value)
				continue; /* still being set up */
		}
		if (!text(l, word(code + l->code_filename), p->file, sizeof(p->file), true) ||
		    !text(l, word(code + (l->code_qualname != WG_PY_ABSENT ? l->code_qualname :
					  l->code_name)), p->function, sizeof(p->function), false))
			break;
		p->line = line_of(l, minor, code, lasti);
		n++;
	}
	return n;
}
