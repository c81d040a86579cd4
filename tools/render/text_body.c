/* SPDX-License-Identifier: Apache-2.0 */
/* text_body.c - what `dump` prints below the verdict: devices, queues, files, threads. */
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "involved.h"
#include "text.h"

#define MAX_FRAMES 14	 /* of one stack, unless all are asked for */
#define MAX_GROUPS 24	 /* stacks shown in full */
#define MAX_LISTED 12	 /* streams, files, collectives of one kind */

static void heading(struct wg_page *p, const char *text)
{
	wg_line(p, WG_PLAIN, "%s", "");
	wg_line(p, WG_HEAD, "%s", text);
}

static const char *join(struct wg_arena *a, const char *s, const char *more)
{
	if (!more || !*more)
		return s;
	return s && *s ? wg_fmt(a, "%s, %s", s, more) : more;
}

/* ---- devices ---------------------------------------------------------------------- */

static void failure_text(struct wg_page *page, const struct wg_failure *x, bool all)
{
	struct wg_arena *a = page->arena;
	const char *s;

	s = wg_fmt(a, "%s asked for %s", x->function ? x->function : "an allocation",
		   wg_bytes_text(a, x->asked));
	if (wg_has_int(x->free))
		s = wg_fmt(a, "%s with %s free: %s", s, wg_bytes_text(a, x->free),
			   wg_has_int(x->short_by) && x->short_by > 0 ?
				   wg_fmt(a, "short by %s", wg_bytes_text(a, x->short_by)) :
				   "not for want of free bytes (a limit, or fragmented)");
	if (wg_has_int(x->error))
		s = wg_fmt(a, "%s (error %lld)", s, (long long)x->error);
	if (wg_has_int(x->repeats) && x->repeats > 0)
		s = wg_fmt(a, "%s, and %lld times more", s, (long long)x->repeats);
	s = wg_fmt(a, "%s, %s ago by thread %d%s%s%s%s", s, wg_time_text(a, x->age_s), x->tid,
		   x->thread_name ? " " : "", x->thread_name ? x->thread_name : "",
		   x->thread_alive ? "" : " (gone)",
		   !x->recovered_known ? "" :
		   x->recovered	       ? "; it went on afterwards" :
					 "; NOTHING shows that it recovered");
	wg_wrap(page, x->recovered ? WG_PLAIN : WG_DOUBT, "    failed: ", "      ", s);
	for (size_t i = 0; i < x->python_stack.n && (all || i < 4); i++) {
		const struct wg_pyframe *fr = &x->python_stack.v[i];

		wg_line(page, WG_PLAIN, "      py %s  %s%s", fr->function ? fr->function : "?",
			fr->file ? wg_cut_path(a, fr->file, 50) : "?",
			wg_has_int(fr->line) ? wg_fmt(a, ":%lld", (long long)fr->line) : "");
	}
	for (size_t i = 0; i < x->stack.n && (all || i < 4); i++) {
		const struct wg_frame *fr = &x->stack.v[i];

		if (fr->symbol)
			wg_line(page, WG_PLAIN, "      c  %s  %s%s", wg_cut(a, fr->symbol, 60),
				fr->file ? wg_cut_path(a, fr->file, 34) : "",
				fr->file && wg_has_int(fr->line) ?
					wg_fmt(a, ":%lld", (long long)fr->line) : "");
		else
			wg_line(page, WG_PLAIN, "      c  0x%llx%s%s", (unsigned long long)fr->pc,
				fr->module ? " in " : "", fr->module ? fr->module : "");
	}
}

static const char *device_text(struct wg_arena *a, const struct wg_device *d)
{
	const char *s = "";

	if (wg_has_int(d->free))
		s = wg_has_int(d->total) ? wg_fmt(a, "%s of %s free", wg_bytes_text(a, d->free),
						  wg_bytes_text(a, d->total)) :
					   wg_fmt(a, "%s free", wg_bytes_text(a, d->free));
	else if (wg_has_int(d->total))
		s = wg_fmt(a, "%s in all", wg_bytes_text(a, d->total));
	if (wg_has_int(d->free) && wg_has_sec(d->free_age_s) && d->free_age_s >= 60)
		s = wg_fmt(a, "%s (as looked at more than %.0f min ago)", s,
			   floor(d->free_age_s / 60));
	if (wg_has_int(d->own))
		s = join(a, s, wg_fmt(a, "%s held here%s", wg_bytes_text(a, d->own),
				      wg_has_int(d->peak) && d->peak > d->own ?
					      wg_fmt(a, " (peak %s)", wg_bytes_text(a, d->peak)) :
					      ""));
	if (wg_has_int(d->least_free))
		s = join(a, s, wg_fmt(a, "never less than %s free", wg_bytes_text(a, d->least_free)));
	if (wg_has_int(d->utilization))
		s = join(a, s, wg_fmt(a, "%lld %% busy", (long long)d->utilization));
	if (wg_has_sec(d->power_w))
		s = join(a, s, wg_has_sec(d->power_limit_w) ?
				       wg_fmt(a, "%.0f of %.0f W", d->power_w, d->power_limit_w) :
				       wg_fmt(a, "%.0f W", d->power_w));
	return *s ? s : "nothing known";
}

static const char *device_name(struct wg_arena *a, const struct wg_device *d)
{
	return d->name ? wg_fmt(a, "%s: ", d->name) : "";
}

static void devices(struct wg_page *page, const struct wg_process *p, bool all)
{
	struct wg_arena *a = page->arena;
	bool *told = wg_alloc(a, p->devices.n + 1);

	if (!p->devices.n)
		return;
	heading(page, "Devices");
	for (size_t i = 0; i < p->devices.n; i++) {
		const struct wg_device *d = &p->devices.v[i];
		const char *s = device_text(a, d), *name = device_name(a, d);
		int64_t *index = wg_alloc(a, (p->devices.n + 1) * sizeof(*index));
		size_t n = 0;

		if (told[i])
			continue;
		/* Eight devices of which there is the same to say are one line. */
		for (size_t k = i; k < p->devices.n; k++) {
			const struct wg_device *x = &p->devices.v[k];

			if (k > i && (all || d->failures.n || d->other_processes.n || x->failures.n ||
				      x->other_processes.n || !wg_has_int(x->index) ||
				      !wg_has_int(d->index) || strcmp(name, device_name(a, x)) ||
				      strcmp(s, device_text(a, x))))
				continue;
			told[k] = true;
			index[n++] = x->index;
		}
		wg_wrap(page, WG_PLAIN,
			wg_has_int(d->index) ? wg_fmt(a, "  GPU %s  %s", wg_ranges_text(a, index, n),
						      name) :
					       "  GPU ?  ",
			"    ", n > 1 ? wg_fmt(a, "each %s", s) : s);
		for (size_t k = 0; k < d->other_processes.n && (all || k < 4); k++)
			wg_line(page, WG_PLAIN, "    also on it: pid %d with %s",
				d->other_processes.v[k].pid,
				wg_bytes_text(a, d->other_processes.v[k].bytes));
		/* The newest are the interesting ones. */
		for (size_t k = d->failures.n > 3 && !all ? d->failures.n - 3 : 0; k < d->failures.n;
		     k++)
			failure_text(page, &d->failures.v[k], all);
	}
}

/* ---- queues -------------------------------------------------------------------------- */

static const char *item_text(struct wg_arena *a, const struct wg_process *p,
			     const struct wg_gpu_item *x)
{
	static const char *const ops[] = { "something", "kernel", "copy", "memset", "graph",
					   "host function", "wait for event", "record of event",
					   "wait for memory", "write of memory", "collective",
					   "allocation", "free", "mark" };
	const char *s = ops[x->op <= WG_GPU_MARK ? x->op : 0];

	switch (x->op) {
	case WG_GPU_WAIT_EVENT:
		if (!x->event_recorded)
			return wg_fmt(a, "wait for event 0x%llx%s", (unsigned long long)x->object,
				      x->event_remote ? " of another process" : " (never recorded)");
		return wg_fmt(a, "wait for event 0x%llx (item %llu of stream 0x%llx)",
			      (unsigned long long)x->object, (unsigned long long)x->event_seq,
			      (unsigned long long)x->event_stream);
	case WG_GPU_WAIT_VALUE:
		return wg_fmt(a, "wait for memory 0x%llx %s %llu%s", (unsigned long long)x->object,
			      (x->flags & 3) == 1 ? "==" :
			      (x->flags & 3) == 2 ? "&"	 :
			      (x->flags & 3) == 3 ? "~|" :
						    ">=",
			      (unsigned long long)x->value,
			      x->has_current ? wg_fmt(a, " (it is %llu)",
						      (unsigned long long)x->current) :
					       "");
	case WG_GPU_COLLECTIVE:
		if (wg_has_int(x->comm) && x->comm >= 0 && (size_t)x->comm < p->comms.n)
			return wg_fmt(a, "%s #%llu of communicator %s", x->name ? x->name : s,
				      (unsigned long long)x->coll_seq,
				      p->comms.v[x->comm].id ? p->comms.v[x->comm].id : "?");
		return wg_fmt(a, "%s #%llu", x->name ? x->name : s, (unsigned long long)x->coll_seq);
	default:
		if (x->name)
			return wg_fmt(a, "%s %s", s, wg_cut(a, x->name, 60));
		if (x->object)
			return wg_fmt(a, "%s 0x%llx", s, (unsigned long long)x->object);
		return s;
	}
}

static void streams(struct wg_page *page, const struct wg_process *p, bool all)
{
	struct wg_arena *a = page->arena;
	size_t idle = 0, shown = 0, busy = 0;

	for (size_t i = 0; i < p->streams.n; i++)
		busy += p->streams.v[i].completed < p->streams.v[i].enqueued;
	if (!p->streams.n)
		return;
	heading(page, "Streams");
	for (size_t i = 0; i < p->streams.n; i++) {
		const struct wg_stream *s = &p->streams.v[i];
		const char *name, *t;
		size_t more;

		if (s->completed >= s->enqueued && !all) {
			idle++;
			continue;
		}
		if (shown >= MAX_LISTED && !all)
			continue;
		shown++;
		name = s->handle == 0 ? "default stream" :
		       s->handle == 2 ? wg_fmt(a, "default stream of thread %d", s->owner_tid) :
					wg_fmt(a, "stream 0x%llx", (unsigned long long)s->handle);
		t = wg_fmt(a, "%s%llu of %llu done", s->has_position ? "" : "at least ",
			   (unsigned long long)s->completed, (unsigned long long)s->enqueued);
		if (s->completed_delta)
			t = join(a, t, wg_fmt(a, "%llu of them just now",
					      (unsigned long long)s->completed_delta));
		else if (s->completed < s->enqueued && wg_has_sec(s->progress_age_s))
			t = join(a, t, wg_fmt(a, "not moved for %s%s",
					      wg_time_text(a, s->progress_age_s),
					      wg_has_sec(s->longest_gap_s) ?
						      wg_fmt(a, " (at most %s before)",
							     wg_time_text(a, s->longest_gap_s)) :
						      ""));
		if (s->capturing)
			t = join(a, t, "being captured");
		wg_wrap(page, WG_PLAIN,
			wg_fmt(a, "  GPU %lld %s: ", (long long)(wg_has_int(s->device) ? s->device : -1),
			       name), "      ", t);
		if (s->pending_truncated)
			wg_line(page, WG_DIM, "      the oldest unfinished things are no longer in the record");
		more = s->pending.n;
		for (size_t k = 0; k < s->pending.n && (all || k < 4); k++, more--) {
			const struct wg_gpu_item *x = &s->pending.v[k];
			const char *head = k || s->pending_truncated ? "then" :
					   s->completed_exact	     ? "at" :
								       "at or past";

			wg_wrap(page, WG_PLAIN,
				wg_fmt(a, "      %s #%llu ", head, (unsigned long long)x->seq),
				"          ",
				wg_fmt(a, "%s%s", item_text(a, p, x),
				       wg_has_sec(x->age_s) && !k ?
					       wg_fmt(a, ", given %s ago", wg_time_text(a, x->age_s)) :
					       ""));
		}
		if (s->enqueued - s->completed > s->pending.n - more && s->pending.n)
			wg_line(page, WG_DIM, "      ... %llu more",
				(unsigned long long)(s->enqueued - s->completed -
						     (s->pending.n - more)));
	}
	if (busy > shown && !all)
		wg_line(page, WG_DIM, "  ... %zu more streams with unfinished work: --all", busy - shown);
	if (idle)
		wg_line(page, WG_DIM, "  %zu stream%s with nothing left to do", idle,
			idle == 1 ? "" : "s");
}

static void collectives(struct wg_page *page, const struct wg_process *p, bool all)
{
	struct wg_arena *a = page->arena;
	size_t shown = 0;

	if (!p->comms.n)
		return;
	heading(page, "Communicators");
	for (size_t i = 0; i < p->comms.n; i++) {
		const struct wg_comm *c = &p->comms.v[i];
		size_t last, open;

		if (shown++ >= MAX_LISTED && !all) {
			wg_line(page, WG_DIM, "  ... %zu more: --all", p->comms.n - i);
			break;
		}
		wg_wrap(page, WG_PLAIN,
			wg_fmt(a, "  %s%s%s ", c->id ? wg_cut(a, c->id, 20) : "(no id yet)",
			       c->name ? " " : "", c->name ? c->name : ""), "    ",
			wg_fmt(a, "rank %lld of %lld%s, %s%s%s: entered %llu%s%s",
			       (long long)(wg_has_int(c->rank) ? c->rank : -1),
			       (long long)(wg_has_int(c->size) ? c->size : -1),
			       wg_has_int(c->device) ? wg_fmt(a, " on GPU %lld", (long long)c->device) :
						       "",
			       c->state ? c->state : "state not known",
			       wg_has_sec(c->age_s) ? " for " : "",
			       wg_has_sec(c->age_s) ? wg_time_text(a, c->age_s) : "",
			       (unsigned long long)c->next_sequence,
			       c->done_known ? wg_fmt(a, ", done %llu", (unsigned long long)c->done) :
					       "",
			       wg_has_int(c->async_error) && c->async_error ?
				       wg_fmt(a, ", asynchronous error %lld",
					      (long long)c->async_error) :
				       ""));
		/* The unfinished ones, and the last finished one for comparison. */
		for (last = c->recent.n; last > 0; last--)
			if (c->recent.v[last - 1].state == WG_COLL_DONE && !c->recent.v[last - 1].p2p)
				break;
		open = 0;
		for (size_t k = 0; k < c->recent.n; k++) {
			const struct wg_collective *x = &c->recent.v[k];
			static const char *const st[] = { "given", "running", "done" };

			if (x->state == WG_COLL_DONE ? k + 1 != last && !all : open++ >= 5 && !all)
				continue;
			wg_line(page, WG_PLAIN, "    #%llu %s %s%s%s%s%s  %s, entered %s ago%s%s",
				(unsigned long long)x->sequence, x->op ? x->op : "?",
				wg_has_int(x->count) ? wg_fmt(a, "%lld ", (long long)x->count) : "",
				x->type ? x->type : "", x->redop ? " " : "",
				x->redop ? x->redop : "",
				wg_has_int(x->root) ?
					wg_fmt(a, x->p2p ? " peer %lld" : " root %lld",
					       (long long)x->root) :
					"",
				x->failed ? "failed" : x->captured ? "captured into a graph" : st[x->state],
				wg_time_text(a, x->age_s), x->host_blocked ? ", the call has not returned" : "",
				x->p2p ? " (counted apart)" : "");
		}
		if (open > 5 && !all)
			wg_line(page, WG_DIM, "    ... %zu more unfinished: --all", open - 5);
	}
	if (p->peers.n) {
		size_t gone = 0;

		for (size_t i = 0; i < p->peers.n; i++) {
			const struct wg_peer *x = &p->peers.v[i];

			if (x->alive_known && !x->alive) {
				gone++;
				wg_line(page, WG_BAD, "  rank %lld of %s is gone: pid %lld on %s",
					(long long)x->rank, wg_cut(a, x->comm ? x->comm : "?", 20),
					(long long)(wg_has_int(x->pid) ? x->pid : 0),
					x->host ? x->host : "?");
			}
		}
		if (p->peers.n > gone)
			wg_line(page, WG_DIM, "  %zu other rank%s known", p->peers.n - gone,
				p->peers.n - gone == 1 ? "" : "s");
	}
}

/* ---- files: the three depths of buffering ----------------------------------------------- */

static bool file_matters(const struct wg_process *p, const struct wg_file *x)
{
	if (x->fd >= 0 && x->fd <= 2)
		return true;
	if ((wg_has_int(x->user_buffered_bytes) && x->user_buffered_bytes > 0) ||
	    (wg_has_int(x->dirty_bytes) && x->dirty_bytes > 0) ||
	    (wg_has_int(x->write_error) && x->write_error) ||
	    (wg_has_int(x->written_bytes) && x->written_bytes > 0 && x->kind == WG_FILE_REG) ||
	    (wg_has_int(x->pipe_fill) && x->pipe_fill > 0) || x->lock_kind)
		return true;
	for (size_t i = 0; i < p->threads.n; i++) {
		const struct wg_wait *w = &p->threads.v[i].wait;

		if (w->op != WG_OP_RUNNING && w->op != WG_OP_FUTEX && w->fd == x->fd)
			return true;
	}
	return false;
}

static void files(struct wg_page *page, const struct wg_process *p, bool all)
{
	struct wg_arena *a = page->arena;
	size_t shown = 0, other = 0;

	if (!p->files.n)
		return;
	heading(page, "Files  (buffered in the process > written, not on storage > in the kernel)");
	for (size_t i = 0; i < p->files.n; i++) {
		const struct wg_file *x = &p->files.v[i];
		const char *s = "";

		if (!all && (!file_matters(p, x) || shown >= MAX_LISTED + 3)) {
			other++;
			continue;
		}
		shown++;
		if (wg_has_int(x->written_bytes))
			s = join(a, s, wg_fmt(a, "written %s", wg_bytes_text(a, x->written_bytes)));
		if (wg_has_sec(x->last_write_age_s))
			s = join(a, s, wg_fmt(a, "last write %s ago%s",
					      wg_time_text(a, x->last_write_age_s),
					      x->remote_fs ? ", as its server last told" : ""));
		else if (wg_has_sec(x->quiet_s) && x->quiet_s >= 2)
			s = join(a, s, wg_fmt(a, "not written for at least %s",
					      wg_time_text(a, x->quiet_s)));
		if (wg_has_int(x->user_buffered_bytes) && x->user_buffered_bytes > 0)
			s = join(a, s, wg_fmt(a, "%s never written yet, in a buffer of the process%s%s%s",
					      wg_bytes_text(a, x->user_buffered_bytes),
					      x->user_buffer_owner ? " (" : "",
					      x->user_buffer_owner ? x->user_buffer_owner : "",
					      x->user_buffer_owner ? ")" : ""));
		if (wg_has_int(x->dirty_bytes) && x->dirty_bytes > 0)
			s = join(a, s, wg_fmt(a, "%s not on storage yet",
					      wg_bytes_text(a, x->dirty_bytes)));
		if (wg_has_int(x->writeback_bytes) && x->writeback_bytes > 0)
			s = join(a, s, wg_fmt(a, "%s on the way to it",
					      wg_bytes_text(a, x->writeback_bytes)));
		if (wg_has_int(x->write_error) && x->write_error)
			s = join(a, s, wg_fmt(a, "A WRITE FAILED: %s",
					      strerror((int)(x->write_error < 0 ? -x->write_error :
										  x->write_error))));
		if (wg_has_int(x->pipe_fill) && wg_has_int(x->pipe_size))
			s = join(a, s, x->pipe_fill >= x->pipe_size ?
					       wg_fmt(a, "pipe FULL (%s)",
						      wg_bytes_text(a, x->pipe_size)) :
					       wg_fmt(a, "%lld of %s in the pipe",
						      (long long)x->pipe_fill,
						      wg_bytes_text(a, x->pipe_size)));
		if (x->sock_remote)
			s = join(a, s, wg_fmt(a, "to %s", x->sock_remote));
		if (wg_has_int(x->sock_txq) && x->sock_txq > 0)
			s = join(a, s, wg_fmt(a, "%s unsent or unread by the peer",
					      wg_bytes_text(a, x->sock_txq)));
		if (wg_has_int(x->sock_rxq) && x->sock_rxq > 0)
			s = join(a, s, wg_fmt(a, "%s waiting to be read",
					      wg_bytes_text(a, x->sock_rxq)));
		if (x->fs_type && x->kind == WG_FILE_REG)
			s = join(a, s, x->fs_type);
		if (x->deleted)
			s = join(a, s, "deleted");
		wg_wrap(page, WG_PLAIN,
			wg_fmt(a, "  %3d %s%s", x->fd, wg_cut_path(a, x->path ? x->path : "?", 60),
			       *s ? "  " : ""), "        ", s);
	}
	if (wg_has_sec(p->last_write_age_s))
		wg_line(page, WG_DIM, "  its threads last wrote anything %s ago",
			wg_time_text(a, p->last_write_age_s));
	else if (wg_has_sec(p->quiet_s) && p->quiet_s >= 2)
		wg_line(page, WG_DIM, "  its threads have written nothing for at least %s",
			wg_time_text(a, p->quiet_s));
	if (other)
		wg_line(page, WG_DIM, "  %zu more without anything pending%s", other,
			all ? "" : ": --all");
}

/* ---- threads, merged by equal stacks --------------------------------------------------------- */

struct group {
	const struct wg_thread *first;
	const struct wg_wait_view *view;
	bool idle; /* by design, and nobody's trouble */
	size_t count;
	double oldest, youngest;
	const char *tids;
	const char *name; /* of its threads; "worker-*" where they differ in their ends */
	int rank; /* order: asked for first, bystanders last */
};

static bool str_eq(const char *a, const char *b)
{
	return a == b || (a && b && !strcmp(a, b));
}

/* Frames of the interpreter itself say nothing that the Python frames do not. */
static bool interpreter(const struct wg_frame *f)
{
	static const char *const names[] = { "_PyEval_", "PyEval_", "_PyObject_", "PyObject_",
					     "_PyFunction_", "PyVectorcall_", "method_vectorcall",
					     "_PyVectorcall", "cfunction_", "builtin_exec",
					     "run_mod", "run_eval_code_obj", "pyrun_", "_PyRun_",
					     "PyRun_", "Py_RunMain", "Py_BytesMain", "pymain_",
					     "slot_tp_call", "object_vacall", "vectorcall_",
					     "_PyImport", "PyImport_", "method_vectorcall_",
					     "builtin___build_class__", "partial_", "thread_run",
					     "pythread_wrapper", "context_run", "function_code" };

	if (!f->symbol)
		return false;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (!strncmp(f->symbol, names[i], strlen(names[i])))
			return true;
	return false;
}

static bool eval_frame(const struct wg_frame *f)
{
	/* Parts that the compiler split off ("...Default.cold") are the same call. */
	return f->symbol && !strncmp(f->symbol, "_PyEval_EvalFrameDefault", 24) && !f->inlined;
}

static bool equal_stacks(const struct wg_thread *a, const struct wg_thread *b)
{
	if (a->native_stack.n != b->native_stack.n || a->python_stack.n != b->python_stack.n ||
	    a->kernel_stack.n != b->kernel_stack.n || a->calls.n != b->calls.n)
		return false;
	for (size_t i = 0; i < a->native_stack.n; i++) {
		const struct wg_frame *x = &a->native_stack.v[i], *y = &b->native_stack.v[i];

		if (!str_eq(x->symbol, y->symbol) || !str_eq(x->module, y->module) ||
		    (!x->symbol && x->pc != y->pc))
			return false;
	}
	for (size_t i = 0; i < a->python_stack.n; i++) {
		const struct wg_pyframe *x = &a->python_stack.v[i], *y = &b->python_stack.v[i];

		if (!str_eq(x->function, y->function) || !str_eq(x->file, y->file) ||
		    x->line != y->line)
			return false;
	}
	for (size_t i = 0; i < a->calls.n; i++)
		if (!str_eq(a->calls.v[i].function, b->calls.v[i].function))
			return false;
	/* Without any stack the kernel's word for it has to do. */
	return a->wait.op == b->wait.op && (a->native_stack.n || a->python_stack.n ||
					    str_eq(a->wchan, b->wchan));
}

static bool mergeable(const struct group *g, const struct wg_thread *t,
		      const struct wg_wait_view *v, bool idle)
{
	const struct wg_wait_view *w = g->view;

	if (g->first->state != t->state || g->first->ours != t->ours || g->idle != idle ||
	    !equal_stacks(g->first, t))
		return false;
	if (!v || !w)
		return v == w;
	/* Of bystanders the object does not matter: 15 workers wait on 15 words of one pool. */
	return str_eq(v->kind, w->kind) && str_eq(v->call, w->call) &&
	       (idle || str_eq(v->object, w->object));
}

static const char *module_name(const char *path)
{
	const char *slash = path ? strrchr(path, '/') : NULL;

	return slash ? slash + 1 : path;
}

static void native_line(struct wg_page *page, const struct wg_frame *f, size_t times)
{
	struct wg_arena *a = page->arena;
	const char *where = "", *doubt = f->certainty == WG_GUESS  ? " (a guess)" :
					 f->certainty == WG_LIKELY ? " (likely)" :
								     "";

	if (f->file)
		where = wg_has_int(f->line) ? wg_fmt(a, "%s:%lld", wg_cut_path(a, f->file, 34),
						     (long long)f->line) :
					      wg_cut_path(a, f->file, 34);
	else if (f->module)
		where = module_name(f->module);
	if (f->symbol)
		wg_line(page, WG_PLAIN, "    c   %-52s %s%s%s",
			times > 1 ? wg_fmt(a, "%s  (%zu times)", wg_cut(a, f->symbol, 38), times) :
				    wg_cut(a, f->symbol, 52),
			where, f->inlined ? " (inlined)" : "", doubt);
	else
		wg_line(page, WG_PLAIN, "    c   %-52s %s%s",
			f->module ? wg_fmt(a, "+0x%llx", (unsigned long long)f->offset) :
				    wg_fmt(a, "0x%llx", (unsigned long long)f->pc),
			where, doubt);
}

static void python_line(struct wg_page *page, const struct wg_pyframe *f)
{
	struct wg_arena *a = page->arena;

	wg_line(page, WG_PLAIN, "    py  %-40s %s%s",
		wg_cut(a, f->function ? f->function : "?", 40),
		f->file ? wg_cut_path(a, f->file, 44) : "?",
		wg_has_int(f->line) ? wg_fmt(a, ":%lld", (long long)f->line) : "");
}

/* A function that calls itself from one place: how many frames of it follow one another. */
static size_t repeats(const struct wg_thread *t, size_t i)
{
	const struct wg_frame *f = &t->native_stack.v[i];
	size_t n = 1;

	while (f->symbol && i + n < t->native_stack.n) {
		const struct wg_frame *x = &t->native_stack.v[i + n];

		if (!str_eq(x->symbol, f->symbol) || !str_eq(x->module, f->module) ||
		    x->line != f->line || x->inlined != f->inlined || x->certainty != f->certainty)
			break;
		n++;
	}
	return n;
}

static void stacks(struct wg_page *page, const struct wg_thread *t, bool all)
{
	size_t evals = 0, py = 0, printed = 0, hidden = 0, max = all ? SIZE_MAX : MAX_FRAMES;
	size_t per_eval;
	bool outer = false;

	if (t->kernel_stack.n) {
		const char *s = t->kernel_stack.v[0];

		for (size_t i = 1; i < t->kernel_stack.n && (all || i < 8); i++)
			s = wg_fmt(page->arena, "%s < %s", s, t->kernel_stack.v[i]);
		wg_wrap_cut(page, WG_PLAIN, "    k   ", "        ", s, all ? 99 : 1);
	}
	for (size_t i = 0; i < t->native_stack.n; i++)
		evals += eval_frame(&t->native_stack.v[i]);
	/*
	 * Each evaluation frame runs one Python frame up to 3.10, one or more since. They can be
	 * told apart when the numbers are equal or there is one; otherwise the Python frames go
	 * to the innermost evaluation, and the line says so.
	 */
	per_eval = evals && t->python_stack.n == evals ? 1 : 0;
	for (size_t i = 0; i < t->native_stack.n; i++) {
		const struct wg_frame *f = &t->native_stack.v[i];

		if (eval_frame(f) && t->python_stack.n) {
			size_t upto = per_eval ? py + 1 : t->python_stack.n;

			for (; py < upto && py < t->python_stack.n; py++)
				if (printed < max) {
					python_line(page, &t->python_stack.v[py]);
					printed++;
				} else {
					hidden++;
				}
			outer = !per_eval;
			continue;
		}
		if (!all && t->python_stack.n && interpreter(f))
			continue;
		if (outer && evals > 1 && !all) /* where between the Python frames is not known */
			continue;
		if (printed < max) {
			size_t n = all ? 1 : repeats(t, i);

			native_line(page, f, n);
			i += n - 1;
			printed++;
		} else {
			hidden++;
		}
	}
	for (; py < t->python_stack.n; py++)
		if (printed < max) {
			python_line(page, &t->python_stack.v[py]);
			printed++;
		} else {
			hidden++;
		}
	if (hidden)
		wg_line(page, WG_DIM, "    ... %zu outer frames: --all", hidden);
	if (t->native_stack.n && !t->native_complete)
		wg_line(page, WG_DIM, "    (the native stack ends here: it could not be unwound to the "
			"thread's start)");
}

static const char *state_words(char s)
{
	switch (s) {
	case 'R':
		return "running";
	case 'S':
		return "sleeping";
	case 'D':
		return "in the kernel, not interruptible";
	case 'T':
		return "STOPPED";
	case 't':
		return "stopped by a tracer";
	case 'Z':
		return "ended (zombie)";
	case 'X':
		return "ended";
	case 'I':
		return "idle";
	default:
		return "state not known";
	}
}

static void thread_group(struct wg_page *page, const struct group *g, const struct wg_process *p,
			 bool full, bool all)
{
	struct wg_arena *a = page->arena;
	const struct wg_thread *t = g->first;
	const struct wg_wait_view *v = g->view;
	const char *s, *head;

	head = g->name ? wg_cut(a, g->name, 24) : NULL;
	head = g->count > 1 ? wg_fmt(a, "  %zu x %s", g->count, head ? head : "thread") :
			      wg_fmt(a, "  %d %s%s", t->tid, head ? head : "",
				     t->tid == p->pid ? " (main)" : "");
	if (v && v->kind) {
		s = wg_fmt(a, "waits: %s", v->kind);
		if (t->wait.op == WG_OP_WRITE && wg_has_int(t->wait.bytes) && g->count == 1)
			s = wg_fmt(a, "%s of %s", s, wg_bytes_text(a, t->wait.bytes));
		if (v->object && (g->count == 1 || !g->idle))
			s = wg_fmt(a, "%s on %s", s, v->object);
		if (v->call && strcmp(v->call, v->kind))
			s = wg_fmt(a, "%s in %s", s, v->call);
		if (wg_has_sec(g->oldest))
			s = wg_fmt(a, "%s, for %s%s", s,
				   g->count > 1 && g->youngest < g->oldest * 0.9 ? "up to " : "",
				   wg_time_text(a, g->oldest));
	} else {
		s = state_words(t->state);
		if (v && v->call)
			s = wg_fmt(a, "%s in %s", s, v->call);
	}
	if (v && v->kind && (t->state == 'D' || t->state == 'T' || t->state == 't' || t->state == 'R'))
		s = wg_fmt(a, "%s [%s]", s, state_words(t->state));
	if (wg_has_sec(t->cpu_share) && t->cpu_share >= 0.01)
		s = wg_fmt(a, "%s, %.0f %% CPU", s, t->cpu_share * 100);
	if (t->ours)
		s = wg_fmt(a, "%s (waitgraph's own)", s);
	else if (g->idle)
		s = wg_fmt(a, "%s (idle by design)", s);
	wg_wrap(page, full ? WG_HEAD : WG_PLAIN, wg_fmt(a, "%s  ", head), "      ", s);
	if (g->count > 1 && g->tids)
		wg_wrap_cut(page, WG_DIM, "    tid ", "        ", g->tids, all ? 99 : 1);
	for (size_t i = 0; i < t->calls.n; i++) {
		const struct wg_call *c = &t->calls.v[i];
		const char *args = "";
		bool told = false;

		for (size_t k = 0; k < c->args.n; k++) {
			args = wg_fmt(a, "%s%s%s=%s", args, k ? ", " : "", c->args.v[k].name,
				      c->args.v[k].text);
			told = told || !strcasecmp(c->args.v[k].name, "stream") ||
			       !strcasecmp(c->args.v[k].name, "hStream");
		}
		if (c->has_stream && !told)
			args = join(a, args, c->stream == 0 ? "the default stream" :
					     c->stream == 2 ? "this thread's default stream" :
							      wg_fmt(a, "stream=0x%llx",
								     (unsigned long long)c->stream));
		wg_wrap_cut(page, WG_PLAIN, "    in  ", "        ",
			    wg_fmt(a, "%s%s%s%s(%s) for %s", c->function ? c->function : "?",
				   c->inner ? " [" : "", c->inner ? c->inner : "",
				   c->inner ? "]" : "", args, wg_time_text(a, c->since_s)),
			    all ? 99 : 2);
	}
	if (wg_has_int(t->waker_count) && t->waker_count > 0 && wg_has_sec(t->waker_age_s) && g->count == 1)
		wg_wrap_cut(page, WG_DIM, "    woken ", "        ",
			    wg_fmt(a, "%lld times by threads since it is watched, last %s ago%s%s",
				   (long long)t->waker_count, wg_time_text(a, t->waker_age_s),
				   t->waker_tid ? wg_fmt(a, " by %d", t->waker_tid) : " by another user's",
				   !t->waker_tid ? "" :
				   t->waker_pid != p->pid ? wg_fmt(a, " of pid %d", t->waker_pid) :
				   wg_find_thread(p, t->waker_tid) ? "" : ", which has ended"),
			    all ? 99 : 2);
	if (full)
		stacks(page, t, all);
}

static int group_order(const void *x, const void *y)
{
	const struct group *a = x, *b = y;

	if (a->rank != b->rank)
		return a->rank - b->rank;
	return a->first->tid < b->first->tid ? -1 : a->first->tid > b->first->tid;
}

/* What two names begin with, and a star; NULL where that is next to nothing. */
static const char *common_name(struct wg_arena *a, const char *x, const char *y)
{
	size_t n = 0;

	if (!x || !y || !strcmp(x, y))
		return x && y ? x : NULL;
	while (x[n] && x[n] == y[n])
		n++;
	while (n && (x[n] & 0xc0) == 0x80) /* not within a character */
		n--;
	return n >= 2 ? wg_fmt(a, "%.*s*", (int)n, x) : NULL;
}

static void threads(struct wg_page *page, const struct wg_graph *g, const struct wg_process *p,
		    const struct wg_wait_view *views, const bool *idle, size_t nviews, bool all)
{
	struct wg_arena *a = page->arena;
	struct group *groups = wg_alloc(a, (p->threads.n + 1) * sizeof(*groups));
	const struct wg_culprit *c = &g->verdict.culprit;
	size_t n = 0, full = 0;

	if (!p->threads.n)
		return;
	for (size_t i = 0; i < p->threads.n; i++) {
		const struct wg_thread *t = &p->threads.v[i];
		const struct wg_wait_view *v = i < nviews ? &views[i] : NULL;
		double since = v ? v->since_s : WG_NO_SEC;
		struct group *at = NULL;

		for (size_t k = 0; k < n && !at && !all; k++)
			if (mergeable(&groups[k], t, v, i < nviews && idle[i]))
				at = &groups[k];
		if (!at) {
			at = &groups[n++];
			at->first = t;
			at->name = t->name;
			at->view = v;
			at->idle = i < nviews && idle[i];
			at->oldest = at->youngest = since;
			at->rank = 2;
		}
		at->count++;
		at->name = common_name(a, at->name, t->name);
		if (wg_has_sec(since) && (!wg_has_sec(at->oldest) || since > at->oldest))
			at->oldest = since;
		if (wg_has_sec(since) && (!wg_has_sec(at->youngest) || since < at->youngest))
			at->youngest = since;
		if (at->count <= 64)
			at->tids = at->tids ? wg_fmt(a, "%s %d", at->tids, t->tid) :
					      wg_fmt(a, "%d", t->tid);
		if (c->present && c->tid == t->tid && c->pid == p->pid)
			at->rank = 0;
		else if (t->tid == p->pid && at->rank > 1)
			at->rank = 1;
		else if (at->rank == 2 && (t->ours || at->idle))
			at->rank = t->ours ? 4 : 3;
	}
	qsort(groups, n, sizeof(*groups), group_order);
	heading(page, wg_fmt(a, "Threads of %s", wg_text_process(a, p)));
	for (size_t i = 0; i < n; i++) {
		bool whole = all || (full < MAX_GROUPS && groups[i].rank < 3);

		thread_group(page, &groups[i], p, whole, all);
		full += whole;
	}
}

static void process(struct wg_page *page, const struct wg_graph *g, const struct wg_process *p,
		    const struct wg_wait_view *views, const bool *idle, size_t nviews, bool all)
{
	struct wg_arena *a = page->arena;

	devices(page, p, all);
	collectives(page, p, all);
	streams(page, p, all);
	files(page, p, all);
	threads(page, g, p, views, idle, nviews, all);
	if (p->notes.n) {
		heading(page, "The recorder stepped aside");
		for (size_t i = 0; i < p->notes.n && (all || i < 6); i++)
			wg_wrap(page, WG_PLAIN, "  - ", "    ", p->notes.v[i]);
	}
	if (p->children.n) {
		const char *s = "";

		for (size_t i = 0; i < p->children.n && (all || i < 16); i++)
			s = wg_fmt(a, "%s%s%d", s, i ? " " : "", p->children.v[i]);
		wg_line(page, WG_PLAIN, "%s", "");
		wg_wrap(page, WG_PLAIN, "Children  ", "          ",
			p->children.n > 16 && !all ? wg_fmt(a, "%s ... (%zu)", s, p->children.n) : s);
	}
}

void wg_text_body(struct wg_page *page, const struct wg_graph *g, const struct wg_text_options *o)
{
	const struct wg_facts *f = g->facts;
	const struct wg_process *first = wg_text_main(g);
	const bool *idle = wg_idle_threads(g, page->arena);
	size_t view = 0, *at = wg_alloc(page->arena, (f->procs.n + 1) * sizeof(*at)), left_out = 0;

	for (size_t i = 0; i < f->procs.n; i++) {
		at[i] = view;
		view += f->procs.v[i]->threads.n;
	}
	for (int pass = 0; pass < 2; pass++)
		for (size_t i = 0; i < f->procs.n; i++) {
			const struct wg_process *p = f->procs.v[i];
			size_t n = at[i] < g->waits.n ? g->waits.n - at[i] : 0;

			if ((p == first) != (pass == 0))
				continue;
			if (pass && !o->all && (p->stub || i > 8)) {
				left_out += !p->stub;
				continue;
			}
			process(page, g, p, n ? g->waits.v + at[i] : NULL, n ? idle + at[i] : NULL,
				n < p->threads.n ? n : p->threads.n, o->all);
		}
	if (left_out)
		wg_line(page, WG_DIM, "... %zu more processes: --all", left_out);
	if (f->kmsg.n) {
		heading(page, "Kernel log");
		for (size_t i = f->kmsg.n > 4 && !o->all ? f->kmsg.n - 4 : 0; i < f->kmsg.n; i++)
			wg_wrap_cut(page, WG_PLAIN, "  ", "    ", f->kmsg.v[i], o->all ? 99 : 1);
	}
}
