/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scale.c - the subject of bench_scale.py: N threads in one process, or N processes, all blocked
 * behind one mutex whose owner has ended. Prints "ready" and waits to be killed.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static pthread_mutex_t *lock;

static int deep(int n)
{
	if (n)
		return deep(n - 1) + (int)(getpid() & 1);
	pthread_mutex_lock(lock);
	return 0;
}

static void *blocked(void *arg)
{
	return (void *)(long)deep(12 + (int)(long)arg % 5);
}

static void *leaves(void *arg)
{
	pthread_mutex_lock(lock);
	return arg;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 200, processes = argc > 2 ? atoi(argv[2]) : 1;
	pthread_mutexattr_t attr;
	pthread_attr_t small;
	pthread_t t;

	lock = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&attr);
	if (processes > 1)
		pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(lock, &attr);
	pthread_create(&t, NULL, leaves, NULL);
	pthread_join(t, NULL);
	for (int i = 1; i < processes; i++)
		if (fork() == 0)
			break;
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 64 * 1024);
	for (long i = 1; i < threads; i++)
		if (pthread_create(&t, &small, blocked, (void *)i)) {
			perror("pthread_create");
			return 1;
		}
	puts("ready");
	fflush(stdout);
	blocked(NULL);
	return 0;
}
