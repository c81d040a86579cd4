/* SPDX-License-Identifier: Apache-2.0 */
/*
 * locks.c - file locks of this host, from /proc/locks.
 *
 * The table names who took a lock, which is not always who has it: a flock belongs to the
 * open description and goes on in forked children when its taker is gone, and an OFD lock
 * names nobody. Who has it is told by the `lock:` lines in fdinfo of those that have the
 * file open.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "bulk.h"
#include "procfs.h"

#define MAX_LOCKS 20000

enum { R_LOCKS = 1 };

struct locks_arg {
	int procfd;
};

static void read_locks(struct wg_bulk *b)
{
	struct locks_arg *a = wg_bulk_arg(b);

	wg_bulk_file(b, a->procfd, "locks", R_LOCKS, 0, 8 << 20);
}

int wg_locks_collect(struct wg_facts *f)
{
	struct wg_pctx *c = wg_pctx(f);
	struct wg_bulk *b = wg_bulk_new(16 << 20, sizeof(struct locks_arg));
	struct locks_arg *a;
	size_t cursor = 0;
	struct wg_raw r;
	int rc;

	if (!b)
		return -ENOMEM;
	a = wg_bulk_arg(b);
	a->procfd = wg_bulk_own_fd(b, c->procfd);
	f->locks.n = 0;
	rc = wg_bulk_run(b, wg_pctx_left(c, 0.5), read_locks);
	if (rc == -ETIMEDOUT)
		wg_add_missing(f, NULL, "file locks", "/proc/locks did not answer in time", NULL);
	while (wg_bulk_next(b, &cursor, &r)) {
		const char *s = r.text;
		struct wg_pt_lock one;

		if (r.err) {
			wg_add_missing(f, NULL, "file locks", strerror(-r.err), NULL);
			continue;
		}
		/* From inside a container the locks of others are left out. */
		f->lock_scan_complete = c->init_pidns;
		while (wg_pt_lock(&s, &one) && f->locks.n < MAX_LOCKS) {
			struct wg_file_lock *l = wg_push(f->arena, &f->locks);

			l->id = one.id;
			l->kind = one.kind;
			l->write = one.write;
			l->blocked = one.blocked;
			l->pid = l->taken_by = one.pid;
			l->dev = one.dev;
			l->ino = one.ino;
			l->start = one.start;
			l->end = one.end;
		}
	}
	wg_bulk_free(b);
	return 0;
}

static bool matters(const struct wg_facts *f, const struct wg_file_lock *l)
{
	for (size_t i = 0; i < f->procs.n; i++) {
		const struct wg_process *p = f->procs.v[i];

		for (size_t k = 0; k < p->files.n; k++)
			if (p->files.v[k].ino == l->ino && p->files.v[k].dev == l->dev)
				return true;
	}
	return false;
}

/*
 * After every process that could hold one has its descriptors: a lock whose taker is gone
 * or unnamed is put down to each process that has it through a description of its own.
 */
void wg_locks_holders(struct wg_facts *f)
{
	struct wg_pctx *c = wg_pctx(f);
	size_t n = f->locks.n;

	for (size_t i = 0; i < n; i++) {
		struct wg_file_lock *l = &f->locks.v[i];
		const struct wg_hostproc *h;
		bool found = false;

		if (l->blocked)
			continue;
		if (l->pid > 0 && c->host.done) {
			h = wg_host_proc(c, l->pid);
			l->holder_alive = h && h->state != 'Z' && h->state != 'X';
			l->holder_alive_known = true;
		} else if (l->pid > 0) {
			l->holder_alive = !kill(l->pid, 0) || errno == EPERM;
			l->holder_alive_known = true;
		}
		if (l->kind == 'p' || l->kind == 'l' || !matters(f, l) ||
		    (l->pid > 0 && l->holder_alive))
			continue;
		for (size_t j = 0; j < f->procs.n; j++) {
			const struct wg_process *p = f->procs.v[j];

			if (p->from_snapshot || !p->alive)
				continue;
			for (size_t k = 0; k < p->files.n; k++) {
				const struct wg_file *x = &p->files.v[k];
				struct wg_file_lock copy;

				if (x->ino != l->ino || x->dev != l->dev || x->lock_kind != l->kind)
					continue;
				copy = *l;
				copy.pid = p->pid;
				copy.holder_alive = copy.holder_alive_known = true;
				if (!found)
					*l = copy;
				else
					*wg_push(f->arena, &f->locks) = copy;
				l = &f->locks.v[i]; /* the push may have moved them */
				found = true;
				break;
			}
		}
	}
}
