/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c - writes the trace file: chunks, records, definitions, timeline.
 *
 * Format in trace.h. What a store cannot fail at is preferred: a chunk is reserved on
 * the disk (fallocate) before it is mapped, so a full disk is an error code here and
 * not a SIGBUS in the middle of somebody's training; RLIMIT_FSIZE is looked at first,
 * because passing it is a deadly signal; the descriptor is checked before each use,
 * because programs close descriptors that they do not know.
 *
 * Without a file (directory not writable) the same structures live in anonymous memory:
 * accounting goes on, only nothing is kept.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "accounting.h"

__thread struct wg_mem_thread wg_mt
	__attribute__((tls_model("initial-exec"), visibility("hidden")));

struct wgtr_header *wg_trace_header;

#define TR_TABLE_CHUNKS 4096u /* of SITES, and of LIVE: with 64 KiB chunks 5.6 million live */
#define TR_SPARE 4u
#define TR_MIN_CHUNKS 24u

struct tr_writer {
	struct wg_lock lock;
	struct wgtr_chunk *chunk;
	uint8_t *base;
	uint32_t number; /* of the chunk in the file */
	uint32_t pos, room;
	uint32_t ordinal;
	uint32_t tid;
	uint64_t units, ticks;
	uint64_t addr;
	uint64_t lost;
	struct {
		uint64_t addr, size;
		uint32_t site;
	} known[WGTR_CACHE];
	struct {
		uint64_t size;
		uint32_t site_plus_1;
	} shapes[WGTR_CACHE];
};

struct tr_timeline {
	struct wg_lock lock;
	struct wgtr_chunk *chunk;
	struct wgtr_bucket *now;
	uint64_t until; /* ticks */
	uint64_t span;
	uint32_t half, complete;
};

static struct {
	bool file;
	int fd;
	dev_t dev;
	ino_t ino;
	uint32_t chunk_size, chunks_max;
	char path[320];

	struct wg_lock layout; /* what follows */
	uint32_t chunks;
	uint32_t *full;	       /* ring of complete EVENTS chunks, oldest first */
	uint64_t full_in, full_out;
	struct {
		struct wgtr_chunk *map;
		uint32_t number;
	} spare[TR_SPARE];
	uint32_t spares;
	bool used_up; /* the disk or the limit: no more chunks to be had */

	struct wg_lock defs_lock;
	struct wgtr_chunk *defs;
	uint32_t defs_pos, defs_ordinal;

	uint32_t strings;
	_Atomic uint64_t names[1024]; /* bit per function id */

	_Atomic(struct wgtr_chunk *) sites[TR_TABLE_CHUNKS];
	_Atomic(struct wgtr_chunk *) live[TR_TABLE_CHUNKS];
	struct wg_lock live_lock;
	uint32_t nsites, nlive;
	uint32_t sites_per_chunk, live_per_chunk, buckets_per_half;
} tr;

static struct tr_writer tr_writers[WGTR_WRITERS];
static struct tr_timeline tr_lines[WGTR_DEVICES];

/* ---- raw help ---------------------------------------------------------------- */

uint32_t wg_tid_slow(void)
{
	wg_mt.tid = (uint32_t)syscall(SYS_gettid);
	return wg_mt.tid;
}

/*
 * The holder is at most a few hundred instructions, or one fallocate(), from letting go; it
 * may have lost its core though. So: spin, then yield, then sleep, about 20 ms in all, and
 * then the event is given up rather than the program held.
 */
bool wg_lock_slow(struct wg_lock *l)
{
	const struct timespec nap = { 0, 100000 };

	for (int round = 0; round < 400; round++) {
		uint32_t holder = atomic_load_explicit(&l->tid, memory_order_relaxed);

		if (holder == wg_mt.tid) /* we are a signal handler inside our own section */
			return false;
		if (!holder && wg_lock_try(l))
			return true;
		if (round < 100) {
#if defined(__x86_64__)
			__builtin_ia32_pause();
#endif
		} else if (round < 200) {
			sched_yield();
		} else {
			syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &nap, NULL);
		}
		/* A thread that died in here (cancelled) must not hold it for ever. */
		if (round == 399 && holder &&
		    syscall(SYS_tgkill, getpid(), (pid_t)holder, 0) < 0 && errno == ESRCH &&
		    atomic_compare_exchange_strong(&l->tid, &holder, wg_mt.tid))
			return true;
	}
	return false;
}

void *wg_pages(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return p == MAP_FAILED ? NULL : p;
}

void wg_pages_free(void *p, size_t bytes)
{
	if (p)
		munmap(p, bytes);
}

/* System calls, not libc's functions: those may be wrapped by other preloads, or cancel us. */
int wg_raw_open(const char *path)
{
	long fd = syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC, 0);

	return fd < 0 ? -errno : (int)fd;
}

long wg_raw_read(int fd, void *buf, size_t n)
{
	size_t have = 0;

	while (have < n) {
		long r = syscall(SYS_read, fd, (char *)buf + have, n - have);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (!r)
			break;
		have += (size_t)r;
	}
	return (long)have;
}

void wg_raw_close(int fd)
{
	if (fd >= 0)
		syscall(SYS_close, fd);
}

/*
 * The kernel copies 8 bytes of the mask in before it looks at `how`: EFAULT says that
 * they cannot be read, EINVAL that they can. For sandboxes without process_vm_readv.
 */
static bool readable8(uint64_t addr)
{
	return syscall(SYS_rt_sigprocmask, ~0, (void *)addr, NULL, 8) < 0 && errno != EFAULT;
}

int wg_peek(uint64_t addr, void *buf, size_t n)
{
	static _Atomic int refused;
	struct iovec to = { buf, n }, from = { (void *)addr, n };

	if (!n)
		return 0;
	if (addr < 4096 || addr + n < addr)
		return -EFAULT;
	if (!atomic_load_explicit(&refused, memory_order_relaxed)) {
		long r = syscall(SYS_process_vm_readv, getpid(), &to, 1, &from, 1, 0);

		if (r == (long)n)
			return 0;
		if (r >= 0 || errno == EFAULT)
			return -EFAULT;
		atomic_store_explicit(&refused, 1, memory_order_relaxed); /* EPERM, ENOSYS */
	}
	for (uint64_t a = addr & ~7ull; a < addr + n;) {
		if (!readable8(a))
			return -EFAULT;
		a = (a & ~4095ull) + 4096; /* a page is readable as a whole */
	}
	memcpy(buf, (void *)addr, n);
	return 0;
}

void wg_out_bytes(struct wg_out *o, const void *p, size_t n)
{
	wg_out_varint(o, n);
	if (n > (size_t)(o->end - o->p))
		n = (size_t)(o->end - o->p);
	memcpy(o->p, p, n);
	o->p += n;
}

/* ---- chunks -------------------------------------------------------------------- */

/* Low numbers belong to the program: shells and daemons count on them. */
static void out_of_the_way(void)
{
	int high = fcntl(tr.fd, F_DUPFD_CLOEXEC, 200);

	if (high < 0)
		return;
	wg_raw_close(tr.fd);
	tr.fd = high;
}

static bool fd_is_ours(void)
{
	struct stat st;

	if (tr.fd >= 0 && !fstat(tr.fd, &st) && st.st_dev == tr.dev && st.st_ino == tr.ino)
		return true;
	/* The program closed it (closefrom) and perhaps got the number for itself. */
	tr.fd = (int)syscall(SYS_openat, AT_FDCWD, tr.path, O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0);
	if (tr.fd < 0)
		return false;
	if (!fstat(tr.fd, &st) && st.st_dev == tr.dev && st.st_ino == tr.ino) {
		out_of_the_way();
		return true;
	}
	wg_raw_close(tr.fd);
	tr.fd = -1;
	return false;
}

/* Make [at, at + n) exist on the disk. */
static int reserve(uint64_t at, uint64_t n)
{
	static const char zeros[4096];
	struct rlimit limit;

	if (!getrlimit(RLIMIT_FSIZE, &limit) && limit.rlim_cur != RLIM_INFINITY &&
	    at + n > limit.rlim_cur)
		return -EFBIG;
	for (int tries = 0; tries < 16; tries++) {
		if (!fallocate(tr.fd, 0, (off_t)at, (off_t)n))
			return 0;
		if (errno != EINTR)
			break;
	}
	if (errno != EOPNOTSUPP && errno != ENOSYS)
		return -errno;
	for (uint64_t end = at + n; at < end; at += sizeof(zeros))
		if (pwrite(tr.fd, zeros, sizeof(zeros), (off_t)at) != (ssize_t)sizeof(zeros))
			return -ENOSPC;
	return 0;
}

static struct wgtr_chunk *map_chunk(uint32_t number)
{
	void *p = mmap(NULL, tr.chunk_size, PROT_READ | PROT_WRITE, MAP_SHARED, tr.fd,
		       WGTR_HEADER_SIZE + (off_t)number * tr.chunk_size);

	return p == MAP_FAILED ? NULL : p;
}

/* A new one at the end of the file. tr.layout is held. */
static struct wgtr_chunk *append_chunk(uint32_t *number)
{
	struct wgtr_chunk *c;
	int err;

	if (tr.used_up || !fd_is_ours())
		return NULL;
	err = reserve(WGTR_HEADER_SIZE + (uint64_t)tr.chunks * tr.chunk_size, tr.chunk_size);
	if (err) {
		tr.used_up = true;
		wg_note("trace: no room on the disk for more; older detail is given up");
		return NULL;
	}
	c = map_chunk(tr.chunks);
	if (!c)
		return NULL;
	*number = tr.chunks;
	__atomic_store_n(&tr.chunks, tr.chunks + 1, __ATOMIC_RELAXED);
	wg_trace_header->chunks = tr.chunks;
	return c;
}

/* The oldest complete EVENTS chunk, emptied. What it told is in sites and timeline anyway. */
static struct wgtr_chunk *recycle_chunk(uint32_t *number)
{
	struct wgtr_chunk *c;
	uint32_t n;

	if (tr.full_out == tr.full_in || !fd_is_ours())
		return NULL;
	n = tr.full[tr.full_out % tr.chunks_max];
	c = map_chunk(n);
	if (!c)
		return NULL;
	tr.full_out++;
	if (c->last > wg_trace_header->folded_until)
		wg_trace_header->folded_until = c->last;
	wg_trace_header->folded_events += c->events;
	atomic_thread_fence(memory_order_release);
	c->magic = 0;
	atomic_thread_fence(memory_order_release);
	memset(c, 0, sizeof(*c));
	*number = n;
	return c;
}

static bool lay_out(struct wgtr_chunk *c, uint16_t kind, uint16_t stream, uint32_t ordinal)
{
	c->kind = kind;
	c->stream = stream;
	c->ordinal = ordinal;
	c->used = 0;
	atomic_thread_fence(memory_order_release);
	c->magic = WGTR_CHUNK_MAGIC;
	return true;
}

static void retire(uint32_t number) /* tr.layout is held */
{
	tr.full[tr.full_in++ % tr.chunks_max] = number;
}

/* retired: number of a complete EVENTS chunk to hand in, or UINT32_MAX. */
static struct wgtr_chunk *new_chunk(uint16_t kind, uint16_t stream, uint32_t ordinal,
				    uint32_t retired, uint32_t *number)
{
	struct wgtr_chunk *c = NULL;

	if (!wg_lock_take(&tr.layout))
		return NULL;
	if (retired != UINT32_MAX)
		retire(retired);
	if (tr.file) {
		if (tr.spares) {
			c = tr.spare[--tr.spares].map;
			*number = tr.spare[tr.spares].number;
		} else if (tr.chunks < tr.chunks_max) {
			c = append_chunk(number);
		}
		if (!c)
			c = recycle_chunk(number);
		/* Live allocations and what describes them come before the limit. */
		if (!c && kind != WGTR_EVENTS)
			c = append_chunk(number);
	}
	if (!c && (kind == WGTR_SITES || kind == WGTR_LIVE)) {
		c = wg_pages(tr.chunk_size); /* counted, though not kept */
		*number = UINT32_MAX;
	}
	if (c) {
		if (kind == WGTR_TIMELINE || kind == WGTR_SITES || kind == WGTR_LIVE)
			memset(c + 1, 0, tr.chunk_size - sizeof(*c)); /* recycled: old bytes */
		lay_out(c, kind, stream, ordinal);
	}
	wg_lock_drop(&tr.layout);
	return c;
}

/* ---- events ------------------------------------------------------------------------- */

static void lose(struct tr_writer *w)
{
	if (w) {
		w->lost++;
		if (w->chunk)
			w->chunk->lost++;
	}
	__atomic_fetch_add(&wg_trace_header->lost, 1, __ATOMIC_RELAXED);
}

static uint8_t *put_varint(uint8_t *p, uint64_t v)
{
	while (v >= 0x80) {
		*p++ = (uint8_t)(v | 0x80);
		v >>= 7;
	}
	*p++ = (uint8_t)v;
	return p;
}

static bool next_chunk(struct tr_writer *w, uint64_t now)
{
	uint32_t old = UINT32_MAX, number;
	struct wgtr_chunk *c;

	if (w->chunk) {
		munmap(w->chunk, tr.chunk_size);
		w->chunk = NULL;
		old = w->number;
	}
	c = new_chunk(WGTR_EVENTS, (uint16_t)(w - tr_writers), w->ordinal, old, &number);
	if (!c)
		return false; /* the old one is handed in; if even that failed it stays unrecycled */
	w->ordinal++;
	w->chunk = c;
	w->base = (uint8_t *)(c + 1);
	w->number = number;
	w->pos = 0;
	w->room = tr.chunk_size - (uint32_t)sizeof(*c);
	w->tid = 0;
	w->addr = 0;
	w->ticks = now;
	w->units = now >> wg_trace_header->time_shift;
	memset(w->known, 0, sizeof(w->known));
	memset(w->shapes, 0, sizeof(w->shapes));
	c->first = now;
	c->last = now;
	return true;
}

/* Writes tag, time and thread; the caller adds its own bytes and calls commit(). */
static uint8_t *head(struct tr_writer *w, uint8_t *p, uint8_t tag, bool compact, uint64_t now)
{
	uint64_t units = now >> wg_trace_header->time_shift, delta = units - w->units;
	uint8_t n = 0, *flags = p;

	*p++ = tag;
	if (!compact) {
		flags = p;
		*p++ = 0;
	}
	for (uint64_t d = delta; d && n < 7; d >>= 8, n++)
		*p++ = (uint8_t)d;
	*flags |= n;
	w->units = units;
	if (w->tid != wg_mt.tid) {
		w->tid = wg_mt.tid;
		*flags |= WGTR_C_TID;
		p = put_varint(p, w->tid);
	}
	return p;
}

static void commit(struct tr_writer *w, uint8_t *end, uint64_t now)
{
	w->pos = (uint32_t)(end - w->base);
	w->ticks = now;
	w->chunk->last = now;
	w->chunk->events++;
	__atomic_store_n(&w->chunk->used, w->pos, __ATOMIC_RELEASE);
}

static void name_thread(void)
{
	uint8_t buf[64];
	struct wg_out o = { buf, buf + sizeof(buf) };
	char name[16] = "";

	wg_mt.named = true;
	prctl(PR_GET_NAME, name, 0, 0, 0);
	name[15] = 0;
	wg_out_varint(&o, wg_tid());
	wg_out_bytes(&o, name, strlen(name));
	wg_out_varint(&o, wg_ticks());
	wg_trace_def(WGTR_D_THREAD, buf, (size_t)(o.p - buf));
}

/* The writer of this thread, or the next that is free; locked, with room for one record. */
static struct tr_writer *writer_take(uint64_t *now)
{
	uint32_t first;

	if (!tr.file)
		return NULL;
	if (wg_unlikely(!wg_mt.named))
		name_thread();
	if (wg_unlikely(!wg_mt.writer))
		wg_mt.writer = 1 + wg_tid() % WGTR_WRITERS;
	first = wg_mt.writer - 1;
	for (uint32_t i = 0; i <= WGTR_WRITERS; i++) {
		struct tr_writer *w = &tr_writers[(first + i) % WGTR_WRITERS];
		/* Another's stream is only taken when ours is busy; at the end we wait for ours. */
		bool got = i < WGTR_WRITERS ? wg_lock_try(&w->lock) : wg_lock_take(&w->lock);

		if (!got)
			continue;
		*now = wg_ticks();
		if (*now < w->ticks) /* clocks of two cores may differ by a little */
			*now = w->ticks;
		if (wg_likely(w->chunk && w->pos + WGTR_RECORD_MAX <= w->room))
			return w;
		if (!next_chunk(w, *now)) {
			lose(w);
			wg_lock_drop(&w->lock);
			return NULL;
		}
		if (w->lost) {
			uint8_t *p = head(w, w->base, WGTR_E_LOST, false, *now);

			*p++ = 1;
			p = put_varint(p, w->lost);
			commit(w, p, *now);
			w->lost = 0;
		}
		return w;
	}
	lose(NULL);
	return NULL;
}

/* The varint of v << 1 | flag, which needs 65 bits. */
static uint8_t *put_flagged(uint8_t *p, uint64_t v, bool flag)
{
	*p++ = (uint8_t)((v & 63) << 1 | flag | (v >> 6 ? 0x80 : 0));
	return v >> 6 ? put_varint(p, v >> 6) : p;
}

uint64_t wg_trace_alloc(bool is_free, uint32_t site, uint64_t addr, uint64_t size)
{
	uint64_t now;
	struct tr_writer *w = writer_take(&now);
	uint8_t *p, *tag, flags = WGTR_COMPACT | (is_free ? WGTR_C_FREE : 0);
	uint32_t a, s;

	if (wg_unlikely(!w))
		return wg_ticks();
	tag = w->base + w->pos;
	p = head(w, tag, flags, true, now);
	a = wgtr_slot(addr);
	s = wgtr_slot(wgtr_shape(site, size));
	if (w->known[a].addr == addr && addr) {
		*tag |= WGTR_C_ADDR;
		*p++ = (uint8_t)a;
		if (w->known[a].site == site && w->known[a].size == size) {
			*tag |= WGTR_C_SHAPE;
			goto done;
		}
	} else {
		int64_t d = (int64_t)(addr - w->addr);
		bool scaled = !(d & 511);

		p = put_flagged(p, wg_zigzag(0, (uint64_t)(scaled ? d >> 9 : d)), scaled);
		if (w->shapes[s].site_plus_1 == site + 1 && w->shapes[s].size == size) {
			*tag |= WGTR_C_SHAPE;
			*p++ = (uint8_t)s;
			goto done;
		}
	}
	p = put_varint(p, site);
	p = put_flagged(p, size & 511 ? size : size >> 9, !(size & 511));
done:
	w->addr = addr;
	w->known[a].addr = addr;
	w->known[a].size = size;
	w->known[a].site = site;
	w->shapes[s].size = size;
	w->shapes[s].site_plus_1 = site + 1;
	commit(w, p, now);
	wg_lock_drop(&w->lock);
	return now;
}

void wg_trace_event(uint8_t tag, const uint64_t *values, unsigned int n)
{
	uint64_t now;
	struct tr_writer *w = writer_take(&now);
	uint8_t *p;

	if (!w)
		return;
	p = head(w, w->base + w->pos, tag, false, now);
	*p++ = (uint8_t)n;
	for (unsigned int i = 0; i < n; i++)
		p = put_varint(p, values[i]);
	commit(w, p, now);
	wg_lock_drop(&w->lock);
}

/* ---- definitions ------------------------------------------------------------------------ */

bool wg_trace_def(uint8_t tag, const uint8_t *payload, size_t n)
{
	bool done = false;
	uint8_t *p;

	if (!tr.file || n > WGTR_DEF_MAX || !wg_lock_take(&tr.defs_lock))
		return false;
	if (!tr.defs || tr.defs_pos + 4 + n > tr.chunk_size - sizeof(struct wgtr_chunk)) {
		uint32_t number;
		struct wgtr_chunk *c =
			new_chunk(WGTR_DEFS, 0, tr.defs_ordinal, UINT32_MAX, &number);

		if (!c)
			goto out;
		if (tr.defs)
			munmap(tr.defs, tr.chunk_size);
		tr.defs = c;
		tr.defs_pos = 0;
		tr.defs_ordinal++;
	}
	p = (uint8_t *)(tr.defs + 1) + tr.defs_pos;
	p[0] = tag;
	p[1] = (uint8_t)n;
	p[2] = (uint8_t)(n >> 8);
	p[3] = (uint8_t)(n >> 16);
	memcpy(p + 4, payload, n);
	tr.defs_pos += 4 + (uint32_t)n;
	__atomic_store_n(&tr.defs->used, tr.defs_pos, __ATOMIC_RELEASE);
	done = true;
out:
	wg_lock_drop(&tr.defs_lock);
	if (!done)
		__atomic_fetch_add(&wg_trace_header->lost, 1, __ATOMIC_RELAXED);
	return done;
}

uint32_t wg_trace_string(const char *s)
{
	uint8_t buf[300];
	struct wg_out o = { buf, buf + sizeof(buf) };
	uint32_t id;

	if (!tr.file || tr.strings >= 65536)
		return 0;
	id = __atomic_add_fetch(&tr.strings, 1, __ATOMIC_RELAXED);
	wg_out_varint(&o, id);
	wg_out_bytes(&o, s, strnlen(s, 256));
	return wg_trace_def(WGTR_D_STRING, buf, (size_t)(o.p - buf)) ? id : 0;
}

void wg_trace_name(uint16_t fn)
{
	uint64_t bit = 1ull << (fn & 63), capacity = 0;
	struct wgrec_name *names;
	uint8_t buf[64];
	struct wg_out o = { buf, buf + sizeof(buf) };

	if (atomic_load_explicit(&tr.names[fn >> 6], memory_order_relaxed) & bit)
		return;
	names = wg_rec_section(WGREC_NAMES, &capacity);
	if (!names || fn >= capacity)
		return;
	if (atomic_fetch_or(&tr.names[fn >> 6], bit) & bit)
		return;
	wg_out_varint(&o, fn);
	wg_out_bytes(&o, names[fn].name, strnlen(names[fn].name, sizeof(names[fn].name)));
	wg_trace_def(WGTR_D_NAME, buf, (size_t)(o.p - buf));
}

/* ---- tables ------------------------------------------------------------------------------- */

struct wgtr_site *wg_trace_site(uint32_t site)
{
	uint32_t n = site / tr.sites_per_chunk;
	struct wgtr_chunk *c;

	if (n >= TR_TABLE_CHUNKS)
		return NULL;
	c = atomic_load_explicit(&tr.sites[n], memory_order_acquire);
	return c ? (struct wgtr_site *)(c + 1) + site % tr.sites_per_chunk : NULL;
}

struct wgtr_site *wg_trace_site_new(uint32_t *site)
{
	uint32_t id = tr.nsites, n = id / tr.sites_per_chunk, number;

	if (n >= TR_TABLE_CHUNKS)
		return NULL;
	if (!atomic_load_explicit(&tr.sites[n], memory_order_relaxed)) {
		struct wgtr_chunk *c = new_chunk(WGTR_SITES, 0, n, UINT32_MAX, &number);

		if (!c)
			return NULL;
		atomic_store_explicit(&tr.sites[n], c, memory_order_release);
	}
	tr.nsites++;
	wg_trace_header->sites = tr.nsites;
	*site = id;
	return wg_trace_site(id);
}

struct wgtr_live *wg_trace_live(uint32_t slot)
{
	uint32_t n = slot / tr.live_per_chunk;
	struct wgtr_chunk *c;

	if (n >= TR_TABLE_CHUNKS)
		return NULL;
	c = atomic_load_explicit(&tr.live[n], memory_order_acquire);
	return c ? (struct wgtr_live *)(c + 1) + slot % tr.live_per_chunk : NULL;
}

int wg_trace_live_block(uint32_t *first, uint32_t *count)
{
	uint32_t n, number;
	int err = -ENOMEM;

	if (!wg_lock_take(&tr.live_lock))
		return -EBUSY;
	n = tr.nlive / tr.live_per_chunk;
	if (n >= TR_TABLE_CHUNKS)
		goto out;
	if (!atomic_load_explicit(&tr.live[n], memory_order_relaxed)) {
		struct wgtr_chunk *c = new_chunk(WGTR_LIVE, 0, n, UINT32_MAX, &number);

		if (!c)
			goto out;
		atomic_store_explicit(&tr.live[n], c, memory_order_release);
	}
	*first = tr.nlive;
	*count = WG_LIVE_BLOCK;
	if (*count > tr.live_per_chunk - tr.nlive % tr.live_per_chunk)
		*count = tr.live_per_chunk - tr.nlive % tr.live_per_chunk;
	tr.nlive += *count;
	wg_trace_header->live_slots = tr.nlive;
	err = 0;
out:
	wg_lock_drop(&tr.live_lock);
	return err;
}

struct wgtr_device *wg_trace_device(int device)
{
	if (!wg_trace_header || device < 0 || device >= WGTR_DEVICES)
		return NULL;
	return (struct wgtr_device *)((char *)wg_trace_header + WGTR_DEVICES_AT) + device;
}

/* ---- timeline ---------------------------------------------------------------------------------- */

static struct wgtr_bucket *bucket(struct tr_timeline *t, uint32_t half, uint32_t i)
{
	return (struct wgtr_bucket *)(t->chunk + 1) + half * tr.buckets_per_half + i;
}

static void start_bucket(struct tr_timeline *t, uint64_t now, uint64_t own)
{
	struct wgtr_bucket *b = bucket(t, t->half, t->complete);

	b->from = now;
	b->own_max = own;
	b->own_last = own;
	b->free_min = WGTR_UNKNOWN;
	b->free_last = WGTR_UNKNOWN;
	b->allocs = 0;
	b->frees = 0;
	__atomic_store_n(&t->chunk->used, t->half << 31 | t->complete, __ATOMIC_RELEASE);
	__atomic_store_n(&t->until, now + t->span, __ATOMIC_RELAXED);
	__atomic_store_n(&t->now, b, __ATOMIC_RELEASE);
}

/* Half as many buckets, twice as long, built beside the old ones: a kill sees one or the other. */
static void coarsen(struct tr_timeline *t)
{
	uint32_t to = !t->half, n = t->complete / 2;

	for (uint32_t i = 0; i < n; i++) {
		struct wgtr_bucket *a = bucket(t, t->half, 2 * i), *b = a + 1,
				   *o = bucket(t, to, i);

		*o = *b;
		o->from = a->from;
		o->own_max = a->own_max > b->own_max ? a->own_max : b->own_max;
		o->free_min = a->free_min < b->free_min ? a->free_min : b->free_min;
		if (b->free_last == WGTR_UNKNOWN)
			o->free_last = a->free_last;
		o->allocs = a->allocs + b->allocs;
		o->frees = a->frees + b->frees;
	}
	t->half = to;
	t->complete = n;
	t->span *= 2;
	t->chunk->events = t->span;
}

static void turn_bucket(struct tr_timeline *t, int device, uint64_t now, uint64_t own)
{
	uint32_t number;

	if (!wg_lock_try(&t->lock))
		return; /* another thread is at it */
	if (!t->chunk) {
		t->chunk = new_chunk(WGTR_TIMELINE, (uint16_t)device, 0, UINT32_MAX, &number);
		if (!t->chunk)
			goto out;
		t->span = t->chunk->events = (100000000ull << 20) / (wg_ticks_to_ns(1 << 20) + 1);
		t->half = 0;
		t->complete = 0;
		start_bucket(t, now, own);
	} else if (now >= t->until) {
		t->complete++;
		if (t->complete + 1 >= tr.buckets_per_half)
			coarsen(t);
		start_bucket(t, now, own);
	}
out:
	wg_lock_drop(&t->lock);
}

/* Levels only: a race between two threads here costs a count in a summary, never an exact one. */
void wg_trace_timeline(int device, enum wg_level what, uint64_t own, uint64_t free_bytes,
		       uint64_t now)
{
	struct tr_timeline *t;
	struct wgtr_bucket *b;

	if (!tr.file || device < 0 || device >= WGTR_DEVICES)
		return;
	t = &tr_lines[device];
	if (wg_unlikely(!__atomic_load_n(&t->now, __ATOMIC_RELAXED) ||
			now >= __atomic_load_n(&t->until, __ATOMIC_RELAXED)))
		turn_bucket(t, device, now, own);
	b = __atomic_load_n(&t->now, __ATOMIC_ACQUIRE);
	if (!b)
		return;
	if (own > b->own_max)
		b->own_max = own;
	b->own_last = own;
	if (free_bytes != WGTR_UNKNOWN) {
		if (free_bytes < b->free_min)
			b->free_min = free_bytes;
		b->free_last = free_bytes;
	}
	if (what == WG_LEVEL_ALLOC)
		b->allocs++;
	else if (what == WG_LEVEL_FREE)
		b->frees++;
}

/* ---- life ------------------------------------------------------------------------------------------ */

static void read_line(const char *path, char *buf, size_t n)
{
	int fd = wg_raw_open(path);
	long r = fd < 0 ? 0 : wg_raw_read(fd, buf, n - 1);

	wg_raw_close(fd);
	buf[r > 0 ? r : 0] = 0;
	buf[strcspn(buf, "\n")] = 0;
}

static uint64_t own_start_ticks(void)
{
	char buf[1024];
	unsigned long long start = 0;
	char *p;

	read_line("/proc/self/stat", buf, sizeof(buf));
	p = strrchr(buf, ')'); /* the name may hold anything */
	if (!p)
		return 0;
	p++;
	for (int field = 3; *p && field < 22; field++) {
		p = strchr(p + 1, ' ');
		if (!p)
			return 0;
	}
	while (*p == ' ')
		p++;
	while (*p >= '0' && *p <= '9')
		start = start * 10 + (unsigned int)(*p++ - '0');
	return start;
}

static uint64_t clock_ns(clockid_t id)
{
	struct timespec ts;

	clock_gettime(id, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* From the start in boot ticks; containers have shown nonsense there, so only what can be. */
static uint64_t own_age_ns(uint64_t start)
{
	uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK), now = clock_ns(CLOCK_BOOTTIME), began;

	if (!start || !hz || start > UINT64_MAX / 1000000000u)
		return 0;
	began = start * 1000000000u / hz;
	return began < now && now - began < 10ull * 365 * 86400 * 1000000000u ? now - began : 0;
}

/* The longer we run the better the factor; ticks that are nanoseconds stay mult 0. */
static void tune_clock(void)
{
	struct wgrec_clock *c = &wg_trace_header->clock;
	uint64_t ticks = wg_ticks() - c->tsc0, ns = clock_ns(CLOCK_MONOTONIC) - c->mono0_ns;

	if (!c->mult || ns < 500000000u || !ticks)
		return;
	c->mult = (uint64_t)(((__uint128_t)ns << 32) / ticks);
}

static void fill_header(struct wgtr_header *h)
{
	struct stat st;
	long n;
	int fd;

	h->version = WGTR_VERSION;
	h->min_version = WGTR_MIN_VERSION;
	h->endian = WGTR_ENDIAN;
	h->header_size = WGTR_HEADER_SIZE;
	h->chunk_size = tr.chunk_size;
	h->chunk_header_size = sizeof(struct wgtr_chunk);
	h->site_size = sizeof(struct wgtr_site);
	h->live_size = sizeof(struct wgtr_live);
	h->bucket_size = sizeof(struct wgtr_bucket);
	h->device_size = sizeof(struct wgtr_device);
	h->devices_offset = WGTR_DEVICES_AT;
	h->ndevices = WGTR_DEVICES;
	h->page_size = (uint32_t)sysconf(_SC_PAGESIZE);
	h->trace_max = wg_settings.trace_max;
	h->clock.tsc0 = wg_ticks();
	h->clock.mono0_ns = clock_ns(CLOCK_MONOTONIC);
	h->clock.real0_ns = clock_ns(CLOCK_REALTIME);
	h->clock.mult = wg_ticks_to_ns(1ull << 32);
	if (h->clock.mult == 1ull << 32)
		h->clock.mult = 0; /* nanoseconds already */
	while (h->time_shift < 20 && (wg_ticks_to_ns(1ull << 30) >> (30 - h->time_shift - 1)) <= 16)
		h->time_shift++; /* a unit of at most 16 ns */
	h->opened = h->touched = h->clock.tsc0;
	h->pid = (uint32_t)getpid();
	h->start_ticks = own_start_ticks();
	h->age_ns = own_age_ns(h->start_ticks);
	if (!stat("/proc/self/ns/pid", &st))
		h->pidns = st.st_ino;
	read_line("/proc/sys/kernel/random/boot_id", h->boot_id, sizeof(h->boot_id));
	gethostname(h->host, sizeof(h->host) - 1);
	h->rank = h->world = h->local_rank = -1;
	if (wg_rec) {
		h->rank = wg_rec->rank;
		h->world = wg_rec->world;
		h->local_rank = wg_rec->local_rank;
		memcpy(h->rank_source, wg_rec->rank_source, sizeof(h->rank_source));
	}
	fd = wg_raw_open("/proc/self/cmdline");
	n = fd < 0 ? 0 : wg_raw_read(fd, h->command, sizeof(h->command) - 1);
	wg_raw_close(fd);
	for (long i = 0; i + 1 < n; i++)
		if (!h->command[i])
			h->command[i] = ' ';
	n = readlink("/proc/self/exe", h->exe, sizeof(h->exe) - 1);
	h->exe[n > 0 ? n : 0] = 0;
	for (int i = 0; i < WGTR_DEVICES; i++) {
		struct wgtr_device *d = (struct wgtr_device *)((char *)h + WGTR_DEVICES_AT) + i;

		d->ordinal = i;
		d->total = d->free = d->least_free = d->context = d->first_free = WGTR_UNKNOWN;
	}
}

/* mkdir -p, 0700 for what is new. */
static int make_dir(const char *dir)
{
	char path[256];
	size_t n = strnlen(dir, sizeof(path));

	if (!n || n >= sizeof(path))
		return -ENAMETOOLONG;
	memcpy(path, dir, n + 1);
	for (size_t i = 1; i <= n; i++) {
		if (path[i] != '/' && path[i])
			continue;
		path[i] = 0;
		if (mkdir(path, 0700) && errno != EEXIST && i == n)
			return -errno;
		path[i] = dir[i];
	}
	return 0;
}

static int open_file(const struct wgtr_header *h)
{
	char suffix[16] = "";
	struct stat st;
	int err = make_dir(wg_settings.dir);

	if (err)
		return err;
	/* After an exec() pid and start are those of the first program, whose trace stays. */
	for (int i = 2;; i++) {
		int n = snprintf(tr.path, sizeof(tr.path), "%s/%s-%u-%llu%s.trace", wg_settings.dir,
				 h->host, h->pid, (unsigned long long)h->start_ticks, suffix);

		if (n < 0 || (size_t)n >= sizeof(tr.path))
			return -ENAMETOOLONG;
		tr.fd = (int)syscall(SYS_openat, AT_FDCWD, tr.path,
				     O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
		if (tr.fd >= 0)
			break;
		if (errno != EEXIST || i > 99)
			return -errno;
		snprintf(suffix, sizeof(suffix), "-%d", i);
	}
	out_of_the_way();
	if (fstat(tr.fd, &st))
		return -errno;
	tr.dev = st.st_dev;
	tr.ino = st.st_ino;
	return reserve(0, WGTR_HEADER_SIZE);
}

int wg_trace_open(void)
{
	struct wgtr_header *h, *scratch;
	uint64_t max = wg_settings.trace_max;
	int err;

	if (max < 512 << 10)
		max = 512 << 10;
	tr.chunk_size = 65536;
	while (tr.chunk_size > 16384 && max / tr.chunk_size < 128)
		tr.chunk_size >>= 1;
	while (tr.chunk_size < 4u << 20 && max / tr.chunk_size > 32768)
		tr.chunk_size <<= 1;
	max /= tr.chunk_size;
	tr.chunks_max = max > 1u << 20 ? 1u << 20 : (uint32_t)max;
	if (tr.chunks_max < TR_MIN_CHUNKS)
		tr.chunks_max = TR_MIN_CHUNKS;
	tr.sites_per_chunk = (tr.chunk_size - sizeof(struct wgtr_chunk)) / sizeof(struct wgtr_site);
	tr.live_per_chunk = (tr.chunk_size - sizeof(struct wgtr_chunk)) / sizeof(struct wgtr_live);
	tr.buckets_per_half =
		(tr.chunk_size - sizeof(struct wgtr_chunk)) / sizeof(struct wgtr_bucket) / 2;
	tr.fd = -1;
	scratch = wg_pages(WGTR_HEADER_SIZE);
	if (!scratch)
		return -ENOMEM;
	fill_header(scratch);
	tr.full = wg_pages(tr.chunks_max * sizeof(*tr.full));
	err = tr.full ? open_file(scratch) : -ENOMEM;
	if (!err) {
		h = mmap(NULL, WGTR_HEADER_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, tr.fd, 0);
		if (h == MAP_FAILED)
			err = -errno;
	}
	if (err) {
		if (tr.fd >= 0) {
			unlink(tr.path);
			wg_raw_close(tr.fd);
			tr.fd = -1;
		}
		wg_trace_header = scratch;
		return err;
	}
	memcpy(h, scratch, WGTR_HEADER_SIZE);
	wg_pages_free(scratch, WGTR_HEADER_SIZE);
	atomic_thread_fence(memory_order_release);
	memcpy(h->magic, WGTR_MAGIC, 8);
	wg_trace_header = h;
	tr.file = true;
	if (wg_rec)
		memcpy(wg_rec->trace_path, tr.path, sizeof(wg_rec->trace_path));
	return 0;
}

bool wg_trace_is_file(void)
{
	return tr.file;
}

/* Helper thread, about once a second. */
void wg_trace_tick(void)
{
	if (!wg_trace_header)
		return;
	tune_clock();
	wg_trace_header->touched = wg_ticks();
	if (wg_rec) {
		wg_rec->trace_lost = wg_trace_header->lost;
		wg_rec->trace_bytes = tr.file ? WGTR_HEADER_SIZE +
						(uint64_t)__atomic_load_n(&tr.chunks, __ATOMIC_RELAXED) *
							tr.chunk_size : 0;
	}
	/* Chunks in stock: reserving and faulting them in costs somebody's call otherwise. */
	while (tr.file && tr.spares < TR_SPARE && tr.full_in && wg_lock_take(&tr.layout)) {
		uint32_t number;
		struct wgtr_chunk *c = NULL;

		if (tr.chunks < tr.chunks_max && tr.spares < TR_SPARE)
			c = append_chunk(&number);
		if (c) {
			for (uint32_t at = 0; at < tr.chunk_size; at += 4096)
				((volatile char *)c)[at] = 0;
			tr.spare[tr.spares].map = c;
			tr.spare[tr.spares++].number = number;
		}
		wg_lock_drop(&tr.layout);
		if (!c)
			break;
	}
}

void wg_trace_end(void)
{
	if (!wg_trace_header)
		return;
	tune_clock();
	wg_trace_header->touched = wg_ticks();
	atomic_thread_fence(memory_order_release);
	wg_trace_header->ended = wg_ticks();
}

/* The parent's file is the parent's: forget it, and let no later mistake reach it. */
void wg_trace_fork_child(void)
{
	struct stat st;

	if (!wg_trace_header)
		return;
	for (int i = 0; i < WGTR_WRITERS; i++) {
		struct tr_writer *w = &tr_writers[i];

		if (w->chunk)
			munmap(w->chunk, tr.chunk_size);
		w->chunk = NULL;
		w->ordinal = 0;
		w->ticks = 0;
		w->lost = 0;
		atomic_store(&w->lock.tid, 0);
	}
	for (int i = 0; i < WGTR_DEVICES; i++) {
		if (tr_lines[i].chunk)
			munmap(tr_lines[i].chunk, tr.chunk_size);
		memset(&tr_lines[i], 0, sizeof(tr_lines[i]));
	}
	for (uint32_t i = 0; i < TR_TABLE_CHUNKS && tr.sites[i]; i++)
		munmap(tr.sites[i], tr.chunk_size);
	for (uint32_t i = 0; i < TR_TABLE_CHUNKS && tr.live[i]; i++)
		munmap(tr.live[i], tr.chunk_size);
	for (uint32_t i = 0; i < tr.spares; i++)
		munmap(tr.spare[i].map, tr.chunk_size);
	if (tr.defs)
		munmap(tr.defs, tr.chunk_size);
	wg_pages_free(tr.full, tr.chunks_max * sizeof(*tr.full));
	munmap(wg_trace_header, WGTR_HEADER_SIZE);
	wg_trace_header = NULL;
	/* The descriptor is a copy: closing it here takes nothing from the parent. */
	if (tr.fd >= 0 && !fstat(tr.fd, &st) && st.st_dev == tr.dev && st.st_ino == tr.ino)
		wg_raw_close(tr.fd);
	memset(&tr, 0, sizeof(tr));
	tr.fd = -1;
}
