/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_profiler_api.h - everything stands in cuda_runtime_api.h.
 *
 * Names, numbers, layouts and signatures only; written by tests/simgpu/gen/headers.py and checked
 * against the real headers by tests/simgpu/test/abi_*.c. Do not edit.
 */
#include "cuda_runtime_api.h"
