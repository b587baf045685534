"""Snapshots as their users have them: Google's client and plain requests against the real binary, over NFS where that counts."""

import datetime
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import netapp_v1 as n

from nfs3 import Nfs
from weirtest import PLACE, Case, Server

POOLS, VOLUMES = (f"{PLACE}/{c}" for c in ("storagePools", "volumes"))
MIB = 1 << 20


def client_of(case, server):
    client = n.NetAppClient(transport="rest", credentials=AnonymousCredentials(),
                            client_options={"api_endpoint": server.url})
    case.addCleanup(client.transport.close)
    return client


class Snapshots(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        status, answer = cls.server.ask("POST", POOLS, {"serviceLevel": "EXTREME", "capacityGib": "40960",
                                                        "network": "default"}, {"storagePoolId": "p"})
        assert status == 200 and answer["done"], answer

    def setUp(self):
        self.client = client_of(self, self.server)

    def volume(self, name, **fields):
        return self.client.create_volume(parent=PLACE, volume_id=name, volume=n.Volume(**{
            "storage_pool": "p", "share_name": name, "capacity_gib": 100, "protocols": ["NFSV3"],
            "unix_permissions": "0777", **fields})).result(timeout=30)

    def snapshot(self, volume, name, **fields):
        return self.client.create_snapshot(parent=volume.name, snapshot_id=name,
                                           snapshot=n.Snapshot(**fields)).result(timeout=30)

    def names(self, volume):
        return [s.name.rsplit("/", 1)[-1] for s in self.client.list_snapshots(parent=volume.name)]

    def update(self, volume, paths, **fields):
        return self.client.update_volume(volume=n.Volume(name=volume.name, **fields),
                                         update_mask={"paths": paths}).result(timeout=30)

    def test_a_policy_comes_back_as_it_was_sent(self):
        policy = n.SnapshotPolicy(
            enabled=True,
            hourly_schedule=n.HourlySchedule(snapshots_to_keep=24, minute=5),
            daily_schedule=n.DailySchedule(snapshots_to_keep=7, minute=10, hour=2),
            weekly_schedule=n.WeeklySchedule(snapshots_to_keep=4, minute=15, hour=3, day="Monday,Friday"),
            monthly_schedule=n.MonthlySchedule(snapshots_to_keep=12, days_of_month="1,15"))
        volume = self.volume("policy", snapshot_policy=policy, snap_reserve=20)
        self.assertEqual((volume.snapshot_policy, volume.snap_reserve), (policy, 20))
        less = n.SnapshotPolicy(enabled=True, hourly_schedule=n.HourlySchedule(snapshots_to_keep=6, minute=5))
        self.assertEqual(self.update(volume, ["snapshot_policy"], snapshot_policy=less).snapshot_policy, less)
        for wrong, field in [
            (n.SnapshotPolicy(enabled=True, hourly_schedule=n.HourlySchedule(minute=5)), "snapshotsToKeep"),
            (n.SnapshotPolicy(hourly_schedule=n.HourlySchedule(snapshots_to_keep=1, minute=60)), "minute"),
            (n.SnapshotPolicy(daily_schedule=n.DailySchedule(snapshots_to_keep=1, hour=24)), "hour"),
            (n.SnapshotPolicy(weekly_schedule=n.WeeklySchedule(snapshots_to_keep=1, day="Someday")), "day"),
            (n.SnapshotPolicy(monthly_schedule=n.MonthlySchedule(snapshots_to_keep=1, days_of_month="32")), "daysOfMonth"),
        ]:
            with self.assertRaises(exceptions.BadRequest) as caught:
                self.update(volume, ["snapshot_policy"], snapshot_policy=wrong)
            self.assertIn(field, caught.exception.message)
        self.assertEqual(self.client.get_volume(name=volume.name).snapshot_policy, less)

    def test_labels_and_names(self):
        volume = self.volume("names")
        made = self.snapshot(volume, "hourly.2026-11-22_0405", labels={"snapmirror-label": "hourly"})
        changed = self.client.update_snapshot(
            snapshot=n.Snapshot(name=made.name, labels={"snapmirror-label": "daily", "team": "geo"}),
            update_mask={"paths": ["labels"]}).result(timeout=30)
        self.assertEqual(dict(changed.labels), {"snapmirror-label": "daily", "team": "geo"})
        self.snapshot(volume, "taken")
        rename = f"{volume.name}/snapshots/hourly.2026-11-22_0405:rename"
        self.refused(409, "ALREADY_EXISTS", "POST", rename, {"newSnapshotId": "taken"})
        self.refused(400, "INVALID_ARGUMENT", "POST", rename, {"newSnapshotId": ".."})
        self.refused(400, "INVALID_ARGUMENT", "POST", rename, {})
        self.refused(404, "NOT_FOUND", "POST", f"{volume.name}/snapshots/nope:rename", {"newSnapshotId": "x"})
        renamed = self.done("POST", rename, {"newSnapshotId": "release-1"})
        self.assertEqual((renamed["name"], renamed["labels"]["team"], renamed["state"]),
                         (f"{volume.name}/snapshots/release-1", "geo", "READY"))
        self.assertEqual(self.names(volume), ["release-1", "taken"])
        self.assertEqual(renamed["createTime"], self.ok("GET", renamed["name"])["createTime"])

    def test_a_thousand_and_more(self):
        volume = self.volume("many")
        count = 1100
        with ThreadPoolExecutor(16) as pool:
            made = pool.map(lambda i: self.server.ask("POST", f"{volume.name}/snapshots", {}, {"snapshotId": f"s{i:04}"}),
                            range(count))
            self.assertEqual({(status, answer["done"], "error" in answer) for status, answer in made},
                             {(200, True, False)})
        listed = list(self.client.list_snapshots(n.ListSnapshotsRequest(parent=volume.name, page_size=100)))
        self.assertEqual([s.name.rsplit("/", 1)[-1] for s in listed], [f"s{i:04}" for i in range(count)])
        self.assertEqual({s.state for s in listed}, {n.Snapshot.State.READY})
        for i in range(0, count, 11):
            self.done("DELETE", f"{volume.name}/snapshots/s{i:04}")
        self.assertEqual(self.names(volume), [f"s{i:04}" for i in range(count) if i % 11])
        self.client.delete_volume(request={"name": volume.name, "force": True}).result(timeout=60)

    def test_a_clone_and_its_splitting(self):
        volume = self.volume("origin")
        snapshot = self.snapshot(volume, "base")
        clone = self.volume("clone", restore_parameters=n.RestoreParameters(source_snapshot=snapshot.name))
        details = clone.clone_details
        self.assertEqual((details.source_snapshot, details.source_volume, details.split_state),
                         (snapshot.name, volume.name, n.SplitState.SPLIT_STATE_NOT_SPLITTING))
        status = self.client.get_split_status(n.GetSplitStatusRequest(name=clone.name))
        self.assertEqual(status.split_state, n.SplitState.SPLIT_STATE_NOT_SPLITTING)
        # Neither the snapshot nor its volume can go while there is the clone.
        for gone in (lambda: self.client.delete_snapshot(name=snapshot.name),
                     lambda: self.client.delete_volume(request={"name": volume.name, "force": True})):
            with self.assertRaises(exceptions.GoogleAPICallError):
                gone().result(timeout=30)
        # Its name may change, and the clone knows it.
        self.done("POST", f"{snapshot.name}:rename", {"newSnapshotId": "renamed"})
        self.assertEqual(self.client.get_volume(name=clone.name).clone_details.source_snapshot,
                         f"{volume.name}/snapshots/renamed")
        split = self.client.start_split(n.StartSplitRequest(name=clone.name)).result(timeout=60)
        self.assertEqual(split.name, clone.name)
        self.assertFalse(self.client.get_volume(name=clone.name).clone_details.source_volume)
        for ask in (lambda: self.client.get_split_status(n.GetSplitStatusRequest(name=clone.name)),
                    lambda: self.client.start_split(n.StartSplitRequest(name=volume.name))):
            with self.assertRaises(exceptions.BadRequest):
                ask()
        self.client.delete_snapshot(name=f"{volume.name}/snapshots/renamed").result(timeout=30)
        self.client.delete_volume(request={"name": volume.name}).result(timeout=30)
        self.snapshot(clone, "s")

    @unittest.skipUnless(shutil.which("nfs-cp"), "libnfs's tools are not installed (Debian: libnfs-utils)")
    def test_what_clients_see(self):
        everyone = n.ExportPolicy(rules=[n.SimpleExportPolicyRule(
            allowed_clients="0.0.0.0/0", access_type="READ_WRITE", has_root_access="true")])
        volume = self.volume("seen", snapshot_directory=True, export_policy=everyone)
        port = re.search(r",port=(\d+)", volume.mount_options[0].instructions)[1]

        def url(path):
            return f"nfs://127.0.0.1/{path}?version=3&nfsport={port}&mountport={port}&auto-traverse-mounts=0"

        def write(path, data):
            with tempfile.NamedTemporaryFile() as file:
                file.write(data)
                file.flush()
                return subprocess.run(["nfs-cp", file.name, url(path)], capture_output=True, timeout=60).returncode == 0

        def read(path):
            got = subprocess.run(["nfs-cat", url(path)], capture_output=True, timeout=60)
            return got.stdout if got.returncode == 0 else None

        first, second = os.urandom(4 * MIB), os.urandom(4 * MIB)
        self.assertTrue(write("seen/f", first))
        s1 = self.snapshot(volume, "s1")
        writer = Nfs(int(port), "/seen")
        self.addCleanup(writer.close)
        writer.write(writer.lookup(b"f"), second)
        s2 = self.snapshot(volume, "s2")
        self.assertEqual((read("seen/.snapshot/s1/f"), read("seen/.snapshot/s2/f"), read("seen/f")),
                         (first, second, second))
        self.assertFalse(write("seen/.snapshot/s1/new", b"no"))
        # Exact: s1 alone holds the first content and the few blocks of its tree; s2 nothing of its own yet.
        deadline = time.monotonic() + 30
        while self.client.get_snapshot(name=s1.name).used_bytes < 4 * MIB and time.monotonic() < deadline:
            time.sleep(0.2)
        used = self.client.get_snapshot(name=s1.name).used_bytes
        self.assertGreaterEqual(used, 4 * MIB)
        self.assertLess(used, 4 * MIB + 64 * 1024)
        self.assertLess(self.client.get_snapshot(name=s2.name).used_bytes, 64 * 1024)
        self.assertEqual({s.used_bytes for s in self.client.list_snapshots(parent=volume.name)},
                         {self.client.get_snapshot(name=s.name).used_bytes for s in (s1, s2)})
        # A clone is writable at once and has its own life; so it has after it was split.
        clone = self.volume("seenclone", export_policy=everyone, snapshot_directory=True,
                            restore_parameters=n.RestoreParameters(source_snapshot=s1.name))
        self.assertEqual(read("seenclone/f"), first)
        self.assertTrue(write("seenclone/g", b"mine"))
        self.client.start_split(n.StartSplitRequest(name=clone.name)).result(timeout=60)
        self.assertEqual((read("seenclone/f"), read("seenclone/g"), read("seen/g")), (first, b"mine", None))
        # Seen only where the volume shows it.
        self.update(volume, ["snapshot_directory"], snapshot_directory=False)
        self.assertIsNone(read("seen/.snapshot/s1/f"))
        self.update(volume, ["snapshot_directory"], snapshot_directory=True)
        self.assertEqual(read("seen/.snapshot/s1/f"), first)
        # Back, and back again.
        self.client.revert_volume(n.RevertVolumeRequest(name=volume.name, snapshot_id="s1")).result(timeout=30)
        self.assertEqual((read("seen/f"), self.names(volume)), (first, ["s1"]))


class Schedules(unittest.TestCase):
    """A schedule at work in the real binary. That it has slept is the catalog's word: its times are set back."""

    def test_what_was_missed_is_taken_once_and_too_many_go(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-schedules-")
        self.addCleanup(folder.cleanup)
        data = os.path.join(folder.name, "data")
        server = Server(data=data)
        self.addCleanup(lambda: server.close())
        client = client_of(self, server)
        client.create_storage_pool(parent=PLACE, storage_pool_id="p", storage_pool=n.StoragePool(
            service_level="PREMIUM", capacity_gib=2048, network="default")).result(timeout=30)
        now = datetime.datetime.now(datetime.timezone.utc)
        # Half an hour away from now, so that none is due by itself meanwhile.
        minute = (now.minute + 30) % 60
        policy = n.SnapshotPolicy(enabled=True, hourly_schedule=n.HourlySchedule(snapshots_to_keep=2, minute=minute))
        volume = client.create_volume(parent=PLACE, volume_id="v", volume=n.Volume(
            storage_pool="p", share_name="v", capacity_gib=100, protocols=["NFSV3"], snapshot_policy=policy)).result(timeout=30)
        client.create_snapshot(parent=volume.name, snapshot_id="mine", snapshot=n.Snapshot()).result(timeout=30)
        seen = []
        for _ in range(3):
            server.stop(signal.SIGKILL)
            self.sleep_two_hours(data)
            server.start()
            client = client_of(self, server)
            newest = self.wait_for_another(client, volume.name, seen)
            self.assertEqual(dict(newest.labels), {"snapmirror-label": "hourly"})
            self.assertRegex(newest.name, r"/hourly\.\d{4}-\d\d-\d\d_\d{4}(_\d+)?$")
            seen.append(newest.name)
            left = {s.name for s in client.list_snapshots(parent=volume.name)}
            deadline = time.monotonic() + 30
            while left != {f"{volume.name}/snapshots/mine", *seen[-2:]} and time.monotonic() < deadline:
                time.sleep(0.1)
                left = {s.name for s in client.list_snapshots(parent=volume.name)}
            self.assertEqual(left, {f"{volume.name}/snapshots/mine", *seen[-2:]})
        client.update_volume(volume=n.Volume(name=volume.name, snapshot_policy=n.SnapshotPolicy(enabled=False)),
                             update_mask={"paths": ["snapshot_policy"]}).result(timeout=30)
        self.assertEqual(len(list(client.list_snapshots(parent=volume.name))), 3)

    @staticmethod
    def sleep_two_hours(data):
        with sqlite3.connect(os.path.join(data, "catalog.db")) as catalog:
            moved = catalog.execute(
                """UPDATE volumes SET body = json_remove(json_set(body, '$.snapshot_runs.hourly.since',
                   json_extract(body, '$.snapshot_runs.hourly.since') - 7200), '$.snapshot_runs.hourly.last')
                   WHERE json_extract(body, '$.snapshot_runs.hourly.since') IS NOT NULL""").rowcount
            assert moved == 1, moved
        catalog.close()

    def wait_for_another(self, client, volume, seen):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            for snapshot in client.list_snapshots(parent=volume):
                if snapshot.name not in seen and "/hourly." in snapshot.name and snapshot.state == n.Snapshot.State.READY:
                    return snapshot
            time.sleep(0.1)
        self.fail("no snapshot was taken")


if __name__ == "__main__":
    unittest.main()
