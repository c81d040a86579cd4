/* SPDX-License-Identifier: Apache-2.0 */
/*
 * probe_cpython.c - prints what cpython-extra.json holds for one version of CPython:
 *   gcc -I$PREFIX/include/python3.X -I$PREFIX/include/python3.X/internal probe_cpython.c && ./a.out
 */
#define Py_BUILD_CORE 1
#include <Python.h>
#include <frameobject.h>
#include <stddef.h>
#include <stdio.h>
#include "internal/pycore_pystate.h"
#if PY_VERSION_HEX >= 0x03090000
#include "internal/pycore_interp.h"
#include "internal/pycore_runtime.h"
#endif
#if PY_VERSION_HEX >= 0x030B0000
#include "internal/pycore_code.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_frame.h"
#endif

#define O(name, type, field) printf("\"%s\": %zu,\n", name, offsetof(type, field))

int main(void)
{
	O("interp.sysdict", PyInterpreterState, sysdict);
	O("cfunction.ml", PyCFunctionObject, m_ml);
	O("cfunction.self", PyCFunctionObject, m_self);
	O("method.func", PyMethodObject, im_func);
	O("method.self", PyMethodObject, im_self);
	O("func.code", PyFunctionObject, func_code);
	O("type.tp_flags", PyTypeObject, tp_flags);
	O("type.tp_dictoffset", PyTypeObject, tp_dictoffset);
	O("type.tp_basicsize", PyTypeObject, tp_basicsize);
	O("type.tp_base", PyTypeObject, tp_base);
	O("heaptype.cached_keys", PyHeapTypeObject, ht_cached_keys);
	O("tuple.items", PyTupleObject, ob_item);
	O("dict.keys", PyDictObject, ma_keys);
	O("dict.values", PyDictObject, ma_values);
	O("weakref.object", PyWeakReference, wr_object);
	O("cell.ref", PyCellObject, ob_ref);
#if PY_VERSION_HEX < 0x030D0000
	O("tstate.on_delete_data", PyThreadState, on_delete_data);
#endif
#if PY_VERSION_HEX < 0x030B0000
	O("frame.valuestack", PyFrameObject, f_valuestack);
	O("frame.iblock", PyFrameObject, f_iblock);
	O("frame.blockstack", PyFrameObject, f_blockstack);
	O("frame.localsplus", PyFrameObject, f_localsplus);
	O("frame.globals", PyFrameObject, f_globals);
	O("code.nlocals", PyCodeObject, co_nlocals);
	O("code.stacksize", PyCodeObject, co_stacksize);
	O("code.varnames", PyCodeObject, co_varnames);
	O("code.cellvars", PyCodeObject, co_cellvars);
	O("code.freevars", PyCodeObject, co_freevars);
	O("code.names", PyCodeObject, co_names);
	O("long.digit", PyLongObject, ob_digit);
#else
	O("frame.localsplus", _PyInterpreterFrame, localsplus);
	O("frame.globals", _PyInterpreterFrame, f_globals);
	O("code.nlocalsplus", PyCodeObject, co_nlocalsplus);
	O("code.stacksize", PyCodeObject, co_stacksize);
	O("code.exceptiontable", PyCodeObject, co_exceptiontable);
	O("code.localsplusnames", PyCodeObject, co_localsplusnames);
	O("code.names", PyCodeObject, co_names);
	O("keys.log2_index_bytes", struct _dictkeysobject, dk_log2_index_bytes);
	O("keys.kind", struct _dictkeysobject, dk_kind);
	O("keys.nentries", struct _dictkeysobject, dk_nentries);
	O("keys.indices", struct _dictkeysobject, dk_indices);
	O("values.values", PyDictValues, values);
#if PY_VERSION_HEX >= 0x030C0000
	O("long.digit", PyLongObject, long_value.ob_digit);
#else
	O("long.digit", PyLongObject, ob_digit);
#endif
#endif
	return 0;
}
