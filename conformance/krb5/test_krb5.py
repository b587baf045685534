"""Users that Kerberos establishes, over NFSv3 and NFSv4.1."""

import os
import random
import re
import struct
import subprocess
import sys
import unittest

from gss import DESTROY, INTEGRITY, NONE, PRIVACY, Context, Denied
from kdc import Kdc

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "attack"))
import attacker  # noqa: E402
from attacker import MOUNT, NFS, opaque  # noqa: E402

SERVICES = {"krb5": NONE, "krb5i": INTEGRITY, "krb5p": PRIVACY}
GETATTR, READ, WRITE, CREATE = 1, 6, 7, 8
CRED_PROBLEM = 13


# One type that the server leaves to the system's library is among them.
TYPES = ["aes128-cts-hmac-sha1-96", "aes128-cts-hmac-sha256-128", "aes256-cts-hmac-sha384-192", "camellia256-cts-cmac"]


class Krb5(unittest.TestCase):
    types = None

    @classmethod
    def setUpClass(cls):
        cls.kdc = Kdc(types=cls.types)
        cls.addClassCleanup(cls.kdc.close)
        os.environ.update(cls.kdc.environment)
        cls.server_keytab = cls.kdc.keytab("nfs/localhost")
        # A user that every machine has, one that none has, and a machine.
        cls.daemon = cls.kdc.ticket("daemon")
        cls.stranger = cls.kdc.ticket("nobody-knows-me")
        cls.machine = cls.kdc.ticket("nfs/client")

    def serve(self, options):
        server = attacker.Server("--krb5-keytab", self.server_keytab,
                                 "--export-options", options)
        self.addCleanup(server.close)
        return int(re.search(r"listening on 127\.0\.0\.1:(\d+)", server.output())[1])

    def context(self, port, cache):
        context = Context(port, cache)
        self.addCleanup(context.close)
        return context

    def mount(self, port):
        """The root and the flavours of the export."""
        client = attacker.Client(port, timeout=60)
        self.addCleanup(client.close)
        results = client.call(MOUNT, 3, 1, opaque(b"/vol1"), attacker.auth_sys())
        status, length = struct.unpack(">II", results[:8])
        self.assertEqual(status, 0)
        root, rest = results[8:8 + length], results[8 + length:]
        count, *flavours = struct.unpack(f">{len(rest) // 4}I", rest)
        self.assertEqual(count, len(flavours))
        return root, flavours

    def create(self, context, root, name, service):
        args = opaque(root) + opaque(name) + struct.pack(">III", 0, 1, 0o644) + bytes(20)
        results = context.call(NFS, 3, CREATE, args, service)
        status, follows, length = struct.unpack(">III", results[:12])
        self.assertEqual((status, follows), (0, 1))
        return results[12:12 + length]

    def owner(self, context, handle, service):
        results = context.call(NFS, 3, GETATTR, opaque(handle), service)
        self.assertEqual(results[:4], bytes(4))
        return struct.unpack(">II", results[16:24])

    def open_root(self, port, root):
        """Lets everybody write to the root directory, as its owner."""
        client = attacker.Client(port, timeout=60)
        self.addCleanup(client.close)
        args = opaque(root) + struct.pack(">II", 1, 0o777) + bytes(4 * 6)
        self.assertEqual(client.call(NFS, 3, 2, args, attacker.auth_sys())[:4], bytes(4))

    def data_goes_both_ways(self):
        port = self.serve("rw,no_root_squash,sec=sys:krb5:krb5i:krb5p")
        root, flavours = self.mount(port)
        self.assertEqual(flavours, [390005, 390004, 390003, 1])
        self.open_root(port, root)
        context = self.context(port, self.daemon)
        self.assertGreaterEqual(context.window, 4096)
        # Nothing that is a number of blocks.
        data = os.urandom(70_000 + random.randrange(64))
        for name, service in SERVICES.items():
            with self.subTest(name):
                file = self.create(context, root, name.encode(), service)
                uid = int(subprocess.check_output(["id", "-u", "daemon"]))
                gid = int(subprocess.check_output(["id", "-g", "daemon"]))
                self.assertEqual(self.owner(context, file, service), (uid, gid))
                args = opaque(file) + struct.pack(">QII", 0, len(data), 2) + opaque(data)
                results = context.call(NFS, 3, WRITE, args, service)
                self.assertEqual(results[:4], bytes(4))
                args = opaque(file) + struct.pack(">QI", 0, len(data))
                results = context.call(NFS, 3, READ, args, service)
                self.assertEqual(results[:4], bytes(4))
                self.assertEqual(results[-len(opaque(data)):], opaque(data))
        # NULL, and the end of the context.
        context.call(NFS, 3, 0, b"", PRIVACY)
        context.call(NFS, 3, 0, b"", NONE, DESTROY)
        with self.assertRaises(Denied) as denied:
            context.call(NFS, 3, GETATTR, opaque(root))
        self.assertEqual(denied.exception.args[0], CRED_PROBLEM)


class Usual(Krb5):
    def test_data_goes_both_ways_in_each_service(self):
        self.data_goes_both_ways()

    def test_who_is_no_user_here_is_nobody(self):
        port = self.serve("rw,no_root_squash,sec=sys:krb5")
        root, _ = self.mount(port)
        self.open_root(port, root)
        for cache in (self.stranger, self.machine):
            context = self.context(port, cache)
            file = self.create(context, root, os.path.basename(cache).encode(), NONE)
            self.assertEqual(self.owner(context, file, NONE), (65534, 65534))

    def test_a_rule_may_demand_privacy(self):
        port = self.serve("rw,no_root_squash,sec=krb5p")
        root, flavours = self.mount(port)
        self.assertEqual(flavours, [390005])
        client = attacker.Client(port, timeout=60)
        self.addCleanup(client.close)
        results = client.call(NFS, 3, GETATTR, opaque(root), attacker.auth_sys())
        self.assertNotEqual(results[:4], bytes(4))
        context = self.context(port, self.daemon)
        for service in SERVICES.values():
            results = context.call(NFS, 3, GETATTR, opaque(root), service)
            self.assertEqual(results[:4] == bytes(4), service == PRIVACY, service)

    def test_nfsv4_says_by_secinfo_what_it_wants(self):
        port = self.serve("rw,no_root_squash,sec=krb5i:krb5p")
        context = self.context(port, self.daemon)

        def compound(operations, count, service=INTEGRITY):
            args = opaque(b"") + struct.pack(">II", 1, count) + operations
            return context.call(NFS, 4, 1, args, service)

        owner = struct.pack(">Q", 1) + opaque(b"a client") + struct.pack(">III", 0, 0, 0)
        results = compound(struct.pack(">I", 42) + owner, 1)
        self.assertEqual(struct.unpack(">IIIII", results[:20]), (0, 0, 1, 42, 0))
        client, sequence = struct.unpack(">QI", results[20:32])
        channel = struct.pack(">IIIIIII", 0, 1 << 20, 1 << 20, 4096, 8, 4, 0)
        args = struct.pack(">QII", client, sequence, 0) + channel + channel
        args += struct.pack(">III", 0x40000000, 1, 0)
        results = compound(struct.pack(">I", 43) + args, 1)
        self.assertEqual(struct.unpack(">IIIII", results[:20]), (0, 0, 1, 43, 0))
        session = results[20:36]

        def run(number, operations, count, service):
            first = struct.pack(">I", 53) + session + struct.pack(">IIII", number, 0, 0, 0)
            results = compound(first + operations, count + 1, service)
            self.assertEqual(struct.unpack(">II", results[12:20]), (53, 0))
            return struct.unpack(">I", results[:4])[0], results[56:]

        put_root = struct.pack(">I", 24)
        lookup = put_root + struct.pack(">I", 15) + opaque(b"vol1")
        WRONGSEC = 10016
        status, _ = run(1, lookup, 2, NONE)
        self.assertEqual(status, WRONGSEC)
        secinfo = put_root + struct.pack(">I", 33) + opaque(b"vol1")
        status, results = run(2, secinfo, 2, NONE)
        self.assertEqual(status, 0)
        oid = opaque(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02")
        entry = lambda service: struct.pack(">I", 6) + oid + struct.pack(">II", 0, service)  # noqa: E731
        expected = struct.pack(">IIIII", 24, 0, 33, 0, 2) + entry(PRIVACY) + entry(INTEGRITY)
        self.assertEqual(results, expected)
        for number, service in ((3, INTEGRITY), (4, PRIVACY)):
            status, _ = run(number, lookup, 2, service)
            self.assertEqual(status, 0)


class OfType:
    def test_data_goes_both_ways_in_each_service(self):
        self.data_goes_both_ways()


for name in TYPES:
    title = name.title().replace("-", "")
    globals()[title] = type(title, (OfType, Krb5), {"types": name})


if __name__ == "__main__":
    unittest.main()
