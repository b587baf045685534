"""A pair as an aggregate of a cluster: it is shown, watched and switched, and its own witness decides."""

import os
import re
import subprocess
import tempfile

from ceph import WEIR, Ceph, OnCluster, free_ports
from cluster import OnlyNodes


class Side:
    """A server of a pair, which the cluster does not start."""

    def __init__(self, folder, name):
        self.data = os.path.join(folder, name)
        self.log = os.path.join(folder, f"{name}.log")
        self.server = None

    def start(self):
        with open(self.log, "ab") as log:
            self.server = subprocess.Popen(
                [WEIR, "serve", "--data", self.data, "--nfs", "127.0.0.1:0", "--api", "off", "--smb", "off", "--memory", "256M", "--no-rpcbind"],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self):
        if self.server:
            self.server.kill()
            self.server.wait()


def weir(*words):
    done = subprocess.run([WEIR, *words], capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise RuntimeError(f"weir {' '.join(words)}: {done.stderr}")
    return done.stdout


class PairInCluster(OnCluster):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = OnlyNodes(cls.ceph)
        cls.addClassCleanup(cls.cluster.close)
        folder = tempfile.TemporaryDirectory(prefix="weir-pair-")
        cls.addClassCleanup(folder.cleanup)
        cls.sides = [Side(folder.name, name) for name in ("one", "two")]
        witness = cls.cluster.postgres.url
        listen = f"127.0.0.1:{free_ports(1)}"
        first, second = (side.data for side in cls.sides)
        made = weir("pair", "create", "--data", first, "--listen", listen, "--witness", witness)
        word = {name: re.search(rf"{name}\s+(\S+)", made)[1] for name in ("aggregate", "certificate")}
        joined = weir("pair", "join", "--data", second, "--aggregate", word["aggregate"], "--partner", listen,
                      "--partner-certificate", word["certificate"], "--witness", witness)
        weir("pair", "accept", "--data", first, re.search(r"certificate\s+(\S+)", joined)[1])
        for side in cls.sides:
            cls.addClassCleanup(side.kill)
            side.start()

    def shown(self):
        return self.cluster.aggregate("p")

    def test_it_is_shown_and_switched(self):
        first, second = (side.data for side in self.sides)
        node = self.cluster.nodes[2]
        said = node.does("aggregate", "create", "p", "--on", f"pair:n1={first},n2={second}")
        self.assertRegex(said, r"p is served by n1, n2 stands by")
        self.assertIn("is no node of this pair", node.weir("aggregate", "move", "p", "--to", "n3")[1])
        self.assertRegex(node.does("cluster", "takeover", "--aggregate", "p"), r"n2 owns p, in epoch \d+")
        Ceph.until("the other one stands by", lambda: self.shown()["standby"] == "n1" and self.shown()["why"] is None)
        self.assertIn("n2 is drained", node.does("cluster", "drain", "n2"))
        self.assertEqual(self.shown()["owner"], "n1")
        node.does("cluster", "drain", "n2", "--undo")
        Ceph.until("all is well", lambda: self.shown()["why"] is None)
        # The pair takes over by itself, and the row follows; its daemons only watch.
        epoch = self.shown()["epoch"]
        self.sides[0].kill()
        Ceph.until("the row follows", lambda: self.shown()["owner"] == "n2" and self.shown()["epoch"] > epoch)
        Ceph.until("the reason is said", lambda: "its server on n1 does not stand by: no server runs on" in (self.shown()["why"] or ""))
        self.sides[0].start()
        Ceph.until("all is well again", lambda: self.shown()["why"] is None)
        self.assertIn("p is no aggregate of the cluster any more", node.does("aggregate", "delete", "p"))
        self.assertIsNone(self.sides[1].server.poll())
