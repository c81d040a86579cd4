/* SPDX-License-Identifier: Apache-2.0 */
/* report.h - one self-contained page about some traces. */
#ifndef WG_MEMORY_REPORT_H
#define WG_MEMORY_REPORT_H

#include <stdio.h>

#include "print.h"

/*
 * Nothing is fetched by the page (a content policy in it forbids that), everything in it is
 * escaped, and it stays below a few megabytes whatever the traces hold: points, stacks and
 * stalls are bounded. 0 or -EBADMSG.
 */
int wgm_report(FILE *out, struct wgm_analysis **all, size_t n);

#endif
