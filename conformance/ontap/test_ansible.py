"""Ansible's na_ontap modules, over TLS and with a token, as their users run them."""

import json
import os
import subprocess
import time
import unittest

from node import SVM, WEIR, Case, Server

VENV = os.environ.get("ONTAP_VENV", "")
COLLECTIONS = os.path.join(VENV, "collections")


@unittest.skipUnless(os.path.exists(os.path.join(VENV, "ansible")),
                     "Ansible's netapp.ontap collection could not be installed")
class Ansible(Case):
    arguments = ("--api-tls", "generate")

    @classmethod
    def furnish(cls):
        # The first token is made while only this machine can ask; the server starts again with it.
        cls.server.close()
        plain = Server(data=cls.server.data)
        status, answer = plain.ask("POST", "tokens?tokenId=ansible", {"role": "ADMIN"})
        assert status == 200, answer
        cls.token = answer["token"]
        cls.server = plain
        super().furnish()
        cls.create_volume("ansible_dst", "DP")
        plain.close()
        cls.server = Server(*cls.arguments, data=plain.data)
        cls.addClassCleanup(cls.server.close)

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


assert WEIR
