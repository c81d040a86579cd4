/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_locks.c - which Python lock a thread waits for, and who holds it.
 *
 * The object is certain where its own word is the futex that the thread sleeps on. Owners:
 *  - RLock, SemLock and the import locks name their owner;
 *  - `_thread.lock` does not: a thread holds it for certain while it is inside `with lock:`.
 *    The exit method of such a block stands on the frame's value stack at a depth that the
 *    code's exception table (3.11+) or the frame's block stack (3.8-3.10) proves;
 *  - the lock that ends with a thread (3.8-3.12) and the handle that join() waits on (3.13)
 *    lead to that thread;
 *  - the context manager of a block can be contextlib's (a suspended generator, an ExitStack), or
 *    an object of the program that has one lock: likely;
 *  - what a condition's waiter sleeps on has no owner, and is said to be one;
 *  - failing all that, one thread alone whose code has called acquire() on that object more
 *    often than release() on every way to the place where it stands: likely, since nobody
 *    knows what the functions have done that it called.
 */
#include "pyread.h"
#include "python_opcodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SLOTS 256	/* of a frame that are looked at */
#define TOP_FRAMES 4	/* of a waiter: the lock is at hand in one of these */
#define MAX_HELD 4096
#define SETUP_FINALLY 122

/* CPython's lock objects; _thread and _multiprocessing keep them out of their headers. */
#define LOCK_SEM 16	  /* lock, RLock, SimpleQueue: sem_t *, 3.8-3.13 */
#define LOCK_LOCKED 32	  /* lock: char, 3.8-3.13 */
#define RLOCK_OWNER 24	  /* RLock: ident; 3.14: in its recursive mutex */
#define RLOCK_COUNT 32
#define SEMLOCK_HANDLE 16 /* SemLock: sem_t * */
#define SEMLOCK_LAST_TID 24
#define SEMLOCK_COUNT 32
#define SEMLOCK_MOST 36	 /* the value that it never exceeds */
#define SEMLOCK_KIND 40	  /* 0 recursive mutex, 1 semaphore */
#define THREAD_HANDLE 16  /* _ThreadHandle: its ThreadHandle */
#define HANDLE_IDENT 32	  /* 3.13 */
#define HANDLE_EXITING 57
#define PARKED_ADDR 8	  /* before the semaphore of a parked thread (3.13+) */

struct held { /* a lock that a frame is certainly inside `with` of */
	uint64_t object; /* the lock itself, not what wraps it */
	size_t thread;	 /* index into py->threads */
	const struct wg_py_frame *frame;
	int64_t line;
	bool guarded; /* by an object of the program's own that has the lock: likely */
};

struct locks {
	struct wg_py *py;
	WG_VEC(struct held) held;
	int depth; /* of context managers inside context managers */
};

enum kind { NONE, LOCK, RLOCK, SEMLOCK, HANDLE, SIMPLE_QUEUE };

static enum kind kind_of(struct wg_py *py, uint64_t object)
{
	static const struct {
		const char *name;
		enum kind kind;
	} known[] = {
		{ "_thread.lock", LOCK },
		{ "_thread.RLock", RLOCK },
		{ "_multiprocessing.SemLock", SEMLOCK },
		{ "_thread._ThreadHandle", HANDLE },
		{ "_queue.SimpleQueue", SIMPLE_QUEUE },
	};
	char name[64];

	if (!wg_py_type_name(py, object, name, sizeof(name)))
		return NONE;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (!strcmp(name, known[i].name))
			return known[i].kind;
	return NONE;
}

/* Does a thread that sleeps on futex wait for this object? */
static bool waits_for(struct wg_py *py, uint64_t object, enum kind kind, uint64_t futex)
{
	uint64_t word, parked;

	switch (kind) {
	case LOCK:
	case RLOCK:
		/*
		 * A mutex in the object on which the thread is parked: since 3.14, and `lock` since a
		 * patch release of 3.13, which no offset tells. Both are what memory has to show.
		 */
		if (py->o.minor >= 13 && wg_py_u64(py, futex - PARKED_ADDR, &parked) &&
		    parked == object + LOCK_SEM)
			return true;
		return py->o.minor < 14 && wg_py_u64(py, object + LOCK_SEM, &word) && word == futex;
	case SIMPLE_QUEUE:
		if (py->o.minor >= 13) /* parked on the queue's own flag */
			return wg_py_u64(py, futex - PARKED_ADDR, &parked) &&
			       parked == object + LOCK_SEM;
		return wg_py_u64(py, object + LOCK_SEM, &word) && word == futex;
	case SEMLOCK:
		return wg_py_u64(py, object + SEMLOCK_HANDLE, &word) && word == futex;
	case HANDLE:
		return py->o.minor == 13 && wg_py_u64(py, object + THREAD_HANDLE, &word) &&
		       wg_py_u64(py, futex - PARKED_ADDR, &parked) &&
		       parked == word + HANDLE_EXITING;
	default:
		return false;
	}
}

/* ---- locks held inside `with` ------------------------------------------------------- */

static void hold(struct locks *l, size_t thread, const struct wg_py_frame *fr, uint64_t object,
		 int64_t at, bool guarded)
{
	struct held *h;

	if (l->held.n >= MAX_HELD)
		return;
	h = wg_push(l->py->arena, &l->held);
	h->guarded = guarded;
	h->object = object;
	h->thread = thread;
	h->frame = fr;
	h->line = wg_py_line(l->py, fr, at);
	if (!wg_has_int(h->line))
		h->line = fr->line;
}

/* Is an inner frame of this thread waiting on the condition? Its lock is released then. */
static bool waits_on_condition(struct locks *l, size_t thread, const struct wg_py_frame *fr,
			       uint64_t condition)
{
	const struct wg_py_frames *all = &l->py->frames[thread];

	for (size_t i = 0; i < all->n && &all->v[i] != fr; i++)
		if (wg_py_at(&all->v[i], ".py", "wait") &&
		    wg_py_local(l->py, &all->v[i], "self") == condition)
			return true;
	return false;
}

struct only { /* the one lock among the attributes of an object */
	struct wg_py *py;
	uint64_t lock;
	int n;
};

static void count_lock(void *arg, uint64_t object)
{
	struct only *x = arg;
	enum kind kind = kind_of(x->py, object);

	if (kind != LOCK && kind != RLOCK)
		return;
	x->lock = object;
	x->n++;
}

static void blocks_of(struct locks *l, size_t thread, const struct wg_py_frame *fr);
static void inside(struct locks *l, size_t thread, const struct wg_py_frame *fr, uint64_t self,
		   int64_t at);

/* What contextlib's own context managers, or those of the program, keep until they are left. */
static void inside_object(struct locks *l, size_t thread, const struct wg_py_frame *fr,
			  uint64_t self, int64_t at)
{
	struct wg_py *py = l->py;
	struct only only = { py, 0, 0 };
	uint64_t items[64], v;
	size_t n;

	if (wg_py_is_a(py, self, "_GeneratorContextManager")) {
		struct wg_py_frame *gen = wg_alloc(py->arena, sizeof(*gen));

		v = wg_py_attr(py, self, "gen");
		if (v && wg_py_generator(py, v, gen))
			blocks_of(l, thread, gen);
		return;
	}
	if (wg_py_is_a(py, self, "_BaseExitStack")) {
		n = wg_py_deque(py, wg_py_attr(py, self, "_exit_callbacks"), items);
		for (size_t i = 0; i < n; i++) {
			v = wg_py_item(py, items[i], 1);
			v = v ? wg_py_bound_self(py, v, NULL) : 0;
			if (v)
				inside(l, thread, fr, v, at);
		}
		return;
	}
	wg_py_attrs_each(py, self, 64, count_lock, &only);
	if (only.n == 1)
		hold(l, thread, fr, only.lock, at, true);
}

/* The frame is inside a block whose context manager is this object. */
static void inside(struct locks *l, size_t thread, const struct wg_py_frame *fr, uint64_t self,
		   int64_t at)
{
	struct wg_py *py = l->py;
	uint64_t inner, given = self;
	enum kind kind;

	if (!self || l->depth > 3)
		return;
	l->depth++;
	for (int depth = 0; depth < 3; depth++) {
		kind = kind_of(py, self);
		if (kind == LOCK || kind == RLOCK || kind == SEMLOCK) {
			hold(l, thread, fr, self, at, false);
			break;
		}
		/* threading.Condition, multiprocessing's Lock, RLock and Condition wrap one. */
		inner = wg_py_attr(py, self, "_semlock");
		if (!inner) {
			inner = wg_py_attr(py, self, "_lock");
			if (inner && waits_on_condition(l, thread, fr, self))
				break;
		}
		if (!inner) {
			if (self == given)
				inside_object(l, thread, fr, self, at);
			break;
		}
		self = inner;
	}
	l->depth--;
}

static bool table_int(const struct wg_py_code *c, size_t *i, uint32_t *v)
{
	uint8_t b;

	if (*i >= c->except_len)
		return false;
	b = c->except[(*i)++];
	*v = b & 63;
	while (b & 64) {
		if (*i >= c->except_len || *v >> 25)
			return false;
		b = c->except[(*i)++];
		*v = *v << 6 | (b & 63);
	}
	return true;
}

/* The handler of an exception at this instruction (in code units). */
static bool handler_of(const struct wg_py_code *c, uint32_t at, uint32_t *target, uint32_t *depth)
{
	uint32_t start, size, to, depth_lasti;

	for (size_t i = 0; i < c->except_len;) {
		if (!table_int(c, &i, &start) || !table_int(c, &i, &size) ||
		    !table_int(c, &i, &to) || !table_int(c, &i, &depth_lasti))
			return false;
		if (at < start)
			return false; /* sorted by start */
		if (at < start + size) {
			*target = to;
			*depth = depth_lasti >> 1;
			return true;
		}
	}
	return false;
}

/*
 * 3.11+: from handler to handler outwards. Where one begins with WITH_EXCEPT_START, the
 * table says how deep the value stack is there, and the exit method is its top.
 */
static void blocks_by_table(struct locks *l, size_t thread, const struct wg_py_frame *fr)
{
	struct wg_py *py = l->py;
	uint32_t at, target = 0, depth = 0;
	uint64_t exit;
	uint8_t code[4];

	if (!fr->code->except_len || fr->lasti < 0 || py->o.opcode_with_except_start == WG_PY_ABSENT)
		return;
	at = (uint32_t)(fr->lasti / 2);
	for (int hop = 0; hop < 64 && handler_of(fr->code, at, &target, &depth); hop++) {
		if (target == at)
			break;
		if (depth >= 1 &&
		    !wg_mem_read(py->m, fr->code->addr + py->o.code_code_adaptive +
						(uint64_t)target * 2, code, sizeof(code)) &&
		    code[0] == py->o.opcode_push_exc_info &&
		    code[2] == py->o.opcode_with_except_start) {
			exit = wg_py_stack_slot(py, fr, (int)depth - 1);
			if (exit) /* the exit method of a block that was entered */
				inside(l, thread, fr, wg_py_bound_self(py, exit, "__exit__"),
				       (int64_t)target * 2);
		}
		at = target;
	}
}

/* 3.8-3.10: the frame keeps its blocks, with the depth of the stack at each. */
static void blocks_of_frame(struct locks *l, size_t thread, const struct wg_py_frame *fr)
{
	struct wg_py *py = l->py;
	int32_t n, b[3];
	uint64_t exit;

	if (py->o.frame_iblock == WG_PY_ABSENT ||
	    !wg_py_i32(py, fr->addr + py->o.frame_iblock, &n) || n < 0 || n > 20)
		return;
	for (int32_t i = 0; i < n; i++) {
		if (wg_mem_read(py->m, fr->addr + py->o.frame_blockstack + (uint64_t)i * 12, b, 12))
			return;
		if (b[0] != SETUP_FINALLY || b[2] < 1)
			continue;
		exit = wg_py_stack_slot(py, fr, b[2] - 1);
		if (exit)
			inside(l, thread, fr, wg_py_bound_self(py, exit, "__exit__"),
			       py->o.minor == 10 ? (int64_t)b[1] * 2 : b[1]);
	}
}

static void blocks_of(struct locks *l, size_t thread, const struct wg_py_frame *fr)
{
	if (l->py->o.style == WG_PY_PYFRAME)
		blocks_of_frame(l, thread, fr);
	else
		blocks_by_table(l, thread, fr);
}

static void find_held(struct locks *l)
{
	for (size_t t = 0; t < l->py->threads.n; t++)
		for (size_t i = 0; i < l->py->frames[t].n; i++)
			blocks_of(l, t, &l->py->frames[t].v[i]);
}

/* ---- what a thread waits for --------------------------------------------------------- */

struct search {
	struct wg_py *py;
	uint64_t futex, found;
	enum kind kind;
};

static bool try_object(struct search *s, uint64_t object)
{
	enum kind kind = s->found ? NONE : kind_of(s->py, object);

	if (kind == NONE || !waits_for(s->py, object, kind, s->futex))
		return false;
	s->found = object;
	s->kind = kind;
	return true;
}

static void try_attr(void *arg, uint64_t object)
{
	try_object(arg, object);
}

/* A slot of a frame: the lock, a method of it, or something that has it. */
static void try_slot(struct search *s, uint64_t object, bool attributes)
{
	uint64_t self;

	if (!object || try_object(s, object))
		return;
	self = wg_py_bound_self(s->py, object, NULL);
	if (self) {
		if (try_object(s, self))
			return;
		object = self;
	}
	if (attributes)
		wg_py_attrs_each(s->py, object, 64, try_attr, s);
}

static const struct wg_py_frame *find_lock(struct search *s, const struct wg_py_frames *frames)
{
	uint64_t globals;

	for (int pass = 0; pass < 2; pass++) /* what is at hand first, then its attributes */
		for (size_t i = 0; i < frames->n && i < TOP_FRAMES; i++) {
			const struct wg_py_frame *fr = &frames->v[i];

			for (int k = 0; k < fr->code->nlocals && k < MAX_SLOTS && !s->found; k++)
				try_slot(s, wg_py_slot(s->py, fr, k), pass);
			for (int k = 0; k < fr->code->stack_size && k < MAX_SLOTS && !s->found; k++)
				try_slot(s, wg_py_stack_slot(s->py, fr, k), pass);
			if (s->found)
				return fr;
		}
	if (frames->n &&
	    wg_py_field(s->py, frames->v[0].addr, s->py->o.frame_globals, &globals)) {
		wg_py_dict_each(s->py, globals, 2048, try_attr, s);
		if (s->found)
			return &frames->v[0];
	}
	return NULL;
}

/* ---- owners ------------------------------------------------------------------------------ */

static void owner_by_ident(struct wg_py *py, struct wg_pylock *out, uint64_t ident,
			   const char *evidence)
{
	int32_t tid;

	out->certainty = WG_CERTAIN;
	out->evidence = evidence;
	out->owner_tid = wg_py_tid_of_ident(py, ident);
	if (out->owner_tid)
		return;
	/* No thread state has it: that thread has ended, or this is a fork's child. */
	out->owner_gone = true;
	if (py->o.minor <= 13 && py->same_pidns && wg_py_i32(py, ident + WG_PY_PTHREAD_TID, &tid) &&
	    tid > 0 && !wg_find_thread(py->p, tid) && tid != py->p->pid)
		out->owner_tid = tid;
}

/* 3.8-3.12: the lock that is released when a thread ends. */
static const struct wg_py_thread *ends_with(struct wg_py *py, uint64_t lock)
{
	uint64_t ref, object;

	for (size_t i = 0; i < py->threads.n; i++)
		if (wg_py_field(py, py->threads.v[i].addr, py->o.tstate_on_delete_data, &ref) &&
		    ref && wg_py_field(py, ref, py->o.weakref_object, &object) && object == lock)
			return &py->threads.v[i];
	return NULL;
}

static bool import_lock(struct wg_py *py, const struct wg_py_frames *frames, struct wg_pylock *out)
{
	uint64_t self = 0, owner, ident = 0;
	const char *name;

	for (size_t i = 0; i < frames->n && i < 2 && !self; i++) {
		self = wg_py_local(py, &frames->v[i], "self");
		if (self && !wg_py_is(py, self, "_ModuleLock"))
			self = 0;
	}
	if (!self)
		return false;
	owner = wg_py_attr(py, self, "owner");
	name = wg_py_str(py, wg_py_attr(py, self, "name"));
	out->kind = wg_fmt(py->f->arena, "import lock of '%s'", name ? name : "?");
	out->object = self;
	if (owner && wg_py_long(py, owner, &ident) && ident)
		owner_by_ident(py, out, ident, "the import lock's owner");
	return true;
}

static void shared_identity(struct wg_py *py, struct wg_pylock *out)
{
	const struct wg_map *x = wg_mem_map_at(py->m, out->futex);

	if (!x || !x->shared || !x->ino)
		return;
	out->has_map = true;
	out->map_dev = x->dev;
	out->map_ino = x->ino;
	out->map_off = out->futex - x->lo + x->off;
}

static void semlock(struct wg_py *py, uint64_t object, struct wg_pylock *out)
{
	int32_t count = 0, kind = 0, most = 0;
	uint64_t last = 0;

	out->kind = "SemLock";
	out->object = object;
	wg_py_u64(py, object + SEMLOCK_HANDLE, &out->futex);
	shared_identity(py, out);
	if (!wg_py_i32(py, object + SEMLOCK_COUNT, &count) ||
	    !wg_py_i32(py, object + SEMLOCK_KIND, &kind) ||
	    !wg_py_u64(py, object + SEMLOCK_LAST_TID, &last))
		return;
	/* A semaphore of one is multiprocessing.Lock; of more, it has no single owner. */
	if (wg_py_i32(py, object + SEMLOCK_MOST, &most)) {
		out->exclusive = kind == 0 || most == 1;
		out->kind = kind == 0	? "multiprocessing.RLock"
			    : most == 1 ? "multiprocessing.Lock"
					: "multiprocessing.Semaphore";
	}
	if (kind == 1 && count > 0 && most != 1) {
		out->evidence = "a semaphore: it has no owner";
		return;
	}
	if (count > 0) {
		owner_by_ident(py, out, last, "the SemLock's last_tid and count");
		/* os.fork() copies the count, and with it the parent's claim. */
		if (py->p->forked)
			out->certainty = WG_LIKELY;
	} else {
		out->evidence = "this process does not hold it: its count is 0";
	}
}

/* ---- acquire() without `with` --------------------------------------------------------- */

#define MAX_CODE 65536

struct place { /* what the last instructions have put on the stack: a variable, then attributes */
	enum wg_py_op op;
	uint32_t arg;
	uint32_t attr[4];
	int nattr;
};

static uint64_t name_of(struct wg_py *py, const struct wg_py_frame *fr, uint32_t k)
{
	return wg_py_item(py, fr->code->co_names, k);
}

static uint64_t object_at(struct wg_py *py, const struct wg_py_frame *fr, const struct place *p)
{
	uint64_t v = 0, globals, key;
	char name[128];

	switch (p->op) {
	case WG_PY_OP_FAST:
		v = wg_py_slot(py, fr, (int)p->arg);
		break;
	case WG_PY_OP_DEREF: /* up to 3.10 cells are counted on their own */
		v = wg_py_slot(py, fr, (int)p->arg + (py->o.minor <= 10 ? fr->code->ncells_at : 0));
		if (!v || !wg_py_is(py, v, "cell") || !wg_py_ptr(py, v + py->o.cell_ref, &v))
			return 0;
		break;
	case WG_PY_OP_GLOBAL:
	case WG_PY_OP_NAME:
		if (!wg_py_field(py, fr->addr, py->o.frame_globals, &globals))
			return 0;
		v = wg_py_dict_get_key(py, globals, name_of(py, fr, p->arg));
		break;
	default:
		return 0;
	}
	for (int i = 0; i < p->nattr && v; i++) {
		const char *s;

		key = name_of(py, fr, p->attr[i]);
		s = key ? wg_py_str(py, key) : NULL;
		if (!s || strlen(s) >= sizeof(name))
			return 0;
		v = wg_py_attr(py, v, s);
	}
	return v;
}

static bool is_lock(struct wg_py *py, uint64_t object, uint64_t lock)
{
	return object && (object == lock || wg_py_attr(py, object, "_lock") == lock);
}

#define MAX_JUMPS 1024

/* Where the code before the place that a frame stands at can go by another way. */
struct flow {
	struct { uint32_t from, to; } jump[MAX_JUMPS]; /* forward, not beyond that place */
	uint32_t leave[MAX_JUMPS];		       /* return and raise */
	int njump, nleave;
	bool cut; /* there are more: nothing can be said */
};

static void read_flow(struct wg_py *py, const uint8_t *ops, const uint8_t *code, size_t n,
		      int64_t lasti, struct flow *fl)
{
	uint32_t arg = 0, to;

	fl->njump = fl->nleave = 0;
	fl->cut = false;
	for (size_t i = 0; i + 1 < n && (int64_t)i < lasti; i += 2) {
		enum wg_py_op op = ops[code[i]] & 15;
		size_t skip = ops[code[i]] >> 4;

		arg = arg << 8 | code[i + 1];
		if (op == WG_PY_OP_EXTENDED)
			continue;
		if (op == WG_PY_OP_JUMP || op == WG_PY_OP_JUMP_ABS) {
			to = py->o.minor >= 10 ? arg * 2 : arg; /* counted in units from 3.10 on */
			if (op == WG_PY_OP_JUMP)
				to += (uint32_t)(i + 2 + skip * 2);
			if (to > i && to <= (uint64_t)lasti) {
				if (fl->njump == MAX_JUMPS) {
					fl->cut = true;
					return;
				}
				fl->jump[fl->njump].from = (uint32_t)i;
				fl->jump[fl->njump++].to = to;
			}
		} else if (op == WG_PY_OP_LEAVE && fl->nleave < MAX_JUMPS) {
			fl->leave[fl->nleave++] = (uint32_t)i;
		}
		arg = 0;
		i += skip * 2;
	}
}

/* Can the frame have come to where it is without this instruction? to: by which jump. */
static bool skipped(const struct flow *fl, uint32_t i, uint32_t *to)
{
	*to = UINT32_MAX;
	for (int k = 0; k < fl->njump; k++)
		if (fl->jump[k].from < i && fl->jump[k].to > i && fl->jump[k].to < *to)
			*to = fl->jump[k].to;
	return *to != UINT32_MAX;
}

/* The branch that it is in ends with return or raise: the frame has not come through it. */
static bool branch_left(const struct flow *fl, uint32_t i, uint32_t to)
{
	for (int k = 0; k < fl->nleave; k++)
		if (fl->leave[k] > i && fl->leave[k] < to)
			return true;
	return false;
}

/*
 * Calls of acquire() that have returned minus calls of release() on the lock, on the way to
 * the instruction that the frame stands at. Only where no branch leads round it; with arguments
 * it may have come back without the lock, so that counts only where nobody looks at the answer;
 * and a method that is merely passed on (`Thread(target=lock.acquire)`) was not called here.
 */
static int balance(struct wg_py *py, const struct wg_py_frame *fr, uint64_t lock, uint8_t *code,
		   struct flow *fl, int64_t *at)
{
	const uint8_t *ops;
	struct place p = { 0 };
	size_t n;
	uint32_t arg = 0, to;
	int sum = 0;
	int64_t asked = -1, taken[16]; /* asked: the method is on the stack since this place */
	uint32_t loads = 0;	       /* instructions since then */
	bool plain = false;	       /* up to 3.10: loaded as an attribute, for keywords */

	if (!fr->code->acquires || py->o.minor > 13)
		return 0;
	ops = wg_py_ops[py->o.minor - WG_PY_OPS_FIRST_MINOR];
	n = wg_py_bytecode(py, fr->code, code, MAX_CODE);
	read_flow(py, ops, code, n, fr->lasti, fl);
	if (fl->cut)
		return 0;
	/* The instruction at lasti is the call in progress: a wait, not something that is held. */
	for (size_t i = 0; i + 1 < n && (int64_t)i < fr->lasti; i += 2) {
		enum wg_py_op op = ops[code[i]] & 15;
		size_t skip = ops[code[i]] >> 4;
		uint64_t name;
		bool called, unseen;

		arg = arg << 8 | code[i + 1];
		switch (op) {
		case WG_PY_OP_EXTENDED:
			continue; /* its argument goes on */
		case WG_PY_OP_PRECALL:
			arg = 0;
			i += skip * 2;
			continue;
		case WG_PY_OP_CALL:
		case WG_PY_OP_CALL_KW:
			unseen = i + 2 + skip * 2 < n &&
				 (ops[code[i + 2 + skip * 2]] & 15) == WG_PY_OP_POP;
			called = plain ? op == WG_PY_OP_CALL_KW && loads == arg + 1 && unseen :
					 (!arg && !loads) || (loads >= arg && unseen);
			if (asked >= 0 && called && !skipped(fl, (uint32_t)i, &to)) {
				if (sum < (int)(sizeof(taken) / sizeof(taken[0])))
					taken[sum] = asked;
				sum++;
			}
			asked = -1;
			p.op = WG_PY_OP_OTHER;
			break;
		case WG_PY_OP_FAST_FAST:
			arg &= 15;
			op = WG_PY_OP_FAST;
			/* fall through */
		case WG_PY_OP_FAST:
		case WG_PY_OP_DEREF:
		case WG_PY_OP_NAME:
			p = (struct place){ .op = op, .arg = arg };
			break;
		case WG_PY_OP_GLOBAL: /* from 3.11 on the low bit says something else */
			p = (struct place){ .op = op, .arg = py->o.minor >= 11 ? arg >> 1 : arg };
			break;
		case WG_PY_OP_ATTR:
		case WG_PY_OP_METHOD:
			called = op == WG_PY_OP_METHOD;
			if (op == WG_PY_OP_ATTR && py->o.minor >= 12) {
				called = arg & 1;
				arg >>= 1;
			}
			name = p.op ? name_of(py, fr, arg) : 0;
			if (name && wg_py_str_is(py, name, "acquire")) {
				plain = !called;
				asked = (called || py->o.minor <= 10) &&
							is_lock(py, object_at(py, fr, &p), lock) ?
						(int64_t)i :
						-1;
				p.op = WG_PY_OP_OTHER;
				arg = loads = 0;
				i += skip * 2;
				continue;
			} else if (name && wg_py_str_is(py, name, "release")) {
				if (sum && !(skipped(fl, (uint32_t)i, &to) &&
					     branch_left(fl, (uint32_t)i, to)) &&
				    is_lock(py, object_at(py, fr, &p), lock))
					sum--;
				p.op = WG_PY_OP_OTHER;
			} else if (p.op && p.nattr < 4) {
				p.attr[p.nattr++] = arg;
			} else {
				p.op = WG_PY_OP_OTHER;
			}
			break;
		default:
			p.op = WG_PY_OP_OTHER;
		}
		loads++;
		arg = 0;
		i += skip * 2;
	}
	if (sum > 0 && sum <= (int)(sizeof(taken) / sizeof(taken[0])))
		*at = taken[sum - 1];
	return sum;
}

static void likely_owner(struct locks *l, const struct search *s, struct wg_pylock *out)
{
	struct wg_py *py = l->py;
	uint8_t *code = malloc(MAX_CODE);
	struct flow *fl = malloc(sizeof(*fl));
	const struct wg_py_frame *found = NULL;
	size_t owner = 0, owners = 0;
	int64_t at = -1, found_at = -1;

	for (size_t t = 0; code && fl && t < py->threads.n; t++) {
		for (size_t i = 0; i < py->frames[t].n && i < 64; i++) {
			const struct wg_py_frame *fr = &py->frames[t].v[i];

			if (balance(py, fr, s->found, code, fl, &at) <= 0)
				continue;
			if (!owners || owner != t)
				owners++;
			owner = t;
			found = fr;
			found_at = at;
			break;
		}
	}
	free(code);
	free(fl);
	if (owners != 1) /* none, or it cannot be told which */
		return;
	out->owner_tid = py->threads.v[owner].tid;
	out->certainty = WG_LIKELY;
	out->evidence = wg_fmt(py->f->arena, "called acquire() at %s:%lld and not release()",
			       found->code->file, (long long)wg_py_line(py, found, found_at));
}

/*
 * A forked child's lock that nobody in it seems to hold may have come along locked. Not when its
 * parent, which still runs the same program, has none at that place: then the child made it.
 */
static bool made_here(struct wg_py *py, uint64_t lock)
{
	struct wg_process *parent = wg_find_process(py->f, py->p->ppid), as;
	uint64_t mine[2] = { 0, 0 }, its[2] = { 0, 0 };
	struct wg_mem *m;
	int err;

	if (!parent || !parent->alive || parent->pid == py->p->pid || !parent->exe || !py->p->exe ||
	    strcmp(parent->exe, py->p->exe))
		return false;
	as = *parent; /* what cannot be read of it is no loss to the parent's own facts */
	m = wg_mem_open(py->f, &as, -1);
	/* The object's type, and its semaphore: where the allocator put it at the time. */
	err = wg_mem_error(m);
	if (!err)
		err = wg_mem_read(m, lock + 8, &its[0], 8);
	if (!err)
		err = wg_mem_read(m, lock + LOCK_SEM, &its[1], 8);
	wg_mem_close(m);
	if (err == -EFAULT || err == -EIO || err == -ENOENT)
		return true; /* nothing is there at all */
	if (err || !wg_py_u64(py, lock + 8, &mine[0]) || !wg_py_u64(py, lock + LOCK_SEM, &mine[1]))
		return false;
	return memcmp(mine, its, sizeof(mine));
}

static void describe(struct locks *l, size_t thread, const struct wg_thread *t,
		     const struct search *s, const struct wg_py_frame *fr)
{
	struct wg_py *py = l->py;
	const struct wg_py_frames *frames = &py->frames[thread];
	struct wg_pylock *out = wg_push(py->f->arena, &py->p->python.locks);
	uint64_t word, count, ident;
	const struct wg_py_thread *ended;

	out->futex = s->futex;
	out->object = s->found;
	out->waiter_tid = t->tid;
	out->certainty = WG_CERTAIN; /* of which lock it is; of the owner when there is one */
	switch (s->kind) {
	case RLOCK:
		out->kind = "_thread.RLock";
		if (wg_py_u64(py, s->found + RLOCK_OWNER, &ident) &&
		    wg_py_u64(py, s->found + RLOCK_COUNT, &count) &&
		    (count || py->o.minor >= 14) && ident)
			owner_by_ident(py, out, ident, "rlock_owner");
		return;
	case SEMLOCK:
		semlock(py, s->found, out);
		out->waiter_tid = t->tid;
		return;
	case HANDLE:
		out->kind = "thread end";
		out->task = true;
		if (wg_py_u64(py, s->found + THREAD_HANDLE, &word) &&
		    wg_py_u64(py, word + HANDLE_IDENT, &ident) && ident)
			owner_by_ident(py, out, ident, "the thread's handle");
		return;
	case SIMPLE_QUEUE:
		out->kind = "queue.SimpleQueue";
		out->evidence = "a queue: it has no owner";
		return;
	default:
		break;
	}
	out->kind = "_thread.lock";
	ended = ends_with(py, s->found);
	if (ended) {
		out->kind = "thread end";
		out->task = true;
		out->owner_tid = ended->tid;
		out->evidence = "released when that thread ends";
		return;
	}
	if (import_lock(py, frames, out))
		return;
	if (wg_py_at(fr, "threading.py", "wait") && wg_py_local(py, fr, "waiter") == s->found) {
		out->kind = "condition";
		out->evidence = "made for this wait in threading.Condition: it has no owner";
		return;
	}
	for (size_t i = 0; i < l->held.n; i++) {
		const struct held *h = &l->held.v[i];

		if (h->object != s->found || h->guarded)
			continue;
		out->owner_tid = py->threads.v[h->thread].tid;
		out->evidence = wg_fmt(py->f->arena, "inside `with` at %s:%lld",
				       h->frame->code->file, (long long)h->line);
		return;
	}
	likely_owner(l, s, out);
	for (size_t i = 0; i < l->held.n && !out->owner_tid; i++) {
		const struct held *h = &l->held.v[i];

		if (h->object != s->found)
			continue;
		out->owner_tid = py->threads.v[h->thread].tid;
		out->certainty = WG_LIKELY;
		out->evidence = wg_fmt(py->f->arena, "inside `with` at %s:%lld of an object that has "
						     "the lock",
				       h->frame->code->file, (long long)h->line);
	}
	if (!out->owner_tid && py->p->forked)
		out->own_made = made_here(py, s->found);
}

/* ---- locks of multiprocessing, for the waiters in other processes ------------------------ */

/* A SemLock that this process holds, once. */
static void shared_lock(struct locks *l, uint64_t semlock_object)
{
	struct wg_python *y = &l->py->p->python;
	struct wg_pylock *out;
	int32_t count;

	for (size_t k = 0; k < y->locks.n; k++)
		if (y->locks.v[k].object == semlock_object && y->locks.v[k].owner_tid)
			return;
	if (y->locks.n >= MAX_HELD ||
	    !wg_py_i32(l->py, semlock_object + SEMLOCK_COUNT, &count) || count <= 0)
		return;
	out = wg_push(l->py->f->arena, &y->locks);
	semlock(l->py, semlock_object, out);
}

static void try_shared(void *arg, uint64_t object)
{
	static const char *const classes[] = { "Lock", "RLock", "Semaphore", "BoundedSemaphore" };
	struct locks *l = arg;
	char name[64];
	uint64_t inner;

	if (!wg_py_type_name(l->py, object, name, sizeof(name)))
		return;
	if (!strcmp(name, "_multiprocessing.SemLock"))
		shared_lock(l, object);
	for (size_t i = 0; i < sizeof(classes) / sizeof(classes[0]); i++) {
		if (strcmp(name, classes[i]))
			continue;
		inner = wg_py_attr(l->py, object, "_semlock");
		if (inner && kind_of(l->py, inner) == SEMLOCK)
			shared_lock(l, inner);
	}
}

static bool uses_multiprocessing(struct wg_py *py)
{
	const struct wg_map *maps;
	size_t n;

	maps = wg_mem_maps(py->m, &n);
	for (size_t i = 0; i < n; i++)
		if (maps[i].path && strstr(maps[i].path, "_multiprocessing"))
			return true;
	return false;
}

/* Where programs keep them: variables of frames, and globals of the outermost module. */
static void find_shared(struct locks *l)
{
	struct wg_py *py = l->py;
	uint64_t globals, last = 0;

	for (size_t t = 0; t < py->threads.n && t < 256; t++) {
		const struct wg_py_frames *all = &py->frames[t];

		for (size_t i = 0; i < all->n && i < 64; i++)
			for (int k = 0; k < all->v[i].code->nlocals && k < 64; k++) {
				uint64_t v = wg_py_slot(py, &all->v[i], k);

				if (v)
					try_shared(l, v);
			}
		if (all->n && wg_py_field(py, all->v[all->n - 1].addr, py->o.frame_globals,
					  &globals) && globals != last) {
			last = globals;
			wg_py_dict_each(py, globals, 1024, try_shared, l);
		}
	}
}

void wg_python_locks(struct wg_py *py)
{
	struct locks l = { .py = py };
	const struct wg_python *y = &py->p->python;

	find_held(&l);
	for (size_t i = 0; i < py->threads.n; i++) {
		struct search s = { .py = py };
		const struct wg_py_frame *fr;
		struct wg_thread *t = py->threads.v[i].tid ?
					      wg_find_thread(py->p, py->threads.v[i].tid) :
					      NULL;

		if (!t || !py->frames[i].n || t->wait.op != WG_OP_FUTEX)
			continue;
		s.futex = t->wait.futex.addr;
		if (!s.futex || (s.futex >= y->gil_cond && s.futex < y->gil_cond_end))
			continue;
		fr = find_lock(&s, &py->frames[i]);
		if (fr)
			describe(&l, i, t, &s, fr);
	}
	for (size_t i = 0; i < l.held.n; i++)
		if (kind_of(py, l.held.v[i].object) == SEMLOCK)
			shared_lock(&l, l.held.v[i].object);
	if (uses_multiprocessing(py))
		find_shared(&l);
}
