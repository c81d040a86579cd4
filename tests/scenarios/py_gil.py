"""scenario
section: host-lock (GIL_LOCK_INVERSION)
story: a Python program with native code stands still; two threads blame each other
proof: one thread takes a pthread mutex and then asks for the GIL, the other has the GIL and asks for the
       mutex, both through ctypes: PyDLL keeps the GIL during a call and CDLL gives it up
case: inversion class=deadlock hung=true culprit=tid settle=3
case: gil_held_computing class=busy-cpu hung=false culprit=tid settle=3
case: gil_held_sleeping class=idle|progressing|unknown hung=false settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes, threading, time
from scenario import *

free, held = ctypes.CDLL(None), ctypes.PyDLL(None)
mutex = ctypes.create_string_buffer(64)


def native_then_gil():
    culprit_thread()
    free.pthread_mutex_lock(mutex)  # returns here by taking the GIL again
    time.sleep(1)
    x = 0
    while True:  # runs Python for ever: needs the GIL
        x += 1


if case == "inversion":
    threading.Thread(target=native_then_gil, daemon=True).start()
    time.sleep(0.5)
    culprit_thread()
    ready()
    held.pthread_mutex_lock(mutex)  # keeps the GIL while it waits
elif case == "gil_held_computing":
    def burn():
        culprit_thread()
        import re
        re.match(r"(a+)+$", "a" * 64 + "b")  # exponential, all inside C, never gives the GIL up
    threading.Thread(target=burn, daemon=True).start()
    ready()
    time.sleep(0.5)
    print("never printed")
else:
    def nap():
        while True:
            held.usleep(100000)
    threading.Thread(target=nap, daemon=True).start()
    ready()
    while True:
        time.sleep(0.1)
