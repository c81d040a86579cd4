# SPDX-License-Identifier: Apache-2.0
"""shared.py OUT: a multiprocessing.Lock held by this process by acquire(); a forked child wants it."""
import json
import multiprocessing
import os
import sys
import threading
import time

free = multiprocessing.Lock()


def want(lock):
    with free:
        pass
    lock.acquire()


def main():
    context = multiprocessing.get_context("fork")
    lock = context.Lock()
    lock.acquire()
    child = context.Process(target=want, args=(lock,), daemon=True)
    child.start()
    time.sleep(0.3)
    with open(sys.argv[1], "w") as out:
        json.dump({"holder": threading.get_native_id(), "child": child.pid}, out)
    print("ready", flush=True)
    child.join()


main()
