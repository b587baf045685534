"""Attacks on the lock service: others' locks, its memory, its time, its calls to clients, its record of lock holders."""

import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

import attacker
from attacker import LONG, NLM, NSM, auth_sys, opaque

GRANTED, DENIED, NOLOCKS, BLOCKED, FAILED = 0, 1, 2, 3, 9
TEST, LOCK, UNLOCK, TEST_MSG, FREE_ALL = 1, 2, 4, 6, 23
# What a bystander is ready to wait. The attacks took from 7 seconds to minutes of it.
PATIENCE = 5


def alock(host, handle, process, start, length, owner=b"owner"):
    """nlm4_lock (RFC 1813 §6.1.4)."""
    return opaque(host) + opaque(handle) + opaque(owner) + struct.pack(">IQQ", process, start, length)


def lock_arguments(host, handle, process, start, length, exclusive=True, block=False, owner=b"owner", reclaim=False):
    """nlm4_lockargs; NSM state 1."""
    head = opaque(b"c") + struct.pack(">II", block, exclusive)
    return head + alock(host, handle, process, start, length, owner) + struct.pack(">II", reclaim, 1)


class Locks(unittest.TestCase):
    def setUp(self):
        self.server = attacker.Server()
        self.addCleanup(self.server.close)
        self.find_port()
        self.bystander = self.client()
        self.root = self.bystander.mount()
        self.file = self.create(b"file", 0o666)

    def find_port(self):
        self.port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])

    def client(self, source="127.0.0.1", timeout=60):
        client = attacker.Client(self.port, source, timeout)
        self.addCleanup(client.close)
        return client

    def create(self, name, mode):
        """A file of root's."""
        arguments = opaque(self.root) + opaque(name) + struct.pack(">IIIIIIII", 0, 1, mode, 0, 0, 0, 0, 0)
        results = self.bystander.call(attacker.NFS, 3, 8, arguments, auth_sys())
        self.assertEqual(results[:8], b"\0\0\0\0\0\0\0\1")
        return results[12:12 + struct.unpack(">I", results[8:12])[0]]

    def status(self, results):
        """Of an nlm4_res with the cookie b"c"."""
        self.assertEqual(results[:8], opaque(b"c"))
        return struct.unpack(">I", results[8:12])[0]

    def lock(self, client, *arguments, uid=0, **options):
        return self.status(client.call(NLM, 4, LOCK, lock_arguments(*arguments, **options), auth_sys(uid, uid)))

    def many(self, client, calls):
        """The statuses of calls that are sent without waiting, some hundred at a time."""
        out = []
        for at in range(0, len(calls), 200):
            some = calls[at:at + 200]
            client.send(b"".join(attacker.record(attacker.call(NLM, 4, procedure, arguments, at + n, auth_sys()))
                                 for n, (procedure, arguments) in enumerate(some)))
            replies = {}
            for _ in some:
                reply = client.receive()
                replies[struct.unpack(">I", reply[:4])[0]] = struct.unpack(">I", reply[-4:])[0]
            out += [replies[at + n] for n in range(len(some))]
        return out

    def assert_served(self, attack):
        """Several bystanders' GETATTR are answered while `attack` runs: connections belong to one event loop each."""
        bystanders = [self.client(timeout=PATIENCE) for _ in range(4)]
        running = threading.Thread(target=attack)
        running.start()
        try:
            while True:
                for client in bystanders:
                    results = client.call(attacker.NFS, 3, 1, opaque(self.root), auth_sys())
                    self.assertEqual(results[:4], bytes(4))
                if not running.is_alive():
                    break
        finally:
            running.join()

    def test_nobody_releases_anothers_locks(self):
        self.assertEqual(self.lock(self.bystander, b"victim", self.file, 1, 0, 1), GRANTED)
        thief = self.client("127.0.0.2")
        self.assertEqual(self.lock(thief, b"thief", self.file, 1, 5, 1), GRANTED)
        for source in ["127.0.0.3", "127.0.0.2"]:
            stranger = self.client(source)
            stranger.call(NLM, 4, FREE_ALL, opaque(b"victim") + struct.pack(">I", 7))
            stranger.call(NSM, 1, 6, opaque(b"victim") + struct.pack(">I", 7))
            stranger.call(NSM, 1, 5)  # SM_SIMU_CRASH
            stranger.call(NLM, 4, UNLOCK, opaque(b"c") + alock(b"victim", self.file, 1, 0, 0))
        self.assertEqual(self.lock(thief, b"thief", self.file, 1, 0, 1), DENIED)

    def test_locking_takes_permission(self):
        secret = self.create(b"secret", 0o600)
        public = self.create(b"public", 0o644)
        user = self.client("127.0.0.2")
        wanted = [(secret, False, FAILED), (secret, True, FAILED), (public, False, GRANTED), (public, True, FAILED)]
        for handle, exclusive, status in wanted:
            got = self.lock(user, b"user", handle, 1, 0, 1, exclusive=exclusive, uid=1000)
            self.assertEqual(got, status)
        # Without an identity it is nobody who asks.
        results = user.call(NLM, 4, LOCK, lock_arguments(b"user", secret, 1, 0, 1))
        self.assertEqual(self.status(results), FAILED)

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/status") as status:
            return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1]) << 10

    def test_locks_take_a_bounded_part_of_the_memory(self):
        client, attacking = self.client("127.0.0.2"), 441_850 if LONG else 30_000
        before = self.resident()
        granted = []
        for _ in range(2):
            calls = [(LOCK, lock_arguments(b"h" * 255, self.file, n, 2 * n, 1, owner=bytes(1000))) for n in range(attacking)]
            statuses = self.many(client, calls)
            granted.append(statuses.count(GRANTED))
            self.assertEqual(set(statuses), {GRANTED, NOLOCKS})
            self.assertLess(self.resident() - before, 64 << 20)
            # Others get theirs.
            self.assertEqual(self.lock(self.bystander, b"bystander", self.file, 1, 1, 1), GRANTED)
            client.call(NLM, 4, FREE_ALL, opaque(b"h" * 255) + struct.pack(">I", 0))
        self.assertEqual(granted[0], granted[1], "all memory is returned with the locks")
        self.assertGreater(granted[0], 1000)

    def test_a_request_that_waits_for_thousands_of_locks_is_quick(self):
        hosts, each = (5, 5000) if LONG else (6, 2500)  # What fits into the memory of the test's server.
        clients = [self.client(f"127.0.1.{n + 1}") for n in range(hosts)]
        for host, client in enumerate(clients):
            calls = [(LOCK, lock_arguments(b"h", self.file, n, 0, 1, exclusive=False)) for n in range(each)]
            self.assertEqual(set(self.many(client, calls)), {GRANTED}, host)

        def wait():
            for client in clients:
                calls = [(LOCK, lock_arguments(b"h", self.file, 100_000 + n, 0, 1, block=True)) for n in range(50)]
                self.assertEqual(set(self.many(client, calls)), {BLOCKED})

        self.assert_served(wait)

    def test_new_hosts_hold_up_nobody(self):
        hosts = 16 if LONG else 8

        def come(reclaim=False):
            for host in range(hosts):
                client = self.client(f"127.0.2.{host + 1}")
                calls = [(LOCK, lock_arguments(b"%0250d" % n, self.file, 1, 0, 1, exclusive=False, reclaim=reclaim))
                         for n in range(256)]
                self.assertEqual(set(self.many(client, calls)), {GRANTED})

        self.assert_served(come)
        # All of them were recorded before they had their lock: they have it again after a crash, and others have none.
        self.server.stop(signal.SIGKILL)
        self.server.start()
        self.find_port()
        stranger = self.client("127.0.2.200")
        self.assertNotEqual(self.lock(stranger, b"stranger", self.file, 1, 0, 1, exclusive=False, reclaim=True), GRANTED)
        come(reclaim=True)

    def test_a_silent_host_delays_no_call(self):
        """In a network of its own, where port 111 of every address is free."""
        if os.environ.get("ATTACK_NETWORK") != "own":
            command = 'ip link set lo up && exec "$0" -B -m unittest "$1"'
            child = subprocess.run(
                ["unshare", "--map-root-user", "--net", "sh", "-c", command, sys.executable, self.id()],
                env={**os.environ, "ATTACK_NETWORK": "own"}, capture_output=True, text=True, timeout=280, check=False)
            self.assertEqual(child.returncode, 0, child.stderr)
            return
        # The attacker's rpcbind accepts and says nothing.
        silent = socket.create_server(("127.0.0.66", 111), backlog=128)
        self.addCleanup(silent.close)
        quiet = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(quiet.close)
        quiet.bind(("127.0.0.66", 111))
        # A bystander's rpcbind and lock manager.
        manager = socket.create_server(("127.0.0.67", 0))
        self.addCleanup(manager.close)
        manager.settimeout(20)
        portmap = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.addCleanup(portmap.close)
        portmap.bind(("127.0.0.67", 111))

        def answer():
            call, peer = portmap.recvfrom(1000)
            port = manager.getsockname()[1]
            portmap.sendto(call[:4] + struct.pack(">IIIIII", 1, 0, 0, 0, 0, port), peer)

        threading.Thread(target=answer, daemon=True).start()
        waiting = self.client("127.0.0.67")
        self.assertEqual(self.lock(self.bystander, b"holder", self.file, 1, 0, 1), GRANTED)
        self.assertEqual(self.lock(waiting, b"waiting", self.file, 1, 0, 1, block=True), BLOCKED)
        attacking = self.client("127.0.0.66")
        count = 4000 if LONG else 1000
        message = opaque(b"c") + struct.pack(">I", 1) + alock(b"attacker", self.file, 1, 50, 1)
        attacking.send(b"".join(attacker.record(attacker.call(NLM, 4, TEST_MSG, message, n, auth_sys())) for n in range(count)))
        for _ in range(count):
            attacking.receive()
        began = time.monotonic()
        results = self.bystander.call(NLM, 4, UNLOCK, opaque(b"c") + alock(b"holder", self.file, 1, 0, 0))
        self.assertEqual(self.status(results), GRANTED)
        connection, _ = manager.accept()
        self.addCleanup(connection.close)
        connection.settimeout(20)
        (program, version, procedure) = struct.unpack(">III", connection.recv(4096)[16:28])
        self.assertEqual((program, version, procedure), (NLM, 4, 5), "GRANTED")
        self.assertLess(time.monotonic() - began, PATIENCE)


if __name__ == "__main__":
    unittest.main()
