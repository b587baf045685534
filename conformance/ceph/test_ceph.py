"""Aggregates on a real Ceph: data through clients, kills, takeovers, a full pool."""

import hashlib
import json
import os
import re
import signal
import socket
import struct
import subprocess
import time
import unittest
import urllib.request

from ceph import DEVICE_SUITE, HERE, KILLTEST, POOL, WEIR, OnCluster, Server, documented

ROUNDS = os.environ.get("KILL_ROUNDS", "6")
# A call of NFSv3's procedure 0, with its record mark.
NULL = struct.pack(">11I", 0x80000000 | 40, 7, 0, 2, 100003, 3, 0, 0, 0, 0, 0)


class OnCeph(OnCluster):
    def server(self, aggregate, name="a", *arguments):
        server = Server(self.ceph, aggregate, os.path.join(self.folder, name), *arguments)
        self.addCleanup(server.close)
        return server

    def check(self, server):
        """`weir check` of the aggregate, from a folder that no server had."""
        folder = os.path.join(self.folder, "checks")
        done = subprocess.run([WEIR, "check", folder, *server.place], env=self.ceph.environment, capture_output=True, text=True,
                              timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("clean", done.stdout)

    def test_devices(self):
        """The suite that every device passes, on objects of this cluster."""
        done = subprocess.run([DEVICE_SUITE, f"rados:{POOL}/devices", self.ceph.conf], env=self.ceph.environment,
                              capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_files_move(self):
        server = self.server("files").started()
        self.assertIn("Created the aggregate rados:weir/files:", server.output())
        moved = subprocess.run([os.path.join(HERE, "../libnfs.sh"), "127.0.0.1", str(server.port)], capture_output=True, text=True,
                               timeout=120, check=False)
        self.assertEqual(moved.returncode, 0, moved.stdout + moved.stderr)
        self.assertEqual(server.stop(), 0, server.output())
        self.check(server)

    def test_killed_under_load(self):
        """All that was acknowledged is there after each kill, and the aggregate is sound."""
        conf = self.ceph.conf
        place = f"--aggregate rados:{POOL}/killed --ceph-conf {conf}"
        done = subprocess.run(
            [KILLTEST, "--weir", WEIR, "--rounds", ROUNDS, "--data", os.path.join(self.folder, "killed"),
             "--serve-args", f"--memory 256M --no-rpcbind --api off {place}", "--check", f"{WEIR} check {{data}} {place}"],
            env=self.ceph.environment, capture_output=True, text=True, timeout=240, check=False)
        self.assertEqual(done.returncode, 0, done.stdout[-4000:] + done.stderr[-4000:])

    def test_a_second_server_is_refused_while_the_first_serves(self):
        first = self.server("both").started()
        second = self.server("both", "b")
        self.assertEqual(second.ended(), 1)
        self.assertRegex(second.output(), r"rados:weir/both: it is served by .*: stop that server first")
        path, want = self.file(1 << 20)
        self.assertEqual(first.put(path, "after").returncode, 0)
        self.assertEqual(hashlib.sha256(first.cat("after")).hexdigest(), want)

    def test_a_suspended_owner_is_shut_out(self):
        bucket = os.path.join(self.folder, "bucket")
        os.mkdir(bucket)
        first = self.server("taken", "a", "--api", "127.0.0.1:0", "--backup-bucket", bucket).started()
        api = re.search(r"API on (http://\S+)", first.output())[1]
        vault = f"{api}/v1/projects/p/locations/l/backupVaults?backupVaultId=safe"
        body = urllib.request.Request(vault, b"{}", {"Content-Type": "application/json"})
        with urllib.request.urlopen(body, timeout=60) as answer:
            self.assertTrue(json.load(answer)["done"])
        made = subprocess.run([WEIR, "users", "create", "mouse", "--uid", "7", "--data", first.data], input="Cheese-4-Mice\n",
                              env=self.ceph.environment, capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        path, want = self.file(5 << 20)
        self.assertEqual(first.put(path, "before").returncode, 0)
        with socket.create_connection(("127.0.0.1", first.port), timeout=30) as client:
            # It answers, and then it does not.
            client.sendall(NULL)
            self.assertGreater(len(client.recv(100)), 0)
            first.signal(signal.SIGSTOP)
            self.ceph.until("the server stands still", first.is_suspended)
            client.sendall(NULL)
            second = self.server("taken", "b").started()
            self.assertEqual(hashlib.sha256(second.cat("before")).hexdigest(), want)
            first.signal(signal.SIGCONT)
            self.assertEqual(first.ended(), 1)
            try:
                self.assertEqual(client.recv(100), b"")
            except ConnectionResetError:
                pass
        # It starts again, and is refused.
        self.assertRegex(first.output(), r"weir: rados:weir/taken: .*(took|has taken) the aggregate over.*; this server drops everything")
        self.assertRegex(first.output(), r"rados:weir/taken: it is served by .*: stop that server first")
        # What is not in the volumes went along.
        with open(os.path.join(second.data, "smb-users"), encoding="utf-8") as users:
            self.assertIn("mouse", users.read())
        with open(os.path.join(second.data, "backup-keys.json"), encoding="utf-8") as keys:
            self.assertEqual(len(json.load(keys)), 1, "who has lost the key of a vault has lost its backups")
        self.assertEqual(second.put(path, "after").returncode, 0)
        self.assertEqual(second.stop(), 0, second.output())
        self.check(second)

    def test_a_full_pool_is_no_space_and_no_hang(self):
        server = self.server("full").started()
        path, want = self.file(32 << 20)
        self.assertEqual(server.put(path, "kept").returncode, 0)
        used = self.ceph.stats()["stored"]
        # The floor is 256 MiB: room for some 200 MiB more.
        self.ceph.run("ceph", "osd", "pool", "set-quota", POOL, "max_bytes", str(used + (456 << 20)))
        self.addCleanup(self.ceph.run, "ceph", "osd", "pool", "set-quota", POOL, "max_bytes", "0")
        refused = None
        for number in range(40):
            done = server.put(path, f"more{number}")
            if done.returncode:
                refused = done.stdout + done.stderr
                break
            # The quota holds by what the cluster has counted, some seconds later.
            least = used + ((number + 1) * 32 << 20)
            self.ceph.until("the cluster has counted it", lambda: self.ceph.stats()["stored"] >= least)
        self.assertIsNotNone(refused, "1.2 GiB went into a pool with room for 0.2")
        # nfs-cp gives the reason for an open and a close, and none for a write: the server's log has it below.
        self.assertRegex(refused, r"NOSPC|No space|Failed to write to dest file")
        # It serves on, and nothing is lost.
        self.assertEqual(hashlib.sha256(server.cat("kept")).hexdigest(), want)
        self.assertIn("the aggregate is full", server.output())
        self.assertNotIn("read-only", server.output())
        self.assertEqual(server.stop(), 0, server.output())
        self.check(server)

    def ratios(self, near, backfill, full):
        for name, ratio in (("nearfull", near), ("backfillfull", backfill), ("full", full)):
            self.ceph.run("ceph", "osd", f"set-{name}-ratio", str(ratio))

    def empty(self):
        """Has the cluster take the pool for one with space again."""
        self.ratios(0.85, 0.9, 0.95)
        self.ceph.until("the pool has space", lambda: not self.is_full())

    def is_full(self):
        return "POOL_FULL" in self.ceph.run("ceph", "health", "detail").stdout

    def test_a_pool_that_others_have_filled_is_an_error_and_no_hang(self):
        server = self.server("filled").started()
        path, want = self.file(4 << 20)
        self.assertEqual(server.put(path, "kept0").returncode, 0)
        self.addCleanup(self.empty)
        # The disk is as full as this from the start.
        self.ratios(0.01, 0.015, 0.02)
        self.ceph.until("the pool is full", self.is_full)
        kept, refused = ["kept0"], None
        for number in range(1, 100):
            done = server.put(path, f"kept{number}")
            if done.returncode:
                refused = done.stdout + done.stderr
                break
            kept.append(f"kept{number}")
        self.assertIsNotNone(refused, "0.4 GiB went into a full pool")
        # Either a write meets the full pool, or the pool's statistics say first that nothing is free.
        words = ("the pool of rados:weir/filled is full", "the aggregate is full")
        self.ceph.until("the log says so", lambda: any(said in server.output() for said in words))
        self.assertEqual(hashlib.sha256(server.cat("kept0")).hexdigest(), want)
        self.empty()
        server.stop()
        again = self.server("filled").started()
        for name in kept:
            self.assertEqual(hashlib.sha256(again.cat(name)).hexdigest(), want, name)
        # The cluster learns that the pool has room again with one of its next reports.
        end = time.monotonic() + 60
        while again.put(path, "after").returncode != 0:
            self.assertLess(time.monotonic(), end)
        self.assertEqual(again.stop(), 0, again.output())
        self.check(again)

    def test_a_stopped_monitor_holds_nobody_up(self):
        server = self.server("unmonitored").started()
        path, want = self.file(1 << 20)
        monitor = self.ceph.daemons[0]
        monitor.send_signal(signal.SIGSTOP)
        try:
            self.assertEqual(server.put(path, "kept").returncode, 0)
            self.assertEqual(hashlib.sha256(server.cat("kept")).hexdigest(), want)
        finally:
            monitor.send_signal(signal.SIGCONT)
        self.ceph.until("the monitor answers", lambda: self.ceph.run("ceph", "-s", check=False).returncode == 0)
        self.assertEqual(server.stop(), 0, server.output())
        self.check(server)

    def test_without_the_library(self):
        # In place of a missing one, which may be installed on this machine.
        with open(os.path.join(self.folder, "librados.so.2"), "wb"):
            pass
        environment = {**self.ceph.environment, "LD_LIBRARY_PATH": self.folder}
        done = subprocess.run(
            [WEIR, "serve", "--data", os.path.join(self.folder, "x"), "--aggregate", f"rados:{POOL}/x", "--ceph-conf", self.ceph.conf,
             "--nfs", "127.0.0.1:0", "--api", "off"], env=environment, capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("cannot load Ceph's client library librados.so.2", done.stderr)
        self.assertIn("install the package librados2", done.stderr)


class Rights(OnCluster):
    """Users with keys, on a cluster that asks for them."""

    cephx = True

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.mon, cls.osd = documented("cluster.md", r"get-or-create client\.weir mon '([^']+)' osd '([^']+)'")

    def serve_twice(self, name, mon, osd):
        """A server that is killed, and the one that takes over from it."""
        self.ceph.user(f"client.{name}", mon=mon, osd=osd)
        servers = []
        for data in ("a", "b"):
            server = Server(self.ceph, name, os.path.join(self.folder, name, data), user=f"client.{name}")
            self.addCleanup(server.close)
            servers.append(server)
            self.ceph.until("it serves, or ends", lambda s=server: "listening on" in s.output() or s.process.poll() is not None)
            if data == "a":
                server.process.kill()
                server.process.wait()
        return servers

    def test_the_documented_rights_suffice(self):
        for name, osd in (("documented", self.osd), ("restricted", f"{self.osd} namespace=restricted")):
            _, second = self.serve_twice(name, self.mon, osd)
            # A clean stop is a checkpoint: the first one was shut out.
            self.assertEqual(second.stop(), 0, second.output())

    def test_nothing_less_suffices(self):
        first, _ = self.serve_twice("locks", self.mon, self.osd.replace("rwx", "rw"))
        self.assertIn("cannot read who holds the lock: Operation not permitted", first.output())
        first, _ = self.serve_twice("writes", self.mon, self.osd.replace("rwx", "rx"))
        self.assertIn("cannot become the owner: Operation not permitted", first.output())
        _, second = self.serve_twice("fences", "allow r", self.osd)
        self.assertEqual(second.ended(), 1)
        self.assertIn("the Ceph user needs the right to `osd blocklist`", second.output())


if __name__ == "__main__":
    unittest.main()
