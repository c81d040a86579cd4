/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: host-lock (HOST_LOCK_CYCLE), teardown, dead-peer
 * story: ordinary hangs in processes that look odd from outside, and waits of uncommon kinds
 * proof: what each thread and child does is below; /proc shows the oddity (a dead leader, a name, a deleted program)
 * case: leader_gone_stuck class=lock-self hung=true culprit=tid
 * case: leader_gone_computing class=busy-cpu hung=false culprit=tid
 * case: name_with_brackets class=stopped hung=true culprit=pid
 * case: program_deleted class=lock-self hung=true culprit=tid
 * case: not_dumpable class=lock-self hung=true culprit=tid user=unknown
 * case: many_threads class=deadlock hung=true
 * case: many_threads_work class=busy-cpu hung=false
 * case: join_ring class=deadlock hung=true
 * case: cond_needs_my_lock class=deadlock|no-waker hung=true
 * case: cond_via_third class=deadlock|no-waker hung=true
 * case: barrier_member_locked class=lock-self|no-waker hung=true
 * case: vfork_child_reads class=peer-silent hung=true culprit=pid
 * case: pidfd_stopped class=stopped hung=true culprit=pid
 * case: wait_any class=busy-cpu|stopped|unknown hung=any
 * case: waitid_grandchild class=stopped hung=true culprit=pid
 * case: splice_silent class=peer-silent hung=true culprit=pid
 * case: spinlock_holder_reads class=spin-wait|peer-silent hung=true
 * case: spinlock_short class=busy-cpu|progressing|idle hung=false
 * case: shm_flag_dead_writer class=spin-wait|peer-dead hung=true
 * case: shm_flag_served class=busy-cpu|progressing|idle|unknown hung=any
 * case: cancelled_owner class=lock-orphaned hung=true culprit=tid
 * case: raw_futex class=no-waker|unknown hung=any
 * case: daemon_child_left class=idle hung=false
 */
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <netinet/in.h>

#include "scenario.h"

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, n = PTHREAD_MUTEX_INITIALIZER, o = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static pthread_spinlock_t spin;
static pthread_barrier_t barrier;
static pthread_t ring[3];
static const char *kase;
static int fds[2], done;
static volatile int *flag;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void *stuck(void *arg)
{
	tell("culprit_tid %d", tid_now());
	pthread_mutex_lock(&m);
	pthread_mutex_lock(&m);
	return arg;
}

static void *computes(void *arg)
{
	tell("culprit_tid %d", tid_now());
	burn();
	return arg;
}

static void *idles(void *arg)
{
	static pthread_mutex_t pool = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t work = PTHREAD_COND_INITIALIZER;

	pthread_mutex_lock(&pool);
	for (;;)
		pthread_cond_wait(&work, &pool);
	return arg;
}

static void *n_then_m(void *arg)
{
	pthread_mutex_lock(&n);
	usleep(300000);
	if (in("many_threads_work"))
		burn();
	pthread_mutex_lock(&m);
	return arg;
}

static void *joins_next(void *arg)
{
	usleep(200000);
	pthread_join(ring[((long)arg + 1) % 3], NULL);
	return NULL;
}

static void *serves_condition(void *arg)
{
	usleep(200000);
	pthread_mutex_lock(in("cond_via_third") ? &o : &m);
	pthread_mutex_lock(&n);
	done = 1;
	pthread_cond_signal(&c);
	pthread_mutex_unlock(&n);
	return arg;
}

static void *third(void *arg) /* between the two: has o, wants m */
{
	pthread_mutex_lock(&o);
	usleep(300000);
	pthread_mutex_lock(&m);
	return arg;
}

static void *barrier_member(void *arg)
{
	if (arg)
		stuck(NULL);
	pthread_barrier_wait(&barrier);
	return NULL;
}

static void *spin_holder(void *arg)
{
	char x;

	do {
		pthread_spin_lock(&spin);
		if (in("spinlock_holder_reads") && read(fds[0], &x, 1) < 0)
			_exit(4);
		usleep(1000);
		pthread_spin_unlock(&spin);
		usleep(1000);
	} while (in("spinlock_short"));
	return arg;
}

static void *is_cancelled(void *arg)
{
	tell("culprit_tid %d", tid_now());
	pthread_mutex_lock(&m);
	pause(); /* a cancellation point; no handler gives the lock back */
	return arg;
}

static pid_t keeps_writing_end(void)
{
	pid_t child;

	if (pipe(fds))
		_exit(3);
	child = fork();
	if (child == 0) {
		close(fds[0]);
		forever();
	}
	close(fds[1]);
	tell("culprit_pid %d", (int)child);
	return child;
}

static pid_t stopped_child(void)
{
	pid_t child = fork();

	if (child == 0) {
		prctl(PR_SET_NAME, "a) S 1 (b\n 2", 0, 0, 0);
		raise(SIGSTOP);
		_exit(0);
	}
	usleep(200000);
	return child;
}

static int processes(void)
{
	struct pollfd p = { .events = POLLIN };
	int status, out[2];
	siginfo_t info;
	pid_t child;
	char x;

	if (in("name_with_brackets")) {
		child = stopped_child();
		tell("culprit_pid %d", (int)child);
		prctl(PR_SET_NAME, "x) R (y", 0, 0, 0);
		ready();
		return waitpid(child, &status, 0) < 0;
	}
	if (in("pidfd_stopped")) {
		child = stopped_child();
		tell("culprit_pid %d", (int)child);
		p.fd = (int)syscall(SYS_pidfd_open, child, 0);
		ready();
		return poll(&p, 1, -1) < 0;
	}
	if (in("wait_any")) {
		stopped_child();
		if (fork() == 0)
			burn();
		ready();
		return wait(&status) < 0;
	}
	if (in("waitid_grandchild")) {
		child = fork();
		if (child == 0) {
			pid_t next = stopped_child();

			tell("culprit_pid %d", (int)next);
			_exit(waitid(P_PID, (id_t)next, &info, WEXITED) < 0);
		}
		usleep(400000);
		ready();
		return waitid(P_ALL, 0, &info, WEXITED) < 0;
	}
	if (in("vfork_child_reads")) { /* the parent is suspended until the child calls exec */
		keeps_writing_end();
		ready();
		child = vfork();
		if (child == 0)
			_exit(read(fds[0], &x, 1) < 0);
		return 0;
	}
	if (in("splice_silent")) {
		keeps_writing_end();
		if (pipe(out))
			return 3;
		ready();
		return splice(fds[0], NULL, out[1], NULL, 65536, 0) < 0;
	}
	if (in("daemon_child_left")) { /* the parent ended; its daemon serves */
		struct sockaddr_in addr = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
		int s = socket(AF_INET, SOCK_STREAM, 0);

		if (bind(s, (struct sockaddr *)&addr, sizeof(addr)) || listen(s, 5))
			return 3;
		child = fork();
		if (child == 0) {
			setsid();
			accept(s, NULL, NULL);
			_exit(0);
		}
		tell("ask_pid %d", (int)child);
		tell("cleanup_pid %d", (int)child);
		ready();
		return 0;
	}
	/* shm_flag_*: a consumer polls a word that its producer writes */
	flag = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	child = fork();
	if (child == 0) {
		for (int i = 0;; i++) {
			usleep(5000);
			*flag = 1;
			if (i == 50 && in("shm_flag_dead_writer"))
				kill(getpid(), SIGKILL);
		}
	}
	tell("culprit_pid %d", (int)child);
	if (nice(10) == -100)
		return 3;
	ready();
	for (;;) {
		while (!*flag)
			__builtin_ia32_pause();
		*flag = 0;
	}
}

int main(int argc, char **argv)
{
	pthread_t t;
	char self[512], copy[64] = "./gone";

	if (argc < 2)
		return 2;
	kase = argv[1];
	if (in("leader_gone_stuck") || in("leader_gone_computing")) {
		spawn(in("leader_gone_stuck") ? stuck : computes, NULL);
		usleep(200000);
		ready();
		pthread_exit(NULL);
	}
	if (in("program_deleted") && !getenv("SCENARIO_COPIED")) {
		ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);
		char command[700];

		self[len] = 0;
		snprintf(command, sizeof(command), "cp %s %s", self, copy);
		if (system(command))
			return 3;
		setenv("SCENARIO_COPIED", "1", 1);
		execv(copy, argv);
		return 3;
	}
	if (in("program_deleted") || in("not_dumpable")) {
		unlink(copy);
		if (in("not_dumpable"))
			prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
		ready();
		stuck(NULL);
	}
	if (!strncmp(kase, "many_threads", 12)) {
		for (int i = 0; i < 300; i++)
			spawn(idles, NULL);
		pthread_mutex_lock(&m);
		spawn(n_then_m, NULL);
		usleep(600000);
		ready();
		pthread_mutex_lock(&n);
	}
	if (in("join_ring")) {
		for (long i = 0; i < 3; i++)
			ring[i] = spawn(joins_next, (void *)i);
		usleep(500000);
		ready();
		sleep(1);
		pthread_join(ring[0], NULL);
		forever();
	}
	if (in("cond_needs_my_lock") || in("cond_via_third")) {
		pthread_mutex_lock(&m);
		if (in("cond_via_third"))
			spawn(third, NULL);
		usleep(50000);
		spawn(serves_condition, NULL);
		pthread_mutex_lock(&n);
		usleep(500000);
		ready();
		while (!done)
			pthread_cond_wait(&c, &n);
	}
	if (in("barrier_member_locked")) {
		pthread_barrier_init(&barrier, NULL, 3);
		spawn(barrier_member, NULL);
		spawn(barrier_member, &m);
		usleep(200000);
		ready();
		pthread_barrier_wait(&barrier);
	}
	if (!strncmp(kase, "spinlock", 8)) {
		pthread_spin_init(&spin, 0);
		if (in("spinlock_holder_reads"))
			keeps_writing_end();
		t = spawn(spin_holder, NULL);
		usleep(200000);
		if (nice(10) == -100)
			return 3;
		ready();
		do {
			pthread_spin_lock(&spin);
			pthread_spin_unlock(&spin);
			usleep(100);
		} while (in("spinlock_short"));
		return pthread_join(t, NULL);
	}
	if (in("cancelled_owner")) {
		t = spawn(is_cancelled, NULL);
		usleep(200000);
		pthread_cancel(t);
		pthread_join(t, NULL);
		ready();
		pthread_mutex_lock(&m);
	}
	if (in("raw_futex")) {
		static int word = 7;

		spawn(idles, NULL);
		ready();
		syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 7, NULL, NULL, 0);
	}
	return processes();
}
