"""Volumes as shares, as the API and ONTAP's words have them."""

import json
import struct
import subprocess
import time
import urllib.error
import urllib.request
import uuid

import smbwire
from smbwire import Client, Refused
from weirsmb import MOUNT, NFS, PASSWORD, WEIR, SmbTest, attacker, opaque


PLACE = "/v1/projects/weir/locations/local"


class Api:
    """Requests of the API of `self.server`."""

    def api(self, method, path, body=None):
        request = urllib.request.Request(self.server.api + PLACE + path, method=method,
                                         data=None if body is None else json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)


class Shares(SmbTest, Api):
    OPTIONS = ("--api", "127.0.0.1:0")

    def ontap(self, line):
        done = subprocess.run([WEIR, "ontap", line, "--server", self.server.api], capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def test_an_encrypted_share_takes_nothing_else(self):
        volume = {"storagePool": "default", "shareName": "safe", "capacityGib": "1", "protocols": ["SMB"],
                  "smbSettings": ["ENCRYPT_DATA"], "unixPermissions": "0777"}
        code, made = self.api("POST", "/volumes?volumeId=safe", volume)
        self.assertEqual(code, 200, made)
        (self.server.top / "f").write_text("hello")
        for protocol in ("SMB3_00", "SMB3_11"):
            # The client does not ask for encryption: the share does.
            self.run_ok("put f; get f back; del f", share="safe", protocol=protocol)
        self.run_ok("ls", protocol="SMB2_10")
        ok, out = self.server.smbclient("ls", share="safe", protocol="SMB2_10")
        self.assertIn("NT_STATUS_ACCESS_DENIED", out)
        self.assertIn("SMB share refused to a client that cannot encrypt", self.server.log())
        self.assertIn("encrypt-data", self.ontap("vserver cifs share show -share-name safe"))
        code, changed = self.api("PATCH", "/volumes/safe?updateMask=smbSettings", {"smbSettings": []})
        self.assertEqual(code, 200, changed)
        self.run_ok("ls", share="safe", protocol="SMB2_10")

    def test_the_first_write_on_a_volume_with_smb_alone(self):
        volume = {"storagePool": "default", "shareName": "docs", "capacityGib": "1", "protocols": ["SMB"]}
        code, made = self.api("POST", "/volumes?volumeId=docs", volume)
        self.assertEqual((code, made["response"]["securityStyle"]), (200, "NTFS"), made)
        made = self.server.users("create", "clerk", "--uid", "1000")
        self.assertEqual(made.returncode, 0, made)
        ok, out = self.server.smbclient(f"put {__file__} first", user="clerk", share="docs")
        self.assertTrue(ok, out)
        self.assertRegex(self.ontap("vserver cifs share show -share-name docs -fields acl"), "Everyone / Full Control")
        # With NFS as well the permissions are those of UNIX, which the reply says.
        code, made = self.api("POST", "/volumes?volumeId=both", {**volume, "shareName": "both", "protocols": ["NFSV3", "SMB"]})
        self.assertEqual(code, 200, made)
        self.assertIn("volume both has security style UNIX", made["metadata"]["statusMessage"])
        ok, out = self.server.smbclient(f"put {__file__} first", user="clerk", share="both")
        self.assertIn("NT_STATUS_ACCESS_DENIED", out)
        self.assertRegex(self.ontap("vserver cifs share show -share-name both -fields acl"), "UNIX permissions")

    def test_permissions_of_an_ntfs_volume_are_windows_alone(self):
        volume = {"storagePool": "default", "shareName": "ntfs", "capacityGib": "1", "protocols": ["NFSV3", "SMB"], "securityStyle": "NTFS",
                  "exportPolicy": {"rules": [{"allowedClients": "0.0.0.0/0", "accessType": "READ_WRITE", "hasRootAccess": "true", "nfsv3": True}]}}
        code, refused = self.api("POST", "/volumes?volumeId=ntfs", {**volume, "unixPermissions": "0770"})
        self.assertEqual((code, refused["error"]["details"][0]["reason"]), (400, "NO_MODE_OF_NTFS"))
        code, made = self.api("POST", "/volumes?volumeId=ntfs", volume)
        self.assertEqual(code, 200, made)
        code, shown = self.api("GET", "/volumes/ntfs")
        self.assertEqual((shown["securityStyle"], shown["unixPermissions"]), ("NTFS", "0777"))
        self.assertIn("ntfs", self.ontap("volume show -volume ntfs -fields security-style"))
        code, fixed = self.api("PATCH", "/volumes/ntfs?updateMask=securityStyle", {"securityStyle": "UNIX"})
        self.assertEqual(code, 400, fixed)
        made = self.server.users("create", "tom", "--uid", "4711")
        self.assertEqual(made.returncode, 0, made.stderr)
        (self.server.top / "f").write_text("hello")
        # The root of a new one is everyone's.
        self.run_ok("put f toms; mkdir d", share="ntfs", user="tom")
        client = attacker.Client(self.server.nfs_port(), timeout=60)
        self.addCleanup(client.close)
        results = client.call(MOUNT, 3, 1, opaque(b"/ntfs"), attacker.auth_sys())
        self.assertEqual(results[:4], bytes(4))
        root = results[8:8 + int.from_bytes(results[4:8], "big")]
        chmod = opaque(root) + struct.pack(">II", 1, 0o755) + bytes(4 * 6)
        perm = 1
        self.assertEqual(int.from_bytes(client.call(NFS, 3, 2, chmod, attacker.auth_sys())[:4], "big"), perm)
        created = client.call(NFS, 3, 8, opaque(root) + opaque(b"nfss") + struct.pack(">III", 0, 1, 0o600) + bytes(20), attacker.auth_sys())
        self.assertEqual(created[:4], bytes(4))
        # Made with a mode that nobody asked Windows about: it has what the directory passes on.
        self.run_ok("get nfss back", share="ntfs", user="tom")

    def test_shares_are_the_volumes_that_say_so(self):
        volume = {"storagePool": "default", "shareName": "Win", "capacityGib": "1", "protocols": ["SMB"],
                  "smbSettings": ["NON_BROWSABLE", "ACCESS_BASED_ENUMERATION"], "unixPermissions": "0777"}
        code, made = self.api("POST", "/volumes?volumeId=win", volume)
        self.assertEqual(code, 200, made)
        code, nfs = self.api("POST", "/volumes?volumeId=nfs", {**volume, "shareName": "nfs", "protocols": ["NFSV3"],
                                                               "smbSettings": []})
        self.assertEqual(code, 200, nfs)
        listed = self.run_ok("help", share="IPC$", options=["-L", "127.0.0.1"])
        self.assertIn("vol1", listed)
        for hidden in ("Win", "nfs"):
            self.assertNotIn(hidden, listed)
        ok, out = self.server.smbclient("ls", share="nfs")
        self.assertIn("NT_STATUS_BAD_NETWORK_NAME", out)

        self.run_ok("mkdir found", share="win")
        code, changed = self.api("PATCH", "/volumes/win?updateMask=protocols", {"protocols": ["SMB", "NFSV3"]})
        self.assertEqual(code, 200, changed)
        self.assertEqual([line["protocol"] for line in self.api("GET", "/volumes/win")[1]["mountOptions"]], ["SMB", "NFSV3"])

        shown = self.ontap("vserver cifs share show")
        self.assertRegex(shown, r"weir +Win +/Win +oplocks")
        self.assertIn("access-based-enumeration", shown)
        self.assertNotIn("nfs ", shown)
        self.assertEqual(self.ontap("cifs share create -vserver weir -share-name N2 -path /nfs").strip(), "")
        self.run_ok("ls", share="n2")
        self.assertIn("shared as \"N2\" already", self.ontap("cifs share create -vserver weir -share-name N3 -path /nfs"))
        self.assertEqual(self.ontap("cifs share delete -vserver weir -share-name n2").strip(), "")
        ok, out = self.server.smbclient("ls", share="n2")
        self.assertIn("NT_STATUS_BAD_NETWORK_NAME", out)

        # A session that is there for as long as its client runs.
        client = subprocess.Popen(["smbclient", "-s", self.server.config, "-p", self.server.port, "-U", f"mouse%{PASSWORD}",
                                   "//127.0.0.1/vol1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        self.addCleanup(client.wait)
        self.addCleanup(client.kill)
        self.addCleanup(client.stdin.close)
        deadline = time.monotonic() + 30
        while "mouse" not in (sessions := self.ontap("cifs session show -instance")):
            self.assertLess(time.monotonic(), deadline, sessions)
            time.sleep(0.1)
        for word in ("127.0.0.1", "SMB3_1", "vol1"):
            self.assertIn(word, sessions)


class LostCatalog(SmbTest, Api):
    OPTIONS = ("--api", "127.0.0.1:0")

    def client(self, user):
        client = Client(int(self.server.port), user, PASSWORD, uuid.uuid4().bytes)
        self.addCleanup(client.close)
        client.connect("win")
        return client

    def test_an_ntfs_volume_is_one_again(self):
        volume = {"storagePool": "default", "shareName": "win", "capacityGib": "1", "protocols": ["NFSV3", "SMB"], "securityStyle": "NTFS",
                  "smbSettings": ["NON_BROWSABLE"], "snapshotDirectory": True}
        code, made = self.api("POST", "/volumes?volumeId=win", volume)
        self.assertEqual(code, 200, made)
        for user, uid in (("tom", 4711), ("ann", 4712)):
            self.assertEqual(self.server.users("create", user, "--uid", str(uid)).returncode, 0)
        tom = self.client("tom")
        file, *_ = tom.create("f", [])
        tom.write(file, 0, b"hello")
        read = 0x120089
        tom.set_list(file, (4711, smbwire.ALL), (4713, read))
        before = tom.descriptor(file)

        def judged():
            tom = self.client("tom")
            file, *_ = tom.create("f", [], disposition=smbwire.OPEN)
            self.assertEqual(tom.descriptor(file), before)
            self.assertEqual(tom.read(file, 0, 5), b"hello")
            with self.assertRaisesRegex(Refused, "ACCESS_DENIED"):
                self.client("ann").create("f", [], disposition=smbwire.OPEN, access=read)
            # What is made has what the root passes on, and no mode: everyone's.
            self.client("ann").create("anns", [])
            self.client("tom").create("anns", [], disposition=smbwire.OPEN)
            shown = self.api("GET", "/volumes/win")[1]
            self.assertEqual({name: shown.get(name) for name in volume if name != "storagePool"},
                             {name: value for name, value in volume.items() if name != "storagePool"})

        judged()
        self.server.stop()
        for file in self.server.data.glob("catalog.db*"):
            file.unlink()
        rebuilt = subprocess.run([WEIR, "catalog", "rebuild", self.server.data], capture_output=True, text=True, timeout=60)
        self.assertEqual(rebuilt.returncode, 0, rebuilt.stderr)
        self.server.start()
        ok, out = self.server.smbclient("ls", share="win", user="tom")
        self.assertIn("NT_STATUS_BAD_NETWORK_NAME", out)
        # What it prints is what to do.
        command = next(line for line in rebuilt.stdout.splitlines() if line.startswith("  weir volumes update win "))
        words = [word.replace("ADDRESSES", "0.0.0.0/0") for word in command.split()[1:]]
        done = subprocess.run([WEIR, *words, "--server", self.server.api], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stderr)
        judged()
