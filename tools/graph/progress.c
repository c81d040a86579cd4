/* SPDX-License-Identifier: Apache-2.0 */
/*
 * progress.c - what moves between the samples.
 *
 * CPU use is no progress by itself: a thread inside a stream synchronisation burns a core, and
 * waiters for the GIL wake every 5 ms. So this file only answers the plain questions (did it
 * run? is it where it was?) and the resolvers say for which waits waking up means nothing.
 */
#include "internal.h"

/*
 * Runnable inside a call that sleeps: it has been woken, and only waits for a processor. A loaded
 * machine lets it wait there for longer than the two looks are apart.
 */
static bool woken(const struct wg_thread *t)
{
	if (t->state != 'R')
		return false;
	switch (t->wait.op) {
	case WG_OP_FUTEX:
	case WG_OP_READ:
	case WG_OP_WRITE:
	case WG_OP_POLL:
	case WG_OP_EPOLL:
	case WG_OP_ACCEPT:
	case WG_OP_CONNECT:
	case WG_OP_WAIT:
	case WG_OP_FLOCK:
	case WG_OP_FCNTL:
	case WG_OP_SLEEP:
	case WG_OP_SIGWAIT:
	case WG_OP_SYSV:
		return true;
	default:
		return false;
	}
}

enum wg_still wg_still(const struct wg_b *b, const struct wg_process *p, const struct wg_thread *t)
{
	double gap = b->f->interval_s > 0 ? b->f->interval_s : 0.25;

	(void)p;
	if (woken(t))
		return STILL_NO;
	if (t->sampled_twice) {
		if (!t->same_place)
			return STILL_NO;
		/*
		 * The same place twice is not the same wait: a lock taken ten thousand times a
		 * second is asked for at one line. Only a thread that was not switched stood still.
		 */
		if (wg_has_int(t->switches))
			return t->switches == 0 ? STILL_YES : STILL_NO;
		if (wg_has_sec(t->last_ran_s))
			return t->last_ran_s >= gap * 0.8 ? STILL_YES : STILL_NO;
		return STILL_YES;
	}
	/* For a sleeping thread the time it last ran is the first sample. */
	if (wg_has_sec(t->last_ran_s) && t->wait.op != WG_OP_RUNNING)
		return t->last_ran_s >= gap * 0.8 ? STILL_YES : STILL_UNKNOWN;
	if (wg_has_sec(t->wait.since_s))
		return t->wait.since_s >= 1.0 ? STILL_YES : STILL_UNKNOWN;
	return STILL_UNKNOWN;
}

bool wg_on_cpu(const struct wg_b *b, const struct wg_process *p, const struct wg_thread *t)
{
	(void)b;
	(void)p;
	if (wg_has_sec(t->cpu_share))
		return t->cpu_share >= 0.2;
	return t->wait.op == WG_OP_RUNNING && (t->state == 'R' || !t->state);
}

double wg_call_since(const struct wg_thread *t)
{
	return t->calls.n ? t->calls.v[0].since_s : WG_NO_SEC;
}

double wg_timeout(const struct wg_thread *t)
{
	return wg_has_sec(t->wait.timeout_s) && t->wait.timeout_s >= 0 ? t->wait.timeout_s
								       : WG_NO_SEC;
}

enum wg_loop wg_loop_kind(const struct wg_thread *t, uint64_t *lo, uint64_t *hi)
{
	int n = 0;

	*lo = UINT64_MAX;
	*hi = 0;
	for (size_t i = 0; i < sizeof(t->sample_pc) / sizeof(t->sample_pc[0]); i++) {
		uint64_t pc = t->sample_pc[i];

		if (!pc)
			break;
		n++;
		if (pc < *lo)
			*lo = pc;
		if (pc > *hi)
			*hi = pc;
	}
	if (n < 3 || *hi - *lo > 256)
		return LOOP_COMPUTES;
	if (!t->code || !t->code_len)
		return LOOP_UNKNOWN;
	return wg_code_kind(t->code, t->code_len, t->code_at, *lo, *hi);
}
