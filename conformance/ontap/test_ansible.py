"""Ansible's na_ontap modules, over TLS and with a token, as their users run them."""

import json
import os
import re
import subprocess
import time
import unittest

from node import SVM, Protected

VENV = os.environ.get("ONTAP_VENV", "")
COLLECTIONS = os.path.join(VENV, "collections")


@unittest.skipUnless(os.path.exists(os.path.join(VENV, "ansible")),
                     "Ansible's netapp.ontap collection could not be installed")
class Ansible(Protected):
    @classmethod
    def prepare(cls):
        cls.create_volume("ansible_dst", "DP")

    def module(self, name, **arguments):
        """Whether anything was changed, and what the module says."""
        connection = {"hostname": "127.0.0.1", "http_port": self.server.port, "username": "admin",
                      "password": self.token, "https": True, "validate_certs": False, "use_rest": "always"}
        done = subprocess.run(
            [os.path.join(VENV, "bin", "ansible"), "localhost", "-i", "localhost,", "-c", "local",
             "-e", "ansible_python_interpreter=" + os.path.join(VENV, "bin", "python"),
             "-m", f"netapp.ontap.{name}", "-a", json.dumps({**connection, **arguments})],
            capture_output=True, text=True, timeout=300,
            env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS, "HOME": self.server.data,
                 "ANSIBLE_LOAD_CALLBACK_PLUGINS": "1", "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.oneline",
                 "ANSIBLE_DEPRECATION_WARNINGS": "0", "LC_ALL": "C.UTF-8"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout.split("=>", 1)[1])

    def playbook(self, tasks):
        """Runs modules with their arguments as one play; returns by name which have changed something."""
        connection = {"hostname": "127.0.0.1", "http_port": self.server.port, "username": "admin",
                      "password": self.token, "https": True, "validate_certs": False, "use_rest": "always"}
        play = [{"hosts": "localhost", "connection": "local", "gather_facts": False, "tasks": [
            {f"netapp.ontap.{module}": {**connection, **arguments}} for module, arguments in tasks]}]
        path = os.path.join(self.server.data, "play.json")
        with open(path, "w", encoding="utf-8") as f:
            json.dump(play, f)
        done = subprocess.run(
            [os.path.join(VENV, "bin", "ansible-playbook"), "-i", "localhost,", path,
             "-e", "ansible_python_interpreter=" + os.path.join(VENV, "bin", "python")],
            capture_output=True, text=True, timeout=600,
            env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": COLLECTIONS, "HOME": self.server.data,
                 "ANSIBLE_STDOUT_CALLBACK": "ansible.builtin.oneline", "ANSIBLE_DEPRECATION_WARNINGS": "0",
                 "LC_ALL": "C.UTF-8"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        words = re.findall(r"^localhost \| (\w+)!? => ", done.stdout, re.MULTILINE)
        self.assertEqual(len(words), len(tasks), done.stdout)
        return [module for (module, _), word in zip(tasks, words) if word == "CHANGED"]

    def test_what_volumes_have_by_name(self):
        volume = {"vserver": SVM, "name": "named", "size": 20, "size_unit": "gb", "aggregate_name": "pool",
                  "junction_path": "/data/named", "export_policy": "web", "qos_policy_group": "slow",
                  "snapshot_policy": "often", "unix_permissions": "0770", "comment": "of Ansible's",
                  "percent_snapshot_space": 10, "space_guarantee": "none", "snapdir_access": False,
                  "volume_security_style": "unix", "encrypt": False, "tiering_policy": "none",
                  "wait_for_completion": True}
        rule = {"vserver": SVM, "name": "web", "client_match": ["127.0.0.0/8", "host7.example"], "ro_rule": ["sys"],
                "rw_rule": ["sys"], "super_user_security": ["none"], "protocol": ["nfs3"], "rule_index": 1}
        tasks = {
            "na_ontap_svm": {"name": SVM, "comment": "a project", "services": {"nfs": {"allowed": True}}},
            "na_ontap_aggregate": {"name": "pool", "service_state": "online"},
            "na_ontap_export_policy": {"vserver": SVM, "name": "web"},
            "na_ontap_export_policy_rule": rule,
            "na_ontap_qos_policy_group": {"vserver": SVM, "name": "slow", "fixed_qos_options": {
                "max_throughput_mbps": 100, "max_throughput_iops": 5000}},
            "na_ontap_snapshot_policy": {"vserver": SVM, "name": "often", "enabled": True, "comment": "two",
                                         "schedule": ["hourly", "daily"], "count": [6, 2],
                                         "prefix": ["hourly", "daily"], "snapmirror_label": ["hourly", "daily"]},
            "na_ontap_volume": volume,
            "na_ontap_volume_efficiency": {"vserver": SVM, "volume_name": "named", "state": "absent"},
            "na_ontap_snapshot": {"vserver": SVM, "volume": "named", "snapshot": "first", "comment": "kept",
                                  "snapmirror_label": "keep"},
            "na_ontap_volume_clone": {"vserver": SVM, "name": "named_copy", "parent_volume": "named",
                                      "parent_snapshot": "first", "junction_path": "/data/copy"},
        }
        asis = ["na_ontap_aggregate", "na_ontap_volume_efficiency"]
        play = list(tasks.items())
        self.assertEqual(self.playbook(play), [name for name in tasks if name not in asis])
        self.assertEqual(self.playbook(play), [])

        # Everything that can be changed, changed; and once more.
        tasks["na_ontap_svm"]["comment"] = "another"
        rule.update(client_match=["127.0.0.0/8"], rw_rule=["never"])
        tasks["na_ontap_qos_policy_group"]["fixed_qos_options"]["max_throughput_mbps"] = 200
        tasks["na_ontap_snapshot_policy"].update(schedule=["hourly", "weekly"], count=[4, 2],
                                                 prefix=["hourly", "weekly"], snapmirror_label=["hourly", "weekly"])
        volume.update(size=40, junction_path="/data/elsewhere", unix_permissions="0755", comment="other words",
                      percent_snapshot_space=5, snapdir_access=True, snapshot_policy="none", export_policy="default")
        tasks["na_ontap_snapshot"]["comment"] = "kept longer"
        same = asis + ["na_ontap_export_policy", "na_ontap_volume_clone"]
        play = list(tasks.items())
        self.assertEqual(self.playbook(play), [name for name in tasks if name not in same])
        self.assertEqual(self.playbook(play), [])
        offline = [("na_ontap_volume", {"vserver": SVM, "name": "named", "is_online": False})]
        self.assertEqual(self.playbook(offline), ["na_ontap_volume"])
        self.assertEqual(self.playbook(offline), [])
        renamed = [("na_ontap_volume", {"vserver": SVM, "name": "renamed", "from_name": "named"})]
        self.assertEqual(self.playbook(renamed), ["na_ontap_volume"])
        self.assertEqual(self.playbook(renamed), [])
        split = [("na_ontap_volume_clone", {**tasks["na_ontap_volume_clone"], "split": True})]
        self.assertEqual(self.playbook(split), ["na_ontap_volume_clone"])
        self.assertEqual(self.playbook(split), [])

        gone = [(module, {**{k: v for k, v in arguments.items() if k in ("vserver", "name", "rule_index")},
                          "state": "absent"})
                for module, arguments in (
                    ("na_ontap_volume", {"vserver": SVM, "name": "named_copy"}),
                    ("na_ontap_volume", {"vserver": SVM, "name": "renamed"}),
                    ("na_ontap_export_policy", {"vserver": SVM, "name": "web"}),
                    ("na_ontap_qos_policy_group", {"vserver": SVM, "name": "slow"}),
                    ("na_ontap_snapshot_policy", {"vserver": SVM, "name": "often"}))]
        self.assertEqual(self.playbook(gone), [module for module, _ in gone])
        self.assertEqual(self.playbook(gone), [])
        empty = [("na_ontap_svm", {"name": "empty", "comment": "nothing yet"})]
        self.assertEqual(self.playbook(empty), ["na_ontap_svm"])
        self.assertEqual(self.playbook(empty), [])
        empty[0][1]["state"] = "absent"
        self.assertEqual(self.playbook(empty), ["na_ontap_svm"])
        self.assertEqual(self.playbook(empty), [])

    def test_quotas(self):
        self.create_quota_volume()
        user = {"vserver": SVM, "volume": "quotas", "type": "user", "quota_target": "1001", "qtree": "", "policy": "default",
                "disk_limit": "100MB", "soft_disk_limit": "80MB", "file_limit": "50"}
        group = {**user, "type": "group", "quota_target": "50", "soft_disk_limit": "90MB"}
        everyone = {**user, "quota_target": "", "disk_limit": "1GB"}
        rules = [("na_ontap_quotas", {**rule, "set_quota_status": True, "activate_quota_on_change": "none"})
                 for rule in (user, group, everyone)]
        for _, rule in rules:
            del rule["policy"]
        self.assertEqual(self.playbook(rules), ["na_ontap_quotas"] * 3)
        self.assertEqual(self.playbook(rules), [])
        rules[0][1].update(disk_limit="200MB", file_limit="60")
        self.assertEqual(self.playbook(rules), ["na_ontap_quotas"])
        self.assertEqual(self.playbook(rules), [])
        listed = self.rest("storage/quota/rules?volume.name=quotas&users.id=1001&fields=*")
        self.assertEqual([(r["space"], r["files"]) for r in listed],
                         [({"hard_limit": 200 << 20, "soft_limit": 80 << 20}, {"hard_limit": 60})])
        reported = self.rest("storage/quota/reports?volume.name=quotas&fields=*")
        self.assertEqual([(r["type"], r["specifier"], r["space"]["used"]["total"]) for r in reported],
                         [("group", "-", 0), ("group", "50", 0), ("user", "-", 0), ("user", "1001", 0)])
        state = [("na_ontap_quotas", {**rules[1][1], "set_quota_status": False})]
        self.assertEqual(self.playbook(state), ["na_ontap_quotas"])
        self.assertEqual(self.playbook(state), [])
        volume, = self.rest("storage/volumes?name=quotas&fields=quota")
        self.assertEqual(volume["quota"], {"state": "off", "enabled": False})
        gone = [(module, {**rule, "state": "absent"}) for module, rule in rules]
        for _, rule in gone:
            del rule["set_quota_status"]
        self.assertEqual(self.playbook(gone), ["na_ontap_quotas"] * 3)
        self.assertEqual(self.rest("storage/quota/rules"), [])

    def create_quota_volume(self):
        """A volume whose quotas nothing else has."""
        volume = {"vserver": SVM, "name": "quotas", "size": 20, "size_unit": "gb", "aggregate_name": "pool",
                  "wait_for_completion": True}
        self.assertEqual(self.playbook([("na_ontap_volume", volume)]), ["na_ontap_volume"])

    def rest(self, path):
        """The records of a list."""
        code, answer = self.server.ask("GET", f"/api/{path}", headers={"Authorization": f"Bearer {self.token}"},
                                       certificate=os.path.join(self.server.data, "api-cert.pem"))
        self.assertEqual(code, 200, answer)
        return answer["records"]

    def test_a_relationship_from_beginning_to_end(self):
        destination = f"{SVM}:ansible_dst"
        ends = {"source_endpoint": {"path": f"{SVM}:vol_test"}, "destination_endpoint": {"path": destination}}
        policy = {"policy_name": "A", "policy_type": "mirror_vault", "snapmirror_label": ["daily"], "keep": [7]}
        self.assertTrue(self.module("na_ontap_snapmirror_policy", state="present", **policy)["changed"])
        self.assertFalse(self.module("na_ontap_snapmirror_policy", state="present", **policy)["changed"])
        # The module would look again after 30 seconds at the earliest; this looks by itself.
        make = {"state": "present", "policy": "A", "schedule": "weekly", "transferring_time_out": 0, **ends}
        made = self.module("na_ontap_snapmirror", **make)
        self.assertEqual((made["changed"], made["actions"]), (True, ["create"]))
        self.rests(destination, "Snapmirrored")
        again = self.module("na_ontap_snapmirror", update=False, **make)
        self.assertFalse(again["changed"])
        self.assertEqual(self.module("na_ontap_snapmirror", **make)["actions"], ["check_for_update", "update"])
        self.rests(destination, "Snapmirrored")

        cli = self.module("na_ontap_rest_cli", command="snapmirror", verb="GET", params={"fields": "state,schedule"})
        self.assertEqual(cli["msg"]["records"][0]["schedule"], "weekly")
        to = {"params": {"destination-path": destination}}
        self.module("na_ontap_rest_cli", command="snapmirror", verb="PATCH", body={"throttle": 8192}, **to)
        self.module("na_ontap_rest_cli", command="options", verb="PATCH", body={"option-value": "4096"},
                    params={"option-name": "replication.throttle.incoming.max_kbs"})
        shown = self.rests(destination, "Snapmirrored")
        self.assertEqual(str(shown["throttle"]), "8192")
        self.module("na_ontap_rest_cli", command="snapmirror/quiesce", verb="POST", body={"destination-path": destination})
        self.rests(destination, "Snapmirrored", "Quiesced")
        resumed = self.module("na_ontap_snapmirror", update=False, **make)
        self.assertEqual((resumed["changed"], resumed["actions"]), (True, ["resume"]))
        self.rests(destination, "Snapmirrored")

        broken = self.module("na_ontap_snapmirror", relationship_state="broken", **make)
        self.assertEqual((broken["changed"], broken["actions"]), (True, ["break"]))
        self.rests(destination, "Broken-off")
        resynced = self.module("na_ontap_snapmirror", **make)
        self.assertIn("resync", resynced["actions"])
        self.rests(destination, "Snapmirrored")
        gone = self.module("na_ontap_snapmirror", state="absent", **ends)
        self.assertTrue(gone["changed"])
        self.assertFalse(self.module("na_ontap_snapmirror", state="absent", **ends)["changed"])
        self.assertTrue(self.module("na_ontap_snapmirror_policy", state="absent", policy_name="A")["changed"])

    def rests(self, destination, state, status="Idle"):
        """Waits, and returns the relationship."""
        bearer = {"Authorization": f"Bearer {self.token}"}
        end = time.monotonic() + 60
        while True:
            path = f"/api/private/cli/snapmirror?destination_path={destination}&fields=*"
            code, answer = self.server.ask("GET", path, headers=bearer, certificate=os.path.join(self.server.data, "api-cert.pem"))
            self.assertEqual(code, 200, answer)
            record = answer["records"][0]
            if (record["state"], record["status"]) == (state, status):
                return record
            self.assertLess(time.monotonic(), end, record)
            time.sleep(0.05)


