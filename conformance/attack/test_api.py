"""The API, attacked by who has no token, by a token that is not meant to, and by another user of the machine."""

import http.client
import os
import select
import socket
import ssl
import stat
import subprocess
import time
import unittest

from attacker import LONG, Server, weirtest

POOLS = "/v1/projects/p1/locations/us-central1/storagePools"
VOLLEYS, CONNECTIONS = (5, 512) if LONG else (1, 512)


class Tokens(unittest.TestCase):
    """A server with TLS and a token for each role, on loopback, so that attackers have as many addresses as they like."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.tokens = {}
        for role in ("viewer", "editor", "admin"):
            status, answer = cls.server.ask("POST", "tokens", {"role": role}, {"tokenId": role})
            assert status == 200, answer
            cls.tokens[role] = answer["token"]
        cls.server.stop()
        cls.server.arguments = ("--api-tls", "generate", "--replication", "127.0.0.1:0")
        cls.server.start()
        cls.addClassCleanup(cls.server.close)
        cls.certificate = os.path.join(cls.server.data, "api-cert.pem")

    def ask(self, method, path, who="admin", body=None, headers=None):
        headers = {"Authorization": f"Bearer {self.tokens[who]}", **(headers or {})}
        return self.server.ask(method, path, body, None, headers, self.certificate)

    def stranger(self, n=0):
        """A connection from an address of its own that says nothing."""
        s = socket.socket()
        self.addCleanup(s.close)
        s.settimeout(10)
        s.bind((f"127.7.{n >> 8}.{n & 255 or 1}", 0))
        s.connect(("127.0.0.1", self.server.port))
        return s

    def secured(self, n=0):
        context = ssl.create_default_context(cafile=self.certificate)
        s = context.wrap_socket(self.stranger(n), server_hostname="127.0.0.1")
        self.addCleanup(s.close)
        return s

    def test_silent_connections_keep_nobody_out(self):
        # From one address, from many, silent, and behind their handshake with a byte of a head now and then.
        for spread in (lambda n: 0, lambda n: n):
            for secured in (False, True):
                for _ in range(VOLLEYS):
                    open_ones = []
                    for n in range(CONNECTIONS if not secured or LONG else 192):
                        s = self.secured(spread(n)) if secured else self.stranger(spread(n))
                        open_ones.append(s)
                        if secured:
                            s.sendall(b"G")
                    begin = time.monotonic()
                    for who in ("admin", "viewer"):
                        self.assertEqual(self.ask("GET", POOLS, who)[0], 200)
                    self.assertLess(time.monotonic() - begin, 5, "an administrator waits for strangers")
                    for s in open_ones:
                        s.close()

    def test_a_head_has_ten_seconds(self):
        slow, silent = self.secured(1), self.stranger(2)
        slow.sendall(b"GET / HTTP/1.1\r\n")
        begin = time.monotonic()
        closed = {}
        slow.settimeout(1)
        while len(closed) < 2 and time.monotonic() - begin < 25:
            for name, s in (("slow", slow), ("silent", silent)):
                if name in closed or not select.select([s], [], [], 0.5)[0]:
                    continue
                try:
                    ended = s.recv(4096) == b""
                except TimeoutError:
                    ended = False
                except OSError:
                    ended = True
                if ended:
                    closed[name] = time.monotonic() - begin
            if "slow" not in closed:
                try:
                    slow.sendall(b"X: y\r\n")
                except OSError:
                    closed["slow"] = time.monotonic() - begin
        self.assertEqual(set(closed), {"slow", "silent"})
        for seconds in closed.values():
            self.assertLess(seconds, 15)

    def test_nothing_is_read_from_who_has_no_token(self):
        for path in (f"{POOLS}?storagePoolId=n", "/api/private/cli"):
            for length in ("Content-Length: 1000000000", "Transfer-Encoding: chunked"):
                s = self.secured(3)
                s.settimeout(20)
                s.sendall(f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{length}\r\n\r\n"
                          .encode())
                self.assertTrue(s.recv(65536).startswith(b"HTTP/1.1 401 "))
                sent, block = 0, b"10000\r\n" + b" " * 0x10000 + b"\r\n"
                with self.assertRaises(OSError, msg=f"{sent} bytes were taken"):
                    while sent < 256 << 20:
                        s.sendall(block)
                        sent += len(block)
                # What the kernel's buffers hold.
                self.assertLess(sent, 32 << 20)

    def test_other_sites_pages(self):
        pool = {"serviceLevel": "STANDARD", "capacityGib": "1024", "network": "default"}
        line = {"input": "snapmirror show"}
        for headers in ({"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}):
            for path, body in ((f"{POOLS}?storagePoolId=csrf", pool), ("/api/private/cli", line)):
                self.assertEqual(self.ask("POST", path, body=body, headers=headers)[0], 403)
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
            status, answer = self.ask("POST", f"{POOLS}?storagePoolId=csrf", body=pool, headers={"Content-Type": kind})
            self.assertEqual((status, answer["error"]["status"]), (415, "INVALID_ARGUMENT"))
            status, answer = self.ask("POST", "/api/private/cli", body=line, headers={"Content-Type": kind})
            self.assertEqual((status, answer["error"]["code"]), (415, "262254"))
        self.assertEqual(self.ask("GET", f"{POOLS}/csrf")[0], 404)
        # Basic is taken where it comes unasked, and asked for nowhere.
        context = ssl.create_default_context(cafile=self.certificate)
        connection = http.client.HTTPSConnection("127.0.0.1", self.server.port, context=context, timeout=10)
        self.addCleanup(connection.close)
        connection.request("GET", "/api/cluster")
        answer = connection.getresponse()
        self.assertEqual((answer.status, answer.getheader("WWW-Authenticate")), (401, 'Bearer realm="weir"'))
        answer.read()

    def test_wrong_tokens_keep_out_nobody_but_their_address(self):
        def ask(source, token):
            context = ssl.create_default_context(cafile=self.certificate)
            connection = http.client.HTTPSConnection("127.0.0.1", self.server.port, timeout=10, context=context,
                                                     source_address=(source, 0))
            self.addCleanup(connection.close)
            connection.request("GET", POOLS, headers={"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            answer.read()
            return answer

        wrong = "weir_" + "0" * 64
        answers = [ask("127.9.9.9", wrong) for _ in range(12)]
        self.assertEqual([a.status for a in answers], [401] * 10 + [429] * 2)
        self.assertLessEqual(int(answers[-1].getheader("Retry-After")), 60)
        # From other addresses all is as before, and so it is from that one with a token that was right of late.
        self.assertEqual(ask("127.9.9.8", self.tokens["viewer"]).status, 200)
        self.assertEqual(ask("127.9.9.9", self.tokens["viewer"]).status, 200)

    def test_what_files_hold_is_for_editors(self):
        volume = f"{POOLS.removesuffix('storagePools')}volumes/none"
        body = {"snapshot": "s1", "path": "/secret", "overwrite": True}
        for who, status in (("viewer", 403), ("editor", 404), ("admin", 404)):
            for method, path, sent in (("GET", f"{volume}:findFile?path=/secret", None),
                                       ("GET", f"{volume}/snapshots/s1:download?path=/secret", None),
                                       ("HEAD", f"{volume}/snapshots/s1:download?path=/secret", None),
                                       ("POST", f"{volume}:restoreFile", body)):
                with self.subTest(who=who, path=path):
                    self.assertEqual(self.ask(method, path, who, sent)[0], status)
            # No prefix and no other version of the API leads around it.
            for prefix in ("/netapp", "/file", ""):
                path = f"{prefix}{volume.replace('/v1/', '/v1beta1/')}:findFile?path=/secret"
                self.assertEqual(self.ask("GET", path, who)[0], status)
        nobody = self.server.ask("GET", f"{volume}:findFile?path=/secret", certificate=self.certificate)
        self.assertEqual(nobody[0], 401)

    def test_only_administrators_pair(self):
        peer = {"name": "evil", "fingerprint": "a" * 64}
        line = {"input": f"cluster peer create -cluster evil -fingerprint {'a' * 64}"}
        query = f"cluster=evil&fingerprint={'a' * 64}"
        pool = f"{POOLS}/mq"
        self.assertEqual(self.ask("POST", f"{POOLS}?storagePoolId=mq", body={
            "serviceLevel": "STANDARD", "capacityGib": "1024", "network": "default"})[0], 200)
        ways = [
            ("POST", "/api/cluster/peers", peer),
            ("POST", "/api/private/cli", line),
            ("POST", f"/api/private/cli/cluster/peer?{query}", {}),
            ("GET", f"/api/private/cli/cluster/peer/create?{query}", None),
            ("POST", f"{pool}/ontap/api/private/cli", {"body": line}),
            ("POST", f"{pool}/ontap/api/cluster/peers", {"body": peer}),
            ("GET", f"{pool}/ontap/api/private/cli/cluster/peer/create?{query}", None),
        ]
        for who in ("viewer", "editor"):
            for method, path, body in ways:
                with self.subTest(who=who, path=path):
                    self.assertEqual(self.ask(method, path, who, body)[0], 403)
        # By GET not even an administrator.
        for method, path, body in ways:
            if method == "GET":
                self.assertEqual(self.ask(method, path, "admin", body)[0], 403)
        self.assertEqual(self.ask("GET", "/api/cluster/peers")[1]["num_records"], 0)
        self.assertIn(self.ask("POST", "/api/cluster/peers", "admin", {**peer, "name": "good"})[0], (200, 201, 202))
        self.assertEqual(self.ask("DELETE", "/api/cluster/peers/good", "editor")[0], 403)
        self.assertIn(self.ask("DELETE", "/api/cluster/peers/good", "admin")[0], (200, 201, 202))

    def test_a_viewer_changes_nothing_by_get(self):
        throttle = "option_name=replication.throttle.incoming.max_kbs"
        for path in (f"options?{throttle}&option_value=4", "snapmirror/policy/create?policy=x&type=mirror-vault",
                     "job/schedule/cron/create?name=x&minute=5"):
            with self.subTest(path=path):
                status, answer = self.ask("GET", f"/api/private/cli/{path}", "viewer")
                self.assertEqual(status, 403, answer)
        shown = self.ask("GET", f"/api/private/cli/options?{throttle}", "viewer")[1]["records"][0]
        self.assertNotEqual(shown.get("option_value"), 4)


class Folder(unittest.TestCase):
    """Another user of the machine."""

    def modes(self, folder):
        found = {".": stat.S_IMODE(os.stat(folder).st_mode)}
        for name in os.listdir(folder):
            found[name] = stat.S_IMODE(os.lstat(os.path.join(folder, name)).st_mode)
        return found

    def closed(self, folder):
        for name, mode in self.modes(folder).items():
            self.assertEqual(mode & 0o077, 0, f"{name} has mode {mode:o}")

    def test_the_data_folder_is_the_servers_own(self):
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        server = Server("--api-tls", "generate", "--replication", "127.0.0.1:0")
        self.addCleanup(server.close)
        self.closed(server.data)
        self.assertLessEqual({"catalog.db", "lock", "device", "log", "control", "api", "api-key.pem"},
                             set(os.listdir(server.data)))
        # One that an older version made, and one that an administrator opened by mistake.
        server.stop()
        os.chmod(server.data, 0o755)
        for name in os.listdir(server.data):
            os.chmod(os.path.join(server.data, name), 0o644)
        server.start()
        self.closed(server.data)

    def test_a_folder_that_is_not_ours_stays_as_it_is(self):
        server = Server()
        self.addCleanup(server.close)
        other = os.path.join(server.folder.name, "other")
        os.mkdir(other, 0o755)
        with open(os.path.join(other, "holiday.jpg"), "w"):
            pass
        os.chmod(other, 0o755)
        refused = subprocess.run([weirtest.WEIR, "serve", "--data", other, "--nfs", "127.0.0.1:0", "--no-rpcbind", "--api", "off"],
                                 capture_output=True, text=True, timeout=60)
        self.assertNotEqual(refused.returncode, 0)
        self.assertEqual(stat.S_IMODE(os.stat(other).st_mode), 0o755)


if __name__ == "__main__":
    unittest.main()
