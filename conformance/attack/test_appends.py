"""Appends at once: what SMB clients write at the end (offset 2^64 - 1, MS-SMB2 §3.3.5.13) lies behind each other, whole."""

import os
import subprocess
import tempfile
import threading
import unittest

import attacker
import test_rights_matrix as matrix

CLIENTS, RECORDS, LENGTH = 4, 400, 64
AT_END = 0xFFFFFFFFFFFFFFFF


class Appends(unittest.TestCase):
    port_of = staticmethod(matrix.Matrix.port_of)
    session = matrix.Matrix.session

    def test_writes_at_the_end(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-appends-")
        self.addCleanup(folder.cleanup)
        data = os.path.join(folder.name, "data")
        server = attacker.Server("--smb", "127.0.0.1:0", data=data)
        self.addCleanup(server.close)
        made = subprocess.run([attacker.weirtest.WEIR, "users", "create", "root", "--uid", "0", "--gid", "0", "--data", data],
                              input=matrix.PASSWORD + "\n", text=True, capture_output=True, timeout=30)
        self.assertEqual(made.returncode, 0, made.stderr)
        for words, access in ("to write", matrix.WRITE_DATA), ("to append", matrix.APPEND_DATA):
            with self.subTest(words):
                self.appended(server, words, access)

    def appended(self, server, name, access):
        clients = [self.session(server, "root") for _ in range(CLIENTS)]
        begin, statuses = threading.Barrier(CLIENTS), []

        def append(number, client):
            status, file = client.opened(name, access, matrix.smbwire.OPEN_IF)
            begin.wait()
            for n in range(RECORDS):
                statuses.append(client.put(file, AT_END, b"%*d\n" % (LENGTH - 1, number * RECORDS + n)))
            statuses.extend((status, client.closed(file)))

        threads = [threading.Thread(target=append, args=one) for one in enumerate(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(set(statuses), {matrix.OK})
        status, file = clients[0].opened(name, matrix.READ_DATA)
        self.assertEqual(status, matrix.OK)
        content = b""
        while part := clients[0].get(file, len(content), 1 << 15)[1]:
            content += part
        self.assertEqual(sorted(map(int, content.split())), list(range(CLIENTS * RECORDS)))
        self.assertEqual(clients[0].closed(file), matrix.OK)


if __name__ == "__main__":
    unittest.main()
