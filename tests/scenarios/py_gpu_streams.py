"""
section: gpu-kernel, cuda-driver, host-lock (GIL_LOCK_INVERSION), oom
story: one Python process with a GPU stands still, or seems to
proof: what each thread calls, and which lock it holds meanwhile, is written in the function of the case's name
case: value_behind_lock class=deadlock hung=true needs=simgpu settle=4
case: value_from_thread class=progressing|busy-gpu|busy-cpu|idle hung=false needs=simgpu settle=4
case: callback_needs_gil class=deadlock hung=true needs=simgpu settle=3
case: callback_takes_gil class=progressing|busy-gpu|busy-cpu|idle hung=false needs=simgpu settle=3
case: failed_then_queue class=oom-swallowed hung=true culprit=tid needs=simgpu settle=4 "says=170 MiB|GPU 0"
case: failed_others_work class=oom-swallowed hung=true culprit=tid needs=simgpu settle=4
case: failed_others_deliver class=progressing|busy-gpu|busy-cpu|idle hung=false needs=simgpu settle=4
case: failed_and_got_it class=no-waker hung=true needs=simgpu settle=4
"""
import gpu_ctypes as gpu
import ctypes, queue, threading, time
from gpu_ctypes import MIB, launch, stream, sync
from scenario import case, culprit_thread, ready


def warmed_up():
    gpu.init()
    s, forward = stream(), gpu.kernel("sleep_us_1000_forward")
    for _ in range(20):
        launch(forward, s)
        sync(s)
    return s, forward


def value_behind_lock():
    """Who would write the value waits for a lock, whose owner synchronises with the stream that waits for it."""
    s, forward = warmed_up()
    p, t, lock, held = gpu.word(), stream(), threading.RLock(), threading.Event()

    def signaller():
        gpu.use()
        held.wait()
        with lock:
            gpu.write_value(t, p, 1)

    gpu.spawn(signaller)
    gpu.wait_value(s, p, 1)
    launch(forward, s)
    with lock:
        held.set()
        time.sleep(0.2)
        ready()
        sync(s)


def value_from_thread():
    s, forward = warmed_up()
    p, t = gpu.word(), stream()

    def signaller():
        gpu.use()
        for i in range(1, 1 << 30):
            time.sleep(0.05)
            gpu.write_value(t, p, i)

    gpu.spawn(signaller)
    ready()
    for i in range(1, 1 << 30):
        gpu.wait_value(s, p, i)
        launch(forward, s)
        sync(s)


def callback_needs_gil():
    """Called without giving up the GIL, the synchronisation waits for a host function in Python."""
    s, _ = warmed_up()
    launch(gpu.kernel("sleep_us_300000_first"), s)
    gpu.host_function(s, lambda: sum(range(10)))
    ready()
    ctypes.PyDLL("libcuda.so.1").cuStreamSynchronize(s)


def callback_takes_gil():
    s, forward = warmed_up()
    ready()
    while True:
        launch(forward, s)
        gpu.host_function(s, lambda: time.sleep(0.01))
        sync(s)
        gpu.keep.clear()


def fails():
    gpu.use()
    culprit_thread()
    try:
        gpu.alloc(gpu.free_bytes() + 170 * MIB)
    except gpu.OutOfMemory:
        return
    raise SystemExit(3)


def failed_then_queue():
    """The thread that failed takes its next order from a queue, and main joins that thread."""
    warmed_up()

    def worker():
        fails()
        queue.Queue().get()

    t = gpu.spawn(worker)
    ready()
    t.join()


def failed_others_work():
    """Another thread keeps the GPU busy; the one whose result main waits for has failed and ended."""
    s, forward = warmed_up()
    results = queue.Queue()

    def prefetches():
        gpu.use()
        while True:
            launch(forward, s)
            sync(s)
            if case == "failed_others_deliver":
                results.put(1)
                time.sleep(0.05)

    gpu.spawn(prefetches)
    gpu.spawn(fails)
    ready()
    while results.get():
        pass


def failed_and_got_it():
    warmed_up()
    big = gpu.alloc(4096 * MIB)
    n = gpu.free_bytes() + MIB
    try:
        gpu.alloc(n)
    except gpu.OutOfMemory:
        gpu.check(gpu.cuda.cuMemFree_v2(big))
        gpu.alloc(n)
    ready()
    queue.Queue().get()


{"failed_others_deliver": failed_others_work}.get(case, globals().get(case))()
