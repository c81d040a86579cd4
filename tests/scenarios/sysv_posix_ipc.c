/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: rendezvous, dead-peer
 * story: processes meet through System V or POSIX objects and one of them waits for ever
 * proof: the child is the only other process that knows the object; what it does is written below. These
 *        objects name at most who used them last, so a killed user may also honestly be no-waker.
 * case: semop_holder_computing class=busy-cpu hung=false culprit=pid
 * case: semop_holder_killed class=peer-dead|lock-orphaned|no-waker hung=true
 * case: semop_cycle class=deadlock|no-waker hung=true
 * case: semop_undo class=idle|progressing hung=false
 * case: msgrcv_nobody class=no-waker|unknown hung=any
 * case: mq_full class=pipe-full hung=true culprit=pid
 * case: mq_sender_stopped class=stopped hung=true culprit=pid
 * case: mq_served class=idle|progressing|busy-cpu hung=false
 * case: sem_poster_killed class=peer-dead|no-waker|lock-orphaned hung=true
 * case: sem_poster_stopped class=stopped hung=true culprit=pid
 * case: sem_posted class=idle|progressing|busy-cpu hung=false
 */
#include <mqueue.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/wait.h>

#include "scenario.h"

static const char *kase;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void take(int set, int which, int flags)
{
	struct sembuf op = { .sem_num = (unsigned short)which, .sem_op = -1, .sem_flg = (short)flags };

	semop(set, &op, 1);
}

static int semops(void)
{
	unsigned short ones[2] = { 1, 1 };
	int set = semget(IPC_PRIVATE, 2, 0600);

	tell("remove ipcrm -s %d", set);
	if (set < 0 || semctl(set, 0, SETALL, ones))
		return 3;
	if (fork() == 0) {
		take(set, 0, in("semop_undo") ? SEM_UNDO : 0);
		tell("culprit_pid %d", (int)getpid());
		if (in("semop_holder_computing"))
			burn();
		if (!in("semop_cycle"))
			kill(getpid(), SIGKILL);
		usleep(300000);
		take(set, 1, 0);
		_exit(0);
	}
	if (in("semop_cycle"))
		take(set, 1, 0);
	usleep(600000);
	ready();
	take(set, 0, 0); /* with SEM_UNDO the kernel gave it back */
	for (;;)
		sleep(1000);
}

static int queues(void)
{
	struct mq_attr attr = { .mq_maxmsg = 4, .mq_msgsize = 64 };
	char name[64], text[64] = "x";
	mqd_t q;

	snprintf(name, sizeof(name), "/scenario-%d", (int)getpid());
	q = mq_open(name, O_RDWR | O_CREAT | O_EXCL, 0600, &attr);
	if (q < 0)
		return 3;
	mq_unlink(name);
	if (fork() == 0) {
		tell("culprit_pid %d", (int)getpid());
		if (in("mq_sender_stopped"))
			raise(SIGSTOP);
		while (in("mq_served")) {
			usleep(50000);
			mq_send(q, text, 1, 0);
		}
		forever();
	}
	usleep(200000);
	ready();
	for (;;) {
		if (in("mq_full"))
			mq_send(q, text, 1, 0);
		else
			mq_receive(q, text, sizeof(text), NULL);
	}
}

static int shared_semaphore(void)
{
	sem_t *s = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	sem_init(s, 1, 0);
	if (fork() == 0) {
		tell("culprit_pid %d", (int)getpid());
		for (int i = 0;; i++) {
			usleep(50000);
			if (i == 5 && in("sem_poster_killed"))
				kill(getpid(), SIGKILL);
			if (i == 5 && in("sem_poster_stopped"))
				raise(SIGSTOP);
			sem_post(s);
		}
	}
	usleep(500000);
	ready();
	while (sem_wait(s) == 0)
		;
	return 1;
}

int main(int argc, char **argv)
{
	struct {
		long type;
		char text[8];
	} message;

	if (argc < 2)
		return 2;
	kase = argv[1];
	if (!strncmp(kase, "mq_", 3))
		return queues();
	if (!strncmp(kase, "semop", 5))
		return semops();
	if (in("msgrcv_nobody")) {
		int q = msgget(IPC_PRIVATE, 0600);

		tell("remove ipcrm -q %d", q);
		ready();
		return msgrcv(q, &message, sizeof(message.text), 0, 0) < 0;
	}
	return shared_semaphore();
}
