"""Machines of a test's own, as network namespaces on one switch: an address that moves, a link that is cut in one direction. Takes root,
`ip` of iproute2 and `nft` of nftables."""

import os
import shutil
import signal
import subprocess
import sys
import time

from common import Failure

NETWORK = "10.77.0"


def enter():
    """Runs this program again in a network of its own, in which it is the switch and the client."""
    if os.environ.get("WEIR_LAB") == "1":
        return
    if os.geteuid() != 0 or not all(map(shutil.which, ("ip", "nft", "unshare", "nsenter"))):
        raise Failure("machines of its own take root, iproute2 and nftables")
    os.execvpe("unshare", ["unshare", "-n", sys.executable, *sys.argv], os.environ | {"WEIR_LAB": "1"})


def run(*command, text=None):
    out = subprocess.run(command, input=text, capture_output=True, text=True)
    if out.returncode:
        raise Failure(f"{' '.join(command)}: {out.stderr.strip()}")
    return out.stdout


class Switch:
    """In the network of this process, which has the address 9."""

    address = f"{NETWORK}.9"

    def __init__(self):
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "br0", "type", "bridge")
        run("ip", "addr", "add", f"{self.address}/24", "dev", "br0")
        run("ip", "link", "set", "br0", "up")


class Machine:
    """A network namespace with the address of this number, connected to the switch."""

    def __init__(self, number):
        self.address = f"{NETWORK}.{number}"
        # It ends with this program.
        self.process = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
        own, deadline = os.readlink("/proc/self/ns/net"), time.monotonic() + 10
        while os.readlink(f"/proc/{self.process.pid}/ns/net") == own:
            if time.monotonic() > deadline:
                raise Failure("no network of its own")
            time.sleep(0.005)
        self.enter = ["nsenter", "-t", str(self.process.pid), "-n"]
        port = f"port{number}"
        run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", str(self.process.pid))
        run("ip", "link", "set", port, "master", "br0", "up")
        self.run("ip", "link", "set", "lo", "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0")
        self.run("ip", "link", "set", "eth0", "up")

    def run(self, *command, text=None):
        return run(*self.enter, *command, text=text)

    def has(self, address):
        return f" {address}/" in self.run("ip", "-4", "-o", "addr", "show")

    def cut(self, *rules):
        """Drops what these rules match, of `input` and `output`, until `heal`."""
        chains = "".join(f"chain {hook} {{ type filter hook {hook} priority 0; "
                         + "".join(f"{rule} drop; " for at, rule in rules if at == hook) + "}\n" for hook in ("input", "output"))
        self.run("nft", "-f", "-", text=f"table ip lab {{\n{chains}}}\n")

    def heal(self):
        self.run("nft", "delete", "table", "ip", "lab")

    def end(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()
