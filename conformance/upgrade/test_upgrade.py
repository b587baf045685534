"""Data folders of earlier builds, opened, served and checked by the binary of today."""

import contextlib
import glob
import json
import os
import shutil
import sqlite3
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


    def test_a_folder_with_unknown_features_is_refused_untouched(self):
        self.each(self.refuse_features)

    def refuse_features(self, data):
        path = os.path.join(data, "weir.json")
        with open(path) as file:
            described = json.load(file)
        described["features"] = ["of-a-later-weir"]
        with open(path, "w") as file:
            json.dump(described, file)
        before = tree(data)
        for command in (["serve", "--nfs", "127.0.0.1:0", "--api", "off", "--no-rpcbind", "--memory", "256M", "--data", data],
                        ["check", data], ["check", "--repair", data], ["upgrade", "--data", data],
                        ["upgrade", "--dry-run", "--data", data]):
            ran = subprocess.run([weirtest.WEIR, *command], text=True, capture_output=True, timeout=60)
            self.assertNotEqual(ran.returncode, 0, command)
            self.assertIn("does not know: of-a-later-weir", ran.stdout + ran.stderr)
            self.assertEqual(tree(data), before, command)

    def test_a_start_switches_nothing_on(self):
        self.each(self.start_and_upgrade)

    def start_and_upgrade(self, data):
        path = os.path.join(data, "weir.json")
        with open(path, "rb") as file:
            before = file.read()
        server = weirtest.Server("--smb", "127.0.0.1:0", data=data, memory="256M")
        try:
            self.assertIn("is serving it", self.upgrade(data, status=1))
            self.upgrade(data, "--dry-run")
        finally:
            server.close()
        with open(path, "rb") as file:
            self.assertEqual(file.read(), before)
        would = json.loads(self.upgrade(data, "--dry-run", "--json"))
        self.assertEqual(would["switchedOn"], [])
        done = json.loads(self.upgrade(data, "--json"))
        self.assertEqual(done["switchedOn"], [one["name"] for one in would["featuresOff"]])
        self.assertIn("Nothing is left to switch on", self.upgrade(data))
        self.check(data)

    def upgrade(self, data, *options, status=0):
        ran = subprocess.run([weirtest.WEIR, "upgrade", "--data", data, *options], text=True, capture_output=True, timeout=60)
        self.assertEqual(ran.returncode, status, ran.stdout + ran.stderr)
        return ran.stdout + ran.stderr


def may_mount():
    ran = subprocess.run(["unshare", "--mount", "true"], capture_output=True)
    return ran.returncode == 0


@unittest.skipUnless(may_mount(), "a small disk takes the right to mount (root)")
class SmallDisk(unittest.TestCase):
    """The copy of a catalog before its migration, on a disk without space for it."""

    # Runs in a mount namespace of its own: a tmpfs for the catalog, filled but for what SQLite's log needs to open it.
    SCRIPT = """
mount -t tmpfs -o size=1M none "$SMALL" && cp "$TOP/catalog.db" "$SMALL/catalog.db" || exit 90
dd if=/dev/zero of="$SMALL/filler" bs=4k status=none 2>/dev/null
truncate -s -200K "$SMALL/filler" || exit 91
"$WEIR" upgrade --data "$DATA" --catalog "sqlite://$SMALL/catalog.db"; echo "first $?"
ls "$SMALL"; echo listed; cp "$SMALL/catalog.db" "$TOP/refused.db"
rm "$SMALL/filler"
"$WEIR" upgrade --data "$DATA" --catalog "sqlite://$SMALL/catalog.db"; echo "second $?"
ls "$SMALL"; cp "$SMALL"/catalog*.sqlite "$TOP/"
"""

    def test_no_space_for_the_copy_refuses_and_changes_nothing(self):
        with tempfile.TemporaryDirectory(prefix="weir-upgrade-") as top:
            data = os.path.join(top, "data")
            server = weirtest.Server(data=data, memory="256M")
            server.close()
            catalog = os.path.join(top, "catalog.db")
            shutil.copy(os.path.join(data, "catalog.db"), catalog)
            # As the version before has it, and 300 KiB larger than the space that is left.
            with contextlib.closing(sqlite3.connect(catalog)) as db:
                (version,) = db.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
                older = int(version) - 1
                db.executescript(f"DROP TABLE backup_policies;"
                                 f"UPDATE meta SET value = '{older}' WHERE name = 'version';")
                for number in range(75):
                    db.execute("INSERT INTO policies VALUES (?, ?)", (f"large-{number}", json.dumps({"text": "x" * 4000})))
                db.commit()
                db.execute("PRAGMA journal_mode = DELETE")
            small = os.path.join(top, "small")
            os.mkdir(small)
            ran = subprocess.run(["unshare", "--mount", "--propagation", "private", "bash", "-c", self.SCRIPT], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=120,
                                 env={**os.environ, "SMALL": small, "TOP": top, "DATA": data, "WEIR": weirtest.WEIR})
            first, _, rest = ran.stdout.partition("first 1\n")
            self.assertTrue(rest, ran.stdout)
            self.assertIn(f"cannot copy the catalog to {small}/catalog-v{older}.sqlite before migrating it", first)
            self.assertIn("full", first)
            self.assertIn("Nothing was changed", first)
            left, _, rest = rest.partition("listed\n")
            self.assertEqual(set(left.split()) - {"catalog.db-shm", "catalog.db-wal"}, {"catalog.db", "filler"})
            _, _, rest = rest.partition("second 0\n")
            self.assertIn(f"catalog-v{older}.sqlite", rest, ran.stdout)
            with contextlib.closing(sqlite3.connect(os.path.join(top, "refused.db"))) as db:
                self.assertEqual(db.execute("SELECT value FROM meta WHERE name = 'version'").fetchone(), (str(older),))
                self.assertEqual(db.execute("SELECT count(*) FROM policies").fetchone()[0] >= 75, True)
            with contextlib.closing(sqlite3.connect(os.path.join(top, f"catalog-v{older}.sqlite"))) as db:
                self.assertEqual(db.execute("SELECT value FROM meta WHERE name = 'version'").fetchone(), (str(older),))


if __name__ == "__main__":
    unittest.main()
