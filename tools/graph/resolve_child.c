/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_child.c - wait4 and its kin: from the parent to the child that has not ended.
 *
 * A process ends by its main thread, so that is the one to follow; a child of which only
 * its CPU time is known still says whether it works.
 */
#include "internal.h"

static void wait_child(struct wg_ctx *c, int32_t proc, bool only)
{
	struct wg_b *b = c->b;
	struct wg_iedge *e;

	const struct wg_pinfo *pi = &b->pi[proc];
	uint32_t to = wg_process_actor(b, proc);

	if (pi->main_thr >= 0 && pi->p->threads.v[pi->main_thr].tid == pi->p->pid &&
	    pi->p->threads.v[pi->main_thr].state != 'Z' && !pi->is_self)
		to = pi->tbase + (uint32_t)pi->main_thr;
	e = wg_edge(b, c->node, to, WG_EDGE_CHILD_OF, only,
		    c->t->wait.op == WG_OP_SIGWAIT
			    ? "the end of a child would wake it by its signal"
			    : "argument of the wait");
	e->since = c->t->wait.since_s;
	e->says = "for the end of";
}

/* The child that it waits for is this reader: a shell whose user asks about it. */
static bool waits_for_us(struct wg_ctx *c)
{
	const struct wg_facts *f = c->b->f;
	const struct wg_wait *w = &c->t->wait;

	if (!f->self_ppid || f->self_ppid != c->p->pid || c->p->stub ||
	    (wg_has_int(w->child) && w->child > 0 && w->child != f->self_pid))
		return false;
	wg_set_end(c->b, c->node, CL_PROGRESSING, FATE_MOVING, WG_CERTAIN,
		   "it waits for the answer to this question");
	return true;
}

void wg_resolve_wait(struct wg_ctx *c)
{
	const struct wg_wait *w = &c->t->wait;
	const struct wg_process *p = c->p;
	struct wg_b *b = c->b;
	size_t live = 0;
	int32_t i = -1;

	if (!b->n.v[c->node].polls_cpu && wg_still(b, p, c->t) == STILL_NO) {
		/* A loop that starts a small program again and again may wait for something. */
		bool little = wg_has_sec(p->children_cpu_share) && p->children_cpu_share < 0.1;

		wg_set_end(b, c->node, CL_PROGRESSING, FATE_MOVING,
			   little ? WG_LIKELY : WG_CERTAIN,
			   little ? "small programs that it starts come and go; whether that gets "
				    "it anywhere is not seen"
				  : "children ended between the two looks");
		return;
	}
	if (wg_has_int(w->child) && w->child > 0) {
		i = wg_pid_proc(b, b->pi[c->proc].host, (int32_t)w->child);
		b->n.v[c->node].wobject = wg_say(b, "pid %lld", (long long)w->child);
		if (i >= 0 && !b->pi[i].dead) {
			wait_child(c, i, true);
			return;
		}
		if (waits_for_us(c))
			return;
		/* A zombie whose parent waits for it is collected at once, unless it is traced. */
		wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   wg_say(b, "it waits for child %lld, which could not be looked at",
				  (long long)w->child));
		b->n.v[c->node].end.missing =
			wg_say(b, "the state of process %lld", (long long)w->child);
		return;
	}
	if (w->syscall_name &&
	    (!strcmp(w->syscall_name, "vfork") || !strncmp(w->syscall_name, "clone", 5))) {
		/* Until its youngest child runs exec or ends, the parent does not come back. */
		const struct wg_process *young = NULL;

		for (size_t k = 0; k < p->children.n; k++) {
			int32_t j = wg_pid_proc(b, b->pi[c->proc].host, p->children.v[k]);
			const struct wg_process *o = j < 0 ? NULL : b->pi[j].p;

			if (!o || b->pi[j].dead ||
			    (young &&
			     (o->start_ticks < young->start_ticks ||
			      (o->start_ticks == young->start_ticks && o->pid < young->pid))))
				continue;
			young = o;
			i = j;
		}
		if (young) {
			b->n.v[c->node].wobject = wg_say(b, "pid %d", young->pid);
			wait_child(c, i, true);
			return;
		}
	}
	b->n.v[c->node].wobject = "any child";
	for (size_t k = 0; k < p->children.n; k++) {
		i = wg_pid_proc(b, b->pi[c->proc].host, p->children.v[k]);
		if (i >= 0 && !b->pi[i].dead)
			live++;
	}
	for (size_t k = 0; k < p->children.n; k++) {
		i = wg_pid_proc(b, b->pi[c->proc].host, p->children.v[k]);
		if (i >= 0 && !b->pi[i].dead)
			wait_child(c, i, live == 1);
	}
	if (live || waits_for_us(c))
		return;
	if (wg_has_sec(p->children_cpu_share) && p->children_cpu_share >= 0.2) {
		wg_set_end(b, c->node, CL_BUSY_CPU, FATE_MOVING, WG_LIKELY,
			   "its children use the CPU");
		return;
	}
	if (b->n.v[c->node].polls_cpu) {
		/* It asks without waiting, and has none left: children come and go. */
		wg_set_end(b, c->node, CL_PROGRESSING, FATE_MOVING, WG_LIKELY,
			   "its children have ended");
		return;
	}
	wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
		   "it waits for children that could not be looked at");
	b->n.v[c->node].end.missing = "the child processes";
}

bool wg_resolve_sigwait(struct wg_ctx *c)
{
	const struct wg_wait *w = &c->t->wait;
	struct wg_b *b = c->b;

	if (!wg_has_int(w->child) || wg_has_sec(wg_timeout(c->t)) || b->n.v[c->node].bystander)
		return false;
	for (size_t k = 0; k < c->p->children.n; k++) {
		int32_t i = wg_pid_proc(b, b->pi[c->proc].host, c->p->children.v[k]);

		if (i < 0 || b->pi[i].dead || b->pi[i].is_self)
			continue;
		wg_resolve_wait(c);
		b->n.v[c->node].wkind = "child";
		b->n.v[c->node].wdoes = "waits for a child's signal";
		return true;
	}
	if (!waits_for_us(c))
		return false;
	b->n.v[c->node].wkind = "child";
	b->n.v[c->node].wdoes = "waits for a child's signal";
	return true;
}
