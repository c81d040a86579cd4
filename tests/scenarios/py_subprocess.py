"""scenario
section: io (PIPE_BACKPRESSURE), slow-not-hung (SLOW_COMPILE), dead-peer
story: a Python launcher waits for the programs that it started
proof: the programs are one-liners or Debian's own (cat, sleep, g++); which one stands still, and why, is done to it below
case: pipe_and_wait class=deadlock hung=true settle=2
case: pipe_and_communicate class=busy-cpu|progressing|idle hung=false settle=2
case: stdin_kept_open class=deadlock hung=true settle=2
case: pipeline_end_stopped class=stopped hung=true culprit=pid settle=2
case: pipeline_end_reads class=progressing|busy-cpu|idle hung=false settle=2
case: pipeline_end_silent class=pipe-full hung=true culprit=pid settle=2
case: compiler class=busy-cpu hung=false needs=tool:g++ says=cc1plus settle=2
case: compiler_starved class=deadlock hung=true needs=tool:g++ settle=2
case: shell_in_shell class=stopped hung=true culprit=pid settle=2
case: grandchild_keeps_pipe class=peer-dead hung=true settle=2
case: make_like class=busy-cpu hung=false culprit=pid settle=2
case: flock_tool class=file-lock hung=true culprit=pid needs=tool:flock settle=2
case: recv_in_order class=peer-silent|peer-dead hung=true settle=2
case: zombie_unreaped class=idle|progressing hung=false settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import os, signal, subprocess as sp, sys, time
from scenario import *

py = [sys.executable, "-c"]
if case in ("pipe_and_wait", "pipe_and_communicate"):
    text = "import sys\nfor _ in range(2000 if %r == 'pipe_and_wait' else 10**9): print('x' * 70, flush=True)" % case
    p = sp.Popen(["nice"] + py + [text], stdout=sp.PIPE)
    ready()
    if case == "pipe_and_wait":
        p.wait()
    while p.stdout.read(1000):
        time.sleep(0.01)
elif case == "stdin_kept_open":
    p = sp.Popen(["cat"], stdin=sp.PIPE, stdout=sp.DEVNULL)
    p.stdin.write(b"hello")
    p.stdin.flush()
    ready()
    p.wait()
elif case.startswith("pipeline"):
    last = {"stopped": "import time; time.sleep(1000)", "silent": "import signal; signal.pause()",
            "reads": "import sys,time\nwhile sys.stdin.buffer.read(4096): time.sleep(.02)"}[case.split("_")[2]]
    first = sp.Popen(["yes"], stdout=sp.PIPE)
    middle = sp.Popen(["cat"], stdin=first.stdout, stdout=sp.PIPE)
    more = sp.Popen(["tr", "y", "n"], stdin=middle.stdout, stdout=sp.PIPE)
    end = sp.Popen(py + [last], stdin=more.stdout)
    for p in (first, middle, more):
        p.stdout.close()
    tell(f"culprit_pid {end.pid}")
    tell(f"ask_pid {first.pid}")
    time.sleep(0.7)
    if case.endswith("stopped"):
        os.kill(end.pid, signal.SIGSTOP)
    ready()
    end.wait()
elif case == "compiler":
    src = "constexpr long f(long n){long s=0;for(long i=0;i<n;i++)s+=i*i%7;return s;}\nconstexpr long v=f(2000000000L);int main(){return (int)v;}"
    p = sp.Popen(["nice", "g++", "-fconstexpr-ops-limit=9000000000000000", "-fconstexpr-loop-limit=2147483647", "-x", "c++",
                  "-fsyntax-only", "-"], stdin=sp.PIPE)
    p.stdin.write(src.encode())
    p.stdin.close()
    time.sleep(0.5)
    ready()
    p.wait()
elif case == "compiler_starved":
    p = sp.Popen(["g++", "-x", "c++", "-fsyntax-only", "-"], stdin=sp.PIPE)
    p.stdin.write(b"int main()")
    p.stdin.flush()
    time.sleep(0.5)
    ready()
    p.wait()
elif case == "shell_in_shell":
    p = sp.Popen(["sh", "-c", "sh -c 'sh -c \"kill -STOP \\$\\$; true\"; true'; true"])
    time.sleep(0.5)
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            s = open(f"/proc/{pid}/stat").read()
            if os.getsid(int(pid)) == os.getsid(0) and s.rsplit(")", 1)[1].split()[0] == "T":
                tell(f"culprit_pid {pid}")
        except OSError:
            pass
    ready()
    p.wait()
elif case == "grandchild_keeps_pipe":  # the child has ended; a daemon that it started has its standard output
    p = sp.Popen(["sh", "-c", "sleep 1000 & echo $! >&2; exit 0"], stdout=sp.PIPE, stderr=sp.PIPE)
    tell(f"culprit_pid {int(p.stderr.readline())}")
    ready()
    p.stdout.read()
elif case == "make_like":
    p = sp.Popen(["sh", "-c", "echo $$; true; nice sh -c 'echo $$; while :; do :; done'; true"], stdout=sp.PIPE)
    p.stdout.readline()
    tell(f"culprit_pid {int(p.stdout.readline())}")
    ready()
    p.wait()
elif case == "flock_tool":
    a = sp.Popen(["flock", "-n", "l.lock", "-c", "echo up; exec sleep 1000"], stdout=sp.PIPE)
    a.stdout.readline()
    tell(f"culprit_pid {a.pid}")
    for pid in filter(str.isdigit, os.listdir("/proc")):  # who has the lock's descriptor: flock's child has it, too
        try:
            if any(os.readlink(f"/proc/{pid}/fd/{fd}").endswith(os.getcwd() + "/l.lock") for fd in os.listdir(f"/proc/{pid}/fd")):
                tell(f"culprit_pid {pid}")
        except OSError:
            pass
    b = sp.Popen(["flock", "l.lock", "-c", "true"])
    time.sleep(0.3)
    ready()
    b.wait()
elif case == "recv_in_order":  # waits for the first although the third was killed, which the first waits for
    pipes = [os.pipe() for _ in range(3)]
    pids = []
    for i in range(3):
        pid = os.fork()
        if pid == 0:
            if i == 0:
                for r, w in pipes[:2]:
                    os.close(r)
                os.close(pipes[1][1])
                os.close(pipes[2][1])
                os.read(pipes[2][0], 1)
            os.close(pipes[0][1])
            if i == 2:
                time.sleep(0.3)
                os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()
        pids.append(pid)
    tell(f"culprit_pid {pids[2]}")
    os.close(pipes[0][1])
    time.sleep(0.6)
    ready()
    os.read(pipes[0][0], 1)
elif case == "zombie_unreaped":
    sp.Popen(["true"])
    ready()
    time.sleep(1000)
