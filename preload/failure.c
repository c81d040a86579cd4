/* SPDX-License-Identifier: Apache-2.0 */
/*
 * failure.c - a device allocation that failed, caught at the scene.
 *
 * The exception that follows unwinds the evidence, so the failing thread's own frames,
 * native and Python, are taken here: at most FL_CAPTURES_S times a second; beyond that the
 * numbers are kept without frames. Only CUDA_ERROR_OUT_OF_MEMORY is one of these.
 *
 * One request that reaches the driver in pieces (PyTorch's expandable segments create one
 * physical handle a segment) is reported as one. The rule: handles created by the same
 * thread from the same call stack, on the same device, of the same size, directly one after
 * the other, and NOT YET MAPPED when the next creation fails, belong to the request that
 * fails. Nobody can use memory that is not mapped, so nothing but a larger request explains
 * them; a mapping, a launch or any other memory call in between ends the run. What the run
 * already holds counts as free for the request: asked - free stays the true shortfall.
 */
#include <string.h>
#include <sys/prctl.h>

#include "accounting.h"
#include "pyframes.h"

#define FL_OPEN 64	 /* failures watched for what becomes of them */
#define FL_CAPTURES_S 4
#define FL_OOM 2	 /* CUDA_ERROR_OUT_OF_MEMORY, cudaErrorMemoryAllocation */

struct fl_open {
	uint64_t number; /* 0 empty */
	uint64_t at, asked, free;
	uint32_t tid;
	int16_t device;
	uint16_t fn;
	uint8_t kind;
	uint8_t recovered;
	uint32_t pieces;
	uint64_t repeats;
};

static struct {
	struct wg_lock lock;
	uint64_t count;
	uint64_t captured_at; /* token bucket */
	uint32_t tokens;
	struct fl_open open[FL_OPEN];
	_Atomic uint64_t least_asked[WGTR_DEVICES]; /* of those open; 0 none */
	uint64_t frames[WGTR_FRAMES];
	struct wg_pyline py[WGTR_PYFRAMES];
	uint8_t payload[WGTR_DEF_MAX]; /* too large for somebody's stack */
} fl;

_Static_assert(sizeof(((struct wgrec_failure *)0)->py[0]) == sizeof(struct wg_pyline), "py");
_Static_assert(sizeof(((struct wgrec_failure *)0)->py) == sizeof(fl.py), "py");
_Static_assert(sizeof(((struct wgrec_failure *)0)->frames) == sizeof(fl.frames), "frames");

static struct wgrec_failure *ring_entry(uint64_t number)
{
	uint64_t capacity = 0;
	struct wgrec_failure *ring = wg_rec_section(WGREC_FAILURES, &capacity);

	return ring && capacity ? &ring[(number - 1) % capacity] : NULL;
}

static void ring_used(uint64_t number)
{
	struct wgrec_header *h = wg_rec;

	for (uint32_t i = 0; h && i < h->nsections && i < WGREC_MAX_SECTIONS; i++) {
		struct wgrec_section *s = &h->sections[i];

		if (s->kind == WGREC_FAILURES && s->used < number)
			s->used = number < s->capacity ? number : s->capacity;
	}
}

static uint64_t bit_of(int device)
{
	return 1ull << (device >= 0 && device < 63 ? device : 63);
}

/* What became of it, for both readers. */
static void publish(const struct fl_open *f)
{
	struct wgrec_failure *r = ring_entry(f->number);
	uint8_t buf[96];
	struct wg_out o = { buf, buf + sizeof(buf) };

	if (r && r->seq == f->number) {
		r->recovered = f->recovered;
		r->repeats = f->repeats;
	}
	if (f->number > WGTR_FAILURES || (f->repeats & (f->repeats - 1)))
		return; /* repeats are told at every doubling */
	wg_out_varint(&o, f->number);
	wg_out_varint(&o, wg_ticks());
	wg_out_varint(&o, f->recovered);
	wg_out_varint(&o, f->asked);
	wg_out_varint(&o, f->free + 1);
	wg_out_varint(&o, f->pieces);
	wg_out_varint(&o, f->repeats);
	wg_trace_def(WGTR_D_OUTCOME, buf, (size_t)(o.p - buf));
}

static void recount(int device) /* fl.lock held */
{
	uint64_t least = 0;

	if (device < 0 || device >= WGTR_DEVICES)
		return;
	for (int i = 0; i < FL_OPEN; i++) {
		const struct fl_open *f = &fl.open[i];

		if (f->number && !f->recovered && f->device == device &&
		    (!least || f->asked < least))
			least = f->asked;
	}
	atomic_store_explicit(&fl.least_asked[device], least, memory_order_relaxed);
}

/* ---- the run of pieces ----------------------------------------------------------- */

void wg_failure_other(void)
{
	wg_mt.run.pieces = 0;
}

/* Before the allocation gets into the table. */
void wg_failure_allocated(int device, enum wg_mem_kind kind, uint64_t bytes, uint32_t site)
{
	struct wg_run *r = &wg_mt.run;
	uint64_t least, total = bytes;

	if (kind == WG_MEM_VMM) {
		if (!r->pieces || r->size != bytes || r->device != device || r->site != site) {
			r->size = bytes;
			r->device = (int16_t)device;
			r->site = site;
			r->pieces = 0;
		}
		r->pieces++;
		total = r->size * r->pieces;
	} else {
		r->pieces = 0;
	}
	if (device < 0 || device >= WGTR_DEVICES || kind == WG_MEM_VMM_MAP || kind == WG_MEM_VA ||
	    kind == WG_MEM_HOST || kind == WG_MEM_HOST_REG || kind == WG_MEM_IPC ||
	    kind == WG_MEM_POOL)
		return;
	least = atomic_load_explicit(&fl.least_asked[device], memory_order_relaxed);
	if (wg_likely(!least || total < least) || !wg_lock_take(&fl.lock))
		return;
	for (int i = 0; i < FL_OPEN; i++) {
		struct fl_open *f = &fl.open[i];

		if (!f->number || f->recovered || f->device != device || f->asked > total)
			continue;
		f->recovered = 2;
		publish(f);
	}
	recount(device);
	wg_lock_drop(&fl.lock);
}

/* ---- recovery ---------------------------------------------------------------------- */

static __attribute__((noinline)) void used_after_failure(int device)
{
	uint64_t left = 0;

	if (!wg_lock_take(&fl.lock))
		return;
	for (int i = 0; i < FL_OPEN; i++) {
		struct fl_open *f = &fl.open[i];

		if (!f->number || f->recovered || f->tid != wg_tid())
			continue;
		if (f->device >= 0 && device >= 0 && f->device != device) {
			left |= bit_of(f->device);
			continue;
		}
		f->recovered = 1;
		publish(f);
		recount(f->device);
	}
	wg_mt.failed = left;
	wg_lock_drop(&fl.lock);
}

void wg_mem_device_used(int device)
{
	wg_mt.run.pieces = 0;
	if (wg_unlikely(wg_mt.failed))
		used_after_failure(device);
}

/* ---- the scene ------------------------------------------------------------------------ */

static bool may_capture(uint64_t now)
{
	uint64_t since = wg_ticks_to_ns(now - fl.captured_at) / (1000000000u / FL_CAPTURES_S);

	if (!fl.captured_at || since) {
		fl.tokens = since >= FL_CAPTURES_S || !fl.captured_at ? FL_CAPTURES_S :
			    fl.tokens + (uint32_t)since > FL_CAPTURES_S ? FL_CAPTURES_S :
			    fl.tokens + (uint32_t)since;
		fl.captured_at = now;
	}
	if (!fl.tokens)
		return false;
	fl.tokens--;
	return true;
}

static void write_def(const struct fl_open *f, uint64_t total, int error, const char *name,
		      int nframes, int npy)
{
	struct wg_out o = { fl.payload, fl.payload + sizeof(fl.payload) };
	struct wgtr_device *d = wg_trace_device(f->device);

	wg_out_varint(&o, f->number);
	wg_out_varint(&o, f->at);
	wg_out_varint(&o, f->tid);
	wg_out_varint(&o, (uint64_t)(f->device + 1));
	wg_out_varint(&o, f->fn);
	wg_out_varint(&o, f->kind);
	wg_out_varint(&o, (uint64_t)error);
	wg_out_varint(&o, f->asked);
	wg_out_varint(&o, f->free + 1); /* unknown is all ones: 0 */
	wg_out_varint(&o, total + 1);
	wg_out_varint(&o, f->pieces);
	wg_out_varint(&o, f->device >= 0 ? wg_mem_own(f->device) : 0);
	wg_out_varint(&o, d ? d->va_reserved : 0);
	wg_out_varint(&o, wg_trace_header->host_live);
	wg_out_bytes(&o, name, strnlen(name, 16));
	wg_out_varint(&o, (uint64_t)nframes);
	for (int i = 0; i < nframes; i++)
		wg_out_varint(&o, fl.frames[i]);
	wg_out_varint(&o, (uint64_t)npy);
	for (int i = 0; i < npy; i++) {
		wg_out_varint(&o, fl.py[i].line);
		wg_out_bytes(&o, fl.py[i].function, strnlen(fl.py[i].function, 60));
		wg_out_bytes(&o, fl.py[i].file, strnlen(fl.py[i].file, 128));
	}
	wg_trace_def(WGTR_D_FAILURE, fl.payload, (size_t)(o.p - fl.payload));
}

static void write_ring(const struct fl_open *f, uint64_t total, int error, const char *name,
		       int nframes, int npy)
{
	struct wgrec_failure *r = ring_entry(f->number);

	if (!r)
		return;
	__atomic_store_n(&r->seq, 0, __ATOMIC_RELEASE);
	r->at = f->at;
	r->asked = f->asked;
	r->free = f->free;
	r->total = total;
	r->tid = f->tid;
	r->device = f->device;
	r->fn = f->fn;
	r->error = error;
	r->recovered = 0;
	memcpy(r->thread_name, name, 16);
	r->nframes = (uint32_t)nframes;
	r->npyframes = (uint32_t)npy;
	memcpy(r->frames, fl.frames, (size_t)nframes * sizeof(r->frames[0]));
	memcpy(r->py, fl.py, (size_t)npy * sizeof(r->py[0]));
	r->kind = f->kind;
	r->pieces = f->pieces;
	r->repeats = 0;
	__atomic_store_n(&r->seq, f->number, __ATOMIC_RELEASE);
	ring_used(f->number);
}

/* The same call of the same thread once more, and nothing else has changed. */
static struct fl_open *same_again(const struct fl_open *now)
{
	for (int i = 0; i < FL_OPEN; i++) {
		struct fl_open *f = &fl.open[i];

		if (f->number && !f->recovered && f->tid == now->tid && f->fn == now->fn &&
		    f->device == now->device && f->asked == now->asked && f->free == now->free &&
		    wg_ticks_to_ns(now->at - f->at) < 10000000000u)
			return f;
	}
	return NULL;
}

void wg_mem_failed(const struct wg_site *s, enum wg_mem_kind kind, uint64_t asked, int error)
{
	struct fl_open f = { .asked = asked, .free = WGTR_UNKNOWN, .kind = (uint8_t)kind }, *again;
	uint64_t total = WGTR_UNKNOWN, values[4];
	int nframes = 0, npy = 0, oldest = 0;
	bool on_card = kind != WG_MEM_HOST && kind != WG_MEM_HOST_REG && kind != WG_MEM_VA &&
		       kind != WG_MEM_VMM_MAP;
	struct wgtr_device *d;
	char name[16] = "";
	uint32_t site;

	if (error != FL_OOM || !wg_trace_header)
		return;
	f.device = (int16_t)wg_mem_device_of(s);
	f.at = wg_ticks();
	f.tid = wg_tid();
	f.fn = s->fn;
	/* Address space and host memory run out by themselves: what the card has left says nothing. */
	if (!on_card || f.device < 0 || !wg_mem_sample(f.device, &f.free, &total))
		f.free = total = WGTR_UNKNOWN;
	site = wg_site_of(s, kind, f.device);
	if (kind == WG_MEM_VMM && wg_mt.run.pieces && wg_mt.run.size == asked &&
	    wg_mt.run.device == f.device && wg_mt.run.site == site) {
		uint64_t held = wg_mt.run.size * wg_mt.run.pieces;

		f.pieces = wg_mt.run.pieces + 1;
		f.asked += held;
		if (f.free != WGTR_UNKNOWN)
			f.free += held;
	}
	wg_failure_other();
	d = wg_trace_device(f.device);
	if (d) {
		__atomic_fetch_add(&d->failures, 1, __ATOMIC_RELAXED);
		if (wg_mem_rec_device(f.device))
			wg_mem_rec_device(f.device)->failures = d->failures;
	}
	wg_trace_name(s->fn);
	if (!wg_lock_take(&fl.lock)) {
		__atomic_fetch_add(&wg_trace_header->lost, 1, __ATOMIC_RELAXED);
		return;
	}
	again = same_again(&f);
	if (again) {
		again->repeats++;
		f.number = again->number;
		publish(again);
		goto out;
	}
	f.number = ++fl.count;
	if (may_capture(f.at)) {
		nframes = wg_stack_take(s, fl.frames, WGTR_FRAMES);
		npy = wg_python_take(fl.py, WGTR_PYFRAMES);
	}
	prctl(PR_GET_NAME, name, 0, 0, 0);
	name[15] = 0;
	write_ring(&f, total, error, name, nframes, npy);
	if (f.number <= WGTR_FAILURES)
		write_def(&f, total, error, name, nframes, npy);
	for (int i = 1; i < FL_OPEN; i++) /* an empty one, else one made good, else the oldest */
		if (!fl.open[oldest].number)
			break;
		else if (!fl.open[i].number || fl.open[i].recovered > fl.open[oldest].recovered ||
			 (!fl.open[oldest].recovered && fl.open[i].at < fl.open[oldest].at))
			oldest = i;
	fl.open[oldest] = f;
	recount(f.device);
	wg_mt.failed |= bit_of(f.device);
out:
	wg_lock_drop(&fl.lock);
	values[0] = f.number <= WGTR_FAILURES ? f.number : 0;
	values[1] = (uint64_t)(f.device + 1);
	values[2] = f.asked;
	values[3] = kind;
	wg_trace_event(WGTR_E_FAILURE, values, 4);
	if (wg_objects_stale())
		wg_objects_scan();
}

void wg_failure_fork_child(void)
{
	memset(&fl, 0, sizeof(fl));
}
