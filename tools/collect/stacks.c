/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stacks.c - native stacks of all threads of a process that goes on running.
 *
 * For each thread the best of what is at hand:
 *  1. all registers, from the observer, of a thread that sleeps: exact;
 *  2. stack pointer and program counter of a sleeping thread: exact as far as no frame
 *     needs another register, then by trying (see wg_unwind_guess): likely;
 *  3. the recorded call in flight: its caller's stack is exact, also while the thread
 *     spins inside the driver, where nothing else can be had without privilege;
 *  4. ptrace, only if the user asked for it: the thread is held for microseconds.
 * Afterwards sp and pc are looked at again: a thread that moved has an approximate stack.
 */
#include "lines.h"
#include "unwind.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef LINES_BUDGET_S
#define LINES_BUDGET_S 0.25
#endif

#define ROUND 64		/* threads whose stacks are fetched together */
#define STACK_AHEAD 12288 /* of each: most hung threads are not deeper */

struct raw { /* one thread's stack before it has names */
	struct wg_step *step;
	size_t n;
	size_t call_at;	     /* a recorded call stands before this frame; SIZE_MAX none */
	size_t likely_from;  /* frames from here on are likely, not certain; SIZE_MAX none */
	size_t certain_from; /* ... and certain again from here on (a recorded call) */
	enum wg_certainty worst;
	bool complete, gap;  /* gap: frames are missing before call_at */
	uint64_t sp, pc;     /* where the thread was when it was read; 0 not comparable */
};

struct ctx {
	struct wg_facts *f;
	struct wg_process *p;
	struct wg_mem *m;
	struct wg_symbols *s;
	struct wg_unwinder *u;
	const struct wg_regs **by_tid;
	size_t nregs;
	bool allow_ptrace;
	struct wg_walk *w, *w2;
	struct wg_arena *tmp;
	size_t without, moved;
};

static int regs_cmp(const void *a, const void *b)
{
	const struct wg_regs *x = *(const struct wg_regs *const *)a;
	const struct wg_regs *y = *(const struct wg_regs *const *)b;

	return x->tid < y->tid ? -1 : x->tid > y->tid;
}

static const struct wg_regs *regs_of(const struct ctx *c, int32_t tid)
{
	size_t lo = 0, hi = c->nregs;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (c->by_tid[mid]->tid < tid)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < c->nregs && c->by_tid[lo]->tid == tid ? c->by_tid[lo] : NULL;
}

/*
 * sp and pc of a thread that sleeps. 1 known, 0 it runs, -1 no permission or gone.
 * "NR args... sp pc", "-1 sp pc" (a fault), or "running".
 */
static int where_now(int pid, int32_t tid, uint64_t *sp, uint64_t *pc)
{
	char path[64], buf[256], *e, *last;
	ssize_t k;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", pid, tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	k = read(fd, buf, sizeof(buf) - 1);
	close(fd);
	if (k <= 0)
		return -1;
	buf[k] = 0;
	if (!strncmp(buf, "running", 7))
		return 0;
	e = strrchr(buf, ' ');
	if (!e)
		return -1;
	*pc = strtoull(e + 1, NULL, 16);
	*e = 0;
	last = strrchr(buf, ' ');
	if (!last)
		return -1;
	*sp = strtoull(last + 1, NULL, 16);
	return *sp ? 1 : 0;
}

static void keep(struct ctx *c, struct raw *r, const struct wg_walk *w)
{
	r->n = w->n;
	r->step = wg_alloc(c->tmp, w->n * sizeof(*r->step));
	memcpy(r->step, w->step, w->n * sizeof(*r->step));
	r->complete = w->end == WG_WALK_START || w->end == WG_WALK_ZERO;
	for (size_t i = 0; i < w->n; i++)
		if (w->step[i].guessed && i < r->likely_from)
			r->likely_from = i;
	if (r->likely_from < r->n)
		r->worst = WG_LIKELY;
}

static void raw_init(struct raw *r)
{
	memset(r, 0, sizeof(*r));
	r->call_at = r->likely_from = r->certain_from = SIZE_MAX;
}

static const struct wg_call *innermost(const struct wg_thread *t)
{
	const struct wg_call *c = t->calls.n ? &t->calls.v[t->calls.n - 1] : NULL;

	return c && c->sp && c->ra ? c : NULL;
}

static void walk_call(struct ctx *c, const struct wg_call *call, struct wg_walk *w)
{
	struct wg_regs r = { .sp = call->sp, .ip = call->ra, .bp = call->fp };

	wg_unwind(c->u, &r, true, true, w);
}

/* Which frame of w is the caller of the recorded call? SIZE_MAX: it does not pass there. */
static size_t passes(const struct wg_walk *w, const struct wg_call *call)
{
	for (size_t i = 0; i < w->n; i++)
		if (w->step[i].pc == call->ra && w->step[i].sp == call->sp)
			return i;
	return SIZE_MAX;
}

/* The caller's stack of a call in flight, alone or behind inner frames that are known. */
static bool from_call(struct ctx *c, const struct wg_call *call, struct raw *r, bool behind)
{
	size_t inner = behind ? r->n : 0;
	struct wg_step *both;

	walk_call(c, call, c->w2);
	if (!c->w2->n || !wg_mem_map_at(c->m, call->ra))
		return false;
	/* The inner frames lie below it on the same stack, or they belong to something else. */
	while (inner && r->step[inner - 1].sp >= call->sp)
		inner--;
	both = wg_alloc(c->tmp, (inner + c->w2->n) * sizeof(*both));
	if (inner)
		memcpy(both, r->step, inner * sizeof(*both));
	memcpy(both + inner, c->w2->step, c->w2->n * sizeof(*both));
	r->step = both;
	r->n = inner + c->w2->n;
	r->call_at = inner;
	r->certain_from = inner;
	r->gap = true;
	r->complete = c->w2->end == WG_WALK_START || c->w2->end == WG_WALK_ZERO;
	r->worst = c->w2->guessed ? WG_LIKELY : r->worst;
	for (size_t i = inner; i < r->n; i++)
		if (both[i].guessed) {
			r->certain_from = SIZE_MAX;
			r->likely_from = i;
			break;
		}
	return true;
}

/* With sp and pc only. */
static void from_sp_pc(struct ctx *c, const struct wg_thread *t, uint64_t sp, uint64_t pc,
		       struct raw *r)
{
	const struct wg_call *call = innermost(t);
	struct wg_regs regs = { .tid = t->tid, .sp = sp, .ip = pc };
	size_t known;
	bool weak = false, found;

	raw_init(r);
	r->sp = sp;
	r->pc = pc;
	wg_unwind(c->u, &regs, false, false, c->w);
	known = c->w->n;
	if (c->w->end != WG_WALK_NEEDS) {
		keep(c, r, c->w);
		if (!r->complete && call && passes(c->w, call) == SIZE_MAX)
			from_call(c, call, r, true);
		return;
	}
	keep(c, r, c->w);
	if (call) {
		/* The recorded call says where the stack must pass: a guess is checked by it. */
		found = wg_unwind_guess(c->u, &regs, call->sp, call->ra, c->w, &weak);
		if (!found) {
			from_call(c, call, r, true);
			return;
		}
	} else {
		found = wg_unwind_guess(c->u, &regs, 0, 0, c->w, &weak);
	}
	if (!found)
		return;
	raw_init(r);
	r->sp = sp;
	r->pc = pc;
	keep(c, r, c->w);
	r->likely_from = known;
	r->worst = weak && !call ? WG_GUESS : WG_LIKELY;
	if (call)
		r->certain_from = passes(c->w, call);
}

static void from_regs(struct ctx *c, const struct wg_regs *regs, const struct wg_thread *t,
		      struct raw *r)
{
	const struct wg_call *call = innermost(t);

	raw_init(r);
	wg_unwind(c->u, regs, true, false, c->w);
	keep(c, r, c->w);
	if (!regs->approximate) {
		r->sp = regs->sp;
		r->pc = regs->ip;
		if (!r->complete && call && passes(c->w, call) == SIZE_MAX)
			from_call(c, call, r, true);
		return;
	}
	/* It runs: these registers are from its last way into the kernel. */
	if (call && passes(c->w, call) == SIZE_MAX) {
		raw_init(r);
		if (from_call(c, call, r, false))
			return;
		keep(c, r, c->w);
	}
	r->likely_from = 0;
	r->worst = WG_LIKELY;
	r->certain_from = call ? passes(c->w, call) : SIZE_MAX;
}

/* ---- ptrace, when the user asked for it --------------------------------------------------- */

static bool from_ptrace(struct ctx *c, const struct wg_thread *t, struct raw *r)
{
#if defined(__x86_64__)
	struct user_regs_struct ur;
	struct wg_regs regs = { .tid = t->tid, .full = true };
	bool ok = false;
	int status = 0;

	if (ptrace(PTRACE_SEIZE, t->tid, 0, 0))
		return false;
	if (!ptrace(PTRACE_INTERRUPT, t->tid, 0, 0)) {
		/* A thread in an uninterruptible wait does not stop: do not wait for it. */
		for (int i = 0; i < 200 && !ok; i++) {
			int k = waitpid(t->tid, &status, __WALL | WNOHANG);

			if (k == t->tid && WIFSTOPPED(status))
				ok = true;
			else if (k < 0 || (k == t->tid && !WIFSTOPPED(status)))
				break;
			else
				usleep(50);
		}
		if (ok && !ptrace(PTRACE_GETREGS, t->tid, 0, &ur)) {
			regs.ip = ur.rip;
			regs.sp = ur.rsp;
			regs.bp = ur.rbp;
			regs.bx = ur.rbx;
			regs.r12 = ur.r12;
			regs.r13 = ur.r13;
			regs.r14 = ur.r14;
			regs.r15 = ur.r15;
			wg_mem_forget(c->m);
			raw_init(r);
			wg_unwind(c->u, &regs, true, false, c->w); /* while it stands */
			keep(c, r, c->w);
		} else {
			ok = false;
		}
	}
	/* A signal that stopped it instead of our request is handed on. */
	if (ptrace(PTRACE_DETACH, t->tid, 0,
		   ok && status >> 16 == 0 && WSTOPSIG(status) != SIGTRAP ? WSTOPSIG(status) : 0)) {
		/* Not stopped yet: it will be let go when it is, or when we end. */
		for (int i = 0; i < 20; i++) {
			if (waitpid(t->tid, &status, __WALL | WNOHANG) == t->tid &&
			    !ptrace(PTRACE_DETACH, t->tid, 0, 0))
				break;
			usleep(500);
		}
	}
	return ok;
#else
	(void)c;
	(void)t;
	(void)r;
	return false;
#endif
}

/* ---- one thread ----------------------------------------------------------------------------- */

static void read_thread(struct ctx *c, const struct wg_thread *t, struct raw *r)
{
	const struct wg_regs *regs = regs_of(c, t->tid);
	const struct wg_call *call = innermost(t);
	uint64_t sp = t->sp, pc = t->pc;

	raw_init(r);
	if (regs && regs->full) {
		from_regs(c, regs, t, r);
		if (r->complete || r->call_at != SIZE_MAX)
			return;
	} else {
		if (regs && !regs->approximate) {
			sp = regs->sp;
			pc = regs->ip;
		}
		if (sp && pc) {
			from_sp_pc(c, t, sp, pc, r);
			if (r->complete || r->call_at != SIZE_MAX)
				return;
		} else if (call && from_call(c, call, r, false)) {
			return;
		}
	}
	if (c->allow_ptrace) {
		struct raw q;

		if (from_ptrace(c, t, &q) && q.n >= r->n)
			*r = q;
	}
}

static void emit(struct ctx *c, struct wg_thread *t, const struct raw *r)
{
	const struct wg_call *call = innermost(t);

	t->native_stack.n = 0;
	for (size_t i = 0; i <= r->n; i++) {
		const struct wg_line *l;
		struct wg_frame fr, *out;
		enum wg_certainty sure;
		size_t nl;

		if (i == r->call_at && call) {
			out = wg_push(c->f->arena, &t->native_stack);
			out->symbol = call->function;
			out->line = WG_NO_INT;
			if (call->inner && strcmp(call->inner, call->function))
				out->symbol = wg_fmt(c->f->arena, "%s (in %s)", call->inner,
						     call->function);
		}
		if (i == r->n)
			break;
		wg_symbols_frame(c->s, c->f, r->step[i].pc, r->step[i].is_return, &fr);
		sure = i >= r->certain_from ? WG_CERTAIN : i >= r->likely_from ? WG_LIKELY :
										 WG_CERTAIN;
		if (sure == WG_LIKELY && r->worst == WG_GUESS)
			sure = WG_GUESS;
		nl = wg_lines_of(c->s, r->step[i].pc - r->step[i].is_return, &l);
		/* Innermost first: what was inlined there, then the function itself. */
		for (size_t k = 0; k + 1 < nl; k++) {
			out = wg_push(c->f->arena, &t->native_stack);
			out->module = fr.module;
			out->symbol = l[k].function;
			out->file = l[k].file;
			out->line = l[k].line;
			out->pc = fr.pc;
			out->certainty = sure;
			out->inlined = true;
		}
		if (nl) {
			fr.file = l[nl - 1].file;
			fr.line = l[nl - 1].line;
		}
		fr.certainty = sure;
		*(struct wg_frame *)wg_push(c->f->arena, &t->native_stack) = fr;
	}
	t->native_certainty = r->worst;
	t->native_complete = r->complete;
}

/* Whose it is matters for the locks of stdio, and to follow what a running thread does. */
static bool main_wanted(const struct wg_process *p)
{
	if (!p->threads.n || p->threads.v[0].fsbase || p->threads.v[0].tid != p->pid)
		return false;
	if (p->threads.v[0].state == 'R')
		return true;
	for (size_t i = 0; i < p->threads.n; i++)
		if (p->threads.v[i].wait.op == WG_OP_FUTEX && p->threads.v[i].wait.futex.val == 2)
			return true;
	return false;
}

/* The first thread's lies in memory that the loader took, beside the libraries. */
static void find_main_tcb(struct ctx *c, struct wg_thread *t, uint64_t tid_off)
{
#if defined(__x86_64__)
	enum { MOST = 256 << 10, ALL = 4 << 20 };
	const struct wg_map *maps;
	uint64_t words[512];
	size_t n, looked = 0;
	uint32_t tid;

	if (t->tid != c->p->pid)
		return;
	maps = wg_mem_maps(c->m, &n);
	for (size_t k = 0; k < n && looked < ALL; k++) {
		const struct wg_map *x = &maps[k];

		if (!x->r || !x->w || x->shared || x->path || x->hi - x->lo > MOST)
			continue;
		for (uint64_t at = x->lo; at < x->hi; at += sizeof(words)) {
			looked += sizeof(words);
			if (wg_mem_read(c->m, at, words, sizeof(words)))
				break;
			for (size_t i = 0; i + 2 < sizeof(words) / 8; i += 2) {
				uint64_t a = at + i * 8;

				if (words[i] != a || words[i + 2] != a)
					continue;
				if (!wg_mem_read(c->m, a + tid_off, &tid, 4) &&
				    (int32_t)tid == (t->ns_tid ? t->ns_tid : t->tid)) {
					t->fsbase = a;
					return;
				}
			}
		}
	}
#else
	(void)c;
	(void)t;
	(void)tid_off;
#endif
}

/*
 * The thread's control block, which is what stdio locks name as their owner. It lies at the
 * top of the thread's stack and points to itself twice; its tid must be this thread's.
 */
static void find_tcb(struct ctx *c, struct wg_thread *t, uint64_t tid_off, uint64_t sp)
{
#if defined(__x86_64__)
	const struct wg_map *x;
	uint64_t words[512], lo;
	uint32_t tid;

	x = wg_mem_map_at(c->m, sp);
	if (!x || (x->path && !strcmp(x->path, "[stack]")))
		return; /* the first thread's: see find_main_tcb() */
	lo = x->hi - x->lo > 8 * sizeof(words) ? x->hi - 8 * sizeof(words) : x->lo;
	for (uint64_t at = x->hi; at > lo;) {
		size_t n = at - lo < sizeof(words) ? (size_t)(at - lo) : sizeof(words);

		at -= n;
		if (wg_mem_read(c->m, at, words, n))
			return;
		for (size_t i = n / 8; i-- > 0;) {
			uint64_t a = at + i * 8;

			if ((a & 15) || words[i] != a || i + 2 >= n / 8 || words[i + 2] != a)
				continue;
			if (!wg_mem_read(c->m, a + tid_off, &tid, 4) &&
			    (int32_t)tid == t->tid) {
				t->fsbase = a;
				return;
			}
		}
	}
#else
	(void)c;
	(void)t;
	(void)tid_off;
	(void)sp;
#endif
}

/* Where struct pthread keeps its tid: libc tells its debugger. In a container the thread's own
 * number is another one: then nothing is found, which is right. */
static uint64_t tid_offset(struct ctx *c)
{
	uint64_t at = wg_symbols_find(c->s, "libc.so", "_thread_db_pthread_tid");
	uint32_t d[3];

	if (!at)
		at = wg_symbols_find(c->s, "libpthread", "_thread_db_pthread_tid");
	if (!at || wg_mem_read(c->m, at, d, sizeof(d)) || d[0] != 32 || d[2] > 8192)
		return 0;
	return d[2];
}

int wg_stacks_collect(struct wg_facts *f, struct wg_process *p, struct wg_mem *m,
		      struct wg_symbols *s, const struct wg_regs *regs, size_t nregs,
		      bool allow_ptrace)
{
	struct ctx c = { .f = f, .p = p, .m = m, .s = s, .allow_ptrace = allow_ptrace };
	struct wg_span *spans;
	struct raw *raws;
	uint64_t tid_off;
	size_t n = p->threads.n;
	int err = wg_mem_error(m);

	if (err) {
		wg_add_missing(f, p, "native stacks",
			       "the process' memory cannot be read: see process memory", NULL);
		return 0;
	}
	wg_mem_forget(m);
	c.u = wg_unwinder_open(s);
	c.tmp = wg_arena_new();
	c.w = calloc(1, sizeof(*c.w));
	c.w2 = calloc(1, sizeof(*c.w2));
	raws = calloc(n ? n : 1, sizeof(*raws));
	spans = calloc(n ? n : 1, sizeof(*spans));
	c.by_tid = calloc(nregs ? nregs : 1, sizeof(*c.by_tid));
	if (!c.u || !c.w || !c.w2 || !raws || !spans || !c.by_tid) {
		err = -ENOMEM;
		goto out;
	}
	for (size_t i = 0; i < nregs; i++)
		c.by_tid[c.nregs++] = &regs[i];
	qsort(c.by_tid, c.nregs, sizeof(*c.by_tid), regs_cmp);

	for (size_t i = 0; i < n; i++) {
		const struct wg_regs *r = regs_of(&c, p->threads.v[i].tid);
		const struct wg_call *call = innermost(&p->threads.v[i]);
		uint64_t sp = r ? r->sp : p->threads.v[i].sp;

		if (r && r->fsbase)
			p->threads.v[i].fsbase = r->fsbase;
		if (!sp && call)
			sp = call->sp;
		spans[i] = (struct wg_span){ sp, sp ? STACK_AHEAD : 0 };
	}
	/* In rounds that fit the cache: a thread's page must still be there at its turn. */
	for (size_t i = 0; i < n; i++) {
		if (i % ROUND == 0)
			wg_mem_prefetch(m, spans + i, n - i < ROUND ? n - i : ROUND);
		read_thread(&c, &p->threads.v[i], &raws[i]);
	}
	/* Who moved while we read? Those get one more try. */
	for (size_t i = 0; i < n; i++) {
		struct wg_thread *t = &p->threads.v[i];
		uint64_t sp = 0, pc = 0;

		if (!raws[i].sp || where_now(p->pid, t->tid, &sp, &pc) < 0)
			continue;
		if (sp == raws[i].sp && pc == raws[i].pc)
			continue;
		wg_mem_forget(m);
		if (where_now(p->pid, t->tid, &sp, &pc) > 0) {
			uint64_t sp2 = 0, pc2 = 0;

			from_sp_pc(&c, t, sp, pc, &raws[i]);
			if (where_now(p->pid, t->tid, &sp2, &pc2) > 0 && sp == sp2 && pc == pc2)
				continue;
		}
		c.moved++;
		raws[i].likely_from = 0;
		raws[i].certain_from = raws[i].call_at;
		if (raws[i].worst == WG_CERTAIN)
			raws[i].worst = WG_LIKELY;
	}

	wg_lines_start(s, f);
	for (size_t i = 0; i < n; i++)
		for (size_t k = 0; k < raws[i].n; k++)
			wg_lines_want(s, raws[i].step[k].pc - raws[i].step[k].is_return);
	wg_lines_run(s, LINES_BUDGET_S);
	for (size_t i = 0; i < n; i++) {
		emit(&c, &p->threads.v[i], &raws[i]);
		if (!raws[i].n && !p->threads.v[i].ours)
			c.without++;
	}
	tid_off = n > 1 || main_wanted(p) ? tid_offset(&c) : 0;
	for (size_t i = 0; i < n; i++) { /* spans: from where the stacks are to where they end */
		const struct wg_map *x = p->threads.v[i].fsbase ? NULL :
								  wg_mem_map_at(m, spans[i].addr);

		spans[i].n = x && !(x->path && x->path[0] == '/') ? 8192 : 0;
		spans[i].addr = spans[i].n ? x->hi - 8192 : 0;
	}
	for (size_t i = 0; tid_off && i < n; i++) {
		if (i % ROUND == 0)
			wg_mem_prefetch(m, spans + i, n - i < ROUND ? n - i : ROUND);
		if (spans[i].n)
			find_tcb(&c, &p->threads.v[i], tid_off, spans[i].addr);
	}
	if (tid_off && main_wanted(p))
		find_main_tcb(&c, &p->threads.v[0], tid_off);
	if (c.without)
		wg_add_missing(f, p, "native stacks of running threads",
			       wg_fmt(f->arena, "%zu of %zu threads run, or gave no registers",
				      c.without, n),
			       "run as root or start waitgraphd for registers, run the program under "
			       "`waitgraph run`, or ask with --ptrace");
out:
	wg_unwinder_close(c.u);
	wg_arena_free(c.tmp);
	free(c.w);
	free(c.w2);
	free(raws);
	free(spans);
	free(c.by_tid);
	return err;
}

void wg_stacks_symbolize(struct wg_facts *f, struct wg_process *p, struct wg_symbols *s)
{
	wg_lines_start(s, f);
	for (int pass = 0; pass < 2; pass++) {
		for (size_t d = 0; d < p->devices.n; d++)
			for (size_t k = 0; k < p->devices.v[d].failures.n; k++) {
				struct wg_failure *x = &p->devices.v[d].failures.v[k];

				for (size_t i = 0; i < x->stack.n; i++) {
					struct wg_frame *fr = &x->stack.v[i];
					enum wg_certainty sure = fr->certainty;
					const struct wg_line *l;
					size_t nl;

					/* All are return addresses: the innermost returns from
					 * the wrapper. */
					if (!fr->pc || fr->symbol)
						continue;
					if (!pass) {
						wg_lines_want(s, fr->pc - 1);
						continue;
					}
					wg_symbols_frame(s, f, fr->pc, true, fr);
					fr->certainty = sure;
					nl = wg_lines_of(s, fr->pc - 1, &l);
					if (nl) {
						fr->file = l[nl - 1].file;
						fr->line = l[nl - 1].line;
					}
				}
			}
		if (!pass)
			wg_lines_run(s, LINES_BUDGET_S);
	}
}
