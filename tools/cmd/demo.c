/* SPDX-License-Identifier: Apache-2.0 */
/*
 * demo.c - plants a hang on the simulated GPU, records it, asks `why`, and prints the
 * answer. Nothing in the answer is prepared: the same binary is asked as anyone would ask.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cmd.h"

static const struct demo {
	const char *name, *devices;
	int seconds; /* until it has been standing still long enough to be asked */
	const char *story;
} demos[] = {
	{ "oom", "8", 8,
	  "Eight workers train on eight GPUs. An allocation on one of them fails, its thread ends\n"
	  "without a word, and all others wait for its gradients. Every queue looks healthy." },
	{ "kernel", "2", 12,
	  "A training loop; its main thread burns 100 % CPU and the log has stopped. Busy or stuck?" },
	{ "log", "2", 6, "The log has been silent since the start. Stalled, or only buffered?" },
	{ "rank", "2", 10,
	  "Two ranks; rank 0 has been inside a collective for a while. Whose fault is it?" },
};
#define NDEMOS (sizeof(demos) / sizeof(demos[0]))

static const char help[] = "usage: waitgraph demo [SCENARIO] [--json] [--keep]\n\n"
			   "Runs a planted hang on the simulated GPU and explains it.\n"
			   "  --json   the document of `waitgraph why --json`\n"
			   "  --keep   leave the program running, to be looked at\n"
			   "  --list   the scenarios\n\n";

static void list(FILE *out)
{
	for (size_t i = 0; i < NDEMOS; i++)
		fprintf(out, "%-7s %s\n", demos[i].name, demos[i].story);
}

static pid_t start(struct wg_arena *a, const char *own, const struct demo *d, const char *dir)
{
	const char *program = wg_fmt(a, "%s/../lib/demo/%s", own, d->name);
	const char *log = wg_fmt(a, "%s/train.log", dir), *old;
	char real[PATH_MAX];
	pid_t pid;
	int fd;

	if (realpath(program, real))
		program = real; /* it stands in every answer */
	if (access(program, X_OK)) {
		wg_fail(0, "demo", "%s: %s (the demonstration programs are built with the tests)",
			program, strerror(errno));
		return -1;
	}
	pid = fork();
	if (pid)
		return pid;
	setpgid(0, 0);
	old = getenv("LD_LIBRARY_PATH");
	setenv("LD_LIBRARY_PATH",
	       wg_fmt(a, "%s/../lib/simgpu%s%s", own, old && *old ? ":" : "", old ? old : ""), 1);
	setenv("SIMGPU_DEVICES", d->devices, 1);
	setenv("SIMGPU_SESSION", wg_fmt(a, "demo-%d", (int)getpid()), 1);
	setenv("WAITGRAPH_DIR", dir, 1);
	fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd >= 0) {
		dup2(fd, 1);
		dup2(fd, 2);
	}
	execl(wg_fmt(a, "%s/waitgraph", own), "waitgraph", "run", "--", program, (char *)NULL);
	_exit(127);
}

int wg_cmd_demo(int argc, char **argv)
{
	static const struct option options[] = { { "json", no_argument, NULL, 'j' },
						 { "keep", no_argument, NULL, 'k' },
						 { "list", no_argument, NULL, 'l' },
						 { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	struct wg_arena *a = wg_arena_new();
	const struct demo *d = &demos[0];
	bool json = false, keep = false;
	const char *own, *tmp = getenv("TMPDIR");
	char *dir = wg_fmt(a, "%s/waitgraph-demo-XXXXXX", tmp && *tmp == '/' ? tmp : "/tmp");
	char number[16];
	pid_t pid, asker;
	int c, rc = WG_EXIT_OK, status;

	optind = 0;
	while ((c = getopt_long(argc, argv, "jklh", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'k':
			keep = true;
			break;
		case 'l':
			list(stdout);
			goto out;
		case 'h':
			fputs(help, stdout);
			list(stdout);
			goto out;
		default:
			fputs(help, stderr);
			rc = WG_EXIT_USAGE;
			goto out;
		}
	}
	if (optind < argc) {
		d = NULL;
		for (size_t i = 0; i < NDEMOS; i++)
			if (!strcmp(argv[optind], demos[i].name))
				d = &demos[i];
		if (!d || optind + 1 < argc) {
			rc = wg_fail(WG_EXIT_USAGE, "demo", "no such scenario: %s", argv[optind]);
			list(stderr);
			goto out;
		}
	}
	own = wg_own_dir(a);
	if (!own || !mkdtemp(dir)) {
		rc = wg_fail(WG_EXIT_DEFECT, "demo", "%s", strerror(errno));
		goto out;
	}
	pid = start(a, own, d, dir);
	if (pid < 0) {
		rmdir(dir);
		rc = WG_EXIT_NOINPUT;
		goto out;
	}
	if (!json) {
		printf("%s\n\n$ waitgraph run -- %s     # pid %d, on the simulated GPU, log in %s\n",
		       d->story, d->name, (int)pid, dir);
		fflush(stdout);
	}
	for (int i = 0; i < d->seconds * 10; i++) {
		struct timespec tick = { 0, 100 * 1000 * 1000 };

		nanosleep(&tick, NULL);
		if (waitpid(pid, &status, WNOHANG) == pid) {
			rc = wg_fail(WG_EXIT_DEFECT, "demo",
				     "the program ended by itself (status 0x%x); its log is %s/train.log",
				     (unsigned int)status, dir);
			goto out;
		}
	}
	if (!json) {
		printf("$ waitgraph why %d           # after %d s\n\n", (int)pid, d->seconds);
		fflush(stdout);
	}
	snprintf(number, sizeof(number), "%d", (int)pid);
	asker = fork();
	if (asker == 0) {
		execl(wg_fmt(a, "%s/waitgraph", own), "waitgraph", "why", number,
		      json ? "--json" : (char *)NULL, (char *)NULL);
		_exit(127);
	}
	if (asker < 0 || waitpid(asker, &status, 0) != asker || !WIFEXITED(status) ||
	    WEXITSTATUS(status) > WG_EXIT_UNDECIDED)
		rc = wg_fail(WG_EXIT_DEFECT, "demo", "`waitgraph why` failed (status 0x%x)",
			     (unsigned int)status);
	if (keep) {
		if (!json)
			printf("\nStill running: pid %d. End it with: kill -9 -%d\n", (int)pid,
			       (int)pid);
		goto out;
	}
	kill(-pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (!json)
		printf("\nOther scenarios: waitgraph demo --list. The trace: waitgraph mem %s\n", dir);
out:
	wg_arena_free(a);
	return rc;
}
