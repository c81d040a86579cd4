/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.c - memory of another process, without stopping it and without trusting it.
 *
 * Reads go through /proc/PID/mem where it can be opened: it waits for the target's memory
 * lock killably, so that our own exit is not held up behind a driver that keeps the lock,
 * which process_vm_readv() would do. It also stays with the address space that was opened
 * when the process executes something else. process_vm_readv() is the second choice.
 *
 * Every read is done by a thread of its own that can be left behind: a page of a mapped
 * file may come from a file system whose daemon is what hangs. The two threads hand over
 * by spinning for some microseconds before they sleep, and the cache takes whole pages,
 * so that a stack costs about one hand-over.
 *
 * Mappings of devices are never touched: reading the registers of a GPU can have effects.
 */
#include "deadline.h"
#include "mem.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define PAGE 4096u
#define CACHE_PAGES 1024u   /* 4 MiB */
#define WAYS 4u
#define CLUSTER 2u	    /* pages read at a miss in anonymous memory */
#define BATCH 256u	    /* pages of one hand-over */
#define MAPS_MAX (256u << 20)
#define FIRST_DEADLINE_S 2.0
#define READ_DEADLINE_S 1.0
#define HUNG_MAPS 4	    /* mappings that may fail to answer before we stop asking at all */
#define REMAP_GAP_S 0.05    /* between two readings of maps because an address is unknown ... */
#define REMAP_FREE 4	    /* ... after the first few: garbage pointers must not cost much */

struct piece { /* one contiguous read inside a job */
	uint64_t addr;
	uint32_t n, at; /* bytes, and where in buf */
	int32_t got;	/* bytes or -errno */
};

struct job { /* belongs to the reading thread when that is left behind: never freed then */
	int pid, fd; /* fd -1: process_vm_readv */
	struct piece pieces[BATCH];
	uint32_t npieces;
	char buf[BATCH * PAGE];
};

struct wg_mem {
	int pid;
	int task;      /* whose entry in /proc shows the memory: mostly pid */
	int error;
	int fd;	       /* /proc/PID/mem, ours or inherited; -1 */
	bool fd_ours, fd_pinned; /* pinned: a thread left behind may still use it */
	bool worked;   /* something was read: later deadlines are shorter */
	struct wg_arena *arena; /* maps and their strings */
	const struct wg_map *maps;
	size_t nmaps;
	double maps_at;
	int remaps;
	uint64_t missed; /* page that was in no mapping just now */
	int file_timeouts;
	uint64_t hung[HUNG_MAPS]; /* start of mappings that did not answer */
	int nhung;
	uint64_t reads, bytes;
	int (*fake)(void *arg, uint64_t addr, void *buf, size_t n);
	void *fake_arg;
};

/*
 * Shared by all memories of the collecting thread, which looks at one process after the other:
 * 64 ranks with a thread and 4 MiB of cache each cost more than reading their stacks.
 */
static struct {
	int users; /* open memories */
	struct wg_patient *thread, *file_thread;
	struct job *job;
	const struct wg_mem *owner; /* of what is in the cache */
	uint32_t generation;
	uint8_t next[CACHE_PAGES / WAYS];
	uint64_t *tags;	      /* page address | 1 when valid */
	uint32_t *tag_gen;
	uint16_t *tag_len;
	char *pages;
} common;

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- the reading thread ------------------------------------------------------- */

static void serve(void *arg)
{
	struct job *j = arg;

	for (uint32_t i = 0; i < j->npieces; i++) {
		struct piece *p = &j->pieces[i];
		ssize_t k;

		if (j->fd >= 0) {
			k = pread(j->fd, j->buf + p->at, p->n, (off_t)p->addr);
		} else {
			struct iovec here = { j->buf + p->at, p->n };
			struct iovec there = { (void *)(uintptr_t)p->addr, p->n };

			k = process_vm_readv(j->pid, &here, 1, &there, 1, 0);
		}
		if (k < 0)
			p->got = errno == EIO ? -EFAULT : -errno;
		else
			p->got = k ? (int32_t)k : -ESRCH; /* 0: the address space is gone */
	}
}

/* ---- maps ----------------------------------------------------------------------- */

static int map_cmp(const void *a, const void *b)
{
	const struct wg_map *x = a, *y = b;

	return x->lo < y->lo ? -1 : x->lo > y->lo;
}

static bool take_hex(char **s, char end, uint64_t *v)
{
	char *e;

	errno = 0;
	*v = strtoull(*s, &e, 16);
	if (e == *s || *e != end || errno || **s == '-' || **s == '+')
		return false;
	*s = e + 1;
	return true;
}

/* The kernel writes a newline in a name as \012 and nothing else that way. */
static void unescape(char *s)
{
	char *o = s;

	while (*s) {
		if (!strncmp(s, "\\012", 4)) {
			*o++ = '\n';
			s += 4;
		} else {
			*o++ = *s++;
		}
	}
	*o = 0;
}

static bool parse_line(struct wg_arena *a, char *s, struct wg_map *m)
{
	static const char gone[] = " (deleted)";
	uint64_t major, minor;
	char *copy, *e;
	size_t n;

	if (!take_hex(&s, '-', &m->lo) || !take_hex(&s, ' ', &m->hi) || m->hi <= m->lo)
		return false;
	if (strnlen(s, 5) < 5 || s[4] != ' ')
		return false;
	m->r = s[0] == 'r';
	m->w = s[1] == 'w';
	m->x = s[2] == 'x';
	m->shared = s[3] == 's';
	s += 5;
	if (!take_hex(&s, ' ', &m->off) || !take_hex(&s, ':', &major) ||
	    !take_hex(&s, ' ', &minor))
		return false;
	m->dev = major << 20 | minor;
	m->ino = strtoull(s, &e, 10);
	while (*e == ' ')
		e++;
	if (!*e)
		return true;
	n = strlen(e);
	if (n > sizeof(gone) - 1 && e[0] != '[' && !strcmp(e + n - (sizeof(gone) - 1), gone)) {
		m->deleted = true;
		e[n - (sizeof(gone) - 1)] = 0;
	}
	unescape(e);
	/* A raw copy, not wg_str(): it has to open the very file. Printing sanitises. */
	copy = wg_alloc(a, strlen(e) + 1);
	memcpy(copy, e, strlen(e) + 1);
	m->path = copy;
	return true;
}

const struct wg_map *wg_maps_parse(struct wg_arena *a, char *text, size_t len, size_t *n)
{
	WG_VEC(struct wg_map) v = { 0 };
	const char *last = NULL;
	size_t k = 0;

	for (char *s = text, *end = text + len, *e; s < end; s = e + 1) {
		struct wg_map m = { 0 };

		e = memchr(s, '\n', (size_t)(end - s));
		if (!e)
			break; /* a line without its end is not whole */
		*e = 0;
		if (!parse_line(a, s, &m))
			continue;
		/* A library has five mappings: share the string. */
		if (m.path && last && !strcmp(m.path, last))
			m.path = last;
		last = m.path;
		*wg_push(a, &v) = m;
	}
	if (v.n)
		qsort(v.v, v.n, sizeof(*v.v), map_cmp);
	/* The file is made page by page while the process goes on: the newest overlap loses. */
	for (size_t i = 0; i < v.n; i++)
		if (!k || v.v[i].lo >= v.v[k - 1].hi)
			v.v[k++] = v.v[i];
	*n = k;
	return v.v;
}

struct slurp { /* reads a whole file on a thread that can be left behind */
	char path[64];
	char *text;
	size_t len;
	int err;
};

static void slurp(void *arg)
{
	struct slurp *s = arg;
	size_t cap = 256 * 1024;
	int fd = open(s->path, O_RDONLY | O_CLOEXEC);
	ssize_t k;

	if (fd < 0) {
		s->err = -errno;
		return;
	}
	s->text = malloc(cap);
	while (s->text) {
		if (s->len == cap) {
			char *t = cap < MAPS_MAX ? realloc(s->text, cap * 2) : NULL;

			if (!t)
				break;
			s->text = t;
			cap *= 2;
		}
		k = read(fd, s->text + s->len, cap - s->len);
		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0)
			s->err = -errno;
		if (k <= 0)
			break;
		s->len += (size_t)k;
	}
	if (!s->text)
		s->err = -ENOMEM;
	close(fd);
}

static int read_maps(struct wg_mem *m)
{
	struct slurp *s = calloc(1, sizeof(*s));
	int err;

	if (!s)
		return -ENOMEM;
	snprintf(s->path, sizeof(s->path), "/proc/%d/maps", m->task);
	err = wg_patient_do(&common.file_thread, m->worked ? READ_DEADLINE_S : FIRST_DEADLINE_S, slurp,
			    s);
	if (err == -ETIMEDOUT)
		return err; /* s belongs to the thread left behind */
	if (!err)
		err = s->err;
	if (!err) {
		m->maps = wg_maps_parse(m->arena, s->text, s->len, &m->nmaps);
		m->maps_at = now_s();
		if (!m->nmaps)
			err = -ESRCH; /* a zombie or a kernel thread has no memory */
	}
	free(s->text);
	free(s);
	return err;
}

static const struct wg_map *find_map(const struct wg_mem *m, uint64_t addr)
{
	size_t lo = 0, hi = m->nmaps;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (m->maps[mid].hi <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < m->nmaps && m->maps[lo].lo <= addr ? &m->maps[lo] : NULL;
}

/* The map at addr; maps are read again when it is not there: the program goes on mapping. */
static const struct wg_map *map_at(struct wg_mem *m, uint64_t addr)
{
	const struct wg_map *x = find_map(m, addr);

	if (x || m->error || m->fake)
		return x;
	if (addr < PAGE || addr >> 47 || addr / PAGE == m->missed) /* not an address of a program: no reason to look */
		return NULL;
	if (m->remaps >= REMAP_FREE && now_s() - m->maps_at < REMAP_GAP_S)
		return NULL;
	m->remaps++;
	if (read_maps(m) == -ETIMEDOUT)
		m->error = -ETIMEDOUT;
	m->maps_at = now_s();
	x = m->error ? NULL : find_map(m, addr);
	if (!x) /* all threads that wait on one lock ask for what lies before it */
		m->missed = addr / PAGE;
	return x;
}

static bool is_device(const struct wg_map *x)
{
	static const char *const memory[] = { "/dev/shm/", "/dev/zero", "/dev/hugepages/",
					      "/dev/mqueue/" };

	if (!x->path)
		return false;
	if (!strcmp(x->path, "[vvar]") || !strcmp(x->path, "[vvar_vclock]") ||
	    !strcmp(x->path, "[vsyscall]"))
		return true;
	if (strncmp(x->path, "/dev/", 5) && strncmp(x->path, "/sys/", 5) &&
	    strncmp(x->path, "anon_inode:", 11))
		return false;
	for (size_t i = 0; i < sizeof(memory) / sizeof(memory[0]); i++)
		if (!strncmp(x->path, memory[i], strlen(memory[i])))
			return false;
	return true;
}

static bool is_anonymous(const struct wg_map *x)
{
	return !x->ino && (!x->path || x->path[0] == '[');
}

static bool is_hung(const struct wg_mem *m, const struct wg_map *x)
{
	for (int i = 0; i < m->nhung; i++)
		if (m->hung[i] == x->lo)
			return true;
	return false;
}

/* ---- reading ---------------------------------------------------------------------- */

/* Do the pieces of the job; the caller has filled them. 0 or -errno for all of them. */
static int ask(struct wg_mem *m, const struct wg_map *x)
{
	struct job *j = common.job;
	int err;

	m->reads++;
	j->pid = m->task;
	j->fd = m->fd;
	err = wg_patient_do(&common.thread, m->worked ? READ_DEADLINE_S : FIRST_DEADLINE_S, serve, j);
	if (!err) {
		m->worked = true;
		for (uint32_t i = 0; i < j->npieces; i++)
			if (j->pieces[i].got > 0)
				m->bytes += (uint64_t)j->pieces[i].got;
		return 0;
	}
	if (err != -ETIMEDOUT)
		return err;
	common.job = NULL; /* it belongs to the thread left behind, and so does the descriptor */
	m->fd_pinned = true;
	/*
	 * A mapped file whose file system does not answer costs that mapping. Anonymous
	 * memory that does not answer means the memory lock: everything.
	 */
	if (!x || is_anonymous(x) || m->nhung == HUNG_MAPS)
		m->error = err;
	else
		m->hung[m->nhung++] = x->lo;
	return err;
}

static int need_job(struct wg_mem *m)
{
	if (m->error)
		return m->error;
	if (!common.job && !m->fake)
		common.job = calloc(1, sizeof(*common.job));
	return common.job || m->fake ? 0 : -ENOMEM;
}

/* Up to BATCH pages inside one mapping, without the cache. Bytes or -errno. */
static int read_raw(struct wg_mem *m, const struct wg_map *x, uint64_t addr, void *buf, size_t n)
{
	struct job *j;
	int err = need_job(m);

	if (err)
		return err;
	if (n > BATCH * PAGE)
		n = BATCH * PAGE;
	if (m->fake) {
		m->reads++;
		return m->fake(m->fake_arg, addr, buf, n);
	}
	j = common.job;
	j->npieces = 1;
	j->pieces[0] = (struct piece){ .addr = addr, .n = (uint32_t)n };
	err = ask(m, x);
	if (err)
		return err;
	if (j->pieces[0].got > 0)
		memcpy(buf, j->buf, (size_t)j->pieces[0].got);
	return j->pieces[0].got;
}

static bool cache_ready(const struct wg_mem *m)
{
	if (common.owner != m) {
		common.owner = m;
		common.generation++;
	}
	if (common.pages)
		return true;
	common.tags = calloc(CACHE_PAGES, sizeof(*common.tags));
	common.tag_gen = calloc(CACHE_PAGES, sizeof(*common.tag_gen));
	common.tag_len = calloc(CACHE_PAGES, sizeof(*common.tag_len));
	common.pages = aligned_alloc(PAGE, (size_t)CACHE_PAGES * PAGE);
	if (!common.tags || !common.tag_gen || !common.tag_len || !common.pages)
		return false;
	/* Two huge pages are longer in the clearing than most processes' stacks in the reading. */
	madvise(common.pages, (size_t)CACHE_PAGES * PAGE, MADV_NOHUGEPAGE);
	return true;
}

/* First of the WAYS slots that a page may be in. */
static uint32_t set_of(uint64_t page)
{
	/* Stacks lie at equal distances: mix the high bits in, or they fall on one set. */
	uint64_t h = page / PAGE * 0x9e3779b97f4a7c15ull >> 32;

	return (uint32_t)(h & (CACHE_PAGES / WAYS - 1)) * WAYS;
}

/* The slot of a page; -1: not in the cache. */
static int slot_of(uint64_t page)
{
	uint32_t set = set_of(page);

	for (uint32_t i = set; i < set + WAYS; i++)
		if (common.tags[i] == (page | 1) && common.tag_gen[i] == common.generation)
			return (int)i;
	return -1;
}

/* The oldest of a set goes: what was fetched together is still there when it is looked at. */
static void cache_put(uint64_t page, const char *data, size_t n)
{
	uint32_t set = set_of(page), i;
	int have = slot_of(page);

	i = have >= 0 ? (uint32_t)have : set + common.next[set / WAYS]++ % WAYS;
	common.tags[i] = page | 1;
	common.tag_gen[i] = common.generation;
	common.tag_len[i] = (uint16_t)n;
	memcpy(common.pages + (size_t)i * PAGE, data, n);
}

/* Bring one page in. 0 or -errno. */
static int fill(struct wg_mem *m, uint64_t page)
{
	char buf[CLUSTER * PAGE];
	const struct wg_map *x = map_at(m, page);
	size_t want = PAGE;
	int k;

	if (m->error)
		return m->error;
	if (!x)
		return -EFAULT;
	if (is_device(x))
		return -EACCES;
	if (is_hung(m, x))
		return -ETIMEDOUT;
	if (is_anonymous(x)) { /* reading ahead in a file could wait for its disk */
		want = x->hi - page < sizeof(buf) ? (size_t)(x->hi - page) : sizeof(buf);
	}
	k = read_raw(m, x, page, buf, want);
	if (k < 0)
		return k;
	if (!k)
		return -EFAULT;
	for (uint32_t o = 0; o < (uint32_t)k; o += PAGE)
		cache_put(page + o, buf + o, (uint32_t)k - o < PAGE ? (uint32_t)k - o : PAGE);
	return 0;
}

int wg_mem_read_some(struct wg_mem *m, uint64_t addr, void *buf, size_t n)
{
	char *out = buf;
	size_t done = 0;
	int err = 0;

	if (m->error)
		return m->error;
	if (n > INT_MAX)
		return -EINVAL;
	if (addr + n < addr)
		return -EFAULT;
	if (!cache_ready(m))
		return -ENOMEM;
	while (done < n) {
		uint64_t a = addr + done, page = a & ~(uint64_t)(PAGE - 1);
		size_t o = (size_t)(a - page), k = PAGE - o;
		int slot;

		if (n - done > 16 * PAGE && !o) { /* large: past the cache, up to the map's end */
			const struct wg_map *x = map_at(m, a);
			size_t part = n - done;
			int got;

			err = !x ? -EFAULT : is_device(x) ? -EACCES : is_hung(m, x) ? -ETIMEDOUT : 0;
			if (err)
				break;
			if (x->hi - a < part)
				part = (size_t)(x->hi - a);
			got = read_raw(m, x, a, out + done, part);
			if (got <= 0) {
				err = got ? got : -EFAULT;
				break;
			}
			done += (size_t)got;
			continue;
		}
		slot = slot_of(page);
		if (slot < 0) {
			err = fill(m, page);
			if (err)
				break;
			slot = slot_of(page);
		}
		if (slot < 0 || common.tag_len[slot] <= o) {
			err = -EFAULT;
			break;
		}
		if (k > common.tag_len[slot] - o)
			k = common.tag_len[slot] - o;
		if (k > n - done)
			k = n - done;
		memcpy(out + done, common.pages + (size_t)slot * PAGE + o, k);
		done += k;
	}
	return done ? (int)done : err;
}

int wg_mem_read(struct wg_mem *m, uint64_t addr, void *buf, size_t n)
{
	size_t done = 0;

	while (done < n) {
		int k = wg_mem_read_some(m, addr + done, (char *)buf + done, n - done);

		if (k <= 0)
			return k ? k : -EFAULT;
		done += (size_t)k;
	}
	return 0;
}

int wg_mem_read_str(struct wg_mem *m, uint64_t addr, char *buf, size_t n)
{
	size_t done = 0;

	if (!n)
		return -EINVAL;
	buf[0] = 0;
	while (done < n - 1) {
		uint64_t a = addr + done;
		size_t part = PAGE - (size_t)(a & (PAGE - 1));
		char *end;
		int k;

		if (part > n - 1 - done)
			part = n - 1 - done;
		k = wg_mem_read_some(m, a, buf + done, part);
		if (k <= 0) {
			buf[done] = 0;
			return done ? (int)done : k ? k : -EFAULT;
		}
		end = memchr(buf + done, 0, (size_t)k);
		if (end)
			return (int)(end - buf);
		done += (size_t)k;
	}
	buf[done] = 0;
	return (int)done;
}

void wg_mem_prefetch(struct wg_mem *m, const struct wg_span *spans, size_t n)
{
	size_t i = 0;
	uint64_t page = 0;
	bool within = false;

	if (m->fake || !cache_ready(m))
		return;
	while (i < n && !need_job(m)) {
		struct job *w = common.job;

		w->npieces = 0;
		while (i < n && w->npieces < BATCH) {
			const struct wg_map *x;

			if (!within) {
				page = spans[i].addr & ~(uint64_t)(PAGE - 1);
				within = true;
			}
			if (page >= spans[i].addr + spans[i].n || page < PAGE) {
				within = false;
				i++;
				continue;
			}
			x = find_map(m, page);
			/* Only what cannot hang: a batch must not be lost to one mapped file. */
			if (x && is_anonymous(x) && !is_device(x) && slot_of(page) < 0) {
				struct piece *p = &w->pieces[w->npieces];

				*p = (struct piece){ .addr = page, .n = PAGE,
						     .at = w->npieces * PAGE };
				w->npieces++;
			}
			page += PAGE;
		}
		if (!w->npieces)
			break;
		if (ask(m, NULL))
			return;
		for (uint32_t k = 0; k < w->npieces; k++)
			if (w->pieces[k].got > 0)
				cache_put(w->pieces[k].addr, w->buf + w->pieces[k].at,
					  (size_t)w->pieces[k].got);
	}
}

int wg_mem_slow_call(struct wg_mem *m, void (*fn)(void *), void *arg)
{
	int err;

	if (m->file_timeouts >= HUNG_MAPS)
		return -EBUSY; /* one file after the other does not answer: enough waited */
	err = wg_patient_do(&common.file_thread, READ_DEADLINE_S, fn, arg);
	if (err == -ETIMEDOUT)
		m->file_timeouts++;
	return err;
}

void wg_mem_forget(struct wg_mem *m)
{
	m->missed = 0;
	if (common.owner == m)
		common.generation++;
}

/* ---- opening ------------------------------------------------------------------------ */

/* One number or word of a small file under /proc. */
static bool small_file(const char *path, char *buf, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t k;

	if (fd < 0)
		return false;
	k = read(fd, buf, n - 1);
	close(fd);
	if (k < 0)
		return false;
	buf[k] = 0;
	return true;
}

static void explain(struct wg_facts *f, struct wg_process *p, int pid, int err, const char *what)
{
	const char *why, *remedy = NULL;
	char path[64], text[32];
	struct stat st;

	if (!f)
		return;
	switch (-err) {
	case ETIMEDOUT:
		why = "the kernel did not answer: the process' memory lock is held";
		break;
	case ESRCH:
	case ENOENT:
		why = "the process has no memory any more";
		break;
	case EPERM:
	case EACCES:
		/* Not of the directory, which always has the user's uid. */
		snprintf(path, sizeof(path), "/proc/%d/maps", pid);
		if (small_file("/proc/sys/kernel/yama/ptrace_scope", text, sizeof(text)) &&
		    text[0] != '0' && geteuid()) {
			why = wg_fmt(f->arena, "%s: refused by yama (ptrace_scope %c)",
				     strerror(-err), text[0]);
			remedy = "run as root, or ask the process itself: run it under "
				 "`waitgraph run` and dump it through its signal";
		} else if (p && wg_has_int(p->uid) && (int64_t)geteuid() == p->uid &&
			   !stat(path, &st) && st.st_uid != geteuid()) {
			why = "the process is not dumpable (set-uid, or prctl(PR_SET_DUMPABLE, 0))";
			remedy = "run as root";
		} else if (p && wg_has_int(p->uid) && (int64_t)geteuid() == p->uid) {
			why = wg_fmt(f->arena, "%s: a container, a namespace or a security module keeps "
				     "them apart", strerror(-err));
			remedy = "run inside the same container, as root, or start the program with "
				 "`waitgraph run`: then it is asked through its signal";
		} else if (geteuid()) {
			why = wg_fmt(f->arena, "%s: the process belongs to another user",
				     strerror(-err));
			remedy = "run as that user or as root, or start waitgraphd";
		} else {
			why = wg_fmt(f->arena, "%s: root without CAP_SYS_PTRACE over this process",
				     strerror(-err));
			remedy = "give the container CAP_SYS_PTRACE, or run on the host";
		}
		break;
	default:
		why = strerror(-err);
	}
	wg_add_missing(f, p, what, why, remedy);
}

/* Does this way of reading work? Tries a page that every process has. */
static int probe(struct wg_mem *m, int fd)
{
	const struct wg_map *x = NULL;
	char word[8];
	int k;

	/* Anonymous memory that is there: no file system can delay the first question. */
	for (size_t i = 0; i < m->nmaps && !x; i++)
		if (m->maps[i].r && m->maps[i].path && !strcmp(m->maps[i].path, "[stack]"))
			x = &m->maps[i];
	for (size_t i = 0; i < m->nmaps && !x; i++)
		if (m->maps[i].r && is_anonymous(&m->maps[i]) && !is_device(&m->maps[i]))
			x = &m->maps[i];
	if (!x)
		return -ESRCH;
	m->fd = fd;
	k = read_raw(m, x, x->hi - PAGE, word, sizeof(word));
	return k < 0 ? k : k == sizeof(word) ? 0 : -EFAULT;
}

/* A leader that has ended shows no memory; a thread that goes on shows that of the process. */
static int living_task(int pid)
{
	char path[64], text[512];
	const struct dirent *e;
	int found = pid;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	d = opendir(path);
	while (d && found == pid && (e = readdir(d))) {
		int tid = atoi(e->d_name);
		const char *state;

		if (tid <= 0 || tid == pid)
			continue;
		snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", pid, tid);
		if (!small_file(path, text, sizeof(text)))
			continue;
		state = strrchr(text, ')');
		if (state && state[1] == ' ' && state[2] != 'Z' && state[2] != 'X')
			found = tid;
	}
	if (d)
		closedir(d);
	return found;
}

struct wg_mem *wg_mem_open(struct wg_facts *f, struct wg_process *p, int mem_fd)
{
	struct wg_mem *m = calloc(1, sizeof(*m));
	char path[64];
	int fd;

	if (!m)
		exit(70); /* as the arena does */
	common.users++;
	m->pid = p->pid;
	m->task = p->state == 'Z' && p->alive ? living_task(p->pid) : p->pid;
	m->fd = -1;
	m->arena = wg_arena_new();
	m->error = read_maps(m);
	if (m->error) {
		explain(f, p, m->pid, m->error, "memory maps");
		return m;
	}
	snprintf(path, sizeof(path), "/proc/%d/mem", m->task);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	m->error = fd < 0 ? -errno : 0;
	if (fd >= 0) {
		m->fd_ours = true;
		m->error = probe(m, fd);
		if (!m->error || m->error == -ETIMEDOUT)
			goto out;
		close(fd);
		m->fd_ours = false;
	}
	if (mem_fd >= 0) {
		m->error = 0;
		m->error = probe(m, mem_fd);
		if (!m->error || m->error == -ETIMEDOUT)
			goto out;
	}
	m->error = 0;
	m->error = probe(m, -1);
out:
	if (m->error)
		explain(f, p, m->pid, m->error, "process memory");
	return m;
}

struct wg_mem *wg_mem_open_fake(const struct wg_map *maps, size_t nmaps, int pid,
				int (*read)(void *arg, uint64_t addr, void *buf, size_t n),
				void *arg)
{
	struct wg_mem *m = calloc(1, sizeof(*m));

	if (!m)
		exit(70);
	common.users++;
	m->pid = m->task = pid;
	m->fd = -1;
	m->arena = wg_arena_new();
	m->maps = maps;
	m->nmaps = nmaps;
	m->fake = read;
	m->fake_arg = arg;
	return m;
}

void wg_mem_close(struct wg_mem *m)
{
	if (!m)
		return;
	if (m->fd_ours && m->fd >= 0 && !m->fd_pinned)
		close(m->fd);
	wg_arena_free(m->arena);
	if (common.owner == m)
		common.owner = NULL;
	free(m);
	if (--common.users)
		return;
	wg_patient_end(&common.thread);
	wg_patient_end(&common.file_thread);
	free(common.job);
	free(common.tags);
	free(common.tag_gen);
	free(common.tag_len);
	free(common.pages);
	common.job = NULL;
	common.tags = NULL;
	common.tag_gen = NULL;
	common.tag_len = NULL;
	common.pages = NULL;
}

int wg_mem_error(const struct wg_mem *m) { return m->error; }
int wg_mem_pid(const struct wg_mem *m) { return m->pid; }
int wg_mem_task(const struct wg_mem *m) { return m->task; }

const struct wg_map *wg_mem_maps(struct wg_mem *m, size_t *n)
{
	*n = m->nmaps;
	return m->maps;
}

const struct wg_map *wg_mem_map_at(struct wg_mem *m, uint64_t addr)
{
	return map_at(m, addr);
}

void wg_mem_stats(const struct wg_mem *m, uint64_t *reads, uint64_t *bytes)
{
	*reads = m->reads;
	*bytes = m->bytes;
}
