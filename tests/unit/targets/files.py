# SPDX-License-Identifier: Apache-2.0
"""files.py DIR: file objects with a known number of bytes that were not written."""
import os
import sys
import threading
import time

where = sys.argv[1]
text = open(os.path.join(where, "text"), "w")
text.write("x" * 1000)
binary = open(os.path.join(where, "binary"), "wb")
binary.write(b"y" * 77)
both = open(os.path.join(where, "both"), "w+b")
both.write(b"z" * 33)


def thread():
    local = open(os.path.join(where, "local"), "w", buffering=1 << 20)
    local.write("k" * 20000)
    empty = open(os.path.join(where, "empty"), "w")  # noqa: F841
    time.sleep(100000)


threading.Thread(target=thread, daemon=True).start()
time.sleep(0.2)
print("ready", flush=True)
sys.stdout.write("é" * 50)
time.sleep(100000)
