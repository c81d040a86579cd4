#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes preload/driver_versions.def from an installed CUDA toolkit.

cuGetProcAddress("cuCtxCreate", version, flags) has to find cuCtxCreate_v2, _v3 or _v4, and
with the per-thread-stream flag cuMemcpy_ptds instead of cuMemcpy. Which (name, version,
flavour) means which exported symbol stands nowhere as a list: cudaTypedefs.h names the
versions, the toolkit's stub library names the symbols, and both are in the same order.

Usage: driver_versions.py [CUDA_ROOT] > preload/driver_versions.def
"""
import collections
import re
import subprocess
import sys

root = sys.argv[1] if len(sys.argv) > 1 else "/usr/local/cuda"

out = subprocess.run(["nm", "-D", "--defined-only", f"{root}/lib64/stubs/libcuda.so"],
                     check=True, capture_output=True, text=True).stdout
symbols = {line.split()[2].split("@")[0] for line in out.splitlines() if len(line.split()) == 3}

versions = collections.defaultdict(set)
text = open(f"{root}/include/cudaTypedefs.h", encoding="utf-8").read()
for m in re.finditer(r"\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", text):
    versions[m.group(1), m.group(3) or ""].add(int(m.group(2)))


def generation(symbol):
    m = re.search(r"_v(\d+)(?:_ptsz|_ptds)?$", symbol)
    return int(m.group(1)) if m else 1


rows, bad = [], []
for (base, suffix), found in versions.items():
    names = sorted((s for s in symbols if re.fullmatch(re.escape(base) + r"(_v\d+)?" + suffix, s)),
                   key=generation)
    if len(names) != len(found):
        bad.append((base, suffix, sorted(found), names))
        continue
    for version, symbol in zip(sorted(found), names):
        rows.append((base, version, 1 if suffix else 0, symbol))

for b in bad:
    print("no one-to-one match:", *b, file=sys.stderr)
if bad:
    sys.exit(1)

version = re.search(r"#define CUDA_VERSION (\d+)", open(f"{root}/include/cuda.h").read()).group(1)
print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/*")
print(" * driver_versions.def - which exported symbol of libcuda.so.1 a versioned look-up means.")
print(" *")
print(" * V(name, version, flavour, symbol): cuGetProcAddress(name, v, flags) with version <= v gives the")
print(" * row of the highest version; flavour 0 is legacy or none, 1 is _ptsz/_ptds (looked up with")
print(" * CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM; names without such a row fall back to flavour 0).")
print(" * Sorted by name, flavour, version. Facts of CUDA %s.%s; written by" %
      (int(version) // 1000, int(version) % 1000 // 10))
print(" * tests/simgpu/gen/driver_versions.py: do not edit.")
print(" */")
for base, ver, flavour, symbol in sorted(rows, key=lambda r: (r[0], r[2], r[1])):
    print(f"V({base}, {ver}, {flavour}, {symbol})")
print(f"{len(rows)} rows", file=sys.stderr)
