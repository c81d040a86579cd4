/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * kernel.h - the few kernel structures that the programs read, declared small and by hand:
 * CO-RE relocates every field against the running kernel's own BTF, so only names matter here.
 */
#ifndef WG_BPF_KERNEL_H
#define WG_BPF_KERNEL_H

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

#include "observer.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct upid {
	int nr;
};
struct pid {
	unsigned int level;
	struct upid numbers[1];
};
struct sched_entity {
	__u64 exec_start;
	__u64 sum_exec_runtime;
};
struct thread_struct {
	unsigned long fsbase;
};
struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int exit_state;
	int pid, tgid;
	unsigned long nvcsw, nivcsw;
	__u64 start_boottime;
	struct sched_entity se;
	struct task_struct *real_parent, *group_leader;
	struct pid *thread_pid;
	char comm[16];
	struct thread_struct thread;
};
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
struct seq_file;
struct bpf_iter_meta {
	struct seq_file *seq;
	__u64 session_id, seq_num;
};
struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

/* From the kernel's UAPI (linux/bpf.h), whose header drags in the build machine's asm/. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };

#endif
