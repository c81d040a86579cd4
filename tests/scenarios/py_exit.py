"""scenario
section: teardown (EXIT_JOIN, TEARDOWN)
story: training is done and says so, and the process never goes away
proof: main's last line is reached before `ready`; what is joined at exit, and what that thread or child then
       waits for, is written below
case: thread_waits_for_atexit class=deadlock|no-waker hung=true phase=teardown settle=2
case: thread_computing class=busy-cpu hung=false culprit=tid phase=teardown settle=2
case: thread_reads_silent class=peer-silent hung=true culprit=pid phase=teardown settle=2
case: child_joined class=deadlock hung=true phase=teardown settle=2
case: child_computing class=busy-cpu hung=false culprit=pid phase=teardown settle=2
case: queue_feeder class=deadlock hung=true settle=2
case: atexit_stopped_child class=stopped hung=true culprit=pid settle=2
case: executor_at_exit class=no-waker|lock-self|deadlock hung=true phase=teardown settle=2
case: daemon_only class=busy-cpu|progressing hung=false settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import atexit, concurrent.futures as cf, multiprocessing as mp, os, queue, signal, subprocess, threading, time
from scenario import *

stop = threading.Event()


def helper():
    if case == "thread_computing":
        culprit_thread()
        compute()
    stop.wait()


def child_reads(conn):
    conn.recv()  # the parent's goodbye, which it sends in an atexit function registered too early


def child_computes():
    tell(f"culprit_pid {os.getpid()}")
    compute()


if case in ("thread_waits_for_atexit", "thread_computing"):
    atexit.register(stop.set)
    threading.Thread(target=helper, name="pipeline").start()
elif case == "thread_reads_silent":
    r, w = os.pipe()
    p = subprocess.Popen(["sleep", "1000"], pass_fds=[w])
    tell(f"culprit_pid {p.pid}")
    os.close(w)
    threading.Thread(target=os.read, args=(r, 1)).start()
elif case == "child_joined":
    ctx = mp.get_context("fork")
    mine, theirs = ctx.Pipe()
    atexit.register(mine.send, None)  # runs after multiprocessing's own, which joins the child
    import multiprocessing.util  # noqa: F401
    atexit.unregister(mp.util._exit_function)
    atexit.register(mp.util._exit_function)
    ctx.Process(target=child_reads, args=(theirs,)).start()
elif case == "child_computing":
    mp.get_context("fork").Process(target=child_computes).start()
elif case == "queue_feeder":  # joins the child before it has taken what the child put
    ctx = mp.get_context("fork")
    q = ctx.Queue()
    p = ctx.Process(target=lambda: [q.put(b"x" * 100000) for _ in range(10)])
    p.start()
    time.sleep(0.5)
    ready()
    p.join()
elif case == "atexit_stopped_child":
    p = subprocess.Popen(["sleep", "1000"])
    os.kill(p.pid, signal.SIGSTOP)
    tell(f"culprit_pid {p.pid}")
    atexit.register(p.wait)
elif case == "executor_at_exit":  # concurrent.futures joins its threads before anybody could put
    q = queue.Queue()
    pool = cf.ThreadPoolExecutor(1)
    pool.submit(q.get)
elif case == "daemon_only":
    threading.Thread(target=helper, daemon=True).start()
    ready()
    compute()
time.sleep(0.3)
ready()
