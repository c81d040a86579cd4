/* SPDX-License-Identifier: Apache-2.0 */
/*
 * replay.c - plays the events through and finds levels, peaks, who held what at the peak,
 * what grows.
 *
 * Where old events have been recycled the replay starts at that moment, with what was alive
 * then: the allocations alive at the end that are older, and those whose free comes later
 * without an allocation before it (a free carries size and site for that).
 *
 * Exact counters (own, peak, allocations, frees) come from the header and the site table,
 * which the writer keeps up to date and which a kill does not lose; the replay adds the
 * distribution over time.
 */
#include "analysis.h"

#include <stdlib.h>
#include <string.h>

enum space { SP_POINTER, SP_HANDLE, SP_MAP, SP_VA, SP_HOST, SP_POOL };

struct block {
	uint64_t addr, size, at, handle, mapped;
	uint32_t site;
	uint8_t space, state; /* 0 empty, 1 alive, 2 handle given back */
};

struct level {
	uint64_t base, async, pool, handles, va, mapped;
	uint64_t peak, peak_at, reserved_at_peak;
	uint32_t epoch; /* of the peak: see struct held */
};

struct held { /* bytes of a site now, and at its device's last peak */
	uint64_t now, at_peak;
	uint32_t epoch; /* at_peak is of this peak; an older one: `now` has not changed since */
};

#define SNAPSHOTS 64 /* of failures, the first ones */

struct replay {
	struct wgm_trace *t;
	struct wgm_analysis *a;
	const struct wgm_watch *watch;
	struct block *table;
	size_t size, used;
	struct level levels[WGTR_DEVICES];
	struct held *held;
	size_t nheld;
	uint64_t slot_ticks, next_slot;
	unsigned int slot;
	struct {
		uint64_t failure, *held; /* number; bytes of each site then */
	} snapshots[SNAPSHOTS];
	unsigned int nsnapshots;
};

static enum space space_of(uint32_t kind)
{
	switch (kind) {
	case WG_MEM_VMM:
		return SP_HANDLE;
	case WG_MEM_VMM_MAP:
		return SP_MAP;
	case WG_MEM_VA:
		return SP_VA;
	case WG_MEM_HOST:
	case WG_MEM_HOST_REG:
		return SP_HOST;
	case WG_MEM_POOL:
		return SP_POOL;
	default:
		return SP_POINTER;
	}
}

/* ---- blocks alive: open addressing, erased by closing the gap ----------------------- */

static size_t home(const struct replay *r, enum space space, uint64_t addr)
{
	return (size_t)(((addr ^ (uint64_t)space << 59) * 0x9e3779b97f4a7c15ull) >> 24) &
	       (r->size - 1);
}

static struct block *find(struct replay *r, enum space space, uint64_t addr)
{
	if (!r->size)
		return NULL;
	for (size_t i = home(r, space, addr);; i = (i + 1) & (r->size - 1)) {
		struct block *b = &r->table[i];

		if (!b->state)
			return NULL;
		if (b->addr == addr && b->space == space)
			return b;
	}
}

static struct block *insert(struct replay *r, const struct block *new)
{
	size_t i;

	if (2 * (r->used + 1) > r->size) {
		struct block *old = r->table;
		size_t n = r->size;

		r->size = n ? 2 * n : 1024;
		r->table = calloc(r->size, sizeof(*old));
		if (!r->table)
			abort();
		r->used = 0;
		for (i = 0; i < n; i++)
			if (old[i].state)
				insert(r, &old[i]);
		free(old);
	}
	i = home(r, new->space, new->addr);
	while (r->table[i].state)
		i = (i + 1) & (r->size - 1);
	r->table[i] = *new;
	r->used++;
	return &r->table[i];
}

static void erase(struct replay *r, struct block *b)
{
	size_t mask = r->size - 1, hole = (size_t)(b - r->table), i = hole;

	for (;;) {
		i = (i + 1) & mask;
		if (!r->table[i].state)
			break;
		if (((i - home(r, r->table[i].space, r->table[i].addr)) & mask) >=
		    ((i - hole) & mask)) {
			r->table[hole] = r->table[i];
			hole = i;
		}
	}
	r->table[hole].state = 0;
	r->used--;
}

/* ---- levels --------------------------------------------------------------------------- */

static uint32_t kind_of(const struct replay *r, uint32_t site)
{
	return site < r->t->nsites && r->t->sites[site].kind ? r->t->sites[site].kind - 1u :
	       WG_MEM_KINDS;
}

static int device_of(const struct replay *r, uint32_t site)
{
	int d = site < r->t->nsites && r->t->sites[site].kind ? r->t->sites[site].device : -1;

	return d >= 0 && d < WGTR_DEVICES ? d : -1;
}

static uint64_t own(const struct level *l)
{
	return l->base + (l->async > l->pool ? l->async : l->pool);
}

static void check_peak(struct replay *r, int device, uint64_t at)
{
	struct level *l = &r->levels[device];

	(void)r;
	if (own(l) <= l->peak)
		return;
	l->peak = own(l);
	l->peak_at = at;
	l->reserved_at_peak = l->pool + l->handles;
	l->epoch++;
}

/* A site holds more or less; what it held at the last peak is kept the first time it changes. */
static void hold(struct replay *r, uint32_t site, int device, uint64_t by)
{
	struct held *h;

	if (site >= r->nheld)
		return;
	h = &r->held[site];
	if (device >= 0 && h->epoch != r->levels[device].epoch) {
		h->at_peak = h->now;
		h->epoch = r->levels[device].epoch;
	}
	h->now += by;
}

static void change(struct replay *r, uint32_t site, uint64_t size, bool less, uint64_t at)
{
	uint32_t kind = kind_of(r, site);
	int device = device_of(r, site);
	uint64_t by = less ? -size : size;
	struct level *l = device >= 0 ? &r->levels[device] : NULL;

	hold(r, site, device, by);
	if (!l)
		return;
	switch (kind) {
	case WG_MEM_VMM:
		l->handles += by;
		l->base += by;
		break;
	case WG_MEM_DEVICE:
		l->base += by;
		break;
	case WG_MEM_ASYNC:
		l->async += by;
		break;
	case WG_MEM_VA:
		l->va += by;
		return;
	case WG_MEM_VMM_MAP:
		l->mapped += by;
		return;
	default:
		return;
	}
	check_peak(r, device, at);
}

static void tell(struct replay *r, const struct block *b, bool is_free, uint64_t at, uint32_t tid,
		 bool before)
{
	struct wgm_block w = { .at = at, .tid = tid, .addr = b->addr, .size = b->size,
			       .is_free = is_free, .from_before = before };

	if (!r->watch || !r->watch->block || b->space == SP_POOL)
		return;
	w.at_s = wgm_seconds(r->t, at);
	w.site = b->site < r->a->nsites ? &r->a->sites[b->site] : NULL;
	w.kind = kind_of(r, b->site);
	w.device = device_of(r, b->site);
	w.own = w.device >= 0 ? own(&r->levels[w.device]) : WGM_NONE;
	r->watch->block(r->watch->arg, &w);
}

static void end_block(struct replay *r, struct block *b, uint64_t at, uint32_t tid)
{
	struct block gone = *b;

	erase(r, b);
	change(r, gone.site, gone.size, true, at);
	tell(r, &gone, true, at, tid, false);
}

static void begin_block(struct replay *r, const struct block *new, uint64_t at, uint32_t tid,
			bool before)
{
	struct block *old = find(r, new->space, new->addr);

	if (old) /* its free was not seen */
		end_block(r, old, at, tid);
	insert(r, new);
	change(r, new->site, new->size, false, at);
	tell(r, new, false, at, tid, before);
}

/* ---- events ------------------------------------------------------------------------------ */

static void pool(struct replay *r, int device, uint64_t addr, uint64_t reserved, uint64_t at)
{
	struct block *b = find(r, SP_POOL, addr);
	struct block new = { .addr = addr, .size = reserved, .at = at, .space = SP_POOL,
			     .state = 1, .site = UINT32_MAX, .handle = (uint64_t)device };

	if (device < 0 || device >= WGTR_DEVICES)
		return;
	if (b) {
		r->levels[device].pool -= b->size;
		erase(r, b);
	}
	r->levels[device].pool += reserved;
	if (reserved)
		insert(r, &new);
	check_peak(r, device, at);
}

static void unmap(struct replay *r, uint64_t addr, uint64_t size, uint64_t at, uint32_t tid)
{
	uint64_t end = addr + size;

	do {
		struct block *m = find(r, SP_MAP, addr), *h;
		uint64_t length, handle;

		if (!m)
			return;
		length = m->size;
		handle = m->handle;
		end_block(r, m, at, tid);
		h = handle ? find(r, SP_HANDLE, handle) : NULL;
		if (h)
			h->mapped = h->mapped > length ? h->mapped - length : 0;
		/* When its handle has been given back the writer tells the free itself. */
		addr += length;
		if (!length)
			return;
	} while (addr < end);
}

static void gone(struct replay *r, int device, uint64_t at, uint32_t tid)
{
	for (size_t i = 0; i < r->size;) {
		struct block *b = &r->table[i];
		uint32_t kind = b->state ? kind_of(r, b->site) : WG_MEM_KINDS;

		if (b->state && device_of(r, b->site) == device && kind != WG_MEM_VMM &&
		    kind != WG_MEM_VMM_MAP && kind != WG_MEM_VA)
			end_block(r, b, at, tid); /* another may have moved here: look again */
		else
			i++;
	}
	if (device >= 0 && device < WGTR_DEVICES)
		r->levels[device].pool = 0;
	for (size_t i = 0; i < r->size;) /* pools have no site, but their device as handle */
		if (r->table[i].state && r->table[i].space == SP_POOL &&
		    r->table[i].handle == (uint64_t)device)
			erase(r, &r->table[i]);
		else
			i++;
}

static void levels_until(struct replay *r, uint64_t at)
{
	while (r->slot < WGM_LEVELS && at >= r->next_slot) {
		for (size_t i = 0; i < r->nheld; i++)
			if (r->a->sites[i].levels)
				r->a->sites[i].levels[r->slot] = r->held[i].now;
		r->slot++;
		r->next_slot += r->slot_ticks;
	}
}

/* Who holds what while an allocation fails. A repetition of the same failure changes nothing. */
static void snapshot(struct replay *r, uint64_t failure)
{
	uint64_t *held;

	for (unsigned int i = 0; i < r->nsnapshots; i++)
		if (r->snapshots[i].failure == failure)
			return;
	if (!failure || r->nsnapshots == SNAPSHOTS)
		return;
	held = calloc(r->nheld + 1, sizeof(*held));
	if (!held)
		abort();
	for (size_t i = 0; i < r->nheld; i++)
		held[i] = r->held[i].now;
	r->snapshots[r->nsnapshots].failure = failure;
	r->snapshots[r->nsnapshots++].held = held;
}

static void one(struct replay *r, const struct wgm_event *e)
{
	struct block new = { .at = e->at, .state = 1 }, *b;

	levels_until(r, e->at);
	switch (e->tag) {
	case 0:
		new.addr = e->addr;
		new.size = e->size;
		new.site = e->site;
		new.space = (uint8_t)space_of(kind_of(r, e->site));
		if (!e->is_free) {
			begin_block(r, &new, e->at, e->tid, false);
			return;
		}
		b = find(r, new.space, e->addr);
		if (b)
			end_block(r, b, e->at, e->tid);
		return;
	case WGTR_E_UNFREE:
		new.addr = e->v[0];
		new.site = (uint32_t)e->v[1];
		new.size = e->v[2];
		new.space = (uint8_t)space_of(kind_of(r, new.site));
		begin_block(r, &new, e->at, e->tid, false);
		return;
	case WGTR_E_MAP:
		new.addr = e->v[0];
		new.size = e->v[1];
		new.handle = e->v[2];
		new.site = (uint32_t)e->v[3];
		new.space = SP_MAP;
		begin_block(r, &new, e->at, e->tid, false);
		b = new.handle ? find(r, SP_HANDLE, new.handle) : NULL;
		if (b)
			b->mapped += new.size;
		return;
	case WGTR_E_UNMAP:
		unmap(r, e->v[0], e->v[1], e->at, e->tid);
		return;
	case WGTR_E_GONE:
		gone(r, e->v[0] < WGTR_DEVICES ? (int)e->v[0] : -1, e->at, e->tid);
		return;
	case WGTR_E_POOL:
		pool(r, e->v[0] < WGTR_DEVICES ? (int)e->v[0] : -1, e->v[1], e->v[2], e->at);
		return;
	case WGTR_E_WAIT: {
		double s = wgm_span(r->t, e->v[4]);

		r->a->waits++;
		if (s > r->a->longest_wait_s) {
			r->a->longest_wait_s = s;
			r->a->longest_wait = wgm_function(r->t, (uint32_t)e->v[0]);
		}
		return;
	}
	case WGTR_E_FAILURE:
		snapshot(r, e->v[0]);
		return;
	default:
		return;
	}
}

/* ---- what was alive when the detail begins ------------------------------------------------- */

static int alive_before(struct replay *r, uint64_t from)
{
	struct wgm_trace *t = r->t;
	struct wgm_events *all;
	struct wgm_event e;
	struct replay born = { .t = t }; /* only its table: what the detail has seen begin */
	int err;

	for (size_t i = 0; i < t->live.n; i++) {
		const struct wgtr_live *l = &t->live.v[i];
		struct block b = { .addr = l->addr, .size = l->size, .at = l->at, .site = l->site,
				   .handle = l->handle, .mapped = l->mapped, .state = 1,
				   .space = (uint8_t)space_of(kind_of(r, l->site)) };

		if (l->at > from)
			continue;
		if (b.space == SP_POOL)
			pool(r, device_of(r, l->site), b.addr, b.size, from);
		else
			begin_block(r, &b, from, 0, true);
	}
	all = wgm_events_open(t, from + 1);
	while ((err = wgm_events_next(all, &e)) > 0) {
		struct block b = { .state = 1, .at = from }, *x;

		if (e.tag == WGTR_E_MAP) {
			b.addr = e.v[0];
			b.space = SP_MAP;
			if (!find(&born, SP_MAP, b.addr))
				insert(&born, &b);
			continue;
		}
		if (e.tag)
			continue;
		b.addr = e.addr;
		b.size = e.size;
		b.site = e.site;
		b.space = (uint8_t)space_of(kind_of(r, e.site));
		x = find(&born, b.space, b.addr);
		if (!e.is_free) {
			if (!x)
				insert(&born, &b);
		} else if (x) {
			erase(&born, x);
		} else if (!find(r, b.space, b.addr)) {
			begin_block(r, &b, from, 0, true);
		}
	}
	wgm_events_close(all);
	free(born.table);
	return err;
}

/* ---- results ----------------------------------------------------------------------------------- */

static int by_peak(const void *a, const void *b)
{
	const struct wgm_site *x = *(const struct wgm_site *const *)a;
	const struct wgm_site *y = *(const struct wgm_site *const *)b;

	if (x->live_at_peak != y->live_at_peak)
		return x->live_at_peak < y->live_at_peak ? 1 : -1;
	if (x->live_at_end != y->live_at_end)
		return x->live_at_end < y->live_at_end ? 1 : -1;
	return x->id < y->id ? -1 : x->id > y->id;
}

static int library_by_peak(const void *a, const void *b)
{
	const struct wgm_library *x = a, *y = b;

	if (x->live_at_peak != y->live_at_peak)
		return x->live_at_peak < y->live_at_peak ? 1 : -1;
	if (x->live_at_end != y->live_at_end)
		return x->live_at_end < y->live_at_end ? 1 : -1;
	return strcmp(x->library, y->library);
}

static int by_rate(const void *a, const void *b)
{
	const struct wgm_growth *x = a, *y = b;

	return x->bytes_per_s < y->bytes_per_s ? 1 : x->bytes_per_s > y->bytes_per_s ? -1 : 0;
}

/*
 * Growing: over the last three quarters of the time the level rises in at least half of the
 * slots, hardly ever falls, both halves of that time add to it, and it is at its height at
 * the end. A model that is loaded and stays is none: it rises early, then stands.
 */
static void look_for_growth(struct wgm_analysis *a, struct wgm_device *d, struct wgm_site *s)
{
	const unsigned int from = WGM_LEVELS / 4, n = WGM_LEVELS - from;
	unsigned int up = 0;
	uint64_t fell = 0, rose = 0, first, last, middle;
	double slot_s = (a->duration_s - (a->whole_from_s > 0 ? a->whole_from_s : a->begin_s)) /
			WGM_LEVELS;
	double sx = 0, sy = 0, sxx = 0, sxy = 0, slope;
	struct wgm_growth *g;

	if (!s->levels || s->allocations < 8 || slot_s * n < 0.5)
		return;
	first = s->levels[from];
	middle = s->levels[from + n / 2];
	last = s->levels[WGM_LEVELS - 1];
	for (unsigned int i = from; i < WGM_LEVELS; i++) {
		double x = i * slot_s, y = (double)s->levels[i];

		sx += x;
		sy += y;
		sxx += x * x;
		sxy += x * y;
		if (i == from)
			continue;
		if (s->levels[i] > s->levels[i - 1]) {
			up++;
			rose += s->levels[i] - s->levels[i - 1];
		} else {
			fell += s->levels[i - 1] - s->levels[i];
		}
	}
	if (last <= first || last - first < 1u << 20 || up < 4 || (up < n / 4 && up < s->allocations / 4) ||
	    fell > rose / 4 || middle <= first || last <= middle ||
	    last - first < last / 50)
		return;
	slope = (n * sxy - sx * sy) / (n * sxx - sx * sx);
	if (slope <= 0)
		return;
	g = wg_push(a->t->arena, &d->growing);
	g->site = s;
	g->bytes_per_s = slope;
	g->live_at_end = s->live_at_end;
	g->grown = last - first;
}

static void add_to_library(struct wgm_analysis *a, struct wgm_device *d, const struct wgm_site *s)
{
	const char *name = s->library ? s->library : "(unknown)";
	struct wgm_library *l = NULL;

	if (s->raw->kind - 1u == WG_MEM_MANAGED) /* not the card's: no sum with the others */
		name = wg_fmt(a->t->arena, "%s (managed)", name);

	for (size_t i = 0; i < d->libraries.n && !l; i++)
		if (!strcmp(d->libraries.v[i].library, name))
			l = &d->libraries.v[i];
	if (!l) {
		l = wg_push(a->t->arena, &d->libraries);
		l->library = name;
	}
	if (s->live_at_peak == WGM_NONE)
		l->live_at_peak = WGM_NONE; /* then all of them are */
	else
		l->live_at_peak += s->live_at_peak;
	l->live_at_end += s->live_at_end;
	l->allocations += s->allocations;
	l->frees += s->frees;
}

/*
 * How large an allocation could still be. The driver maps scattered pages to one range, so as
 * a rule all that is free. Where one failed although more than it asked for was free, memory is
 * in pieces, and all that is known is that the largest is smaller than what failed.
 */
static void largest_possible(struct wgm_device *d)
{
	uint64_t limit = d->raw->free;

	d->fragmentation.largest_possible = limit;
	if (limit == WGM_NONE)
		return;
	for (size_t i = 0; i < d->failures.n; i++) {
		const struct wgm_failure *f = d->failures.v[i];

		if (wgm_on_card(f->kind) && f->free != WGM_NONE && f->free >= f->asked &&
		    f->asked && f->asked - 1 < limit && f->recovered != 2) {
			limit = f->asked - 1;
			d->fragmentation.bound = true;
		}
	}
	d->fragmentation.largest_possible = limit;
}

static const char *uuid_text(struct wgm_trace *t, const uint8_t u[16])
{
	static const uint8_t none[16];

	if (!memcmp(u, none, 16))
		return NULL;
	return wg_fmt(t->arena, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x",
		      u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8], u[9], u[10], u[11],
		      u[12], u[13], u[14], u[15]);
}

static void finish_device(struct replay *r, int i)
{
	struct wgm_analysis *a = r->a;
	struct wgm_trace *t = r->t;
	struct wgm_device *d = &a->devices[i];
	const struct wgtr_device *raw = &t->devices[i];
	const struct level *l = &r->levels[i];

	d->index = i;
	d->raw = raw;
	d->used = raw->valid || raw->allocs || raw->failures;
	d->uuid = uuid_text(t, raw->uuid);
	d->total = raw->total ? raw->total : WGM_NONE;
	d->peak_own = raw->peak;
	d->peak_at_s = raw->peak_at ? wgm_seconds(t, raw->peak_at) : NAN;
	d->least_free = raw->least_free;
	d->least_free_at_s = raw->least_free != WGM_NONE ? wgm_seconds(t, raw->least_free_at) : NAN;
	d->own_at_end = raw->own;
	d->allocations = raw->allocs;
	d->frees = raw->frees;
	d->context_and_modules = raw->context;
	d->managed_peak = raw->managed_peak;
	d->managed_at_end = raw->managed;
	d->reserved_at_peak = l->reserved_at_peak;
	d->unaccounted = WGM_NONE;
	if (raw->free != WGM_NONE && raw->total != WGM_NONE && raw->total > raw->free)
		d->unaccounted = raw->total - raw->free > raw->free_own ?
				 raw->total - raw->free - raw->free_own : 0;
	d->peak_exact = !t->h.folded_until || raw->peak_at > t->h.folded_until;
	for (size_t k = 0; k < t->failures.n; k++)
		if (t->failures.v[k].device == i || (t->failures.v[k].device < 0 && !i)) {
			*wg_push(t->arena, &d->failures) = &t->failures.v[k];
			d->used = true;
		}
	d->fragmentation.free = raw->free;
	d->fragmentation.reserved_unused =
		(raw->pool_reserved > raw->async_live ? raw->pool_reserved - raw->async_live : 0) +
		(raw->vmm_created > raw->vmm_mapped ? raw->vmm_created - raw->vmm_mapped : 0);
	d->fragmentation.address_space_reserved = raw->va_reserved;
	largest_possible(d);
}

static int holder_by_bytes(const void *a, const void *b)
{
	const struct wgm_holder *x = a, *y = b;

	return x->bytes < y->bytes ? 1 : x->bytes > y->bytes ? -1 : strcmp(x->library, y->library);
}

static void finish_snapshot(struct replay *r, uint64_t failure, const uint64_t *held)
{
	struct wgm_trace *t = r->t;
	struct wgm_failure *f = NULL;

	for (size_t i = 0; i < t->failures.n && !f; i++)
		if (t->failures.v[i].number == failure)
			f = &t->failures.v[i];
	if (!f || f->holders.n)
		return; /* by an earlier replay of the same trace */
	for (size_t i = 0; i < r->nheld; i++) {
		struct wgm_site *s = &r->a->sites[i];
		uint32_t kind = kind_of(r, (uint32_t)i);
		struct wgm_holder *h = NULL;
		const char *name;

		if (!held[i] || device_of(r, (uint32_t)i) != f->device ||
		    (kind != WG_MEM_DEVICE && kind != WG_MEM_VMM && kind != WG_MEM_ASYNC))
			continue;
		wgm_attribute(r->a, s);
		name = s->library ? s->library : "(unknown)";
		for (size_t k = 0; k < f->holders.n && !h; k++)
			if (!strcmp(f->holders.v[k].library, name))
				h = &f->holders.v[k];
		if (!h) {
			h = wg_push(t->arena, &f->holders);
			h->library = name;
		}
		h->bytes += held[i];
	}
	if (f->holders.n)
		qsort(f->holders.v, f->holders.n, sizeof(*f->holders.v), holder_by_bytes);
}

static void finish(struct replay *r)
{
	struct wgm_analysis *a = r->a;
	struct wgm_trace *t = r->t;

	for (int i = 0; i < WGTR_DEVICES; i++)
		finish_device(r, i);
	/* Alive at the end: the table that a kill does not lose; else what the replay has left. */
	for (size_t i = 0; i < t->live.n && t->live_complete; i++) {
		const struct wgtr_live *l = &t->live.v[i];

		if (l->site < a->nsites && kind_of(r, l->site) != WG_MEM_POOL)
			a->sites[l->site].live_at_end += l->size;
	}
	for (size_t i = 0; i < a->nsites; i++) {
		struct wgm_site *s = &a->sites[i];
		int dev = device_of(r, (uint32_t)i);
		struct wgm_device *d = dev >= 0 ? &a->devices[dev] : NULL;
		struct held *h = &r->held[i];
		uint32_t kind;

		if (!s->raw->kind)
			continue;
		kind = s->raw->kind - 1u;
		if (!t->live_complete)
			s->live_at_end = h->now;
		s->allocations = s->raw->allocs;
		s->frees = s->raw->frees;
		s->total = s->raw->total;
		if (d)
			s->live_at_peak = h->epoch == r->levels[dev].epoch ? h->at_peak : h->now;
		if (d && !d->peak_exact)
			s->live_at_peak = d->raw->peak_snapshot_at ? s->raw->at_peak : WGM_NONE;
		if (!d || !s->allocations || (kind != WG_MEM_DEVICE && kind != WG_MEM_VMM &&
					      kind != WG_MEM_ASYNC && kind != WG_MEM_MANAGED))
			continue;
		wgm_attribute(a, s);
		*wg_push(t->arena, &d->sites) = s;
		if (kind != WG_MEM_MANAGED)
			d->live_at_end += s->live_at_end;
		add_to_library(a, d, s);
		look_for_growth(a, d, s);
	}
	for (int i = 0; i < WGTR_DEVICES; i++) {
		struct wgm_device *d = &a->devices[i];

		if (d->sites.n)
			qsort(d->sites.v, d->sites.n, sizeof(*d->sites.v), by_peak);
		if (d->libraries.n)
			qsort(d->libraries.v, d->libraries.n, sizeof(*d->libraries.v),
			      library_by_peak);
		if (d->growing.n)
			qsort(d->growing.v, d->growing.n, sizeof(*d->growing.v), by_rate);
	}
	a->host_peak = t->h.host_peak;
	a->host_at_end = t->h.host_live;
	a->host_peak_at_s = t->h.host_peak_at ? wgm_seconds(t, t->h.host_peak_at) : NAN;
	a->duration_s = wgm_seconds(t, t->last);
}

struct wgm_analysis *wgm_replay(struct wgm_trace *t, const struct wgm_watch *w)
{
	struct wgm_analysis *a = wg_alloc(t->arena, sizeof(*a));
	struct replay r = { .t = t, .a = a, .watch = w };
	uint64_t from = t->h.folded_until;
	struct wgm_events *all;
	struct wgm_event e;
	int err = 0;

	a->t = t;
	a->nsites = t->nsites;
	a->sites = wg_alloc(t->arena, (t->nsites + 1) * sizeof(*a->sites));
	r.nheld = t->nsites;
	r.held = calloc(t->nsites + 1, sizeof(*r.held));
	if (!r.held)
		abort();
	for (size_t i = 0; i < t->nsites; i++) {
		a->sites[i].id = (uint32_t)i;
		a->sites[i].raw = &t->sites[i];
		if (t->sites[i].kind && t->sites[i].allocs >= 8)
			a->sites[i].levels =
				wg_alloc(t->arena, WGM_LEVELS * sizeof(*a->sites[i].levels));
	}
	a->begin_s = wgm_seconds(t, t->first);
	a->duration_s = wgm_seconds(t, t->last);
	a->whole_from_s = from ? wgm_seconds(t, from) : 0;
	a->complete = t->h.ended && !t->lost;
	r.slot_ticks = (t->last - (from ? from : t->first)) / WGM_LEVELS;
	if (!r.slot_ticks)
		r.slot_ticks = 1;
	r.next_slot = (from ? from : t->first) + r.slot_ticks;
	if (from)
		err = alive_before(&r, from);
	all = wgm_events_open(t, from ? from + 1 : 0);
	while (!err && (err = wgm_events_next(all, &e)) > 0) {
		a->replayed++;
		one(&r, &e);
		if (w && w->event && e.tag)
			w->event(w->arg, &e, wgm_seconds(t, e.at));
		err = 0;
	}
	wgm_events_close(all);
	if (!err) {
		levels_until(&r, UINT64_MAX);
		finish(&r);
	}
	for (unsigned int i = 0; i < r.nsnapshots; i++) {
		if (!err)
			finish_snapshot(&r, r.snapshots[i].failure, r.snapshots[i].held);
		free(r.snapshots[i].held);
	}
	free(r.table);
	free(r.held);
	return err ? NULL : a;
}

struct wgm_analysis *wgm_analyse(struct wgm_trace *t)
{
	return wgm_replay(t, NULL);
}

/* What a process held on one of its devices at a moment (seconds since the epoch); 0 not alive. */
static uint64_t own_at(const struct wgm_analysis *a, int device, double when)
{
	const struct wgm_trace *t = a->t;
	const struct wgm_timeline *l = &t->timeline[device];
	double end = wgm_real(t, t->h.ended ? t->h.ended : t->last);
	uint64_t own = 0;

	/* One that was not seen ending lived at least a while after its last sign. */
	if (when < wgm_real(t, t->first) || when > end + (t->h.ended ? 0 : 2))
		return 0;
	for (size_t i = 0; i < l->n && wgm_real(t, l->v[i].from) <= when; i++)
		own = i + 1 < l->n && wgm_real(t, l->v[i + 1].from) <= when ? 0 : l->v[i].own_last;
	if (when >= wgm_real(t, t->last))
		own = a->devices[device].own_at_end;
	return own;
}

/*
 * Two processes on one card: each is the other's "other process", at the moment that matters,
 * which is its last failure, else its peak, else its end.
 */
void wgm_join(struct wgm_analysis **all, size_t n)
{
	for (size_t i = 0; i < n; i++)
		for (int a = 0; a < WGTR_DEVICES; a++) {
			struct wgm_trace *x = all[i]->t;
			struct wgm_device *p = &all[i]->devices[a];
			double when = wgm_real(x, x->last);

			if (!p->used || !p->uuid)
				continue;
			if (p->failures.n)
				when = wgm_real(x, p->failures.v[p->failures.n - 1]->at);
			else if (p->raw->peak_at)
				when = wgm_real(x, p->raw->peak_at);
			for (size_t k = 0; k < n; k++) {
				struct wgm_trace *y = all[k]->t;

				if (i == k || strcmp(x->h.host, y->h.host) ||
				    strcmp(x->h.boot_id, y->h.boot_id))
					continue;
				for (int b = 0; b < WGTR_DEVICES; b++) {
					struct wgm_device *q = &all[k]->devices[b];
					struct wgm_other *o;
					uint64_t held;

					if (!q->used || !q->uuid || strcmp(p->uuid, q->uuid))
						continue;
					held = own_at(all[k], b, when);
					if (!held)
						continue;
					o = wg_push(x->arena, &p->others);
					o->pid = y->h.pid;
					o->bytes = held;
				}
			}
		}
}

const char *wgm_kind(uint32_t kind)
{
	static const char *const names[WG_MEM_KINDS] = {
		"device", "managed", "stream-ordered", "pool", "physical", "mapping",
		"address space", "pinned host", "registered host", "imported", "context", "module",
	};

	return kind < WG_MEM_KINDS ? names[kind] : "other";
}

bool wgm_on_card(uint32_t kind)
{
	return kind != WG_MEM_HOST && kind != WG_MEM_HOST_REG && kind != WG_MEM_VA &&
	       kind != WG_MEM_VMM_MAP;
}

uint64_t wgm_short_by(const struct wgm_failure *f)
{
	if (!wgm_on_card(f->kind) || f->free == WGM_NONE || !f->asked)
		return WGM_NONE;
	return f->asked > f->free ? f->asked - f->free : 0;
}
