"""What csi-test's suite does not ask of the driver: data, throughput, splits, sign-in, mounts of both protocols."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest

from csitest import GIB, NO_MOUNTS, SHARED, Calls, Case, Driver, grpc, kernel_mounts
from nfs3 import Nfs, attributes, opaque
from weirtest import WEIR, Server

CREATE, WRITE, LOOKUP, READ, NFS = 8, 7, 3, 6, 100003


def port_of(volume):
    options = volume["volumeContext"]["nfs3Options"].split(",")
    return int(next(o for o in options if o.startswith("port="))[5:])


class Data(Case):
    """Files of volumes, over NFSv3."""

    def export(self, volume):
        export = Nfs(port_of(volume), volume["volumeContext"]["nfs3Source"].split(":")[1])
        self.addCleanup(export.close)
        return export

    def write(self, volume, name, data):
        import struct
        export = self.export(volume)
        made = export.call(NFS, CREATE, opaque(export.root) + opaque(name.encode()) + struct.pack(">I", 0) + attributes(mode=0o644))
        handle = export.handle(made[4:])
        export.call(NFS, WRITE, opaque(handle) + struct.pack(">QII", 0, len(data), 2) + opaque(data))

    def read(self, volume, name):
        import struct
        export = self.export(volume)
        found = export.handle(export.call(NFS, LOOKUP, opaque(export.root) + opaque(name.encode())))
        reply = export.call(NFS, READ, opaque(found) + struct.pack(">QI", 0, 1 << 16))
        follows, = struct.unpack_from(">I", reply)
        at = 4 + 84 * follows
        count, _, length = struct.unpack_from(">III", reply, at)
        return reply[at + 12:at + 12 + min(count, length)]

    def test_snapshots_and_clones_have_the_data_of_their_time(self):
        source = self.create("source")
        self.write(source, "f", b"one")
        snapshot = self.controller("CreateSnapshot", name="s1", sourceVolumeId=source["volumeId"])["snapshot"]
        self.assertEqual((snapshot["readyToUse"], snapshot["sizeBytes"]), (True, str(GIB)))
        self.write(source, "f", b"two")
        old = self.create("from-snapshot", volumeContentSource={"snapshot": {"snapshotId": snapshot["snapshotId"]}})
        now = self.create("from-volume", volumeContentSource={"volume": {"volumeId": source["volumeId"]}})
        self.assertEqual([self.read(v, "f") for v in (source, old, now)], [b"two", b"one", b"two"])
        # A clone stands on a snapshot that is nobody's but its own.
        listed = self.controller("ListSnapshots", sourceVolumeId=source["volumeId"])["entries"]
        self.assertEqual([e["snapshot"]["snapshotId"] for e in listed], [snapshot["snapshotId"]])
        # The source goes, and its clones stay whole.
        self.assertIn("s1", self.refused("FAILED_PRECONDITION", self.controller, "DeleteVolume", volumeId=source["volumeId"]))
        self.controller("DeleteSnapshot", snapshotId=snapshot["snapshotId"])
        self.assertNotIn("cloneDetails", self.volume(old["volumeId"]))
        self.controller("DeleteVolume", volumeId=source["volumeId"])
        self.assertIsNone(self.volume(source["volumeId"]))
        self.assertEqual([self.read(v, "f") for v in (old, now)], [b"one", b"two"])
        for volume in (old, now):
            self.controller("DeleteVolume", volumeId=volume["volumeId"])

    def test_the_snapshot_of_a_clone_goes_with_it(self):
        source = self.create("parent")
        clone = self.create("child", volumeContentSource={"volume": {"volumeId": source["volumeId"]}})
        path = f"projects/weir/locations/{source['volumeId'].replace('/', '/volumes/')}/snapshots"
        self.assertEqual(len(self.server.ask("GET", path)[1]["snapshots"]), 1)
        self.controller("DeleteVolume", volumeId=clone["volumeId"])
        self.assertEqual(self.server.ask("GET", path)[1].get("snapshots", []), [])
        self.controller("DeleteVolume", volumeId=source["volumeId"])

    def test_a_clone_has_the_capacity_of_its_source_at_least(self):
        source = self.create("large", gib=5)
        content = {"volume": {"volumeId": source["volumeId"]}}
        clone = self.create("larger", gib=1, volumeContentSource=content)
        self.assertEqual(clone["capacityBytes"], str(5 * GIB))
        self.assertEqual(clone["contentSource"], content)
        self.refused("ALREADY_EXISTS", self.create, "larger")
        again = self.create("larger", volumeContentSource=content)
        self.assertEqual(again["volumeId"], clone["volumeId"])


class Volumes(Case):
    def test_a_class_of_attributes_changes_the_throughput_online(self):
        volume = self.create("tuned", mutableParameters={"throughput": "16"})
        self.assertEqual(self.volume(volume["volumeId"])["throughputMibps"], 16)
        self.controller("ControllerModifyVolume", volumeId=volume["volumeId"], mutableParameters={"throughput": "48"})
        self.assertEqual(self.volume(volume["volumeId"])["throughputMibps"], 48)
        self.controller("ControllerModifyVolume", volumeId=volume["volumeId"], mutableParameters={"throughput": "48"})
        for value, code in (("fast", "INVALID_ARGUMENT"), ("99999999", "INVALID_ARGUMENT")):
            self.refused(code, self.controller, "ControllerModifyVolume", volumeId=volume["volumeId"],
                         mutableParameters={"throughput": value})
        self.refused("INVALID_ARGUMENT", self.controller, "ControllerModifyVolume", volumeId=volume["volumeId"],
                     mutableParameters={"iops": "9"})
        self.assertEqual(self.volume(volume["volumeId"])["throughputMibps"], 48)

    def test_a_class_says_what_its_volumes_have(self):
        volume = self.create("classy", parameters={
            "protocols": "nfsv3", "allowedClients": "10.0.0.0/8", "squash": "none", "snapshotPolicy": "daily=7",
            "unixPermissions": "0750", "csi.storage.k8s.io/pvc/name": "data", "csi.storage.k8s.io/pvc/namespace": "shop"})
        made = self.volume(volume["volumeId"])
        rule, = made["exportPolicy"]["rules"]
        self.assertEqual((made["protocols"], made["unixPermissions"], made["description"], rule["allowedClients"]),
                         (["NFSV3"], "0750", "PersistentVolumeClaim shop/data", "10.0.0.0/8"))
        self.assertEqual(int(made["snapshotPolicy"]["dailySchedule"]["snapshotsToKeep"]), 7)
        self.assertIn("colour", self.refused("INVALID_ARGUMENT", self.create, "x", parameters={"colour": "red"}))
        self.assertIn("nopool", self.refused("INVALID_ARGUMENT", self.create, "x", parameters={"pool": "nopool"}))
        self.assertIn("../default", self.refused("INVALID_ARGUMENT", self.create, "x", parameters={"pool": "../default"}))

    def test_what_does_not_fit_is_refused_and_leaves_nothing(self):
        self.refused("RESOURCE_EXHAUSTED", self.create, "vast", gib=5000)
        self.assertIsNone(self.volume("local/vast"))
        volume = self.create("grown")
        grown = self.controller("ControllerExpandVolume", volumeId=volume["volumeId"], capacityRange={"requiredBytes": 3 * GIB - 1})
        self.assertEqual((grown["capacityBytes"], grown.get("nodeExpansionRequired", False)), (str(3 * GIB), False))
        # It never shrinks.
        same = self.controller("ControllerExpandVolume", volumeId=volume["volumeId"], capacityRange={"requiredBytes": GIB})
        self.assertEqual(same["capacityBytes"], str(3 * GIB))
        self.refused("RESOURCE_EXHAUSTED", self.controller, "ControllerExpandVolume", volumeId=volume["volumeId"],
                     capacityRange={"requiredBytes": 5000 * GIB})
        before = int(self.controller("GetCapacity", parameters={"pool": "csi"})["availableCapacity"])
        self.create("counted", gib=7)
        after = int(self.controller("GetCapacity", parameters={"pool": "csi"})["availableCapacity"])
        self.assertEqual(before - after, 7 * GIB)

    def test_a_volume_is_made_once_however_often_and_by_whomever(self):
        with tempfile.TemporaryDirectory() as folder:
            other = Driver(folder, self.server.url, mode="controller")
            self.addCleanup(other.close)
            calls = [self.calls, Calls(other.socket)]
            self.addCleanup(calls[1].close)
            made, tries = [], [0]

            def create(call):
                while True:
                    try:
                        made.append(call("Controller", "CreateVolume", name="race", volumeCapabilities=[SHARED],
                                         parameters={"pool": "csi"})["volume"]["volumeId"])
                        return
                    except grpc.RpcError as e:
                        tries[0] += 1
                        if e.code() != grpc.StatusCode.ABORTED or tries[0] > 1000:
                            raise
            threads = [threading.Thread(target=create, args=(calls[n % 2],)) for n in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(made, ["local/race"] * 8)
            # A killed driver leaves its socket, and nothing else.
            other.stop(signal.SIGKILL)
            again = Driver(folder, self.server.url, mode="controller")
            self.addCleanup(again.close)
            listed = Calls(again.socket)
            self.addCleanup(listed.close)
            ids = [e["volume"]["volumeId"] for e in listed("Controller", "ListVolumes")["entries"]]
            self.assertEqual(ids.count("local/race"), 1)

    def test_lists_say_how_volumes_are(self):
        volume = self.create("healthy")
        entry = next(e for e in self.controller("ListVolumes")["entries"] if e["volume"]["volumeId"] == volume["volumeId"])
        self.assertEqual(entry["status"]["volumeCondition"], {"message": "READY"})
        shown = self.controller("ControllerGetVolume", volumeId=volume["volumeId"])
        self.assertEqual(shown, entry)
        self.refused("NOT_FOUND", self.controller, "ControllerGetVolume", volumeId="local/none")
        self.refused("NOT_FOUND", self.controller, "ControllerGetVolume", volumeId="local/../../x")
        self.refused("ABORTED", self.controller, "ListVolumes", startingToken="x")

    def test_topology_is_the_location(self):
        key = "csi.weir.internal/location"
        self.assertEqual(self.node("NodeGetInfo")["accessibleTopology"]["segments"], {key: "local"})
        status, answer = self.server.ask("POST", "projects/weir/locations/east/storagePools?storagePoolId=csi", {
            "serviceLevel": "FLEX", "capacityGib": "1024", "network": "default"})
        self.assertEqual(status, 200, answer)
        wanted = {"requisite": [{"segments": {key: "east"}}], "preferred": [{"segments": {key: "east"}}]}
        volume = self.create("far", accessibilityRequirements=wanted)
        self.assertEqual((volume["volumeId"], volume["accessibleTopology"]), ("east/far", [{"segments": {key: "east"}}]))
        nowhere = {"requisite": [{"segments": {key: "west"}}]}
        self.refused("INVALID_ARGUMENT", self.create, "further", accessibilityRequirements=nowhere)
        self.controller("DeleteVolume", volumeId="east/far")

    def test_the_server_may_be_away(self):
        with tempfile.TemporaryDirectory() as folder:
            away = Driver(folder, "http://127.0.0.1:1", mode="controller")
            self.addCleanup(away.close)
            calls = Calls(away.socket)
            self.addCleanup(calls.close)
            self.assertEqual(calls("Identity", "Probe")["ready"], False)
            said = self.refused("UNAVAILABLE", calls, "Controller", "ListVolumes")
            self.assertIn("cannot reach the Weir server at http://127.0.0.1:1", said)
        self.assertEqual(self.calls("Identity", "Probe")["ready"], True)


class SignIn(unittest.TestCase):
    """A server with TLS and tokens."""

    @unittest.skipIf(grpc is None, "conformance/api/run has not installed gRPC for Python")
    def test_tokens_and_service_accounts(self):
        server = Server()
        self.addCleanup(server.close)
        status, answer = server.ask("POST", "tokens?tokenId=admin", {"role": "ADMIN"})
        self.assertEqual(status, 200, answer)
        folder = tempfile.TemporaryDirectory(prefix="weir-csi-")
        self.addCleanup(folder.cleanup)
        place = pathlib.Path(folder.name)
        (place / "admin").write_text(answer["token"] + "\n")
        server.stop()
        server.arguments = ("--api-tls", "generate")
        server.start()
        certificate = os.path.join(server.data, "api-cert.pem")
        made = subprocess.run(
            [WEIR, "tokens", "create", "csi", "--role", "editor", "--service-account", place / "csi.json", "--server", server.url,
             "--ca-cert", certificate, "--access-token-file", place / "admin"], capture_output=True, text=True)
        self.assertEqual(made.returncode, 0, made.stderr)
        (place / "wrong").write_text("weir_" + "0" * 64)
        for n, (arguments, good) in enumerate((
                (["--access-token-file", place / "admin"], True),
                (["--service-account", place / "csi.json"], True),
                (["--access-token-file", place / "wrong"], False),
                ([], False))):
            with tempfile.TemporaryDirectory() as own:
                driver = Driver(own, server.url, "--ca-cert", certificate, *map(str, arguments), mode="controller")
                calls = Calls(driver.socket)
                try:
                    if good:
                        calls("Controller", "CreateVolume", name=f"v{n}", volumeCapabilities=[SHARED])
                    else:
                        with self.assertRaises(grpc.RpcError) as raised:
                            calls("Controller", "ListVolumes")
                        self.assertEqual(raised.exception.code(), grpc.StatusCode.UNAUTHENTICATED)
                finally:
                    calls.close()
                    driver.close()


@unittest.skipIf(NO_MOUNTS, "needs root, to mount")
@unittest.skipUnless(shutil.which("nfs-ls") or kernel_mounts("nfs"), "libnfs's tools are not installed (Debian: libnfs-utils)")
class Mounts(Case):
    def paths(self):
        folder = tempfile.mkdtemp(prefix="weir-csi-pods-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        return os.path.join(folder, "staged"), os.path.join(folder, "pod", "mount")

    def of(self, volume, **capability):
        use = {**SHARED, **capability}
        return {"volumeId": volume["volumeId"], "volumeContext": volume["volumeContext"], "volumeCapability": use}

    def mounted(self, path):
        return subprocess.run(["mountpoint", "-q", path]).returncode == 0

    def test_a_volume_is_staged_published_and_taken_away(self):
        volume = self.create("used")
        staged, target = self.paths()
        use = self.of(volume, mount={"mountFlags": ["nfsvers=3", "soft", "timeo=50"]})
        self.refused("FAILED_PRECONDITION", self.node, "NodePublishVolume", stagingTargetPath=staged, targetPath=target, **use)
        for _ in range(2):
            self.node("NodeStageVolume", stagingTargetPath=staged, **use)
        for _ in range(2):
            self.node("NodePublishVolume", stagingTargetPath=staged, targetPath=target, **use)
        self.assertTrue(self.mounted(staged) and self.mounted(target))
        pathlib.Path(target, "f").write_text("from a pod")
        self.assertEqual(pathlib.Path(staged, "f").read_text(), "from a pod")
        usage = {u["unit"]: u for u in self.node("NodeGetVolumeStats", volumeId=volume["volumeId"], volumePath=target)["usage"]}
        self.assertEqual(set(usage), {"BYTES", "INODES"})
        self.refused("NOT_FOUND", self.node, "NodeGetVolumeStats", volumeId=volume["volumeId"], volumePath=target + "/none")
        # Another use of the same place is another thing.
        self.refused("ALREADY_EXISTS", self.node, "NodePublishVolume", stagingTargetPath=staged, targetPath=target, readonly=True, **use)
        other = self.create("other")
        self.refused("ALREADY_EXISTS", self.node, "NodeStageVolume", stagingTargetPath=staged, **self.of(other))
        for _ in range(2):
            self.node("NodeUnpublishVolume", volumeId=volume["volumeId"], targetPath=target)
        self.assertFalse(os.path.exists(target))
        self.node("NodePublishVolume", stagingTargetPath=staged, targetPath=target, readonly=True, **use)
        with self.assertRaises(OSError):
            pathlib.Path(target, "g").write_text("x")
        self.assertEqual(pathlib.Path(target, "f").read_text(), "from a pod")
        self.node("NodeUnpublishVolume", volumeId=volume["volumeId"], targetPath=target)
        for _ in range(2):
            self.node("NodeUnstageVolume", volumeId=volume["volumeId"], stagingTargetPath=staged)
        self.assertFalse(self.mounted(staged))

    @unittest.skipIf(kernel_mounts("nfs"), "the words of mount(8) are read where a stand-in takes them")
    def test_mounts_are_what_the_server_advises(self):
        volume = self.create("advised", parameters={"protocols": "nfs,smb"})
        staged, _ = self.paths()
        pathlib.Path(self.driver.mounts).write_text("")
        self.node("NodeStageVolume", stagingTargetPath=staged, **self.of(volume, mount={"mountFlags": ["nconnect=4"]}))
        self.node("NodeUnstageVolume", volumeId=volume["volumeId"], stagingTargetPath=staged)
        use = self.of(volume, mount={"fsType": "cifs"})
        self.refused("INVALID_ARGUMENT", self.node, "NodeStageVolume", stagingTargetPath=staged, **use)
        self.node("NodeStageVolume", stagingTargetPath=staged, secrets={"username": "mouse", "password": "cheese"}, **use)
        self.node("NodeUnstageVolume", volumeId=volume["volumeId"], stagingTargetPath=staged)
        nfs, cifs, user, password = pathlib.Path(self.driver.mounts).read_text().splitlines()
        self.assertRegex(nfs, r"^nfs vers=4\.2,proto=tcp,hard,.*,port=\d+,nconnect=4 127\.0\.0\.1:/advised$")
        self.assertNotIn("nconnect=16", nfs)
        self.assertRegex(cifs, r"^cifs vers=3\.1\.1,port=\d+,credentials=/\S+ //127\.0\.0\.1/advised$")
        self.assertEqual((user, password), ("  username=mouse", "  password=cheese"))
        self.assertFalse(os.path.exists(cifs.split("credentials=")[1].split()[0]))
        gone = {**volume["volumeContext"], "nfs4Source": "127.0.0.1:/none"}
        said = self.refused("INTERNAL", self.node, "NodeStageVolume", stagingTargetPath=staged,
                            **{**self.of(volume), "volumeContext": gone})
        self.assertIn("mount failed", said)

    def test_a_node_in_a_container_mounts_with_the_machines_own_programs(self):
        root = tempfile.mkdtemp(prefix="weir-csi-root-")
        self.addCleanup(os.rmdir, root)
        subprocess.run(["mount", "--rbind", "/", root], check=True)
        self.addCleanup(subprocess.run, ["umount", "-R", "-l", root], check=True)
        volume = self.create("contained")
        with tempfile.TemporaryDirectory() as folder:
            driver = Driver(folder, None, "--host-root", root, mode="node")
            self.addCleanup(driver.close)
            calls = Calls(driver.socket)
            self.addCleanup(calls.close)
            staged, target = self.paths()
            use = self.of(volume)
            calls("Node", "NodeStageVolume", stagingTargetPath=staged, **use)
            calls("Node", "NodePublishVolume", stagingTargetPath=staged, targetPath=target, **use)
            self.assertTrue(self.mounted(root + target))
            self.assertTrue(calls("Node", "NodeGetVolumeStats", volumeId=volume["volumeId"], volumePath=target)["usage"])
            self.refused("UNIMPLEMENTED", calls, "Controller", "ListVolumes")
            calls("Node", "NodeUnpublishVolume", volumeId=volume["volumeId"], targetPath=target)
            calls("Node", "NodeUnstageVolume", volumeId=volume["volumeId"], stagingTargetPath=staged)
            self.assertFalse(self.mounted(root + staged))


@unittest.skipIf(NO_MOUNTS, "needs root, to mount")
@unittest.skipUnless("SANITY" in os.environ, "csi-sanity could not be built: no Go, or no module proxy")
@unittest.skipUnless(shutil.which("nfs-ls") or kernel_mounts("nfs"), "libnfs's tools are not installed (Debian: libnfs-utils)")
class Sanity(Case):
    def test_the_suite_of_csi_test(self):
        place = pathlib.Path(self.folder)
        (place / "pods").mkdir()
        (place / "class.yaml").write_text("pool: csi\n")
        (place / "attributes.yaml").write_text('throughput: "2"\n')
        done = subprocess.run(
            [os.environ["SANITY"], "-csi.endpoint", f"unix://{self.driver.socket}", "-csi.testvolumeparameters", place / "class.yaml",
             "-csi.testvolumemutableparameters", place / "attributes.yaml", "-csi.mountdir", place / "pods/target",
             "-csi.stagingdir", place / "pods/staging", "-ginkgo.no-color",
             # This release knows the capabilities of CSI 1.11, and takes GET_SNAPSHOT of 1.12 for a mistake.
             "-ginkgo.skip", "ControllerGetCapabilities should return appropriate capabilities"], capture_output=True, text=True, timeout=600)
        said = done.stdout + done.stderr
        self.assertEqual(done.returncode, 0, said[-8000:])
        self.assertRegex(said, r"\b[67]\d Passed \| 0 Failed")


if __name__ == "__main__":
    unittest.main()
