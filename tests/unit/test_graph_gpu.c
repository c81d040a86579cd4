/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph_gpu.c - streams, events, values, host functions, implicit synchronisation, failures.
 */
#include "graph_facts.h"

static struct wg_process *app(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "train");

	p->recorded = p->cuda_up = true;
	return p;
}

static struct wg_process *kernel(struct wg_facts *f)
{
	struct wg_process *p = app(f);
	size_t s = stream(f, p, 0x50);

	item(f, p, s, WG_GPU_KERNEL, "attention_fwd");
	syncs(f, MAIN(p), 0x50);
	return p;
}

static void stuck(struct wg_facts *f)
{
	kernel(f);
}

static void
stuck_behind(struct wg_facts *f) /* the position is a lower bound: which of them is not known */
{
	struct wg_process *p = kernel(f);

	for (int i = 0; i < 6; i++)
		item(f, p, 0, WG_GPU_KERNEL, "mlp");
	p->streams.v[0].completed_exact = false;
}

static void stuck_among_many(struct wg_facts *f) /* a launch-bound loop: writes are far apart */
{
	static const char *const names[] = {"gemm", "relu", "norm", "softmax", "adam", "copy"};
	struct wg_process *p = kernel(f);

	for (int i = 0; i < 120; i++)
		item(f, p, 0, i % 7 ? WG_GPU_KERNEL : WG_GPU_RECORD_EVENT, names[i % 6]);
	for (int i = 0; i < 50; i++)
		item(f, p, 0, WG_GPU_KERNEL, "behind_the_write");
	p->streams.v[0].completed_exact = false;
	p->streams.v[0].candidates = 121;
}

static void stuck_among_its_own(struct wg_facts *f)
{
	struct wg_process *p = kernel(f);

	for (int i = 0; i < 9; i++)
		item(f, p, 0, WG_GPU_KERNEL, "attention_fwd");
	for (int i = 0; i < 9; i++)
		item(f, p, 0, WG_GPU_KERNEL, "behind_the_write");
	p->streams.v[0].completed_exact = false;
	p->streams.v[0].candidates = 10;
}

static void young(struct wg_facts *f)
{
	struct wg_process *p = kernel(f);

	p->streams.v[0].progress_age_s = p->streams.v[0].pending.v[0].age_s = 4;
}

static void long_history(struct wg_facts *f) /* each takes 2.5 s here, this one 4 */
{
	young(f);
	f->procs.v[0]->streams.v[0].longest_gap_s = 2.5;
}

static void long_but_usual(struct wg_facts *f) /* twelve seconds where ten are usual */
{
	kernel(f);
	f->procs.v[0]->streams.v[0].longest_gap_s = 10;
}

static void first_kernel(struct wg_facts *f) /* no history at all, four seconds */
{
	young(f);
	f->procs.v[0]->streams.v[0].longest_gap_s = WG_NO_SEC;
}

static void gpu_moves(struct wg_facts *f)
{
	kernel(f);
	f->procs.v[0]->streams.v[0].completed_delta = 12;
}

static struct wg_device *device(struct wg_facts *f, struct wg_process *p, double watts)
{
	struct wg_device *d = wg_add_device(f, p);

	d->index = 0;
	d->utilization = 100;
	d->power_w = watts;
	d->power_limit_w = 700;
	return d;
}

static void low_power(struct wg_facts *f) /* seven seconds, and the card draws next to nothing */
{
	struct wg_process *p = kernel(f);

	p->streams.v[0].progress_age_s = p->streams.v[0].pending.v[0].age_s = 7;
	device(f, p, 119);
}

static void high_power(struct wg_facts *f) /* twelve seconds at full power: it computes */
{
	device(f, kernel(f), 650);
}

static void side_stream(struct wg_facts *f) /* main works on; a side stream stands still */
{
	struct wg_process *p = kernel(f);

	MAIN(p)->calls.n = 0;
	runs(MAIN(p));
}

static void copy_stuck(struct wg_facts *f)
{
	kernel(f);
	f->procs.v[0]->streams.v[0].pending.v[0].op = WG_GPU_COPY;
}

static void copy_stuck_long(struct wg_facts *f) /* nobody can say why, but it stands still */
{
	struct wg_process *p;

	copy_stuck(f);
	p = f->procs.v[0];
	p->longest_sync_s = 0.5;
	MAIN(p)->calls.v[0].since_s = 200;
	p->streams.v[0].progress_age_s = p->streams.v[0].pending.v[0].age_s = 200;
	MAIN(p)->switches = 0;
}

static void nothing_pending(struct wg_facts *f)
{
	struct wg_process *p = app(f);

	stream(f, p, 0x50);
	syncs(f, MAIN(p), 0x50);
}

static void not_recorded(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "train");

	runs(MAIN(p));
	native(f, MAIN(p), "libcuda.so.1:cuStreamSynchronize train:step train:main");
}

static struct wg_gpu_item *wait_value(struct wg_facts *f, struct wg_process *p, uint64_t now)
{
	size_t s = stream(f, p, 0x50);
	struct wg_gpu_item *x = item(f, p, s, WG_GPU_WAIT_VALUE, NULL);

	x->object = 0xaaa0;
	x->value = 1;
	x->current = now;
	x->has_current = true;
	syncs(f, MAIN(p), 0x50);
	return x;
}

static void value(struct wg_facts *f)
{
	wait_value(f, app(f), 0);
}

static void
value_served(struct wg_facts *f) /* another stream has the write behind work that moves */
{
	struct wg_process *p = app(f);
	size_t s;
	struct wg_gpu_item *x;

	wait_value(f, p, 0);
	s = stream(f, p, 0x60);
	item(f, p, s, WG_GPU_KERNEL, "producer");
	x = item(f, p, s, WG_GPU_WRITE_VALUE, NULL);
	x->object = 0xaaa0;
	x->value = 1;
	p->streams.v[s].completed_delta = 3;
}

static void value_behind_kernel(struct wg_facts *f) /* ... behind a kernel that does not end */
{
	value_served(f);
	f->procs.v[0]->streams.v[1].completed_delta = 0;
}

static void value_cycle(struct wg_facts *f) /* two streams wait for each other's writes */
{
	struct wg_process *p = app(f);
	size_t s;
	struct wg_gpu_item *x;

	wait_value(f, p, 0);
	x = item(f, p, 0, WG_GPU_WRITE_VALUE, NULL);
	x->object = 0xbbb0;
	x->value = 1;
	s = stream(f, p, 0x60);
	x = item(f, p, s, WG_GPU_WAIT_VALUE, NULL);
	x->object = 0xbbb0;
	x->value = 1;
	x->has_current = true;
	x = item(f, p, s, WG_GPU_WRITE_VALUE, NULL);
	x->object = 0xaaa0;
	x->value = 1;
}

static void value_wrong_write(struct wg_facts *f) /* the write that is queued will not satisfy it */
{
	value_behind_kernel(f);
	f->procs.v[0]->streams.v[1].pending.v[1].value = 0;
}

static void value_host_computes(struct wg_facts *f)
{
	struct wg_process *p = app(f);

	wait_value(f, p, 0);
	runs(thr(f, p, 101, "feeder"));
}

static void value_host_heartbeat(struct wg_facts *f) /* wakes each second and has not written it */
{
	struct wg_process *p = app(f);

	wait_value(f, p, 0);
	sleeps(thr(f, p, 101, "heartbeat"), 1, 0.3);
}

static void
value_writer_blocked(struct wg_facts *f) /* thread B's write is queued behind A's free */
{
	struct wg_process *p = app(f);
	struct wg_call *c;

	wait_value(f, p, 0);
	MAIN(p)->calls.n = 0;
	c = call(f, MAIN(p), "cuMemFree_v2", WG_CALL_FREE, 12);
	c = call(f, thr(f, p, 101, "b"), "cuStreamWriteValue32", WG_CALL_OTHER, 10);
	c->object = 0xaaa0;
}

static void value_other_frees(
	struct wg_facts *f) /* main waits for a value, the other thread is held in a free */
{
	struct wg_process *p = app(f);

	wait_value(f, p, 0);
	call(f, thr(f, p, 101, "b"), "cuMemFreeHost", WG_CALL_FREE, 10);
}

static void
value_driver_polls(struct wg_facts *f) /* the driver's own thread burns CPU: it writes nothing */
{
	struct wg_process *p = app(f);

	wait_value(f, p, 0);
	runs(thr(f, p, 101, "cuda0"));
	native(f, T(p, 101), "libcuda.so.1:poll_loop libcuda.so.1 libc.so.6:start_thread");
}

static void event_behind_kernel(struct wg_facts *f)
{
	struct wg_process *p = app(f);
	size_t s = stream(f, p, 0x50), t = stream(f, p, 0x60);
	struct wg_gpu_item *x;

	item(f, p, t, WG_GPU_KERNEL, "spinner");
	item(f, p, t, WG_GPU_RECORD_EVENT, NULL)->object = 0xe0;
	x = item(f, p, s, WG_GPU_WAIT_EVENT, NULL);
	x->object = 0xe0;
	x->event_recorded = true;
	x->event_stream_ix = (int64_t)t;
	x->event_seq = 52;
	syncs(f, MAIN(p), 0x50);
}

static void event_satisfied(struct wg_facts *f) /* recorded and passed: what follows is the head */
{
	struct wg_process *p;

	event_behind_kernel(f);
	p = f->procs.v[0];
	p->streams.v[1].completed = p->streams.v[1].enqueued = 60;
	p->streams.v[1].pending.n = 0;
	item(f, p, 0, WG_GPU_KERNEL, "tail_kernel");
}

static void event_never_recorded(struct wg_facts *f)
{
	struct wg_process *p;

	event_behind_kernel(f);
	p = f->procs.v[0];
	p->streams.v[0].pending.v[0].event_recorded = false;
	item(f, p, 0, WG_GPU_KERNEL, "tail_kernel");
	p->streams.v[0].progress_age_s = p->streams.v[0].pending.v[1].age_s = 0.002;
	p->streams.v[1].pending.n = 0;
	p->streams.v[1].completed = p->streams.v[1].enqueued;
}

static void event_cycle(struct wg_facts *f)
{
	struct wg_process *p;
	struct wg_gpu_item *x;

	event_behind_kernel(f);
	p = f->procs.v[0];
	x = &p->streams.v[1].pending.v[0];
	x->op = WG_GPU_WAIT_EVENT;
	x->object = 0xe1;
	x->event_recorded = true;
	x->event_stream_ix = 0;
	x->event_seq = 52;
	item(f, p, 0, WG_GPU_RECORD_EVENT, NULL)->object = 0xe1;
}

static void event_sync(struct wg_facts *f)
{
	struct wg_process *p;
	struct wg_call *c;

	event_behind_kernel(f);
	p = f->procs.v[0];
	p->streams.v[0].pending.n = 0;
	p->streams.v[0].completed = p->streams.v[0].enqueued;
	MAIN(p)->calls.n = 0;
	c = call(f, MAIN(p), "cuEventSynchronize", WG_CALL_SYNC, SINCE);
	c->object = 0xe0;
	c->event_known = c->event_recorded = true;
	c->event_stream_ix = 1;
	c->event_seq = 52;
}

static void event_ipc(struct wg_facts *f)
{
	event_behind_kernel(f);
	f->procs.v[0]->streams.v[0].pending.v[0].event_remote = true;
	f->procs.v[0]->streams.v[1].pending.n = 0;
	f->procs.v[0]->streams.v[1].completed = f->procs.v[0]->streams.v[1].enqueued;
}

static struct wg_process *hostfn(struct wg_facts *f)
{
	struct wg_process *p = app(f);
	size_t s = stream(f, p, 0x50);
	struct wg_gpu_item *x = item(f, p, s, WG_GPU_HOSTFN, "on_done");

	x->object = 0x4000;
	syncs(f, MAIN(p), 0x50);
	thr(f, p, 101, "cuda0");
	native(f, T(p, 101),
	       "libc.so.6:futex_wait train:on_done libcuda.so.1 libc.so.6:start_thread");
	return p;
}

static void callback_cond(struct wg_facts *f)
{
	cond(T(hostfn(f), 101), 0x10);
}
static void callback_cycle(struct wg_facts *f)
{
	mutex(T(hostfn(f), 101), 0x10, 100);
}
static void callback_orphan(struct wg_facts *f)
{
	mutex(T(hostfn(f), 101), 0x10, 133);
}
static void callback_works(struct wg_facts *f)
{
	runs(T(hostfn(f), 101));
}
static void callback_pauses(struct wg_facts *f)
{
	pauses(T(hostfn(f), 101));
}
static void callback_polls(struct wg_facts *f)
{
	sleeps(T(hostfn(f), 101), 0.001, 0.0005);
}

static void callback_reads(struct wg_facts *f) /* its own wait has a deeper cause */
{
	struct wg_process *p = hostfn(f), *q = proc(f, 200, "server");

	io(T(p, 101), WG_OP_READ, 5);
	pipe_end(f, p, 5, 900, false);
	pipe_end(f, q, 5, 900, true);
	pauses(MAIN(q));
}

static void callback_not_found(struct wg_facts *f)
{
	struct wg_process *p = hostfn(f);

	p->threads.n = 1;
}

static void
default_stream_order(struct wg_facts *f) /* a stuck kernel on a blocking stream holds it up */
{
	struct wg_process *p = app(f);
	size_t s = stream(f, p, 0x50), d = stream(f, p, 0);

	p->streams.v[s].flags = 0;
	item(f, p, s, WG_GPU_KERNEL, "blocker")->age_s = 20;
	p->streams.v[s].progress_age_s = 20;
	item(f, p, d, WG_GPU_KERNEL, "innocent");
	syncs(f, MAIN(p), 0);
}

static void non_blocking_apart(struct wg_facts *f) /* a non-blocking stream does not */
{
	default_stream_order(f);
	f->procs.v[0]->streams.v[0].flags = 1;
}

static void queue_full(struct wg_facts *f)
{
	struct wg_process *p = kernel(f);
	struct wg_call *c;

	p->streams.v[0].enqueued += 1023;
	MAIN(p)->calls.n = 0;
	c = call(f, MAIN(p), "cuLaunchKernel", WG_CALL_LAUNCH, 10);
	c->stream = 0x50;
	c->has_stream = true;
}

static void
lazy_load(struct wg_facts *f) /* a launch waits for the device, a copy waits behind it */
{
	struct wg_process *p = kernel(f);
	struct wg_call *c;

	stream(f, p, 0x60);
	MAIN(p)->calls.n = 0;
	c = call(f, MAIN(p), "cuLaunchKernel", WG_CALL_LAUNCH, 11);
	c->stream = 0x60;
	c->has_stream = true;
	c = call(f, thr(f, p, 101, "copier"), "cuMemcpyAsync", WG_CALL_LAUNCH, 9);
	c->stream = 0x70;
	c->has_stream = true;
}

static void
free_behind_kernel(struct wg_facts *f) /* the kernel does not end: the free is innocent */
{
	struct wg_process *p = kernel(f);

	MAIN(p)->calls.n = 0;
	call(f, MAIN(p), "cuMemFree_v2", WG_CALL_FREE, 11);
}

static void free_lock(struct wg_facts *f) /* main frees with a lock that the callback wants */
{
	struct wg_process *p = hostfn(f);

	MAIN(p)->calls.n = 0;
	call(f, MAIN(p), "cuMemFree_v2", WG_CALL_FREE, 11);
	mutex(T(p, 101), 0x10, 100);
}

static void alloc_young(struct wg_facts *f) /* launches and allocations of a busy program */
{
	struct wg_process *p = kernel(f);

	MAIN(p)->calls.n = 0;
	call(f, MAIN(p), "cuMemAlloc_v2", WG_CALL_ALLOC, 0.0001);
	p->streams.v[0].completed_delta = 40;
}

static void driver_lock(struct wg_facts *f) /* inside a call, behind a lock whose owner is known */
{
	struct wg_process *p = kernel(f);

	call(f, thr(f, p, 101, "b"), "cuMemGetInfo_v2", WG_CALL_OTHER, 11);
	T(p, 101)->state = 'S';
	mutex(T(p, 101), 0x10, 100);
	f->asked.v[0] = 100;
}

static void multicast(struct wg_facts *f)
{
	struct wg_process *p = app(f);

	call(f, MAIN(p), "cuMulticastBindMem", WG_CALL_MULTICAST, 190);
}

static void query_loop(struct wg_facts *f) /* polls the stream instead of synchronising it */
{
	struct wg_process *p = kernel(f);
	struct wg_call *c;

	MAIN(p)->calls.n = 0;
	c = call(f, MAIN(p), "cuStreamQuery", WG_CALL_OTHER, 0.00001);
	c->stream = 0x50;
	c->has_stream = true;
}

static void context_sync_two_devices(struct wg_facts *f) /* only this device's streams count */
{
	struct wg_process *p = app(f);
	size_t a = stream(f, p, 0x50), b = stream(f, p, 0x60);

	item(f, p, a, WG_GPU_KERNEL, "other_device");
	p->streams.v[a].device = 1;
	item(f, p, b, WG_GPU_KERNEL, "short");
	p->streams.v[b].completed_delta = 5;
	call(f, MAIN(p), "cuCtxSynchronize", WG_CALL_SYNC, 0.2);
}

static struct wg_failure *fails(struct wg_facts *f, struct wg_process *p, int32_t tid,
				bool recovered)
{
	struct wg_device *d = wg_add_device(f, p);
	struct wg_failure *x;

	d->index = 0;
	x = wg_add_failure(f, d);
	x->tid = tid;
	x->function = "cuMemAlloc_v2";
	x->asked = 170ll << 20;
	x->free = 20ll << 20;
	x->short_by = 150ll << 20;
	x->age_s = 14;
	x->recovered = recovered;
	x->recovered_known = true;
	return x;
}

static void oom(struct wg_facts *f)
{
	struct wg_process *p = app(f);

	cond(MAIN(p), 0x10);
	fails(f, p, 101, false);
}

static void oom_recovered(struct wg_facts *f)
{
	struct wg_process *p = app(f);

	cond(MAIN(p), 0x10);
	fails(f, p, 101, true);
}

static void oom_unknown(struct wg_facts *f)
{
	struct wg_process *p = app(f);

	cond(MAIN(p), 0x10);
	fails(f, p, 101, false)->recovered_known = false;
}

static void oom_host_memory(struct wg_facts *f) /* pinning failed: no device memory was short */
{
	struct wg_process *p = app(f);

	cond(MAIN(p), 0x10);
	fails(f, p, 101, false)->host_memory = true;
}

static void oom_and_deadlock(struct wg_facts *f) /* a failure explains no lock cycle */
{
	struct wg_process *p = app(f);

	mutex(MAIN(p), 0x10, 100);
	fails(f, p, 101, false);
}

static void oom_busy(struct wg_facts *f)
{
	struct wg_process *p = app(f);

	runs(MAIN(p));
	fails(f, p, 100, false);
}

static void
sync_idle_helpers(struct wg_facts *f) /* the driver's own threads are nobody's symptom */
{
	struct wg_process *p = kernel(f);

	p->streams.v[0].completed_delta = 9;
	cond(thr(f, p, 101, "cuda-EvtHandlr"), 0x90);
	native(f, T(p, 101), "libc.so.6:pthread_cond_wait libcuda.so.1 libc.so.6:start_thread");
}

#define Y WG_HUNG_YES
#define N WG_HUNG_NO
#define U WG_HUNG_NULL
static const struct graph_case cases[] = {
	{"kernel stuck", stuck, "gpu-kernel-stuck", Y, 100, 0, "attention_fwd", 1},
	{"kernel stuck, position a bound", stuck_behind, "gpu-kernel-stuck", Y, 100, 0,
	 "attention_fwd", 1},
	{"kernel stuck, one of a hundred", stuck_among_many, "gpu-kernel-stuck", Y, 100, 0,
	 "one of 103 kernels (attention_fwd, relu, norm, softmax or another)", 1},
	{"kernel stuck, one launch of ten", stuck_among_its_own, "gpu-kernel-stuck", Y, 100, 0,
	 "its kernel attention_fwd (one of 10 launches of it)", 1},
	{"kernel of four seconds", young, "unknown", U, 0, 0, "attention_fwd", 0},
	{"kernel as long as others", long_history, "busy-gpu", N, 0, 0, NULL, 0},
	{"kernel twelve seconds, ten are usual", long_but_usual, "busy-gpu", N, 0, 0, NULL, 0},
	{"first kernel, four seconds", first_kernel, "unknown", U, 0, 0, NULL, 0},
	{"GPU moves", gpu_moves, "busy-gpu", N, 0, 0, NULL, 0},
	{"low power", low_power, "gpu-kernel-stuck", Y, 100, 0, "119 W", 1},
	{"high power", high_power, "unknown", U, 0, 0, NULL, 0},
	{"side stream stands still", side_stream, "gpu-kernel-stuck", Y, 100, 0, NULL, 1},
	{"copy at the head", copy_stuck, "unknown", U, 0, 0, "copy", 0},
	{"copy at the head for minutes", copy_stuck_long, "unknown", Y, 0, 0, "copy", 0},
	{"nothing pending", nothing_pending, "unknown", U, 0, 0, NULL, 0},
	{"not recorded", not_recorded, "unknown", U, 0, 0, "recorder", 0},
	{"value", value, "gpu-wait-unsignaled", Y, 100, 0, NULL, 0},
	{"value, served", value_served, "busy-gpu", N, 0, 0, NULL, 0},
	{"value, write behind a kernel", value_behind_kernel, "gpu-kernel-stuck", Y, 100, 0,
	 "producer", 1},
	{"value, cycle of streams", value_cycle, "deadlock", Y, 100, 0, NULL, 0},
	{"value, queued write does not do", value_wrong_write, "gpu-wait-unsignaled", Y, 0, 0, NULL,
	 0},
	{"value, host computes", value_host_computes, "busy-cpu", N, 0, 0, NULL, 0},
	{"value, host's heartbeat", value_host_heartbeat, "gpu-wait-unsignaled", Y, 0, 0, NULL, 1},
	{"value, its writer behind a free", value_writer_blocked, "implicit-sync", Y, 0, 0, NULL,
	 1},
	{"value, another thread frees", value_other_frees, "implicit-sync", Y, 100, 101,
	 "cuMemFreeHost", 1},
	{"value, the driver polls", value_driver_polls, "gpu-wait-unsignaled", Y, 100, 0, NULL, 0},
	{"event behind a kernel", event_behind_kernel, "gpu-kernel-stuck", Y, 100, 0, "spinner", 0},
	{"event satisfied", event_satisfied, "gpu-kernel-stuck", Y, 100, 0, "tail_kernel", 0},
	{"event never recorded", event_never_recorded, "busy-gpu", N, 0, 0, NULL, 0},
	{"event cycle", event_cycle, "deadlock", Y, 100, 0, NULL, 0},
	{"event synchronisation", event_sync, "gpu-kernel-stuck", Y, 100, 0, "spinner", 0},
	{"event of another process", event_ipc, "unknown", U, 0, 0, "shared event", 0},
	{"callback on a condition", callback_cond, "gpu-host-callback", Y, 100, 101, "on_done", 0},
	{"callback in a cycle", callback_cycle, "deadlock", Y, 100, 0, "on_done", 0},
	{"callback on an orphan", callback_orphan, "lock-orphaned", Y, 100, 133, "host function",
	 0},
	{"callback works", callback_works, "busy-cpu", N, 100, 101, NULL, 0},
	{"callback pauses", callback_pauses, "gpu-host-callback", Y, 100, 101, NULL, 0},
	{"callback polls", callback_polls, "gpu-host-callback", Y, 100, 101, NULL, 0},
	{"callback reads", callback_reads, "peer-silent", Y, 200, 0, "host function", 0},
	{"callback's thread unknown", callback_not_found, "unknown", U, 0, 0, "host function", 0},
	{"default stream's order", default_stream_order, "gpu-kernel-stuck", Y, 100, 0, "blocker",
	 0},
	{"non-blocking apart", non_blocking_apart, "gpu-kernel-stuck", Y, 100, 0, "innocent", 0},
	{"queue full", queue_full, "gpu-kernel-stuck", Y, 100, 0, "attention_fwd", 0},
	{"lazy load", lazy_load, "implicit-sync", Y, 100, 0, NULL, 1},
	{"free behind a kernel", free_behind_kernel, "gpu-kernel-stuck", Y, 100, 0, NULL, 1},
	{"free with the callback's lock", free_lock, "implicit-sync", Y, 100, 0, NULL, 0},
	{"allocation of a moment", alloc_young, "busy-gpu|progressing", N, 0, 0, NULL, 0},
	{"driver's lock", driver_lock, "gpu-kernel-stuck", Y, 100, 0, NULL, 0},
	{"multicast", multicast, "driver-blocked", Y, 100, 0, "cuMulticastBindMem", 1},
	{"query loop", query_loop, "gpu-kernel-stuck", Y, 100, 0, NULL, 0},
	{"two devices", context_sync_two_devices, "gpu-kernel-stuck", WG_HUNG_YES, 0, 0, NULL, 0},
	{"oom", oom, "oom-swallowed", Y, 100, 101, "170 MiB", 0},
	{"oom, recovered", oom_recovered, "no-waker", Y, 100, 100, NULL, 0},
	{"oom, not known whether recovered", oom_unknown, "no-waker", Y, 100, 100, NULL, 0},
	{"oom of host memory", oom_host_memory, "no-waker", Y, 100, 100, NULL, 0},
	{"oom and a lock", oom_and_deadlock, "lock-self", Y, 100, 100, NULL, 0},
	{"oom and busy", oom_busy, "busy-cpu", N, 0, 0, NULL, 0},
	{"helpers of the driver", sync_idle_helpers, "busy-gpu", N, 0, 0, NULL, 0},
};

RUN_CASES(cases)
