"""What is wrong is refused in the API's own shape, with the status that retry logic expects, and changes nothing."""

import socket
import unittest

from weirtest import PLACE, Case

POOLS, VOLUMES, INSTANCES = (f"{PLACE}/{c}" for c in ("storagePools", "volumes", "instances"))
POOL = {"serviceLevel": "PREMIUM", "capacityGib": "4096", "network": "default"}
VOLUME = {"storagePool": "base", "shareName": "base", "capacityGib": "1024", "protocols": ["NFSV3"]}
INSTANCE = {"tier": "BASIC_HDD", "fileShares": [{"name": "binst", "capacityGb": 1024}]}


class BadInput(Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        for path, body, query in [
            (POOLS, POOL, {"storagePoolId": "base"}),
            (VOLUMES, VOLUME, {"volumeId": "base"}),
            (INSTANCES, INSTANCE, {"instanceId": "binst"}),
        ]:
            status, answer = cls.server.ask("POST", path, body, query)
            assert status == 200 and answer["done"] and "error" not in answer, answer

    def setUp(self):
        self.before = self.everything()

    def tearDown(self):
        self.assertEqual(self.everything(), self.before)

    def wrong_field(self, field, method, path, body, **query):
        error = self.refused(400, "INVALID_ARGUMENT", method, path, body, **query)
        self.assertEqual(error["details"][1]["@type"], "type.googleapis.com/google.rpc.BadRequest", error)
        self.assertEqual(error["details"][1]["fieldViolations"][0]["field"], field)

    def test_unknown_fields(self):
        self.wrong_field("nonsense", "POST", POOLS, {**POOL, "nonsense": 1}, storagePoolId="n")
        self.wrong_field("exportPolicy.rules[0].nope", "PATCH", f"{VOLUMES}/base",
                         {"exportPolicy": {"rules": [{"nope": 1}]}}, updateMask="exportPolicy")
        self.wrong_field("nonsense", "GET", POOLS, None, nonsense="1")

    def test_wrong_types(self):
        for field, value in [("capacityGib", "many"), ("capacityGib", 1.5), ("capacityGib", True),
                             ("serviceLevel", "premier"), ("qosType", "SOME"), ("labels", ["a"]), ("labels", "a"),
                             ("description", 7), ("allowAutoTiering", "yes")]:
            with self.subTest(field=field, value=value):
                self.wrong_field(field, "POST", POOLS, {**POOL, field: value}, storagePoolId="n")
        self.wrong_field("protocols[1]", "POST", VOLUMES, {**VOLUME, "protocols": ["NFSV3", "NFSV9"]}, volumeId="n")
        self.wrong_field("unixPermissions", "POST", VOLUMES, {**VOLUME, "unixPermissions": "rwx"}, volumeId="n")

    def test_missing_fields_and_ids(self):
        for field in ("serviceLevel", "capacityGib"):
            self.wrong_field(field, "POST", POOLS, {k: v for k, v in POOL.items() if k != field}, storagePoolId="n")
        for field in ("storagePool", "shareName", "capacityGib", "protocols"):
            self.wrong_field(field, "POST", VOLUMES, {k: v for k, v in VOLUME.items() if k != field}, volumeId="n")
        self.wrong_field("storagePoolId", "POST", POOLS, POOL)
        for bad in ("1n", "a/b", "a" * 64, "ä", "-"):
            self.wrong_field("storagePoolId", "POST", POOLS, POOL, storagePoolId=bad)

    def test_masks(self):
        for mask in ("usedGib", "state", "createTime", "mountOptions", "name", "nonsense", "capacityGib,,",
                     "protocols.NFSV3"):
            with self.subTest(mask=mask):
                self.wrong_field("updateMask", "PATCH", f"{VOLUMES}/base", {"capacityGib": "1"}, updateMask=mask)
        self.wrong_field("updateMask", "PATCH", f"{VOLUMES}/base", {})
        self.wrong_field("shareName", "PATCH", f"{VOLUMES}/base", {"shareName": "other"}, updateMask="shareName")
        self.wrong_field("capacityGib", "PATCH", f"{VOLUMES}/base", {}, updateMask="capacityGib")

    def test_duplicates(self):
        self.refused(409, "ALREADY_EXISTS", "POST", POOLS, POOL, storagePoolId="base")
        self.refused(409, "ALREADY_EXISTS", "POST", VOLUMES, {**VOLUME, "shareName": "n"}, volumeId="base")
        self.refused(409, "ALREADY_EXISTS", "POST", INSTANCES, INSTANCE, instanceId="binst")

    def test_promises_that_nobody_would_keep(self):
        for field, value in [("ldapEnabled", True), ("kmsConfig", "k"), ("mode", "ONTAP"),
                             ("type", "UNIFIED"), ("replicaZone", "b"), ("allowAutoTiering", True)]:
            with self.subTest(field=field):
                self.wrong_field(field, "POST", POOLS, {**POOL, field: value}, storagePoolId="n")
        self.refused(400, "FAILED_PRECONDITION", "POST", VOLUMES, {**VOLUME, "shareName": "n", "protocols": ["NFSV3", "ISCSI"]}, volumeId="n")
        for field, value in [("securityStyle", "NTFS"),
                             ("smbSettings", ["BROWSABLE"]), ("tieringPolicy", {"tierAction": "ENABLED"})]:
            with self.subTest(field=field, value=value):
                self.wrong_field(field, "POST", VOLUMES, {**VOLUME, "shareName": "n", field: value}, volumeId="n")

    def test_deletes_that_would_lose_something(self):
        self.refused(400, "FAILED_PRECONDITION", "DELETE", f"{POOLS}/base")
        for path in (f"{POOLS}/none", f"{VOLUMES}/none", f"{INSTANCES}/none", f"{VOLUMES}/base/snapshots/none"):
            self.refused(404, "NOT_FOUND", "DELETE", path)
        self.refused(400, "INVALID_ARGUMENT", "DELETE", f"{VOLUMES}/base", force="perhaps")

    def test_beyond_limits(self):
        for method, path, body, query in [
            ("POST", VOLUMES, {**VOLUME, "shareName": "n", "capacityGib": "3073"}, {"volumeId": "n"}),
            ("PATCH", f"{VOLUMES}/base", {"capacityGib": "4097"}, {"updateMask": "capacityGib"}),
            ("PATCH", f"{POOLS}/base", {"capacityGib": "1023"}, {"updateMask": "capacityGib"}),
            ("POST", POOLS, {**POOL, "capacityGib": "0"}, {"storagePoolId": "n"}),
            ("POST", POOLS, {**POOL, "capacityGib": "-5"}, {"storagePoolId": "n"}),
            ("POST", POOLS, {**POOL, "capacityGib": str(2 ** 62)}, {"storagePoolId": "n"}),
            ("POST", POOLS, {**POOL, "serviceLevel": "FLEX", "qosType": "MANUAL"}, {"storagePoolId": "n"}),
            ("POST", INSTANCES, {"tier": "BASIC_HDD", "fileShares": [{"name": "n", "capacityGb": 10}]},
             {"instanceId": "n"}),
        ]:
            with self.subTest(body=body):
                status, answer = self.server.ask(method, path, body, query)
                self.assertEqual(status, 400, answer)
                self.assertIn(answer["error"]["status"], ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE"))

    def test_malformed_clients(self):
        for clients in ("10.0.0.0/33", "10.0.0/8/8", "300.1.1.1/8", "a b", ",", "fe80::/200"):
            with self.subTest(clients=clients):
                policy = {"exportPolicy": {"rules": [{"allowedClients": clients, "accessType": "READ_ONLY"}]}}
                self.refused(400, "INVALID_ARGUMENT", "PATCH", f"{VOLUMES}/base", policy, updateMask="exportPolicy")
                self.refused(400, "INVALID_ARGUMENT", "POST", VOLUMES, {**VOLUME, "shareName": "n", **policy},
                             volumeId="n")

    def test_broken_json(self):
        for body in ("{", '{"capacityGib":}', "[1,2]", "text", '"text"', "\x00", "[" * 100_000, b"\xff\xfe"):
            self.refused(400, "INVALID_ARGUMENT", "POST", POOLS, body, storagePoolId="n")

    def test_queries(self):
        for query in ({"filter": "nonsense=1"}, {"filter": "("}, {"filter": "capacityGib>many"}, {"orderBy": "none"},
                      {"pageSize": "-1"}, {"pageSize": "x"}, {"pageToken": "x"}, {"alt": "media"}):
            self.refused(400, "INVALID_ARGUMENT", "GET", VOLUMES, **query)
        self.refused(400, "INVALID_ARGUMENT", "GET", "/v1/" + VOLUMES + "?filter=%zz")

    def test_paths(self):
        self.refused(404, "NOT_FOUND", "GET", f"{PLACE}/nonsense")
        self.refused(404, "NOT_FOUND", "GET", "/v9/" + VOLUMES)
        self.refused(404, "NOT_FOUND", "GET", f"{VOLUMES}/none")
        self.refused(404, "NOT_FOUND", "PATCH", f"{VOLUMES}/none", {"description": "x"}, updateMask="description")
        self.refused(404, "NOT_FOUND", "POST", f"{VOLUMES}/base:explode")
        self.refused(405, "UNIMPLEMENTED", "PUT", f"{VOLUMES}/base", {})
        self.refused(400, "INVALID_ARGUMENT", "POST", "projects/p1/locations/-/storagePools", POOL, storagePoolId="n")
        # No 5xx, which gcloud would try again for half a minute; and what to do instead.
        error = self.refused(400, "FAILED_PRECONDITION", "POST", f"{VOLUMES}/base:establishPeering", {})
        self.assertIn("hybridReplicationParameters", error["message"])
        self.refused(400, "FAILED_PRECONDITION", "POST", VOLUMES, {**VOLUME, "kerberosEnabled": True}, volumeId="n")

    def test_other_sites_pages_are_kept_out(self):
        self.refused(403, "PERMISSION_DENIED", "GET", POOLS, headers={"Host": "evil.example:8049"})
        self.refused(403, "PERMISSION_DENIED", "POST", POOLS, POOL, headers={"Origin": "http://evil.example"},
                     storagePoolId="n")

    def test_only_json(self):
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            self.refused(415, "INVALID_ARGUMENT", "POST", POOLS, POOL, headers={"Content-Type": kind}, storagePoolId="n")
            status, answer = self.server.ask("POST", "/api/private/cli", {"input": "version"}, None, {"Content-Type": kind})
            self.assertEqual((status, answer["error"]["code"]), (415, "262254"))
        for kind in ("application/json; charset=utf-8", "application/hal+json"):
            status, answer = self.server.ask("POST", "/api/private/cli", {"input": "version"}, None, {"Content-Type": kind})
            self.assertEqual(status, 200, answer)

    def test_head(self):
        for path in ("/metrics", "/v1/" + POOLS, "/api/cluster", "/openapi/"):
            connection = self.server.connect()
            self.addCleanup(connection.close)
            connection.request("HEAD", path)
            answer = connection.getresponse()
            self.assertEqual((answer.status, answer.read()), (200, b""), path)
            # The metrics are made as they are read: their length is not known before.
            length = answer.getheader("Content-Length")
            self.assertTrue(length is None if path == "/metrics" else int(length) > 0, (path, length))

    def test_a_hundred_megabytes(self):
        body = b'{"description": "' + b"x" * 100_000_000 + b'"}'
        before = self.peak()
        error = self.refused(413, "INVALID_ARGUMENT", "POST", POOLS, body, storagePoolId="n")
        self.assertIn("limit", error["message"])
        # The same without a length that gives it away.
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as s:
            s.sendall(f"POST /v1/{POOLS}?storagePoolId=n HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                      "Content-Type: application/json\r\n"
                      "Transfer-Encoding: chunked\r\n\r\n".encode())
            chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
            for _ in range(64):
                s.sendall(chunk)
            self.assertIn(b" 413 ", s.recv(4096).split(b"\r\n")[0])
        # And from a client that asks before it sends.
        with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as s:
            s.sendall(f"POST /v1/{POOLS}?storagePoolId=n HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                      "Content-Type: application/json\r\n"
                      "Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n".encode())
            self.assertTrue(s.recv(4096).startswith(b"HTTP/1.1 413 "))
        # And the server's memory never held it.
        self.assertLess(self.peak() - before, 64 * 1024, "KiB")

    def peak(self):
        with open(f"/proc/{self.server.process.pid}/status") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmHWM:"))

    def test_garbage_on_the_socket(self):
        for garbage in (b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\r\n" * 1000, b"GET / HTTP/9.9\r\n\r\n",
                        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
                        b"POST /v1/x HTTP/1.1\r\nContent-Length: -5\r\n\r\n"):
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as s:
                try:
                    s.sendall(garbage)
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(65536):
                        pass
                except OSError:
                    pass
        # Half a body, and nobody there to send the rest.
        for _ in range(50):
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=30) as s:
                s.sendall(f"POST /v1/{POOLS}?storagePoolId=n HTTP/1.1\r\nHost: localhost\r\n"
                          "Content-Type: application/json\r\n"
                      "Content-Length: 1000\r\n\r\n{".encode())
        self.ok("GET", POOLS)


if __name__ == "__main__":
    unittest.main()
