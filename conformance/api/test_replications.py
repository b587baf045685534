"""Replications of volumes: google-cloud-netapp over REST, gcloud where it is installed, and `weir` as gcloud is used."""

import json
import os
import shutil
import subprocess
import time
import unittest

from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import netapp_v1 as n

from weirtest import PLACE, WEIR, Case, gcloud_environment

R = n.Replication


class Replicated(Case):
    """A pool and a volume `src`."""

    def setUp(self):
        self.client = n.NetAppClient(
            transport="rest", credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self.server.url})
        self.addCleanup(self.client.transport.close)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for pool in ("near", "far"):
            status, answer = cls.server.ask(
                "POST", f"{PLACE}/storagePools", {"serviceLevel": "PREMIUM", "capacityGib": "4096", "network": "default"},
                {"storagePoolId": pool})
            assert status == 200 and answer["done"], answer

    def volume(self, name):
        self.client.create_volume(parent=PLACE, volume_id=name, volume=n.Volume(
            storage_pool="near", share_name=name, capacity_gib=1024, protocols=["NFSV3"],
            unix_permissions="0750")).result(timeout=30)
        return f"{PLACE}/volumes/{name}"

    def reached(self, name, state):
        """Waits for a mirror state."""
        end = time.monotonic() + 60
        while True:
            shown = self.ok("GET", name)
            if shown["mirrorState"] == state:
                return shown
            self.assertLess(time.monotonic(), end, shown)
            time.sleep(0.05)


class NetApp(Replicated):
    def make(self, source, target, **fields):
        return self.client.create_replication(
            parent=source, replication_id="r", replication=R(
                replication_schedule="HOURLY",
                destination_volume_parameters={"storage_pool": f"{PLACE}/storagePools/far", "volume_id": target},
                **fields)).result(timeout=60)

    def test_from_beginning_to_end(self):
        source = self.volume("src")
        made = self.make(source, "dst", description="d", labels={"team": "geo"})
        name = f"{source}/replications/r"
        self.assertEqual((made.name, made.role, made.replication_schedule, made.state),
                         (name, R.ReplicationRole.SOURCE, R.ReplicationSchedule.HOURLY, R.State.READY))
        self.assertEqual((made.description, dict(made.labels)), ("d", {"team": "geo"}))
        self.assertIn(made.mirror_state, (R.MirrorState.PREPARING, R.MirrorState.BASELINE_TRANSFERRING,
                                          R.MirrorState.MIRRORED))
        self.assertTrue(made.create_time)
        self.reached(name, "MIRRORED")
        got = self.client.get_replication(name=name)
        self.assertTrue(got.healthy)
        self.assertEqual((got.source_volume, got.destination_volume), (source, f"{PLACE}/volumes/dst"))
        stats = got.transfer_stats
        self.assertTrue(stats.last_transfer_end_time)
        self.assertLess(stats.lag_duration.total_seconds(), 60)
        self.assertEqual(stats.last_transfer_error, "")
        # The copy has what the source has, and both say that they are replicated.
        copy = self.client.get_volume(name=f"{PLACE}/volumes/dst")
        self.assertEqual((copy.storage_pool, copy.capacity_gib, copy.unix_permissions, copy.has_replication),
                         ("far", 1024, "0750", True))
        self.assertTrue(self.client.get_volume(name=source).has_replication)
        # Seen from the copy.
        other = list(self.client.list_replications(parent=copy.name))
        self.assertEqual([(o.name, o.role) for o in other],
                         [(f"{copy.name}/replications/r", R.ReplicationRole.DESTINATION)])
        self.assertEqual([r.name for r in self.client.list_replications(parent=source)], [name])

        changed = self.client.update_replication(
            replication=R(name=name, description="e", replication_schedule="DAILY"),
            update_mask={"paths": ["description", "replication_schedule"]}).result(timeout=30)
        self.assertEqual((changed.description, changed.replication_schedule, dict(changed.labels)),
                         ("e", R.ReplicationSchedule.DAILY, {"team": "geo"}))

        self.client.sync_replication(n.SyncReplicationRequest(name=name)).result(timeout=30)
        self.reached(name, "MIRRORED")
        for wrong in (self.client.resume_replication, self.client.reverse_replication_direction):
            request = {"name": name}
            with self.assertRaises(exceptions.BadRequest):
                wrong(request).result(timeout=30)
        stopped = self.client.stop_replication(n.StopReplicationRequest(name=name)).result(timeout=30)
        self.assertEqual(stopped.mirror_state, R.MirrorState.STOPPED)
        with self.assertRaises(exceptions.BadRequest):
            self.client.sync_replication(n.SyncReplicationRequest(name=name)).result(timeout=30)
        self.client.resume_replication(n.ResumeReplicationRequest(name=name)).result(timeout=30)
        self.reached(name, "MIRRORED")
        self.client.stop_replication(n.StopReplicationRequest(name=name, force=True)).result(timeout=30)
        turned = self.client.reverse_replication_direction(
            n.ReverseReplicationDirectionRequest(name=name)).result(timeout=30)
        self.assertEqual((turned.role, turned.description, turned.replication_schedule),
                         (R.ReplicationRole.DESTINATION, "e", R.ReplicationSchedule.DAILY))
        self.assertEqual((turned.source_volume, turned.destination_volume), (copy.name, source))
        self.reached(name, "MIRRORED")
        with self.assertRaisesRegex(exceptions.BadRequest, "copies p1:dst"):
            self.client.establish_peering(n.EstablishPeeringRequest(
                name=name, peer_cluster_name="c", peer_svm_name="s", peer_volume_name="v"))

        self.client.delete_replication(name=name).result(timeout=30)
        with self.assertRaises(exceptions.NotFound):
            self.client.get_replication(name=name)
        self.assertEqual(list(self.client.list_replications(parent=source)), [])
        # Nothing of it is left that would keep the volumes.
        for volume in (source, copy.name):
            self.client.delete_volume(request={"name": volume, "force": True}).result(timeout=30)

    def checked(self, method, path, body=None, **query):
        """Checks a change; returns the resource as it would be, or the refusal that the submission gets as well."""
        def names():
            return [one["name"] for of in ("volumes", "operations") for one in self.ok("GET", f"{PLACE}/{of}").get(of, [])]

        before = names()
        check = self.server.ask(method, path, body, {**query, "validateOnly": "true"})
        self.assertEqual(names(), before)
        if check[0] == 200:
            self.assertTrue(check[1]["validateOnly"] and check[1]["done"], check)
            return check[1]["response"]
        self.assertEqual(self.server.ask(method, path, body, query), check)
        return check[1]["error"]

    def test_a_dry_run_says_what_the_change_would_say(self):
        source = self.volume("dry")
        name = f"{source}/replications/r"
        to = {"storagePool": f"{PLACE}/storagePools/far", "volumeId": "drycopy"}
        body = {"replicationSchedule": "HOURLY", "destinationVolumeParameters": to, "labels": {"a": "b"}}
        create = ("POST", f"{source}/replications")
        would = self.checked(*create, body, replicationId="r")
        self.assertEqual((would["name"], would["role"], would["destinationVolume"], would["labels"], would["state"]),
                         (name, "SOURCE", f"{PLACE}/volumes/drycopy", {"a": "b"}, "READY"))
        for wrong, status in (({**body, "replicationSchedule": "NEVER"}, "INVALID_ARGUMENT"),
                              ({**body, "destinationVolumeParameters": {**to, "storagePool": "none"}}, None),
                              ({**body, "destinationVolumeParameters": {**to, "volumeId": "dry"}}, "ALREADY_EXISTS"),
                              ({**body, "labels": {"a": "B" * 70}}, "INVALID_ARGUMENT")):
            error = self.checked(*create, wrong, replicationId="r")
            self.assertTrue(error["message"] and error["status"] == (status or error["status"]), error)
        self.assertEqual(self.checked("DELETE", name)["status"], "NOT_FOUND")
        # A copy of another node's volume cannot be made here, and the dry run says so.
        peer = {"replication": "r", "peerClusterName": "far", "peerSvmName": "weir", "peerVolumeName": "data"}
        hybrid = {"storagePool": "near", "shareName": "hybrid", "capacityGib": "100", "protocols": ["NFSV3"],
                  "hybridReplicationParameters": peer}
        self.assertIn("--replication ADDR:PORT", self.checked("POST", f"{PLACE}/volumes", hybrid, volumeId="hybrid")["message"])

        made = self.ok("POST", f"{source}/replications", body, replicationId="r")
        self.assertTrue(made["done"], made)
        shown = self.reached(name, "MIRRORED")
        self.assertEqual({key: shown[key] for key in would if key not in ("mirrorState", "transferStats", "createTime")},
                         {key: would[key] for key in would if key not in ("mirrorState", "transferStats", "createTime")})
        self.assertEqual(self.checked(*create, body, replicationId="r")["status"], "ALREADY_EXISTS")
        changed = self.checked("PATCH", name, {"description": "x", "replicationSchedule": "DAILY"},
                               updateMask="description,replicationSchedule")
        self.assertEqual((changed["description"], changed["replicationSchedule"]), ("x", "DAILY"))
        self.assertEqual(self.checked("PATCH", name, {"replicationSchedule": "NEVER"},
                                      updateMask="replicationSchedule")["status"], "INVALID_ARGUMENT")
        for verb in ("resume", "reverseDirection"):
            self.assertEqual(self.checked("POST", f"{name}:{verb}", {})["status"], "FAILED_PRECONDITION")
        self.assertTrue(self.checked("POST", f"{name}:sync", {})["healthy"])
        self.assertEqual(self.checked("POST", f"{name}:stop", {})["mirrorState"], "STOPPED")
        self.assertEqual(self.ok("GET", name)["mirrorState"], "MIRRORED")
        self.ok("POST", f"{name}:stop", {})
        self.assertEqual(self.checked("POST", f"{name}:sync", {})["status"], "FAILED_PRECONDITION")
        turned = self.checked("POST", f"{name}:reverseDirection", {})
        self.assertEqual((turned["role"], turned["sourceVolume"]), ("DESTINATION", f"{PLACE}/volumes/drycopy"))
        self.assertNotEqual(self.checked("POST", f"{name}:resume", {})["mirrorState"], "STOPPED")
        self.assertEqual(self.checked("DELETE", name), {})
        self.assertEqual(self.ok("GET", name)["mirrorState"], "STOPPED")
        # The command line asks in the same way.
        done = subprocess.run([WEIR, "volumes", "replications", "delete", "r", "--volume=dry", "--validate-only",
                               f"--server={self.server.url}", "--project=p1", "--location=us-central1"], capture_output=True, text=True)
        self.assertEqual((done.returncode, "Nothing was changed" in done.stderr), (0, True), done)
        self.ok("DELETE", name)

    def test_a_copy_of_another_nodes_volume_leaves_nothing_where_that_cannot_be_paired(self):
        peer = n.HybridReplicationParameters(
            replication="r", peer_cluster_name="far", peer_svm_name="weir", peer_volume_name="data")
        volume = n.Volume(storage_pool="near", share_name="hybrid", capacity_gib=100, protocols=["NFSV3"],
                          hybrid_replication_parameters=peer)
        with self.assertRaisesRegex(exceptions.BadRequest, "--replication ADDR:PORT"):
            self.client.create_volume(parent=PLACE, volume_id="hybrid", volume=volume).result(timeout=30)
        with self.assertRaises(exceptions.NotFound):
            self.client.get_volume(name=f"{PLACE}/volumes/hybrid")

    def test_what_is_replicated_stays(self):
        source = self.volume("kept")
        self.client.create_snapshot(parent=source, snapshot_id="before", snapshot=n.Snapshot()).result(timeout=30)
        self.make(source, "kept2")
        name = f"{source}/replications/r"
        self.reached(name, "MIRRORED")
        [newest] = [s.name for s in self.client.list_snapshots(parent=source) if "/snapmirror" in s.name]
        before = self.everything(), self.ok("GET", f"{source}/snapshots")
        for method, path, body, reason in (
                ("DELETE", source + "?force=true", None, "VOLUME_REPLICATED"),
                ("DELETE", f"{PLACE}/volumes/kept2?force=true", None, "VOLUME_REPLICATED"),
                ("DELETE", newest, None, "SNAPSHOT_REPLICATED"),
                ("POST", source + ":revert", {"snapshotId": "before"}, "SNAPSHOT_REPLICATED"),
                ("POST", f"{PLACE}/volumes/kept2:revert", {"snapshotId": newest.rsplit("/", 1)[1]}, "VOLUME_READ_ONLY"),
                ("POST", "projects/p1/locations/other/volumes?volumeId=kept",
                 {"storagePool": "x", "shareName": "y", "capacityGib": "100", "protocols": ["NFSV3"]},
                 "VOLUME_NAME_REPLICATED")):
            error = self.refused(400, "FAILED_PRECONDITION", method, path, body)
            self.assertEqual(error["details"][0]["reason"], reason)
        self.assertEqual((self.everything(), self.ok("GET", f"{source}/snapshots")), before)
        self.assertEqual(self.ok("GET", name)["mirrorState"], "MIRRORED")
        # Who tried stands in the audit log; nobody waits for refusals to be written there.
        end = time.monotonic() + 30
        while True:
            log = json.dumps(self.ok("GET", "auditEntries"))
            if all(f"refused: {reason}" in log for reason in (
                    "VOLUME_REPLICATED", "SNAPSHOT_REPLICATED", "VOLUME_READ_ONLY", "VOLUME_NAME_REPLICATED")):
                break
            self.assertLess(time.monotonic(), end, log)
            time.sleep(0.05)
        self.assertIn("snapmirror create", log)

    def test_bad_input(self):
        source = self.volume("bad")
        place = f"{source}/replications"
        to = {"storagePool": "far", "volumeId": "bad2"}
        before = self.everything()
        for code, status, body, query in (
                (400, "INVALID_ARGUMENT", {"replicationSchedule": "HOURLY"}, "r"),
                (400, "INVALID_ARGUMENT", {"destinationVolumeParameters": to}, "r"),
                (400, "INVALID_ARGUMENT", {"replicationSchedule": "WEEKLY", "destinationVolumeParameters": to}, "r"),
                (400, "INVALID_ARGUMENT", {"replicationSchedule": 0, "destinationVolumeParameters": to}, "r"),
                (400, "INVALID_ARGUMENT", {"replicationSchedule": "HOURLY", "destinationVolumeParameters": to}, ""),
                (400, "INVALID_ARGUMENT", {"replicationSchedule": "HOURLY", "destinationVolumeParameters": to}, "1 2"),
                (400, "INVALID_ARGUMENT", {"replicationSchedule": "HOURLY", "labels": {"A": "b"},
                                           "destinationVolumeParameters": to}, "r"),
                (400, "INVALID_ARGUMENT", {"replicationSchedule": "HOURLY",
                                           "destinationVolumeParameters": {**to, "storagePool": "a/b"}}, "r"),
                (404, "NOT_FOUND", {"replicationSchedule": "HOURLY",
                                    "destinationVolumeParameters": {**to, "storagePool": "none"}}, "r"),
                (409, "ALREADY_EXISTS", {"replicationSchedule": "HOURLY",
                                         "destinationVolumeParameters": {**to, "volumeId": "bad"}}, "r"),
                (400, "FAILED_PRECONDITION", {"replicationSchedule": "HOURLY", "clusterLocation": "x",
                                        "destinationVolumeParameters": to}, "r")):
            self.refused(code, status, "POST", place, body, replicationId=query)
            self.assertEqual(self.everything(), before, body)
        self.refused(404, "NOT_FOUND", "GET", f"{place}/none")
        self.refused(404, "NOT_FOUND", "DELETE", f"{place}/none")
        self.refused(404, "NOT_FOUND", "POST", f"{place}/none:stop")
        self.refused(404, "NOT_FOUND", "GET", f"{PLACE}/volumes/none/replications")
        self.refused(404, "NOT_FOUND", "POST", f"{PLACE}/volumes/none/replications",
                     {"replicationSchedule": "HOURLY", "destinationVolumeParameters": to}, replicationId="r")
        self.make(source, "bad3")
        self.reached(f"{place}/r", "MIRRORED")
        self.refused(409, "ALREADY_EXISTS", "POST", place,
                     {"replicationSchedule": "HOURLY", "destinationVolumeParameters": to}, replicationId="r")
        self.refused(400, "INVALID_ARGUMENT", "PATCH", f"{place}/r", {"mirrorState": "STOPPED"}, updateMask="mirrorState")
        self.refused(400, "INVALID_ARGUMENT", "PATCH", f"{place}/r", {}, updateMask="replicationSchedule")


class Words:
    """The same with gcloud's commands."""

    def test_gcloud_words(self):
        self.volume("gsrc")
        place = ("--location=us-central1", "--volume=gsrc")
        name = f"{PLACE}/volumes/gsrc/replications/gr"
        say = lambda verb, *words: self.say("netapp", "volumes", "replications", verb, "gr", *place, *words)
        say("create", "--replication-schedule=EVERY_10_MINUTES", "--description=words", "--labels=a=b",
            "--destination-volume-parameters=storage_pool=far,volume_id=gdst,share_name=gshare")
        shown = self.reached(name, "MIRRORED")
        self.assertEqual((shown["replicationSchedule"], shown["description"], shown["labels"]),
                         ("EVERY_10_MINUTES", "words", {"a": "b"}))
        say("update", "--replication-schedule=DAILY", "--update-labels=c=d")
        described = json.loads(say("describe", "--format=json"))
        self.assertEqual((described["replicationSchedule"], described["description"], described["labels"]),
                         ("DAILY", "words", {"a": "b", "c": "d"}))
        listed = self.say("netapp", "volumes", "replications", "list", *place, "--format=value(name)")
        self.assertIn("gr", listed)
        if self.knows_sync():
            say("sync")
            self.reached(name, "MIRRORED")
        say("stop")
        self.assertEqual(self.ok("GET", name)["mirrorState"], "STOPPED")
        say("resume")
        self.reached(name, "MIRRORED")
        say("stop", "--force")
        say("reverse")
        self.assertEqual(self.reached(name, "MIRRORED")["role"], "DESTINATION")
        say("delete", "--quiet")
        self.assertEqual(self.ok("GET", f"{PLACE}/volumes/gsrc/replications"), {})


class Weir(Words, Replicated):
    def knows_sync(self):
        return True

    def say(self, *words):
        done = subprocess.run([WEIR, *words, "--project=p1"], capture_output=True, text=True, timeout=120,
                              env={**os.environ, "WEIR_SERVER": self.server.url, "HOME": "/nonexistent"})
        self.assertEqual(done.returncode, 0, (words, done.stdout, done.stderr))
        return done.stdout


@unittest.skipUnless(shutil.which("gcloud"), "gcloud is not installed")
class Gcloud(Words, Replicated):
    def knows_sync(self):
        return subprocess.run(["gcloud", "netapp", "volumes", "replications", "sync", "--help"], env=self.environment,
                              capture_output=True, timeout=120).returncode == 0

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.environment = gcloud_environment(cls)

    def say(self, *words):
        ran = subprocess.run(["gcloud", *words], env=self.environment, capture_output=True, text=True, timeout=120)
        self.assertEqual(ran.returncode, 0, f"gcloud {' '.join(words)}\n{ran.stdout}\n{ran.stderr}")
        return ran.stdout


if __name__ == "__main__":
    unittest.main()
