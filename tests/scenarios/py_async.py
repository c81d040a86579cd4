"""scenario
section: host-lock, rendezvous (RPC_NO_TIMEOUT)
story: an asyncio program answers no more
proof: the coroutines below; the loop's thread, and what it waits for, follow from the source
case: blocking_result class=lock-self|deadlock|no-waker hung=true settle=2
case: lock_in_executor class=lock-self|no-waker hung=true settle=2
case: executor_computing class=busy-cpu hung=false culprit=tid settle=2
case: subprocess_stopped class=stopped hung=true culprit=pid settle=2
case: subprocess_computing class=busy-cpu hung=false culprit=pid settle=2
case: stream_silent class=peer-silent hung=true culprit=pid settle=2
case: forgotten_future class=no-waker|unknown hung=any settle=2
case: server class=idle hung=false settle=2
case: ticker class=idle|progressing|busy-cpu hung=false settle=2
case: loop_blocked class=busy-cpu hung=false culprit=tid settle=2
"""
# SPDX-License-Identifier: Apache-2.0
import asyncio, os, signal, sys, threading, time
from scenario import *


async def quick():
    return 1


def held_twice():
    lock = threading.Lock()
    with lock:
        ready()
        lock.acquire()


def counts():
    culprit_thread()
    ready()
    compute()


async def main():
    loop = asyncio.get_running_loop()
    if case == "blocking_result":  # waits, in the loop's own thread, for what only the loop can run
        ready()
        asyncio.run_coroutine_threadsafe(quick(), loop).result()
    elif case == "lock_in_executor":
        await loop.run_in_executor(None, held_twice)
    elif case == "executor_computing":
        await loop.run_in_executor(None, counts)
    elif case.startswith("subprocess"):
        code = "while True: pass" if case.endswith("computing") else "import time; time.sleep(1000)"
        p = await asyncio.create_subprocess_exec("nice", sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
        tell(f"culprit_pid {p.pid}")
        await asyncio.sleep(0.5)
        if case.endswith("stopped"):
            os.kill(p.pid, signal.SIGSTOP)
        ready()
        await p.communicate()
    elif case == "stream_silent":
        server = os.fork()
        if server == 0:
            import socket
            s = socket.create_server(("127.0.0.1", int(os.environ.get("PORT", "0"))))
            with open("port.tmp", "w") as f:
                f.write(str(s.getsockname()[1]))
            os.rename("port.tmp", "port")
            kept = s.accept()
            while True:
                signal.pause()
        tell(f"culprit_pid {server}")
        while not os.path.exists("port"):
            await asyncio.sleep(0.05)
        r, w = await asyncio.open_connection("127.0.0.1", int(open("port").read()))
        w.write(b"GET\n")
        ready()
        await r.readline()
    elif case == "forgotten_future":
        ready()
        await loop.create_future()
    elif case == "server":
        s = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
        ready()
        await s.serve_forever()
    elif case == "ticker":
        ready()
        while True:
            await asyncio.sleep(0.05)
    elif case == "loop_blocked":
        culprit_thread()
        ready()
        compute()


asyncio.run(main())
