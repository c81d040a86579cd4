/* SPDX-License-Identifier: Apache-2.0 */
/* trace_file.c - see trace_file.h. */
#include "trace_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_CHUNK (16u << 20)
#define MAX_STACKS (1u << 20)
#define MAX_STRINGS (1u << 20)
#define MAX_FAILURES 65536u

static int refuse(struct wgm_trace *t, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
static int refuse(struct wgm_trace *t, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(t->why, sizeof(t->why), fmt, ap);
	va_end(ap);
	return err;
}

static int read_at(struct wgm_trace *t, void *buf, size_t n, uint64_t at)
{
	size_t have = 0;

	if (at > t->size || n > t->size - at)
		return refuse(t, -EBADMSG, "truncated: %zu bytes at offset %" PRIu64
			      " lie behind its end (%" PRIu64 " bytes)", n, at, t->size);
	while (have < n) {
		ssize_t r = pread(t->fd, (char *)buf + have, n - have, (off_t)(at + have));

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return refuse(t, -errno, "read at offset %" PRIu64 ": %s", at + have,
				      strerror(errno));
		if (!r)
			return refuse(t, -EBADMSG, "truncated while it was read, at offset %" PRIu64,
				      at + have);
		have += (size_t)r;
	}
	return 0;
}

static uint64_t chunk_at(const struct wgm_trace *t, uint32_t number)
{
	return t->h.header_size + (uint64_t)number * t->h.chunk_size;
}

/* An entry of another minor version: what both know; the rest of ours stays 0. */
static size_t smaller(size_t ours, uint32_t theirs)
{
	return ours < theirs ? ours : theirs;
}

/* ---- header ------------------------------------------------------------------ */

static int read_header(struct wgm_trace *t)
{
	struct wgtr_header *h = &t->h;
	uint32_t n, size;
	int err;

	if (t->size < sizeof(h->magic))
		return refuse(t, -EPROTO, t->size ? "not a Waitgraph trace: %" PRIu64 " bytes" :
			      "empty (%" PRIu64 " bytes): no trace was begun", t->size);
	err = read_at(t, h->magic, sizeof(h->magic), 0);
	if (err)
		return err;
	if (memcmp(h->magic, WGTR_MAGIC, sizeof(h->magic)))
		return refuse(t, -EPROTO, "not a Waitgraph trace: wrong magic at offset 0");
	if (t->size < WGTR_HEADER_MIN)
		return refuse(t, -EBADMSG, "truncated: %" PRIu64 " bytes, the header alone has %u",
			      t->size, WGTR_HEADER_MIN);
	err = read_at(t, h, t->size < sizeof(*h) ? WGTR_HEADER_MIN : sizeof(*h), 0);
	if (err)
		return err;
	if (h->endian != WGTR_ENDIAN)
		return refuse(t, -EPROTO, "written on a machine of another byte order");
	if (h->min_version > WGTR_VERSION || !h->version)
		return refuse(t, -EPROTO, "format version %u (needs a reader of version %u), "
			      "this waitgraph reads version %u",
			      h->version, h->min_version, WGTR_VERSION);
	if (h->header_size < WGTR_HEADER_MIN || h->header_size > MAX_CHUNK ||
	    h->chunk_size < 4096 || h->chunk_size > MAX_CHUNK || h->chunk_size % 4096 ||
	    h->chunk_header_size < WGTR_CHUNK_MIN ||
	    h->chunk_header_size >= h->chunk_size / 2 || h->time_shift > 32)
		return refuse(t, -EBADMSG, "corrupt header: sizes %u/%u/%u at offset 24",
			      h->header_size, h->chunk_size, h->chunk_header_size);
	size = h->chunk_size - h->chunk_header_size;
	if (h->site_size < WGTR_SITE_MIN || h->site_size > size ||
	    h->live_size < WGTR_LIVE_MIN || h->live_size > size ||
	    h->bucket_size < WGTR_BUCKET_MIN || h->bucket_size > size / 4 ||
	    h->device_size < WGTR_DEVICE_MIN || h->device_size > h->header_size)
		return refuse(t, -EBADMSG, "corrupt header: entry sizes %u/%u/%u/%u at offset 36",
			      h->site_size, h->live_size, h->bucket_size, h->device_size);
	if (h->devices_offset < WGTR_HEADER_MIN || h->ndevices > 4096 ||
	    h->devices_offset + (uint64_t)h->ndevices * h->device_size > h->header_size)
		return refuse(t, -EBADMSG, "corrupt header: devices at %u do not fit",
			      h->devices_offset);
	if (t->size < h->header_size)
		return refuse(t, -EBADMSG, "truncated: %" PRIu64 " bytes, header_size says %u",
			      t->size, h->header_size);
	if (h->chunks > (t->size - h->header_size) / h->chunk_size)
		return refuse(t, -EBADMSG, "truncated: %" PRIu64 " chunks were written, there are %"
			      PRIu64, h->chunks, (t->size - h->header_size) / h->chunk_size);
	n = h->ndevices < WGTR_DEVICES ? h->ndevices : WGTR_DEVICES;
	for (uint32_t i = 0; i < n; i++) {
		struct wgtr_device *d = &t->devices[i];

		err = read_at(t, d, smaller(sizeof(*d), h->device_size),
			      h->devices_offset + (uint64_t)i * h->device_size);
		if (err)
			return err;
		d->ordinal = (int32_t)i;
		d->name[sizeof(d->name) - 1] = 0;
		d->pci[sizeof(d->pci) - 1] = 0;
	}
	h->boot_id[sizeof(h->boot_id) - 1] = 0;
	h->host[sizeof(h->host) - 1] = 0;
	h->rank_source[sizeof(h->rank_source) - 1] = 0;
	h->command[sizeof(h->command) - 1] = 0;
	h->exe[sizeof(h->exe) - 1] = 0;
	return 0;
}

/* ---- definitions ------------------------------------------------------------- */

struct cursor {
	const uint8_t *p, *end;
	bool bad;
};

static uint64_t varint(struct cursor *c)
{
	uint64_t v = 0;

	for (int shift = 0; shift < 64; shift += 7) {
		uint8_t b;

		if (c->p >= c->end)
			break;
		b = *c->p++;
		v |= (uint64_t)(b & 0x7f) << shift;
		if (!(b & 0x80))
			return v;
	}
	c->bad = true;
	return 0;
}

static uint64_t unzigzag(uint64_t v)
{
	return v >> 1 ^ -(v & 1);
}

static const uint8_t *bytes(struct cursor *c, size_t *n)
{
	uint64_t len = varint(c);
	const uint8_t *p = c->p;

	if (c->bad || len > (uint64_t)(c->end - c->p)) {
		c->bad = true;
		*n = 0;
		return p;
	}
	*n = len;
	c->p += len;
	return p;
}

static const char *string(struct wgm_trace *t, struct cursor *c)
{
	size_t n;
	const uint8_t *p = bytes(c, &n);

	return wg_strn(t->arena, (const char *)p, n);
}

/* Room for index i in a table that grows by doubling. */
static void *grow(struct wgm_trace *t, void *table, size_t *n, size_t i, size_t size)
{
	size_t want = *n ? *n : 64;
	void *bigger;

	if (i < *n)
		return table;
	while (want <= i)
		want *= 2;
	bigger = wg_alloc(t->arena, want * size);
	if (*n)
		memcpy(bigger, table, *n * size);
	*n = want;
	return bigger;
}

static bool frames(struct wgm_trace *t, struct cursor *c, struct wgm_stack *s, bool deltas)
{
	uint64_t n = varint(c), at = 0;
	uint64_t *v;

	if (c->bad || n > 4096 || n > (uint64_t)(c->end - c->p))
		return false;
	v = wg_alloc(t->arena, n * sizeof(*v) + 1);
	for (uint64_t i = 0; i < n; i++) {
		uint64_t x = varint(c);

		at = deltas && i ? at + unzigzag(x) : x;
		v[i] = at;
	}
	s->n = (uint32_t)n;
	s->frames = v;
	return !c->bad;
}

static bool pylines(struct wgm_trace *t, struct cursor *c, const struct wgm_pyline **out,
		    uint32_t *count)
{
	uint64_t n = varint(c);
	struct wgm_pyline *py;

	if (c->bad || n > 1024 || n > (uint64_t)(c->end - c->p))
		return false;
	py = wg_alloc(t->arena, n * sizeof(*py) + 1);
	for (uint64_t i = 0; i < n; i++) {
		py[i].line = (uint32_t)varint(c);
		py[i].function = string(t, c);
		py[i].file = string(t, c);
	}
	*out = py;
	*count = (uint32_t)n;
	return !c->bad;
}

static bool failure_def(struct wgm_trace *t, struct cursor *c)
{
	struct wgm_failure *f;

	if (t->failures.n >= MAX_FAILURES)
		return false;
	f = wg_push(t->arena, &t->failures);
	f->number = varint(c);
	f->at = varint(c);
	f->tid = (uint32_t)varint(c);
	f->device = (int)(varint(c) & 0xffff) - 1;
	f->fn = (uint16_t)varint(c);
	f->kind = (uint32_t)varint(c);
	f->error = (int64_t)varint(c);
	f->asked = varint(c);
	f->free = varint(c) - 1;
	f->total = varint(c) - 1;
	f->pieces = varint(c);
	f->own = varint(c);
	f->va_reserved = varint(c);
	f->host_live = varint(c);
	f->thread = string(t, c);
	if (c->bad || !frames(t, c, &f->stack, false))
		return false;
	return pylines(t, c, &f->py, &f->npy);
}

static bool outcome_def(struct wgm_trace *t, struct cursor *c)
{
	uint64_t number = varint(c), v[6];

	for (int i = 0; i < 6; i++)
		v[i] = varint(c);
	for (size_t i = 0; !c->bad && i < t->failures.n; i++) {
		struct wgm_failure *f = &t->failures.v[i];

		if (f->number != number)
			continue;
		f->recovered = (uint32_t)v[1];
		f->asked = v[2];
		f->free = v[3] - 1;
		f->pieces = v[4];
		f->repeats = v[5];
	}
	return !c->bad;
}

static bool one_def(struct wgm_trace *t, uint8_t tag, struct cursor *c)
{
	uint64_t id;

	switch (tag) {
	case WGTR_D_STACK:
		id = varint(c);
		if (c->bad || id >= MAX_STACKS)
			return false;
		t->stacks = grow(t, t->stacks, &t->nstacks, id, sizeof(*t->stacks));
		return frames(t, c, &t->stacks[id], true);
	case WGTR_D_PYTHON:
		id = varint(c);
		if (c->bad || id >= MAX_STACKS)
			return false;
		t->python = grow(t, t->python, &t->npython, id, sizeof(*t->python));
		return pylines(t, c, &t->python[id].v, &t->python[id].n);
	case WGTR_D_NAME:
		id = varint(c);
		if (c->bad || id > UINT16_MAX)
			return false;
		t->names = grow(t, t->names, &t->nnames, id, sizeof(*t->names));
		t->names[id] = string(t, c);
		return !c->bad;
	case WGTR_D_STRING:
		id = varint(c);
		if (c->bad || id >= MAX_STRINGS)
			return false;
		t->strings = grow(t, t->strings, &t->nstrings, id, sizeof(*t->strings));
		t->strings[id] = string(t, c);
		return !c->bad;
	case WGTR_D_THREAD: {
		struct wgm_thread *x = wg_push(t->arena, &t->threads);

		x->tid = (uint32_t)varint(c);
		x->name = string(t, c);
		return !c->bad;
	}
	case WGTR_D_OBJECT: {
		struct wgm_object *o = wg_push(t->arena, &t->objects);
		const uint8_t *p;
		uint8_t *copy;

		o->at = varint(c);
		o->start = varint(c);
		o->end = varint(c);
		o->offset = varint(c);
		o->inode = varint(c);
		p = bytes(c, &o->build_id_len);
		copy = wg_alloc(t->arena, o->build_id_len + 1);
		memcpy(copy, p, o->build_id_len);
		o->build_id = copy;
		o->path = string(t, c);
		return !c->bad && o->start < o->end;
	}
	case WGTR_D_FAILURE:
		return failure_def(t, c);
	case WGTR_D_OUTCOME:
		return outcome_def(t, c);
	case WGTR_D_NOTE:
		*wg_push(t->arena, &t->notes) = string(t, c);
		return !c->bad;
	default:
		return true; /* a newer writer's */
	}
}

static int read_defs(struct wgm_trace *t, const struct wgm_chunk *k, uint8_t *buf)
{
	uint32_t at = 0;
	int err = read_at(t, buf, k->used, chunk_at(t, k->number) + t->h.chunk_header_size);

	if (err)
		return err;
	while (at < k->used) {
		struct cursor c;
		uint32_t n;

		if (k->used - at < 4)
			goto corrupt;
		n = buf[at + 1] | (uint32_t)buf[at + 2] << 8 | (uint32_t)buf[at + 3] << 16;
		if (n > k->used - at - 4)
			goto corrupt;
		c.p = buf + at + 4;
		c.end = c.p + n;
		c.bad = false;
		if (!one_def(t, buf[at], &c))
			goto corrupt;
		at += 4 + n;
	}
	return 0;
corrupt:
	return refuse(t, -EBADMSG, "corrupt: definition %u in chunk %u, offset %" PRIu64,
		      buf[at], k->number,
		      chunk_at(t, k->number) + t->h.chunk_header_size + at);
}

/* ---- tables -------------------------------------------------------------------- */

static int read_sites(struct wgm_trace *t, const struct wgm_chunk *k, uint8_t *buf)
{
	uint32_t room = t->h.chunk_size - t->h.chunk_header_size, per = room / t->h.site_size;
	uint64_t first = (uint64_t)k->ordinal * per;
	size_t n = t->nsites;
	int err = read_at(t, buf, room, chunk_at(t, k->number) + t->h.chunk_header_size);

	if (err)
		return err;
	/* The table cannot have more chunks than the file. */
	if (k->ordinal >= t->h.chunks)
		return refuse(t, -EBADMSG, "corrupt: chunk %u is part %u of the sites", k->number,
			      k->ordinal);
	t->sites = grow(t, t->sites, &n, first + per, sizeof(*t->sites));
	t->nsites = n;
	for (uint32_t i = 0; i < per; i++)
		memcpy(&t->sites[first + i], buf + (size_t)i * t->h.site_size,
		       smaller(sizeof(*t->sites), t->h.site_size));
	return 0;
}

static int read_live(struct wgm_trace *t, const struct wgm_chunk *k, uint8_t *buf, uint64_t *slots)
{
	uint32_t room = t->h.chunk_size - t->h.chunk_header_size, per = room / t->h.live_size;
	int err = read_at(t, buf, room, chunk_at(t, k->number) + t->h.chunk_header_size);

	if (err)
		return err;
	*slots += per;
	for (uint32_t i = 0; i < per; i++) {
		struct wgtr_live l = { 0 };

		memcpy(&l, buf + (size_t)i * t->h.live_size, smaller(sizeof(l), t->h.live_size));
		if (l.state == 1 || (l.state == 2 && l.mapped))
			*wg_push(t->arena, &t->live) = l;
	}
	return 0;
}

static int read_timeline(struct wgm_trace *t, const struct wgm_chunk *k, uint8_t *buf)
{
	uint32_t room = t->h.chunk_size - t->h.chunk_header_size;
	uint32_t per = room / t->h.bucket_size / 2, half = k->used >> 31, n = k->used & 0x7fffffff;
	struct wgtr_bucket *v;
	int err = read_at(t, buf, room, chunk_at(t, k->number) + t->h.chunk_header_size);

	if (err)
		return err;
	if (k->stream >= WGTR_DEVICES)
		return 0;
	if (n >= per)
		return refuse(t, -EBADMSG, "corrupt: timeline in chunk %u has %u of %u buckets",
			      k->number, n, per);
	n++; /* the one being filled */
	v = wg_alloc(t->arena, n * sizeof(*v));
	for (uint32_t i = 0; i < n; i++)
		memcpy(&v[i], buf + ((size_t)half * per + i) * t->h.bucket_size,
		       smaller(sizeof(*v), t->h.bucket_size));
	if (!v[n - 1].from)
		n--;
	t->timeline[k->stream].v = v;
	t->timeline[k->stream].n = n;
	return 0;
}

static int by_ordinal(const void *a, const void *b)
{
	const struct wgm_chunk *x = a, *y = b;

	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->stream != y->stream)
		return x->stream < y->stream ? -1 : 1;
	return x->ordinal < y->ordinal ? -1 : x->ordinal > y->ordinal;
}

static int read_chunks(struct wgm_trace *t)
{
	uint32_t room = t->h.chunk_size - t->h.chunk_header_size;
	uint8_t *buf = wg_alloc(t->arena, t->h.chunk_size);
	uint64_t slots = 0;
	int err;

	for (uint64_t i = 0; i < t->h.chunks; i++) {
		struct wgtr_chunk c = { 0 };
		struct wgm_chunk *k;

		err = read_at(t, &c, smaller(sizeof(c), t->h.chunk_header_size),
			      chunk_at(t, (uint32_t)i));
		if (err)
			return err;
		if (!c.magic)
			continue;
		if (c.magic != WGTR_CHUNK_MAGIC)
			return refuse(t, -EBADMSG, "corrupt: chunk %" PRIu64 " at offset %" PRIu64
				      " has no magic", i, chunk_at(t, (uint32_t)i));
		if (!c.kind || c.kind >= WGTR_CHUNK_KINDS)
			continue; /* a newer writer's */
		if ((c.kind == WGTR_EVENTS || c.kind == WGTR_DEFS) && c.used > room)
			return refuse(t, -EBADMSG, "corrupt: chunk %" PRIu64 " at offset %" PRIu64
				      " claims %u bytes of %u", i, chunk_at(t, (uint32_t)i), c.used,
				      room);
		k = wg_push(t->arena, &t->chunks);
		k->number = (uint32_t)i;
		k->kind = c.kind;
		k->stream = c.stream;
		k->ordinal = c.ordinal;
		k->used = c.used;
		k->first = c.first;
		k->last = c.last;
		k->events = c.events;
		k->lost = c.lost;
		if (c.kind == WGTR_EVENTS) {
			t->events += c.events;
			if (c.used && c.last > t->last)
				t->last = c.last;
		}
	}
	if (t->chunks.n)
		qsort(t->chunks.v, t->chunks.n, sizeof(*t->chunks.v), by_ordinal);
	for (size_t i = 0; i < t->chunks.n; i++) {
		const struct wgm_chunk *k = &t->chunks.v[i];

		err = k->kind == WGTR_DEFS ? read_defs(t, k, buf) :
		      k->kind == WGTR_SITES ? read_sites(t, k, buf) :
		      k->kind == WGTR_LIVE ? read_live(t, k, buf, &slots) :
		      k->kind == WGTR_TIMELINE ? read_timeline(t, k, buf) : 0;
		if (err)
			return err;
	}
	t->live_complete = slots >= t->h.live_slots;
	return 0;
}

int wgm_trace_open(const char *path, struct wgm_trace **out, char *why, size_t n)
{
	struct wg_arena *a = wg_arena_new();
	struct wgm_trace *t = wg_alloc(a, sizeof(*t));
	struct stat st;
	int err;

	t->arena = a;
	t->path = wg_str(a, path);
	t->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK); /* not for a FIFO's writer */
	if (t->fd < 0 || fstat(t->fd, &st)) {
		err = refuse(t, -errno, "%s", strerror(errno));
		goto out;
	}
	if (!S_ISREG(st.st_mode)) {
		err = refuse(t, -EPROTO, "not a regular file");
		goto out;
	}
	t->size = (uint64_t)st.st_size;
	err = read_header(t);
	if (err)
		goto out;
	t->first = t->h.opened;
	t->last = t->h.touched > t->h.ended ? t->h.touched : t->h.ended;
	if (t->last < t->first)
		t->last = t->first;
	t->lost = t->h.lost;
	err = read_chunks(t);
out:
	if (err) {
		snprintf(why, n, "%s", t->why);
		wgm_trace_close(t);
		t = NULL;
	}
	*out = t;
	return err;
}

void wgm_trace_close(struct wgm_trace *t)
{
	if (!t)
		return;
	if (t->fd >= 0)
		close(t->fd);
	wg_arena_free(t->arena);
}

/* ---- small answers ----------------------------------------------------------------- */

static double to_ns(const struct wgm_trace *t, uint64_t from, uint64_t to)
{
	double d = to >= from ? (double)(to - from) : -(double)(from - to);

	return t->h.clock.mult ? d * (double)t->h.clock.mult / 4294967296.0 : d;
}

double wgm_seconds(const struct wgm_trace *t, uint64_t ticks)
{
	return ((double)t->h.age_ns + to_ns(t, t->h.opened, ticks)) * 1e-9;
}

double wgm_span(const struct wgm_trace *t, uint64_t ticks)
{
	return to_ns(t, 0, ticks) * 1e-9;
}

double wgm_real(const struct wgm_trace *t, uint64_t ticks)
{
	return (double)t->h.clock.real0_ns * 1e-9 + to_ns(t, t->h.clock.tsc0, ticks) * 1e-9;
}

uint64_t wgm_mono_ns(const struct wgm_trace *t, uint64_t ticks)
{
	double ns = to_ns(t, t->h.clock.tsc0, ticks) + (double)t->h.clock.mono0_ns;

	return ns > 0 && ns < 9e18 ? (uint64_t)ns : 0;
}

const char *wgm_function(const struct wgm_trace *t, uint32_t fn)
{
	if (fn < t->nnames && t->names[fn])
		return t->names[fn];
	return wg_fmt(t->arena, "function %u", fn);
}

const char *wgm_thread_name(const struct wgm_trace *t, uint32_t tid)
{
	for (size_t i = t->threads.n; i-- > 0;)
		if (t->threads.v[i].tid == tid)
			return t->threads.v[i].name;
	return NULL;
}

bool wgm_killed(const struct wgm_trace *t)
{
	return !t->h.ended;
}

/* ---- events ---------------------------------------------------------------------------- */

struct stream { /* one writer's chunks, in order */
	const struct wgm_chunk *v;
	size_t n, next;
	const struct wgm_chunk *now;
	uint8_t *buf;
	struct cursor c;
	uint64_t units, addr;
	uint32_t tid;
	bool ready; /* event holds the next one */
	struct wgm_event event;
	struct {
		uint64_t addr, size;
		uint32_t site;
	} known[WGTR_CACHE];
	struct {
		uint64_t size;
		uint32_t site;
		bool valid;
	} shapes[WGTR_CACHE];
};

struct wgm_events {
	struct wgm_trace *t;
	uint64_t from;
	size_t n;
	struct stream *streams;
	int err;
};

struct wgm_events *wgm_events_open(struct wgm_trace *t, uint64_t from)
{
	struct wgm_events *e = calloc(1, sizeof(*e));
	size_t i = 0;

	if (!e)
		abort();
	e->t = t;
	e->from = from;
	while (i < t->chunks.n) {
		const struct wgm_chunk *k = &t->chunks.v[i];
		struct stream *s;
		size_t n = 1;

		while (i + n < t->chunks.n && t->chunks.v[i + n].kind == k->kind &&
		       t->chunks.v[i + n].stream == k->stream)
			n++;
		if (k->kind == WGTR_EVENTS) {
			e->streams = realloc(e->streams, (e->n + 1) * sizeof(*e->streams));
			if (!e->streams)
				abort();
			s = &e->streams[e->n++];
			memset(s, 0, sizeof(*s));
			s->v = k;
			s->n = n;
			s->buf = malloc(t->h.chunk_size);
			if (!s->buf)
				abort();
		}
		i += n;
	}
	return e;
}

void wgm_events_close(struct wgm_events *e)
{
	if (!e)
		return;
	for (size_t i = 0; i < e->n; i++)
		free(e->streams[i].buf);
	free(e->streams);
	free(e);
}

/* The number before it was doubled and its lowest bit made a flag (65 bits in all). */
static uint64_t flagged(struct cursor *c, bool *flag)
{
	uint8_t b;
	uint64_t v;

	if (c->p >= c->end) {
		c->bad = true;
		return 0;
	}
	b = *c->p++;
	*flag = b & 1;
	v = b >> 1 & 63;
	return b & 0x80 ? v | varint(c) << 6 : v;
}

static bool compact(struct stream *s, uint8_t tag, struct wgm_event *e)
{
	struct cursor *c = &s->c;
	bool scaled = false;
	uint32_t a, sh;

	e->tag = 0;
	e->is_free = tag & WGTR_C_FREE;
	if (tag & WGTR_C_ADDR) {
		if (c->p >= c->end)
			return false;
		a = *c->p++;
		if (!s->known[a].addr)
			return false;
		e->addr = s->known[a].addr;
		e->size = s->known[a].size;
		e->site = s->known[a].site;
	} else {
		uint64_t d = unzigzag(flagged(c, &scaled));

		e->addr = s->addr + (scaled ? d << 9 : d);
		if (tag & WGTR_C_SHAPE) {
			if (c->p >= c->end)
				return false;
			sh = *c->p++;
			if (!s->shapes[sh].valid)
				return false;
			e->size = s->shapes[sh].size;
			e->site = s->shapes[sh].site;
		}
	}
	if (!(tag & WGTR_C_SHAPE)) {
		e->site = (uint32_t)varint(c);
		e->size = flagged(c, &scaled);
		if (scaled)
			e->size <<= 9;
	}
	if (c->bad)
		return false;
	a = wgtr_slot(e->addr);
	sh = wgtr_slot(wgtr_shape(e->site, e->size));
	s->addr = e->addr;
	s->known[a].addr = e->addr;
	s->known[a].size = e->size;
	s->known[a].site = e->site;
	s->shapes[sh].size = e->size;
	s->shapes[sh].site = e->site;
	s->shapes[sh].valid = true;
	return true;
}

static bool decode(const struct wgm_trace *t, struct stream *s, struct wgm_event *e)
{
	struct cursor *c = &s->c;
	uint8_t tag = *c->p++, head = tag;
	uint64_t delta = 0;
	unsigned int n;

	if (!(tag & WGTR_COMPACT)) {
		if (!tag || c->p >= c->end)
			return false;
		head = *c->p++;
	}
	n = head & 7;
	if ((size_t)(c->end - c->p) < n)
		return false;
	for (unsigned int i = 0; i < n; i++)
		delta |= (uint64_t)*c->p++ << (8 * i);
	s->units += delta;
	e->at = s->units << t->h.time_shift;
	if (head & WGTR_C_TID)
		s->tid = (uint32_t)varint(c);
	e->tid = s->tid;
	if (tag & WGTR_COMPACT)
		return compact(s, tag, e);
	e->tag = tag;
	e->is_free = false;
	e->site = 0;
	e->addr = e->size = 0;
	if (c->p >= c->end)
		return false;
	n = *c->p++;
	e->n = n > 32 ? 32 : (uint8_t)n;
	for (unsigned int i = 0; i < n && !c->bad; i++) {
		uint64_t v = varint(c);

		if (i < 32)
			e->v[i] = v;
	}
	for (unsigned int i = e->n; i < 32; i++)
		e->v[i] = 0; /* an older writer's record is shorter */
	return !c->bad;
}

static int advance(struct wgm_events *e, struct stream *s)
{
	struct wgm_trace *t = e->t;

	for (;;) {
		struct wgtr_chunk now;
		const uint8_t *at;
		int err;

		while (s->c.p >= s->c.end) {
			if (s->next >= s->n) {
				s->ready = false;
				return 0;
			}
			s->now = &s->v[s->next++];
			if (s->now->used && s->now->last < e->from)
				continue; /* all of it was before */
			err = read_at(t, s->buf, s->now->used,
				      chunk_at(t, s->now->number) + t->h.chunk_header_size);
			if (err)
				return err;
			/* A writer that still lives may have taken the chunk for something newer. */
			err = read_at(t, &now, smaller(sizeof(now), t->h.chunk_header_size),
				      chunk_at(t, s->now->number));
			if (err)
				return err;
			if (now.magic != WGTR_CHUNK_MAGIC || now.first != s->now->first ||
			    now.ordinal != s->now->ordinal || now.used < s->now->used)
				continue;
			s->c.p = s->buf;
			s->c.end = s->buf + s->now->used;
			s->c.bad = false;
			s->units = s->now->first >> t->h.time_shift;
			s->addr = 0;
			s->tid = 0;
			memset(s->known, 0, sizeof(s->known));
			memset(s->shapes, 0, sizeof(s->shapes));
		}
		at = s->c.p;
		if (!decode(t, s, &s->event))
			return refuse(t, -EBADMSG, "corrupt: record %u in chunk %u, offset %" PRIu64,
				      *at, s->now->number,
				      chunk_at(t, s->now->number) + t->h.chunk_header_size +
					      (uint64_t)(at - s->buf));
		if (s->event.at < e->from)
			continue;
		s->ready = true;
		return 0;
	}
}

int wgm_events_next(struct wgm_events *e, struct wgm_event *out)
{
	struct stream *first = NULL;

	if (e->err)
		return e->err;
	for (size_t i = 0; i < e->n; i++) {
		struct stream *s = &e->streams[i];

		if (!s->ready && (s->c.p < s->c.end || s->next < s->n)) {
			e->err = advance(e, s);
			if (e->err)
				return e->err;
		}
		if (s->ready && (!first || s->event.at < first->event.at))
			first = s;
	}
	if (!first)
		return 0;
	if (first->event.tag)
		*out = first->event;
	else /* the values of other records need not be copied */
		memcpy(out, &first->event, offsetof(struct wgm_event, v));
	first->ready = false;
	return 1;
}
