#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants each scenario, asks `waitgraph why`, and compares the answer with the scenario's truth.

A scenario is one source file (C, C++ or Python) whose first comment holds `key: value` lines:

  story:   what a user would see
  proof:   how the truth is known without our tool
  case:    NAME [key=value ...]      one line for each planted case; the near twins are cases too
           class=A|B     accepted classes           hung=true|false|null|any (any: where two classes fit)
           culprit=tid|pid|none                     compared with what the program wrote itself
           settle=S      seconds between READY and the question (default 2)
           args="..."    given to the program       user=CLASS|...  accepted without BPF and root
           needs=a,b     simgpu nccl root fuse python3.12 cgroup1 ... else skipped, with the reason
           env=A=B,C=D   ask=pid|job|dir            recorder=yes|no (default: yes with simgpu)
           says=WORD     must occur in summary or chain (facts a user needs, never our wording)
           phase=P       the verdict's phase

The program writes lines to the file named by SCENARIO_OUT: `ready`, `culprit_tid N`, `culprit_pid N`,
`ask_pid N` (the pid to ask about, when it is not the one that was started; may repeat for a job),
`cleanup_pid N`, `cleanup COMMAND` (run after the kill, before the wait) and `remove COMMAND` (run last).
With --user everything runs as an ordinary user (nobody) and without BPF: there `unknown` is right
too when a fact is out of reach and the answer names it, but a wrong class never is.
With --daemon a waitgraphd of root's runs beside, and everybody asks it; with --user too, nobody asks.
"""
import argparse, atexit, concurrent.futures, hashlib, json, os, re, shlex, shutil, signal, subprocess, sys
import tempfile, time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../contract"))
import contract  # noqa: E402
NOBODY = 65534


def parse(path):
    """The first comment of the file as a list of cases."""
    text = open(path, encoding="utf-8").read(8192)
    if path.endswith(".py"):
        m = re.search(r'"""(.*?)"""', text, re.S)
    else:
        m = re.search(r"/\*\s*scenario(.*?)\*/", text, re.S)
    if not m:
        return []
    info, cases, last = {}, [], None
    for line in m.group(1).splitlines():
        line = line.strip().lstrip("*").strip()
        k = re.match(r"(story|proof|case|section):\s*(.*)", line)
        if k:
            last = k.group(1)
            if last == "case":
                words = shlex.split(k.group(2))
                case = dict(w.split("=", 1) for w in words[1:])
                case["name"] = words[0]
                cases.append(case)
            else:
                info[last] = k.group(2)
        elif last == "case" and line:
            cases[-1].update(dict(w.split("=", 1) for w in shlex.split(line)))
        elif last and line:
            info[last] += " " + line
    base = os.path.splitext(os.path.basename(path))[0]
    for c in cases:
        c.update(file=path, base=base, id=f"{base}/{c['name']}", **{k: info.get(k, "") for k in ("story", "proof")})
        if not info.get("proof"):
            raise SystemExit(f"{path}: no proof: how is the truth known?")
    return cases


def why_not(case, opt):
    """The reason this case cannot run here, or None."""
    for need in filter(None, case.get("needs", "").split(",")):
        if need == "root" and (os.geteuid() != 0 or opt.user):
            return "needs root"
        if need in ("simgpu", "nccl") and not os.path.exists(f"{opt.build}/lib/simgpu/libcuda.so.1"):
            return "the simulated GPU is not built"
        if need == "fuse" and not os.path.exists("/dev/fuse"):
            return "no /dev/fuse"
        if need.startswith("python") and not find_python(need):
            return f"no {need}"
        if need == "daemon" and not opt.daemon:
            return "needs waitgraphd (--daemon)"
        if need == "bpf" and ((opt.user and not opt.daemon) or not os.path.exists("/sys/kernel/btf/vmlinux")):
            return "needs BPF"
        if need == "freezer" and not os.path.isdir("/sys/fs/cgroup/freezer"):
            return "no freezer cgroup"
        if need.startswith("cgroup:") and not os.access(f"/sys/fs/cgroup/{need[7:]}/cgroup.procs", os.W_OK):
            return f"no {need[7:]} cgroup of our own"
        if need == "loop" and not os.path.exists("/dev/loop-control"):
            return "no loop devices"
        if need.startswith("tool:") and not shutil.which(need[5:]):
            return f"no {need[5:]}"
    if case["file"].endswith((".c", ".cc")) and not os.path.exists(binary(case, opt)):
        return "not built here"
    return None


def find_python(name):
    for d in os.environ.get("PATH", "").split(":") + ["/usr/bin"]:
        p = os.path.join(d, name)
        if "shims" not in d and os.path.exists(p) and os.path.realpath(p).endswith(name):
            return p
    home = os.path.expanduser("~/.pyenv/versions")
    if os.path.isdir(home):
        for v in sorted(os.listdir(home)):
            if v.startswith(name[6:] + "."):
                return f"{home}/{v}/bin/{name}"
    return None


def binary(case, opt):
    return f"{opt.build}/lib/scenarios/{case['base']}"


def as_user(argv, opt):
    if opt.user and os.geteuid() == 0:
        return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"] + argv
    return argv


def tree(pid):
    """pid and all its descendants, for the final kill."""
    out = [pid]
    try:
        for t in os.listdir(f"/proc/{pid}/task"):
            for c in open(f"/proc/{pid}/task/{t}/children").read().split():
                out += tree(int(c))
    except OSError:
        pass
    return out


def read_out(path):
    facts = {}
    try:
        for line in open(path):
            w = line.split()
            if w:
                facts.setdefault(w[0], []).append(" ".join(w[1:]))
    except OSError:
        pass
    return facts


def run(case, opt):
    reason = why_not(case, opt)
    if reason:
        return case, "skip", reason, None
    work = tempfile.mkdtemp(prefix="wg-scenario-")
    os.chmod(work, 0o777)
    out, state = f"{work}/out", f"{work}/state"
    os.makedirs(state, mode=0o777)
    os.chmod(state, 0o777 if opt.user else 0o700)
    needs = case.get("needs", "").split(",")
    # Nothing of the shell that started us (PYTHONUNBUFFERED, LD_PRELOAD, RANK): a case that wants it says so.
    env = {k: v for k, v in os.environ.items() if re.match(r"(PATH|HOME|LANG|LC_\w+|USER|TMPDIR|[AULT]SAN_OPTIONS)$", k)}
    env.update(WAITGRAPH_SOCKET=opt.socket, SCENARIO_OUT=out, SCENARIO_DIR=work, WAITGRAPH_DIR=state,
               SIMGPU_SESSION=os.path.basename(work), PYTHONDONTWRITEBYTECODE="1")
    gpu = "simgpu" in needs or "nccl" in needs
    if gpu:
        env["LD_LIBRARY_PATH"] = f"{opt.build}/lib/simgpu"
    for kv in filter(None, case.get("env", "").split(",")):
        k, v = kv.split("=", 1)
        env[k] = v
    argv = [binary(case, opt)]
    if case["file"].endswith(".py"):
        python = next((n for n in needs if n.startswith("python")), None)
        argv = [find_python(python) if python else "/usr/bin/python3", case["file"]]
    argv += [case["name"]] if "args" not in case else shlex.split(case["args"])
    if case.get("recorder", "yes" if gpu else "no") == "yes":
        argv = [f"{opt.build}/bin/waitgraph", "run", "--"] + argv
    log = open(f"{work}/log", "w+")
    begun = time.time()
    proc = subprocess.Popen(as_user(argv, opt), env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                            start_new_session=True, cwd=work)
    try:
        limit = begun + float(case.get("limit", 30))
        while "ready" not in read_out(out):
            if proc.poll() is not None and "ready" not in read_out(out):
                log.seek(0)
                return case, "broken", f"ended with {proc.returncode} before READY: {log.read()[-400:]}", None
            if time.time() > limit:
                log.seek(0)
                return case, "broken", f"not READY in time: {log.read()[-400:]}", None
            time.sleep(0.05)
        time.sleep(float(case.get("settle", 2)) * opt.patience)
        facts = read_out(out)
        if case.get("ask") == "dir":
            ask = [state]
        else:
            ask = facts.get("ask_pid") or [str(proc.pid)]
        cmd = [f"{opt.build}/bin/waitgraph", "why", "--json"] + (["--no-bpf"] if opt.user and not opt.daemon else []) + ask
        t0 = time.time()
        r = subprocess.run(as_user(cmd, opt), env=dict(env, LD_LIBRARY_PATH=""), capture_output=True, timeout=60)
        took = time.time() - t0
        try:
            doc = json.loads(r.stdout)
        except ValueError:
            return case, "wrong", f"no JSON (exit {r.returncode}): {r.stderr.decode()[-300:]}", None
        if opt.keep_facts:
            os.makedirs(opt.keep_facts, exist_ok=True)
            with open(f"{opt.keep_facts}/{case['id'].replace('/', '.')}.json", "w") as f:
                f.write(r.stdout.decode())
        problems = judge(case, doc, r.returncode, read_out(out), opt) + contract.problems(doc)[:5]
        if opt.fixtures and not problems and doc["verdict"]["class"] != "unknown":
            keep_fixture(case, r.stdout.decode(), read_out(out), proc.pid, opt)
        v = doc["verdict"]
        said = f"{v['class']} hung={json.dumps(v['hung'])} {v['confidence']}: {v['summary']} [{took:.2f} s]"
        return case, "wrong" if problems else "right", ("; ".join(problems) + " <- " if problems else "") + said, doc
    except subprocess.TimeoutExpired:
        return case, "wrong", "waitgraph why did not answer within 60 s", None
    finally:
        for pid in set(tree(proc.pid)):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            os.killpg(proc.pid, signal.SIGKILL)
        except OSError:
            pass
        for pid in read_out(out).get("cleanup_pid", []):
            try:
                os.kill(int(pid), signal.SIGKILL)
            except OSError:
                pass
        for cmd in read_out(out).get("cleanup", []):
            subprocess.run(cmd, shell=True, stderr=subprocess.DEVNULL)
        proc.wait()
        for cmd in read_out(out).get("remove", []):
            subprocess.run(cmd, shell=True, stderr=subprocess.DEVNULL)
        for cmd in read_out(out).get("cleanup_umount", []):
            subprocess.run(["umount", "-l", cmd], stderr=subprocess.DEVNULL)
        log.close()
        shutil.rmtree(work, ignore_errors=True)


def keep_fixture(case, text, facts, started, opt):
    """One line for tests/unit/test_fixtures.c: the truth, and the facts without what the graph made of them."""
    for name, instead in ((opt.build, "/build"), (HERE, "/src/tests/scenarios"), (os.path.expanduser("~"), "/home/user"),
                          (f'"{os.uname().nodename}"', '"host"')):
        text = text.replace(name, instead)
    doc = json.loads(text)
    for made in ("verdict", "nodes", "edges"):
        doc.pop(made, None)
    for p in doc["processes"]:
        if "path" in p.get("cgroup", {}):
            p["cgroup"]["path"] = "/job"
        if p.get("sid") != started and p["pid"] not in tree(started) and p.get("ppid") != 1 or p["pid"] == 1:
            p["command"], p["env"] = "other", []  # of whoever runs the tests: nobody's business
            p.pop("exe", None)
            for t in [p, *p.get("threads", [])] if p["pid"] == 1 else []:
                t.update({k: "init" for k in ("comm", "name") if k in t})
        p["env"] = [e for e in p.get("env", []) if re.match("WAITGRAPH|SIMGPU|CUDA_|NCCL|RANK|PYTHON|LD_|OMP", e["name"])]
    line = {"id": case["id"], "class": case["class"].split("|"), "hung": case.get("hung", "true"), "facts": doc}
    for key in ("tid", "pid"):
        if case.get("culprit") == key:
            line["culprit_" + key] = [int(x) for x in facts.get(f"culprit_{key}", [])]
    os.makedirs(opt.fixtures, exist_ok=True)
    with open(f"{opt.fixtures}/{case['id'].replace('/', '.')}.json", "w") as f:
        json.dump(line, f, separators=(",", ":"), sort_keys=True)


def pack_fixtures(directory):
    """All lines of one scenario file into one compressed file; the loose ones go."""
    files = {}
    for name in sorted(os.listdir(directory)):
        if name.endswith(".json"):
            files.setdefault(name.split(".")[0], []).append(name)
    for base, names in files.items():
        text = "".join(open(f"{directory}/{n}").read() + "\n" for n in names)
        data = text.encode()
        subprocess.run(["zstd", "-19", "-q", "-f", f"--stream-size={len(data)}", "-o", f"{directory}/{base}.jsonl.zst"],
                       input=data, check=True)
        for n in names:
            os.unlink(f"{directory}/{n}")


def judge(case, doc, code, facts, opt):
    """What is wrong with the answer."""
    v, bad = doc["verdict"], []
    accepted = set(case["class"].split("|"))
    if opt.user:
        accepted |= set(filter(None, case.get("user", "").split("|")))
        if v["class"] == "unknown":
            named = any(p.get("missing") for p in doc["processes"]) or v.get("not_established")
            return [] if named else ["unknown, and no missing fact is named"]
    if v["class"] not in accepted:
        return [f"class {v['class']}, not {case['class']}"]
    want = {"true": True, "false": False, "null": None, "any": v["hung"]}[case.get("hung", "true")]
    if v["hung"] is not want and not (v["class"] == "unknown" and case["class"] != "unknown"):
        bad.append(f"hung {json.dumps(v['hung'])}")
    expect = {True: 11 if v["class"] == "unknown" else 10, False: 0, None: 12}[v["hung"]]
    if code != expect:
        bad.append(f"exit code {code}, not {expect}")
    culprit = v.get("culprit") or {}
    for key in ("tid", "pid"):
        if case.get("culprit") == key:
            want = [int(x) for x in facts.get(f"culprit_{key}", [])]
            if not want:
                bad.append(f"the program named no culprit_{key}")
            elif culprit.get(key) not in want:
                bad.append(f"culprit {key} {culprit.get(key)}, not {want}")
    if case.get("phase") and v.get("phase") != case["phase"]:
        bad.append(f"phase {v.get('phase')}, not {case['phase']}")
    for word in filter(None, case.get("says", "").split("|")):
        text = " ".join([v["summary"]] + v.get("chain", []))
        if word.lower() not in text.lower():
            bad.append(f"does not say '{word}'")
    return bad


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--build", default=os.path.join(HERE, "../../build"))
    ap.add_argument("--user", action="store_true", help="as an ordinary user, without BPF")
    ap.add_argument("--daemon", action="store_true", help="with a waitgraphd beside (needs root and BPF)")
    ap.add_argument("--part", metavar="K/N", help="only this part of the cases, by a hash that changes daily")
    ap.add_argument("-j", type=int, default=6)
    ap.add_argument("--patience", type=float, default=1.0, help="multiplies every settle time")
    ap.add_argument("--keep-facts", metavar="DIR", help="save each answer's JSON there")
    ap.add_argument("--fixtures", metavar="DIR", help="save the facts of right answers there, for tests/unit/fixtures")
    ap.add_argument("-v", action="store_true", help="print right answers too")
    ap.add_argument("--once", action="store_true", help="do not ask wrong ones again alone")
    ap.add_argument("names", nargs="*", help="ids or parts of them")
    opt = ap.parse_args()
    opt.build = os.path.abspath(opt.build)
    opt.socket = "/nonexistent"  # never the machine's own waitgraphd
    cases = []
    for name in sorted(os.listdir(HERE)):
        if name.endswith((".c", ".cc", ".py")) and name not in ("run.py", "scenario.py", "healthy.py", "observed.py"):
            cases += parse(os.path.join(HERE, name))
    if opt.names:
        cases = [c for c in cases if any(n in c["id"] for n in opt.names)]
    if opt.part:
        k, n = map(int, opt.part.split("/"))
        day = time.strftime("%Y-%m-%d")
        cases = [c for c in cases if int(hashlib.sha256((day + c["id"]).encode()).hexdigest(), 16) % n == k % n]
    if not cases:
        raise SystemExit("no such scenario")
    if opt.daemon:
        why = start_daemon(opt)
        if why:
            print(f"no waitgraphd here: {why}")
            return 77
    known = known_wrong()
    count = {"right": 0, "wrong": 0, "skip": 0, "broken": 0, "known": 0}
    again = []
    lone = [c for c in cases if c.get("alone")]  # those that load the machine or freeze things
    with concurrent.futures.ThreadPoolExecutor(opt.j) as pool:
        futures = [pool.submit(run, c, opt) for c in cases if not c.get("alone")]
        results = (f.result() for f in futures)
        for group in (results, (run(c, opt) for c in lone)):
            for case, how, text, _doc in group:
                if how in ("wrong", "broken") and not opt.once and case["id"] not in known:
                    print(f"again  {case['id']}: {text}", flush=True)
                    again.append(case)
                    continue
                tally(case, how, text, count, known, opt)
    # Asked once more with the machine to itself: a truth that holds is told twice, load passes.
    # (settle times are lower bounds of how long the planted state has stood, not of its truth)
    for case in again:
        _, how, text, _doc = run(case, opt)
        tally(case, how, text, count, known, opt)
    if opt.daemon and opt.fallen():
        print(f"waitgraphd ended with {opt.fallen()}")
        count["broken"] += 1
    if opt.fixtures:
        pack_fixtures(opt.fixtures)
    total = count["right"] + count["wrong"] + count["broken"] + count["known"]
    print(f"{count['right']} of {total} right, {count['wrong']} wrong, {count['known']} known to be wrong, "
          f"{count['broken']} broken, {len(again)} asked twice, {count['skip']} skipped"
          + (" (as an ordinary user, " + ("asking" if opt.daemon else "without BPF") + ")" if opt.user else "")
          + (" (beside waitgraphd)" if opt.daemon else ""))
    return 1 if count["wrong"] or count["broken"] or not total else 0


def start_daemon(opt):
    """waitgraphd on a socket of our own until we end. The reason when it cannot be had."""
    if os.geteuid() != 0 or not os.path.exists("/sys/kernel/btf/vmlinux"):
        return "not root, or a kernel without BTF"
    where = tempfile.mkdtemp(prefix="wg-observer-")
    os.chmod(where, 0o755)
    opt.socket = f"{where}/sock"
    proc = subprocess.Popen([f"{opt.build}/bin/waitgraphd", "--socket", opt.socket],
                            stderr=open(f"{where}/log", "w"), preexec_fn=os.setpgrp)
    for _ in range(400):
        if os.path.exists(opt.socket) or proc.poll() is not None:
            break
        time.sleep(0.05)

    def stop():
        proc.terminate()
        proc.wait()
        shutil.rmtree(where, ignore_errors=True)

    atexit.register(stop)
    opt.fallen = lambda: None if proc.poll() is None else f"{proc.returncode}: " + open(f"{where}/log").read()[-500:]
    return opt.fallen()


def known_wrong():
    """Cases that the tool is known to get wrong: `id  reason` lines. They run, and count as not right."""
    out = {}
    path = os.path.join(HERE, "known_wrong.txt")
    if os.path.exists(path):
        for line in open(path, encoding="utf-8"):
            w = line.split("#")[0].split(None, 1)
            if w:
                out[w[0]] = w[1].strip() if len(w) > 1 else ""
    return out


def tally(case, how, text, count, known, opt):
    if how in ("wrong", "broken") and case["id"] in known:
        how = "known"
    count[how] += 1
    if how != "right" or opt.v:
        print(f"{how:6} {case['id']}: {text}", flush=True)
    elif case["id"] in known:
        print(f"right  {case['id']}: it stands in known_wrong.txt and is right here: {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
