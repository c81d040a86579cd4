"""scenario
section: fork (FORK_INHERITED_LOCK), signal (SIGNAL_SELF_DEADLOCK), host-lock
story: a Python program stands still in a place where nobody wrote a wait: a destructor, a handler, an import, a worker's first line
proof: who took the lock, in which thread and process, is written below. A lock of Python names no owner.
case: child_takes_lock class=lock-after-fork hung=true culprit=pid settle=2
case: child_takes_own_lock class=lock-self|no-waker hung=true culprit=pid settle=2
case: child_free_lock class=busy-cpu hung=false culprit=pid settle=2
case: handler_lock class=lock-self|no-waker hung=true settle=2
case: finalizer_lock class=lock-self|no-waker hung=true settle=2
case: import_join class=deadlock|no-waker hung=true settle=2
case: import_computing class=busy-cpu hung=false culprit=tid settle=2
case: mp_lock_killed class=lock-orphaned|peer-dead|no-waker|unknown hung=any settle=2
case: mp_lock_computing class=busy-cpu|unknown hung=any settle=2
case: spawned_child_lock class=lock-self|no-waker hung=true culprit=pid settle=3
case: logging_handler_cycle class=deadlock hung=true settle=2
case: stdout_pipe_stopped class=stopped hung=true culprit=pid settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import logging, multiprocessing as mp, os, signal, subprocess, sys, threading, time
from scenario import *

lock = threading.Lock()


def holds():
    with lock:
        time.sleep(1000)


def child_main():
    tell(f"culprit_pid {os.getpid()}")
    if case == "child_takes_own_lock":
        with lock:
            lock.acquire()
    if case != "child_free_lock":
        lock.acquire()
    compute()


def spawned():
    tell(f"culprit_pid {os.getpid()}")
    lock.acquire()
    ready()
    lock.acquire()


def takes(shared, how):
    shared.acquire()
    tell(f"culprit_pid {os.getpid()}")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    compute()


class Node:
    def __init__(self):
        self.me = self

    def __del__(self):
        ready()
        with lock:
            pass


class Handler(logging.Handler):
    def emit(self, record):
        time.sleep(0.3)
        with app:
            pass


app = threading.RLock()
if __name__ == "__main__":
    if case.startswith("child_"):
        if case == "child_takes_lock":
            threading.Thread(target=holds, daemon=True).start()
            time.sleep(0.3)
        pid = os.fork()
        if pid == 0:
            child_main()
        time.sleep(0.5)
        ready()
        os.waitpid(pid, 0)
    elif case == "handler_lock":
        def on_term(*_):
            ready()
            with lock:
                pass

        signal.signal(signal.SIGTERM, on_term)
        with lock:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1000)
    elif case == "finalizer_lock":  # the collector runs a destructor at a moment when this thread has the lock
        import gc
        Node()
        with lock:
            gc.collect()
    elif case in ("import_join", "import_computing"):
        os.makedirs("mods", exist_ok=True)
        with open("mods/plugin_a.py", "w") as f:
            f.write("import threading\ndef load():\n    import plugin_a\n    plugin_a.x\n"
                    "t = threading.Thread(target=load)\nt.start()\nt.join()\nx = 1\n" if case == "import_join" else
                    "import scenario\nscenario.culprit_thread()\nscenario.ready()\nscenario.compute()\n")
        sys.path.insert(0, "mods")

        def late():
            time.sleep(0.3)
            import plugin_a  # noqa: F401

        t = threading.Thread(target=late, daemon=True)
        t.start()
        if case == "import_join":
            ready()
            import plugin_a  # noqa: F401
        else:
            threading.Thread(target=lambda: __import__("plugin_a"), daemon=True).start()
            t.join()
    elif case.startswith("mp_lock"):
        ctx = mp.get_context("fork")
        shared = ctx.Lock()
        p = ctx.Process(target=takes, args=(shared, case[8:]))
        p.start()
        time.sleep(0.6)
        ready()
        shared.acquire()
    elif case == "spawned_child_lock":
        p = mp.get_context("spawn").Process(target=spawned)
        p.start()
        p.join()
    elif case == "logging_handler_cycle":  # the handler's lock (RLock) and the application's, in both orders
        log = logging.getLogger("job")
        log.addHandler(Handler())

        def worker():
            log.warning("step")

        threading.Thread(target=worker, daemon=True).start()
        time.sleep(0.1)
        with app:
            time.sleep(0.5)
            ready()
            log.warning("state")
    elif case == "stdout_pipe_stopped":  # the log collector is stopped; print() is where the program stands
        p = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        os.kill(p.pid, signal.SIGSTOP)
        tell(f"culprit_pid {p.pid}")
        os.dup2(p.stdin.fileno(), 1)
        ready()
        while True:
            print("step" * 100)
