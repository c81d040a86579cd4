"""scenario
section: rendezvous (RPC_NO_TIMEOUT), dead-peer
story: a client waits for a server of Python's library, whose main thread is at rest
proof: the thread that has the request, or the client that has the only server, does what its case says and writes its pid
case: http_queue class=no-waker|peer-silent hung=true culprit=tid
case: http_computing class=busy-cpu hung=false culprit=tid
case: http_child_stopped class=stopped hung=true culprit=pid
case: http_locked class=lock-self|no-waker hung=true culprit=tid
case: single_taken class=peer-silent hung=true culprit=pid
case: single_idle class=idle hung=false
case: rpc_ring class=deadlock hung=true
"""
# SPDX-License-Identifier: Apache-2.0
import http.server, os, queue, signal, socket, socketserver, subprocess, threading, time, urllib.request
import xmlrpc.client, xmlrpc.server
from scenario import *


def fork(f):
    pid = os.fork()
    if pid == 0:
        f()
        os._exit(0)
    return pid


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if case == "http_child_stopped":
            child = subprocess.Popen(["sleep", "1000"])
            os.kill(child.pid, signal.SIGSTOP)
            tell(f"culprit_pid {child.pid}")
            child.wait()
        culprit_thread()
        if case == "http_queue":
            queue.Queue().get()
        elif case == "http_computing":
            compute()
        elif case == "http_locked":
            lock = threading.Lock()
            with lock:
                lock.acquire()

    def log_message(self, *_):
        pass


class Line(socketserver.BaseRequestHandler):
    def handle(self):
        self.request.recv(10)


threading.Timer(1, ready).start()
if case.startswith("http"):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    fork(server.serve_forever)
    server.server_close()
    urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/").read()
elif case.startswith("single"):
    server = socketserver.TCPServer(("127.0.0.1", 0), Line)
    at = server.server_address
    if case == "single_idle":
        server.serve_forever()
    fork(server.serve_forever)
    server.server_close()

    def first():  # connects and never asks: the server reads from it alone
        connection = socket.create_connection(at)
        time.sleep(10000)

    tell(f"culprit_pid {fork(first)}")
    time.sleep(0.3)
    second = socket.create_connection(at)
    second.sendall(b"?")
    second.recv(1)
elif case == "rpc_ring":
    a, b = (xmlrpc.server.SimpleXMLRPCServer(("127.0.0.1", 0), logRequests=False) for _ in range(2))
    at_a, at_b = (f"http://127.0.0.1:{s.server_address[1]}" for s in (a, b))

    def serve(mine, other, name, ask):
        other.server_close()
        mine.register_function(ask, name)
        mine.serve_forever()

    fork(lambda: serve(a, b, "f", lambda: xmlrpc.client.ServerProxy(at_b).g()))
    fork(lambda: serve(b, a, "g", lambda: xmlrpc.client.ServerProxy(at_a).f()))
    a.server_close()
    b.server_close()
    xmlrpc.client.ServerProxy(at_a).f()
