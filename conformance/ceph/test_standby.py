"""Standbys of an aggregate on a real Ceph: takeovers without an administrator."""

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
import urllib.request

from ceph import KILLTEST, POOL, WEIR, OnCluster, Server

ROUNDS = os.environ.get("STANDBY_ROUNDS", "8")


class Standby(OnCluster):
    def server(self, aggregate, name, *before):
        """A server that stands by if another one serves."""
        server = Server(self.ceph, aggregate, os.path.join(self.folder, name), "--api", "off", "--standby", before=before)
        self.addCleanup(server.close)
        return server

    def two(self, aggregate, *before):
        first = self.server(aggregate, "a").started()
        second = self.server(aggregate, "b", *before)
        self.ceph.until("the second one stands by", lambda: self.stands_by(second))
        return first, second

    def stands_by(self, server):
        self.assertIsNone(server.process.poll(), server.output())
        return f"stands by for rados:{POOL}/" in server.output()

    def took(self, what, began):
        print(f"{what}: the standby serves after {time.monotonic() - began:.2f} s")

    def listeners(self, server):
        """The number of sockets at which a process listens."""
        inodes = set()
        for number in os.listdir(f"/proc/{server.process.pid}/fd"):
            try:
                found = re.match(r"socket:\[(\d+)\]", os.readlink(f"/proc/{server.process.pid}/fd/{number}"))
            except FileNotFoundError:
                continue
            inodes |= {found[1]} if found else set()
        with open("/proc/net/tcp", encoding="ascii") as table:
            lines = [line.split() for line in table][1:]
        return sum(line[3] == "0A" and line[9] in inodes for line in lines)

    def test_killed(self):
        path, want = self.file(2 << 20)
        first, second = self.two("killed")
        self.assertRegex(second.output(), r"stands by for rados:weir/killed, served by .* \(process \d+\)")
        self.assertEqual(self.listeners(second), 0)
        self.assertEqual(first.put(path, "kept").returncode, 0)
        began = time.monotonic()
        first.process.kill()
        second.started()
        self.took("killed on the same machine", began)
        self.assertNotIn("Created", second.output())
        self.assertEqual(hashlib.sha256(second.cat("kept")).hexdigest(), want)
        self.assertEqual(second.stop(), 0, second.output())

    @unittest.skipIf(os.getuid() or not shutil.which("unshare"), "a process of another machine is one of another namespace: needs root")
    def test_killed_on_another_machine(self):
        path, want = self.file(2 << 20)
        first, second = self.two("vanished", "unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
        self.assertEqual(first.put(path, "kept").returncode, 0)
        began = time.monotonic()
        first.process.kill()
        second.started()
        self.took("killed on another machine", began)
        self.assertEqual(hashlib.sha256(second.cat("kept")).hexdigest(), want)

    def test_stopped_and_started_again(self):
        path, want = self.file(2 << 20)
        first, second = self.two("stopped")
        self.assertEqual(first.put(path, "kept").returncode, 0)
        began = time.monotonic()
        first.signal(signal.SIGTERM)
        second.started()
        self.took("stopped", began)
        self.assertEqual(first.ended(), 0, first.output())
        third = self.server("stopped", "a")
        self.ceph.until("it stands by", lambda: self.stands_by(third))
        # Nobody can connect to a standby; a standby that is stopped has nothing to write.
        self.assertEqual(third.stop(), 0, third.output())
        self.assertIn("this server was a standby, and ends", third.output())
        self.assertEqual(hashlib.sha256(second.cat("kept")).hexdigest(), want)

    def test_suspended(self):
        path, want = self.file(2 << 20)
        first, second = self.two("suspended")
        self.assertEqual(first.put(path, "kept").returncode, 0)
        began = time.monotonic()
        with socket.create_connection(("127.0.0.1", first.port), timeout=30) as client:
            first.signal(signal.SIGSTOP)
            second.started()
            self.took("suspended", began)
            first.signal(signal.SIGCONT)
            self.ceph.until("it stands by", lambda: self.stands_by(first))
            try:
                self.assertEqual(client.recv(100), b"")
            except ConnectionResetError:
                pass
        self.assertEqual(second.put(path, "after").returncode, 0)
        # And back.
        second.process.kill()
        first.started(2)
        for name in ("kept", "after"):
            self.assertEqual(hashlib.sha256(first.cat(name)).hexdigest(), want)
        self.assertEqual(first.stop(), 0, first.output())

    def weir(self, *words, status=0):
        done = subprocess.run([WEIR, *words], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def show(self, server):
        return json.loads(self.weir("cluster", "show", "--data", server.data, "--json"))

    def test_the_owner_is_switched_and_both_say_who_it_is(self):
        path, want = self.file(2 << 20)
        first, second = self.two("switched")
        host = socket.gethostname()
        self.assertEqual(first.put(path, "kept").returncode, 0)
        self.ceph.until("the owner lists the standby", lambda: self.show(first)["otherStandbys"])
        owner, standby = self.show(first), self.show(second)
        self.assertEqual([owner["role"], standby["role"]], ["OWNER", "STANDBY"])
        self.assertEqual(owner["owner"], {"host": host, "process": first.process.pid})
        self.assertEqual(standby["owner"], owner["owner"])
        self.assertEqual([owner["epoch"], standby["epoch"]], [1, 1])
        self.assertEqual(owner["otherStandbys"][0]["process"], second.process.pid)
        self.assertRegex(self.weir("cluster", "show", "--data", second.data), rf"role +standby.*\nowner +{host} \(process {first.process.pid}\)")
        # Who cannot be obeyed says why.
        refused = self.weir("cluster", "takeover", "--data", second.data, status=1)
        self.assertIn(f"this server stands by (ask {host} (process {first.process.pid}))", refused)
        self.assertIn("no server stands by on nowhere", self.weir("cluster", "takeover", "nowhere", "--data", first.data, status=1))
        self.assertIn("this server stands by", self.weir("scrub", second.data, status=1))
        began = time.monotonic()
        self.assertIn(f"{host} (process {second.process.pid}) takes over", self.weir("cluster", "takeover", host, "--data", first.data))
        second.started()
        self.took("switched", began)
        self.assertEqual(hashlib.sha256(second.cat("kept")).hexdigest(), want)
        # The first one is the standby now, as the same process.
        self.ceph.until("the new owner lists the old one", lambda: self.show(second)["otherStandbys"])
        self.assertEqual(self.show(first)["role"], "STANDBY")
        self.assertEqual(self.show(second)["epoch"], 2)
        # In order, and so without a trace.
        self.assertEqual(first.stop(), 0, first.output())
        self.ceph.until("nobody stands by", lambda: not self.show(second)["otherStandbys"])
        self.assertIn("nobody stands by", self.weir("cluster", "takeover", "--data", second.data, status=1))

    def test_a_standby_that_is_gone_is_a_condition(self):
        first = Server(self.ceph, "alone", os.path.join(self.folder, "a"), "--api", "127.0.0.1:0", "--standby")
        self.addCleanup(first.close)
        first.started()
        api = re.search(r"API on (http://\S+)", first.output())[1]

        def conditions():
            with urllib.request.urlopen(f"{api}/v1/conditions", timeout=30) as answer:
                return [condition["kind"] for condition in json.load(answer)["conditions"]]

        def standbys():
            with urllib.request.urlopen(f"{api}/metrics", timeout=30) as answer:
                return re.search(r"^weir_cluster_standbys (\d+)$", answer.read().decode(), re.M)[1]

        self.assertNotIn("STANDBY_MISSING", conditions())
        second = self.server("alone", "b")
        self.ceph.until("it is counted", lambda: standbys() == "1")
        second.process.kill()
        self.ceph.until("it is missed", lambda: "STANDBY_MISSING" in conditions())
        self.assertEqual(standbys(), "0")

    def test_under_load(self):
        """Owners are killed, stopped and suspended, and all that was acknowledged is there."""
        place = f"--aggregate rados:{POOL}/load --ceph-conf {self.ceph.conf}"
        done = subprocess.run(
            [KILLTEST, "--weir", WEIR, "--standby", "--rounds", ROUNDS, "--data", os.path.join(self.folder, "load"),
             "--serve-args", f"--memory 256M --no-rpcbind --api off --standby {place}", "--check", f"{WEIR} check {{data}} {place}"],
            env=self.ceph.environment, capture_output=True, text=True, timeout=200 + 25 * int(ROUNDS), check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])
        print(done.stdout)


if __name__ == "__main__":
    unittest.main()
