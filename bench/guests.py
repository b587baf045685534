"""Machines with a Linux kernel and a disk of their own (User-Mode Linux, VMCLIENT), which run what they are told."""

import json
import multiprocessing
import os
import queue
import shlex
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
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


class SlowDisk:
    """Serves a guest this file as a disk (NBD, with FLUSH and FUA) that replies to a request `delay` seconds after it came, or when this machine
    has done it. It begins each at once: the delay is one of latency, and many may be in flight."""

    def __init__(self, path, delay):
        self.path, self.delay = path, delay
        self.listener = socket.create_server((HOST, 0))
        self.port = self.listener.getsockname()[1]
        self.process = multiprocessing.get_context("fork").Process(target=self.serve, daemon=True)
        self.process.start()

    def serve(self):
        while True:
            connection, _ = self.listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            read = connection.makefile("rb", 1 << 20).read
            connection.sendall(struct.pack(">8s8sH", b"NBDMAGIC", b"IHAVEOPT", 3))
            read(4)
            while True:
                _, option, length = struct.unpack(">8sII", read(16))
                read(length)
                # Its name, whatever it is; no other option.
                if option == 1:
                    break
                connection.sendall(struct.pack(">QIII", 0x3E889045565A9, option, 0x80000001, 0))
            # With flags, FLUSH and FUA.
            connection.sendall(struct.pack(">QH", self.path.stat().st_size, 1 | 4 | 8))
            self.do(read, connection)

    def do(self, read, connection):
        file, replies, flushes = os.open(self.path, os.O_RDWR), queue.SimpleQueue(), ThreadPoolExecutor(8)

        def deliver():
            while True:
                due, flushed, reply = replies.get()
                if flushed:
                    flushed.result()
                time.sleep(max(0, due - time.perf_counter()))
                connection.sendall(reply)

        threading.Thread(target=deliver, daemon=True).start()
        while head := read(28):
            due = time.perf_counter() + self.delay
            _, flags, kind, handle, at, length = struct.unpack(">IHHQQI", head)
            data = b""
            if kind == 0:
                data = os.pread(file, length, at)
            elif kind == 1:
                os.pwrite(file, read(length), at)
            flushed = flushes.submit(os.fdatasync, file) if kind == 3 or flags & 1 else None
            replies.put((due, flushed, struct.pack(">IIQ", 0x67446698, 0, handle) + data))

    def end(self):
        self.process.kill()
        self.process.join()
        self.listener.close()


class Guest:
    """Number 0 or 1. Its disks are these files, with a `delay` each a `SlowDisk`; it sees this machine's folders as they are, and what it writes
    there is its own."""

    def __init__(self, number, place, disks, memory="1G", delay=0):
        self.number, self.address = number, f"10.99.{number}.2"
        self.slow = [SlowDisk(disk, delay) for disk in disks] if delay else []
        self.disks = [f"/dev/nbd{at}" if delay else f"/dev/ubd{'abcdefgh'[at]}" for at in range(len(disks))]
        listener = socket.create_server((HOST, 0))
        listener.settimeout(60)
        script = place / f"script{number}"
        attach = "".join(f"modprobe nbd && nbd-client {HOST} {disk.port} -N disk {self.disks[at]}\n" for at, disk in enumerate(self.slow))
        script.write_text(f"{attach}exec {shlex.join([str(HERE / 'guest-agent'), HOST, str(listener.getsockname()[1]), str(number)])}\n")
        self.log = place / f"guest{number}.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                [program(), "-v", "-m", memory, "-t", "3000", "-i", str(number), str(script)], stdout=log, stderr=log, start_new_session=True,
                env=os.environ | {"VMCLIENT_APPEND": " ".join(f"ubd{at}={disk}" for at, disk in enumerate([] if delay else disks))})
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
        for disk in self.slow:
            disk.end()
