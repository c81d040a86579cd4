/* SPDX-License-Identifier: Apache-2.0 */
/* report.c - waitgraph report TRACE... -o report.html: one page about a run. */
#include <stdio.h>
#include <string.h>

#include "../memory/outfile.h"
#include "../memory/report.h"
#include "cmd.h"
#include "traces.h"

static void help(FILE *out)
{
	fputs("usage: waitgraph report [-o FILE] [--force] TRACE... | DIR\n"
	      "\n"
	      "One self-contained page: headroom over time, who held the memory, failed allocations,\n"
	      "stalls, and the verdict of a snapshot that lies beside the trace. Nothing is fetched.\n"
	      "\n"
	      "  -o, --output FILE   where to (default report.html); an existing one is kept\n"
	      "  -f, --force         ... unless this is given\n"
	      "  -h, --help          this\n",
	      out);
}

int wg_cmd_report(int argc, char **argv)
{
	struct wg_traces_ask q = { .verb = "report", .help = help, .letters = "of", .least = 1,
				   .output = "report.html" };
	struct wgm_analysis **all;
	struct wgm_outfile f;
	int code = wg_traces_options(&q, argc, argv), err;
	const char *path = q.output;
	size_t n;

	if (code != WG_GO_ON)
		return code;
	code = wgm_open_all(q.verb, q.paths, q.npaths, &all, &n, wgm_analyse);
	if (!n)
		return code ? code : WG_EXIT_NOINPUT;
	err = wgm_outfile_open(&f, strcmp(path, "-") ? path : NULL, q.force);
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
	if (err == -EPIPE && !strcmp(path, "-"))
		err = 0;
	if (err && !code)
		code = wg_fail(WG_EXIT_DEFECT, "report", "writing %s failed: %s", path, strerror(-err));
	if (!code && strcmp(path, "-"))
		fprintf(stderr, "waitgraph report: wrote %s\n", path);
	wgm_close_all(all, n);
	return code;
}
