// SPDX-License-Identifier: Apache-2.0
/*
 * The command line on input that is none, and on output that nobody takes: a clear message, the exit code of
 * the contract, and it never hangs.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#define TOOL WG_BUILD_DIR "/bin/waitgraph"

static char dir[] = "/tmp/wg-cli-XXXXXX";

/* Exit code of a shell line; $T is the tool, $D an own directory. 124: it hangs. What it said in `said`. */
static char said[4096];
static int line(const char *format, ...)
{
	char script[2048], command[2300];
	va_list ap;
	size_t n;
	FILE *f;
	int status;

	va_start(ap, format);
	vsnprintf(script, sizeof(script), format, ap);
	va_end(ap);
	snprintf(command, sizeof(command), "exec timeout -k 1 20 bash -c '%s' 2>&1 </dev/null", script);
	f = popen(command, "r");
	assert_non_null(f);
	n = fread(said, 1, sizeof(said) - 1, f);
	said[n] = 0;
	status = pclose(f);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

#define CODE(expected, ...)                                                            \
	do {                                                                           \
		int code_ = line(__VA_ARGS__);                                         \
		if (code_ != (expected))                                               \
			fail_msg("%s: %d, not %d: %s", #__VA_ARGS__, code_, expected, said); \
	} while (0)

static void what_leads_nowhere(void **state)
{
	(void)state;
	CODE(66, "ln -s loop $D/loop; $T why $D/loop");
	CODE(66, "$T mem $D/loop");
	CODE(66, "$T mem $D/nothing");
	CODE(66, "$T why $D/nothing");
	CODE(66, "mkdir $D/empty; $T why $D/empty");
	CODE(66, "$T mem $D/empty");
	CODE(66, "$T dump 4190000");
	CODE(64, "$T why");
	CODE(64, "$T why --no-such-option 1");
}

static void what_is_no_file(void **state)
{
	static const char *const verbs[] = { "mem", "why", "diff /dev/null", "export --format csv" };

	(void)state;
	CODE(0, "mkfifo $D/pipe");
	for (unsigned int i = 0; i < sizeof(verbs) / sizeof(verbs[0]); i++) {
		CODE(65, "$T %s $D/pipe", verbs[i]);
		CODE(65, "$T %s /dev/zero", verbs[i]);
		CODE(65, "$T %s /dev/null", verbs[i]);
	}
	/* Without its data, and as large as a file can be made. */
	CODE(65, "truncate -s 1T $D/huge; $T why $D/huge");
	CODE(65, "$T mem $D/huge");
}

/* Gone long before there is an answer. */
static void a_reader_that_goes_away(void **state)
{
	int code;

	(void)state;
	code = line("$T dump $$ --json | true; exit ${PIPESTATUS[0]}");
	if (code != 0 && code != 10 && code != 11 && code != 12)
		fail_msg("dump | head: %d: %s", code, said);
	assert_null(strstr(said, "writing"));
}

static void a_full_disk(void **state)
{
	(void)state;
	CODE(70, "$T dump $$ > /dev/full");
	assert_non_null(strstr(said, "No space left"));
}

static int stage(void **state)
{
	(void)state;
	setenv("T", TOOL, 1);
	if (!mkdtemp(dir))
		return -1;
	setenv("D", dir, 1);
	return 0;
}

static int clear(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", dir);
	return system(command);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_leads_nowhere),
		cmocka_unit_test(what_is_no_file),
		cmocka_unit_test(a_reader_that_goes_away),
		cmocka_unit_test(a_full_disk),
	};

	return cmocka_run_group_tests(tests, stage, clear);
}
