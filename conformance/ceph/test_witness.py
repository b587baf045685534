"""A pair whose witness is an object in a pool of a real Ceph."""

import hashlib
import json
import os
import re
import signal
import socket
import subprocess
import unittest

from ceph import POOL, WEIR, Client, OnCluster, documented, free_ports


class Node(Client):
    """A node of the pair."""

    def __init__(self, test, name, port):
        self.ceph, self.data, self.port = test.ceph, os.path.join(test.folder, name), port
        self.process = None
        test.addCleanup(self.kill)

    def weir(self, *words):
        done = subprocess.run([WEIR, *words], env=self.ceph.environment, capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    def start(self):
        with open(self.data + ".log", "ab") as log:
            self.process = subprocess.Popen(
                [WEIR, "serve", "--data", self.data, "--nfs", f"127.0.0.1:{self.port}", "--memory", "256M", "--no-rpcbind",
                 "--api", "off"], env=self.ceph.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def shows(self):
        return self.weir("pair", "show", "--data", self.data)[1]

    def listens(self):
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


class Pairs(OnCluster):
    def pair(self, witness):
        """Two nodes that know each other, not started, and the name of their aggregate."""
        ports = free_ports(3)
        a, b = Node(self, "a", ports), Node(self, "b", ports + 1)
        listen = f"127.0.0.1:{ports + 2}"
        status, made = a.weir("pair", "create", "--data", a.data, "--listen", listen, "--witness", witness)
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
        return a, b, aggregate


class PoolDecides(Pairs):
    def register(self, aggregate):
        """The register as an operator would read it."""
        read = self.ceph.run("rados", "-p", POOL, "-N", "weir-witness", "get", f"pair.{aggregate}", "-")
        return json.loads(read.stdout)

    def in_sync(self, *nodes):
        for node in nodes:
            self.ceph.until("the pair is in sync", lambda node=node: re.search(r"in sync +yes", node.shows()), 90)

    def test_addresses_of_no_pool_are_refused(self):
        node = Node(self, "none", free_ports(1))
        create = ["pair", "create", "--data", node.data, "--listen", "127.0.0.1:1", "--witness"]
        for wrong in ("rados:", f"rados:{POOL}/x", f"rados:{POOL}?pool=x"):
            status, said = node.weir(*create, wrong)
            self.assertEqual(status, 2, said)
            self.assertIn("names no pool", said)
        status, said = node.weir(*create, f"rados:{POOL}", "--witness-certificate", "ab" * 32)
        self.assertEqual(status, 2, said)

    def test_an_object_decides_who_serves(self):
        witness = f"rados:{POOL}?conf={self.ceph.conf}"
        a, b, aggregate = self.pair(witness)
        a.start()
        self.ceph.until("the first serves", a.listens)
        b.start()
        self.in_sync(a, b)
        self.assertRegex(a.shows(), rf"witness +rados:{POOL}")
        self.assertTrue(self.register(aggregate)["mirrored"])

        path, want = self.file(4 << 20)
        self.assertEqual(a.put(path, "one").returncode, 0)
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


class Rights(Pairs):
    """A witness's user, on a cluster that asks for keys."""

    cephx = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mon, osd = documented("mirror.md", r"The user needs `mon '([^']+)'` and\s+`osd '([^']+)'`")
        cls.osd = osd.replace("POOL", POOL)

    def asks_as(self, user, osd):
        """The first node of a pair, started, whose witness is asked as this user."""
        self.ceph.user(user, mon=self.mon, osd=osd)
        keyring = self.ceph.keyring(user)
        node, _, _ = self.pair(f"rados:{POOL}?conf={self.ceph.conf}&user={user}&keyring={keyring}")
        node.start()
        return node

    def test_the_documented_rights_suffice(self):
        node = self.asks_as("client.witness", self.osd)
        self.ceph.until("it serves", node.listens)

    def test_nothing_less_suffices(self):
        node = self.asks_as("client.reader", self.osd.replace("rw", "r"))
        self.ceph.until("it says why it does not serve", lambda: "Operation not permitted" in node.shows())
        self.assertFalse(node.listens())


if __name__ == "__main__":
    unittest.main()
