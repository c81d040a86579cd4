/* scenario
 * section: slow-not-hung, host-lock
 * story: a core burns: a poll that nobody answers, a poll that somebody answers, or work that only looks like one
 * proof: who writes the polled word stands below; nobody else has it
 * case: by_function class=spin-wait hung=true culprit=tid
 * case: backing_off class=spin-wait hung=true culprit=tid
 * case: xchg_lock class=spin-wait hung=true culprit=tid
 * case: ticket class=spin-wait hung=true culprit=tid
 * case: heartbeat_beside class=spin-wait hung=true culprit=tid user=unknown
 * case: two_for_each_other class=spin-wait|deadlock hung=true
 * case: owner_computes class=busy-cpu|progressing hung=false
 * case: served class=busy-cpu|progressing|idle hung=false
 * case: nonblocking_read class=peer-silent hung=true culprit=pid user=unknown
 * case: ring_writer_dead class=peer-dead hung=true culprit=pid user=spin-wait
 * case: ring_writer_computes class=busy-cpu|progressing hung=false
 * case: same_sum_again class=busy-cpu hung=false
 * case: endless_nothing class=busy-cpu hung=false
 * case: recursion class=busy-cpu hung=false
 * case: until_a_time class=busy-cpu|idle|unknown hung=any
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <time.h>

#include "scenario.h"

static const char *kase;
static int flag, turn[2], table[100];
static volatile long sink;
static int fds[2];

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static __attribute__((noinline)) bool is_set(const int *p)
{
	return __atomic_load_n(p, __ATOMIC_ACQUIRE) != 0;
}

static __attribute__((noinline)) long sum(void)
{
	long s = 0;

	for (int i = 0; i < 100; i++)
		s += ((volatile int *)table)[i];
	return s;
}

static __attribute__((noinline)) long fib(long n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

static void *beside(void *arg)
{
	while (in("heartbeat_beside"))
		usleep(20000);
	if (in("owner_computes"))
		burn();
	while (in("served")) {
		usleep(2000);
		__atomic_add_fetch(&flag, 1, __ATOMIC_SEQ_CST);
	}
	while (!is_set(&turn[0])) /* two_for_each_other: each wants the other to begin */
		;
	__atomic_store_n(&turn[1], 1, __ATOMIC_SEQ_CST);
	return arg;
}

static void processes(void)
{
	volatile int *ring = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t child;
	char c;

	if (ring == MAP_FAILED || pipe(fds))
		_exit(3);
	child = fork();
	if (child == 0) {
		if (in("nonblocking_read")) {
			close(fds[0]);
			forever();
		}
		if (in("ring_writer_computes"))
			burn();
		usleep(300000);
		kill(getpid(), SIGKILL);
	}
	tell("culprit_pid %d", (int)child);
	if (in("nonblocking_read")) {
		close(fds[1]);
		fcntl(fds[0], F_SETFL, O_NONBLOCK);
		ready();
		while (read(fds[0], &c, 1) < 0 && errno == EAGAIN)
			;
		_exit(0);
	}
	usleep(500000);
	ready();
	while (ring[0] == ring[1])
		;
}

int main(int argc, char **argv)
{
	struct timespec t;
	time_t end;
	int last = 0;

	if (argc < 2)
		return 2;
	kase = argv[1];
	if (in("nonblocking_read") || !strncmp(kase, "ring", 4))
		processes();
	tell("culprit_tid %d", tid_now());
	if (in("heartbeat_beside") || in("owner_computes") || in("served") || in("two_for_each_other"))
		spawn(beside, NULL);
	ready();
	if (in("backing_off"))
		for (int n = 1; !is_set(&flag); n = n < 512 ? n * 2 : 512)
			for (volatile int i = 0; i < n; i++)
				;
	if (in("xchg_lock")) {
		__atomic_store_n(&flag, 1, __ATOMIC_SEQ_CST); /* taken, and never given back */
		while (__atomic_exchange_n(&flag, 1, __ATOMIC_ACQUIRE))
			;
	}
	if (in("ticket")) {
		int mine = __atomic_fetch_add(&turn[0], 1, __ATOMIC_SEQ_CST) + 1;

		while (__atomic_load_n(&turn[1], __ATOMIC_ACQUIRE) != mine)
			;
	}
	if (in("two_for_each_other")) {
		while (!is_set(&turn[1]))
			;
		__atomic_store_n(&turn[0], 1, __ATOMIC_SEQ_CST);
	}
	while (in("served")) {
		while (__atomic_load_n(&flag, __ATOMIC_ACQUIRE) == last)
			;
		last = __atomic_load_n(&flag, __ATOMIC_ACQUIRE);
	}
	while (in("same_sum_again"))
		sink = sum();
	if (in("endless_nothing"))
		for (;;)
			__asm__ volatile("");
	while (in("recursion"))
		sink = fib(32);
	if (in("until_a_time")) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		end = t.tv_sec + 600;
		while (t.tv_sec < end)
			clock_gettime(CLOCK_MONOTONIC, &t);
	}
	while (!is_set(&flag)) /* by_function, heartbeat_beside, owner_computes */
		;
	return 0;
}
