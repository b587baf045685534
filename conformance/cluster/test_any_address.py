"""Clients of a cluster at the address of a server that has not what they ask for: NFSv3 and NFSv4."""

import os
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

from ceph import POOL, WEIR, Server, free_ports
from cluster import OnlyNodes, OnNodes
from nfs3 import opaque


class Call:
    """An NFSv4.1 client of as much as a referral takes."""

    NOT_MOVED, MOVED = 0, 10019

    def __init__(self, address, port):
        self.socket = socket.create_connection((address, port), 30)
        self.xid = 0
        ops = self.compound(struct.pack(">I8s", 42, b"verifier") + opaque(b"weir-any-address") + struct.pack(">III", 0, 0, 0))
        client, sequence = struct.unpack_from(">QI", ops[42])
        channel = struct.pack(">IIIIIII", 0, 1 << 16, 1 << 16, 1 << 12, 16, 4, 0)
        ops = self.compound(struct.pack(">IQII", 43, client, sequence, 0) + channel * 2 + struct.pack(">III", 0x40000000, 1, 0))
        self.session = ops[43][:16]
        self.sequence = 0

    def close(self):
        self.socket.close()

    def compound(self, *operations):
        """The results of the operations by their numbers, the status of each in front; and of all as that of 0."""
        self.xid += 1
        body = struct.pack(">IIIIIIIIII", self.xid, 0, 2, 100003, 4, 1, 0, 0, 0, 0)
        body += opaque(b"") + struct.pack(">II", 1, len(operations)) + b"".join(operations)
        self.socket.sendall(struct.pack(">I", len(body) | 1 << 31) + body)
        size = struct.unpack(">I", self.read(4))[0] & 0x7FFFFFFF
        reply = self.read(size)[24:]
        status, tag, count = struct.unpack_from(">III", reply)
        assert tag == 0
        # Only the last operation's results are read, those before have fixed lengths.
        at, found = 12, {0: status}
        fixed = {53: 36, 24: 0, 15: 0}
        for number in range(count):
            op, status = struct.unpack_from(">II", reply, at)
            at += 8
            found[op] = reply[at:]
            if number + 1 < count:
                at += fixed[op]
        return found

    def read(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            assert more, "the server has closed the connection"
            data += more
        return data

    def walk(self, path, *last):
        """Goes to a path, and does `last` there."""
        self.sequence += 1
        sequence = struct.pack(">I16sIIII", 53, self.session, self.sequence, 0, 0, 0)
        names = [struct.pack(">I", 15) + opaque(name.encode()) for name in path.split("/") if name]
        return self.compound(sequence, struct.pack(">I", 24), *names, *last)

    def locations(self, path):
        """The places of `fs_locations`, as server and path."""
        found = self.walk(path, struct.pack(">III", 9, 1, 1 << 24))
        assert found[0] == 0, found[0]
        values = found[9][8 + 4:]
        at = 0

        def word():
            nonlocal at
            at += 4
            return struct.unpack_from(">I", values, at - 4)[0]

        def text():
            nonlocal at
            size = word()
            value = values[at:at + size]
            at += (size + 3) & ~3
            return value.decode()

        def names():
            return "".join("/" + text() for _ in range(word()))

        names()
        places = []
        for _ in range(word()):
            servers = [text() for _ in range(word())]
            root = names()
            places += [(server, root) for server in servers]
        return places


class AnyAddress(OnNodes):
    """Aggregates `near` and `far` on two nodes, with a volume of their own name each."""

    NAMES = ("near", "far")

    @classmethod
    def make(cls):
        for name in cls.NAMES:
            cls.prepare(name)
        return OnlyNodes(cls.ceph)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ports = free_ports(4)
        cls.ports = dict(zip(cls.NAMES, (ports, ports + 1)))
        # A referral of SMB leads to port 445, which aggregates on one node cannot share: crates/smb tests referrals.
        cls.smb = dict(zip(cls.NAMES, (ports + 2, ports + 3)))
        try:
            for name in cls.NAMES:
                cls.cluster.nodes[0].does("aggregate", "create", name, "--on", f"rados:{POOL}", "--nfs", str(cls.ports[name]),
                                          "--smb", str(cls.smb[name]), "--memory", "256M")
        except RuntimeError:
            print(cls.cluster.said())
            raise

    @classmethod
    def prepare(cls, name):
        """An aggregate with a volume of its own name, made by a server of its own."""
        with tempfile.TemporaryDirectory(prefix="weir-prepared-") as folder:
            api = free_ports(1)
            server = Server(cls.ceph, name, folder, "--api", f"127.0.0.1:{api}")
            try:
                server.started()
                environment = {**os.environ, "WEIR_SERVER": f"http://127.0.0.1:{api}"}
                subprocess.run([WEIR, "volumes", "create", name, "--storage-pool=default", "--capacity=4", f"--share-name={name}",
                                "--protocols=nfsv3,nfsv4,smb"], env=environment, check=True, timeout=120, capture_output=True, text=True)
                assert server.stop() == 0, server.output()
            except subprocess.CalledProcessError as error:
                raise RuntimeError(f"{error}: {error.stdout}{error.stderr}\n{server.output()}") from error
            finally:
                server.close()

    def setUp(self):
        super().setUp()
        self.cluster.well()
        self.cluster.nodes[0].does("cluster", "rebalance")
        self.cluster.well()
        self.near, self.far = (self.cluster.owner(name) for name in self.NAMES)
        self.assertNotEqual(self.near, self.far)
        self.until("the server of near knows the volumes of far", self.is_known)

    def is_known(self):
        """Whether near's server refers to far's owner."""
        path = os.path.join(self.near.data, "aggregates", "near", "cluster-directory.json")
        if not os.path.exists(path):
            return False
        with open(path, encoding="utf-8") as file:
            return f'"{self.far.address}:{self.ports["far"]}"' in file.read()

    def url(self, name, node, aggregate):
        port = self.ports[aggregate]
        return f"nfs://{node.address}/far/{name}?version=3&nfsport={port}&mountport={port}&auto-traverse-mounts=0"

    def copy(self, path, url):
        done = subprocess.run(["nfs-cp", path, url], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def content(self, url):
        done = subprocess.run(["nfs-cat", url], capture_output=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def random(self, size):
        path, _ = self.file(size)
        with open(path, "rb") as file:
            return path, file.read()

    def test_volumes_are_listed(self):
        text = self.near.does("cluster", "show", "--volumes")
        self.assertRegex(text, rf"far +/far +far +{self.far.address}:{self.ports['far']} +\S+ +yes")
        self.assertRegex(text, r"near +/vol1 +vol1 .* only at its own: far has the same name")

    def test_nfs3_is_forwarded(self):
        path, want = self.random(5_000_000)
        self.copy(path, self.url("through", self.near, "near"))
        self.assertEqual(self.content(self.url("through", self.far, "far")), want)
        self.assertEqual(self.content(self.url("through", self.near, "near")), want)
        done = subprocess.run(["nfs-ls", self.url("", self.near, "near")], capture_output=True, text=True, timeout=60, check=False)
        self.assertIn("through", done.stdout)
        # A path that no server has.
        gone = self.url("through", self.near, "near").replace("/far/", "/nowhere/")
        self.assertNotEqual(subprocess.run(["nfs-cat", gone], capture_output=True, timeout=60, check=False).returncode, 0)

    def test_nfs4_is_referred(self):
        call = Call(self.near.address, self.ports["near"])
        self.addCleanup(call.close)
        port = self.ports["far"]
        self.assertEqual(call.walk("/far", struct.pack(">I", 10))[0], Call.MOVED)
        self.assertEqual(call.locations("/far"), [(f"{self.far.address}.{port >> 8}.{port & 255}", "/far")])
        self.assertEqual(call.walk("/near", struct.pack(">I", 10))[0], 0)

    def test_owner_killed_under_forwarded_calls(self):
        """Small files, one after the other. That under way at the kill may lack data: libnfs does not write again what the
        owner had not committed."""
        path, want = self.random(20_000)
        acknowledged, durable, stop = [], [], threading.Event()
        longest, killed = 0.0, float("inf")

        def write():
            nonlocal longest
            while not stop.is_set():
                name, began = f"over{len(acknowledged)}", time.monotonic()
                self.copy(path, self.url(name, self.near, "near"))
                ended = time.monotonic()
                longest = max(longest, ended - began)
                acknowledged.append(name)
                if not began < killed < ended:
                    durable.append(name)

        writing = threading.Thread(target=write)
        writing.start()

        def goes_on():
            count = len(acknowledged)
            self.until("it writes", lambda: len(acknowledged) > count + 2 or not writing.is_alive())
            self.assertTrue(writing.is_alive(), "the client has failed")

        try:
            goes_on()
            killed = time.monotonic()
            self.far.kill()
            goes_on()
        finally:
            stop.set()
            writing.join()
        print(f"the owner killed under forwarded calls: the longest of {len(acknowledged)} files took {longest:.2f} s")
        self.until("the row follows", lambda: self.cluster.is_left(self.far))
        self.far.start()
        self.cluster.well()
        owner = self.cluster.owner("far")
        self.assertNotEqual(owner, self.far)
        for name in durable:
            self.assertEqual(self.content(self.url(name, owner, "far")), want, name)
            self.assertEqual(self.content(self.url(name, self.near, "near")), want, name)
        call = Call(self.near.address, self.ports["near"])
        self.addCleanup(call.close)
        port = self.ports["far"]
        self.until("the referral follows", lambda: call.locations("/far") == [(f"{owner.address}.{port >> 8}.{port & 255}", "/far")])

    def test_directory_outlives_database_and_restart(self):
        path, want = self.random(100_000)
        self.cluster.postgres.stop()
        self.addCleanup(lambda: self.cluster.postgres.server.poll() is None or self.cluster.postgres.start())
        for node in self.cluster.nodes:
            self.until("it is noticed", lambda node=node: not node.show()["database"]["reached"])
        owner = self.near
        servers = owner.servers()
        os.kill(servers["near"], 9)
        standby = self.cluster.node(self.cluster.aggregate("near")["standby"])

        def serves():
            for node in (owner, standby):
                url = self.url("without", node, "near")
                if subprocess.run(["timeout", "10", "nfs-cp", path, url], capture_output=True, check=False).returncode == 0:
                    return url
            return None

        self.until("near is served again", serves)
        self.assertEqual(self.content(self.url("without", self.far, "far")), want)
        self.cluster.postgres.start()
        self.cluster.well()


if __name__ == "__main__":
    unittest.main()
