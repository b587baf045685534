"""Upgrade, backup and restore of an aggregate on a real Ceph."""

import json
import os
import subprocess
import unittest

from ceph import POOL, WEIR, OnCluster, Server


class Upkeep(OnCluster):
    def server(self, aggregate, name="a"):
        server = Server(self.ceph, aggregate, os.path.join(self.folder, name))
        self.addCleanup(server.close)
        return server.started()

    def weir(self, *words, code=0, given=None):
        """What a command prints, which ends with this code."""
        done = subprocess.run([WEIR, *words], env=self.ceph.environment, input=given, capture_output=True, text=True, timeout=120,
                              check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def user(self, server, name):
        self.weir("users", "create", name, "--uid", "1000", "--data", server.data, given="correct horse\n")

    def users(self, server):
        return [user["name"] for user in json.loads(self.weir("users", "list", "--data", server.data, "--json"))]

    def identity(self, aggregate, change):
        """Changes the identity of an aggregate that nobody serves."""
        at = ("rados", "-p", POOL, "-N", aggregate)
        text = self.ceph.run(*at, "getxattr", "owner", "identity").stdout
        identity = json.loads(text)
        change(identity)
        self.ceph.run(*at, "setxattr", "owner", "identity", json.dumps(identity))

    def test_features_are_switched_on_by_hand_alone(self):
        server = self.server("features")
        other = ["--data", os.path.join(self.folder, "tools")]
        self.assertIn("Nothing is left to switch on", self.weir("upgrade", *other, *server.place, "--dry-run"))
        self.assertIn("serve", self.weir("upgrade", *other, *server.place, code=1))
        server.stop()

        self.identity("features", lambda identity: identity["features"].append("later"))
        self.assertIn("does not know: later", self.weir("upgrade", *other, *server.place, code=1))
        refused = Server(self.ceph, "features", os.path.join(self.folder, "a"))
        self.addCleanup(refused.close)
        self.assertEqual(refused.ended(), 1)
        self.assertIn("does not know: later", refused.output())

        self.identity("features", lambda identity: identity.update(features=["usage"]))
        self.server("features").stop()
        said = self.weir("upgrade", *other, *server.place, "--dry-run")
        self.assertIn("would switch on trees", said)
        self.assertIn("switched on trees", self.weir("upgrade", *other, *server.place))
        said = json.loads(self.weir("upgrade", *other, *server.place, "--dry-run", "--json"))
        self.assertEqual((said["featuresOn"], said["featuresOff"]), (["usage", "trees", "constituents"], []))
        self.server("features").stop()

    def test_a_backup_is_restored_to_its_aggregate_and_no_other(self):
        server = self.server("first")
        self.user(server, "anna")
        backup, other = os.path.join(self.folder, "backup"), os.path.join(self.folder, "tools")
        self.weir("backup", backup, "--data", other, *server.place)
        with open(os.path.join(backup, "backup.json"), encoding="utf-8") as manifest:
            files = {file["name"] for file in json.load(manifest)["files"]}
        self.assertLessEqual({"handle-key", "smb-users", "catalog.db"}, files)
        self.user(server, "bert")
        self.assertEqual(self.users(server), ["anna", "bert"])
        self.assertIn("serve", self.weir("restore", backup, "--data", other, *server.place, code=1))
        server.stop()

        second = self.server("second", "b")
        second.stop()
        self.assertIn("and the backup is of", self.weir("restore", backup, "--data", second.data, *second.place, code=1))
        self.assertIn("on RADOS", self.weir("restore", backup, "--data", os.path.join(self.folder, "new"), code=1))

        self.weir("restore", backup, "--data", other, *server.place)
        server = self.server("first")
        self.assertEqual(self.users(server), ["anna"])
        server.stop()


if __name__ == "__main__":
    unittest.main()
