"""scenario
section: host-lock (SELF_DEADLOCK, HOST_LOCK_CYCLE), fork, signal
story: a Python program waits for a lock that was taken by acquire(), by a context manager, or in another process' life
proof: every lock is taken below by who the case says, and nobody releases it; the program is what it is by construction.
       An acquire() in a branch that was not taken, or a method that is merely passed on, takes nothing.
case: acquire_then_with class=lock-self hung=true culprit=tid
case: acquire_then_with38 args=acquire_then_with class=lock-self hung=true culprit=tid needs=python3.8,root
case: acquire_then_with313 args=acquire_then_with class=lock-self hung=true culprit=tid needs=python3.13,root
case: passed_on class=lock-orphaned|no-waker|unknown hung=any
case: untaken_branch class=no-waker|lock-orphaned|unknown hung=any
case: method_owner class=busy-cpu hung=false culprit=tid
case: generator_self class=lock-self hung=true culprit=tid
case: generator_self310 args=generator_self class=lock-self hung=true culprit=tid needs=python3.10,root
case: generator_self312 args=generator_self class=lock-self hung=true culprit=tid needs=python3.12,root
case: generator_ring class=deadlock hung=true
case: generator_loop class=idle|progressing|busy-cpu hung=false
case: guard_ring class=deadlock hung=true
case: guard_computes class=busy-cpu hung=false culprit=tid
case: exit_stack class=lock-self hung=true culprit=tid
case: exit_stack38 args=exit_stack class=lock-self hung=true culprit=tid needs=python3.8,root
case: exit_stack313 args=exit_stack class=lock-self hung=true culprit=tid needs=python3.13,root
case: weakref_callback class=lock-self hung=true culprit=tid
case: child_own_lock class=no-waker|lock-self hung=true culprit=pid
case: child_inherits class=lock-after-fork hung=true culprit=pid
"""
# SPDX-License-Identifier: Apache-2.0
import contextlib, os, threading, time, weakref
from scenario import *

a, b = threading.Lock(), threading.Lock()


def thread(f, *args):
    threading.Thread(target=f, args=args, daemon=True).start()


def stands():
    culprit_thread()
    ready()


def take(lock):
    lock.acquire()


@contextlib.contextmanager
def locked(lock):
    with lock:
        yield lock


class Guard:
    def __init__(self, lock):
        self.mutex = lock

    def __enter__(self):
        self.mutex.acquire()
        return self

    def __exit__(self, *_):
        self.mutex.release()


class Cache:
    def __init__(self):
        self.mutex = threading.Lock()

    def update(self):
        self.mutex.acquire()
        try:
            culprit_thread()
            compute()
        finally:
            self.mutex.release()

    def get(self):
        self.mutex.acquire()


def crossed(manager, first, second):
    with manager(first):
        time.sleep(0.3)
        with manager(second):
            pass


def untaken(strict):
    if strict:
        a.acquire()
    ready()
    a.acquire()


if case == "acquire_then_with":
    def twice():
        a.acquire()
        stands()
        with a:
            pass

    twice()
elif case == "passed_on":
    def passes():
        t = threading.Thread(target=a.acquire)
        t.start()
        t.join()
        ready()
        a.acquire()

    passes()
elif case == "untaken_branch":
    take(a)
    untaken(False)
elif case == "method_owner":
    cache = Cache()
    thread(cache.update)
    time.sleep(0.3)
    ready()
    cache.get()
elif case == "generator_self":
    with locked(a):
        stands()
        with locked(a):
            pass
elif case in ("generator_ring", "guard_ring"):
    manager = locked if case == "generator_ring" else Guard
    thread(crossed, manager, b, a)
    threading.Timer(0.5, ready).start()
    crossed(manager, a, b)
elif case == "generator_loop":
    def loop():
        while True:
            with locked(a):
                time.sleep(0.02)
            time.sleep(0.001)

    thread(loop)
    thread(loop)
    ready()
    loop()
elif case == "guard_computes":
    def owner():
        with Guard(a):
            culprit_thread()
            compute()

    thread(owner)
    time.sleep(0.3)
    ready()
    with Guard(a):
        pass
elif case == "exit_stack":
    with contextlib.ExitStack() as stack:
        for _ in range(30):
            stack.enter_context(threading.Lock())
        stack.enter_context(locked(a))
        stands()
        a.acquire()
elif case == "weakref_callback":
    class Thing:
        pass

    def forget(_):
        with a:
            pass

    thing = Thing()
    ref = weakref.ref(thing, forget)
    with a:
        stands()
        del thing
elif case.startswith("child"):
    def hold():
        with a:
            time.sleep(1000)

    if case == "child_inherits":
        thread(hold)
        time.sleep(0.2)
    pid = os.fork()
    if pid == 0:
        tell(f"culprit_pid {os.getpid()}")
        lock = a if case == "child_inherits" else threading.Lock()
        if case == "child_own_lock":
            take(lock)
        take(lock)
    time.sleep(0.3)
    ready()
    os.waitpid(pid, 0)
