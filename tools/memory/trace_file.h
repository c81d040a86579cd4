/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace_file.h - one trace file, checked and taken apart. Knows the format, draws no
 * conclusions: replay.h does.
 *
 * The file is hostile input: nothing is mapped (it may be truncated while it is read),
 * every offset, count and index is checked, and what does not fit is refused with the
 * place and the reason in `why`. A file whose writer was killed is whole up to its last
 * committed record. Times are ticks of the writer; wgm_seconds() turns them into seconds
 * since the process began.
 */
#ifndef WG_MEMORY_TRACE_FILE_H
#define WG_MEMORY_TRACE_FILE_H

#include "../facts.h"
#include "../../preload/memory.h"
#include "../../preload/trace.h"

#define WGM_NONE UINT64_MAX

struct wgm_chunk {
	uint32_t number; /* place in the file */
	uint16_t kind, stream;
	uint32_t ordinal, used;
	uint64_t first, last, events, lost;
};
struct wgm_pyline {
	uint32_t line;
	const char *function, *file;
};
struct wgm_stack {
	uint32_t n;
	const uint64_t *frames; /* innermost first; return addresses */
};
struct wgm_python { /* of a site, when it was seen first; later ones may differ */
	uint32_t n;
	const struct wgm_pyline *v;
};
struct wgm_object {
	uint64_t at, start, end, offset, inode;
	const uint8_t *build_id;
	size_t build_id_len;
	const char *path;
};
struct wgm_holder {
	const char *library;
	uint64_t bytes;
};
struct wgm_failure {
	uint64_t number, at;
	uint32_t tid;
	int device; /* -1 unknown */
	uint16_t fn;
	uint32_t kind;
	int64_t error;
	uint64_t asked, free, total; /* WGM_NONE unknown */
	uint64_t pieces, own, va_reserved, host_live;
	const char *thread;
	struct wgm_stack stack;
	const struct wgm_pyline *py;
	uint32_t npy;
	uint32_t recovered; /* as in struct wgrec_failure */
	uint64_t repeats;
	/* Filled by the replay: who held the device's memory then, most first. Empty: not known. */
	WG_VEC(struct wgm_holder) holders;
};
struct wgm_thread {
	uint32_t tid;
	const char *name;
};
struct wgm_timeline {
	const struct wgtr_bucket *v; /* the last one is still being filled */
	size_t n;
};

struct known_table;

struct wgm_trace {
	struct wg_arena *arena;
	int fd;
	const char *path;
	uint64_t size;
	struct wgtr_header h;
	struct wgtr_device devices[WGTR_DEVICES];
	WG_VEC(struct wgm_chunk) chunks;
	struct wgtr_site *sites; /* nsites; kind 0: not in use or not in the file */
	size_t nsites;
	WG_VEC(struct wgtr_live) live; /* state 1, or 2 (given back, still mapped) */
	bool live_complete;	       /* every slot that was laid out is in the file */
	struct wgm_stack *stacks;      /* by id */
	size_t nstacks;
	struct wgm_python *python; /* by site */
	size_t npython;
	const char **names; /* by function id; NULL */
	size_t nnames;
	const char **strings;
	size_t nstrings;
	WG_VEC(struct wgm_thread) threads;
	WG_VEC(struct wgm_object) objects;
	WG_VEC(struct wgm_failure) failures;
	WG_VEC(const char *) notes;
	struct wgm_timeline timeline[WGTR_DEVICES];
	uint64_t first, last; /* ticks: opened, last thing known */
	uint64_t events, lost;
	struct known_table *frames; /* of attribute.c */
	char why[320];
};

/*
 * 0, or -errno with a sentence in why (never NULL): -EBADMSG corrupt or truncated, -EPROTO
 * foreign (not a trace, or a version that we do not know), else as open() and read().
 */
int wgm_trace_open(const char *path, struct wgm_trace **out, char *why, size_t n);
void wgm_trace_close(struct wgm_trace *t);

double wgm_seconds(const struct wgm_trace *t, uint64_t ticks); /* since the process began */
double wgm_span(const struct wgm_trace *t, uint64_t ticks);    /* a duration */
double wgm_real(const struct wgm_trace *t, uint64_t ticks);    /* since the epoch */
uint64_t wgm_mono_ns(const struct wgm_trace *t, uint64_t ticks);
const char *wgm_function(const struct wgm_trace *t, uint32_t fn); /* never NULL */
const char *wgm_thread_name(const struct wgm_trace *t, uint32_t tid); /* NULL unknown */
bool wgm_killed(const struct wgm_trace *t); /* no normal end was written */

/* ---- events, of all writers merged in time ------------------------------------- */

struct wgm_event {
	uint64_t at; /* ticks */
	uint32_t tid;
	uint8_t tag; /* 0: allocation or free; else enum wgtr_event (perhaps one we do not know) */
	bool is_free;
	uint32_t site;
	uint64_t addr, size;
	uint8_t n;
	uint64_t v[32];
};

struct wgm_events;
/* from: leave out what was before (ticks); the state it left behind is in LIVE. */
struct wgm_events *wgm_events_open(struct wgm_trace *t, uint64_t from);
/* 1: *out is the next; 0: there are no more; -EBADMSG: corrupt, see t->why. */
int wgm_events_next(struct wgm_events *e, struct wgm_event *out);
void wgm_events_close(struct wgm_events *e);

#endif
