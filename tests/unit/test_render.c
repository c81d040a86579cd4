/* SPDX-License-Identifier: Apache-2.0 */
/* What people read: the head fits 24 lines of 100 columns whatever the facts are. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "render/page.h"
#include "render/render.h"

/* A graph made by hand: the renderers must not depend on how a verdict was found. */
static struct wg_graph *graph(struct wg_facts *f)
{
	struct wg_arena *a = wg_arena_new();
	struct wg_graph *g = wg_alloc(a, sizeof(*g));

	g->arena = a;
	g->facts = f;
	g->verdict.culprit.pid = g->verdict.culprit.tid = g->verdict.culprit.rank = WG_NO_INT;
	return g;
}

static uint32_t node(struct wg_graph *g, enum wg_node_kind kind, const char *id, const char *label,
		     struct wg_process *p, struct wg_thread *t)
{
	struct wg_node *n = wg_push(g->arena, &g->nodes);

	n->id = id;
	n->kind = kind;
	n->label = label;
	n->process = p;
	n->thread = t;
	return (uint32_t)g->nodes.n - 1;
}

static void edge(struct wg_graph *g, uint32_t from, uint32_t to, enum wg_edge_kind kind,
		 const char *evidence, bool certain)
{
	struct wg_edge *e = wg_push(g->arena, &g->edges);

	e->from = from;
	e->to = to;
	e->kind = kind;
	e->evidence = evidence;
	e->certain = certain;
	e->since_s = 312;
	e->step = (uint32_t)g->edges.n; /* unless a test says otherwise: part of the chain */
}

static void frame(struct wg_facts *f, struct wg_thread *t, const char *symbol, const char *module)
{
	struct wg_frame *fr = wg_push(f->arena, &t->native_stack);

	fr->symbol = symbol;
	fr->module = module;
	fr->line = WG_NO_INT;
	fr->pc = 0x1000;
}

static void pyframe(struct wg_facts *f, struct wg_thread *t, const char *function, int line)
{
	struct wg_pyframe *fr = wg_push(f->arena, &t->python_stack);

	fr->function = function;
	fr->file = "/home/someone/project/src/train.py";
	fr->line = line;
}

/* A rank of eight in an all-reduce, with 200 threads of which most are idle. */
static struct wg_graph *example(struct wg_facts *f)
{
	struct wg_process *p = wg_add_process(f);
	struct wg_device *d;
	struct wg_failure *x;
	struct wg_stream *s;
	struct wg_gpu_item *item;
	struct wg_comm *c;
	struct wg_collective *k;
	struct wg_file *file;
	struct wg_graph *g;
	struct wg_verdict *v;
	uint32_t a, b, z;

	f->host = "node7";
	f->live = true;
	f->taken_at = 1.7e9;
	p->pid = 4242;
	p->alive = p->recorded = true;
	p->command = "python -u train.py --config configs/large.yaml";
	p->rank = 3;
	p->world = 8;
	p->age_s = 7321;
	for (int i = 0; i < 200; i++) {
		struct wg_thread *t = wg_add_thread(f, p);

		t->tid = 4242 + i;
		t->state = i ? 'S' : 'R';
		t->name = !i ? "python" : i < 65 ? "OpenBLAS" : i < 199 ? "pt_autograd_0" : "wg-helper";
		t->native_complete = true;
		if (!i) {
			struct wg_call *call = wg_add_call(f, t);
			struct wg_arg *arg;

			call->function = "cudaStreamSynchronize";
			call->inner = "cuStreamSynchronize";
			call->since_s = 312;
			arg = wg_push(f->arena, &call->args);
			arg->name = "stream";
			arg->text = "0x5500";
			frame(f, t, "cuStreamSynchronize", "/usr/lib/libcuda.so.1");
			frame(f, t, "at::native::_local_scalar_dense_cuda(at::Tensor const&)::{lambda()#1}",
			      "/opt/libtorch_cuda.so");
			frame(f, t, "_PyEval_EvalFrameDefault", "/usr/bin/python3.12");
			frame(f, t, "PyEval_EvalCode", "/usr/bin/python3.12");
			frame(f, t, "Py_RunMain", "/usr/bin/python3.12");
			frame(f, t, "_start", "/usr/bin/python3.12");
			pyframe(f, t, "Trainer.step", 112);
			pyframe(f, t, "Trainer.fit", 80);
			pyframe(f, t, "<module>", 201);
			t->cpu_share = 1;
		} else {
			frame(f, t, "futex_wait", "/lib/libc.so.6");
			frame(f, t, i < 65 ? "blas_thread_server" : "autograd::Engine::thread_main", "/x.so");
		}
		t->ours = i == 199;
	}
	d = wg_add_device(f, p);
	d->index = 0;
	d->name = "NVIDIA H200";
	d->total = 150ll << 30;
	d->free = 12ll << 30;
	d->own = 120ll << 30;
	d->utilization = 100;
	d->power_w = 119;
	d->power_limit_w = 700;
	x = wg_add_failure(f, d);
	x->function = "cuMemAlloc_v2";
	x->asked = 20ll << 30;
	x->free = 12ll << 30;
	x->short_by = 8ll << 30;
	x->age_s = 400;
	x->tid = 4250;
	x->recovered_known = true;
	s = wg_add_stream(f, p);
	s->device = 0;
	s->handle = 0x5500;
	s->enqueued = 1203;
	s->completed = 1200;
	s->has_position = s->completed_exact = true;
	s->progress_age_s = 312;
	item = wg_add_gpu_item(f, s);
	item->op = WG_GPU_COLLECTIVE;
	item->seq = 1201;
	item->name = "AllReduce";
	item->comm = 0;
	item->coll_seq = 183;
	c = wg_add_comm(f, p);
	c->id = "0123456789abcdef0123456789abcdef";
	c->rank = 3;
	c->size = 8;
	c->state = "ready";
	c->next_sequence = 184;
	k = wg_add_collective(f, c);
	k->op = "AllReduce";
	k->sequence = 183;
	k->count = 1 << 20;
	k->type = "f32";
	k->state = WG_COLL_RUNNING;
	k->age_s = 312;
	file = wg_add_file(f, p);
	file->fd = 1;
	file->path = "/var/log/some/very/long/directory/name/that/goes/on/and/on/for/a/while/train.log";
	file->kind = WG_FILE_REG;
	file->user_buffered_bytes = 4096;
	file->user_buffer_owner = "Python TextIOWrapper";
	file->written_bytes = 123456;
	file->dirty_bytes = 8192;
	wg_add_missing(f, p, "kernel stacks", "/proc/4242/task/4242/stack: Permission denied",
		       "run as root, or start waitgraphd");

	g = graph(f);
	for (size_t i = 0; i < p->threads.n; i++) {
		struct wg_wait_view *w = wg_push(g->arena, &g->waits);

		w->thread = &p->threads.v[i];
		w->kind = i ? "futex" : "cuda";
		w->object = i ? wg_fmt(g->arena, "futex 0x%zx", 0x1000 + i * 4) : "stream 0x5500";
		w->call = i ? NULL : "cudaStreamSynchronize";
		w->since_s = 312;
		w->bystander = i != 0;
	}
	a = node(g, WG_NODE_THREAD, "t:4242:4242", "thread 4242 \"python\"", p, &p->threads.v[0]);
	b = node(g, WG_NODE_STREAM, "s:4242:0x5500", "stream 0x5500 of GPU 0", p, NULL);
	z = node(g, WG_NODE_COLLECTIVE, "c:0123:183", "AllReduce #183", NULL, NULL);
	edge(g, a, b, WG_EDGE_WAITS_FOR, "cuStreamSynchronize entered 312 s ago and has not returned", true);
	edge(g, b, z, WG_EDGE_RUNS, "position 1200 of 1203, written by the GPU itself", true);
	for (size_t i = 1; i < p->threads.n; i++)
		node(g, WG_NODE_THREAD, wg_fmt(g->arena, "t:4242:%zu", 4242 + i), "idle", p,
		     &p->threads.v[i]);
	v = &g->verdict;
	v->class_name = "collective-missing-rank";
	v->hung = WG_HUNG_YES;
	v->confidence = WG_CONF_CERTAIN;
	v->summary = "Rank 5 never entered AllReduce #183 of communicator 0123456789abcdef: it has been "
		     "in gc.collect() for 311 s while the other 7 ranks wait.";
	v->culprit.present = true;
	v->culprit.pid = 5555; /* of another host: without a node */
	v->culprit.tid = 5555;
	v->advice = "Disable automatic garbage collection during training, or call it on all ranks at "
		    "the same step.";
	*wg_push(g->arena, &v->chain) = "thread 4242 \"python\" of rank 3 waits in cudaStreamSynchronize "
					"for stream 0x5500 of GPU 0, 312 s";
	*wg_push(g->arena, &v->chain) = "stream 0x5500 is at AllReduce #183";
	*wg_push(g->arena, &v->chain) = "AllReduce #183 waits for rank 5, which has entered 183 of 184";
	*wg_push(g->arena, &v->not_established) = "whether rank 5 would enter it after the collection";
	return g;
}

static char *render(int (*fn)(FILE *, const struct wg_graph *, const struct wg_text_options *),
		    const struct wg_graph *g, const struct wg_text_options *o)
{
	char *text = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&text, &n);

	assert_int_equal(fn(out, g, o), 0);
	fclose(out);
	return text;
}

static int lines(const char *s)
{
	int n = 0;

	for (; *s; s++)
		n += *s == '\n';
	return n;
}

static int widest(const char *s)
{
	int w = 0;

	while (*s) {
		size_t n = strcspn(s, "\n");
		int c = wg_columns(s, n);

		w = c > w ? c : w;
		s += n + (s[n] != 0);
	}
	return w;
}

static void test_why(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_graph *g = example(f);
	struct wg_text_options o = { 0 };
	char *s = render(wg_render_why, g, &o);

	(void)state;
	assert_int_equal(strncmp(s, "HUNG      collective-missing-rank (certain)", 43), 0);
	assert_true(lines(s) <= 24 + 8);
	assert_true(widest(s) <= 100);
	assert_non_null(strstr(s, "Rank 5 never entered"));
	assert_non_null(strstr(s, "chain     1. thread 4242"));
	assert_non_null(strstr(s, "cuStreamSynchronize entered 312 s ago")); /* the evidence */
	assert_non_null(strstr(s, "not known - whether rank 5"));
	assert_non_null(strstr(s, "do        Disable automatic"));
	assert_non_null(strstr(s, "next      waitgraph dump 4242\n"));
	assert_non_null(strstr(s, "Remedy: run as root, or"));
	assert_null(strchr(s, 033)); /* no colour unless asked for */
	free(s);
	o.color = true;
	s = render(wg_render_why, g, &o);
	assert_non_null(strstr(s, "\033[1;31mHUNG"));
	free(s);
	wg_graph_free(g);
	wg_facts_free(f);
}

static void test_dump(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_graph *g = example(f);
	struct wg_text_options o = { 0 };
	char *s = render(wg_render_dump, g, &o), *all;

	(void)state;
	if (getenv("WG_SHOW"))
		fputs(s, stdout);
	assert_true(widest(s) <= 100);
	assert_true(lines(s) < 110);
	/* 64 and 134 threads with equal stacks are two lines, not 198. */
	assert_non_null(strstr(s, "64 x OpenBLAS"));
	assert_non_null(strstr(s, "134 x pt_autograd_0"));
	assert_non_null(strstr(s, "waitgraph's own"));
	/* Python frames stand where the evaluation loop was, inner native frames above them. */
	assert_true(strstr(s, "_local_scalar_dense_cuda") < strstr(s, "Trainer.step"));
	assert_true(strstr(s, "Trainer.step") < strstr(s, "Trainer.fit"));
	assert_null(strstr(s, "_PyEval_EvalFrameDefault"));
	assert_null(strstr(s, "Py_RunMain"));
	assert_non_null(strstr(s, "short by 8.0 GiB"));
	assert_non_null(strstr(s, "in a buffer of the process"));
	assert_non_null(strstr(s, "8.0 KiB not on storage yet"));
	assert_non_null(strstr(s, "AllReduce #183 of communicator"));
	o.all = true;
	all = render(wg_render_dump, g, &o);
	assert_true(lines(all) > lines(s) + 190);
	assert_non_null(strstr(all, "Py_RunMain"));
	free(s);
	free(all);
	wg_graph_free(g);
	wg_facts_free(f);
}

/* Names and sentences of any length and alphabet: the frame holds. */
static void test_hostile_lengths(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_graph *g = example(f);
	struct wg_text_options o = { 0 };
	char *big = malloc(20001), *s;

	(void)state;
	for (int kind = 0; kind < 3; kind++) {
		for (int i = 0; i < 20000; i++)
			big[i] = kind == 0 ? 'x' : kind == 1 ? (i % 7 ? 'y' : ' ') : "\xe4\xb8\xad"[i % 3];
		big[kind == 2 ? 19998 : 20000] = 0;
		g->verdict.summary = g->verdict.advice = wg_str(g->arena, big);
		for (size_t i = 0; i < 60; i++) {
			*wg_push(g->arena, &g->verdict.chain) = g->verdict.summary;
			*wg_push(g->arena, &g->verdict.not_established) = g->verdict.summary;
		}
		for (size_t i = 0; i < g->edges.n; i++)
			g->edges.v[i].evidence = g->verdict.summary;
		f->procs.v[0]->command = f->procs.v[0]->threads.v[0].name = g->verdict.summary;
		f->procs.v[0]->files.v[0].path = g->verdict.summary;
		f->procs.v[0]->missing.n = 0;
		s = render(wg_render_why, g, &o);
		assert_true(lines(s) <= 24);
		assert_true(widest(s) <= 100);
		assert_non_null(strstr(s, "\nnext      waitgraph "));
		assert_non_null(strstr(s, "--all"));
		free(s);
		s = render(wg_render_dump, g, &o);
		assert_true(widest(s) <= 100);
		free(s);
	}
	free(big);
	wg_graph_free(g);
	wg_facts_free(f);
}

/* Nothing known at all is said as well. */
static void test_empty(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_graph *g = graph(f);
	struct wg_text_options o = { .all = true };
	char *s;

	(void)state;
	g->verdict.class_name = "unknown";
	g->verdict.hung = WG_HUNG_NULL;
	s = render(wg_render_dump, g, &o);
	assert_int_equal(strncmp(s, "UNDECIDED", 9), 0);
	assert_non_null(strstr(s, "no process is known"));
	free(s);
	wg_graph_free(g);
	wg_facts_free(f);
}

static void test_numbers(void **state)
{
	struct wg_arena *a = wg_arena_new();

	(void)state;
	assert_string_equal(wg_bytes_text(a, WG_NO_INT), "?");
	assert_string_equal(wg_bytes_text(a, 0), "0 B");
	assert_string_equal(wg_bytes_text(a, 1536), "1.5 KiB");
	assert_string_equal(wg_bytes_text(a, 141ll << 30), "141 GiB");
	assert_string_equal(wg_time_text(a, WG_NO_SEC), "?");
	assert_string_equal(wg_time_text(a, 0.012), "12 ms");
	assert_string_equal(wg_time_text(a, 12.04), "12 s");
	assert_string_equal(wg_time_text(a, 9.96), "10 s");
	assert_string_equal(wg_time_text(a, 200), "3 min 20 s");
	assert_string_equal(wg_time_text(a, 7321), "2 h 2 min");
	assert_string_equal(wg_time_text(a, 1e15), "?");
	assert_int_equal(wg_columns("a\xe4\xb8\xad\xc3\xa9", 9), 4);
	assert_string_equal(wg_cut(a, "abcdefghij", 8), "abcde...");
	assert_string_equal(wg_cut_path(a, "/a/b/c/train.log", 12), "...train.log");
	wg_arena_free(a);
}

static void test_dot(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_graph *g = example(f);
	char *s = NULL;
	size_t n = 0;
	FILE *out = open_memstream(&s, &n);
	int boxes = 0, rc;

	(void)state;
	g->nodes.v[0].label = "a \"quoted\" back\\slash \xc3\xa9";
	assert_int_equal(wg_render_dot(out, g), 0);
	fclose(out);
	for (const char *at = s; (at = strstr(at, "shape=")); at++)
		boxes++;
	assert_int_equal(boxes, 4); /* thread, stream, collective, and one for all who idle */
	assert_non_null(strstr(s, "198 more threads without a part in it"));
	assert_non_null(strstr(s, "a \\\"quoted\\\" back\\\\slash"));
	free(s);
	out = open_memstream(&s, &n);
	rc = wg_render_svg(out, g);
	fclose(out);
	if (rc != -ENOENT) { /* graphviz is not needed to build */
		assert_int_equal(rc, 0);
		assert_non_null(strstr(s, "</svg>"));
		assert_non_null(strstr(s, "AllReduce #183"));
	}
	free(s);
	wg_graph_free(g);
	wg_facts_free(f);
}

/* A full disk or a closed pipe is an error, not silence. */
static void test_write_error(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_graph *g = example(f);
	struct wg_text_options o = { 0 };
	FILE *out = fopen("/dev/full", "w");

	(void)state;
	if (!out)
		skip();
	assert_int_equal(wg_render_why(out, g, &o), -ENOSPC);
	clearerr(out);
	assert_int_equal(wg_render_json(out, g), -ENOSPC);
	clearerr(out);
	assert_int_equal(wg_render_dot(out, g), -ENOSPC);
	fclose(out);
	wg_graph_free(g);
	wg_facts_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_why),
		cmocka_unit_test(test_dump),
		cmocka_unit_test(test_hostile_lengths),
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_dot),
		cmocka_unit_test(test_write_error),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
