"""Data folders of earlier builds, opened, served and checked by the binary of today."""

import glob
import json
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "api")]
import fixture  # noqa: E402
import weirtest  # noqa: E402


def tree(folder):
    """Every file below `folder` with its size and digest."""
    found = {}
    for where, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(where, name)
            with open(path, "rb") as file:
                found[os.path.relpath(path, folder)] = fixture.digest(file.read())
    return found


class Upgrade(unittest.TestCase):
    maxDiff = None

    def each(self, test):
        files = sorted(glob.glob(os.path.join(HERE, "data-*.tar.xz")))
        self.assertTrue(files)
        for file in files:
            with self.subTest(os.path.basename(file)), tempfile.TemporaryDirectory(prefix="weir-upgrade-") as top:
                test(fixture.unpack(file, top))

    def check(self, data):
        ran = subprocess.run([weirtest.WEIR, "check", data], text=True, capture_output=True, timeout=120)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)

    def test_earlier_folders_are_served(self):
        self.each(self.serve_twice)

    def serve_twice(self, data):
        self.check(data)
        for turn in range(2):
            server = weirtest.Server("--smb", "127.0.0.1:0", data=data, memory="256M")
            try:
                port = fixture.nfs_port(server)
                for name in ("small", "pattern", "sparse", "many-000", "many-299"):
                    self.assertEqual(fixture.digest(fixture.get(port, f"/vol1/{name}")),
                                     fixture.digest(fixture.CONTENTS[name]), name)
                for name, contents in fixture.IN_SNAPSHOT.items():
                    self.assertEqual(fixture.get(port, f"/vol1/.snapshot/before/{name}"), contents)
                names = subprocess.run(["nfs-ls", fixture.url(port, "/vol1")], check=True, text=True,
                                       capture_output=True).stdout.split("\n")
                self.assertEqual(sum("many-" in line for line in names), 300)
                _, pools = server.ask("GET", f"{fixture.PLACE}/storagePools")
                pool = next(p for p in pools["storagePools"] if p["name"].endswith("/pool2"))
                self.assertEqual((pool["qosType"], pool["capacityGib"]), ("MANUAL", "1024"))
                _, volume = server.ask("GET", f"{fixture.PLACE}/volumes/vol2")
                self.assertEqual((volume["throughputMibps"], volume["protocols"]), (16, ["NFSV3", "SMB"]))
                users = subprocess.run([weirtest.WEIR, "users", "list", "--data", data], text=True,
                                       capture_output=True, timeout=30)
                self.assertIn("mouse", users.stdout)
                fixture.put(port, f"/vol1/added-{turn}", b"by the binary of today\n")
                for earlier in range(turn + 1):
                    self.assertEqual(fixture.get(port, f"/vol1/added-{earlier}"), b"by the binary of today\n")
            finally:
                server.close()
        self.check(data)

    def test_a_newer_folder_is_refused_untouched(self):
        self.each(self.refuse_newer)

    def refuse_newer(self, data):
        path = os.path.join(data, "weir.json")
        with open(path) as file:
            described = json.load(file)
        described["format"] += 1
        with open(path, "w") as file:
            json.dump(described, file)
        before = tree(data)
        for command in (["serve", "--nfs", "127.0.0.1:0", "--api", "off", "--no-rpcbind", "--memory", "256M", "--data", data],
                        ["check", data], ["check", "--repair", data]):
            ran = subprocess.run([weirtest.WEIR, *command], text=True, capture_output=True, timeout=60)
            self.assertNotEqual(ran.returncode, 0)
            self.assertIn(f"format version {described['format']}", ran.stdout + ran.stderr)
            self.assertEqual(tree(data), before, command)


if __name__ == "__main__":
    unittest.main()
