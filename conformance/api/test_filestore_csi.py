"""The requests of the Filestore CSI driver's controller (2edb466b), as it sends them, and what it looks at in the replies.

It speaks v1beta1 over REST, writes tiers in lower case, calls every share `vol1`, mounts `IP:/vol1`, knows a missing
resource by `errors[].reason` alone, and polls operations. Its snapshots are backups, in the region of the zone.
"""

import shutil
import tempfile
import unittest

from weirtest import Case

ZONE = "projects/p1/locations/us-central1-b"
REGION = "projects/p1/locations/us-central1"
LABELS = {"storage_gke_io_created-by": "filestore_csi_storage_gke_io", "kubernetes_io_created-for_pvc_name": "data"}
AGENT = {"User-Agent": "Google Cloud Filestore CSI Driver/v1 (linux amd64)", "X-Goog-Api-Client": "gl-go/1.26.8 gdcl/0.200.0"}


def instance(tier, gb, **share):
    """The body of CreateInstance and of ResizeInstance."""
    return {"tier": tier, "fileShares": [{"name": "vol1", "capacityGb": str(gb), **share}],
            "networks": [{"network": "default", "modes": ["MODE_IPV4"], "connectMode": "DIRECT_PEERING"}]}


class Driver(Case):
    @classmethod
    def setUpClass(cls):
        bucket = tempfile.mkdtemp(prefix="weir-bucket-")
        cls.addClassCleanup(shutil.rmtree, bucket, ignore_errors=True)
        cls.arguments = ("--instance-addresses", "127.9.1.0/28", "--backup-bucket", bucket)
        super().setUpClass()

    def send(self, method, name, body=None, **query):
        query = {"alt": "json", "prettyPrint": "false", **query}
        return self.server.ask(method, f"/v1beta1/{name}", body, query, AGENT)

    def get(self, name):
        status, answer = self.send("GET", name)
        self.assertEqual(status, 200, answer)
        return answer

    def missing(self, name):
        status, answer = self.send("GET", name)
        self.assertEqual(status, 404, answer)
        self.assertIn("notFound", [one["reason"] for one in answer["error"]["errors"]])

    def wait(self, method, name, body=None, **query):
        """waitForOp: done, and without an error."""
        status, operation = self.send(method, name, body, **query)
        self.assertEqual(status, 200, operation)
        operation = self.get(operation["name"])
        self.assertIs(operation["done"], True, operation)
        self.assertNotIn("error", operation)
        return operation

    def create(self, name, tier, gb, **share):
        at = f"{ZONE}/instances/{name}"
        self.missing(at)
        self.wait("POST", f"{ZONE}/instances", {**instance(tier, gb, **share), "labels": LABELS}, instanceId=name)
        made = self.get(at)
        # CompareInstances, and what the node is told.
        self.assertEqual(made["tier"].lower(), tier)
        self.assertEqual((made["fileShares"][0]["name"], int(made["fileShares"][0]["capacityGb"])), ("vol1", gb))
        self.assertEqual((made["networks"][0]["network"], made["labels"], made["state"]), ("default", LABELS, "READY"))
        return made["networks"][0]["ipAddresses"][0]

    def test_volumes_and_their_snapshots(self):
        addresses = {self.create(f"pvc-{tier}", tier, 1024) for tier in ("standard", "zonal", "enterprise")}
        self.assertEqual(len(addresses), 3, "each has an address of its own, so that IP:/vol1 is its own")
        # ControllerExpandVolume.
        self.wait("PATCH", f"{ZONE}/instances/pvc-zonal", instance("zonal", 2048), updateMask="file_shares")
        self.assertEqual(int(self.get(f"{ZONE}/instances/pvc-zonal")["fileShares"][0]["capacityGb"]), 2048)
        # CreateSnapshot, and a volume from it.
        self.missing(f"{REGION}/backups/snapshot-1")
        source = f"{ZONE}/instances/pvc-standard"
        self.wait("POST", f"{REGION}/backups", {"sourceInstance": source, "sourceFileShare": "vol1"}, backupId="snapshot-1")
        backup = self.get(f"{REGION}/backups/snapshot-1")
        self.assertEqual((backup["state"], backup["sourceInstance"]), ("READY", source))
        self.assertTrue(backup["createTime"])
        restored = self.create("pvc-restored", "standard", 1024, sourceBackup=f"{REGION}/backups/snapshot-1")
        self.assertNotIn(restored, addresses)
        # ListInstances, HasOperations.
        listed = self.get("projects/p1/locations/-/instances")["instances"]
        self.assertEqual(len(listed), 4)
        for operation in self.get(f"{ZONE}/operations")["operations"]:
            self.assertTrue({"target", "verb"} <= set(operation["metadata"]), operation)
        self.wait("DELETE", f"{REGION}/backups/snapshot-1")
        for one in listed:
            self.wait("DELETE", one["name"])
            self.missing(one["name"])


if __name__ == "__main__":
    unittest.main()
