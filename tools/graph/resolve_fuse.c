/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_fuse.c - the process behind a FUSE mount that does not answer.
 *
 * A daemon that sits in a read of /dev/fuse has forgotten the request: it is the end of the
 * chain. One whose serving thread is somewhere else is followed there, as far as that thread is
 * known: the only one, or the only one that is not back in /dev/fuse and not at rest.
 */
#include "internal.h"

static bool in_fuse_device(const struct wg_ctx *c, int32_t proc, const struct wg_thread *t)
{
	const struct wg_file *x = wg_fd(c->b, proc, t->wait.fd);

	if (t->wait.op != WG_OP_READ && t->wait.op != WG_OP_SPLICE)
		return false;
	return (x && x->path && !strcmp(x->path, "/dev/fuse")) ||
	       wg_kernel_has(t, "fuse_dev_do_read") || wg_kernel_has(t, "fuse_dev_splice_read");
}

/* Waits that are for something particular, not a worker's or a main thread's rest. */
static bool busy_elsewhere(const struct wg_ctx *c, int32_t proc, const struct wg_thread *t,
			   bool alone)
{
	const struct wg_futex *fx = &t->wait.futex;

	if (t->ours || wg_is_bystander(c->b, proc, t))
		return false;
	switch (t->wait.op) {
	case WG_OP_RUNNING: /* the only one is at work whatever share of a processor it gets */
		return alone || wg_on_cpu(c->b, c->b->pi[proc].p, t);
	case WG_OP_FUTEX: /* a lock's word; the others rest in semaphores and conditions */
		return alone || fx->val == 2 || (fx->op & 0x7f) == 6 || (fx->op & 0x7f) == 13;
	case WG_OP_READ:
	case WG_OP_WRITE:
	case WG_OP_SYNC:
	case WG_OP_FSMETA:
	case WG_OP_OPEN:
	case WG_OP_FAULT:
	case WG_OP_CONNECT:
	case WG_OP_FLOCK:
	case WG_OP_FCNTL:
		return true;
	case WG_OP_WAIT:
	case WG_OP_SYSV:
		return alone;
	default:
		return false;
	}
}

/* The daemon's thread that has the request, as a node. WG_NONE: none can be named. */
uint32_t wg_fuse_server(struct wg_ctx *c, int32_t proc, bool *sure)
{
	const struct wg_process *d = c->b->pi[proc].p;
	uint32_t found = WG_NONE, n = 0, own = c->b->pi[proc].nown, reads = 0;

	for (uint32_t i = 0; i < d->threads.n; i++) {
		const struct wg_thread *t = &d->threads.v[i];

		if (in_fuse_device(c, proc, t)) {
			reads++;
			continue;
		}
		if (!busy_elsewhere(c, proc, t, own == 1))
			continue;
		found = c->b->pi[proc].tbase + i;
		n++;
	}
	if (n != 1)
		return WG_NONE;
	/* With others back at the device it could be any other business of the daemon's. */
	if (reads && d->threads.v[found - c->b->pi[proc].tbase].wait.op == WG_OP_RUNNING)
		return WG_NONE;
	*sure = own == 1;
	return found;
}
