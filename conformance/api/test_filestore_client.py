"""The tiers of the Filestore document (seeds 001) with google-cloud-filestore over REST."""

import unittest

from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import filestore_v1 as f

from weirtest import PLACE, Case

TB = 1024  # GB, as Filestore counts capacity
MB = 1_000_000


class Filestore(Case):
    def setUp(self):
        self.client = f.CloudFilestoreManagerClient(
            transport="rest", credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self.server.url})
        self.addCleanup(self.client.transport.close)

    def instance(self, name, tier, capacity, share=None, **fields):
        fields = {"networks": [f.NetworkConfig(network="default", modes=["MODE_IPV4"])], **fields}
        options = fields.pop("options", [])
        made = self.client.create_instance(
            parent=PLACE, instance_id=name, instance=f.Instance(
                tier=tier, file_shares=[f.FileShareConfig(
                    name=share or name, capacity_gb=capacity, nfs_export_options=options)],
                **fields)).result(timeout=30)
        self.addCleanup(self.forget, name)
        return made

    def forget(self, name):
        try:
            self.client.delete_instance(
                request={"name": f"{PLACE}/instances/{name}", "force": True}).result(timeout=30)
        except exceptions.NotFound:
            pass

    def update(self, name, paths, **fields):
        return self.client.update_instance(
            instance=f.Instance(name=f"{PLACE}/instances/{name}", **fields),
            update_mask={"paths": paths}).result(timeout=30)

    def test_every_tier_of_the_document_has_its_limits(self):
        for tier, capacity, read_iops, write_iops, read, write in [
            ("BASIC_HDD", 1 * TB, 600, 1000, 100, 100),
            ("BASIC_HDD", 10 * TB, 1000, 5000, 180, 120),
            ("BASIC_SSD", 2560, 60000, 25000, 1200, 350),
            ("HIGH_SCALE_SSD", 60 * TB, 90000, 30000, 3000, 660),
            ("HIGH_SCALE_SSD", 320 * TB, 480000, 160000, 16000, 3520),
        ]:
            with self.subTest(tier=tier, capacity=capacity):
                made = self.instance("tier", tier, capacity)
                limits = made.performance_limits
                self.assertEqual(
                    (limits.max_read_iops, limits.max_write_iops,
                     limits.max_read_throughput_bps, limits.max_write_throughput_bps),
                    (read_iops, write_iops, read * MB, write * MB))
                self.assertEqual((made.tier.name, made.state), (tier, f.Instance.State.READY))
                self.assertEqual(made.networks[0].network, "default")
                self.assertEqual(len(made.networks[0].ip_addresses), 1)
                self.forget("tier")

    def test_a_high_scale_instance_grows_and_shrinks_by_ten_tb(self):
        self.instance("hs", "HIGH_SCALE_SSD", 60 * TB)
        def resize(capacity):
            return self.update("hs", ["file_shares"], file_shares=[
                f.FileShareConfig(name="hs", capacity_gb=capacity)])
        self.assertEqual(resize(70 * TB).performance_limits.max_read_throughput_bps, 3500 * MB)
        self.assertEqual(resize(10 * TB).performance_limits.max_write_throughput_bps, 110 * MB)
        with self.assertRaises(exceptions.BadRequest):
            resize(15 * TB)
        got = self.client.get_instance(name=f"{PLACE}/instances/hs")
        self.assertEqual(got.file_shares[0].capacity_gb, 10 * TB)

    def test_export_options_labels_and_description(self):
        options = [
            f.NfsExportOptions(ip_ranges=["10.0.0.0/29", "192.168.1.7"], access_mode="READ_ONLY",
                               squash_mode="ROOT_SQUASH", anon_uid=1000, anon_gid=1001),
            f.NfsExportOptions(ip_ranges=["10.1.0.0/16"], access_mode="READ_WRITE",
                               squash_mode="NO_ROOT_SQUASH"),
        ]
        made = self.instance("opts", "ZONAL", 1 * TB, options=options, labels={"a": "b"})
        self.assertEqual(list(made.file_shares[0].nfs_export_options), options)
        changed = self.update("opts", ["labels", "description"], labels={"c": "d"}, description="words")
        self.assertEqual((dict(changed.labels), changed.description), ({"c": "d"}, "words"))
        # Growing a share without naming its options leaves them.
        changed = self.update("opts", ["file_shares"], file_shares=[
            f.FileShareConfig(name="opts", capacity_gb=2 * TB)])
        self.assertEqual(list(changed.file_shares[0].nfs_export_options), options)
        with self.assertRaises(exceptions.BadRequest):
            self.update("opts", ["file_shares"], file_shares=[
                f.FileShareConfig(name="other", capacity_gb=2 * TB)])

    def test_etags_keep_updates_from_overwriting_each_other(self):
        made = self.instance("tagged", "BASIC_HDD", 1 * TB)
        self.assertTrue(made.etag)
        changed = self.update("tagged", ["description"], description="one", etag=made.etag)
        self.assertNotEqual(changed.etag, made.etag)
        with self.assertRaises(exceptions.Conflict):
            self.update("tagged", ["description"], description="two", etag=made.etag)
        self.assertEqual(self.client.get_instance(name=made.name).description, "one")

    def test_lists_go_through_all_locations(self):
        made = self.instance("everywhere", "BASIC_SSD", 2560)
        listed = self.client.list_instances(parent="projects/p1/locations/-")
        self.assertIn(made.name, [i.name for i in listed])
        self.assertEqual(list(self.client.list_backups(parent="projects/p1/locations/-")), [])

    def test_deletion_protection_and_snapshots(self):
        made = self.instance("kept", "ZONAL", 1 * TB, deletion_protection_enabled=True)
        self.assertTrue(made.deletion_protection_enabled)
        with self.assertRaises(exceptions.BadRequest):
            self.client.delete_instance(name=made.name).result(timeout=30)
        self.update("kept", ["deletion_protection_enabled"], deletion_protection_enabled=False)
        snapshot = self.client.create_snapshot(
            parent=made.name, snapshot_id="s1", snapshot=f.Snapshot(description="one")).result(timeout=30)
        self.assertEqual(snapshot.state, f.Snapshot.State.READY)
        self.assertEqual([s.name for s in self.client.list_snapshots(parent=made.name)], [snapshot.name])
        self.client.revert_instance(f.RevertInstanceRequest(
            name=made.name, target_snapshot_id="s1")).result(timeout=30)
        self.client.delete_snapshot(name=snapshot.name).result(timeout=30)
        self.client.delete_instance(name=made.name).result(timeout=30)
        with self.assertRaises(exceptions.NotFound):
            self.client.get_instance(name=made.name)

    def test_custom_performance(self):
        made = self.instance("perf", "ZONAL", 10 * TB)
        if not made.custom_performance_supported:
            self.skipTest("no tier of the levels file has custom performance")
        changed = self.update("perf", ["performance_config"], performance_config=f.Instance.PerformanceConfig(
            iops_per_tb=f.Instance.IOPSPerTB(max_iops_per_tb=7500)))
        self.assertEqual(changed.performance_limits.max_read_iops, 75000)

    def test_capacities_that_a_tier_does_not_have_are_refused(self):
        for tier, capacity in [("BASIC_HDD", 1023), ("BASIC_SSD", 2559), ("HIGH_SCALE_SSD", 10 * TB + 1),
                               ("BASIC_HDD", 64 * TB)]:
            with self.subTest(tier=tier, capacity=capacity), self.assertRaises(exceptions.BadRequest):
                self.instance("never", tier, capacity)
        self.assertNotIn("never", str(list(self.client.list_instances(parent=PLACE))))


if __name__ == "__main__":
    unittest.main()
