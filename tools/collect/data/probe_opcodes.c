/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_opcodes.c - prints what cpython-opcodes.json holds for one version from 3.11 on: for
 * each opcode the one that it specialises, and how many units of inline cache follow:
 *   gcc -I$PREFIX/include/python3.X -I$PREFIX/include/python3.X/internal probe_opcodes.c
 */
#define Py_BUILD_CORE 1
#define NEED_OPCODE_TABLES 1
#define NEED_OPCODE_METADATA 1
#include <Python.h>
#include <opcode.h>
#include <stdio.h>
#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_opcode_metadata.h"
#else
#include "internal/pycore_opcode.h"
#endif

int main(void)
{
	printf("\"base\": [");
	for (int i = 0; i < 256; i++)
		printf("%s%d", i ? "," : "", _PyOpcode_Deopt[i]);
	printf("],\n\"caches\": [");
	for (int i = 0; i < 256; i++)
		printf("%s%d", i ? "," : "", _PyOpcode_Caches[_PyOpcode_Deopt[i]]);
	printf("]\n");
	return 0;
}
