"""scenario
section: host-lock (GIL_LOCK_INVERSION across processes)
story: two ranks stand still, each in another place, at 0 % CPU
proof: rank 1's main thread keeps the GIL (PyDLL) inside pthread_join of a thread that needs it for its next line; rank 0 waits for rank 1's
       message. In the twins the GIL is given up (CDLL), or the thread that is joined computes.
case: join_with_gil class=deadlock hung=true settle=2
case: asked_at_other class=deadlock hung=true settle=2
case: join_without_gil class=busy-cpu hung=false culprit=tid settle=2
case: gil_in_read class=deadlock hung=true settle=2
case: ranks_read_each_other class=deadlock hung=true settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes, os, socket, threading, time
from scenario import *

keeps, gives = ctypes.PyDLL(None), ctypes.CDLL(None)
a, b = socket.socketpair()
silent_r, silent_w = os.pipe()


def background():
    time.sleep(0.3)
    if case == "join_without_gil":
        culprit_thread()
        compute()
    b.send(b"gradient")  # never reached: needs the GIL


def rank1():
    a.close()
    if case == "ranks_read_each_other":
        b.recv(1)
    if case == "gil_in_read":  # holds the GIL in read(2) of a pipe which only a thread that needs the GIL writes
        def writes():
            time.sleep(0.3)
            os.write(silent_w, b"x")
            b.send(b"x")

        threading.Thread(target=writes).start()
        keeps.read(silent_r, ctypes.create_string_buffer(1), 1)
    native = ctypes.create_string_buffer(8)
    entry = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)(lambda _: background())  # a C thread that calls Python
    keeps.pthread_create(native, None, entry, None)
    thread = ctypes.c_ulong(int.from_bytes(native.raw, "little"))
    (gives if case == "join_without_gil" else keeps).pthread_join(thread, None)


pid = os.fork()
if pid == 0:
    rank1()
    os._exit(0)
b.close()
os.close(silent_w)
if case == "join_with_gil":
    tell(f"ask_pid {pid}")
time.sleep(0.6)
ready()
a.recv(8)
