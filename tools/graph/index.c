/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c - hash tables over the facts, so that no resolver scans.
 *
 * Node numbers of threads are contiguous by process (pinfo.tbase + index), then come the
 * processes themselves, then everything that resolvers add.
 */
#include "internal.h"

static uint64_t str_hash(const char *s)
{
	uint64_t h = 0xcbf29ce484222325ull;

	for (; s && *s; s++)
		h = (h ^ (unsigned char)*s) * 0x100000001b3ull;
	return h;
}

static bool str_same(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

/* Processes of several hosts and boots can meet in one set of facts: their numbers overlap. */
static uint32_t host_of(struct wg_b *b, const struct wg_process *p)
{
	const char *host = p->host ? p->host : b->f->host, *boot = p->boot ? p->boot : b->f->boot;
	const char *key = wg_say(b, "%s/%s", host ? host : "", boot ? boot : "");

	for (uint32_t i = 0; i < b->hosts.n; i++)
		if (!strcmp(b->hosts.v[i], key))
			return i;
	*wg_push(b->a, &b->hosts) = key;
	return (uint32_t)b->hosts.n - 1;
}

int32_t wg_pid_proc(const struct wg_b *b, uint32_t host, int32_t pid)
{
	uint32_t v = pid > 0 ? wg_map_get(&b->pids, host, (uint64_t)pid, 0) : WG_NONE;

	return v == WG_NONE ? -1 : (int32_t)v;
}

static int32_t ns_tid_of(const struct wg_thread *t)
{
	return t->ns_tid ? t->ns_tid : t->tid;
}

uint32_t wg_tid_node(struct wg_b *b, int32_t proc, int32_t ns_tid)
{
	struct wg_pinfo *pi = &b->pi[proc];

	if (!pi->nstids.cap)
		for (uint32_t i = 0; i < pi->p->threads.n; i++)
			wg_map_put(b->a, &pi->nstids, (uint64_t)ns_tid_of(&pi->p->threads.v[i]), 0,
				   0, pi->tbase + i);
	return wg_map_get(&pi->nstids, (uint64_t)ns_tid, 0, 0);
}

uint32_t wg_any_tid_node(struct wg_b *b, uint32_t host, int32_t tid)
{
	if (!b->tids.cap)
		for (uint32_t i = 0; i < b->np; i++)
			for (uint32_t k = 0; k < b->pi[i].p->threads.n; k++)
				wg_map_put(b->a, &b->tids, b->pi[i].host,
					   (uint64_t)b->pi[i].p->threads.v[k].tid, 0,
					   b->pi[i].tbase + k);
	return wg_map_get(&b->tids, host, (uint64_t)tid, 0);
}

uint32_t wg_shared_tid_node(struct wg_b *b, uint64_t pidns, int32_t ns_tid)
{
	if (!b->sharedtids.cap)
		for (uint32_t i = 0; i < b->np; i++)
			for (uint32_t k = 0; k < b->pi[i].p->threads.n; k++)
				wg_map_put(b->a, &b->sharedtids, b->pi[i].p->pidns,
					   (uint64_t)ns_tid_of(&b->pi[i].p->threads.v[k]), 0,
					   b->pi[i].tbase + k);
	return wg_map_get(&b->sharedtids, pidns, (uint64_t)ns_tid, 0);
}

uint32_t wg_fsbase_node(struct wg_b *b, int32_t proc, uint64_t fsbase)
{
	struct wg_pinfo *pi = &b->pi[proc];

	if (!fsbase)
		return WG_NONE;
	if (!pi->have_fsbase)
		for (uint32_t i = 0; i < pi->p->threads.n; i++)
			if (pi->p->threads.v[i].fsbase)
				wg_map_put(b->a, &pi->fsbase, pi->p->threads.v[i].fsbase, 0, 0,
					   pi->tbase + i);
	pi->have_fsbase = true;
	return wg_map_get(&pi->fsbase, fsbase, 0, 0);
}

uint32_t wg_same_stack(struct wg_b *b, int32_t proc, const struct wg_thread *t)
{
	struct wg_pinfo *pi = &b->pi[proc];
	uint64_t h = wg_stack_hash(t);
	uint32_t n;

	if (!h)
		return 0;
	if (!pi->have_stacks) {
		pi->have_stacks = true;
		for (uint32_t i = 0; i < pi->p->threads.n; i++) {
			uint64_t k = wg_stack_hash(&pi->p->threads.v[i]);

			if (!k)
				continue;
			n = wg_map_get(&pi->stacks, k, 0, 0);
			wg_map_put(b->a, &pi->stacks, k, 0, 0, n == WG_NONE ? 1 : n + 1);
		}
	}
	n = wg_map_get(&pi->stacks, h, 0, 0);
	return n == WG_NONE ? 0 : n;
}

const struct wg_file *wg_fd(const struct wg_b *b, int32_t proc, int64_t fd)
{
	uint32_t v = fd < 0 ? WG_NONE : wg_map_get(&b->fds, (uint64_t)proc, (uint64_t)fd, 0);

	return v == WG_NONE ? NULL : &b->pi[proc].p->files.v[v];
}

const struct wg_env *wg_env_of(const struct wg_process *p, const char *name)
{
	for (size_t i = 0; i < p->env.n; i++)
		if (p->env.v[i].name && !strcmp(p->env.v[i].name, name))
			return &p->env.v[i];
	return NULL;
}

bool wg_is_ancestor(const struct wg_b *b, int32_t anc, int32_t proc)
{
	int depth = 0;

	while (proc >= 0 && depth++ < 64) {
		proc = b->pi[proc].parent;
		if (proc == anc)
			return anc >= 0;
	}
	return false;
}

static void hold(struct wg_b *b, struct wg_map *m, uint64_t k0, uint64_t k1, uint64_t k2,
		 int32_t proc, uint32_t file)
{
	uint32_t first = wg_map_get(m, k0, k1, k2);
	struct wg_holder *h = wg_push(b->a, &b->holders);

	h->proc = proc;
	h->file = file;
	h->next = first == WG_NONE ? 0 : first;
	wg_map_put(b->a, m, k0, k1, k2, (uint32_t)b->holders.n);
}

static void index_files(struct wg_b *b, int32_t proc)
{
	const struct wg_process *p = b->pi[proc].p;
	uint32_t host = b->pi[proc].host;

	for (uint32_t i = 0; i < p->files.n; i++) {
		const struct wg_file *x = &p->files.v[i];

		if (x->fd >= 0)
			wg_map_put(b->a, &b->fds, (uint64_t)proc, (uint64_t)x->fd, 0, i);
		if (!x->ino)
			continue;
		if (x->kind == WG_FILE_PIPE || x->kind == WG_FILE_FIFO)
			hold(b, &b->pipes, host, x->kind == WG_FILE_PIPE ? 0 : x->dev, x->ino, proc,
			     i);
		else if (x->kind == WG_FILE_SOCKET)
			hold(b, &b->socks, host, x->ino, 0, proc, i);
		else if (x->kind == WG_FILE_EVENTFD)
			hold(b, &b->eventfds, host, x->ino, 0, proc, i);
		else if (x->kind == WG_FILE_REG || x->kind == WG_FILE_MEMFD ||
			 x->kind == WG_FILE_DIR)
			hold(b, &b->files, host, x->dev, x->ino, proc, i);
	}
}

struct wg_group *wg_group_of(struct wg_b *b, const char *id)
{
	uint64_t h = str_hash(id);

	if (!id)
		return NULL;
	for (uint64_t k = 0;; k++) {
		uint32_t v = wg_map_get(&b->groupmap, h, k, 0);

		if (v == WG_NONE)
			return NULL;
		if (!strcmp(b->groups.v[v].id, id))
			return &b->groups.v[v];
	}
}

static void group_add(struct wg_b *b, const char *id, int64_t size, int64_t rank)
{
	uint64_t h = str_hash(id), k = 0;
	struct wg_group *g = wg_group_of(b, id);

	if (!g) {
		while (wg_map_get(&b->groupmap, h, k, 0) != WG_NONE)
			k++;
		wg_map_put(b->a, &b->groupmap, h, k, 0, (uint32_t)b->groups.n);
		g = wg_push(b->a, &b->groups);
		g->id = id;
		g->size = -1;
		g->mismatch_seq = -1;
		g->mismatch_rank = WG_NO_INT;
	}
	/* A size comes from a file that anyone may have written: bound what it makes us allocate.
	 */
	if (wg_has_int(size) && size > 0 && size <= 1 << 20 && g->size < size)
		g->size = size;
	if (wg_has_int(rank) && rank >= 0 && rank < 1 << 20 && rank + 1 > g->nmember)
		g->nmember = rank + 1;
}

static bool better_member(const struct wg_process *old, const struct wg_comm *oc,
			  const struct wg_process *p, const struct wg_comm *c)
{
	if (old->trace_only != p->trace_only)
		return old->trace_only;
	if (old->alive != p->alive)
		return p->alive;
	return !oc || c->next_sequence > oc->next_sequence;
}

/*
 * A rank that has exited takes its record along. What is left of it is a zombie (or what an
 * observer saw of its end) beside its siblings: of the same name, from the same parent (or its
 * child), started with them. By elimination it is the rank of which nobody knows anything.
 */
static void dead_siblings(struct wg_b *b, struct wg_group *g)
{
	const struct wg_process *some = NULL;
	int64_t r = 0, unseen = 0;
	int32_t host = -1;

	for (int64_t k = 0; k < g->nmember; k++) {
		if (g->member[k].comm && !some) {
			some = b->pi[g->member[k].proc].p;
			host = (int32_t)b->pi[g->member[k].proc].host;
		}
		unseen += g->member[k].proc < 0 && !g->member[k].peer;
	}
	if (!some || !unseen || !some->comm)
		return;
	for (uint32_t i = 0; i < b->np && unseen; i++) {
		const struct wg_process *p = b->pi[i].p;
		int64_t apart = (int64_t)(p->start_ticks - some->start_ticks);
		bool taken = false;

		if (!b->pi[i].dead || (int32_t)b->pi[i].host != host || !p->comm ||
		    strcmp(p->comm, some->comm) || p->comms.n)
			continue;
		if (p->ppid != some->ppid && p->ppid != some->pid && p->pid != some->ppid)
			continue;
		if (p->start_ticks && some->start_ticks && (apart > 60000 || apart < -60000))
			continue;
		for (int64_t k = 0; k < g->nmember && !taken; k++)
			taken = g->member[k].proc == (int32_t)i;
		if (taken)
			continue;
		while (r < g->nmember && (g->member[r].proc >= 0 || g->member[r].peer))
			r++;
		if (r >= g->nmember)
			return;
		g->member[r].proc = (int32_t)i;
		g->member[r].guessed = unseen > 1 || !p->start_ticks;
		unseen--;
	}
}

static void index_comms(struct wg_b *b)
{
	for (uint32_t i = 0; i < b->np; i++) {
		const struct wg_process *p = b->pi[i].p;

		for (size_t k = 0; k < p->comms.n; k++)
			if (p->comms.v[k].id)
				group_add(b, p->comms.v[k].id, p->comms.v[k].size,
					  p->comms.v[k].rank);
		for (size_t k = 0; k < p->peers.n; k++)
			if (p->peers.v[k].comm)
				group_add(b, p->peers.v[k].comm, WG_NO_INT, p->peers.v[k].rank);
	}
	for (size_t k = 0; k < b->groups.n; k++) {
		struct wg_group *g = &b->groups.v[k];

		if (g->size > g->nmember)
			g->nmember = g->size;
		g->member = wg_alloc(b->a, (size_t)g->nmember * sizeof(*g->member) + 1);
		for (int64_t r = 0; r < g->nmember; r++)
			g->member[r].proc = -1;
	}
	for (uint32_t i = 0; i < b->np; i++) {
		const struct wg_process *p = b->pi[i].p;

		for (size_t k = 0; k < p->comms.n; k++) {
			const struct wg_comm *c = &p->comms.v[k];
			struct wg_group *g = wg_group_of(b, c->id);
			struct wg_member *m;

			if (!g || !wg_has_int(c->rank) || c->rank < 0 || c->rank >= g->nmember)
				continue;
			m = &g->member[c->rank];
			if (m->proc >= 0 && !better_member(b->pi[m->proc].p, m->comm, p, c))
				continue;
			m->proc = (int32_t)i;
			m->comm = c;
			for (size_t s = 0; s < c->recent.n; s++)
				if (c->recent.v[s].p2p)
					g->p2p_seen = true;
		}
	}
	/* What ranks tell about each other, for those of which no facts of their own exist. */
	for (uint32_t i = 0; i < b->np; i++) {
		const struct wg_process *p = b->pi[i].p;

		for (size_t k = 0; k < p->peers.n; k++) {
			const struct wg_peer *x = &p->peers.v[k];
			struct wg_group *g = wg_group_of(b, x->comm);
			struct wg_member *m;

			if (!g || x->rank < 0 || x->rank >= g->nmember)
				continue;
			m = &g->member[x->rank];
			if (!m->peer || (x->alive_known && !m->peer->alive_known))
				m->peer = x;
			if (m->proc < 0 && wg_has_int(x->pid) && x->pid > 0 &&
			    (!x->host || str_same(x->host, p->host ? p->host : b->f->host)))
				m->proc = wg_pid_proc(b, b->pi[i].host, (int32_t)x->pid);
		}
	}
	/*
	 * A launcher's rank and a communicator's coincide when the communicator spans the job:
	 * then a rank that has not even reached the communicator can still be found.
	 */
	for (size_t k = 0; k < b->groups.n; k++) {
		struct wg_group *g = &b->groups.v[k];
		bool spans = g->size > 0;

		for (int64_t r = 0; r < g->nmember && spans; r++)
			if (g->member[r].comm && g->member[r].proc >= 0) {
				const struct wg_process *p = b->pi[g->member[r].proc].p;

				if (wg_has_int(p->rank) &&
				    (p->rank != r || (wg_has_int(p->world) && p->world != g->size)))
					spans = false;
				if (!wg_has_int(p->rank))
					spans = false;
			}
		for (uint32_t i = 0; i < b->np && spans; i++) {
			const struct wg_process *p = b->pi[i].p;

			if (!wg_has_int(p->rank) || p->rank < 0 || p->rank >= g->nmember ||
			    p->forked || g->member[p->rank].proc >= 0)
				continue;
			if (!wg_has_int(p->world) || p->world == g->size)
				g->member[p->rank].proc = (int32_t)i;
		}
		dead_siblings(b, g);
		for (int64_t r = 0; r < g->nmember; r++) {
			struct wg_member *m = &g->member[r];

			if (m->proc >= 0)
				m->dead = b->pi[m->proc].dead;
			else if (m->peer)
				m->dead = m->peer->alive_known && !m->peer->alive;
		}
	}
}

/*
 * Dead, for the purposes of the graph. A snapshot shows its process as it was; when the whole
 * job has been cleaned up since, that all of it is gone now says nothing about the hang.
 */
static bool is_dead(const struct wg_b *b, const struct wg_process *p, bool others_live)
{
	if (p->alive)
		return false;
	if (!p->from_snapshot)
		return true;
	if (p->trace_only)
		return p->end.known || (p->alive_known && others_live);
	if (!p->alive_known)
		return true; /* it was dead when the snapshot was taken */
	if (p->died_since && !b->with_deaths_since)
		return false;
	return others_live;
}

static int64_t comm_rank(const struct wg_process *p)
{
	const struct wg_comm *best = NULL;

	for (size_t i = 0; i < p->comms.n; i++)
		if (wg_has_int(p->comms.v[i].rank) && (!best || p->comms.v[i].size > best->size))
			best = &p->comms.v[i];
	return best ? best->rank : WG_NO_INT;
}

static bool of_job(const struct wg_process *p)
{
	return !p->stub && (p->recorded || wg_has_int(p->rank) || p->comms.n || p->trace_only);
}

void wg_index(struct wg_b *b)
{
	const struct wg_facts *f = b->f;
	bool others_live = false;
	uint32_t base = 0;

	b->np = (uint32_t)f->procs.n;
	b->pi = wg_alloc(b->a, b->np * sizeof(*b->pi) + 1);
	for (uint32_t i = 0; i < b->np; i++) {
		if (f->procs.v[i]->from_snapshot && f->procs.v[i]->alive)
			others_live = true;
		base += (uint32_t)f->procs.v[i]->threads.n;
	}
	/* Threads first, then processes: their nodes are found by arithmetic. */
	b->n.cap = base + base / 2 + b->np * 4 + 64;
	b->n.v = wg_alloc(b->a, b->n.cap * sizeof(*b->n.v));
	b->n.n = base + b->np;
	b->e.cap = base + base / 2 + b->np + 64;
	b->e.v = wg_alloc(b->a, b->e.cap * sizeof(*b->e.v));
	base = 0;
	for (uint32_t i = 0; i < b->np; i++) {
		struct wg_process *p = f->procs.v[i];
		struct wg_pinfo *pi = &b->pi[i];

		pi->p = p;
		pi->tbase = base;
		pi->host = host_of(b, p);
		pi->main_thr = -1;
		pi->parent = -1;
		pi->dead = is_dead(b, p, others_live);
		/* Whoever waits for this very answer does not wait for work. */
		pi->is_self = !p->from_snapshot && ((f->self_pid && p->pid == f->self_pid) ||
						    (p->comm && !strcmp(p->comm, "waitgraph")));
		pi->rank = wg_has_int(p->rank) ? p->rank : comm_rank(p);
		for (uint32_t k = 0; k < p->threads.n; k++) {
			struct wg_inode *n = &b->n.v[base + k];

			n->type = IT_THREAD;
			n->proc = (int32_t)i;
			n->thr = (int32_t)k;
			n->mode = MODE_ANY;
			n->wsince = p->threads.v[k].wait.since_s;
			n->end.timer_s = WG_NO_SEC;
			n->end.pid = n->end.tid = n->end.rank = WG_NO_INT;
			pi->nown += !p->threads.v[k].ours;
			if (p->threads.v[k].tid == p->pid)
				pi->main_thr = (int32_t)k;
		}
		if (pi->main_thr < 0 && p->threads.n)
			pi->main_thr = 0;
		/* A leader that left by pthread_exit() is a zombie: the others are the program
		 * then. */
		for (uint32_t k = 0; pi->main_thr >= 0 && k < p->threads.n; k++) {
			char s = p->threads.v[pi->main_thr].state;

			if (s != 'Z' && s != 'X')
				break;
			if (p->threads.v[k].state != 'Z' && p->threads.v[k].state != 'X' &&
			    !p->threads.v[k].ours)
				pi->main_thr = (int32_t)k;
		}
		base += (uint32_t)p->threads.n;
		wg_map_put(b->a, &b->pids, pi->host, (uint64_t)p->pid, 0, i);
	}
	for (uint32_t i = 0; i < b->np; i++) {
		struct wg_inode *n = &b->n.v[base + i];
		const struct wg_process *p = b->pi[i].p;

		b->pi[i].node = base + i;
		n->type = IT_PROCESS;
		n->proc = (int32_t)i;
		n->thr = -1;
		n->mode = MODE_ANY;
		n->wsince = WG_NO_SEC;
		n->end.timer_s = WG_NO_SEC;
		n->end.pid = n->end.tid = n->end.rank = WG_NO_INT;
		b->pi[i].parent = wg_pid_proc(b, b->pi[i].host, p->ppid);
		if (b->pi[i].parent == (int32_t)i)
			b->pi[i].parent = -1;
		index_files(b, (int32_t)i);
		for (uint32_t k = 0; k < p->python.locks.n && k < 4096; k++) {
			const struct wg_pylock *l = &p->python.locks.v[k];

			if (l->has_map && l->map_ino && (l->owner_tid || l->owner_gone))
				wg_map_put(b->a, &b->pylocks, l->map_dev, l->map_ino, l->map_off,
					   (i << 12 | k) + 1);
		}
	}
	for (size_t k = 0; k < f->asked.n; k++)
		for (uint32_t i = 0; i < b->np; i++)
			if (b->pi[i].p->pid == f->asked.v[k] && (!f->live || !b->pi[i].p->from_snapshot))
				b->pi[i].asked = true;
	if (!f->asked.n) { /* snapshots, traces: the job, not what was looked at beside it */
		bool job = false;

		for (uint32_t i = 0; i < b->np; i++)
			job |= of_job(b->pi[i].p);
		for (uint32_t i = 0; i < b->np; i++)
			b->pi[i].asked = job ? of_job(b->pi[i].p) : !b->pi[i].p->stub;
	}
	b->flock_next = wg_alloc(b->a, f->locks.n * sizeof(*b->flock_next) + 1);
	for (uint32_t k = (uint32_t)f->locks.n; k-- > 0;) {
		const struct wg_file_lock *l = &f->locks.v[k];
		uint32_t first = wg_map_get(&b->flocks, l->dev, l->ino, 0);

		b->flock_next[k] = first == WG_NONE ? 0 : first;
		wg_map_put(b->a, &b->flocks, l->dev, l->ino, 0, k + 1);
	}
	for (size_t k = 0; k < f->gone_tids.n; k++)
		wg_map_put(b->a, &b->gone, (uint64_t)f->gone_tids.v[k], 0, 0, 1);
	index_comms(b);
}
