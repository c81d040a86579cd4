/* SPDX-License-Identifier: Apache-2.0 */
/* Which operation of a semop(2) stands still (collect/ipc.c), and signals of /proc/PID/status. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>
#include <sys/sem.h>

#include "collect/procfs.h"

static int blocks(const struct sembuf *ops, size_t n, unsigned short a, unsigned short b)
{
	unsigned short values[2] = { a, b };

	return wg_ipc_blocking_op(ops, n, values, 2);
}

static void test_blocking_op(void **state)
{
	const struct sembuf take[] = { { 0, -1, 0 } }, wait_zero[] = { { 1, 0, 0 } };
	const struct sembuf both[] = { { 0, -1, 0 }, { 1, -2, 0 } }, twice[] = { { 0, -1, 0 }, { 0, -1, 0 } };
	const struct sembuf give_take[] = { { 0, 1, 0 }, { 0, -1, 0 } }, outside[] = { { 7, -1, 0 } };

	(void)state;
	assert_int_equal(blocks(take, 1, 0, 5), 0);
	assert_int_equal(blocks(take, 1, 1, 0), -1);
	assert_int_equal(blocks(wait_zero, 1, 0, 3), 0);
	assert_int_equal(blocks(wait_zero, 1, 3, 0), -1);
	assert_int_equal(blocks(both, 2, 1, 1), 1);
	assert_int_equal(blocks(both, 2, 0, 9), 0);
	assert_int_equal(blocks(both, 2, 1, 2), -1);
	assert_int_equal(blocks(twice, 2, 1, 0), 1); /* the first one has taken it */
	assert_int_equal(blocks(give_take, 2, 0, 0), -1);
	assert_int_equal(blocks(outside, 1, 0, 0), -1);
}

static void test_caught(void **state)
{
	struct wg_pt_status s;

	(void)state;
	assert_true(wg_pt_status("State:\tS (sleeping)\nSigBlk:\t0000000000010000\nSigCgt:\t0000000000010002\n", &s));
	assert_true(s.got_caught);
	assert_int_equal(s.blocked, 0x10000);
	assert_int_equal(s.caught, 0x10002);
	assert_true(wg_pt_status("State:\tS (sleeping)\nSigBlk:\t0000000000010000\n", &s));
	assert_false(s.got_caught);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_blocking_op),
		cmocka_unit_test(test_caught),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
