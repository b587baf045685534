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

    def test_backup_policy(self):
        """A policy of backups, its vault, and a volume with both."""
        bucket = tempfile.mkdtemp(prefix="weir-bucket-")
        self.addCleanup(shutil.rmtree, bucket, ignore_errors=True)
        server = Server("--backup-bucket", bucket)
        self.addCleanup(server.close)
        terraform = Terraform(self, "hashicorp/google", {
            "project": "p1", "region": "us-central1", "access_token": "any-text-at-all",
            "user_project_override": False, "netapp_custom_endpoint": server.url + "/v1/"})
        pool = {**PLACE, "name": "tfpool", "service_level": "PREMIUM", "capacity_gib": "2048", "network": NETWORK}
        policy = {**PLACE, "name": "tfpolicy", "daily_backup_limit": 2, "weekly_backup_limit": 1,
                  "monthly_backup_limit": 1, "enabled": True, "description": "first"}
        volume = {**PLACE, "name": "tfbacked", "capacity_gib": "100", "share_name": "tfbacked", "protocols": ["NFSV3"],
                  "storage_pool": "${google_netapp_storage_pool.pool.name}", "deletion_policy": "FORCE",
                  "backup_config": {"backup_policies": ["${google_netapp_backup_policy.policy.id}"],
                                    "backup_vault": "${google_netapp_backup_vault.vault.id}",
                                    "scheduled_backup_enabled": True}}
        resources = {"google_netapp_storage_pool": {"pool": pool}, "google_netapp_backup_policy": {"policy": policy},
                     "google_netapp_backup_vault": {"vault": {**PLACE, "name": "tfvault", "description": "off site"}},
                     "google_netapp_volume": {"volume": volume}}
        terraform.apply(resources)
        policy.update(daily_backup_limit=4, description="second", labels={"team": "storage"})
        volume["backup_config"]["scheduled_backup_enabled"] = False
        terraform.apply(resources)
        changed = server.ask("GET", f"{PARENT}/backupPolicies/tfpolicy")[1]
        self.assertEqual((changed["dailyBackupLimit"], changed["assignedVolumeCount"]), (4, 1))
        terraform.destroy()
        self.assertEqual(server.ask("GET", f"{PARENT}/backupPolicies")[1], {})

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
