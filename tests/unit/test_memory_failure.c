/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_memory_failure.c - failed allocations: numbers, the run of pieces, what counts as
 * made good, what is no failure at all; in the recorder and in the trace.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>

#include "memory_guest.h"
#include "../../tools/memory/print.h"

#define MIB (1024ull * 1024)
#define GIB (1024 * MIB)
#define BASE 0x7f1200000000ull

static char dir[64];

static int new_dir(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/wg-fail-XXXXXX");
	return mkdtemp(dir) ? 0 : -1;
}

static int drop_dir(void **state)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	char path[400];

	(void)state;
	while (d && (e = readdir(d))) {
		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		unlink(path);
	}
	if (d)
		closedir(d);
	return rmdir(dir);
}

/* In a process of its own, with a recorder file's sections; then the trace is read back. */
static struct wgm_analysis *run(void (*fn)(void))
{
	static struct wgrec_header rec;
	struct wgm_analysis **all, *a;
	char *paths[1] = { dir };
	int status;
	size_t n;
	pid_t pid = fork();

	if (!pid) {
		rec.rank = rec.world = rec.local_rank = -1;
		wg_rec = &rec;
		if (guest_start(dir, 16 * MIB))
			_exit(99);
		fn();
		wg_mem_exit();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (status)
		fail_msg("the recorded process: status 0x%x", status);
	assert_int_equal(wgm_open_all("test", paths, 1, &all, &n, wgm_analyse), 0);
	assert_int_equal(n, 1);
	a = all[0];
	free(all);
	return a;
}

#define CHECK(condition)                                                           \
	do {                                                                       \
		if (!(condition)) {                                                \
			fprintf(stderr, "line %d: %s\n", __LINE__, #condition);    \
			_exit(1);                                                  \
		}                                                                  \
	} while (0)

/* ---- numbers ----------------------------------------------------------------------- */

static void plain(void)
{
	guest_gpu.others = GIB;
	guest_alloc(0, WG_MEM_DEVICE, BASE, 3 * GIB);
	guest_fail(0, WG_MEM_DEVICE, 5 * GIB);
	CHECK(guest_failures[0].seq == 1);
	CHECK(guest_failures[0].asked == 5 * GIB);
	CHECK(guest_failures[0].free == 4 * GIB);
	CHECK(guest_failures[0].total == 8 * GIB);
	CHECK(guest_failures[0].tid == (uint32_t)getpid());
	CHECK(guest_failures[0].nframes >= 2);
	CHECK(guest_failures[0].npyframes == 0);
	CHECK(guest_devices[0].failures == 1);
	CHECK(guest_devices[0].own == 3 * GIB);
	CHECK(guest_failures[0].recovered == 0);
	guest_free(0, WG_MEM_DEVICE, BASE);
}

static void test_numbers(void **state)
{
	struct wgm_analysis *a = run(plain);
	const struct wgm_failure *f;
	const struct wgm_frame *frames;
	size_t n;

	(void)state;
	assert_int_equal(a->devices[0].failures.n, 1);
	f = a->devices[0].failures.v[0];
	assert_int_equal(f->asked, 5 * GIB);
	assert_int_equal(f->free, 4 * GIB);
	assert_int_equal(wgm_short_by(f), GIB);
	assert_int_equal(f->recovered, 0);
	assert_string_equal(wgm_function(a->t, f->fn), "cuMemAlloc_v2");
	frames = wgm_frames(a->t, &f->stack, &n);
	assert_string_equal(frames[0].symbol, "plain");
	/* Who held it at that moment. */
	assert_int_equal(f->holders.n, 1);
	assert_string_equal(f->holders.v[0].library, "test_memory_failure");
	assert_int_equal(f->holders.v[0].bytes, 3 * GIB);
	wgm_trace_close(a->t);
}

/* ---- what makes it good ------------------------------------------------------------------ */

static void *elsewhere(void *arg)
{
	(void)arg;
	wg_mem_device_used(0);
	return NULL;
}

static void recovery(void)
{
	pthread_t t;

	guest_fail(0, WG_MEM_DEVICE, 9 * GIB);	       /* 1: another thread's launch is none */
	pthread_create(&t, NULL, elsewhere, NULL);
	pthread_join(t, NULL);
	CHECK(!guest_failures[0].recovered);
	wg_mem_device_used(1);			       /* nor is one on another device */
	CHECK(!guest_failures[0].recovered);
	guest_alloc(0, WG_MEM_DEVICE, BASE, 1 * GIB);  /* nor a smaller allocation */
	guest_free(0, WG_MEM_DEVICE, BASE);
	CHECK(!guest_failures[0].recovered);
	wg_mem_device_used(0);
	CHECK(guest_failures[0].recovered == 1);

	guest_fail(0, WG_MEM_DEVICE, 10 * GIB);	       /* 2: the same size succeeds later */
	guest_alloc(0, WG_MEM_DEVICE, BASE, 10 * GIB);
	CHECK(guest_failures[1].recovered == 2);
	guest_free(0, WG_MEM_DEVICE, BASE);

	guest_fail(0, WG_MEM_DEVICE, 11 * GIB);	       /* 3, three times in all; stays open */
	guest_fail(0, WG_MEM_DEVICE, 11 * GIB);
	guest_fail(0, WG_MEM_DEVICE, 11 * GIB);
	CHECK(guest_failures[2].repeats == 2);
	CHECK(!guest_failures[2].recovered);
	CHECK(!guest_failures[3].seq);
	CHECK(guest_devices[0].failures == 5);
}

static void test_recovery(void **state)
{
	struct wgm_analysis *a = run(recovery);
	const struct wgm_device *d = &a->devices[0];

	(void)state;
	assert_int_equal(d->failures.n, 3);
	assert_int_equal(d->failures.v[0]->recovered, 1);
	assert_int_equal(d->failures.v[1]->recovered, 2);
	assert_int_equal(d->failures.v[2]->recovered, 0);
	assert_int_equal(d->failures.v[2]->repeats, 2);
	wgm_trace_close(a->t);
}

/* ---- pieces --------------------------------------------------------------------------------- */

static __attribute__((noinline)) void segment(uint64_t from, int n, bool fails, bool maps)
{
	uint64_t handles[64];

	for (int i = 0; i <= n; i++) { /* one call site for those that work and the one that fails */
		bool last = i == n;

		if (last && !fails)
			break;
		handles[i] = from + (uint64_t)i;
		GUEST_SITE(s, 3, 0);
		if (last)
			wg_mem_failed(&s, WG_MEM_VMM, 20 * MIB, 2);
		else
			wg_mem_allocated(&s, WG_MEM_VMM, handles[i], 20 * MIB);
	}
	for (int i = 0; i < n && maps; i++) {
		GUEST_SITE(s, 4, 0);
		s.handle = handles[i];
		wg_mem_allocated(&s, WG_MEM_VMM_MAP, BASE + handles[i] * 20 * MIB, 20 * MIB);
	}
	for (int i = 0; i < n && fails; i++) {
		GUEST_SITE(s, 5, 0);
		wg_mem_freed(&s, WG_MEM_VMM, handles[i]);
	}
}

static void pieces(void)
{
	uint64_t free_then;

	segment(100, 10, false, true); /* worked and is mapped: another request */
	guest_gpu.others = 7 * GIB;
	free_then = 8 * GIB - 7 * GIB - 200 * MIB;
	segment(1000, 30, true, false);
	CHECK(guest_failures[0].asked == 31 * 20 * MIB);
	CHECK(guest_failures[0].pieces == 31);
	CHECK(guest_failures[0].free == free_then);
	CHECK(wg_mem_own(0) == 200 * MIB); /* given back */
	segment(2000, 5, false, false); /* begun, then a launch: not part of what follows */
	wg_mem_device_used(0);
	segment(3000, 0, true, false);
	CHECK(guest_failures[1].asked == 20 * MIB);
	CHECK(guest_failures[1].pieces <= 1);
	/* An allocation of the whole, in pieces, makes the first one good; the launch did before. */
	CHECK(guest_failures[0].recovered == 1);
	segment(4000, 31, false, true);
	CHECK(guest_failures[1].recovered == 2);
}

static void test_pieces(void **state)
{
	struct wgm_analysis *a = run(pieces);
	const struct wgm_device *d = &a->devices[0];

	(void)state;
	assert_int_equal(d->failures.n, 2);
	assert_int_equal(d->failures.v[0]->asked, 620 * MIB);
	assert_int_equal(d->failures.v[0]->pieces, 31);
	assert_int_equal(d->failures.v[1]->asked, 20 * MIB);
	assert_int_equal(d->own_at_end, (10 + 5 + 31) * 20 * MIB);
	assert_int_equal(d->live_at_end, d->own_at_end);
	wgm_trace_close(a->t);
}

/* ---- handles and mappings ---------------------------------------------------------------------- */

static void handles(void)
{
	GUEST_SITE(s, 3, 0);

	wg_mem_allocated(&s, WG_MEM_VMM, 77, 64 * MIB);
	s.handle = 77;
	wg_mem_allocated(&s, WG_MEM_VMM_MAP, BASE, 64 * MIB);
	wg_mem_allocated(&s, WG_MEM_VA, BASE, GIB);
	CHECK(wg_mem_own(0) == 64 * MIB); /* physical once; mapping and address space are none */
	wg_mem_freed(&s, WG_MEM_VMM, 77); /* the handle goes, its memory stays while mapped */
	CHECK(wg_mem_own(0) == 64 * MIB);
	s.bytes = 64 * MIB;
	wg_mem_freed(&s, WG_MEM_VMM_MAP, BASE);
	CHECK(wg_mem_own(0) == 0);
	wg_mem_freed(&s, WG_MEM_VA, BASE);
	CHECK(wg_trace_device(0)->va_reserved == 0);
	/* Three mappings taken down by one call. */
	for (uint64_t i = 0; i < 3; i++) {
		wg_mem_allocated(&s, WG_MEM_VMM, 80 + i, 2 * MIB);
		s.handle = 80 + i;
		wg_mem_allocated(&s, WG_MEM_VMM_MAP, BASE + i * 2 * MIB, 2 * MIB);
		wg_mem_freed(&s, WG_MEM_VMM, 80 + i);
	}
	CHECK(wg_mem_own(0) == 6 * MIB);
	s.bytes = 6 * MIB;
	wg_mem_freed(&s, WG_MEM_VMM_MAP, BASE);
	CHECK(wg_mem_own(0) == 0);
	/* A pool: what it has reserved counts, not what is handed out of it. */
	wg_mem_allocated(&s, WG_MEM_POOL, 0x900, 32 * MIB);
	wg_mem_allocated(&s, WG_MEM_ASYNC, BASE + GIB, 10 * MIB);
	CHECK(wg_mem_own(0) == 32 * MIB);
	wg_mem_freed(&s, WG_MEM_DEVICE, BASE + GIB); /* by another door */
	CHECK(wg_mem_own(0) == 32 * MIB);
	wg_mem_allocated(&s, WG_MEM_POOL, 0x900, 0); /* trimmed */
	CHECK(wg_mem_own(0) == 0);
	/* A free that fails did not happen. */
	wg_mem_allocated(&s, WG_MEM_DEVICE, BASE, 5 * MIB);
	wg_mem_freed(&s, WG_MEM_DEVICE, BASE);
	wg_mem_unfree(&s, WG_MEM_DEVICE, BASE);
	CHECK(wg_mem_own(0) == 5 * MIB);
	/* The context goes: everything of that device, and nothing of another. */
	s.device = 1;
	wg_mem_allocated(&s, WG_MEM_DEVICE, BASE + 2 * GIB, MIB);
	wg_mem_device_gone(0);
	CHECK(wg_mem_own(0) == 0);
	CHECK(wg_mem_own(1) == MIB);
}

static void test_handles(void **state)
{
	struct wgm_analysis *a = run(handles);

	(void)state;
	assert_int_equal(a->devices[0].peak_own, 64 * MIB);
	assert_int_equal(a->devices[0].live_at_end, 0);
	assert_int_equal(a->devices[1].live_at_end, MIB);
	wgm_trace_close(a->t);
}

/* ---- what is none ----------------------------------------------------------------------------------- */

static void none(void)
{
	GUEST_SITE(s, 1, 0);

	wg_mem_failed(&s, WG_MEM_DEVICE, 9 * GIB, 1);	/* invalid value */
	wg_mem_failed(&s, WG_MEM_DEVICE, 9 * GIB, 700); /* illegal address: a sticky error */
	CHECK(!guest_failures[0].seq);
	s.fn = 7;
	wg_mem_failed(&s, WG_MEM_HOST, 520 * GIB, 2); /* real, but not the card's memory */
	CHECK(guest_failures[0].seq == 1);
	CHECK(guest_failures[0].free == UINT64_MAX);
	CHECK(guest_failures[0].kind == WG_MEM_HOST);
	s.fn = 8;
	wg_mem_failed(&s, WG_MEM_VA, 131072 * GIB, 2);
	CHECK(guest_failures[1].free == UINT64_MAX);
}

static void test_none(void **state)
{
	struct wgm_analysis *a = run(none);
	const struct wgm_device *d = &a->devices[0];

	(void)state;
	assert_int_equal(d->failures.n, 2);
	assert_true(wgm_short_by(d->failures.v[0]) == WGM_NONE);
	assert_true(wgm_short_by(d->failures.v[1]) == WGM_NONE);
	assert_non_null(strstr(wgm_failure_text(a, d, d->failures.v[0]), "not GPU memory"));
	assert_non_null(strstr(wgm_failure_text(a, d, d->failures.v[1]), "address space"));
	wgm_trace_close(a->t);
}

/* ---- many a second --------------------------------------------------------------------------------------- */

static void storm(void)
{
	int with_frames = 0;

	for (uint64_t i = 0; i < 100; i++)
		guest_fail(0, WG_MEM_DEVICE, 10 * GIB + i * MIB);
	for (int i = 0; i < 16; i++)
		with_frames += guest_failures[i].nframes > 0;
	CHECK(guest_failures[(100 - 1) % 16].seq == 100);
	CHECK(with_frames == 0); /* the ring has gone round: those with frames were the first */
	CHECK(guest_devices[0].failures == 100);
}

static void test_storm(void **state)
{
	struct wgm_analysis *a = run(storm);
	const struct wgm_device *d = &a->devices[0];
	size_t with_frames = 0;

	(void)state;
	assert_int_equal(d->failures.n, 100);
	for (size_t i = 0; i < d->failures.n; i++)
		with_frames += d->failures.v[i]->stack.n > 0;
	assert_in_range(with_frames, 4, 5); /* a slow machine may reach the next quarter second */
	wgm_trace_close(a->t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_numbers, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_recovery, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_pieces, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_handles, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_none, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_storm, new_dir, drop_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
