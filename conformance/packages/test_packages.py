"""Packages: made twice, read by other programs, and installed in a Debian of their own."""

import filecmp
import functools
import gzip
import io
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import unittest
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")
sys.path[:0] = [os.path.join(HERE, "..", folder) for folder in ("upgrade", "api", "attack")]
import fixture  # noqa: E402
from attacker import NFS, Client, auth_sys, opaque  # noqa: E402

WEIR = os.environ["WEIR"]
FIXTURE = os.path.join(HERE, "..", "upgrade", "data-0.1.0-pre1.tar.xz")
DEBIAN = "http://deb.debian.org/debian"
# Kept between runs: a clean Debian takes a minute to make.
CLEAN_ROOT = os.path.abspath(os.path.join(ROOT, os.environ.get("CARGO_TARGET_DIR", "target"), "packages-bookworm"))


def needs(*programs):
    missing = [p for p in programs if not shutil.which(p)]
    return unittest.skipIf(missing, f"no {', '.join(missing)} here")


def run(*words, **options):
    ran = subprocess.run(words, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, **options)
    if ran.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: {ran.stdout}")
    return ran.stdout


def run_bytes(*words):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, timeout=600).stdout


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_for(condition, what, process=None):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end or (process and process.poll() is not None):
            raise AssertionError(f"waited in vain: {what}")
        time.sleep(0.02)


def is_ready(port):
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as reply:
            return reply.status == 200
    except OSError:
        return False


@functools.cache
def packages():
    """The folder of packages, made once."""
    folder = tempfile.mkdtemp(prefix="weir-packages-")
    unittest.addModuleCleanup(shutil.rmtree, folder)
    made = os.path.join(folder, "first")
    run(os.path.join(ROOT, "packaging/build"), WEIR, made)
    return made


def package(folder, suffix, name="weir_"):
    return next(os.path.join(folder, f) for f in os.listdir(folder) if f.startswith(name) and f.endswith(suffix))


class Files(unittest.TestCase):
    maxDiff = None

    def test_twice_made_they_are_the_same(self):
        with tempfile.TemporaryDirectory(prefix="weir-packages-") as again:
            run(os.path.join(ROOT, "packaging/build"), WEIR, again)
            names = [os.path.basename(n) for n in os.listdir(packages()) if os.path.isfile(os.path.join(packages(), n))]
            _, differing, missing = filecmp.cmpfiles(packages(), again, names, shallow=False)
            self.assertEqual((differing, missing), ([], []))
            with open(os.path.join(packages(), "SHA256SUMS")) as sums:
                self.assertIn("oci/index.json", sums.read())

    @needs("lintian")
    def test_lintian_finds_no_error(self):
        run("lintian", "--fail-on", "error", "--allow-root", package(packages(), ".deb"))

    @needs("mandoc")
    def test_manual_pages(self):
        folder = os.path.join(packages(), "stage/usr/share/man/man1")
        pages = [os.path.join(folder, p) for p in os.listdir(folder)]
        self.assertGreater(len(pages), 50)
        for page in pages:
            text = subprocess.run(["zcat", page], check=True, capture_output=True).stdout
            lint = subprocess.run(["mandoc", "-T", "lint", "-W", "warning"], input=text, capture_output=True)
            self.assertEqual((lint.returncode, lint.stdout), (0, b""), page)

    @needs("rpm", "rpmbuild")
    def test_the_rpm_lists_what_the_deb_lists(self):
        deb = run("sh", "-c", f"dpkg-deb --fsys-tarfile '{package(packages(), '.deb')}' | tar -t")
        files = {name[1:] for name in deb.split() if not name.endswith("/")}
        rpm = run("rpm", "-qp", "--queryformat", "[%{FILEMODES:perms} %{FILENAMES}\n]", package(packages(), ".rpm", "weir-0"))
        self.assertEqual({line.split(" ", 1)[1] for line in rpm.splitlines() if not line.startswith("d")},
                         {f for f in files if f})

    def test_alerts_and_dashboards_are_in_the_packages(self):
        prometheus = os.path.join(ROOT, "packaging/prometheus")
        dashboards = [n for n in os.listdir(os.path.join(prometheus, "grafana")) if n.endswith(".json")]
        self.assertGreaterEqual(len(dashboards), 7)
        wanted = {f"usr/share/weir/dashboards/{n}": f"{prometheus}/grafana/{n}" for n in dashboards}
        wanted["usr/share/weir/alerts/weir.rules.yml"] = f"{prometheus}/weir.rules.yml"
        with open(os.path.join(packages(), "oci/index.json")) as file:
            blob = json.load(file)["manifests"][0]["digest"]
        blobs = os.path.join(packages(), "oci/blobs")
        with open(os.path.join(blobs, blob.replace(":", "/"))) as file:
            layer = json.load(file)["layers"][0]["digest"]
        archives = {"deb": run_bytes("dpkg-deb", "--fsys-tarfile", package(packages(), ".deb"))}
        with gzip.open(os.path.join(blobs, layer.replace(":", "/"))) as file:
            archives["oci"] = file.read()
        for what, archive in archives.items():
            with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
                names = {member.name.removeprefix("./"): member for member in tar if member.isfile()}
                shared = {n for n in names if n.startswith("usr/share/weir/")}
                self.assertEqual(shared, set(wanted), what)
                for name, source in wanted.items():
                    with open(source, "rb") as file:
                        self.assertEqual(tar.extractfile(names[name]).read(), file.read(), f"{what}: {name}")
                    self.assertEqual(names[name].mode, 0o644, f"{what}: {name}")

    def test_settings_are_valid(self):
        run(WEIR, "serve", "--config", os.path.join(packages(), "stage/etc/weir/weir.toml"), "--check-config")


@unittest.skipUnless(os.geteuid() == 0, "needs root")
class Image(unittest.TestCase):
    @needs("umoci", "runc")
    def test_umoci_unpacks_it_and_runc_serves(self):
        with tempfile.TemporaryDirectory(prefix="weir-image-") as top:
            with open(os.path.join(packages(), "oci/index.json")) as file:
                tag = json.load(file)["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"]
            bundle = os.path.join(top, "bundle")
            run("umoci", "unpack", "--image", f"{packages()}/oci:{tag}", bundle)
            with open(os.path.join(bundle, "config.json")) as file:
                config = json.load(file)
            nfs, api = free_port(), free_port()
            config["process"]["args"] = ["/usr/bin/weir", "serve", "--data", "/var/lib/weir", "--no-rpcbind", "--memory", "256M",
                                         "--nfs", f"127.0.0.1:{nfs}", "--api", f"127.0.0.1:{api}"]
            config["process"]["terminal"] = False
            # The host's network, so that its programs reach the ports.
            config["linux"]["namespaces"] = [n for n in config["linux"]["namespaces"] if n["type"] != "network"]
            config["mounts"] = [m for m in config["mounts"] if m["destination"] in ("/proc", "/dev", "/tmp")]
            with open(os.path.join(bundle, "config.json"), "w") as file:
                json.dump(config, file)
            name = f"weir-test-{os.getpid()}"
            with open(os.path.join(top, "log"), "w+") as log:
                process = subprocess.Popen(["runc", "--root", os.path.join(top, "runc"), "run", "--bundle", bundle, name],
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)
                try:
                    try:
                        wait_for(lambda: is_ready(api), "the container", process)
                    except AssertionError:
                        log.seek(0)
                        text = log.read()
                        if "API on" not in text and ("cgroup" in text or "mount" in text):
                            self.skipTest("runc cannot run containers here: " + text[-200:])
                        raise AssertionError(text) from None
                    fixture.put(nfs, "/vol1/file", b"from the container\n")
                    self.assertEqual(fixture.get(nfs, "/vol1/file"), b"from the container\n")
                finally:
                    process.terminate()
                    process.wait(30)


class Writer(threading.Thread):
    """A client that appends records to a file of /vol1, each stable before the next, over any number of restarts."""

    SIZE = 512

    def __init__(self, port):
        super().__init__()
        self.port, self.acknowledged, self.longest_gap, self.fault = port, 0, 0.0, None
        self.ending = threading.Event()
        client = Client(port)
        self.handle = self.create(client, client.mount())
        client.close()

    def create(self, client, root):
        arguments = opaque(root) + opaque(b"written") + struct.pack(">IIIIIIII", 0, 1, 0o644, 0, 0, 0, 0, 0)
        results = client.call(NFS, 3, 8, arguments, auth_sys())
        assert results[:4] == bytes(4), results
        (length,) = struct.unpack(">I", results[8:12])
        return results[12:12 + length]

    def record(self, number):
        return (b"%015d\n" % number) * (self.SIZE // 16)

    def run(self):
        client, last = None, time.monotonic()
        while not self.ending.is_set():
            try:
                client = client or Client(self.port, timeout=2)
                arguments = (opaque(self.handle) + struct.pack(">QII", self.acknowledged * self.SIZE, self.SIZE, 2)
                             + opaque(self.record(self.acknowledged)))
                results = client.call(NFS, 3, 7, arguments, auth_sys())
                if results[:4] != bytes(4):
                    self.fault = f"WRITE failed: {results[:4]}"
                    return
                self.acknowledged += 1
                now = time.monotonic()
                self.longest_gap, last = max(self.longest_gap, now - last), now
            except (OSError, AssertionError, struct.error):
                if client:
                    client.close()
                client = None
                time.sleep(0.01)
        if client:
            client.close()

    def end(self):
        self.ending.set()
        self.join()


@unittest.skipUnless(os.geteuid() == 0, "needs root")
@needs("debootstrap", "setpriv", "unshare")
class CleanDebian(unittest.TestCase):
    """A Debian 12 with nothing but its essential packages."""

    def setUp(self):
        if not os.path.exists(CLEAN_ROOT):
            try:
                run("debootstrap", "--variant=minbase", "bookworm", CLEAN_ROOT + ".new", DEBIAN)
            except AssertionError as fault:
                shutil.rmtree(CLEAN_ROOT + ".new", ignore_errors=True)
                self.skipTest(f"no Debian to install into: {str(fault)[-200:]}")
            os.rename(CLEAN_ROOT + ".new", CLEAN_ROOT)
        self.top = tempfile.mkdtemp(prefix="weir-debian-")
        self.addCleanup(shutil.rmtree, self.top)
        run("cp", "-a", CLEAN_ROOT + "/.", self.top)
        self.nfs, self.smb, self.api = free_port(), free_port(), free_port()
        self.process = None

    def inside(self, *words, **options):
        return run("chroot", self.top, *words, **options)

    def install(self, deb):
        shutil.copy(deb, os.path.join(self.top, "weir.deb"))
        return self.inside("dpkg", "-i", "/weir.deb")

    def serve(self):
        """Serves as the user `weir`, with no capability and no way to get one."""
        script = (f"mount -t proc proc '{self.top}/proc' && exec chroot '{self.top}' setpriv --reuid=weir --regid=weir --clear-groups "
                  "--inh-caps=-all --bounding-set=-all --no-new-privs /usr/bin/weir serve --config /etc/weir/weir.toml --memory 256M "
                  f"--no-rpcbind --nfs 127.0.0.1:{self.nfs} --smb 127.0.0.1:{self.smb} --api 127.0.0.1:{self.api}")
        self.log = open(os.path.join(self.top, "log"), "a")
        self.process = subprocess.Popen(["unshare", "--mount", "sh", "-c", script], stdin=subprocess.DEVNULL,
                                        stdout=self.log, stderr=self.log)
        self.addCleanup(self.process.kill)
        try:
            wait_for(lambda: is_ready(self.api), "the server", self.process)
        except AssertionError:
            with open(self.log.name) as log:
                raise AssertionError(log.read()) from None
        with open(f"/proc/{self.process.pid}/status") as status:
            fields = dict(line.split(":\t", 1) for line in status.read().splitlines() if ":\t" in line)
        self.assertEqual((fields["CapEff"], fields["NoNewPrivs"]), ("0" * 16, "1"))
        self.assertNotEqual(fields["Uid"].split()[0], "0")

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.assertEqual(self.process.wait(60), 0)
        self.log.close()

    def smbclient(self, commands):
        return run("smbclient", "-p", str(self.smb), "-U", f"mouse%{fixture.PASSWORD}", "//127.0.0.1/vol2", "-c", commands)

    def test_installed_used_upgraded_rolled_back_and_purged(self):
        first = package(packages(), ".deb")
        newer = os.path.join(self.top, "newer")
        run(os.path.join(ROOT, "packaging/build"), WEIR, newer, env={**os.environ, "WEIR_PACKAGE_VERSION": "9.0.0"})
        newer = package(newer, ".deb")
        started = time.monotonic()
        said = self.install(first)
        self.assertIn("systemctl enable --now weir", said)
        # What the last version left behind.
        fixture.unpack(os.path.abspath(FIXTURE), self.top)
        shutil.copytree(os.path.join(self.top, "data"), os.path.join(self.top, "var/lib/weir"), dirs_exist_ok=True)
        self.inside("chown", "-R", "weir:weir", "/var/lib/weir")
        self.serve()
        print(f"installed and serving after {time.monotonic() - started:.1f} s", file=sys.stderr)
        self.assertEqual(fixture.get(self.nfs, "/vol1/small"), fixture.CONTENTS["small"])
        fixture.put(self.nfs, "/vol1/over-nfs", b"over NFS\n")
        if shutil.which("smbclient"):
            with open(os.path.join(self.top, "sent"), "w") as sent:
                sent.write("over SMB\n")
            self.smbclient(f"put {self.top}/sent over-smb")
            self.smbclient(f"get over-smb {self.top}/received")
            with open(os.path.join(self.top, "received")) as received:
                self.assertEqual(received.read(), "over SMB\n")
        writer = Writer(self.nfs)
        writer.start()
        try:
            for turn, deb in (("upgrade", newer), ("rollback", first)):
                before = writer.acknowledged
                wait_for(lambda: writer.acknowledged > before + 100, "writes before the change", self.process)
                self.install(deb)
                writer.longest_gap = 0.0
                self.stop()
                self.serve()
                after = writer.acknowledged
                wait_for(lambda: writer.acknowledged > after + 100, "writes after the change", self.process)
                print(f"{turn}: the client's longest wait was {writer.longest_gap:.2f} s", file=sys.stderr)
        finally:
            writer.end()
        self.assertIsNone(writer.fault)
        written = fixture.get(self.nfs, "/vol1/written")
        self.assertGreaterEqual(len(written), writer.acknowledged * Writer.SIZE)
        for number in range(writer.acknowledged):
            self.assertEqual(written[number * Writer.SIZE:][:Writer.SIZE], writer.record(number), number)
        self.stop()
        self.inside("setpriv", "--reuid=weir", "--regid=weir", "--clear-groups", "/usr/bin/weir", "check", "/var/lib/weir")
        self.inside("dpkg", "-r", "weir")
        said = self.inside("dpkg", "-P", "weir")
        self.assertIn("/var/lib/weir stays", said)
        self.assertTrue(os.path.exists(os.path.join(self.top, "var/lib/weir/weir.json")))
        self.assertFalse(os.path.exists(os.path.join(self.top, "usr/bin/weir")))
        self.assertFalse(os.path.exists(os.path.join(self.top, "etc/weir/weir.toml")))


if __name__ == "__main__":
    unittest.main()
