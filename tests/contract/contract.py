#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does a JSON document keep the contract: every key, type and word of the two schemas that others
rely on? More keys are allowed, absent facts too, but never a null, a NaN, or a number out of its
range.

usage: contract.py FILE...      prints what is wrong; ends with 1 when anything is"""
import json
import re
import sys

INT, BYTES, SECONDS, SHARE, TEXT, BOOL = "int", "bytes", "seconds", "share", "text", "bool"
CLASSES = {
    "deadlock": True, "lock-self": True, "lock-orphaned": True, "lock-after-fork": True, "no-waker": True,
    "collective-missing-rank": True, "collective-cycle": True, "collective-mismatch": True,
    "peer-dead": True, "peer-silent": True, "gpu-kernel-stuck": True, "gpu-wait-unsignaled": True,
    "gpu-host-callback": True, "oom-swallowed": True, "pipe-full": True, "write-blocked": True,
    "read-blocked": True, "file-lock": True, "stopped": True, "implicit-sync": True, "spin-wait": True,
    "resource-exhausted": True, "driver-blocked": True, "busy-cpu": False, "busy-gpu": False,
    "log-buffered": False, "idle": False, "progressing": False, "unknown": None}
LONGEST_AGE = 100 * 365.25 * 86400  # an age beyond that is a clock misread


class Words:
    """One of these."""

    def __init__(self, words, partly=False):
        self.words = set(words.split())
        self.partly = partly


class Opt:
    """May be absent."""

    def __init__(self, kind):
        self.kind = kind


class Map:
    """An object with any keys."""


FRAME = {"module": Opt(TEXT), "symbol": Opt(TEXT), "offset": Opt(INT), "file": Opt(TEXT),
         "line": Opt(INT)}
PYFRAME = {"function": Opt(TEXT), "file": Opt(TEXT), "line": Opt(INT)}
FAILURE = {"at_s": Opt(SECONDS), "tid": INT, "function": Opt(TEXT), "asked": Opt(BYTES),
           "free": Opt(BYTES), "short_by": Opt(BYTES), "recovered": Opt(BOOL),
           "stack": [FRAME], "python_stack": [PYFRAME]}
OTHERS = [{"pid": INT, "bytes": BYTES}]

PROCESS = {
    "pid": INT, "rank": Opt(INT), "command": Opt(TEXT), "age_s": Opt(SECONDS), "recorded": BOOL,
    "sources": [TEXT], "missing": [TEXT],
    "threads": [{
        "tid": INT, "name": Opt(TEXT), "state": Opt(Words("R S D T t Z X I K W P")),
        "cpu_share": Opt(SHARE),
        "wait": Opt({
            "kind": Words("futex gil join cuda nccl read write sync poll accept connect child file-lock "
                          "sleep signal spin stopped other"),
            "object": Opt(TEXT), "since_s": Opt(SECONDS), "call": Opt(TEXT), "args": Opt(Map())}),
        "native_stack": [FRAME], "python_stack": [PYFRAME], "kernel_stack": [TEXT]}],
    "devices": [{
        "index": Opt(INT), "uuid": Opt(TEXT), "total": Opt(BYTES), "free": Opt(BYTES),
        "own": Opt(BYTES), "peak": Opt(BYTES), "least_free": Opt(BYTES), "utilization": Opt(SHARE),
        "power_w": Opt(SHARE), "other_processes": OTHERS,
        "failures": [dict(FAILURE, age_s=Opt(SECONDS))]}],
    "streams": [{"device": Opt(INT), "stream": TEXT, "enqueued": Opt(INT), "completed": Opt(INT),
                 "running": Opt(TEXT)}],
    "collectives": [{"comm": Opt(TEXT), "rank": Opt(INT), "size": Opt(INT), "sequence": Opt(INT),
                     "op": Opt(TEXT), "count": Opt(INT), "type": Opt(TEXT),
                     "state": Words("enqueued running done")}],
    "files": [{"fd": INT, "path": Opt(TEXT), "kind": Opt(TEXT), "written_bytes": Opt(BYTES),
               "last_write_age_s": Opt(SECONDS), "user_buffered_bytes": Opt(BYTES),
               "dirty_bytes": Opt(BYTES)}],
    "children": [INT],
    "peers": [{"comm": Opt(TEXT), "rank": Opt(INT), "host": Opt(TEXT), "pid": Opt(INT),
               "start": Opt(INT), "boot": Opt(TEXT), "alive": Opt(BOOL)}]}

SNAPSHOT = {
    "schema": Words("waitgraph/1"), "host": Opt(TEXT), "taken_at": TEXT, "processes": [PROCESS],
    "nodes": [{"id": TEXT, "kind": Words("thread lock event stream collective file pipe socket process "
                                         "file-lock gil"), "label": TEXT}],
    "edges": [{"from": TEXT, "to": TEXT, "kind": Words(
        "waits-for held-by enqueued-on runs written-by read-by member child-of woken-by"),
        "since_s": Opt(SECONDS), "evidence": TEXT, "certain": BOOL}],
    "verdict": {
        "class": Words(" ".join(CLASSES)), "confidence": Words("certain likely guess"),
        "summary": TEXT, "phase": Opt(Words("startup running teardown")), "not_established": [TEXT],
        "culprit": Opt({"pid": Opt(INT), "tid": Opt(INT), "rank": Opt(INT), "thread_name": Opt(TEXT),
                        "comm": Opt(TEXT), "what": TEXT}),
        "chain": [TEXT], "advice": Opt(TEXT)}}

MEMORY = {
    "schema": Words("waitgraph-mem/1"), "traces": [{
        "path": TEXT, "host": Opt(TEXT), "pid": INT, "rank": Opt(INT), "command": Opt(TEXT),
        "complete": BOOL, "events": INT, "lost_events": INT,
        "devices": [{
            "index": INT, "uuid": Opt(TEXT), "total": Opt(BYTES), "peak_own": BYTES,
            "peak_at_s": Opt(SECONDS), "least_free": Opt(BYTES), "least_free_at_s": Opt(SECONDS),
            "own_at_end": BYTES, "live_at_end": BYTES, "allocations": INT, "frees": INT,
            "reserved_at_peak": Opt(BYTES), "context_and_modules": Opt(BYTES), "other_processes": OTHERS,
            "failures": [FAILURE],
            "by_library": [{"library": TEXT, "live_at_peak": BYTES, "live_at_end": BYTES,
                            "allocations": INT, "frees": INT}],
            "by_site": [{"site": TEXT, "library": Opt(TEXT), "stack": [FRAME], "live_at_peak": BYTES,
                         "live_at_end": BYTES, "allocations": INT, "frees": INT}],
            "growing": [{"site": TEXT, "bytes_per_s": SHARE, "live_at_end": BYTES}],
            "fragmentation": Opt({"free": Opt(BYTES), "largest_possible": Opt(BYTES),
                                  "reserved_unused": Opt(BYTES),
                                  "address_space_reserved": Opt(BYTES)})}],
        "host_pinned": {"peak": BYTES, "live_at_end": BYTES}}]}


def whole(value):
    return isinstance(value, int) and not isinstance(value, bool)


def scalar(kind, value):
    """What is wrong with a value of this kind; None: nothing."""
    if kind == TEXT:
        if not isinstance(value, str):
            return "no text"
        return "control characters" if re.search(r"[\x00-\x08\x0b-\x1f\x7f]", value) else None
    if kind == BOOL:
        return None if isinstance(value, bool) else "no true or false"
    if kind == INT:
        return None if whole(value) else "no whole number"
    if kind == BYTES:
        return None if whole(value) and 0 <= value < 1 << 62 else "no number of bytes"
    if not whole(value) and not isinstance(value, float):
        return "no number"
    if value != value or value in (float("inf"), float("-inf")) or value < 0:
        return "not a plausible number"
    return "not a plausible age" if kind == SECONDS and value > LONGEST_AGE else None


def check(kind, value, where, found):
    if isinstance(kind, Opt):
        kind = kind.kind
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            found.append("%s: no object" % where)
            return
        for key, sub in kind.items():
            if key in value:
                check(sub, value[key], "%s.%s" % (where, key), found)
            elif not isinstance(sub, Opt):
                found.append("%s.%s: absent" % (where, key))
    elif isinstance(kind, list):
        if not isinstance(value, list):
            found.append("%s: no list" % where)
            return
        for i, x in enumerate(value):
            check(kind[0], x, "%s[%d]" % (where, i), found)
    elif isinstance(kind, Words):
        if value not in kind.words:
            found.append("%s: %r is none of its words" % (where, value))
    elif isinstance(kind, Map):
        if not isinstance(value, dict):
            found.append("%s: no object" % where)
    else:
        wrong = scalar(kind, value)
        if wrong:
            found.append("%s: %s: %r" % (where, wrong, value))


def nulls(value, where, found):
    """An absent fact is absent: only verdict.hung may be null."""
    if value is None and where != "$.verdict.hung":
        found.append("%s: null" % where)
    for key, x in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(
            value, list) else ():
        nulls(x, "%s.%s" % (where, key), found)


def snapshot_sense(doc, found):
    v = doc.get("verdict", {})
    if "hung" not in v:
        found.append("$.verdict.hung: absent")
    elif v.get("class") in CLASSES and v["class"] != "unknown" and v["hung"] is not CLASSES[v["class"]]:
        found.append("$.verdict: class %s and hung %r" % (v["class"], v["hung"]))
    if not v.get("summary"):
        found.append("$.verdict.summary: empty")
    if v.get("class") == "unknown" and not v.get("not_established"):
        found.append("$.verdict: unknown, and names no missing fact")
    ids = [n.get("id") for n in doc.get("nodes", [])]
    if len(ids) != len(set(ids)):
        found.append("$.nodes: an id stands twice")
    known = set(ids)
    for i, e in enumerate(doc.get("edges", [])):
        for end in ("from", "to"):
            if e.get(end) not in known:
                found.append("$.edges[%d].%s: no such node: %r" % (i, end, e.get(end)))
    when = doc.get("taken_at", "")
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", when):
        found.append("$.taken_at: no RFC 3339 time: %r" % when)


def memory_sense(doc, found):
    for t, trace in enumerate(doc.get("traces", [])):
        for d, x in enumerate(trace.get("devices", [])):
            where = "$.traces[%d].devices[%d]" % (t, d)
            if x.get("own_at_end", 0) > x.get("peak_own", 0):
                found.append("%s: more at the end than at the peak" % where)
            for f in x.get("failures", []):
                if all(k in f for k in ("asked", "free", "short_by")) and \
                        f["short_by"] != max(0, f["asked"] - f["free"]):
                    found.append("%s: short by %d of %d with %d free" % (
                        where, f["short_by"], f["asked"], f["free"]))


def problems(doc):
    """All that is wrong with a document of either schema; an empty list: nothing."""
    found = []
    if not isinstance(doc, dict):
        return ["no object"]
    memory = doc.get("schema") == "waitgraph-mem/1"
    check(MEMORY if memory else SNAPSHOT, doc, "$", found)
    nulls(doc, "$", found)
    if not found or isinstance(doc.get("processes"), list):
        (memory_sense if memory else snapshot_sense)(doc, found)
    return found


def strict(text):
    """One document and nothing else, without what JSON does not have and without a key twice."""

    def no_constant(word):
        raise ValueError("%s is no JSON" % word)

    def pairs(items):
        names = [k for k, _ in items]
        if len(names) != len(set(names)):
            raise ValueError("a key stands twice: %s" % sorted(n for n in names if names.count(n) > 1)[0])
        return dict(items)
    return json.loads(text, parse_constant=no_constant, object_pairs_hook=pairs)


def main():
    bad = 0
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            found = problems(strict(f.read()))
        for line in found[:20]:
            print("%s: %s" % (path, line))
        bad += bool(found)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
