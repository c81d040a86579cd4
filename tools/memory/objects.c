/* SPDX-License-Identifier: Apache-2.0 */
/*
 * objects.c - addresses of a process that is gone, turned into names with the files that it
 * had mapped. A file whose build id is not the recorded one is another build: then only
 * "library+0xoffset" is said, never a name from the wrong file.
 */
#include "analysis.h"

#include "../collect/sources.h"

#include <dwarf.h>
#include <elfutils/libdw.h>
#include <errno.h>
#include <fcntl.h>
#include <gelf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct symbol {
	uint64_t addr, size;
	const char *name;
};

struct image {
	struct image *next;
	char *path;
	uint8_t build_id[64];
	size_t build_id_len; /* as recorded */
	int fd, debug_fd;
	Elf *elf, *debug;
	Dwarf *dwarf;
	struct symbol *symbols;
	size_t n;
};

static struct image *images;

static int open_regular(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;

	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
		close(fd);
		return -1;
	}
	return fd;
}

/* 1 the same build, 0 another, -1 the file has no build id */
static int same_build(Elf *elf, const uint8_t *id, size_t n)
{
	size_t phnum = 0;

	if (elf_getphdrnum(elf, &phnum))
		return 0;
	for (size_t i = 0; i < phnum; i++) {
		GElf_Phdr ph;
		Elf_Data *data;
		size_t at = 0, next, name, desc;
		GElf_Nhdr nh;

		if (!gelf_getphdr(elf, (int)i, &ph) || ph.p_type != PT_NOTE)
			continue;
		data = elf_getdata_rawchunk(elf, (int64_t)ph.p_offset, ph.p_filesz,
					    ph.p_align == 8 ? ELF_T_NHDR8 : ELF_T_NHDR);
		if (!data)
			continue;
		while ((next = gelf_getnote(data, at, &nh, &name, &desc)) > 0) {
			if (nh.n_type == NT_GNU_BUILD_ID && nh.n_namesz == 4 &&
			    !memcmp((char *)data->d_buf + name, "GNU", 4))
				return nh.n_descsz == n && !memcmp((char *)data->d_buf + desc, id, n);
			at = next;
		}
	}
	return -1;
}

static int by_addr(const void *a, const void *b)
{
	const struct symbol *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	/* Of several names the longest-lived first: sized, then the shorter name. */
	if (!x->size != !y->size)
		return x->size ? -1 : 1;
	return 0;
}

static void take_symbols(struct image *i, Elf *elf, GElf_Word type)
{
	Elf_Scn *scn = NULL;

	while ((scn = elf_nextscn(elf, scn))) {
		GElf_Shdr sh;
		Elf_Data *data;
		size_t n;

		if (!gelf_getshdr(scn, &sh) || sh.sh_type != type || !sh.sh_entsize)
			continue;
		data = elf_getdata(scn, NULL);
		if (!data)
			continue;
		n = data->d_size / sh.sh_entsize;
		if (n > 16u << 20)
			continue;
		i->symbols = realloc(i->symbols, (i->n + n + 1) * sizeof(*i->symbols));
		if (!i->symbols)
			abort();
		for (size_t k = 0; k < n; k++) {
			GElf_Sym sym;
			const char *name;
			int kind;

			if (!gelf_getsym(data, (int)k, &sym) || sym.st_shndx == SHN_UNDEF ||
			    !sym.st_value)
				continue;
			kind = GELF_ST_TYPE(sym.st_info);
			if (kind != STT_FUNC && kind != STT_GNU_IFUNC)
				continue;
			name = elf_strptr(elf, sh.sh_link, sym.st_name);
			if (!name || !*name)
				continue;
			i->symbols[i->n].addr = sym.st_value;
			i->symbols[i->n].size = sym.st_size;
			i->symbols[i->n++].name = name;
		}
	}
}

static void open_debug(struct image *i)
{
	char path[256];
	size_t at;

	if (i->build_id_len < 3)
		return;
	at = (size_t)snprintf(path, sizeof(path), "/usr/lib/debug/.build-id/%02x/", i->build_id[0]);
	for (size_t k = 1; k < i->build_id_len && at + 10 < sizeof(path); k++)
		at += (size_t)snprintf(path + at, sizeof(path) - at, "%02x", i->build_id[k]);
	snprintf(path + at, sizeof(path) - at, ".debug");
	i->debug_fd = open_regular(path);
	if (i->debug_fd < 0)
		return;
	i->debug = elf_begin(i->debug_fd, ELF_C_READ, NULL);
}

static struct image *image_of(const struct wgm_object *o)
{
	struct image *i;
	int same;

	for (i = images; i; i = i->next)
		if (!strcmp(i->path, o->path) && i->build_id_len == o->build_id_len &&
		    !memcmp(i->build_id, o->build_id, o->build_id_len))
			return i;
	i = calloc(1, sizeof(*i));
	if (!i || !(i->path = strdup(o->path)))
		abort();
	i->next = images;
	images = i;
	i->fd = i->debug_fd = -1;
	i->build_id_len = o->build_id_len < sizeof(i->build_id) ? o->build_id_len : 0;
	memcpy(i->build_id, o->build_id, i->build_id_len);
	if (o->path[0] != '/')
		return i;
	elf_version(EV_CURRENT);
	i->fd = open_regular(o->path);
	if (i->fd < 0)
		return i;
	i->elf = elf_begin(i->fd, ELF_C_READ, NULL);
	if (!i->elf || elf_kind(i->elf) != ELF_K_ELF)
		goto unusable;
	same = same_build(i->elf, o->build_id, o->build_id_len);
	if (same == 0 || (same < 0 && o->build_id_len))
		goto unusable; /* replaced since */
	open_debug(i);
	if (i->debug && elf_kind(i->debug) == ELF_K_ELF)
		take_symbols(i, i->debug, SHT_SYMTAB);
	if (!i->n)
		take_symbols(i, i->elf, SHT_SYMTAB);
	if (!i->n)
		take_symbols(i, i->elf, SHT_DYNSYM);
	if (i->n)
		qsort(i->symbols, i->n, sizeof(*i->symbols), by_addr);
	i->dwarf = dwarf_begin_elf(i->debug ? i->debug : i->elf, DWARF_C_READ, NULL);
	return i;
unusable:
	if (i->elf)
		elf_end(i->elf);
	i->elf = NULL;
	return i;
}

/* The address in the file's own terms of what stood at this offset of the file. */
static bool vaddr_of(Elf *elf, uint64_t offset, uint64_t *vaddr)
{
	size_t n = 0;

	if (elf_getphdrnum(elf, &n))
		return false;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr ph;

		if (!gelf_getphdr(elf, (int)i, &ph) || ph.p_type != PT_LOAD ||
		    offset < ph.p_offset || offset - ph.p_offset >= ph.p_filesz)
			continue;
		*vaddr = offset - ph.p_offset + ph.p_vaddr;
		return true;
	}
	return false;
}

static const struct symbol *covering(const struct image *i, uint64_t addr)
{
	size_t lo = 0, hi = i->n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (i->symbols[mid].addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	/* Several may start at one place, the sized ones first. An unsized one reaches to the next. */
	for (size_t k = lo, tries = 0; k-- > 0 && tries < 16; tries++) {
		const struct symbol *s = &i->symbols[k];

		if (s->size ? addr - s->addr < s->size :
		    tries == 0 && (lo == i->n || addr < i->symbols[lo].addr)) {
			while (k > 0 && i->symbols[k - 1].addr == s->addr && i->symbols[k - 1].size)
				s = &i->symbols[--k];
			return s;
		}
	}
	return NULL;
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

void wgm_symbolise(struct wgm_trace *t, uint64_t pc, bool is_return, struct wgm_frame *out)
{
	const struct wgm_object *o = NULL;
	uint64_t at = is_return && pc ? pc - 1 : pc, offset, vaddr;
	const struct symbol *s;
	struct wg_facts names = { .arena = t->arena };
	struct image *i;
	Dwarf_Die die;
	Dwarf_Line *line;
	int n;

	memset(out, 0, sizeof(*out));
	out->pc = pc;
	for (size_t k = t->objects.n; k-- > 0 && !o;)
		if (at >= t->objects.v[k].start && at < t->objects.v[k].end)
			o = &t->objects.v[k];
	if (!o)
		return;
	out->path = o->path;
	out->library = base_name(o->path);
	offset = at - o->start + o->offset;
	out->offset = offset + (at != pc);
	i = image_of(o);
	if (!i->elf || !vaddr_of(i->elf, offset, &vaddr))
		return;
	s = covering(i, vaddr);
	if (s) {
		out->symbol = wg_demangle(&names, s->name);
		out->offset = vaddr - s->addr + (at != pc);
	} else {
		out->offset = vaddr + (at != pc);
	}
	if (!i->dwarf || !dwarf_addrdie(i->dwarf, vaddr, &die) ||
	    !(line = dwarf_getsrc_die(&die, vaddr)))
		return;
	out->file = wg_str(t->arena, dwarf_linesrc(line, NULL, NULL));
	if (!dwarf_lineno(line, &n) && n > 0)
		out->line = (uint32_t)n;
}

void wgm_objects_close(void)
{
	while (images) {
		struct image *i = images;

		images = i->next;
		if (i->dwarf)
			dwarf_end(i->dwarf);
		if (i->debug)
			elf_end(i->debug);
		if (i->elf)
			elf_end(i->elf);
		if (i->debug_fd >= 0)
			close(i->debug_fd);
		if (i->fd >= 0)
			close(i->fd);
		free(i->symbols);
		free(i->path);
		free(i);
	}
}
