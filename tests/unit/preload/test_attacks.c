// SPDX-License-Identifier: Apache-2.0
/*
 * What programs do to a library that was preloaded into them (guest_attacks.c). Each runs bare and
 * recorded, and ends and says the same; one that fails bare shows nothing and is a defect of the test.
 * Most need a driver that itself survives what is done, so they run on the one of the core's tests.
 */
#include <errno.h>
#include <fcntl.h>
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

#define RECORDER WG_BUILD_DIR "/lib/libwaitgraph.so"
#define GUEST WG_BUILD_DIR "/bin/preload_guest_attacks"
#define SIMGPU WG_BUILD_DIR "/lib/simgpu"
#define FAKE WG_BUILD_DIR "/lib/fakecuda"
#define LIMIT_MS 100000 /* not a measure of anything: so long that only what hangs takes longer */

struct attack {
	const char *verb, *driver;
	const char *shm;   /* what becomes of /dev/shm: "absent", "read-only", else a tmpfs of that size */
	const char *first; /* preloaded before the recorder */
};

static void out_of(const struct attack *a, const char *preload, int out)
{
	char list[1024] = "";
	int null = open("/dev/null", O_RDWR | O_CLOEXEC);

	dup2(out, 1);
	dup2(null, 2); /* where the recorder may say what it could not do, and the answer to a signal goes */
	close(out);
	setenv("LD_LIBRARY_PATH", a->driver, 1);
	setenv("SIMGPU_SESSION", "test-attacks", 1);
	setenv("ATTACK_FAKES", FAKE, 1);
	setenv("WAITGRAPH_DIR", "/tmp/wg-attacks", 1);
	setenv("WAITGRAPH_TOOL", "/bin/true", 1);
	if (a->shm) {
		int absent = !strcmp(a->shm, "absent"), ro = !strcmp(a->shm, "read-only");

		if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
		    mount("none", absent ? "/dev" : "/dev/shm", "tmpfs", ro ? MS_RDONLY : 0,
			  absent || ro ? NULL : a->shm))
			_exit(77);
	}
	snprintf(list, sizeof(list), "%s%s%s", a->first ? a->first : "", a->first && preload ? ":" : "",
		 preload ? preload : "");
	setenv("LD_PRELOAD", list, 1);
	execl(GUEST, GUEST, a->verb, (char *)NULL);
	_exit(126);
}

static int run(const struct attack *a, const char *preload, char *said, size_t size)
{
	int out[2], status, pid;
	size_t n = 0;
	struct pollfd p;

	assert_int_equal(pipe2(out, O_CLOEXEC), 0);
	pid = fork();
	if (!pid)
		out_of(a, preload, out[1]);
	close(out[1]);
	p = (struct pollfd){ .fd = out[0], .events = POLLIN };
	for (;;) {
		ssize_t got;

		if (poll(&p, 1, LIMIT_MS) != 1) {
			kill(pid, SIGKILL);
			waitpid(pid, &status, 0);
			close(out[0]);
			fail_msg("%s%s: does not end", a->verb, preload ? "" : " (bare)");
		}
		got = read(out[0], said + n, size - 1 - n);
		if (got <= 0)
			break;
		n += (size_t)got;
	}
	said[n] = 0;
	close(out[0]);
	waitpid(pid, &status, 0);
	return status;
}

static void survived(struct attack a)
{
	char bare[4096], recorded[4096];
	int status = run(&a, NULL, bare, sizeof(bare));

	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return; /* this machine cannot set the stage */
	if (status)
		fail_msg("%s fails without the recorder: 0x%x: %s", a.verb, status, bare);
	status = run(&a, RECORDER, recorded, sizeof(recorded));
	if (status || strcmp(bare, recorded))
		fail_msg("%s: status 0x%x, said '%s', without the recorder '%s'", a.verb, status,
			 recorded, bare);
}

#define SURVIVES(name, ...)                                  \
	static void name(void **state)                       \
	{                                                    \
		static const struct attack all[] = { __VA_ARGS__ }; \
                                                             \
		(void)state;                                 \
		for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++) \
			survived(all[i]);                    \
	}
#define ON(driver_, verb_, ...) { .verb = verb_, .driver = driver_, __VA_ARGS__ }

SURVIVES(children_of_every_kind, ON(SIMGPU, "fork-storm"), ON(SIMGPU, "children"), ON(FAKE, "children"))
SURVIVES(exec_after_exec, ON(SIMGPU, "exec-chain"))
SURVIVES(every_end, ON(SIMGPU, "ends"), ON(FAKE, "ends"))
SURVIVES(threads, ON(SIMGPU, "thread-ends"), ON(SIMGPU, "all-at-once"), ON(FAKE, "all-at-once"),
	 ON(SIMGPU, "constructor"))
SURVIVES(a_context_that_is_reset, ON(SIMGPU, "after-reset"))
SURVIVES(descriptors, ON(FAKE, "closes-all"), ON(FAKE, "daemonizes"))
SURVIVES(limits, ON(FAKE, "no-file-size"), ON(FAKE, "little-file-size"), ON(FAKE, "no-descriptors"),
	 ON(FAKE, "no-locked-memory"), ON(FAKE, "no-processes"), ON(FAKE, "little-stack"),
	 ON(FAKE, "no-memory"))
SURVIVES(refused_system_calls, ON(FAKE, "refused-calls"), ON(FAKE, "killed-calls"))
SURVIVES(another_user_another_root, ON(FAKE, "becomes-nobody"), ON(FAKE, "is-nobody"),
	 ON(FAKE, "empty-root"))
SURVIVES(no_shared_memory, ON(FAKE, "plain", .shm = "absent"), ON(FAKE, "plain", .shm = "read-only"),
	 ON(FAKE, "plain", .shm = "size=4k"))
SURVIVES(signals, ON(FAKE, "preempted"), ON(SIMGPU, "preempted"), ON(FAKE, "small-signal-stack"))
SURVIVES(doors, ON(FAKE, "doors"), ON(SIMGPU, "doors"))
SURVIVES(calls_that_make_no_sense, ON(SIMGPU, "odd-calls"), ON(FAKE, "odd-calls"))
SURVIVES(a_runtime_that_comes_again, ON(FAKE, "runtime-again"))

/* Where they are installed: they ask dlsym while it is not ready, and stand before malloc. */
static void allocators(void **state)
{
	static const char *const libraries[] = { "libjemalloc.so.2", "libtcmalloc_minimal.so.4",
						 "libmimalloc.so.2" };
	static const char *const places[] = { "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
					      "/usr/lib64" };
	char path[256];

	(void)state;
	for (size_t i = 0; i < 9; i++) {
		snprintf(path, sizeof(path), "%s/%s", places[i / 3], libraries[i % 3]);
		if (access(path, R_OK))
			continue;
		survived((struct attack){ .verb = "plain", .driver = SIMGPU, .first = path });
		survived((struct attack){ .verb = "fork-storm", .driver = SIMGPU, .first = path });
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(children_of_every_kind), cmocka_unit_test(exec_after_exec),
		cmocka_unit_test(every_end), cmocka_unit_test(threads),
		cmocka_unit_test(a_context_that_is_reset), cmocka_unit_test(descriptors),
		cmocka_unit_test(limits), cmocka_unit_test(refused_system_calls),
		cmocka_unit_test(another_user_another_root), cmocka_unit_test(no_shared_memory),
		cmocka_unit_test(signals), cmocka_unit_test(doors),
		cmocka_unit_test(calls_that_make_no_sense), cmocka_unit_test(a_runtime_that_comes_again),
		cmocka_unit_test(allocators),
	};

	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
