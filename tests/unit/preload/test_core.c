// SPDX-License-Identifier: Apache-2.0
/*
 * The recorder's core on a fake driver: the doors, calls in flight, threads, children, the signal,
 * the file and its end. What can be seen from inside is checked by guest_core; here is what an
 * outsider sees.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include <cmocka.h>

#include "recfile.h"

#define GUEST WG_BUILD_DIR "/bin/preload_guest_core"
#define RECORDER WG_BUILD_DIR "/lib/libwaitgraph.so"
#define FAKE WG_BUILD_DIR "/lib/fakecuda"

struct guest {
	int pid, in, out, err;
	char text[8192]; /* what it said on stderr and stdout */
	size_t n;
	char dir[64];
	char preload[256];
	const char *program; /* GUEST */
	void (*before)(struct guest *g); /* in the child */
	const char *env[12];		 /* name, value ... */
};

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#define SOON(condition)                                          \
	do {                                                     \
		double end_ = now() + 15;                        \
		while (!(condition)) {                           \
			if (now() > end_)                        \
				fail_msg("not so: " #condition); \
			usleep(5000);                            \
		}                                                \
	} while (0)

static void path_in(const struct guest *g, const char *name, char *out, size_t size)
{
	snprintf(out, size, "%s/%s", g->dir, name);
}

/* A reader that notes that it was started, how, and what it was given. */
static void make_tool(struct guest *g, const char *sleep_s)
{
	char path[128];
	FILE *f;

	path_in(g, "tool", path, sizeof(path));
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f,
		"#!/bin/sh\n"
		"d=${0%%/*}\n"
		"{ echo \"run $*\"; echo \"preload=$LD_PRELOAD dir=$WAITGRAPH_DIR tool=$WAITGRAPH_TOOL\"\n"
		"  echo fds $(ls /proc/$$/fd); echo mem $(readlink /proc/$$/fd/3); "
		"echo proc $(readlink /proc/$$/fd/4); grep SigBlk /proc/self/status; } >> $d/log\n"
		"sleep %s\n"
		"echo done >> $d/log\n",
		sleep_s);
	fclose(f);
	assert_int_equal(chmod(path, 0700), 0);
}

static void prepare(struct guest *g)
{
	memset(g, 0, sizeof(*g));
	strcpy(g->dir, "/tmp/wg-core-XXXXXX");
	assert_non_null(mkdtemp(g->dir));
	strcpy(g->preload, RECORDER);
	g->program = GUEST;
	make_tool(g, "0.1");
}

static void start(struct guest *g, const char *verb)
{
	int in[2], out[2];
	char path[128];

	assert_int_equal(pipe2(in, O_CLOEXEC), 0);
	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	path_in(g, "tool", path, sizeof(path));
	g->pid = fork();
	if (!g->pid) {
		dup2(in[0], 0);
		dup2(out[1], 1);
		dup2(out[1], 2);
		setpgid(0, 0);
		setenv("LD_LIBRARY_PATH", FAKE, 1);
		setenv("WAITGRAPH_DIR", g->dir, 1);
		setenv("WAITGRAPH_TOOL", path, 1);
		for (int i = 0; i + 1 < 12 && g->env[i]; i += 2)
			setenv(g->env[i], g->env[i + 1], 1);
		if (g->before)
			g->before(g);
		if (g->preload[0])
			setenv("LD_PRELOAD", g->preload, 1);
		execl(g->program, g->program, verb, NULL);
		_exit(127);
	}
	close(in[0]);
	close(out[1]);
	g->in = in[1];
	g->out = out[0];
	fcntl(g->out, F_SETFL, O_NONBLOCK);
}

static void hear(struct guest *g)
{
	ssize_t got;

	while (g->n + 1 < sizeof(g->text) &&
	       (got = read(g->out, g->text + g->n, sizeof(g->text) - 1 - g->n)) > 0)
		g->n += (size_t)got;
	g->text[g->n] = 0;
}

static bool said(struct guest *g, const char *what)
{
	hear(g);
	return strstr(g->text, what) != NULL;
}

static bool says_in(struct guest *g)
{
	hear(g);
	return !strncmp(g->text, "in\n", 3) || strstr(g->text, "\nin\n");
}

/* Waits for "in"; a guest that complains instead fails the test with its words. */
static void wait_in(struct guest *g)
{
	double end = now() + 15;

	while (!says_in(g)) {
		int status;

		if (waitpid(g->pid, &status, WNOHANG) == g->pid) {
			hear(g);
			fail_msg("guest ended: %s (status %x)", g->text, status);
		}
		if (now() > end)
			fail_msg("guest says nothing: %s", g->text);
		usleep(2000);
	}
}

static void go(struct guest *g)
{
	assert_int_equal(write(g->in, "g", 1), 1);
}

static int end(struct guest *g)
{
	double limit = now() + 20;
	int status;

	while (waitpid(g->pid, &status, WNOHANG) != g->pid) {
		if (now() > limit) {
			kill(-g->pid, SIGKILL);
			waitpid(g->pid, NULL, 0);
			hear(g);
			fail_msg("guest hangs: %s", g->text);
		}
		usleep(2000);
	}
	hear(g);
	return status;
}

static void well(struct guest *g)
{
	int status = end(g);

	if (status)
		fail_msg("guest: status %x: %s", status, g->text);
}

static void clean(struct guest *g)
{
	char command[160];

	if (!kill(-g->pid, SIGKILL))
		waitpid(g->pid, NULL, 0);
	close(g->in);
	close(g->out);
	snprintf(command, sizeof(command), "rm -rf %s; rm -f /dev/shm/waitgraph-%d/%d-*.rec", g->dir,
		 getuid(), g->pid);
	assert_int_equal(system(command), 0);
}

static int count_in(struct guest *g, const char *name, const char *word)
{
	char path[128], buf[16384];
	const char *p = buf;
	ssize_t n;
	int fd, count = 0;

	path_in(g, name, path, sizeof(path));
	fd = open(path, O_RDONLY);
	if (fd < 0)
		return 0;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n < 0)
		return 0;
	buf[n] = 0;
	while ((p = strstr(p, word))) {
		count++;
		p++;
	}
	return count;
}

static const struct wgrec_thread *thread_of(const struct recfile *r, int tid)
{
	for (uint64_t i = 0; i < rec_used(r, WGREC_THREADS); i++) {
		const struct wgrec_thread *t = rec_at(r, WGREC_THREADS, i);

		if (t && (int)t->tid == tid)
			return t;
	}
	return NULL;
}

static bool has_file(int pid)
{
	struct recfile r;
	bool has = rec_open(&r, pid);

	rec_close(&r);
	return has;
}

static void simple(const char *verb)
{
	struct guest g;

	prepare(&g);
	start(&g, verb);
	well(&g);
	assert_false(has_file(g.pid));
	clean(&g);
}

/* ---- doors ------------------------------------------------------------------------------- */

static void a_program_without_cuda_notices_nothing(void **state)
{
	char fds[16];
	struct guest g;

	(void)state;
	prepare(&g);
	g.preload[0] = 0;
	start(&g, "no-cuda");
	well(&g);
	snprintf(fds, sizeof(fds), "%d", atoi(g.text));
	clean(&g);
	prepare(&g);
	g.env[0] = "WAITGRAPH_SIGNAL"; /* not even of a mistake */
	g.env[1] = "NONSENSE";
	g.env[2] = "EXPECTED_FDS";
	g.env[3] = fds;
	start(&g, "no-cuda");
	well(&g);
	assert_string_equal(g.text, "");
	assert_false(has_file(g.pid));
	clean(&g);
}

static void dlsym_is_transparent(void **state)
{
	(void)state;
	simple("next");
}

static void proc_addresses_keep_versions_and_flavours(void **state)
{
	(void)state;
	simple("proc-address");
}

static void results_and_errno_are_the_drivers(void **state)
{
	(void)state;
	simple("transparent");
}

static void linked(const char *verb, const char *preload)
{
	struct guest g;

	prepare(&g);
	g.program = WG_BUILD_DIR "/bin/preload_guest_linked";
	strcpy(g.preload, preload);
	start(&g, verb);
	well(&g);
	clean(&g);
}

static void bound_flavours_reach_their_own(void **state)
{
	(void)state;
	linked("flavours", RECORDER);
}

/* Another tool before or behind us: each is called once, and nobody in a circle. */
static void another_interposer(void **state)
{
	(void)state;
	linked("interposed", FAKE "/interposer.so");
	linked("interposed", RECORDER ":" FAKE "/interposer.so");
	linked("interposed", FAKE "/interposer.so:" RECORDER);
}

static void two_runtimes_stay_apart(void **state)
{
	(void)state;
	linked("runtimes", RECORDER);
}

static void no_gpu_no_recorder(void **state)
{
	struct guest g;

	(void)state;
	prepare(&g);
	g.env[0] = "FAKE_NO_GPU";
	g.env[1] = "1";
	start(&g, "not-found");
	well(&g);
	assert_string_equal(g.text, "");
	clean(&g);
}

static void disabled_does_nothing(void **state)
{
	struct guest g;

	(void)state;
	prepare(&g);
	g.env[0] = "WAITGRAPH_DISABLE";
	g.env[1] = "1";
	start(&g, "idle");
	wait_in(&g);
	assert_false(has_file(g.pid));
	go(&g);
	well(&g);
	clean(&g);
}

static void bad_values_are_named_once(void **state)
{
	struct guest g;

	(void)state;
	prepare(&g);
	g.env[0] = "WAITGRAPH_SIGNAL";
	g.env[1] = "KILL";
	g.env[2] = "WAITGRAPH_STALL_S";
	g.env[3] = "-1";
	g.env[4] = "WAITGRAPH_TRACE_MAX";
	g.env[5] = "12X";
	start(&g, "idle");
	wait_in(&g);
	assert_true(said(&g, "WAITGRAPH_SIGNAL='KILL' is not understood; using URG"));
	assert_true(said(&g, "WAITGRAPH_STALL_S='-1'"));
	assert_true(said(&g, "WAITGRAPH_TRACE_MAX='12X'"));
	go(&g);
	well(&g);
	clean(&g);
}

/* ---- calls in flight ------------------------------------------------------------------------ */

static void a_blocked_call_is_readable(void **state)
{
	const struct wgrec_thread *t;
	const struct wgrec_header *h;
	struct recfile r;
	struct guest g;
	struct stat st;

	(void)state;
	prepare(&g);
	g.env[0] = "RANK";
	g.env[1] = "3";
	g.env[2] = "WORLD_SIZE";
	g.env[3] = "8";
	start(&g, "blocked");
	wait_in(&g);
	assert_true(rec_open(&r, g.pid));
	SOON((t = thread_of(&r, g.pid)) && t->depth == 1);
	assert_string_equal(rec_fn(&r, t->calls[0].fn), "cuStreamSynchronize");
	assert_int_equal(t->calls[0].stream, 0x91);
	assert_true(t->calls[0].flags & WGREC_CALLF_STREAM);
	assert_int_equal(t->calls[0].device, 0);
	assert_true(t->calls[0].sp && t->calls[0].ra && t->fsbase);
	h = rec_header(&r);
	assert_int_equal(h->rank, 3);
	assert_int_equal(h->world, 8);
	assert_string_equal(h->rank_source, "RANK");
	assert_string_equal(h->dir, g.dir);
	assert_int_equal(h->signal, SIGURG);
	assert_non_null(strstr(h->command, "blocked"));
	assert_true(h->helper_tid && (int)h->helper_tid != g.pid);
	assert_int_equal(stat(r.path, &st), 0);
	assert_int_equal(st.st_mode & 07777, 0600);
	assert_true(st.st_blocks * 512 <= 2 << 20);
	/* And after it was killed. */
	kill(g.pid, SIGKILL);
	end(&g);
	assert_int_equal(thread_of(&r, g.pid)->depth, 1);
	assert_true(has_file(g.pid));
	rec_close(&r);
	clean(&g);
}

static void frames_that_never_returned_are_forgotten(void **state)
{
	const struct wgrec_thread *t;
	struct recfile r;
	struct guest g;

	(void)state;
	prepare(&g);
	start(&g, "left");
	wait_in(&g);
	assert_true(rec_open(&r, g.pid));
	SOON((t = thread_of(&r, g.pid)) && t->depth == 1 && t->calls[0].stream == 0x91);
	rec_close(&r);
	clean(&g);
}

static void deep_nesting_is_counted(void **state)
{
	const struct wgrec_thread *t;
	struct recfile r;
	struct guest g;

	(void)state;
	prepare(&g);
	start(&g, "nested");
	wait_in(&g);
	assert_true(rec_open(&r, g.pid));
	SOON((t = thread_of(&r, g.pid)) && t->depth == 8);
	for (int i = 0; i < WGREC_DEPTH; i++)
		assert_string_equal(rec_fn(&r, t->calls[i].fn), "cuMemAdvise");
	assert_true(t->calls[1].sp < t->calls[0].sp);
	rec_close(&r);
	clean(&g);
}

static void cancelled_threads_leave_no_slot(void **state)
{
	struct recfile r;
	struct guest g;
	int used = 0;

	(void)state;
	prepare(&g);
	start(&g, "cancelled");
	wait_in(&g);
	assert_true(rec_open(&r, g.pid));
	for (uint64_t i = 0; i < rec_used(&r, WGREC_THREADS); i++)
		used += ((const struct wgrec_thread *)rec_at(&r, WGREC_THREADS, i))->tid != 0;
	assert_int_equal(used, 1);
	assert_true(rec_used(&r, WGREC_THREADS) <= 3);
	rec_close(&r);
	go(&g);
	well(&g);
	clean(&g);
}

static void slots_are_used_again(void **state)
{
	struct recfile r;
	struct guest g;
	int used = 0;

	(void)state;
	prepare(&g);
	start(&g, "threads");
	wait_in(&g);
	assert_true(rec_open(&r, g.pid));
	for (uint64_t i = 0; i < rec_used(&r, WGREC_THREADS); i++)
		used += ((const struct wgrec_thread *)rec_at(&r, WGREC_THREADS, i))->tid != 0;
	assert_int_equal(used, 301);
	assert_true(rec_used(&r, WGREC_THREADS) < 310);
	assert_int_equal(rec_header(&r)->lost_threads, 0);
	SOON(rec_header(&r)->calls >= 2300);
	rec_close(&r);
	go(&g);
	well(&g);
	clean(&g);
}

/* ---- children ------------------------------------------------------------------------------------ */

static void children_stay_out_of_the_parents_record(void **state)
{
	const struct wgrec_thread *t;
	struct recfile r;
	struct guest g;
	uint64_t calls;
	glob_t found;
	char pattern[64];

	(void)state;
	prepare(&g);
	start(&g, "forked");
	SOON(said(&g, "child"));
	/* The child that started CUDA has a file of its own, beside its parent's. */
	assert_true(rec_open(&r, g.pid));
	snprintf(pattern, sizeof(pattern), "/proc/%d/task/%d/children", g.pid, g.pid);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	globfree(&found);
	{
		FILE *f = fopen(pattern, "r");
		struct recfile child;
		int pid = 0;

		assert_int_equal(fscanf(f, "%d", &pid), 1);
		fclose(f);
		assert_true(rec_open(&child, pid));
		assert_true(rec_header(&child)->flags & WGREC_F_FORKED);
		assert_int_equal(rec_header(&child)->pid, pid);
		rec_close(&child);
	}
	t = thread_of(&r, g.pid);
	assert_non_null(t);
	calls = t->calls_done;
	assert_true(calls < 50); /* not the hundreds that the children made */
	assert_int_equal(t->depth, 0);
	go(&g);
	wait_in(&g);
	assert_int_equal(thread_of(&r, g.pid)->calls_done, calls);
	rec_close(&r);
	go(&g);
	well(&g);
	clean(&g);
}

static void started_programs_get_the_jobs_mask(void **state)
{
	(void)state;
	simple("starts-others");
}

/* ---- the signal ----------------------------------------------------------------------------------- */

static void nobody_is_interrupted(const char *verb)
{
	struct guest g;

	prepare(&g);
	start(&g, verb);
	wait_in(&g);
	for (int i = 0; i < 40 || (i < 600 && count_in(&g, "log", "run dump") < 3); i++) {
		kill(g.pid, SIGURG);
		usleep(20000);
	}
	assert_true(count_in(&g, "log", "run dump") >= 3);
	go(&g);
	well(&g);
	clean(&g);
}

static void no_call_sees_eintr(void **state)
{
	(void)state;
	nobody_is_interrupted("undisturbed");
}

static void nor_a_main_thread_that_did_not_start_cuda(void **state)
{
	(void)state;
	nobody_is_interrupted("undisturbed-main");
}

static void the_reader_gets_what_it_needs(const char *verb)
{
	char expected[96];
	struct guest g;

	prepare(&g);
	start(&g, verb);
	wait_in(&g);
	kill(g.pid, SIGURG);
	SOON(count_in(&g, "log", "done") == 1);
	snprintf(expected, sizeof(expected), "run dump %d --from-signal --mem-fd 3 --proc-fd 4\n", g.pid);
	assert_int_equal(count_in(&g, "log", expected), 1);
	snprintf(expected, sizeof(expected), "preload= dir=%s tool=\n", g.dir);
	assert_int_equal(count_in(&g, "log", expected), 1);
	assert_int_equal(count_in(&g, "log", "/mem\n"), 1);
	snprintf(expected, sizeof(expected), "proc /proc/%d\n", g.pid);
	assert_int_equal(count_in(&g, "log", expected), 1);
	assert_int_equal(count_in(&g, "log", "SigBlk:\t0000000000000000"), 1);
	go(&g);
	well(&g);
	clean(&g);
}

static void a_dump_before_cuda(void **state)
{
	(void)state;
	the_reader_gets_what_it_needs("idle-not-up");
}

/* What Yama would deny the reader: the process has looked for it. */
static void own_threads_blocked_calls_are_told(void **state)
{
	const struct wgrec_task *task = NULL;
	struct recfile r;
	struct guest g;
	char expected[16];

	(void)state;
	prepare(&g);
	start(&g, "blocked");
	wait_in(&g);
	usleep(50000);
	assert_true(rec_open(&r, g.pid));
	assert_int_equal(rec_used(&r, WGREC_TASKS), 0);
	kill(g.pid, SIGURG);
	SOON(count_in(&g, "log", "run") == 1);
	snprintf(expected, sizeof(expected), "%d 0x", SYS_pause);
	assert_true(rec_used(&r, WGREC_TASKS) >= 2); /* main and our own */
	for (uint64_t i = 0; i < rec_used(&r, WGREC_TASKS); i++) {
		const struct wgrec_task *at = rec_at(&r, WGREC_TASKS, i);

		assert_true(at->tid && at->at && at->slices);
		if ((int)at->tid == g.pid)
			task = at;
	}
	assert_non_null(task);
	assert_memory_equal(task->syscall, expected, strlen(expected));
	assert_null(strchr(task->syscall, '\n'));
	/* It is gone when the reader comes. */
	{
		char path[64];
		int n = 0;
		struct dirent *e;
		DIR *d;

		snprintf(path, sizeof(path), "/proc/%d/task", g.pid);
		d = opendir(path);
		while ((e = readdir(d)))
			n += e->d_name[0] != '.';
		closedir(d);
		assert_int_equal(n, 2);
	}
	rec_close(&r);
	clean(&g);
}

/* libcuda closed before and after cuInit(): nothing of ours points into the void. */
static void a_driver_that_is_closed(void **state)
{
	(void)state;
	simple("reopened");
}

static void a_dump_after_cuda(void **state)
{
	(void)state;
	the_reader_gets_what_it_needs("idle");
}

static void a_dump_while_it_is_out_of_descriptors(void **state)
{
	(void)state;
	the_reader_gets_what_it_needs("no-descriptors");
}

static void wait_never_sees_our_children(void **state)
{
	static const char *const verbs[] = { "waits", "waits-up" };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct guest g;

		prepare(&g);
		start(&g, verbs[i]);
		wait_in(&g);
		kill(g.pid, SIGURG);
		SOON(count_in(&g, "log", "run") == 1);
		go(&g);
		well(&g);
		assert_true(count_in(&g, "log", "done") >= 1);
		clean(&g);
	}
}

static void a_second_request_is_not_lost(void **state)
{
	static const char *const verbs[] = { "idle", "idle-not-up" };

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct guest g;

		prepare(&g);
		make_tool(&g, "0.6");
		start(&g, verbs[i]);
		wait_in(&g);
		kill(g.pid, SIGURG);
		SOON(count_in(&g, "log", "run") == 1);
		for (int k = 0; k < 3; k++) {
			kill(g.pid, SIGURG);
			usleep(20000);
		}
		SOON(count_in(&g, "log", "done") == 2);
		usleep(700000);
		assert_int_equal(count_in(&g, "log", "run"), 2); /* three wishes, one more answer */
		close(g.in); /* main's read may have been interrupted: end of file ends it */
		g.in = open("/dev/null", O_RDONLY);
		well(&g);
		clean(&g);
	}
}

static void the_programs_own_handler(const char *verb)
{
	struct guest g;

	prepare(&g);
	start(&g, verb);
	wait_in(&g);
	assert_int_equal(count_in(&g, "log", "run"), 0);
	kill(g.pid, SIGURG);
	SOON(count_in(&g, "log", "run") == 1);
	go(&g);
	well(&g);
	clean(&g);
}

static void a_handler_installed_before_cuda(void **state)
{
	(void)state;
	the_programs_own_handler("own-handler-before");
}

static void a_handler_installed_after_cuda(void **state)
{
	(void)state;
	the_programs_own_handler("own-handler-after");
}

static void another_signal(void **state)
{
	struct guest g;

	(void)state;
	prepare(&g);
	g.env[0] = "WAITGRAPH_SIGNAL";
	g.env[1] = "SIGRTMIN+5";
	start(&g, "idle");
	wait_in(&g);
	kill(g.pid, SIGURG); /* means nothing now */
	kill(g.pid, 39);
	SOON(count_in(&g, "log", "done") == 1);
	go(&g);
	well(&g);
	assert_int_equal(count_in(&g, "log", "run"), 1);
	clean(&g);
}

static void a_stopped_process_answers_later(void **state)
{
	struct guest g;

	(void)state;
	prepare(&g);
	start(&g, "blocked");
	wait_in(&g);
	kill(g.pid, SIGSTOP);
	kill(g.pid, SIGURG);
	usleep(200000);
	assert_int_equal(count_in(&g, "log", "run"), 0);
	kill(g.pid, SIGCONT);
	SOON(count_in(&g, "log", "done") == 1);
	clean(&g);
}

static void without_a_reader_plain_lines(void **state)
{
	char command[256], pattern[128];
	struct guest g;
	glob_t found;

	(void)state;
	prepare(&g);
	/* Beside this copy stands no bin/waitgraph. */
	snprintf(command, sizeof(command), "mkdir %s/lib && cp " RECORDER " %s/lib/", g.dir, g.dir);
	assert_int_equal(system(command), 0);
	snprintf(g.preload, sizeof(g.preload), "%s/lib/libwaitgraph.so", g.dir);
	g.env[0] = "WAITGRAPH_TOOL";
	g.env[1] = "/nonexistent/waitgraph";
	g.env[2] = "PATH";
	g.env[3] = "/nonexistent";
	start(&g, "blocked");
	wait_in(&g);
	usleep(50000);
	kill(g.pid, SIGURG);
	SOON(said(&g, "waitgraph: end"));
	assert_true(said(&g, "cuStreamSynchronize for "));
	assert_true(said(&g, "stream 0x91"));
	snprintf(pattern, sizeof(pattern), "%s/*-%d-*-1.txt", g.dir, g.pid);
	assert_int_equal(glob(pattern, 0, NULL, &found), 0);
	globfree(&found);
	clean(&g);
}

static void the_watchdog_asks_once_a_stall(void **state)
{
	struct guest g;

	(void)state;
	prepare(&g);
	g.env[0] = "WAITGRAPH_STALL_S";
	g.env[1] = "1";
	start(&g, "blocked");
	wait_in(&g);
	SOON(count_in(&g, "log", "done") == 1);
	sleep(3);
	assert_int_equal(count_in(&g, "log", "run"), 1);
	clean(&g);
}

/* ---- the file and its end ---------------------------------------------------------------------------- */

static void a_normal_end_removes_the_file(void **state)
{
	static const char *const verbs[] = { "ends-exit", "ends-_exit", "ends-quick_exit", "ends-return" };

	(void)state;
	for (unsigned int i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		struct guest g;

		prepare(&g);
		start(&g, verbs[i]);
		wait_in(&g);
		assert_true(has_file(g.pid));
		go(&g);
		well(&g);
		if (has_file(g.pid))
			fail_msg("%s left its file", verbs[i]);
		clean(&g);
	}
}

static void a_vfork_childs_end_is_not_ours(void **state)
{
	struct guest g;

	(void)state;
	prepare(&g);
	start(&g, "ends-vfork");
	wait_in(&g);
	go(&g);
	SOON(said(&g, "after"));
	assert_true(has_file(g.pid));
	go(&g);
	well(&g);
	clean(&g);
}

static void exec_retires_the_file(void **state)
{
	struct recfile r;
	struct guest g;

	(void)state;
	prepare(&g);
	start(&g, "ends-exec");
	wait_in(&g);
	g.n = 0;
	go(&g);
	wait_in(&g);
	assert_true(rec_open(&r, g.pid));
	assert_true(rec_header(&r)->flags & WGREC_F_RETIRED);
	rec_close(&r);
	go(&g);
	well(&g);
	clean(&g);
	/* When the next program brings CUDA up, its file takes the place. */
	prepare(&g);
	start(&g, "ends-exec-up");
	wait_in(&g);
	g.n = 0;
	go(&g);
	wait_in(&g);
	assert_true(rec_open(&r, g.pid));
	assert_false(rec_header(&r)->flags & WGREC_F_RETIRED);
	rec_close(&r);
	go(&g);
	well(&g);
	assert_false(has_file(g.pid));
	clean(&g);
}

static void bypasses_are_noted(void **state)
{
	struct recfile r;
	struct guest g;

	(void)state;
	prepare(&g);
	start(&g, "deepbind");
	wait_in(&g);
	assert_true(rec_open(&r, g.pid));
	SOON(rec_header(&r)->flags & WGREC_F_DEEPBIND);
	assert_true(rec_used(&r, WGREC_NOTES) > 0);
	rec_close(&r);
	go(&g);
	well(&g);
	clean(&g);
}

static void a_program_that_closes_everything(void **state)
{
	struct guest g;

	(void)state;
	prepare(&g);
	start(&g, "self-closing");
	wait_in(&g);
	assert_true(has_file(g.pid));
	kill(g.pid, SIGURG);
	SOON(count_in(&g, "log", "done") == 1);
	go(&g);
	well(&g);
	clean(&g);
}

static void fail_in_child(const char *what)
{
	dprintf(2, "cannot set up: %s: %s\n", what, strerror(errno));
	_exit(99);
}

static const char *shm_options;
static void own_shm(struct guest *g)
{
	(void)g;
	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL))
		fail_in_child("unshare");
	if (mount("tmpfs", "/dev/shm", "tmpfs", 0, shm_options))
		fail_in_child("mount");
}

static void foreign_dir(struct guest *g)
{
	char path[64];

	own_shm(g);
	snprintf(path, sizeof(path), "/dev/shm/waitgraph-%d", getuid());
	if (mkdir(path, 0700) || chmod(path, 0777))
		fail_in_child("mkdir");
}

static bool has_memfd(int pid)
{
	char path[64], link[128];
	struct dirent *e;
	bool has = false;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		ssize_t n = readlinkat(dirfd(d), e->d_name, link, sizeof(link) - 1);

		if (n > 0) {
			link[n] = 0;
			has |= strstr(link, "memfd:waitgraph-rec") != NULL;
		}
	}
	if (d)
		closedir(d);
	return has;
}

static void in_memory_instead(void (*before)(struct guest *), const char *options)
{
	struct guest g;

	if (getuid())
		skip();
	shm_options = options;
	prepare(&g);
	g.before = before;
	start(&g, "idle");
	wait_in(&g);
	assert_true(has_memfd(g.pid));
	assert_false(has_file(g.pid));
	kill(g.pid, SIGURG);
	SOON(count_in(&g, "log", "done") == 1);
	go(&g);
	well(&g);
	clean(&g);
}

static void a_full_shm(void **state)
{
	(void)state;
	in_memory_instead(own_shm, "size=64k");
}

static void somebody_elses_directory(void **state)
{
	(void)state;
	in_memory_instead(foreign_dir, "size=16m");
}

/* Room for the start, not for three hundred threads: nothing breaks, and the loss is counted. */
static void shm_that_fills_later(void **state)
{
	struct guest g;

	(void)state;
	if (getuid())
		skip();
	shm_options = "size=1280k";
	prepare(&g);
	g.before = own_shm;
	start(&g, "threads");
	wait_in(&g);
	go(&g);
	well(&g);
	clean(&g);
}

static void a_directory_that_cannot_be_written(void **state)
{
	struct guest g;

	(void)state;
	prepare(&g);
	g.env[0] = "WAITGRAPH_DIR";
	g.env[1] = "/proc/nothing/here";
	start(&g, "idle");
	wait_in(&g);
	assert_true(has_file(g.pid));
	kill(g.pid, SIGURG);
	SOON(count_in(&g, "log", "done") == 1);
	go(&g);
	well(&g);
	clean(&g);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_program_without_cuda_notices_nothing),
		cmocka_unit_test(dlsym_is_transparent),
		cmocka_unit_test(proc_addresses_keep_versions_and_flavours),
		cmocka_unit_test(results_and_errno_are_the_drivers),
		cmocka_unit_test(bound_flavours_reach_their_own),
		cmocka_unit_test(another_interposer),
		cmocka_unit_test(two_runtimes_stay_apart),
		cmocka_unit_test(no_gpu_no_recorder),
		cmocka_unit_test(disabled_does_nothing),
		cmocka_unit_test(bad_values_are_named_once),
		cmocka_unit_test(a_blocked_call_is_readable),
		cmocka_unit_test(frames_that_never_returned_are_forgotten),
		cmocka_unit_test(deep_nesting_is_counted),
		cmocka_unit_test(cancelled_threads_leave_no_slot),
		cmocka_unit_test(slots_are_used_again),
		cmocka_unit_test(children_stay_out_of_the_parents_record),
		cmocka_unit_test(started_programs_get_the_jobs_mask),
		cmocka_unit_test(no_call_sees_eintr),
		cmocka_unit_test(nor_a_main_thread_that_did_not_start_cuda),
		cmocka_unit_test(a_dump_before_cuda),
		cmocka_unit_test(own_threads_blocked_calls_are_told),
		cmocka_unit_test(a_driver_that_is_closed),
		cmocka_unit_test(a_dump_after_cuda),
		cmocka_unit_test(a_dump_while_it_is_out_of_descriptors),
		cmocka_unit_test(wait_never_sees_our_children),
		cmocka_unit_test(a_second_request_is_not_lost),
		cmocka_unit_test(a_handler_installed_before_cuda),
		cmocka_unit_test(a_handler_installed_after_cuda),
		cmocka_unit_test(another_signal),
		cmocka_unit_test(a_stopped_process_answers_later),
		cmocka_unit_test(without_a_reader_plain_lines),
		cmocka_unit_test(the_watchdog_asks_once_a_stall),
		cmocka_unit_test(a_normal_end_removes_the_file),
		cmocka_unit_test(a_vfork_childs_end_is_not_ours),
		cmocka_unit_test(exec_retires_the_file),
		cmocka_unit_test(bypasses_are_noted),
		cmocka_unit_test(a_program_that_closes_everything),
		cmocka_unit_test(a_full_shm),
		cmocka_unit_test(somebody_elses_directory),
		cmocka_unit_test(shm_that_fills_later),
		cmocka_unit_test(a_directory_that_cannot_be_written),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	signal(SIGPIPE, SIG_IGN);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
