// SPDX-License-Identifier: Apache-2.0
/*
 * stream.c - streams, their workers, events, and every way to wait.
 *
 * A stream is a queue with sequence numbers. What can be done at once on an idle stream is done
 * by the call that brings it, as a real GPU would have finished it by the time anyone looks;
 * everything else goes to the stream's worker, a thread named simgpu... that blocks all signals.
 */
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "sim.h"

static struct sg_stream *spare_streams;
static struct sg_event *spare_events;
__thread bool sg_in_callback;

/* -- doing ----------------------------------------------------------------------------------- */

static void do_copy(const struct sg_copy *c)
{
	for (size_t z = 0; z < c->depth; z++) {
		uint8_t *d = c->dst + z * c->dslice;
		const uint8_t *s = c->src + z * c->sslice;

		if (c->dpitch == c->width && c->spitch == c->width) {
			memmove(d, s, c->width * c->height);
			continue;
		}
		for (size_t y = 0; y < c->height; y++)
			memmove(d + y * c->dpitch, s + y * c->spitch, c->width);
	}
}

static void do_set(const struct sg_set *b)
{
	for (size_t y = 0; y < b->height; y++) {
		uint8_t *row = b->dst + y * b->pitch;

		if (b->elem == 1) {
			memset(row, (int)b->value, b->width);
		} else if (b->elem == 2) {
			for (size_t x = 0; x < b->width; x++)
				((uint16_t *)row)[x] = (uint16_t)b->value;
		} else {
			for (size_t x = 0; x < b->width; x++)
				((uint32_t *)row)[x] = b->value;
		}
	}
}

static bool value_holds(const struct sg_op *op)
{
	uint64_t now, want = op->value.value;
	bool geq;

	if (op->value.wide) {
		now = atomic_load((_Atomic uint64_t *)op->value.addr);
		geq = (int64_t)(now - want) >= 0;
	} else {
		now = atomic_load((_Atomic uint32_t *)op->value.addr);
		want = (uint32_t)want;
		geq = (int32_t)((uint32_t)now - (uint32_t)want) >= 0;
	}
	switch (op->value.flags & 3) {
	case CU_STREAM_WAIT_VALUE_EQ:
		return now == want;
	case CU_STREAM_WAIT_VALUE_AND:
		return now & want;
	case CU_STREAM_WAIT_VALUE_NOR:
		return op->value.wide ? ~(now | want) != 0 : (uint32_t) ~(now | want) != 0;
	default:
		return geq;
	}
}

static void write_value(const struct sg_op *op)
{
	if (op->value.wide)
		atomic_store((_Atomic uint64_t *)op->value.addr, op->value.value);
	else
		atomic_store((_Atomic uint32_t *)op->value.addr, (uint32_t)op->value.value);
}

static void record_reached(struct sg_stream *s, const struct sg_op *op, uint64_t seq)
{
	struct sg_event *e = op->record.event;

	if (e->slot) {
		/* Recorded before it was given away: that counts as the first record. */
		uint64_t want = op->record.slot_seq ? op->record.slot_seq : 1;
		uint64_t old = atomic_load(&e->slot->completed);

		while (old < want && !atomic_compare_exchange_weak(&e->slot->completed, &old, want))
			;
	}
	if (e->stream == s && e->seq == seq)
		e->done_ns = sg_now_ns();
}

static bool wait_satisfied(const struct sg_op *op)
{
	if (op->wait.slot)
		return atomic_load(&op->wait.slot->completed) >= op->wait.seq;
	return sg_done(op->wait.stream, op->wait.seq);
}

/* Locked. Can the calling thread do it here and now? */
static bool quick(const struct sg_op *op)
{
	switch (op->kind) {
	case SG_OP_KERNEL:
		return op->kernel.func->what == SG_K_END;
	case SG_OP_COPY:
		return op->copy.box.width * op->copy.box.height * op->copy.box.depth <= SG_STAGED;
	case SG_OP_SET:
		return op->set.box.width * op->set.box.height * op->set.box.elem <= SG_STAGED;
	case SG_OP_RECORD:
	case SG_OP_NOP:
	case SG_OP_FREE:
		return true;
	case SG_OP_WAIT:
		return wait_satisfied(op);
	case SG_OP_WAIT_VALUE:
		return sg_backed(op->value.addr, op->value.wide ? 8 : 4) && value_holds(op);
	case SG_OP_WRITE_VALUE:
		return sg_backed(op->value.addr, op->value.wide ? 8 : 4);
	default:
		return false;
	}
}

static void do_quick(struct sg_stream *s, struct sg_op *op, uint64_t seq)
{
	switch (op->kind) {
	case SG_OP_COPY:
		do_copy(&op->copy.box);
		break;
	case SG_OP_SET:
		do_set(&op->set.box);
		break;
	case SG_OP_RECORD:
		record_reached(s, op, seq);
		break;
	case SG_OP_WRITE_VALUE:
		write_value(op);
		break;
	case SG_OP_FREE:
		sg_pool_return(op->free.alloc);
		break;
	default:
		break;
	}
}

void sg_op_free(struct sg_op *op)
{
	if (op->kind == SG_OP_KERNEL)
		free(op->kernel.params);
	else if (op->kind == SG_OP_COPY)
		free(op->copy.box.staged);
	else if (op->kind == SG_OP_BATCH)
		free(op->batch.ops);
	op->kind = SG_OP_NOP;
}

/* -- the worker ------------------------------------------------------------------------------ */

bool sg_done(const struct sg_stream *s, uint64_t seq)
{
	return atomic_load_explicit(&s->completed, memory_order_acquire) >= seq;
}

static bool broken(const struct sg_ctx *c)
{
	return c->dead || c->fault;
}

static int launch_cancelled(const void *launch)
{
	return broken(((const struct sg_stream *)launch)->ctx);
}

static void finish(struct sg_stream *s, uint64_t seq)
{
	atomic_store_explicit(&s->completed, seq, memory_order_release);
	if (s->done_waiters)
		pthread_cond_broadcast(&s->done);
	for (struct sg_waiter *w = s->waiters; w; w = w->next) {
		if (w->seq <= seq) {
			uint64_t one = 1;

			if (write(w->eventfd, &one, sizeof(one)) < 0)
				continue; /* full: it is readable already */
		}
	}
}

static void nap(long ns)
{
	struct timespec t = {0, ns};

	nanosleep(&t, NULL);
}

/* Between two looks at a memory word: short at first, and cheap for one that never changes. */
static void doze(long *ns, uint64_t began)
{
	nap(*ns);
	*ns = SG_MIN(*ns * 2, sg_now_ns() - began > 1000000000u ? 4000000 : 500000);
}

/* Unlocked; s->busy keeps the item ours. */
static void run(struct sg_stream *s, struct sg_item *it)
{
	struct sg_op *op = &it->op;
	struct sg_ctx *ctx = s->ctx;
	uint64_t began = sg_now_ns();
	long pause = 20000;

	switch (op->kind) {
	case SG_OP_KERNEL: {
		struct sg_func *f = op->kernel.func;

		SG_LOG("start stream=%p seq=%llu kernel=%s", (void *)s, (unsigned long long)it->seq,
		       f->name);
		if (f->what == SG_K_SPIN) {
			sg_lock();
			while (!broken(ctx))
				pthread_cond_wait(&s->wake, &sg.lock);
			sg_unlock();
		} else if (f->what == SG_K_SLEEP) {
			uint64_t end = sg_now_ns() + f->sleep_us * 1000;

			while (!broken(ctx)) {
				uint64_t now = sg_now_ns();

				if (now >= end)
					break;
				nap((long)SG_MIN(end - now, 50000000u));
			}
		} else if (f->what == SG_K_NATIVE) {
			int rc = f->native->run(op->kernel.params, launch_cancelled, s);

			if (rc)
				sg_fault(ctx, (CUresult)rc);
		}
		SG_LOG("done stream=%p seq=%llu kernel=%s", (void *)s, (unsigned long long)it->seq,
		       f->name);
		break;
	}
	case SG_OP_COPY:
		do_copy(&op->copy.box);
		break;
	case SG_OP_SET:
		do_set(&op->set.box);
		break;
	case SG_OP_HOST:
		SG_LOG("host stream=%p fn=%p", (void *)s, (void *)op->host.fn);
		sg_in_callback = true;
		op->host.fn(op->host.user);
		sg_in_callback = false;
		break;
	case SG_OP_CALLBACK:
		SG_LOG("callback stream=%p fn=%p", (void *)s, (void *)op->callback.fn);
		sg_in_callback = true;
		op->callback.fn(s->kind == SG_STREAM_USER ? (CUstream)s : NULL,
				(CUresult)ctx->fault, op->callback.user);
		sg_in_callback = false;
		break;
	case SG_OP_WAIT:
		if (op->wait.slot) {
			while (!wait_satisfied(op) && !broken(ctx))
				doze(&pause, began);
			break;
		}
		sg_lock();
		while (!wait_satisfied(op) && !broken(ctx)) {
			op->wait.stream->done_waiters++;
			pthread_cond_wait(&op->wait.stream->done, &sg.lock);
			op->wait.stream->done_waiters--;
		}
		sg_unlock();
		break;
	case SG_OP_WAIT_VALUE:
	case SG_OP_WRITE_VALUE:
		for (;;) {
			bool backed, holds = false;

			sg_lock();
			backed = sg_backed(op->value.addr, op->value.wide ? 8 : 4);
			if (backed && op->kind == SG_OP_WRITE_VALUE)
				write_value(op);
			else if (backed)
				holds = value_holds(op);
			sg_unlock();
			if (!backed)
				sg_fault(ctx, CUDA_ERROR_ILLEGAL_ADDRESS);
			if (!backed || holds || op->kind == SG_OP_WRITE_VALUE || broken(ctx))
				break;
			doze(&pause, began);
		}
		break;
	default:
		sg_lock();
		do_quick(s, op, it->seq);
		sg_unlock();
		break;
	}
}

static void *worker(void *arg)
{
	struct sg_stream *s = arg;
	char name[16];

	snprintf(name, sizeof(name), "cuda-sim%d-%llu", s->dev->index,
		 (unsigned long long)s->id % 100000);
	pthread_setname_np(pthread_self(), name);
	sg_lock();
	for (;;) {
		struct sg_item *it;

		while (!s->head)
			pthread_cond_wait(&s->wake, &sg.lock);
		it = s->head;
		s->busy = true;
		for (unsigned int i = 0; i < it->dep_count; i++) {
			struct sg_dep *d = &it->deps[i];

			while (!sg_done(d->stream, d->seq) && !broken(s->ctx)) {
				d->stream->done_waiters++;
				pthread_cond_wait(&d->stream->done, &sg.lock);
				d->stream->done_waiters--;
			}
		}
		if (it->op.kind == SG_OP_FREE || it->op.kind == SG_OP_RECORD) {
			do_quick(s, &it->op, it->seq); /* also on a broken context */
		} else if (!broken(s->ctx)) {
			sg_unlock();
			run(s, it);
			sg_lock();
		} else if (it->op.kind == SG_OP_CALLBACK) {
			sg_unlock();
			run(s, it); /* it is told of the error; host functions are not called */
			sg_lock();
		}
		s->head = it->next;
		if (!s->head)
			s->tail = NULL;
		s->busy = false;
		atomic_fetch_sub(&s->pending, 1);
		finish(s, it->seq);
		sg_op_free(&it->op);
		free(it->deps);
		free(it);
	}
	return NULL;
}

static int start_worker(struct sg_stream *s)
{
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t t;
	int rc;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	rc = pthread_create(&t, &attr, worker, s);
	pthread_attr_destroy(&attr);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (!rc)
		s->worker = true;
	return rc;
}

/* -- giving work ----------------------------------------------------------------------------- */

static bool idle(const struct sg_stream *s)
{
	return !s->head;
}

/* What the legacy stream and the blocking streams owe each other. Returns the number of deps. */
static unsigned int legacy_deps(struct sg_stream *s, struct sg_dep **out)
{
	struct sg_ctx *c = s->ctx;
	unsigned int n = 0, room = 0;
	struct sg_dep *d = NULL;

	*out = NULL;
	if (s->kind == SG_STREAM_INTERNAL)
		return 0;
	if (s->kind != SG_STREAM_LEGACY) {
		if ((s->flags & CU_STREAM_NON_BLOCKING) || idle(&c->legacy))
			return 0;
		*out = d = malloc(sizeof(*d));
		d->stream = &c->legacy;
		d->seq = c->legacy.enqueued;
		return 1;
	}
	for (struct sg_stream *t = c->streams; t; t = t->next) {
		if ((t->flags & CU_STREAM_NON_BLOCKING) || t->kind == SG_STREAM_INTERNAL || idle(t))
			continue;
		if (n == room) {
			room = room ? room * 2 : 8;
			d = realloc(d, room * sizeof(*d));
		}
		d[n].stream = t;
		d[n++].seq = t->enqueued;
	}
	*out = d;
	return n;
}

uint64_t sg_enqueue_locked(struct sg_stream *s, struct sg_op *op, const struct sg_dep *deps,
			   unsigned int dep_count)
{
	uint64_t seq = s->enqueued + 1;
	struct sg_dep *d;
	unsigned int n = legacy_deps(s, &d);
	struct sg_item *it;

	for (unsigned int i = 0; i < dep_count; i++) {
		if (sg_done(deps[i].stream, deps[i].seq))
			continue;
		d = realloc(d, (n + 1) * sizeof(*d));
		d[n++] = deps[i];
	}
	if (idle(s) && !n && quick(op) && !broken(s->ctx)) {
		s->enqueued = seq;
		do_quick(s, op, seq);
		finish(s, seq);
		sg_op_free(op);
		return seq;
	}
	it = calloc(1, sizeof(*it));
	it->seq = seq;
	it->op = *op;
	it->deps = d;
	it->dep_count = n;
	s->enqueued = seq;
	atomic_fetch_add(&s->pending, 1);
	if (s->tail)
		s->tail->next = it;
	else
		s->head = it;
	s->tail = it;
	op->kind = SG_OP_NOP;
	if (!s->worker && start_worker(s)) {
		/* No thread to be had: the context is broken, and nobody waits for this. */
		if (!s->ctx->fault)
			s->ctx->fault = CUDA_ERROR_OPERATING_SYSTEM;
		SG_LOG("no-thread stream=%p", (void *)s);
		s->head = s->tail = NULL;
		atomic_fetch_sub(&s->pending, 1);
		finish(s, seq);
		sg_op_free(&it->op);
		free(it->deps);
		free(it);
		return seq;
	}
	pthread_cond_signal(&s->wake);
	return seq;
}

/*
 * Gives op to the stream or to the graph that is being captured from it. Waits while the queue is
 * full, as a launch does on the real one.
 */
CUresult sg_submit(struct sg_stream *s, struct sg_op *op, uint64_t *seq_out)
{
	struct sg_ctx *ctx = s->ctx;
	bool kernel = op->kind == SG_OP_KERNEL;
	CUresult e = CUDA_SUCCESS;
	uint64_t seq = 0;
	bool captured = false;

	for (unsigned int n = 0; atomic_load(&s->pending) >= SG_QUEUE && !broken(ctx); n++)
		if ((n & 63) == 63)
			sched_yield();
	sg_lock();
	if (ctx->fault) {
		e = (CUresult)ctx->fault;
	} else if (s->capture) {
		e = sg_capture_op(s, op);
		captured = true;
	} else {
		e = s->kind == SG_STREAM_LEGACY ? sg_capture_legacy(ctx) : CUDA_SUCCESS;
		if (!e) {
			struct sg_event *ev = op->kind == SG_OP_RECORD ? op->record.event : NULL;

			seq = sg_enqueue_locked(s, op, NULL, 0);
			if (ev)
				sg_event_mark(ev, s, seq);
		}
	}
	sg_unlock();
	if (e)
		sg_op_free(op);
	if (seq_out)
		*seq_out = seq;
	if (!e && kernel && !captured && sg.launch_blocking) {
		sg_wait_seq(s, seq, sg_sched(ctx));
		e = (CUresult)ctx->fault;
	}
	return e;
}

/* -- waiting --------------------------------------------------------------------------------- */

unsigned int sg_sched(struct sg_ctx *ctx)
{
	return ctx->flags & CU_CTX_SCHED_MASK;
}

static int my_eventfd(void)
{
	static __thread int fd = -1;

	if (fd < 0)
		fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return fd;
}

void sg_wait_seq(struct sg_stream *s, uint64_t seq, unsigned int sched)
{
	int fd;

	if (sg_done(s, seq))
		return;
	fd = sched == CU_CTX_SCHED_BLOCKING_SYNC ? my_eventfd() : -1;
	if (fd < 0) {
		for (unsigned int n = 1; !sg_done(s, seq); n++) {
			/* SPIN keeps its core; AUTO and YIELD let others in, one seldom, one
			 * always. */
#if defined(__x86_64__)
			__builtin_ia32_pause();
#endif
			if (sched == CU_CTX_SCHED_YIELD ||
			    (sched == CU_CTX_SCHED_AUTO && !(n & 1023)))
				sched_yield();
		}
		return;
	}
	while (!sg_done(s, seq)) {
		struct pollfd p = {fd, POLLIN, 0};
		struct sg_waiter me = {NULL, seq, fd}, **at;
		uint64_t drained;

		sg_lock();
		me.next = s->waiters;
		s->waiters = &me;
		sg_unlock();
		if (!sg_done(s, seq))
			poll(&p, 1, -1);
		sg_lock();
		for (at = &s->waiters; *at != &me; at = &(*at)->next)
			;
		*at = me.next;
		sg_unlock();
		while (read(fd, &drained, sizeof(drained)) > 0)
			;
	}
}

static void drain_one(struct sg_stream *s, unsigned int sched)
{
	sg_wait_seq(s, atomic_load(&s->enqueued), sched);
}

/* Everything that any stream of the context was given before this call. */
void sg_ctx_drain(struct sg_ctx *ctx, unsigned int sched)
{
	struct sg_dep fixed[64], *d = fixed;
	unsigned int n = 0, room = 64;

	sg_lock();
	d[n].stream = &ctx->legacy;
	d[n++].seq = ctx->legacy.enqueued;
	for (struct sg_stream *s = ctx->streams; s; s = s->next) {
		if (sg_done(s, s->enqueued))
			continue;
		if (n == room) {
			struct sg_dep *more = malloc(2 * room * sizeof(*d));

			memcpy(more, d, n * sizeof(*d));
			if (d != fixed)
				free(d);
			d = more;
			room *= 2;
		}
		d[n].stream = s;
		d[n++].seq = s->enqueued;
	}
	sg_unlock();
	for (unsigned int i = 0; i < n; i++)
		sg_wait_seq(d[i].stream, d[i].seq, sched);
	if (d != fixed)
		free(d);
}

void sg_all_drain(unsigned int sched)
{
	struct sg_ctx *list[64];
	unsigned int n = 0;

	sg_lock();
	for (struct sg_ctx *c = sg.contexts; c && n < 64; c = c->next)
		if (!c->dead)
			list[n++] = c;
	sg_unlock();
	for (unsigned int i = 0; i < n; i++)
		sg_ctx_drain(list[i], sched);
}

/* A sticky error: everything that waits in the context ends. */
void sg_fault(struct sg_ctx *ctx, CUresult why)
{
	sg_lock();
	if (!ctx->fault)
		ctx->fault = (int)why;
	SG_LOG("fault context=%p error=%d", (void *)ctx, (int)why);
	for (struct sg_ctx *c = sg.contexts; c; c = c->next) {
		pthread_cond_broadcast(&c->legacy.wake);
		pthread_cond_broadcast(&c->legacy.done);
		for (struct sg_stream *s = c->streams; s; s = s->next) {
			pthread_cond_broadcast(&s->wake);
			pthread_cond_broadcast(&s->done);
		}
	}
	sg_unlock();
}

/* -- streams --------------------------------------------------------------------------------- */

void sg_stream_init(struct sg_stream *s, struct sg_ctx *ctx, enum sg_stream_kind kind)
{
	s->magic = SG_STREAM_MAGIC;
	s->ctx = ctx;
	s->dev = ctx->dev;
	s->kind = kind;
	s->id = ++sg.next_id;
	pthread_cond_init(&s->wake, NULL);
	pthread_cond_init(&s->done, NULL);
}

/* Locked. */
struct sg_stream *sg_stream_new(struct sg_ctx *ctx, enum sg_stream_kind kind, unsigned int flags,
				int priority)
{
	struct sg_stream *s = NULL, **at;

	for (at = &spare_streams; *at; at = &(*at)->next) {
		if (idle(*at)) { /* a destroyed stream first ends its work */
			s = *at;
			*at = s->next;
			break;
		}
	}
	if (s) {
		s->magic = SG_STREAM_MAGIC;
		s->ctx = ctx;
		s->dev = ctx->dev;
		s->kind = kind;
		s->id = ++sg.next_id;
		s->capture = NULL;
		s->capture_deps = NULL;
		memset(s->attrs, 0, sizeof(s->attrs));
	} else {
		s = calloc(1, sizeof(*s));
		if (!s)
			return NULL;
		sg_stream_init(s, ctx, kind);
	}
	s->flags = flags;
	s->priority = priority;
	s->next = ctx->streams;
	ctx->streams = s;
	return s;
}

/* Locked. What it was given still ends; its structure waits for that before it is used again. */
void sg_stream_drop(struct sg_stream *s)
{
	struct sg_stream **at;

	for (at = &s->ctx->streams; *at && *at != s; at = &(*at)->next)
		;
	if (*at)
		*at = s->next;
	s->magic = 0;
	sg_pool_stream_gone(s);
	s->next = spare_streams;
	spare_streams = s;
}

/* The per-thread default streams of this thread, one for each context it used. */
struct mine {
	struct sg_ctx *ctx;
	uint64_t ctx_id;
	struct sg_stream *stream;
	struct mine *next;
};

static pthread_key_t mine_key;
static pthread_once_t mine_once = PTHREAD_ONCE_INIT;

static void mine_free(void *arg)
{
	struct mine *m = arg, *next;

	if (!sg.ready)
		return;
	sg_lock();
	for (; m; m = next) {
		next = m->next;
		for (struct sg_ctx *c = sg.contexts; c; c = c->next)
			if (c == m->ctx && c->id == m->ctx_id && !c->dead)
				sg_stream_drop(m->stream);
		free(m);
	}
	sg_unlock();
}

static void mine_init(void)
{
	pthread_key_create(&mine_key, mine_free);
}

static struct sg_stream *thread_stream(struct sg_ctx *ctx)
{
	struct mine *m;

	pthread_once(&mine_once, mine_init);
	for (m = pthread_getspecific(mine_key); m; m = m->next)
		if (m->ctx == ctx && m->ctx_id == ctx->id)
			return m->stream;
	m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	m->ctx = ctx;
	m->ctx_id = ctx->id;
	sg_lock();
	m->stream = sg_stream_new(ctx, SG_STREAM_THREAD, 0, 0);
	sg_unlock();
	m->next = pthread_getspecific(mine_key);
	pthread_setspecific(mine_key, m);
	return m->stream;
}

CUresult sg_stream_resolve(CUstream h, bool pt, struct sg_stream **out)
{
	struct sg_stream *s = (struct sg_stream *)h;
	struct sg_ctx *ctx;
	CUresult e;

	if (!sg.ready)
		return CUDA_ERROR_NOT_INITIALIZED;
	if (sg_in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	if ((uintptr_t)h <= 2) {
		e = sg_enter_ctx(&ctx);
		if (e)
			return e;
		if (h == CU_STREAM_PER_THREAD || (!h && pt)) {
			*out = thread_stream(ctx);
			return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
		}
		*out = &ctx->legacy;
		return CUDA_SUCCESS;
	}
	if (s->magic != SG_STREAM_MAGIC)
		return CUDA_ERROR_INVALID_HANDLE;
	if (s->ctx->dead)
		return CUDA_ERROR_CONTEXT_IS_DESTROYED;
	sg_api_gate(s->ctx);
	if (s->ctx->fault)
		return (CUresult)s->ctx->fault;
	*out = s;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreateWithPriority(CUstream *out, unsigned int flags, int priority)
{
	struct sg_ctx *ctx;
	CUresult e = sg_enter_ctx(&ctx);
	struct sg_stream *s;

	if (e)
		return e;
	if (!out || (flags & ~1u))
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	s = sg_stream_new(ctx, SG_STREAM_USER, flags, SG_MAX(-5, SG_MIN(0, priority)));
	sg_unlock();
	if (!s)
		return CUDA_ERROR_OUT_OF_MEMORY;
	SG_LOG("stream-create stream=%p device=%d flags=%u", (void *)s, ctx->dev->index, flags);
	*out = (CUstream)s;
	return CUDA_SUCCESS;
}

CUresult cuStreamCreate(CUstream *out, unsigned int flags)
{
	return cuStreamCreateWithPriority(out, flags, 0);
}

CUresult cuStreamDestroy_v2(CUstream h)
{
	struct sg_stream *s;
	CUresult e = sg_enter();

	if (e)
		return e;
	if ((uintptr_t)h <= 2)
		return CUDA_ERROR_INVALID_HANDLE;
	s = (struct sg_stream *)h;
	sg_lock();
	if (s->magic != SG_STREAM_MAGIC || s->kind != SG_STREAM_USER)
		e = CUDA_ERROR_INVALID_HANDLE;
	else if (s->capture)
		e = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	else
		sg_stream_drop(s);
	sg_unlock();
	return e;
}

CUresult cuStreamDestroy(CUstream h)
{
	return cuStreamDestroy_v2(h);
}

static CUresult stream_query(CUstream h, bool pt)
{
	struct sg_stream *s;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (!e)
		e = sg_capture_sync(s);
	if (e)
		return e;
	if (s->kind == SG_STREAM_LEGACY) { /* its work comes after that of the blocking streams */
		sg_lock();
		for (struct sg_stream *t = s->ctx->streams; t && !e; t = t->next)
			if (!(t->flags & CU_STREAM_NON_BLOCKING) && t->kind != SG_STREAM_INTERNAL &&
			    !idle(t))
				e = CUDA_ERROR_NOT_READY;
		sg_unlock();
	}
	if (e)
		return e;
	return sg_done(s, s->enqueued) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult stream_sync(CUstream h, bool pt)
{
	struct sg_stream *s;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (!e)
		e = sg_capture_sync(s);
	if (e)
		return e;
	if (s->kind == SG_STREAM_LEGACY) {
		struct sg_dep *d;
		unsigned int n;

		sg_lock();
		n = legacy_deps(s, &d);
		sg_unlock();
		for (unsigned int i = 0; i < n; i++)
			sg_wait_seq(d[i].stream, d[i].seq, sg_sched(s->ctx));
		free(d);
	}
	drain_one(s, sg_sched(s->ctx));
	sg_lock();
	sg_pools_trim(s->dev);
	sg_unlock();
	return (CUresult)s->ctx->fault;
}

static CUresult stream_wait_event(CUstream h, CUevent ev, unsigned int flags, bool pt)
{
	struct sg_event *e = (struct sg_event *)ev;
	struct sg_op op = {.kind = SG_OP_WAIT};
	struct sg_stream *s;
	CUresult rc = sg_stream_resolve(h, pt, &s);
	bool have = false;

	if (rc)
		return rc;
	rc = sg_event_valid(e);
	if (rc)
		return rc;
	if (flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	if (sg_event_captured(e) && !(flags & CU_EVENT_WAIT_EXTERNAL)) {
		rc = sg_capture_wait(s, e);
	} else if (s->capture && !(flags & CU_EVENT_WAIT_EXTERNAL)) {
		/* What it waits for lies outside of the graph. A record that never was is no wait.
		 */
		rc = e->stream || e->slot ? CUDA_ERROR_STREAM_CAPTURE_ISOLATION : CUDA_SUCCESS;
	} else if (e->slot) {
		op.wait.slot = e->slot;
		op.wait.seq = atomic_load(&e->slot->recorded);
		have = op.wait.seq != 0;
	} else if (e->stream) {
		op.wait.stream = e->stream;
		op.wait.seq = e->seq;
		have = true;
	}
	if (s->capture && (flags & CU_EVENT_WAIT_EXTERNAL))
		have = true; /* a node that waits for what is recorded when the graph runs */
	op.wait.event = e;
	sg_unlock();
	if (rc || !have)
		return rc;
	SG_LOG("wait-event stream=%p event=%p", (void *)s, (void *)e);
	return sg_submit(s, &op, NULL);
}

static CUresult stream_host(CUstream h, CUhostFn fn, void *user, bool pt)
{
	struct sg_op op = {.kind = SG_OP_HOST, .host = {fn, user}};
	struct sg_stream *s;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	return sg_submit(s, &op, NULL);
}

static CUresult stream_callback(CUstream h, CUstreamCallback fn, void *user, unsigned int flags,
				bool pt)
{
	struct sg_op op = {.kind = SG_OP_CALLBACK, .callback = {fn, user}};
	struct sg_stream *s;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if (!fn || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (s->capture)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	return sg_submit(s, &op, NULL);
}

static CUresult value_op(CUstream h, enum sg_op_kind kind, CUdeviceptr addr, uint64_t value,
			 bool wide, unsigned int flags, bool pt)
{
	struct sg_op op = {.kind = kind, .value = {addr, value, flags, wide}};
	struct sg_stream *s;
	CUresult e = sg_stream_resolve(h, pt, &s);
	bool backed;

	if (e)
		return e;
	if (kind == SG_OP_WRITE_VALUE ? flags != 0 : (flags & ~(3u | CU_STREAM_WAIT_VALUE_FLUSH)))
		return CUDA_ERROR_INVALID_VALUE;
	if (addr % (wide ? 8 : 4))
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	backed = sg_backed(addr, wide ? 8 : 4);
	sg_unlock();
	if (!backed)
		return CUDA_ERROR_INVALID_VALUE;
	SG_LOG("%s stream=%p addr=%#llx value=%llu",
	       kind == SG_OP_WAIT_VALUE ? "wait-value" : "write-value", (void *)s,
	       (unsigned long long)addr, (unsigned long long)value);
	return sg_submit(s, &op, NULL);
}

static CUresult batch_op(CUstream h, unsigned int count, CUstreamBatchMemOpParams *p, bool pt)
{
	CUresult e = CUDA_SUCCESS;

	if (!p || count > 256)
		return CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count && !e; i++) {
		switch (p[i].operation) {
		case CU_STREAM_MEM_OP_WAIT_VALUE_32:
			e = value_op(h, SG_OP_WAIT_VALUE, p[i].waitValue.address,
				     p[i].waitValue.value, false, p[i].waitValue.flags, pt);
			break;
		case CU_STREAM_MEM_OP_WAIT_VALUE_64:
			e = value_op(h, SG_OP_WAIT_VALUE, p[i].waitValue.address,
				     p[i].waitValue.value64, true, p[i].waitValue.flags, pt);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_32:
			e = value_op(h, SG_OP_WRITE_VALUE, p[i].writeValue.address,
				     p[i].writeValue.value, false, p[i].writeValue.flags, pt);
			break;
		case CU_STREAM_MEM_OP_WRITE_VALUE_64:
			e = value_op(h, SG_OP_WRITE_VALUE, p[i].writeValue.address,
				     p[i].writeValue.value64, true, p[i].writeValue.flags, pt);
			break;
		case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES:
		case CU_STREAM_MEM_OP_BARRIER:
			break;
		default:
			e = CUDA_ERROR_INVALID_VALUE;
		}
	}
	return e;
}

/* Both flavours of a call that takes a stream. */
#define BOTH(sym, thread_sym, params, legacy_call, thread_call)                                    \
	CUresult sym params                                                                        \
	{                                                                                          \
		return legacy_call;                                                                \
	}                                                                                          \
	CUresult thread_sym params                                                                 \
	{                                                                                          \
		return thread_call;                                                                \
	}

BOTH(cuStreamQuery, cuStreamQuery_ptsz, (CUstream s), stream_query(s, false), stream_query(s, true))
BOTH(cuStreamSynchronize, cuStreamSynchronize_ptsz, (CUstream s), stream_sync(s, false),
     stream_sync(s, true))
BOTH(cuStreamWaitEvent, cuStreamWaitEvent_ptsz, (CUstream s, CUevent e, unsigned int flags),
     stream_wait_event(s, e, flags, false), stream_wait_event(s, e, flags, true))
BOTH(cuLaunchHostFunc, cuLaunchHostFunc_ptsz, (CUstream s, CUhostFn fn, void *user),
     stream_host(s, fn, user, false), stream_host(s, fn, user, true))
BOTH(cuStreamAddCallback, cuStreamAddCallback_ptsz,
     (CUstream s, CUstreamCallback fn, void *user, unsigned int flags),
     stream_callback(s, fn, user, flags, false), stream_callback(s, fn, user, flags, true))

#define VALUE(name, kind, wide, type)                                                              \
	BOTH(name, name##_ptsz, (CUstream s, CUdeviceptr a, type v, unsigned int f),               \
	     value_op(s, kind, a, v, wide, f, false), value_op(s, kind, a, v, wide, f, true))      \
	BOTH(name##_v2, name##_v2_ptsz, (CUstream s, CUdeviceptr a, type v, unsigned int f),       \
	     value_op(s, kind, a, v, wide, f, false), value_op(s, kind, a, v, wide, f, true))
VALUE(cuStreamWaitValue32, SG_OP_WAIT_VALUE, false, cuuint32_t)
VALUE(cuStreamWaitValue64, SG_OP_WAIT_VALUE, true, cuuint64_t)
VALUE(cuStreamWriteValue32, SG_OP_WRITE_VALUE, false, cuuint32_t)
VALUE(cuStreamWriteValue64, SG_OP_WRITE_VALUE, true, cuuint64_t)

#define BATCH(name, thread)                                                                        \
	BOTH(name, thread,                                                                         \
	     (CUstream s, unsigned int n, CUstreamBatchMemOpParams *p, unsigned int f),            \
	     f ? CUDA_ERROR_INVALID_VALUE : batch_op(s, n, p, false),                              \
	     f ? CUDA_ERROR_INVALID_VALUE : batch_op(s, n, p, true))
BATCH(cuStreamBatchMemOp, cuStreamBatchMemOp_ptsz)
BATCH(cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2_ptsz)

/* One question about a stream: expr uses s and *out. */
#define ASK(name, type, expr)                                                                      \
	static CUresult ask_##name(CUstream h, type *out, bool pt)                                 \
	{                                                                                          \
		struct sg_stream *s;                                                               \
		CUresult e = sg_stream_resolve(h, pt, &s);                                         \
                                                                                                   \
		if (e)                                                                             \
			return e;                                                                  \
		if (!out)                                                                          \
			return CUDA_ERROR_INVALID_VALUE;                                           \
		expr;                                                                              \
		return CUDA_SUCCESS;                                                               \
	}                                                                                          \
	BOTH(name, name##_ptsz, (CUstream s, type * out), ask_##name(s, out, false),               \
	     ask_##name(s, out, true))
ASK(cuStreamGetPriority, int, *out = s->priority)
ASK(cuStreamGetFlags, unsigned int, *out = s->flags)
ASK(cuStreamGetId, unsigned long long, *out = s->id)
ASK(cuStreamGetCtx, CUcontext, *out = (CUcontext)s->ctx)
ASK(cuStreamGetDevice, CUdevice, *out = s->dev->index)

static CUresult get_ctx_v2(CUstream s, CUcontext *ctx, CUgreenCtx *green, bool pt)
{
	if (green)
		*green = NULL;
	return ask_cuStreamGetCtx(s, ctx, pt);
}
BOTH(cuStreamGetCtx_v2, cuStreamGetCtx_v2_ptsz, (CUstream s, CUcontext *c, CUgreenCtx *g),
     get_ctx_v2(s, c, g, false), get_ctx_v2(s, c, g, true))

static CUresult attribute(CUstream h, CUstreamAttrID id, CUstreamAttrValue *get,
			  const CUstreamAttrValue *set, bool pt)
{
	struct sg_stream *s;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if ((!get && !set) || id < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (id == CU_LAUNCH_ATTRIBUTE_PRIORITY && get) {
		memset(get, 0, sizeof(*get));
		get->priority = s->priority;
		return CUDA_SUCCESS;
	}
	if (id >= 8)
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	if (get)
		*get = s->attrs[id];
	else
		s->attrs[id] = *set;
	sg_unlock();
	return CUDA_SUCCESS;
}
BOTH(cuStreamGetAttribute, cuStreamGetAttribute_ptsz,
     (CUstream s, CUstreamAttrID id, CUstreamAttrValue *v), attribute(s, id, v, NULL, false),
     attribute(s, id, v, NULL, true))
BOTH(cuStreamSetAttribute, cuStreamSetAttribute_ptsz,
     (CUstream s, CUstreamAttrID id, const CUstreamAttrValue *v), attribute(s, id, NULL, v, false),
     attribute(s, id, NULL, v, true))

static CUresult copy_attributes(CUstream dst, CUstream src, bool pt)
{
	struct sg_stream *d, *s;
	CUresult e = sg_stream_resolve(dst, pt, &d);

	if (!e)
		e = sg_stream_resolve(src, pt, &s);
	if (e)
		return e;
	sg_lock();
	memcpy(d->attrs, s->attrs, sizeof(d->attrs));
	sg_unlock();
	return CUDA_SUCCESS;
}
BOTH(cuStreamCopyAttributes, cuStreamCopyAttributes_ptsz, (CUstream d, CUstream s),
     copy_attributes(d, s, false), copy_attributes(d, s, true))

static CUresult attach(CUstream h, CUdeviceptr p, bool pt)
{
	struct sg_op op = {.kind = SG_OP_NOP};
	struct sg_stream *s;
	CUresult e = sg_stream_resolve(h, pt, &s);

	if (e)
		return e;
	if (!p)
		return CUDA_ERROR_INVALID_VALUE;
	return sg_submit(s, &op, NULL);
}
BOTH(cuStreamAttachMemAsync, cuStreamAttachMemAsync_ptsz,
     (CUstream s, CUdeviceptr p, size_t n, unsigned int f), ((void)n, (void)f, attach(s, p, false)),
     ((void)n, (void)f, attach(s, p, true)))

/* -- events ---------------------------------------------------------------------------------- */

CUresult sg_event_valid(struct sg_event *e)
{
	return (uintptr_t)e > 4095 && e->magic == SG_EVENT_MAGIC ? CUDA_SUCCESS
								 : CUDA_ERROR_INVALID_HANDLE;
}

/* Locked: the event's record is now (s, seq). */
void sg_event_mark(struct sg_event *e, struct sg_stream *s, uint64_t seq)
{
	e->stream = s;
	e->seq = seq;
	if (sg_done(s, seq))
		e->done_ns = sg_now_ns();
}

CUresult cuEventCreate(CUevent *out, unsigned int flags)
{
	struct sg_ctx *ctx;
	CUresult rc = sg_enter_ctx(&ctx);
	struct sg_event *e;

	if (rc)
		return rc;
	if (!out || (flags & ~7u))
		return CUDA_ERROR_INVALID_VALUE;
	if ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING))
		return CUDA_ERROR_INVALID_VALUE;
	sg_lock();
	e = spare_events;
	if (e)
		spare_events = e->next;
	sg_unlock();
	if (!e)
		e = malloc(sizeof(*e));
	if (!e)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(e, 0, sizeof(*e));
	e->ctx = ctx;
	e->flags = flags;
	e->magic = SG_EVENT_MAGIC;
	*out = (CUevent)e;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent ev)
{
	struct sg_event *e = (struct sg_event *)ev;
	CUresult rc = sg_enter();

	if (rc)
		return rc;
	rc = sg_event_valid(e);
	if (rc)
		return rc;
	sg_lock();
	sg_capture_event_gone(e);
	if (e->slot && !e->imported)
		atomic_store(&e->slot->used, 0);
	e->magic = 0;
	e->next = spare_events;
	spare_events = e;
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy(CUevent ev)
{
	return cuEventDestroy_v2(ev);
}

static CUresult event_record(CUevent ev, CUstream h, unsigned int flags, bool pt)
{
	struct sg_event *e = (struct sg_event *)ev;
	struct sg_op op = {.kind = SG_OP_RECORD, .record = {e, 0, flags}};
	struct sg_stream *s;
	CUresult rc = sg_stream_resolve(h, pt, &s);

	if (rc)
		return rc;
	rc = sg_event_valid(e);
	if (rc)
		return rc;
	if (flags & ~1u)
		return CUDA_ERROR_INVALID_VALUE;
	if (!e->imported && e->ctx != s->ctx)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_lock();
	if (s->capture && !(flags & CU_EVENT_RECORD_EXTERNAL)) {
		sg_capture_record(s, e);
		sg_unlock();
		return CUDA_SUCCESS;
	}
	e->capture = NULL;
	if (e->slot)
		op.record.slot_seq = atomic_fetch_add(&e->slot->recorded, 1) + 1;
	sg_unlock();
	return sg_submit(s, &op, NULL);
}

BOTH(cuEventRecord, cuEventRecord_ptsz, (CUevent e, CUstream s), event_record(e, s, 0, false),
     event_record(e, s, 0, true))
BOTH(cuEventRecordWithFlags, cuEventRecordWithFlags_ptsz, (CUevent e, CUstream s, unsigned int f),
     event_record(e, s, f, false), event_record(e, s, f, true))

static CUresult event_enter(CUevent ev)
{
	struct sg_event *e = (struct sg_event *)ev;
	CUresult rc = sg_enter();

	if (rc)
		return rc;
	if (sg_in_callback)
		return CUDA_ERROR_NOT_PERMITTED;
	rc = sg_event_valid(e);
	if (rc)
		return rc;
	if (e->capture) {
		bool captured;

		sg_lock();
		captured = sg_event_captured(e);
		sg_unlock();
		if (captured)
			return CUDA_ERROR_CAPTURED_EVENT;
	}
	if (e->ctx) {
		sg_api_gate(e->ctx);
		if (e->ctx->fault)
			return (CUresult)e->ctx->fault;
	}
	return CUDA_SUCCESS;
}

CUresult cuEventQuery(CUevent ev)
{
	struct sg_event *e = (struct sg_event *)ev;
	CUresult rc = event_enter(ev);

	if (rc)
		return rc;
	rc = sg_capture_unsafe(e->ctx);
	if (rc)
		return rc;
	if (e->slot)
		return atomic_load(&e->slot->completed) >= atomic_load(&e->slot->recorded)
			       ? CUDA_SUCCESS
			       : CUDA_ERROR_NOT_READY;
	return !e->stream || sg_done(e->stream, e->seq) ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent ev)
{
	struct sg_event *e = (struct sg_event *)ev;
	CUresult rc = event_enter(ev);
	struct sg_stream *s;
	uint64_t seq;
	unsigned int sched;

	if (rc)
		return rc;
	rc = sg_capture_unsafe(e->ctx);
	if (rc)
		return rc;
	sched = e->flags & CU_EVENT_BLOCKING_SYNC ? CU_CTX_SCHED_BLOCKING_SYNC : CU_CTX_SCHED_SPIN;
	if (e->slot) {
		seq = atomic_load(&e->slot->recorded);
		while (atomic_load(&e->slot->completed) < seq && !broken(e->ctx)) {
			if (sched == CU_CTX_SCHED_SPIN)
				sched_yield();
			else
				poll(NULL, 0, 1);
		}
		return (CUresult)e->ctx->fault;
	}
	sg_lock();
	s = e->stream;
	seq = e->seq;
	sg_unlock();
	if (s) {
		sg_wait_seq(s, seq, sched);
		sg_lock();
		sg_pools_trim(s->dev);
		sg_unlock();
	}
	return e->ctx ? (CUresult)e->ctx->fault : CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *ms, CUevent start, CUevent end)
{
	struct sg_event *a = (struct sg_event *)start, *b = (struct sg_event *)end;
	CUresult rc = event_enter(start);

	if (!rc)
		rc = event_enter(end);
	if (rc)
		return rc;
	if (!ms)
		return CUDA_ERROR_INVALID_VALUE;
	if ((a->flags | b->flags) & CU_EVENT_DISABLE_TIMING || !a->stream || !b->stream)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!sg_done(a->stream, a->seq) || !sg_done(b->stream, b->seq))
		return CUDA_ERROR_NOT_READY;
	sg_lock();
	*ms = (float)((double)((int64_t)(b->done_ns - a->done_ns)) / 1e6);
	sg_unlock();
	return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime(float *ms, CUevent start, CUevent end)
{
	return cuEventElapsedTime_v2(ms, start, end);
}

/* -- events between processes ---------------------------------------------------------------- */

#define SLOTS 4096
static struct sg_event_slot *slots;
static int slots_fd = -1;

struct event_handle {
	char magic[8];
	int32_t pid, fd;
	uint32_t slot, nonce;
	uint32_t flags;
};
_Static_assert(sizeof(struct event_handle) <= sizeof(CUipcEventHandle), "fits");

static CUresult slots_open(void)
{
	if (slots)
		return CUDA_SUCCESS;
	slots_fd = memfd_create("simgpu-events", MFD_CLOEXEC);
	if (slots_fd < 0 || ftruncate(slots_fd, SLOTS * sizeof(*slots)))
		return CUDA_ERROR_OPERATING_SYSTEM;
	slots = mmap(NULL, SLOTS * sizeof(*slots), PROT_READ | PROT_WRITE, MAP_SHARED, slots_fd, 0);
	if (slots == MAP_FAILED) {
		slots = NULL;
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	return CUDA_SUCCESS;
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent ev)
{
	struct sg_event *e = (struct sg_event *)ev;
	struct event_handle *h = (struct event_handle *)out;
	CUresult rc = event_enter(ev);

	if (rc)
		return rc;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!(e->flags & CU_EVENT_INTERPROCESS) || e->imported)
		return CUDA_ERROR_INVALID_HANDLE;
	sg_lock();
	rc = slots_open();
	for (uint32_t i = 0; !rc && !e->slot && i < SLOTS; i++) {
		uint32_t zero = 0;

		if (!atomic_compare_exchange_strong(&slots[i].used, &zero, 1))
			continue;
		atomic_fetch_add(&slots[i].nonce, 1);
		/* An earlier record counts as the first one. */
		atomic_store(&slots[i].recorded, e->stream ? 1 : 0);
		atomic_store(&slots[i].completed, e->stream && sg_done(e->stream, e->seq) ? 1 : 0);
		e->slot = &slots[i];
	}
	sg_unlock();
	if (rc)
		return rc;
	if (!e->slot)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(out, 0, sizeof(*out));
	memcpy(h->magic, "SIMEVNT", 8);
	h->pid = getpid();
	h->fd = slots_fd;
	h->slot = (uint32_t)(e->slot - slots);
	h->nonce = e->slot->nonce;
	h->flags = e->flags;
	return CUDA_SUCCESS;
}

CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle handle)
{
	struct event_handle *h = (struct event_handle *)&handle;
	struct sg_event_slot *map;
	struct sg_event *e;
	CUresult rc = sg_enter_ctx(NULL);
	int fd;

	if (rc)
		return rc;
	if (!out || memcmp(h->magic, "SIMEVNT", 8) || h->slot >= SLOTS)
		return CUDA_ERROR_INVALID_VALUE;
	if (h->pid == getpid())
		return CUDA_ERROR_INVALID_CONTEXT; /* as documented: not in the process that made it
						    */
	fd = sg_open_peer_fd(h->pid, h->fd);
	if (fd < 0)
		return CUDA_ERROR_MAP_FAILED;
	map = mmap(NULL, SLOTS * sizeof(*map), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return CUDA_ERROR_MAP_FAILED;
	if (map[h->slot].nonce != h->nonce || !map[h->slot].used) {
		munmap(map, SLOTS * sizeof(*map));
		return CUDA_ERROR_INVALID_HANDLE;
	}
	rc = cuEventCreate(out, h->flags);
	if (rc) {
		munmap(map, SLOTS * sizeof(*map));
		return rc;
	}
	e = (struct sg_event *)*out;
	e->slot = &map[h->slot]; /* the mapping stays: small, and others may hold its address */
	e->imported = true;
	return CUDA_SUCCESS;
}
