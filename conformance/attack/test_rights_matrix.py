"""Rights at contents: export × caller × permissions × kind of open × operation, over NFSv3, NFSv4.1, NFSv4.2 and SMB.

The rows are generated. What each has to give is computed from its attributes by the rules in `may`, `may3`, `may4` and `may_smb`; its
source is named with the operation."""

import collections
import itertools
import os
import re
import struct
import subprocess
import tempfile
import unittest

import attacker
import wires
from attacker import opaque
from test_nfs4 import CLOSE, DELEGRETURN, DESTROY_SESSION, OK, PUTFH, READ, RECLAIM_COMPLETE, WRITE, creation, op
from wires import ANONYMOUS, BYPASS, clone_args, copy_args, smbwire

PASSWORD = "Cheese-4-Mice"
R, W, X = 4, 2, 1
PERMISSIONS = (0, R, W, R | W, X)
ROOT, USER, OTHER, GROUP, NOBODY = 0, 1000, 2000, 3000, 65534
LENGTH = 8192
EXPORTS = ("rw,no_root_squash", "rw,root_squash", "rw,all_squash", "ro,no_root_squash")
PERM, ACCESS, ROFS, OPENMODE, BAD_STATEID = 1, 13, 30, 10038, 10025

# A file: its owner, its group and its mode.
File = collections.namedtuple("File", "name uid gid mode")
# A caller as the server takes him.
Caller = collections.namedtuple("Caller", "uid gid")


def files():
    """For each class of callers and each set of its permissions a file that gives every other class what is missing."""
    made = []
    for permissions in PERMISSIONS:
        rest = 6 & ~permissions
        for words, uid, gid, bits in [
            ("owner", USER, GROUP, (permissions, rest, rest)), ("group", OTHER, USER, (rest, permissions, rest)),
            ("others", OTHER, GROUP, (rest, rest, permissions)), ("nobody", NOBODY, GROUP, (permissions, rest, rest)),
        ]:
            made.append(File(f"{words}{permissions}", uid, gid, bits[0] << 6 | bits[1] << 3 | bits[2]))
    return made


def effective(export, uid):
    """Who a caller is under an export (exports(5); docs/operating/server.md)."""
    squashed = "all_squash" in export or "root_squash" in export.split(",") and uid == ROOT
    return Caller(NOBODY, NOBODY) if squashed else Caller(uid, uid)


def permits(who, file, wanted):
    """POSIX.1-2017 §4.5, file access permissions."""
    if who.uid == ROOT:
        return wanted != X or file.mode & 0o111 != 0
    bits = file.mode >> 6 if who.uid == file.uid else file.mode >> 3 if who.gid == file.gid else file.mode
    return bits & wanted == wanted


def owns(who, file):
    return who.uid in (ROOT, file.uid)


def may3(who, file, takes):
    """RFC 1813 §4.4: the owner reads and writes whatever the mode, and who may execute a file reads it."""
    if takes == R:
        return permits(who, file, R) or permits(who, file, X) or who.uid == file.uid
    return permits(who, file, W) or who.uid == file.uid


def may4(who, file, takes):
    """RFC 8881 §18.16.3, §6.2.1.3.1: who may execute a file reads it; owners have no allowance (docs/reference/semantics.md)."""
    return permits(who, file, takes) or takes == R and permits(who, file, X)


def under(who, file, access, takes):
    """RFC 8881 §18.22.3, §18.32.3: an open gives what it was opened for; under one for writing who may read the file does."""
    if access == 0:
        return may4(who, file, takes)
    if takes == W:
        return access & 2 != 0
    return access & 1 != 0 or may4(who, file, R)


# NFSv3: name, procedure, arguments behind the handle, what decides, and the rule.
def sattr3(bits=None, uid=None, length=None, times=(0, 0)):
    args = b"".join(struct.pack(">I", 0) if value is None else struct.pack(">II", 1, value) for value in (bits, uid, None))
    args += struct.pack(">I", 0) if length is None else struct.pack(">IQ", 1, length)
    return args + b"".join(struct.pack(">I", how) + (bytes(8) if how == 2 else b"") for how in times) + bytes(4)


def content(takes):
    return lambda who, file: may3(who, file, takes)


OF_3 = [
    ("READ", 6, lambda f: struct.pack(">QI", 0, 16), R, content(R), "RFC 1813 §3.3.6, §4.4"),
    ("WRITE", 7, lambda f: struct.pack(">QII", 0, 2, 2) + opaque(b"xy"), W, content(W), "RFC 1813 §3.3.7, §4.4"),
    ("SETATTR size", 2, lambda f: sattr3(length=LENGTH), W, content(W), "RFC 1813 §3.3.2, §4.4"),
    ("SETATTR mode", 2, lambda f: sattr3(bits=f.mode), W, owns, "POSIX chmod()"),
    ("SETATTR owner", 2, lambda f: sattr3(uid=f.uid), W, owns, "POSIX chown()"),
    ("SETATTR time of the client", 2, lambda f: sattr3(times=(2, 2)), W, owns, "POSIX utimensat()"),
    ("SETATTR time of the server", 2, lambda f: sattr3(times=(1, 1)), W,
     lambda who, file: owns(who, file) or permits(who, file, W), "POSIX utimensat()"),
]

# NFSv4 under a stateid: name, the operation, what it takes, the least minor version, and the rule.
OF_4 = [
    ("READ", lambda s: op(READ, s + struct.pack(">QI", 0, 16)), R, 1, "RFC 8881 §18.22.3"),
    ("WRITE", lambda s: op(WRITE, s + struct.pack(">QI", 0, 2) + opaque(b"x")), W, 1, "RFC 8881 §18.32.3"),
    ("SETATTR size", lambda s: op(wires.SETATTR, s + wires.size(LENGTH)), W, 1, "RFC 8881 §18.30.3"),
    ("READ_PLUS", lambda s: op(wires.READ_PLUS, s + struct.pack(">QI", 0, 16)), R, 2, "RFC 7862 §15.10.3"),
    ("SEEK", lambda s: op(wires.SEEK, s + struct.pack(">QI", 0, 1)), R, 2, "RFC 7862 §15.11.3"),
    ("ALLOCATE", lambda s: op(wires.ALLOCATE, s + struct.pack(">QQ", 0, 4096)), W, 2, "RFC 7862 §15.1.3"),
    ("DEALLOCATE", lambda s: op(wires.DEALLOCATE, s + struct.pack(">QQ", 4096, 4096)), W, 2, "RFC 7862 §15.4.3"),
]
# From the file to the caller's own (reads it), and the other way (writes it).
BETWEEN = [
    ("COPY", lambda states: op(wires.COPY, copy_args(states, 0, 0, 4096)), "RFC 7862 §15.2.3"),
    ("CLONE", lambda states: op(wires.CLONE, clone_args(states, 0, 0, 4096)), "RFC 7862 §15.13.3"),
]
# Bits of ACCESS (RFC 1813 §3.3.4, RFC 8881 §18.1), and what each takes of a file.
SHOWN = {0x01: R, 0x04: W, 0x08: W, 0x20: X}

# SMB: bits of access.
READ_DATA, WRITE_DATA, APPEND_DATA, READ_EA, WRITE_EA, EXECUTE = 1, 2, 4, 8, 0x10, 0x20
READ_ATTRIBUTES, WRITE_ATTRIBUTES, DELETE, READ_CONTROL, WRITE_DAC, WRITE_OWNER = 0x80, 0x100, 0x10000, 0x20000, 0x40000, 0x80000
SINGLE = [READ_DATA, WRITE_DATA, APPEND_DATA, READ_EA, WRITE_EA, EXECUTE, READ_ATTRIBUTES, WRITE_ATTRIBUTES, DELETE, READ_CONTROL,
          WRITE_DAC, WRITE_OWNER]
MAXIMUM = 0x2000000
# ACCESS_DENIED, MEDIA_WRITE_PROTECTED, INVALID_OWNER.
DENIED, NO_EAS = {0xC0000022, 0xC00000A2, 0xC000005A}, 0xC0000052
RESTRICTED = {"time": struct.pack("<QQQQII", 0, 0, 132_000_000_000_000_000, 0, 0, 0)}


def utf16(text):
    return text.encode("utf-16-le")


def security(number, owner=None):
    """A descriptor with an owner, or with a list that lets everyone do everything (MS-DTYP §2.4.6)."""
    if number == 1:
        sid = struct.pack("<BB6sII", 1, 2, b"\0\0\0\0\0\x16", 1, owner)
        return struct.pack("<BBHIIII", 1, 0, 0x8000, 20, 0, 0, 0) + sid
    sid = struct.pack("<BB6sI", 1, 1, b"\0\0\0\0\0\x01", 0)
    ace = struct.pack("<BBHI", 0, 0, 8 + len(sid), 0x1F01FF) + sid
    acl = struct.pack("<BBHHH", 2, 0, 8 + len(ace), 1, 0) + ace
    return struct.pack("<BBHIIII", 1, 0, 0x8004, 0, 0, 0, 20) + acl


# Name, the call, bits of which the open must have one, and the rule.
OF_SMB = [
    ("READ", lambda c, f: c.get(f, 0, 16)[0], READ_DATA | EXECUTE, "MS-SMB2 §3.3.5.12"),
    ("WRITE", lambda c, f: c.put(f, 0, b"xy"), WRITE_DATA, "MS-SMB2 §3.3.5.13"),
    ("WRITE at the end", lambda c, f: c.put(f, LENGTH, b"xy"), WRITE_DATA | APPEND_DATA, "MS-SMB2 §3.3.5.13"),
    ("FLUSH", lambda c, f: c.flushed(f), WRITE_DATA | APPEND_DATA, "MS-SMB2 §3.3.5.11"),
    ("LOCK", lambda c, f: c.locked(f), READ_DATA | WRITE_DATA | APPEND_DATA | EXECUTE, "NtLockFile"),
    ("SET_ZERO_DATA", lambda c, f: c.control(f, wires.SET_ZERO_DATA, struct.pack("<QQ", 4096, 8192))[0], WRITE_DATA, "MS-FSA §2.1.5.10.39"),
    ("SET_SPARSE", lambda c, f: c.control(f, wires.SET_SPARSE)[0], WRITE_DATA | WRITE_ATTRIBUTES, "MS-FSA §2.1.5.10.38"),
    ("QUERY_ALLOCATED_RANGES", lambda c, f: c.control(f, wires.QUERY_ALLOCATED_RANGES, struct.pack("<QQ", 0, 4096))[0], READ_DATA,
     "MS-FSA §2.1.5.10.22"),
    ("COPYCHUNK from it", lambda c, f: c.copied(f, c.own, wires.COPYCHUNK), READ_DATA | EXECUTE, "MS-SMB2 §3.3.5.15.6"),
    ("COPYCHUNK_WRITE to it", lambda c, f: c.copied(c.own, f, wires.COPYCHUNK_WRITE), WRITE_DATA, "MS-SMB2 §3.3.5.15.6"),
    ("DUPLICATE_EXTENTS from it", lambda c, f: c.duplicated(f, c.own), READ_DATA, "MS-FSA §2.1.5.10.4"),
    ("DUPLICATE_EXTENTS to it", lambda c, f: c.duplicated(c.own, f), WRITE_DATA, "MS-FSA §2.1.5.10.4"),
    ("FileEndOfFileInformation", lambda c, f: c.set_info(f, 20, struct.pack("<Q", LENGTH)), WRITE_DATA, "MS-FSA §2.1.5.15.4"),
    ("FileAllocationInformation", lambda c, f: c.set_info(f, 19, struct.pack("<Q", LENGTH)), WRITE_DATA, "MS-FSA §2.1.5.15.1"),
    ("FileBasicInformation set", lambda c, f: c.set_info(f, 4, RESTRICTED["time"]), WRITE_ATTRIBUTES, "MS-FSA §2.1.5.15.2"),
    ("FileFullEaInformation set", lambda c, f: c.set_info(f, 15, struct.pack("<IBBH", 0, 0, 1, 1) + b"E\0v"), WRITE_EA,
     "MS-FSA §2.1.5.15.6"),
    ("FileDispositionInformation", lambda c, f: c.disposed(f), DELETE, "MS-FSA §2.1.5.15.3"),
    ("FileRenameInformation", lambda c, f: c.renamed(f), DELETE, "MS-FSA §2.1.5.15.12"),
    ("owner set", lambda c, f: c.set_info(f, 0, security(1, c.owner), 3, 1), WRITE_OWNER, "MS-FSA §2.1.5.17"),
    ("list set", lambda c, f: c.set_info(f, 0, security(4), 3, 4), WRITE_DAC, "MS-FSA §2.1.5.17"),
    ("FileBasicInformation", lambda c, f: c.query_info(f, 4)[0], READ_ATTRIBUTES, "MS-FSA §2.1.5.12.6"),
    ("FileAllInformation", lambda c, f: c.query_info(f, 18)[0], READ_ATTRIBUTES, "MS-FSA §2.1.5.12.3"),
    ("FileNetworkOpenInformation", lambda c, f: c.query_info(f, 34)[0], READ_ATTRIBUTES, "MS-FSA §2.1.5.12.22"),
    ("FileAttributeTagInformation", lambda c, f: c.query_info(f, 35)[0], READ_ATTRIBUTES, "MS-FSA §2.1.5.12.5"),
    ("FileFullEaInformation", lambda c, f: c.attributes(f), READ_EA, "MS-FSA §2.1.5.12.13"),
    ("security descriptor", lambda c, f: c.query_info(f, 0, 3, 7)[0], READ_CONTROL, "MS-FSA §2.1.5.14"),
]


class Smb(wires.Smb):
    """A session whose calls leave the file's name, size and locks as they were."""

    own = owner = None

    def locked(self, file):
        body = struct.pack("<HHI16sQQII", 48, 1, 0, file, 1 << 40, 1, 0x12, 0)
        status, _ = self.asked(smbwire.LOCK, body)
        if status == OK:
            self.asked(smbwire.LOCK, body[:-8] + struct.pack("<II", 4, 0))
        return status

    def copied(self, source, target, code):
        status, key = self.control(source, wires.RESUME_KEY)
        assert status == OK, hex(status)
        return self.control(target, code, wires.chunks(key, (0, 0, 4096)))[0]

    def duplicated(self, source, target):
        return self.control(target, wires.DUPLICATE_EXTENTS, source + struct.pack("<QQQ", 0, 0, 4096))[0]

    def disposed(self, file):
        status = self.set_info(file, 13, b"\1")
        if status == OK:
            assert self.set_info(file, 13, b"\0") == OK
        return status

    def attributes(self, file):
        status, _ = self.query_info(file, 15)
        return OK if status == NO_EAS else status

    def renamed(self, file):
        for name in "renamed", self.name:
            status = self.set_info(file, 10, struct.pack("<B7xQI", 0, 0, 2 * len(name)) + utf16(name))
            if status != OK:
                break
        return status


class Matrix(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        """One folder, with a file for each class and set of permissions; servers with other exports follow."""
        cls.folder = tempfile.TemporaryDirectory(prefix="weir-rights-")
        cls.addClassCleanup(cls.folder.cleanup)
        cls.data = os.path.join(cls.folder.name, "data")
        server = attacker.Server(data=cls.data)
        try:
            for name, uid in ("root", ROOT), ("user", USER):
                made = subprocess.run(
                    [attacker.weirtest.WEIR, "users", "create", name, "--uid", str(uid), "--gid", str(uid), "--data", cls.data],
                    input=PASSWORD + "\n", text=True, capture_output=True, timeout=30)
                assert made.returncode == 0, made.stderr
            client = wires.Nfs3(cls.port_of(server), timeout=60)
            root = client.mount()
            assert client.set(root, bits=0o777) == OK
            own = File("own", USER, USER, 0o600)
            anyone = File("anyone", USER, USER, 0o666)
            cls.files = files()
            cls.handles = {}
            for file in [*cls.files, own, anyone]:
                handle = cls.handles[file.name] = client.make(root, file.name.encode(), file.mode)
                assert client.write(handle, 0, b"d" * LENGTH, 2) == (OK, LENGTH)
                assert client.set(handle, uid=file.uid, gid=file.gid) == OK
                assert client.set(handle, bits=file.mode) == OK
            client.close()
        finally:
            server.close()

    @staticmethod
    def port_of(server, what=r"listening on"):
        return int(re.search(what + r" 127\.0\.0\.1:(\d+)", server.output())[1])

    def setUp(self):
        self.rows = 0

    def serve(self, export):
        server = attacker.Server("--export-options", export, "--smb", "127.0.0.1:0", data=self.data)
        self.addCleanup(server.close)
        return server

    def row(self, got, may, refused, rule, **attributes):
        self.rows += 1
        if (got == OK) != may or got != OK and got not in refused:
            with self.subTest(rule=rule, **attributes):
                self.fail(f"{got:#x}, {'allowed' if may else 'refused'} by the rule")

    def refusals(self, export, takes, refused):
        """What a refusal says: on an export for reading also that."""
        return refused | {ROFS} if export.startswith("ro") and takes == W else refused

    def test_nfs3(self):
        for export in EXPORTS:
            server = self.serve(export)
            changes = not export.startswith("ro")
            for uid in (ROOT, USER):
                who = effective(export, uid)
                client = wires.Nfs3(self.port_of(server), timeout=60)
                self.addCleanup(client.close)
                client.uid = uid
                for file in self.files:
                    handle = opaque(self.handles[file.name])
                    results = client.asked(*[(number, handle + arguments(file)) for _, number, arguments, *_ in OF_3])
                    for (name, _, _, takes, decides, rule), (status, _) in zip(OF_3, results):
                        may = decides(who, file) and (takes == R or changes)
                        self.row(status, may, self.refusals(export, takes, {PERM, ACCESS}), rule, protocol="NFSv3", export=export,
                                 uid=uid, file=file, operation=name)
                    status, results = client.ask(4, handle + struct.pack(">I", 0x3F))
                    self.shown(struct.unpack(">I", results[-4:])[0], who, file, changes, "RFC 1813 §3.3.4", export)
            server.close()
        print(f"{self.rows} rows over NFSv3", flush=True)

    def shown(self, bits, who, file, changes, rule, export):
        """The bits of ACCESS, which are the mode's."""
        self.rows += 1
        wanted = sum(bit for bit, takes in SHOWN.items() if permits(who, file, takes) and (takes != W or changes))
        if bits & sum(SHOWN) != wanted:
            with self.subTest(rule=rule, export=export, who=who, file=file):
                self.fail(f"ACCESS {bits:#x}, not {wanted:#x}")

    # NFSv4.

    def client4(self, server, uid, minor, name):
        client = wires.Nfs4(self.port_of(server), timeout=60)
        self.addCleanup(client.close)
        client.uid, client.minor = uid, minor
        status, client.id = client.introduce(name)
        self.assertEqual(status, OK)
        wanted = creation(client.id, 32)
        # With a back channel, without which nothing is delegated.
        status, body = client.compound(wanted[:16] + struct.pack(">I", 2) + wanted[20:])
        self.assertEqual(status, OK)
        client.session_id, client.numbers = body[16:32], [0] * 32
        status, _ = client.run(op(RECLAIM_COMPLETE, bytes(4)))
        self.assertEqual(status, OK)
        return client

    def forgotten(self, client, file, state):
        """The client goes, and the next server has no grace period for it."""
        self.assertEqual(client.at(file, CLOSE, bytes(4) + state)[0], OK)
        self.assertEqual(client.compound(op(DESTROY_SESSION, client.session_id))[0], OK)
        self.assertEqual(client.compound(op(57, struct.pack(">Q", client.id)))[0], OK)
        client.close()

    def operations(self, client, file, state, own, words, access, context):
        """All operations at a file under a stateid."""
        export, who, minor = context["export"], context["who"], context["minor"]
        handle, (mine, mine_state) = op(PUTFH, opaque(self.handles[file.name])), own
        todo = [(name, takes, rule, [handle, make(state)]) for name, make, takes, least, rule in OF_4 if minor >= least]
        if minor >= 2:
            there = op(PUTFH, opaque(mine))
            for name, make, rule in BETWEEN:
                todo.append((name + " from it", R, rule, [handle, op(wires.SAVEFH), there, make((state, mine_state))]))
                todo.append((name + " to it", W, rule, [there, op(wires.SAVEFH), handle, make((mine_state, state))]))
        requests = [client.next(slot, *ops) for slot, (_, _, _, ops) in enumerate(todo)]
        for (name, takes, rule, _), (status, _) in zip(todo, client.compounds(requests)):
            changes = not export.startswith("ro")
            may = under(who, file, access, takes) and (takes == R or changes)
            # What is copied to on an export for reading is never written.
            may = may and (changes or not name.endswith(" it"))
            refused = {ACCESS, OPENMODE} | ({ROFS} if not changes else set())
            self.row(status, may, refused, rule, file=file, kind=words, operation=name, **context)

    def kinds(self, client, file, own, context):
        """Every kind of open of a file, and all operations under each."""
        export, who, uid = context["export"], context["who"], context["uid"]
        handle, changes = self.handles[file.name], not export.startswith("ro")
        self.useless(client, file, own[1], "of another file", context)
        for words, state in ("zeros", ANONYMOUS), ("ones", BYPASS):
            self.operations(client, file, state, own, words, 0, context)
        for access in (1, 2, 3):
            may = (not access & 1 or may4(who, file, R)) and (not access & 2 or changes and may4(who, file, W))
            owner = b"%d %d" % (uid, access)
            status, state = client.open(handle, access, owner)
            self.row(status, may, {ACCESS, ROFS}, "RFC 8881 §18.16.3", file=file, kind=access, operation="OPEN", **context)
            if status != OK:
                continue
            self.operations(client, file, state, own, f"open for {access}", access, context)
            for kind, takes in (1, R), (2, W):
                locker = struct.pack(">II", 1, 0) + state + struct.pack(">IQ", 0, client.id) + opaque(b"%d" % access)
                status, body = client.at(handle, wires.LOCK, struct.pack(">IIQQ", kind, 0, 1 << 40, 1) + locker)
                self.row(status, bool(access & (1 if takes == R else 2)), {OPENMODE, ACCESS}, "RFC 8881 §18.10.3", file=file,
                         kind=access, operation=f"LOCK {kind}", **context)
                if status == OK:
                    lock = body[:16]
                    self.operations(client, file, lock, own, f"lock {kind} under an open for {access}", access, context)
                    status, body = client.at(handle, 14, struct.pack(">II", kind, 0) + lock + struct.pack(">QQ", 1 << 40, 1))
                    self.assertEqual(status, OK)
                    # FREE_STATEID, so that the next kind is locked anew.
                    self.assertEqual(client.run(op(45, body[:16]))[0], OK)
            status, _ = client.at(handle, CLOSE, bytes(4) + state)
            self.assertEqual(status, OK)
            self.useless(client, file, state, "closed", context)

    def useless(self, client, file, state, kind, context):
        """Stateids that name nothing of the file (RFC 8881 §8.2.4)."""
        handle = op(PUTFH, opaque(self.handles[file.name]))
        todo = [(name, make) for name, make, _, least, _ in OF_4 if context["minor"] >= least]
        requests = [client.next(slot, handle, make(state)) for slot, (_, make) in enumerate(todo)]
        for (name, _), (status, _) in zip(todo, client.compounds(requests)):
            self.row(status, False, {BAD_STATEID}, "RFC 8881 §8.2.4", file=file, kind=kind, operation=name, **context)

    def attributes(self, client, file, context):
        """What is set without a stateid (RFC 8881 §18.30.3), and extended attributes (RFC 8276 §8.4)."""
        todo = [("SETATTR mode", op(wires.SETATTR, ANONYMOUS + wires.mode(file.mode)), W, owns),
                ("SETATTR owner", op(wires.SETATTR, ANONYMOUS + wires.fattr(36, opaque(b"%d" % file.uid))), W, owns),
                ("SETATTR time of the client", op(wires.SETATTR, ANONYMOUS + wires.fattr(54, struct.pack(">IQI", 1, 0, 0))), W, owns),
                ("SETATTR time of the server", op(wires.SETATTR, ANONYMOUS + wires.fattr(54, bytes(4))), W,
                 lambda who, file: owns(who, file) or permits(who, file, W))]
        if context["minor"] >= 2:
            todo += [("SETXATTR", op(73, struct.pack(">I", 0) + opaque(b"user") + opaque(b"v")), W, lambda who, f: permits(who, f, W)),
                     ("LISTXATTRS", op(74, struct.pack(">QI", 0, 4096)), R, lambda who, f: may4(who, f, R))]
        who, changes = context["who"], not context["export"].startswith("ro")
        for name, operation, takes, decides in todo:
            status, _ = client.run(op(PUTFH, opaque(self.handles[file.name])), operation)
            may = decides(who, file) and (takes == R or changes)
            self.row(status, may, {PERM, ACCESS} | (set() if changes or takes == R else {ROFS}), "RFC 8881 §18.30.3, RFC 8276 §8.4",
                     file=file, operation=name, **context)

    def delegations(self, client, file, own, context):
        """The same under delegations, where the server gives one."""
        handle, given = self.handles[file.name], 0
        for access, wish in (1, 0x100), (3, 0x200):
            status, body = client.opened(handle, access, b"delegated %d" % access, how=wish)
            if status != OK:
                continue
            state, kind = body[16:32], struct.unpack(">I", body[60:64])[0]
            if kind in (1, 2):
                given += 1
                delegation = body[64:80]
                self.operations(client, file, delegation, own, f"delegation {kind}", 3 if kind == 2 else 1, context)
                self.assertEqual(client.at(handle, DELEGRETURN, delegation)[0], OK)
            self.assertEqual(client.at(handle, CLOSE, bytes(4) + state)[0], OK)
        return given

    def nfs4(self, minor):
        given = 0
        for export in EXPORTS:
            server = self.serve(export)
            for uid in (ROOT, USER):
                who = effective(export, uid)
                context = {"export": export, "uid": uid, "who": who, "minor": minor}
                client = self.client4(server, uid, minor, b"%s %d" % (export.encode(), uid))
                # A file of one's own, to copy from and to: anyone's. On an export for reading it is read.
                mine = self.handles["anyone"]
                status, state = client.open(mine, 1 if export.startswith("ro") else 3, b"mine")
                self.assertEqual(status, OK)
                for file in self.files:
                    self.kinds(client, file, (mine, state), context)
                    handle = self.handles[file.name]
                    status, body = client.at(handle, 3, struct.pack(">I", 0x3F))
                    self.shown(struct.unpack(">I", body[4:8])[0], who, file, not export.startswith("ro"), "RFC 8881 §18.1.3", export)
                    self.attributes(client, file, context)
                    given += self.delegations(client, file, (mine, state), context)
                self.forgotten(client, mine, state)
            server.close()
        print(f"{self.rows} rows over NFSv4.{minor}, {given} delegations", flush=True)
        self.assertGreater(given, 10)

    def test_nfs41(self):
        self.nfs4(1)

    def test_nfs42(self):
        self.nfs4(2)

    # SMB.

    def session(self, server, user):
        client = Smb(self.port_of(server, r"SMB on"), user, PASSWORD, os.urandom(16))
        self.addCleanup(client.close)
        client.connect("vol1")
        return client

    @staticmethod
    def granted(who, file, changes):
        """The access that permissions give, and the access that may be given or not (docs/reference/smb.md; MS-FSA §2.1.5.1.2.1)."""
        out = READ_ATTRIBUTES | READ_CONTROL | READ_EA | (DELETE if changes else 0)
        if permits(who, file, R):
            out |= READ_DATA | EXECUTE
        if permits(who, file, X):
            out |= EXECUTE
        if permits(who, file, W) and changes:
            out |= WRITE_DATA | APPEND_DATA | WRITE_EA | WRITE_ATTRIBUTES
        if owns(who, file):
            out |= WRITE_ATTRIBUTES | WRITE_DAC | WRITE_OWNER
        # On a share for reading the operations are refused.
        return out, 0 if changes else WRITE_ATTRIBUTES | WRITE_DAC | WRITE_OWNER | DELETE

    def test_smb(self):
        for export in EXPORTS:
            server = self.serve(export)
            changes = not export.startswith("ro")
            for user, uid in ("root", ROOT), ("user", USER):
                who = effective(export, uid)
                client = self.session(server, user)
                context = {"protocol": "SMB", "export": export, "uid": uid}
                for file in self.files:
                    self.opens(client, who, file, changes, context)
                self.granted_operations(client, who, changes, context)
                self.denials(client, self.session(server, user), context)
            server.close()
        print(f"{self.rows} rows over SMB", flush=True)

    def opens(self, client, who, file, changes, context):
        """A CREATE is granted if all of its access is, and MAXIMUM_ALLOWED gives just that."""
        allowed, either = self.granted(who, file, changes)
        rule = "MS-SMB2 §3.3.5.9"
        for wanted in SINGLE + [READ_DATA | WRITE_DATA, READ_DATA | DELETE, WRITE_DATA | READ_CONTROL]:
            status, opened = client.opened(file.name, wanted)
            if not wanted & either:
                self.row(status, wanted & ~allowed == 0, DENIED, rule, file=file, operation="CREATE", access=hex(wanted), **context)
            if status == OK:
                self.assertEqual(client.closed(opened), OK)
        status, opened = client.opened(file.name, MAXIMUM)
        self.assertEqual(status, OK)
        status, got = client.query_info(opened, 8)
        self.assertEqual(status, OK)
        (got,) = struct.unpack("<I", got)
        self.rows += 1
        if (got ^ allowed) & sum(SINGLE) & ~either:
            with self.subTest(rule=rule, file=file, **context):
                self.fail(f"MAXIMUM_ALLOWED {got:#x}, not {allowed:#x}")
        self.assertEqual(client.closed(opened), OK)

    def denials(self, client, other, context):
        """An open that uses no data denies nothing to others (MS-FSA §2.1.5.1.2.2)."""
        for access in (READ_ATTRIBUTES, READ_CONTROL, READ_EA):
            status, opened = client.opened("anyone", access, share=0)
            self.assertEqual(status, OK)
            status, second = other.opened("anyone", READ_DATA, share=7)
            self.row(status, True, set(), "MS-FSA §2.1.5.1.2.2", operation="CREATE beside it", access=hex(access), **context)
            if status == OK:
                self.assertEqual(other.closed(second), OK)
            self.assertEqual(client.closed(opened), OK)

    def granted_operations(self, client, who, changes, context):
        """Every operation under every access, at a file of which the caller may have all."""
        # To give it to root changes something, and is refused on an export for reading.
        client.name, client.owner = "anyone", who.uid if changes else ROOT
        status, client.own = client.opened("anyone", READ_DATA | (WRITE_DATA if changes else 0))
        self.assertEqual(status, OK)
        every = sum(SINGLE)
        combinations = [*SINGLE, every, *(every & ~bit for bit in SINGLE)]
        client.name = "subject"
        if changes:
            status, opened = client.opened("subject", WRITE_DATA, smbwire.OPEN_IF)
            self.assertEqual(status, OK)
            self.assertEqual(client.put(opened, 0, b"d" * LENGTH), OK)
            self.assertEqual(client.closed(opened), OK)
        for access, (name, call, bits, rule) in itertools.product(combinations, OF_SMB):
            status, opened = client.opened(client.name if changes else "anyone", access)
            if not changes and status != OK:
                continue
            self.assertEqual(status, OK, hex(access))
            status = call(client, opened)
            may = access & bits != 0
            changing = bits & (WRITE_DATA | APPEND_DATA | WRITE_EA | WRITE_ATTRIBUTES | DELETE | WRITE_DAC | WRITE_OWNER) != 0
            if name == "LOCK":
                changing = False
            if not changes and ("it" in name.split() or changing):
                may = False
            self.row(status, may, DENIED, rule, operation=name, access=hex(access), **context)
            self.assertEqual(client.closed(opened), OK)
        if changes:
            status, opened = client.opened("subject", DELETE)
            self.assertEqual((status, client.set_info(opened, 13, b"\1"), client.closed(opened)), (OK, OK, OK))
        self.assertEqual(client.closed(client.own), OK)


if __name__ == "__main__":
    unittest.main()
