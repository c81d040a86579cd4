# SPDX-License-Identifier: Apache-2.0
"""An allocation fails in a worker by a known margin; main waits on a queue. `retry`: it frees and goes on."""
import os, queue, sys, threading, time, torch

gradients, work = queue.Queue(), queue.Queue()
keep = []


def grow(margin):
    """Ask for exactly `margin` bytes more than the driver has free (whole 2 MiB pages)."""
    torch.cuda.empty_cache()
    free, _ = torch.cuda.mem_get_info()
    want = (free + margin) // (2 << 20) * (2 << 20)
    open(os.environ["READY_FILE"] + ".tmp", "w").write(str(want - free))
    return torch.empty(want, dtype=torch.uint8, device="cuda")


def worker():
    a = torch.randn(2048, 2048, device="cuda")
    for step in range(10**9):
        if step == 30:
            try:
                keep.append(grow(170 << 20))
            except torch.cuda.OutOfMemoryError:
                os.rename(os.environ["READY_FILE"] + ".tmp", os.environ["READY_FILE"])
                if sys.argv[1] == "fail":
                    return  # swallowed: nobody is told
                torch.cuda.empty_cache()
                keep.append(torch.empty(64 << 20, dtype=torch.uint8, device="cuda"))
        a = (a @ a).clamp(-1, 1)
        torch.cuda.synchronize()
        gradients.put(step)
        work.get()


threading.Thread(target=worker, name="grad-worker", daemon=True).start()
while True:
    step = gradients.get()
    print("step", step, flush=True)
    time.sleep(0.01)
    work.put(step)
