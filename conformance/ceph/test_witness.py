"""A pair whose witness is an object in a pool of a real Ceph."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import unittest

from ceph import POOL, WEIR, Ceph, free_ports


class Node:
    """A node of the pair."""

    def __init__(self, test, name, nfs):
        self.ceph, self.data, self.nfs = test.ceph, os.path.join(test.folder, name), nfs
        self.process = None
        test.addCleanup(self.kill)

    def weir(self, *words):
        done = subprocess.run([WEIR, *words], env=self.ceph.environment, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    def start(self):
        with open(self.data + ".log", "ab") as log:
            self.process = subprocess.Popen(
                [WEIR, "serve", "--data", self.data, "--nfs", f"127.0.0.1:{self.nfs}", "--memory", "256M", "--no-rpcbind",
                 "--api", "off"], env=self.ceph.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def shows(self):
        return self.weir("pair", "show", "--data", self.data)[1]

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.nfs)) == 0

    def url(self, name):
        return f"nfs://127.0.0.1/vol1/{name}?version=3&nfsport={self.nfs}&mountport={self.nfs}&auto-traverse-mounts=0"

    def cat(self, name):
        return subprocess.run(["nfs-cat", self.url(name)], capture_output=True, timeout=60, check=True).stdout


class PoolDecides(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ceph = Ceph()
        cls.addClassCleanup(cls.ceph.close)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-witness-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def register(self, aggregate):
        """The register as an operator would read it."""
        read = self.ceph.run("rados", "-p", POOL, "-N", "weir-witness", "get", f"pair.{aggregate}", "-")
        return json.loads(read.stdout)

    def in_sync(self, *nodes):
        for node in nodes:
            self.ceph.until("the pair is in sync", lambda node=node: re.search(r"in sync +yes", node.shows()), 90)

    def test_an_object_decides_who_serves(self):
        ports = free_ports(3)
        a, b = Node(self, "a", ports), Node(self, "b", ports + 1)
        listen, witness = f"127.0.0.1:{ports + 2}", f"rados:{POOL}?conf={self.ceph.conf}"
        create = ["pair", "create", "--data", a.data, "--listen", listen, "--witness"]
        for wrong, why in (("rados:", "names no pool"), (f"rados:{POOL}/x", "names no pool"), (f"rados:{POOL}?pool=x", "names no pool")):
            status, said = a.weir(*create, wrong)
            self.assertEqual(status, 2, said)
            self.assertIn(why, said)
        status, said = a.weir(*create, witness, "--witness-certificate", "ab" * 32)
        self.assertEqual(status, 2, said)
        status, made = a.weir(*create, witness)
        self.assertEqual(status, 0, made)
        aggregate = re.search(r"--aggregate (\S+)", made)[1]
        certificate = re.search(r"--partner-certificate (\S+)", made)[1]
        self.assertIn(f"--witness '{witness}'", made)
        status, joined = b.weir("pair", "join", "--data", b.data, "--aggregate", aggregate, "--partner", listen,
                                "--partner-certificate", certificate, "--witness", witness)
        self.assertEqual(status, 0, joined)
        accept = re.search(r"weir pair accept .*? ([0-9a-f]{64})", joined)[1]
        status, said = a.weir("pair", "accept", "--data", a.data, accept)
        self.assertEqual(status, 0, said)
        a.start()
        self.ceph.until("the first serves", a.listens)
        b.start()
        self.in_sync(a, b)
        self.assertRegex(a.shows(), rf"witness +rados:{POOL}")
        self.assertTrue(self.register(aggregate)["mirrored"])

        path = os.path.join(self.folder, "file")
        with open(path, "wb") as file:
            file.write(os.urandom(4 << 20))
        with open(path, "rb") as file:
            want = hashlib.sha256(file.read()).hexdigest()
        subprocess.run(["nfs-cp", path, a.url("one")], check=True, capture_output=True, timeout=60)
        a.kill()
        self.ceph.until("the second serves", b.listens)
        self.assertEqual(hashlib.sha256(b.cat("one")).hexdigest(), want)
        register = self.register(aggregate)
        self.assertEqual((register["primary"], register["mirrored"]), ("b", False))
        a.start()
        self.in_sync(a, b)

        # While the pool does not answer nobody takes over, and afterwards the side that has everything does.
        osd = self.ceph.daemons[-1]
        osd.send_signal(signal.SIGSTOP)
        try:
            b.kill()
            self.ceph.until("the first asks in vain", lambda: re.search(r"role +taking over", a.shows())
                            and f"the witness at rados:{POOL}" in a.shows())
            self.assertFalse(a.listens())
        finally:
            osd.send_signal(signal.SIGCONT)
        self.ceph.until("the first serves", a.listens)
        self.assertEqual(hashlib.sha256(a.cat("one")).hexdigest(), want)
        self.assertEqual(self.register(aggregate)["primary"], "a")


if __name__ == "__main__":
    unittest.main()
