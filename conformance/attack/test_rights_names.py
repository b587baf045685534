"""Rights at names: export × caller × permissions of the directory × operation, over NFSv3, NFSv4.1 and SMB.

As `test_rights_matrix.py`: generated rows, and rules of POSIX for what each has to give. What an operation has made is removed by the
same caller, so that every row finds the directories as they were."""

import itertools
import struct
import unittest

import attacker
import test_rights_matrix as matrix
import wires
from attacker import opaque
from test_nfs4 import DESTROY_SESSION, LOOKUP, OK, PUTFH, op, open_by_name
from test_rights_matrix import ACCESS, DENIED, EXPORTS, GROUP, NOBODY, OTHER, PERM, R, ROFS, ROOT, USER, W, X, File, effective, permits
from wires import smbwire

REFUSED = {PERM, ACCESS}
DENIED_DELETE = next(iter(DENIED))
REMOVE, RENAME, LINK, CREATE, READDIR, SAVEFH = 28, 29, 11, 6, 26, 32


def directories():
    """For each class of callers and each set of permissions a directory that gives the other classes what is missing."""
    made = []
    for may, (words, uid, gid) in itertools.product(range(8), [
            ("owner", USER, GROUP), ("group", OTHER, USER), ("others", OTHER, GROUP), ("nobody", NOBODY, GROUP)]):
        classes = [7 & ~may] * 3
        classes[{"owner": 0, "group": 1, "others": 2, "nobody": 0}[words]] = may
        made.append(File(f"d-{words}{may}", uid, gid, classes[0] << 6 | classes[1] << 3 | classes[2]))
    # Sticky: entries are their owners' (POSIX.1-2017 §4.3, unlink()).
    return [*made, File("d-sticky", OTHER, GROUP, 0o1777)]


def may_search(who, folder):
    return permits(who, folder._replace(mode=folder.mode | 0o111 if who.uid == ROOT else folder.mode), X)


def may_change(who, folder):
    return permits(who, folder, W) and may_search(who, folder)


def may_take(who, folder, owner):
    """An entry of this owner."""
    sticky = folder.mode & 0o1000 and who.uid not in (ROOT, folder.uid, owner)
    return may_change(who, folder) and not sticky


class Names(matrix.Matrix):
    """The matrix's rows are its own; these have a folder of their own."""

    test_nfs3 = test_nfs41 = test_nfs42 = test_smb = None

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        server = attacker.Server(data=cls.data)
        try:
            client = wires.Nfs3(cls.port_of(server), timeout=60)
            root = client.mount()
            cls.folders = directories()
            for folder in cls.folders:
                status, results = client.ask(9, opaque(root) + opaque(folder.name.encode()) + struct.pack(">II", 1, 0o777) + bytes(20))
                assert status == OK, status
                (length,) = struct.unpack(">I", results[4:8])
                handle = cls.handles[folder.name] = results[8:8 + length]
                # Not the caller's under any export.
                entry = client.make(handle, b"entry", 0o644)
                assert client.set(entry, uid=OTHER, gid=GROUP) == OK
                assert client.set(handle, uid=folder.uid, gid=folder.gid) == OK
                assert client.set(handle, bits=folder.mode) == OK
            client.close()
        finally:
            server.close()

    def expect(self, status, may, takes, context, folder, operation):
        changes = not context["export"].startswith("ro")
        refused = REFUSED | ({ROFS} if not changes and takes else set())
        self.row(status, may and (changes or not takes), refused, "POSIX.1-2017 §4.5, §4.3", folder=folder, operation=operation, **context)

    def each(self, protocol):
        """Every export and caller; a server for each export."""
        for export in EXPORTS:
            server = self.serve(export)
            for name, uid in ("root", ROOT), ("user", USER):
                yield server, name, uid, effective(export, uid), {"protocol": protocol, "export": export, "uid": uid}
            server.close()

    def test_names_over_nfs3(self):
        for server, _, uid, who, context in self.each("NFSv3"):
            client = wires.Nfs3(self.port_of(server), timeout=60)
            self.addCleanup(client.close)
            client.uid = uid
            for folder in self.folders:
                here = opaque(self.handles[folder.name])
                remove = lambda name: client.ask(12, here + opaque(name))[0]
                status, _ = client.ask(3, here + opaque(b"entry"))
                self.expect(status, may_search(who, folder), False, context, folder, "LOOKUP")
                status, _ = client.ask(16, here + bytes(16) + struct.pack(">I", 4096))
                self.expect(status, permits(who, folder, R), False, context, folder, "READDIR")
                status, _ = client.ask(17, here + bytes(16) + struct.pack(">II", 4096, 8192))
                self.expect(status, permits(who, folder, R), False, context, folder, "READDIRPLUS")
                sattr = bytes(24)
                for operation, number, arguments, undo in [
                    ("CREATE", 8, opaque(b"new") + bytes(4) + sattr, 12), ("MKDIR", 9, opaque(b"new") + sattr, 13),
                    ("SYMLINK", 10, opaque(b"new") + sattr + opaque(b"to"), 12),
                    ("MKNOD", 11, opaque(b"new") + struct.pack(">I", 7) + sattr, 12),
                ]:
                    status, _ = client.ask(number, here + arguments)
                    self.expect(status, may_change(who, folder), True, context, folder, operation)
                    if status == OK:
                        undone, _ = client.ask(undo, here + opaque(b"new"))
                        self.expect(undone, True, True, context, folder, "REMOVE of one's own")
                # A link to another's file stays in a sticky directory.
                linked = b"link %d %s" % (uid, context["export"].encode())
                status, _ = client.ask(15, opaque(self.handles["anyone"]) + here + opaque(linked))
                self.expect(status, may_change(who, folder), True, context, folder, "LINK")
                if status == OK:
                    self.expect(remove(linked), may_take(who, folder, USER), True, context, folder, "REMOVE of a link")
                status, _ = client.ask(14, here + opaque(b"entry") + here + opaque(b"moved"))
                self.expect(status, may_take(who, folder, OTHER), True, context, folder, "RENAME")
                if status == OK:
                    self.assertEqual(client.ask(14, here + opaque(b"moved") + here + opaque(b"entry"))[0], OK)
                if not may_take(who, folder, OTHER):
                    self.expect(remove(b"entry"), False, True, context, folder, "REMOVE")
            client.close()
        print(f"{self.rows} rows of names over NFSv3", flush=True)

    def test_names_over_nfs4(self):
        for server, _, uid, who, context in self.each("NFSv4.1"):
            client = self.client4(server, uid, 1, b"names %d %s" % (uid, context["export"].encode()))
            for folder in self.folders:
                here = op(PUTFH, opaque(self.handles[folder.name]))
                run = lambda *ops: client.run(here, *ops)[0]
                self.expect(run(op(LOOKUP, opaque(b"entry"))), may_search(who, folder), False, context, folder, "LOOKUP")
                listing = op(READDIR, bytes(16) + struct.pack(">II", 4096, 4096) + bytes(4))
                self.expect(run(listing), permits(who, folder, R), False, context, folder, "READDIR")
                head = open_by_name(b"new", b"names")
                made = head[:16] + struct.pack(">Q", client.id) + head[24:]
                status, body = client.run(here, made)
                self.expect(status, may_change(who, folder), True, context, folder, "OPEN that makes")
                if status == OK:
                    file = op(LOOKUP, opaque(b"new"))
                    closed = run(file, op(4, bytes(4) + body[16:32])) if may_search(who, folder) else OK
                    self.assertEqual(closed, OK)
                    self.expect(run(op(REMOVE, opaque(b"new"))), True, True, context, folder, "REMOVE of one's own")
                status = run(op(CREATE, struct.pack(">I", 2) + opaque(b"new") + bytes(8)))
                self.expect(status, may_change(who, folder), True, context, folder, "CREATE")
                if status == OK:
                    self.expect(run(op(REMOVE, opaque(b"new"))), True, True, context, folder, "REMOVE of one's own")
                linked = b"4 link %d %s" % (uid, context["export"].encode())
                status, _ = client.run(op(PUTFH, opaque(self.handles["anyone"])), op(SAVEFH), here, op(LINK, opaque(linked)))
                self.expect(status, may_change(who, folder), True, context, folder, "LINK")
                if status == OK:
                    status = run(op(REMOVE, opaque(linked)))
                    self.expect(status, may_take(who, folder, USER), True, context, folder, "REMOVE of a link")
                rename = lambda a, b: run(op(SAVEFH), op(RENAME, opaque(a) + opaque(b)))
                status = rename(b"entry", b"moved")
                self.expect(status, may_take(who, folder, OTHER), True, context, folder, "RENAME")
                if status == OK:
                    self.assertEqual(rename(b"moved", b"entry"), OK)
                if not may_take(who, folder, OTHER):
                    self.expect(run(op(REMOVE, opaque(b"entry"))), False, True, context, folder, "REMOVE")
            self.assertEqual(client.compound(op(DESTROY_SESSION, client.session_id))[0], OK)
            self.assertEqual(client.compound(op(57, struct.pack(">Q", client.id)))[0], OK)
            client.close()
        print(f"{self.rows} rows of names over NFSv4.1", flush=True)

    def test_names_over_smb(self):
        for server, user, _, who, context in self.each("SMB"):
            client = self.session(server, user)
            changes = not context["export"].startswith("ro")

            def expect(status, may, takes, folder, operation):
                self.row(status, may and (changes or not takes), DENIED, "docs/reference/smb.md, UNIX style", folder=folder, operation=operation,
                         **context)

            def moved(opened, folder, name):
                name = f"{folder.name}\\{name}".encode("utf-16-le")
                return client.set_info(opened, 10, struct.pack("<B7xQI", 0, 0, len(name)) + name)

            for folder in self.folders:
                status, opened = client.opened(f"{folder.name}\\entry", matrix.READ_ATTRIBUTES)
                expect(status, may_search(who, folder), False, folder, "CREATE of what is there")
                if status == OK:
                    self.assertEqual(client.closed(opened), OK)
                status, opened = client.opened(folder.name, matrix.READ_DATA, options=1)
                expect(status, permits(who, folder, R), False, folder, "CREATE to list")
                if status == OK:
                    self.assertEqual((client.query_directory(opened), client.closed(opened)), (OK, OK))
                status, opened = client.opened(folder.name, matrix.READ_ATTRIBUTES, options=1)
                self.assertEqual(status, OK)
                expect(client.query_directory(opened), False, False, folder, "QUERY_DIRECTORY without the right")
                self.assertEqual(client.closed(opened), OK)
                for options, operation in (0x40, "CREATE of a file"), (1, "CREATE of a directory"):
                    status, opened = client.opened(f"{folder.name}\\new", matrix.DELETE, smbwire.MAKE, options)
                    expect(status, may_change(who, folder), True, folder, operation)
                    if status == OK:
                        self.assertEqual(client.set_info(opened, 13, b"\1"), OK)
                        self.assertEqual(client.closed(opened), OK)
                status, opened = client.opened(f"{folder.name}\\entry", matrix.DELETE)
                may = may_take(who, folder, OTHER)
                if changes:
                    expect(status, may, True, folder, "CREATE to delete")
                if status == OK:
                    self.assertEqual(client.closed(opened), OK)
                if may_search(who, folder):
                    # What is granted by name, at most, and as the most that there is.
                    shown = client.maximal(f"{folder.name}\\entry")
                    expect(OK if shown & matrix.DELETE else DENIED_DELETE, may, True, folder, "maximal access")
                    status, opened = client.opened(f"{folder.name}\\entry", 0x02000000)
                    self.assertEqual(status, OK)
                    expect(client.disposed(opened), may, True, folder, "disposition of an open with all that is allowed")
                    expect(moved(opened, folder, "moved"), may, True, folder, "rename likewise")
                    if may and changes:
                        self.assertEqual(moved(opened, folder, "entry"), OK)
                    self.assertEqual(client.closed(opened), OK)
                    if not (may and changes):
                        status, opened = client.opened(f"{folder.name}\\entry", 0x02000000, options=0x1040)
                        expect(status, False, True, folder, "CREATE that deletes on close")
                        if status == OK:
                            self.assertEqual(client.closed(opened), OK)
                if may_search(who, folder):
                    status, opened = client.opened(f"{folder.name}\\entry", matrix.READ_ATTRIBUTES)
                    expect(status, True, False, folder, "CREATE of what others must not delete")
                    self.assertEqual(client.closed(opened), OK)
            client.close()
        print(f"{self.rows} rows of names over SMB", flush=True)


if __name__ == "__main__":
    unittest.main()
