# SPDX-License-Identifier: Apache-2.0
"""frames.py under every CPython from 3.8 on that this machine has."""
import glob
import os
import shutil
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))
found = {}
names = ["/usr/bin/python3"] + [shutil.which("python3.%d" % m) or "" for m in range(8, 15)]
for root in (os.environ.get("PYENV_ROOT", ""), os.path.expanduser("~/.pyenv")):
    names += sorted(glob.glob(os.path.join(root, "versions", "3.*", "bin", "python3")))
for name in names + [sys.executable]:
    if not name or not os.access(name, os.X_OK):
        continue
    try:
        told = subprocess.run([name, "-c", "import sys; print(sys.implementation.name,"
                               "*sys.version_info[:2], sys.executable)"], text=True, timeout=30,
                              capture_output=True).stdout.split()
    except (OSError, subprocess.SubprocessError):
        continue
    if len(told) == 4 and told[0] == "cpython" and 8 <= int(told[2]) <= 14:
        found.setdefault((int(told[1]), int(told[2])), name)
failed = []
for version, name in sorted(found.items()):
    with tempfile.TemporaryDirectory() as directory:
        done = subprocess.run([name, os.path.join(here, "frames.py"), sys.argv[1], directory],
                              timeout=60)
        if done.returncode:
            failed.append(version)
print("%d interpreters, failed: %s" % (len(found), failed or "none"))
sys.exit(1 if failed or not found else 0)
