"""NetApp's Terraform provider `netapp-ontap`: everything is made, changed in place and destroyed, and after each step
another plan has nothing to do."""

import os
import unittest

from node import SVM, Protected
from terraform import Terraform, missing


@unittest.skipIf(missing("netapp-ontap"), missing("netapp-ontap"))
class NetappOntap(Protected):
    @classmethod
    def prepare(cls):
        cls.create_volume("copy", "DP")

    def setUp(self):
        self.terraform = Terraform(self, "netapp/netapp-ontap", {"connection_profiles": [{
            "name": "weir", "hostname": f"127.0.0.1:{self.server.port}", "username": "admin", "password": self.token,
            "validate_certs": False}]})

    @staticmethod
    def named(kinds):
        return {f"netapp-ontap_{kind}": {name: {"cx_profile_name": "weir", **what} for name, what in named.items()}
                for kind, named in kinds.items()}

    def apply(self, resources):
        self.terraform.apply(self.named(resources))

    def rest(self, path):
        """The records of one of ONTAP's resources, past Terraform."""
        status, answer = self.server.ask(
            "GET", "/api/" + path, headers={"Authorization": "Bearer " + self.token},
            certificate=os.path.join(self.server.data, "api-cert.pem"))
        self.assertEqual(status, 200, answer)
        return answer["records"]

    def test_a_machine_and_what_it_has(self):
        svm = {"svm_name": SVM}
        resources = {
            "svm": {"svm": {"name": "tfsvm", "comment": "made by Terraform", "aggregates": [],
                             "ipspace": "Default", "language": "c.utf_8", "max_volumes": "unlimited",
                             "snapshot_policy": "none", "subtype": "default"}},
            "nfs_export_policy": {"policy": {"name": "tfexport", **svm}},
            "nfs_export_policy_rule": {"rule": {
                **svm, "export_policy_name": "${netapp-ontap_nfs_export_policy.policy.name}",
                "clients_match": ["127.0.0.0/8"], "protocols": ["nfs"], "ro_rule": ["any"], "rw_rule": ["any"],
                "superuser": ["none"]}},
            "qos_policy": {"limit": {"name": "tfqos", **svm, "fixed": {"max_throughput_iops": 500}}},
            "snapshot_policy": {"policy": {
                "name": "tfsnap", **svm, "comment": "kept a while", "enabled": True,
                "copies": [{"count": 3, "schedule": {"name": "daily"}}, {"count": 2, "schedule": {"name": "hourly"}}]}},
            "volume": {"volume": {
                "name": "tfvol", **svm, "aggregates": [{"name": "pool"}], "space": {"size": 20, "size_unit": "gb"},
                "comment": "first", "snapshot_policy": "${netapp-ontap_snapshot_policy.policy.name}",
                "nas": {"export_policy_name": "${netapp-ontap_nfs_export_policy.policy.name}",
                        "junction_path": "/tfvol", "unix_permissions": 755}}},
            "volume_snapshot": {"snapshot": {
                "name": "tfcopy", "volume_name": "${netapp-ontap_volume.volume.name}", **svm, "comment": "one"}},
        }
        self.apply(resources)
        volume = self.rest("storage/volumes?name=tfvol&fields=*")[0]
        self.assertEqual((volume["space"]["size"], volume["comment"], volume["nas"]["path"]), (20 << 30, "first", "/tfvol"))
        self.assertEqual(volume["nas"]["export_policy"]["name"], "tfexport")

        resources["volume"]["volume"].update(space={"size": 24, "size_unit": "gb"}, comment="second")
        resources["volume"]["volume"]["nas"]["unix_permissions"] = 750
        resources["qos_policy"]["limit"]["fixed"] = {"max_throughput_iops": 800}
        resources["nfs_export_policy_rule"]["rule"]["rw_rule"] = ["never"]
        resources["snapshot_policy"]["policy"]["comment"] = "kept longer"
        resources["volume_snapshot"]["snapshot"]["comment"] = "two"
        resources["svm"]["svm"]["comment"] = "changed by Terraform"
        self.apply(resources)
        changed = self.rest("storage/volumes?name=tfvol&fields=*")[0]
        self.assertEqual((changed["uuid"], changed["space"]["size"], changed["comment"], changed["nas"]["unix_permissions"]),
                         (volume["uuid"], 24 << 30, "second", 750))
        self.assertEqual(self.rest("storage/qos/policies?name=tfqos&fields=fixed")[0]["fixed"]["max_throughput_iops"], 800)

        self.terraform.destroy()
        self.assertEqual(self.rest("svm/svms?name=tfsvm"), [])
        self.assertEqual(self.rest("storage/volumes?name=tfvol"), [])

    def test_a_relationship(self):
        resources = {
            "cluster_schedule": {"schedule": {"name": "tf5min", "interval": "PT5M"}},
            "snapmirror_policy": {"policy": {"name": "tfmirror", "svm_name": SVM, "type": "async", "comment": "first",
                                             "create_snapshot_on_source": True,
                                             "retention": [{"label": "daily", "count": 7}]}},
            "snapmirror": {"relationship": {
                "source_endpoint": {"path": f"{SVM}:vol_test"}, "destination_endpoint": {"path": f"{SVM}:copy"},
                "policy": {"name": "${netapp-ontap_snapmirror_policy.policy.name}"}}},
        }
        self.apply(resources)
        relationship = self.rest("snapmirror/relationships?fields=*")[0]
        self.assertEqual((relationship["state"], relationship["policy"]["name"]), ("snapmirrored", "tfmirror"))
        resources["snapmirror_policy"]["policy"].update(comment="second", retention=[{"label": "daily", "count": 9}])
        self.apply(resources)
        self.assertEqual(self.rest("snapmirror/policies?name=tfmirror&fields=*")[0]["retention"][0]["count"], "9")
        self.terraform.destroy()
        self.assertEqual(self.rest("snapmirror/relationships"), [])

    def test_what_is_there_is_read(self):
        svm = {"svm_name": SVM}
        data = {
            "cluster": {"one": {}}, "cluster_schedules": {"all": {}},
            "svm": {"one": {"name": SVM}}, "svms": {"all": {}},
            "aggregate": {"one": {"name": "pool"}}, "aggregates": {"all": {}},
            "volume": {"one": {"name": "vol_test", **svm}}, "volumes": {"all": {"filter": {"name": "vol_test"}}},
            "volume_snapshots": {"all": {"filter": {"name": "*", "volume_name": "vol_test", **svm}}},
            "nfs_export_policy": {"one": {"name": "default", **svm}}, "nfs_export_policies": {"all": {}},
            "nfs_export_policy_rules": {"all": {"export_policy_name": "default", **svm}},
            "qos_policies": {"all": {}}, "snapshot_policies": {"all": {}}, "snapmirrors": {"all": {}},
            "snapmirror_policies": {"all": {}},
        }
        got = {name.removeprefix("netapp-ontap_"): value
               for name, value in self.terraform.read(self.named(data)).items()}
        self.assertEqual(got["svm_one"]["name"], SVM)
        self.assertEqual([v["name"] for v in got["volumes_all"]["storage_volumes"]], ["vol_test"])
        self.assertEqual(got["volume_one"]["space"]["size"], 16)
        self.assertIn("default-1weekly", [p["name"] for p in got["snapshot_policies_all"]["storage_snapshot_policies"]])
