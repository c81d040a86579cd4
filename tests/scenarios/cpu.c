/* scenario
 * section: slow-not-hung
 * story: one thread burns a core; is it work, or does it poll for something that never comes?
 * proof: the loop below either computes without end or reads one word that nobody writes
 * case: spin_flag class=spin-wait hung=true culprit=tid
 * case: spin_calls class=spin-wait hung=true culprit=tid
 * case: spin_yield class=spin-wait hung=true culprit=tid
 * case: compute class=busy-cpu hung=false culprit=tid
 * case: compute_thread class=busy-cpu hung=false
 * case: poll_syscall class=spin-wait|file-lock hung=true
 * case: spin_served class=busy-cpu|progressing|idle|unknown hung=false
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sched.h>

#include "scenario.h"

static volatile int flag;
static volatile double sink;
static double matrix[256][256];

static void *compute(void *arg)
{
	for (unsigned long n = 1;; n++)
		for (int i = 0; i < 256; i++)
			for (int k = 0; k < 256; k++)
				matrix[i][k] = matrix[k][i] * 0.5 + (double)((n + (unsigned long)(i * k)) % 91);
	return arg;
}

static void *serves(void *arg)
{
	for (;;) {
		usleep(1000);
		flag++;
	}
	return arg;
}

int main(int argc, char **argv)
{
	tell("culprit_tid %d", tid_now());
	if (is(argc, argv, "compute")) {
		ready();
		compute(NULL);
	}
	if (is(argc, argv, "compute_thread")) {
		pthread_t t = spawn(compute, NULL);

		ready();
		pthread_join(t, NULL);
	}
	if (is(argc, argv, "spin_served")) {
		int last = 0;

		spawn(serves, NULL);
		ready();
		for (;;) {
			while (flag == last)
				;
			last = flag;
			sink += last;
		}
	}
	ready();
	if (is(argc, argv, "poll_syscall"))
		while (access("/tmp/waitgraph-no-such-file-ever", F_OK))
			usleep(1000);
	while (is(argc, argv, "spin_calls") && !flag)
		; /* the same with a function's call in every turn */
	if (is(argc, argv, "spin_yield"))
		while (!flag)
			sched_yield();
	while (!flag)
		;
	return 0;
}
