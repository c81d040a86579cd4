#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ../python_opcodes.h from cpython-opcodes.json.

usage: generate_python_opcodes.py > ../python_opcodes.h
"""
import json
import pathlib

CLASSES = {"LOAD_FAST": 1, "LOAD_FAST_CHECK": 1, "LOAD_DEREF": 2, "LOAD_GLOBAL": 3, "LOAD_NAME": 4,
           "LOAD_ATTR": 5, "LOAD_METHOD": 6, "EXTENDED_ARG": 7, "LOAD_FAST_LOAD_FAST": 8}
data = json.loads((pathlib.Path(__file__).parent / "cpython-opcodes.json").read_text())

print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Made by data/generate_python_opcodes.py; do not edit. */")
print("/*")
print(" * python_opcodes.h - CPython's bytecode as far as reading `x.y.acquire` needs it: for each")
print(" * opcode its class (specialised ones count as what they specialise) and, times 16, how")
print(" * many units of inline cache follow it.")
print(" */")
print("#ifndef WG_PYTHON_OPCODES_H")
print("#define WG_PYTHON_OPCODES_H")
print()
print("#include <stdint.h>")
print()
print("enum wg_py_op {")
print("\tWG_PY_OP_OTHER, WG_PY_OP_FAST, WG_PY_OP_DEREF, WG_PY_OP_GLOBAL, WG_PY_OP_NAME,")
print("\tWG_PY_OP_ATTR, WG_PY_OP_METHOD, WG_PY_OP_EXTENDED, WG_PY_OP_FAST_FAST,")
print("};")
print()
print("#define WG_PY_OPS_FIRST_MINOR", list(data["versions"])[0].split(".")[1])
print(f"static const uint8_t wg_py_ops[{len(data['versions'])}][256] = {{")
for v, e in data["versions"].items():
    of = {number: CLASSES[name] for name, number in e["names"].items() if name in CLASSES}
    base = e.get("base", list(range(256)))
    caches = e.get("caches", [0] * 256)
    row = [of.get(base[i], 0) | min(caches[i], 15) << 4 for i in range(256)]
    print(f"\t{{ /* {v} */")
    for at in range(0, 256, 16):
        print("\t  " + ", ".join(f"0x{x:02x}" for x in row[at:at + 16]) + ",")
    print("\t},")
print("};")
print()
print("#endif")
