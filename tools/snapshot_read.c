/* SPDX-License-Identifier: Apache-2.0 */
/*
 * snapshot_read.c - a saved snapshot back to facts. The file is untrusted: its size, depth
 * and number of values are bounded before it is parsed, every value is checked for type
 * and range, and indices are checked against what was read.
 *
 * A document that has only the contract's keys (written by another tool) is taken too:
 * what our own keys would have said is then derived from the contract's.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "snapshot.h"
#include "snapshot_fields.h"

#define MAX_BYTES (256u << 20)
#define MAX_VALUES (8u << 20)
#define MAX_NESTING 64

/* What a parser would have to build, before it builds it. */
static const char *too_much(const char *s, size_t n)
{
	size_t values = 0, depth = 0;
	bool quoted = false;

	for (size_t i = 0; i < n; i++) {
		if (quoted) {
			if (s[i] == '\\')
				i++;
			else if (s[i] == '"')
				quoted = false;
			continue;
		}
		switch (s[i]) {
		case '"':
			quoted = true;
			break;
		case '{':
		case '[':
			if (++depth > MAX_NESTING)
				return "nested too deeply";
			values++;
			break;
		case '}':
		case ']':
			if (depth)
				depth--;
			break;
		case ',':
			if (++values > MAX_VALUES)
				return "too many values";
			break;
		}
	}
	return NULL;
}

static double parse_time(const char *s)
{
	struct tm tm = { 0 };
	double fraction = 0;
	const char *end = s ? strptime(s, "%Y-%m-%dT%H:%M:%S", &tm) : NULL;
	int h = 0, m = 0;
	time_t t;

	if (!end)
		return 0;
	if (*end == '.') {
		char *after;

		fraction = strtod(end, &after); /* ".123" */
		if (!(fraction >= 0 && fraction < 1))
			fraction = 0;
		end = after;
	}
	t = timegm(&tm);
	if ((*end == '+' || *end == '-') && sscanf(end + 1, "%2d:%2d", &h, &m) == 2)
		t -= (*end == '-' ? -1 : 1) * (h * 3600 + m * 60);
	return t > 0 ? (double)t + fraction : 0;
}

/* ---- documents that have only the contract's keys ------------------------------------ */

static void wait_from_contract(struct wg_facts *f, struct wg_thread *t, const json_t *wait)
{
	static const struct { const char *kind; enum wg_op op; } ops[] = {
		{ "futex", WG_OP_FUTEX }, { "gil", WG_OP_FUTEX }, { "join", WG_OP_FUTEX },
		{ "read", WG_OP_READ }, { "write", WG_OP_WRITE }, { "sync", WG_OP_SYNC },
		{ "poll", WG_OP_POLL }, { "accept", WG_OP_ACCEPT }, { "connect", WG_OP_CONNECT },
		{ "child", WG_OP_WAIT }, { "file-lock", WG_OP_FLOCK }, { "sleep", WG_OP_SLEEP },
		{ "signal", WG_OP_SIGWAIT }, { "spin", WG_OP_RUNNING }, { "other", WG_OP_OTHER },
	};
	const char *kind = json_string_value(json_object_get(wait, "kind"));
	const char *call = json_string_value(json_object_get(wait, "call"));
	const json_t *since = json_object_get(wait, "since_s");

	for (size_t i = 0; kind && i < sizeof(ops) / sizeof(ops[0]); i++)
		if (!strcmp(ops[i].kind, kind))
			t->wait.op = ops[i].op;
	if (json_is_number(since) && isfinite(json_number_value(since)))
		t->wait.since_s = json_number_value(since);
	if (call && (!strncmp(call, "cu", 2) || !strncmp(call, "nccl", 4))) {
		struct wg_call *c = wg_add_call(f, t);

		c->function = wg_str(f->arena, call);
		c->since_s = t->wait.since_s;
		c->kind = !strncmp(call, "nccl", 4)		? WG_CALL_COLLECTIVE :
			  strcasestr(call, "synchronize")	? WG_CALL_SYNC :
			  strcasestr(call, "launch")		? WG_CALL_LAUNCH :
			  strcasestr(call, "memcpy")		? WG_CALL_COPY :
								  WG_CALL_OTHER;
	} else if (call) {
		t->wait.syscall_name = wg_str(f->arena, call);
	}
}

static int64_t comm_from_contract(struct wg_facts *f, struct wg_process *p, const char *id,
				  int64_t rank, int64_t size)
{
	struct wg_comm *c;

	for (size_t i = 0; i < p->comms.n; i++)
		if (p->comms.v[i].id && id && !strcmp(p->comms.v[i].id, id) &&
		    (p->comms.v[i].rank == rank || !wg_has_int(rank)))
			return (int64_t)i;
	c = wg_add_comm(f, p);
	c->id = wg_str(f->arena, id);
	c->rank = rank;
	c->size = size;
	return (int64_t)p->comms.n - 1;
}

static int64_t int_or_none(const json_t *j)
{
	return json_is_integer(j) ? json_integer_value(j) : WG_NO_INT;
}

static int read_collectives(struct wg_facts *f, struct wg_process *p, const json_t *o,
			    struct wg_decoder *dec)
{
	const json_t *list = json_object_get(o, "collectives"), *x;
	bool derived = !json_object_get(o, "comms");
	int rc = 0;
	size_t i;

	if (!list)
		return 0;
	dec->path[dec->depth] = "collectives";
	dec->index[dec->depth++] = -1;
	if (!json_is_array(list)) {
		rc = wg_decode_error(dec, "an array is expected");
		goto out;
	}
	json_array_foreach((json_t *)list, i, x) {
		int64_t at = int_or_none(json_object_get(x, "comm_index"));
		struct wg_comm *c;

		dec->index[dec->depth - 1] = (long)i;
		if (!wg_has_int(at) || derived)
			at = comm_from_contract(f, p,
						json_string_value(json_object_get(x, "comm")),
						int_or_none(json_object_get(x, "rank")),
						int_or_none(json_object_get(x, "size")));
		if (at < 0 || (size_t)at >= p->comms.n) {
			rc = wg_decode_error(dec, "no such communicator");
			goto out;
		}
		c = &p->comms.v[at];
		rc = wg_decode(&wg_desc_collective, wg_add_collective(f, c), x, dec);
		if (rc)
			goto out;
		if (derived) { /* what has been entered follows from the calls themselves */
			const struct wg_collective *n = &c->recent.v[c->recent.n - 1];

			if (n->sequence < UINT64_MAX && n->sequence >= c->next_sequence)
				c->next_sequence = n->sequence + 1;
			if (n->state == WG_COLL_DONE && n->sequence >= c->done &&
			    n->sequence < UINT64_MAX) {
				c->done = n->sequence + 1;
				c->done_known = true;
			}
		}
	}
out:
	dec->depth--;
	return rc;
}

/* ---- one process --------------------------------------------------------------------- */

static int64_t valid_index(int64_t i, size_t n)
{
	return i >= 0 && (uint64_t)i < n ? i : WG_NO_INT;
}

/* Numbers that the engine uses as indices or counts into fixed arrays. */
static void check_indices(struct wg_process *p)
{
	for (size_t i = 0; i < p->streams.n; i++)
		for (size_t k = 0; k < p->streams.v[i].pending.n; k++) {
			struct wg_gpu_item *x = &p->streams.v[i].pending.v[k];

			x->comm = valid_index(x->comm, p->comms.n);
			x->event_stream_ix = valid_index(x->event_stream_ix, p->streams.n);
		}
	for (size_t i = 0; i < p->threads.n; i++) {
		struct wg_thread *t = &p->threads.v[i];

		for (size_t k = 0; k < t->calls.n; k++) {
			struct wg_call *c = &t->calls.v[k];

			c->event_stream_ix = valid_index(c->event_stream_ix, p->streams.n);
			for (size_t j = 0; j < c->args.n; j++) {
				if (!c->args.v[j].name)
					c->args.v[j].name = "?";
				if (!c->args.v[j].text)
					c->args.v[j].text = "?";
			}
		}
		if (t->wait.futex.nwords < 0 || t->wait.futex.nwords > WG_FUTEX_WORDS)
			t->wait.futex.nwords = 0;
		if (t->wait.futex.nwaitv < 0)
			t->wait.futex.nwaitv = 0;
		t->sample_pc[7] = 0; /* ends the list */
	}
	for (size_t i = 0; i < p->missing.n; i++) {
		if (!p->missing.v[i].what)
			p->missing.v[i].what = "?";
		if (!p->missing.v[i].why)
			p->missing.v[i].why = "?";
	}
	for (size_t i = 0; i < p->env.n; i++) {
		if (!p->env.v[i].name)
			p->env.v[i].name = "";
		if (!p->env.v[i].value)
			p->env.v[i].value = "";
	}
	for (size_t i = 0; i < p->peers.n; i++)
		if (!p->peers.v[i].comm)
			p->peers.v[i].comm = "";
}

static int read_process(struct wg_facts *f, const struct wg_facts *doc, const json_t *o,
			struct wg_decoder *dec)
{
	struct wg_process *p = wg_add_process(f);
	const json_t *list, *x;
	size_t i;
	int rc = wg_decode(&wg_desc_process, p, o, dec);

	if (rc)
		return rc;
	if (!json_is_integer(json_object_get(o, "pid")) || p->pid < 0)
		return wg_decode_error(dec, "without a pid");
	p->from_snapshot = true;
	p->alive = json_object_get(o, "alive") ? p->alive : !p->trace_only;
	if (!p->host)
		p->host = doc->host;
	if (!p->boot)
		p->boot = doc->boot;
	/* A snapshot that was itself made from snapshots keeps the older times. */
	if (p->taken_at <= 0)
		p->taken_at = doc->taken_at;
	list = json_object_get(o, "threads");
	json_array_foreach((json_t *)list, i, x) {
		struct wg_thread *t = &p->threads.v[i];

		t->pid = p->pid;
		if (!json_object_get(x, "blocked") && json_is_object(json_object_get(x, "wait")))
			wait_from_contract(f, t, json_object_get(x, "wait"));
	}
	list = json_object_get(o, "files");
	json_array_foreach((json_t *)list, i, x) {
		static const struct { const char *kind; enum wg_file_kind k; } kinds[] = {
			{ "file", WG_FILE_REG }, { "pipe", WG_FILE_PIPE },
			{ "socket", WG_FILE_SOCKET }, { "tty", WG_FILE_TTY },
		};
		const char *kind = json_string_value(json_object_get(x, "kind"));

		if (json_object_get(x, "type") || !kind)
			continue;
		for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++)
			if (!strcmp(kinds[k].kind, kind))
				p->files.v[i].kind = kinds[k].k;
	}
	list = json_object_get(o, "peers");
	json_array_foreach((json_t *)list, i, x) {
		const json_t *alive = json_object_get(x, "alive");

		p->peers.v[i].alive_known = json_is_boolean(alive);
		p->peers.v[i].alive = json_is_true(alive);
	}
	list = json_object_get(o, "missing");
	if (!json_object_get(o, "missing_facts") && json_is_array(list))
		json_array_foreach((json_t *)list, i, x)
			if (json_is_string(x))
				wg_add_missing(f, p, json_string_value(x), "as the snapshot says",
					       NULL);
	rc = read_collectives(f, p, o, dec);
	if (!rc)
		check_indices(p);
	return rc;
}

/* ---- one document ---------------------------------------------------------------------- */

static bool same_boot(const struct wg_facts *f, const struct wg_facts *doc)
{
	return f->boot && doc->boot ? !strcmp(f->boot, doc->boot) :
	       f->host && doc->host ? !strcmp(f->host, doc->host) :
				      true;
}

/* What the document says of its host, into facts that may hold several hosts. */
static void merge(struct wg_facts *f, const struct wg_facts *doc, bool first)
{
	bool here = same_boot(f, doc);

	if (!f->live) {
		if (first) {
			f->host = doc->host;
			f->boot = doc->boot;
			f->fd_scan_complete = doc->fd_scan_complete;
			f->lock_scan_complete = doc->lock_scan_complete;
			f->is_root = doc->is_root;
			f->self_pid = doc->self_pid;
			f->self_ppid = doc->self_ppid;
		} else {
			f->fd_scan_complete = f->fd_scan_complete && doc->fd_scan_complete;
			f->lock_scan_complete = f->lock_scan_complete && doc->lock_scan_complete;
		}
		if (doc->taken_at > f->taken_at)
			f->taken_at = doc->taken_at;
		if (doc->interval_s > f->interval_s)
			f->interval_s = doc->interval_s;
		/*
		 * Of one document the question is taken over too, so that the answer is the one that
		 * the live process got; several are one job, of which all are asked about.
		 */
		if (first)
			f->asked = doc->asked;
		else
			f->asked.n = 0;
		/* Lines of the lock table and thread ids name no host: only one host's can stand here. */
		for (size_t i = 0; here && i < doc->gone_tids.n; i++)
			*wg_push(f->arena, &f->gone_tids) = doc->gone_tids.v[i];
		for (size_t i = 0; here && i < doc->locks.n; i++)
			*wg_push(f->arena, &f->locks) = doc->locks.v[i];
	}
	for (size_t i = 0; i < doc->kmsg.n && !f->live; i++)
		*wg_push(f->arena, &f->kmsg) =
			here || !doc->host ? doc->kmsg.v[i] :
					     wg_fmt(f->arena, "%s: %s", doc->host, doc->kmsg.v[i]);
	for (size_t i = 0; i < doc->missing.n; i++)
		if (doc->missing.v[i].what && doc->missing.v[i].why)
			wg_add_missing(f, NULL, doc->missing.v[i].what, doc->missing.v[i].why,
				       doc->missing.v[i].remedy);
}

int wg_snapshot_parse(struct wg_facts *f, const char *text, size_t n, const char **why)
{
	struct wg_decoder dec = { .arena = f->arena };
	size_t before = f->procs.n, i;
	const json_t *list, *x;
	struct wg_facts doc;
	const char *schema;
	json_error_t err;
	json_t *root;
	long version;
	char *end;
	int rc;

	*why = too_much(text, n);
	if (*why)
		return -EINVAL;
	root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &err);
	if (!root) {
		*why = wg_fmt(f->arena, "line %d: %s", err.line, err.text);
		return -EINVAL;
	}
	rc = -EINVAL;
	schema = json_string_value(json_object_get(root, "schema"));
	if (!schema || strncmp(schema, "waitgraph/", 10)) {
		*why = schema ? wg_fmt(f->arena, "schema '%s' is not a snapshot's", schema) :
				"not a snapshot of waitgraph (no schema)";
		goto out;
	}
	version = strtol(schema + 10, &end, 10);
	if (schema[10] < '0' || schema[10] > '9' || *end || version < 1) {
		*why = wg_fmt(f->arena, "schema '%s' is not known", schema);
		goto out;
	}
	if (version > 1) {
		*why = wg_fmt(f->arena, "schema '%s' is newer than this waitgraph reads (waitgraph/1)",
			      schema);
		rc = -EPROTO;
		goto out;
	}
	memset(&doc, 0, sizeof(doc));
	if (wg_decode(&wg_desc_facts, &doc, root, &dec))
		goto bad;
	if (!(doc.taken_at > 0 && doc.taken_at < 253402300800.0))
		doc.taken_at = parse_time(json_string_value(json_object_get(root, "taken_at")));
	list = json_object_get(root, "processes");
	if (!json_is_array(list)) {
		*why = "without processes";
		goto out;
	}
	dec.path[0] = "processes";
	json_array_foreach((json_t *)list, i, x) {
		dec.depth = 1;
		dec.index[0] = (long)i;
		if (read_process(f, &doc, x, &dec))
			goto bad;
	}
	merge(f, &doc, !before);
	for (i = before; i < f->procs.n; i++)
		if (f->taken_at > 0 && f->procs.v[i]->taken_at > 0)
			f->procs.v[i]->snapshot_age_s = f->taken_at - f->procs.v[i]->taken_at;
	rc = 0;
	goto out;
bad:
	*why = dec.why ? dec.why : "corrupt";
	rc = -EINVAL;
out:
	if (rc)
		f->procs.n = before; /* half a document is none */
	json_decref(root);
	return rc;
}

int wg_snapshot_read(struct wg_facts *f, const char *path, const char **why)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), rc;
	char *text = NULL;
	struct stat st;
	size_t n = 0;

	*why = NULL;
	if (fd < 0)
		return -errno;
	if (fstat(fd, &st)) {
		rc = -errno;
		goto out;
	}
	rc = -EINVAL;
	if (!S_ISREG(st.st_mode)) {
		*why = "not a regular file";
		goto out;
	}
	if (st.st_size > MAX_BYTES) {
		*why = "larger than any snapshot";
		goto out;
	}
	text = malloc((size_t)st.st_size + 1);
	if (!text) {
		rc = -ENOMEM;
		goto out;
	}
	while (n < (size_t)st.st_size) {
		ssize_t k = read(fd, text + n, (size_t)st.st_size - n);

		if (k < 0 && errno == EINTR)
			continue;
		if (k < 0) {
			rc = -errno;
			goto out;
		}
		if (!k)
			break;
		n += (size_t)k;
	}
	rc = wg_snapshot_parse(f, text, n, why);
out:
	free(text);
	close(fd);
	return rc;
}
