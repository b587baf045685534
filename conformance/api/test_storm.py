"""Many mutations at once, and kill -9 in the middle of them."""

import concurrent.futures
import http.client
import signal
import threading
import unittest

from weirtest import PLACE, Case

POOLS, VOLUMES = f"{PLACE}/storagePools", f"{PLACE}/volumes"


def volume(pool, share, **fields):
    return {"storagePool": pool, "shareName": share, "capacityGib": "10", "protocols": ["NFSV3"], **fields}


class Storm(Case):
    def setUp(self):
        pool = {"serviceLevel": "PREMIUM", "capacityGib": "40960", "qosType": "MANUAL", "network": "default"}
        self.name = self.id().rsplit(".", 1)[1].replace("test_", "")[:20].strip("_")
        self.done("POST", POOLS, pool, storagePoolId=self.name)

    def consistent(self, pool):
        """The pool's figures are the sums over its volumes, all of which are usable."""
        got, token = [], ""
        while True:
            page = self.ok("GET", VOLUMES, filter=f"storagePool={pool}", pageSize="50", pageToken=token)
            got += page.get("volumes", [])
            token = page.get("nextPageToken", "")
            if not token:
                break
        self.assertEqual({v["state"] for v in got} - {"READY"}, set())
        shown = self.ok("GET", f"{POOLS}/{pool}")
        self.assertEqual(shown.get("volumeCount", 0), len(got))
        self.assertEqual(int(shown.get("volumeCapacityGib", 0)), sum(int(v["capacityGib"]) for v in got))
        given = sum(v.get("throughputMibps", 0) for v in got)
        self.assertAlmostEqual(shown["availableThroughputMibps"], 2560 - given, places=3)
        return {v["name"].rsplit("/", 1)[1]: v for v in got}

    def test_two_hundred_at_once_take_what_there_is_and_no_more(self):
        def create(i):
            return self.server.ask("POST", VOLUMES, volume(self.name, f"st{i}", throughputMibps=64),
                                   {"volumeId": f"st{i}"})
        with concurrent.futures.ThreadPoolExecutor(200) as threads:
            answers = list(threads.map(create, range(200)))
        made = [i for i, (status, _) in enumerate(answers) if status == 200]
        # 2,560 MiB/s are 40 times 64.
        self.assertEqual(len(made), 40)
        for status, answer in answers:
            if status == 200:
                self.assertNotIn("error", answer)
            else:
                self.assertEqual((status, answer["error"]["status"]), (400, "FAILED_PRECONDITION"), answer)
        self.assertEqual(set(self.consistent(self.name)), {f"st{i}" for i in made})
        # The same names again, all at once: each is taken once.
        def again(i):
            return self.server.ask("POST", VOLUMES, volume(self.name, "same", throughputMibps=0.001),
                                   {"volumeId": "same"})[0]
        self.done("PATCH", f"{VOLUMES}/st{made[0]}", {"throughputMibps": 1}, updateMask="throughputMibps")
        with concurrent.futures.ThreadPoolExecutor(50) as threads:
            statuses = sorted(threads.map(again, range(50)))
        self.assertEqual(statuses, [200] + [409] * 49)

    def test_killed_in_the_middle_nothing_that_was_acknowledged_is_lost(self):
        for round in range(3):
            made, deleted, unknown = set(), set(), set()
            lock = threading.Lock()
            enough = threading.Event()

            def work(worker):
                for i in range(10_000):
                    id = f"k{round}w{worker}n{i}"
                    try:
                        status, answer = self.server.ask(
                            "POST", VOLUMES, volume(self.name, id, throughputMibps=0.5), {"volumeId": id})
                        self.assertEqual(status, 200, answer)
                        with lock:
                            made.add(id)
                            if len(made) >= 40:
                                enough.set()
                        if i % 3 == 0:
                            with lock:
                                made.discard(id)
                                unknown.add(id)
                            status, answer = self.server.ask("DELETE", f"{VOLUMES}/{id}")
                            self.assertEqual(status, 200, answer)
                            with lock:
                                unknown.discard(id)
                                deleted.add(id)
                    except (OSError, http.client.HTTPException):
                        with lock:
                            if id not in made and id not in deleted:
                                unknown.add(id)
                        return

            with concurrent.futures.ThreadPoolExecutor(8) as threads:
                futures = [threads.submit(work, w) for w in range(8)]
                self.assertTrue(enough.wait(60))
                self.server.stop(signal.SIGKILL)
                for f in futures:
                    f.result()
            self.server.start()
            found = {id for id in self.consistent(self.name) if id.startswith(f"k{round}")}
            self.assertLessEqual(made, found)
            self.assertEqual(found & deleted, set())
            self.assertLessEqual(found, made | unknown)
            operations = self.ok("GET", f"{PLACE}/operations", pageSize="1000")["operations"]
            self.assertTrue(all(o["done"] for o in operations))


if __name__ == "__main__":
    unittest.main()
