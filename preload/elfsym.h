/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elfsym.h - find an exported function in one particular loaded object.
 *
 * dlsym() needs a handle, takes the loader's lock and is itself hooked; an object of which only an
 * address is known is read here directly. No lock, no allocation, no errno.
 */
#ifndef WG_ELFSYM_H
#define WG_ELFSYM_H

/* base: where the object's ELF header is mapped. NULL: no such definition, or no GNU hash table. */
void *wg_elf_symbol(const void *base, const char *name);

#endif
