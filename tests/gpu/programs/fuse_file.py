# SPDX-License-Identifier: Apache-2.0
"""A FUSE file system of one file, spoken over /dev/fuse without a library (root; protocol 7.31, linux/fuse.h).

  fuse_file.py MOUNTPOINT SIZE STOP_FILE

serves MOUNTPOINT/file; once STOP_FILE exists it lives on and answers no read and no write any more.
"""
import ctypes, errno, os, struct, sys

point, size, stop = sys.argv[1], int(sys.argv[2]), sys.argv[3]
fd = os.open("/dev/fuse", os.O_RDWR)
libc = ctypes.CDLL(None, use_errno=True)
options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other"
if libc.mount(b"fuse_file", point.encode(), b"fuse.fuse_file", 6, options.encode()):
    sys.exit(f"mount: {os.strerror(ctypes.get_errno())}")


def attr(ino):
    mode, length = (0o40777, 0) if ino == 1 else (0o100666, size)
    return struct.pack("<6Q10I", ino, length, length // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


while True:
    try:
        request = os.read(fd, 1 << 21)
    except OSError as e:
        if e.errno in (errno.ENODEV, errno.ENOENT):  # unmounted; a request was withdrawn
            if e.errno == errno.ENODEV:
                break
            continue
        raise
    _, op, unique, node = struct.unpack_from("<IIQQ", request)
    body, out, err = request[40:], b"", 0
    if op in (2, 36, 42):  # FORGET, INTERRUPT, BATCH_FORGET: never answered
        continue
    if op in (15, 16) and os.path.exists(stop):  # READ, WRITE: it lives, and does not answer
        continue
    if op == 26:  # INIT
        out = struct.pack("<IIII HH II HH I 7I", 7, 31, 1 << 17, 0, 16, 12, 1 << 17, 1, 32, 0, 0, *[0] * 7)
    elif op == 1:  # LOOKUP
        if body.rstrip(b"\0") == b"file":
            out = struct.pack("<4Q2I", 2, 0, 3600, 3600, 0, 0) + attr(2)
        else:
            err = errno.ENOENT
    elif op in (3, 4):  # GETATTR, SETATTR
        out = struct.pack("<Q2I", 3600, 0, 0) + attr(node)
    elif op in (14, 27):  # OPEN, OPENDIR
        out = struct.pack("<Q2I", 0, 0, 0)
    elif op == 15:
        offset, length = struct.unpack_from("<QI", body, 8)
        out = bytes(max(0, min(length, size - offset)))
    elif op == 16:
        out = struct.pack("<2I", struct.unpack_from("<I", body, 16)[0], 0)
    elif op not in (18, 20, 25, 29, 34):  # RELEASE, FSYNC, FLUSH, RELEASEDIR, ACCESS succeed
        err = errno.ENOSYS
    try:
        os.write(fd, struct.pack("<IiQ", 16 + len(out), -err, unique) + out)
    except OSError:
        pass
