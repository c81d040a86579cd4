// SPDX-License-Identifier: Apache-2.0
#include "elfsym.h"

#include <elf.h>
#include <link.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct tables {
	uintptr_t bias;
	const ElfW(Sym) *symbols;
	const char *strings;
	const uint32_t *hash;
};

static uint32_t gnu_hash(const char *name)
{
	uint32_t h = 5381;

	for (const unsigned char *c = (const unsigned char *)name; *c; c++)
		h = h * 33 + *c;
	return h;
}

static int read_tables(const char *base, struct tables *t)
{
	const ElfW(Ehdr) *eh = (const void *)base;
	const ElfW(Phdr) *ph;
	const ElfW(Dyn) *dyn = NULL;
	uintptr_t bias, first = UINTPTR_MAX;

	if (!base || memcmp(eh->e_ident, ELFMAG, SELFMAG) || eh->e_phentsize != sizeof(*ph))
		return -1;
	ph = (const void *)(base + eh->e_phoff);
	for (int i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_type == PT_LOAD && ph[i].p_vaddr < first)
			first = ph[i].p_vaddr;
	if (first == UINTPTR_MAX)
		return -1;
	bias = (uintptr_t)base - (first & ~(uintptr_t)4095);
	for (int i = 0; i < eh->e_phnum; i++)
		if (ph[i].p_type == PT_DYNAMIC)
			dyn = (const void *)(bias + ph[i].p_vaddr);
	if (!dyn)
		return -1;
	*t = (struct tables){ .bias = bias };
	for (; dyn->d_tag != DT_NULL; dyn++) {
		/* glibc has relocated these, except in objects it maps read-only (the vDSO). */
		uintptr_t at = dyn->d_un.d_ptr < bias ? dyn->d_un.d_ptr + bias : dyn->d_un.d_ptr;

		if (dyn->d_tag == DT_SYMTAB)
			t->symbols = (const void *)at;
		else if (dyn->d_tag == DT_STRTAB)
			t->strings = (const void *)at;
		else if (dyn->d_tag == DT_GNU_HASH)
			t->hash = (const void *)at;
	}
	return t->symbols && t->strings && t->hash ? 0 : -1;
}

void *wg_elf_symbol(const void *base, const char *name)
{
	uint32_t h = gnu_hash(name), nbuckets, first, bloom_words, index;
	const uint32_t *buckets, *chain;
	struct tables t;

	if (read_tables(base, &t))
		return NULL;
	nbuckets = t.hash[0];
	first = t.hash[1];
	bloom_words = t.hash[2];
	if (!nbuckets)
		return NULL;
	buckets = (const uint32_t *)((const ElfW(Addr) *)(t.hash + 4) + bloom_words);
	chain = buckets + nbuckets;
	index = buckets[h % nbuckets];
	if (index < first)
		return NULL;
	for (;; index++) {
		const ElfW(Sym) *s = &t.symbols[index];
		uint32_t v = chain[index - first];

		if ((v | 1) == (h | 1) && !strcmp(t.strings + s->st_name, name) &&
		    s->st_shndx != SHN_UNDEF && (s->st_info & 0xf) == STT_FUNC)
			return (void *)(t.bias + s->st_value);
		if (v & 1)
			return NULL;
	}
}
