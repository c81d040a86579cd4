"""scenario
section: host-lock (GIL_LOCK_INVERSION), teardown, rendezvous
story: the same few hangs and non-hangs in each interpreter
proof: an RLock names its owner by construction; the GIL is kept by a regular expression that cannot end, or nobody needs it
case: rlock38 args=rlock class=deadlock hung=true needs=python3.8,root settle=2
case: rlock39 args=rlock class=deadlock hung=true needs=python3.9,root settle=2
case: rlock310 args=rlock class=deadlock hung=true needs=python3.10,root settle=2
case: rlock311 args=rlock class=deadlock hung=true needs=python3.11,root settle=2
case: rlock312 args=rlock class=deadlock hung=true needs=python3.12,root settle=2
case: rlock313 args=rlock class=deadlock hung=true needs=python3.13,root settle=2
case: gil38 args=gil class=busy-cpu hung=false culprit=tid needs=python3.8,root settle=2
case: gil310 args=gil class=busy-cpu hung=false culprit=tid needs=python3.10,root settle=2
case: gil312 args=gil class=busy-cpu hung=false culprit=tid needs=python3.12,root settle=2
case: gil313 args=gil class=busy-cpu hung=false culprit=tid needs=python3.13,root settle=2
case: nested39 args=nested class=deadlock hung=true needs=python3.9,root settle=2
case: nested312 args=nested class=deadlock hung=true needs=python3.12,root settle=2
case: nested313 args=nested class=deadlock hung=true needs=python3.13,root settle=2
case: fork38 args=fork class=lock-after-fork hung=true culprit=pid needs=python3.8,root settle=2
case: fork313 args=fork class=lock-after-fork hung=true culprit=pid needs=python3.13,root settle=2
case: exit310 args=exit class=busy-cpu hung=false culprit=tid phase=teardown needs=python3.10,root settle=2
case: exit313 args=exit class=busy-cpu hung=false culprit=tid phase=teardown needs=python3.13,root settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures as cf, os, re, threading, time
from scenario import *

a, b = threading.RLock(), threading.RLock()


def other():
    with b:
        time.sleep(0.5)
        with a:
            pass


def burns():
    culprit_thread()
    ready()
    re.match(r"(a+)+$", "a" * 64 + "b")


def computes():
    culprit_thread()
    compute()


def holds(lock):
    with lock:
        time.sleep(1000)


if case == "rlock":
    threading.Thread(target=other, daemon=True).start()
    with a:
        time.sleep(0.7)
        ready()
        with b:
            pass
elif case == "gil":
    threading.Thread(target=burns, daemon=True).start()
    while True:
        time.sleep(0.1)
elif case == "nested":
    pool = cf.ThreadPoolExecutor(1)
    outer = pool.submit(lambda: pool.submit(int).result())
    time.sleep(0.3)
    ready()
    outer.result()
elif case == "fork":
    lock = threading.Lock()
    threading.Thread(target=holds, args=(lock,), daemon=True).start()
    time.sleep(0.2)
    pid = os.fork()
    if pid == 0:
        tell(f"culprit_pid {os.getpid()}")
        lock.acquire()
    time.sleep(0.3)
    ready()
    os.waitpid(pid, 0)
elif case == "exit":
    threading.Thread(target=computes).start()
    time.sleep(0.3)
    ready()
