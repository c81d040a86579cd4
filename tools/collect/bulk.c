/* SPDX-License-Identifier: Apache-2.0 */
/* bulk.c - many small files, on a thread that can be left behind (see bulk.h). */
#include "bulk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "sources.h"

#define ALIGN 8u
#define MIN_CAP (1u << 20)

struct record {
	uint32_t size; /* of the whole record, header included */
	int16_t kind;
	int16_t err;
	int32_t id;
	uint32_t len;
	uint64_t at_ns;
	char text[];
};

enum { RUNNING, DONE, ABANDONED };

struct wg_bulk {
	char *base;
	size_t cap;	       /* bytes reserved for records */
	_Atomic size_t used;   /* complete records: written by the job, read by the collector */
	const char *last;
	void *arg;
	int *fds;
	int nfds;
	bool left;	       /* the thread may still run */
	_Atomic int state;     /* RUNNING, then DONE or ABANDONED: the later of the two frees */
	void (*fn)(struct wg_bulk *b);
};

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

struct wg_bulk *wg_bulk_new(size_t cap, size_t arg_size)
{
	struct wg_bulk *b = calloc(1, sizeof(*b));

	if (!b)
		return NULL;
	b->arg = calloc(1, arg_size ? arg_size : 1);
	/*
	 * Reserved only: pages come with the records, and stay where they are. Less will do where
	 * address space is limited or no memory may be promised that is not there.
	 */
	while ((b->base = mmap(NULL, cap, PROT_READ | PROT_WRITE,
			       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) == MAP_FAILED &&
	       cap > MIN_CAP)
		cap /= 2;
	if (!b->arg || b->base == MAP_FAILED) {
		if (b->base != MAP_FAILED)
			munmap(b->base, cap);
		free(b->arg);
		free(b);
		return NULL;
	}
	madvise(b->base, cap, MADV_NOHUGEPAGE); /* most jobs are small: not 2 MiB of zeroes each */
	b->cap = cap;
	b->last = "";
	return b;
}

void *wg_bulk_arg(struct wg_bulk *b)
{
	return b->arg;
}

int wg_bulk_own_fd(struct wg_bulk *b, int fd)
{
	int *more, copy;

	if (fd < 0)
		return -1;
	more = realloc(b->fds, (size_t)(b->nfds + 1) * sizeof(*more));
	if (!more)
		return -1;
	b->fds = more;
	copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (copy >= 0)
		b->fds[b->nfds++] = copy;
	return copy;
}

static void release(struct wg_bulk *b)
{
	for (int i = 0; i < b->nfds; i++)
		close(b->fds[i]);
	free(b->fds);
	munmap(b->base, b->cap);
	free(b->arg);
	free(b);
}

static void run(void *arg)
{
	struct wg_bulk *b = arg;

	b->fn(b);
	if (atomic_exchange(&b->state, DONE) == ABANDONED)
		release(b); /* it came back after all, and nobody waits for it any more */
}

int wg_bulk_run(struct wg_bulk *b, double seconds, void (*fn)(struct wg_bulk *b))
{
	int rc;

	b->fn = fn;
	rc = wg_with_deadline(seconds, run, b);
	if (rc == -ETIMEDOUT) {
		b->left = true;
	} else if (rc) {
		/* No thread to be had: a limit on processes may be the very thing to find. */
		fn(b);
		rc = 0;
	}
	return rc;
}

void wg_bulk_free(struct wg_bulk *b)
{
	if (!b || (b->left && atomic_exchange(&b->state, ABANDONED) != DONE))
		return;
	release(b);
}

bool wg_bulk_next(struct wg_bulk *b, size_t *cursor, struct wg_raw *out)
{
	size_t used = atomic_load_explicit(&b->used, memory_order_acquire);
	struct record *r;

	if (*cursor >= used)
		return false;
	r = (struct record *)(b->base + *cursor);
	out->kind = r->kind;
	out->id = r->id;
	out->err = r->err;
	out->at = (double)r->at_ns * 1e-9;
	out->text = r->text;
	out->len = r->len;
	*cursor += r->size;
	return true;
}

/* Room for a record of at least `want` bytes of text; *room says how much there is. */
static struct record *begin(struct wg_bulk *b, size_t want, size_t *room)
{
	size_t used = atomic_load_explicit(&b->used, memory_order_relaxed);
	size_t left = b->cap - used;

	if (left < sizeof(struct record) + want + 1 + ALIGN)
		return NULL;
	*room = left - sizeof(struct record) - 1 - ALIGN;
	return (struct record *)(b->base + used);
}

static int commit(struct wg_bulk *b, struct record *r, int kind, int id, int err, size_t len)
{
	size_t size = (sizeof(*r) + len + 1 + ALIGN - 1) & ~(size_t)(ALIGN - 1);

	r->kind = (int16_t)kind;
	r->id = id;
	r->err = (int16_t)err;
	r->len = (uint32_t)len;
	r->at_ns = now_ns();
	r->text[len] = 0;
	r->size = (uint32_t)size;
	b->last = r->text;
	atomic_fetch_add_explicit(&b->used, size, memory_order_release);
	return err;
}

int wg_bulk_put(struct wg_bulk *b, int kind, int id, int err, const void *data, size_t len)
{
	struct record *r;
	size_t room;

	r = begin(b, len, &room);
	if (!r)
		return -ENOSPC;
	if (len)
		memcpy(r->text, data, len);
	return commit(b, r, kind, id, err, len);
}

const char *wg_bulk_last(const struct wg_bulk *b)
{
	return b->last;
}

/*
 * Most files here are made by the kernel in one go: a read that did not fill the buffer is
 * the whole of it, and a second read to see the end would cost as much again. Those that
 * are made line by line (max > SINGLE) are read until the end.
 */
#define SINGLE 8192

int wg_bulk_file(struct wg_bulk *b, int dirfd, const char *name, int kind, int id, size_t max)
{
	struct record *r;
	size_t room, n = 0;
	int fd, err = 0;

	r = begin(b, 0, &room);
	if (!r)
		return -ENOSPC;
	fd = openat(dirfd, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	if (fd < 0)
		return commit(b, r, kind, id, -errno, 0);
	if (max > room)
		max = room;
	while (n < max) {
		ssize_t k = read(fd, r->text + n, max - n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			err = n ? 0 : -errno;
		if (k <= 0)
			break;
		n += (size_t)k;
		if (max <= SINGLE && n < max)
			break;
	}
	close(fd);
	return commit(b, r, kind, id, err, err ? 0 : n);
}

int wg_bulk_link(struct wg_bulk *b, int dirfd, const char *name, int kind, int id)
{
	struct record *r;
	size_t room;
	ssize_t n;

	r = begin(b, 4096, &room);
	if (!r)
		return -ENOSPC;
	n = readlinkat(dirfd, name, r->text, 4096);
	if (n < 0)
		return commit(b, r, kind, id, -errno, 0);
	return commit(b, r, kind, id, 0, (size_t)n);
}

int wg_bulk_numbers(struct wg_bulk *b, int dirfd, const char *name, int kind,
		    void (*each)(struct wg_bulk *b, int number, void *arg), void *arg)
{
	char buf[16 * 1024] __attribute__((aligned(8)));
	int fd, count = 0, err = 0;
	long n;

	fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	while ((n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < n;) {
			struct dirent64 *d = (struct dirent64 *)(buf + at);
			char *end;
			long v;

			at += d->d_reclen;
			if (d->d_name[0] < '0' || d->d_name[0] > '9')
				continue;
			v = strtol(d->d_name, &end, 10);
			if (*end || v < 0 || v > INT32_MAX)
				continue;
			count++;
			if (kind >= 0 && wg_bulk_put(b, kind, (int)v, 0, NULL, 0) == -ENOSPC) {
				err = -ENOSPC;
				goto out;
			}
			if (each)
				each(b, (int)v, arg);
		}
	}
	if (n < 0)
		err = -errno;
out:
	close(fd);
	return err ? err : count;
}

static char state_in(int dir, const char *name)
{
	char text[512];
	int fd = openat(dir, name, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
	const char *end;

	if (fd >= 0)
		close(fd);
	if (n <= 0)
		return 0;
	text[n] = 0;
	end = strrchr(text, ')'); /* the name before it may hold anything */
	return end && end[1] == ' ' ? end[2] : 0;
}

int wg_living_dir(int piddir)
{
	char buf[4096] __attribute__((aligned(8))), name[300];
	int fd, found = -1;
	long n;

	if (state_in(piddir, "stat") != 'Z')
		return -1;
	fd = openat(piddir, "task", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	while (fd >= 0 && found < 0 && (n = syscall(SYS_getdents64, fd, buf, sizeof(buf))) > 0) {
		for (long at = 0; at < n && found < 0;) {
			struct dirent64 *d = (struct dirent64 *)(buf + at);
			char state;

			at += d->d_reclen;
			if (d->d_name[0] < '0' || d->d_name[0] > '9')
				continue;
			snprintf(name, sizeof(name), "%s/stat", d->d_name);
			state = state_in(fd, name);
			if (state && state != 'Z' && state != 'X')
				found = openat(fd, d->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		}
	}
	if (fd >= 0)
		close(fd);
	return found;
}
