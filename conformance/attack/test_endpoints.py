"""Every path of Weir's own API, and those of sign-in, under nonsense, under bodies of any kind, and under readers who do not read."""

import json
import os
import re
import socket
import time
import unittest
import urllib.parse

from attacker import LONG, weirtest

HERE = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(HERE, "..", "..", "openapi", "weir-v1.json")) as document:
    PATHS = json.load(document)["paths"]
PLACE = "projects/p1/locations/us-central1"
MIB = 1 << 20
# What names of a path are replaced by.
NAMES = ("none", "..", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "%00", "a" * 3000, "%F0%9F%92%A9", "%ff", "'--", "a%0d%0aX-Evil:%201", "<script>")
VALUES = ("", "\0", "-1", "9" * 40, "a" * 9000, "../../etc/passwd", "💩", "a\r\nX-Evil: 1", "[", "true", "1e999")
BODIES = (b"", b"{", b"[]", b"null", b"7", b'"x"', b"{}", b"\xff\xfe", b"[" * 30_000, b'{"a":' * 30_000, b'{"x":1}', b'{"x":1,"x":2}',
          b'{"role":7,"snapshot":[],"path":{},"newSnapshotId":-1,"token":{"a":1}}', b'{"path":"' + b"a" * 70_000 + b'"}')
READERS = 200 if LONG else 24


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def filled(template, value):
    """A path of the document with its names replaced; project and location are right."""
    path = template.replace("{project}", "p1").replace("{location}", "us-central1")
    return re.sub(r"\{\w+\}", lambda _: value, path)


class Endpoints(weirtest.Case):
    def send(self, method, path, body=None, kind="application/json", **headers):
        connection = self.server.connect()
        try:
            if body is not None:
                headers["Content-Type"] = kind
            connection.request(method, path, body, headers)
            reply = connection.getresponse()
            # A stream has no end.
            length = reply.getheader("Content-Length")
            data = reply.read(min(int(length), MIB) if length else 4096) if reply.status != 200 or length else b""
            return reply.status, data, reply
        finally:
            connection.close()

    def alive(self):
        self.assertEqual(self.server.ask("GET", "conditions")[0], 200)

    def refused(self, sent, status, data, reply):
        self.assertTrue(400 <= status < 500, (sent, status, data[:300]))
        self.assertLess(len(data), 8192, sent)
        self.assertIsNone(reply.getheader("X-Evil"), sent)

    def test_names_that_are_none(self):
        before = resident(self.server.process.pid)
        for template, methods in PATHS.items():
            if not re.search(r"\{(?!project|location)", template):
                continue
            for value in NAMES:
                for method in methods:
                    path = filled(template, value)
                    with self.subTest(path=path[:100], method=method):
                        answer = self.send(method.upper(), path, b"{}" if method in ("post", "patch") else None)
                        self.refused(path[:100], *answer)
        self.alive()
        self.assertLess(resident(self.server.process.pid) - before, 48 * MIB)

    def test_parameters_that_mean_nothing(self):
        for template, methods in PATHS.items():
            for method, operation in methods.items():
                path = filled(template, "none")
                body = b"{}" if method in ("post", "patch") else None
                names = [p["name"] for p in operation.get("parameters", []) if p["in"] == "query"]
                for name in [*names, "x", "access_token[]", "a" * 2000]:
                    for value in VALUES:
                        query = urllib.parse.urlencode({name: value})
                        with self.subTest(path=path, query=query[:80]):
                            status, data, reply = self.send(method.upper(), f"{path}?{query}", body)
                            # Some values are right: no filter, no page, a flag.
                            self.assertTrue(status == 200 or 400 <= status < 500, (status, data[:300]))
                            self.assertIsNone(reply.getheader("X-Evil"))
                            if name not in names:
                                self.assertGreaterEqual(status, 400)
                for query in ("%", "%zz=1", "a=%ff", "&" * 4000, "=" * 4000, "?".join("a" * 500)):
                    with self.subTest(path=path, query=query[:20]):
                        status, data, _ = self.send(method.upper(), f"{path}?{query}", body)
                        self.assertTrue(status == 200 or 400 <= status < 500, (status, data[:300]))
        self.alive()

    def test_methods_and_bodies(self):
        for template, methods in PATHS.items():
            path = filled(template, "none")
            for method in ("PUT", "TRACE", "OPTIONS", "PATCH", "DELETE", "POST", "BREW"):
                if method.lower() not in methods:
                    with self.subTest(path=path, method=method):
                        self.refused((method, path), *self.send(method, path))
            for method in {"post", "patch"} & set(methods):
                for body in BODIES:
                    with self.subTest(path=path, body=body[:30]):
                        status, data, reply = self.send(method.upper(), path, body)
                        self.refused((path, body[:30]), status, data, reply)
                for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonx"):
                    self.refused((path, kind), *self.send(method.upper(), path, b"{}", kind))
        self.alive()

    def test_sign_in(self):
        for path in ("/v1/logins", "/token"):
            for body in (*BODIES, b'{"token":"weir_' + b"0" * 64 + b'"}', b"grant_type=x&assertion=" + b"a" * 20_000):
                for kind in ("application/json", "application/x-www-form-urlencoded", "text/plain"):
                    with self.subTest(path=path, body=body[:30], kind=kind):
                        status, data, reply = self.send("POST", path, body, kind)
                        # Without tokens there is nothing to sign in to; nobody gets a cookie.
                        self.assertTrue(status == 200 or 400 <= status < 500, (status, data[:300]))
                        self.assertIsNone(reply.getheader("Set-Cookie"))
            for method in ("GET", "PUT", "PATCH", "TRACE"):
                self.assertGreaterEqual(self.send(method, path)[0], 400, (method, path))
        # A cookie that nobody has given is no credential, however long it is, and another site's page gets nothing done by one.
        for cookie in ("__Host-weir=x", "__Host-weir=" + "0" * 64, "__Host-weir=" + "a" * 8000, "__Host-weir=; " * 100):
            with self.subTest(cookie=cookie[:30]):
                status, data, _ = self.send("POST", "/v1/tokens?tokenId=evil", b'{"role":"ADMIN"}', Cookie=cookie,
                                            Origin="https://evil.example", **{"Sec-Fetch-Site": "cross-site"})
                self.assertTrue(400 <= status < 500, (status, data[:300]))
        self.assertEqual(self.ok("GET", "tokens")["tokens"], [])
        self.alive()

    def test_readers_who_do_not_read(self):
        """Of each path that is read, with everybody else's requests meanwhile."""
        self.server.ask("POST", f"{PLACE}/storagePools", {"capacityGib": "2048", "serviceLevel": "PREMIUM", "network": "n"},
                        {"storagePoolId": "pool"})
        self.server.ask("POST", f"{PLACE}/volumes", {"storagePool": "pool", "capacityGib": "100", "shareName": "v", "protocols": ["NFSV3"]},
                        {"volumeId": "v"})
        volume = f"{PLACE}/volumes/v"
        queries = {"/v1/history": f"?volume={volume}&window=24h", "/v1/latency": f"?volume={volume}&window=24h",
                   "/v1/limitChanges": f"?volume={volume}&window=24h"}
        paths = [filled(path, "v") + queries.get(path, "") for path, methods in PATHS.items() if "get" in methods]
        paths += ["/metrics", "/console/", "/openapi/weir-v1.json", "/livez", "/readyz"]
        before = resident(self.server.process.pid)
        for path in paths:
            with self.subTest(path=path):
                idle = []
                for n in range(READERS):
                    s = socket.socket()
                    self.addCleanup(s.close)
                    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
                    s.connect(("127.0.0.1", self.server.port))
                    # Several requests behind each other, none of whose replies is taken; some heads never end.
                    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n"
                    s.sendall((head + "\r\n" + head + ("\r\n" if n % 3 else "X: ")).encode())
                    idle.append(s)
                begun = time.monotonic()
                self.assertEqual(self.server.ask("GET", volume)[0], 200)
                self.assertLess(time.monotonic() - begun, 5)
                for s in idle:
                    s.close()
        self.alive()
        self.assertLess(resident(self.server.process.pid) - before, 64 * MIB)


if __name__ == "__main__":
    unittest.main()
