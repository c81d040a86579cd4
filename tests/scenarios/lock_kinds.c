/* scenario
 * section: host-lock (HOST_LOCK_CYCLE, HOST_LOCK_ORPHAN), dead-peer
 * story: locks and signals of less common kinds, writers that are gone while their pipe lives on
 * proof: what each thread and child does is below
 * case: normal_by_name class=lock-orphaned hung=true culprit=tid
 * case: normal_shared class=lock-orphaned hung=true culprit=pid
 * case: normal_shared_stopped class=stopped hung=true culprit=pid
 * case: c11_cycle class=deadlock hung=true
 * case: c11_owner_computes class=busy-cpu hung=false culprit=tid
 * case: pi_self class=lock-self|no-waker hung=true
 * case: pi_cycle class=deadlock hung=true
 * case: pi_owner_computes class=busy-cpu hung=false culprit=tid
 * case: foreign_lock class=no-waker|unknown hung=any
 * case: signaller_paused class=no-waker hung=true
 * case: signaller_handles class=idle hung=false
 * case: signaller_gone class=no-waker hung=true
 * case: writer_killed_brother_holds class=peer-dead hung=true culprit=pid user=peer-silent
 * case: writer_lives_brother_done class=peer-silent hung=true culprit=pid
 * case: leader_gone_reads class=peer-silent hung=true culprit=pid settle=3
 * case: leader_gone_reads_worker class=busy-cpu hung=false culprit=pid
 * case: leader_gone_writes class=peer-silent hung=true culprit=pid
 */
#include <linux/futex.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>

#include "scenario.h"

static pthread_mutex_t m, pi[2], *shared;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static mtx_t a, b;
static const char *kase;
static int fds[2];

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void init(pthread_mutex_t *lock, int pshared)
{
	pthread_mutexattr_t attr;

	pthread_mutexattr_init(&attr);
	pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_NORMAL); /* by name: another kind than by default */
	pthread_mutexattr_setpshared(&attr, pshared);
	pthread_mutex_init(lock, &attr);
}

static void *takes_and_ends(void *arg)
{
	tell("culprit_tid %d", tid_now());
	pthread_mutex_lock(&m);
	return arg;
}

static void *other(void *arg)
{
	mtx_lock(&b);
	usleep(200000);
	if (in("c11_owner_computes")) {
		tell("culprit_tid %d", tid_now());
		burn();
	}
	mtx_lock(&a);
	return arg;
}

static void *inheriting(void *arg)
{
	pthread_mutex_lock(&pi[1]);
	usleep(200000);
	if (in("pi_owner_computes")) {
		tell("culprit_tid %d", tid_now());
		burn();
	}
	pthread_mutex_lock(&pi[0]);
	return arg;
}

static void on_usr1(int sig)
{
	(void)sig;
}

static void *signals(void *arg)
{
	if (in("signaller_gone")) {
		pthread_cond_signal(&c); /* before anybody waits */
		return arg;
	}
	for (;;) {
		pause();
		pthread_cond_signal(&c);
	}
}

static void *reads(void *arg)
{
	char x;

	usleep(300000); /* the leader has ended by then */
	if (read(fds[0], &x, 1) < 0)
		_exit(4);
	return arg;
}

static void *holds(void *arg)
{
	forever();
	return arg;
}

static int pipes(void)
{
	pid_t child, brother;
	char x;

	if (pipe(fds))
		return 3;
	child = fork();
	if (child == 0) {
		close(fds[0]);
		if (in("leader_gone_writes")) {
			spawn(holds, NULL);
			pthread_exit(NULL);
		}
		if (in("leader_gone_reads_worker"))
			burn();
		forever();
	}
	tell("culprit_pid %d", (int)child);
	if (!strncmp(kase, "writer", 6)) {
		brother = fork();
		if (brother == 0) {
			close(fds[0]);
			if (in("writer_lives_brother_done"))
				_exit(0);
			forever();
		}
		usleep(200000);
		if (in("writer_killed_brother_holds"))
			kill(child, SIGKILL);
	}
	close(fds[1]);
	if (!strncmp(kase, "leader_gone_reads", 17)) {
		spawn(reads, NULL);
		ready();
		pthread_exit(NULL);
	}
	usleep(300000);
	ready();
	return read(fds[0], &x, 1) < 0;
}

int main(int argc, char **argv)
{
	static int words[8] = { 2, 0, 7, 1, 0, 0, 0, 0 }; /* a lock of the program's own: no pthread mutex */
	pthread_t t;
	pid_t child;
	int status;

	if (argc < 2)
		return 2;
	kase = argv[1];
	init(&m, PTHREAD_PROCESS_PRIVATE);
	if (in("normal_by_name")) {
		t = spawn(takes_and_ends, NULL);
		pthread_join(t, NULL);
		ready();
		pthread_mutex_lock(&m);
	}
	if (in("normal_shared") || in("normal_shared_stopped")) {
		shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
		init(shared, PTHREAD_PROCESS_SHARED);
		child = fork();
		if (child == 0) {
			pthread_mutex_lock(shared);
			if (in("normal_shared_stopped"))
				raise(SIGSTOP);
			_exit(0);
		}
		tell("culprit_pid %d", (int)child);
		if (in("normal_shared"))
			waitpid(child, &status, 0);
		usleep(200000);
		ready();
		pthread_mutex_lock(shared);
	}
	if (!strncmp(kase, "c11", 3)) {
		mtx_init(&a, mtx_plain);
		mtx_init(&b, mtx_timed);
		mtx_lock(&a);
		spawn(other, NULL);
		usleep(500000);
		ready();
		mtx_lock(&b);
	}
	if (!strncmp(kase, "pi_", 3)) { /* the kernel refuses what would close a ring: glibc waits for ever then */
		pthread_mutexattr_t attr;

		pthread_mutexattr_init(&attr);
		pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
		pthread_mutex_init(&pi[0], &attr);
		pthread_mutex_init(&pi[1], &attr);
		pthread_mutex_lock(&pi[0]);
		if (!in("pi_self"))
			spawn(inheriting, NULL);
		usleep(500000);
		ready();
		pthread_mutex_lock(&pi[in("pi_self") ? 0 : 1]);
		forever();
	}
	if (in("foreign_lock")) {
		spawn(holds, NULL);
		ready();
		syscall(SYS_futex, words, FUTEX_WAIT_PRIVATE, 2, NULL, NULL, 0);
	}
	if (!strncmp(kase, "signaller", 9)) {
		if (in("signaller_handles"))
			signal(SIGUSR1, on_usr1);
		t = spawn(signals, NULL);
		usleep(200000);
		ready();
		pthread_mutex_lock(&m);
		for (;;)
			pthread_cond_wait(&c, &m);
	}
	return pipes();
}
