/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - "set LD_PRELOAD and the WAITGRAPH_* variables, then exec", and nothing
 * else: whoever sets them by hand gets the same.
 */
#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd.h"
#include "preload/recorder.h"

static const char help[] =
	"usage: waitgraph run [options] -- CMD [ARGS...]\n\n"
	"Starts CMD with the recorder preloaded. Ends as CMD ends.\n\n"
	"  --dir DIR          traces and snapshots (WAITGRAPH_DIR)\n"
	"  --signal NAME      the signal that asks for a dump (WAITGRAPH_SIGNAL; URG)\n"
	"  --stall SECONDS    no progress for so long writes a snapshot (WAITGRAPH_STALL_S; 0 off)\n"
	"  --stacks WHICH     all, alloc or off (WAITGRAPH_STACKS; alloc)\n"
	"  --trace-max BYTES  on disk a process (WAITGRAPH_TRACE_MAX; 1G)\n"
	"  --library FILE     the recorder to preload (default: beside this program)\n"
	"  --show             print the environment that would be set, and stop\n";

static const struct option options[] = {
	{ "dir", required_argument, NULL, 'd' },      { "signal", required_argument, NULL, 's' },
	{ "stall", required_argument, NULL, 't' },    { "stacks", required_argument, NULL, 'k' },
	{ "trace-max", required_argument, NULL, 'm' }, { "library", required_argument, NULL, 'l' },
	{ "show", no_argument, NULL, 'S' },	      { "help", no_argument, NULL, 'h' },
	{ NULL, 0, NULL, 0 },
};

static const char *find_library(struct wg_arena *a)
{
	static const char *const places[] = { "../lib/libwaitgraph.so", "libwaitgraph.so",
					      "../lib64/libwaitgraph.so",
					      "../lib/x86_64-linux-gnu/libwaitgraph.so",
					      "../lib/aarch64-linux-gnu/libwaitgraph.so" };
	const char *own = wg_own_dir(a);
	char real[PATH_MAX];

	for (size_t i = 0; own && i < sizeof(places) / sizeof(places[0]); i++) {
		const char *path = wg_fmt(a, "%s/%s", own, places[i]);

		if (!access(path, R_OK) && realpath(path, real))
			return wg_str(a, real);
	}
	return NULL;
}

/*
 * ld.so splits LD_PRELOAD at spaces and colons and knows no quoting: such a library is named by a
 * link in the recorder's own directory, which nobody else may write. NULL: it cannot be.
 */
static const char *plain_name(struct wg_arena *a, const char *library)
{
	const char *dir = wg_fmt(a, WGREC_DIR_FMT, (unsigned int)geteuid()), *link_path;
	uint64_t h = 0xcbf29ce484222325ull;
	char real[PATH_MAX], now[PATH_MAX];
	struct stat st;
	ssize_t n;

	if (!realpath(library, real))
		return NULL;
	if (mkdir(dir, 0700) && errno != EEXIST)
		return NULL;
	if (lstat(dir, &st) || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || st.st_mode & 077)
		return NULL;
	for (const char *c = real; *c; c++)
		h = (h ^ (unsigned char)*c) * 0x100000001b3ull;
	link_path = wg_fmt(a, "%s/libwaitgraph-%016llx.so", dir, (unsigned long long)h);
	n = readlink(link_path, now, sizeof(now) - 1);
	if (n > 0) {
		now[n] = 0;
		if (!strcmp(now, real))
			return link_path;
		unlink(link_path);
	}
	/* Another `run` may have made it meanwhile: the same name is the same library. */
	return !symlink(real, link_path) || errno == EEXIST ? link_path : NULL;
}

static void set(bool show, const char *name, const char *value)
{
	if (show)
		printf("%s=%s\n", name, value);
	else if (setenv(name, value, 1))
		perror("waitgraph run: setenv");
}

int wg_cmd_run(int argc, char **argv)
{
	struct wg_arena *a = wg_arena_new();
	const char *library = NULL, *old, *dir = NULL;
	struct setting { const char *name, *value; } *env;
	size_t nenv = 0;
	bool show = false;
	char cwd[PATH_MAX];
	int c, rc;

	env = wg_alloc(a, (size_t)argc * sizeof(*env)); /* in order: the last of a kind wins */
	optind = 0; /* also resets getopt's order */
	while ((c = getopt_long(argc, argv, "+h", options, NULL)) != -1) {
		switch (c) {
		case 'd':
			dir = optarg;
			break;
		case 's':
			env[nenv].name = "WAITGRAPH_SIGNAL";
			env[nenv++].value = optarg;
			break;
		case 't':
			env[nenv].name = "WAITGRAPH_STALL_S";
			env[nenv++].value = optarg;
			break;
		case 'k':
			env[nenv].name = "WAITGRAPH_STACKS";
			env[nenv++].value = optarg;
			break;
		case 'm':
			env[nenv].name = "WAITGRAPH_TRACE_MAX";
			env[nenv++].value = optarg;
			break;
		case 'l':
			library = optarg;
			break;
		case 'S':
			show = true;
			break;
		case 'h':
			fputs(help, stdout);
			rc = WG_EXIT_OK;
			goto out;
		default:
			fputs(help, stderr);
			rc = WG_EXIT_USAGE;
			goto out;
		}
	}
	if (optind >= argc && !show) {
		fputs(help, stderr);
		rc = wg_fail(WG_EXIT_USAGE, "run", "no command given");
		goto out;
	}
	if (!library)
		library = find_library(a);
	if (!library || access(library, R_OK)) {
		rc = wg_fail(WG_EXIT_NOINPUT, "run", "libwaitgraph.so not found%s%s",
			     library ? ": " : " beside this program; give --library",
			     library ? library : "");
		goto out;
	}
	if (strpbrk(library, " :")) {
		const char *plain = plain_name(a, library);

		if (!plain) {
			rc = wg_fail(WG_EXIT_USAGE, "run",
				     "the path of the library has a space or colon, which LD_PRELOAD "
				     "cannot carry: %s",
				     library);
			goto out;
		}
		library = plain;
	}
	if (dir) {
		if (*dir != '/' && getcwd(cwd, sizeof(cwd))) /* the program may change directory */
			dir = wg_fmt(a, "%s/%s", cwd, dir);
		set(show, "WAITGRAPH_DIR", dir);
	}
	for (size_t i = 0; i < nenv; i++)
		set(show, env[i].name, env[i].value);
	old = getenv("LD_PRELOAD");
	set(show, "LD_PRELOAD", old && *old ? wg_fmt(a, "%s:%s", library, old) : library);
	if (show) {
		rc = WG_EXIT_OK;
		goto out;
	}
	execvp(argv[optind], argv + optind);
	rc = errno == ENOENT ? 127 : 126; /* as shells and env(1) do */
	wg_fail(rc, "run", "%s: %s", argv[optind], strerror(errno));
out:
	wg_arena_free(a);
	return rc;
}
