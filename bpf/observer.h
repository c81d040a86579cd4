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
};

#ifndef __bpf__
struct wg_observer;

/*
 * Load the programs that answer "what now". 0 or -errno: -EPERM without CAP_BPF and CAP_PERFMON,
 * -ENOSYS when the kernel lacks what is needed; *why says which (static or in the object).
 * Not thread-safe. Cost: about 15 ms once.
 */
int wg_observer_open(struct wg_observer **out, const char **why);
void wg_observer_close(struct wg_observer *o);
/*
 * All threads of a process (pid as the caller's namespace sees it; the records carry the initial
 * namespace's numbers and the innermost ones). Calls each() for every one; stops when
 * it returns non-zero and returns that. 0, -ESRCH, -errno.
 */
int wg_observer_tasks(struct wg_observer *o, int32_t pid,
		      int (*each)(const struct wg_obs_task *t, void *arg), void *arg);
#endif

#endif
