/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Python frames, the GIL and locks, for every CPython that is installed: what is read from
 * outside against what the interpreter says about itself.
 */
#include "target.h"

#include <glob.h>
#include <jansson.h>

#define MAX_PYTHONS 32

static char pythons[MAX_PYTHONS][256];
static size_t npythons;

static void find_pythons(void)
{
	static const char *const patterns[] = {
		"/usr/bin/python3", "/usr/local/bin/python3.[0-9]*", "~/.pyenv/versions/3.*/bin/python3",
		"/opt/python/*/bin/python3",
	};
	const char *given = getenv("WG_TEST_PYTHONS"); /* instead: a list with colons */
	char list[4096], *save = NULL;

	if (given) {
		snprintf(list, sizeof(list), "%s", given);
		for (char *s = strtok_r(list, ":", &save); s && npythons < MAX_PYTHONS;
		     s = strtok_r(NULL, ":", &save))
			snprintf(pythons[npythons++], sizeof(pythons[0]), "%s", s);
		return;
	}
	for (size_t i = 0; i < sizeof(patterns) / sizeof(patterns[0]); i++) {
		glob_t g;

		if (glob(patterns[i], GLOB_TILDE, NULL, &g))
			continue;
		for (size_t k = 0; k < g.gl_pathc && npythons < MAX_PYTHONS; k++) {
			char cmd[512], *config = strstr(g.gl_pathv[k], "config");

			/* CPython 3.8 to 3.14 with a GIL: others are said to be unsupported. */
			snprintf(cmd, sizeof(cmd), "%s -c 'import sys, sysconfig; sys.exit(not ((3, 8) "
				 "<= sys.version_info < (3, 15) and sys.implementation.name == "
				 "\"cpython\" and not sysconfig.get_config_var(\"Py_GIL_DISABLED\")))' "
				 "2>/dev/null", g.gl_pathv[k]);
			if (!config && !system(cmd))
				snprintf(pythons[npythons++], sizeof(pythons[0]), "%s", g.gl_pathv[k]);
		}
		globfree(&g);
	}
}

static void need_pythons(void)
{
	if (!npythons) {
		print_message("SKIPPED: no CPython 3.8 to 3.14 found\n");
		skip();
	}
}

static char json_path[64];

static json_t *start_script(struct target *t, const char *python, const char *script,
			    const char *mode)
{
	const char *argv[] = { python, script, json_path, mode, NULL };
	json_t *j;

	snprintf(json_path, sizeof(json_path), "/tmp/wg-test-%d.json", getpid());
	if (!start_target(t, argv)) {
		print_message("%s does not run %s\n", python, script);
		fail();
	}
	j = json_load_file(json_path, 0, NULL);
	unlink(json_path);
	assert_non_null(j);
	return j;
}

/* ---- frames ------------------------------------------------------------------------- */

static size_t compare_frames(struct target *t, json_t *expected)
{
	json_t *stack;
	const char *tid;
	size_t right = 0;

	json_object_foreach(json_object_get(expected, "threads"), tid, stack) {
		const struct wg_thread *x = wg_find_thread(t->p, atoi(tid));

		assert_non_null(x);
		assert_true(x->has_python);
		if (x->python_stack.n != json_array_size(stack))
			print_message("thread %s: %zu frames, not %zu\n", tid, x->python_stack.n,
				      json_array_size(stack));
		assert_int_equal(x->python_stack.n, json_array_size(stack));
		for (size_t i = 0; i < x->python_stack.n; i++) {
			const struct wg_pyframe *fr = &x->python_stack.v[i];
			json_t *e = json_array_get(stack, i);

			assert_string_equal(fr->function, json_string_value(json_array_get(e, 0)));
			assert_string_equal(fr->file, json_string_value(json_array_get(e, 1)));
			assert_int_equal(fr->line, json_integer_value(json_array_get(e, 2)));
		}
		right++;
	}
	return right;
}

static void frames(void **state)
{
	(void)state;
	need_pythons();
	for (size_t i = 0; i < npythons; i++) {
		struct target t;
		json_t *e = start_script(&t, pythons[i], SCRIPTS "frames.py", NULL);
		double ms;

		look_at(&t);
		ms = now_ms();
		assert_int_equal(wg_python_collect(t.f, t.p, t.m, t.s), 0);
		ms = now_ms() - ms;
		assert_true(t.p->python.present);
		assert_string_equal(t.p->python.version,
				    json_string_value(json_object_get(e, "version")));
		assert_int_equal(compare_frames(&t, e), 6);
		assert_true(wg_find_thread(t.p, t.pid)->py_main);
		assert_true(t.p->python.gil_known);
		assert_false(t.p->python.gil_held);
		assert_false(t.p->python.finalizing);
		assert_false(t.p->python.main_in_shutdown);
		print_message("%s: 6 threads with every frame and line, %.1f ms\n",
			      t.p->python.version, ms);
		json_decref(e);
		end_target(&t);
	}
}

static void gil(void **state)
{
	(void)state;
	need_pythons();
	for (size_t i = 0; i < npythons; i++) {
		size_t waiting = 0;
		struct target t;
		json_t *e = start_script(&t, pythons[i], SCRIPTS "frames.py", "gil");

		look_at(&t);
		/* It takes the GIL into C after some time. */
		for (int tries = 0; tries < 100 && !t.p->python.gil_held; tries++) {
			usleep(50000);
			t.p->python = (struct wg_python){ 0 };
			wg_python_collect(t.f, t.p, t.m, t.s);
		}
		assert_int_equal(compare_frames(&t, e), 6);
		assert_true(t.p->python.gil_known);
		assert_true(t.p->python.gil_held);
		assert_int_equal(t.p->python.gil_holder, json_integer_value(json_object_get(e, "gil")));
		for (size_t k = 0; k < t.p->threads.n; k++) {
			uint64_t a = t.p->threads.v[k].wait.futex.addr;

			waiting += a >= t.p->python.gil_cond && a < t.p->python.gil_cond_end;
		}
		/* Nobody needs it in this program: all others wait for something else. */
		assert_int_equal(waiting, 0);
		json_decref(e);
		end_target(&t);
	}
}

static void shutdown_seen(void **state)
{
	(void)state;
	need_pythons();
	for (size_t i = 0; i < npythons; i++) {
		struct target t;
		json_t *e = start_script(&t, pythons[i], SCRIPTS "frames.py", "end");

		usleep(300000);
		look_at(&t);
		wg_python_collect(t.f, t.p, t.m, t.s);
		/* The main program has returned; the end waits for a thread that is no daemon. */
		assert_true(t.p->python.main_in_shutdown);
		json_decref(e);
		end_target(&t);
	}
}

/* ---- locks ----------------------------------------------------------------------------- */

struct expected {
	const char *waiter, *owner, *kind; /* owner NULL: none may be named */
};
static const struct expected expected_locks[] = {
	{ "wait_a", "hold_a", "_thread.lock" },
	{ "wait_a_call", "hold_a", "_thread.lock" },
	{ "wait_b", "hold_b", "_thread.RLock" },
	{ "wait_o", "hold_o", "_thread.lock" },
	{ "wait_oc", "hold_o", "_thread.lock" },
	{ "wait_shared", "hold_shared", "multiprocessing.Lock" },
	{ "join_a", "hold_a", "thread end" },
	{ "import_2", "import_1", "import lock of 'slow_module_of_this_test'" },
	{ "twice_y", "twice_y", "_thread.lock" },
	{ "wait_cond", NULL, "condition" },
	{ "wait_queue", NULL, "condition" },
	{ "wait_simple", NULL, "queue.SimpleQueue" },
	{ "wait_x", NULL, "_thread.lock" }, /* who took it has ended: nothing shows who it was */
};

/* acquire() without `with`: likely only, and never one who has given it back. */
static const struct expected expected_acquires[] = {
	{ "want_global", "hold_global", "_thread.lock" },
	{ "want_box", "hold_box", "_thread.lock" },
	{ "want_inner", "hold_inner", "_thread.lock" },
	{ "want_closure", "hold_closure", "_thread.lock" },
	{ "want_cond", "hold_cond", "_thread.lock" },
	{ "want_loops", "many_loops", "_thread.lock" },
	{ "twice", "twice", "_thread.lock" },
	{ "ab", "ba", "_thread.lock" },
	{ "ba", "ab", "_thread.lock" },
	{ "want_released", NULL, "_thread.lock" },
};

static void check_locks(const char *script, const struct expected *expected, size_t n,
			enum wg_certainty certainty)
{
	for (size_t i = 0; i < npythons; i++) {
		struct target t;
		json_t *ids = start_script(&t, pythons[i], script, NULL);

		look_at(&t);
		wg_python_collect(t.f, t.p, t.m, t.s);
		for (size_t k = 0; k < n; k++) {
			const char *w = expected[k].waiter, *o = expected[k].owner;
			int waiter = (int)json_integer_value(json_object_get(ids, w));
			int owner = o ? (int)json_integer_value(json_object_get(ids, o)) : 0;
			const struct wg_pylock *l = NULL;

			for (size_t x = 0; x < t.p->python.locks.n; x++)
				if (t.p->python.locks.v[x].waiter_tid == waiter)
					l = &t.p->python.locks.v[x];
			if (!l || l->owner_tid != owner || strcmp(l->kind, expected[k].kind))
				print_message("%s, %s: expected %s held by %s (%d), got %s by %d\n",
					      t.p->python.version, w, expected[k].kind,
					      o ? o : "nobody", owner, l ? l->kind : "nothing",
					      l ? l->owner_tid : 0);
			assert_non_null(l);
			assert_string_equal(l->kind, expected[k].kind);
			assert_int_equal(l->owner_tid, owner);
			if (owner) {
				assert_int_equal(l->certainty, certainty);
				assert_non_null(l->evidence);
			}
		}
		print_message("%s: %zu locks, owners right\n", t.p->python.version,
			      t.p->python.locks.n);
		json_decref(ids);
		end_target(&t);
	}
}

static void locks(void **state)
{
	(void)state;
	need_pythons();
	check_locks(SCRIPTS "locks.py", expected_locks,
		    sizeof(expected_locks) / sizeof(expected_locks[0]), WG_CERTAIN);
}

static void acquires(void **state)
{
	(void)state;
	need_pythons();
	check_locks(SCRIPTS "acquires.py", expected_acquires,
		    sizeof(expected_acquires) / sizeof(expected_acquires[0]), WG_LIKELY);
}

/* A lock that processes share: held in one, waited for in the other, the same word in both. */
static void shared(void **state)
{
	(void)state;
	need_pythons();
	for (size_t i = 0; i < npythons; i++) {
		const struct wg_pylock *held, *wanted = NULL;
		struct target t, child = { .out = -1 };
		json_t *ids = start_script(&t, pythons[i], SCRIPTS "shared.py", NULL);

		look_at(&t);
		wg_python_collect(t.f, t.p, t.m, t.s);
		child.pid = (pid_t)json_integer_value(json_object_get(ids, "child"));
		look_at(&child);
		wg_python_collect(child.f, child.p, child.m, child.s);
		assert_int_equal(t.p->python.locks.n, 1);
		held = &t.p->python.locks.v[0];
		assert_string_equal(held->kind, "multiprocessing.Lock");
		assert_int_equal(held->owner_tid,
				 json_integer_value(json_object_get(ids, "holder")));
		for (size_t k = 0; k < child.p->python.locks.n; k++)
			if (child.p->python.locks.v[k].waiter_tid)
				wanted = &child.p->python.locks.v[k];
		assert_non_null(wanted);
		assert_string_equal(wanted->kind, "multiprocessing.Lock");
		assert_int_equal(wanted->owner_tid, 0);
		assert_true(held->has_map && wanted->has_map);
		assert_int_equal(held->map_ino, wanted->map_ino);
		assert_int_equal(held->map_dev, wanted->map_dev);
		assert_int_equal(held->map_off, wanted->map_off);
		json_decref(ids);
		end_target(&child);
		end_target(&t);
	}
}

/* ---- native stacks of an interpreter, unprivileged ------------------------------------------ */

static void unprivileged_body(void)
{
	struct target t;
	json_t *e = start_script(&t, pythons[0], SCRIPTS "frames.py", NULL);
	size_t complete = 0;

	look_at(&t);
	wg_stacks_collect(t.f, t.p, t.m, t.s, NULL, 0, false);
	wg_python_collect(t.f, t.p, t.m, t.s);
	assert_int_equal(compare_frames(&t, e), 6);
	for (size_t i = 0; i < t.p->threads.n; i++) {
		complete += t.p->threads.v[i].native_complete;
		assert_int_not_equal(t.p->threads.v[i].fsbase, 0);
	}
	/* 200 calls deep is more native frames than are kept, before 3.11. */
	assert_true(complete >= t.p->threads.n - 1);
	json_decref(e);
	end_target(&t);
}

static void unprivileged(void **state)
{
	(void)state;
	need_pythons();
	as_nobody(unprivileged_body);
}

/* No Python: no word about it. */
static void no_python(void **state)
{
	const char *argv[] = { TARGETS "buffers", "/tmp", NULL };
	struct target t;

	(void)state;
	assert_true(start_target(&t, argv));
	look_at(&t);
	wg_python_collect(t.f, t.p, t.m, t.s);
	assert_false(t.p->python.present);
	assert_int_equal(t.p->missing.n, 0);
	end_target(&t);
	unlink("/tmp/full");
	unlink("/tmp/none");
	unlink("/tmp/flushed");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(frames), cmocka_unit_test(gil), cmocka_unit_test(shutdown_seen),
		cmocka_unit_test(locks), cmocka_unit_test(acquires), cmocka_unit_test(shared),
		cmocka_unit_test(unprivileged), cmocka_unit_test(no_python),
	};

	find_pythons();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
