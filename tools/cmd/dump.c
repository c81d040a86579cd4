/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dump.c - the live wait-graph of one process. Also what the recorder starts when its
 * signal arrives: then the snapshot is saved first and the text follows.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../render/render.h"
#include "ask.h"
#include "preload/recorder.h"

static const char help[] =
	"usage: waitgraph dump [options] PID\n\n"
	"Every thread of the process, what it waits for and since when, with native, Python and\n"
	"kernel stacks; devices, streams, collectives, files; and the verdict on top.\n\n";

enum { OPT_FROM_SIGNAL = 256, OPT_MEM_FD, OPT_PROC_FD, OPT_SAVE };
static const struct option options[] = {
	WG_ASK_OPTIONS,
	{ "save", no_argument, NULL, OPT_SAVE },
	/* Between the recorder and its reader; not for people. */
	{ "from-signal", no_argument, NULL, OPT_FROM_SIGNAL },
	{ "mem-fd", required_argument, NULL, OPT_MEM_FD },
	{ "proc-fd", required_argument, NULL, OPT_PROC_FD },
	{ NULL, 0, NULL, 0 },
};

static int make_dirs(const char *path)
{
	char *copy = strdup(path), *p;
	int rc = 0;

	if (!copy)
		return -ENOMEM;
	for (p = copy + 1; *p; p++)
		if (*p == '/') {
			*p = 0;
			if (mkdir(copy, 0700) && errno != EEXIST && errno != EROFS)
				rc = -errno;
			*p = '/';
		}
	if (mkdir(copy, 0700) && errno != EEXIST)
		rc = -errno;
	else
		rc = 0;
	free(copy);
	return rc;
}

/*
 * Save the snapshot as HOST-PID-START-N.json, N counting up. Written beside and linked into
 * place, so that nobody reads half a file and none is overwritten.
 */
static int save_snapshot(const struct wg_graph *g, const struct wg_process *p, const char *dir,
			 const char **saved)
{
	struct wg_arena *a = g->arena;
	const char *tmp, *path = NULL;
	FILE *out;
	int fd, rc;

	tmp = wg_fmt(a, "%s/.snapshot-%d-%d.tmp", dir, p->pid, (int)getpid());
	fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return -errno;
	out = fdopen(fd, "w");
	if (!out) {
		rc = -errno;
		close(fd);
		goto out;
	}
	rc = wg_render_json(out, g);
	if (fclose(out) && !rc)
		rc = -errno;
	if (rc)
		goto out;
	rc = -EEXIST;
	for (int n = 1; n < 100000 && rc == -EEXIST; n++) {
		path = wg_fmt(a, "%s/%s-%d-%llu-%d.json", dir, p->host ? p->host : "localhost",
			      p->ns_pid ? p->ns_pid : p->pid,
			      (unsigned long long)p->start_ticks, n);
		rc = link(tmp, path) ? -errno : 0;
	}
	if (rc == -EPERM || rc == -ENOTSUP || rc == -ENOSYS) /* no hard links on this file system */
		rc = rename(tmp, path) ? -errno : 0;
	if (!rc)
		*saved = path;
out:
	unlink(tmp);
	return rc;
}

/*
 * Into WAITGRAPH_DIR; where that cannot be written (a read-only root, no home), to the recorder's
 * own directory, where at least who asked through the signal finds it.
 */
static void save(struct wg_facts *f, const struct wg_graph *g, const struct wg_process *p,
		 bool from_signal, const char **saved)
{
	const char *dir = wg_state_dir(f->arena);
	int err = p ? make_dirs(dir) : -ESRCH;

	if (!err)
		err = save_snapshot(g, p, dir, saved);
	if (err && p && from_signal &&
	    !save_snapshot(g, p, wg_fmt(f->arena, WGREC_DIR_FMT, (unsigned int)geteuid()), saved)) {
		const char *dash = strrchr(*saved, '-');
		long n = dash ? strtol(dash + 1, NULL, 10) : 0;

		/* Memory, not a disk: one of each process is enough. */
		if (n > 1)
			unlink(wg_fmt(f->arena, "%.*s-%ld.json", (int)(dash - *saved), *saved, n - 1));
	}
	if (err)
		wg_fail(0, "dump", "the snapshot could not be saved in %s: %s", dir, strerror(-err));
}

int wg_cmd_dump(int argc, char **argv)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_graph *g = NULL;
	bool from_signal = false, keep = false;
	const char *saved = NULL;
	struct wg_ask q;
	int32_t pid;
	int c, rc;

	wg_ask_init(&q, "dump");
	optind = 0;
	while ((c = getopt_long(argc, argv, "jo:fah", options, NULL)) != -1) {
		switch (c) {
		case 'h':
			fputs(help, stdout);
			fputs("      --save         also save the snapshot in WAITGRAPH_DIR\n", stdout);
			fputs(wg_ask_help, stdout);
			rc = WG_EXIT_OK;
			goto out;
		case OPT_FROM_SIGNAL:
			from_signal = keep = true;
			break;
		case OPT_SAVE:
			keep = true;
			break;
		case OPT_MEM_FD:
			q.collect.mem_fd = atoi(optarg);
			break;
		case OPT_PROC_FD:
			q.collect.proc_fd = atoi(optarg);
			break;
		default:
			if (c == '?' || wg_ask_option(&q, c, optarg)) {
				rc = WG_EXIT_USAGE;
				goto out;
			}
		}
	}
	if (optind + 1 != argc) {
		fputs(help, stderr);
		fputs(wg_ask_help, stderr);
		rc = WG_EXIT_USAGE;
		goto out;
	}
	pid = wg_parse_pid(argv[optind]);
	if (!pid) {
		rc = wg_fail(WG_EXIT_USAGE, "dump", "not a PID: '%s'", argv[optind]);
		goto out;
	}
	q.collect.pids = &pid;
	q.collect.npids = 1;
	if (from_signal)
		q.signal_wait_s = 0; /* it is what the signal asked for */
	rc = wg_ask_live(f, &q);
	if (rc) {
		rc = wg_exit_of_errno(rc);
		goto out;
	}
	g = wg_graph_build(f);
	if (keep)
		save(f, g, wg_find_process(f, pid), from_signal, &saved);
	if (from_signal) {
		/*
		 * stderr belongs to the program and may be a full pipe: a deadline, then death by
		 * SIGALRM; the JSON is safe by now.
		 */
		struct wg_text_options o = { .all = false };

		alarm(10);
		fprintf(stderr, "\n==== waitgraph: dump of %d asked by signal ====\n", pid);
		rc = wg_render_dump(stderr, g, &o);
		if (saved)
			fprintf(stderr, "==== waitgraph: saved as %s ====\n", saved);
		rc = rc ? WG_EXIT_DEFECT : wg_exit_of_verdict(g);
		goto out;
	}
	rc = wg_answer(g, &q, true);
	if (saved)
		fprintf(stderr, "waitgraph dump: saved as %s\n", saved);
out:
	wg_graph_free(g);
	wg_facts_free(f);
	return rc;
}
