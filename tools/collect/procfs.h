/* SPDX-License-Identifier: Apache-2.0 */
/*
 * procfs.h - what the collectors of the kernel's view share among themselves: procfs.c,
 * waits.c, files.c, sockets.c, locks.c, limits.c, endpoints.c and collect.c. Not for
 * others.
 *
 * Between the samples each process has a private state (wg_process.collect) with the
 * descriptor of its /proc directory: that stays with the process, so a reused PID is
 * noticed (-ESRCH) instead of mixed up.
 */
#ifndef WG_PROCFS_H
#define WG_PROCFS_H

#include "proctext.h"
#include "sources.h"

#define WG_MAX_PROCS 512
#define WG_KEEPER_NAME "waitgraph-keep"	 /* as preload/dump.c calls the parent of its reader ... */
#define WG_SCOUT_NAME "waitgraph-scout" /* ... and scout.c the thread that looks around */
#define WG_MAX_THREADS 20000
#define WG_MAX_FILES 4096 /* descriptors of one process that are looked at */
#define WG_LOOKS 6	  /* quick looks between the two samples */

struct wg_ptask { /* what the latest sample of one thread said, raw */
	int32_t tid;
	char state;
	bool got_stat, got_sys, got_schedstat;
	struct wg_pt_syscall sys;
	uint64_t utime, stime, start;
	uint64_t run_ns, slices;
	int64_t switches;
	double exec_start; /* seconds on the scheduler's clock; NAN */
	double ran_at;	   /* CLOCK_MONOTONIC; NAN unknown */
	double at;	   /* CLOCK_MONOTONIC of the reading */
	int cpu;
	uint32_t flags;
	const char *wchan;
	bool calls_seen;   /* it came out of its call while its calls were watched */
	/* Looks between the samples. */
	int looks, moved; /* taken; how often it had run since the look before */
	struct wg_pt_syscall seen[WG_LOOKS];
};

struct wg_mount {
	int32_t id;
	uint64_t dev;
	const char *point, *type, *source;
	bool remote;
	bool hung; /* a stat on it did not answer: it is not asked again */
};
struct wg_mounts { /* of one mount namespace */
	uint64_t ns; /* inode; 0 unknown */
	WG_VEC(struct wg_mount) v;
};

struct wg_part { /* one process' records in a job over many: see wg_prefetch() */
	struct wg_bulk *b; /* NULL: nothing was prefetched */
	size_t from, to;
};

struct wg_pproc {
	struct wg_process *p;
	struct wg_part threads_part, files_part;
	int dirfd; /* /proc/PID; -1: gone or never there */
	bool got_stat, full, files_done, expanded;
	int depth; /* hops from what was asked */
	struct wg_process *wanted_by;
	int cgroup_round; /* 1 + the round in which its control group was read; 0 never */
	struct wg_pt_stat stat;
	struct wg_pt_io io;
	struct wg_pt_status status;
	double at; /* CLOCK_MONOTONIC of stat */
	struct wg_ptask *tasks; /* by tid */
	size_t ntasks;
	uint64_t netns, mntns, timens; /* inodes; 0 not readable */
	struct wg_mounts *mounts;
	const char *cgroup_text, *limits_text, *cwd;
	bool stacks_denied, denied; /* kernel stacks; everything behind a ptrace check */
	bool is_32bit;
	uint64_t children_ticks; /* cutime + cstime at the first sample */
	struct wg_mem *mem;
	struct wg_rec *rec;
	struct wg_regs *regs;
	size_t nregs;
	int64_t cgroup_periods, cgroup_throttled; /* of the first sample */
	const char *cgroup_cpu; /* file whose nr_throttled counts */
	const struct wg_rec_task *own_calls; /* as the process itself read them; see sources.h */
	size_t nown_calls;
	int32_t helper; /* the recorder's own thread, as the process numbers it; 0 */
};

struct wg_holder { /* a descriptor somewhere on this host */
	uint64_t key;	/* see wg_key_of_link() */
	int32_t pid, fd;
};
struct wg_hostproc {
	int32_t pid, ppid, pgid, sid;
	int64_t uid, nthreads;
	uint64_t start;
	char state;
	bool kthread, fds_seen;
	char comm[16];
};
struct wg_mapper { /* a process that has a shared mapping of that file or memory object */
	uint64_t dev, ino;
	int32_t pid;
};
struct wg_host {
	bool done, fds_done, maps_done;
	bool maps_complete; /* nobody's mappings were refused */
	WG_VEC(struct wg_hostproc) procs; /* by pid */
	struct wg_holder *holders;	  /* sorted by key, pid, fd */
	size_t nholders;
	WG_VEC(struct wg_mapper) mappers; /* by dev, ino, pid */
};

struct wg_pctx {
	struct wg_facts *f;
	double deadline; /* CLOCK_MONOTONIC: when everything has to be over */
	double sampled_at; /* of the latest sample: ages count from here */
	int procfd;	 /* "/proc" */
	uint32_t euid;
	long hz;
	double boot_minus_mono;
	uint64_t pidns, netns, mntns, timens; /* our own */
	bool init_pidns;
	double *cpu_offset; /* CLOCK_MONOTONIC minus the scheduler's clock, per CPU; NAN */
	bool *cpu_tried;
	int ncpus;
	int32_t given_pid; /* whose descriptors were inherited; 0 none */
	int given_dirfd, given_memfd;
	char *given_syscalls; /* text of syscall_fd */
	WG_VEC(struct wg_mounts *) mounts;
	struct wg_host host;
	struct wg_socks *socks; /* sockets.c */
	size_t nthreads;
	int round; /* which sample: 0 the first */
	struct wg_cgroups *cgroups; /* limits.c */
};

double wg_mono(void);
struct wg_pctx *wg_pctx(struct wg_facts *f); /* created at the first call */
void wg_pctx_free(struct wg_facts *f);	     /* closes everything that collectors keep */
double wg_pctx_left(const struct wg_pctx *c, double cap); /* seconds, at most cap, never < 0.01 */
struct wg_pproc *wg_pproc(struct wg_facts *f, struct wg_process *p); /* private state, created */
struct wg_ptask *wg_ptask(struct wg_pproc *k, int32_t tid);

/* Inode of a link like "pipe:[123]"; 0. */
uint64_t wg_link_ino(const char *link, const char *prefix);

/* procfs.c */
/* Many processes in one job: a hand-over to another thread costs much on a busy machine. */
int wg_procfs_processes(struct wg_facts *f, struct wg_process *const *ps, size_t n, int *rcs);
/*
 * Read threads and descriptors of n processes in one job, to be taken by the calls for each
 * process that follow. Whoever does not answer is left to a job of its own.
 */
struct wg_bulk *wg_prefetch(struct wg_facts *f, struct wg_process *const *ps, size_t n, bool again);
void wg_prefetch_free(struct wg_facts *f, struct wg_bulk *b, struct wg_process *const *ps, size_t n);
void wg_procfs_ages(struct wg_facts *f, struct wg_process *p); /* from stamps to ages */
struct wg_sampling;
/* The quick looks; takes about that long. */
int wg_procfs_looks(struct wg_facts *f, double seconds, struct wg_sampling *sampling);
double wg_cpu_clock_offset(struct wg_pctx *c, int cpu);
int32_t wg_pid_from_ns(struct wg_facts *f, const struct wg_process *p, int32_t ns_pid);

/* waits.c */
const char *wg_syscall_name(int64_t nr); /* NULL unknown */
void wg_wait_decode(struct wg_facts *f, struct wg_process *p, struct wg_thread *t,
		    const struct wg_ptask *k, struct wg_mem *m);
void wg_wait_with_files(struct wg_facts *f, struct wg_process *p); /* after files are known */
void wg_waits_long_writes(struct wg_process *p); /* after the second sample, files and all */
enum wg_op wg_op_of_wchan(const char *wchan);
int64_t wg_syscall_number(const char *name); /* WG_NO_INT: this machine has none of that name */
enum wg_op wg_wait_op(int64_t nr);
int64_t wg_wait_fd(int64_t nr, const uint64_t *args); /* WG_NO_INT: the call names none */
/* Path argument of a call in flight as text; NULL. */
const char *wg_wait_path(struct wg_facts *f, struct wg_process *p, const struct wg_pt_syscall *s,
			 struct wg_mem *m);

/* files.c */
struct wg_bulk;
void wg_files_read(struct wg_bulk *b, int dirfd); /* in a job: all descriptors */
struct wg_mounts *wg_mounts_of(struct wg_facts *f, struct wg_process *p);
const struct wg_mount *wg_mount_by_id(const struct wg_mounts *m, int32_t id);
const struct wg_mount *wg_mount_by_path(const struct wg_mounts *m, const char *path);
struct wg_file *wg_files_add_end(struct wg_facts *f, struct wg_process *p, int32_t fd);
void wg_files_pipes(struct wg_facts *f); /* fill of the pipes that somebody is blocked on */
const char *wg_file_link(struct wg_facts *f, struct wg_process *p, int64_t fd);

/* sockets.c */
void wg_sockets_fill(struct wg_facts *f, struct wg_process *p); /* p's sockets, from the tables */
void wg_sockets_again(struct wg_facts *f);			   /* ask the kernel anew */
void wg_sockets_free(struct wg_pctx *c);
/* Who listens at the address that a connect(2) was given? Its inode; 0. */
uint64_t wg_sockets_listener(struct wg_facts *f, struct wg_process *p, const char *address);

/* locks.c */
int wg_locks_collect(struct wg_facts *f);
void wg_locks_holders(struct wg_facts *f); /* resolve who has them now */

/* ipc.c */
struct sembuf;
void wg_ipc_collect(struct wg_facts *f, struct wg_process *p, struct wg_thread *t);
/* Which of the operations does not succeed on these values (changed)? -1: all would. */
int wg_ipc_blocking_op(const struct sembuf *ops, size_t n, unsigned short *values, size_t nvalues);

/* limits.c */
void wg_limits_again(struct wg_facts *f, struct wg_process *p);
void wg_kmsg_collect(struct wg_facts *f);
/*
 * One record of /dev/kmsg (changed: its end is cut): the text when it can explain a hang and is not
 * older than `oldest` seconds, else NULL. now: CLOCK_MONOTONIC.
 */
const char *wg_kmsg_record(char *line, double now, double oldest, double *ago);

/* endpoints.c */
void wg_host_scan(struct wg_facts *f);	   /* every process: parents, users */
void wg_host_scan_fds(struct wg_facts *f); /* and their descriptors */
const struct wg_hostproc *wg_host_proc(const struct wg_pctx *c, int32_t pid);
uint64_t wg_key_of_link(const char *link); /* 0: not worth indexing */
uint64_t wg_key_ino(int type, uint64_t ino);
enum { WG_KEY_PIPE = 1, WG_KEY_SOCKET, WG_KEY_PTY, WG_KEY_PATH, WG_KEY_FUSE };
/* The holders of a key: first of them, and how many. */
const struct wg_holder *wg_host_holders(const struct wg_pctx *c, uint64_t key, size_t *n);
/*
 * Everything that p's threads wait on, and p's relatives: want() is called for each process,
 * full or as a mere end. fd >= 0: that descriptor of it matters.
 */
void wg_endpoints(struct wg_facts *f, struct wg_process *p,
		  void (*want)(struct wg_facts *f, struct wg_process *from, int32_t pid,
			       int32_t fd, bool full));

/* Processes that share a mapping of the file of that identity: pids into out, at most n. Count. */
size_t wg_host_mappers(struct wg_facts *f, uint64_t dev, uint64_t ino, int32_t *out, size_t n);
/* The daemon behind a FUSE mount, 0 when it is not certain enough. */
/*
 * gone: those that hold its descriptor never read a request, so whoever served has ended (and is
 * named while it is a zombie).
 */
int32_t wg_fuse_daemon(struct wg_facts *f, const struct wg_mount *m, bool *gone);
/* Processes that name the same job as p in their environment: pids into out. */
size_t wg_host_same_job(struct wg_facts *f, struct wg_process *p, int32_t *out, size_t n);

/* Rare helpers */
int wg_pidfd_getfd(struct wg_pproc *k, int fd); /* a duplicate of the process' descriptor */

#endif
