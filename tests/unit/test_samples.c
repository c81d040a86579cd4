/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_samples.c - what waitgraphd's looks at open files remember: which change of a pipe, a TCP
 * connection or a file is a write and which is not, and that it stays within its bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#ifdef WG_HAVE_OBSERVER
#include "bpf/samples.h"

static struct wg_samples *s;

static int setup(void **state)
{
	(void)state;
	s = wg_samples_new();
	return s ? 0 : -1;
}

static int teardown(void **state)
{
	(void)state;
	wg_samples_free(s);
	return 0;
}

static struct wg_obs_file pipe_at(uint64_t ino, uint64_t head, uint64_t end)
{
	struct wg_obs_file f = { .pid = 7, .fd = 4, .flags = O_WRONLY, .dev = 13, .ino = ino,
				 .mark = { head, end }, .mark_kind = WG_MARK_PIPE };

	return f;
}

/* One look of pid 7 at the files, at that time; what is remembered of the first of them. */
static struct wg_sampled look(const struct wg_obs_file *f, int n, uint64_t now)
{
	struct wg_sampled out = { 0, 0 };
	struct wg_look l;

	wg_samples_begin(s, &l, 7, 100, 1000);
	for (int i = 0; i < n; i++)
		wg_samples_note(s, &l, &f[i], now);
	wg_samples_end(s, &l);
	if (n)
		assert_int_equal(wg_samples_find(s, 7, f[0].dev, f[0].ino, &out), 0);
	return out;
}

static uint64_t held(void)
{
	struct wg_samples_counts c;

	wg_samples_counts(s, &c);
	return c.held;
}

static void test_pipe(void **state)
{
	struct wg_obs_file f = pipe_at(1, 5, 100);
	struct wg_sampled r = look(&f, 1, 10);

	(void)state;
	/* Before the first look nothing is known, not even that it was written just then. */
	assert_int_equal(r.since, 10);
	assert_int_equal(r.wrote_at, 0);
	r = look(&f, 1, 20);
	assert_int_equal(r.wrote_at, 0);
	f = pipe_at(1, 5, 107); /* went on in the last buffer */
	assert_int_equal(look(&f, 1, 30).wrote_at, 30);
	f = pipe_at(1, 6, 1); /* a new one */
	assert_int_equal(look(&f, 1, 40).wrote_at, 40);
	f = pipe_at(1, 6, 0); /* a reader took all of it: nobody wrote */
	assert_int_equal(look(&f, 1, 50).wrote_at, 40);
	assert_int_equal(look(&f, 1, 60).wrote_at, 40);
	f = pipe_at(1, 7, 0); /* written and read at once */
	assert_int_equal(look(&f, 1, 70).wrote_at, 70);
	f = pipe_at(1, 7, 0);
	r = look(&f, 1, 80);
	assert_int_equal(r.wrote_at, 70);
	assert_int_equal(r.since, 10);
}

static void test_others(void **state)
{
	struct wg_obs_file f = { .pid = 7, .flags = O_RDWR, .dev = 9, .ino = 2, .mark = { UINT32_MAX, 0 },
				 .mark_kind = WG_MARK_TCP };

	(void)state;
	look(&f, 1, 10);
	f.mark[0] = 3; /* sequence numbers wrap */
	assert_int_equal(look(&f, 1, 20).wrote_at, 20);
	f = (struct wg_obs_file){ .flags = O_WRONLY | O_APPEND, .dev = 3, .ino = 2, .mark = { 100, 5 },
				  .mark_kind = WG_MARK_FILE };
	look(&f, 1, 30);
	f.mark[1] = 6; /* its content, in place */
	assert_int_equal(look(&f, 1, 40).wrote_at, 40);
	f.mark[0] = 50; /* truncated: that is done to it, too */
	assert_int_equal(look(&f, 1, 50).wrote_at, 50);
	/* What can only be read, and what shows no writes, is not kept. */
	f.flags = O_RDONLY;
	f.ino = 77;
	look(NULL, 0, 60);
	assert_int_equal(held(), 0);
	{
		struct wg_look l;

		wg_samples_begin(s, &l, 7, 100, 1000);
		wg_samples_note(s, &l, &f, 61);
		f.flags = O_RDWR;
		f.mark_kind = 0;
		wg_samples_note(s, &l, &f, 62);
		wg_samples_end(s, &l);
	}
	assert_int_equal(held(), 0);
}

static void test_identity(void **state)
{
	struct wg_obs_file f[3] = { pipe_at(1, 5, 0), pipe_at(1, 5, 0), pipe_at(2, 9, 1) };
	struct wg_sampled r;
	struct wg_look a, b;

	(void)state;
	look(f, 3, 10);
	assert_int_equal(held(), 2); /* duplicates are one */
	look(f, 1, 20);
	assert_int_equal(held(), 1); /* closed */
	assert_int_equal(wg_samples_find(s, 7, 13, 2, &r), -ENOENT);
	f[0].generation = 1; /* the number is another inode's by now */
	f[0].mark[0] = 99;
	r = look(f, 1, 30);
	assert_int_equal(r.since, 30);
	assert_int_equal(r.wrote_at, 0);
	/* Two looks at a time: neither loses what the other has seen, nor closes it. */
	wg_samples_begin(s, &a, 7, 100, 1000);
	wg_samples_begin(s, &b, 7, 100, 1000);
	f[0].mark[0] = 100;
	wg_samples_note(s, &b, &f[0], 40);
	wg_samples_end(s, &b);
	wg_samples_note(s, &a, &f[0], 41);
	wg_samples_end(s, &a);
	assert_int_equal(wg_samples_find(s, 7, 13, 1, &r), 0);
	assert_int_equal(r.wrote_at, 40);
	/* Another process with the number begins anew; a late word of the old one is not taken for its. */
	wg_samples_begin(s, &a, 7, 100, 1000);
	wg_samples_begin(s, &b, 7, 200, 1000);
	wg_samples_note(s, &b, &f[0], 50);
	f[0].mark[0] = 101;
	wg_samples_note(s, &a, &f[0], 51);
	wg_samples_end(s, &a);
	wg_samples_end(s, &b);
	assert_int_equal(wg_samples_find(s, 7, 13, 1, &r), 0);
	assert_int_equal(r.since, 50);
	assert_int_equal(r.wrote_at, 0);
}

static int of_number(int32_t pid, uint64_t start, void *arg)
{
	(void)start;
	return pid % 2 == *(int *)arg;
}

/* pid has n files open. */
static void many(int32_t pid, uint32_t uid, int n)
{
	struct wg_look l;

	wg_samples_begin(s, &l, pid, 1, uid);
	for (int i = 0; i < n; i++) {
		struct wg_obs_file f = pipe_at((uint64_t)pid * 100000 + (uint64_t)i, 1, 0);

		wg_samples_note(s, &l, &f, 5);
	}
	wg_samples_end(s, &l);
}

static void test_bounds(void **state)
{
	struct wg_samples_counts c;
	int odd = 1;

	(void)state;
	many(1, 1000, WG_SAMPLES_OF_PROCESS + 10);
	wg_samples_counts(s, &c);
	assert_int_equal(c.held, WG_SAMPLES_OF_PROCESS);
	assert_int_equal(c.dropped, 10);
	for (int32_t pid = 2; pid < 100; pid++)
		many(pid, 1000, 500);
	wg_samples_counts(s, &c);
	assert_int_equal(c.held, WG_SAMPLES_OF_USER); /* a user fills his room */
	many(1001, 1001, 500);
	wg_samples_counts(s, &c);
	assert_int_equal(c.held, WG_SAMPLES_OF_USER + 500); /* and nobody else's */
	for (int32_t pid = 2000; pid < 2100; pid++)
		many(pid, 0, 1000);
	wg_samples_counts(s, &c);
	assert_int_equal(c.held, WG_SAMPLES_MOST);
	assert_true(c.dropped > 0);
	wg_samples_sweep(s, of_number, &odd);
	assert_true(held() < WG_SAMPLES_MOST && held() > 0);
	odd = 2; /* none */
	wg_samples_sweep(s, of_number, &odd);
	assert_int_equal(held(), 0);
	many(5, 1000, 100); /* the room was given back */
	assert_int_equal(held(), 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_pipe, setup, teardown),
		cmocka_unit_test_setup_teardown(test_others, setup, teardown),
		cmocka_unit_test_setup_teardown(test_identity, setup, teardown),
		cmocka_unit_test_setup_teardown(test_bounds, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
#include <stdio.h>

int main(void)
{
	puts("built without the observer");
	return 0;
}
#endif
