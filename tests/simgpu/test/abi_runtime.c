// SPDX-License-Identifier: Apache-2.0
/*
 * abi_runtime.c - compiled, not run: every number, layout and signature in our headers is that of
 * the cuda_runtime_api.h that this is compiled with.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda_runtime_api.h>
#include <stddef.h>

#define C(name, number) _Static_assert((long long)(name) == (number), #name);
#define M(name, number) _Static_assert((long long)(name) == (number), #name);
#define S(type, size) _Static_assert(sizeof(type) == (size), #type);
#define O(type, member, offset)                                                                    \
	_Static_assert(offsetof(type, member) == (offset), #type "." #member);
#include "../include/simgpu/abi_runtime.def"

#undef cudaSignalExternalSemaphoresAsync
#undef cudaWaitExternalSemaphoresAsync
#include "../include/simgpu/runtime_functions.h"
