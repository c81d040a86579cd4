// SPDX-License-Identifier: Apache-2.0
/*
 * The stream side of the recorder against a driver of our own whose GPU runs only when told to.
 *
 * What must hold for every interleaving: nothing counts as done that is not (soundness), everything
 * counts as done once the GPU is through (completeness), and no write of ours goes where it would
 * change what the program waits for.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "preload/inflight.h"
#include "preload/lifecycle.h"
#include "preload/nccl.h"
#include "preload/queues.h"

/* ---- the fake recorder file ---------------------------------------------------- */

struct wgrec_header *wg_rec;
static struct wgrec_header header;
static struct wgrec_stream streams[WG_MAX_STREAMS];
static struct wgrec_item *items;
static uint32_t *positions;
static struct wgrec_event events[1024];
static char strings[65536];
static uint32_t strings_used = 1;
static uint32_t stream_capacity, ring_capacity, page_capacity;
static __thread struct wgrec_thread thread_slot;
static _Atomic uint64_t clock_now = 1000;
static char last_note[112];

void *wg_rec_section(enum wgrec_kind kind, uint64_t *capacity)
{
	switch (kind) {
	case WGREC_STREAMS:
		*capacity = stream_capacity;
		return streams;
	case WGREC_ITEMS:
		*capacity = (uint64_t)ring_capacity * WGREC_STREAM_ITEMS;
		return items;
	case WGREC_POSITIONS:
		*capacity = (uint64_t)page_capacity * 1024;
		return positions;
	case WGREC_EVENTS:
		*capacity = 1024;
		return events;
	default:
		*capacity = 0;
		return NULL;
	}
}

bool wg_rec_use(enum wgrec_kind kind, uint64_t upto)
{
	(void)kind;
	(void)upto;
	return true;
}

struct wgrec_thread *wg_rec_thread(void)
{
	return &thread_slot;
}

uint32_t wg_rec_string(const char *s)
{
	uint32_t at = strings_used;

	strcpy(strings + at, s);
	strings_used += (uint32_t)strlen(s) + 1;
	return at;
}

void wg_note(const char *text)
{
	snprintf(last_note, sizeof(last_note), "%s", text);
}

uint64_t wg_ticks(void)
{
	return atomic_fetch_add(&clock_now, 1);
}

bool wg_no_tsc = true; /* everybody asks wg_ticks() */

uint64_t wg_ticks_to_ns(uint64_t ticks)
{
	return ticks;
}

/* Only for how long a destroy is patient: the one time here that passes by itself. */
uint64_t wg_mono_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void wg_nccl_cuda_up(void)
{
}

/* ---- the fake driver: streams are queues, the GPU runs when told --------------------- */

#define MAX_OPS 20000
struct op {
	bool write, done;
	uint64_t seq; /* of the item, once given */
	uint64_t address;
	uint32_t value;
};
struct fake_stream {
	uint64_t handle, ctx;
	struct op *ops;
	unsigned int n, ran;
	int capturing;
	int refuse; /* code for writes */
	unsigned int writes;
};
static struct fake_stream fakes[512];
static unsigned int nfakes;
static pthread_mutex_t gpu = PTHREAD_MUTEX_INITIALIZER;
static __thread uint64_t current;
static unsigned long long context_id[4] = { 0, 11, 12, 13 };
static unsigned int registered[64];
static int register_refuse;
static unsigned int names_asked;

static struct fake_stream *fake(uint64_t handle)
{
	for (unsigned int k = 0; k < nfakes; k++)
		if (fakes[k].handle == handle && (handle > 2 || fakes[k].ctx == current))
			return &fakes[k];
	fakes[nfakes] = (struct fake_stream){ .handle = handle, .ctx = current,
					      .ops = calloc(MAX_OPS, sizeof(struct op)) };
	return &fakes[nfakes++];
}

static _Atomic unsigned int current_asked;
static unsigned long long extra_id;
static int fake_current(uint64_t *ctx) { current_asked++; *ctx = current; return 0; }
static int fake_device(int *device) { *device = (int)current - 1; return current ? 0 : 201; }
static int fake_id(uint64_t ctx, unsigned long long *id)
{
	*id = extra_id && ctx == current ? extra_id : context_id[ctx & 3];
	return 0;
}
static int fake_flags(uint64_t s, unsigned int *flags) { (void)s; *flags = 1; return 0; }
static int fake_stream_ctx(uint64_t s, uint64_t *ctx) { *ctx = fake(s)->ctx; return 0; }

static int fake_capturing(uint64_t s, int *status)
{
	pthread_mutex_lock(&gpu);
	int c = fake(s)->capturing;
	pthread_mutex_unlock(&gpu);
	if (c < 0)
		return -c;
	*status = c;
	return 0;
}

static uint64_t write_takes;
static _Atomic uint64_t all_writes;
static void (*during_write)(void); /* once, before the write is issued */
static int fake_write(uint64_t s, uint64_t address, uint32_t value, unsigned int flags)
{
	void (*hook)(void) = during_write;
	struct fake_stream *f;
	int rc = 0;

	if (flags)
		return 1;
	atomic_fetch_add(&clock_now, write_takes);
	atomic_fetch_add(&all_writes, 1);
	if (hook) {
		during_write = NULL;
		hook();
	}
	pthread_mutex_lock(&gpu);
	f = fake(s);
	if (f->capturing)
		fail_msg("a position write into a capturing stream");
	rc = f->refuse;
	if (!rc) {
		if (f->n == MAX_OPS)
			abort();
		f->ops[f->n++] = (struct op){ .write = true, .address = address, .value = value };
		f->writes++;
	}
	pthread_mutex_unlock(&gpu);
	return rc;
}

static int fake_mode(int *mode) { *mode = 0; return 0; }

static int fake_register(void *address, uint64_t bytes, unsigned int flags)
{
	size_t page = (size_t)((char *)address - (char *)positions) / 4096;

	if (register_refuse)
		return register_refuse;
	assert_int_equal(flags, 3);
	assert_int_equal(bytes, 4096);
	if (registered[page])
		return 712;
	registered[page] = (unsigned int)current;
	return 0;
}

static int fake_pointer(uint64_t *out, void *address, unsigned int flags)
{
	size_t page = (size_t)((char *)address - (char *)positions) / 4096;

	(void)flags;
	if (!registered[page])
		return 1;
	*out = (uint64_t)(uintptr_t)address;
	return 0;
}

static int fake_name(const char **name, uint64_t f)
{
	static char text[4][32];
	static unsigned int k;

	names_asked++;
	if (f >= 0x9000)
		return 400;
	k = (k + 1) % 4;
	snprintf(text[k], sizeof(text[k]), "kernel_%llx", (unsigned long long)f);
	*name = text[k];
	return 0;
}

static int fake_kernel_name(const char **name, uint64_t f)
{
	*name = "of_library";
	return f >= 0x9000 ? 0 : 400;
}

void *wg_real_symbol(const char *symbol)
{
	static const struct { const char *name; void *f; } all[] = {
		{ "cuCtxGetCurrent", (void *)fake_current },
		{ "cuCtxGetDevice", (void *)fake_device },
		{ "cuCtxGetId", (void *)fake_id },
		{ "cuStreamIsCapturing", (void *)fake_capturing },
		{ "cuStreamGetFlags", (void *)fake_flags },
		{ "cuStreamGetCtx", (void *)fake_stream_ctx },
		{ "cuStreamWriteValue32_v2", (void *)fake_write },
		{ "cuThreadExchangeStreamCaptureMode", (void *)fake_mode },
		{ "cuMemHostRegister_v2", (void *)fake_register },
		{ "cuMemHostGetDevicePointer_v2", (void *)fake_pointer },
		{ "cuFuncGetName", (void *)fake_name },
		{ "cuKernelGetName", (void *)fake_kernel_name },
	};

	for (size_t k = 0; k < sizeof(all) / sizeof(*all); k++)
		if (!strcmp(all[k].name, symbol))
			return all[k].f;
	return NULL;
}

/* The GPU runs up to n more operations of a stream (of ours and of the program). */
static void run_gpu(uint64_t handle, unsigned int n)
{
	struct fake_stream *f;

	pthread_mutex_lock(&gpu);
	f = fake(handle);
	for (; n && f->ran < f->n; n--) {
		struct op *op = &f->ops[f->ran++];

		if (op->write)
			__atomic_store_n((uint32_t *)(uintptr_t)op->address, op->value,
					 __ATOMIC_RELEASE);
		__atomic_store_n(&op->done, true, __ATOMIC_RELEASE);
	}
	pthread_mutex_unlock(&gpu);
}

static struct wg_streamref ref(uint64_t handle) { return (struct wg_streamref){ handle, false, 0 }; }

static struct op *put(uint64_t handle)
{
	struct fake_stream *f;
	struct op *op;

	pthread_mutex_lock(&gpu);
	f = fake(handle);
	if (f->n == MAX_OPS)
		abort();
	op = &f->ops[f->n++];
	pthread_mutex_unlock(&gpu);
	return op;
}

/* What a wrapper does around a launch, which takes about as long as a real one. */
#define LAUNCH_TAKES 3000
static uint64_t launch(uint64_t handle, uint64_t kernel)
{
	struct op *op;
	uint64_t seq;

	struct wg_streamref s = ref(handle);
	uint64_t known;

	s.at = wg_ticks();
	known = wg_stream_before_kernel(s, kernel);
	op = put(handle);
	atomic_fetch_add(&clock_now, LAUNCH_TAKES);
	seq = wg_stream_give_kernel(s, kernel, known);
	__atomic_store_n(&op->seq, seq, __ATOMIC_RELEASE);
	return seq;
}

static uint64_t done(uint64_t handle)
{
	uint32_t i = wg_stream_index(ref(handle));

	assert_int_not_equal(i, UINT32_MAX);
	return wg_stream_done(i);
}

static struct wgrec_stream *entry(uint64_t handle)
{
	return &streams[wg_stream_index(ref(handle))];
}

static int setup(void **state)
{
	(void)state;
	wg_streams_fork_child(); /* forgets everything */
	for (unsigned int k = 0; k < nfakes; k++)
		free(fakes[k].ops);
	nfakes = 0;
	memset(fakes, 0, sizeof(fakes));
	memset(&header, 0, sizeof(header));
	memset(streams, 0, sizeof(streams));
	memset(events, 0, sizeof(events));
	memset(registered, 0, sizeof(registered));
	stream_capacity = 64;
	ring_capacity = 64;
	page_capacity = 3;
	if (!items) {
		items = calloc(64 * WGREC_STREAM_ITEMS, sizeof(*items));
		positions = aligned_alloc(4096, 64 * 4096);
	}
	memset(items, 0, 64ul * WGREC_STREAM_ITEMS * sizeof(*items));
	memset(positions, 0, 64 * 4096);
	register_refuse = 0;
	during_write = NULL;
	write_takes = 900; /* with the stamps around it less than REST allows for */
	wg_destroy_patience = 100000000000;
	context_id[1] = 11;
	extra_id = 0;
	last_note[0] = 0;
	current = 1;
	wg_streams_functions_gone();
	wg_rec = &header;
	assert_int_equal(wg_streams_start(), 0);
	return 0;
}

/* ---- tests ---------------------------------------------------------------------------------- */

/* What the writes of a while may cost: a 500th of it (and what was given away). */
#define REST 500000

/* The free writes of the first launches; what follows is the law for a program that has run for a while. */
static void no_gifts(void)
{
	for (int k = 0; k < 300; k++) {
		launch(999, 0x1000);
		run_gpu(999, 100);
	}
	atomic_fetch_add(&clock_now, 100 * REST); /* and nothing is owed */
}

static void position_says_what_is_done(void **state)
{
	unsigned int before;

	(void)state;
	wg_stream_created(100, 1);
	for (int k = 0; k < 100; k++)
		assert_int_equal(launch(100, 0x1000), k + 1);
	assert_true(header.flags & WGREC_F_POSITIONS);
	assert_int_equal(done(100), 0);
	/* The program's first launches are exact, each of them. */
	for (int k = 1; k <= 100; k++) {
		run_gpu(100, 2);
		assert_int_equal(done(100), k);
	}
	assert_int_equal(fake(100)->writes, 100);
	/* Covered already: no further write. */
	before = fake(100)->writes;
	wg_stream_mark(ref(100));
	wg_stream_mark_all();
	assert_int_equal(fake(100)->writes, before);
}

/* The GPU keeps up, the host launches without a pause: its time is what a write costs. */
static void launch_bound_loops_pay_a_fixed_part(void **state)
{
	uint64_t began, most = 0, since;
	unsigned int before;

	(void)state;
	no_gifts();
	launch(100, 0x1000);
	run_gpu(100, 100);
	before = fake(100)->writes;
	began = atomic_load(&clock_now);
	for (int k = 0; k < 10000; k++) {
		launch(100, 0x1000);
		run_gpu(100, 100);
		since = entry(100)->enqueued - entry(100)->marked;
		if (since > most)
			most = since;
	}
	/* At most 0.2 % (and one), and readers need not look at more than these candidates. */
	assert_true(fake(100)->writes - before <= (atomic_load(&clock_now) - began) / REST + 1);
	assert_true(most <= REST / LAUNCH_TAKES + 1);
	assert_true(fake(100)->writes - before >= 10000 * LAUNCH_TAKES / REST - 1);
	/* A wait that begins now covers the rest. */
	launch(100, 0x1000);
	launch(100, 0x1000);
	wg_stream_await(ref(100));
	assert_int_equal(entry(100)->marked, entry(100)->enqueued);
}

/* A thread with many streams pays once, not once for each. */
static void many_streams_of_one_thread_cost_no_more(void **state)
{
	uint64_t began, before;

	(void)state;
	no_gifts();
	for (uint64_t s = 100; s < 132; s++)
		launch(s, 0x1000);
	atomic_fetch_add(&clock_now, 100 * REST);
	before = atomic_load(&all_writes);
	began = atomic_load(&clock_now);
	for (int k = 0; k < 20000; k++) {
		launch(100 + (uint64_t)k % 32, 0x1000);
		run_gpu(100 + (uint64_t)k % 32, 100);
	}
	assert_true(atomic_load(&all_writes) - before <= (atomic_load(&clock_now) - began) / REST + 6);
	/* None of them starves. */
	for (uint64_t s = 100; s < 132; s++)
		assert_true(entry(s)->marked > 1);
}

/* The GPU is behind: its own time counts, and the host waits anyway. */
static void work_on_the_gpu_is_cut_into_equal_times(void **state)
{
	static const struct { uint64_t takes; unsigned int most, least; } kernels[] = {
		{ 1000000, 8, 1 }, { 50000, 12, 5 }, { 10000, 56, 25 }, { 4000, 170, 60 },
	};

	(void)state;
	no_gifts();
	for (size_t n = 0; n < sizeof(kernels) / sizeof(*kernels); n++) {
		uint64_t s = 100 + n, ran, most = 0, since;
		unsigned int before;

		launch(s, 0x1000);
		run_gpu(s, 100);
		for (int k = 0; k < 20; k++) /* so far ahead is the host */
			launch(s, 0x1000);
		before = 0;
		for (int k = 0; k < 2000; k++) {
			if (k == 1000) /* by then it has seen how long a kernel takes */
				before = fake(s)->writes, most = 0;
			launch(s, 0x1000);
			atomic_fetch_add(&clock_now, kernels[n].takes - LAUNCH_TAKES);
			/* One kernel, and the writes around it. */
			for (ran = 0; ran == 0 && fake(s)->ran < fake(s)->n;) {
				ran = fake(s)->ops[fake(s)->ran].seq;
				run_gpu(s, 1);
			}
			since = entry(s)->enqueued - entry(s)->marked;
			if (since > most)
				most = since;
		}
		assert_true(most <= kernels[n].most);
		assert_true(fake(s)->writes - before <= 1000 / kernels[n].least + 1);
	}
}

/* Where a write is dear (a virtual GPU), there are fewer of them. */
static void dear_writes_are_rarer(void **state)
{
	uint64_t began, before;

	(void)state;
	write_takes = 30000;
	no_gifts();
	before = atomic_load(&all_writes);
	began = atomic_load(&clock_now);
	for (int k = 0; k < 100000; k++) {
		launch(100, 0x1000);
		run_gpu(100, 100);
		fake(100)->n = fake(100)->ran = 0;
	}
	assert_true((atomic_load(&all_writes) - before) * write_takes <=
		    (atomic_load(&clock_now) - began) / 300);
	assert_true(atomic_load(&all_writes) - before >= 10);
}

/* Synchronisations in quick succession: no write for most, and none is taken for done before it is. */
static void short_synchronisations_pay_a_fixed_part(void **state)
{
	uint64_t began, writes = 0;
	struct wg_before b;

	(void)state;
	no_gifts();
	began = atomic_load(&clock_now);
	for (int k = 0; k < 4000; k++) {
		uint64_t seq = 0, at = atomic_load(&all_writes);

		for (int n = 0; n < 5; n++)
			seq = launch(100, 0x1000);
		b = wg_stream_await(ref(100));
		assert_true(entry(100)->marked >= seq || entry(100)->awaited == seq);
		writes += atomic_load(&all_writes) - at;
		assert_true(done(100) < seq);
		run_gpu(100, 100);
		wg_stream_proven(b);
		assert_int_equal(done(100), seq);
		fake(100)->n = fake(100)->ran = 0;
	}
	assert_true(writes * write_takes <= (atomic_load(&clock_now) - began) / 130 + 110 * write_takes);
}

/* A wait for another stream that is not through: what stands before it is covered first. */
static void waits_between_streams_are_bracketed(void **state)
{
	uint64_t seq;

	(void)state;
	no_gifts();
	wg_event_created(7000, false);
	launch(200, 0x1000);
	wg_event_recorded(7000, ref(200)); /* not run: the wait will hold */
	for (int k = 0; k < 5; k++)
		launch(100, 0x1000);
	seq = launch(100, 0x1000);
	wg_stream_before_wait(ref(100), 7000);
	assert_int_equal(entry(100)->marked, seq);
	wg_stream_wait_event(ref(100), 7000);
	/* One that is through is no wait; nor is one for oneself. */
	wg_stream_mark(ref(200));
	run_gpu(200, 100);
	launch(100, 0x1000);
	launch(100, 0x1000);
	seq = entry(100)->marked;
	wg_stream_before_wait(ref(100), 7000);
	wg_stream_before_wait(ref(100), 7777);
	assert_int_equal(entry(100)->marked, seq);
}

static void stuck_kernel_is_exactly_at_the_head(void **state)
{
	const struct wgrec_item *it;
	uint64_t seq;

	(void)state;
	for (int k = 0; k < 21; k++)
		launch(100, 0x1000);
	seq = launch(100, 0x2000); /* a function never launched before: hangs */
	for (int k = 0; k < 50; k++)
		launch(100, 0x1000);
	/* The GPU runs everything before it. */
	while (!fake(100)->ops[fake(100)->ran].seq || fake(100)->ops[fake(100)->ran].seq < seq)
		run_gpu(100, 1);
	assert_int_equal(done(100), seq - 1);
	it = &items[entry(100)->items_first + seq % WGREC_STREAM_ITEMS];
	assert_int_equal(it->seq, seq);
	assert_true(it->flags & WGREC_ITEMF_MARKED);
	assert_string_equal(strings + it->name, "kernel_2000");
	assert_int_equal(it->op, WGREC_OP_KERNEL);
	assert_int_equal(it->object, 0x2000);
}

static void synchronisation_with_one_open_item_needs_no_write(void **state)
{
	unsigned int before;

	(void)state;
	no_gifts();
	launch(100, 0x1000);
	run_gpu(100, 100);
	before = fake(100)->writes;
	for (int k = 0; k < 50; k++) {
		uint64_t seq = launch(100, 0x1000);

		struct wg_before b = wg_stream_await(ref(100));

		assert_int_equal(entry(100)->awaited, seq);
		atomic_fetch_sub(&clock_now, LAUNCH_TAKES); /* no slow launchers */
		run_gpu(100, 100);
		wg_stream_proven(b);
		assert_int_equal(done(100), seq);
	}
	assert_int_equal(fake(100)->writes, before);
	/* With two it does. */
	launch(100, 0x1000);
	launch(100, 0x1000);
	wg_stream_await(ref(100));
	assert_int_equal(fake(100)->writes, before + 1);
	assert_int_equal(entry(100)->marked, 53);
}

static void polls_write_now_and_then(void **state)
{
	unsigned int before;

	(void)state;
	no_gifts();
	wg_event_created(7000, false);
	launch(100, 0x1000);
	run_gpu(100, 100);
	before = fake(100)->writes;
	launch(100, 0x1000);
	wg_event_recorded(7000, ref(100));
	for (int k = 0; k < 1000; k++) {
		wg_event_poll(wg_event_before(7000), wg_ticks());
		wg_stream_poll(wg_stream_before(ref(100)), wg_ticks());
	}
	assert_int_equal(fake(100)->writes, before);
	atomic_fetch_add(&clock_now, 200000); /* it goes on polling */
	wg_event_poll(wg_event_before(7000), wg_ticks());
	assert_int_equal(fake(100)->writes, before + 1);
	assert_int_equal(entry(100)->marked, 3);
	for (int k = 0; k < 1000; k++)
		wg_event_poll(wg_event_before(7000), wg_ticks());
	assert_int_equal(fake(100)->writes, before + 1);
}

static void slow_launchers_are_exact(void **state)
{
	(void)state;
	no_gifts();
	for (int k = 0; k < 40; k++) {
		launch(100, 0x1000);
		atomic_fetch_add(&clock_now, REST);
		run_gpu(100, 1000000);
		assert_int_equal(done(100), k + 1);
	}
}

/* Its queue holds about a thousand things: writes must not be what fills it. */
static void a_stream_far_behind_gets_fewer(void **state)
{
	(void)state;
	for (int k = 0; k < 1000; k++)
		launch(100, 0x1000);
	assert_true(fake(100)->writes <= 128 + 2 + 1000 / 64);
	no_gifts();
	for (int k = 0; k < 1000; k++)
		launch(200, 0x1000);
	assert_true(fake(200)->writes <= 16 + 1000 / 64);
	for (uint32_t k = 0; k < 1000; k++) /* nor may a reader lose sight */
		assert_int_equal(items[entry(200)->items_first + k % WGREC_STREAM_ITEMS + 1].seq, k + 1);
}

/* A write costs as much as eight event records, and these cannot hang. */
static void a_burst_of_cheap_items_gets_few(void **state)
{
	unsigned int before;
	uint64_t began;

	(void)state;
	no_gifts();
	wg_event_created(7000, false);
	launch(100, 0x1000);
	run_gpu(100, 100);
	before = fake(100)->writes;
	began = atomic_load(&clock_now);
	for (int k = 0; k < 10000; k++) {
		atomic_fetch_add(&clock_now, 100);
		wg_event_recorded(7000, ref(100));
		put(100);
		run_gpu(100, 100);
	}
	assert_true(fake(100)->writes - before <= (atomic_load(&clock_now) - began) / REST + 1);
	/* Nothing stays uncovered for it: a wait marks. */
	wg_event_await(7000);
	assert_int_equal(entry(100)->marked, 10001);
}

static void refused_writes_stop_and_say_so(void **state)
{
	(void)state;
	launch(100, 0x1000);
	run_gpu(100, 1000000);
	fake(100)->refuse = 700; /* the context is broken */
	for (int k = 0; k < 100; k++)
		launch(100, 0x1000);
	assert_int_equal(done(100), 1);
	assert_int_equal(entry(100)->marks_lost, 1);
	assert_string_equal(last_note, "a position write failed: no more on that stream");
	fake(100)->refuse = 0;
	for (int k = 0; k < 100; k++)
		launch(100, 0x1000);
	assert_int_equal(entry(100)->marks_lost, 1);
	/* Other streams go on. */
	launch(200, 0x1000);
	run_gpu(200, 1000000);
	assert_int_equal(done(200), 1);
}

static void no_support_is_no_position(void **state)
{
	(void)state;
	launch(100, 0x1000);
	assert_int_not_equal(entry(100)->position, UINT32_MAX);
	wg_streams_fork_child();
	memset(streams, 0, sizeof(streams));
	memset(&header, 0, sizeof(header));
	memset(registered, 0, sizeof(registered));
	register_refuse = 801;
	wg_streams_start();
	launch(300, 0x1000);
	assert_int_equal(entry(300)->position, UINT32_MAX);
	assert_int_equal(header.flags & WGREC_F_POSITIONS, 0);
	run_gpu(300, 100000);
	assert_int_equal(done(300), 0);
	wg_stream_synced(ref(300), wg_stream_seq(ref(300)));
	assert_int_equal(done(300), 1);
}

static void context_current_before_it_lives(void **state)
{
	(void)state;
	current = 2; /* as cudart does it with a primary context */
	register_refuse = 709;
	wg_streams_context_ready();
	wg_streams_context_ready();
	register_refuse = 0;
	launch(200, 0x1000); /* no other call in between */
	run_gpu(200, 100);
	assert_int_equal(done(200), 1);
	assert_int_equal(entry(200)->marks_lost, 0);
	assert_string_equal(last_note, "");
	/* First seen at work (a copy): not pinned then, but when it is known to be idle. */
	current = 3;
	register_refuse = 709;
	wg_streams_context_ready();
	register_refuse = 0;
	put(300);
	wg_stream_give(ref(300), WGREC_OP_COPY, 0, 0, 0);
	launch(300, 0x1000);
	assert_int_equal(registered[2], 0);
	wg_stream_synced(ref(300), wg_stream_seq(ref(300)));
	assert_int_equal(registered[2], 3);
	launch(300, 0x7000);
	run_gpu(300, 100);
	assert_int_equal(done(300), 3);
	assert_int_not_equal(entry(300)->position, UINT32_MAX);
}

static void capture_is_left_alone(void **state)
{
	uint64_t before;

	(void)state;
	for (int k = 0; k < 5; k++)
		launch(100, 0x1000);
	before = wg_stream_seq(ref(100));
	fake(100)->capturing = 1;
	wg_stream_capture(ref(100), true);
	assert_int_equal(entry(100)->capturing, 1);
	for (int k = 0; k < 50; k++)
		assert_int_equal(launch(100, 0x1000 + (uint64_t)k), 0);
	wg_stream_mark(ref(100));
	wg_stream_mark_all();
	assert_int_equal(wg_stream_seq(ref(100)), before);
	/* An event recorded meanwhile holds nobody up outside. */
	wg_event_created(7000, false);
	wg_event_recorded(7000, ref(100));
	launch(200, 0x1000); /* another stream goes on */
	wg_stream_wait_event(ref(200), 7000);
	assert_int_equal(items[entry(200)->items_first + 2].op, WGREC_OP_WAIT_EVENT);
	assert_int_equal(items[entry(200)->items_first + 2].other, UINT32_MAX);
	fake(100)->capturing = 0;
	wg_stream_capture(ref(100), false);
	assert_int_equal(entry(100)->capturing, 0);
	assert_int_equal(launch(100, 0x1000), before + 1);
	/* The legacy stream while a blocking one captures: the driver refuses to answer. */
	fake(0)->capturing = -906;
	wg_stream_capture(ref(100), true);
	assert_int_not_equal(launch(0, 0x1000), 0);
	wg_stream_mark(ref(0));
	assert_int_equal(fake(0)->writes, 0);
	assert_true(entry(0)->marks_lost > 0);
}

static void capture_unseen_by_us(void **state)
{
	(void)state;
	launch(100, 0x1000);
	fake(100)->capturing = 1; /* begun by a call that was not seen: fake_write() would fail */
	for (int k = 0; k < 50; k++)
		launch(100, 0x1000);
	assert_true(entry(100)->marks_lost > 0);
}

static void legacy_ordering_is_not_added_to(void **state)
{
	unsigned int legacy, blocking;

	(void)state;
	no_gifts();
	wg_stream_created(100, 0); /* blocking */
	wg_stream_created(200, 1); /* non-blocking */
	/* Alone, the legacy stream is written to. */
	launch(0, 0x1000);
	assert_true(fake(0)->writes > 0);
	/* A blocking stream was given work in between: a write to the legacy one would wait for it. */
	launch(0, 0x1000);
	launch(100, 0x3000);
	legacy = fake(0)->writes;
	wg_stream_mark(ref(0));
	wg_stream_mark_all();
	assert_int_equal(fake(0)->writes, legacy);
	/* Non-blocking streams do not matter. */
	launch(0, 0x1000);
	launch(200, 0x3000);
	wg_stream_mark(ref(0));
	assert_true(fake(0)->writes > legacy);
	/* The other way round: the legacy stream came after the blocking one. */
	launch(100, 0x3000);
	launch(0, 0x1000);
	blocking = fake(100)->writes;
	wg_stream_mark(ref(100));
	assert_int_equal(fake(100)->writes, blocking);
	/* Until the legacy stream is through: then there is nothing to wait for. */
	wg_stream_synced(ref(0), wg_stream_seq(ref(0)));
	wg_stream_mark(ref(100));
	assert_int_equal(fake(100)->writes, blocking + 1);
}

static void device_sync_proves_only_what_was_before(void **state)
{
	uint64_t begun, other;

	(void)state;
	for (int k = 0; k < 10; k++)
		launch(100, 0x1000);
	begun = wg_device_sync_begins(0);
	for (int k = 0; k < 3; k++)
		launch(100, 0x1000); /* by another thread, while this one synchronises */
	other = wg_device_sync_begins(0); /* and another one synchronises, too */
	wg_device_synced(begun, 0);
	assert_int_equal(entry(100)->proven, 10);
	launch(100, 0x1000);
	wg_device_synced(other, 0);
	assert_int_equal(entry(100)->proven, 13);
	/* One that failed proves nothing, another context's neither. */
	wg_device_synced(wg_device_sync_begins(0), 700);
	assert_int_equal(entry(100)->proven, 13);
	current = 2;
	wg_device_synced(wg_device_sync_begins(0), 0);
	assert_int_equal(entry(100)->proven, 13);
	wg_device_synced(wg_device_sync_begins(1), 0); /* named */
	current = 1;
	assert_int_equal(entry(100)->proven, 14);
	/* A launch that began before the synchronisation and came through after its beginning. */
	struct wg_streamref s = { 100, false, wg_ticks() };
	begun = wg_device_sync_begins(0);
	wg_stream_give(s, WGREC_OP_KERNEL, 1, 0, 0);
	wg_device_synced(begun, 0);
	assert_int_equal(entry(100)->proven, 14);
	/* Threads that never return from it: the others prove no more, and do no harm. */
	for (int k = 0; k < 40; k++)
		begun = wg_device_sync_begins(0);
	assert_int_equal(begun, 0);
	wg_device_synced(begun, 0);
	assert_int_equal(entry(100)->proven, 14);
}

static void event_sync_proves_its_own_record(void **state)
{
	struct wg_before b;

	(void)state;
	wg_event_created(7000, false);
	launch(100, 0x1000);
	wg_event_recorded(7000, ref(100)); /* item 2 */
	launch(100, 0x1000);
	wg_event_proven(wg_event_await(7000));
	assert_int_equal(entry(100)->proven, 2);
	/* Recorded again while somebody waits for the former record: proves nothing new. */
	b = wg_event_before(7000);
	wg_event_recorded(7000, ref(100)); /* item 4 */
	wg_event_proven(b);
	assert_int_equal(entry(100)->proven, 2);
	wg_event_proven(wg_event_before(7000));
	assert_int_equal(entry(100)->proven, 4);
	/* Nor when it was in another stream. */
	wg_event_created(7003, false);
	launch(300, 0x1000);
	wg_event_recorded(7003, ref(300));
	b = wg_event_before(7003);
	wg_event_recorded(7003, ref(100)); /* item 5 */
	wg_event_proven(b);
	assert_int_equal(entry(300)->proven, 0);
	/* Destroyed while somebody waits for it, its address used again. */
	b = wg_event_before(7003);
	wg_event_destroyed(7003);
	wg_event_proven(b);
	wg_event_created(7003, false);
	wg_event_proven(b);
	assert_int_equal(entry(100)->proven, 4);
	/* Never recorded: no wait, no proof; destroyed: forgotten. */
	wg_event_created(7001, false);
	wg_event_proven(wg_event_await(7001));
	wg_stream_wait_event(ref(100), 7001);
	const struct wgrec_item *it = &items[entry(100)->items_first + 6];
	assert_int_equal(it->op, WGREC_OP_WAIT_EVENT);
	assert_int_equal(it->value, 0);
	assert_int_equal(it->other, UINT32_MAX);
	wg_stream_wait_event(ref(200), 7000);
	it = &items[entry(200)->items_first + 1];
	assert_int_equal(it->value, 4);
	assert_int_equal(it->other, wg_stream_index(ref(100)));
	wg_event_destroyed(7000);
	wg_stream_wait_event(ref(200), 7000);
	assert_int_equal(items[entry(200)->items_first + 2].other, UINT32_MAX);
	/* From another process. */
	wg_event_created(7002, true);
	wg_stream_wait_event(ref(200), 7002);
	assert_int_equal(items[entry(200)->items_first + 3].flags & 1, 1);
}

static void *own_default(void *arg)
{
	struct wg_streamref s = { 0, true, 0 };

	current = 1;
	for (int k = 0; k < *(int *)arg; k++)
		wg_stream_give(s, WGREC_OP_KERNEL, 1, 0, 0);
	assert_int_equal(wg_stream_seq(s), *(int *)arg);
	return (void *)(uintptr_t)wg_stream_index(s);
}

static void per_thread_default_streams_are_apart(void **state)
{
	pthread_t a, b;
	void *ia, *ib;
	int na = 5, nb = 9;

	(void)state;
	pthread_create(&a, NULL, own_default, &na);
	pthread_create(&b, NULL, own_default, &nb);
	pthread_join(a, &ia);
	pthread_join(b, &ib);
	assert_ptr_not_equal(ia, ib);
	assert_int_equal(streams[(uintptr_t)ia].handle, 2);
	assert_int_equal(streams[(uintptr_t)ia].enqueued, 5);
	assert_int_equal(streams[(uintptr_t)ib].enqueued, 9);
	assert_int_not_equal(streams[(uintptr_t)ia].owner_tid, streams[(uintptr_t)ib].owner_tid);
	/* Handle 2 and handle 0 of the per-thread flavour are the same stream, 1 is the legacy one. */
	wg_stream_give((struct wg_streamref){ 2, false, 0 }, WGREC_OP_KERNEL, 1, 0, 0);
	wg_stream_give((struct wg_streamref){ 0, true, 0 }, WGREC_OP_KERNEL, 1, 0, 0);
	assert_int_equal(wg_stream_seq((struct wg_streamref){ 2, true, 0 }), 2);
	wg_stream_give((struct wg_streamref){ 1, true, 0 }, WGREC_OP_KERNEL, 1, 0, 0);
	assert_int_equal(wg_stream_seq((struct wg_streamref){ 0, false, 0 }), 1);
}

static void contexts_have_pages_of_their_own(void **state)
{
	(void)state;
	launch(100, 0x1000);
	current = 2;
	wg_streams_context_ready();
	launch(200, 0x1000);
	launch(0, 0x1000);
	current = 1;
	launch(0, 0x1000);
	assert_int_not_equal(entry(100)->position / 1024, entry(200)->position / 1024);
	assert_int_equal(entry(0)->ctx, 1);
	assert_int_equal(registered[0], 1);
	assert_int_equal(registered[1], 2);
	/* A third gets the last page, a fourth none: it is counted without positions. */
	current = 3;
	wg_streams_context_ready();
	launch(300, 0x1000);
	assert_int_equal(entry(300)->position / 1024, 2);
}

static void reset_context_is_told_from_a_released_one(void **state)
{
	uint32_t before;

	(void)state;
	for (int k = 0; k < 3; k++)
		launch(100, 0x1000);
	before = wg_stream_index(ref(100));
	/* One of several references was released: the context lives on, nothing is forgotten. */
	wg_streams_context_gone(0);
	wg_streams_context_ready();
	launch(100, 0x1000);
	assert_int_equal(wg_stream_index(ref(100)), before);
	assert_int_equal(streams[before].enqueued, 4);
	/* Reset: same handle, another context. Its page is gone with it. */
	wg_streams_context_gone(0);
	context_id[1] = 99;
	registered[0] = 0;
	wg_streams_context_ready();
	assert_int_equal(streams[before].valid, 2);
	assert_int_equal(registered[0], 1);
	launch(100, 0x1000);
	assert_int_equal(wg_stream_seq(ref(100)) - entry(100)->first, 1);
	assert_int_equal(entry(100)->valid, 1);
}

static void contexts_that_come_and_go(void **state)
{
	static unsigned long long next = 1000;

	(void)state;
	page_capacity = 64;
	wg_streams_fork_child();
	memset(registered, 0, sizeof(registered));
	wg_streams_start();
	for (uint64_t ctx = 1; ctx < 300; ctx++) {
		current = ctx;
		extra_id = next++;
		wg_streams_context_ready();
		atomic_fetch_add(&clock_now, REST);
		launch(5000 + ctx, 0x1000);
		run_gpu(5000 + ctx, 100);
		assert_int_equal(done(5000 + ctx) - entry(5000 + ctx)->first, 1);
		wg_streams_context_gone((int)ctx - 1); /* destroyed */
		for (unsigned int k = 0; k < 64; k++)
			if (registered[k] == ctx)
				registered[k] = 0;
	}
	/* No driver calls for contexts at each launch because one was destroyed long ago. */
	current = 300;
	atomic_fetch_add(&clock_now, REST);
	launch(9000, 0x1000);
	unsigned int asked = current_asked;
	for (int k = 0; k < 100; k++)
		wg_stream_give(ref(9000), WGREC_OP_KERNEL, 1, 0, 0);
	assert_true(current_asked - asked <= 20);
}

static void entries_are_used_again_only_when_drained(void **state)
{
	(void)state;
	stream_capacity = 4;
	wg_streams_fork_child();
	memset(registered, 0, sizeof(registered));
	wg_streams_start();
	for (uint64_t s = 101; s <= 104; s++) {
		wg_stream_created(s, 1);
		for (int k = 0; k < 10; k++)
			launch(s, 0x1000);
	}
	uint32_t through = wg_stream_index(ref(103));

	wg_stream_destroying(101);
	wg_stream_destroyed(101); /* its work goes on */
	wg_stream_created(105, 1);
	assert_int_equal(wg_stream_index(ref(105)), UINT32_MAX);
	assert_true(header.lost_streams > 0);
	wg_stream_destroying(103);
	run_gpu(103, 1000000);
	wg_stream_destroyed(103);
	wg_stream_created(105, 1);
	assert_int_equal(wg_stream_index(ref(105)), through);
	assert_int_equal(entry(105)->first, 10);
	assert_int_equal(done(105), 10); /* an event recorded on 103 is done */
	launch(105, 0x1000);
	assert_int_equal(done(105), 10);
	run_gpu(105, 1000000);
	assert_int_equal(done(105), 11);
}

static void kernel_names_are_asked_once(void **state)
{
	unsigned int asked;

	(void)state;
	launch(100, 0x1000);
	asked = names_asked;
	for (int k = 0; k < 100; k++)
		launch(100, 0x1000);
	assert_int_equal(names_asked, asked);
	launch(100, 0x9000); /* a CUkernel */
	assert_string_equal(strings + items[entry(100)->items_first + 102].name, "of_library");
	wg_streams_functions_gone();
	launch(100, 0x1000);
	assert_true(names_asked > asked);
}

static void nccl_items_are_told_apart(void **state)
{
	(void)state;
	wg_in_nccl++;
	launch(100, 0x1000);
	wg_in_nccl--;
	launch(100, 0x1000);
	wg_stream_give_collective(wg_stream_index(ref(100)), 0xc0, 7, 3, WGREC_ITEMF_P2P, 0);
	struct wgrec_item *ring = &items[entry(100)->items_first];

	assert_true(ring[1].flags & WGREC_ITEMF_NCCL);
	assert_false(ring[2].flags & WGREC_ITEMF_NCCL);
	assert_int_equal(ring[3].op, WGREC_OP_COLLECTIVE);
	assert_int_equal(ring[3].value, 7);
	assert_int_equal(ring[3].other, 3);
}

static void gaps_are_measured_with_work_pending_only(void **state)
{
	(void)state;
	launch(100, 0x1000);
	run_gpu(100, 100000);
	wg_streams_tick();
	assert_int_equal(entry(100)->seen, 1);
	atomic_fetch_add(&clock_now, 1000000000); /* idle */
	wg_streams_tick();
	launch(100, 0x1000);
	run_gpu(100, 100000);
	wg_streams_tick();
	assert_true(entry(100)->longest_gap < LAUNCH_TAKES + 1000);
	launch(100, 0x1000);
	wg_stream_mark(ref(100));
	atomic_fetch_add(&clock_now, 5000000); /* works that long */
	run_gpu(100, 100000);
	wg_streams_tick();
	assert_true(entry(100)->longest_gap >= 5000000);
}

/* The word has 32 bits, the count 64. */
static void counts_beyond_the_words_width(void **state)
{
	uint32_t i;

	(void)state;
	launch(100, 0x1000);
	run_gpu(100, 100);
	i = wg_stream_index(ref(100));
	/* As if four thousand million items had gone by. */
	streams[i].enqueued = streams[i].marked = streams[i].proven = 0xfffffff8ull;
	atomic_store(&wg_slots[i].claimed, 0xfffffff8ull);
	positions[streams[i].position] = 0xfffffff8u;
	assert_int_equal(done(100), 0xfffffff8ull);
	for (int k = 0; k < 20; k++)
		launch(100, 0x1000);
	wg_stream_mark(ref(100));
	assert_int_equal(done(100), 0xfffffff8ull);
	run_gpu(100, 12);
	assert_true(done(100) > 0xfffffff8ull && done(100) < 0x10000000cull);
	run_gpu(100, 1000);
	assert_int_equal(done(100), 0x10000000cull);
}

/* ---- many threads, one stream, a GPU at its own pace ------------------------------------------- */

#define THREADS 4
#define EACH 3000
static _Atomic int running;

static void *launcher(void *arg)
{
	uint64_t handle = (uint64_t)(uintptr_t)arg;

	current = 1;
	for (int k = 0; k < EACH; k++) {
		launch(handle, 0x1000);
		if (k % 97 == 0)
			wg_stream_mark_all();
	}
	atomic_fetch_sub(&running, 1);
	return NULL;
}

static void never_done_too_early(void **state)
{
	pthread_t t[THREADS];
	unsigned int seed = 7;
	(void)state;
	launch(100, 0x1000);
	atomic_store(&running, THREADS);
	for (int k = 0; k < THREADS; k++)
		pthread_create(&t[k], NULL, launcher, (void *)(uintptr_t)100);
	while (atomic_load(&running)) {
		uint64_t d = done(100), high = 0;
		struct fake_stream *f;

		/* Every operation that has a number up to d must have run. */
		pthread_mutex_lock(&gpu);
		f = fake(100);
		for (unsigned int n = f->n > 3000 ? f->n - 3000 : 0; n < f->n; n++) {
			uint64_t seq = __atomic_load_n(&f->ops[n].seq, __ATOMIC_ACQUIRE);

			if (seq && seq <= d && !f->ops[n].done)
				high = seq;
		}
		pthread_mutex_unlock(&gpu);
		if (high)
			fail_msg("item %llu counts as done (%llu) and has not run",
				 (unsigned long long)high, (unsigned long long)d);
		/* It may step back, over a write that was overtaken, until the newest is written again. */
		run_gpu(100, (unsigned int)rand_r(&seed) % 200);
	}
	for (int k = 0; k < THREADS; k++)
		pthread_join(t[k], NULL);
	wg_stream_mark(ref(100));
	run_gpu(100, 10000000);
	assert_int_equal(done(100), THREADS * EACH + 1);
	assert_int_equal(wg_stream_seq(ref(100)), THREADS * EACH + 1);
}

static void overtake(void)
{
	launch(100, 0x1000);
	wg_stream_mark(ref(100));
}

/* One thread's write is overtaken by another's newer one: the last one issued must be the newest. */
static void an_overtaken_write_is_repeated(void **state)
{
	(void)state;
	no_gifts();
	for (int k = 0; k < 3; k++)
		launch(100, 0x1000);
	during_write = overtake;
	wg_stream_mark(ref(100));
	run_gpu(100, 1000);
	assert_int_equal(wg_stream_seq(ref(100)), 4);
	assert_int_equal(done(100), 4);
}

static _Atomic int in_write, write_over;
static void slowly(void)
{
	atomic_store(&in_write, 1);
	/* Until the destroy has begun, and some more. */
	while (atomic_load(&wg_slots[0].state) != WG_SLOT_DYING)
		sched_yield();
	usleep(100);
	atomic_store(&write_over, 1);
}

static void *marker(void *arg)
{
	(void)arg;
	current = 1;
	wg_stream_mark_all();
	return NULL;
}

static void destruction_and_foreign_writes(void **state)
{
	unsigned int before;
	pthread_t t;

	(void)state;
	wg_event_created(7000, false);
	wg_stream_created(100, 1);
	launch(100, 0x1000);
	launch(100, 0x1000);
	wg_event_recorded(7000, ref(100));
	during_write = slowly;
	pthread_create(&t, NULL, marker, NULL);
	while (!atomic_load(&in_write))
		;
	wg_stream_destroying(100); /* waits for the other thread's write */
	assert_int_equal(atomic_load(&write_over), 1);
	pthread_join(t, NULL);
	/* From now on nothing goes there, not even for an event that was recorded on it. */
	before = fake(100)->writes;
	streams[0].marked = 0;
	wg_event_poll(wg_event_await(7000), wg_ticks());
	wg_stream_mark_index(0);
	wg_stream_mark_all();
	assert_int_equal(fake(100)->writes, before);
}

static void *churner(void *arg)
{
	uint64_t base = (uint64_t)(uintptr_t)arg;

	current = 1;
	for (uint64_t k = 0; k < 400; k++) {
		uint64_t s = base + k % 3;

		wg_stream_created(s, 1);
		wg_stream_give(ref(s), WGREC_OP_KERNEL, 1, 0, 0);
		wg_stream_mark_all(); /* also writes to the other threads' streams */
		wg_stream_destroying(s);
		/* From here on nobody may write to that handle. */
		uint32_t n;
		pthread_mutex_lock(&gpu);
		n = fake(s)->writes;
		pthread_mutex_unlock(&gpu);
		usleep(20);
		pthread_mutex_lock(&gpu);
		if (fake(s)->writes != n)
			abort();
		fake(s)->ran = fake(s)->n = 0;
		pthread_mutex_unlock(&gpu);
		wg_stream_destroyed(s);
	}
	return NULL;
}

static void destroyed_handles_are_left_alone(void **state)
{
	pthread_t t[3];

	(void)state;
	stream_capacity = WG_MAX_STREAMS;
	wg_streams_fork_child();
	memset(registered, 0, sizeof(registered));
	wg_streams_start();
	for (uint64_t k = 0; k < 3; k++)
		pthread_create(&t[k], NULL, churner, (void *)(uintptr_t)(1000 + k * 10));
	for (int k = 0; k < 3; k++)
		pthread_join(t[k], NULL);
}

static void forked_child_forgets(void **state)
{
	(void)state;
	launch(100, 0x1000);
	wg_streams_fork_child();
	wg_rec = NULL;
	assert_int_equal(wg_stream_give(ref(100), WGREC_OP_KERNEL, 1, 0, 0), 0);
	wg_stream_mark_all();
	wg_stream_synced(ref(100), 1);
	wg_device_synced(wg_device_sync_begins(0), 0);
	wg_device_synced(1, 0);
	wg_event_recorded(7000, ref(100));
	wg_stream_wait_event(ref(100), 7000);
	wg_event_destroyed(7000);
	wg_stream_capture(ref(100), true);
	wg_stream_created(100, 0);
	wg_stream_destroying(100);
	wg_stream_destroyed(100);
	wg_streams_context_ready();
	wg_streams_context_gone(0);
	wg_streams_tick();
	wg_rec = &header;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(position_says_what_is_done, setup),
		cmocka_unit_test_setup(launch_bound_loops_pay_a_fixed_part, setup),
		cmocka_unit_test_setup(many_streams_of_one_thread_cost_no_more, setup),
		cmocka_unit_test_setup(work_on_the_gpu_is_cut_into_equal_times, setup),
		cmocka_unit_test_setup(dear_writes_are_rarer, setup),
		cmocka_unit_test_setup(short_synchronisations_pay_a_fixed_part, setup),
		cmocka_unit_test_setup(waits_between_streams_are_bracketed, setup),
		cmocka_unit_test_setup(stuck_kernel_is_exactly_at_the_head, setup),
		cmocka_unit_test_setup(synchronisation_with_one_open_item_needs_no_write, setup),
		cmocka_unit_test_setup(polls_write_now_and_then, setup),
		cmocka_unit_test_setup(slow_launchers_are_exact, setup),
		cmocka_unit_test_setup(a_stream_far_behind_gets_fewer, setup),
		cmocka_unit_test_setup(a_burst_of_cheap_items_gets_few, setup),
		cmocka_unit_test_setup(refused_writes_stop_and_say_so, setup),
		cmocka_unit_test_setup(no_support_is_no_position, setup),
		cmocka_unit_test_setup(context_current_before_it_lives, setup),
		cmocka_unit_test_setup(capture_is_left_alone, setup),
		cmocka_unit_test_setup(capture_unseen_by_us, setup),
		cmocka_unit_test_setup(legacy_ordering_is_not_added_to, setup),
		cmocka_unit_test_setup(device_sync_proves_only_what_was_before, setup),
		cmocka_unit_test_setup(event_sync_proves_its_own_record, setup),
		cmocka_unit_test_setup(per_thread_default_streams_are_apart, setup),
		cmocka_unit_test_setup(contexts_have_pages_of_their_own, setup),
		cmocka_unit_test_setup(reset_context_is_told_from_a_released_one, setup),
		cmocka_unit_test_setup(contexts_that_come_and_go, setup),
		cmocka_unit_test_setup(entries_are_used_again_only_when_drained, setup),
		cmocka_unit_test_setup(kernel_names_are_asked_once, setup),
		cmocka_unit_test_setup(nccl_items_are_told_apart, setup),
		cmocka_unit_test_setup(gaps_are_measured_with_work_pending_only, setup),
		cmocka_unit_test_setup(counts_beyond_the_words_width, setup),
		cmocka_unit_test_setup(never_done_too_early, setup),
		cmocka_unit_test_setup(an_overtaken_write_is_repeated, setup),
		cmocka_unit_test_setup(destruction_and_foreign_writes, setup),
		cmocka_unit_test_setup(destroyed_handles_are_left_alone, setup),
		cmocka_unit_test_setup(forked_child_forgets, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
