"""A data folder that an earlier build left behind, as `data-VERSION.tar.xz` beside this file.

`fixture.py make BINARY FILE` makes one with BINARY; it is made once for each released format and never changed. The test
opens it with the binary of today, so `CONTENTS` and `resources` describe what every fixture holds.
"""

import hashlib
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", folder) for folder in ("api", "attack")]
PLACE = "projects/p1/locations/us-central1"
PASSWORD = "Cheese-4-Mice"

# Files of /vol1 by name.
CONTENTS = {
    "small": b"one line\n",
    "pattern": b"".join(b"%07d\n" % n for n in range(1 << 17)),
    "sparse": bytes(3 << 20) + b"end of a hole",
    **{f"many-{n:03}": b"%d\n" % n for n in range(300)},
}
# Files of /vol1 in its snapshot `before`.
IN_SNAPSHOT = {"small": b"an older line\n", "removed": b"only in the snapshot\n"}


def digest(contents):
    return hashlib.sha256(contents).hexdigest()


def url(port, path):
    return f"nfs://127.0.0.1{path}?version=3&nfsport={port}&mountport={port}&auto-traverse-mounts=0"


def put(port, path, contents):
    with tempfile.NamedTemporaryFile() as file:
        file.write(contents)
        file.flush()
        subprocess.run(["nfs-cp", file.name, url(port, path)], check=True, stdout=subprocess.DEVNULL)


def get(port, path):
    return subprocess.run(["nfs-cat", url(port, path)], check=True, capture_output=True).stdout


def remove(port, export, name):
    from attacker import NFS, Client, auth_sys, opaque
    client = Client(port)
    results = client.call(NFS, 3, 12, opaque(client.mount(export)) + opaque(name), auth_sys())
    client.close()
    assert results[:4] == bytes(4), results


def nfs_port(server):
    return int(re.findall(r"listening on 127\.0\.0\.1:(\d+)", server.output())[0])


def make(binary, file):
    os.environ["WEIR"] = binary
    import weirtest
    with tempfile.TemporaryDirectory(prefix="weir-fixture-") as top:
        data = os.path.join(top, "data")
        server = weirtest.Server("--smb", "127.0.0.1:0", data=data, memory="256M")
        nfs = nfs_port(server)

        def done(method, path, body=None, **query):
            status, answer = server.ask(method, path, body, query)
            assert status == 200 and answer.get("done") and "error" not in answer, answer
            return answer["response"]

        for name, contents in IN_SNAPSHOT.items():
            put(nfs, f"/vol1/{name}", contents)
        done("POST", f"{PLACE}/storagePools", {"serviceLevel": "EXTREME", "capacityGib": "1024", "qosType": "MANUAL"},
             storagePoolId="pool2")
        done("POST", f"{PLACE}/volumes", {"storagePool": "pool2", "shareName": "vol2", "capacityGib": "100",
                                          "throughputMibps": 16, "protocols": ["NFSV3", "SMB"]}, volumeId="vol2")
        _, answer = server.ask("GET", "/v1/projects/weir/locations/-/volumes")
        assert "volumes" in answer, answer
        vol1 = next(v["name"] for v in answer["volumes"] if v["shareName"] == "vol1")
        done("POST", f"{vol1}/snapshots", {}, snapshotId="before")
        # A replacement and a removal, so that the snapshot alone has some blocks.
        for name in IN_SNAPSHOT:
            remove(nfs, b"/vol1", name.encode())
        for name, contents in CONTENTS.items():
            put(nfs, f"/vol1/{name}", contents)
        subprocess.run([binary, "users", "create", "mouse", "--uid", "0", "--data", data], check=True, text=True,
                       input=PASSWORD + "\n", stdout=subprocess.DEVNULL)
        server.stop()
        subprocess.run([binary, "check", data], check=True)
        with open(file, "wb") as out:
            tar = subprocess.Popen(["tar", "--create", "--sparse", "--sort=name", "--owner=0", "--group=0", "--numeric-owner",
                                    "--format=gnu", "-C", top, "data"], stdout=subprocess.PIPE)
            subprocess.run(["xz", "-9"], stdin=tar.stdout, stdout=out, check=True)
            assert tar.wait() == 0


def unpack(file, folder):
    """Unpacks a fixture; returns its data folder."""
    subprocess.run(["tar", "--extract", "--sparse", "--xz", "-C", folder, "-f", file], check=True)
    return os.path.join(folder, "data")


if __name__ == "__main__":
    make(os.path.abspath(sys.argv[2]), sys.argv[3])
