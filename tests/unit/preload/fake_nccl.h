/* SPDX-License-Identifier: Apache-2.0 */
#ifndef FAKE_NCCL_H
#define FAKE_NCCL_H

#include <stddef.h>

struct fake_nccl { /* exported as fake_nccl_control */
	int result, async;
	int calls, depth;
	char last[32];
	void (*during)(const char *name); /* called inside each call */
	size_t count;
	int type, op, root;
	void *comm, *stream;
	char id[128];
};
struct fake_comm {
	int rank, size, device;
};

#endif
