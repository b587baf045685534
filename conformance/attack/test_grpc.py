"""gRPC, attacked frame by frame (RFC 9113): floods that cost a peer little, from strangers and from a holder of a token."""

import os
import select
import socket
import ssl
import struct
import time
import unittest

from attacker import LONG, Server

POOLS = "/v1/projects/p1/locations/us-central1/storagePools"
LIST = "/google.cloud.netapp.v1.NetApp/ListVolumes"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SECONDS = 30 if LONG else 1
# Frames and flags.
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PING, WINDOW_UPDATE, CONTINUATION = 0, 1, 2, 3, 4, 6, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
# What an attack may add to the server's memory: some of each connection's buffers, and the allocator's slack.
ROOM = 96 << 20


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes((kind, flags)) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A header without indexing (RFC 7541 §6.2.2), its lengths in up to three bytes."""
    def text(data):
        if len(data) < 127:
            return bytes((len(data),)) + data
        rest, out = len(data) - 127, bytearray((127,))
        while rest >= 128:
            out.append(rest & 127 | 128)
            rest >>= 7
        return bytes((*out, rest)) + data
    return b"\0" + text(name) + text(value)


def head(token=None, *more):
    block = (b"\x83\x86" if token is None else b"\x83\x87") + literal(b":path", LIST.encode())
    block += literal(b":authority", b"127.0.0.1") + literal(b"content-type", b"application/grpc")
    block += literal(b"te", b"trailers")
    if token:
        block += literal(b"authorization", b"Bearer " + token.encode())
    return block + b"".join(literal(*one) for one in more)


def rss(server):
    with open(f"/proc/{server.process.pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def streams():
    """Numbers of a client's streams, and from the beginning once they run out: the server then ends the connection."""
    number = 1
    while True:
        yield number
        number += 2
        if number > 0x7fffffff:
            number = 1


def flood(kind, token):
    """Pieces of an attack without end."""
    if kind == "ping":
        block = frame(PING, 0, 0, b"12345678") * 256
        while True:
            yield block
    if kind == "settings":
        block = frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 65535)) * 256
        while True:
            yield block
    if kind == "window updates":
        yield frame(HEADERS, END_HEADERS, 1, head(token))
        while True:
            yield frame(WINDOW_UPDATE, 0, 1, struct.pack(">I", 1)) * 256
    if kind == "priorities":
        while True:
            yield frame(PRIORITY, 0, 3, b"\0\0\0\x01\x10") * 256
    if kind == "empty data":
        yield frame(HEADERS, END_HEADERS, 1, head(token))
        while True:
            yield frame(DATA, 0, 1) * 256
    if kind == "resets":
        block = head(token)
        for number in streams():
            yield frame(HEADERS, END_HEADERS, number, block) + frame(RST_STREAM, 0, number, struct.pack(">I", 8))
    if kind == "resets of the server's":
        # A stream that depends on itself is an error of its own, which the server has to reset.
        block = head(token)
        for number in streams():
            yield frame(HEADERS, END_HEADERS, number, block) + frame(WINDOW_UPDATE, 0, number, b"\0\0\0\0")
    if kind == "streams":
        block = head(token)
        for number in streams():
            yield frame(HEADERS, END_HEADERS, number, block)
    if kind == "continuations":
        yield frame(HEADERS, 0, 1, head(token))
        while True:
            yield frame(CONTINUATION, 0, 1, literal(b"x", b"y" * 100) * 8)
    if kind == "empty continuations":
        yield frame(HEADERS, 0, 1, head(token))
        while True:
            yield frame(CONTINUATION, 0, 1) * 256
    if kind == "large heads":
        # An entry of the dynamic table, and references to it: 4 KiB for a byte each.
        entry = b"\x40" + literal(b"x", b"y" * 3900)[1:]
        for number in streams():
            yield frame(HEADERS, END_HEADERS, number, head(token) + entry + b"\xbe" * 8000)
    if kind == "frames of another protocol":
        while True:
            yield frame(0xee, 0xff, 5, bytes(16384))


KINDS = ("ping", "settings", "window updates", "priorities", "empty data", "resets", "resets of the server's", "streams",
         "continuations", "empty continuations", "large heads", "frames of another protocol")


class Floods(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.tokens = {}
        for role in ("viewer", "admin"):
            status, answer = cls.server.ask("POST", "tokens", {"role": role}, {"tokenId": role})
            assert status == 200, answer
            cls.tokens[role] = answer["token"]
        cls.server.stop()
        cls.server.arguments = ("--api-tls", "generate")
        cls.server.start()
        cls.addClassCleanup(cls.server.close)
        cls.certificate = os.path.join(cls.server.data, "api-cert.pem")

    def connect(self, n):
        context = ssl.create_default_context(cafile=self.certificate)
        context.set_alpn_protocols(["h2"])
        plain = socket.socket()
        plain.settimeout(10)
        plain.bind((f"127.8.0.{n + 1}", 0))
        plain.connect(("127.0.0.1", self.server.port))
        s = context.wrap_socket(plain, server_hostname="127.0.0.1")
        self.addCleanup(s.close)
        self.assertEqual(s.selected_alpn_protocol(), "h2")
        s.sendall(PREFACE + frame(SETTINGS, 0, 0))
        return s

    def bystander(self):
        begin = time.monotonic()
        status, _ = self.server.ask("GET", POOLS, None, None, {"Authorization": f"Bearer {self.tokens['admin']}"},
                                    self.certificate)
        self.assertEqual(status, 200)
        return time.monotonic() - begin

    def attack(self, kind, token, reads):
        """Floods over four connections; the bystander is served, and memory stays."""
        self.bystander()
        before, slowest, sent = rss(self.server), 0, 0
        peers = [(s, flood(kind, token)) for s in (self.connect(n) for n in range(4))]
        for s, _ in peers:
            s.settimeout(0.05)
        end = time.monotonic() + SECONDS
        while peers and time.monotonic() < end:
            for s, pieces in list(peers):
                turn = time.monotonic() + 0.1
                try:
                    while time.monotonic() < turn:
                        piece = next(pieces)
                        s.sendall(piece)
                        sent += len(piece)
                        if reads and select.select([s], [], [], 0)[0]:
                            s.recv(65536)
                except TimeoutError:
                    # The server takes no more for now, and a part of a TLS record may be lost: enough of this one.
                    peers.remove((s, pieces))
                except OSError:
                    peers.remove((s, pieces))
            slowest = max(slowest, self.bystander())
            self.assertLess(rss(self.server) - before, ROOM, f"{kind}: after {sent} bytes")
        self.assertLess(slowest, 5, f"{kind}: an administrator waits")
        self.assertIsNone(self.server.process.poll())

    def test_floods_by_strangers(self):
        for kind in KINDS:
            for reads in (False, True) if LONG else (True,):
                with self.subTest(kind=kind, reads=reads):
                    self.attack(kind, None, reads)

    def test_floods_by_a_viewer(self):
        for kind in KINDS:
            with self.subTest(kind=kind):
                self.attack(kind, self.tokens["viewer"], True)

    def ended(self, s, within):
        begin = time.monotonic()
        s.settimeout(within)
        try:
            while s.recv(65536):
                pass
        except TimeoutError:
            self.fail(f"the connection is open after {within} s")
        except OSError:
            pass
        return time.monotonic() - begin

    def test_a_stranger_has_ten_seconds_whatever_it_sends(self):
        silent, refused, pinging = (self.connect(n) for n in (10, 11, 12))
        call = frame(HEADERS, END_HEADERS | END_STREAM, 1, head())
        refused.sendall(call)
        end = time.monotonic() + 9
        number = 3
        while time.monotonic() < end:
            pinging.sendall(frame(PING, 0, 0, b"12345678"))
            refused.sendall(frame(HEADERS, END_HEADERS | END_STREAM, number, head()))
            number += 2
            time.sleep(0.5)
        for s in (silent, refused, pinging):
            self.assertLess(self.ended(s, 12), 12)

    def test_broken_frames_end_their_connection_only(self):
        for sent in (b"\xff" * 64, frame(HEADERS, END_HEADERS, 0, head()), frame(HEADERS, END_HEADERS, 2, head()),
                     frame(DATA, 0, 1, b"x"), frame(SETTINGS, 0, 0, b"x"), frame(SETTINGS, ACK, 0, b"123456"),
                     frame(PING, 0, 0, b"1"), frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
                     frame(HEADERS, END_HEADERS, 1, b"\xff" * 100), frame(CONTINUATION, 0, 1, b"")):
            with self.subTest(sent=sent[:20]):
                s = self.connect(20)
                s.sendall(sent)
                self.ended(s, 8)
        self.bystander()

    def test_replies_that_nobody_takes(self):
        """Calls with a window of nothing: the replies wait within bounds, and the others are served."""
        before = rss(self.server)
        for n in range(8):
            s = self.connect(30 + n)
            s.sendall(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))
            name = b"projects/p1/locations/us-central1"
            message = b"\0" + struct.pack(">I", len(name) + 2) + bytes((0x0a, len(name))) + name
            for number in range(1, 65, 2):
                s.sendall(frame(HEADERS, END_HEADERS, number, head(self.tokens["viewer"]))
                          + frame(DATA, END_STREAM, number, message))
            self.assertLess(self.bystander(), 5)
        self.assertLess(rss(self.server) - before, ROOM)


if __name__ == "__main__":
    unittest.main()
