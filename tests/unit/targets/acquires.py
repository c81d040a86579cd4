# SPDX-License-Identifier: Apache-2.0
"""acquires.py OUT: locks taken by acquire(), some given back, some not, written differently."""
import json
import sys
import threading
import time

NAP = 100000
ids = {}
G, R, S, W, A, B = (threading.Lock() for _ in range(6))
C = threading.Condition(threading.Lock())


class Box:
    def __init__(self):
        self.lock = threading.Lock()
        self.inner = None

    def hold(self):
        self.lock.acquire()
        time.sleep(NAP)

    def want(self):
        self.lock.acquire()


box = Box()
box.inner = Box()


def hold_global():
    G.acquire()
    try:
        for _ in range(1000):
            time.sleep(NAP)
    finally:
        G.release()


def want_global():
    G.acquire()


def hold_box():
    box.hold()


def want_box():
    box.want()


def hold_inner():
    box.inner.lock.acquire()
    time.sleep(NAP)


def want_inner():
    with box.inner.lock:
        pass


def make_closure():
    lock = threading.Lock()

    def hold_closure():
        lock.acquire(timeout=-1)
        time.sleep(NAP)

    def want_closure():
        lock.acquire()
    return hold_closure, want_closure


hold_closure, want_closure = make_closure()


def hold_cond():
    C.acquire()
    time.sleep(NAP)


def want_cond():
    with C:
        pass


def gave_back():  # not the holder: it has released before it sleeps
    R.acquire()
    R.release()
    time.sleep(NAP)


def takes_and_ends():
    R.acquire()


def want_released():
    R.acquire()


def twice():
    S.acquire()
    S.acquire()


def many_loops():
    while True:
        W.acquire()
        W.release()
        W.acquire()
        time.sleep(NAP)
        W.release()


def want_loops():
    W.acquire()


def ab():
    A.acquire()
    time.sleep(0.3)
    B.acquire()


def ba():
    B.acquire()
    time.sleep(0.3)
    A.acquire()


def with_id(f):
    def run():
        ids[f.__name__] = threading.get_native_id()
        f()
    return run


for f in (hold_global, hold_box, hold_inner, hold_closure, hold_cond, gave_back, takes_and_ends, many_loops,
          twice, ab, ba, want_global, want_box, want_inner, want_closure, want_cond, want_released,
          want_loops):
    threading.Thread(target=with_id(f), daemon=True).start()
    time.sleep(0.02)
time.sleep(0.6)
with open(sys.argv[1], "w") as out:
    json.dump(ids, out)
print("ready", flush=True)
time.sleep(NAP)
