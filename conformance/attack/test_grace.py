"""A client that never comes back after a crash stops nobody whom its claims would not stop."""

import re
import signal
import struct
import time
import unittest

import attacker
import wires
from attacker import NFS, auth_sys, opaque
from test_nfs4 import GETFH, OK, PATIENCE, PUTFH, RECLAIM_COMPLETE, Client, creation, op, open_by_name

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

    def elsewhere(self, root, *protected):
        """Another client does over NFSv3 all that it may at other names and files, and takes what it wants of them over NFSv4."""
        client, begun = self.connect(), time.monotonic()
        # Not what was called before, which would be answered and not done again.
        new, moved, folder = (b"%s %d" % (word, begun * 1e6) for word in (b"new", b"moved", b"folder"))

        def status(procedure, arguments):
            return struct.unpack(">I", client.call(NFS, 3, procedure, arguments, auth_sys())[:4])[0]

        def named(name):
            return opaque(root) + opaque(name)

        attributes = struct.pack(">IIIIII", 0, 0, 0, 0, 0, 0)
        self.assertEqual(status(8, named(new) + struct.pack(">I", 0) + attributes), OK, "CREATE")
        self.assertEqual(status(9, named(folder) + attributes), OK, "MKDIR")
        found = client.call(NFS, 3, 3, named(new), auth_sys())
        handle = found[4:4 + 4 + struct.unpack(">I", found[4:8])[0]]
        self.assertEqual(status(1, handle), OK, "GETATTR")
        self.assertEqual(status(7, handle + struct.pack(">QIII", 0, 1, 2, 1) + b"x\0\0\0"), OK, "WRITE")
        self.assertEqual(status(6, handle + struct.pack(">QI", 0, 1)), OK, "READ")
        self.assertEqual(status(14, named(new) + named(moved)), OK, "RENAME")
        other = self.connect(Client).begin(b"other")
        denying, _ = other.run(op(PUTFH, opaque(root)), open_by_name(moved, b"o", 3, 3))
        self.assertEqual(denying, OK, "OPEN that denies all")
        for name in protected:
            denying, _ = other.run(op(PUTFH, opaque(root)), open_by_name(name, b"o", 3, 3))
            self.assertEqual(denying, GRACE, name)
        self.assertEqual(status(12, named(moved)), OK, "REMOVE")
        self.assertEqual(status(13, named(folder)), OK, "RMDIR")
        self.assertLess(time.monotonic() - begun, 2)
        # It leaves nothing for the next start.
        self.assertEqual(other.compound(op(44, other.session_id))[0], OK)

    def delegated(self, count):
        """Files of which a client has read delegations: their names, and the handle of the first."""
        client = self.connect()
        root, names = client.mount(), [b"delegated %d" % n for n in range(count)]
        for name in names:
            client.call(NFS, 3, 8, opaque(root) + opaque(name) + struct.pack(">I", 0) + bytes(24), auth_sys())
        holder = self.connect(wires.Nfs4)
        status, holder.id = holder.introduce(b"absent")
        self.assertEqual(status, OK)
        wanted = creation(holder.id, 32)
        status, body = holder.compound(wanted[:16] + struct.pack(">I", 2) + wanted[20:])
        self.assertEqual(status, OK)
        holder.session_id, holder.numbers = body[16:32], [0] * 32
        self.assertEqual(holder.run(op(RECLAIM_COMPLETE, bytes(4)))[0], OK)
        handles = [holder.handle(op(PUTFH, opaque(root)), op(15, opaque(name))) for name in names]
        for handle in handles:
            status, body = holder.opened(handle, 1, b"owner", how=0x100)
            self.assertEqual((status, struct.unpack(">I", body[60:64])[0]), (OK, 1), "a read delegation")
        return root, names, handles[0]

    def test_a_client_with_read_delegations_holds_up_their_files_alone(self):
        root, names, file = self.delegated(10)
        self.server.stop(signal.SIGKILL)
        self.server.start()
        self.elsewhere(root, *names)
        self.assertEqual(self.calls(file)[0], [OK, OK, JUKEBOX])

    def test_after_a_stop_in_order_a_client_holds_up_nothing_but_its_files_however_many(self):
        root, names, file = self.delegated(500)
        self.server.stop(signal.SIGTERM)
        self.server.start()
        self.elsewhere(root, names[0], names[-1])
        self.assertEqual(self.calls(file)[0], [OK, OK, JUKEBOX])
        # And nothing else after a kill in that time.
        self.server.stop(signal.SIGKILL)
        self.server.start()
        self.elsewhere(root, names[0], names[-1])

    def test_a_client_with_a_denial_is_waited_for(self):
        _, file = self.absent(3, 2)
        statuses, _ = self.calls(file)
        self.assertEqual(statuses, [OK, OK, JUKEBOX])


if __name__ == "__main__":
    unittest.main()
