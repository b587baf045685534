"""OSDs that die under an aggregate of three copies. Only with OSDS=3: `make ceph-three`."""

import hashlib
import os
import signal
import unittest

from ceph import OSDS, OnCluster, Server


@unittest.skipIf(OSDS < 3, "takes three OSDs (OSDS=3)")
class Osds(OnCluster):
    def server(self, name):
        server = Server(self.ceph, "three", os.path.join(self.folder, name))
        self.addCleanup(server.close)
        return server.started()

    def holds(self, server, files):
        for name, want in files.items():
            self.assertEqual(hashlib.sha256(server.cat(name)).hexdigest(), want, name)

    def test_one_dies_and_the_server_after_it(self):
        first, files = self.server("a"), {}

        def put(server, name):
            path, want = self.file(8 << 20)
            self.assertEqual(server.put(path, name, seconds=120).returncode, 0, server.output())
            files[name] = want

        put(first, "before")
        dead = self.ceph.daemons[-1]
        dead.kill()
        dead.wait()
        put(first, "meanwhile")
        self.ceph.until("the cluster has noticed", lambda: self.ceph.up_osds() == OSDS - 1)
        put(first, "without it")
        self.holds(first, files)
        # With two copies left, another server takes the aggregate over.
        first.signal(signal.SIGKILL)
        first.ended()
        second = self.server("b")
        self.holds(second, files)
        put(second, "after the takeover")
        self.ceph.osd(OSDS - 1)
        self.ceph.until("it is back", lambda: self.ceph.up_osds() == OSDS)
        put(second, "at last")
        self.holds(second, files)
        self.assertEqual(second.stop(), 0, second.output())


if __name__ == "__main__":
    unittest.main()
