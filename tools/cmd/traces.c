/* SPDX-License-Identifier: Apache-2.0 */
/* traces.c - see traces.h. */
#include "traces.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"

static const struct option all[] = {
	{ "json", no_argument, NULL, 'j' },	  { "top", required_argument, NULL, 'n' },
	{ "output", required_argument, NULL, 'o' }, { "force", no_argument, NULL, 'f' },
	{ "format", required_argument, NULL, 'F' }, { "at-end", no_argument, NULL, 'e' },
	{ "help", no_argument, NULL, 'h' },
};
#define NALL (sizeof(all) / sizeof(all[0]))

static int take(struct wg_traces_ask *q, int c)
{
	unsigned long v;
	char *end;

	switch (c) {
	case 'j':
		q->json = true;
		break;
	case 'n':
		v = strtoul(optarg, &end, 10);
		if (*end || !v || v > 1000000 || *optarg == '-')
			return wg_fail(WG_EXIT_USAGE, q->verb, "--top %s: not a number of rows", optarg);
		q->rows = (unsigned int)v;
		break;
	case 'o':
		q->output = optarg;
		break;
	case 'f':
		q->force = true;
		break;
	case 'F':
		q->form = wgm_form_find(optarg);
		if (!q->form) {
			wg_fail(0, q->verb, "no format '%s'\n", optarg);
			q->help(stderr);
			return WG_EXIT_USAGE;
		}
		break;
	case 'e':
		q->at_end = true;
		break;
	case 'h':
		q->help(stdout);
		return WG_EXIT_OK;
	default:
		q->help(stderr);
		return WG_EXIT_USAGE;
	}
	return WG_GO_ON;
}

int wg_traces_options(struct wg_traces_ask *q, int argc, char **argv)
{
	struct option options[NALL + 1];
	char letters[2 * NALL + 1];
	size_t n = 0, k = 0;
	int c, rc;

	memset(options, 0, sizeof(options));
	for (size_t i = 0; i < NALL; i++)
		if (all[i].val == 'h' || strchr(q->letters, all[i].val)) {
			options[n++] = all[i];
			letters[k++] = (char)all[i].val;
			if (all[i].has_arg)
				letters[k++] = ':';
		}
	letters[k] = 0;
	optind = 0;
	while ((c = getopt_long(argc, argv, letters, options, NULL)) != -1) {
		rc = take(q, c);
		if (rc != WG_GO_ON)
			return rc;
	}
	q->paths = argv + optind;
	q->npaths = argc - optind;
	if (q->npaths < q->least || (q->most && q->npaths > q->most)) {
		q->help(stderr);
		return WG_EXIT_USAGE;
	}
	return WG_GO_ON;
}

void wg_put_json(json_t *doc)
{
	json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(15));
	putchar('\n');
	json_decref(doc);
}

int wg_traces_done(const struct wg_traces_ask *q, int code)
{
	if ((fflush(stdout) || ferror(stdout)) && errno != EPIPE)
		return wg_fail(WG_EXIT_DEFECT, q->verb, "writing the answer failed: %s",
			       strerror(errno));
	return code;
}
