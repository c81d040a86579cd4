// SPDX-License-Identifier: Apache-2.0
/*
 * account.c - the memory of the simulated devices, shared by all processes of a user or session.
 *
 * One small file in /dev/shm has a row per process: how many bytes it holds of each device. Only
 * the process writes its row. Whether a process still lives is asked of the kernel: it holds a
 * record lock (fcntl) on its row's bytes, and the kernel drops that when the process ends,
 * however it ends; a zombie holds none, a reused PID none, a forked child none. So there is no
 * lock that a SIGKILL could leave held and nothing to clean up: a row nobody locks counts nothing.
 *
 * An allocation adds first and then looks at the sum: two processes may both see too much, never
 * both too little. Who sees too much takes it back and tries again after a pause that differs
 * from row to row.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

#define ROWS 512
#define MAGIC 0x53494d4750553101ull

struct row {
	_Atomic uint64_t used[SG_MAX_DEVICES];
	_Atomic uint64_t pid;
	uint64_t spare[15];
};

struct book {
	_Atomic uint64_t magic;
	uint64_t spare[31];
	struct row rows[ROWS];
};

static struct book *book;
static int book_fd = -1;
static int mine = -1;
static char book_path[160];
static pid_t owner;

static off_t row_offset(int row)
{
	return (off_t)offsetof(struct book, rows) + (off_t)row * (off_t)sizeof(struct row);
}

/* cmd: F_SETLK, F_SETLKW, F_GETLK; returns fcntl's result, *type is what F_GETLK found */
static int range_lock(int cmd, short *type, off_t start, off_t len)
{
	struct flock l = {.l_type = *type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
	int rc;

	do
		rc = fcntl(book_fd, cmd, &l);
	while (rc < 0 && errno == EINTR);
	*type = l.l_type;
	return rc;
}

static bool row_alive(int row)
{
	short type = F_WRLCK;

	if (row == mine)
		return true;
	return !range_lock(F_GETLK, &type, row_offset(row), sizeof(struct row)) && type != F_UNLCK;
}

/* The last one out removes the file; opening and removing exclude each other by byte 0. */
static void leave(void)
{
	short type = F_WRLCK;
	off_t rest = row_offset(ROWS);

	if (mine < 0 || getpid() != owner)
		return;
	if (range_lock(F_SETLK, &type, 0, 1))
		return;
	type = F_WRLCK;
	if (!range_lock(F_GETLK, &type, row_offset(0), rest - row_offset(0)) && type == F_UNLCK)
		unlink(book_path);
}

static int try_open(void)
{
	struct stat here, there;
	short type = F_RDLCK;
	uint64_t zero = 0;

	book_fd = open(book_path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (book_fd < 0)
		return -errno;
	if (range_lock(F_SETLKW, &type, 0, 1))
		goto fail;
	if (fstat(book_fd, &here) || stat(book_path, &there) || here.st_ino != there.st_ino) {
		close(book_fd);
		return -EAGAIN; /* removed between open and lock */
	}
	if (here.st_uid != geteuid()) {
		close(book_fd);
		return -EPERM;
	}
	if (here.st_size < (off_t)sizeof(struct book) && ftruncate(book_fd, sizeof(struct book)))
		goto fail;
	if (posix_fallocate(book_fd, 0, sizeof(struct book)))
		goto fail;
	book = mmap(NULL, sizeof(*book), PROT_READ | PROT_WRITE, MAP_SHARED, book_fd, 0);
	if (book == MAP_FAILED) {
		book = NULL;
		goto fail;
	}
	if (!atomic_compare_exchange_strong(&book->magic, &zero, MAGIC) && zero != MAGIC) {
		errno = EINVAL;
		goto fail;
	}
	for (int i = 0; i < ROWS; i++) {
		type = F_WRLCK;
		if (range_lock(F_SETLK, &type, row_offset(i), sizeof(struct row)))
			continue;
		for (int d = 0; d < SG_MAX_DEVICES; d++)
			atomic_store(&book->rows[i].used[d], 0);
		atomic_store(&book->rows[i].pid, (uint64_t)getpid());
		mine = i;
		break;
	}
	type = F_UNLCK;
	range_lock(F_SETLK, &type, 0, 1);
	if (mine < 0) {
		errno = EUSERS;
		goto fail;
	}
	return 0;
fail:
	mine = -1;
	{
		int err = errno ? errno : EIO;

		close(book_fd);
		book_fd = -1;
		return -err;
	}
}

/*
 * Sessions whose last process was killed left their file behind: one nobody holds a row of goes.
 * Closing another file than our own does not touch our locks.
 */
static void sweep(void)
{
	char prefix[32], path[320];
	DIR *d = opendir("/dev/shm");
	struct dirent *e;
	int n;

	if (!d)
		return;
	n = snprintf(prefix, sizeof(prefix), "simgpu-%u", geteuid());
	while ((e = readdir(d))) {
		struct flock all = {
			.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = row_offset(0)};
		struct flock first = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_len = 1};
		int fd;

		if (strncmp(e->d_name, prefix, (size_t)n) || (e->d_name[n] && e->d_name[n] != '-'))
			continue;
		snprintf(path, sizeof(path), "/dev/shm/%s", e->d_name);
		if (!strcmp(path, book_path))
			continue;
		fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		if (fd < 0)
			continue;
		if (!fcntl(fd, F_SETLK, &first) && !fcntl(fd, F_GETLK, &all) &&
		    all.l_type == F_UNLCK)
			unlink(path);
		close(fd);
	}
	closedir(d);
}

/* out: 0 or -errno */
int sg_account_open(void)
{
	const char *session = getenv("SIMGPU_SESSION");
	int rc, n;

	n = snprintf(book_path, sizeof(book_path), "/dev/shm/simgpu-%u%s%.100s", geteuid(),
		     session && *session ? "-" : "", session ? session : "");
	for (char *c = book_path + strlen("/dev/shm/"); c < book_path + n && *c; c++)
		if (*c == '/')
			*c = '_';
	do
		rc = try_open();
	while (rc == -EAGAIN);
	if (rc)
		return rc;
	owner = getpid();
	sweep();
	atexit(leave);
	return 0;
}

uint64_t sg_used(int dev)
{
	uint64_t sum = 0;

	for (int i = 0; i < ROWS; i++) {
		uint64_t used = atomic_load(&book->rows[i].used[dev]);

		if (used && row_alive(i))
			sum += used;
	}
	return sum;
}

int sg_charge(int dev, uint64_t bytes)
{
	struct row *r = &book->rows[mine];

	for (int try = 0; try < 5; try++) {
		struct timespec pause = {0, 100000L * (try + 1) + 37000L * (mine % 16)};
		uint64_t sum;

		atomic_fetch_add(&r->used[dev], bytes);
		sum = sg_used(dev);
		if (sum <= sg.memory)
			return 0;
		atomic_fetch_sub(&r->used[dev], bytes);
		/* The sum may have held a neighbour's attempt that failed as well. */
		if (try && sg_used(dev) + bytes > sg.memory)
			break;
		nanosleep(&pause, NULL);
	}
	return -1;
}

void sg_uncharge(int dev, uint64_t bytes)
{
	atomic_fetch_sub(&book->rows[mine].used[dev], bytes);
}
