#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Healthy programs under load: none may ever be called hung.

Starts programs that nobody planted anything in (a build, a web server under requests, a busy thread pool, a
database, a Python test suite, a pipeline, a shell), asks `waitgraph why` about each again and again at random
moments, and counts. Prints one line a program and `N samples, M called hung`.
"""
import argparse, collections, json, os, random, shutil, signal, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))

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
import sqlite3, threading, time, os
path = os.environ["WORK"] + "/db"
c = sqlite3.connect(path); c.execute("pragma journal_mode=wal"); c.execute("create table if not exists t (a, b)"); c.commit(); c.close()
def work(n):
    c = sqlite3.connect(path, timeout=30)
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
import http.server, threading
class H(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(b"x" * 4096)
    def log_message(self, *a): pass
s = http.server.ThreadingHTTPServer(("127.0.0.1", 0), H)
open(__import__("os").environ["WORK"] + "/port", "w").write(str(s.server_port))
s.serve_forever()
"""
LOAD = r"""
import os, time, urllib.request
while not os.path.exists(os.environ["WORK"] + "/port"): time.sleep(0.05)
time.sleep(0.2)
u = "http://127.0.0.1:" + open(os.environ["WORK"] + "/port").read()
while True:
    urllib.request.urlopen(u).read(); time.sleep(0.002)
"""
MAKEFILE = "all: " + " ".join(f"o{i}" for i in range(40)) + "\no%:\n\t@cc -O2 -c -o $@.tmp src.c && mv $@.tmp $@\n"
SRC = "".join(f"int f{i}(int x) {{ int s = 0; for (int k = 0; k < x; k++) s += k * {i} ^ s; return s; }}\n" for i in range(400))


def programs(work):
    py = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
    open(work + "/Makefile", "w").write(MAKEFILE)
    open(work + "/src.c", "w").write(SRC)
    yield "make -j4", [["sh", "-c", "while :; do rm -f o*; make -s -j4; done"]]
    yield "web server under requests", [[py, "-c", WEB], [py, "-c", LOAD]]
    yield "idle web server", [[py, "-c", WEB]]
    yield "thread pool", [[py, "-c", POOL]]
    yield "process pool", [[py, "-c", MP]]
    yield "sqlite, 4 writers", [[py, "-c", SQLITE]]
    yield "Python test suite", [[py, "-c", TESTS]]
    yield "pipeline", [["sh", "-c", "while :; do seq 1 200000 | sort -n | gzip | gzip -d | tail -1 >/dev/null; done"]]
    yield "shell at its prompt", [["sh", "-c", "while :; do sleep 1; done"]]
    yield "dd and sync", [["sh", "-c", "while :; do dd if=/dev/zero of=big bs=1M count=64 conv=fsync 2>/dev/null; done"]]
    if shutil.which("redis-server"):
        yield "redis under load", [["redis-server", "--port", "0", "--unixsocket", work + "/redis.sock", "--dir", work],
                                   ["sh", "-c", f"sleep 1; while :; do redis-benchmark -q -s {work}/redis.sock -n 20000 >/dev/null; done"]]
    if shutil.which("git"):
        yield "git in a loop", [["sh", "-c", "git init -q r; cd r; git config user.email a@b; git config user.name a; i=0; while :; do i=$((i+1)); echo $i >f; git add f; git commit -qm $i; git gc -q --auto; done"]]


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default=os.path.join(HERE, "../../build"))
    ap.add_argument("--samples", type=int, default=24, help="in all")
    ap.add_argument("--user", action="store_true")
    opt = ap.parse_args()
    tool = os.path.abspath(opt.build) + "/bin/waitgraph"
    total = bad = failed = 0
    with tempfile.TemporaryDirectory(prefix="wg-healthy-") as base:
        os.chmod(base, 0o755)
        os.makedirs(base + "/x")
        jobs = list(programs(base + "/x"))
        for name, cmds in jobs:
            work = tempfile.mkdtemp(dir=base)
            for f in ("Makefile", "src.c"):
                shutil.copy(base + "/x/" + f, work)
            env = dict(os.environ, WORK=work)
            procs = [subprocess.Popen([c.replace(base + "/x", work) for c in cmd], cwd=work, env=env, start_new_session=True,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for cmd in cmds]
            time.sleep(1.5)
            seen = collections.Counter()
            for _ in range(max(1, opt.samples // len(jobs))):
                time.sleep(random.random() * 0.3)
                r = subprocess.run([tool, "why", "--json"] + (["--no-bpf"] if opt.user else []) + [str(procs[0].pid)], capture_output=True, timeout=60)
                total += 1
                try:
                    v = json.loads(r.stdout)["verdict"]
                except ValueError:
                    failed += 1
                    print(f"  {name}: exit {r.returncode}: {r.stderr.decode()[-200:]}")
                    continue
                seen[v["class"]] += 1
                if v["hung"]:
                    bad += 1
                    print(f"  {name}: CALLED HUNG: {v['class']} {v['confidence']}: {v['summary']}\n    " + "\n    ".join(v.get("chain", [])))
            for p in procs:
                try:
                    os.killpg(p.pid, signal.SIGKILL)
                except OSError:
                    pass
                p.wait()
            print(f"{name}: {dict(seen)}", flush=True)
    print(f"{total} samples, {bad} called hung, {failed} failed")
    return 1 if bad or failed or not total else 0


if __name__ == "__main__":
    sys.exit(main())
