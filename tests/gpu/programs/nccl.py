# SPDX-License-Identifier: Apache-2.0
"""Two ranks on two GPUs, and the classic ways to hang them."""
import os, sys, time, torch, torch.distributed as dist, torch.multiprocessing as mp

kind = sys.argv[1]


def rank_main(rank):
    os.environ["RANK"], os.environ["WORLD_SIZE"] = str(rank), "2"
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", rank=rank, world_size=2)
    g1, g2 = dist.new_group([0, 1]), dist.new_group([0, 1])
    x = torch.ones(1 << 20, device="cuda")
    for group in (None, g1, g2):
        dist.all_reduce(x, group=group)
    torch.cuda.synchronize()
    for step in range(10**9):
        if step == 20 and kind != "healthy":
            if rank == 0:
                open(os.environ["READY_FILE"] + ".0", "w").write(str(os.getpid()))
            else:
                open(os.environ["READY_FILE"] + ".1", "w").write(str(os.getpid()))
            if kind == "missing" and rank == 1:
                time.sleep(100000)
            if kind == "dead" and rank == 1:
                os._exit(3)
            if kind == "mismatch":
                # different counts may complete by luck with wrong sums (seen here with 16 and 32 Mi elements);
                # a reduction against a one-way transfer does not
                y = torch.ones(1 << 25, device="cuda")
                dist.all_reduce(y) if rank else dist.reduce_scatter_tensor(torch.empty(1 << 24, device="cuda"), y)
                torch.cuda.synchronize()
            if kind == "cycle":
                for group in (g1, g2) if rank == 0 else (g2, g1):
                    dist.all_reduce(x, group=group)
                    torch.cuda.synchronize()
        if step == 20 and kind == "healthy":
            open(os.environ["READY_FILE"] + f".{rank}", "w").write(str(os.getpid()))
        dist.all_reduce(x)
        torch.cuda.synchronize()
        time.sleep(0.005)


if __name__ == "__main__":
    ps = [mp.get_context("spawn").Process(target=rank_main, args=(r,)) for r in range(2)]
    for p in ps:
        p.start()
    r = os.environ["READY_FILE"]
    while not all(os.path.exists(f"{r}.{i}") for i in range(2)):
        time.sleep(0.1)
    time.sleep(0.2)
    open(r, "w").write(" ".join(open(f"{r}.{i}").read() for i in range(2)))
    for p in ps:
        p.join()
