"""What the attacks are measured with works when nobody attacks."""

import re
import unittest

import attacker


class Bystander(unittest.TestCase):
    def test_getattr_answers(self):
        server = attacker.Server()
        self.addCleanup(server.close)
        client = attacker.Client(int(re.search(r"listening on 127\.0\.0\.1:(\d+)", server.output())[1]))
        self.addCleanup(client.close)
        root = client.mount()
        results = client.call(attacker.NFS, 3, 1, attacker.opaque(root), attacker.auth_sys())
        self.assertEqual(results[:8], bytes(7) + b"\x02", "NFS3_OK, and a directory")


if __name__ == "__main__":
    unittest.main()
