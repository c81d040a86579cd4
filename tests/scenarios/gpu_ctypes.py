# SPDX-License-Identifier: Apache-2.0
# The driver and NCCL through ctypes, as Python programs without a framework use them, for the planted
# Python programs on the simulated GPU. No docstring with cases here: the runner passes this file over.
import ctypes, os, subprocess, sys, threading, time
from ctypes import byref, c_int, c_size_t, c_uint64, c_void_p

from scenario import tell

MIB = 1 << 20
BUSY = 600  # CUDA_ERROR_NOT_READY
cuda = ctypes.CDLL("libcuda.so.1")
nccl = None
contexts, keep = {}, []
HOST_FUNCTION = ctypes.CFUNCTYPE(None, c_void_p)


class OutOfMemory(RuntimeError):
    pass


def check(result):
    if result == 2:
        raise OutOfMemory
    if result:
        raise RuntimeError(f"error {result}")


def init(device=0):
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxSetFlags_v2(device, 4))  # blocking: a spinning wait would starve the machine
    contexts[device] = c_void_p()
    check(cuda.cuDevicePrimaryCtxRetain(byref(contexts[device]), device))
    use(device)


def use(device=0):
    check(cuda.cuCtxSetCurrent(contexts[device]))


def stream():
    s = c_void_p()
    check(cuda.cuStreamCreate(byref(s), 1))
    return s


def event():
    e = c_void_p()
    check(cuda.cuEventCreate(byref(e), 2))
    return e


def kernel(name):
    module, f = c_void_p(), c_void_p()
    check(cuda.cuModuleLoadData(byref(module), b".version 8.0\n.target sm_80\n.address_size 64\n\0"))
    check(cuda.cuModuleGetFunction(byref(f), module, name.encode()))
    return f


def launch(f, s=None):
    check(cuda.cuLaunchKernel(f, 1, 1, 1, 32, 1, 1, 0, s, None, None))


def sync(s=None):
    check(cuda.cuStreamSynchronize(s))


def alloc(n):
    p = c_uint64()
    check(cuda.cuMemAlloc_v2(byref(p), c_size_t(n)))
    return p


def free_bytes():
    free, total = c_size_t(), c_size_t()
    check(cuda.cuMemGetInfo_v2(byref(free), byref(total)))
    return free.value


def word():
    p = alloc(4096)
    check(cuda.cuMemsetD32_v2(p, 0, c_size_t(1024)))
    return p


def wait_value(s, p, v):
    check(cuda.cuStreamWaitValue32_v2(s, p, v, 0))


def write_value(s, p, v):
    check(cuda.cuStreamWriteValue32_v2(s, p, v, 0))


def host_function(s, f):
    keep.append(HOST_FUNCTION(lambda _: f()))
    check(cuda.cuLaunchHostFunc(s, keep[-1], None))


def spawn(f, name=None):
    t = threading.Thread(target=f, daemon=True, name=name)
    t.start()
    return t


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_byte * 128)]


def comm_init(unique_id, size, rank):
    c = c_void_p()
    check(nccl.ncclCommInitRank(byref(c), size, unique_id, rank))
    return c


class Config(ctypes.Structure):
    """The fields of ncclConfig_t that every version since 2.14 begins with; the library goes by the size."""
    _fields_ = [("size", c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", c_int),
                ("cga_cluster_size", c_int), ("min_ctas", c_int), ("max_ctas", c_int), ("net_name", c_void_p),
                ("split_share", c_int), ("traffic_class", c_int)]


def comm_init_polled(unique_id, size, rank):
    """A non-blocking communicator: made in the background, and asked for now and then."""
    undefined = -(1 << 31)
    config = Config(ctypes.sizeof(Config), 0xCAFEBEEF, 22809, 0, undefined, undefined, undefined, None, undefined, undefined)
    c, state = c_void_p(), c_int(7)
    started = nccl.ncclCommInitRankConfig(byref(c), size, unique_id, rank, byref(config))
    if started not in (0, 7):  # ncclSuccess, ncclInProgress
        check(started)
    while state.value == 7:
        time.sleep(0.01)
        check(nccl.ncclCommGetAsyncError(c, byref(state)))
    return c


def split(c, color, key):
    """The communicator of that color; color None takes part and gets none."""
    new = c_void_p()
    check(nccl.ncclCommSplit(c, -1 if color is None else color, key, byref(new), None))
    return new


def all_reduce(c, p, n=4096, s=None, op=0):
    check(nccl.ncclAllReduce(c_void_p(p.value), c_void_p(p.value), c_size_t(n), 7, op, c, s))


def send(c, p, peer, s=None):
    check(nccl.ncclSend(c_void_p(p.value), c_size_t(1024), 7, peer, c, s))


def receive(c, p, peer, s=None):
    check(nccl.ncclRecv(c_void_p(p.value), c_size_t(1024), 7, peer, c, s))


def job(size, main):
    """`size` ranks by exec, as a launcher starts them; main(rank, size, unique id) in each."""
    global nccl
    nccl = ctypes.CDLL("libnccl.so.2")
    if "RANK" in os.environ:
        with open("id", "rb") as f:
            main(int(os.environ["RANK"]), size, UniqueId.from_buffer_copy(f.read()))
        return
    unique_id = UniqueId()
    check(nccl.ncclGetUniqueId(byref(unique_id)))
    with open("id", "wb") as f:
        f.write(bytes(unique_id))
    ranks = []
    for r in range(size):
        more = {"RANK": str(r), "LOCAL_RANK": str(r), "WORLD_SIZE": str(size)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env={**os.environ, **more}))
        tell(f"ask_pid {ranks[-1].pid}")
    for p in ranks:
        p.wait()
