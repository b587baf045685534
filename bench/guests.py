"""Machines with a Linux kernel and a disk of their own (User-Mode Linux, VMCLIENT), which run what they are told."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

from common import Failure

HERE = Path(__file__).resolve().parent
# This machine's address in their networks.
HOST = "10.99.0.1"


def enter():
    """Runs this program again in a network of its own, in which it forwards between the guests."""
    if os.environ.get("WEIR_GUESTS") == "1":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        for number in (0, 1):
            subprocess.run([program(), "tap-up", str(number)], check=True)
        return
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "unshare"))):
        raise Failure("machines of its own take root and iproute2")
    os.execvpe("unshare", ["unshare", "-n", sys.executable, *sys.argv], os.environ | {"WEIR_GUESTS": "1"})


def program():
    found = os.environ.get("VMCLIENT")
    if not found:
        raise Failure("set VMCLIENT (see conformance/README.md)")
    return found


def finish(process):
    """Waits for the end of a machine that has been asked to end; has it end if it does not."""
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Guest:
    """Number 0 or 1. Its disks are these files; it sees this machine's folders as they are, and what it writes there is its own."""

    def __init__(self, number, place, disks, memory="1G"):
        self.number, self.address = number, f"10.99.{number}.2"
        listener = socket.create_server((HOST, 0))
        listener.settimeout(60)
        script = place / f"script{number}"
        script.write_text(f"exec {shlex.join([str(HERE / 'guest-agent'), HOST, str(listener.getsockname()[1]), str(number)])}\n")
        self.log = place / f"guest{number}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [program(), "-v", "-m", memory, "-t", "3000", "-i", str(number), str(script)], stdout=log, stderr=log, start_new_session=True,
                env=os.environ | {"VMCLIENT_APPEND": " ".join(f"ubd{at}={disk}" for at, disk in enumerate(disks))})
        try:
            connection, _ = listener.accept()
        except OSError as error:
            self.end()
            raise Failure(f"the machine does not come up: {error}; {self.log}") from error
        self.lines = connection.makefile("rw")
        self.connection = connection
        self.lines.readline()

    def run(self, command):
        """What the shell command prints."""
        print(json.dumps(command), file=self.lines, flush=True)
        reply = self.lines.readline()
        if not reply:
            raise Failure(f"machine {self.number} is gone at {command}; {self.log}")
        status, text = json.loads(reply)
        if status:
            raise Failure(f"machine {self.number}: {command}: {status}: {text.strip()}")
        return text

    def until(self, command):
        """Waits until the shell command succeeds."""
        self.run(f"for n in $(seq 600); do {{ {command}; }} >/dev/null 2>&1 && exit 0; sleep 0.1; done; echo it does not come to that; exit 1")

    def end(self):
        if hasattr(self, "connection"):
            self.connection.shutdown(socket.SHUT_RDWR)
        finish(self.process)
