"""Volumes that move between the aggregates of a cluster while clients of NFSv3 write to them."""

import os
import random
import re
import subprocess
import threading
import time
import unittest

from ceph import WEIR
from cluster import POOLS, VOLUMES, OnNodes, pool_in
from nfs3_client import NOENT, Failed, Nfs3

BLOCK = 4096


class Writer(threading.Thread):
    """Writes blocks to a file of its own, one after the other, and makes a new file now and then. What is acknowledged counts."""

    def __init__(self, addresses, port, root, number):
        super().__init__()
        self.client, self.root, self.number = Nfs3(addresses, port), root, number
        self.blocks, self.files, self.stop, self.failure = 0, [], threading.Event(), None
        self.file = self.client.create(root, f"w{number}")

    def block(self, at):
        return random.Random(self.number << 32 | at).randbytes(BLOCK)

    def run(self):
        try:
            while not self.stop.is_set():
                self.client.write(self.file, self.blocks * BLOCK, self.block(self.blocks))
                self.blocks += 1
                if self.blocks % 8 == 0:
                    name = f"n{self.number}-{self.blocks}"
                    self.client.create(self.root, name)
                    self.files.append(name)
        except (Failed, OSError) as why:
            self.failure = why


class MovedVolumes(OnNodes):
    def setUp(self):
        super().setUp()
        self.cluster.nodes[0].does("cluster", "rebalance")
        self.cluster.well()
        self.node = self.cluster.nodes[2]
        for aggregate, pool in (("a", "of-a"), ("b", "of-b")):
            self.ok(self.node, "POST", POOLS, pool_in(aggregate), storagePoolId=pool)
        body = {"storagePool": "of-a", "capacityGib": "100", "shareName": "db", "protocols": ["NFSV3"], "labels": {"who": "test"},
                "snapshotPolicy": {"enabled": True, "dailySchedule": {"snapshotsToKeep": 3, "minute": 1, "hour": 1}},
                "exportPolicy": {"rules": [{"allowedClients": "0.0.0.0/0", "accessType": "READ_WRITE", "nfsv3": True,
                                            "hasRootAccess": "true"}]}}
        self.ok(self.node, "POST", VOLUMES, body, volumeId="db")
        self.old = self.cluster.owner("a")
        self.writers = []

    def tearDown(self):
        for writer in self.writers:
            writer.stop.set()
        for writer in self.writers:
            if writer.is_alive():
                writer.join()
        for node in self.cluster.nodes:
            if node.daemon.poll() is not None:
                node.start()
        self.cluster.well()
        self.until("it is gone", self.is_gone)
        for pool in ("of-a", "of-b"):
            self.node.ask("DELETE", f"{POOLS}/{pool}")
        super().tearDown()

    def is_gone(self):
        self.node.ask("DELETE", f"{VOLUMES}/db", force="true")
        return self.node.ask("GET", f"{VOLUMES}/db")[0] == 404

    def addresses(self):
        """Those of all nodes. An aggregate has none that moves here: after a takeover it is at another node's."""
        return [node.address for node in self.cluster.nodes]

    def port(self, aggregate="a"):
        return self.cluster.ports[aggregate]

    def weir(self, *words, seconds=240):
        environment = {**os.environ, "WEIR_SERVER": self.node.url}
        done = subprocess.run([WEIR, "volumes", "move", f"{VOLUMES}/db", *words], env=environment, capture_output=True, text=True,
                              timeout=seconds, check=False)
        return done.returncode, done.stdout + done.stderr

    def begin(self, writers=3, megabytes=8):
        """Writers, and as much data beside theirs."""
        addresses = self.addresses()
        addresses.sort(key=lambda address: address != self.old.address)
        client = Nfs3(addresses, self.port())
        self.root = client.mount("/db")
        self.identity = client.fsid_and_fileid(self.root)
        self.ballast = random.Random(1).randbytes(megabytes << 20)
        file = client.create(self.root, "ballast")
        for at in range(0, len(self.ballast), 65536):
            client.write(file, at, self.ballast[at:at + 65536])
        client.close()
        for number in range(writers):
            self.writers.append(Writer(addresses, self.port(), self.root, number))
        for writer in self.writers:
            writer.start()
        self.goes_on()

    def goes_on(self, seconds=60):
        """Waits until each writer has written more."""
        before = [writer.blocks for writer in self.writers]

        def more():
            for writer in self.writers:
                self.assertIsNone(writer.failure)
            return all(writer.blocks > count + 3 for writer, count in zip(self.writers, before))
        self.until("all write", more, seconds)

    def aggregates_of(self):
        """The aggregates whose own servers have the volume."""
        return [name for name in ("a", "b") if self.node.ask("GET", f"/aggregates/{name}/v1/{VOLUMES}/db")[0] == 200]

    def settled(self, aggregate):
        self.until(f"{aggregate} alone has it", lambda: self.aggregates_of() == [aggregate], 120)

    def end(self, aggregate):
        """Ends the writers, and compares everything, at the address of the old and of the new aggregate."""
        for writer in self.writers:
            writer.stop.set()
        for writer in self.writers:
            writer.join()
            self.assertIsNone(writer.failure)
        for name in ("a", "b"):
            client = Nfs3(self.addresses(), self.port(name))
            root = client.mount("/db")
            self.assertEqual(root, self.root, "the handle is the same")
            self.assertEqual(client.fsid_and_fileid(self.root), self.identity)
            for writer in self.writers:
                self.assertEqual(client.lookup(root, f"w{writer.number}"), writer.file)
                want = b"".join(writer.block(at) for at in range(writer.blocks))
                self.assertEqual(client.content(writer.file, len(want)), want)
                for name in writer.files:
                    client.lookup(root, name)
            self.assertEqual(client.content(client.lookup(root, "ballast"), len(self.ballast)), self.ballast)
            with self.assertRaises(Failed) as missing:
                client.lookup(root, "never")
            self.assertEqual(missing.exception.status, NOENT)
            client.close()
        volume = self.ok(self.node, "GET", f"{VOLUMES}/db")
        self.assertEqual((volume["storagePool"], volume["labels"]["who"]), (f"of-{aggregate}", "test"))
        self.assertEqual(volume["snapshotPolicy"]["dailySchedule"]["snapshotsToKeep"], 3)

    def metric(self, aggregate, name):
        text = self.node.ask("GET", f"/aggregates/{aggregate}/metrics")[1]
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        return float(found[1]) if found else None

    def test_moves_while_clients_write(self):
        self.begin()
        self.ok(self.node, "POST", f"{VOLUMES}/db/snapshots", {"description": "before"}, snapshotId="before")
        status, text = self.weir("--to", "of-b")
        self.assertEqual(status, 0, text)
        self.assertIn("Moved volume [db] to storage pool [of-b].", text)
        self.goes_on()
        longest = max(writer.client.longest for writer in self.writers)
        self.settled("b")
        pause = self.metric("a", "weir_volume_move_pause_seconds")
        told = sum(writer.client.told_later for writer in self.writers)
        print(f"a volume moved under {len(self.writers)} writers: held for {pause:.2f} s, longest call {longest:.2f} s, told to try later {told} times")
        self.goes_on()
        snapshots = self.ok(self.node, "GET", f"{VOLUMES}/db/snapshots")["snapshots"]
        self.assertEqual([(one["name"].rsplit("/", 1)[1], one["description"]) for one in snapshots], [("before", "before")])
        self.end("b")
        # And back again, to the aggregate of its handles.
        status, text = self.weir("--to", "a")
        self.assertEqual(status, 0, text)
        self.settled("a")
        self.end("a")

    def test_refused_and_aborted(self):
        self.begin(writers=1, megabytes=1)
        status, text = self.weir("--to", "nowhere")
        self.assertNotEqual(status, 0)
        self.assertIn("no storage pool nowhere", text)
        status, text = self.weir("--to", "of-a")
        self.assertNotEqual(status, 0)
        body = {"storagePool": "of-b", "capacityGib": "2000", "shareName": "full", "protocols": ["NFSV3"]}
        self.ok(self.node, "POST", VOLUMES, body, volumeId="full")
        status, text = self.weir("--to", "of-b")
        self.assertNotEqual(status, 0)
        self.assertIn("do not fit", text)
        self.ok(self.node, "DELETE", f"{VOLUMES}/full")
        status, text = self.weir("--to", "of-b", "--async")
        self.assertEqual(status, 0, text)
        status, text = self.weir("--abort")
        # It may have ended before.
        self.until("one has it", lambda: len(self.aggregates_of()) == 1)
        self.goes_on()
        self.end(self.aggregates_of()[0])

    def killed(self, victim, delay):
        """Kills the server of an aggregate so many seconds after a move began."""
        self.begin(megabytes=24)
        node = self.cluster.owner(victim)
        status, text = self.weir("--to", "of-b", "--async")
        self.assertEqual(status, 0, text)
        time.sleep(delay)
        where = self.weir("--show")[1].strip()
        os.kill(node.servers()[victim], 9)
        self.goes_on(120)
        self.settled("b")
        print(f"the server of {victim} killed after {delay:.2f} s of a move ({where}): it arrived, longest call "
              f"{max(writer.client.longest for writer in self.writers):.2f} s")
        self.goes_on()
        self.end("b")

    def test_source_killed(self):
        self.killed("a", random.uniform(0.1, 2.5))

    def test_destination_killed(self):
        self.killed("b", random.uniform(0.1, 2.5))


if __name__ == "__main__":
    unittest.main()
