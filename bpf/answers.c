/* SPDX-License-Identifier: Apache-2.0 */
/* answers.c - records for one asker, made from the observer's facts, within his rights. */
#include "answers.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define BATCH 32 /* threads between two looks at whether they may still be shown */

static uint64_t mono(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static uint64_t ago(uint64_t now, uint64_t at)
{
	return !at ? WG_WIRE_NEVER : now > at ? now - at : 0;
}

static void refuse(struct wg_wire_done *d, int error, const char *why, const char *remedy)
{
	d->error = error;
	snprintf(d->why, sizeof(d->why), "%s", why);
	snprintf(d->remedy, sizeof(d->remedy), "%s", remedy ? remedy : "");
}

/* ---- threads --------------------------------------------------------------------------- */

struct tasks {
	struct wg_client *c;
	const struct wg_target *t;
	struct wg_out *o;
	struct wg_wire_done *done;
	struct wg_wire_task batch[BATCH];
	int n;
};

static int send_batch(struct tasks *g)
{
	int rc = 0;

	if (g->n && !wg_access_still(&g->c->asker, g->t))
		return -EACCES;
	for (int i = 0; i < g->n && !rc; i++)
		rc = wg_out_put(g->o, &g->batch[i]);
	g->n = 0;
	return rc;
}

/* Another user's process that woke this one is none of the asker's business, but for its being so. */
static void show_waker(const struct wg_asker *a, const struct wg_obs_wake *w, struct wg_wire_task *r)
{
	if (!w->waker_tid || (!a->all && w->waker_uid != a->uid))
		return;
	r->waker_pid = wg_access_shown(a, w->waker_pid);
	r->waker_tid = wg_access_shown(a, w->waker_tid);
	memcpy(r->waker_comm, w->waker_comm, sizeof(r->waker_comm));
	r->waker_comm[sizeof(r->waker_comm) - 1] = 0;
}

static int each_task(const struct wg_obs_task *t, void *arg)
{
	struct tasks *g = arg;
	const struct wg_asker *a = &g->c->asker;
	struct wg_wire_task *r = &g->batch[g->n];

	/* The number was another's by the time the iterator came, or this thread's rights differ. */
	if (t->pid != g->t->pid ||
	    (!a->all && (t->uid != a->uid || t->euid != a->uid || t->suid != a->uid ||
			 t->gid != a->gid || t->egid != a->gid || t->sgid != a->gid))) {
		g->done->left_out++;
		return 0;
	}
	wg_wire_begin(r, WG_WIRE_TASK, sizeof(*r));
	r->pid = t->pid;
	r->tid = t->tid;
	if (!a->same_pidns) {
		r->pid = wg_access_shown(a, t->pid);
		r->tid = wg_access_shown(a, t->tid);
		if (!r->tid)
			return 0; /* gone meanwhile */
	}
	r->state = t->state;
	r->flags = t->on_cpu ? WG_TASK_ON_CPU : 0;
	r->nr = t->nr;
	if (g->t->registers) {
		r->flags |= WG_TASK_REGS;
		for (int i = 0; i < 6; i++)
			r->args[i] = t->args[i];
		r->ip = t->ip;
		r->sp = t->sp;
		r->bp = t->bp;
		r->bx = t->bx;
		r->r12 = t->r12;
		r->r13 = t->r13;
		r->r14 = t->r14;
		r->r15 = t->r15;
		r->fsbase = t->fsbase;
	}
	r->ran_ago = t->now > t->exec_start ? t->now - t->exec_start : WG_WIRE_NEVER;
	r->blocked_ago = r->woken_ago = r->irq_ago = r->tracked_ago = WG_WIRE_NEVER;
	r->wrote_ago = r->wrote_bytes = WG_WIRE_NEVER;
	if (t->tracked) {
		r->flags |= WG_TASK_TRACKED | (t->wake.irq_last ? WG_TASK_IRQ_LAST : 0);
		r->blocked_ago = ago(t->now, t->wake.blocked_at);
		r->woken_ago = ago(t->now, t->wake.woken_at);
		r->irq_ago = ago(t->now, t->wake.irq_at);
		r->tracked_ago = ago(t->now, t->wake.since);
		r->wrote_ago = ago(t->now, t->wake.wrote_at);
		if (t->counts_writes)
			r->wrote_bytes = t->wake.wchar;
		r->wakes = t->wake.wakes;
		r->irq_wakes = t->wake.irq_wakes;
		r->irq_kind = t->wake.irq_kind;
		show_waker(a, &t->wake, r);
	}
	for (uint32_t i = 0; i < t->nkstack && i < WG_OBS_KSTACK && r->nkstack < WG_WIRE_KSTACK; i++)
		if (!wg_kallsyms_name(g->c->answers->kallsyms, t->kstack[i], r->kstack[r->nkstack],
				      WG_WIRE_NAME))
			r->nkstack++;
	if (++g->n < BATCH)
		return 0;
	return send_batch(g);
}

static void put_proc(struct wg_client *c, const struct wg_obs_proc *p, struct wg_out *o);

static void tasks(struct wg_client *c, const struct wg_wire_request *q, struct wg_out *o,
		  struct wg_wire_done *done)
{
	pid_t pid = wg_access_pid(&c->asker, q->pid);
	struct wg_obs_proc proc;
	struct wg_target t;
	struct tasks *g;
	int rc = wg_access_open(&c->asker, pid, &t);

	if (rc) {
		refuse(done, -rc, rc == -ESRCH ? "no such process" :
		       "it is not the asker's own, or not for him to inspect", "run as root");
		return;
	}
	g = calloc(1, sizeof(*g));
	if (!g) {
		refuse(done, ENOMEM, "waitgraphd has no memory left", NULL);
		goto out;
	}
	g->c = c;
	g->t = &t;
	g->o = o;
	g->done = done;
	/* Whoever is asked about is worth watching from now on. A refusal only costs the history. */
	if (wg_watch_proc(c->answers->watch, pid, &proc))
		wg_watch_track(c->answers->watch, pid);
	rc = wg_observer_tasks(c->answers->observer, pid, each_task, g);
	if (!rc)
		rc = send_batch(g);
	if (rc)
		refuse(done, -rc, "the threads could not be read", NULL);
	else if (!wg_watch_proc(c->answers->watch, pid, &proc))
		put_proc(c, &proc, o);
	free(g);
out:
	wg_access_close(&t);
}

/* ---- files ---------------------------------------------------------------------------------- */

#define FILE_BATCH 128
#define MOST_FILES 65536     /* in one answer */
#define MOST_FILES_LOOK 4096 /* in one of the looks once a second: who has more has his first ones looked at */

struct files {
	struct wg_client *c;
	const struct wg_target *t;
	struct wg_out *o;
	struct wg_wire_file batch[FILE_BATCH];
	int n;
	struct wg_look look;
	bool looking; /* it is tracked: this look at its files is one of those that are kept */
	int seen;
};

static int send_files(struct files *g)
{
	int rc = 0;

	if (g->n && !wg_access_still(&g->c->asker, g->t))
		return -EACCES;
	for (int i = 0; i < g->n && !rc; i++)
		rc = wg_out_put(g->o, &g->batch[i]);
	g->n = 0;
	return rc;
}

static int each_file(const struct wg_obs_file *f, void *arg)
{
	struct files *g = arg;
	struct wg_wire_file *r = &g->batch[g->n];
	struct wg_obs_written w;

	if (f->pid != g->t->pid)
		return 0;
	if (g->seen++ >= MOST_FILES)
		return 1; /* enough: the walk ends */
	wg_wire_begin(r, WG_WIRE_FILE, sizeof(*r));
	r->fd = f->fd;
	r->mode = f->mode;
	r->flags = f->flags;
	r->write_error = (int32_t)f->write_error;
	r->dev = f->dev;
	r->ino = f->ino;
	r->pos = f->pos;
	r->size = f->file_size;
	r->cached_pages = f->cached_pages;
	r->pipe_readers = f->pipe_readers;
	r->pipe_writers = f->pipe_writers;
	r->pipe_fill = f->pipe_fill;
	r->pipe_size = f->pipe_size;
	r->traced_ago = r->last_write_ago = r->sampled_ago = r->wrote_ago = WG_WIRE_NEVER;
	if (g->looking) {
		uint64_t now = mono();
		struct wg_sampled s;

		wg_samples_note(g->c->answers->samples, &g->look, f, now);
		if (f->mark_kind &&
		    !wg_samples_find(g->c->answers->samples, f->pid, f->dev, f->ino, &s)) {
			r->sampled_ago = ago(now, s.since);
			r->wrote_ago = ago(now, s.wrote_at);
		}
	}
	if (!wg_watch_written(g->c->answers->watch, f->dev, f->ino, &w)) {
		uint64_t now = mono();

		r->traced_ago = ago(now, w.since);
		r->writes = w.calls;
		r->writes_failed = w.failed;
		r->written_bytes = w.bytes;
		r->last_write_ago = ago(now, w.last);
		r->longest_write_ns = w.longest;
	}
	return ++g->n < FILE_BATCH ? 0 : send_files(g);
}

static void files(struct wg_client *c, const struct wg_wire_request *q, struct wg_out *o,
		  struct wg_wire_done *done)
{
	pid_t pid = wg_access_pid(&c->asker, q->pid);
	struct wg_obs_proc proc;
	struct wg_target t;
	struct files *g;
	int rc = wg_access_open(&c->asker, pid, &t);

	if (rc) {
		refuse(done, -rc, rc == -ESRCH ? "no such process" :
		       "it is not the asker's own, or not for him to inspect", "run as root");
		return;
	}
	g = calloc(1, sizeof(*g));
	rc = g ? 0 : -ENOMEM;
	if (g) {
		g->c = c;
		g->t = &t;
		g->o = o;
		g->looking = !wg_watch_proc(c->answers->watch, pid, &proc);
		if (g->looking)
			wg_samples_begin(c->answers->samples, &g->look, pid, proc.start, proc.uid);
		rc = wg_observer_files(c->answers->observer, pid, each_file, g);
		if (!rc && g->looking)
			wg_samples_end(c->answers->samples, &g->look);
		if (rc > 0) {
			done->left_out++; /* and who knows how many more */
			rc = 0;
		}
		if (!rc)
			rc = send_files(g);
	}
	if (rc)
		refuse(done, -rc, "its files could not be read", NULL);
	free(g);
	wg_access_close(&t);
}

/* ---- what is looked at once a second ---------------------------------------------------------- */

struct noting {
	struct wg_samples *samples;
	struct wg_look look;
	int seen;
};

static int note(const struct wg_obs_file *f, void *arg)
{
	struct noting *n = arg;

	if (f->pid == n->look.pid)
		wg_samples_note(n->samples, &n->look, f, mono());
	return n->seen++ >= MOST_FILES_LOOK;
}

int wg_answers_look(struct wg_answers *a, struct wg_observer *o, int32_t pid)
{
	struct noting n = { .samples = a->samples };
	struct wg_obs_proc p;
	int rc = wg_watch_wrote(a->watch, pid);

	/* The files last: what a thread wrote before it went to sleep is there by then. */
	if (rc < 0 || wg_watch_proc(a->watch, pid, &p))
		return rc < 0 ? rc : -ESRCH;
	wg_samples_begin(a->samples, &n.look, pid, p.start, p.uid);
	rc = wg_observer_files(o, pid, note, &n);
	if (!rc) /* it saw all: what it did not see is closed */
		wg_samples_end(a->samples, &n.look);
	return rc > 0 ? 0 : rc;
}

/* ---- processes that ended, or were stopped ------------------------------------------------ */

static void put_proc(struct wg_client *c, const struct wg_obs_proc *p, struct wg_out *o)
{
	const struct wg_asker *a = &c->asker;
	const struct wg_obs_sender *s = NULL;
	struct wg_wire_proc r;
	uint64_t now = mono();
	int sig = (int)(p->exit_code & 0x7f);

	wg_wire_begin(&r, WG_WIRE_PROC, sizeof(r));
	r.pid = p->pid;
	r.ppid = p->ppid;
	if (!a->same_pidns) {
		/* The dead have no entry in /proc any more: only their own namespace is known. */
		if (p->pidns != (uint32_t)a->pidns)
			return;
		r.pid = p->ns_pid;
		r.ppid = p->ns_ppid;
	}
	r.uid = p->uid;
	r.start_ns = p->start;
	r.exit_code = p->exit_code;
	r.flags = p->inherited ? WG_PROC_INHERITED : 0;
	r.ended_ago = ago(now, p->ended_at);
	r.oom_ago = ago(now, p->oom_at);
	r.wrote_ago = ago(now, p->wrote_at);
	if (p->ended_at)
		r.flags |= WG_PROC_ENDED;
	if (p->oom_at)
		r.flags |= WG_PROC_OOM;
	r.signal_ago = WG_WIRE_NEVER;
	for (int i = 0; p->ended_at && sig && i < WG_OBS_SENDERS; i++)
		if (p->sender[i].signal == sig)
			s = &p->sender[i];
	if (!p->ended_at && p->stopped_at && p->stop && p->stop <= WG_OBS_SENDERS) {
		s = &p->sender[p->stop - 1];
		r.flags |= WG_PROC_STOPPED;
	}
	if (s) {
		r.signal = s->signal;
		r.signal_ago = ago(now, s->at);
		if (s->kernel) {
			r.flags |= WG_PROC_BY_KERNEL;
		} else {
			/* Who is sent a signal may know by whom: siginfo says it, too. */
			r.killer_uid = s->uid;
			r.killer_pid = wg_access_shown(a, s->pid);
			memcpy(r.killer_comm, s->comm, sizeof(r.killer_comm));
			r.killer_comm[sizeof(r.killer_comm) - 1] = 0;
		}
	}
	memcpy(r.comm, p->comm, sizeof(r.comm));
	r.comm[sizeof(r.comm) - 1] = 0;
	wg_out_put(o, &r);
}

struct ends {
	struct wg_client *c;
	struct wg_out *o;
	int32_t pid;
};

static int each_end(const struct wg_obs_proc *p, void *arg)
{
	struct ends *e = arg;
	const struct wg_asker *a = &e->c->asker;

	if (!a->all && (p->uid != a->uid || p->euid != a->uid || p->suid != a->uid ||
			p->gid != a->gid || p->egid != a->gid || p->sgid != a->gid || p->privileged))
		return 0;
	if (e->pid && (a->same_pidns ? p->pid : p->ns_pid) != e->pid)
		return 0;
	put_proc(e->c, p, e->o);
	return 0;
}

static void status(struct wg_client *c, struct wg_out *o)
{
	struct wg_samples_counts k;
	struct wg_obs_counts n;
	struct wg_wire_status s;

	wg_wire_begin(&s, WG_WIRE_STATUS, sizeof(s));
	snprintf(s.daemon_version, sizeof(s.daemon_version), "%s", WG_VERSION);
	s.tracing = c->answers->tracing;
	s.up_ns = mono() - c->answers->started;
	if (c->asker.all) { /* how much others run is theirs */
		wg_watch_counts(c->answers->watch, &n);
		s.procs = n.procs;
		s.threads = n.threads;
		s.procs_dropped = n.procs_dropped;
		s.threads_dropped = n.threads_dropped;
		s.ends = n.ends;
		s.ends_overwritten = n.ends_overwritten;
		s.clients_refused = c->answers->refused;
		wg_samples_counts(c->answers->samples, &k);
		s.files = k.held;
		s.files_dropped = k.dropped;
		s.looks_late = c->answers->looks_late;
	}
	wg_out_put(o, &s);
}

void wg_answers_give(void *arg, const struct wg_wire_request *q, struct wg_out *o,
		     struct wg_wire_done *done)
{
	struct wg_client *c = arg;
	struct ends e = { .c = c, .o = o, .pid = q->pid };

	switch (q->head.type) {
	case WG_WIRE_ASK_TASKS:
		tasks(c, q, o, done);
		break;
	case WG_WIRE_ASK_ENDS:
		wg_watch_ends(c->answers->watch, each_end, &e);
		break;
	case WG_WIRE_ASK_FILES:
		files(c, q, o, done);
		break;
	case WG_WIRE_ASK_STATUS:
		status(c, o);
		break;
	default:
		refuse(done, ENOSYS, "this waitgraphd does not know the request",
		       "use the waitgraph and waitgraphd of one version");
	}
}
