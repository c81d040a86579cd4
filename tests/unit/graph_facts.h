/* SPDX-License-Identifier: Apache-2.0 */
/*
 * graph_facts.h - small builders of facts for the tests of the graph engine, and the table that
 * runs them: each case is a function that builds facts and what the verdict must be.
 */
#ifndef GRAPH_FACTS_H
#define GRAPH_FACTS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>

#include "graph/graph.h"

#define SINCE 12.0 /* how long everything has been waiting unless a case says otherwise */

static inline struct wg_facts *facts(void)
{
	struct wg_facts *f = wg_facts_new();

	f->host = "node1";
	f->boot = "b00t";
	f->live = f->is_root = true;
	f->interval_s = 0.3;
	f->fd_scan_complete = f->lock_scan_complete = true;
	return f;
}

static inline struct wg_thread *thr(struct wg_facts *f, struct wg_process *p, int32_t tid,
				    const char *name)
{
	struct wg_thread *t = wg_add_thread(f, p);

	t->tid = t->ns_tid = tid;
	t->name = name;
	t->state = 'S';
	t->sampled_twice = t->same_place = true;
	t->switches = 0;
	t->cpu_share = 0;
	t->last_ran_s = SINCE;
	t->wait.since_s = SINCE;
	t->wait.op = WG_OP_SLEEP;
	t->wait.timeout_s = 1000;
	return t;
}

/* A process with its main thread; asked about if it is the first. */
static inline struct wg_process *proc(struct wg_facts *f, int32_t pid, const char *comm)
{
	struct wg_process *p = wg_add_process(f);

	p->pid = p->ns_pid = p->pgid = pid;
	p->ppid = 1;
	p->pidns = 1;
	p->host = f->host;
	p->boot = f->boot;
	p->comm = comm;
	p->alive = true;
	p->state = 'S';
	thr(f, p, pid, comm);
	if (f->procs.n == 1)
		*wg_push(f->arena, &f->asked) = pid;
	return p;
}

#define T(p, t) wg_find_thread(p, t)
#define MAIN(p) (&(p)->threads.v[0])

static inline void child_of(struct wg_facts *f, struct wg_process *c, struct wg_process *parent)
{
	c->ppid = parent->pid;
	*wg_push(f->arena, &parent->children) = c->pid;
}

static inline void dead(struct wg_process *p, int status, int sig)
{
	p->alive = false;
	p->state = 'Z';
	p->threads.n = 0;
	p->end.known = true;
	p->end.status = status;
	p->end.signal = sig;
	p->end.age_s = SINCE;
}

/* "libc.so.6:futex_wait prog:work": innermost first */
static inline void native(struct wg_facts *f, struct wg_thread *t, const char *spec)
{
	char buf[512], *save, *w;
	uint64_t pc = 0x1000;

	snprintf(buf, sizeof(buf), "%s", spec);
	for (w = strtok_r(buf, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		struct wg_frame *x = wg_push(f->arena, &t->native_stack);
		char *c = strchr(w, ':');

		if (c) {
			*c = 0;
			x->symbol = wg_str(f->arena, c + 1);
		}
		x->module = wg_fmt(f->arena, "/usr/lib/%s", w);
		for (const char *s = x->symbol ? x->symbol : w; *s; s++)
			pc = pc * 31 + (unsigned char)*s;
		x->pc = pc & 0xffffffff;
		x->offset = 8;
		x->line = WG_NO_INT;
	}
	t->native_complete = true;
}

/* "threading.py:wait queue.py:get app.py:main"; names with a dot in front are the user's */
static inline void python(struct wg_facts *f, struct wg_thread *t, const char *spec)
{
	char buf[512], *save, *w;

	snprintf(buf, sizeof(buf), "%s", spec);
	for (w = strtok_r(buf, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
		struct wg_pyframe *x = wg_push(f->arena, &t->python_stack);
		char *c = strchr(w, ':');
		bool user = !strncmp(w, "app", 3);

		*c = 0;
		x->file = wg_fmt(f->arena, user ? "/home/u/%s" : "/usr/lib/python3.12/%s", w);
		x->function = wg_str(f->arena, c + 1);
		x->line = 10;
	}
	t->has_python = true;
}

static inline void futex(struct wg_thread *t, uint64_t addr, int op, uint32_t val)
{
	t->wait.op = WG_OP_FUTEX;
	t->wait.syscall_name = "futex";
	t->wait.has_args = true;
	t->wait.timeout_s = WG_NO_SEC;
	t->wait.timeout_known = true;
	t->wait.futex.addr = addr;
	t->wait.futex.op = op;
	t->wait.futex.val = val;
	t->wait.futex.words[0] = val;
	t->wait.futex.nwords = WG_FUTEX_WORDS;
	t->wait.futex.is_shared = !(op & 128);
}

static inline void mutex(struct wg_thread *t, uint64_t addr, int32_t owner)
{
	futex(t, addr, 128, 2);
	t->wait.futex.words[1] = 0;
	t->wait.futex.words[2] = (uint32_t)owner;
	t->wait.futex.words[3] = 1;
}

static inline void shared_mutex(struct wg_thread *t, uint64_t addr, int32_t owner)
{
	mutex(t, addr, owner);
	t->wait.futex.op = 0;
	t->wait.futex.is_shared = true;
	t->wait.futex.has_map = true;
	t->wait.futex.map_dev = 1;
	t->wait.futex.map_ino = 77;
	t->wait.futex.map_off = addr;
	t->wait.futex.words[4] = 0x80;
}

static inline void cond(struct wg_thread *t, uint64_t addr)
{
	futex(t, addr, 9 | 128, 0);
	t->wait.futex.words[0] = 0;
}

static inline void sem(struct wg_thread *t, uint64_t addr)
{
	futex(t, addr, 9 | 128 | 256, 0);
	t->wait.futex.words[1] = 1;
}

static inline void join(struct wg_thread *t, int32_t tid)
{
	futex(t, 0x7f0000000000ull + (uint64_t)tid, 9 | 256, (uint32_t)tid);
}

static inline void timeout(struct wg_thread *t, double s)
{
	t->wait.timeout_s = s;
	t->wait.timeout_known = true;
}

static inline void since(struct wg_thread *t, double s)
{
	t->wait.since_s = s;
	t->last_ran_s = s;
}

static inline void sleeps(struct wg_thread *t, double length, double ago)
{
	t->wait.op = WG_OP_SLEEP;
	t->wait.syscall_name = "clock_nanosleep";
	timeout(t, length);
	since(t, ago);
}

static inline void runs(struct wg_thread *t)
{
	t->state = 'R';
	t->wait.op = WG_OP_RUNNING;
	t->wait.since_s = t->wait.timeout_s = WG_NO_SEC;
	t->cpu_share = 0.99;
	t->same_place = false;
	t->switches = 3;
	t->last_ran_s = 0;
}

static inline void moves(struct wg_thread *t) /* it ran between the looks */
{
	t->same_place = true;
	t->switches = 40;
	t->last_ran_s = 0.001;
	t->cpu_share = 0.05;
	t->wait.since_s = 0.001;
}

static inline void pauses(struct wg_thread *t)
{
	t->wait.op = WG_OP_SIGWAIT;
	t->wait.syscall_name = "pause";
	t->wait.timeout_s = WG_NO_SEC;
}

static inline void stops(struct wg_process *p)
{
	p->state = 'T';
	for (size_t i = 0; i < p->threads.n; i++)
		p->threads.v[i].state = 'T';
}

static inline struct wg_file *file(struct wg_facts *f, struct wg_process *p, int fd,
				   enum wg_file_kind kind, uint64_t ino, int64_t flags)
{
	struct wg_file *x = wg_add_file(f, p);

	x->fd = fd;
	x->kind = kind;
	x->ino = ino;
	x->dev = kind == WG_FILE_PIPE ? 14 : 8;
	x->flags = flags;
	x->path = wg_fmt(f->arena, kind == WG_FILE_PIPE ? "pipe:[%llu]" : "/data/%llu",
			 (unsigned long long)ino);
	x->sock_rcv_timeout_s = x->sock_snd_timeout_s = 0;
	return x;
}

static inline void pipe_end(struct wg_facts *f, struct wg_process *p, int fd, uint64_t ino,
			    bool write)
{
	file(f, p, fd, WG_FILE_PIPE, ino, write ? O_WRONLY : O_RDONLY);
}

static inline struct wg_file *sock(struct wg_facts *f, struct wg_process *p, int fd, uint64_t ino,
				   uint64_t peer)
{
	struct wg_file *x = file(f, p, fd, WG_FILE_SOCKET, ino, O_RDWR);

	x->sock_state = WG_SOCK_CONNECTED;
	x->sock_peer_ino = peer;
	x->path = wg_fmt(f->arena, "socket:[%llu]", (unsigned long long)ino);
	return x;
}

static inline void io(struct wg_thread *t, enum wg_op op, int fd)
{
	t->wait.op = op;
	t->wait.syscall_name = op == WG_OP_READ ? "read" : op == WG_OP_WRITE ? "write" : "syscall";
	t->wait.fd = fd;
	t->wait.timeout_s = WG_NO_SEC;
}

static inline void polls_fd(struct wg_facts *f, struct wg_thread *t, enum wg_op op, int fd,
			    int16_t events)
{
	struct wg_pollfd *x;

	t->wait.op = op;
	t->wait.syscall_name = op == WG_OP_POLL ? "poll" : "epoll_wait";
	t->wait.timeout_s = WG_NO_SEC;
	t->wait.timeout_known = true;
	x = wg_push(f->arena, &t->wait.fds);
	x->fd = fd;
	x->events = events;
}

static inline void waits_child(struct wg_thread *t, int64_t pid)
{
	t->wait.op = WG_OP_WAIT;
	t->wait.syscall_name = "wait4";
	t->wait.child = pid;
	t->wait.timeout_s = WG_NO_SEC;
}

/* ---- GPU ---- */

static inline struct wg_call *call(struct wg_facts *f, struct wg_thread *t, const char *fn,
				   enum wg_call_kind kind, double ago)
{
	struct wg_call *c = wg_add_call(f, t);

	c->function = fn;
	c->kind = kind;
	c->since_s = ago;
	c->device = 0;
	/* inside a polling synchronisation */
	t->state = 'R';
	t->wait.op = WG_OP_RUNNING;
	t->wait.timeout_s = WG_NO_SEC;
	t->cpu_share = 1;
	return c;
}

static inline void syncs(struct wg_facts *f, struct wg_thread *t, uint64_t stream)
{
	struct wg_call *c = call(f, t, "cuStreamSynchronize", WG_CALL_SYNC, SINCE);

	c->stream = stream;
	c->has_stream = true;
}

/* A stream of device 0 with a history of 3 ms steps. Index returned: pointers move. */
static inline size_t stream(struct wg_facts *f, struct wg_process *p, uint64_t handle)
{
	struct wg_stream *s = wg_add_stream(f, p);

	p->recorded = p->cuda_up = true;
	s->device = 0;
	s->handle = handle;
	s->flags = handle > 2;
	s->enqueued = s->completed = 50;
	s->completed_exact = s->has_position = true;
	s->progress_age_s = SINCE;
	s->longest_gap_s = 0.003;
	return p->streams.n - 1;
}

static inline struct wg_gpu_item *item(struct wg_facts *f, struct wg_process *p, size_t s,
				       enum wg_gpu_op op, const char *name)
{
	struct wg_stream *st = &p->streams.v[s];
	struct wg_gpu_item *x = wg_add_gpu_item(f, st);

	x->seq = ++st->enqueued;
	x->op = op;
	x->name = name;
	x->age_s = SINCE;
	x->tid = p->pid;
	x->event_stream_ix = WG_NO_INT;
	return x;
}

/* ---- collectives ---- */

static inline struct wg_process *rank(struct wg_facts *f, int32_t pid, int64_t r, int64_t world)
{
	struct wg_process *p = proc(f, pid, "train");

	p->rank = r;
	p->world = world;
	p->rank_source = "RANK";
	p->recorded = p->cuda_up = true;
	return p;
}

static inline struct wg_comm *comm(struct wg_facts *f, struct wg_process *p, const char *id,
				   int64_t r, int64_t size)
{
	struct wg_comm *c = wg_add_comm(f, p);

	c->id = id;
	c->handle = 0xc0000 + p->comms.n;
	c->rank = r;
	c->size = size;
	c->device = 0;
	c->state = "ready";
	return c;
}

/* The rank entered collective `seq` of its comms[ci] and it is not done. */
static inline struct wg_collective *enters(struct wg_facts *f, struct wg_process *p, size_t ci,
					   uint64_t seq, const char *op, int64_t count)
{
	struct wg_comm *c = &p->comms.v[ci];
	struct wg_collective *x = wg_add_collective(f, c);

	x->sequence = seq;
	x->op = op;
	x->count = count;
	x->type = "f32";
	x->state = WG_COLL_RUNNING;
	x->age_s = SINCE;
	x->stream = 0x50;
	x->tid = p->pid;
	c->next_sequence = seq + 1;
	c->done = seq;
	c->done_known = true;
	return x;
}

/* It has entered and finished everything before `seq`. */
static inline void finished(struct wg_process *p, size_t ci, uint64_t seq)
{
	p->comms.v[ci].next_sequence = p->comms.v[ci].done = seq;
	p->comms.v[ci].done_known = true;
}

/* Main synchronises a stream whose head is that collective. */
static inline void stands_in(struct wg_facts *f, struct wg_process *p, size_t ci, uint64_t seq)
{
	size_t s = stream(f, p, 0x50);
	struct wg_gpu_item *x = item(f, p, s, WG_GPU_COLLECTIVE, "AllReduce");

	x->comm = (int64_t)ci;
	x->coll_seq = seq;
	syncs(f, MAIN(p), 0x50);
}

/* ---- the table ---- */

struct graph_case {
	const char *name;
	void (*build)(struct wg_facts *f);
	const char *classes; /* "deadlock|no-waker" */
	enum wg_hung hung;
	int64_t pid, tid; /* culprit; 0: not compared */
	const char *says; /* in summary, chain or what is not established; NULL */
	int confidence;	  /* at least this unsure (enum wg_confidence); -1 exactly certain; 0 any */
};

static inline bool word_in(const char *list, const char *word)
{
	size_t n = strlen(word);

	for (const char *s = list; s; s = strchr(s, '|') ? strchr(s, '|') + 1 : NULL)
		if (!strncmp(s, word, n) && (!s[n] || s[n] == '|'))
			return true;
	return false;
}

static inline bool said(const struct wg_verdict *v, const char *what)
{
	if (strstr(v->summary, what) || (v->culprit.what && strstr(v->culprit.what, what)) ||
	    (v->advice && strstr(v->advice, what)))
		return true;
	for (size_t i = 0; i < v->chain.n; i++)
		if (strstr(v->chain.v[i], what))
			return true;
	for (size_t i = 0; i < v->not_established.n; i++)
		if (strstr(v->not_established.v[i], what))
			return true;
	return false;
}

static inline void run_case(void **state)
{
	const struct graph_case *c = *state;
	struct wg_facts *f = facts();
	struct wg_graph *g;
	const struct wg_verdict *v;
	bool ok;

	c->build(f);
	g = wg_graph_build(f);
	v = &g->verdict;
	assert_non_null(v->class_name);
	assert_non_null(v->summary);
	assert_non_null(v->advice);
	ok = word_in(c->classes, v->class_name) && v->hung == c->hung &&
	     (!c->pid || (v->culprit.present && v->culprit.pid == c->pid)) &&
	     (!c->tid || (v->culprit.present && v->culprit.tid == c->tid)) &&
	     (!c->says || said(v, c->says)) &&
	     (c->confidence == -1 ? v->confidence == WG_CONF_CERTAIN
				  : (int)v->confidence >= c->confidence);
	if (!ok || getenv("GRAPH_SHOW")) {
		printf("%s: %s hung=%d confidence=%d culprit=%lld/%lld rank=%lld (%s) phase=%s\n  "
		       "%s\n",
		       c->name, v->class_name, v->hung, v->confidence, (long long)v->culprit.pid,
		       (long long)v->culprit.tid, (long long)v->culprit.rank,
		       v->culprit.what ? v->culprit.what : "-", v->phase ? v->phase : "-",
		       v->summary);
		for (size_t i = 0; i < v->chain.n; i++)
			printf("    %s\n", v->chain.v[i]);
		for (size_t i = 0; i < v->not_established.n; i++)
			printf("    ? %s\n", v->not_established.v[i]);
	}
	if (!ok)
		printf("  wanted: %s hung=%d culprit=%lld/%lld says=%s confidence>=%d\n",
		       c->classes, c->hung, (long long)c->pid, (long long)c->tid,
		       c->says ? c->says : "-", c->confidence);
	/* True of every graph: one view a thread, in order; edges point at nodes; ids are unique.
	 */
	{
		size_t n = 0;

		for (size_t i = 0; i < f->procs.n; i++)
			for (size_t k = 0; k < f->procs.v[i]->threads.n; k++, n++)
				assert_ptr_equal(g->waits.v[n].thread,
						 &f->procs.v[i]->threads.v[k]);
		assert_int_equal(n, g->waits.n);
	}
	for (size_t i = 0; i < g->edges.n; i++) {
		assert_true(g->edges.v[i].from < g->nodes.n);
		assert_true(g->edges.v[i].to < g->nodes.n);
	}
	for (size_t i = 0; i < g->nodes.n && g->nodes.n < 500; i++)
		for (size_t k = 0; k < i; k++)
			assert_string_not_equal(g->nodes.v[i].id, g->nodes.v[k].id);
	wg_graph_free(g);
	wg_facts_free(f);
	assert_true(ok);
}

#define RUN_CASES(table)                                                                           \
	int main(void)                                                                             \
	{                                                                                          \
		enum { HOW_MANY = sizeof(table) / sizeof((table)[0]) };                            \
		static struct CMUnitTest tests[HOW_MANY];                                          \
		for (size_t i = 0; i < HOW_MANY; i++)                                              \
			tests[i] = (struct CMUnitTest){(table)[i].name, run_case, NULL, NULL,      \
						       (void *)&(table)[i]};                       \
		return cmocka_run_group_tests(tests, NULL, NULL);                                  \
	}

#endif
