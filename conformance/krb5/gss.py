"""RPCSEC_GSS (RFC 2203) as a client, over the system's GSS-API library (RFC 2744)."""

import ctypes
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "attack"))
from attacker import Client, opaque, record  # noqa: E402

NONE, INTEGRITY, PRIVACY = 1, 2, 3
DATA, INIT, CONTINUE, DESTROY = range(4)
MUTUAL, CONF, INTEG = 2, 16, 32


class Buffer(ctypes.Structure):
    """gss_buffer_desc"""

    _fields_ = [("length", ctypes.c_size_t), ("value", ctypes.c_void_p)]


class Oid(ctypes.Structure):
    """gss_OID_desc"""

    _fields_ = [("length", ctypes.c_uint32), ("elements", ctypes.c_char_p)]


HOSTBASED = Oid(10, b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04")
LIBRARY = ctypes.CDLL("libgssapi_krb5.so.2")


def of(data):
    """A buffer over `data`, and what keeps that alive."""
    kept = ctypes.create_string_buffer(data, len(data))
    return Buffer(len(data), ctypes.cast(kept, ctypes.c_void_p)), kept


def take(buffer):
    return ctypes.string_at(buffer.value, buffer.length) if buffer.value else b""


def gss(name, *arguments):
    """Calls a function of the library; its major status."""
    minor = ctypes.c_uint32()
    function = getattr(LIBRARY, "gss_" + name)
    function.restype = ctypes.c_uint32
    major = function(ctypes.byref(minor), *arguments)
    if major & 0xFFFF0000:
        raise RuntimeError(f"gss_{name}: {major:#x}, {minor.value}")
    return major


class Denied(Exception):
    """An auth_stat."""


class Context:
    """A security context with the server at a port, for one user."""

    def __init__(self, port, cache, service="nfs@localhost"):
        os.environ["KRB5CCNAME"] = "FILE:" + cache
        self.client = Client(port, timeout=60)
        self.handle = ctypes.c_void_p()
        self.sequence = 0
        self.xid = 0
        name = ctypes.c_void_p()
        text, _kept = of(service.encode())
        gss("import_name", ctypes.byref(text), ctypes.byref(HOSTBASED), ctypes.byref(name))
        token, self.context, first = b"", b"", True
        while True:
            given, _kept = of(token)
            out, flags, time = Buffer(), ctypes.c_uint32(), ctypes.c_uint32()
            major = gss("init_sec_context", None, ctypes.byref(self.handle), name, None,
                        ctypes.c_uint32(MUTUAL | CONF | INTEG), ctypes.c_uint32(0), None,
                        None if first else ctypes.byref(given), None, ctypes.byref(out),
                        ctypes.byref(flags), ctypes.byref(time))
            token = take(out)
            if not major and not token:
                break
            token = self.init(token, INIT if first else CONTINUE)
            first = False
            if not major:
                break
        # Only now can the window's checksum be verified.
        self.verify(struct.pack(">I", self.window), self.verifier)

    def init(self, token, procedure):
        head = self.head(procedure, 0, NONE, (100003, 3, 0))
        self.client.send(record(head + struct.pack(">II", 0, 0) + opaque(token)))
        self.verifier, results = self.accepted()
        (length,) = struct.unpack(">I", results[:4])
        self.context = results[4:4 + length]
        at = 4 + length + -length % 4
        major, minor, self.window, length = struct.unpack(">IIII", results[at:at + 16])
        if major & 0xFFFF0000:
            raise RuntimeError(f"the server refused the context: {major:#x}, {minor}")
        return results[at + 16:at + 16 + length]

    def head(self, procedure, sequence, service, call):
        """The head of a call up to its credential."""
        self.xid += 1
        body = struct.pack(">IIII", 1, procedure, sequence, service) + opaque(self.context)
        head = struct.pack(">IIIIIII", self.xid, 0, 2, *call, 6)
        return head + opaque(body)

    def accepted(self):
        """Verifier and results of an accepted reply."""
        reply = self.client.receive()
        kind, status = struct.unpack(">II", reply[4:12])
        assert kind == 1, reply
        if status:
            raise Denied(struct.unpack(">I", reply[16:20])[0])
        (length,) = struct.unpack(">I", reply[16:20])
        at = 20 + length + -length % 4
        (stat,) = struct.unpack(">I", reply[at:at + 4])
        assert stat == 0, f"accept_stat {stat}"
        return reply[20:20 + length], reply[at + 4:]

    def mic(self, data):
        given, _kept = of(data)
        out = Buffer()
        gss("get_mic", self.handle, ctypes.c_uint32(0), ctypes.byref(given), ctypes.byref(out))
        return take(out)

    def verify(self, data, mic):
        given, _kept = of(data)
        sum_, _kept2 = of(mic)
        gss("verify_mic", self.handle, ctypes.byref(given), ctypes.byref(sum_), None)

    def wrap(self, data):
        given, _kept = of(data)
        out, state = Buffer(), ctypes.c_int()
        gss("wrap", self.handle, 1, ctypes.c_uint32(0), ctypes.byref(given), ctypes.byref(state),
            ctypes.byref(out))
        assert state.value
        return take(out)

    def unwrap(self, data):
        given, _kept = of(data)
        out, state = Buffer(), ctypes.c_int()
        gss("unwrap", self.handle, ctypes.byref(given), ctypes.byref(out), ctypes.byref(state), None)
        assert state.value
        return take(out)

    def call(self, program, version, procedure, arguments=b"", service=NONE, what=DATA):
        """The results of a call under this service, which are verified."""
        self.sequence += 1
        number = struct.pack(">I", self.sequence)
        head = self.head(what, self.sequence, service, (program, version, procedure))
        if service == INTEGRITY:
            body = opaque(number + arguments) + opaque(self.mic(number + arguments))
        elif service == PRIVACY:
            body = opaque(self.wrap(number + arguments))
        else:
            body = arguments
        verifier = struct.pack(">I", 6) + opaque(self.mic(head))
        self.client.send(record(head + verifier + body))
        verifier, results = self.accepted()
        self.verify(number, verifier)
        if service == NONE:
            return results
        (length,) = struct.unpack(">I", results[:4])
        body = results[4:4 + length]
        if service == INTEGRITY:
            rest = results[4 + length + -length % 4:]
            (size,) = struct.unpack(">I", rest[:4])
            self.verify(body, rest[4:4 + size])
        else:
            body = self.unwrap(body)
        assert body[:4] == number
        return body[4:]

    def close(self):
        self.client.close()
