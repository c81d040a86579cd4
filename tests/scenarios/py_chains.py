"""scenario
section: rendezvous (STORE_RENDEZVOUS, RPC_NO_TIMEOUT), dead-peer, host-lock
story: a client waits for a reply, across two or three processes and sockets
proof: the last process in the chain does what its case says and writes its pid; the ones before it only forward
case: unix_end_stopped class=stopped hung=true culprit=pid settle=2
case: unix_end_computing class=busy-cpu hung=false culprit=pid settle=2
case: unix_end_locked class=lock-self|no-waker hung=true culprit=pid settle=2
case: unix_end_silent class=peer-silent hung=true culprit=pid settle=2
case: unix_end_file_lock class=file-lock hung=true culprit=pid settle=2
case: unix_served class=idle|progressing|busy-cpu hung=false settle=2
case: tcp_end_stopped class=stopped hung=true culprit=pid settle=2
case: tcp_end_killed_leaked class=peer-dead hung=true culprit=pid settle=2
case: tcp_end_computing class=busy-cpu hung=false culprit=pid settle=2
case: each_calls_other class=deadlock hung=true settle=2
case: store_waits_for_rank class=peer-silent hung=true culprit=pid settle=2
case: store_stuck class=lock-self|no-waker hung=true culprit=pid settle=2
case: threaded_server class=lock-self|no-waker hung=true culprit=pid settle=2
case: udp_lost class=peer-silent|no-waker|unknown hung=any settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import fcntl, os, select, signal, socket, subprocess, sys, threading, time
from scenario import *

kind, _, what = case.partition("_end_")


def listener(name):
    if case.startswith("tcp") or case.startswith("store"):
        s = socket.create_server(("127.0.0.1", 0))
        return s, s.getsockname()
    s = socket.socket(socket.AF_UNIX)
    s.bind(name)
    s.listen()
    return s, name


def call(address):
    s = socket.socket(socket.AF_UNIX if isinstance(address, str) else socket.AF_INET)
    s.connect(address)
    s.sendall(b"?")
    return s.recv(1)


def serves(s, how):
    """A server in a process of its own: forwards to `how`, or ends the chain."""
    pid = os.fork()
    if pid:
        s.close()
        return pid
    while True:
        c, _ = s.accept()
        c.recv(1)
        c.sendall(how() or b"!")
        c.close()


def end():
    if case == "unix_served":
        time.sleep(0.05)
        return b"!"
    tell(f"culprit_pid {os.getpid()}")
    if what == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "computing":
        compute()
    elif what == "locked":
        lock = threading.Lock()
        with lock:
            lock.acquire()
    elif what == "file_lock":
        p = subprocess.Popen([sys.executable, "-c", "import fcntl,signal\nf=open('store.lock','w')\nfcntl.flock(f,2)\nprint(1,flush=True)\n"
                              "signal.pause()"], stdout=subprocess.PIPE)
        p.stdout.readline()
        tell(f"culprit_pid {p.pid}")
        fcntl.flock(open("store.lock", "w"), fcntl.LOCK_EX)
    elif what == "killed_leaked":
        if os.fork() == 0:  # keeps the connection open and knows nothing of it
            signal.pause()
        os.kill(os.getpid(), signal.SIGKILL)
    signal.pause()


if kind in ("unix", "tcp") or case == "unix_served":
    back, back_at = listener("back.sock")
    front, front_at = listener("front.sock")
    serves(back, end)
    serves(front, lambda: call(back_at))
    if case != "unix_served":
        threading.Timer(0.5, ready).start()
    else:
        ready()
    while True:
        call(front_at)
elif case == "each_calls_other":  # two services, each in a synchronous call to the other
    a, a_at = listener("a.sock")
    b, b_at = listener("b.sock")
    serves(b, lambda: call(a_at))
    threading.Timer(0.5, ready).start()
    call(b_at)
elif case.startswith("store"):  # ranks wait at the store until all three have come; one never does
    store, at = listener("")
    pid = os.fork()
    if pid == 0:
        waiting = [store]
        while True:
            for s in select.select(waiting, [], [])[0]:
                if s is store:
                    waiting.append(store.accept()[0])
                else:
                    s.recv(1)
                    if case == "store_stuck":
                        lock = threading.Lock()
                        with lock:
                            lock.acquire()
    tell(f"culprit_pid {pid}")
    store.close()
    if os.fork() == 0:
        call(at)
    threading.Timer(0.5, ready).start()
    call(at)
elif case == "threaded_server":  # the server's main thread is at accept(); the thread that has our request is stuck
    s, at = listener("s.sock")
    pid = os.fork()
    if pid == 0:
        def handle(c):
            c.recv(1)
            lock = threading.Lock()
            with lock:
                lock.acquire()

        kept = []
        while True:
            c, _ = s.accept()
            kept.append(c)
            threading.Thread(target=handle, args=(c,)).start()
    tell(f"culprit_pid {pid}")
    s.close()
    threading.Timer(0.5, ready).start()
    call(at)
elif case == "udp_lost":
    a, b = socket.socket(type=socket.SOCK_DGRAM), socket.socket(type=socket.SOCK_DGRAM)
    b.bind(("127.0.0.1", 0))
    a.connect(b.getsockname())
    a.send(b"?")  # nobody ever reads b
    ready()
    a.recv(1)
