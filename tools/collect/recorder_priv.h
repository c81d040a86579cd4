/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder_priv.h - what recorder.c (one file) and recorder_list.c (all files of the
 * host) share. Everything read from a recorder file is hostile: it is copied with
 * pread() into memory of our own, so that neither a truncation (SIGBUS) nor a writer
 * in the middle of a change can hurt the reader, and every use is bounds-checked.
 */
#ifndef WG_RECORDER_PRIV_H
#define WG_RECORDER_PRIV_H

#include <sys/types.h>

#include "preload/recorder.h"
#include "sources.h"

struct wg_rec_sec {
	uint64_t offset, capacity, used; /* validated against the file's size */
	uint32_t entry_size;
	uint8_t *data; /* loaded entries; malloc'ed */
	uint64_t n;    /* how many of them */
};

struct wg_rec {
	struct wg_facts *f;
	int fd;
	uint64_t size;
	uint32_t owner; /* uid of the file, as the asker sees it */
	bool linked;	/* the file still has a name (a memfd has none) */
	struct wgrec_header h;
	struct wg_rec_sec sec[32]; /* by kind */
	uint64_t now;	/* ticks, taken at load */
	double max_age_s; /* nothing can be older */
	uint64_t loaded;  /* bytes held, bounded */
	/* Names already copied into the arena. */
	struct { uint32_t at; const char *text; } strings[1024];
	const char **fn_names;
	uint64_t nfn;
	/* Where things of the file stand in the facts. */
	int64_t *stream_ix, *comm_ix;
	uint64_t nstream_ix, ncomm_ix;
	/* First sample. */
	bool first_done;
	uint64_t calls_sum;
	struct { uint64_t completed, enqueued; } *first;
	uint64_t nfirst;
	uint64_t failure_seq;
};

struct wg_rec_who { /* which live process, if any, a header speaks of */
	int32_t pid;	   /* as the asker sees it; the recorded number when it cannot be seen */
	bool alive;
	bool alive_known;  /* false: its PID namespace is not visible from here */
	char state;
	uint32_t uid[4];   /* real, effective, saved, file system */
};

/* Open, check and load the header. -errno, *why explains (a literal). */
int wg_rec_open_file(struct wg_facts *f, const char *path, struct wg_rec **out, const char **why);
void wg_rec_whose(const struct wgrec_header *h, struct wg_rec_who *who);
int wg_rec_load(struct wg_rec *r, unsigned int kind); /* all used entries; 0 or -errno */
/* Entry i of a loaded section, zero-filled when the file's entries are shorter than ours. */
bool wg_rec_entry(const struct wg_rec *r, unsigned int kind, uint64_t i, void *out, size_t n);
/* Entry i straight from the file. */
bool wg_rec_fetch(const struct wg_rec *r, unsigned int kind, uint64_t i, void *out, size_t n);
double wg_rec_age(const struct wg_rec *r, uint64_t ticks); /* WG_NO_SEC: not stamped, implausible */
double wg_rec_span(const struct wg_rec *r, uint64_t ticks); /* a duration */
int wg_rec_load_header(struct wg_rec *r, const char **why); /* (again) */
uint64_t wg_rec_read_at(const struct wg_rec *r, void *buf, uint64_t bytes, uint64_t offset);
const char *wg_rec_fixed(struct wg_facts *f, const char *s, size_t size); /* "" is NULL */
bool wg_rec_fn(const struct wg_rec *r, uint32_t fn, struct wgrec_name *out);
const char *wg_rec_fn_name(struct wg_rec *r, uint32_t fn);
const char *wg_rec_string_at(struct wg_rec *r, uint32_t at); /* demangled; NULL none */
bool wg_rec_find_event(const struct wg_rec *r, uint64_t handle, struct wgrec_event *out);
int64_t wg_rec_bytes(uint64_t v); /* WG_NO_INT when it is no number of bytes */
struct wg_thread *wg_rec_thread_of(struct wg_process *p, uint32_t ns_tid);
int32_t wg_rec_tid_of(struct wg_process *p, uint32_t ns_tid); /* as the asker sees it, if known */
uint64_t wg_rec_reached(const struct wg_rec *r, const struct wgrec_stream *e, bool *has_position);

/* The parts, in the order in which they build on each other: comms, streams, collectives, threads. */
void wg_rec_fill_devices(struct wg_facts *f, struct wg_process *p, struct wg_rec *r);
bool wg_rec_add_failures(struct wg_facts *f, struct wg_process *p, struct wg_rec *r);
void wg_rec_fill_comms(struct wg_facts *f, struct wg_process *p, struct wg_rec *r);
void wg_rec_fill_streams(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
			 struct wg_mem *m, struct wg_symbols *sym);
void wg_rec_fill_collectives(struct wg_facts *f, struct wg_process *p, struct wg_rec *r);
void wg_rec_awaited(struct wg_process *p, struct wg_rec *r); /* after the threads */
uint64_t wg_rec_fill_threads(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
			     uint64_t *last_launch);

/* Other ranks of p's communicators among this host's recorder files: into p->peers. */
void wg_rec_peers(struct wg_facts *f, struct wg_process *p, const struct wgrec_header *h);
/* Add or refine a peer (by communicator and rank). */
void wg_rec_add_peer(struct wg_facts *f, struct wg_process *p, const char *comm, int64_t rank,
		     const char *host, const char *boot, int64_t pid, int64_t start, bool alive,
		     bool alive_known);
/* One line of /proc/PID/stat: state and start in ticks of the asker's time namespace. */
int wg_rec_stat(int32_t pid, char *state, uint64_t *start_ticks);
const char *wg_rec_boot_id(void);
uint64_t wg_rec_ns_inode(int32_t pid, const char *ns); /* 0 unknown; pid 0: self */
/* NSpid's last entry and the four uids from /proc/PID/status; 0 or -errno. */
int wg_rec_status(int32_t pid, int32_t *ns_pid, uint32_t uid[4]);
/* Boot-time offset of that process' time namespace against ours, in ticks. */
int64_t wg_rec_time_offset(int32_t pid);

#endif
