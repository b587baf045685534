"""NFS over TLS (RFC 9289) with OpenSSL's client, and peers that stop in the handshake or send something else."""

import os
import random
import re
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import time
import unittest

import attacker
from attacker import LONG, NFS, auth_sys, call, opaque, record

# Half of what connections of one address may be.
HALF_OPEN = 800 if LONG else 150
PROMPT = 2.0
GETATTR, READ, WRITE, CREATE = 1, 6, 7, 8
PROBE = struct.pack(">IIIIIIIIII", 1, 0, 2, NFS, 3, 0, 7, 0, 0, 0)
STARTTLS = struct.pack(">IIIII", 1, 1, 0, 0, 8) + b"STARTTLS" + bytes(4)


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="weir-tls-")
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        cls.certificate, cls.key = (os.path.join(cls.folder, name) for name in ("cert", "key"))
        subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                        "-addext", "subjectAltName=DNS:localhost", "-keyout", cls.key, "-out", cls.certificate],
                       check=True, capture_output=True)

    def setUp(self):
        self.server = attacker.Server("--nfs-tls-cert", self.certificate, "--nfs-tls-key", self.key)
        self.addCleanup(self.server.close)
        self.port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])

    def probed(self):
        """A connection on which TLS may begin."""
        client = attacker.Client(self.port, timeout=60)
        self.addCleanup(client.close)
        client.send(record(PROBE))
        self.assertEqual(client.receive(), STARTTLS)
        return client

    def protected(self, alpn="sunrpc"):
        context = ssl.create_default_context(cafile=self.certificate)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        if alpn:
            context.set_alpn_protocols([alpn])
        client = self.probed()
        client.socket = context.wrap_socket(client.socket, server_hostname="localhost")
        self.addCleanup(client.socket.close)
        return client

    def test_openssl_reads_what_it_wrote(self):
        client = self.protected()
        self.assertEqual((client.socket.version(), client.socket.selected_alpn_protocol()), ("TLSv1.3", "sunrpc"))
        root = client.mount()
        args = opaque(root) + opaque(b"f") + struct.pack(">III", 0, 1, 0o644) + bytes(20)
        results = client.call(NFS, 3, CREATE, args, auth_sys())
        handle = results[12:12 + struct.unpack(">I", results[8:12])[0]]
        data = random.Random(1).randbytes(1 << 20)
        args = opaque(handle) + struct.pack(">QII", 0, len(data), 2) + opaque(data)
        self.assertEqual(client.call(NFS, 3, WRITE, args, auth_sys())[:4], bytes(4))
        results = client.call(NFS, 3, READ, opaque(handle) + struct.pack(">QI", 0, len(data)), auth_sys())
        self.assertTrue(results.endswith(data))
        # A client from before the name was agreed asks for none.
        self.assertIsNone(self.protected(alpn=None).socket.selected_alpn_protocol())
        with self.assertRaises(ssl.SSLError):
            self.protected(alpn="h2")
        # In TLS 1.2 nothing is agreed.
        context = ssl.create_default_context(cafile=self.certificate)
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with self.assertRaises((ssl.SSLError, ConnectionError)):
            context.wrap_socket(self.probed().socket, server_hostname="localhost")

    def test_handshakes_that_stop_and_garbage_hold_up_nobody(self):
        bystander = self.protected()
        root = bystander.mount()
        chance = random.Random(2)
        # ClientHello's head, so that the server waits for the rest of it; and what is not TLS at all.
        hello = bytes([22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3]) + chance.randbytes(32)
        slowest = 0.0
        for number in range(HALF_OPEN):
            client = self.probed()
            client.send(hello[:chance.randrange(len(hello))] if number % 3 else chance.randbytes(600))
            begun = time.monotonic()
            results = bystander.call(NFS, 3, GETATTR, opaque(root), auth_sys())
            slowest = max(slowest, time.monotonic() - begun)
            self.assertEqual(results[:4], bytes(4))
        self.assertLess(slowest, PROMPT)
        # A newcomer gets in beside them.
        self.assertEqual(self.protected().mount(), root)
        # Records that are no records, in a session that stands.
        for _ in range(20):
            client = self.protected()
            with socket.socket(fileno=client.socket.detach()) as raw:
                raw.settimeout(60)
                try:
                    raw.sendall(chance.randbytes(300))
                    while raw.recv(4096):
                        pass
                except ConnectionError:
                    pass
        self.assertEqual(bystander.call(NFS, 3, GETATTR, opaque(root), auth_sys())[:4], bytes(4))
        # Nothing that went on in the clear was served: the reply would bear its number.
        client = self.probed()
        client.send(record(call(NFS, 3, 0, xid=77)))
        rest = b""
        try:
            while more := client.socket.recv(4096):
                rest += more
        except ConnectionError:
            pass
        self.assertNotIn(struct.pack(">I", 77), rest)
