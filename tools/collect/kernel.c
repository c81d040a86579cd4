/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kernel.c - what the kernel observer knows: registers, waits and kernel stacks of all threads
 * without stopping one. BPF directly when permitted, as root needs no daemon.
 */
#include "sources.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifdef WG_HAVE_BPF

#include "observer.h"

struct wg_kernel {
	struct wg_observer *observer;
	bool init_ns; /* we see the kernel's own numbers */
};

struct gather {
	struct wg_kernel *k;
	struct wg_facts *f;
	struct wg_process *p;
	WG_VEC(struct wg_regs) regs;
};

/* Inode of the initial PID namespace, the same on every kernel (PROC_PID_INIT_INO). */
#define INIT_PIDNS 0xEFFFFFFCu

struct wg_kernel *wg_kernel_open(struct wg_facts *f)
{
	struct wg_kernel *k = wg_alloc(f->arena, sizeof(*k));
	const char *why = NULL;
	struct stat st;
	int rc = wg_observer_open(&k->observer, &why);

	if (rc) {
		wg_add_missing(f, NULL, "the kernel observer (BPF)", why ? why : strerror(-rc),
			       "run as root, or start waitgraphd");
		return NULL;
	}
	k->init_ns = !stat("/proc/self/ns/pid", &st) && st.st_ino == INIT_PIDNS;
	return k;
}

void wg_kernel_close(struct wg_kernel *k)
{
	if (k)
		wg_observer_close(k->observer);
}

static int each(const struct wg_obs_task *o, void *arg)
{
	struct gather *g = arg;
	int32_t tid = g->k->init_ns ? o->tid : o->ns_tid;
	struct wg_thread *t = wg_find_thread(g->p, tid);
	struct wg_regs *r;

	if (!t)
		return 0; /* born since the list was made: the next dump has it */
	r = wg_push(g->f->arena, &g->regs);
	r->tid = tid;
	r->full = true;
	/* A thread on a CPU has moved on: these are of its last entry into the kernel. */
	r->approximate = o->on_cpu || (o->state & 0xffff) == 0;
	r->ip = o->ip;
	r->sp = o->sp;
	r->bp = o->bp;
	r->bx = o->bx;
	r->r12 = o->r12;
	r->r13 = o->r13;
	r->r14 = o->r14;
	r->r15 = o->r15;
	r->fsbase = o->fsbase;
	if (!t->fsbase)
		t->fsbase = o->fsbase;
	if (!wg_has_sec(t->last_ran_s) && o->now > o->exec_start)
		t->last_ran_s = (double)(o->now - o->exec_start) / 1e9;
	return 0;
}

int wg_kernel_collect(struct wg_kernel *k, struct wg_facts *f, struct wg_process *p,
		      struct wg_regs **regs, size_t *nregs)
{
	struct gather g = { .k = k, .f = f, .p = p };
	int rc = wg_observer_tasks(k->observer, p->pid, each, &g);

	*regs = g.regs.v;
	*nregs = g.regs.n;
	if (rc)
		wg_add_missing(f, p, "registers by the kernel observer", strerror(-rc), NULL);
	else
		wg_add_source(f, p, "bpf");
	return 0;
}

#else /* built without clang, bpftool or libbpf */

struct wg_kernel *wg_kernel_open(struct wg_facts *f)
{
	wg_add_missing(f, NULL, "the kernel observer (BPF)", "this waitgraph was built without it",
		       NULL);
	return NULL;
}

void wg_kernel_close(struct wg_kernel *k)
{
	(void)k;
}

int wg_kernel_collect(struct wg_kernel *k, struct wg_facts *f, struct wg_process *p,
		      struct wg_regs **regs, size_t *nregs)
{
	(void)k;
	(void)f;
	(void)p;
	*regs = NULL;
	*nregs = 0;
	return 0;
}

#endif
