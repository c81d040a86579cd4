# SPDX-License-Identifier: Apache-2.0
"""CUDA graph capture and replay in PyTorch, in every capture error mode."""
import torch

torch.manual_seed(2)
model = torch.nn.Sequential(torch.nn.Linear(512, 512), torch.nn.ReLU(), torch.nn.Linear(512, 512)).cuda()
x = torch.randn(64, 512, device="cuda")
for mode in ("global", "thread_local", "relaxed"):
    s = torch.cuda.Stream()
    s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(s):
        for _ in range(3):
            model(x)
    torch.cuda.current_stream().wait_stream(s)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g, capture_error_mode=mode):
        y = model(x)
    for _ in range(50):
        x.normal_(generator=torch.Generator("cuda").manual_seed(3))
        g.replay()
    torch.cuda.synchronize()
    print("RESULT", mode, repr(y.sum().item()))
