"""Groups of Samba's smbtorture against a list of what each of their tests is expected to come to (torture.tsv)."""

import re
from pathlib import Path

from weirsmb import SmbTest

RESULT = re.compile(r"^(success|failure|error|skip): ([^\[]+?)(?: \[)?$", re.M)


def expected():
    """By group: what each test is expected to come to."""
    groups = {}
    for line in Path(__file__).with_name("torture.tsv").read_text().splitlines():
        if line and not line.startswith("#"):
            test, result, _reason = line.split("\t")
            group, name = test.rsplit("/", 1)
            groups.setdefault(group, {})[name] = result
    return groups


class Torture(SmbTest):
    maxDiff = None

    def test_every_group_comes_to_what_the_list_says(self):
        for group, tests in expected().items():
            with self.subTest(group):
                out = self.server.smbtorture(group)
                came = {name.strip(): "pass" if result == "success" else "fail" if result != "skip" else "skip"
                        for result, name in RESULT.findall(out)}
                either = {name for name, result in tests.items() if result == "either"}
                came |= {name: "either" for name in either if came.get(name) in ("pass", "fail")}
                self.assertEqual(came, tests, out[-3000:])
                self.assertIsNone(self.server.process.poll(), "the server is alive")
