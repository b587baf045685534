#!/usr/bin/env python3
"""Rules and dashboards under a real Prometheus that scrapes a real server under load: no query is without data.

Usage: test.py; WEIR=path of the binary; PROMETHEUS=folder of prometheus and promtool, else they are looked for in PATH."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.parse
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "conformance", "api"))
import nfs3  # noqa: E402
import weirtest  # noqa: E402

FOLDER = os.environ.get("PROMETHEUS")
PATH = FOLDER or os.environ["PATH"]
PROMETHEUS, PROMTOOL = (shutil.which(name, path=PATH) for name in ("prometheus", "promtool"))
PLACE = "projects/p1/locations/us-central1"
QUERIES = [line.split("\t") for line in subprocess.run(
    [sys.executable, os.path.join(HERE, "dashboards.py"), "--queries"],
    check=True, capture_output=True, text=True).stdout.splitlines()]


class Written(unittest.TestCase):
    def test_dashboards_are_what_the_script_writes(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, os.path.join(HERE, "dashboards.py"), folder], check=True)
            for name in os.listdir(folder):
                with open(os.path.join(folder, name)) as made, open(os.path.join(HERE, "grafana", name)) as kept:
                    self.assertEqual(made.read(), kept.read(), f"{name} is out of date: dashboards.py")


    def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not(self):
        with open(os.path.join(HERE, "weir.rules.yml")) as file:
            alerts = re.findall(r"- alert: (\w+)", file.read())
        with open(os.path.join(HERE, "weir.test.yml")) as file:
            cases = re.findall(r"alertname: (\w+), eval_time: \w+(, exp_alerts)?", file.read())
        self.assertGreater(len(alerts), 20)
        self.assertEqual(len(alerts), len(set(alerts)))
        for alert in alerts:
            self.assertEqual({bool(fires) for name, fires in cases if name == alert}, {True, False}, alert)


@unittest.skipUnless(PROMTOOL, "there is no promtool")
class Rules(unittest.TestCase):
    def test_each_alert_fires_and_clears(self):
        for what in (["check", "rules", "weir.rules.yml"], ["test", "rules", "weir.test.yml"]):
            done = subprocess.run([PROMTOOL, *what], cwd=HERE, capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Damage(unittest.TestCase):
    """A block that the device returns otherwise than written is counted, a condition, and an alert; a scrub clears it."""

    def setUp(self):
        self.server = weirtest.Server()
        self.addCleanup(self.server.close)

    def mount(self):
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        nfs = nfs3.Nfs(port, "/vol1")
        self.addCleanup(nfs.close)
        return nfs

    def value(self, series):
        page = self.server.ask("GET", "/metrics")[1]
        return float(re.search(rf"^{re.escape(series)} (\S+)$", page, re.M)[1])

    def conditions(self):
        answer = self.server.ask("GET", "conditions")[1]
        return [one for one in answer["conditions"] if one["kind"] == "CHECKSUM_FAULT"]

    def reach(self, what):
        end = time.monotonic() + 60
        while not what():
            self.assertLess(time.monotonic(), end, self.conditions())
            time.sleep(0.1)

    def fires(self):
        """Whether the alert's expression holds for the page as it is now."""
        with open(os.path.join(HERE, "weir.rules.yml")) as file:
            metric, bound = re.search(r"alert: WeirBlocksDamaged\s+expr: (\w+) > (\d+)", file.read()).groups()
        return self.value(metric) > float(bound)

    def scrub(self):
        done = subprocess.run([weirtest.WEIR, "scrub", self.server.data], capture_output=True, text=True, timeout=120)
        return done.stdout + done.stderr

    def test_planted_damage_is_met_and_cleared(self):
        contents = os.urandom(16 * 4096)
        self.mount().put(b"bad", contents)
        self.server.stop()
        block = contents[4 * 4096:5 * 4096]
        with open(os.path.join(self.server.data, "device"), "r+b") as device:
            at = device.read().index(block)
            device.seek(at + 1234)
            device.write(bytes([block[1234] ^ 0x10]))
        self.server.start()
        self.assertEqual((self.conditions(), self.fires()), ([], False))
        self.assertEqual(self.value("weir_scrub_finished_timestamp_seconds"), 0)
        nfs = self.mount()
        with self.assertRaises(OSError):
            nfs.read(nfs.lookup(b"bad"))
        self.assertGreaterEqual(self.value('weir_checksum_errors_total{reader="request"}'), 1)
        self.assertTrue(self.fires())
        self.reach(self.conditions)
        self.assertEqual(self.conditions()[0]["severity"], "ERROR")
        self.assertIn("1 damaged", self.scrub())
        self.assertEqual(self.value('weir_checksum_errors_total{reader="scrub"}'), 1)
        self.assertEqual((self.value("weir_damaged_blocks"), self.value("weir_scrub_running")), (1, 0))
        self.assertGreater(self.value("weir_scrub_read_bytes_total"), len(contents))
        self.assertTrue(self.fires() and self.conditions())
        nfs.remove(b"bad")
        # The trees on the device are those of the last checkpoint.
        self.reach(lambda: "0 damaged" in self.scrub())
        self.assertFalse(self.fires())
        self.reach(lambda: not self.conditions())
        self.assertLess(abs(self.value("weir_scrub_finished_timestamp_seconds") - time.time()), 60)


@unittest.skipUnless(PROMETHEUS and PROMTOOL, "there is no prometheus")
class Scraped(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = weirtest.Server()
        cls.addClassCleanup(cls.server.close)
        for path, body, query in (
            ("storagePools", {"capacityGib": "2048", "serviceLevel": "PREMIUM", "network": "n", "qosType": "MANUAL"},
             {"storagePoolId": "pool"}),
            ("volumes", {"storagePool": "pool", "capacityGib": "100", "shareName": "mq", "protocols": ["NFSV3"],
                         "throughputMibps": 8}, {"volumeId": "mq"}),
        ):
            status, answer = cls.server.ask("POST", f"{PLACE}/{path}", body, query)
            assert status == 200, answer
        cls.folder = tempfile.TemporaryDirectory(prefix="weir-prometheus-")
        cls.addClassCleanup(cls.folder.cleanup)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            cls.url = f"127.0.0.1:{free.getsockname()[1]}"
        config = os.path.join(cls.folder.name, "prometheus.yml")
        with open(config, "w") as file:
            json.dump({"global": {"scrape_interval": "2s", "evaluation_interval": "5s"},
                       "rule_files": [os.path.join(HERE, "weir.rules.yml")],
                       "scrape_configs": [{"job_name": "weir", "static_configs": [
                           {"targets": [f"127.0.0.1:{cls.server.port}"]}]}]}, file)
        with open(os.path.join(cls.folder.name, "log"), "w") as log:
            cls.prometheus = subprocess.Popen(
                [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={cls.folder.name}/data",
                 f"--web.listen-address={cls.url}"], stdout=log, stderr=log)
        cls.addClassCleanup(cls.prometheus.wait)
        cls.addClassCleanup(cls.prometheus.terminate)
        port = re.search(r"listening on 127\.0\.0\.1:(\d+)", cls.server.output())[1]
        cls.nfs = nfs3.Nfs(int(port), "/mq")
        cls.addClassCleanup(cls.nfs.close)
        cls.bench = subprocess.Popen(
            [weirtest.WEIR, "bench", "nfs3", "mix", "--server", f"127.0.0.1:{port}", "--export", "/mq", "--size", "16M",
             "--duration", "90"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        cls.addClassCleanup(cls.bench.wait)
        cls.addClassCleanup(cls.bench.send_signal, signal.SIGKILL)

    def query(self, text):
        url = f"http://{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": text})
        with urllib.request.urlopen(url, timeout=30) as answer:
            return [one for one in json.load(answer)["data"]["result"] if one["value"][1] != "NaN"]

    def test_every_panel_has_data(self):
        deadline = time.monotonic() + 80
        named = 'weir_volume_info{name="mq",project="p1",pool_name="pool",protocols="NFSV3"}'
        missing = [(panel, query) for which, panel, query in QUERIES if which == "all"]
        # Commits wait for the log, and say of which volume.
        missing.append(("waits", 'sum(weir_operation_wait_seconds_total{wait="log",volume=~".*/mq"}) > 0'))
        missing += [("names", named), ("names", 'weir_pool_info{name="pool",service_level="PREMIUM",qos_type="MANUAL"}')]
        turn = 0
        while missing and time.monotonic() < deadline:
            time.sleep(2)
            # Changes, which the log has to have, and an operation that fails.
            turn += 1
            self.nfs.mkdir(b"folder %d" % turn)
            with self.assertRaises(OSError):
                self.nfs.lookup(b"missing")
            try:
                missing = [(panel, query) for panel, query in missing if not self.query(query)]
            except (OSError, ValueError):
                # It does not listen yet.
                continue
        self.assertEqual(missing, [])
        # What only some servers have is a query nevertheless, over a family that there is.
        for which, panel, query in QUERIES:
            self.query(query)
        self.assertTrue(self.query('max(rate(weir_limit_bound_seconds_total{level="volume"}[1m]))'))

    def test_the_page_is_well_formed(self):
        page = self.server.ask("GET", "/metrics")[1]
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=page, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
