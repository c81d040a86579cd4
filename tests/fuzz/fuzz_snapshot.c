/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fuzz_snapshot.c - a hostile snapshot: refused with a reason, or read, judged, printed, and
 * written to a document that reads back to the same document.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "render/render.h"
#include "snapshot.h"

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *in, size_t n)
{
	struct wg_facts *f = wg_facts_new(), *b;
	struct wg_text_options o = { 0 };
	char *first, *second, *text = NULL;
	const char *why = NULL;
	size_t size = 0;
	struct wg_graph *g;
	json_t *doc;
	FILE *out;

	if (wg_snapshot_parse(f, (const char *)in, n, &why)) {
		if (!why || f->procs.n)
			abort();
		wg_facts_free(f);
		return 0;
	}
	g = wg_graph_build(f);
	out = open_memstream(&text, &size);
	if (wg_render_dump(out, g, &o) || wg_render_dot(out, g))
		abort();
	fclose(out);
	free(text);
	doc = wg_snapshot_json(g);
	first = json_dumps(doc, JSON_REAL_PRECISION(15));
	json_decref(doc);
	if (!first)
		abort();
	b = wg_facts_new();
	if (wg_snapshot_parse(b, first, strlen(first), &why))
		abort();
	wg_graph_free(g);
	/* One round may normalise (a clamped number, a cleaned string); from then on it is fixed. */
	g = wg_graph_build(b);
	doc = wg_snapshot_json(g);
	second = json_dumps(doc, JSON_REAL_PRECISION(15));
	json_decref(doc);
	wg_graph_free(g);
	if (!second)
		abort();
	wg_facts_free(f);
	f = wg_facts_new();
	if (wg_snapshot_parse(f, second, strlen(second), &why))
		abort();
	g = wg_graph_build(f);
	doc = wg_snapshot_json(g);
	free(first);
	first = json_dumps(doc, JSON_REAL_PRECISION(15));
	json_decref(doc);
	wg_graph_free(g);
	if (!first || strcmp(first, second))
		abort();
	free(first);
	free(second);
	wg_facts_free(f);
	wg_facts_free(b);
	return 0;
}
