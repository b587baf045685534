"""`weir` as a client of a running server."""

import json
import os
import re
import shutil
import subprocess
import tarfile
import tempfile
import unittest

from nfs3 import Nfs
from weirtest import WEIR, Server

PLACE = ("--project=p1", "--location=us-central1")


class Cli(unittest.TestCase):
    """Commands against a server of the class's own."""

    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.close)

    def weir(self, *words, exit=0, env=None, text=None):
        """What a command prints. Its errors are in self.said."""
        environment = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "WEIR_SERVER": self.server.url}
        environment.update(env or {})
        done = subprocess.run([WEIR, *words], env=environment, input=text, stdin=None if text else subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120)
        self.said = done.stderr
        self.assertEqual(done.returncode, exit, (words, done.stdout, done.stderr))
        return done.stdout

    def get(self, *words):
        return json.loads(self.weir(*words, "--format=json"))

    def refused(self, status, *words):
        """The message of a refusal."""
        self.weir(*words, exit=1)
        self.assertRegex(self.said, r"^ERROR: \(weir\.[a-z.-]+\) " + status + ": ")
        return self.said

    def test_status_is_one_screen(self):
        """`weir status`, as a screen and as JSON; a server that is down is said with its next step."""
        screen = self.weir("status")
        self.assertLessEqual(len(screen.splitlines()), 24, screen)
        for line in (rf"server    {self.server.url}, version [0-9.]+, up .*", "role      single node", "health    (OK|WARNING)",
                     r"capacity  .* physical: .* used, .* free", "promised  .*", "pools     [0-9]+", "volumes   [0-9]+"):
            self.assertRegex(screen, f"(?m)^{line}$")
        facts = json.loads(self.weir("status", "--json"))
        self.assertIn(facts["health"], ("OK", "WARNING"))
        self.assertGreater(facts["capacity"]["sizeBytes"], 0)
        self.assertNotIn("pair", facts)
        self.weir("status", exit=1, env={"WEIR_SERVER": "http://127.0.0.1:1"})
        self.assertIn("weir serve", self.said)

    def test_files_in_snapshots(self):
        """Which snapshots have a file, and its way back into the volume."""
        self.weir("storage-pools", "create", "filed", *PLACE, "--capacity=2TiB", "--service-level=premium")
        self.weir("volumes", "create", "filed", *PLACE, "--storage-pool=filed", "--capacity=100", "--protocols=nfsv3",
                  "--share-name=filed", "--export-policy=allowed-clients=127.0.0.1,access-type=READ_WRITE,has-root-access=true")
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        nfs = Nfs(port, "/filed")
        self.addCleanup(nfs.close)
        nfs.put(b"may.csv", b"first", mtime=(1700000000, 0))
        self.weir("volumes", "snapshots", "create", "s1", "--volume=filed", *PLACE)
        nfs.put(b"may.csv", b"second one", mtime=(1700000060, 0))
        nfs.put(b"odd\xff", b"odd")
        self.weir("volumes", "snapshots", "create", "s2", "--volume=filed", *PLACE)
        table = self.weir("volumes", "snapshots", "find", "filed", "/may.csv", *PLACE)
        self.assertIn("/may.csv is in the volume, and in 2 of 2 snapshots.", self.said)
        lines = table.splitlines()
        self.assertRegex(lines[0], r"FIRST_SNAPSHOT +LAST_SNAPSHOT +SNAPSHOTS +TYPE +SIZE +MODIFIED +LIVE")
        self.assertRegex(lines[1], r"s2 +s2 +1 +FILE +10 ?B? .*True")
        self.assertRegex(lines[2], r"s1 +s1 +1 +FILE +5 ?B? .*False")
        found = json.loads(self.weir("volumes", "snapshots", "find", "filed", "may.csv", *PLACE, "--json"))
        self.assertEqual([v["sizeBytes"] for v in found["versions"]], ["10", "5"])
        # A name that is no text.
        self.weir("volumes", "snapshots", "find", "filed", b"/odd\xff", *PLACE)
        restore = ("volumes", "snapshots", "restore-file", "filed", "/may.csv", "--snapshot=s1", *PLACE)
        self.weir(*restore)
        self.assertIn("Restored [/may.csv.from-s1] from snapshot [s1].", self.said)
        self.assertEqual(nfs.read(nfs.lookup(b"may.csv.from-s1")), b"first")
        self.refused("ALREADY_EXISTS", *restore, "--in-place")
        self.assertEqual(nfs.read(nfs.lookup(b"may.csv")), b"second one")
        done = json.loads(self.weir(*restore, "--overwrite", "--quiet", "--json"))
        self.assertEqual(done["path"], "/may.csv")
        self.assertEqual(nfs.read(nfs.lookup(b"may.csv")), b"first")
        self.refused("NOT_FOUND", "volumes", "snapshots", "find", "filed", "/none", *PLACE)
        self.refused("INVALID_ARGUMENT", "volumes", "snapshots", "find", "filed", "/a/../b", *PLACE)

    def test_tokens_that_expire(self):
        self.weir("tokens", "create", "brief", "--role=viewer", "--expires=30d")
        found = [t for t in self.get("tokens", "list") if t["name"] == "tokens/brief"]
        self.assertIn("expireTime", found[0])
        self.assertIn("EXPIRES", self.weir("tokens", "list").splitlines()[0])
        self.weir("tokens", "revoke", "brief", "--quiet")
        for wrong in ("30", "d", "-1d", "0d", "1.5h", "3 d", "99999999999999999999d", "1w\u00e9"):
            self.weir("tokens", "create", "never", "--role=viewer", f"--expires={wrong}", exit=2)

    def test_support_bundle(self):
        """A tar.gz of the user's own, with what helps; a file that exists is refused."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "bundle.tar.gz")
            self.weir("support-bundle", path)
            self.assertEqual(os.stat(path).st_mode & 0o777, 0o600)
            with tarfile.open(path) as bundle:
                files = {os.path.basename(m.name): bundle.extractfile(m).read().decode() for m in bundle}
            for name in ("status.json", "health.json", "metrics.txt", "audit.json", "versions.txt"):
                self.assertIn(name, files)
            self.assertIn("auditEntries", json.loads(files["audit.json"]))
            self.assertIn("weir_uptime_seconds", files["metrics.txt"])
            self.weir("support-bundle", path, exit=1)
            self.assertIn("exists", self.said)

    def test_manual_qos_as_in_the_document(self):
        """Every gcloud command of the document on manual QoS, as it stands there but for the first word."""
        for first in ((), ("netapp",)):
            n = len(first)
            self.weir(*first, "storage-pools", "create", f"mq{n}", *PLACE, "--capacity=40960",
                      "--service-level=Premium", "--qos-type=manual", "--network=name=default")
            pool = self.get("storage-pools", "describe", f"mq{n}", *PLACE)
            self.assertEqual((pool["qosType"], pool["serviceLevel"], pool["capacityGib"]), ("MANUAL", "PREMIUM", "40960"))
            self.assertEqual(pool["availableThroughputMibps"], 2560)

            self.weir(*first, "storage-pools", "create", f"auto{n}", *PLACE, "--capacity=2TiB",
                      "--service-level=standard", "--qos-type=auto", "--network=name=default")
            self.weir(*first, "storage-pools", "update", f"auto{n}", *PLACE, "--qos-type=manual")
            self.assertEqual(self.get("storage-pools", "describe", f"auto{n}", *PLACE)["qosType"], "MANUAL")
            self.refused("(FAILED_PRECONDITION|INVALID_ARGUMENT)",
                         *first, "storage-pools", "update", f"auto{n}", *PLACE, "--qos-type=auto")

            for name, protocols in (("a", "nfsv3"), ("b", "nfsv3")):
                self.weir(*first, "volumes", "create", f"{name}{n}", *PLACE, f"--storage-pool=mq{n}", "--capacity=1024",
                          f"--protocols={protocols}", f"--share-name=share-{name}{n}", "--throughput-mibps=128")
            volume = self.get("volumes", "describe", f"a{n}", *PLACE)
            self.assertEqual((volume["throughputMibps"], volume["storagePool"]), (128, f"mq{n}"))
            self.assertEqual(self.weir("storage-pools", "describe", f"mq{n}", *PLACE,
                                       "--format=value(availableThroughputMibps)").strip(), "2304.0")

            self.assertEqual(self.weir("volumes", "describe", f"a{n}", *PLACE,
                                       "--format=value(throughputStatus.limitSource)").strip(), "PREMIUM, manual: 128 MiB/s")

            # Retuned online; beyond the pool's total it is refused, with the numbers.
            self.weir(*first, "volumes", "update", f"a{n}", *PLACE, "--throughput-mibps=256")
            said = self.refused("[A-Z_]+", *first, "volumes", "update", f"a{n}", *PLACE, "--throughput-mibps=2500")
            self.assertRegex(said, "2,?432")
            self.refused("[A-Z_]+", *first, "volumes", "update", f"a{n}", *PLACE, "--throughput-mibps=4609")
        # No manual QoS for Flex.
        self.refused("[A-Z_]+", "storage-pools", "create", "flex", *PLACE, "--capacity=1024", "--service-level=flex",
                     "--qos-type=manual", "--network=name=default")

    def test_settings_of_the_document(self):
        """More capacity, a faster level, more throughput: all online."""
        for level in ("premium", "extreme"):
            self.weir("storage-pools", "create", level, *PLACE, "--capacity=4TiB", f"--service-level={level}",
                      "--labels=env=test,tier=one")
        self.weir("volumes", "create", "moving", *PLACE, "--storage-pool=premium", "--capacity=1TiB", "--protocols=nfsv3",
                  "--share-name=moving", "--unix-permissions=0750",
                  "--export-policy=allowed-clients=127.0.0.0/8,10.0.0.1,access-type=READ_WRITE,has-root-access=true",
                  "--export-policy=allowed-clients=0.0.0.0/0,access-type=READ_ONLY", "--labels=a=b")
        volume = self.get("volumes", "describe", "moving", *PLACE)
        self.assertEqual([r["allowedClients"] for r in volume["exportPolicy"]["rules"]], ["127.0.0.0/8,10.0.0.1", "0.0.0.0/0"])
        self.assertEqual((volume["snapshotDirectory"], volume["labels"]), (True, {"a": "b"}))
        self.weir("volumes", "update", "moving", *PLACE, "--capacity=2TiB")
        self.weir("volumes", "update", "moving", *PLACE, "--storage-pool=extreme", "--capacity=3TiB",
                  "--update-labels=c=d", "--remove-labels=a", "--snapshot-directory=false")
        volume = self.get("volumes", "describe", "moving", *PLACE)
        self.assertEqual((volume["storagePool"], volume["capacityGib"], volume["labels"], volume["serviceLevel"]),
                         ("extreme", "3072", {"c": "d"}, "EXTREME"))
        self.assertFalse(volume.get("snapshotDirectory", False))
        # A pool does not shrink below its volumes, and one with volumes is not deleted.
        self.refused("[A-Z_]+", "storage-pools", "update", "extreme", *PLACE, "--capacity=2TiB")
        self.refused("FAILED_PRECONDITION", "storage-pools", "delete", "extreme", *PLACE, "--quiet")
        names = "--format=value(name.basename())"
        listed = self.weir("storage-pools", "list", "--project=p1", "--filter=labels.env=test AND serviceLevel=EXTREME", names)
        self.assertEqual(listed, "extreme\n")
        listed = self.weir("storage-pools", "list", *PLACE, "--filter=labels.env:*", "--sort-by=~name", names)
        self.assertEqual(listed, "premium\nextreme\n")
        self.weir("volumes", "delete", "moving", *PLACE)
        self.refused("NOT_FOUND", "volumes", "describe", "moving", *PLACE)

    def test_a_pool_refers_to_an_active_directory(self):
        """There is none here; conformance/ad/run has one."""
        said = self.refused("NOT_FOUND", "storage-pools", "create", "ad", *PLACE, "--capacity=2TiB", "--service-level=premium",
                            "--active-directory=none")
        self.assertIn("Active Directory none", said)
        self.weir("storage-pools", "create", "ad", *PLACE, "--capacity=2TiB", "--service-level=premium", "--active-directory=")
        self.refused("NOT_FOUND", "storage-pools", "update", "ad", *PLACE, "--active-directory=none")
        self.weir("storage-pools", "update", "ad", *PLACE, "--active-directory=")
        self.weir("storage-pools", "delete", "ad", *PLACE, "--quiet")

    def test_a_volume_is_mounted_as_the_help_says(self):
        self.weir("storage-pools", "create", "m", "--capacity=1TiB", "--service-level=extreme")
        self.weir("volumes", "create", "m1", "--storage-pool=m", "--capacity=100", "--protocols=nfsv3", "--share-name=m-share")
        lines = self.weir("volumes", "mount-help", "m1")
        mount = next(l for l in lines.splitlines() if l.startswith("sudo mount"))
        self.assertIn("nconnect=16", mount)
        self.assertIn("hard,timeo=600,retrans=3,rsize=1048576,wsize=1048576", mount)
        self.assertIn(" 127.0.0.1:/m-share ", mount)
        port = re.search(r"\bport=(\d+)", mount)[1]
        mountport = re.search(r"mountport=(\d+)", mount)[1]
        if not shutil.which("nfs-cp"):
            self.skipTest("no libnfs-utils")
        url = f"nfs://127.0.0.1/m-share/file?version=3&nfsport={port}&mountport={mountport}"
        with tempfile.NamedTemporaryFile() as file:
            file.write(os.urandom(100_000))
            file.flush()
            subprocess.run(["nfs-cp", file.name, url], check=True, capture_output=True, timeout=60)
            back = subprocess.run(["nfs-cat", url], check=True, capture_output=True, timeout=60).stdout
            file.seek(0)
            self.assertEqual(back, file.read())

    def test_snapshots(self):
        self.weir("storage-pools", "create", "s", "--capacity=1TiB", "--service-level=standard")
        self.weir("volumes", "create", "s1", "--storage-pool=s", "--capacity=100", "--protocols=nfsv3", "--share-name=s-share")
        self.weir("volumes", "snapshots", "create", "one", "--volume=s1", "--labels=snapmirror-label=daily", "--description=d")
        self.weir("volumes", "snapshots", "create", "two", "--volume=s1")
        names = self.weir("volumes", "snapshots", "list", "--volume=s1", "--sort-by=name", "--format=value(name.basename())")
        self.assertEqual(names, "one\ntwo\n")
        self.weir("volumes", "snapshots", "update", "one", "--volume=s1", "--description=new", "--update-labels=k=v")
        one = self.get("volumes", "snapshots", "describe", "one", "--volume=s1")
        self.assertEqual((one["description"], one["labels"]), ("new", {"k": "v", "snapmirror-label": "daily"}))
        self.weir("volumes", "revert", "s1", "--snapshot=one")
        self.weir("volumes", "snapshots", "delete", "one", "--volume=s1")
        self.refused("NOT_FOUND", "volumes", "snapshots", "describe", "one", "--volume=s1")
        self.weir("volumes", "delete", "s1", "--force")

    def test_schedules(self):
        self.weir("storage-pools", "create", "sp", "--capacity=1TiB", "--service-level=standard")
        self.weir("volumes", "create", "sv", "--storage-pool=sp", "--capacity=100", "--protocols=nfsv3", "--share-name=sv",
                  "--snapshot-hourly=snapshots-to-keep=24,minute=5", "--snapshot-weekly=snapshots-to-keep=4,day=Monday,Friday,hour=3",
                  "--snap-reserve=10")
        policy = self.get("volumes", "describe", "sv")["snapshotPolicy"]
        self.assertEqual(policy, {"enabled": True, "hourlySchedule": {"snapshotsToKeep": 24, "minute": 5},
                                  "weeklySchedule": {"snapshotsToKeep": 4, "day": "Monday,Friday", "hour": 3}})
        # What is not named stays: another schedule, and the minute of this one.
        self.weir("volumes", "update", "sv", "--snapshot-hourly=snapshots-to-keep=12", "--snapshot-monthly=snapshots-to-keep=2,day=1,15")
        policy["hourlySchedule"]["snapshotsToKeep"] = 12
        policy["monthlySchedule"] = {"snapshotsToKeep": 2, "daysOfMonth": "1,15"}
        self.assertEqual(self.get("volumes", "describe", "sv")["snapshotPolicy"], policy)
        self.assertIn("minute", self.refused("INVALID_ARGUMENT", "volumes", "update", "sv", "--snapshot-hourly=minute=60"))
        self.assertIn("how many to keep", self.refused("INVALID_ARGUMENT", "volumes", "update", "sv", "--snapshot-daily=hour=2"))
        self.assertEqual(self.get("volumes", "describe", "sv")["snapshotPolicy"], policy)
        self.weir("volumes", "update", "sv", "--clear-snapshot-schedules", "--snapshot-daily=snapshots-to-keep=7")
        self.assertEqual(self.get("volumes", "describe", "sv")["snapshotPolicy"],
                         {"enabled": True, "dailySchedule": {"snapshotsToKeep": 7}})
        self.weir("volumes", "update", "sv", "--clear-snapshot-schedules")
        self.assertFalse(self.get("volumes", "describe", "sv").get("snapshotPolicy", {}).get("enabled", False))
        self.weir("volumes", "delete", "sv")

    def test_clones_and_names(self):
        self.weir("storage-pools", "create", "cp", "--capacity=2TiB", "--service-level=standard")
        self.weir("volumes", "create", "c1", "--storage-pool=cp", "--capacity=100", "--protocols=nfsv3", "--share-name=c-share",
                  "--unix-permissions=0750", "--export-policy=allowed-clients=10.0.0.0/8,access-type=READ_ONLY")
        self.weir("volumes", "clone", "c2", "--source-volume=c1", "--capacity=200")
        self.assertIn("Created snapshot [clone-c2].", self.said)
        self.assertIn("Created volume [c2].", self.said)
        one, two = (self.get("volumes", "describe", v) for v in ("c1", "c2"))
        for field in ("storagePool", "protocols", "unixPermissions", "exportPolicy", "snapshotDirectory"):
            self.assertEqual(one[field], two[field], field)
        self.assertEqual((two["capacityGib"], two["shareName"]), ("200", "c2"))
        self.assertEqual(two["cloneDetails"]["splitState"], "SPLIT_STATE_NOT_SPLITTING")
        self.refused("FAILED_PRECONDITION", "volumes", "snapshots", "delete", "clone-c2", "--volume=c1")
        self.weir("volumes", "snapshots", "rename", "clone-c2", "--volume=c1", "--new-name=golden.1")
        self.assertIn("Renamed snapshot [clone-c2] to [golden.1].", self.said)
        self.weir("volumes", "clone", "c3", "--source-volume=c1", "--source-snapshot=golden.1", "--share-name=third")
        details = self.get("volumes", "describe", "c3")["cloneDetails"]
        self.assertTrue(details["sourceSnapshot"].endswith("/volumes/c1/snapshots/golden.1"))
        for volume in ("c2", "c3"):
            self.weir("volumes", "split", volume)
            self.assertNotIn("cloneDetails", self.get("volumes", "describe", volume))
        self.refused("FAILED_PRECONDITION", "volumes", "split", "c2")
        self.weir("volumes", "snapshots", "delete", "golden.1", "--volume=c1")
        for volume in ("c1", "c2", "c3"):
            self.weir("volumes", "delete", volume)

    def test_filestore(self):
        place = ("--project=p1", "--zone=us-central1-a")
        self.weir("filestore", "instances", "create", "hs", *place, "--tier=HIGH_SCALE_SSD",
                  "--file-share=name=hs_share,capacity=60TB", "--network=name=default", "--labels=a=b")
        found = self.get("filestore", "instances", "describe", "hs", *place)
        self.assertEqual((found["tier"], found["fileShares"][0]["capacityGb"]), ("HIGH_SCALE_SSD", "61440"))
        self.weir("filestore", "instances", "update", "hs", *place, "--file-share=name=hs_share,capacity=70TB")
        row = self.weir("filestore", "instances", "list", "--project=p1",
                        "--format=value(name.basename(),tier,fileShares[0].capacityGb)", "--filter=name:hs")
        self.assertEqual(row, "hs\tHIGH_SCALE_SSD\t71680\n")
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as flags:
            flags.write("--file-share:\n  name: fl_share\n  capacity: 1TB\n  nfs-export-options:\n"
                        "  - ip-ranges: [127.0.0.0/8]\n    access-mode: READ_WRITE\n    squash-mode: ROOT_SQUASH\n"
                        "    anon_uid: 1003\n    anon_gid: 1003\n")
            flags.flush()
            self.weir("filestore", "instances", "create", "fl", *place, "--tier=basic-hdd", f"--flags-file={flags.name}")
        options = self.get("filestore", "instances", "describe", "fl", *place)["fileShares"][0]["nfsExportOptions"]
        self.assertEqual((options[0]["squashMode"], options[0]["anonUid"]), ("ROOT_SQUASH", "1003"))
        self.refused("INVALID_ARGUMENT", "filestore", "instances", "create", "bad", *place, "--tier=basic-ssd",
                     "--file-share=name=x,capacity=1TB")
        for name in ("hs", "fl"):
            self.weir("filestore", "instances", "delete", name, *place)

    def test_operations_and_locations(self):
        self.weir("storage-pools", "create", "o", "--location=here", "--capacity=1TiB", "--service-level=standard", "--async")
        operation = self.said.split()[-1]
        self.weir("operations", "wait", operation)
        self.assertTrue(self.get("operations", "describe", operation)["done"])
        table = self.weir("operations", "list", "--location=here")
        self.assertRegex(table, r"(?m)^OPERATION_NAME +LOCATION +TYPE +TARGET +STATUS +CREATE_TIME +DURATION$")
        self.assertRegex(table, r" here +create +o +DONE ")
        self.assertIn("here", self.weir("locations", "list"))
        self.weir("operations", "delete", operation)
        self.refused("NOT_FOUND", "operations", "describe", operation)

    def test_a_plan_is_carried_out(self):
        script = self.weir("plan", "--levels=premium", "--apply-script",
                           "--volume=name=archive,capacity=30TiB,throughput=128",
                           "--volume=name=db,capacity=10TiB,throughput=2432")
        with tempfile.TemporaryDirectory() as folder:
            os.symlink(WEIR, os.path.join(folder, "weir"))
            subprocess.run(["sh", "-c", script], check=True, capture_output=True, text=True, timeout=120, env={
                "PATH": folder + ":" + os.environ["PATH"], "HOME": "/nonexistent",
                "WEIR_SERVER": self.server.url, "WEIR_LOCATION": "planned"})
        pool = self.get("storage-pools", "describe", "premium-manual-1", "--location=planned")
        self.assertEqual((pool["capacityGib"], pool["volumeCapacityGib"], pool["availableThroughputMibps"]),
                         ("40960", "40960", 0))

    def test_a_file_of_settings(self):
        with tempfile.TemporaryDirectory() as folder:
            env = {"WEIR_CONFIG": os.path.join(folder, "config.toml"), "WEIR_SERVER": ""}
            for name, value in (("server", self.server.url), ("location", "elsewhere")):
                self.weir("config", "set", name, value, env=env)
            self.weir("storage-pools", "create", "c", "--capacity=1TiB", "--service-level=standard", env=env)
            self.assertIn("elsewhere", self.weir("storage-pools", "list", "--filter=name:elsewhere", env=env))

    def test_first_start_and_errors(self):
        self.assertIn("default", self.weir("storage-pools", "list", "--location=local"))
        self.assertIn("/vol1", self.weir("volumes", "mount-help", "vol1"))
        said = self.refused("NOT_FOUND", "volumes", "describe", "nothing")
        self.assertIn("projects/weir/locations/local/volumes/nothing", said)
        self.refused("(INVALID_ARGUMENT|NOT_FOUND)", "storage-pools", "create", "x", "--capacity=1TiB", "--service-level=bogus")
        self.weir("storage-pools", "create", "x", exit=2)


class Access(unittest.TestCase):
    """TLS and tokens, on an address that is not loopback's alone."""

    weir = Cli.weir
    get = Cli.get
    refused = Cli.refused

    def test_tokens_over_tls(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        data = os.path.join(folder.name, "data")
        self.server = Server(data=data)
        try:
            token = self.weir("tokens", "create", "boss", "--role=admin").strip()
            viewer = self.weir("tokens", "create", "guest", "--role=viewer").strip()
        finally:
            self.server.close()
        self.server = Server("--api-tls", "generate", api="0.0.0.0:0", data=data)
        try:
            certificate = os.path.join(data, "api-cert.pem")
            env = {"WEIR_CA_CERT": certificate, "WEIR_TOKEN": token}
            self.assertIn("default", self.weir("storage-pools", "list", env=env))
            self.weir("storage-pools", "list", env={"WEIR_TOKEN": token}, exit=1)
            self.assertIn("UNAVAILABLE", self.said)
            self.weir("storage-pools", "list", env={"WEIR_CA_CERT": certificate}, exit=1)
            self.assertIn("UNAUTHENTICATED", self.said)
            guest = {"WEIR_CA_CERT": certificate, "WEIR_TOKEN": viewer}
            self.assertIn("default", self.weir("storage-pools", "list", env=guest))
            self.weir("storage-pools", "create", "x", "--capacity=1TiB", "--service-level=standard", env=guest, exit=1)
            self.assertIn("PERMISSION_DENIED", self.said)
            path = os.path.join(folder.name, "token")
            with open(path, "w") as file:
                file.write(token + "\n")
            listed = self.weir("tokens", "list", f"--access-token-file={path}", "--format=value(name.basename(),role)",
                               env={"WEIR_CA_CERT": certificate})
            self.assertEqual(sorted(listed.split()), ["ADMIN", "VIEWER", "boss", "guest"])
            self.weir("tokens", "revoke", "guest", env=env)
            self.weir("storage-pools", "list", env=guest, exit=1)
            self.assertIn("UNAUTHENTICATED", self.said)
            self.assertIn("boss", self.weir("audit", env=env))
        finally:
            self.server.close()


if __name__ == "__main__":
    unittest.main()
