"""Google's libraries over gRPC, their default: every test over REST again, synchronous and asynchronous; and what is gRPC's own."""

import unittest

import grpc
from google.api_core import exceptions
from google.cloud import filestore_v1, netapp_v1
from google.longrunning import operations_pb2
from google.protobuf import duration_pb2, field_mask_pb2
from google.rpc import error_details_pb2
from grpc_status import rpc_status

import test_filestore_client
import test_netapp_client
import test_replications
from overgrpc import Asynchronous, synchronous
from weirtest import PLACE, Case

NETAPP, OPERATIONS = "/google.cloud.netapp.v1.NetApp", "/google.longrunning.Operations"


def over(client, kind, base):
    """The tests of `base` with another transport."""

    def set_up(self):
        target = f"127.0.0.1:{self.server.port}"
        if kind == "grpc":
            channel = grpc.insecure_channel(target)
            self.client = synchronous(client, channel)
            self.addCleanup(channel.close)
        else:
            self.client = Asynchronous(client, target)
            self.addCleanup(self.client.close)
    return type(f"{base.__module__.removeprefix('test_')}_{kind}", (base,), {"setUp": set_up, "__module__": __name__})


NetAppGrpc = over(netapp_v1.NetAppClient, "grpc", test_netapp_client.NetApp)
NetAppAsyncio = over(netapp_v1.NetAppAsyncClient, "grpc_asyncio", test_netapp_client.NetApp)
ReplicationsGrpc = over(netapp_v1.NetAppClient, "grpc", test_replications.NetApp)
ReplicationsAsyncio = over(netapp_v1.NetAppAsyncClient, "grpc_asyncio", test_replications.NetApp)
FilestoreGrpc = over(filestore_v1.CloudFilestoreManagerClient, "grpc", test_filestore_client.Filestore)
FilestoreAsyncio = over(filestore_v1.CloudFilestoreManagerAsyncClient, "grpc_asyncio", test_filestore_client.Filestore)


class Calls(Case):
    def setUp(self):
        self.channel = grpc.insecure_channel(f"127.0.0.1:{self.server.port}")
        self.addCleanup(self.channel.close)
        self.client = synchronous(netapp_v1.NetAppClient, self.channel)

    def raw(self, path, message, **keywords):
        return self.channel.unary_unary(path)(message, timeout=20, **keywords)

    def failed(self, code, path, message, words, **keywords):
        with self.assertRaises(grpc.RpcError) as caught:
            self.raw(path, message, **keywords)
        self.assertEqual(caught.exception.code(), code, caught.exception)
        self.assertIn(words, caught.exception.details())
        return caught.exception

    def test_errors_have_the_details_of_rest(self):
        request = netapp_v1.CreateStoragePoolRequest(
            parent=PLACE, storage_pool_id="bad", storage_pool=netapp_v1.StoragePool(service_level="PREMIUM"))
        sent = self.channel.unary_unary(
            NETAPP + "/CreateStoragePool", request_serializer=netapp_v1.CreateStoragePoolRequest.serialize)
        with self.assertRaises(grpc.RpcError) as caught:
            sent(request, timeout=20)
        status = rpc_status.from_call(caught.exception)
        error = self.refused(400, "INVALID_ARGUMENT", "POST", f"{PLACE}/storagePools",
                             {"serviceLevel": "PREMIUM"}, storagePoolId="bad")
        self.assertEqual((status.code, status.message), (3, error["message"]))
        info, fields = error_details_pb2.ErrorInfo(), error_details_pb2.BadRequest()
        self.assertTrue(status.details[0].Unpack(info) and status.details[1].Unpack(fields))
        shown = error["details"]
        self.assertEqual((info.reason, info.domain), (shown[0]["reason"], shown[0]["domain"]))
        self.assertEqual([(v.field, v.description) for v in fields.field_violations],
                         [(v["field"], v["description"]) for v in shown[1]["fieldViolations"]])
        # As a program of the library's sees them.
        with self.assertRaises(exceptions.NotFound) as caught:
            self.client.get_volume(name=f"{PLACE}/volumes/nothing")
        self.assertEqual((caught.exception.reason, caught.exception.domain),
                         ("RESOURCE_NOT_FOUND", "netapp.googleapis.com"))
        # Text that a header cannot hold.
        with self.assertRaises(exceptions.InvalidArgument) as caught:
            self.client.list_volumes(request={"parent": PLACE, "filter": "größe\n=1"})
        self.assertIn("größe", caught.exception.message)

    def test_what_is_no_call_is_refused_in_grpcs_terms(self):
        code = grpc.StatusCode
        self.failed(code.UNIMPLEMENTED, NETAPP + "/Nothing", b"", "No such method")
        self.failed(code.UNIMPLEMENTED, "/x", b"", "No such method")
        self.failed(code.UNIMPLEMENTED, NETAPP + "/ListBackupConfigs",
                    netapp_v1.ListVolumesRequest.serialize(
                        netapp_v1.ListVolumesRequest(parent=f"{PLACE}/storagePools/p")), "not implemented")
        self.failed(code.UNIMPLEMENTED, NETAPP + "/ListVolumes", b"", "Compressed", compression=grpc.Compression.Gzip)
        self.failed(code.INVALID_ARGUMENT, NETAPP + "/ListVolumes", b"\x07\xff", "Invalid message")
        self.failed(code.INVALID_ARGUMENT, NETAPP + "/ListVolumes", b"\xf8\x3f\x01", "Unknown field 1023")
        self.failed(code.RESOURCE_EXHAUSTED, NETAPP + "/ListVolumes", b"\x0a" + bytes(300_000), "exceeds the limit")

        def volume(name):
            return netapp_v1.GetVolumeRequest.serialize(netapp_v1.GetVolumeRequest(name=name))
        for name in ("", "v", f"{PLACE}/volumes", f"{PLACE}/volumes/", f"{PLACE}/volumes/v/snapshots/s",
                     f"{PLACE}/volumes/v:getSplitStatus", f"{PLACE}/storagePools/p", f"/{PLACE}/volumes/v"):
            self.failed(code.INVALID_ARGUMENT, NETAPP + "/GetVolume", volume(name), "'name'")
        for name in (f"{PLACE}/volumes/v?force=true", f"{PLACE}/volumes/v%2f", f"{PLACE}/volumes/../volumes/v"):
            error = self.failed(code.NOT_FOUND if ".." not in name else code.INVALID_ARGUMENT,
                                NETAPP + "/GetVolume", volume(name), "")
            self.assertNotIn("force", str(error.details().replace(name, "")))

    def test_masks_and_options_travel(self):
        pool = netapp_v1.StoragePool(service_level="PREMIUM", capacity_gib=2048, network="default", description="a",
                                     labels={"x": "y"})
        self.client.create_storage_pool(parent=PLACE, storage_pool_id="masks", storage_pool=pool).result(timeout=30)
        name = f"{PLACE}/storagePools/masks"
        changed = netapp_v1.StoragePool(name=name, description="b", labels={"x": "z"})
        for mask, expected in ((["labels.x"], ("a", "z")), (["description"], ("b", "z"))):
            done = self.client.update_storage_pool(
                storage_pool=changed, update_mask=field_mask_pb2.FieldMask(paths=mask)).result(timeout=30)
            self.assertEqual((done.description, done.labels["x"]), expected)
        cleared = netapp_v1.StoragePool(name=name)
        done = self.client.update_storage_pool(
            storage_pool=cleared, update_mask={"paths": ["description", "labels"]}).result(timeout=30)
        self.assertEqual((done.description, dict(done.labels)), ("", {}))
        with self.assertRaisesRegex(exceptions.InvalidArgument, "nonsense"):
            self.client.update_storage_pool(storage_pool=cleared, update_mask={"paths": ["nonsense"]})

    def test_waiting_for_an_operation(self):
        made = self.client.create_storage_pool(parent=PLACE, storage_pool_id="waited", storage_pool=netapp_v1.StoragePool(
            service_level="PREMIUM", capacity_gib=2048, network="default"))
        name = made.operation.name
        wait = self.channel.unary_unary(
            OPERATIONS + "/WaitOperation", request_serializer=operations_pb2.WaitOperationRequest.SerializeToString,
            response_deserializer=operations_pb2.Operation.FromString)
        for request in (operations_pb2.WaitOperationRequest(name=name),
                        operations_pb2.WaitOperationRequest(name=name, timeout=duration_pb2.Duration(seconds=5))):
            self.assertTrue(wait(request, timeout=20).done)
        with self.assertRaises(grpc.RpcError) as caught:
            wait(operations_pb2.WaitOperationRequest(name=name + "x"), timeout=20)
        self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_operations_of_both_apis_are_listed(self):
        self.client.create_storage_pool(parent=PLACE, storage_pool_id="both", storage_pool=netapp_v1.StoragePool(
            service_level="PREMIUM", capacity_gib=2048, network="default")).result(timeout=30)
        filestore = synchronous(filestore_v1.CloudFilestoreManagerClient, self.channel)
        filestore.create_instance(parent=PLACE, instance_id="both", instance=filestore_v1.Instance(
            tier="BASIC_HDD", file_shares=[filestore_v1.FileShareConfig(name="both", capacity_gb=1024)])).result(timeout=30)
        listed = filestore.list_operations(operations_pb2.ListOperationsRequest(name=PLACE)).operations
        kinds = {operation.metadata.type_url.rsplit("/", 1)[-1] for operation in listed}
        self.assertEqual(kinds, {"google.cloud.netapp.v1.OperationMetadata", "google.cloud.common.OperationMetadata"})

    def test_ontap_through_the_pool(self):
        self.client.create_storage_pool(parent=PLACE, storage_pool_id="ontap", storage_pool=netapp_v1.StoragePool(
            service_level="PREMIUM", capacity_gib=2048, network="default")).result(timeout=30)
        path = f"{PLACE}/storagePools/ontap/ontap/api"
        got = self.client.execute_ontap_get(netapp_v1.ExecuteOntapGetRequest(ontap_path=f"{path}/storage/volumes"))
        self.assertIn("records", dict(got.body))
        with self.assertRaises(exceptions.NotFound):
            self.client.execute_ontap_get(netapp_v1.ExecuteOntapGetRequest(ontap_path=f"{path}/nothing"))

    def test_many_calls_at_once_over_one_connection(self):
        call = self.channel.unary_unary(NETAPP + "/ListVolumes",
                                        request_serializer=netapp_v1.ListVolumesRequest.serialize)
        calls = [call.future(netapp_v1.ListVolumesRequest(parent=PLACE), timeout=60) for _ in range(500)]
        for called in calls:
            self.assertIsInstance(called.result(), bytes)


if __name__ == "__main__":
    unittest.main()
