// SPDX-License-Identifier: Apache-2.0
/* guest_audit.c - an audit library (LD_AUDIT), as profilers and launchers bring one; it only looks. */
#include <link.h>

__attribute__((visibility("default"))) unsigned int la_version(unsigned int version);
unsigned int la_version(unsigned int version)
{
	return version;
}
