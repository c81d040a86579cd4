/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_fd.c - reads, writes and polls: from a descriptor to whoever holds the other end.
 *
 * The waiter needs ANY process at the other end to act. A descriptor that the waiter's own
 * process holds counts only as far as it has other threads; one that a child inherited and
 * never meant to use counts like any other, so that "nobody else could write" is only said
 * when it is so. A writer that has died while its descriptor lives on adds itself: it cannot
 * move anything, but it explains the silence.
 */
#include "internal.h"

#include <fcntl.h>
#include <poll.h>

static bool can(const struct wg_file *x, bool write)
{
	int64_t acc;

	if (!wg_has_int(x->flags))
		return true;
	acc = x->flags & O_ACCMODE;
	return write ? acc != O_RDONLY : acc != O_WRONLY;
}

static uint32_t end_node(struct wg_ctx *c, enum wg_itype type, const struct wg_file *x, bool writes,
			 bool *fresh)
{
	struct wg_b *b = c->b;
	uint32_t ix = wg_node(b, type, x->ino ? x->ino : (uint64_t)x->fd,
			      (uint64_t)c->proc << 1 | writes, fresh);
	struct wg_inode *n = &b->n.v[ix];

	if (*fresh) {
		n->proc = c->proc;
		n->obj = x;
		n->mode = MODE_ANY;
		if (type == IT_SOCKET && x->sock_remote && x->sock_remote[0])
			n->label = wg_say(b, "socket to %s", x->sock_remote);
		else if (type == IT_SOCKET && x->sock_local && x->sock_local[0])
			n->label = wg_say(b, "socket %s", x->sock_local);
		else
			n->label = x->path ? x->path : wg_say(b, "descriptor %d", x->fd);
		n->id = wg_say(b, "%c:%d:%s%llu",
			       type == IT_SOCKET ? 's'
			       : type == IT_PIPE ? 'p'
						 : 'f',
			       c->p->pid, writes ? "w" : "r", (unsigned long long)x->ino);
	}
	if (!wg_has_sec(n->wsince) || c->t->wait.since_s > n->wsince)
		n->wsince = c->t->wait.since_s;
	return ix;
}

static void to_end(struct wg_ctx *c, uint32_t to)
{
	struct wg_iedge *e =
		wg_edge(c->b, c->node, to, WG_EDGE_WAITS_FOR, true, "descriptor of the call");

	e->since = c->t->wait.since_s;
	if (!c->b->n.v[c->node].wobject)
		c->b->n.v[c->node].wobject = c->b->n.v[to].label;
}

/* Other threads of the waiter's own process, when it has any. */
static bool own_threads(struct wg_ctx *c, uint32_t end, enum wg_edge_kind kind)
{
	struct wg_iedge *e;

	if (c->b->pi[c->proc].nown < 2)
		return false;
	e = wg_edge(c->b, end, wg_wakers_but(c->b, c->proc, c->t), kind, false,
		    "the other end is held by this process itself");
	e->hidden = true;
	/* To be read, a full pipe needs one of them; an empty one is a wait for a signal like any
	 * other. */
	e->guess = kind != WG_EDGE_READ_BY;
	return true;
}

struct ends {
	uint32_t others, own, dead, strangers;
	bool threads; /* own threads could act */
};

static void add_process(struct wg_ctx *c, uint32_t end, int32_t proc, enum wg_edge_kind kind,
			enum wg_class idle, const char *how)
{
	struct wg_b *b = c->b;
	struct wg_iedge *e =
		wg_edge(b, end, wg_process_actor(b, proc), kind, b->f->fd_scan_complete, how);

	e->idle_cls = idle;
	e->since = c->t->wait.since_s;
}

static bool passes_on(struct wg_ctx *c, uint32_t end, int32_t proc);

static bool at_hand(const struct wg_thread *t, int32_t fd)
{
	for (size_t i = 0; i < t->fds_at_hand.n; i++)
		if (t->fds_at_hand.v[i] == fd)
			return true;
	return false;
}

/*
 * Threads of the other process that have this very connection in hand: they serve it, whatever
 * the thread does meanwhile that has accepted it and still has it in a variable.
 */
static bool add_handlers(struct wg_ctx *c, uint32_t end, int32_t proc, const struct wg_file *file,
			 enum wg_edge_kind kind, enum wg_class idle, const char *how)
{
	struct wg_b *b = c->b;
	const struct wg_process *p = b->pi[proc].p;
	uint32_t n = 0, first = (uint32_t)b->e.n;

	for (uint32_t i = 0; i < p->threads.n; i++) {
		const struct wg_thread *t = &p->threads.v[i];
		struct wg_iedge *e;

		if ((int32_t)i == b->pi[proc].main_thr || t->ours || t->state == 'Z' ||
		    t->wait.op == WG_OP_ACCEPT || !at_hand(t, file->fd))
			continue;
		e = wg_edge(b, end, b->pi[proc].tbase + i, kind, false, how);
		e->idle_cls = idle;
		e->since = c->t->wait.since_s;
		n++;
	}
	if (n == 1 && b->f->fd_scan_complete)
		b->e.v[first].certain = true;
	return n;
}

static struct ends add_holders(struct wg_ctx *c, uint32_t end, uint32_t first, bool writes,
			       enum wg_edge_kind kind, enum wg_class idle)
{
	struct wg_b *b = c->b;
	struct ends r = {0};
	int32_t seen[64];
	size_t nseen = 0;

	for (uint32_t h = first; h && h != WG_NONE; h = b->holders.v[h - 1].next) {
		const struct wg_holder *x = &b->holders.v[h - 1];
		const struct wg_file *file = &b->pi[x->proc].p->files.v[x->file];
		const char *how;
		bool dup = false;

		if (!can(file, !writes))
			continue;
		if (x->proc == c->proc) {
			r.own++;
			continue;
		}
		for (size_t i = 0; i < nseen; i++)
			dup |= seen[i] == x->proc;
		if (dup)
			continue;
		if (nseen < sizeof(seen) / sizeof(seen[0]))
			seen[nseen++] = x->proc;
		if (b->pi[x->proc].dead) {
			r.dead++;
			continue;
		}
		r.others++;
		if (b->pi[x->proc].parent != c->proc)
			r.strangers++;
		if (!writes && idle == CL_PEER_SILENT && b->n.v[end].type == IT_SOCKET &&
		    passes_on(c, end, x->proc))
			continue;
		how = wg_say(b, "descriptor %d of pid %d is the %s end", file->fd,
			     b->pi[x->proc].p->pid, writes ? "reading" : "writing");
		if (file->kind != WG_FILE_SOCKET ||
		    !add_handlers(c, end, x->proc, file, kind, idle, how))
			add_process(c, end, x->proc, kind, idle, how);
	}
	if (r.own) {
		r.threads = own_threads(c, end, kind);
		/* Made for other processes: a thread of its own that sleeps will not write to it. */
		if (r.threads && r.others && !writes && b->n.v[end].type == IT_PIPE && idle)
			b->e.v[b->n.v[end].last - 1].idle_cls = CL_NO_WAKER;
	}
	/* With one candidate the edge is as sure as the search; with several it is one of them. */
	if (r.others + r.threads > 1)
		for (uint32_t x = b->n.v[end].first; x; x = b->e.v[x - 1].next)
			b->e.v[x - 1].certain = false;
	return r;
}

/* A fork of the reader's program that never ran exec and whose own parent is not of that program.
 */
static bool orphan_of(const struct wg_b *b, int32_t i, const struct wg_process *reader)
{
	const struct wg_process *p = b->pi[i].p;
	int32_t parent = b->pi[i].parent;

	if (!p->forked || !p->exe || !reader->exe || strcmp(p->exe, reader->exe) ||
	    p->ppid == reader->pid || p->pid == reader->ppid)
		return false;
	if (p->ppid == 1)
		return true;
	return parent >= 0 && b->pi[parent].p->exe && strcmp(b->pi[parent].p->exe, p->exe);
}

/* A relative of the reader that has ended and that can have made this orphan. */
static int32_t dead_relative(const struct wg_b *b, const struct wg_ctx *c, int32_t orphan)
{
	int32_t best = -1;

	for (uint32_t i = 0; i < b->np; i++) {
		const struct wg_process *d = b->pi[i].p;

		if (!b->pi[i].dead || b->pi[i].host != b->pi[c->proc].host || !d->comm ||
		    !b->pi[orphan].p->comm || strcmp(d->comm, b->pi[orphan].p->comm))
			continue;
		if (d->ppid != c->p->pid && (d->ppid != c->p->ppid || d->ppid <= 1))
			continue;
		if (best < 0 || (d->end.signal && !b->pi[best].p->end.signal))
			best = (int32_t)i;
	}
	return best;
}

/* Who keeps the writing end of a pipe open whose writer has ended: they have to be told to go. */
static const char *lives_on(struct wg_ctx *c, uint32_t first)
{
	struct wg_b *b = c->b;
	const char *who = NULL;
	unsigned more = 0;

	for (uint32_t h = first; h && h != WG_NONE; h = b->holders.v[h - 1].next) {
		int32_t i = b->holders.v[h - 1].proc;

		if (b->pi[i].dead || !can(&b->pi[i].p->files.v[b->holders.v[h - 1].file], true))
			continue;
		if (!who)
			who = i == c->proc ? "the reader itself" : wg_name_process(b, i);
		else
			more++;
	}
	if (!who)
		return "who keeps its end open was not found";
	return more ? wg_say(b, "its end lives on in %s and %u more", who, more)
		    : wg_say(b, "its end lives on in %s", who);
}

/* Ended by a signal, for want of memory, or with an error: not after its work was done. */
static bool fell(const struct wg_process *p)
{
	return p->end.known && (p->end.oom_killed || p->end.signal || p->end.status);
}

/* All that still hold the end are children of the waiter that run what the ended one ran. */
static bool all_like(struct wg_ctx *c, uint32_t first, const struct wg_process *gone)
{
	const struct wg_b *b = c->b;
	uint32_t n = 0;

	for (uint32_t h = first; h && h != WG_NONE; h = b->holders.v[h - 1].next) {
		const struct wg_process *o = b->pi[b->holders.v[h - 1].proc].p;

		if (!can(&o->files.v[b->holders.v[h - 1].file], true))
			continue;
		if (o == c->p || o->ppid != c->p->pid || !o->comm || !gone->comm ||
		    strcmp(o->comm, gone->comm))
			return false;
		n++;
	}
	return n > 0;
}

/*
 * The writer died, its descriptor lives on: a child of the waiter that has ended, while those
 * that still hold the end are of the same making (a pool's other workers) or strangers to it.
 * Where a server that still listens has it (served), only one that was killed explains anything:
 * the ones that ended in peace may have made it a daemon.
 */
static void add_dead_writers(struct wg_ctx *c, uint32_t end, const struct ends *r, uint32_t first,
			     bool served)
{
	struct wg_b *b = c->b;
	bool added = false;

	for (size_t i = 0; i < c->p->children.n; i++) {
		int32_t d = wg_pid_proc(b, b->pi[c->proc].host, c->p->children.v[i]);
		bool alike = r->others == 0 || r->others == r->strangers, pool;
		struct wg_iedge *e;

		if (d < 0 || !b->pi[d].dead || (served && !b->pi[d].p->end.signal))
			continue;
		/* Held by the reader too, or by several: made for a pool, in which each could
		 * write. */
		pool = r->own > 0 || r->others >= 2;
		for (uint32_t h = first; h && h != WG_NONE && !alike && pool;
		     h = b->holders.v[h - 1].next) {
			const struct wg_process *o = b->pi[b->holders.v[h - 1].proc].p;

			if (o == c->p || o->ppid != c->p->pid)
				continue;
			alike = o->comm && b->pi[d].p->comm && !strcmp(o->comm, b->pi[d].p->comm);
		}
		/* Killed, while a brother that was forked after it keeps the end that it inherited.
		 */
		if (!alike && fell(b->pi[d].p))
			alike = all_like(c, first, b->pi[d].p);
		if (!alike)
			continue;
		e = wg_edge(
			b, end, b->pi[d].node, WG_EDGE_WRITTEN_BY, r->others == 0,
			wg_say(b, "a child of the reader that has ended; %s", lives_on(c, first)));
		e->since = c->t->wait.since_s;
		added = true;
	}
	if (added)
		return;
	/* Ended and reaped: an observer has seen it, or what it forked is left without a parent. */
	for (uint32_t i = 0; i < b->np; i++) {
		const struct wg_process *d = b->pi[i].p;
		struct wg_iedge *e;
		bool child = false;

		if (!b->pi[i].dead || d->ppid != c->p->pid || !d->end.known ||
		    (served && !d->end.signal) || b->pi[i].host != b->pi[c->proc].host)
			continue;
		for (size_t k = 0; k < c->p->children.n; k++)
			child |= c->p->children.v[k] == d->pid;
		if (child || (r->others && r->others != r->strangers &&
			      !(r->own || r->others >= 2) && !(fell(d) && all_like(c, first, d))))
			continue;
		e = wg_edge(b, end, b->pi[i].node, WG_EDGE_WRITTEN_BY, false,
			    wg_say(b, "a child of the reader that ended; %s", lives_on(c, first)));
		e->since = c->t->wait.since_s;
		return;
	}
	if (r->others != 1 || r->strangers != 1)
		return;
	for (uint32_t h = first; h && h != WG_NONE; h = b->holders.v[h - 1].next) {
		int32_t i = b->holders.v[h - 1].proc, dead;
		struct wg_iend *x;

		if (i == c->proc || !can(&b->pi[i].p->files.v[b->holders.v[h - 1].file], true) ||
		    !orphan_of(b, i, c->p))
			continue;
		dead = dead_relative(b, c, i);
		if (served && (dead < 0 || !b->pi[dead].p->end.signal))
			continue;
		if (dead >= 0) {
			struct wg_iedge *e = wg_edge(
				b, end, b->pi[dead].node, WG_EDGE_WRITTEN_BY, false,
				wg_say(b,
				       "it has ended; an orphaned fork of the same program, "
				       "pid %d, still holds its end",
				       b->pi[i].p->pid));

			e->since = c->t->wait.since_s;
			return;
		}
		wg_set_end(b, end, CL_PEER_DEAD, FATE_STUCK, WG_LIKELY,
			   wg_say(b,
				  "the process that wrote it seems to have ended: only pid %d "
				  "still holds "
				  "its end, an orphaned fork of the same program",
				  b->pi[i].p->pid));
		x = &b->n.v[end].end;
		x->gone = true;
		x->pid = b->pi[i].p->pid;
		x->who = wg_say(
			b, "pid %d, which inherited the descriptor of a process that has ended",
			b->pi[i].p->pid);
		return;
	}
}

/*
 * Both ends are this process' own, and it has no other thread: then a signal handler writes it
 * (the self-pipe), most likely when a child ends. Polling such a pipe is waiting for a signal;
 * an event loop of Python's alone with its own socket waits for nothing that could come.
 */
static bool self_pipe(struct wg_ctx *c, uint32_t end)
{
	struct wg_b *b = c->b;
	bool any = false;

	if (c->t->wait.op != WG_OP_POLL && c->t->wait.op != WG_OP_EPOLL)
		return false;
	for (size_t i = 0; i < c->p->children.n; i++) {
		int32_t k = wg_pid_proc(b, b->pi[c->proc].host, c->p->children.v[i]);
		struct wg_iedge *e;

		if (k < 0 || b->pi[k].dead)
			continue;
		e = wg_edge(b, end, wg_process_actor(b, k), WG_EDGE_CHILD_OF, false,
			    "the end of a child would wake it by a signal");
		e->since = c->t->wait.since_s;
		any = true;
	}
	if (any)
		return true;
	if (wg_py_has(c->t, "asyncio/base_events.py", NULL)) {
		wg_set_end(b, end, CL_NO_WAKER, FATE_STUCK, WG_GUESS,
			   "the event loop has no timer, no connection and no other thread: "
			   "nothing is left that "
			   "could wake it but a signal");
		b->n.v[end].end.pid = c->p->pid;
		b->n.v[end].end.tid = c->t->tid;
		return true;
	}
	wg_set_end(b, end, CL_IDLE, FATE_IDLE, WG_LIKELY, "only a signal could wake it");
	return true;
}

static void pipe_targets(struct wg_ctx *c, const struct wg_file *x, bool writes, enum wg_class idle)
{
	struct wg_b *b = c->b;
	uint64_t dev = x->kind == WG_FILE_PIPE ? 0 : x->dev;
	uint32_t first, end;
	struct ends r;
	bool fresh;

	end = end_node(c, IT_PIPE, x, writes, &fresh);
	to_end(c, end);
	if (!fresh)
		return;
	first = wg_map_get(&b->pipes, b->pi[c->proc].host, dev, x->ino);
	r = add_holders(c, end, first, writes, writes ? WG_EDGE_READ_BY : WG_EDGE_WRITTEN_BY, idle);
	if (!writes)
		add_dead_writers(c, end, &r, first, false);
	if (r.others || b->n.v[end].has_end)
		return;
	if (r.threads && !writes && c->t->wait.op == WG_OP_READ)
		b->n.v[c->node].ownerless = true;
	if (r.threads) { /* a pipe inside the process: whoever could write it is one of its threads
			  */
		wg_set_end(b, end, writes ? CL_PIPE_FULL : CL_NO_WAKER, FATE_STUCK, WG_LIKELY,
			   writes ? "only threads of this process could read it, and none does"
				  : "only threads of this process could write it, and none can");
	} else if (r.own && !writes && !b->n.v[end].nout && self_pipe(c, end)) {
		return;
	} else if (r.own && !writes && !b->n.v[end].nout && x->kind == WG_FILE_FIFO) {
		/* It has a name: who opens it for both ways serves whoever comes. */
		wg_set_end(b, end, CL_IDLE, FATE_IDLE, WG_LIKELY,
			   "it keeps the FIFO open for whoever comes to write, and nobody has it open");
	} else if (r.own && !writes && !b->n.v[end].nout) {
		wg_set_end(b, end, CL_PEER_DEAD, FATE_STUCK, WG_LIKELY,
			   "its last other writer is gone; the reading process itself keeps the "
			   "writing end open, so the end of file never comes");
		b->n.v[end].end.gone = true;
		b->n.v[end].end.pid = c->p->pid;
		b->n.v[end].end.tid = c->t->tid;
		b->n.v[end].end.who = "reader that holds the only writing end itself";
	} else if (r.own && writes) {
		wg_set_end(b, end, CL_PIPE_FULL, FATE_STUCK, WG_CERTAIN,
			   "only the writing thread's own process could read it");
		b->n.v[end].end.pid = c->p->pid;
		b->n.v[end].end.tid = c->t->tid;
	} else if (!b->n.v[end].nout) {
		wg_set_end(b, end, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "no process was found that holds its other end");
		b->n.v[end].end.missing = b->f->fd_scan_complete
						  ? "who holds the other end of the pipe"
						  : "the descriptors of other users' processes";
	}
}

/* Did this end accept the connection? At best a listening socket of the process tells. */
static bool accepted(const struct wg_ctx *c, const struct wg_file *x)
{
	if (x->sock_role)
		return x->sock_role == 2;
	for (size_t i = 0; i < c->p->files.n && x->sock_local; i++) {
		const struct wg_file *l = &c->p->files.v[i];
		const char *port, *mine;

		if (l->kind != WG_FILE_SOCKET || l->sock_state != WG_SOCK_LISTEN || !l->sock_local)
			continue;
		if (!strcmp(l->sock_local, x->sock_local))
			return true;
		port = strrchr(l->sock_local, ':'); /* listening on any address */
		mine = strrchr(x->sock_local, ':');
		if (port && mine && !strcmp(port, mine) &&
		    (!strncmp(l->sock_local, "0.0.0.0:", 8) ||
		     !strncmp(l->sock_local, "[::]:", 5) || !strncmp(l->sock_local, ":::", 3) ||
		     !strncmp(l->sock_local, "*:", 2)))
			return true;
	}
	return false;
}

/* Who listens at this address on this host? For connections that nobody has accepted yet. */
static int32_t listener(const struct wg_ctx *c, const char *remote)
{
	const struct wg_b *b = c->b;
	const char *port = remote ? strrchr(remote, ':') : NULL;

	for (uint32_t i = 0; i < b->np && remote; i++) {
		if (b->pi[i].host != b->pi[c->proc].host || b->pi[i].dead)
			continue;
		for (size_t k = 0; k < b->pi[i].p->files.n; k++) {
			const struct wg_file *l = &b->pi[i].p->files.v[k];
			const char *lp;

			if (l->kind != WG_FILE_SOCKET || l->sock_state != WG_SOCK_LISTEN ||
			    !l->sock_local)
				continue;
			if (!strcmp(l->sock_local, remote))
				return (int32_t)i;
			lp = strrchr(l->sock_local, ':');
			if (lp && port && !strcmp(lp, port) && !strncmp(remote, "127.", 4) &&
			    !strncmp(l->sock_local, "0.0.0.0:", 8))
				return (int32_t)i;
		}
	}
	return -1;
}

/*
 * Something was sent on a connection that this end made, and nothing has come back since: then
 * the answer is owed, however often whoever waits for it looks. How long ago it was sent.
 */
static double unanswered(const struct wg_file *x)
{
	if (!x || x->kind != WG_FILE_SOCKET || x->sock_type != 1 /* SOCK_STREAM */ ||
	    x->sock_role != 1 || x->sock_state != WG_SOCK_CONNECTED ||
	    !wg_has_int(x->sock_sent_bytes) || x->sock_sent_bytes <= 0 ||
	    !wg_has_sec(x->sock_sent_age_s) || (wg_has_int(x->sock_rxq) && x->sock_rxq > 0))
		return WG_NO_SEC;
	if (wg_has_int(x->sock_recv_bytes) && x->sock_recv_bytes > 0 &&
	    !(wg_has_sec(x->sock_recv_age_s) && x->sock_recv_age_s > x->sock_sent_age_s))
		return WG_NO_SEC;
	return x->sock_sent_age_s;
}

static void socket_targets(struct wg_ctx *c, const struct wg_file *x, bool writes,
			   enum wg_class idle);

/*
 * The peer is an event loop at rest, and since we wait it has asked exactly one other process for
 * something and got no answer: it passes our request on (a proxy), and that answer is what is
 * missing. With several outstanding requests nothing tells which is ours.
 */
static bool passes_on(struct wg_ctx *c, uint32_t end, int32_t proc)
{
	const struct wg_file *only = NULL;
	struct wg_b *b = c->b;
	const struct wg_process *p = b->pi[proc].p;
	double since = c->t->wait.since_s, asked = unanswered(wg_fd(b, c->proc, c->t->wait.fd));
	struct wg_ctx peer = {.b = b, .proc = proc, .p = p};
	struct wg_iedge *e;
	uint32_t to;
	bool fresh;

	for (size_t i = 0; i < c->t->wait.fds.n; i++) {
		double s = unanswered(wg_fd(b, c->proc, c->t->wait.fds.v[i].fd));

		if (wg_has_sec(s) && !(wg_has_sec(asked) && asked >= s))
			asked = s;
	}
	if (wg_has_sec(asked))
		since = asked;
	if (!wg_has_sec(since) || since < WG_PATIENCE || b->pi[proc].main_thr < 0)
		return false;
	for (size_t i = 0; i < p->files.n; i++) {
		double s = unanswered(&p->files.v[i]);

		if (!wg_has_sec(s) || s > since + 0.5)
			continue;
		if (only)
			return false;
		only = &p->files.v[i];
	}
	if (!only)
		return false;
	for (size_t i = 0; i < p->threads.n; i++) {
		const struct wg_thread *t = &p->threads.v[i];

		if (t->state == 'R' || t->state == 'T' || t->state == 't')
			return false;
		if (!peer.t && (t->wait.op == WG_OP_EPOLL || t->wait.op == WG_OP_POLL)) {
			peer.t = t;
			peer.node = b->pi[proc].tbase + (uint32_t)i;
		}
	}
	if (!peer.t)
		return false;
	socket_targets(&peer, only, false, CL_PEER_SILENT);
	to = end_node(&peer, IT_SOCKET, only, false, &fresh);
	e = wg_edge(b, end, to, WG_EDGE_WRITTEN_BY, false,
		    wg_say(b, "pid %d has passed a request on %s ago and has no answer", p->pid,
			   wg_secs(b, only->sock_sent_age_s)));
	e->says = wg_say(b, "should be written by %s, which waits for an answer from",
			 wg_name_process(b, proc));
	e->since = since;
	return true;
}

/*
 * The other end was accepted by the one who has it: a server that was reached by its address. It
 * may well be a daemon that left its parent on purpose; no descriptor of somebody else's lives on.
 */
static bool served(const struct wg_b *b, const struct wg_file *x, uint32_t first)
{
	for (uint32_t h = x->sock_remote ? first : 0; h && h != WG_NONE;
	     h = b->holders.v[h - 1].next) {
		const struct wg_process *p = b->pi[b->holders.v[h - 1].proc].p;

		for (size_t k = 0; k < p->files.n; k++)
			if (p->files.v[k].kind == WG_FILE_SOCKET &&
			    p->files.v[k].sock_state == WG_SOCK_LISTEN)
				return true;
	}
	return false;
}

static void socket_targets(struct wg_ctx *c, const struct wg_file *x, bool writes,
			   enum wg_class idle)
{
	struct wg_b *b = c->b;
	struct ends r = {0};
	uint32_t end, first;
	bool fresh, server = !writes && accepted(c, x);
	int32_t l;

	end = end_node(c, IT_SOCKET, x, writes, &fresh);
	to_end(c, end);
	if (!fresh)
		return;
	if (x->sock_state == WG_SOCK_LISTEN) {
		wg_set_end(b, end, CL_IDLE, FATE_IDLE, WG_CERTAIN,
			   wg_say(b, "it listens%s%s and nobody connects",
				  x->sock_local ? " at " : "", x->sock_local ? x->sock_local : ""));
		return;
	}
	if (server) /* who accepted a connection waits for a request by design */
		idle = CL_NONE;
	if (x->sock_peer_ino) {
		first = wg_map_get(&b->socks, b->pi[c->proc].host, x->sock_peer_ino, 0);
		r = add_holders(c, end, first, writes,
				writes ? WG_EDGE_READ_BY : WG_EDGE_WRITTEN_BY, idle);
		if (!r.others && r.threads) {
			wg_set_end(
				b, end, writes ? CL_PIPE_FULL : CL_NO_WAKER, FATE_STUCK, WG_LIKELY,
				"both ends belong to this process, and no other thread of it acts");
			return;
		}
		if (!r.others && r.own && !writes && self_pipe(c, end))
			return;
		if (!r.others && r.own) {
			wg_set_end(b, end, writes ? CL_PIPE_FULL : CL_PEER_DEAD, FATE_STUCK,
				   WG_LIKELY,
				   "both ends belong to this process, which has no other thread");
			b->n.v[end].end.gone = !writes;
			b->n.v[end].end.pid = c->p->pid;
			b->n.v[end].end.tid = c->t->tid;
			return;
		}
		/*
		 * For the next request a server waits by design: that its client waits for an
		 * answer meanwhile makes no deadlock of two who wait for each other.
		 */
		for (uint32_t k = server ? b->n.v[end].first : 0; k; k = b->e.v[k - 1].next)
			b->e.v[k - 1].guess = true;
		if (r.others) {
			if (!writes && !server)
				add_dead_writers(c, end, &r, first, served(b, x, first));
			return;
		}
	}
	if (x->sock_state == WG_SOCK_UNCONNECTED && !writes) {
		wg_set_end(b, end, CL_IDLE, FATE_IDLE, WG_LIKELY,
			   "it waits for a message from anyone");
		return;
	}
	l = listener(c, x->sock_remote);
	if (l >= 0 && l != c->proc) {
		add_process(c, end, l, writes ? WG_EDGE_READ_BY : WG_EDGE_WRITTEN_BY, idle,
			    wg_say(b, "pid %d listens at %s and has not accepted this connection",
				   b->pi[l].p->pid, x->sock_remote));
		return;
	}
	if (server) {
		wg_set_end(b, end, CL_IDLE, FATE_IDLE, WG_LIKELY,
			   "it serves a connection without a request");
		return;
	}
	if (x->sock_remote && x->sock_remote[0]) {
		wg_set_end(b, end,
			   writes && x->sock_state != WG_SOCK_CONNECTING ? CL_PIPE_FULL
									 : CL_PEER_SILENT,
			   FATE_STUCK, WG_GUESS,
			   wg_say(b, "the peer %s %s; it could not be asked", x->sock_remote,
				  x->sock_state == WG_SOCK_CONNECTING ? "does not answer"
				  : writes			      ? "does not read"
								      : "does not send"));
		b->n.v[end].end.who = wg_say(b, "peer at %s", x->sock_remote);
		return;
	}
	wg_set_end(b, end, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS, "its peer could not be found");
	b->n.v[end].end.missing = "the process at the other end of a socket";
}

/*
 * Who holds the master side and only passes on what a person types: a terminal emulator, sshd, a
 * multiplexer. It waits for several things at once, or has other threads that may write the key
 * presses. A program that waits for nothing but this terminal's output drives it (expect), and
 * one that is stopped passes nothing on: those are who the reader waits for.
 */
static bool relays(const struct wg_b *b, int32_t i, int64_t pty)
{
	const struct wg_process *o = b->pi[i].p;
	const struct wg_thread *only = NULL;
	bool stopped = true;

	for (size_t k = 0; k < o->threads.n; k++) {
		const struct wg_thread *t = &o->threads.v[k];

		if (t->ours)
			continue;
		stopped &= t->state == 'T' || t->state == 't';
		only = t;
	}
	if (!only || stopped)
		return false;
	if (b->pi[i].nown > 1)
		return true;
	switch (only->wait.op) {
	case WG_OP_POLL:
	case WG_OP_EPOLL: {
		const struct wg_file *ep =
			only->wait.op == WG_OP_EPOLL ? wg_fd(b, i, only->wait.fd) : NULL;
		const struct wg_pollfd *fds =
			ep && !only->wait.fds.n ? ep->epoll.v : only->wait.fds.v;
		size_t n = ep && !only->wait.fds.n ? ep->epoll.n : only->wait.fds.n;

		for (size_t k = 0; k < n; k++) {
			const struct wg_file *f = fds[k].fd < 0 ? NULL : wg_fd(b, i, fds[k].fd);

			if (!f || f->pty_index != pty)
				return true;
		}
		return !n;
	}
	default:
		return false;
	}
}

/* A thread of it waits for output of this terminal right now, and gets none. */
static bool reads_master(const struct wg_b *b, int32_t i, int64_t pty)
{
	const struct wg_process *o = b->pi[i].p;

	for (size_t k = 0; k < o->threads.n; k++) {
		const struct wg_thread *t = &o->threads.v[k];
		const struct wg_file *f;

		if (t->state != 'S' || wg_still(b, o, t) == STILL_NO)
			continue;
		f = t->wait.op == WG_OP_READ ? wg_fd(b, i, t->wait.fd) : NULL;
		if (f && f->pty_index == pty)
			return true;
		for (size_t j = 0; t->wait.op == WG_OP_POLL && j < t->wait.fds.n; j++) {
			f = t->wait.fds.v[j].events & POLLIN ? wg_fd(b, i, t->wait.fds.v[j].fd)
							     : NULL;
			if (f && f->pty_index == pty)
				return true;
		}
	}
	return false;
}

static void tty_targets(struct wg_ctx *c, const struct wg_file *x, bool writes, bool master)
{
	const struct wg_process *relay = NULL;
	struct wg_b *b = c->b;
	uint32_t end, n = 0;
	bool fresh;

	end = end_node(c, IT_PIPE, x, writes, &fresh);
	to_end(c, end);
	if (!fresh)
		return;
	for (uint32_t i = 0; i < b->np && x->pty_index >= 0; i++) {
		const struct wg_process *o = b->pi[i].p;

		if ((int32_t)i == c->proc || b->pi[i].dead || b->pi[i].host != b->pi[c->proc].host)
			continue;
		for (size_t k = 0; k < o->files.n; k++) {
			bool om = o->files.v[k].path && strstr(o->files.v[k].path, "ptmx");

			if (o->files.v[k].pty_index != x->pty_index || om == master ||
			    !(o->files.v[k].kind == WG_FILE_TTY || om))
				continue;
			if (!writes && !master && relays(b, (int32_t)i, x->pty_index)) {
				relay = o;
				n++;
				break;
			}
			if (writes && !master && om && reads_master(b, (int32_t)i, x->pty_index)) {
				wg_set_end(b, end, CL_PIPE_FULL, FATE_STUCK, WG_LIKELY,
					   wg_say(b,
						  "its output is held back (Ctrl-S; Ctrl-Q lets it "
						  "go on): pid %d waits for it and gets none",
						  o->pid));
				return;
			}
			/* Nobody owes a terminal a key press; but a full one is not being read. */
			add_process(c, end, (int32_t)i,
				    writes ? WG_EDGE_READ_BY : WG_EDGE_WRITTEN_BY,
				    writes ? CL_PIPE_FULL : CL_NONE,
				    wg_say(b, "pid %d holds the other side of terminal %d", o->pid,
					   x->pty_index));
			n++;
			break;
		}
	}
	if (relay)
		wg_set_end(b, end, CL_IDLE, FATE_IDLE, WG_LIKELY,
			   wg_say(b,
				  "it waits for input from a terminal, which %s, pid %d, passes on",
				  relay->comm ? relay->comm : "a process", relay->pid));
	b->n.v[end].end.person = relay != NULL;
	if (n)
		return;
	if (writes)
		wg_set_end(b, end, CL_PIPE_FULL, FATE_STUCK, WG_GUESS,
			   "the terminal takes no more output");
	else
		wg_set_end(b, end, CL_IDLE, FATE_IDLE, WG_LIKELY,
			   "it waits for input from a terminal");
	b->n.v[end].end.person = !writes && !master;
}

static void eventfd_targets(struct wg_ctx *c, const struct wg_file *x, bool alone)
{
	struct wg_b *b = c->b;
	struct ends r;
	uint32_t end;
	bool fresh;

	end = end_node(c, IT_FILE, x, false, &fresh);
	to_end(c, end);
	if (!fresh)
		return;
	b->n.v[end].label = "eventfd";
	r = add_holders(c, end, wg_map_get(&b->eventfds, b->pi[c->proc].host, x->ino, 0), false,
			WG_EDGE_WRITTEN_BY, CL_PEER_SILENT);
	if (!r.threads)
		r.threads = own_threads(c, end, WG_EDGE_WOKEN_BY);
	if (!r.others && !r.threads && alone && self_pipe(c, end))
		return;
	if (!r.others)
		wg_set_end(b, end, CL_NO_WAKER, FATE_STUCK,
			   r.threads || !alone ? WG_LIKELY : WG_CERTAIN,
			   r.threads ? "only threads of this process could signal it, and none can"
				     : "only this thread could signal it");
}

static void idle_end(struct wg_ctx *c, const struct wg_file *x, const char *text, double timer)
{
	struct wg_b *b = c->b;
	uint32_t end;
	bool fresh;

	end = end_node(c, IT_FILE, x, false, &fresh);
	to_end(c, end);
	wg_set_end(b, end, CL_IDLE, FATE_IDLE, WG_CERTAIN, text);
	b->n.v[end].end.timer_s = timer;
}

/* Targets behind one descriptor. False: nothing is known of it. idle: CL_NONE in event loops. */
static bool fd_targets(struct wg_ctx *c, const struct wg_file *x, bool writes, bool loop,
		       bool alone)
{
	enum wg_class idle = loop ? CL_NONE : writes ? CL_PIPE_FULL : CL_PEER_SILENT;

	if (!x)
		return false;
	switch (x->kind) {
	case WG_FILE_PIPE:
	case WG_FILE_FIFO:
		pipe_targets(c, x, writes, idle);
		return true;
	case WG_FILE_SOCKET:
		socket_targets(c, x, writes, idle);
		return true;
	case WG_FILE_TTY:
		tty_targets(c, x, writes, x->path && strstr(x->path, "ptmx"));
		return true;
	case WG_FILE_EVENTFD:
		if (writes)
			return false;
		eventfd_targets(c, x, alone);
		return true;
	case WG_FILE_TIMERFD:
		if (wg_has_sec(x->timer_left_s) && x->timer_left_s <= 0)
			return false; /* not armed: it will not fire by itself */
		idle_end(c, x, "it waits for a timer", x->timer_left_s);
		return true;
	case WG_FILE_SIGNALFD:
		idle_end(c, x, "it waits for a signal", WG_NO_SEC);
		return true;
	case WG_FILE_INOTIFY:
		idle_end(c, x, "it waits for a file to change", WG_NO_SEC);
		return true;
	case WG_FILE_PIDFD: {
		int32_t i = wg_pid_proc(c->b, c->b->pi[c->proc].host, x->pidfd_pid);

		if (i < 0)
			return false;
		wg_edge(c->b, c->node, wg_process_actor(c->b, i), WG_EDGE_CHILD_OF, true,
			"process descriptor")
			->says = "for the end of";
		return true;
	}
	case WG_FILE_CHAR:
		if (x->path && strstr(x->path, "ptmx")) {
			tty_targets(c, x, writes, true);
			return true;
		}
		return false;
	default:
		return false;
	}
}

static void timed_end(struct wg_ctx *c, double T)
{
	struct wg_inode *n = &c->b->n.v[c->node];

	if (!wg_has_sec(T) || T > WG_SHORT_TIMEOUT)
		return;
	if (n->has_end && n->end.fate >= FATE_IDLE)
		return;
	wg_set_end(c->b, c->node, CL_IDLE, FATE_IDLE, WG_CERTAIN,
		   wg_say(c->b, "it looks again after at most %s", wg_secs(c->b, T)));
	c->b->n.v[c->node].end.timer_s = T;
}

static bool moved(struct wg_ctx *c)
{
	if (c->b->n.v[c->node].polls_cpu || wg_still(c->b, c->p, c->t) != STILL_NO)
		return false;
	wg_set_end(c->b, c->node, CL_PROGRESSING, FATE_MOVING, WG_CERTAIN, "bytes move through it");
	return true;
}

/* open() of a FIFO returns when the other end is opened too. */
static bool fifo_open(struct wg_ctx *c)
{
	const struct wg_wait *w = &c->t->wait;
	struct wg_b *b = c->b;
	bool writes = false;

	if (w->op != WG_OP_OPEN ||
	    !(wg_kernel_has(c->t, "wait_for_partner") || wg_kernel_has(c->t, "fifo_open")))
		return false;
	if (w->has_args && w->syscall_name) {
		uint64_t flags = !strcmp(w->syscall_name, "open") ? w->args[1] : w->args[2];

		writes = (flags & O_ACCMODE) == O_WRONLY;
	}
	wg_set_end(b, c->node, writes ? CL_PIPE_FULL : CL_PEER_SILENT, FATE_STUCK, WG_LIKELY,
		   wg_say(b, "no process has opened %s for %s", w->path ? w->path : "the FIFO",
			  writes ? "reading" : "writing"));
	b->n.v[c->node].wobject = w->path;
	return true;
}

void wg_resolve_fd_io(struct wg_ctx *c, const struct wg_file *x, bool writes, double timeout)
{
	struct wg_b *b = c->b;
	double T = timeout;

	if (c->t->wait.op == WG_OP_OPEN) {
		if (fifo_open(c))
			return;
		x = NULL;
	}
	if (x) {
		double so = writes ? x->sock_snd_timeout_s : x->sock_rcv_timeout_s;

		if (x->kind == WG_FILE_SOCKET && !wg_has_sec(T) && wg_has_sec(so) && so > 0)
			T = so;
	}
	moved(c);
	if (!fd_targets(c, x, writes, false, true) && !b->n.v[c->node].has_end) {
		wg_set_end(
			b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			x ? wg_say(b, "it %s %s, and who should answer is not visible",
				   writes ? "writes to" : "reads from",
				   x->path ? x->path : "a file")
			  : wg_say(b, "it waits in %s, and the descriptor could not be read",
				   c->t->wait.syscall_name ? c->t->wait.syscall_name : "a call"));
		b->n.v[c->node].end.missing = "the file behind the descriptor of this call";
	}
	if (x && !b->n.v[c->node].wobject)
		b->n.v[c->node].wobject = x->path;
	timed_end(c, T);
}

/*
 * Both ends are held by nobody but this process: a pipe to wake it out of a signal handler, by
 * another thread, or through a library's call. With one thread and no child it tells nothing of
 * what the poll waits for.
 */
bool wg_own_ends(const struct wg_ctx *c, const struct wg_file *x)
{
	const struct wg_b *b = c->b;
	uint32_t h;

	if (!x)
		return false;
	if (x->kind == WG_FILE_PIPE)
		h = wg_map_get(&b->pipes, b->pi[c->proc].host, 0, x->ino);
	else if (x->kind == WG_FILE_SOCKET && x->sock_peer_ino)
		h = wg_map_get(&b->socks, b->pi[c->proc].host, x->sock_peer_ino, 0);
	else if (x->kind == WG_FILE_EVENTFD)
		h = wg_map_get(&b->eventfds, b->pi[c->proc].host, x->ino, 0);
	else
		return false;
	if (!h || h == WG_NONE)
		return false;
	for (; h && h != WG_NONE; h = b->holders.v[h - 1].next)
		if (b->holders.v[h - 1].proc != c->proc)
			return false;
	return true;
}

static bool own_wakeup(const struct wg_ctx *c, const struct wg_file *x)
{
	return c->b->pi[c->proc].nown < 2 && !c->p->children.n && wg_own_ends(c, x);
}

/* The other threads rest: none of them is at work on what it would wake this one for. */
static bool others_rest(const struct wg_ctx *c)
{
	for (size_t i = 0; i < c->p->threads.n; i++) {
		const struct wg_thread *t = &c->p->threads.v[i];

		if (t == c->t || t->ours)
			continue;
		if (t->state != 'S' || t->calls.n || wg_still(c->b, c->p, t) == STILL_NO ||
		    (t->wait.op != WG_OP_FUTEX && t->wait.op != WG_OP_EPOLL &&
		     t->wait.op != WG_OP_POLL && t->wait.op != WG_OP_SIGWAIT))
			return false;
	}
	return true;
}

/* All that is polled are connections on which an answer is owed: for how long, at least. */
static double owed(const struct wg_ctx *c, const struct wg_pollfd *fds, size_t n)
{
	double least = WG_NO_SEC;

	if (!others_rest(c))
		return WG_NO_SEC;
	for (size_t i = 0; i < n; i++) {
		const struct wg_file *x = wg_fd(c->b, c->proc, fds[i].fd);
		double s;

		if (fds[i].fd < 0 || (wg_own_ends(c, x) && !c->p->children.n))
			continue;
		s = unanswered(x);
		if (!wg_has_sec(s))
			return WG_NO_SEC;
		if (!wg_has_sec(least) || s < least)
			least = s;
	}
	return least;
}

/* It looks again and again for an answer that does not come: one wait, as old as the question. */
static void one_wait(struct wg_ctx *c, double since)
{
	struct wg_b *b = c->b;
	struct wg_inode *n = &b->n.v[c->node];

	n->polls_cpu = true;
	n->wsince = since;
	n->wdoes = "polls for an answer";
	for (uint32_t k = n->first; k; k = b->e.v[k - 1].next) {
		struct wg_inode *end = &b->n.v[b->e.v[k - 1].to];

		b->e.v[k - 1].since = since;
		if (end->type != IT_SOCKET)
			continue;
		b->e.v[k - 1].says = "on";
		b->e.v[k - 1].certain = false;
		b->e.v[k - 1].evidence =
			wg_say(b,
			       "it sent something %s ago and got nothing since, but it looks again "
			       "from time to time and may give up",
			       wg_secs(b, since));
		n->wobject = end->label;
		for (uint32_t i = end->first; i; i = b->e.v[i - 1].next)
			if (!wg_has_sec(b->e.v[i - 1].since) || b->e.v[i - 1].since < since)
				b->e.v[i - 1].since = since;
		if (!wg_has_sec(end->wsince) || end->wsince < since)
			end->wsince = since;
	}
}

/* It polls for the end of one process, and its program knows which. */
static bool joined_child(struct wg_ctx *c)
{
	struct wg_b *b = c->b;
	int32_t i = wg_pid_proc(b, b->pi[c->proc].host, (int32_t)c->t->wait.child);
	struct wg_iedge *e;

	if (i < 0 || i == c->proc || b->pi[i].dead)
		return false;
	e = wg_edge(b, c->node, wg_process_actor(b, i), WG_EDGE_CHILD_OF, true,
		    "the process that its program joins");
	e->says = "for the end of";
	e->since = c->t->wait.since_s;
	b->n.v[c->node].wkind = "child";
	b->n.v[c->node].wdoes = "waits for a child";
	return true;
}

void wg_resolve_poll(struct wg_ctx *c)
{
	const struct wg_wait *w = &c->t->wait;
	const struct wg_file *ep = w->op == WG_OP_EPOLL ? wg_fd(c->b, c->proc, w->fd) : NULL;
	const struct wg_pollfd *fds = w->fds.v;
	size_t n = w->fds.n, known = 0, watched = 0;
	double T = wg_timeout(c->t);
	struct wg_b *b = c->b;
	/* Joining a process polls its sentinel: that is no message that somebody owes. */
	bool joins = wg_py_has(c->t, "multiprocessing/process.py", "join") ||
		     wg_py_has(c->t, "multiprocessing/popen_fork.py", NULL) ||
		     wg_py_has(c->t, "multiprocessing/spawn.py", "join");
	bool loop = joins, others = false;
	double asked;

	if (!n && ep) {
		fds = ep->epoll.v;
		n = ep->epoll.n;
	}
	/*
	 * A loop that serves waits by design: it listens, has timers or signals, or many peers. One
	 * that has a single connection waits for that peer like a read does.
	 */
	for (size_t i = 0; i < n && w->op == WG_OP_EPOLL; i++) {
		const struct wg_file *x = wg_fd(b, c->proc, fds[i].fd);

		loop |= n > 8 ||
			(x && (x->sock_state == WG_SOCK_LISTEN || x->kind == WG_FILE_TIMERFD ||
			       x->kind == WG_FILE_SIGNALFD || x->kind == WG_FILE_INOTIFY));
	}
	asked = owed(c, fds, n);
	if (wg_has_sec(T) && T <= WG_SHORT_TIMEOUT && wg_resolve_spin(c))
		return;
	for (size_t i = 0; i < n; i++)
		others |= fds[i].fd >= 0 && wg_fd(b, c->proc, fds[i].fd) &&
			  !own_wakeup(c, wg_fd(b, c->proc, fds[i].fd));
	if (wg_still(b, c->p, c->t) == STILL_NO && !wg_has_sec(T))
		wg_set_end(b, c->node, CL_PROGRESSING, FATE_MOVING, WG_CERTAIN,
			   "it handles events");
	if (joins && wg_has_int(w->child) && w->child > 0 && joined_child(c)) {
		timed_end(c, T);
		return;
	}
	for (size_t i = 0; i < n; i++) {
		const struct wg_file *x = wg_fd(b, c->proc, fds[i].fd);
		int16_t ev = fds[i].events;
		bool ok = false;

		if (fds[i].fd < 0 || (others && own_wakeup(c, x)))
			continue;
		/* Always ready: nobody would sleep on it, so it is not what is waited for. */
		if (x && (x->kind == WG_FILE_REG ||
			  (x->kind == WG_FILE_CHAR && x->path && !strcmp(x->path, "/dev/null"))))
			continue;
		if (ev & (POLLIN | POLLPRI | POLLRDHUP) || !(ev & POLLOUT))
			ok |= fd_targets(c, x, false, loop, n == 1);
		/* A socket is writable nearly always: only a full one is waited for. */
		if (ev & POLLOUT && x &&
		    (x->kind == WG_FILE_PIPE || x->kind == WG_FILE_FIFO ||
		     (wg_has_int(x->sock_txq) && x->sock_txq > 0)))
			ok |= fd_targets(c, x, true, loop, n == 1);
		known += ok;
		watched++;
	}
	if (n == 1 && fds[0].fd >= 0) {
		const struct wg_file *x = wg_fd(b, c->proc, fds[0].fd);

		b->n.v[c->node].wobject = x && x->path ? x->path : NULL;
	} else if (n) {
		b->n.v[c->node].wobject = wg_say(b, "%zu descriptors", n);
	}
	if (!b->n.v[c->node].has_end) {
		if (wg_has_sec(T) && !watched) {
			wg_set_end(b, c->node, CL_IDLE, FATE_IDLE, WG_CERTAIN,
				   wg_say(b, "it sleeps for %s by a timer", wg_secs(b, T)));
			b->n.v[c->node].end.timer_s = T;
		} else if (known < watched || (!watched && !known)) {
			wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
				   "what it polls for could not be read");
			b->n.v[c->node].end.missing = "the descriptors that are polled";
		}
	}
	if (wg_has_sec(asked) && asked >= WG_PATIENCE && !b->n.v[c->node].has_end && known) {
		one_wait(c, asked);
		return;
	}
	/* An event loop sleeps until its next timer, however far that is. */
	if (w->op == WG_OP_EPOLL && wg_has_sec(T) && T > WG_SHORT_TIMEOUT &&
	    !b->n.v[c->node].has_end) {
		wg_set_end(b, c->node, CL_IDLE, FATE_IDLE, WG_CERTAIN,
			   wg_say(b, "its next timer is at most %s away", wg_secs(b, T)));
		b->n.v[c->node].end.timer_s = T;
	}
	timed_end(c, T);
}

/* Message queues are files; semaphores and System V queues are known by a number alone. */
void wg_resolve_ipc(struct wg_ctx *c)
{
	const struct wg_wait *w = &c->t->wait;
	const struct wg_file *x = wg_fd(c->b, c->proc, w->fd);
	const char *call = w->syscall_name ? w->syscall_name : "semop";
	bool sends = strstr(call, "send") || strstr(call, "snd"), fresh;
	struct wg_b *b = c->b;
	double T = wg_timeout(c->t);
	uint32_t end;

	b->n.v[c->node].wdoes = sends		      ? "sends a message"
				: strstr(call, "sem") ? "waits for a semaphore"
						      : "waits for a message";
	if (wg_still(b, c->p, c->t) == STILL_NO && !wg_has_sec(T)) {
		wg_set_end(b, c->node, CL_PROGRESSING, FATE_MOVING, WG_CERTAIN, "it goes on");
		return;
	}
	if (x && x->ino) {
		struct ends r;

		end = end_node(c, IT_PIPE, x, sends, &fresh);
		to_end(c, end);
		if (fresh) {
			r = add_holders(c, end,
					wg_map_get(&b->files, b->pi[c->proc].host, x->dev, x->ino),
					sends, sends ? WG_EDGE_READ_BY : WG_EDGE_WRITTEN_BY,
					sends ? CL_PIPE_FULL : CL_PEER_SILENT);
			if (!r.others)
				wg_set_end(b, end, sends ? CL_PIPE_FULL : CL_NO_WAKER, FATE_STUCK,
					   WG_LIKELY,
					   sends ? "no other process has the queue open to read it"
						 : "no other process has the queue open to write "
						   "to it");
		}
		timed_end(c, T);
		return;
	}
	end = wg_node(b, IT_LOCK, 1ull << 62 | (uint64_t)c->proc,
		      (wg_has_int(w->key) ? (uint64_t)w->key : 0) |
			      (wg_has_int(w->ipc_num) ? (uint64_t)(w->ipc_num + 1) << 32 : 0),
		      &fresh);
	if (fresh) {
		b->n.v[end].proc = c->proc;
		b->n.v[end].label = wg_has_int(w->key)
					    ? wg_say(b, "System V object %lld", (long long)w->key)
					    : "a System V object";
		b->n.v[end].mode = MODE_ANY;
		b->n.v[end].wsince = w->since_s;
	}
	to_end(c, end);
	if (b->n.v[end].has_end || (b->n.v[end].nout && !b->e.v[b->n.v[end].first - 1].guess) ||
	    (!b->n.v[end].nout && wg_sysv_targets(c, end))) {
		timed_end(c, T);
		return;
	}
	if (b->n.v[end].nout || wg_kin_targets(c, end)) {
		wg_set_end(b, c->node, CL_NO_WAKER, FATE_STUCK, WG_LIKELY,
			   "no process of its family that could act can still run");
	} else {
		wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "nothing tells which process should act");
		b->n.v[c->node].end.missing = "who uses a System V object beside this process";
	}
	timed_end(c, T);
}

/*
 * Who shares an object without a name to follow: the family that runs the same program, for such
 * objects are mostly made before a fork. Edges by elimination; one that has ended explains most.
 */
bool wg_kin_targets(struct wg_ctx *c, uint32_t from)
{
	const struct wg_process *p = c->p;
	struct wg_b *b = c->b;
	bool any = false;

	for (uint32_t i = 0; i < b->np; i++) {
		const struct wg_process *o = b->pi[i].p;
		struct wg_iedge *e;
		bool kin = o->ppid == p->pid || p->ppid == o->pid ||
			   (o->ppid == p->ppid && o->ppid > 1);

		if ((int32_t)i == c->proc || b->pi[i].host != b->pi[c->proc].host || !kin ||
		    o->stub)
			continue;
		if (o->exe && p->exe ? strcmp(o->exe, p->exe)
				     : !o->comm || !p->comm || strcmp(o->comm, p->comm))
			continue;
		e = wg_edge(b, from, wg_process_actor(b, (int32_t)i), WG_EDGE_WOKEN_BY, false,
			    b->pi[i].dead ? "a process of its family that has ended"
					  : "a process of its family, which may share it");
		e->guess = true;
		e->since = c->t->wait.since_s;
		if (!b->pi[i].dead)
			e->idle_cls = CL_NO_WAKER;
		any = true;
	}
	return any;
}
