# SPDX-License-Identifier: Apache-2.0
"""locks.py OUT: threads that wait for locks that others hold, in ways that are written differently."""
import json
import multiprocessing
import os
import queue
import sys
import tempfile
import threading
import time

ids = {}
A, X, Y = threading.Lock(), threading.Lock(), threading.Lock()
B = threading.RLock()
C = threading.Condition()
shared = multiprocessing.Lock()
simple, full = queue.SimpleQueue(), queue.Queue()
threads = {}


class Holder:
    pass


holder = Holder()
holder.lock = threading.Lock()
holder.cond = threading.Condition(threading.Lock())
NAP = 100000


def hold_a():
    for _ in range(3):
        try:
            with open(os.devnull) as f, A:
                try:
                    time.sleep(NAP)
                finally:
                    f.close()
        except ValueError:
            pass


def wait_a():
    with A:
        pass


def wait_a_call():
    A.acquire()


def hold_b():
    B.acquire()
    B.acquire()
    time.sleep(NAP)


def wait_b():
    with B:
        pass


def hold_o():
    with holder.lock:
        with holder.cond:
            time.sleep(NAP)


def wait_o():
    with holder.lock:
        pass


def wait_oc():
    with holder.cond:
        pass


def wait_cond():
    with C:
        C.wait()


def wait_queue():
    full.get()


def wait_simple():
    simple.get()


def hold_shared():
    with shared:
        time.sleep(NAP)


def wait_shared():
    shared.acquire()


def join_a():
    threads["hold_a"].join()


def leave_x():
    X.acquire()


def wait_x():
    X.acquire()


def twice_y():
    with Y:
        with Y:
            pass


def import_1():
    import slow_module_of_this_test  # noqa: F401


def import_2():
    time.sleep(0.2)
    import slow_module_of_this_test  # noqa: F401


def with_id(f):
    def run():
        ids[f.__name__] = threading.get_native_id()
        f()
    return run


where = tempfile.mkdtemp()
with open(os.path.join(where, "slow_module_of_this_test.py"), "w") as out:
    out.write("import time; time.sleep(100000)\n")
sys.path.insert(0, where)
for f in (hold_a, hold_b, hold_o, hold_shared, leave_x, wait_a, wait_a_call, wait_b, wait_o, wait_oc,
          wait_cond, wait_queue, wait_simple, wait_shared, join_a, wait_x, twice_y, import_1, import_2):
    t = threading.Thread(target=with_id(f), daemon=True)
    threads[f.__name__] = t
    t.start()
    time.sleep(0.02)
time.sleep(0.4)
os.remove(os.path.join(where, "slow_module_of_this_test.py"))
os.rmdir(where)
with open(sys.argv[1], "w") as out:
    json.dump(ids, out)
print("ready", flush=True)
time.sleep(NAP)
