# SPDX-License-Identifier: Apache-2.0
"""One interpreter's frames as pyframes.c reads them, against what the interpreter itself says."""
import ctypes
import sys
import threading

guest = ctypes.CDLL(sys.argv[1])
assert guest.guest_begin(sys.argv[2].encode()) == 0
wrong = []
checks = 0


def truth():
    frame, out = sys._getframe(1), []
    while frame and len(out) < 24:
        code = frame.f_code
        out.append("%s:%d in %s" % (code.co_filename, frame.f_lineno,
                                    getattr(code, "co_qualname", code.co_name)))
        frame = frame.f_back
    return out


def check():
    global checks
    text = ctypes.create_string_buffer(8192)
    guest.guest_frames(text, 8192)
    seen, said = text.value.decode().splitlines(), truth()
    checks += 1
    # The two calls stand on different lines of this function: compare from its caller on.
    if not seen or seen[0].split(" in ")[1] != "check" or seen[1:] != said[1:]:
        wrong.append((seen, said))


class Größe:
    def forward(self, x,
                y=1):
        return check(
        )

    def 名前(self):
        return [self.forward(i,
                             y=2)
                for i in range(2)]


def generator():
    yield 1
    Größe().名前()
    yield 2


def deep(n):
    if n:
        return deep(n - 1)
    try:
        raise KeyError
    except KeyError:
        for _ in generator():
            (lambda: check())()


def long_function(n):
    # Many lines and long jumps between them: the line tables' longer forms.
    total = 0
    for i in range(n):
        total += i





























    check(); total += 1
    return total


deep(3)
deep(40)  # more than is kept: the innermost count
long_function(3)
exec(compile("\n" * 70000 + "check()", "far.py", "exec"))
thread = threading.Thread(target=deep, args=(2,))
thread.start()
thread.join()


def allocate_tensor():
    guest.guest_failing(ctypes.c_ulong(10 << 30))


allocate_tensor()
guest.guest_end()
for seen, said in wrong:
    print("seen", seen, "\nsaid", said)
print(sys.version.split()[0], checks, "checks,", len(wrong), "wrong")
sys.exit(1 if wrong or checks < 8 else 0)
