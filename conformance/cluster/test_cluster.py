"""A cluster of three nodes: what dies, what goes on, and what the tables say of it."""

import os
import re
import signal
import stat
import tempfile
import threading
import time

from ceph import Ceph
from cluster import PASSWORD, OnNodes, process


class Writer:
    """Writes files to an aggregate, one after the other, wherever it is served, until it is stopped."""

    def __init__(self, cluster, aggregate, path, prefix):
        self.acknowledged = []
        self.longest = 0.0
        self.stopping = threading.Event()
        self.work = (cluster, aggregate, path, prefix)
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        cluster, aggregate, path, prefix = self.work
        last, number = time.monotonic(), 0
        while not self.stopping.is_set():
            for node in cluster.nodes:
                # A new name each time: nfs-cp does not overwrite what an attempt before has begun.
                name, number = f"{prefix}{number}", number + 1
                # A program that has lost its connection tries the same address for ever.
                if cluster.put(aggregate, path, name, node, 1):
                    now = time.monotonic()
                    self.longest = max(self.longest, now - last)
                    last = now
                    self.acknowledged.append(name)
                    break

    def goes_on(self):
        """Waits until it has written more."""
        count = len(self.acknowledged)
        Ceph.until("it writes", lambda: len(self.acknowledged) > count + 2)

    def stop(self):
        self.goes_on()
        self.stopping.set()
        self.thread.join()


class ClusterOfThree(OnNodes):
    def holds(self, aggregate, names, want):
        node = self.cluster.owner(aggregate)
        for name in names:
            self.assertEqual(self.cluster.cat(aggregate, name, node), want, f"{name} of {aggregate}")

    def content(self):
        path, _ = self.file(100_000)
        with open(path, "rb") as file:
            return path, file.read()

    def test_aggregates_are_spread_and_shown(self):
        shown = self.cluster.nodes[1].show()
        self.assertEqual([node["name"] for node in shown["nodes"]], ["n1", "n2", "n3"])
        owners = [one["owner"] for one in shown["aggregates"]]
        self.assertEqual(len(set(owners)), 2, shown)
        for one in shown["aggregates"]:
            self.assertNotEqual(one["owner"], one["standby"])
            self.assertEqual(one["wantedOwner"], one["owner"])
        text = self.cluster.nodes[2].does("cluster", "show")
        self.assertRegex(text, r"cluster +3 nodes, 2 aggregates; n\d leads, in term \d+")
        self.assertRegex(text, r"PostgreSQL +answers")
        self.assertRegex(text, rf"a +rados:weir/a +{owners[0]} +{owners[0]} +n\d +1")
        for node in self.cluster.nodes:
            config = os.path.join(node.data, "cluster.json")
            self.assertEqual(stat.S_IMODE(os.stat(config).st_mode), 0o600)
            for number in (node.daemon.pid, *node.servers().values()):
                with open(f"/proc/{number}/cmdline", encoding="utf-8") as words:
                    self.assertNotIn(PASSWORD, words.read())
            self.assertNotIn(PASSWORD, node.said() + node.does("cluster", "show", "--json"))
        status, said = self.cluster.nodes[0].weir("aggregate", "create", "d", "--on", "rados:weir", "--nfs", str(self.cluster.ports["a"]))
        self.assertEqual(status, 1)
        self.assertIn("aggregate a serves NFS at", said)

    def test_daemon_killed(self):
        path, content = self.content()
        owner = self.cluster.owner("a")
        before = owner.servers()
        owner.kill_daemon()
        self.assertIn(f"start it with `weir node --data {owner.data}`", owner.weir("cluster", "show")[1])
        self.assertTrue(self.cluster.put("a", path, "kept", owner))
        other = next(node for node in self.cluster.up())

        def down():
            return next(node for node in other.show()["nodes"] if node["name"] == owner.name)["up"] is False

        self.until("it is seen", down)
        self.assertTrue(self.cluster.put("a", path, "kept2", owner))
        self.assertIn("has sent no heartbeat", other.does("cluster", "show"))
        owner.start()
        self.cluster.well()
        # The same servers, and so the same epoch.
        self.assertEqual({name: owner.servers().get(name) for name in before}, before)
        self.holds("a", ("kept", "kept2"), content)

    def test_node_killed_and_back(self):
        path, content = self.content()
        owner = self.cluster.owner("a")
        epoch = self.cluster.aggregate("a")["epoch"]
        writer = Writer(self.cluster, "a", path, "killed")
        writer.goes_on()
        began = time.monotonic()
        owner.kill()
        writer.goes_on()
        print(f"a node killed: three more files are acknowledged after {time.monotonic() - began:.2f} s")
        self.until("the row follows", lambda: self.cluster.is_left(owner))
        self.until("its epoch follows", lambda: self.cluster.aggregate("a")["epoch"] > epoch)

        def has_standby():
            one = self.cluster.aggregate("a")
            return one["standby"] not in (None, owner.name, one["owner"]) and one["why"] is None

        self.until("the third node stands by", has_standby)
        owner.start()
        self.cluster.well()
        writer.stop()
        self.assertNotEqual(self.cluster.owner("a"), owner)
        self.holds("a", writer.acknowledged, content)

    def test_leader_suspended(self):
        leader = self.cluster.node(self.cluster.nodes[0].show()["leader"])
        other = next(node for node in self.cluster.nodes if node is not leader)
        term, before = other.show()["term"], self.state(other)
        leader.daemon.send_signal(signal.SIGSTOP)
        try:
            self.until("another one leads", lambda: other.show()["leader"] not in (None, leader.name))
            self.assertEqual(other.show()["term"], term + 1)
            # Its servers go on: owners and epochs are the same.
            self.assertEqual(self.state(other), before)
        finally:
            leader.daemon.send_signal(signal.SIGCONT)
        self.cluster.well()
        self.assertEqual(self.state(other), before)
        self.assertNotEqual(leader.show()["leader"], leader.name)

    def test_postgres_stopped(self):
        path, content = self.content()
        owner = self.cluster.owner("a")
        self.cluster.postgres.stop()
        node = next(node for node in self.cluster.nodes if node is not owner)
        self.until("it is noticed", lambda: not node.show()["database"]["reached"])
        text = node.does("cluster", "show")
        self.assertRegex(text, r"PostgreSQL +has not answered for \d+ s: .*nothing can be changed")
        self.assertTrue(self.cluster.put("a", path, "without", owner))
        for words in (("aggregate", "move", "a", "--to", node.name), ("cluster", "drain", node.name), ("cluster", "rebalance")):
            status, said = node.weir(*words)
            self.assertEqual(status, 1, said)
            self.assertIn("cannot change the cluster: PostgreSQL does not answer", said)
        # A server dies, and the standby takes over without the tables; the daemon goes on, too.
        standby = self.cluster.node(self.cluster.aggregate("a")["standby"])
        owner.kill()
        self.until("the standby serves", lambda: self.cluster.put("a", path, "after", standby, 5))
        owner.start()
        self.until("its server is back", lambda: owner.servers().get("a"))
        self.cluster.postgres.start()
        self.cluster.well()
        self.assertEqual(self.cluster.owner("a"), standby)
        self.holds("a", ("without", "after"), content)

    def test_postgres_over_tls(self):
        postgres = self.cluster.postgres
        sessions = postgres.psql("cluster", "SELECT DISTINCT ssl FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) "
                                            "WHERE datname = 'cluster' AND client_addr IS NOT NULL")
        self.assertEqual(sessions, "t")
        for url, fault in ((f"{postgres.tcp}?sslmode=disable", "no encryption"),
                           (f"{postgres.tcp}?sslmode=verify-full", "invalid peer certificate"),
                           (postgres.tls.replace("localhost", "127.0.0.1", 1), "invalid peer certificate"),
                           (postgres.tls.replace(postgres.certificate, "/dev/null"), "invalid peer certificate"),
                           (postgres.tls.replace(PASSWORD, "another"), "password authentication failed")):
            with self.subTest(url), tempfile.TemporaryDirectory() as data:
                status, said = self.cluster.join("n4", data, url)
                self.assertEqual(status, 1, said)
                self.assertIn(fault, said)
                self.assertNotIn(PASSWORD, said)

    def test_postgres_restored_to_an_older_state(self):
        self.cluster.postgres.copy()
        self.cluster.well()
        owner = self.cluster.owner("a")
        to = next(node for node in self.cluster.nodes if node is not owner)
        said = to.does("aggregate", "move", "a", "--to", to.name)
        self.assertRegex(said, rf"{to.name} owns a, in epoch \d+")
        self.cluster.create("c")
        self.cluster.well()
        before = self.state()
        self.cluster.postgres.restore()
        self.until("the new aggregate is entered again", lambda: self.cluster.postgres.has("c"))
        self.cluster.well()
        after = self.state()
        self.assertEqual(after, before)
        self.assertIn("c is no aggregate of the cluster any more", to.does("aggregate", "delete", "c"))
        self.until("its servers have ended", lambda: not any(node.servers().get("c") for node in self.cluster.nodes))

    def state(self, seen_by=None):
        """Epoch and process of each aggregate's owner."""
        found = {}
        shown = (seen_by or self.cluster.up()[0]).show()
        for node in shown["nodes"]:
            for name, server in node["servers"].items():
                if server["role"] == "OWNER":
                    found[name] = (node["name"], server["epoch"], process(server["process"]))
        return found

    def test_drain_move_and_rebalance(self):
        path, content = self.content()
        owner = self.cluster.owner("a")
        other = next(node for node in self.cluster.nodes if node is not owner)
        writer = Writer(self.cluster, "a", path, "drained")
        writer.goes_on()
        said = other.does("cluster", "drain", owner.name)
        self.assertIn(f"{owner.name} is drained", said)
        self.assertEqual(owner.servers(), {})
        writer.goes_on()
        print(f"drained under a writer: the longest pause between two files was {writer.longest:.2f} s")
        writer.stop()
        self.holds("a", writer.acknowledged, content)
        status, said = other.weir("aggregate", "move", "a", "--to", owner.name)
        self.assertEqual(status, 1)
        self.assertIn(f"{owner.name} is drained", said)
        owner.does("cluster", "drain", owner.name, "--undo")
        self.cluster.well()
        # Both aggregates on one node, and apart again.
        for name in ("a", "b"):
            other.does("aggregate", "move", name, "--to", other.name)
        self.cluster.well()
        dry = other.does("cluster", "rebalance", "--dry-run")
        self.assertRegex(dry, rf"moves from {other.name} to n\d\n1 aggregates would be moved")
        self.assertEqual({self.cluster.owner(name) for name in ("a", "b")}, {other})
        other.does("cluster", "rebalance")
        self.cluster.well()
        self.assertEqual(len({self.cluster.owner(name) for name in ("a", "b")}), 2)
        began = time.monotonic()
        standby = self.cluster.aggregate("b")["standby"]
        self.assertRegex(other.does("cluster", "takeover", "--aggregate", "b"), rf"{standby} owns b")
        print(f"`weir cluster takeover` took {time.monotonic() - began:.2f} s")
        self.assertRegex(other.weir("cluster", "takeover")[1], "name the aggregate of the cluster with --aggregate")
        self.assertTrue(re.search("the cluster has no aggregate", other.weir("aggregate", "move", "x", "--to", "n1")[1]))
