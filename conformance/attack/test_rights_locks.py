"""Rights at locks and share reservations of NLM: export × caller × permissions × call, before and after a stop, and what each call
meets of NLM, NFSv4 and SMB. The rows are generated, and each has the rule that decides it."""

import itertools
import signal
import struct
import unittest

import attacker
import wires
from attacker import NLM, auth_sys, opaque
from test_locks import alock, lock_arguments
from test_nfs4 import OK, op
from test_rights_matrix import EXPORTS, PASSWORD, ROOT, USER, W, R, Matrix, effective, may3

GRANTED, DENIED, GRACE, ROFS, FAILED = 0, 1, 4, 6, 9
TEST, LOCK, UNLOCK, SHARE, UNSHARE, NM_LOCK, FREE_ALL = 1, 2, 4, 20, 21, 22, 23
FCNTL = "POSIX fcntl(), EBADF; docs/reference/semantics.md, who may lock"
MODES = "X/Open XNFS C702, NLM_SHARE; docs/reference/semantics.md, who may lock"
AGAIN = "X/Open XNFS C702, NLM grace period; RFC 8881 §8.4.2.1"
CONFLICT = "X/Open XNFS C702, NLM_SHARE: neither uses what the other denies; docs/reference/conflicts.md"
RANGES = "POSIX fcntl(): an exclusive lock excludes all others; docs/reference/conflicts.md"


def share_arguments(host, handle, access, deny, owner=b"owner", reclaim=False):
    """nlm4_shareargs."""
    return opaque(b"c") + opaque(host) + opaque(handle) + opaque(owner) + struct.pack(">III", deny, access, reclaim)


class Host(attacker.Client):
    """A host whose calls are those of one user."""

    def __init__(self, port, name, source, uid=ROOT):
        super().__init__(port, source, 60)
        self.name, self.uid = name, uid

    def ask(self, procedure, arguments):
        results = self.call(NLM, 4, procedure, arguments, auth_sys(self.uid, self.uid, self.name))
        assert results[:8] == opaque(b"c"), results
        return struct.unpack(">I", results[8:12])[0]

    def lock(self, handle, exclusive=True, reclaim=False, procedure=LOCK, start=0):
        return self.ask(procedure, lock_arguments(self.name, handle, 1, start, 1, exclusive, reclaim=reclaim))

    def test(self, handle, exclusive=True):
        return self.ask(TEST, opaque(b"c") + struct.pack(">I", exclusive) + alock(self.name, handle, 1, 0, 1))

    def unlock(self, handle):
        return self.ask(UNLOCK, opaque(b"c") + alock(self.name, handle, 1, 0, 0))

    def share(self, handle, access, deny=0, reclaim=False):
        return self.ask(SHARE, share_arguments(self.name, handle, access, deny, reclaim=reclaim))

    def unshare(self, handle):
        return self.ask(UNSHARE, share_arguments(self.name, handle, 0, 0))

    def free(self):
        self.call(NLM, 4, FREE_ALL, opaque(self.name) + bytes(4), auth_sys())


class Locks(Matrix):
    # Those of the table of contents are run there.
    test_nfs3 = test_nfs41 = test_nfs42 = test_smb = None

    def host(self, server, name=b"alpha", source="127.0.0.1", uid=ROOT):
        host = Host(self.port_of(server), name, source, uid)
        self.addCleanup(host.close)
        return host

    @staticmethod
    def calls(reads, writes):
        """Name, call, whether it is allowed, and the rule, for a caller who may read or write a file."""
        either = reads or writes
        for exclusive in False, True:
            kind, may = ("exclusive", writes) if exclusive else ("shared", either)
            yield f"TEST {kind}", lambda h, f, e=exclusive: h.test(f, e), either, FCNTL
            yield f"LOCK {kind}", lambda h, f, e=exclusive: h.lock(f, e), may, FCNTL
            yield f"NM_LOCK {kind}", lambda h, f, e=exclusive: h.lock(f, e, procedure=NM_LOCK), may, FCNTL
        for access, may in enumerate([either, reads, writes, reads and writes]):
            yield f"SHARE {access}", lambda h, f, a=access: h.share(f, a), may, MODES

    def test_permissions(self):
        for export in EXPORTS:
            server = self.serve(export)
            for uid in (ROOT, USER):
                who, host = effective(export, uid), self.host(server, uid=uid)
                for file in self.files:
                    handle, context = self.handles[file.name], {"export": export, "uid": uid, "file": file}
                    reads = may3(who, file, R)
                    writes = may3(who, file, W) and not export.startswith("ro")
                    for name, call, may, rule in self.calls(reads, writes):
                        self.row(call(host, handle), may, {FAILED, ROFS}, rule, operation=name, **context)
                    # Nothing is claimed again when the server has not stopped.
                    for name, again, may in [("LOCK", lambda: host.lock(handle, reclaim=True), writes),
                                             ("SHARE", lambda: host.share(handle, 1, reclaim=True), reads)]:
                        self.row(again(), False, {DENIED} if may else {FAILED, ROFS}, AGAIN, operation=f"{name} again", **context)
                    # To give up takes no permission.
                    self.row(host.unlock(handle), True, set(), FCNTL, operation="UNLOCK", **context)
                    self.row(host.unshare(handle), True, set(), MODES, operation="UNSHARE", **context)
                host.free()
            server.close()
        print(f"{self.rows} rows over NLM", flush=True)

    def test_reclaims(self):
        """Which host may claim what again, and which gets it, after a kill and after a stop in order."""
        for how, listed in (signal.SIGKILL, False), (signal.SIGTERM, True):
            server = self.serve("rw,no_root_squash")
            locked, shared, other = (self.handles[name] for name in ("anyone", "own", "others6"))
            alpha, beta = self.host(server), self.host(server, b"beta", "127.0.0.2")
            self.assertEqual((alpha.lock(locked), beta.share(shared, 1, 2)), (GRANTED, GRANTED))
            for host in alpha, beta:
                host.close()
            server.stop(how)
            server.start()
            hosts = {"alpha": self.host(server), "beta": self.host(server, b"beta", "127.0.0.2"),
                     "stranger": self.host(server, b"gamma", "127.0.0.3")}
            context = {"stop": how.name}
            for (name, host), (where, file) in itertools.product(hosts.items(), [("locked", locked), ("shared", shared), ("other", other)]):
                had_lock = name in ("alpha", "beta") if not listed else (name, where) in (("alpha", "locked"), ("beta", "shared"))
                had_share = name == "beta" and (not listed or where == "shared")
                held = where == "locked" or not listed
                denied = where == "shared" or not listed
                who = {"host": name, "file": where, **context}
                # What is bound: locks where a host may have had some. A host with share reservations may have had locks too.
                bound = held or where == "shared"
                self.row(host.test(file), not bound, {GRACE}, AGAIN, operation="TEST", **who)
                self.row(host.lock(file), not bound, {GRACE}, AGAIN, operation="LOCK", **who)
                self.row(host.lock(file, procedure=NM_LOCK), not bound, {GRACE}, AGAIN, operation="NM_LOCK", **who)
                self.row(host.share(file, 1), not denied, {GRACE}, AGAIN, operation="SHARE", **who)
                if not bound:
                    self.assertEqual((host.unlock(file), host.unshare(file)), (GRANTED, GRANTED))
                status = host.lock(file, reclaim=True, start=7)
                self.row(status, had_lock, {DENIED}, AGAIN, operation="LOCK again", **who)
                if status == GRANTED:
                    self.assertEqual(host.unlock(file), GRANTED)
                status = host.share(file, 1, 0, reclaim=True)
                self.row(status, had_share, {DENIED}, AGAIN, operation="SHARE again", **who)
                if status == GRANTED:
                    self.assertEqual(host.unshare(file), GRANTED)
            # Again takes the permission that it took at first.
            user = self.host(server, uid=USER + 1)
            self.row(user.lock(shared if not listed else locked, reclaim=True), listed, {FAILED}, FCNTL, operation="LOCK again", **context)
            for host in [*hosts.values(), user]:
                host.free()
            server.close()
        print(f"{self.rows} rows over NLM in the grace period", flush=True)

    def test_conflicts(self):
        """Each share reservation beside each, and locks beside locks, of two hosts and of other protocols."""
        server = self.serve("rw,no_root_squash")
        handle = self.handles["anyone"]
        alpha, beta = self.host(server), self.host(server, b"beta", "127.0.0.2")
        modes = list(itertools.product(range(4), range(4)))
        for (used, denied), (uses, denies) in itertools.product(modes, modes):
            self.assertEqual(alpha.share(handle, used, denied), GRANTED)
            may = not used & denies and not uses & denied
            status = beta.share(handle, uses, denies)
            self.row(status, may, {DENIED}, CONFLICT, beside=("NLM", used, denied), operation=("SHARE", uses, denies))
            if status == GRANTED:
                self.assertEqual(beta.unshare(handle), GRANTED)
            self.assertEqual(alpha.unshare(handle), GRANTED)
        client = self.client4(server, ROOT, 2, b"opens")
        smb = self.session(server, "root")
        for used, denied in itertools.product((1, 2, 3), range(4)):
            head = struct.pack(">IIIQ", 0, used | wires.NO_DELEGATION, denied, client.id) + opaque(b"o")
            status, body = client.run(op(22, opaque(handle)), op(18, head + struct.pack(">II", 0, 4)))
            self.assertEqual(status, OK)
            self.shares(beta, handle, "NFSv4", used, denied)
            self.assertEqual(client.at(handle, 4, bytes(4) + body[16:32])[0], OK)
            status, opened = smb.opened("anyone", used, share=7 & ~denied)
            self.assertEqual(status, OK)
            self.shares(beta, handle, "SMB", used, denied)
            self.assertEqual(smb.closed(opened), OK)
        for held, wanted in itertools.product((False, True), repeat=2):
            may = not held and not wanted
            self.assertEqual(alpha.lock(handle, held), GRANTED)
            for start in 0, 1:
                status = beta.lock(handle, wanted, start=start)
                self.row(status, may or start == 1, {DENIED}, RANGES, beside=("NLM", held), operation=("LOCK", wanted, start))
                self.assertEqual(beta.unlock(handle), GRANTED)
            self.assertEqual(alpha.unlock(handle), GRANTED)
            status, state = client.open(handle, 3, b"locks")
            self.assertEqual(status, OK)
            locker = struct.pack(">II", 1, 0) + state + struct.pack(">IQ", 0, client.id) + opaque(b"l")
            status, body = client.at(handle, wires.LOCK, struct.pack(">IIQQ", 1 + held, 0, 0, 1) + locker)
            self.assertEqual(status, OK)
            status = beta.lock(handle, wanted)
            self.row(status, may, {DENIED}, RANGES, beside=("NFSv4", held), operation=("LOCK", wanted))
            self.assertEqual(beta.unlock(handle), GRANTED)
            self.assertEqual(client.at(handle, 14, struct.pack(">II", 1, 0) + body[:16] + struct.pack(">QQ", 0, 1))[0], OK)
            self.assertEqual(client.at(handle, 4, bytes(4) + state)[0], OK)
        for host in alpha, beta:
            host.free()
        server.close()
        print(f"{self.rows} rows of conflicts", flush=True)

    def shares(self, host, handle, protocol, used, denied):
        for uses, denies in itertools.product(range(4), range(4)):
            may = not used & denies and not uses & denied
            status = host.share(handle, uses, denies)
            self.row(status, may, {DENIED}, CONFLICT, beside=(protocol, used, denied), operation=("SHARE", uses, denies))
            if status == GRANTED:
                self.assertEqual(host.unshare(handle), GRANTED)


del Matrix  # Its tests are run by its own module.

if __name__ == "__main__":
    unittest.main()
