/* scenario
 * section: file-lock
 * story: start-up never ends; the process sleeps and uses no CPU to speak of
 * proof: the child takes the lock (or leaves the file) and the parent asks for it, both below
 * case: flock class=file-lock hung=true culprit=pid
 * case: fcntl class=file-lock hung=true culprit=pid
 * case: flock_working class=busy-cpu hung=false culprit=pid
 * case: stale_file class=file-lock hung=true settle=4
 * case: no_file class=idle|progressing hung=false
 */
/* SPDX-License-Identifier: Apache-2.0 */
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <utime.h>

#include "scenario.h"

static volatile double sink;

int main(int argc, char **argv)
{
	char path[512];
	struct flock fl = { .l_type = F_WRLCK, .l_whence = SEEK_SET };
	struct utimbuf old = { 1700000000, 1700000000 };
	struct stat st;
	int fd;

	snprintf(path, sizeof(path), "%s/cache.lock", getenv("SCENARIO_DIR"));
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (is(argc, argv, "stale_file") || is(argc, argv, "no_file")) {
		close(fd);
		utime(path, &old);
		ready();
		if (is(argc, argv, "no_file"))
			for (;;)
				usleep(100000);
		while (!stat(path, &st))
			usleep(100000);
		return 0;
	}
	close(fd);
	if (fork() == 0) {
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (is(argc, argv, "fcntl"))
			fcntl(fd, F_SETLKW, &fl);
		else
			flock(fd, LOCK_EX);
		tell("culprit_pid %d", (int)getpid());
		if (is(argc, argv, "flock_working"))
			for (unsigned long i = 1;; i++)
				sink = sink * 0.999 + (double)(i % 977) / 3.0;
		forever();
	}
	usleep(300000);
	ready();
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (is(argc, argv, "fcntl"))
		fcntl(fd, F_SETLKW, &fl);
	else
		flock(fd, LOCK_EX);
	return 0;
}
