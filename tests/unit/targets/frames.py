# SPDX-License-Identifier: Apache-2.0
"""frames.py OUT [gil|end]: threads with known Python stacks, written to OUT as JSON."""
import ctypes
import json
import sys
import threading
import time

lock = threading.Lock()
lock.acquire()
rlock = threading.RLock()
event = threading.Event()


def größe_漢字():
    lock.acquire()


def generator():
    yield (
        1,
        event.wait(),
    )


def spanning():
    return [
        1,
        list(generator()),
        2]


class Method:
    def waits(self):
        with rlock:
            time.sleep(
                100000)


def waits_for_rlock():
    with rlock:
        pass


def joins():
    threads[0].join()


def deep(n):
    if n:
        return deep(n - 1)
    time.sleep(100000)


def holds_gil():
    time.sleep(0.7)
    ctypes.PyDLL(None).sleep(100000)


threads = []
for function, args in ((größe_漢字, ()), (spanning, ()), (Method().waits, ()),
                       (waits_for_rlock, ()), (joins, ()), (deep, (200,))):
    t = threading.Thread(target=function, args=args, daemon=True)
    t.start()
    threads.append(t)
    time.sleep(0.03)
time.sleep(0.1)

expected = {"threads": {}, "main": threading.main_thread().native_id,
            "version": "%d.%d.%d" % sys.version_info[:3]}
native = {t.ident: t.native_id for t in threading.enumerate()}
for ident, frame in sys._current_frames().items():
    stack = []
    while frame is not None:
        code = frame.f_code
        stack.append([getattr(code, "co_qualname", code.co_name), code.co_filename, frame.f_lineno])
        frame = frame.f_back
    if native[ident] != expected["main"]:
        expected["threads"][native[ident]] = stack

mode = sys.argv[2] if len(sys.argv) > 2 else ""
if mode == "gil":
    t = threading.Thread(target=holds_gil, daemon=True)
    t.start()
    time.sleep(0.1)
    expected["gil"] = t.native_id
if mode == "end":
    threading.Thread(target=deep, args=(3,)).start()  # not a daemon: the end waits for it
with open(sys.argv[1], "w") as out:
    json.dump(expected, out)
print("ready", flush=True)
if mode != "end":
    time.sleep(100000)
