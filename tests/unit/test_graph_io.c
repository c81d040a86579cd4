/* SPDX-License-Identifier: Apache-2.0 */
/* test_graph_io.c - pipes, sockets, terminals, children, files, limits, polling, stopping. */
#include "graph_facts.h"

#include <errno.h>

/* writer 100 -> reader 200 through pipe 900, whose state the caller sets */
static struct wg_process *full(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "writer"), *q = proc(f, 200, "reader");

	pipe_end(f, p, 1, 900, true);
	pipe_end(f, q, 0, 900, false);
	io(MAIN(p), WG_OP_WRITE, 1);
	return q;
}

static void full_idle(struct wg_facts *f)
{
	pauses(MAIN(full(f)));
}
static void full_busy(struct wg_facts *f)
{
	runs(MAIN(full(f)));
}
static void full_stopped(struct wg_facts *f)
{
	stops(full(f));
}
static void full_nap(struct wg_facts *f)
{
	sleeps(MAIN(full(f)), 20, 13);
}
static void full_long_sleep(struct wg_facts *f)
{
	sleeps(MAIN(full(f)), 3600, 12);
}
static void full_short_sleeps(struct wg_facts *f)
{
	sleeps(MAIN(full(f)), 1, 0.5);
}

static void full_waitpid(struct wg_facts *f)
{
	struct wg_process *q = full(f), *p = f->procs.v[0];

	child_of(f, p, q);
	f->asked.v[0] = 200;
	waits_child(MAIN(q), 100);
}

static void full_asker(struct wg_facts *f) /* the reader merely waits for our own answer */
{
	struct wg_process *q = full(f), *me = proc(f, 300, "waitgraph");

	f->self_pid = 300;
	child_of(f, me, q);
	child_of(f, f->procs.v[0], q);
	runs(MAIN(me));
	waits_child(MAIN(q), 300);
}

static void full_reader_locked(struct wg_facts *f)
{
	mutex(MAIN(full(f)), 0x10, 200);
}

static void full_reader_unreadable(struct wg_facts *f)
{
	MAIN(full(f))->wait.op = WG_OP_UNKNOWN;
}

/* reader 100 <- writer 200 */
static struct wg_process *empty(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "reader"), *q = proc(f, 200, "writer");

	pipe_end(f, p, 3, 900, false);
	pipe_end(f, q, 4, 900, true);
	child_of(f, q, p);
	io(MAIN(p), WG_OP_READ, 3);
	return q;
}

static void splice_empty(struct wg_facts *f) /* from an empty pipe to one with room */
{
	struct wg_process *q = empty(f), *p = f->procs.v[0];

	pipe_end(f, p, 7, 950, true);
	p->files.v[0].pipe_fill = 0;
	p->files.v[1].pipe_fill = 0;
	p->files.v[1].pipe_size = 65536;
	polls_fd(f, MAIN(p), WG_OP_SPLICE, 3, POLLIN);
	polls_fd(f, MAIN(p), WG_OP_SPLICE, 7, POLLOUT);
	MAIN(p)->wait.fd = 3;
	pauses(MAIN(q));
}

static void splice_full(struct wg_facts *f)
{
	struct wg_process *r;

	splice_empty(f);
	f->procs.v[0]->files.v[1].pipe_fill = 65536;
	f->procs.v[0]->files.v[0].pipe_fill = 4096;
	r = proc(f, 300, "sink");
	pipe_end(f, r, 0, 950, false);
	stops(r);
}

static void full_own(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	pipe_end(f, p, 3, 900, false);
	pipe_end(f, p, 4, 900, true);
	io(MAIN(p), WG_OP_WRITE, 4);
}

static void
full_own_thread(struct wg_facts *f) /* the thread that should read waits for the writer */
{
	struct wg_process *p;

	full_own(f);
	p = f->procs.v[0];
	join(thr(f, p, 101, "reader"), 100);
}

static void full_moves(struct wg_facts *f)
{
	full_idle(f);
	moves(MAIN(f->procs.v[0]));
}

static void empty_silent(struct wg_facts *f)
{
	pauses(MAIN(empty(f)));
}
static void empty_busy(struct wg_facts *f)
{
	runs(MAIN(empty(f)));
}
static void empty_stopped(struct wg_facts *f)
{
	stops(empty(f));
}
static void empty_no_waker(struct wg_facts *f)
{
	cond(MAIN(empty(f)), 0x10);
}
static void empty_locked(struct wg_facts *f)
{
	mutex(MAIN(empty(f)), 0x10, 200);
}
static void empty_timer(struct wg_facts *f)
{
	sleeps(MAIN(empty(f)), 20, 13);
}

static void empty_young(struct wg_facts *f)
{
	empty_silent(f);
	since(MAIN(f->procs.v[0]), 0.7);
}

static void empty_traced(struct wg_facts *f)
{
	struct wg_process *q = empty(f);

	MAIN(q)->state = 't';
	q->tracer_pid = 900;
}

static void empty_frozen(struct wg_facts *f)
{
	struct wg_process *q = empty(f);

	q->cgroup.frozen = true;
	q->cgroup.path = "/job";
}

static void empty_partial_scan(struct wg_facts *f)
{
	empty_silent(f);
	f->fd_scan_complete = false;
}

static void empty_nobody_seen(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "reader");

	f->fd_scan_complete = false;
	pipe_end(f, p, 3, 900, false);
	io(MAIN(p), WG_OP_READ, 3);
}

static void empty_self_only(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "reader");

	pipe_end(f, p, 3, 900, false);
	pipe_end(f, p, 4, 900, true);
	io(MAIN(p), WG_OP_READ, 3);
}

static void empty_leaked(struct wg_facts *f) /* the writer is gone, a stranger has its descriptor */
{
	struct wg_process *p = proc(f, 100, "reader"), *q = proc(f, 200, "reader"),
			  *s = proc(f, 300, "reader");

	child_of(f, q, p);
	dead(q, 0, 0);
	pipe_end(f, p, 3, 900, false);
	pipe_end(f, s, 4, 900, true);
	pauses(MAIN(s));
	io(MAIN(p), WG_OP_READ, 3);
}

static void
empty_reaped(struct wg_facts *f) /* the writer is reaped; an orphaned fork has its descriptor */
{
	struct wg_process *p = proc(f, 100, "reader"), *s = proc(f, 300, "reader");

	pipe_end(f, p, 3, 900, false);
	pipe_end(f, s, 4, 900, true);
	p->exe = s->exe = "/usr/bin/reader";
	s->forked = true;
	pauses(MAIN(s));
	io(MAIN(p), WG_OP_READ, 3);
}

static void empty_other_program(struct wg_facts *f) /* a program of its own, whoever started it */
{
	empty_reaped(f);
	f->procs.v[1]->exe = "/usr/bin/source";
}

static void
empty_unrelated_zombie(struct wg_facts *f) /* the writer lives; another child has ended */
{
	struct wg_process *z;

	empty_silent(f);
	z = proc(f, 250, "helper");
	child_of(f, z, f->procs.v[0]);
	dead(z, 0, 0);
}

static void pool_worker_killed(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "python"), *a = proc(f, 200, "python"),
			  *z = proc(f, 201, "python");

	child_of(f, a, p);
	child_of(f, z, p);
	dead(z, 0, 9);
	pipe_end(f, p, 3, 900, false);
	pipe_end(f, p, 4, 900, true);
	pipe_end(f, a, 4, 900, true);
	pipe_end(f, a, 5, 901, false);
	pipe_end(f, p, 6, 901, true);
	io(MAIN(p), WG_OP_READ, 3);
	io(MAIN(a), WG_OP_READ, 5);
}

static void pool_worker_computes(struct wg_facts *f)
{
	pool_worker_killed(f);
	runs(MAIN(f->procs.v[1]));
}

static void
pool_worker_after_fork(struct wg_facts *f) /* one idle worker, one stuck in a parent's lock */
{
	struct wg_process *z;

	pool_worker_killed(f);
	z = f->procs.v[2];
	z->alive = true;
	z->state = 'S';
	z->end.known = false;
	z->forked = true;
	thr(f, z, 201, "python");
	mutex(MAIN(z), 0x10, 77);
	pipe_end(f, z, 4, 900, true);
}

static void
pool_task_lost(struct wg_facts *f) /* main waits for a result; the pool's worker has no task */
{
	struct wg_process *p = proc(f, 100, "python"), *a = proc(f, 200, "python");

	child_of(f, a, p);
	sem(MAIN(p), 0x10);
	python(f, MAIN(p),
	       "threading.py:wait multiprocessing/pool.py:wait multiprocessing/pool.py:get "
	       "app.py:main");
	thr(f, p, 101, "results");
	python(f, T(p, 101),
	       "multiprocessing/connection.py:recv multiprocessing/pool.py:_handle_results "
	       "threading.py:run");
	pipe_end(f, p, 3, 900, false);
	pipe_end(f, a, 4, 900, true);
	pipe_end(f, a, 5, 901, false);
	pipe_end(f, p, 6, 901, true);
	io(T(p, 101), WG_OP_READ, 3);
	io(MAIN(a), WG_OP_READ, 5);
	python(f, MAIN(a),
	       "multiprocessing/connection.py:recv multiprocessing/queues.py:get "
	       "multiprocessing/pool.py:worker "
	       "multiprocessing/process.py:run app.py:main");
}

static void pool_worker_asked(struct wg_facts *f)
{
	pool_task_lost(f);
	f->asked.v[0] = 200;
}

static void orders_from_idle_parent(struct wg_facts *f) /* a healthy pool, all of it asked about */
{
	struct wg_process *p = proc(f, 100, "python"), *a = proc(f, 200, "python");

	*wg_push(f->arena, &f->asked) = 200;
	child_of(f, a, p);
	pipe_end(f, p, 6, 901, true);
	pipe_end(f, a, 5, 901, false);
	io(MAIN(a), WG_OP_READ, 5);
	sleeps(MAIN(p), 1000, 12);
}

static void both_read(struct wg_facts *f) /* each waits for the other's message */
{
	struct wg_process *p = proc(f, 100, "a"), *q = proc(f, 200, "b");

	sock(f, p, 3, 500, 501);
	sock(f, q, 3, 501, 500);
	io(MAIN(p), WG_OP_READ, 3);
	io(MAIN(q), WG_OP_READ, 3);
}

static void socket_silent(struct wg_facts *f)
{
	both_read(f);
	pauses(MAIN(f->procs.v[1]));
}

static void
socket_peer_dead_end(struct wg_facts *f) /* chain: socket -> process -> dead child's pipe */
{
	struct wg_process *q, *z;

	both_read(f);
	q = f->procs.v[1];
	z = proc(f, 300, "b");
	child_of(f, z, q);
	dead(z, 0, 9);
	pipe_end(f, q, 5, 900, false);
	pipe_end(f, q, 6, 900, true);
	io(MAIN(q), WG_OP_READ, 5);
}

static void server_side(struct wg_facts *f) /* an accepted connection without a request */
{
	struct wg_process *p, *q;
	struct wg_file *l;

	socket_silent(f);
	p = f->procs.v[0];
	q = f->procs.v[1];
	l = file(f, p, 9, WG_FILE_SOCKET, 600, O_RDWR);
	l->sock_state = WG_SOCK_LISTEN;
	l->sock_local = "0.0.0.0:29500";
	p->files.v[0].sock_local = "10.0.0.1:29500";
	(void)q;
}

static void remote_silent(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "a");

	sock(f, p, 3, 500, 0)->sock_remote = "10.0.0.9:29500";
	io(MAIN(p), WG_OP_READ, 3);
}

static void not_accepted(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "client"), *q = proc(f, 200, "server");
	struct wg_file *l = file(f, q, 3, WG_FILE_SOCKET, 600, O_RDWR);

	l->sock_state = WG_SOCK_LISTEN;
	l->sock_local = "127.0.0.1:7000";
	mutex(MAIN(q), 0x10, 200);
	sock(f, p, 3, 500, 0)->sock_remote = "127.0.0.1:7000";
	io(MAIN(p), WG_OP_READ, 3);
}

static void socket_timeout(struct wg_facts *f)
{
	socket_silent(f);
	f->procs.v[0]->files.v[0].sock_rcv_timeout_s = 2;
}

static void epoll_server(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "server");
	struct wg_file *l = file(f, p, 3, WG_FILE_SOCKET, 600, O_RDWR);

	l->sock_state = WG_SOCK_LISTEN;
	polls_fd(f, MAIN(p), WG_OP_EPOLL, 3, POLLIN);
	file(f, p, 5, WG_FILE_EVENTFD, 44, O_RDWR);
	polls_fd(f, MAIN(p), WG_OP_EPOLL, 5, POLLIN);
}

static void
poll_two_pipes(struct wg_facts *f) /* communicate(): stdout and stderr of a deadlocked child */
{
	struct wg_process *p = proc(f, 100, "python"), *q = proc(f, 200, "tool");

	child_of(f, q, p);
	pipe_end(f, p, 3, 900, false);
	pipe_end(f, p, 5, 901, false);
	pipe_end(f, q, 1, 900, true);
	pipe_end(f, q, 2, 901, true);
	polls_fd(f, MAIN(p), WG_OP_POLL, 3, POLLIN);
	polls_fd(f, MAIN(p), WG_OP_POLL, 5, POLLIN);
	mutex(MAIN(q), 0x10, 200);
}

static void poll_compiler(struct wg_facts *f)
{
	poll_two_pipes(f);
	runs(MAIN(f->procs.v[1]));
}

static void poll_unknown(struct wg_facts *f)
{
	struct wg_thread *t = MAIN(proc(f, 100, "app"));

	io(t, WG_OP_POLL, -1);
}

static void poll_timer(struct wg_facts *f)
{
	poll_two_pipes(f);
	pauses(MAIN(f->procs.v[1]));
	timeout(MAIN(f->procs.v[0]), 0.5);
}

static void jobserver(struct wg_facts *f) /* make waits for a token or for the end of a child */
{
	struct wg_process *p = proc(f, 100, "make"), *q = proc(f, 200, "cc1");

	child_of(f, q, p);
	runs(MAIN(q));
	pipe_end(f, p, 3, 900, false);
	pipe_end(f, p, 4, 900, true);
	polls_fd(f, MAIN(p), WG_OP_POLL, 3, POLLIN);
}

static void jobserver_stuck(struct wg_facts *f)
{
	struct wg_thread *t;

	jobserver(f);
	t = MAIN(f->procs.v[1]);
	t->state = 'S';
	t->same_place = true;
	t->switches = 0;
	t->cpu_share = 0;
	since(t, 12);
	mutex(t, 0x10, 200);
}

static void self_pipe_alone(struct wg_facts *f) /* a daemon that waits for signals */
{
	jobserver(f);
	f->procs.v[0]->children.n = 0;
}

static void asyncio_forever(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "python");

	sock(f, p, 6, 500, 501);
	sock(f, p, 7, 501, 500);
	polls_fd(f, MAIN(p), WG_OP_EPOLL, 6, POLLIN);
	python(f, MAIN(p), "selectors.py:select asyncio/base_events.py:_run_once app.py:main");
}

static void asyncio_timer(struct wg_facts *f)
{
	asyncio_forever(f);
	timeout(MAIN(f->procs.v[0]), 30);
}

static void
poll_timer_deadlock(struct wg_facts *f) /* looks again each half second; the child hangs */
{
	poll_two_pipes(f);
	timeout(MAIN(f->procs.v[0]), 0.5);
}

static void
helper_sleeps_main_hangs(struct wg_facts *f) /* the peer's helper thread is no way out */
{
	struct wg_process *q = empty(f);

	mutex(MAIN(q), 0x10, 200);
	sleeps(thr(f, q, 201, "heartbeat"), 1, 0.3);
}

static void helper_works_main_hangs(struct wg_facts *f)
{
	helper_sleeps_main_hangs(f);
	runs(T(f->procs.v[1], 201));
}

static void joins_idle_process(struct wg_facts *f)
{
	empty_silent(f);
	f->procs.v[0]->threads.v[0].wait.fd = WG_NO_INT;
	polls_fd(f, MAIN(f->procs.v[0]), WG_OP_POLL, 3, POLLIN);
	python(f, MAIN(f->procs.v[0]),
	       "selectors.py:select multiprocessing/connection.py:wait "
	       "multiprocessing/popen_fork.py:wait multiprocessing/process.py:join app.py:main");
}

static void sleeping(struct wg_facts *f)
{
	sleeps(MAIN(proc(f, 100, "app")), 3600, 12);
}

static void
loop_one_peer(struct wg_facts *f) /* an event loop with its wake-up and one connection */
{
	struct wg_process *p, *q;

	asyncio_forever(f);
	p = f->procs.v[0];
	q = proc(f, 200, "server");
	sock(f, p, 8, 600, 601);
	sock(f, q, 3, 601, 600);
	polls_fd(f, MAIN(p), WG_OP_EPOLL, 8, POLLIN);
	pauses(MAIN(q));
}

static void loop_one_peer_works(struct wg_facts *f)
{
	loop_one_peer(f);
	runs(MAIN(f->procs.v[1]));
}

static void
handler_hangs(struct wg_facts *f) /* the server's main accepts; the thread that serves us hangs */
{
	struct wg_process *q;

	both_read(f);
	q = f->procs.v[1];
	file(f, q, 9, WG_FILE_SOCKET, 700, O_RDWR)->sock_state = WG_SOCK_LISTEN;
	io(MAIN(q), WG_OP_ACCEPT, 9);
	mutex(thr(f, q, 201, "handler"), 0x10, 201);
}

static struct wg_process *queue_pair(struct wg_facts *f, const char *call)
{
	struct wg_process *p = proc(f, 100, "a"), *q = proc(f, 200, "b");
	struct wg_file *x = file(f, p, 3, WG_FILE_REG, 700, O_RDWR);

	x->path = "/queue";
	x = file(f, q, 3, WG_FILE_REG, 700, O_RDWR);
	x->path = "/queue";
	io(MAIN(p), WG_OP_SYSV, 3);
	MAIN(p)->wait.syscall_name = call;
	return q;
}

static void
protocol_lost(struct wg_facts *f) /* client waits for an answer, handler for the next request */
{
	struct wg_process *q;
	struct wg_file *l;

	both_read(f);
	q = f->procs.v[1];
	l = file(f, q, 9, WG_FILE_SOCKET, 700, O_RDWR);
	l->sock_state = WG_SOCK_LISTEN;
	l->sock_local = "127.0.0.1:7000";
	q->files.v[0].sock_local = "127.0.0.1:7000";
	f->procs.v[0]->files.v[0].sock_remote = "127.0.0.1:7000";
}

static void
server_of_hung_client(struct wg_facts *f) /* asked is the server: its client is deadlocked */
{
	protocol_lost(f);
	f->asked.v[0] = 200;
	mutex(MAIN(f->procs.v[0]), 0x10, 100);
}

static void mq_full(struct wg_facts *f)
{
	pauses(MAIN(queue_pair(f, "mq_timedsend")));
}
static void mq_stopped(struct wg_facts *f)
{
	stops(queue_pair(f, "mq_timedreceive"));
}
static void mq_served(struct wg_facts *f)
{
	runs(MAIN(queue_pair(f, "mq_timedreceive")));
}

static struct wg_process *semop_pair(struct wg_facts *f)
{
	struct wg_process *q = queue_pair(f, "semop"), *p = f->procs.v[0];

	p->files.n = q->files.n = 0;
	p->exe = q->exe = "/usr/bin/a";
	MAIN(p)->wait.fd = WG_NO_INT;
	MAIN(p)->wait.key = 9;
	child_of(f, q, p);
	return q;
}

static void semop_killed(struct wg_facts *f)
{
	dead(semop_pair(f), 0, 9);
}
static void semop_works(struct wg_facts *f)
{
	runs(MAIN(semop_pair(f)));
}

static void semop_both(struct wg_facts *f)
{
	struct wg_thread *t = MAIN(semop_pair(f));

	io(t, WG_OP_SYSV, -1);
	t->wait.syscall_name = "semop";
	t->wait.key = 10;
}

static void semop_alone(struct wg_facts *f)
{
	semop_pair(f);
	f->procs.n = 1;
}

static void memory_limit(struct wg_facts *f) /* a page fault that waits for memory is no storage */
{
	struct wg_process *p = proc(f, 100, "app");

	io(MAIN(p), WG_OP_FAULT, -1);
	MAIN(p)->wait.fd = WG_NO_INT;
	MAIN(p)->state = 'D';
	*wg_push(f->arena, &MAIN(p)->kernel_stack) = "mem_cgroup_oom_synchronize";
	p->cgroup.mem_max = 25165824;
	p->cgroup.path = "/job";
}

static void short_sleep_unseen(struct wg_facts *f) /* what it does between its sleeps nobody saw */
{
	sleeps(MAIN(proc(f, 100, "app")), 0.1, 0.05);
	MAIN(f->procs.v[0])->between_unseen = true;
}

static void long_sleep_unseen(struct wg_facts *f)
{
	sleeping(f);
	MAIN(f->procs.v[0])->between_unseen = true;
}

static void
reader_of_two(struct wg_facts *f) /* each child has its own pipe: one has ended, one is stopped */
{
	struct wg_process *z = empty(f);

	stops(z);
	z = proc(f, 201, "writer");
	child_of(f, z, f->procs.v[0]);
	dead(z, 0, 0);
}

static void
handlers_of_a_pool(struct wg_facts *f) /* several service threads on the process' own pipes */
{
	struct wg_process *p = proc(f, 100, "python");

	cond(MAIN(p), 0x10);
	for (int i = 0; i < 2; i++) {
		pipe_end(f, p, 3 + 2 * i, 900 + (uint64_t)i, false);
		pipe_end(f, p, 4 + 2 * i, 900 + (uint64_t)i, true);
		io(thr(f, p, 101 + i, "handler"), WG_OP_READ, 3 + 2 * i);
	}
}

static void
polls_own_pipe(struct wg_facts *f) /* a loop thread's wake-up pipe is no cycle with itself */
{
	struct wg_process *p = proc(f, 100, "app");

	cond(MAIN(p), 0x10);
	pipe_end(f, p, 3, 900, false);
	pipe_end(f, p, 4, 900, true);
	polls_fd(f, thr(f, p, 101, "loop"), WG_OP_POLL, 3, POLLIN);
}

static void timerfd(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	file(f, p, 5, WG_FILE_TIMERFD, 44, O_RDWR)->timer_left_s = 3;
	polls_fd(f, MAIN(p), WG_OP_EPOLL, 5, POLLIN);
}

static void eventfd_nobody(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	file(f, p, 5, WG_FILE_EVENTFD, 44, O_RDWR);
	io(MAIN(p), WG_OP_READ, 5);
}

static void eventfd_worker(struct wg_facts *f)
{
	eventfd_nobody(f);
	runs(thr(f, f->procs.v[0], 101, "worker"));
}

static void terminal_read(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "bash");
	struct wg_file *x = file(f, p, 0, WG_FILE_TTY, 5, O_RDWR);

	x->path = "/dev/pts/3";
	x->pty_index = 3;
	io(MAIN(p), WG_OP_READ, 0);
}

static void terminal_full(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "train"), *q = proc(f, 200, "screen");
	struct wg_file *x = file(f, p, 1, WG_FILE_TTY, 5, O_RDWR);

	x->path = "/dev/pts/3";
	x->pty_index = 3;
	x = file(f, q, 7, WG_FILE_CHAR, 6, O_RDWR);
	x->path = "/dev/pts/ptmx";
	x->pty_index = 3;
	pauses(MAIN(q));
	io(MAIN(p), WG_OP_WRITE, 1);
}

static struct wg_process *child(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "launcher"), *q = proc(f, 200, "rank");

	child_of(f, q, p);
	waits_child(MAIN(p), 200);
	return q;
}

static void child_busy(struct wg_facts *f)
{
	runs(MAIN(child(f)));
}
static void child_sleeps(struct wg_facts *f)
{
	sleeps(MAIN(child(f)), 1000, 12);
}
static void child_stopped(struct wg_facts *f)
{
	stops(child(f));
}
static void child_locked(struct wg_facts *f)
{
	mutex(MAIN(child(f)), 0x10, 200);
}
static void child_cond(struct wg_facts *f)
{
	cond(MAIN(child(f)), 0x10);
}

static void vfork_child(struct wg_facts *f) /* the youngest child is the one that was not let go */
{
	struct wg_process *q = child(f), *r = proc(f, 300, "rank");

	child_of(f, r, f->procs.v[0]);
	MAIN(f->procs.v[0])->wait.child = -1;
	MAIN(f->procs.v[0])->wait.syscall_name = "vfork";
	q->start_ticks = 100;
	r->start_ticks = 200;
	runs(MAIN(q));
	mutex(MAIN(r), 0x10, 300);
}

static void shell_waits(struct wg_facts *f) /* dash and timeout wait for SIGCHLD */
{
	struct wg_process *q = child(f);

	pauses(MAIN(f->procs.v[0]));
	MAIN(f->procs.v[0])->wait.syscall_name = "rt_sigsuspend";
	MAIN(f->procs.v[0])->wait.child = -1;
	mutex(MAIN(q), 0x10, 200);
}

static void pauses_beside_child(struct wg_facts *f) /* pause() says nothing of a child */
{
	shell_waits(f);
	MAIN(f->procs.v[0])->wait.syscall_name = "pause";
	MAIN(f->procs.v[0])->wait.child = WG_NO_INT;
}

static void child_any(struct wg_facts *f) /* one child hangs, the other works: any will do */
{
	struct wg_process *q = child(f), *r = proc(f, 300, "rank");

	child_of(f, r, f->procs.v[0]);
	MAIN(f->procs.v[0])->wait.child = -1;
	mutex(MAIN(q), 0x10, 200);
	runs(MAIN(r));
}

static void child_any_all_stuck(struct wg_facts *f)
{
	child_any(f);
	stops(f->procs.v[2]);
}

static void child_stub_busy(struct wg_facts *f)
{
	struct wg_process *q = child(f);

	q->stub = true;
	q->threads.n = 0;
	q->cpu_share = 0.9;
}

static void child_unseen(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "launcher");

	waits_child(MAIN(p), 4711);
}

static void
launcher_polls(struct wg_facts *f) /* the launcher looks every half second; its rank hangs */
{
	struct wg_process *q = child(f);

	sleeps(MAIN(f->procs.v[0]), 0.5, 0.2);
	mutex(MAIN(q), 0x10, 200);
}

static void launcher_polls_healthy(struct wg_facts *f)
{
	struct wg_process *q = child(f);

	sleeps(MAIN(f->procs.v[0]), 0.5, 0.2);
	runs(MAIN(q));
}

/* ---- file locks and storage ---- */

static struct wg_file *wants_flock(struct wg_facts *f, int32_t holder)
{
	struct wg_process *p = proc(f, 100, "app");
	struct wg_file *x = file(f, p, 5, WG_FILE_REG, 700, O_RDWR);
	struct wg_file_lock *l;

	l = wg_push(f->arena, &f->locks);
	*l = (struct wg_file_lock){.kind = 'f',
				   .write = true,
				   .pid = holder,
				   .dev = 8,
				   .ino = 700,
				   .end = WG_NO_INT,
				   .id = 1};
	l = wg_push(f->arena, &f->locks);
	*l = (struct wg_file_lock){.kind = 'f',
				   .write = true,
				   .blocked = true,
				   .pid = 100,
				   .dev = 8,
				   .ino = 700,
				   .end = WG_NO_INT,
				   .id = 1};
	io(MAIN(p), WG_OP_FLOCK, 5);
	return x;
}

static void flock_own(struct wg_facts *f) /* through another descriptor of the same process */
{
	wants_flock(f, 100);
	f->lock_scan_complete = true;
}

static void flock_given(struct wg_facts *f) /* the table was read when it had got it already */
{
	flock_own(f);
	f->locks.n = 1;
}

static void flock_idle(struct wg_facts *f)
{
	wants_flock(f, 200);
	sleeps(MAIN(proc(f, 200, "holder")), 1000, 20);
}

static void flock_busy(struct wg_facts *f)
{
	wants_flock(f, 200);
	runs(MAIN(proc(f, 200, "holder")));
}

static void flock_stopped(struct wg_facts *f)
{
	wants_flock(f, 200);
	stops(proc(f, 200, "holder"));
}

static void flock_cycle(struct wg_facts *f) /* the holder waits for us */
{
	struct wg_process *q;

	wants_flock(f, 200);
	q = proc(f, 200, "holder");
	child_of(f, f->procs.v[0], q);
	waits_child(MAIN(q), 100);
}

static void flock_gone(struct wg_facts *f)
{
	wants_flock(f, 200);
	f->locks.v[0].holder_alive_known = true;
}

static void flock_nfs(struct wg_facts *f)
{
	struct wg_file *x = wants_flock(f, 200);

	x->fs_type = "nfs4";
	x->remote_fs = true;
	f->locks.n = 0;
}

static void flock_not_found(struct wg_facts *f)
{
	wants_flock(f, 200);
	f->locks.n = 0;
	f->lock_scan_complete = false;
}

static struct wg_thread *polls_path(struct wg_facts *f, const char *call, const char *path,
				    int64_t err)
{
	struct wg_thread *t = MAIN(proc(f, 100, "app"));

	sleeps(t, 0.1, 0.05);
	t->switches = 3;
	t->repeat_syscall = call;
	t->repeat_path = path;
	t->repeat_errno = err;
	t->repeat_exists = err == ENOENT ? 0 : 1;
	return t;
}

static void stale_lock_file(struct wg_facts *f)
{
	polls_path(f, "newfstatat", "/c/ext/lock", 0);
}
static void create_lock_file(struct wg_facts *f)
{
	polls_path(f, "openat", "/c/ext/owner", EEXIST);
}
static void awaits_file(struct wg_facts *f)
{
	polls_path(f, "newfstatat", "/c/ready", ENOENT);
}

static void lock_file_holder_works(struct wg_facts *f)
{
	struct wg_process *q;

	stale_lock_file(f);
	q = proc(f, 200, "builder");
	file(f, q, 3, WG_FILE_REG, 701, O_RDWR)->path = "/c/ext/lock";
	runs(MAIN(q));
}

static void flock_unsupported(struct wg_facts *f)
{
	struct wg_thread *t = polls_path(f, "flock", "/fsx/a.lock", ENOSYS);

	t->repeat_fd = 5;
	file(f, f->procs.v[0], 5, WG_FILE_REG, 700, O_RDWR)->path = "/fsx/a.lock";
}

static struct wg_thread *storage(struct wg_facts *f, enum wg_op op, const char *kfn)
{
	struct wg_process *p = proc(f, 100, "app");
	struct wg_file *x = file(f, p, 5, WG_FILE_REG, 700, O_RDWR);

	x->fs_type = "nfs4";
	x->fs_source = "filer:/ckpt";
	x->remote_fs = true;
	io(MAIN(p), op, 5);
	MAIN(p)->state = 'D';
	*wg_push(f->arena, &MAIN(p)->kernel_stack) = kfn;
	return MAIN(p);
}

static void nfs_write(struct wg_facts *f)
{
	storage(f, WG_OP_WRITE, "rpc_wait_bit_killable");
}
static void nfs_fsync(struct wg_facts *f)
{
	storage(f, WG_OP_SYNC, "nfs_file_fsync");
}
static void disk_read(struct wg_facts *f)
{
	storage(f, WG_OP_READ, "folio_wait_bit_common");
}
static void throttled(struct wg_facts *f)
{
	storage(f, WG_OP_WRITE, "balance_dirty_pages");
}
/* The kernel wakes it every few milliseconds to look whether it may go on. */
static struct wg_thread *throttled_awake(struct wg_facts *f, double since_s, int64_t bytes)
{
	struct wg_thread *t = storage(f, WG_OP_WRITE, "balance_dirty_pages");

	t->sampled_twice = t->same_place = true;
	t->switches = 17;
	since(t, since_s);
	f->procs.v[0]->wchar_delta = 0; /* one call, which has not come back */
	f->procs.v[0]->write_bytes_delta = bytes;
	return t;
}
static void throttled_wakes(struct wg_facts *f)
{
	throttled_awake(f, 240, 0);
}
static void throttled_young(struct wg_facts *f)
{
	throttled_awake(f, 0.012, 0);
}
static void throttled_moves(struct wg_facts *f)
{
	throttled_awake(f, 0.012, 40960);
}
static void throttled_elsewhere(struct wg_facts *f)
{
	throttled_awake(f, 0.012, 0)->same_place = false;
}
static void disk_moves(struct wg_facts *f)
{
	moves(storage(f, WG_OP_READ, "io_schedule"));
}
static void disk_young(struct wg_facts *f)
{
	since(storage(f, WG_OP_READ, "io_schedule"), 0.5);
}

static void truncate_meta(struct wg_facts *f)
{
	struct wg_thread *t = storage(f, WG_OP_FSMETA, "nfs_setattr");

	t->wait.fd = WG_NO_INT;
	t->wait.path = "/ckpt/tokenizer.json";
	t->wait.syscall_name = "truncate";
}

static void stat_meta(struct wg_facts *f)
{
	truncate_meta(f);
	MAIN(f->procs.v[0])->wait.syscall_name = "newfstatat";
}

static struct wg_process *fuse(struct wg_facts *f, enum wg_op op)
{
	struct wg_thread *t = storage(f, op, "request_wait_answer");
	struct wg_process *d = proc(f, 200, "sshfs");

	t->state = 'S';
	f->procs.v[0]->files.v[0].fs_type = "fuse.sshfs";
	f->procs.v[0]->files.v[0].fs_daemon_pid = 200;
	return d;
}

static void fuse_lives(struct wg_facts *f)
{
	pauses(MAIN(fuse(f, WG_OP_WRITE)));
}
static void fuse_reads(struct wg_facts *f)
{
	pauses(MAIN(fuse(f, WG_OP_READ)));
}
static void fuse_stopped(struct wg_facts *f)
{
	stops(fuse(f, WG_OP_WRITE));
}
static void fuse_dead(struct wg_facts *f)
{
	dead(fuse(f, WG_OP_WRITE), 0, 9);
}

static void leader_gone(struct wg_facts *f) /* main left by pthread_exit(); what is left hangs */
{
	struct wg_process *p = proc(f, 100, "app");

	MAIN(p)->state = 'Z';
	MAIN(p)->wait.op = WG_OP_OTHER;
	mutex(thr(f, p, 101, "worker"), 0x10, 101);
}

static void leader_gone_unreadable(struct wg_facts *f)
{
	leader_gone(f);
	T(f->procs.v[0], 101)->wait.futex.nwords = 0;
}

static void driver_d(struct wg_facts *f)
{
	struct wg_thread *t = storage(f, WG_OP_IOCTL, "os_acquire_rwlock_write");

	f->procs.v[0]->files.v[0].kind = WG_FILE_CHAR;
	f->procs.v[0]->files.v[0].path = "/dev/nvidia0";
	*wg_push(f->arena, &t->kernel_stack) = "nvidia_ioctl";
	*wg_push(f->arena, &f->kmsg) = "NVRM: Xid (PCI:0000:03:00): 119, GSP RPC timeout";
}

/* ---- stopped, limits, polling in user space, sleeping ---- */

static void stopped_self(struct wg_facts *f)
{
	stops(proc(f, 100, "app"));
}

static void stopped_background(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	stops(p);
	p->tty_pgrp = 50;
}

static void one_thread_traced(struct wg_facts *f) /* main joins a thread that a debugger holds */
{
	struct wg_process *p = proc(f, 100, "app");

	thr(f, p, 101, "worker")->state = 't';
	p->tracer_pid = 900;
	join(MAIN(p), 101);
}

static void one_thread_traced_for_nobody(struct wg_facts *f)
{
	one_thread_traced(f);
	runs(MAIN(f->procs.v[0]));
}

static void spin(struct wg_facts *f)
{
	struct wg_thread *t = MAIN(proc(f, 100, "app"));
	static const uint8_t code[] = {0x8b, 0x05, 0x10, 0, 0, 0, 0x85, 0xc0, 0x74, 0xf6, 0xc3};

	runs(t); /* 1: mov eax,[flag]; test eax,eax; je 1b */
	t->code = code;
	t->code_at = 0x1000;
	t->code_len = sizeof(code);
	t->sample_pc[0] = t->sample_pc[1] = 0x1006;
	t->sample_pc[2] = 0x1000;
	t->sample_pc[3] = 0x1008;
}

static void tight_sum(struct wg_facts *f)
{
	static const uint8_t code[] = {0x03, 0x04, 0x8f, 0xff, 0xc1, 0x39, 0xf1, 0x75, 0xf7, 0xc3};
	struct wg_thread *t;

	spin(f); /* 1: add eax,[rdi+rcx*4]; inc ecx; cmp ecx,esi; jne 1b */
	t = MAIN(f->procs.v[0]);
	t->code = code;
	t->code_len = sizeof(code);
	t->sample_pc[0] = t->sample_pc[2] = 0x1003;
	t->sample_pc[1] = 0x1005;
	t->sample_pc[3] = 0x1007;
}

static void spin_without_code(struct wg_facts *f)
{
	spin(f);
	MAIN(f->procs.v[0])->code = NULL;
}

static void spin_pause_counts(struct wg_facts *f) /* counts its rounds, but says pause */
{
	static const uint8_t code[] = {0xf3, 0x90, 0xff, 0xc1, 0x8b, 0x07,
				       0x85, 0xc0, 0x74, 0xf6, 0xc3};

	spin(f);
	MAIN(f->procs.v[0])->code = code;
	MAIN(f->procs.v[0])->code_len = sizeof(code);
}

static void spin_served(struct wg_facts *f) /* another thread works and may set the flag */
{
	spin(f);
	runs(thr(f, f->procs.v[0], 101, "worker"));
}

static void spin_server_stuck(struct wg_facts *f) /* the only one who could set it hangs itself */
{
	spin(f);
	mutex(thr(f, f->procs.v[0], 101, "worker"), 0x10, 133);
}

static void accepts(struct wg_facts *f) /* a server under requests repeats a call that succeeds */
{
	struct wg_process *p = proc(f, 100, "server");

	polls_fd(f, MAIN(p), WG_OP_POLL, 3, POLLIN);
	timeout(MAIN(p), 0.5);
	moves(MAIN(p));
	file(f, p, 3, WG_FILE_SOCKET, 600, O_RDWR)->sock_state = WG_SOCK_LISTEN;
	MAIN(p)->repeat_syscall = "accept4";
	MAIN(p)->repeat_fd = 3;
	MAIN(p)->repeat_errno = 0;
}

static struct wg_process *spins_with_kin(struct wg_facts *f)
{
	struct wg_process *p, *q;

	spin(f);
	p = f->procs.v[0];
	q = proc(f, 200, "app");
	p->exe = q->exe = "/usr/bin/app";
	p->ppid = q->ppid = 50;
	return q;
}

static void spin_kin_works(struct wg_facts *f)
{
	runs(MAIN(spins_with_kin(f)));
}
static void spin_kin_serves(struct wg_facts *f)
{
	sleeps(MAIN(spins_with_kin(f)), 0.02, 0.01);
}
static void spin_kin_sleeps(struct wg_facts *f)
{
	sleeps(MAIN(spins_with_kin(f)), 3600, 12);
}
static void spin_kin_stopped(struct wg_facts *f)
{
	stops(spins_with_kin(f));
}

static void yields(struct wg_facts *f)
{
	struct wg_thread *t = MAIN(proc(f, 100, "app"));

	runs(t);
	t->repeat_syscall = "sched_yield";
}

static void fork_fails(struct wg_facts *f)
{
	struct wg_thread *t = polls_path(f, "clone", NULL, EAGAIN);

	t->repeat_exists = WG_NO_INT;
	f->procs.v[0]->cgroup.pids_max = f->procs.v[0]->cgroup.pids_current = 64;
}

static void open_fails(struct wg_facts *f)
{
	polls_path(f, "socket", NULL, EMFILE);
	f->procs.v[0]->nofile_limit = f->procs.v[0]->nofile_used = 256;
}

static void connect_refused(struct wg_facts *f)
{
	open_fails(f);
	f->procs.v[0]->nofile_used = 20; /* refused, not exhausted */
	MAIN(f->procs.v[0])->repeat_syscall = "connect";
	MAIN(f->procs.v[0])->repeat_errno = ECONNREFUSED;
}

static void shm_full(struct wg_facts *f)
{
	polls_path(f, "fallocate", NULL, ENOSPC);
	f->procs.v[0]->shm_size = 64 << 20;
	f->procs.v[0]->shm_free = 0;
}

static void starved(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	runs(MAIN(p));
	MAIN(p)->cpu_share = 0.01;
	p->cgroup.cpu_periods_delta = 3;
	p->cgroup.cpu_throttled_delta = 3;
	p->cgroup.cpu_quota = 0.01;
}

static void
slow_quota(struct wg_facts *f) /* throttled, but two processors' worth of work goes on */
{
	struct wg_process *p = proc(f, 100, "app");

	runs(MAIN(p));
	p->cgroup.cpu_periods_delta = 3;
	p->cgroup.cpu_throttled_delta = 3;
	p->cgroup.cpu_quota = 2;
}

static void waitpid_nohang(struct wg_facts *f)
{
	struct wg_process *q;

	polls_path(f, "wait4", NULL, 0);
	q = proc(f, 200, "rank");
	child_of(f, q, f->procs.v[0]);
	MAIN(f->procs.v[0])->wait.child = 200;
	mutex(MAIN(q), 0x10, 200);
}

static void sleep_loop(struct wg_facts *f)
{
	sleeps(MAIN(proc(f, 100, "app")), 1, 0.2);
}
static void pausing(struct wg_facts *f)
{
	pauses(MAIN(proc(f, 100, "app")));
}
static void computing(struct wg_facts *f)
{
	runs(MAIN(proc(f, 100, "app")));
}

static void main_idle_worker_computes(struct wg_facts *f)
{
	pausing(f);
	runs(thr(f, f->procs.v[0], 101, "worker"));
}

static void syscall_unreadable(struct wg_facts *f)
{
	MAIN(proc(f, 100, "app"))->wait.op = WG_OP_UNKNOWN;
}

static void fifo_reader(struct wg_facts *f)
{
	struct wg_thread *t = MAIN(proc(f, 100, "app"));

	io(t, WG_OP_OPEN, -1);
	t->wait.fd = WG_NO_INT;
	t->wait.path = "/run/ctl.fifo";
	t->wait.syscall_name = "openat";
	t->wait.has_args = true;
	*wg_push(f->arena, &t->kernel_stack) = "wait_for_partner";
}

/* ---- logs ---- */

static struct wg_file *log_file(struct wg_facts *f, int64_t pending)
{
	struct wg_process *p = f->procs.v[0];
	struct wg_file *x = file(f, p, 1, WG_FILE_REG, 710, O_WRONLY);

	x->path = "/tmp/train.log";
	x->user_buffered_bytes = pending;
	x->user_buffer_owner = "stdio FILE";
	return x;
}

static void log_buffered(struct wg_facts *f)
{
	struct wg_process *p = proc(f, 100, "app");

	sleeps(MAIN(p), 0.1, 0.05);
	MAIN(p)->switches = 3;
	log_file(f, 2048);
}

static void log_to_nowhere(struct wg_facts *f)
{
	log_buffered(f);
	f->procs.v[0]->files.v[0].kind = WG_FILE_CHAR;
	f->procs.v[0]->files.v[0].path = "/dev/null";
}

static void log_flushed(struct wg_facts *f)
{
	log_buffered(f);
	f->procs.v[0]->files.v[0].user_buffered_bytes = 0;
}

static void log_one_line(struct wg_facts *f) /* a banner at the start is no log */
{
	computing(f);
	log_file(f, 12);
}

static void log_grows(struct wg_facts *f)
{
	computing(f);
	log_file(f, 60)->user_buffered_delta = 20;
}

static void log_and_lock(struct wg_facts *f)
{
	mutex(MAIN(proc(f, 100, "app")), 0x10, 100);
	log_file(f, 2048);
}

static void log_and_long_sleep(struct wg_facts *f)
{
	sleeping(f);
	log_file(f, 2048);
}

static void nothing(struct wg_facts *f)
{
	(void)f;
}

static void threadless(struct wg_facts *f)
{
	proc(f, 100, "app")->threads.n = 0;
}

#define Y WG_HUNG_YES
#define N WG_HUNG_NO
#define U WG_HUNG_NULL
static const struct graph_case cases[] = {
	{"full pipe, reader idle", full_idle, "pipe-full", Y, 200, 0, "does not read", -1},
	{"full pipe, reader computes", full_busy, "busy-cpu", N, 200, 0, NULL, 0},
	{"full pipe, reader stopped", full_stopped, "stopped", Y, 200, 0, "kill -CONT 200", -1},
	{"full pipe, reader naps", full_nap, "idle", N, 0, 0, NULL, 0},
	{"full pipe, reader sleeps an hour", full_long_sleep, "pipe-full", Y, 200, 0, NULL, 0},
	{"full pipe, reader sleeps in a loop", full_short_sleeps, "pipe-full", Y, 200, 0, NULL, 0},
	{"full pipe and waitpid", full_waitpid, "deadlock", Y, 0, 0, NULL, -1},
	{"full pipe, reader is who asks", full_asker, "pipe-full", Y, 200, 0, NULL, 0},
	{"full pipe, reader in its own lock", full_reader_locked, "lock-self", Y, 200, 200, NULL,
	 0},
	{"full pipe, reader unreadable", full_reader_unreadable, "pipe-full", Y, 200, 0, NULL, 0},
	{"splice from an empty pipe", splice_empty, "peer-silent", Y, 200, 0, NULL, 0},
	{"splice to a full pipe", splice_full, "stopped", Y, 300, 0, NULL, 0},
	{"full pipe to itself", full_own, "pipe-full|deadlock", Y, 100, 100, NULL, 0},
	{"full pipe, own reader joins me", full_own_thread, "deadlock", Y, 100, 0, NULL, 1},
	{"full pipe, moving", full_moves, "progressing", N, 0, 0, NULL, 0},
	{"empty pipe, silent", empty_silent, "peer-silent", Y, 200, 0, "does not send", -1},
	{"empty pipe, writer computes", empty_busy, "busy-cpu", N, 200, 0, NULL, 0},
	{"empty pipe, writer stopped", empty_stopped, "stopped", Y, 200, 0, NULL, -1},
	{"empty pipe, writer without waker", empty_no_waker, "peer-silent", Y, 200, 0, NULL, 0},
	{"empty pipe, writer in its own lock", empty_locked, "lock-self", Y, 200, 200, NULL, 0},
	{"empty pipe, writer on a timer", empty_timer, "idle", N, 0, 0, NULL, 0},
	{"empty pipe, young", empty_young, "unknown", U, 0, 0, "pause", 0},
	{"empty pipe, writer traced", empty_traced, "stopped", Y, 200, 0, "900", 0},
	{"empty pipe, writer frozen", empty_frozen, "stopped", Y, 200, 0, "/job", 0},
	{"empty pipe, partial scan", empty_partial_scan, "peer-silent", Y, 200, 0, NULL, 1},
	{"empty pipe, nobody seen", empty_nobody_seen, "unknown", U, 0, 0, "descriptors", 0},
	{"empty pipe, only itself", empty_self_only, "peer-dead", Y, 100, 0, NULL, 1},
	{"empty pipe, leaked", empty_leaked, "peer-dead", Y, 200, 0, NULL, 1},
	{"empty pipe, writer reaped", empty_reaped, "peer-dead", Y, 300, 0, "orphaned", 1},
	{"empty pipe, another program", empty_other_program, "peer-silent", Y, 300, 0, NULL, 0},
	{"empty pipe, unrelated zombie", empty_unrelated_zombie, "peer-silent", Y, 200, 0, NULL, 0},
	{"pool, worker killed", pool_worker_killed, "peer-dead", Y, 201, 0, "signal 9", 1},
	{"pool, worker computes", pool_worker_computes, "busy-cpu", N, 200, 0, NULL, 0},
	{"pool, worker after fork", pool_worker_after_fork, "lock-after-fork", Y, 201, 0, NULL, 0},
	{"pool, task lost", pool_task_lost, "no-waker", Y, 100, 0, NULL, 1},
	{"pool, worker at rest", pool_worker_asked, "idle", N, 200, 0, NULL, 0},
	{"pool, orders from an idle parent", orders_from_idle_parent, "idle", N, 0, 0, NULL, 0},
	{"both read", both_read, "deadlock", Y, 0, 0, NULL, -1},
	{"socket, silent", socket_silent, "peer-silent", Y, 200, 0, NULL, 0},
	{"socket, peer's worker died", socket_peer_dead_end, "peer-dead", Y, 300, 0, NULL, 0},
	{"socket, server side", server_side, "idle", N, 0, 0, NULL, 0},
	{"socket, remote", remote_silent, "peer-silent", Y, 0, 0, "10.0.0.9", 2},
	{"socket, not accepted", not_accepted, "lock-self", Y, 200, 200, NULL, 0},
	{"socket, with a timeout", socket_timeout, "idle", N, 0, 0, NULL, 0},
	{"epoll server", epoll_server, "idle", N, 0, 0, NULL, 0},
	{"poll two pipes, child deadlocked", poll_two_pipes, "lock-self", Y, 200, 200, NULL, 0},
	{"poll two pipes, compiler", poll_compiler, "busy-cpu", N, 200, 0, NULL, 0},
	{"poll of unknown descriptors", poll_unknown, "unknown", U, 0, 0, "descriptors", 0},
	{"poll with a short timeout", poll_timer, "idle", N, 0, 0, NULL, 0},
	{"jobserver, compiler works", jobserver, "busy-cpu", N, 200, 0, NULL, 0},
	{"jobserver, child hangs", jobserver_stuck, "lock-self", Y, 200, 0, NULL, 1},
	{"self-pipe", self_pipe_alone, "idle", N, 0, 0, NULL, 0},
	{"event loop with nothing to come", asyncio_forever, "no-waker", Y, 100, 100, NULL, 1},
	{"event loop with a timer", asyncio_timer, "idle", N, 0, 0, NULL, 0},
	{"poll with a short timeout, child deadlocked", poll_timer_deadlock, "lock-self", Y, 200,
	 200, NULL, 1},
	{"peer's helper sleeps", helper_sleeps_main_hangs, "lock-self", Y, 200, 200, NULL, 0},
	{"peer's helper works", helper_works_main_hangs, "busy-cpu", N, 0, 0, NULL, 0},
	{"joins an idle process", joins_idle_process, "idle", N, 0, 0, NULL, 0},
	{"event loop with one silent peer", loop_one_peer, "peer-silent", Y, 200, 0, NULL, 0},
	{"event loop with one working peer", loop_one_peer_works, "busy-cpu", N, 200, 0, NULL, 0},
	{"server's handler hangs", handler_hangs, "lock-self", Y, 200, 201, NULL, 1},
	{"request lost", protocol_lost, "peer-silent", Y, 200, 0, NULL, 0},
	{"server of a hung client", server_of_hung_client, "lock-self", Y, 100, 100, NULL, 0},
	{"message queue full", mq_full, "pipe-full", Y, 200, 0, NULL, 0},
	{"message queue, sender stopped", mq_stopped, "stopped", Y, 200, 0, NULL, 0},
	{"message queue, sender works", mq_served, "busy-cpu", N, 200, 0, NULL, 0},
	{"semaphore, relative killed", semop_killed, "peer-dead", Y, 200, 0, NULL, 1},
	{"semaphore, relative works", semop_works, "busy-cpu", N, 200, 0, NULL, 0},
	{"semaphores, both wait", semop_both, "no-waker|deadlock", Y, 0, 0, NULL, 1},
	{"semaphore, nobody known", semop_alone, "unknown", U, 0, 0, NULL, 0},
	{"memory limit", memory_limit, "resource-exhausted", Y, 100, 0, "24 MiB", 0},
	{"short sleeps, unseen between", short_sleep_unseen, "unknown", U, 0, 0, "between", 0},
	{"long sleep, unseen between", long_sleep_unseen, "idle", N, 0, 0, NULL, 1},
	{"reader of two children", reader_of_two, "stopped", Y, 200, 0, NULL, 0},
	{"handlers on the process' own pipes", handlers_of_a_pool, "no-waker", Y, 100, 0, NULL, 1},
	{"loop thread with its wake-up pipe", polls_own_pipe, "no-waker", Y, 100, 0, NULL, 1},
	{"timerfd", timerfd, "idle", N, 0, 0, NULL, 0},
	{"eventfd, nobody", eventfd_nobody, "no-waker", Y, 100, 100, NULL, 0},
	{"eventfd, worker computes", eventfd_worker, "busy-cpu", N, 0, 0, NULL, 0},
	{"terminal input", terminal_read, "idle", N, 0, 0, NULL, 0},
	{"terminal full", terminal_full, "pipe-full", Y, 200, 0, NULL, 0},
	{"child computes", child_busy, "busy-cpu", N, 200, 0, NULL, 0},
	{"child sleeps", child_sleeps, "idle", N, 200, 0, NULL, 0},
	{"child stopped", child_stopped, "stopped", Y, 200, 0, NULL, -1},
	{"child in its own lock", child_locked, "lock-self", Y, 200, 200, NULL, 0},
	{"child without waker", child_cond, "no-waker", Y, 200, 200, NULL, 0},
	{"vfork", vfork_child, "lock-self", Y, 300, 0, NULL, 0},
	{"shell waits by a signal", shell_waits, "lock-self", Y, 200, 0, NULL, 0},
	{"pauses beside a child", pauses_beside_child, "idle", N, 0, 0, NULL, 0},
	{"any child, one works", child_any, "busy-cpu", N, 300, 0, NULL, 0},
	{"any child, all stuck", child_any_all_stuck, "lock-self", Y, 200, 0, NULL, 0},
	{"child of which only CPU time is known", child_stub_busy, "busy-cpu", N, 200, 0, NULL, 0},
	{"child unseen", child_unseen, "unknown", U, 0, 0, "4711", 0},
	{"launcher polls, rank hangs", launcher_polls, "lock-self", Y, 200, 200, NULL, 0},
	{"launcher polls, rank works", launcher_polls_healthy, "idle|busy-cpu", N, 0, 0, NULL, 0},
	{"flock, holder idle", flock_idle, "file-lock", Y, 200, 0, NULL, -1},
	{"flock, holder computes", flock_busy, "busy-cpu", N, 200, 0, NULL, 0},
	{"flock, holder stopped", flock_stopped, "stopped", Y, 200, 0, NULL, 0},
	{"flock, holder waits for us", flock_cycle, "deadlock", Y, 0, 0, NULL, 0},
	{"flock, taker gone", flock_gone, "file-lock", Y, 200, 0, "has ended", 1},
	{"flock, another host", flock_nfs, "file-lock", Y, 0, 0, "another host", 1},
	{"flock, not found", flock_not_found, "unknown", U, 0, 0, "file locks", 0},
	{"flock, its own", flock_own, "lock-self", WG_HUNG_YES, 100, 0, NULL, 0},
	{"flock, just given to it", flock_given, "progressing", WG_HUNG_NO, 100, 0, NULL, 0},
	{"stale lock file", stale_lock_file, "file-lock", Y, 0, 0, "/c/ext/lock", 1},
	{"lock file by creation", create_lock_file, "file-lock", Y, 0, 0, "/c/ext/owner", 0},
	{"file awaited", awaits_file, "spin-wait", Y, 100, 0, "does not appear", 1},
	{"lock file, holder works", lock_file_holder_works, "busy-cpu", N, 200, 0, NULL, 0},
	{"flock unsupported", flock_unsupported, "file-lock", Y, 100, 0, "does not support", 0},
	{"NFS write", nfs_write, "write-blocked", Y, 100, 0, "filer:/ckpt", -1},
	{"NFS fsync", nfs_fsync, "write-blocked", Y, 100, 0, NULL, -1},
	{"disk read", disk_read, "read-blocked", Y, 100, 0, NULL, -1},
	{"dirty throttling", throttled, "write-blocked", Y, 100, 0, "throttles", -1},
	{"dirty throttling, woken to look", throttled_wakes, "write-blocked", Y, 100, 0, "throttles", -1},
	{"dirty throttling, young", throttled_young, "unknown", U, 100, 100, "throttles", 0},
	{"dirty throttling, slow", throttled_moves, "progressing", N, 0, 0, NULL, -1},
	{"dirty throttling, met awake once", throttled_elsewhere, "unknown", U, 100, 100, "more than a pause", 0},
	{"disk moves", disk_moves, "progressing", N, 0, 0, NULL, 0},
	{"disk, young", disk_young, "unknown|progressing", U, 0, 0, NULL, 0},
	{"truncate", truncate_meta, "write-blocked", Y, 100, 0, "tokenizer.json", 0},
	{"stat", stat_meta, "read-blocked", Y, 100, 0, NULL, 0},
	{"FUSE daemon lives", fuse_lives, "write-blocked", Y, 200, 0, "does not answer", 0},
	{"FUSE daemon, read", fuse_reads, "read-blocked", Y, 200, 0, NULL, 0},
	{"FUSE daemon stopped", fuse_stopped, "stopped", Y, 200, 0, NULL, 0},
	{"FUSE daemon dead", fuse_dead, "peer-dead", Y, 200, 0, NULL, 0},
	{"leader gone", leader_gone, "lock-self", Y, 100, 101, NULL, 0},
	{"leader gone, words unreadable", leader_gone_unreadable, "unknown", U, 0, 0, "futex words",
	 0},
	{"driver, D state", driver_d, "driver-blocked", Y, 100, 0, "Xid", -1},
	{"stopped itself", stopped_self, "stopped", Y, 100, 0, "kill -CONT 100", -1},
	{"stopped in the background", stopped_background, "stopped", Y, 100, 0, "SIGTTOU", 0},
	{"one thread traced", one_thread_traced, "stopped", Y, 100, 101, "900", -1},
	{"one thread traced, main works", one_thread_traced_for_nobody, "busy-cpu", N, 100, 100,
	 NULL, 0},
	{"spin on a flag", spin, "spin-wait", Y, 100, 100, NULL, 1},
	{"tight sum", tight_sum, "busy-cpu", N, 100, 100, NULL, 0},
	{"tight loop without its code", spin_without_code, "busy-cpu|unknown", N, 0, 0, NULL, 0},
	{"spin with pause and a counter", spin_pause_counts, "spin-wait", Y, 100, 100, NULL, 1},
	{"spin while another works", spin_served, "busy-cpu", N, 0, 0, NULL, 0},
	{"spin, the other hangs", spin_server_stuck, "lock-orphaned", Y, 0, 133, NULL, 1},
	{"accepts again and again", accepts, "idle|progressing", N, 0, 0, NULL, 0},
	{"spin, another rank works", spin_kin_works, "busy-cpu", N, 200, 0, NULL, 0},
	{"spin, another rank wakes often", spin_kin_serves, "idle|busy-cpu|unknown", N, 0, 0, NULL,
	 0},
	{"spin, another rank sleeps", spin_kin_sleeps, "spin-wait", Y, 0, 0, NULL, 1},
	{"spin, another rank stopped", spin_kin_stopped, "stopped", Y, 200, 0, NULL, 1},
	{"sched_yield", yields, "spin-wait", Y, 100, 100, "sched_yield", 1},
	{"fork fails", fork_fails, "resource-exhausted", Y, 100, 0, "64 tasks", 0},
	{"open fails", open_fails, "resource-exhausted", Y, 100, 0, "256", 0},
	{"connect refused again and again", connect_refused, "spin-wait", Y, 100, 0, NULL, 0},
	{"/dev/shm full", shm_full, "resource-exhausted", Y, 100, 0, "/dev/shm", 0},
	{"starved by a quota", starved, "resource-exhausted", Y, 100, 0, NULL, 0},
	{"slowed by a quota", slow_quota, "busy-cpu", N, 100, 0, NULL, 0},
	{"waitpid in a loop", waitpid_nohang, "lock-self", Y, 200, 200, NULL, 0},
	{"sleeping", sleeping, "idle", N, 100, 0, NULL, 0},
	{"sleep loop", sleep_loop, "idle", N, 100, 0, NULL, 0},
	{"pausing", pausing, "idle", N, 100, 0, NULL, 0},
	{"computing", computing, "busy-cpu", N, 100, 100, NULL, 0},
	{"main idle, worker computes", main_idle_worker_computes, "busy-cpu", N, 100, 101, NULL, 0},
	{"system call unreadable", syscall_unreadable, "unknown", U, 0, 0, "system call", 0},
	{"FIFO without writer", fifo_reader, "peer-silent", Y, 100, 0, "/run/ctl.fifo", 1},
	{"log buffered", log_buffered, "log-buffered", N, 0, 0, "train.log", 0},
	{"log to /dev/null", log_to_nowhere, "idle|progressing", N, 0, 0, NULL, 0},
	{"log flushed", log_flushed, "idle|progressing", N, 0, 0, NULL, 0},
	{"one line left in a buffer", log_one_line, "busy-cpu", N, 0, 0, NULL, 0},
	{"log grows", log_grows, "log-buffered", N, 0, 0, NULL, 0},
	{"log buffered, but hung", log_and_lock, "lock-self", Y, 100, 100, NULL, 0},
	{"log buffered, asleep", log_and_long_sleep, "idle", N, 0, 0, NULL, 0},
	{"no process", nothing, "unknown", U, 0, 0, NULL, 0},
	{"no threads", threadless, "unknown", U, 0, 0, "threads", 0},
};

RUN_CASES(cases)
