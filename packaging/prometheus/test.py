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
