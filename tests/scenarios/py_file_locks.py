"""scenario
section: file-lock (STALE_FILE_LOCK, FILE_LOCK_UNSUPPORTED)
story: a program waits for a file lock, a lock file or a database
proof: who has the lock is started below and writes its pid; a lock file left behind is made below and nobody has it
case: sqlite class=file-lock hung=true culprit=pid settle=2
case: sqlite_writer_works class=busy-cpu hung=false culprit=pid settle=2
case: retry_loop class=file-lock hung=true culprit=pid settle=3
case: ofd class=file-lock hung=true settle=2
case: holder_stopped class=stopped hung=true culprit=pid settle=2
case: two_files_cycle class=deadlock hung=true settle=2
case: inherited class=file-lock hung=true settle=2
case: stale_lock_file class=file-lock hung=true says=build.lock settle=3
case: lock_file_alive class=busy-cpu|file-lock hung=any says=build.lock settle=3
case: symlink_lock class=file-lock hung=true says=.lock settle=3
case: enosys_loop class=spin-wait|resource-exhausted|file-lock|unknown hung=any settle=3
case: waits_for_result_file class=spin-wait|file-lock|unknown hung=any says=result.json settle=3
case: released class=progressing|idle|busy-cpu hung=false settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes, errno, fcntl, os, signal, sqlite3, struct, time
from scenario import *


def start(main):
    pid = os.fork()
    if pid == 0:
        main()
        os._exit(0)
    time.sleep(0.3)
    return pid


def holds(name, then=signal.pause, call=fcntl.flock):
    def main():
        f = open(name, "w")
        call(f, fcntl.LOCK_EX)
        tell(f"culprit_pid {os.getpid()}")
        then()
    return start(main)


def polls(name):
    while True:
        try:
            os.close(os.open(name, os.O_CREAT | os.O_EXCL))
            return
        except FileExistsError:
            time.sleep(0.05)


def own(sig):
    os.kill(os.getpid(), sig)


if case.startswith("sqlite"):
    def writer():
        db = sqlite3.connect("job.db", isolation_level=None)
        db.execute("create table if not exists t(x)")
        db.execute("begin exclusive")
        tell(f"culprit_pid {os.getpid()}")
        compute() if case == "sqlite_writer_works" else signal.pause()

    start(writer)
    db = sqlite3.connect("job.db", timeout=1000)
    ready()
    db.execute("insert into t values(1)")
elif case == "retry_loop":
    holds("cache.lock")
    f = open("cache.lock", "w")
    ready()
    while True:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            time.sleep(0.05)
elif case == "ofd":
    ofd = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
    holds("ofd.lock", call=lambda f, _: fcntl.fcntl(f, 37, ofd))  # F_OFD_SETLK
    ready()
    fcntl.fcntl(open("ofd.lock", "w"), 38, ofd)
elif case == "holder_stopped":
    holds("x.lock", then=lambda: own(signal.SIGSTOP), call=fcntl.lockf)
    ready()
    fcntl.lockf(open("x.lock", "w"), fcntl.LOCK_EX)
elif case == "two_files_cycle":
    g = open("one.lock", "w")
    fcntl.flock(g, fcntl.LOCK_EX)

    def other():
        g.close()  # the copy of our descriptor would keep the lock
        holder = open("two.lock", "w")
        fcntl.flock(holder, fcntl.LOCK_EX)
        fcntl.flock(open("one.lock", "w"), fcntl.LOCK_EX)

    start(other)
    ready()
    fcntl.flock(open("two.lock", "w"), fcntl.LOCK_EX)
elif case == "inherited":  # the one that took it has ended; a program that it started has the descriptor
    def taker():
        f = open("i.lock", "w")
        fcntl.flock(f, fcntl.LOCK_EX)
        pid = os.fork()
        if pid == 0:
            signal.pause()
        tell(f"cleanup_pid {pid}")

    os.waitpid(start(taker), 0)
    ready()
    fcntl.flock(open("i.lock", "w"), fcntl.LOCK_EX)
elif case == "stale_lock_file":
    open("build.lock", "w").close()
    os.utime("build.lock", (time.time() - 172800,) * 2)
    ready()
    while os.path.exists("build.lock"):
        time.sleep(0.1)
elif case == "lock_file_alive":  # the one that made it has it open and compiles
    def builder():
        kept = open("build.lock", "x")
        compute()

    start(builder)
    ready()
    polls("build.lock")
elif case == "symlink_lock":  # as Emacs, Firefox and NFS-safe scripts do; the pid in it does not exist
    os.symlink("host:999999", "profile.lock")
    ready()
    while True:
        try:
            os.symlink(f"host:{os.getpid()}", "profile.lock")
            break
        except FileExistsError:
            time.sleep(0.05)
elif case == "enosys_loop":  # the file system has no locks: every try fails at once, nobody has it
    fd = os.open("/proc/self/status", os.O_RDONLY)
    ready()
    while True:
        try:
            fcntl.ioctl(fd, 0x5401)
            break
        except OSError as e:
            assert e.errno == errno.ENOTTY
            time.sleep(0.05)
elif case == "waits_for_result_file":
    ready()
    while not os.path.exists("result.json"):
        time.sleep(0.1)
elif case == "released":
    def short():
        while True:
            with open("r.lock", "w") as f:
                fcntl.flock(f, fcntl.LOCK_EX)
                time.sleep(0.02)

    start(short)
    ready()
    while True:
        with open("r.lock", "w") as f:
            fcntl.flock(f, fcntl.LOCK_EX)
