/* SPDX-License-Identifier: Apache-2.0 */
/* demo.h - what the demonstration programs share. They are ordinary CUDA driver API programs. */
#ifndef DEMO_H
#define DEMO_H

#include <cuda.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MIB (1024ull * 1024)

#define CHECK(call)                                                                   \
	do {                                                                          \
		CUresult check_ = (call);                                             \
		if (check_ != CUDA_SUCCESS) {                                         \
			fprintf(stderr, "%s:%d: %s: error %d\n", __FILE__, __LINE__,  \
				#call, (int)check_);                                  \
			exit(1);                                                      \
		}                                                                     \
	} while (0)

/* Any image loads on the simulated GPU; a kernel does what its name says. */
static inline CUfunction kernel(const char *name)
{
	static const char image[] = ".version 8.0\n.target sm_80\n.address_size 64\n";
	CUmodule module;
	CUfunction f;

	CHECK(cuModuleLoadData(&module, image));
	CHECK(cuModuleGetFunction(&f, module, name));
	return f;
}

static inline void launch(CUfunction f, CUstream stream)
{
	CHECK(cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, stream, NULL, NULL));
}

#endif
