/* SPDX-License-Identifier: Apache-2.0 */
/* The reader of recorder files: what it makes of a good one, and that a bad one cannot hurt it. */
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "collect/recorder_priv.h"
#include "collect/sources.h"
#include "rec_builder.h"

static char dir[64], path[128];

static int setup(void **state)
{
	(void)state;
	snprintf(dir, sizeof(dir), "/dev/shm/wgtest-%d", (int)getpid());
	mkdir(dir, 0700);
	snprintf(path, sizeof(path), "%s/1.rec", dir);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	unlink(path);
	rmdir(dir);
	return 0;
}

static uint64_t own_start(void)
{
	uint64_t start = 0;
	char state;

	assert_int_equal(wg_rec_stat((int)getpid(), &state, &start), 0);
	return start;
}

/* The example as a dead process, read back. */
static struct wg_process *read_back(struct wg_facts *f, struct rec *r)
{
	struct wg_process *p = NULL;
	const char *why = NULL;

	assert_int_equal(rec_write(r, path), 0);
	assert_int_equal(wg_rec_add_process(f, path, true, &p, &why), 0);
	return p;
}

static void test_calls(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p;
	struct wg_thread *t;
	struct rec r;

	(void)state;
	rec_example(&r, 4000000, 77);
	p = read_back(f, &r);
	assert_false(p->alive);
	assert_true(p->alive_known);
	assert_string_equal(p->command, "python train.py --made-by-hand");
	assert_int_equal(p->rank, 3);
	assert_string_equal(p->rank_source, "RANK");
	assert_int_equal(p->threads.n, 3);
	assert_int_equal(p->calls, 1000);
	assert_true(p->progress_age_s > 30.9 && p->progress_age_s < 33);
	assert_true(p->longest_sync_s > 1.49 && p->longest_sync_s < 1.51);
	/* Two records, one call with two names. */
	t = wg_find_thread(p, 4000000);
	assert_non_null(t);
	assert_int_equal(t->calls.n, 1);
	assert_string_equal(t->calls.v[0].function, "cudaMalloc");
	assert_string_equal(t->calls.v[0].inner, "cuMemAlloc_v2");
	assert_int_equal(t->calls.v[0].kind, WG_CALL_ALLOC);
	assert_int_equal(t->calls.v[0].device, 0);
	assert_int_equal(t->calls.v[0].ra, 0x401000);
	assert_true(t->calls.v[0].since_s > 11.9 && t->calls.v[0].since_s < 14);
	assert_int_equal(t->calls.v[0].args.n, 4);
	assert_string_equal(t->calls.v[0].args.v[1].text, "1048576");
	t = wg_find_thread(p, 4000001);
	assert_true(t->calls.v[0].has_stream);
	assert_int_equal(t->calls.v[0].stream, 0x5500);
	assert_null(t->calls.v[0].inner);
	t = wg_find_thread(p, 4000002);
	assert_true(t->calls.v[0].event_known);
	assert_true(t->calls.v[0].event_recorded);
	assert_int_equal(t->calls.v[0].event_stream, 0x5600);
	assert_int_equal(t->calls.v[0].event_seq, 5);
	assert_int_equal(t->calls.v[0].event_stream_ix, 1);
	assert_int_equal(p->env.n, 2);
	assert_string_equal(p->env.v[1].value, "0,1");
	assert_int_equal(p->notes.n, 1);
	assert_string_equal(p->notes.v[0], "no position write during graph capture (3 times)");
	rec_free(&r);
	wg_facts_free(f);
}

/* An NCCL call keeps a place of its own above the CUDA call that it makes. */
static void test_nested(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wgrec_thread *e;
	struct wg_process *p;
	struct wg_thread *t;
	struct rec r;
	uint16_t nccl, rt, drv;

	(void)state;
	rec_new(&r, 4000000, 77);
	nccl = rec_fn(&r, "ncclAllReduce", WGREC_API_NCCL, WGREC_CALL_COLLECTIVE, "comm");
	rt = rec_fn(&r, "cudaLaunchKernel", WGREC_API_RUNTIME, WGREC_CALL_LAUNCH, "func");
	drv = rec_fn(&r, "cuLaunchKernel", WGREC_API_DRIVER, WGREC_CALL_LAUNCH, "f,grid");
	e = rec_at(&r, WGREC_THREADS, 0);
	e->tid = 4000000;
	e->depth = 7; /* deeper than is kept */
	e->calls[0] = (struct wgrec_call){ .since = rec_ago(1), .fn = nccl, .device = 1, .nargs = 1,
					   .args = { 0xc0 } };
	e->calls[1] = (struct wgrec_call){ .since = rec_ago(1), .fn = rt, .device = -1 };
	e->calls[2] = (struct wgrec_call){ .since = rec_ago(1), .fn = drv, .device = 1,
					   .flags = WGREC_CALLF_STREAM | WGREC_CALLF_PTSZ };
	e->calls[3] = (struct wgrec_call){ .since = rec_ago(1), .fn = 60000, .device = -1 };
	p = read_back(f, &r);
	t = wg_find_thread(p, 4000000);
	assert_int_equal(t->calls.n, 3);
	assert_string_equal(t->calls.v[0].function, "ncclAllReduce");
	assert_int_equal(t->calls.v[0].object, 0xc0);
	assert_string_equal(t->calls.v[1].function, "cudaLaunchKernel");
	assert_string_equal(t->calls.v[1].inner, "cuLaunchKernel");
	assert_int_equal(t->calls.v[1].device, 1);
	assert_int_equal(t->calls.v[1].stream, 2); /* this thread's own default stream */
	assert_string_equal(t->calls.v[2].function, "(unknown call)");
	rec_free(&r);
	wg_facts_free(f);
}

static void test_streams(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p;
	struct wg_stream *s;
	struct rec r;

	(void)state;
	rec_example(&r, 4000000, 77);
	p = read_back(f, &r);
	assert_int_equal(p->streams.n, 2);
	s = &p->streams.v[0];
	assert_int_equal(s->handle, 0x5500);
	assert_int_equal(s->enqueued, 20);
	assert_int_equal(s->completed, 8);
	assert_true(s->has_position);
	assert_true(s->completed_exact); /* a write stands right behind item 9 */
	assert_false(s->pending_truncated);
	assert_int_equal(s->pending.n, 12);
	assert_int_equal(s->pending.v[0].op, WG_GPU_COLLECTIVE);
	assert_int_equal(s->pending.v[0].coll_seq, 41);
	assert_int_equal(s->pending.v[0].comm, 0);
	assert_int_equal(s->pending.v[1].op, WG_GPU_WAIT_EVENT);
	assert_true(s->pending.v[1].event_recorded);
	assert_int_equal(s->pending.v[1].event_stream, 0x5600);
	assert_int_equal(s->pending.v[1].event_seq, 5);
	assert_int_equal(s->pending.v[1].event_stream_ix, 1);
	assert_int_equal(s->pending.v[2].op, WG_GPU_WAIT_VALUE);
	assert_int_equal(s->pending.v[2].value, 7);
	assert_false(s->pending.v[2].has_current); /* nobody there to read it from */
	assert_string_equal(s->pending.v[3].name, "add_kernel(float*, float*, int)");
	s = &p->streams.v[1];
	assert_int_equal(s->completed, 4);
	assert_false(s->completed_exact); /* 5 and 6 stand before the next write */
	assert_int_equal(s->candidates, 2);
	/* Communicators. */
	assert_int_equal(p->comms.n, 1);
	assert_int_equal(p->comms.v[0].next_sequence, 42);
	assert_int_equal(p->comms.v[0].done, 41);
	assert_string_equal(p->comms.v[0].recent.v[p->comms.v[0].recent.n - 1].op, "AllReduce");
	assert_int_equal(p->comms.v[0].recent.v[p->comms.v[0].recent.n - 1].state, WG_COLL_RUNNING);
	assert_string_equal(p->comms.v[0].recent.v[0].type, "f32");
	assert_string_equal(p->comms.v[0].recent.v[0].redop, "sum");
	assert_int_equal(p->comms.v[0].recent.v[0].state, WG_COLL_DONE);
	assert_int_equal(p->peers.n, 7); /* not itself */
	assert_string_equal(p->peers.v[0].host, "elsewhere");
	assert_false(p->peers.v[0].alive_known); /* another machine */
	rec_free(&r);
	wg_facts_free(f);
}

/* The word is 32 bits of a count that grows beyond. */
static void test_wrap(void **state)
{
	static const struct { uint64_t given, marked; uint32_t word; uint64_t completed; } cases[] = {
		{ 0x100000010ull, 0x10000000full, 0xfffffff0u, 0xfffffff0ull }, /* before the wrap */
		{ 0x100000010ull, 0x10000000full, 0x00000005u, 0x100000005ull }, /* after it */
		{ 0x100000010ull, 0x10000000full, 0x0000000fu, 0x10000000full }, /* all marked */
		{ 0x100000010ull, 0x100000008ull, 0x00000010u, 0x100000010ull }, /* ahead of `marked` */
		{ 100, 96, 0, 0 },		/* nothing written yet */
		{ 100, 0, 77, 0 },		/* never marked: the word means nothing */
		{ 100, 96, 0x80000000u, 0 },	/* nonsense */
		{ 100, 96, 200, 0 },		/* more than was ever given: nonsense */
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct wg_facts *f = wg_facts_new();
		struct wgrec_stream *e;
		struct wg_process *p;
		struct rec r;

		rec_new(&r, 4000000, 77);
		e = rec_stream(&r, 0, 0x5500, 8, cases[i].word, 0);
		e->enqueued = cases[i].given;
		e->marked = cases[i].marked;
		p = read_back(f, &r);
		assert_int_equal(p->streams.n, 1);
		assert_int_equal(p->streams.v[0].completed, cases[i].completed);
		rec_free(&r);
		wg_facts_free(f);
	}
}

static void test_proven_and_truncated(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wgrec_stream *e;
	struct wg_process *p;
	struct rec r;

	(void)state;
	rec_new(&r, 4000000, 77);
	r.h->flags &= ~WGREC_F_POSITIONS;
	e = rec_stream(&r, 0, 0x5500, 3000, 0, 0);
	e->seen = 0;
	e->proven = 1000; /* a synchronisation returned */
	e = rec_stream(&r, 1, 0x5600, 8, 8, 0);
	e->valid = 2; /* destroyed, but nobody saw it finish */
	e->seen = 0;
	e = rec_stream(&r, 2, 0x5700, 8, 8, 0);
	e->valid = 2;
	e->proven = 8; /* destroyed and done: of no interest */
	p = read_back(f, &r);
	assert_int_equal(p->streams.n, 2);
	assert_int_equal(p->streams.v[0].completed, 1000);
	assert_false(p->streams.v[0].has_position);
	assert_true(p->streams.v[0].pending_truncated);
	assert_false(p->streams.v[0].completed_exact);
	assert_int_equal(p->streams.v[0].pending.v[0].seq, 3000 - WGREC_STREAM_ITEMS + 1);
	assert_true(p->streams.v[0].pending.n <= 128);
	assert_int_equal(p->streams.v[1].handle, 0x5600);
	rec_free(&r);
	wg_facts_free(f);
}

/* What one NCCL call gave has a write behind all of it: together it is one thing at the head. */
static void test_nccl_head(void **state)
{
	static const struct { bool inner, marked, exact; } cases[] = {
		{ true, true, true }, { true, false, false }, { false, true, false },
	};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct wg_facts *f = wg_facts_new();
		struct wgrec_stream *e;
		struct wgrec_item *it;
		struct wg_process *p;
		struct rec r;

		rec_new(&r, 4000000, 77);
		e = rec_stream(&r, 0, 0x5500, 6, 3, 0);
		e->marked = 0;
		for (uint64_t q = 4; q <= 5; q++)
			rec_item(&r, e, q)->flags = cases[i].inner ? WGREC_ITEMF_NCCL : 0;
		it = rec_item(&r, e, 6);
		it->op = WGREC_OP_COLLECTIVE;
		it->flags = cases[i].marked ? WGREC_ITEMF_MARKED : 0;
		e->marked = 3;
		p = read_back(f, &r);
		assert_int_equal(p->streams.v[0].completed, 3);
		assert_int_equal(p->streams.v[0].completed_exact, cases[i].exact);
		assert_int_equal(p->streams.v[0].pending.v[0].nccl_inner, cases[i].inner);
		rec_free(&r);
		wg_facts_free(f);
	}
}

/* No write was spent on the only item that a thread waits for; that it waits is the proof. */
static void test_awaited(void **state)
{
	(void)state;
	for (int waits = 0; waits < 2; waits++) {
		struct wg_facts *f = wg_facts_new();
		struct wgrec_stream *e;
		struct wgrec_thread *t;
		struct wg_process *p;
		struct rec r;

		rec_new(&r, 4000000, 77);
		e = rec_stream(&r, 0, 0x5500, 4, 3, 0);
		e->marked = 3;
		e->awaited = 4;
		t = rec_at(&r, WGREC_THREADS, 0);
		t->tid = 4000000;
		t->depth = (uint32_t)waits;
		t->calls[0] = (struct wgrec_call){
			.since = rec_ago(1), .flags = WGREC_CALLF_STREAM, .stream = 0x5500, .device = 0,
			.fn = rec_fn(&r, "cuStreamSynchronize", WGREC_API_DRIVER, WGREC_CALL_SYNC, ""),
		};
		p = read_back(f, &r);
		assert_int_equal(p->streams.v[0].completed_exact, waits);
		rec_free(&r);
		wg_facts_free(f);
	}
}

static void test_failures(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p;
	struct wg_failure *x;
	struct rec r;

	(void)state;
	rec_example(&r, 4000000, 77);
	p = read_back(f, &r);
	assert_int_equal(p->devices.n, 1);
	assert_string_equal(p->devices.v[0].uuid, "GPU-00112233-4455-6677-8899-aabbccddeeff");
	assert_int_equal(p->devices.v[0].free, 1ll << 30);
	assert_int_equal(p->devices.v[0].failures.n, 1);
	x = &p->devices.v[0].failures.v[0];
	assert_int_equal(x->asked, 3 << 20);
	assert_int_equal(x->short_by, 2 << 20);
	assert_string_equal(x->function, "cuMemAlloc_v2");
	assert_true(x->recovered_known);
	assert_false(x->recovered);
	assert_int_equal(x->stack.n, 2);
	assert_int_equal(x->stack.v[1].pc, 0x405678);
	assert_null(x->stack.v[0].symbol); /* no image to name it from: never invented */
	assert_int_equal(x->python_stack.v[0].line, 12);
	assert_true(x->age_s > 99.9 && x->age_s < 102);
	rec_free(&r);
	wg_facts_free(f);
}

/* ---- identity ------------------------------------------------------------------------- */

static int open_rec(const struct rec *r, const char **why)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_rec *x = NULL;
	int rc;

	assert_int_equal(rec_write(r, path), 0);
	rc = wg_rec_open_path(f, path, &x, why);
	wg_rec_close(x);
	wg_facts_free(f);
	return rc;
}

static void test_alive(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p;
	const char *why;
	struct rec r;

	(void)state;
	rec_example(&r, (uint32_t)getpid(), own_start());
	assert_int_equal(rec_write(&r, path), 0);
	assert_int_equal(wg_rec_add_process(f, path, true, &p, &why), 0);
	assert_true(p->alive);
	assert_int_equal(p->pid, getpid());
	r.h->start_ticks++; /* the number was reused */
	assert_int_equal(rec_write(&r, path), 0);
	assert_int_equal(wg_rec_add_process(f, path, true, &p, &why), 0);
	assert_false(p->alive);
	r.h->flags |= WGREC_F_RETIRED;
	assert_int_equal(open_rec(&r, &why), -ESTALE);
	r.h->flags &= ~WGREC_F_RETIRED;
	r.h->boot_id[0] ^= 1;
	assert_int_equal(rec_write(&r, path), 0);
	assert_int_equal(wg_rec_add_process(f, path, true, &p, &why), 0);
	assert_false(p->alive_known); /* not of this boot */
	rec_free(&r);
	wg_facts_free(f);
}

/* A process of its own with a recorder file where the recorder would put it. */
static pid_t with_file(bool new_pidns, bool memfd, char *where, size_t n)
{
	int ready[2];
	pid_t pid;
	char c;

	assert_int_equal(pipe(ready), 0);
	if (new_pidns && unshare(CLONE_NEWPID))
		return -1;
	pid = fork();
	if (!pid) {
		char own[PATH_MAX], own_dir[64];
		uint64_t start = 0;
		struct rec r;
		char st;

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		/* /proc may be the outer namespace's: ask by what it shows of us. */
		if (wg_rec_stat((int)strtol(realpath("/proc/self", own) ? own + 6 : "0", NULL, 10), &st,
				&start))
			_exit(1);
		rec_example(&r, (uint32_t)getpid(), start);
		r.h->pidns = wg_rec_ns_inode(0, "pid");
		r.h->signal = SIGURG;
		snprintf(r.h->dir, sizeof(r.h->dir), "/somewhere");
		snprintf(own_dir, sizeof(own_dir), WGREC_DIR_FMT, (unsigned int)getuid());
		mkdir(own_dir, 0700);
		snprintf(own, sizeof(own), "%s/%d-%llu.rec", own_dir, (int)getpid(),
			 (unsigned long long)start);
		if (memfd) {
			int fd = memfd_create("waitgraph-rec", 0);

			if (fd < 0 || rec_write_fd(&r, fd))
				_exit(1);
			own[0] = 0;
		} else if (rec_write(&r, own)) {
			_exit(1);
		}
		if (write(ready[1], own, 128) != 128)
			_exit(1);
		for (;;)
			pause();
	}
	close(ready[1]);
	for (size_t i = 0; i < 128; i++) {
		if (read(ready[0], &c, 1) != 1)
			break;
		if (i < n)
			where[i] = c;
	}
	close(ready[0]);
	return pid;
}

static void check_live(pid_t pid)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p = wg_add_process(f);
	struct wg_rec_identity id;
	struct wg_rec *r = NULL;
	struct wg_thread *t;

	p->pid = pid;
	p->alive = true;
	assert_int_equal(wg_rec_open_pid(f, p, &r), 0);
	wg_add_thread(f, p)->tid = pid;
	p->threads.v[0].ns_tid = (int)r->h.pid;
	assert_int_equal(wg_rec_collect(f, p, r, NULL, NULL), 0);
	t = wg_find_thread(p, pid);
	assert_int_equal(p->threads.n, 1); /* threads that have ended are not made up */
	assert_int_equal(t->calls.n, 1);
	assert_true(p->recorded);
	wg_rec_close(r);
	assert_int_equal(wg_rec_identity(f, p, &id), 0);
	assert_int_equal(id.signal, SIGURG);
	assert_string_equal(id.dir, "/somewhere");
	/* Asked about another process, the same file is not taken. */
	p->pid = getppid();
	p->start_ticks = 0;
	r = NULL;
	assert_int_not_equal(wg_rec_open_pid(f, p, &r), 0);
	assert_null(r);
	wg_facts_free(f);
}

static void live_case(bool ns, bool memfd)
{
	char where[128] = "";
	int status;
	pid_t helper = fork();

	/* In a child: unshare() of the PID namespace cannot be undone. */
	if (!helper) {
		pid_t pid = with_file(ns, memfd, where, sizeof(where));

		if (pid <= 0)
			_exit(77);
		check_live(pid);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		if (*where)
			unlink(where);
		_exit(0);
	}
	waitpid(helper, &status, 0);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

static void test_live_file(void **state)
{
	(void)state;
	live_case(false, false);
}

static void test_live_memfd(void **state)
{
	(void)state;
	live_case(false, true);
}

static void test_live_namespace(void **state)
{
	(void)state;
	if (geteuid())
		skip();
	live_case(true, false);
}

static void test_planted(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_rec *x = NULL;
	const char *why;
	struct rec r;

	(void)state;
	if (geteuid())
		skip();
	rec_example(&r, (uint32_t)getpid(), own_start());
	assert_int_equal(rec_write(&r, path), 0);
	assert_int_equal(chown(path, 65534, 65534), 0); /* somebody else speaks for this process */
	assert_int_equal(wg_rec_open_path(f, path, &x, &why), -EPERM);
	assert_int_equal(unlink(path), 0);
	rec_free(&r);
	wg_facts_free(f);
}

/* ---- hostile files ----------------------------------------------------------------------- */

static int open_plain(const char *at, const char **why)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_rec *x = NULL;
	int rc = wg_rec_open_path(f, at, &x, why);

	wg_rec_close(x);
	wg_facts_free(f);
	return rc;
}

static void test_not_a_file(void **state)
{
	const char *why;
	char link[80], disk[80];
	struct rec r;

	(void)state;
	rec_example(&r, 4000000, 77);
	assert_int_equal(rec_write(&r, path), 0);
	snprintf(link, sizeof(link), "%s/link", dir);
	assert_int_equal(symlink(path, link), 0);
	assert_int_not_equal(open_plain(link, &why), 0);
	unlink(link);
	assert_int_equal(mkfifo(link, 0600), 0); /* must not wait for a writer */
	assert_int_not_equal(open_plain(link, &why), 0);
	unlink(link);
	assert_int_equal(open_plain(dir, &why), -EINVAL);
	assert_int_equal(open_plain("/dev/zero", &why), -EINVAL);
	assert_int_equal(open_plain("/nowhere/at/all", &why), -ENOENT);
	snprintf(disk, sizeof(disk), "%s/wgtest-%d.rec", WG_BUILD_DIR, (int)getpid());
	if (!rec_write(&r, disk)) { /* a file system that could stop answering */
		struct wg_facts *f = wg_facts_new();

		assert_int_equal(open_plain(disk, &why), -EINVAL);
		wg_facts_free(f);
		unlink(disk);
	}
	rec_free(&r);
}

static void test_versions(void **state)
{
	const char *why = NULL;
	struct rec r;

	(void)state;
	rec_example(&r, 4000000, 77);
	r.h->version = 9; /* newer, but says that we can read it */
	assert_int_equal(open_rec(&r, &why), 0);
	r.h->min_version = 9;
	assert_int_equal(open_rec(&r, &why), -EPROTO);
	r.h->min_version = 1;
	r.h->endian = 0x04030201;
	assert_int_equal(open_rec(&r, &why), -EINVAL);
	r.h->endian = WGREC_ENDIAN;
	r.h->magic[0] = 'X';
	assert_int_equal(open_rec(&r, &why), -EINVAL);
	memcpy(r.h->magic, WGREC_MAGIC, 8);
	r.h->nsections = 4000;
	assert_int_equal(open_rec(&r, &why), -EINVAL);
	rec_free(&r);
}

static uint64_t random_state = 88172645463325252ull;
static uint64_t rnd(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return random_state;
}

static void read_any(void)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p;
	struct wg_rec *x;
	const char *why;

	if (!wg_rec_add_process(f, path, true, &p, &why)) {
		/* What comes out keeps the model's promises whatever went in. */
		for (size_t i = 0; i < p->streams.n; i++) {
			assert_true(p->streams.v[i].completed <= p->streams.v[i].enqueued);
			for (size_t k = 0; k < p->streams.v[i].pending.n; k++) {
				int64_t c = p->streams.v[i].pending.v[k].comm;

				assert_true(c == WG_NO_INT || (c >= 0 && c < (int64_t)p->comms.n));
			}
		}
	}
	if (!wg_rec_open_path(f, path, &x, &why)) {
		struct wg_process *q = wg_add_process(f);

		wg_rec_collect(f, q, x, NULL, NULL);
		wg_rec_again(f, q, x, 0.1);
		wg_rec_close(x);
	}
	wg_facts_free(f);
}

static void test_damaged(void **state)
{
	struct rec r;

	(void)state;
	rec_example(&r, 4000000, 77);
	for (int round = 0; round < 300; round++) {
		struct rec m = { .data = malloc(r.size), .size = r.size };
		int hits = 1 + (int)(rnd() % 24);

		memcpy(m.data, r.data, r.size);
		m.h = (void *)m.data;
		for (int i = 0; i < hits; i++) {
			/* Mostly where it hurts: the header and the first entries of sections. */
			size_t at = rnd() % 3 ? rnd() % sizeof(*m.h) :
						m.h->sections[rnd() % 14].offset % m.size + rnd() % 512;

			if (at + 8 > m.size || at < 24)
				continue;
			if (rnd() % 2)
				m.data[at] = (unsigned char)rnd();
			else
				memset(m.data + at, rnd() % 2 ? 0xff : 0x7f, 8);
		}
		if (!(rnd() % 4))
			m.size = rnd() % m.size;
		assert_int_equal(rec_write(&m, path), 0);
		read_any();
		free(m.data);
	}
	rec_free(&r);
}

struct truncation {
	struct rec *r;
	_Atomic bool stop;
};

static void *truncate_it(void *arg)
{
	struct truncation *t = arg;
	int fd = open(path, O_RDWR);

	for (unsigned int i = 0; !atomic_load(&t->stop); i++) {
		if (ftruncate(fd, (off_t)(i % 2 ? t->r->size : 5000)) ||
		    pwrite(fd, t->r->data, 16384, 0) < 0)
			break;
	}
	close(fd);
	return NULL;
}

/* Its owner cuts the file while it is read: under a mapping that would be SIGBUS. */
static void test_truncated_meanwhile(void **state)
{
	struct truncation t = { 0 };
	pthread_t thread;
	struct rec r;

	(void)state;
	rec_example(&r, 4000000, 77);
	assert_int_equal(rec_write(&r, path), 0);
	t.r = &r;
	assert_int_equal(pthread_create(&thread, NULL, truncate_it, &t), 0);
	for (int i = 0; i < 300; i++)
		read_any();
	atomic_store(&t.stop, true);
	pthread_join(thread, NULL);
	rec_free(&r);
}

/* ---- two samples --------------------------------------------------------------------------- */

static void test_again(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p = wg_add_process(f);
	struct wg_rec *x;
	struct wgrec_thread *t;
	const char *why;
	struct rec r;

	(void)state;
	rec_example(&r, 4000000, 77);
	assert_int_equal(rec_write(&r, path), 0);
	assert_int_equal(wg_rec_open_path(f, path, &x, &why), 0);
	assert_int_equal(wg_rec_collect(f, p, x, NULL, NULL), 0);
	assert_int_equal(p->calls_delta, WG_NO_INT);
	/* The GPU moves on, a thread completes calls and goes into another one. */
	*(uint32_t *)rec_at(&r, WGREC_POSITIONS, 0) = 12;
	t = rec_at(&r, WGREC_THREADS, 1);
	t->calls_done += 7;
	t->depth = 0;
	t = rec_at(&r, WGREC_THREADS, 0);
	t->calls[0].since = rec_ago(0.01);
	assert_int_equal(rec_write(&r, path), 0);
	assert_int_equal(wg_rec_again(f, p, x, 0.3), 0);
	assert_int_equal(p->calls_delta, 7);
	assert_int_equal(p->streams.v[0].completed, 12);
	assert_int_equal(p->streams.v[0].completed_delta, 4);
	assert_int_equal(p->streams.v[1].completed_delta, 0);
	assert_true(p->streams.v[0].progress_age_s < 0.001);
	assert_true(p->streams.v[1].progress_age_s > 29);
	assert_int_equal(wg_find_thread(p, 4000001)->calls.n, 0);
	assert_true(wg_find_thread(p, 4000000)->calls.v[0].since_s < 5);
	assert_int_equal(p->devices.v[0].failures.n, 1); /* not told twice */
	assert_int_equal(p->comms.n, 1);
	wg_rec_close(x);
	rec_free(&r);
	wg_facts_free(f);
}

static int count(const char *at, void *arg)
{
	int *n = arg;

	*n += strstr(at, "/waitgraph-") != NULL;
	return 0;
}

static void test_list(void **state)
{
	struct wg_facts *f = wg_facts_new();
	char where[128] = "";
	int before = 0, after = 0;
	pid_t pid;

	(void)state;
	assert_int_equal(wg_rec_list(f, count, &before), 0);
	pid = with_file(false, false, where, sizeof(where));
	assert_true(pid > 0);
	assert_int_equal(wg_rec_list(f, count, &after), 0);
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	assert_true(*where);
	unlink(where);
	assert_true(after >= 1);
	wg_facts_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),
		cmocka_unit_test(test_nested),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_wrap),
		cmocka_unit_test(test_proven_and_truncated),
		cmocka_unit_test(test_nccl_head),
		cmocka_unit_test(test_awaited),
		cmocka_unit_test(test_failures),
		cmocka_unit_test(test_alive),
		cmocka_unit_test(test_live_file),
		cmocka_unit_test(test_live_memfd),
		cmocka_unit_test(test_live_namespace),
		cmocka_unit_test(test_planted),
		cmocka_unit_test(test_not_a_file),
		cmocka_unit_test(test_versions),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_truncated_meanwhile),
		cmocka_unit_test(test_again),
		cmocka_unit_test(test_list),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
