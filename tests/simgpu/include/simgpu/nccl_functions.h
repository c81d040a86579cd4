/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl_functions.h - what libnccl exports, for include/nccl.h.
 *
 * Names, numbers, layouts and signatures only; written by tests/simgpu/gen/headers.py and checked
 * against the real headers by tests/simgpu/test/abi_*.c. Do not edit.
 */
ncclResult_t ncclAllGather(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
	cudaStream_t);
ncclResult_t ncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, ncclComm_t,
	cudaStream_t);
ncclResult_t ncclAlltoAll(const void *, void *, size_t, ncclDataType_t, ncclComm_t, cudaStream_t);
ncclResult_t ncclBcast(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclBroadcast(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
	cudaStream_t);
ncclResult_t ncclCommAbort(ncclComm_t);
ncclResult_t ncclCommCount(const ncclComm_t, int *);
ncclResult_t ncclCommCuDevice(const ncclComm_t, int *);
ncclResult_t ncclCommDeregister(const ncclComm_t, void *);
ncclResult_t ncclCommDestroy(ncclComm_t);
ncclResult_t ncclCommFinalize(ncclComm_t);
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
ncclResult_t ncclCommInitAll(ncclComm_t *, int, const int *);
ncclResult_t ncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
ncclResult_t ncclCommInitRankScalable(ncclComm_t *, int, int, int, ncclUniqueId *,
	ncclConfig_t *);
ncclResult_t ncclCommRegister(const ncclComm_t, void *, size_t, void **);
ncclResult_t ncclCommRevoke(ncclComm_t, int);
ncclResult_t ncclCommShrink(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
ncclResult_t ncclCommSplit(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);
ncclResult_t ncclCommUserRank(const ncclComm_t, int *);
ncclResult_t ncclCommWindowDeregister(ncclComm_t, ncclWindow_t);
ncclResult_t ncclCommWindowRegister(ncclComm_t, void *, size_t, ncclWindow_t *, int);
ncclResult_t ncclGather(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
	cudaStream_t);
const char *ncclGetErrorString(ncclResult_t);
const char *ncclGetLastError(ncclComm_t);
ncclResult_t ncclGetUniqueId(ncclUniqueId *);
ncclResult_t ncclGetVersion(int *);
ncclResult_t ncclGroupEnd(void);
ncclResult_t ncclGroupSimulateEnd(ncclSimInfo_t *);
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclMemAlloc(void **, size_t);
ncclResult_t ncclMemFree(void *);
ncclResult_t ncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t *, void *, ncclDataType_t,
	ncclScalarResidence_t, ncclComm_t);
ncclResult_t ncclRedOpDestroy(ncclRedOp_t, ncclComm_t);
ncclResult_t ncclReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int,
	ncclComm_t, cudaStream_t);
ncclResult_t ncclReduceScatter(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
	ncclComm_t, cudaStream_t);
void ncclResetDebugInit(void);
ncclResult_t ncclScatter(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
	cudaStream_t);
ncclResult_t ncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t pncclAllGather(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
	cudaStream_t);
ncclResult_t pncclAllReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
	ncclComm_t, cudaStream_t);
ncclResult_t pncclAlltoAll(const void *, void *, size_t, ncclDataType_t, ncclComm_t,
	cudaStream_t);
ncclResult_t pncclBcast(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t pncclBroadcast(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
	cudaStream_t);
ncclResult_t pncclCommAbort(ncclComm_t);
ncclResult_t pncclCommCount(const ncclComm_t, int *);
ncclResult_t pncclCommCuDevice(const ncclComm_t, int *);
ncclResult_t pncclCommDeregister(const ncclComm_t, void *);
ncclResult_t pncclCommDestroy(ncclComm_t);
ncclResult_t pncclCommFinalize(ncclComm_t);
ncclResult_t pncclCommGetAsyncError(ncclComm_t, ncclResult_t *);
ncclResult_t pncclCommInitAll(ncclComm_t *, int, const int *);
ncclResult_t pncclCommInitRank(ncclComm_t *, int, ncclUniqueId, int);
ncclResult_t pncclCommInitRankConfig(ncclComm_t *, int, ncclUniqueId, int, ncclConfig_t *);
ncclResult_t pncclCommInitRankScalable(ncclComm_t *, int, int, int, ncclUniqueId *,
	ncclConfig_t *);
ncclResult_t pncclCommRegister(const ncclComm_t, void *, size_t, void **);
ncclResult_t pncclCommRevoke(ncclComm_t, int);
ncclResult_t pncclCommShrink(ncclComm_t, int *, int, ncclComm_t *, ncclConfig_t *, int);
ncclResult_t pncclCommSplit(ncclComm_t, int, int, ncclComm_t *, ncclConfig_t *);
ncclResult_t pncclCommUserRank(const ncclComm_t, int *);
ncclResult_t pncclCommWindowDeregister(ncclComm_t, ncclWindow_t);
ncclResult_t pncclCommWindowRegister(ncclComm_t, void *, size_t, ncclWindow_t *, int);
ncclResult_t pncclGather(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
	cudaStream_t);
const char *pncclGetErrorString(ncclResult_t);
const char *pncclGetLastError(ncclComm_t);
ncclResult_t pncclGetUniqueId(ncclUniqueId *);
ncclResult_t pncclGetVersion(int *);
ncclResult_t pncclGroupEnd(void);
ncclResult_t pncclGroupSimulateEnd(ncclSimInfo_t *);
ncclResult_t pncclGroupStart(void);
ncclResult_t pncclMemAlloc(void **, size_t);
ncclResult_t pncclMemFree(void *);
ncclResult_t pncclRecv(void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
ncclResult_t pncclRedOpCreatePreMulSum(ncclRedOp_t *, void *, ncclDataType_t,
	ncclScalarResidence_t, ncclComm_t);
ncclResult_t pncclRedOpDestroy(ncclRedOp_t, ncclComm_t);
ncclResult_t pncclReduce(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t, int,
	ncclComm_t, cudaStream_t);
ncclResult_t pncclReduceScatter(const void *, void *, size_t, ncclDataType_t, ncclRedOp_t,
	ncclComm_t, cudaStream_t);
void pncclResetDebugInit(void);
ncclResult_t pncclScatter(const void *, void *, size_t, ncclDataType_t, int, ncclComm_t,
	cudaStream_t);
ncclResult_t pncclSend(const void *, size_t, ncclDataType_t, int, ncclComm_t, cudaStream_t);
