/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes that programs wrote and that never left their own memory. */
#include "target.h"

#include <sys/stat.h>

static char dir[64];

static void make_dir(void)
{
	strcpy(dir, "/tmp/wg-test-XXXXXX");
	assert_non_null(mkdtemp(dir));
	assert_int_equal(chmod(dir, 0777), 0);
}

static void remove_dir(void)
{
	char cmd[128];

	snprintf(cmd, sizeof(cmd), "rm -r %s", dir);
	assert_int_equal(system(cmd), 0);
}

static const struct wg_file *file_of(const struct target *t, const char *name)
{
	int fd = fd_of(t, name);

	assert_true(fd >= 0);
	return wg_find_file(t->p, fd);
}

static void check(const struct target *t, const char *name, int64_t bytes, const char *owner)
{
	const struct wg_file *x = file_of(t, name);

	if (x->user_buffered_bytes != bytes)
		print_message("%s: %lld bytes, not %lld\n", name, (long long)x->user_buffered_bytes,
			      (long long)bytes);
	assert_int_equal(x->user_buffered_bytes, bytes);
	if (owner)
		assert_string_equal(x->user_buffer_owner, owner);
}

static void c_files(void **state)
{
	const char *argv[] = { TARGETS "buffers", dir, NULL };
	struct target t;

	(void)state;
	make_dir();
	assert_true(start_target(&t, argv));
	look_at(&t);
	wg_stdio_collect(t.f, t.p, t.m, t.s);
	check(&t, "full", 321, "stdio FILE");
	check(&t, "none", 0, NULL);
	check(&t, "flushed", 0, NULL);
	check(&t, "status", 0, NULL);
	assert_int_equal(wg_find_file(t.p, 1)->user_buffered_bytes, 5);
	end_target(&t);
	remove_dir();
}

static void cxx_streams(void **state)
{
	const char *argv[] = { TARGETS "cxx-streams", dir, NULL };
	struct target t;

	(void)state;
	if (access(argv[0], X_OK)) {
		print_message("SKIPPED: no C++ compiler\n");
		skip();
	}
	make_dir();
	assert_true(start_target(&t, argv));
	look_at(&t);
	wg_stdio_collect(t.f, t.p, t.m, t.s);
	check(&t, "local", 8, "std::ofstream");
	check(&t, "heap", 4, "std::ofstream");
	check(&t, "own", 10, "std::ofstream");
	assert_int_equal(wg_find_file(t.p, 1)->user_buffered_bytes, 5);
	assert_string_equal(wg_find_file(t.p, 1)->user_buffer_owner, "std::cout");
	end_target(&t);
	remove_dir();
}

static void python_files(const char *python)
{
	const char *argv[] = { python, SCRIPTS "files.py", dir, NULL };
	struct target t;

	make_dir();
	if (!start_target(&t, argv)) {
		print_message("SKIPPED: %s does not run\n", python);
		remove_dir();
		return;
	}
	look_at(&t);
	wg_stdio_collect(t.f, t.p, t.m, t.s);
	check(&t, "text", 1000, "Python TextIOWrapper");
	check(&t, "binary", 77, "Python BufferedWriter");
	check(&t, "both", 33, "Python BufferedWriter");
	check(&t, "local", 20000, NULL);
	check(&t, "empty", 0, NULL);
	assert_int_equal(wg_find_file(t.p, 1)->user_buffered_bytes, 100);
	assert_int_equal(wg_find_file(t.p, 2)->user_buffered_bytes, 0);
	end_target(&t);
	remove_dir();
}

static void python_system(void **state)
{
	(void)state;
	python_files("/usr/bin/python3");
}

static void python_versions(void **state)
{
	static const char *const minor[] = { "8", "9", "10", "11", "12", "13" };
	const char *home = getenv("HOME");

	(void)state;
	for (size_t i = 0; i < 6; i++) {
		char cmd[256], path[256] = "";
		FILE *in;

		snprintf(cmd, sizeof(cmd), "ls -d %s/.pyenv/versions/3.%s.*/bin/python3 2>/dev/null",
			 home ? home : "", minor[i]);
		in = popen(cmd, "r");
		if (in && fgets(path, sizeof(path), in)) {
			path[strcspn(path, "\n")] = 0;
			python_files(path);
		}
		if (in)
			pclose(in);
	}
}

/* A descriptor that no buffer is known of stays unknown: absent is absent. */
static void unknown_stays_unknown(void **state)
{
	const char *argv[] = { TARGETS "waits-O0", NULL };
	struct target t;
	size_t unknown = 0;

	(void)state;
	assert_true(start_target(&t, argv));
	look_at(&t);
	wg_stdio_collect(t.f, t.p, t.m, t.s);
	for (size_t i = 0; i < t.p->files.n; i++)
		if (t.p->files.v[i].fd > 2)
			unknown += !wg_has_int(t.p->files.v[i].user_buffered_bytes);
		else
			assert_int_equal(t.p->files.v[i].user_buffered_bytes, 0);
	assert_true(unknown >= 4); /* its pipe and sockets */
	end_target(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(c_files), cmocka_unit_test(cxx_streams),
		cmocka_unit_test(python_system), cmocka_unit_test(python_versions),
		cmocka_unit_test(unknown_stays_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
