"""A server with two machines' worth of volumes, and `weir` as its client."""

import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "api"))
import weirtest  # noqa: E402
from weirtest import WEIR, Server  # noqa: E402

SVM = "SVM"


class Case(weirtest.Case):
    """Tests that share a server with a pool and a volume `vol_test` of the machine SVM."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.furnish()

    @classmethod
    def furnish(cls):
        status, answer = cls.server.ask(
            "POST", f"projects/{SVM}/locations/local/storagePools?storagePoolId=pool",
            {"serviceLevel": "FLEX", "capacityGib": "1024", "network": "default"})
        assert status == 200 and answer.get("done"), answer
        cls.create_volume("vol_test", "RW")

    @classmethod
    def create_volume(cls, name, kind):
        code, text = cls.line(f"volume create -vserver {SVM} -volume {name} -size 16GB -type {kind}")
        assert code == 0, text

    @classmethod
    def weir(cls, *arguments, stdin=None):
        done = subprocess.run([WEIR, *arguments], input=stdin, capture_output=True, text=True, timeout=120,
                              env={**os.environ, "WEIR_SERVER": cls.server.url, "HOME": cls.server.data})
        return done.returncode, done.stdout, done.stderr

    @classmethod
    def line(cls, text):
        """The exit code and what a line prints."""
        code, out, err = cls.weir("ontap", text)
        return code, out + err

    def says(self, text, reply):
        """Warnings depend on how much disk this machine has."""
        code, said = self.line(text)
        said = "".join(line for line in said.splitlines(keepends=True) if not line.startswith("Warning: volumes have "))
        self.assertEqual((code, said), (0, reply), text)

    def settled(self, destination, status="Idle", state=None, seconds=60):
        """Waits for a relationship to rest."""
        end = time.monotonic() + seconds
        while True:
            code, answer = self.server.ask(
                "GET", f"/api/private/cli/snapmirror?destination_path={destination}&fields=*")
            self.assertEqual(code, 200, answer)
            record = answer["records"][0]
            if record["status"] == status and state in (None, record["state"]):
                return record
            if time.monotonic() > end:
                self.fail(f"not {status}: {record}")
            time.sleep(0.05)


class Protected(Case):
    """The same, in the end over TLS and with the token `cls.token`; `prepare` runs before, with neither."""

    @classmethod
    def prepare(cls):
        pass

    @classmethod
    def furnish(cls):
        # Nothing has to be proved to make the first token, on a server that only this machine reaches.
        status, answer = cls.server.ask("POST", "tokens?tokenId=client", {"role": "ADMIN"})
        assert status == 200, answer
        cls.token = answer["token"]
        super().furnish()
        cls.prepare()
        cls.server.stop()
        cls.server.arguments = ("--api-tls", "generate")
        cls.server.start()
