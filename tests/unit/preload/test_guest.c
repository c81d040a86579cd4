// SPDX-License-Identifier: Apache-2.0
/*
 * Programs under the built recorder on the simulated GPU; what stands in their recorder files is read
 * from outside while they hang, as `waitgraph` does.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "recfile.h"

#define GUEST WG_BUILD_DIR "/bin/preload_guest_gpu"
#define LINKED WG_BUILD_DIR "/bin/preload_guest_nccl"
#define RECORDER WG_BUILD_DIR "/lib/libwaitgraph.so"

struct guest {
	int pid, out;
	char buf[4096];
	size_t n;
	char dir[64];
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void start_program(struct guest *g, const char *program, const char *scene)
{
	int fd[2];

	memset(g, 0, sizeof(*g));
	strcpy(g->dir, "/tmp/wg-guest-XXXXXX");
	assert_non_null(mkdtemp(g->dir));
	assert_int_equal(pipe2(fd, O_CLOEXEC), 0);
	g->pid = fork();
	if (!g->pid) {
		setpgid(0, 0);
		dup2(fd[1], 1);
		setenv("LD_PRELOAD", RECORDER, 1);
		setenv("LD_LIBRARY_PATH", WG_BUILD_DIR "/lib/simgpu", 1);
		setenv("WAITGRAPH_DIR", g->dir, 1);
		setenv("SIMGPU_SESSION", g->dir + 5, 1);
		setenv("SIMGPU_MEMORY", "256M", 1);
		setenv("SIMGPU_CONTEXT", "16M", 1);
		execl(program, program, scene, NULL);
		_exit(127);
	}
	close(fd[1]);
	g->out = fd[0];
}

static void start(struct guest *g, const char *scene)
{
	start_program(g, GUEST, scene);
}

/* The next line that the guest says; fails the test after 20 seconds. */
static void line(struct guest *g, char *out, size_t size)
{
	double end = now() + 20;
	char *nl;

	while (!(nl = memchr(g->buf, '\n', g->n))) {
		struct pollfd p = { g->out, POLLIN, 0 };
		ssize_t got;

		if (now() > end || poll(&p, 1, 1000) < 0)
			fail_msg("the guest says nothing");
		if (!(p.revents & (POLLIN | POLLHUP)))
			continue;
		got = read(g->out, g->buf + g->n, sizeof(g->buf) - g->n);
		if (got <= 0)
			fail_msg("the guest ended early");
		g->n += (size_t)got;
	}
	snprintf(out, size, "%.*s", (int)(nl - g->buf), g->buf);
	g->n -= (size_t)(nl + 1 - g->buf);
	memmove(g->buf, nl + 1, g->n);
}

static void stop(struct guest *g)
{
	char cmd[128];

	kill(-g->pid, SIGKILL);
	waitpid(g->pid, NULL, 0);
	close(g->out);
	snprintf(cmd, sizeof(cmd), "rm -rf %s", g->dir);
	assert_int_equal(system(cmd), 0);
}

static void drop(struct recfile *r)
{
	char path[sizeof(r->path)];

	memcpy(path, r->path, sizeof(path));
	rec_close(r);
	unlink(path); /* of a killed guest */
}

/* Waits until a condition holds: what is asked follows shortly after "ready". */
#define SOON(condition)                                             \
	do {                                                        \
		double end_ = now() + 10;                           \
		while (!(condition)) {                              \
			if (now() > end_)                           \
				fail_msg("not so: " #condition);    \
			usleep(2000);                               \
		}                                                   \
	} while (0)

static const struct wgrec_call *in_flight(const struct recfile *r, int tid)
{
	for (uint64_t i = 0; i < rec_used(r, WGREC_THREADS); i++) {
		const struct wgrec_thread *t = rec_at(r, WGREC_THREADS, i);

		if (t && (int)t->tid == tid && t->depth)
			return &t->calls[0];
	}
	return NULL;
}

static bool is_in(const struct recfile *r, int tid, const char *fn)
{
	const struct wgrec_call *c = in_flight(r, tid);

	return c && !strncmp(rec_fn(r, c->fn), fn, strlen(fn));
}

/* ---- streams -------------------------------------------------------------------------- */

static void position_is_readable_while_a_kernel_spins(void **state)
{
	const struct wgrec_stream *s;
	const struct wgrec_item *it;
	unsigned long long handle;
	struct recfile r;
	struct guest g;
	char l[256];

	(void)state;
	start(&g, "spin");
	line(&g, l, sizeof(l));
	assert_int_equal(sscanf(l, "ready %llx", &handle), 1);
	assert_true(rec_open(&r, g.pid));
	SOON(is_in(&r, g.pid, "cuStreamSynchronize"));
	s = rec_stream(&r, handle, 0);
	assert_non_null(s);
	assert_int_not_equal(s->position, UINT32_MAX);
	SOON(rec_done(&r, s) == 20);
	assert_int_equal(s->enqueued, 51);
	assert_int_equal(s->marked, 51); /* covered before it blocked */
	it = rec_item(&r, s, 21);
	assert_non_null(it);
	assert_string_equal(rec_string(&r, it->name), "spin_the_wheel");
	assert_true(it->flags & WGREC_ITEMF_MARKED);
	assert_string_equal(rec_string(&r, rec_item(&r, s, 22)->name), "quick");
	/* Also while it is stopped, and when it is dead. */
	kill(g.pid, SIGSTOP);
	assert_int_equal(rec_done(&r, s), 20);
	stop(&g);
	rec_close(&r);
	assert_true(rec_open(&r, g.pid));
	s = rec_stream(&r, handle, 0);
	assert_int_equal(rec_done(&r, s), 20);
	drop(&r);
}

static void legacy_stream(void **state)
{
	const struct wgrec_stream *s;
	struct recfile r;
	struct guest g;
	char l[256];

	(void)state;
	start(&g, "legacy");
	line(&g, l, sizeof(l));
	assert_true(rec_open(&r, g.pid));
	SOON(is_in(&r, g.pid, "cuCtxSynchronize"));
	s = rec_stream(&r, 0, 0);
	assert_non_null(s);
	SOON(rec_done(&r, s) == 3);
	assert_string_equal(rec_string(&r, rec_item(&r, s, 4)->name), "spin");
	assert_true(rec_item(&r, s, 4)->flags & WGREC_ITEMF_MARKED);
	stop(&g);
	drop(&r);
}

static void capture_stays_untouched(void **state)
{
	const struct wgrec_stream *s, *o;
	unsigned long long handle, other, exec;
	struct recfile r;
	struct guest g;
	char l[256];

	(void)state;
	start(&g, "capture");
	line(&g, l, sizeof(l)); /* a write into the capture would have made a call fail */
	assert_int_equal(sscanf(l, "ready %llx %llx %llx", &handle, &other, &exec), 3);
	assert_true(rec_open(&r, g.pid));
	SOON(is_in(&r, g.pid, "cuStreamSynchronize"));
	s = rec_stream(&r, handle, 0);
	o = rec_stream(&r, other, 0);
	assert_int_equal(s->enqueued, 5 + 1 + 1);
	assert_int_equal(o->enqueued, 7);
	assert_int_equal(s->capturing, 0);
	assert_int_equal(rec_item(&r, s, 6)->op, WGREC_OP_GRAPH);
	assert_int_equal(rec_item(&r, s, 6)->object, exec);
	SOON(rec_done(&r, s) == 6);
	stop(&g);
	drop(&r);
}

static void per_thread_default_streams(void **state)
{
	struct recfile r;
	struct guest g;
	char l[256];
	int n[2], tid[2];

	(void)state;
	start(&g, "per-thread");
	for (int k = 0; k < 2; k++) {
		line(&g, l, sizeof(l));
		assert_int_equal(sscanf(l, "thread %d %d", &n[k], &tid[k]), 2);
	}
	assert_true(rec_open(&r, g.pid));
	for (int k = 0; k < 2; k++) {
		const struct wgrec_stream *s = rec_stream(&r, 2, (uint32_t)tid[k]);

		assert_non_null(s);
		assert_int_equal(s->enqueued, n[k] + 1);
		SOON(is_in(&r, tid[k], "cuStreamSynchronize"));
		SOON(rec_done(&r, s) == (uint64_t)n[k]);
	}
	stop(&g);
	drop(&r);
}

static void events(void **state)
{
	const struct wgrec_stream *sa, *sb;
	unsigned long long a, b, never, recorded;
	const struct wgrec_item *it;
	struct recfile r;
	struct guest g;
	char l[256];

	(void)state;
	start(&g, "events");
	line(&g, l, sizeof(l));
	assert_int_equal(sscanf(l, "ready %llx %llx %llx %llx", &a, &b, &never, &recorded), 4);
	assert_true(rec_open(&r, g.pid));
	SOON(is_in(&r, g.pid, "cuStreamSynchronize"));
	sa = rec_stream(&r, a, 0);
	sb = rec_stream(&r, b, 0);
	it = rec_item(&r, sb, 1);
	assert_int_equal(it->op, WGREC_OP_WAIT_EVENT);
	assert_int_equal(it->object, never);
	assert_int_equal(it->other, UINT32_MAX);
	assert_int_equal(it->value, 0);
	it = rec_item(&r, sb, 4);
	assert_int_equal(it->op, WGREC_OP_WAIT_EVENT);
	assert_int_equal(it->object, recorded);
	assert_int_equal(it->value, 2); /* item 2 of the other stream */
	assert_ptr_equal(rec_at(&r, WGREC_STREAMS, it->other), sa);
	assert_int_equal(rec_item(&r, sa, 2)->op, WGREC_OP_RECORD_EVENT);
	SOON(rec_done(&r, sb) >= 3);
	assert_true(rec_done(&r, sb) < 4);
	assert_int_equal(rec_done(&r, sa), 0);
	stop(&g);
	drop(&r);
}

static void value_wait(void **state)
{
	unsigned long long handle, word;
	const struct wgrec_stream *s;
	const struct wgrec_item *it;
	struct recfile r;
	struct guest g;
	char l[256];

	(void)state;
	start(&g, "wait-value");
	line(&g, l, sizeof(l));
	assert_int_equal(sscanf(l, "ready %llx %llx", &handle, &word), 2);
	assert_true(rec_open(&r, g.pid));
	SOON(is_in(&r, g.pid, "cuStreamSynchronize"));
	s = rec_stream(&r, handle, 0);
	SOON(rec_done(&r, s) == 3);
	it = rec_item(&r, s, 4);
	assert_int_equal(it->op, WGREC_OP_WAIT_VALUE);
	assert_int_equal(it->object, word);
	assert_int_equal(it->value, 5);
	assert_int_equal(it->flags & 0xff, 1);
	assert_true(it->flags & WGREC_ITEMF_MARKED);
	stop(&g);
	drop(&r);
}

static void host_function(void **state)
{
	unsigned long long handle, fn;
	const struct wgrec_stream *s;
	struct recfile r;
	struct guest g;
	char l[256];

	(void)state;
	start(&g, "host-function");
	line(&g, l, sizeof(l));
	assert_int_equal(sscanf(l, "ready %llx %llx", &handle, &fn), 2);
	assert_true(rec_open(&r, g.pid));
	SOON(is_in(&r, g.pid, "cuStreamSynchronize"));
	s = rec_stream(&r, handle, 0);
	SOON(rec_done(&r, s) == 3);
	assert_int_equal(rec_item(&r, s, 4)->op, WGREC_OP_HOSTFN);
	assert_int_equal(rec_item(&r, s, 4)->object, fn);
	assert_true(rec_item(&r, s, 4)->flags & WGREC_ITEMF_MARKED);
	stop(&g);
	drop(&r);
}

static void the_program_sees_no_difference(void **state)
{
	unsigned long long handle;
	const struct wgrec_stream *s;
	struct recfile r;
	struct guest g;
	char l[256];

	(void)state;
	start(&g, "results");
	line(&g, l, sizeof(l));
	assert_int_equal(sscanf(l, "ready %llx", &handle), 1);
	assert_true(rec_open(&r, g.pid));
	/* After the reset: a new context with a page of its own, the old one's streams gone. */
	s = rec_stream(&r, handle, 0);
	assert_non_null(s);
	assert_int_equal(s->enqueued - s->first, 30);
	assert_int_equal(rec_done(&r, s), s->enqueued);
	assert_int_not_equal(s->position, UINT32_MAX);
	stop(&g);
	drop(&r);
}

/* ---- collectives ----------------------------------------------------------------------- */

struct ranks {
	int pid[8];
	struct recfile r[8];
};

/* Waits until each of n ranks has said "rank K PID" or "idle K PID" (it may say both). */
static void gather(struct guest *g, struct ranks *x, int n)
{
	char l[256], word[16];
	int k, pid;

	memset(x, 0, sizeof(*x));
	while (n) {
		line(g, l, sizeof(l));
		assert_int_equal(sscanf(l, "%15s %d %d", word, &k, &pid), 3);
		assert_in_range(k, 0, 7);
		if (x->pid[k])
			continue;
		x->pid[k] = pid;
		assert_true(rec_open(&x->r[k], pid));
		n--;
	}
}

static void drop_all(struct ranks *x)
{
	for (int k = 0; k < 8; k++)
		if (x->pid[k])
			drop(&x->r[k]);
}

static const struct wgrec_comm *comm(const struct recfile *r, uint64_t i)
{
	return rec_at(r, WGREC_COMMS, i);
}

static const struct wgrec_coll *coll(const struct recfile *r, const struct wgrec_comm *c, uint64_t n)
{
	const struct wgrec_coll *x = rec_at(r, WGREC_COLLS, c->colls_first + n % WGREC_COMM_COLLS);

	return x && x->sequence_plus_1 == n + 1 ? x : NULL;
}

static void missing_rank_has_the_lower_number(void **state)
{
	struct ranks x;
	struct guest g;

	(void)state;
	start(&g, "missing");
	gather(&g, &x, 3);
	for (int k = 0; k < 3; k++) {
		const struct wgrec_comm *c = comm(&x.r[k], 0);

		assert_non_null(c);
		assert_int_equal(c->state, WGREC_COMM_READY);
		assert_int_equal(c->rank, k);
		assert_int_equal(c->size, 3);
		assert_string_equal(c->id, comm(&x.r[0], 0)->id);
		assert_int_equal(strlen(c->id), 32);
		assert_int_equal(c->entered, k == 1 ? 3 : 4);
	}
	for (int k = 0; k < 3; k += 2) {
		const struct wgrec_comm *c = comm(&x.r[k], 0);
		const struct wgrec_coll *q = coll(&x.r[k], c, 3);
		const struct wgrec_stream *s;

		SOON(is_in(&x.r[k], x.pid[k], "cuStreamSynchronize"));
		assert_non_null(q);
		assert_string_equal(rec_fn(&x.r[k], q->fn), "ncclAllReduce");
		assert_int_equal(q->count, 2000);
		assert_int_equal(q->type, 7);
		assert_int_equal(q->returned, 1);
		assert_int_not_equal(q->stream_seq, 0);
		s = rec_at(&x.r[k], WGREC_STREAMS, q->stream_index);
		/* The head is what the collective gave, exactly. */
		assert_true(rec_done(&x.r[k], s) < q->stream_seq);
		const struct wgrec_item *head = rec_item(&x.r[k], s, rec_done(&x.r[k], s) + 1);
		assert_non_null(head);
		assert_true(head->flags & WGREC_ITEMF_NCCL || head->op == WGREC_OP_COLLECTIVE);
		const struct wgrec_item *it = rec_item(&x.r[k], s, q->stream_seq);
		assert_int_equal(it->op, WGREC_OP_COLLECTIVE);
		assert_int_equal(it->value, 3);
		assert_ptr_equal(rec_at(&x.r[k], WGREC_COMMS, it->other), c);
		SOON(c->done == 3); /* by the helper thread */
	}
	stop(&g);
	drop_all(&x);
}

static void mismatch_is_visible_at_one_number(void **state)
{
	struct ranks x;
	struct guest g;

	(void)state;
	start(&g, "mismatch");
	gather(&g, &x, 2);
	assert_string_equal(comm(&x.r[0], 0)->id, comm(&x.r[1], 0)->id);
	for (int k = 0; k < 2; k++) {
		const struct wgrec_comm *c = comm(&x.r[k], 0);

		assert_int_equal(c->entered, 2);
		assert_int_equal(coll(&x.r[k], c, 0)->count, 100);
		assert_int_equal(coll(&x.r[k], c, 1)->count, k ? 300 : 200);
	}
	stop(&g);
	drop_all(&x);
}

static void creation_with_a_missing_rank(void **state)
{
	struct ranks x;
	struct guest g;

	(void)state;
	start(&g, "missing-at-creation");
	gather(&g, &x, 3);
	for (int k = 0; k < 3; k += 2) {
		SOON(is_in(&x.r[k], x.pid[k], "ncclCommInitRank"));
		/* Written down within that call, before NCCL's: a moment later than the call itself. */
		SOON(comm(&x.r[k], 0) && comm(&x.r[k], 0)->state == WGREC_COMM_INIT);
		const struct wgrec_comm *c = comm(&x.r[k], 0);

		assert_int_equal(c->handle, 0);
		assert_int_equal(c->rank, k);
		assert_int_equal(c->size, 3);
		assert_string_equal(c->id, comm(&x.r[0], 0)->id);
		assert_int_equal(in_flight(&x.r[k], x.pid[k])->args[0], 0);
		assert_int_equal(in_flight(&x.r[k], x.pid[k])->args[2], k);
	}
	assert_null(comm(&x.r[1], 0));
	stop(&g);
	drop_all(&x);
}

static void groups_and_splits(void **state)
{
	struct ranks x;
	struct guest g;

	(void)state;
	start(&g, "group-and-split");
	gather(&g, &x, 4);
	for (int k = 0; k < 4; k++) {
		const struct wgrec_comm *c = comm(&x.r[k], 0), *half = comm(&x.r[k], 1);

		assert_non_null(half);
		assert_int_equal(c->entered, 1);
		assert_int_equal(c->p2p_entered, 2);
		const struct wgrec_coll *s = rec_at(&x.r[k], WGREC_COLLS,
						    c->colls_first + WGREC_COMM_COLLS);
		assert_string_equal(rec_fn(&x.r[k], s->fn), "ncclSend");
		assert_int_equal(s->root, (k + 1) % 4);
		assert_true(s->flags & WGREC_COLLF_GROUPED);
		assert_int_not_equal(s->stream_seq, 0);
		assert_string_equal(half->parent, c->id);
		assert_string_equal(half->id, comm(&x.r[k % 2], 1)->id);
		assert_string_not_equal(half->id, comm(&x.r[(k + 1) % 4], 1)->id);
		assert_int_equal(half->size, 2);
		assert_int_equal(half->rank, k / 2);
		assert_int_equal(half->entered, k == 3 ? 1 : 2);
	}
	/* Ranks 0 and 2 are through; 1 waits for 3. */
	SOON(is_in(&x.r[1], x.pid[1], "cuStreamSynchronize"));
	SOON(comm(&x.r[0], 1)->done == 2);
	SOON(comm(&x.r[1], 1)->done == 1);
	stop(&g);
	drop_all(&x);
}

static void bound_by_the_linker(void **state)
{
	const struct wgrec_comm *c;
	struct ranks x;
	struct guest g;

	(void)state;
	start_program(&g, LINKED, "whole");
	gather(&g, &x, 1);
	SOON((c = comm(&x.r[0], 0)) && c->done == 2);
	assert_int_equal(c->state, WGREC_COMM_READY);
	assert_non_null(strstr(rec_string(&x.r[0], c->library), "libnccl.so"));
	assert_int_equal(c->size, 1);
	assert_string_equal(rec_fn(&x.r[0], coll(&x.r[0], c, 0)->fn), "ncclAllReduce");
	assert_int_equal(coll(&x.r[0], c, 0)->redop, 2);
	assert_string_equal(rec_fn(&x.r[0], coll(&x.r[0], c, 1)->fn), "ncclBroadcast");
	assert_int_equal(coll(&x.r[0], c, 1)->root, 0);
	assert_int_equal(coll(&x.r[0], c, 1)->type, 8);
	stop(&g);
	drop_all(&x);
}

static void creation_as_first_use_of_cuda(void **state)
{
	const struct wgrec_comm *c;
	struct recfile r;
	struct guest g;
	char l[64];

	(void)state;
	start_program(&g, LINKED, "first");
	line(&g, l, sizeof(l));
	SOON(rec_open(&r, g.pid));
	SOON((c = comm(&r, 0)) && c->valid);
	assert_int_equal(c->state, WGREC_COMM_INIT);
	assert_int_equal(c->rank, 0);
	assert_int_equal(c->size, 2);
	assert_int_equal(strlen(c->id), 32);
	stop(&g);
	drop(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(position_is_readable_while_a_kernel_spins),
		cmocka_unit_test(legacy_stream),
		cmocka_unit_test(capture_stays_untouched),
		cmocka_unit_test(per_thread_default_streams),
		cmocka_unit_test(events),
		cmocka_unit_test(value_wait),
		cmocka_unit_test(host_function),
		cmocka_unit_test(the_program_sees_no_difference),
		cmocka_unit_test(missing_rank_has_the_lower_number),
		cmocka_unit_test(mismatch_is_visible_at_one_number),
		cmocka_unit_test(creation_with_a_missing_rank),
		cmocka_unit_test(groups_and_splits),
		cmocka_unit_test(bound_by_the_linker),
		cmocka_unit_test(creation_as_first_use_of_cuda),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
