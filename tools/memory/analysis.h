/* SPDX-License-Identifier: Apache-2.0 */
/*
 * analysis.h - what a trace says: the model between replay and everything that prints it
 * (mem, diff, export, report).
 *
 * Bytes are uint64_t, WGM_NONE where the trace does not tell; times are seconds since the
 * process began, NAN where unknown. All of it lives in the trace's arena.
 */
#ifndef WG_MEMORY_ANALYSIS_H
#define WG_MEMORY_ANALYSIS_H

#include "trace_file.h"

struct wgm_frame { /* symbolised */
	const char *library; /* base name; NULL no object covers it */
	const char *path;
	const char *symbol;  /* demangled; NULL when none covers it */
	uint64_t offset;     /* into the symbol, or into the library */
	const char *file;
	uint32_t line;
	uint64_t pc;
};

struct wgm_site {
	uint32_t id;
	const struct wgtr_site *raw;
	const char *text;    /* "c10::cuda::… (CUDACachingAllocator.cpp:812)" */
	const char *library; /* of the first frame that is neither CUDA's nor ours */
	const struct wgm_frame *frames;
	size_t nframes;
	uint64_t live_at_peak, live_at_end;
	uint64_t allocations, frees, total;
	/* Levels at equal distances in time, for growth and charts. */
	uint64_t *levels;
};

struct wgm_library {
	const char *library;
	uint64_t live_at_peak, live_at_end, allocations, frees;
};

struct wgm_growth {
	const struct wgm_site *site;
	double bytes_per_s;
	uint64_t live_at_end, grown;
};

struct wgm_other {
	uint32_t pid;
	uint64_t bytes;
};

struct wgm_device {
	int index;
	const struct wgtr_device *raw;
	const char *uuid; /* "GPU-…"; NULL */
	uint64_t total;
	uint64_t peak_own, least_free, own_at_end, live_at_end;
	double peak_at_s, least_free_at_s;
	uint64_t allocations, frees;
	uint64_t reserved_at_peak; /* in pools and physical handles: what smaller pieces come from */
	uint64_t context_and_modules;
	uint64_t unaccounted; /* total - free - own at the last sample: contexts, other processes */
	bool peak_exact;      /* live_at_peak is of the peak, not of a look some time before */
	uint64_t managed_peak, managed_at_end;
	WG_VEC(struct wgm_other) others;
	WG_VEC(const struct wgm_failure *) failures;
	WG_VEC(struct wgm_library) libraries; /* most at the peak first */
	WG_VEC(const struct wgm_site *) sites;
	WG_VEC(struct wgm_growth) growing;
	struct {
		uint64_t free, largest_possible, reserved_unused, address_space_reserved;
		bool bound; /* largest_possible is an upper bound: a failure proves it smaller */
	} fragmentation;
	bool used; /* anything at all happened on it */
};

#define WGM_LEVELS 64 /* of wgm_site.levels */

struct wgm_analysis {
	struct wgm_trace *t;
	bool complete;
	double begin_s, duration_s; /* age of the process when the trace begins, and ends */
	double whole_from_s;	    /* detail before is folded; 0 none is */
	struct wgm_site *sites; /* by id */
	size_t nsites;
	struct wgm_device devices[WGTR_DEVICES];
	uint64_t host_peak, host_at_end;
	double host_peak_at_s;
	uint64_t waits; /* long blocking calls recorded */
	double longest_wait_s;
	const char *longest_wait;
	uint64_t replayed; /* events */
};

/* NULL: corrupt, see t->why. The analysis lives as long as the trace. */
struct wgm_analysis *wgm_analyse(struct wgm_trace *t);
/* What the traces of one host tell about each other: who else held memory on the same card. */
void wgm_join(struct wgm_analysis **all, size_t n);

/* "device", "pinned host" ... of enum wg_mem_kind */
const char *wgm_kind(uint32_t kind);
/* The shortfall, where there can be one; WGM_NONE. */
uint64_t wgm_short_by(const struct wgm_failure *f);
/* Is it memory of the card that was asked for? */
bool wgm_on_card(uint32_t kind);
/* Symbolise a stack (attribute.c). */
const struct wgm_frame *wgm_frames(struct wgm_trace *t, const struct wgm_stack *s, size_t *n);
/* The first frame that is neither CUDA's nor ours: who is to be named. -1 none. */
int wgm_caller(const struct wgm_frame *f, size_t n);
const char *wgm_frame_text(struct wg_arena *a, const struct wgm_frame *f);
void wgm_attribute(struct wgm_analysis *a, struct wgm_site *s);

/* One frame from objects and their files (objects.c). is_return: pc is a return address. */
void wgm_symbolise(struct wgm_trace *t, uint64_t pc, bool is_return, struct wgm_frame *out);
void wgm_objects_close(void); /* the images that were opened */

/* ---- a replay for those who need every event (export, report) --------------------- */

struct wgm_block { /* an allocation as it begins or ends */
	double at_s;
	uint64_t at;
	uint32_t tid;
	const struct wgm_site *site;
	uint64_t addr, size;
	int device;
	uint32_t kind;
	bool is_free;
	bool from_before; /* alive since before the detail begins */
	uint64_t own;	  /* of the device, afterwards */
};
struct wgm_watch {
	void *arg;
	void (*block)(void *arg, const struct wgm_block *b);		   /* NULL: not wanted */
	void (*event)(void *arg, const struct wgm_event *e, double at_s);  /* all other records */
};
/* As wgm_analyse(), and tells the watcher on the way. */
struct wgm_analysis *wgm_replay(struct wgm_trace *t, const struct wgm_watch *w);

#endif
