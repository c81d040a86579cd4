// SPDX-License-Identifier: Apache-2.0
/*
 * A library with NCCL's names that does what the test says. Built twice, because the recorder has to
 * keep two of them apart. It only remembers; nothing is communicated.
 */
#include "fake_nccl.h"

#include <stdlib.h>
#include <string.h>

struct fake_nccl fake_nccl_control;
#define C fake_nccl_control

static struct { void **out; struct fake_comm *comm; } waiting[64];
static int nwaiting;

/* What the test does not destroy is no leak of the recorder's: it goes with the library. */
static struct fake_comm *kept[4096];

static void keep(struct fake_comm *c)
{
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (!kept[i]) {
			kept[i] = c;
			return;
		}
}

static void drop(void *comm)
{
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (comm && kept[i] == comm)
			kept[i] = NULL;
	free(comm);
}

__attribute__((destructor)) static void drop_all(void)
{
	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		free(kept[i]);
}

static int said(const char *name)
{
	C.calls++;
	strncpy(C.last, name, sizeof(C.last) - 1);
	if (C.during)
		C.during(name);
	return C.result;
}

static int make(void **out, int rank, int size, int device, int r)
{
	struct fake_comm *c;

	if (r && r != 7)
		return r;
	c = calloc(1, sizeof(*c));
	keep(c);
	c->rank = rank;
	c->size = size;
	c->device = device;
	if (C.depth) { /* not before the group ends */
		waiting[nwaiting].out = out;
		waiting[nwaiting++].comm = c;
	} else {
		*out = c;
	}
	return r;
}

struct id { char b[128]; };

int ncclGetUniqueId(void *id);
int ncclCommInitRank(void **out, int size, struct id id, int rank);
int ncclCommInitRankConfig(void **out, int size, struct id id, int rank, void *config);
int ncclCommInitRankScalable(void **out, int size, int rank, int n, struct id *ids, void *config);
int ncclCommInitAll(void **out, int n, const int *devices);
int ncclCommSplit(void *comm, int color, int key, void **out, void *config);
int ncclCommShrink(void *comm, int *ex, int nex, void **out, void *config, int flags);
int ncclCommFinalize(void *comm);
int ncclCommDestroy(void *comm);
int ncclCommAbort(void *comm);
int ncclCommGetAsyncError(void *comm, int *error);
int ncclCommCount(void *comm, int *v);
int ncclCommUserRank(void *comm, int *v);
int ncclCommCuDevice(void *comm, int *v);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void *s, void *r, size_t n, int type, int op, void *comm, void *stream);
int ncclBroadcast(const void *s, void *r, size_t n, int type, int root, void *comm, void *stream);
int ncclReduce(const void *s, void *r, size_t n, int type, int op, int root, void *comm, void *st);
int ncclSend(const void *s, size_t n, int type, int peer, void *comm, void *stream);
int ncclRecv(void *r, size_t n, int type, int peer, void *comm, void *stream);

int ncclGetUniqueId(void *id)
{
	memset(id, 0x5a, 128);
	return said("GetUniqueId");
}

int ncclCommInitRank(void **out, int size, struct id id, int rank)
{
	memcpy(C.id, id.b, sizeof(C.id));
	return make(out, rank, size, 0, said("CommInitRank"));
}

int ncclCommInitRankConfig(void **out, int size, struct id id, int rank, void *config)
{
	(void)config;
	memcpy(C.id, id.b, sizeof(C.id));
	return make(out, rank, size, 0, said("CommInitRankConfig"));
}

int ncclCommInitRankScalable(void **out, int size, int rank, int n, struct id *ids, void *config)
{
	(void)n;
	(void)ids;
	(void)config;
	return make(out, rank, size, 0, said("CommInitRankScalable"));
}

int ncclCommInitAll(void **out, int n, const int *devices)
{
	int r = said("CommInitAll");

	for (int k = 0; k < n; k++)
		make(&out[k], k, n, devices ? devices[k] : k, r);
	return r;
}

int ncclCommSplit(void *comm, int color, int key, void **out, void *config)
{
	struct fake_comm *p = comm;
	int r = said("CommSplit");

	(void)key;
	(void)config;
	*out = NULL;
	return color < 0 ? r : make(out, p->rank / 2, p->size / 2, p->device, r);
}

int ncclCommShrink(void *comm, int *ex, int nex, void **out, void *config, int flags)
{
	struct fake_comm *p = comm;

	(void)ex;
	(void)config;
	(void)flags;
	return make(out, p->rank, p->size - nex, p->device, said("CommShrink"));
}

int ncclCommFinalize(void *comm)
{
	(void)comm;
	return said("CommFinalize");
}

int ncclCommDestroy(void *comm)
{
	int r = said("CommDestroy");

	if (!r)
		drop(comm);
	return r;
}

int ncclCommAbort(void *comm)
{
	int r = said("CommAbort");

	if (!r)
		drop(comm);
	return r;
}

int ncclCommGetAsyncError(void *comm, int *error)
{
	(void)comm;
	*error = C.async;
	return 0;
}

int ncclCommCount(void *comm, int *v) { *v = ((struct fake_comm *)comm)->size; return 0; }
int ncclCommUserRank(void *comm, int *v) { *v = ((struct fake_comm *)comm)->rank; return 0; }
int ncclCommCuDevice(void *comm, int *v) { *v = ((struct fake_comm *)comm)->device; return 0; }

int ncclGroupStart(void)
{
	int r = said("GroupStart");

	if (!r)
		C.depth++;
	return r;
}

int ncclGroupEnd(void)
{
	int r = said("GroupEnd");

	if (--C.depth)
		return r;
	for (int k = 0; k < nwaiting; k++)
		*waiting[k].out = waiting[k].comm;
	nwaiting = 0;
	return r;
}

static int coll(const char *name, size_t n, int type, int op, int root, void *comm, void *stream)
{
	C.count = n;
	C.type = type;
	C.op = op;
	C.root = root;
	C.comm = comm;
	C.stream = stream;
	return said(name);
}

int ncclAllReduce(const void *s, void *r, size_t n, int type, int op, void *comm, void *stream)
{
	(void)s;
	(void)r;
	return coll("AllReduce", n, type, op, -1, comm, stream);
}

int ncclBroadcast(const void *s, void *r, size_t n, int type, int root, void *comm, void *stream)
{
	(void)s;
	(void)r;
	return coll("Broadcast", n, type, -1, root, comm, stream);
}

int ncclReduce(const void *s, void *r, size_t n, int type, int op, int root, void *comm, void *st)
{
	(void)s;
	(void)r;
	return coll("Reduce", n, type, op, root, comm, st);
}

int ncclSend(const void *s, size_t n, int type, int peer, void *comm, void *stream)
{
	(void)s;
	return coll("Send", n, type, -1, peer, comm, stream);
}

int ncclRecv(void *r, size_t n, int type, int peer, void *comm, void *stream)
{
	(void)r;
	return coll("Recv", n, type, -1, peer, comm, stream);
}
