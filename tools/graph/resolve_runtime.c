/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_runtime.c - runtimes that schedule by themselves: Java's virtual machine and Go's.
 *
 * What the kernel shows of them is the runtime's own rest: a Java thread that wants a monitor
 * sleeps on a condition of the machine's and looks again by a timer, a Go program whose goroutines
 * are all blocked sits in epoll_wait. Who holds the monitor, and what the goroutines wait for,
 * stands in the runtime's memory, which is not read. So nothing is concluded from such a wait but
 * who else of the process works, or serves.
 */
#include "internal.h"

static bool java_waits(struct wg_ctx *c, const char **what, const char **missing)
{
	const struct wg_thread *t = c->t;

	if (wg_has_symbol_prefix(t, "ObjectMonitor::enter") ||
	    wg_has_symbol_prefix(t, "ObjectMonitor::EnterI") ||
	    wg_has_symbol_prefix(t, "ObjectMonitor::ReenterI")) {
		*what = "waits for the monitor of a Java object";
		*missing = "which Java thread holds the monitor (`jstack` tells)";
		return true;
	}
	if (wg_has_symbol_prefix(t, "ObjectMonitor::wait") ||
	    wg_has_symbol_prefix(t, "Parker::park")) {
		*what = "waits to be notified by another Java thread";
		*missing = "what the Java thread waits for (`jstack` tells)";
		return true;
	}
	return false;
}

/* An operating-system thread of Go's scheduler with nothing to run. */
static bool go_rests(const struct wg_thread *t)
{
	return wg_has_symbol_prefix(t, "runtime.") &&
	       (wg_has_symbol_prefix(t, "runtime.findRunnable") ||
		wg_has_symbol_prefix(t, "runtime.findrunnable") ||
		wg_has_symbol_prefix(t, "runtime.stopm") ||
		wg_has_symbol_prefix(t, "runtime.stoplockedm"));
}

static bool listens(const struct wg_process *p)
{
	for (size_t i = 0; i < p->files.n; i++)
		if (p->files.v[i].sock_state == WG_SOCK_LISTEN)
			return true;
	return false;
}

bool wg_resolve_runtime(struct wg_ctx *c)
{
	const struct wg_thread *t = c->t;
	const char *what = NULL, *missing = NULL;
	struct wg_b *b = c->b;
	struct wg_iedge *e;
	double T = wg_timeout(t);

	if (t->wait.op != WG_OP_FUTEX && t->wait.op != WG_OP_EPOLL)
		return false;
	if (wg_has_symbol_prefix(t, "JavaThread::sleep")) {
		b->n.v[c->node].wdoes = "sleeps in Java";
		wg_set_end(b, c->node, CL_IDLE, FATE_IDLE, WG_CERTAIN, "a timer wakes it");
		b->n.v[c->node].end.timer_s = T;
		return true;
	}
	if (!java_waits(c, &what, &missing)) {
		if (!go_rests(t) || listens(c->p))
			return false;
		what = "has no goroutine to run";
		missing = "what its goroutines wait for (SIGQUIT makes the program print them, and "
			  "ends it)";
	}
	b->n.v[c->node].wdoes = what;
	b->n.v[c->node].ownerless = true;
	wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
		   "its runtime keeps to itself who should wake it");
	b->n.v[c->node].end.missing = missing;
	if (b->pi[c->proc].nown < 2)
		return true;
	e = wg_edge(b, c->node, wg_wakers(b, c->proc), WG_EDGE_WOKEN_BY, false,
		    "another thread of the process could wake it");
	e->guess = e->hidden = true;
	return true;
}
