// SPDX-License-Identifier: Apache-2.0
#include "sim.h"
CUresult sg_capture_op(struct sg_stream *s, struct sg_op *op) { (void)s; (void)op; return CUDA_ERROR_NOT_SUPPORTED; }
CUresult sg_capture_wait(struct sg_stream *s, struct sg_event *e) { (void)s; (void)e; return CUDA_ERROR_NOT_SUPPORTED; }
void sg_capture_record(struct sg_stream *s, struct sg_event *e) { (void)s; (void)e; }
CUresult sg_capture_unsafe(struct sg_ctx *ctx) { (void)ctx; return CUDA_SUCCESS; }
CUresult sg_capture_sync(struct sg_stream *s) { (void)s; return CUDA_SUCCESS; }
CUresult sg_capture_legacy(struct sg_ctx *ctx) { (void)ctx; return CUDA_SUCCESS; }
void sg_capture_event_gone(struct sg_event *e) { (void)e; }
CUresult sg_ctx_idle(struct sg_ctx *ctx) { (void)ctx; return CUDA_SUCCESS; }
CUresult cuStreamIsCapturing(CUstream s, CUstreamCaptureStatus *out) { (void)s; *out = CU_STREAM_CAPTURE_STATUS_NONE; return CUDA_SUCCESS; }
