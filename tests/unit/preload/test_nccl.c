// SPDX-License-Identifier: Apache-2.0
/*
 * The NCCL side of the recorder over libraries that only remember: what is on record before, during and
 * after each call, that all ranks come to the same ids and numbers, that two libraries stay apart, and
 * that NCCL gets exactly what the program passed.
 */
#include <dlfcn.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "fake_nccl.h"
#include "preload/comms.h"
#include "preload/doors.h"
#include "preload/hooks.h"
#include "preload/inflight.h"
#include "preload/nccl.h"
#include "preload/streams.h"

/* ---- what the neighbours provide -------------------------------------------------- */

#define NCOMMS 32
#define RING (WGREC_COMM_COLLS + WGREC_COMM_P2P)
static struct wgrec_header header;
struct wgrec_header *wg_rec;
static struct wgrec_comm comms[NCOMMS];
static struct wgrec_coll colls[NCOMMS * RING];
static struct wgrec_thread slot;
static uint32_t gate_word;
volatile uint32_t *wg_gate = &gate_word;
bool wg_no_tsc;
uint64_t wg_long_wait = UINT64_MAX;
__thread unsigned int wg_in_nccl;
static char strings[4096];
static uint32_t strings_used = 1;

void *wg_rec_section(enum wgrec_kind kind, uint64_t *capacity)
{
	*capacity = kind == WGREC_COMMS ? NCOMMS : kind == WGREC_COLLS ? NCOMMS * RING : 0;
	return kind == WGREC_COMMS ? (void *)comms : kind == WGREC_COLLS ? (void *)colls : NULL;
}
bool wg_rec_use(enum wgrec_kind kind, uint64_t upto) { (void)kind; (void)upto; return true; }
struct wgrec_thread *wg_rec_thread(void) { return wg_self.slot = &slot; }
int wg_device(void) { return 0; }
uint64_t wg_ticks_to_ns(uint64_t ticks) { return ticks; }
void wg_trace_wait(const struct wg_site *s, uint64_t began, uint64_t ended)
{
	(void)s;
	(void)began;
	(void)ended;
}
void wg_note(const char *text) { (void)text; }
uint64_t wg_ticks(void) { static uint64_t t = 1000; return t++; }
int wg_real_current_device(void) { return 0; }
uint32_t wg_rec_string(const char *s)
{
	uint32_t at = strings_used;

	strcpy(strings + at, s);
	strings_used += (uint32_t)strlen(s) + 1;
	return at;
}

static int device_used;
void wg_mem_device_used(int device) { device_used = device; }
static uint64_t traced;
void wg_trace_collective(const char *id, int rank, uint64_t sequence, uint16_t fn, uint64_t count,
			 int type)
{
	(void)id;
	(void)rank;
	(void)fn;
	(void)count;
	(void)type;
	traced = sequence;
}

static uint64_t given[16], reached[16];
static struct { uint64_t handle, sequence; uint32_t comm; uint16_t flags; } items[16][64];
static int marks, capturing;
uint32_t wg_stream_index(struct wg_streamref s) { return (uint32_t)(s.handle & 15); }
bool wg_stream_captures(uint32_t i) { (void)i; return capturing; }
void wg_stream_mark_index(uint32_t i) { (void)i; marks++; }
uint64_t wg_stream_done(uint32_t i) { return reached[i]; }
uint64_t wg_stream_give_collective(uint32_t i, uint64_t handle, uint64_t sequence, uint32_t comm,
				   uint16_t flags, uint32_t name)
{
	uint64_t seq = ++given[i];

	(void)name;
	items[i][seq % 64].handle = handle;
	items[i][seq % 64].sequence = sequence;
	items[i][seq % 64].comm = comm;
	items[i][seq % 64].flags = flags;
	return seq;
}

/* The recorder's own look-ups, done with dlsym here. */
const void *wg_object_start(const void *inside)
{
	Dl_info info;

	return dladdr(inside, &info) ? info.dli_fbase : NULL;
}
void *wg_object_symbol(const void *inside, const char *symbol)
{
	Dl_info info;
	void *h, *f;

	if (!dladdr(inside, &info))
		return NULL;
	h = dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD);
	if (!h)
		return NULL;
	f = dlsym(h, symbol);
	dlclose(h);
	return f;
}
bool wg_is_ours(const void *p) { return wg_object_start(p) == wg_object_start((void *)wg_is_ours); }
static void *lib[2];
static int elf_bound; /* what the linker's choice leads to */
void *wg_real_export(const char *symbol, const void *caller)
{
	(void)caller;
	return dlsym(lib[elf_bound], symbol);
}

/* ---- the functions under test, as a program has them ---------------------------------- */

struct id { char b[128]; };
#define ARGS_InitRank (void **, int, struct id, int)
int ncclCommInitRank ARGS_InitRank;
int ncclGroupStart(void);
int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *);

static struct fake_nccl *fake[2];
static void *door(int k, const char *name)
{
	void *real = dlsym(lib[k], name);
	void *f = wg_nccl_door(name, real);

	assert_non_null(real);
	assert_ptr_not_equal(f, real);
	return f;
}
#define CALL(k, name, params) ((int (*) params)door(k, name))

static int setup(void **state)
{
	(void)state;
	wg_nccl_fork_child();
	memset(comms, 0, sizeof(comms));
	memset(colls, 0, sizeof(colls));
	memset(&slot, 0, sizeof(slot));
	memset(&wg_self, 0, sizeof(wg_self));
	memset(given, 0, sizeof(given));
	memset(reached, 0, sizeof(reached));
	header.pid = 77;
	wg_rec = &header;
	gate_word = 1;
	elf_bound = marks = capturing = 0;
	for (int k = 0; k < 2; k++)
		memset(fake[k], 0, sizeof(*fake[k]));
	return 0;
}

static void *init(int k, int size, int rank, char seed)
{
	struct id id;
	void *comm = NULL;

	memset(&id, seed, sizeof(id));
	id.b[127] = 1;
	assert_int_equal(CALL(k, "ncclCommInitRank", ARGS_InitRank)(&comm, size, id, rank), 0);
	assert_memory_equal(fake[k]->id, id.b, sizeof(id));
	assert_non_null(comm);
	return comm;
}

static int all_reduce(int k, void *comm, size_t count, uint64_t stream)
{
	return CALL(k, "ncclAllReduce", (const void *, void *, size_t, int, int, void *, void *))(
		NULL, NULL, count, 7, 2, comm, (void *)stream);
}

static struct wgrec_coll *coll(int32_t c, uint64_t n)
{
	return &colls[comms[c].colls_first + n % WGREC_COMM_COLLS];
}

/* ---- tests -------------------------------------------------------------------------------- */

static void see_init(const char *name)
{
	(void)name;
	assert_int_equal(comms[0].valid, 1);
	assert_int_equal(comms[0].state, WGREC_COMM_INIT);
	assert_int_equal(comms[0].handle, 0);
	assert_int_equal(comms[0].rank, 3);
	assert_int_equal(comms[0].size, 8);
	assert_int_equal(strlen(comms[0].id), 32);
	assert_int_equal(slot.depth, 1);
	assert_int_equal(slot.calls[0].fn, WG_FN_ncclCommInitRank);
	assert_int_equal(slot.calls[0].args[0], 0); /* its index */
	assert_int_equal(slot.calls[0].args[1], 8);
	assert_int_equal(slot.calls[0].args[2], 3);
}

static void creation_is_visible_before_it_blocks(void **state)
{
	void *comm;

	(void)state;
	fake[0]->during = see_init;
	comm = init(0, 8, 3, 9);
	assert_int_equal(fake[0]->calls, 1);
	assert_int_equal(comms[0].state, WGREC_COMM_READY);
	assert_int_equal(comms[0].handle, (uint64_t)comm);
	assert_non_null(strstr(strings + comms[0].library, "fake_nccl_a"));
	assert_int_equal(slot.depth, 0);
}

static void failed_creation(void **state)
{
	struct id id = { { 0 } };
	void *comm = NULL;

	(void)state;
	fake[0]->result = 2;
	errno = 42;
	assert_int_equal(CALL(0, "ncclCommInitRank", ARGS_InitRank)(&comm, 2, id, 0), 2);
	assert_int_equal(errno, 42);
	assert_int_equal(comms[0].state, WGREC_COMM_FAILED);
}

static void two_libraries_stay_apart(void **state)
{
	void *a, *b, *f;

	(void)state;
	a = init(0, 2, 0, 1);
	b = init(1, 2, 0, 1);
	assert_int_equal(fake[0]->calls, 1);
	assert_int_equal(fake[1]->calls, 1);
	/* By dlsym: the library that it was looked up in. */
	assert_ptr_not_equal(door(0, "ncclAllReduce"), door(1, "ncclAllReduce"));
	all_reduce(1, b, 5, 0);
	assert_int_equal(fake[1]->count, 5);
	assert_int_equal(fake[0]->count, 0);
	/* By the linker: the communicator's library, whatever the linker chose. */
	elf_bound = 0;
	assert_int_equal(ncclAllReduce(NULL, NULL, 6, 7, 0, b, NULL), 0);
	assert_int_equal(fake[1]->count, 6);
	assert_int_equal(fake[0]->count, 0);
	ncclAllReduce(NULL, NULL, 7, 7, 0, a, NULL);
	assert_int_equal(fake[0]->count, 7);
	/* Same unique id, same id on record: both are ranks of one communicator. */
	assert_string_equal(comms[0].id, comms[1].id);
	assert_string_not_equal(strings + comms[0].library, strings + comms[1].library);
	/* Names that are not ours, and pointers that are. */
	f = dlsym(lib[0], "ncclCommCount");
	assert_ptr_equal(wg_nccl_door("ncclCommCount", f), f);
	f = door(0, "ncclSend");
	assert_ptr_equal(wg_nccl_door("ncclSend", f), f);
	assert_null(wg_nccl_door("ncclSend", NULL));
}

static void a_name_that_no_library_has_is_not_invented(void **state)
{
	(void)state;
	/* RTLD_DEFAULT finds our own export of a function that this NCCL lacks. */
	assert_null(wg_nccl_door("ncclCommGrow", dlsym(RTLD_DEFAULT, "ncclCommGrow")));
	assert_non_null(wg_nccl_door("ncclSend", dlsym(RTLD_DEFAULT, "ncclSend")));
}

static void ids_agree_on_all_ranks(void **state)
{
	void *rank0, *rank1, *child[6];
	int (*split)(void *, int, int, void **, void *);
	int32_t c;

	(void)state;
	rank0 = init(0, 4, 0, 1);
	rank1 = init(0, 4, 1, 1);
	init(0, 4, 0, 2);
	assert_string_equal(comms[0].id, comms[1].id);
	assert_string_not_equal(comms[0].id, comms[2].id);
	split = CALL(0, "ncclCommSplit", (void *, int, int, void **, void *));
	/* Rank 0 is left out of the first split and in colour 1 of the second; rank 1 in both. */
	split(rank0, -1, 0, &child[0], NULL);
	assert_null(child[0]);
	split(rank1, 5, 0, &child[1], NULL);
	split(rank0, 1, 0, &child[2], NULL);
	split(rank1, 1, 0, &child[3], NULL);
	split(rank1, 2, 0, &child[4], NULL);
	c = wg_comm_find((uint64_t)child[2]);
	assert_true(c >= 0);
	assert_string_equal(comms[c].id, comms[wg_comm_find((uint64_t)child[3])].id);
	assert_string_equal(comms[c].parent, comms[0].id);
	assert_string_not_equal(comms[c].id, comms[wg_comm_find((uint64_t)child[1])].id);
	assert_string_not_equal(comms[c].id, comms[wg_comm_find((uint64_t)child[4])].id);
	assert_string_not_equal(comms[c].id, comms[c].parent);
	/* Its rank and size were asked for. */
	assert_int_equal(comms[c].size, 2);
	assert_int_equal(comms[c].rank, 0);
	CALL(0, "ncclCommShrink", (void *, int *, int, void **, void *, int))
	(rank1, NULL, 1, &child[5], NULL, 0);
	assert_int_equal(comms[wg_comm_find((uint64_t)child[5])].size, 3);
}

static uint64_t expect_number;
static void see_collective(const char *name)
{
	struct wgrec_coll *x = coll(0, expect_number);

	(void)name;
	assert_int_equal(comms[0].entered, expect_number + 1);
	assert_int_equal(x->sequence_plus_1, expect_number + 1);
	assert_int_equal(x->fn, WG_FN_ncclAllReduce);
	assert_int_equal(x->count, 4096);
	assert_int_equal(x->type, 7);
	assert_int_equal(x->redop, 2);
	assert_int_equal(x->root, -1);
	assert_int_equal(x->returned, 0);
	assert_int_equal(x->stream_seq, 0);
	assert_int_equal(slot.depth, 1);
	assert_int_equal(slot.calls[0].stream, 5);
	assert_int_equal(wg_in_nccl, 1);
}

static void collectives_have_numbers_before_they_block(void **state)
{
	void *comm = init(0, 2, 0, 1);

	(void)state;
	for (expect_number = 0; expect_number < 300; expect_number++) {
		fake[0]->during = see_collective;
		marks = 0;
		assert_int_equal(all_reduce(0, comm, 4096, 5), 0);
		assert_int_equal(marks, 2); /* before and behind: exact when it hangs */
		assert_int_equal(coll(0, expect_number)->returned, 1);
		assert_int_equal(coll(0, expect_number)->stream_seq, expect_number + 1);
		assert_int_equal(traced, expect_number);
	}
	assert_int_equal(wg_in_nccl, 0);
	assert_int_equal(items[5][300 % 64].sequence, 299);
	assert_int_equal(items[5][300 % 64].handle, (uint64_t)comm);
	/* done follows the stream, also where entries of the ring are gone. */
	reached[5] = 250;
	wg_nccl_tick();
	assert_int_equal(comms[0].done, 250);
	reached[5] = 300;
	wg_nccl_tick();
	assert_int_equal(comms[0].done, 300);
}

static void root_and_failure(void **state)
{
	void *comm = init(0, 2, 0, 1);

	(void)state;
	CALL(0, "ncclReduce", (const void *, void *, size_t, int, int, int, void *, void *))
	(NULL, NULL, 10, 1, 3, 6, comm, (void *)2ul);
	assert_int_equal(coll(0, 0)->root, 6);
	assert_int_equal(coll(0, 0)->redop, 3);
	assert_int_equal(fake[0]->root, 6);
	assert_ptr_equal(fake[0]->stream, (void *)2ul);
	assert_ptr_equal(fake[0]->comm, comm);
	CALL(0, "ncclBroadcast", (const void *, void *, size_t, int, int, void *, void *))
	(NULL, NULL, 11, 2, 4, comm, NULL);
	assert_int_equal(coll(0, 1)->root, 4);
	assert_int_equal(coll(0, 1)->redop, 255);
	fake[0]->result = 4;
	assert_int_equal(all_reduce(0, comm, 4096, 5), 4);
	assert_true(coll(0, 2)->flags & WGREC_COLLF_FAILED);
	assert_int_equal(coll(0, 2)->stream_seq, 0);
	assert_int_equal(given[5], 0);
	reached[2] = reached[0] = 1;
	wg_nccl_tick();
	assert_int_equal(comms[0].done, 3); /* nobody waits for the failed one */
}

static void groups_are_given_at_their_end(void **state)
{
	void *comm = init(0, 4, 1, 1), *other = init(0, 4, 1, 2);
	int (*start)(void) = CALL(0, "ncclGroupStart", (void));
	int (*end)(void) = CALL(0, "ncclGroupEnd", (void));
	int (*send)(const void *, size_t, int, int, void *, void *) =
		CALL(0, "ncclSend", (const void *, size_t, int, int, void *, void *));
	int (*recv)(void *, size_t, int, int, void *, void *) =
		CALL(0, "ncclRecv", (void *, size_t, int, int, void *, void *));

	(void)state;
	start();
	start();
	all_reduce(0, comm, 1, 5);
	all_reduce(0, comm, 2, 5);
	all_reduce(0, other, 3, 6);
	for (int peer = 0; peer < 4; peer++) {
		send(NULL, 10, 7, peer, comm, (void *)5ul);
		recv(NULL, 10, 7, peer, comm, (void *)5ul);
	}
	end();
	assert_int_equal(given[5], 0);
	assert_int_equal(coll(0, 1)->stream_seq, 0);
	assert_int_equal(coll(0, 1)->returned, 1);
	assert_true(coll(0, 1)->flags & WGREC_COLLF_GROUPED);
	end();
	/* Two collectives, and the sends and receives as one. */
	assert_int_equal(given[5], 3);
	assert_int_equal(given[6], 1);
	assert_int_equal(coll(0, 0)->stream_seq, 1);
	assert_int_equal(coll(0, 1)->stream_seq, 2);
	assert_int_equal(coll(1, 0)->stream_seq, 1);
	assert_true(items[5][3].flags & WGREC_ITEMF_P2P);
	assert_int_equal(items[5][3].sequence, 7);
	/* Counted apart: the collectives' numbers are those of a rank without neighbours. */
	assert_int_equal(comms[0].entered, 2);
	assert_int_equal(comms[0].p2p_entered, 8);
	struct wgrec_coll *x = &colls[comms[0].colls_first + WGREC_COMM_COLLS + 6];
	assert_int_equal(x->sequence_plus_1, 7);
	assert_int_equal(x->fn, WG_FN_ncclSend);
	assert_int_equal(x->root, 3);
	assert_int_equal(x->stream_seq, 3);
	reached[5] = 3;
	wg_nccl_tick();
	assert_int_equal(comms[0].done, 2);
	assert_int_equal(comms[0].p2p_done, 8);
	/* A group that fails gave nothing. */
	start();
	all_reduce(0, comm, 1, 5);
	fake[0]->result = 3;
	end();
	assert_int_equal(given[5], 3);
	assert_true(coll(0, 2)->flags & WGREC_COLLF_FAILED);
}

static void creation_in_a_group(void **state)
{
	struct id id = { { 3 } };
	void *out[2] = { NULL, NULL };

	(void)state;
	CALL(0, "ncclGroupStart", (void))();
	for (int k = 0; k < 2; k++)
		CALL(0, "ncclCommInitRank", ARGS_InitRank)(&out[k], 2, id, k);
	assert_null(out[0]);
	assert_int_equal(comms[1].state, WGREC_COMM_INIT);
	CALL(0, "ncclGroupEnd", (void))();
	for (int k = 0; k < 2; k++) {
		assert_int_equal(comms[k].state, WGREC_COMM_READY);
		assert_int_equal(comms[k].handle, (uint64_t)out[k]);
		assert_int_equal(comms[k].rank, k);
	}
}

static void non_blocking(void **state)
{
	struct { size_t size; unsigned int magic, version; int blocking; char rest[40]; } config = {
		sizeof(config), 0xcafebeef, 22809, 0, { 0 } };
	struct id id = { { 4 } };
	void *comm = NULL;
	int error;
	int (*ask)(void *, int *) = CALL(0, "ncclCommGetAsyncError", (void *, int *));

	(void)state;
	fake[0]->result = 7;
	CALL(0, "ncclCommInitRankConfig", (void **, int, struct id, int, void *))
	(&comm, 2, id, 0, &config);
	assert_int_equal(comms[0].state, WGREC_COMM_INIT);
	assert_int_equal(comms[0].blocking, 0);
	assert_int_equal(comms[0].handle, (uint64_t)comm);
	fake[0]->async = 7;
	ask(comm, &error);
	assert_int_equal(comms[0].state, WGREC_COMM_INIT);
	assert_int_equal(comms[0].async_error, 0);
	fake[0]->async = 0;
	ask(comm, &error);
	assert_int_equal(comms[0].state, WGREC_COMM_READY);
	assert_int_equal(all_reduce(0, comm, 1, 5), 7);
	assert_int_equal(given[5], 0);
	assert_int_equal(coll(0, 0)->flags & WGREC_COLLF_FAILED, 0);
	fake[0]->async = 7;
	ask(comm, &error);
	assert_int_equal(given[5], 0);
	fake[0]->async = 0;
	ask(comm, &error);
	assert_int_equal(given[5], 1);
	assert_int_equal(coll(0, 0)->stream_seq, 1);
	fake[0]->async = 6;
	ask(comm, &error);
	assert_int_equal(error, 6);
	assert_int_equal(comms[0].async_error, 6);
}

static void see_destroying(const char *name)
{
	(void)name;
	assert_int_equal(comms[0].state, WGREC_COMM_DESTROYING);
}

static void see_aborting(const char *name)
{
	(void)name;
	assert_int_equal(comms[0].state, WGREC_COMM_ABORTING);
}

static void the_end_of_communicators(void **state)
{
	void *comm = init(0, 2, 0, 1), *again;
	int (*destroy)(void *) = CALL(0, "ncclCommDestroy", (void *));

	(void)state;
	CALL(0, "ncclCommFinalize", (void *))(comm);
	assert_int_equal(comms[0].state, WGREC_COMM_FINALIZING);
	fake[0]->during = see_destroying;
	fake[0]->result = 5;
	assert_int_equal(destroy(comm), 5);
	assert_int_equal(comms[0].state, WGREC_COMM_FINALIZING);
	fake[0]->result = 0;
	destroy(comm);
	assert_int_equal(comms[0].state, WGREC_COMM_DESTROYED);
	assert_int_equal(wg_comm_find((uint64_t)comm), -1);
	fake[0]->during = NULL;
	again = init(0, 2, 0, 2); /* may well get the same address */
	assert_int_equal(wg_comm_find((uint64_t)again), 1);
	setup(NULL);
	comm = init(0, 2, 0, 1);
	fake[0]->during = see_aborting;
	CALL(0, "ncclCommAbort", (void *))(comm);
	assert_int_equal(comms[0].state, WGREC_COMM_DESTROYED);
}

static void the_table_is_used_again(void **state)
{
	int (*destroy)(void *) = CALL(0, "ncclCommDestroy", (void *));
	void *comm = NULL, *kept;

	(void)state;
	kept = init(0, 2, 0, 99);
	for (int k = 0; k < 3 * NCOMMS; k++) {
		comm = init(0, 2, 0, (char)k);
		all_reduce(0, comm, 1, 5);
		assert_int_equal(comms[wg_comm_find((uint64_t)comm)].entered, 1);
		destroy(comm);
	}
	assert_int_equal(wg_comm_find((uint64_t)kept), 0);
	assert_int_equal(header.lost_comms, 0);
	for (int k = 0; k < NCOMMS; k++)
		comm = init(0, 2, 0, (char)k);
	assert_true(header.lost_comms > 0);
	assert_int_equal(all_reduce(0, comm, 1, 5), 0); /* unrecorded, and works */
}

static void unseen_creation(void **state)
{
	struct fake_comm other = { 5, 16, 3 };

	(void)state;
	assert_int_equal(all_reduce(0, &other, 1, 5), 0);
	assert_int_equal(comms[0].handle, (uint64_t)&other);
	assert_string_equal(comms[0].id, "");
	assert_int_equal(comms[0].rank, 5);
	assert_int_equal(comms[0].size, 16);
	assert_int_equal(comms[0].device, 3);
	assert_int_equal(device_used, 3);
}

static void captured_ones_run_nothing(void **state)
{
	void *comm = init(0, 2, 0, 1);

	(void)state;
	capturing = 1;
	all_reduce(0, comm, 1, 5);
	assert_int_equal(given[5], 0);
	assert_true(coll(0, 0)->flags & WGREC_COLLF_CAPTURED);
	wg_nccl_tick();
	assert_int_equal(comms[0].done, 1);
	capturing = 0;
	all_reduce(0, comm, 1, 5);
	assert_int_equal(coll(0, 1)->stream_seq, 1);
}

static void call_back(const char *name)
{
	if (!strcmp(name, "AllReduce"))
		assert_int_equal(ncclGroupStart(), 0); /* NCCL calling its own, exported function */
}

static void calls_of_nccl_itself_are_not_the_programs(void **state)
{
	void *comm = init(0, 2, 0, 1);

	(void)state;
	fake[0]->during = call_back;
	all_reduce(0, comm, 1, 5);
	fake[0]->during = NULL;
	assert_int_equal(given[5], 1); /* had it been counted as a group, nothing were given */
	all_reduce(0, comm, 1, 5);
	assert_int_equal(given[5], 2);
}

static void init_all(void **state)
{
	void *out[3] = { NULL };
	int devices[3] = { 2, 0, 1 };
	char first[40];

	(void)state;
	assert_int_equal(CALL(0, "ncclCommInitAll", (void **, int, const int *))(out, 3, devices), 0);
	for (int k = 0; k < 3; k++) {
		assert_int_equal(comms[k].rank, k);
		assert_int_equal(comms[k].size, 3);
		assert_int_equal(comms[k].device, devices[k]);
		assert_int_equal(comms[k].handle, (uint64_t)out[k]);
		assert_string_equal(comms[k].id, comms[0].id);
	}
	memcpy(first, comms[0].id, sizeof(first));
	CALL(0, "ncclCommInitAll", (void **, int, const int *))(out, 2, NULL);
	assert_string_not_equal(comms[3].id, first);
}

static void come_up(const char *name)
{
	if (strcmp(name, "CommInitRank"))
		return;
	assert_int_equal(comms[0].valid, 0);
	gate_word = 1; /* NCCL has called cuInit */
	wg_rec = &header;
	wg_nccl_cuda_up();
	assert_int_equal(comms[0].valid, 1);
	assert_int_equal(comms[0].state, WGREC_COMM_INIT);
}

static void creation_is_the_first_use_of_cuda(void **state)
{
	void *comm;

	(void)state;
	gate_word = 0;
	wg_rec = NULL;
	fake[0]->during = come_up;
	comm = init(0, 2, 1, 1);
	assert_int_equal(comms[0].state, WGREC_COMM_READY);
	assert_int_equal(comms[0].handle, (uint64_t)comm);
	assert_int_equal(comms[1].valid, 0);
}

static void nothing_is_recorded_while_off(void **state)
{
	void *comm;

	(void)state;
	gate_word = 0;
	wg_rec = NULL;
	comm = init(0, 2, 1, 1);
	assert_int_equal(all_reduce(0, comm, 9, 5), 0);
	assert_int_equal(fake[0]->count, 9);
	assert_int_equal(comms[0].valid, 0);
	assert_int_equal(given[5], 0);
}

/*
 * The driver's call inside a runtime call of its kind takes that one's stamp; one that comes later, is of
 * another kind, or stands in no such call has its own. Never the stamp of a call that is over.
 */
static __attribute__((noinline)) void driver_call(uint8_t kind, uint64_t *began, int *depth)
{
	struct wg_frame f;

	wg_enter(&f, 1, WGREC_API_DRIVER, kind, 0, WG_NOSTREAM, 0, 0, 0, 0, 0);
	*began = f.began;
	*depth = (int)slot.depth;
	assert_int_equal(slot.calls[f.index].since, f.began);
	assert_int_equal(f.index + 1, slot.depth);
	wg_leave(&f);
}

static __attribute__((noinline)) uint64_t runtime_call(uint8_t kind, uint8_t inner, uint64_t *first,
						       uint64_t *second)
{
	struct wg_frame f;
	int depth;

	wg_enter(&f, 2, WGREC_API_RUNTIME, kind, 0, WG_NOSTREAM, 0, 0, 0, 0, 0);
	driver_call(inner, first, &depth);
	assert_int_equal(depth, 2);
	driver_call(inner, second, &depth);
	assert_int_equal(slot.depth, 1);
	wg_leave(&f);
	assert_int_equal(slot.depth, 0);
	return f.began;
}

static void one_stamp_for_a_call_at_both_levels(void **state)
{
	uint64_t outer, first, second;
	int depth;

	(void)state;
	/* The thread's very first call has no slot yet: nothing remembered to take. */
	memset(&wg_self, 0, sizeof(wg_self));
	memset(&slot, 0, sizeof(slot));
	outer = runtime_call(WGREC_CALL_OTHER, WGREC_CALL_OTHER, &first, &second);
	assert_true(outer && first >= outer && second > first);
	for (int k = 0; k < 3; k++) {
		outer = runtime_call(WGREC_CALL_LAUNCH, WGREC_CALL_LAUNCH, &first, &second);
		assert_int_equal(first, outer);
		assert_true(second > outer);
		outer = runtime_call(WGREC_CALL_LAUNCH, WGREC_CALL_MODULE, &first, &second);
		assert_true(first > outer && second > first);
		driver_call(WGREC_CALL_LAUNCH, &first, &depth);
		assert_int_equal(depth, 1);
		assert_true(first > second);
	}
	assert_int_equal(slot.calls_done, 10);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(creation_is_visible_before_it_blocks, setup),
		cmocka_unit_test_setup(one_stamp_for_a_call_at_both_levels, setup),
		cmocka_unit_test_setup(failed_creation, setup),
		cmocka_unit_test_setup(two_libraries_stay_apart, setup),
		cmocka_unit_test_setup(a_name_that_no_library_has_is_not_invented, setup),
		cmocka_unit_test_setup(ids_agree_on_all_ranks, setup),
		cmocka_unit_test_setup(collectives_have_numbers_before_they_block, setup),
		cmocka_unit_test_setup(root_and_failure, setup),
		cmocka_unit_test_setup(groups_are_given_at_their_end, setup),
		cmocka_unit_test_setup(creation_in_a_group, setup),
		cmocka_unit_test_setup(non_blocking, setup),
		cmocka_unit_test_setup(the_end_of_communicators, setup),
		cmocka_unit_test_setup(the_table_is_used_again, setup),
		cmocka_unit_test_setup(unseen_creation, setup),
		cmocka_unit_test_setup(captured_ones_run_nothing, setup),
		cmocka_unit_test_setup(calls_of_nccl_itself_are_not_the_programs, setup),
		cmocka_unit_test_setup(init_all, setup),
		cmocka_unit_test_setup(creation_is_the_first_use_of_cuda, setup),
		cmocka_unit_test_setup(nothing_is_recorded_while_off, setup),
	};

	lib[0] = dlopen(FAKE_NCCL_A, RTLD_NOW | RTLD_LOCAL);
	lib[1] = dlopen(FAKE_NCCL_B, RTLD_NOW | RTLD_LOCAL);
	if (!lib[0] || !lib[1]) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	for (int k = 0; k < 2; k++)
		fake[k] = dlsym(lib[k], "fake_nccl_control");
	return cmocka_run_group_tests(tests, NULL, NULL);
}
