/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python_hands.c - what a thread's Python frames have in hand: the connections that it serves,
 * the process whose end it waits for, the task whose result it wants and who runs that task.
 *
 * A server's main thread waits for the next client while the thread that has our request stands
 * still somewhere: the descriptor of our connection is in that thread's variables. A future has no
 * owner in any lock; the thread that runs its task has it in its frames.
 */
#include "pyread.h"

#include <string.h>

#define MAX_FRAMES 48	/* of a thread, innermost first */
#define MAX_LOCALS 32
#define MAX_HANDS 16	/* descriptors of one thread */
#define OBJECT_FD 16	/* _socket.socket: sock_fd */

/* ---- connections ------------------------------------------------------------------------ */

struct hands {
	struct wg_py *py;
	struct wg_thread *t;
};

static void note_fd(struct hands *h, int64_t fd)
{
	if (fd < 0 || fd > INT32_MAX || h->t->fds_at_hand.n >= MAX_HANDS)
		return;
	for (size_t i = 0; i < h->t->fds_at_hand.n; i++)
		if (h->t->fds_at_hand.v[i] == fd)
			return;
	*wg_push(h->py->f->arena, &h->t->fds_at_hand) = (int32_t)fd;
}

static bool connection(struct hands *h, uint64_t object)
{
	uint64_t handle, v;
	char name[64];
	int32_t fd;

	if (!wg_py_type_name(h->py, object, name, sizeof(name)))
		return false;
	if (strstr(name, "ocket") && wg_py_is_a(h->py, object, "_socket.socket")) {
		if (wg_py_i32(h->py, object + OBJECT_FD, &fd))
			note_fd(h, fd);
		return true;
	}
	if (!strcmp(name, "Connection")) { /* multiprocessing's */
		handle = wg_py_attr(h->py, object, "_handle");
		if (handle && wg_py_long(h->py, handle, &v))
			note_fd(h, (int64_t)v);
		return true;
	}
	return false;
}

static void try_connection(void *arg, uint64_t object)
{
	connection(arg, object);
}

/* Variables of its frames, and attributes of the objects whose methods they are. */
static void connections(struct wg_py *py, struct wg_thread *t, const struct wg_py_frames *frames)
{
	struct hands h = { py, t };

	for (size_t i = 0; i < frames->n && i < MAX_FRAMES; i++) {
		const struct wg_py_frame *fr = &frames->v[i];
		uint64_t self;

		for (int k = 0; k < fr->code->nlocals && k < MAX_LOCALS; k++) {
			uint64_t v = wg_py_slot(py, fr, k);

			if (v)
				connection(&h, v);
		}
		self = wg_py_local(py, fr, "self");
		if (self)
			wg_py_attrs_each(py, self, 48, try_connection, &h);
	}
}

/* ---- a process that is joined ------------------------------------------------------------- */

/*
 * Process.join() waits for a descriptor that some other process closes or writes (the forkserver
 * does so for its children): the Popen object knows whose end is meant.
 */
static void joined_process(struct wg_py *py, struct wg_thread *t, const struct wg_py_frames *frames)
{
	static const char *const files[] = { "multiprocessing/popen_fork.py",
					     "multiprocessing/popen_forkserver.py" };
	uint64_t self, v, pid;

	if (t->wait.op != WG_OP_POLL || !py->same_pidns)
		return;
	for (size_t i = 0; i < frames->n && i < 8; i++)
		for (size_t k = 0; k < sizeof(files) / sizeof(files[0]); k++) {
			if (!wg_py_at(&frames->v[i], files[k], "poll") &&
			    !wg_py_at(&frames->v[i], files[k], "wait"))
				continue;
			self = wg_py_local(py, &frames->v[i], "self");
			v = self ? wg_py_attr(py, self, "pid") : 0;
			if (v && wg_py_long(py, v, &pid) && pid && pid < 1u << 30) {
				t->wait.child = (int64_t)pid;
				return;
			}
		}
}

/* ---- results of tasks ---------------------------------------------------------------------- */

struct item { /* of a dict of work items: is one of them that of the future? */
	struct wg_py *py;
	uint64_t future;
	bool found;
};

static void try_item(void *arg, uint64_t object)
{
	struct item *x = arg;

	if (!x->found)
		x->found = wg_py_attr(x->py, object, "future") == x->future;
}

static bool among(struct wg_py *py, uint64_t items, uint64_t future)
{
	struct item x = { py, future, false };

	if (items)
		wg_py_dict_each(py, items, 4096, try_item, &x);
	return x.found;
}

/* The thread that runs the task of a future, or that collects the results of its processes. */
static const struct wg_py_thread *runner_of(struct wg_py *py, uint64_t future, const char **how)
{
	for (size_t t = 0; t < py->threads.n; t++) {
		const struct wg_py_frames *all = &py->frames[t];
		uint64_t self, items = 0;

		for (size_t i = all->n; i-- > 0 && all->n - i < 12;) {
			const struct wg_py_frame *fr = &all->v[i];

			if (wg_py_at(fr, "concurrent/futures/thread.py", "run")) {
				self = wg_py_local(py, fr, "self");
				if (self && wg_py_attr(py, self, "future") == future) {
					*how = "it runs the task of this future";
					return &py->threads.v[t];
				}
			} else if (wg_py_at(fr, "concurrent/futures/process.py", "run")) {
				self = wg_py_local(py, fr, "self");
				items = self ? wg_py_attr(py, self, "pending_work_items") : 0;
			} else if (wg_py_at(fr, "concurrent/futures/process.py",
					    "_queue_management_worker")) {
				items = wg_py_local(py, fr, "pending_work_items"); /* 3.8 */
			}
			if (items && among(py, items, future)) {
				*how = "it collects the results of this future's worker processes";
				return &py->threads.v[t];
			}
			items = 0;
		}
	}
	return NULL;
}

/* multiprocessing.Pool: the thread that hands out results has the same dict of open jobs. */
static const struct wg_py_thread *results_thread(struct wg_py *py, uint64_t cache, bool *sure)
{
	*sure = true;
	for (size_t t = 0; t < py->threads.n; t++) {
		const struct wg_py_frames *all = &py->frames[t];

		if (!all->n)
			*sure = false; /* could be that one: its frames could not be read */
		for (size_t i = all->n; i-- > 0 && all->n - i < 8;)
			if (wg_py_at(&all->v[i], "multiprocessing/pool.py", "_handle_results") &&
			    wg_py_local(py, &all->v[i], "cache") == cache)
				return &py->threads.v[t];
	}
	return NULL;
}

static struct wg_pylock *lock_of(struct wg_py *py, const struct wg_thread *t)
{
	struct wg_python *y = &py->p->python;
	struct wg_pylock *l;

	for (size_t i = 0; i < y->locks.n; i++)
		if (y->locks.v[i].waiter_tid == t->tid)
			return &y->locks.v[i];
	l = wg_push(py->f->arena, &y->locks);
	l->futex = t->wait.futex.addr;
	l->waiter_tid = t->tid;
	return l;
}

static void awaited_result(struct wg_py *py, const struct wg_thread *t,
			   const struct wg_py_frames *frames)
{
	const struct wg_py_thread *by = NULL;
	struct wg_pylock *l;
	const char *how = NULL, *kind = NULL;
	uint64_t self, cache;
	bool gone = false, sure;

	if (t->wait.op != WG_OP_FUTEX || !frames->n ||
	    !wg_py_at(&frames->v[0], "threading.py", "wait"))
		return;
	for (size_t i = 1; i < frames->n && i < 4; i++) {
		const struct wg_py_frame *fr = &frames->v[i];

		self = wg_py_local(py, fr, "self");
		if (!self)
			continue;
		if (wg_py_at(fr, "concurrent/futures/_base.py", "result") ||
		    wg_py_at(fr, "concurrent/futures/_base.py", "exception")) {
			by = runner_of(py, self, &how);
			kind = "future";
			break;
		}
		if (wg_py_at(fr, "multiprocessing/pool.py", "wait") ||
		    wg_py_at(fr, "multiprocessing/pool.py", "get") ||
		    wg_py_at(fr, "multiprocessing/pool.py", "next")) {
			cache = wg_py_attr(py, self, "_cache");
			if (!cache)
				continue;
			by = results_thread(py, cache, &sure);
			gone = !by && sure;
			how = by ? "it hands out the results of the pool" :
				   "the pool's thread that hands out results has ended";
			kind = "result of a pool";
			break;
		}
	}
	if ((!by || !by->tid || by->tid == t->tid) && !gone)
		return;
	l = lock_of(py, t);
	l->kind = kind;
	l->object = self;
	l->owner_tid = by ? by->tid : 0;
	l->owner_gone = gone;
	l->task = true;
	l->certainty = WG_CERTAIN;
	l->evidence = how;
}

void wg_python_hands(struct wg_py *py)
{
	for (size_t i = 0; i < py->threads.n; i++) {
		struct wg_thread *t = py->threads.v[i].tid ?
					      wg_find_thread(py->p, py->threads.v[i].tid) :
					      NULL;

		if (!t || !py->frames[i].n)
			continue;
		if (py->threads.n <= 256)
			connections(py, t, &py->frames[i]);
		joined_process(py, t, &py->frames[i]);
		awaited_result(py, t, &py->frames[i]);
	}
}
