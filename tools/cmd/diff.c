/* SPDX-License-Identifier: Apache-2.0 */
/* diff.c - waitgraph diff A B [--json]: which library or call site took the headroom. */
#include <stdio.h>

#include "../memory/compare.h"
#include "cmd.h"
#include "traces.h"

static void help(FILE *out)
{
	fputs("usage: waitgraph diff [--json] [--top N] A B\n"
	      "\n"
	      "Two runs' memory side by side; A and B are traces, or directories with the traces of\n"
	      "a job's ranks. Says what B has more of, by library and by call site.\n"
	      "\n"
	      "  -j, --json   one document, schema waitgraph-diff/1\n"
	      "  -n, --top N  rows a table (default 12)\n"
	      "  -h, --help   this\n",
	      out);
}

int wg_cmd_diff(int argc, char **argv)
{
	struct wg_traces_ask q = { .verb = "diff", .help = help, .letters = "jn", .least = 2, .most = 2,
				   .rows = 12 };
	struct wgm_analysis **a, **b;
	struct wgm_pair *pairs;
	int code = wg_traces_options(&q, argc, argv), other;
	size_t na, nb, n;

	if (code != WG_GO_ON)
		return code;
	code = wgm_open_all(q.verb, q.paths, 1, &a, &na, wgm_analyse);
	other = wgm_open_all(q.verb, q.paths + 1, 1, &b, &nb, wgm_analyse);
	code = code ? code : other;
	if (na && nb) {
		n = wgm_compare(a, na, b, nb, &pairs);
		if (q.json)
			wg_put_json(wgm_compare_json(pairs, n));
		else if (!n)
			puts("Neither run allocated device memory.");
		for (size_t i = 0; !q.json && i < n; i++) {
			if (i)
				putchar('\n');
			wgm_compare_print(stdout, &pairs[i], q.rows);
		}
		wgm_compare_free(pairs, n);
	}
	wgm_close_all(a, na);
	wgm_close_all(b, nb);
	return wg_traces_done(&q, code);
}
