#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nvcc.sh NVCC SOURCE DIR: what nvcc makes of a program with <<<>>> runs on the simulated runtime.
set -e
"$1" --version >/dev/null 2>&1 || exit 77 # a wrapper without a compiler behind it
"$1" -cudart shared -arch=sm_90 -o "$3/nvcc-program" "$2"
"$1" -cudart shared -arch=sm_90 --default-stream per-thread -o "$3/nvcc-program-pt" "$2"
"$3/nvcc-program"
"$3/nvcc-program-pt" per-thread
