/* SPDX-License-Identifier: Apache-2.0 */
/* scenario
 * section: dead-peer (PID_NAMESPACE), file-lock, slow-not-hung
 * story: a container hangs, and the question is asked from outside
 * proof: unshare() makes the namespaces here; what the process inside does is written below, and the pid that fork() gives its
 *        parent, outside, is the one that the asker must see
 * case: inside_self class=lock-self hung=true culprit=pid needs=root
 * case: inside_computing class=busy-cpu hung=false culprit=pid needs=root
 * case: inside_pipe_stopped class=stopped hung=true culprit=pid needs=root
 * case: inside_flock class=file-lock hung=true culprit=pid needs=root
 * case: inside_log class=log-buffered hung=false needs=root says=train.log settle=3
 * case: inside_log_works class=busy-cpu|progressing hung=false needs=root
 * case: inside_shared_lock class=stopped hung=true culprit=pid needs=root
 */
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "scenario.h"

static const char *kase;
static int up[2], data[2], state[2];
static pthread_mutex_t *shared;

static bool in(const char *name)
{
	return !strcmp(kase, name);
}

static void second(void)
{
	int fd;

	if (in("inside_flock")) {
		fd = open("held.lock", O_RDWR | O_CREAT, 0600);
		flock(fd, LOCK_EX);
		close(up[1]);
		forever();
	}
	if (in("inside_shared_lock"))
		pthread_mutex_lock(shared);
	close(up[1]);
	close(data[0]);
	raise(SIGSTOP);
	_exit(0);
}

/* Process 1 of its namespace, with a directory of its own in place of the job's. */
static int inside(void)
{
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	FILE *log;
	char c;
	int fd;

	if (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("proc", "/proc", "proc", 0, NULL))
		return 3;
	if (in("inside_flock") || in("inside_pipe_stopped") || in("inside_shared_lock")) {
		if (fork() == 0)
			second();
		close(up[1]);
		if (read(up[0], &c, 1) < 0)
			return 3;
	}
	if (write(state[1], "x", 1) != 1)
		return 3;
	if (in("inside_self")) {
		pthread_mutex_lock(&m);
		pthread_mutex_lock(&m);
	}
	if (in("inside_computing"))
		burn();
	if (in("inside_pipe_stopped")) {
		close(data[1]);
		return read(data[0], &c, 1) < 0;
	}
	if (in("inside_shared_lock"))
		return pthread_mutex_lock(shared);
	if (in("inside_flock")) {
		fd = open("held.lock", O_RDWR);
		return flock(fd, LOCK_EX);
	}
	if (mkdir("logs", 0777) || mount("tmpfs", "logs", "tmpfs", 0, NULL))
		return 3;
	log = fopen("logs/train.log", "w");
	if (in("inside_log_works"))
		setvbuf(log, NULL, _IOLBF, 4096);
	for (unsigned long i = 1;; i++) {
		volatile double x = 0;

		for (int k = 0; k < 3000000; k++)
			x += k;
		fprintf(log, "s\n");
	}
}

/* The pids, as we see them, of the processes below: /proc says who has whom as a parent. */
static void tell_child_of(pid_t parent, const char *as)
{
	char path[64], line[256] = "";
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)parent, (int)parent);
	f = fopen(path, "r");
	if (f && fgets(line, sizeof(line), f))
		tell("%s %d", as, atoi(line));
	if (f)
		fclose(f);
}

int main(int argc, char **argv)
{
	pthread_mutexattr_t attr;
	int status;
	pid_t pid;
	char c;

	if (argc < 2 || pipe(up) || pipe(data) || pipe(state))
		return 2;
	kase = argv[1];
	shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(shared, &attr);
	if (unshare(CLONE_NEWPID))
		return 3;
	pid = fork();
	if (pid == 0)
		_exit(inside());
	close(up[1]);
	close(data[0]);
	close(data[1]);
	if (read(state[0], &c, 1) != 1)
		return 3;
	usleep(200000);
	if (in("inside_flock") || in("inside_pipe_stopped") || in("inside_shared_lock"))
		tell_child_of(pid, "culprit_pid");
	else
		tell("culprit_pid %d", (int)pid);
	if (!strncmp(kase, "inside_log", 10))
		tell("ask_pid %d", (int)pid);
	ready();
	return waitpid(pid, &status, 0) < 0;
}
