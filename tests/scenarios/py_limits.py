"""scenario
section: resource (SHM_EXHAUSTED), slow-not-hung (SLOW_CPU_THROTTLE), stopped, io (IO_BLOCKED)
story: something is used up, frozen or throttled, and the program tries again and again or stands still
proof: the limit is set by this file just before, and the kernel's own answer (EAGAIN, EMFILE, ENOSPC, the cgroup's files) says so
case: nproc class=resource-exhausted hung=true needs=root settle=2
case: nproc_free class=idle|progressing|busy-cpu hung=false settle=2
case: emfile class=resource-exhausted hung=true settle=2
case: emfile_free class=idle|progressing hung=false settle=2
case: shm_full class=resource-exhausted hung=true needs=root settle=2
case: memlock class=resource-exhausted hung=true needs=root settle=2
case: disk_full class=resource-exhausted|spin-wait hung=true needs=root settle=2
case: cgroup_pids class=resource-exhausted hung=true needs=root,cgroup:pids settle=2
case: cgroup_memory class=resource-exhausted hung=true needs=root,cgroup:memory settle=3
case: cgroup_frozen class=stopped|resource-exhausted hung=true culprit=pid needs=root,cgroup:freezer settle=2
case: cgroup2_frozen class=stopped|resource-exhausted hung=true culprit=pid needs=root,cgroup:unified settle=2
case: cgroup_thawed class=busy-cpu hung=false culprit=pid needs=root,cgroup:freezer settle=2
case: cgroup_throttled class=resource-exhausted|busy-cpu hung=any says=throttl needs=root,cgroup:cpu settle=3
case: frozen_fs class=write-blocked hung=true needs=root,loop,tool:fsfreeze settle=2
case: frozen_fs_waited class=write-blocked hung=true needs=root,loop,tool:fsfreeze settle=2
case: thawed_fs class=busy-cpu|progressing|idle hung=false needs=root,loop,tool:fsfreeze settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import ctypes, errno, mmap, os, resource, signal, socket, subprocess, sys, time
from scenario import *

libc = ctypes.CDLL(None, use_errno=True)
work = os.environ["SCENARIO_DIR"]


def become_nobody():
    os.chmod(work, 0o777)
    os.setgid(65534)
    os.setuid(65534)


def cgroup(controller):
    path = f"/sys/fs/cgroup/{controller}/scenario-{os.getpid()}"
    os.mkdir(path)
    tell(f"remove sleep 0.2; rmdir {path}")
    return path


def put(path, text):
    with open(path, "w") as f:
        f.write(str(text))


def child(main):
    pid = os.fork()
    if pid == 0:
        try:
            main()
        finally:
            os._exit(9)
    return pid


if case.startswith("nproc"):
    if case == "nproc":
        os.setgid(65531)
        os.setuid(65531)  # a user that runs nothing else
        resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
    ready()
    while True:
        try:
            pid = os.fork()
            if pid == 0:
                os._exit(0)
            os.waitpid(pid, 0)
        except BlockingIOError:
            pass
        time.sleep(0.05)
elif case.startswith("emfile"):
    s = socket.create_server(("127.0.0.1", 0))
    c = [socket.create_connection(s.getsockname()) for _ in range(3)]
    if case == "emfile":
        used = max(map(int, os.listdir("/proc/self/fd")))
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, used + 1))
        kept = []
        try:
            while True:
                kept.append(os.dup(0))
        except OSError:
            pass
    # `tell` needs a descriptor
    tell_first = case != "emfile"
    if tell_first:
        ready()
    else:
        os.close(kept.pop())
        ready()
        kept.append(os.dup(0))
    got = []
    while True:
        try:
            got.append(s.accept())
        except OSError as e:
            if e.errno != errno.EMFILE:
                raise
            time.sleep(0.05)
elif case in ("shm_full", "disk_full"):
    libc.unshare(0x20000)  # CLONE_NEWNS
    libc.mount(None, b"/", None, 0x44000, None)
    at = "/dev/shm" if case == "shm_full" else f"{work}/full"
    os.makedirs(at, exist_ok=True)
    fds = os.open(os.environ["SCENARIO_OUT"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    libc.mount(b"tmpfs", at.encode(), b"tmpfs", 0, b"size=1m")
    fd = os.open(f"{at}/segment", os.O_RDWR | os.O_CREAT)
    os.write(fds, b"ready\n")
    while True:
        try:
            if case == "shm_full":
                os.posix_fallocate(fd, 0, 4 << 20)
            elif os.write(fd, b"x" * 65536):
                continue
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise
        time.sleep(0.05)
elif case == "memlock":
    m = mmap.mmap(-1, 16 << 20)
    become_nobody()
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (65536, 65536))
    at = ctypes.addressof(ctypes.c_char.from_buffer(m))
    ready()
    while libc.mlock(ctypes.c_void_p(at), ctypes.c_size_t(16 << 20)):
        time.sleep(0.05)
elif case == "cgroup_pids":
    g = cgroup("pids")
    put(g + "/pids.max", 2)
    put(g + "/cgroup.procs", os.getpid())
    first = subprocess.Popen(["sleep", "1000"])
    ready()
    while True:
        try:
            os._exit(0) if os.fork() == 0 else os.wait()
        except BlockingIOError:
            time.sleep(0.05)
elif case == "cgroup_memory":  # at its limit with the OOM killer off: the kernel makes it wait
    g = cgroup("memory")
    put(g + "/memory.limit_in_bytes", 24 << 20)
    put(g + "/memory.oom_control", 1)
    tell(f"cleanup echo 0 > {g}/memory.oom_control; echo -1 > {g}/memory.limit_in_bytes")

    def grows():
        put(g + "/cgroup.procs", os.getpid())
        m = mmap.mmap(-1, 64 << 20)
        for at in range(0, 64 << 20, 4096):
            m[at] = 1

    pid = child(grows)
    time.sleep(0.5)
    ready()
    os.waitpid(pid, 0)
elif case in ("cgroup_frozen", "cgroup2_frozen", "cgroup_thawed"):
    pid = child(compute)
    tell(f"culprit_pid {pid}")
    if case == "cgroup2_frozen":
        g, switch, cold, warm = cgroup("unified"), "/cgroup.freeze", 1, 0
    else:
        g, switch, cold, warm = cgroup("freezer"), "/freezer.state", "FROZEN", "THAWED"
    put(g + "/cgroup.procs", pid)
    tell(f"cleanup echo {warm} > {g}{switch}")
    put(g + switch, warm if case == "cgroup_thawed" else cold)
    ready()
    os.waitpid(pid, 0)
elif case == "cgroup_throttled":
    g = cgroup("cpu")
    put(g + "/cpu.cfs_period_us", 100000)
    put(g + "/cpu.cfs_quota_us", 1000)  # a hundredth of one processor
    pid = child(compute)
    put(g + "/cgroup.procs", pid)
    ready()
    os.waitpid(pid, 0)
else:
    image, at = f"{work}/disk", f"{work}/mnt"
    os.mkdir(at)
    subprocess.run(["truncate", "-s", "16M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, at], check=True)
    tell(f"cleanup fsfreeze -u {at}")
    tell(f"cleanup_umount {at}")
    f = open(f"{at}/checkpoint", "wb", buffering=0)
    f.write(b"x" * 4096)
    if case != "thawed_fs":
        subprocess.run(["fsfreeze", "-f", at], check=True)

    def writes():
        while True:
            f.write(b"x" * 4096)
            os.fsync(f.fileno())
            f.seek(0)
            time.sleep(0.01)

    ready()
    if case == "frozen_fs_waited":
        os.waitpid(child(writes), 0)
    writes()
