#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds every row of preload/calls.def against NVIDIA's headers, where these are installed.

For each row: parameters as declared (cudaTypedefs.h by version for the driver, cuda_runtime_api.h for
the runtime), reduced to what the ABI sees; as many recorded names as values, at most four; and no
exported flavour (_ptsz, _ptds) forgotten.

	check_calls.py SOURCE_DIR [CUDA_DIR]
"""
import re
import subprocess
import sys

SOURCE = sys.argv[1]
CUDA = sys.argv[2] if len(sys.argv) > 2 else "/usr/local/cuda"
HANDLES = set("""CUcontext CUmodule CUfunction CUarray CUmipmappedArray CUstream CUevent CUgraph CUgraphExec
CUgraphNode CUmemoryPool CUexternalMemory CUexternalSemaphore CUlibrary CUkernel CUgreenCtx CUdevResourceDesc
CUlinkState cudaArray_t cudaArray_const_t cudaMipmappedArray_t cudaStream_t cudaEvent_t cudaGraph_t
cudaGraphExec_t cudaGraphNode_t cudaMemPool_t cudaExternalMemory_t cudaExternalSemaphore_t cudaLibrary_t
cudaKernel_t CUhostFn CUstreamCallback cudaHostFn_t cudaStreamCallback_t cudaFunction_t""".split())
BY_VALUE = {"CUmemLocation": "location", "cudaMemLocation": "location", "CUipcMemHandle": "ipc_handle",
            "CUipcEventHandle": "ipc_handle", "cudaIpcMemHandle_t": "ipc_handle",
            "cudaIpcEventHandle_t": "ipc_handle", "dim3": "dim3", "cudaExtent": "extent",
            "cudaPitchedPtr": "pitched"}
SCALARS = {"CUdeviceptr": 8, "size_t": 8, "unsigned long long": 8, "cuuint64_t": 8, "uint64_t": 8,
           "CUmemGenericAllocationHandle": 8, "int": 4, "unsigned int": 4, "cuuint32_t": 4, "CUdevice": 4,
           "unsigned char": 1, "unsigned short": 2}


def abi(declaration):
    """One parameter as the ABI sees it: its size, or the structure passed by value."""
    d = re.sub(r"__dv\([^)]*\)", "", declaration).strip()
    d = re.sub(r"\b(enum|struct|const)\b", "", d).strip()
    m = re.match(r"^(.*?)(\w+)$", d, re.S)
    kind = re.sub(r"\s+", " ", m[1]).strip()
    if "*" in kind:
        return 8
    if kind.startswith("wg_"):
        return kind[3:]
    if kind == "CUdeviceptr_v1":
        return 4
    kind = re.sub(r"_v\d+$", "", kind)
    if kind in HANDLES:
        return 8
    if kind in BY_VALUE:
        return BY_VALUE[kind]
    return SCALARS.get(kind, 4)  # an enumeration


def split(parameters):
    parameters = re.sub(r"\s+", " ", parameters).strip()
    return [] if parameters in ("", "void") else [p.strip() for p in parameters.split(",")]


def without_comments(path):
    text = open(path).read()
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", "", text, flags=re.S))


def driver():
    types = without_comments(CUDA + "/include/cudaTypedefs.h")
    by_version = {}
    for m in re.finditer(r"typedef\s+CUresult\s*\(CUDAAPI\s*\*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)\s*\(([^;]*)\);", types):
        by_version[m[1], int(m[2]), m[3] or ""] = split(m[4])
    out = {"cuProfilerStart": [], "cuProfilerStop": []}
    rows = open(SOURCE + "/preload/driver_versions.def").read()
    for m in re.finditer(r"^V\((\w+), (\d+), (\d), (\w+)\)", rows, re.M):
        suffix = m[4][-5:] if m[3] == "1" else ""
        if (m[1], int(m[2]), suffix) in by_version:
            out.setdefault(m[4], by_version[m[1], int(m[2]), suffix])
    return out


def runtime():
    text = without_comments(CUDA + "/include/cuda_runtime_api.h")
    out = {"cudaProfilerStart": [], "cudaProfilerStop": [], "cudaThreadExit": [], "cudaThreadSynchronize": []}
    for m in re.finditer(r"cudaError_t\s+CUDARTAPI\s+(\w+)\s*\(([^;]*?)\)\s*;", text):
        out.setdefault(m[1], split(m[2]))
    out["__cudaLaunchKernel"] = ["void *kernel"] + out["cudaLaunchKernel"][1:]
    return out


def columns(row):
    """Arguments of a macro call, split at its own commas."""
    out, depth, quoted, at = [], 0, False, ""
    for c in row:
        if c == '"':
            quoted = not quoted
        if not quoted:
            depth += (c == "(") - (c == ")")
            if c == "," and not depth:
                out.append(at.strip())
                at = ""
                continue
        at += c
    return out + [at.strip()]


def main():
    table = re.sub(r"/\*.*?\*/", "", open(SOURCE + "/preload/calls.def").read(), flags=re.S)
    drivers, runtimes, errors, checked = driver(), runtime(), [], 0
    exported = set()
    for lib in ("libcudart.so.13", "libcudart.so.12", "libcudart.so"):
        r = subprocess.run(["nm", "-D", "--defined-only", CUDA + "/lib/" + lib], capture_output=True, text=True)
        if not r.returncode:
            exported = {line.split()[2].split("@")[0] for line in r.stdout.splitlines()}
            break
    for m in re.finditer(r"^(D|R)(Z|S|)\(", table, re.M):
        depth, end = 1, m.end()
        while depth:
            depth += (table[end] == "(") - (table[end] == ")")
            end += 1
        c = columns(table[m.end():end - 1])
        name, parameters, names, values = c[0], c[4], c[6].strip('"'), c[7]
        if len(c) != 10:
            errors.append(f"{name}: {len(c)} columns")
            continue
        theirs = (drivers if m[1] == "D" else runtimes).get(name)
        if theirs is None:
            errors.append(f"{name}: not in the headers")
            continue
        ours = [abi(p) for p in split(parameters[1:-1])]
        if ours != [abi(p) for p in theirs]:
            errors.append(f"{name}: {parameters} is not {theirs}")
        n = len(names.split(",")) if names else 0
        if not values.startswith(f"V{n}(") or n > 4 or len(names) > 79:
            errors.append(f"{name}: names '{names}' do not fit {values}")
        known = exported if m[1] == "R" else set(drivers)
        for letter, suffix in (("Z", "_ptsz"), ("S", "_ptds")):
            if known and (name + suffix in known) != (m[2] == letter):
                errors.append(f"{name}: {suffix} {'forgotten' if m[2] != letter else 'does not exist'}")
        checked += 1
    for e in errors:
        print(e)
    print(f"{checked} rows checked, {len(errors)} wrong")
    return 1 if errors or checked < 300 else 0


sys.exit(main())
