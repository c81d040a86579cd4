/* SPDX-License-Identifier: Apache-2.0 */
/* Facts to a snapshot and back; hostile snapshots; a job from a directory of them. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "preload/trace.h"
#include "snapshot.h"
#include "snapshot_fields.h"

/* ---- every fact has a line in the table -------------------------------------------- */

/*
 * Bytes of each struct that no field describes may only be padding: less than the widest
 * alignment and never a place where a member of four bytes or more could stand.
 */
static void test_complete(void **state)
{
	(void)state;
	for (size_t i = 0; wg_all_descs[i]; i++) {
		const struct wg_desc *d = wg_all_descs[i];
		char *covered = calloc(1, d->size);
		size_t hole = 0;

		for (size_t k = 0; k < d->n; k++) {
			assert_true(d->fields[k].at + d->fields[k].size <= d->size);
			for (size_t b = 0; b < d->fields[k].size; b++) {
				if (covered[d->fields[k].at + b])
					fail_msg("%s: '%s' overlaps another field", d->name,
						 d->fields[k].key);
				covered[d->fields[k].at + b] = 1;
			}
		}
		for (size_t b = 0; b < d->size; b++) {
			hole = covered[b] ? 0 : hole + 1;
			if (hole >= 8 || (hole >= 4 && b % 4 == 3 && b % 8 == 3))
				fail_msg("%s: a member near byte %zu is not in snapshot_fields.c",
					 d->name, b);
		}
		free(covered);
	}
}

/* Members of a struct in the header's text: every name before ';' or ',' at depth one. */
static size_t members(const char *text, const char *name, char out[][48], size_t max)
{
	char open[64];
	const char *s;
	size_t n = 0, word = 0;
	char last[48] = "";
	int depth = 0;
	bool done = false;

	snprintf(open, sizeof(open), "\nstruct %s {", name);
	s = strstr(text, open);
	if (!s)
		return 0;
	for (s += strlen(open); *s && !done; s++) {
		if (s[0] == '/' && s[1] == '*') { /* comments */
			s = strstr(s, "*/");
			if (!s)
				return 0;
			s++;
			continue;
		}
		if ((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '_' ||
		    (*s >= '0' && *s <= '9' && word)) {
			if (!depth && word < 47) {
				last[word++] = *s;
				last[word] = 0;
			}
			continue;
		}
		word = 0;
		if (*s == '(' || *s == '[' || *s == '{') {
			depth++;
		} else if (*s == ')' || *s == ']') {
			depth--;
		} else if (*s == '}') {
			done = depth-- == 0;
		} else if ((*s == ';' || *s == ',') && !depth && *last && n < max) {
			snprintf(out[n++], 48, "%s", last);
			*last = 0;
		}
	}
	return n;
}

/* Small members hide in padding: every name of the header has its line, too. */
static void test_names(void **state)
{
	static char names[256][48];
	FILE *f = fopen(WG_SOURCE_DIR "/tools/facts.h", "r");
	char *text = calloc(1, 1 << 20);

	(void)state;
	assert_non_null(f);
	assert_true(fread(text, 1, (1 << 20) - 1, f) > 1000);
	fclose(f);
	for (size_t i = 0; wg_all_descs[i]; i++) {
		const struct wg_desc *d = wg_all_descs[i];
		size_t n = members(text, d->name, names, 256);

		assert_true(n > 0);
		assert_int_equal(n, d->n);
		for (size_t k = 0; k < n; k++) {
			bool found = false;

			for (size_t j = 0; j < d->n; j++)
				found = found || !strcmp(names[k], d->fields[j].member);
			if (!found)
				fail_msg("%s.%s is not in snapshot_fields.c", d->name, names[k]);
		}
	}
	free(text);
}

/* ---- there and back ------------------------------------------------------------------ */

static uint64_t random_state = 88172645463325252ull;
static uint64_t rnd(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

struct any_vec {
	char *v;
	size_t n, cap;
};

static const char *any_text(struct wg_arena *a)
{
	static const char *const words[] = { "", "x", "train.py", "\"quoted\\\"", "\xc3\xa9t\xc3\xa9",
					     "a\x01\x1b[31mb", "\xff\xfe", "/dev/shm/\xe4\xb8\xad" };

	return wg_str(a, words[rnd() % 8]);
}

/* Any value that the table allows in every field: what is not copied back shows. */
static void fill(const struct wg_desc *d, void *s, struct wg_arena *a, int depth)
{
	wg_reset(d, s);
	for (size_t i = 0; i < d->n; i++) {
		const struct wg_field *x = &d->fields[i];
		char *at = (char *)s + x->at;
		struct any_vec *v = (void *)at;
		size_t n = depth < 4 ? rnd() % 3 : 0;
		uint64_t u = rnd() >> (rnd() % 60);

		if (!(rnd() % 4)) /* absent */
			continue;
		switch (x->type) {
		case WG_F_I16:
			*(int16_t *)(void *)at = (int16_t)u;
			break;
		case WG_F_I32:
		case WG_F_U32:
			memcpy(at, &u, 4);
			break;
		case WG_F_I64:
		case WG_F_U64:
		case WG_F_HEX:
			memcpy(at, &u, 8);
			break;
		case WG_F_SEC:
			*(double *)(void *)at = (double)(rnd() % 1000000000) / 1000;
			break;
		case WG_F_STR:
			*(const char **)(void *)at = any_text(a);
			break;
		case WG_F_BOOL:
			*(bool *)at = rnd() % 2;
			break;
		case WG_F_CHAR:
			*at = (char)('A' + rnd() % 26);
			break;
		case WG_F_ENUM: {
			int k = 0;

			while (x->names[k])
				k++;
			k = (int)(rnd() % (uint64_t)k);
			memcpy(at, &k, sizeof(k));
			break;
		}
		case WG_F_STRS:
			for (size_t k = 0; k < n; k++)
				*(const char **)wg_vec_push(a, (void **)&v->v, &v->n, &v->cap,
							    sizeof(char *)) = any_text(a);
			break;
		case WG_F_I32S:
			for (size_t k = 0; k < n; k++)
				*(int32_t *)wg_vec_push(a, (void **)&v->v, &v->n, &v->cap, 4) =
					(int32_t)rnd();
			break;
		case WG_F_VEC:
			for (size_t k = 0; k < n; k++)
				fill(x->desc,
				     wg_vec_push(a, (void **)&v->v, &v->n, &v->cap, x->desc->size), a,
				     depth + 1);
			break;
		case WG_F_OBJ:
			fill(x->desc, at, a, depth);
			break;
		case WG_F_U32A:
		case WG_F_I32A:
		case WG_F_HEXA:
			for (size_t k = 0; k < x->size; k++)
				at[k] = (char)rnd();
			break;
		case WG_F_BYTES: {
			uint8_t *bytes = wg_alloc(a, 32);
			size_t len = 1 + rnd() % 31;

			for (size_t k = 0; k < len; k++)
				bytes[k] = (uint8_t)rnd();
			*(const uint8_t **)(void *)at = bytes;
			memcpy((char *)s + x->len_at, &len, sizeof(len));
			break;
		}
		case WG_F_SKIP:
			break;
		}
	}
}

static void plausible(struct wg_facts *f, struct wg_process *p)
{
	p->pid = 1 + (int32_t)(rnd() % 100000);
	p->taken_at = f->taken_at;
	if (!p->host)
		p->host = f->host;
	if (!p->boot)
		p->boot = f->boot;
	for (size_t i = 0; i < p->comms.n; i++)
		for (size_t k = rnd() % 3; k > 0; k--)
			fill(&wg_desc_collective, wg_add_collective(f, &p->comms.v[i]), f->arena, 0);
	for (size_t i = 0; i < p->peers.n; i++) {
		p->peers.v[i].comm = "c";
		p->peers.v[i].alive_known = rnd() % 2;
		p->peers.v[i].alive = p->peers.v[i].alive_known && rnd() % 2;
	}
	for (size_t i = 0; i < p->threads.n; i++) {
		struct wg_thread *t = &p->threads.v[i];

		t->pid = p->pid;
		t->sample_pc[7] = 0;
		t->wait.futex.nwords = (int)(rnd() % 9);
		t->wait.futex.nwaitv = (int)(rnd() % 9);
		for (size_t k = 0; k < t->calls.n; k++) {
			t->calls.v[k].event_stream_ix = p->streams.n ? 0 : WG_NO_INT;
			for (size_t j = 0; j < t->calls.v[k].args.n; j++)
				t->calls.v[k].args.v[j].name = t->calls.v[k].args.v[j].text = "x";
		}
	}
	for (size_t i = 0; i < p->streams.n; i++)
		for (size_t k = 0; k < p->streams.v[i].pending.n; k++) {
			p->streams.v[i].pending.v[k].comm = p->comms.n ? 0 : WG_NO_INT;
			p->streams.v[i].pending.v[k].event_stream_ix = 0;
		}
	for (size_t i = 0; i < p->missing.n; i++)
		p->missing.v[i].what = p->missing.v[i].why = "?";
	for (size_t i = 0; i < p->env.n; i++)
		p->env.v[i].name = p->env.v[i].value = "v";
}

static char *as_text(const struct wg_facts *f)
{
	struct wg_graph *g = wg_graph_build(f);
	json_t *doc = wg_snapshot_json(g);
	char *s = json_dumps(doc, JSON_INDENT(1) | JSON_REAL_PRECISION(15));

	assert_non_null(s);
	json_decref(doc);
	wg_graph_free(g);
	return s;
}

/* Every field of the model, with any value, survives; so does the verdict on it. */
static void test_there_and_back(void **state)
{
	(void)state;
	for (int round = 0; round < 60; round++) {
		struct wg_facts *f = wg_facts_new(), *b = wg_facts_new();
		const char *why = NULL;
		char *first, *second;

		fill(&wg_desc_facts, f, f->arena, 0);
		f->live = false;
		f->host = "h";
		f->boot = "b";
		f->taken_at = 1.7e9 + (double)(rnd() % 1000000) / 1000;
		f->interval_s = 0.3;
		f->asked.n = 0;
		for (size_t i = 0; i < f->missing.n; i++)
			f->missing.v[i].what = wg_fmt(f->arena, "w%zu", i), f->missing.v[i].why = "?";
		for (int i = 0; i < 2; i++) {
			struct wg_process *p = wg_add_process(f);

			fill(&wg_desc_process, p, f->arena, 0);
			p->from_snapshot = true;
			p->snapshot_age_s = 0;
			plausible(f, p);
		}
		first = as_text(f);
		if (wg_snapshot_parse(b, first, strlen(first), &why))
			fail_msg("%s", why);
		second = as_text(b);
		if (strcmp(first, second)) {
			size_t at = 0;

			while (first[at] == second[at])
				at++;
			at = at > 200 ? at - 200 : 0;
			fail_msg("round %d differs near:\n%.300s\n---\n%.300s", round, first + at,
				 second + at);
		}
		free(first);
		free(second);
		wg_facts_free(f);
		wg_facts_free(b);
	}
}

static json_t *find(json_t *o, const char *path)
{
	char copy[128], *save = NULL;

	snprintf(copy, sizeof(copy), "%s", path);
	for (char *s = strtok_r(copy, ".", &save); s && o; s = strtok_r(NULL, ".", &save))
		o = *s >= '0' && *s <= '9' ? json_array_get(o, (size_t)atoi(s)) : json_object_get(o, s);
	return o;
}

/* Names and types that scripts rely on, as the contract has them; absent is absent. */
static void test_contract(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p = wg_add_process(f);
	struct wg_device *d;
	struct wg_stream *s;
	struct wg_gpu_item *item;
	struct wg_comm *c;
	struct wg_collective *k;
	struct wg_thread *t;
	struct wg_file *x;
	struct wg_graph *g;
	json_t *doc, *j;

	(void)state;
	f->taken_at = 1764432000.25;
	f->host = "node7";
	p->pid = 10;
	p->alive = p->recorded = true;
	p->command = "python train.py";
	p->rank = 0;
	t = wg_add_thread(f, p);
	t->tid = 10;
	t->state = 'S';
	d = wg_add_device(f, p);
	d->index = 0;
	d->total = 100;
	s = wg_add_stream(f, p);
	s->device = 0;
	s->handle = 0xffffffffffffff01ull;
	s->enqueued = 5;
	s->completed = 4;
	s->completed_exact = true;
	item = wg_add_gpu_item(f, s);
	item->op = WG_GPU_KERNEL;
	item->seq = 5;
	item->name = "spin(int*)";
	c = wg_add_comm(f, p);
	c->id = "abc";
	c->rank = 0;
	c->size = 8;
	c->next_sequence = 1;
	k = wg_add_collective(f, c);
	k->op = "AllReduce";
	k->type = "f32";
	k->count = 1;
	x = wg_add_file(f, p);
	x->fd = 1;
	x->path = "pipe:[1]";
	x->kind = WG_FILE_FIFO;
	wg_add_missing(f, p, "kernel stacks", "no permission", "run as root");
	g = wg_graph_build(f);
	doc = wg_snapshot_json(g);
	assert_string_equal(json_string_value(find(doc, "schema")), "waitgraph/1");
	assert_string_equal(json_string_value(find(doc, "taken_at")), "2025-11-29T16:00:00.250Z");
	assert_string_equal(json_string_value(find(doc, "host")), "node7");
	assert_int_equal(json_integer_value(find(doc, "processes.0.rank")), 0);
	assert_true(json_is_true(find(doc, "processes.0.recorded")));
	assert_null(find(doc, "processes.0.age_s"));
	assert_string_equal(json_string_value(find(doc, "processes.0.threads.0.state")), "S");
	assert_null(find(doc, "processes.0.threads.0.cpu_share"));
	assert_true(json_is_array(find(doc, "processes.0.threads.0.native_stack")));
	assert_int_equal(json_integer_value(find(doc, "processes.0.devices.0.total")), 100);
	assert_null(find(doc, "processes.0.devices.0.free"));
	assert_string_equal(json_string_value(find(doc, "processes.0.streams.0.stream")),
			    "0xffffffffffffff01");
	assert_string_equal(json_string_value(find(doc, "processes.0.streams.0.running")), "spin(int*)");
	j = find(doc, "processes.0.collectives.0");
	assert_string_equal(json_string_value(json_object_get(j, "comm")), "abc");
	assert_int_equal(json_integer_value(json_object_get(j, "size")), 8);
	assert_string_equal(json_string_value(json_object_get(j, "state")), "enqueued");
	assert_string_equal(json_string_value(find(doc, "processes.0.files.0.kind")), "pipe");
	assert_string_equal(json_string_value(find(doc, "processes.0.missing.0")),
			    "kernel stacks: no permission (run as root)");
	assert_true(json_is_array(find(doc, "processes.0.children")));
	assert_true(json_is_array(find(doc, "nodes")));
	assert_true(json_is_array(find(doc, "edges")));
	assert_non_null(find(doc, "verdict.class"));
	assert_non_null(find(doc, "verdict.hung"));
	assert_true(json_is_array(find(doc, "verdict.chain")));
	assert_true(json_is_array(find(doc, "verdict.not_established")));
	json_decref(doc);
	wg_graph_free(g);
	wg_facts_free(f);
}

/* What another tool writes by the contract alone. */
static void test_foreign(void **state)
{
	static const char text[] =
		"{\"schema\":\"waitgraph/1\",\"host\":\"a\",\"taken_at\":\"2026-01-02T03:04:05+01:00\","
		"\"processes\":[{\"pid\":7,\"command\":\"x\",\"recorded\":true,\"sources\":[\"procfs\"],"
		"\"missing\":[\"stacks: no\"],\"threads\":[{\"tid\":7,\"state\":\"S\",\"wait\":{"
		"\"kind\":\"cuda\",\"since_s\":12.5,\"call\":\"cuStreamSynchronize\",\"args\":{}}}],"
		"\"files\":[{\"fd\":1,\"path\":\"pipe:[1]\",\"kind\":\"pipe\"}],"
		"\"collectives\":[{\"comm\":\"c\",\"rank\":1,\"size\":2,\"sequence\":4,"
		"\"op\":\"AllReduce\",\"count\":3,\"type\":\"f32\",\"state\":\"done\"},"
		"{\"comm\":\"c\",\"rank\":1,\"size\":2,\"sequence\":5,\"op\":\"AllReduce\","
		"\"count\":3,\"type\":\"f32\",\"state\":\"running\"}]}],\"nodes\":[],\"edges\":[]}";
	struct wg_facts *f = wg_facts_new();
	const struct wg_process *p;
	const char *why;

	(void)state;
	assert_int_equal(wg_snapshot_parse(f, text, strlen(text), &why), 0);
	assert_int_equal(f->taken_at, 1767319445);
	p = f->procs.v[0];
	assert_true(p->alive);
	assert_true(p->from_snapshot);
	assert_int_equal(p->threads.v[0].calls.n, 1);
	assert_int_equal(p->threads.v[0].calls.v[0].kind, WG_CALL_SYNC);
	assert_true(p->threads.v[0].calls.v[0].since_s == 12.5);
	assert_int_equal(p->files.v[0].kind, WG_FILE_PIPE);
	assert_int_equal(p->comms.n, 1);
	assert_int_equal(p->comms.v[0].next_sequence, 6);
	assert_int_equal(p->comms.v[0].done, 5);
	assert_int_equal(p->missing.n, 1);
	wg_facts_free(f);
}

/* ---- hostile documents ---------------------------------------------------------------- */

static void test_hostile(void **state)
{
	static const struct { const char *text; int rc; } cases[] = {
		{ "", -EINVAL },
		{ "{", -EINVAL },
		{ "[]", -EINVAL },
		{ "null", -EINVAL },
		{ "{}", -EINVAL },
		{ "{\"schema\":1,\"processes\":[]}", -EINVAL },
		{ "{\"schema\":\"other/1\",\"processes\":[]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/\",\"processes\":[]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1x\",\"processes\":[]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/0\",\"processes\":[]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/2\",\"processes\":[]}", -EPROTO },
		{ "{\"schema\":\"waitgraph/1\"}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":{}}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[1]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":-1}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1e9}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":99999999999}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":99999999999999999999}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1,\"age_s\":1e999}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1,\"age_s\":\"x\"}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1,\"pid\":2}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1,\"threads\":{}}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1,\"threads\":[[]]}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1,\"command\":\"\xff\"}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1,\"command\":\"a\\u0000b\"}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1,\"comms\":[],"
		  "\"collectives\":[{\"comm_index\":5,\"sequence\":1}]}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1,\"streams\":"
		  "[{\"stream\":\"-0x1\"}]}]}", -EINVAL },
		{ "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1,\"threads\":[{\"tid\":1,"
		  "\"blocked\":{\"args\":[1,2,3,4,5,6,7]}}]}]}", -EINVAL },
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct wg_facts *f = wg_facts_new();
		const char *why = NULL;
		int rc = wg_snapshot_parse(f, cases[i].text, strlen(cases[i].text), &why);

		if (rc != cases[i].rc)
			fail_msg("case %zu: %d instead of %d", i, rc, cases[i].rc);
		assert_non_null(why);
		assert_int_equal(f->procs.n, 0); /* half a document is none */
		wg_facts_free(f);
	}
}

static void test_where(void **state)
{
	static const char text[] = "{\"schema\":\"waitgraph/1\",\"processes\":[{\"pid\":1},{\"pid\":2,"
				   "\"threads\":[{\"tid\":2},{\"tid\":3,\"calls\":[{\"since_s\":{}}]}]}]}";
	struct wg_facts *f = wg_facts_new();
	const char *why;

	(void)state;
	assert_int_equal(wg_snapshot_parse(f, text, strlen(text), &why), -EINVAL);
	assert_string_equal(why, "processes[1].threads[1].calls[0].since_s: a number is expected");
	wg_facts_free(f);
}

static void test_bombs(void **state)
{
	size_t n = 40u << 20;
	char *text = malloc(n + 1);
	struct wg_facts *f = wg_facts_new();
	const char *why;

	(void)state;
	memset(text, '[', 100000);
	assert_int_equal(wg_snapshot_parse(f, text, 100000, &why), -EINVAL);
	assert_string_equal(why, "nested too deeply");
	/* Millions of values would cost a hundred times their text. */
	memset(text, ',', n);
	text[0] = '[';
	assert_int_equal(wg_snapshot_parse(f, text, n, &why), -EINVAL);
	assert_string_equal(why, "too many values");
	free(text);
	wg_facts_free(f);
}

/* ---- a job from a directory --------------------------------------------------------------- */

static char dir[64];

static void put(const char *name, const char *text, size_t n)
{
	char path[256];
	int fd;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
	assert_true(fd >= 0);
	assert_int_equal(write(fd, text, n), n);
	close(fd);
}

static void put_snapshot(const char *name, const char *host, int pid, int start, int rank,
			 const char *when, const char *more)
{
	char text[4096];
	int n = snprintf(text, sizeof(text),
			 "{\"schema\":\"waitgraph/1\",\"host\":\"%s\",\"boot\":\"boot-%s\","
			 "\"taken_at\":\"%s\",\"processes\":[{\"pid\":%d,\"start\":%d,\"rank\":%d,"
			 "\"command\":\"%s\",\"recorded\":true%s}]}",
			 host, host, when, pid, start, rank, name, more);

	put(name, text, (size_t)n);
}

static void put_trace(const char *name, const char *host, uint32_t pid, uint64_t start,
		      double touched, bool ended)
{
	struct wgtr_header h = { 0 };

	memcpy(h.magic, WGTR_MAGIC, 8);
	h.version = h.min_version = 1;
	h.endian = WGTR_ENDIAN;
	h.header_size = WGTR_HEADER_SIZE;
	h.pid = pid;
	h.start_ticks = start;
	snprintf(h.host, sizeof(h.host), "%s", host);
	snprintf(h.boot_id, sizeof(h.boot_id), "boot-%s", host);
	h.clock.real0_ns = (uint64_t)(touched * 1e9);
	h.clock.mono0_ns = 1000;
	h.touched = 1000;
	h.ended = ended ? 1000 : 0;
	h.rank = 5;
	put(name, (char *)&h, sizeof(h));
}

static int make_dir(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/tmp/wgtest-snap-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
	char cmd[128];

	(void)state;
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd) ? -1 : 0;
}

static struct wg_process *by_pid(struct wg_facts *f, int pid, const char *host)
{
	for (size_t i = 0; i < f->procs.n; i++)
		if (f->procs.v[i]->pid == pid && f->procs.v[i]->host &&
		    !strcmp(f->procs.v[i]->host, host))
			return f->procs.v[i];
	return NULL;
}

static void test_directory(void **state)
{
	const char *paths[] = { dir }, *why = NULL;
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p;
	double t = 1767323045; /* 2026-01-02T03:04:05Z */

	(void)state;
	put_snapshot("n-1-10-11-1.json", "n-1", 10, 11, 0, "2026-01-02T03:00:00Z", "");
	put_snapshot("n-1-10-11-2.json", "n-1", 10, 11, 0, "2026-01-02T03:04:00Z", "");
	put_snapshot("n-1-10-11-10.json", "n-1", 10, 11, 0, "2026-01-02T03:04:05Z",
		     ",\"peers\":[{\"comm\":\"c\",\"rank\":2,\"host\":\"n3\",\"boot\":\"boot-n3\",\"pid\":10,"
		     "\"start\":99,\"alive\":true},{\"comm\":\"c\",\"rank\":1,\"host\":\"n2\","
		     "\"boot\":\"boot-n2\",\"pid\":10,\"start\":11}],\"comms\":[{\"id\":\"c\",\"rank\":0,"
		     "\"size\":3}]");
	put_snapshot("n2-10-11-1.json", "n2", 10, 11, 1, "2026-01-02T03:04:01Z", "");
	put("n2-10-11-2.json", "{ half", 6); /* the newest is damaged: the one before counts */
	put_trace("n-1-10-11.trace", "n-1", 10, 11, t, false);
	put_trace("n-1-77-5.trace", "n-1", 77, 5, t - 1, false);   /* lives, as far as is known */
	put_trace("n-1-78-5.trace", "n-1", 78, 5, t - 100, false); /* stopped stamping long ago */
	put_trace("n-1-79-5.trace", "n-1", 79, 5, t - 1, true);	   /* exited */
	put("notes.json", "{\"a\":1}", 7);
	put("README", "x", 1);
	assert_int_equal(wg_snapshot_load(f, paths, 1, &why), 0);
	assert_int_equal(f->procs.n, 6);
	assert_int_equal(f->taken_at, t);
	p = by_pid(f, 10, "n-1");
	assert_string_equal(p->command, "n-1-10-11-10.json"); /* 10 is newer than 2 */
	assert_false(p->trace_only);
	assert_non_null(p->trace_path);
	assert_true(p->snapshot_age_s == 0);
	p = by_pid(f, 10, "n2"); /* the same PID on another host */
	assert_string_equal(p->command, "n2-10-11-1.json");
	assert_true(p->snapshot_age_s == 4);
	p = by_pid(f, 77, "n-1");
	assert_true(p->trace_only);
	assert_true(p->alive);
	assert_int_equal(p->rank, 5);
	assert_false(by_pid(f, 78, "n-1")->alive);
	assert_false(by_pid(f, 79, "n-1")->alive);
	p = by_pid(f, 10, "n3"); /* known by its peer alone */
	assert_true(p->trace_only);
	assert_true(p->alive);
	assert_int_equal(p->rank, 2);
	assert_string_equal(p->rank_source, "communicator");
	/* Damaged and foreign files are named, not swallowed. */
	assert_int_equal(f->missing.n, 2);
	wg_facts_free(f);
}

static void test_named(void **state)
{
	char one[128], two[128], none[128];
	const char *paths[2] = { one, two }, *why = NULL;
	struct wg_facts *f = wg_facts_new();

	(void)state;
	snprintf(one, sizeof(one), "%s/a.json", dir);
	snprintf(two, sizeof(two), "%s/b.json", dir);
	snprintf(none, sizeof(none), "%s/none", dir);
	put_snapshot("a.json", "n1", 1, 2, 0, "2026-01-02T03:04:05Z", "");
	put("b.json", "{}", 2);
	assert_int_equal(wg_snapshot_load(f, paths, 1, &why), 0);
	assert_int_equal(f->procs.n, 1);
	assert_int_equal(wg_snapshot_load(f, paths, 2, &why), -EINVAL); /* a named one must be good */
	assert_non_null(strstr(why, "b.json"));
	paths[0] = none;
	assert_int_equal(wg_snapshot_load(f, paths, 1, &why), -ENOENT);
	mkdir(none, 0700);
	assert_int_equal(wg_snapshot_load(f, paths, 1, &why), -ENOENT);
	/* A trace is known by its content, whatever its name. */
	put_trace("c.dat", "n1", 9, 9, 1767323045, true);
	snprintf(one, sizeof(one), "%s/c.dat", dir);
	paths[0] = one;
	wg_facts_free(f);
	f = wg_facts_new();
	assert_int_equal(wg_snapshot_load(f, paths, 1, &why), 0);
	assert_true(f->procs.v[0]->trace_only);
	wg_facts_free(f);
}

static void own_identity(char *boot, size_t size, int *start)
{
	FILE *s = fopen("/proc/sys/kernel/random/boot_id", "r");
	char stat[1024];
	unsigned long long t = 0;
	size_t n;

	assert_non_null(s);
	assert_non_null(fgets(boot, (int)size, s));
	boot[strcspn(boot, "\n")] = 0;
	fclose(s);
	s = fopen("/proc/self/stat", "r");
	n = fread(stat, 1, sizeof(stat) - 1, s);
	stat[n] = 0;
	fclose(s);
	sscanf(strrchr(stat, ')') + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d "
	       "%*d %*d %*d %*d %llu", &t);
	*start = (int)t;
}

/* Who still lives is looked up, and what that means depends on whether anybody does. */
static void test_living(void **state)
{
	char boot[64], more[128];
	const char *paths[] = { dir }, *why = NULL;
	struct wg_facts *f = wg_facts_new();
	int start;

	(void)state;
	own_identity(boot, sizeof(boot), &start);
	snprintf(more, sizeof(more), ",\"boot\":\"%s\"", boot);
	put_snapshot("h-1.json", "h", (int)getpid(), start, 0, "2026-01-02T03:04:05Z", more);
	put_snapshot("h-2.json", "h", (int)getpid(), start + 1, 1, "2026-01-02T03:04:05Z", more);
	assert_int_equal(wg_snapshot_load(f, paths, 1, &why), 0);
	assert_int_equal(f->procs.n, 2);
	for (size_t i = 0; i < 2; i++) {
		assert_true(f->procs.v[i]->alive_known);
		assert_int_equal(f->procs.v[i]->alive, f->procs.v[i]->rank == 0);
		/* It lived when it was looked at, and nobody looked later. */
		assert_int_equal(f->procs.v[i]->died_since, f->procs.v[i]->rank == 1);
	}
	wg_facts_free(f);
	/* All gone: the job was ended after the snapshots, which tell of a time when it lived. */
	f = wg_facts_new();
	snprintf(more, sizeof(more), "%s/h-1.json", dir);
	unlink(more);
	assert_int_equal(wg_snapshot_load(f, paths, 1, &why), 0);
	assert_int_equal(f->procs.n, 1);
	assert_true(f->procs.v[0]->alive);
	assert_false(f->procs.v[0]->alive_known);
	assert_int_equal(f->missing.n, 1);
	wg_facts_free(f);
}

static void test_many(void **state)
{
	const char *paths[] = { dir }, *why = NULL;
	struct wg_facts *f = wg_facts_new();
	struct timespec a, b;
	char peers[3000];
	int n = 0;

	(void)state;
	for (int i = 0; i < 24; i++)
		n += snprintf(peers + n, sizeof(peers) - (size_t)n,
			      "%s{\"comm\":\"c\",\"rank\":%d,\"host\":\"h%d\",\"boot\":\"boot-h%d\","
			      "\"pid\":%d,\"start\":1}", i ? "," : ",\"peers\":[", i, i, i, 1000 + i);
	snprintf(peers + n, sizeof(peers) - (size_t)n, "]");
	for (int i = 0; i < 2000; i++) {
		char name[64], host[32];

		snprintf(host, sizeof(host), "h%d", i);
		snprintf(name, sizeof(name), "%s-%d-1-1.json", host, 1000 + i);
		put_snapshot(name, host, 1000 + i, 1, i, "2026-01-02T03:04:05Z", peers);
	}
	clock_gettime(CLOCK_MONOTONIC, &a);
	assert_int_equal(wg_snapshot_load(f, paths, 1, &why), 0);
	clock_gettime(CLOCK_MONOTONIC, &b);
	assert_int_equal(f->procs.n, 2000);
	print_message("2000 snapshots in %.2f s\n",
		      (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9);
	wg_facts_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_complete),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_there_and_back),
		cmocka_unit_test(test_contract),
		cmocka_unit_test(test_foreign),
		cmocka_unit_test(test_hostile),
		cmocka_unit_test(test_where),
		cmocka_unit_test(test_bombs),
		cmocka_unit_test_setup_teardown(test_directory, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_named, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_living, make_dir, remove_dir),
		cmocka_unit_test_setup_teardown(test_many, make_dir, remove_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
