"""The load generator for SMB against the real binary: every load, every protection, several channels."""

import json
import subprocess

from weirsmb import PASSWORD, WEIR, SmbTest


class Bench(SmbTest):
    def bench(self, load, *more, code=0):
        password = self.server.top / "password"
        password.write_text(PASSWORD + "\n")
        done = subprocess.run(
            [WEIR, "bench", "smb", load, "--server", f"127.0.0.1:{self.server.port}", "--user", "mouse",
             "--password-file", password, "--timeout", "20", "-n", "600", "--json", "-", *more],
            capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout) if code == 0 else done.stderr

    def nothing_left(self):
        self.assertNotIn("weir-bench", self.run_ok("ls"))

    def test_every_load_runs_over_channels_and_leaves_nothing(self):
        for load, *more in (("echo",), ("create",), ("create-write", "--write-through"), ("mkdir",), ("stat", "--files", "300"),
                            ("list", "--files", "1000"), ("remove", "--files", "500"),
                            ("read", "-s", "8m", "-b", "1m"), ("write", "-s", "8m", "-b", "256k")):
            with self.subTest(load):
                result = self.bench(load, "-c", "4", *more)
                self.assertEqual(result["faults"] + result["notes"], [])
                self.assertEqual(result["ops"], 500 if load == "remove" else 600)
                if load == "list":
                    self.assertGreater(result["entries_per_s"], 0)
                self.nothing_left()

    def test_contents_are_right_however_messages_are_protected(self):
        for protection in (("sign", "--signing", "gmac"), ("sign", "--signing", "cmac"), ("sign", "--signing", "hmac"),
                           ("encrypt", "--cipher", "aes-128-gcm"), ("encrypt", "--cipher", "aes-256-gcm")):
            for pattern in ("sequential", "random"):
                with self.subTest((protection, pattern)):
                    result = self.bench("mix", "-c", "4", "--clients", "2", "-s", "8m", "-b", "64k", "--verify", "-p", pattern,
                                        "--protection", *protection)
                    self.assertEqual(result["faults"], [])
                    # FLUSHes after a pass are among those begun.
                    self.assertGreater(result["ops"], 500)
        self.nothing_left()

    def test_contents_of_another_place_are_a_fault(self):
        sizes = ("-c", "1", "-s", "4m", "--files", "1", "--verify")
        self.bench("write", *sizes, "--keep", "--dir", "kept")
        # What a reader with another seed expects is not there.
        fault = self.bench_faults("read", *sizes, "--reuse", "--no-preread", "--seed", "7", "--dir", "kept")
        self.assertIn("reads with wrong data", fault)

    def bench_faults(self, load, *more):
        password = self.server.top / "password"
        done = subprocess.run(
            [WEIR, "bench", "smb", load, "--server", f"127.0.0.1:{self.server.port}", "--user", "mouse",
             "--password-file", password, "-n", "50", *more], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        return done.stdout

    def test_what_the_server_refuses_is_said(self):
        self.assertIn("the server wants signatures", self.bench("echo", "--protection", "none", code=1))
        self.assertIn("BAD_NETWORK_NAME", self.bench("echo", "--share", "nowhere", code=1))
