"""scenario
section: host-lock, dead-peer (DEAD_WORKER), fork
story: a program with worker processes waits for a lock, a result or the end of a worker
proof: what each worker does is written below; whoever dies or is stopped has written its pid before. Nobody else can release
       the lock, run the task or give the answer.
case: lock_killed class=lock-orphaned hung=true culprit=pid
case: lock_killed38 args=lock_killed class=lock-orphaned hung=true culprit=pid needs=python3.8,root
case: lock_killed_spawn class=lock-orphaned hung=true culprit=pid settle=3
case: value_killed class=lock-orphaned hung=true culprit=pid
case: lock_stopped class=stopped hung=true culprit=pid
case: lock_computing class=busy-cpu hung=false culprit=pid
case: semaphore_killed class=peer-dead|no-waker|unknown hung=any
case: callback_raises class=no-waker hung=true
case: pool_inherits_lock class=lock-after-fork hung=true culprit=pid
case: pool_maps class=busy-cpu|progressing|idle hung=false
case: task_lost class=no-waker|peer-dead|unknown hung=any settle=3
case: sleeper_beside class=stopped hung=true culprit=pid
case: forkserver_stopped class=stopped hung=true culprit=pid settle=3
case: forkserver_computing class=busy-cpu hung=false culprit=pid settle=3
case: own_promise class=busy-cpu hung=false culprit=tid
case: shutdown_event class=no-waker hung=true phase=teardown
case: shutdown_event313 args=shutdown_event class=no-waker hung=true phase=teardown needs=python3.13,root
"""
# SPDX-License-Identifier: Apache-2.0
import concurrent.futures as cf, multiprocessing as mp, os, signal, threading, time
from scenario import *

how = case.split("_")[1]


def end(how):
    tell(f"culprit_pid {os.getpid()}")
    if how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "computing":
        compute()
    else:
        os.kill(os.getpid(), signal.SIGKILL)


def inside(lock, how):
    with lock:
        end(how)


def item(i):
    time.sleep(0.01)
    return i


inherited = threading.Lock()


def takes_inherited(_):
    tell(f"culprit_pid {os.getpid()}")
    with inherited:
        pass


def sleeps(lock):
    with lock:
        time.sleep(1000)


if __name__ == "__main__":
    context = mp.get_context("spawn" if case.endswith("spawn") else "forkserver" if case.startswith("forkserver") else "fork")
    if case.startswith("lock") or case == "value_killed":
        lock = context.Value("i", 0).get_lock() if case == "value_killed" else context.Lock()
        context.Process(target=inside, args=(lock, how)).start()
        while lock.acquire(False):  # the other one has not got it yet
            lock.release()
            time.sleep(0.05)
        time.sleep(0.5)
        ready()
        lock.acquire()
    elif case == "semaphore_killed":
        semaphore = context.Semaphore(0)
        context.Process(target=end, args=("killed",)).start()
        time.sleep(0.3)
        ready()
        semaphore.acquire()
    elif case == "callback_raises":
        def callback(_):
            raise ValueError("the thread that hands out results ends with this")

        threading.excepthook = lambda *_: None
        with context.Pool(2) as pool:
            pool.apply_async(item, (1,), callback=callback)
            time.sleep(0.3)
            late = pool.apply_async(item, (2,))
            ready()
            late.get()
    elif case == "pool_inherits_lock":
        threading.Thread(target=sleeps, args=(inherited,), daemon=True).start()
        time.sleep(0.2)
        with context.Pool(1) as pool:
            result = pool.apply_async(takes_inherited, (0,))
            time.sleep(0.4)
            ready()
            result.get()
    elif case == "pool_maps":
        with context.Pool(2) as pool:
            ready()
            while True:
                pool.map(item, range(20))
    elif case == "task_lost":  # the worker that had the task ended and was replaced
        with context.Pool(2) as pool:
            result = pool.apply_async(end, ("killed",))
            time.sleep(0.7)
            ready()
            result.get()
    elif case == "sleeper_beside":
        threading.Thread(target=sleeps, args=(inherited,), daemon=True).start()
        with cf.ProcessPoolExecutor(1, mp_context=context) as pool:
            future = pool.submit(end, "stopped")
            time.sleep(0.4)
            ready()
            future.result()
    elif case.startswith("forkserver"):
        process = context.Process(target=end, args=(how,))
        process.start()
        time.sleep(1)
        ready()
        process.join()
    elif case == "own_promise":  # a future that a thread of the program's own will complete
        pool = cf.ThreadPoolExecutor(2)
        pool.submit(int).result()

        def works():
            culprit_thread()
            compute()

        threading.Thread(target=works, daemon=True).start()
        time.sleep(0.3)
        ready()
        cf.Future().result()
    elif case == "shutdown_event":
        threading.Thread(target=threading.Event().wait).start()
        ready()
