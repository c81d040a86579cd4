/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda_types.h - the few types of the CUDA ABI that the wrappers need.
 *
 * Written from NVIDIA's public documentation of the interfaces; layouts are frozen by the symbol
 * versions that use them. tests/unit/preload holds them against cuda.h where it is installed.
 * Only what is read or passed by value is here; everything else is void * or int.
 */
#ifndef WG_CUDA_TYPES_H
#define WG_CUDA_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifndef __cuda_cuda_h__ /* NVIDIA's own, in the test that compares */
typedef uint64_t CUdeviceptr;
#endif

enum { /* CUresult and cudaError_t: the numbers agree for these */
	WG_CU_SUCCESS = 0,
	WG_CU_OUT_OF_MEMORY = 2,
	WG_CU_SYMBOL_NOT_FOUND = 500,
	WG_CU_NOT_READY = 600,
};

struct wg_dim3 { unsigned int x, y, z; };
struct wg_extent { size_t width, height, depth; };
struct wg_pitched { void *ptr; size_t pitch, xsize, ysize; };
struct wg_location { int type, id; }; /* CUmemLocation, cudaMemLocation */
#define WG_LOCATION_DEVICE 1
struct wg_ipc_handle { char reserved[64]; };

struct wg_array_v1 { unsigned int width, height; int format; unsigned int channels; };
struct wg_array { size_t width, height; int format; unsigned int channels; };
struct wg_array3d_v1 {
	unsigned int width, height, depth;
	int format;
	unsigned int channels, flags;
};
struct wg_array3d { size_t width, height, depth; int format; unsigned int channels, flags; };
struct wg_channel_format { int x, y, z, w, kind; }; /* bits each */

struct wg_allocation_prop { /* CUmemAllocationProp_v1 */
	int type, handle_types;
	struct wg_location location;
	void *win32;
	unsigned char flags[8];
};
struct wg_pool_props { /* CUmemPoolProps, its beginning */
	int type, handle_types;
	struct wg_location location;
};
#define WG_POOL_RESERVED_CURRENT 5 /* CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT */

struct wg_launch_config { /* CUlaunchConfig */
	unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
	void *hStream;
	void *attributes;
	unsigned int nattributes;
};
struct wg_rt_launch_config { /* cudaLaunchConfig_t */
	struct wg_dim3 grid, block;
	size_t shared;
	void *stream;
	void *attributes;
	unsigned int nattributes;
};
struct wg_launch_params { /* CUDA_LAUNCH_PARAMS_v1 */
	void *function;
	unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
	void *stream;
	void **params;
};

enum { WG_BATCH_WAIT32 = 1, WG_BATCH_WRITE32 = 2, WG_BATCH_FLUSH = 3, WG_BATCH_WAIT64 = 4,
       WG_BATCH_WRITE64 = 5, WG_BATCH_BARRIER = 6 };
union wg_batch_op { /* CUstreamBatchMemOpParams */
	int operation;
	struct {
		int operation;
		CUdeviceptr address;
		union {
			uint32_t value32;
			uint64_t value64;
		};
		unsigned int flags;
		CUdeviceptr alias;
	} value;
	uint64_t pad[6];
};

#endif
