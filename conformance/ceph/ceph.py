"""A Ceph of one monitor, one manager and one OSD (or OSDS) on 127.0.0.1, in a temporary folder, and servers of Weir on it."""

import hashlib
import json
import os
import random
import re
import signal
import socket
import subprocess
import tempfile
import time
import unittest

WEIR = os.environ.get("WEIR", "weir")
KILLTEST = os.environ.get("KILLTEST", "weir-killtest")
DEVICE_SUITE = os.environ.get("DEVICE_SUITE", "device-suite")
CEPH = os.environ.get("CEPH", "ceph")
HERE = os.path.dirname(os.path.abspath(__file__))
LIB = os.path.join(CEPH, "root/usr/lib/x86_64-linux-gnu")
POOL = "weir"
# With three OSDs there are three copies, two of which have to be there.
OSDS = int(os.environ.get("OSDS", "1"))

CONF = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{port},v1:127.0.0.1:{port1}]
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_port_min = {low}
ms_bind_port_max = {high}
run_dir = {folder}/run
admin_socket = {folder}/run/$name.$pid.asok
log_file = {folder}/log/$name.log
log_to_stderr = false
err_to_stderr = true
auth_cluster_required = {auth}
auth_service_required = {auth}
auth_client_required = {auth}
keyring = {folder}/$name.keyring
osd_crush_chooseleaf_type = 0
osd_pool_default_size = {osds}
osd_pool_default_min_size = {least}
osd_pool_default_pg_num = 16
osd_pool_default_pg_autoscale_mode = off
mon_allow_pool_size_one = true
mon_warn_on_pool_no_redundancy = false
mon_warn_on_insecure_global_id_reclaim_allowed = false
mon_data_avail_crit = 0
mon_data_avail_warn = 0
# What is full is known after a second instead of ten.
mgr_tick_period = 1
mgr_stats_period = 1
osd_class_dir = {lib}/rados-classes
erasure_code_dir = {lib}/ceph/erasure-code
plugin_dir = {lib}/ceph
mgr_module_path = {folder}/no-modules
[mon.a]
mon_data = {folder}/mon
[mgr]
mgr_data = {folder}/mgr
[osd]
osd_data = {folder}/osd$id
osd_objectstore = bluestore
bluestore_block_size = {bytes}
bluestore_block_db_create = false
bluestore_block_wal_create = false
bluestore_cache_autotune = false
bluestore_cache_size = 64M
osd_memory_target = 512M
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 1
osd_class_load_list = *
osd_class_default_list = *
[client]
log_file =
"""


def free_ports(count):
    """The first of so many ports that nobody listens at. They are below those that the system gives to clients, one of
    which would keep a daemon from binding."""
    while True:
        first = random.randrange(10_000, 30_000 - count)
        probes = [socket.socket() for _ in range(count)]
        try:
            for at, one in enumerate(probes):
                one.bind(("127.0.0.1", first + at))
            return first
        except OSError:
            continue
        finally:
            for one in probes:
                one.close()


class Ceph:
    """The cluster. Its disk is a sparse file. With `cephx`, users have keys and capabilities."""

    def __init__(self, disk_bytes=4 << 30, cephx=False):
        self.cephx = cephx
        self.folder = tempfile.TemporaryDirectory(prefix="weir-ceph-")
        self.daemons = []
        path = self.folder.name
        for name in ("run", "mon", "mgr", "log", "no-modules", *(f"osd{number}" for number in range(OSDS))):
            os.mkdir(os.path.join(path, name))
        ports = 2 + 20 * OSDS
        port = free_ports(ports)
        with open("/proc/sys/kernel/random/uuid", encoding="ascii") as uuid:
            fsid = uuid.read().strip()
        self.conf = os.path.join(path, "ceph.conf")
        with open(self.conf, "w", encoding="ascii") as conf:
            conf.write(CONF.format(fsid=fsid, port=port, port1=port + 1, low=port + 2, high=port + ports - 1, folder=path, lib=LIB,
                                   bytes=disk_bytes, auth="cephx" if cephx else "none", osds=OSDS, least=max(1, OSDS - 1)))
        binaries = ":".join(os.path.join(CEPH, "root", name) for name in ("usr/bin", "usr/sbin"))
        self.environment = {
            **os.environ, "CEPH_CONF": self.conf, "LD_LIBRARY_PATH": f"{LIB}:{LIB}/ceph",
            "PATH": f"{binaries}:{os.environ['PATH']}", "PYTHONPATH": os.path.join(CEPH, "root/usr/lib/python3/dist-packages"),
        }
        try:
            self.up(fsid, port)
        except BaseException as why:
            said = self.said()
            self.close()
            raise RuntimeError(f"{why}\n{said}") from why

    def up(self, fsid, port):
        monmap = os.path.join(self.folder.name, "monmap")
        self.run("monmaptool", "--create", "--fsid", fsid, "--set-min-mon-release", "pacific",
                 "--addv", "a", f"[v2:127.0.0.1:{port},v1:127.0.0.1:{port + 1}]", monmap)
        keys = self.first_keys() if self.cephx else "/dev/null"
        self.run("ceph-mon", "-i", "a", "--mkfs", "--monmap", monmap, "--keyring", keys)
        self.daemon("ceph-mon", "-i", "a", "-f")
        self.until("the monitor answers", lambda: self.run("ceph", "-s", check=False).returncode == 0)
        if self.cephx:
            self.user("mgr.x", mon="allow profile mgr", osd="allow *")
            for number in range(OSDS):
                self.user(f"osd.{number}", mon="allow profile osd", mgr="allow profile osd", osd="allow *")
        self.daemon("ceph-mgr", "-i", "x", "-f")
        for number in range(OSDS):
            self.run("ceph", "osd", "create")
            self.run("ceph", "osd", "crush", "add", f"osd.{number}", "1", "root=default")
            self.run("ceph-osd", "-i", str(number), "--mkfs")
            self.osd(number)
        self.until("the OSDs are up", lambda: self.up_osds() == OSDS)
        self.run("ceph", "osd", "pool", "create", POOL, "16", "16", "replicated")
        self.run("ceph", "osd", "pool", "set", POOL, "size", str(OSDS), "--yes-i-really-mean-it")
        self.run("ceph", "osd", "pool", "application", "enable", POOL, "weir")
        self.until("the pool has statistics", lambda: self.stats() is not None)

    def osd(self, number):
        """Starts an OSD; its process."""
        return self.daemon("ceph-osd", "-i", str(number), "-f")

    def up_osds(self):
        return self.json("osd", "stat")["num_up_osds"]

    def first_keys(self):
        """A keyring of the monitor and the administrator."""
        keys = self.keyring("mon.")
        for name, place in (("mon.", keys), ("client.admin", self.keyring("client.admin"))):
            caps = ["--cap", "mon", "allow *"]
            if name != "mon.":
                caps += ["--cap", "osd", "allow *", "--cap", "mgr", "allow *"]
            self.run("ceph-authtool", "--create-keyring", place, "--gen-key", "-n", name, *caps)
        self.run("ceph-authtool", keys, "--import-keyring", self.keyring("client.admin"))
        return keys

    def keyring(self, user):
        return os.path.join(self.folder.name, f"{user}.keyring")

    def user(self, name, **caps):
        """Makes a user with these capabilities and no others, and the keyring that the configuration names."""
        words = [word for service, cap in caps.items() for word in (service, cap)]
        if self.run("ceph", "auth", "get", name, check=False).returncode == 0:
            self.run("ceph", "auth", "caps", name, *words)
        else:
            self.run("ceph", "auth", "get-or-create", name, *words, "-o", self.keyring(name))

    def run(self, *words, check=True):
        done = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=60, check=False)
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.returncode}\n{done.stdout}{done.stderr}")
        return done

    def json(self, *words):
        return json.loads(self.run("ceph", *words, "-f", "json").stdout)

    def stats(self):
        """What `ceph df` says of the pool, once it says something."""
        pools = [pool for pool in self.json("df", "detail")["pools"] if pool["name"] == POOL]
        return pools[0]["stats"] if pools and pools[0]["stats"]["max_avail"] else None

    def daemon(self, *words):
        with open(self.log(words), "ab") as out:
            self.daemons.append(subprocess.Popen(words, env=self.environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out))
        return self.daemons[-1]

    def log(self, words):
        """The file of what a daemon says, by its command."""
        return os.path.join(self.folder.name, "log", f"{words[0]}.{words[2]}.out")

    def said(self):
        """The last lines of each daemon, and whether it runs."""
        texts = []
        for daemon in self.daemons:
            with open(self.log(daemon.args), encoding="utf-8", errors="replace") as out:
                texts.append(f"{daemon.args[0]} (exit {daemon.poll()}): " + "".join(out.readlines()[-5:]))
        return "\n".join(texts)

    @staticmethod
    def until(what, test, seconds=60):
        end = time.monotonic() + seconds
        while not test():
            if time.monotonic() > end:
                raise RuntimeError(f"not in {seconds} s: {what}")
            time.sleep(0.1)

    def close(self):
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        self.folder.cleanup()


class Client:
    """A client of the server at `port`."""

    def url(self, name):
        options = f"version=3&nfsport={self.port}&mountport={self.port}&auto-traverse-mounts=0"
        return f"nfs://127.0.0.1/vol1/{name}?{options}"

    def put(self, path, name, seconds=60):
        return subprocess.run(["nfs-cp", path, self.url(name)], capture_output=True, text=True, timeout=seconds, check=False)

    def cat(self, name):
        done = subprocess.run(["nfs-cat", self.url(name)], capture_output=True, timeout=60, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return done.stdout


class Server(Client):
    """`weir serve` on an aggregate of the cluster, with a data folder of its own."""

    def __init__(self, ceph, aggregate, folder, *arguments, user=None, before=(), nfs="127.0.0.1:0"):
        self.ceph = ceph
        self.data = folder
        self.place = ["--aggregate", f"rados:{POOL}/{aggregate}", "--ceph-conf", ceph.conf]
        if user:
            self.place += ["--ceph-user", user]
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [*before, WEIR, "serve", "--data", folder, *self.place, "--nfs", nfs, "--memory", "256M", "--no-rpcbind",
             *(arguments or ["--api", "off"])],
            env=ceph.environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)

    def started(self, times=1):
        """Waits until it listens, for so many times if it has begun anew."""
        Ceph.until("the server listens", lambda: len(self.listened()) >= times or self.process.poll() is not None)
        if len(self.listened()) < times:
            raise RuntimeError("the server did not start:\n" + self.output())
        self.port = int(self.listened()[-1])
        return self

    def listened(self):
        """The ports at which it has listened."""
        return re.findall(r"listening on [\d.]+:(\d+)", self.output())

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def ended(self, seconds=30):
        """Its status at its end."""
        return self.process.wait(seconds)

    def signal(self, number):
        self.process.send_signal(number)

    def is_suspended(self):
        """Whether all of its threads are stopped."""
        tasks = f"/proc/{self.process.pid}/task"
        states = set()
        for task in os.listdir(tasks):
            with open(f"{tasks}/{task}/stat", encoding="utf-8") as stat:
                states.add(stat.read().rpartition(")")[2].split()[0])
        return states == {"T"}

    def stop(self):
        self.signal(signal.SIGTERM)
        return self.ended()

    def close(self):
        if self.process.poll() is None:
            self.signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait()
        self.log.close()


def documented(name, pattern):
    """The capabilities for the monitor and the OSDs that a document of docs/operating names."""
    with open(os.path.join(HERE, "../../docs/operating", name), encoding="utf-8") as document:
        return re.search(pattern, document.read()).groups()


class OnCluster(unittest.TestCase):
    """Tests that share a cluster, each with a folder of its own."""

    cephx = False

    @classmethod
    def setUpClass(cls):
        cls.ceph = Ceph(cephx=cls.cephx)
        cls.addClassCleanup(cls.ceph.close)

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weir-on-ceph-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def file(self, size, name="file"):
        """A file of random bytes: its path, and its sum."""
        path = os.path.join(self.folder, name)
        with open(path, "wb") as out:
            out.write(os.urandom(size))
        with open(path, "rb") as back:
            return path, hashlib.sha256(back.read()).hexdigest()
