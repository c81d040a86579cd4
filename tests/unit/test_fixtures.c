/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_fixtures.c - the facts that were saved of every scenario still give the right verdict.
 *
 * tests/scenarios/run.py --fixtures wrote them, one line a case, when the answer agreed with the
 * planted truth; the truth stands beside the facts, not the answer. No process, no clock: what
 * fails here is the graph or the reader of snapshots.
 */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <zstd.h>

#include "../../tools/snapshot.h"

static unsigned cases, wrong;

static char *unpack(const char *path, size_t *n)
{
	unsigned long long size;
	long packed;
	FILE *f = fopen(path, "rb");
	char *in, *out;

	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	packed = ftell(f);
	rewind(f);
	in = malloc((size_t)packed);
	assert_non_null(in);
	assert_int_equal(fread(in, 1, (size_t)packed, f), packed);
	fclose(f);
	size = ZSTD_getFrameContentSize(in, (size_t)packed);
	assert_true(size != ZSTD_CONTENTSIZE_UNKNOWN && size != ZSTD_CONTENTSIZE_ERROR);
	out = malloc(size + 1);
	assert_non_null(out);
	*n = ZSTD_decompress(out, size, in, (size_t)packed);
	assert_false(ZSTD_isError(*n));
	out[*n] = 0;
	free(in);
	return out;
}

static bool among(const json_t *list, int64_t v)
{
	const json_t *x;
	size_t i;

	json_array_foreach((json_t *)list, i, x)
		if (json_integer_value(x) == v)
			return true;
	return !list;
}

static bool named(const json_t *list, const char *class_name)
{
	const json_t *x;
	size_t i;

	json_array_foreach((json_t *)list, i, x)
		if (!strcmp(json_string_value(x), class_name))
			return true;
	return false;
}

static void one(const json_t *line)
{
	static const char *const hungs[] = { "false", "true", "null" };
	const char *id = json_string_value(json_object_get(line, "id"));
	const char *hung = json_string_value(json_object_get(line, "hung")), *why = NULL;
	char *text = json_dumps(json_object_get(line, "facts"), JSON_COMPACT), *again[2];
	struct wg_facts *f = wg_facts_new();
	const struct wg_verdict *v;
	struct wg_graph *g = NULL;

	assert_non_null(text);
	if (wg_snapshot_parse(f, text, strlen(text), &why))
		fail_msg("%s: %s", id, why);
	for (int i = 0; i < 2; i++) {
		json_t *doc;

		wg_graph_free(g);
		g = wg_graph_build(f);
		doc = json_object_get(doc = wg_snapshot_json(g), "verdict") ? doc : NULL;
		assert_non_null(doc);
		again[i] = json_dumps(json_object_get(doc, "verdict"), JSON_SORT_KEYS);
		json_decref(doc);
	}
	assert_string_equal(again[0], again[1]); /* the same facts, the same verdict */
	v = &g->verdict;
	cases++;
	if (!named(json_object_get(line, "class"), v->class_name) ||
	    (strcmp(hung, "any") && strcmp(hung, hungs[v->hung])) ||
	    !among(json_object_get(line, "culprit_tid"), v->culprit.present ? v->culprit.tid : -1) ||
	    !among(json_object_get(line, "culprit_pid"), v->culprit.present ? v->culprit.pid : -1)) {
		wrong++;
		print_error("%s: %s hung=%s culprit %lld/%lld: %s\n", id, v->class_name, hungs[v->hung],
			    (long long)v->culprit.pid, (long long)v->culprit.tid, v->summary);
	}
	wg_graph_free(g);
	wg_facts_free(f);
	free(again[0]);
	free(again[1]);
	free(text);
}

static void every_saved_case_is_right(void **state)
{
	const char *dir = WG_SOURCE_DIR "/tests/unit/fixtures";
	struct dirent **names;
	int n = scandir(dir, &names, NULL, alphasort);

	(void)state;
	assert_true(n > 2);
	for (int i = 0; i < n; i++) {
		char path[4096], *text, *save = NULL;
		size_t size;

		snprintf(path, sizeof(path), "%s/%s", dir, names[i]->d_name);
		if (strstr(names[i]->d_name, ".jsonl.zst")) {
			text = unpack(path, &size);
			for (char *l = strtok_r(text, "\n", &save); l; l = strtok_r(NULL, "\n", &save)) {
				json_error_t err;
				json_t *line = json_loads(l, 0, &err);

				assert_non_null(line);
				one(line);
				json_decref(line);
			}
			free(text);
		}
		free(names[i]);
	}
	free(names);
	print_message("%u saved cases, %u wrong\n", cases, wrong);
	assert_true(cases > 0);
	assert_int_equal(wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(every_saved_case_is_right) };

	return cmocka_run_group_tests(tests, NULL, NULL);
}
