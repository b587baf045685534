"""A client that never comes back after a crash stops nobody whom its claims would not stop."""

import re
import signal
import struct
import time
import unittest

import attacker
from attacker import NFS, auth_sys, opaque
from test_nfs4 import GETFH, OK, PATIENCE, PUTFH, Client, op, open_by_name

GRACE, JUKEBOX = 10013, 10008


class Grace(unittest.TestCase):
    def setUp(self):
        self.server = attacker.Server()
        self.addCleanup(self.server.close)

    def connect(self, kind=attacker.Client):
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        client = kind(port, "127.0.0.1", PATIENCE)
        self.addCleanup(client.close)
        return client

    def absent(self, *shares):
        """A file that a client has open so when the server is killed, served again."""
        root = self.connect().mount()
        client = self.connect(Client).begin(b"absent")
        status, body = client.run(op(PUTFH, opaque(root)), open_by_name(b"file", b"o", *shares), op(GETFH))
        self.assertEqual(status, OK)
        file = body[-32:]
        self.server.stop(signal.SIGKILL)
        self.server.start()
        return root, file

    def calls(self, file):
        """Statuses of GETATTR, READ and WRITE over NFSv3, and when all were answered, in seconds."""
        client, begun = self.connect(), time.monotonic()
        handle = opaque(file)
        write = handle + struct.pack(">QIII", 0, 1, 2, 1) + b"x\0\0\0"
        calls = [(1, handle), (6, handle + struct.pack(">QI", 0, 1)), (7, write)]
        results = [client.call(NFS, 3, procedure, arguments, auth_sys()) for procedure, arguments in calls]
        return [struct.unpack(">I", r[:4])[0] for r in results], time.monotonic() - begun

    def test_a_client_with_plain_opens_stops_nobody(self):
        root, file = self.absent(3, 0)
        statuses, took = self.calls(file)
        self.assertEqual(statuses, [OK, OK, OK])
        self.assertLess(took, 1)
        other = self.connect(Client).begin(b"other")
        for shares, expected in [((3, 0), OK), ((1, 2), GRACE)]:
            status, _ = other.run(op(PUTFH, opaque(root)), open_by_name(b"file", b"o", *shares))
            self.assertEqual(status, expected, shares)

    def test_a_client_with_a_denial_is_waited_for(self):
        _, file = self.absent(3, 2)
        statuses, _ = self.calls(file)
        self.assertEqual(statuses, [OK, OK, JUKEBOX])


if __name__ == "__main__":
    unittest.main()
