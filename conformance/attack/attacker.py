"""The server under attack, and the few RPC messages that attackers and bystanders send."""

import os
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
import weirtest  # noqa: E402
from weirtest import Server  # noqa: E402,F401

LONG = os.environ.get("ATTACK") == "long"
NFS, MOUNT, NLM, NSM = 100003, 100005, 100021, 100024


def opaque(data):
    """XDR's variable-length opaque (RFC 4506 §4.10)."""
    return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)


def auth_sys(uid=0, gid=0, host=b"attacker"):
    """A credential of AUTH_SYS with its empty verifier (RFC 5531 §14)."""
    body = struct.pack(">I", 0) + opaque(host) + struct.pack(">III", uid, gid, 0)
    return struct.pack(">I", 1) + opaque(body) + struct.pack(">II", 0, 0)


def call(program, version, procedure, arguments=b"", xid=1, credential=None):
    """An RPC call without its record mark."""
    head = struct.pack(">IIIIII", xid, 0, 2, program, version, procedure)
    return head + (credential or struct.pack(">IIII", 0, 0, 0, 0)) + arguments


def record(message):
    """One record of one fragment (RFC 5531 §11)."""
    return struct.pack(">I", 0x80000000 | len(message)) + message


class Client:
    """One TCP connection that makes calls one after the other."""

    def __init__(self, port, source="127.0.0.1", timeout=10):
        self.socket = socket.socket()
        self.socket.settimeout(timeout)
        try:
            self.socket.bind((source, 0))
            self.socket.connect(("127.0.0.1", port))
        except OSError:
            self.socket.close()
            raise

    def close(self):
        self.socket.close()

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        """The next reply, without its record mark."""
        (mark,) = struct.unpack(">I", self.exactly(4))
        return self.exactly(mark & 0x7FFFFFFF)

    def exactly(self, count):
        data = bytearray()
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise ConnectionError("the server closed the connection")
            data += more
        return bytes(data)

    def call(self, program, version, procedure, arguments=b"", credential=None):
        """The results of an accepted call."""
        self.send(record(call(program, version, procedure, arguments, credential=credential)))
        reply = self.receive()
        kind, status, _, length = struct.unpack(">IIII", reply[4:20])
        assert (kind, status) == (1, 0), reply
        at = 20 + length + -length % 4
        (accepted,) = struct.unpack(">I", reply[at:at + 4])
        assert accepted == 0, reply
        return reply[at + 4:]

    def mount(self, path=b"/vol1"):
        """The file handle of an export (MOUNT v3, RFC 1813 §5.2.1)."""
        results = self.call(MOUNT, 3, 1, opaque(path), auth_sys())
        status, length = struct.unpack(">II", results[:8])
        assert status == 0, status
        return results[8:8 + length]
