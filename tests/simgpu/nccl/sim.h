/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - inside the simulated libnccl.so.2.
 *
 * A communicator is a small file in /dev/shm that every rank maps: who is there, where each rank
 * stands, what it brings, and a staging area through which the data really goes. The file's name
 * is a hash of the unique id; it is unlinked as soon as the last rank has mapped it. There is no
 * lock in it: a rank only writes what is its own.
 *
 * A collective is a kernel of an image of our own (driver/image.h) on the caller's stream,
 * launched through the driver like any kernel. It waits until every rank of the communicator is
 * at the same position with the same operation, count, type and root; ranks that bring something
 * else wait for ever.
 */
#ifndef SIMGPU_NCCL_SIM_H
#define SIMGPU_NCCL_SIM_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define __CUDA_API_VERSION_INTERNAL
#include "cuda.h"
#pragma GCC visibility push(default)
#include "nccl.h"
#pragma GCC visibility pop

#include "../driver/image.h"

#define SN_MAGIC 0x53494e43434c3032ull
#define SN_MAX_RANKS 256
#define SN_RING 64 /* operations a rank may be ahead in publishing: it is never more than one */
#define SN_STAGE (512u << 10) /* bytes of a rank's part of one step of a collective */

enum sn_op {
	SN_ALLREDUCE = 1,
	SN_BROADCAST,
	SN_REDUCE,
	SN_ALLGATHER,
	SN_REDUCESCATTER,
	SN_ALLTOALL,
	SN_GATHER,
	SN_SCATTER,
	SN_P2P, /* a fused group of sends and receives; not a position of the communicator */
};

/* What a rank brings to a position. Equal on all ranks, or they hang. */
struct sn_offer {
	uint32_t op, type, redop, root;
	uint64_t count;
};

struct sn_rank { /* written by that rank only */
	_Atomic uint64_t pid, here;
	_Atomic uint64_t position; /* of the last operation offered, counted from 1 */
	_Atomic uint64_t step;	   /* barriers passed */
	_Atomic uint64_t split;	   /* splits entered */
	int32_t color, key;	   /* of that split */
	int32_t device;
	struct sn_offer offer[SN_RING];
};

struct sn_pair {			 /* from one rank to another */
	_Atomic uint64_t sends, recvs;	 /* posted */
	_Atomic uint64_t sent, received; /* completed */
	_Atomic uint64_t send_bytes, recv_bytes;
	_Atomic uint64_t wrote, read; /* chunks */
};

struct sn_shared {
	_Atomic uint64_t magic;
	_Atomic uint32_t ranks, attached;
	struct sn_rank rank[];
	/* then struct sn_pair[ranks * ranks], then ranks * SN_STAGE, then ranks * SN_STAGE for
	 * pairs */
};

struct ncclComm {
	uint64_t magic;
	int rank, ranks, device;
	CUcontext ctx;
	char key[40];
	struct sn_shared *s;
	size_t mapped;
	_Atomic int abort;
	_Atomic int async;	 /* ncclResult_t */
	_Atomic int outstanding; /* kernels launched and not ended */
	pthread_mutex_t launching;
	pthread_mutex_t order; /* one operation at a time, in the order of the launches */
	pthread_cond_t served;
	uint64_t tickets, serving;
	uint64_t position; /* of this rank */
	uint64_t step;
	uint64_t splits, shrinks;
	uint64_t *sends, *recvs; /* posted to and from each rank */
	CUmodule module;
	uint64_t buffer, buffer_bytes;
	CUmemGenericAllocationHandle buffer_handle;
	bool finalized, blocking;
	struct { /* ncclRedOpCreatePreMulSum */
		bool used;
		int type;
		bool device;
		double value;
		const void *where;
	} redops[32];
	char last_error[160];
};

struct sn_p2p {
	bool send;
	int peer;
	void *buf;
	uint64_t bytes;
	/* while it runs */
	uint64_t number, done;
	int state;
};

struct sn_task { /* one kernel */
	struct ncclComm *comm;
	struct sn_offer offer;
	const void *send;
	void *recv;
	struct sn_p2p *p2p;
	unsigned int p2p_count;
	bool captured; /* may run again and again: numbers are taken when it runs */
	uint64_t ticket;
	CUstream stream;
	struct sn_task *next;
};

/* The driver's functions that NCCL uses. */
#define SN_DRIVER(X)                                                                               \
	X(cuInit)                                                                                  \
	X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxGetDevice) X(cuDevicePrimaryCtxRetain) X(     \
		cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2) X(cuModuleLoadData)                     \
		X(cuModuleGetFunction) X(cuLaunchKernelEx) X(cuStreamIsCapturing) X(cuMemAlloc_v2) \
			X(cuMemFree_v2) X(cuMemCreate) X(cuMemRelease) X(cuMemMap) X(cuMemUnmap)   \
				X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemSetAccess)       \
					X(cuMemGetAddressRange_v2) X(cuMemRetainAllocationHandle)  \
						X(cuMemGetAllocationPropertiesFromHandle)          \
							X(cuDeviceGetCount)
struct sn_driver {
#define X(sym) __typeof__(&sym) sym;
	SN_DRIVER(X)
#undef X
};
extern struct sn_driver sn;

extern const struct simgpu_image *sn_image(void);
const char *sn_kernel_name(const struct sn_task *t, char *buf, size_t size);
size_t sn_type_size(int type);
int sn_run(void *param, simgpu_cancelled cancelled, const void *launch);
void sn_reduce(const struct ncclComm *c, void *acc, const void *in, uint64_t n, int type, int op);
void sn_reduce_begin(const struct ncclComm *c, void *acc, const void *in, uint64_t n, int type,
		     int op);
void sn_reduce_end(const struct ncclComm *c, void *acc, uint64_t n, int type, int op);

static inline struct sn_pair *sn_pair(const struct ncclComm *c, int from, int to)
{
	struct sn_pair *p = (struct sn_pair *)&c->s->rank[c->ranks];

	return &p[from * c->ranks + to];
}

static inline uint8_t *sn_stage(const struct ncclComm *c, int rank)
{
	size_t head = sizeof(struct sn_shared) + (size_t)c->ranks * sizeof(struct sn_rank) +
		      (size_t)c->ranks * (size_t)c->ranks * sizeof(struct sn_pair);

	return (uint8_t *)c->s + (head + 4095) / 4096 * 4096 + (size_t)rank * SN_STAGE;
}

/* The part of the sender's second stage that goes to one receiver. */
static inline size_t sn_pair_bytes(const struct ncclComm *c)
{
	return SN_STAGE / (size_t)c->ranks / 64 * 64;
}

static inline uint8_t *sn_pair_stage(const struct ncclComm *c, int from, int to)
{
	return sn_stage(c, c->ranks + from) + (size_t)to * sn_pair_bytes(c);
}

#endif
