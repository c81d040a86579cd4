"""scenario
section: host-lock, io, file-lock, stopped, dead-peer
story: a job script hangs; the cause is five links away, in a process that nobody has heard of
proof: launcher -wait-> rank -thread join-> thread -socket-> store -what the case says-> the last one, all started below
case: flock_stopped class=stopped hung=true culprit=pid settle=2
case: flock_computing class=busy-cpu hung=false culprit=pid settle=2
case: flock_cycle class=deadlock hung=true settle=2
case: pipe_killed class=peer-dead hung=true culprit=pid settle=2
case: shm_lock_stopped class=stopped hung=true culprit=pid settle=2
case: fifo_frozen_tracer class=stopped hung=true culprit=pid settle=2
case: healthy class=progressing|idle|busy-cpu hung=false settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes, fcntl, mmap, os, signal, socket, threading, time
from scenario import *

libc = ctypes.CDLL(None)
a, b = socket.socketpair()
to_last, from_last = os.pipe(), os.pipe()
shared = mmap.mmap(-1, 4096)
mutex = ctypes.addressof(ctypes.c_char.from_buffer(shared))
attr = ctypes.create_string_buffer(64)
libc.pthread_mutexattr_init(attr)
libc.pthread_mutexattr_setpshared(attr, 1)
libc.pthread_mutex_init(ctypes.c_void_p(mutex), attr)


def last():
    a.close(), b.close()
    os.close(from_last[0])
    os.close(to_last[1])
    tell(f"culprit_pid {os.getpid()}")
    if case.startswith("flock"):
        f = open("last.lock", "w")
        fcntl.flock(f, fcntl.LOCK_EX)
    if case.startswith("shm"):
        libc.pthread_mutex_lock(ctypes.c_void_p(mutex))
    os.write(from_last[1], b"up")
    if case.endswith("stopped"):
        os.kill(os.getpid(), signal.SIGSTOP)
    if case.endswith("computing"):
        compute()
    if case.endswith("killed"):
        if os.fork() == 0:
            signal.pause()
        os.kill(os.getpid(), signal.SIGKILL)
    if case == "fifo_frozen_tracer":  # another process attaches to this one and goes to sleep
        libc.prctl(0x59616d61, ctypes.c_ulong(-1 & (2**64 - 1)), 0, 0, 0)
        me = os.getpid()
        if os.fork() == 0:
            libc.ptrace(0x4206, me, None, None)
            libc.ptrace(0x4207, me, None, None)
            signal.pause()
    while case == "healthy":
        time.sleep(0.02)
        os.write(from_last[1], b"x")
    os.read(to_last[0], 1)  # what the launcher would send after its wait


def store():
    a.close()
    os.close(to_last[1])
    while True:
        b.recv(1)
        if case.startswith("flock"):
            fcntl.flock(open("last.lock", "w"), fcntl.LOCK_EX)
        elif case.startswith("shm"):
            libc.pthread_mutex_lock(ctypes.c_void_p(mutex))
        else:
            os.read(from_last[0], 1)
        b.send(b"!")


def rank():
    os.close(from_last[0])
    os.close(to_last[0])
    os.close(to_last[1])

    def asks():
        while True:
            a.send(b"?")
            a.recv(1)

    t = threading.Thread(target=asks)
    t.start()
    t.join()


def start(main):
    pid = os.fork()
    if pid == 0:
        main()
        os._exit(0)
    return pid


start(last)
os.close(from_last[1])
os.read(from_last[0], 2)
time.sleep(0.2)
start(store)
b.close()
pid = start(rank)
a.close()
os.close(from_last[0])
os.close(to_last[0])
time.sleep(0.5)
ready()
os.waitpid(pid, 0)
os.write(to_last[1], b"!")
