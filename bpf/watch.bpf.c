// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/*
 * watch.bpf.c - always on, for tracked processes only: who wakes whom, since when a thread
 * sleeps, how processes end; and, looked at once a second, which threads write.
 *
 * The first thing each scheduler program does is to look at one pointer of the task: a thread
 * without task storage is none of ours, and that is all that other processes pay. Nothing here
 * sits on a system call.
 *
 * Bounds: tracked processes and threads are counted, in all and for each user, and what did not
 * fit is counted too; ends go into a ring for each bucket of users.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define PF_EXITING 0x4
#define PF_KTHREAD 0x00200000
#define SIGNAL_GROUP_EXIT 0x4
#define SOFTIRQ_SERVED 0x100u	 /* of the preemption count: a softirq is being served */
#define HARDIRQ_OR_NMI 0x00ff0000u

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct wg_obs_wake);
} wg_wakes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, WG_OBS_MAX_PROCS);
	__type(key, __s32);
	__type(value, struct wg_obs_proc);
} wg_procs SEC(".maps");

struct owner {
	__s64 procs, threads;
};
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct owner);
} wg_owners SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, WG_OBS_USERS * WG_OBS_ENDS * 2);
	__type(key, __u32);
	__type(value, struct wg_obs_proc);
} wg_ends SEC(".maps");

/* All zeroes, and too large for the BPF stack: what a new record starts from. Never written. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct wg_obs_proc);
} wg_blank SEC(".maps");

/*
 * Which processes have run since somebody looked at what they write: a thread that sleeps writes
 * nothing, and it does not run again before it was woken.
 */
struct ran {
	__u8 flag[WG_OBS_RAN];
};
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct ran);
} wg_ran SEC(".maps");

static __always_inline void has_run(__s32 tgid)
{
	__u32 zero = 0;
	struct ran *r = bpf_map_lookup_elem(&wg_ran, &zero);

	if (r)
		r->flag[(__u32)tgid % WG_OBS_RAN] = 1;
}

#if !defined(__TARGET_ARCH_x86)
struct thread_info___arm64 {
	struct {
		__u32 count;
	} preempt;
} __attribute__((preserve_access_index));
struct task_struct___arm64 {
	struct thread_info___arm64 thread_info;
} __attribute__((preserve_access_index));
#endif

struct wg_obs_counts wg_counts = {};
__u64 wg_heads[WG_OBS_USERS * 2] = {};

/*
 * The preemption count says whether an interrupt is being served. On x86 it is a per-CPU variable
 * whose address most kernels do not tell; but a running task points, through its run queue, to
 * another per-CPU variable, and BTF has the distance between the two. 0: not known, set before
 * the load by watch.c. arm64 has the count in the thread.
 */
const volatile __s64 wg_preempt_distance = 0;

/* 0 a thread's own doing; 1 a softirq; 2 a hard interrupt; -1 not known on this kernel. */
static __always_inline int interrupted(struct task_struct *by)
{
	__u32 count = 0;

#if defined(__TARGET_ARCH_x86)
	struct rq *rq;

	if (!wg_preempt_distance || !bpf_core_field_exists(by->se.cfs_rq))
		return -1;
	rq = by->se.cfs_rq->rq; /* a load that the kernel guards, no helper */
	if (!rq || bpf_probe_read_kernel(&count, sizeof(count), (char *)rq + wg_preempt_distance))
		return -1;
#else
	count = BPF_CORE_READ((struct task_struct___arm64 *)by, thread_info.preempt.count);
#endif
	if (count & HARDIRQ_OR_NMI)
		return 2;
	return count & SOFTIRQ_SERVED ? 1 : 0;
}

/* ---- tracking ------------------------------------------------------------------------- */

static __always_inline struct owner *owner_of(__u32 uid)
{
	struct owner *o = bpf_map_lookup_elem(&wg_owners, &uid), zero = {};

	if (o)
		return o;
	bpf_map_update_elem(&wg_owners, &uid, &zero, BPF_NOEXIST);
	return bpf_map_lookup_elem(&wg_owners, &uid);
}

static __always_inline void credentials(struct wg_obs_proc *p, struct task_struct *t)
{
	p->euid = BPF_CORE_READ(t, real_cred, euid.val);
	p->suid = BPF_CORE_READ(t, real_cred, suid.val);
	p->gid = BPF_CORE_READ(t, real_cred, gid.val);
	p->egid = BPF_CORE_READ(t, real_cred, egid.val);
	p->sgid = BPF_CORE_READ(t, real_cred, sgid.val);
	p->privileged = BPF_CORE_READ(t, real_cred, cap_permitted.val) != 0;
}

static __always_inline int nr_in(struct task_struct *t, unsigned int level)
{
	struct pid *pid = BPF_CORE_READ(t, thread_pid);

	if (!pid || level >= 32 || BPF_CORE_READ(pid, level) < level)
		return 0;
	return BPF_CORE_READ(pid, numbers[level].nr);
}

static __always_inline void add_proc(struct task_struct *t, bool inherited)
{
	__s32 tgid = t->tgid;
	__u32 zero = 0, uid;
	struct wg_obs_proc *p = bpf_map_lookup_elem(&wg_procs, &tgid);
	struct task_struct *leader, *parent;
	struct pid *pid;
	struct owner *o;
	__u64 start;

	leader = BPF_CORE_READ(t, group_leader);
	start = BPF_CORE_READ(leader, start_boottime);
	if (p && p->start == start)
		return;
	uid = BPF_CORE_READ(t, real_cred, uid.val);
	o = owner_of(uid);
	if (!o || (uid && o->procs >= WG_OBS_USER_PROCS)) {
		__sync_fetch_and_add(&wg_counts.procs_dropped, 1);
		return;
	}
	p = bpf_map_lookup_elem(&wg_blank, &zero);
	if (!p || bpf_map_update_elem(&wg_procs, &tgid, p, BPF_ANY)) {
		__sync_fetch_and_add(&wg_counts.procs_dropped, 1);
		return;
	}
	p = bpf_map_lookup_elem(&wg_procs, &tgid);
	if (!p)
		return;
	parent = BPF_CORE_READ(leader, real_parent);
	pid = BPF_CORE_READ(leader, thread_pid);
	p->start = start;
	p->pid = tgid;
	p->ppid = BPF_CORE_READ(parent, tgid);
	p->pidns = 0;
	p->ns_pid = 0;
	p->ns_ppid = 0;
	if (pid) {
		unsigned int level = BPF_CORE_READ(pid, level);

		if (level < 32) {
			p->ns_pid = BPF_CORE_READ(pid, numbers[level].nr);
			p->pidns = BPF_CORE_READ(pid, numbers[level].ns, ns.inum);
			p->ns_ppid = nr_in(BPF_CORE_READ(parent, group_leader), level);
		}
	}
	p->uid = uid;
	p->inherited = inherited;
	credentials(p, t);
	__builtin_memcpy(p->comm, t->comm, sizeof(p->comm));
	__sync_fetch_and_add(&o->procs, 1);
	__sync_fetch_and_add(&wg_counts.procs, 1);
}

static __always_inline bool add_thread(struct task_struct *t)
{
	struct wg_obs_wake *w;
	struct owner *o;
	__u32 uid = BPF_CORE_READ(t, real_cred, uid.val);

	if (bpf_task_storage_get(&wg_wakes, t, 0, 0))
		return true;
	o = owner_of(uid);
	if (!o || (uid && o->threads >= WG_OBS_USER_THREADS))
		goto full;
	w = bpf_task_storage_get(&wg_wakes, t, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!w)
		goto full;
	w->since = bpf_ktime_get_ns();
	w->uid = uid;
	if (bpf_core_field_exists(t->ioac.wchar))
		w->wchar = BPF_CORE_READ(t, ioac.wchar);
	has_run(t->tgid);
	__sync_fetch_and_add(&o->threads, 1);
	__sync_fetch_and_add(&wg_counts.threads, 1);
	return true;
full:
	__sync_fetch_and_add(&wg_counts.threads_dropped, 1);
	return false;
}

/* Run once over the threads of a process that is to be tracked from now on. */
SEC("iter/task")
int wg_track(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;

	if (!t || t->flags & (PF_KTHREAD | PF_EXITING))
		return 0;
	add_proc(t, false);
	add_thread(t);
	return 0;
}

/*
 * Recorded processes, whatever container they are in: they have a helper thread of that name.
 * Who forges it is tracked, which tells him nothing about others. Emits what is not tracked yet.
 */
SEC("iter/task")
int wg_find(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	const char name[16] = "waitgraph";
	__s32 tgid;

	if (!t || t->pid == t->tgid || t->flags & (PF_KTHREAD | PF_EXITING))
		return 0;
	for (int i = 0; i < 10; i++)
		if (t->comm[i] != name[i])
			return 0;
	if (bpf_task_storage_get(&wg_wakes, t, 0, 0))
		return 0;
	tgid = t->tgid;
	bpf_seq_write(ctx->meta->seq, &tgid, sizeof(tgid));
	return 0;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(wg_fork, struct task_struct *parent, struct task_struct *child)
{
	if (!parent->bpf_storage || !bpf_task_storage_get(&wg_wakes, parent, 0, 0))
		return 0;
	if (child->pid == child->tgid)
		add_proc(child, true);
	add_thread(child);
	return 0;
}

/* ---- wakers --------------------------------------------------------------------------- */

SEC("tp_btf/sched_waking")
int BPF_PROG(wg_waking, struct task_struct *t)
{
	struct wg_obs_wake *w;
	struct task_struct *by;
	int irq;

	if (!t->bpf_storage)
		return 0;
	w = bpf_task_storage_get(&wg_wakes, t, 0, 0);
	if (!w)
		return 0;
	has_run(t->tgid);
	by = bpf_get_current_task_btf();
	irq = interrupted(by);
	if (irq) { /* whoever runs was only interrupted, or that is not known */
		w->irq_wakes++;
		w->irq_at = bpf_ktime_get_ns();
		w->irq_kind = irq;
		w->irq_last = 1;
		return 0;
	}
	if (by->pid == t->pid)
		return 0;
	w->wakes++;
	w->woken_at = bpf_ktime_get_ns();
	w->irq_last = 0;
	if (w->waker_tid == by->pid && w->wakes & 63)
		return 0; /* the same as before; its name is looked at now and then */
	w->waker_pid = by->tgid;
	w->waker_tid = by->pid;
	w->waker_uid = by->real_cred->uid.val;
	__builtin_memcpy(w->waker_comm, by->comm, sizeof(w->waker_comm));
	return 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(wg_switch, bool preempt, struct task_struct *prev)
{
	struct wg_obs_wake *w;

	if (!prev->bpf_storage || preempt || !prev->__state)
		return 0;
	w = bpf_task_storage_get(&wg_wakes, prev, 0, 0);
	if (w)
		w->blocked_at = bpf_ktime_get_ns();
	return 0;
}

/* ---- who writes ----------------------------------------------------------------------- */

/* Over the tracked processes: emits those that have run since the last time. */
SEC("iter/bpf_map_elem")
int wg_due(struct bpf_iter__bpf_map_elem *ctx)
{
	__s32 *key = ctx->key, pid;
	__u32 zero = 0;
	struct ran *r;

	if (!key)
		return 0;
	pid = *key;
	r = bpf_map_lookup_elem(&wg_ran, &zero);
	/* The flag is cleared by whoever looks, before he does. */
	if (r && r->flag[(__u32)pid % WG_OBS_RAN])
		bpf_seq_write(ctx->meta->seq, &pid, sizeof(pid));
	return 0;
}

/* Has this thread written since the last look? */
static __always_inline bool wrote(struct task_struct *t, struct wg_obs_wake *w)
{
	__u64 now;

	if (!bpf_core_field_exists(t->ioac.wchar))
		return false;
	now = BPF_CORE_READ(t, ioac.wchar);
	if (now == w->wchar)
		return false;
	w->wchar = now;
	w->wrote_at = bpf_ktime_get_ns();
	return true;
}

/* Over the threads of one process, once a second. */
SEC("iter/task")
int wg_wrote(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct wg_obs_wake *w = t ? bpf_task_storage_get(&wg_wakes, t, 0, 0) : 0;

	if (!w)
		return 0;
	wrote(t, w);
	if (!t->__state) /* it goes on without being woken first */
		has_run(t->tgid);
	return 0;
}

/* ---- ends ----------------------------------------------------------------------------- */

/* Signals that by default kill or stop, and SIGCONT. */
#define BIT(n) (1ull << (n))
#define STOPS (BIT(19) | BIT(20) | BIT(21) | BIT(22))
#define KILLS (BIT(1) | BIT(2) | BIT(3) | BIT(4) | BIT(5) | BIT(6) | BIT(7) | BIT(8) | BIT(9) | \
	       BIT(10) | BIT(11) | BIT(12) | BIT(13) | BIT(14) | BIT(15) | BIT(16) | BIT(24) | \
	       BIT(25) | BIT(31))

SEC("tp_btf/signal_generate")
int BPF_PROG(wg_signal, int sig, struct kernel_siginfo *info, struct task_struct *task)
{
	__s32 tgid = task->tgid;
	struct wg_obs_proc *p;
	struct wg_obs_sender *s;
	struct task_struct *by;
	unsigned long special = (unsigned long)info;
	__u32 at;

	if (sig < 1 || sig > 31 || !(BIT(sig) & (STOPS | KILLS | BIT(18))))
		return 0;
	p = bpf_map_lookup_elem(&wg_procs, &tgid);
	if (!p)
		return 0;
	if (sig == 18) {
		p->stopped_at = 0;
		p->stop = 0;
		return 0;
	}
	at = WG_OBS_SENDERS;
	for (__u32 i = 0; i < WG_OBS_SENDERS; i++)
		if (p->sender[i].signal == sig)
			at = i;
	if (at == WG_OBS_SENDERS)
		at = p->next_sender++ % WG_OBS_SENDERS;
	s = &p->sender[at & (WG_OBS_SENDERS - 1)];
	s->at = bpf_ktime_get_ns();
	s->signal = sig;
	s->kernel = special == 1 || (special > 1 && BPF_CORE_READ(info, si_code) > 0);
	s->pid = 0;
	s->tid = 0;
	s->uid = 0;
	__builtin_memset(s->comm, 0, sizeof(s->comm));
	if (!s->kernel) {
		by = bpf_get_current_task_btf();
		s->pid = by->tgid;
		s->tid = by->pid;
		s->uid = BPF_CORE_READ(by, real_cred, uid.val);
		__builtin_memcpy(s->comm, by->comm, sizeof(s->comm));
	}
	if (BIT(sig) & STOPS) {
		p->stopped_at = s->at;
		p->stop = at + 1;
	}
	return 0;
}

SEC("tp_btf/mark_victim")
int BPF_PROG(wg_oom, struct task_struct *task)
{
	__s32 tgid = task->tgid;
	struct wg_obs_proc *p = bpf_map_lookup_elem(&wg_procs, &tgid);

	if (p)
		p->oom_at = bpf_ktime_get_ns();
	return 0;
}

/* Before 6.8 the tracepoint gave the number only. One of the two is loaded. */
SEC("?tp_btf/mark_victim")
int BPF_PROG(wg_oom_by_pid, int pid)
{
	__s32 tgid = pid;
	struct wg_obs_proc *p = bpf_map_lookup_elem(&wg_procs, &tgid);

	if (p)
		p->oom_at = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(wg_exit, struct task_struct *t)
{
	struct wg_obs_proc *p, *e;
	struct wg_obs_wake *w;
	struct owner *o;
	__s32 tgid = t->tgid;
	__u32 uid, bucket, key;
	__u64 n;

	w = t->bpf_storage ? bpf_task_storage_get(&wg_wakes, t, 0, 0) : 0;
	if (!w)
		goto group;
	wrote(t, w);
	p = w->wrote_at ? bpf_map_lookup_elem(&wg_procs, &tgid) : 0;
	if (p && p->wrote_at < w->wrote_at)
		p->wrote_at = w->wrote_at;
	uid = w->uid;
	o = bpf_map_lookup_elem(&wg_owners, &uid);
	if (o && o->threads > 0)
		__sync_fetch_and_add(&o->threads, -1);
	__sync_fetch_and_add(&wg_counts.threads, -1);
	/* Now, not when the dead task is freed, which a parent that does not wait can put off. */
	bpf_task_storage_delete(&wg_wakes, t);
group:
	if (BPF_CORE_READ(t, signal, live.counter) > 0)
		return 0;
	p = bpf_map_lookup_elem(&wg_procs, &tgid);
	if (!p)
		return 0;
	uid = p->uid; /* whom it was counted for; setuid may have come since */
	p->ended_at = bpf_ktime_get_ns();
	p->exit_code = BPF_CORE_READ(t, signal, flags) & SIGNAL_GROUP_EXIT ?
			       (__u32)BPF_CORE_READ(t, signal, group_exit_code) :
			       (__u32)BPF_CORE_READ(t, group_leader, exit_code);
	p->ppid = BPF_CORE_READ(t, group_leader, real_parent, tgid);
	__builtin_memcpy(p->comm, t->comm, sizeof(p->comm));
	bucket = uid % WG_OBS_USERS * 2 + (p->exit_code ? 0 : 1);
	if (bucket >= WG_OBS_USERS * 2)
		return 0;
	n = __sync_fetch_and_add(&wg_heads[bucket], 1);
	key = bucket * WG_OBS_ENDS + (__u32)(n % WG_OBS_ENDS);
	e = bpf_map_lookup_elem(&wg_ends, &key);
	if (e) {
		e->seq = 0;
		__builtin_memcpy((char *)e + sizeof(e->seq), (char *)p + sizeof(p->seq),
				 sizeof(*e) - sizeof(e->seq));
		credentials(e, t);
		e->seq = n + 1;
		__sync_fetch_and_add(&wg_counts.ends, 1);
		if (n >= WG_OBS_ENDS)
			__sync_fetch_and_add(&wg_counts.ends_overwritten, 1);
	}
	o = bpf_map_lookup_elem(&wg_owners, &uid);
	if (o && o->procs > 0)
		__sync_fetch_and_add(&o->procs, -1);
	__sync_fetch_and_add(&wg_counts.procs, -1);
	bpf_map_delete_elem(&wg_procs, &tgid);
	return 0;
}
