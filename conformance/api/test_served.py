"""What the API makes is served over NFS at once, as it says and where it says: seen with libnfs's tools."""

import os
import re
import struct
import shutil
import subprocess
import tempfile
import unittest

import nfs3
from weirtest import PLACE, Case

POOLS, VOLUMES, INSTANCES = (f"{PLACE}/{c}" for c in ("storagePools", "volumes", "instances"))


def instance(share):
    return {"tier": "BASIC_HDD", "fileShares": [{"name": share, "capacityGb": "1024"}],
            "networks": [{"network": "default"}]}


@unittest.skipUnless(shutil.which("nfs-cp"), "libnfs's tools are not installed (Debian: libnfs-utils)")
class Tools(Case):
    """What libnfs's tools see."""

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-served-")
        self.addCleanup(self.folder.cleanup)
        self.files = 0

    def url(self, path, host="127.0.0.1"):
        return f"nfs://{host}/{path}?version=3&nfsport={self.nfs}&mountport={self.nfs}&auto-traverse-mounts=0"

    def run_tool(self, *words):
        return subprocess.run(words, capture_output=True, timeout=60)

    def write(self, path, text, host="127.0.0.1"):
        self.files += 1
        local = os.path.join(self.folder.name, str(self.files))
        with open(local, "w") as f:
            f.write(text)
        return self.run_tool("nfs-cp", local, self.url(path, host)).returncode == 0

    def read(self, path, host="127.0.0.1"):
        got = self.run_tool("nfs-cat", self.url(path, host))
        return got.stdout.decode() if got.returncode == 0 else None

    def lists(self, share, host="127.0.0.1"):
        return self.run_tool("nfs-ls", self.url(share + "/", host)).returncode == 0


class Counted(Case):
    """What fails over NFS is in the metrics."""

    def test_a_failure_has_its_operation_and_status(self):
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        nfs = nfs3.Nfs(port, "/vol1")
        self.addCleanup(nfs.close)
        for _ in range(3):
            with self.assertRaises(OSError):
                nfs.lookup(b"missing")
        with self.assertRaises(OSError):
            nfs3.Nfs(port, "/nothing")
        # A lock on a file that nobody has, and a version that is not served.
        lock = struct.pack(">II", 0, 1) + nfs3.opaque(b"test") + nfs3.opaque(b"x" * 32) + nfs3.opaque(b"1") + struct.pack(">IQQ", 1, 0, 1)
        stale, = struct.unpack(">I", nfs.call(100021, 1, lock, version=4))
        self.assertEqual(stale, 7)
        with self.assertRaises(OSError):
            nfs.call(nfs3.NFS, 1, b"", version=9)
        page = self.server.ask("GET", "/metrics")[1]
        found = re.findall(r"^weir_operation_errors_total\{(.*)\} (\d+)$", page, re.M)
        self.assertEqual(found, [
            ('protocol="nfsv3",operation="LOOKUP",status="NOENT"', "3"),
            ('protocol="mountv3",operation="MNT",status="NOENT"', "1"),
            ('protocol="nlmv4",operation="TEST",status="STALE_FH"', "1"),
            ('protocol="rpc",operation="CALL",status="PROG_MISMATCH"', "1")])


class Served(Tools):
    def rules(self, *rules):
        return {"exportPolicy": {"rules": list(rules)}}

    def test_a_volumes_life(self):
        self.done("POST", POOLS, {"serviceLevel": "STANDARD", "capacityGib": "1024", "network": "default"},
                  storagePoolId="served")
        everyone = {"allowedClients": "0.0.0.0/0", "accessType": "READ_WRITE", "hasRootAccess": "true"}
        volume = self.done("POST", VOLUMES, {
            "storagePool": "served", "shareName": "sv", "capacityGib": "10", "protocols": ["NFSV3"],
            "unixPermissions": "0777", **self.rules(everyone)}, volumeId="sv")
        option = volume["mountOptions"][0]
        self.assertEqual(option["exportFull"], "127.0.0.1:/sv")
        self.nfs = int(re.search(r",port=(\d+)", option["instructions"])[1])
        self.assertTrue(self.write("sv/a", "first"))
        self.assertEqual(self.read("sv/a"), "first")
        # Rules change while it is served.
        def change(*rules):
            self.done("PATCH", f"{VOLUMES}/sv", self.rules(*rules), updateMask="exportPolicy")
        change({**everyone, "accessType": "READ_ONLY"})
        self.assertFalse(self.write("sv/b", "second"))
        self.assertEqual(self.read("sv/a"), "first")
        change({**everyone, "allowedClients": "192.0.2.1"})
        self.assertFalse(self.lists("sv"))
        change({**everyone, "allowedClients": "127.0.0.1", "accessType": "READ_NONE"}, everyone)
        self.assertFalse(self.lists("sv"))
        change(everyone)
        self.assertTrue(self.lists("sv"))
        # A snapshot, and back to it.
        self.done("POST", f"{VOLUMES}/sv/snapshots", {}, snapshotId="s1")
        self.assertTrue(self.write("sv/b", "second"))
        self.done("POST", f"{VOLUMES}/sv:revert", {"snapshotId": "s1"})
        self.assertEqual((self.read("sv/a"), self.read("sv/b")), ("first", None))
        self.ok("DELETE", f"{VOLUMES}/sv", force="true")
        self.assertFalse(self.lists("sv"))
        # The name is free again, and the new volume is empty.
        self.done("POST", VOLUMES, {"storagePool": "served", "shareName": "sv", "capacityGib": "10",
                                    "protocols": ["NFSV3"], "unixPermissions": "0777"}, volumeId="sv2")
        self.assertTrue(self.lists("sv"))
        self.assertIsNone(self.read("sv/a"))

    def test_an_instances_share(self):
        made = self.done("POST", INSTANCES, {
            "tier": "BASIC_HDD", "fileShares": [{"name": "si", "capacityGb": "1024", "nfsExportOptions": [
                {"ipRanges": ["127.0.0.0/8"], "accessMode": "READ_WRITE", "squashMode": "NO_ROOT_SQUASH"}]}],
            "networks": [{"network": "default"}]}, instanceId="si")
        self.assertEqual(made["networks"][0]["ipAddresses"], ["127.0.0.1"])
        volume = self.ok("GET", "projects/weir/locations/local/volumes")["volumes"][0]
        self.nfs = int(re.search(r",port=(\d+)", volume["mountOptions"][0]["instructions"])[1])
        self.assertTrue(self.lists("si"))
        if os.geteuid() == 0:
            self.assertTrue(self.write("si/f", "text"))
            self.assertEqual(self.read("si/f"), "text")

    def test_the_usual_share_name(self):
        """`vol1`, the name in the public documents, which the first volume of a fresh server has as well."""
        local = "projects/weir/locations/local"
        first = self.ok("GET", f"{local}/volumes/vol1")["mountOptions"]
        self.assertEqual([option["protocol"] for option in first], ["NFSV3", "NFSV4"])
        self.assertEqual(first[0]["export"], "/vol1")
        self.nfs = int(re.search(r",port=(\d+)", first[0]["instructions"])[1])
        # Clients of an instance mount /vol1, and would find the first volume there.
        error = self.refused(409, "ALREADY_EXISTS", "POST", INSTANCES, instance("vol1"), instanceId="usual")
        self.assertIn("--instance-addresses", error["message"])
        self.done("POST", POOLS, {"serviceLevel": "STANDARD", "capacityGib": "1024", "network": "default"},
                  storagePoolId="usual")
        volume = self.done("POST", VOLUMES, {"storagePool": "usual", "shareName": "vol1", "capacityGib": "10",
                                             "protocols": ["NFSV3"], "unixPermissions": "0777"}, volumeId="usual")
        self.assertEqual(volume["shareName"], "vol1")
        path = volume["mountOptions"][0]["export"].lstrip("/")
        self.assertNotEqual(path, "vol1")
        self.assertTrue(self.lists(path))
        self.assertTrue(self.write(path + "/only-here", "text"))
        self.assertIsNone(self.read("vol1/only-here"))


class Addresses(Tools):
    """Each instance at an address of its own, as the clouds have it."""

    arguments = ("--instance-addresses", "127.9.0.0/29")

    def test_each_instance_has_its_address_and_the_usual_share(self):
        first = self.ok("GET", "projects/weir/locations/local/volumes/vol1")["mountOptions"]
        self.nfs = int(re.search(r",port=(\d+)", first[0]["instructions"])[1])
        hosts = []
        for name in ("own1", "own2"):
            made = self.done("POST", INSTANCES, instance("vol1"), instanceId=name)
            self.assertEqual(made["exportPaths"], ["/vol1"])
            hosts += made["networks"][0]["ipAddresses"]
        self.assertEqual(hosts, ["127.9.0.1", "127.9.0.2"])
        self.assertEqual(self.ok("GET", f"{INSTANCES}/own2")["networks"][0]["ipAddresses"], hosts[1:])
        self.assertTrue(self.lists("own1/vol1"))
        for host in hosts:
            self.assertTrue(self.lists("vol1", host), host)
            self.assertFalse(self.lists("own1/vol1", host), host)
        if os.geteuid() == 0:
            for host in hosts:
                self.assertTrue(self.write("vol1/f", host, host), host)
            self.assertEqual([self.read("vol1/f", host) for host in hosts], hosts)
        self.assertIsNone(self.read("vol1/f"))
        self.done("DELETE", f"{INSTANCES}/own1")
        self.assertIsNone(self.read("vol1/f", hosts[0]), "nobody has the address now")
        self.assertFalse(self.lists("vol1", hosts[0]), "it is not the server's own /vol1 either")
        for n in range(5):
            self.done("POST", INSTANCES, instance("vol1"), instanceId=f"more{n}")
        error = self.refused(429, "RESOURCE_EXHAUSTED", "POST", INSTANCES, instance("vol1"), instanceId="one-too-many")
        self.assertIn("127.9.0.0/29", error["message"])


if __name__ == "__main__":
    unittest.main()
