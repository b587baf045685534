"""Quota rules as their users have them: set by Google's clients, gcloud and plain requests, felt and seen over NFS."""

import json
import re
import shutil
import signal
import struct
import subprocess
import time
import unittest

import grpc
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import netapp_v1 as n

from nfs3 import NFS, Nfs, attributes, opaque
from overgrpc import Asynchronous, synchronous
from weirtest import PLACE, WEIR, Case, gcloud_environment

POOLS, VOLUMES = (f"{PLACE}/{c}" for c in ("storagePools", "volumes"))
MIB, BLOCK = 1 << 20, 4096
RQUOTA, DQUOT = 100011, 69
USER, GROUP = n.QuotaRule.Type.INDIVIDUAL_USER_QUOTA, n.QuotaRule.Type.INDIVIDUAL_GROUP_QUOTA
EACH_USER, EACH_GROUP = n.QuotaRule.Type.DEFAULT_USER_QUOTA, n.QuotaRule.Type.DEFAULT_GROUP_QUOTA


class Served(Case):
    """A server with a pool, whose volumes everyone mounts as whoever they are."""

    arguments = ("--export-options", "rw,no_root_squash")

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        status, answer = cls.server.ask("POST", POOLS, {"serviceLevel": "EXTREME", "capacityGib": "40960",
                                                        "network": "default"}, {"storagePoolId": "p"})
        assert status == 200 and answer["done"], answer

    def volume(self, name):
        made = self.done("POST", VOLUMES, {"storagePool": "p", "shareName": name, "capacityGib": "100",
                                           "protocols": ["NFSV3"], "unixPermissions": "0777"}, volumeId=name)
        return made["name"]


class Quotas(Served):
    def setUp(self):
        self.client = n.NetAppClient(transport="rest", credentials=AnonymousCredentials(),
                                     client_options={"api_endpoint": self.server.url})
        self.addCleanup(self.client.transport.close)

    def rule(self, volume, name, kind, mib, target=""):
        rule = n.QuotaRule(type_=kind, target=target, disk_limit_mib=mib)
        return self.client.create_quota_rule(parent=volume, quota_rule_id=name, quota_rule=rule).result(timeout=30)

    def mount(self, volume, uid, gid=100):
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        nfs = Nfs(port, "/" + volume.rsplit("/", 1)[-1], uid, gid)
        self.addCleanup(nfs.close)
        return nfs

    def write(self, nfs, file, at, count):
        """The status of writing blocks, FILE_SYNC."""
        data = b"q" * BLOCK * count
        return nfs.ask(NFS, 3, 7, opaque(file) + struct.pack(">QII", at * BLOCK, len(data), 2) + opaque(data))[0]

    def fill(self, nfs, file, mib, at=0):
        for block in range(at, at + mib * MIB // BLOCK, 16):
            self.assertEqual(self.write(nfs, file, block, 16), 0, block)

    def quota(self, nfs, volume, owner, kind=0, version=2):
        """Limits and usage that rquotad's protocol tells: hard, soft and used bytes, files; or the status."""
        path = opaque(("/" + volume.rsplit("/", 1)[-1]).encode())
        kinds = struct.pack(">I", kind) if version == 2 else b""
        status, result = nfs.ask(RQUOTA, version, 1, path + kinds + struct.pack(">I", owner))
        if status != 1:
            return status
        size, active, hard, soft, used, _, _, files = struct.unpack_from(">8I", result)
        self.assertEqual(active, 1)
        return hard * size, soft * size, used * size, files

    def test_a_users_limit_holds_exactly_and_over_a_crash(self):
        volume = self.volume("users")
        self.rule(volume, "u7", USER, 1, "7")
        user, other, root = (self.mount(volume, uid) for uid in (7, 8, 0))
        file = user.put(b"file", b"")
        self.fill(user, file, 1)
        self.assertEqual(self.write(user, file, 256, 1), DQUOT)
        # What is there can be written again; others and root are not limited.
        self.assertEqual(self.write(user, file, 200, 16), 0)
        self.fill(other, other.put(b"other", b""), 2)
        self.assertEqual(self.write(root, file, 256, 2), 0)
        self.assertEqual(self.quota(user, volume, 7), (MIB, 0, MIB + 2 * BLOCK, 1))
        self.assertEqual(self.quota(user, volume, 7, version=1), (MIB, 0, MIB + 2 * BLOCK, 1))
        # 3: not permitted. 2: there is no quota of that kind.
        self.assertEqual(self.quota(user, volume, 8), 3)
        self.assertEqual(self.quota(root, volume, 8), (0, 0, 2 * MIB, 1))
        self.assertEqual(self.quota(root, volume, 8, kind=9), 2)
        self.server.stop(signal.SIGKILL)
        self.server.start()
        user = self.mount(volume, 7)
        self.assertEqual(self.write(user, user.lookup(b"file"), 258, 1), DQUOT)
        self.assertEqual(self.quota(user, volume, 7), (MIB, 0, MIB + 2 * BLOCK, 1))
        user.remove(b"file")
        self.fill(user, user.put(b"again", b""), 1)

    def test_groups_defaults_and_new_owners(self):
        volume = self.volume("groups")
        self.rule(volume, "each", EACH_USER, 2)
        self.rule(volume, "g50", GROUP, 1, "50")
        user = self.mount(volume, 9, 50)
        file = user.put(b"file", b"")
        self.fill(user, file, 1)
        self.assertEqual(self.write(user, file, 256, 1), DQUOT)
        self.assertEqual(self.quota(user, volume, 50, kind=1), (MIB, 0, MIB, 1))
        elsewhere = self.mount(volume, 9, 51)
        more = elsewhere.put(b"more", b"")
        self.fill(elsewhere, more, 1)
        self.assertEqual(self.write(elsewhere, more, 256, 1), DQUOT)
        status, _ = user.ask(NFS, 3, 2, opaque(more) + attributes(gid=50) + struct.pack(">I", 0))
        self.assertEqual(status, DQUOT)
        # A limit is changed while it is used.
        rule = n.QuotaRule(name=f"{volume}/quotaRules/each", disk_limit_mib=3)
        changed = self.client.update_quota_rule(quota_rule=rule, update_mask={"paths": ["disk_limit_mib"]})
        self.assertEqual(changed.result(timeout=30).disk_limit_mib, 3)
        self.fill(elsewhere, more, 1, at=256)
        self.assertEqual(self.write(elsewhere, more, 512, 1), DQUOT)
        self.client.delete_quota_rule(name=rule.name).result(timeout=30)
        self.assertEqual(self.write(elsewhere, more, 512, 1), 0)

    def test_a_soft_limit_refuses_nothing_and_is_told_once(self):
        volume = self.volume("soft")
        rule = {"svm": {"name": "p1"}, "volume": {"name": "soft"}, "type": "user", "users": [{"id": "7"}],
                "space": {"soft_limit": MIB}}
        status, answer = self.server.ask("POST", "/api/storage/quota/rules", rule)
        self.assertIn(status, (201, 202), answer)
        user = self.mount(volume, 7)
        self.fill(user, user.put(b"file", b""), 2)
        condition, = self.conditions(volume, 1)
        self.assertEqual((condition["severity"], condition["resource"]), ("WARNING", volume))
        self.assertIn("user 7", condition["message"])
        user.remove(b"file")
        self.conditions(volume, 0)
        self.assertEqual(len(re.findall(r"over the soft limit of a quota.*user 7", self.server.output())), 1)
        self.assertEqual(len(re.findall(r"below the soft limit of a quota again.*user 7", self.server.output())), 1)

    def conditions(self, volume, count):
        """The conditions of soft limits in a volume, once there are so many."""
        end = time.monotonic() + 60
        while True:
            found = [c for c in self.ok("GET", "conditions").get("conditions", [])
                     if c["kind"] == "QUOTA_SOFT_LIMIT" and c["resource"] == volume]
            if len(found) == count:
                return found
            self.assertLess(time.monotonic(), end, found)
            time.sleep(0.2)

    def test_rules_are_listed_and_bad_ones_refused(self):
        volume = self.volume("rules")
        made = self.rule(volume, "b-user", USER, 5, "7")
        self.assertEqual((made.state, made.target), (n.QuotaRule.State.READY, "7"))
        self.rule(volume, "a-group", EACH_GROUP, 4)
        listed = [(r.name.rsplit("/", 1)[-1], r.disk_limit_mib) for r in self.client.list_quota_rules(parent=volume)]
        self.assertEqual(listed, [("a-group", 4), ("b-user", 5)])
        page = self.ok("GET", f"{volume}/quotaRules", pageSize="1")
        self.assertEqual([r["name"] for r in page["quotaRules"]], [f"{volume}/quotaRules/a-group"])
        page = self.ok("GET", f"{volume}/quotaRules", pageSize="1", pageToken=page["nextPageToken"])
        self.assertEqual([r["target"] for r in page["quotaRules"]], ["7"])
        good = {"type": "INDIVIDUAL_USER_QUOTA", "target": "8", "diskLimitMib": 1}
        for body, field in [({**good, "target": "mouse"}, "target"), ({**good, "target": ""}, "target"),
                            ({**good, "diskLimitMib": 0}, "diskLimitMib"), ({**good, "diskLimitMib": -1}, "diskLimitMib"),
                            ({**good, "type": "DEFAULT_USER_QUOTA"}, "target"),
                            ({"target": "8", "diskLimitMib": 1}, "type")]:
            error = self.refused(400, "INVALID_ARGUMENT", "POST", f"{volume}/quotaRules", body, quotaRuleId="bad")
            self.assertIn(field, error["message"])
        self.refused(409, "ALREADY_EXISTS", "POST", f"{volume}/quotaRules", good, quotaRuleId="b-user")
        error = self.refused(409, "ALREADY_EXISTS", "POST", f"{volume}/quotaRules", {**good, "target": "7"}, quotaRuleId="c")
        self.assertIn("b-user", error["message"])
        self.refused(400, "INVALID_ARGUMENT", "PATCH", f"{volume}/quotaRules/b-user", good, updateMask="target")
        self.refused(404, "NOT_FOUND", "GET", f"{volume}/quotaRules/nothing")
        self.refused(404, "NOT_FOUND", "DELETE", f"{volume}/quotaRules/nothing")
        with self.assertRaises(exceptions.NotFound):
            self.rule(f"{VOLUMES}/nothing", "r", USER, 5, "7")

    def test_over_grpc(self):
        volume = self.volume("grpc")
        channel = grpc.insecure_channel(f"127.0.0.1:{self.server.port}")
        self.addCleanup(channel.close)
        for name, client in (("sync", synchronous(n.NetAppClient, channel)),
                             ("async", Asynchronous(n.NetAppAsyncClient, f"127.0.0.1:{self.server.port}"))):
            if name == "async":
                self.addCleanup(client.close)
            rule = n.QuotaRule(type_=USER, target="7", disk_limit_mib=5, labels={"a": "b"}, description="d")
            made = client.create_quota_rule(parent=volume, quota_rule_id=name, quota_rule=rule).result(timeout=30)
            self.assertEqual((made.disk_limit_mib, made.type_, dict(made.labels)), (5, USER, {"a": "b"}))
            self.assertEqual(client.get_quota_rule(name=made.name), made)
            self.assertEqual([r.name for r in client.list_quota_rules(parent=volume)], [made.name])
            client.delete_quota_rule(name=made.name).result(timeout=30)

    def test_the_command_line(self):
        volume = self.volume("cli").rsplit("/", 1)[-1]

        def weir(*words):
            ran = subprocess.run([WEIR, "volumes", "quota-rules", *words, f"--volume={volume}", f"--server={self.server.url}",
                                  "--project=p1", "--location=us-central1"], capture_output=True, text=True, timeout=60)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            return ran.stdout
        weir("create", "mouse", "--type=individual-user-quota", "--target=1001", "--disk-limit-mib=200")
        weir("update", "mouse", "--disk-limit-mib=300")
        self.assertRegex(weir("list"), r"mouse +INDIVIDUAL_USER_QUOTA +1001 +300 +READY")
        weir("delete", "mouse", "--quiet")
        self.assertNotIn("mouse", weir("list"))


@unittest.skipUnless(shutil.which("gcloud"), "gcloud is not installed")
class Gcloud(Served):
    """gcloud's own commands."""

    def gcloud(self, *words):
        ran = subprocess.run(["gcloud", "netapp", "volumes", "quota-rules", *words, "--location=us-central1", "--volume=gq"],
                             env=gcloud_environment(type(self)), capture_output=True, text=True, timeout=120)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return ran.stdout

    def test_gcloud(self):
        self.volume("gq")
        self.gcloud("create", "all", "--type=DEFAULT_USER_QUOTA", "--disk-limit-mib=200")
        self.gcloud("create", "one", "--type=INDIVIDUAL_GROUP_QUOTA", "--target=1001", "--disk-limit-mib=100", "--labels=a=b")
        self.gcloud("update", "one", "--disk-limit-mib=150")
        one = json.loads(self.gcloud("describe", "one", "--format=json"))
        self.assertEqual((one["target"], one["diskLimitMib"], one["type"]), ("1001", 150, "INDIVIDUAL_GROUP_QUOTA"))
        self.gcloud("delete", "all")
        listed = json.loads(self.gcloud("list", "--format=json"))
        self.assertEqual([r["name"].rsplit("/", 1)[-1] for r in listed], ["one"])


if __name__ == "__main__":
    unittest.main()
