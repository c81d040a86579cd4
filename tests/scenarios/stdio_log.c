/* scenario
 * section: slow-not-hung
 * story: a C program's log stops; its output goes to a file
 * proof: stdio buffers 4 KiB for a file; the loop goes on (or does not), by construction
 * case: buffered class=log-buffered hung=false settle=3
 * case: stuck class=lock-self hung=true settle=3
 * case: line_buffered class=idle|progressing|busy-cpu hung=false settle=3
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <time.h>

#include "scenario.h"

static volatile double sink;

int main(int argc, char **argv)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

	if (is(argc, argv, "line_buffered"))
		setlinebuf(stdout);
	if (!is(argc, argv, "stuck"))
		ready();
	for (int step = 0;; step++) {
		clock_t end = clock() + CLOCKS_PER_SEC / 20;

		printf("step %d\n", step);
		while (clock() < end)
			sink += 1;
		if (is(argc, argv, "stuck") && step == 20) {
			pthread_mutex_lock(&lock);
			ready();
			pthread_mutex_lock(&lock);
		}
	}
}
