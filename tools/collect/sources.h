/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sources.h - the collectors' entry points, called by collect.c in this order.
 * Each file adds to the facts and does not know the others.
 */
#ifndef WG_SOURCES_H
#define WG_SOURCES_H

#include "../facts.h"

/* ---- memory of another process (mem.c) ---------------------------------- */

struct wg_map {
	uint64_t lo, hi, off, dev, ino; /* dev as major<<20|minor */
	bool r, w, x, shared;
	const char *path; /* NULL anonymous; "[heap]", "[stack]", "[vdso]"; " (deleted)" cut off */
	bool deleted;
};
struct wg_mem; /* reads of one process' memory; page cache inside */
/*
 * pid as the asker sees it; mem_fd an inherited /proc/PID/mem or -1. The first read and
 * the reading of maps happen under a deadline on a thread of their own: if they do not
 * answer, every later read fails at once with -ETIMEDOUT. Never NULL.
 */
struct wg_mem *wg_mem_open(struct wg_facts *f, struct wg_process *p, int mem_fd);
void wg_mem_close(struct wg_mem *m);
int wg_mem_error(const struct wg_mem *m);		  /* 0, or why nothing can be read: -EPERM ... */
int wg_mem_read(struct wg_mem *m, uint64_t addr, void *buf, size_t n); /* all of it, or -errno */
int wg_mem_read_some(struct wg_mem *m, uint64_t addr, void *buf, size_t n); /* bytes, or -errno */
int wg_mem_read_str(struct wg_mem *m, uint64_t addr, char *buf, size_t n); /* NUL-ended, cut */
void wg_mem_forget(struct wg_mem *m);			  /* drop cached pages: second sample */
const struct wg_map *wg_mem_maps(struct wg_mem *m, size_t *n);
const struct wg_map *wg_mem_map_at(struct wg_mem *m, uint64_t addr);
int wg_mem_pid(const struct wg_mem *m);
int wg_mem_task(const struct wg_mem *m); /* whose entry in /proc shows it: another thread's when the leader has ended */

/* ---- symbols (symbols.c) ------------------------------------------------- */

struct wg_symbols; /* ELF images of one process, opened through /proc/PID/root */
struct wg_symbols *wg_symbols_open(struct wg_mem *m);
void wg_symbols_close(struct wg_symbols *s);
/* Fill module, symbol, file, line, offset, inlined of frames for pc; is_return: pc is a return address. */
void wg_symbols_frame(struct wg_symbols *s, struct wg_facts *f, uint64_t pc, bool is_return,
		      struct wg_frame *out);
/* Address of an exported symbol in any loaded object whose base name starts with `object` (NULL any). */
uint64_t wg_symbols_find(struct wg_symbols *s, const char *object, const char *symbol);
const char *wg_demangle(struct wg_facts *f, const char *mangled); /* C++ and Rust; unchanged otherwise */

/* ---- registers and native stacks (stacks.c) -------------------------------- */

struct wg_regs { /* user registers of one thread */
	int32_t tid;
	bool full;	  /* bp, bx, r12-r15 are valid too; otherwise only sp and ip */
	bool approximate; /* the thread runs: from its last kernel entry */
	uint64_t ip, sp, bp, bx, r12, r13, r14, r15, fsbase;
};
/* regs may be NULL or lack threads: then sp/pc of the thread, then calls in flight, are used. */
int wg_stacks_collect(struct wg_facts *f, struct wg_process *p, struct wg_mem *m,
		      struct wg_symbols *s, const struct wg_regs *regs, size_t nregs,
		      bool allow_ptrace);
/* Symbolise raw addresses already in frames (failures' stacks). */
void wg_stacks_symbolize(struct wg_facts *f, struct wg_process *p, struct wg_symbols *s);

/* ---- Python and stdio (python.c, stdio.c) ---------------------------------- */

int wg_python_collect(struct wg_facts *f, struct wg_process *p, struct wg_mem *m,
		      struct wg_symbols *s);
int wg_stdio_collect(struct wg_facts *f, struct wg_process *p, struct wg_mem *m,
		     struct wg_symbols *s); /* needs p->files */
/*
 * Does it matter whether what sits in a buffer grows? A few bytes can be left over from the start,
 * and what follows a recent write may be about to be written.
 */
bool wg_stdio_doubtful(const struct wg_process *p);
void wg_stdio_again(struct wg_facts *f, struct wg_process *p, struct wg_mem *m, struct wg_symbols *s);

/* ---- the kernel's view (procfs.c, files.c, limits.c) ------------------------- */

int wg_procfs_process(struct wg_facts *f, struct wg_process *p);  /* identity, state, command ... */
int wg_procfs_threads(struct wg_facts *f, struct wg_process *p, struct wg_mem *m); /* first sample */
int wg_procfs_again(struct wg_facts *f, struct wg_process *p, struct wg_mem *m, double gap_s);
int wg_files_collect(struct wg_facts *f, struct wg_process *p);
int wg_files_again(struct wg_facts *f, struct wg_process *p, double gap_s);
int wg_limits_collect(struct wg_facts *f, struct wg_process *p);  /* cgroup, rlimits, /dev/shm */

/* ---- the observer (kernel.c): BPF directly as root, else waitgraphd's socket --- */

struct wg_kernel;
struct wg_kernel *wg_kernel_open(struct wg_facts *f); /* NULL: no permission; reason in missing */
void wg_kernel_close(struct wg_kernel *k);
/* Adds registers (returned), kernel stacks, wait start, waker, exits, file facts of p. */
int wg_kernel_collect(struct wg_kernel *k, struct wg_facts *f, struct wg_process *p,
		      struct wg_regs **regs, size_t *nregs); /* regs in f's arena */

/* ---- the recorder file (recorder.c) ---------------------------------------- */

struct wg_rec; /* one mapped recorder file, validated */
/* Open the recorder file of a live process (through /proc/PID/root, or its memfd). -ENOENT none. */
int wg_rec_open_pid(struct wg_facts *f, const struct wg_process *p, struct wg_rec **out);
int wg_rec_open_path(struct wg_facts *f, const char *path, struct wg_rec **out, const char **why);
void wg_rec_close(struct wg_rec *r);
/* Fill calls in flight, devices, streams, collectives, peers, env of p. Threads must be there
 * (live) or are created (dead). */
int wg_rec_collect(struct wg_facts *f, struct wg_process *p, struct wg_rec *r, struct wg_mem *m,
		   struct wg_symbols *s);
int wg_rec_again(struct wg_facts *f, struct wg_process *p, struct wg_rec *r, double gap_s);
/* What is needed to ask the process through its signal. -ENOENT: no (valid) recorder file. */
struct wg_rec_identity {
	uint32_t pid;	      /* as the process itself sees it */
	uint64_t start_ticks;
	int signal;	      /* 0: none in force */
	char dir[256];	      /* WAITGRAPH_DIR, as the process sees it */
};
/*
 * The blocked system calls that the process read of its own threads when it was last asked through
 * its signal, for where ptrace is forbidden. An entry holds while the thread's schedstat still shows
 * `slices` (never 0).
 */
struct wg_rec_task {
	int32_t ns_tid;
	uint64_t slices;
	char syscall[168]; /* the line of /proc/TID/syscall */
};
int32_t wg_rec_helper(const struct wg_rec *r); /* the recorder's own thread, by its own number; 0 */
const struct wg_rec_task *wg_rec_tasks(struct wg_facts *f, struct wg_rec *r, size_t *n);
int wg_rec_identity(struct wg_facts *f, const struct wg_process *p, struct wg_rec_identity *out);
/* Host-wide list of recorder files this user may read: for `ps`, and to find other ranks. */
int wg_rec_list(struct wg_facts *f, int (*each)(const char *path, void *arg), void *arg);
/*
 * A process from its recorder file alone, alive or dead (for `ps`, `top`, post-mortem): identity,
 * liveness, and with `full` all that wg_rec_collect() gives. -errno with *why.
 */
int wg_rec_add_process(struct wg_facts *f, const char *path, bool full, struct wg_process **out,
		       const char **why);

/* ---- devices as the driver tells outsiders (gpu.c: NVML in a child, with a deadline) ---- */

int wg_gpu_collect(struct wg_facts *f);

/* ---- deadlines (deadline.c) -------------------------------------------------- */

/*
 * Run fn(arg) on a thread of its own for at most `seconds`. 0 done; -ETIMEDOUT: it was left
 * behind, arg must never be freed or touched again (the thread may still use it).
 */
int wg_with_deadline(double seconds, void (*fn)(void *), void *arg);

#endif
