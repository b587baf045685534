"""Live data under hostile readers: streams that nobody reads, nonsense in parameters, and more streams than there may be."""

import json
import os
import socket
import threading
import time
import unittest

from attacker import LONG, NFS, Client, Server, auth_sys, opaque, weirtest

POOLS = "projects/p1/locations/us-central1/storagePools"
VOLUMES = "projects/p1/locations/us-central1/volumes"
# Volumes at work while readers look, and for how long they do.
COUNT, SECONDS = (500, 30) if LONG else (40, 8)
MIB = 1 << 20


def events(answer):
    """The events of a stream: name, id, data."""
    event = {}
    for line in answer:
        line = line.decode().rstrip("\n")
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            yield event["event"], event["id"], json.loads(event["data"])
            event = {}


def resident(pid):
    with open(f"/proc/{pid}/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Live(weirtest.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server.ask("POST", POOLS, {"capacityGib": str(100 * COUNT + 1024), "serviceLevel": "PREMIUM",
                                       "network": "n"}, {"storagePoolId": "pool"})
        for n in range(COUNT):
            status, answer = cls.server.ask("POST", VOLUMES, {
                "storagePool": "pool", "capacityGib": "100", "shareName": f"v{n}", "protocols": ["NFSV3"],
            }, {"volumeId": f"v{n}"})
            assert status == 200 and answer.get("done"), answer
        cls.nfs = int(cls.server.output().split("listening on 127.0.0.1:")[1].split()[0].rstrip(".,;"))

    def stream(self, rows=None, last=None, source=None):
        connection = self.server.connect()
        self.addCleanup(connection.close)
        headers = {"Last-Event-ID": last} if last else {}
        connection.request("GET", "/v1/live" + (f"?rows={rows}" if rows else ""), headers=headers)
        answer = connection.getresponse()
        return connection, answer

    def load(self, stop):
        """LOOKUPs of a missing name on every volume, over and over."""
        client = Client(self.nfs, timeout=30)
        roots = [client.mount(f"/v{n}".encode()) for n in range(COUNT)]
        try:
            while not stop.is_set():
                for root in roots:
                    client.call(NFS, 3, 3, opaque(root) + opaque(b"nothing"), auth_sys())
        finally:
            client.close()

    def test_one_reads_one_dawdles_one_never_reads(self):
        stop = threading.Event()
        worker = threading.Thread(target=self.load, args=(stop,))
        worker.start()
        self.addCleanup(worker.join)
        self.addCleanup(stop.set)
        rows = f"pools,volumes:{COUNT},clients"
        # Two that never read behind the request, in small windows, and one that reads.
        for _ in range(2):
            idle = socket.socket()
            self.addCleanup(idle.close)
            idle.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            idle.connect(("127.0.0.1", self.server.port))
            idle.sendall(f"GET /v1/live?rows={rows} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        _, answer = self.stream(rows)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["Content-Type"], "text/event-stream")
        known, frames, size, begin, before, slowest = {}, 0, 0, time.monotonic(), None, 0
        for name, identity, data in events(answer):
            if name == "whole":
                known = {row[0]: row[1:] for row in data["rows"]}
                names = {number: (kind, full) for number, kind, full in data["names"]}
                self.assertEqual(len(data["columns"]), 12)
            elif name == "rows":
                frames += 1
                size += len(json.dumps(data))
                names.update({number: (kind, full) for number, kind, full in data.get("names", [])})
                known.update({row[0]: row[1:] for row in data["rows"]})
                for number in data.get("gone", []):
                    known.pop(number)
                self.assertLessEqual(set(known), set(names))
            if before is None and frames >= 2:
                before = resident(self.server.process.pid)
            asked = time.monotonic()
            self.assertEqual(self.server.ask("GET", f"{VOLUMES}/v0")[0], 200)
            slowest = max(slowest, time.monotonic() - asked)
            if frames > 2 and time.monotonic() - begin > SECONDS:
                break
        volumes = [full for kind, full in names.values() if kind == "VOLUME"]
        self.assertEqual(len(volumes), COUNT)
        self.assertLess(size / frames, 120 * COUNT + 2000, "bytes of a frame")
        self.assertLess(resident(self.server.process.pid) - before, 16 * MIB, "memory grows with readers")
        self.assertLess(slowest, 5, "other requests wait for readers")

    def test_a_stream_goes_on_where_it_was(self):
        connection, answer = self.stream("pools")
        seen = None
        for name, identity, data in events(answer):
            if name == "rows":
                seen = identity
                break
        connection.close()
        run, at = seen.split(".")
        # A second has to pass; the next stream says which it is.
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            connection, answer = self.stream("pools", last=seen)
            first = next(events(answer))
            connection.close()
            if first[0] == "past":
                break
        self.assertEqual(first[0], "past", first)
        self.assertEqual(first[2]["epochSeconds"], int(at) + 1)
        # What is of another run, not there yet, too old or nonsense begins anew.
        for last in (f"{int(run) + 1}.{at}", f"{run}.{int(at) + 10 ** 6}", f"{run}.0", "x", "", "1.2.3", "9" * 400):
            connection, answer = self.stream("pools", last=last)
            self.assertEqual(next(events(answer))[0], "whole", last)
            connection.close()

    def test_nonsense_is_refused(self):
        full = f"{VOLUMES}/v0"
        for path in (
            "live?rows=", "live?rows=x", "live?rows=volumes:0", "live?rows=volumes:501", "live?rows=volumes:-1",
            "live?rows=" + "pools," * 100 + "pools", "live?rows=clientsOf:", "live?rows=projects/" + "a" * 5000,
            "live?x=1", "live?rows=%ff", "history", f"history?volume={full}&pool=p", f"history?volume={full}&window=25h",
            f"history?volume={full}&window=0s", f"history?volume={full}&window=1e9m", f"history?volume={full}&window=",
            f"history?client=x&volume={full}", "history?client=%00", "conditions?x=1", "pair?x=1", "server?x=1",
            "latency", f"latency?volume={full}&pool=p", f"latency?volume={full}&window=25h", f"latency?volume={full}&client=10.0.0.1",
            "limitChanges", f"limitChanges?volume={full}&window=-1m", f"limitChanges?volume={full}&pageSize=5",
            "headline", "headline?page=x", "headline?page=" + "a" * 5000, "headline?page=pools&language=fr", "headline?page=snapshots",
            "headline?page=pools&x=1", "conditions?language=%00", "pair?language=", "live?language=de",
            "benchmarks?x=1", "benchmarks/a?x=1", "benchmarks/a:report?path=/etc/passwd",
        ):
            status, answer = self.server.ask("GET", path)
            self.assertEqual(status, 400, (path[:80], answer))
            self.assertLess(len(json.dumps(answer)), 2000, path[:80])
        for path in (
            f"history?volume={full}x", "history?pool=x", f"headline?page=snapshots&volume={full}x", "history?volume=../../etc/passwd", f"latency?volume={full}x",
            "limitChanges?pool=x", "benchmarks/x", "benchmarks/..", "benchmarks/%2e%2e", "benchmarks/..%2f..%2fetc:report",
            "benchmarks/%2fetc%2fpasswd", "benchmarks/a%00b", "benchmarks/" + "a" * 5000, "benchmarks/.hidden:report",
        ):
            self.assertEqual(self.server.ask("GET", path)[0], 404, path[:80])
        # A language that nobody knows is none, whatever it is written with.
        for header in ("fr", ";;q=,,;=", "ja;q=" + "9" * 5000, "\xff", ""):
            status, answer = self.server.ask("GET", "headline", None, {"page": "pools"}, {"Accept-Language": header})
            self.assertEqual((status, answer["page"]), (200, "pools"), header[:20])
        for query in ({}, {"validateOnly": "true"}):
            self.refused(400, "FAILED_PRECONDITION", "POST", "pair:switch", {}, **query)
            for body in ({"force": True}, [], "{"):
                self.refused(400, "INVALID_ARGUMENT", "POST", "pair:switch", body, **query)
        self.refused(400, "INVALID_ARGUMENT", "POST", "pair:switch", {}, validateOnly="perhaps")
        for path in ("live", "history", "latency", "limitChanges", "conditions", "headline", "pair", "server", "benchmarks"):
            self.assertEqual(self.server.ask("POST", path, {})[0], 405, path)

    def test_streams_are_counted(self):
        streams = []
        while True:
            connection, answer = self.stream("pools")
            streams.append(connection)
            if answer.status != 200:
                break
            self.assertLess(len(streams), 100)
        self.assertEqual(answer.status, 429)
        self.assertIn("TOO_MANY_READERS", answer.read().decode())
        for connection in streams:
            connection.close()
        # Their places are free again once the server has seen that.
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            connection, answer = self.stream("pools")
            connection.close()
            if answer.status == 200:
                break
        self.assertEqual(answer.status, 200)

    def test_figures_are_there(self):
        history = self.ok("GET", f"history?volume={VOLUMES}/v0&window=10m")
        self.assertEqual((history["stepSeconds"], len(history["figures"]["p99Seconds"])), (1, 600))
        latency = self.ok("GET", f"latency?volume={VOLUMES}/v0&window=24h")
        self.assertEqual((latency["stepSeconds"], len(latency["operations"]), len(latency["upperSeconds"])), (720, 120, 21))
        self.assertEqual([len(of) for of in latency["waitSeconds"].values()], [120] * 6)
        self.assertEqual(latency["headline"], "Nothing has used it in the last minute.")
        self.assertEqual(set(latency["recent"]["waitSeconds"]), {"pool", "volume", "client", "log", "device", "claim"})
        conditions = self.ok("GET", "conditions")
        self.assertIn("headline", conditions)
        self.assertEqual(self.ok("GET", "pair"), {"configured": False})
        server = self.ok("GET", "server")
        self.assertEqual(server["caller"], {"name": "local", "role": "ADMIN", "mayChange": True})
        self.assertEqual(server["dataFolder"], os.path.abspath(self.server.data))


class Benchmarks(weirtest.Case):
    def folder(self, name, **files):
        at = os.path.join(self.server.data, "benchmarks", name)
        os.makedirs(at)
        for file, content in files.items():
            with open(os.path.join(at, file.replace("_", ".")), "wb") as f:
                f.write(content)
        return at

    def test_bad_runs_are_named_and_cost_nothing(self):
        before = resident(self.server.process.pid)
        self.folder("deep", summary_json=b"[" * (200 << 10))
        self.folder("huge", summary_json=b" " * (64 << 20), report_html=b"x" * (64 << 20))
        self.folder("text", summary_json=b"<script>alert(1)</script>")
        os.symlink("/etc/passwd", os.path.join(self.folder("link"), "report.html"))
        os.symlink("/etc", os.path.join(self.server.data, "benchmarks", "elsewhere"))
        os.mkfifo(os.path.join(self.folder("pipe"), "summary.json"))
        for n in range(300):
            self.folder(f"empty-{n:03}")
        listed = self.ok("GET", "benchmarks")
        self.assertEqual((listed["benchmarks"], len(listed["unreadable"])), ([], 100))
        folders = [one for one in os.scandir(os.path.join(self.server.data, "benchmarks")) if one.is_dir(follow_symlinks=False)]
        self.assertEqual(listed["omitted"], len(folders) - 100)
        for name in ("deep", "huge", "text", "pipe", "link"):
            status, answer = self.server.ask("GET", f"benchmarks/{name}")
            self.assertEqual(status, 400, (name, answer))
            self.assertLess(len(json.dumps(answer)), 2000)
        self.assertEqual(self.server.ask("GET", "benchmarks/huge:report")[0], 400)
        self.assertEqual(self.server.ask("GET", "benchmarks/link:report")[0], 400)
        self.assertEqual(self.server.ask("GET", "benchmarks/elsewhere")[0], 404)
        # Less than one of the two large files; a server that has just begun grows by itself.
        self.assertLess(resident(self.server.process.pid) - before, 60 * MIB)

    def test_a_report_may_do_nothing_in_a_browser(self):
        self.folder("page", report_html=b"<script>alert(1)</script>")
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.request("GET", "/v1/benchmarks/page:report")
        reply = connection.getresponse()
        self.assertEqual((reply.status, reply.read()), (200, b"<script>alert(1)</script>"))
        policy = reply.headers["Content-Security-Policy"]
        self.assertTrue(policy.startswith("sandbox; default-src 'none';"), policy)
        self.assertNotIn("script-src", policy)
        self.assertEqual(reply.headers["X-Content-Type-Options"], "nosniff")


class Stop(unittest.TestCase):
    def test_a_server_that_stops_says_so(self):
        server = Server()
        self.addCleanup(server.close)
        connection = server.connect()
        self.addCleanup(connection.close)
        connection.request("GET", "/v1/live")
        seen = []
        stream = events(connection.getresponse())
        seen.append(next(stream)[0])
        stopping = threading.Thread(target=server.stop)
        stopping.start()
        self.addCleanup(stopping.join)
        for name, _, data in stream:
            seen.append(name)
        self.assertEqual((seen[0], seen[-1]), ("whole", "bye"))
        self.assertEqual(data["reason"], "SERVER_STOPS")


if __name__ == "__main__":
    unittest.main()
