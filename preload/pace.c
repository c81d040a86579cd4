// SPDX-License-Identifier: Apache-2.0
/*
 * pace.c - when a position write is worth its price.
 *
 * A write costs its thread about a microsecond (H200), a fifth of what PyTorch takes for a whole
 * operation, and the GPU about as much between two kernels. What it buys is that a kernel which
 * hangs is told from those before and behind it. So the price is fixed and exactness is what may
 * vary, not the other way round:
 *
 * 1. By the clock. A stream is written to with its first item when REST has passed since its last
 *    write: a launcher slower than that is exact at every launch, a fast one pays a 500th of its
 *    time. REST is 500 us, or 500 times what a write is seen to cost where that is dearer (a
 *    virtual GPU, WSL). A thread that feeds many streams pays once, not once for each.
 * 2. By the stream's own time. Where the GPU is behind its host, the host waits anyway and the
 *    GPU's time is what counts: there is a write for every 500 us of the GPU's work, so every few
 *    launches where kernels take long. How long they take is what was seen between two writes
 *    at both of which the GPU was behind.
 * 3. For nothing. Some writes are given away: 256 when the program starts, sixteen a second from
 *    then on. A program that launches ten kernels and hangs is exact, whatever the clock says.
 * 4. Where what comes next may hold the stream up, or a thread sets out to wait: at most a 200th
 *    of a thread's time, with 100 in hand (collectives: a 50th; NCCL takes ten times as long to
 *    give one). A kernel that was never launched before is always bracketed: loading it costs more.
 *
 * Far behind its host, a stream gets at most one write for 64 items: each takes a place in the
 * hardware's queue, which holds about 1,020, and a program may count on these (with a write every
 * 8 launches only 907 launches fitted on an H200).
 *
 * What lies between two writes is bounded by REST: about 170 launches of 3 us, all of them in the
 * stream's ring of items, from which readers list the candidates.
 */
#include "inflight.h"
#include "queues.h"

#define DEAR 500u	/* a write may cost this part of the time ... */
#define REST_NS 500000u /* ... which at 1 us is this */
#define REST_MOST 100u	/* times that at most */
#define IN_HAND 50u	/* rests ahead that a thread may go for what is worth it */
#define GIFT_START 256
#define GIFT_A_SECOND 16
#define FEW 8u
#define FAR_BEHIND 128u
#define FAR_APART 64u

static _Atomic int gifts;
static _Atomic uint64_t cost; /* of a write, ticks, times 8 */
static uint64_t least_rest;
static __thread uint64_t paid_until WG_TLS;

static bool may_hold(enum wgrec_op op)
{
	return op == WGREC_OP_KERNEL || op == WGREC_OP_COPY || op == WGREC_OP_GRAPH ||
	       op == WGREC_OP_SET || op == WGREC_OP_OTHER;
}

static bool take_gift(void)
{
	int n = atomic_load_explicit(&gifts, memory_order_relaxed);

	while (n > 0)
		if (atomic_compare_exchange_weak(&gifts, &n, n - 1))
			return true;
	return false;
}

/* This thread pays now for `price` ticks of not writing, if it owes no more than `owed` already. */
static bool pay(uint64_t now, uint64_t price, uint64_t owed)
{
	int64_t ahead = (int64_t)(paid_until - now);

	if (ahead > (int64_t)owed)
		return false;
	paid_until = (ahead > 0 ? paid_until : now) + price;
	return true;
}

bool wg_pace_afford(uint64_t now, enum wg_worth worth)
{
	uint64_t rest = atomic_load_explicit(&wg_q.rest_ticks, memory_order_relaxed);

	return pay(now, worth == WG_WORTH_COLLECTIVE ? rest / 8 : rest / 2, IN_HAND * rest);
}

bool wg_pace_due(int32_t i, uint64_t seq, enum wgrec_op op, uint64_t now)
{
	const struct wgrec_stream *st = wg_stream_at(i);
	uint64_t rest = atomic_load_explicit(&wg_q.rest_ticks, memory_order_relaxed);
	struct wg_slot *slot = &wg_slots[i];
	uint64_t next = atomic_load_explicit(&slot->next_seq, memory_order_relaxed);
	/* Signed: `now` is when this call began, another thread may have written since. */
	int64_t rested = (int64_t)(now - atomic_load_explicit(&slot->mark_at, memory_order_relaxed));
	uint64_t known = wg_not_covered_from(st);
	bool far;

	if (seq <= known)
		return false;
	far = seq - wg_stream_done((uint32_t)i) > FAR_BEHIND;
	if (far && seq - known < FAR_APART)
		return false;
	if (seq >= next) {
		if (may_hold(op) && take_gift())
			return true;
		if (seq >= atomic_load_explicit(&slot->paced_seq, memory_order_relaxed))
			return true; /* by the stream's own time */
		if (atomic_load_explicit(&gifts, memory_order_relaxed) <= 0)
			atomic_store_explicit(
				&slot->next_seq,
				atomic_load_explicit(&slot->paced_seq, memory_order_relaxed),
				memory_order_relaxed);
	}
	return rested >= (int64_t)rest && pay(now, rest, 4 * rest);
}

static void price(uint64_t took)
{
	uint64_t was = atomic_load_explicit(&cost, memory_order_relaxed), rest;
	uint64_t most = was / 2 > least_rest / DEAR * 4 ? was / 2 : least_rest / DEAR * 4;

	/* One that was interrupted says little: only what stays dear becomes the price. */
	if (took > most)
		took = most;
	was += took - was / 8;
	atomic_store_explicit(&cost, was, memory_order_relaxed);
	rest = was / 8 * DEAR;
	if (rest < least_rest)
		rest = least_rest;
	if (rest > REST_MOST * least_rest)
		rest = REST_MOST * least_rest;
	if (rest != atomic_load_explicit(&wg_q.rest_ticks, memory_order_relaxed))
		atomic_store_explicit(&wg_q.rest_ticks, rest, memory_order_relaxed);
}

void wg_pace_wrote(int32_t i, uint64_t seq, uint64_t marked, uint64_t done, uint64_t began,
		   uint64_t ended)
{
	struct wg_slot *slot = &wg_slots[i];
	uint64_t looked = atomic_load_explicit(&slot->looked_at, memory_order_relaxed), came, an_item;
	uint64_t next = UINT64_MAX, n;

	atomic_store_explicit(&slot->mark_at, ended, memory_order_relaxed);
	if (done >= marked) { /* it had come to the last write: the host is what all waits for */
		price(ended - began);
		atomic_store_explicit(&slot->looked_at, 0, memory_order_relaxed);
	} else if (!looked || ended <= looked) {
		atomic_store_explicit(&slot->looked_at, ended, memory_order_relaxed);
		atomic_store_explicit(&slot->looked_done, done, memory_order_relaxed);
	} else {
		came = done - atomic_load_explicit(&slot->looked_done, memory_order_relaxed);
		if ((int64_t)came < 0)
			came = 0;
		an_item = (ended - looked) / (came ? came : 1) + 1;
		n = least_rest / an_item;
		next = seq + (n < FEW ? FEW : n);
		if (came) {
			atomic_store_explicit(&slot->looked_at, ended, memory_order_relaxed);
			atomic_store_explicit(&slot->looked_done, done, memory_order_relaxed);
		}
	}
	atomic_store_explicit(&slot->paced_seq, next, memory_order_relaxed);
	if (atomic_load_explicit(&gifts, memory_order_relaxed) > 0)
		next = seq + 1;
	atomic_store_explicit(&slot->next_seq, next, memory_order_relaxed);
}

void wg_pace_forget(int32_t i)
{
	atomic_store_explicit(&wg_slots[i].mark_at, 0, memory_order_relaxed);
	atomic_store_explicit(&wg_slots[i].next_seq, 0, memory_order_relaxed);
	atomic_store_explicit(&wg_slots[i].paced_seq, UINT64_MAX, memory_order_relaxed);
	atomic_store_explicit(&wg_slots[i].looked_at, 0, memory_order_relaxed);
}

void wg_pace_tick(void)
{
	int n = atomic_load_explicit(&gifts, memory_order_relaxed);

	if (n < GIFT_START)
		atomic_fetch_add(&gifts, GIFT_A_SECOND);
}

void wg_pace_start(uint64_t tick_ns_20) /* what 2^20 ticks are */
{
	least_rest = tick_ns_20 ? (uint64_t)REST_NS * (1u << 20) / tick_ns_20 : REST_NS;
	atomic_store(&wg_q.rest_ticks, least_rest);
	atomic_store(&cost, least_rest / DEAR * 8);
	atomic_store(&gifts, GIFT_START);
	paid_until = 0;
}
