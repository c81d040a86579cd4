#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The kernel observer's facts, each proved against a second tool on a workload of exactly known counts.

A waitgraphd of our own runs on a socket of its own. Each check plants a program whose doings are known by
construction, asks waitgraphd (through `waitgraph dump --json`, or in its own protocol) and asks the second tool:
strace, bpftrace, lsof, ss, /proc, wait4. A check without its tool is skipped with the reason. Needs root and BPF.
One line a check; the exit status is the number of failures, 77 when nothing can be checked here.
"""
import argparse, atexit, ctypes, fcntl, json, os, random, re, resource, shutil, signal, socket, struct, subprocess, sys
import tempfile, threading, time

NOBODY = 65534
NEVER = (1 << 64) - 1
MAGIC = 0x62677762
TASKS, ENDS, STATUS, FILES = 1, 2, 3, 4
failures = skipped = passed = 0
libc = ctypes.CDLL(None)


class Skip(Exception):
    pass


# ---- waitgraphd's protocol (bpf/protocol.h) --------------------------------------------------------------------

def ask(what, pid):
    """The records of an answer as (type, bytes), and the error of its end."""
    s = socket.socket(socket.AF_UNIX)
    s.connect(opt.socket)
    s.sendall(struct.pack("<IHHII iI3Q", MAGIC, 1, what, 48, 0, pid, 0, 0, 0, 0))
    buf, out = b"", []
    while True:
        while len(buf) < 16 or len(buf) < struct.unpack_from("<I", buf, 8)[0]:
            more = s.recv(1 << 16)
            if not more:
                raise EOFError("waitgraphd hung up")
            buf += more
        magic, version, kind, size = struct.unpack_from("<IHHI", buf)
        assert magic == MAGIC
        record, buf = buf[:size], buf[size:]
        if kind == 127:
            return out, struct.unpack_from("<i", record, 16)[0]
        out.append((kind, record))


def name(b):
    return b.split(b"\0")[0].decode()


def files(pid):
    out = {}
    for kind, r in ask(FILES, pid)[0]:
        keys = ("fd", "mode", "flags", "error", "dev", "ino", "pos", "size", "cached", "readers", "writers", "traced",
                "writes", "failed", "bytes", "last", "longest", "fill", "room", "sampled", "wrote")
        f = dict(zip(keys, struct.unpack_from("<iIIiQQqqQII6QIIQQ", r, 16)))
        out[f["fd"]] = f
    return out


def tasks(pid):
    out = {}
    for kind, r in ask(TASKS, pid)[0]:
        if kind != 64:
            continue
        keys = ("pid", "tid", "state", "flags", "nr", "a0", "a1", "a2", "a3", "a4", "a5", "ip", "sp", "bp", "bx", "r12", "r13",
                "r14", "r15", "fsbase", "ran", "blocked", "woken", "irq", "tracked", "wakes", "irq_wakes", "waker_pid",
                "waker_tid", "irq_kind", "nkstack", "waker_comm")
        t = dict(zip(keys, struct.unpack_from("<iiIIq6Q9QQ4QQQiiiI16s", r, 16)))
        at = 16 + struct.calcsize("<iiIIq6Q9QQ4QQQiiiI16s")
        t["stack"] = [name(r[at + 56 * i:at + 56 * (i + 1)]) for i in range(t["nkstack"])]
        t["wrote"], t["bytes"] = struct.unpack_from("<QQ", r, at + 24 * 56)
        out[t["tid"]] = t
    return out


def ends():
    out = {}
    for kind, r in ask(ENDS, 0)[0]:
        keys = ("pid", "ppid", "uid", "flags", "code", "signal", "killer", "killer_uid", "start", "ended", "oom", "at",
                "killer_comm", "comm")
        e = dict(zip(keys, struct.unpack_from("<iiIIIiiIQQQQ16s16s", r, 16)))
        e["killer_comm"] = name(e["killer_comm"])
        out[e["pid"]] = e
    return out


def dump(pid, *more):
    r = subprocess.run([f"{opt.build}/bin/waitgraph", "dump", "--json", *more, str(pid)], capture_output=True,
                       env=dict(os.environ, WAITGRAPH_SOCKET=opt.socket), timeout=60)
    doc = json.loads(r.stdout)
    return next(p for p in doc["processes"] if p["pid"] == pid), doc


# ---- planted programs ----------------------------------------------------------------------------------------------

class Program:
    """Python text that prints a line of numbers when it is ready and takes one word at a time from `go`."""

    def __init__(self, text, before=(), user=None):
        head = "import fcntl, os, signal, socket, subprocess, sys, threading, time\n" \
               "open('/proc/self/comm', 'w').write('wg-proved')\n" \
               "def ready(*n):\n    sys.stdout.write(' '.join(map(str, (os.getpid(),) + n)) + '\\n'); sys.stdout.flush()\n" \
               "def go(): return os.read(0, 1)\n"
        self.p = subprocess.Popen([*before, "/usr/bin/python3", "-c", head + text], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, cwd=opt.dir, user=user, group=user,
                                  extra_groups=[] if user else None)
        line = self.p.stdout.readline().split()
        assert line, "the program did not start"
        self.pid, self.told = int(line[0]), [int(x) for x in line[1:]]

    def go(self):
        self.p.stdin.write(b"x")
        self.p.stdin.flush()

    def line(self):
        return self.p.stdout.readline().decode().split()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for pid in {self.pid, self.p.pid}:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.p.wait()


def settled(pid, tids=None):
    """Until all of its threads sleep."""
    for _ in range(500):
        states = [open(f"/proc/{pid}/task/{t}/stat").read().rsplit(")", 1)[1].split()[0]
                  for t in tids or os.listdir(f"/proc/{pid}/task")]
        if all(s == "S" for s in states):
            return
        time.sleep(0.02)
    raise AssertionError(f"{pid} does not come to rest")


def tool(name_, *where):
    for p in (name_, *where):
        if shutil.which(p):
            return shutil.which(p)
    raise Skip(f"no {name_}")


class Bpftrace:
    """Runs a program; its maps as a dictionary when it is told to end."""

    def __init__(self, text):
        self.p = subprocess.Popen([tool("bpftrace"), "-f", "json", "-e", "BEGIN { printf(\"ready\\n\"); } " + text],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for line in self.p.stdout:
            if b"ready" in line:
                return
        raise Skip("bpftrace does not start: " + self.p.stderr.read().decode()[-200:])

    def maps(self):
        self.p.send_signal(signal.SIGINT)
        out = {}
        for line in self.p.stdout.read().splitlines():
            if line.startswith(b"{"):
                d = json.loads(line)
                if d.get("type") == "map":
                    for k, v in d["data"].get("@", {}).items():
                        out[k] = v
        self.p.wait()
        return out


# ---- the checks ----------------------------------------------------------------------------------------------------

def wakers():
    """300 wake-ups of a reader by one writer; bpftrace counts the scheduler's tracepoint."""
    b = Bpftrace("tracepoint:sched:sched_waking /args->comm == \"wg-proved\"/ { @[args->pid, tid] = count(); }")
    with Program("""
r, w = os.pipe(); back, ack = os.pipe()
def reads():
    while os.read(r, 1): os.write(ack, b'y')
t = threading.Thread(target=reads, daemon=True); t.start(); time.sleep(0.1)
ready(t.native_id)
go()
for i in range(300):
    while open('/proc/self/task/%d/stat' % t.native_id).read().rsplit(')', 1)[1].split()[0] != 'S': time.sleep(0.0001)
    os.write(w, b'x'); os.read(back, 1)
time.sleep(1000)
""") as p:
        reader = p.told[0]
        settled(p.pid)
        tasks(p.pid)
        before = tasks(p.pid)
        p.go()
        time.sleep(0.3)
        for _ in range(600):
            if tasks(p.pid)[reader]["wakes"] - before[reader]["wakes"] >= 300:
                break
            time.sleep(0.05)
        settled(p.pid)
        after = tasks(p.pid)
        seen = {tuple(map(int, k.split(","))): v for k, v in b.maps().items()}
        mine = after[reader]["wakes"] - before[reader]["wakes"]
        irq = after[reader]["irq_wakes"] - before[reader]["irq_wakes"]
        theirs = sum(v for (who, _), v in seen.items() if who == reader)
        assert mine + irq == theirs, f"{mine} + {irq} wake-ups, bpftrace has {theirs}"
        assert mine >= 300 and after[reader]["waker_tid"] == p.pid
        assert seen.get((reader, p.pid), 0) >= mine, "another thread woke it"
        t = next(t for t in dump(p.pid)[0]["threads"] if t["tid"] == reader)
        assert t["waker_tid"] == p.pid and t["waker_count"] == after[reader]["wakes"]
        return f"{mine} by a thread and {irq} by interrupts = {theirs} by bpftrace"


def written():
    """Known writes; strace counts calls and bytes and stamps them, /proc/PID/io counts bytes."""
    log = f"{opt.dir}/strace"
    with Program("""
r, w = os.pipe(); a, b = socket.socketpair(); f = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); d = s.accept()[0]
ready(r, w, f, c.fileno(), b.fileno())
go()
for i in range(40): os.write(w, b'1234567')
for i in range(25): os.pwrite(f, b'x' * 100, i * 100)
for i in range(10): os.writev(w, [b'ab', b'c'])
for i in range(7): c.send(b'y' * 11)
ready()
go()
os.read(r, 1000)
time.sleep(1000)
""", before=[tool("strace"), "-f", "-ttt", "-qq", "-o", log, "-e", "trace=write,pwrite64,writev,sendto"]) as p:
        r, w, f, c, b = p.told
        settled(p.pid)
        tasks(p.pid)
        quiet = files(p.pid)
        assert quiet[w]["wrote"] == NEVER and quiet[w]["sampled"] < 5e9
        io = open(f"/proc/{p.pid}/io").read()
        p.go()
        p.line()
        settled(p.pid)
        time.sleep(2.5)
        got, task = files(p.pid), tasks(p.pid)[p.pid]
        at = time.time()
        calls = [l for l in open(log) if re.search(rf"\b(write|pwrite64|writev|sendto)\(", l) and f"{p.pid} " in l]
        def of(fd):
            return [l for l in calls if re.search(rf"\((?:{fd}),", l)]
        assert (len(of(w)), len(of(f)), len(of(c))) == (50, 25, 7), "strace itself missed some"
        assert got[w]["fill"] == sum(int(l.rsplit("=", 1)[1]) for l in of(w)) == 40 * 7 + 10 * 3
        assert got[w]["room"] == 65536 and got[r]["fill"] == got[w]["fill"]
        for fd, kind in ((w, "pipe"), (c, "TCP")):
            stamp = at - float(of(fd)[-1].split()[1])
            mine = got[fd]["wrote"] / 1e9
            # A look a second: it may have come a second after the write, and later on a busy machine.
            assert stamp - 1.5 - opt.slack < mine <= stamp + 0.1, f"{kind}: {mine:.2f} s, strace says {stamp:.2f} s"
        wchar = int(re.search(r"wchar: (\d+)", open(f"/proc/{p.pid}/io").read())[1])
        assert task["bytes"] == wchar, f"{task['bytes']} bytes, /proc says {wchar}"
        last = at - max(float(l.split()[1]) for l in calls)
        assert last - 1.5 - opt.slack < task["wrote"] / 1e9 <= last + 0.1
        assert got[b]["wrote"] == NEVER, "nobody wrote to that one"
        p.go() # somebody reads: that is no write
        time.sleep(0.2)
        settled(p.pid)
        time.sleep(1.5)
        later = files(p.pid)
        assert later[w]["fill"] == 0 and later[w]["wrote"] > got[w]["wrote"] + 1e9
        d = dump(p.pid)[0]
        x = next(x for x in d["files"] if x["fd"] == w)
        assert abs(x["last_write_age_s"] - (time.time() - float(of(w)[-1].split()[1]))) < 2 + opt.slack
        assert abs(d["last_write_age_s"] - (time.time() - max(float(l.split()[1]) for l in calls))) < 2 + opt.slack
        return f"50 + 25 + 7 calls by strace, {wchar} bytes by /proc, ages within a second"


def traced():
    """The same with --trace: each call counts; strace has as many."""
    log = f"{opt.dir}/strace-t"
    with Daemon("--trace"), Program("""
r, w = os.pipe(); a, b = socket.socketpair(); f = os.open('log', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
src = os.open('/usr/bin/env', os.O_RDONLY); fcntl.fcntl(w, 1031, 1 << 20)
ready(w, b.fileno(), f)
go()
for i in range(123): os.write(w, b'1234567')
for i in range(45): b.send(b'z' * 9)
for i in range(6): os.sendfile(f, src, 0, 4096)
try: os.write(f, 17)
except TypeError: pass
for i in range(3):
    try: os.pwrite(b.fileno(), b'x', 5)
    except OSError: pass
ready(); time.sleep(1000)
""", before=[tool("strace"), "-f", "-qq", "-o", log, "-e", "trace=write,pwrite64,sendto,sendfile"]) as p:
        w, b, f = p.told
        settled(p.pid)
        tasks(p.pid)
        p.go()
        p.line()
        settled(p.pid)
        got = files(p.pid)
        lines = open(log).read().splitlines()
        for fd in (w, b, f):
            mine = [l for l in lines if re.search(rf"\({fd},", l)]
            done = [int(l.rsplit("=", 1)[1].split()[0]) for l in mine]
            assert got[fd]["writes"] == len(mine), f"{fd}: {got[fd]['writes']} calls, strace has {len(mine)}"
            assert got[fd]["bytes"] == sum(n for n in done if n > 0)
            assert got[fd]["failed"] == sum(n < 0 for n in done)
        return f"{got[w]['writes']} + {got[b]['writes']} + {got[f]['writes']} calls, {got[b]['failed']} failed: as strace"


def died():
    """30 children end in known ways; wait4, bpftrace's signal_generate and what strace says of them."""
    b = Bpftrace("tracepoint:signal:signal_generate /args->sig == 9 || args->sig == 15/ { @[args->pid, args->sig] = tid; }")
    with Program("""
kids = []
ready(); go()
for i in range(30):
    pid = os.fork()
    if not pid:
        if i % 3 == 0: os._exit(i)
        if i % 3 == 1: os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1000)
    kids.append(pid)
time.sleep(0.2)
for i in range(2, 30, 3): os.kill(kids[i], signal.SIGKILL)
told = []
for k in kids: told += [k, os.waitpid(k, 0)[1]]
print(*told, flush=True)
time.sleep(1000)
""") as p:
        tasks(p.pid)
        p.go()
        told = list(map(int, p.line()))
        truth = dict(zip(told[::2], told[1::2]))
        time.sleep(0.2)
        seen, got = b.maps(), ends()
        sent = {tuple(map(int, k.split(","))): v for k, v in seen.items()}
        for pid, status in truth.items():
            e = got[pid]
            assert e["code"] & 0xff7f == status & 0xff7f, f"{e['code']:x}, wait4 says {status:x}"
            assert e["ppid"] == p.pid
            sig = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            assert e["signal"] == sig
            if sig:
                assert sent[(pid, sig)] == e["killer"], "bpftrace names another sender"
                assert e["killer_comm"] == "wg-proved"
        return f"{len(truth)} ends as wait4 has them, 20 senders as bpftrace has them"


def stands():
    """State, system call, arguments, kernel stack, write position: /proc/TID/{syscall,stack,status}, fdinfo."""
    with Program("""
r, w = os.pipe(); f = os.open('log', os.O_RDWR | os.O_CREAT | os.O_TRUNC); os.write(f, b'x' * 4321); os.lseek(f, 1234, 0)
os.mkfifo('fifo%d' % os.getpid()); ff = os.open('fifo%d' % os.getpid(), os.O_RDWR)
d = os.open('gone', os.O_WRONLY | os.O_CREAT); os.unlink('gone')
threading.Thread(target=lambda: os.read(r, 17), daemon=True).start()
threading.Thread(target=lambda: fcntl.flock(os.open('log', os.O_RDONLY), fcntl.LOCK_EX), daemon=True).start()
time.sleep(0.2); ready(r, w, f, ff, d); time.sleep(1000)
""") as p:
        settled(p.pid)
        n, same = 0, 0
        for tid, t in tasks(p.pid).items():
            sys_ = open(f"/proc/{p.pid}/task/{tid}/syscall").read().split()
            stack = [re.sub(r".*\] ", "", l).split("+")[0] for l in open(f"/proc/{p.pid}/task/{tid}/stack")]
            assert t["nr"] == int(sys_[0]), (t["nr"], sys_)
            assert [t[f"a{i}"] for i in range(6)] == [int(x, 16) for x in sys_[1:7]]
            assert (t["sp"], t["ip"]) == (int(sys_[7], 16), int(sys_[8], 16))
            # The kernel's own walk leaves the scheduler's functions out.
            mine = [re.sub(r" \[.*", "", s) for s in t["stack"]]
            for i in range(len(mine)):
                if mine[i:i + len(stack)] == stack[:len(mine) - i]:
                    same += 1
                    break
            else:
                raise AssertionError(f"{mine}, /proc has {stack}")
            n += 1
        got, by_proc = files(p.pid), sorted(map(int, os.listdir(f"/proc/{p.pid}/fd")))
        assert sorted(got) == by_proc
        for fd in by_proc:
            info = dict(l.split(":", 1) for l in open(f"/proc/{p.pid}/fdinfo/{fd}").read().splitlines() if ":" in l)
            st = os.stat(f"/proc/{p.pid}/fd/{fd}")
            assert got[fd]["pos"] == int(info["pos"]) and got[fd]["ino"] == st.st_ino
            assert got[fd]["flags"] & ~0o2000000 == int(info["flags"], 8) & ~0o2000000, (oct(got[fd]["flags"]), info["flags"])
            assert got[fd]["mode"] == st.st_mode
            if os.path.isfile(f"/proc/{p.pid}/fd/{fd}"):
                assert got[fd]["size"] == st.st_size
        return f"{n} threads and {len(got)} descriptors as /proc has them"


def with_lsof():
    """Files of a process: descriptor, kind, inode, deleted, pipe's ends, position: lsof."""
    lsof = tool("lsof")
    with Program("""
r, w = os.pipe(); k = os.fork()
if not k: time.sleep(1000)
f = os.open('log', os.O_RDWR | os.O_CREAT | os.O_TRUNC); os.write(f, b'x' * 777)
d = os.open('gone', os.O_WRONLY | os.O_CREAT); os.unlink('gone')
s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); u, v = socket.socketpair()
ready(k, r, w, f, d); time.sleep(1000)
""") as p:
        kid, r, w, f, d = p.told
        try:
            settled(p.pid)
            out = subprocess.run([lsof, "-p", str(p.pid), "-o", "-F", "ftino"], capture_output=True, text=True).stdout
            theirs, fd = {}, None
            for l in out.splitlines():
                if l[0] == "f":
                    fd = int(l[1:]) if l[1:].isdigit() else None
                    theirs[fd] = {}
                elif fd is not None:
                    theirs[fd][l[0]] = l[1:]
            theirs.pop(None, None)
            x = {y["fd"]: y for y in dump(p.pid)[0]["files"]}
            assert sorted(x) == sorted(theirs), f"{sorted(x)}, lsof has {sorted(theirs)}"
            kinds = {"REG": "file", "FIFO": "pipe", "CHR": ("char", "tty"), "IPv4": "socket", "unix": "socket", "sock": "socket"}
            for fd, t in theirs.items():
                want = kinds.get(t.get("t"))
                assert want is None or x[fd]["type"] in want, f"{fd}: {x[fd]['type']}, lsof has {t}"
                if t.get("i", "").isdigit() and x[fd].get("ino"):
                    assert x[fd]["ino"] == int(t["i"]), f"{fd}: inode {x[fd]['ino']}, lsof has {t['i']}"
                if t.get("o", "").startswith("0t"):
                    assert x[fd]["pos"] == int(t["o"][2:]) or x[fd]["type"] == "pipe"
            assert x[d].get("deleted")
            holders = subprocess.run([lsof, "-E", "-a", "-p", f"{p.pid},{kid}", "-F", "pftai"], capture_output=True, text=True).stdout
            ino, n = str(x[w]["ino"]), 0
            for block in re.split(r"\n(?=f)", holders):
                n += f"\ni{ino}" in "\n" + block and "tFIFO" in block
            got = files(p.pid)
            assert n == 4, "two processes with both ends each"
            assert (got[w]["readers"], got[w]["writers"]) == (1, 1) # open descriptions, which the fork shares
            return f"{len(x)} descriptors as lsof has them"
        finally:
            os.kill(kid, signal.SIGKILL)


def with_ss():
    """TCP and Unix sockets: state, addresses, queues, the peer: ss."""
    ss = tool("ss")
    with Program("""
s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); d = s.accept()[0]
u, v = socket.socketpair(); l = socket.socket(socket.AF_UNIX); l.bind('\\0wg-proved-%d' % os.getpid()); l.listen()
six = socket.socket(socket.AF_INET6) if socket.has_ipv6 else None
c.send(b'q' * 3000); u.send(b'abc' * 5)
ready(s.fileno(), c.fileno(), d.fileno(), u.fileno(), v.fileno(), l.fileno()); time.sleep(1000)
""") as p:
        s, c, d, u, v, l = p.told
        settled(p.pid)
        time.sleep(0.5)
        x = {y["fd"]: y for y in dump(p.pid)[0]["files"]}
        tcp = subprocess.run([ss, "-tanpHO"], capture_output=True, text=True).stdout
        unix = subprocess.run([ss, "-xanpHO"], capture_output=True, text=True).stdout
        def row(text, fd):
            return next(r.split() for r in text.splitlines() if f"pid={p.pid},fd={fd})" in r)
        states = {"LISTEN": "listen", "ESTAB": "connected"}
        for fd in (s, c, d):
            r = row(tcp, fd)
            assert x[fd]["sock_state"] == states[r[0]]
            assert x[fd]["sock_local"] == r[3], (x[fd]["sock_local"], r)
            if r[0] == "ESTAB":
                assert (x[fd]["sock_rxq"], x[fd]["sock_txq"]) == (int(r[1]), int(r[2]))
                assert x[fd]["sock_remote"] == r[4]
        assert x[d]["sock_rxq"] == 3000
        assert x[c]["sock_peer_ino"] == x[d]["ino"] and x[d]["sock_peer_ino"] == x[c]["ino"]
        for fd in (u, v):
            r = row(unix, fd) # type state rx tx local ino * peer-ino
            assert x[fd]["ino"] == int(r[5]) and x[fd]["sock_peer_ino"] == int(r[7]), r
        assert x[v]["sock_rxq"] == int(row(unix, v)[2]), (x[v]["sock_rxq"], row(unix, v))
        assert x[l]["sock_local"] == f"@wg-proved-{p.pid}"
        age = x[c].get("last_write_age_s")
        return "six sockets as ss has them" + (f", last sent {age:.1f} s ago" if age is not None else "")


def with_locks():
    """flock, POSIX and OFD locks, held and waited for: /proc/locks."""
    with Program("""
a = os.open('a', os.O_RDWR | os.O_CREAT); b = os.open('b', os.O_RDWR | os.O_CREAT); c = os.open('c', os.O_RDWR | os.O_CREAT)
import struct
fcntl.flock(a, fcntl.LOCK_EX); fcntl.lockf(b, fcntl.LOCK_EX, 100, 50)
fcntl.fcntl(c, 37, struct.pack('hhqqi', fcntl.F_WRLCK, 0, 7, 3, 0)) # F_OFD_SETLK
k = os.fork()
if not k:
    fcntl.lockf(os.open('b', os.O_RDWR), fcntl.LOCK_EX, 100, 50); time.sleep(1000)
time.sleep(0.3); ready(k); time.sleep(1000)
""") as p:
        kid = p.told[0]
        try:
            settled(p.pid)
            by_proc = []
            for l in open("/proc/locks"):
                m = re.match(r"(\d+): (-> )?(\w+)\s+\S+\s+(\w+)\s+(-?\d+) (\w+):(\w+):(\d+) (\d+) (\S+)", l)
                if not m:
                    continue # leases and what else is not asked for here
                by_proc.append((m[3][0].lower(), bool(m[2]), int(m[5]), int(m[8]), int(m[9]),
                                None if m[10] == "EOF" else int(m[10])))
            inos = {os.stat(f"{opt.dir}/{n}").st_ino: n for n in "abc"}
            theirs = sorted((k, w, i, s, e) for k, w, pid, i, s, e in by_proc if i in inos)
            doc = dump(p.pid)[1]
            locks = doc["facts"]["locks"] if "facts" in doc else doc["locks"]
            # One line for each process that has the lock's descriptor: the same lock once more.
            mine = sorted({(x["kind"], x.get("blocked", False), x["ino"], x["start"], x.get("end"), x["id"]) for x in locks
                           if x["ino"] in inos}, key=str)
            mine = sorted((k, w, i, s, e) for k, w, i, s, e, _ in mine)
            assert len(theirs) == 4 and mine == theirs, f"{mine}, /proc/locks has {theirs}"
            waiter = next(x for x in locks if x.get("blocked") and x["ino"] in inos)
            assert waiter["pid"] == kid
            return "3 held and 1 waited for, as /proc/locks has them"
        finally:
            os.kill(kid, signal.SIGKILL)


def depths():
    """A program's bytes at three depths: its own buffers, the page cache, a blocked write; as it wrote them itself."""
    with Program("""
f = open('train.log', 'w'); f.write('s' * 300)                    # never written
g = os.open('ckpt.bin', os.O_WRONLY | os.O_CREAT | os.O_TRUNC); os.write(g, b'x' * (1 << 20)) # written, not stored
r, w = os.pipe(); n = os.write(w, b'y' * 65536)
threading.Thread(target=lambda: os.write(w, b'z' * 5000), daemon=True).start(); time.sleep(0.2)
ready(f.fileno(), g, w); time.sleep(1000)
""") as p:
        f, g, w = p.told
        settled(p.pid)
        for how in ([], ["--no-bpf"]):
            d = dump(p.pid, *how)[0]
            x = {y["fd"]: y for y in d["files"]}
            assert x[f]["user_buffered_bytes"] == 300 and x[f]["written_bytes"] == 0
            assert x[g]["written_bytes"] == 1 << 20
            if x[g]["fs_type"] in ("ext4", "xfs", "btrfs") and "dirty_bytes" in x[g]:
                assert 0 <= x[g]["dirty_bytes"] + x[g]["writeback_bytes"] <= 1 << 20
            assert x[w]["pipe_fill"] == x[w]["pipe_size"] == 65536
            t = next(t for t in d["threads"] if t["wait"]["kind"] == "write")
            assert t["blocked"]["fd"] == w and t["blocked"]["bytes"] == 5000, t
            text = subprocess.run([f"{opt.build}/bin/waitgraph", "dump", "--all", *how, str(p.pid)], capture_output=True, text=True,
                                  env=dict(os.environ, WAITGRAPH_SOCKET=opt.socket)).stdout
            text = re.sub(r"\s+", " ", text)
            for word in ("300 B never written yet", "pipe FULL", "write of 4.9 KiB on pipe", "train.log", "ckpt.bin"):
                assert re.search(word, text), f"the text does not say '{word}'"
        return "300 in a buffer, 1 MiB written, 5000 blocked before a full pipe"


def failed():
    """A write-back that failed (FUSE, EIO), which this descriptor has not been told of: another one's fsync is the second tool."""
    fuse = f"{opt.build}/lib/scenarios/fuse_daemon"
    if not os.path.exists(fuse) or not os.path.exists("/dev/fuse"):
        raise Skip("no FUSE")
    where = tempfile.mkdtemp(dir=opt.dir)
    p = subprocess.Popen([fuse, "flush_failed"], env=dict(os.environ, SCENARIO_DIR=where, SCENARIO_OUT=f"{where}/out"), cwd=where,
                         start_new_session=True)
    told = {}
    try:
        for _ in range(200):
            if os.path.exists(f"{where}/out"):
                told = dict(l.split(maxsplit=1) if " " in l else (l, "") for l in open(f"{where}/out").read().split("\n") if l)
            if "ready" in told or p.poll() is not None:
                break
            time.sleep(0.05)
        assert "ready" in told, "the other descriptor's fsync did not fail"
        fd = int(told["failed_fd"])
        assert files(p.pid)[fd]["error"] == 5
        for env in (opt.socket, "/nonexistent"): # by waitgraphd, and by root without
            r = subprocess.run([f"{opt.build}/bin/waitgraph", "dump", "--json", str(p.pid)], capture_output=True,
                               env=dict(os.environ, WAITGRAPH_SOCKET=env))
            x = next(x for x in json.loads(r.stdout)["processes"][0]["files"] if x["fd"] == fd)
            assert x["write_error"] == 5, (env, x)
        text = subprocess.run([f"{opt.build}/bin/waitgraph", "dump", str(p.pid)], capture_output=True, text=True,
                              env=dict(os.environ, WAITGRAPH_SOCKET=opt.socket)).stdout
        assert "A WRITE FAILED: Input/output error" in re.sub(r"\s+", " ", text)
        return "EIO is told of the descriptor that has not seen it"
    finally:
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()
        if "cleanup_umount" in told:
            subprocess.run(["umount", "-l", told["cleanup_umount"]], stderr=subprocess.DEVNULL)


def others():
    """An ordinary user learns of his own processes what root does, and nothing of others."""
    with Program("r, w = os.pipe(); os.write(w, b'abc'); ready(w); time.sleep(1000)", user=NOBODY) as his, \
            Program("ready(); time.sleep(1000)") as not_his:
        tasks(his.pid)
        own = files(his.pid)
        asker = os.fork()
        if asker == 0: # as the user
            try:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                libc.prctl(4, 1, 0, 0, 0)
                got = files(his.pid)
                ok = {fd: f["ino"] for fd, f in got.items()} == {fd: f["ino"] for fd, f in own.items()} and \
                    got[his.told[0]]["fill"] == 3 and tasks(his.pid)
                ok = ok and ask(TASKS, not_his.pid) == ([], 13) and ask(FILES, not_his.pid) == ([], 13)
                ok = ok and all(e["uid"] == NOBODY for e in ends().values())
                status = next(r for k, r in ask(STATUS, 0)[0])
                ok = ok and struct.unpack_from("<7Q", status, 16) == (0,) * 7
                os._exit(0 if ok else 1)
            except BaseException as e:
                print(e, flush=True)
                os._exit(2)
        assert os.waitpid(asker, 0)[1] == 0
        return "his own, and EACCES for another's threads and files"


def attack():
    """What an ordinary user may do to the socket, and to what waitgraphd looks at, by himself; never ends."""
    request = struct.pack("<IHHII iI3Q", MAGIC, 1, TASKS, 48, 0, os.getpid(), 0, 0, 0, 0)

    def connect():
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(3)
        s.connect(opt.socket)
        return s

    def halves():                                   # says half a request and waits
        kept = []
        while True:
            kept = kept[-20:] + [connect()]
            kept[-1].send(request[:random.randrange(1, 48)])
            time.sleep(0.01)

    def deaf():                                     # asks a thousand times and reads nothing
        while True:
            s = connect()
            try:
                for _ in range(1000):
                    s.send(request)
            except OSError:
                pass
            time.sleep(0.2)

    def junk():
        while True:
            s = connect()
            size = random.choice((0, 1, 15, 16, 48, 8192, 8193, 1 << 31, (1 << 32) - 1))
            head = struct.pack("<IHHII", MAGIC, random.randrange(65536), random.randrange(70), size, random.getrandbits(32))
            s.send(head + os.urandom(random.randrange(9000)))
            try:
                while s.recv(65536):
                    pass
            except OSError:
                pass

    def numbers():                                  # others' processes, by the hundred, and what are none
        while True:
            s = connect()
            for _ in range(100):
                pid = random.choice((1, -1, 0, 1 << 30, -(1 << 31), os.getppid(), random.randrange(1, 40000)))
                s.send(struct.pack("<IHHII iI3Q", MAGIC, 1, random.choice((1, 2, 3, 4, 9)), 48, 0, pid, 0, 0, 0, 0))
            try:
                s.shutdown(socket.SHUT_WR)
                while s.recv(65536):
                    pass
            except OSError:
                pass

    def gifts():                                    # descriptors by the hundred
        r, w = os.pipe()
        while True:
            s = connect()
            try:
                for _ in range(20):
                    s.sendmsg([request[:1]], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("200i", *[r] * 200))])
            except OSError:
                pass
            time.sleep(0.05)

    def records():                                  # recorder files that are none
        there = f"/dev/shm/waitgraph-{NOBODY}"
        if os.path.lexists(there):
            return                                  # somebody's own
        os.mkdir(there)
        for i in range(1500):
            at = f"{there}/{random.choice((i, os.getpid(), 1, 1 << 40))}-{random.getrandbits(40)}.rec"
            try:
                kind = i % 4
                os.mkfifo(at) if kind == 0 else os.symlink("/dev/zero", at) if kind == 1 else os.mkdir(at) if kind == 2 else \
                    os.truncate(os.open(at, os.O_CREAT | os.O_WRONLY), 1 << 40)
            except OSError:
                pass

    def helpers():                                  # is taken for recorded, with as many files as it may open
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        for _ in range(12):
            if os.fork() == 0:
                threading.Thread(target=lambda: (open("/proc/thread-self/comm", "w").write("waitgraph"), time.sleep(999))).start()
                pipes = []
                try:
                    for _ in range(1500):
                        pipes.append(os.pipe())
                except OSError:
                    pass
                while True:
                    for r, w in pipes[:50]:
                        os.write(w, b"x")
                        os.read(r, 1)
                    time.sleep(0.02)

    for f in (records, helpers):
        f()
    for f in (halves, deaf, junk, numbers, gifts):
        def again(f=f):
            while True:
                try:
                    f()
                except OSError:
                    time.sleep(0.01)
        threading.Thread(target=again, daemon=True).start()
    time.sleep(1000)


def hostile():
    """An ordinary user attacks for some seconds: waitgraphd lives, answers root at once, keeps to its memory and descriptors."""
    def rss(d):
        return int(re.search(r"VmRSS:\s+(\d+)", open(f"/proc/{d.p.pid}/status").read())[1]) // 1024

    def fds(d):
        return len(os.listdir(f"/proc/{d.p.pid}/fd"))

    mine = f"/dev/shm/waitgraph-{NOBODY}"
    was_there = os.path.lexists(mine)
    with Daemon("--pid", str(os.getpid())) as d, Program("ready(); time.sleep(1000)") as p:
        tasks(p.pid), files(p.pid)
        time.sleep(1)
        before, open_before = rss(d), fds(d)
        attacker = os.fork()
        if attacker == 0:
            try:
                os.setpgid(0, 0)
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
                libc.prctl(4, 1, 0, 0, 0)
                attack()
            except BaseException as e:
                print("the attacker:", repr(e), flush=True)
            finally:
                os._exit(1)
        slowest, most_fds = 0.0, 0
        try:
            end = time.time() + 8
            while time.time() < end:
                t = time.time()
                assert len(tasks(p.pid)) == 1
                slowest = max(slowest, time.time() - t)
                most_fds = max(most_fds, fds(d))
                time.sleep(0.1)
            status = next(r for k, r in ask(STATUS, 0)[0])
            n = struct.unpack_from("<8QII32s3Q", status, 16)
            assert os.waitpid(attacker, os.WNOHANG) == (0, 0), "the attacker ended by itself"
        finally:
            try:
                os.killpg(attacker, signal.SIGKILL)
                os.waitpid(attacker, 0)
            except OSError:
                pass
            if not was_there:
                shutil.rmtree(mine, True)
        assert d.p.poll() is None
        assert slowest < 2 + opt.slack, f"root waited {slowest:.1f} s"
        assert most_fds < open_before + 200, f"{most_fds} descriptors"
        assert n[6] > 0, "nobody was refused: that was no attack"
        assert n[11] <= 32768
        time.sleep(22) # what hung on to its connection is put out
        after = rss(d)
        assert after < before + 16, f"{before} MiB before, {after} after"
        assert fds(d) <= open_before + 4, f"{open_before} descriptors before, {fds(d)} after"
        assert len(tasks(p.pid)) == 1
        return f"{n[6]} refused, {n[0]} processes and {n[11]} files held, root waited {slowest * 1000:.0f} ms at most, " \
            f"{before} -> {after} MiB"


def refusals():
    """Each missing capability has its message, and what works without it works."""
    setpriv = tool("setpriv")
    sock = f"{opt.dir}/refused"
    os.makedirs(f"{opt.dir}/nobodys", exist_ok=True)
    os.chown(f"{opt.dir}/nobodys", NOBODY, NOBODY)

    def start(before, at):
        p = subprocess.Popen([*before, f"{opt.build}/bin/waitgraphd", "--socket", at], stderr=subprocess.PIPE, text=True)
        said = ""
        for line in p.stderr:
            said += line
            if "listening" in line:
                break
        if "listening" not in said:
            p.wait()
        return p, said

    def without(*caps):
        bound = ",".join("-" + c for c in caps)
        return [setpriv, f"--bounding-set={bound}", f"--inh-caps={bound}", "--"]

    def user(*caps):
        plus = ",".join("+" + c for c in caps)
        return [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", f"--inh-caps={plus}", f"--ambient-caps={plus}", "--"]

    n = 0
    for before, code, word in ((without("bpf", "sys_admin"), 77, "CAP_BPF"), (without("perfmon", "sys_admin"), 77, "CAP_PERFMON"),
                               ([f"{opt.build}/tests/targets/lockdown", "--calls", "--"], 77, "seccomp"), (user("bpf"), 77, "CAP_PERFMON"),
                               (user("syslog"), 77, "CAP_BPF")):
        if not shutil.which(before[0]):
            continue
        p, said = start(before, sock)
        assert p.poll() == code and word in said, f"{before}: {p.poll()}, {said}"
        n += 1
    for before, at, words in ((without("syslog"), sock, ["no kernel stacks"]), (without("sys_ptrace"), sock, ["CAP_SYS_PTRACE"]),
                              (user("bpf", "perfmon"), f"{opt.dir}/nobodys/s", ["CAP_SYS_PTRACE", "CAP_DAC_READ_SEARCH", "not run as root"]),
                              (user("bpf", "perfmon", "sys_ptrace", "syslog", "dac_read_search"), f"{opt.dir}/nobodys/s", ["not run as root"])):
        p, said = start(before, at)
        try:
            assert p.poll() is None, said
            for w in words:
                assert w in said, f"'{w}' is not in: {said}"
            n += 1
            if at != sock: # its own user's processes it tells him of all the same
                with Program("ready(); time.sleep(1000)", user=NOBODY) as his:
                    asker = os.fork()
                    if asker == 0:
                        try:
                            os.setgroups([])
                            os.setresgid(NOBODY, NOBODY, NOBODY)
                            os.setresuid(NOBODY, NOBODY, NOBODY)
                            libc.prctl(4, 1, 0, 0, 0)
                            opt.socket = at
                            t = tasks(his.pid)
                            os._exit(0 if t and ("no kernel stacks" in said or t[his.pid]["stack"]) else 1)
                        except BaseException as e:
                            print("the asker:", repr(e), flush=True)
                            os._exit(2)
                    assert os.waitpid(asker, 0)[1] == 0, f"no answer: {said}"
        finally:
            p.kill()
            p.wait()
    return f"{n} ways to lack something, each with its message"


def by_cgroup():
    """--cgroup: every process of a directory and those below is tracked without being asked about; nobody else is."""
    root = next((r for r in ("/sys/fs/cgroup/pids", "/sys/fs/cgroup/unified", "/sys/fs/cgroup")
                 if os.access(f"{r}/cgroup.procs", os.W_OK)), None)
    if not root:
        raise Skip("no cgroup of our own can be made")
    above, below = f"{root}/wg-observed-{os.getpid()}", f"{root}/wg-observed-{os.getpid()}/job"
    try:
        os.makedirs(below)
    except OSError as e:
        raise Skip(f"no cgroup can be made: {e}")
    try:
        kids = []
        for where in (above, below, None):
            p = subprocess.Popen(["sleep", "1000"])
            kids.append(p)
            if where:
                open(f"{where}/cgroup.procs", "w").write(str(p.pid))
        with Daemon("--cgroup", above):
            time.sleep(0.5)
            late = subprocess.Popen(["sleep", "1000"]) # comes later: found at the next look, three seconds at most
            kids.append(late)
            open(f"{below}/cgroup.procs", "w").write(str(late.pid))
            time.sleep(3.5 + opt.slack / 2)
            for p in kids:
                p.kill()
                p.wait()
            got = ends()
            assert [p.pid in got for p in kids] == [True, True, False, True], [p.pid in got for p in kids]
            assert all(got[p.pid]["killer"] == os.getpid() for p in kids if p.pid in got)
        return "two there and one that came later, the fourth is nobody's business"
    finally:
        for p in kids:
            p.kill()
            p.wait()
        time.sleep(0.2)
        os.rmdir(below)
        os.rmdir(above)


def restarted():
    """waitgraphd is killed and started again: the present state is there, ages of waits too, histories begin anew."""
    with Program("r, w = os.pipe(); ready(w); os.read(r, 1)") as p:
        with Daemon("--pid", str(p.pid)) as d:
            time.sleep(3)
            t0, a = time.time(), dump(p.pid)[0]
            d.p.kill()
            d.p.wait()
            assert os.path.exists(opt.socket)
            gone = dump(p.pid)[0] # nobody listens: root asks BPF itself
            assert "waitgraphd" not in gone["sources"] and gone["threads"][0]["kernel_stack"]
            d.fallen = True
        with Daemon("--pid", str(p.pid)):
            t1, b = time.time(), dump(p.pid)[0]
        since = [x["threads"][0]["wait"]["since_s"] for x in (a, b)]
        assert "waitgraphd" in a["sources"] and "waitgraphd" in b["sources"]
        assert since[0] > 2 and abs(since[1] - since[0] - (t1 - t0)) < 0.5 + opt.slack / 3, (since, t1 - t0)
        assert b["threads"][0]["kernel_stack"] == a["threads"][0]["kernel_stack"]
        quiet = [next(f.get("quiet_s") for f in x["files"] if f["fd"] == p.told[0]) for x in (a, b)]
        assert quiet[0] > 0.3 and quiet[1] < quiet[0] + (t1 - t0), quiet
        return f"waits for {since[0]:.1f} s, then {since[1]:.1f} s; {t1 - t0:.1f} s apart"


class Daemon:
    fallen = False # killed on purpose

    def __init__(self, *more):
        self.more, self.was = more, opt.socket

    def __enter__(self):
        opt.socket = f"{opt.dir}/sock{len(self.more)}" # that of one which was killed is taken over
        self.p = subprocess.Popen([f"{opt.build}/bin/waitgraphd", "--socket", opt.socket, *self.more],
                                  stderr=open(f"{opt.dir}/daemon.log", "a"), start_new_session=True)
        for _ in range(400):
            try:
                ask(STATUS, 0)
                return self
            except OSError:
                pass
            if self.p.poll() is not None:
                raise Skip(open(f"{opt.dir}/daemon.log").read()[-300:])
            time.sleep(0.05)
        raise Skip("waitgraphd does not listen")

    def __exit__(self, *_):
        fell = None if self.fallen else self.p.poll()
        self.p.terminate()
        self.p.wait()
        opt.socket = self.was
        assert fell is None, f"waitgraphd ended with {fell}"


def main():
    global failures, skipped, passed
    checks = [stands, wakers, written, traced, died, with_lsof, with_ss, with_locks, depths, failed, others, by_cgroup, restarted, refusals, hostile]
    if os.geteuid() != 0 or not os.path.exists("/sys/kernel/btf/vmlinux"):
        print("skipped: needs root and a kernel with BTF")
        return 77
    if not os.path.exists(f"{opt.build}/bin/waitgraphd"):
        print("skipped: built without waitgraphd")
        return 77
    try:
        with Daemon():
            for c in checks:
                if opt.names and c.__name__ not in opt.names:
                    continue
                try:
                    print(f"right  {c.__name__}: {c()}", flush=True)
                    passed += 1
                except Skip as e:
                    print(f"skip   {c.__name__}: {e}", flush=True)
                    skipped += 1
                except Exception as e:
                    at = e.__traceback__
                    while at.tb_next:
                        at = at.tb_next
                    print(f"WRONG  {c.__name__}: {type(e).__name__} {e} (line {at.tb_lineno})", flush=True)
                    failures += 1
    except Skip as e:
        print(f"skipped: {e}")
        return 77
    print(f"{passed} right, {failures} wrong, {skipped} skipped")
    return failures


if __name__ == "__main__":
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../build"))
    ap.add_argument("--slack", type=float, default=3.0, help="seconds that a busy machine may be late")
    ap.add_argument("names", nargs="*", help="only these checks")
    opt = ap.parse_args()
    opt.build = os.path.abspath(opt.build)
    opt.socket = "/nonexistent"
    opt.dir = tempfile.mkdtemp(prefix="wg-observed-")
    os.chmod(opt.dir, 0o777)
    atexit.register(shutil.rmtree, opt.dir, True)
    sys.exit(main())
