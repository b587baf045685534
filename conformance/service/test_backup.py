"""`weir backup` of a running server, and `weir restore` into a folder that serves the same aggregate again."""

import json
import os
import shutil
import stat
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", folder) for folder in ("upgrade", "api")]
import fixture  # noqa: E402
from weirtest import WEIR, Server  # noqa: E402

# Files of a data folder that a backup leaves out: the volumes' data, and what belongs to a running process.
LEFT_OUT = {"device", "log", "lock", "reserve", "control", "api", "catalog.db-wal", "catalog.db-shm"}


def weir(*words, **options):
    ran = subprocess.run([WEIR, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60, **options)
    return ran.returncode, ran.stdout


class Backup(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="weir-backup-")
        self.addCleanup(temporary.cleanup)
        self.data, self.copy, self.new = (os.path.join(temporary.name, name) for name in ("data", "copy", "new"))

    def start(self, data):
        server = Server("--smb", "127.0.0.1:0", "--replication", "127.0.0.1:0", data=data, memory="256M")
        self.addCleanup(server.close)
        return server

    def modes(self, folder):
        self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700)
        for name in os.listdir(folder):
            self.assertEqual(stat.S_IMODE(os.stat(os.path.join(folder, name)).st_mode), 0o600, name)

    def refused(self, words, *command):
        status, out = weir(*command)
        self.assertEqual((status, words in out, "panic" in out), (1, True, False), out)

    def test_round_trip(self):
        server = self.start(self.data)
        status, out = weir("users", "create", "mouse", "--uid", "1000", "--gid", "1000", "--data", self.data, input="correct horse\n")
        self.assertEqual(status, 0, out)
        fixture.put(fixture.nfs_port(server), "/vol1/file", b"written before\n")
        status, out = weir("backup", self.copy, "--data", self.data)
        self.assertEqual(status, 0, out)
        self.assertIn("Not in it: the volumes' data", out)
        self.modes(self.copy)
        kept = set(os.listdir(self.copy))
        self.assertEqual(set(os.listdir(self.data)) - LEFT_OUT, kept - {"backup.json"})
        self.refused("it is not empty", "backup", self.copy, "--data", self.data)
        self.refused("is serving it", "restore", self.copy, "--data", self.data)
        server.stop()
        self.refused("it is not empty", "restore", self.copy, "--data", self.data)

        status, out = weir("restore", self.copy, "--data", self.new)
        self.assertEqual(status, 0, out)
        self.assertIn("Put the aggregate's files device and log into", out)
        self.modes(self.new)
        self.assertEqual(set(os.listdir(self.new)), kept - {"backup.json"})
        # Without the aggregate's files nothing is served, and nothing is made in their place.
        status, out = weir("serve", "--data", self.new, "--nfs", "127.0.0.1:0", "--api", "off", "--no-rpcbind", "--memory", "256M")
        self.assertEqual(status, 1, out)
        self.assertFalse(os.path.exists(os.path.join(self.new, "device")))
        for name in ("device", "log"):
            shutil.move(os.path.join(self.data, name), self.new)
        server = self.start(self.new)
        self.assertEqual(fixture.get(fixture.nfs_port(server), "/vol1/file"), b"written before\n")
        _, users = weir("users", "list", "--data", self.new)
        self.assertIn("mouse", users)
        _, volumes = server.ask("GET", "projects/weir/locations/local/volumes")
        self.assertEqual([v["shareName"] for v in volumes["volumes"]], ["vol1"])
        server.stop()
        status, out = weir("check", self.new)
        self.assertEqual(status, 0, out)

    def test_damage_is_refused_before_anything_is_made(self):
        self.start(self.data).stop()
        status, out = weir("backup", self.copy, "--data", self.data)
        self.assertEqual(status, 0, out)
        manifest = os.path.join(self.copy, "backup.json")
        with open(manifest) as file:
            good = json.load(file)

        def refuses(words):
            self.refused(words, "restore", self.copy, "--data", self.new)
            self.assertFalse(os.path.exists(self.new))

        for entry in good["files"]:
            path = os.path.join(self.copy, entry["name"])
            with open(path, "rb") as file:
                contents = file.read()
            with open(path, "wb") as file:
                file.write(bytes([contents[0] ^ 1]) + contents[1:])
            refuses(f"{entry['name']} is damaged")
            os.remove(path)
            refuses(f"cannot read {path}")
            with open(path, "wb") as file:
                file.write(contents)
        for change, words in [({"version": 2}, "the backup has version 2"), ({"magic": "other"}, "is not a backup's manifest"),
                              ({"files": [{**good["files"][0], "name": "../outside"}]}, "which is no file of a backup"),
                              ({"files": []}, "does not name weir.json"), ({"files": 1}, "is damaged")]:
            with open(manifest, "w") as file:
                json.dump({**good, **change}, file)
            refuses(words)
        with open(manifest, "w") as file:
            file.write("{")
        refuses("is damaged")
        os.remove(manifest)
        refuses(f"cannot read {manifest}")


if __name__ == "__main__":
    unittest.main()
