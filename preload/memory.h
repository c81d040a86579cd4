/* SPDX-License-Identifier: Apache-2.0 */
/*
 * memory.h - what the wrappers tell the memory side of the recorder.
 *
 * The seam between the hooks (doors, driver, runtime, nccl, streams) and the
 * accounting (devices.c, callsite.c, trace.c). Every function here is called on
 * the thread that made the call, outside any lock of ours, with errno already
 * saved by the wrapper. None may call back into a hooked CUDA function: real
 * pointers are asked for through wg_real_*() in hooks.h. None allocates with
 * malloc, takes a lock that a fork could leave held, or fails visibly.
 *
 * Order (so that a reused address never looks live twice): wg_mem_freed() is
 * called BEFORE the real free, wg_mem_unfree() when that free then failed;
 * wg_mem_allocated() AFTER the real allocation.
 */
#ifndef WG_MEMORY_H
#define WG_MEMORY_H

#include <stdint.h>

enum wg_mem_kind {
	WG_MEM_DEVICE,	   /* cuMemAlloc, pitched, array, mipmapped */
	WG_MEM_MANAGED,
	WG_MEM_ASYNC,	   /* stream-ordered, from a pool: the pool's reserve is what counts on the card */
	WG_MEM_POOL,	   /* a pool's reserved memory, by attribute: ptr is the pool, bytes its reserved
			    * total NOW (replaces what was said before; freed = pool destroyed) */
	WG_MEM_VMM,	   /* cuMemCreate: physical, by handle */
	WG_MEM_VMM_MAP,	   /* mapping of such a handle: address space, no memory of its own */
	WG_MEM_VA,	   /* cuMemAddressReserve */
	WG_MEM_HOST,	   /* pinned host memory allocated by CUDA */
	WG_MEM_HOST_REG,   /* host memory registered */
	WG_MEM_IPC,	   /* opened from another process: not ours */
	WG_MEM_CONTEXT,	   /* context creation, measured */
	WG_MEM_MODULE,	   /* module load, measured */
	WG_MEM_KINDS
};

/* Where the call came from; filled by the wrapper, lives on its stack. */
struct wg_site {
	uint16_t fn;	/* function id as in the recorder's NAMES: the outermost name the user called */
	int16_t device; /* ordinal; -1 unknown */
	uint64_t sp, fp, ra; /* of the wrapper's caller: capture starts there */
	uint64_t stream;
	const void *wrapper_frame; /* __builtin_frame_address(0) of the wrapper */
	/* Zero when they do not apply: */
	uint64_t handle;	   /* VMM_MAP: the physical handle that is being mapped */
	uint64_t bytes;		   /* freed(VMM_MAP): length unmapped (may cover several mappings) */
};

void wg_mem_allocated(const struct wg_site *s, enum wg_mem_kind kind, uint64_t ptr, uint64_t bytes);
void wg_mem_freed(const struct wg_site *s, enum wg_mem_kind kind, uint64_t ptr);
void wg_mem_unfree(const struct wg_site *s, enum wg_mem_kind kind, uint64_t ptr);
/* error: CUresult of the driver call that failed. Called once per failing outermost call. */
void wg_mem_failed(const struct wg_site *s, enum wg_mem_kind kind, uint64_t asked, int error);
/* A context was destroyed or a device reset: everything of that device is gone. */
void wg_mem_device_gone(int device);
/* This thread launched, copied or took part in a collective on that device. Hot: a few ns. */
void wg_mem_device_used(int device);
/* Trace records that are not allocations: long blocking calls, collectives, module loads. */
void wg_trace_wait(const struct wg_site *s, uint64_t began_ticks, uint64_t ended_ticks);
void wg_trace_collective(const char *comm_id, int rank, uint64_t sequence, uint16_t fn,
			 uint64_t count, int type);
void wg_trace_module(const struct wg_site *s, uint64_t bytes);

/* Life cycle, called by lifecycle.c. */
int wg_mem_start(void);	       /* at cuInit's success; opens the trace. 0 or -errno (then off) */
void wg_mem_tick(void);	       /* about once a second, on the helper thread: headroom sample, flush */
void wg_mem_exit(void);	       /* normal exit: trailer. Must not lock or block */
void wg_mem_fork_child(void);  /* in the child: forget mappings, locks and counts; no I/O */

#endif
