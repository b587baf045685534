"""Operations at contents over NFSv3, NFSv4 and SMB, each with its status: what tests need that compare the protocols."""

import os
import random
import struct
import sys

import attacker
import test_nfs4
from attacker import NFS, auth_sys, opaque
from test_nfs4 import GETFH, OK, OPEN, PUTFH, READ, WRITE, op

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "smb"))
import smbwire  # noqa: E402

LOCK, SETATTR, SAVEFH = 12, 34, 32
ALLOCATE, COPY, DEALLOCATE, OFFLOAD_STATUS, READ_PLUS, SEEK, CLONE = 59, 60, 62, 67, 68, 69, 71
# Special stateids (RFC 8881 §8.2.3).
ANONYMOUS, BYPASS = bytes(16), b"\xff" * 16
SIZE, MODE = 4, 33
NO_DELEGATION = 0x400
CALL = 0


def fattr(attribute, value):
    """An fattr4 of one attribute."""
    words = attribute // 32 + 1
    mask = [0] * words
    mask[-1] = 1 << attribute % 32
    return struct.pack(f">I{words}I", words, *mask) + opaque(value)


def mode(bits):
    return fattr(MODE, struct.pack(">I", bits))


def size(length):
    return fattr(SIZE, struct.pack(">Q", length))


class Nfs4(test_nfs4.Client):
    """A client whose calls are those of one user, over the given minor version. It answers calls that it gets."""

    uid, minor = 0, 2

    def receive(self):
        while True:
            message = super().receive()
            if struct.unpack(">I", message[4:8])[0] != CALL:
                return message
            # A callback on the connection: CB_NULL and CB_COMPOUND alike succeed with nothing.
            self.send(attacker.record(message[:4] + struct.pack(">IIIII", 1, 0, 0, 0, 0)))

    def compounds(self, requests):
        credential = auth_sys(self.uid, self.uid)
        uses = range(len(requests))
        self.send(b"".join(attacker.record(attacker.call(NFS, 4, 1, requests[n], n, credential)) for n in uses))
        replies = {}
        for _ in uses:
            reply = self.receive()
            replies[struct.unpack(">I", reply[:4])[0]] = struct.unpack(">I", reply[24:28])[0], reply[28:]
        return [replies[n] for n in uses]

    def next(self, slot, *ops, cache=False):
        text = super().next(slot, *ops, cache=cache)
        return text[:4] + struct.pack(">I", self.minor) + text[8:]

    def handle(self, *ops):
        """The file handle that GETFH behind these operations returns."""
        status, body = self.run(*ops, op(GETFH))
        assert status == OK, status
        at = body.rindex(struct.pack(">II", GETFH, OK)) + 8
        (length,) = struct.unpack(">I", body[at:at + 4])
        return body[at + 4:at + 4 + length]

    def open(self, file, access, owner, claim=b"\0\0\0\4", how=NO_DELEGATION):
        """The status, and the stateid. The claim is CLAIM_FH unless another is given; no delegation is wanted."""
        status, body = self.opened(file, access, owner, claim, how)
        return status, body[16:32]

    def opened(self, file, access, owner, claim=b"\0\0\0\4", how=NO_DELEGATION):
        """The status, and all results of PUTFH and OPEN."""
        head = struct.pack(">IIIQ", 0, access | how, 0, self.id) + opaque(owner)
        return self.run(op(PUTFH, opaque(file)), op(OPEN, head + struct.pack(">I", 0) + claim))

    def make(self, root, name, bits):
        """The handle of a new file, and the stateid of its open for both."""
        head = struct.pack(">IIIQ", 0, 3 | NO_DELEGATION, 0, self.id) + opaque(name)
        how = struct.pack(">II", 1, 0) + mode(bits) + struct.pack(">I", 0) + opaque(name)
        status, body = self.run(op(PUTFH, opaque(root)), op(OPEN, head + how), op(GETFH))
        assert status == OK, status
        at = body.rindex(struct.pack(">II", GETFH, OK)) + 8
        (length,) = struct.unpack(">I", body[at:at + 4])
        return body[at + 4:at + 4 + length], body[16:32]

    def at(self, file, number, arguments):
        """The status and the results of one operation at a file."""
        status, body = self.run(op(PUTFH, opaque(file)), op(number, arguments))
        return status, body[16:]

    def between(self, source, target, number, arguments):
        """The same of an operation from one file to another."""
        status, body = self.run(op(PUTFH, opaque(source)), op(SAVEFH), op(PUTFH, opaque(target)), op(number, arguments))
        return status, body[32:]

    def read(self, file, state, offset, count):
        status, body = self.at(file, READ, state + struct.pack(">QI", offset, count))
        return status, body[8:8 + struct.unpack(">I", body[4:8])[0]] if status == OK else None

    def read_plus(self, file, state, offset, count):
        """The same by READ_PLUS, with the holes as zeros."""
        status, body = self.at(file, READ_PLUS, state + struct.pack(">QI", offset, count))
        if status != OK:
            return status, None
        (segments,), data, at = struct.unpack(">I", body[4:8]), b"", 8
        for _ in range(segments):
            kind, _, = struct.unpack(">IQ", body[at:at + 12])
            if kind == 1:
                data, at = data + bytes(struct.unpack(">Q", body[at + 12:at + 20])[0]), at + 20
            else:
                (length,) = struct.unpack(">I", body[at + 12:at + 16])
                data, at = data + body[at + 16:at + 16 + length], at + 16 + length + -length % 4
        return status, data

    def write(self, file, state, offset, data, stable=0):
        """The status, and how many bytes were written."""
        status, body = self.at(file, WRITE, state + struct.pack(">QI", offset, stable) + opaque(data))
        return status, struct.unpack(">I", body[:4])[0] if status == OK else 0

    def seek(self, file, state, offset, what):
        """The status, and the place of the data (0) or the hole (1)."""
        status, body = self.at(file, SEEK, state + struct.pack(">QI", offset, what))
        return status, struct.unpack(">Q", body[4:12])[0] if status == OK else None


def copy_args(states, source, target, count, synchronous=True):
    return b"".join(states) + struct.pack(">QQQIII", source, target, count, 1, synchronous, 0)


def clone_args(states, source, target, count):
    return b"".join(states) + struct.pack(">QQQ", source, target, count)


class Nfs3(attacker.Client):
    """Calls of one user over NFSv3, each with its status. None counts as one that was sent before."""

    uid = 0

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.calls = random.getrandbits(30)

    def asked(self, *calls):
        """The statuses, and the results behind them, of calls that are sent without waiting."""
        begun, self.calls = self.calls, self.calls + len(calls)
        credential = auth_sys(self.uid, self.uid)
        self.send(b"".join(attacker.record(attacker.call(NFS, 3, procedure, arguments, begun + n, credential))
                           for n, (procedure, arguments) in enumerate(calls)))
        replies = {}
        for _ in calls:
            reply = self.receive()
            xid, _, denied, _, length, accepted = struct.unpack(">IIIIII", reply[:24])
            assert (denied, length, accepted) == (0, 0, 0), reply
            replies[xid] = struct.unpack(">I", reply[24:28])[0], reply[28:]
        return [replies[begun + n] for n in range(len(calls))]

    def ask(self, procedure, arguments):
        return self.asked((procedure, arguments))[0]

    def lookup(self, folder, name):
        status, results = self.ask(3, opaque(folder) + opaque(name))
        assert status == OK, status
        (length,) = struct.unpack(">I", results[:4])
        return results[4:4 + length]

    def make(self, folder, name, bits):
        sattr = struct.pack(">II", 1, bits) + bytes(20)
        status, results = self.ask(8, opaque(folder) + opaque(name) + struct.pack(">I", 0) + sattr)
        assert status == OK, status
        (length,) = struct.unpack(">I", results[4:8])
        return results[8:8 + length]

    def read(self, file, offset, count):
        status, results = self.ask(6, opaque(file) + struct.pack(">QI", offset, count))
        if status != OK:
            return status, None
        at = 4 + (84 if results[:4] != bytes(4) else 0)
        _, _, length = struct.unpack(">III", results[at:at + 12])
        return status, results[at + 12:at + 12 + length]

    def write(self, file, offset, data, stable=0):
        status, results = self.ask(7, opaque(file) + struct.pack(">QII", offset, len(data), stable) + opaque(data))
        if status != OK:
            return status, 0
        before = 4 + (24 if results[:4] != bytes(4) else 0)
        after = before + 4 + (84 if results[before:before + 4] != bytes(4) else 0)
        return status, struct.unpack(">I", results[after:after + 4])[0]

    def set(self, file, bits=None, uid=None, gid=None, length=None, times=(0, 0)):
        """SETATTR of what is given; `times`: how those of access and modification are set, 1 to the server's, 2 to 1970."""
        args = b"".join(struct.pack(">I", 0) if value is None else struct.pack(">II", 1, value) for value in (bits, uid, gid))
        args += struct.pack(">I", 0) if length is None else struct.pack(">IQ", 1, length)
        args += b"".join(struct.pack(">I", how) + (bytes(8) if how == 2 else b"") for how in times)
        return self.ask(2, opaque(file) + args + bytes(4))[0]


class Smb(smbwire.Client):
    """A session that keeps statuses as numbers, and may be connected to several shares."""

    END_OF_FILE = 0xC0000011

    def asked(self, command, body):
        """The status, and the body of the answer."""
        self.send(command, body)
        _, status, body = self.receive()
        return status, body

    def opened(self, name, access, disposition=smbwire.OPEN, options=0x40, share=smbwire.SHARE_ALL):
        """The status, and the id of the open."""
        name = name.encode("utf-16-le")
        body = struct.pack("<HBBI16sIIIIIHHII", 57, 0, 0, 2, b"", access, 0, share, disposition, options, 120, len(name), 0, 0)
        status, answer = self.asked(smbwire.CREATE, body + (name or b"\0"))
        return status, answer[64:80]

    def maximal(self, name):
        """The maximal access that a CREATE for attributes is told (MS-SMB2 §2.2.14.2.5), or None if it is refused."""
        name = name.encode("utf-16-le")
        context = struct.pack("<IHHHHI", 0, 16, 4, 0, 0, 0) + b"MxAc" + bytes(4)
        at = 64 + 56 + len(name) + -len(name) % 8
        body = struct.pack("<HBBI16sIIIIIHHII", 57, 0, 0, 2, b"", 0x80, 0, smbwire.SHARE_ALL, smbwire.OPEN, 0x40, 120, len(name), at,
                           len(context))
        status, answer = self.asked(smbwire.CREATE, body + name + bytes(-len(name) % 8) + context)
        if status != 0:
            return None
        assert self.closed(answer[64:80]) == 0
        found = answer.index(b"MxAc", 88)
        status, access = struct.unpack_from("<II", answer, found + 8)
        assert status == 0, hex(status)
        return access

    def closed(self, file):
        return self.asked(smbwire.CLOSE, struct.pack("<HHI16s", 24, 0, 0, file))[0]

    def get(self, file, offset, count):
        """The status, and the data of a READ."""
        body = struct.pack("<HBBIQ16sIIIHHB", 49, 0, 0, count, offset, file, 0, 0, 0, 0, 0, 0)
        status, answer = self.asked(smbwire.READ, body)
        return status, answer[16:16 + struct.unpack_from("<I", answer, 4)[0]] if status == 0 else b""

    def put(self, file, offset, data):
        body = struct.pack("<HHIQ16sIIHHI", 49, 112, len(data), offset, file, 0, 0, 0, 0, 0) + data
        return self.asked(smbwire.WRITE, body)[0]

    def control(self, file, code, data=b"", most=65536):
        """The status and the output of a control (MS-SMB2 §2.2.31)."""
        body = struct.pack("<HHI16sIIIIIIII", 57, 0, code, file, 120, len(data), 0, 0, 0, most, 1, 0) + data
        status, answer = self.asked(11, body)
        if len(answer) < 48:
            return status, b""
        at, length = struct.unpack_from("<II", answer, 32)
        return status, answer[at - 64:at - 64 + length]

    def set_info(self, file, number, data, kind=1, more=0):
        body = struct.pack("<HBBIHHI16s", 33, kind, number, len(data), 96, 0, more, file) + data
        return self.asked(smbwire.SET_INFO, body)[0]

    def query_info(self, file, number, kind=1, more=0):
        body = struct.pack("<HBBIHHIII16sB", 41, kind, number, 65536, 0, 0, 0, more, 0, file, 0)
        status, answer = self.asked(smbwire.QUERY_INFO, body)
        return status, answer[8:8 + struct.unpack_from("<I", answer, 4)[0]] if status == 0 else b""

    def query_directory(self, file):
        name = "*".encode("utf-16-le")
        return self.asked(14, struct.pack("<HBBI16sHHI", 33, 37, 1, 0, file, 96, len(name), 65536) + name)[0]

    def flushed(self, file):
        return self.asked(7, struct.pack("<HHI16s", 24, 0, 0, file))[0]


# Controls (MS-FSCC §2.3).
SET_SPARSE, SET_ZERO_DATA, QUERY_ALLOCATED_RANGES = 0x900C4, 0x980C8, 0x940CF
DUPLICATE_EXTENTS, RESUME_KEY, COPYCHUNK, COPYCHUNK_WRITE = 0x98344, 0x140078, 0x1440F2, 0x1480F2


def chunks(key, *ranges):
    """The input of FSCTL_SRV_COPYCHUNK: ranges of source, target and length."""
    return key[:24] + struct.pack("<II", len(ranges), 0) + b"".join(struct.pack("<QQII", *one, 0) for one in ranges)
