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
#define true 1
#define false 0

#include "observer.h"

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct ns_common {
	unsigned int inum;
};
struct pid_namespace {
	struct ns_common ns;
};
struct upid {
	int nr;
	struct pid_namespace *ns;
};
struct pid {
	unsigned int level;
	struct upid numbers[1];
};
struct rq {
	__u64 clock;
};
struct cfs_rq {
	struct rq *rq;
};
struct sched_entity {
	struct cfs_rq *cfs_rq;
	__u64 exec_start;
	__u64 sum_exec_runtime;
};
struct thread_struct {
	unsigned long fsbase;
};
typedef struct {
	unsigned int val;
} kuid_t;
typedef struct {
	unsigned int val;
} kgid_t;
typedef struct {
	__u64 val;
} kernel_cap_t;
struct cred {
	kuid_t uid, suid, euid;
	kgid_t gid, sgid, egid;
	kernel_cap_t cap_permitted;
};
typedef struct {
	int counter;
} atomic_t;
struct signal_struct {
	atomic_t live;
	int group_exit_code;
	unsigned int flags;
};
struct kernel_siginfo {
	int si_signo, si_errno, si_code;
};
struct task_io_accounting {
	__u64 wchar;
};
struct mm_struct {
	unsigned long flags;
};
struct bpf_local_storage;
struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int exit_state;
	int pid, tgid;
	unsigned long nvcsw, nivcsw;
	__u64 start_boottime;
	struct sched_entity se;
	int exit_code;
	struct task_struct *real_parent, *group_leader;
	const struct cred *real_cred;
	struct signal_struct *signal;
	struct bpf_local_storage *bpf_storage;
	struct files_struct *files;
	struct pid *thread_pid;
	struct task_io_accounting ioac;
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

struct super_block {
	unsigned int s_dev;
};
struct timespec64 {
	__s64 tv_sec;
	long tv_nsec;
};
struct inode {
	unsigned short i_mode;
	unsigned long i_ino;
	struct super_block *i_sb;
	__s64 i_size;
	unsigned int i_generation;
	__s64 i_mtime_sec; /* since 6.11 */
	__u32 i_mtime_nsec;
};
struct inode___before_6_11 {
	struct timespec64 __i_mtime;
};
struct inode___before_6_7 {
	struct timespec64 i_mtime;
};
struct address_space {
	unsigned long nrpages;
	__u32 wb_err;
};
struct file {
	struct inode *f_inode;
	struct address_space *f_mapping;
	void *private_data;
	unsigned int f_flags;
	__s64 f_pos;
	__u32 f_wb_err;
};
struct fdtable {
	unsigned int max_fds;
	struct file **fd;
};
struct files_struct {
	struct fdtable *fdt;
};
struct pipe_buffer {
	unsigned int offset, len;
};
struct pipe_inode_info {
	unsigned int head, tail; /* since 5.5 */
	unsigned int max_usage, ring_size;
	unsigned int readers, writers;
	struct pipe_buffer *bufs;
};
struct sock {
	__u16 sk_type, sk_protocol;
};
struct socket {
	struct sock *sk;
};
struct tcp_sock {
	__u32 write_seq;
};
struct bpf_map;
struct bpf_iter__bpf_map_elem {
	struct bpf_iter_meta *meta;
	struct bpf_map *map;
	void *key, *value;
};
struct bpf_iter__task_file {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
	__u32 fd;
	struct file *file;
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
enum { BPF_ANY = 0, BPF_NOEXIST = 1, BPF_F_NO_PREALLOC = 1, BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
       BPF_F_MMAPABLE = 1 << 10 };

#endif
