"""A server, a driver, and gRPC calls to it by CSI's own descriptors."""

import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from weirtest import WEIR, Server

try:
    import grpc
    from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
except ImportError:
    grpc = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
CSI = pathlib.Path(WEIR).resolve().with_name("weir-csi")
NO_MOUNTS = "NO_MOUNTS" in os.environ
PLACE = "projects/weir/locations/local"
GIB = 1 << 30
# A use that most volumes are for.
SHARED = {"mount": {}, "accessMode": {"mode": "MULTI_NODE_MULTI_WRITER"}}


def kernel_mounts(kind):
    """Whether this kernel has the client; a module is loaded if there is one."""
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", kind], check=False, capture_output=True)
    return f"\t{kind}\n" in pathlib.Path("/proc/filesystems").read_text() and shutil.which(f"mount.{kind}") is not None


class Driver:
    """`weir csi` on a socket in a folder of its own."""

    def __init__(self, folder, server, *arguments, mode="all"):
        self.socket = os.path.join(folder, "csi.sock")
        self.mounts = os.path.join(folder, "mounts")
        self.log = open(os.path.join(folder, "log"), "a+")
        path = os.environ["PATH"]
        if not kernel_mounts("nfs"):
            path = f"{pathlib.Path(__file__).resolve().parent / 'bin'}:{path}"
        arguments = [*arguments, *(["--server", server] if server else [])]
        self.process = subprocess.Popen(
            [CSI, "--endpoint", f"unix://{self.socket}", "--mode", mode, "--node-id", "n1", *arguments],
            stdin=subprocess.DEVNULL, stderr=self.log, env={**os.environ, "PATH": path, "MOUNT_LOG": self.mounts})
        end = time.monotonic() + 30
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the driver did not start:\n" + self.said())
            time.sleep(0.02)

    def said(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(30)
        if how == signal.SIGTERM and code != 0:
            raise RuntimeError(f"the driver ended with {code}:\n" + self.said())

    def close(self):
        if self.process.poll() is None:
            self.stop()
        self.log.close()


class Calls:
    """CSI's methods, with messages as JSON."""

    def __init__(self, socket):
        every = descriptor_pb2.FileDescriptorSet.FromString((ROOT / "crates/csi/descriptors/csi.binpb").read_bytes())
        pool = descriptor_pool.DescriptorPool()
        for file in every.file:
            pool.Add(file)
        self.pool = pool
        # As Go's library names it, which the sidecars use; this one would name the path, which is no host.
        self.channel = grpc.insecure_channel(f"unix://{socket}", options=[("grpc.default_authority", "localhost")])

    def close(self):
        self.channel.close()

    def __call__(self, service, method, **fields):
        described = self.pool.FindServiceByName(f"csi.v1.{service}").FindMethodByName(method)
        sent = json_format.ParseDict(fields, message_factory.GetMessageClass(described.input_type)())
        call = self.channel.unary_unary(
            f"/csi.v1.{service}/{method}", lambda m: m.SerializeToString(),
            message_factory.GetMessageClass(described.output_type).FromString)
        return json_format.MessageToDict(call(sent, timeout=120, wait_for_ready=True))


@unittest.skipIf(grpc is None, "conformance/api/run has not installed gRPC for Python")
class Case(unittest.TestCase):
    """Tests that share a server, with a pool whose QoS is manual, and a driver."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.server = Server("--smb", "127.0.0.1:0")
        cls.addClassCleanup(cls.server.close)
        status, answer = cls.server.ask("POST", f"{PLACE}/storagePools?storagePoolId=csi", {
            "serviceLevel": "EXTREME", "capacityGib": "4096", "qosType": "MANUAL", "network": "default"})
        assert status == 200, answer
        folder = tempfile.TemporaryDirectory(prefix="weir-csi-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        cls.driver = Driver(cls.folder, cls.server.url)
        cls.addClassCleanup(lambda: cls.driver.close())
        cls.calls = Calls(cls.driver.socket)
        cls.addClassCleanup(cls.calls.close)

    def controller(self, method, **fields):
        return self.calls("Controller", method, **fields)

    def node(self, method, **fields):
        return self.calls("Node", method, **fields)

    def create(self, name, gib=1, parameters=None, **fields):
        """A new volume, as CSI has it."""
        return self.controller(
            "CreateVolume", name=name, capacityRange={"requiredBytes": gib * GIB}, volumeCapabilities=[SHARED],
            parameters={"pool": "csi", **(parameters or {})}, **fields)["volume"]

    def refused(self, code, call, *arguments, **fields):
        with self.assertRaises(grpc.RpcError) as raised:
            call(*arguments, **fields)
        self.assertEqual(raised.exception.code(), getattr(grpc.StatusCode, code), raised.exception.details())
        return raised.exception.details()

    def volume(self, id):
        """The volume as the server has it; None: it has none."""
        location, name = id.split("/")
        status, answer = self.server.ask("GET", f"projects/weir/locations/{location}/volumes/{name}")
        return answer if status == 200 else None
