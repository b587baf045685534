"""The requests of Terraform's google provider: create, a clean second plan, changes in place, destroy.

The provider itself comes from a registry that is not reachable everywhere, so its requests are sent from here: integers
of NetApp Volumes as text and those of Filestore as numbers, networks as full paths, its own label, a token that nobody
looks at, and polling of operations that have not ended. After each step it reads the resource back; what differs from
the configuration it would want to change again. Which fields it compares, and which it takes from the server when the
configuration does not name them, is in the provider's definitions (mmv1/products/netapp, mmv1/products/filestore).
"""

import unittest

from weirtest import PLACE, Case

NETWORK = "projects/p1/global/networks/default"
LABELS = {"goog-terraform-provisioned": "true"}
TOKEN = {"Authorization": "Bearer any-text-at-all", "User-Agent": "Terraform/1.11.4 terraform-provider-google/6"}

# Optional fields that the provider does not take from the server: where the configuration has none, the server's
# answer must have none either (or the type's default), or every plan shows a change.
NEVER_INVENTED = {
    "storagePools": ["description", "activeDirectory", "kmsConfig", "ldapEnabled", "replicaZone",
                     "allowAutoTiering", "hotTierSizeGib"],
    "volumes": ["exportPolicy", "description", "snapshotDirectory", "kerberosEnabled", "restrictedActions",
                "snapshotPolicy", "backupConfig", "largeCapacity", "multipleEndpoints", "tieringPolicy",
                "throughputMibps"],
    "instances": ["description", "performanceConfig", "deletionProtectionEnabled", "kmsKeyName"],
    "snapshots": ["description"],
}


class Terraform(Case):
    def send(self, method, path, body=None, **query):
        query["alt"] = "json"
        status, answer = self.server.ask(method, path, body, query, TOKEN)
        self.assertEqual(status, 200, answer)
        return answer

    def apply(self, method, path, body=None, **query):
        operation = self.send(method, path, body, **query)
        # It would sleep for ten seconds if this had not ended.
        self.assertIs(operation["done"], True, operation)
        self.assertNotIn("error", operation)
        return operation

    def same(self, config, got, where=""):
        """Whether what was configured is what is there, lists and messages included."""
        if isinstance(config, dict):
            for key, value in config.items():
                self.assertIn(key, got, f"{where}.{key} of {got}")
                self.same(value, got[key], f"{where}.{key}")
        elif isinstance(config, list):
            self.assertEqual(len(config), len(got), where)
            for i, (a, b) in enumerate(zip(config, got)):
                self.same(a, b, f"{where}[{i}]")
        elif isinstance(config, int) and not isinstance(config, bool) and isinstance(got, str):
            self.assertEqual(str(config), got, where)
        else:
            self.assertEqual(config, got, where)

    def plan(self, name, config):
        """A plan without changes."""
        got = self.send("GET", name)
        self.same(config, got)
        for field in NEVER_INVENTED[name.split("/")[-2]]:
            if field not in config:
                self.assertIn(got.get(field), (None, False, "", 0, "0"), f"{field} was not configured")
        return got

    def create(self, collection, parameter, id, config):
        name = f"{PLACE}/{collection}/{id}"
        self.apply("POST", f"{PLACE}/{collection}", config, **{parameter: id})
        self.plan(name, config)
        return name

    def change(self, name, config, *fields):
        """The changed fields are in the mask; the body has everything that can change."""
        self.apply("PATCH", name, config, updateMask=",".join(fields))
        self.plan(name, config)

    def destroy(self, name, **query):
        self.apply("DELETE", name, **query)
        self.refused(404, "NOT_FOUND", "GET", name, headers=TOKEN)

    def test_pool_and_volumes(self):
        pool = {"serviceLevel": "PREMIUM", "capacityGib": "40960", "network": NETWORK, "qosType": "MANUAL",
                "labels": LABELS, "description": "tf"}
        pool_name = self.create("storagePools", "storagePoolId", "tfpool", pool)
        volume = {"shareName": "tfvol", "storagePool": "tfpool", "capacityGib": "1024", "protocols": ["NFSV3"],
                  "throughputMibps": 128, "labels": LABELS}
        name = self.create("volumes", "volumeId", "tfvol", volume)
        got = self.plan(name, volume)
        self.assertEqual(got["network"], NETWORK)
        self.change(name, {**volume, "throughputMibps": 256}, "throughputMibps")
        self.change(name, {**volume, "throughputMibps": 256, "capacityGib": "2048"}, "capacityGib")
        pool["capacityGib"] = "81920"
        self.change(pool_name, pool, "capacityGib")
        self.assertEqual(self.send("GET", pool_name)["availableThroughputMibps"], 5120 - 256)
        other = {"serviceLevel": "EXTREME", "capacityGib": "10240", "network": NETWORK, "qosType": "MANUAL",
                 "labels": LABELS}
        other_name = self.create("storagePools", "storagePoolId", "tfother", other)
        volume = {**volume, "throughputMibps": 256, "capacityGib": "2048", "storagePool": "tfother"}
        self.change(name, volume, "storagePool")
        snapshot = {"description": "before the upgrade", "labels": LABELS}
        snapshot_name = f"{name}/snapshots/tfsnap"
        self.apply("POST", f"{name}/snapshots", snapshot, snapshotId="tfsnap")
        self.plan(snapshot_name, snapshot)
        # deletion_policy = FORCE takes the snapshots along.
        self.refused(400, "FAILED_PRECONDITION", "DELETE", name, headers=TOKEN)
        self.destroy(name, force="true")
        self.destroy(pool_name)
        self.destroy(other_name)

    def test_a_volume_with_everything(self):
        pool = {"serviceLevel": "STANDARD", "capacityGib": "4096", "network": NETWORK, "labels": LABELS}
        pool_name = self.create("storagePools", "storagePoolId", "tfauto", pool)
        volume = {
            "shareName": "tfall", "storagePool": "tfauto", "capacityGib": "512", "protocols": ["NFSV3"],
            "unixPermissions": "0770", "snapshotDirectory": True, "restrictedActions": ["DELETE"],
            "description": "all", "labels": {**LABELS, "team": "geo"},
            "exportPolicy": {"rules": [
                {"allowedClients": "10.0.0.0/8", "accessType": "READ_ONLY", "nfsv3": True, "hasRootAccess": "false"},
                {"allowedClients": "0.0.0.0/0", "accessType": "READ_WRITE", "nfsv3": True, "hasRootAccess": "true"},
            ]},
            "snapshotPolicy": {
                "enabled": True,
                "hourlySchedule": {"snapshotsToKeep": 4, "minute": 5},
                "weeklySchedule": {"snapshotsToKeep": 2, "minute": 0, "hour": 3, "day": "Sunday"},
            },
        }
        name = self.create("volumes", "volumeId", "tfall", volume)
        volume["exportPolicy"] = {"rules": volume["exportPolicy"]["rules"][1:]}
        self.change(name, volume, "exportPolicy")
        # A block that is removed from the configuration: named by the mask, absent from the body.
        del volume["snapshotPolicy"], volume["description"]
        self.change(name, volume, "snapshotPolicy", "description")
        self.refused(400, "FAILED_PRECONDITION", "DELETE", name, headers=TOKEN)
        del volume["restrictedActions"]
        self.change(name, volume, "restrictedActions")
        self.destroy(name)
        self.destroy(pool_name)

    def test_unset_octal_digits_come_back_as_they_were_sent(self):
        self.create("storagePools", "storagePoolId", "tfmode",
                    {"serviceLevel": "STANDARD", "capacityGib": "1024", "network": NETWORK, "labels": LABELS})
        volume = {"shareName": "tfmode", "storagePool": "tfmode", "capacityGib": "100", "protocols": ["NFSV3"],
                  "unixPermissions": "755", "labels": LABELS}
        name = self.create("volumes", "volumeId", "tfmode", volume)
        volume["unixPermissions"] = "0700"
        self.change(name, volume, "unixPermissions")
        self.destroy(name)
        self.destroy(f"{PLACE}/storagePools/tfmode")

    def test_filestore_instance(self):
        instance = {
            "tier": "ZONAL", "protocol": "NFS_V3", "labels": LABELS,
            "fileShares": [{"name": "share1", "capacityGb": 1024, "nfsExportOptions": [
                {"ipRanges": ["10.0.0.0/24"], "accessMode": "READ_WRITE", "squashMode": "NO_ROOT_SQUASH"},
                {"ipRanges": ["10.10.0.0/24"], "accessMode": "READ_ONLY", "squashMode": "ROOT_SQUASH",
                 "anonUid": 123, "anonGid": 456},
            ]}],
            "networks": [{"network": "default", "modes": ["MODE_IPV4"], "connectMode": "DIRECT_PEERING"}],
        }
        name = self.create("instances", "instanceId", "tfinst", instance)
        instance["fileShares"][0]["capacityGb"] = 2048
        self.change(name, instance, "fileShares")
        instance["labels"] = {**LABELS, "team": "geo"}
        instance["description"] = "words"
        self.change(name, instance, "labels", "description")
        self.destroy(name)

    def test_custom_performance_of_a_flex_pool(self):
        pool = {"serviceLevel": "FLEX", "capacityGib": "2048", "network": NETWORK, "labels": LABELS,
                "customPerformanceEnabled": True, "totalThroughputMibps": "200", "totalIops": "8000"}
        name = self.create("storagePools", "storagePoolId", "tfflex", pool)
        pool["totalThroughputMibps"] = "400"
        self.change(name, pool, "totalThroughputMibps")
        self.destroy(name)


if __name__ == "__main__":
    unittest.main()
