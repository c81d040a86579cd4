/* SPDX-License-Identifier: Apache-2.0 */
/* json.c - the snapshot as one JSON document. */
#include <errno.h>

#include "../snapshot.h"
#include "render.h"

int wg_render_json(FILE *out, const struct wg_graph *g)
{
	json_t *doc = wg_snapshot_json(g);
	int rc = 0;

	if (json_dumpf(doc, out, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) || fputc('\n', out) == EOF ||
	    fflush(out))
		rc = errno ? -errno : -EIO;
	json_decref(doc);
	return rc;
}
