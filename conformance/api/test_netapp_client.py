"""The flows of the manual-QoS document (seeds 000) with google-cloud-netapp over REST."""

import unittest

from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import netapp_v1 as n
from google.longrunning import operations_pb2

from weirtest import PLACE, Case


class NetApp(Case):
    def setUp(self):
        self.client = n.NetAppClient(
            transport="rest", credentials=AnonymousCredentials(),
            client_options={"api_endpoint": self.server.url})
        self.addCleanup(self.client.transport.close)

    def pool(self, name, **fields):
        fields = {"service_level": "PREMIUM", "capacity_gib": 40960, "qos_type": "MANUAL",
                  "network": "default", **fields}
        pool = self.client.create_storage_pool(
            parent=PLACE, storage_pool_id=name, storage_pool=n.StoragePool(**fields)).result(timeout=30)
        self.addCleanup(self.forget_pool, name)
        return pool

    def forget_pool(self, name):
        for volume in list(self.client.list_volumes(parent=PLACE)):
            if volume.storage_pool == name:
                self.client.delete_volume(request={"name": volume.name, "force": True}).result(timeout=30)
        try:
            self.client.delete_storage_pool(name=f"{PLACE}/storagePools/{name}").result(timeout=30)
        except exceptions.NotFound:
            pass

    def volume(self, name, pool, **fields):
        fields = {"storage_pool": pool, "share_name": name, "capacity_gib": 1024,
                  "protocols": ["NFSV3"], **fields}
        return self.client.create_volume(
            parent=PLACE, volume_id=name, volume=n.Volume(**fields)).result(timeout=30)

    def update(self, name, paths, **fields):
        return self.client.update_volume(
            volume=n.Volume(name=f"{PLACE}/volumes/{name}", **fields),
            update_mask={"paths": paths}).result(timeout=30)

    def test_a_manual_pool_shows_what_is_given_and_what_is_left(self):
        pool = self.pool("mq")
        # 40 TiB of Premium at 64 MiB/s per TiB.
        self.assertEqual((pool.total_throughput_mibps, pool.available_throughput_mibps), (2560, 2560))
        self.assertEqual(pool.qos_type, n.QosType.MANUAL)
        self.assertEqual(pool.state, n.StoragePool.State.READY)
        volume = self.volume("mv1", "mq", throughput_mibps=128)
        self.assertEqual(volume.name, f"{PLACE}/volumes/mv1")
        self.assertEqual((volume.throughput_mibps, volume.capacity_gib), (128, 1024))
        self.assertEqual(volume.storage_pool, "mq")
        self.assertEqual(volume.state, n.Volume.State.READY)
        self.assertEqual(volume.service_level, n.ServiceLevel.PREMIUM)
        option = volume.mount_options[0]
        self.assertEqual((option.export, option.protocol), ("/mv1", n.Protocols.NFSV3))
        self.assertIn("nconnect=16", option.instructions)
        self.assertTrue(option.export_full.endswith(":/mv1"))
        # What the public definition does not have stands in the answer, and the client passes over it.
        shown = self.ok("GET", f"{PLACE}/volumes/mv1")["throughputStatus"]
        self.assertEqual(shown, {"limitSource": "PREMIUM, manual: 128 MiB/s", "waitingRequests": "0"})
        self.assertEqual(self.client.get_volume(name=f"{PLACE}/volumes/mv1").throughput_mibps, 128)
        # Throughput changes online, in both directions, apart from capacity.
        self.assertEqual(self.update("mv1", ["throughput_mibps"], throughput_mibps=2000).throughput_mibps, 2000)
        pool = self.client.get_storage_pool(name=f"{PLACE}/storagePools/mq")
        self.assertEqual((pool.available_throughput_mibps, pool.volume_count, pool.volume_capacity_gib),
                         (560, 1, 1024))
        self.update("mv1", ["throughput_mibps"], throughput_mibps=64)
        with self.assertRaises(exceptions.GoogleAPICallError) as caught:
            self.update("mv1", ["throughput_mibps"], throughput_mibps=2561)
        self.assertIn("2560", str(caught.exception.message).replace(",", ""))
        self.assertEqual(self.client.get_volume(name=f"{PLACE}/volumes/mv1").throughput_mibps, 64)

    def test_automatic_becomes_manual_and_not_back(self):
        pool = self.pool("aq", qos_type="AUTO", capacity_gib=2048)
        self.assertEqual(pool.qos_type, n.QosType.AUTO)
        name = f"{PLACE}/storagePools/aq"
        changed = self.client.update_storage_pool(
            storage_pool=n.StoragePool(name=name, qos_type="MANUAL"),
            update_mask={"paths": ["qos_type"]}).result(timeout=30)
        self.assertEqual(changed.qos_type, n.QosType.MANUAL)
        with self.assertRaises(exceptions.BadRequest):
            self.client.update_storage_pool(
                storage_pool=n.StoragePool(name=name, qos_type="AUTO"),
                update_mask={"paths": ["qos_type"]}).result(timeout=30)
        self.assertEqual(self.client.get_storage_pool(name=name).qos_type, n.QosType.MANUAL)

    def test_flex_has_no_manual_qos(self):
        with self.assertRaises(exceptions.BadRequest):
            self.pool("fq", service_level="FLEX", qos_type="MANUAL")

    def test_a_volume_grows_moves_and_shrinks_online(self):
        self.pool("from", qos_type="AUTO", capacity_gib=4096)
        self.pool("to", qos_type="AUTO", capacity_gib=4096, service_level="EXTREME")
        self.volume("mover", "from")
        self.assertEqual(self.update("mover", ["capacity_gib"], capacity_gib=2048).capacity_gib, 2048)
        moved = self.update("mover", ["storage_pool"], storage_pool="to")
        self.assertEqual((moved.storage_pool, moved.service_level), ("to", n.ServiceLevel.EXTREME))
        moved = self.update("mover", ["capacity_gib", "storage_pool"], storage_pool="from", capacity_gib=512)
        self.assertEqual((moved.storage_pool, moved.capacity_gib), ("from", 512))
        with self.assertRaises(exceptions.BadRequest):
            self.update("mover", ["capacity_gib"], capacity_gib=4097)

    def test_export_policies_come_back_as_they_were_sent(self):
        self.pool("exports", qos_type="AUTO", capacity_gib=2048)
        rules = [
            n.SimpleExportPolicyRule(allowed_clients="10.0.0.0/8,192.168.1.7", access_type="READ_ONLY",
                                     nfsv3=True, nfsv4=False, has_root_access="false"),
            n.SimpleExportPolicyRule(allowed_clients="0.0.0.0/0", access_type="READ_WRITE", nfsv3=True,
                                     squash_mode="ALL_SQUASH", anon_uid=1000),
        ]
        volume = self.volume("exp1", "exports", export_policy=n.ExportPolicy(rules=rules),
                             unix_permissions="0770", snapshot_directory=True, labels={"team": "geo"})
        self.assertEqual(list(volume.export_policy.rules), rules)
        self.assertEqual((volume.unix_permissions, volume.snapshot_directory, dict(volume.labels)),
                         ("0770", True, {"team": "geo"}))
        changed = self.update("exp1", ["export_policy"], export_policy=n.ExportPolicy(rules=rules[:1]))
        self.assertEqual(list(changed.export_policy.rules), rules[:1])
        bad = n.ExportPolicy(rules=[n.SimpleExportPolicyRule(allowed_clients="10.0.0.0/99", access_type="READ_ONLY")])
        with self.assertRaises(exceptions.BadRequest):
            self.update("exp1", ["export_policy"], export_policy=bad)
        self.assertEqual(list(self.client.get_volume(name=volume.name).export_policy.rules), rules[:1])

    def test_snapshots(self):
        self.pool("snaps", qos_type="AUTO", capacity_gib=2048)
        volume = self.volume("snapvol", "snaps")
        made = self.client.create_snapshot(
            parent=volume.name, snapshot_id="s1",
            snapshot=n.Snapshot(labels={"snapmirror-label": "daily"}, description="first")).result(timeout=30)
        self.assertEqual((made.state, dict(made.labels), made.description),
                         (n.Snapshot.State.READY, {"snapmirror-label": "daily"}, "first"))
        changed = self.client.update_snapshot(
            snapshot=n.Snapshot(name=made.name, description="second"),
            update_mask={"paths": ["description"]}).result(timeout=30)
        self.assertEqual((changed.description, dict(changed.labels)), ("second", {"snapmirror-label": "daily"}))
        self.assertEqual([s.name for s in self.client.list_snapshots(parent=volume.name)], [made.name])
        self.client.revert_volume(n.RevertVolumeRequest(name=volume.name, snapshot_id="s1")).result(timeout=30)
        with self.assertRaises(exceptions.BadRequest):
            self.client.delete_volume(request={"name": volume.name}).result(timeout=30)
        self.client.delete_snapshot(name=made.name).result(timeout=30)
        with self.assertRaises(exceptions.NotFound):
            self.client.get_snapshot(name=made.name)
        self.client.delete_volume(request={"name": volume.name}).result(timeout=30)
        with self.assertRaises(exceptions.NotFound):
            self.client.get_volume(name=volume.name)

    def test_lists_page_filter_and_order(self):
        self.pool("lists", qos_type="AUTO", capacity_gib=4096)
        for i in range(7):
            self.volume(f"list{i}", "lists", capacity_gib=100 + 10 * (i % 3), labels={"n": str(i)})
        def names(**request):
            got = self.client.list_volumes(request={"parent": PLACE, **request})
            return [v.name.rsplit("/", 1)[1] for v in got if v.storage_pool == "lists"]
        self.assertEqual(names(page_size=2), [f"list{i}" for i in range(7)])
        self.assertEqual(names(filter="labels.n=3"), ["list3"])
        self.assertEqual(names(filter='capacityGib>100 AND (labels.n=1 OR labels.n=3)'), ["list1"])
        self.assertEqual(names(order_by="capacity_gib desc,name", page_size=3, filter="storagePool=lists"),
                         ["list2", "list5", "list1", "list4", "list0", "list3", "list6"])
        everywhere = self.client.list_volumes(parent="projects/p1/locations/-")
        self.assertLess({f"list{i}" for i in range(7)}, {v.name.rsplit("/", 1)[1] for v in everywhere} | {"x"})
        with self.assertRaises(exceptions.BadRequest):
            names(filter="nonsense=1")

    def test_a_pool_with_volumes_is_not_deleted(self):
        self.pool("kept", qos_type="AUTO", capacity_gib=2048)
        self.volume("kept1", "kept")
        name = f"{PLACE}/storagePools/kept"
        with self.assertRaises(exceptions.BadRequest):
            self.client.delete_storage_pool(name=name).result(timeout=30)
        with self.assertRaises(exceptions.Conflict):
            self.pool("kept")
        with self.assertRaises(exceptions.BadRequest):
            self.client.update_storage_pool(
                storage_pool=n.StoragePool(name=name, capacity_gib=1023),
                update_mask={"paths": ["capacity_gib"]}).result(timeout=30)
        self.assertEqual(self.client.get_storage_pool(name=name).capacity_gib, 2048)

    def test_operations_and_locations(self):
        operation = self.client.create_storage_pool(
            parent=PLACE, storage_pool_id="ops", storage_pool=n.StoragePool(
                service_level="STANDARD", capacity_gib=1024, network="default"))
        self.addCleanup(self.forget_pool, "ops")
        self.assertTrue(operation.done())
        self.assertEqual(operation.metadata.target, f"{PLACE}/storagePools/ops")
        self.assertEqual(operation.metadata.verb, "create")
        name = operation.operation.name
        got = self.client.get_operation(operations_pb2.GetOperationRequest(name=name))
        self.assertTrue(got.done)
        listed = self.client.list_operations(operations_pb2.ListOperationsRequest(name=PLACE))
        self.assertIn(name, [o.name for o in listed.operations])
        self.client.cancel_operation(operations_pb2.CancelOperationRequest(name=name))
        self.client.delete_operation(operations_pb2.DeleteOperationRequest(name=name))
        with self.assertRaises(exceptions.NotFound):
            self.client.get_operation(operations_pb2.GetOperationRequest(name=name))
        locations = self.client.list_locations({"name": "projects/p1"})
        self.assertIn(PLACE, [l.name for l in locations.locations])
        self.assertEqual(self.client.get_location({"name": PLACE}).location_id, "us-central1")

    def test_active_directories(self):
        """There is no domain to join here; conformance/ad/run has one."""
        self.assertEqual(list(self.client.list_active_directories(parent=PLACE)), [])
        directory = n.ActiveDirectory(domain="python.invalid", dns="127.0.0.1", net_bios_prefix="py", username="nobody",
                                      password="a-password-of-nobody", ldap_signing=True)
        with self.assertRaisesRegex(exceptions.GoogleAPICallError, "adcli"):
            self.client.create_active_directory(parent=PLACE, active_directory_id="pad",
                                                active_directory=directory).result(timeout=300)
        name = f"{PLACE}/activeDirectories/pad"
        got = self.client.get_active_directory(name=name)
        self.assertEqual((got.state, got.domain, got.password, got.ldap_signing),
                         (n.ActiveDirectory.State.ERROR, "python.invalid", "", True))
        changed = self.client.update_active_directory(active_directory=n.ActiveDirectory(name=name, description="new"),
                                                      update_mask={"paths": ["description"]}).result(timeout=30)
        self.assertEqual(changed.description, "new")
        self.client.delete_active_directory(name=name).result(timeout=30)
        with self.assertRaises(exceptions.NotFound):
            self.client.get_active_directory(name=name)

    def test_what_is_not_here_says_so(self):
        with self.assertRaisesRegex(exceptions.BadRequest, "take snapshots"):
            self.client.create_backup_vault(parent=PLACE, backup_vault_id="b", backup_vault=n.BackupVault())
        self.assertEqual(list(self.client.list_backup_vaults(parent=PLACE)), [])
        with self.assertRaises(exceptions.NotFound):
            self.client.get_kms_config(name=f"{PLACE}/kmsConfigs/k")


if __name__ == "__main__":
    unittest.main()
