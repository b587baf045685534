"""Google's Go libraries over gRPC, which Trident's driver for NetApp Volumes uses: plain, and over TLS with a service account."""

import json
import os
import pathlib
import shutil
import subprocess
import unittest

from weirtest import PLACE, WEIR, Server

ROOT = pathlib.Path(__file__).resolve().parents[2]
SOURCE = ROOT / "conformance/api/go"
STEPS = ["a pool", "a volume that can be mounted", "a larger volume", "a snapshot", "a filtered list", "a refusal with its reason",
         "a deadline", "all deleted", "an instance with its address", "the instance deleted"]


def built():
    """The program, built once below target/; why not, if Go or its modules are not here."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "api-go"
    if not shutil.which("go"):
        raise unittest.SkipTest("go is not on the path")
    environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
    done = subprocess.run(["go", "build", "-o", target / "clients", "."], cwd=SOURCE, env=environment, capture_output=True, text=True,
                          timeout=900, check=False)
    if done.returncode:
        fetched = subprocess.run(["go", "mod", "download"], cwd=SOURCE, env=environment, capture_output=True, text=True, timeout=900,
                                 check=False)
        if fetched.returncode:
            raise unittest.SkipTest(f"Go's modules cannot be had here: {fetched.stderr.strip().splitlines()[-1]}")
        raise RuntimeError(done.stderr)
    return target / "clients"


class Go(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.program = built()

    def server(self, *arguments):
        server = Server(*arguments)
        self.addCleanup(server.close)
        return server

    def steps(self, *arguments):
        done = subprocess.run([self.program, *arguments], capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.splitlines(), STEPS)

    def test_without_a_sign_in(self):
        self.steps(f"127.0.0.1:{self.server().port}", PLACE)

    def test_with_a_service_account_over_tls(self):
        server = self.server()
        status, answer = server.ask("POST", "tokens", {"role": "admin"}, {"tokenId": "admin"})
        self.assertEqual(status, 200, answer)
        server.stop()
        server.arguments = ("--api-tls", "generate")
        server.start()
        certificate = os.path.join(server.data, "api-cert.pem")
        endpoint = f"localhost:{server.port}"
        file = os.path.join(server.data, "go.json")
        environment = {**os.environ, "WEIR_TOKEN": answer["token"], "WEIR_CA_CERT": certificate, "WEIR_SERVER": f"https://{endpoint}"}
        subprocess.run([WEIR, "tokens", "create", "go", "--role", "admin", "--service-account", file, "--project", "p1"],
                       env=environment, check=True, capture_output=True, timeout=60)
        with open(file, encoding="utf-8") as key:
            self.assertEqual(json.load(key)["type"], "service_account")
        self.steps(endpoint, PLACE, certificate, file)


if __name__ == "__main__":
    unittest.main()
