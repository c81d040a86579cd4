/* SPDX-License-Identifier: Apache-2.0 */
/* mem.c - waitgraph mem TRACE... | DIR [--json]: what took the GPU's memory. */
#include <errno.h>

#include "cmd.h"

#include "../memory/print.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
	"usage: waitgraph mem [--json] [--top N] TRACE... | DIR\n"
	"\n"
	"Reads allocation traces (HOST-PID-START.trace), also of processes that were killed, and\n"
	"says: failed allocations and who held the memory, the peak, the least headroom, what is\n"
	"alive by library and by call site, what grows.\n"
	"\n"
	"  -j, --json   one document, schema waitgraph-mem/1\n"
	"  -n, --top N  rows a table (default 12)\n"
	"  -h, --help   this\n"
	"\n"
	"Traces lie in WAITGRAPH_DIR, else in ~/.local/state/waitgraph.\n";

int wg_cmd_mem(int argc, char **argv)
{
	static const struct option options[] = {
		{ "json", no_argument, NULL, 'j' },
		{ "top", required_argument, NULL, 'n' },
		{ "help", no_argument, NULL, 'h' },
		{ NULL, 0, NULL, 0 },
	};
	struct wgm_analysis **all;
	unsigned long rows = 12;
	bool json = false;
	size_t n;
	char *end;
	int c, code;

	optind = 0;
	while ((c = getopt_long(argc, argv, "jn:h", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'n':
			rows = strtoul(optarg, &end, 10);
			if (*end || !rows || rows > 1000000)
				return wg_fail(WG_EXIT_USAGE, "mem", "--top %s: not a number of rows",
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
	if (optind == argc) {
		fputs(help, stderr);
		return WG_EXIT_USAGE;
	}
	code = wgm_open_all("mem", argv + optind, argc - optind, &all, &n, wgm_analyse);
	if (json && n) {
		json_t *doc = wgm_json(all, n);

		json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15));
		putchar('\n');
		json_decref(doc);
	} else if (n) {
		for (size_t i = 0; i < n; i++) {
			if (i)
				puts("\n----\n");
			wgm_print(stdout, all[i], (unsigned int)rows);
		}
		printf("\nnext: waitgraph report %s%s -o report.html\n", all[0]->t->path,
		       n > 1 ? " ..." : "");
	}
	wgm_close_all(all, n);
	if ((fflush(stdout) || ferror(stdout)) && errno != EPIPE)
		return wg_fail(WG_EXIT_DEFECT, "mem", "writing the answer failed");
	return code;
}
