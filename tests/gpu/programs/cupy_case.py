# SPDX-License-Identifier: Apache-2.0
"""CuPy: pool and raw allocations, as cudaMemGetInfo shows them."""
import cupy as cp

cp.cuda.Device(0).use()
cp.cuda.runtime.free(0)
f0, _ = cp.cuda.runtime.memGetInfo()
a = [cp.zeros((256, 1024, 1024), cp.float32) for _ in range(4)]
f1, _ = cp.cuda.runtime.memGetInfo()
s = sum(float((x + 1).sum()) for x in a[:1])
print("RESULT", repr(s))
print("STAT used_by_driver_arrays", f0 - f1)
f2, _ = cp.cuda.runtime.memGetInfo()
print("STAT used_by_driver", f0 - f2)
