"""scenario
section: host-lock, signal
story: a Python program stands still at 0 % CPU
proof: the threads below take threading locks in the order written; the truth follows from the source
case: rlock_cycle class=deadlock hung=true user=deadlock settle=3
case: lock_cycle class=deadlock|no-waker hung=true settle=3
case: lock_self class=lock-self|no-waker hung=true settle=3
case: queue_nobody class=no-waker hung=true settle=3
case: queue_producer_stuck class=deadlock|lock-self|no-waker hung=true settle=3
case: queue_producer_works class=busy-cpu|progressing hung=false settle=3
case: join_stuck class=no-waker|lock-self hung=true settle=3
case: join_timer class=idle|progressing hung=false settle=2
case: event_timer class=idle|progressing hung=false settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import queue, threading, time
from scenario import *

a, b = (threading.RLock(), threading.RLock()) if case == "rlock_cycle" else (threading.Lock(), threading.Lock())
q = queue.Queue()


def other():
    with b:
        time.sleep(0.5)
        with a:
            pass


def producer():
    if case == "queue_producer_stuck":
        with a:
            with a:
                q.put(1)
    s = 0
    while True:
        s = (s * 31 + 7) % 1000003


if case in ("rlock_cycle", "lock_cycle"):
    threading.Thread(target=other).start()
    with a:
        time.sleep(0.3)
        ready()
        with b:
            pass
elif case == "lock_self":
    with a:
        ready()
        with a:
            pass
elif case == "queue_nobody":
    ready()
    q.get()
elif case.startswith("queue_producer"):
    threading.Thread(target=producer, daemon=True).start()
    ready()
    q.get()
elif case == "join_stuck":
    def stuck():
        with a:
            a.acquire()
    t = threading.Thread(target=stuck)
    t.start()
    ready()
    t.join()
elif case == "join_timer":
    t = threading.Thread(target=lambda: time.sleep(1000))
    t.start()
    ready()
    t.join()
else:
    e = threading.Event()
    def tick():
        while True:
            time.sleep(0.05)
            e.set()
    threading.Thread(target=tick, daemon=True).start()
    ready()
    while True:
        e.wait()
        e.clear()
