/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_memory_trace.c - the trace's writer and reader against each other: round trips,
 * exact counts, folding, threads, a kill in the middle, corruption at every byte.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "memory_guest.h"
#include "../../tools/memory/print.h"

static char dir[64];

static int new_dir(void **state)
{
	(void)state;
	strcpy(dir, "/tmp/wg-trace-XXXXXX");
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

/* The one trace in dir. */
static const char *trace_path(void)
{
	static char path[400];
	DIR *d = opendir(dir);
	struct dirent *e;

	path[0] = 0;
	while (d && (e = readdir(d)))
		if (strstr(e->d_name, ".trace"))
			snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
	if (d)
		closedir(d);
	return path;
}

/* Run fn as a recorded process of its own; returns its wait status. */
static int as_process(void (*fn)(void), uint64_t trace_max)
{
	int status = -1;
	pid_t pid = fork();

	if (!pid) {
		if (guest_start(dir, trace_max))
			_exit(99);
		fn();
		_exit(0);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	return status;
}

static struct wgm_analysis *analyse(const char *path)
{
	char why[320] = "";
	struct wgm_trace *t;
	struct wgm_analysis *a;

	if (wgm_trace_open(path, &t, why, sizeof(why)))
		fail_msg("%s: %s", path, why);
	a = wgm_analyse(t);
	if (!a)
		fail_msg("%s: %s", path, t->why);
	return a;
}

#define MIB (1024ull * 1024)
#define BASE 0x7f1200000000ull

/* ---- exact counts -------------------------------------------------------------- */

/* Two call sites: the comments keep the compiler from folding equal functions into one. */
static __attribute__((noinline)) void keeper(uint64_t ptr, uint64_t bytes)
{
	guest_alloc(0, WG_MEM_DEVICE, ptr, bytes);
	__asm__ volatile("# keeper" ::: "memory");
}

static __attribute__((noinline)) void passer(uint64_t ptr, uint64_t bytes)
{
	guest_alloc(0, WG_MEM_DEVICE, ptr, bytes);
	__asm__ volatile("# passer" ::: "memory");
}

static void counts(void)
{
	for (int i = 0; i < 10; i++)
		keeper(BASE + (uint64_t)i * 4 * MIB, 3 * MIB);
	for (int i = 0; i < 7; i++)
		passer(BASE + (1ull << 32) + (uint64_t)i * 8 * MIB, 5 * MIB + 17);
	for (int i = 0; i < 7; i++)
		guest_free(0, WG_MEM_DEVICE, BASE + (1ull << 32) + (uint64_t)i * 8 * MIB);
	guest_free(0, WG_MEM_DEVICE, 0x1234); /* never allocated: counts for nothing */
	guest_free(0, WG_MEM_DEVICE, BASE);
	guest_alloc(1, WG_MEM_DEVICE, BASE + (1ull << 40), 1000);
	guest_alloc(0, WG_MEM_HOST, BASE + (1ull << 41), 4 * MIB);
	guest_alloc(0, WG_MEM_HOST_REG, BASE + (1ull << 42), 2 * MIB);
	guest_free(0, WG_MEM_HOST_REG, BASE + (1ull << 42));
	wg_mem_exit();
}

static const struct wgm_site *site_with(const struct wgm_device *d, const char *name)
{
	for (size_t i = 0; i < d->sites.n; i++)
		if (strstr(d->sites.v[i]->text, name))
			return d->sites.v[i];
	return NULL;
}

static void test_counts(void **state)
{
	struct wgm_analysis *a;
	const struct wgm_device *d;
	const struct wgm_site *s;

	(void)state;
	assert_int_equal(as_process(counts, 64 * MIB), 0);
	a = analyse(trace_path());
	d = &a->devices[0];
	assert_true(a->complete);
	assert_int_equal(a->t->lost, 0);
	assert_int_equal(d->allocations, 17);
	assert_int_equal(d->frees, 8);
	assert_int_equal(d->peak_own, 30 * MIB + 7 * (5 * MIB + 17));
	assert_int_equal(d->own_at_end, 27 * MIB);
	assert_int_equal(d->live_at_end, 27 * MIB);
	assert_int_equal(a->devices[1].own_at_end, 1000);
	assert_int_equal(a->devices[1].allocations, 1);
	assert_int_equal(a->host_peak, 6 * MIB);
	assert_int_equal(a->host_at_end, 4 * MIB);
	/* Sampled, not at every event: between what was there at first and at the peak. */
	assert_in_range(d->least_free, guest_gpu.total - d->peak_own, guest_gpu.total);
	/* By call site: names come from this very program. */
	s = site_with(d, "keeper");
	assert_non_null(s);
	assert_int_equal(s->live_at_peak, 30 * MIB);
	assert_int_equal(s->live_at_end, 27 * MIB);
	assert_int_equal(s->allocations, 10);
	assert_int_equal(s->frees, 1);
	s = site_with(d, "passer");
	assert_non_null(s);
	assert_int_equal(s->live_at_peak, 7 * (5 * MIB + 17));
	assert_int_equal(s->live_at_end, 0);
	assert_int_equal(s->allocations, 7);
	assert_int_equal(s->frees, 7);
	assert_true(d->libraries.n >= 1);
	assert_string_equal(d->libraries.v[0].library, "test_memory_trace");
	assert_int_equal(d->libraries.v[0].live_at_end, 27 * MIB);
	wgm_trace_close(a->t);
}

/* ---- an event for an event --------------------------------------------------------- */

#define ROUND 40000
static uint64_t random_state;

static uint64_t next_random(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

/* The same sequence for the writer and the check. */
static void round_trip_event(int i, bool *is_free, uint64_t *addr, uint64_t *size)
{
	static uint64_t alive[512];
	uint64_t r = next_random(), k = r % 512;

	if (!i)
		memset(alive, 0, sizeof(alive));
	*is_free = alive[k] != 0;
	*addr = BASE + k * (1ull << 26) + ((r >> 20) % 3) * 256; /* also odd distances */
	*size = 1 + (r >> 30) % (1u << 26);
	if ((r >> 60) < 8)
		*size &= ~511ull;
	if (!*size)
		*size = 512;
	if (*is_free)
		*addr = alive[k];
	alive[k] = *is_free ? 0 : *addr;
}

static void round_trip(void)
{
	random_state = 42;
	for (int i = 0; i < ROUND; i++) {
		uint64_t addr, size;
		bool is_free;

		round_trip_event(i, &is_free, &addr, &size);
		if (is_free)
			guest_free(0, WG_MEM_DEVICE, addr);
		else
			guest_alloc(0, WG_MEM_DEVICE, addr, size);
	}
	wg_mem_exit();
}

static void test_round_trip(void **state)
{
	char why[320];
	struct wgm_trace *t;
	struct wgm_events *all;
	struct wgm_event e;
	uint64_t sizes[512] = { 0 }, last = 0;
	int i = 0, err;

	(void)state;
	assert_int_equal(as_process(round_trip, 64 * MIB), 0);
	assert_int_equal(wgm_trace_open(trace_path(), &t, why, sizeof(why)), 0);
	all = wgm_events_open(t, 0);
	random_state = 42;
	while ((err = wgm_events_next(all, &e)) > 0) {
		uint64_t addr, size, k;
		bool is_free;

		assert_true(e.at >= last);
		last = e.at;
		if (e.tag)
			continue;
		round_trip_event(i++, &is_free, &addr, &size);
		k = (addr - BASE) >> 26;
		if (is_free)
			size = sizes[k];
		sizes[k] = size;
		assert_int_equal(e.is_free, is_free);
		assert_int_equal(e.addr, addr);
		assert_int_equal(e.size, size); /* a free carries it too */
	}
	assert_int_equal(err, 0);
	assert_int_equal(i, ROUND);
	wgm_events_close(all);
	wgm_trace_close(t);
}

/* ---- folding --------------------------------------------------------------------------- */

static void many(void)
{
	for (int i = 0; i < 50; i++)
		keeper(BASE + (1ull << 40) + (uint64_t)i * 2 * MIB, MIB);
	for (int i = 0; i < 400000; i++) {
		passer(BASE + (uint64_t)(i % 1000) * 4096, 4096);
		if (i >= 300)
			guest_free(0, WG_MEM_DEVICE, BASE + (uint64_t)((i - 300) % 1000) * 4096);
	}
	wg_mem_exit();
}

static void test_folding(void **state)
{
	struct wgm_analysis *a;
	const struct wgm_site *s;
	struct stat st;

	(void)state;
	assert_int_equal(as_process(many, 1 * MIB), 0);
	assert_int_equal(stat(trace_path(), &st), 0);
	assert_true(st.st_size <= (off_t)(1 * MIB + WGTR_HEADER_SIZE));
	a = analyse(trace_path());
	assert_true(a->t->h.folded_events > 100000);
	assert_int_equal(a->t->lost, 0);
	/* What was allocated before all the detail that is left is still known, with its site. */
	s = site_with(&a->devices[0], "keeper");
	assert_non_null(s);
	assert_int_equal(s->live_at_end, 50 * MIB);
	assert_int_equal(s->allocations, 50);
	s = site_with(&a->devices[0], "passer");
	assert_non_null(s);
	assert_int_equal(s->allocations, 400000);
	assert_int_equal(s->frees, 400000 - 300);
	assert_int_equal(s->live_at_end, 300 * 4096);
	assert_int_equal(a->devices[0].own_at_end, 50 * MIB + 300 * 4096);
	assert_int_equal(a->devices[0].peak_own, 50 * MIB + 301 * 4096);
	assert_true(a->t->timeline[0].n >= 1);
	wgm_trace_close(a->t);
}

/* ---- threads ------------------------------------------------------------------------------- */

#define THREADS 8
#define EACH 20000

static void *worker(void *arg)
{
	uint64_t base = BASE + (uint64_t)(uintptr_t)arg * (1ull << 36);

	for (uint64_t i = 0; i < EACH; i++) {
		passer(base + i % 64 * MIB, MIB);
		if (i >= 16)
			guest_free(0, WG_MEM_DEVICE, base + (i - 16) % 64 * MIB);
	}
	return NULL;
}

static void threads(void)
{
	pthread_t t[THREADS];

	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, worker, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	wg_mem_exit();
}

static void test_threads(void **state)
{
	struct wgm_analysis *a;

	(void)state;
	assert_int_equal(as_process(threads, 64 * MIB), 0);
	a = analyse(trace_path());
	assert_int_equal(a->t->lost, 0);
	assert_int_equal(a->devices[0].allocations, THREADS * EACH);
	assert_int_equal(a->devices[0].frees, THREADS * (EACH - 16));
	assert_int_equal(a->devices[0].own_at_end, THREADS * 16 * MIB);
	assert_int_equal(a->devices[0].live_at_end, THREADS * 16 * MIB);
	assert_true(a->devices[0].peak_own <= THREADS * 17 * MIB);
	assert_true(a->t->threads.n >= THREADS);
	wgm_trace_close(a->t);
}

/* ---- a kill ------------------------------------------------------------------------------------ */

static void for_ever(void)
{
	for (uint64_t i = 0;; i++) {
		keeper(BASE + i % 4096 * MIB, MIB);
		if (i >= 100)
			guest_free(0, WG_MEM_DEVICE, BASE + (i - 100) % 4096 * MIB);
	}
}

/* A busy machine may take its time to start the other process. */
static void wait_until_busy(void)
{
	char why[320];

	for (int i = 0; i < 3000; i++) {
		uint64_t allocs = 0;
		struct wgm_trace *t;

		if (!wgm_trace_open(trace_path(), &t, why, sizeof(why))) {
			allocs = t->devices[0].allocs;
			wgm_trace_close(t);
		}
		if (allocs > 1000)
			return;
		usleep(10000);
	}
	fail_msg("the recorded process does not get going: %s", why);
}

static void test_kill(void **state)
{
	(void)state;
	for (int round = 0; round < 12; round++) {
		struct wgm_analysis *a;
		const char *path;
		int status;
		pid_t pid = fork();

		if (!pid) {
			if (guest_start(dir, round % 2 ? 1 * MIB : 64 * MIB))
				_exit(99);
			for_ever();
		}
		wait_until_busy();
		usleep((useconds_t)round * 7777);
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
		path = trace_path();
		a = analyse(path);
		assert_false(a->complete);
		assert_true(wgm_killed(a->t));
		/* Between two instructions of one event: at most that one is half there. */
		assert_in_range(a->devices[0].live_at_end, 99 * MIB, 102 * MIB);
		assert_in_range(a->devices[0].own_at_end, 99 * MIB, 102 * MIB);
		assert_true(a->t->events > 100);
		wgm_trace_close(a->t);
		unlink(path);
	}
}

/* ---- corruption ------------------------------------------------------------------------------------ */

static void small(void)
{
	counts();
	guest_fail(0, WG_MEM_DEVICE, 20ull << 30);
	wg_mem_tick();
	wg_mem_exit();
}

static int try_open(const char *path)
{
	char why[320] = "";
	struct wgm_trace *t;
	struct wgm_analysis *a;
	int err = wgm_trace_open(path, &t, why, sizeof(why));

	if (err) {
		assert_true(err == -EBADMSG || err == -EPROTO);
		assert_true(strlen(why) > 5);
		return err;
	}
	a = wgm_analyse(t);
	if (!a) {
		assert_true(strlen(t->why) > 5);
		err = -EBADMSG;
	} else {
		json_t *doc = wgm_json(&a, 1);
		FILE *none = fopen("/dev/null", "w");

		wgm_print(none, a, 10);
		fclose(none);
		json_decref(doc);
	}
	wgm_trace_close(t);
	return err;
}

static void test_corruption(void **state)
{
	static uint8_t bytes[4 << 20];
	char path[400];
	size_t n, refused = 0, tried = 0;
	int fd;

	(void)state;
	assert_int_equal(as_process(small, 512 << 10), 0);
	snprintf(path, sizeof(path), "%s", trace_path());
	fd = open(path, O_RDWR);
	n = (size_t)pread(fd, bytes, sizeof(bytes), 0);
	assert_true(n > WGTR_HEADER_SIZE && n < sizeof(bytes));
	assert_int_equal(try_open(path), 0);
	for (size_t i = 0; i < n; i++) {
		uint8_t bad[3] = { 0xff, bytes[i] ^ 1, bytes[i] ^ 0x80 };

		/* Every byte that says something, and some of the emptiness. */
		if (!bytes[i] && i > 1024 && i % 251)
			continue;
		for (int k = 0; k < (bytes[i] ? 3 : 1); k++) {
			assert_int_equal(pwrite(fd, &bad[k], 1, (off_t)i), 1);
			refused += try_open(path) != 0;
			tried++;
		}
		assert_int_equal(pwrite(fd, &bytes[i], 1, (off_t)i), 1);
	}
	assert_true(tried > 3000);
	assert_true(refused > 100 && refused < tried);
	/* Cut anywhere: refused as truncated, never a crash. */
	for (size_t cut = n; cut-- > 0; cut -= cut > 20000 ? 997 : cut > 13 ? 13 : 0) {
		assert_int_equal(ftruncate(fd, (off_t)cut), 0);
		assert_int_not_equal(try_open(path), 0);
	}
	/* Foreign: another version, another file. */
	assert_int_equal(pwrite(fd, bytes, n, 0), (ssize_t)n);
	assert_int_equal(pwrite(fd, "\x63", 1, 12), 1); /* min_version */
	assert_int_equal(try_open(path), -EPROTO);
	assert_int_equal(pwrite(fd, "#!/bin/s", 8, 0), 8);
	assert_int_equal(try_open(path), -EPROTO);
	close(fd);
	wgm_objects_close();
}

/* ---- no directory -------------------------------------------------------------------------------------- */

static void without_file(void)
{
	for (int i = 0; i < 1000; i++)
		keeper(BASE + (uint64_t)i * MIB, MIB);
	for (int i = 0; i < 990; i++)
		guest_free(0, WG_MEM_DEVICE, BASE + (uint64_t)i * MIB);
	guest_fail(0, WG_MEM_DEVICE, 20ull << 30);
	wg_mem_tick();
	if (wg_mem_own(0) != 10 * MIB || wg_trace_device(0)->failures != 1)
		_exit(1);
	wg_mem_exit();
}

static void test_no_directory(void **state)
{
	int status;
	pid_t pid = fork();

	(void)state;
	if (!pid) {
		if (guest_start("/proc/no/such", 64 * MIB) >= 0)
			_exit(2);
		without_file();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	assert_int_equal(status, 0);
}

/* ---- fork ------------------------------------------------------------------------------------------------ */

static void forks(void)
{
	uint64_t held;
	int status;
	pid_t pid;

	for (int i = 0; i < 20; i++)
		keeper(BASE + (uint64_t)i * MIB, MIB);
	/* The child must neither hang on what its parent held nor write into its parent's file. */
	atomic_store(&tr_writers[0].lock.tid, 1);
	atomic_store(&dv_shards[5].lock.tid, 1);
	held = wg_trace_header->touched;
	pid = fork();
	if (!pid) {
		wg_mem_fork_child();
		alarm(5);
		keeper(BASE + (1ull << 40), MIB); /* off: nothing happens */
		if (guest_start(dir, 4 * MIB)) /* its own CUDA: a record of its own */
			_exit(3);
		keeper(BASE + (1ull << 40), 7 * MIB);
		if (wg_mem_own(0) != 7 * MIB)
			_exit(4);
		wg_mem_exit();
		_exit(0);
	}
	waitpid(pid, &status, 0);
	if (status || wg_trace_header->touched != held || wg_mem_own(0) != 20 * MIB)
		_exit(5);
	atomic_store(&tr_writers[0].lock.tid, 0);
	atomic_store(&dv_shards[5].lock.tid, 0);
	wg_mem_exit();
}

static void test_fork(void **state)
{
	char *paths[1] = { dir };
	struct wgm_analysis **all;
	size_t n;

	(void)state;
	assert_int_equal(as_process(forks, 4 * MIB), 0);
	assert_int_equal(wgm_open_all("test", paths, 1, &all, &n, wgm_analyse), 0);
	assert_int_equal(n, 2);
	for (size_t i = 0; i < n; i++)
		assert_true(all[i]->devices[0].own_at_end == 20 * MIB ||
			    all[i]->devices[0].own_at_end == 7 * MIB);
	assert_int_not_equal(all[0]->devices[0].own_at_end, all[1]->devices[0].own_at_end);
	wgm_close_all(all, n);
}

/* ---- growth ------------------------------------------------------------------------------ */

static __attribute__((noinline)) void leaker(uint64_t ptr, uint64_t bytes)
{
	guest_alloc(0, WG_MEM_DEVICE, ptr, bytes);
	__asm__ volatile("# leaker" ::: "memory");
}

static __attribute__((noinline)) void cache(uint64_t ptr, uint64_t bytes)
{
	guest_alloc(0, WG_MEM_DEVICE, ptr, bytes);
	__asm__ volatile("# cache" ::: "memory");
}

static void grows(void)
{
	for (int i = 0; i < 200; i++) {
		if (i < 40) /* loads, then stands */
			keeper(BASE + (1ull << 40) + (uint64_t)i * 8 * MIB, 8 * MIB);
		if (i % 2) /* one more for good, every 10 ms */
			leaker(BASE + (1ull << 41) + (uint64_t)i * 4 * MIB, 2 * MIB);
		for (uint64_t k = 0; k < 20; k++) /* comes and goes */
			passer(BASE + k * 8 * MIB, 8 * MIB);
		/* Bounded: up to 30, then the oldest goes for each new one. */
		cache(BASE + (1ull << 42) + (uint64_t)(i % 40) * 4 * MIB, 4 * MIB);
		if (i >= 30)
			guest_free(0, WG_MEM_DEVICE,
				   BASE + (1ull << 42) + (uint64_t)((i - 30) % 40) * 4 * MIB);
		usleep(2500);
		for (uint64_t k = 0; k < 20; k++)
			guest_free(0, WG_MEM_DEVICE, BASE + k * 8 * MIB);
		usleep(2500);
	}
	wg_mem_exit();
}

static void test_growth(void **state)
{
	struct wgm_analysis *a;
	const struct wgm_device *d;

	(void)state;
	assert_int_equal(as_process(grows, 64 * MIB), 0);
	a = analyse(trace_path());
	d = &a->devices[0];
	assert_int_equal(d->growing.n, 1);
	assert_non_null(strstr(d->growing.v[0].site->text, "leaker"));
	assert_int_equal(d->growing.v[0].live_at_end, 200 * MIB);
	/* 200 MiB over the whole time, whatever that was on a busy machine. */
	assert_true(fabs(d->growing.v[0].bytes_per_s * a->duration_s / (200.0 * MIB) - 1) < 0.3);
	wgm_trace_close(a->t);
}

/* ---- no room --------------------------------------------------------------------------------------------- */

static void limited(void)
{
	struct rlimit r = { 700 << 10, 700 << 10 };

	setrlimit(RLIMIT_FSIZE, &r); /* passing it would be SIGXFSZ */
	many();
}

static void check_many(const char *path)
{
	struct wgm_analysis *a = analyse(path);
	const struct wgm_site *s = site_with(&a->devices[0], "passer");

	assert_non_null(s);
	assert_int_equal(s->allocations, 400000);
	assert_int_equal(a->devices[0].own_at_end, 50 * MIB + 300 * 4096);
	assert_int_equal(a->devices[0].live_at_end, 50 * MIB + 300 * 4096);
	wgm_trace_close(a->t);
}

static void test_file_limit(void **state)
{
	struct stat st;

	(void)state;
	assert_int_equal(as_process(limited, 64 * MIB), 0);
	assert_int_equal(stat(trace_path(), &st), 0);
	assert_true(st.st_size <= 700 << 10);
	check_many(trace_path());
}

static void test_full_disk(void **state)
{
	(void)state;
	/* A file system of its own, of a size that the trace outgrows. */
	if (mount("wg-test", dir, "tmpfs", 0, "size=600k,mode=0700"))
		skip();
	if (as_process(many, 64 * MIB) == 0)
		check_many(trace_path());
	else
		fail_msg("the program died of a full disk");
	assert_int_equal(unlink(trace_path()), 0);
	assert_int_equal(umount(dir), 0);
}

/* A program that closes every descriptor, and gets our number for a file of its own. */
static void closes(void)
{
	char victim[128];
	struct stat st;
	int fd;

	snprintf(victim, sizeof(victim), "%s/victim", dir);
	keeper(BASE, MIB);
	fd = tr.fd;
	close(fd);
	if (dup2(open(victim, O_RDWR | O_CREAT, 0600), fd) != fd)
		_exit(6);
	for (int i = 0; i < 100000; i++) {
		passer(BASE + (1ull << 33) + (uint64_t)(i % 1000) * 4096, 4096);
		guest_free(0, WG_MEM_DEVICE, BASE + (1ull << 33) + (uint64_t)(i % 1000) * 4096);
	}
	wg_mem_tick();
	wg_mem_exit();
	if (fstat(fd, &st) || st.st_size)
		_exit(7); /* we wrote into somebody else's file */
}

static void test_closed_descriptor(void **state)
{
	struct wgm_analysis *a;

	(void)state;
	assert_int_equal(as_process(closes, 64 * MIB), 0);
	a = analyse(trace_path());
	assert_int_equal(a->t->lost, 0);
	assert_int_equal(a->devices[0].allocations, 100001);
	assert_true(a->t->events >= 200001);
	wgm_trace_close(a->t);
}

/* ---- read while it is written ------------------------------------------------------------------------------ */

static void test_living(void **state)
{
	int status;
	pid_t pid = fork();
	char why[320];

	(void)state;
	if (!pid) {
		if (guest_start(dir, 512 << 10)) /* recycles all the time */
			_exit(99);
		for_ever();
	}
	wait_until_busy();
	for (int i = 0; i < 30; i++) {
		struct wgm_trace *t;
		struct wgm_analysis *a;

		if (wgm_trace_open(trace_path(), &t, why, sizeof(why)))
			fail_msg("%s", why);
		a = wgm_analyse(t);
		if (!a)
			fail_msg("%s", t->why);
		assert_in_range(a->devices[0].own_at_end, 99 * MIB, 102 * MIB);
		wgm_trace_close(t);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_growth, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_file_limit, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_full_disk, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_closed_descriptor, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_living, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_counts, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_round_trip, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_folding, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_threads, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_kill, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_corruption, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_no_directory, new_dir, drop_dir),
		cmocka_unit_test_setup_teardown(test_fork, new_dir, drop_dir),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
