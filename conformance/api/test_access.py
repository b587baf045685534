"""Off loopback: TLS and tokens, or nothing."""

import os
import signal
import subprocess
import unittest

from weirtest import PLACE, WEIR, Server

POOLS = f"{PLACE}/storagePools"
POOL = {"serviceLevel": "STANDARD", "capacityGib": "1024", "network": "default"}


class Access(unittest.TestCase):
    def test_the_whole_way(self):
        server = Server()
        self.addCleanup(server.close)
        # Without a certificate or tokens, no other address is served.
        tokens = {}
        for role in ("viewer", "editor", "admin"):
            status, answer = server.ask("POST", "tokens", {"role": role}, {"tokenId": f"t-{role}"})
            self.assertEqual(status, 200, answer)
            self.assertEqual((answer["name"], answer["role"]), (f"tokens/t-{role}", role.upper()))
            tokens[role] = answer["token"]
        status, listed = server.ask("GET", "tokens")
        self.assertEqual(sorted(t["name"] for t in listed["tokens"]), ["tokens/t-admin", "tokens/t-editor", "tokens/t-viewer"])
        for secret in tokens.values():
            self.assertNotIn(secret, str(listed))
        server.stop()
        refused = subprocess.run(
            [WEIR, "serve", "--data", server.data, "--nfs", "127.0.0.1:0", "--no-rpcbind", "--api", "0.0.0.0:0"],
            capture_output=True, text=True, timeout=60)
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("TLS", refused.stdout + refused.stderr)
        server.api, server.arguments = "0.0.0.0:0", ("--api-tls", "generate")
        server.start()
        self.assertEqual(server.scheme, "https")
        certificate = os.path.join(server.data, "api-cert.pem")

        def ask(method, path, who, body=None, query=None):
            headers = {"Authorization": f"Bearer {tokens[who]}"} if who else {}
            return server.ask(method, path, body, query, headers, certificate)

        status, answer = ask("GET", POOLS, None)
        self.assertEqual((status, answer["error"]["status"]), (401, "UNAUTHENTICATED"))
        tokens["nobody"] = "weir_" + "0" * 40
        status, answer = ask("GET", POOLS, "nobody")
        self.assertEqual((status, answer["error"]["status"]), (401, "UNAUTHENTICATED"))
        self.assertEqual(ask("GET", POOLS, "viewer")[0], 200)
        self.assertEqual(ask("GET", "/metrics", None)[0], 401)
        status, answer = ask("POST", POOLS, "viewer", POOL, {"storagePoolId": "v"})
        self.assertEqual((status, answer["error"]["status"]), (403, "PERMISSION_DENIED"))
        self.assertEqual(ask("POST", POOLS, "editor", POOL, {"storagePoolId": "e"})[0], 200)
        self.assertEqual(ask("GET", "tokens", "editor")[0], 403)
        self.assertEqual(ask("GET", "auditEntries", "editor")[0], 403)
        # Viewers may ask what would become of tokens; the refusal is that of the change.
        only = {"validateOnly": "true"}
        status, would = ask("POST", "tokens", "viewer", {"role": "EDITOR", "ttl": "60s"}, {"tokenId": "new", **only})
        self.assertEqual((status, would["response"]["name"], would["response"]["role"]), (200, "tokens/new", "EDITOR"))
        self.assertTrue(would["validateOnly"] and "expireTime" in would["response"], would)
        self.assertNotIn("token", would["response"])
        self.assertEqual(ask("DELETE", "tokens/t-admin", "viewer", None, only)[0], 200)
        for method, path, body, query in (("POST", "tokens", {"role": "EDITOR"}, {"tokenId": "t-viewer"}),
                                          ("POST", "tokens", {"role": "OWNER"}, {"tokenId": "new"}),
                                          ("DELETE", "tokens/none", None, {})):
            check = ask(method, path, "viewer", body, {**query, **only})
            self.assertGreaterEqual(check[0], 400)
            self.assertEqual(check, ask(method, path, "admin", body, query))
        status, listed = ask("GET", "tokens", "admin")
        self.assertEqual(len(listed["tokens"]), 3)
        status, audit = ask("GET", "auditEntries", "admin")
        self.assertEqual(status, 200)
        self.assertTrue(any(e["actor"] == "t-editor" and e["resource"].endswith("/storagePools/e")
                            for e in audit["auditEntries"]), audit)
        self.assertEqual(ask("DELETE", "tokens/t-editor", "admin")[0], 200)
        self.assertEqual(ask("GET", POOLS, "editor")[0], 401)
        # Plain HTTP on the TLS port is not answered with anything that could be taken for an answer.
        server.scheme = "http"
        with self.assertRaises(Exception):
            server.ask("GET", POOLS)
        # A token that was revoked stays so.
        server.stop(signal.SIGKILL)
        server.start()
        self.assertEqual(ask("GET", POOLS, "editor")[0], 401)
        self.assertEqual(ask("GET", f"{POOLS}/e", "viewer")[0], 200)
        # The same with a certificate that somebody brings along.
        given = os.path.join(server.data, "given")
        os.mkdir(given)
        for name in ("api-cert.pem", "api-key.pem"):
            os.rename(os.path.join(server.data, name), os.path.join(given, name))
        certificate = os.path.join(given, "api-cert.pem")
        server.stop()
        server.arguments = ("--api-tls-cert", certificate, "--api-tls-key", os.path.join(given, "api-key.pem"))
        server.start()
        self.assertEqual(ask("GET", f"{POOLS}/e", "viewer")[0], 200)
        self.assertEqual(ask("GET", POOLS, None)[0], 401)
        self.assertEqual(sorted(os.listdir(given)), ["api-cert.pem", "api-key.pem"])
        self.assertFalse(os.path.exists(os.path.join(server.data, "api-cert.pem")))


if __name__ == "__main__":
    unittest.main()
