/* SPDX-License-Identifier: Apache-2.0 */
#include "ask.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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

static bool memory_denied(const struct wg_process *p)
{
	for (size_t i = 0; i < p->missing.n; i++)
		if (strstr(p->missing.v[i].why, "Operation not permitted") ||
		    strstr(p->missing.v[i].why, "Permission denied"))
			return true;
	return false;
}

/* Highest N of HOST-PID-START-N.json in dir whose PID-START fit; -1 none. Its path goes to *path. */
static long newest_snapshot(struct wg_arena *a, const char *dir, const char *infix,
			    const char **path)
{
	DIR *d = opendir(dir);
	struct dirent *e;
	long best = -1;

	while (d && (e = readdir(d))) {
		const char *at = strstr(e->d_name, infix);
		char *end;
		long n;

		if (!at)
			continue;
		n = strtol(at + strlen(infix), &end, 10);
		if (strcmp(end, ".json") || n <= best)
			continue;
		best = n;
		*path = wg_fmt(a, "%s/%s", dir, e->d_name);
	}
	if (d)
		closedir(d);
	return best;
}

/*
 * The kernel lets nobody but the process itself (and its child with inherited descriptors) read
 * its memory here. The recorder answers its signal by starting such a child; wait for what it
 * writes. Returns 0 with the snapshot's facts in place of the process'.
 */
static int ask_by_signal(struct wg_facts *f, struct wg_process *p, const struct wg_ask *q)
{
	struct wg_rec_identity id;
	const char *dir, *infix, *path = NULL, *why = NULL;
	struct timespec tick = { 0, 50 * 1000 * 1000 };
	long before, now;
	double left = q->signal_wait_s;
	int rc;

	rc = wg_rec_identity(f, p, &id);
	if (rc)
		return rc;
	if (!id.signal || !*id.dir)
		return -ENOTSUP;
	dir = wg_fmt(f->arena, "/proc/%d/root%s", p->pid, id.dir);
	if (access(dir, R_OK | X_OK))
		dir = id.dir; /* root of another user's process is not ours to look through */
	infix = wg_fmt(f->arena, "-%u-%llu-", id.pid, (unsigned long long)id.start_ticks);
	before = newest_snapshot(f->arena, dir, infix, &path);
	if (kill(p->pid, id.signal))
		return -errno;
	do {
		nanosleep(&tick, NULL);
		left -= 0.05;
		now = newest_snapshot(f->arena, dir, infix, &path);
	} while (now == before && left > 0);
	if (now == before)
		return -ETIMEDOUT;
	/* The writer renames a finished file into place, so it is whole. */
	rc = wg_snapshot_read(f, path, &why);
	if (rc)
		return rc;
	wg_add_source(f, p, "signal");
	return 0;
}

int wg_ask_live(struct wg_facts *f, const struct wg_ask *q)
{
	int rc = wg_collect(f, &q->collect);
	size_t n;

	if (rc == -ESRCH || rc == -EACCES || rc == -EPERM) {
		/* Say which of several it was. */
		for (size_t i = 0; i < q->collect.npids; i++)
			if (kill(q->collect.pids[i], 0) && errno == ESRCH) {
				wg_fail(0, q->verb, "no such process: %d", q->collect.pids[i]);
				return rc;
			}
		wg_fail(0, q->verb, "%s%s", strerror(-rc),
			rc == -ESRCH ? "" : " (run as the process' user or as root)");
		return rc;
	}
	if (rc) {
		wg_fail(0, q->verb, "collecting: %s", strerror(-rc));
		return rc;
	}
	n = f->procs.n; /* snapshots taken below are appended */
	for (size_t i = 0; q->signal_wait_s > 0 && q->collect.mem_fd < 0 && i < n; i++) {
		struct wg_process *p = f->procs.v[i];

		if (!p->recorded || p->stub || !p->alive || !memory_denied(p))
			continue;
		rc = ask_by_signal(f, p, q);
		if (rc)
			wg_add_missing(f, p, "the process' own snapshot",
				       wg_fmt(f->arena, "asked through its signal: %s",
					      strerror(-rc)),
				       NULL);
		else if (f->procs.n > n) {
			/* Its own answer knows more than the outside view: take its place. */
			struct wg_process *own = f->procs.v[f->procs.n - 1];

			if (own->start_ticks == p->start_ticks) {
				own->from_snapshot = false;
				own->pid = p->pid;
				for (size_t k = 0; k < own->threads.n; k++)
					own->threads.v[k].pid = p->pid;
				f->procs.v[i] = own;
			}
			f->procs.n = n;
		}
	}
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
	if (rc)
		return wg_fail(wg_exit_of_errno(rc) == WG_EXIT_NOINPUT ? WG_EXIT_DEFECT :
									 wg_exit_of_errno(rc),
			       q->verb, "writing: %s%s", strerror(-rc),
			       rc == -ENOENT && q->svg ? " (install graphviz)" : "");
	return wg_exit_of_verdict(g);
}
