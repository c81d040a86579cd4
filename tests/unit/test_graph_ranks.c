/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph_ranks.c - collectives over processes, hosts and snapshots; scale. */
#include "graph_facts.h"

#include <time.h>

#define WORLD 3

/* Ranks 0 and 1 stand in all-reduce #20; rank 2 has not come. Its main thread is the caller's. */
static struct wg_process *missing(struct wg_facts *f)
{
	struct wg_process *p;

	for (int r = 0; r < 2; r++) {
		p = rank(f, 100 + r * 10, r, WORLD);
		comm(f, p, "c0ffee", r, WORLD);
		finished(p, 0, 20);
		enters(f, p, 0, 20, "AllReduce", 1024);
		stands_in(f, p, 0, 20);
	}
	p = rank(f, 120, 2, WORLD);
	comm(f, p, "c0ffee", 2, WORLD);
	finished(p, 0, 20);
	return p;
}

static void asleep(struct wg_facts *f)
{
	sleeps(MAIN(missing(f)), 1000, 12);
}
static void sleep_loop(struct wg_facts *f)
{
	sleeps(MAIN(missing(f)), 1, 0.4);
}
static void pausing(struct wg_facts *f)
{
	pauses(MAIN(missing(f)));
}
static void late_timer(struct wg_facts *f)
{
	sleeps(MAIN(missing(f)), 20, 12.5);
}
static void no_waker(struct wg_facts *f)
{
	cond(MAIN(missing(f)), 0x10);
}
static void locked(struct wg_facts *f)
{
	mutex(MAIN(missing(f)), 0x10, 120);
}
static void orphan(struct wg_facts *f)
{
	mutex(MAIN(missing(f)), 0x10, 133);
}
static void stopped(struct wg_facts *f)
{
	stops(missing(f));
}
static void killed(struct wg_facts *f)
{
	dead(missing(f), 0, 9);
}
static void exited(struct wg_facts *f)
{
	dead(missing(f), 0, 0);
}
static void unreadable(struct wg_facts *f)
{
	MAIN(missing(f))->wait.op = WG_OP_UNKNOWN;
}

static struct wg_process *exited_without_record(struct wg_facts *f)
{
	struct wg_process *p = missing(f);

	dead(p, 0, 0);
	p->comms.n = 0;
	p->rank = p->world = WG_NO_INT;
	return p;
}

static void tokenising(struct wg_facts *f)
{
	struct wg_thread *t = MAIN(missing(f));

	runs(t);
	python(f, t, "app_tok.py:encode app.py:main");
}

static void compiling(struct wg_facts *f) /* in waitpid for a compiler that computes */
{
	struct wg_process *p = missing(f), *c = proc(f, 500, "ptxas");

	child_of(f, c, p);
	waits_child(MAIN(p), 500);
	runs(MAIN(c));
}

static void checkpointing(struct wg_facts *f) /* a write that does not come back */
{
	struct wg_process *p = missing(f);
	struct wg_file *x = file(f, p, 5, WG_FILE_REG, 700, O_WRONLY);

	x->path = "/ckpt/step500.pt";
	io(MAIN(p), WG_OP_WRITE, 5);
	MAIN(p)->state = 'D';
	*wg_push(f->arena, &MAIN(p)->kernel_stack) = "nfs_file_write";
}

static void
deep_chain(struct wg_facts *f) /* rank 2 -> lock -> thread -> pipe -> process in its own lock */
{
	struct wg_process *p = missing(f), *q = proc(f, 500, "loader");

	mutex(MAIN(p), 0x10, 121);
	thr(f, p, 121, "prefetch");
	pipe_end(f, p, 5, 900, false);
	pipe_end(f, q, 5, 900, true);
	io(T(p, 121), WG_OP_READ, 5);
	mutex(MAIN(q), 0x20, 500);
}

static void own_gpu_stuck(struct wg_facts *f) /* rank 2 waits for a kernel of its own */
{
	struct wg_process *p = missing(f);

	stream(f, p, 0x60);
	item(f, p, 0, WG_GPU_KERNEL, "moe_gate");
	syncs(f, MAIN(p), 0x60);
}

static void own_gpu_moves(struct wg_facts *f)
{
	own_gpu_stuck(f);
	f->procs.v[2]->streams.v[0].completed_delta = 5;
}

static void
zombie_sibling(struct wg_facts *f) /* it took its record along; what is left is a zombie */
{
	struct wg_process *p = exited_without_record(f);

	p->comm = "train";
}

static void zombie_stranger(struct wg_facts *f)
{
	struct wg_process *p = exited_without_record(f);

	p->comm = "nvidia-smi";
}

static void yields_between_calls(struct wg_facts *f) /* the GPU moves: a yield is how it waits */
{
	struct wg_process *p = rank(f, 100, 0, 1);

	stream(f, p, 0x50);
	p->streams.v[0].completed_delta = 30;
	runs(MAIN(p));
	MAIN(p)->repeat_syscall = "sched_yield";
}

static void oom_there(struct wg_facts *f)
{
	struct wg_process *p = missing(f);
	struct wg_failure *x;

	pauses(MAIN(p));
	x = wg_add_failure(f, wg_add_device(f, p));
	x->tid = 120;
	x->asked = 1 << 30;
	x->recovered_known = true;
	x->age_s = 20;
}

static void
oom_there_and_deeper(struct wg_facts *f) /* it idles on a child now: the failure was its own */
{
	struct wg_process *p, *q;

	oom_there(f);
	p = f->procs.v[2];
	q = proc(f, 500, "logger");
	child_of(f, q, p);
	waits_child(MAIN(p), 500);
	pauses(MAIN(q));
}

static void
oom_elsewhere(struct wg_facts *f) /* a failure on a rank that did come explains nothing */
{
	struct wg_process *p;
	struct wg_failure *x;

	pausing(f);
	p = f->procs.v[0];
	x = wg_add_failure(f, wg_add_device(f, p));
	x->tid = 100;
	x->recovered_known = true;
	x->age_s = 20;
}

static void two_missing(struct wg_facts *f) /* one computes, the other has stopped */
{
	struct wg_process *p;

	missing(f);
	stops(f->procs.v[2]);
	p = f->procs.v[1];
	p->comms.v[0].recent.n = 0;
	p->streams.n = 0;
	finished(p, 0, 20);
	MAIN(p)->calls.n = 0;
	runs(MAIN(p));
}

static void left_the_loop(struct wg_facts *f)
{
	struct wg_process *p = missing(f);

	p->comms.v[0].state = "finalizing";
	pauses(MAIN(p));
}

static void transport(struct wg_facts *f) /* all are in, with equal arguments */
{
	struct wg_process *p = missing(f);

	enters(f, p, 0, 20, "AllReduce", 1024);
	stands_in(f, p, 0, 20);
}

static void transport_moves(struct wg_facts *f)
{
	transport(f);
	for (int i = 0; i < 3; i++)
		f->procs.v[i]->streams.v[0].completed_delta = 4;
}

static void all_in_young(struct wg_facts *f)
{
	transport(f);
	for (int i = 0; i < 3; i++) {
		f->procs.v[i]->streams.v[0].progress_age_s = 0.2;
		f->procs.v[i]->streams.v[0].pending.v[0].age_s = 0.2;
		f->procs.v[i]->comms.v[0].recent.v[0].age_s = 0.2;
		MAIN(f->procs.v[i])->calls.v[0].since_s = 0.2;
	}
}

static void behind_a_kernel(struct wg_facts *f) /* rank 2 gave it, but another kernel is first */
{
	struct wg_process *p = missing(f);
	struct wg_gpu_item *x;

	enters(f, p, 0, 20, "AllReduce", 1024);
	stream(f, p, 0x50);
	item(f, p, 0, WG_GPU_KERNEL, "custom_reduce");
	x = item(f, p, 0, WG_GPU_COLLECTIVE, "AllReduce");
	x->comm = 0;
	x->coll_seq = 20;
	syncs(f, MAIN(p), 0x50);
}

static void counts_differ(struct wg_facts *f)
{
	struct wg_process *p = missing(f);

	enters(f, p, 0, 20, "AllReduce", 2048);
	stands_in(f, p, 0, 20);
}

static void ops_differ(struct wg_facts *f)
{
	struct wg_process *p = missing(f);

	enters(f, p, 0, 20, "AllGather", 1024);
	stands_in(f, p, 0, 20);
}

static void earlier_root(struct wg_facts *f) /* #19 had different roots and returned; #20 hangs */
{
	struct wg_process *p = missing(f);

	enters(f, p, 0, 20, "AllReduce", 1024);
	stands_in(f, p, 0, 20);
	for (int i = 0; i < 3; i++) {
		struct wg_comm *c = &f->procs.v[i]->comms.v[0];
		struct wg_collective *x = wg_add_collective(f, c);

		x->sequence = 19;
		x->op = "Reduce";
		x->count = 7;
		x->type = "f32";
		x->root = i == 1 ? 1 : 0;
		x->state = WG_COLL_DONE;
		x->state_known = true;
	}
}

static void mismatch_and_healthy(struct wg_facts *f) /* a wrong root once, and everything runs on */
{
	earlier_root(f);
	for (int i = 0; i < 3; i++)
		f->procs.v[i]->streams.v[0].completed_delta = 9;
}

static void two_ranks_differ(struct wg_facts *f)
{
	struct wg_process *p;

	for (int r = 0; r < 2; r++) {
		p = rank(f, 100 + r * 10, r, 2);
		comm(f, p, "c0ffee", r, 2);
		enters(f, p, 0, 5, "AllReduce", r ? 53 : 25503912);
		stands_in(f, p, 0, 5);
	}
}

static void cross_groups(struct wg_facts *f) /* 0 waits in A for 1, 1 waits in B for 0 */
{
	struct wg_process *p;

	for (int r = 0; r < 2; r++) {
		p = rank(f, 100 + r * 10, r, 2);
		comm(f, p, "aaaa", r, 2);
		comm(f, p, "bbbb", r, 2);
		finished(p, 0, 11);
		finished(p, 1, 4);
		enters(f, p, (size_t)r, r ? 4 : 11, r ? "AllReduce" : "AllToAll", 64);
		stands_in(f, p, (size_t)r, r ? 4 : 11);
	}
}

static void stream_order(struct wg_facts *f) /* both gave both, in opposite order */
{
	struct wg_process *p;

	for (int r = 0; r < 2; r++) {
		struct wg_gpu_item *x;

		p = rank(f, 100 + r * 10, r, 2);
		comm(f, p, "aaaa", r, 2);
		comm(f, p, "bbbb", r, 2);
		enters(f, p, 0, 0, "AllReduce", 64);
		enters(f, p, 1, 0, "AllReduce", 64);
		stream(f, p, 0x50);
		for (int k = 0; k < 2; k++) {
			x = item(f, p, 0, WG_GPU_COLLECTIVE, "AllReduce");
			x->comm = k ^ r;
			x->coll_seq = 0;
		}
		syncs(f, MAIN(p), 0x50);
	}
}

static void
one_thread_two_devices(struct wg_facts *f) /* frees on device 0 before it joins on device 1 */
{
	struct wg_process *p = proc(f, 100, "train");
	size_t s;
	struct wg_gpu_item *x;

	comm(f, p, "c0ffee", 0, 2);
	comm(f, p, "c0ffee", 1, 2);
	p->comms.v[1].device = 1;
	finished(p, 1, 3);
	enters(f, p, 0, 3, "AllReduce", 64);
	s = stream(f, p, 0x50);
	x = item(f, p, s, WG_GPU_COLLECTIVE, "AllReduce");
	x->comm = 0;
	x->coll_seq = 3;
	call(f, MAIN(p), "cuMemFreeHost", WG_CALL_FREE, 12);
}

static void one_thread_named_sync(struct wg_facts *f)
{
	one_thread_two_devices(f);
	MAIN(f->procs.v[0])->calls.n = 0;
	syncs(f, MAIN(f->procs.v[0]), 0x50);
}

static void
rank_thread_gone(struct wg_facts *f) /* ranks are threads; the one of rank 1 has ended */
{
	struct wg_process *p;
	struct wg_collective *x;

	one_thread_named_sync(f);
	p = f->procs.v[0];
	MAIN(p)->calls.n = 0;
	syncs(f, thr(f, p, 101, "rank0"), 0x50);
	join(MAIN(p), 101);
	MAIN(p)->state = 'S';
	MAIN(p)->cpu_share = 0;
	x = enters(f, p, 1, 2, "AllReduce", 64);
	x->tid = 102;
	x->state = WG_COLL_DONE;
	x->state_known = true;
}

static void rank_thread_replaced(struct wg_facts *f) /* ... but main works on and may come for it */
{
	rank_thread_gone(f);
	runs(MAIN(f->procs.v[0]));
}

static void
launch_blocking_collective(struct wg_facts *f) /* held in the launch of the first device's part */
{
	struct wg_process *p;

	one_thread_two_devices(f);
	p = f->procs.v[0];
	p->streams.n = 0;
	stream(f, p, 0x50);
	MAIN(p)->calls.n = 0;
	call(f, MAIN(p), "ncclAllReduce", WG_CALL_COLLECTIVE, 12)->object = p->comms.v[0].handle;
	call(f, MAIN(p), "cuLaunchKernelEx", WG_CALL_LAUNCH, 12)->stream = 0x50;
	MAIN(p)->calls.v[1].has_stream = true;
	p->comms.v[0].recent.v[0].host_blocked = true;
}

static void horovod(struct wg_facts *f) /* across ranks, then a GIL cycle inside rank 1 */
{
	struct wg_process *p = rank(f, 100, 0, 2), *q = rank(f, 200, 1, 2);

	comm(f, p, "c0ffee", 0, 2);
	comm(f, q, "c0ffee", 1, 2);
	finished(q, 0, 5);
	mutex(MAIN(p), 0x10, 101);
	thr(f, p, 101, "background");
	enters(f, p, 0, 5, "AllGather", 64)->tid = 101;
	stream(f, p, 0x50);
	item(f, p, 0, WG_GPU_COLLECTIVE, "AllGather")->comm = 0;
	p->streams.v[0].pending.v[0].coll_seq = 5;
	syncs(f, T(p, 101), 0x50);
	q->python.present = q->python.gil_known = q->python.gil_held = true;
	q->python.gil_cond = 0x5000;
	q->python.gil_cond_end = 0x5030;
	q->python.gil_holder = 200;
	runs(MAIN(q));
	MAIN(q)->repeat_syscall = "sched_yield";
	cond(thr(f, q, 201, "background"), 0x5028);
	T(q, 201)->switches = 60;
}

static void abort_stuck(struct wg_facts *f) /* the way out is stuck too */
{
	struct wg_process *p;
	struct wg_call *c;

	asleep(f);
	p = f->procs.v[0];
	runs(MAIN(p));
	MAIN(p)->calls.n = 0;
	c = call(f, thr(f, p, 101, "watchdog"), "ncclCommAbort", WG_CALL_COMM, 8);
	c->object = p->comms.v[0].handle;
	p->comms.v[0].state = "aborting";
	join(MAIN(p), 101);
	MAIN(p)->state = 'S';
	MAIN(p)->same_place = true;
	MAIN(p)->switches = 0;
	MAIN(p)->wait.since_s = 8;
}

static void init_missing(struct wg_facts *f) /* rank 1 sleeps before ncclCommInitRank */
{
	struct wg_process *p = rank(f, 100, 0, 2), *q = rank(f, 110, 1, 2);
	struct wg_comm *c = comm(f, p, "c0ffee", 0, 2);

	c->state = "init";
	c->handle = 0;
	c->age_s = SINCE;
	call(f, MAIN(p), "ncclCommInitRank", WG_CALL_COMM, SINCE);
	sleeps(MAIN(q), 1000, 20);
}

static void init_dead(struct wg_facts *f)
{
	init_missing(f);
	dead(f->procs.v[1], 1, 0);
}

static void init_all(struct wg_facts *f)
{
	struct wg_comm *c;

	init_missing(f);
	c = comm(f, f->procs.v[1], "c0ffee", 1, 2);
	c->state = "init";
	c->handle = 0;
	c->age_s = SINCE;
	call(f, MAIN(f->procs.v[1]), "ncclCommInitRank", WG_CALL_COMM, SINCE);
}

static void send_unmatched(struct wg_facts *f)
{
	struct wg_process *p = rank(f, 100, 0, 2), *q = rank(f, 110, 1, 2);
	struct wg_collective *x;

	comm(f, p, "c0ffee", 0, 2);
	comm(f, q, "c0ffee", 1, 2);
	x = enters(f, p, 0, 0, "Send", 64);
	x->p2p = true;
	x->root = 1;
	p->comms.v[0].next_sequence = 0;
	p->comms.v[0].p2p_next = 1;
	stands_in(f, p, 0, 0);
	p->streams.v[0].pending.v[0].p2p = true;
	pauses(MAIN(q));
}

static void sends_cross(struct wg_facts *f) /* both send first and receive afterwards */
{
	struct wg_process *p;

	for (int r = 0; r < 2; r++) {
		struct wg_collective *x;
		struct wg_gpu_item *it;

		p = rank(f, 100 + r * 10, r, 2);
		comm(f, p, "c0ffee", r, 2);
		stream(f, p, 0x50);
		for (int k = 0; k < 2; k++) {
			x = enters(f, p, 0, (uint64_t)k, k ? "Recv" : "Send", 64);
			x->p2p = true;
			x->root = 1 - r;
			it = item(f, p, 0, WG_GPU_COLLECTIVE, k ? "Recv" : "Send");
			it->comm = 0;
			it->coll_seq = (uint64_t)k;
			it->p2p = true;
		}
		p->comms.v[0].next_sequence = 0;
		syncs(f, MAIN(p), 0x50);
	}
}

static void sends_differ_from_collectives(struct wg_facts *f) /* counted apart: no mismatch */
{
	struct wg_process *p;
	struct wg_collective *x;

	asleep(f);
	p = f->procs.v[0];
	x = enters(f, p, 0, 3, "Send", 9);
	x->p2p = true;
	x->root = 1;
	x->state = WG_COLL_DONE;
	x->state_known = true;
	p->comms.v[0].next_sequence = 21;
	p->comms.v[0].done = 20;
	p = f->procs.v[1];
	x = enters(f, p, 0, 3, "AllGather", 5);
	x->state = WG_COLL_DONE;
	x->state_known = true;
	p->comms.v[0].next_sequence = 21;
	p->comms.v[0].done = 20;
}

/* ---- snapshots and other hosts ---- */

static void saved(struct wg_facts *f)
{
	f->live = false;
	f->asked.n = 0;
	f->interval_s = 0;
	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];

		p->from_snapshot = true;
		p->snapshot_age_s = 100;
	}
}

static void snapshots(struct wg_facts *f)
{
	asleep(f);
	saved(f);
}

static void snapshot_absent(struct wg_facts *f) /* rank 2 left nothing */
{
	snapshots(f);
	f->procs.n = 2;
}

static void snapshot_absent_peer_gone(struct wg_facts *f)
{
	struct wg_peer *x;

	snapshot_absent(f);
	x = wg_push(f->arena, &f->procs.v[0]->peers);
	x->comm = "c0ffee";
	x->rank = 2;
	x->host = "node1";
	x->pid = 120;
	x->alive_known = true;
}

static void
trace_only(struct wg_facts *f) /* rank 2 is known by its trace and is gone, the others live */
{
	struct wg_process *p;

	snapshots(f);
	p = f->procs.v[2];
	p->trace_only = true;
	p->alive = false;
	p->alive_known = true;
	p->threads.n = 0;
}

static void all_gone_now(struct wg_facts *f) /* the job was cleaned up since: that says nothing */
{
	snapshots(f);
	for (int i = 0; i < 3; i++) {
		f->procs.v[i]->alive = false;
		f->procs.v[i]->alive_known = true;
	}
}

static void healthy_job(struct wg_facts *f);

/* Asked while the job is being killed: who died last tells nothing, what they were in does. */
static void dying(struct wg_facts *f)
{
	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];

		p->alive_known = true;
		p->alive = i == 2;
		p->died_since = i != 2;
	}
}

static void dying_missing(struct wg_facts *f)
{
	snapshots(f);
	dying(f);
}

static void dying_mismatch(struct wg_facts *f)
{
	counts_differ(f);
	saved(f);
	dying(f);
}

static void died_of_healthy(struct wg_facts *f) /* the samples moved: of then, not hung */
{
	healthy_job(f);
	saved(f);
	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];

		p->alive_known = true;
		p->alive = i != 1;
		p->died_since = i == 1;
	}
}

static void split_missing(struct wg_facts *f) /* rank 1 sleeps before its ncclCommSplit */
{
	struct wg_comm *c;

	asleep(f);
	for (int r = 0; r < 3; r++) {
		struct wg_process *p = f->procs.v[r];
		struct wg_call *call;

		p->streams.n = 0;
		p->comms.v[0].children = r == 1 ? 1 : 2;
		p->comms.v[0].done = p->comms.v[0].next_sequence;
		p->comms.v[0].recent.n = 0;
		if (r == 1)
			continue;
		c = comm(f, p, r ? "half1" : "half0", WG_NO_INT, WG_NO_INT);
		c->parent = "c0ffee";
		c->state = "init";
		c->handle = 0;
		MAIN(p)->calls.n = 0;
		call = wg_add_call(f, MAIN(p));
		call->function = "ncclCommSplit";
		call->kind = WG_CALL_COMM;
		call->since_s = 30;
	}
}

static void open_group(struct wg_facts *f) /* rank 2 called it and never ended the group */
{
	struct wg_process *p = missing(f);
	struct wg_collective *x = enters(f, p, 0, 20, "AllReduce", 1024);

	x->grouped = x->ungiven = x->state_known = true;
	x->tid = MAIN(p)->tid;
	p->comms.v[0].next_sequence = 21;
	sleeps(MAIN(p), 1000, 12);
}

static void init_polled(struct wg_facts *f) /* no call waits for the communicator: rank 0 asks now and then */
{
	init_missing(f);
	MAIN(f->procs.v[0])->calls.n = 0;
	sleeps(MAIN(f->procs.v[0]), 0.01, 0.005);
	cond(MAIN(f->procs.v[1]), 0x10);
}

static void cut_short(struct wg_facts *f) /* the collection ran out of time before rank 2 */
{
	struct wg_process *p = missing(f);

	p->stub = true;
	p->threads.n = 0;
	p->comms.n = 0;
	wg_add_missing(f, p, "threads and files", "the time of this collection was up", NULL);
}

static void two_hosts(struct wg_facts *f) /* equal pids on two hosts do not meet */
{
	struct wg_process *p;

	snapshots(f);
	p = f->procs.v[2];
	p->host = "node2";
	p->boot = "b2";
	p->pid = p->ns_pid = 100;
	MAIN(p)->pid = MAIN(p)->tid = MAIN(p)->ns_tid = 100;
}

static void live_other_host(struct wg_facts *f) /* asked live on one node: rank 2 is not here */
{
	missing(f);
	f->procs.n = 2;
}

static void snapshot_age_only(struct wg_facts *f) /* no samples at all, only since when */
{
	snapshots(f);
	for (int i = 0; i < 3; i++) {
		MAIN(f->procs.v[i])->sampled_twice = false;
		MAIN(f->procs.v[i])->last_ran_s = WG_NO_SEC;
	}
}

static void no_size(struct wg_facts *f)
{
	struct wg_process *p = rank(f, 100, 0, 1);

	comm(f, p, "c0ffee", 0, WG_NO_INT);
	enters(f, p, 0, 5, "AllReduce", 1);
	stands_in(f, p, 0, 5);
}

static void healthy_job(struct wg_facts *f)
{
	struct wg_process *p;

	for (int r = 0; r < 3; r++) {
		p = rank(f, 100 + r * 10, r, 3);
		comm(f, p, "c0ffee", r, 3);
		enters(f, p, 0, (uint64_t)(20 + (r != 1)), "AllReduce", 1024)->age_s = 0.004;
		stands_in(f, p, 0, (uint64_t)(20 + (r != 1)));
		p->streams.v[0].progress_age_s = p->streams.v[0].pending.v[0].age_s = 0.004;
		MAIN(p)->calls.v[0].since_s = 0.004;
		p->calls_delta = 300;
		p->streams.v[0].completed_delta = 80;
	}
	MAIN(f->procs.v[1])->calls.n = 0;
	runs(MAIN(f->procs.v[1]));
}

static void
rank_by_launcher(struct wg_facts *f) /* the launcher's numbers win over the communicator's */
{
	asleep(f);
	f->procs.v[2]->rank = 7;
	for (int i = 0; i < 3; i++)
		f->procs.v[i]->world = 16;
}

#define Y WG_HUNG_YES
#define N WG_HUNG_NO
#define U WG_HUNG_NULL
static const struct graph_case cases[] = {
	{"missing, asleep", asleep, "collective-missing-rank", Y, 120, 120, "never came", 0},
	{"missing, sleep loop", sleep_loop, "collective-missing-rank", Y, 120, 120, NULL, 0},
	{"missing, pauses", pausing, "collective-missing-rank", Y, 120, 120, NULL, 0},
	{"late by a timer", late_timer, "idle", N, 0, 0, NULL, 0},
	{"missing, without waker", no_waker, "collective-missing-rank", Y, 120, 120, NULL, 0},
	{"missing, in its own lock", locked, "lock-self", Y, 120, 120, NULL, 0},
	{"missing, orphan", orphan, "lock-orphaned", Y, 120, 133, NULL, 0},
	{"missing, stopped", stopped, "stopped", Y, 120, 0, NULL, 0},
	{"missing, killed", killed, "peer-dead", Y, 120, 0, "signal 9", 0},
	{"missing, exited with 0", exited, "peer-dead", Y, 120, 0, "status 0", 0},
	{"missing, unreadable", unreadable, "collective-missing-rank", Y, 120, 0, NULL, 0},
	{"missing, tokenising", tokenising, "busy-cpu", N, 120, 120, "encode", 0},
	{"missing, compiling", compiling, "busy-cpu", N, 500, 0, "ptxas", 0},
	{"missing, checkpoint", checkpointing, "write-blocked", Y, 120, 120, "step500", 0},
	{"missing, deep chain", deep_chain, "lock-self", Y, 500, 500, "loader", 0},
	{"missing, own kernel stuck", own_gpu_stuck, "gpu-kernel-stuck", Y, 120, 0, "moe_gate", 0},
	{"missing, own GPU moves", own_gpu_moves, "busy-gpu", N, 0, 0, NULL, 0},
	{"zombie sibling", zombie_sibling, "peer-dead", Y, 120, 0, NULL, 0},
	{"zombie of another name", zombie_stranger, "unknown", U, 0, 0, "rank 2", 0},
	{"yields between calls", yields_between_calls, "busy-gpu|busy-cpu|progressing", N, 0, 0,
	 NULL, 0},
	{"missing, oom there", oom_there, "oom-swallowed", Y, 120, 120, "1 GiB", 0},
	{"missing, oom there, idle elsewhere", oom_there_and_deeper, "oom-swallowed", Y, 0, 120,
	 NULL, 0},
	{"missing, oom elsewhere", oom_elsewhere, "collective-missing-rank", Y, 120, 120, NULL, 0},
	{"one computes, one stopped", two_missing, "stopped", Y, 120, 0, NULL, 0},
	{"left the loop", left_the_loop, "collective-missing-rank", Y, 120, 0, "has left", 0},
	{"transport", transport, "gpu-kernel-stuck", Y, 0, 0, "data path", 1},
	{"transport moves", transport_moves, "busy-gpu", N, 0, 0, NULL, 0},
	{"all in for a moment", all_in_young, "busy-gpu", N, 0, 0, NULL, 0},
	{"behind a kernel on one rank", behind_a_kernel, "gpu-kernel-stuck", Y, 120, 0,
	 "custom_reduce", 0},
	{"counts differ", counts_differ, "collective-mismatch", Y, 120, 0, "2048", 0},
	{"operations differ", ops_differ, "collective-mismatch", Y, 120, 0, "AllGather", 0},
	{"earlier root", earlier_root, "collective-mismatch", Y, 110, 0, "#19", 1},
	{"mismatch, but healthy", mismatch_and_healthy, "busy-gpu", N, 0, 0, NULL, 0},
	{"two ranks differ", two_ranks_differ, "collective-mismatch", Y, 0, 0, "which of the two",
	 0},
	{"across two groups", cross_groups, "collective-cycle", Y, 0, 0, NULL, 0},
	{"order on the streams", stream_order, "collective-cycle", Y, 0, 0, NULL, 0},
	{"one thread, two devices", one_thread_two_devices, "implicit-sync", Y, 100, 100, NULL, 0},
	{"one thread, named sync", one_thread_named_sync, "collective-cycle", Y, 100, 100, NULL, 0},
	{"a rank's thread has ended", rank_thread_gone, "collective-missing-rank", Y, 100, 102,
	 "has ended", 0},
	{"a rank's thread has ended, main works", rank_thread_replaced, "busy-cpu", N, 0, 0, NULL,
	 0},
	{"blocking launch inside a collective", launch_blocking_collective, "implicit-sync", Y, 100,
	 100, NULL, 0},
	{"GIL cycle inside another rank", horovod, "deadlock", Y, 200, 0, "GIL", 1},
	{"abort stuck", abort_stuck, "collective-missing-rank", Y, 120, 0, "ncclCommAbort", 0},
	{"init, one missing", init_missing, "collective-missing-rank", Y, 110, 0, "initialisation",
	 0},
	{"init, one dead", init_dead, "peer-dead", Y, 110, 0, NULL, 0},
	{"init, all in", init_all, "gpu-kernel-stuck|unknown", Y, 0, 0, NULL, 0},
	{"send without receive", send_unmatched, "collective-missing-rank", Y, 110, 0, "Recv", 0},
	{"sends cross", sends_cross, "collective-cycle", Y, 0, 0, NULL, 0},
	{"sends are counted apart", sends_differ_from_collectives, "collective-missing-rank", Y,
	 120, 0, NULL, 0},
	{"snapshots", snapshots, "collective-missing-rank", Y, 120, 120, NULL, 0},
	{"snapshot absent", snapshot_absent, "collective-missing-rank", Y, 0, 0, "left no snapshot",
	 1},
	{"snapshot absent, peer gone", snapshot_absent_peer_gone, "peer-dead", Y, 120, 0, NULL, 0},
	{"trace only, gone", trace_only, "peer-dead", Y, 120, 0, NULL, 0},
	{"all gone now", all_gone_now, "collective-missing-rank", Y, 120, 0, NULL, 0},
	{"dying, one missing", dying_missing, "collective-missing-rank", Y, 120, 0, NULL, 0},
	{"dying, mismatch", dying_mismatch, "collective-mismatch", Y, 120, 0, "2048", 0},
	{"died of a healthy job", died_of_healthy, "busy-gpu", N, 0, 0, NULL, 0},
	{"a group that is not ended", open_group, "collective-missing-rank", Y, 120, 0, "group", 0},
	{"init is only polled for", init_polled, "collective-missing-rank", Y, 110, 0, NULL, 0},
	{"a rank not read in time", cut_short, "unknown", U, 120, 0, "rank 2", 0},
	{"split, one missing", split_missing, "collective-missing-rank", Y, 110, 0, "of its splits", 0},
	{"two hosts, equal pids", two_hosts, "collective-missing-rank", Y, 100, 100, "node2", 0},
	{"live, rank on another host", live_other_host, "unknown", U, 0, 0, "rank 2", 0},
	{"snapshot with ages only", snapshot_age_only, "collective-missing-rank", Y, 120, 120, NULL,
	 0},
	{"size unknown", no_size, "unknown", U, 0, 0, "number of ranks", 0},
	{"healthy job", healthy_job, "busy-gpu|busy-cpu|progressing", N, 0, 0, NULL, 0},
	{"launcher's rank", rank_by_launcher, "collective-missing-rank", Y, 120, 120, "rank 7", 0},
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t); /* the machine is shared */
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* 64 processes of 2,000 threads: one real deadlock, otherwise pools on conditions and contention.
 */
static void scale(void **state)
{
	struct wg_facts *f = facts();
	struct wg_graph *g;
	double t0, best = 1e9;

	(void)state;
	for (int i = 0; i < 64; i++) {
		struct wg_process *p = proc(f, 10000 * (i + 1), "train");

		for (int k = 1; k < 2000; k++) {
			struct wg_thread *t = thr(f, p, p->pid + k, "worker");

			if (k % 4 == 0)
				mutex(t, 0x10000 + (uint64_t)k * 64, p->pid + k - 1);
			else
				cond(t, 0x100000 + (uint64_t)(k % 7) * 64);
			native(f, t,
			       k & 1 ? "libc.so.6:wait app:pool app:worker"
				     : "libc.so.6:wait app:worker");
		}
		cond(MAIN(p), 0x10);
	}
	mutex(T(f->procs.v[0], 10000), 0x10, 10001);
	mutex(T(f->procs.v[0], 10001), 0x20, 10000);
	for (int i = 0; i < 3; i++) {
		t0 = now();
		g = wg_graph_build(f);
		t0 = now() - t0;
		if (t0 < best)
			best = t0;
		assert_string_equal(g->verdict.class_name, "deadlock");
		assert_int_equal(g->waits.n, 64 * 2000);
		wg_graph_free(g);
	}
	printf("64 x 2000 threads: %.1f ms\n", best * 1e3);
#ifdef NDEBUG
	assert_true(best < 0.5); /* a shared machine: the aim is 0.1, see the printed figure */
#endif
	wg_facts_free(f);
}

/* A thousand ranks from snapshots: one did not come. */
static void thousand(void **state)
{
	struct wg_facts *f = facts();
	struct wg_graph *g;
	double t0;

	(void)state;
	for (int r = 0; r < 1000; r++) {
		struct wg_process *p = rank(f, 1000 + r, r, 1000);

		p->host = wg_fmt(f->arena, "node%d", r / 8);
		comm(f, p, "c0ffee", r, 1000);
		for (int k = 0; k < 20; k++)
			enters(f, p, 0, (uint64_t)k, "AllReduce", 1024);
		if (r == 617) {
			p->comms.v[0].recent.n--;
			finished(p, 0, 19);
			pauses(MAIN(p));
		} else {
			p->comms.v[0].done = 19;
			stands_in(f, p, 0, 19);
		}
	}
	saved(f);
	t0 = now();
	g = wg_graph_build(f);
	t0 = now() - t0;
	printf("1000 ranks: %.1f ms\n", t0 * 1e3);
	assert_string_equal(g->verdict.class_name, "collective-missing-rank");
	assert_int_equal(g->verdict.culprit.rank, 617);
	assert_true(t0 < 2);
	wg_graph_free(g);
	wg_facts_free(f);
}

/* The same facts give the same graph, byte for byte. */
static void same_twice(void **state)
{
	struct wg_facts *f = facts();
	struct wg_graph *a, *b;

	(void)state;
	deep_chain(f);
	a = wg_graph_build(f);
	b = wg_graph_build(f);
	assert_int_equal(a->nodes.n, b->nodes.n);
	assert_int_equal(a->edges.n, b->edges.n);
	for (size_t i = 0; i < a->nodes.n; i++) {
		assert_string_equal(a->nodes.v[i].id, b->nodes.v[i].id);
		assert_string_equal(a->nodes.v[i].label, b->nodes.v[i].label);
	}
	assert_string_equal(a->verdict.summary, b->verdict.summary);
	wg_graph_free(a);
	wg_graph_free(b);
	wg_facts_free(f);
}

int main(void)
{
	enum { HOW_MANY = sizeof(cases) / sizeof(cases[0]) };
	static struct CMUnitTest tests[HOW_MANY + 3];

	for (size_t i = 0; i < HOW_MANY; i++)
		tests[i] =
			(struct CMUnitTest){cases[i].name, run_case, NULL, NULL, (void *)&cases[i]};
	tests[HOW_MANY] = (struct CMUnitTest)cmocka_unit_test(scale);
	tests[HOW_MANY + 1] = (struct CMUnitTest)cmocka_unit_test(thousand);
	tests[HOW_MANY + 2] = (struct CMUnitTest)cmocka_unit_test(same_twice);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
