"""Rights at contents: operation × permission × kind of open, over NFSv4.2, before and after a crash.

A user who is neither the owner of a file nor of its group opens it in every way and tries every operation at its contents. Each row
has the rule that decides it. The rows are generated; the last test says how many there were."""

import itertools
import re
import signal
import struct
import unittest

import attacker
import wires
from attacker import opaque
from test_nfs4 import LOOKUP, OK, PUTFH, READ, RECLAIM_COMPLETE, WRITE, op
from wires import ALLOCATE, ANONYMOUS, CLONE, COPY, DEALLOCATE, MODE, READ_PLUS, SEEK, SETATTR, clone_args, copy_args, mode

ACCESS, RECLAIM_BAD, OPENMODE = 13, 10034, 10038
REFUSED = {ACCESS, OPENMODE}
GETATTR = 9
USER = 1000
# share_access: read, write; the special stateid has none.
OPENS = {"an open for reading": 1, "an open for writing": 2, "an open for both": 3, "the anonymous stateid": 0}
R, W = 4, 2


def span(state, offset=0, count=4096):
    return state + struct.pack(">QQ", offset, count)


# Name, the operation under a stateid, the permission that it takes, and the rule.
OPERATIONS = [
    ("READ", lambda s: op(READ, s + struct.pack(">QI", 0, 16)), R, "RFC 8881 §18.22.3"),
    ("READ_PLUS", lambda s: op(READ_PLUS, s + struct.pack(">QI", 0, 16)), R, "RFC 7862 §15.10.3"),
    ("SEEK", lambda s: op(SEEK, s + struct.pack(">QI", 0, 0)), R, "RFC 7862 §15.11.3"),
    ("WRITE", lambda s: op(WRITE, s + struct.pack(">QI", 0, 2) + opaque(b"x")), W, "RFC 8881 §18.32.3"),
    ("ALLOCATE", lambda s: op(ALLOCATE, span(s)), W, "RFC 7862 §15.1.3"),
    ("DEALLOCATE", lambda s: op(DEALLOCATE, span(s)), W, "RFC 7862 §15.4.3"),
]


class Rights(unittest.TestCase):
    def setUp(self):
        self.server = attacker.Server()
        self.addCleanup(self.server.close)

    def client(self, uid, name):
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        client = wires.Nfs4(port, timeout=60)
        client.uid = uid
        self.addCleanup(client.close)
        status, client.id = client.introduce(name)
        self.assertEqual(status, OK)
        status, client.session_id = client.session(client.id, 16)
        self.assertEqual(status, OK)
        client.numbers = [0] * 16
        return client

    def ready(self, uid, name):
        client = self.client(uid, name)
        status, _ = client.run(op(RECLAIM_COMPLETE, bytes(4)))
        self.assertEqual(status, OK)
        return client

    def make(self, client, root, name, bits):
        """A file of 8 KiB with this mode, and an open of it."""
        file, _ = client.make(root, name, 0o666)
        status, _ = client.run(op(PUTFH, opaque(file)), op(WRITE, ANONYMOUS + struct.pack(">QI", 0, 2) + opaque(bytes(8192))),
                               op(SETATTR, ANONYMOUS + mode(bits)))
        self.assertEqual(status, OK)
        return file

    def files(self):
        """Root's client, the volume's folder, which anyone may write, and a file for each set of others' permissions."""
        root = self.ready(0, b"root")
        folder = root.handle(op(24), op(LOOKUP, opaque(b"vol1")))
        status, _ = root.run(op(PUTFH, opaque(folder)), op(SETATTR, ANONYMOUS + mode(0o777)))
        self.assertEqual(status, OK)
        made = {others: self.make(root, folder, b"others%d" % others, 0o600 | others) for others in (0, R, W, R | W)}
        return root, folder, made

    def test_every_operation_takes_its_permission_under_every_open(self):
        _, folder, made = self.files()
        user = self.ready(USER, b"user")
        own = self.make(user, folder, b"own", 0o600)
        status, target = user.open(own, 3, b"own")
        self.assertEqual(status, OK)
        rows = 0
        for (others, file), (words, access) in itertools.product(made.items(), OPENS.items()):
            state, may = ANONYMOUS, others
            if access:
                wanted = (R if access & 1 else 0) | (W if access & 2 else 0)
                status, state = user.open(file, access, words.encode())
                rows += 1
                with self.subTest("OPEN", others=others, kind=words, rule="RFC 8881 §18.16.3"):
                    self.assertEqual(status == OK, others & wanted == wanted, status)
                if status != OK:
                    continue
                # Data may be read under an open for writing, by who may read the file (§18.22.3); not the other way.
                may = others & (R | W if access & 2 else R)
            for name, operation, takes, rule in OPERATIONS:
                rows += 1
                status, _ = user.run(op(PUTFH, opaque(file)), operation(state))
                with self.subTest(name, others=others, kind=words, rule=rule):
                    self.assertTrue(status == OK if may & takes else status in REFUSED, status)
            for name, number, rule in [("COPY", COPY, "RFC 7862 §15.2.3"), ("CLONE", CLONE, "RFC 7862 §15.13.3")]:
                rows += 1
                arguments = (copy_args if number == COPY else clone_args)((state, target), 0, 0, 4096)
                status, _ = user.between(file, own, number, arguments)
                with self.subTest(name + " from it", others=others, kind=words, rule=rule):
                    self.assertTrue(status == OK if may & R else status in REFUSED, status)
        self.assertEqual(rows, 84)

    def test_what_is_reclaimed_takes_the_permission_of_an_open(self):
        root, folder, made = self.files()
        user = self.ready(USER, b"user")
        own = self.make(user, folder, b"own", 0o400)
        status, _ = user.open(own, 3, b"own")
        self.assertEqual(status, ACCESS, "the mode of a file of one's own counts for a new open")
        # They are open when the mode changes.
        for others, file in made.items():
            for bits in 0o666, 0o600 | others:
                status, _ = root.run(op(PUTFH, opaque(file)), op(SETATTR, ANONYMOUS + mode(bits)))
                self.assertEqual(status, OK)
                if bits == 0o666:
                    self.assertEqual(user.open(file, 3, b"before")[0], OK)
        never = self.make(root, folder, b"never", 0o666)
        self.server.stop(signal.SIGKILL)
        self.server.start()
        user = self.client(USER, b"user")
        status, _ = user.open(never, 1, b"never", struct.pack(">II", 1, 0), 0)
        self.assertEqual(status, RECLAIM_BAD, "it was not open")
        rows = itertools.product([*made.items(), (None, own)], (1, 2, 3), (0, 1, 2))
        for n, ((others, file), access, delegation) in enumerate(rows):
            wanted = (R if access & 1 else 0) | (W if access & 2 else 0)
            # The owner may have made the file with this mode, and had it open for more than the mode says.
            may = others is None or others & wanted == wanted
            claim = struct.pack(">II", 1, delegation)
            status, state = user.open(file, access, b"%d" % n, claim, 0)
            with self.subTest("CLAIM_PREVIOUS", others=others, access=access, delegation=delegation, rule="RFC 8881 §8.4.2.1"):
                self.assertTrue(status == OK if may else status in REFUSED, status)
            if status != OK:
                continue
            for name, operation, takes, rule in OPERATIONS:
                status, _ = user.run(op(PUTFH, opaque(file)), operation(state))
                allowed = (R | W if others is None else others) & takes and (takes == R or access & 2)
                if others is None and takes == R and not access & 1:
                    continue
                with self.subTest(name + " of what was reclaimed", others=others, access=access, rule=rule):
                    self.assertTrue(status == OK if allowed else status in REFUSED, status)

    def test_changes_of_contents_take_set_ids_away(self):
        """POSIX write(2) and truncate(2); holes are changes of contents (RFC 7862 §15.4.3)."""
        root, folder, _ = self.files()
        user = self.ready(USER, b"user")
        for name, operation, takes, _ in OPERATIONS:
            if takes != W or name == "ALLOCATE":
                # ALLOCATE within the file changes nothing.
                continue
            file = self.make(root, folder, b"set-" + name.encode(), 0o6777)
            status, _ = user.run(op(PUTFH, opaque(file)), operation(ANONYMOUS))
            self.assertEqual(status, OK, name)
            status, body = user.run(op(PUTFH, opaque(file)), op(GETATTR, struct.pack(">III", 2, 0, 1 << (MODE - 32))))
            self.assertEqual(status, OK)
            self.assertEqual(struct.unpack(">I", body[-4:])[0], 0o777, name)


if __name__ == "__main__":
    unittest.main()
