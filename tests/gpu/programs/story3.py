# SPDX-License-Identifier: Apache-2.0
"""The first step under torch.compile: minutes of silence that are only compilation."""
import os, torch


class Block(torch.nn.Module):
    def __init__(self, i):
        super().__init__()
        self.l = torch.nn.Linear(512 + 8 * i, 512 + 8 * (i + 1))
        self.n = torch.nn.LayerNorm(512 + 8 * (i + 1))
        self.i = i

    def forward(self, x):
        x = torch.nn.functional.gelu(self.n(self.l(x)))
        return (x * torch.sin(x + self.i)).softmax(-1) + torch.tanh(x) * torch.cumsum(x, -1)


model = torch.compile(torch.nn.Sequential(*[Block(i) for i in range(40)]).cuda(), mode="max-autotune-no-cudagraphs")
x = torch.randn(64, 512, device="cuda")
print("compiling", flush=True)
open(os.environ["READY_FILE"], "w").write("x")
model(x).sum().backward()
print("first step done", flush=True)
import time; time.sleep(600)
