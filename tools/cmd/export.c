/* SPDX-License-Identifier: Apache-2.0 */
/* export.c - waitgraph export --format F TRACE...: traces for other tools. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../memory/export.h"
#include "../memory/outfile.h"
#include "cmd.h"
#include "traces.h"

static void help(FILE *out)
{
	fputs("usage: waitgraph export --format F [-o FILE] [--force] [--at-end] TRACE... | DIR\n\n",
	      out);
	for (const struct wgm_form *f = wgm_forms; f->name; f++)
		fprintf(out, "  %-12s %s\n", f->name, f->what);
	fputs("\n"
	      "  -F, --format F   one of these\n"
	      "  -o, --output F   a file instead of stdout; an existing one is kept\n"
	      "  -f, --force      ... unless this is given\n"
	      "  -e, --at-end     folded: what is alive at the end, not at the peak\n"
	      "  -h, --help       this\n",
	      out);
}

int wg_cmd_export(int argc, char **argv)
{
	struct wg_traces_ask q = { .verb = "export", .help = help, .letters = "Fofe", .least = 1 };
	struct wgm_analysis **all;
	struct wgm_outfile f;
	size_t n;
	int code = wg_traces_options(&q, argc, argv), err;

	if (code != WG_GO_ON)
		return code;
	if (!q.form) {
		help(stderr);
		return WG_EXIT_USAGE;
	}
	if (q.form->own_file && !q.output)
		return wg_fail(WG_EXIT_USAGE, "export", "%s needs -o FILE", q.form->name);
	if (q.form->binary && !q.output && isatty(STDOUT_FILENO))
		return wg_fail(WG_EXIT_USAGE, "export", "%s is not for a terminal: -o FILE", q.form->name);
	code = wgm_open_all(q.verb, q.paths, q.npaths, &all, &n, wgm_analyse);
	if (!n)
		return code ? code : WG_EXIT_NOINPUT;
	err = wgm_outfile_open(&f, q.output, q.force);
	if (err) {
		code = wg_fail(wg_exit_of_outfile(err), "export", "%s: %s", q.output,
			       wgm_outfile_why(err));
		wgm_close_all(all, n);
		return code;
	}
	err = q.form->write(all, n, f.out, f.temporary, q.at_end);
	if (err == -EBADMSG)
		code = wg_fail(WG_EXIT_DATA, "export", "%s: corrupt", all[0]->t->path);
	err = wgm_outfile_close(&f, !err) ?: err;
	if (err == -EPIPE && !q.output) /* `| head` has what it wanted */
		err = 0;
	if (err && !code)
		code = wg_fail(WG_EXIT_DEFECT, "export", "writing failed: %s", strerror(-err));
	wgm_close_all(all, n);
	return code;
}
