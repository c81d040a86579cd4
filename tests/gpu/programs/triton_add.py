# SPDX-License-Identifier: Apache-2.0
"""A Triton kernel: launched through the driver API by Triton's own launcher."""
import torch, triton, triton.language as tl


@triton.jit
def add(x, y, z, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    m = i < n
    tl.store(z + i, tl.load(x + i, mask=m) + tl.load(y + i, mask=m), mask=m)


torch.manual_seed(4)
a, b = torch.randn(1 << 20, device="cuda"), torch.randn(1 << 20, device="cuda")
c = torch.empty_like(a)
for _ in range(20):
    add[(triton.cdiv(a.numel(), 1024),)](a, b, c, a.numel(), BLOCK=1024)
torch.cuda.synchronize()
print("RESULT", torch.equal(c, a + b), repr(c.double().sum().item()))
