/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c - waitgraph mem TRACE... | DIR [--json]: what took the GPU's memory. */
#include <stdio.h>

#include "../memory/print.h"
#include "cmd.h"
#include "traces.h"

static void help(FILE *out)
{
	fputs("usage: waitgraph mem [--json] [--top N] TRACE... | DIR\n"
	      "\n"
	      "Reads allocation traces (HOST-PID-START.trace), also of processes that were killed, and\n"
	      "says: failed allocations and who held the memory, the peak, the least headroom, what is\n"
	      "alive by library and by call site, what grows.\n"
	      "\n"
	      "  -j, --json   one document, schema waitgraph-mem/1\n"
	      "  -n, --top N  rows a table (default 12)\n"
	      "  -h, --help   this\n"
	      "\n"
	      "Traces lie in WAITGRAPH_DIR, else in ~/.local/state/waitgraph.\n",
	      out);
}

int wg_cmd_mem(int argc, char **argv)
{
	struct wg_traces_ask q = { .verb = "mem", .help = help, .letters = "jn", .least = 1, .rows = 12 };
	struct wgm_analysis **all;
	size_t n;
	int code = wg_traces_options(&q, argc, argv);

	if (code != WG_GO_ON)
		return code;
	code = wgm_open_all(q.verb, q.paths, q.npaths, &all, &n, wgm_analyse);
	if (q.json && n) {
		wg_put_json(wgm_json(all, n));
	} else if (n) {
		for (size_t i = 0; i < n; i++) {
			if (i)
				puts("\n----\n");
			wgm_print(stdout, all[i], q.rows);
		}
		printf("\nnext: waitgraph report %s%s -o report.html\n", all[0]->t->path,
		       n > 1 ? " ..." : "");
	}
	wgm_close_all(all, n);
	return wg_traces_done(&q, code);
}
