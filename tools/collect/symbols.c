/* SPDX-License-Identifier: Apache-2.0 */
/*
 * symbols.c - from an address in the process to a name, and from a name to an address.
 *
 * Files are opened when an address in them is asked for, never all: a training process
 * maps hundreds, some of gigabytes. A name is given only when a symbol's own size covers
 * the address; otherwise it is the module and an offset.
 */
#include "lines.h"
#include "symbols.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct memo {
	uint64_t key; /* pc << 1 | is_return; 0 free */
	struct wg_frame frame;
};

struct wg_symbols {
	struct wg_mem *m;
	struct wg_arena *arena;
	struct wg_module **mods;
	size_t nmods, capmods;
	struct seen { /* mappings by their start: what they belong to */
		uint64_t lo, hi;
		struct wg_module *mod;
	} seen[256], *last;
	struct memo *memos;
	size_t nmemos, capmemos;
	struct wg_facts *memo_facts; /* whose arena the memos' strings live in */
	struct wg_lines *lines;
};

struct wg_symbols *wg_symbols_open(struct wg_mem *m)
{
	struct wg_symbols *s = calloc(1, sizeof(*s));

	if (!s)
		exit(70);
	s->m = m;
	s->arena = wg_arena_new();
	return s;
}

void wg_symbols_close(struct wg_symbols *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->nmods; i++) {
		/* Two places of one file share the image: the first one closes it. */
		bool shared = false;

		for (size_t k = 0; k < i && !shared; k++)
			shared = s->mods[k]->image == s->mods[i]->image;
		if (!shared)
			wg_image_close(s->mods[i]->image);
	}
	wg_lines_free(s->lines);
	free(s->mods);
	free(s->memos);
	wg_arena_free(s->arena);
	free(s);
}

struct wg_mem *wg_symbols_mem(struct wg_symbols *s) { return s->m; }
struct wg_lines **wg_symbols_lines(struct wg_symbols *s) { return &s->lines; }

bool wg_symbols_is_code(struct wg_symbols *s, uint64_t pc)
{
	const struct wg_map *x = wg_mem_map_at(s->m, pc);

	return x && x->x;
}

static bool has_file(const struct wg_map *x)
{
	return x->ino || (x->path && !strcmp(x->path, "[vdso]"));
}

/* All mappings of the ELF file that x is one of: [*first, *end) in maps. */
static void extent(const struct wg_map *maps, size_t nmaps, const struct wg_map *x, size_t *first,
		   size_t *end)
{
	size_t i = (size_t)(x - maps), k;

	for (k = i; k > 0 && maps[k].off;) { /* back to offset 0 */
		k--;
		if (!has_file(&maps[k]) || maps[k].dev != x->dev || maps[k].ino != x->ino) {
			if (has_file(&maps[k]) || i - k > 8)
				break;
			continue; /* anonymous memory in between: bss, or text moved to huge pages */
		}
		if (maps[k].off > maps[i].off)
			break; /* the same file mapped once more below */
		i = k;
	}
	*first = i;
	for (k = i + 1; k < nmaps; k++) {
		if (!has_file(&maps[k]))
			continue;
		if (maps[k].dev != x->dev || maps[k].ino != x->ino || !maps[k].off)
			break;
	}
	*end = k;
	while (*end > *first + 1 && !has_file(&maps[*end - 1]))
		(*end)--;
}

static struct wg_module *module_of(struct wg_symbols *s, const struct wg_map *x)
{
	const struct wg_map *maps;
	struct wg_map *own;
	struct wg_module *mod;
	size_t nmaps, first, end, n = 0;

	maps = wg_mem_maps(s->m, &nmaps);
	extent(maps, nmaps, x, &first, &end);
	for (size_t i = 0; i < s->nmods; i++)
		if (s->mods[i]->base == maps[first].lo)
			return s->mods[i];
	if (s->nmods == s->capmods) {
		size_t cap = s->capmods ? s->capmods * 2 : 64;
		struct wg_module **v = realloc(s->mods, cap * sizeof(*v));

		if (!v)
			return NULL;
		s->mods = v;
		s->capmods = cap;
	}
	own = wg_alloc(s->arena, (end - first) * sizeof(*own));
	for (size_t i = first; i < end; i++)
		if (has_file(&maps[i]))
			own[n++] = maps[i];
	mod = wg_alloc(s->arena, sizeof(*mod));
	mod->base = maps[first].lo;
	mod->path = wg_str(s->arena, maps[first].path);
	for (size_t i = 0; i < s->nmods && own[0].ino; i++)
		if (s->mods[i]->image->ino == own[0].ino && s->mods[i]->image->dev == own[0].dev &&
		    s->mods[i]->image->fd >= 0)
			mod->image = s->mods[i]->image;
	if (!mod->image)
		mod->image = wg_image_open(s->m, own, n);
	s->mods[s->nmods++] = mod;
	if (mod->image->dead)
		return mod;
	for (size_t i = 0; i < n && !mod->usable; i++) {
		if (!wg_image_bias(mod->image, &own[i], &mod->bias))
			continue;
		mod->usable = true;
	}
	mod->lo = UINT64_MAX;
	for (size_t i = 0; i < mod->image->nph; i++) {
		const Elf64_Phdr *p = &mod->image->ph[i];

		if (p->p_type != PT_LOAD)
			continue;
		if (mod->bias + p->p_vaddr < mod->lo)
			mod->lo = mod->bias + p->p_vaddr;
		if (mod->bias + p->p_vaddr + p->p_memsz > mod->hi)
			mod->hi = mod->bias + p->p_vaddr + p->p_memsz;
	}
	return mod;
}

struct wg_module *wg_symbols_module(struct wg_symbols *s, uint64_t pc)
{
	const struct wg_map *x, *maps;
	struct seen *seen = s->last;
	size_t n;

	if (seen && pc >= seen->lo && pc < seen->hi)
		return seen->mod;
	x = wg_mem_map_at(s->m, pc);
	if (!x)
		return NULL;
	seen = &s->seen[(x->lo >> 12 ^ x->lo >> 20) % (sizeof(s->seen) / sizeof(s->seen[0]))];
	s->last = seen;
	if (seen->lo == x->lo && seen->hi == x->hi)
		return seen->mod;
	*seen = (struct seen){ .lo = x->lo, .hi = x->hi };
	if (has_file(x)) {
		seen->mod = module_of(s, x);
		return seen->mod;
	}
	/* Text that was moved to anonymous huge pages still lies inside its module. */
	maps = wg_mem_maps(s->m, &n);
	for (size_t i = (size_t)(x - maps), k = 0; x->x && i-- > 0 && k < 8; k++) {
		struct wg_module *mod;

		if (!has_file(&maps[i]))
			continue;
		mod = module_of(s, &maps[i]);
		if (mod && mod->usable && pc >= mod->lo && pc < mod->hi)
			seen->mod = mod;
		break;
	}
	return seen->mod;
}

/* ---- names ----------------------------------------------------------------------------- */

static struct memo *memo_slot(struct wg_symbols *s, uint64_t key)
{
	size_t mask, i;

	if (s->nmemos * 2 >= s->capmemos) {
		size_t cap = s->capmemos ? s->capmemos * 2 : 1024;
		struct memo *old = s->memos, *v = calloc(cap, sizeof(*v));

		if (!v)
			exit(70);
		for (size_t k = 0; k < s->capmemos; k++) {
			if (!old[k].key)
				continue;
			i = (old[k].key * 0x9e3779b97f4a7c15ull >> 20) & (cap - 1);
			while (v[i].key)
				i = (i + 1) & (cap - 1);
			v[i] = old[k];
		}
		free(old);
		s->memos = v;
		s->capmemos = cap;
	}
	mask = s->capmemos - 1;
	i = (key * 0x9e3779b97f4a7c15ull >> 20) & mask;
	while (s->memos[i].key && s->memos[i].key != key)
		i = (i + 1) & mask;
	return &s->memos[i];
}

static void name_it(struct wg_symbols *s, struct wg_facts *f, uint64_t pc, bool is_return,
		    struct wg_frame *out)
{
	uint64_t look = is_return ? pc - 1 : pc; /* a call may be the last thing of a function */
	struct wg_module *mod = wg_symbols_module(s, look);
	const struct wg_map *x;
	char name[8192], *at;
	struct wg_sym sym;

	memset(out, 0, sizeof(*out));
	out->pc = pc;
	out->line = WG_NO_INT;
	out->offset = 0;
	if (!mod) {
		x = wg_mem_map_at(s->m, look);
		if (x && x->path)
			out->module = wg_str(f->arena, x->path);
		if (x)
			out->offset = pc - x->lo + x->off;
		return;
	}
	out->module = wg_str(f->arena, mod->path);
	if (mod->image->replaced || (mod->image->dead && !mod->image->copy)) {
		struct wg_process *p = wg_find_process(f, wg_mem_pid(s->m));

		wg_add_missing(f, p, wg_fmt(f->arena, "symbols of %s", mod->path),
			       mod->image->replaced ?
				       "the file was replaced or removed after it was loaded" :
				       "the file cannot be read, or not in time",
			       NULL);
	}
	if (!mod->usable) {
		x = wg_mem_map_at(s->m, look);
		out->offset = x ? pc - x->lo + x->off : pc - mod->base;
		return;
	}
	out->offset = pc - mod->bias;
	if (!wg_image_function(mod->image, look - mod->bias, &sym))
		return;
	if (wg_image_str(mod->image->names, mod->image->str_off + sym.name,
			 mod->image->str_off + mod->image->str_size, name, sizeof(name)) <= 0)
		return;
	at = strchr(name, '@');
	if (at && at != name)
		*at = 0; /* the symbol's version is not part of its name */
	out->symbol = wg_demangle(f, name);
	out->offset = pc - mod->bias - sym.addr;
}

void wg_symbols_frame(struct wg_symbols *s, struct wg_facts *f, uint64_t pc, bool is_return,
		      struct wg_frame *out)
{
	struct memo *e;

	if (s->memo_facts != f) { /* strings of another facts object may be gone */
		if (s->memos)
			memset(s->memos, 0, s->capmemos * sizeof(*s->memos));
		s->nmemos = 0;
		s->memo_facts = f;
	}
	if (pc >> 63 || pc <= 1) {
		memset(out, 0, sizeof(*out));
		out->pc = pc;
		out->line = WG_NO_INT;
		return;
	}
	e = memo_slot(s, pc << 1 | is_return);
	if (!e->key) {
		struct wg_frame made;

		name_it(s, f, pc, is_return, &made);
		e->frame = made;
		e->key = pc << 1 | is_return;
		s->nmemos++;
	}
	*out = e->frame;
}

static const char *base_name(const char *path)
{
	const char *b = path ? strrchr(path, '/') : NULL;

	return b ? b + 1 : path ? path : "";
}

/* Is maps[i] the first mapping of something that is loaded as code? */
static bool is_loaded(const struct wg_map *maps, size_t n, size_t i)
{
	if (!has_file(&maps[i]) || maps[i].off || !maps[i].path || maps[i].path[0] != '/' ||
	    maps[i].shared)
		return false;
	for (size_t k = i; k < n && k < i + 16; k++)
		if (maps[k].ino == maps[i].ino && maps[k].x)
			return true;
	return false;
}

uint64_t wg_symbols_find(struct wg_symbols *s, const char *object, const char *symbol)
{
	const struct wg_map *maps;
	uint64_t vaddr, size;
	size_t n;

	maps = wg_mem_maps(s->m, &n);
	for (size_t i = 0; i < n; i++) {
		struct wg_module *mod;

		if (!is_loaded(maps, n, i) ||
		    (object && strncmp(base_name(maps[i].path), object, strlen(object))))
			continue;
		mod = module_of(s, &maps[i]);
		if (mod && mod->usable && wg_image_export(mod->image, symbol, &vaddr, &size))
			return mod->bias + vaddr;
		maps = wg_mem_maps(s->m, &n); /* may have been read again meanwhile */
	}
	return 0;
}

uint64_t wg_symbols_section(struct wg_symbols *s, const char *name)
{
	const struct wg_map *maps;
	size_t n;

	maps = wg_mem_maps(s->m, &n);
	for (size_t i = 0; i < n; i++) {
		const Elf64_Shdr *sh;
		struct wg_module *mod;

		if (!is_loaded(maps, n, i) || !strstr(base_name(maps[i].path), "python"))
			continue;
		mod = module_of(s, &maps[i]);
		sh = mod && mod->usable && !mod->image->copy ? wg_image_section(mod->image, name) :
							       NULL;
		if (sh && sh->sh_addr)
			return mod->bias + sh->sh_addr;
		maps = wg_mem_maps(s->m, &n);
	}
	return 0;
}
