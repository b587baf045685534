"""A large volume over three aggregates, for clients of NFSv3 at each server's address."""

import errno
import random
import re
import threading
import time

from ceph import POOL, free_ports
from cluster import POOL_BODY, POOLS, VOLUMES, OnlyNodes, OnNodes, pool_in
from libnfs import Client

AGGREGATES = ("a", "b", "c")
MIB = 1 << 20


class LargeVolume(OnNodes):
    @classmethod
    def make(cls):
        return OnlyNodes(cls.ceph)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        ports = free_ports(len(AGGREGATES))
        cls.ports = {name: ports + at for at, name in enumerate(AGGREGATES)}
        nodes = cls.cluster.nodes
        try:
            for node, name in zip(nodes, AGGREGATES):
                nodes[0].does("aggregate", "create", name, "--on", f"rados:{POOL}", "--nfs", str(cls.ports[name]), "--memory", "256M",
                              "--node", node.name)
        except RuntimeError:
            print(cls.cluster.said())
            raise

    def done(self, node, method, path, body=None, **more):
        operation = self.ok(node, method, path, body, **more)
        while not operation.get("done"):
            operation = self.ok(node, "GET", operation["name"])
        self.assertNotIn("error", operation)

    def client(self, aggregate, options="", volume="big"):
        """A client at the address of the server that owns an aggregate."""
        node, port = self.cluster.owner(aggregate), self.ports[aggregate]
        url = f"nfs://{node.address}/{volume}?version=3&nfsport={port}&mountport={port}&auto-traverse-mounts=0{options}"
        client = Client(url)
        self.addCleanup(client.close)
        return client

    def fails(self, why, call, *words):
        with self.assertRaises(OSError) as raised:
            call(*words)
        self.assertEqual(raised.exception.errno, why, raised.exception)

    def make_volume(self, gib=3, **more):
        node = self.cluster.nodes[0]
        for name in AGGREGATES:
            self.done(node, "POST", POOLS, pool_in(name), storagePoolId=f"pool-{name}")
        self.done(node, "POST", VOLUMES,
                  {"storagePool": "pool-a", "capacityGib": str(gib), "shareName": "big", "protocols": ["NFSV3"], "largeCapacity": True,
                   "multipleEndpoints": True, "unixPermissions": "0777", **more}, volumeId="big")
        self.addCleanup(self.delete_volume)

    def is_known(self, gib):
        """Whether each server knows the space of all constituents, which is so much together. New directories are placed by it."""
        spaces = (self.client(name).space() for name in AGGREGATES)
        return all(space.blocks * space.frsize > gib - 1 << 30 for space in spaces)

    def delete_volume(self):
        node = self.cluster.up()[0]
        self.done(node, "DELETE", f"{VOLUMES}/big", force="true")
        for name in AGGREGATES:
            path = f"/aggregates/{name}/v1/{VOLUMES}/big"
            self.until(f"the constituent in {name} is gone", lambda path=path: node.ask("GET", path)[0] == 404)
            self.done(node, "DELETE", f"{POOLS}/pool-{name}")

    def test_the_constituents_share_one_limit(self):
        """Two constituents with 12 MiB/s each: together they have 24 at any time, and each has what the other does not need."""
        self.make_volume(384, largeCapacityConfig={"constituentCount": 2})
        limits = Limits(self, ("a", "b"), ("volume", "big"), 24 * MIB)
        for aggregate, path in self.files(limits.aggregates).items():
            limits.load(aggregate, "big", path)
        limits.watch()
        self.until("both have an equal part", lambda: limits.stay({"a": 0.5, "b": 0.5}))
        together = limits.measure(15)
        self.assertAlmostEqual(together, 1, delta=0.02)
        limits.pause("b")
        self.until("one has what the other does not need", lambda: limits.are({"a": 0.95}))
        alone = limits.measure(10)
        self.assertGreater(alone, 0.95)
        limits.goes_on("b")
        self.until("both have an equal part again", lambda: limits.are({"a": 0.5, "b": 0.5}))
        limits.pause("a")
        self.until("the other one has it", lambda: limits.are({"b": 0.95}))
        # Without the tables nobody has more than an equal part, and a server that begins has no more either.
        self.cluster.postgres.stop()
        self.until("one has an equal part", lambda: limits.in_force("b") <= 12 * MIB)
        limits.goes_on("a")
        limits.measure(5)
        self.assertLessEqual(max(limits.in_force(name) for name in limits.aggregates), 12 * MIB)
        self.cluster.postgres.start()
        self.until("both have an equal part once more", lambda: limits.are({"a": 0.5, "b": 0.5}))
        samples, most, worst = limits.check()
        print(f"two constituents together had {together:.1%} of the limit, one alone {alone:.1%}; in {samples} samples at most {most:.1%} "
              f"was in force, and at most {worst / MIB:.1f} MiB more passed than the limit allows, of {limits.under_way / MIB:.1f} under way")

    def test_volumes_of_a_pool_over_two_aggregates_share_its_throughput(self):
        """A FLEX pool with 12 MiB/s in each of two aggregates, and a volume in each."""
        node = self.cluster.nodes[0]
        body = {**POOL_BODY, "serviceLevel": "FLEX", "capacityGib": "1536", "labels": {"weir-aggregate": "a", "weir-aggregates": "2"}}
        self.done(node, "POST", POOLS, body, storagePoolId="wide")
        self.addCleanup(lambda: self.done(node, "DELETE", f"{POOLS}/wide"))
        pool = self.ok(node, "GET", f"{POOLS}/wide")
        self.assertEqual((pool["capacityGib"], pool["totalThroughputMibps"], pool["labels"]), ("1536", "24", body["labels"]))
        places = {}
        for name in ("w1", "w2"):
            new = {"storagePool": "wide", "capacityGib": "256", "shareName": name, "protocols": ["NFSV3"], "unixPermissions": "0777"}
            self.done(node, "POST", VOLUMES, new, volumeId=name)
            self.addCleanup(lambda name=name: self.done(node, "DELETE", f"{VOLUMES}/{name}", force="true"))
            place = next(one for one in AGGREGATES if node.ask("GET", f"/aggregates/{one}/v1/{VOLUMES}/{name}")[0] == 200)
            places[place] = name
        self.assertEqual(len(places), 2, places)
        status, answer = node.ask("DELETE", f"{POOLS}/wide")
        self.assertEqual((status, answer["error"]["status"]), (400, "FAILED_PRECONDITION"))
        listed = self.ok(node, "GET", POOLS)["storagePools"]
        wide = [one for one in listed if one["name"].endswith("/wide")]
        self.assertEqual([(one["volumeCount"], one["volumeCapacityGib"]) for one in wide], [(2, "512")])
        status, answer = node.ask("PATCH", f"{POOLS}/wide", {"capacityGib": "1537"}, updateMask="capacityGib")
        self.assertEqual(status, 400, answer)
        limits = Limits(self, tuple(places), ("pool", "wide"), 24 * MIB)
        for place, name in places.items():
            self.client(place, volume=name).write("/file", bytes(MIB))
            limits.load(place, name, "/file")
        limits.watch()
        first, second = places
        self.until("both have an equal part", lambda: limits.stay({first: 0.5, second: 0.5}))
        self.assertAlmostEqual(limits.measure(12), 1, delta=0.02)
        limits.pause(second)
        self.until("one has what the other does not need", lambda: limits.are({first: 0.95}))
        self.assertGreater(limits.measure(10), 0.95)
        limits.check()
        # More for all.
        self.done(node, "PATCH", f"{POOLS}/wide", {"capacityGib": "3072"}, updateMask="capacityGib")
        self.until("the larger limit is in force", lambda: limits.in_force(first) > 45 * MIB)

    def files(self, aggregates):
        """A file in each of the aggregates."""
        client = self.client(aggregates[0])
        found = {}
        number = 0

        def spread():
            nonlocal number
            path = f"/s{number}"
            number += 1
            client.mkdir(path)
            at = aggregates[client.stat(path).ino >> 56]
            if at not in found:
                client.write(f"{path}/file", bytes(MIB))
                found[at] = f"{path}/file"
            return len(found) == len(aggregates)

        self.until("a directory is in each constituent", spread)
        for aggregate, path in found.items():
            own = self.client(aggregate)
            self.until(f"the server of {aggregate} leads to {path}", lambda own=own, path=path: self.leads(own, path[1:]))
        return found

    def test_one_volume_over_three_aggregates(self):
        self.make_volume()
        self.until("every server knows the constituents of the others", lambda: self.is_known(3))
        self.check_api()
        self.check_calls()
        self.check_tree()

    def check_api(self):
        """One volume to see; what it cannot do is refused by its name."""
        n1, n2, n3 = self.cluster.nodes
        big = self.ok(n2, "GET", f"{VOLUMES}/big")
        self.assertEqual((big["capacityGib"], big["largeCapacityConfig"]), ("3", {"constituentCount": 3}))
        self.assertEqual(len({option["exportFull"] for option in big["mountOptions"]}), 3, big["mountOptions"])
        self.assertNotIn("weir-constituent", big.get("labels", {}))
        listed = self.ok(n3, "GET", VOLUMES)["volumes"]
        self.assertEqual([(one["name"], one["capacityGib"]) for one in listed], [(f"{VOLUMES}/big", "3")])
        self.done(n3, "PATCH", f"{VOLUMES}/big", {"capacityGib": "6"}, updateMask="capacityGib")
        self.assertEqual(self.ok(n1, "GET", f"{VOLUMES}/big")["capacityGib"], "6")
        self.until("every server knows of the change", lambda: self.is_known(6))
        status, answer = n1.ask("POST", f"{VOLUMES}/big/snapshots", {}, snapshotId="s")
        self.assertEqual(status, 400, answer)
        self.assertIn("large volumes of a cluster have no snapshots", answer["error"]["message"])
        status, answer = n1.ask("PATCH", f"{VOLUMES}/big", {"protocols": ["NFSV3", "NFSV4"]}, updateMask="protocols")
        self.assertEqual(status, 400, answer)
        self.assertIn("no protocols but NFSV3", answer["error"]["message"])

    def spread(self, a, b):
        """Makes one more directory. Whether there are a dozen, in all constituents: one that has used nothing yet is the best for all."""
        made = len(b.names("/"))
        a.mkdir(f"/d{made}")
        return made >= 11 and {ino >> 56 for ino in b.names("/").values()} == {0, 1, 2}

    @staticmethod
    def leads(client, path):
        """Whether a server knows where the directory is served. It hears of a new constituent a second or two later."""
        try:
            client.stat("/" + path)
        except BlockingIOError:
            return False
        return True

    def check_calls(self):
        """What each call does over the borders of constituents."""
        a, b, c = (self.client(name) for name in AGGREGATES)
        self.until("directories are in every constituent", lambda: self.spread(a, b))
        where = {name: ino >> 56 for name, ino in b.names("/").items()}
        for path in where:
            self.until(f"every server leads to {path}", lambda path=path: all(self.leads(client, path) for client in (a, b, c)))
        self.assertEqual(set(where.values()), {0, 1, 2}, where)
        zero, one, two = (next(f"/{name}" for name, at in where.items() if at == number) for number in range(3))
        self.fails(errno.EEXIST, b.mkdir, one)
        c.write(f"{one}/f", b"content")
        ino = a.stat(f"{one}/f").ino
        self.assertEqual(ino >> 56, 1)
        # A file stays where it is, whatever directories name it.
        b.rename(f"{one}/f", f"{two}/g")
        self.fails(errno.ENOENT, a.stat, f"{one}/f")
        self.assertEqual((c.read(f"{two}/g"), a.stat(f"{two}/g").ino), (b"content", ino))
        a.link(f"{two}/g", f"{zero}/h")
        self.assertEqual((b.stat(f"{zero}/h").nlink, b.names(zero)), (2, {"h": ino}))
        c.write(f"{two}/g", b"CON")
        self.assertEqual(a.read(f"{zero}/h"), b"CONtent")
        # A rename replaces what is elsewhere.
        a.write(f"{one}/other", b"other")
        a.rename(f"{one}/other", f"{two}/g")
        self.assertEqual((b.read(f"{two}/g"), b.stat(f"{zero}/h").nlink), (b"other", 1))
        b.unlink(f"{zero}/h")
        c.unlink(f"{two}/g")
        # Directories.
        a.mkdir(f"{one}/sub")
        b.write(f"{one}/sub/x", b"x")
        c.rename(f"{one}/sub", f"{zero}/sub")
        self.assertEqual(a.read(f"{zero}/sub/x"), b"x")
        self.assertEqual(c.stat(f"{zero}/sub/..").ino, a.stat(zero).ino)
        b.rename(zero, f"{two}/zero")
        self.fails(errno.EINVAL, a.rename, two, f"{two}/zero/sub/two")
        self.fails(errno.ENOTEMPTY, a.rmdir, two)
        self.fails(errno.ENOTEMPTY, c.rmdir, f"{two}/zero/sub")
        c.rename(f"{two}/zero", zero)
        # Permissions hold over the borders.
        user = self.client("a", "&uid=1000&gid=1000")
        self.fails(errno.EACCES, user.rename, f"{zero}/sub", "/mine")
        self.fails(errno.EACCES, user.mkdir, f"{two}/mine")
        a.chmod(one, 0o1777)
        a.chmod(two, 0o1777)
        user.write(f"{one}/mine", b"mine")
        user.rename(f"{one}/mine", f"{two}/mine")
        other = self.client("c", "&uid=1001&gid=1001")
        for call, words in ((other.unlink, (f"{two}/mine",)), (other.rename, (f"{two}/mine", f"{one}/stolen"))):
            with self.assertRaises(OSError) as raised:
                call(*words)
            self.assertIn(raised.exception.errno, (errno.EPERM, errno.EACCES))
        user.unlink(f"{two}/mine")
        a.unlink(f"{zero}/sub/x")
        a.rmdir(f"{zero}/sub")
        for name in where:
            b.rmdir(f"/{name}")
        self.assertEqual(c.names("/"), {})

    def check_tree(self):
        """Clients at two addresses change a tree while the third server is killed, and its aggregate moves. No call fails."""
        choices = random.Random(7)
        clients = [self.client("a"), self.client("b")]
        victim = self.cluster.owner("c")
        self.assertNotIn(victim, (self.cluster.owner("a"), self.cluster.owner("b")))
        # What paths are: None for a directory.
        tree = {"": None}
        for step in range(240):
            if step == 120:
                victim.kill()
            client = choices.choice(clients)
            directories = [path for path, content in tree.items() if content is None]
            files = [path for path, content in tree.items() if content is not None]
            parent = choices.choice([path for path in directories if path.count("/") < 4])
            new = f"{parent}/n{step}"
            kind = choices.choice(("mkdir", "mkdir", "write", "write", "rename", "rename", "move", "link", "remove"))
            if kind == "mkdir":
                client.mkdir(new)
                tree[new] = None
            elif kind == "write" or not files:
                client.write(new, new.encode())
                tree[new] = new.encode()
            elif kind == "rename":
                old = choices.choice(files)
                client.rename(old, new)
                tree[new] = tree.pop(old)
            elif kind == "link":
                old = choices.choice(files)
                client.link(old, new)
                tree[new] = tree[old]
            elif kind == "move":
                old = choices.choice(directories)
                if old and not new.startswith(old + "/"):
                    client.rename(old, new)
                    tree = {new + path[len(old):] if path == old or path.startswith(old + "/") else path: content
                            for path, content in tree.items()}
            else:
                path = choices.choice([path for path in tree if path])
                if tree[path] is not None:
                    client.unlink(path)
                    del tree[path]
                elif not any(other.startswith(path + "/") for other in tree):
                    client.rmdir(path)
                    del tree[path]
        self.until("the rows follow", lambda: self.cluster.is_left(victim))
        victim.start()
        self.cluster.well()
        for name in AGGREGATES:
            self.assertEqual(self.walk(self.client(name)), tree, name)
        where = {ino >> 56 for path in tree if tree[path] is None for ino in clients[0].names(path or "/").values()}
        self.assertEqual(where, {0, 1, 2})

    def walk(self, client):
        """Everything that a client sees."""
        found, waiting = {"": None}, [""]
        while waiting:
            directory = waiting.pop()
            for name in client.names(directory or "/"):
                path = f"{directory}/{name}"
                if client.stat(path).mode & 0o170000 == 0o040000:
                    found[path] = None
                    waiting.append(path)
                else:
                    found[path] = client.read(path)
        return found


class Limits:
    """Clients that read from the parts of a volume or a pool, and what the servers count meanwhile."""

    CLIENTS, SIZE = 4, 128 << 10
    # A request that was charged may be counted later, and each server lets pass what it saves up in 10 ms.
    BURST = 0.02

    def __init__(self, test, aggregates, of, limit):
        self.test, self.aggregates, self.of, self.limit = test, aggregates, of, limit
        self.under_way = len(aggregates) * self.CLIENTS * self.SIZE
        self.paused = {name: threading.Event() for name in aggregates}
        self.ended = threading.Event()
        self.threads, self.samples, self.failed = [], [], []

    def begin(self, run, *words):
        thread = threading.Thread(target=self.guarded, args=(run, *words), daemon=True)
        self.threads.append(thread)
        thread.start()

    def guarded(self, run, *words):
        try:
            run(*words)
        except Exception as why:  # pylint: disable=broad-exception-caught
            self.failed.append(why)

    def load(self, aggregate, volume, path):
        for _ in range(self.CLIENTS):
            self.begin(self.read, aggregate, path, self.test.client(aggregate, volume=volume))
        # Before the clients are closed.
        self.test.addCleanup(self.end)

    def read(self, aggregate, path, client):
        def over():
            while self.paused[aggregate].is_set() and not self.ended.is_set():
                time.sleep(0.05)
            return self.ended.is_set()
        client.reads(path, self.SIZE, over)

    def pause(self, aggregate):
        self.paused[aggregate].set()

    def goes_on(self, aggregate):
        self.paused[aggregate].clear()

    def end(self):
        self.ended.set()
        for thread in self.threads:
            thread.join(60)

    def metrics(self, aggregate):
        """The bytes that the volume has moved in an aggregate, and its limit in force."""
        text = self.test.cluster.nodes[0].ask("GET", f"/aggregates/{aggregate}/metrics")[1]
        level, name = self.of
        moved = re.findall(rf'^weir_operation_bytes_total\{{[^}}]*{level}="(?:[^"]*/)?{name}"[^}}]*\}} (\S+)$', text, re.MULTILINE)
        limit = re.search(rf'^weir_limit_bytes_per_second\{{level="{level}",[^}}]*{level}="(?:[^"]*/)?{name}"[^}}]*,direction="both"\}} (\S+)$',
                          text, re.MULTILINE)
        return sum(map(float, moved)), float(limit[1])

    def in_force(self, aggregate):
        return self.metrics(aggregate)[1]

    def sample(self):
        """Bytes of all constituents, of a moment between two times, and the limits in force if all were so at one moment."""
        begin = time.monotonic()
        found = [self.metrics(name) for name in self.aggregates]
        end = time.monotonic()
        again = [self.in_force(name) for name in self.aggregates[:-1]]
        limits = [limit for _, limit in found]
        return begin, sum(moved for moved, _ in found), end, sum(limits) if again == limits[:-1] else None

    def watch(self):
        self.begin(self.take_samples)

    def take_samples(self):
        while not self.ended.is_set():
            self.samples.append(self.sample())
            time.sleep(0.1)

    def are(self, parts):
        """Whether the limits in force are at least these parts of the whole, up to 2 %."""
        self.test.assertEqual(self.failed, [])
        return all(self.in_force(name) >= (part - 0.01) * self.limit for name, part in parts.items())

    def stay(self, parts):
        """Whether they are so for some seconds: before a load begins they are equal as well."""
        end = time.monotonic() + 8
        while self.are(parts):
            if time.monotonic() > end:
                return True
            time.sleep(0.5)
        return False

    def measure(self, seconds):
        """What passes in a time, as a part of the limit."""
        first = self.sample()
        time.sleep(seconds)
        last = self.sample()
        self.test.assertEqual(self.failed, [])
        middle = [(begin + end) / 2 for begin, _, end, _ in (first, last)]
        return (last[1] - first[1]) / (middle[1] - middle[0]) / self.limit

    def check(self):
        """That in no time between two samples more passed than the limit allows: how many there were, the greatest part of the limit
        that was in force, and the most bytes beyond it."""
        samples = list(self.samples)
        self.test.assertEqual(self.failed, [])
        most = max(limits for *_, limits in samples if limits is not None) / self.limit
        self.test.assertLessEqual(most, 1)
        beyond = [last[1] - first[1] - (last[2] - first[0] + self.BURST) * self.limit
                  for at, first in enumerate(samples) for last in samples[at + 1:]]
        self.test.assertLessEqual(max(beyond), self.under_way)
        return len(samples), most, max(beyond)
