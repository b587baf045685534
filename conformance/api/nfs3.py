"""As much of NFSv3 (RFC 1813) as tests need to make files, over AUTH_SYS, as root unless another user is named."""

import socket
import struct

NFS, MOUNT = 100003, 100005


def opaque(data):
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def attributes(mode=None, uid=None, gid=None, size=None, mtime=None):
    """A sattr3."""
    out = b""
    for value, form in ((mode, ">I"), (uid, ">I"), (gid, ">I"), (size, ">Q")):
        out += struct.pack(">I", 0) if value is None else struct.pack(">I", 1) + struct.pack(form, value)
    out += struct.pack(">I", 0)
    return out + (struct.pack(">I", 0) if mtime is None else struct.pack(">III", 2, *mtime))


class Nfs:
    """A connection and the root of an export."""

    def __init__(self, port, export, uid=0, gid=0):
        self.uid, self.gid = uid, gid
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        # Each call has a number of its own: a server does not repeat a call that it has done.
        self.xid = 0
        try:
            self.root = self.handle(self.call(MOUNT, 1, opaque(export.encode())))
        except OSError:
            self.close()
            raise

    @staticmethod
    def handle(result):
        length, = struct.unpack_from(">I", result)
        return result[4:4 + length]

    def call(self, program, procedure, arguments, version=3):
        """The result behind its status, which has to be 0."""
        status, result = self.ask(program, version, procedure, arguments)
        if status != 0:
            raise OSError(f"procedure {procedure} of {program}: accepted 0, status {status}")
        return result

    def ask(self, program, version, procedure, arguments):
        """The first word of the results, and what follows it."""
        credential = struct.pack(">I", 0) + opaque(b"test") + struct.pack(">III", self.uid, self.gid, 0)
        self.xid += 1
        message = struct.pack(">IIIIII", self.xid, 0, 2, program, version, procedure) + struct.pack(">I", 1)
        message += opaque(credential) + struct.pack(">II", 0, 0) + arguments
        self.socket.sendall(struct.pack(">I", 1 << 31 | len(message)) + message)
        length = struct.unpack(">I", self.receive(4))[0] & 0x7fffffff
        reply = self.receive(length)
        accepted, status = struct.unpack_from(">II", reply, 20)
        if accepted != 0:
            raise OSError(f"procedure {procedure} of {program}: accepted {accepted}")
        return status, reply[28:]

    def receive(self, count):
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            assert piece, "the server hung up"
            data += piece
        return data

    def close(self):
        self.socket.close()

    def made(self, result):
        """The handle that a call for a new name returns."""
        assert struct.unpack_from(">I", result)[0] == 1
        return self.handle(result[4:])

    def lookup(self, name, of=None):
        return self.handle(self.call(NFS, 3, opaque(of or self.root) + opaque(name)))

    def mkdir(self, name, of=None):
        return self.made(self.call(NFS, 9, opaque(of or self.root) + opaque(name) + attributes(mode=0o755)))

    def symlink(self, name, to, of=None):
        return self.made(self.call(NFS, 10, opaque(of or self.root) + opaque(name) + attributes() + opaque(to)))

    def remove(self, name, of=None):
        self.call(NFS, 12, opaque(of or self.root) + opaque(name))

    def put(self, name, data, of=None, **attrs):
        """Makes a file, or gives one another content, and then the attributes."""
        where = opaque(of or self.root) + opaque(name)
        file = self.made(self.call(NFS, 8, where + struct.pack(">I", 0) + attributes()))
        self.call(NFS, 2, opaque(file) + attributes(size=0) + struct.pack(">I", 0))
        self.write(file, data)
        if attrs:
            self.call(NFS, 2, opaque(file) + attributes(**attrs) + struct.pack(">I", 0))
        return file

    def write(self, file, data):
        """Writes over a file from its beginning."""
        for at in range(0, len(data), 65536):
            piece = data[at:at + 65536]
            # FILE_SYNC
            self.call(NFS, 7, opaque(file) + struct.pack(">QII", at, len(piece), 2) + opaque(piece))

    def stat(self, file):
        """Mode, uid, gid, size and mtime of a file."""
        result = self.call(NFS, 1, opaque(file))
        _, mode, _, uid, gid, size = struct.unpack_from(">IIIIIQ", result)
        return mode, uid, gid, size, struct.unpack_from(">II", result, 68)

    def read(self, file):
        data = b""
        while True:
            result = self.call(NFS, 6, opaque(file) + struct.pack(">QI", len(data), 65536))
            at = 4 + (84 if struct.unpack_from(">I", result)[0] else 0)
            count, end, length = struct.unpack_from(">III", result, at)
            data += result[at + 12:at + 12 + length]
            if end or not count:
                return data
