"""A synchronous pair under test: two nodes, a witness, perhaps a relay between them that delays, and a small NFSv3 client."""

import os
import signal
import socket
import struct
import subprocess
import time

from common import Failure, raise_limits, wait_for_log

BLOCK = 8192
JUKEBOX = 10008


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def word(text, name):
    """The last word of the line that begins with this name."""
    return next(line.split()[-1] for line in text.splitlines() if line.strip().startswith(name))


class Relay:
    """Passes bytes between a port of its own and another, each `delay` seconds after they came (`weir bench relay`). Counts them."""

    def __init__(self, weir, to, delay):
        command = [str(weir), "bench", "relay", "--to", f"127.0.0.1:{to}", "--delay", str(round(delay * 1e6))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline().rsplit(":", 1)[1])

    def bytes(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self):
        self.process.kill()
        self.process.wait()


class Node:
    """On this machine; `machine`: on one of a lab (`lab.Machine`), where it listens at all addresses."""

    def __init__(self, a, folder, name, more=(), machine=None):
        self.a, self.data, self.ready = a, folder / name, folder / f"{name}.ready"
        self.nfs, self.log = free_port(), folder / f"{name}.log"
        self.more, self.process, self.machine = list(more), None, machine
        self.address = machine.address if machine else "127.0.0.1"

    def start(self):
        self.ready.unlink(missing_ok=True)
        enter, listen = (self.machine.enter, "0.0.0.0") if self.machine else ([], "127.0.0.1")
        # The API of a machine of its own is at its usual place.
        api = [] if self.machine else ["--api", "off"]
        command = [*enter, str(self.a.weir), "serve", "--data", str(self.data), "--nfs", f"{listen}:{self.nfs}", "--no-rpcbind",
                   *api, "--ready-file", str(self.ready), *self.more]
        if self.a.memory:
            command += ["--memory", self.a.memory]
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=raise_limits)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.kill()

    def shows(self):
        out = subprocess.run([str(self.a.weir), "pair", "show", "--data", str(self.data)], capture_output=True, text=True)
        pairs = (line.strip().split("  ", 1) for line in out.stdout.splitlines() if "  " in line.strip())
        return {name.strip(): value.strip() for name, value in pairs}

    def wait(self, what, met, seconds=60):
        deadline = time.monotonic() + seconds
        while not met():
            if time.monotonic() > deadline:
                raise Failure(f"{self.data}: {what}: it does not come to that; {self.log}")
            time.sleep(getattr(self.a, "pause", 0.02))

    def serves(self):
        self.wait("it serves", self.ready.exists)

    def is_prepared(self):
        """Every block of its log has been written once: until then it writes zeroes beside the load."""
        wait_for_log(self.log, self.process, 300)

    def in_sync(self):
        self.wait("in sync", lambda: self.shows().get("in sync") == "yes", getattr(self.a, "patience", 60))


class Pair:
    """Two nodes in sync, `delay` seconds apart each way; None: with nothing between them. `machines`: two of a lab, whose switch
    has the witness, with this address that moves. `create`: more for `weir pair create` and `join`."""

    def __init__(self, a, folder, delay=None, more=(), machines=(None, None), switch="127.0.0.1", moving=None, create=()):
        self.folder = folder
        self.nodes = [Node(a, folder, name, more, machine) for name, machine in zip("ab", machines)]
        if moving:
            # Clients know one address, with one port.
            self.nodes[1].nfs = self.nodes[0].nfs

        def weir(*arguments):
            command = [str(a.weir), *map(str, arguments)]
            out = subprocess.run(command, capture_output=True, text=True)
            if out.returncode:
                raise Failure(f"{' '.join(command)}: {out.stderr}")
            return out.stdout

        one, two = self.nodes
        witness, listen = f"{switch}:{free_port()}", free_port()
        self.relay = None if delay is None else Relay(a.weir, listen, delay)
        place = folder / "witness"
        decider = ["--witness", witness, "--witness-certificate", weir("witness", "--data", place, "--show").strip()]
        same = [*decider, *create, *(["--address", f"{moving}/24@eth0"] if moving else [])]
        made = weir("pair", "create", "--data", one.data, "--listen", f"{one.address}:{listen}", *same)
        first = word(made, "certificate")
        joined = weir("pair", "join", "--data", two.data, "--aggregate", word(made, "aggregate"),
                      "--partner", f"{one.address}:{self.relay.port if self.relay else listen}", "--partner-certificate", first, *same)
        second = word(joined, "certificate")
        weir("pair", "accept", "--data", one.data, second)
        ready = folder / "witness.ready"
        with open(folder / "witness.log", "a") as log:
            self.witness = subprocess.Popen(
                [str(a.weir), "witness", "--data", str(place), "--listen", witness, "--node", first, "--node", second,
                 "--ready-file", str(ready)], stdout=log, stderr=log)
        one.wait("the witness serves", ready.exists)
        one.start()
        one.serves()
        two.start()
        self.in_sync()

    def is_prepared(self):
        for node in self.nodes:
            node.is_prepared()

    def in_sync(self):
        for node in self.nodes:
            node.in_sync()

    def end(self):
        for node in self.nodes:
            node.end()
        self.witness.kill()
        self.witness.wait()
        if self.relay:
            self.relay.end()


class Client:
    """NFSv3 by hand: one call at a time, as root, on one connection."""

    def __init__(self, port, address="127.0.0.1", patience=60):
        self.socket = socket.create_connection((address, port), patience)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.xid = int.from_bytes(os.urandom(4), "big")

    @staticmethod
    def opaque(data):
        return struct.pack(">I", len(data)) + data + bytes(-len(data) % 4)

    def call(self, program, procedure, body):
        """The reply's body. What the server has to ask another client for first is asked for again (NFS3ERR_JUKEBOX)."""
        deadline = time.monotonic() + 60
        while (reply := self.once(program, procedure, body)) is None:
            if time.monotonic() > deadline:
                raise Failure(f"procedure {procedure}: NFS3ERR_JUKEBOX for a minute")
            time.sleep(0.05)
        return reply

    def once(self, program, procedure, body):
        self.xid = (self.xid + 1) & 0xFFFFFFFF
        credential = struct.pack(">IIIIIII", 1, 20, 0, 0, 0, 0, 0)
        head = struct.pack(">IIIIII", self.xid, 0, 2, program, 3, procedure) + credential + struct.pack(">II", 0, 0)
        message = head + body
        self.socket.sendall(struct.pack(">I", 0x80000000 | len(message)) + message)
        mark, = struct.unpack(">I", self.exactly(4))
        reply = self.exactly(mark & 0x7FFFFFFF)
        status, = struct.unpack_from(">I", reply, 24)
        if program == 100003 and status == JUKEBOX:
            return None
        if reply[:4] != struct.pack(">I", self.xid) or struct.unpack_from(">I", reply, 20)[0] or status:
            raise Failure(f"procedure {procedure}: {reply[:32].hex()}")
        return reply[28:]

    def exactly(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def mount(self, path):
        reply = self.call(100005, 1, self.opaque(path))
        length, = struct.unpack_from(">I", reply)
        return reply[4:4 + length]

    def attributes(self, handle):
        self.call(100003, 1, self.opaque(handle))

    def create(self, root, name):
        reply = self.call(100003, 8, self.opaque(root) + self.opaque(name) + struct.pack(">IIIIIIII", 0, 1, 0o644, 0, 0, 0, 0, 0))
        length, = struct.unpack_from(">I", reply, 4)
        return reply[8:8 + length]

    def write(self, handle, n):
        """Block `n`, durably."""
        data = struct.pack(">Q", n) * (BLOCK // 8)
        self.call(100003, 7, self.opaque(handle) + struct.pack(">QII", n * BLOCK, BLOCK, 2) + self.opaque(data))

    def block(self, handle, at):
        """The number that this block has in all its words; None: another one in one of them."""
        reply = self.call(100003, 6, self.opaque(handle) + struct.pack(">QI", at * BLOCK, BLOCK))
        words = {reply[-BLOCK:][n:n + 8] for n in range(0, BLOCK, 8)}
        return struct.unpack(">Q", words.pop())[0] if len(words) == 1 else None

    def holds(self, handle, blocks):
        """Whether so many blocks are as they were written."""
        return all(self.block(handle, n) == n for n in range(blocks))
