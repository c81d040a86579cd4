// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * trace.bpf.c - only with waitgraphd --trace: each call that writes, of tracked processes, by the
 * inode it went to. That is what inodes and positions do not tell: when a pipe or a socket was
 * last written, how often, and how long the longest such call was blocked.
 *
 * The price: both programs run at every system call of every process of the machine.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Who is tracked: watch.bpf.c's. */
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wg_obs_wake);
} wg_wakes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} wg_entered SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, WG_OBS_MAX_WRITTEN);
	__type(key, struct wg_obs_inode);
	__type(value, struct wg_obs_written);
} wg_written SEC(".maps");

#if defined(__TARGET_ARCH_x86)
#define NR(r) BPF_CORE_READ(r, orig_ax)
#define ARG0(r) BPF_CORE_READ(r, di)
#define ARG1(r) BPF_CORE_READ(r, si)
#define ARG2(r) BPF_CORE_READ(r, dx)
#else /* the first argument's register holds the result by now; the kernel keeps it aside */
struct pt_regs___arm64 {
	__u64 regs[31];
	__u64 orig_x0;
	int syscallno;
} __attribute__((preserve_access_index));
#define NR(r) BPF_CORE_READ((struct pt_regs___arm64 *)(r), syscallno)
#define ARG0(r) BPF_CORE_READ((struct pt_regs___arm64 *)(r), orig_x0)
#define ARG1(r) BPF_CORE_READ((struct pt_regs___arm64 *)(r), regs[1])
#define ARG2(r) BPF_CORE_READ((struct pt_regs___arm64 *)(r), regs[2])
#endif

/* Which argument is the descriptor that is written to; -1: no such call. */
static __always_inline int target(long nr)
{
#if defined(__TARGET_ARCH_x86)
	switch (nr) {
	case 1: case 18: case 20: case 40: case 44: case 46: case 296: case 307: case 328:
		return 0; /* write pwrite64 writev sendfile sendto sendmsg pwritev sendmmsg pwritev2 */
	case 275: /* splice */
		return 2;
	case 276: /* tee */
		return 1;
	}
#else
	switch (nr) {
	case 64: case 66: case 68: case 70: case 71: case 206: case 211: case 269: case 287:
		return 0;
	case 76:
		return 2;
	case 77:
		return 1;
	}
#endif
	return -1;
}

SEC("tp_btf/sys_enter")
int BPF_PROG(wg_enter, struct pt_regs *regs, long nr)
{
	struct task_struct *t = bpf_get_current_task_btf();
	__u64 *at;

	if (!t->bpf_storage || target(nr) < 0 || !bpf_task_storage_get(&wg_wakes, t, 0, 0))
		return 0;
	at = bpf_task_storage_get(&wg_entered, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (at)
		*at = bpf_ktime_get_ns();
	return 0;
}

static __always_inline struct file *file_of(struct task_struct *t, __u32 fd)
{
	struct files_struct *files = t->files;
	struct file **all, *f = 0;
	struct fdtable *table;

	if (!files)
		return 0;
	table = BPF_CORE_READ(files, fdt);
	if (fd >= BPF_CORE_READ(table, max_fds))
		return 0;
	all = BPF_CORE_READ(table, fd);
	if (bpf_probe_read_kernel(&f, sizeof(f), &all[fd]))
		return 0;
	return f;
}

SEC("tp_btf/sys_exit")
int BPF_PROG(wg_leave, struct pt_regs *regs, long ret)
{
	struct task_struct *t = bpf_get_current_task_btf();
	struct wg_obs_written *w, fresh = {};
	struct wg_obs_inode key = {};
	struct inode *inode;
	struct file *f;
	__u64 *at, now, took;
	int which;

	if (!t->bpf_storage)
		return 0;
	which = target((long)NR(regs));
	if (which < 0)
		return 0;
	at = bpf_task_storage_get(&wg_entered, t, 0, 0);
	if (!at || !*at)
		return 0;
	now = bpf_ktime_get_ns();
	took = now - *at;
	*at = 0;
	f = file_of(t, (__u32)(which == 0 ? ARG0(regs) : which == 1 ? ARG1(regs) : ARG2(regs)));
	if (!f)
		return 0;
	inode = BPF_CORE_READ(f, f_inode);
	key.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	key.ino = BPF_CORE_READ(inode, i_ino);
	w = bpf_map_lookup_elem(&wg_written, &key);
	if (!w) {
		fresh.since = now;
		bpf_map_update_elem(&wg_written, &key, &fresh, BPF_NOEXIST);
		w = bpf_map_lookup_elem(&wg_written, &key);
		if (!w)
			return 0;
	}
	__sync_fetch_and_add(&w->calls, 1);
	if (took > w->longest) {
		w->longest = took;
		w->longest_at = now;
	}
	if (ret > 0) {
		__sync_fetch_and_add(&w->bytes, ret);
		w->last = now;
	} else if (ret < 0) {
		__sync_fetch_and_add(&w->failed, 1);
	}
	return 0;
}
