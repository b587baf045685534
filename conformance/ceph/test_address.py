"""Addresses that move with an aggregate on a real Ceph, in a network namespace of this process."""

import ctypes
import os
import shutil
import signal
import socket
import struct
import subprocess
import time
import unittest

from ceph import POOL, OnCluster, Server

CLONE_NEWNET = 0x40000000
CLIENT = "10.77.0.1"
MOVING = "10.77.0.100"
# A call of NFSv3's procedure 0, with its record mark.
NULL = struct.pack(">11I", 0x80000000 | 40, 7, 0, 2, 100003, 3, 0, 0, 0, 0, 0)
LIBC = ctypes.CDLL(None, use_errno=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=30)


def setUpModule():
    if os.getuid() or not shutil.which("ip"):
        raise unittest.SkipTest("network namespaces need root and iproute2")
    outside = os.open("/proc/self/ns/net", os.O_RDONLY)
    if LIBC.unshare(CLONE_NEWNET):
        raise unittest.SkipTest(f"no network namespace: {os.strerror(ctypes.get_errno())}")
    unittest.addModuleCleanup(leave, outside)
    ip("link", "set", "lo", "up")
    # Each server has an interface; the client's address is on another one.
    for name in ("c", "a", "b"):
        can = subprocess.run(["ip", "link", "add", "name", name, "type", "veth", "peer", "name", f"{name}-end"], capture_output=True,
                             text=True, check=False, timeout=30)
        if can.returncode:
            raise unittest.SkipTest(f"no interfaces in a network namespace: {can.stderr.strip()}")
        ip("link", "set", "dev", name, "up")
        ip("link", "set", "dev", f"{name}-end", "up")
    ip("address", "add", f"{CLIENT}/24", "dev", "c")


def leave(outside):
    LIBC.setns(outside, CLONE_NEWNET)
    os.close(outside)


class Moving(OnCluster):
    def server(self, aggregate, name):
        server = Server(self.ceph, aggregate, os.path.join(self.folder, name), "--api", "off", "--standby", "--address",
                        f"{MOVING}/24@{name}", nfs="0.0.0.0:0")
        self.addCleanup(server.close)
        return server

    def two(self, aggregate):
        first = self.server(aggregate, "a").started()
        self.assertTrue(self.has("a") and not self.has("b"))
        second = self.server(aggregate, "b")
        self.ceph.until("the second one stands by", lambda: f"stands by for rados:{POOL}/" in second.output())
        return first, second

    @staticmethod
    def has(interface):
        shown = subprocess.run(["ip", "-o", "address", "show", "dev", interface], capture_output=True, text=True, check=True, timeout=30)
        return MOVING in shown.stdout

    def connect(self, server):
        """A client of the server that has been answered, and waits for the next answer."""
        client = socket.create_connection((MOVING, server.port), timeout=30, source_address=(CLIENT, 0))
        self.addCleanup(client.close)
        client.sendall(NULL)
        self.assertGreater(len(client.recv(100)), 0)
        return client

    def listed(self, aggregate, client):
        """The client, once the owner has written down its connection."""
        port = client.getsockname()[1]
        get = ("rados", "-p", POOL, "-N", aggregate, "get", "f.clients", "-")
        self.ceph.until("the connection is listed", lambda: f"{CLIENT}:{port}" in self.ceph.run(*get, check=False).stdout)
        return client

    def moves(self, event, second, began):
        """The second server has the address, and answers there."""
        second.started()
        self.ceph.until("the address has moved", lambda: self.has("b") and not self.has("a"))
        self.connect(second)
        print(f"{event}: a client is answered at the address after {time.monotonic() - began:.2f} s")

    def notices(self, client):
        """The client's connection is reset."""
        client.settimeout(10)
        with self.assertRaises(ConnectionResetError):
            if client.recv(100) == b"":
                raise ConnectionResetError

    def test_killed(self):
        first, second = self.two("killed")
        client = self.listed("killed", self.connect(first))
        began = time.monotonic()
        first.process.kill()
        self.moves("killed", second, began)
        self.notices(client)

    def test_suspended(self):
        first, second = self.two("suspended")
        client = self.listed("suspended", self.connect(first))
        began = time.monotonic()
        first.signal(signal.SIGSTOP)
        self.moves("suspended", second, began)
        first.signal(signal.SIGCONT)
        # Not before: on one machine the connection of a suspended process lives on in the kernel.
        self.notices(client)
        self.ceph.until("it stands by", lambda: f"stands by for rados:{POOL}/" in first.output())
        self.assertTrue(self.has("b") and not self.has("a"))
        self.connect(second)

    def test_stopped(self):
        first, second = self.two("stopped")
        client = self.listed("stopped", self.connect(first))
        began = time.monotonic()
        first.signal(signal.SIGTERM)
        second.started()
        self.assertFalse(self.has("a"))
        self.moves("stopped", second, began)
        self.notices(client)


if __name__ == "__main__":
    unittest.main()
