/* SPDX-License-Identifier: Apache-2.0 */
/* samples.c - see samples.h. */
#include "samples.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 1024
#define USERS 256 /* buckets by uid, as a bound: who shares one shares its room */

struct entry {
	uint64_t dev, ino;
	uint64_t mark[2];
	uint64_t since, wrote_at;
	uint64_t look; /* the last that saw it */
	uint32_t mark_kind, generation;
};

struct process {
	struct process *next;
	int32_t pid;
	uint32_t uid;
	uint64_t start;
	uint32_t n, cap;
	uint32_t expect; /* looks come in the same order as the one before: where the next one lies */
	struct entry *v;
};

struct wg_samples {
	struct process *buckets[BUCKETS];
	uint32_t of_user[USERS];
	uint64_t looks;
	struct wg_samples_counts counts;
	pthread_mutex_t lock;
};

struct wg_samples *wg_samples_new(void)
{
	struct wg_samples *s = calloc(1, sizeof(*s));

	if (s)
		pthread_mutex_init(&s->lock, NULL);
	return s;
}

static void forget(struct wg_samples *s, struct process **at)
{
	struct process *p = *at;

	*at = p->next;
	s->counts.held -= p->n;
	s->of_user[p->uid % USERS] -= p->n;
	free(p->v);
	free(p);
}

void wg_samples_free(struct wg_samples *s)
{
	if (!s)
		return;
	for (int i = 0; i < BUCKETS; i++)
		while (s->buckets[i])
			forget(s, &s->buckets[i]);
	pthread_mutex_destroy(&s->lock);
	free(s);
}

static struct process **place(struct wg_samples *s, int32_t pid)
{
	struct process **at = &s->buckets[(uint32_t)pid % BUCKETS];

	while (*at && (*at)->pid != pid)
		at = &(*at)->next;
	return at;
}

void wg_samples_begin(struct wg_samples *s, struct wg_look *l, int32_t pid, uint64_t start,
		      uint32_t uid)
{
	struct process **at, *p;

	pthread_mutex_lock(&s->lock);
	l->pid = pid;
	l->start = start;
	l->uid = uid;
	l->number = ++s->looks;
	at = place(s, pid);
	if (*at && (*at)->start != start)
		forget(s, at); /* another process by now */
	at = place(s, pid);
	p = *at;
	if (!p) {
		p = calloc(1, sizeof(*p));
		if (p) {
			p->pid = pid;
			p->start = start;
			p->uid = uid;
			*at = p;
		}
	}
	if (p)
		p->expect = 0;
	pthread_mutex_unlock(&s->lock);
}

static struct entry *find(struct process *p, uint64_t dev, uint64_t ino)
{
	for (uint32_t i = 0; i < p->n; i++) {
		struct entry *e = &p->v[(p->expect + i) % p->n];

		if (e->ino == ino && e->dev == dev) {
			p->expect = (uint32_t)(e - p->v) + 1;
			return e;
		}
	}
	return NULL;
}

static struct entry *add(struct wg_samples *s, struct process *p)
{
	if (p->n >= WG_SAMPLES_OF_PROCESS || s->counts.held >= WG_SAMPLES_MOST ||
	    (p->uid && s->of_user[p->uid % USERS] >= WG_SAMPLES_OF_USER))
		return NULL;
	if (p->n == p->cap) {
		uint32_t cap = p->cap ? p->cap * 2 : 8;
		struct entry *v = realloc(p->v, cap * sizeof(*v));

		if (!v)
			return NULL;
		p->v = v;
		p->cap = cap;
	}
	s->counts.held++;
	s->of_user[p->uid % USERS]++;
	memset(&p->v[p->n], 0, sizeof(p->v[0]));
	return &p->v[p->n++];
}

/* Do these numbers show that it was written between the two looks? */
static bool written(const struct entry *e, const struct wg_obs_file *f)
{
	switch (f->mark_kind) {
	case WG_MARK_PIPE:
		/* The last buffer's end only grows by a write; 0 is an empty pipe, which a reader made. */
		return f->mark[0] != e->mark[0] || (e->mark[1] && f->mark[1] > e->mark[1]);
	case WG_MARK_TCP:
		return f->mark[0] != e->mark[0];
	case WG_MARK_FILE:
		return f->mark[0] != e->mark[0] || f->mark[1] != e->mark[1];
	}
	return false;
}

void wg_samples_note(struct wg_samples *s, const struct wg_look *l, const struct wg_obs_file *f,
		     uint64_t now)
{
	struct process *p;
	struct entry *e;

	if (!f->mark_kind || (f->flags & O_ACCMODE) == O_RDONLY)
		return;
	pthread_mutex_lock(&s->lock);
	p = *place(s, l->pid);
	if (!p || p->start != l->start)
		goto out;
	e = find(p, f->dev, f->ino);
	if (e && (e->generation != f->generation || e->mark_kind != f->mark_kind)) {
		memset(e, 0, sizeof(*e)); /* its number is another file's now */
	} else if (e) {
		if (e->look == l->number)
			goto out; /* open more than once */
		if (written(e, f))
			e->wrote_at = now;
	} else {
		e = add(s, p);
		if (!e) {
			s->counts.dropped++;
			goto out;
		}
	}
	if (!e->since) {
		e->dev = f->dev;
		e->ino = f->ino;
		e->generation = f->generation;
		e->mark_kind = f->mark_kind;
		e->since = now;
	}
	e->mark[0] = f->mark[0];
	e->mark[1] = f->mark[1];
	if (e->look < l->number)
		e->look = l->number;
out:
	pthread_mutex_unlock(&s->lock);
}

void wg_samples_end(struct wg_samples *s, const struct wg_look *l)
{
	struct process **at, *p;
	uint32_t n = 0;

	pthread_mutex_lock(&s->lock);
	at = place(s, l->pid);
	p = *at;
	if (!p || p->start != l->start)
		goto out;
	for (uint32_t i = 0; i < p->n; i++)
		if (p->v[i].look >= l->number)
			p->v[n++] = p->v[i];
	s->counts.held -= p->n - n;
	s->of_user[p->uid % USERS] -= p->n - n;
	p->n = n;
	if (!n)
		forget(s, at);
out:
	pthread_mutex_unlock(&s->lock);
}

int wg_samples_find(struct wg_samples *s, int32_t pid, uint64_t dev, uint64_t ino,
		    struct wg_sampled *out)
{
	struct process *p;
	struct entry *e;

	pthread_mutex_lock(&s->lock);
	p = *place(s, pid);
	e = p ? find(p, dev, ino) : NULL;
	if (e) {
		out->since = e->since;
		out->wrote_at = e->wrote_at;
	}
	pthread_mutex_unlock(&s->lock);
	return e ? 0 : -ENOENT;
}

void wg_samples_sweep(struct wg_samples *s, int (*alive)(int32_t pid, uint64_t start, void *arg),
		      void *arg)
{
	pthread_mutex_lock(&s->lock);
	for (int i = 0; i < BUCKETS; i++)
		for (struct process **at = &s->buckets[i]; *at;)
			if (alive((*at)->pid, (*at)->start, arg))
				at = &(*at)->next;
			else
				forget(s, at);
	pthread_mutex_unlock(&s->lock);
}

void wg_samples_counts(struct wg_samples *s, struct wg_samples_counts *out)
{
	pthread_mutex_lock(&s->lock);
	*out = s->counts;
	pthread_mutex_unlock(&s->lock);
}
