#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes ../python_opcodes.h from cpython-opcodes.json.

usage: generate_python_opcodes.py > ../python_opcodes.h
"""
import json
import pathlib

CLASSES = {"LOAD_FAST": 1, "LOAD_FAST_CHECK": 1, "LOAD_DEREF": 2, "LOAD_GLOBAL": 3, "LOAD_NAME": 4,
           "LOAD_ATTR": 5, "LOAD_METHOD": 6, "EXTENDED_ARG": 7, "LOAD_FAST_LOAD_FAST": 8, "CALL": 9, "CALL_METHOD": 9,
           "PRECALL": 10, "RETURN_VALUE": 13, "RETURN_CONST": 13, "RAISE_VARARGS": 13, "RERAISE": 13, "POP_TOP": 14,
           "CALL_FUNCTION": 9, "CALL_KW": 9, "CALL_FUNCTION_KW": 15}
# Forward jumps: 11 by a distance, 12 (up to 3.10) to a place in the code.
CLASSES |= {n: 11 for n in ("FOR_ITER", "JUMP_FORWARD", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_FORWARD_IF_TRUE",
                            "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_FORWARD_IF_NOT_NONE", "POP_JUMP_IF_NONE",
                            "POP_JUMP_IF_NOT_NONE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE")}
ABSOLUTE = {"JUMP_ABSOLUTE", "JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP", "JUMP_IF_NOT_EXC_MATCH", "POP_JUMP_IF_FALSE",
            "POP_JUMP_IF_TRUE"}
data = json.loads((pathlib.Path(__file__).parent / "cpython-opcodes.json").read_text())

print("/* SPDX-License-Identifier: Apache-2.0 */")
print("/* Made by data/generate_python_opcodes.py; do not edit. */")
print("/*")
print(" * python_opcodes.h - CPython's bytecode as far as reading `x.y.acquire()` needs it: for each")
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
print("\tWG_PY_OP_ATTR, WG_PY_OP_METHOD, WG_PY_OP_EXTENDED, WG_PY_OP_FAST_FAST, WG_PY_OP_CALL,")
print("\tWG_PY_OP_PRECALL, WG_PY_OP_JUMP, WG_PY_OP_JUMP_ABS, WG_PY_OP_LEAVE, WG_PY_OP_POP,")
print("\tWG_PY_OP_CALL_KW,")
print("};")
print()
print("#define WG_PY_OPS_FIRST_MINOR", list(data["versions"])[0].split(".")[1])
print(f"static const uint8_t wg_py_ops[{len(data['versions'])}][256] = {{")
for v, e in data["versions"].items():
    of = {number: CLASSES[name] for name, number in e["names"].items() if name in CLASSES}
    if int(v.split(".")[1]) <= 10:
        of.update({number: 12 for name, number in e["names"].items() if name in ABSOLUTE})
    else:  # 3.11 alone has these two: they jump forward by a distance
        of.update({number: 11 for name, number in e["names"].items() if name.startswith("JUMP_IF_")})
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
