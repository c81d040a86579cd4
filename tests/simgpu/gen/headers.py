#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/simgpu/include/ from an installed CUDA toolkit and NCCL.

What a program needs to be compiled against an interface is facts: names, numbers, layouts and
signatures. This takes exactly those (no comment, no parameter name, no inline function) and
prints them in our own order, so that a machine without CUDA can build the simulated GPU and
the programs that run on it. tests/simgpu/test/abi_*.c check every one of them against the real
headers where those are installed.

Usage: headers.py [CUDA_ROOT] OUTPUT_DIR     (needs gcc and pycparser)
"""
import os
import re
import subprocess
import sys
import tempfile

from pycparser import c_ast, c_generator, c_parser

root = sys.argv[1] if len(sys.argv) > 2 else "/usr/local/cuda"
dest = sys.argv[-1]

FAKE = {
    "stdlib.h": "typedef unsigned long size_t;",
    "stddef.h": "typedef unsigned long size_t;",
    "string.h": "", "limits.h": "", "math.h": "", "stdio.h": "",
    "stdint.h": "typedef unsigned int uint32_t; typedef unsigned long uint64_t;"
                "typedef unsigned char uint8_t; typedef unsigned short uint16_t;"
                "typedef unsigned int cuuint32_t_; typedef unsigned long cuuint64_t_;"
                "typedef long int64_t; typedef int int32_t;",
}
tmp = tempfile.mkdtemp()
for name, body in FAKE.items():
    guard = "FAKE_" + re.sub(r"\W", "_", name)
    with open(os.path.join(tmp, name), "w") as f:
        if "size_t;" in body:
            body = "#ifndef FAKE_SIZE_T\n#define FAKE_SIZE_T\n%s\n#endif" % body
        f.write(f"#ifndef {guard}\n#define {guard}\n{body}\n#endif\n")

HIDE = ["__attribute__(x)=", "__inline__=inline", "__extension__=", "__restrict__=",
        "__builtin_align__(x)=", "__asm__(x)=", "_Alignas(x)=", "alignas(x)=", "__align__(x)=",
        "__volatile__="]


def cpp(header, *args):
    return subprocess.run(
        ["gcc", "-E", "-nostdinc", "-isystem", tmp, "-I", f"{root}/include",
         *[f"-D{h}" for h in HIDE], *args, "-include", f"{root}/include/{header}", "-xc", "/dev/null"],
        check=True, capture_output=True, text=True).stdout


def macros(header, *args):
    base = set(subprocess.run(["gcc", "-E", "-dM", "-xc", "/dev/null"], capture_output=True,
                              text=True).stdout.splitlines())
    found = {}
    for line in cpp(header, "-dM", *args).splitlines():
        if line not in base:
            m = re.match(r"#define (\w+)(\([^)]*\))? ?(.*)", line)
            if m and not m.group(2):
                found[m.group(1)] = m.group(3)
    return found


class Plain(c_generator.CGenerator):
    """Tabs, and enumerators and members one a line."""

    def _make_indent(self):
        return "\t" * (self.indent_level // 2)


def strip_names(node):
    """Drops the parameter names below a function declaration."""
    if isinstance(node, c_ast.FuncDecl) and node.args:
        for p in node.args.params:
            if isinstance(p, c_ast.EllipsisParam):
                continue
            t = p.type
            while not isinstance(t, c_ast.TypeDecl):
                if isinstance(t, c_ast.FuncDecl):
                    strip_names(t)
                t = t.type
            t.declname = None
            p.name = None
    return node


def emit_function(d):
    strip_names(d.type)
    d.storage, d.funcspec, d.align = [], [], []
    return Plain().visit(d).replace("()", "(void)") + ";"


def wrap(line):
    out = []
    while len(line) > 98:
        cut = line.rfind(",", 0, 97) + 1
        if cut <= 0:
            break
        out.append(line[:cut])
        line = "\t" + line[cut:].lstrip()
    out.append(line)
    return "\n".join(out)


def indent(text):
    return "\n".join(re.sub(r"^(  )+", lambda m: "\t" * (len(m.group(0)) // 2), l)
                     for l in text.splitlines())


def split(header, files, args=(), skip=lambda n: False, only=None):
    ast = c_parser.CParser().parse(cpp(header, *args), header)
    types, funcs, seen = [], {}, set()
    for n in ast.ext:
        where = os.path.basename(n.coord.file) if n.coord else ""
        if where not in files or isinstance(n, (c_ast.FuncDef, c_ast.Pragma)):
            continue
        name = getattr(n, "name", None)
        if only and where in only and (name or getattr(n.type, "name", None)) not in only[where]:
            continue
        if isinstance(n, c_ast.Decl) and isinstance(n.type, c_ast.FuncDecl):
            if not skip(n.name):
                funcs[n.name] = emit_function(n)
            continue
        strip(n)
        t = indent(Plain().visit(n)) + ";"
        t = re.sub(r"\bstatic const\b", "static const", t)
        if t not in seen and not (name and skip(name)):
            seen.add(t)
            if re.match(r"struct CUuuid_st\s*{", t) or re.match(r"typedef struct CUuuid_st\s*{", t):
                t = "#ifndef CU_UUID_HAS_BEEN_DEFINED\n#define CU_UUID_HAS_BEEN_DEFINED\n" + t + "\n#endif"
            types.append(re.sub(r"[ \t]+$", "", t, flags=re.M))
    return types, funcs


def strip(n):
    for _, c in n.children():
        strip(c)
    if isinstance(n, c_ast.FuncDecl):
        strip_names(n)


HEAD = """/* SPDX-License-Identifier: Apache-2.0 */
/*
 * %s
 *
 * Names, numbers, layouts and signatures only; written by tests/simgpu/gen/headers.py and checked
 * against the real headers by tests/simgpu/test/abi_*.c. Do not edit.
 */
"""

OPEN = "#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
CLOSE = "\n#ifdef __cplusplus\n}\n#endif\n"


def save(path, text):
    path = os.path.join(dest, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        f.write(text)


# --- the driver ------------------------------------------------------------------------------
out = subprocess.run(["nm", "-D", "--defined-only", f"{root}/lib64/stubs/libcuda.so"],
                     check=True, capture_output=True, text=True).stdout
symbols = {l.split()[2].split("@")[0] for l in out.splitlines() if len(l.split()) == 3}
PROFILER = {  # declared in a header of their own, cudaProfiler.h
    "cuProfilerStart": "CUresult cuProfilerStart(void);",
    "cuProfilerStop": "CUresult cuProfilerStop(void);",
}


def graphics(n):
    # Texture and surface references, graphics interoperation: not simulated.
    return bool(re.search(r"TexRef|SurfRef|Graphics|cuTensorMap|CUtensorMap_st|^CUtensorMap$|Checkpoint", n))


types, funcs = split("cuda.h", {"cuda.h"}, ["-D__CUDA_API_VERSION_INTERNAL"], skip=graphics)
# Per-thread variants have the signature of what they vary; the real header names them by macro.
for s in sorted(symbols):
    m = re.match(r"(\w+?)(_ptsz|_ptds)$", s)
    if m and s not in funcs and m.group(1) in funcs:
        funcs[s] = re.sub(r"\b%s\b" % re.escape(m.group(1)), s, funcs[m.group(1)], count=1)
funcs.update(PROFILER)
missing = [s for s in symbols if s not in funcs and not graphics(s) and s != "cuProfilerInitialize"]
if missing:
    print("no signature for", *sorted(missing), file=sys.stderr)
funcs = {n: d for n, d in funcs.items() if n in symbols}

plain = macros("cuda.h")
thread = macros("cuda.h", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM")


def mapped(table, name, suffix=True):
    v = table.get(name, "")
    m = re.match(r"__CUDA_API_PT(DS|SZ)\((\w+)\)$", v)
    if m:
        return m.group(2) + ("_ptds" if m.group(1) == "DS" else "_ptsz") if suffix else m.group(2)
    return v


api, per_thread, consts = [], [], []
for name in sorted(set(plain) | set(thread)):
    if re.match(r"cu[A-Z]\w+$", name) and not graphics(name):
        legacy, pt = mapped(plain, name, False), mapped(thread, name, True)
        if legacy and legacy != name and re.fullmatch(r"\w+", legacy):
            api.append(f"#define {name} {legacy}")
        if pt and re.fullmatch(r"\w+", pt) and pt.endswith(("_ptsz", "_ptds")):
            per_thread.append(f"#undef {name}\n#define {name} {pt}")
    elif re.match(r"(CU_|CUDA_|CU[A-Z])\w+$", name) and plain.get(name) and \
            not re.search(r"DEPRECATED|^CUDAAPI|^CUDA_CB|TYPEDEF", name):
        consts.append(f"#define {name} {plain[name]}")

fl = "\n".join(wrap(funcs[n]) for n in sorted(funcs))
save("simgpu/driver_functions.h", HEAD % "driver_functions.h - what libcuda.so.1 exports, for include/cuda.h." + fl + "\n")
save("cuda.h", HEAD % "cuda.h - the interface of libcuda.so.1, as far as the simulated GPU has it." +
     "#ifndef SIMGPU_CUDA_H\n#define SIMGPU_CUDA_H\n#define __cuda_cuda_h__\n\n#include <stddef.h>\n#include <stdint.h>\n\n"
     "#define CUDAAPI\n#define CUDA_CB\n" + "\n".join(consts) + "\n\n" + OPEN + "\n" + "\n".join(types) + "\n\n"
     "#include \"simgpu/driver_functions.h\"\n" + CLOSE +
     "\n#ifndef __CUDA_API_VERSION_INTERNAL\n" + "\n".join(api) + "\n#ifdef CUDA_API_PER_THREAD_DEFAULT_STREAM\n" +
     "\n".join(per_thread) + "\n#endif\n#endif\n\n#endif\n")

# --- the runtime -----------------------------------------------------------------------------
out = subprocess.run(["nm", "-D", "--defined-only", f"{root}/lib64/libcudart.so.13"],
                     check=True, capture_output=True, text=True).stdout
symbols = {l.split()[2].split("@")[0] for l in out.splitlines() if len(l.split()) == 3}


def rt_skip(n):
    return bool(re.search(r"[Gg]raphics|EGL|Egl|VDPAU|cudaGL", n))


FILES = {"cuda_runtime_api.h", "driver_types.h", "vector_types.h", "texture_types.h", "surface_types.h"}
types, funcs = split("cuda_runtime_api.h", FILES, ["-D__CUDA_ARCH_LIST__=900"], skip=rt_skip,
                     only={"vector_types.h": {"dim3", "uint3"}})
funcs = {n: d for n, d in funcs.items() if n in symbols}
for s in sorted(symbols):
    m = re.match(r"(\w+?)(_ptsz|_ptds)$", s)
    if m and m.group(1) in funcs:
        funcs[s] = re.sub(r"\b%s\b" % re.escape(m.group(1)), s, funcs[m.group(1)], count=1)
funcs.update({n: f"cudaError_t {n}(void);" for n in ("cudaProfilerStart", "cudaProfilerStop")})
thread = macros("cuda_runtime_api.h", "-DCUDA_API_PER_THREAD_DEFAULT_STREAM")
plain = macros("cuda_runtime_api.h")
per_thread = []
for name in sorted(thread):
    m = re.match(r"__CUDART_API_PT(DS|SZ)\((\w+)\)$", thread[name])
    if m and re.match(r"cuda[A-Z]", name):
        per_thread.append(f"#define {name} {m.group(2)}_pt{m.group(1).lower()}")
consts = [f"#define {n} {v}" for n, v in sorted(plain.items())
          if re.match(r"(cuda[A-Z]\w+|CUDA_IPC_HANDLE_SIZE|CUDART_VERSION|CUDART_CB)$", n) and v and not v.startswith("__CUDART")]
consts = [c for c in consts if not re.search(r"CUDART_CB", c)] + ["#define CUDART_CB", "#define CUDARTAPI"]
fl = "\n".join(wrap(funcs[n]) for n in sorted(funcs))
save("simgpu/runtime_functions.h", HEAD % "runtime_functions.h - what libcudart exports, for include/cuda_runtime_api.h." + fl + "\n")
save("cuda_runtime_api.h", HEAD % "cuda_runtime_api.h - the interface of libcudart, as far as the simulated GPU has it." +
     "#ifndef SIMGPU_CUDA_RUNTIME_API_H\n#define SIMGPU_CUDA_RUNTIME_API_H\n#define __CUDA_RUNTIME_API_H__\n\n#include <stddef.h>\n#include <stdint.h>\n\n" +
     "\n".join(consts) + "\n\n" + OPEN + "\n" + "\n".join(types) + "\n\n#include \"simgpu/runtime_functions.h\"\n" + CLOSE +
     "\n#if defined(CUDA_API_PER_THREAD_DEFAULT_STREAM) && !defined(__CUDART_API_PER_THREAD_DEFAULT_STREAM_OFF)\n" +
     "\n".join(per_thread) + "\n#endif\n\n#endif\n")
for n in ("cuda_runtime.h", "driver_types.h", "cuda_profiler_api.h"):
    save(n, HEAD % (n + " - everything stands in cuda_runtime_api.h.") + "#include \"cuda_runtime_api.h\"\n")

save("cudaProfiler.h", HEAD % "cudaProfiler.h - everything stands in cuda.h." + "#include \"cuda.h\"\n")

# --- NCCL ------------------------------------------------------------------------------------
out = subprocess.run(["nm", "-D", "--defined-only", f"{root}/lib64/libnccl.so.2"],
                     check=True, capture_output=True, text=True).stdout
symbols = {l.split()[2].split("@")[0] for l in out.splitlines() if len(l.split()) == 3}
types, funcs = split("nccl.h", {"nccl.h"})
funcs = {n: d for n, d in funcs.items() if n in symbols}
m = macros("nccl.h")
consts = [f"#define {n} {v}" for n, v in sorted(m.items()) if n.startswith("NCCL_") and v and n != "NCCL_H_"]
save("nccl.h", HEAD % "nccl.h - the interface of libnccl.so.2, as far as the simulated GPU has it." +
     "#ifndef NCCL_H_\n#define NCCL_H_\n\n#include \"cuda_runtime_api.h\"\n#include <limits.h>\n\n" + "\n".join(consts) +
     "\n#define NCCL_VERSION(X, Y, Z) \\\n\t(((X) <= 2 && (Y) <= 8) ? (X) * 1000 + (Y) * 100 + (Z) : (X) * 10000 + (Y) * 100 + (Z))\n\n" +
     OPEN + "\n" + "\n".join(types) + "\n\n#include \"simgpu/nccl_functions.h\"\n" + CLOSE + "\n#endif\n")
save("simgpu/nccl_functions.h", HEAD % "nccl_functions.h - what libnccl exports, for include/nccl.h." +
     "\n".join(wrap(funcs[n]) for n in sorted(funcs)) + "\n")

# --- names of errors, for cuGetErrorName and cudaGetErrorName ---------------------------------
for path, typedef, out_name in (("cuda.h", "CUresult", "driver_errors.def"), ("cuda_runtime_api.h", "cudaError", "runtime_errors.def"),):
    text = open(os.path.join(dest, path)).read()
    m = re.search(r"enum (?:cudaError_enum|cudaError)\s*\{([^}]*)\}", text)
    names = re.findall(r"^\s*(\w+) = (\d+)", m.group(1), re.M)
    save("simgpu/" + out_name, HEAD % (out_name + " - E(name, number) of every " + typedef + ".") +
         "".join(f"E({n}, {v})\n" for n, v in names))

# --- the facts as rows, for the checks against the real headers --------------------------------
# C(enumerator, number), S(type, size), O(type, member, offset), M(macro, number)


def facts(header, out_name, prefix):
    inc = os.path.abspath(dest)
    text = subprocess.run(["gcc", "-E", "-nostdinc", "-isystem", tmp, f"-I{inc}", "-D__CUDA_API_VERSION_INTERNAL",
                           os.path.join(inc, header)], check=True, capture_output=True, text=True).stdout
    ast = c_parser.CParser().parse(text, header)
    prog = ["#define __CUDA_API_VERSION_INTERNAL", f"#include <{header}>", "#include <stdio.h>", "#include <stddef.h>",
            "int main(void) {"]
    seen = set()

    def record(node, cname):
        if node.decls is None or cname in seen:
            return
        seen.add(cname)
        prog.append(f'printf("S({cname}, %zu)\\n", sizeof({cname}));')
        for d in node.decls:
            if d.name and not d.bitsize:
                prog.append(f'printf("O({cname}, {d.name}, %zu)\\n", offsetof({cname}, {d.name}));')

    def visit(n):
        if isinstance(n, c_ast.Enum) and n.values:
            for e in n.values.enumerators:
                if e.name not in seen:
                    seen.add(e.name)
                    prog.append(f'printf("C({e.name}, %lldLL)\\n", (long long){e.name});')

    for n in ast.ext:
        if os.path.basename(n.coord.file) != os.path.basename(header) or isinstance(n, c_ast.Pragma):
            continue
        t = n.type
        if isinstance(n, c_ast.Typedef) and isinstance(t, c_ast.TypeDecl):
            visit(t.type)
            if isinstance(t.type, (c_ast.Struct, c_ast.Union)):
                record(t.type, n.name)
        elif isinstance(n, c_ast.Decl):
            visit(t)
            if isinstance(t, (c_ast.Struct, c_ast.Union)) and t.name:
                record(t, ("struct " if isinstance(t, c_ast.Struct) else "union ") + t.name)
    for line in open(os.path.join(inc, header)):
        m = re.match(r"#define ((?:CU|NCCL|cuda)\w+) (.*)", line)
        if m and re.fullmatch(r"\(?-?\(?(0x[0-9a-fA-F]+|\d+|1u? ?<< ?\d+)[uULl]*\)?\)?", m.group(2).strip()):
            prog.append(f'printf("M({m.group(1)}, %lldLL)\\n", (long long)({m.group(1)}));')
    prog.append("return 0; }")
    src, exe = os.path.join(tmp, "facts.c"), os.path.join(tmp, "facts")
    open(src, "w").write("\n".join(prog))
    subprocess.run(["gcc", f"-I{inc}", src, "-o", exe], check=True)
    rows = subprocess.run([exe], check=True, capture_output=True, text=True).stdout
    save("simgpu/" + out_name, HEAD % (out_name + " - every number of " + header + ", for tests/simgpu/test/abi_" + prefix + ".c.") + rows)


facts("cuda.h", "abi_driver.def", "driver")
facts("cuda_runtime_api.h", "abi_runtime.def", "runtime")
facts("nccl.h", "abi_nccl.def", "nccl")
