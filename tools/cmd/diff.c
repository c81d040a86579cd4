/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - waitgraph diff A B [--json]: which library or call site took the headroom. */
#include <errno.h>

#include "cmd.h"

#include "../memory/compare.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

static const char help[] =
	"usage: waitgraph diff [--json] [--top N] A B\n"
	"\n"
	"Two runs' memory side by side; A and B are traces, or directories with the traces of\n"
	"a job's ranks. Says what B has more of, by library and by call site.\n"
	"\n"
	"  -j, --json   one document, schema waitgraph-diff/1\n"
	"  -n, --top N  rows a table (default 12)\n"
	"  -h, --help   this\n";

int wg_cmd_diff(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "top", required_argument, NULL, 'n' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct wgm_analysis **a, **b;
	struct wgm_pair *pairs;
	unsigned long rows = 12;
	size_t na, nb, n;
	bool json = false;
	int c, code, other;
	char *end;

	optind = 0;
	while ((c = getopt_long(argc, argv, "jn:h", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'n':
			rows = strtoul(optarg, &end, 10);
			if (*end || !rows || rows > 1000000)
				return wg_fail(WG_EXIT_USAGE, "diff", "--top %s: not a number of rows",
					       optarg);
			break;
		case 'h':
			fputs(help, stdout);
			return 0;
		default:
			fputs(help, stderr);
			return WG_EXIT_USAGE;
		}
	}
	if (argc - optind != 2) {
		fputs(help, stderr);
		return WG_EXIT_USAGE;
	}
	code = wgm_open_all("diff", argv + optind, 1, &a, &na, wgm_analyse);
	other = wgm_open_all("diff", argv + optind + 1, 1, &b, &nb, wgm_analyse);
	code = code ? code : other;
	if (na && nb) {
		n = wgm_compare(a, na, b, nb, &pairs);
		if (json) {
			json_t *doc = wgm_compare_json(pairs, n);

			json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER);
			putchar('\n');
			json_decref(doc);
		} else {
			for (size_t i = 0; i < n; i++) {
				if (i)
					putchar('\n');
				wgm_compare_print(stdout, &pairs[i], (unsigned int)rows);
			}
			if (!n)
				puts("Neither run allocated device memory.");
		}
		wgm_compare_free(pairs, n);
	}
	wgm_close_all(a, na);
	wgm_close_all(b, nb);
	if ((fflush(stdout) || ferror(stdout)) && errno != EPIPE)
		return wg_fail(WG_EXIT_DEFECT, "diff", "writing the answer failed");
	return code;
}
