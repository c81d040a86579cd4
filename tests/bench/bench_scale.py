#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long an answer takes, as a whole process, beside gdb on the same threads in the same run.

bench_scale.py [BUILD_DIR [THREADSxPROCESSES...]]

Goals: 200 threads 15 times faster than gdb; 2,000 threads, and a job of 64 processes, under 1 s and 200 MiB.
"""
import os, shutil, signal, statistics, subprocess, sys, time

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")


def timed(cmd):
    """Seconds by the clock, seconds of CPU, peak MiB of one command and its children."""
    t = time.perf_counter()
    p = subprocess.Popen(cmd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, ru = os.wait4(p.pid, 0)
    p.returncode = status
    return time.perf_counter() - t, ru.ru_utime + ru.ru_stime, ru.ru_maxrss / 1024


def main():
    only = [tuple(int(x) for x in a.split("x")) for a in sys.argv[2:]]  # e.g. 200x1: threads x processes
    print(f"{'subject':24} {'command':20} {'clock s':>9} {'CPU s':>8} {'peak MiB':>9} {'gdb / it: clock':>16} {'CPU':>6}")
    for threads, processes in only or ((200, 1), (2000, 1), (10, 64)):
        p = subprocess.Popen([f"{BUILD}/bin/bench_scale", str(threads), str(processes)], stdout=subprocess.PIPE, start_new_session=True)
        for _ in range(processes):
            p.stdout.readline()
        time.sleep(1.5)  # all asleep, so that no second look is due
        pids = [str(p.pid)] + [x for x in open(f"/proc/{p.pid}/task/{p.pid}/children").read().split()]
        subject = f"{processes} x {threads} threads"
        waitgraph = f"{BUILD}/bin/waitgraph"
        rows = {"why": [waitgraph, "why"] + pids}
        if processes == 1:
            rows["dump"] = [waitgraph, "dump", "--no-follow", pids[0]]
            if os.geteuid() == 0:
                rows["dump --no-bpf"] = [waitgraph, "dump", "--no-follow", "--no-bpf", pids[0]]
        gdb = ["sh", "-c", "for p; do gdb -batch -p $p -ex 'thread apply all bt'; done", "-"] + pids
        runs = {name: [] for name in [*rows, "gdb"]}
        # In turn, so that all see the same machine; gdb takes long, so it has fewer of them.
        for turn in range(7):
            if shutil.which("gdb") and turn % 2 == 0 and (turn == 0 or threads * processes <= 300):
                runs["gdb"].append(timed(gdb))
                time.sleep(1.5)  # gdb has stopped and woken every thread: that would cost us a second look
            for name, cmd in rows.items():
                runs[name].append(timed(cmd))
        median = {name: [statistics.median(r[i] for r in v) for i in (0, 1)] for name, v in runs.items() if v}
        for name, v in runs.items():
            if v:
                clock, cpu = median[name]
                ratio = f"{median['gdb'][0] / clock:16.1f} {median['gdb'][1] / cpu:6.1f}" if "gdb" in median else ""
                print(f"{subject:24} {name:20} {clock:9.3f} {cpu:8.3f} {max(r[2] for r in v):9.0f} {ratio}", flush=True)
        os.killpg(p.pid, signal.SIGKILL)
        p.wait()


if __name__ == "__main__":
    main()
