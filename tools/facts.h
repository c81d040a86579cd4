/* SPDX-License-Identifier: Apache-2.0 */
/*
 * facts.h - the one model in the middle.
 *
 * Collectors fill it, the graph engine reads it, the renderers print it. Live
 * processes, saved snapshots and a thousand ranks all become this, so one
 * engine serves dump, why, the signal, the watchdog and post-mortem, and is
 * tested from files.
 *
 * Rules:
 *  - Facts only: what was read, from where, and how sure. No conclusions. What
 *    a futex *means* is the graph's business; its words are facts.
 *  - Absent is absent: WG_NO_INT, NAN, NULL or an empty array; never 0 or a
 *    guess. The reason stands in wg_process.missing (or wg_facts.missing).
 *  - Units: seconds (double), bytes (int64). Ages count back from the moment
 *    of the second sample (wg_facts.taken_at).
 *  - Pointers into a WG_VEC are valid until the next push to it: hold indices, or
 *    fill one thing completely before adding the next. Processes are the exception.
 *  - Everything lives in the facts' arena and dies with wg_facts_free(). Not
 *    thread-safe: one facts object belongs to one thread.
 *  - Strings are UTF-8 with invalid bytes and control characters replaced;
 *    wg_str() sees to it. They may come from hostile processes.
 */
#ifndef WG_FACTS_H
#define WG_FACTS_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WG_NO_INT INT64_MIN
#define WG_NO_SEC NAN
static inline bool wg_has_int(int64_t v) { return v != WG_NO_INT; }
static inline bool wg_has_sec(double v) { return !isnan(v); }

/* ---- arena and vectors ------------------------------------------------- */

struct wg_arena; /* chunked bump allocator; aborts the reader on no memory (exit 70) */
struct wg_arena *wg_arena_new(void);
void wg_arena_free(struct wg_arena *a);
void *wg_alloc(struct wg_arena *a, size_t n);		     /* zeroed, 16-aligned */
char *wg_strn(struct wg_arena *a, const char *s, size_t n);  /* copy, sanitised */
char *wg_str(struct wg_arena *a, const char *s);	     /* copy, sanitised; NULL -> NULL */
char *wg_fmt(struct wg_arena *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* A vector member: `WG_VEC(struct x) xs;` gives xs.v, xs.n, xs.cap. */
#define WG_VEC(type)           \
	struct {               \
		type *v;       \
		size_t n, cap; \
	}
/* Append a zeroed element and return its address (valid until the next push). */
#define wg_push(a, vec) \
	((__typeof__((vec)->v))wg_vec_push((a), (void **)&(vec)->v, &(vec)->n, &(vec)->cap, \
					   sizeof(*(vec)->v)))
void *wg_vec_push(struct wg_arena *a, void **v, size_t *n, size_t *cap, size_t size);

/* ---- small pieces ------------------------------------------------------ */

enum wg_certainty { WG_CERTAIN, WG_LIKELY, WG_GUESS };

struct wg_missing {
	const char *what;   /* the fact: "native stacks", "futex words", "device utilization" */
	const char *why;    /* the reason: "process_vm_readv: Operation not permitted" */
	const char *remedy; /* or NULL: "run as root, or start waitgraphd" */
};
struct wg_missing_list {
	struct wg_missing *v;
	size_t n, cap;
};

struct wg_frame { /* one native frame, innermost first in an array */
	const char *module; /* path of the object, or "[vdso]"; NULL unknown */
	const char *symbol; /* demangled; NULL when no symbol covers the address (never invented) */
	const char *file;   /* source file, when debug info is at hand */
	int64_t line;	    /* WG_NO_INT */
	uint64_t pc;	    /* address in the process */
	uint64_t offset;    /* into the symbol, or into the module when symbol is NULL */
	enum wg_certainty certainty;
	bool inlined;
};

struct wg_pyframe { /* one Python frame, innermost first */
	const char *function, *file; /* qualified name where the version has one */
	int64_t line;
};

struct wg_arg { /* a recorded argument of a call in flight */
	const char *name;
	const char *text; /* for people: "0x7f..", "2097152" */
	uint64_t value;
};

/* A wrapped call that has been entered and has not returned (from the recorder). */
enum wg_call_kind {
	WG_CALL_OTHER,
	WG_CALL_SYNC,	   /* named synchronisation: stream, event, context, device */
	WG_CALL_COPY,	   /* synchronous copy or set */
	WG_CALL_LAUNCH,	   /* kernel, graph, cooperative, asynchronous copy */
	WG_CALL_ALLOC,
	WG_CALL_FREE,
	WG_CALL_PIN,	   /* host allocation, registration */
	WG_CALL_MODULE,	   /* module, library load; lazy function load */
	WG_CALL_CONTEXT,   /* init, context creation and destruction, IPC */
	WG_CALL_MULTICAST, /* cuMulticast* */
	WG_CALL_COLLECTIVE,
	WG_CALL_COMM,	   /* communicator init, split, finalize, destroy, abort */
};
struct wg_call {
	const char *function; /* the name that the program called: "cudaMalloc" */
	const char *inner;    /* the driver call inside it, if any: "cuMemAlloc_v2" */
	enum wg_call_kind kind;
	double since_s;
	int64_t device;	      /* ordinal, WG_NO_INT */
	uint64_t stream;      /* handle; valid if has_stream (0 is the default stream) */
	bool has_stream;
	uint64_t object;      /* event, communicator, module ... as the call has it; 0 none */
	uint64_t sp, fp, ra;  /* at entry, for unwinding from outside */
	WG_VEC(struct wg_arg) args;
	/* The call names an event (object): where that was last recorded, from the recorder. */
	bool event_known;     /* the event stands in the record; else nothing below is valid */
	bool event_recorded;  /* false: never recorded, so waiting for it is no wait */
	bool event_remote;    /* IPC event: recorded by another process */
	uint64_t event_stream, event_seq; /* stream handle, and the item of it that completes it */
	int64_t event_device, event_stream_ix; /* _ix: index in wg_process.streams; WG_NO_INT */
};

/* ---- what a thread is blocked in --------------------------------------- */

enum wg_op {
	WG_OP_UNKNOWN,	/* state is S or D but the system call could not be read */
	WG_OP_RUNNING,	/* on a CPU or runnable, in user space (state R, no system call seen) */
	WG_OP_FUTEX,
	WG_OP_READ,	/* read, readv, pread, recv* */
	WG_OP_WRITE,	/* write, writev, pwrite, send*, sendfile, splice */
	WG_OP_SYNC,	/* fsync, fdatasync, sync, syncfs, msync, sync_file_range */
	WG_OP_POLL,	/* poll, ppoll, select, pselect6 */
	WG_OP_EPOLL,
	WG_OP_ACCEPT,
	WG_OP_CONNECT,
	WG_OP_WAIT,	/* wait4, waitid */
	WG_OP_FLOCK,	/* flock */
	WG_OP_FCNTL,	/* fcntl F_SETLKW, F_OFD_SETLKW */
	WG_OP_SLEEP,	/* nanosleep, clock_nanosleep */
	WG_OP_SIGWAIT,	/* rt_sigtimedwait, rt_sigsuspend, pause */
	WG_OP_OPEN,	/* open, openat, creat (a FIFO, or a file system that does not answer) */
	WG_OP_FSMETA,	/* stat, rename, unlink, truncate, setattr ... */
	WG_OP_IOCTL,
	WG_OP_IOURING,	/* io_uring_enter, io_getevents */
	WG_OP_SYSV,	/* semop, msgrcv, msgsnd, mq_* */
	WG_OP_FAULT,	/* page fault on a file mapping: in the kernel without a system call */
	WG_OP_SPLICE,
	WG_OP_OTHER,	/* some other system call: see syscall_name */
};

#define WG_FUTEX_WORDS 8
struct wg_futex {
	uint64_t addr;
	int32_t op;	      /* the operation word as passed: FUTEX_WAIT_BITSET|PRIVATE ... */
	uint32_t val;	      /* the expected value passed */
	uint32_t words[WG_FUTEX_WORDS]; /* 32-bit words from addr on */
	int32_t back[4];      /* the four words before addr: back[3] is the nearest */
	int nwords;	      /* how many of words are valid; 0: memory not readable */
	bool back_valid;
	bool is_shared;	      /* not FUTEX_PRIVATE_FLAG */
	/* Identity of a shared word across processes: the mapping that holds it. */
	bool has_map;
	uint64_t map_dev, map_ino, map_off;
	const char *map_path; /* "/dev/shm/x", "[heap]", "[stack]", module path; NULL anonymous */
	int nwaitv;	      /* futex_waitv: how many words; addr is the first */
};

struct wg_pollfd {
	int fd;
	int16_t events; /* POLLIN, POLLOUT ... */
};

struct wg_wait {
	enum wg_op op;
	int64_t nr;		  /* system call number; WG_NO_INT */
	const char *syscall_name; /* "futex" */
	uint64_t args[6];	  /* valid when has_args */
	bool has_args;
	double since_s;		  /* how long in this wait; WG_NO_SEC */
	double timeout_s;	  /* the relative timeout passed; WG_NO_SEC: none (for ever) */
	bool timeout_known;	  /* false: the timeout could not be read */
	struct wg_futex futex;	  /* WG_OP_FUTEX */
	int64_t fd;		  /* READ, WRITE, SYNC, EPOLL, ACCEPT, CONNECT, FLOCK, FCNTL, IOCTL */
	int64_t bytes;		  /* how much the call asked to move */
	WG_VEC(struct wg_pollfd) fds; /* POLL, EPOLL (the registered set) */
	int64_t child;		  /* WAIT: pid as this facts' namespace sees it; -1 any; WG_NO_INT.
				   * POLL: whose end it polls for, where its program knows that.
				   * SIGWAIT: -1, the end of a child would wake it */
	const char *path;	  /* OPEN, FSMETA, FAULT: the path or mapped file */
	int64_t key;		  /* SYSV: semaphore or queue id */
	/* The file system behind path or fd, when that is what does not answer. */
	const char *fs_type, *fs_mount;
	int32_t fs_daemon_pid;	  /* FUSE: who serves it; 0 unknown */
	bool remote_fs;
	/* SYSV: what the kernel keeps of a System V semaphore or queue (collect/ipc.c). */
	bool ipc_known;		  /* else nothing of these was read */
	bool ipc_last_alive;	  /* ipc_last still runs */
	int32_t ipc_last;	  /* who last operated on it; for a queue: at the other end; 0 nobody */
	int64_t ipc_num;	  /* the semaphore of the set that the call stands still at; WG_NO_INT */
	int64_t ipc_value;	  /* its value, or the messages in the queue; WG_NO_INT */
	/* FUTEX, a shared word: who else has its memory mapped, as the asker counts. */
	WG_VEC(int32_t) sharers;
	bool sharers_known;	  /* the mappings of every process that could share it were seen */
	bool no_handler;	  /* SIGWAIT: no signal that it would take is handled: none ends it */
	bool fs_daemon_gone;	  /* FUSE: whoever served it has ended; its descriptor lives on elsewhere */
};

/* Its process' own memory (stack, data, heap, as far as looked at) at both looks. */
enum wg_own_memory { WG_MEMORY_UNKNOWN, WG_MEMORY_SAME, WG_MEMORY_CHANGED };
/* One round of a running thread's loop, run over a copy of its registers and memory. */
enum wg_round {
	WG_ROUND_UNKNOWN, /* not sampled, or not to be followed */
	WG_ROUND_SAME,	  /* it leaves registers and memory as they were, and every sample lay on it */
	WG_ROUND_CHANGES, /* it never came back to where it had been */
};
struct wg_polled { /* a word that such a round reads and does not write before */
	uint64_t addr, value; /* as first read */
	uint32_t size;	      /* bytes */
	bool stack;	      /* on the thread's own stack */
	uint64_t map_dev, map_ino, map_off; /* shared memory: its identity; map_ino 0: private */
	const char *map_path; /* "/dev/shm/x", "[heap]", module path; NULL anonymous */
};

struct wg_thread {
	int32_t pid, tid; /* as the asker's namespace sees them */
	int32_t ns_tid;	  /* as the process sees itself; 0 unknown */
	const char *name;
	char state;	  /* R S D T t Z X I; 0 unknown */
	/* Two samples, wg_facts.interval_s apart (0: one sample only). */
	double cpu_s;	    /* user+system time so far */
	double cpu_share;   /* of one core over the interval; WG_NO_SEC with one sample */
	double user_share, sys_share;
	double last_ran_s;  /* age of the last time on a CPU; WG_NO_SEC */
	int64_t switches;   /* context switches during the interval; WG_NO_INT */
	bool same_place;    /* both samples: same system call, same sp and pc (or same wait) */
	bool sampled_twice;
	double start_age_s; /* how long this thread exists */
	uint64_t sp, pc;    /* from /proc/TID/syscall or BPF; 0 unknown */
	uint64_t fsbase;    /* the thread's TCB address (BPF or libpthread); 0 unknown */
	struct wg_wait wait;
	const char *wchan;  /* kernel function it sleeps in; NULL */
	WG_VEC(const char *) kernel_stack; /* "nfs_setattr", innermost first */
	WG_VEC(struct wg_frame) native_stack;
	enum wg_certainty native_certainty;
	bool native_complete; /* the unwind reached the thread's start */
	WG_VEC(struct wg_pyframe) python_stack;
	bool has_python;      /* a Python thread state belongs to this thread */
	WG_VEC(int32_t) fds_at_hand; /* sockets and pipes that its Python frames have in variables */
	bool py_main;	      /* the interpreter's main thread */
	WG_VEC(struct wg_call) calls; /* in flight, outermost first */
	/* Who woke it (observer only): last waker and counts. */
	int32_t waker_pid, waker_tid; /* 0 unknown */
	int64_t waker_count;	      /* wake-ups seen; WG_NO_INT */
	double waker_age_s;	      /* age of the last one */
	bool waker_is_timer;	      /* the last wake-up came from a timer, not a thread */
	/* Polling seen in user space or as a repeated call: what the second look saw. */
	uint64_t sample_pc[8]; /* program counters seen in further samples, 0-terminated */
	const char *repeat_syscall; /* the call it repeats (sampled), with path or fd */
	const char *repeat_path;
	int64_t repeat_fd;
	const char *sigmask; /* blocked signals as hex from status, NULL */
	bool ours;	     /* the recorder's own helper thread: not part of the program */
	/* What the polled call answered, and what it polls (procfs): lock file or signal file? */
	int64_t repeat_errno;  /* 0 success, an errno; WG_NO_INT unknown */
	int64_t repeat_exists; /* 1: repeat_path is there now, 0: it is not; WG_NO_INT unknown */
	double repeat_file_age_s; /* since that file was last modified; WG_NO_SEC */
	uint64_t repeat_dev, repeat_ino; /* that file, when it is there; 0 unknown */
	/*
	 * The program's bytes around the sampled pcs (stacks): from about 64 bytes before the
	 * lowest to 64 after the highest, only when they are at most 256 apart. A loop that only
	 * loads and compares polls; one that stores or counts computes.
	 */
	const uint8_t *code;
	uint64_t code_at;
	size_t code_len;
	/*
	 * In a timed sleep, and what it does when it wakes was not watched: no privilege, or it did
	 * not wake while we looked. A poll of a lock file looks just like that, so nobody may call
	 * it idle by design with certainty.
	 */
	bool between_unseen;
	bool ready_twice; /* both looks found it running or ready to run */
	enum wg_own_memory own_memory; /* where no sample may be taken; CHANGED only of the one running thread */
	/* What a round of its loop does (collect/loop.c); SAME: what it reads, others' words first. */
	enum wg_round round;
	uint32_t round_insns;	/* instructions of one; 0 unknown */
	uint32_t round_reads;	/* SAME: how many different words of others it reads */
	bool round_clock;	/* it asks for the time, which stood still while it was run */
	bool round_fixed_reads; /* CHANGES: round after round it reads the same words of others */
	bool polled_changed;	/* one of the words was written while we looked */
	double polled_for_s;	/* how long they were watched; WG_NO_SEC */
	WG_VEC(struct wg_polled) polled;
};

/* ---- files -------------------------------------------------------------- */

enum wg_file_kind {
	WG_FILE_OTHER, WG_FILE_REG, WG_FILE_DIR, WG_FILE_PIPE, WG_FILE_FIFO, WG_FILE_SOCKET,
	WG_FILE_TTY, WG_FILE_CHAR, WG_FILE_BLOCK, WG_FILE_EVENTFD, WG_FILE_EPOLL, WG_FILE_INOTIFY,
	WG_FILE_TIMERFD, WG_FILE_SIGNALFD, WG_FILE_PIDFD, WG_FILE_MEMFD, WG_FILE_URING,
};
enum wg_sock_state { WG_SOCK_UNKNOWN, WG_SOCK_LISTEN, WG_SOCK_CONNECTING, WG_SOCK_CONNECTED,
		     WG_SOCK_CLOSING, WG_SOCK_CLOSED, WG_SOCK_UNCONNECTED };

struct wg_file {
	int32_t fd;
	enum wg_file_kind kind;
	const char *path;	/* as readlink shows it: "/x/log", "pipe:[123]" */
	int64_t flags;		/* O_ACCMODE, O_NONBLOCK, O_APPEND ... from fdinfo */
	int64_t pos, size;
	uint64_t dev, ino;	/* dev as major<<20|minor; 0 unknown */
	bool deleted;
	const char *fs_type;	/* "ext4", "nfs4", "fuse.sshfs", "tmpfs" */
	int32_t fs_daemon_pid;	/* FUSE: the daemon that serves it; 0 unknown */
	/* Writing, at three depths. */
	int64_t written_bytes;	/* through this descriptor, as far as known (position, counters) */
	double last_write_age_s;
	int64_t user_buffered_bytes; /* pending in the process, never written; WG_NO_INT unknown */
	const char *user_buffer_owner; /* "stdio FILE", "Python TextIOWrapper", "std::ofstream" */
	int64_t dirty_bytes, writeback_bytes;
	int64_t write_error;	/* errno recorded on the inode, 0 none */
	int64_t size_delta;	/* growth during the interval */
	/* Pipes and FIFOs. */
	int64_t pipe_fill, pipe_size;
	/* Sockets. */
	int32_t sock_family, sock_type;
	enum wg_sock_state sock_state;
	const char *sock_local, *sock_remote; /* "127.0.0.1:29500", "@abstract", "/run/x.sock" */
	uint64_t sock_peer_ino;	/* Unix or loopback peer's inode; 0 unknown */
	int64_t sock_rxq, sock_txq, sock_backlog;
	int64_t sock_shutdown;	/* bit 0 read, bit 1 write */
	/* eventfd, timerfd, pidfd, epoll, inotify. */
	int64_t event_count;	/* eventfd counter */
	double timer_left_s;	/* timerfd */
	int32_t pidfd_pid;
	WG_VEC(struct wg_pollfd) epoll; /* registered descriptors */
	/* Ptys. */
	int32_t pty_index;	/* -1 none */
	/* More from fdinfo and mountinfo. eventfds: ino is the kernel's eventfd id, dev 0. */
	const char *fs_mount, *fs_source; /* mount point and source as its process sees them */
	char lock_kind;		/* a lock held through this description: 'f' 'p' 'o'; 0 none */
	bool remote_fs;		/* served over a network or by a process: can stop answering */
	double sock_rcv_timeout_s, sock_snd_timeout_s; /* 0 none; WG_NO_SEC unknown */
	/* TCP, from the kernel's own account: what this end has sent and received, and when last. */
	int64_t sock_sent_bytes, sock_recv_bytes;
	double sock_sent_age_s, sock_recv_age_s; /* meaningless while the count is 0 */
	int32_t sock_role; /* TCP: 1 this end connected, 2 it was accepted; 0 unknown */
	int64_t user_buffered_delta; /* growth of user_buffered_bytes in the interval; WG_NO_INT */
	double quiet_s;		/* last_write_age_s is not known, but for so long nobody has written (observer) */
};

/* A file lock known to the kernel (/proc/locks), host-wide. */
struct wg_file_lock {
	char kind;	/* 'f' flock, 'p' POSIX, 'o' OFD, 'l' lease */
	bool write;
	bool blocked;	/* a waiter's line */
	int32_t pid;	/* asker's namespace; -1 for OFD */
	uint64_t dev, ino;
	int64_t start, end; /* end WG_NO_INT: to the end */
	int32_t id;	/* the number that a waiter's line shares with its holder's */
	/*
	 * pid is whoever holds the descriptor now, as far as it could be found: an OFD lock or
	 * a flock whose taker is gone stands once for every process that still has it (same id).
	 */
	int32_t taken_by; /* pid as the kernel prints it; -1 OFD, 0 not visible here */
	bool holder_alive, holder_alive_known;
};

/* ---- GPU ----------------------------------------------------------------- */

struct wg_gpu_process { int32_t pid; int64_t bytes; };

struct wg_failure { /* a failed device allocation */
	double at_s, age_s; /* since the process' start; before now */
	int32_t tid;
	const char *thread_name;
	bool thread_alive;
	const char *function; /* "cuMemAlloc_v2" */
	int64_t device;
	int64_t asked, free, short_by; /* WG_NO_INT unknown */
	bool recovered;
	bool recovered_known;
	int64_t error;	      /* CUresult */
	WG_VEC(struct wg_frame) stack;
	WG_VEC(struct wg_pyframe) python_stack;
	int64_t seq;	      /* 1-based count of failures in the process; 0 unknown */
	bool host_memory;     /* pinned host memory or address space: no device memory was short */
	int64_t pieces;	      /* the request reached the driver as so many equal pieces; 0, 1 whole */
	int64_t repeats;      /* the same call failed so often again right afterwards */
};

struct wg_device {
	int64_t index;
	const char *uuid, *name;
	int64_t total, free, own, peak, least_free;
	double least_free_at_s;
	int64_t utilization; /* per cent */
	double power_w;
	double power_limit_w;
	int64_t sm_clock_mhz;
	WG_VEC(struct wg_gpu_process) other_processes;
	WG_VEC(struct wg_failure) failures;
	const char *pci;	/* "0000:3b:00.0" */
	int64_t context_bytes;	/* what context and modules took, as measured; WG_NO_INT */
	int64_t allocs, frees, failed; /* recorded so far */
	double free_age_s;	/* how old `free` is; WG_NO_SEC: asked just now */
};

enum wg_gpu_op {
	WG_GPU_OTHER, WG_GPU_KERNEL, WG_GPU_COPY, WG_GPU_SET, WG_GPU_GRAPH, WG_GPU_HOSTFN,
	WG_GPU_WAIT_EVENT, WG_GPU_RECORD_EVENT, WG_GPU_WAIT_VALUE, WG_GPU_WRITE_VALUE,
	WG_GPU_COLLECTIVE, WG_GPU_ALLOC, WG_GPU_FREE, WG_GPU_MARK,
};
struct wg_gpu_item { /* one thing given to a stream and not known to be done */
	uint64_t seq;	  /* 1-based count of things given to this stream */
	enum wg_gpu_op op;
	const char *name; /* kernel name (demangled), collective, host function symbol */
	uint64_t object;  /* event, address waited on, host function, graph */
	uint64_t value;	  /* memory value waited for or written */
	uint32_t flags;	  /* CU_STREAM_WAIT_VALUE_* */
	uint64_t current; /* WAIT_VALUE: the word's present value if readable */
	bool has_current;
	int64_t comm;	  /* COLLECTIVE: index into wg_process.comms; WG_NO_INT */
	uint64_t coll_seq;
	/* WAIT_EVENT: where that event was last recorded before the wait was given. */
	bool event_recorded;
	uint64_t event_stream, event_seq;
	int64_t event_device;
	bool event_remote; /* IPC event: recorded by another process */
	double age_s;	  /* since it was given to the stream; WG_NO_SEC */
	int32_t tid;	  /* the thread that gave it; 0 unknown */
	int64_t event_stream_ix; /* WAIT_EVENT: index in wg_process.streams; WG_NO_INT */
	bool nccl_inner;  /* NCCL's own kernel, copy or event: the COLLECTIVE item that follows says which */
	bool p2p;	  /* COLLECTIVE: a send or receive; coll_seq counts these apart */
};
struct wg_stream {
	int64_t device;
	uint64_t handle;  /* 0 legacy, 1 legacy explicit, 2 per-thread (see owner_tid) */
	int32_t owner_tid; /* per-thread default stream: whose; 0 none */
	uint32_t flags;	  /* 1 non-blocking */
	bool blocking_sync;
	uint64_t enqueued;
	uint64_t completed; /* how far the GPU is known to have come (a lower bound) */
	bool has_position;  /* completed comes from the GPU's own writes */
	bool completed_exact; /* the next item after completed is certainly the running one */
	uint64_t candidates; /* else it is among so many, from the next on (those up to the next
			      * position write); 0 not known */
	uint64_t completed_delta; /* between the samples */
	uint64_t enqueued_delta;
	double progress_age_s; /* since completed last moved, as far as known; WG_NO_SEC */
	double longest_gap_s;  /* longest time between two moves so far, this one left out */
	bool capturing;
	WG_VEC(struct wg_gpu_item) pending; /* oldest first: completed+1 ... (bounded) */
	bool pending_truncated; /* the oldest unfinished ones are no longer in the record */
};

/* ---- collectives --------------------------------------------------------- */

struct wg_collective { /* one call on one rank */
	uint64_t sequence; /* per communicator, 0-based, as this rank counts */
	const char *op;	   /* "AllReduce", "Send" ... */
	int64_t count;
	const char *type;  /* "f32" */
	const char *redop; /* "sum"; NULL */
	int64_t root;	   /* or peer for send/recv; WG_NO_INT */
	enum { WG_COLL_ENQUEUED, WG_COLL_RUNNING, WG_COLL_DONE } state;
	double age_s;
	uint64_t stream;
	int32_t tid;
	bool host_blocked; /* the ncclX call itself has not returned */
	bool p2p;	   /* Send, Recv: sequence counts these apart from the collectives */
	bool grouped;	   /* inside ncclGroupStart/End */
	bool captured;	   /* into a graph: not run by this call, no position of its own */
	bool failed;	   /* the call returned an error: nothing was given to the GPU */
	bool ungiven;	   /* called inside a group that has not ended: on no stream yet */
	bool state_known;  /* state follows from the GPU's position; else it is a lower bound */
};
struct wg_comm {
	const char *id;	    /* hash of the unique id, with lineage for splits: equal on all ranks */
	uint64_t handle;
	int64_t rank, size, device;
	const char *state;  /* "init", "ready", "finalizing", "aborting", "destroyed" */
	double age_s;	    /* of the state */
	uint64_t next_sequence; /* how many collectives this rank has entered */
	uint64_t done;	    /* how many are known to be done (a lower bound) */
	bool done_known;
	WG_VEC(struct wg_collective) recent; /* oldest first, bounded */
	int64_t async_error;	/* ncclResult_t as the communicator told; WG_NO_INT, 0 none */
	const char *library;	/* path of the NCCL instance; NULL */
	uint64_t p2p_next, p2p_done; /* sends and receives: entered, known to be done */
	const char *parent, *name; /* id of the communicator it was split from; its own name; NULL */
	int64_t children;   /* splits and shrinks of it that this rank has entered; WG_NO_INT */
};
struct wg_peer {
	const char *comm;
	int64_t rank;
	const char *host, *boot;
	int64_t pid, start; /* as the peer itself told; WG_NO_INT */
	bool alive, alive_known;
};

/* ---- Python --------------------------------------------------------------- */

struct wg_pylock { /* a Python-level lock whose owner could be read */
	uint64_t futex;	  /* the word that waiters sleep on; 0 unknown */
	uint64_t object;  /* address of the Python object */
	const char *kind; /* "_thread.lock", "_thread.RLock", "SemLock", "import lock of 'x'" */
	int32_t owner_tid; /* 0 unknown or gone */
	int32_t waiter_tid; /* a thread that is known to wait for it; 0 */
	enum wg_certainty certainty;
	const char *evidence; /* "inside `with` at train.py:12", "rlock_owner" */
	bool owner_gone; /* the lock names an owner, and that thread is no more (owner_tid may be 0) */
	bool exclusive;	 /* a lock of processes that one alone can have, no counting semaphore */
	bool own_made;	 /* of a forked child: its parent has no such lock, so it was made after the fork */
	bool task;	 /* owner_tid does not hold it: its end, or the end of its task, is waited for */
	/* Identity of a word that processes share (multiprocessing): as in struct wg_futex. */
	bool has_map;
	uint64_t map_dev, map_ino, map_off;
};
struct wg_python {
	bool present;
	const char *version; /* "3.12.3" */
	bool gil_held;
	bool gil_known;
	int32_t gil_holder;  /* tid, 0 none */
	uint64_t gil_cond, gil_cond_end; /* a waiter for the GIL sleeps on a futex in here */
	bool finalizing; /* Py_FinalizeEx has begun */
	bool main_in_shutdown; /* main has left the program (threading._shutdown, atexit) */
	WG_VEC(struct wg_pylock) locks;
};

/* ---- the process ----------------------------------------------------------- */

struct wg_cgroup {
	const char *path;
	bool frozen;
	int64_t pids_max, pids_current;
	int64_t mem_max, mem_current, oom_kills;
	int64_t cpu_periods, cpu_throttled; /* during the process' life */
	int64_t cpu_periods_delta, cpu_throttled_delta;
	double cpu_quota; /* cores; WG_NO_SEC */
};
struct wg_env { const char *name, *value; };

struct wg_end { /* how a process ended, when something saw it */
	bool known;
	int32_t status, signal; /* exit status, or the signal that ended it */
	bool oom_killed;
	int32_t killer_pid;	/* who sent it; 0 unknown */
	const char *killer_name;
	double age_s;
};

struct wg_process {
	int32_t pid, ppid, pgid, sid; /* asker's namespace */
	int32_t ns_pid;		/* innermost namespace; 0 unknown */
	uint64_t pidns;		/* inode of its PID namespace */
	uint64_t start_ticks;	/* identity with pid and boot; 0 unknown */
	int64_t uid;
	const char *host, *boot; /* where it runs: facts of several hosts can meet here */
	const char *comm, *command, *exe;
	char state;		/* of the thread group leader */
	bool alive;		/* false: exited or zombie (see end), or only known by a trace */
	bool stub;		/* collected only as the other end of something: no stacks */
	bool from_snapshot;	/* not asked now: read from a file */
	bool trace_only;	/* no snapshot: known by its trace or by its peers */
	double snapshot_age_s;	/* from_snapshot: how old */
	double age_s;		/* since it started, by our own clock and plausible; WG_NO_SEC */
	struct wg_end end;
	int32_t tracer_pid;	/* ptrace; 0 none */
	int64_t rank, world;	/* the launcher's; WG_NO_INT */
	const char *rank_source; /* "RANK", "SLURM_PROCID", ... , "communicator" */
	bool recorded;		/* has a recorder file of ours */
	bool cuda_up;		/* CUDA was initialised (recorder, or the driver's library + device) */
	bool forked;		/* a fork child that has not exec'ed (same exe, maps of the parent) */
	double fork_age_s;
	double progress_age_s;	/* age of the last completed recorded call; WG_NO_SEC */
	double longest_sync_s;	/* longest blocking call that did return, so far; WG_NO_SEC */
	int64_t calls_delta;	/* recorded calls completed during the interval; WG_NO_INT */
	int64_t rchar, wchar;	/* /proc/PID/io */
	int64_t rchar_delta, wchar_delta, read_bytes_delta, write_bytes_delta;
	double cpu_share;	/* all threads over the interval, in cores */
	double children_cpu_share; /* live descendants, in cores */
	int64_t majflt_delta;
	int64_t nofile_limit, nofile_used;
	int64_t nproc_limit, nproc_used; /* used: this user's threads */
	int64_t memlock_limit, memlock_used;
	int64_t shm_size, shm_free; /* /dev/shm as this process sees it */
	struct wg_cgroup cgroup;
	struct wg_python python;
	const char *phase;	/* "startup", "running", "teardown" as far as facts say; NULL */
	WG_VEC(const char *) sources; /* "recorder", "procfs", "bpf", "nvml", "trace" */
	struct wg_missing_list missing;
	WG_VEC(struct wg_env) env; /* only the names that matter (CUDA_*, NCCL_*, PYTORCH_*) */
	WG_VEC(const char *) modules; /* base names of loaded libraries that matter */
	WG_VEC(struct wg_thread) threads; /* leader first, then by tid */
	WG_VEC(struct wg_device) devices;
	WG_VEC(struct wg_stream) streams;
	WG_VEC(struct wg_comm) comms;
	WG_VEC(struct wg_file) files;
	WG_VEC(struct wg_peer) peers;
	WG_VEC(int32_t) children; /* live and zombie */
	WG_VEC(const char *) notes; /* what the recorder stepped aside from, and why */
	int64_t calls;		/* recorded calls completed so far; WG_NO_INT */
	double taken_at;	/* from_snapshot: seconds since the epoch; 0 unknown */
	const char *state_dir, *trace_path; /* WAITGRAPH_DIR and trace, as the process has them */
	/*
	 * from_snapshot: `alive` is of now, not of when the snapshot was taken: looked up (same
	 * host and boot), or told by a trace that was closed or stopped being stamped.
	 */
	bool alive_known;
	/*
	 * from_snapshot: gone now, but it lived when the newest snapshot of the job was taken, as
	 * far as peers and its trace tell: its end is no cause of what those show.
	 */
	bool died_since;
	double stamped_at;	/* from_snapshot: its trace was last stamped; epoch, 0 unknown */
	bool exiting;		/* the kernel is tearing it down (PF_EXITING on the leader) */
	int32_t tty_pgrp;	/* foreground process group of its terminal; 0 none */
	void *collect;		/* private to tools/collect while it runs */
	/* The kernel forbids this asker its memory, or to see in which calls its threads are. */
	bool memory_denied, calls_denied;
	/*
	 * Observer: when one of its threads last wrote anything (write and its kin into whatever, not
	 * send; to a second); and for how long none has, at least: the same when that is known, else
	 * as long as it was watched.
	 */
	double last_write_age_s, quiet_s;
};

struct wg_facts {
	struct wg_arena *arena;
	const char *host, *boot;
	double taken_at;     /* seconds since the epoch, real time */
	double interval_s;   /* between the two samples; 0 with one */
	bool live;	     /* this host was asked now */
	bool is_root;
	bool fd_scan_complete; /* the descriptors of every process that could hold an end were seen */
	bool lock_scan_complete; /* /proc/locks was read in the host's namespace */
	WG_VEC(struct wg_process *) procs; /* pointers: they stay valid while others are added */
	WG_VEC(int32_t) asked; /* pids that the user named: their symptoms come first */
	WG_VEC(struct wg_file_lock) locks;
	WG_VEC(const char *) kmsg; /* relevant kernel messages (Xid, OOM, AER), if readable */
	struct wg_missing_list missing;
	void *collect;	     /* private to tools/collect while it runs; NULL afterwards */
	void *recorder_cache; /* private to collect/recorder_list.c */
	int32_t self_pid; /* the reader itself: who waits for it only waits for this answer; 0 */
	int32_t self_ppid; /* its parent, which has no other name for it among its children; 0 */
	WG_VEC(int32_t) gone_tids; /* looked up as the owner of something and found not to exist */
};

struct wg_facts *wg_facts_new(void);
void wg_facts_free(struct wg_facts *f);

/*
 * A fresh process or thread with every number absent. wg_push() alone gives
 * zeroes, which would be claims; collectors call these instead.
 */
struct wg_process *wg_add_process(struct wg_facts *f);
struct wg_thread *wg_add_thread(struct wg_facts *f, struct wg_process *p);
struct wg_file *wg_add_file(struct wg_facts *f, struct wg_process *p);
struct wg_device *wg_add_device(struct wg_facts *f, struct wg_process *p);
struct wg_stream *wg_add_stream(struct wg_facts *f, struct wg_process *p);
struct wg_comm *wg_add_comm(struct wg_facts *f, struct wg_process *p);
struct wg_failure *wg_add_failure(struct wg_facts *f, struct wg_device *d);
struct wg_collective *wg_add_collective(struct wg_facts *f, struct wg_comm *c);
struct wg_gpu_item *wg_add_gpu_item(struct wg_facts *f, struct wg_stream *s);
struct wg_call *wg_add_call(struct wg_facts *f, struct wg_thread *t);
void wg_add_missing(struct wg_facts *f, struct wg_process *p, const char *what, const char *why,
		    const char *remedy); /* p NULL: of the whole; says each thing once */
void wg_add_source(struct wg_facts *f, struct wg_process *p, const char *source);

struct wg_process *wg_find_process(const struct wg_facts *f, int32_t pid); /* live, this host */
struct wg_thread *wg_find_thread(const struct wg_process *p, int32_t tid);
struct wg_file *wg_find_file(const struct wg_process *p, int64_t fd);

#endif
