"""Files that two client machines want at the same time over NFSv4: removed while one has them open, cached under delegations
that the other breaks, fought over with locks, and all that across a crash of the server. Prints "ok NAME" or "FAIL NAME why".

Usage: sharing.py ROLE FOLDER CONTROL. Roles a and b run at the same time on two machines and meet at each step through files in
CONTROL/sharing, which both share with the host.
"""
import contextlib
import errno
import fcntl
import os
import random
import struct
import sys
import time

ROLE, TOP, CTL = sys.argv[1:4]
A = ROLE == "a"
PATIENCE = 240  # seconds for the other machine; beyond it something hangs
PROMPT = 20  # seconds within which what one machine holds has to be there for the other; a revocation takes longer
step_number = 0
failures = 0


def result(name, why=None):
    global failures
    print(f"FAIL {ROLE}-{name} {why}" if why else f"ok {ROLE}-{name}", flush=True)
    failures += bool(why)


def expect(name, got, want):
    show = lambda v: f"{len(v)} bytes {v[:16]!r}" if isinstance(v, bytes) else repr(v)
    result(name, None if got == want else f"{show(got)} instead of {show(want)}")


def meet():
    """Both roles reach the same step."""
    global step_number
    step_number += 1
    tell(f"sharing/{ROLE}.{step_number}")
    wait_for(f"sharing/{'b' if A else 'a'}.{step_number}")


def tell(name):
    with open(os.path.join(CTL, name), "w"):
        pass


def wait_for(name):
    end = time.monotonic() + PATIENCE
    while not os.path.exists(os.path.join(CTL, name)):
        if time.monotonic() > end:
            print(f"FAIL {ROLE}-meeting {name} did not come within {PATIENCE} s", flush=True)
            os._exit(1)
        time.sleep(0.05)


def path(name):
    return os.path.join(TOP, "sharing-" + name)


def read(name):
    with open(path(name), "rb") as f:
        return f.read()


def write(name, data, mode="wb"):
    with open(path(name), mode) as f:
        f.write(data)


def promptly(name, what):
    """Does something that the other machine is asked to make room for."""
    began = time.monotonic()
    got = what()
    took = time.monotonic() - began
    result(name, None if took < PROMPT else f"took {took:.1f} s")
    return got


def lock(fd, kind, start, length, block=False):
    try:
        how = fcntl.F_SETLKW if block else fcntl.F_SETLK
        fcntl.fcntl(fd, how, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))
        return True
    except OSError as e:
        if e.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise


EX, SH, UN = fcntl.F_WRLCK, fcntl.F_RDLCK, fcntl.F_UNLCK
BIG = bytes(range(256)) * 1024


def removed_while_open():
    if A:
        write("gone", BIG)
        fd = os.open(path("gone"), os.O_RDWR)
    meet()
    if not A:
        os.unlink(path("gone"))
        write("gone", b"another")
    meet()
    if A:
        expect("removed-still-read", os.pread(fd, len(BIG), 0), BIG)
        os.pwrite(fd, b"more", len(BIG))
        os.fsync(fd)
        stat = os.fstat(fd)
        expect("removed-has-no-link", (stat.st_nlink, stat.st_size), (0, len(BIG) + 4))
        expect("lock-of-a-removed-file", lock(fd, EX, 0, 10), True)
        expect("the-name-is-anothers", read("gone"), b"another")
        os.close(fd)
    meet()
    # Replaced by a rename, which removes as well; open on both machines.
    if A:
        write("old", b"old " * 1000)
    meet()
    fd = os.open(path("old"), os.O_RDWR)
    meet()
    if not A:
        write("new", b"new")
        os.rename(path("new"), path("old"))
    meet()
    expect("replaced-still-read", os.pread(fd, 4000, 0), b"old " * 1000)
    meet()
    if A:
        os.pwrite(fd, b"AAAA", 0)
        os.fsync(fd)
        os.close(fd)
    meet()
    if not A:
        # The last that has it open.
        fcntl.flock(fd, fcntl.LOCK_EX)
        expect("open-on-one-machine-only", os.pread(fd, 4, 0), b"AAAA")
        os.close(fd)
        expect("no-silly-names", [n for n in os.listdir(TOP) if n.startswith(".nfs")], [])
        expect("the-name-is-the-new-ones", read("old"), b"new")
        for name in ("gone", "old"):
            os.unlink(path(name))
    meet()


def delegations():
    # What one machine has written and not sent, the other one sees: its size when it asks, its content when it opens.
    if A:
        write("d", b"")
        fd = os.open(path("d"), os.O_RDWR)
        os.pwrite(fd, BIG, 0)
    meet()
    if not A:
        expect("written-elsewhere", promptly("opened-promptly", lambda: read("d")), BIG)
        expect("its-size", os.stat(path("d")).st_size, len(BIG))
        promptly("appended-promptly", lambda: write("d", b"tail", "ab"))
    meet()
    if A:
        os.close(fd)
        expect("appended-elsewhere", read("d"), BIG + b"tail")
    meet()
    # Both read under delegations of their own, which a writer on either side breaks.
    for turn in range(6):
        expect(f"read-by-both-{turn}", len(read("d")), len(BIG) + 4 + turn)
        read("d")
        meet()
        if A == (turn % 2 == 0):
            promptly(f"writes-against-readers-{turn}", lambda: write("d", b"x", "ab"))
        meet()
    # Names and attributes break delegations as well.
    if A:
        fd = os.open(path("d"), os.O_RDONLY)
        read("d")
    meet()
    if not A:
        promptly("chmod-promptly", lambda: os.chmod(path("d"), 0o600))
        promptly("cut-promptly", lambda: os.truncate(path("d"), 10))
        promptly("renamed-promptly", lambda: os.rename(path("d"), path("e")))
        promptly("removed-promptly", lambda: os.unlink(path("e")))
    meet()
    if A:
        expect("cut-elsewhere", os.pread(fd, 100, 0), BIG[:10])
        expect("no-link", os.fstat(fd).st_nlink, 0)
        os.close(fd)
    meet()


def fight(fd, rounds, seed):
    """Adds to counters under locks of one or all of them."""
    rand = random.Random(seed)
    added = 0
    for _ in range(rounds):
        first, count = rand.choice([(rand.randrange(16), 1), (rand.randrange(8), 8), (0, 16)])
        if not lock(fd, EX, first * 8, count * 8, block=rand.random() < 0.5):
            continue
        numbers = struct.unpack(f"{count}q", os.pread(fd, count * 8, first * 8))
        os.pwrite(fd, struct.pack(f"{count}q", *(n + 1 for n in numbers)), first * 8)
        lock(fd, UN, first * 8, count * 8)
        added += count
    return added


def fights():
    if A:
        write("counters", bytes(16 * 8))
    meet()
    fd = os.open(path("counters"), os.O_RDWR)
    meet()
    added = fight(fd, 300, ROLE)
    with open(os.path.join(CTL, f"sharing/added-{ROLE}"), "w") as f:
        f.write(str(added))
    meet()
    both = sum(int(open(os.path.join(CTL, f"sharing/added-{r}")).read()) for r in "ab")
    lock(fd, SH, 0, 0, block=True)
    expect("counted-under-locks", sum(struct.unpack("16q", os.pread(fd, 128, 0))), both)
    lock(fd, UN, 0, 0)
    os.close(fd)
    meet()
    if A:
        os.unlink(path("counters"))
    meet()


def server_crash():
    # A removed file, a lock, and data under a delegation outlive the server.
    if A:
        for name in ("r", "l", "w"):
            write(name, BIG)
        removed = os.open(path("r"), os.O_RDWR)
        os.unlink(path("r"))
        locked = os.open(path("l"), os.O_RDWR)
        expect("lock-before-the-crash", lock(locked, EX, 0, 10), True)
        written = os.open(path("w"), os.O_RDWR)
        os.pwrite(written, b"before", 0)
    meet()
    if not A:
        shared = os.open(path("l"), os.O_RDWR)
        expect("denied-before-the-crash", lock(shared, EX, 5, 1), False)
    meet()
    if A:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(CTL, "crash.done"))  # of locks.py
        tell("crash")
        wait_for("crash.done")
    meet()
    if A:
        expect("removed-over-the-crash", os.pread(removed, len(BIG), 0), BIG)
        os.pwrite(removed, b"after", 0)
        os.fsync(removed)
        expect("written-over-the-crash", os.pread(removed, 5, 0), b"after")
        expect("removed-and-open", os.fstat(removed).st_nlink, 0)
    else:
        expect("denied-after-the-crash", lock(shared, EX, 5, 1), False)
        expect("granted-beside-it", lock(shared, EX, 100, 1), True)
        expect("cached-over-the-crash", read("w")[:6], b"before")
    meet()
    if A:
        for fd in (removed, locked, written):
            os.close(fd)
    meet()
    if not A:
        expect("freed-by-close", lock(shared, EX, 5, 1), True)
        os.close(shared)
        os.unlink(path("l"))
        os.unlink(path("w"))
    meet()


removed_while_open()
delegations()
fights()
server_crash()
sys.exit(failures != 0)
