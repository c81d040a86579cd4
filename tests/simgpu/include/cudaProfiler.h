/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cudaProfiler.h - everything stands in cuda.h.
 *
 * Names, numbers, layouts and signatures only; written by tests/simgpu/gen/headers.py and checked
 * against the real headers by tests/simgpu/test/abi_*.c. Do not edit.
 */
#include "cuda.h"
