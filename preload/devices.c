/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices.c - what this process holds on each device, and how much is left.
 *
 * The live table: every allocation that is alive has an entry in the trace's LIVE chunks
 * (so it survives us), found through a private index of 64 shards, each behind a
 * bounded lock. A free whose allocation is not in the table (made before we were there)
 * counts for nothing.
 *
 * Counted as `own`: cuMemAlloc and its relatives, physical handles (cuMemCreate) until
 * both the handle and its mappings are gone, and for stream-ordered memory what the
 * pools have reserved or what is handed out, whichever is more. Managed memory wanders
 * and imported memory is another's: both are counted beside it. Address space and
 * mappings are no memory.
 *
 * Headroom is asked of the driver (4 us) out of a budget: every allocation earns 0.4 us
 * and time earns one per cent of itself, so a program that allocates all the time pays
 * less than a microsecond an allocation, and one that does not is still sampled.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "accounting.h"
#include "pyframes.h"

#define DV_SHARDS 64u
#define DV_EARN_NS 400
#define DV_EARN_SHARE 100 /* one hundredth of the time */
#define DV_SAVED_NS 2000000 /* credit does not pile up for ever */

enum dv_space { SP_POINTER = 1, SP_HANDLE, SP_MAP, SP_VA, SP_HOST, SP_POOL, SP_OTHER };

struct dv_index {
	uint32_t slot_plus_1, tag; /* tag: hash, with the space in its low 4 bits */
};

static struct dv_shard {
	struct wg_lock lock;
	struct dv_index *table;
	uint32_t size, used;
	uint32_t free_plus_1; /* chain of free slots through wgtr_live.handle */
} __attribute__((aligned(64))) dv_shards[DV_SHARDS];

static struct dv_device {
	struct wg_lock lock;	 /* first touch, samples */
	uint64_t base;		 /* own without stream-ordered memory */
	int64_t credit_ns, cost_ns;
	uint64_t sampled, own_then;
	struct wgrec_device *rec;
} dv_devices[WGTR_DEVICES];

static bool dv_on;
static struct wgrec_header *dv_rec; /* the file that dv_devices[].rec points into */

static enum dv_space space_of(enum wg_mem_kind kind)
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
	case WG_MEM_CONTEXT:
	case WG_MEM_MODULE:
		return SP_OTHER;
	default: /* a pointer may be freed by any of its doors: cuMemFree, cuMemFreeAsync */
		return SP_POINTER;
	}
}

/* ---- the live table -------------------------------------------------------------- */

static uint64_t hash_of(enum dv_space space, uint64_t addr)
{
	uint64_t h = (addr ^ (uint64_t)space << 59) * 0x9e3779b97f4a7c15ull;

	return h ^ h >> 32;
}

static uint32_t tag_of(enum dv_space space, uint64_t h)
{
	return (uint32_t)(h << 4) | space;
}

static uint32_t home(uint32_t tag, uint32_t size)
{
	return tag >> 4 & (size - 1);
}

static struct dv_shard *shard_of(uint64_t h)
{
	return &dv_shards[h >> 58 & (DV_SHARDS - 1)];
}

static struct dv_index *lookup(struct dv_shard *s, uint32_t tag, uint64_t addr)
{
	if (!s->table)
		return NULL;
	for (uint32_t i = home(tag, s->size);; i = (i + 1) & (s->size - 1)) {
		struct dv_index *e = &s->table[i];
		struct wgtr_live *l;

		if (!e->slot_plus_1)
			return NULL;
		if (e->tag != tag)
			continue;
		l = wg_trace_live(e->slot_plus_1 - 1);
		if (l && l->addr == addr)
			return e;
	}
}

static void place(struct dv_index *table, uint32_t size, struct dv_index e)
{
	uint32_t i = home(e.tag, size);

	while (table[i].slot_plus_1)
		i = (i + 1) & (size - 1);
	table[i] = e;
}

static bool make_room(struct dv_shard *s)
{
	uint32_t size = s->size ? s->size * 2 : 512;
	struct dv_index *bigger;

	if (s->used * 2 < s->size)
		return true;
	if (size > 1u << 27)
		return false;
	bigger = wg_pages(size * sizeof(*bigger));
	if (!bigger)
		return s->used + 1 < s->size; /* slower, still right */
	for (uint32_t i = 0; i < s->size; i++)
		if (s->table[i].slot_plus_1)
			place(bigger, size, s->table[i]);
	wg_pages_free(s->table, s->size * sizeof(*s->table));
	s->table = bigger;
	s->size = size;
	return true;
}

static void erase(struct dv_shard *s, struct dv_index *e)
{
	uint32_t mask = s->size - 1, hole = (uint32_t)(e - s->table), i = hole;

	for (;;) { /* close the gap: whoever may stand nearer to its home moves up */
		i = (i + 1) & mask;
		if (!s->table[i].slot_plus_1)
			break;
		if (((i - home(s->table[i].tag, s->size)) & mask) >= ((i - hole) & mask)) {
			s->table[hole] = s->table[i];
			hole = i;
		}
	}
	s->table[hole].slot_plus_1 = 0;
	s->used--;
}

static struct wgtr_live *fresh_slot(struct dv_shard *s, uint32_t *slot)
{
	struct wgtr_live *l;

	if (!s->free_plus_1) {
		uint32_t first, n;

		if (wg_trace_live_block(&first, &n))
			return NULL;
		for (uint32_t i = n; i-- > 0;) {
			wg_trace_live(first + i)->handle = s->free_plus_1;
			s->free_plus_1 = first + i + 1;
		}
	}
	*slot = s->free_plus_1 - 1;
	l = wg_trace_live(*slot);
	s->free_plus_1 = (uint32_t)l->handle;
	return l;
}

static void give_slot(struct dv_shard *s, uint32_t slot, struct wgtr_live *l)
{
	__atomic_store_n(&l->state, 0, __ATOMIC_RELEASE);
	l->handle = s->free_plus_1;
	s->free_plus_1 = slot + 1;
}

/* *old: what stood there and was never seen freed (state 0 when nothing did). */
static bool live_add(enum dv_space space, const struct wgtr_live *new, struct wgtr_live *old)
{
	uint64_t h = hash_of(space, new->addr);
	struct dv_shard *s = shard_of(h);
	struct dv_index *e, entry = { 0, tag_of(space, h) };
	struct wgtr_live *l;
	uint32_t slot;
	bool done = false;

	old->state = 0;
	if (!wg_lock_take(&s->lock))
		return false;
	e = lookup(s, entry.tag, new->addr);
	if (e) {
		l = wg_trace_live(e->slot_plus_1 - 1);
		*old = *l;
		__atomic_store_n(&l->state, 0, __ATOMIC_RELEASE);
	} else {
		if (!make_room(s))
			goto out;
		l = fresh_slot(s, &slot);
		if (!l)
			goto out;
		entry.slot_plus_1 = slot + 1;
		place(s->table, s->size, entry);
		s->used++;
	}
	l->addr = new->addr;
	l->size = new->size;
	l->at = new->at;
	l->handle = new->handle;
	l->site = new->site;
	l->mapped = new->mapped;
	__atomic_store_n(&l->state, new->state, __ATOMIC_RELEASE);
	done = true;
out:
	wg_lock_drop(&s->lock);
	return done;
}

static bool live_remove(enum dv_space space, uint64_t addr, struct wgtr_live *old)
{
	uint64_t h = hash_of(space, addr);
	struct dv_shard *s = shard_of(h);
	struct dv_index *e;
	bool done = false;

	if (!s->table || !wg_lock_take(&s->lock))
		return false;
	e = lookup(s, tag_of(space, h), addr);
	if (e) {
		uint32_t slot = e->slot_plus_1 - 1;
		struct wgtr_live *l = wg_trace_live(slot);

		*old = *l;
		erase(s, e);
		give_slot(s, slot, l);
		done = true;
	}
	wg_lock_drop(&s->lock);
	return done;
}

/* Change an entry in place: mapped bytes of a handle, its state. old: as it was before. */
static bool live_adjust(enum dv_space space, uint64_t addr, int64_t mapped, uint32_t state,
			struct wgtr_live *old)
{
	uint64_t h = hash_of(space, addr);
	struct dv_shard *s = shard_of(h);
	struct dv_index *e;
	bool done = false;

	if (!s->table || !wg_lock_take(&s->lock))
		return false;
	e = lookup(s, tag_of(space, h), addr);
	if (e) {
		struct wgtr_live *l = wg_trace_live(e->slot_plus_1 - 1);

		*old = *l;
		l->mapped += (uint64_t)mapped;
		if (state)
			l->state = state;
		done = true;
	}
	wg_lock_drop(&s->lock);
	return done;
}

/* ---- devices ------------------------------------------------------------------------ */

static uint64_t add(uint64_t *counter, int64_t by)
{
	return __atomic_add_fetch(counter, (uint64_t)by, __ATOMIC_RELAXED);
}

static uint64_t get(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

struct wgrec_device *wg_mem_rec_device(int device)
{
	if (device < 0 || device >= WGTR_DEVICES)
		return NULL;
	if (wg_unlikely(__atomic_load_n(&dv_rec, __ATOMIC_ACQUIRE) != wg_rec)) {
		uint64_t capacity = 0;
		struct wgrec_device *all = wg_rec ? wg_rec_section(WGREC_DEVICES, &capacity) : NULL;

		for (uint64_t i = 0; i < WGTR_DEVICES; i++)
			__atomic_store_n(&dv_devices[i].rec, all && i < capacity ? &all[i] : NULL,
					 __ATOMIC_RELAXED);
		__atomic_store_n(&dv_rec, wg_rec, __ATOMIC_RELEASE);
	}
	return __atomic_load_n(&dv_devices[device].rec, __ATOMIC_RELAXED);
}

static void identify(int device, struct wgtr_device *d)
{
	int (*get_device)(int *, int) = wg_real_symbol("cuDeviceGet");
	int (*name)(char *, int, int) = wg_real_symbol("cuDeviceGetName");
	int (*uuid)(uint8_t *, int) = wg_real_symbol("cuDeviceGetUuid_v2");
	int (*pci)(char *, int, int) = wg_real_symbol("cuDeviceGetPCIBusId");
	int (*total)(size_t *, int) = wg_real_symbol("cuDeviceTotalMem_v2");
	size_t bytes;
	int handle;

	if (!uuid)
		uuid = wg_real_symbol("cuDeviceGetUuid");
	if (!get_device || get_device(&handle, device))
		return;
	if (name)
		name(d->name, sizeof(d->name), handle);
	if (uuid)
		uuid(d->uuid, handle);
	if (pci)
		pci(d->pci, sizeof(d->pci), handle);
	if (total && !total(&bytes, handle))
		d->total = bytes;
	d->name[sizeof(d->name) - 1] = 0;
	d->pci[sizeof(d->pci) - 1] = 0;
}

static void first_touch(int device, struct wgtr_device *d)
{
	struct wgrec_device *r = wg_mem_rec_device(device);

	if (!wg_lock_take(&dv_devices[device].lock))
		return;
	if (!d->valid) {
		identify(device, d);
		dv_devices[device].cost_ns = 5000;
		dv_devices[device].credit_ns = DV_SAVED_NS / 4;
		if (r) {
			memcpy(r->uuid, d->uuid, sizeof(r->uuid));
			memcpy(r->name, d->name, sizeof(r->name));
			memcpy(r->pci, d->pci, sizeof(r->pci));
			r->ordinal = device;
			r->total = d->total == WGTR_UNKNOWN ? 0 : d->total;
			r->least_free = WGTR_UNKNOWN;
			r->free = WGTR_UNKNOWN;
			__atomic_store_n(&r->valid, 1, __ATOMIC_RELEASE);
		}
		__atomic_store_n(&d->valid, 1, __ATOMIC_RELEASE);
	}
	wg_lock_drop(&dv_devices[device].lock);
}

static struct wgtr_device *device_entry(int device)
{
	struct wgtr_device *d = wg_trace_device(device);

	if (d && wg_unlikely(!__atomic_load_n(&d->valid, __ATOMIC_ACQUIRE)))
		first_touch(device, d);
	return d;
}

int wg_mem_device_of(const struct wg_site *s)
{
	int device = s->device >= 0 ? s->device : wg_real_current_device();

	return device >= 0 && device < WGTR_DEVICES ? device : -1;
}

static uint64_t own_of(int device, const struct wgtr_device *d)
{
	uint64_t live = get(&d->async_live), reserved = get(&d->pool_reserved);

	return get(&dv_devices[device].base) + (live > reserved ? live : reserved);
}

uint64_t wg_mem_own(int device)
{
	struct wgtr_device *d = wg_trace_device(device);

	return d ? own_of(device, d) : 0;
}

/* A level has changed: publish it, and the peak. */
static void level(int device, struct wgtr_device *d, enum wg_level what, uint64_t now)
{
	struct wgrec_device *r = wg_mem_rec_device(device);
	uint64_t own = own_of(device, d), peak = get(&d->peak);

	__atomic_store_n(&d->own, own, __ATOMIC_RELAXED);
	while (own > peak)
		if (__atomic_compare_exchange_n(&d->peak, &peak, own, true, __ATOMIC_RELAXED,
						__ATOMIC_RELAXED)) {
			d->peak_at = now;
			if (r) {
				r->peak = own;
				r->peak_at = d->peak_at;
			}
			break;
		}
	if (what == WG_LEVEL_ALLOC)
		add(&d->allocs, 1);
	else if (what == WG_LEVEL_FREE)
		add(&d->frees, 1);
	if (r) {
		__atomic_store_n(&r->own, own, __ATOMIC_RELAXED);
		r->allocs = d->allocs;
		r->frees = d->frees;
	}
	wg_trace_timeline(device, what, own, WGTR_UNKNOWN, now);
}

bool wg_mem_sample(int device, uint64_t *free_bytes, uint64_t *total)
{
	struct dv_device *v;
	struct wgtr_device *d = device_entry(device);
	struct wgrec_device *r;
	uint64_t own, began, now, values[4];

	if (!d || wg_real_current_device() != device)
		return false;
	began = wg_ticks();
	own = own_of(device, d);
	if (wg_real_mem_info(free_bytes, total))
		return false;
	now = wg_ticks();
	v = &dv_devices[device];
	v->sampled = now;
	v->own_then = own;
	v->cost_ns += ((int64_t)wg_ticks_to_ns(now - began) - v->cost_ns) / 4;
	d->total = *total;
	if (d->first_free == WGTR_UNKNOWN) {
		d->first_free = *free_bytes;
		d->first_own = own;
		d->first_free_at = now;
	}
	d->free = *free_bytes;
	d->free_at = now;
	d->free_own = own;
	r = wg_mem_rec_device(device);
	if (*free_bytes < d->least_free) {
		d->least_free_at = now;
		d->least_free = *free_bytes;
	}
	if (r) {
		r->total = *total;
		r->free = *free_bytes;
		r->free_at = now;
		r->least_free = d->least_free;
		r->least_free_at = d->least_free_at;
	}
	values[0] = (uint64_t)device;
	values[1] = *free_bytes;
	values[2] = own;
	values[3] = *total;
	wg_trace_event(WGTR_E_SAMPLE, values, 4);
	wg_trace_timeline(device, WG_LEVEL_SAMPLE, own, *free_bytes, now);
	return true;
}

/*
 * A pool gives memory back at a synchronisation, without a call that we see. POOL entries are
 * few; what they hold is asked for again with each look at the headroom. Never by the helper
 * thread: a pool's lock may be held by a thread that hangs in the driver.
 */
#define DV_POOLS 8
static struct dv_pool {
	_Atomic uint64_t handle; /* 0 free */
	int device;
	uint32_t site;
} dv_pools[DV_POOLS];

static void pool_known(uint64_t handle, int device, uint32_t site)
{
	struct dv_pool *empty = NULL;

	for (int i = 0; i < DV_POOLS; i++) {
		uint64_t h = atomic_load_explicit(&dv_pools[i].handle, memory_order_relaxed);

		if (h == handle)
			return;
		if (!h && !empty)
			empty = &dv_pools[i];
	}
	if (!empty)
		return;
	empty->device = device;
	empty->site = site;
	atomic_store_explicit(&empty->handle, handle, memory_order_release);
}

static void pool_gone(uint64_t handle)
{
	for (int i = 0; i < DV_POOLS; i++)
		if (atomic_load_explicit(&dv_pools[i].handle, memory_order_relaxed) == handle)
			atomic_store_explicit(&dv_pools[i].handle, 0, memory_order_release);
}

static void pool_level(uint64_t handle, int device, uint32_t site, uint64_t reserved);

static void refresh_pools(int device)
{
	int (*attribute)(uint64_t, int, uint64_t *);

	attribute = wg_real_symbol("cuMemPoolGetAttribute");
	for (int i = 0; attribute && i < DV_POOLS; i++) {
		uint64_t h = atomic_load_explicit(&dv_pools[i].handle, memory_order_acquire);
		uint64_t reserved = 0;

		if (h && dv_pools[i].device == device &&
		    !attribute(h, 5 /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */, &reserved))
			pool_level(h, device, dv_pools[i].site, reserved);
	}
}

/* Is a look at the headroom paid for, and worth it? */
static void maybe_sample(int device, struct wgtr_device *d, uint64_t now)
{
	struct dv_device *v = &dv_devices[device];
	uint64_t free_bytes, total, grown = 0, own = get(&d->own);
	int64_t since = now > v->sampled ? (int64_t)wg_ticks_to_ns(now - v->sampled) : 0;
	int64_t credit = v->credit_ns + DV_EARN_NS;

	v->credit_ns = credit;
	if (own > v->own_then)
		grown = own - v->own_then;
	/* Worth it after 10 ms; at once when what we took since would be a new low by 1 %. */
	if (since < 10000000 &&
	    !(d->free != WGTR_UNKNOWN && d->total != WGTR_UNKNOWN &&
	      grown > d->total / 100 && d->free - d->least_free < grown))
		return;
	credit += since / DV_EARN_SHARE;
	if (credit < v->cost_ns)
		return;
	if (credit > DV_SAVED_NS)
		credit = DV_SAVED_NS;
	if (!wg_lock_try(&v->lock))
		return;
	if (get(&d->pool_reserved))
		refresh_pools(device);
	if (wg_mem_sample(device, &free_bytes, &total))
		credit -= v->cost_ns;
	else
		v->sampled = now; /* no context of that device here: not again at once */
	v->credit_ns = credit;
	wg_lock_drop(&v->lock);
}

/* ---- what the wrappers call ------------------------------------------------------------ */

static void host_level(int64_t by, uint64_t now)
{
	struct wgtr_header *h = wg_trace_header;
	uint64_t live = add(&h->host_live, by);

	if (live > get(&h->host_peak)) {
		h->host_peak = live;
		h->host_peak_at = now;
	}
}

/* One allocation more (sign 1) or less (-1) in the counters of its kind. */
static void account(int device, enum wg_mem_kind kind, uint64_t bytes, int sign, uint64_t now)
{
	struct wgtr_device *d = device_entry(device);
	int64_t by = (int64_t)bytes * sign;

	if (kind == WG_MEM_HOST || kind == WG_MEM_HOST_REG) {
		host_level(by, now);
		return;
	}
	if (!d)
		return;
	switch (kind) {
	case WG_MEM_DEVICE:
	case WG_MEM_VMM:
		add(&dv_devices[device].base, by);
		if (kind == WG_MEM_VMM)
			add(&d->vmm_created, by);
		level(device, d, sign < 0 ? WG_LEVEL_FREE : WG_LEVEL_ALLOC, now);
		break;
	case WG_MEM_ASYNC:
		add(&d->async_live, by);
		level(device, d, sign < 0 ? WG_LEVEL_FREE : WG_LEVEL_ALLOC, now);
		break;
	case WG_MEM_POOL:
		add(&d->pool_reserved, by);
		level(device, d, WG_LEVEL_TICK, now);
		break;
	case WG_MEM_MANAGED: {
		uint64_t live = add(&d->managed, by);

		if (live > get(&d->managed_peak))
			d->managed_peak = live;
		level(device, d, sign < 0 ? WG_LEVEL_FREE : WG_LEVEL_ALLOC, now);
		break;
	}
	case WG_MEM_VMM_MAP:
		add(&d->vmm_mapped, by);
		break;
	case WG_MEM_VA:
		add(&d->va_reserved, by);
		break;
	case WG_MEM_IPC:
		add(&d->imported, by);
		break;
	default:
		break;
	}
}

static void count_site(uint32_t site, uint64_t bytes, int sign)
{
	struct wgtr_site *e = wg_trace_site(site);

	if (!e)
		return;
	add(&e->live, (int64_t)bytes * sign);
	add(sign > 0 ? &e->allocs : &e->frees, 1);
	if (sign > 0)
		add(&e->total, (int64_t)bytes);
}

static int site_device(uint32_t site)
{
	struct wgtr_site *e = wg_trace_site(site);

	return e ? e->device : -1;
}

static enum wg_mem_kind site_kind(uint32_t site)
{
	struct wgtr_site *e = wg_trace_site(site);

	return e && e->kind ? (enum wg_mem_kind)(e->kind - 1) : WG_MEM_KINDS;
}

/* Contexts and modules: told by the wrapper, or the drop of free memory since a fresh sample. */
static void measured(int device, uint64_t bytes)
{
	struct wgtr_device *d = device_entry(device);
	struct dv_device *v;
	uint64_t before, own_before, then, free_bytes, total;

	if (!d)
		return;
	v = &dv_devices[device];
	before = d->free;
	own_before = v->own_then;
	then = v->sampled;
	if (!wg_mem_sample(device, &free_bytes, &total))
		free_bytes = WGTR_UNKNOWN;
	if (!bytes && before != WGTR_UNKNOWN && free_bytes != WGTR_UNKNOWN &&
	    wg_ticks_to_ns(v->sampled - then) < 1000000000u) {
		int64_t drop = (int64_t)(before - free_bytes) - (int64_t)(v->own_then - own_before);

		bytes = drop > 0 ? (uint64_t)drop : 0;
	}
	if (!bytes)
		return;
	if (d->context == WGTR_UNKNOWN)
		d->context = 0;
	add(&d->context, (int64_t)bytes);
	if (wg_mem_rec_device(device))
		wg_mem_rec_device(device)->context_bytes = d->context;
}

static void map_added(int device, const struct wgtr_live *l)
{
	uint64_t values[4] = { l->addr, l->size, l->handle, l->site };
	struct wgtr_live handle;

	(void)device;
	if (l->handle)
		live_adjust(SP_HANDLE, l->handle, (int64_t)l->size, 0, &handle);
	wg_trace_event(WGTR_E_MAP, values, 4);
}

/* The memory of a handle is gone: from the handle's release, or the last unmapping after it. */
static void handle_gone(const struct wgtr_live *l)
{
	uint64_t now = wg_trace_alloc(true, l->site, l->addr, l->size);

	count_site(l->site, l->size, -1);
	account(site_device(l->site), WG_MEM_VMM, l->size, -1, now);
}

static void unmapped(const struct wgtr_live *map)
{
	struct wgtr_live before, gone;

	count_site(map->site, map->size, -1);
	account(site_device(map->site), WG_MEM_VMM_MAP, map->size, -1, wg_ticks());
	if (!map->handle)
		return;
	if (live_adjust(SP_HANDLE, map->handle, -(int64_t)map->size, 0, &before) &&
	    before.state == 2 && before.mapped <= map->size &&
	    live_remove(SP_HANDLE, map->handle, &gone))
		handle_gone(&gone);
}

/* Something that was alive and whose free nobody saw. */
static void overwritten(enum wg_mem_kind kind, const struct wgtr_live *old)
{
	switch (kind) {
	case WG_MEM_VMM_MAP:
		unmapped(old);
		return;
	default:
		kind = site_kind(old->site);
		count_site(old->site, old->size, -1);
		account(site_device(old->site), kind, old->size, -1, wg_ticks());
	}
}

static void pool_level(uint64_t handle, int device, uint32_t site, uint64_t reserved)
{
	struct wgtr_live l = { .addr = handle, .size = reserved, .site = site, .state = 1,
			       .at = wg_ticks() }, old;
	uint64_t values[3] = { (uint64_t)device, handle, reserved };

	if (!live_add(SP_POOL, &l, &old) || (old.state && old.size == reserved))
		return;
	if (old.state)
		account(device, WG_MEM_POOL, old.size, -1, l.at);
	account(device, WG_MEM_POOL, reserved, 1, l.at);
	wg_trace_event(WGTR_E_POOL, values, 3);
}

void wg_mem_allocated(const struct wg_site *s, enum wg_mem_kind kind, uint64_t ptr, uint64_t bytes)
{
	struct wgtr_live l = { .addr = ptr, .size = bytes, .state = 1 }, old;
	struct wgtr_device *d;
	int device;

	if (!dv_on)
		return;
	device = wg_mem_device_of(s);
	if (kind == WG_MEM_CONTEXT || kind == WG_MEM_MODULE) {
		measured(device, bytes);
		wg_failure_other();
		return;
	}
	if (!ptr)
		return;
	l.site = wg_site_of(s, kind, device);
	if (kind == WG_MEM_VMM_MAP)
		l.handle = s->handle;
	wg_failure_allocated(device, kind, bytes, l.site);
	if (kind == WG_MEM_POOL) {
		pool_known(ptr, device, l.site);
		pool_level(ptr, device, l.site, bytes);
		return;
	}
	if (kind == WG_MEM_VMM_MAP) {
		l.at = wg_ticks();
	} else {
		l.at = wg_trace_alloc(false, l.site, ptr, bytes);
	}
	if (!live_add(space_of(kind), &l, &old)) {
		__atomic_fetch_add(&wg_trace_header->lost, 1, __ATOMIC_RELAXED);
		return;
	}
	if (old.state)
		overwritten(kind, &old);
	if (kind == WG_MEM_VMM_MAP)
		map_added(device, &l);
	count_site(l.site, bytes, 1);
	account(device, kind, bytes, 1, l.at);
	d = wg_trace_device(device);
	if (d && kind != WG_MEM_VA && kind != WG_MEM_HOST && kind != WG_MEM_HOST_REG &&
	    kind != WG_MEM_VMM_MAP)
		maybe_sample(device, d, l.at);
}

void wg_mem_freed(const struct wg_site *s, enum wg_mem_kind kind, uint64_t ptr)
{
	struct wgtr_live old;
	uint64_t now;

	wg_mt.freed.state = 0;
	if (!dv_on || !ptr)
		return;
	if (kind == WG_MEM_VMM_MAP) {
		/* One call may take down several mappings that lie side by side. */
		uint64_t end = ptr + s->bytes, at = ptr;
		uint64_t values[2] = { ptr, s->bytes };
		bool any = false;

		do {
			if (!live_remove(SP_MAP, at, &old))
				break;
			unmapped(&old);
			at += old.size;
			any = true;
		} while (at < end && old.size);
		if (any && !s->bytes)
			values[1] = old.size;
		if (any)
			wg_trace_event(WGTR_E_UNMAP, values, 2);
		wg_failure_other();
		return;
	}
	if (kind == WG_MEM_VMM) {
		if (!live_adjust(SP_HANDLE, ptr, 0, 2, &old) || old.state == 2)
			return;
		wg_failure_other();
		if (old.mapped) {
			wg_trace_event(WGTR_E_RELEASE, &ptr, 1);
			return; /* goes with its last mapping */
		}
		if (!live_remove(SP_HANDLE, ptr, &old))
			return;
		handle_gone(&old);
		wg_mt.freed = old;
		wg_mt.freed.state = 1;
		wg_mt.freed_kind = kind;
		return;
	}
	if (!live_remove(space_of(kind), ptr, &old))
		return; /* from before our time, or NULL's like: nothing to take away */
	wg_failure_other();
	if (kind == WG_MEM_POOL) {
		uint64_t values[3] = { (uint64_t)(site_device(old.site)), ptr, 0 };

		pool_gone(ptr);
		wg_trace_event(WGTR_E_POOL, values, 3);
		account(site_device(old.site), kind, old.size, -1, wg_ticks());
		return;
	}
	now = wg_trace_alloc(true, old.site, old.addr, old.size);
	count_site(old.site, old.size, -1);
	account(site_device(old.site), site_kind(old.site), old.size, -1, now);
	wg_mt.freed = old;
	wg_mt.freed_kind = kind;
	if (kind != WG_MEM_HOST && kind != WG_MEM_HOST_REG && kind != WG_MEM_VA &&
	    wg_trace_device(site_device(old.site)))
		maybe_sample(site_device(old.site), wg_trace_device(site_device(old.site)), now);
}

void wg_mem_unfree(const struct wg_site *s, enum wg_mem_kind kind, uint64_t ptr)
{
	struct wgtr_live l = wg_mt.freed, old;
	uint64_t values[3] = { l.addr, l.site, l.size };
	struct wgtr_site *site;
	(void)s;

	wg_mt.freed.state = 0;
	if (!dv_on || !l.state || l.addr != ptr || space_of(wg_mt.freed_kind) != space_of(kind))
		return;
	if (!live_add(space_of(kind), &l, &old))
		return;
	wg_trace_event(WGTR_E_UNFREE, values, 3);
	site = wg_trace_site(l.site);
	if (site) {
		add(&site->live, (int64_t)l.size);
		add(&site->frees, -1);
	}
	account(site_device(l.site), site_kind(l.site), l.size, 1, wg_ticks());
	if (wg_trace_device(site_device(l.site))) { /* neither a free nor an allocation */
		add(&wg_trace_device(site_device(l.site))->allocs, -1);
		add(&wg_trace_device(site_device(l.site))->frees, -1);
	}
}

void wg_mem_device_gone(int device)
{
	uint64_t value = (uint64_t)device, n;

	if (!dv_on || !wg_trace_device(device))
		return;
	wg_trace_event(WGTR_E_GONE, &value, 1);
	n = wg_trace_header->live_slots;
	for (uint32_t slot = 0; slot < n; slot++) {
		struct wgtr_live *l = wg_trace_live(slot), old;
		enum wg_mem_kind kind;

		if (!l || !l->state || site_device(l->site) != device)
			continue;
		kind = site_kind(l->site);
		/* Physical handles, mappings and address ranges belong to no context. */
		if (kind == WG_MEM_VMM || kind == WG_MEM_VMM_MAP || kind == WG_MEM_VA ||
		    kind == WG_MEM_KINDS || !live_remove(space_of(kind), l->addr, &old))
			continue;
		if (kind == WG_MEM_POOL)
			pool_gone(old.addr);
		else
			count_site(old.site, old.size, -1);
		account(device, kind, old.size, -1, wg_ticks());
	}
	wg_failure_other();
}

/* ---- records that are not allocations ------------------------------------------------------ */

void wg_trace_wait(const struct wg_site *s, uint64_t began_ticks, uint64_t ended_ticks)
{
	uint64_t values[6];

	if (!dv_on)
		return;
	wg_trace_name(s->fn);
	values[0] = s->fn;
	values[1] = (uint64_t)(s->device + 1);
	values[2] = s->stream;
	values[3] = began_ticks;
	values[4] = ended_ticks - began_ticks;
	values[5] = wg_site_of(s, WG_MEM_KINDS, s->device);
	wg_trace_event(WGTR_E_WAIT, values, 6);
	/* A training loop allocates nothing for hours, but it waits: others may take the card. */
	if (wg_trace_device(s->device))
		maybe_sample(s->device, wg_trace_device(s->device), ended_ticks);
}

/* The last few communicators' string ids. */
static struct {
	struct wg_lock lock;
	struct {
		char id[40];
		uint32_t string;
	} known[16];
	uint32_t next;
} dv_comms;

void wg_trace_collective(const char *comm_id, int rank, uint64_t sequence, uint16_t fn,
			 uint64_t count, int type)
{
	uint32_t string = 0;
	uint64_t values[6];

	if (!dv_on || !comm_id)
		return;
	if (wg_lock_take(&dv_comms.lock)) {
		for (int i = 0; i < 16 && !string; i++)
			if (dv_comms.known[i].string &&
			    !strncmp(dv_comms.known[i].id, comm_id, 39))
				string = dv_comms.known[i].string;
		if (!string) {
			string = wg_trace_string(comm_id);
			strncpy(dv_comms.known[dv_comms.next % 16].id, comm_id, 39);
			dv_comms.known[dv_comms.next++ % 16].string = string;
		}
		wg_lock_drop(&dv_comms.lock);
	}
	wg_trace_name(fn);
	values[0] = string;
	values[1] = (uint64_t)(rank + 1);
	values[2] = sequence;
	values[3] = fn;
	values[4] = count;
	values[5] = (uint64_t)type;
	wg_trace_event(WGTR_E_COLLECTIVE, values, 6);
}

void wg_trace_module(const struct wg_site *s, uint64_t bytes)
{
	uint64_t values[4];

	if (!dv_on)
		return;
	wg_trace_name(s->fn);
	values[0] = s->fn;
	values[1] = (uint64_t)(s->device + 1);
	values[2] = bytes;
	values[3] = wg_site_of(s, WG_MEM_KINDS, s->device);
	wg_trace_event(WGTR_E_MODULE, values, 4);
}

/* ---- life ------------------------------------------------------------------------------------ */

int wg_mem_start(void)
{
	int err;

	if (dv_on)
		return 0;
	if (wg_settings.disabled)
		return -ECANCELED;
	err = wg_trace_open();
	if (err)
		wg_note("trace: no file can be written in WAITGRAPH_DIR; accounting goes on without");
	if (!wg_trace_header)
		return err;
	wg_callsite_start();
	dv_on = true; /* accounting goes on without a file, for the recorder */
	return err;
}

/* Who held what at the peak, for the time when the detail has been recycled. */
static void look_at_peak(int device, struct wgtr_device *d)
{
	uint64_t n = wg_trace_header->sites;

	if (!d->valid || d->peak_snapshot_at >= d->peak_at || !d->peak_at)
		return;
	if (d->own < d->peak - d->peak / 50)
		return; /* it has gone by: this would not be the peak any more */
	for (uint32_t i = 0; i < n; i++) {
		struct wgtr_site *s = wg_trace_site(i);

		if (s && s->kind && s->device == device)
			s->at_peak = s->live;
	}
	d->peak_snapshot_at = wg_ticks();
}

void wg_mem_tick(void)
{
	uint64_t free_bytes, total;

	if (!dv_on)
		return;
	for (int i = 0; i < WGTR_DEVICES; i++) {
		struct wgtr_device *d = wg_trace_device(i);

		uint64_t own;

		if (!__atomic_load_n(&d->valid, __ATOMIC_ACQUIRE))
			continue;
		look_at_peak(i, d);
		own = own_of(i, d);
		__atomic_store_n(&d->own, own, __ATOMIC_RELAXED);
		if (wg_mem_rec_device(i))
			__atomic_store_n(&wg_mem_rec_device(i)->own, own, __ATOMIC_RELAXED);
		wg_trace_timeline(i, WG_LEVEL_TICK, own, WGTR_UNKNOWN, wg_ticks());
		if (wg_lock_try(&dv_devices[i].lock)) {
			if (wg_ticks_to_ns(wg_ticks() - dv_devices[i].sampled) > 500000000u)
				wg_mem_sample(i, &free_bytes, &total);
			wg_lock_drop(&dv_devices[i].lock);
		}
	}
	if (wg_objects_stale())
		wg_objects_scan();
	wg_trace_tick();
}

void wg_mem_exit(void)
{
	if (!dv_on)
		return;
	for (int i = 0; i < WGTR_DEVICES; i++)
		look_at_peak(i, wg_trace_device(i));
	if (wg_objects_stale())
		wg_objects_scan();
	wg_trace_end();
}

void wg_mem_fork_child(void)
{
	if (!dv_on)
		return;
	dv_on = false;
	dv_rec = NULL;
	for (uint32_t i = 0; i < DV_SHARDS; i++)
		wg_pages_free(dv_shards[i].table, dv_shards[i].size * sizeof(struct dv_index));
	memset(dv_shards, 0, sizeof(dv_shards));
	memset(dv_devices, 0, sizeof(dv_devices));
	memset(dv_pools, 0, sizeof(dv_pools));
	memset(&dv_comms, 0, sizeof(dv_comms));
	wg_callsite_fork_child();
	wg_failure_fork_child();
	wg_python_fork_child();
	wg_trace_fork_child();
	memset(&wg_mt, 0, sizeof(wg_mt));
}
