"""Service accounts: the key file that `weir` writes, as Google's own sign-in and libraries use it, over TLS."""

import json
import os
import stat
import subprocess
import sys
import time
import unittest
import urllib.parse

from google.auth import crypt, jwt

from weirtest import PLACE, WEIR, Server

GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
# Programs as their users write them: nothing in them knows of Weir but the endpoint and the file.
USE = {
    "grpc": """
from google.cloud import {module} as m
client = m.{client}.from_service_account_file(FILE, client_options={{"api_endpoint": ENDPOINT}})
print([r.name for r in client.{method}(parent=PARENT)])
""",
    "grpc_asyncio": """
import asyncio
from google.cloud import {module} as m
async def main():
    client = m.{async_client}.from_service_account_file(FILE, client_options={{"api_endpoint": ENDPOINT}})
    print([r.name async for r in await client.{method}(parent=PARENT)])
asyncio.run(main())
""",
    "rest": """
from google.cloud import {module} as m
client = m.{client}.from_service_account_file(FILE, transport="rest", client_options={{"api_endpoint": ENDPOINT}})
print([r.name for r in client.{method}(parent=PARENT)])
""",
}
SERVICES = (
    {"module": "netapp_v1", "client": "NetAppClient", "async_client": "NetAppAsyncClient", "method": "list_storage_pools"},
    {"module": "filestore_v1", "client": "CloudFilestoreManagerClient",
     "async_client": "CloudFilestoreManagerAsyncClient", "method": "list_instances"},
)
# The sign-in that asks at token_uri: Google's libraries use it where a scope is given and no self-signed token may be used.
EXCHANGE = """
import google.auth.transport.requests as transport
from google.oauth2 import service_account
credentials = service_account.Credentials.from_service_account_file(
    FILE, scopes=["https://www.googleapis.com/auth/cloud-platform"])
session = transport.AuthorizedSession(credentials)
answer = session.get(f"https://{ENDPOINT}/v1/{PARENT}/storagePools")
print(answer.status_code, sorted(answer.json()), 3500 < (credentials.expiry - credentials.expiry.utcnow()).total_seconds() <= 3600)
"""


class Accounts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        status, answer = cls.server.ask("POST", "tokens", {"role": "admin"}, {"tokenId": "admin"})
        assert status == 200, answer
        cls.admin = answer["token"]
        cls.server.stop()
        cls.server.arguments = ("--api-tls", "generate")
        cls.server.start()
        cls.addClassCleanup(cls.server.close)
        cls.certificate = os.path.join(cls.server.data, "api-cert.pem")
        cls.endpoint = f"localhost:{cls.server.port}"

    def weir(self, *arguments):
        environment = {**os.environ, "WEIR_TOKEN": self.admin, "WEIR_CA_CERT": self.certificate,
                       "WEIR_SERVER": f"https://{self.endpoint}"}
        return subprocess.run([WEIR, *arguments], env=environment, capture_output=True, text=True, timeout=60)

    def account(self, name, role="viewer", *more):
        file = os.path.join(self.server.data, f"{name}.json")
        done = self.weir("tokens", "create", name, "--role", role, "--service-account", file, "--project", "p1", *more)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertIn(f"Created service account [{name}]", done.stderr)
        self.addCleanup(os.remove, file)
        with open(file) as f:
            return file, json.load(f)

    def run_program(self, program, file):
        lines = f"FILE, ENDPOINT, PARENT = {file!r}, {self.endpoint!r}, {PLACE!r}\n" + program
        environment = {**os.environ, "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": self.certificate,
                       "REQUESTS_CA_BUNDLE": self.certificate}
        return subprocess.run([sys.executable, "-c", lines], env=environment, capture_output=True, text=True, timeout=120)

    def grant(self, fields, headers=None):
        body = fields if isinstance(fields, str) else urllib.parse.urlencode(fields)
        headers = {"Content-Type": "application/x-www-form-urlencoded", **(headers or {})}
        return self.server.ask("POST", "/token", body, None, headers, self.certificate)

    def signed(self, key, **claims):
        now = int(time.time())
        payload = {"iss": key["client_email"], "iat": now, "exp": now + 3600, "aud": key["token_uri"], **claims}
        return jwt.encode(crypt.RSASigner.from_service_account_info(key), payload).decode()

    def get(self, token):
        return self.server.ask("GET", f"{PLACE}/storagePools", None, None,
                               {"Authorization": f"Bearer {token}"}, self.certificate)[0]

    def test_the_file_is_googles(self):
        file, key = self.account("form")
        self.assertEqual(stat.S_IMODE(os.stat(file).st_mode), 0o600)
        self.assertEqual((key["type"], key["project_id"], key["token_uri"]),
                         ("service_account", "p1", f"https://{self.endpoint}/token"))
        self.assertRegex(key["client_email"], "^form@p1")
        self.assertRegex(key["private_key_id"], "^[0-9a-f]{40}$")
        shown = self.weir("tokens", "list", "--format=json").stdout
        self.assertIn("BEGIN PUBLIC KEY", shown)
        self.assertNotIn("PRIVATE", shown)
        # A file that exists is not written over, a name that is taken leaves no file.
        for name, path, words in (("other", file, "exists"), ("form", file + "2", "form; names are not used twice")):
            refused = self.weir("tokens", "create", name, "--role", "viewer", "--service-account", path)
            self.assertNotEqual(refused.returncode, 0)
            self.assertIn(words, refused.stderr)
        self.assertFalse(os.path.exists(file + "2"))

    def test_the_libraries_sign_in_with_it(self):
        file, key = self.account("libraries", "viewer")
        for service in SERVICES:
            for transport, program in USE.items():
                with self.subTest(transport=transport, service=service["module"]):
                    done = self.run_program(program.format(**service), file)
                    self.assertEqual((done.returncode, done.stdout.strip()), (0, "[]"), done.stderr[-2000:])
        done = self.run_program(EXCHANGE, file)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "200 [] True"), done.stderr[-2000:])
        # Another project's file of the same name, with a key of its own, is nobody's.
        stranger = dict(key)
        _, other = self.account("stranger")
        stranger["private_key"] = other["private_key"]
        forged = os.path.join(self.server.data, "forged.json")
        self.addCleanup(os.remove, forged)
        with open(forged, "w") as f:
            json.dump(stranger, f)
        done = self.run_program(USE["grpc"].format(**SERVICES[0]), forged)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("not signed with the account's key", done.stderr)

    def test_changes_are_in_the_audit_log(self):
        program = """
from google.cloud import netapp_v1 as m
client = m.NetAppClient.from_service_account_file(FILE, client_options={"api_endpoint": ENDPOINT})
pool = m.StoragePool(service_level="PREMIUM", capacity_gib=2048, network="default")
print(client.create_storage_pool(parent=PARENT, storage_pool_id="audited", storage_pool=pool).result(timeout=30).name)
client.delete_storage_pool(name=PARENT + "/storagePools/audited").result(timeout=30)
"""
        file, _ = self.account("changes", "editor")
        done = self.run_program(program, file)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, f"{PLACE}/storagePools/audited"), done.stderr[-2000:])
        audit = json.loads(self.weir("audit", "--format=json", "--limit=20").stdout)
        seen = {(e["actor"], e["method"], e["address"]) for e in audit if e["resource"].endswith("/storagePools/audited")}
        self.assertEqual({(a, m) for a, m, _ in seen}, {("changes", "create"), ("changes", "delete")})
        self.assertTrue(all(address in ("127.0.0.1", "::1") for _, _, address in seen), seen)
        listed = json.loads(self.weir("tokens", "list", "--format=json").stdout)
        self.assertIn("lastUseTime", next(t for t in listed if t["name"] == "tokens/changes"))

    def test_a_grant_lives_an_hour_and_dies_with_its_account(self):
        _, key = self.account("granted", "viewer")
        status, answer = self.grant({"grant_type": GRANT, "assertion": self.signed(key)})
        self.assertEqual((status, set(answer), answer["token_type"]),
                         (200, {"access_token", "expires_in", "token_type"}, "Bearer"))
        self.assertTrue(3590 <= answer["expires_in"] <= 3600, answer["expires_in"])
        token = answer["access_token"]
        self.assertEqual(self.get(token), 200)
        # The role of the account, and its name in the audit log.
        pools = self.server.ask("POST", f"{PLACE}/storagePools", {}, {"storagePoolId": "x"},
                                {"Authorization": f"Bearer {token}"}, self.certificate)
        self.assertEqual((pools[0], pools[1]["error"]["details"][0]["reason"]), (403, "ROLE_INSUFFICIENT"))
        # It outlives the server, but not the account.
        self.server.stop()
        self.server.start()
        type(self).endpoint = f"localhost:{self.server.port}"
        self.assertEqual(self.get(token), 200)
        self.assertEqual(self.weir("tokens", "revoke", "granted", "--quiet").returncode, 0)
        self.assertEqual(self.get(token), 401)
        status, answer = self.grant({"grant_type": GRANT, "assertion": self.signed(key)})
        self.assertEqual((status, answer["error"]), (400, "invalid_grant"))

    def test_bad_grants_are_refused_as_oauth_does(self):
        _, key = self.account("bad")
        now = int(time.time())
        good = self.signed(key)
        for fields, error in (
                ({}, "invalid_request"),
                ({"grant_type": GRANT}, "invalid_request"),
                ({"assertion": good}, "invalid_request"),
                ({"grant_type": "password", "assertion": good}, "unsupported_grant_type"),
                ({"grant_type": GRANT, "assertion": "x"}, "invalid_grant"),
                ({"grant_type": GRANT, "assertion": self.signed(key, exp=now - 1, iat=now - 60)}, "invalid_grant"),
                ({"grant_type": GRANT, "assertion": self.signed(key, aud="https://netapp.googleapis.com/")}, "invalid_grant"),
                ({"grant_type": GRANT, "assertion": self.signed(key, iss="nobody@p1.weir.internal")}, "invalid_grant")):
            status, answer = self.grant(fields)
            self.assertEqual((status, answer["error"]), (400, error), answer)
            self.assertTrue(answer["error_description"])
        status, answer = self.grant("x=" + "y" * 10_000)
        self.assertEqual((status, answer["error"]), (400, "invalid_request"), answer)
        self.assertEqual(self.grant({}, {"Origin": "https://evil.example"})[0], 403)

    def test_wrong_ones_are_counted(self):
        _, key = self.account("counted")
        stranger, wrong = self.signed(key), self.signed(key, aud="https://elsewhere/token")
        last = None
        for _ in range(30):
            last = self.grant({"grant_type": GRANT, "assertion": wrong})
            if last[0] == 429:
                break
        self.assertEqual((last[0], last[1]["error"]), (429, "temporarily_unavailable"))
        # For others' addresses nothing changes, and for this one it ends with a restart.
        self.assertEqual(self.get(stranger), 429)
        self.server.stop()
        self.server.start()
        type(self).endpoint = f"localhost:{self.server.port}"
        self.assertEqual(self.get(stranger), 200)


if __name__ == "__main__":
    unittest.main()
