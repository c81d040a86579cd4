#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Real PyTorch, JAX, CuPy, Triton and NCCL on a real GPU under the recorder. Not part of CI.

  tests/gpu/run.py --build build            as whoever calls it
  tests/gpu/run.py --build build --user     as nobody, without BPF (needs root to switch)

Each case starts a program of programs/, waits until it says it is in the state that it plants,
asks, and compares. Prints every answer, so that a person can judge it too.
"""
import argparse, glob, json, os, re, shutil, signal, subprocess, sys, tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
P = os.path.join(HERE, "programs")
results = []


def say(*a):
    print(*a, flush=True)


class Run:
    """One program under the recorder, its output in a file."""

    def __init__(self, opt, argv, env=None, record=True):
        self.opt = opt
        self.work = tempfile.mkdtemp(prefix="wg-gpu-")
        os.chmod(self.work, 0o777)
        self.state = self.work + "/state"
        os.makedirs(self.state, mode=0o777)
        os.chmod(self.state, 0o777 if opt.user else 0o700)
        self.log = self.work + "/train.log"
        e = dict(os.environ, WAITGRAPH_DIR=self.state, READY_FILE=self.work + "/ready",
                 TRITON_CACHE_DIR=self.work + "/triton", TORCHINDUCTOR_CACHE_DIR=self.work + "/inductor",
                 HOME=self.work, XLA_PYTHON_CLIENT_PREALLOCATE="false")
        e.pop("PYTHONUNBUFFERED", None)
        e.update(env or {})
        self.env = e
        cmd = ([f"{opt.build}/bin/waitgraph", "run", "--"] if record else []) + argv
        self.p = subprocess.Popen(as_user(cmd, opt), stdout=open(self.log, "w"), stderr=subprocess.STDOUT,
                                  env=e, cwd=self.work, start_new_session=True)

    def ready(self, seconds=150):
        end = time.time() + seconds
        while not os.path.exists(self.work + "/ready"):
            if self.p.poll() is not None or time.time() > end:
                raise RuntimeError(f"not ready (exit {self.p.poll()}): {open(self.log).read()[-1500:]}")
            time.sleep(0.1)
        return open(self.work + "/ready").read().split()

    def ask(self, verb="why", pid=None, *more):
        cmd = [f"{self.opt.build}/bin/waitgraph", verb, *more] + [str(x) for x in (pid or [self.p.pid])]
        if self.opt.user:
            cmd.insert(2, "--no-bpf")
        t0 = time.time()
        r = subprocess.run(as_user(cmd, self.opt), capture_output=True, text=True, env=self.env, timeout=120)
        return r, time.time() - t0

    def why(self, pid=None):
        r, took = self.ask("why", pid)
        say(f"--- why (exit {r.returncode}, {took:.2f} s)")
        say("\n".join(r.stdout.splitlines()[:30]))
        if r.stderr.strip():
            say("--- stderr:", r.stderr.strip()[-600:])
        r, _ = self.ask("why", pid, "--json")
        return json.loads(r.stdout), r.returncode

    def finish(self, seconds=300):
        rc = self.p.wait(seconds)
        return rc, open(self.log).read()

    def mem(self):
        traces = glob.glob(self.state + "/*.trace")
        r = subprocess.run([f"{self.opt.build}/bin/waitgraph", "mem", "--json"] + traces, capture_output=True, text=True)
        try:
            return json.loads(r.stdout)
        except ValueError:
            say("mem failed:", r.returncode, r.stderr[-500:])
            return {"traces": []}

    def mem_text(self):
        traces = glob.glob(self.state + "/*.trace")
        r = subprocess.run([f"{self.opt.build}/bin/waitgraph", "mem"] + traces, capture_output=True, text=True)
        return r.stdout + r.stderr

    def end(self):
        try:
            os.killpg(self.p.pid, signal.SIGKILL)
        except OSError:
            pass
        point = self.work + "/mnt"
        if os.path.ismount(point) or os.path.isdir(point):
            subprocess.run(["umount", "-l", point], stderr=subprocess.DEVNULL)
        self.p.wait()
        if not self.opt.keep:
            shutil.rmtree(self.work, ignore_errors=True)


def as_user(cmd, opt):
    if opt.user and os.geteuid() == 0:
        return ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--"] + cmd
    return cmd


def check(name, ok, text):
    results.append((name, bool(ok), text))
    say(f"{'ok  ' if ok else 'FAIL'} {name}: {text}")


def verdict_case(opt, name, argv, want, hung, says=(), env=None, settle=8, extra=None):
    say(f"\n=== {name}")
    run = None
    try:
        run = Run(opt, argv, env)
        run.name = name
        run.ready()
        time.sleep(settle)
        doc, code = run.why()
        v = doc["verdict"]
        text = json.dumps(v)
        ok = v["class"] in want and v["hung"] is hung and all(s.lower() in text.lower() for s in says)
        check(name, ok, f"{v['class']} hung={v['hung']} {v['confidence']}: {v['summary']}")
        if extra:
            extra(run, doc)
    except Exception as e:  # a broken case must not hide the others
        check(name, False, f"{type(e).__name__}: {e}")
    finally:
        if run:
            run.end()


def python(program, *args):
    return [sys.executable, os.path.join(P, program), *args]


# ---- cases ---------------------------------------------------------------------------------


def story1(opt):
    def files(run, doc):
        p = next(x for x in doc["processes"] if x["pid"] == run.p.pid)
        f = next((x for x in p["files"] if x["fd"] == 1), {})
        n = f.get("user_buffered_bytes")
        check("story1/healthy: bytes that wait", n and n > 0, f"fd 1: {f}")

    verdict_case(opt, "story1/healthy", python("story1.py", "healthy"), ["log-buffered"], False, extra=files)
    verdict_case(opt, "story1/stuck", python("story1.py", "stuck"), ["gpu-kernel-stuck"], True, ["spin_kernel"], settle=15)


def story2(opt):
    def facts(run, doc):
        p = next(x for x in doc["processes"] if x["pid"] == run.p.pid)
        fails = [f for d in p["devices"] for f in d.get("failures", [])]
        say(json.dumps(fails)[:1500])
        margin = int(open(run.work + "/ready").read().split()[0])
        good = [f for f in fails if not f["recovered"]]
        check("story2/fail: short by", good and abs(good[-1]["short_by"] - margin) <= 64 << 20,
              f"planted {margin}, said {good[-1]['short_by'] if good else None}")
        lines = [x for x in (good[-1]["python_stack"] if good else [])]
        check("story2/fail: Python line", any("grow" in x["function"] for x in lines), str(lines[:4]))

    verdict_case(opt, "story2/fail", python("story2.py", "fail"), ["oom-swallowed"], True, extra=facts)
    verdict_case(opt, "story2/retry", python("story2.py", "retry"), ["progressing", "busy-gpu", "log-buffered", "idle", "busy-cpu"], False)


def story3(opt):
    verdict_case(opt, "story3/compile", python("story3.py"), ["busy-cpu"], False, settle=6)


def unchanged(opt):
    """Results equal with and without, and the memory appears."""
    for name, argv, env in [
        ("train", python("train.py"), {}),
        ("expandable", python("train.py"), {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
        ("graphs", python("graphs.py"), {}),
        ("triton", python("triton_add.py"), {}),
        # its autotuner may choose another algorithm in each run, with another last digit
        ("jax", python("jax_case.py"), {"XLA_FLAGS": "--xla_gpu_deterministic_ops=true --xla_gpu_autotune_level=0"}),
        ("cupy", python("cupy_case.py"), {}),
    ]:
        say(f"\n=== unchanged/{name}")
        try:
            outs = []
            for record in (False, True):
                run = Run(opt, argv, env, record)
                rc, log = run.finish()
                res = re.findall(r"^RESULT (.*)$", log, re.M)
                outs.append((rc, res))
                if rc or not res:
                    say(log[-1500:])
                if record:
                    doc = run.mem()
                    dev = doc["traces"][0]["devices"][0] if doc["traces"] and doc["traces"][0]["devices"] else {}
                    stats = dict(re.findall(r"^STAT (\w+) (\d+)$", log, re.M))
                    say("stats", stats, "mem", {k: dev.get(k) for k in ("peak_own", "own_at_end", "live_at_end", "allocations", "frees", "context_and_modules")})
                    say("\n".join(run.mem_text().splitlines()[:25]))
                    # cuBLAS workspaces etc. may allocate beside PyTorch: look at libtorch and libc10 alone
                    lib = [b for b in dev.get("by_library", []) if re.search(r"c10|torch", b["library"])]
                    if int(stats.get("segments_allocated", 0)):  # an expandable segment grows without being counted
                        n = sum(b["allocations"] for b in lib)
                        check(f"unchanged/{name}: allocations", n == int(stats["segments_allocated"]),
                              f"PyTorch {stats['segments_allocated']}, we {n} ({[b['library'] for b in dev.get('by_library', [])]})")
                    if "reserved_peak" in stats:
                        held = sum(b["live_at_peak"] for b in lib)
                        check(f"unchanged/{name}: reserved at peak", held == int(stats["reserved_peak"]),
                              f"PyTorch reserved {stats['reserved_peak']}, we {held} (all libraries {dev.get('peak_own')})")
                    if "used_by_driver" in stats:
                        used, own = int(stats["used_by_driver"]), dev.get("peak_own", 0)
                        check(f"unchanged/{name}: within 1 %", own and abs(own - used) <= 0.01 * used, f"driver says {used}, we {own}")
                run.end()
            check(f"unchanged/{name}", outs[0] == outs[1] and outs[0][0] == 0 and outs[0][1], f"{outs[0]} vs {outs[1]}")
        except Exception as e:
            check(f"unchanged/{name}", False, f"{type(e).__name__}: {e}")


def overhead(opt):
    """Step times with and without, pairs in one run."""
    say("\n=== overhead")
    for kind in opt.loops.split(","):
        ratios, bare, rec = [], [], []
        for i in range(opt.pairs):
            t = {}
            for record in ((False, True), (True, False))[i % 2]:  # drift hits both alike
                run = Run(opt, python("loop.py", kind), {}, record)
                rc, log = run.finish()
                m = re.search(r"^STEP_US ([\d.]+)$", log, re.M)
                if not m:
                    say(rc, log[-800:])
                t[record] = float(m.group(1)) if m else float("nan")
                run.end()
            bare.append(t[False]); rec.append(t[True]); ratios.append(t[True] / t[False])
        say(f"{kind}: bare {bare} recorded {rec} us a step")
        ratios.sort()
        mid = ratios[len(ratios) // 2]
        say(f"MEASURED overhead/{kind}: ratio median {mid:.4f}, all {[round(r, 4) for r in ratios]} (target 1.005)")


def signal_case(opt):
    say("\n=== signal")
    run = None
    try:
        run = Run(opt, python("signals.py"))
        run.ready()
        time.sleep(3)
        os.kill(run.p.pid, signal.SIGURG)
        end = time.time() + 30
        while time.time() < end and not (glob.glob(run.state + "/*.json") and "saved as" in open(run.log, errors="replace").read()):
            time.sleep(0.2)
        log = open(run.log, errors="replace").read()
        say(log[-2500:])
        check("signal: snapshot written", glob.glob(run.state + "/*.json"), str(os.listdir(run.state)))
        check("signal: no EINTR", "EINTR" not in log.split("==== waitgraph")[0] and "interrupted" not in log.lower(), "")
        check("signal: text on stderr", "saved as" in log, "")
    except Exception as e:
        check("signal", False, f"{type(e).__name__}: {e}")
    finally:
        if run:
            run.end()


def storage(opt):
    """Blocked in a checkpoint's write, or inside the GPU's kernel driver. FUSE needs root, and a mount that is allowed."""
    def culprit(run, doc):
        pid = int(open(run.work + "/ready").read())
        said = (doc["verdict"].get("culprit") or {}).get("pid")
        check(run.name + ": culprit", said == pid, f"planted {pid}, said {said}")

    kinds = [("pipe", ["stopped"], culprit)]
    if os.geteuid() == 0 and not opt.user and os.path.exists("/dev/fuse"):
        kinds += [("fuse", ["write-blocked"], culprit), ("driver", ["driver-blocked", "read-blocked"], None)]
    else:
        say("skip storage/fuse, storage/driver: need root and /dev/fuse")
    for kind, want, extra in kinds:
        verdict_case(opt, f"storage/{kind}", python("storage.py", kind), want, True, extra=extra)


def nccl(opt):
    """Two GPUs: needs them."""
    n = subprocess.run([sys.executable, "-c", "import torch; print(torch.cuda.device_count())"], capture_output=True, text=True)
    if int(n.stdout.strip() or 0) < 2:
        say("skip nccl: needs two GPUs")
        return
    for kind, want in (("missing", ["collective-missing-rank", "idle", "busy-cpu", "spin-wait"]), ("mismatch", ["collective-mismatch"]),
                       ("cycle", ["collective-cycle"]), ("dead", ["peer-dead"]), ("healthy", None)):
        say(f"\n=== nccl/{kind}")
        run = None
        try:
            run = Run(opt, python("nccl.py", kind), {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "NCCL_NVLS_ENABLE": "0"})
            pids = run.ready()
            time.sleep(8)
            doc, code = run.why([int(x) for x in pids])
            v = doc["verdict"]
            ok = v["hung"] is False if want is None else v["class"] in want
            check(f"nccl/{kind}", ok, f"{v['class']} hung={v['hung']}: {v['summary']}")
        except Exception as e:
            check(f"nccl/{kind}", False, f"{type(e).__name__}: {e}")
        finally:
            if run:
                run.end()


CASES = {"story1": story1, "story2": story2, "story3": story3, "signal": signal_case, "unchanged": unchanged,
         "storage": storage, "nccl": nccl, "overhead": overhead}


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default=os.path.join(HERE, "../../build"))
    ap.add_argument("--user", action="store_true")
    ap.add_argument("--keep", action="store_true")
    ap.add_argument("--pairs", type=int, default=5)
    ap.add_argument("--loops", default="gpu,launch,graph", help="which loops overhead measures")
    ap.add_argument("cases", nargs="*")
    opt = ap.parse_args()
    opt.build = os.path.abspath(opt.build)
    for name in opt.cases or CASES:
        t0 = time.time()
        CASES[name](opt)
        say(f"[{name}: {time.time() - t0:.0f} s]")
    bad = [r for r in results if not r[1]]
    say(f"\n{len(results) - len(bad)} of {len(results)} right" + (" (as an ordinary user, without BPF)" if opt.user else ""))
    for name, _, text in bad:
        say(f"  wrong: {name}: {text[:200]}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
