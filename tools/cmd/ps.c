/* SPDX-License-Identifier: Apache-2.0 */
/* ps.c - every recorded process of this host, alive or dead. */
#include <errno.h>
#include <getopt.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "cmd.h"
#include "recorded.h"

static const char help[] =
	"usage: waitgraph ps [--json] [--dir DIR]\n\n"
	"Every process of this host that runs under the recorder, and those that did not end\n"
	"normally: headroom of their tightest device, age of the last completed call, oldest call\n"
	"that has not returned.\n\n"
	"  -j, --json      one JSON document (schema waitgraph-ps/1)\n"
	"  -d, --dir DIR   from the snapshots and traces in DIR instead\n";

static void put_int(json_t *o, const char *key, int64_t v)
{
	if (wg_has_int(v))
		json_object_set_new(o, key, json_integer(v));
}

static void put_sec(json_t *o, const char *key, double v)
{
	if (wg_has_sec(v))
		json_object_set_new(o, key, json_real(round(v * 1e6) / 1e6));
}

static void put_str(json_t *o, const char *key, const char *s)
{
	if (s)
		json_object_set_new(o, key, json_string(s));
}

static json_t *row_json(const struct wg_recorded *r)
{
	const struct wg_process *p = r->p;
	json_t *o = json_object(), *list = json_array();

	put_int(o, "pid", p->pid);
	if (p->ns_pid && p->ns_pid != p->pid)
		put_int(o, "ns_pid", p->ns_pid);
	put_int(o, "start", p->start_ticks ? (int64_t)p->start_ticks : WG_NO_INT);
	put_str(o, "host", p->host);
	put_int(o, "rank", r->rank);
	put_int(o, "world", p->world);
	put_str(o, "command", p->command);
	put_int(o, "uid", p->uid);
	if (p->alive_known || p->from_snapshot)
		json_object_set_new(o, "alive", json_boolean(p->alive));
	put_sec(o, "age_s", p->age_s);
	put_sec(o, "progress_age_s", p->progress_age_s);
	put_int(o, "calls", p->calls);
	for (size_t i = 0; i < p->devices.n; i++) {
		const struct wg_device *d = &p->devices.v[i];
		json_t *x = json_object();

		put_int(x, "index", d->index);
		put_str(x, "uuid", d->uuid);
		put_str(x, "name", d->name);
		put_int(x, "total", d->total);
		put_int(x, "free", d->free);
		put_int(x, "own", d->own);
		put_int(x, "peak", d->peak);
		put_int(x, "least_free", d->least_free);
		put_int(x, "failures", d->failed);
		json_array_append_new(list, x);
	}
	json_object_set_new(o, "devices", list);
	put_int(o, "headroom", r->tightest ? r->tightest->free : WG_NO_INT);
	put_int(o, "unfinished_gpu_work", p->streams.n ? (int64_t)r->behind : WG_NO_INT);
	if (r->wait) {
		json_t *x = json_object();

		put_str(x, "call", r->wait->function);
		put_str(x, "inner", r->wait->inner);
		put_sec(x, "since_s", r->wait->since_s);
		put_int(x, "tid", r->waiter->tid);
		put_str(x, "thread_name", r->waiter->name);
		json_object_set_new(o, "oldest_wait", x);
	}
	return o;
}

static int print_json(const struct wg_recorded_list *l)
{
	json_t *doc = json_object(), *list = json_array();
	time_t now = (time_t)l->f->taken_at;
	char when[40] = "";
	struct tm tm;
	int rc = 0;

	if (gmtime_r(&now, &tm))
		strftime(when, sizeof(when), "%Y-%m-%dT%H:%M:%SZ", &tm);
	put_str(doc, "schema", "waitgraph-ps/1");
	put_str(doc, "host", l->f->host);
	put_str(doc, "taken_at", when);
	for (size_t i = 0; i < l->rows.n; i++)
		json_array_append_new(list, row_json(&l->rows.v[i]));
	json_object_set_new(doc, "processes", list);
	list = json_array();
	for (size_t i = 0; i < l->f->missing.n; i++) {
		char line[1024];
		json_t *s;

		snprintf(line, sizeof(line), "%s: %s", l->f->missing.v[i].what, l->f->missing.v[i].why);
		s = json_string(line);
		if (s)
			json_array_append_new(list, s);
	}
	json_object_set_new(doc, "missing", list);
	if (json_dumpf(doc, stdout, JSON_INDENT(1) | JSON_REAL_PRECISION(15)) || putchar('\n') == EOF)
		rc = errno == EPIPE ? 0 : WG_EXIT_DEFECT;
	json_decref(doc);
	return rc;
}

int wg_cmd_ps(int argc, char **argv)
{
	static const struct option options[] = { { "json", no_argument, NULL, 'j' },
						 { "dir", required_argument, NULL, 'd' },
						 { "help", no_argument, NULL, 'h' },
						 { NULL, 0, NULL, 0 } };
	const char *dir = NULL, *why = NULL;
	struct wg_recorded_list list;
	bool json = false;
	int c, rc, width = 0;

	optind = 0;
	while ((c = getopt_long(argc, argv, "jd:h", options, NULL)) != -1) {
		switch (c) {
		case 'j':
			json = true;
			break;
		case 'd':
			dir = optarg;
			break;
		case 'h':
			fputs(help, stdout);
			return WG_EXIT_OK;
		default:
			return WG_EXIT_USAGE;
		}
	}
	if (optind < argc)
		return wg_fail(WG_EXIT_USAGE, "ps", "takes no arguments: '%s'", argv[optind]);
	rc = wg_recorded_load(&list, dir, &why);
	if (rc) {
		rc = wg_fail(wg_exit_of_errno(rc), "ps", "%s", why ? why : strerror(-rc));
		goto out;
	}
	if (json) {
		rc = print_json(&list);
		goto out;
	}
	width = wg_terminal_columns(stdout);
	width = width && width < 40 ? 40 : width;
	if (!list.rows.n) {
		fputs("no recorded processes (start one: waitgraph run -- CMD)\n", stderr);
	} else {
		/* A pipe gets whole commands: grep wants them. */
		puts(wg_recorded_line(&list, NULL, width ? width : 4096));
		for (size_t i = 0; i < list.rows.n; i++)
			puts(wg_recorded_line(&list, &list.rows.v[i], width ? width : 4096));
	}
	if (list.refused)
		fprintf(stderr, "%zu recorder file%s could not be read (of other users, or corrupt)\n",
			list.refused, list.refused == 1 ? "" : "s");
out:
	wg_recorded_free(&list);
	return rc;
}
