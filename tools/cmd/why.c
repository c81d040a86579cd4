/* SPDX-License-Identifier: Apache-2.0 */
/* why.c - the verdict on live processes, or on saved snapshots and traces. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../snapshot.h"
#include "ask.h"

static const char help[] =
	"usage: waitgraph why [options] PID... | DIR | FILE...\n\n"
	"Says what the processes wait on and why: the chain from the symptom to the root cause.\n"
	"Several PIDs are one job. A directory or files are saved snapshots and traces.\n\n";

static const struct option options[] = { WG_ASK_OPTIONS, { NULL, 0, NULL, 0 } };

int wg_cmd_why(int argc, char **argv)
{
	struct wg_facts *f = wg_facts_new();
	struct wg_graph *g = NULL;
	struct wg_ask q;
	int32_t *pids;
	int npids = 0, c, rc;

	wg_ask_init(&q, "why");
	optind = 0;
	while ((c = getopt_long(argc, argv, "jo:fah", options, NULL)) != -1) {
		if (c == 'h') {
			fputs(help, stdout);
			fputs(wg_ask_help, stdout);
			rc = WG_EXIT_OK;
			goto out;
		}
		if (c == '?' || wg_ask_option(&q, c, optarg)) {
			rc = WG_EXIT_USAGE;
			goto out;
		}
	}
	if (optind >= argc) {
		fputs(help, stderr);
		fputs(wg_ask_help, stderr);
		rc = WG_EXIT_USAGE;
		goto out;
	}
	pids = wg_alloc(f->arena, sizeof(*pids) * (size_t)argc);
	for (int i = optind; i < argc; i++) {
		int32_t pid = wg_parse_pid(argv[i]);

		if (pid)
			pids[npids++] = pid;
	}
	if (npids && npids != argc - optind) {
		rc = wg_fail(WG_EXIT_USAGE, "why",
			     "PIDs and files do not go together (a file whose name is a number: "
			     "write ./NAME)");
		goto out;
	}
	if (npids) {
		q.collect.pids = pids;
		q.collect.npids = (size_t)npids;
		rc = wg_ask_live(f, &q);
		if (rc) {
			rc = wg_exit_of_errno(rc);
			goto out;
		}
	} else {
		const char *reason = NULL;

		rc = wg_snapshot_load(f, (const char *const *)argv + optind,
				      (size_t)(argc - optind), &reason);
		if (rc) {
			rc = wg_fail(wg_exit_of_errno(rc), "why", "%s",
				     reason ? reason : strerror(-rc));
			goto out;
		}
	}
	g = wg_graph_build(f);
	rc = wg_answer(g, &q, false);
out:
	wg_graph_free(g);
	wg_facts_free(f);
	return rc;
}
