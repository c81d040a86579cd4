// SPDX-License-Identifier: Apache-2.0
/*
 * Hosts that broke under the recorder, or could: each runs with it as it does without. The programs
 * are guest_hosts.c; a host that fails is named with what it said.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define BIN WG_BUILD_DIR "/bin/"
#define RECORDER WG_BUILD_DIR "/lib/libwaitgraph.so"
#define LIMIT_MS 20000

struct host {
	const char *program, *verb;
	const char *env[8]; /* name, value ... */
	const char *shm;    /* options of a /dev/shm of its own */
	char said[4096];
};

/* 77: this machine cannot set the stage. */
static void in_child(const struct host *h, int out)
{
	char path[512];

	dup2(out, 1);
	dup2(out, 2);
	setenv("LD_LIBRARY_PATH", WG_BUILD_DIR "/lib/simgpu", 1);
	setenv("SIMGPU_SESSION", "test-hosts", 1);
	setenv("WAITGRAPH_DIR", "/tmp/wg-hosts", 1);
	setenv("WAITGRAPH_TOOL", "/bin/true", 1);
	if (h->shm && (unshare(CLONE_NEWNS) ||
		       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		       mount("none", "/dev/shm", "tmpfs", 0, h->shm)))
		_exit(77);
	setenv("LD_PRELOAD", RECORDER, 1);
	for (int i = 0; i + 1 < 8 && h->env[i]; i += 2)
		setenv(h->env[i], h->env[i + 1], 1);
	snprintf(path, sizeof(path), BIN "%s", h->program);
	execl(path, h->program, h->verb, (char *)NULL);
	_exit(errno == ENOENT ? 77 : 126);
}

static int run(struct host *h)
{
	int out[2], status, pid;
	size_t n = 0;
	struct pollfd p;

	assert_int_equal(pipe(out), 0);
	pid = fork();
	if (!pid) {
		close(out[0]);
		in_child(h, out[1]);
	}
	close(out[1]);
	p = (struct pollfd){ .fd = out[0], .events = POLLIN };
	for (;;) {
		ssize_t got;

		if (poll(&p, 1, LIMIT_MS) != 1) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			close(out[0]);
			fail_msg("%s %s: does not end", h->program, h->verb);
		}
		got = read(out[0], h->said + n, sizeof(h->said) - 1 - n);
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	h->said[n] = 0;
	close(out[0]);
	waitpid(pid, &status, 0);
	return status;
}

static void well(struct host h, const char *says)
{
	int status = run(&h);

	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		skip();
	if (status)
		fail_msg("%s %s: status 0x%x: %s", h.program, h.verb, status, h.said);
	assert_string_equal(h.said, says);
}

#define HOST(verb_, ...) (struct host){ .program = "preload_guest_hosts", .verb = verb_, __VA_ARGS__ }

static void main_leaves(void **state)
{
	(void)state;
	well(HOST("main-leaves"), "ended\n");
}

static void a_handler_set_past_libc(void **state)
{
	(void)state;
	well(HOST("raw-handler"), "");
}

static void masks_by_older_names(void **state)
{
	(void)state;
	well(HOST("old-masks"), "");
}

static void a_program_that_waits_for_the_signal(void **state)
{
	(void)state;
	well(HOST("waits-itself", .env = { "WAITGRAPH_SIGNAL", "USR1" }), "");
}

static void a_driver_in_another_namespace(void **state)
{
	(void)state;
	well(HOST("two-namespaces"), "");
}

/* From less than the recorder wants to a little more: never a SIGBUS, in nobody's memory. */
static void little_shared_memory(void **state)
{
	static const char *const sizes[] = { "size=800k", "size=1m",    "size=1100k",
					     "size=1300k", "size=1600k", "size=2m" };

	(void)state;
	if (getuid())
		skip();
	for (unsigned int i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		well(HOST("plain", .shm = sizes[i]), "");
}

static void an_audit_library(void **state)
{
	(void)state;
	well(HOST("plain", .env = { "LD_AUDIT", WG_BUILD_DIR "/lib/fakecuda/audit.so" }), "");
}

static void sanitized(const char *program, const char *preload)
{
	well((struct host){ .program = program, .verb = "plain", .env = { "LD_PRELOAD", preload } }, "");
}

static void sanitizers(void **state)
{
	(void)state;
#ifdef ASAN_LIBRARY
	sanitized("preload_guest_asan", ASAN_LIBRARY ":" RECORDER);
#endif
#ifdef WITH_TSAN
	sanitized("preload_guest_tsan", RECORDER);
#endif
#if !defined(ASAN_LIBRARY) && !defined(WITH_TSAN)
	(void)sanitized;
	skip();
#endif
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(main_leaves),
		cmocka_unit_test(a_handler_set_past_libc),
		cmocka_unit_test(masks_by_older_names),
		cmocka_unit_test(a_program_that_waits_for_the_signal),
		cmocka_unit_test(a_driver_in_another_namespace),
		cmocka_unit_test(little_shared_memory),
		cmocka_unit_test(an_audit_library),
		cmocka_unit_test(sanitizers),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
