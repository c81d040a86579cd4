"""scenario
section: dead-peer (DEAD_WORKER)
story: a data loader with worker processes never delivers the next batch
proof: the worker is killed, stopped, set to compute or left silent by this file, with its pid written down.
       A multiprocessing queue's reader keeps the write end open itself, so no end of file ever comes.
case: killed class=peer-dead hung=true culprit=pid settle=3
case: stopped class=stopped hung=true culprit=pid settle=3
case: computing class=busy-cpu hung=false culprit=pid settle=3
case: asleep class=idle|peer-silent|progressing hung=any settle=3
"""
# SPDX-License-Identifier: Apache-2.0
import multiprocessing as mp, os, signal, time
from scenario import *


def worker(tasks, batches):
    tell(f"culprit_pid {os.getpid()}")
    while True:
        i = tasks.get()
        if i == 3:
            if case == "computing":
                s = 0
                while True:
                    s = (s * 31 + 7) % 1000003
            time.sleep(10000)
        batches.put(i)


if __name__ == "__main__":
    ctx = mp.get_context("fork")
    tasks, batches = ctx.SimpleQueue(), ctx.Queue()
    p = ctx.Process(target=worker, args=(tasks, batches), daemon=True)
    p.start()
    for i in range(4):
        tasks.put(i)
    for i in range(3):
        batches.get()
    time.sleep(0.5)
    if case == "killed":
        os.kill(p.pid, signal.SIGKILL)
    if case == "stopped":
        os.kill(p.pid, signal.SIGSTOP)
    ready()
    batches.get()
