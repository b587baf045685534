"""Ansible's na_ontap modules, over TLS and with a token, as their users run them."""

import json
import os
import subprocess
import unittest

from node import SVM, WEIR, Case, Server

VENV = os.environ.get("ONTAP_VENV", "")
COLLECTIONS = os.path.join(VENV, "collections")


@unittest.skipUnless(os.path.isdir(COLLECTIONS), "Ansible's netapp.ontap collection could not be installed")
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
        ends = {"source_endpoint": {"path": f"{SVM}:vol_test"}, "destination_endpoint": {"path": f"{SVM}:ansible_dst"}}
        policy = {"policy_name": "A", "policy_type": "mirror_vault", "snapmirror_label": ["daily"], "keep": [7]}
        self.assertTrue(self.module("na_ontap_snapmirror_policy", state="present", **policy)["changed"])
        self.assertFalse(self.module("na_ontap_snapmirror_policy", state="present", **policy)["changed"])
        make = {"state": "present", "policy": "A", "schedule": "weekly", **ends}
        self.assertTrue(self.module("na_ontap_snapmirror", **make)["changed"])
        cli = self.module("na_ontap_rest_cli", command="snapmirror", verb="GET", params={"fields": "state,schedule"})
        self.assertEqual(cli["msg"]["records"][0]["schedule"], "weekly")
        self.module("na_ontap_rest_cli", command="snapmirror", verb="PATCH",
                    params={"destination-path": f"{SVM}:ansible_dst"}, body={"throttle": 8192})
        broken = self.module("na_ontap_snapmirror", relationship_state="broken", **make)
        self.assertTrue(broken["changed"])
        self.assertTrue(self.module("na_ontap_snapmirror", **make)["changed"])  # resync
        gone = self.module("na_ontap_snapmirror", state="absent", **ends)
        self.assertTrue(gone["changed"])
        self.assertTrue(self.module("na_ontap_snapmirror_policy", state="absent", policy_name="A")["changed"])


assert WEIR
