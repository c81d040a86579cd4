// SPDX-License-Identifier: Apache-2.0
/*
 * effects.c - what a call means to memory, contexts and streams: the bodies of the words of
 * calls.def. Called with errno saved, on the thread that made the call.
 */
#include <string.h>

#include "doors.h"
#include "effects.h"

/* ---- the current device ------------------------------------------------------------ */

static int (*get_device)(int *);

int wg_real_current_device(void)
{
	int (*get)(int *) = __atomic_load_n(&get_device, __ATOMIC_RELAXED);
	int device = -1;

	if (wg_unlikely(!get)) {
		get = wg_real_symbol("cuCtxGetDevice");
		if (!get)
			return -1;
		__atomic_store_n(&get_device, get, __ATOMIC_RELAXED);
	}
	return get(&device) ? -1 : device;
}

/*
 * Remembered until something changes the current context. "None" is not remembered: the runtime
 * makes one current at its first real call.
 */
int wg_device(void)
{
	int device = wg_self.device;

	if (wg_likely(device >= 0))
		return device;
	device = wg_real_current_device();
	if (device >= 0)
		wg_self.device = device;
	return device;
}

static void current_changed(void)
{
	wg_self.device = WG_DEVICE_UNKNOWN;
}

int wg_real_mem_info(uint64_t *free_bytes, uint64_t *total_bytes)
{
	static int (*info)(size_t *, size_t *);
	size_t f = 0, t = 0;
	int r;

	if (wg_unlikely(!info)) {
		info = wg_real_symbol("cuMemGetInfo_v2");
		if (!info)
			return WG_CU_SYMBOL_NOT_FOUND;
	}
	r = info(&f, &t);
	*free_bytes = f;
	*total_bytes = t;
	return r;
}

/* Another context made current for a moment; false: it could not be. */
static bool push(uint64_t ctx)
{
	int (*f)(uint64_t) = wg_real_symbol("cuCtxPushCurrent_v2");

	return ctx && f && !f(ctx);
}

static void pop(void)
{
	int (*f)(uint64_t *) = wg_real_symbol("cuCtxPopCurrent_v2");
	uint64_t ctx;

	if (f)
		f(&ctx);
}

int wg_device_of(void *ctx)
{
	int device;

	if (!ctx)
		return wg_device();
	if (!push((uint64_t)(uintptr_t)ctx))
		return -1;
	device = wg_real_current_device();
	pop();
	return device;
}

/* ---- memory ------------------------------------------------------------------------- */

/* A driver call directly inside the runtime call that means the same: that one is told. */
static bool absorbed(const struct wg_frame *f)
{
	const struct wg_up *up;

	if (f->api != WGREC_API_DRIVER || !f->index || f->index > WGREC_DEPTH)
		return false;
	up = &wg_self.up[f->index - 1];
	return up->api == WGREC_API_RUNTIME &&
	       (up->kind == WGREC_CALL_ALLOC || up->kind == WGREC_CALL_FREE ||
		up->kind == WGREC_CALL_PIN);
}

static struct wg_site *site_of(struct wg_frame *f)
{
	f->site.device = (int16_t)wg_device();
	return &f->site;
}

void wg_did_fail(struct wg_frame *f, int r, enum wg_mem_kind kind, uint64_t bytes)
{
	/* Other errors (no context, bad argument, sticky faults) say nothing about memory. */
	if (wg_unlikely(r == WG_CU_OUT_OF_MEMORY) && !absorbed(f))
		wg_mem_failed(site_of(f), kind, bytes, r);
}

void wg_did_allocate(struct wg_frame *f, int r, enum wg_mem_kind kind, uint64_t p, uint64_t bytes)
{
	if (wg_unlikely(r)) {
		wg_did_fail(f, r, kind, bytes);
		return;
	}
	if (p && !absorbed(f))
		wg_mem_allocated(site_of(f), kind, p, bytes);
}

void wg_will_free(struct wg_frame *f, enum wg_mem_kind kind, uint64_t p)
{
	if (p && !absorbed(f))
		wg_mem_freed(site_of(f), kind, p);
}

void wg_did_free(struct wg_frame *f, int r, enum wg_mem_kind kind, uint64_t p)
{
	if (wg_unlikely(r) && p && !absorbed(f))
		wg_mem_unfree(site_of(f), kind, p);
}

void wg_did_create(struct wg_frame *f, int r, uint64_t handle, uint64_t bytes,
		   const struct wg_allocation_prop *prop)
{
	bool on_device = !prop || prop->location.type == WG_LOCATION_DEVICE;
	enum wg_mem_kind kind = on_device ? WG_MEM_VMM : WG_MEM_HOST;

	if (r && r != WG_CU_OUT_OF_MEMORY)
		return;
	f->site.device = (int16_t)(on_device ? prop ? prop->location.id : wg_device() : -1);
	if (r)
		wg_mem_failed(&f->site, kind, bytes, r);
	else if (handle)
		wg_mem_allocated(&f->site, kind, handle, bytes);
}

/*
 * What a pool holds is asked after calls that may have changed it. For allocations on the hot path
 * not more often than every millisecond.
 */
void wg_pool_now(struct wg_frame *f, int r, uint64_t pool, bool at_once)
{
	static int (*attribute)(uint64_t, int, uint64_t *);
	static uint64_t asked_at;
	uint64_t reserved = 0;

	if (!attribute)
		attribute = wg_real_symbol("cuMemPoolGetAttribute");
	if (r || !attribute)
		return;
	if (!at_once || f->site.fn == WG_FN_cuMemAllocFromPoolAsync ||
	    f->site.fn == WG_FN_cuMemAllocFromPoolAsync_ptsz) {
		uint64_t last = __atomic_load_n(&asked_at, __ATOMIC_RELAXED);

		if (wg_ticks_to_ns(f->began - last) < 1000000 && f->began > last)
			return;
		__atomic_store_n(&asked_at, f->began, __ATOMIC_RELAXED);
	}
	if (!pool) {
		static int (*of_device)(uint64_t *, int);

		if (!of_device)
			of_device = wg_real_symbol("cuDeviceGetMemPool");
		if (!of_device || wg_device() < 0 || of_device(&pool, wg_device()))
			return;
	}
	if (!attribute(pool, WG_POOL_RESERVED_CURRENT, &reserved))
		wg_mem_allocated(site_of(f), WG_MEM_POOL, pool, reserved);
}

/* What a module costs is the drop of free memory over its loading: other processes blur it. */
void wg_measure(struct wg_frame *f)
{
	uint64_t free_bytes, total;

	f->note = wg_device() >= 0 && !wg_real_mem_info(&free_bytes, &total) ? free_bytes + 1 : 0;
}

void wg_module_loaded(struct wg_frame *f, int r, uint64_t module)
{
	uint64_t free_bytes, total, bytes = 0;

	if (r) {
		wg_did_fail(f, r, WG_MEM_MODULE, 0);
		return;
	}
	if (f->note && !wg_real_mem_info(&free_bytes, &total) && f->note - 1 > free_bytes)
		bytes = f->note - 1 - free_bytes;
	if (module)
		wg_mem_allocated(site_of(f), WG_MEM_MODULE, module, bytes);
	wg_trace_module(site_of(f), bytes);
}

/* ---- contexts --------------------------------------------------------------------------- */

#define DEVICES 64
static uint32_t contexts[DEVICES]; /* made by cuCtxCreate, not destroyed yet */

static bool primary_active(int device)
{
	static int (*state)(int, unsigned int *, int *);
	unsigned int flags;
	int active = 0;

	if (!state)
		state = wg_real_symbol("cuDevicePrimaryCtxGetState");
	return state && !state(device, &flags, &active) && active;
}

static void maybe_all_gone(int device)
{
	if (device >= 0 && device < DEVICES && !__atomic_load_n(&contexts[device], __ATOMIC_RELAXED) &&
	    !primary_active(device))
		wg_mem_device_gone(device);
}

void wg_context_changed(int r)
{
	current_changed();
	if (r)
		return;
	wg_device(); /* the next call may be the one that does not return: it shall say where */
	wg_streams_context_ready();
}

void wg_context_made(struct wg_frame *f, int r, int device)
{
	current_changed();
	if (r) {
		f->site.device = (int16_t)device;
		if (r == WG_CU_OUT_OF_MEMORY)
			wg_mem_failed(&f->site, WG_MEM_CONTEXT, 0, r);
		return;
	}
	if (device >= 0 && device < DEVICES)
		__atomic_fetch_add(&contexts[device], 1, __ATOMIC_RELAXED);
	wg_device();
	wg_streams_context_ready();
}

void wg_context_going(struct wg_frame *f, uint64_t ctx)
{
	int device = wg_device_of((void *)(uintptr_t)ctx);

	f->note = (uint64_t)device + 1; /* 0: not known */
	if (device >= 0)
		wg_streams_context_gone(device);
}

void wg_context_gone(struct wg_frame *f, int r)
{
	int device = (int)f->note - 1;

	current_changed();
	if (r || device < 0 || device >= DEVICES)
		return;
	if (__atomic_load_n(&contexts[device], __ATOMIC_RELAXED))
		__atomic_fetch_sub(&contexts[device], 1, __ATOMIC_RELAXED);
	maybe_all_gone(device);
}

void wg_primary_retained(struct wg_frame *f, int r, int device)
{
	if (r == WG_CU_OUT_OF_MEMORY) {
		f->site.device = (int16_t)device;
		wg_mem_failed(&f->site, WG_MEM_CONTEXT, 0, r);
	}
}

void wg_primary_going(struct wg_frame *f, int device)
{
	(void)f;
	if (device >= 0)
		wg_streams_context_gone(device);
}

void wg_primary_released(struct wg_frame *f, int r, int device, bool reset)
{
	(void)f;
	current_changed();
	if (r || device < 0 || device >= DEVICES)
		return;
	if (reset && !__atomic_load_n(&contexts[device], __ATOMIC_RELAXED))
		wg_mem_device_gone(device);
	else
		maybe_all_gone(device);
}

/* ---- streams ---------------------------------------------------------------------------------- */

void wg_gave(uint64_t began)
{
	int device = wg_device();

	if (device >= 0)
		wg_mem_device_used(device);
	if (wg_self.slot)
		wg_self.slot->last_launch = began;
}

void wg_queried(int r, struct wg_before b, uint64_t began)
{
	if (!r)
		wg_stream_proven(b);
	else if (r == WG_CU_NOT_READY)
		wg_stream_poll(b, began);
}

void wg_destroyed(int r, uint64_t stream)
{
	if (!r)
		wg_stream_destroyed(stream);
	else
		wg_stream_created(stream, 0);
}

void wg_captured(int r, bool first, struct wg_streamref s, bool begins)
{
	if (first && (!begins || !r))
		wg_stream_capture(s, begins);
}

void wg_event_queried(int r, struct wg_before b, uint64_t began)
{
	if (!r)
		wg_event_proven(b);
	else if (r == WG_CU_NOT_READY)
		wg_event_poll(b, began);
}

/* A synchronous copy to the host has seen the end of all before it on its stream. */
void wg_copied(struct wg_streamref s, enum wgrec_op op, uint64_t object, uint64_t bytes, bool proves)
{
	uint64_t seq = wg_stream_give(s, op, object, bytes, 0);

	if (proves && seq)
		wg_stream_synced(s, seq);
	wg_gave(s.at);
}

void wg_gave_many(const struct wg_launch_params *list, unsigned int n, bool ptsz, uint64_t began)
{
	for (unsigned int i = 0; list && i < n; i++)
		wg_stream_give_kernel((struct wg_streamref){ (uint64_t)(uintptr_t)list[i].stream, ptsz,
							     began },
				      (uint64_t)(uintptr_t)list[i].function, 0);
	wg_gave(began);
}

void wg_gave_batch(struct wg_streamref s, unsigned int n, const union wg_batch_op *list)
{
	for (unsigned int i = 0; list && i < n; i++) {
		bool wide = list[i].operation == WG_BATCH_WAIT64 ||
			    list[i].operation == WG_BATCH_WRITE64;
		uint64_t value = wide ? list[i].value.value64 : list[i].value.value32;

		switch (list[i].operation) {
		case WG_BATCH_WAIT32:
		case WG_BATCH_WAIT64:
			wg_stream_give(s, WGREC_OP_WAIT_VALUE, list[i].value.address, value,
				       (uint16_t)list[i].value.flags);
			break;
		case WG_BATCH_WRITE32:
		case WG_BATCH_WRITE64:
			wg_stream_give(s, WGREC_OP_WRITE_VALUE, list[i].value.address, value,
				       (uint16_t)list[i].value.flags);
			break;
		default:
			wg_stream_give(s, WGREC_OP_OTHER, 0, (uint64_t)list[i].operation, 0);
		}
	}
	wg_gave(s.at);
}

/* ---- sizes that stand in descriptors ------------------------------------------------------------ */

static uint64_t format_bytes(int format)
{
	switch (format) { /* CUarray_format */
	case 0x01: case 0x08: /* 8 bit integers */
		return 1;
	case 0x02: case 0x09: case 0x10: /* 16 bit integers, half */
		return 2;
	case 0x03: case 0x0a: case 0x20: /* 32 bit integers, float */
		return 4;
	default: /* compressed and planar forms: not worth a table */
		return 1;
	}
}

static uint64_t box_bytes(uint64_t width, uint64_t height, uint64_t depth, uint64_t element,
			  unsigned int levels)
{
	uint64_t sum = 0;

	for (unsigned int i = 0; i < (levels ? levels : 1) && i < 32; i++) {
		uint64_t w = width >> i ? width >> i : 1, h = height >> i, d = depth >> i;

		sum += w * (height ? h ? h : 1 : 1) * (depth ? d ? d : 1 : 1) * element;
	}
	return sum;
}

uint64_t wg_array_v1_bytes(const struct wg_array_v1 *d)
{
	return d ? box_bytes(d->width, d->height, 0, format_bytes(d->format) * d->channels, 1) : 0;
}

uint64_t wg_array_bytes(const struct wg_array *d)
{
	return d ? box_bytes(d->width, d->height, 0, format_bytes(d->format) * d->channels, 1) : 0;
}

uint64_t wg_array3d_v1_bytes(const struct wg_array3d_v1 *d)
{
	return d ? box_bytes(d->width, d->height, d->depth, format_bytes(d->format) * d->channels, 1) :
		   0;
}

uint64_t wg_array3d_bytes(const struct wg_array3d *d, unsigned int levels)
{
	return d ? box_bytes(d->width, d->height, d->depth, format_bytes(d->format) * d->channels,
			     levels) :
		   0;
}

uint64_t wg_channel_bytes(const struct wg_channel_format *d, size_t width, size_t height, size_t depth,
			  unsigned int levels)
{
	return d ? box_bytes(width, height, depth, (uint64_t)(d->x + d->y + d->z + d->w) / 8, levels) :
		   0;
}
