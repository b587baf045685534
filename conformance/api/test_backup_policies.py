"""Backup policies and the scheduled backups of volumes: set by Google's clients, gcloud, plain requests and `weir`."""

import json
import re
import shutil
import subprocess
import tempfile
import unittest

import grpc
from google.cloud import netapp_v1 as n

from nfs3 import Nfs
from overgrpc import Asynchronous, synchronous
from weirtest import PLACE, WEIR, Case, Server, gcloud_environment

POOLS, VOLUMES, VAULTS, POLICIES = (f"{PLACE}/{c}" for c in ("storagePools", "volumes", "backupVaults", "backupPolicies"))


class Served(Case):
    """A server with a bucket, a pool, and a vault."""

    @classmethod
    def setUpClass(cls):
        cls.bucket = tempfile.mkdtemp(prefix="weir-bucket-")
        cls.addClassCleanup(shutil.rmtree, cls.bucket, ignore_errors=True)
        cls.server = Server("--backup-bucket", cls.bucket)
        cls.addClassCleanup(cls.server.close)
        for path, body, query in ((POOLS, {"serviceLevel": "FLEX", "capacityGib": "2048"}, {"storagePoolId": "pool"}),
                                  (VAULTS, {}, {"backupVaultId": "safe"})):
            status, answer = cls.server.ask("POST", path, body, query)
            assert status == 200, answer

    def volume(self, name, **fields):
        made = self.done("POST", VOLUMES, {"storagePool": "pool", "shareName": name, "capacityGib": "100",
                                           "protocols": ["NFSV3"], "unixPermissions": "0777",
                                           "exportPolicy": {"rules": [{"allowedClients": "127.0.0.1", "nfsv3": True,
                                                                       "accessType": "READ_WRITE", "hasRootAccess": "true"}]},
                                           **fields}, volumeId=name)
        self.addCleanup(self.server.ask, "DELETE", made["name"])
        return made

    def policy(self, name, **fields):
        made = self.done("POST", POLICIES, {"dailyBackupLimit": 7, **fields}, backupPolicyId=name)
        self.addCleanup(self.server.ask, "DELETE", made["name"])
        return made

    def weir(self, *words, code=0):
        ran = subprocess.run([WEIR, *words, f"--server={self.server.url}", "--project=p1", "--location=us-central1"],
                             capture_output=True, text=True, timeout=60)
        self.assertEqual(ran.returncode, code, ran.stdout + ran.stderr)
        return ran.stdout + ran.stderr


class Policies(Served):
    def test_policies_are_made_changed_listed_and_deleted(self):
        made = self.policy("often", weeklyBackupLimit=4, description="d", labels={"a": "b"})
        want = {"name": f"{POLICIES}/often", "dailyBackupLimit": 7, "weeklyBackupLimit": 4, "enabled": True,
                "description": "d", "labels": {"a": "b"}, "state": "READY"}
        self.assertEqual({**want, **made}, made)
        changed = self.done("PATCH", f"{POLICIES}/often", {"monthlyBackupLimit": 12, "enabled": False},
                            updateMask="monthlyBackupLimit,enabled")
        self.assertEqual((changed["dailyBackupLimit"], changed["monthlyBackupLimit"], changed.get("enabled", False)),
                         (7, 12, False))
        self.policy("also", dailyBackupLimit=2)
        listed = self.ok("GET", POLICIES)["backupPolicies"]
        self.assertEqual([p["name"].rsplit("/")[-1] for p in listed], ["also", "often"])
        for body, words in (({}, "dailyBackupLimit"), ({"dailyBackupLimit": 1}, "1 is less than 2"),
                            ({"dailyBackupLimit": 2, "weeklyBackupLimit": 5000}, "weeklyBackupLimit"),
                            ({"dailyBackupLimit": -1}, "dailyBackupLimit")):
            error = self.refused(400, "INVALID_ARGUMENT", "POST", POLICIES, body, backupPolicyId="bad")
            self.assertIn(words, error["message"])
        self.refused(409, "ALREADY_EXISTS", "POST", POLICIES, {"dailyBackupLimit": 2}, backupPolicyId="also")
        self.ok("DELETE", f"{POLICIES}/often")
        self.refused(404, "NOT_FOUND", "GET", f"{POLICIES}/often")

    def test_a_volume_has_a_policy_and_a_vault(self):
        self.policy("daily")
        self.policy("other")
        config = {"backupPolicies": [f"{POLICIES}/daily"], "backupVault": f"{VAULTS}/safe", "scheduledBackupEnabled": True}
        made = self.volume("v", backupConfig=config)
        self.assertEqual({k: v for k, v in made["backupConfig"].items() if k != "backupChainBytes"}, config)
        self.assertEqual(self.ok("GET", f"{POLICIES}/daily")["assignedVolumeCount"], 1)
        self.assertIn("volume v has", self.refused(400, "FAILED_PRECONDITION", "DELETE", f"{POLICIES}/daily")["message"])
        self.assertIn("volume v", self.refused(400, "FAILED_PRECONDITION", "DELETE", f"{VAULTS}/safe")["message"])
        backup = self.done("POST", f"{VAULTS}/safe/backups", {"sourceVolume": f"{VOLUMES}/v"}, backupId="one")
        volume = self.ok("GET", f"{VOLUMES}/v")
        self.assertEqual(volume["backupConfig"]["backupChainBytes"], backup["chainStorageBytes"])
        self.ok("DELETE", f"{VAULTS}/safe/backups/one")
        # A mask may name a part.
        self.done("PATCH", f"{VOLUMES}/v", {"backupConfig": {"scheduledBackupEnabled": False}},
                  updateMask="backupConfig.scheduledBackupEnabled")
        volume = self.ok("GET", f"{VOLUMES}/v")
        self.assertEqual((volume["backupConfig"].get("scheduledBackupEnabled", False), volume["backupConfig"]["backupVault"]),
                         (False, f"{VAULTS}/safe"))
        for wrong, field in (({"backupPolicies": ["daily"]}, "backupPolicies"),
                             ({"backupPolicies": [f"{POLICIES}/daily"]}, "backupVault"),
                             ({"backupPolicies": [f"{POLICIES}/daily", f"{POLICIES}/other"],
                               "backupVault": f"{VAULTS}/safe"}, "backupPolicies"),
                             ({"backupVault": "safe"}, "backupVault")):
            error = self.refused(400, "INVALID_ARGUMENT", "PATCH", f"{VOLUMES}/v", {"backupConfig": wrong},
                                 updateMask="backupConfig")
            self.assertIn(field, json.dumps(error))
        self.refused(404, "NOT_FOUND", "PATCH", f"{VOLUMES}/v", {"backupConfig": {"backupVault": f"{VAULTS}/none"}},
                     updateMask="backupConfig")
        self.done("PATCH", f"{VOLUMES}/v", {}, updateMask="backupConfig")
        self.assertNotIn("backupConfig", self.ok("GET", f"{VOLUMES}/v"))

    def test_over_grpc(self):
        channel = grpc.insecure_channel(f"127.0.0.1:{self.server.port}")
        self.addCleanup(channel.close)
        for name, client in (("sync", synchronous(n.NetAppClient, channel)),
                             ("async", Asynchronous(n.NetAppAsyncClient, f"127.0.0.1:{self.server.port}"))):
            if name == "async":
                self.addCleanup(client.close)
            policy = n.BackupPolicy(daily_backup_limit=3, monthly_backup_limit=2, labels={"a": "b"})
            made = client.create_backup_policy(parent=PLACE, backup_policy_id=name, backup_policy=policy).result(timeout=30)
            self.assertEqual((made.daily_backup_limit, made.monthly_backup_limit, made.state, made.enabled),
                             (3, 2, n.BackupPolicy.State.READY, True))
            self.assertEqual(client.get_backup_policy(name=made.name), made)
            made.daily_backup_limit = 4
            changed = client.update_backup_policy(backup_policy=made, update_mask={"paths": ["daily_backup_limit"]})
            self.assertEqual(changed.result(timeout=30).daily_backup_limit, 4)
            self.assertIn(made.name, [p.name for p in client.list_backup_policies(parent=PLACE)])
            client.delete_backup_policy(name=made.name).result(timeout=30)
        volume = self.volume("rpc")["name"]
        backup = self.done("POST", f"{VAULTS}/safe/backups", {"sourceVolume": volume}, backupId="rpc")["name"]
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        nfs = Nfs(port, "/rpc")
        self.addCleanup(nfs.close)
        nfs.put(b"file", b"contents")
        self.ok("DELETE", backup)
        self.done("POST", f"{VAULTS}/safe/backups", {"sourceVolume": volume}, backupId="rpc")
        back = nfs.mkdir(b"back")
        request = n.RestoreBackupFilesRequest(name=volume, backup=backup, file_list=["/file"],
                                              restore_destination_path="/back")
        response = synchronous(n.NetAppClient, channel).restore_backup_files(request).result(timeout=30)
        self.assertIsInstance(response, n.RestoreBackupFilesResponse)
        self.assertEqual(nfs.read(nfs.lookup(b"file", of=back)), b"contents")
        self.ok("DELETE", backup)

    def test_the_command_line(self):
        self.weir("backup-policies", "create", "cli", "--daily-backup-limit=5", "--weekly-backup-limit=2")
        self.weir("backup-policies", "update", "cli", "--monthly-backup-limit=3")
        self.assertRegex(self.weir("backup-policies", "list"), r"cli +us-central1 +5 +2 +3 +True")
        self.weir("backup-vaults", "create", "clivault", "--description=off site")
        self.assertRegex(self.weir("backup-vaults", "list"), r"clivault +us-central1 +READY")
        self.volume("cli")
        self.weir("volumes", "update", "cli", "--backup-config=backup-policies=cli,backup-vault=clivault")
        self.weir("volumes", "update", "cli", "--backup-config=enable-scheduled-backups=false")
        self.assertIn("backupVaults/clivault", self.weir("volumes", "describe", "cli"))
        self.assertIn("cli", self.weir("backup-policies", "delete", "cli", "--quiet", code=1))
        self.weir("backups", "create", "one", "--backup-vault=clivault", "--source-volume=cli", "--description=first")
        self.assertRegex(self.weir("backups", "list", "--backup-vault=clivault"), r"one +READY +cli +MANUAL")
        self.weir("backups", "update", "one", "--backup-vault=clivault", "--description=oldest")
        self.assertIn("oldest", self.weir("backup-vaults", "backups", "describe", "one", "--backup-vault=clivault"))
        self.weir("backups", "restore", "one", "--backup-vault=clivault", "--volume=again", "--storage-pool=pool")
        restored = self.ok("GET", f"{VOLUMES}/again")
        self.addCleanup(self.server.ask, "DELETE", restored["name"])
        self.assertEqual((restored["state"], restored["restoreParameters"]["sourceBackup"]),
                         ("READY", f"{VAULTS}/clivault/backups/one"))
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        nfs = Nfs(port, "/cli")
        self.addCleanup(nfs.close)
        nfs.put(b"letter", b"cheese")
        self.weir("backups", "create", "two", "--backup-vault=clivault", "--source-volume=cli")
        back = nfs.mkdir(b"back")
        words = ("volumes", "restore-backup-files", "cli", f"--backup={VAULTS}/clivault/backups/two", "--file-list=/letter")
        self.weir(*words, "--restore-destination-path=/back")
        self.assertEqual(nfs.read(nfs.lookup(b"letter", of=back)), b"cheese")
        nfs.put(b"letter", b"other")
        self.assertIn("/letter exists", self.weir(*words, "--restore-destination-path=/", code=1))
        self.weir("backups", "delete", "two", "--backup-vault=clivault", "--quiet")
        self.weir("backups", "delete", "one", "--backup-vault=clivault", "--quiet")
        self.weir("volumes", "update", "cli", "--backup-config=backup-policies=,backup-vault=")
        self.weir("backup-policies", "delete", "cli", "--quiet")
        self.weir("backup-vaults", "delete", "clivault", "--quiet")
        self.assertIn("--backup-vault", self.weir("backups", "list", code=2))


@unittest.skipUnless(shutil.which("gcloud"), "gcloud is not installed")
class Gcloud(Served):
    """gcloud's own commands."""

    def gcloud(self, *words):
        ran = subprocess.run(["gcloud", "netapp", *words, "--location=us-central1"], env=gcloud_environment(type(self)),
                             capture_output=True, text=True, timeout=120)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout

    def test_gcloud(self):
        self.gcloud("backup-policies", "create", "g", "--daily-backup-limit=3", "--weekly-backup-limit=2",
                    "--monthly-backup-limit=1", "--enabled=true")
        self.gcloud("backup-policies", "update", "g", "--daily-backup-limit=4")
        policy = json.loads(self.gcloud("backup-policies", "describe", "g", "--format=json"))
        self.assertEqual((policy["dailyBackupLimit"], policy["weeklyBackupLimit"], policy["enabled"]), (4, 2, True))
        self.volume("g")
        self.gcloud("volumes", "update", "g", f"--backup-config=backup-policies={POLICIES}/g,backup-vault={VAULTS}/safe,"
                    "enable-scheduled-backups=true")
        config = self.ok("GET", f"{VOLUMES}/g")["backupConfig"]
        self.assertEqual((config["backupPolicies"], config["scheduledBackupEnabled"]), ([f"{POLICIES}/g"], True))
        self.done("PATCH", f"{VOLUMES}/g", {}, updateMask="backupConfig")
        self.gcloud("backup-policies", "delete", "g", "--quiet")
        self.assertEqual(json.loads(self.gcloud("backup-policies", "list", "--format=json")), [])


if __name__ == "__main__":
    unittest.main()
