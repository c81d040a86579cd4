#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ../python_offsets.h from cpython-offsets.json and cpython-extra.json.

usage: generate_python_offsets.py > ../python_offsets.h
"""
import json
import pathlib

here = pathlib.Path(__file__).parent
main = json.loads((here / "cpython-offsets.json").read_text())
extra = json.loads((here / "cpython-extra.json").read_text())
versions = list(main["versions"])
STYLES = {"pyframe": 0, "cframe": 1, "direct": 2}

# What the interpreter publishes from 3.13 on, and which of our fields it gives.
PUBLISHED = {
    "runtime_state.finalizing": "runtime.finalizing",
    "runtime_state.interpreters_head": "runtime.interpreters_head",
    "interpreter_state.id": "interp.id",
    "interpreter_state.next": "interp.next",
    "interpreter_state.threads_head": "interp.threads_head",
    "interpreter_state.threads_main": "interp.threads_main",
    "interpreter_state.sysdict": "interp.sysdict",
    "interpreter_state.ceval_gil": "interp.ceval_gil",
    "interpreter_state.gil_runtime_state": "interp.own_gil",
    "thread_state.prev": "tstate.prev",
    "thread_state.next": "tstate.next",
    "thread_state.interp": "tstate.interp",
    "thread_state.current_frame": "tstate.current_frame",
    "thread_state.thread_id": "tstate.thread_id",
    "thread_state.native_thread_id": "tstate.native_thread_id",
    "thread_state.status": "tstate.status",
    "interpreter_frame.previous": "frame.previous",
    "interpreter_frame.executable": "frame.executable",
    "interpreter_frame.instr_ptr": "frame.instr_ptr",
    "interpreter_frame.localsplus": "frame.localsplus",
    "interpreter_frame.owner": "frame.owner",
    "code_object.filename": "code.filename",
    "code_object.name": "code.name",
    "code_object.qualname": "code.qualname",
    "code_object.linetable": "code.linetable",
    "code_object.firstlineno": "code.firstlineno",
    "code_object.localsplusnames": "code.localsplusnames",
    "code_object.co_code_adaptive": "code.code_adaptive",
    "pyobject.ob_type": "object.ob_type",
    "type_object.tp_name": "type.tp_name",
    "type_object.tp_flags": "type.tp_flags",
    "tuple_object.ob_item": "tuple.items",
    "dict_object.ma_keys": "dict.keys",
    "dict_object.ma_values": "dict.values",
    "long_object.ob_digit": "long.digit",
    "bytes_object.ob_size": "bytes.ob_size",
    "bytes_object.ob_sval": "bytes.ob_sval",
    "unicode_object.state": "unicode.state",
    "unicode_object.length": "unicode.length",
    "unicode_object.asciiobject_size": "unicode.ascii_data",
}


def c_name(name):
    return name.replace(".", "_")


fields = []
for v in versions:
    for name in list(main["versions"][v]["offsets"]) + list(extra["versions"].get(v, {})):
        if name not in fields:
            fields.append(name)
fields.sort()

print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Made by data/generate_python_offsets.py; do not edit. */")
print("/*")
print(" * python_offsets.h - where things stand inside CPython, release builds with the GIL.")
print(" *")
print(" * Plain numbers, no dependency: the readers in tools/ and the recorder in preload/ share")
print(" * it. Bytes from the start of the structure that the first word names. How each was")
print(" * obtained and checked stands in data/. From 3.13 on the interpreter publishes most of")
print(" * them: wg_py_published says where, and what it publishes goes before what stands here.")
print(" */")
print("#ifndef WG_PYTHON_OFFSETS_H")
print("#define WG_PYTHON_OFFSETS_H")
print()
print("#include <stddef.h>")
print("#include <stdint.h>")
print()
print("#define WG_PY_ABSENT 0xffffu")
print("#define WG_PY_FIRST_MINOR", versions[0].split(".")[1])
print("#define WG_PY_LAST_MINOR", versions[-1].split(".")[1])
print()
print("enum wg_py_style { WG_PY_PYFRAME, WG_PY_CFRAME, WG_PY_DIRECT };")
print()
print("struct wg_py_offsets {")
print("\tuint8_t major, minor;")
print("\tuint8_t style; /* enum wg_py_style: how the current frame is found */")
for name in fields:
    print(f"\tuint16_t {c_name(name)};")
print("};")
print()
print("#if defined(__aarch64__)")
print("#define WG_PY_ARCH(x86_64, aarch64) (aarch64)")
print("#else")
print("#define WG_PY_ARCH(x86_64, aarch64) (x86_64)")
print("#endif")
print()
tid = main["glibc"]["pthread_tid"]
print("/* u32 at (tstate.thread_id + this) is the kernel's tid: 3.8-3.10 have no other. */")
print(f"#define WG_PY_PTHREAD_TID WG_PY_ARCH({tid['x86_64']}, {tid['aarch64']})")
print("/* A waiter for the GIL sleeps on a futex inside [gil.cond, gil.cond + this). */")
print("#define WG_PY_COND_SIZE 48")
print()
print("static const struct wg_py_offsets wg_py_table[] __attribute__((unused)) = {")
for v in versions:
    major, minor = v.split(".")
    row = main["versions"][v]
    print(f"\t{{ .major = {major}, .minor = {minor}, .style = {STYLES[row['style']]},")
    for name in fields:
        o = row["offsets"].get(name)
        if o is None:
            value = extra["versions"].get(v, {}).get(name)
            text = "WG_PY_ABSENT" if value is None else str(value)
        elif "aarch64" in o:
            text = f"WG_PY_ARCH({o['offset']}, {o['aarch64']})"
        else:
            text = str(o["offset"])
        print(f"\t  .{c_name(name)} = {text},")
    print("\t},")
print("};")
print()
print("/* _Py_DebugOffsets at the start of _PyRuntime: 8 bytes \"xdebugpy\", u64 version, ... */")
print("struct wg_py_published {")
print("\tuint16_t at;    /* the u64 at _PyRuntime + at ... */")
print("\tuint16_t field; /* ... is this member of struct wg_py_offsets */")
print("};")
for v in versions:
    debug = main["versions"][v].get("debug_offsets")
    if not debug:
        continue
    minor = v.split(".")[1]
    pos = debug["field_position"]
    print(f"#define WG_PY_DEBUG_SIZE_3_{minor} {debug['sizeof']}")
    print(f"#define WG_PY_FREE_THREADED_AT_3_{minor} {pos['free_threaded']}")
    print(f"static const struct wg_py_published wg_py_published_3_{minor}[] "
          "__attribute__((unused)) = {")
    for name, ours in PUBLISHED.items():
        if name in pos:
            print(f"\t{{ {pos[name]}, offsetof(struct wg_py_offsets, {c_name(ours)}) }},")
    print("};")
print()
print("#endif")
