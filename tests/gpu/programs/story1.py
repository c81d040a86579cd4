# SPDX-License-Identifier: Apache-2.0
"""Training with output redirected to a file while Python buffers it. `stuck`: a kernel never ends."""
import os, sys, torch

model = torch.nn.Sequential(*[torch.nn.Linear(2048, 2048) for _ in range(8)]).cuda()
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
x = torch.randn(4096, 2048, device="cuda")
for step in range(10**9):
    loss = model(x).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if sys.argv[1] == "stuck" and step == 60:
        torch.cuda._sleep(2**62)
        open(os.environ["READY_FILE"], "w").write("x")
    if step % 20 == 0:
        print("step", step, "loss", loss.item())
    if step == 100 and sys.argv[1] == "healthy":
        open(os.environ["READY_FILE"], "w").write("x")
