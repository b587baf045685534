"""A cluster of three nodes on this machine, with a PostgreSQL of its own, on a Ceph of conformance/ceph."""

import glob
import http.client
import json
import os
import pwd
import re
import shutil
import signal
import ssl
import subprocess
import tempfile
import urllib.parse

from ceph import POOL, WEIR, Ceph, OnCluster, free_ports

PASSWORD = "not-to-be-seen"
PLACE = "projects/p1/locations/us-central1"
POOLS, VOLUMES = f"{PLACE}/storagePools", f"{PLACE}/volumes"
POOL_BODY = {"serviceLevel": "PREMIUM", "capacityGib": "2048", "network": "default"}


class Postgres:
    """A server of Debian's packages, at a socket in a temporary folder."""

    PORT = "54330"

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-postgres-")
        self.path = self.folder.name
        self.programs = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        # It does not run as root.
        self.user = pwd.getpwnam("postgres") if os.getuid() == 0 else None
        if self.user:
            os.chown(self.path, self.user.pw_uid, self.user.pw_gid)
        os.chmod(self.path, 0o755)
        self.data = os.path.join(self.path, "data")
        self.server = None
        self.run("initdb", "-A", "trust", "-U", "weir", "-E", "UTF8", "--no-sync", "-D", self.data)
        self.certify()
        self.start()
        self.run("createdb", "-h", self.path, "-p", self.PORT, "-U", "weir", "cluster")
        self.psql("cluster", f"ALTER USER weir PASSWORD '{PASSWORD}'")
        self.url = f"postgres://weir:{PASSWORD}@localhost:{self.PORT}/cluster?host={self.path}"
        # Over TCP it wants TLS and the password.
        self.tcp = f"postgres://weir:{PASSWORD}@localhost:{self.PORT}/cluster"
        self.tls = f"{self.tcp}?sslmode=verify-full&sslrootcert={self.certificate}"

    def certify(self):
        """A certificate of its own, and the rule that clients over TCP need TLS."""
        self.certificate = os.path.join(self.data, "server.crt")
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
                 "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", "-addext", "basicConstraints=critical,CA:FALSE",
                 "-keyout", os.path.join(self.data, "server.key"), "-out", self.certificate]
        subprocess.run(words, check=True, capture_output=True, timeout=60, **self.as_user())
        with open(os.path.join(self.data, "pg_hba.conf"), "w", encoding="ascii") as rules:
            rules.write("local all all trust\nhostssl all all samehost scram-sha-256\n")

    def as_user(self):
        return {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}

    def run(self, program, *words, check=True):
        done = subprocess.run([os.path.join(self.programs, program), *words], cwd=self.path, capture_output=True, text=True,
                              timeout=60, check=False, **self.as_user())
        if check and done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")
        return done.returncode

    def start(self):
        with open(os.path.join(self.path, "log"), "ab") as log:
            self.server = subprocess.Popen(
                [os.path.join(self.programs, "postgres"), "-D", self.data, "-k", self.path, "-p", self.PORT,
                 "-c", "listen_addresses=localhost", "-c", "ssl=on"],
                cwd=self.path, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self.as_user())
        Ceph.until("PostgreSQL answers",
                   lambda: self.run("pg_isready", "-h", self.path, "-p", self.PORT, "-d", "postgres", "-U", "weir", check=False) == 0)

    def stop(self):
        """Ends it at once, as a crash or an end of its machine does."""
        self.server.send_signal(signal.SIGQUIT)
        self.server.wait(60)

    def copy(self):
        """A copy of the whole server, as a backup has it."""
        self.stop()
        shutil.copytree(self.data, self.data + ".copy")
        self.start()

    def has(self, aggregate):
        """Whether the tables have the aggregate now; a node's view may be of the second before."""
        return self.psql("cluster", f"SELECT count(*) FROM weir_cluster_aggregates WHERE name = '{aggregate}'") == "1"

    def psql(self, database, statement):
        """The answer to a statement."""
        words = [os.path.join(self.programs, "psql"), "-h", self.path, "-p", self.PORT, "-U", "weir", "-d", database, "-Atc", statement]
        done = subprocess.run(words, cwd=self.path, capture_output=True, text=True, timeout=60, check=True, **self.as_user())
        return done.stdout.strip()

    def restore(self):
        """The older state again."""
        self.stop()
        shutil.rmtree(self.data)
        shutil.move(self.data + ".copy", self.data)
        if self.user:
            for top, folders, files in os.walk(self.data):
                for name in (top, *(os.path.join(top, one) for one in folders + files)):
                    os.chown(name, self.user.pw_uid, self.user.pw_gid)
        os.chmod(self.data, 0o700)
        self.start()

    def close(self):
        if self.server.poll() is None:
            self.stop()
        self.folder.cleanup()


class Node:
    """A node: its folder, and its daemon."""

    def __init__(self, cluster, number):
        self.cluster = cluster
        self.name = f"n{number}"
        self.address = f"127.0.0.{10 + number}"
        self.data = os.path.join(cluster.folder.name, self.name)
        self.log = open(os.path.join(cluster.folder.name, f"{self.name}.log"), "a+", encoding="utf-8")
        self.daemon = None
        # One of the nodes reaches the database over TLS.
        url = cluster.postgres.tls if number == 3 else cluster.postgres.url
        status, said = cluster.join(self.name, self.data, url, self.address, "init" if number == 1 else "join")
        if status:
            raise RuntimeError(said)
        self.start()

    def start(self, *options):
        """Starts the daemon. Options replace those of the API, which is served without tokens otherwise."""
        options = options or ("--api", f"{self.address}:{self.cluster.api_port}")
        self.scheme = "https" if "--api-tls" in options else "http"
        self.daemon = subprocess.Popen([WEIR, "node", "--data", self.data, *options], env=self.cluster.ceph.environment,
                                       stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        Ceph.until("the daemon answers", lambda: self.daemon.poll() is None and self.weir("cluster", "show")[0] == 0)

    def weir(self, *words, seconds=120):
        """A command of this node: its status, and what it said."""
        done = subprocess.run([WEIR, *words, "--data", self.data], capture_output=True, text=True, timeout=seconds, check=False)
        return done.returncode, done.stdout + done.stderr

    def does(self, *words):
        status, text = self.weir(*words)
        if status:
            raise RuntimeError(f"weir {' '.join(words)}: {text}")
        return text

    def show(self):
        return json.loads(self.does("cluster", "show", "--json"))

    @property
    def url(self):
        return f"{self.scheme}://{self.address}:{self.cluster.api_port}"

    def ask(self, method, path, body=None, token=None, **query):
        """Status and body of an answer of this node's API."""
        path = path if path.startswith("/") else "/v1/" + path
        if query:
            path += "?" + urllib.parse.urlencode(query)
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        at = (self.address, self.cluster.api_port)
        if self.scheme == "https":
            context = ssl.create_default_context(cafile=os.path.join(self.data, "api-cert.pem"))
            connection = http.client.HTTPSConnection(*at, timeout=60, context=context)
        else:
            connection = http.client.HTTPConnection(*at, timeout=60)
        try:
            connection.request(method, path, body=None if body is None else json.dumps(body), headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode()

    def servers(self):
        """The processes of its servers, by aggregate, from their locks."""
        found = {}
        for data in glob.glob(os.path.join(self.data, "aggregates", "*")):
            process = holder(data)
            if process:
                found[os.path.basename(data)] = process
        return found

    def kill_daemon(self):
        self.daemon.kill()
        self.daemon.wait()

    def kill(self):
        """Kills daemon and servers, as the end of the machine does."""
        servers = self.servers().values()
        self.kill_daemon()
        for process in servers:
            os.kill(process, signal.SIGKILL)

    def said(self):
        self.log.flush()
        texts = []
        for path in [self.log.name, *glob.glob(os.path.join(self.data, "logs", "*.log"))]:
            with open(path, encoding="utf-8", errors="replace") as log:
                texts.append(f"{path}:\n" + "".join(log.readlines()[-15:]))
        return "\n".join(texts)

    def close(self):
        if self.daemon.poll() is None:
            self.kill()
        else:
            for process in self.servers().values():
                os.kill(process, signal.SIGKILL)
        self.log.close()


def holder(data):
    """The process that has the lock of a data folder."""
    try:
        inode = os.stat(os.path.join(data, "lock")).st_ino
    except FileNotFoundError:
        return None
    with open("/proc/locks", encoding="ascii") as locks:
        for line in locks:
            fields = line.split()
            if fields[1] == "FLOCK" and fields[5].endswith(f":{inode}"):
                return int(fields[4])
    return None


class Cluster:
    """Ceph, PostgreSQL, three nodes and two aggregates."""

    AGGREGATES = ("a", "b")

    def __init__(self, ceph):
        self.ceph = ceph
        self.folder = tempfile.TemporaryDirectory(prefix="weir-cluster-")
        self.nodes = []
        self.postgres = Postgres()
        port = free_ports(8)
        self.ports = dict(zip(("a", "b", "c", "d"), range(port, port + 4)))
        self.api_port = port + 4
        try:
            for number in (1, 2, 3):
                self.nodes.append(Node(self, number))
            for name in self.AGGREGATES:
                self.create(name)
        except BaseException as why:
            said = self.said()
            self.close()
            raise RuntimeError(f"{why}\n{said}") from why

    def join(self, name, data, url, address="127.0.0.14", word="join"):
        """Makes a folder one of a node, with the database at `url`: the status, and what was said."""
        words = [WEIR, "cluster", word, "--catalog", "-", "--data", data, "--name", name, "--address", address, "--memory", "2G",
                 "--ceph-conf", self.ceph.conf]
        done = subprocess.run(words, input=url + "\n", capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout + done.stderr

    def create(self, name, *words):
        return self.nodes[0].does("aggregate", "create", name, "--on", f"rados:{POOL}", "--nfs", str(self.ports[name]),
                                  "--memory", "256M", *words)

    def node(self, name):
        return next(node for node in self.nodes if node.name == name)

    def up(self):
        return [node for node in self.nodes if node.daemon.poll() is None]

    def aggregate(self, name):
        """The aggregate as the first node that runs sees it."""
        return next((one for one in self.up()[0].show()["aggregates"] if one["name"] == name), None)

    def owner(self, name):
        owner = self.aggregate(name)["owner"]
        return self.node(owner) if owner else None

    def is_left(self, node):
        """Whether the rows name other owners than a node that was killed, so that none of them goes by what it said last."""
        return all(one["owner"] not in (None, node.name) for one in self.up()[0].show()["aggregates"])

    def is_well(self):
        """Whether all is as wanted."""
        shown = self.up()[0].show()
        nodes = all(node["up"] and not node["drained"] for node in shown["nodes"])
        served = all(one["why"] is None and one["owner"] and one["standby"] for one in shown["aggregates"])
        # Rows follow a takeover, some seconds later if the leader died with the owner.
        owners = {(name, node["name"]) for node in shown["nodes"] for name, server in node["servers"].items() if server["role"] == "OWNER"}
        served = served and owners == {(one["name"], one["owner"]) for one in shown["aggregates"]}
        return shown["database"]["reached"] and shown["leader"] and nodes and served

    def well(self):
        Ceph.until("all is as wanted", self.is_well, 90)

    def url(self, aggregate, name, node):
        port = self.ports[aggregate]
        options = f"version=3&nfsport={port}&mountport={port}&auto-traverse-mounts=0"
        return f"nfs://{node.address}/vol1/{name}?{options}"

    def put(self, aggregate, path, name, node, seconds=30):
        """Whether the file was acknowledged."""
        try:
            done = subprocess.run(["nfs-cp", path, self.url(aggregate, name, node)], capture_output=True, timeout=seconds, check=False)
        except subprocess.TimeoutExpired:
            return False
        return done.returncode == 0

    def cat(self, aggregate, name, node):
        done = subprocess.run(["nfs-cat", self.url(aggregate, name, node)], capture_output=True, timeout=60, check=False)
        return done.stdout if done.returncode == 0 else None

    def said(self):
        return "\n".join(node.said() for node in self.nodes)

    def close(self):
        for node in self.nodes:
            node.close()
        self.postgres.close()
        self.folder.cleanup()


def process(text):
    """The number in the words of `weir cluster show`."""
    return int(re.search(r"\(process (\d+)\)", text)[1])


class OnlyNodes(Cluster):
    """A cluster without aggregates."""

    AGGREGATES = ()


class OnNodes(OnCluster):
    """Tests that share a cluster, which is well before each. The first failure ends them, with what all said."""

    @classmethod
    def make(cls):
        """The cluster of the class."""
        return Cluster(cls.ceph)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.cluster = cls.make()
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self):
        super().setUp()
        self.cluster.well()

    def run(self, result=None):
        done = super().run(result)
        if result and (result.errors or result.failures):
            print(self.cluster.said())
            result.stop()
        return done

    def until(self, what, test, seconds=60):
        Ceph.until(what, test, seconds)

    def ok(self, node, method, path, body=None, **more):
        """The body of an answer of a node's API that is no refusal."""
        status, answer = node.ask(method, path, body, **more)
        self.assertEqual(status, 200, f"{node.name} {method} {path}: {answer}")
        if isinstance(answer, dict):
            self.assertNotIn("error", answer)
        return answer


def pool_in(aggregate):
    """The body of a storage pool in an aggregate."""
    return {**POOL_BODY, "labels": {"weir-aggregate": aggregate}}
