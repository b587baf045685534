#!/usr/bin/env python3
"""Files of a share under a server that is killed: `persistent.py FOLDER TURNS`. Programs keep files open, write, cut and read them; reads
and writes have to succeed, and what is read has to be what was written, at the end also from another open. Cifs of Linux 6.1 does not send a
FLUSH again whose connection is lost (EAGAIN, or ECONNABORTED while it was being sent), so that fsync is repeated here; and it refuses to unlock while it connects again (EINVAL, as it
knows of no size of messages), so that there are no locks: smb/test_persistent.py has them."""

import os
import random
import sys
import time


def sync(fd):
    for _ in range(20):
        try:
            return os.fsync(fd)
        except (BlockingIOError, ConnectionAbortedError):
            time.sleep(0.5)
    raise SystemExit("fsync does not succeed any more")


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


def main(folder, turns):
    seed = random.randrange(1 << 32)
    print("seed", seed, flush=True)
    choice = random.Random(seed)
    files = []
    for n in range(8):
        path = f"{folder}/model-{n}"
        files.append([path, os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), bytearray()])
    for turn in range(turns):
        for path, fd, data in files:
            for _ in range(choice.randrange(1, 5)):
                at = choice.randrange(len(data) + 1)
                some = choice.randbytes(choice.randrange(1, 100_000))
                os.pwrite(fd, some, at)
                data[at:at + len(some)] = some
            if choice.random() < 0.1:
                size = choice.randrange(len(data) + 1)
                os.ftruncate(fd, size)
                del data[size:]
            if choice.random() < 0.3:
                sync(fd)
                if hasattr(os, "posix_fadvise"):
                    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            at = choice.randrange(len(data) + 1)
            read = os.pread(fd, 65_536, at)
            if read != bytes(data[at:at + 65_536]):
                raise SystemExit(f"turn {turn}: {path} differs at {at}")
        time.sleep(0.2)
        if turn % 10 == 9:
            print("turn", turn, flush=True)
    for path, fd, data in files:
        os.close(fd)
    with open("/proc/sys/vm/drop_caches", "w") as drop:
        drop.write("3")
    for path, _, data in files:
        with open(path, "rb") as file:
            if file.read() != data:
                raise SystemExit(f"{path} differs at the end")
        unlink(path)
    print("all right", flush=True)


main(sys.argv[1], int(sys.argv[2]))
