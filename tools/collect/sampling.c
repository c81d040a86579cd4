/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampling.c - what a thread does between two looks: where it spins, and which call it
 * repeats.
 *
 * /proc says only "running" for a thread on a CPU, and a stat() of some microseconds between
 * two sleeps is never caught by looking. The kernel's performance events see both, without
 * stopping anything:
 *  - spinning: a CPU-clock event gives the user's registers some times a millisecond. An ordinary
 *    user may have it for his own processes where perf_event_paranoid is 2 or less;
 *  - repeated calls: the raw_syscalls tracepoint of these threads, as root and for the length
 *    of the gap. Every other thread of the host pays some tens of nanoseconds a call for that
 *    time.
 *
 * Hardware breakpoints behind libc's system call instructions would tell an ordinary user the
 * same. They were tried and found unfit: a thread that hit one at a high rate while it was
 * being taken away died of SIGTRAP.
 *
 * A call counts as repeated only when the thread does nothing else: a few kinds of calls,
 * the same objects, the same results. Reading and writing that moves bytes is progress.
 */
#include "sampling.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "bulk.h"
#include "loop.h"

#ifndef SYS_fsopen
#define SYS_fsopen 430
#define SYS_fsconfig 431
#define SYS_fsmount 432
#endif

#define MAX_WATCHED 24	 /* threads */
#define MAX_CALLS 192	 /* remembered of one thread */
#define MAX_PCS 96
#define RING_PAGES 8
#define CLOCK_PERIOD_NS 250000 /* of its own time: a thread that yields gets little of it */
#define LOOP_BUDGET 60000 /* instructions that are run to see whether a loop comes round */
#define LOOP_TRIES 4	  /* samples from which that is tried */

struct ring {
	int fd;
	void *base;
	size_t size;
	int kind; /* CLOCK, CALLS */
};
enum { CLOCK, CALLS };

struct call {
	int64_t nr, ret;
	uint64_t args[6];
	const char *path; /* read when it was seen */
	int32_t holder;	  /* fcntl(F_GETLK): who has the lock, as the kernel answered; 0 */
};

struct watched {
	struct wg_process *p;
	int32_t tid;
	struct ring rings[2];
	int nrings;
	struct call calls[MAX_CALLS];
	int ncalls;
	uint64_t pcs[MAX_PCS];
	struct wg_loop_regs at[MAX_PCS]; /* of the same samples: the first half and the latest */
	int npcs, later;
	struct wg_regs regs; /* of the latest clock sample */
	bool has_regs;
	struct wg_loop *loop; /* what a round of it does; NULL not tried */
	int tries, tried_at;
	double loop_since;    /* when its words were first read */
	bool word_changed, waited;
	bool borrowed; /* memory is that of another thread of the process */
	bool blind; /* no clock may be had: its memory has to tell whether it does anything */
	struct memory *memory; /* copy of it at the start; NULL not taken */
};

struct wg_sampling {
	struct wg_facts *f;
	struct watched *w[MAX_WATCHED];
	size_t n;
	long pagesize;
	int64_t tracepoint; /* id of raw_syscalls:sys_exit; -1 */
	int denied;	    /* errno of the first refusal of a clock */
	int no_calls;	    /* errno: system calls cannot be watched */
};

/* The user's registers that we ask for, in the kernel's numbering, and where they land. */
#if defined(__x86_64__)
/* AX BX CX DX SI DI BP SP IP FLAGS (0..9), R8 .. R15 (16..23): all that a user has but vectors */
#define REGS_MASK 0xff03ffull
enum { Q_AX, Q_BX, Q_CX, Q_DX, Q_SI, Q_DI, Q_BP, Q_SP, Q_IP, Q_FLAGS, Q_R8, Q_R9, Q_R10, Q_R11,
       Q_R12, Q_R13, Q_R14, Q_R15, NREGS };
#define HAVE_SAMPLING 1
#else
#define HAVE_SAMPLING 0
#endif

#if HAVE_SAMPLING

static long perf_open(struct perf_event_attr *a, pid_t tid)
{
	return syscall(SYS_perf_event_open, a, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

/* ---- events ------------------------------------------------------------------------------ */

static int add_ring(struct wg_sampling *s, struct watched *w, struct perf_event_attr *a, int kind)
{
	struct ring *r = &w->rings[w->nrings];
	long fd;

	if (w->nrings == (int)(sizeof(w->rings) / sizeof(w->rings[0])))
		return -ENOSPC;
	a->size = sizeof(*a);
	fd = perf_open(a, w->tid);
	if (fd < 0)
		return -errno;
	r->fd = (int)fd;
	r->size = (size_t)s->pagesize * (RING_PAGES + 1);
	r->base = mmap(NULL, r->size, PROT_READ | PROT_WRITE, MAP_SHARED, r->fd, 0);
	if (r->base == MAP_FAILED) {
		close(r->fd);
		return -errno;
	}
	r->kind = kind;
	w->nrings++;
	return 0;
}

static int add_clock(struct wg_sampling *s, struct watched *w)
{
	struct perf_event_attr a = { .type = PERF_TYPE_SOFTWARE, .config = PERF_COUNT_SW_TASK_CLOCK,
				     .sample_period = CLOCK_PERIOD_NS,
				     .sample_type = PERF_SAMPLE_REGS_USER,
				     .sample_regs_user = REGS_MASK, .exclude_kernel = 1,
				     .exclude_hv = 1 };

	return add_ring(s, w, &a, CLOCK);
}

/*
 * The tracepoint's number stands in tracefs, which need not be mounted: a private instance
 * that nobody else sees serves as well.
 */
static int64_t tracepoint_id(void)
{
	static const char *const paths[] = {
		"/sys/kernel/tracing/events/raw_syscalls/sys_exit/id",
		"/sys/kernel/debug/tracing/events/raw_syscalls/sys_exit/id", NULL };
	int fd = -1, fs, mnt;
	char buf[32];
	int64_t id = -1;
	ssize_t n;

	for (int i = 0; paths[i] && fd < 0; i++)
		fd = open(paths[i], O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		fs = (int)syscall(SYS_fsopen, "tracefs", 1 /* FSOPEN_CLOEXEC */);
		if (fs < 0)
			return -1;
		if (!syscall(SYS_fsconfig, fs, 6 /* FSCONFIG_CMD_CREATE */, NULL, NULL, 0)) {
			mnt = (int)syscall(SYS_fsmount, fs, 1 /* FSMOUNT_CLOEXEC */, 0);
			if (mnt >= 0) {
				fd = openat(mnt, paths[0] + strlen("/sys/kernel/tracing/"),
					    O_RDONLY | O_CLOEXEC);
				close(mnt);
			}
		}
		close(fs);
	}
	if (fd < 0)
		return -1;
	n = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (n > 0) {
		buf[n] = 0;
		id = strtol(buf, NULL, 10);
	}
	return id > 0 ? id : -1;
}

static int add_tracepoint(struct wg_sampling *s, struct watched *w)
{
	struct perf_event_attr a = { .type = PERF_TYPE_TRACEPOINT, .config = (uint64_t)s->tracepoint,
				     .sample_period = 1,
				     .sample_type = PERF_SAMPLE_RAW | PERF_SAMPLE_REGS_USER,
				     .sample_regs_user = REGS_MASK };

	return s->tracepoint < 0 ? -ENOENT : add_ring(s, w, &a, CALLS);
}

/* ---- reading the rings -------------------------------------------------------------------------- */

static void copy_out(const struct ring *r, uint64_t at, void *out, size_t n, long pagesize)
{
	const char *data = (const char *)r->base + pagesize;
	size_t size = r->size - (size_t)pagesize, first, off = (size_t)(at % size);

	first = n < size - off ? n : size - off;
	memcpy(out, data + off, first);
	memcpy((char *)out + first, data, n - first);
}

static void take_call(struct wg_sampling *s, struct watched *w, int64_t nr, int64_t ret,
		      const uint64_t *q)
{
	struct wg_pt_syscall k = { .nr = nr };
	struct call *c;

	if (w->ncalls == MAX_CALLS)
		return;
	k.args[0] = q[Q_DI];
	k.args[1] = q[Q_SI];
	k.args[2] = q[Q_DX];
	k.args[3] = q[Q_R10];
	k.args[4] = q[Q_R8];
	k.args[5] = q[Q_R9];
	c = &w->calls[w->ncalls++];
	c->nr = nr;
	c->ret = ret;
	memcpy(c->args, k.args, sizeof(c->args));
	/* At once: the buffer may be used for another path next time. A few suffice. */
	c->holder = 0;
	if (ret == 0 && c->args[1] == F_GETLK && wg_wait_op(nr) == WG_OP_FCNTL) {
		struct flock l;

		if (!wg_mem_read(wg_pproc(s->f, w->p)->mem, c->args[2], &l, sizeof(l)) &&
		    l.l_type != F_UNLCK && l.l_pid > 0)
			c->holder = l.l_pid;
	}
	c->path = w->ncalls <= 48 ? wg_wait_path(s->f, w->p, &k, wg_pproc(s->f, w->p)->mem) : NULL;
}

static void take_sample(struct wg_sampling *s, struct watched *w, const struct ring *r,
			const char *p, size_t n)
{
	uint64_t q[NREGS], abi;
	int64_t nr = 0, ret = 0;

	if (r->kind == CALLS) {
		uint32_t raw;

		if (n < 4)
			return;
		memcpy(&raw, p, 4);
		if (raw < 24 || raw > n - 4)
			return;
		memcpy(&nr, p + 4 + 8, 8);
		memcpy(&ret, p + 4 + 16, 8);
		p += 4 + raw;
		n -= 4 + raw;
	}
	if (n < 8 + sizeof(q))
		return;
	memcpy(&abi, p, 8);
	if (abi != PERF_SAMPLE_REGS_ABI_64)
		return;
	memcpy(q, p + 8, sizeof(q));
	if (r->kind == CLOCK) {
		static const uint8_t order[16] = { Q_AX, Q_CX, Q_DX, Q_BX, Q_SP, Q_BP, Q_SI, Q_DI,
						   Q_R8, Q_R9, Q_R10, Q_R11, Q_R12, Q_R13, Q_R14,
						   Q_R15 };
		int slot = w->npcs < MAX_PCS ? w->npcs++
					     : MAX_PCS / 2 + w->later++ % (MAX_PCS / 2);

		w->pcs[slot] = q[Q_IP];
		for (int i = 0; i < 16; i++)
			w->at[slot].r[i] = q[order[i]];
		w->at[slot].ip = q[Q_IP];
		w->at[slot].flags = q[Q_FLAGS];
		w->regs = (struct wg_regs){ .tid = w->tid, .full = true, .approximate = true,
					    .ip = q[Q_IP], .sp = q[Q_SP], .bp = q[Q_BP],
					    .bx = q[Q_BX], .r12 = q[Q_R12], .r13 = q[Q_R13],
					    .r14 = q[Q_R14], .r15 = q[Q_R15] };
		w->has_regs = true;
		return;
	}
	take_call(s, w, nr, ret, q);
}

static void drain(struct wg_sampling *s, struct watched *w, struct ring *r)
{
	struct perf_event_mmap_page *page = r->base;
	uint64_t head = __atomic_load_n(&page->data_head, __ATOMIC_ACQUIRE);
	uint64_t tail = page->data_tail;
	char buf[1024];

	while (tail + sizeof(struct perf_event_header) <= head) {
		struct perf_event_header h;

		copy_out(r, tail, &h, sizeof(h), s->pagesize);
		if (h.size < sizeof(h) || tail + h.size > head)
			break;
		if (h.type == PERF_RECORD_SAMPLE && h.size <= sizeof(buf)) {
			copy_out(r, tail, buf, h.size, s->pagesize);
			take_sample(s, w, r, buf + sizeof(h), h.size - sizeof(h));
		}
		tail += h.size;
	}
	__atomic_store_n(&page->data_tail, head, __ATOMIC_RELEASE);
}

/*
 * Where a clock is refused nothing shows where a thread runs. But work leaves traces: the memory that
 * is the process' alone, as far as it is small, twice. Where one thread runs they can only be its.
 */
enum { MEMORY_PIECE = 4096, MEMORY_MOST = 1 << 20, MEMORY_ALL = 4 << 20 };

struct memory { /* copies of pieces */
	uint64_t *at, *words;
	size_t n;
};

static void memory_free(struct memory *c)
{
	if (c)
		free(c->at), free(c->words);
	free(c);
}

static struct memory *memory_copy(struct wg_mem *m)
{
	struct memory *c = calloc(1, sizeof(*c));
	const struct wg_map *maps;
	size_t n;

	if (!c)
		return NULL;
	c->at = malloc(MEMORY_ALL / MEMORY_PIECE * sizeof(*c->at));
	c->words = malloc(MEMORY_ALL);
	maps = wg_mem_maps(m, &n);
	for (size_t k = 0; k < n && c->at && c->words; k++) {
		const struct wg_map *x = &maps[k];
		uint64_t lo = x->lo;

		if (!x->r || !x->w || x->shared)
			continue;
		if (x->hi - lo > MEMORY_MOST) /* the busy end of a stack, and of the heap what came last */
			lo = x->hi - MEMORY_MOST;
		for (; lo < x->hi && c->n < MEMORY_ALL / MEMORY_PIECE; lo += MEMORY_PIECE) {
			if (wg_mem_read(m, lo, c->words + c->n * (MEMORY_PIECE / 8), MEMORY_PIECE))
				break;
			c->at[c->n++] = lo;
		}
	}
	return c;
}

/* Two halves that are numbers of processors: what the kernel writes there of its own (rseq). */
static bool processors(uint64_t v)
{
	return (uint32_t)v < 8192 && v >> 32 < 8192;
}

static enum wg_own_memory memory_compare(const struct memory *c, struct wg_mem *m)
{
	uint64_t now[MEMORY_PIECE / 8];
	size_t read = 0;

	for (size_t k = 0; k < c->n; k++) {
		const uint64_t *then = c->words + k * (MEMORY_PIECE / 8);

		if (wg_mem_read(m, c->at[k], now, sizeof(now)))
			continue;
		read++;
		for (size_t i = 0; i < MEMORY_PIECE / 8; i++)
			if (now[i] != then[i] && !(processors(now[i]) && processors(then[i])))
				return WG_MEMORY_CHANGED;
	}
	return read ? WG_MEMORY_SAME : WG_MEMORY_UNKNOWN;
}

static bool alone(const struct wg_process *p, int32_t tid)
{
	for (size_t i = 0; i < p->threads.n; i++)
		if (p->threads.v[i].tid != tid && p->threads.v[i].state != 'S')
			return false;
	return true;
}

/* Its words now: does somebody write what it reads? */
static void watch_words(struct watched *w, struct wg_mem *m)
{
	for (int i = 0; i < w->loop->nwords; i++) {
		const struct wg_loop_word *x = &w->loop->words[i];
		uint64_t v = 0;

		if (!wg_mem_read(m, x->addr, &v, x->size) && v != x->value)
			w->word_changed = true;
	}
}

/* A round of its loop, from one of the samples: the latest that was not tried. */
static void try_loop(struct wg_sampling *s, struct watched *w)
{
	struct wg_mem *m = wg_pproc(s->f, w->p)->mem;
	const struct wg_thread *t = wg_find_thread(w->p, w->tid);
	struct wg_loop_regs from;

	if (!m || !t || w->npcs <= w->tried_at)
		return;
	if (w->loop && (w->loop->kind == WG_ROUND_SAME || w->loop->fixed_reads)) {
		watch_words(w, m);
		return;
	}
	if (w->tries == LOOP_TRIES)
		return;
	if (!w->loop)
		w->loop = calloc(1, sizeof(*w->loop));
	if (!w->loop)
		return;
	from = w->at[w->npcs - 1];
	from.fsbase = t->fsbase;
	for (size_t i = 0; i < wg_pproc(s->f, w->p)->nregs && !from.fsbase; i++)
		if (wg_pproc(s->f, w->p)->regs[i].tid == w->tid)
			from.fsbase = wg_pproc(s->f, w->p)->regs[i].fsbase;
	if (!from.fsbase && !w->waited) { /* the stacks' collector may still find it */
		w->waited = true;
		return;
	}
	w->tries++;
	w->tried_at = w->npcs < MAX_PCS ? w->npcs : 0;
	wg_loop_run(m, &from, LOOP_BUDGET, w->loop);
	w->loop_since = wg_mono();
}

void wg_sampling_drain(struct wg_sampling *s)
{
	for (size_t i = 0; s && i < s->n; i++) /* what arguments point to is what is there now */
		if (!i || s->w[i]->p != s->w[i - 1]->p)
			wg_mem_forget(wg_pproc(s->f, s->w[i]->p)->mem);
	for (size_t i = 0; s && i < s->n; i++)
		for (int k = 0; k < s->w[i]->nrings; k++)
			drain(s, s->w[i], &s->w[i]->rings[k]);
	for (size_t i = 0; s && i < s->n; i++)
		if (s->w[i]->npcs)
			try_loop(s, s->w[i]);
}

/* ---- starting ------------------------------------------------------------------------------------- */

static struct watched *watch(struct wg_sampling *s, struct wg_process *p, int32_t tid)
{
	struct watched *w;

	if (s->n == MAX_WATCHED)
		return NULL;
	w = calloc(1, sizeof(*w));
	if (!w)
		return NULL;
	w->p = p;
	w->tid = tid;
	s->w[s->n++] = w;
	return w;
}

struct wg_sampling *wg_sampling_start(struct wg_facts *f)
{
	struct wg_sampling *s = calloc(1, sizeof(*s));
	bool tried = false;

	if (!s)
		return NULL;
	s->f = f;
	s->pagesize = sysconf(_SC_PAGESIZE);
	s->tracepoint = -1;
	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];
		struct wg_pproc *k = p->collect;

		if (!k || !k->full || !p->alive || k->denied || k->is_32bit)
			continue;
		for (size_t j = 0; j < p->threads.n; j++) {
			struct wg_thread *t = &p->threads.v[j];
			bool on_cpu = t->state == 'R';
			struct watched *w;

			/* What ran lately and may run again: on a CPU, or in a short wait. */
			if (t->ours || (!on_cpu && !(wg_has_sec(t->last_ran_s) && t->last_ran_s < 1.0) &&
					!(t->wait.op == WG_OP_SLEEP && t->wait.timeout_s <= 2.0)))
				continue;
			if (!on_cpu && t->state != 'S')
				continue;
			w = watch(s, p, t->tid);
			if (!w)
				break;
			if (!tried)
				s->tracepoint = tracepoint_id();
			tried = true;
			if (on_cpu) {
				int rc = add_clock(s, w);

				if (rc && !s->denied)
					s->denied = -rc;
				w->blind = rc != 0;
				for (size_t o = 0; rc && o + 1 < s->n && !w->memory; o++)
					if (s->w[o]->p == p)
						w->memory = s->w[o]->memory;
				w->borrowed = w->memory != NULL;
				if (rc && k->mem && !w->memory)
					w->memory = memory_copy(k->mem);
			}
			if (add_tracepoint(s, w) && !s->no_calls)
				s->no_calls = EACCES;
		}
	}
	return s;
}

size_t wg_sampling_regs(struct wg_sampling *s, struct wg_process *p, struct wg_regs *out, size_t n)
{
	size_t k = 0;

	for (size_t i = 0; s && i < s->n && k < n; i++)
		if (s->w[i]->p == p && s->w[i]->has_regs)
			out[k++] = s->w[i]->regs;
	return k;
}

bool wg_sampling_any(const struct wg_sampling *s)
{
	return s && s->n;
}

bool wg_sampling_hungry(const struct wg_sampling *s)
{
	for (size_t i = 0; s && i < s->n; i++) {
		const struct watched *w = s->w[i];
		const struct wg_ptask *x = wg_ptask(wg_pproc(s->f, w->p), w->tid);
		bool running = x && x->looks >= 2 && !w->npcs;

		for (int k = 0; running && k < x->looks; k++)
			running = x->seen[k].running;
		for (int k = 0; running && k < w->nrings; k++)
			if (w->rings[k].kind == CLOCK)
				return true;
	}
	return false;
}

bool wg_sampling_sees_calls(const struct wg_sampling *s)
{
	return s && s->n && !s->no_calls;
}

/* ---- what it comes to --------------------------------------------------------------------------------- */

static bool is_sleep(const char *name)
{
	static const char *const names[] = { "nanosleep", "clock_nanosleep", "select", "pselect6", "poll",
		"ppoll", "epoll_wait", "epoll_pwait", "epoll_pwait2", "futex", "restart_syscall",
		"gettimeofday", "clock_gettime", "getpid", "gettid", "rt_sigprocmask", NULL };

	for (int i = 0; names[i]; i++)
		if (!strcmp(names[i], name))
			return true;
	return false;
}

static bool same_call(const struct call *a, const struct call *b)
{
	if (a->nr != b->nr)
		return false;
	if (a->path && b->path)
		return !strcmp(a->path, b->path);
	return wg_wait_fd(a->nr, a->args) == wg_wait_fd(b->nr, b->args);
}

/* Bytes that moved: then it is no polling. */
static bool moves_bytes(const struct call *c)
{
	enum wg_op op = wg_wait_op(c->nr);

	return (op == WG_OP_READ || op == WG_OP_WRITE || op == WG_OP_SPLICE) && c->ret > 0;
}

/* A lock that is asked for without waiting, and refused. */
static bool refused_lock(const struct call *c, const char *name)
{
	if (c->ret != -EAGAIN && c->ret != -EACCES)
		return false;
	if (!strcmp(name, "flock"))
		return c->args[1] & LOCK_NB;
	return !strcmp(name, "fcntl") && (c->args[1] == F_SETLK || c->args[1] == F_OFD_SETLK);
}

/*
 * A lock is asked for and refused, and then it sleeps: whatever else is done each time (the file
 * is opened anew, a line says who has the lock), it waits for that lock. Not where bytes move in
 * earnest, and not where the lock was had in between.
 */
/* What the kernel's table has under the number that the program was told. */
static void lock_of(const struct wg_facts *f, const struct watched *w, struct wg_thread *t)
{
	for (int i = w->ncalls - 1; i >= 0; i--)
		for (size_t k = 0; w->calls[i].holder && k < f->locks.n; k++) {
			const struct wg_file_lock *l = &f->locks.v[k];

			if (l->kind != 'p' || l->blocked || l->pid != w->calls[i].holder)
				continue;
			t->repeat_dev = l->dev;
			t->repeat_ino = l->ino;
			return;
		}
}

static bool polls_lock(const struct wg_facts *f, const struct watched *w, struct wg_thread *t)
{
	const struct call *last = NULL;
	int64_t bytes = 0, refusals = 0;
	int at = -1;

	if (t->wait.op != WG_OP_SLEEP && t->wait.op != WG_OP_POLL && t->wait.op != WG_OP_FUTEX)
		return false;
	for (int i = 0; i < w->ncalls; i++) {
		const struct call *c = &w->calls[i];
		const char *name = wg_syscall_name(c->nr);

		if (!name)
			continue;
		if (moves_bytes(c))
			bytes += c->ret;
		if (!strcmp(name, "fcntl") || !strcmp(name, "flock")) {
			if (refused_lock(c, name)) {
				refusals++;
				last = c;
				at = i;
			} else if (!c->ret && last && (!strcmp(name, "flock") || c->args[1] == F_SETLK ||
						       c->args[1] == F_OFD_SETLK)) {
				/* Had in the end; sqlite takes one byte and is refused the next. */
				if (c->args[0] == last->args[0] && i == w->ncalls - 1)
					return false;
			}
		}
	}
	if (!last || bytes > 16384 || (refusals < 2 && t->wait.op != WG_OP_SLEEP))
		return false;
	t->repeat_syscall = wg_syscall_name(last->nr);
	t->repeat_fd = wg_wait_fd(last->nr, last->args);
	t->repeat_errno = -last->ret;
	lock_of(f, w, t);
	/* Opened for the question and closed again: its name is that of the open before. */
	for (int i = at - 1; i >= 0; i--) {
		const struct call *c = &w->calls[i];

		if (wg_wait_op(c->nr) != WG_OP_OPEN || c->ret != (int64_t)last->args[0] || !c->path)
			continue;
		t->repeat_path = c->path;
		t->repeat_fd = WG_NO_INT;
		break;
	}
	return true;
}

/* No process or thread more: of fork's many calls (each C library makes others) this one counts. */
static bool refused_process(const struct call *c)
{
	const char *name = wg_syscall_name(c->nr);

	return (c->ret == -EAGAIN || c->ret == -ENOMEM) && name &&
	       (!strcmp(name, "clone") || !strcmp(name, "clone3") || !strcmp(name, "fork") ||
		!strcmp(name, "vfork"));
}

/*
 * Between two sleeps a call runs into a limit, and was not had since: it tries again, whatever
 * else it does each time.
 */
static bool meets_limit(const struct watched *w, struct wg_thread *t)
{
	const struct call *last = NULL;

	if (t->wait.op != WG_OP_SLEEP && t->wait.op != WG_OP_POLL && t->wait.op != WG_OP_FUTEX)
		return false;
	for (int i = 0; i < w->ncalls; i++) {
		const struct call *c = &w->calls[i];

		if (c->ret == -ENOSPC || c->ret == -EDQUOT || c->ret == -EMFILE || c->ret == -ENFILE ||
		    refused_process(c))
			last = c;
		else if (last && last->nr == c->nr && c->ret >= 0)
			last = NULL;
	}
	if (!last)
		return false;
	t->repeat_syscall = wg_syscall_name(last->nr);
	t->repeat_path = last->path;
	t->repeat_errno = -last->ret;
	t->repeat_fd = WG_NO_INT;
	/* A file that is opened anew for each attempt has its name from there. */
	for (const struct call *c = last; c-- > w->calls && !t->repeat_path;)
		if (wg_wait_op(c->nr) == WG_OP_OPEN && c->ret == wg_wait_fd(last->nr, last->args))
			t->repeat_path = c->path;
	return t->repeat_syscall != NULL;
}

static void judge_calls(const struct wg_facts *f, const struct watched *w, struct wg_thread *t)
{
	const struct call *kinds[6];
	int counts[6], nkinds = 0, best = -1, yields = 0;

	if (polls_lock(f, w, t) || meets_limit(w, t))
		return;

	for (int i = 0; i < w->ncalls; i++) {
		const struct call *c = &w->calls[i];
		const char *name = wg_syscall_name(c->nr);
		int k;

		if (!name || is_sleep(name))
			continue;
		if (!strcmp(name, "sched_yield")) { /* how it waits, not what for */
			yields++;
			continue;
		}
		if (moves_bytes(c))
			return;
		for (k = 0; k < nkinds; k++)
			if (same_call(kinds[k], c))
				break;
		if (k == nkinds) {
			if (nkinds == 6)
				return; /* many different things: it works */
			kinds[nkinds] = c;
			counts[nkinds++] = 0;
		}
		counts[k]++;
		if (!kinds[k]->path && c->path) /* once it was read in time */
			kinds[k] = c;
	}
	for (int k = 0; k < nkinds; k++) {
		/* The close of what was opened says nothing; a name says most. */
		if (!strcmp(wg_syscall_name(kinds[k]->nr), "close"))
			continue;
		if (best < 0 || (kinds[k]->path && !kinds[best]->path) ||
		    (!kinds[k]->path == !kinds[best]->path && counts[k] > counts[best]))
			best = k;
	}
	if (!nkinds && yields >= 3) {
		t->repeat_syscall = "sched_yield";
		t->repeat_errno = 0;
		return;
	}
	/* Once only between two sleeps will do for a look at a file; anything else must recur. */
	if (best < 0 || (counts[best] < 2 && !kinds[best]->path))
		return;
	if (counts[best] < 2 && nkinds > 2)
		return;
	t->repeat_syscall = wg_syscall_name(kinds[best]->nr);
	t->repeat_path = kinds[best]->path;
	t->repeat_fd = wg_wait_fd(kinds[best]->nr, kinds[best]->args);
	t->repeat_errno = kinds[best]->ret < 0 && kinds[best]->ret > -4096 ? -kinds[best]->ret : 0;
}

/* Eight of the addresses: the lowest and the highest, and what lies between. */
static void take_pcs(struct wg_facts *f, struct watched *w, struct wg_thread *t, struct wg_mem *m)
{
	enum { SLOTS = sizeof(t->sample_pc) / sizeof(t->sample_pc[0]) };
	uint64_t lo = UINT64_MAX, hi = 0;
	int n = 0;

	if (!w->npcs)
		return;
	for (int i = 0; i < w->npcs; i++) {
		lo = w->pcs[i] < lo ? w->pcs[i] : lo;
		hi = w->pcs[i] > hi ? w->pcs[i] : hi;
	}
	t->sample_pc[n++] = lo;
	t->sample_pc[n++] = hi;
	for (int i = 0; i < w->npcs && n < SLOTS; i++) {
		bool have = false;

		for (int k = 0; k < n; k++)
			have |= t->sample_pc[k] == w->pcs[i];
		if (!have)
			t->sample_pc[n++] = w->pcs[i];
	}
	/* A loop of one instruction: three samples of it are still three. */
	for (; n < 3; n++)
		t->sample_pc[n] = lo;
	if (n < SLOTS)
		memset(&t->sample_pc[n], 0, (size_t)(SLOTS - n) * sizeof(t->sample_pc[0]));
	if (!t->code && hi - lo <= 256) {
		uint64_t from = lo - 64;
		size_t len = (size_t)(hi - lo) + 128;
		uint8_t *code = malloc(len);

		if (code && !wg_mem_read(m, from, code, len)) {
			uint8_t *kept = wg_alloc(f->arena, len);

			memcpy(kept, code, len);
			t->code = kept;
			t->code_at = from;
			t->code_len = len;
		}
		free(code);
	}
}

/* All that was sampled lies on the round that was run: it has gone round since the first sample. */
static bool on_the_round(const struct watched *w)
{
	int on = 0;

	for (int i = 0; i < w->npcs; i++)
		on += w->loop->all_states ? wg_loop_has(w->loop, &w->at[i])
					  : w->at[i].ip >= w->loop->lo && w->at[i].ip <= w->loop->hi;
	return on * 10 >= w->npcs * 9;
}

static void take_loop(struct wg_facts *f, struct watched *w, struct wg_thread *t, struct wg_mem *m)
{
	const struct wg_loop *l = w->loop;

	if (!l)
		return;
	if (l->kind == WG_ROUND_UNKNOWN || (l->kind == WG_ROUND_SAME && !on_the_round(w)))
		return;
	if (wg_has_int(l->call)) { /* what it does if the call answers "not yet" each time: no proof */
		struct wg_pt_syscall k = { .nr = l->call };

		if (l->kind != WG_ROUND_SAME || t->repeat_syscall)
			return;
		memcpy(k.args, l->call_args, sizeof(k.args));
		t->repeat_syscall = wg_syscall_name(l->call);
		t->repeat_fd = wg_wait_fd(l->call, l->call_args);
		t->repeat_path = wg_wait_path(f, w->p, &k, m);
		return;
	}
	t->round = l->kind;
	t->round_insns = l->insns;
	t->round_reads = l->reads;
	t->round_clock = l->clock;
	t->round_fixed_reads = l->fixed_reads;
	if (l->kind == WG_ROUND_CHANGES && !l->fixed_reads)
		return;
	watch_words(w, m);
	t->polled_changed = w->word_changed;
	t->polled_for_s = wg_mono() - w->loop_since;
	for (int i = 0; i < l->nwords; i++) {
		struct wg_polled *x = wg_push(f->arena, &t->polled);
		const struct wg_map *map = wg_mem_map_at(m, l->words[i].addr);

		x->addr = l->words[i].addr;
		x->value = l->words[i].value;
		x->size = l->words[i].size;
		x->stack = l->words[i].stack;
		if (map && map->shared) {
			x->map_dev = map->dev;
			x->map_ino = map->ino;
			x->map_off = x->addr - map->lo + map->off;
		}
		if (map && map->path)
			x->map_path = wg_str(f->arena, map->path);
	}
}

struct look_arg {
	int dirfd;
	bool own_root;
	char path[4096];
};

static void look_at_path(struct wg_bulk *b)
{
	struct look_arg *a = wg_bulk_arg(b);
	int root = a->own_root ? AT_FDCWD : openat(a->dirfd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct statx st;
	int err = 0;

	if (root == -1 ||
	    statx(root, a->own_root ? a->path : a->path + 1, AT_NO_AUTOMOUNT, STATX_MTIME | STATX_INO, &st))
		err = -errno;
	if (root >= 0)
		close(root);
	wg_bulk_put(b, 1, 0, err, &st, err ? 0 : sizeof(st));
}

/* Is the polled file there now, and how old is it? */
static void look_at_file(struct wg_facts *f, struct wg_process *p, struct wg_thread *t)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_pproc *k = wg_pproc(f, p);
	struct wg_bulk *b;
	struct look_arg *a;
	size_t cursor = 0;
	struct wg_raw r;

	if (!t->repeat_path || t->repeat_path[0] != '/' || strlen(t->repeat_path) < 2 ||
	    strlen(t->repeat_path) >= sizeof(a->path) || k->dirfd < 0)
		return;
	b = wg_bulk_new(1 << 16, sizeof(*a));
	if (!b)
		return;
	a = wg_bulk_arg(b);
	a->dirfd = wg_bulk_own_fd(b, k->dirfd);
	a->own_root = k->mntns && k->mntns == c->mntns;
	strcpy(a->path, t->repeat_path);
	wg_bulk_run(b, wg_pctx_left(c, 0.3), look_at_path);
	if (wg_bulk_next(b, &cursor, &r)) {
		struct timespec now;
		struct statx st;

		if (!r.err && r.len == sizeof(st)) {
			double age;

			memcpy(&st, r.text, sizeof(st));
			clock_gettime(CLOCK_REALTIME, &now);
			age = (double)(now.tv_sec - st.stx_mtime.tv_sec);
			t->repeat_exists = 1;
			t->repeat_dev = (uint64_t)st.stx_dev_major << 20 | st.stx_dev_minor;
			t->repeat_ino = st.stx_ino;
			t->repeat_file_age_s = age >= 0 ? age : WG_NO_SEC;
		} else if (r.err == -ENOENT || r.err == -ENOTDIR) {
			t->repeat_exists = 0;
		}
	}
	wg_bulk_free(b);
}

void wg_sampling_finish(struct wg_sampling *s)
{
	if (!s)
		return;
	wg_sampling_drain(s);
	for (size_t i = 0; i < s->n; i++) {
		struct watched *w = s->w[i];
		struct wg_thread *t = wg_find_thread(w->p, w->tid);

		for (int k = 0; k < w->nrings; k++) {
			munmap(w->rings[k].base, w->rings[k].size);
			close(w->rings[k].fd);
		}
		if (t && w->p->alive) {
			struct wg_mem *m = wg_pproc(s->f, w->p)->mem;

			if (w->ncalls) {
				struct wg_ptask *x = wg_ptask(wg_pproc(s->f, w->p), t->tid);

				judge_calls(s->f, w, t);
				if (x)
					x->calls_seen = true;
			}
			if (m && t->state == 'R') {
				take_pcs(s->f, w, t, m);
				take_loop(s->f, w, t, m);
				if (w->memory) {
					wg_mem_forget(m);
					t->own_memory = memory_compare(w->memory, m);
					/* Somebody's work: whose, with several that run? */
					if (t->own_memory == WG_MEMORY_CHANGED && !alone(w->p, w->tid))
						t->own_memory = WG_MEMORY_UNKNOWN;
				}
			}
			look_at_file(s->f, w->p, t);
			/* The name of a file that was locked just now: not there, so misread. */
			if (t->repeat_syscall && t->repeat_exists == 0 &&
			    (!strcmp(t->repeat_syscall, "fcntl") ||
			     !strcmp(t->repeat_syscall, "flock")))
				t->repeat_path = NULL;
		}
		free(w->loop);
	}
	for (size_t i = 0; i < s->n; i++) {
		if (!s->w[i]->borrowed)
			memory_free(s->w[i]->memory);
		free(s->w[i]);
	}
	for (size_t i = 0; i < s->f->procs.n; i++) {
		struct wg_process *p = s->f->procs.v[i];

		if (!p->collect || !((struct wg_pproc *)p->collect)->full || p->stub)
			continue;
		if (s->denied)
			wg_add_missing(s->f, p, "where running threads are",
				       wg_fmt(s->f->arena, "perf_event_open: %s", strerror(s->denied)),
				       "run as root, or set kernel.perf_event_paranoid to 2");
		if (s->no_calls && s->n)
			wg_add_missing(s->f, p, "what polling threads poll",
				       "watching system calls needs a privilege", "run as root");
	}
	free(s);
}

#else /* no registers known for this machine: nothing is sampled, and that is said */

struct wg_sampling *wg_sampling_start(struct wg_facts *f)
{
	(void)f;
	return NULL;
}
void wg_sampling_drain(struct wg_sampling *s)
{
	(void)s;
}
size_t wg_sampling_regs(struct wg_sampling *s, struct wg_process *p, struct wg_regs *out, size_t n)
{
	(void)s;
	(void)p;
	(void)out;
	(void)n;
	return 0;
}
bool wg_sampling_any(const struct wg_sampling *s)
{
	(void)s;
	return false;
}
bool wg_sampling_hungry(const struct wg_sampling *s)
{
	(void)s;
	return false;
}
bool wg_sampling_sees_calls(const struct wg_sampling *s)
{
	(void)s;
	return false;
}
void wg_sampling_finish(struct wg_sampling *s)
{
	(void)s;
}

#endif
