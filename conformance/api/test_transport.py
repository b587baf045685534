"""How clients reach the API: certificates that they are given to trust, and gRPC over them."""

import os
import socket
import ssl
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

import grpc
from google.api_core.exceptions import PermissionDenied, Unauthenticated
from google.cloud import netapp_v1
from google.cloud.filestore_v1 import CloudFilestoreManagerClient
from overgrpc import synchronous
from weirtest import PLACE, Server, gcloud_environment

NAME = "storage.example.com"
LIST = """
import sys
from google.cloud import netapp_v1
from google.oauth2.credentials import Credentials
client = netapp_v1.NetAppClient(transport="rest", credentials=Credentials(sys.argv[2]),
                                client_options={"api_endpoint": sys.argv[1]})
print([p.name for p in client.list_storage_pools(parent="projects/weir/locations/local")])
"""


def untrusting(environment):
    """An environment without certificates of this machine's own; requests puts its variables before what a program sets."""
    ours = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR")
    return {k: v for k, v in environment.items() if k not in ours}


class Trust(unittest.TestCase):
    """A client with the server's certificate, and nothing else, believes the server; and no other client does."""

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        status, answer = cls.server.ask("POST", "tokens", {"role": "viewer"}, {"tokenId": "t"})
        assert status == 200, answer
        cls.token = answer["token"]
        cls.server.stop()
        cls.server.arguments = ("--api-tls", "generate")
        cls.server.start()
        cls.addClassCleanup(cls.server.close)
        cls.certificate = os.path.join(cls.server.data, "api-cert.pem")

    def python(self, **environment):
        return subprocess.run([sys.executable, "-c", LIST, self.server.url, self.token], timeout=120,
                              capture_output=True, text=True, env={**untrusting(os.environ), **environment})

    def test_pythons_client(self):
        done = self.python(REQUESTS_CA_BUNDLE=self.certificate)
        self.assertEqual((done.returncode, done.stdout.strip()),
                         (0, "['projects/weir/locations/local/storagePools/default']"), done.stderr[-2000:])
        refused = self.python()
        self.assertNotEqual(refused.returncode, 0)
        self.assertIn("CERTIFICATE_VERIFY_FAILED", refused.stderr)

    def test_gcloud(self):
        environment = untrusting(gcloud_environment(self))
        token = os.path.join(self.server.data, "token")
        with open(token, "w") as f:
            f.write(self.token)
        environment.pop("CLOUDSDK_AUTH_DISABLE_CREDENTIALS")
        environment.update(CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE=self.certificate, CLOUDSDK_AUTH_ACCESS_TOKEN_FILE=token,
                           CLOUDSDK_CORE_PROJECT="weir")
        done = subprocess.run(["gcloud", "netapp", "storage-pools", "list", "--location=local", "--format=value(name)"],
                              capture_output=True, text=True, timeout=120, env=environment)
        self.assertEqual((done.returncode, done.stdout.strip().rsplit("/", 1)[-1]), (0, "default"), done.stderr)

    def test_a_first_start_with_a_token_from_a_file(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-api-")
        self.addCleanup(folder.cleanup)
        file = os.path.join(folder.name, "token")
        first, second = (f"weir_{digit * 64}" for digit in "12")
        data = os.path.join(folder.name, "data")
        with open(file, "w") as f:
            f.write(first[:-1] + "\n")
        with self.assertRaisesRegex(RuntimeError, "a token is weir_ and 64 hexadecimal digits"):
            Server("--api-tls", "generate", "--api-token-file", file, api="0.0.0.0:0", data=data)
        self.assertFalse(os.path.exists(data), "a refused start leaves no trace")
        with open(file, "w") as f:
            f.write(first + "\n")
        server = Server("--api-tls", "generate", "--api-token-file", file, api="0.0.0.0:0", data=data)
        self.addCleanup(server.close)
        certificate = os.path.join(server.data, "api-cert.pem")

        def status(token):
            context = ssl.create_default_context(cafile=certificate)
            request = urllib.request.Request(f"https://localhost:{server.port}/v1/{PLACE}/storagePools",
                                             headers={"Authorization": f"Bearer {token}"})
            try:
                with urllib.request.urlopen(request, context=context, timeout=30) as reply:
                    return reply.status
            except urllib.error.HTTPError as error:
                return error.code
        self.assertEqual([status(first), status(second)], [200, 401])
        server.stop()
        with open(file, "w") as f:
            f.write(second)
        server.start()
        self.assertEqual([status(first), status(second)], [401, 200])
        # A token that was revoked stays so, and a file without a token is named.
        server.stop()
        for text, fault in ((first, "was revoked"), ("secret", "64 hexadecimal digits")):
            with open(file, "w") as f:
                f.write(text)
            with self.assertRaisesRegex(RuntimeError, f"{file}: .*{fault}"):
                server.start()
        with open(file, "w") as f:
            f.write(second)
        server.start()

    def test_names_by_option(self):
        def shown():
            context = ssl.create_default_context(cafile=self.certificate)
            with open(self.certificate, "rb") as f:
                before = f.read()
            address = ("127.0.0.1", self.server.port)
            try:
                with socket.create_connection(address, timeout=10) as s:
                    with context.wrap_socket(s, server_hostname=NAME):
                        return True, before
            except ssl.SSLCertVerificationError:
                return False, before
        believed, first = shown()
        self.assertFalse(believed)
        self.server.stop()
        self.server.arguments += ("--api-tls-san", NAME, "--api-tls-san", "192.0.2.7")
        self.server.start()
        believed, second = shown()
        self.assertTrue(believed)
        self.assertNotEqual(first, second)
        self.assertIn("clients that trusted the old one", self.server.output())
        self.server.stop()
        self.server.start()
        self.assertEqual(shown(), (True, second))
        self.assertEqual(self.python(REQUESTS_CA_BUNDLE=self.certificate).returncode, 0)

    def test_grpc_over_tls(self):
        """The libraries as they come out of the box but for the address, the certificate and the token."""
        with open(self.certificate, "rb") as f:
            trusted = grpc.ssl_channel_credentials(f.read())
        target = f"localhost:{self.server.port}"
        for token, refused in ((self.token, None), (self.token[:-1] + "x", Unauthenticated), (None, Unauthenticated)):
            credentials = trusted
            if token:
                credentials = grpc.composite_channel_credentials(trusted, grpc.access_token_call_credentials(token))
            for kind in (netapp_v1.NetAppClient, CloudFilestoreManagerClient):
                with grpc.secure_channel(target, credentials) as channel:
                    client = synchronous(kind, channel)
                    call = getattr(client, "list_storage_pools", None) or client.list_instances
                    if refused:
                        with self.assertRaises(refused):
                            call(parent=PLACE, timeout=20)
                    else:
                        self.assertEqual(list(call(parent=PLACE, timeout=20)), [])
        # A viewer changes nothing.
        credentials = grpc.composite_channel_credentials(trusted, grpc.access_token_call_credentials(self.token))
        with grpc.secure_channel(target, credentials) as channel:
            client = synchronous(netapp_v1.NetAppClient, channel)
            with self.assertRaises(PermissionDenied) as caught:
                client.delete_storage_pool(name=f"{PLACE}/storagePools/x", timeout=20)
            self.assertEqual(caught.exception.reason, "ROLE_INSUFFICIENT")
        # A client that speaks both gets REST.
        context = ssl.create_default_context(cafile=self.certificate)
        context.set_alpn_protocols(["h2", "http/1.1"])
        request = urllib.request.Request(self.server.url + "/openapi/", headers={"Authorization": f"Bearer {self.token}"})
        with urllib.request.urlopen(request, context=context, timeout=10) as answer:
            self.assertEqual(answer.status, 200)


if __name__ == "__main__":
    unittest.main()
