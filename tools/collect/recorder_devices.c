/* SPDX-License-Identifier: Apache-2.0 */
/* recorder_devices.c - devices, headroom and failed allocations, from the recorder file. */
#include "recorder_priv.h"

#include <stdlib.h>
#include <string.h>

#include "preload/memory.h"

/* ---- devices ---------------------------------------------------------------------- */

int64_t wg_rec_bytes(uint64_t v)
{
	return v <= INT64_MAX ? (int64_t)v : WG_NO_INT;
}

static struct wg_device *device_of(struct wg_facts *f, struct wg_process *p, int64_t index)
{
	for (size_t i = 0; i < p->devices.n; i++)
		if (p->devices.v[i].index == index)
			return &p->devices.v[i];
	if (index == WG_NO_INT && p->devices.n == 1)
		return &p->devices.v[0];
	struct wg_device *d = wg_add_device(f, p);

	d->index = index;
	return d;
}

void wg_rec_fill_devices(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	wg_rec_load(r, WGREC_DEVICES);
	for (uint64_t i = 0; i < r->sec[WGREC_DEVICES].n && i < 1024; i++) {
		struct wgrec_device e;
		struct wg_device *d;
		double at;

		wg_rec_entry(r, WGREC_DEVICES, i, &e, sizeof(e));
		if (!e.valid)
			continue;
		d = device_of(f, p, e.ordinal >= 0 ? e.ordinal : (int64_t)i);
		if (!d->uuid) {
			const uint8_t *u = e.uuid;
			bool any = false;

			for (int k = 0; k < 16; k++)
				any = any || u[k];
			if (any)
				d->uuid =
					wg_fmt(f->arena,
					       "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-"
					       "%02x%02x%02x%02x%02x%02x",
					       u[0], u[1], u[2], u[3], u[4], u[5], u[6], u[7], u[8],
					       u[9], u[10], u[11], u[12], u[13], u[14], u[15]);
			d->name = wg_rec_fixed(f, e.name, sizeof(e.name));
			d->pci = wg_rec_fixed(f, e.pci, sizeof(e.pci));
		}
		if (e.total)
			d->total = wg_rec_bytes(e.total);
		if (e.free_at) {
			d->free = wg_rec_bytes(e.free);
			d->free_age_s = wg_rec_age(r, e.free_at);
		}
		d->own = wg_rec_bytes(e.own);
		d->peak = wg_rec_bytes(e.peak);
		at = wg_rec_age(r, e.least_free_at);
		if (e.least_free_at) {
			d->least_free = wg_rec_bytes(e.least_free);
			if (wg_has_sec(at) && wg_has_sec(p->age_s) && p->age_s >= at)
				d->least_free_at_s = p->age_s - at;
		}
		if (e.context_bytes)
			d->context_bytes = wg_rec_bytes(e.context_bytes);
		d->allocs = wg_rec_bytes(e.allocs);
		d->frees = wg_rec_bytes(e.frees);
		d->failed = wg_rec_bytes(e.failures);
	}
}

static int by_seq(const void *a, const void *b)
{
	const struct wgrec_failure *const *x = a, *const *y = b;

	return (*x)->seq < (*y)->seq ? -1 : (*x)->seq > (*y)->seq;
}

bool wg_rec_add_failures(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	struct wg_rec_sec *s = &r->sec[WGREC_FAILURES];
	struct wgrec_failure *all, **order;
	uint64_t n = 0, newest = r->failure_seq;
	bool added = false;

	if (wg_rec_load(r, WGREC_FAILURES) || !s->n)
		return false;
	all = calloc(s->n, sizeof(*all));
	order = calloc(s->n, sizeof(*order));
	for (uint64_t i = 0; all && order && i < s->n; i++) {
		struct wgrec_failure again;

		wg_rec_entry(r, WGREC_FAILURES, i, &all[n], sizeof(all[n]));
		if (!all[n].seq || !wg_rec_fetch(r, WGREC_FAILURES, i, &again, sizeof(again)) ||
		    memcmp(&again, &all[n], sizeof(again)))
			continue; /* empty, or being overwritten by a newer one */
		order[n] = &all[n];
		n++;
	}
	if (n)
		qsort(order, n, sizeof(*order), by_seq);
	for (uint64_t i = 0; i < n; i++) {
		const struct wgrec_failure *e = order[i];
		struct wg_device *d = device_of(f, p, e->device >= 0 ? e->device : WG_NO_INT);
		struct wg_failure *x;
		struct wg_thread *t;

		if (e->seq <= r->failure_seq) { /* known from the first sample: what may change */
			for (size_t k = 0; k < d->failures.n; k++)
				if ((uint64_t)d->failures.v[k].seq == e->seq) {
					d->failures.v[k].age_s = wg_rec_age(r, e->at);
					d->failures.v[k].recovered = e->recovered != 0;
					d->failures.v[k].repeats = wg_rec_bytes(e->repeats);
				}
			continue;
		}
		newest = e->seq;
		x = wg_add_failure(f, d);
		x->seq = (int64_t)e->seq;
		x->age_s = wg_rec_age(r, e->at);
		if (wg_has_sec(x->age_s) && wg_has_sec(p->age_s) && p->age_s >= x->age_s)
			x->at_s = p->age_s - x->age_s;
		x->tid = wg_rec_tid_of(p, e->tid);
		x->thread_name = wg_rec_fixed(f, e->thread_name, sizeof(e->thread_name));
		t = p->alive ? wg_rec_thread_of(p, e->tid) : NULL;
		/* The number may have been given to a younger thread since. */
		x->thread_alive = t && !(wg_has_sec(t->start_age_s) && wg_has_sec(x->age_s) &&
					 t->start_age_s + 1 < x->age_s);
		x->function = wg_rec_fn_name(r, e->fn);
		x->device = e->device >= 0 ? e->device : WG_NO_INT;
		x->asked = wg_rec_bytes(e->asked);
		if (e->free != UINT64_MAX) {
			x->free = wg_rec_bytes(e->free);
			if (wg_has_int(x->asked) && wg_has_int(x->free))
				x->short_by = x->asked > x->free ? x->asked - x->free : 0;
		}
		x->recovered = e->recovered != 0;
		x->recovered_known = true;
		x->error = e->error;
		x->host_memory = e->kind == WG_MEM_HOST || e->kind == WG_MEM_HOST_REG ||
				 e->kind == WG_MEM_VA;
		if (x->host_memory)
			x->free = x->short_by = WG_NO_INT;
		x->pieces = wg_rec_bytes(e->pieces);
		x->repeats = wg_rec_bytes(e->repeats);
		for (uint32_t k = 0; k < e->nframes && k < 64; k++) {
			struct wg_frame *fr = wg_push(f->arena, &x->stack);

			fr->pc = e->frames[k];
			fr->line = WG_NO_INT;
		}
		for (uint32_t k = 0; k < e->npyframes && k < 24; k++) {
			struct wg_pyframe *fr = wg_push(f->arena, &x->python_stack);

			fr->function =
				wg_rec_fixed(f, e->py[k].function, sizeof(e->py[k].function));
			fr->file = wg_rec_fixed(f, e->py[k].file, sizeof(e->py[k].file));
			fr->line = e->py[k].line ? (int64_t)e->py[k].line : WG_NO_INT;
		}
		added = true;
	}
	r->failure_seq = newest;
	free(all);
	free(order);
	return added;
}
