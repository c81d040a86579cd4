/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recfile.h - reads another process' recorder file in tests: as its readers do, by preload/recorder.h alone.
 */
#ifndef RECFILE_H
#define RECFILE_H

#include <fcntl.h>
#include <glob.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "preload/recorder.h"

struct recfile {
	char path[128];
	const uint8_t *base;
	size_t size;
};

static inline const struct wgrec_header *rec_header(const struct recfile *r)
{
	return (const struct wgrec_header *)r->base;
}

static inline bool rec_open(struct recfile *r, int pid)
{
	char pattern[96];
	struct stat st;
	glob_t g;
	int fd;

	memset(r, 0, sizeof(*r));
	snprintf(pattern, sizeof(pattern), WGREC_DIR_FMT "/%d-*.rec", getuid(), pid);
	if (glob(pattern, 0, NULL, &g))
		return false;
	snprintf(r->path, sizeof(r->path), "%s", g.gl_pathv[g.gl_pathc - 1]);
	globfree(&g);
	fd = open(r->path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st))
		return false;
	r->size = (size_t)st.st_size;
	r->base = mmap(NULL, r->size, PROT_READ, MAP_SHARED, fd, 0);
	close(fd);
	return r->base != MAP_FAILED && !memcmp(r->base, WGREC_MAGIC, 8);
}

static inline void rec_close(struct recfile *r)
{
	if (r->base && r->base != MAP_FAILED)
		munmap((void *)r->base, r->size);
	r->base = NULL;
}

static inline const void *rec_at(const struct recfile *r, enum wgrec_kind kind, uint64_t i)
{
	const struct wgrec_header *h = rec_header(r);

	for (uint32_t k = 0; k < h->nsections && k < WGREC_MAX_SECTIONS; k++) {
		const struct wgrec_section *s = &h->sections[k];

		if (s->kind == kind)
			return i < s->used && s->offset + (i + 1) * s->entry_size <= r->size ?
				       r->base + s->offset + i * s->entry_size :
				       NULL;
	}
	return NULL;
}

static inline uint64_t rec_used(const struct recfile *r, enum wgrec_kind kind)
{
	const struct wgrec_header *h = rec_header(r);

	for (uint32_t k = 0; k < h->nsections && k < WGREC_MAX_SECTIONS; k++)
		if (h->sections[k].kind == kind)
			return h->sections[k].used;
	return 0;
}

static inline const char *rec_string(const struct recfile *r, uint32_t ref)
{
	const char *s = rec_at(r, WGREC_STRINGS, ref);

	return ref && s ? s : "";
}

static inline const char *rec_fn(const struct recfile *r, uint16_t fn)
{
	const struct wgrec_name *n = rec_at(r, WGREC_NAMES, fn);

	return n ? n->name : "";
}

static inline const struct wgrec_stream *rec_stream(const struct recfile *r, uint64_t handle,
						    uint32_t tid)
{
	for (uint64_t i = 0; i < rec_used(r, WGREC_STREAMS); i++) {
		const struct wgrec_stream *s = rec_at(r, WGREC_STREAMS, i);

		if (s && s->valid == 1 && s->handle == handle && (!tid || s->owner_tid == tid))
			return s;
	}
	return NULL;
}

static inline const struct wgrec_item *rec_item(const struct recfile *r,
						const struct wgrec_stream *s, uint64_t seq)
{
	const struct wgrec_item *it =
		s->items_first == UINT32_MAX ?
			NULL :
			rec_at(r, WGREC_ITEMS, s->items_first + seq % WGREC_STREAM_ITEMS);

	return it && it->seq == seq ? it : NULL;
}

/* As docs/recorder-format.md says. */
static inline uint64_t rec_done(const struct recfile *r, const struct wgrec_stream *s)
{
	const uint32_t *word = s->position == UINT32_MAX ?
				       NULL :
				       rec_at(r, WGREC_POSITIONS, s->position);
	uint64_t done = s->proven;
	int32_t behind;

	if (!word)
		return done;
	behind = (int32_t)((uint32_t)s->marked - *word);
	if (behind < 0)
		behind = 0;
	return s->marked - (uint32_t)behind > done ? s->marked - (uint32_t)behind : done;
}

#endif
