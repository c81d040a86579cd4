/* SPDX-License-Identifier: Apache-2.0 */
/*
 * python.c - Python frames of every thread, and who holds the GIL, from outside.
 *
 * Nothing is asked of the interpreter, so neither its GIL nor its allocator can hold this
 * up; the price is knowing its structures by version (see python_offsets.h).
 */
#include "pyread.h"

#include <errno.h>
#include <string.h>

static void read_gil(struct wg_py *py)
{
	struct wg_python *y = &py->p->python;
	uint64_t gil = py->runtime + py->o.runtime_gil, holder;
	int32_t locked;

	if (py->o.runtime_gil == WG_PY_ABSENT &&
	    !wg_py_field(py, py->interp, py->o.interp_ceval_gil, &gil))
		return;
	y->gil_cond = gil + py->o.gil_cond;
	y->gil_cond_end = y->gil_cond + WG_PY_COND_SIZE;
	if (!wg_py_i32(py, gil + py->o.gil_locked, &locked) ||
	    !wg_py_u64(py, gil + py->o.gil_last_holder, &holder) || locked < -1 || locked > 1)
		return;
	y->gil_known = true;
	y->gil_held = locked == 1;
	if (locked != 1)
		return; /* last_holder is stale then */
	for (size_t i = 0; i < py->threads.n; i++)
		if (py->threads.v[i].addr == holder)
			y->gil_holder = py->threads.v[i].tid;
	/* Held by a thread state that is on no list: one that is being made or ended. */
	if (!y->gil_holder)
		y->gil_known = false;
}

static bool in_native(const struct wg_thread *t, const char *symbol)
{
	for (size_t i = 0; t && i < t->native_stack.n; i++)
		if (t->native_stack.v[i].symbol && !strcmp(t->native_stack.v[i].symbol, symbol))
			return true;
	return false;
}

/* How far its end has come. */
static void read_end(struct wg_py *py, const struct wg_thread *main_thread)
{
	struct wg_python *y = &py->p->python;
	uint64_t v;
	int32_t flag = 0;

	if (wg_py_field(py, py->runtime, py->o.runtime_finalizing, &v) && v)
		y->finalizing = true;
	/* Before 3.12 the flag of the main interpreter stays 0. */
	if (py->o.minor >= 12 && py->o.interp_finalizing_flag != WG_PY_ABSENT &&
	    wg_py_i32(py, py->interp + py->o.interp_finalizing_flag, &flag) && flag == 1)
		y->finalizing = true;
	if (in_native(main_thread, "Py_FinalizeEx"))
		y->finalizing = true;
	y->main_in_shutdown = y->finalizing;
	if (py->o.interp_threads_main != WG_PY_ABSENT &&
	    wg_py_field(py, py->interp, py->o.interp_threads_main, &v) && !v)
		y->main_in_shutdown = true;
	/* Called by the interpreter itself, when the program's own code is left: outermost. */
	if (main_thread && main_thread->python_stack.n) {
		const struct wg_pyframe *out =
			&main_thread->python_stack.v[main_thread->python_stack.n - 1];
		size_t n = strlen(out->file);

		if (!strcmp(out->function, "_shutdown") && n >= 12 &&
		    !strcmp(out->file + n - 12, "threading.py"))
			y->main_in_shutdown = true;
	}
}

int wg_python_collect(struct wg_facts *f, struct wg_process *p, struct wg_mem *m,
		      struct wg_symbols *s)
{
	struct wg_thread *main_thread = NULL;
	struct wg_py py;
	const char *why;
	size_t unread = 0;
	int err;

	wg_mem_forget(m); /* pages of one moment: what was read for other facts is older */
	err = wg_py_open(&py, f, p, m, s, &why);

	if (err == -ENOENT || wg_mem_error(m))
		return 0;
	if (err) {
		p->python.present = true;
		wg_add_missing(f, p, "Python stacks", why ? why : strerror(-err), NULL);
		return 0;
	}
	p->python.present = true;
	p->python.version = py.version;
	py.frames = wg_alloc(py.arena, (py.threads.n + 1) * sizeof(*py.frames));
	for (size_t i = 0; i < py.threads.n; i++) {
		const struct wg_py_thread *pt = &py.threads.v[i];
		struct wg_py_frames *frames = &py.frames[i];
		struct wg_thread *t = pt->tid ? wg_find_thread(p, pt->tid) : NULL;

		if (!t)
			continue;
		t->has_python = true;
		t->py_main |= pt->main;
		if (pt->main)
			main_thread = t;
#if defined(__x86_64__)
		/* pthread_self() is the address of the thread's control block here */
		if (!t->fsbase)
			t->fsbase = pt->ident;
#endif
		err = wg_py_frames(&py, pt, frames);
		if (err) {
			frames->n = 0;
			unread++;
			continue;
		}
		/* One thread can have states in several interpreters: the one with frames. */
		if (!frames->n)
			continue;
		t->python_stack.n = 0;
		for (size_t k = 0; k < frames->n; k++) {
			struct wg_pyframe *fr = wg_push(f->arena, &t->python_stack);

			fr->function = wg_str(f->arena, frames->v[k].code->function);
			fr->file = wg_str(f->arena, frames->v[k].code->file);
			fr->line = frames->v[k].line;
		}
	}
	if (unread)
		wg_add_missing(f, p, "Python stacks of running threads",
			       wg_fmt(f->arena, "%zu changed while they were read", unread), NULL);
	read_gil(&py);
	read_end(&py, main_thread);
	wg_python_locks(&py);
	wg_python_hands(&py);
	wg_add_source(f, p, "python");
	wg_py_close(&py);
	return 0;
}
