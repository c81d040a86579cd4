#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long an answer takes, as a whole process, beside gdb on the same threads in the same run.

Goals: 200 threads 15 times faster than gdb; 2,000 threads, and a job of 64 processes, under 1 s and 200 MiB.
"""
import os, re, resource, shutil, signal, statistics, subprocess, sys, time

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")


def timed(cmd):
    """Wall seconds and peak MiB of one command."""
    t = time.perf_counter()
    p = subprocess.Popen(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, ru = os.wait4(p.pid, 0)
    p.returncode = status
    return time.perf_counter() - t, ru.ru_maxrss / 1024


def main():
    print(f"{'subject':24} {'command':26} {'median s':>9} {'peak MiB':>9} {'gdb / it':>9}")
    for threads, processes in ((200, 1), (2000, 1), (10, 64)):
        p = subprocess.Popen([f"{BUILD}/bin/bench_scale", str(threads), str(processes)], stdout=subprocess.PIPE, start_new_session=True)
        for _ in range(processes):
            p.stdout.readline()
        time.sleep(1.5)  # all asleep, so that no second look is due
        pids = [str(p.pid)] + [x for x in open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()]
        subject = f"{processes} x {threads} threads"
        rows = [("dump --no-follow", [f"{BUILD}/bin/waitgraph", "dump", "--no-follow", pids[0]], 5), ("why", [f"{BUILD}/bin/waitgraph", "why"] + pids, 5)]
        if os.geteuid() == 0:
            rows.insert(1, ("dump --no-bpf", [f"{BUILD}/bin/waitgraph", "dump", "--no-follow", "--no-bpf", pids[0]], 5))
        base = None
        if shutil.which("gdb"):
            cmd = ["sh", "-c", "for p; do gdb -batch -p $p -ex 'thread apply all bt'; done", "-"] + pids
            base = timed(cmd)[0]
            print(f"{subject:24} {'gdb, all stacks':26} {base:9.3f}")
        for name, cmd, n in rows:
            if name.startswith("dump") and processes > 1:
                continue
            runs = [timed(cmd) for _ in range(n)]
            s, m = statistics.median(r[0] for r in runs), max(r[1] for r in runs)
            print(f"{subject:24} {name:26} {s:9.3f} {m:9.0f} {base / s if base else float('nan'):9.1f}")
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()


if __name__ == "__main__":
    main()
