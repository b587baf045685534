"""`--json` of the commands that work on a data folder: one document on stdout, whatever they print for people; and Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", folder) for folder in ("upgrade", "api")]
import fixture  # noqa: E402
from weirtest import WEIR, Server  # noqa: E402


class Json(unittest.TestCase):
    def setUp(self):
        temporary = tempfile.TemporaryDirectory(prefix="weir-json-")
        self.addCleanup(temporary.cleanup)
        self.data, self.copy, self.new = (os.path.join(temporary.name, name) for name in ("data", "copy", "new"))

    def json(self, *words, **options):
        ran = subprocess.run([WEIR, *words, "--json"], text=True, capture_output=True, timeout=60, **options)
        self.assertEqual(ran.returncode, 0, ran.stdout + ran.stderr)
        return json.loads(ran.stdout)

    def test_commands_of_a_data_folder(self):
        server = Server("--smb", "127.0.0.1:0", data=self.data, memory="256M")
        self.addCleanup(server.close)
        made = self.json("users", "create", "mouse", "--uid", "1000", "--data", self.data, input="correct horse\n")
        self.assertEqual(made, {"name": "mouse", "uid": 1000, "gid": 1000, "effective": "now"})
        self.assertEqual(self.json("users", "list", "--data", self.data),
                         [{"name": "mouse", "uid": 1000, "gid": 1000, "groups": []}])
        fixture.put(fixture.nfs_port(server), "/vol1/file", b"contents\n")
        scrubbed = self.json("scrub", self.data)
        self.assertEqual(scrubbed["faults"], [])
        self.assertIn("verified", scrubbed["summary"])
        kept = self.json("backup", self.copy, "--data", self.data)
        self.assertEqual((kept["folder"], kept["catalog"], "weir.json" in kept["files"]), (self.copy, True, True))
        self.assertEqual(self.json("restore", self.copy, "--data", self.new)["files"], kept["files"])
        self.assertEqual(self.json("users", "delete", "mouse", "--data", self.data)["name"], "mouse")
        self.assertIsNone(self.json("ad", "show", "--data", self.data))
        self.assertEqual(self.json("upgrade", "--dry-run", "--data", self.data)["switchedOn"], [])
        server.stop()
        checked = self.json("check", self.data)
        self.assertEqual((checked["clean"], checked["faults"], checked["catalog"]["volumes"]), (True, [], 1))
        self.assertEqual(self.json("catalog", "rebuild", self.data), {"volumes": [], "pools": [], "damagedCatalog": None})
        self.assertEqual(len(self.json("witness", "--data", self.new + "-witness", "--show")["certificate"]), 64)

    def test_an_interrupt_says_what_becomes_of_it(self):
        server = Server(data=self.data, memory="256M")
        self.addCleanup(server.close)
        fixture.put(fixture.nfs_port(server), "/vol1/file", os.urandom(4 << 20))
        # A scrub reads what a checkpoint has written, as the end of a server does.
        server.stop()
        server = Server(data=self.data, memory="256M")
        self.addCleanup(server.close)
        # So slow that it is interrupted for sure.
        scrub = subprocess.Popen([WEIR, "scrub", self.data, "--rate", "1K"], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while "admin: scrub" not in server.output():
            self.assertIsNone(scrub.poll())
        scrub.send_signal(signal.SIGINT)
        _, err = scrub.communicate(timeout=30)
        self.assertEqual(scrub.returncode, 130, err)
        self.assertIn("the scrub in the server ends within seconds", err)


if __name__ == "__main__":
    unittest.main()
