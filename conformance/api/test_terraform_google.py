"""Terraform's provider `google` itself: NetApp Volumes and Filestore, made, changed in place and destroyed."""

import shutil
import tempfile
import unittest

from terraform import Terraform, missing
from weirtest import PLACE as PARENT
from weirtest import Case, Server

PLACE = {"location": "us-central1", "project": "p1"}
NETWORK = "projects/p1/global/networks/default"


@unittest.skipIf(missing("google"), missing("google"))
class Google(Case):
    def setUp(self):
        self.terraform = Terraform(self, "hashicorp/google", {
            "project": "p1", "region": "us-central1", "access_token": "any-text-at-all",
            "user_project_override": False,
            "netapp_custom_endpoint": self.server.url + "/v1/",
            "filestore_custom_endpoint": self.server.url + "/v1/"})

    def test_netapp_volumes(self):
        pool = {**PLACE, "name": "tfpool", "service_level": "PREMIUM", "capacity_gib": "2048", "network": NETWORK}
        volume = {**PLACE, "name": "tfvolume", "capacity_gib": "100", "share_name": "tfshare",
                  "storage_pool": "${google_netapp_storage_pool.pool.name}", "protocols": ["NFSV3", "NFSV4"],
                  "deletion_policy": "FORCE", "description": "first",
                  "export_policy": {"rules": [{"access_type": "READ_WRITE", "allowed_clients": "10.0.0.0/8",
                                               "has_root_access": "true", "nfsv3": True, "nfsv4": True}]},
                  "snapshot_policy": {"enabled": True, "daily_schedule": {"snapshots_to_keep": 3, "hour": 4, "minute": 5}}}
        snapshot = {**PLACE, "name": "tfsnapshot", "volume_name": "${google_netapp_volume.volume.name}"}
        resources = {"google_netapp_storage_pool": {"pool": pool}, "google_netapp_volume": {"volume": volume},
                     "google_netapp_volume_snapshot": {"snapshot": snapshot}}
        self.terraform.apply(resources)
        self.assertEqual(self.ok("GET", f"{PARENT}/volumes/tfvolume")["capacityGib"], "100")
        pool.update(capacity_gib="3072", description="grown")
        volume.update(capacity_gib="200", description="second", labels={"team": "storage"})
        volume["snapshot_policy"]["daily_schedule"]["snapshots_to_keep"] = 5
        snapshot.update(description="before the change")
        self.terraform.apply(resources)
        changed = self.ok("GET", f"{PARENT}/volumes/tfvolume")
        self.assertEqual((changed["capacityGib"], changed["description"]), ("200", "second"))
        self.terraform.destroy()
        self.assertEqual(self.ok("GET", f"{PARENT}/storagePools").get("storagePools", []), [])

    def test_throughput(self):
        """A pool that shares its throughput, and one whose volumes have their own."""
        shared = {**PLACE, "name": "tfshared", "service_level": "FLEX", "capacity_gib": "2048", "network": NETWORK,
                  "custom_performance_enabled": True, "total_throughput_mibps": "128"}
        pool = {**PLACE, "name": "tfmanual", "service_level": "EXTREME", "capacity_gib": "2048", "network": NETWORK,
                "qos_type": "MANUAL"}
        volume = {**PLACE, "name": "tffast", "capacity_gib": "100", "share_name": "tffast", "protocols": ["NFSV3"],
                  "storage_pool": "${google_netapp_storage_pool.pool.name}", "throughput_mibps": 64,
                  "deletion_policy": "FORCE"}
        resources = {"google_netapp_storage_pool": {"shared": shared, "pool": pool},
                     "google_netapp_volume": {"volume": volume}}
        self.terraform.apply(resources)
        volume["throughput_mibps"] = 100
        shared["total_throughput_mibps"] = "256"
        self.terraform.apply(resources)
        self.assertEqual(self.ok("GET", f"{PARENT}/volumes/tffast")["throughputMibps"], 100)
        self.assertEqual(self.ok("GET", f"{PARENT}/storagePools/tfshared")["totalThroughputMibps"], "256")
        self.terraform.destroy()

    def backed_up(self):
        """A server with a bucket, and Terraform for it."""
        bucket = tempfile.mkdtemp(prefix="weir-bucket-")
        self.addCleanup(shutil.rmtree, bucket, ignore_errors=True)
        server = Server("--backup-bucket", bucket)
        self.addCleanup(server.close)
        return server, Terraform(self, "hashicorp/google", {
            "project": "p1", "region": "us-central1", "access_token": "any-text-at-all", "user_project_override": False,
            "netapp_custom_endpoint": server.url + "/v1/", "filestore_custom_endpoint": server.url + "/v1/"})

    def test_backups(self):
        """A vault, a policy of backups, a volume with both, a backup of it, and a volume out of the backup."""
        server, terraform = self.backed_up()
        pool = {**PLACE, "name": "tfpool", "service_level": "PREMIUM", "capacity_gib": "2048", "network": NETWORK}
        policy = {**PLACE, "name": "tfpolicy", "daily_backup_limit": 2, "weekly_backup_limit": 1,
                  "monthly_backup_limit": 1, "enabled": True, "description": "first"}
        vault = {**PLACE, "name": "tfvault", "description": "off site"}
        plain = {**PLACE, "capacity_gib": "100", "protocols": ["NFSV3"], "deletion_policy": "FORCE",
                 "storage_pool": "${google_netapp_storage_pool.pool.name}"}
        volume = {**plain, "name": "tfbacked", "share_name": "tfbacked",
                  "backup_config": {"backup_policies": ["${google_netapp_backup_policy.policy.id}"],
                                    "backup_vault": "${google_netapp_backup_vault.vault.id}",
                                    "scheduled_backup_enabled": True}}
        snapshot = {**PLACE, "name": "tfsnapshot", "volume_name": "${google_netapp_volume.volume.name}"}
        backup = {**PLACE, "name": "tfbackup", "vault_name": "${google_netapp_backup_vault.vault.name}",
                  "source_volume": "${google_netapp_volume.volume.id}", "description": "first"}
        older = {**backup, "name": "tfolder", "source_snapshot": "${google_netapp_volume_snapshot.snapshot.id}"}
        restored = {**plain, "name": "tfrestored", "share_name": "tfrestored",
                    "restore_parameters": {"source_backup": "${google_netapp_backup.backup.id}"}}
        resources = {"google_netapp_storage_pool": {"pool": pool}, "google_netapp_backup_policy": {"policy": policy},
                     "google_netapp_backup_vault": {"vault": vault},
                     "google_netapp_volume": {"volume": volume, "restored": restored},
                     "google_netapp_volume_snapshot": {"snapshot": snapshot},
                     "google_netapp_backup": {"backup": backup, "older": older}}
        terraform.apply(resources)
        policy.update(daily_backup_limit=4, description="second", labels={"team": "storage"})
        vault.update(description="far off site", labels={"team": "storage"})
        backup.update(description="second", labels={"team": "storage"})
        volume["backup_config"]["scheduled_backup_enabled"] = False
        terraform.apply(resources)
        changed = server.ask("GET", f"{PARENT}/backupPolicies/tfpolicy")[1]
        self.assertEqual((changed["dailyBackupLimit"], changed["assignedVolumeCount"]), (4, 1))
        changed = server.ask("GET", f"{PARENT}/backupVaults/tfvault/backups/tfbackup")[1]
        self.assertEqual((changed["state"], changed["description"]), ("READY", "second"))
        terraform.destroy()
        for collection in ("backupPolicies", "backupVaults", "volumes", "storagePools"):
            self.assertEqual(server.ask("GET", f"{PARENT}/{collection}")[1], {}, collection)

    def test_filestore_backups(self):
        """A backup of an instance, and an instance out of it. Instances are in zones, backups in regions."""
        server, terraform = self.backed_up()
        share = {"capacity_gb": 1024, "name": "share1"}
        instance = {"name": "tfsource", "location": "us-central1-b", "project": "p1", "tier": "BASIC_HDD",
                    "file_shares": share, "networks": {"network": "default", "modes": ["MODE_IPV4"]}}
        backup = {"name": "tfbackup", "location": "us-central1", "project": "p1", "source_file_share": "share1",
                  "source_instance": "${google_filestore_instance.instance.id}", "description": "first"}
        restored = {**instance, "name": "tfrestored",
                    "file_shares": {**share, "name": "share2", "source_backup": "${google_filestore_backup.backup.id}"}}
        resources = {"google_filestore_instance": {"instance": instance, "restored": restored},
                     "google_filestore_backup": {"backup": backup}}
        terraform.apply(resources)
        backup.update(description="second", labels={"team": "storage"})
        terraform.apply(resources)
        changed = server.ask("GET", f"{PARENT}/backups/tfbackup")[1]
        self.assertEqual((changed["state"], changed["description"]), ("READY", "second"))
        terraform.destroy()
        self.assertEqual(server.ask("GET", f"{PARENT}/backups")[1], {})

    def test_quota_rules(self):
        pool = {**PLACE, "name": "tfpool", "service_level": "PREMIUM", "capacity_gib": "2048", "network": NETWORK}
        volume = {**PLACE, "name": "tfquotas", "capacity_gib": "100", "share_name": "tfquotas", "protocols": ["NFSV3"],
                  "storage_pool": "${google_netapp_storage_pool.pool.name}", "deletion_policy": "FORCE"}
        rule = {**PLACE, "volume_name": "${google_netapp_volume.volume.name}", "description": "first"}
        user = {**rule, "name": "tfuser", "type": "INDIVIDUAL_USER_QUOTA", "target": "1001", "disk_limit_mib": 100}
        groups = {**rule, "name": "tfgroups", "type": "DEFAULT_GROUP_QUOTA", "disk_limit_mib": 500}
        resources = {"google_netapp_storage_pool": {"pool": pool}, "google_netapp_volume": {"volume": volume},
                     "google_netapp_volume_quota_rule": {"user": user, "groups": groups}}
        self.terraform.apply(resources)
        user.update(disk_limit_mib=200, description="second", labels={"team": "storage"})
        self.terraform.apply(resources)
        changed = self.ok("GET", f"{PARENT}/volumes/tfquotas/quotaRules/tfuser")
        self.assertEqual((changed["diskLimitMib"], changed["description"]), (200, "second"))
        self.terraform.destroy()
        self.assertEqual(self.ok("GET", f"{PARENT}/volumes").get("volumes", []), [])

    def test_what_is_not_offered_is_refused_by_name(self):
        """With what to do instead."""
        key = {**PLACE, "name": "tfkey", "crypto_key_name": "projects/p1/locations/us/keyRings/r/cryptoKeys/k"}
        group = {**PLACE, "name": "tfgroup", "type": "ISCSI_INITIATOR", "os_type": "LINUX", "hosts": ["iqn.1993-08.org.debian:01:a"]}
        for kind, resource, instead in (
                ("google_netapp_kmsconfig", key, "Encrypt the disk below the data folder (LUKS)"),
                ("google_netapp_host_group", group, "Name the clients in the volume's export policy")):
            self.terraform.configure({kind: {"one": resource}})
            said = self.terraform.run("apply", "-auto-approve", "-input=false", expect=1)
            self.assertIn(instead, " ".join(said.replace("│", " ").split()), kind)

    def test_replication(self):
        pool = {**PLACE, "service_level": "PREMIUM", "capacity_gib": "2048", "network": NETWORK}
        replication = {**PLACE, "name": "tfreplication", "volume_name": "${google_netapp_volume.source.name}",
                       "replication_schedule": "EVERY_10_MINUTES", "description": "first", "delete_destination_volume": True,
                       "force_stopping": True, "wait_for_mirror": True, "destination_volume_parameters": {
                           "volume_id": "tfcopy", "share_name": "tfcopy",
                           "storage_pool": "${google_netapp_storage_pool.second.id}"}}
        resources = {
            "google_netapp_storage_pool": {"first": {**pool, "name": "tffirst"}, "second": {**pool, "name": "tfsecond"}},
            "google_netapp_volume": {"source": {
                **PLACE, "name": "tfsource", "capacity_gib": "100", "share_name": "tfsource", "protocols": ["NFSV3"],
                "storage_pool": "${google_netapp_storage_pool.first.name}", "deletion_policy": "FORCE"}},
            "google_netapp_volume_replication": {"replication": replication}}
        self.terraform.apply(resources)
        self.assertEqual(self.mirror_state(), "MIRRORED")
        replication.update(replication_schedule="HOURLY", description="second")
        self.terraform.apply(resources)
        replication["replication_enabled"] = False
        self.terraform.apply(resources)
        self.assertEqual(self.mirror_state(), "STOPPED")
        replication["replication_enabled"] = True
        self.terraform.apply(resources)
        self.assertEqual(self.mirror_state(), "MIRRORED")
        self.terraform.destroy()
        self.assertEqual(self.ok("GET", f"{PARENT}/volumes").get("volumes", []), [])

    def mirror_state(self):
        return self.ok("GET", f"{PARENT}/volumes/tfsource/replications/tfreplication")["mirrorState"]

    def test_filestore(self):
        instance = {"name": "tffiles", "location": "us-central1-b", "project": "p1", "tier": "BASIC_HDD",
                    "file_shares": {"capacity_gb": 1024, "name": "share1", "nfs_export_options": [
                        {"ip_ranges": ["10.0.0.0/24"], "access_mode": "READ_WRITE", "squash_mode": "NO_ROOT_SQUASH"},
                        {"ip_ranges": ["10.10.0.0/24"], "access_mode": "READ_ONLY", "squash_mode": "ROOT_SQUASH",
                         "anon_uid": 123, "anon_gid": 456}]},
                    "networks": {"network": "default", "modes": ["MODE_IPV4"]}}
        zonal = {"name": "tfzonal", "location": "us-central1", "project": "p1", "tier": "REGIONAL", "protocol": "NFS_V4_1",
                 "file_shares": {"capacity_gb": 1024, "name": "share2"}, "deletion_protection_enabled": True,
                 "performance_config": {"fixed_iops": {"max_iops": 17000}},
                 "networks": {"network": "default", "modes": ["MODE_IPV4"]}}
        snapshot = {"name": "tfsnap", "instance": "${google_filestore_instance.zonal.name}", "location": "us-central1",
                    "project": "p1"}
        resources = {"google_filestore_instance": {"instance": instance, "zonal": zonal},
                     "google_filestore_snapshot": {"snapshot": snapshot}}
        self.terraform.apply(resources)
        instance.update(description="grown", labels={"team": "storage"})
        instance["file_shares"]["capacity_gb"] = 2048
        zonal["deletion_protection_enabled"] = False
        snapshot["description"] = "first"
        self.terraform.apply(resources)
        self.terraform.destroy()
