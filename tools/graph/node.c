/* SPDX-License-Identifier: Apache-2.0 */
/* node.c - nodes, edges, the hash map and small strings of the graph engine. */
#include "internal.h"

#include <stdarg.h>

const char *const wg_class_names[CL_COUNT] = {
	[CL_NONE] = "unknown",
	[CL_DEADLOCK] = "deadlock",
	[CL_LOCK_SELF] = "lock-self",
	[CL_LOCK_ORPHANED] = "lock-orphaned",
	[CL_LOCK_AFTER_FORK] = "lock-after-fork",
	[CL_NO_WAKER] = "no-waker",
	[CL_COLL_MISSING] = "collective-missing-rank",
	[CL_COLL_CYCLE] = "collective-cycle",
	[CL_COLL_MISMATCH] = "collective-mismatch",
	[CL_PEER_DEAD] = "peer-dead",
	[CL_PEER_SILENT] = "peer-silent",
	[CL_KERNEL_STUCK] = "gpu-kernel-stuck",
	[CL_GPU_UNSIGNALED] = "gpu-wait-unsignaled",
	[CL_HOST_CALLBACK] = "gpu-host-callback",
	[CL_OOM_SWALLOWED] = "oom-swallowed",
	[CL_PIPE_FULL] = "pipe-full",
	[CL_WRITE_BLOCKED] = "write-blocked",
	[CL_READ_BLOCKED] = "read-blocked",
	[CL_FILE_LOCK] = "file-lock",
	[CL_STOPPED] = "stopped",
	[CL_IMPLICIT_SYNC] = "implicit-sync",
	[CL_SPIN_WAIT] = "spin-wait",
	[CL_RESOURCE] = "resource-exhausted",
	[CL_DRIVER_BLOCKED] = "driver-blocked",
	[CL_BUSY_CPU] = "busy-cpu",
	[CL_BUSY_GPU] = "busy-gpu",
	[CL_LOG_BUFFERED] = "log-buffered",
	[CL_IDLE] = "idle",
	[CL_PROGRESSING] = "progressing",
	[CL_UNKNOWN] = "unknown",
};

const char *const wg_node_kind_names[] = {
	[WG_NODE_THREAD] = "thread",
	[WG_NODE_LOCK] = "lock",
	[WG_NODE_EVENT] = "event",
	[WG_NODE_STREAM] = "stream",
	[WG_NODE_COLLECTIVE] = "collective",
	[WG_NODE_FILE] = "file",
	[WG_NODE_PIPE] = "pipe",
	[WG_NODE_SOCKET] = "socket",
	[WG_NODE_PROCESS] = "process",
	[WG_NODE_FILE_LOCK] = "file-lock",
	[WG_NODE_GIL] = "gil",
};
const char *const wg_edge_kind_names[] = {
	[WG_EDGE_WAITS_FOR] = "waits-for",     [WG_EDGE_HELD_BY] = "held-by",
	[WG_EDGE_ENQUEUED_ON] = "enqueued-on", [WG_EDGE_RUNS] = "runs",
	[WG_EDGE_WRITTEN_BY] = "written-by",   [WG_EDGE_READ_BY] = "read-by",
	[WG_EDGE_MEMBER] = "member",	       [WG_EDGE_CHILD_OF] = "child-of",
	[WG_EDGE_WOKEN_BY] = "woken-by",
};

static size_t map_hash(uint64_t k0, uint64_t k1, uint64_t k2)
{
	uint64_t h = k0 * 0x9e3779b97f4a7c15ull;

	h = (h ^ (h >> 29) ^ k1) * 0xbf58476d1ce4e5b9ull;
	h = (h ^ (h >> 32) ^ k2) * 0x94d049bb133111ebull;
	return (size_t)(h ^ (h >> 31));
}

static size_t map_at(const struct wg_map *m, uint64_t k0, uint64_t k1, uint64_t k2)
{
	size_t i = map_hash(k0, k1, k2) & (m->cap - 1);

	while (m->slot[i].used &&
	       (m->slot[i].k[0] != k0 || m->slot[i].k[1] != k1 || m->slot[i].k[2] != k2))
		i = (i + 1) & (m->cap - 1);
	return i;
}

void wg_map_put(struct wg_arena *a, struct wg_map *m, uint64_t k0, uint64_t k1, uint64_t k2,
		uint32_t v)
{
	size_t i;

	if ((m->n + 1) * 2 > m->cap) {
		struct wg_map old = *m;

		m->cap = old.cap ? old.cap * 2 : 16;
		m->slot = wg_alloc(a, m->cap * sizeof(*m->slot));
		for (size_t j = 0; j < old.cap; j++) {
			if (!old.slot[j].used)
				continue;
			i = map_at(m, old.slot[j].k[0], old.slot[j].k[1], old.slot[j].k[2]);
			m->slot[i] = old.slot[j];
		}
	}
	i = map_at(m, k0, k1, k2);
	if (!m->slot[i].used) {
		m->slot[i].used = true;
		m->slot[i].k[0] = k0;
		m->slot[i].k[1] = k1;
		m->slot[i].k[2] = k2;
		m->n++;
	}
	m->slot[i].v = v;
}

uint32_t wg_map_get(const struct wg_map *m, uint64_t k0, uint64_t k1, uint64_t k2)
{
	size_t i;

	if (!m->cap)
		return WG_NONE;
	i = map_at(m, k0, k1, k2);
	return m->slot[i].used ? m->slot[i].v : WG_NONE;
}

uint32_t wg_node(struct wg_b *b, enum wg_itype type, uint64_t a, uint64_t k, bool *fresh)
{
	uint32_t ix = wg_map_get(&b->nodes, type, a, k);
	struct wg_inode *n;

	if (fresh)
		*fresh = ix == WG_NONE;
	if (ix != WG_NONE)
		return ix;
	ix = (uint32_t)b->n.n;
	n = wg_push(b->a, &b->n);
	n->type = type;
	n->mode = MODE_ALL;
	n->proc = n->thr = -1;
	n->a = a;
	n->b = k;
	n->wsince = WG_NO_SEC;
	n->end.timer_s = WG_NO_SEC;
	n->end.pid = n->end.tid = n->end.rank = WG_NO_INT;
	wg_map_put(b->a, &b->nodes, type, a, k, ix);
	return ix;
}

struct wg_iedge *wg_edge(struct wg_b *b, uint32_t from, uint32_t to, enum wg_edge_kind kind,
			 bool certain, const char *evidence)
{
	uint32_t ix = (uint32_t)b->e.n;
	struct wg_iedge *e = wg_push(b->a, &b->e);
	struct wg_inode *n = &b->n.v[from];

	e->from = from;
	e->to = to;
	e->kind = kind;
	e->certain = certain;
	e->evidence = evidence;
	e->since = n->wsince;
	/* Appended at the end, so that the order in which resolvers speak is kept. */
	if (n->last)
		b->e.v[n->last - 1].next = ix + 1;
	else
		n->first = ix + 1;
	n->last = ix + 1;
	n->nout++;
	n->visible = b->n.v[to].visible = true;
	return &b->e.v[ix];
}

void wg_set_end(struct wg_b *b, uint32_t ix, enum wg_class cls, enum wg_fate fate,
		enum wg_certainty certainty, const char *text)
{
	struct wg_inode *n = &b->n.v[ix];

	n->has_end = true;
	n->end.cls = cls;
	n->end.fate = fate;
	n->end.certainty = certainty;
	n->end.text = text;
}

/* wg_fmt() without its second pass: sentences are short, and a graph has many. */
const char *wg_say(struct wg_b *b, const char *fmt, ...)
{
	char buf[1024];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(buf, sizeof(buf), fmt, ap);
	va_end(ap);
	if (n < 0)
		n = 0;
	if ((size_t)n >= sizeof(buf))
		n = sizeof(buf) - 1;
	return wg_strn(b->a, buf, (size_t)n);
}

const char *wg_secs(struct wg_b *b, double s)
{
	if (!wg_has_sec(s) || s < 0)
		return "an unknown time";
	if (s < 0.0095)
		return wg_say(b, "%.1f ms", s * 1e3);
	if (s < 0.95)
		return wg_say(b, "%.0f ms", s * 1e3);
	if (s < 9.95)
		return wg_say(b, "%.1f s", s);
	if (s < 600)
		return wg_say(b, "%.0f s", s);
	if (s < 7200)
		return wg_say(b, "%.0f min", s / 60);
	if (s < 172800)
		return wg_say(b, "%.1f h", s / 3600);
	return wg_say(b, "%.1f days", s / 86400);
}

const char *wg_bytes(struct wg_b *b, int64_t n)
{
	static const char *const unit[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
	double v = (double)n;
	int u = 0;

	while (v >= 1024 && u < 4) {
		v /= 1024;
		u++;
	}
	if (!u)
		return wg_say(b, "%lld bytes", (long long)n);
	return wg_say(b, v >= 100 || v == (double)(int64_t)v ? "%.0f %s" : "%.1f %s", v, unit[u]);
}
