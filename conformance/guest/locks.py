"""Byte-range locks between two client machines, across a crash of the server, and after the death of
a client. Prints "ok NAME" or "FAIL NAME why".

Usage: locks.py ROLE FOLDER CONTROL. Roles a and b run at the same time on two machines and meet at
each step through files in CONTROL, which both share with the host; the others run alone, in the
order dies, denied, (the machine of dies comes back and notifies), freed.
"""
import contextlib
import errno
import fcntl
import os
import signal
import struct
import sys
import time

ROLE, TOP, CTL = sys.argv[1:4]
FILE = os.path.join(TOP, "locks.dat")
PATIENCE = 240  # seconds for the other machine; beyond it something hangs
step_number = 0
failures = 0


def result(name, why=None):
    global failures
    print(f"FAIL {ROLE}-{name} {why}" if why else f"ok {ROLE}-{name}", flush=True)
    failures += bool(why)


def wait_for(name, limit=PATIENCE):
    end = time.monotonic() + limit
    while not os.path.exists(os.path.join(CTL, name)):
        if time.monotonic() > end:
            print(f"FAIL {ROLE}-meeting {name} did not come within {limit} s", flush=True)
            os._exit(1)
        time.sleep(0.05)


def tell(name):
    with open(os.path.join(CTL, name), "w"):
        pass


def meet():
    """Both roles reach the same step."""
    global step_number
    step_number += 1
    tell(f"{ROLE}.{step_number}")
    wait_for(f"{'b' if ROLE == 'a' else 'a'}.{step_number}")


def lock(fd, kind, start, length, block=False):
    """True when granted, False when refused as conflicting."""
    try:
        fcntl.fcntl(fd, fcntl.F_SETLKW if block else fcntl.F_SETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0))
        return True
    except OSError as e:
        if e.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise


def holder(fd, kind, start, length):
    """Who stands in the way: (kind, start, length), or None."""
    r = struct.unpack("hhqqi4x", fcntl.fcntl(fd, fcntl.F_GETLK, struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)))
    return None if r[0] == fcntl.F_UNLCK else (r[0], r[2], r[3])


EX, SH, UN = fcntl.F_WRLCK, fcntl.F_RDLCK, fcntl.F_UNLCK


def expect(name, got, want):
    result(name, None if got == want else f"{got!r} instead of {want!r}")


@contextlib.contextmanager
def alarm(seconds):
    def ring(*_):
        raise InterruptedError
    signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)


def two_clients(fd):
    a = ROLE == "a"
    meet()
    if a:
        expect("exclusive", lock(fd, EX, 0, 100), True)
    meet()
    if not a:
        expect("conflict-refused", lock(fd, EX, 50, 10), False)
        expect("shared-against-exclusive-refused", lock(fd, SH, 99, 1), False)
        expect("holder-reported", holder(fd, EX, 50, 10), (EX, 0, 100))
        expect("neighbour-free", holder(fd, EX, 100, 100), None)
        expect("neighbour-granted", lock(fd, EX, 100, 100), True)
        expect("to-the-end-granted", lock(fd, EX, 1 << 20, 0), True)
    meet()
    if a:
        expect("other-holder-reported", holder(fd, SH, 150, 1), (EX, 100, 100))
        expect("high-range-refused", lock(fd, EX, (1 << 62) - 5, 10), False)
    meet()
    if not a:
        lock(fd, UN, 0, 0)
    meet()
    if a:
        expect("high-range-granted", lock(fd, EX, (1 << 62) - 5, 10), True)
        lock(fd, UN, 1000, 0)
    meet()
    # A blocked request is granted when the holder lets go. The client polls every 30 s; sooner than
    # that means the server called back.
    if a:
        wait_for("b-blocks")
        time.sleep(2)
        lock(fd, UN, 0, 0)
        tell("a-let-go")
    else:
        tell("b-blocks")
        expect("blocked-lock-granted", lock(fd, EX, 0, 10, block=True), True)
        wait_for("a-let-go")
        waited = time.time() - os.stat(os.path.join(CTL, "a-let-go")).st_mtime
        result("granted-by-callback", None if waited < 15 else f"only after {waited:.1f} s")
    meet()
    # An interrupted request is cancelled: it must not be granted later.
    if a:
        try:
            with alarm(3):
                lock(fd, EX, 0, 10, block=True)
            result("interruptible", "was granted")
        except InterruptedError:
            result("interruptible")
    meet()
    if not a:
        lock(fd, UN, 0, 0)
        time.sleep(2)
        expect("cancelled-stays-cancelled", holder(fd, EX, 0, 10), None)
    meet()
    expect("shared-together", lock(fd, SH, 0, 100), True)
    meet()
    if a:
        expect("upgrade-refused", lock(fd, EX, 0, 100), False)
    meet()
    if not a:
        lock(fd, UN, 0, 0)
    meet()
    if a:
        expect("upgrade-granted", lock(fd, EX, 0, 100), True)
        expect("punched-out", lock(fd, UN, 40, 20), True)
    meet()
    if not a:
        expect("gap-granted", lock(fd, EX, 40, 20), True)
        expect("left-of-gap-refused", lock(fd, EX, 39, 1), False)
        expect("right-of-gap-refused", lock(fd, EX, 60, 1), False)
        lock(fd, UN, 0, 0)
    meet()
    if a:
        lock(fd, UN, 0, 0)
    meet()
    # Whole-file flock(2) travels as a lock too.
    if a:
        fcntl.flock(fd, fcntl.LOCK_EX)
    meet()
    if not a:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            result("flock-refused", "was granted")
        except BlockingIOError:
            result("flock-refused")
    meet()
    if a:
        fcntl.flock(fd, fcntl.LOCK_UN)
    meet()
    # What was written under a lock is seen under the next one: a counter raised by both in turns.
    for _ in range(50):
        lock(fd, EX, 0, 8, block=True)
        n = struct.unpack("q", os.pread(fd, 8, 0))[0]
        os.pwrite(fd, struct.pack("q", n + 1), 0)
        lock(fd, UN, 0, 8)
    meet()
    if a:
        lock(fd, SH, 0, 8, block=True)
        expect("counter-under-locks", struct.unpack("q", os.pread(fd, 8, 0))[0], 100)
        lock(fd, UN, 0, 8)
    meet()
    # A process that ends lets go of its locks.
    if a:
        if (pid := os.fork()) == 0:
            d = os.open(FILE, os.O_RDWR)
            lock(d, EX, 300, 10)
            os._exit(0)
        os.waitpid(pid, 0)
    meet()
    if not a:
        expect("freed-at-exit", lock(fd, EX, 300, 10), True)
        lock(fd, UN, 0, 0)
    meet()


def server_crash(fd):
    a = ROLE == "a"
    expect("lock-before-crash", lock(fd, *((EX, 0, 10) if a else (SH, 20, 10))), True)
    meet()
    if a:
        tell("crash")
        wait_for("crash.done")
    meet()
    began = time.monotonic()
    # In the grace period only reclaims are granted: a new request that conflicts with what the other
    # machine held must not slip in, and one that conflicts with nothing is granted afterwards.
    expect("reclaimed-by-the-other", lock(fd, *((EX, 20, 10) if a else (EX, 0, 10))), False)
    print(f"# {ROLE}: definite answer {time.monotonic() - began:.1f} s after the restart", flush=True)
    expect("new-lock-after-grace", lock(fd, EX, 500 if a else 600, 10), True)
    meet()
    expect("still-held", lock(fd, *((EX, 20, 10) if a else (EX, 0, 10))), False)
    meet()
    lock(fd, UN, 0, 0)
    meet()
    expect("after-unlock", lock(fd, *((EX, 20, 10) if a else (EX, 0, 10))), True)
    meet()


fd = os.open(FILE, os.O_RDWR | os.O_CREAT, 0o666)
if ROLE in "ab":
    if ROLE == "a":
        os.pwrite(fd, bytes(8), 0)
        os.fsync(fd)
    two_clients(fd)
    server_crash(fd)
elif ROLE == "dies":
    expect("lock", lock(fd, EX, 0, 10), True)
    tell("locked")
elif ROLE == "denied":
    expect("held-by-a-dead-client", lock(fd, EX, 0, 10), False)
elif ROLE == "freed":
    end = time.monotonic() + 20
    while not (got := lock(fd, EX, 0, 10)) and time.monotonic() < end:
        time.sleep(0.5)
    expect("after-the-client-came-back", got, True)
    os.unlink(FILE)
if ROLE == "dies":
    signal.pause()
sys.exit(failures != 0)
