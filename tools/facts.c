/* SPDX-License-Identifier: Apache-2.0 */
/* facts.c - arena, vectors and constructors of the facts model (see facts.h). */
#include "facts.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct chunk {
	struct chunk *next;
	size_t used, size;
	char data[] __attribute__((aligned(16)));
};
struct wg_arena {
	struct chunk *head;
};

static void no_memory(void)
{
	fputs("waitgraph: out of memory\n", stderr);
	exit(70);
}

struct wg_arena *wg_arena_new(void)
{
	struct wg_arena *a = calloc(1, sizeof(*a));

	if (!a)
		no_memory();
	return a;
}

void wg_arena_free(struct wg_arena *a)
{
	if (!a)
		return;
	for (struct chunk *c = a->head, *n; c; c = n) {
		n = c->next;
		free(c);
	}
	free(a);
}

void *wg_alloc(struct wg_arena *a, size_t n)
{
	struct chunk *c = a->head;
	void *p;

	if (n > SIZE_MAX / 2)
		no_memory();
	n = (n + 15) & ~(size_t)15;
	if (!c || c->size - c->used < n) {
		size_t size = n > 64 * 1024 ? n : 64 * 1024;

		c = calloc(1, sizeof(*c) + size); /* calloc: pages of a fresh chunk come zeroed */
		if (!c)
			no_memory();
		c->size = size;
		if (n > 64 * 1024 && a->head) { /* keep the half-empty chunk in front */
			c->next = a->head->next;
			a->head->next = c;
		} else {
			c->next = a->head;
			a->head = c;
		}
	}
	p = c->data + c->used;
	c->used += n;
	return p;
}

/*
 * Length of the valid UTF-8 sequence at s (at most n bytes), 0 if none. Overlong
 * forms, surrogates and C1 controls are refused: what is printed to a terminal
 * must not move its cursor.
 */
static size_t utf8_seq(const unsigned char *s, size_t n)
{
	if (s[0] < 0x80)
		return s[0] >= 0x20 && s[0] != 0x7f ? 1 : 0;
	if (n >= 2 && s[0] >= 0xc2 && s[0] <= 0xdf && (s[1] & 0xc0) == 0x80)
		return s[0] == 0xc2 && s[1] < 0xa0 ? 0 : 2;
	if (n >= 3 && (s[0] & 0xf0) == 0xe0 && (s[1] & 0xc0) == 0x80 && (s[2] & 0xc0) == 0x80) {
		unsigned int cp = (s[0] & 15u) << 12 | (s[1] & 63u) << 6 | (s[2] & 63u);

		if (cp < 0x800 || (cp >= 0xd800 && cp <= 0xdfff))
			return 0;
		if ((cp >= 0x202a && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069) ||
		    cp == 0x2028 || cp == 0x2029)
			return 0; /* bidirectional overrides and line separators */
		return 3;
	}
	if (n >= 4 && s[0] >= 0xf0 && s[0] <= 0xf4 && (s[1] & 0xc0) == 0x80 &&
	    (s[2] & 0xc0) == 0x80 && (s[3] & 0xc0) == 0x80) {
		unsigned int cp = (s[0] & 7u) << 18 | (s[1] & 63u) << 12 | (s[2] & 63u) << 6 |
				  (s[3] & 63u);

		return cp >= 0x10000 && cp <= 0x10ffff ? 4 : 0;
	}
	return 0;
}

char *wg_strn(struct wg_arena *a, const char *s, size_t n)
{
	char *out = wg_alloc(a, n + 1);
	size_t i = 0, k;

	while (i < n) {
		k = utf8_seq((const unsigned char *)s + i, n - i);
		if (k) {
			memcpy(out + i, s + i, k);
			i += k;
		} else {
			out[i] = s[i] == '\t' || s[i] == '\n' ? ' ' : '?';
			i++;
		}
	}
	out[n] = 0;
	return out;
}

char *wg_str(struct wg_arena *a, const char *s)
{
	return s ? wg_strn(a, s, strlen(s)) : NULL;
}

char *wg_fmt(struct wg_arena *a, const char *fmt, ...)
{
	va_list ap, aq;
	char *s, *r;
	int n;

	va_start(ap, fmt);
	va_copy(aq, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		n = 0;
	s = malloc((size_t)n + 1);
	if (!s)
		no_memory();
	s[0] = 0;
	vsnprintf(s, (size_t)n + 1, fmt, aq);
	va_end(aq);
	r = wg_strn(a, s, (size_t)n);
	free(s);
	return r;
}

void *wg_vec_push(struct wg_arena *a, void **v, size_t *n, size_t *cap, size_t size)
{
	if (*n == *cap) {
		size_t nc = *cap ? *cap * 2 : 4;
		void *nv;

		if (nc > SIZE_MAX / 2 / size)
			no_memory();
		nv = wg_alloc(a, nc * size);
		if (*n)
			memcpy(nv, *v, *n * size);
		*v = nv;
		*cap = nc;
	}
	memset((char *)*v + *n * size, 0, size);
	return (char *)*v + (*n)++ * size;
}

struct wg_facts *wg_facts_new(void)
{
	struct wg_arena *a = wg_arena_new();
	struct wg_facts *f = wg_alloc(a, sizeof(*f));

	f->arena = a;
	return f;
}

void wg_facts_free(struct wg_facts *f)
{
	if (f)
		wg_arena_free(f->arena);
}

struct wg_process *wg_add_process(struct wg_facts *f)
{
	struct wg_process *p = wg_alloc(f->arena, sizeof(*p));

	*wg_push(f->arena, &f->procs) = p;
	p->uid = p->rank = p->world = WG_NO_INT;
	p->snapshot_age_s = p->age_s = p->fork_age_s = p->progress_age_s = WG_NO_SEC;
	p->longest_sync_s = p->last_write_age_s = p->quiet_s = WG_NO_SEC;
	p->cpu_share = p->children_cpu_share = p->end.age_s = p->cgroup.cpu_quota = WG_NO_SEC;
	p->calls_delta = p->rchar = p->wchar = p->rchar_delta = p->wchar_delta = WG_NO_INT;
	p->read_bytes_delta = p->write_bytes_delta = p->majflt_delta = WG_NO_INT;
	p->nofile_limit = p->nofile_used = p->nproc_limit = p->nproc_used = WG_NO_INT;
	p->calls = WG_NO_INT;
	p->memlock_limit = p->memlock_used = p->shm_size = p->shm_free = WG_NO_INT;
	p->cgroup.pids_max = p->cgroup.pids_current = WG_NO_INT;
	p->cgroup.mem_max = p->cgroup.mem_current = p->cgroup.oom_kills = WG_NO_INT;
	p->cgroup.cpu_periods = p->cgroup.cpu_throttled = WG_NO_INT;
	p->cgroup.cpu_periods_delta = p->cgroup.cpu_throttled_delta = WG_NO_INT;
	return p;
}

struct wg_thread *wg_add_thread(struct wg_facts *f, struct wg_process *p)
{
	struct wg_thread *t = wg_push(f->arena, &p->threads);

	t->pid = p->pid;
	t->cpu_s = t->cpu_share = t->user_share = t->sys_share = WG_NO_SEC;
	t->last_ran_s = t->start_age_s = t->waker_age_s = WG_NO_SEC;
	t->polled_for_s = WG_NO_SEC;
	t->switches = t->waker_count = t->repeat_fd = WG_NO_INT;
	t->repeat_errno = t->repeat_exists = WG_NO_INT;
	t->repeat_file_age_s = WG_NO_SEC;
	t->wait.nr = t->wait.fd = t->wait.bytes = t->wait.child = t->wait.key = WG_NO_INT;
	t->wait.ipc_num = t->wait.ipc_value = WG_NO_INT;
	t->wait.since_s = t->wait.timeout_s = WG_NO_SEC;
	return t;
}

struct wg_file *wg_add_file(struct wg_facts *f, struct wg_process *p)
{
	struct wg_file *x = wg_push(f->arena, &p->files);

	x->flags = x->pos = x->size = x->written_bytes = x->user_buffered_bytes = WG_NO_INT;
	x->dirty_bytes = x->writeback_bytes = x->write_error = x->size_delta = WG_NO_INT;
	x->pipe_fill = x->pipe_size = x->sock_rxq = x->sock_txq = x->sock_backlog = WG_NO_INT;
	x->sock_shutdown = x->event_count = x->user_buffered_delta = WG_NO_INT;
	x->last_write_age_s = x->timer_left_s = x->quiet_s = WG_NO_SEC;
	x->pty_index = -1;
	x->sock_rcv_timeout_s = x->sock_snd_timeout_s = WG_NO_SEC;
	x->sock_sent_bytes = x->sock_recv_bytes = WG_NO_INT;
	x->sock_sent_age_s = x->sock_recv_age_s = WG_NO_SEC;
	return x;
}

struct wg_device *wg_add_device(struct wg_facts *f, struct wg_process *p)
{
	struct wg_device *d = wg_push(f->arena, &p->devices);

	d->total = d->free = d->own = d->peak = d->least_free = WG_NO_INT;
	d->utilization = d->sm_clock_mhz = d->context_bytes = WG_NO_INT;
	d->allocs = d->frees = d->failed = WG_NO_INT;
	d->free_age_s = WG_NO_SEC;
	d->least_free_at_s = d->power_w = d->power_limit_w = WG_NO_SEC;
	return d;
}

struct wg_stream *wg_add_stream(struct wg_facts *f, struct wg_process *p)
{
	struct wg_stream *s = wg_push(f->arena, &p->streams);

	s->device = WG_NO_INT;
	s->progress_age_s = s->longest_gap_s = WG_NO_SEC;
	return s;
}

struct wg_comm *wg_add_comm(struct wg_facts *f, struct wg_process *p)
{
	struct wg_comm *c = wg_push(f->arena, &p->comms);

	c->rank = c->size = c->device = c->async_error = c->children = WG_NO_INT;
	c->age_s = WG_NO_SEC;
	return c;
}

struct wg_failure *wg_add_failure(struct wg_facts *f, struct wg_device *d)
{
	struct wg_failure *x = wg_push(f->arena, &d->failures);

	x->at_s = x->age_s = WG_NO_SEC;
	x->device = x->asked = x->free = x->short_by = x->error = WG_NO_INT;
	return x;
}

struct wg_collective *wg_add_collective(struct wg_facts *f, struct wg_comm *c)
{
	struct wg_collective *x = wg_push(f->arena, &c->recent);

	x->count = x->root = WG_NO_INT;
	x->age_s = WG_NO_SEC;
	return x;
}

struct wg_gpu_item *wg_add_gpu_item(struct wg_facts *f, struct wg_stream *s)
{
	struct wg_gpu_item *x = wg_push(f->arena, &s->pending);

	x->comm = x->event_device = x->event_stream_ix = WG_NO_INT;
	x->age_s = WG_NO_SEC;
	return x;
}

struct wg_call *wg_add_call(struct wg_facts *f, struct wg_thread *t)
{
	struct wg_call *c = wg_push(f->arena, &t->calls);

	c->since_s = WG_NO_SEC;
	c->device = c->event_device = c->event_stream_ix = WG_NO_INT;
	return c;
}

static bool same(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

void wg_add_missing(struct wg_facts *f, struct wg_process *p, const char *what, const char *why,
		    const char *remedy)
{
	struct wg_missing_list *m = p ? &p->missing : &f->missing;
	const char *root;
	struct wg_missing *x;

	for (size_t i = 0; i < m->n; i++)
		if (same(m->v[i].what, what) && same(m->v[i].why, why))
			return;
	x = wg_push(f->arena, m);
	x->what = wg_str(f->arena, what);
	x->why = wg_str(f->arena, why);
	x->remedy = wg_str(f->arena, remedy);
	/* Who is root already, and still may not, sits in a container. */
	if (f->live && f->is_root && x->remedy && (root = strstr(x->remedy, "as root")))
		x->remedy = wg_fmt(f->arena, "%.*sas root of the host%s",
				   (int)(root - x->remedy), x->remedy, root + strlen("as root"));
}

void wg_add_source(struct wg_facts *f, struct wg_process *p, const char *source)
{
	for (size_t i = 0; i < p->sources.n; i++)
		if (!strcmp(p->sources.v[i], source))
			return;
	*wg_push(f->arena, &p->sources) = wg_str(f->arena, source);
}

struct wg_process *wg_find_process(const struct wg_facts *f, int32_t pid)
{
	for (size_t i = 0; i < f->procs.n; i++) {
		struct wg_process *p = f->procs.v[i];

		if (p->pid == pid && !p->from_snapshot)
			return p;
	}
	return NULL;
}

/* Both lists are in order nearly always, and long where it counts: halving first, then all. */
struct wg_thread *wg_find_thread(const struct wg_process *p, int32_t tid)
{
	size_t lo = 0, hi = p->threads.n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (p->threads.v[mid].tid < tid)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < p->threads.n && p->threads.v[lo].tid == tid)
		return &p->threads.v[lo];
	for (size_t i = 0; i < p->threads.n; i++)
		if (p->threads.v[i].tid == tid)
			return &p->threads.v[i];
	return NULL;
}

struct wg_file *wg_find_file(const struct wg_process *p, int64_t fd)
{
	size_t lo = 0, hi = p->files.n;

	while (lo < hi) {
		size_t mid = (lo + hi) / 2;

		if (p->files.v[mid].fd < fd)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (lo < p->files.n && p->files.v[lo].fd == fd)
		return &p->files.v[lo];
	for (size_t i = 0; i < p->files.n; i++)
		if (p->files.v[i].fd == fd)
			return &p->files.v[i];
	return NULL;
}
