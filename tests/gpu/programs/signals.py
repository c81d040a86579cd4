# SPDX-License-Identifier: Apache-2.0
"""Threads in calls that a signal would interrupt, and main stuck in a sync; then one signal comes."""
import ctypes, os, threading, torch

libc = ctypes.CDLL(None, use_errno=True)


def watch(name, call):
    while True:
        r = call()
        e = ctypes.get_errno()
        if r == -1 and e == 4:
            print("EINTR in", name, flush=True)


torch.zeros(1, device="cuda")


class Ts(ctypes.Structure):
    _fields_ = [("s", ctypes.c_long), ("n", ctypes.c_long)]


ep = libc.epoll_create1(0)
buf = ctypes.create_string_buffer(64)
for name, call in [("epoll_wait", lambda: libc.epoll_wait(ep, buf, 1, 20000)),
                   ("poll", lambda: libc.poll(None, 0, 20000)),
                   ("nanosleep", lambda: libc.nanosleep(ctypes.byref(Ts(20, 0)), None))]:
    threading.Thread(target=watch, args=(name, call), daemon=True).start()
torch.cuda._sleep(2**62)
open(os.environ["READY_FILE"], "w").write("x")
torch.cuda.synchronize()
