// SPDX-License-Identifier: Apache-2.0
/*
 * objects.c - definitions in the objects that are loaded, read from their own tables.
 *
 * dlsym() will not do: it answers by scope (NULL for what came in under RTLD_LOCAL), needs handles,
 * and is hooked here. Only the first call of a function comes this way, or one after a dlopen().
 */
#include <elf.h>
#include <link.h>
#include <string.h>

#include "doors.h"

/*
 * A sanitizer's interceptors ask dlsym() for what stands behind them before they work themselves:
 * until they have got their answers, a call of strcmp() or dl_iterate_phdr() by name is a jump to 0.
 * So names are compared here, and the loader's list is walked by libc's own function, which is found
 * through the list that the loader keeps for debuggers.
 */
static bool same(const char *a, const char *b)
{
	for (; *a == *b; a++, b++)
		if (!*a)
			return true;
	return false;
}

typedef int (*iterate_fn)(int (*)(struct dl_phdr_info *, size_t, void *), void *);
static iterate_fn libcs_iterate(void);

static int each_object(int (*one)(struct dl_phdr_info *, size_t, void *), void *arg)
{
	static iterate_fn iterate;
	iterate_fn f = __atomic_load_n(&iterate, __ATOMIC_RELAXED);

	if (!f) {
		f = libcs_iterate();
		__atomic_store_n(&iterate, f, __ATOMIC_RELAXED);
	}
	return f(one, arg);
}

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 35)
extern int _dl_find_object(void *, struct dl_find_object *) __attribute__((weak));
#define HAVE_FIND_OBJECT 1
#endif

extern const char __ehdr_start[] __attribute__((visibility("hidden")));
extern const char _end[] __attribute__((visibility("hidden")));

struct tables {
	uintptr_t bias;
	const ElfW(Sym) *symbols;
	const char *strings;
	const uint32_t *gnu;
	const uint32_t *sysv;
	const uint16_t *versions;
	const ElfW(Dyn) *dyn;
};

bool wg_is_ours(const void *p)
{
	return (const char *)p >= __ehdr_start && (const char *)p < _end;
}

/*
 * Objects that come before us in search order: the program, and what is preloaded before us. Another
 * interposer among them reaches us as its "next"; to take its definition for the real one would be a
 * circle.
 */
static struct {
	uintptr_t start, end;
} before[32];
static unsigned int nbefore;

bool wg_is_before_us(const void *p)
{
	for (unsigned int i = 0; i < nbefore; i++)
		if ((uintptr_t)p >= before[i].start && (uintptr_t)p < before[i].end)
			return true;
	return false;
}

static bool tables_of(uintptr_t bias, const ElfW(Dyn) *dyn, struct tables *t)
{
	if (!dyn)
		return false;
	memset(t, 0, sizeof(*t));
	t->bias = bias;
	t->dyn = dyn;
	for (; dyn->d_tag != DT_NULL; dyn++) {
		/* The loader has relocated these, except in what it maps read-only (the vDSO). */
		uintptr_t at = dyn->d_un.d_ptr < bias ? dyn->d_un.d_ptr + bias : dyn->d_un.d_ptr;

		switch (dyn->d_tag) {
		case DT_SYMTAB:
			t->symbols = (const void *)at;
			break;
		case DT_STRTAB:
			t->strings = (const void *)at;
			break;
		case DT_GNU_HASH:
			t->gnu = (const void *)at;
			break;
		case DT_HASH:
			t->sysv = (const void *)at;
			break;
		case DT_VERSYM:
			t->versions = (const void *)at;
			break;
		}
	}
	return t->symbols && t->strings && (t->gnu || t->sysv);
}

/* The default version wins; a hidden one is taken only when there is no other. */
static bool matches(const struct tables *t, uint32_t i, const char *name, const ElfW(Sym) **old)
{
	const ElfW(Sym) *s = &t->symbols[i];
	unsigned int type = s->st_info & 0xf, bind = s->st_info >> 4;

	if (s->st_shndx == SHN_UNDEF || !s->st_value || (bind != STB_GLOBAL && bind != STB_WEAK) ||
	    (type != STT_FUNC && type != STT_NOTYPE) || !same(t->strings + s->st_name, name))
		return false;
	if (t->versions && (t->versions[i] & 0x8000u)) {
		if (!*old)
			*old = s;
		return false;
	}
	return true;
}

static void *lookup_sysv(const struct tables *t, const char *name)
{
	uint32_t h = 0, nbucket = t->sysv[0];
	const uint32_t *bucket = t->sysv + 2, *chain = bucket + nbucket;
	const ElfW(Sym) *old = NULL;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
		uint32_t g;

		h = (h << 4) + *c;
		g = h & 0xf0000000u;
		h = (h ^ (g >> 24)) & ~g;
	}
	for (uint32_t i = nbucket ? bucket[h % nbucket] : 0; i; i = chain[i])
		if (matches(t, i, name, &old))
			return (void *)(t->bias + t->symbols[i].st_value);
	return old ? (void *)(t->bias + old->st_value) : NULL;
}

static uint32_t gnu_hash(const char *name)
{
	uint32_t h = 5381;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		h = h * 33 + *c;
	return h;
}

static void *lookup(const struct tables *t, const char *name, uint32_t h)
{
	uint32_t nbuckets, first, bloom_words, shift, i;
	const ElfW(Addr) *bloom;
	const uint32_t *buckets, *chain;
	const ElfW(Sym) *old = NULL;
	ElfW(Addr) word;

	if (!t->gnu)
		return lookup_sysv(t, name);
	nbuckets = t->gnu[0];
	first = t->gnu[1];
	bloom_words = t->gnu[2];
	shift = t->gnu[3];
	if (!nbuckets || !bloom_words)
		return NULL;
	bloom = (const void *)(t->gnu + 4);
	buckets = (const void *)(bloom + bloom_words);
	chain = buckets + nbuckets;
	word = bloom[(h / 64) % bloom_words];
	if (!((word >> (h % 64)) & (word >> ((h >> shift) % 64)) & 1))
		return NULL;
	i = buckets[h % nbuckets];
	if (i < first)
		return NULL;
	for (;; i++) {
		uint32_t at = chain[i - first];

		if ((at | 1) == (h | 1) && matches(t, i, name, &old))
			return (void *)(t->bias + t->symbols[i].st_value);
		if (at & 1)
			break;
	}
	return old ? (void *)(t->bias + old->st_value) : NULL;
}

static bool tables_of_info(const struct dl_phdr_info *info, struct tables *t, uintptr_t *start,
			   uintptr_t *end)
{
	const ElfW(Dyn) *dyn = NULL;

	*start = UINTPTR_MAX;
	*end = 0;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *ph = &info->dlpi_phdr[i];

		if (ph->p_type == PT_DYNAMIC)
			dyn = (const void *)(info->dlpi_addr + ph->p_vaddr);
		if (ph->p_type != PT_LOAD)
			continue;
		if (info->dlpi_addr + ph->p_vaddr < *start)
			*start = info->dlpi_addr + ph->p_vaddr;
		if (info->dlpi_addr + ph->p_vaddr + ph->p_memsz > *end)
			*end = info->dlpi_addr + ph->p_vaddr + ph->p_memsz;
	}
	return tables_of(info->dlpi_addr, dyn, t);
}

/* Ours when there is no libc.so (musl, a static loader): then nobody intercepts it either. */
static iterate_fn libcs_iterate(void)
{
	struct tables t;

	for (const struct link_map *m = _r_debug.r_map; m; m = m->l_next) {
		void *p = NULL;

		if (!tables_of(m->l_addr, m->l_ld, &t))
			continue;
		for (const ElfW(Dyn) *dyn = t.dyn; dyn->d_tag != DT_NULL && !p; dyn++)
			if (dyn->d_tag == DT_SONAME && same(t.strings + dyn->d_un.d_val, "libc.so.6"))
				p = lookup(&t, "dl_iterate_phdr", gnu_hash("dl_iterate_phdr"));
		if (p)
			return (iterate_fn)p;
	}
	return dl_iterate_phdr;
}

static void cut(char *to, size_t size, const char *from)
{
	size_t n = strnlen(from, size - 1);

	memcpy(to, from, n);
	to[n] = 0;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash ? slash + 1 : path;
}

/* ---- every definition ---------------------------------------------------------- */

struct search {
	const char *symbol;
	uint32_t hash;
	struct wg_found *out;
	int n, max;
	bool before; /* only those before us, instead of those behind */
};

static int search_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	struct wg_found *f;
	struct tables t;
	uintptr_t start, end;
	void *address;

	(void)size;
	if (!tables_of_info(info, &t, &start, &end) || start == (uintptr_t)__ehdr_start)
		return 0;
	address = lookup(&t, s->symbol, s->hash);
	if (!address || wg_is_ours(address) || wg_is_before_us(address) != s->before)
		return 0;
	f = &s->out[s->n++];
	f->address = address;
	f->object = (const void *)start;
	cut(f->name, sizeof(f->name), base_name(info->dlpi_name));
	cut(f->path, sizeof(f->path), info->dlpi_name);
	f->soname[0] = 0;
	for (const ElfW(Dyn) *dyn = t.dyn; dyn->d_tag != DT_NULL; dyn++)
		if (dyn->d_tag == DT_SONAME)
			cut(f->soname, sizeof(f->soname), t.strings + dyn->d_un.d_val);
	return s->n >= s->max;
}

int wg_find_exports(const char *symbol, struct wg_found *out, int max)
{
	struct search s = { .symbol = symbol, .hash = gnu_hash(symbol), .out = out, .max = max };

	if (max > 0)
		each_object(search_one, &s);
	return s.n;
}

void *wg_find_before(const char *symbol)
{
	struct wg_found one;
	struct search s = { .symbol = symbol, .hash = gnu_hash(symbol), .out = &one, .max = 1,
			    .before = true };

	each_object(search_one, &s);
	return s.n ? one.address : NULL;
}

/* ---- the object around an address -------------------------------------------------- */

struct around {
	uintptr_t address;
	struct tables t;
	uintptr_t start;
	bool found;
};

static int around_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct around *a = arg;
	uintptr_t end;

	(void)size;
	if (!tables_of_info(info, &a->t, &a->start, &end))
		return 0;
	a->found = a->address >= a->start && a->address < end;
	return a->found;
}

static bool object_around(const void *address, struct around *a)
{
	memset(a, 0, sizeof(*a));
	a->address = (uintptr_t)address;
#ifdef HAVE_FIND_OBJECT
	if (_dl_find_object) {
		struct dl_find_object o;

		if (_dl_find_object((void *)address, &o))
			return false;
		a->start = (uintptr_t)o.dlfo_map_start;
		a->found = tables_of(o.dlfo_link_map->l_addr, o.dlfo_link_map->l_ld, &a->t);
		return a->found;
	}
#endif
	each_object(around_one, a);
	return a->found;
}

bool wg_is_loaded(const void *address)
{
	struct around a;

	return object_around(address, &a);
}

void *wg_object_symbol(const void *inside, const char *symbol)
{
	struct around a;
	void *p;

	if (!object_around(inside, &a))
		return NULL;
	p = lookup(&a.t, symbol, gnu_hash(symbol));
	return wg_is_ours(p) ? NULL : p;
}

void wg_object_symbols(const void *inside, uint16_t first, uint16_t end, void **reals)
{
	struct around a;

	if (!object_around(inside, &a) || a.start == (uintptr_t)__ehdr_start)
		return;
	for (uint16_t fn = first; fn < end; fn++) {
		void *none = NULL, *p;

		if (__atomic_load_n(&reals[fn], __ATOMIC_RELAXED))
			continue;
		p = lookup(&a.t, wg_symbols[fn], gnu_hash(wg_symbols[fn]));
		if (p && !wg_is_ours(p))
			__atomic_compare_exchange_n(&reals[fn], &none, p, false, __ATOMIC_RELEASE,
						    __ATOMIC_RELAXED);
	}
}

const void *wg_object_start(const void *inside)
{
	struct around a;

	return object_around(inside, &a) ? (const void *)a.start : NULL;
}

int wg_which_export(const struct wg_found *found, int n, const void *caller)
{
	struct around a;

	if (n < 2)
		return n - 1;
	if (!caller || !object_around(caller, &a))
		return -1;
	for (int i = 0; i < n; i++)
		if (found[i].object == (const void *)a.start)
			return i; /* the library calls itself */
	for (const ElfW(Dyn) *dyn = a.t.dyn; dyn->d_tag != DT_NULL; dyn++) {
		const char *needed = a.t.strings + dyn->d_un.d_val;

		if (dyn->d_tag != DT_NEEDED)
			continue;
		for (int i = 0; i < n; i++)
			if (!strcmp(needed, found[i].soname) || !strcmp(base_name(needed), found[i].name))
				return i;
	}
	return -1;
}

/* ---- libc behind us -------------------------------------------------------------- */

struct behind {
	bool past; /* our own object has been passed */
	const char (*names)[24];
	void **out;
	unsigned int n;
};

static int behind_one(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct behind *b = arg;
	uintptr_t start, end;
	bool all = true;
	struct tables t;

	(void)size;
	if (!tables_of_info(info, &t, &start, &end))
		return 0;
	if (start == (uintptr_t)__ehdr_start) {
		b->past = true;
		return 0;
	}
	if (!b->past) {
		if (nbefore < sizeof(before) / sizeof(before[0])) {
			before[nbefore].start = start;
			before[nbefore].end = end;
			nbefore++;
		}
		return 0;
	}
	for (unsigned int i = 0; i < b->n; i++) {
		if (!b->out[i])
			b->out[i] = lookup(&t, b->names[i], gnu_hash(b->names[i]));
		all &= b->out[i] != NULL;
	}
	return all;
}

void wg_find_behind(const char (*names)[24], void **out, unsigned int n)
{
	struct behind b = { .names = names, .out = out, .n = n };

	each_object(behind_one, &b);
	b.past = true; /* what stands before us, if nothing after has it */
	for (unsigned int i = 0; i < n; i++)
		if (!out[i]) {
			each_object(behind_one, &b);
			break;
		}
}
