/* SPDX-License-Identifier: Apache-2.0 */
/*
 * recorder.c - facts from one recorder file (format: preload/recorder.h).
 *
 * The file is written by the process it tells about, so it is hostile input. The
 * reader never maps it: a hostile owner could truncate it under a mapping and kill
 * the reader with SIGBUS. It copies the used part of each section with pread() and
 * works on the copy. What is being written meanwhile is read twice and taken only
 * when both copies agree.
 */
#include "recorder_priv.h"
#include "preload/memory.h"

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

#define MAX_FILE (4ull << 30)	   /* sparse: what is reserved may be large */
#define MAX_LOADED (192ull << 20)  /* what is copied may not */
#define MAX_STREAMS 4096
#define MAX_COMMS 1024
#define MAX_PENDING_HEAD 64   /* unfinished items kept from the oldest on ... */
#define MAX_PENDING_NOTABLE 64 /* ... and of those behind, the ones that can wait for something */
#define MAX_DONE_COLLS 32      /* finished collectives kept for comparison with other ranks */

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
static int load_header(struct wg_rec *r, const char **why)
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
	rc = load_header(r, why);
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

static uint64_t read_at(const struct wg_rec *r, void *buf, uint64_t bytes, uint64_t offset)
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
	s->n = read_at(r, s->data, bytes, s->offset) / s->entry_size;
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
	return i < s->capacity && read_at(r, out, k, s->offset + i * s->entry_size) == k;
}

/* ---- names --------------------------------------------------------------------- */

static const char *fixed(struct wg_facts *f, const char *s, size_t size)
{
	size_t n = strnlen(s, size);

	return n ? wg_strn(f->arena, s, n) : NULL;
}

static bool fn_entry(const struct wg_rec *r, uint32_t fn, struct wgrec_name *out)
{
	if (!wg_rec_entry(r, WGREC_NAMES, fn, out, sizeof(*out)))
		return false;
	out->name[sizeof(out->name) - 1] = 0;
	out->args[sizeof(out->args) - 1] = 0;
	return out->name[0] != 0;
}

static const char *fn_name(struct wg_rec *r, uint32_t fn)
{
	struct wgrec_name e;

	if (!r->fn_names) {
		r->nfn = r->sec[WGREC_NAMES].n;
		r->fn_names = calloc(r->nfn + 1, sizeof(*r->fn_names));
	}
	if (!r->fn_names || fn >= r->nfn)
		return NULL;
	if (!r->fn_names[fn] && fn_entry(r, fn, &e))
		r->fn_names[fn] = wg_str(r->f->arena, e.name);
	return r->fn_names[fn];
}

/* A string of the table; kernel names come demangled. NULL when there is none. */
static const char *string_at(struct wg_rec *r, uint32_t at)
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

/* ---- threads and their calls in flight --------------------------------------------- */

static bool has_word(const char *list, const char *name)
{
	size_t n = strlen(name);

	for (const char *p = list; (p = strstr(p, name)); p += n)
		if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
			return true;
	return false;
}

/* Arguments that are counts read better in decimal, addresses and handles in hex. */
static const char *arg_text(struct wg_facts *f, const char *name, uint64_t v)
{
	static const char decimal[] = "bytes size count n flags width height depth rank nranks root "
				      "peer device ordinal dev value color key gridX gridY gridZ "
				      "grid block threads shared num numBytes pitch type op nranks "
				      "align alignment kind magic elements ndev";

	if (has_word(decimal, name))
		return wg_fmt(f->arena, "%lld", (long long)v);
	return wg_fmt(f->arena, "0x%llx", (unsigned long long)v);
}

static bool find_event(const struct wg_rec *r, uint64_t handle, struct wgrec_event *out)
{
	uint64_t cap = r->sec[WGREC_EVENTS].capacity;

	if (handle <= 1 || !cap || cap & (cap - 1))
		return false;
	for (uint64_t k = 0; k < 32; k++) {
		uint64_t slot = ((wgrec_hash(handle) >> 32) + k) & (cap - 1);

		if (!wg_rec_fetch(r, WGREC_EVENTS, slot, out, sizeof(*out)) || !out->handle)
			return false;
		if (out->handle == handle)
			return true;
	}
	return false;
}

static void add_args(struct wg_facts *f, struct wg_rec *r, struct wg_call *c,
		     const struct wgrec_call *e)
{
	static const char objects[] = "event comm module library function func kernel graph exec "
				      "graphExec object handle ptr dptr addr host semaphore array "
				      "context ctx pool";
	struct wgrec_event ev;
	struct wgrec_name name;
	char *save = NULL;
	uint32_t i = 0;

	if (!fn_entry(r, e->fn, &name))
		return;
	for (char *s = strtok_r(name.args, ", ", &save); s && i < WGREC_ARGS && i < e->nargs;
	     s = strtok_r(NULL, ", ", &save), i++) {
		struct wg_arg *a;
		bool known = false;

		for (size_t k = 0; k < c->args.n; k++)
			known = known || !strcmp(c->args.v[k].name, s);
		if (known) /* the runtime call had it already */
			continue;
		a = wg_push(f->arena, &c->args);
		a->name = wg_str(f->arena, s);
		a->value = e->args[i];
		a->text = arg_text(f, s, a->value);
		if (!c->object && has_word(objects, s))
			c->object = a->value;
		if (!c->event_known && strcasestr(s, "event") && find_event(r, a->value, &ev)) {
			struct wgrec_stream st;

			c->object = a->value;
			c->event_known = true;
			c->event_remote = ev.flags & 1;
			if (ev.stream != UINT32_MAX && ev.seq &&
			    wg_rec_entry(r, WGREC_STREAMS, ev.stream, &st, sizeof(st)) && st.valid) {
				c->event_recorded = true;
				c->event_stream = st.handle;
				c->event_device = st.device;
				c->event_seq = ev.seq;
				if (ev.stream < r->nstream_ix)
					c->event_stream_ix = r->stream_ix[ev.stream];
			}
		}
	}
}

static void set_place(struct wg_call *c, const struct wgrec_call *e)
{
	if (c->device == WG_NO_INT && e->device >= 0)
		c->device = e->device;
	if (!c->has_stream && e->flags & WGREC_CALLF_STREAM) {
		c->has_stream = true;
		c->stream = e->stream;
		/* As the record of streams names them: 0 the legacy one, 2 this thread's own. */
		if (e->stream == 0 && e->flags & WGREC_CALLF_PTSZ)
			c->stream = 2;
		else if (e->stream == 1)
			c->stream = 0;
	}
}

static void add_calls(struct wg_facts *f, struct wg_rec *r, struct wg_thread *t,
		      const struct wgrec_thread *e)
{
	uint32_t depth = e->depth < WGREC_DEPTH ? e->depth : WGREC_DEPTH;
	uint8_t outer_api = 255;
	struct wg_call *c = NULL;

	memset(&t->calls, 0, sizeof(t->calls));
	for (uint32_t i = 0; i < depth; i++) {
		const struct wgrec_call *x = &e->calls[i];
		struct wgrec_name name;
		bool named = fn_entry(r, x->fn, &name);

		/* A driver call inside a runtime call is the same call with its inner name. */
		if (c && named && !c->inner && outer_api == WGREC_API_RUNTIME &&
		    name.api == WGREC_API_DRIVER) {
			c->inner = fn_name(r, x->fn);
			set_place(c, x);
			add_args(f, r, c, x);
			if (c->kind == WG_CALL_OTHER && name.kind <= WG_CALL_COMM)
				c->kind = name.kind;
			continue;
		}
		c = wg_add_call(f, t);
		c->function = named ? fn_name(r, x->fn) : "(unknown call)";
		c->kind = named && name.kind <= WG_CALL_COMM ? (enum wg_call_kind)name.kind :
							       WG_CALL_OTHER;
		c->since_s = wg_rec_age(r, x->since);
		c->sp = x->sp;
		c->fp = x->fp;
		c->ra = x->ra;
		set_place(c, x);
		add_args(f, r, c, x);
		outer_api = named ? name.api : 255;
	}
}

/* The slot of a thread being written: the writer bumps seq, two equal copies are a whole one. */
static bool stable_thread(struct wg_rec *r, uint64_t i, struct wgrec_thread *out)
{
	struct wgrec_thread again;

	for (int tries = 0; tries < 16; tries++) {
		if (!wg_rec_fetch(r, WGREC_THREADS, i, out, sizeof(*out)) ||
		    !wg_rec_fetch(r, WGREC_THREADS, i, &again, sizeof(again)))
			return false;
		if (!memcmp(out, &again, sizeof(again)))
			return true;
	}
	return true; /* so busy that any of its calls is young: the last copy will do */
}

static struct wg_thread *thread_of(struct wg_process *p, uint32_t ns_tid)
{
	for (size_t i = 0; i < p->threads.n; i++) {
		struct wg_thread *t = &p->threads.v[i];

		if (t->ns_tid ? (uint32_t)t->ns_tid == ns_tid : (uint32_t)t->tid == ns_tid)
			return t;
	}
	return NULL;
}

/* The asker's number of a recorded thread, as far as it can be known. */
static int32_t tid_of(struct wg_process *p, uint32_t ns_tid)
{
	struct wg_thread *t = thread_of(p, ns_tid);

	return t ? t->tid : (int32_t)ns_tid;
}

static uint64_t fill_threads(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
			     uint64_t *last_launch)
{
	bool create = !p->threads.n; /* dead: the record is all there is */
	uint64_t sum = 0;

	for (size_t i = 0; i < p->threads.n; i++)
		memset(&p->threads.v[i].calls, 0, sizeof(p->threads.v[i].calls));
	for (uint64_t i = 0; i < r->sec[WGREC_THREADS].used; i++) {
		struct wgrec_thread e;
		struct wg_thread *t;
		double since = WG_NO_SEC;

		if (!stable_thread(r, i, &e) || !e.tid || e.tid > INT32_MAX)
			continue;
		sum += e.calls_done;
		if (e.last_launch > *last_launch && wg_has_sec(wg_rec_age(r, e.last_launch)))
			*last_launch = e.last_launch;
		t = thread_of(p, e.tid);
		if (!t && create) {
			t = wg_add_thread(f, p);
			t->tid = t->ns_tid = (int32_t)e.tid;
			t->name = fixed(f, e.name, sizeof(e.name));
		}
		if (!t)
			continue; /* ended without telling */
		if (e.depth)
			since = wg_rec_age(r, e.calls[0].since);
		/* A slot that an ended thread left behind, its number given to a new one. */
		if (wg_has_sec(since) && wg_has_sec(t->start_age_s) && since > t->start_age_s + 1)
			continue;
		if (t->fsbase && e.fsbase && t->fsbase != e.fsbase)
			continue;
		if (t->calls.n && !e.depth)
			continue;
		if (!t->fsbase)
			t->fsbase = e.fsbase;
		t->ours = r->h.helper_tid && e.tid == r->h.helper_tid;
		add_calls(f, r, t, &e);
	}
	if (r->h.helper_tid) {
		struct wg_thread *t = thread_of(p, r->h.helper_tid);

		if (t)
			t->ours = true;
	}
	if (create && !thread_of(p, r->h.pid) && r->h.pid <= INT32_MAX) {
		struct wg_thread *t = wg_add_thread(f, p);

		t->tid = t->ns_tid = (int32_t)r->h.pid;
	}
	return sum;
}

/* ---- devices ---------------------------------------------------------------------- */

static int64_t bytes_or_none(uint64_t v)
{
	return v <= INT64_MAX ? (int64_t)v : WG_NO_INT;
}

static struct wg_device *device_of(struct wg_facts *f, struct wg_process *p, int64_t index)
{
	for (size_t i = 0; i < p->devices.n; i++)
		if (p->devices.v[i].index == index)
			return &p->devices.v[i];
	if (index == WG_NO_INT && p->devices.n == 1)
		return &p->devices.v[0];
	struct wg_device *d = wg_add_device(f, p);

	d->index = index;
	return d;
}

static void fill_devices(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	wg_rec_load(r, WGREC_DEVICES);
	for (uint64_t i = 0; i < r->sec[WGREC_DEVICES].n && i < 1024; i++) {
		struct wgrec_device e;
		struct wg_device *d;
		double at;

		wg_rec_entry(r, WGREC_DEVICES, i, &e, sizeof(e));
		if (!e.valid)
			continue;
		d = device_of(f, p, e.ordinal >= 0 ? e.ordinal : (int64_t)i);
		if (!d->uuid) {
			const uint8_t *u = e.uuid;
			bool any = false;

			for (int k = 0; k < 16; k++)
				any = any || u[k];
			if (any)
				d->uuid = wg_fmt(f->arena,
						 "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
						 "%02x%02x%02x%02x%02x%02x",
						 u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8],
						 u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
			d->name = fixed(f, e.name, sizeof(e.name));
			d->pci = fixed(f, e.pci, sizeof(e.pci));
		}
		if (e.total)
			d->total = bytes_or_none(e.total);
		if (e.free_at) {
			d->free = bytes_or_none(e.free);
			d->free_age_s = wg_rec_age(r, e.free_at);
		}
		d->own = bytes_or_none(e.own);
		d->peak = bytes_or_none(e.peak);
		at = wg_rec_age(r, e.least_free_at);
		if (e.least_free_at) {
			d->least_free = bytes_or_none(e.least_free);
			if (wg_has_sec(at) && wg_has_sec(p->age_s) && p->age_s >= at)
				d->least_free_at_s = p->age_s - at;
		}
		if (e.context_bytes)
			d->context_bytes = bytes_or_none(e.context_bytes);
		d->allocs = bytes_or_none(e.allocs);
		d->frees = bytes_or_none(e.frees);
		d->failed = bytes_or_none(e.failures);
	}
}

static int by_seq(const void *a, const void *b)
{
	const struct wgrec_failure *const *x = a, *const *y = b;

	return (*x)->seq < (*y)->seq ? -1 : (*x)->seq > (*y)->seq;
}

static bool add_failures(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	struct wg_rec_sec *s = &r->sec[WGREC_FAILURES];
	struct wgrec_failure *all, **order;
	uint64_t n = 0, newest = r->failure_seq;
	bool added = false;

	if (wg_rec_load(r, WGREC_FAILURES) || !s->n)
		return false;
	all = calloc(s->n, sizeof(*all));
	order = calloc(s->n, sizeof(*order));
	for (uint64_t i = 0; all && order && i < s->n; i++) {
		struct wgrec_failure again;

		wg_rec_entry(r, WGREC_FAILURES, i, &all[n], sizeof(all[n]));
		if (!all[n].seq || !wg_rec_fetch(r, WGREC_FAILURES, i, &again, sizeof(again)) ||
		    memcmp(&again, &all[n], sizeof(again)))
			continue; /* empty, or being overwritten by a newer one */
		order[n] = &all[n];
		n++;
	}
	if (n)
		qsort(order, n, sizeof(*order), by_seq);
	for (uint64_t i = 0; i < n; i++) {
		const struct wgrec_failure *e = order[i];
		struct wg_device *d = device_of(f, p, e->device >= 0 ? e->device : WG_NO_INT);
		struct wg_failure *x;
		struct wg_thread *t;

		if (e->seq <= r->failure_seq) { /* known from the first sample: what may change */
			for (size_t k = 0; k < d->failures.n; k++)
				if ((uint64_t)d->failures.v[k].seq == e->seq) {
					d->failures.v[k].age_s = wg_rec_age(r, e->at);
					d->failures.v[k].recovered = e->recovered != 0;
					d->failures.v[k].repeats = bytes_or_none(e->repeats);
				}
			continue;
		}
		newest = e->seq;
		x = wg_add_failure(f, d);
		x->seq = (int64_t)e->seq;
		x->age_s = wg_rec_age(r, e->at);
		if (wg_has_sec(x->age_s) && wg_has_sec(p->age_s) && p->age_s >= x->age_s)
			x->at_s = p->age_s - x->age_s;
		x->tid = tid_of(p, e->tid);
		x->thread_name = fixed(f, e->thread_name, sizeof(e->thread_name));
		t = p->alive ? thread_of(p, e->tid) : NULL;
		/* The number may have been given to a younger thread since. */
		x->thread_alive = t && !(wg_has_sec(t->start_age_s) && wg_has_sec(x->age_s) &&
					 t->start_age_s + 1 < x->age_s);
		x->function = fn_name(r, e->fn);
		x->device = e->device >= 0 ? e->device : WG_NO_INT;
		x->asked = bytes_or_none(e->asked);
		if (e->free != UINT64_MAX) {
			x->free = bytes_or_none(e->free);
			if (wg_has_int(x->asked) && wg_has_int(x->free))
				x->short_by = x->asked > x->free ? x->asked - x->free : 0;
		}
		x->recovered = e->recovered != 0;
		x->recovered_known = true;
		x->error = e->error;
		x->host_memory = e->kind == WG_MEM_HOST || e->kind == WG_MEM_HOST_REG ||
				 e->kind == WG_MEM_VA;
		if (x->host_memory)
			x->free = x->short_by = WG_NO_INT;
		x->pieces = bytes_or_none(e->pieces);
		x->repeats = bytes_or_none(e->repeats);
		for (uint32_t k = 0; k < e->nframes && k < 64; k++) {
			struct wg_frame *fr = wg_push(f->arena, &x->stack);

			fr->pc = e->frames[k];
			fr->line = WG_NO_INT;
		}
		for (uint32_t k = 0; k < e->npyframes && k < 24; k++) {
			struct wg_pyframe *fr = wg_push(f->arena, &x->python_stack);

			fr->function = fixed(f, e->py[k].function, sizeof(e->py[k].function));
			fr->file = fixed(f, e->py[k].file, sizeof(e->py[k].file));
			fr->line = e->py[k].line ? (int64_t)e->py[k].line : WG_NO_INT;
		}
		added = true;
	}
	r->failure_seq = newest;
	free(all);
	free(order);
	return added;
}

/* ---- streams ------------------------------------------------------------------------ */

/*
 * How far the GPU has come. The word is the low half of a position that grows: of all
 * numbers with that low half the one nearest to the newest mark is meant (it may have moved
 * on since the mark was read, so it can lie on either side).
 */
static uint64_t reached(const struct wg_rec *r, const struct wgrec_stream *e, bool *has_position)
{
	uint64_t done = e->proven > e->seen ? e->proven : e->seen;
	uint32_t word;

	if (done < e->first) /* of an earlier stream that had this entry */
		done = e->first;

	*has_position = false;
	if (r->h.flags & WGREC_F_POSITIONS && e->position != UINT32_MAX && e->marked &&
	    wg_rec_entry(r, WGREC_POSITIONS, e->position, &word, sizeof(word))) {
		int32_t off = (int32_t)(word - (uint32_t)e->marked);
		uint64_t at = e->marked + (uint64_t)(int64_t)off;

		/* Never written yet: the word is 0 and the sum would be below zero. */
		if (off < 0 && (uint64_t)-(int64_t)off > e->marked)
			at = 0;
		if (at <= e->enqueued) {
			*has_position = true;
			if (at > done)
				done = at;
		}
	}
	return done < e->enqueued ? done : e->enqueued;
}

static int item_by_seq(const void *a, const void *b)
{
	const struct wgrec_item *x = a, *y = b;

	return x->seq < y->seq ? -1 : x->seq > y->seq;
}

/* The ring of one stream, sorted, without slots that changed between two reads. */
static size_t load_items(const struct wg_rec *r, const struct wgrec_stream *e,
			 struct wgrec_item *out)
{
	static _Thread_local struct wgrec_item again[WGREC_STREAM_ITEMS];
	const struct wg_rec_sec *s = &r->sec[WGREC_ITEMS];
	uint64_t offset, bytes = WGREC_STREAM_ITEMS * sizeof(*out);
	size_t n = 0;

	if (s->entry_size != sizeof(*out) || e->items_first >= s->capacity ||
	    s->capacity - e->items_first < WGREC_STREAM_ITEMS)
		return 0;
	offset = s->offset + (uint64_t)e->items_first * s->entry_size;
	if (read_at(r, out, bytes, offset) != bytes || read_at(r, again, bytes, offset) != bytes)
		return 0;
	for (size_t i = 0; i < WGREC_STREAM_ITEMS; i++)
		if (out[i].seq && !memcmp(&out[i], &again[i], sizeof(again[i])))
			out[n++] = out[i];
	qsort(out, n, sizeof(*out), item_by_seq);
	return n;
}

static bool notable(uint16_t op)
{
	return op == WGREC_OP_HOSTFN || op == WGREC_OP_WAIT_EVENT || op == WGREC_OP_WAIT_VALUE ||
	       op == WGREC_OP_COLLECTIVE || op == WGREC_OP_RECORD_EVENT ||
	       op == WGREC_OP_WRITE_VALUE;
}

static void add_item(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
		     struct wg_stream *s, const struct wgrec_item *e, struct wg_mem *m,
		     struct wg_symbols *sym)
{
	struct wg_gpu_item *x = wg_add_gpu_item(f, s);
	struct wgrec_stream other;
	struct wgrec_event ev;

	x->seq = e->seq;
	x->op = e->op <= WG_GPU_MARK ? (enum wg_gpu_op)e->op : WG_GPU_OTHER;
	x->name = string_at(r, e->name);
	x->object = e->object;
	x->value = e->value;
	x->flags = e->flags & 0xff;
	x->nccl_inner = e->flags & WGREC_ITEMF_NCCL && e->op != WGREC_OP_COLLECTIVE;
	x->age_s = wg_rec_age(r, e->at);
	x->tid = tid_of(p, e->tid);
	switch (x->op) {
	case WG_GPU_WAIT_EVENT:
		x->value = 0;
		x->event_remote = e->flags & 1 || (find_event(r, e->object, &ev) && ev.flags & 1);
		x->flags = 0;
		if (e->value && e->other != UINT32_MAX &&
		    wg_rec_entry(r, WGREC_STREAMS, e->other, &other, sizeof(other))) {
			x->event_recorded = true;
			x->event_seq = e->value;
			x->event_stream = other.handle;
			x->event_device = other.device;
			if (e->other < r->nstream_ix)
				x->event_stream_ix = r->stream_ix[e->other];
		}
		break;
	case WG_GPU_WAIT_VALUE: {
		uint64_t v = 0;
		bool wide = e->flags & WGREC_ITEMF_64 || e->value > UINT32_MAX;
		size_t n = wide ? 8 : 4;

		if (m && !wg_mem_read(m, e->object, &v, n)) {
			x->current = v;
			x->has_current = true;
		}
		break;
	}
	case WG_GPU_COLLECTIVE:
		x->value = 0;
		x->coll_seq = e->value;
		x->p2p = e->flags & WGREC_ITEMF_P2P;
		if (e->other < r->ncomm_ix)
			x->comm = r->comm_ix[e->other];
		break;
	case WG_GPU_HOSTFN:
		if (!x->name && sym && e->object) {
			struct wg_frame fr = { .line = WG_NO_INT };

			wg_symbols_frame(sym, f, e->object, false, &fr);
			x->name = fr.symbol;
		}
		break;
	default:
		break;
	}
}

/* What only the first look could read (memory, symbols) still holds for the same item. */
static void keep_known(struct wg_stream *s, const struct wg_stream *before)
{
	struct wg_gpu_item *x = &s->pending.v[s->pending.n - 1];

	for (size_t i = 0; i < before->pending.n; i++) {
		const struct wg_gpu_item *b = &before->pending.v[i];

		if (b->seq != x->seq)
			continue;
		if (!x->name)
			x->name = b->name;
		if (!x->has_current && b->has_current) {
			x->has_current = true;
			x->current = b->current;
		}
		return;
	}
}

/*
 * Is the first unfinished thing certainly what the GPU is at? The word says what has been
 * passed. Only when the next write stands right behind that one thing has it not been
 * passed; otherwise it, and what follows up to the next write, may be done as well.
 */
static bool exact(const struct wgrec_stream *e, uint64_t done, const struct wgrec_item *first)
{
	return first->seq == done + 1 &&
	       (first->flags & WGREC_ITEMF_MARKED || e->marked == first->seq);
}

static void fill_streams(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
			 struct wg_mem *m, struct wg_symbols *sym)
{
	struct wgrec_item *items = malloc(sizeof(*items) * WGREC_STREAM_ITEMS);
	__typeof__(p->streams) before = p->streams; /* of the first sample; stays in the arena */
	int64_t *before_ix = r->stream_ix;
	uint64_t nbefore = r->nstream_ix, n, skipped = 0;

	memset(&p->streams, 0, sizeof(p->streams));
	/* Positions before streams: then no position is ahead of what was given. */
	wg_rec_load(r, WGREC_POSITIONS);
	wg_rec_load(r, WGREC_STREAMS);
	n = r->sec[WGREC_STREAMS].n;
	r->stream_ix = malloc((n + 1) * sizeof(*r->stream_ix));
	r->nstream_ix = r->stream_ix ? n : 0;
	/* Two passes: items name streams that stand later in the table. */
	for (uint64_t i = 0; i < r->nstream_ix; i++) {
		struct wgrec_stream e;
		bool pos;

		wg_rec_entry(r, WGREC_STREAMS, i, &e, sizeof(e));
		r->stream_ix[i] = WG_NO_INT;
		if (!e.valid || (e.valid != 1 && reached(r, &e, &pos) >= e.enqueued))
			continue; /* free, or destroyed with all its work done */
		if (p->streams.n >= MAX_STREAMS) {
			skipped++;
			continue;
		}
		r->stream_ix[i] = (int64_t)p->streams.n;
		wg_add_stream(f, p);
	}
	for (uint64_t i = 0; items && i < r->nstream_ix; i++) {
		struct wgrec_stream e;
		struct wg_stream *s;
		size_t k, head = 0, rest = 0, nitems;

		if (r->stream_ix[i] == WG_NO_INT)
			continue;
		s = &p->streams.v[r->stream_ix[i]];
		wg_rec_entry(r, WGREC_STREAMS, i, &e, sizeof(e));
		s->device = e.device >= 0 ? e.device : WG_NO_INT;
		s->handle = e.handle == 1 ? 0 : e.handle;
		s->owner_tid = e.owner_tid ? tid_of(p, e.owner_tid) : 0;
		s->flags = e.flags;
		s->enqueued = e.enqueued;
		s->completed = reached(r, &e, &s->has_position);
		s->capturing = e.capturing != 0;
		/* seen_at is the helper's stamp; a position that moved since is younger. */
		s->progress_age_s = s->completed > e.seen ? 0 : wg_rec_age(r, e.seen_at);
		if (e.longest_gap)
			s->longest_gap_s = wg_rec_span(r, e.longest_gap);
		if (r->first_done && i < r->nfirst) {
			if (s->completed >= r->first[i].completed)
				s->completed_delta = s->completed - r->first[i].completed;
			if (s->enqueued >= r->first[i].enqueued)
				s->enqueued_delta = s->enqueued - r->first[i].enqueued;
			if (s->completed_delta)
				s->progress_age_s = 0;
		}
		if (s->completed >= s->enqueued)
			continue;
		nitems = load_items(r, &e, items);
		for (k = 0; k < nitems && items[k].seq <= s->completed; k++)
			;
		s->pending_truncated = k == nitems || items[k].seq != s->completed + 1;
		s->completed_exact = s->has_position && !s->pending_truncated &&
				     exact(&e, s->completed, &items[k]);
		for (; k < nitems && items[k].seq <= e.enqueued; k++) {
			if (head < MAX_PENDING_HEAD)
				head++;
			else if (notable(items[k].op) && rest < MAX_PENDING_NOTABLE)
				rest++;
			else
				continue;
			add_item(f, p, r, s, &items[k], m, sym);
			if (i < nbefore && before_ix[i] != WG_NO_INT)
				keep_known(s, &before.v[before_ix[i]]);
		}
	}
	free(before_ix);
	free(items);
	if (skipped)
		wg_add_missing(f, p, "streams",
			       wg_fmt(f->arena, "%llu more than %d are left out",
				      (unsigned long long)skipped, MAX_STREAMS), NULL);
}

/* ---- collectives ----------------------------------------------------------------------- */

static const char *comm_state(uint32_t s)
{
	static const char *const names[] = { "unknown", "init", "ready", "finalizing", "aborting",
					     "destroying", "destroyed", "failed" };

	return s < sizeof(names) / sizeof(names[0]) ? names[s] : "unknown";
}

static const char *data_type(uint8_t t)
{
	static const char *const names[] = { "i8", "u8", "i32", "u32", "i64", "u64", "f16", "f32",
					     "f64", "bf16", "f8e4m3", "f8e5m2" };

	return t < sizeof(names) / sizeof(names[0]) ? names[t] : NULL;
}

static const char *red_op(uint8_t t)
{
	static const char *const names[] = { "sum", "prod", "max", "min", "avg" };

	return t < sizeof(names) / sizeof(names[0]) ? names[t] : t == 255 ? NULL : "custom";
}

static const char *coll_op(struct wg_rec *r, uint32_t fn)
{
	const char *s = fn_name(r, fn);

	if (!s)
		return NULL;
	if (*s == 'p')
		s++;
	return !strncmp(s, "nccl", 4) ? s + 4 : s;
}

/* Whether the stream has passed, is at, or has not come to this collective. */
static int coll_state(struct wg_process *p, struct wg_rec *r, const struct wgrec_coll *e,
		      bool *known)
{
	const struct wg_stream *s;

	*known = false;
	if (!e->stream_seq) {
		*known = true; /* not given to a stream: nothing has run */
		return WG_COLL_ENQUEUED;
	}
	if (e->stream_index >= r->nstream_ix)
		return WG_COLL_ENQUEUED;
	if (r->stream_ix[e->stream_index] == WG_NO_INT) {
		*known = true; /* a stream that is left out has all its work done */
		return WG_COLL_DONE;
	}
	s = &p->streams.v[r->stream_ix[e->stream_index]];
	*known = s->has_position;
	if (s->completed >= e->stream_seq)
		return WG_COLL_DONE;
	for (size_t i = 0; i < s->pending.n; i++) {
		const struct wg_gpu_item *x = &s->pending.v[i];

		if (x->op == WG_GPU_MARK || x->nccl_inner)
			continue; /* NCCL's own kernels stand before the item that names them */
		return x->seq == e->stream_seq && !s->pending_truncated ? WG_COLL_RUNNING :
									  WG_COLL_ENQUEUED;
	}
	return WG_COLL_ENQUEUED;
}

static void fill_comms(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	uint64_t n;

	/* The index must stand before the streams' items name communicators. */
	wg_rec_load(r, WGREC_COMMS);
	n = r->sec[WGREC_COMMS].n;
	free(r->comm_ix);
	r->comm_ix = malloc((n + 1) * sizeof(*r->comm_ix));
	r->ncomm_ix = r->comm_ix ? n : 0;
	memset(&p->comms, 0, sizeof(p->comms));
	for (uint64_t i = 0; i < r->ncomm_ix; i++) {
		struct wgrec_comm e;

		wg_rec_entry(r, WGREC_COMMS, i, &e, sizeof(e));
		r->comm_ix[i] = WG_NO_INT;
		if (!e.valid || p->comms.n >= MAX_COMMS)
			continue;
		r->comm_ix[i] = (int64_t)p->comms.n;
		wg_add_comm(f, p);
	}
}

/* The calls of one ring, oldest first. Returns how many are known to be done. */
static uint64_t fill_ring(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
			  struct wg_comm *c, const struct wgrec_comm *e, bool p2p)
{
	uint64_t entered = p2p ? e->p2p_entered : e->entered;
	uint64_t done = p2p ? e->p2p_done : e->done;
	uint64_t size = p2p ? WGREC_COMM_P2P : WGREC_COMM_COLLS;
	uint64_t base = (uint64_t)e->colls_first + (p2p ? WGREC_COMM_COLLS : 0);
	uint64_t first = entered > size ? entered - size : 0;

	if (done > entered)
		done = entered;
	if (done > MAX_DONE_COLLS && first < done - MAX_DONE_COLLS)
		first = done - MAX_DONE_COLLS;
	for (uint64_t q = first; e->colls_first != UINT32_MAX && q < entered; q++) {
		struct wgrec_coll x, again;
		struct wg_collective *o;
		bool known;

		if (!wg_rec_fetch(r, WGREC_COLLS, base + q % size, &x, sizeof(x)) ||
		    x.sequence_plus_1 != q + 1 ||
		    !wg_rec_fetch(r, WGREC_COLLS, base + q % size, &again, sizeof(again)) ||
		    memcmp(&x, &again, sizeof(x)))
			continue; /* lost, or being overwritten */
		o = wg_add_collective(f, c);
		o->sequence = q;
		o->op = coll_op(r, x.fn);
		o->count = bytes_or_none(x.count);
		o->type = data_type(x.type);
		o->redop = red_op(x.redop);
		o->root = x.root >= 0 ? x.root : WG_NO_INT;
		o->age_s = wg_rec_age(r, x.at);
		o->stream = x.stream == 1 ? 0 : x.stream;
		o->tid = tid_of(p, x.tid);
		o->host_blocked = !x.returned;
		o->p2p = p2p;
		o->grouped = x.flags & WGREC_COLLF_GROUPED;
		o->captured = x.flags & WGREC_COLLF_CAPTURED;
		o->failed = x.flags & WGREC_COLLF_FAILED;
		if (q < done) {
			o->state = WG_COLL_DONE;
			o->state_known = true;
			continue;
		}
		if (o->captured || o->failed) {
			o->state = WG_COLL_DONE; /* nothing that could be waited for */
			if (q == done && o->failed)
				done = q + 1;
			continue;
		}
		o->state = coll_state(p, r, &x, &known);
		o->state_known = known;
		if (o->state == WG_COLL_DONE && q == done)
			done = q + 1;
		if (!p2p)
			c->done_known = c->done_known || known;
	}
	return done;
}

static void fill_collectives(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	for (uint64_t i = 0; i < r->ncomm_ix; i++) {
		struct wgrec_comm e;
		struct wg_comm *c;

		if (r->comm_ix[i] == WG_NO_INT)
			continue;
		c = &p->comms.v[r->comm_ix[i]];
		wg_rec_entry(r, WGREC_COMMS, i, &e, sizeof(e));
		c->id = fixed(f, e.id, sizeof(e.id));
		c->handle = e.handle;
		c->rank = e.rank >= 0 ? e.rank : WG_NO_INT;
		c->size = e.size > 0 ? e.size : WG_NO_INT;
		c->device = e.device >= 0 ? e.device : WG_NO_INT;
		c->state = comm_state(e.state);
		c->age_s = wg_rec_age(r, e.state_at);
		c->next_sequence = e.entered;
		c->async_error = e.async_error;
		c->library = string_at(r, e.library);
		c->name = fixed(f, e.name, sizeof(e.name));
		c->parent = fixed(f, e.parent, sizeof(e.parent));
		c->done_known = !e.entered || e.done > 0;
		c->done = fill_ring(f, p, r, c, &e, false);
		c->p2p_next = e.p2p_entered;
		c->p2p_done = fill_ring(f, p, r, c, &e, true);
		for (int32_t k = 0; e.peers_first != UINT32_MAX && k < e.size && k < 1 << 16; k++) {
			struct wgrec_header who = { .pid = 0 };
			struct wg_rec_who at;
			struct wgrec_peer x;

			if (!wg_rec_fetch(r, WGREC_PEERS, (uint64_t)e.peers_first + (uint64_t)k, &x,
					  sizeof(x)))
				break;
			if ((!x.pid && !x.host[0]) || x.rank == e.rank || x.rank < 0)
				continue;
			x.boot_id[sizeof(x.boot_id) - 1] = 0;
			x.host[sizeof(x.host) - 1] = 0;
			who.pid = x.pid;
			who.start_ticks = x.start_ticks;
			who.pidns = r->h.pidns;
			memcpy(who.boot_id, x.boot_id, sizeof(who.boot_id));
			wg_rec_whose(&who, &at);
			wg_rec_add_peer(f, p, c->id, x.rank, x.host, x.boot_id,
					x.pid ? at.pid : WG_NO_INT,
					x.start_ticks ? (int64_t)x.start_ticks : WG_NO_INT, at.alive,
					at.alive_known && x.pid);
		}
	}
}

/* ---- the whole --------------------------------------------------------------------------- */

static void fill_env(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	const struct wg_rec_sec *s = &r->sec[WGREC_ENV];
	uint64_t i = 0;

	if (wg_rec_load(r, WGREC_ENV) || s->entry_size != 1)
		return;
	while (i < s->n && p->env.n < 512) {
		size_t n = strnlen((char *)s->data + i, s->n - i);
		char *eq = memchr(s->data + i, '=', n);
		bool known = false;

		if (eq && eq != (char *)s->data + i) {
			size_t k = (size_t)(eq - ((char *)s->data + i));
			const char *name = wg_strn(f->arena, (char *)s->data + i, k);

			for (size_t j = 0; j < p->env.n; j++)
				known = known || !strcmp(p->env.v[j].name, name);
			if (!known) {
				struct wg_env *e = wg_push(f->arena, &p->env);

				e->name = name;
				e->value = wg_strn(f->arena, eq + 1, n - k - 1);
			}
		}
		i += n + 1;
	}
}

static void fill_notes(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	wg_rec_load(r, WGREC_NOTES);
	for (uint64_t i = 0; i < r->sec[WGREC_NOTES].n && i < 256; i++) {
		struct wgrec_note e;
		const char *text;

		wg_rec_entry(r, WGREC_NOTES, i, &e, sizeof(e));
		text = fixed(f, e.text, sizeof(e.text));
		if (!e.count || !text)
			continue;
		*wg_push(f->arena, &p->notes) =
			e.count > 1 ? wg_fmt(f->arena, "%s (%llu times)", text,
					     (unsigned long long)e.count) :
				      text;
	}
	if (r->h.flags & WGREC_F_DEEPBIND)
		wg_add_missing(f, p, "some CUDA or NCCL calls",
			       "a library was loaded with RTLD_DEEPBIND or dlmopen, which goes past "
			       "preloading: its calls may be unseen", NULL);
	static const struct { size_t at; const char *what; } lost[] = {
		{ offsetof(struct wgrec_header, lost_threads), "threads in the record" },
		{ offsetof(struct wgrec_header, lost_streams), "streams in the record" },
		{ offsetof(struct wgrec_header, lost_events), "events in the record" },
		{ offsetof(struct wgrec_header, lost_items), "things given to streams" },
		{ offsetof(struct wgrec_header, lost_comms), "communicators in the record" },
		{ offsetof(struct wgrec_header, trace_lost), "events of the trace" },
	};
	for (size_t i = 0; i < sizeof(lost) / sizeof(lost[0]); i++) {
		uint64_t n;

		memcpy(&n, (char *)&r->h + lost[i].at, sizeof(n));
		if (n)
			wg_add_missing(f, p, lost[i].what,
				       wg_fmt(f->arena, "%llu lost: the recorder's table was full",
					      (unsigned long long)n), NULL);
	}
	if (r->h.flags & WGREC_F_CUDA_UP && !(r->h.flags & WGREC_F_POSITIONS))
		wg_add_missing(f, p, "position of the GPU",
			       "CUDA did not take the recorder's page: only synchronisations that "
			       "returned prove progress", NULL);
}

static void fill_progress(struct wg_process *p, struct wg_rec *r, uint64_t last_launch,
			  uint64_t calls_sum)
{
	uint64_t last = r->h.last_call_end > last_launch ? r->h.last_call_end : last_launch;
	uint64_t calls = calls_sum > r->h.calls ? calls_sum : r->h.calls;

	p->progress_age_s = wg_rec_age(r, last);
	p->longest_sync_s = r->h.longest_sync ? wg_rec_span(r, r->h.longest_sync) : WG_NO_SEC;
	p->calls = bytes_or_none(calls);
}

static void fill_changing(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
			  struct wg_mem *m, struct wg_symbols *s)
{
	uint64_t last_launch = 0, sum;

	wg_rec_load(r, WGREC_NAMES);
	wg_rec_load(r, WGREC_STRINGS);
	fill_comms(f, p, r);
	fill_streams(f, p, r, m, s);
	fill_collectives(f, p, r);
	sum = fill_threads(f, p, r, &last_launch); /* after the streams: calls name events */
	fill_progress(p, r, last_launch, sum);
	if (r->first_done)
		p->calls_delta = sum >= r->calls_sum ? (int64_t)(sum - r->calls_sum) : 0;
	else
		r->calls_sum = sum;
}

int wg_rec_collect(struct wg_facts *f, struct wg_process *p, struct wg_rec *r, struct wg_mem *m,
		   struct wg_symbols *s)
{
	bool dead = !p->threads.n;

	p->recorded = true;
	wg_add_source(f, p, "recorder");
	p->cuda_up = p->cuda_up || r->h.flags & WGREC_F_CUDA_UP;
	p->forked = p->forked || r->h.flags & WGREC_F_FORKED;
	if (r->h.flags & WGREC_F_EXITING && !p->phase)
		p->phase = "teardown";
	if (!wg_has_int(p->rank) && r->h.rank >= 0) {
		p->rank = r->h.rank;
		p->rank_source = fixed(f, r->h.rank_source, sizeof(r->h.rank_source));
	}
	if (!wg_has_int(p->world) && r->h.world > 0)
		p->world = r->h.world;
	if (!p->command)
		p->command = fixed(f, r->h.command, sizeof(r->h.command));
	if (!p->host)
		p->host = fixed(f, r->h.host, sizeof(r->h.host));
	if (!p->boot)
		p->boot = fixed(f, r->h.boot_id, sizeof(r->h.boot_id));
	p->state_dir = fixed(f, r->h.dir, sizeof(r->h.dir));
	p->trace_path = fixed(f, r->h.trace_path, sizeof(r->h.trace_path));
	fill_env(f, p, r);
	fill_notes(f, p, r);
	fill_devices(f, p, r);
	fill_changing(f, p, r, m, s);
	if (dead)
		for (size_t i = 0; i < p->threads.n; i++)
			p->threads.v[i].state = 0;
	if (add_failures(f, p, r) && s)
		wg_stacks_symbolize(f, p, s);
	wg_rec_peers(f, p, &r->h);
	/* What the second sample is compared with. */
	r->nfirst = r->sec[WGREC_STREAMS].n;
	r->first = calloc(r->nfirst + 1, sizeof(*r->first));
	for (uint64_t i = 0; r->first && i < r->nfirst; i++) {
		struct wgrec_stream e;
		bool pos;

		wg_rec_entry(r, WGREC_STREAMS, i, &e, sizeof(e));
		r->first[i].completed = reached(r, &e, &pos);
		r->first[i].enqueued = e.enqueued;
	}
	if (!r->first)
		r->nfirst = 0;
	r->first_done = true;
	return 0;
}

int wg_rec_again(struct wg_facts *f, struct wg_process *p, struct wg_rec *r, double gap_s)
{
	const char *why = NULL;
	int rc = load_header(r, &why);

	(void)gap_s;
	if (rc) {
		wg_add_missing(f, p, "second look at the recorder", why ? why : strerror(-rc), NULL);
		return 0;
	}
	free(r->fn_names); /* its size follows the table's */
	r->fn_names = NULL;
	fill_devices(f, p, r);
	fill_changing(f, p, r, NULL, NULL);
	add_failures(f, p, r);
	return 0;
}
