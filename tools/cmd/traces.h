/* SPDX-License-Identifier: Apache-2.0 */
/* traces.h - what mem, diff, report and export have in common: options, and the end of an answer. */
#ifndef WG_CMD_TRACES_H
#define WG_CMD_TRACES_H

#include <jansson.h>
#include <stdbool.h>

#include "../memory/export.h"

struct wg_traces_ask {
	const char *verb;
	void (*help)(FILE *out);
	const char *letters; /* of the options that this verb has: "jnofFe" */
	int least, most;     /* arguments besides the options; most 0: any number */
	/* The answer; what is set before is the default. */
	bool json, force, at_end;
	unsigned int rows;
	const char *output;
	const struct wgm_form *form;
	char **paths;
	int npaths;
};

#define WG_GO_ON (-1)
/* WG_GO_ON, or the exit code: of --help, or of a line that is none (the message is out). */
int wg_traces_options(struct wg_traces_ask *q, int argc, char **argv);
void wg_put_json(json_t *doc); /* to stdout; takes the reference */
/* The exit code `code` stands, unless what was said did not get out. */
int wg_traces_done(const struct wg_traces_ask *q, int code);

#endif
