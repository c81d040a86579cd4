/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - waitgraph report TRACE... -o report.html: one page about a run. */
#include "cmd.h"

#include "../memory/outfile.h"
#include "../memory/report.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

static const char help[] =
	"usage: waitgraph report [-o FILE] [--force] TRACE... | DIR\n"
	"\n"
	"One self-contained page: headroom over time, who held the memory, failed allocations,\n"
	"stalls, and the verdict of a snapshot that lies beside the trace. Nothing is fetched.\n"
	"\n"
	"  -o, --output FILE   where to (default report.html); an existing one is kept\n"
	"  -f, --force         ... unless this is given\n"
	"  -h, --help          this\n";

int wg_cmd_report(int argc, char **argv)
{
	static const struct option options[] = {
		{ "output", required_argument, NULL, 'o' },
		{ "force", no_argument, NULL, 'f' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const char *path = "report.html";
	struct wgm_analysis **all;
	struct wgm_outfile f;
	bool force = false;
	int c, code, err;
	size_t n;

	optind = 0;
	while ((c = getopt_long(argc, argv, "o:fh", options, NULL)) != -1) {
		switch (c) {
		case 'o':
			path = optarg;
			break;
		case 'f':
			force = true;
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			fputs(help, stderr);
			return WG_EXIT_USAGE;
		}
	}
	if (optind == argc) {
		fputs(help, stderr);
		return WG_EXIT_USAGE;
	}
	code = wgm_open_all("report", argv + optind, argc - optind, &all, &n, wgm_analyse);
	if (!n)
		return code ? code : WG_EXIT_NOINPUT;
	err = wgm_outfile_open(&f, strcmp(path, "-") ? path : NULL, force);
	if (err) {
		code = wg_fail(wg_exit_of_outfile(err), "report", "%s: %s", path,
			       wgm_outfile_why(err));
		wgm_close_all(all, n);
		return code;
	}
	err = wgm_report(f.out, all, n);
	if (err)
		code = wg_fail(WG_EXIT_DATA, "report", "%s: corrupt", all[0]->t->path);
	err = wgm_outfile_close(&f, !err);
	if (err && !code)
		code = wg_fail(WG_EXIT_DEFECT, "report", "writing %s failed: %s", path, strerror(-err));
	if (!code && strcmp(path, "-"))
		fprintf(stderr, "waitgraph report: wrote %s\n", path);
	wgm_close_all(all, n);
	return code;
}
