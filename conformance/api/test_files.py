"""Files in snapshots: which versions of one there are, downloads by ranges, restores beside and over. With hostile input."""

import base64
import http.client
import re
import socket
import threading
import time
import unittest
import urllib.parse

from nfs3 import Nfs
from weirtest import PLACE, Case

POOLS, VOLUMES = (f"{PLACE}/{c}" for c in ("storagePools", "volumes"))
V = f"{VOLUMES}/v"
MIB = 1 << 20
BIG = bytes(n * 7 % 251 for n in range(3 * MIB + 12345))


class Files(Case):
    """A volume with a file that changed between snapshots, and has gone since."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for path, query, body in (
                (POOLS, {"storagePoolId": "p"}, {"capacityGib": "2048", "serviceLevel": "PREMIUM", "network": "n"}),
                (VOLUMES, {"volumeId": "v"}, {
                    "storagePool": "p", "capacityGib": "100", "shareName": "v", "protocols": ["NFSV3"],
                    "exportPolicy": {"rules": [{"allowedClients": "127.0.0.1", "accessType": "READ_WRITE",
                                                "hasRootAccess": "true", "nfsv3": True}]}})):
            status, answer = cls.server.ask("POST", path, body, query)
            assert status == 200 and answer.get("done") and "error" not in answer, answer
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", cls.server.output())[1])
        cls.nfs = Nfs(port, "/v")
        cls.addClassCleanup(cls.nfs.close)
        cls.dir = cls.nfs.mkdir(b"reports")
        cls.nfs.put(b"may.csv", BIG, cls.dir, mode=0o640, uid=1234, gid=5678, mtime=(1700000000, 500000000))
        cls.nfs.put(b"odd\xff\n", b"odd", cls.dir)
        cls.nfs.symlink(b"way", b"reports")
        cls.nfs.symlink(b"passwd", b"/etc/passwd")
        # More than kernels buffer for a client that reads nothing.
        cls.nfs.put(b"large", bytes(24 * MIB))
        cls.snapshot("s1")
        cls.snapshot("s2")
        cls.nfs.put(b"may.csv", b"second", cls.dir)
        cls.snapshot("s3")
        cls.nfs.remove(b"may.csv", cls.dir)
        cls.snapshot("s4")

    @classmethod
    def snapshot(cls, name):
        status, answer = cls.server.ask("POST", f"{V}/snapshots", {}, {"snapshotId": name})
        assert status == 200 and answer.get("done"), answer

    def get(self, path, headers=None, method="GET", snapshot="s1", raw=None):
        connection = self.server.connect()
        self.addCleanup(connection.close)
        query = raw or urllib.parse.urlencode({"path": path})
        connection.request(method, f"/v1/{V}/snapshots/{snapshot}:download?{query}", headers=headers or {})
        answer = connection.getresponse()
        return answer, answer.read()

    def test_versions_of_a_file(self):
        found = self.ok("GET", f"{V}:findFile", path="/reports/may.csv")
        self.assertEqual(found["path"], "/reports/may.csv")
        self.assertNotIn("live", found)
        self.assertGreaterEqual(found["searchedSnapshots"], 4)
        second, first = found["versions"]
        self.assertEqual((first["firstSnapshot"], first["lastSnapshot"], first["snapshotCount"]), ("s1", "s2", 2))
        self.assertEqual((first["sizeBytes"], first["modifyTime"]), (str(len(BIG)), "2023-11-14T22:13:20.5Z"))
        self.assertEqual((second["firstSnapshot"], second["lastSnapshot"], second["sizeBytes"]), ("s3", "s3", "6"))
        self.assertEqual((first["inLiveVolume"], second["inLiveVolume"]), (False, False))
        odd = base64.b64encode(b"/reports/odd\xff\n").decode()
        found = self.ok("GET", f"{V}:findFile", pathBytes=odd)
        self.assertEqual((found["pathBytes"], found["live"]["sizeBytes"]), (odd, "3"))
        self.assertIs(found["versions"][0]["inLiveVolume"], True)
        self.refused(404, "NOT_FOUND", "GET", f"{V}:findFile", path="/nowhere")
        self.refused(404, "NOT_FOUND", "GET", f"{VOLUMES}/none:findFile", path="/nowhere")

    def test_paths_lead_nowhere_else(self):
        long = "a" * 256
        for path in ("", "/", "..", "/../etc/passwd", "/reports/../may.csv", "/reports/./may.csv", "/a\0b", long, "a/" * 3000):
            with self.subTest(path=path[:20]):
                self.refused(400, "INVALID_ARGUMENT", "GET", f"{V}:findFile", path=path)
                self.assertEqual(self.get(path)[0].status, 400)
                for more in ({}, {"inPlace": True}, {"overwrite": True}):
                    self.refused(400, "INVALID_ARGUMENT", "POST", f"{V}:restoreFile", {"snapshot": "s1", "path": path, **more})
        for raw in ("path=%ff", "path=%zz", "pathBytes=Li4=", "pathBytes=***", "path=/a&pathBytes=L2E=", "paths=/a"):
            self.assertEqual(self.get("", raw=raw)[0].status, 400, raw)
        # Symbolic links, to a directory of the volume and out of it, are not followed.
        for path in ("/way/may.csv", "/passwd", "/reports"):
            self.assertEqual(self.get(path)[0].status, 400, path)
            self.refused(400, "FAILED_PRECONDITION", "POST", f"{V}:restoreFile", {"snapshot": "s1", "path": path})
        for snapshot in ("none", "..", "%2e%2e", "a" * 5000):
            self.assertEqual(self.get("/reports/may.csv", snapshot=snapshot)[0].status, 404, snapshot[:9])
        for body in ({}, {"snapshot": "s1"}, {"path": "/a"}, {"snapshot": "s1", "path": 3}, {"snapshot": "s1", "path": "/a", "x": 1},
                     [], "{", {"snapshot": "s1", "path": "/a", "overwrite": "yes"}):
            self.refused(400, "INVALID_ARGUMENT", "POST", f"{V}:restoreFile", body)

    def test_downloads_by_ranges(self):
        answer, data = self.get("/reports/may.csv")
        self.assertEqual((answer.status, data == BIG, answer.getheader("Content-Length")), (200, True, str(len(BIG))))
        self.assertEqual((answer.getheader("Content-Type"), answer.getheader("Accept-Ranges"), answer.getheader("X-Content-Type-Options")),
                         ("application/octet-stream", "bytes", "nosniff"))
        self.assertEqual(answer.getheader("Content-Disposition"), "attachment; filename*=UTF-8''may.csv")
        tag = answer.getheader("ETag")
        size = len(BIG)
        for wanted, first, last in (("0-0", 0, 0), ("1000000-2500000", 1000000, 2500000), (f"{size - 5}-", size - 5, size - 1),
                                    ("-7", size - 7, size - 1), (f"5-{10 * size}", 5, size - 1), (f"-{10 * size}", 0, size - 1)):
            answer, data = self.get("/reports/may.csv", {"Range": f"bytes={wanted}"})
            self.assertEqual((answer.status, answer.getheader("Content-Range")), (206, f"bytes {first}-{last}/{size}"))
            self.assertEqual(data, BIG[first:last + 1])
        for wanted in (f"{size}-", "-0", f"{10 ** 30}-"):
            answer, data = self.get("/reports/may.csv", {"Range": f"bytes={wanted}"})
            self.assertEqual((answer.status, answer.getheader("Content-Range"), data), (416, f"bytes */{size}", b""))
        for wanted in ("bytes=5-1", "bytes=0-1,3-4", "lines=1-2", "bytes=", "\xff", "bytes=a-b"):
            self.assertEqual(self.get("/reports/may.csv", {"Range": wanted})[0].status, 200, wanted)
        for given, status in ((tag, 206), ('"other"', 200)):
            answer, _ = self.get("/reports/may.csv", {"Range": "bytes=0-9", "If-Range": given})
            self.assertEqual(answer.status, status)
        answer, data = self.get("/reports/may.csv", method="HEAD")
        self.assertEqual((answer.status, answer.getheader("Content-Length"), data), (200, str(size), b""))
        # The later version has another tag.
        answer, data = self.get("/reports/may.csv", snapshot="s3")
        self.assertEqual((data, answer.getheader("ETag") != tag), (b"second", True))
        answer, _ = self.get("", raw=urllib.parse.urlencode({"pathBytes": base64.b64encode(b"reports/odd\xff\n").decode()}))
        self.assertNotRegex(answer.getheader("Content-Disposition"), "[\r\n]")

    def test_restores(self):
        body = {"snapshot": "s2", "path": "/reports/may.csv"}
        # A dry run says what would be, and makes nothing.
        only = {"validateOnly": "true"}
        would = self.ok("POST", f"{V}:restoreFile", body, **only)
        self.assertEqual((would["validateOnly"], would["response"]["path"], would["response"]["sizeBytes"]),
                         (True, "/reports/may.csv.from-s2", str(len(BIG))))
        for wrong in ({**body, "snapshot": "none"}, {**body, "path": "/reports/none"}, {**body, "path": "/passwd"}):
            check = self.server.ask("POST", f"{V}:restoreFile", wrong, only)
            self.assertGreaterEqual(check[0], 400)
            self.assertEqual(check, self.server.ask("POST", f"{V}:restoreFile", wrong))
        done = self.ok("POST", f"{V}:restoreFile", body)
        self.assertEqual((done["path"], done["sizeBytes"]), ("/reports/may.csv.from-s2", str(len(BIG))))
        file = self.nfs.lookup(b"may.csv.from-s2", self.dir)
        self.assertEqual(self.nfs.read(file), BIG)
        self.assertEqual(self.nfs.stat(file), (0o640, 1234, 5678, len(BIG), (1700000000, 500000000)))
        self.refused(409, "ALREADY_EXISTS", "POST", f"{V}:restoreFile", body)
        self.assertEqual(self.server.ask("POST", f"{V}:restoreFile", body, only)[0], 409)
        # In place as long as nothing is there; over it only when asked.
        self.ok("POST", f"{V}:restoreFile", {"snapshot": "s3", "path": "/reports/may.csv", "inPlace": True})
        self.assertEqual(self.nfs.read(self.nfs.lookup(b"may.csv", self.dir)), b"second")
        self.refused(409, "ALREADY_EXISTS", "POST", f"{V}:restoreFile", {**body, "inPlace": True})
        self.assertEqual(self.nfs.read(self.nfs.lookup(b"may.csv", self.dir)), b"second")
        self.ok("POST", f"{V}:restoreFile", {**body, "overwrite": True})
        self.assertEqual(self.nfs.read(self.nfs.lookup(b"may.csv", self.dir)), BIG)
        self.nfs.remove(b"may.csv", self.dir)
        # All of it is in the audit log, with refusals.
        entries = self.ok("GET", "auditEntries")["auditEntries"]
        seen = [(e["outcome"].split(":")[0], e["resource"]) for e in entries if e["method"] == "restoreFile"]
        self.assertIn(("done", f"{V}/snapshots/s2 /reports/may.csv"), seen)
        self.assertIn(("failed", f"{V}/snapshots/s2 /reports/may.csv"), seen)
        self.get("/reports/may.csv")
        self.ok("GET", f"{V}:findFile", path="/reports/may.csv")
        methods = {e["method"] for e in self.ok("GET", "auditEntries")["auditEntries"]}
        self.assertLessEqual({"findFile", "downloadFile"}, methods)

    def test_restores_at_once(self):
        """Of several restores to one name exactly one makes it, and none leaves a part."""
        outcomes = []

        def restore():
            status, answer = self.server.ask("POST", f"{V}:restoreFile", {"snapshot": "s1", "path": "/reports/may.csv"})
            outcomes.append((status, answer.get("error", {}).get("status")))

        threads = [threading.Thread(target=restore) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(outcomes.count((200, None)), 1, outcomes)
        self.assertLessEqual(set(outcomes), {(200, None), (409, "ALREADY_EXISTS"), (429, "RESOURCE_EXHAUSTED")})
        self.assertEqual(self.nfs.read(self.nfs.lookup(b"may.csv.from-s1", self.dir)), BIG)

    def test_readers_who_read_nothing(self):
        """Downloads are bounded in number, take no memory for what is not read, and end with their clients."""
        path = f"/v1/{V}/snapshots/s1:download?path=large"
        silent = []
        for _ in range(16):
            s = socket.create_connection(("127.0.0.1", self.server.port))
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
            self.assertTrue(s.recv(12).startswith(b"HTTP/1.1 200"))
            silent.append(s)
        self.assertEqual(self.get("/reports/may.csv")[0].status, 429)
        self.ok("GET", f"{V}:findFile", path="/reports/may.csv")
        for s in silent:
            s.close()
        end = time.monotonic() + 30
        while time.monotonic() < end:
            answer, data = self.get("/reports/may.csv")
            if answer.status == 200:
                break
        self.assertEqual((answer.status, data == BIG), (200, True))

    def test_a_snapshot_that_goes_cuts_the_download(self):
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.connect()
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        self.snapshot("brief")
        connection.request("GET", f"/v1/{V}/snapshots/brief:download?path=large")
        answer = connection.getresponse()
        self.assertEqual(answer.status, 200)
        self.assertTrue(self.ok("DELETE", f"{V}/snapshots/brief")["done"])
        with self.assertRaises((http.client.IncompleteRead, ConnectionError)):
            answer.read()


if __name__ == "__main__":
    unittest.main()
