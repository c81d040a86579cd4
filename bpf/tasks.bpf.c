// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* tasks.bpf.c - every thread of one process: registers, system call, kernel stack, times. */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Set before each run: whose threads, in the initial namespace; 0: the iterator is restricted already. */
int wg_tgid = 0;

/* Too large for the BPF stack; one reader at a time. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wg_obs_task);
} scratch SEC(".maps");

/* Set by the daemon, whose tracepoints fill the map; without it the map is not even made. */
const volatile bool wg_watching = false;
struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wg_obs_wake);
} wg_wakes SEC(".maps");

SEC("iter/task")
int wg_tasks(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct seq_file *seq = ctx->meta->seq;
	struct wg_obs_task *r;
	struct pt_regs *regs;
	struct pid *pid;
	unsigned int level;
	__u32 zero = 0;
	long n;

	if (!t || (wg_tgid && t->tgid != wg_tgid))
		return 0;
	r = bpf_map_lookup_elem(&scratch, &zero);
	if (!r)
		return 0;
	r->size = sizeof(*r);
	r->pid = t->tgid;
	r->tid = t->pid;
	r->ppid = BPF_CORE_READ(t, real_parent, tgid);
	pid = BPF_CORE_READ(t, thread_pid);
	level = BPF_CORE_READ(pid, level);
	r->ns_tid = level < 32 ? BPF_CORE_READ(pid, numbers[level].nr) : 0;
	pid = BPF_CORE_READ(t, group_leader, thread_pid);
	level = BPF_CORE_READ(pid, level);
	r->ns_pid = level < 32 ? BPF_CORE_READ(pid, numbers[level].nr) : 0;
	r->state = t->__state | ((__u32)t->exit_state << 16);
	r->flags = t->flags;
	r->on_cpu = bpf_core_field_exists(t->on_cpu) ? (__u32)t->on_cpu : 0;
	r->nvcsw = t->nvcsw;
	r->nivcsw = t->nivcsw;
	r->start = t->start_boottime;
	r->exec_start = t->se.exec_start;
	r->sum_exec = t->se.sum_exec_runtime;
	r->now = bpf_ktime_get_ns();
	__builtin_memcpy(r->comm, t->comm, sizeof(r->comm));
	r->fsbase = bpf_core_field_exists(t->thread.fsbase) ? t->thread.fsbase : 0;
	r->nr = -1;
	r->ip = r->sp = r->bp = r->bx = r->r12 = r->r13 = r->r14 = r->r15 = 0;
	regs = (struct pt_regs *)bpf_task_pt_regs(t);
	if (regs && !(t->flags & 0x00200000 /* PF_KTHREAD */)) {
		r->ip = BPF_CORE_READ(regs, ip);
		r->sp = BPF_CORE_READ(regs, sp);
		r->bp = BPF_CORE_READ(regs, bp);
		r->bx = BPF_CORE_READ(regs, bx);
		r->r12 = BPF_CORE_READ(regs, r12);
		r->r13 = BPF_CORE_READ(regs, r13);
		r->r14 = BPF_CORE_READ(regs, r14);
		r->r15 = BPF_CORE_READ(regs, r15);
		r->nr = (__s64)BPF_CORE_READ(regs, orig_ax);
		r->args[0] = BPF_CORE_READ(regs, di);
		r->args[1] = BPF_CORE_READ(regs, si);
		r->args[2] = BPF_CORE_READ(regs, dx);
		r->args[3] = BPF_CORE_READ(regs, r10);
		r->args[4] = BPF_CORE_READ(regs, r8);
		r->args[5] = BPF_CORE_READ(regs, r9);
	}
	r->level = level;
	r->uid = BPF_CORE_READ(t, real_cred, uid.val);
	r->euid = BPF_CORE_READ(t, real_cred, euid.val);
	r->suid = BPF_CORE_READ(t, real_cred, suid.val);
	r->gid = BPF_CORE_READ(t, real_cred, gid.val);
	r->egid = BPF_CORE_READ(t, real_cred, egid.val);
	r->sgid = BPF_CORE_READ(t, real_cred, sgid.val);
	r->tracked = 0;
	r->counts_writes = bpf_core_field_exists(t->ioac.wchar);
	if (wg_watching) {
		struct wg_obs_wake *w = bpf_task_storage_get(&wg_wakes, t, 0, 0);

		if (w) {
			/* What it wrote since the last look of the daemon's own. */
			if (bpf_core_field_exists(t->ioac.wchar)) {
				__u64 wchar = BPF_CORE_READ(t, ioac.wchar);

				if (wchar != w->wchar) {
					w->wchar = wchar;
					w->wrote_at = r->now;
				}
			}
			r->tracked = 1;
			r->wake = *w;
		}
	}
	n = bpf_get_task_stack(t, r->kstack, sizeof(r->kstack), 0);
	r->nkstack = n > 0 ? (__u32)n / 8 : 0;
	bpf_seq_write(seq, r, sizeof(*r));
	return 0;
}
