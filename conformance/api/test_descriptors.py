"""The descriptors in the tree are what Google's libraries define."""

import pathlib
import subprocess
import sys
import unittest

MAKE = pathlib.Path(__file__).resolve().parents[2] / "crates/api/descriptors/make.py"


class Descriptors(unittest.TestCase):
    def test_they_are_those_of_the_libraries(self):
        done = subprocess.run([sys.executable, "-B", MAKE, "--check"], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
