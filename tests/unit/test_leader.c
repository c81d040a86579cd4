/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a process whose main thread has ended while another goes on (collect/mem.c). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "collect/sources.h"

static volatile uint64_t mark = 0x1122334455667788;

static void *stays(void *arg)
{
	(void)arg;
	for (;;)
		pause();
	return NULL;
}

static bool is_zombie(pid_t pid)
{
	char path[64], state = 0;
	FILE *in;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	in = fopen(path, "r");
	if (!in || fscanf(in, "%*d (%*[^)]) %c", &state) != 1)
		state = 0;
	if (in)
		fclose(in);
	return state == 'Z';
}

static void test_memory(void **state)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_process *p = wg_add_process(f);
	uint64_t got = 0;
	struct wg_mem *m;
	pthread_t t;
	pid_t pid;

	(void)state;
	pid = fork();
	assert_true(pid >= 0);
	if (!pid) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		mark = 42;
		if (pthread_create(&t, NULL, stays, NULL))
			_exit(1);
		pthread_exit(NULL);
	}
	for (int i = 0; i < 500 && !is_zombie(pid); i++)
		usleep(10000);
	assert_true(is_zombie(pid));
	p->pid = pid;
	p->alive = true;
	p->state = 'Z';
	m = wg_mem_open(f, p, -1);
	assert_int_equal(wg_mem_error(m), 0);
	assert_int_equal(wg_mem_pid(m), pid);
	assert_int_not_equal(wg_mem_task(m), pid);
	assert_int_equal(wg_mem_read(m, (uint64_t)(uintptr_t)&mark, &got, sizeof(got)), 0);
	assert_int_equal(got, 42);
	wg_mem_close(m);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	wg_facts_free(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_memory) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
