#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An ordinary user in a locked-down container, and after the death of the job.

Part `user`: a program that carries the recorder, under what containers forbid (lockdown.c), Yama's rules
(yama.c), in namespaces of its own, asked from inside and outside. Part `dead`: jobs whose ranks were asked by
their signal, or wrote by themselves when they stalled, and were then killed: what `why DIR` makes of their files.
Each check prints one line; the exit status is the number of failures.
"""
import argparse, concurrent.futures, glob, json, os, re, shutil, signal, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
USER = 65534
HUNG, UNDECIDED = 10, 12

PYTHON = r'''
import ctypes, os, signal, sys, threading, time
cu = ctypes.CDLL("libcuda.so.1")
assert cu.cuInit(0) == 0
case = sys.argv[1]
if case == "undumpable":
    ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)
if case == "takes":                       # the signal is the program's own affair
    signal.signal(signal.SIGURG, lambda *a: None)
if case == "blocks":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGURG])
if case == "uninterruptible":             # until its vfork()ed child execs or ends: never
    with open(os.environ["SCENARIO_OUT"], "a") as f:
        f.write("ready\n")
    if ctypes.CDLL(None).vfork() == 0:
        time.sleep(3600)
a, b = threading.RLock(), threading.RLock()
def inner_wait(first, second):
    with first:
        time.sleep(0.3)
        with second:
            pass
threading.Thread(target=inner_wait, args=(a, b)).start()
with open(os.environ["SCENARIO_OUT"], "a") as f:
    f.write("ready\n")
inner_wait(b, a)
'''


class Box:
    """One planted job: its files, its processes, and how to ask."""

    def __init__(self, opt, name):
        self.opt, self.b = opt, opt.build
        self.dir = tempfile.mkdtemp(prefix=f"wg-{name}-")
        os.chmod(self.dir, 0o777)
        self.snap = self.dir + "/snapshots"
        os.mkdir(self.snap)
        os.chmod(self.snap, 0o777)
        self.out = self.dir + "/told"
        open(self.out, "w").close()
        os.chmod(self.out, 0o666)
        self.lockdown = self.b + "/tests/targets/lockdown"
        self.waitgraph = self.b + "/bin/waitgraph"
        self.yama = self.dir + "/yama"
        with open(self.yama, "w") as f:
            f.write(f'#!/bin/sh\nLD_PRELOAD={self.b}/tests/targets/yama.so exec {self.waitgraph} "$@"\n')
        os.chmod(self.yama, 0o755)
        self.child = None

    def env(self, **more):
        e = dict(os.environ, LD_LIBRARY_PATH=self.b + "/lib/simgpu", SIMGPU_SESSION=f"locked{os.getpid()}{id(self) % 100000}",
                 WAITGRAPH_DIR=self.snap, SCENARIO_OUT=self.out)
        for k in ("HOME", "XDG_STATE_HOME", "WAITGRAPH_TOOL"):
            e.pop(k, None)
        e.update(more)
        return {k: v for k, v in e.items() if v is not None}

    def start(self, argv, before=(), **env):
        """`before` runs without the recorder; then env sets LD_PRELOAD for the program alone."""
        argv = [*before, "/usr/bin/env", f"LD_PRELOAD={self.b}/lib/libwaitgraph.so", *argv]
        self.log = open(self.dir + "/stderr", "w")
        self.child = subprocess.Popen(argv, env=self.env(**env), stdin=subprocess.DEVNULL, stdout=self.log,
                                      stderr=self.log, start_new_session=True, cwd="/")
        end = time.monotonic() + 15
        while "ready" not in open(self.out).read():
            if self.child.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the program did not start: {open(self.dir + '/stderr').read()[-400:]}")
            time.sleep(0.05)
        time.sleep(1.0)

    def pids(self):
        """The processes that carry the recorder, by the kernel's list of the session."""
        found = []
        for d in glob.glob("/proc/[0-9]*"):
            try:
                stat = open(d + "/stat").read().rsplit(")", 1)[1].split()
                maps = open(d + "/maps").read()
            except OSError:
                continue
            if int(stat[3]) == self.child.pid and "libwaitgraph.so" in maps:
                found.append(int(d[6:]))
        return sorted(found)

    def ask(self, argv, before=(), env=None, limit=25):
        t = time.monotonic()
        r = subprocess.run([*before, *argv], env=env or {"PATH": os.environ["PATH"]}, stdin=subprocess.DEVNULL,
                           capture_output=True, text=True, timeout=limit)
        try:
            doc = json.loads(r.stdout)
        except ValueError:
            doc = None
        return r.returncode, doc, r.stderr, time.monotonic() - t

    def kill(self):
        if self.child:
            for pid in self.pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except OSError:
                    pass
            try:
                os.killpg(self.child.pid, signal.SIGKILL)
            except OSError:
                pass
            self.child.wait(10)

    def done(self):
        self.kill()
        if not self.opt.keep:
            shutil.rmtree(self.dir, ignore_errors=True)


class Wrong(Exception):
    pass


def check(ok, what):
    if not ok:
        raise Wrong(what)


def verdict(answer, code, classes, **more):
    rc, doc, err, seconds = answer
    check(doc, f"no document (rc {rc}): {err[-300:]}")
    v = doc["verdict"]
    check(v["class"] in classes.split("|"), f"{v['class']}: {v['summary']}")
    check(rc == code, f"exit {rc}, not {code}")
    return doc


def ours_unseen(doc):
    """What the signal started is no process, no child and no thread of the program."""
    for p in doc["processes"]:
        check("waitgraph-keep" not in str(p.get("comm")) and "--from-signal" not in str(p.get("command")),
              f"the reader stands among the processes: {p['pid']} {p.get('command')}")
    known = {p["pid"] for p in doc["processes"]}
    for p in doc["processes"]:
        for c in p.get("children", []):
            check(c in known or os.path.exists(f"/proc/{c}"), f"child {c} of {p['pid']} is nobody")


def stacks(doc, pid):
    p = next(p for p in doc["processes"] if p["pid"] == pid)
    main = next(t for t in p["threads"] if t["tid"] == pid)
    check(len(main["native_stack"]) > 3, "no native stack of the main thread")
    check(any("inner_wait" in f["function"] for f in main["python_stack"]), "no Python frames")
    check(main["wait"]["kind"] == "futex", f"waits: {main['wait']}")
    return p


# ---- an ordinary user ------------------------------------------------------------------------


def py(opt, box, case="plain", before=None, **env):
    script = box.dir + "/program.py"
    with open(script, "w") as f:
        f.write(PYTHON)
    box.start(["/usr/bin/python3", script, case],
              before if before is not None else [box.lockdown, "--uid", str(USER), "--"], **env)
    return box.pids()[0]


def user_calls(opt, box):
    """Neither program nor asker may use what seccomp profiles refuse."""
    pid = py(opt, box, before=[box.lockdown, "--uid", str(USER), "--calls", "--"])
    a = box.ask([box.waitgraph, "dump", "--json", str(pid)], [box.lockdown, "--uid", str(USER), "--calls", "--"])
    stacks(verdict(a, HUNG, "deadlock"), pid)


def user_yama(opt, box):
    """Yama for the asker and for the reader that the signal starts."""
    pid = py(opt, box, WAITGRAPH_TOOL=box.yama)
    a = box.ask([box.yama, "dump", "--json", str(pid)], [box.lockdown, "--uid", str(USER), "--"])
    doc = verdict(a, HUNG, "deadlock")
    p = stacks(doc, pid)
    check("signal" in p["sources"], f"sources {p['sources']}")
    check(not any("system calls" in m for m in p["missing"]), f"missing {p['missing']}")
    ours_unseen(doc)
    check(a[3] < 6, f"{a[3]:.1f} s")


def user_ptrace(opt, box):
    """Nothing of other processes may be looked into at all; only signals pass."""
    pid = py(opt, box)
    a = box.ask([box.waitgraph, "why", "--json", str(pid)], [box.lockdown, "--uid", str(USER), "--ptrace", "--"])
    doc = verdict(a, HUNG, "deadlock")
    stacks(doc, pid)
    ours_unseen(doc)


def user_silent(opt, box):
    """It takes the signal itself, is not dumpable and cannot be read: said, within the limit."""
    pid = py(opt, box, "blocks", WAITGRAPH_TOOL="/nonexistent")
    a = box.ask([box.waitgraph, "why", "--json", str(pid)], [box.lockdown, "--uid", str(USER), "--ptrace", "--"])
    check(a[3] < 14, f"{a[3]:.1f} s")
    doc = a[1]
    if doc["verdict"]["class"] == "unknown":
        told = " ".join(m for p in doc["processes"] for m in p["missing"])
        check("signal" in told, f"missing does not say what happened: {told}")
        check(a[0] in (11, UNDECIDED), f"exit {a[0]}")
    else: # WAITGRAPH_TOOL falls back to the one beside the library
        check(doc["verdict"]["class"] == "deadlock", doc["verdict"]["summary"])


def user_takes(opt, box):
    """The program handles the signal itself: a request from outside still gets a dump."""
    pid = py(opt, box, "takes")
    a = box.ask([box.waitgraph, "why", "--json", str(pid)], [box.lockdown, "--uid", str(USER), "--ptrace", "--"])
    check(a[3] < 14, f"{a[3]:.1f} s")
    verdict(a, HUNG, "deadlock")


def user_stopped(opt, box):
    pid = py(opt, box)
    os.kill(pid, signal.SIGSTOP)
    time.sleep(0.1)
    a = box.ask([box.waitgraph, "why", "--json", str(pid)], [box.lockdown, "--uid", str(USER), "--ptrace", "--"])
    verdict(a, HUNG, "stopped")
    check(a[3] < 4, f"{a[3]:.1f} s: a stopped process was waited for")


def user_uninterruptible(opt, box):
    """No signal reaches the main thread: the recorder's own thread answers."""
    pid = py(opt, box, "uninterruptible")
    check(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0] == "D", "the plant does not stand")
    a = box.ask([box.waitgraph, "dump", "--json", str(pid)], [box.lockdown, "--uid", str(USER), "--ptrace", "--"])
    check(a[1], a[2])
    p = next(p for p in a[1]["processes"] if p["pid"] == pid)
    check("signal" in p["sources"], f"sources {p['sources']}, missing {p['missing']}")
    main = next(t for t in p["threads"] if t["tid"] == pid)
    check(main["state"] == "D" and main["native_stack"], f"main thread: {main['state']}")
    check(a[3] < 6, f"{a[3]:.1f} s")
    ours_unseen(a[1])


def user_undumpable(opt, box):
    """Not dumpable: even its own files in /proc are closed to it. No wrong word, and the reason."""
    pid = py(opt, box, "undumpable")
    a = box.ask([box.waitgraph, "why", "--json", str(pid)], [box.lockdown, "--uid", str(USER), "--"])
    check(a[1] and a[1]["verdict"]["class"] in ("deadlock", "unknown"), str(a[1] and a[1]["verdict"]))
    if a[1]["verdict"]["class"] == "unknown":
        check(any("not dumpable" in m for p in a[1]["processes"] for m in p["missing"]),
              f"missing: {[p['missing'] for p in a[1]['processes']]}")
    root = box.ask([box.waitgraph, "why", "--json", str(pid)])
    verdict(root, HUNG, "deadlock")


def user_ranks(opt, box):
    """Three ranks, none of which may be read: all are asked at once."""
    box.start([box.b + "/lib/scenarios/nccl_ranks", "missing_lock"], [box.lockdown, "--uid", str(USER), "--"],
              WAITGRAPH_TOOL=box.yama)
    pids = box.pids()
    a = box.ask([box.yama, "why", "--json", *map(str, pids)], [box.lockdown, "--uid", str(USER), "--"])
    doc = verdict(a, HUNG, "lock-self")
    culprit = int(re.search(r"culprit_pid (\d+)", open(box.out).read()).group(1))
    check(doc["verdict"]["culprit"]["pid"] == culprit, f"culprit {doc['verdict']['culprit']}")
    ours_unseen(doc)
    check(a[3] < 8, f"{a[3]:.1f} s")


SETUP = r'''
set -e
mount --make-rprivate /
mount -t tmpfs -o size=2m,mode=1777 none /dev/shm
mount -t proc none /proc
[ "$1" = ro ] && { mount --bind "$2" "$2"; mount -o remount,bind,ro /; mount -o remount,bind,ro "$2/snapshots" || true; }
shift 2
exec "$@"
'''


def container(opt, box, root):
    before = ["unshare", "-m", "-p", "-f", "-n", "-i", "sh", "-c", SETUP, "sh", root, box.dir, box.lockdown, "--uid", "1000",
              "--calls", "--"]
    os.chown(box.out, 1000, 1000)
    env = {"WAITGRAPH_TOOL": box.yama}
    if root == "ro":
        env["WAITGRAPH_DIR"] = "/proc/nowhere"
    pid = py(opt, box, before=before, **env)
    inside = ["nsenter", "-t", str(pid), "-m", "-p", "-n", "-i", box.lockdown, "--uid", "1000", "--calls", "--"]
    for name, what, how in (("outside", pid, [box.lockdown, "--uid", "1000", "--"]), ("inside", 1, inside)):
        a = box.ask([box.yama, "dump", "--json", str(what)], how)
        try:
            doc = verdict(a, HUNG, "deadlock")
            p = stacks(doc, what)
            tids = {t["tid"] for t in p["threads"]}
            check(all(t in map(int, os.listdir(f"/proc/{pid}/task")) for t in tids) or what == 1,
                  f"threads {tids} are another namespace's")
            ours_unseen(doc)
        except Wrong as e:
            raise Wrong(f"{name}: {e}")


def user_container(opt, box):
    """Its own PID, mount, network and IPC namespaces, a small /dev/shm, uid 1000, no home."""
    container(opt, box, "rw")


def user_readonly(opt, box):
    """The same with nothing to write to but /dev/shm."""
    container(opt, box, "ro")


def user_hidden(opt, box):
    """/proc with hidepid=2: its own user is served; to others it is hidden, which is not dead."""
    setup = 'mount --make-rprivate /; mount -t proc -o hidepid=2 none /proc; exec "$@"'
    os.chown(box.out, 1000, 1000)
    pid = py(opt, box, before=["unshare", "-m", "-p", "-f", "sh", "-c", setup, "sh", box.lockdown, "--uid", "1000", "--"],
             WAITGRAPH_TOOL=box.yama)
    enter = ["nsenter", "-t", str(pid), "-m", "-p", box.lockdown]
    verdict(box.ask([box.yama, "why", "--json", "1"], [*enter, "--uid", "1000", "--"]), HUNG, "deadlock")
    for other in (["--uid", str(USER)], ["--uid", "1000", "--ptrace"]):
        rc, doc, err, _ = box.ask([box.waitgraph, "why", "--json", "1"], [*enter, *other, "--"])
        check(rc == 77 and "hides" in err, f"{other}: exit {rc}, {err} {doc and doc['verdict']}")


# ---- after its death -----------------------------------------------------------------------------


def snapshots(box, n, limit=10):
    end = time.monotonic() + limit
    while len(glob.glob(box.snap + "/*.json")) < n:
        check(time.monotonic() < end, f"{len(glob.glob(box.snap + '/*.json'))} snapshots of {n}")
        time.sleep(0.1)
    time.sleep(0.2)


def own_only(box):
    """Each rank's snapshot as if it could see no other: other machines, other users."""
    for path in glob.glob(box.snap + "/*.json"):
        pid = int(re.search(r"-(\d+)-\d+-\d+\.json$", path).group(1))
        doc = json.load(open(path))
        doc["processes"] = [p for p in doc["processes"] if p["pid"] == pid]
        for k in ("nodes", "edges", "verdict"):
            doc.pop(k, None)
        json.dump(doc, open(path, "w"))


def job(opt, box, case, binary="nccl_ranks", **env):
    box.start([f"{box.b}/lib/scenarios/{binary}", case], [box.lockdown, "--uid", str(USER), "--"], **env)
    return box.pids()


def why(box, *paths):
    return box.ask([box.waitgraph, "why", "--json", *(paths or [box.snap])])


def rank_of(path):
    pid = int(re.search(r"-(\d+)-\d+-\d+\.json$", path).group(1))
    return next(p["rank"] for p in json.load(open(path))["processes"] if p["pid"] == pid)


def dead_job(opt, box, case, classes, rest):
    pids = job(opt, box, case)
    time.sleep(2)  # what has stood for less may be a pause, and the answer says so
    os.killpg(box.child.pid, signal.SIGURG)
    n = len(pids)
    snapshots(box, n)
    before = verdict(why(box), HUNG, classes)
    box.kill()
    doc = verdict(why(box), HUNG, classes)
    check(before["verdict"]["class"] == doc["verdict"]["class"], "another class after its death")
    ours_unseen(doc)
    check(len([p for p in doc["processes"] if p.get("recorded")]) == 3, "not three ranks")
    own_only(box)
    verdict(why(box), HUNG, classes)
    rest(box, doc)


def dead_mismatch(opt, box):
    def rest(box, doc):
        # On other machines: names, boots and numbers are theirs, which may well be equal.
        for i, path in enumerate(sorted(glob.glob(box.snap + "/*.json"))):
            d = json.load(open(path))
            d["host"] = f"node{i}"
            text = json.dumps(d)
            for key in ("boot", "host"):
                text = re.sub(rf'"{key}": "[^"]*"', f'"{key}": "{"0" * 7}{i}-node" ' if key == "boot" else f'"{key}": "node{i}"', text)
            new = f"{box.snap}/node{i}-{re.search(r'-([0-9]+-[0-9]+-[0-9]+[.]json)$', path).group(1)}"
            open(new, "w").write(text)
            os.unlink(path)
        for t in glob.glob(box.snap + "/*.trace"):
            os.unlink(t)
        d = verdict(why(box), HUNG, "collective-mismatch")
        check(len({p["host"] for p in d["processes"] if p.get("recorded")}) == 3, "the hosts were not told apart")
    dead_job(opt, box, "mismatch_count", "collective-mismatch", rest)


def dead_lock(opt, box):
    def rest(box, doc):
        # The culprit's own word is lost: then the ranks that wait and its absence are the evidence.
        for path in glob.glob(box.snap + "/*.json"):
            if rank_of(path) == 2:
                os.unlink(path)
        d = verdict(why(box), HUNG, "collective-missing-rank|peer-dead")
        v = d["verdict"]
        check("2" in v["summary"], f"rank 2 is not named: {v['summary']}")
        for path in glob.glob(box.snap + "/*.json"):
            os.unlink(path)
        # Only traces: nothing is known of what they waited for, and nothing is claimed.
        a = why(box)
        check(a[1] and a[1]["verdict"]["class"] == "unknown" and a[0] == UNDECIDED, str(a[1] and a[1]["verdict"]))
    dead_job(opt, box, "missing_lock", "lock-self", rest)


def dead_rank(opt, box):
    pids = job(opt, box, "killed")
    os.killpg(box.child.pid, signal.SIGURG)
    snapshots(box, 2)
    box.kill()
    doc = verdict(why(box), HUNG, "peer-dead")
    culprit = int(re.search(r"culprit_pid (\d+)", open(box.out).read()).group(1))
    check(doc["verdict"]["culprit"]["pid"] == culprit, f"culprit {doc['verdict']['culprit']}, not {culprit}")


def dead_reused(opt, box):
    """An old snapshot whose PID belongs to another process by now: it speaks of the dead one."""
    job(opt, box, "mismatch_count")
    os.killpg(box.child.pid, signal.SIGURG)
    snapshots(box, 3)
    box.kill()
    own_only(box)
    for path in glob.glob(box.snap + "/*.json"):
        m = re.search(r"^(.*)-(\d+)-(\d+)-(\d+)\.json$", path)
        doc = json.load(open(path))
        doc["processes"][0]["pid"] = os.getpid() if rank_of(path) == 1 else doc["processes"][0]["pid"]
        doc["processes"][0]["ns_pid"] = doc["processes"][0]["pid"]
        os.unlink(path)
        json.dump(doc, open(f"{m.group(1)}-{doc['processes'][0]['pid']}-{m.group(3)}-1.json", "w"))
    for t in glob.glob(box.snap + "/*.trace"):
        os.unlink(t)
    doc = verdict(why(box), HUNG, "collective-mismatch")
    check("they have ended since" in json.dumps(doc), "the process that has its number now was taken for it")


def stalled(opt, box, binary, case, classes, n, code=HUNG, limit=12):
    job(opt, box, case, binary, WAITGRAPH_STALL_S="2")
    snapshots(box, n, limit)
    box.kill()
    doc = verdict(why(box), code, classes)
    ours_unseen(doc)


def stall_mismatch(opt, box):
    stalled(opt, box, "nccl_ranks", "mismatch_op", "collective-mismatch", 3)


def stall_missing(opt, box):
    stalled(opt, box, "nccl_ranks", "missing_pause", "collective-missing-rank|idle", 3)


def stall_dead(opt, box):
    stalled(opt, box, "nccl_ranks", "exited", "peer-dead", 2)


def stall_kernel(opt, box):
    """At first it could be a long one; the second snapshot, when the stall is five times as old, decides."""
    stalled(opt, box, "cuda_streams", "kernel_stuck", "gpu-kernel-stuck", 2, limit=16)


def stall_oom(opt, box):
    stalled(opt, box, "cuda_oom", "swallowed", "oom-swallowed", 1)


def dead_listed(opt, box):
    """`ps` lists the killed as dead; `why PID` still tells from the record what they were in."""
    pids = job(opt, box, "mismatch_count")
    box.kill()
    r = subprocess.run([box.waitgraph, "ps", "--json"], capture_output=True, text=True, timeout=20)
    rows = {p["pid"]: p for p in json.loads(r.stdout).get("processes", json.loads(r.stdout))} if r.returncode == 0 else {}
    check(r.returncode == 0, f"ps: exit {r.returncode} {r.stderr}")
    for pid in pids:
        check(pid in rows, f"{pid} is not listed")
        check(rows[pid].get("alive") is False, f"{pid}: {rows[pid]}")


def run_one(opt, name, fn):
    box = None
    start = time.monotonic()
    try:
        box = Box(opt, name)
        fn(opt, box)
        return name, None, time.monotonic() - start
    except Wrong as e:
        return name, str(e), time.monotonic() - start
    except Exception as e:
        return name, f"{type(e).__name__}: {e}", time.monotonic() - start
    finally:
        if box:
            box.done()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", required=True)
    ap.add_argument("--keep", action="store_true", help="keep the files")
    ap.add_argument("--jobs", type=int, default=4)
    ap.add_argument("--once", action="store_true", help="do not ask failed ones again alone")
    ap.add_argument("only", nargs="*")
    opt = ap.parse_args()
    opt.build = os.path.abspath(opt.build)
    if os.geteuid():
        print("skipped: needs root to become other users and to make namespaces")
        return 77
    checks = {n: f for n, f in globals().items() if re.match(r"(user|dead|stall)_", n) and n not in ("dead_job",)}
    if opt.only:
        checks = {n: f for n, f in checks.items() if any(o in n for o in opt.only)}
    bad, again = 0, []
    with concurrent.futures.ThreadPoolExecutor(opt.jobs) as pool:
        for name, wrong, seconds in pool.map(lambda x: run_one(opt, *x), checks.items()):
            how = "ok" if not wrong else "FAILED" if opt.once else "again"
            print(f"{how:7}{name:18}{seconds:5.1f} s  {wrong or ''}", flush=True)
            if wrong and opt.once:
                bad += 1
            elif wrong:
                again.append(name)
    # As run.py does: what is wrong beside the others is asked once more with the machine to itself.
    for name in again:
        _, wrong, seconds = run_one(opt, name, checks[name])
        print(f"{'FAILED' if wrong else 'ok':7}{name:18}{seconds:5.1f} s  {wrong or ''}", flush=True)
        bad += bool(wrong)
    print(f"{len(checks)} checks, {bad} failed, {len(again)} asked twice")
    return min(bad, 70)


if __name__ == "__main__":
    sys.exit(main())
