/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elf_image.h - one ELF file as a program has it mapped: read piece by piece, checked
 * at every step. The file belongs to the target: it may be gone, replaced, truncated
 * while we read, on a file system that does not answer, or made to break its reader.
 * So nothing is mapped (no SIGBUS), every read has a deadline, every offset a bound.
 */
#ifndef WG_ELF_IMAGE_H
#define WG_ELF_IMAGE_H

#include <elf.h>

#include "mem.h"

struct wg_sym { /* a function of an image, by its address in the file */
	uint64_t addr;
	uint32_t size, name; /* name: offset into the string table it came from */
};

struct wg_image {
	struct wg_mem *m;
	const char *path;     /* as maps show it; "[vdso]" */
	uint64_t dev, ino;
	int fd;		      /* -1: copied from the process' memory, see copy */
	bool dead;	      /* does not answer, or is not an ELF file for us */
	bool replaced;	      /* the path now holds another file: read from memory */
	char *copy;	      /* memory laid out by file offset */
	uint64_t size;
	Elf64_Ehdr eh;
	Elf64_Phdr *ph;
	size_t nph;
	Elf64_Shdr *sh;	      /* NULL without a section table */
	size_t nsh;
	bool sh_tried;
	uint8_t build_id[64];
	size_t build_id_len;  /* 0 none */
	uint64_t hdr_vaddr, hdr_size; /* PT_GNU_EH_FRAME; 0 none */
	/* functions */
	bool syms_tried, sorted;
	struct wg_sym *syms;
	size_t nsyms, nlookups;
	struct wg_symtab *shared; /* where syms come from when another image has read them */
	struct wg_image *names; /* the image whose string table syms[].name points into */
	uint64_t str_off, str_size;
	struct wg_image *debug; /* separate debug file with the same build id */
	bool debug_tried;
	uint64_t copy_bias;   /* of a copy: ld.so has added this to addresses in it */
	/* piecewise cache */
	struct {
		uint64_t tag; /* chunk number + 1 */
		uint32_t len;
		char *data;
	} chunk[32];
};

/*
 * Open the file behind `map`, through the target's root; from memory when that file is
 * gone or another one now. Never NULL: see dead. maps/nmaps: all mappings of that file.
 */
struct wg_image *wg_image_open(struct wg_mem *m, const struct wg_map *maps, size_t nmaps);
/* A plain file, not checked against any mapping (tests, debug files). */
struct wg_image *wg_image_open_file(struct wg_mem *m, const char *path);
void wg_image_close(struct wg_image *i);

/* All n bytes at file offset off, or -errno. */
int wg_image_read(struct wg_image *i, uint64_t off, void *buf, size_t n);
int wg_image_str(struct wg_image *i, uint64_t off, uint64_t end, char *buf, size_t n);
/* The file offset of a virtual address in read-only (ro) or any file-backed segment. */
bool wg_image_offset(const struct wg_image *i, uint64_t vaddr, size_t n, bool ro, uint64_t *off);
/* The function that covers vaddr; false: none does. Chooses the innermost one. */
bool wg_image_function(struct wg_image *i, uint64_t vaddr, struct wg_sym *out);
/* Virtual address of an exported symbol; false: not there. */
bool wg_image_export(struct wg_image *i, const char *name, uint64_t *vaddr, uint64_t *size);
const Elf64_Shdr *wg_image_section(struct wg_image *i, const char *name);
struct wg_image *wg_image_debug(struct wg_image *i); /* NULL none */
/* bias such that address = bias + vaddr, from one mapping of it; false: contradictory. */
bool wg_image_bias(const struct wg_image *i, const struct wg_map *map, uint64_t *bias);

#endif
