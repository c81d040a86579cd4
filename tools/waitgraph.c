/* SPDX-License-Identifier: Apache-2.0 */
/* waitgraph.c - finds the verb. */
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cmd/cmd.h"

static const struct verb {
	const char *name;
	int (*run)(int argc, char **argv);
	const char *args, *does;
} verbs[] = {
	{ "run", wg_cmd_run, "[options] -- CMD...", "start a program with the recorder" },
	{ "ps", wg_cmd_ps, "[--json]", "all recorded processes of this host" },
	{ "dump", wg_cmd_dump, "PID [--json] [-o FILE]", "the live wait-graph of one process" },
	{ "why", wg_cmd_why, "PID... | DIR | FILE...", "what it waits on, and why" },
	{ "mem", wg_cmd_mem, "TRACE... | DIR", "what took the GPU's memory" },
	{ "diff", wg_cmd_diff, "A B", "two runs' memory side by side" },
	{ "report", wg_cmd_report, "TRACE... -o report.html", "one self-contained page" },
	{ "export", wg_cmd_export, "--format F TRACE...", "for other tools" },
	{ "top", wg_cmd_top, "", "a live screen over all recorded processes" },
	{ "demo", wg_cmd_demo, "[SCENARIO]", "a planted hang on the simulated GPU, explained" },
};
#define NVERBS (sizeof(verbs) / sizeof(verbs[0]))

static void usage(FILE *out)
{
	fputs("usage: waitgraph VERB [options] [arguments]\n\n", out);
	for (size_t i = 0; i < NVERBS; i++)
		fprintf(out, "  %-7s %-25s %s\n", verbs[i].name, verbs[i].args, verbs[i].does);
	fputs("\n'waitgraph VERB --help' tells more; 'waitgraph --version' the versions.\n"
	      "A process hangs? waitgraph why PID\n",
	      out);
}

int wg_fail(int code, const char *verb, const char *fmt, ...)
{
	va_list ap;

	fprintf(stderr, "waitgraph %s: ", verb);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	return code;
}

int wg_exit_of_errno(int err)
{
	switch (err < 0 ? -err : err) {
	case 0:
		return WG_EXIT_OK;
	case ESRCH:
	case ENOENT:
	case ENOTDIR:
	case ELOOP:
	case ENAMETOOLONG:
	case ENXIO: /* a device or socket that cannot be opened */
	case ENODEV:
		return WG_EXIT_NOINPUT;
	case EPERM:
	case EACCES:
		return WG_EXIT_PERM;
	case EINVAL:
	case EPROTO:
	case EBADMSG:
		return WG_EXIT_DATA;
	default:
		return WG_EXIT_DEFECT;
	}
}

const char *wg_state_dir(struct wg_arena *a)
{
	const char *dir = getenv("WAITGRAPH_DIR"), *base;

	if (dir && *dir)
		return wg_str(a, dir);
	base = getenv("XDG_STATE_HOME");
	if (base && *base == '/')
		return wg_fmt(a, "%s/waitgraph", base);
	base = getenv("HOME");
	return wg_fmt(a, "%s/.local/state/waitgraph", base && *base ? base : "/tmp");
}

const char *wg_own_dir(struct wg_arena *a)
{
	char path[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);
	char *slash;

	if (n <= 0)
		return NULL;
	path[n] = 0;
	slash = strrchr(path, '/');
	if (!slash || slash == path)
		return "/";
	*slash = 0;
	return wg_str(a, path);
}

int wg_terminal_columns(FILE *f)
{
	struct winsize ws;

	return isatty(fileno(f)) && !ioctl(fileno(f), TIOCGWINSZ, &ws) ? ws.ws_col : 0;
}

int32_t wg_parse_pid(const char *s)
{
	char *end;
	long v;

	if (*s < '0' || *s > '9')
		return 0;
	errno = 0;
	v = strtol(s, &end, 10);
	return errno || *end || v <= 0 || v > INT32_MAX ? 0 : (int32_t)v;
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN); /* a closed pager is an exit code, not a death */
	if (argc < 2) {
		usage(stderr);
		return WG_EXIT_USAGE;
	}
	if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h") || !strcmp(argv[1], "help")) {
		usage(stdout);
		return WG_EXIT_OK;
	}
	if (!strcmp(argv[1], "--version") || !strcmp(argv[1], "-V")) {
		printf("waitgraph %s\nsnapshot schema waitgraph/1, mem schema waitgraph-mem/1, "
		       "recorder format %d, trace format %d\n",
		       WG_VERSION, 1, 1);
		return WG_EXIT_OK;
	}
	for (size_t i = 0; i < NVERBS; i++)
		if (!strcmp(argv[1], verbs[i].name)) {
			char name[32];
			int rc;

			snprintf(name, sizeof(name), "waitgraph %s", argv[1]);
			argv[1] = name; /* how getopt's messages begin */
			rc = verbs[i].run(argc - 1, argv + 1);

			if (fflush(stdout) && errno != EPIPE) {
				perror("waitgraph: writing the output");
				return WG_EXIT_DEFECT;
			}
			return rc;
		}
	fprintf(stderr, "waitgraph: no verb '%s'\n", argv[1]);
	usage(stderr);
	return WG_EXIT_USAGE;
}
