/* SPDX-License-Identifier: Apache-2.0 */
/* export.c - waitgraph export --format F TRACE...: traces for other tools. */
#include "cmd.h"

#include "../memory/export.h"
#include "../memory/outfile.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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
	static const struct option options[] = {
		{ "format", required_argument, NULL, 'F' },
		{ "output", required_argument, NULL, 'o' },
		{ "force", no_argument, NULL, 'f' },
		{ "at-end", no_argument, NULL, 'e' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	const struct wgm_form *form = NULL;
	const char *path = NULL;
	bool force = false, at_end = false;
	struct wgm_analysis **all;
	struct wgm_outfile f;
	size_t n;
	int c, code, err;

	optind = 0;
	while ((c = getopt_long(argc, argv, "F:o:feh", options, NULL)) != -1) {
		switch (c) {
		case 'F':
			form = wgm_form_find(optarg);
			if (!form) {
				fprintf(stderr, "waitgraph export: no format '%s'\n\n", optarg);
				help(stderr);
				return WG_EXIT_USAGE;
			}
			break;
		case 'o':
			path = optarg;
			break;
		case 'f':
			force = true;
			break;
		case 'e':
			at_end = true;
			break;
		case 'h':
			help(stdout);
			return 0;
		default:
			help(stderr);
			return WG_EXIT_USAGE;
		}
	}
	if (!form || optind == argc) {
		help(stderr);
		return WG_EXIT_USAGE;
	}
	if (form->own_file && !path)
		return wg_fail(WG_EXIT_USAGE, "export", "%s needs -o FILE", form->name);
	if (form->binary && !path && isatty(STDOUT_FILENO))
		return wg_fail(WG_EXIT_USAGE, "export", "%s is not for a terminal: -o FILE", form->name);
	code = wgm_open_all("export", argv + optind, argc - optind, &all, &n, wgm_analyse);
	if (!n)
		return code ? code : WG_EXIT_NOINPUT;
	err = wgm_outfile_open(&f, path, force);
	if (err) {
		code = wg_fail(wg_exit_of_outfile(err), "export", "%s: %s", path,
			       wgm_outfile_why(err));
		wgm_close_all(all, n);
		return code;
	}
	err = form->write(all, n, f.out, f.temporary, at_end);
	if (err == -EBADMSG)
		code = wg_fail(WG_EXIT_DATA, "export", "%s: corrupt", all[0]->t->path);
	err = wgm_outfile_close(&f, !err) ?: err;
	if (err && !code)
		code = wg_fail(WG_EXIT_DEFECT, "export", "writing failed: %s", strerror(-err));
	wgm_close_all(all, n);
	return code;
}
