/* SPDX-License-Identifier: Apache-2.0 */
/*
 * image.h - a module image whose kernels are host functions.
 *
 * cuModuleLoadData and cuLibraryLoadData take any image; one that begins with this magic names
 * kernels that really do something. The simulated NCCL brings its collectives this way, so that
 * they reach the driver as ordinary launches on the caller's stream. Programs of our own may too.
 */
#ifndef SIMGPU_IMAGE_H
#define SIMGPU_IMAGE_H

#include <stddef.h>

#define SIMGPU_IMAGE_MAGIC "SIMGPU-IMAGE-1\0"

/* Asked by a kernel that waits: true once its context is gone and it has to return. */
typedef int (*simgpu_cancelled)(const void *launch);

struct simgpu_kernel {
	const char *name;
	size_t param_bytes; /* of its one parameter, copied at the launch like a real kernel's */
	/* Runs on the stream's worker. Returns 0, or a CUresult that breaks the context. */
	int (*run)(void *param, simgpu_cancelled cancelled, const void *launch);
};

struct simgpu_image {
	char magic[16];
	unsigned int count;
	const struct simgpu_kernel *kernels;
};

#endif
