"""An NFSv3 client of as much as a writer takes: one connection, calls that are repeated until they are answered."""

import os
import socket
import struct
import time

from nfs3 import MOUNT, NFS, opaque

OK, NOENT, JUKEBOX = 0, 2, 10008
UNCHECKED, FILE_SYNC = 0, 2


class Failed(Exception):
    """A call was answered with this status."""

    def __init__(self, what, status):
        super().__init__(f"{what}: {status}")
        self.status = status


class Nfs3:
    """A client of a server at one of these addresses. A connection that is lost is made again, at the next address if need be, and the
    call is sent again under its number."""

    def __init__(self, addresses, port, seconds=60):
        self.places = [(address, port) for address in addresses]
        self.seconds = seconds
        self.socket = None
        self.xid = int.from_bytes(os.urandom(3), "big") << 8
        self.longest = 0.0
        self.told_later = 0

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def once(self, record):
        if self.socket is None:
            self.places.append(self.places.pop(0))
            self.socket = socket.create_connection(self.places[-1], 5)
            self.socket.settimeout(self.seconds)
        self.socket.sendall(record)
        while True:
            reply = b""
            last = False
            while not last:
                mark = struct.unpack(">I", self.read(4))[0]
                last = bool(mark >> 31)
                reply += self.read(mark & 0x7FFFFFFF)
            # A reply to a call that was repeated comes twice.
            if reply[:4] == record[4:8]:
                return reply

    def call(self, program, procedure, args):
        """The results of a call, without the head of the reply."""
        self.xid += 1
        sys = struct.pack(">I", 0) + opaque(b"move") + struct.pack(">IIII", 0, 0, 1, 0)
        body = struct.pack(">IIIIII", self.xid & 0xFFFFFFFF, 0, 2, program, 3, procedure)
        body += struct.pack(">I", 1) + opaque(sys) + struct.pack(">II", 0, 0) + args
        record = struct.pack(">I", len(body) | 1 << 31) + body
        began = time.monotonic()
        while True:
            try:
                reply = self.once(record)
                break
            except OSError:
                self.close()
                if time.monotonic() > began + self.seconds:
                    raise
                time.sleep(0.02)
        status, flavour, length = struct.unpack_from(">III", reply, 8)
        if status:
            raise Failed("rejected", status)
        accept = struct.unpack_from(">I", reply, 20 + length)[0]
        if accept:
            raise Failed("not accepted", accept)
        return reply[24 + length:]

    def nfs(self, what, procedure, args):
        """The results of an NFS call that has succeeded, behind the status."""
        began = time.monotonic()
        while True:
            results = self.call(NFS, procedure, args)
            status = struct.unpack_from(">I", results)[0]
            if status == JUKEBOX and time.monotonic() < began + self.seconds:
                self.told_later += 1
                time.sleep(0.05)
                continue
            self.longest = max(self.longest, time.monotonic() - began)
            if status:
                raise Failed(what, status)
            return results[4:]

    def mount(self, path):
        results = self.call(MOUNT, 1, opaque(path.encode()))
        status, length = struct.unpack_from(">II", results)
        if status:
            raise Failed(f"mount {path}", status)
        return results[8:8 + length]

    def lookup(self, folder, name):
        results = self.nfs(f"lookup {name}", 3, opaque(folder) + opaque(name.encode()))
        length = struct.unpack_from(">I", results)[0]
        return results[4:4 + length]

    def create(self, folder, name):
        args = opaque(folder) + opaque(name.encode()) + struct.pack(">I", UNCHECKED)
        args += struct.pack(">IIIIIII", 1, 0o644, 0, 0, 0, 0, 0)
        results = self.nfs(f"create {name}", 8, args)
        there, length = struct.unpack_from(">II", results)
        assert there
        return results[8:8 + length]

    def write(self, file, offset, data):
        args = opaque(file) + struct.pack(">QII", offset, len(data), FILE_SYNC) + opaque(data)
        self.nfs("write", 7, args)

    def fsid_and_fileid(self, file):
        results = self.nfs("getattr", 1, opaque(file))
        return struct.unpack_from(">QQ", results, 44)

    def content(self, file, size):
        data = b""
        while len(data) < size:
            want = min(65536, size - len(data))
            results = self.nfs("read", 6, opaque(file) + struct.pack(">QI", len(data), want))
            at = 4 + (84 if struct.unpack_from(">I", results)[0] else 0)
            count, _, length = struct.unpack_from(">III", results, at)
            if not count:
                break
            data += results[at + 12:at + 12 + length]
        return data
