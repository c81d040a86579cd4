/* SPDX-License-Identifier: Apache-2.0 */
/*
 * protocol.h - what waitgraph and waitgraphd say to each other over a Unix stream socket.
 *
 * The client sends requests, each one fixed-size record; the daemon answers every one with
 * records and closes the answer with WG_WIRE_DONE. Every record begins with wg_wire_head, whose
 * size covers the whole record: who knows less of a record than it holds reads the beginning and
 * steps over the rest, and a type that is not known is stepped over. Little-endian, which both
 * architectures are. Neither side believes a length before it was checked.
 *
 * Processes are named as the asker's PID namespace numbers them. Times are ages in ns at the
 * moment of the answer, WG_WIRE_NEVER: it did not happen, or is not known. No kernel address
 * ever crosses the socket: stacks are names.
 */
#ifndef WG_PROTOCOL_H
#define WG_PROTOCOL_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are little-endian");

#define WG_SOCKET_PATH "/run/waitgraph/observer.sock"
#define WG_WIRE_MAGIC 0x62677762u
#define WG_WIRE_VERSION 1
#define WG_WIRE_LARGEST 8192 /* no record is larger */
#define WG_WIRE_NEVER UINT64_MAX
#define WG_WIRE_KSTACK 24
#define WG_WIRE_NAME 56

enum wg_wire_type {
	/* requests */
	WG_WIRE_ASK_TASKS = 1, /* threads of pid; also what is kept of the process itself */
	WG_WIRE_ASK_ENDS,      /* ended processes; pid 0: all that the asker may know of */
	WG_WIRE_ASK_STATUS,    /* the daemon itself */
	WG_WIRE_ASK_FILES,     /* open files of pid */
	/* answers */
	WG_WIRE_TASK = 64,
	WG_WIRE_PROC, /* alive, or ended */
	WG_WIRE_STATUS,
	WG_WIRE_FILE,
	WG_WIRE_DONE = 127,
};

struct wg_wire_head {
	uint32_t magic;
	uint16_t version, type;
	uint32_t size;
	uint32_t reserved; /* 0 */
};

struct wg_wire_request {
	struct wg_wire_head head;
	int32_t pid;
	uint32_t flags; /* 0 */
	uint64_t reserved[3];
};

#define WG_TASK_ON_CPU 1u
#define WG_TASK_REGS 2u	   /* registers and arguments are there (not where Yama forbids them) */
#define WG_TASK_TRACKED 4u /* wakes are counted, since tracked_ago */
#define WG_TASK_IRQ_LAST 8u /* the last wake-up came from an interrupt, not from a thread */
struct wg_wire_task {
	struct wg_wire_head head;
	int32_t pid, tid;
	uint32_t state; /* task_struct.__state | exit_state << 16 */
	uint32_t flags; /* WG_TASK_* */
	int64_t nr;	/* system call, -1 none */
	uint64_t args[6];
	uint64_t ip, sp, bp, bx, r12, r13, r14, r15, fsbase;
	uint64_t ran_ago; /* by the scheduler's clock: may be off by that clock's own offset */
	uint64_t blocked_ago, woken_ago, irq_ago, tracked_ago;
	uint64_t wakes, irq_wakes;
	int32_t waker_pid, waker_tid; /* 0: not known, or not for the asker to know */
	int32_t irq_kind;	      /* 2 hard interrupt, 1 soft, -1 not known, 0 none */
	uint32_t nkstack;
	char waker_comm[16];
	char kstack[WG_WIRE_KSTACK][WG_WIRE_NAME]; /* innermost first, NUL-padded */
	/* It last wrote anything (write and its kin, not send), to a second; NEVER: not since tracked_ago. */
	uint64_t wrote_ago;
	uint64_t wrote_bytes; /* in its life; WG_WIRE_NEVER: this kernel does not count */
};

#define WG_PROC_ENDED 1u
#define WG_PROC_BY_KERNEL 2u /* the signal came from the kernel, not from a process */
#define WG_PROC_INHERITED 4u /* tracked as somebody's child */
#define WG_PROC_OOM 8u
#define WG_PROC_STOPPED 16u /* signal and killer are of the stop that still lasts */
struct wg_wire_proc {
	struct wg_wire_head head;
	int32_t pid, ppid;
	uint32_t uid, flags;
	uint32_t exit_code; /* as wait4 gives it */
	int32_t signal;	    /* the one whose sender stands below; 0 none */
	int32_t killer_pid; /* 0 unknown */
	uint32_t killer_uid;
	uint64_t start_ns;  /* CLOCK_BOOTTIME: identity */
	uint64_t ended_ago, oom_ago, signal_ago;
	char killer_comm[16], comm[16];
	uint64_t wrote_ago; /* as in wg_wire_task: threads of it that have ended */
};

struct wg_wire_status {
	struct wg_wire_head head;
	uint64_t procs, threads, procs_dropped, threads_dropped, ends, ends_overwritten;
	uint64_t clients_refused, up_ns;
	uint32_t tracing, reserved;
	char daemon_version[32];
	uint64_t files, files_dropped; /* looked at once a second; had no room */
	uint64_t looks_late;	       /* processes whose look had to wait for the next second */
};

struct wg_wire_done {
	struct wg_wire_head head;
	int32_t error; /* 0 or an errno */
	uint32_t reserved;
	uint64_t left_out; /* records that had to be left out */
	char why[160], remedy[160];
};

struct wg_wire_file {
	struct wg_wire_head head;
	int32_t fd;
	uint32_t mode;	/* of the inode */
	uint32_t flags; /* of the open file */
	int32_t write_error; /* errno of a failed write-back since it was opened, not told yet; 0 none */
	uint64_t dev, ino;   /* dev as major << 20 | minor */
	int64_t pos, size;
	uint64_t cached_pages;
	uint32_t pipe_readers, pipe_writers; /* open descriptions, which forks share; pipes only */
	/* With --trace, of tracked processes together; traced_ago WG_WIRE_NEVER: not traced. */
	uint64_t traced_ago, writes, writes_failed, written_bytes, last_write_ago, longest_write_ns;
	uint32_t pipe_fill, pipe_size; /* bytes; size 0: no pipe, or not known */
	/*
	 * From looks once a second, of a tracked process, of what can be written through this
	 * descriptor: first seen; last found written, by whomever. WG_WIRE_NEVER: is not looked at;
	 * has not been written since it was first seen.
	 */
	uint64_t sampled_ago, wrote_ago;
};

/* The smallest that ever was: what came later is at the end, and zero when it did not come. */
#define WG_WIRE_TASK_LEAST offsetof(struct wg_wire_task, wrote_ago)
#define WG_WIRE_PROC_LEAST offsetof(struct wg_wire_proc, wrote_ago)
#define WG_WIRE_STATUS_LEAST offsetof(struct wg_wire_status, files)
#define WG_WIRE_FILE_LEAST offsetof(struct wg_wire_file, pipe_fill)

_Static_assert(sizeof(struct wg_wire_request) == 48, "fixed");
_Static_assert(sizeof(struct wg_wire_task) % 8 == 0 && sizeof(struct wg_wire_task) < WG_WIRE_LARGEST, "fits");

static inline void wg_wire_begin(void *record, enum wg_wire_type type, uint32_t size)
{
	struct wg_wire_head *h = record;

	memset(record, 0, size);
	h->magic = WG_WIRE_MAGIC;
	h->version = WG_WIRE_VERSION;
	h->type = (uint16_t)type;
	h->size = size;
}

/*
 * Is there a whole record at the beginning of n bytes? Its size; 0: more bytes are needed;
 * -EPROTO: this is none of ours, and what follows cannot be made sense of.
 */
static inline int wg_wire_whole(const void *buf, size_t n)
{
	struct wg_wire_head h;

	if (n < sizeof(h))
		return 0;
	memcpy(&h, buf, sizeof(h));
	if (h.magic != WG_WIRE_MAGIC || h.version < 1 || h.size < sizeof(h) ||
	    h.size > WG_WIRE_LARGEST)
		return -EPROTO;
	return n < h.size ? 0 : (int)h.size;
}

/*
 * Copy a record of `size` bytes (as wg_wire_whole() said) to *out, which may be larger: what the
 * other side does not know of is zero. False: it is shorter than `least`, the smallest that ever was.
 */
static inline int wg_wire_take(const void *buf, int size, void *out, size_t room, size_t least)
{
	size_t n = (size_t)size < room ? (size_t)size : room;

	if (size < 0 || (size_t)size < least)
		return 0;
	memset(out, 0, room);
	memcpy(out, buf, n);
	return 1;
}

#endif
