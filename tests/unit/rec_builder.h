/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rec_builder.h - a recorder file made by hand, for the reader's tests and as the fuzzer's
 * seed. Laid out by the format's header alone, not by the recorder's code, so that the
 * two implementations of the format check each other.
 */
#ifndef WG_REC_BUILDER_H
#define WG_REC_BUILDER_H

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "preload/recorder.h"

struct rec {
	unsigned char *data;
	size_t size;
	struct wgrec_header *h;
};

static inline uint64_t rec_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static inline uint64_t rec_ago(double seconds)
{
	return rec_now() - (uint64_t)(seconds * 1e9);
}

static inline void rec_section(struct rec *r, uint32_t kind, uint32_t entry, uint64_t capacity)
{
	struct wgrec_section *s;
	size_t at = (r->size + 4095) & ~(size_t)4095, n = at + entry * capacity;

	r->data = realloc(r->data, n);
	memset(r->data + r->size, 0, n - r->size);
	r->size = n;
	r->h = (void *)r->data;
	s = &r->h->sections[r->h->nsections++];
	s->kind = kind;
	s->entry_size = entry;
	s->offset = at;
	s->capacity = capacity;
	r->h->file_size = n;
}

static inline struct wgrec_section *rec_sec(struct rec *r, uint32_t kind)
{
	for (uint32_t i = 0; i < r->h->nsections; i++)
		if (r->h->sections[i].kind == kind)
			return &r->h->sections[i];
	abort();
}

/* Entry i of a section; counts it as used. */
static inline void *rec_at(struct rec *r, uint32_t kind, uint64_t i)
{
	struct wgrec_section *s = rec_sec(r, kind);

	if (i >= s->capacity)
		abort();
	if (s->used <= i)
		s->used = i + 1;
	return r->data + s->offset + i * s->entry_size;
}

static inline uint32_t rec_string(struct rec *r, const char *text)
{
	struct wgrec_section *s = rec_sec(r, WGREC_STRINGS);
	uint32_t at = s->used ? (uint32_t)s->used : 1;

	memcpy(r->data + s->offset + at, text, strlen(text) + 1);
	s->used = at + strlen(text) + 1;
	return at;
}

static inline uint16_t rec_fn(struct rec *r, const char *name, uint8_t api, uint8_t kind,
			      const char *args)
{
	uint16_t i = (uint16_t)rec_sec(r, WGREC_NAMES)->used;
	struct wgrec_name *n = rec_at(r, WGREC_NAMES, i);

	snprintf(n->name, sizeof(n->name), "%s", name);
	snprintf(n->args, sizeof(n->args), "%s", args);
	n->api = api;
	n->kind = kind;
	return i;
}

static inline void rec_new(struct rec *r, uint32_t pid, uint64_t start)
{
	FILE *f = fopen("/proc/sys/kernel/random/boot_id", "r");

	memset(r, 0, sizeof(*r));
	r->size = sizeof(struct wgrec_header);
	r->data = calloc(1, r->size);
	r->h = (void *)r->data;
	memcpy(r->h->magic, WGREC_MAGIC, 8);
	r->h->version = WGREC_VERSION;
	r->h->min_version = WGREC_MIN_VERSION;
	r->h->endian = WGREC_ENDIAN;
	r->h->header_size = sizeof(*r->h);
	r->h->pid = pid;
	r->h->start_ticks = start;
	r->h->rank = r->h->world = r->h->local_rank = -1;
	r->h->flags = WGREC_F_CUDA_UP | WGREC_F_POSITIONS;
	if (f) {
		if (fgets(r->h->boot_id, sizeof(r->h->boot_id), f))
			r->h->boot_id[strcspn(r->h->boot_id, "\n")] = 0;
		fclose(f);
	}
	gethostname(r->h->host, sizeof(r->h->host) - 1);
	snprintf(r->h->command, sizeof(r->h->command), "python train.py --made-by-hand");
	rec_section(r, WGREC_NAMES, sizeof(struct wgrec_name), 64);
	rec_section(r, WGREC_THREADS, sizeof(struct wgrec_thread), 16);
	rec_section(r, WGREC_DEVICES, sizeof(struct wgrec_device), 4);
	rec_section(r, WGREC_STREAMS, sizeof(struct wgrec_stream), 8);
	rec_section(r, WGREC_POSITIONS, sizeof(uint32_t), 1024);
	rec_section(r, WGREC_EVENTS, sizeof(struct wgrec_event), 64);
	rec_section(r, WGREC_COMMS, sizeof(struct wgrec_comm), 4);
	rec_section(r, WGREC_FAILURES, sizeof(struct wgrec_failure), 4);
	rec_section(r, WGREC_STRINGS, 1, 4096);
	rec_section(r, WGREC_NOTES, sizeof(struct wgrec_note), 8);
	rec_section(r, WGREC_ENV, 1, 1024);
	rec_section(r, WGREC_ITEMS, sizeof(struct wgrec_item), 4 * WGREC_STREAM_ITEMS);
	rec_section(r, WGREC_COLLS, sizeof(struct wgrec_coll),
		    2 * (WGREC_COMM_COLLS + WGREC_COMM_P2P));
	rec_section(r, WGREC_PEERS, sizeof(struct wgrec_peer), 16);
}

static inline void rec_free(struct rec *r)
{
	free(r->data);
}

static inline int rec_write_fd(const struct rec *r, int fd)
{
	return pwrite(fd, r->data, r->size, 0) == (ssize_t)r->size ? 0 : -1;
}

static inline int rec_write(const struct rec *r, const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600), rc;

	if (fd < 0)
		return -1;
	rc = rec_write_fd(r, fd);
	close(fd);
	return rc;
}

/* A stream with `given` kernels, its word at `word`, marks behind every eighth item. */
static inline struct wgrec_stream *rec_stream(struct rec *r, uint32_t i, uint64_t handle,
					      uint64_t given, uint32_t word, uint32_t name)
{
	struct wgrec_stream *s = rec_at(r, WGREC_STREAMS, i);
	uint64_t first = given > WGREC_STREAM_ITEMS ? given - WGREC_STREAM_ITEMS + 1 : 1;

	s->valid = 1;
	s->device = 0;
	s->handle = handle;
	s->enqueued = given;
	s->marked = given / 8 * 8;
	s->position = i;
	s->items_first = i * WGREC_STREAM_ITEMS;
	s->seen = word <= given ? word : 0;
	s->seen_at = rec_ago(30);
	for (uint64_t q = first; q <= given; q++) {
		struct wgrec_item *x =
			rec_at(r, WGREC_ITEMS, s->items_first + q % WGREC_STREAM_ITEMS);

		memset(x, 0, sizeof(*x));
		x->op = WGREC_OP_KERNEL;
		x->name = name;
		x->at = rec_ago(60);
		x->tid = r->h->pid;
		x->flags = q % 8 ? 0 : WGREC_ITEMF_MARKED;
		x->other = UINT32_MAX;
		x->seq = q;
	}
	*(uint32_t *)rec_at(r, WGREC_POSITIONS, i) = word;
	return s;
}

static inline struct wgrec_item *rec_item(struct rec *r, const struct wgrec_stream *s, uint64_t seq)
{
	return rec_at(r, WGREC_ITEMS, s->items_first + seq % WGREC_STREAM_ITEMS);
}

/* A process with something of everything: a hang in the middle of training. */
static inline void rec_example(struct rec *r, uint32_t pid, uint64_t start)
{
	uint16_t alloc, inner, sync, reduce, evsync;
	struct wgrec_thread *t;
	struct wgrec_stream *s;
	struct wgrec_device *d;
	struct wgrec_failure *x;
	struct wgrec_comm *c;
	struct wgrec_coll *k;
	struct wgrec_event *e;
	struct wgrec_item *it;
	struct wgrec_note *n;
	uint32_t name;

	rec_new(r, pid, start);
	r->h->rank = 3;
	r->h->world = 8;
	snprintf(r->h->rank_source, sizeof(r->h->rank_source), "RANK");
	r->h->last_call_end = rec_ago(31);
	r->h->longest_sync = 1500000000;
	r->h->calls = 1000;
	alloc = rec_fn(r, "cudaMalloc", WGREC_API_RUNTIME, WGREC_CALL_ALLOC, "devPtr,size");
	inner = rec_fn(r, "cuMemAlloc_v2", WGREC_API_DRIVER, WGREC_CALL_ALLOC, "dptr,bytes");
	sync = rec_fn(r, "cuStreamSynchronize", WGREC_API_DRIVER, WGREC_CALL_SYNC, "stream");
	reduce = rec_fn(r, "ncclAllReduce", WGREC_API_NCCL, WGREC_CALL_COLLECTIVE, "comm,count");
	evsync = rec_fn(r, "cuEventSynchronize", WGREC_API_DRIVER, WGREC_CALL_SYNC, "event");

	t = rec_at(r, WGREC_THREADS, 0);
	t->tid = pid;
	t->depth = 2;
	t->calls_done = 500;
	snprintf(t->name, sizeof(t->name), "python");
	t->calls[0] = (struct wgrec_call){ .since = rec_ago(12), .sp = 0x7000, .fp = 0x7100,
					   .ra = 0x401000, .fn = alloc, .device = 0, .nargs = 2,
					   .args = { 0xdead0000, 1 << 20 } };
	t->calls[1] = (struct wgrec_call){ .since = rec_ago(12), .fn = inner, .device = 0,
					   .nargs = 2, .args = { 0xdead0000, 1 << 20 } };
	t = rec_at(r, WGREC_THREADS, 1);
	t->tid = pid + 1;
	t->depth = 1;
	t->calls_done = 300;
	t->last_launch = rec_ago(31);
	snprintf(t->name, sizeof(t->name), "worker");
	t->calls[0] = (struct wgrec_call){ .since = rec_ago(30), .fn = sync, .device = 0,
					   .flags = WGREC_CALLF_STREAM, .stream = 0x5500, .nargs = 1,
					   .args = { 0x5500 } };
	t = rec_at(r, WGREC_THREADS, 2);
	t->tid = pid + 2;
	t->depth = 1;
	snprintf(t->name, sizeof(t->name), "events");
	t->calls[0] = (struct wgrec_call){ .since = rec_ago(29), .fn = evsync, .device = -1,
					   .nargs = 1, .args = { 0xe000 } };

	d = rec_at(r, WGREC_DEVICES, 0);
	d->valid = 1;
	for (int i = 0; i < 16; i++)
		d->uuid[i] = (uint8_t)(i * 17);
	snprintf(d->name, sizeof(d->name), "Simulated GPU");
	snprintf(d->pci, sizeof(d->pci), "0000:3b:00.0");
	d->total = 8ull << 30;
	d->free = 1ull << 30;
	d->free_at = rec_ago(1);
	d->own = 6ull << 30;
	d->peak = 7ull << 30;
	d->least_free = 1 << 20;
	d->least_free_at = rec_ago(100);
	d->allocs = 12;
	d->frees = 3;
	d->failures = 1;

	name = rec_string(r, "_Z10add_kernelPfS_i");
	s = rec_stream(r, 0, 0x5500, 20, 8, name);
	s->marked = 20;
	/* 9 done or not, nobody knows; made exact: */
	rec_item(r, s, 9)->flags |= WGREC_ITEMF_MARKED;
	it = rec_item(r, s, 9);
	it->op = WGREC_OP_COLLECTIVE;
	it->value = 41;
	it->other = 0;
	it->name = rec_string(r, "ncclAllReduce");
	it = rec_item(r, s, 10);
	it->op = WGREC_OP_WAIT_EVENT;
	it->object = 0xe000;
	it->value = 5;
	it->other = 1;
	it = rec_item(r, s, 11);
	it->op = WGREC_OP_WAIT_VALUE;
	it->object = 0x1000;
	it->value = 7;
	s = rec_stream(r, 1, 0x5600, 6, 4, name);
	s->marked = 6;

	e = rec_at(r, WGREC_EVENTS, wgrec_hash(0xe000) >> 32 & 63);
	e->handle = 0xe000;
	e->stream = 1;
	e->seq = 5;
	e->at = rec_ago(40);
	rec_sec(r, WGREC_EVENTS)->used = 64;

	c = rec_at(r, WGREC_COMMS, 0);
	c->valid = 1;
	c->state = WGREC_COMM_READY;
	c->state_at = rec_ago(90);
	c->handle = 0xc0;
	snprintf(c->id, sizeof(c->id), "0123456789abcdef");
	c->rank = 3;
	c->size = 8;
	c->entered = 42;
	c->done = 41;
	c->peers_first = 0;
	for (uint64_t q = 0; q < 42; q++) {
		k = rec_at(r, WGREC_COLLS, q % WGREC_COMM_COLLS);
		*k = (struct wgrec_coll){ .sequence_plus_1 = q + 1, .count = 1024, .at = rec_ago(31),
					  .stream = 0x5500, .stream_index = 0, .tid = pid,
					  .stream_seq = q == 41 ? 9 : 1, .fn = reduce, .type = 7,
					  .redop = 0, .root = -1, .returned = 1 };
	}
	rec_sec(r, WGREC_COLLS)->used = WGREC_COMM_COLLS;
	for (uint32_t q = 0; q < 8; q++) {
		struct wgrec_peer *p = rec_at(r, WGREC_PEERS, q);

		p->rank = (int32_t)q;
		snprintf(p->host, sizeof(p->host), "elsewhere");
		snprintf(p->boot_id, sizeof(p->boot_id), "00000000-0000-0000-0000-00000000000%u", q);
		p->pid = 100 + q;
		p->start_ticks = 1000 + q;
	}

	x = rec_at(r, WGREC_FAILURES, 0);
	x->at = rec_ago(100);
	x->asked = 3 << 20;
	x->free = 1 << 20;
	x->total = 8ull << 30;
	x->tid = pid + 1;
	x->fn = inner;
	x->error = 2;
	snprintf(x->thread_name, sizeof(x->thread_name), "worker");
	x->nframes = 2;
	x->frames[0] = 0x401234;
	x->frames[1] = 0x405678;
	x->npyframes = 1;
	x->py[0].line = 12;
	snprintf(x->py[0].function, sizeof(x->py[0].function), "forward");
	snprintf(x->py[0].file, sizeof(x->py[0].file), "train.py");
	x->seq = 1;

	n = rec_at(r, WGREC_NOTES, 0);
	n->count = 3;
	n->last = rec_ago(1);
	snprintf(n->text, sizeof(n->text), "no position write during graph capture");
	memcpy(r->data + rec_sec(r, WGREC_ENV)->offset, "NCCL_DEBUG=INFO\0CUDA_VISIBLE_DEVICES=0,1\0",
	       41);
	rec_sec(r, WGREC_ENV)->used = 41;
}

#endif
