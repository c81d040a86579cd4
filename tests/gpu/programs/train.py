# SPDX-License-Identifier: Apache-2.0
"""A short deterministic training run: losses to the last digit, and PyTorch's own statistics."""
import torch

torch.manual_seed(1)
torch.use_deterministic_algorithms(False)
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(6)]).cuda()
opt = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(60):
    x = torch.randn(256 + 64 * (step % 5), 1024, device="cuda")
    loss = model(x).square().mean()
    opt.zero_grad(); loss.backward(); opt.step()
    if step % 10 == 0:
        print("RESULT", step, repr(loss.item()))
s = torch.cuda.memory_stats()
print("STAT segments_allocated", s["segment.all.allocated"])
print("STAT reserved_peak", s["reserved_bytes.all.peak"])
print("STAT num_alloc_retries", s["num_alloc_retries"])
