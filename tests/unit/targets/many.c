/* SPDX-License-Identifier: Apache-2.0 */
/* many.c - argv[1] threads, each some frames deep in a wait. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static int deep(int depth, long kind)
{
	volatile char room[64];

	room[0] = (char)depth;
	if (depth)
		return deep(depth - 1, kind) + room[0];
	if (kind & 1)
		pthread_mutex_lock(&mutex);
	else
		poll(NULL, 0, -1);
	return room[0];
}

static void *run(void *arg)
{
	return (void *)(long)deep(12, (long)arg);
}

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 10;
	pthread_attr_t attr;
	pthread_t t;

	pthread_mutex_lock(&mutex);
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 128 * 1024);
	for (long i = 0; i < n; i++)
		if (pthread_create(&t, &attr, run, (void *)i))
			return 1;
	usleep(300000);
	puts("ready");
	fflush(stdout);
	return deep(3, 0);
}
