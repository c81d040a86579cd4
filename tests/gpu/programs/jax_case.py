# SPDX-License-Identifier: Apache-2.0
"""JAX: its memory as the driver shows it (NVML-like: total - free after, minus before)."""
import ctypes, os
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "true")
os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "true"
os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.10"
cu = ctypes.CDLL("libcuda.so.1")


def used():
    f, t = ctypes.c_size_t(), ctypes.c_size_t()
    assert cu.cuMemGetInfo_v2(ctypes.byref(f), ctypes.byref(t)) == 0
    return t.value - f.value


# Our own primary context first, so that the difference is what JAX allocates.
ctx = ctypes.c_void_p()
assert cu.cuInit(0) == 0 and cu.cuDevicePrimaryCtxRetain(ctypes.byref(ctx), 0) == 0 and cu.cuCtxSetCurrent(ctx) == 0
before = used()
import jax, jax.numpy as jnp

x = jnp.ones((4096, 4096), jnp.float32)
y = jnp.tanh(x @ x / 4096).sum().block_until_ready()
cu.cuCtxSetCurrent(ctx)
after = used()
print("RESULT", repr(float(y)))
print("STAT used_by_driver", after - before)
