# SPDX-License-Identifier: Apache-2.0
"""A training process that blocks outside of CUDA: in a checkpoint's write, or inside the GPU's kernel driver.

  storage.py pipe      torch.save into a FIFO whose reader is stopped
  storage.py fuse      torch.save into a file whose FUSE daemon lives and does not answer
  storage.py driver    pins memory that is mapped from such a file: the driver waits for the pages

READY_FILE gets the pid of the reader or daemon just before the call that blocks.
"""
import ctypes, mmap, os, signal, subprocess, sys, time
import torch

kind = sys.argv[1]
work = os.path.dirname(os.environ["READY_FILE"])
model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
optimizer = torch.optim.Adam(model.parameters())
for _ in range(5):
    model(torch.randn(64, 2048, device="cuda")).square().mean().backward()
    optimizer.step()
torch.cuda.synchronize()


def ready(pid):
    with open(os.environ["READY_FILE"] + ".tmp", "w") as f:
        f.write(str(pid))
    os.rename(os.environ["READY_FILE"] + ".tmp", os.environ["READY_FILE"])


def save_checkpoint(path):
    with open(path, "r+b" if kind == "fuse" else "wb", buffering=0) as f:
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, f)


if kind == "pipe":
    fifo = work + "/checkpoint"
    os.mkfifo(fifo)
    reader = subprocess.Popen(["cat", fifo], stdout=subprocess.DEVNULL)
    with open(fifo, "wb"):  # until the reader has it open too
        time.sleep(0.2)
        keep = os.open(fifo, os.O_WRONLY)
    os.kill(reader.pid, signal.SIGSTOP)
    ready(reader.pid)
    save_checkpoint(fifo)
else:
    point, stop = work + "/mnt", work + "/stop"
    os.mkdir(point)
    daemon = subprocess.Popen([sys.executable, os.path.join(os.path.dirname(__file__), "fuse_file.py"), point, str(1 << 30), stop],
                              env={k: v for k, v in os.environ.items() if k != "LD_PRELOAD"})
    while not os.path.exists(point + "/file"):
        if daemon.poll() is not None:
            sys.exit("SKIP: no FUSE mount here")
        time.sleep(0.05)
    open(stop, "w").close()
    if kind == "fuse":
        ready(daemon.pid)
        save_checkpoint(point + "/file")
    else:
        f = open(point + "/file", "r+b")
        m = mmap.mmap(f.fileno(), 64 << 20)
        address = ctypes.addressof(ctypes.c_char.from_buffer(m))
        ready(daemon.pid)
        torch.cuda.cudart().cudaHostRegister(address, 64 << 20, 0)
