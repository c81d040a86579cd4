/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * observer.h - the kernel's facts, as the BPF programs hand them out and observer.c passes
 * them on. Fixed-width types only: shared by BPF code, the daemon and its clients. A reader
 * of a stream of records uses `size` to step, so records may grow at their end.
 */
#ifndef WG_OBSERVER_H
#define WG_OBSERVER_H

#ifndef __bpf__
#include <stdint.h>
typedef uint8_t __wg_u8;
typedef uint32_t __wg_u32;
typedef int32_t __wg_s32;
typedef uint64_t __wg_u64;
typedef int64_t __wg_s64;
#else
typedef unsigned char __wg_u8;
typedef unsigned int __wg_u32;
typedef int __wg_s32;
typedef unsigned long long __wg_u64;
typedef long long __wg_s64;
#endif

#define WG_OBS_KSTACK 24

/*
 * What the scheduler's tracepoints tell of one tracked thread: the value of its task storage.
 * Times are CLOCK_MONOTONIC ns, 0: not since it is tracked.
 */
struct wg_obs_wake {
	__wg_u64 blocked_at;	   /* it last went to sleep */
	__wg_u64 woken_at, irq_at; /* last woken by a thread; by an interrupt (timers, devices) */
	__wg_u64 wakes, irq_wakes; /* how often, by each; irq also when unknown */
	__wg_u64 since;		   /* tracked since */
	__wg_s32 waker_pid, waker_tid; /* the last thread that woke it, initial namespace; 0 none */
	__wg_u32 waker_uid;
	__wg_s32 irq_kind;	   /* the last: 2 hard (a timer, as a rule), 1 soft, -1 not known which */
	__wg_u8 waker_comm[16];
	__wg_u32 uid;	   /* whom it is counted for */
	__wg_u32 irq_last; /* the last of all wake-ups came from an interrupt */
	/* Bytes that it wrote (ioac.wchar: write and its kin, not send) at the last look, */
	__wg_u64 wchar;
	__wg_u64 wrote_at; /* and the look that last found more. 0: not since it is tracked */
};

/* One thread, as it stands at the moment of the iterator. */
struct wg_obs_task {
	__wg_u32 size;
	__wg_s32 pid, tid;	/* in the initial namespace */
	__wg_s32 ns_pid, ns_tid; /* innermost */
	__wg_s32 ppid;
	__wg_u32 state;		/* task_struct.__state | exit_state << 16 */
	__wg_u32 flags;		/* PF_* */
	__wg_u32 on_cpu;
	__wg_u32 nkstack;
	__wg_s64 nr;		/* system call number, -1 when not in one */
	__wg_u64 args[6];
	__wg_u64 ip, sp, bp, bx, r12, r13, r14, r15; /* user registers at the last kernel entry */
	__wg_u64 fsbase;
	__wg_u64 exec_start;	/* ns, the scheduler's clock: last accounted time on a CPU */
	__wg_u64 now;		/* ns, CLOCK_MONOTONIC at the reading */
	__wg_u64 sum_exec;	/* ns of CPU */
	__wg_u64 nvcsw, nivcsw;
	__wg_u64 start;		/* ns, CLOCK_BOOTTIME */
	__wg_u64 kstack[WG_OBS_KSTACK];
	__wg_u8 comm[16];
	__wg_u32 uid, euid, suid, gid, egid, sgid; /* the thread's own, initial user namespace */
	__wg_u32 level;		/* how deep its PID namespace lies; 0 the initial one */
	__wg_u32 tracked;	/* wake is valid */
	__wg_u32 counts_writes; /* this kernel counts what is written: wake.wchar and wrote_at are valid */
	__wg_u32 pad;
	struct wg_obs_wake wake;
};

/* One open file, as it stands at the moment of the iterator. */
struct wg_obs_file {
	__wg_u32 size;
	__wg_s32 pid, fd;
	__wg_u32 mode, flags;	   /* of the inode; of the open file */
	__wg_u32 write_error;	   /* errno of a failed write-back since it was opened, not told yet; 0 */
	__wg_u32 pipe_readers, pipe_writers; /* open descriptions, which forks share; pipes only */
	__wg_u64 dev, ino;	   /* the kernel's: major << 20 | minor */
	__wg_s64 pos, file_size;
	__wg_u64 cached_pages;
	__wg_u32 pipe_fill, pipe_size; /* bytes; pipes only, size 0 otherwise */
	__wg_u64 mtime;		       /* ns, CLOCK_REALTIME; 0 not known. Not kept for pipes since 6.15 */
	/*
	 * Two numbers of which at least one is another after each write. Pipes: buffers filled so
	 * far, end of the last; TCP: sequence number; regular files: size, mtime.
	 */
	__wg_u64 mark[2];
	__wg_u32 mark_kind; /* WG_MARK_*; 0: no such numbers are known */
	__wg_u32 generation; /* of the inode, whose number is used again */
};
#define WG_MARK_PIPE 1
#define WG_MARK_TCP 2
#define WG_MARK_FILE 3

/* What tracked processes wrote to one inode since it is traced (waitgraphd --trace). */
#define WG_OBS_MAX_WRITTEN 16384
struct wg_obs_inode {
	__wg_u64 dev, ino;
};
struct wg_obs_written {
	__wg_u64 since, calls, failed, bytes; /* calls that returned; bytes of those that wrote */
	__wg_u64 last;			      /* CLOCK_MONOTONIC ns of the last that wrote; 0 none */
	__wg_u64 longest, longest_at;	      /* ns in the longest call, and when it ended */
};

#define WG_OBS_SENDERS 4

struct wg_obs_sender { /* a signal that kills or stops, and where it came from */
	__wg_u64 at;
	__wg_s32 signal; /* 0: none */
	__wg_s32 pid, tid; /* initial namespace; valid unless kernel */
	__wg_u32 uid;
	__wg_u32 kernel; /* the kernel's own: a fault, the OOM killer, the end of a namespace */
	__wg_u8 comm[16];
	__wg_u32 pad;
};

/* A tracked process, alive (seq 0) or ended. Times are CLOCK_MONOTONIC ns, 0: did not happen. */
struct wg_obs_proc {
	__wg_u64 seq;	/* ends: place in the ring, from 1; written last, 0 while it is written */
	__wg_u64 start;	/* ns, CLOCK_BOOTTIME: identity with pid */
	__wg_u64 ended_at, oom_at, stopped_at;
	__wg_s32 pid, ppid;	 /* initial namespace */
	__wg_s32 ns_pid, ns_ppid; /* as its own (innermost) namespace counts; ns_ppid 0 outside */
	__wg_u32 pidns;		 /* inode of that namespace */
	__wg_u32 uid, euid, suid, gid, egid, sgid; /* when last looked at; at its end */
	__wg_u32 exit_code;	 /* as wait4 gives it: status << 8 | signal */
	__wg_u32 inherited;	 /* tracked because its parent was */
	__wg_u32 privileged;	 /* it held capabilities at its end */
	__wg_u32 stop;		 /* index + 1 into sender of what stopped it last */
	__wg_u32 next_sender;
	struct wg_obs_sender sender[WG_OBS_SENDERS];
	__wg_u8 comm[16];
	__wg_u64 wrote_at; /* as in wg_obs_wake: by threads of it that have ended */
};

/* The ring of ends: by user, so that nobody's processes push out those of another. */
#define WG_OBS_USERS 16	       /* buckets by uid */
#define WG_OBS_ENDS 128	       /* in each bucket: those that failed, and as many that did not */
#define WG_OBS_MAX_PROCS 8192  /* tracked at a time */
#define WG_OBS_USER_PROCS 2048 /* of one user other than root */
#define WG_OBS_USER_THREADS 16384
#define WG_OBS_RAN 65536       /* flags by process number, which may share one */

struct wg_obs_counts { /* what had to be dropped, and what is held */
	__wg_u64 procs, threads;	 /* tracked now */
	__wg_u64 procs_dropped, threads_dropped; /* not tracked for want of room */
	__wg_u64 ends, ends_overwritten;
};

#ifndef __bpf__
struct wg_observer;

/*
 * Load the programs that answer "what now". 0 or -errno: -EPERM without CAP_BPF and CAP_PERFMON,
 * -ENOSYS when the kernel lacks what is needed; *why says which (static or in the object).
 * Cost: see docs/observer.md. wg_observer_tasks() may be called from several threads.
 */
int wg_observer_open(struct wg_observer **out, const char **why);
/* The same for the daemon: wakes_fd is the task storage that its tracepoints fill. */
int wg_observer_open_watched(struct wg_observer **out, int wakes_fd, const char **why);
void wg_observer_close(struct wg_observer *o);
/*
 * All threads of a process (pid as the caller's namespace sees it; the records carry the initial
 * namespace's numbers and the innermost ones). Calls each() for every one; stops when
 * it returns non-zero and returns that. 0, -ESRCH, -errno.
 */
int wg_observer_tasks(struct wg_observer *o, int32_t pid,
		      int (*each)(const struct wg_obs_task *t, void *arg), void *arg);
/* All open files of a process, the same way. The programs for it are loaded at the first call. */
int wg_observer_files(struct wg_observer *o, int32_t pid,
		      int (*each)(const struct wg_obs_file *f, void *arg), void *arg);
/*
 * Why the kernel refused with that error (which wg_observer_open() or wg_watch_open() returned),
 * and what would help. Static. A process that has the capabilities and is refused all the same is
 * told so: then it is a container's seccomp profile, a security module or the kernel's lockdown.
 */
const char *wg_observer_refusal(int rc);
const char *wg_observer_remedy(int rc);
/* Its effective capabilities, as a mask by number; 0: not known. */
uint64_t wg_observer_capabilities(void);
#define WG_CAP_DAC_READ_SEARCH 2
#define WG_CAP_SYS_PTRACE 19
#define WG_CAP_SYS_ADMIN 21
#define WG_CAP_PERFMON 38
#define WG_CAP_BPF 39
/* libbpf says nothing on stderr any more: a refusal is a fact to report, not a page of log. */
void wg_observer_quiet(void);
#endif

#endif
