#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Healthy programs under load: none may ever be called hung.

Starts programs that nobody planted anything in (a build, a web server under requests, a busy thread pool, a
database, a Python test suite, a pipeline, a shell at its prompt), asks `waitgraph why` about a process of each tree
at random moments, again and again, and counts. Prints one line a program and `N samples, M called hung`.

Without an option it takes what every build machine has, and stays below 40 s on an idle one. `--all` adds whatever
else is installed (nginx, redis, PostgreSQL, node, java, cargo, ...) and `--samples 200` makes the long run;
the figures of such a run stand in docs/tried.md.
"""
import argparse, collections, json, os, pty, random, shutil, signal, subprocess, sys, tempfile, threading, time

HERE = os.path.dirname(os.path.abspath(__file__))
PY = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable

POOL = r"""
import concurrent.futures, hashlib, queue, threading, time
q = queue.Queue(8)
def produce():
    while True:
        q.put(bytes(range(256)) * 64)
def consume():
    while True:
        hashlib.sha256(q.get()).hexdigest()
for f in (produce, consume, consume, consume):
    threading.Thread(target=f, daemon=True).start()
with concurrent.futures.ThreadPoolExecutor(8) as pool:
    while True:
        list(pool.map(lambda i: (time.sleep(0.001), sum(range(2000)))[1], range(200)))
"""
SQLITE = r"""
import sqlite3, threading, time
c = sqlite3.connect("db"); c.execute("pragma journal_mode=wal"); c.execute("create table if not exists t (a, b)"); c.commit(); c.close()
def work(n):
    c = sqlite3.connect("db", timeout=30)
    while True:
        with c:
            c.execute("insert into t values (?, ?)", (n, time.time()))
        c.execute("select count(*) from t").fetchone()
for n in range(4):
    threading.Thread(target=work, args=(n,), daemon=True).start()
while True:
    time.sleep(0.2)
"""
TESTS = r"""
import subprocess, sys
while True:
    subprocess.run([sys.executable, "-m", "unittest", "-q", "test.test_json", "test.test_queue", "test.test_threading"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    subprocess.run([sys.executable, "-c", "import json, timeit; print(timeit.timeit(lambda: json.dumps(list(range(100))), number=20000))"],
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
MP = r"""
import multiprocessing as mp
def f(x):
    return sum(i * i for i in range(20000 + x))
if __name__ == "__main__":
    with mp.Pool(3) as p:
        while True:
            p.map(f, range(64))
"""
WEB = r"""
import http.server
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"x" * 4096)
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
open("port.tmp", "w").write(str(s.server_port)); __import__("os").rename("port.tmp", "port")
s.serve_forever()
"""
LOAD = r"""
import os, time, urllib.request
while not os.path.exists("port"): time.sleep(0.05)
u = "http://127.0.0.1:" + open("port").read()
while True:
    try: urllib.request.urlopen(u).read(); time.sleep(0.002)
    except OSError: time.sleep(0.1)
"""
ASYNC = r"""
import asyncio
async def serve(r, w):
    while line := await r.readline():
        w.write(line.upper()); await w.drain()
async def client(port):
    r, w = await asyncio.open_connection("127.0.0.1", port)
    while True:
        w.write(b"hello\n"); await w.drain(); await r.readline(); await asyncio.sleep(0.01)
async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", 0)
    await asyncio.gather(*(client(s.sockets[0].getsockname()[1]) for _ in range(8)))
asyncio.run(main())
"""
ASYNC_IDLE = r"""
import asyncio
async def serve(r, w):
    w.write(await r.readline())
async def main():
    s = await asyncio.start_server(serve, "127.0.0.1", 0)
    await s.serve_forever()
asyncio.run(main())
"""
KERNEL = r"""
import socket, threading, queue, time
# The shape of a notebook's kernel: a heartbeat thread, an I/O thread with a queue, main waits for a request.
a, b = socket.socketpair()
q = queue.Queue()
def beat():
    s = socket.create_server(("127.0.0.1", 0))
    while True: s.accept()
def io():
    while True: q.get()
for f in (beat, io): threading.Thread(target=f, daemon=True).start()
s = socket.create_server(("127.0.0.1", 0))
while True: s.accept()
"""
JAVA = r"""
import java.util.*; import java.util.concurrent.*;
public class Busy {
    static final LinkedBlockingQueue<byte[]> q = new LinkedBlockingQueue<>(64);
    public static void main(String[] a) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(8);
        for (int i = 0; i < 4; i++) pool.submit(() -> { while (true) { q.put(new byte[100000]); } });
        for (int i = 0; i < 4; i++) pool.submit(() -> { List<byte[]> l = new ArrayList<>(); while (true) { l.add(q.take()); if (l.size() > 200) l.clear(); Thread.sleep(1); } });
        new CountDownLatch(1).await(1, TimeUnit.DAYS);
    }
}
"""
JAVA_IDLE = r"""
import java.net.*;
public class Idle { public static void main(String[] a) throws Exception { new ServerSocket(0).accept(); } }
"""
NODE = r"""
const http = require('http'), fs = require('fs');
const s = http.createServer((q, r) => r.end('x'.repeat(4096)));
s.listen(0, '127.0.0.1', () => fs.writeFileSync('port', '' + s.address().port));
"""
NODE_WORKERS = r"""
const { Worker, isMainThread, parentPort } = require('worker_threads');
if (isMainThread) { for (let i = 0; i < 3; i++) { const w = new Worker(__filename); w.on('message', () => w.postMessage(1)); w.postMessage(1); } }
else parentPort.on('message', () => { let s = 0; for (let i = 0; i < 1e6; i++) s += i; parentPort.postMessage(s); });
"""
GO = r"""
package main
import ("net/http"; "fmt"; "net"; "os"; "time"; "io")
func main() {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello") })
	go http.Serve(l, nil)
	if len(os.Args) > 1 { select {} }
	for i := 0; i < 4; i++ { go func() { for { r, e := http.Get("http://" + l.Addr().String()); if e == nil { io.Copy(io.Discard, r.Body); r.Body.Close() }; time.Sleep(time.Millisecond) } }() }
	select {}
}
"""
RUST = "pub fn f%d(v: &mut Vec<u64>) -> u64 { v.sort(); v.iter().map(|x| x.wrapping_mul(%d)).filter(|x| x %% 3 == 0).fold(0u64, |a, b| a ^ b) }\n"
RUBY = r"""
q = SizedQueue.new(4)
3.times { Thread.new { loop { q.pop.hash; } } }
loop { q << "x" * 1000; sleep 0.0005 }
"""
PERL_IDLE = r"""use IO::Socket::INET; my $s = IO::Socket::INET->new(Listen => 5, LocalAddr => '127.0.0.1'); while (my $c = $s->accept) { print $c <$c>; }"""
MAKEFILE = "all: " + " ".join(f"o{i}" for i in range(40)) + "\no%:\n\t@cc -O2 -c -o $@.tmp src.c && mv $@.tmp $@\n"
NINJA = "rule cc\n command = cc -O2 -c -o $out $in\n" + "".join(f"build o{i}: cc src.c\n" for i in range(40))
SRC = "".join(f"int f{i}(int x) {{ int s = 0; for (int k = 0; k < x; k++) s += k * {i} ^ s; return s; }}\n" for i in range(400))
CXX = "#include <map>\n#include <regex>\n#include <string>\n#include <functional>\n" + "".join(
    f"int g{i}(const std::string &s) {{ std::regex r(\"a{i}+\"); std::map<std::string, std::function<int(int)>> m; m[s] = [](int x) {{ return x * {i}; }}; return std::regex_match(s, r) + m[s]({i}); }}\n"
    for i in range(60))
REDIS = "redis-server --port 0 --unixsocket redis.sock --save '' --dir ."
NGINX = """daemon off; master_process on; worker_processes 2; pid nginx.pid; error_log err.log;
events {} http { access_log off; client_body_temp_path t1; proxy_temp_path t2; fastcgi_temp_path t3; uwsgi_temp_path t4; scgi_temp_path t5;
server { listen 127.0.0.1:PORT; root .; } }"""
PGBIN = "/usr/lib/postgresql"
DROP = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]


class Program:
    """One tree of processes. `first` is asked besides random ones of the tree; `idle`: nothing but rest may be said."""
    def __init__(self, name, *cmds, tty=False, idle=False, prepare=None, extra=False, needs=(), settle=1.5, keys=None, as_user=False):
        self.name, self.cmds, self.tty, self.idle, self.prepare = name, cmds, tty, idle, prepare
        self.extra, self.needs, self.settle, self.keys, self.as_user = extra, needs, settle, keys, as_user


def sh(script):
    return ["sh", "-c", script]


def pg():
    for v in sorted(os.listdir(PGBIN) if os.path.isdir(PGBIN) else [], reverse=True):
        if os.path.exists(f"{PGBIN}/{v}/bin/postgres"):
            return f"{PGBIN}/{v}/bin"
    p = shutil.which("postgres")
    return os.path.dirname(os.path.realpath(p)) if p else None


def port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def write(work, name, text):
    with open(os.path.join(work, name), "w") as f:
        f.write(text)


def run_in(work, *cmd):
    subprocess.run(cmd, cwd=work, check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=180)


def programs():
    P, wait_port = Program, "while [ ! -s port ]; do sleep 0.1; done; "
    yield P("make -j4", sh("while :; do rm -f o*; make -s -j4; done"))
    yield P("web server under requests", [PY, "-c", WEB], [PY, "-c", LOAD])
    yield P("idle web server", [PY, "-c", WEB], idle=True)
    yield P("thread pool", [PY, "-c", POOL])
    yield P("process pool", [PY, "-c", MP])
    yield P("sqlite, 4 writers", [PY, "-c", SQLITE])
    yield P("Python test suite", [PY, "-c", TESTS])
    yield P("pipeline", sh("while :; do seq 1 200000 | sort -n | gzip | gzip -d | tail -1 >/dev/null; done"))
    yield P("shell that sleeps", sh("while :; do sleep 1; done"))
    yield P("dd and sync", sh("while :; do dd if=/dev/zero of=big bs=1M count=64 conv=fsync 2>/dev/null; done"))
    yield P("asyncio server and clients", [PY, "-c", ASYNC])
    yield P("asyncio server, idle", [PY, "-c", ASYNC_IDLE], idle=True)
    yield P("the shape of a notebook kernel", [PY, "-c", KERNEL], idle=True)
    yield P("bash at its prompt", ["bash", "--norc", "-i"], tty=True, idle=True, needs=["bash"])
    yield P("sh at its prompt", ["sh", "-i"], tty=True, idle=True)
    yield P("Python at its prompt", [PY], tty=True, idle=True)
    yield P("cat on a terminal", ["cat"], tty=True, idle=True)
    yield P("script that asks on a terminal", sh("echo 'really?'; read x; echo $x"), tty=True, idle=True)
    yield P("git in a loop", sh("git init -q r; cd r; git config user.email a@b; git config user.name a; i=0; while :; do i=$((i+1)); echo $i >f; git add f; git commit -qm $i; git gc -q --auto; done"), needs=["git"])
    yield P("tail -f", sh("echo hello > log; exec tail -f log"), idle=True)
    yield P("tar through a pipe", sh("mkdir -p d e; for i in 1 2 3 4 5 6 7 8; do dd if=/dev/urandom of=d/$i bs=1M count=4 2>/dev/null; done; while :; do tar cf - d | gzip -1 | gzip -d | tar xf - -C e; done"))
    yield P("xargs -P", sh("while :; do seq 1 40 | xargs -P3 -n1 sh -c 'i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done'; done"))
    # What not every build machine has.
    X = lambda *a, **k: P(*a, extra=True, **k)
    yield X("ninja", sh("while :; do rm -f o*; ninja -j3 >/dev/null; done"), needs=["ninja"])
    yield X("cc1plus", sh("while :; do c++ -O2 -c -o x.o cxx.cc; done"), needs=["c++"])
    yield X("cmake", sh("while :; do rm -rf b; cmake -S cm -B b >/dev/null; done"), needs=["cmake"],
            prepare=lambda w, e: (os.mkdir(w + "/cm"), write(w, "cm/CMakeLists.txt", "cmake_minimum_required(VERSION 3.10)\nproject(x C CXX)\ninclude(CheckIncludeFile)\n" + "".join(f"check_include_file({h}.h H_{h})\n" for h in ("a", "stdio", "stdlib", "poll", "fcntl")))))
    yield X("git clone, gc, repack", sh("git init -q r; cd r; git config user.email a@b; git config user.name a; for i in 1 2 3 4 5 6 7 8 9; do seq $i 60000 > f$i; git add .; git commit -qm $i; done; cd ..; while :; do rm -rf c; git clone -q --no-local r c; git -C c repack -adfq --threads=3; git -C c gc -q; done"), needs=["git"])
    yield X("redis under load", sh("exec " + REDIS), sh("sleep 1; while :; do redis-benchmark -q -s redis.sock -n 20000 >/dev/null; done"), needs=["redis-server", "redis-benchmark"])
    yield X("redis, idle", sh("exec " + REDIS), idle=True, needs=["redis-server"])
    yield X("memcached under load", sh("exec memcached -u nobody -l 127.0.0.1 -p $(cat port)"),
            [PY, "-c", "import socket,time\ntime.sleep(.5)\ns=socket.create_connection(('127.0.0.1',int(open('port').read())))\nwhile True:\n s.sendall(b'set a 0 0 3\\r\\nabc\\r\\nget a\\r\\n'); s.recv(100)"],
            needs=["memcached"], prepare=lambda w, e: write(w, "port", str(port())))
    yield X("memcached, idle", sh("exec memcached -u nobody -l 127.0.0.1 -p $(cat port)"), idle=True, needs=["memcached"], prepare=lambda w, e: write(w, "port", str(port())))
    def nginx(w, e):
        p = port()
        write(w, "nginx.conf", NGINX.replace("PORT", str(p)))
        write(w, "port", str(p))
        write(w, "index.html", "x" * 4096)
    ng = "exec nginx -p $PWD -c $PWD/nginx.conf -e $PWD/err.log"
    yield X("nginx under load", sh(ng), sh("sleep 0.7; while :; do wrk -t2 -c16 -d2s http://127.0.0.1:$(cat port)/index.html >/dev/null || ab -q -n 5000 -c 8 http://127.0.0.1:$(cat port)/index.html >/dev/null; done"), needs=["nginx"], prepare=nginx)
    yield X("nginx, idle", sh(ng), idle=True, needs=["nginx"], prepare=nginx)
    def pgdb(w, e):
        b = pg()
        os.chmod(w, 0o777)
        cmd = [b + "/initdb", "-D", w + "/pg", "-A", "trust", "-U", "u"]
        run_in(w, *((DROP if os.getuid() == 0 else []) + cmd))
        e["PGHOST"], e["PGUSER"], e["PGDATABASE"] = w, "u", "postgres"
        e["PATH"] = b + ":" + e["PATH"]
    pgs = "exec $SETPRIV postgres -D pg -k $PWD -h ''"
    if pg():
        yield X("PostgreSQL under pgbench", sh(pgs), sh("sleep 2; pgbench -qi -s 1 >/dev/null 2>&1; while :; do pgbench -c 4 -j 2 -T 5 >/dev/null 2>&1; done"), prepare=pgdb, settle=5)
        yield X("PostgreSQL, an idle session", sh(pgs), sh("sleep 2; (echo 'select 1;'; sleep 1000) | psql >/dev/null"), prepare=pgdb, settle=4, idle=True)
    yield X("sqlite3 shells that write", sh("sqlite3 db 'pragma journal_mode=wal; create table t(a)' >/dev/null; for n in 1 2 3; do (while :; do sqlite3 -cmd '.timeout 20000' db 'begin immediate; insert into t values (1); commit' ; done) & done; wait"), needs=["sqlite3"])
    yield X("rsync over a pipe", sh("mkdir -p d; for i in 1 2 3 4 5 6; do dd if=/dev/urandom of=d/$i bs=1M count=8 2>/dev/null; done; while :; do rm -rf e; rsync -a -e 'sh -c \"shift; exec \\\"\\$@\\\"\" x' d/ h:$PWD/e; done"), needs=["rsync"])
    yield X("tar, zstd", sh("mkdir -p d e; for i in 1 2 3 4 5 6; do seq $i 400000 > d/$i; done; while :; do tar cf - d | zstd -q -T2 | zstd -qd | tar xf - -C e; done"), needs=["zstd"])
    yield X("pytest", sh("while :; do python3 -m pytest -q -x t.py >/dev/null; done"), needs=["pytest-3"],
            prepare=lambda w, e: write(w, "t.py", "import time, pytest, subprocess\n@pytest.mark.parametrize('i', range(30))\ndef test(i):\n    time.sleep(0.01); subprocess.run(['true']); assert sum(range(i * 1000)) >= 0\n"))
    yield X("node server under requests", ["node", "n.js"], [PY, "-c", LOAD], needs=["node"], prepare=lambda w, e: write(w, "n.js", NODE))
    yield X("node server, idle", ["node", "n.js"], idle=True, needs=["node"], prepare=lambda w, e: write(w, "n.js", NODE))
    yield X("node worker threads", ["node", "n.js"], needs=["node"], prepare=lambda w, e: write(w, "n.js", NODE_WORKERS))
    yield X("node at its prompt", ["node"], tty=True, idle=True, needs=["node"])
    yield X("java thread pools and GC", ["java", "-Xmx64m", "Busy.java"], needs=["java", "javac"], prepare=lambda w, e: write(w, "Busy.java", JAVA), settle=4)
    yield X("java server, idle", ["java", "Idle.java"], idle=True, needs=["java", "javac"], prepare=lambda w, e: write(w, "Idle.java", JAVA_IDLE), settle=5)
    yield X("javac", sh("while :; do javac -d out Busy.java; done"), needs=["javac"], prepare=lambda w, e: write(w, "Busy.java", JAVA))
    def go(w, e):
        e["GOCACHE"], e["HOME"], e["GO111MODULE"] = w + "/gc", w, "off"
        write(w, "g.go", GO)
        subprocess.run(["go", "build", "-o", "g", "g.go"], cwd=w, env=e, check=True, timeout=300)
    yield X("go server under requests", ["./g"], needs=["go"], prepare=go)
    yield X("go server, idle", ["./g", "idle"], idle=True, needs=["go"], prepare=go)
    yield X("rustc", sh("while :; do rustc -O --crate-type lib -o l.rlib r.rs; done"), needs=["rustc"], prepare=lambda w, e: write(w, "r.rs", "".join(RUST % (i, i) for i in range(150))))
    yield X("cargo build", sh("cargo init -q --vcs none --name x .; cp r.rs src/main.rs; echo 'fn main(){let mut v=vec![1];println!(\"{}\",f1(&mut v));}' >> src/main.rs; while :; do touch src/main.rs; cargo build -q --offline 2>/dev/null; done"), needs=["cargo"], prepare=lambda w, e: write(w, "r.rs", "".join(RUST % (i, i) for i in range(150))))
    yield X("ffmpeg", sh("while :; do ffmpeg -nostdin -y -loglevel error -f lavfi -i testsrc=duration=8:size=640x480:rate=25 -c:v mpeg4 o.avi; done"), needs=["ffmpeg"])
    yield X("busybox httpd", sh("exec busybox httpd -f -p 127.0.0.1:$(cat port)"), idle=True, needs=["busybox"], prepare=lambda w, e: write(w, "port", str(port())))
    yield X("cron", ["cron", "-f"], idle=True, needs=["cron"]) if os.getuid() == 0 else X("cron", ["true"], needs=["/nonexistent"])
    yield X("rsyslogd", sh("exec rsyslogd -n -i $PWD/pid -f $PWD/rs.conf"), idle=True, needs=["rsyslogd"],
            prepare=lambda w, e: write(w, "rs.conf", f'module(load="imuxsock" SysSock.Use="off")\ninput(type="imuxsock" Socket="{w}/log.sock")\n*.* {w}/out.log\n'))
    yield X("dbus-daemon", ["dbus-daemon", "--session", "--nofork", "--address=unix:path=bus"], idle=True, needs=["dbus-daemon"])
    def ssh(w, e):
        os.makedirs("/run/sshd", exist_ok=True)
        run_in(w, "ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", w + "/hk")
        run_in(w, "ssh-keygen", "-q", "-N", "", "-t", "ed25519", "-f", w + "/id")
        shutil.copy(w + "/id.pub", w + "/ak")
        os.chmod(w, 0o755)
        write(w, "port", str(port()))
    sshd = "exec /usr/sbin/sshd -D -e -p $(cat port) -f /dev/null -h $PWD/hk -o AuthorizedKeysFile=$PWD/ak -o StrictModes=no -o PermitRootLogin=yes -o PidFile=none 2>sshd.log"
    client = "sleep 0.7; exec ssh -i id -p $(cat port) -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null 127.0.0.1 "
    if os.getuid() == 0 and os.path.exists("/usr/sbin/sshd"):
        yield X("sshd, idle", sh(sshd), idle=True, prepare=ssh, needs=["ssh"])
        yield X("an idle ssh session", sh(client.replace("exec ssh", "exec ssh -tt")), sh(sshd), tty=True, idle=True, prepare=ssh, needs=["ssh"], settle=3)
        yield X("tar through ssh", sh(sshd), sh("mkdir d; for i in 1 2 3 4; do dd if=/dev/urandom of=d/$i bs=1M count=8 2>/dev/null; done; sleep 1; while :; do tar cf - d | " + client.replace("sleep 0.7; exec ", "") + "'cat >/dev/null'; done"), prepare=ssh, needs=["ssh"], settle=3)
        yield X("sshfs", sh(sshd), sh("sleep 1; mkdir m; " + client.replace("sleep 0.7; exec ssh -i id", "").split("127.0.0.1")[0].join(["sshfs -f -o IdentityFile=$PWD/id", f" 127.0.0.1:/usr/share m"]) .replace("  ", " ") + " & sleep 2; while :; do find m -maxdepth 2 >/dev/null; cat m/perl5/*.pm > /dev/null 2>&1; done"), prepare=ssh, needs=["sshfs"], settle=5)
    yield X("tmux with an idle shell", sh("exec tmux -S $PWD/t.sock new-session -s x 'bash --norc'"), tty=True, idle=True, needs=["tmux"])
    yield X("vim", sh("exec vi x"), tty=True, idle=True, needs=["vi"])
    yield X("less", sh("seq 1 1000 > x; exec less x"), tty=True, idle=True, needs=["less"])
    yield X("less behind a pipe", sh("seq 1 1000 | less"), tty=True, idle=True, needs=["less"])
    yield X("less behind a producer that is ahead", sh("seq 1 100000000 | less"), tty=True, needs=["less"])
    yield X("top", ["top"], tty=True, idle=False, needs=["top"])
    yield X("gdb at its prompt", ["gdb", "-q"], tty=True, idle=True, needs=["gdb"])
    yield X("strace -f of a build", sh("while :; do strace -f -o trace make -s -j2 -B o1 o2; done"), needs=["strace", "make"])
    yield X("inotifywait", ["inotifywait", "-q", "-m", "."], idle=True, needs=["inotifywait"])
    yield X("nc -l", sh("exec nc -l 127.0.0.1 $(cat port)"), idle=True, needs=["nc"], prepare=lambda w, e: write(w, "port", str(port())))
    yield X("socat echo under load", sh("exec socat TCP-LISTEN:$(cat port),fork,reuseaddr EXEC:cat"), sh("sleep 0.5; while :; do yes | head -c 20000000 | nc -N 127.0.0.1 $(cat port) > /dev/null; done"), needs=["socat", "nc"], prepare=lambda w, e: write(w, "port", str(port())))
    yield X("ruby threads", ["ruby", "-e", RUBY], needs=["ruby"])
    yield X("perl server, idle", ["perl", "-e", PERL_IDLE], idle=True, needs=["perl"])
    yield X("ipython at its prompt", ["ipython3", "--simple-prompt"], tty=True, idle=True, needs=["ipython3"], settle=5)
    yield X("apt-get update of nothing, dpkg -l", sh("while :; do dpkg -l >/dev/null; apt-cache search zlib >/dev/null; done"), needs=["apt-cache"])
    yield X("find and grep", sh("while :; do grep -r --include=*.h zzzz /usr/include >/dev/null; done"))
    yield X("rg/sort/uniq on a big file", sh("seq 1 3000000 > x; while :; do sort -R x | sort -n -S 1M | uniq -c | tail -1 >/dev/null; done"))
    yield X("curl in a loop", [PY, "-c", WEB], sh(wait_port + "while :; do curl -s http://127.0.0.1:$(cat port)/ >/dev/null; done"), needs=["curl"])
    yield X("slow download", [PY, "-c", WEB.replace('self.wfile.write(b"x" * 4096)', '[(self.wfile.write(b"x"), __import__("time").sleep(0.1)) for i in range(4096)]')],
            sh(wait_port + "exec curl -sN -o out http://127.0.0.1:$(cat port)/"), needs=["curl"])
    yield X("wait in bash", ["bash", "-c", "while :; do for i in 1 2 3; do (sleep 0.5; gzip -c < src.c >/dev/null) & done; wait; done"], needs=["bash"])
    yield X("watch", ["watch", "-n1", "date"], tty=True, needs=["watch"])


def descendants(roots):
    kids = collections.defaultdict(list)
    for p in os.listdir("/proc"):
        if p.isdigit():
            try:
                s = open(f"/proc/{p}/stat").read()
                f = s[s.rindex(")") + 2:].split()
                if f[0] not in "ZX":
                    kids[int(f[1])].append(int(p))
            except OSError:
                pass
    out, todo = [], list(roots)
    while todo:
        p = todo.pop()
        if os.path.exists(f"/proc/{p}"):
            out.append(p)
        todo += kids[p]
    return out


def drain(fd):
    try:
        while os.read(fd, 65536):
            pass
    except OSError:
        pass


def start(prog, work, env, user):
    procs, fds = [], []
    for i, cmd in enumerate(prog.cmds):
        pre = DROP if user else []
        if prog.tty and i == 0:
            a, b = pty.openpty()
            if user:
                os.fchown(b, 65534, 65534)
            procs.append(subprocess.Popen(["setsid", "-c"] + pre + list(cmd) if shutil.which("setsid") else pre + list(cmd), cwd=work, env=dict(env, TERM="xterm"), stdin=b, stdout=b, stderr=b, start_new_session=not shutil.which("setsid")))
            os.close(b)
            threading.Thread(target=drain, args=(a,), daemon=True).start()
            fds.append(a)
        else:
            procs.append(subprocess.Popen(pre + list(cmd), cwd=work, env=env, start_new_session=True,
                                          stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    return procs, fds


def kill_all(procs):
    for _ in range(5):
        tree = descendants([p.pid for p in procs if p.poll() is None])
        for p in tree:
            try:
                os.kill(p, signal.SIGKILL)
            except OSError:
                pass
        for p in procs:
            try:
                os.killpg(p.pid, signal.SIGKILL)
            except OSError:
                pass
        for p in procs:
            try:
                p.wait(5)
            except subprocess.TimeoutExpired:
                pass
        if not tree:
            break


class Running:
    """A program that was started, in a directory of its own."""
    def __init__(self, p, n, base, opt, drop, lib):
        self.prog, self.n, self.left_out, self.asked, self.seen = p, n, None, 0, collections.Counter()
        self.work = work = tempfile.mkdtemp(dir=base)
        os.chmod(work, 0o755)
        for name, text in (("Makefile", MAKEFILE), ("build.ninja", NINJA), ("src.c", SRC), ("cxx.cc", CXX)):
            write(work, name, text)
        env = dict(os.environ, WORK=work, HOME=work, SETPRIV=" ".join(DROP) if os.getuid() == 0 and not drop else "")
        for rust in ("RUSTUP_HOME", "CARGO_HOME"):
            env.setdefault(rust, os.path.expanduser("~/." + rust[:-5].lower()))
        if p.prepare:
            try:
                p.prepare(work, env)
            except Exception as e:
                self.left_out = f"its preparation failed: {e}"
                return
        self.recorded = opt.preload == "yes" or opt.preload == "half" and n % 2 == 1
        if self.recorded:
            env["LD_PRELOAD"] = lib
            env["WAITGRAPH_DIR"] = work + "/wg"
        if drop:
            subprocess.run(["chown", "-R", "65534:65534", work])
        self.procs, self.fds = start(p, work, env, drop)

    def end(self):
        kill_all(self.procs)
        for fd in self.fds:
            os.close(fd)
        if os.path.isdir(self.work + "/m"):
            subprocess.run(["umount", "-l", self.work + "/m"], stderr=subprocess.DEVNULL)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("programs", nargs="*", help="only those whose name contains one of these")
    ap.add_argument("--build", default=os.path.join(HERE, "../../build"))
    ap.add_argument("--samples", type=int, default=44, help="in all")
    ap.add_argument("--all", action="store_true", help="also what not every build machine has, where it is installed")
    ap.add_argument("--user", action="store_true", help="programs and tool as an ordinary user, without BPF")
    ap.add_argument("--no-bpf", action="store_true", help="without BPF")
    ap.add_argument("--preload", choices=("no", "half", "yes"), default="half", help="programs under the recorder")
    ap.add_argument("--group", type=int, default=5, help="so many programs run at a time")
    ap.add_argument("--seed", type=int)
    ap.add_argument("--keep", metavar="DIR", help="keep the JSON of whatever was called hung or unknown")
    opt = ap.parse_args()
    rnd = random.Random(opt.seed)
    tool = os.path.abspath(opt.build) + "/bin/waitgraph"
    lib = os.path.abspath(opt.build) + "/lib/libwaitgraph.so"
    drop = opt.user and os.getuid() == 0
    pre = DROP if drop else []
    total = bad = failed = odd = 0
    all_seen = collections.Counter()
    jobs = []
    for p in programs():
        if opt.programs and not any(w in p.name for w in opt.programs) or p.extra and not (opt.all or opt.programs):
            continue
        lack = [n for n in p.needs if not shutil.which(n)]
        if lack:
            print(f"{p.name}: left out, there is no {lack[0]}")
            continue
        jobs.append(p)
    with tempfile.TemporaryDirectory(prefix="wg-healthy-", ignore_cleanup_errors=True) as base:
        os.chmod(base, 0o755)
        for first in range(0, len(jobs), opt.group):
            running = []
            for n, p in list(enumerate(jobs))[first:first + opt.group]:
                r = Running(p, n, base, opt, drop, lib)
                if r.left_out:
                    print(f"{p.name}: left out, {r.left_out}")
                else:
                    running.append(r)
            time.sleep(max([r.prog.settle for r in running] or [0]))
            todo = []
            for r in running:
                if r.procs[0].poll() is not None:
                    print(f"{r.prog.name}: left out, it ended with {r.procs[0].returncode}")
                else:
                    want = opt.samples * (r.n + 1) // len(jobs) - opt.samples * r.n // len(jobs)
                    todo += [(r, k) for k in range(max(1, want))]
            rnd.shuffle(todo)
            for r, k in todo:
                time.sleep(rnd.random() * 0.2)
                r.asked += 1
                pid = r.procs[0].pid if r.asked % 3 == 1 else rnd.choice(descendants([q.pid for q in r.procs]) or [r.procs[0].pid])
                try:
                    cmd = open(f"/proc/{pid}/cmdline", "rb").read().replace(b"\0", b" ").decode(errors="replace")[:60]
                    out = subprocess.run(pre + [tool, "why", "--json"] + (["--no-bpf"] if opt.user or opt.no_bpf else []) + [str(pid)], capture_output=True, timeout=60)
                except OSError:
                    continue
                if not os.path.exists(f"/proc/{pid}") or out.returncode == 66:
                    continue # it ended in the meantime: what is said of the dead is not asked here
                total += 1
                try:
                    v = json.loads(out.stdout)["verdict"]
                except ValueError:
                    failed += 1
                    print(f"  {r.prog.name}: exit {out.returncode}: {out.stderr.decode()[-200:]}")
                    continue
                r.seen[v["class"]] += 1
                all_seen[v["class"]] += 1
                poor = v["hung"] or v["class"] == "unknown" or r.prog.idle and v["class"] not in ("idle", "progressing")
                bad += bool(v["hung"])
                odd += v["class"] == "unknown"
                if v["hung"] or poor and opt.keep:
                    print(f"  {r.prog.name}: {pid} ({cmd}) {'CALLED HUNG' if v['hung'] else 'said'}: {v['class']} {v['confidence']}: {v['summary']}\n    " +
                          "\n    ".join(v.get("chain", []) + ["?? " + x for x in v.get("not_established", [])]))
                if poor and opt.keep:
                    os.makedirs(opt.keep, exist_ok=True)
                    open(f"{opt.keep}/{r.prog.name.replace(' ', '_').replace('/', '_')}-{r.asked}.json", "wb").write(out.stdout)
            for r in running:
                r.end()
                print(f"{r.prog.name}{' (recorded)' if r.recorded else ''}: {dict(r.seen)}", flush=True)
    print(f"{total} samples, {bad} called hung, {failed} failed, {odd} undecided; {dict(all_seen)}")
    return 1 if bad or failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())
