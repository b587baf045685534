"""The Linux kernel's clients in a machine of their own, behind the switch of a lab: each writes through what happens to the pair."""

import shlex
import socket
import subprocess
import threading
import time
from pathlib import Path

import guests
from common import Failure
from guests import HOST
from pairs import Client

HERE = Path(__file__).resolve().parent
SMB = 4450
# What the nodes take besides.
SERVE = ["--smb", f"0.0.0.0:{SMB}"]
PROTOCOLS = ("nfs3", "nfs4.2", "smb")
USER, PASSWORD = "writer", "Cheese-4-Mice"
# Of the machine that runs the clients.
NETWORK = "10.99.0.0/30"
# As in `kernel-writers`.
SLOTS = 2048
SHARE = "http://127.0.0.1:8049/v1/projects/weir/locations/local/volumes/vol1?updateMask=smbSettings"


class Acknowledged(threading.Thread):
    """What one of them has written."""

    def __init__(self, lines, name):
        super().__init__(daemon=True)
        self.lines, self.name, self.acknowledged, self.failed, self.failure = lines, name, [], [], None
        self.handle = None
        self.start()

    def run(self):
        for line in self.lines:
            word, *said = line.split(maxsplit=2)
            if word == "!":
                self.failed.append(said[1].strip())
            elif int(word) == len(self.acknowledged):
                self.acknowledged.append(time.monotonic())
            else:
                break
        self.failure = f"{self.name} reports no more"

    def holds(self, client):
        """Whether in each place is the last block that was acknowledged there, or a later one that was written; how many were."""
        if self.handle is None:
            self.handle = client.create(client.mount(b"/vol1"), self.name.encode())
        blocks = len(self.acknowledged)
        places = min(blocks, SLOTS)
        found = [client.block(self.handle, at) for at in range(places)]
        # The next one may have been written and not be acknowledged.
        newest = len(self.acknowledged)
        for at, n in enumerate(found):
            if n is None or n % SLOTS != at or not blocks - SLOTS <= n <= newest:
                return False
        return blocks


class Guest:
    def __init__(self, a, folder, pair, switch, moving):
        program = guests.program()
        # A folder of this machine that the other one sees is none of the usual temporary ones.
        place = HERE.parent / "target" / folder.name
        place.mkdir(parents=True)
        node = pair.nodes[0]
        made = subprocess.run([str(a.weir), "users", "create", USER, "--uid", "0", "--data", str(node.data)],
                              input=PASSWORD + "\n", text=True, capture_output=True)
        if made.returncode:
            raise Failure(made.stderr)
        node.machine.run("curl", "-fsS", "-X", "PATCH", "-H", "Content-Type: application/json", "-d",
                         '{"smbSettings": ["CONTINUOUSLY_AVAILABLE"]}', SHARE)
        subprocess.run([program, "tap-up"], check=True)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for one in pair.nodes:
            one.machine.run("ip", "route", "add", NETWORK, "via", switch.address)
        (place / "password").write_text(PASSWORD + "\n")
        listener = socket.create_server((HOST, 0))
        listener.settimeout(60)
        arguments = [str(HERE / "kernel-writers"), moving, str(node.nfs), str(SMB), USER, str(place / "password"), HOST,
                     str(listener.getsockname()[1]), *PROTOCOLS]
        script = place / "script"
        script.write_text(f"modprobe nfsv4; modprobe nfsv3; modprobe cifs; exec {shlex.join(arguments)}\n")
        self.log = folder / "guest.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen([program, "-v", "-t", "20000", str(script)], stdout=log, stderr=log, start_new_session=True)
        self.connections, self.writers = [], {}
        try:
            for name in PROTOCOLS:
                connection, _ = listener.accept()
                self.connections.append(connection)
                lines = connection.makefile()
                if lines.readline().strip() != name:
                    raise Failure(f"another one than {name} has come")
                self.writers[name] = Acknowledged(lines, name)
        except OSError as error:
            self.end()
            raise Failure(f"the kernel's clients do not come: {error}; {self.log}") from error
        for name, writer in self.writers.items():
            node.wait(f"{name} writes", lambda: writer.failure or len(writer.acknowledged) > 20)
            if writer.failure:
                raise Failure(f"{writer.failure}: {writer.failed[-1:]}; {self.log}")

    def end(self):
        for connection in self.connections:
            connection.shutdown(socket.SHUT_RDWR)
        guests.finish(self.process)
