#!/usr/bin/env python3
"""Files of a share under a server that is killed: `persistent.py FOLDER TURNS [channels]`. Programs keep files open, write, cut and read them;
reads and writes have to succeed, and what is read has to be what was written, at the end also from another open.

What cifs of Linux 6.1 itself does when a connection ends: fsync fails (EAGAIN, ECONNABORTED, EHOSTDOWN) if a WRITE was just being sent or a
FLUSH was not answered, and that WRITE may never be sent again, as Linux has it of a failed fsync; so everything is written again then. Unlocking is refused while it connects again (EINVAL), so that there are no locks: smb/test_persistent.py has them. A CLOSE is not sent
again, so that the server keeps such an open until its time is over. Over several `channels` a file may be opened anew over one that is
lost as well and not noticed yet (EAGAIN), or is being negotiated (EHOSTDOWN), and cifs_read and cifs_write pass that on; so reads and writes
are repeated here."""

import errno
import os
import random
import sys
import time


LOST = (errno.EAGAIN, errno.ECONNABORTED, errno.EHOSTDOWN)


def sync(do, fd, data):
    for _ in range(20):
        try:
            return os.fsync(fd)
        except OSError as failure:
            if failure.errno not in LOST:
                raise
            print(f"fsync fails: {failure.strerror}; written again", flush=True)
        time.sleep(0.5)
        write(do, fd, bytes(data), 0)
    raise SystemExit("fsync does not succeed any more")


def once(call, *arguments):
    return call(*arguments)


def until_done(call, *arguments):
    while True:
        try:
            return call(*arguments)
        except OSError as failure:
            if failure.errno not in LOST:
                raise
            time.sleep(0.1)


def write(do, fd, some, at):
    """A write that a crash cuts short is no error: the program goes on behind what was written."""
    while some:
        n = do(os.pwrite, fd, some, at)
        if n < len(some):
            print(f"{n} of {len(some)} bytes written at {at}", flush=True)
        at, some = at + n, some[n:]


def difference(read, data, at):
    unlike = [n for n in range(min(len(read), len(data))) if read[n] != data[n]]
    if not unlike:
        return f"has {len(read)} bytes from {at} on, of {len(data)}" if len(read) != len(data) else "is as it should be"
    zeros = sum(read[n] == 0 for n in unlike)
    return f"differs in {len(unlike)} bytes, {at + unlike[0]} to {at + unlike[-1]}, {zeros} of them zeros"


def now(path, data):
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("3")
    with open(path, "rb") as file:
        return difference(file.read(), data, 0)


def unlink(path):
    """Linux 6.1 sends what has a path once: it fails with EAGAIN where the connection ends under it."""
    while True:
        try:
            return os.unlink(path)
        except BlockingIOError:
            continue
        except FileNotFoundError:
            # The server had removed it when it was killed.
            return None


def main(folder, turns, do):
    seed = random.randrange(1 << 32)
    print("seed", seed, flush=True)
    choice = random.Random(seed)
    files = []
    for n in range(8):
        path = f"{folder}/model-{seed}-{n}"
        files.append([path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), bytearray()])
    for turn in range(turns):
        for path, fd, data in files:
            for _ in range(choice.randrange(1, 5)):
                at = choice.randrange(len(data) + 1)
                some = choice.randbytes(choice.randrange(1, 100_000))
                write(do, fd, some, at)
                data[at:at + len(some)] = some
            if choice.random() < 0.1:
                size = choice.randrange(len(data) + 1)
                do(os.ftruncate, fd, size)
                del data[size:]
            if choice.random() < 0.3:
                sync(do, fd, data)
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            at = choice.randrange(len(data) + 1)
            read = do(os.pread, fd, 65_536, at)
            if read != bytes(data[at:at + 65_536]):
                raise SystemExit(f"turn {turn}: {path} {difference(read, data[at:at + 65_536], at)}; over a fresh open {now(path, data)}")
        time.sleep(0.2)
        if turn % 10 == 9:
            print("turn", turn, flush=True)
    for path, fd, data in files:
        sync(do, fd, data)
        os.close(fd)
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("3")
    for path, _, data in files:
        with open(path, "rb") as file:
            read = file.read()
            if read != data:
                raise SystemExit(f"{path} at the end {difference(read, data, 0)}")
        unlink(path)
    print("all right", flush=True)


main(sys.argv[1], int(sys.argv[2]), until_done if "channels" in sys.argv[3:] else once)
