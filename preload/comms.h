/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comms.h - communicators and what was entered on them (internal: nccl.c, comms.c).
 *
 * A communicator is an index into COMMS, -1 unrecorded. All ranks of one communicator must arrive
 * at the same id and the same sequence numbers by themselves: ids are hashes of what NCCL itself
 * passes between them (the unique id), or of the parent's id and how many were split from it
 * before.
 */
#ifndef WG_COMMS_H
#define WG_COMMS_H

#include <stdbool.h>
#include <stdint.h>

#include "recorder.h"

#define WG_ID_BYTES 128 /* ncclUniqueId */

struct wg_comm_init {
	const void *ids; /* nids unique ids of WG_ID_BYTES; NULL: no unique id (see parent, salt) */
	uint32_t nids;
	int32_t parent;	 /* split, shrunk or grown from; -1 none */
	const char *how; /* distinguishes kinds of children: "split", "shrink", "grow", "all" */
	uint64_t nth;	 /* how many children the parent had before */
	int64_t color;
	int32_t rank, size, device; /* -1 not known yet */
	int32_t library;	    /* index of the NCCL instance */
	uint32_t library_name;	    /* string reference */
	const char *name;	    /* ncclConfig_t.commName or NULL */
	bool nonblocking;
};

int32_t wg_comm_add(const struct wg_comm_init *how); /* state INIT, visible before NCCL is called */
int32_t wg_comm_find(uint64_t handle);
int32_t wg_comm_find_or_add(uint64_t handle, int32_t library, uint32_t library_name);
int32_t wg_comm_library(int32_t c); /* that created it */
uint64_t wg_comm_child(int32_t c);  /* counts one; how many there were before */
void wg_comm_handle(int32_t c, uint64_t handle);
void wg_comm_who(int32_t c, int32_t rank, int32_t size, int32_t device); /* -1: leave */
void wg_comm_state(int32_t c, enum wgrec_comm_state state);
enum wgrec_comm_state wg_comm_state_of(int32_t c);
bool wg_comm_who_known(int32_t c);
void wg_comm_async_error(int32_t c, int32_t error);
struct wgrec_comm *wg_comm_at(int32_t c);

struct wg_coll_args {
	uint16_t fn;
	bool p2p, grouped;
	uint64_t count;
	uint8_t type, redop;
	int32_t root;
	uint64_t stream;
	uint32_t stream_index;
};
uint64_t wg_coll_enter(int32_t c, const struct wg_coll_args *a); /* its number */
void wg_coll_returned(int32_t c, bool p2p, uint64_t number, uint32_t flags);
/* Numbers first ... last were given to the stream, in order; p2p: as one item. */
void wg_coll_given(int32_t c, bool p2p, uint64_t first, uint64_t last, uint32_t stream_index,
		   uint32_t name);

void wg_comms_tick(void);
void wg_comms_fork_child(void);

#endif
