/* SPDX-License-Identifier: Apache-2.0 */
/* pyframes.h - Python frames of the calling thread, read raw (pyframes.c). */
#ifndef WG_PYFRAMES_H
#define WG_PYFRAMES_H

#include "accounting.h"

/* An object was mapped at base: if it is an interpreter, remember where its state is. */
WG_LOCAL void wg_python_object(uint64_t base, const char *path);
WG_LOCAL void wg_python_fork_child(void);
/* Frames of the calling thread, innermost first; 0 when it runs no Python. */
WG_LOCAL int wg_python_take(struct wg_pyline *out, int max);

#endif
