#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tsan.sh COMMAND...: without address randomisation, of which newer kernels have more than ThreadSanitizer's map
# of memory knows. Where a container refuses that, there is no telling: 77, skipped.
setarch -R true 2>/dev/null || exit 77
exec setarch -R "$@"
