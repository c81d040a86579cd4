/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kallsyms.h - names of kernel functions. Holds the kernel's text symbols compactly (about 3 MiB for 100,000), reads them
 * once, and again when an address is beyond them because a module was loaded since.
 */
#ifndef WG_KALLSYMS_H
#define WG_KALLSYMS_H

#include <stddef.h>
#include <stdint.h>

struct wg_kallsyms;
/* Never NULL but for want of memory. Without CAP_SYSLOG every address is hidden: *hidden says so. */
struct wg_kallsyms *wg_kallsyms_open(int *hidden);
void wg_kallsyms_close(struct wg_kallsyms *k);
/*
 * "nvidia_ioctl [nvidia]" or "do_sys_poll" into out; 0, or -ENOENT when no symbol covers addr (out is empty then).
 * Thread-safe.
 */
int wg_kallsyms_name(struct wg_kallsyms *k, uint64_t addr, char *out, size_t n);

#endif
