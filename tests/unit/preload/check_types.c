// SPDX-License-Identifier: Apache-2.0
/*
 * check_types.c - our few declarations of the CUDA ABI against NVIDIA's headers, where these are
 * installed. Compiling is the test.
 */
#include <cuda.h>
#include <driver_types.h>
#include <stddef.h>

#include "preload/cuda_types.h"

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours " is not " #theirs)
#define SAME_PLACE(ours, field, theirs, their_field)                                    \
	_Static_assert(offsetof(ours, field) == offsetof(theirs, their_field) &&        \
		       sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field), \
		       #ours "." #field)

SAME_SIZE(struct wg_location, CUmemLocation);
SAME_PLACE(struct wg_location, id, CUmemLocation, id);
SAME_SIZE(struct wg_location, struct cudaMemLocation);
SAME_SIZE(struct wg_ipc_handle, CUipcMemHandle);
SAME_SIZE(struct wg_ipc_handle, CUipcEventHandle);
SAME_SIZE(struct wg_ipc_handle, cudaIpcMemHandle_t);
SAME_SIZE(struct wg_extent, struct cudaExtent);
SAME_PLACE(struct wg_extent, depth, struct cudaExtent, depth);
SAME_SIZE(struct wg_pitched, struct cudaPitchedPtr);
SAME_PLACE(struct wg_pitched, pitch, struct cudaPitchedPtr, pitch);
SAME_SIZE(struct wg_array, CUDA_ARRAY_DESCRIPTOR);
SAME_PLACE(struct wg_array, channels, CUDA_ARRAY_DESCRIPTOR, NumChannels);
SAME_SIZE(struct wg_array3d, CUDA_ARRAY3D_DESCRIPTOR);
SAME_PLACE(struct wg_array3d, depth, CUDA_ARRAY3D_DESCRIPTOR, Depth);
SAME_PLACE(struct wg_array3d, format, CUDA_ARRAY3D_DESCRIPTOR, Format);
SAME_SIZE(struct wg_channel_format, struct cudaChannelFormatDesc);
SAME_PLACE(struct wg_allocation_prop, location, CUmemAllocationProp, location);
SAME_SIZE(struct wg_allocation_prop, CUmemAllocationProp);
SAME_PLACE(struct wg_pool_props, location, CUmemPoolProps, location);
SAME_SIZE(struct wg_launch_config, CUlaunchConfig);
SAME_PLACE(struct wg_launch_config, hStream, CUlaunchConfig, hStream);
SAME_SIZE(struct wg_rt_launch_config, cudaLaunchConfig_t);
SAME_PLACE(struct wg_rt_launch_config, stream, cudaLaunchConfig_t, stream);
SAME_SIZE(struct wg_launch_params, CUDA_LAUNCH_PARAMS);
SAME_PLACE(struct wg_launch_params, stream, CUDA_LAUNCH_PARAMS, hStream);
SAME_SIZE(union wg_batch_op, CUstreamBatchMemOpParams);
SAME_PLACE(union wg_batch_op, value.address, CUstreamBatchMemOpParams, waitValue.address);
SAME_PLACE(union wg_batch_op, value.value64, CUstreamBatchMemOpParams, waitValue.value64);
SAME_PLACE(union wg_batch_op, value.flags, CUstreamBatchMemOpParams, waitValue.flags);
SAME_PLACE(union wg_batch_op, value.value32, CUstreamBatchMemOpParams, writeValue.value);

#define SAME(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #ours " is not " #theirs)
SAME(WG_CU_SUCCESS, CUDA_SUCCESS);
SAME(WG_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(WG_CU_OUT_OF_MEMORY, cudaErrorMemoryAllocation);
SAME(WG_CU_SYMBOL_NOT_FOUND, CUDA_ERROR_NOT_FOUND);
SAME(WG_CU_SYMBOL_NOT_FOUND, cudaErrorSymbolNotFound);
SAME(WG_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(WG_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(WG_POOL_RESERVED_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
SAME(WG_BATCH_WAIT32, CU_STREAM_MEM_OP_WAIT_VALUE_32);
SAME(WG_BATCH_WAIT64, CU_STREAM_MEM_OP_WAIT_VALUE_64);
SAME(WG_BATCH_WRITE32, CU_STREAM_MEM_OP_WRITE_VALUE_32);
SAME(WG_BATCH_WRITE64, CU_STREAM_MEM_OP_WRITE_VALUE_64);
SAME(2, cudaMemcpyDeviceToHost);
SAME(2, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM);
SAME(0x20, CU_AD_FORMAT_FLOAT);
SAME(0x10, CU_AD_FORMAT_HALF);
SAME(0x0a, CU_AD_FORMAT_SIGNED_INT32);

int main(void)
{
	return 0;
}
