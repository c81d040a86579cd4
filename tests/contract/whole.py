#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Every demonstration is run, and what people and scripts get of it is held against the contract:
the JSON documents of all verbs, the first 24 lines of the text, colours and narrow terminals.

usage: whole.py WAITGRAPH FUZZ_SEEDS"""
import copy
import fcntl
import glob
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import contract  # noqa: E402

TOOL, SEEDS = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
EXPECTED = {"oom": {"oom-swallowed"}, "kernel": {"gpu-kernel-stuck", "unknown"},
            "log": {"log-buffered"}, "rank": {"deadlock"}}
CODES = {True: 10, False: 0, None: 12}
failed = []


def fail(what):
    failed.append(what)
    print("wrong:", what, flush=True)


def call(*args, **more):
    return subprocess.run([TOOL, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=120, text=True, **more)


def document(name, text):
    """One document and nothing else, within the contract where that has a schema."""
    try:
        doc = contract.strict(text)
    except ValueError as e:
        fail("%s: no JSON document: %s" % (name, e))
        return {}
    if doc.get("schema") in ("waitgraph/1", "waitgraph-mem/1"):
        for line in contract.problems(doc)[:10]:
            fail("%s: %s" % (name, line))
    elif not str(doc.get("schema", "")).startswith("waitgraph"):
        fail("%s: no schema" % name)
    return doc


def answer(name, done, classes=None):
    doc = document(name, done.stdout)
    v = doc.get("verdict", {})
    code = 11 if v.get("class") == "unknown" and v.get("hung") else CODES.get(v.get("hung"), -1)
    if done.returncode != code:
        fail("%s: exit code %d, and hung is %r" % (name, done.returncode, v.get("hung")))
    if classes and v.get("class") not in classes:
        fail("%s: %s: %s" % (name, v.get("class"), v.get("summary")))
    return doc


def columns(line):
    return len(line)


def head(name, text, width=100):
    """Verdict, what, chain, what is not established and what to type, in the first 24 lines."""
    lines = text.splitlines()[:24]
    for line in text.splitlines():
        if columns(line) > width:
            fail("%s: %d columns: %s" % (name, columns(line), line))
    starts = [line[:10].strip() for line in lines]
    if not re.match(r"(HUNG|NOT HUNG|UNDECIDED)\b", lines[0] if lines else ""):
        fail("%s: does not begin with the verdict" % name)
    for label in ("what", "who", "chain", "do", "next"):
        if label not in starts:
            fail("%s: no '%s' in the first 24 lines" % (name, label))
    if lines and lines[0].startswith("UNDECIDED") and "not known" not in starts:
        fail("%s: undecided, and what is not known is not said" % name)
    ours = text.split("\nKernel log\n")[0]  # the kernel writes what it likes
    odd = re.search(r"\d{4,} days|\bnan\b|\binf\b|-\d+ (s|ms|B|[KMGT]iB)\b|\(null\)", ours)
    if odd:
        fail("%s: nonsense: '%s' in: %s" % (name, odd.group(), ours))


def on_terminal(args, width):
    """What the tool writes to a terminal of so many columns."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, width, 0, 0))
    child = subprocess.Popen([TOOL, *args], stdin=slave, stdout=slave, stderr=subprocess.DEVNULL,
                             env=dict(os.environ, TERM="xterm"))
    os.close(slave)
    out = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        out += part
    os.close(master)
    child.wait()
    return out.decode("utf-8", "replace").replace("\r\n", "\n")


def demo(scenario, results):
    with tempfile.TemporaryDirectory(prefix="wg-contract-") as tmp:
        env = dict(os.environ, TMPDIR=tmp)
        env.pop("NO_COLOR", None)
        done = call("demo", scenario, "--keep", env=env)
        match = re.search(r"# pid (\d+),", done.stdout)
        if done.returncode or not match:
            fail("demo %s: %d: %s" % (scenario, done.returncode, done.stderr))
            return
        pid = match.group(1)
        try:
            looks(scenario, pid, tmp, done.stdout)
        finally:
            try:
                os.killpg(int(pid), signal.SIGKILL)
            except OSError:
                pass
        results.append(scenario)


def looks(scenario, pid, tmp, told):
    directory, = glob.glob(os.path.join(tmp, "waitgraph-demo-*"))
    env = dict(os.environ, WAITGRAPH_DIR=directory)
    begin = told.index("\n", told.index("$ waitgraph why")) + 2
    head("demo %s" % scenario, told[begin:told.index("\nStill running")])
    doc = answer("why %s" % scenario, call("why", "--json", pid), EXPECTED.get(scenario))
    saved = os.path.join(tmp, "saved.json")
    with open(saved, "w") as f:
        json.dump(doc, f)
    again = answer("why FILE of %s" % scenario, call("why", "--json", saved))
    if again.get("verdict", {}).get("class") != doc.get("verdict", {}).get("class"):
        fail("%s: %s when saved" % (scenario, again.get("verdict", {}).get("class")))
    answer("dump %s" % scenario, call("dump", "--json", "--save", pid, env=env),
           EXPECTED.get(scenario))
    answer("why DIR of %s" % scenario, call("why", "--json", directory))
    for verb in ("why", "dump"):
        text = call(verb, pid).stdout
        head("%s %s" % (verb, scenario), text)
        if "\033" in text:
            fail("%s %s: colours in a pipe" % (verb, scenario))
    text = on_terminal(["why", pid], 60)
    if "\033[1" not in text:
        fail("why %s: no colours on a terminal" % scenario)
    head("why %s, 60 columns" % scenario, re.sub(r"\033\[[0-9;]*m", "", text), 60)
    if "\033" in on_terminal(["why", "--no-color", pid], 100):
        fail("why --no-color %s: colours" % scenario)
    dot = call("dump", "--dot", pid).stdout
    if not dot.startswith("digraph waitgraph {") or not dot.endswith("}\n"):
        fail("dump --dot %s" % scenario)
    rows = [r for r in document("ps", call("ps", "--json").stdout).get("processes", [])
            if r["pid"] == int(pid)]
    if len(rows) != 1:
        fail("ps: %d rows for pid %s" % (len(rows), pid))
    traces = sorted(glob.glob(os.path.join(directory, "*.trace")))
    document("mem %s" % scenario, call("mem", "--json", *traces).stdout)
    if len(traces) > 1:
        document("diff %s" % scenario, call("diff", "--json", *traces[:2]).stdout)
    for line in call("mem", *traces).stdout.splitlines()[:-1]:  # the last is a command with a path
        if columns(line) > 100:
            fail("mem %s: %s" % (scenario, line))


def checker():
    """The checker itself finds what is wrong: each of these has one thing more wrong."""
    with open(os.path.join(SEEDS, "contract.json")) as f:
        good = json.load(f)
    done = call("why", "--json", os.path.join(SEEDS, "own.json"))
    good = answer("why own.json", done)
    if not good:
        return

    def broken(name, change):
        doc = copy.deepcopy(good)
        change(doc)
        if not contract.problems(doc):
            fail("the checker does not see: %s" % name)

    broken("no verdict", lambda d: d.pop("verdict"))
    broken("an unknown class", lambda d: d["verdict"].update({"class": "slow"}))
    broken("hung contradicts", lambda d: d["verdict"].update({"class": "idle", "hung": True}))
    broken("a null", lambda d: d.update({"host": None}))
    broken("a text for a number", lambda d: d["processes"][0].update({"pid": "1"}))
    broken("an age of 441 million days", lambda d: d["processes"][0].update({"age_s": 441e6 * 86400}))
    broken("a negative age", lambda d: d["processes"][0].update({"age_s": -1.0}))
    broken("no time", lambda d: d.update({"taken_at": "yesterday"}))
    broken("an edge to nowhere", lambda d: d["edges"].append(
        {"from": "t:0:0", "to": "t:0:1", "kind": "waits-for", "evidence": "", "certain": True}))
    broken("no summary", lambda d: d["verdict"].update({"summary": ""}))
    for text in ('{"a": 1} x', '{"a": NaN}', '{"a": 1, "a": 2}'):
        try:
            contract.strict(text)
            fail("the checker takes %s" % text)
        except ValueError:
            pass


def about_oneself():
    """The first thing that a newcomer tries: the shell waits for this very answer."""
    for line in ('"$0" why --json $$; :', 'timeout 60 "$0" why --json $$; :'):
        done = subprocess.run(["sh", "-c", line, TOOL], stdin=subprocess.DEVNULL, timeout=120,
                              stdout=subprocess.PIPE, text=True)
        verdict = document("why $$", done.stdout).get("verdict", {})
        if verdict.get("hung") is not False:
            fail("%s: %s: %s" % (line, verdict.get("class"), verdict.get("summary")))


def main():
    names = [line.split()[0] for line in call("demo", "--list").stdout.splitlines()
             if re.match(r"[a-z]+ +[A-Z]", line)]
    if set(names) != set(EXPECTED):
        fail("demonstrations are %s" % names)
    checker()
    about_oneself()
    results = []
    threads = [threading.Thread(target=demo, args=(n, results)) for n in names]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if len(results) != len(names):
        fail("only %s were looked at to the end" % results)
    if not failed:
        print("ok: %s" % " ".join(sorted(results)))
    return 1 if failed else 0


sys.exit(main())
