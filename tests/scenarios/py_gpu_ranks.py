"""
section: collective (COLL_CROSS_GROUP_CYCLE, COLL_MISMATCH, COLL_MISSING_RANK), oom
story: Python ranks, each started by exec, stand in collectives or only poll for them
proof: what each rank calls is written in the function of the case's name; the simulated NCCL makes ranks meet or wait
case: pair_ring class=collective-cycle hung=true needs=nccl settle=5
case: pair_ring_in_order class=progressing|busy-gpu|busy-cpu|idle hung=false needs=nccl settle=4
case: split_missing class=collective-missing-rank hung=true culprit=pid needs=nccl settle=4 says=splits
case: split_halves class=progressing|busy-gpu|busy-cpu|idle hung=false needs=nccl settle=4
case: polls_event class=collective-missing-rank hung=true culprit=pid needs=nccl settle=4
case: polls_event_slow_rank class=progressing|busy-gpu|busy-cpu|idle hung=false needs=nccl settle=4
case: receive_ring class=collective-cycle hung=true needs=nccl settle=4
case: receive_ring_grouped class=progressing|busy-gpu|busy-cpu|idle hung=false needs=nccl settle=4
case: reduction_differs class=collective-mismatch hung=true needs=nccl settle=4 says=max
case: grads_thread_oom class=oom-swallowed hung=true culprit=pid needs=nccl env=SIMGPU_DEVICES=8 settle=6
      "says=170 MiB|GPU 5|rank 5|gpu_ctypes.py:"
case: grads_thread_retries class=progressing|busy-gpu|busy-cpu|idle hung=false needs=nccl env=SIMGPU_DEVICES=8 settle=6
case: group_not_ended class=collective-missing-rank hung=true culprit=pid needs=nccl settle=4 says=group
case: polls_init class=collective-missing-rank hung=true culprit=pid needs=nccl settle=4
case: polls_init_all_come class=progressing|busy-gpu|busy-cpu|idle hung=false needs=nccl settle=4
case: retries_and_sleeps class=oom-swallowed hung=true culprit=pid needs=nccl settle=5 "says=170 MiB|rank 2"
case: oom_long_recovered class=collective-missing-rank hung=true culprit=pid needs=nccl settle=4
"""
import gpu_ctypes as gpu
import os, queue, threading, time
from gpu_ctypes import MIB, all_reduce, check, cuda, receive, send, stream, sync
from scenario import case, ready, tell

RANKS = 8 if case.startswith("grads") else 4


def warmed_up(rank, size, unique_id, steps=20):
    gpu.init(rank % int(os.environ.get("SIMGPU_DEVICES", "2")))
    c, p = gpu.comm_init(unique_id, size, rank), gpu.alloc(4 * MIB)
    for _ in range(steps):
        all_reduce(c, p)
        sync()
    return c, p


def train(c, p):
    while True:
        all_reduce(c, p)
        sync()
        time.sleep(0.005)


def at(rank, which):
    if rank == which:
        ready()


def pair_ring(rank, size, unique_id):
    """Group g is ranks g and g + 1: each begins with its own, and .item()s before the other."""
    c, p = warmed_up(rank, size, unique_id)
    groups = {g: gpu.split(c, 0 if rank in (g, (g + 1) % size) else None, rank) for g in range(size)}
    order = [rank, (rank - 1) % size]
    if case.endswith("in_order") and rank == 0:
        order.reverse()
    at(rank, 0)
    while True:
        for g in order:
            all_reduce(groups[g], p)
            sync()
        time.sleep(0.005)


def split_missing(rank, size, unique_id):
    c, p = warmed_up(rank, size, unique_id)
    if rank == 1 and case == "split_missing":
        tell(f"culprit_pid {os.getpid()}")
        ready()
        queue.Queue().get()
    half = gpu.split(c, rank % 2, rank)
    at(rank, 0 if case == "split_halves" else -1)
    train(half, p)


def polls_event(rank, size, unique_id):
    """No call waits: each rank asks its event now and then, as a training loop's watchdog does."""
    c, p = warmed_up(rank, size, unique_id)
    s, e = stream(), gpu.event()
    at(rank, 0)
    while True:
        if rank == 2 and case == "polls_event":
            tell(f"culprit_pid {os.getpid()}")
            threading.Event().wait()
        if rank == 2:
            time.sleep(0.2)
        all_reduce(c, p, s=s)
        check(cuda.cuEventRecord(e, s))
        while cuda.cuEventQuery(e) == gpu.BUSY:
            time.sleep(0.002)


def receive_ring(rank, size, unique_id):
    c, p = warmed_up(rank, size, unique_id)
    at(rank, 0)
    while True:
        grouped = case.endswith("grouped")
        if grouped:
            check(gpu.nccl.ncclGroupStart())
        receive(c, p, (rank - 1) % size)
        if not grouped:
            sync()
        send(c, p, (rank + 1) % size)
        if grouped:
            check(gpu.nccl.ncclGroupEnd())
        sync()
        time.sleep(0.005)


def reduction_differs(rank, size, unique_id):
    c, p = warmed_up(rank, size, unique_id)
    at(rank, 0)
    all_reduce(c, p, op=2 if rank == 2 else 0)
    sync()
    train(c, p)


def grads_thread(rank, size, unique_id):
    """A thread computes gradients, main reduces them; on rank 5 that thread runs out of memory."""
    c, p = warmed_up(rank, size, unique_id)
    grads, backward = queue.Queue(), gpu.kernel("sleep_us_500_backward")
    s = stream()

    def grow_bucket(n):
        return gpu.alloc(n)

    def compute():
        gpu.use(rank)
        step = 0
        while True:
            step += 1
            if step == 12 and rank == 5:
                tell(f"culprit_pid {os.getpid()}")
                try:
                    grow_bucket(gpu.free_bytes() + 170 * MIB)
                except gpu.OutOfMemory:
                    if case == "grads_thread_oom":
                        return
                    grow_bucket(MIB)
            gpu.launch(backward, s)
            sync(s)
            grads.put(step)
            time.sleep(0.01)

    gpu.spawn(compute, name="autograd")
    while True:
        at(rank, 0 if grads.get() == 5 else -1)
        all_reduce(c, p, s=s)
        sync(s)


def group_not_ended(rank, size, unique_id):
    """Its call came back at once and gave nothing to the GPU: that is the end of the group's to do."""
    c, p = warmed_up(rank, size, unique_id)
    at(rank, 0)
    if rank == 1:
        tell(f"culprit_pid {os.getpid()}")
        check(gpu.nccl.ncclGroupStart())
        all_reduce(c, p)
        queue.Queue().get()
    train(c, p)


def polls_init(rank, size, unique_id):
    """Communicators of the non-blocking kind: nobody stands in the call that makes them."""
    gpu.init(rank % 2)
    if rank == 3 and case == "polls_init":
        tell(f"culprit_pid {os.getpid()}")
        time.sleep(0.5)
        ready()
        queue.Queue().get()
    c = gpu.comm_init_polled(unique_id, size, rank)
    at(rank, 0)
    train(c, gpu.alloc(MIB))


def retries_and_sleeps(rank, size, unique_id):
    """Asks for the same memory again every half second, as a library's own retry loop does."""
    c, p = warmed_up(rank, size, unique_id)
    at(rank, 0)
    if rank == 2:
        tell(f"culprit_pid {os.getpid()}")
    while rank == 2:
        try:
            gpu.alloc(gpu.free_bytes() + 170 * MIB)
        except gpu.OutOfMemory:
            time.sleep(0.5)
    train(c, p)


def oom_long_recovered(rank, size, unique_id):
    """An allocation failed once, and 40 steps went well since: it is not why rank 1 stays away."""
    gpu.init(rank % 2)
    if rank == 1:
        try:
            gpu.alloc(gpu.free_bytes() + MIB)
        except gpu.OutOfMemory:
            pass
    c, p = warmed_up(rank, size, unique_id, 40)
    at(rank, 0)
    if rank == 1:
        tell(f"culprit_pid {os.getpid()}")
        threading.Event().wait()
    train(c, p)


functions = {"pair_ring_in_order": pair_ring, "split_halves": split_missing, "polls_event_slow_rank": polls_event,
             "polls_init_all_come": polls_init,
             "receive_ring_grouped": receive_ring, "grads_thread_oom": grads_thread, "grads_thread_retries": grads_thread}
gpu.job(RANKS, functions.get(case) or globals()[case])
