/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory_guest.h - the recorder's memory side in a test: the sources under test, and a small
 * stand-in for what the rest of the recorder gives them (clock, settings, a device of a given
 * size). Included by one file of a program only.
 */
#ifndef WG_TEST_MEMORY_GUEST_H
#define WG_TEST_MEMORY_GUEST_H

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <sys/mman.h>

#include "../../preload/callsite.c"
#include "../../preload/devices.c"
#include "../../preload/failure.c"
#include "../../preload/pyframes.c"
#include "../../preload/trace.c"

struct wgrec_header *wg_rec;
struct wg_settings wg_settings;

static struct wgrec_name guest_names[16] = {
	[1] = { .name = "cuMemAlloc_v2" }, [2] = { .name = "cuMemFree_v2" },
	[3] = { .name = "cuMemCreate" },   [4] = { .name = "cudaMalloc" },
	[5] = { .name = "cuStreamSynchronize" }, [6] = { .name = "ncclAllReduce" },
	[7] = { .name = "cuMemHostAlloc" }, [8] = { .name = "cuMemAddressReserve" },
};
static struct wgrec_device guest_devices[4];
static struct wgrec_failure guest_failures[16];
static struct { /* the device that the driver would tell about */
	int current;
	uint64_t total, others; /* bytes that are not ours */
	uint64_t asked;		/* cuMemGetInfo calls */
} guest_gpu = { .current = 0, .total = 8ull << 30 };

void *wg_rec_section(enum wgrec_kind kind, uint64_t *capacity)
{
	void *p = kind == WGREC_NAMES ? (void *)guest_names :
		  !wg_rec ? NULL :
		  kind == WGREC_DEVICES ? (void *)guest_devices :
		  kind == WGREC_FAILURES ? (void *)guest_failures : NULL;

	*capacity = kind == WGREC_DEVICES ? 4 : 16;
	return p;
}

struct wgrec_thread *wg_rec_thread(void)
{
	return NULL;
}

uint32_t wg_rec_string(const char *s)
{
	(void)s;
	return 0;
}

void wg_note(const char *t)
{
	(void)t;
}

void *wg_real_symbol(const char *symbol)
{
	(void)symbol;
	return NULL;
}

static double guest_ns_per_tick = 1;

uint64_t wg_ticks(void)
{
#if defined(__x86_64__)
	return __builtin_ia32_rdtsc();
#else
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
#endif
}

uint64_t wg_ticks_to_ns(uint64_t ticks)
{
	static uint64_t mult;

	if (!mult)
		mult = (uint64_t)(guest_ns_per_tick * 4294967296.0);
	return (uint64_t)(((__uint128_t)ticks * mult) >> 32);
}

int wg_real_mem_info(uint64_t *free_bytes, uint64_t *total_bytes)
{
	uint64_t own = wg_mem_own(guest_gpu.current);

	guest_gpu.asked++;
	*total_bytes = guest_gpu.total;
	*free_bytes = guest_gpu.total > own + guest_gpu.others ?
			      guest_gpu.total - own - guest_gpu.others : 0;
	return 0;
}

int wg_real_current_device(void)
{
	return guest_gpu.current;
}

/* Start with a trace in dir. */
static int guest_start(const char *dir, uint64_t trace_max)
{
#if defined(__x86_64__)
	struct timespec a, b;
	uint64_t t0, t1;

	clock_gettime(CLOCK_MONOTONIC, &a);
	t0 = wg_ticks();
	do {
		clock_gettime(CLOCK_MONOTONIC, &b);
	} while ((b.tv_sec - a.tv_sec) * 1000000000ll + b.tv_nsec - a.tv_nsec < 2000000);
	t1 = wg_ticks();
	guest_ns_per_tick = (double)((b.tv_sec - a.tv_sec) * 1000000000ll + b.tv_nsec - a.tv_nsec) /
			    (double)(t1 - t0);
#endif
	snprintf(wg_settings.dir, sizeof(wg_settings.dir), "%s", dir);
	wg_settings.trace_max = trace_max;
	wg_settings.stacks = WG_STACKS_ALLOC;
	return wg_mem_start();
}

/* As a wrapper fills it: called from a wrapper's own frame. */
#define GUEST_SITE(name, fn_, device_)                                                \
	struct wg_site name = {                                                       \
		.fn = (fn_), .device = (device_),                                     \
		.sp = (uint64_t)__builtin_frame_address(0) + 16,                      \
		.fp = *(uint64_t *)__builtin_frame_address(0),                        \
		.ra = (uint64_t)__builtin_return_address(0),                          \
		.wrapper_frame = __builtin_frame_address(0),                          \
	}

static __attribute__((noinline, unused)) void guest_alloc(int device, enum wg_mem_kind kind,
							  uint64_t ptr, uint64_t bytes)
{
	GUEST_SITE(s, kind == WG_MEM_VMM ? 3 : kind == WG_MEM_HOST ? 7 : 1, device);

	wg_mem_allocated(&s, kind, ptr, bytes);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline, unused)) void guest_free(int device, enum wg_mem_kind kind,
							 uint64_t ptr)
{
	GUEST_SITE(s, 2, device);

	wg_mem_freed(&s, kind, ptr);
	__asm__ volatile("" ::: "memory");
}

static __attribute__((noinline, unused)) void guest_fail(int device, enum wg_mem_kind kind,
							 uint64_t asked)
{
	GUEST_SITE(s, kind == WG_MEM_VMM ? 3 : kind == WG_MEM_HOST ? 7 : 1, device);

	wg_mem_failed(&s, kind, asked, 2);
	__asm__ volatile("" ::: "memory");
}

#endif
