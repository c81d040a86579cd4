# SPDX-License-Identifier: Apache-2.0
"""Step time of a GPU-bound, a launch-bound and a graph-replay loop: the median over blocks."""
import statistics, sys, time, torch

kind = sys.argv[1]
torch.manual_seed(0)
if kind == "gpu":
    model, x, block, blocks = torch.nn.Sequential(*[torch.nn.Linear(4096, 4096) for _ in range(12)]).cuda(), torch.randn(4096, 4096, device="cuda"), 4, 12
else:
    model, x, block, blocks = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(40)]).cuda(), torch.randn(64, 64, device="cuda"), 40, 16
opt = torch.optim.SGD(model.parameters(), lr=1e-4)


def step():
    loss = model(x).square().mean()
    opt.zero_grad(set_to_none=False); loss.backward(); opt.step()


for _ in range(10):
    step()
if kind == "graph":
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        step(); step()
    torch.cuda.current_stream().wait_stream(s)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        step()
    step = g.replay
torch.cuda.synchronize()
times = []
for _ in range(blocks):
    t = time.perf_counter()
    for _ in range(block):
        step()
    torch.cuda.synchronize()
    times.append((time.perf_counter() - t) / block * 1e6)
print("STEP_US", statistics.median(times))
