// SPDX-License-Identifier: Apache-2.0
/* kernels.c - what runs on the stream: the meeting of the ranks, and moving the data. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "sim.h"

static const char *const types[] = {"i8",  "u8",  "i32", "u32",	 "i64",	   "u64",
				    "f16", "f32", "f64", "bf16", "f8e4m3", "f8e5m2"};
static const char *const ops[] = {"Sum", "Prod", "Max", "Min", "Avg", "PreMulSum"};

struct wait {
	struct ncclComm *c;
	simgpu_cancelled cancelled;
	const void *launch;
	long ns;
};

static bool ended(const struct wait *w)
{
	return atomic_load(&w->c->abort) || w->cancelled(w->launch);
}

static void pause_ns(struct wait *w)
{
	struct timespec t = {0, w->ns};

	nanosleep(&t, NULL);
	if (w->ns < 500000)
		w->ns += w->ns / 2;
	else if (w->ns < 4000000)
		w->ns += w->ns / 1000; /* a hang costs little in the end */
}

/* Everyone has passed as many barriers. false: aborted. */
static bool barrier(struct wait *w)
{
	struct ncclComm *c = w->c;
	uint64_t mine = ++c->step;

	w->ns = 5000;
	atomic_store(&c->s->rank[c->rank].step, mine);
	for (int r = 0; r < c->ranks; r++) {
		while (atomic_load(&c->s->rank[r].step) < mine) {
			if (ended(w))
				return false;
			pause_ns(w);
		}
	}
	return true;
}

/* Offers what this rank brings to the next position and waits for the same from all others. */
static bool meet(struct wait *w, const struct sn_offer *o)
{
	struct ncclComm *c = w->c;
	uint64_t at = ++c->position;
	struct sn_rank *me = &c->s->rank[c->rank];

	me->offer[at % SN_RING] = *o;
	atomic_store(&me->position, at);
	w->ns = 20000;
	for (int r = 0; r < c->ranks; r++) {
		while (atomic_load(&c->s->rank[r].position) < at ||
		       memcmp(&c->s->rank[r].offer[at % SN_RING], o, sizeof(*o))) {
			if (ended(w))
				return false;
			pause_ns(w); /* not there yet, or with something else: then for ever */
		}
	}
	return true;
}

/*
 * In steps of a stage: everyone lays a piece of what it sends on its stage, all wait, everyone
 * takes what is for it, all wait.
 */
static void collective(struct wait *w, const struct sn_task *t)
{
	struct ncclComm *c = w->c;
	const struct sn_offer *o = &t->offer;
	size_t z = sn_type_size((int)o->type);
	uint64_t each = o->count, total = each, piece = SN_STAGE / z;
	bool root = (int)o->root == c->rank;

	if (o->op == SN_REDUCESCATTER || o->op == SN_ALLTOALL || o->op == SN_SCATTER)
		total = each * (uint64_t)c->ranks;
	if (!meet(w, o))
		return;
	if (!total && !barrier(w)) /* nobody runs ahead of one who still compares offers */
		return;
	for (uint64_t at = 0; at < total; at += piece) {
		uint64_t n = total - at < piece ? total - at : piece;
		const uint8_t *send = (const uint8_t *)t->send + at * z;
		bool reducing =
			o->op == SN_ALLREDUCE || o->op == SN_REDUCE || o->op == SN_REDUCESCATTER;
		uint64_t lo = at, hi = at + n; /* of this piece, what is for me */

		if (reducing)
			sn_reduce_begin(c, sn_stage(c, c->rank), send, n, (int)o->type,
					(int)o->redop);
		else if ((o->op != SN_BROADCAST && o->op != SN_SCATTER) || root)
			memcpy(sn_stage(c, c->rank), send, n * z);
		if (!barrier(w))
			return;
		if (total != each) { /* blocks by rank: mine only */
			uint64_t b = (uint64_t)c->rank * each;

			lo = lo > b ? lo : b;
			hi = hi < b + each ? hi : b + each;
		}
		if (lo < hi) {
			size_t off = (lo - at) * z, len = (hi - lo) * z;
			uint8_t *recv = t->recv;
			uint64_t in_block = lo - (total != each ? (uint64_t)c->rank * each : 0);

			switch (o->op) {
			case SN_ALLREDUCE:
			case SN_REDUCE:
			case SN_REDUCESCATTER:
				if (o->op == SN_REDUCE && !root)
					break;
				recv += in_block * z;
				memcpy(recv, sn_stage(c, 0) + off, len);
				for (int r = 1; r < c->ranks; r++)
					sn_reduce(c, recv, sn_stage(c, r) + off, hi - lo,
						  (int)o->type, (int)o->redop);
				sn_reduce_end(c, recv, hi - lo, (int)o->type, (int)o->redop);
				break;
			case SN_BROADCAST:
			case SN_SCATTER:
				memmove(recv + in_block * z, sn_stage(c, (int)o->root) + off, len);
				break;
			case SN_ALLGATHER:
			case SN_GATHER:
			case SN_ALLTOALL:
				if (o->op == SN_GATHER && !root)
					break;
				for (int r = 0; r < c->ranks; r++)
					memcpy(recv + ((uint64_t)r * each + in_block) * z,
					       sn_stage(c, r) + off, len);
				break;
			default:
				break;
			}
		}
		if (!barrier(w))
			return;
	}
}

enum { P_TURN, P_PARTNER, P_DATA, P_DONE };

/* Moves one send or receive on as far as it goes; true when something happened. */
static bool advance(struct ncclComm *c, struct sn_p2p *p)
{
	int from = p->send ? c->rank : p->peer, to = p->send ? p->peer : c->rank;
	struct sn_pair *x = sn_pair(c, from, to);
	size_t chunk = sn_pair_bytes(c);
	bool moved = false;

	switch (p->state) {
	case P_TURN:
		if (atomic_load(p->send ? &x->sent : &x->received) != p->number)
			return false;
		atomic_store(p->send ? &x->send_bytes : &x->recv_bytes, p->bytes);
		atomic_store(p->send ? &x->sends : &x->recvs, p->number + 1);
		p->state = P_PARTNER;
		/* fall through */
	case P_PARTNER:
		if (atomic_load(p->send ? &x->recvs : &x->sends) <= p->number ||
		    atomic_load(p->send ? &x->recv_bytes : &x->send_bytes) != p->bytes)
			return false; /* not there, or with another size: then for ever */
		p->state = P_DATA;
		/* fall through */
	case P_DATA:
		while (p->done < p->bytes) {
			uint64_t wrote = atomic_load(&x->wrote), read = atomic_load(&x->read);
			uint64_t n = p->bytes - p->done < chunk ? p->bytes - p->done : chunk;

			if (p->send ? wrote != read : wrote == read)
				return moved;
			if (p->send)
				memcpy(sn_pair_stage(c, from, to), (uint8_t *)p->buf + p->done, n);
			else
				memcpy((uint8_t *)p->buf + p->done, sn_pair_stage(c, from, to), n);
			p->done += n;
			atomic_fetch_add(p->send ? &x->wrote : &x->read, 1);
			moved = true;
		}
		if (p->send && atomic_load(&x->wrote) != atomic_load(&x->read))
			return moved;
		atomic_store(p->send ? &x->sent : &x->received, p->number + 1);
		p->state = P_DONE;
		return true;
	default:
		return false;
	}
}

static void point_to_point(struct wait *w, struct sn_task *t)
{
	struct ncclComm *c = w->c;

	for (unsigned int i = 0; i < t->p2p_count; i++) {
		struct sn_p2p *p = &t->p2p[i];

		p->number = p->send ? c->sends[p->peer]++ : c->recvs[p->peer]++;
		p->done = 0;
		p->state = P_TURN;
	}
	w->ns = 10000;
	for (;;) {
		bool moved = false, all = true;

		for (unsigned int i = 0; i < t->p2p_count; i++) {
			moved |= advance(c, &t->p2p[i]);
			all &= t->p2p[i].state == P_DONE;
		}
		if (all || ended(w))
			return;
		if (moved)
			w->ns = 10000;
		else
			pause_ns(w);
	}
}

int sn_run(void *param, simgpu_cancelled cancelled, const void *launch)
{
	struct sn_task *t = *(struct sn_task **)param;
	struct ncclComm *c = t->comm;
	struct wait w = {c, cancelled, launch, 20000};
	bool turn = true;

	if (t->captured)
		atomic_fetch_add(&c->outstanding, 1);
	/* Operations of one communicator run one after the other, in the order they were launched.
	 */
	pthread_mutex_lock(&c->order);
	while (!t->captured && c->serving != t->ticket) {
		struct timespec until;

		if (ended(&w)) {
			turn = false;
			break;
		}
		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_nsec += 50000000;
		if (until.tv_nsec >= 1000000000) {
			until.tv_nsec -= 1000000000;
			until.tv_sec++;
		}
		pthread_cond_timedwait(&c->served, &c->order, &until);
	}
	pthread_mutex_unlock(&c->order);
	if (turn) {
		if (t->offer.op == SN_P2P)
			point_to_point(&w, t);
		else
			collective(&w, t);
	}
	pthread_mutex_lock(&c->order);
	if (!t->captured && turn)
		c->serving = t->ticket + 1;
	pthread_cond_broadcast(&c->served);
	pthread_mutex_unlock(&c->order);
	atomic_fetch_sub(&c->outstanding, 1);
	if (!t->captured) {
		free(t->p2p);
		free(t);
	}
	return 0;
}

/* -- names and the image ---------------------------------------------------------------------- */

const char *sn_kernel_name(const struct sn_task *t, char *buf, size_t size)
{
	const struct sn_offer *o = &t->offer;
	const char *what = NULL;

	switch (o->op) {
	case SN_ALLREDUCE:
		what = "AllReduce";
		break;
	case SN_REDUCE:
		what = "Reduce";
		break;
	case SN_REDUCESCATTER:
		what = "ReduceScatter";
		break;
	case SN_BROADCAST:
		return "ncclDevKernel_Broadcast_RING_LL";
	case SN_ALLGATHER:
		return "ncclDevKernel_AllGather_RING_LL";
	default:
		return "ncclDevKernel_SendRecv";
	}
	snprintf(buf, size, "ncclDevKernel_%s_%s_%s_RING_LL", what,
		 ops[o->redop < 5 ? o->redop : 5], types[o->type]);
	return buf;
}

const struct simgpu_image *sn_image(void)
{
	static struct simgpu_kernel kernels[3 * 6 * 12 + 3];
	static struct simgpu_image image;
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static const uint32_t reducing[] = {SN_ALLREDUCE, SN_REDUCE, SN_REDUCESCATTER};
	static const uint32_t other[] = {SN_BROADCAST, SN_ALLGATHER, SN_P2P};
	unsigned int n = 0;
	struct sn_task t = {0};
	char name[96];

	pthread_mutex_lock(&lock);
	if (!image.count) {
		for (int o = 0; o < 3; o++) {
			for (uint32_t r = 0; r < 6; r++) {
				for (uint32_t y = 0; y < 12; y++) {
					t.offer = (struct sn_offer){reducing[o], y, r, 0, 0};
					kernels[n++] = (struct simgpu_kernel){
						strdup(sn_kernel_name(&t, name, sizeof(name))),
						sizeof(void *), sn_run};
				}
			}
		}
		for (int o = 0; o < 3; o++) {
			t.offer.op = other[o];
			kernels[n++] = (struct simgpu_kernel){
				sn_kernel_name(&t, name, sizeof(name)), sizeof(void *), sn_run};
		}
		memcpy(image.magic, SIMGPU_IMAGE_MAGIC, sizeof(image.magic));
		image.kernels = kernels;
		image.count = n;
	}
	pthread_mutex_unlock(&lock);
	return &image;
}
