"""Backups over the public API: made, built on, restored, interrupted and deleted, in a folder and in a bucket of S3."""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
from nfs3 import Nfs  # noqa: E402
from weirtest import PLACE, WEIR, Server  # noqa: E402

MOTO = os.environ.get("MOTO")
VAULTS = f"{PLACE}/backupVaults"
# Backups of instances are in a region, the instances in one of its zones.
REGION = f"{PLACE.rpartition('/')[0]}/region"
MIB = 1 << 20


class Case(unittest.TestCase):
    def serve(self, *arguments):
        self.server = Server("--backup-bucket", *arguments, memory="256M")
        self.addCleanup(self.server.close)
        return self.server

    def ok(self, method, path, body=None, **query):
        status, answer = self.server.ask(method, path, body, query)
        self.assertEqual(status, 200, answer)
        return answer

    def ended(self, operation, seconds=120):
        end = time.monotonic() + seconds
        while not operation.get("done"):
            self.assertLess(time.monotonic(), end, operation)
            time.sleep(0.1)
            operation = self.ok("GET", operation["name"])
        return operation

    def done(self, method, path, body=None, **query):
        operation = self.ended(self.ok(method, path, body, **query))
        self.assertNotIn("error", operation, operation)
        return operation["response"]

    def fails(self, method, path, body=None, **query):
        operation = self.ended(self.ok(method, path, body, **query))
        self.assertIn("error", operation, operation)
        return operation["error"]

    def refused(self, code, method, path, body=None, **query):
        status, answer = self.server.ask(method, path, body, query)
        self.assertEqual(status, code, answer)
        return answer["error"]["message"]

    def prepare(self):
        self.done("POST", f"{PLACE}/storagePools", {"serviceLevel": "FLEX", "capacityGib": "1024"}, storagePoolId="pool")
        self.volume("v1")

    def volume(self, name, **fields):
        body = {"storagePool": f"{PLACE}/storagePools/pool", "capacityGib": "100", "shareName": name,
                "protocols": ["NFSV3"], **fields}
        return self.done("POST", f"{PLACE}/volumes", body, volumeId=name)

    def nfs(self, share):
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        client = Nfs(port, f"/{share}")
        self.addCleanup(client.close)
        return client

    def back_up(self, name, volume="v1", **fields):
        body = {"sourceVolume": f"{PLACE}/volumes/{volume}", **fields}
        return self.done("POST", f"{VAULTS}/safe/backups", body, backupId=name)

    def restore(self, share, backup):
        made = self.volume(share, restoreParameters={"sourceBackup": f"{VAULTS}/safe/backups/{backup}"})
        self.assertEqual(made["restoreParameters"]["sourceBackup"], f"{VAULTS}/safe/backups/{backup}")
        return self.nfs(share)

    def story(self):
        """The same on every bucket."""
        self.prepare()
        vault = self.done("POST", VAULTS, {"description": "off the machine"}, backupVaultId="safe")
        self.assertEqual((vault["state"], vault["backupVaultType"]), ("READY", "IN_REGION"))
        files = self.nfs("v1")
        large, small = os.urandom(20 * MIB), b"first"
        files.put(b"large", large, mode=0o640, uid=7, gid=8)
        files.put(b"small", small)
        folder = files.mkdir(b"folder")
        files.put(b"within", b"in it", of=folder)
        files.symlink(b"link", b"folder/within")
        one = self.back_up("one")
        self.assertEqual((one["state"], one["backupType"]), ("READY", "MANUAL"))
        self.assertGreater(int(one["chainStorageBytes"]), 20 * MIB)
        files.put(b"small", b"second")
        files.remove(b"within", of=folder)
        two = self.back_up("two")
        self.assertLess(int(two["chainStorageBytes"]), MIB)
        names = [b["name"].rsplit("/")[-1] for b in self.ok("GET", f"{VAULTS}/safe/backups")["backups"]]
        self.assertEqual(names, ["one", "two"])
        # The source goes, and the first backup with it; what the second needs of it stays.
        for snapshot in self.ok("GET", f"{PLACE}/volumes/v1/snapshots").get("snapshots", []):
            self.done("DELETE", snapshot["name"])
        self.done("DELETE", f"{PLACE}/volumes/v1", force="true")
        old = self.restore("old", "one")
        self.assertEqual(old.read(old.lookup(b"small")), small)
        self.assertEqual(old.stat(old.lookup(b"large"))[:3], (0o640, 7, 8))
        self.assertEqual(old.read(old.lookup(b"within", of=old.lookup(b"folder"))), b"in it")
        self.done("DELETE", f"{VAULTS}/safe/backups/one")
        new = self.restore("new", "two")
        self.assertEqual(new.read(new.lookup(b"large")), large)
        self.assertEqual(new.read(new.lookup(b"small")), b"second")
        with self.assertRaises(OSError):
            new.lookup(b"within", of=new.lookup(b"folder"))
        # It is a volume like others.
        self.files_of_it(new)
        new.put(b"small", b"third")
        self.assertEqual(new.read(new.lookup(b"small")), b"third")
        self.assertIn("backups", self.refused(400, "DELETE", f"{VAULTS}/safe"))
        self.done("DELETE", f"{VAULTS}/safe/backups/two")
        self.done("DELETE", f"{VAULTS}/safe")
        self.assertEqual(self.ok("GET", VAULTS), {})

    def instance(self, name, **share):
        """An instance whose share no other one has: they have no addresses of their own."""
        share = {"name": "files" if name == "one" else name, "capacityGb": "1024", **share}
        body = {"tier": "BASIC_HDD", "fileShares": [share]}
        return self.done("POST", f"{PLACE}/instances", body, instanceId=name)

    def back_up_instance(self, name, **fields):
        body = {"sourceInstance": f"{PLACE}/instances/one", "sourceFileShare": "files", **fields}
        return self.done("POST", f"{REGION}/backups", body, backupId=name)

    def story_of_an_instance(self):
        """The same on every bucket."""
        self.instance("one")
        files = self.nfs("one/files")
        large, small = os.urandom(20 * MIB), b"first"
        files.put(b"large", large, mode=0o640, uid=7, gid=8)
        files.put(b"small", small)
        first = self.back_up_instance("first", labels={"a": "b"}, description="before")
        self.assertEqual(first["@type"], "type.googleapis.com/google.cloud.filestore.v1.Backup")
        self.assertEqual({field: first.get(field) for field in (
            "name", "state", "description", "labels", "sourceInstance", "sourceFileShare", "sourceInstanceTier", "capacityGb",
            "fileSystemProtocol")}, {
                "name": f"{REGION}/backups/first", "state": "READY", "description": "before", "labels": {"a": "b"},
                "sourceInstance": f"{PLACE}/instances/one", "sourceFileShare": "files", "sourceInstanceTier": "BASIC_HDD",
                "capacityGb": "1024", "fileSystemProtocol": "NFS_V3"})
        self.assertGreater(int(first["storageBytes"]), 20 * MIB)
        files.put(b"small", b"second")
        second = self.back_up_instance("second")
        self.assertLess(int(second["storageBytes"]), MIB)
        self.assertGreater(int(second["downloadBytes"]), 20 * MIB)
        for parent in (REGION, f"{PLACE.rpartition('/')[0]}/-"):
            names = [b["name"].rsplit("/")[-1] for b in self.ok("GET", f"{parent}/backups")["backups"]]
            self.assertEqual(names, ["first", "second"])
        self.assertEqual(self.ok("GET", f"{PLACE}/backups"), {})
        # The instance goes, and the first backup with it; what the second needs of it stays.
        self.done("DELETE", f"{PLACE}/instances/one", force="true")
        old = self.instance("old", sourceBackup=first["name"])
        self.assertEqual(old["fileShares"][0]["sourceBackup"], first["name"])
        files = self.nfs("old")
        self.assertEqual(files.read(files.lookup(b"small")), small)
        self.assertEqual(files.stat(files.lookup(b"large"))[:3], (0o640, 7, 8))
        self.done("DELETE", first["name"])
        self.instance("new", sourceBackup=second["name"])
        files = self.nfs("new")
        self.assertEqual(files.read(files.lookup(b"large")), large)
        self.assertEqual(files.read(files.lookup(b"small")), b"second")
        # It is an instance like others: what is read can be sent back.
        share = {**self.ok("GET", f"{PLACE}/instances/new")["fileShares"][0], "capacityGb": "2048"}
        grown = self.done("PATCH", f"{PLACE}/instances/new", {"fileShares": [share]}, updateMask="fileShares")
        self.assertEqual(grown["fileShares"][0]["capacityGb"], "2048")
        changed = self.done("PATCH", second["name"], {"labels": {"c": "d"}}, updateMask="labels")
        self.assertEqual((changed["labels"], changed["sourceFileShare"]), ({"c": "d"}, "files"))
        self.done("DELETE", second["name"])
        self.assertEqual(self.ok("GET", f"{REGION}/backups"), {})

    def files_of_it(self, new):
        """Single files of a backup go into a folder of a volume, and never over what is there."""
        to = f"{PLACE}/volumes/new:restore"
        body = {"backup": f"{VAULTS}/safe/backups/two", "fileList": ["/small", "/large"], "restoreDestinationPath": "/back"}
        self.assertIn("/back", self.fails("POST", to, body)["message"])
        back = new.mkdir(b"back")
        response = self.done("POST", to, body)
        self.assertEqual(response, {"@type": "type.googleapis.com/google.cloud.netapp.v1.RestoreBackupFilesResponse"})
        self.assertEqual(new.read(new.lookup(b"small", of=back)), b"second")
        self.assertEqual(new.read(new.lookup(b"large", of=back)), new.read(new.lookup(b"large")))
        self.assertEqual(new.stat(new.lookup(b"large", of=back))[:3], (0o640, 7, 8))
        # Again is not over: the same file is there. Another is not replaced.
        self.done("POST", to, body)
        new.put(b"small", b"other", of=back)
        self.assertIn("/back/small exists", self.fails("POST", to, body)["message"])
        self.assertEqual(new.read(new.lookup(b"small", of=back)), b"other")
        for files, words in ((["/none"], "/none"), (["/large/none"], "/large/none"), (["/folder"], "no regular file"),
                             (["/link"], "no regular file")):
            self.assertIn(words, self.fails("POST", to, {**body, "fileList": files})["message"])
        for files, words in ((["small"], "fileList"), ([], "fileList"), (["/a/x", "/b/x"], "x"), (["/../x"], "fileList")):
            self.assertIn(words, self.refused(400, "POST", to, {**body, "fileList": files}))
        self.refused(404, "POST", to, {**body, "backup": f"{VAULTS}/safe/backups/none"})

    def verify(self, *arguments, data=None, code=0):
        """`weir backup verify`, beside the server."""
        ran = subprocess.run([WEIR, "backup", "verify", f"--data={data or self.server.data}", *arguments],
                             capture_output=True, text=True, timeout=120)
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        return ran.stdout + ran.stderr


class OfAFolder(Case):
    def setUp(self):
        self.bucket = tempfile.mkdtemp(prefix="weir-bucket-")
        self.addCleanup(shutil.rmtree, self.bucket, ignore_errors=True)
        self.serve(self.bucket)

    def objects(self):
        return [os.path.join(at, name) for at, _, names in os.walk(self.bucket) for name in names]

    def test_a_volume_is_restored_after_it_is_gone(self):
        self.story()
        self.assertEqual(self.objects(), [])

    def test_an_instance_is_restored_after_it_is_gone(self):
        self.story_of_an_instance()
        # The vault stays for the next backup, without a pack.
        self.assertEqual([o for o in self.objects() if "/packs/" in o], [])

    def test_backups_of_instances_are_no_backups_of_volumes(self):
        self.prepare()
        self.instance("one")
        self.back_up_instance("b")
        # Its vault is the server's own business.
        self.assertEqual(self.ok("GET", f"{REGION}/backupVaults"), {})
        for method in ("GET", "DELETE"):
            self.refused(404, method, f"{REGION}/backupVaults/.filestore")
            self.refused(404, method, f"{REGION}/backupVaults/.filestore/backups/b")
        self.refused(404, "GET", f"{REGION}/backupVaults/.filestore/backups")
        self.refused(404, "PATCH", f"{REGION}/backupVaults/.filestore", {"description": "x"}, updateMask="description")
        backups = f"{PLACE}/backups"
        for body, field in (({}, "sourceInstance"), ({"sourceInstance": "one"}, "sourceInstance"),
                            ({"sourceInstance": f"{PLACE}/volumes/v1"}, "sourceInstance"),
                            ({"sourceInstance": "projects/other/locations/l/instances/one"}, "sourceInstance"),
                            ({"sourceInstance": f"{PLACE}/instances/one", "kmsKey": "k"}, "kmsKey")):
            self.assertIn(field, self.refused(400, "POST", backups, body, backupId="x"))
        missing = {"sourceInstance": f"{PLACE}/instances/none"}
        self.assertIn("none", self.refused(404, "POST", backups, missing, backupId="x"))
        other = {"sourceInstance": f"{PLACE}/instances/one", "sourceFileShare": "other"}
        self.assertIn("share other", self.refused(404, "POST", backups, other, backupId="x"))
        self.assertIn("already", self.refused(409, "POST", f"{REGION}/backups", {"sourceInstance": f"{PLACE}/instances/one"},
                                              backupId="b"))
        vault = self.done("POST", VAULTS, {}, backupVaultId="safe")["name"]
        of_instance = {"sourceVolume": f"{PLACE}/instances/one"}
        self.assertIn("there is no volume", self.refused(404, "POST", f"{vault}/backups", of_instance, backupId="x"))
        body = {"storagePool": f"{PLACE}/storagePools/pool", "capacityGib": "100", "shareName": "x", "protocols": ["NFSV3"]}
        for backup in (f"{REGION}/backups/b", f"{REGION}/backupVaults/.filestore/backups/b"):
            restored = {**body, "restoreParameters": {"sourceBackup": backup}}
            self.assertIn("sourceBackup", self.refused(400, "POST", f"{PLACE}/volumes", restored, volumeId="x"))
        scheduled = {**body, "backupConfig": {"backupVault": f"{PLACE}/backupVaults/.filestore"}}
        self.assertIn(".filestore", self.refused(404, "POST", f"{PLACE}/volumes", scheduled, volumeId="x"))
        for backup, code in ((f"{vault}/backups/b", 400), (f"{REGION}/backups/none", 404)):
            share = {"name": "x", "capacityGb": "1024", "sourceBackup": backup}
            body = {"tier": "BASIC_HDD", "fileShares": [share]}
            self.assertIn("backup", self.refused(code, "POST", f"{PLACE}/instances", body, instanceId="x"))
        share = {"name": "files", "sourceBackup": f"{REGION}/backups/b"}
        self.assertIn("sourceBackup", self.refused(400, "PATCH", f"{PLACE}/instances/one", {"fileShares": [share]},
                                                   updateMask="fileShares"))
        message = self.refused(400, "PATCH", f"{REGION}/backups/b", {"sourceFileShare": "x"}, updateMask="sourceFileShare")
        self.assertIn("sourceFileShare", message)
        self.refused(400, "POST", f"{PLACE}/instances/one:restore", {"fileShare": "files", "sourceBackup": f"{REGION}/backups/b"})

    def test_a_kill_costs_a_backup_of_an_instance_nothing(self):
        self.instance("one")
        large = os.urandom(96 * MIB)
        self.nfs("one/files").put(b"large", large)
        body = {"sourceInstance": f"{PLACE}/instances/one"}
        self.kill_once(lambda: self.packs() > 0, "POST", f"{REGION}/backups", body, backupId="b")
        self.ready(f"{REGION}/backups/b")
        body = {"tier": "BASIC_HDD", "fileShares": [{"name": "new", "capacityGb": "1024", "sourceBackup": f"{REGION}/backups/b"}]}
        begun = lambda: self.server.ask("GET", f"{PLACE}/instances/new")[0] == 200  # noqa: E731
        self.kill_once(begun, "POST", f"{PLACE}/instances", body, instanceId="new")
        self.ready(f"{PLACE}/instances/new")
        files = self.nfs("new")
        self.assertEqual(files.read(files.lookup(b"large")), large)

    def test_what_is_damaged_is_found(self):
        self.prepare()
        self.done("POST", VAULTS, {}, backupVaultId="safe")
        bucket = f"--backup-bucket={self.bucket}"
        self.nfs("v1").put(b"large", os.urandom(40 * MIB))
        self.back_up("one")
        self.nfs("v1").put(b"small", b"second")
        self.back_up("two")
        out = self.verify(bucket)
        self.assertRegex(out, r"/one of projects/.*/volumes/v1: verified, 40 MiB of files")
        self.assertIn("2 backups, 0 faults", out)
        self.assertIn("1 backups, 0 faults", self.verify(bucket, "--backup=two"))
        each = json.loads(self.verify(bucket, "--json"))["backups"]
        self.assertEqual([(b["backup"], b["fault"]) for b in each], [("one", None), ("two", None)])
        self.assertGreater(each[0]["fetched"], 40 * MIB)
        # The copy that `weir backup` makes has the keys as well.
        with tempfile.TemporaryDirectory() as folder:
            copy = os.path.join(folder, "copy")
            subprocess.run([WEIR, "backup", copy, f"--data={self.server.data}"], check=True, capture_output=True, timeout=60)
            self.assertIn("0 faults", self.verify(bucket, data=copy))
            self.assertIn("no key of a vault", self.verify(bucket, data=folder, code=1))
        self.assertIn("no vault has a backup none", self.verify(bucket, "--backup=none", code=1))
        self.assertIn("--backup-bucket is missing", self.verify(code=2))
        # A bit of a pack.
        pack = max((o for o in self.objects() if "/packs/" in o), key=os.path.getsize)
        with open(pack, "r+b") as file:
            file.seek(os.path.getsize(pack) // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        out = self.verify(bucket, code=1)
        self.assertIn("2 backups, 2 faults", out)
        self.assertIn("is damaged", out)
        os.remove(pack)
        self.assertIn("no such object", self.verify(bucket, "--backup=one", code=1))

    def test_a_kill_in_the_middle_costs_nothing(self):
        self.prepare()
        self.done("POST", VAULTS, {}, backupVaultId="safe")
        large = os.urandom(96 * MIB)
        self.nfs("v1").put(b"large", large)
        body = {"sourceVolume": f"{PLACE}/volumes/v1"}
        backup = f"{VAULTS}/safe/backups/one"
        self.kill_once(lambda: self.packs() > 0, "POST", f"{VAULTS}/safe/backups", body, backupId="one")
        self.ready(backup)
        self.assertGreater(self.packs(), 4)
        body = {"storagePool": f"{PLACE}/storagePools/pool", "capacityGib": "100", "shareName": "v2", "protocols": ["NFSV3"],
                "restoreParameters": {"sourceBackup": backup}}
        restored = f"{PLACE}/volumes/v2"
        begun = lambda: self.server.ask("GET", restored)[0] == 200  # noqa: E731
        self.kill_once(begun, "POST", f"{PLACE}/volumes", body, volumeId="v2")
        self.ready(restored)
        files = self.nfs("v2")
        self.assertEqual(files.read(files.lookup(b"large")), large)

    def test_files_arrive_whole_over_a_kill(self):
        """While files of a backup are copied, the directory has a part under another name, or the file, whole."""
        self.prepare()
        self.done("POST", VAULTS, {}, backupVaultId="safe")
        small, large = b"small", os.urandom(64 * MIB)
        files = self.nfs("v1")
        files.put(b"small", small)
        files.put(b"large", large)
        self.back_up("one")
        files.mkdir(b"back")
        body = {"backup": f"{VAULTS}/safe/backups/one", "fileList": ["/small", "/large"], "restoreDestinationPath": "/back"}

        def begun():
            running = self.ok("GET", f"{PLACE}/operations").get("operations", [])
            return any(o["metadata"]["verb"] == "restore" and not o.get("done") for o in running)
        self.kill_once(begun, "POST", f"{PLACE}/volumes/v1:restore", body)
        restoring = [o for o in self.ok("GET", f"{PLACE}/operations")["operations"] if o["metadata"]["verb"] == "restore"]
        self.assertEqual(len(restoring), 1)
        self.assertNotIn("error", self.ended(restoring[0]))
        files = self.nfs("v1")
        back = files.lookup(b"back")
        self.assertEqual(files.read(files.lookup(b"small", of=back)), small)
        self.assertEqual(files.read(files.lookup(b"large", of=back)), large)
        # What they came through is gone: the folder is sound, and has no volume beside those of the catalog.
        self.server.stop()
        checked = subprocess.run([WEIR, "check", self.server.data], capture_output=True, text=True, timeout=120)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.assertIn("checkpoint", checked.stdout)
        self.assertRegex(checked.stdout, r": 2 volumes, ")
        self.server.start()

    def packs(self):
        return sum("/packs/" in at for at in self.objects())

    def kill_once(self, begun, *request, **query):
        """Asks for something that takes a while, and kills the server once it has begun."""
        def ask():
            try:
                self.server.ask(*request, query)
            except (OSError, http.client.HTTPException):
                pass

        asking = threading.Thread(target=ask)
        asking.start()
        end = time.monotonic() + 60
        while not begun():
            self.assertLess(time.monotonic(), end)
        self.server.stop(signal.SIGKILL)
        asking.join()
        self.server.start()

    def ready(self, name):
        end = time.monotonic() + 120
        while (resource := self.ok("GET", name))["state"] != "READY":
            self.assertNotEqual(resource["state"], "ERROR", resource)
            self.assertLess(time.monotonic(), end, resource)
            time.sleep(0.1)

    def test_bad_input_is_refused_by_name(self):
        self.prepare()
        message = self.refused(404, "POST", f"{VAULTS}/none/backups", {"sourceVolume": f"{PLACE}/volumes/v1"}, backupId="b")
        self.assertIn("backup vault none", message)
        self.assertIn("backupRegion", self.refused(400, "POST", VAULTS, {"backupRegion": "elsewhere"}, backupVaultId="v"))
        self.done("POST", VAULTS, {}, backupVaultId="safe")
        backups = f"{VAULTS}/safe/backups"
        self.assertIn("sourceVolume", self.refused(400, "POST", backups, {}, backupId="b"))
        self.assertIn("sourceVolume", self.refused(400, "POST", backups, {"sourceVolume": "v1"}, backupId="b"))
        missing = {"sourceVolume": f"{PLACE}/volumes/none"}
        self.assertIn("none", self.refused(404, "POST", backups, missing, backupId="b"))
        of = {"sourceVolume": f"{PLACE}/volumes/v1", "sourceSnapshot": f"{PLACE}/volumes/v1/snapshots/none"}
        self.assertIn("none", self.refused(404, "POST", backups, of, backupId="b"))
        self.back_up("b")
        self.assertIn("already", self.refused(409, "POST", backups, {"sourceVolume": f"{PLACE}/volumes/v1"}, backupId="b"))
        body = {"storagePool": f"{PLACE}/storagePools/pool", "capacityGib": "100", "shareName": "x", "protocols": ["NFSV3"],
                "restoreParameters": {"sourceBackup": f"{backups}/none"}}
        self.assertIn("none", self.refused(404, "POST", f"{PLACE}/volumes", body, volumeId="x"))
        changed = self.done("PATCH", f"{backups}/b", {"description": "said"}, updateMask="description")
        self.assertEqual(changed["description"], "said")
        checked = self.ok("DELETE", f"{backups}/b", validateOnly="true")
        self.assertTrue(checked["validateOnly"])

    def test_a_damaged_bucket_is_reported_and_restores_nothing(self):
        self.prepare()
        self.done("POST", VAULTS, {}, backupVaultId="safe")
        self.nfs("v1").put(b"large", os.urandom(4 * MIB))
        self.back_up("one")
        pack = max((at for at in self.objects() if "/packs/" in at), key=os.path.getsize)
        with open(pack, "r+b") as file:
            file.seek(os.path.getsize(pack) // 2)
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1]))
        body = {"storagePool": f"{PLACE}/storagePools/pool", "capacityGib": "100", "shareName": "v2", "protocols": ["NFSV3"],
                "restoreParameters": {"sourceBackup": f"{VAULTS}/safe/backups/one"}}
        error = self.fails("POST", f"{PLACE}/volumes", body, volumeId="v2")
        self.assertIn("damaged", error["message"])
        status, _ = self.server.ask("GET", f"{PLACE}/volumes/v2")
        self.assertEqual(status, 404, "the volume is not left half restored")


@unittest.skipUnless(MOTO, "the S3 server could not be installed")
class OfABucket(Case):
    def setUp(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.s3 = subprocess.Popen([MOTO, "-p", str(self.port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.addCleanup(self.end_s3)
        end = time.monotonic() + 60
        while True:
            try:
                self.assertEqual(self.ask_s3("PUT", "/weir"), 200)
                break
            except OSError:
                self.assertLess(time.monotonic(), end)
                time.sleep(0.05)
        folder = tempfile.mkdtemp(prefix="weir-keys-")
        self.addCleanup(shutil.rmtree, folder)
        keys = os.path.join(folder, "keys")
        with open(keys, "w") as file:
            file.write("access:secret\n")
        self.serve(f"s3://weir?endpoint=http://127.0.0.1:{self.port}", "--backup-credentials", keys)

    def ask_s3(self, method, path):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            # As a client signs in, so that the server knows which service is asked.
            scope = "access/20260101/us-east-1/s3/aws4_request"
            connection.request(method, path, headers={"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, "
                                                      "SignedHeaders=host, Signature=0"})
            return connection.getresponse().status
        finally:
            connection.close()

    def end_s3(self):
        self.s3.terminate()
        self.s3.wait(30)

    def test_an_instance_is_restored_after_it_is_gone(self):
        self.story_of_an_instance()

    def test_a_volume_is_restored_after_it_is_gone(self):
        self.story()

    def test_a_bucket_that_is_gone_fails_the_backup_and_the_next_one_works(self):
        self.prepare()
        self.done("POST", VAULTS, {}, backupVaultId="safe")
        self.nfs("v1").put(b"file", b"contents")
        self.assertEqual(self.ask_s3("DELETE", "/weir/none"), 204)
        self.s3.send_signal(signal.SIGSTOP)
        body = {"sourceVolume": f"{PLACE}/volumes/v1"}
        operation = self.ok("POST", f"{VAULTS}/safe/backups", body, backupId="one")
        self.assertEqual(self.ok("GET", f"{VAULTS}/safe/backups/one")["state"], "UPLOADING")
        self.s3.send_signal(signal.SIGCONT)
        self.assertNotIn("error", self.ended(operation))
        self.end_s3()
        error = self.fails("POST", f"{VAULTS}/safe/backups", body, backupId="two")
        self.assertIn("bucket unavailable", error["message"])
        self.assertEqual(self.ok("GET", f"{VAULTS}/safe/backups/two")["state"], "ERROR")


class Without(unittest.TestCase):
    def test_a_server_without_a_bucket_says_how_to_get_one(self):
        server = Server(memory="256M")
        self.addCleanup(server.close)
        status, answer = server.ask("POST", VAULTS, {}, {"backupVaultId": "safe"})
        self.assertEqual((status, answer["error"]["status"]), (400, "FAILED_PRECONDITION"))
        self.assertIn("--backup-bucket", answer["error"]["message"])

    def test_bad_options_refuse_the_start_and_leave_no_trace(self):
        with tempfile.TemporaryDirectory() as folder:
            data = os.path.join(folder, "data")
            for options, words in (
                (["--backup-bucket", os.path.join(folder, "none")], "none"),
                (["--backup-bucket", "ftp://x"], "neither s3 nor a folder"),
                (["--backup-bucket", "s3://x"], "--backup-credentials"),
                (["--backup-bucket", "s3://x?zone=1"], "zone"),
                (["--backup-credentials", "x"], "--backup-bucket"),
            ):
                run = subprocess.run([WEIR, "serve", "--data", data, "--nfs", "127.0.0.1:0", "--api", "off", *options],
                                     capture_output=True, text=True, timeout=60)
                self.assertNotEqual(run.returncode, 0)
                self.assertIn(words, run.stderr)
                self.assertFalse(os.path.exists(data), options)


if __name__ == "__main__":
    unittest.main()
