/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph_locks.c - locks, the GIL, joins, conditions and forks: each with its near twins. */
#include "graph_facts.h"

static void abba(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	thr(f, p, 101, "worker");
	mutex(T(p, 100), 0x10, 101);
	mutex(T(p, 101), 0x20, 100);
}

static void abba_pool(struct wg_facts *f) /* main sleeps in a loop: two other threads hang */
{
	struct wg_process *p = proc(f, 100, "app");

	thr(f, p, 101, "a");
	thr(f, p, 102, "b");
	sleeps(T(p, 100), 1, 0.4);
	mutex(T(p, 101), 0x10, 102);
	mutex(T(p, 102), 0x20, 101);
}

static void contended(struct wg_facts *f) /* the same picture, but both ran between the looks */
{
	abba(f);
	moves(T(f->procs.v[0], 100));
	moves(T(f->procs.v[0], 101));
}

static void ring_of_three(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	thr(f, p, 101, "a");
	thr(f, p, 102, "b");
	mutex(T(p, 100), 0x10, 101);
	mutex(T(p, 101), 0x20, 102);
	mutex(T(p, 102), 0x30, 101);
}

static void owner_computes(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	runs(thr(f, p, 101, "worker"));
	mutex(T(p, 100), 0x10, 101);
}

static void owner_sleeps(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	sleeps(thr(f, p, 101, "worker"), 5, 2);
	mutex(T(p, 100), 0x10, 101);
}

static void self(struct wg_facts *f)
{
	mutex(MAIN(proc(f, 100, "app")), 0x10, 100);
}

static void chain_to_self(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	thr(f, p, 101, "worker");
	mutex(T(p, 100), 0x10, 101);
	mutex(T(p, 101), 0x20, 101);
}

static void orphan(struct wg_facts *f)
{
	mutex(MAIN(proc(f, 100, "app")), 0x10, 133);
}

static void orphan_one_look(struct wg_facts *f)
{
	orphan(f);
	MAIN(f->procs.v[0])->sampled_twice = false;
	MAIN(f->procs.v[0])->last_ran_s = WG_NO_SEC;
	MAIN(f->procs.v[0])->wait.since_s = WG_NO_SEC;
}

static void implausible_owner(struct wg_facts *f) /* w[3] is 0: no mutex, so no owner */
{
	struct wg_process *p = proc(f, 100, "app");

	runs(thr(f, p, 101, "worker"));
	mutex(T(p, 100), 0x10, 133);
	T(p, 100)->wait.futex.words[3] = 0;
}

static void orphan_with_other_thread_running(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	runs(thr(f, p, 101, "worker"));
	mutex(T(p, 100), 0x10, 133);
}

/* As glibc has it: the call is a shared one even for a private mutex, the kind says robust. */
static void robust(struct wg_thread *t, uint32_t owner, bool died)
{
	struct wg_futex *x = &t->wait.futex;

	futex(t, 0x10, 0, 0x80000000u | owner);
	x->is_shared = true;
	x->words[0] = (died ? 0xc0000000u : 0x80000000u) | owner;
	x->words[2] = owner;
	x->words[4] = 16;
}

/* Rust's read-write lock: two readers have it, a writer waits: bits and a count, no number. */
static void rust_rwlock(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");
	struct wg_thread *t = MAIN(p);

	runs(thr(f, p, 101, "worker"));
	futex(t, 0x10, 9 | 128, 0xc0000002u);
	t->wait.futex.words[0] = 0xc0000002u;
}

static void rust_park(struct wg_facts *f) /* a parked thread's word is -1 */
{
	struct wg_thread *t = MAIN(proc(f, 100, "app"));

	futex(t, 0x10, 9 | 128, 0xffffffffu);
	t->wait.futex.words[0] = 0xffffffffu;
}

static void robust_dead(struct wg_facts *f)
{
	robust(MAIN(proc(f, 100, "app")), 133, true);
}

static void robust_live(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app"), *q = proc(f, 200, "other");

	runs(MAIN(q));
	robust(MAIN(p), 200, false);
}

static void pi_self(struct wg_facts *f)
{
	struct wg_thread *t = MAIN(proc(f, 100, "app"));

	futex(t, 0x10, 6 | 128, 0);
	t->wait.futex.words[0] = 0x80000000u | 100;
}

static void timed_orphan(struct wg_facts *f) /* an hour's timeout is no design */
{
	orphan(f);
	timeout(MAIN(f->procs.v[0]), 3600);
}

static void timed_short(struct wg_facts *f) /* looks again each second */
{
	owner_sleeps(f);
	timeout(MAIN(f->procs.v[0]), 1);
}

static void shared_gone(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	shared_mutex(MAIN(p), 0x10, 200);
	*wg_push(f->arena, &f->gone_tids) = 200;
}

static void shared_gone_zombie(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app"), *q = proc(f, 200, "app");

	child_of(f, q, p);
	dead(q, 0, 9);
	shared_mutex(MAIN(p), 0x10, 200);
}

static void shared_unknown(struct wg_facts *f) /* nobody looked whether 200 lives */
{
	shared_mutex(MAIN(proc(f, 100, "app")), 0x10, 200);
	f->is_root = f->fd_scan_complete = false;
}

static void
shared_all_mappers_seen(struct wg_facts *f) /* whoever maps the word is here: 200 is not */
{
	shared_unknown(f);
	f->is_root = true;
}

static void shared_held(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app"), *q = proc(f, 200, "app");

	pauses(MAIN(q));
	shared_mutex(MAIN(p), 0x10, 200);
}

static void shared_cycle(struct wg_facts *f) /* two processes, two shared mutexes */
{
	struct wg_process *p = proc(f, 100, "app"), *q = proc(f, 200, "app");

	shared_mutex(MAIN(p), 0x10, 200);
	shared_mutex(MAIN(q), 0x20, 100);
}

static void shared_other_namespace(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app"), *q = proc(f, 60, "innocent");

	/* the word says 60 as a container counts; on the host 60 is somebody else */
	p->pidns = 5;
	p->ns_pid = 7;
	MAIN(p)->ns_tid = 7;
	runs(MAIN(q));
	shared_mutex(MAIN(p), 0x10, 60);
}

static void after_fork(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app"), *c = proc(f, 120, "app");

	pauses(thr(f, p, 101, "pool"));
	child_of(f, c, p);
	c->forked = true;
	waits_child(MAIN(p), 120);
	mutex(MAIN(c), 0x10, 101);
}

static void after_fork_parent_gone(struct wg_facts *f)
{
	struct wg_process *c = proc(f, 120, "app");

	c->forked = true;
	mutex(MAIN(c), 0x10, 101);
}

static void
forked_own_orphan(struct wg_facts *f) /* a thread of the child itself took it and ended */
{
	struct wg_process *c = proc(f, 120, "app");

	c->forked = true;
	mutex(MAIN(c), 0x10, 133);
}

static void forked_contention(struct wg_facts *f)
{
	struct wg_process *c = proc(f, 120, "app");

	c->forked = true;
	runs(thr(f, c, 121, "own"));
	mutex(MAIN(c), 0x10, 121);
}

static void forked_sem(struct wg_facts *f)
{
	struct wg_process *c = proc(f, 120, "app");

	c->forked = true;
	sem(MAIN(c), 0x10);
}

static void forked_python_lock(struct wg_facts *f)
{
	forked_sem(f);
	python(f, MAIN(f->procs.v[0]), "app.py:log app.py:main");
}

static void
forked_lock_and_feeder(struct wg_facts *f) /* a spare service thread of its own changes nothing */
{
	forked_python_lock(f);
	sem(thr(f, f->procs.v[0], 121, "QueueFeederThre"), 0x90);
	python(f, T(f->procs.v[0], 121),
	       "threading.py:wait multiprocessing/queues.py:_feed threading.py:run");
}

static void forked_pool_lost(struct wg_facts *f) /* waits to be signalled by threads it never had */
{
	struct wg_process *c = proc(f, 120, "app");

	c->forked = true;
	cond(MAIN(c), 0x10);
	native(f, MAIN(c), "libc.so.6:pthread_cond_wait libpool.so:pool_run app:main");
}

static void spawned_sem(struct wg_facts *f) /* the same after exec: nothing was inherited */
{
	sem(MAIN(proc(f, 120, "app")), 0x10);
}

static void cond_nobody(struct wg_facts *f)
{
	cond(MAIN(proc(f, 100, "app")), 0x10);
}

static void cond_and_bystanders(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	cond(MAIN(p), 0x10);
	for (int i = 0; i < 15; i++) {
		struct wg_thread *t = thr(f, p, 101 + i, "app");

		cond(t, 0x1000);
		native(f, t,
		       "libc.so.6:pthread_cond_wait libopenblas.so.0:blas_thread_server "
		       "libc.so.6:start_thread");
	}
	polls_fd(f, thr(f, p, 130, "cuda-EvtHandlr"), WG_OP_POLL, 9, POLLIN);
	native(f, T(p, 130), "libc.so.6:poll libcuda.so.1 libc.so.6:start_thread");
	timeout(T(p, 130), 0.1);
}

static void cond_and_our_helper(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	cond(MAIN(p), 0x10);
	sleeps(thr(f, p, 101, "app"), 1, 0.2);
	T(p, 101)->ours = true;
}

static void cond_worker_computes(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	cond(MAIN(p), 0x10);
	runs(thr(f, p, 101, "worker"));
}

static void cond_periodic(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	cond(MAIN(p), 0x10);
	sleeps(thr(f, p, 101, "worker"), 1, 0.3);
}

static void cond_producer_locked_out(struct wg_facts *f) /* holds L, waits for one who wants L */
{
	struct wg_process *p = proc(f, 100, "app");

	cond(MAIN(p), 0x10);
	mutex(thr(f, p, 101, "import"), 0x20, 100);
}

static void cond_producer_reads(struct wg_facts *f) /* the producer's own wait is the cause */
{
	struct wg_process *p = proc(f, 100, "app"), *q = proc(f, 200, "source");

	cond(MAIN(p), 0x10);
	thr(f, p, 101, "producer");
	pipe_end(f, p, 5, 900, false);
	pipe_end(f, q, 6, 900, true);
	io(T(p, 101), WG_OP_READ, 5);
	pauses(MAIN(q));
}

static void cond_both_wait(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	cond(MAIN(p), 0x10);
	cond(thr(f, p, 101, "worker"), 0x20);
}

static void cond_timed(struct wg_facts *f)
{
	cond(MAIN(proc(f, 100, "app")), 0x10);
	timeout(MAIN(f->procs.v[0]), 1);
}

static void cond_half_an_hour(struct wg_facts *f)
{
	cond(MAIN(proc(f, 100, "app")), 0x10);
	timeout(MAIN(f->procs.v[0]), 1800);
}

static void cond_young(struct wg_facts *f)
{
	cond_nobody(f);
	since(MAIN(f->procs.v[0]), 0.6);
}

static void cond_woken(struct wg_facts *f)
{
	cond_nobody(f);
	moves(MAIN(f->procs.v[0]));
}

static void join_worker(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	runs(thr(f, p, 101, "worker"));
	join(MAIN(p), 101);
}

static void join_queue(struct wg_facts *f) /* nobody has told the worker to stop */
{
	struct wg_process *p = proc(f, 100, "app");

	cond(thr(f, p, 101, "worker"), 0x20);
	join(MAIN(p), 101);
}

static void join_cycle(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	mutex(thr(f, p, 101, "worker"), 0x20, 100);
	join(MAIN(p), 101);
}

static void rwlock_writer(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	mutex(thr(f, p, 101, "writer"), 0x90, 100);
	futex(MAIN(p), 0x18, 9 | 128, 3);
	MAIN(p)->wait.futex.words[4] = 101;
	native(f, MAIN(p), "libc.so.6:pthread_rwlock_rdlock app:main");
}

static void rwlock_readers(struct wg_facts *f) /* readers leave no name: do not invent one */
{
	struct wg_process *p = proc(f, 100, "app");

	runs(thr(f, p, 101, "reader"));
	futex(MAIN(p), 0x18, 9 | 128, 2);
	MAIN(p)->wait.futex.words[2] = 0;
	native(f, MAIN(p), "libc.so.6:pthread_rwlock_wrlock app:main");
}

static void stdio_lock(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	thr(f, p, 101, "logger")->fsbase = 0x7f12345678c0ull;
	mutex(T(p, 101), 0x90, 100);
	futex(MAIN(p), 0x10, 128, 2);
	MAIN(p)->wait.futex.words[1] = 1;
	MAIN(p)->wait.futex.words[2] = 0x345678c0u;
	MAIN(p)->wait.futex.words[3] = 0x7f12u;
}

static void words_unreadable(struct wg_facts *f)
{
	struct wg_thread *t = MAIN(proc(f, 100, "app"));

	futex(t, 0x10, 128, 2);
	t->wait.futex.nwords = 0;
}

static struct wg_process *gil(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "python");

	p->python.present = p->python.gil_known = p->python.gil_held = true;
	p->python.gil_cond = 0x5000;
	p->python.gil_cond_end = 0x5030;
	return p;
}

static void wants_gil(struct wg_thread *t)
{
	cond(t, 0x5028);
	timeout(t, 0.005);
	t->wait.since_s = 0.003;
	t->last_ran_s = 0.003;
	t->switches = 60;
	t->has_python = true;
}

static void gil_inversion(struct wg_facts *f)
{
	struct wg_process *p = gil(f);

	p->python.gil_holder = 100;
	wants_gil(thr(f, p, 101, "python"));
	mutex(MAIN(p), 0x10, 101);
}

static void gil_computing(struct wg_facts *f)
{
	struct wg_process *p = gil(f);

	p->python.gil_holder = 101;
	wants_gil(MAIN(p));
	runs(thr(f, p, 101, "python"));
}

static void gil_waiter_awake(struct wg_facts *f) /* met in the moment when it asks again */
{
	gil_computing(f);
	runs(MAIN(f->procs.v[0]));
	MAIN(f->procs.v[0])->cpu_share = 0.003;
	MAIN(f->procs.v[0])->has_python = true;
}

static void gil_sleeping(struct wg_facts *f)
{
	struct wg_process *p = gil(f);

	p->python.gil_holder = 101;
	wants_gil(MAIN(p));
	sleeps(thr(f, p, 101, "python"), 0.1, 0.05);
}

static void gil_held_for_worker(struct wg_facts *f) /* waits with the GIL for one who needs it */
{
	struct wg_process *p = gil(f);

	p->python.gil_holder = 100;
	cond(MAIN(p), 0x10);
	wants_gil(thr(f, p, 101, "worker"));
}

static void gil_spin(struct wg_facts *f) /* polls with the GIL for one who needs it */
{
	struct wg_process *p = gil(f);

	p->python.gil_holder = 100;
	runs(MAIN(p));
	MAIN(p)->repeat_syscall = "sched_yield";
	wants_gil(thr(f, p, 101, "background"));
}

static void gil_unreadable(struct wg_facts *f)
{
	struct wg_process *p = gil(f);

	p->python.gil_known = false;
	wants_gil(MAIN(p));
}

static void gil_after_fork(struct wg_facts *f)
{
	struct wg_process *p = gil(f);

	p->forked = true;
	p->python.gil_holder = 55;
	wants_gil(MAIN(p));
}

static struct wg_pylock *pylock(struct wg_facts *f, struct wg_process *p, uint64_t addr,
				int32_t owner, enum wg_certainty sure)
{
	struct wg_pylock *l = wg_push(f->arena, &p->python.locks);

	l->futex = addr;
	l->object = addr + 0x1000;
	l->kind = "_thread.RLock";
	l->owner_tid = owner;
	l->certainty = sure;
	l->evidence = "rlock_owner";
	return l;
}

static void rlock_cycle(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "python");

	p->python.present = true;
	thr(f, p, 101, "python");
	sem(T(p, 100), 0x10);
	sem(T(p, 101), 0x20);
	python(f, T(p, 100), "app.py:a");
	python(f, T(p, 101), "app.py:b");
	pylock(f, p, 0x10, 101, WG_CERTAIN);
	pylock(f, p, 0x20, 100, WG_CERTAIN);
}

static void pylock_self(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "python");

	p->python.present = true;
	sem(MAIN(p), 0x10);
	python(f, MAIN(p), "app.py:handler app.py:main");
	pylock(f, p, 0x10, 100, WG_LIKELY);
}

static void queue_nobody(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "python");

	sem(MAIN(p), 0x10);
	python(f, MAIN(p), "threading.py:wait queue.py:get app.py:main");
}

static void queue_idle_executor(struct wg_facts *f) /* a spare worker of a pool is nobody's hope */
{
	struct wg_process *p;

	queue_nobody(f);
	p = f->procs.v[0];
	sem(thr(f, p, 101, "ThreadPoolExecu"), 0x90);
	python(f, T(p, 101),
	       "concurrent/futures/thread.py:_worker threading.py:run threading.py:_bootstrap");
}

static void queue_producer_works(struct wg_facts *f)
{
	struct wg_process *p;

	queue_nobody(f);
	p = f->procs.v[0];
	runs(thr(f, p, 101, "producer"));
	python(f, T(p, 101), "app.py:produce threading.py:run");
}

static void nested_pool(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "python");

	sem(MAIN(p), 0x10);
	python(f, MAIN(p), "threading.py:wait concurrent/futures/_base.py:result app.py:main");
	for (int i = 0; i < 2; i++) {
		sem(thr(f, p, 101 + i, "pool"), 0x20 + (uint64_t)i * 16);
		python(f, T(p, 101 + i),
		       "threading.py:wait concurrent/futures/_base.py:result app.py:task "
		       "concurrent/futures/thread.py:run concurrent/futures/thread.py:_worker "
		       "threading.py:run");
	}
}

static void
nested_thread_pool(struct wg_facts *f) /* multiprocessing.pool.ThreadPool, of one worker */
{
	struct wg_process *p = proc(f, 100, "python");

	sem(MAIN(p), 0x10);
	python(f, MAIN(p),
	       "threading.py:wait multiprocessing/pool.py:wait multiprocessing/pool.py:get "
	       "app.py:main");
	sem(thr(f, p, 101, "pool"), 0x20);
	python(f, T(p, 101),
	       "threading.py:wait multiprocessing/pool.py:wait multiprocessing/pool.py:get "
	       "app.py:task multiprocessing/pool.py:worker threading.py:run");
}

static void nested_pool_free_worker(struct wg_facts *f)
{
	struct wg_process *p;

	nested_pool(f);
	p = f->procs.v[0];
	runs(thr(f, p, 110, "pool"));
	python(f, T(p, 110),
	       "app.py:task concurrent/futures/thread.py:run "
	       "concurrent/futures/thread.py:_worker threading.py:run");
}

static void python_join_stuck(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "python");

	sem(MAIN(p), 0x10);
	python(f, MAIN(p), "threading.py:_wait_for_tstate_lock threading.py:join app.py:main");
	sem(thr(f, p, 101, "python"), 0x20);
	python(f, T(p, 101), "threading.py:wait queue.py:get app.py:consume threading.py:run");
}

static void
python_join_one_of_two(struct wg_facts *f) /* one stuck, one periodic: which is joined? */
{
	struct wg_process *p;

	python_join_stuck(f);
	p = f->procs.v[0];
	mutex(T(p, 101), 0x20, 133);
	sleeps(thr(f, p, 102, "python"), 1, 0.2);
	python(f, T(p, 102), "app.py:tick threading.py:run");
}

static void python_join_timer(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "python");

	sem(MAIN(p), 0x10);
	python(f, MAIN(p), "threading.py:_wait_for_tstate_lock threading.py:join app.py:main");
	sleeps(thr(f, p, 101, "python"), 1, 0.2);
	python(f, T(p, 101), "app.py:tick threading.py:run");
}

static void shutdown_join(struct wg_facts *f)
{
	struct wg_process *p;

	python_join_stuck(f);
	p = f->procs.v[0];
	MAIN(p)->python_stack.n = 0;
	python(f, MAIN(p), "threading.py:_shutdown");
	p->python.main_in_shutdown = true;
}

static void once_held(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	futex(MAIN(p), 0x10, 128, 0x10100);
	native(f, MAIN(p),
	       "libc.so.6:syscall libstdc++.so.6:__cxa_guard_acquire app:config app:main");
	thr(f, p, 101, "first");
	mutex(T(p, 101), 0x90, 100);
	native(f, T(p, 101), "libc.so.6:pthread_mutex_lock app:load app:config app:thread");
}

static void pool_idle(struct wg_facts *f) /* a healthy server: accept, and a pool without work */
{
	struct wg_process *p = proc(f, 100, "server");
	struct wg_file *x = file(f, p, 3, WG_FILE_SOCKET, 500, O_RDWR);

	x->sock_state = WG_SOCK_LISTEN;
	x->sock_local = "0.0.0.0:80";
	io(MAIN(p), WG_OP_ACCEPT, 3);
	for (int i = 0; i < 8; i++) {
		cond(thr(f, p, 101 + i, "worker"), 0x20);
		native(f, T(p, 101 + i), "libc.so.6:pthread_cond_wait server:next server:worker");
	}
}

static void shared_sem(struct wg_facts *f) /* multiprocessing.Lock: nobody can tell who has it */
{
	struct wg_process *p = proc(f, 100, "python");

	sem(MAIN(p), 0x10);
	MAIN(p)->wait.futex.is_shared = true;
	MAIN(p)->wait.futex.op = 9 | 256;
}

static void
shared_sem_kin_stopped(struct wg_facts *f) /* the family shares it; the one who posts is stopped */
{
	struct wg_process *q;

	shared_sem(f);
	MAIN(f->procs.v[0])->wait.futex.has_map = true;
	MAIN(f->procs.v[0])->wait.futex.map_ino = 55;
	f->procs.v[0]->exe = "/usr/bin/app";
	q = proc(f, 200, "python");
	q->exe = "/usr/bin/app";
	child_of(f, q, f->procs.v[0]);
	stops(q);
}

static void shared_sem_kin_works(struct wg_facts *f)
{
	shared_sem_kin_stopped(f);
	f->procs.v[1]->state = 'S';
	runs(MAIN(f->procs.v[1]));
}

static void shared_sem_kin_killed(struct wg_facts *f)
{
	shared_sem_kin_stopped(f);
	dead(f->procs.v[1], 0, 9);
}

static void shared_sem_stranger(
	struct wg_facts *f) /* a child of another program is no relative of the object */
{
	shared_sem_kin_stopped(f);
	f->procs.v[1]->exe = "/usr/bin/other";
}

static void mp_lock_held(struct wg_facts *f) /* the process that has it knows that it does */
{
	struct wg_pylock *l;

	shared_sem_stranger(f);
	f->procs.v[1]->state = 'S';
	MAIN(f->procs.v[1])->state = 'S';
	pauses(MAIN(f->procs.v[1]));
	mutex(MAIN(f->procs.v[1]), 0x99, 200);
	l = wg_push(f->arena, &f->procs.v[1]->python.locks);
	l->has_map = true;
	l->map_ino = 55;
	l->owner_tid = 200;
	l->kind = "SemLock";
}

static void mp_lock_owner_gone(struct wg_facts *f)
{
	mp_lock_held(f);
	f->procs.v[1]->python.locks.v[0].owner_gone = true;
	f->procs.v[1]->python.locks.v[0].owner_tid = 0;
}

static void
future_on_heap(struct wg_facts *f) /* no private flag, but memory of this process alone */
{
	struct wg_thread *t = MAIN(proc(f, 100, "app"));

	futex(t, 0x10, 0, 0x80000000u);
	t->wait.futex.has_map = true;
	t->wait.futex.map_path = "[heap]";
	native(f, t, "libc.so.6:syscall libstdc++.so.6:std::__atomic_futex app:main");
}

static void
guards_inlined(struct wg_facts *f) /* two initialisations wait for each other, one inlined away */
{
	struct wg_process *p = proc(f, 100, "app");

	join(MAIN(p), 101);
	futex(thr(f, p, 101, "a"), 0x10, 0, 0x10100);
	futex(thr(f, p, 102, "b"), 0x20, 0, 0x10100);
	T(p, 101)->wait.futex.has_map = T(p, 102)->wait.futex.has_map = true;
	native(f, T(p, 101),
	       "libc.so.6:syscall libstdc++.so.6:__cxa_guard_acquire app:codecs app:Registry "
	       "app:devices");
	native(f, T(p, 102),
	       "libc.so.6:syscall libstdc++.so.6:__cxa_guard_acquire app:devices app:Registry "
	       "app:run");
}

static void forked_gomp(struct wg_facts *f) /* the parent's pool rests where the child waits */
{
	struct wg_process *p = proc(f, 100, "app"), *c = proc(f, 120, "app");

	child_of(f, c, p);
	c->forked = true;
	waits_child(MAIN(p), 120);
	futex(thr(f, p, 101, "app"), 0x50, 128, 8);
	native(f, T(p, 101), "libgomp.so.1 libgomp.so.1:gomp_thread_start libc.so.6:start_thread");
	futex(MAIN(c), 0x60, 128, 8);
	native(f, MAIN(c), "libgomp.so.1 libgomp.so.1:GOMP_parallel app:region app:child_main");
}

static void forked_own_condition(struct wg_facts *f) /* the parent's pool is of another library */
{
	forked_gomp(f);
	MAIN(f->procs.v[1])->native_stack.n = 0;
	native(f, MAIN(f->procs.v[1]),
	       "libc.so.6:pthread_cond_wait app:wait_for_go app:child_main");
}

static void stdio_owner_gone(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	MAIN(p)->fsbase = 0x7f0000001740ull;
	futex(MAIN(p), 0x10, 128, 2);
	MAIN(p)->wait.futex.words[1] = 1;
	MAIN(p)->wait.futex.words[2] = 0x345678c0u;
	MAIN(p)->wait.futex.words[3] = 0x7f12u;
	native(f, MAIN(p), "libc.so.6:__lll_lock_wait_private libc.so.6:puts app:main");
}

static void
forked_acquire_line(struct wg_facts *f) /* it took it at the same line, which the collector saw */
{
	forked_python_lock(f);
	pylock(f, f->procs.v[0], 0x10, 120, WG_LIKELY)->evidence =
		"called acquire() at /home/u/app.py:10 and not release()";
}

static void forked_acquire_earlier(struct wg_facts *f) /* it took it itself, at another line */
{
	forked_python_lock(f);
	pylock(f, f->procs.v[0], 0x10, 120, WG_LIKELY)->evidence =
		"called acquire() at /home/u/app.py:7 and not release()";
}

static void owner_is_zombie_leader(struct wg_facts *f) /* main left by pthread_exit with the lock */
{
	struct wg_process *p = proc(f, 100, "app");

	MAIN(p)->state = 'Z';
	thr(f, p, 101, "worker");
	mutex(T(p, 101), 0x10, 100);
}

static const struct graph_case cases[] = {
	{"abba", abba, "deadlock", WG_HUNG_YES, 100, 0, "mutex 0x20", -1},
	{"abba in a pool, main polls", abba_pool, "deadlock", WG_HUNG_YES, 100, 0, NULL, -1},
	{"contention is no deadlock", contended, "progressing", WG_HUNG_NO, 0, 0, NULL, 0},
	{"ring of three behind main", ring_of_three, "deadlock", WG_HUNG_YES, 100, 0, "thread 102",
	 -1},
	{"owner computes", owner_computes, "busy-cpu", WG_HUNG_NO, 100, 101, NULL, 0},
	{"owner sleeps", owner_sleeps, "idle", WG_HUNG_NO, 0, 0, NULL, 0},
	{"self", self, "lock-self", WG_HUNG_YES, 100, 100, NULL, -1},
	{"chain to self", chain_to_self, "lock-self", WG_HUNG_YES, 100, 101, NULL, -1},
	{"orphan", orphan, "lock-orphaned", WG_HUNG_YES, 100, 133, "has ended", -1},
	{"orphan, one look only", orphan_one_look, "unknown", WG_HUNG_NULL, 0, 0, "one look", 0},
	{"implausible owner", implausible_owner, "busy-cpu", WG_HUNG_NO, 0, 0, NULL, 0},
	{"orphan while another runs", orphan_with_other_thread_running, "lock-orphaned",
	 WG_HUNG_YES, 100, 133, NULL, 0},
	{"a parked thread of Rust's", rust_park, "no-waker", WG_HUNG_YES, 0, 100, NULL, 0},
	{"Rust's read-write lock", rust_rwlock, "busy-cpu", WG_HUNG_NO, 0, 101, NULL, 0},
	{"robust, owner died", robust_dead, "lock-orphaned", WG_HUNG_YES, 0, 133, NULL, 0},
	{"robust, owner in another process", robust_live, "busy-cpu", WG_HUNG_NO, 200, 200, NULL,
	 0},
	{"priority inheritance, self", pi_self, "lock-self", WG_HUNG_YES, 100, 100, NULL, -1},
	{"timed lock of an hour, orphan", timed_orphan, "lock-orphaned", WG_HUNG_YES, 0, 133,
	 "timeout", 0},
	{"timed lock of a second", timed_short, "idle", WG_HUNG_NO, 0, 0, NULL, 0},
	{"shared, owner gone", shared_gone, "lock-orphaned", WG_HUNG_YES, 200, 200, NULL, 0},
	{"shared, owner zombie", shared_gone_zombie, "lock-orphaned", WG_HUNG_YES, 200, 200, NULL,
	 0},
	{"shared, owner not looked up", shared_unknown, "unknown", WG_HUNG_NULL, 0, 0, "200", 0},
	{"shared, all mappers seen", shared_all_mappers_seen, "lock-orphaned", WG_HUNG_YES, 200, 0,
	 NULL, 1},
	{"shared, owner pauses", shared_held, "idle", WG_HUNG_NO, 200, 0, NULL, 0},
	{"shared cycle of processes", shared_cycle, "deadlock", WG_HUNG_YES, 0, 0, NULL, -1},
	{"shared, other namespace", shared_other_namespace, "unknown", WG_HUNG_NULL, 0, 0, "60", 0},
	{"after fork", after_fork, "lock-after-fork", WG_HUNG_YES, 120, 0, "101", 0},
	{"after fork, parent gone", after_fork_parent_gone, "lock-after-fork", WG_HUNG_YES, 120, 0,
	 NULL, 1},
	{"forked, its own orphan", forked_own_orphan, "lock-orphaned", WG_HUNG_YES, 120, 133, NULL,
	 0},
	{"forked, plain contention", forked_contention, "busy-cpu", WG_HUNG_NO, 120, 121, NULL, 0},
	{"forked, semaphore", forked_sem, "lock-after-fork", WG_HUNG_YES, 120, 0, NULL, 1},
	{"forked, Python lock", forked_python_lock, "lock-after-fork", WG_HUNG_YES, 120, 0, NULL,
	 1},
	{"forked, lock and a feeder", forked_lock_and_feeder, "lock-after-fork", WG_HUNG_YES, 120,
	 0, NULL, 1},
	{"forked, pool lost", forked_pool_lost, "no-waker", WG_HUNG_YES, 120, 0, NULL, 0},
	{"not forked, semaphore", spawned_sem, "no-waker", WG_HUNG_YES, 120, 0, NULL, 0},
	{"condition, nobody", cond_nobody, "no-waker", WG_HUNG_YES, 100, 100, NULL, 0},
	{"condition among bystanders", cond_and_bystanders, "no-waker", WG_HUNG_YES, 100, 100, NULL,
	 1},
	{"condition and our own helper", cond_and_our_helper, "no-waker", WG_HUNG_YES, 100, 100,
	 NULL, 0},
	{"condition, worker computes", cond_worker_computes, "busy-cpu", WG_HUNG_NO, 0, 0, NULL, 0},
	{"condition, periodic worker", cond_periodic, "idle", WG_HUNG_NO, 0, 0, NULL, 0},
	{"condition, producer locked out", cond_producer_locked_out, "deadlock", WG_HUNG_YES, 0, 0,
	 NULL, 1},
	{"condition, producer reads", cond_producer_reads, "peer-silent", WG_HUNG_YES, 200, 0, NULL,
	 1},
	{"condition, both wait", cond_both_wait, "no-waker", WG_HUNG_YES, 100, 0, NULL, 1},
	{"condition, timed", cond_timed, "idle", WG_HUNG_NO, 0, 0, NULL, 0},
	{"condition, half an hour", cond_half_an_hour, "unknown", WG_HUNG_NULL, 0, 0, NULL, 0},
	{"condition, young", cond_young, "unknown", WG_HUNG_NULL, 0, 0, "pause", 0},
	{"condition, woken", cond_woken, "progressing", WG_HUNG_NO, 0, 0, NULL, 0},
	{"join a worker that computes", join_worker, "busy-cpu", WG_HUNG_NO, 100, 101, NULL, 0},
	{"join a worker without work", join_queue, "no-waker", WG_HUNG_YES, 100, 101, NULL, 1},
	{"join a worker that wants my lock", join_cycle, "deadlock", WG_HUNG_YES, 0, 0, NULL, -1},
	{"read-write lock, writer", rwlock_writer, "deadlock", WG_HUNG_YES, 0, 0, NULL, -1},
	{"read-write lock, readers", rwlock_readers, "busy-cpu", WG_HUNG_NO, 0, 0, NULL, 0},
	{"stdio lock", stdio_lock, "deadlock", WG_HUNG_YES, 0, 0, "stdio", -1},
	{"words unreadable", words_unreadable, "unknown", WG_HUNG_NULL, 0, 0, "futex words", 0},
	{"GIL and mutex", gil_inversion, "deadlock", WG_HUNG_YES, 100, 0, "GIL", -1},
	{"GIL holder computes", gil_computing, "busy-cpu", WG_HUNG_NO, 100, 101, NULL, 0},
	{"GIL waiter met awake", gil_waiter_awake, "busy-cpu", WG_HUNG_NO, 100, 101, "GIL", 0},
	{"GIL holder naps", gil_sleeping, "idle", WG_HUNG_NO, 0, 0, NULL, 0},
	{"GIL held for one who needs it", gil_held_for_worker, "deadlock", WG_HUNG_YES, 0, 0, NULL,
	 1},
	{"GIL held while polling", gil_spin, "deadlock", WG_HUNG_YES, 0, 0, NULL, 1},
	{"GIL holder unreadable", gil_unreadable, "unknown", WG_HUNG_NULL, 0, 0, "GIL", 0},
	{"GIL after fork", gil_after_fork, "lock-after-fork", WG_HUNG_YES, 100, 0, NULL, 0},
	{"RLock cycle", rlock_cycle, "deadlock", WG_HUNG_YES, 0, 0, "_thread.RLock", -1},
	{"Python lock held by itself", pylock_self, "lock-self", WG_HUNG_YES, 100, 100, NULL, 1},
	{"queue, nobody", queue_nobody, "no-waker", WG_HUNG_YES, 100, 100, "queue", 0},
	{"queue, idle executor", queue_idle_executor, "no-waker", WG_HUNG_YES, 100, 100, NULL, 1},
	{"queue, producer works", queue_producer_works, "busy-cpu", WG_HUNG_NO, 0, 0, NULL, 0},
	{"nested pool", nested_pool, "deadlock", WG_HUNG_YES, 0, 0, "pool", 1},
	{"nested thread pool of one", nested_thread_pool, "deadlock", WG_HUNG_YES, 0, 0, NULL, 1},
	{"nested pool with a free worker", nested_pool_free_worker, "busy-cpu", WG_HUNG_NO, 0, 0,
	 NULL, 0},
	{"Python join, stuck", python_join_stuck, "no-waker", WG_HUNG_YES, 100, 101, NULL, 1},
	{"Python join, one of two", python_join_one_of_two, "lock-orphaned", WG_HUNG_YES, 0, 133,
	 NULL, 0},
	{"Python join, timer", python_join_timer, "idle", WG_HUNG_NO, 0, 0, NULL, 0},
	{"shutdown joins", shutdown_join, "no-waker", WG_HUNG_YES, 100, 101, "left the program", 1},
	{"static initialisation", once_held, "deadlock", WG_HUNG_YES, 0, 0, NULL, 1},
	{"idle server with a pool", pool_idle, "idle", WG_HUNG_NO, 0, 0, NULL, 0},
	{"shared semaphore", shared_sem, "unknown", WG_HUNG_NULL, 0, 0, "shared", 0},
	{"shared semaphore, relative stopped", shared_sem_kin_stopped, "stopped", WG_HUNG_YES, 200,
	 0, NULL, 1},
	{"shared semaphore, relative works", shared_sem_kin_works, "busy-cpu", WG_HUNG_NO, 200, 0,
	 NULL, 0},
	{"shared semaphore, relative killed", shared_sem_kin_killed, "peer-dead", WG_HUNG_YES, 200,
	 0, NULL, 1},
	{"shared semaphore, stranger", shared_sem_stranger, "unknown", WG_HUNG_NULL, 0, 0, NULL, 0},
	{"multiprocessing lock, held", mp_lock_held, "lock-self", WG_HUNG_YES, 200, 0, NULL, 0},
	{"multiprocessing lock, owner gone", mp_lock_owner_gone, "lock-orphaned", WG_HUNG_YES, 0, 0,
	 NULL, 0},
	{"future on the heap", future_on_heap, "no-waker", WG_HUNG_YES, 100, 100, "future", 0},
	{"static initialisations, inlined", guards_inlined, "deadlock", WG_HUNG_YES, 0, 0, NULL, 1},
	{"forked, OpenMP's pool", forked_gomp, "lock-after-fork", WG_HUNG_YES, 120, 0, "pool", 1},
	{"forked, condition of its own", forked_own_condition, "no-waker", WG_HUNG_YES, 120, 0,
	 NULL, 0},
	{"stdio lock, owner gone", stdio_owner_gone, "lock-orphaned", WG_HUNG_YES, 100, 0, NULL, 0},
	{"forked, a lock it took at this line", forked_acquire_line, "lock-self", WG_HUNG_YES, 120,
	 0, NULL, 1},
	{"forked, a lock it took itself", forked_acquire_earlier, "lock-self", WG_HUNG_YES, 120, 0,
	 NULL, 1},
	{"owner is a zombie leader", owner_is_zombie_leader, "lock-orphaned", WG_HUNG_YES, 100, 100,
	 NULL, 0},
};

RUN_CASES(cases)
