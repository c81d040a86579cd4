/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_graph_random.c - facts without sense: snapshots come from files that anyone may have
 * written. Whatever they say, the engine ends, stays inside its memory (see WG_SANITIZE) and keeps
 * the contract's promises: class and hung fit each other, ids are unique, edges point at nodes.
 */
#include "graph_facts.h"

static uint64_t seed;

static uint32_t rnd(uint32_t n)
{
	seed = seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(seed >> 33) % n;
}

static double some_time(void)
{
	static const double t[] = {0, 0.001, 0.4, 1.5, 3, 12, 70, 5000, -1};
	uint32_t i = rnd(11);

	return i < 9 ? t[i] : WG_NO_SEC;
}

static int64_t some_int(void)
{
	static const int64_t t[] = {0, 1, 2, 20, 65536, -1, INT64_MAX, 1 << 21};
	uint32_t i = rnd(9);

	return i < 8 ? t[i] : WG_NO_INT;
}

static const char *some_name(void)
{
	static const char *const t[] = {
		"app",	 "pthread_mutex_lock",	 "futex_wait", "cuStreamSynchronize",
		"wait",	 "__cxa_guard_acquire",	 "worker",     "GOMP_parallel",
		"lock",	 "sched_yield",		 "newfstatat", "flock",
		"wait4", "take_gil",		 "socket",     "c0ffee",
		"init",	 "finalizing",		 "destroyed",  "AllReduce",
		"Send",	 "Recv",		 "vfork",      "rt_sigsuspend",
	};
	uint32_t i = rnd(sizeof(t) / sizeof(t[0]) + 1);

	return i ? t[i - 1] : NULL;
}

static void random_thread(struct wg_facts *f, struct wg_process *p, int32_t tid)
{
	static const char states[] = {'R', 'S', 'D', 'T', 't', 'Z', 'X', 0};
	struct wg_thread *t = thr(f, p, tid, some_name());
	uint32_t n;

	t->state = states[rnd(sizeof(states))];
	t->sampled_twice = rnd(3);
	t->same_place = rnd(3);
	t->switches = rnd(3) ? 0 : some_int();
	t->cpu_share = some_time();
	t->last_ran_s = some_time();
	t->wait.op = (enum wg_op)rnd(WG_OP_OTHER + 3);
	t->wait.since_s = some_time();
	t->wait.timeout_s = rnd(2) ? WG_NO_SEC : some_time();
	t->wait.fd = rnd(6);
	t->wait.child = rnd(2) ? -1 : 100 + (int64_t)rnd(6) * 10;
	t->wait.syscall_name = some_name();
	t->wait.path = some_name();
	t->wait.has_args = rnd(2);
	t->wait.futex.addr = rnd(4) * 16;
	t->wait.futex.op = (int)rnd(14) | (rnd(2) ? 128 : 0);
	t->wait.futex.val = rnd(4);
	t->wait.futex.nwords = (int)rnd(WG_FUTEX_WORDS + 1);
	t->wait.futex.is_shared = rnd(2);
	t->wait.futex.has_map = rnd(2);
	t->wait.futex.map_ino = rnd(3);
	for (int i = 0; i < WG_FUTEX_WORDS; i++)
		t->wait.futex.words[i] = rnd(3) ? 100 + rnd(6) * 10 + rnd(3) : rnd(5);
	t->waker_tid = 100 + (int32_t)rnd(40);
	t->ours = !rnd(9);
	t->has_python = rnd(2);
	t->between_unseen = rnd(2);
	t->repeat_syscall = rnd(4) ? NULL : some_name();
	t->repeat_path = rnd(3) ? NULL : "/c/lock";
	t->repeat_errno = some_int();
	t->repeat_fd = rnd(6);
	t->repeat_exists = some_int();
	for (n = rnd(3); n; n--) {
		struct wg_pollfd *x = wg_push(f->arena, &t->wait.fds);

		x->fd = (int)rnd(7) - 1;
		x->events = (int16_t)rnd(8);
	}
	for (n = rnd(5); n; n--) {
		struct wg_frame *x = wg_push(f->arena, &t->native_stack);
		static const char *const mods[] = {"/l/libc.so.6", "/l/libcuda.so.1", "/l/libgomp.so.1",
						   "/bin/app", "/l/libnccl.so.2", NULL};

		x->module = mods[rnd(6)];
		x->symbol = some_name();
		x->pc = rnd(5);
		x->offset = rnd(5);
		x->line = some_int();
	}
	for (n = rnd(3); n; n--) {
		struct wg_pyframe *x = wg_push(f->arena, &t->python_stack);

		x->function = rnd(3) ? "wait" : some_name();
		x->file = rnd(2) ? "/usr/lib/python3.12/threading.py" : rnd(2) ? "/home/u/a.py" : NULL;
		x->line = some_int();
	}
	if (!rnd(3))
		*wg_push(f->arena, &t->kernel_stack) = rnd(2) ? "nvidia_ioctl" : "io_schedule";
	for (n = rnd(4) ? 0 : 1 + rnd(2); n; n--) {
		struct wg_call *c = wg_add_call(f, t);

		c->function = some_name();
		c->kind = (enum wg_call_kind)rnd(WG_CALL_COMM + 2);
		c->since_s = some_time();
		c->device = rnd(2) ? 0 : some_int();
		c->stream = rnd(3);
		c->has_stream = rnd(2);
		c->object = rnd(3);
		c->event_known = rnd(2);
		c->event_recorded = rnd(2);
		c->event_remote = !rnd(4);
		c->event_stream_ix = some_int();
		c->event_seq = rnd(60);
	}
}

static void random_gpu(struct wg_facts *f, struct wg_process *p)
{
	for (uint32_t n = rnd(3); n; n--) {
		size_t ix = stream(f, p, rnd(3));
		struct wg_stream *s = &p->streams.v[ix];

		s->device = rnd(3) ? 0 : some_int();
		s->completed_exact = rnd(2);
		s->completed_delta = rnd(4) ? 0 : rnd(9);
		s->progress_age_s = some_time();
		s->longest_gap_s = some_time();
		for (uint32_t k = rnd(5); k; k--) {
			struct wg_gpu_item *x = item(f, p, ix, (enum wg_gpu_op)rnd(WG_GPU_MARK + 2), some_name());

			x->object = rnd(3);
			x->value = rnd(3);
			x->flags = rnd(5);
			x->current = rnd(3);
			x->has_current = rnd(2);
			x->comm = some_int();
			x->coll_seq = rnd(4);
			x->event_recorded = rnd(2);
			x->event_remote = !rnd(4);
			x->event_stream_ix = some_int();
			x->event_seq = rnd(60);
			x->age_s = some_time();
			x->p2p = !rnd(3);
			x->nccl_inner = !rnd(3);
			x->tid = 100 + (int32_t)rnd(40);
		}
	}
	for (uint32_t n = rnd(3); n; n--) {
		struct wg_comm *c = comm(f, p, rnd(2) ? "c0ffee" : some_name(), rnd(2) ? rnd(4) : some_int(),
					 rnd(2) ? 4 : some_int());

		c->state = some_name();
		c->age_s = some_time();
		c->next_sequence = rnd(4);
		c->done = rnd(4);
		c->done_known = rnd(2);
		for (uint32_t k = rnd(4); k; k--) {
			struct wg_collective *x = wg_add_collective(f, &p->comms.v[p->comms.n - 1]);

			x->sequence = rnd(4);
			x->op = some_name();
			x->count = some_int();
			x->root = some_int();
			x->state = rnd(3);
			x->state_known = rnd(2);
			x->age_s = some_time();
			x->p2p = !rnd(3);
			x->host_blocked = rnd(2);
			x->stream = rnd(3);
			x->tid = 100 + (int32_t)rnd(40);
		}
	}
	if (!rnd(3)) {
		struct wg_peer *x = wg_push(f->arena, &p->peers);

		x->comm = "c0ffee";
		x->rank = some_int();
		x->pid = some_int();
		x->alive_known = rnd(2);
	}
}

static void random_process(struct wg_facts *f, int32_t pid)
{
	struct wg_process *p = proc(f, pid, some_name());

	p->threads.n = 0;
	for (uint32_t n = rnd(4); n; n--)
		random_thread(f, p, pid + (int32_t)n - 1);
	p->ppid = 100 + (int32_t)rnd(6) * 10;
	p->alive = rnd(4);
	p->stub = !rnd(5);
	p->forked = !rnd(3);
	p->from_snapshot = !rnd(4);
	p->trace_only = !rnd(9);
	p->alive_known = rnd(2);
	p->pidns = rnd(3);
	p->ns_pid = rnd(2) ? pid : (int32_t)rnd(10);
	p->host = rnd(4) ? f->host : "node2";
	p->rank = some_int();
	p->world = some_int();
	p->recorded = rnd(2);
	p->exe = some_name();
	p->calls_delta = some_int();
	p->cgroup.frozen = !rnd(9);
	p->end.known = rnd(2);
	p->end.signal = (int32_t)rnd(3) * 9;
	p->tracer_pid = !rnd(6) ? 110 : 0;
	p->python.present = rnd(2);
	p->python.gil_known = rnd(2);
	p->python.gil_held = rnd(2);
	p->python.gil_holder = 100 + (int32_t)rnd(40);
	p->python.gil_cond = rnd(3) ? 0 : 16;
	p->python.gil_cond_end = 40;
	for (uint32_t n = rnd(3); n; n--) {
		struct wg_pylock *l = wg_push(f->arena, &p->python.locks);

		l->futex = rnd(4) * 16;
		l->owner_tid = rnd(2) ? 0 : 100 + (int32_t)rnd(40);
		l->waiter_tid = rnd(2) ? 0 : 100 + (int32_t)rnd(40);
		l->certainty = (enum wg_certainty)rnd(3);
		l->owner_gone = !rnd(3);
		l->has_map = rnd(2);
		l->map_ino = rnd(3);
		l->evidence = some_name();
	}
	for (uint32_t n = rnd(6); n; n--) {
		struct wg_file *x = file(f, p, (int)n - 1, (enum wg_file_kind)rnd(WG_FILE_URING + 1), rnd(5),
					 (int64_t)rnd(3));

		x->sock_state = (enum wg_sock_state)rnd(WG_SOCK_UNCONNECTED + 1);
		x->sock_peer_ino = rnd(5);
		x->sock_local = some_name();
		x->sock_remote = some_name();
		x->pipe_fill = some_int();
		x->pipe_size = some_int();
		x->fs_daemon_pid = rnd(3) ? 0 : 120;
		x->pty_index = (int32_t)rnd(3) - 1;
		x->pidfd_pid = 100 + (int32_t)rnd(6) * 10;
		x->user_buffered_bytes = some_int();
		x->timer_left_s = some_time();
	}
	for (uint32_t n = rnd(3); n; n--)
		*wg_push(f->arena, &p->children) = 100 + (int32_t)rnd(6) * 10;
	random_gpu(f, p);
	if (!rnd(3)) {
		struct wg_failure *x = wg_add_failure(f, wg_add_device(f, p));

		x->recovered_known = rnd(2);
		x->recovered = rnd(2);
		x->tid = pid;
		x->age_s = some_time();
		x->asked = some_int();
		x->free = some_int();
		x->short_by = some_int();
	}
}

static void check(const struct wg_graph *g)
{
	static const char *const quiet = "busy-cpu|busy-gpu|log-buffered|idle|progressing";
	const struct wg_verdict *v = &g->verdict;

	assert_non_null(v->class_name);
	assert_non_null(v->summary);
	assert_non_null(v->advice);
	if (word_in(quiet, v->class_name))
		assert_int_equal(v->hung, WG_HUNG_NO);
	else if (strcmp(v->class_name, "unknown"))
		assert_int_equal(v->hung, WG_HUNG_YES);
	else
		assert_int_not_equal(v->hung, WG_HUNG_NO);
	for (size_t i = 0; i < g->edges.n; i++) {
		assert_true(g->edges.v[i].from < g->nodes.n && g->edges.v[i].to < g->nodes.n);
		assert_non_null(g->edges.v[i].evidence);
	}
	for (size_t i = 0; i < g->nodes.n; i++) {
		assert_non_null(g->nodes.v[i].label);
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(g->nodes.v[i].id, g->nodes.v[k].id);
	}
	for (size_t i = 0; i < v->chain.n; i++)
		assert_non_null(v->chain.v[i]);
}

static void senseless(void **state)
{
	(void)state;
	for (uint64_t round = 1; round <= 4000; round++) {
		struct wg_facts *f;
		struct wg_graph *g;

		seed = round * 0x9e3779b97f4a7c15ull;
		f = facts();
		f->is_root = rnd(2);
		f->live = rnd(2);
		f->fd_scan_complete = rnd(2);
		f->interval_s = rnd(2) ? 0.3 : 0;
		for (uint32_t n = 1 + rnd(6), i = 0; i < n; i++)
			random_process(f, 100 + (int32_t)i * 10);
		for (uint32_t n = rnd(3); n; n--) {
			struct wg_file_lock *l = wg_push(f->arena, &f->locks);

			l->kind = rnd(2) ? 'f' : 'p';
			l->pid = rnd(4) ? 100 + (int32_t)rnd(6) * 10 : -1;
			l->dev = 8;
			l->ino = rnd(5);
			l->blocked = rnd(2);
		}
		if (rnd(3))
			f->asked.n = rnd(2) ? 0 : f->asked.n;
		g = wg_graph_build(f);
		check(g);
		wg_graph_free(g);
		wg_facts_free(f);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(senseless)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
