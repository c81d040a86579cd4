/* SPDX-License-Identifier: Apache-2.0 */
/* pyread.c - see pyread.h. */
#include "pyread.h"
#include "symbols.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_STR 1024	   /* characters of a name */
#define MAX_TABLE (1u << 20) /* bytes of a line or exception table */
#define MAX_ENTRIES 8192   /* of a dict that is searched */
#define MAX_INTERPS 256

/* ---- words ------------------------------------------------------------------------- */

bool wg_py_u64(struct wg_py *py, uint64_t addr, uint64_t *v)
{
	return !wg_mem_read(py->m, addr, v, 8);
}

bool wg_py_i32(struct wg_py *py, uint64_t addr, int32_t *v)
{
	return !wg_mem_read(py->m, addr, v, 4);
}

static bool plausible(uint64_t v)
{
	return v >= 4096 && !(v >> 47) && !(v & 7);
}

bool wg_py_ptr(struct wg_py *py, uint64_t addr, uint64_t *v)
{
	return wg_py_u64(py, addr, v) && plausible(*v);
}

bool wg_py_field(struct wg_py *py, uint64_t base, uint16_t offset, uint64_t *v)
{
	return offset != WG_PY_ABSENT && base && wg_py_u64(py, base + offset, v);
}

static bool field_ptr(struct wg_py *py, uint64_t base, uint16_t offset, uint64_t *v)
{
	return wg_py_field(py, base, offset, v) && plausible(*v);
}

static bool field_i32(struct wg_py *py, uint64_t base, uint16_t offset, int32_t *v)
{
	return offset != WG_PY_ABSENT && base && wg_py_i32(py, base + offset, v);
}

/* ---- objects ------------------------------------------------------------------------ */

static bool type_name(struct wg_py *py, uint64_t type, char *buf, size_t n)
{
	uint64_t name;

	/* tp_name is a C string: any alignment. */
	return wg_py_u64(py, type + py->o.type_tp_name, &name) && name >= 4096 && !(name >> 47) &&
	       wg_mem_read_str(py->m, name, buf, n) > 0;
}

bool wg_py_type_name(struct wg_py *py, uint64_t object, char *buf, size_t n)
{
	uint64_t type;

	return plausible(object) && field_ptr(py, object, py->o.object_ob_type, &type) &&
	       type_name(py, type, buf, n);
}

bool wg_py_is(struct wg_py *py, uint64_t object, const char *name)
{
	char got[64];

	return wg_py_type_name(py, object, got, sizeof(got)) && !strcmp(got, name);
}

bool wg_py_is_a(struct wg_py *py, uint64_t object, const char *name)
{
	uint64_t type;
	char got[64];

	if (!plausible(object) || !field_ptr(py, object, py->o.object_ob_type, &type))
		return false;
	for (int depth = 0; depth < 16; depth++) {
		if (type_name(py, type, got, sizeof(got)) && !strcmp(got, name))
			return true;
		if (!field_ptr(py, type, py->o.type_tp_base, &type))
			break;
	}
	return false;
}

static size_t put_utf8(char *out, uint32_t c)
{
	if (c < 0x80) {
		out[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		out[0] = (char)(0xc0 | c >> 6);
		out[1] = (char)(0x80 | (c & 63));
		return 2;
	}
	if (c < 0x10000) {
		out[0] = (char)(0xe0 | c >> 12);
		out[1] = (char)(0x80 | (c >> 6 & 63));
		out[2] = (char)(0x80 | (c & 63));
		return 3;
	}
	if (c < 0x110000) {
		out[0] = (char)(0xf0 | c >> 18);
		out[1] = (char)(0x80 | (c >> 12 & 63));
		out[2] = (char)(0x80 | (c >> 6 & 63));
		out[3] = (char)(0x80 | (c & 63));
		return 4;
	}
	out[0] = '?';
	return 1;
}

/* Characters of a str into UTF-8; bytes, or -1. out holds 4 * MAX_STR + 1. */
static int str_bytes(struct wg_py *py, uint64_t object, char *out)
{
	uint64_t len, data = object;
	uint32_t state, kind;
	char raw[4 * MAX_STR];
	size_t n = 0;

	if (!plausible(object) ||
	    !wg_py_field(py, object, py->o.unicode_length, &len) ||
	    wg_mem_read(py->m, object + py->o.unicode_state, &state, 4) || len >> 32)
		return -1;
	kind = state >> 2 & 7;
	if (kind != 1 && kind != 2 && kind != 4)
		return -1;
	if (len > MAX_STR)
		len = MAX_STR;
	if (!(state & 32)) {
		if (!wg_py_u64(py, object + py->o.unicode_noncompact_data_ptr, &data) || !data)
			return -1;
	} else if (state & 64) {
		data += py->o.unicode_ascii_data;
	} else {
		data += py->o.unicode_compact_data;
	}
	if (len && wg_mem_read(py->m, data, raw, (size_t)len * kind))
		return -1;
	for (uint64_t i = 0; i < len; i++) {
		uint32_t c;
		uint16_t h;

		if (kind == 1) {
			c = (unsigned char)raw[i];
		} else if (kind == 2) {
			memcpy(&h, raw + i * 2, 2);
			c = h;
		} else {
			memcpy(&c, raw + i * 4, 4);
		}
		n += put_utf8(out + n, c);
	}
	out[n] = 0;
	return (int)n;
}

const char *wg_py_str(struct wg_py *py, uint64_t object)
{
	char buf[4 * MAX_STR + 1];
	int n = str_bytes(py, object, buf);

	return n < 0 ? NULL : wg_strn(py->arena, buf, (size_t)n);
}

/* Is this object the str `want` (ASCII)? Without decoding all of it. */
static bool str_is(struct wg_py *py, uint64_t object, const char *want)
{
	size_t n = strlen(want);
	uint64_t len;
	uint32_t state;
	char got[128];

	return plausible(object) && n < sizeof(got) &&
	       wg_py_field(py, object, py->o.unicode_length, &len) && len == n &&
	       !wg_mem_read(py->m, object + py->o.unicode_state, &state, 4) &&
	       (state & 96) == 96 &&
	       !wg_mem_read(py->m, object + py->o.unicode_ascii_data, got, n) &&
	       !memcmp(got, want, n);
}

bool wg_py_str_is(struct wg_py *py, uint64_t object, const char *ascii)
{
	return str_is(py, object, ascii);
}

uint64_t wg_py_item(struct wg_py *py, uint64_t tuple, uint64_t k)
{
	uint64_t n, v;

	if (!plausible(tuple) || !wg_py_u64(py, tuple + 16, &n) || k >= n ||
	    !wg_py_u64(py, tuple + py->o.tuple_items + k * 8, &v))
		return 0;
	return plausible(v) ? v : 0;
}

bool wg_py_long(struct wg_py *py, uint64_t object, uint64_t *v)
{
	uint64_t tag, n;
	uint32_t digit[3];

	if (!wg_py_is_a(py, object, "int") || py->o.long_digit == WG_PY_ABSENT ||
	    !wg_py_u64(py, object + 16, &tag))
		return false;
	if (py->o.minor >= 12) { /* lv_tag: digits << 3 | sign (0 positive, 1 zero, 2 negative) */
		n = tag >> 3;
		if ((tag & 3) == 1)
			n = 0;
		else if ((tag & 3) != 0)
			return false;
	} else { /* ob_size: digits, negative for a negative number */
		n = tag;
	}
	*v = 0;
	if (n > 3)
		return false;
	if (n && wg_mem_read(py->m, object + py->o.long_digit, digit, (size_t)n * 4))
		return false;
	for (uint64_t i = n; i-- > 0;) {
		if (digit[i] >> 30 || *v >> 34)
			return false;
		*v = *v << 30 | digit[i];
	}
	return true;
}

struct keys { /* where the entries of a dict's table of keys stand */
	uint64_t at, n;
	size_t width; /* 16: {key, value}; 24: {hash, key, value} */
};

static bool keys_open(struct wg_py *py, uint64_t keys, struct keys *k)
{
	uint64_t size;
	uint8_t log2_index, kind;

	k->width = 24;
	if (py->o.keys_indices != WG_PY_ABSENT) { /* 3.11+ */
		if (wg_mem_read(py->m, keys + py->o.keys_log2_index_bytes, &log2_index, 1) ||
		    wg_mem_read(py->m, keys + py->o.keys_kind, &kind, 1) ||
		    !wg_py_u64(py, keys + py->o.keys_nentries, &k->n) || log2_index > 40)
			return false;
		k->at = keys + py->o.keys_indices + (1ull << log2_index);
		if (kind) /* all keys are str: no hash beside them */
			k->width = 16;
	} else { /* refcnt, size, lookup, usable, nentries, indices */
		if (!wg_py_u64(py, keys + 8, &size) || !wg_py_u64(py, keys + 32, &k->n) ||
		    size >> 40)
			return false;
		k->at = keys + 40 +
			size * (size <= 0xff ? 1 : size <= 0xffff ? 2 : size <= 0xffffffffu ? 4 : 8);
	}
	if (k->n > MAX_ENTRIES)
		k->n = MAX_ENTRIES;
	return true;
}

static bool keys_entry(struct wg_py *py, const struct keys *k, uint64_t i, uint64_t *key,
		       uint64_t *value)
{
	uint64_t e[3];

	if (wg_mem_read(py->m, k->at + i * k->width, e, k->width))
		return false;
	*key = k->width == 16 ? e[0] : e[1];
	*value = k->width == 16 ? e[1] : e[2];
	return true;
}

/* Look `name` up in a table of keys; the index of its entry, and its value when it has one. */
static int64_t keys_find(struct wg_py *py, uint64_t keys, const char *name, uint64_t *value)
{
	struct keys k;
	uint64_t key;

	if (!keys_open(py, keys, &k))
		return -1;
	for (uint64_t i = 0; i < k.n && keys_entry(py, &k, i, &key, value); i++)
		if (str_is(py, key, name))
			return (int64_t)i;
	return -1;
}

void wg_py_dict_each(struct wg_py *py, uint64_t dict, size_t most,
		     void (*fn)(void *arg, uint64_t value), void *arg)
{
	uint64_t table, key, value, values = 0;
	struct keys k;

	if (!wg_py_is_a(py, dict, "dict") || !field_ptr(py, dict, py->o.dict_keys, &table) ||
	    !keys_open(py, table, &k))
		return;
	wg_py_field(py, dict, py->o.dict_values, &values);
	if (values && py->o.minor >= 11)
		values += py->o.values_values != WG_PY_ABSENT ? py->o.values_values : 0;
	for (uint64_t i = 0; i < k.n && i < most && keys_entry(py, &k, i, &key, &value); i++) {
		/* With shared keys the values stand apart. */
		if (values && (i > 255 || !wg_py_u64(py, values + i * 8, &value)))
			break;
		if (plausible(value))
			fn(arg, value);
	}
}

uint64_t wg_py_dict_get(struct wg_py *py, uint64_t dict, const char *key)
{
	uint64_t keys, values = 0, v = 0;
	int64_t i;

	if (py->o.dict_keys == WG_PY_ABSENT || !wg_py_is_a(py, dict, "dict") ||
	    !wg_py_ptr(py, dict + py->o.dict_keys, &keys))
		return 0;
	i = keys_find(py, keys, key, &v);
	if (i < 0)
		return 0;
	wg_py_field(py, dict, py->o.dict_values, &values);
	if (values) { /* the keys are shared, the values are not */
		uint64_t at = values;

		if (py->o.minor >= 11 && py->o.values_values != WG_PY_ABSENT)
			at += py->o.values_values;
		if (i > 255 || !wg_py_u64(py, at + (uint64_t)i * 8, &v))
			return 0;
	}
	return plausible(v) ? v : 0;
}

uint64_t wg_py_dict_get_key(struct wg_py *py, uint64_t dict, uint64_t key)
{
	char name[128];
	uint64_t n;

	if (!plausible(key) || !wg_py_field(py, key, py->o.unicode_length, &n) || n >= sizeof(name) ||
	    wg_mem_read(py->m, key + py->o.unicode_ascii_data, name, (size_t)n))
		return 0;
	name[n] = 0;
	return str_is(py, key, name) ? wg_py_dict_get(py, dict, name) : 0;
}

static uint64_t value_of(struct wg_py *py, uint64_t type, uint64_t values, const char *name)
{
	uint64_t keys, v = 0;
	int64_t i;

	if (!values || !field_ptr(py, type, py->o.heaptype_cached_keys, &keys) ||
	    py->o.values_values == WG_PY_ABSENT)
		return 0;
	i = keys_find(py, keys, name, &v);
	if (i < 0 || i > 255 ||
	    !wg_py_u64(py, values + py->o.values_values + (uint64_t)i * 8, &v))
		return 0;
	return plausible(v) ? v : 0;
}

#define MANAGED_DICT 0x10u
#define INLINE_VALUES 0x4u

/* Where an instance keeps its attributes: a dict, or values beside its type's keys. */
static bool instance(struct wg_py *py, uint64_t object, uint64_t *dict, uint64_t *type,
		     uint64_t *values)
{
	uint64_t flags, word, size;
	int64_t off;
	uint8_t valid;

	*dict = *values = 0;
	if (!plausible(object) || !field_ptr(py, object, py->o.object_ob_type, type) ||
	    !wg_py_field(py, *type, py->o.type_tp_flags, &flags) ||
	    !wg_py_field(py, *type, py->o.type_tp_dictoffset, (uint64_t *)&off))
		return false;
	if (py->flavour == WG_PY_DICT_PTR || !(flags & MANAGED_DICT))
		return off > 0 && off <= 4096 && wg_py_ptr(py, object + (uint64_t)off, dict);
	if (!wg_py_u64(py, object - 24, dict))
		return false;
	switch (py->flavour) {
	case WG_PY_MANAGED_311:
		if (wg_py_u64(py, object - 32, &word) && word)
			*values = word;
		break;
	case WG_PY_MANAGED_312:
		if (*dict & 1)
			*values = *dict + 1;
		break;
	case WG_PY_MANAGED_313:
		if (!*dict && (flags & INLINE_VALUES) &&
		    wg_py_field(py, *type, py->o.type_tp_basicsize, &size) && size < 4096 &&
		    !wg_mem_read(py->m, object + size + 3, &valid, 1) && valid)
			*values = object + size;
		break;
	default:
		break;
	}
	return *values || plausible(*dict);
}

uint64_t wg_py_attr(struct wg_py *py, uint64_t object, const char *name)
{
	uint64_t dict, type, values;

	if (!instance(py, object, &dict, &type, &values))
		return 0;
	return values ? value_of(py, type, values, name) : wg_py_dict_get(py, dict, name);
}

void wg_py_attrs_each(struct wg_py *py, uint64_t object, size_t most,
		      void (*fn)(void *arg, uint64_t value), void *arg)
{
	uint64_t dict, type, values, table, v;
	struct keys k;

	if (!instance(py, object, &dict, &type, &values))
		return;
	if (!values) {
		wg_py_dict_each(py, dict, most, fn, arg);
		return;
	}
	if (!field_ptr(py, type, py->o.heaptype_cached_keys, &table) || !keys_open(py, table, &k) ||
	    py->o.values_values == WG_PY_ABSENT)
		return;
	for (uint64_t i = 0; i < k.n && i < most && i < 256; i++)
		if (wg_py_u64(py, values + py->o.values_values + i * 8, &v) && plausible(v))
			fn(arg, v);
}

uint64_t wg_py_bound_self(struct wg_py *py, uint64_t object, const char *name)
{
	uint64_t ml, str, self, func, code;
	char type[64], got[64];

	if (!wg_py_type_name(py, object, type, sizeof(type)))
		return 0;
	if (!strcmp(type, "builtin_function_or_method")) {
		if (!field_ptr(py, object, py->o.cfunction_self, &self) ||
		    !field_ptr(py, object, py->o.cfunction_ml, &ml) || !wg_py_u64(py, ml, &str))
			return 0;
		if (name && (wg_mem_read_str(py->m, str, got, sizeof(got)) < 0 || strcmp(got, name)))
			return 0;
		return self;
	}
	if (!strcmp(type, "method")) {
		if (!field_ptr(py, object, py->o.method_self, &self) ||
		    !field_ptr(py, object, py->o.method_func, &func))
			return 0;
		if (name && (!field_ptr(py, func, py->o.func_code, &code) ||
			     !wg_py_field(py, code, py->o.code_name, &str) ||
			     !str_is(py, str, name)))
			return 0;
		return self;
	}
	return 0;
}

uint64_t wg_py_sys(struct wg_py *py, const char *name)
{
	uint64_t sysdict;

	return field_ptr(py, py->interp, py->o.interp_sysdict, &sysdict) ?
		       wg_py_dict_get(py, sysdict, name) :
		       0;
}

/* ---- threads -------------------------------------------------------------------------- */

/* In another PID namespace the interpreter knows its threads by other numbers. */
static void learn_tids(struct wg_py *py)
{
	struct stat own, its;
	char path[80];

	snprintf(path, sizeof(path), "/proc/%d/ns/pid", py->p->pid);
	py->same_pidns = true;
	if (stat(path, &its) || stat("/proc/self/ns/pid", &own) || its.st_ino == own.st_ino)
		return;
	py->same_pidns = false;
	py->tids = wg_alloc(py->arena, (py->p->threads.n + 1) * sizeof(*py->tids));
	for (size_t i = 0; i < py->p->threads.n; i++) {
		int32_t tid = py->p->threads.v[i].tid;
		char line[512], *last;
		FILE *in;

		snprintf(path, sizeof(path), "/proc/%d/task/%d/status", py->p->pid, tid);
		in = fopen(path, "re");
		while (in && fgets(line, sizeof(line), in)) {
			if (strncmp(line, "NSpid:", 6))
				continue;
			last = strrchr(line, '\t');
			if (last)
				py->tids[py->ntids++] =
					(struct wg_py_pid_map){ atoi(last + 1), tid };
			break;
		}
		if (in)
			fclose(in);
	}
}

static int32_t outer_tid(const struct wg_py *py, int32_t inner)
{
	if (py->same_pidns)
		return inner;
	for (size_t i = 0; i < py->ntids; i++)
		if (py->tids[i].inner == inner)
			return py->tids[i].outer;
	return 0;
}

int32_t wg_py_tid_of_ident(const struct wg_py *py, uint64_t ident)
{
	for (size_t i = 0; i < py->threads.n && ident; i++)
		if (py->threads.v[i].ident == ident)
			return py->threads.v[i].tid;
	return 0;
}

static bool list_threads(struct wg_py *py)
{
	uint64_t interp, ts, main_ident = 0, v;
	size_t interps = 0;

	py->threads.n = 0;
	wg_py_field(py, py->runtime, py->o.runtime_main_thread, &main_ident);
	if (!field_ptr(py, py->runtime, py->o.runtime_interpreters_head, &interp))
		return false;
	for (; plausible(interp) && interps < MAX_INTERPS; interps++) {
		if (!wg_py_field(py, interp, py->o.interp_threads_head, &ts))
			return false;
		while (plausible(ts) && py->threads.n < WG_PY_MAX_THREADS) {
			struct wg_py_thread *t;
			uint64_t owner, ident, native = 0;
			int32_t tid;

			if (!field_ptr(py, ts, py->o.tstate_interp, &owner) || owner != interp ||
			    !wg_py_field(py, ts, py->o.tstate_thread_id, &ident))
				return false;
			if (py->o.tstate_native_thread_id != WG_PY_ABSENT)
				wg_py_field(py, ts, py->o.tstate_native_thread_id, &native);
			else if (ident && wg_py_i32(py, ident + WG_PY_PTHREAD_TID, &tid))
				native = (uint64_t)(uint32_t)tid;
			t = wg_push(py->arena, &py->threads);
			t->addr = ts;
			t->interp = interp;
			t->ident = ident;
			t->tid = native && native < INT32_MAX ? outer_tid(py, (int32_t)native) : 0;
			t->main = main_ident && ident == main_ident;
			if (!wg_py_field(py, ts, py->o.tstate_next, &ts))
				return false;
		}
		if (!wg_py_field(py, interp, py->o.interp_next, &v))
			return false;
		interp = v;
	}
	return interps > 0;
}

/* ---- code and frames ----------------------------------------------------------------- */

static const uint8_t *copy_bytes(struct wg_py *py, uint64_t object, size_t *len)
{
	uint64_t n;
	uint8_t *b;

	*len = 0;
	if (!plausible(object) || !wg_py_field(py, object, py->o.bytes_ob_size, &n) ||
	    n > MAX_TABLE)
		return NULL;
	b = wg_alloc(py->arena, n ? (size_t)n : 1);
	if (n && wg_mem_read(py->m, object + py->o.bytes_ob_sval, b, (size_t)n))
		return NULL;
	*len = (size_t)n;
	return b;
}

static void read_code(struct wg_py *py, uint64_t addr, struct wg_py_code *c)
{
	uint64_t type, v;

	c->addr = addr;
	c->bad = true;
	if (!field_ptr(py, addr, py->o.object_ob_type, &type))
		return;
	if (!py->code_type && wg_py_is(py, addr, "code"))
		py->code_type = type;
	if (type != py->code_type)
		return;
	if (py->o.code_qualname != WG_PY_ABSENT && wg_py_field(py, addr, py->o.code_qualname, &v))
		c->function = wg_py_str(py, v);
	if (!c->function && wg_py_field(py, addr, py->o.code_name, &v))
		c->function = wg_py_str(py, v);
	if (wg_py_field(py, addr, py->o.code_filename, &v))
		c->file = wg_py_str(py, v);
	if (!c->function || !c->file || !field_i32(py, addr, py->o.code_firstlineno, &c->first_line))
		return;
	field_i32(py, addr, py->o.code_firsttraceable, &c->first_traceable);
	field_i32(py, addr, py->o.code_stacksize, &c->stack_size);
	if (wg_py_field(py, addr, py->o.code_names, &c->co_names))
		for (uint64_t k = 0; k < 512 && (v = wg_py_item(py, c->co_names, k)); k++)
			c->acquires |= str_is(py, v, "acquire");
	if (!field_i32(py, addr, py->o.code_nlocalsplus, &c->nlocals)) {
		uint64_t cells = 0, frees = 0, n = 0;

		field_i32(py, addr, py->o.code_nlocals, &c->nlocals);
		c->ncells_at = c->nlocals;
		/* 3.8-3.10: cells and free variables follow the locals */
		if (field_ptr(py, addr, py->o.code_cellvars, &cells) && wg_py_u64(py, cells + 16, &n) &&
		    n < 65536)
			c->nlocals += (int32_t)n;
		if (field_ptr(py, addr, py->o.code_freevars, &frees) && wg_py_u64(py, frees + 16, &n) &&
		    n < 65536)
			c->nlocals += (int32_t)n;
	}
	if (c->nlocals < 0 || c->nlocals > 65536 || c->stack_size < 0 || c->stack_size > 65536)
		return;
	if (wg_py_field(py, addr,
			py->o.code_linetable != WG_PY_ABSENT ? py->o.code_linetable :
							       py->o.code_lnotab, &v))
		c->table = copy_bytes(py, v, &c->table_len);
	if (wg_py_field(py, addr, py->o.code_exceptiontable, &v))
		c->except = copy_bytes(py, v, &c->except_len);
	if (!wg_py_field(py, addr, py->o.code_localsplusnames, &c->names))
		wg_py_field(py, addr, py->o.code_varnames, &c->names);
	c->bad = false;
}

static struct wg_py_code *code_at(struct wg_py *py, uint64_t addr)
{
	size_t i;

	if (py->ncodes * 2 >= py->capcodes) {
		size_t cap = py->capcodes ? py->capcodes * 2 : 256;
		struct wg_py_code **old = py->codes;
		struct wg_py_code **held = wg_alloc(py->arena, cap * sizeof(*held));

		/* Frames point to codes: entries stay where they are, only the index grows. */
		for (size_t k = 0; k < py->capcodes; k++) {
			struct wg_py_code *c = old[k];

			if (!c)
				continue;
			i = (c->addr * 0x9e3779b97f4a7c15ull >> 24) & (cap - 1);
			while (held[i])
				i = (i + 1) & (cap - 1);
			held[i] = c;
		}
		py->codes = held;
		py->capcodes = cap;
	}
	i = (addr * 0x9e3779b97f4a7c15ull >> 24) & (py->capcodes - 1);
	while (py->codes[i]) {
		struct wg_py_code *c = py->codes[i];

		if (c->addr == addr)
			return c;
		i = (i + 1) & (py->capcodes - 1);
	}
	py->codes[i] = wg_alloc(py->arena, sizeof(struct wg_py_code));
	py->ncodes++;
	read_code(py, addr, py->codes[i]);
	return py->codes[i];
}

static int64_t line_lnotab(const struct wg_py_code *c, int64_t at)
{
	int64_t line = c->first_line, addr = 0;

	for (size_t i = 0; i + 1 < c->table_len; i += 2) {
		addr += c->table[i];
		if (addr > at)
			break;
		line += (int8_t)c->table[i + 1];
	}
	return line;
}

static int64_t line_310(const struct wg_py_code *c, int64_t at)
{
	int64_t line = c->first_line, end = 0, now;

	for (size_t i = 0; i + 1 < c->table_len; i += 2) {
		int8_t d = (int8_t)c->table[i + 1];

		now = WG_NO_INT;
		if (d != -128) {
			line += d;
			now = line;
		}
		end += c->table[i];
		if (at < end)
			return now;
	}
	return WG_NO_INT;
}

static bool varint(const struct wg_py_code *c, size_t *i, uint64_t *v)
{
	*v = 0;
	for (unsigned int shift = 0; *i < c->table_len; shift += 6) {
		uint8_t b = c->table[(*i)++];

		if (shift < 60)
			*v |= (uint64_t)(b & 63) << shift;
		if (!(b & 64))
			return true;
	}
	return false;
}

static int64_t line_311(const struct wg_py_code *c, int64_t at)
{
	int64_t line = c->first_line, addr = 0;
	size_t i = 0;

	while (i < c->table_len) {
		uint8_t b = c->table[i++];
		int form = b >> 3 & 15;
		int64_t size = ((b & 7) + 1) * 2, now;
		uint64_t v;

		if (!(b & 128))
			return WG_NO_INT; /* not the start of an entry: torn or not a table */
		if (form == 13 || form == 14) {
			if (!varint(c, &i, &v))
				return WG_NO_INT;
			line += v & 1 ? -(int64_t)(v >> 1) : (int64_t)(v >> 1);
			for (int k = 0; form == 14 && k < 3; k++)
				if (!varint(c, &i, &v))
					return WG_NO_INT;
		} else if (form >= 10 && form <= 12) {
			line += form - 10;
			i += 2;
		} else if (form != 15) {
			i++;
		}
		now = form == 15 ? WG_NO_INT : line;
		if (at >= addr && at < addr + size)
			return now;
		addr += size;
	}
	return WG_NO_INT;
}

static int64_t line_at(const struct wg_py *py, const struct wg_py_code *c, int64_t at)
{
	if (at < 0 || !c->table)
		return c->first_line;
	if (py->o.minor >= 11)
		return line_311(c, at);
	return py->o.minor == 10 ? line_310(c, at) : line_lnotab(c, at);
}

static bool top_frame(struct wg_py *py, uint64_t ts, uint64_t *frame)
{
	uint64_t cframe;

	switch (py->o.style) {
	case WG_PY_PYFRAME:
		return wg_py_field(py, ts, py->o.tstate_frame, frame);
	case WG_PY_CFRAME:
		return wg_py_field(py, ts, py->o.tstate_cframe, &cframe) && plausible(cframe) &&
		       wg_py_field(py, cframe, py->o.cframe_current_frame, frame);
	default:
		return wg_py_field(py, ts, py->o.tstate_current_frame, frame);
	}
}

/* One frame. 1 taken, 0 to be skipped, -1 not a frame; next: the outer one. */
static int read_frame(struct wg_py *py, uint64_t addr, struct wg_py_frame *out, uint64_t *next)
{
	const struct wg_py_offsets *o = &py->o;
	uint64_t code, instr;
	int32_t lasti;
	uint8_t owner;

	if (!plausible(addr))
		return -1;
	out->addr = addr;
	if (o->style == WG_PY_PYFRAME) {
		if (!wg_py_field(py, addr, o->frame_back, next) ||
		    !field_ptr(py, addr, o->frame_code, &code) ||
		    !field_i32(py, addr, o->frame_lasti, &lasti))
			return -1;
		out->code = code_at(py, code);
		if (out->code->bad)
			return -1;
		out->lasti = o->minor == 10 && lasti > 0 ? (int64_t)lasti * 2 : lasti;
		out->line = line_at(py, out->code, out->lasti);
		return 1;
	}
	if (!wg_py_field(py, addr, o->frame_previous, next) ||
	    wg_mem_read(py->m, addr + o->frame_owner, &owner, 1))
		return -1;
	if (o->minor >= 12 && owner >= 3)
		return owner <= 4 ? 0 : -1; /* the interpreter's own entry frames */
	if (!wg_py_field(py, addr, o->style == WG_PY_DIRECT ? o->frame_executable : o->frame_code,
			 &code))
		return -1;
	code &= ~3ull; /* 3.14 tags references */
	if (!plausible(code) ||
	    !wg_py_field(py, addr, o->style == WG_PY_DIRECT ? o->frame_instr_ptr :
							      o->frame_prev_instr, &instr))
		return -1;
	out->code = code_at(py, code);
	if (out->code->bad)
		return -1;
	out->lasti = (int64_t)(instr - (code + o->code_code_adaptive));
	/* Still being set up: the interpreter itself does not show it either. */
	if (owner == 0 && out->lasti < (int64_t)out->code->first_traceable * 2)
		return 0;
	out->line = line_at(py, out->code, out->lasti);
	return 1;
}

int wg_py_frames(struct wg_py *py, const struct wg_py_thread *t, struct wg_py_frames *out)
{
	for (int attempt = 0; attempt < 3; attempt++) {
		uint64_t top, at, next = 0, again;
		size_t steps = 0;
		bool ok = true;

		out->n = 0;
		if (attempt)
			wg_mem_forget(py->m);
		if (!top_frame(py, t->addr, &top))
			return -EFAULT;
		for (at = top; at && steps < WG_PY_MAX_FRAMES; at = next, steps++) {
			struct wg_py_frame fr = { 0 };
			int k = read_frame(py, at, &fr, &next);

			if (k < 0 || next == at) {
				ok = false;
				break;
			}
			if (k)
				*wg_push(py->arena, out) = fr;
		}
		/* A thread that runs changes its frames under us: what came out must still be. */
		if (ok && top_frame(py, t->addr, &again) && again == top)
			return 0;
	}
	return -EAGAIN;
}

bool wg_py_generator(struct wg_py *py, uint64_t generator, struct wg_py_frame *out)
{
	/* PyGenObject: a pointer to its frame up to 3.10, then the frame itself. */
	static const uint16_t at[] = { [8] = 16, [9] = 16, [10] = 16, [11] = 80, [12] = 72, [13] = 72 };
	uint64_t frame, next;

	if (py->o.minor < 8 || py->o.minor > 13 || !wg_py_is(py, generator, "generator"))
		return false;
	frame = generator + at[py->o.minor];
	if (py->o.minor <= 10 && !wg_py_ptr(py, frame, &frame))
		return false;
	return read_frame(py, frame, out, &next) == 1;
}

size_t wg_py_deque(struct wg_py *py, uint64_t deque, uint64_t items[64])
{
	uint64_t n, block, left;
	size_t got = 0;

	/* _collections: ob_size, leftblock, rightblock, leftindex; a block: link, 64 items, link */
	if (!wg_py_is(py, deque, "collections.deque") || !wg_py_u64(py, deque + 16, &n) || n > 64 ||
	    !wg_py_ptr(py, deque + 24, &block) || !wg_py_u64(py, deque + 40, &left) || left > 63)
		return 0;
	for (uint64_t k = 0; k < n; k++) {
		if (left + k == 64 && !wg_py_ptr(py, block + 8 + 64 * 8, &block))
			break;
		if (!wg_py_ptr(py, block + 8 + ((left + k) & 63) * 8, &items[got]))
			break;
		got++;
	}
	return got;
}

uint64_t wg_py_slot(struct wg_py *py, const struct wg_py_frame *fr, int k)
{
	uint64_t v;

	if (k < 0 || k >= fr->code->nlocals + fr->code->stack_size ||
	    !wg_py_field(py, fr->addr, py->o.frame_localsplus, &v) ||
	    !wg_py_u64(py, fr->addr + py->o.frame_localsplus + (uint64_t)k * 8, &v))
		return 0;
	if (py->o.minor >= 14)
		v &= ~3ull;
	return plausible(v) ? v : 0;
}

uint64_t wg_py_stack_slot(struct wg_py *py, const struct wg_py_frame *fr, int k)
{
	uint64_t base, v;

	if (k < 0 || k >= fr->code->stack_size)
		return 0;
	if (py->o.style != WG_PY_PYFRAME)
		return wg_py_slot(py, fr, fr->code->nlocals + k);
	if (!field_ptr(py, fr->addr, py->o.frame_valuestack, &base) ||
	    !wg_py_u64(py, base + (uint64_t)k * 8, &v))
		return 0;
	return plausible(v) ? v : 0;
}

int64_t wg_py_line(struct wg_py *py, const struct wg_py_frame *fr, int64_t at)
{
	return line_at(py, fr->code, at);
}

size_t wg_py_bytecode(struct wg_py *py, const struct wg_py_code *c, uint8_t *buf, size_t most)
{
	uint64_t n, bytes;

	if (py->o.code_code_adaptive != WG_PY_ABSENT) { /* in the object itself, 2 bytes a unit */
		if (!wg_py_u64(py, c->addr + 16, &n) || n > 1u << 20)
			return 0;
		n *= 2;
		bytes = c->addr + py->o.code_code_adaptive;
	} else {
		if (!field_ptr(py, c->addr, py->o.code_code, &bytes) ||
		    !wg_py_field(py, bytes, py->o.bytes_ob_size, &n) || n > 1u << 20)
			return 0;
		bytes += py->o.bytes_ob_sval;
	}
	if (n > most)
		n = most;
	return wg_mem_read(py->m, bytes, buf, (size_t)n) ? 0 : (size_t)n;
}

bool wg_py_at(const struct wg_py_frame *fr, const char *file_end, const char *function)
{
	size_t n = strlen(fr->code->file), k = strlen(file_end);
	const char *name = strrchr(fr->code->function, '.'); /* qualified from 3.11 on */

	return n >= k && !strcmp(fr->code->file + n - k, file_end) &&
	       !strcmp(name ? name + 1 : fr->code->function, function);
}

uint64_t wg_py_local(struct wg_py *py, const struct wg_py_frame *fr, const char *name)
{
	uint64_t n, item, v;

	if (!plausible(fr->code->names) || !wg_py_u64(py, fr->code->names + 16, &n))
		return 0;
	for (uint64_t i = 0; i < n && i < (uint64_t)fr->code->nlocals; i++) {
		if (!wg_py_u64(py, fr->code->names + py->o.tuple_items + i * 8, &item) ||
		    !str_is(py, item, name))
			continue;
		v = wg_py_slot(py, fr, (int)i);
		/* A variable that an inner function shares stands in a cell. */
		if (v && wg_py_is(py, v, "cell") && py->o.cell_ref != WG_PY_ABSENT &&
		    !wg_py_u64(py, v + py->o.cell_ref, &v))
			return 0;
		return v;
	}
	return 0;
}

/* ---- opening ---------------------------------------------------------------------------- */

static const struct wg_py_offsets *table_for(int minor)
{
	for (size_t i = 0; i < sizeof(wg_py_table) / sizeof(wg_py_table[0]); i++)
		if (wg_py_table[i].minor == minor)
			return &wg_py_table[i];
	return NULL;
}

/* Do these offsets lead to an interpreter? The cheap whole-chain check. */
static bool fits(struct wg_py *py)
{
	uint64_t interp, id = 1, gil, interval, ts, owner;

	if (!field_ptr(py, py->runtime, py->o.runtime_interpreters_main, &interp) &&
	    !field_ptr(py, py->runtime, py->o.runtime_interpreters_head, &interp))
		return false;
	if (!wg_py_field(py, interp, py->o.interp_id, &id) || id)
		return false;
	if (!wg_py_field(py, interp, py->o.interp_threads_head, &ts))
		return false;
	if (ts && (!plausible(ts) || !wg_py_field(py, ts, py->o.tstate_interp, &owner) ||
		   owner != interp))
		return false;
	gil = py->runtime + py->o.runtime_gil;
	if (py->o.runtime_gil == WG_PY_ABSENT &&
	    !field_ptr(py, interp, py->o.interp_ceval_gil, &gil))
		return false;
	if (!wg_py_u64(py, gil + py->o.gil_interval, &interval) || !interval ||
	    interval > 100000000)
		return false;
	py->interp = interp;
	return true;
}

static bool name_says(const char *path, int *minor)
{
	const char *b = path ? strrchr(path, '/') : NULL;
	int major;

	b = b ? b + 1 : path;
	return b && (sscanf(b, "libpython%d.%d", &major, minor) == 2 ||
		     sscanf(b, "python%d.%d", &major, minor) == 2) && major == 3;
}

/* Is a Python mapped here at all, and which one do the names of its files mean? */
static bool any_python(struct wg_mem *m, int *minor)
{
	const struct wg_map *maps;
	bool any = false;
	size_t n;

	maps = wg_mem_maps(m, &n);
	for (size_t i = 0; i < n; i++) {
		if (!maps[i].path || (!strstr(maps[i].path, "python") &&
				      !strstr(maps[i].path, ".cpython-")))
			continue;
		any = true;
		if (maps[i].x && !*minor)
			name_says(maps[i].path, minor);
	}
	return any;
}

/* sys.version, as far as these offsets lead to it. */
static const char *sys_version(struct wg_py *py)
{
	uint64_t v = wg_py_sys(py, "version");

	return v ? wg_py_str(py, v) : NULL;
}

/* Up to 3.12 nothing is published: a name, a version word, and what fits. */
static int open_by_table(struct wg_py *py, struct wg_symbols *s, int minor, const char **why)
{
	uint64_t at, v;
	int found = 0, which = 0;
	bool sure = false;

	at = wg_symbols_find(s, "libpython", "Py_Version"); /* from 3.11 on */
	if (!at)
		at = wg_symbols_find(s, "python", "Py_Version");
	if (at && wg_py_u64(py, at, &v) && (v >> 24 & 0xff) == 3) {
		minor = (int)(v >> 16 & 0xff);
		sure = true;
	}
	for (int k = WG_PY_FIRST_MINOR; k <= 12; k++) {
		const struct wg_py_offsets *o = table_for(k);
		const char *text;
		int said = 0;

		if (!o || (sure && k != minor))
			continue;
		py->o = *o;
		if (!fits(py))
			continue;
		/* Neighbours can fit each other's tables: the interpreter's own word decides. */
		text = sys_version(py);
		if (text && sscanf(text, "3.%d", &said) == 1 && said != k)
			continue;
		if (!said && !sure && minor && k != minor)
			continue;
		found++;
		which = k;
	}
	if (found != 1) {
		*why = "the interpreter is not set up yet, is a debug build, or not a version "
		       "that this reader knows (3.8 to 3.14)";
		return -ENOTSUP;
	}
	py->o = *table_for(which);
	fits(py);
	return 0;
}

static int open_published(struct wg_py *py, uint64_t version, const char **why)
{
	const struct wg_py_published *pub = NULL;
	size_t npub = 0, size = 0;
	uint64_t free_threaded = 0, v;
	int minor = (int)(version >> 16 & 0xff);
	const struct wg_py_offsets *o = table_for(minor);

	if (version >> 24 != 3 || !o) {
		*why = wg_fmt(py->f->arena, "Python %d.%d is newer than this reader",
			      (int)(version >> 24 & 0xff), minor);
		return -ENOTSUP;
	}
	if (minor == 13) {
		pub = wg_py_published_3_13;
		npub = sizeof(wg_py_published_3_13) / sizeof(*pub);
		size = WG_PY_DEBUG_SIZE_3_13;
		wg_py_u64(py, py->runtime + WG_PY_FREE_THREADED_AT_3_13, &free_threaded);
	} else if (minor == 14) {
		pub = wg_py_published_3_14;
		npub = sizeof(wg_py_published_3_14) / sizeof(*pub);
		size = WG_PY_DEBUG_SIZE_3_14;
		wg_py_u64(py, py->runtime + WG_PY_FREE_THREADED_AT_3_14, &free_threaded);
	}
	if (free_threaded) {
		*why = "a free-threaded Python: its structures are not known to this reader";
		return -ENOTSUP;
	}
	py->o = *o;
	for (size_t i = 0; i < npub; i++) {
		if (pub[i].at + 8u > size || !wg_py_u64(py, py->runtime + pub[i].at, &v) ||
		    v >= WG_PY_ABSENT)
			continue;
		memcpy((char *)&py->o + pub[i].field, &(uint16_t){ (uint16_t)v }, 2);
	}
	return 0;
}

int wg_py_open(struct wg_py *py, struct wg_facts *f, struct wg_process *p, struct wg_mem *m,
	       struct wg_symbols *s, const char **why)
{
	uint64_t head[2];
	int minor = 0, err;

	memset(py, 0, sizeof(*py));
	*why = NULL;
	err = wg_mem_error(m);
	if (err)
		return err;
	if (!any_python(m, &minor))
		return -ENOENT;
	py->f = f;
	py->p = p;
	py->m = m;
	py->arena = wg_arena_new();
	py->runtime = wg_symbols_find(s, "libpython", "_PyRuntime");
	if (!py->runtime)
		py->runtime = wg_symbols_find(s, "python", "_PyRuntime");
	if (!py->runtime)
		py->runtime = wg_symbols_find(s, NULL, "_PyRuntime");
	if (!py->runtime)
		py->runtime = wg_symbols_section(s, ".PyRuntime");
	if (!py->runtime) {
		err = -ENOENT; /* something named python is mapped, but no CPython runs here */
		goto out;
	}
	if (wg_mem_read(m, py->runtime, head, sizeof(head))) {
		err = -EFAULT;
		goto out;
	}
	if (!memcmp(head, "xdebugpy", 8)) {
		err = open_published(py, head[1], why);
		if (err)
			goto out;
		if (!fits(py)) {
			*why = "the interpreter is not set up yet, or a debug build";
			err = -ENOTSUP;
			goto out;
		}
	} else {
		err = open_by_table(py, s, minor, why);
		if (err)
			goto out;
	}
	py->flavour = py->o.minor >= 13 ? WG_PY_MANAGED_313 : py->o.minor == 12 ? WG_PY_MANAGED_312 :
		      py->o.minor == 11 ? WG_PY_MANAGED_311 : WG_PY_DICT_PTR;
	py->version = sys_version(py);
	py->version = py->version ? wg_strn(f->arena, py->version, strcspn(py->version, " +")) :
				    wg_fmt(f->arena, "3.%d", py->o.minor);
	learn_tids(py);
	for (int i = 0; i < 3; i++) {
		if (list_threads(py))
			return 0;
		wg_mem_forget(m); /* a thread came or went while its list was read */
	}
	*why = "its list of threads kept changing";
	err = -EAGAIN;
out:
	wg_py_close(py);
	return err;
}

void wg_py_close(struct wg_py *py)
{
	wg_arena_free(py->arena);
	py->arena = NULL;
}
