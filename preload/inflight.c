// SPDX-License-Identifier: Apache-2.0
/*
 * inflight.c - the parts of entering and leaving a call that are not on every call's path.
 */
#include <errno.h>

#include "inflight.h"
#include "lifecycle.h"

#define ANOTHER_STACK (64ull << 20) /* farther apart than this, frames are not on one stack */
#define WORTH_A_RECORD_NS 20000000u

__thread struct wg_thread wg_self WG_INITIAL_EXEC;

/*
 * First call of a thread, or a call inside another one. Frames at or below the new caller's stack
 * pointer are gone without having returned: longjmp, an exception or a cancellation went past them.
 */
bool wg_enter_slow(uint64_t sp)
{
	struct wg_thread *self = &wg_self;
	uint32_t depth = self->depth;

	if (wg_unlikely(!self->slot)) {
		int *errno_at = &errno, was = *errno_at;

		wg_rec_thread();
		*errno_at = was;
	}
	while (depth) {
		uint32_t top = depth < WGREC_DEPTH ? depth - 1 : WGREC_DEPTH - 1;
		uint64_t other = self->up[top].sp;

		if (other > sp || sp - other > ANOTHER_STACK)
			break;
		depth = top;
	}
	if (wg_unlikely(depth != self->depth)) {
		self->depth = depth;
		if (self->slot)
			__atomic_store_n(&self->slot->depth, depth, __ATOMIC_RELEASE);
	}
	return self->slot != NULL;
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
