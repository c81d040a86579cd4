"""scenario
section: host-lock (HOST_LOCK_CYCLE), dead-peer (DEAD_WORKER), rendezvous (BARRIER_COUNT)
story: a Python program with pools, futures, conditions and barriers delivers nothing more
proof: what each pool thread or worker does is written below, with its id; nobody else refers to the objects.
       A lock of Python names no owner, and where the one who should act is alive and busy elsewhere the evidence may not decide.
case: nested_submit class=deadlock hung=true settle=2
case: nested_submit_room class=busy-cpu|progressing|idle hung=false settle=2
case: executor_stopped class=stopped hung=true culprit=pid settle=2
case: executor_computing class=busy-cpu hung=false culprit=pid settle=2
case: executor_stuck class=lock-self|no-waker hung=true settle=2
case: pool_worker_killed class=peer-dead|no-waker|unknown hung=any settle=3
case: pool_worker_stopped class=stopped hung=true culprit=pid settle=2
case: pool_initializer_loop class=busy-cpu|progressing|resource-exhausted|spin-wait|unknown hung=any settle=3
case: condition_nobody class=no-waker hung=true settle=2
case: barrier_short class=no-waker hung=true settle=2
case: barrier_third_computes class=busy-cpu|unknown hung=any settle=2
case: semaphore_held_computing class=busy-cpu|unknown hung=any settle=2
case: queue_join class=no-waker|deadlock hung=true settle=2
case: event_other_works class=busy-cpu|unknown|progressing hung=any settle=2
case: future_chain class=deadlock|no-waker hung=true settle=2
case: timer_thread class=idle|progressing hung=false settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures as cf, multiprocessing as mp, os, queue, signal, threading, time
from scenario import *


def item(i):
    time.sleep(0.03)
    return i


def bad_item(how):
    tell(f"culprit_pid {os.getpid()}")
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "computing":
        compute()
    elif how == "stuck":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


def dies_at_start():
    os._exit(1)


if case.startswith("nested_submit"):
    pool = cf.ThreadPoolExecutor(max_workers=1 if case == "nested_submit" else 2)

    def outer():
        return pool.submit(item, 1).result()

    ready()
    while True:
        pool.submit(outer).result()
elif case.startswith("executor_"):
    with cf.ProcessPoolExecutor(max_workers=1, mp_context=mp.get_context("fork")) as pool:
        pool.submit(item, 1).result()
        waiting = pool.submit(bad_item, case.split("_")[1])
        time.sleep(0.5)
        ready()
        waiting.result()
elif case.startswith("pool_"):
    ctx = mp.get_context("fork")
    if case == "pool_initializer_loop":  # every worker ends at once and is started again, for ever
        ready()
        ctx.Pool(1, initializer=dies_at_start).map(item, range(4))
    pool = ctx.Pool(2)
    pool.map(item, range(8))
    waiting = pool.apply_async(bad_item, (case.split("_")[2],))
    time.sleep(0.7)
    ready()
    waiting.get()
elif case == "condition_nobody":
    c = threading.Condition()
    with c:
        ready()
        c.wait()
elif case in ("barrier_short", "barrier_third_computes"):
    b = threading.Barrier(3)
    threading.Thread(target=b.wait, daemon=True).start()
    if case == "barrier_third_computes":
        threading.Thread(target=lambda: (compute(), b.wait()), daemon=True).start()
    ready()
    b.wait()
elif case == "semaphore_held_computing":
    s = threading.Semaphore(1)

    def holder():
        with s:
            compute()

    threading.Thread(target=holder, daemon=True).start()
    time.sleep(0.3)
    ready()
    s.acquire()
elif case == "queue_join":
    q = queue.Queue()

    def worker():
        while True:
            q.get()  # and never task_done()

    threading.Thread(target=worker, daemon=True).start()
    q.put(1)
    ready()
    q.join()
elif case == "event_other_works":
    e = threading.Event()
    threading.Thread(target=compute, daemon=True).start()  # does not know the event
    ready()
    e.wait()
elif case == "future_chain":  # a's result needs b's, and b's needs a's
    pool = cf.ThreadPoolExecutor(2)
    started = queue.Queue()
    a = pool.submit(lambda: started.get().result())
    b = pool.submit(lambda: a.result())
    started.put(b)
    time.sleep(0.3)
    ready()
    a.result()
elif case == "timer_thread":
    done = threading.Event()

    def tick():
        threading.Timer(0.3, tick).start()

    tick()
    ready()
    while not done.wait(0.5):
        pass
