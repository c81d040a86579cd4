/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits.c - one thread for each way to wait, below functions with frames of a changing size,
 * and one thread that spins below a wrapper which notes where it was entered, as the
 * recorder does. Prints "ready TID SP FP RA" of the spinning thread.
 */
#include <alloca.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t barrier;
static sem_t sem;
static int word, pipe_fd[2], pair[2];
static pthread_t main_thread;
static volatile unsigned long entry[4];
static volatile int go_on = 1;

static void sleep_on_word(void)
{
	syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static int wait_in_compare(const void *a, const void *b)
{
	(void)a;
	(void)b;
	sleep_on_word();
	return 0;
}

static void handler(int sig)
{
	(void)sig;
	sleep_on_word();
}

__attribute__((noinline)) static int leaf(int kind)
{
	volatile char *room = alloca((size_t)kind * 16 + 16); /* a frame that needs its pointer */
	char buf[8];

	room[0] = 1;
	switch (kind) {
	case 0:
		pthread_mutex_lock(&mutex);
		break;
	case 1: {
		pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

		pthread_mutex_lock(&own);
		pthread_cond_wait(&cond, &own);
		break;
	}
	case 2:
		sem_wait(&sem);
		break;
	case 3:
		poll(NULL, 0, -1);
		break;
	case 4:
		sleep(100000);
		break;
	case 5: {
		struct epoll_event e;
		int set = epoll_create1(0);

		/* Being stopped by a tracer interrupts it, and its thread must not end by that. */
		while (epoll_wait(set, &e, 1, -1) < 0)
			;
		break;
	}
	case 6:
		sleep_on_word();
		break;
	case 7:
		return (int)read(pipe_fd[0], buf, 1);
	case 8:
		return (int)recv(pair[0], buf, 1, 0);
	case 9:
		select(0, NULL, NULL, NULL, NULL);
		break;
	case 10:
		pause();
		break;
	case 11:
		pthread_barrier_wait(&barrier);
		break;
	case 12:
		pthread_rwlock_wrlock(&rwlock);
		break;
	case 13: {
		int a[4] = { 3, 1, 2, 0 };

		qsort(a, 4, sizeof(a[0]), wait_in_compare);
		break;
	}
	case 14: {
		struct timespec t = { 100000, 0 };

		clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL);
		break;
	}
	case 15:
		pthread_join(main_thread, NULL);
		break;
	case 16:
		raise(SIGUSR2); /* waits inside a signal handler */
		break;
	}
	return kind + room[0];
}

__attribute__((noinline)) static int middle(int depth, int kind)
{
	volatile int d = depth;

	if (!depth)
		return leaf(kind) + d;
	return middle(depth - 1, kind) + d;
}

static void *waiter(void *arg)
{
	return (void *)(long)middle(3, (int)(long)arg);
}

/* What a wrapper of the recorder stores at entry, then a driver that polls for ever. */
__attribute__((noinline)) static void fake_call(void)
{
	unsigned long *frame = __builtin_frame_address(0);

	entry[1] = (unsigned long)(frame + 2); /* the caller's stack pointer after return */
	entry[2] = frame[0];		       /* the caller's frame pointer */
	entry[3] = (unsigned long)__builtin_return_address(0);
	entry[0] = (unsigned long)syscall(SYS_gettid);
	while (go_on)
		;
}

__attribute__((noinline)) static int user_of_call(int n)
{
	volatile char *room = alloca((size_t)n + 32);

	room[0] = (char)n;
	fake_call();
	return room[0];
}

static void *spinner(void *arg)
{
	(void)arg;
	return (void *)(long)user_of_call(5);
}

int main(int argc, char **argv)
{
	struct sigaction sa = { .sa_handler = handler };
	pthread_t t;

	(void)argv;
	main_thread = pthread_self();
	sigaction(SIGUSR2, &sa, NULL);
	if (pipe(pipe_fd) || socketpair(AF_UNIX, SOCK_STREAM, 0, pair))
		return 1;
	pthread_barrier_init(&barrier, NULL, 5);
	pthread_rwlock_rdlock(&rwlock);
	pthread_mutex_lock(&mutex);
	sem_init(&sem, 0, 0);
	for (long i = 0; i <= 16; i++)
		pthread_create(&t, NULL, waiter, (void *)i);
	if (argc > 1) {
		pthread_create(&t, NULL, spinner, NULL);
		while (!entry[0])
			usleep(1000);
	}
	usleep(200000);
	printf("ready %lu %lx %lx %lx\n", entry[0], entry[1], entry[2], entry[3]);
	fflush(stdout);
	return leaf(6);
}
