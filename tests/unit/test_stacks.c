/* SPDX-License-Identifier: Apache-2.0 */
/* Native stacks of programs that go on running, against what gdb says about them. */
#include "target.h"

#include <dlfcn.h>
#include <sys/ptrace.h>
#include <sys/user.h>

#include "collect/unwind.h"

#define MAX_NAMES 128

struct names { /* of one thread, as gdb tells them */
	int tid;
	size_t n;
	char name[MAX_NAMES][96];
};

/* gdb decorates: "__GI_x", "___x", "x.constprop.0", "x@plt", "ns::x(int)". Compare the core. */
static void core(const char *s, char *out, size_t n)
{
	const char *colon;
	size_t k;

	while (*s == '_')
		s++;
	if (!strncmp(s, "GI_", 3))
		s += 3;
	while (*s == '_')
		s++;
	if (!strncmp(s, "libc_", 5))
		s += 5;
	k = strcspn(s, "(@.<+ ");
	if (k >= n)
		k = n - 1;
	memcpy(out, s, k);
	out[k] = 0;
	colon = strrchr(out, ':');
	if (colon)
		memmove(out, colon + 1, strlen(colon + 1) + 1);
}

static size_t ask_gdb(pid_t pid, struct names *all, size_t most)
{
	char cmd[256], line[2048];
	size_t n = 0;
	FILE *in;

	snprintf(cmd, sizeof(cmd), "timeout 60 gdb -batch -nx -p %d -ex 'set pagination off' "
		 "-ex 'set debuginfod enabled off' -ex 'thread apply all bt' 2>/dev/null", pid);
	in = popen(cmd, "r");
	while (in && fgets(line, sizeof(line), in)) {
		char *lwp = strstr(line, "LWP "), *s = line;

		if (!strncmp(line, "Thread ", 7) && lwp && n < most) {
			all[n].tid = atoi(lwp + 4);
			all[n++].n = 0;
		}
		if (*s != '#' || !n || all[n - 1].n == MAX_NAMES)
			continue;
		s += strcspn(s, " ");
		s += strspn(s, " ");
		if (!strncmp(s, "0x", 2) && strstr(s, " in "))
			s = strstr(s, " in ") + 4;
		core(s, all[n - 1].name[all[n - 1].n], sizeof(all[0].name[0]));
		all[n - 1].n++;
	}
	if (in)
		pclose(in);
	return n;
}

/* One function has several names (gsignal and raise): in the C library, which we have as well. */
static bool same_function(const char *a, const char *b)
{
	void *x;

	if (!strcmp(a, b))
		return true;
	x = dlsym(RTLD_DEFAULT, a);
	return x && x == dlsym(RTLD_DEFAULT, b);
}

/* Ours, inlined frames left out, must follow gdb's order: gdb shows inlined ones besides. */
static bool agrees(const struct wg_thread *t, const struct names *g, bool say)
{
	size_t at = 0;

	for (size_t i = 0; i < t->native_stack.n; i++) {
		const struct wg_frame *fr = &t->native_stack.v[i];
		char want[96];

		if (fr->inlined || !fr->pc)
			continue;
		if (!fr->symbol) /* gdb says "??" or "<signal handler called>" there */
			continue;
		core(fr->symbol, want, sizeof(want));
		while (at < g->n && !same_function(g->name[at], want))
			at++;
		if (at == g->n) {
			if (say) {
				print_message("thread %d: %s is not in gdb's stack:", t->tid, want);
				for (size_t k = 0; k < g->n; k++)
					print_message(" %s", g->name[k]);
				print_message("\n");
			}
			return false;
		}
		at++;
		if (!strcmp(want, "main")) /* gdb stops there */
			break;
	}
	return true;
}

static void against_gdb(const char *program, size_t least)
{
	const char *argv[] = { program, NULL };
	static struct names all[64];
	struct target t;
	size_t n, same = 0;

	if (!have_program("gdb")) {
		print_message("SKIPPED: no gdb to compare with\n");
		skip();
	}
	assert_true(start_target(&t, argv));
	look_at(&t);
	assert_int_equal(wg_stacks_collect(t.f, t.p, t.m, t.s, NULL, 0, false), 0);
	n = ask_gdb(t.pid, all, 64);
	if (!n) {
		print_message("SKIPPED: gdb may not look at processes here\n");
		end_target(&t);
		skip();
	}
	assert_true(n >= least);
	for (size_t i = 0; i < n; i++) {
		const struct wg_thread *x = wg_find_thread(t.p, all[i].tid);

		assert_non_null(x);
		if (!x->native_complete)
			print_message("thread %d: incomplete, %zu frames\n", x->tid, x->native_stack.n);
		if (x->native_complete && agrees(x, &all[i], true))
			same++;
	}
	print_message("%s: %zu of %zu threads as gdb has them, from sp and pc alone\n", program, same, n);
	assert_int_equal(same, n);
	end_target(&t);
}

static void waits_o0(void **state)
{
	(void)state;
	against_gdb(TARGETS "waits-O0", 18);
}

static void waits_o2(void **state)
{
	(void)state;
	against_gdb(TARGETS "waits-O2", 18);
}

static void waits_fp(void **state)
{
	(void)state;
	against_gdb(TARGETS "waits-fp", 18);
}

static void cxx(void **state)
{
	(void)state;
	if (access(TARGETS "cxx-throw", X_OK)) {
		print_message("SKIPPED: no C++ compiler\n");
		skip();
	}
	against_gdb(TARGETS "cxx-throw", 3);
}

/* All registers, as the observer gives them: no guess, everything certain. */
static void with_registers(void **state)
{
	const char *argv[] = { TARGETS "waits-O0", NULL };
	struct wg_regs regs[32];
	size_t n = 0;
	struct target t;

	(void)state;
	assert_true(start_target(&t, argv));
	look_at(&t);
	for (size_t i = 0; i < t.p->threads.n && n < 32; i++) {
		int tid = t.p->threads.v[i].tid, status;
		struct user_regs_struct u;

		if (ptrace(PTRACE_SEIZE, tid, 0, 0)) {
			print_message("SKIPPED: no ptrace here\n");
			end_target(&t);
			skip();
		}
		assert_int_equal(ptrace(PTRACE_INTERRUPT, tid, 0, 0), 0);
		assert_int_equal(waitpid(tid, &status, __WALL), tid);
		assert_int_equal(ptrace(PTRACE_GETREGS, tid, 0, &u), 0);
		ptrace(PTRACE_DETACH, tid, 0, 0);
		regs[n++] = (struct wg_regs){ .tid = tid, .full = true, .ip = u.rip, .sp = u.rsp,
			.bp = u.rbp, .bx = u.rbx, .r12 = u.r12, .r13 = u.r13, .r14 = u.r14,
			.r15 = u.r15, .fsbase = u.fs_base };
	}
	usleep(100000);
	assert_int_equal(wg_stacks_collect(t.f, t.p, t.m, t.s, regs, n, false), 0);
	for (size_t i = 0; i < t.p->threads.n; i++) {
		const struct wg_thread *x = &t.p->threads.v[i];

		for (size_t k = 0; !x->native_complete && k < x->native_stack.n; k++)
			print_message("thread %d, frame %zu: %s+0x%llx of %s\n", x->tid, k,
				      x->native_stack.v[k].symbol ? x->native_stack.v[k].symbol : "",
				      (unsigned long long)x->native_stack.v[k].offset,
				      x->native_stack.v[k].module ? x->native_stack.v[k].module : "?");
		assert_true(x->native_complete);
		assert_int_equal(x->native_certainty, WG_CERTAIN);
		assert_int_equal(x->fsbase, regs[i].fsbase);
	}
	end_target(&t);
}

/* A thread that spins under a recorded call: exact stack with no register at all. */
static void call_in_flight(void **state)
{
	const char *argv[] = { TARGETS "waits-O0", "spin", NULL };
	const char *const program[] = { TARGETS "waits-O0", TARGETS "waits-O2", TARGETS "waits-fp" };

	(void)state;
	for (size_t k = 0; k < 3; k++) {
		unsigned long tid, sp, fp, ra;
		struct wg_thread *x;
		struct wg_call *c;
		struct target t;

		argv[0] = program[k];
		assert_true(start_target(&t, argv));
		assert_int_equal(sscanf(t.line, "ready %lu %lx %lx %lx", &tid, &sp, &fp, &ra), 4);
		look_at(&t);
		x = wg_find_thread(t.p, (int)tid);
		assert_non_null(x);
		assert_int_equal(x->sp, 0); /* it runs: /proc says nothing */
		c = wg_add_call(t.f, x);
		c->function = "cudaStreamSynchronize";
		c->inner = "cuStreamSynchronize";
		c->sp = sp;
		c->fp = fp;
		c->ra = ra;
		assert_int_equal(wg_stacks_collect(t.f, t.p, t.m, t.s, NULL, 0, false), 0);
		x = wg_find_thread(t.p, (int)tid);
		assert_true(x->native_complete);
		assert_int_equal(x->native_certainty, WG_CERTAIN);
		assert_true(x->native_stack.n >= 4);
		assert_string_equal(x->native_stack.v[0].symbol,
				    "cuStreamSynchronize (in cudaStreamSynchronize)");
		assert_memory_equal(x->native_stack.v[1].symbol, "user_of_call", 12);
		assert_string_equal(x->native_stack.v[2].symbol, "spinner");
		end_target(&t);
	}
}

/* Only when asked: the running thread is stopped for a moment and let go again. */
static void by_ptrace(void **state)
{
	const char *argv[] = { TARGETS "waits-O2", "spin", NULL };
	char path[64], text[4096];
	unsigned long tid;
	struct wg_thread *x;
	struct target t;
	FILE *in;
	size_t n;

	(void)state;
	assert_true(start_target(&t, argv));
	assert_int_equal(sscanf(t.line, "ready %lu", &tid), 1);
	look_at(&t);
	wg_stacks_collect(t.f, t.p, t.m, t.s, NULL, 0, false);
	assert_int_equal(wg_find_thread(t.p, (int)tid)->native_stack.n, 0);
	assert_true(t.p->missing.n > 0); /* and said why */
	wg_stacks_collect(t.f, t.p, t.m, t.s, NULL, 0, true);
	x = wg_find_thread(t.p, (int)tid);
	if (!x->native_stack.n) {
		print_message("SKIPPED: no ptrace here\n");
		end_target(&t);
		skip();
	}
	assert_string_equal(x->native_stack.v[0].symbol, "fake_call");
	assert_true(x->native_complete);
	snprintf(path, sizeof(path), "/proc/%d/task/%lu/status", t.pid, tid);
	in = fopen(path, "r");
	assert_non_null(in);
	n = fread(text, 1, sizeof(text) - 1, in);
	fclose(in);
	text[n] = 0;
	assert_non_null(strstr(text, "State:\tR"));
	assert_non_null(strstr(text, "TracerPid:\t0"));
	end_target(&t);
}

static void unprivileged_body(void)
{
	const char *argv[] = { TARGETS "waits-O0", NULL };
	struct target t;

	assert_true(start_target(&t, argv));
	look_at(&t);
	assert_int_equal(wg_mem_error(t.m), 0);
	wg_stacks_collect(t.f, t.p, t.m, t.s, NULL, 0, false);
	for (size_t i = 0; i < t.p->threads.n; i++)
		assert_true(t.p->threads.v[i].native_complete);
	end_target(&t);
}

static void unprivileged(void **state)
{
	(void)state;
	if (access(TARGETS "waits-O0", X_OK))
		fail();
	as_nobody(unprivileged_body);
}

static void another_users_body(void)
{
	struct target t = { .pid = getppid(), .out = -1 };

	/* The parent is root's: nothing can be read, and the reason is said. */
	look_at(&t);
	wg_stacks_collect(t.f, t.p, t.m, t.s, NULL, 0, false);
	assert_true(wg_mem_error(t.m) == -EACCES || wg_mem_error(t.m) == -EPERM);
	assert_true(t.p->missing.n >= 2);
	assert_non_null(t.p->missing.v[0].remedy);
	t.pid = 0;
	end_target(&t);
}

static void another_users(void **state)
{
	(void)state;
	if (geteuid()) {
		print_message("SKIPPED: needs root, to be another user\n");
		skip();
	}
	as_nobody(another_users_body);
}

static void speed(void **state)
{
	static const char *const count[] = { "200", "2000" };
	static const double most_ms[] = { 400, 1500 }; /* the machine is shared; see the figures */

	(void)state;
	for (int k = 0; k < 2; k++) {
		const char *argv[] = { TARGETS "many", count[k], NULL };
		double best = 1e9;
		size_t complete = 0;
		struct target t;

		if (!start_target(&t, argv)) {
			print_message("SKIPPED: cannot start %s threads here\n", count[k]);
			continue;
		}
		for (int i = 0; i < 3; i++) {
			double ms;

			look_at(&t);
			ms = now_ms();
			wg_stacks_collect(t.f, t.p, t.m, t.s, NULL, 0, false);
			ms = now_ms() - ms;
			if (ms < best)
				best = ms;
			complete = 0;
			for (size_t x = 0; x < t.p->threads.n; x++)
				complete += t.p->threads.v[x].native_complete;
			assert_int_equal(complete, t.p->threads.n);
			wg_symbols_close(t.s);
			wg_mem_close(t.m);
			wg_facts_free(t.f);
			t.s = NULL;
			t.m = NULL;
			t.f = NULL;
		}
		print_message("%zu threads: %.1f ms with names and lines (best of 3)\n", complete, best);
		assert_true(best < most_ms[k]);
		end_target(&t);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(waits_o0),	cmocka_unit_test(waits_o2),
		cmocka_unit_test(waits_fp),	cmocka_unit_test(cxx),
		cmocka_unit_test(with_registers), cmocka_unit_test(call_in_flight),
		cmocka_unit_test(by_ptrace),	cmocka_unit_test(unprivileged),
		cmocka_unit_test(another_users), cmocka_unit_test(speed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
