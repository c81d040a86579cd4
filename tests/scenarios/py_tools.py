"""scenario
section: io, stopped, dead-peer, slow-not-hung; ordinary programs of the distribution
story: a program that nobody here wrote stands still (or works), and somebody asks about it
proof: make, tee, xargs, tar, git, sqlite3 and sh are started below with what they need to wait for; what that is was stopped,
       locked or set to work below and writes its pid
case: make_job_stopped class=stopped hung=true culprit=pid needs=tool:make settle=2
case: make_job_computing class=busy-cpu hung=false culprit=pid needs=tool:make settle=2
case: make_job_fifo class=peer-silent hung=true culprit=pid needs=tool:make settle=2
case: tee_fifo_stopped class=stopped hung=true culprit=pid needs=tool:tee settle=2
case: xargs_computing class=busy-cpu hung=false culprit=pid needs=tool:xargs settle=2
case: tar_unread class=pipe-full hung=true culprit=pid needs=tool:tar settle=2
case: git_editor_stopped class=stopped hung=true culprit=pid needs=tool:git settle=2
case: sqlite_cli class=file-lock hung=true culprit=pid needs=tool:sqlite3 settle=2
case: timeout_cat class=peer-silent hung=true culprit=pid needs=tool:timeout settle=2
case: sort_big_input class=busy-cpu|progressing|idle hung=false needs=tool:sort settle=2
case: http_server class=idle hung=false settle=2
case: gdb_has_it class=stopped hung=true culprit=pid needs=tool:gdb settle=3
case: gzip_loop class=busy-cpu|progressing hung=false needs=tool:gzip settle=2
case: sh_wait class=busy-cpu hung=false culprit=pid settle=2
case: tmux_pane class=stopped|idle hung=any needs=tool:tmux settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import os, signal, sqlite3, subprocess as sp, sys, time
from scenario import *

sleeper = f"{sys.executable} -c 'import signal; signal.pause()'"
burner = "nice sh -c 'echo $$ > pid; while :; do :; done'"


def wait_for(path):
    while not os.path.exists(path) or not open(path).read().strip():
        time.sleep(0.02)
    return int(open(path).read())


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    tell(f"culprit_pid {pid}")


def ask(p):
    tell(f"ask_pid {p.pid}")


if case.startswith("make"):
    job = {"make_job_stopped": "@echo $$$$ > pid; exec sleep 1000", "make_job_computing": f"@{burner.replace('$$', '$$$$')}",
           "make_job_fifo": "@cat fifo"}[case]
    with open("Makefile", "w") as f:
        f.write(f"all: a b\na:\n\t@true\nb:\n\t{job}\n")
    if case == "make_job_fifo":
        os.mkfifo("fifo")
        keeper = os.open("fifo", os.O_RDWR)  # this process, which never writes
        tell(f"culprit_pid {os.getpid()}")
    p = sp.Popen(["make", "-s", "-j2"], close_fds=True)
    ask(p)
    if case != "make_job_fifo":
        pid = wait_for("pid")
        stop(pid) if case.endswith("stopped") else tell(f"culprit_pid {pid}")
    else:
        time.sleep(0.4)
elif case == "tee_fifo_stopped":  # yes | tee fifo, whose reader is stopped
    os.mkfifo("fifo")
    reader = sp.Popen(["sh", "-c", "exec sleep 1000 < fifo"])
    p = sp.Popen(["sh", "-c", "yes | tee fifo > /dev/null"])
    time.sleep(0.5)
    stop(reader.pid)
    ask(p)
elif case == "xargs_computing":
    p = sp.Popen(["sh", "-c", f"echo x | xargs -n1 {burner}"])
    tell(f"culprit_pid {wait_for('pid')}")
    ask(p)
elif case == "tar_unread":
    p = sp.Popen(["tar", "-c", "-C", "/usr/bin", "."], stdout=sp.PIPE, stderr=sp.DEVNULL)
    tell(f"culprit_pid {os.getpid()}")  # this process has the reading end and does not read
    time.sleep(0.4)
    ask(p)
elif case == "git_editor_stopped":
    env = dict(os.environ, GIT_EDITOR="sh -c 'echo $$ > pid; exec sleep 1000'", HOME=os.getcwd(), GIT_CONFIG_NOSYSTEM="1")
    sp.run(["git", "init", "-q", "repo"], env=env, check=True)
    ident = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    p = sp.Popen(["git", "-C", "repo"] + ident + ["commit", "--allow-empty"], env=env)
    stop(wait_for("repo/pid"))
    ask(p)
elif case == "sqlite_cli":
    db = sqlite3.connect("a.db", isolation_level=None)
    db.execute("create table t(x)")
    db.execute("begin exclusive")
    tell(f"culprit_pid {os.getpid()}")
    p = sp.Popen(["sqlite3", "-cmd", ".timeout 1000000", "a.db", "insert into t values(1)"])
    time.sleep(0.3)
    ask(p)
elif case == "timeout_cat":
    r, w = os.pipe()
    tell(f"culprit_pid {os.getpid()}")
    p = sp.Popen(["timeout", "1000", "cat"], stdin=r)
    os.close(r)
    ask(p)
elif case == "sort_big_input":
    p = sp.Popen(["sh", "-c", f"nice {sys.executable} -c 'import random\nwhile True: print(random.random())' | sort > sorted"])
    ask(p)
elif case == "http_server":
    p = sp.Popen([sys.executable, "-m", "http.server", "0", "--bind", "127.0.0.1"], stdout=sp.DEVNULL, stderr=sp.DEVNULL)
    time.sleep(0.5)
    ask(p)
elif case == "gdb_has_it":
    target = sp.Popen(["sleep", "1000"])
    sp.Popen(["gdb", "-q", "-nx", "-p", str(target.pid)], stdin=sp.PIPE, stdout=sp.DEVNULL, stderr=sp.DEVNULL)
    tell(f"culprit_pid {target.pid}")
    while " t (tracing" not in open(f"/proc/{target.pid}/status").read().replace("\t", " "):
        time.sleep(0.05)
    p = target
    ready()
    target.wait()
elif case == "gzip_loop":
    p = sp.Popen(["sh", "-c", "nice gzip -9 < /dev/urandom > /dev/null"])
    ask(p)
elif case == "sh_wait":
    p = sp.Popen(["sh", "-c", f"{burner} & wait"])
    tell(f"culprit_pid {wait_for('pid')}")
    ask(p)
elif case == "tmux_pane":  # the server waits for terminals; the program in its pane is stopped
    sock = os.getcwd() + "/t"
    sp.run(["tmux", "-S", sock, "-f", "/dev/null", "new-session", "-d", "sh -c 'echo $$ > pid; exec sleep 1000'"], check=True,
           env=dict(os.environ, SHELL="/bin/sh"))  # an account without a login has a shell that refuses
    tell(f"cleanup tmux -S {sock} kill-server")
    stop(wait_for("pid"))
    tell(f"ask_pid {wait_for('pid')}")
    tell(f"cleanup_pid {wait_for('pid')}")
ready()
while True:
    signal.pause()
