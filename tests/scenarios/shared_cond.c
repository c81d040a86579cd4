/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: dead-peer (DEAD_PEER), rendezvous
 * story: processes meet at a condition in shared memory; one of them was killed, stopped, or is slow
 * proof: glibc's pthread_cond_destroy waits for everybody who is inside pthread_cond_wait; who that is, and what became of him, is
 *        written below. The word counts waiters and names none, so the dead one may also honestly be nobody (no-waker).
 * case: destroy_killed class=peer-dead|no-waker|lock-orphaned hung=true
 * case: destroy_stopped class=stopped hung=true culprit=pid
 * case: signaller_killed class=peer-dead|no-waker hung=true
 * case: signaller_stopped class=stopped hung=true culprit=pid
 * case: signaller_computing class=busy-cpu|unknown hung=any
 * case: signaller_locked class=lock-self|unknown hung=any
 * case: signalled class=idle|progressing|busy-cpu hung=false
 * case: barrier_member_killed class=peer-dead|no-waker hung=true
 * case: barrier_member_stopped class=stopped hung=true culprit=pid
 */
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>

#include "scenario.h"

static struct shared {
	pthread_mutex_t m;
	pthread_cond_t c;
	pthread_barrier_t b;
	int turn;
} *s;
static const char *kase;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void child_main(void)
{
	static pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;

	for (int i = 0;; i++) {
		if (!strncmp(kase, "destroy", 7)) {
			pthread_mutex_lock(&s->m);
			s->turn = 1;
			pthread_cond_wait(&s->c, &s->m);
			raise(SIGSTOP);
		}
		usleep(30000);
		if (i == 10) {
			if (strstr(kase, "killed"))
				kill(getpid(), SIGKILL);
			if (strstr(kase, "stopped"))
				raise(SIGSTOP);
			if (strstr(kase, "computing"))
				burn();
			if (strstr(kase, "locked")) {
				pthread_mutex_lock(&own);
				pthread_mutex_lock(&own);
			}
		}
		if (!strncmp(kase, "barrier", 7)) {
			pthread_barrier_wait(&s->b);
			continue;
		}
		pthread_mutex_lock(&s->m);
		s->turn = 1;
		pthread_cond_signal(&s->c);
		pthread_mutex_unlock(&s->m);
	}
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t ma;
	pthread_condattr_t ca;
	pthread_barrierattr_t ba;
	pid_t child;

	if (argc < 2)
		return 2;
	kase = argv[1];
	s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&s->m, &ma);
	pthread_condattr_init(&ca);
	pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED);
	pthread_cond_init(&s->c, &ca);
	pthread_barrierattr_init(&ba);
	pthread_barrierattr_setpshared(&ba, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&s->b, &ba, 2);
	child = fork();
	if (child == 0)
		child_main();
	tell("culprit_pid %d", (int)child);
	if (!strncmp(kase, "destroy", 7)) {
		while (!__atomic_load_n(&s->turn, __ATOMIC_SEQ_CST))
			usleep(1000);
		usleep(200000);
		if (in("destroy_killed")) {
			kill(child, SIGKILL);
		} else { /* woken up, and stopped before it can leave */
			kill(child, SIGSTOP);
			usleep(100000);
			pthread_cond_broadcast(&s->c);
		}
		usleep(200000);
		ready();
		return pthread_cond_destroy(&s->c);
	}
	usleep(500000);
	ready();
	while (!strncmp(kase, "barrier", 7))
		pthread_barrier_wait(&s->b);
	pthread_mutex_lock(&s->m);
	for (;;) {
		while (!s->turn)
			pthread_cond_wait(&s->c, &s->m);
		s->turn = 0;
	}
}
