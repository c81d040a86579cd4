/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.h - format of the recorder file, shared by its writer (preload/) and
 * its readers (tools/, bpf/).
 *
 * One file a process: /dev/shm/waitgraph-UID/PID-START.rec, mode 0600, mapped
 * shared by the writer and reserved with fallocate() before it is touched (a full
 * tmpfs is then an error code, not a SIGBUS). When /dev/shm will not do it is a
 * memfd named "waitgraph-rec", found through /proc/PID/fd.
 *
 * A reader maps it read-only while the writer goes on. Nothing in it can be
 * trusted: every offset, count and index is checked against the file's real size
 * (fstat) on each use, strings end where their field ends, and a value that is
 * being written may be torn where not said otherwise. 64-bit fields that are
 * aligned are written with single stores.
 *
 * Times are TSC ticks (x86-64) or CNTVCT (aarch64) unless the name ends in _ns;
 * header.clock converts. If clock.mult is 0 the ticks are CLOCK_MONOTONIC
 * nanoseconds already (no invariant TSC).
 *
 * Compatibility: a reader takes any file with min_version <= its version. New
 * fields go to the end of entries (entry_size grows) and new sections get new
 * kinds; both do not raise min_version.
 */
#ifndef WG_RECORDER_H
#define WG_RECORDER_H

#include <stdint.h>

#define WGREC_MAGIC "WGREC\r\n\x1a" /* 8 bytes without the final NUL */
#define WGREC_VERSION 1
#define WGREC_MIN_VERSION 1
#define WGREC_ENDIAN 0x01020304u
#define WGREC_DIR_FMT "/dev/shm/waitgraph-%u" /* uid in the writer's view */
#define WGREC_MAX_SECTIONS 24

enum wgrec_kind {
	WGREC_NAMES = 1,  /* struct wgrec_name: hooked functions; index is the function id */
	WGREC_THREADS,	  /* struct wgrec_thread */
	WGREC_DEVICES,	  /* struct wgrec_device; index is the CUDA ordinal */
	WGREC_STREAMS,	  /* struct wgrec_stream */
	WGREC_POSITIONS,  /* uint32_t, page-aligned: the GPU writes here; index is stream.position */
	WGREC_EVENTS,	  /* struct wgrec_event: open-addressed by handle, see wgrec_hash() */
	WGREC_COMMS,	  /* struct wgrec_comm */
	WGREC_FAILURES,	  /* struct wgrec_failure: ring, newest at (count - 1) % capacity */
	WGREC_STRINGS,	  /* NUL-ended strings; a string reference is an offset into it; 0 is "" */
	WGREC_NOTES,	  /* struct wgrec_note: where the recorder stepped aside */
	WGREC_ENV,	  /* NUL-ended "NAME=value" strings: CUDA_*, NCCL_* ... as at CUDA's init */
	WGREC_ITEMS,	  /* struct wgrec_item rings; stream.items_first indexes into it */
	WGREC_COLLS,	  /* struct wgrec_coll rings; comm.colls_first indexes into it */
	WGREC_PEERS,	  /* struct wgrec_peer; comm.peers_first indexes into it */
	WGREC_TASKS,	  /* struct wgrec_task: blocked system calls, as this process may read them */
};

struct wgrec_section {
	uint32_t kind;
	uint32_t entry_size;
	uint64_t offset;   /* from the start of the file */
	uint64_t capacity; /* entries reserved in the layout (bytes when entry_size is 1) */
	uint64_t used;	   /* entries in use, only grows (bytes when entry_size is 1) */
};

struct wgrec_clock {
	uint64_t tsc0;	  /* the same moment ... */
	uint64_t mono0_ns; /* ... on CLOCK_MONOTONIC */
	uint64_t real0_ns; /* ... on CLOCK_REALTIME */
	uint64_t mult;	  /* ns = ((tsc - tsc0) * mult) >> 32; improved while the process lives */
};

#define WGREC_F_CUDA_UP 0x1u	   /* cuInit succeeded: helper thread and file exist */
#define WGREC_F_POSITIONS 0x2u	   /* the positions page is registered with CUDA */
#define WGREC_F_DEEPBIND 0x4u	   /* an RTLD_DEEPBIND or dlmopen load was seen: calls may be unseen */
#define WGREC_F_EXITING 0x8u	   /* exit() or _exit() has begun */
#define WGREC_F_FORKED 0x10u	   /* written by a forked child about itself */
#define WGREC_F_RETIRED 0x20u	   /* the process replaced itself with exec(); the file is stale */

struct wgrec_header {
	char magic[8];
	uint32_t version, min_version;
	uint32_t endian;
	uint32_t header_size;
	uint64_t file_size;
	uint32_t pid, ppid;	/* as the process itself sees them */
	uint64_t start_ticks;	/* field 22 of /proc/self/stat: with pid and boot the identity */
	uint64_t pidns;		/* inode of /proc/self/ns/pid */
	char boot_id[40];
	char host[64];
	struct wgrec_clock clock;
	int32_t rank, world, local_rank; /* -1 unknown */
	char rank_source[24];	/* "RANK", "SLURM_PROCID" ... */
	uint32_t flags;		/* WGREC_F_*, set with atomic or */
	int32_t signal;		/* WAITGRAPH_SIGNAL in force, 0 none */
	uint64_t heartbeat;	/* ticks: last round of the helper thread (about once a second) */
	uint64_t calls;		/* recorded calls completed, summed lazily by the helper thread */
	uint64_t last_call_end;	/* ticks: latest completed blocking call any thread noted */
	uint64_t longest_sync;	/* ticks: longest blocking call that returned */
	uint64_t trace_bytes, trace_lost; /* of the trace file: written, events not written */
	uint64_t lost_threads, lost_streams, lost_events, lost_items, lost_comms; /* full tables */
	char dir[256];		/* WAITGRAPH_DIR in force */
	char trace_path[320];	/* "" none */
	char command[256];	/* argv joined by spaces, cut */
	uint32_t nsections;
	uint32_t helper_tid;	/* our own thread: not part of the program; 0 none */
	struct wgrec_section sections[WGREC_MAX_SECTIONS];
};

/* ---- function names ------------------------------------------------------- */

enum wgrec_api { WGREC_API_DRIVER, WGREC_API_RUNTIME, WGREC_API_NCCL };
struct wgrec_name {
	char name[44];
	uint8_t api;	  /* enum wgrec_api */
	uint8_t kind;	  /* enum wgrec_callkind */
	uint8_t blocking; /* may block the caller */
	uint8_t pad;
	char args[80];	  /* names of the recorded arguments: "stream,bytes,dst"; "" none */
};

enum wgrec_callkind { /* the same numbers as enum wg_call_kind in tools/facts.h */
	WGREC_CALL_OTHER, WGREC_CALL_SYNC, WGREC_CALL_COPY, WGREC_CALL_LAUNCH, WGREC_CALL_ALLOC,
	WGREC_CALL_FREE, WGREC_CALL_PIN, WGREC_CALL_MODULE, WGREC_CALL_CONTEXT,
	WGREC_CALL_MULTICAST, WGREC_CALL_COLLECTIVE, WGREC_CALL_COMM,
};

/* ---- threads: calls in flight ------------------------------------------------ */

#define WGREC_DEPTH 4 /* nested calls kept: cudaX > cuX > (callback's) cuY ...; deeper are counted */
#define WGREC_ARGS 4

struct wgrec_call {
	uint64_t since; /* ticks at entry */
	uint64_t sp, fp, ra; /* of the wrapper's caller at entry: unwind from here */
	uint16_t fn;	/* index into NAMES */
	uint16_t flags; /* WGREC_CALL_* */
	int16_t device; /* ordinal, -1 unknown */
	uint16_t nargs;
	uint64_t stream; /* handle, valid with WGREC_CALLF_STREAM */
	uint64_t args[WGREC_ARGS]; /* meaning by NAMES[fn].args */
};
#define WGREC_CALLF_STREAM 0x1u
#define WGREC_CALLF_PTSZ 0x2u /* per-thread default stream flavour */

struct wgrec_thread {
	uint32_t tid;	  /* 0: free. Written last when claimed, first when released */
	uint32_t depth;	  /* calls in flight; may exceed WGREC_DEPTH. Written after calls[] */
	uint64_t calls_done; /* calls completed by this thread */
	uint64_t seq;	  /* +1 at each push and pop: a reader retries when it moved */
	uint64_t fsbase;  /* the thread's TCB address */
	uint64_t last_launch; /* ticks: last launch, copy or collective (decides `recovered`) */
	char name[16];	  /* comm at first use */
	struct wgrec_call calls[WGREC_DEPTH];
};

/* ---- devices --------------------------------------------------------------- */

struct wgrec_device {
	uint32_t valid;
	int32_t ordinal;
	uint8_t uuid[16];
	char name[48];
	char pci[16];	      /* "0000:3b:00.0" */
	uint64_t total;
	uint64_t free;	      /* at the last sample */
	uint64_t free_at;     /* ticks */
	uint64_t own, peak;   /* bytes that this process holds through recorded allocations */
	uint64_t peak_at;
	uint64_t least_free, least_free_at;
	uint64_t context_bytes; /* drop of free over context creation and module loads, if measured */
	uint64_t allocs, frees, failures;
};

struct wgrec_failure { /* a device allocation that failed, taken at the scene */
	uint64_t seq;	    /* 1-based; written last */
	uint64_t at;	    /* ticks */
	uint64_t asked;
	uint64_t free;	    /* UINT64_MAX unknown */
	uint64_t total;
	uint32_t tid;
	int16_t device;
	uint16_t fn;	    /* index into NAMES */
	int32_t error;	    /* CUresult */
	uint32_t recovered; /* 0 not yet, 1 launched, copied or collective afterwards, 2 an allocation
			     * of at least that size succeeded afterwards */
	char thread_name[16];
	uint32_t nframes;
	uint32_t npyframes;
	uint64_t frames[64];
	struct {
		uint32_t line;	   /* 0 unknown */
		char function[60]; /* UTF-8, cut */
		char file[128];	   /* UTF-8, its end when it is longer */
	} py[24];
	uint32_t kind;	  /* enum wg_mem_kind: what was asked for. HOST, HOST_REG and VA are not device
			   * memory: free is then unknown and no shortfall follows */
	uint32_t pieces;  /* a request that reached the driver as so many equal pieces; 0, 1: whole */
	uint64_t repeats; /* the same call failed so often again right afterwards */
};

/* ---- streams ------------------------------------------------------------------ */

enum wgrec_op { /* the same numbers as enum wg_gpu_op in tools/facts.h */
	WGREC_OP_OTHER, WGREC_OP_KERNEL, WGREC_OP_COPY, WGREC_OP_SET, WGREC_OP_GRAPH,
	WGREC_OP_HOSTFN, WGREC_OP_WAIT_EVENT, WGREC_OP_RECORD_EVENT, WGREC_OP_WAIT_VALUE,
	WGREC_OP_WRITE_VALUE, WGREC_OP_COLLECTIVE, WGREC_OP_ALLOC, WGREC_OP_FREE, WGREC_OP_MARK,
};

struct wgrec_item { /* 48 bytes */
	uint64_t seq;	 /* 1-based; written last: a slot whose seq does not fit is being reused */
	uint32_t name;	 /* string offset: kernel or function name as the driver tells it (mangled) */
	uint16_t op;
	uint16_t flags;	 /* low byte: WAIT_VALUE: CU_STREAM_WAIT_VALUE_*; WAIT_EVENT: 1 IPC event;
			  * high byte: WGREC_ITEMF_* */
	uint64_t object; /* event, address, host function, graph, communicator handle */
	uint64_t value;	 /* memory value; COLLECTIVE: its sequence number;
			  * WAIT_EVENT: seq in the stream where the event was last recorded, 0 never */
	uint64_t at;	 /* ticks at entry of the call that gave it */
	uint32_t tid;
	uint32_t other;	 /* WAIT_EVENT: index of the recording stream in STREAMS, UINT32_MAX none;
			  * COLLECTIVE: index into COMMS */
};
/*
 * Given from inside an NCCL call: NCCL's own kernels, copies and events. When one of these is at
 * the head, the stream waits for the collective: the COLLECTIVE item that follows (the collectives
 * of one group follow together) says which, not the kernel's name.
 */
#define WGREC_ITEMF_NCCL 0x100u
#define WGREC_ITEMF_P2P 0x200u /* COLLECTIVE: send or recv; value counts these apart */
/*
 * A position write with this item's seq was issued behind it, before or after a later item was given.
 * So the head is exact when the first unfinished item has this bit: nothing else stands between the
 * value reached and the next write. (No item of its own: MARK is not used.) The items of one NCCL
 * call, WGREC_ITEMF_NCCL and the COLLECTIVE behind them, have one write before and one behind all.
 */
#define WGREC_ITEMF_MARKED 0x400u
#define WGREC_ITEMF_64 0x8000u /* WAIT_VALUE, WRITE_VALUE: the memory word has 64 bits, not 32 */
#define WGREC_STREAM_ITEMS 1024

struct wgrec_stream {
	uint32_t valid;	   /* 0 free, 1 live, 2 destroyed */
	int32_t device;
	uint64_t handle;   /* CUstream as the program has it; 0 legacy default; 2 per-thread default */
	uint32_t owner_tid; /* per-thread default stream: whose */
	uint32_t flags;	   /* CU_STREAM_NON_BLOCKING 1 */
	uint64_t ctx;
	uint64_t enqueued; /* things given so far: seq of the last item */
	uint64_t marked;   /* seq up to which the newest position write vouches */
	uint32_t position; /* index into POSITIONS; UINT32_MAX none */
	uint32_t capturing;
	uint32_t items_first; /* first of WGREC_STREAM_ITEMS entries in ITEMS; UINT32_MAX none */
	uint32_t marks_lost; /* position writes left out: capture, refusal */
	/*
	 * The word at POSITIONS[position] is the low 32 bits of the seq that the GPU has passed:
	 * everything with seq <= that value is done. (32-bit wrap: compare with marked.)
	 * Synchronisations that returned prove the same without a write:
	 */
	uint64_t proven;   /* seq proven done by a returned synchronisation or query */
	uint64_t seen;	   /* last value the helper thread saw (max of position and proven) ... */
	uint64_t seen_at;  /* ... and since when, ticks */
	uint64_t longest_gap; /* ticks: longest time between two moves with work pending */
	uint64_t last_enqueue_at; /* ticks */
	uint64_t first;	   /* items with seq <= first belong to an earlier stream in this entry */
	/*
	 * A thread set out to synchronise with this stream when this item was the newest, and no write
	 * was spent on it: it was the only one not known to be done, or such writes had cost enough
	 * already (pace.c). While proven < awaited and that call is in flight it is not done; where it
	 * is the only one left it is as exact as a marked one.
	 */
	uint64_t awaited;
	uint64_t pad;	   /* to two cache lines: streams of different threads share none */
};

struct wgrec_event {
	uint64_t handle;  /* 0 free, 1 deleted */
	uint32_t stream;  /* index into STREAMS of the last record; UINT32_MAX never recorded */
	uint32_t flags;	  /* 1 from IPC (another process records it), 2 IPC-capable */
	uint64_t seq;	  /* item in that stream */
	uint64_t at;	  /* ticks of the record */
};
static inline uint64_t wgrec_hash(uint64_t handle) { return handle * 0x9e3779b97f4a7c15ull; }
/* slot = wgrec_hash(handle) >> 32 & (capacity - 1), then linearly, at most 32 steps */

/* ---- collectives ---------------------------------------------------------------- */

enum wgrec_comm_state { WGREC_COMM_INIT = 1, WGREC_COMM_READY, WGREC_COMM_FINALIZING,
			WGREC_COMM_ABORTING, WGREC_COMM_DESTROYING, WGREC_COMM_DESTROYED,
			WGREC_COMM_FAILED };
#define WGREC_COMM_COLLS 128

struct wgrec_comm {
	uint32_t valid;
	uint32_t state;
	uint64_t state_at;  /* ticks */
	uint64_t handle;    /* ncclComm_t; 0 while init has not returned */
	char id[40];	    /* hex: hash of the unique id; splits append ".N:COLOR" to the parent's and
			     * are hashed again. Equal on all ranks of one communicator */
	int32_t rank, size, device;
	uint32_t library;   /* string offset: path of the NCCL instance */
	uint32_t colls_first; /* first of WGREC_COMM_COLLS entries in COLLS; UINT32_MAX none */
	uint32_t peers_first; /* first of size entries in PEERS; UINT32_MAX none */
	uint64_t entered;   /* collectives this rank has entered: the next one has this sequence */
	uint64_t done;	    /* known to be done: all with sequence < done */
	int32_t async_error;
	uint32_t init_tid;
	/*
	 * Send and receive are counted apart, so that a rank with other neighbours still has
	 * the same collective sequence as its peers. Their ring follows that of the collectives:
	 * entries colls_first + WGREC_COMM_COLLS ... + WGREC_COMM_P2P - 1, at number % WGREC_COMM_P2P.
	 */
	uint64_t p2p_entered;
	uint64_t p2p_done;
	char parent[40];   /* id of the communicator it was split or shrunk from; "" none */
	char name[32];	   /* ncclConfig_t.commName; "" none */
	uint32_t children; /* splits and shrinks of it that this rank has entered, without a color
			    * too; a count of all of its ranks in one order */
	uint32_t blocking; /* 0: non-blocking by its config; 1 blocking */
};
#define WGREC_COMM_P2P 128 /* COLLS entries of one communicator: WGREC_COMM_COLLS + WGREC_COMM_P2P */

struct wgrec_coll { /* ring: sequence % WGREC_COMM_COLLS */
	uint64_t sequence_plus_1; /* written last */
	uint64_t count;
	uint64_t at;	    /* ticks at entry */
	uint64_t stream;
	uint32_t stream_index; /* into STREAMS; UINT32_MAX */
	uint32_t tid;
	uint64_t stream_seq; /* item in that stream; 0 not given yet (inside a group) */
	uint16_t fn;	    /* index into NAMES: ncclAllReduce ... */
	uint8_t type;	    /* ncclDataType_t */
	uint8_t redop;	    /* ncclRedOp_t; 255 none */
	int32_t root;	    /* root or peer; -1 none */
	uint32_t returned;  /* the host call came back */
	uint32_t flags;	    /* WGREC_COLLF_* */
};
#define WGREC_COLLF_GROUPED 0x1u  /* inside ncclGroupStart/End */
#define WGREC_COLLF_CAPTURED 0x2u /* into a graph: no stream position of its own, not run by this call */
#define WGREC_COLLF_FAILED 0x4u	  /* the call returned an error: nothing was given */

struct wgrec_peer { /* who the other ranks are, when they are found on this host */
	int32_t rank;
	uint32_t pid;	/* as this process' namespace sees it; 0 unknown */
	uint64_t start_ticks;
	char boot_id[40];
	char host[64];
};

/*
 * /proc/TID/syscall may only be read by who may ptrace the thread, which Yama denies to everybody but
 * ancestors (the usual setting), or by the process itself. So it reads its own threads once for each
 * dump that its signal asks for. As long as the thread's /proc/TID/schedstat still shows `slices` it
 * has not run since, and the text still holds.
 */
struct wgrec_task {
	uint32_t tid;	    /* as the process itself sees it; 0 unused */
	uint32_t pad;
	uint64_t at;	    /* ticks; entries of one dump are within milliseconds of each other */
	uint64_t slices;    /* third number of /proc/TID/schedstat, read just before; 0 unknown */
	char syscall[168];  /* the line of /proc/TID/syscall; "" could not be read */
};

/* ---- notes ------------------------------------------------------------------------ */

struct wgrec_note {
	uint64_t count;
	uint64_t last;	/* ticks */
	char text[112]; /* "no position write during graph capture" */
};

_Static_assert(sizeof(struct wgrec_section) == 32, "section");
_Static_assert(sizeof(struct wgrec_call) == 80, "call");
_Static_assert(sizeof(struct wgrec_item) == 48, "item");
_Static_assert(sizeof(struct wgrec_stream) == 128, "stream");
_Static_assert(sizeof(struct wgrec_name) == 128, "name");
_Static_assert(sizeof(struct wgrec_task) == 192, "task");

#endif
