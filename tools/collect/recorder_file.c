/* SPDX-License-Identifier: Apache-2.0 */
/* recorder_file.c - open a recorder file, check its header, copy its sections and names. */
#include "recorder_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

#define MAX_FILE (4ull << 30)	  /* sparse: what is reserved may be large */
#define MAX_LOADED (192ull << 20) /* what is copied may not */

/* ---- opening ---------------------------------------------------------------- */

struct opening { /* on the heap: a deadline may leave it behind */
	char path[PATH_MAX];
	int fd, err;
	const char *why;
	struct stat st;
};

/* An O_PATH descriptor first: opening a device or a FIFO would already have an effect. */
static int open_path(const char *path)
{
	unsigned int pid;
	int root, fd, n = 0;

	if (sscanf(path, "/proc/%u/root/%n", &pid, &n) == 1 && n > 0) {
		struct open_how how = {
			.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
			/* A container's absolute links must not lead into the asker's files. */
			.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
		};
		char prefix[64];

		snprintf(prefix, sizeof(prefix), "/proc/%u/root", pid);
		root = open(prefix, O_PATH | O_DIRECTORY | O_CLOEXEC);
		if (root < 0)
			return -errno;
		fd = (int)syscall(SYS_openat2, root, path + n, &how, sizeof(how));
		if (fd < 0)
			fd = errno == ENOSYS ? openat(root, path + n, (int)how.flags) : -1;
		if (fd < 0)
			fd = -errno;
		close(root);
		return fd;
	}
	n = 0;
	if (sscanf(path, "/proc/%u/fd/%*u%n", &pid, &n) == 1 && n > 0 && !path[n]) {
		char link[64];
		ssize_t k = readlink(path, link, sizeof(link) - 1);

		if (k < 0)
			return -errno;
		link[k] = 0;
		if (strncmp(link, "/memfd:waitgraph-rec", 20))
			return -ENOENT;
		fd = open(path, O_PATH | O_CLOEXEC);
	} else {
		fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	}
	return fd < 0 ? -errno : fd;
}

static void do_open(void *arg)
{
	struct opening *o = arg;
	struct statfs fs;
	char self[64];
	int at = open_path(o->path);

	o->fd = -1;
	if (at < 0) {
		o->err = at;
		return;
	}
	if (fstat(at, &o->st)) {
		o->err = -errno;
	} else if (!S_ISREG(o->st.st_mode)) {
		o->err = -EINVAL;
		o->why = "not a regular file";
	} else if (fstatfs(at, &fs)) {
		o->err = -errno;
	} else if (fs.f_type != TMPFS_MAGIC && fs.f_type != RAMFS_MAGIC) {
		/* Anything else (FUSE, a network) could make the reader wait for ever. */
		o->err = -EINVAL;
		o->why = "not on a tmpfs";
	} else {
		snprintf(self, sizeof(self), "/proc/self/fd/%d", at);
		o->fd = open(self, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
		o->err = o->fd < 0 ? -errno : 0;
	}
	close(at);
}

static bool section_valid(const struct wg_rec *r, const struct wgrec_section *s)
{
	uint64_t bytes;

	if (!s->entry_size || s->entry_size > 1u << 20 || s->offset < sizeof(r->h))
		return false;
	if (__builtin_mul_overflow(s->capacity, (uint64_t)s->entry_size, &bytes))
		return false;
	return s->offset <= r->size && bytes <= r->size - s->offset;
}

static uint64_t ticks_now(const struct wgrec_clock *c)
{
	struct timespec ts;

	if (c->mult) {
#if defined(__x86_64__)
		unsigned int lo, hi;

		__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
		return (uint64_t)hi << 32 | lo;
#elif defined(__aarch64__)
		uint64_t v;

		__asm__ volatile("mrs %0, cntvct_el0" : "=r"(v));
		return v;
#endif
	}
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

double wg_rec_span(const struct wg_rec *r, uint64_t ticks)
{
	if (!r->h.clock.mult)
		return (double)ticks * 1e-9;
	return (double)(uint64_t)(((unsigned __int128)ticks * r->h.clock.mult) >> 32) * 1e-9;
}

double wg_rec_age(const struct wg_rec *r, uint64_t ticks)
{
	double s;

	if (!ticks)
		return WG_NO_SEC;
	if (ticks > r->now) /* stamped while we were reading; or nonsense */
		return wg_rec_span(r, ticks - r->now) < 5 ? 0 : WG_NO_SEC;
	s = wg_rec_span(r, r->now - ticks);
	return s <= r->max_age_s ? s : WG_NO_SEC;
}

/* (Re)read the header and the sections' bounds. */
int wg_rec_load_header(struct wg_rec *r, const char **why)
{
	struct stat st;
	struct timespec up;
	ssize_t n;

	if (fstat(r->fd, &st))
		return -errno;
	r->size = (uint64_t)st.st_size;
	r->owner = st.st_uid;
	r->linked = st.st_nlink > 0;
	n = pread(r->fd, &r->h, sizeof(r->h), 0);
	if (n < 0)
		return -errno;
	if ((size_t)n < sizeof(r->h)) {
		*why = "too short for a recorder file";
		return -EINVAL;
	}
	if (memcmp(r->h.magic, WGREC_MAGIC, 8)) {
		*why = "not a recorder file";
		return -EINVAL;
	}
	if (r->h.endian != WGREC_ENDIAN) {
		*why = "written on a machine of the other byte order";
		return -EINVAL;
	}
	if (r->h.min_version > WGREC_VERSION) {
		*why = "written by a newer recorder: use the waitgraph that came with it";
		return -EPROTO;
	}
	if (r->h.header_size < sizeof(r->h) || r->size > MAX_FILE ||
	    r->h.nsections > WGREC_MAX_SECTIONS) {
		*why = "corrupt header";
		return -EINVAL;
	}
	/* Strings end where their field ends. */
	r->h.boot_id[sizeof(r->h.boot_id) - 1] = 0;
	r->h.host[sizeof(r->h.host) - 1] = 0;
	r->h.rank_source[sizeof(r->h.rank_source) - 1] = 0;
	r->h.dir[sizeof(r->h.dir) - 1] = 0;
	r->h.trace_path[sizeof(r->h.trace_path) - 1] = 0;
	r->h.command[sizeof(r->h.command) - 1] = 0;
	for (unsigned int i = 0; i < 32; i++)
		r->sec[i].capacity = r->sec[i].used = 0;
	for (uint32_t i = 0; i < r->h.nsections; i++) {
		const struct wgrec_section *s = &r->h.sections[i];
		struct wg_rec_sec *d;

		if (!s->kind || s->kind >= 32 || !section_valid(r, s))
			continue; /* a newer kind, or damage: what needs it finds nothing */
		d = &r->sec[s->kind];
		d->offset = s->offset;
		d->entry_size = s->entry_size;
		d->capacity = s->capacity;
		d->used = s->used < s->capacity ? s->used : s->capacity;
		if (s->kind == WGREC_POSITIONS) /* a page for each context, not filled in order */
			d->used = s->capacity < 1 << 20 ? s->capacity : 1 << 20;
	}
	r->now = ticks_now(&r->h.clock);
	clock_gettime(CLOCK_BOOTTIME, &up);
	r->max_age_s = (double)up.tv_sec + 10;
	return 0;
}

int wg_rec_open_file(struct wg_facts *f, const char *path, struct wg_rec **out, const char **why)
{
	struct opening *o = calloc(1, sizeof(*o));
	struct wg_rec *r = NULL;
	int rc;

	*out = NULL;
	*why = NULL;
	if (!o)
		return -ENOMEM;
	o->fd = -1;
	if (strlen(path) >= sizeof(o->path)) {
		free(o);
		return -ENAMETOOLONG;
	}
	strcpy(o->path, path);
	if (!strncmp(path, "/proc/", 6)) { /* another mount namespace: who knows what answers */
		rc = wg_with_deadline(1.0, do_open, o);
		if (rc) { /* left behind: o stays with it */
			*why = "its file system did not answer";
			return rc;
		}
	} else {
		do_open(o);
	}
	rc = o->err;
	*why = o->why;
	if (rc)
		goto out;
	r = calloc(1, sizeof(*r));
	if (!r) {
		close(o->fd);
		rc = -ENOMEM;
		goto out;
	}
	r->f = f;
	r->fd = o->fd;
	rc = wg_rec_load_header(r, why);
	if (rc) {
		wg_rec_close(r);
		goto out;
	}
	*out = r;
out:
	free(o);
	return rc;
}

void wg_rec_close(struct wg_rec *r)
{
	if (!r)
		return;
	for (unsigned int i = 0; i < 32; i++)
		free(r->sec[i].data);
	free(r->fn_names);
	free(r->stream_ix);
	free(r->comm_ix);
	free(r->first);
	close(r->fd);
	free(r);
}

/* ---- sections ------------------------------------------------------------------ */

uint64_t wg_rec_read_at(const struct wg_rec *r, void *buf, uint64_t bytes, uint64_t offset)
{
	uint64_t got = 0;

	while (got < bytes) {
		ssize_t n = pread(r->fd, (char *)buf + got, bytes - got, (off_t)(offset + got));

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		got += (uint64_t)n;
	}
	return got;
}

int wg_rec_load(struct wg_rec *r, unsigned int kind)
{
	struct wg_rec_sec *s = &r->sec[kind];
	uint64_t bytes = s->used * s->entry_size;

	r->loaded -= s->data ? s->n * s->entry_size : 0;
	free(s->data);
	s->data = NULL;
	s->n = 0;
	if (!bytes)
		return 0;
	if (bytes > MAX_LOADED - r->loaded)
		return -EFBIG;
	s->data = malloc(bytes);
	if (!s->data)
		return -ENOMEM;
	s->n = wg_rec_read_at(r, s->data, bytes, s->offset) / s->entry_size;
	r->loaded += s->n * s->entry_size;
	return 0;
}

bool wg_rec_entry(const struct wg_rec *r, unsigned int kind, uint64_t i, void *out, size_t n)
{
	const struct wg_rec_sec *s = &r->sec[kind];
	size_t k = n < s->entry_size ? n : s->entry_size;

	memset(out, 0, n);
	if (i >= s->n)
		return false;
	memcpy(out, s->data + i * s->entry_size, k);
	return true;
}

bool wg_rec_fetch(const struct wg_rec *r, unsigned int kind, uint64_t i, void *out, size_t n)
{
	const struct wg_rec_sec *s = &r->sec[kind];
	size_t k = n < s->entry_size ? n : s->entry_size;

	memset(out, 0, n);
	return i < s->capacity && wg_rec_read_at(r, out, k, s->offset + i * s->entry_size) == k;
}

/* ---- names --------------------------------------------------------------------- */

const char *wg_rec_fixed(struct wg_facts *f, const char *s, size_t size)
{
	size_t n = strnlen(s, size);

	return n ? wg_strn(f->arena, s, n) : NULL;
}

bool wg_rec_fn(const struct wg_rec *r, uint32_t fn, struct wgrec_name *out)
{
	if (!wg_rec_entry(r, WGREC_NAMES, fn, out, sizeof(*out)))
		return false;
	out->name[sizeof(out->name) - 1] = 0;
	out->args[sizeof(out->args) - 1] = 0;
	return out->name[0] != 0;
}

const char *wg_rec_fn_name(struct wg_rec *r, uint32_t fn)
{
	struct wgrec_name e;

	if (!r->fn_names) {
		r->nfn = r->sec[WGREC_NAMES].n;
		r->fn_names = calloc(r->nfn + 1, sizeof(*r->fn_names));
	}
	if (!r->fn_names || fn >= r->nfn)
		return NULL;
	if (!r->fn_names[fn] && wg_rec_fn(r, fn, &e))
		r->fn_names[fn] = wg_str(r->f->arena, e.name);
	return r->fn_names[fn];
}

/* A string of the table; kernel names come demangled. NULL when there is none. */
const char *wg_rec_string_at(struct wg_rec *r, uint32_t at)
{
	const struct wg_rec_sec *s = &r->sec[WGREC_STRINGS];
	uint32_t slot = (at * 0x9e3779b1u) >> 22;
	const char *raw;
	size_t n;

	if (!at || s->entry_size != 1 || at >= s->n)
		return NULL;
	if (r->strings[slot].at == at)
		return r->strings[slot].text;
	n = strnlen((char *)s->data + at, s->n - at < 4096 ? s->n - at : 4096);
	if (!n)
		return NULL;
	raw = wg_strn(r->f->arena, (char *)s->data + at, n);
	r->strings[slot].at = at;
	r->strings[slot].text = wg_demangle(r->f, raw);
	return r->strings[slot].text;
}
