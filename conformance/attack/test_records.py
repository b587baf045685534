"""Requests that are begun and left, and replies that nobody takes: what others notice of them."""

import re
import socket
import struct
import threading
import time
import unittest

import attacker
from attacker import LONG, NFS, auth_sys, call, opaque, record

# The server under test has 512 MiB, of which connections may hold some 60 MiB.
MANY = 850 if LONG else 100
SECONDS = 90 if LONG else 4
ANNOUNCED = 1_000_000
BEGUN = 2048
# Calls that have to be answered within this, while the attack goes on. The published attack: not in 60 s.
PROMPT = 2.0
GETATTR, READ, WRITE, CREATE = 1, 6, 7, 8


def write_args(handle, offset, data, stable=2):
    return opaque(handle) + struct.pack(">QII", offset, len(data), stable) + opaque(data)


class Records(unittest.TestCase):
    def setUp(self):
        self.server = attacker.Server()
        self.addCleanup(self.server.close)
        self.port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        self.client = self.connect()
        self.root = self.client.mount()
        self.open = []

    def connect(self, source="127.0.0.1"):
        client = attacker.Client(self.port, source, timeout=60)
        self.addCleanup(client.close)
        return client

    def create(self, client, name):
        # createhow3 UNCHECKED with mode, no owner, no size, no times.
        args = opaque(self.root) + opaque(name) + struct.pack(">III", 0, 1, 0o644) + bytes(20)
        results = client.call(NFS, 3, CREATE, args, auth_sys())
        status, follows, length = struct.unpack(">III", results[:12])
        self.assertEqual((status, follows), (0, 1))
        return results[12:12 + length]

    def getattr(self, client, within=PROMPT):
        begun = time.monotonic()
        results = client.call(NFS, 3, GETATTR, opaque(self.root), auth_sys())
        took = time.monotonic() - begun
        self.assertEqual(results[:4], bytes(4))
        self.assertLess(took, within, "GETATTR under attack")

    def write(self, client, handle, size, within):
        begun = time.monotonic()
        results = client.call(NFS, 3, WRITE, write_args(handle, 0, bytes(size)), auth_sys())
        self.assertEqual(results[:4], bytes(4))
        self.assertLess(time.monotonic() - begun, within, "a WRITE under attack")

    def attack(self, head, source="127.0.0.1"):
        """Many connections that announce much, send `head`, and then a byte every now and then until the test ends."""
        data = struct.pack(">I", 0x80000000 | ANNOUNCED) + head
        sockets = []
        for _ in range(MANY):
            client = self.connect(source)
            client.socket.settimeout(None)
            client.send(data)
            sockets.append(client.socket)
        stop = threading.Event()

        def trickle():
            while not stop.wait(3 if LONG else 0.5):
                for one in list(sockets):
                    try:
                        one.send(b"\0", socket.MSG_DONTWAIT)
                    except OSError:
                        sockets.remove(one)

        thread = threading.Thread(target=trickle)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(stop.set)
        return sockets

    def bystanders(self, write_within):
        """Others, from the same address and from another, in small and in large, over connections old and new."""
        fresh, far = self.connect(), self.connect("127.0.0.2")
        for client in (fresh, far):
            self.assertEqual(client.mount(), self.root)
        end = time.monotonic() + SECONDS
        handles = [self.create(client, name) for client, name in ((fresh, b"near"), (far, b"far"))]
        while time.monotonic() < end:
            for client in (self.client, fresh, far):
                self.getattr(client)
            for client, handle in zip((fresh, far), handles):
                self.write(client, handle, 1 << 20, write_within)
            time.sleep(0.2)

    def test_strangers_that_announce_much(self):
        handle = bytes(range(32))
        head = call(NFS, 3, WRITE, write_args(handle, 0, b""), credential=auth_sys())
        self.attack(head.ljust(BEGUN, b"\0"))
        self.bystanders(PROMPT)
        # What is no WRITE is no better, and what is no RPC is closed.
        self.attack(call(NFS, 3, GETATTR, opaque(handle)).ljust(BEGUN, b"\0"))
        self.attack(b"\xff" * BEGUN)
        self.bystanders(PROMPT)

    def test_a_client_that_announces_much(self):
        handle = self.create(self.client, b"attacked")
        head = call(NFS, 3, WRITE, write_args(handle, 0, b""), credential=auth_sys())
        self.attack(head.ljust(BEGUN, b"\0"), "127.0.0.3")
        # 60 MiB are promised for them before the sweeper comes by.
        self.bystanders(PROMPT)
        self.attack(head.ljust(BEGUN, b"\0"))
        self.bystanders(10)

    def test_fragments_hide_nothing(self):
        """A record whose head is in fragments of a byte, then one that announces the rest."""
        head = call(NFS, 3, WRITE, write_args(bytes(32), 0, b""), credential=auth_sys())
        tiny = b"".join(struct.pack(">I", 1) + bytes([byte]) for byte in head)
        for _ in range(MANY):
            client = self.connect()
            client.send(tiny + struct.pack(">I", 0x80000000 | ANNOUNCED) + bytes(BEGUN))
        self.bystanders(PROMPT)

    def test_replies_that_nobody_takes(self):
        handle = self.create(self.client, b"large")
        self.write(self.client, handle, 1 << 20, 10)
        ask = record(call(NFS, 3, READ, opaque(handle) + struct.pack(">QI", 0, 1 << 20), credential=auth_sys()))
        for _ in range(MANY):
            greedy = self.connect("127.0.0.3")
            greedy.send(ask * 64)
        self.bystanders(PROMPT)

    def test_slow_clients_are_served(self):
        """A WRITE that comes in at 50 KiB/s, byte by byte calls, and replies that are taken slowly."""
        handle = self.create(self.client, b"slow")
        size = 256 << 10
        message = record(call(NFS, 3, WRITE, write_args(handle, 0, bytes(size)), credential=auth_sys()))
        head = call(NFS, 3, WRITE, write_args(bytes(32), 0, b""), credential=auth_sys())
        self.attack(head.ljust(BEGUN, b"\0"))
        slow, slowest = self.connect(), self.connect()
        pieces = [message[at:at + 10240] for at in range(0, len(message), 10240)]
        small = record(call(NFS, 3, GETATTR, opaque(self.root), credential=auth_sys()))
        for index, piece in enumerate(pieces):
            slow.send(piece)
            slowest.send(small[index * 4:index * 4 + 4])
            time.sleep(0.2)
        slowest.send(small[len(pieces) * 4:])
        self.assertEqual(slow.receive()[24:28], bytes(4))
        self.assertEqual(slowest.receive()[24:28], bytes(4))
        slow.send(record(call(NFS, 3, READ, opaque(handle) + struct.pack(">QI", 0, size), credential=auth_sys())))
        (mark,) = struct.unpack(">I", slow.exactly(4))
        left = mark & 0x7FFFFFFF
        while left > 0:
            left -= len(slow.exactly(min(left, 10240)))
            time.sleep(0.1)

    def test_sixteen_connections_with_large_writes(self):
        """`nconnect=16` with WRITEs of 1 MiB, several under way on each connection: all are answered, none is closed."""
        handle = self.create(self.client, b"nconnect")
        data = bytes(range(256)) * 4096
        rounds = 64 if LONG else 8

        def load(number):
            client = self.connect()
            for turn in range(rounds):
                for depth in range(4):
                    offset = (number * 4 + depth) << 20
                    args = write_args(handle, offset, data, stable=0)
                    client.send(record(call(NFS, 3, WRITE, args, xid=depth, credential=auth_sys())))
                for _ in range(4):
                    reply = client.receive()
                    if reply[24:28] != bytes(4):
                        failures.append(reply[:28])
            done.append(number)

        failures, done = [], []
        threads = [threading.Thread(target=load, args=(n,)) for n in range(16)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual((failures, sorted(done)), ([], list(range(16))))
        self.assertNotIn("connection dropped", self.server.output())

    def test_refused_large_requests_get_their_reply(self):
        """A handle that is none: BADHANDLE, after the rest has been read past; then the connection goes on."""
        client = self.connect()
        client.send(record(call(NFS, 3, WRITE, write_args(bytes(32), 0, bytes(1 << 20)), xid=7, credential=auth_sys())))
        reply = client.receive()
        self.assertEqual(struct.unpack(">I", reply[24:28])[0], 10001)
        self.getattr(client)


if __name__ == "__main__":
    unittest.main()
