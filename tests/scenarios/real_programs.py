#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that nobody here wrote, stopped, starved and locked on purpose, each with its truth written down before.

Run by hand: it skips what is not installed and says why. For each case the program is started, brought into its
state, and `waitgraph why --json PID` is asked; the class, whether it is called hung and the culprit are compared
with the truth. What was said stands in docs/tried.md. Prints `ok`, `unknown` (undecided where the truth was within
reach), or `WRONG` (a confident answer that is not the truth), and ends with 1 when anything was wrong.

  tests/scenarios/real_programs.py --build build [--user] [--no-bpf] [--text] [--table] [CASE...]
"""
import argparse, json, os, pty, re, shutil, signal, socket, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from healthy import DROP, NGINX, PY, descendants, drain, kill_all, pg, port, write  # noqa: E402

CASES = []


class Skip(Exception):
    pass


def case(truth, *classes, needs=(), hung=True, root=False, settle=2.5, loose=()):
    """`classes`: what is right. `loose`: honest answers that do not name the cause (`unknown` always is one)."""
    def add(f):
        CASES.append(dict(name=f.__name__, f=f, truth=truth, classes=classes, needs=needs, hung=hung, root=root, settle=settle, loose=loose))
        return f
    return add


class World:
    """What a case may use: a directory of its own, and processes that end with it."""
    def __init__(self, opt, work):
        self.opt, self.dir, self.procs, self.fds, self.undo = opt, work, [], [], []
        self.env = dict(os.environ, HOME=work, TERM="xterm", LC_ALL="C.UTF-8")
        for rust in ("RUSTUP_HOME", "CARGO_HOME"):
            self.env.setdefault(rust, os.path.expanduser("~/." + rust[:-5].lower()))

    def run(self, cmd, tty=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, raw=False):
        """Starts a shell line (exec it, to have its pid) or an argv; returns the Popen."""
        argv = ["sh", "-c", cmd] if isinstance(cmd, str) else list(cmd)
        if self.opt.user and os.getuid() == 0 and not raw:
            argv = DROP + argv
        if tty:
            a, b = pty.openpty()
            self.fds.append(a)
            threading.Thread(target=drain, args=(a,), daemon=True).start()
            p = subprocess.Popen(["setsid", "-c"] + argv, cwd=self.dir, env=self.env, stdin=b, stdout=b, stderr=b)
            os.close(b)
        else:
            p = subprocess.Popen(argv, cwd=self.dir, env=self.env, stdin=stdin, stdout=stdout,
                                 stderr=open(self.dir + "/stderr", "ab"), start_new_session=True)
        self.procs.append(p)
        return p

    def do(self, cmd, timeout=120):
        argv = ["sh", "-c", cmd] if isinstance(cmd, str) else list(cmd)
        r = subprocess.run(DROP + argv if self.opt.user and os.getuid() == 0 else argv, cwd=self.dir, env=self.env,
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
        if r.returncode:
            raise Skip(f"its preparation failed: {cmd!r}: {r.stdout.decode()[-300:]}")
        return r.stdout.decode()

    def wait(self, what, limit=30):
        end = time.time() + limit
        while time.time() < end:
            x = what()
            if x:
                return x
            time.sleep(0.1)
        raise Skip("what it needs did not come about")

    def find(self, root, name, nth=0, limit=30):
        """A descendant of root by its comm or a word of its command line."""
        def look():
            hits = []
            for p in sorted(descendants([root.pid if hasattr(root, "pid") else root])):
                try:
                    comm = open(f"/proc/{p}/comm").read().strip()
                    cmd = open(f"/proc/{p}/cmdline").read().replace("\0", " ")
                except OSError:
                    continue
                if comm == name[:15] or (" " in name and name.strip() in cmd):
                    hits.append(p)
            return hits[nth] if len(hits) > nth else None
        return self.wait(look, limit)

    def stop(self, pid):
        os.kill(pid, signal.SIGSTOP)
        self.wait(lambda: open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] in "Tt")
        return pid

    def file(self, name, text=""):
        write(self.dir, name, text)
        if self.opt.user and os.getuid() == 0:
            os.chown(os.path.join(self.dir, name), 65534, 65534)
        return os.path.join(self.dir, name)

    def fifo(self, name):
        os.mkfifo(os.path.join(self.dir, name))
        os.chmod(os.path.join(self.dir, name), 0o666)

    def listening(self, p, limit=20):
        def up():
            with socket.socket() as s:
                return s.connect_ex(("127.0.0.1", p)) == 0
        self.wait(up, limit)


MUTE = "import socket,time\ns=socket.create_server(('127.0.0.1',%d));l=[]\nwhile True: l.append(s.accept())"

# ---- pipes ------------------------------------------------------------------------------------------------


@case("sleep never reads its pipe", "pipe-full")
def pipe_full(w):
    p = w.run("yes | sleep 1000")
    return w.find(p, "yes"), w.find(p, "sleep")


@case("sleep in a subshell never reads its pipe", "pipe-full")
def pipe_full_subshell(w):
    p = w.run(["bash", "-c", "yes | (sleep 1000; true)"])
    return w.find(p, "yes"), [w.find(p, "sleep"), w.find(p, "bash", 1)]


@case("the shell waits for a pipeline: one sleeps, which is by design, the other for it", "pipe-full", "idle", hung=None)
def pipe_full_from_shell(w):
    p = w.run(["bash", "-c", "yes | sleep 1000; true"])
    return p.pid, None


@case("the head of the pipeline sleeps and sends nothing", "peer-silent", loose=["idle"])
def pipe_silent(w):
    p = w.run(["bash", "-c", "sleep 1000 | sort | uniq; true"])
    return w.find(p, "uniq"), w.find(p, "sleep")


@case("gzip in the middle is stopped", "stopped")
def pipe_stopped_middle(w):
    p = w.run(["bash", "-c", "yes | gzip | cat >/dev/null; true"])
    time.sleep(0.5)
    return w.find(p, "cat"), w.stop(w.find(p, "gzip"))


@case("gzip in the middle is stopped, the writer asks", "stopped")
def pipe_stopped_writer(w):
    p = w.run(["bash", "-c", "yes | gzip | cat >/dev/null; true"])
    time.sleep(0.5)
    w.stop(w.find(p, "gzip"))
    return w.find(p, "yes"), w.find(p, "gzip")


@case("one of tee's readers does not read", "pipe-full")
def tee_substitution(w):
    p = w.run(["bash", "-c", "yes | tee >(sleep 1000) >/dev/null; true"])
    return w.find(p, "tee"), w.find(p, "sleep")


@case("bash fills cat's input, cat its output, bash does not read it: a ring", "deadlock")
def coproc_ring(w):
    p = w.run(["bash", "-c", "coproc cat; yes | head -c 1000000 >&${COPROC[1]}; cat <&${COPROC[0]}"])
    return w.find(p, "cat"), None


@case("bash itself fills cat's input and does not read cat's output", "deadlock")
def coproc_ring_self(w):
    p = w.run(["bash", "-c", "coproc cat; for ((i=0;;i++)); do echo xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx; done >&${COPROC[1]}"])
    return p.pid, None


@case("a FIFO that nobody writes", "peer-silent", "no-waker")
def cat_fifo(w):
    w.fifo("f")
    return w.run("exec cat f").pid, None


@case("a FIFO whose writer sleeps", "peer-silent")
def cat_fifo_writer(w):
    w.fifo("f")
    s = w.run("exec sleep 1000 > f")
    return w.run("exec cat f").pid, s.pid


@case("all tokens of a FIFO semaphore are lost; everybody who could write one waits for one", "no-waker", "deadlock", loose=["peer-silent"])
def fifo_tokens(w):
    w.fifo("f")
    p = w.run(["bash", "-c", "exec 3<>f; for i in 1 2 3; do (read -u 3 -n 1; gzip </dev/null; echo -n x >&3) & done; wait"])
    return p.pid, None


@case("less waits for a producer that is silent", "peer-silent", loose=["idle"])
def less_silent(w):
    p = w.run(["bash", "-c", "sleep 1000 | less"], tty=True)
    return w.find(p, "less"), w.find(p, "sleep")


@case("a script reads its answers from a pipe that its starter never fills", "peer-silent", loose=["idle"])
def read_from_pipe(w):
    p = w.run(["bash", "-c", "sleep 1000 | bash -c 'read x; echo $x'"])
    return w.find(p, "bash -c read x; echo $x" if 0 else "bash", 1), w.find(p, "sleep")


@case("a question to a person at the terminal", "idle", hung=False)
def read_from_tty(w):
    return w.run(["bash", "-c", "read -p 'sure? ' x"], tty=True).pid, None


# ---- children, stops --------------------------------------------------------------------------------------

SLOW_C = "#include <stdio.h>\n" + "".join(f"int f{i}(int x){{int s=0;for(int k=0;k<x;k++)s+=k*{i}^s;return s;}}\n" for i in range(6000))


@case("make waits for cc1, which is stopped", "stopped", needs=["make", "cc"])
def make_cc1_stopped(w):
    w.file("a.c", SLOW_C)
    w.file("Makefile", "all: a.o\n\ttrue\na.o: a.c\n\tcc -O2 -c a.c\n")
    p = w.run(["make", "-j2"])
    return p.pid, w.stop(w.find(p, "cc1"))


@case("make waits for a compiler that works", "busy-cpu", hung=False, needs=["make", "cc"])
def make_cc1_works(w):
    w.file("a.c", SLOW_C * 1 + "".join(f"int g{i}(int x){{int s=0;for(int k=0;k<x;k++)s+=k*{i}^s;return s;}}\n" for i in range(20000)))
    w.file("Makefile", "all: a.o\n\ttrue\na.o: a.c\n\tcc -O2 -c a.c\n")
    p = w.run(["make", "-j2"])
    w.find(p, "cc1")
    return p.pid, None


@case("a recipe's program reads the terminal", "idle", hung=False, needs=["make"])
def make_reads_tty(w):
    w.file("Makefile", "all:\n\tread x; echo $$x\n")
    return w.run(["make"], tty=True).pid, None


@case("a recipe's program reads a pipe that stays empty", "peer-silent", needs=["make"], loose=["idle"])
def make_reads_pipe(w):
    w.file("Makefile", "all:\n\tcat\n")
    p = w.run("sleep 1000 | make")
    return w.find(p, "make"), w.find(p, "sleep")


@case("a job reads a token from the jobserver that nobody will give back", "no-waker", "deadlock", loose=["peer-silent"], needs=["make"])
def jobserver_lost(w):
    # Each job takes one token more than it has; the third to come finds none, and those who hold them wait for it.
    w.file("job.py", "import os,re,time\nm=re.search(r'--jobserver-(?:auth|fds)=(\\d+),(\\d+)',os.environ['MAKEFLAGS'])\nr=int(m[1])\nos.set_blocking(r,True)\nos.read(r,1); os.read(r,1)\n")
    w.file("Makefile", f"all: a b\na b:\n\t+{PY} job.py\n")
    return w.run(["make", "-j2"]).pid, None


@case("bash waits for a stopped child", "stopped")
def bash_wait_stopped(w):
    p = w.run(["bash", "-c", "(gzip </dev/zero >/dev/null) & wait"])
    return p.pid, w.stop(w.find(p, "gzip"))


@case("xargs waits for one of its three, which is stopped", "stopped")
def xargs_stopped(w):
    p = w.run("exec xargs -P3 -n1 sh -c 'gzip </dev/zero >/dev/null' < list", stdin=subprocess.DEVNULL) if w.file("list", "1\n2\n3\n") else None
    all3 = [w.find(p, "gzip", i) for i in range(3)]
    w.stop(all3[0])
    for k in all3[1:]:
        os.kill(k, signal.SIGKILL)
    return p.pid, all3[0]


@case("ninja waits for a stopped compiler", "stopped", needs=["ninja", "cc"])
def ninja_stopped(w):
    w.file("a.c", SLOW_C)
    w.file("build.ninja", "rule cc\n command = cc -O2 -c -o $out $in\nbuild a.o: cc a.c\n")
    p = w.run(["ninja"])
    return p.pid, w.stop(w.find(p, "cc1"))


@case("cargo waits for a stopped rustc", "stopped", needs=["cargo"])
def cargo_rustc_stopped(w):
    w.do("mkdir x; cd x; cargo init -q --vcs none --name x . 2>&1")
    w.file("x/src/main.rs", "fn main(){}\n" + "".join(f"pub fn f{i}(v: &mut Vec<u64>) -> u64 {{ v.sort(); v.iter().map(|x| x ^ {i}).sum() }}\n" for i in range(3000)))
    p = w.run("cd x; exec cargo build --offline")
    w.find(p, "rustc")
    time.sleep(1)
    return p.pid, w.stop(w.find(p, "rustc"))


@case("a second cargo waits for the build directory's lock", "file-lock", needs=["cargo"])
def cargo_lock(w):
    w.do("mkdir x; cd x; cargo init -q --vcs none --name x . 2>&1")
    w.do("cd x; mkdir -p target/debug && touch target/debug/.cargo-lock")
    h = w.run("cd x; exec flock target/debug/.cargo-lock sleep 1000")
    time.sleep(0.3)
    return w.run("cd x; exec cargo build --offline").pid, [h.pid, w.find(h, "sleep")]


@case("git waits for an upload-pack that is stopped", "stopped", needs=["git"])
def git_upload_pack(w):
    w.do("git init -q r; cd r; git config user.email a@b; git config user.name a; echo 1 >f; git add f; git commit -qm 1")
    p = w.run(["git", "clone", "--no-local", "-u", "sh -c 'echo $$ >pid; kill -STOP $$; exec git-upload-pack \"$@\"' x", "r", "c"])
    w.wait(lambda: os.path.exists(w.dir + "/pid") and open(w.dir + "/pid").read().strip())
    return p.pid, int(open(w.dir + "/pid").read())


@case("git waits for the editor, and the editor for a person", "idle", "progressing", hung=False, needs=["git", "vi"])
def git_editor(w):
    w.do("git init -q r; cd r; git config user.email a@b; git config user.name a; git config core.editor vi; echo 1 >f; git add f")
    return w.run("exec git -C r commit", tty=True).pid, None


@case("stopped by gdb", "stopped", needs=["gdb"])
def gdb_stopped(w):
    p = w.run("exec gzip </dev/zero >/dev/null")
    time.sleep(0.3)
    g = w.run(["gdb", "-q", "-p", str(p.pid)], tty=True)
    w.wait(lambda: open(f"/proc/{p.pid}/stat").read().rsplit(")", 1)[1].split()[0] == "t")
    return p.pid, None


@case("traced by strace -f, and working", "busy-cpu", "progressing", hung=False, needs=["strace"])
def strace_works(w):
    s = w.run(["strace", "-f", "-o", "/dev/null", "gzip", "-c", "/dev/zero"])
    return w.find(s, "gzip"), None


@case("the group is frozen", "stopped", root=True)
def cgroup_frozen(w):
    g = "/sys/fs/cgroup/freezer/wg-real"
    if not os.path.isdir("/sys/fs/cgroup/freezer"):
        raise Skip("no freezer cgroup")
    os.makedirs(g, exist_ok=True)
    p = w.run("exec gzip </dev/zero >/dev/null")
    open(g + "/cgroup.procs", "w").write(str(p.pid))
    open(g + "/freezer.state", "w").write("FROZEN")
    w.undo += [lambda: open(g + "/freezer.state", "w").write("THAWED"), lambda: (kill_all([p]), time.sleep(0.3), os.rmdir(g))]
    return p.pid, None


@case("throttled to a hundredth of a processor: slow, not hung", "busy-cpu", "progressing", "resource-exhausted", hung=None, root=True, settle=4)
def cgroup_throttled(w):
    g = "/sys/fs/cgroup/cpu/wg-real"
    try:
        os.makedirs(g, exist_ok=True)
        open(g + "/cpu.cfs_period_us", "w").write("1000000")
        open(g + "/cpu.cfs_quota_us", "w").write("10000")
    except OSError as e:
        raise Skip(f"no cpu cgroup of our own: {e}")
    p = w.run("exec gzip </dev/zero >/dev/null")
    open(g + "/cgroup.procs", "w").write(str(p.pid))
    w.undo.append(lambda: (kill_all([p]), time.sleep(0.3), os.rmdir(g)))
    return p.pid, None


@case("the terminal's output is paused (Ctrl-S)", "pipe-full", "write-blocked", "stopped", loose=["idle"])
def tty_ctrl_s(w):
    import termios
    a, b = pty.openpty()
    w.fds.append(a)
    p = w.run(["sh", "-c", "exec yes"], stdout=b)
    threading.Thread(target=drain, args=(a,), daemon=True).start()
    time.sleep(0.3)
    termios.tcflow(b, termios.TCOOFF)
    return p.pid, None


@case("background job that reads the terminal is stopped by the kernel", "stopped")
def sigttin(w):
    p = w.run(["bash", "-c", "set -m; cat & wait %1; sleep 1000"], tty=True)
    c = w.find(p, "cat")
    w.wait(lambda: open(f"/proc/{c}/stat").read().rsplit(")", 1)[1].split()[0] == "T")
    return c, c


# ---- locks ------------------------------------------------------------------------------------------------


@case("apt waits for a lock that another process holds", "file-lock", loose=["idle"], needs=["apt-get"])
def apt_lock(w):
    w.do("mkdir -p dpkg/updates dpkg/info cache/archives/partial lists/partial; cp /var/lib/dpkg/status dpkg/status; touch dpkg/lock dpkg/lock-frontend cache/archives/lock")
    h = w.run([PY, "-c", "import fcntl,time\nf=open('dpkg/lock-frontend','w')\nfcntl.lockf(f,fcntl.LOCK_EX)\nopen('held','w')\ntime.sleep(1000)"])
    w.wait(lambda: os.path.exists(w.dir + "/held"))
    d = w.dir
    p = w.run(["apt-get", "-o", "DPkg::Lock::Timeout=1000", "-o", f"Dir::State::status={d}/dpkg/status", "-o", f"Dir::Cache={d}/cache", "-o", "APT::Sandbox::User=", "remove", "-y", "zlib1g-dev"])
    return p.pid, None  # it opens and closes the lock's file each time: who has it can only be said with luck


@case("flock(1) waits for flock(1), whose command sleeps", "file-lock", needs=["flock"])
def flock_chain(w):
    a = w.run("exec flock a sleep 1000")
    time.sleep(0.3)
    w.run("exec flock b flock a true")
    time.sleep(0.3)
    return w.run("exec flock b true").pid, [a.pid, w.find(a, "sleep")]


@case("flock(1) twice in different order", "deadlock", needs=["flock"])
def flock_cycle(w):
    p = w.run("exec flock a sh -c 'sleep 1; flock b true; true'")
    w.run("exec flock b sh -c 'sleep 1; flock a true; true'")
    time.sleep(1.5)
    return p.pid, None


@case("the lock's holder is stopped", "stopped", needs=["flock"])
def flock_holder_stopped(w):
    a = w.run("exec flock a gzip -c /dev/zero")
    g = w.find(a, "gzip")
    w.stop(g)
    return w.run("exec flock a true").pid, [g, a.pid]


@case("sqlite3 waits for a transaction that an idle shell holds", "file-lock", needs=["sqlite3"], settle=4)
def sqlite_exclusive(w):
    w.do("sqlite3 db 'create table t(a)'")
    h = w.run("(echo 'BEGIN EXCLUSIVE;'; sleep 1000) | sqlite3 db")
    s = w.find(h, "sqlite3")
    time.sleep(1)
    return w.run(["sqlite3", "-cmd", ".timeout 1000000", "db", "insert into t values (1)"]).pid, s


@case("a lock file that a dead program left behind", "file-lock", loose=["idle"], needs=["lockfile-create"])
def lockfile_left(w):
    w.file("x.lock", "99999\n")
    return w.run(["lockfile-create", "--retry", "1000", "--lock-name", "x.lock"]).pid, None


@case("a shell loop that waits for a lock directory", "file-lock", loose=["idle", "progressing"])
def mkdir_lock(w):
    os.mkdir(w.dir + "/lockdir")
    return w.run("while ! mkdir lockdir 2>/dev/null; do sleep 0.2; done").pid, None


@case("a script that waits for a file that never comes", "spin-wait", "no-waker", "file-lock", loose=["idle", "progressing"])
def wait_for_file(w):
    return w.run(["bash", "-c", "while [ ! -e done ]; do sleep 0.2; done"]).pid, None


@case("the disk is full and the program tries again and again", "resource-exhausted", "spin-wait", loose=["idle", "progressing", "busy-cpu"], root=True)
def disk_full(w):
    os.mkdir(w.dir + "/m")
    w.do("mount -t tmpfs -o size=64k none m")
    w.undo.append(lambda: subprocess.run(["umount", "-l", w.dir + "/m"]))
    w.do("dd if=/dev/zero of=m/x bs=4k 2>/dev/null; true")
    return w.run([PY, "-c", "import time\nwhile True:\n try:\n  f=open('m/y','w')\n  f.write('x'*100)\n  f.flush()\n  break\n except OSError: time.sleep(0.2)"]).pid, None


@case("a file system that is frozen for a backup", "write-blocked", "stopped", root=True, needs=["fsfreeze", "mkfs.ext4"])
def fs_frozen(w):
    w.do("truncate -s 32M img; mkfs.ext4 -q img; mkdir m; mount -o loop img m")
    w.undo.append(lambda: (subprocess.run(["fsfreeze", "-u", w.dir + "/m"]), time.sleep(0.3), subprocess.run(["umount", "-l", w.dir + "/m"])))
    w.do("fsfreeze -f m")
    return w.run("exec dd if=/dev/zero of=m/x bs=4k count=10").pid, None


# ---- servers and clients ----------------------------------------------------------------------------------


def nginx(w, workers=1, extra=""):
    p = port()
    w.file("nginx.conf", NGINX.replace("PORT", str(p)).replace("worker_processes 2", f"worker_processes {workers}").replace("root .;", "root .; " + extra))
    w.file("index.html", "x" * 100)
    n = w.run("exec nginx -p $PWD -c $PWD/nginx.conf -e $PWD/err.log")
    w.listening(p)
    return n, p


@case("curl waits for nginx, whose only worker is stopped", "stopped", needs=["nginx", "curl"])
def nginx_worker_stopped(w):
    n, p = nginx(w)
    k = w.stop(w.find(n, "nginx", 1))
    return w.run(["curl", "-s", f"http://127.0.0.1:{p}/"]).pid, k


@case("nginx's only worker is stopped: the master asks", "stopped", loose=["idle"], needs=["nginx"])
def nginx_master(w):
    n, p = nginx(w)
    return n.pid, w.stop(w.find(n, "nginx", 1))


@case("curl waits for nginx, nginx for an upstream that accepts and never answers", "peer-silent", needs=["nginx", "curl"])
def nginx_upstream_mute(w):
    q = port()
    s = w.run([PY, "-c", MUTE % q])
    w.listening(q)
    n, p = nginx(w, extra=f"location /u {{ proxy_pass http://127.0.0.1:{q}/; }}")
    return w.run(["curl", "-s", f"http://127.0.0.1:{p}/u"]).pid, s.pid


@case("curl waits for nginx, nginx for an upstream that is stopped", "stopped", needs=["nginx", "curl"])
def nginx_upstream_stopped(w):
    q = port()
    s = w.run([PY, "-m", "http.server", "--bind", "127.0.0.1", str(q)])
    w.listening(q)
    w.stop(s.pid)
    n, p = nginx(w, extra=f"location /u {{ proxy_pass http://127.0.0.1:{q}/; }}")
    return w.run(["curl", "-s", f"http://127.0.0.1:{p}/u"]).pid, s.pid


@case("curl waits for a server that accepts and never answers", "peer-silent", needs=["curl"])
def curl_mute(w):
    q = port()
    s = w.run([PY, "-c", MUTE % q])
    w.listening(q)
    return w.run(["curl", "-s", f"http://127.0.0.1:{q}/"]).pid, s.pid


@case("curl waits for a server that never accepts", "peer-silent", needs=["curl"])
def curl_no_accept(w):
    q = port()
    s = w.run([PY, "-c", f"import socket,time\ns=socket.create_server(('127.0.0.1',{q}))\nopen('up','w')\ntime.sleep(1000)"])
    w.wait(lambda: os.path.exists(w.dir + "/up"))
    return w.run(["curl", "-s", f"http://127.0.0.1:{q}/"]).pid, s.pid


@case("curl waits for a stopped server", "stopped", needs=["curl"])
def curl_stopped(w):
    q = port()
    s = w.run([PY, "-m", "http.server", "--bind", "127.0.0.1", str(q)])
    w.listening(q)
    w.stop(s.pid)
    return w.run(["curl", "-s", f"http://127.0.0.1:{q}/"]).pid, s.pid


@case("curl waits for a server that computes the answer", "busy-cpu", hung=False, needs=["curl"])
def curl_busy(w):
    q = port()
    s = w.run([PY, "-c", f"import socket\ns=socket.create_server(('127.0.0.1',{q}))\nwhile True:\n c=s.accept()[0]\n c.recv(1000)\n x=0\n for i in range(10**10): x=(x*31+i)%1000003"])
    time.sleep(0.5)
    return w.run(["curl", "-s", f"http://127.0.0.1:{q}/"]).pid, s.pid


@case("nc waits for a server that accepts and never answers", "peer-silent", needs=["nc"], loose=["idle"])
def nc_mute(w):
    q = port()
    s = w.run([PY, "-c", MUTE % q])
    w.listening(q)
    return w.run(["nc", "127.0.0.1", str(q)]).pid, s.pid


@case("ssh waits for a server that accepts and never says who it is", "peer-silent", needs=["ssh"])
def ssh_mute(w):
    q = port()
    s = w.run([PY, "-c", MUTE % q])
    w.listening(q)
    return w.run(["ssh", "-p", str(q), "-o", "BatchMode=yes", "127.0.0.1"]).pid, s.pid


def sshd(w):
    os.makedirs("/run/sshd", exist_ok=True)
    w.do("ssh-keygen -q -N '' -t ed25519 -f hk; ssh-keygen -q -N '' -t ed25519 -f id; cp id.pub ak; chmod 755 .")
    q = port()
    s = w.run(f"exec /usr/sbin/sshd -D -e -p {q} -f /dev/null -h $PWD/hk -o AuthorizedKeysFile=$PWD/ak -o StrictModes=no -o PermitRootLogin=yes -o PidFile=none -o 'Subsystem=sftp internal-sftp'")
    w.listening(q)
    return s, f"-i {w.dir}/id -p {q} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"


@case("the remote end of tar | ssh is stopped", "stopped", root=True, needs=["ssh", "/usr/sbin/sshd"])
def tar_ssh_stopped(w):
    s, o = sshd(w)
    p = w.run(["bash", "-c", f"yes | ssh {o} 127.0.0.1 'gzip >/dev/null'"])
    g = w.find(s, "gzip")
    time.sleep(1)
    w.stop(g)
    time.sleep(2)
    return w.find(p, "yes"), g


@case("the command at the far end of ssh computes", "busy-cpu", "progressing", hung=False, root=True, needs=["ssh", "/usr/sbin/sshd"], loose=["idle"])
def ssh_busy(w):
    s, o = sshd(w)
    p = w.run(f"exec ssh {o} 127.0.0.1 'gzip </dev/zero >/dev/null'")
    w.find(s, "gzip")
    return p.pid, None


@case("sshd's session process is stopped", "stopped", root=True, needs=["ssh", "/usr/sbin/sshd"])
def sshd_stopped(w):
    s, o = sshd(w)
    p = w.run(f"exec ssh {o} 127.0.0.1 cat", stdin=subprocess.PIPE)
    c = w.find(s, "cat")
    ppid = int(open(f"/proc/{c}/stat").read().rsplit(")", 1)[1].split()[1])
    return p.pid, w.stop(ppid)


@case("ls waits for sshfs, which is stopped", "stopped", root=True, needs=["sshfs", "/usr/sbin/sshd"])
def sshfs_stopped(w):
    s, o = sshd(w)
    os.mkdir(w.dir + "/m")
    f = w.run(f"exec sshfs -f -o IdentityFile=$PWD/id,port={o.split('-p ')[1].split()[0]},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null 127.0.0.1:/usr/share m")
    w.undo.append(lambda: subprocess.run(["umount", "-l", w.dir + "/m"]))
    w.wait(lambda: os.path.ismount(w.dir + "/m"))
    w.stop(f.pid)
    return w.run("exec ls m/perl5").pid, f.pid


@case("ls waits for sshfs, sshfs for ssh, ssh for an sftp server that is stopped", "stopped", root=True, needs=["sshfs", "/usr/sbin/sshd"], loose=["read-blocked", "peer-silent"])
def sshfs_far_end_stopped(w):
    s, o = sshd(w)
    os.mkdir(w.dir + "/m")
    w.run(f"exec sshfs -f -o IdentityFile=$PWD/id,port={o.split('-p ')[1].split()[0]},StrictHostKeyChecking=no,UserKnownHostsFile=/dev/null 127.0.0.1:/usr/share m")
    w.undo.append(lambda: subprocess.run(["umount", "-l", w.dir + "/m"]))
    w.wait(lambda: os.path.ismount(w.dir + "/m"))
    k = [p for p in descendants([s.pid])]
    for p in k:
        if p != s.pid:
            w.stop(p)
    return w.run("exec ls m/perl5").pid, k[1:]


def redis(w):
    s = w.run("exec redis-server --port 0 --unixsocket redis.sock --save '' --enable-debug-command yes --dir .")
    w.wait(lambda: os.path.exists(w.dir + "/redis.sock"))
    return s


@case("a worker waits for the next job in an empty redis list", "peer-silent", "idle", "progressing", hung=None, needs=["redis-cli", "redis-server"])
def redis_blpop(w):
    s = redis(w)
    return w.run(["redis-cli", "-s", "redis.sock", "BLPOP", "q", "0"]).pid, None


@case("redis-cli waits for a stopped server", "stopped", needs=["redis-cli", "redis-server"])
def redis_stopped(w):
    s = redis(w)
    w.stop(s.pid)
    return w.run(["redis-cli", "-s", "redis.sock", "GET", "q"]).pid, s.pid


@case("redis runs an endless script", "busy-cpu", "spin-wait", hung=None, needs=["redis-cli", "redis-server"])
def redis_lua(w):
    s = redis(w)
    return w.run(["redis-cli", "-s", "redis.sock", "EVAL", "while true do end", "0"]).pid, s.pid


@case("redis sleeps in a command", "peer-silent", "idle", hung=None, needs=["redis-cli", "redis-server"])
def redis_sleeps(w):
    s = redis(w)
    w.run(["redis-cli", "-s", "redis.sock", "DEBUG", "SLEEP", "1000"])
    time.sleep(0.5)
    return w.run(["redis-cli", "-s", "redis.sock", "GET", "x"]).pid, s.pid


def postgres(w):
    b = pg()
    if not b:
        raise Skip("no PostgreSQL")
    drop = " ".join(DROP) if os.getuid() == 0 and not w.opt.user else ""
    os.chmod(w.dir, 0o777)
    w.do(f"{drop} {b}/initdb -D pg -A trust -U u >/dev/null")
    w.env.update(PGHOST=w.dir, PGUSER="u", PGDATABASE="postgres", PATH=b + ":" + w.env["PATH"])
    s = w.run(f"exec {drop} postgres -D pg -k $PWD -h ''")
    w.wait(lambda: subprocess.run(["psql", "-c", "create table t (a int)"], env=w.env, cwd=w.dir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0)
    return s


@case("a query waits for the table lock of a session that is idle in its transaction", "peer-silent", "file-lock", "no-waker", hung=None, loose=["idle"])
def pg_lock(w):
    s = postgres(w)
    h = w.run("(echo 'BEGIN; LOCK TABLE t;'; sleep 1000) | psql")
    time.sleep(1.5)
    return w.run(["psql", "-c", "select * from t"]).pid, None


@case("a query waits for a backend that is stopped", "stopped")
def pg_backend_stopped(w):
    s = postgres(w)
    p = w.run(["psql", "-c", "select pg_sleep(1000)"])
    k = w.find(s, " SELECT")
    return p.pid, w.stop(k)


@case("a query computes", "busy-cpu", hung=False)
def pg_busy(w):
    s = postgres(w)
    p = w.run(["psql", "-c", "select count(*) from generate_series(1,1000000000) a"])
    return p.pid, None


@case("a session waits for the next line of its script from a silent pipe", "peer-silent", loose=["idle"])
def pg_idle_session(w):
    s = postgres(w)
    h = w.run("sleep 1000 | psql")
    return w.find(h, "psql"), w.find(h, "sleep")


@case("memcached is stopped", "stopped", needs=["memcached", "nc"])
def memcached_stopped(w):
    q = port()
    s = w.run(f"exec memcached -u nobody -l 127.0.0.1 -p {q}")
    w.listening(q)
    w.stop(s.pid)
    return w.run([PY, "-c", f"import socket\ns=socket.create_connection(('127.0.0.1',{q}))\ns.sendall(b'stats\\r\\n')\ns.recv(10)"]).pid, s.pid


@case("logger's daemon is stopped and its socket full", "stopped", needs=["rsyslogd", "logger"])
def syslog_stopped(w):
    d = w.dir
    w.file("rs.conf", f'module(load="imuxsock" SysSock.Use="off")\ninput(type="imuxsock" Socket="{d}/log.sock")\n*.* {d}/out.log\n')
    s = w.run("exec rsyslogd -n -i $PWD/pid -f $PWD/rs.conf")
    w.wait(lambda: os.path.exists(d + "/log.sock"))
    w.stop(s.pid)
    return w.run("yes | logger -u $PWD/log.sock").pid, s.pid


@case("a client of a stopped message bus", "stopped", needs=["dbus-daemon", "dbus-send"])
def dbus_stopped(w):
    s = w.run(["dbus-daemon", "--session", "--nofork", "--address=unix:path=" + w.dir + "/bus"])
    w.wait(lambda: os.path.exists(w.dir + "/bus"))
    w.stop(s.pid)
    return w.run(["dbus-send", "--bus=unix:path=" + w.dir + "/bus", "--print-reply", "--dest=org.freedesktop.DBus", "/", "org.freedesktop.DBus.ListNames"]).pid, s.pid


@case("the tmux server is stopped", "stopped", needs=["tmux"])
def tmux_stopped(w):
    c = w.run("exec tmux -S $PWD/t.sock new-session -s x 'bash --norc'", tty=True)
    w.wait(lambda: os.path.exists(w.dir + "/t.sock"))
    time.sleep(1)
    s = int(w.do("tmux -S $PWD/t.sock display-message -p '#{pid}'"))
    w.undo.append(lambda: os.kill(s, signal.SIGKILL))
    w.stop(s)
    return w.run("exec tmux -S $PWD/t.sock ls").pid, s


@case("rsync waits for its far end, which is stopped", "stopped", needs=["rsync"])
def rsync_stopped(w):
    w.do("mkdir d; for i in 1 2 3 4 5 6; do dd if=/dev/urandom of=d/$i bs=1M count=20 2>/dev/null; done")
    w.file("rsh", "#!/bin/sh\nshift\nexec \"$@\"\n")
    os.chmod(w.dir + "/rsh", 0o755)
    p = w.run("exec rsync -a --bwlimit=2000 -e $PWD/rsh d/ h:$PWD/e")
    k = w.find(p, "rsync", 1)
    time.sleep(1)
    k = [x for x in descendants([p.pid]) if x != p.pid]
    for x in k:
        w.stop(x)
    return p.pid, k


@case("ffmpeg reads a pipe that is silent", "peer-silent", needs=["ffmpeg"], loose=["idle"])
def ffmpeg_silent(w):
    p = w.run("sleep 1000 | ffmpeg -loglevel error -f rawvideo -s 64x64 -i - -y o.avi")
    return w.find(p, "ffmpeg"), w.find(p, "sleep")


@case("tail -f", "idle", hung=False)
def tail_f(w):
    w.file("x", "1\n")
    return w.run(["tail", "-f", "x"]).pid, None


@case("tail -f into a pipe: its reader waits", "idle", "peer-silent", hung=None)
def tail_f_pipe(w):
    w.file("x", "1\n")
    p = w.run("tail -f x | grep 2")
    return w.find(p, "grep"), None


# ---- containers -------------------------------------------------------------------------------------------


@case("in a container: sleep never reads its pipe", "pipe-full", root=True, needs=["unshare"])
def container_pipe(w):
    p = w.run(["unshare", "-p", "-m", "-u", "-i", "--fork", "--mount-proc", "sh", "-c", "yes | sleep 1000"])
    return w.find(p, "yes"), w.find(p, "sleep")


@case("in a container: a file lock held by another process of it", "file-lock", root=True, needs=["unshare", "flock"])
def container_flock(w):
    p = w.run(["unshare", "-p", "-m", "--fork", "--mount-proc", "bash", "-c", "mount -t tmpfs none /mnt; flock /mnt/a sleep 1000 & sleep 0.5; flock /mnt/a true; true"])
    time.sleep(1)
    return w.find(p, "flock", 1), [w.find(p, "flock"), w.find(p, "sleep")]


@case("in a container with a network of its own: a server that never answers", "peer-silent", root=True, needs=["unshare", "ip", "curl"])
def container_net(w):
    p = w.run(["unshare", "-p", "-m", "-n", "--fork", "--mount-proc", "bash", "-c", f"ip link set lo up; {PY} -c \"{MUTE % 8080}\" & sleep 1; curl -s http://127.0.0.1:8080/; true"])
    return w.find(p, "curl"), w.find(p, os.path.basename(os.path.realpath(PY)) if 0 else "python3")


@case("in a container of an ordinary user: the child is stopped", "stopped", needs=["unshare"])
def container_user(w):
    p = w.run(["unshare", "-U", "-r", "-p", "--fork", "--mount-proc", "bash", "-c", "gzip </dev/zero >/dev/null; true"])
    return w.find(p, "bash"), w.stop(w.find(p, "gzip"))


@case("in a chroot: busybox waits for a pipe", "pipe-full", root=True, needs=["busybox", "chroot"])
def chroot_pipe(w):
    w.do("mkdir -p c/bin c/proc; cp $(command -v busybox) c/bin/; for i in sh yes sleep; do ln -s busybox c/bin/$i; done; ldd c/bin/busybox | grep -o '/[^ ]*' | while read l; do mkdir -p c/$(dirname $l); cp $l c/$l; done; true")
    p = w.run(["chroot", w.dir + "/c", "/bin/sh", "-c", "yes | sleep 1000"])
    return w.find(p, "yes"), w.find(p, "sleep")


# ---- other languages --------------------------------------------------------------------------------------

JAVA = {
    "deadlock": "final Object a = new Object(), b = new Object(); Thread t = new Thread(() -> { synchronized (b) { s(500); synchronized (a) { } } }); t.start(); synchronized (a) { s(500); synchronized (b) { } }",
    "locks": "final var a = new java.util.concurrent.locks.ReentrantLock(); final var b = new java.util.concurrent.locks.ReentrantLock(); Thread t = new Thread(() -> { b.lock(); s(500); a.lock(); }); t.start(); a.lock(); s(500); b.lock();",
    "queue": "new java.util.concurrent.LinkedBlockingQueue<String>().take();",
    "socket": "new java.net.Socket(\"127.0.0.1\", PORT).getInputStream().read();",
    "child": "new ProcessBuilder(\"sleep\", \"1000\").start().waitFor();",
    "stdin": "System.in.read();",
    "gcbusy": "java.util.List<byte[]> l = new java.util.ArrayList<>(); while (true) { l.add(new byte[1000]); if (l.size() > 20000) l.clear(); }",
}


def java(w, kind, q=0):
    w.file("T.java", "public class T { static void s(int n) { try { Thread.sleep(n); } catch (Exception e) { } } public static void main(String[] x) throws Exception { " + JAVA[kind].replace("PORT", str(q)) + " } }")
    w.do("javac T.java")
    p = w.run(["java", "-Xmx64m", "T"])
    time.sleep(2.5)
    return p.pid


@case("two Java threads, two monitors, opposite order", "deadlock", "no-waker", needs=["javac"])
def java_deadlock(w):
    return java(w, "deadlock"), None


@case("two Java threads, two ReentrantLocks, opposite order", "deadlock", "no-waker", needs=["javac"])
def java_locks(w):
    return java(w, "locks"), None


@case("Java takes from a queue that nobody fills", "no-waker", needs=["javac"], loose=["idle"])
def java_queue(w):
    return java(w, "queue"), None


@case("Java reads from a server that never answers", "peer-silent", needs=["javac"])
def java_socket(w):
    q = port()
    s = w.run([PY, "-c", MUTE % q])
    w.listening(q)
    return java(w, "socket", q), s.pid


@case("Java waits for a child that sleeps", "idle", hung=False, needs=["javac"])
def java_child(w):
    return java(w, "child"), None


@case("Java reads a terminal", "idle", hung=False, needs=["javac"])
def java_tty(w):
    w.file("T.java", "public class T { public static void main(String[] x) throws Exception { System.in.read(); } }")
    w.do("javac T.java")
    return w.run(["java", "T"], tty=True).pid, None


@case("Java computes and collects garbage", "busy-cpu", "progressing", hung=False, needs=["javac"])
def java_busy(w):
    return java(w, "gcbusy"), None


def node(w, js, **k):
    w.file("n.js", js)
    return w.run(["node", "n.js"], **k).pid


@case("node's main thread waits in Atomics.wait for a notification that nobody sends", "no-waker", needs=["node"], loose=["idle"])
def node_atomics(w):
    return node(w, "const a = new Int32Array(new SharedArrayBuffer(4)); Atomics.wait(a, 0, 0);"), None


@case("node's main waits for a worker, the worker in Atomics.wait for main, which will not notify", "no-waker", needs=["node"], loose=["idle"])
def node_worker_atomics(w):
    return node(w, "const {Worker,isMainThread,workerData}=require('worker_threads'); if(isMainThread){const b=new SharedArrayBuffer(4);const k=new Worker(__filename,{workerData:b});k.on('exit',()=>0);}else{Atomics.wait(new Int32Array(workerData),0,0);}"), None


@case("node waits for a server that never answers", "peer-silent", needs=["node"], loose=["idle"])
def node_http(w):
    q = port()
    s = w.run([PY, "-c", MUTE % q])
    w.listening(q)
    return node(w, f"require('http').get('http://127.0.0.1:{q}/', r => 0);"), s.pid


@case("node computes on its event loop", "busy-cpu", "spin-wait", hung=None, needs=["node"])
def node_busy(w):
    return node(w, "let s=0; for(let i=0;;i++){ s=(s*31+i)%1000003; if(s<0) console.log(s); }"), None


@case("node waits for a child that is stopped", "stopped", needs=["node"], loose=["idle"])
def node_child(w):
    p = node(w, "require('child_process').exec('gzip </dev/zero >/dev/null', ()=>0);")
    return p, w.stop(w.find(p, "gzip"))


@case("node waits in spawnSync for a child that is stopped", "stopped", needs=["node"])
def node_spawn_sync(w):
    p = node(w, "require('child_process').spawnSync('sh', ['-c', 'gzip </dev/zero >/dev/null; true']);")
    return p, w.stop(w.find(p, "gzip"))


def rust(w, body):
    w.file("r.rs", body)
    w.do("rustc -O -C debuginfo=1 -o r r.rs")
    return w.run(["./r"]).pid


@case("two Rust threads, two std Mutexes, opposite order", "deadlock", "no-waker", needs=["rustc"])
def rust_mutex(w):
    return rust(w, "use std::sync::*;use std::thread;use std::time::Duration;fn main(){let a=Arc::new(Mutex::new(0));let b=Arc::new(Mutex::new(0));let (a2,b2)=(a.clone(),b.clone());let t=thread::spawn(move||{let _x=b2.lock().unwrap();thread::sleep(Duration::from_millis(300));let _y=a2.lock().unwrap();});let _x=a.lock().unwrap();thread::sleep(Duration::from_millis(300));let _y=b.lock().unwrap();t.join().unwrap();}"), None


@case("Rust receives from a channel whose sender it holds itself", "no-waker", needs=["rustc"])
def rust_mpsc(w):
    return rust(w, "use std::sync::mpsc;fn main(){let (t,r)=mpsc::channel::<i32>();println!(\"{:?}\",r.recv());drop(t);}"), None


@case("Rust joins a thread that locks a Mutex main holds", "deadlock", "no-waker", needs=["rustc"])
def rust_join(w):
    return rust(w, "use std::sync::*;use std::thread;fn main(){let a=Arc::new(Mutex::new(0));let a2=a.clone();let _g=a.lock().unwrap();let t=thread::spawn(move||{let _y=a2.lock().unwrap();});t.join().unwrap();}"), None


@case("a Rust thread locks a Mutex whose holder sleeps for long", "idle", "progressing", hung=False, needs=["rustc"], loose=["unknown", "no-waker"])
def rust_mutex_sleeper(w):
    return rust(w, "use std::sync::*;use std::thread;use std::time::Duration;fn main(){let a=Arc::new(Mutex::new(0));let a2=a.clone();thread::spawn(move||{let _y=a2.lock().unwrap();thread::sleep(Duration::from_secs(1000));});thread::sleep(Duration::from_millis(200));let _g=a.lock().unwrap();}"), None


def go(w, body, *imports):
    w.env.update(GOCACHE=w.dir + "/gc", GO111MODULE="off")
    w.file("g.go", "package main\nimport (" + ";".join(f'"{i}"' for i in imports) + ")\n" + body)
    w.do("go build -o g g.go", timeout=300)
    return w.run(["./g"]).pid


@case("a goroutine waits on a channel for one that waits on another (a listener keeps the runtime quiet)", "deadlock", "no-waker", needs=["go"], loose=["idle"])
def go_channels(w):
    return go(w, "func main(){l,_:=net.Listen(\"tcp\",\"127.0.0.1:0\"); go func(){l.Accept()}(); a,b:=make(chan int),make(chan int); go func(){a<-(<-b)}(); b<-(<-a)}", "net"), None


@case("Go waits for a server that never answers", "peer-silent", needs=["go"], loose=["idle"])
def go_http(w):
    q = port()
    s = w.run([PY, "-c", MUTE % q])
    w.listening(q)
    return go(w, f"func main(){{http.Get(\"http://127.0.0.1:{q}/\")}}", "net/http"), s.pid


@case("Go waits for a stopped child", "stopped", needs=["go"])
def go_child(w):
    p = go(w, "func main(){exec.Command(\"gzip\",\"-c\",\"/dev/zero\").Run()}", "os/exec")
    return p, w.stop(w.find(p, "gzip"))


@case("a goroutine holds a mutex while its command's child is stopped; main wants the mutex", "stopped", needs=["go"], loose=["idle"])
def go_mutex_child(w):
    p = go(w, "func main(){var m sync.Mutex; go func(){m.Lock(); exec.Command(\"gzip\",\"-c\",\"/dev/zero\").Run()}(); time.Sleep(200000000); m.Lock()}", "os/exec", "sync", "time")
    return p, w.stop(w.find(p, "gzip"))


@case("Ruby waits for a queue that a sleeping thread would fill", "no-waker", "idle", hung=None, needs=["ruby"])
def ruby_queue(w):
    return w.run(["ruby", "-e", "q=Queue.new; Thread.new{sleep}; Thread.new{sleep 10000}; q.pop"]).pid, None


@case("Ruby waits for a stopped child", "stopped", needs=["ruby"])
def ruby_child(w):
    p = w.run(["ruby", "-e", "system('gzip </dev/zero >/dev/null; true')"])
    return p.pid, w.stop(w.find(p, "gzip"))


@case("Ruby reads from a silent server", "peer-silent", needs=["ruby"])
def ruby_socket(w):
    q = port()
    s = w.run([PY, "-c", MUTE % q])
    w.listening(q)
    return w.run(["ruby", "-rsocket", "-e", f"TCPSocket.new('127.0.0.1',{q}).gets"]).pid, s.pid


@case("Perl waits for a flock that another Perl holds", "file-lock", needs=["perl"])
def perl_flock(w):
    h = w.run(["perl", "-e", "open F,'>','l'; flock F,2; open G,'>','held'; sleep 1000"])
    w.wait(lambda: os.path.exists(w.dir + "/held"))
    return w.run(["perl", "-e", "open F,'>','l'; flock F,2"]).pid, h.pid


@case("Perl's backticks wait for a stopped child", "stopped", needs=["perl"])
def perl_backticks(w):
    p = w.run(["perl", "-e", "$x=`gzip -c /dev/zero >/dev/null; true`"])
    return p.pid, w.stop(w.find(p, "gzip"))


@case("Perl's open2 ring with bc: both wait for the other's line", "deadlock", needs=["perl", "cat"])
def perl_open2(w):
    p = w.run(["perl", "-MIPC::Open2", "-e", "open2($o,$i,'cat'); print $i \"1+1\\n\" if 0; $l=<$o>"])
    return p.pid, None


@case("a Perl line stays in its own buffer, and it waits for the answer", "deadlock", "log-buffered", hung=True, needs=["perl"])
def perl_open2_buffered(w):
    p = w.run(["perl", "-MIPC::Open2", "-e", "$|=0; open2($o,$i,'cat'); select($i); $|=0; print $i \"x\\n\"; $l=<$o>"])
    return p.pid, None


@case("expect waits for a prompt that its program never prints", "peer-silent", loose=["idle"], needs=["expect"])
def expect_silent(w):
    p = w.run(["expect", "-c", "set timeout -1; spawn sleep 1000; expect prompt"])
    return p.pid, w.find(p, "sleep")


@case("script(1) records a shell at its prompt", "idle", hung=False, needs=["script"])
def script_shell(w):
    return w.run(["script", "-q", "-c", "bash --norc", "out"], tty=True).pid, None


@case("su/sudo's kind: the parent waits for a child at a terminal", "idle", hung=False, needs=["setpriv"])
def setpriv_shell(w):
    return w.run(["bash", "-c", "bash --norc -i; true"], tty=True).pid, None


@case("timeout(1) watches a stopped program", "stopped")
def timeout_stopped(w):
    p = w.run(["timeout", "1000", "gzip", "-c", "/dev/zero"])
    return p.pid, w.stop(w.find(p, "gzip"))


@case("timeout(1) over a sleep", "idle", hung=False)
def timeout_sleep(w):
    return w.run(["timeout", "1000", "sleep", "900"]).pid, None


@case("nohup'd find over a pipe to a stopped less", "stopped")
def find_less(w):
    p = w.run(["bash", "-c", "find / -xdev 2>/dev/null | less"], tty=True)
    l = w.stop(w.find(p, "less"))
    return w.find(p, "find"), l


@case("find waits for less, and less for a person who reads", "idle", "pipe-full", hung=None)
def find_less_person(w):
    p = w.run(["bash", "-c", "find / -xdev 2>/dev/null | less"], tty=True)
    return w.find(p, "find"), None


@case("cp from a FIFO into a FIFO that nobody reads", "pipe-full", "peer-silent", "no-waker")
def cp_fifo(w):
    w.fifo("f")
    return w.run("exec cp /etc/passwd f").pid, None


@case("mail's kind: a here-document into a reader that waits for a lock", "file-lock", needs=["flock"])
def pipe_into_lock(w):
    h = w.run("exec flock a sleep 1000")
    time.sleep(0.3)
    p = w.run("yes | flock a cat >/dev/null")
    return w.find(p, "yes"), [h.pid, w.find(h, "sleep")]


@case("parallel jobs serialise on a lock whose holder works", "busy-cpu", hung=False, needs=["flock"], loose=["file-lock"])
def flock_busy(w):
    h = w.run("exec flock a gzip -c /dev/zero")
    time.sleep(0.3)
    return w.run("exec flock a true").pid, None


# ---- the runner -------------------------------------------------------------------------------------------


def judge(c, v, culprit):
    got = v.get("culprit", {}).get("pid")
    if v["class"] in c["classes"] and (c["hung"] is None or v["hung"] == c["hung"]):
        want = culprit if isinstance(culprit, (list, tuple)) else [culprit] if culprit else None
        if want and got not in want:
            return "CULPRIT", f"culprit {got}, should be {want}"
        return "ok", ""
    if v["class"] == "unknown" or v["class"] in c["loose"]:
        return "unknown", ""
    return "WRONG", f"{v['class']} hung={v['hung']}, should be {'|'.join(c['classes'])}"


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("cases", nargs="*", metavar="CASE", help="names, or the beginning of names")
    ap.add_argument("--build", default=os.path.join(HERE, "../../build"))
    ap.add_argument("--user", action="store_true", help="programs and tool as an ordinary user, without BPF")
    ap.add_argument("--no-bpf", action="store_true")
    ap.add_argument("--text", action="store_true", help="print what a person would read")
    ap.add_argument("--table", action="store_true", help="print the rows of a table for docs/tried.md")
    ap.add_argument("--keep", metavar="DIR", help="keep the JSON of each answer")
    ap.add_argument("--list", action="store_true")
    opt = ap.parse_args()
    tool = os.path.abspath(opt.build) + "/bin/waitgraph"
    count, rows = {}, []
    for c in CASES:
        if opt.cases and not any(c["name"].startswith(x) for x in opt.cases):
            continue
        if opt.list:
            print(f"{c['name']}: {c['truth']} ({'|'.join(c['classes'])})")
            continue
        lack = [n for n in c["needs"] if not shutil.which(n)]
        why = f"there is no {lack[0]}" if lack else "needs root" if c["root"] and (os.getuid() or opt.user) else None
        verdict, note, v, text = "skip", why, None, ""
        if not why:
            work = tempfile.mkdtemp(prefix="wg-real-")
            os.chmod(work, 0o755)
            if opt.user and os.getuid() == 0:
                os.chown(work, 65534, 65534)
            w = World(opt, work)
            try:
                pid, culprit = c["f"](w)
                time.sleep(c["settle"] + (1.5 if os.getloadavg()[0] > 2 * (os.cpu_count() or 1) else 0))
                argv = (DROP if opt.user and os.getuid() == 0 else []) + [tool, "why"] + (["--no-bpf"] if opt.user or opt.no_bpf else [])
                t0 = time.time()
                r = subprocess.run(argv + ["--json", str(pid)], capture_output=True, timeout=90)
                took = time.time() - t0
                if opt.text:
                    text = subprocess.run(argv + [str(pid)], capture_output=True, timeout=90).stdout.decode()
                if opt.keep:
                    os.makedirs(opt.keep, exist_ok=True)
                    open(f"{opt.keep}/{c['name']}.json", "wb").write(r.stdout)
                v = json.loads(r.stdout)["verdict"]
                verdict, note = judge(c, v, culprit)
                if took > 10:
                    note += f" took {took:.1f} s"
            except Skip as e:
                verdict, note = "skip", str(e)
            except Exception as e:
                verdict, note = "WRONG", f"{type(e).__name__}: {e}"
            finally:
                for p in list(descendants([p.pid for p in w.procs])):
                    try:
                        os.kill(p, signal.SIGCONT) if 0 else None
                    except OSError:
                        pass
                for f in w.undo:
                    try:
                        f()
                    except OSError as e:
                        print(f"  {c['name']}: cleaning up: {e}")
                kill_all(w.procs)
                for fd in w.fds:
                    os.close(fd)
                shutil.rmtree(work, ignore_errors=True)
        count[verdict] = count.get(verdict, 0) + 1
        print(f"{verdict:8} {c['name']}: {c['truth']}{' [' + note + ']' if note else ''}", flush=True)
        if v and not opt.table:
            print(f"         {v['class']} hung={v['hung']} {v['confidence']}: {v['summary']}")
            if verdict != "ok" or opt.text:
                print("\n".join("           " + x for x in v.get("chain", []) + ["?? " + x for x in v.get("not_established", [])]))
                print(f"           -> {v.get('advice')}")
        if text:
            print("           | " + text.replace("\n", "\n           | "), flush=True)
        if v:
            rows.append(f"| {c['name']} | {c['truth']} | `{v['class']}`, {'hung' if v['hung'] else 'undecided' if v['hung'] is None else 'not hung'} |  |" if sys.version_info >= (3, 12) else
                        "| %s | %s | `%s`, %s | %s |" % (c["name"], c["truth"], v["class"], "hung" if v["hung"] else "undecided" if v["hung"] is None else "not hung", v["summary"].replace("|", "\\|")[:160]))
    if opt.table:
        print("\n".join(rows))
    print(" ".join(f"{n} {k}" for k, n in sorted(count.items())))
    return 1 if count.get("WRONG") or count.get("CULPRIT") else 0


if __name__ == "__main__":
    sys.exit(main())
