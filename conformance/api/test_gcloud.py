"""gcloud: the requests that a current one sends for the documents' commands, and gcloud itself where it is installed."""

import json
import re
import shutil
import subprocess
import unittest

from weirtest import PLACE, Case, gcloud_environment


class Requests(Case):
    """As recorded from gcloud 560: the whole resource is sent back with a narrow mask, `name` is in the bodies."""

    def test_the_manual_qos_documents_commands(self):
        pools, volumes = f"{PLACE}/storagePools", f"{PLACE}/volumes"
        pool = self.done("POST", pools, {
            "name": f"{pools}/mq", "capacityGib": "40960", "network": "default", "qosType": "MANUAL",
            "serviceLevel": "PREMIUM", "labels": {}, "type": "FILE"}, storagePoolId="mq", alt="json")
        self.assertEqual((pool["qosType"], pool["network"], pool["capacityGib"]), ("MANUAL", "default", "40960"))
        # storage-pools update --qos-type=manual: reads it, sends it back, names one field.
        self.done("POST", pools, {"capacityGib": "2048", "network": "default", "serviceLevel": "STANDARD"},
                  storagePoolId="auto")
        body = self.ok("GET", f"{pools}/auto", alt="json")
        self.assertEqual(body["qosType"], "AUTO")
        body.update(qosType="MANUAL", capacityGib="1")
        changed = self.done("PATCH", f"{pools}/auto", body, updateMask="qosType", alt="json")
        self.assertEqual((changed["qosType"], changed["capacityGib"]), ("MANUAL", "2048"))
        # volumes create --throughput-mibps=128
        volume = self.done("POST", volumes, {
            "name": f"{volumes}/gv", "storagePool": "mq", "capacityGib": "1024", "protocols": ["NFSV3"],
            "shareName": "gv", "throughputMibps": 128.0, "snapshotDirectory": True, "labels": {}},
            volumeId="gv", alt="json")
        self.assertEqual((volume["throughputMibps"], volume["snapshotDirectory"]), (128, True))
        body = self.ok("GET", f"{volumes}/gv", alt="json")
        body["throughputMibps"] = 256.0
        self.assertEqual(self.done("PATCH", f"{volumes}/gv", body, updateMask="throughputMibps")["throughputMibps"], 256)
        # volumes update --storage-pool=auto --capacity=512
        body = self.ok("GET", f"{volumes}/gv", alt="json")
        body.update(storagePool="auto", capacityGib="512", throughputMibps=16.0)
        moved = self.done("PATCH", f"{volumes}/gv", body, updateMask="capacityGib,storagePool,throughputMibps")
        self.assertEqual((moved["storagePool"], moved["capacityGib"]), ("auto", "512"))
        snapshot = self.done("POST", f"{volumes}/gv/snapshots", {"labels": {"snapmirror-label": "daily"}},
                             snapshotId="s1")
        self.assertEqual(snapshot["labels"], {"snapmirror-label": "daily"})
        # Lists come twice, the first time without a page size.
        for query in ({}, {"pageSize": "100"}):
            self.assertEqual([v["name"] for v in self.ok("GET", volumes, **query)["volumes"]], [f"{volumes}/gv"])
        operation = self.ok("DELETE", f"{volumes}/gv", force="True", alt="json")
        self.assertIs(operation["done"], True)
        for pool in ("mq", "auto"):
            self.ok("DELETE", f"{pools}/{pool}", alt="json")

    def test_filestore_commands(self):
        instances = f"{PLACE}/instances"
        made = self.done("POST", instances, {
            "tier": "BASIC_HDD", "fileShares": [{"name": "vol", "capacityGb": "1024"}],
            "networks": [{"network": "default", "modes": ["MODE_IPV4"]}]}, instanceId="gi", alt="json")
        self.assertEqual(made["fileShares"], [{"name": "vol", "capacityGb": "1024"}])
        listed = self.ok("GET", "projects/p1/locations/-/instances", alt="json", pageSize="100")
        self.assertEqual([i["name"] for i in listed["instances"]], [f"{instances}/gi"])
        body = self.ok("GET", f"{instances}/gi")
        body["fileShares"][0]["capacityGb"] = "2048"
        changed = self.done("PATCH", f"{instances}/gi", body, updateMask="fileShares")
        self.assertEqual(changed["fileShares"][0]["capacityGb"], "2048")
        # Its etag is of before the change by now.
        error = self.refused(409, "ABORTED", "PATCH", f"{instances}/gi", body, updateMask="fileShares")
        self.assertIn("read it again", error["message"])
        self.ok("DELETE", f"{instances}/gi", alt="json")


@unittest.skipUnless(shutil.which("gcloud"), "gcloud is not installed")
class Gcloud(Case):
    """The commands themselves. What an older gcloud does not know is skipped by name."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.environment = gcloud_environment(cls)
        told = subprocess.run(["gcloud", "version", "--format=json"], env=cls.environment, capture_output=True,
                              text=True, timeout=120)
        cls.version = int(json.loads(told.stdout)["Google Cloud SDK"].split(".")[0])

    def gcloud(self, *words, fails=False):
        ran = subprocess.run(["gcloud", *words], env=self.environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(ran.returncode != 0, fails, f"gcloud {' '.join(words)}\n{ran.stdout}\n{ran.stderr}")
        return ran.stderr if fails else ran.stdout

    def describe(self, *words):
        return json.loads(self.gcloud(*words, "--location=us-central1", "--format=json"))

    def test_pools_volumes_and_snapshots(self):
        place = "--location=us-central1"
        self.gcloud("netapp", "storage-pools", "create", "gp", place, "--capacity=4096", "--service-level=premium",
                    "--network=name=default")
        pool = self.describe("netapp", "storage-pools", "describe", "gp")
        self.assertEqual((pool["serviceLevel"], pool["capacityGib"], pool["qosType"]), ("PREMIUM", "4096", "AUTO"))
        self.gcloud("netapp", "volumes", "create", "gvol", place, "--storage-pool=gp", "--capacity=1024",
                    "--protocols=nfsv3", "--share-name=gshare")
        self.gcloud("netapp", "volumes", "update", "gvol", place, "--capacity=2048",
                    "--snapshot-hourly=snapshots-to-keep=24,minute=5", "--snapshot-daily=snapshots-to-keep=7,hour=2")
        policy = self.describe("netapp", "volumes", "describe", "gvol")["snapshotPolicy"]
        self.assertEqual((policy["enabled"], policy["hourlySchedule"], policy["dailySchedule"]),
                         (True, {"snapshotsToKeep": 24.0, "minute": 5.0}, {"snapshotsToKeep": 7.0, "minute": 0.0, "hour": 2.0}))
        volume = self.describe("netapp", "volumes", "describe", "gvol")
        self.assertEqual((volume["capacityGib"], volume["shareName"], volume["storagePool"]), ("2048", "gshare", "gp"))
        names = self.gcloud("netapp", "volumes", "list", place, "--format=value(name)").split()
        self.assertEqual([n.rsplit("/", 1)[-1] for n in names], ["gvol"])
        self.gcloud("netapp", "volumes", "snapshots", "create", "gsnap", place, "--volume=gvol",
                    "--labels=snapmirror-label=daily")
        listed = self.gcloud("netapp", "volumes", "snapshots", "list", place, "--volume=gvol", "--format=value(name)")
        self.assertIn("gsnap", listed)
        self.gcloud("netapp", "volumes", "revert", "gvol", place, "--snapshot=gsnap", "--quiet")
        refusal = self.gcloud("netapp", "storage-pools", "delete", "gp", place, "--quiet", fails=True)
        self.assertIn("FAILED_PRECONDITION", refusal)
        refusal = self.gcloud("netapp", "storage-pools", "update", "gp", place, "--capacity=1024", fails=True)
        self.assertRegex(refusal, re.compile("1,?024|2,?048"))
        self.gcloud("netapp", "volumes", "delete", "gvol", place, "--force", "--quiet")
        self.gcloud("netapp", "storage-pools", "delete", "gp", place, "--quiet")
        self.assertEqual(self.gcloud("netapp", "storage-pools", "list", place, "--format=value(name)").strip(), "")

    def test_active_directories(self):
        """There is no domain to join here (conformance/ad/run has one): what gcloud says and reads."""
        place, password = "--location=us-central1", "a-password-of-nobody"
        said = (place, "--domain=gcloud.invalid", "--dns=127.0.0.1", "--net-bios-prefix=gc", "--username=nobody", f"--password={password}")
        refusal = self.gcloud("netapp", "active-directories", "create", "gad", *said, "--enable-aes=true", fails=True)
        self.assertIn("adcli", refusal)
        directory = self.describe("netapp", "active-directories", "describe", "gad")
        self.assertEqual((directory["state"], directory["domain"], directory["aesEncryption"]), ("ERROR", "gcloud.invalid", True))
        self.assertNotIn(password, json.dumps(directory))
        # It says all of it again, and so the server tries to join again.
        refusal = self.gcloud("netapp", "active-directories", "update", "gad", *said, "--description=ours", "--update-labels=a=b", fails=True)
        self.assertIn("adcli", refusal)
        self.gcloud("netapp", "storage-pools", "create", "gadp", place, "--capacity=2048", "--service-level=premium",
                    "--network=name=default", "--active-directory=gad")
        pool = self.describe("netapp", "storage-pools", "describe", "gadp")
        self.assertEqual(pool["activeDirectory"], f"{PLACE}/activeDirectories/gad")
        refusal = self.gcloud("netapp", "volumes", "create", "gadv", place, "--storage-pool=gadp", "--capacity=100",
                              "--protocols=smb", "--share-name=gadv", fails=True)
        self.assertIn("gcloud.invalid", refusal)
        self.gcloud("netapp", "storage-pools", "delete", "gadp", place, "--quiet")
        listed = json.loads(self.gcloud("netapp", "active-directories", "list", place, "--format=json"))
        self.assertEqual([(a["description"], a["labels"]) for a in listed], [("ours", {"a": "b"})])
        self.gcloud("netapp", "active-directories", "delete", "gad", place, "--quiet")

    def test_manual_qos(self):
        if self.version < 536:
            self.skipTest(f"gcloud {self.version} has no --qos-type and no --throughput-mibps (since 536)")
        place = "--location=us-central1"
        self.gcloud("netapp", "storage-pools", "create", "gm", place, "--capacity=40960", "--service-level=premium",
                    "--qos-type=manual", "--network=name=default")
        self.gcloud("netapp", "storage-pools", "create", "ga", place, "--capacity=2048", "--service-level=standard",
                    "--network=name=default")
        self.gcloud("netapp", "storage-pools", "update", "ga", place, "--qos-type=manual")
        self.gcloud("netapp", "volumes", "create", "gmv", place, "--storage-pool=gm", "--capacity=1024",
                    "--protocols=nfsv3", "--share-name=gmv", "--throughput-mibps=128")
        self.assertEqual(self.describe("netapp", "storage-pools", "describe", "gm")["availableThroughputMibps"], 2432)

    def test_filestore(self):
        place = "--location=us-central1"
        self.gcloud("filestore", "instances", "create", "gf", place, "--tier=BASIC_HDD",
                    "--file-share=name=gfs,capacity=1TB", "--network=name=default")
        instance = self.describe("filestore", "instances", "describe", "gf")
        self.assertEqual((instance["tier"], instance["fileShares"][0]["capacityGb"]), ("BASIC_HDD", "1024"))
        self.assertIn("gf", self.gcloud("filestore", "instances", "list", "--format=value(name)"))
        self.gcloud("filestore", "instances", "update", "gf", place, "--file-share=name=gfs,capacity=2TB")
        instance = self.describe("filestore", "instances", "describe", "gf")
        self.assertEqual(instance["fileShares"][0]["capacityGb"], "2048")
        self.gcloud("filestore", "instances", "delete", "gf", place, "--quiet")

    def test_operations_and_locations(self):
        place = "--location=us-central1"
        self.gcloud("netapp", "storage-pools", "create", "go", place, "--capacity=1024", "--service-level=standard",
                    "--network=name=default")
        operations = json.loads(self.gcloud("netapp", "operations", "list", place, "--format=json"))
        name = operations[0]["name"].rsplit("/", 1)[-1]
        self.assertTrue(self.describe("netapp", "operations", "describe", name)["done"])
        self.assertIn("us-central1", self.gcloud("netapp", "locations", "list", "--format=value(name)"))
        # The other tracks ask for other versions of the API.
        self.assertIn("go", self.gcloud("beta", "netapp", "storage-pools", "list", place, "--format=value(name)"))
        self.gcloud("beta", "filestore", "instances", "list", "--format=value(name)")
        self.gcloud("netapp", "storage-pools", "delete", "go", place, "--quiet")


if __name__ == "__main__":
    unittest.main()
