/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nccl.h - what the doors and the life cycle need from the NCCL side.
 *
 * Every function of nccl.def is exported by name (for callers that the linker bound to us) and
 * exists once more for each NCCL library in the process: two can be loaded at once, and a
 * handle says nothing about the library before it is created.
 */
#ifndef WG_NCCL_H
#define WG_NCCL_H

/*
 * dlsym found `real` for `symbol`: what to hand out instead. `real` itself when the symbol is not
 * in nccl.def, when real is ours, or when more libraries are loaded than we keep apart (noted).
 */
void *wg_nccl_door(const char *symbol, void *real);
void wg_nccl_cuda_up(void); /* called by wg_streams_start(): perhaps from inside a creation */
void wg_nccl_tick(void); /* helper thread: which collectives are done */
void wg_nccl_fork_child(void);

#endif
