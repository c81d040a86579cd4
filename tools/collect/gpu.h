/* SPDX-License-Identifier: Apache-2.0 */
/* gpu.h - what the driver tells outsiders about its devices (internal; for gpu.c and its test). */
#ifndef WG_GPU_H
#define WG_GPU_H

#include <stddef.h>
#include <stdint.h>

#define WG_GPU_MAX 64
#define WG_GPU_PROCS 128

struct wg_gpu_answer { /* one device; -1 and "" are unknown */
	int32_t index;
	char uuid[96], name[96], pci[32];
	int64_t total, free, utilization, power_mw, power_limit_mw, sm_clock_mhz;
	int32_t nprocs; /* -1: could not be asked */
	struct { int32_t pid; int64_t bytes; } procs[WG_GPU_PROCS];
};

/*
 * Ask NVML in a process of its own, for at most `seconds`: a driver that does not answer
 * takes nobody with it. 0 and *n devices; -ETIMEDOUT; -ENOENT no such library (then what
 * /proc/driver/nvidia says comes, without numbers that change); -EIO it refused (*nvml).
 */
int wg_gpu_ask(const char *library, double seconds, struct wg_gpu_answer *out, size_t *n, int *nvml);

#endif
