# SPDX-License-Identifier: Apache-2.0
# What the planted Python programs share (see scenario.h): how they tell their truth. No docstring
# with cases here: the runner passes this file over.
import os, sys, threading


def tell(line):
    with open(os.environ.get("SCENARIO_OUT", "/dev/stderr"), "a") as f:
        f.write(line + "\n")


def ready():
    tell("ready")


def culprit_thread():
    tell(f"culprit_tid {threading.get_native_id()}")


def compute():
    """Work without end, nice, so that what runs beside it is not starved."""
    os.nice(15)
    s = 1
    while True:
        s = (s * 31 + 7) % 1000003


case = sys.argv[1] if len(sys.argv) > 1 else ""
