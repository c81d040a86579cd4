"""scenario
section: slow-not-hung (FALSE_ALARM_BUFFERED_LOG)
story: the log has been silent since the start: stalled, or only buffered?
proof: print() to a file is block-buffered by Python; the loop below counts on, or stops in a lock after some lines
case: buffered class=log-buffered hung=false settle=3
case: stuck class=lock-self|no-waker hung=true settle=3
case: flushed class=progressing|busy-cpu|idle hung=false settle=3
"""
# SPDX-License-Identifier: Apache-2.0
import sys, threading, time
from scenario import *

lock = threading.Lock()
if case != "stuck":
    ready()
step = 0
while True:
    step += 1
    print("step", step, flush=case == "flushed")
    t = time.perf_counter()
    while time.perf_counter() - t < 0.05:
        sum(range(1000))
    if case == "stuck" and step == 20:
        with lock:
            ready()
            lock.acquire()
