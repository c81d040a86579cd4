# SPDX-License-Identifier: Apache-2.0
"""A program on the simulated GPU under the recorder; what `waitgraph mem` then says, against what
the device itself told the program. Ends normally, is killed, and as two processes at once."""
import csv
import json
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
import tempfile

MIB = 1 << 20

GUEST = r"""
import ctypes, json, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
MIB = 1 << 20
def ok(r):
    assert r == 0, r
ok(cuda.cuInit(0))
ctx, dev = ctypes.c_void_p(), ctypes.c_int()
ok(cuda.cuDeviceGet(ctypes.byref(dev), 0))
ok(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), dev))
ok(cuda.cuCtxSetCurrent(ctx))
def free():
    f, t = ctypes.c_size_t(), ctypes.c_size_t()
    ok(cuda.cuMemGetInfo_v2(ctypes.byref(f), ctypes.byref(t)))
    return f.value
def alloc(n):
    p = ctypes.c_uint64()
    r = cuda.cuMemAlloc_v2(ctypes.byref(p), ctypes.c_size_t(n))
    return p.value if r == 0 else -r
before = free()
weights = [alloc(20 * MIB) for i in range(30)]
for step in range(5):
    for p in [alloc(7 * MIB) for i in range(12)]:
        ok(cuda.cuMemFree_v2(ctypes.c_uint64(p)))
ok(cuda.cuMemFree_v2(ctypes.c_uint64(weights.pop())))
def load_batch():
    return alloc(1 << 45)
assert load_batch() == -2
class Prop(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handles", ctypes.c_int), ("where", ctypes.c_int),
                ("id", ctypes.c_int), ("win32", ctypes.c_void_p), ("flags", ctypes.c_uint8 * 8)]
prop = Prop(1, 0, 1, 0, None)
va = ctypes.c_uint64()
ok(cuda.cuMemAddressReserve(ctypes.byref(va), ctypes.c_size_t(1 << 36), ctypes.c_size_t(0),
                            ctypes.c_uint64(0), ctypes.c_uint64(0)))
def segment(n, at):
    handles = []
    for i in range(n):
        h = ctypes.c_uint64()
        if cuda.cuMemCreate(ctypes.byref(h), ctypes.c_size_t(20 * MIB), ctypes.byref(prop),
                            ctypes.c_uint64(0)):
            for x in handles:
                ok(cuda.cuMemRelease(ctypes.c_uint64(x)))
            return i
        handles.append(h.value)
    for i, x in enumerate(handles):
        ok(cuda.cuMemMap(ctypes.c_uint64(va.value + (at + i) * 20 * MIB), ctypes.c_size_t(20 * MIB),
                         ctypes.c_size_t(0), ctypes.c_uint64(x), ctypes.c_uint64(0)))
    return handles
mapped = segment(6, 0)
# Handle first, then the mapping: the memory goes with the second.
ok(cuda.cuMemRelease(ctypes.c_uint64(mapped[5])))
ok(cuda.cuMemUnmap(ctypes.c_uint64(va.value + 5 * 20 * MIB), ctypes.c_size_t(20 * MIB)))
room = free()
created = segment(10000, 100)
pinned = ctypes.c_void_p()
ok(cuda.cuMemHostAlloc(ctypes.byref(pinned), ctypes.c_size_t(16 * MIB), 0))
print(json.dumps({"used": before - free(), "created": created, "room": room, "pid": os.getpid()}),
      flush=True)
if sys.argv[1] == "wait":
    sys.stdin.read()
if sys.argv[1] == "kill":
    os.kill(os.getpid(), 9)
"""


def start(how, directory, session):
    env = dict(os.environ, LD_PRELOAD=sys.argv[2], LD_LIBRARY_PATH=sys.argv[3], RANK="3",
               WAITGRAPH_DIR=directory, SIMGPU_SESSION=session, SIMGPU_MEMORY="4G")
    return subprocess.Popen([sys.executable, "-X", "wg=<<script>", "-c", GUEST, how], env=env, text=True,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def mem(directory):
    done = subprocess.run([sys.argv[1], "mem", "--json", directory], text=True, capture_output=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    doc = json.loads(done.stdout)
    assert doc["schema"] == "waitgraph-mem/1"
    text = subprocess.run([sys.argv[1], "mem", directory], text=True, capture_output=True)
    assert text.returncode == 0
    assert max(map(len, text.stdout.splitlines())) <= 100, text.stdout
    return doc["traces"], text.stdout


def check(trace, told, killed):
    device = trace["devices"][0]
    assert trace["pid"] == told["pid"] and trace["rank"] == 3
    assert trace["complete"] is not killed
    assert trace["lost_events"] == 0
    assert device["own_at_end"] == told["used"] == (29 * 20 + 5 * 20) * MIB, device["own_at_end"]
    assert device["live_at_end"] == told["used"]
    assert device["allocations"] == 30 + 60 + 6 + told["created"], device["allocations"]
    assert device["frees"] == 60 + 1 + 1 + told["created"]
    assert device["peak_own"] == told["used"] + told["created"] * 20 * MIB
    assert trace["host_pinned"] == {"peak": 16 * MIB, "live_at_end": 16 * MIB}
    whole, pieces = device["failures"]
    assert whole["function"] == "cuMemAlloc_v2" and whole["asked"] == 1 << 45
    assert whole["short_by"] == whole["asked"] - whole["free"]
    assert [f["function"] for f in whole["python_stack"]][:2] == ["alloc", "load_batch"]
    assert pieces["function"] == "cuMemCreate"
    assert pieces["pieces"] == told["created"] + 1
    assert pieces["asked"] == (told["created"] + 1) * 20 * MIB
    assert pieces["free"] == told["room"], (pieces["free"], told["room"])
    assert not pieces["recovered"]
    assert sum(l["live_at_end"] for l in device["by_library"]) == told["used"]
    assert sum(s["live_at_peak"] for s in device["by_site"]) == device["peak_own"]
    assert device["fragmentation"]["address_space_reserved"] == 1 << 36
    assert device["growing"] == []


def export(form, trace, directory, *more):
    path = os.path.join(directory, "out." + form)
    done = subprocess.run([sys.argv[1], "export", "--format", form, "-o", path, *more, trace],
                          text=True, capture_output=True)
    assert done.returncode == 0, (form, done.stderr)
    # A second time it is there already, and stays.
    again = subprocess.run([sys.argv[1], "export", "--format", form, "-o", path, trace],
                           text=True, capture_output=True)
    assert again.returncode == 64 and "already" in again.stderr, again
    return path


def varints(data):
    """Fields of a protobuf message: (number, value or bytes)."""
    at = 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value
    while at < len(data):
        tag = number()
        if tag & 7 == 0:
            yield tag >> 3, number()
        else:
            assert tag & 7 == 2, tag
            length = number()
            yield tag >> 3, data[at:at + length]
            at += length
    assert at == len(data)


def check_exports(trace, doc, directory):
    device = doc["devices"][0]
    peak = device["peak_own"]
    with open(export("folded", trace, directory)) as f:
        assert sum(int(line.rsplit(" ", 1)[1]) for line in f) == peak
    with open(export("csv", trace, directory), newline="") as f:
        rows = list(csv.DictReader(f))
    assert max(int(r["own"]) for r in rows if r["own"]) == peak
    assert sum(r["event"] == "alloc" and r["kind"] in ("device", "physical") for r in rows) == \
        device["allocations"]
    assert sum(r["event"] == "failed" for r in rows) == 2
    with open(export("memory-viz", trace, directory), "rb") as f:
        snapshot = pickle.load(f)
    assert sum(s["total_size"] for s in snapshot["segments"]) == device["live_at_end"]
    level, most, addresses = 0, 0, set()
    for event in snapshot["device_traces"][0]:
        assert all(isinstance(x["name"], str) and isinstance(x["filename"], str)
                   for x in event["frames"])
        if event["action"] == "alloc":
            assert event["addr"] not in addresses
            addresses.add(event["addr"])
            level += event["size"]
        elif event["action"] == "free_completed":
            addresses.remove(event["addr"])
            level -= event["size"]
        most = max(most, level)
    assert most == peak and level == device["live_at_end"]
    assert addresses == {s["address"] for s in snapshot["segments"]}
    base = sqlite3.connect(export("sqlite", trace, directory))
    assert base.execute("SELECT peak_own, allocations FROM device").fetchall() == \
        [(peak, device["allocations"])]
    assert base.execute("SELECT count(*) FROM failure WHERE recovered = 0").fetchone()[0] >= 1
    assert base.execute("SELECT sum(live_at_peak) FROM site WHERE kind <> 'managed'"
                        ).fetchone()[0] >= peak
    base.close()
    with open(export("openmetrics", trace, directory)) as f:
        text = f.read()
    assert text.endswith("# EOF\n") and '_peak_bytes{' in text and " %d\n" % peak in text
    with open(export("perfetto", trace, directory), "rb") as f:
        packets = [dict(varints(p)) for n, p in varints(f.read()) if n == 1]
    events = [dict(varints(p[11])) for p in packets if 11 in p]
    counters = [e[30] for e in events if e[9] == 4]
    assert peak in counters
    assert sum(1 for e in events if e.get(22) == b"failure") == 2
    tracks = {dict(varints(p[60]))[1] for p in packets if 60 in p}
    assert {e[11] for e in events} <= tracks
    page = os.path.join(directory, "report.html")
    done = subprocess.run([sys.argv[1], "report", "-o", page, trace], text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    with open(page) as f:
        text = f.read()
    assert "http://" not in text and "https://" not in text and len(text) < 4 << 20
    assert "load_batch" in text and "default-src 'none'" in text
    assert "<<script>" not in text and "&lt;&lt;script" in text  # the command line says that


def main():
    session = "memory-whole-%d" % os.getpid()
    for how in ("end", "kill"):
        with tempfile.TemporaryDirectory() as directory:
            process = start(how, directory, session)
            told = json.loads(process.communicate(timeout=60)[0])
            assert process.returncode == (-signal.SIGKILL if how == "kill" else 0), process.returncode
            assert os.stat(directory).st_mode & 0o777 == 0o700
            name, = os.listdir(directory) if how == "end" else \
                [n for n in os.listdir(directory) if n.endswith(".trace")]
            assert os.stat(os.path.join(directory, name)).st_mode & 0o777 == 0o600
            traces, text = mem(directory)
            check(traces[0], told, how == "kill")
            check_exports(os.path.join(directory, name), traces[0], directory)
            assert "FAILED" in text and ("killed" in text) is (how == "kill")
    with tempfile.TemporaryDirectory() as directory:
        first = start("wait", directory, session)
        a = json.loads(first.stdout.readline())
        second = start("end", directory, session)
        b = json.loads(second.communicate(timeout=60)[0])
        first.communicate(timeout=60)
        done = subprocess.run([sys.argv[1], "diff", "--json", *sorted(
            os.path.join(directory, n) for n in os.listdir(directory))], text=True,
            capture_output=True)
        assert done.returncode == 0, done.stderr
        difference = json.loads(done.stdout)["devices"][0]
        assert difference["own_at_end"]["change"] == 0
        assert difference["peak_own"]["change"] == \
            (b["created"] - a["created"]) * 20 * MIB * (1 if a["pid"] < b["pid"] else -1)
        traces, _ = mem(directory)
        by_pid = {t["pid"]: t for t in traces}
        other = by_pid[b["pid"]]["devices"][0]["other_processes"]
        assert other == [{"pid": a["pid"], "bytes": a["used"]}], other
        assert by_pid[a["pid"]]["devices"][0]["other_processes"] == []
    print("ok")


main()
