// SPDX-License-Identifier: Apache-2.0
/*
 * inflight.c - the parts of entering and leaving a call that are not on every call's path.
 */
#include <errno.h>

#include "inflight.h"
#include "lifecycle.h"

#define WORTH_A_RECORD_NS 20000000u

__thread struct wg_thread wg_self WG_INITIAL_EXEC;

/*
 * Frames at or below the new caller's stack pointer are gone without having returned: longjmp, an
 * exception or a cancellation went past them.
 */
static uint32_t live_depth(const struct wg_thread *self, uint64_t sp)
{
	uint32_t depth = self->depth;

	while (depth) {
		uint32_t top = depth < WGREC_DEPTH ? depth - 1 : WGREC_DEPTH - 1;
		uint64_t other = self->up[top].sp;

		if (other > sp || sp - other > WG_FAR)
			break;
		depth = top;
	}
	return depth;
}

void wg_enter_nested(struct wg_frame *f, uint16_t flags, uint64_t stream, unsigned int nargs,
		     uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3)
{
	struct wg_thread *self = &wg_self;
	struct wgrec_thread *slot;
	uint32_t d;

	if (wg_unlikely(!self->slot)) {
		int *errno_at = &errno, was = *errno_at;

		wg_rec_thread();
		*errno_at = was;
	}
	slot = f->slot = self->slot;
	f->slotted = slot != NULL;
	self->began_for = WG_NOBODY; /* nor of what stood below before */
	d = f->index = live_depth(self, f->site.sp);
	if (d < WGREC_DEPTH)
		self->up[d] = (struct wg_up){ f->site.sp, f->site.fn, f->api, f->kind };
	self->depth = d + 1;
	if (!slot)
		return;
	if (d < WGREC_DEPTH) {
		struct wgrec_call *c = &slot->calls[d];

		if (slot->depth > d) /* what stood here is stale: not to be read half new */
			__atomic_store_n(&slot->depth, d, __ATOMIC_RELEASE);
		c->since = f->began;
		c->sp = f->site.sp;
		c->fp = f->site.fp;
		c->ra = f->site.ra;
		c->fn = f->site.fn;
		c->flags = (uint16_t)(flags | (stream == WG_NOSTREAM ? 0 : WGREC_CALLF_STREAM));
		c->device = (int16_t)(self->device < 0 ? -1 : self->device);
		c->nargs = (uint16_t)nargs;
		c->stream = f->site.stream;
		c->args[0] = a0;
		c->args[1] = a1;
		c->args[2] = a2;
		c->args[3] = a3;
	}
	__atomic_store_n(&slot->seq, slot->seq + 1, __ATOMIC_RELEASE);
	__atomic_store_n(&slot->depth, d + 1, __ATOMIC_RELEASE);
}

static void raise_to(uint64_t *word, uint64_t value)
{
	uint64_t was = __atomic_load_n(word, __ATOMIC_RELAXED);

	while (was < value && !__atomic_compare_exchange_n(word, &was, value, true, __ATOMIC_RELAXED,
							   __ATOMIC_RELAXED))
		;
}

/* Longer than 100 us. The same wait seen at runtime and driver is one: the outer is written down. */
void wg_waited(const struct wg_frame *f, uint64_t ended)
{
	struct wgrec_header *h = wg_rec;
	int *errno_at = &errno, was = *errno_at;
	struct wg_site site;

	if (h) {
		raise_to(&h->last_call_end, ended);
		if (f->kind == WGREC_CALL_SYNC || f->kind == WGREC_CALL_COPY)
			raise_to(&h->longest_sync, ended - f->began);
	}
	if (wg_ticks_to_ns(ended - f->began) < WORTH_A_RECORD_NS || !wg_on())
		return;
	if (f->index && f->index <= WGREC_DEPTH &&
	    wg_self.up[f->index - 1].api == WGREC_API_RUNTIME)
		return;
	site = f->site;
	site.device = (int16_t)wg_device();
	wg_trace_wait(&site, f->began, ended);
	*errno_at = was;
}
