/* SPDX-License-Identifier: Apache-2.0 */
/*
 * resolve_futex.c - whose futex: from the words around the address to the owner.
 *
 * The shapes are glibc's, as measured; the owner's number is believed only when the rest of the
 * structure is plausible. What has no owner word (conditions, semaphores, Python's locks) goes
 * to wg_resolve_ownerless(): then the question is who could signal it at all.
 */
#include "internal.h"

#define FUTEX_CMD 0x7f
enum { F_WAIT = 0, F_LOCK_PI = 6, F_WAIT_BITSET = 9, F_WAIT_REQUEUE_PI = 11, F_LOCK_PI2 = 13 };
#define OWNER_MASK 0x3fffffffu
#define OWNER_DIED 0x40000000u
#define MAX_TID 4194304 /* PID_MAX_LIMIT */

static uint32_t lock_node(struct wg_ctx *c, const char *what)
{
	struct wg_b *b = c->b;
	const struct wg_futex *fx = &c->t->wait.futex;
	struct wg_inode *n;
	uint32_t ix;
	bool fresh;

	if (wg_shared_word(fx) && fx->map_ino)
		ix = wg_node(b, IT_LOCK, fx->map_ino ^ fx->map_dev << 40 ^ 1ull << 63, fx->map_off,
			     &fresh);
	else
		ix = wg_node(b, IT_LOCK, (uint64_t)c->proc, fx->addr, &fresh);
	n = &b->n.v[ix];
	if (fresh) {
		n->proc = c->proc;
		n->label = wg_say(b, "%s 0x%llx", what, (unsigned long long)fx->addr);
	}
	/* The longest wait is how long it has been held at least. */
	if (wg_has_sec(c->t->wait.since_s) &&
	    (!wg_has_sec(n->wsince) || c->t->wait.since_s > n->wsince))
		n->wsince = c->t->wait.since_s;
	b->n.v[c->node].wobject = n->label;
	return ix;
}

static void wait_edge(struct wg_ctx *c, uint32_t lock, const char *evidence)
{
	struct wg_iedge *e = wg_edge(c->b, c->node, lock, WG_EDGE_WAITS_FOR, true, evidence);

	e->since = c->t->wait.since_s;
}

/* A timed wait that is short ends by itself: the thread looks again. */
static void timed(struct wg_ctx *c)
{
	double T = wg_timeout(c->t);
	struct wg_inode *n = &c->b->n.v[c->node];

	if (!wg_has_sec(T) || T > WG_SHORT_TIMEOUT || n->has_end)
		return;
	wg_set_end(c->b, c->node, CL_IDLE, FATE_IDLE, WG_CERTAIN,
		   wg_say(c->b, "it looks again after at most %s", wg_secs(c->b, T)));
	c->b->n.v[c->node].end.timer_s = T;
}

static void owner_gone(struct wg_ctx *c, uint32_t lock, int32_t owner, enum wg_certainty sure)
{
	struct wg_b *b = c->b;
	const struct wg_process *p = c->p;
	int32_t parent = b->pi[c->proc].parent, self = p->ns_pid ? p->ns_pid : p->pid;
	struct wg_inode *n;

	if (p->forked && !wg_shared_word(&c->t->wait.futex)) {
		uint32_t t = parent >= 0 ? wg_tid_node(b, parent, owner) : WG_NONE;

		/* Numbers grow: one below the child's own was given out before the fork. */
		if (t != WG_NONE || (owner < self && owner != self)) {
			wg_set_end(
				b, lock, CL_LOCK_AFTER_FORK, FATE_STUCK,
				t != WG_NONE ? sure : WG_LIKELY,
				t != WG_NONE
					? wg_say(b,
						 "thread %d held it in the parent, pid %d, when "
						 "pid %d was forked; that thread does not exist "
						 "here",
						 owner, b->pi[parent].p->pid, p->pid)
					: wg_say(b,
						 "thread %d held it in the parent when pid %d was "
						 "forked; that thread does not exist here",
						 owner, p->pid));
			n = &b->n.v[lock];
			n->end.gone = true;
			n->end.pid = p->pid;
			n->end.tid = c->t->tid;
			n->end.who = wg_say(b,
					    "forked child that waits for a lock of its parent's "
					    "thread %d",
					    owner);
			return;
		}
	}
	wg_set_end(b, lock, CL_LOCK_ORPHANED, FATE_STUCK, sure,
		   wg_say(b, "its owner, thread %d, has ended while it held the lock", owner));
	n = &b->n.v[lock];
	n->end.gone = true;
	n->end.pid = wg_shared_word(&c->t->wait.futex) ? WG_NO_INT : p->pid;
	n->end.tid = owner;
	n->end.who = wg_say(b, "thread %d, which has ended", owner);
}

/* A shared lock's owner that is a whole process which is known to have ended. */
static bool owner_process(struct wg_ctx *c, uint32_t lock, int32_t owner, enum wg_certainty sure)
{
	struct wg_b *b = c->b;
	int32_t i = wg_pid_proc(b, b->pi[c->proc].host, owner);
	struct wg_inode *n;

	if (i < 0 || !b->pi[i].dead)
		return false;
	owner_gone(c, lock, owner, sure);
	n = &b->n.v[lock];
	n->end.pid = owner;
	n->end.who = wg_say(b, "process %d, which has ended", owner);
	return true;
}

static void owned(struct wg_ctx *c, const char *what, int32_t owner, enum wg_certainty sure,
		  bool died, const char *how)
{
	struct wg_b *b = c->b;
	const struct wg_futex *fx = &c->t->wait.futex;
	uint32_t lock = lock_node(c, what);
	uint32_t o = wg_tid_node(b, c->proc, owner);
	struct wg_inode *n;

	wait_edge(c, lock, "futex address and value");
	timed(c);
	if (b->n.v[lock].nout || b->n.v[lock].has_end)
		return; /* another waiter has found the owner */
	if (o == WG_NONE && wg_shared_word(fx))
		o = wg_shared_tid_node(b, c->p->pidns, owner);
	if (o != WG_NONE && !died) {
		const struct wg_thread *ot = wg_thr(b, &b->n.v[o]);
		int32_t op = b->n.v[o].proc;

		if (!b->pi[op].dead && ot->state != 'Z' && ot->state != 'X') {
			/* A process of another PID namespace counts differently: the number may
			 * belong to somebody else. */
			bool same_ns = op == c->proc || (b->pi[op].p->pidns && c->p->pidns &&
							 b->pi[op].p->pidns == c->p->pidns);

			wg_edge(b, lock, o, WG_EDGE_HELD_BY, sure == WG_CERTAIN && same_ns, how);
			return;
		}
		owner_gone(c, lock, owner, sure);
		n = &b->n.v[lock];
		n->end.pid = b->pi[op].p->pid;
		return;
	}
	if (!wg_shared_word(fx) || died) {
		if (!wg_shared_word(fx) || !owner_process(c, lock, owner, sure))
			owner_gone(c, lock, owner, sure);
		return;
	}
	if (owner_process(c, lock, owner, sure))
		return;
	if (wg_map_get(&b->gone, (uint64_t)owner, 0, 0) != WG_NONE &&
	    (!c->p->ns_pid || c->p->ns_pid == c->p->pid)) {
		owner_gone(c, lock, owner, sure);
		b->n.v[lock].end.pid = owner;
		return;
	}
	/*
	 * Whoever maps a shared word was collected with its waiter. When all of them could be
	 * seen and none has such a thread, the owner is gone, unless it counts in another
	 * namespace.
	 */
	if (fx->has_map && b->f->live && (b->f->is_root || b->f->fd_scan_complete) &&
	    (!c->p->ns_pid || c->p->ns_pid == c->p->pid) && !c->p->from_snapshot) {
		owner_gone(c, lock, owner, WG_LIKELY);
		b->n.v[lock].end.pid = owner;
		return;
	}
	wg_set_end(b, lock, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
		   wg_say(b, "its owner is thread %d%s, of which nothing is known", owner,
			  c->p->ns_pid && c->p->ns_pid != c->p->pid
				  ? " of a PID namespace of its own"
				  : ""));
	n = &b->n.v[lock];
	n->end.missing =
		wg_say(b, "whether thread %d, the owner of a shared lock, still exists", owner);
}

/* Type, robust, inheriting, protecting, shared; 0x100 and 0x200: with and without lock elision. A
 * type that was set to PTHREAD_MUTEX_NORMAL by name has the last, as C11's mutexes do. */
static bool plausible_kind(uint32_t kind)
{
	return (kind & ~0x3ffu) == 0;
}

static bool in_stdio(const struct wg_thread *t)
{
	static const char *const fns[] = {
		"_IO_",	     "fputs",	    "fwrite",  "fread",	 "printf", "vfprintf", "puts",
		"flockfile", "__flockfile", "fgets",   "getc",	 "putc",   "fflush",   "fclose",
		"fprintf",   "getline",	    "putchar", "ungetc", "fseek"};

	for (size_t i = 0; i < sizeof(fns) / sizeof(fns[0]); i++)
		if (wg_has_symbol_prefix(t, fns[i]))
			return true;
	return false;
}

/* Nothing has a name here, but the words are a stdio lock's: a count, and a control block's
 * address. */
static bool stdio_words(const struct wg_ctx *c)
{
	const uint32_t *w = c->t->wait.futex.words;

	for (size_t i = 0; i < c->t->native_stack.n; i++)
		if (c->t->native_stack.v[i].symbol)
			return false;
	return c->t->native_stack.n && w[1] >= 1 && w[1] < 1000 && !(w[2] & 63);
}

static bool knows_tcbs(const struct wg_ctx *c)
{
	for (size_t i = 0; i < c->p->threads.n; i++)
		if (!c->p->threads.v[i].fsbase)
			return false;
	return true;
}

/* The owner is written as a thread descriptor that is none of the process' threads'. */
static void stdio_orphan(struct wg_ctx *c, uint64_t tcb)
{
	struct wg_b *b = c->b;
	uint32_t lock = lock_node(c, "stdio stream lock");
	struct wg_iend *e;

	wait_edge(c, lock, "futex address and value");
	if (b->n.v[lock].has_end)
		return;
	wg_set_end(b, lock, c->p->forked ? CL_LOCK_AFTER_FORK : CL_LOCK_ORPHANED, FATE_STUCK,
		   WG_CERTAIN,
		   wg_say(b, "its owner (thread descriptor 0x%llx) %s", (unsigned long long)tcb,
			  c->p->forked ? "existed only in the parent"
				       : "has ended while it held the lock"));
	e = &b->n.v[lock].end;
	e->gone = true;
	e->pid = c->p->pid;
	e->tid = c->p->forked ? c->t->tid : WG_NO_INT;
	e->who = c->p->forked ? "forked child that waits for a lock of its parent's"
			      : "a thread that has ended";
}

/*
 * Called by something else than the C library: a lock of the program's, of a runtime's or of
 * another language, whose words mean what their author likes. glibc's own locks wait inside of it.
 */
static bool not_libcs(const struct wg_ctx *c)
{
	const struct wg_frame *f = c->t->native_stack.n ? &c->t->native_stack.v[0] : NULL;
	bool dynamic = false;

	if (!f || !f->module)
		return false;
	if (f->symbol && !strcmp(f->symbol, "syscall"))
		return true;
	for (size_t i = 0; i < c->p->modules.n; i++)
		dynamic |= !strncmp(c->p->modules.v[i], "libc.so", 7) ||
			   !strncmp(c->p->modules.v[i], "libc-", 5);
	return dynamic && !wg_is_plumbing(f);
}

static bool in_mutex_lock(const struct wg_thread *t)
{
	for (size_t i = 0; i < t->native_stack.n && i < 6; i++) {
		const char *s = t->native_stack.v[i].symbol;

		while (s && *s == '_')
			s++;
		if (s && !strncmp(s, "pthread_cond", 12))
			return false;
		if (s && !strncmp(s, "pthread_mutex_lock", 18))
			return true;
	}
	return false;
}

/*
 * An inheriting mutex that would close a ring: the kernel refuses it, and glibc then waits for ever
 * on a word of its own, for that is what the standard asks for. Which mutex it was is told nowhere;
 * who waits for one that this thread holds, is the rest of the ring. Nobody: it holds it itself.
 */
static void refused(struct wg_ctx *c)
{
	struct wg_b *b = c->b;
	int32_t self = c->t->ns_tid ? c->t->ns_tid : c->t->tid;

	b->n.v[c->node].wobject = "priority-inheriting mutex";
	for (uint32_t i = 0; i < c->p->threads.n; i++) {
		const struct wg_thread *o = &c->p->threads.v[i];
		int cmd = o->wait.futex.op & FUTEX_CMD;
		struct wg_iedge *e;

		if (o == c->t || o->wait.op != WG_OP_FUTEX || o->wait.futex.nwords < 1 ||
		    (cmd != F_LOCK_PI && cmd != F_LOCK_PI2) ||
		    (int32_t)(o->wait.futex.words[0] & OWNER_MASK) != self)
			continue;
		e = wg_edge(b, c->node, b->pi[c->proc].tbase + i, WG_EDGE_WAITS_FOR, false,
			    "the kernel has refused a mutex that would close a ring, and that "
			    "thread waits "
			    "for one that this thread holds");
		e->says = "for a priority-inheriting mutex, in a ring with";
		e->since = c->t->wait.since_s;
		return;
	}
	wg_set_end(b, c->node, CL_LOCK_SELF, FATE_STUCK, WG_LIKELY,
		   "it locks a priority-inheriting mutex that it holds itself: the kernel has "
		   "refused, and "
		   "the library waits for ever");
}

bool wg_futex_owned(struct wg_ctx *c)
{
	const struct wg_futex *fx = &c->t->wait.futex;
	const uint32_t *w = fx->words;
	int cmd = fx->op & FUTEX_CMD;
	uint32_t o, tid;

	if (c->t->wait.op != WG_OP_FUTEX || fx->nwords < 1)
		return false;
	if (cmd == F_LOCK_PI || cmd == F_LOCK_PI2) {
		tid = w[0] & OWNER_MASK;
		if (!tid || tid >= MAX_TID)
			return false;
		owned(c, "priority-inheriting mutex", (int32_t)tid, WG_CERTAIN, w[0] & OWNER_DIED,
		      "the lock word");
		return true;
	}
	if (cmd != F_WAIT && cmd != F_WAIT_BITSET)
		return false;
	/* pthread_join: the word is the thread's own number, cleared by the kernel at its end */
	if (fx->is_shared && fx->val && fx->val == w[0] && !(w[0] & 0xc0000000u)) {
		o = wg_tid_node(c->b, c->proc, (int32_t)w[0]);
		if (o != WG_NONE && o != c->node) {
			struct wg_iedge *e =
				wg_edge(c->b, c->node, o, WG_EDGE_WAITS_FOR, true,
					"the word waited on holds that thread's number");
			struct wg_inode *n = &c->b->n.v[c->node];

			e->since = c->t->wait.since_s;
			e->says = "for the end of";
			n->wkind = "join";
			n->wdoes = "joins a thread";
			n->wobject = wg_say(c->b, "thread %u", w[0]);
			timed(c);
			return true;
		}
	}
	if (!fx->val && !w[0] && in_mutex_lock(c->t)) {
		refused(c);
		return true;
	}
	if (not_libcs(c))
		return false;
	/* robust: the owner's number stands in the word itself; a future's word has no number */
	if ((fx->val & 0x80000000u) && (fx->val & OWNER_MASK) && (w[0] & OWNER_MASK) &&
	    fx->is_shared && (w[0] & OWNER_MASK) < MAX_TID && (fx->nwords < 5 || (w[4] & 0x10))) {
		owned(c, "robust mutex", (int32_t)(w[0] & OWNER_MASK), WG_CERTAIN,
		      w[0] & OWNER_DIED, "the lock word");
		return true;
	}
	if (fx->val == 2 && fx->nwords >= 5) {
		uint64_t tcb = (uint64_t)w[3] << 32 | w[2];

		o = wg_fsbase_node(c->b, c->proc, tcb);
		if (o != WG_NONE) { /* stdio: the owner is written as its thread descriptor */
			owned(c, "stdio stream lock",
			      wg_thr(c->b, &c->b->n.v[o])->ns_tid
				      ? wg_thr(c->b, &c->b->n.v[o])->ns_tid
				      : wg_thr(c->b, &c->b->n.v[o])->tid,
			      WG_CERTAIN, false, "the owner's thread descriptor");
			return true;
		}
		if ((in_stdio(c->t) || stdio_words(c)) && w[3] && tcb > 0x10000 &&
		    tcb < 1ull << 47 && knows_tcbs(c)) {
			stdio_orphan(c, tcb);
			return true;
		}
		tid = w[2];
		if (tid && tid < MAX_TID && w[3] >= 1 && w[3] < 1u << 20 && plausible_kind(w[4])) {
			/* Without it only the words speak: let all of them. A count is kept by the
			 * recursive type alone, and the list of held ones by robust locks. */
			bool whole = (w[1] == 0 || (w[4] & 3) == 1) &&
				     (fx->nwords < 8 || (w[4] & 0x10) || (!w[6] && !w[7]));
			bool live = wg_tid_node(c->b, c->proc, (int32_t)tid) != WG_NONE;
			bool named = wg_has_symbol_prefix(c->t, "pthread_mutex") ||
				     wg_has_symbol_prefix(c->t, "__pthread_mutex") ||
				     wg_has_symbol_prefix(c->t, "___pthread_mutex") ||
				     wg_has_symbol_prefix(c->t, "__lll_lock");

			if (named || whole) {
				owned(c, "mutex", (int32_t)tid,
				      live || named || (whole && fx->nwords >= 8) ? WG_CERTAIN
										  : WG_LIKELY,
				      false, "the mutex's owner field");
				return true;
			}
		}
	}
	if (fx->val == 3 || (fx->val == 2 && wg_has_symbol_prefix(c->t, "pthread_rwlock"))) {
		/* readers wait at +8 and writers at +12 of the lock; the writer stands at +24 */
		bool named = wg_has_symbol_prefix(c->t, "pthread_rwlock") ||
			     wg_has_symbol_prefix(c->t, "__pthread_rwlock") ||
			     wg_has_symbol_prefix(c->t, "___pthread_rwlock");

		for (int i = 4; i >= 3; i--) {
			if (fx->nwords <= i || !w[i] || w[i] >= MAX_TID)
				continue;
			o = wg_tid_node(c->b, c->proc, (int32_t)w[i]);
			if (o == WG_NONE && !named)
				continue;
			owned(c, "read-write lock", (int32_t)w[i],
			      o != WG_NONE && named ? WG_CERTAIN : WG_LIKELY, false,
			      "the lock's current writer");
			return true;
		}
	}
	return false;
}

/* What kind of ownerless thing is it? Names from the stack before shapes from the words. */
static const char *const ownerless_names[][2] = {
	{"pthread_barrier", "barrier"},
	{"gomp_barrier", "barrier"},
	{"gomp_team_barrier", "barrier"},
	{"pthread_cond", "condition"},
	{"cnd_", "condition"},
	{"pthread_rwlock", "read-write lock"},
	{"sem_", "semaphore"},
	{"new_sem", "semaphore"},
	{"do_futex_wait", "semaphore"},
	{"cxa_guard", "initialisation guard"},
	{"pthread_once", "once-initialisation"},
};

/*
 * Is the thread inside a pthread_once or std::call_once? The function that runs the initialiser is
 * local to the C library: a stripped one has no name for it, but libstdc++'s step in between has one.
 */
static bool inside_once(const struct wg_thread *t)
{
	return wg_has_symbol_prefix(t, "__pthread_once") || wg_has_symbol_prefix(t, "pthread_once") ||
	       wg_has_symbol(t, "__once_proxy") || wg_has_symbol_prefix(t, "std::call_once");
}

static const char *ownerless_name(const struct wg_thread *t)
{
	const struct wg_futex *fx = &t->wait.futex;
	const char *named = NULL;

	for (size_t i = 0; i < t->native_stack.n && i < 12 && !named; i++) {
		const char *s = t->native_stack.v[i].symbol;

		while (s && *s == '_')
			s++;
		if (!s || !strchr("pgcsnd", *s))
			continue;
		for (size_t k = 0;
		     k < sizeof(ownerless_names) / sizeof(ownerless_names[0]) && !named; k++)
			if (!strncmp(s, ownerless_names[k][0], strlen(ownerless_names[k][0])))
				named = ownerless_names[k][1];
	}
	if (named && strcmp(named, "semaphore"))
		return named;
	/* Without the C library's debug symbols only what stands around it tells. */
	if ((fx->val & 3) == 1 && fx->nwords && fx->words[0] == fx->val && inside_once(t))
		return "once-initialisation";
	if (t->python_stack.n)
		return wg_frames_py_at(t, "threading.py", "wait") ? "condition" : "Python lock";
	if (named)
		return named;
	if (fx->val == 0x80000000u)
		return "future";
	if (fx->val == 0x10100)
		return "initialisation guard";
	if (fx->val == 2)
		return "low-level lock";
	if (fx->val == 0 && fx->nwords >= 2 && fx->words[1] >= 1 && fx->words[1] < 1 << 16 &&
	    !fx->words[0])
		return "semaphore";
	if (fx->val == 0)
		return "condition or barrier";
	return "futex";
}

/* The one who initialises runs deeper in the same function that the waiter called. */
static bool guard_holder(struct wg_ctx *c, uint32_t lock, const char *what)
{
	const struct wg_frame *f = wg_caller(c->t);
	bool once = !strncmp(what, "once", 4), guard = !strncmp(what, "init", 4);
	uint32_t only = WG_NONE, n = 0;

	if (!(once || guard) || !f || !f->symbol)
		return false;
	for (uint32_t i = 0; i < c->p->threads.n; i++) {
		const struct wg_thread *o = &c->p->threads.v[i];

		if (o == c->t ||
		    (o->wait.op == WG_OP_FUTEX && o->wait.futex.addr == c->t->wait.futex.addr))
			continue;
		if (!wg_has_symbol(o, f->symbol) && !(once && inside_once(o)))
			continue;
		wg_edge(c->b, lock, c->b->pi[c->proc].tbase + i, WG_EDGE_HELD_BY, false,
			wg_say(c->b, "it is inside %s, whose initialisation is being waited for",
			       f->symbol));
		return true;
	}
	/* The function can have been inlined: then the only other thread inside an initialisation.
	 */
	for (uint32_t i = 0; i < c->p->threads.n; i++) {
		const struct wg_thread *o = &c->p->threads.v[i];

		if (o == c->t || o->wait.op != WG_OP_FUTEX ||
		    o->wait.futex.addr == c->t->wait.futex.addr)
			continue;
		if (wg_has_symbol(o, "__cxa_guard_acquire") || inside_once(o)) {
			only = c->b->pi[c->proc].tbase + i;
			n++;
		}
	}
	if (n != 1)
		return false;
	wg_edge(c->b, lock, only, WG_EDGE_HELD_BY, false,
		"it is the only other thread that is inside an initialisation");
	return true;
}

/* All other threads of the process are spare hands at rest: none of them took the lock. */
static bool others_spare(struct wg_ctx *c)
{
	if (c->p->threads.n > 64)
		return false;
	for (size_t i = 0; i < c->p->threads.n; i++)
		if (&c->p->threads.v[i] != c->t &&
		    !wg_is_bystander(c->b, c->proc, &c->p->threads.v[i]))
			return false;
	return true;
}

/*
 * A thread of the parent rests in the code that the child now waits in: a pool whose threads
 * did not come along. Without such a thread the child's wait is its own.
 */
static bool pool_in_parent(struct wg_ctx *c)
{
	const struct wg_frame *mine = wg_caller(c->t), *f;
	int32_t parent = c->b->pi[c->proc].parent;
	const struct wg_process *p = parent < 0 ? NULL : c->b->pi[parent].p;

	for (size_t i = 0; p && mine && i < p->threads.n; i++) {
		const struct wg_thread *o = &p->threads.v[i];

		if (o->tid == p->pid || o->ours || o->wait.op != WG_OP_FUTEX)
			continue;
		f = wg_caller(o);
		if (f && f->module && mine->module && !strcmp(f->module, mine->module) &&
		    !wg_module_is(f, "libcuda") && !wg_module_is(f, "libnccl"))
			return true;
	}
	return false;
}

/*
 * Java's monitors are waited for in slices of at most a second (the thread looks again in case
 * a wake-up was lost): that is no poll by design but a lock like any other.
 */
static bool sliced_lock(const struct wg_thread *t)
{
	return wg_has_symbol_prefix(t, "ObjectMonitor::EnterI") ||
	       wg_has_symbol_prefix(t, "ObjectMonitor::ReenterI");
}

/*
 * A thread of this process ended after its device allocation had failed for good, and this one has
 * not been woken since (or shortly after): that others work says little then. Somebody who is
 * woken now and then does not stand in one wait for that long.
 */
static const struct wg_failure *lost_waker(const struct wg_ctx *c)
{
	double since = c->t->wait.since_s;

	if (!wg_has_sec(since) || since < WG_PATIENCE)
		return NULL;
	for (size_t i = 0; i < c->p->devices.n; i++)
		for (size_t k = 0; k < c->p->devices.v[i].failures.n; k++) {
			const struct wg_failure *x = &c->p->devices.v[i].failures.v[k];

			if (x->recovered_known && !x->recovered && !x->host_memory &&
			    !x->thread_alive && x->tid && x->tid != c->t->tid &&
			    wg_has_sec(x->age_s) && since + 5 >= x->age_s)
				return x;
		}
	return NULL;
}

static bool others_move(const struct wg_ctx *c)
{
	for (size_t i = 0; i < c->p->threads.n; i++) {
		const struct wg_thread *o = &c->p->threads.v[i];

		if (o != c->t && !o->ours && wg_still(c->b, c->p, o) != STILL_YES &&
		    !wg_is_bystander(c->b, c->proc, o))
			return true;
	}
	return false;
}

/* What speaks for one of the process' threads: the observer counted who woke this one. */
static const char *woken_before(struct wg_ctx *c)
{
	const struct wg_thread *t = c->t;

	if (!wg_has_int(t->waker_count) || t->waker_count < 1 || !t->waker_tid ||
	    t->waker_pid != c->p->pid)
		return "nothing names an owner";
	return wg_say(c->b, "nothing names an owner; thread %d woke it last%s%s, %s", t->waker_tid,
		      wg_has_sec(t->waker_age_s) ? wg_say(c->b, " (%s ago)", wg_secs(c->b, t->waker_age_s)) : "",
		      wg_find_thread(c->p, t->waker_tid) ? "" : " and has ended since",
		      t->waker_count == 1 ? "the only time" :
		      wg_say(c->b, "one of %lld times", (long long)t->waker_count));
}

void wg_resolve_ownerless(struct wg_ctx *c, uint32_t lock, const char *what)
{
	struct wg_b *b = c->b;
	const struct wg_process *p = c->p;
	const struct wg_thread *t = c->t;
	struct wg_inode *n = &b->n.v[c->node];
	double T = sliced_lock(t) ? WG_NO_SEC : wg_timeout(t);
	bool shared = t->wait.op == WG_OP_FUTEX && wg_shared_word(&t->wait.futex);
	bool is_lock = strstr(what, "lock") || !strcmp(what, "semaphore");
	const struct wg_failure *oom = shared || is_lock || wg_has_sec(T) ? NULL : lost_waker(c);
	struct wg_iedge *e;
	uint32_t own = b->pi[c->proc].nown;

	n->ownerless = true;
	if (lock != WG_NONE && !b->n.v[lock].nout) {
		e = wg_edge(b, lock, wg_wakers(b, c->proc), WG_EDGE_WOKEN_BY, false,
			    woken_before(c));
		e->guess = e->hidden = true; /* the guess is here, not in the hub's own edges */
		e->lost = oom != NULL;
		b->n.v[lock].mode = MODE_ANY;
	}
	if (wg_has_sec(T)) {
		if (T <= 60) {
			wg_set_end(b, c->node, CL_IDLE, FATE_IDLE, WG_CERTAIN,
				   wg_say(b, "it looks again after at most %s", wg_secs(b, T)));
			b->n.v[c->node].end.timer_s = T;
		} else {
			wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
				   wg_say(b, "it would give up after %s", wg_secs(b, T)));
			b->n.v[c->node].end.missing = wg_say(b, "who should signal the %s", what);
		}
		return;
	}
	if (wg_still(b, p, t) == STILL_NO && !sliced_lock(t)) {
		wg_set_end(b, c->node, CL_PROGRESSING, FATE_MOVING, WG_CERTAIN,
			   "it was woken between the two looks");
		return;
	}
	if (shared && lock != WG_NONE && (b->n.v[lock].nout > 1 || wg_sharer_targets(c, lock))) {
		wg_set_end(b, c->node, CL_NO_WAKER, FATE_STUCK, WG_LIKELY,
			   "no process of its family that could release it can still run");
		return;
	}
	if (shared) {
		/* Anyone who maps the word could wake it: without an owner word none can be named.
		 */
		wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   wg_say(b, "nothing tells which process should release the shared %s",
				  what));
		b->n.v[c->node].end.missing = wg_say(b, "the owner of a shared %s", what);
		return;
	}
	/* With threads of its own the holder may be one of those. */
	if (p->forked && is_lock && !wg_py_own_lock(c) && (own == 1 || others_spare(c))) {
		wg_set_end(b, c->node, CL_LOCK_AFTER_FORK, FATE_STUCK, WG_LIKELY,
			   wg_say(b,
				  "the %s was held when pid %d was forked, and no thread of this "
				  "process can release it",
				  what, p->pid));
		b->n.v[c->node].end.gone = true;
		b->n.v[c->node].end.who =
			wg_say(b, "forked child that waits for a lock nobody in it can release");
		return;
	}
	if (p->forked && own == 1 && pool_in_parent(c)) {
		wg_set_end(b, c->node, CL_LOCK_AFTER_FORK, FATE_STUCK, WG_LIKELY,
			   wg_say(b,
				  "it waits for threads of a pool, which exist only in the parent, "
				  "pid %d",
				  p->ppid));
		b->n.v[c->node].end.gone = true;
		b->n.v[c->node].end.who =
			"forked child that waits for a thread pool of its parent's";
		return;
	}
	if (oom) {
		bool move = others_move(c);

		wg_set_end(b, c->node, CL_NO_WAKER, FATE_STUCK, move ? WG_GUESS : WG_LIKELY,
			   wg_say(b,
				  "thread %d has ended since its device allocation failed, and this "
				  "one was not woken since",
				  oom->tid));
		if (move)
			b->n.v[c->node].end.missing =
				"whether one of the threads that still work would wake it";
		return;
	}
	wg_set_end(b, c->node, CL_NO_WAKER, FATE_STUCK, own == 1 ? WG_CERTAIN : WG_LIKELY,
		   own == 1 ? "it is the only thread of its process, so nobody can signal it"
			    : "no other thread of its process that could signal it can still run");
}

void wg_resolve_futex(struct wg_ctx *c)
{
	struct wg_b *b = c->b;
	const struct wg_futex *fx = &c->t->wait.futex;
	const char *what;
	uint32_t lock;

	if (wg_still(b, c->p, c->t) == STILL_NO && !wg_has_sec(wg_timeout(c->t))) {
		/* It took and released locks in between: whatever it waits for now is young. */
		wg_set_end(b, c->node, CL_PROGRESSING, FATE_MOVING, WG_CERTAIN,
			   "it ran between the two looks");
		if (wg_futex_owned(c))
			return;
		b->n.v[c->node].wobject =
			wg_say(b, "%s 0x%llx", ownerless_name(c->t), (unsigned long long)fx->addr);
		b->n.v[c->node].ownerless = true;
		return;
	}
	if (wg_futex_owned(c))
		return;
	if (!fx->addr && !fx->nwords && !c->t->wait.has_args && !c->t->native_stack.n &&
	    !c->t->python_stack.n) {
		wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "it waits on a futex whose words could not be read");
		b->n.v[c->node].end.missing = "the futex words of this thread";
		return;
	}
	what = ownerless_name(c->t);
	lock = lock_node(c, what);
	wait_edge(c, lock, "futex address");
	if (wg_resolve_python(c, lock) || guard_holder(c, lock, what)) {
		timed(c);
		return;
	}
	/*
	 * A mutex-like word (2) without readable neighbours could have an owner that we do not
	 * see: then nothing may be concluded from "nobody".
	 */
	if (fx->nwords < 5 && fx->val == 2 && !wg_has_sec(wg_timeout(c->t))) {
		wg_set_end(b, c->node, CL_UNKNOWN, FATE_UNKNOWN, WG_GUESS,
			   "it waits for a lock whose owner field could not be read");
		b->n.v[c->node].end.missing = "the futex words of this thread";
		return;
	}
	wg_resolve_ownerless(c, lock, what);
}
