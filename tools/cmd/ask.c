/* SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../collect/sources.h"
#include "../render/render.h"
#include "../snapshot.h"
#include "preload/recorder.h"

const char wg_ask_help[] =
	"  -j, --json         one JSON document on stdout (schema waitgraph/1)\n"
	"  -o, --output FILE  write there instead (refuses to overwrite without --force)\n"
	"      --dot, --svg   the graph, for graphviz or laid out by it\n"
	"      --all          every thread and frame, nothing merged or cut\n"
	"      --gap SECONDS  between the two samples that tell progress (0.3)\n"
	"      --deadline S   of the whole (10)\n"
	"      --no-follow    only the processes named, not what they wait on\n"
	"      --no-stacks    faster: no native and Python stacks\n"
	"      --no-bpf       do not ask the kernel observer\n"
	"      --ptrace       allow stopping threads for some microseconds to read registers\n"
	"      --no-color     also: NO_COLOR in the environment\n\n"
	"Exit: 0 not hung, 10 hung and cause found, 11 hung and cause unknown, 12 undecided,\n"
	"64 usage, 65 corrupt input, 66 no such process or file, 77 permission denied.\n";

void wg_ask_init(struct wg_ask *q, const char *verb)
{
	memset(q, 0, sizeof(*q));
	q->verb = verb;
	q->collect.follow = true;
	q->collect.mem_fd = q->collect.proc_fd = -1;
	q->signal_wait_s = 8;
}

static double seconds(const char *s)
{
	char *end;
	double v;

	errno = 0;
	v = strtod(s, &end);
	return errno || end == s || *end || !(v >= 0) || v > 3600 ? -1 : v;
}

int wg_ask_option(struct wg_ask *q, int c, const char *arg)
{
	double v;

	switch (c) {
	case 'j':
		q->json = true;
		return 0;
	case 'o':
		q->output = arg;
		return 0;
	case 'f':
		q->force = true;
		return 0;
	case 'D':
		q->dot = true;
		return 0;
	case 'V':
		q->svg = true;
		return 0;
	case 'a':
		q->all = true;
		return 0;
	case 'P':
		q->collect.allow_ptrace = true;
		return 0;
	case 'B':
		q->collect.no_bpf = true;
		return 0;
	case 'F':
		q->collect.follow = false;
		return 0;
	case 'K':
		q->collect.no_stacks = true;
		return 0;
	case 'C':
		q->no_color = true;
		return 0;
	case 'g':
	case 'L':
		v = seconds(arg);
		if (v < 0) {
			wg_fail(0, q->verb, "not a number of seconds: '%s'", arg);
			return -EINVAL;
		}
		*(c == 'g' ? &q->collect.gap_s : &q->collect.deadline_s) = v;
		return 0;
	default:
		return -ENOENT;
	}
}

/* ---- asking a process through its own signal ------------------------------ */

/*
 * Where the kernel lets nobody but the process itself (and its child with inherited descriptors)
 * read its memory: the recorder answers its signal by starting such a child, and what that saves is
 * the answer. All processes are asked at once and share one limit of time.
 */
struct question {
	struct wg_process *p; /* as seen from outside */
	size_t at;	      /* its place among the facts */
	struct wg_rec_identity id;
	const char *dirs[2]; /* where the answer may be written, as we can look at them */
	long before[2];
	const char *answer; /* path */
	int rc;
	bool own_place; /* the answer lies where only askers look: it is taken away */
};

static bool denied(const struct wg_process *p)
{
	return p->recorded && !p->stub && p->alive && !p->from_snapshot &&
	       (p->memory_denied || p->calls_denied);
}

/* Highest N of HOST-PID-START-N.json in dir whose PID-START fit; -1 none. Its path goes to *path. */
static long newest_snapshot(struct wg_arena *a, const char *dir, const char *infix,
			    const char **path)
{
	DIR *d = dir ? opendir(dir) : NULL;
	char best_name[256] = "";
	struct dirent *e;
	long best = -1;

	while (d && (e = readdir(d))) {
		const char *at = strstr(e->d_name, infix);
		char *end;
		long n;

		if (!at || e->d_name[0] == '.')
			continue;
		n = strtol(at + strlen(infix), &end, 10);
		if (strcmp(end, ".json") || n <= best)
			continue;
		best = n;
		snprintf(best_name, sizeof(best_name), "%s", e->d_name);
	}
	if (d)
		closedir(d);
	if (best >= 0)
		*path = wg_fmt(a, "%s/%s", dir, best_name);
	return best;
}

/* A directory as the process names it, as this asker can read it; NULL: not at all. */
static const char *reach(struct wg_facts *f, const struct wg_process *p, const char *dir)
{
	const char *through = wg_fmt(f->arena, "/proc/%d/root%s", p->pid, dir);

	if (!*dir)
		return NULL;
	if (!access(through, R_OK | X_OK))
		return through;
	/* Its root is not ours to look through; by its name it is the same place, or it is not found. */
	return access(dir, R_OK | X_OK) ? NULL : dir;
}

static const char *infix_of(struct wg_facts *f, const struct question *x)
{
	return wg_fmt(f->arena, "-%u-%llu-", x->id.pid, (unsigned long long)x->id.start_ticks);
}

static int pose(struct wg_facts *f, struct question *x)
{
	const char *infix, *path;
	int rc = wg_rec_identity(f, x->p, &x->id);

	if (rc)
		return rc;
	if (!x->id.signal)
		return -EOPNOTSUPP;
	if (strchr("TtZX", x->p->state) || x->p->cgroup.frozen)
		return -EBUSY; /* it cannot answer: do not wait, nor leave it something to do later */
	infix = infix_of(f, x);
	x->dirs[0] = reach(f, x->p, x->id.dir);
	x->dirs[1] = reach(f, x->p, wg_fmt(f->arena, WGREC_DIR_FMT, (unsigned int)x->p->uid));
	for (int i = 0; i < 2; i++)
		x->before[i] = newest_snapshot(f->arena, x->dirs[i], infix, &path);
	/* One of the directories may not be there before the first snapshot is written. */
	return kill(x->p->pid, x->id.signal) ? -errno : -EINPROGRESS;
}

static bool answered(struct wg_facts *f, struct question *x)
{
	const char *infix = infix_of(f, x), *path = NULL;

	for (int i = 0; i < 2; i++) {
		if (!x->dirs[i])
			x->dirs[i] = reach(f, x->p, i ? wg_fmt(f->arena, WGREC_DIR_FMT,
							       (unsigned int)x->p->uid) : x->id.dir);
		if (x->dirs[i] && newest_snapshot(f->arena, x->dirs[i], infix, &path) > x->before[i]) {
			x->answer = path;
			x->own_place = i == 1;
			x->rc = 0;
			return true;
		}
	}
	if (kill(x->p->pid, 0) && errno == ESRCH) {
		x->rc = -ESRCH;
		return true;
	}
	return false;
}

static const char *why_no_answer(struct wg_facts *f, const struct question *x, double waited)
{
	switch (x->rc) {
	case -EOPNOTSUPP:
		return "its recorder listens to no signal (WAITGRAPH_SIGNAL=0)";
	case -EBUSY:
		return "it is stopped, so it cannot answer its signal";
	case -ESRCH:
		return "it ended while it was asked through its signal";
	case -EPERM:
		return "this user may not send it a signal";
	case -ETIMEDOUT:
		if (!x->dirs[0] && !x->dirs[1])
			return wg_fmt(f->arena, "asked through its signal; its directory %s cannot be looked "
				      "at from here", x->id.dir);
		return wg_fmt(f->arena, "asked through its signal %d, no answer within %.0f s: it blocks or "
			      "takes that signal itself, cannot start `waitgraph`, or cannot write to %s",
			      x->id.signal, waited, x->id.dir);
	default:
		return wg_fmt(f->arena, "asked through its signal: %s", strerror(-x->rc));
	}
}

/* ---- the answer in place of what was seen from outside ------------------------ */

/* The number that this asker has for a thread that calls itself ns_tid. */
static int32_t tid_here(const struct wg_process *outside, int32_t ns_tid)
{
	for (size_t i = 0; ns_tid && i < outside->threads.n; i++) {
		const struct wg_thread *t = &outside->threads.v[i];

		if ((t->ns_tid ? t->ns_tid : t->tid) == ns_tid)
			return t->tid;
	}
	return ns_tid;
}

/* Its reader lives in another PID namespace than we do: all numbers of threads into ours. */
static void translate(struct wg_facts *f, struct wg_process *own, const struct wg_process *outside)
{
	for (size_t i = 0; i < own->threads.n; i++) {
		struct wg_thread *t = &own->threads.v[i];

		t->ns_tid = t->ns_tid ? t->ns_tid : t->tid;
		t->tid = tid_here(outside, t->ns_tid);
		t->waker_tid = tid_here(outside, t->waker_tid);
		if (wg_has_int(t->wait.child) && t->wait.child > 0)
			for (size_t k = 0; k < f->procs.n; k++)
				if (f->procs.v[k]->pidns == outside->pidns && outside->pidns &&
				    f->procs.v[k]->ns_pid == t->wait.child) {
					t->wait.child = f->procs.v[k]->pid;
					break;
				}
	}
	own->python.gil_holder = tid_here(outside, own->python.gil_holder);
	for (size_t i = 0; i < own->python.locks.n; i++) {
		struct wg_pylock *l = &own->python.locks.v[i];

		l->owner_tid = tid_here(outside, l->owner_tid);
		l->waiter_tid = tid_here(outside, l->waiter_tid);
	}
	for (size_t i = 0; i < own->devices.n; i++)
		for (size_t k = 0; k < own->devices.v[i].failures.n; k++)
			own->devices.v[i].failures.v[k].tid =
				tid_here(outside, own->devices.v[i].failures.v[k].tid);
	for (size_t i = 0; i < own->streams.n; i++) {
		own->streams.v[i].owner_tid = tid_here(outside, own->streams.v[i].owner_tid);
		for (size_t k = 0; k < own->streams.v[i].pending.n; k++)
			own->streams.v[i].pending.v[k].tid =
				tid_here(outside, own->streams.v[i].pending.v[k].tid);
	}
	for (size_t i = 0; i < own->comms.n; i++)
		for (size_t k = 0; k < own->comms.v[i].recent.n; k++)
			own->comms.v[i].recent.v[k].tid =
				tid_here(outside, own->comms.v[i].recent.v[k].tid);
}

/* Which of the processes that we know is q? Its reader counts PIDs in the namespace of `asked`. */
static size_t place_of(const struct wg_facts *f, size_t n, const struct wg_process *asked,
		       const struct wg_process *q)
{
	for (size_t i = 0; i < n; i++) {
		const struct wg_process *p = f->procs.v[i];
		int32_t as_its_reader = p->pidns && p->pidns == asked->pidns && p->ns_pid ? p->ns_pid :
											 p->pid;

		if (as_its_reader == q->pid && p->start_ticks == q->start_ticks)
			return i;
	}
	return SIZE_MAX;
}

/*
 * Of a device the asker may know more than the process: its reader sees what the recorder last
 * looked at, and whoever can ask the driver himself has the numbers of now.
 */
static void fresher_devices(struct wg_process *own, const struct wg_process *outside)
{
	for (size_t i = 0; i < own->devices.n; i++)
		for (size_t k = 0; k < outside->devices.n; k++) {
			struct wg_device *d = &own->devices.v[i];
			const struct wg_device *x = &outside->devices.v[k];

			if (!d->uuid || !x->uuid || strcasecmp(d->uuid, x->uuid))
				continue;
			if (wg_has_int(x->free) && !wg_has_sec(x->free_age_s)) {
				d->free = x->free;
				d->free_age_s = WG_NO_SEC;
				if (wg_has_int(d->least_free) && d->free < d->least_free)
					d->least_free = d->free;
			}
			if (!wg_has_int(d->utilization))
				d->utilization = x->utilization;
			if (!wg_has_sec(d->power_w)) {
				d->power_w = x->power_w;
				d->power_limit_w = x->power_limit_w;
			}
		}
}

static void take(struct wg_facts *f, size_t at, struct wg_process *own)
{
	struct wg_process *outside = f->procs.v[at];
	bool elsewhere = own->pid != outside->pid;

	own->from_snapshot = false;
	own->alive = outside->alive;
	own->ns_pid = outside->ns_pid ? outside->ns_pid : own->pid;
	own->pidns = outside->pidns ? outside->pidns : own->pidns;
	own->ppid = outside->ppid;
	own->pgid = outside->pgid;
	own->sid = outside->sid;
	own->tracer_pid = outside->tracer_pid;
	own->start_ticks = outside->start_ticks;
	if (elsewhere)
		translate(f, own, outside);
	fresher_devices(own, outside);
	/* The children of now, with the numbers that we know them by. */
	own->children = outside->children;
	own->pid = outside->pid;
	for (size_t k = 0; k < own->threads.n; k++)
		own->threads.v[k].pid = own->pid;
	wg_add_source(f, own, "signal");
	f->procs.v[at] = own;
}

static int take_answer(struct wg_facts *f, size_t n, const struct question *x)
{
	const char *why = NULL;
	size_t from = f->procs.n;
	int rc = wg_snapshot_read(f, x->answer, &why);
	bool found = false;

	for (size_t i = from; !rc && i < f->procs.n; i++) {
		struct wg_process *own = f->procs.v[i];
		size_t at = place_of(f, n, x->p, own);

		if (at == SIZE_MAX || own->stub || own->trace_only)
			continue;
		if (at == x->at) {
			take(f, at, own);
			found = true;
		} else if ((f->procs.v[at]->stub || denied(f->procs.v[at])) && !own->memory_denied &&
			   !own->calls_denied) {
			/* One that it waits on, and that its reader may read though we may not. */
			take(f, at, own);
		}
	}
	f->procs.n = from; /* what is not known here stays away: its numbers are another namespace's */
	if (x->own_place)
		unlink(x->answer);
	return rc ? rc : found ? 0 : -ENOMSG;
}

static void ask_by_signal(struct wg_facts *f, const struct wg_ask *q)
{
	struct timespec tick = { 0, 50 * 1000 * 1000 }, now, start;
	size_t n = f->procs.n, asked = 0, open = 0;
	struct question *all;
	double waited = 0;

	all = wg_alloc(f->arena, (n + 1) * sizeof(*all));
	for (size_t i = 0; i < n; i++)
		if (denied(f->procs.v[i])) {
			all[asked].p = f->procs.v[i];
			all[asked].at = i;
			all[asked].rc = pose(f, &all[asked]);
			open += all[asked].rc == -EINPROGRESS;
			asked++;
		}
	clock_gettime(CLOCK_MONOTONIC, &start);
	while (open && waited < q->signal_wait_s) {
		nanosleep(&tick, NULL);
		open = 0;
		for (size_t i = 0; i < asked; i++)
			open += all[i].rc == -EINPROGRESS && !answered(f, &all[i]);
		clock_gettime(CLOCK_MONOTONIC, &now);
		waited = (double)(now.tv_sec - start.tv_sec) + (double)(now.tv_nsec - start.tv_nsec) * 1e-9;
	}
	for (size_t i = 0; i < asked; i++) {
		struct question *x = &all[i];

		if (x->rc == -EINPROGRESS)
			x->rc = -ETIMEDOUT;
		else if (!x->rc)
			x->rc = take_answer(f, n, x);
		if (x->rc)
			wg_add_missing(f, x->p, "the process' own snapshot",
				       why_no_answer(f, x, q->signal_wait_s), NULL);
	}
}

int wg_ask_live(struct wg_facts *f, const struct wg_ask *q)
{
	int rc = wg_collect(f, &q->collect);

	if (rc == -ESRCH || rc == -EACCES || rc == -EPERM) {
		/* Say which of several it was. */
		for (size_t i = 0; i < q->collect.npids; i++)
			if (kill(q->collect.pids[i], 0) && errno == ESRCH) {
				wg_fail(0, q->verb, "no such process: %d", q->collect.pids[i]);
				return rc;
			}
		wg_fail(0, q->verb, "%s%s", strerror(-rc),
			rc == -ESRCH ? "" : ": the kernel hides it from this user (run as the process' "
				       "user, in its container, or as root)");
		return rc;
	}
	if (rc) {
		wg_fail(0, q->verb, "collecting: %s", strerror(-rc));
		return rc;
	}
	if (q->signal_wait_s > 0 && q->collect.mem_fd < 0)
		ask_by_signal(f, q);
	return 0;
}

/* ---- answering ----------------------------------------------------------------- */

int wg_exit_of_verdict(const struct wg_graph *g)
{
	const struct wg_verdict *v = &g->verdict;

	if (v->hung == WG_HUNG_NO)
		return WG_EXIT_OK;
	if (v->hung == WG_HUNG_NULL)
		return WG_EXIT_UNDECIDED;
	return strcmp(v->class_name, "unknown") ? WG_EXIT_HUNG : WG_EXIT_HUNG_UNKNOWN;
}

int wg_answer(const struct wg_graph *g, const struct wg_ask *q, bool full)
{
	struct wg_text_options o = { .all = q->all };
	FILE *out = stdout;
	int rc;

	if (q->output) {
		int fd = open(q->output,
			      O_WRONLY | O_CREAT | O_CLOEXEC | (q->force ? O_TRUNC : O_EXCL), 0600);

		if (fd < 0)
			return wg_fail(errno == EEXIST ? WG_EXIT_USAGE : wg_exit_of_errno(errno),
				       q->verb, "%s: %s%s", q->output, strerror(errno),
				       errno == EEXIST ? " (--force overwrites)" : "");
		out = fdopen(fd, "w");
		if (!out)
			return wg_fail(WG_EXIT_DEFECT, q->verb, "%s", strerror(errno));
	}
	o.color = !q->no_color && !getenv("NO_COLOR") && isatty(fileno(out));
	o.width = wg_terminal_columns(out); /* wider than 100 nobody reads a sentence */
	o.width = o.width > 100 ? 0 : o.width;
	if (q->json)
		rc = wg_render_json(out, g);
	else if (q->dot)
		rc = wg_render_dot(out, g);
	else if (q->svg)
		rc = wg_render_svg(out, g);
	else
		rc = full ? wg_render_dump(out, g, &o) : wg_render_why(out, g, &o);
	if ((out != stdout ? fclose(out) : fflush(out)) && !rc && errno != EPIPE)
		rc = -errno;
	if (rc && rc != -EPIPE) /* `| head` has what it wanted */
		return wg_fail(wg_exit_of_errno(rc) == WG_EXIT_NOINPUT ? WG_EXIT_DEFECT :
									 wg_exit_of_errno(rc),
			       q->verb, "writing: %s%s", strerror(-rc),
			       rc == -ENOENT && q->svg ? " (install graphviz)" : "");
	return wg_exit_of_verdict(g);
}
