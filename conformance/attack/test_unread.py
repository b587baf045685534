"""READs whose replies nobody takes, from many addresses and over every protocol: how long others wait meanwhile.

`ATTACK=long` measures each protocol, number of addresses and size of memory, and prints a table; ADDRESSES=N of them those with N
attacking addresses alone."""

import os
import re
import struct
import subprocess
import sys
import threading
import time
import unittest

import attacker
from attacker import LONG, NFS, auth_sys, call, opaque, record
from test_nfs4 import OK, PUTFH, READ, Client as Client4, op
from test_records import GETATTR, READ as READ3, WRITE, write_args

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "smb"))
import smbwire  # noqa: E402

# Attacking addresses and the connections from all of them.
CASES = [(2, 32), (4, 400), (40, 400), (1000, 2000)] if LONG else [(40, 120)]
CASES = [case for case in CASES if str(case[0]) == os.environ.get("ADDRESSES", str(case[0]))]
MEMORY = ["256M", "1G"] if LONG else ["256M"]
SECONDS = 20 if LONG else 5
# What 99 of 100 calls of others take at most, in seconds; a debug build on a busy machine takes longer.
PROMPT = 1.0 if LONG else 2.0
# READs of the largest size that a connection has outstanding.
OUTSTANDING = 16
FILE = 16 << 20
PASSWORD = "Cheese-4-Mice"


class Unread(unittest.TestCase):
    def start(self, memory):
        server = attacker.Server("--smb", "127.0.0.1:0", memory=memory)
        self.addCleanup(server.close)
        made = subprocess.run([attacker.weirtest.WEIR, "users", "create", "mouse", "--uid", "0", "--data", server.data],
                              input=PASSWORD + "\n", text=True, capture_output=True, timeout=30)
        self.assertEqual(made.returncode, 0, made.stderr)
        said = server.output()
        self.port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", said)[1])
        self.smb_port = int(re.search(r"SMB on 127\.0\.0\.1:(\d+)", said)[1])
        self.server = server
        client = self.nfs("127.0.0.1")
        self.root = client.mount()
        self.large = self.create(client, b"large")
        self.file = self.create(client, b"file")
        for at in range(0, FILE, 1 << 20):
            results = client.call(NFS, 3, WRITE, write_args(self.large, at, os.urandom(1 << 20), 0), auth_sys())
            self.assertEqual(results[:4], bytes(4))
        client.call(NFS, 3, WRITE, write_args(self.file, 0, os.urandom(1 << 16)), auth_sys())

    def nfs(self, source):
        client = attacker.Client(self.port, source, timeout=60)
        self.addCleanup(client.close)
        return client

    def create(self, client, name):
        args = opaque(self.root) + opaque(name) + struct.pack(">III", 0, 1, 0o666) + bytes(20)
        results = client.call(NFS, 3, 8, args, auth_sys())
        status, follows, length = struct.unpack(">III", results[:12])
        self.assertEqual((status, follows), (0, 1))
        return results[12:12 + length]

    def smb(self, source):
        client = smbwire.Client(self.smb_port, "mouse", PASSWORD, os.urandom(16), source)
        self.addCleanup(client.close)
        client.connect("vol1")
        return client

    def ask_nfs3(self, source):
        client = self.nfs(source)
        one = record(call(NFS, 3, READ3, opaque(self.large) + struct.pack(">QI", 0, 1 << 20), credential=auth_sys()))
        return client.socket, one * OUTSTANDING

    def ask_nfs4(self, source):
        client = Client4(self.port, source, 60)
        self.addCleanup(client.close)
        client.begin(os.urandom(8), OUTSTANDING)
        read = op(READ, bytes(16) + struct.pack(">QI", 0, 1 << 20))
        asked = [client.next(slot, op(PUTFH, opaque(self.large)), read) for slot in range(OUTSTANDING)]
        return client.socket, b"".join(record(call(NFS, 4, 1, one, n, auth_sys())) for n, one in enumerate(asked))

    def ask_smb(self, source):
        client = self.smb(source)
        file, _, _ = client.create("large", [], disposition=smbwire.OPEN)
        sent = []
        body = struct.pack("<HBBIQ16sIIIHHB", 49, 0, 0, 65536, 0, file, 0, 0, 0, 0, 0, 0)
        for _ in range(48):
            message = client.message_of(smbwire.READ, body)
            sent.append(struct.pack(">I", len(message)) + message)
        return client.socket, b"".join(sent)

    def attack(self, ask, addresses, connections):
        """All connect first, and ask at once then. Some may get no session any more."""
        asked = []
        for n in range(connections):
            at = n % addresses
            try:
                asked.append(ask(f"127.0.{1 + at // 200}.{2 + at % 200}"))
            except AssertionError:
                pass
        self.assertGreater(len(asked), connections // 10)
        for one, data in asked:
            one.setblocking(False)
            try:
                one.send(data)
            except OSError:
                pass

    def bystanders(self):
        """How long calls take, by what they are, each kind from an address of its own until the time is over."""
        took, end = {}, time.monotonic() + SECONDS

        def repeat(name, work):
            times = took.setdefault(name, [])
            while time.monotonic() < end:
                begun = time.monotonic()
                try:
                    work()
                except Exception as error:  # noqa: BLE001
                    failed.append(f"{name}: {error!r} after {len(times)} calls and {time.monotonic() - begun:.3f} s")
                    times.append(float("inf"))
                    return
                times.append(time.monotonic() - begun)
                time.sleep(0.02)

        def ok3(client, procedure, args):
            self.assertEqual(client.call(NFS, 3, procedure, args, auth_sys())[:4], bytes(4))

        def fresh():
            client = attacker.Client(self.port, "127.0.0.4", timeout=60)
            try:
                ok3(client, GETATTR, opaque(self.root))
            finally:
                client.close()

        def read4():
            status, _ = four.run(op(PUTFH, opaque(self.file)), op(READ, bytes(16) + struct.pack(">QI", 0, 4096)))
            self.assertEqual(status, OK)

        failed = []
        old, reader, writer, large = self.old
        four, smb, file = self.old4, self.old_smb, self.smb_file
        page = opaque(self.file) + struct.pack(">QI", 0, 4096)
        works = {
            "v3 GETATTR": lambda: ok3(old, GETATTR, opaque(self.root)),
            "v3 new connection": fresh,
            "v3 READ 4K": lambda: ok3(reader, READ3, page),
            "v3 READ 1M": lambda: ok3(large, READ3, opaque(self.large) + struct.pack(">QI", 0, 1 << 20)),
            "v3 WRITE 64K": lambda: ok3(writer, WRITE, write_args(self.file, 0, bytes(65536))),
            "v4 READ 4K": read4,
            "SMB READ 4K": lambda: smb.read(file, 0, 4096),
            "SMB WRITE 32K": lambda: smb.write(file, 0, bytes(32768)),
        }
        # The last two are on one connection.
        alone = [name for name in works if not name.startswith("SMB")]
        threads = [threading.Thread(target=repeat, args=(name, works[name])) for name in alone]

        def both():
            works["SMB READ 4K"]()
            works["SMB WRITE 32K"]()

        threads.append(threading.Thread(target=repeat, args=("SMB READ, WRITE", both)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        said = [line for line in self.server.output().splitlines() if "peer=127.0.0." in line]
        self.assertEqual(failed, [], said)
        return {name: sorted(times) for name, times in took.items()}

    def run_case(self, ask, memory, addresses, connections):
        self.start(memory)
        self.old = [self.nfs(f"127.0.0.{n}") for n in (3, 5, 6, 9)]
        self.old4 = Client4(self.port, "127.0.0.7", 60)
        self.addCleanup(self.old4.close)
        self.old4.begin(b"bystander", 4)
        self.old_smb = self.smb("127.0.0.8")
        self.smb_file, _, _ = self.old_smb.create("file", [])
        self.attack(ask, addresses, connections)
        took = self.bystanders()
        late = {}
        for name, times in took.items():
            p99 = times[max(0, -(-len(times) * 99 // 100) - 1)]
            if LONG:
                print(f"{ask.__name__} {addresses} addresses {connections} connections {memory}: {name}: "
                      f"{len(times)} calls, p99 {p99:.3f} s, longest {times[-1]:.3f} s", flush=True)
            if p99 > PROMPT:
                late[name] = p99
        self.doCleanups()
        return late

    def each(self, ask):
        for memory in MEMORY:
            for addresses, connections in CASES:
                with self.subTest(memory=memory, addresses=addresses):
                    self.assertEqual(self.run_case(ask, memory, addresses, connections), {})

    def test_over_nfs3(self):
        self.each(self.ask_nfs3)

    def test_over_nfs4(self):
        self.each(self.ask_nfs4)

    def test_over_smb(self):
        self.each(self.ask_smb)


if __name__ == "__main__":
    unittest.main()
