/* SPDX-License-Identifier: Apache-2.0 */
/* recorder_comms.c - communicators and collectives, from the recorder file. */
#include "recorder_priv.h"

#include <stdlib.h>
#include <string.h>

#define MAX_COMMS 1024
#define MAX_DONE_COLLS 32 /* finished collectives kept for comparison with other ranks */

/* ---- collectives ----------------------------------------------------------------------- */

static const char *comm_state(uint32_t s)
{
	static const char *const names[] = {"unknown",	"init",	      "ready",	   "finalizing",
					    "aborting", "destroying", "destroyed", "failed"};

	return s < sizeof(names) / sizeof(names[0]) ? names[s] : "unknown";
}

static const char *data_type(uint8_t t)
{
	static const char *const names[] = {"i8",  "u8",  "i32", "u32",	 "i64",	   "u64",
					    "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};

	return t < sizeof(names) / sizeof(names[0]) ? names[t] : NULL;
}

static const char *red_op(uint8_t t)
{
	static const char *const names[] = {"sum", "prod", "max", "min", "avg"};

	return t < sizeof(names) / sizeof(names[0]) ? names[t] : t == 255 ? NULL : "custom";
}

static const char *coll_op(struct wg_rec *r, uint32_t fn)
{
	const char *s = wg_rec_fn_name(r, fn);

	if (!s)
		return NULL;
	if (*s == 'p')
		s++;
	return !strncmp(s, "nccl", 4) ? s + 4 : s;
}

/* Whether the stream has passed, is at, or has not come to this collective. */
static int coll_state(struct wg_process *p, struct wg_rec *r, const struct wgrec_coll *e,
		      bool *known)
{
	const struct wg_stream *s;

	*known = false;
	if (!e->stream_seq) {
		*known = true; /* not given to a stream: nothing has run */
		return WG_COLL_ENQUEUED;
	}
	if (e->stream_index >= r->nstream_ix)
		return WG_COLL_ENQUEUED;
	if (r->stream_ix[e->stream_index] == WG_NO_INT) {
		*known = true; /* a stream that is left out has all its work done */
		return WG_COLL_DONE;
	}
	s = &p->streams.v[r->stream_ix[e->stream_index]];
	*known = s->has_position;
	if (s->completed >= e->stream_seq)
		return WG_COLL_DONE;
	for (size_t i = 0; i < s->pending.n; i++) {
		const struct wg_gpu_item *x = &s->pending.v[i];

		if (x->op == WG_GPU_MARK || x->nccl_inner)
			continue; /* NCCL's own kernels stand before the item that names them */
		return x->seq == e->stream_seq && !s->pending_truncated ? WG_COLL_RUNNING
									: WG_COLL_ENQUEUED;
	}
	return WG_COLL_ENQUEUED;
}

void wg_rec_fill_comms(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	uint64_t n;

	/* The index must stand before the streams' items name communicators. */
	wg_rec_load(r, WGREC_COMMS);
	n = r->sec[WGREC_COMMS].n;
	free(r->comm_ix);
	r->comm_ix = malloc((n + 1) * sizeof(*r->comm_ix));
	r->ncomm_ix = r->comm_ix ? n : 0;
	memset(&p->comms, 0, sizeof(p->comms));
	for (uint64_t i = 0; i < r->ncomm_ix; i++) {
		struct wgrec_comm e;

		wg_rec_entry(r, WGREC_COMMS, i, &e, sizeof(e));
		r->comm_ix[i] = WG_NO_INT;
		if (!e.valid || p->comms.n >= MAX_COMMS)
			continue;
		r->comm_ix[i] = (int64_t)p->comms.n;
		wg_add_comm(f, p);
	}
}

/* The calls of one ring, oldest first. Returns how many are known to be done. */
static uint64_t fill_ring(struct wg_facts *f, struct wg_process *p, struct wg_rec *r,
			  struct wg_comm *c, const struct wgrec_comm *e, bool p2p)
{
	uint64_t entered = p2p ? e->p2p_entered : e->entered;
	uint64_t done = p2p ? e->p2p_done : e->done;
	uint64_t size = p2p ? WGREC_COMM_P2P : WGREC_COMM_COLLS;
	uint64_t base = (uint64_t)e->colls_first + (p2p ? WGREC_COMM_COLLS : 0);
	uint64_t first = entered > size ? entered - size : 0;

	if (done > entered)
		done = entered;
	if (done > MAX_DONE_COLLS && first < done - MAX_DONE_COLLS)
		first = done - MAX_DONE_COLLS;
	for (uint64_t q = first; e->colls_first != UINT32_MAX && q < entered; q++) {
		struct wgrec_coll x, again;
		struct wg_collective *o;
		bool known;

		if (!wg_rec_fetch(r, WGREC_COLLS, base + q % size, &x, sizeof(x)) ||
		    x.sequence_plus_1 != q + 1 ||
		    !wg_rec_fetch(r, WGREC_COLLS, base + q % size, &again, sizeof(again)) ||
		    memcmp(&x, &again, sizeof(x)))
			continue; /* lost, or being overwritten */
		o = wg_add_collective(f, c);
		o->sequence = q;
		o->op = coll_op(r, x.fn);
		o->count = wg_rec_bytes(x.count);
		o->type = data_type(x.type);
		o->redop = red_op(x.redop);
		o->root = x.root >= 0 ? x.root : WG_NO_INT;
		o->age_s = wg_rec_age(r, x.at);
		o->stream = x.stream == 1 ? 0 : x.stream;
		o->tid = wg_rec_tid_of(p, x.tid);
		o->host_blocked = !x.returned;
		o->p2p = p2p;
		o->grouped = x.flags & WGREC_COLLF_GROUPED;
		o->captured = x.flags & WGREC_COLLF_CAPTURED;
		o->failed = x.flags & WGREC_COLLF_FAILED;
		o->ungiven = !x.stream_seq && x.returned && o->grouped && !o->captured && !o->failed;
		if (q < done) {
			o->state = WG_COLL_DONE;
			o->state_known = true;
			continue;
		}
		if (o->captured || o->failed) {
			o->state = WG_COLL_DONE; /* nothing that could be waited for */
			if (q == done && o->failed)
				done = q + 1;
			continue;
		}
		o->state = coll_state(p, r, &x, &known);
		o->state_known = known;
		if (o->state == WG_COLL_DONE && q == done)
			done = q + 1;
		if (!p2p)
			c->done_known = c->done_known || known;
	}
	return done;
}

void wg_rec_fill_collectives(struct wg_facts *f, struct wg_process *p, struct wg_rec *r)
{
	for (uint64_t i = 0; i < r->ncomm_ix; i++) {
		struct wgrec_comm e;
		struct wg_comm *c;

		if (r->comm_ix[i] == WG_NO_INT)
			continue;
		c = &p->comms.v[r->comm_ix[i]];
		wg_rec_entry(r, WGREC_COMMS, i, &e, sizeof(e));
		c->id = wg_rec_fixed(f, e.id, sizeof(e.id));
		c->handle = e.handle;
		c->rank = e.rank >= 0 ? e.rank : WG_NO_INT;
		c->size = e.size > 0 ? e.size : WG_NO_INT;
		c->device = e.device >= 0 ? e.device : WG_NO_INT;
		c->state = comm_state(e.state);
		c->age_s = wg_rec_age(r, e.state_at);
		c->next_sequence = e.entered;
		c->async_error = e.async_error;
		c->library = wg_rec_string_at(r, e.library);
		c->name = wg_rec_fixed(f, e.name, sizeof(e.name));
		c->parent = wg_rec_fixed(f, e.parent, sizeof(e.parent));
		c->children = e.children;
		c->done_known = !e.entered || e.done > 0;
		c->done = fill_ring(f, p, r, c, &e, false);
		c->p2p_next = e.p2p_entered;
		c->p2p_done = fill_ring(f, p, r, c, &e, true);
		for (int32_t k = 0; e.peers_first != UINT32_MAX && k < e.size && k < 1 << 16; k++) {
			struct wgrec_header who = {.pid = 0};
			struct wg_rec_who at;
			struct wgrec_peer x;

			if (!wg_rec_fetch(r, WGREC_PEERS, (uint64_t)e.peers_first + (uint64_t)k, &x,
					  sizeof(x)))
				break;
			if ((!x.pid && !x.host[0]) || x.rank == e.rank || x.rank < 0)
				continue;
			x.boot_id[sizeof(x.boot_id) - 1] = 0;
			x.host[sizeof(x.host) - 1] = 0;
			who.pid = x.pid;
			who.start_ticks = x.start_ticks;
			who.pidns = r->h.pidns;
			memcpy(who.boot_id, x.boot_id, sizeof(who.boot_id));
			wg_rec_whose(&who, &at);
			wg_rec_add_peer(f, p, c->id, x.rank, x.host, x.boot_id,
					x.pid ? at.pid : WG_NO_INT,
					x.start_ticks ? (int64_t)x.start_ticks : WG_NO_INT,
					at.alive, at.alive_known && x.pid);
		}
	}
}
