/* SPDX-License-Identifier: Apache-2.0 */
/* The driver's own view of devices: it answers, refuses, crashes or hangs; the reader goes on. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "collect/gpu.h"

#define FAKE WG_BUILD_DIR "/lib/fake/libfake_nvml.so"

static struct wg_gpu_answer list[WG_GPU_MAX];

static int ask(const char *mood, const char *library, double seconds, size_t *n, int *nvml,
	       double *took)
{
	struct timespec a, b;
	int rc;

	memset(list, 0, sizeof(list));
	setenv("FAKE_NVML", mood, 1);
	clock_gettime(CLOCK_MONOTONIC, &a);
	rc = wg_gpu_ask(library, seconds, list, n, nvml);
	clock_gettime(CLOCK_MONOTONIC, &b);
	*took = (double)(b.tv_sec - a.tv_sec) + (double)(b.tv_nsec - a.tv_nsec) * 1e-9;
	return rc;
}

static void test_answers(void **state)
{
	double took;
	size_t n;
	int nvml;

	(void)state;
	assert_int_equal(ask("", FAKE, 5, &n, &nvml, &took), 0);
	assert_int_equal(n, 2); /* one is lost from the bus: the others still answer */
	assert_int_equal(list[0].index, 0);
	assert_int_equal(list[1].index, 2);
	assert_string_equal(list[0].uuid, "GPU-1");
	assert_true(strlen(list[0].name) < sizeof(list[0].name));
	assert_int_equal(list[0].total, 1000);
	assert_int_equal(list[0].free, 300);
	assert_int_equal(list[0].utilization, 97);
	assert_int_equal(list[1].utilization, -1); /* refused: absent, not 0 */
	assert_int_equal(list[0].power_mw, 119500);
	assert_int_equal(list[0].sm_clock_mhz, -1); /* an older library lacks the function */
	assert_int_equal(list[0].nprocs, 2);
	assert_int_equal(list[0].procs[0].pid, 42);
	assert_int_equal(list[0].procs[0].bytes, 500);
	assert_int_equal(list[0].procs[1].bytes, -1);
	assert_int_equal(list[1].nprocs, -1);
}

static void test_troubles(void **state)
{
	double took;
	size_t n;
	int nvml;

	(void)state;
	assert_int_equal(ask("hang", FAKE, 0.4, &n, &nvml, &took), -ETIMEDOUT);
	assert_true(took >= 0.39 && took < 2);
	assert_int_equal(n, 0);
	assert_int_equal(ask("crash", FAKE, 5, &n, &nvml, &took), -EIO);
	assert_true(took < 3);
	assert_int_equal(ask("refuse", FAKE, 5, &n, &nvml, &took), -EIO);
	assert_int_equal(nvml, 9);
	assert_int_equal(ask("", "libwaitgraph-has-no-such.so.1", 5, &n, &nvml, &took), -ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answers),
		cmocka_unit_test(test_troubles),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
