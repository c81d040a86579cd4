/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_fields.h - one description of every fact, from which the snapshot is both
 * written and read, so that the two cannot drift apart.
 *
 * A new member of facts.h gets a line in snapshot_fields.c; test_snapshot.c fails for
 * members that have none.
 */
#ifndef WG_SNAPSHOT_FIELDS_H
#define WG_SNAPSHOT_FIELDS_H

#include <jansson.h>

#include "facts.h"

enum wg_ftype {
	WG_F_I16, WG_F_I32, WG_F_U32, WG_F_I64,
	WG_F_U64,  /* a count: JSON integer */
	WG_F_HEX,  /* uint64_t: an address or handle, "0x..." (JSON numbers lose bits) */
	WG_F_SEC,  /* double; NAN is absent */
	WG_F_STR, WG_F_BOOL, WG_F_CHAR,
	WG_F_ENUM, /* int-sized, by name */
	WG_F_STRS, /* WG_VEC(const char *) */
	WG_F_I32S, /* WG_VEC(int32_t) */
	WG_F_VEC,  /* WG_VEC(struct) */
	WG_F_OBJ,  /* a struct inside */
	WG_F_U32A, WG_F_I32A, WG_F_HEXA, /* fixed arrays; trailing zeroes are cut */
	WG_F_BYTES, /* const uint8_t * and, at len_at, its size_t: hex digits */
	WG_F_SKIP, /* not saved: where it stands in the struct is told for the test */
};
enum wg_fabsent {
	WG_A_NONE, /* always written; 0 when a file lacks it */
	WG_A_ZERO, /* left out when 0, false, NULL, empty */
	WG_A_NO,   /* left out when WG_NO_INT or NAN; that again when a file lacks it */
	WG_A_M1,   /* left out when -1 */
};

struct wg_desc;
struct wg_field {
	const char *key;
	size_t at, size;
	enum wg_ftype type;
	enum wg_fabsent absent;
	const struct wg_desc *desc;	 /* VEC, OBJ */
	const char *const *names;	 /* ENUM, NULL-ended */
	size_t len_at;			 /* BYTES */
	const char *member;		 /* its name in facts.h */
};
struct wg_desc {
	const char *name;
	size_t size;
	const struct wg_field *fields;
	size_t n;
};

extern const struct wg_desc wg_desc_thread, wg_desc_file, wg_desc_device, wg_desc_stream,
	wg_desc_comm, wg_desc_collective, wg_desc_peer, wg_desc_process, wg_desc_facts,
	wg_desc_missing, wg_desc_file_lock, wg_desc_call;
extern const struct wg_desc *const wg_all_descs[]; /* NULL-ended */

/* All fields of *s into obj. */
void wg_encode(const struct wg_desc *d, const void *s, json_t *obj);

struct wg_decoder {
	struct wg_arena *arena;
	const char *why; /* first error, with its path; NULL none */
	const char *path[16];
	long index[16];
	int depth;
};
/* Every field of *s absent. */
void wg_reset(const struct wg_desc *d, void *s);
/* Resets *s, then takes what obj has. Unknown keys are ignored. 0 or -EINVAL with dec->why. */
int wg_decode(const struct wg_desc *d, void *s, const json_t *obj, struct wg_decoder *dec);
int wg_decode_error(struct wg_decoder *dec, const char *what);

#endif
