"""One volume over NFSv3, NFSv4.2 and SMB at once from two machines, at random, against a model. Prints "ok NAME" or "FAIL NAME why".

Usage: protocols.py ROLE SEED TURNS CONTROL MOUNT=FOLDER... Roles a and b run at the same time on two machines with the same mounts.
Both draw the same operations from the seed and keep the same model; each does those that fall to it, over the mount that is drawn, and
compares what it gets with what the model says: contents, sizes, modes, links, listings, errors, and who has which byte range locked. So what is
done over one protocol on one machine has to be there for the next operation over another protocol on the other one. Locks are held by
files that stay open; all else is opened and closed by each operation, as NFS promises no more.
"""
import errno
import fcntl
import os
import random
import struct
import sys
import time

ROLE, SEED, TURNS, CTL, *MOUNTS = sys.argv[1:]
MOUNTS = dict(pair.split("=") for pair in MOUNTS)
PATIENCE = 120  # seconds for the other machine; beyond it something hangs
SLOTS, SLOT = 8, 100  # Byte ranges that are locked, and their length.
DIRECTORIES = ["", "d0/", "d1/"]
NAMES = ["f0", "f1", "q:3", "Grüße", "end."]


class Model:
    """What there is: `files` by path, two of which may be one file; `directories`; `locks` by range, as (holder, exclusive)."""

    def __init__(self):
        self.files, self.directories, self.locks = {}, {""}, {}

    def names(self, directory):
        inside = [p for p in (*self.files, *self.directories) if p.startswith(directory) and p.rstrip("/") != directory.rstrip("/")]
        return sorted({p[len(directory):].split("/")[0] for p in inside})


class File:
    def __init__(self, mode):
        self.data, self.mode = bytearray(), mode


def said(error):
    """Servers and clients of the two worlds say some things in one way."""
    same = {errno.EACCES: errno.EAGAIN}
    return errno.errorcode[same.get(error, error)]


def attempt(what, fine=None):
    """What a call says, or its error."""
    try:
        got = what()
        return fine if fine is not None else got
    except OSError as e:
        return said(e.errno)


def opened(path, flags, what, mode=0o666):
    fd = os.open(path, flags, mode)
    try:
        return what(fd)
    finally:
        os.close(fd)


def whole(path):
    with open(path, "rb") as file:
        return file.read()


class Actor:
    """Draws operations and knows what each has to say; `do` is false on the machine that does not do it."""

    def __init__(self, rand):
        self.rand, self.model, self.held = rand, Model(), {}

    def path(self):
        return self.rand.choice(DIRECTORIES) + self.rand.choice(NAMES)

    def parent_is_there(self, path):
        return path.rpartition("/")[0] + "/" * ("/" in path) in self.model.directories

    def operation(self, top, mount, role, do):
        """The name of an operation, what the model says, and what was got, if it was done."""
        r, m = self.rand, self.model
        kind = r.choices(["write", "append", "cut", "read", "stat", "list", "unlink", "rename", "link", "mkdir", "rmdir", "exclusive", "chmod", "lock",
                          "unlock"], [6, 4, 3, 6, 4, 3, 3, 4, 2, 3, 2, 2, 2, 5, 3])[0]
        path, other = self.path(), self.path()
        here, there = top + path, top + other
        file = m.files.get(path)
        missing = None if self.parent_is_there(path) else "ENOENT"
        if kind in ("write", "append", "cut"):
            at, data, size = r.randrange(70_000), r.randbytes(r.choice([1, 100, 5000, 70_000])), r.randrange(80_000)
            expected = missing or "done"
            if not missing:
                file = file or m.files.setdefault(path, File(0o666))
                if kind == "cut":
                    file.data[:] = file.data[:size].ljust(size, b"\0")
                else:
                    at = len(file.data) if kind == "append" else at
                    file.data[:] = file.data.ljust(at + len(data), b"\0")
                    file.data[at:at + len(data)] = data
            flags = os.O_RDWR | os.O_CREAT | (os.O_APPEND if kind == "append" else 0)
            act = {"write": lambda fd: os.pwrite(fd, data, at), "append": lambda fd: os.write(fd, data),
                   "cut": lambda fd: os.ftruncate(fd, size)}[kind]
            got = do and attempt(lambda: opened(here, flags, act), "done")
        elif kind == "read":
            expected = bytes(file.data) if file else "ENOENT"
            got = do and attempt(lambda: whole(here))
        elif kind == "stat":
            # Linux 6.1 takes what it has opened over SMB for a file of one name while it has a lease.
            counts = not mount.startswith("smb")
            links = sum(f is file for f in m.files.values()) if counts else None
            expected = (len(file.data), links) if file else "ENOENT"
            got = do and attempt(lambda: (lambda s: (s.st_size, s.st_nlink if counts else None))(os.stat(here)))
        elif kind == "list":
            directory = path = r.choice(DIRECTORIES)
            expected = m.names(directory) if directory in m.directories else "ENOENT"
            got = do and attempt(lambda: sorted(os.listdir(top + directory)))
        elif kind == "unlink":
            expected = "done" if m.files.pop(path, None) else "ENOENT"
            got = do and attempt(lambda: os.unlink(here), "done")
        elif kind in ("rename", "link"):
            inside = self.parent_is_there(other)
            if not file or not inside:
                expected = "ENOENT"
            elif kind == "link" and other in m.files:
                expected = "EEXIST"
            else:
                expected = "done"
                # rename(2): two names of one file stay both.
                if kind == "rename" and m.files.get(other) is not file:
                    del m.files[path]
                m.files[other] = file
            call = os.rename if kind == "rename" else os.link
            got = do and attempt(lambda: call(here, there), "done")
        elif kind in ("mkdir", "rmdir"):
            directory = path = r.choice(DIRECTORIES[1:])
            has = directory in m.directories
            if kind == "mkdir":
                expected = "EEXIST" if has else "done"
                m.directories.add(directory)
                got = do and attempt(lambda: os.mkdir(top + directory, 0o777), "done")
            else:
                expected = "ENOENT" if not has else "ENOTEMPTY" if m.names(directory) else "done"
                if expected == "done":
                    m.directories.discard(directory)
                got = do and attempt(lambda: os.rmdir(top + directory), "done")
        elif kind == "exclusive":
            expected = missing or ("EEXIST" if file else "done")
            if expected == "done":
                m.files[path] = File(0o666)
            got = do and attempt(lambda: opened(here, os.O_WRONLY | os.O_CREAT | os.O_EXCL, lambda fd: None), "done")
        elif kind == "chmod":
            # By NFS, where all have the mode; seen by NFS.
            mode = r.choice([0o666, 0o676, 0o767])
            if mount.startswith("smb"):
                return self.operation(top, mount, role, do)
            expected = mode if file else "ENOENT"
            got = do and attempt(lambda: (os.chmod(here, mode), os.stat(here).st_mode & 0o777)[1])
        else:
            slot, exclusive = r.randrange(SLOTS), r.random() < 0.6
            holder = (role, mount)
            holders = m.locks.setdefault(slot, {})
            if kind == "unlock":
                holders.pop(holder, None)
                expected, how = "done", fcntl.F_UNLCK
            else:
                if holder in holders:
                    return self.operation(top, mount, role, do)
                free = not any(exclusive or held for who, held in holders.items())
                expected = "done" if free else "EAGAIN"
                if free:
                    holders[holder] = exclusive
                how = fcntl.F_WRLCK if exclusive else fcntl.F_RDLCK
            path = f"locks {slot} {'exclusive' if exclusive else 'shared'}"
            if do:
                fd = self.held.get(mount)
                if fd is None:
                    fd = self.held[mount] = os.open(top + "locks", os.O_RDWR)
                wanted = struct.pack("hhqqi4x", how, os.SEEK_SET, slot * SLOT, SLOT, 0)
                got = attempt(lambda: fcntl.fcntl(fd, fcntl.F_SETLK, wanted), "done")
        return f"{kind} {path}" + (f" {other}" if kind in ("rename", "link") else ""), expected, do and got


def meet(name):
    """Waits for what the other machine has to tell."""
    end = time.monotonic() + PATIENCE
    while not os.path.exists(f"{CTL}/{name}"):
        if os.path.exists(f"{CTL}/failed"):
            print(f"# the other machine has failed before {name}", flush=True)
            os._exit(0)
        if time.monotonic() > end:
            print(f"FAIL {ROLE}-meeting {name} did not come within {PATIENCE} s", flush=True)
            os._exit(1)
        time.sleep(0.002)


def shown(value):
    return f"{len(value)} bytes" if isinstance(value, bytes) else repr(value)


def differs(expected, got):
    if expected == got:
        return None
    if isinstance(expected, bytes) and isinstance(got, bytes):
        at = next((i for i, (a, b) in enumerate(zip(expected, got)) if a != b), min(len(expected), len(got)))
        return f"{len(got)} bytes instead of {len(expected)}, from byte {at} on {got[at:at + 8].hex()} instead of {expected[at:at + 8].hex()}"
    return f"{shown(got)} instead of {shown(expected)}"


def main():
    rand = random.Random(SEED)
    actor = Actor(rand)
    os.umask(0)
    if ROLE == "a":
        first = next(iter(MOUNTS.values()))
        opened(first + "/locks", os.O_RDWR | os.O_CREAT, lambda fd: os.write(fd, bytes(SLOTS * SLOT)))
    actor.model.files["locks"] = File(0o666)
    actor.model.files["locks"].data[:] = bytes(SLOTS * SLOT)
    role, before = "a", []
    for turn in range(int(TURNS)):
        new = rand.choice("ab")
        if new != role or turn == 0:
            # It is the other one's turn: what was done before is done.
            if role == ROLE and turn > 0:
                open(f"{CTL}/{turn}", "w").close()
            elif turn > 0:
                meet(turn)
                # Nobody waits until a client has heard that what it has read is no more so.
                time.sleep(0.05)
            role = new
        mount = rand.choice(list(MOUNTS))
        if role == ROLE and mount.startswith("smb"):
            # Linux 6.1 believes another name that a file had once as long as it has a lease on the file, and pages of before the lease
            # when it comes to the file by a name that it did not know.
            with open("/proc/sys/vm/drop_caches", "w") as drop:
                drop.write("3")
        name, expected, got = actor.operation(MOUNTS[mount] + "/", mount, role, role == ROLE)
        before.append(f"{turn} {role} {mount} {name}")
        if role == ROLE:
            why = differs(expected, got)
            if why:
                print(f"FAIL {ROLE}-turn-{turn} {mount}: {name}: {why}", flush=True)
                names = {path for path, file in actor.model.files.items() if file is actor.model.files.get(name.split()[1])} | set(name.split()[1:])
                of_it = [done for done in before if names & set(done.split()[4:])]
                print("# before: " + "; ".join(before[-20:]), flush=True)
                print("# of the same names: " + "; ".join(of_it[-40:]), flush=True)
                for pause in (0, 2):
                    time.sleep(pause)
                    for one, top in MOUNTS.items():
                        there = {path: differs(bytes(file.data), attempt(lambda: whole(f"{top}/{path}"))) for path, file in actor.model.files.items()}
                        print(f"# {pause} s later by {one}: {({path: why for path, why in there.items() if why})}", flush=True)
                # From here on the model is not what is there.
                open(f"{CTL}/failed", "w").close()
                os._exit(1)
    if role != ROLE:
        meet(f"end-{role}")
    for fd in actor.held.values():
        os.close(fd)
    open(f"{CTL}/end-{ROLE}", "w").close()
    meet(f"end-{'b' if ROLE == 'a' else 'a'}")
    time.sleep(0.05)
    for mount, top in MOUNTS.items():
        for path, file in actor.model.files.items():
            why = differs(bytes(file.data), attempt(lambda: whole(f"{top}/{path}")))
            print(f"FAIL {ROLE}-{mount}-at-the-end {path}: {why}" if why else f"ok {ROLE}-{mount}-{path.replace(' ', '_')}", flush=True)
    print(f"ok {ROLE}-{TURNS}-turns", flush=True)


main()
