"""A Weir server of its own with SMB on a free port, and Samba's programs against it."""

import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "attack"))
import attacker  # noqa: E402
from attacker import MOUNT, NFS, opaque  # noqa: E402

WEIR = os.environ["WEIR"]
PASSWORD = "Cheese-4-Mice"


class Server:
    """`weir serve` on ports of its own; its user is `mouse`."""

    def __init__(self, *options):
        self.options = options if "--api" in options else ("--api", "off", *options)
        if "--smb" not in options:
            self.options = ("--smb", "127.0.0.1:0", *self.options)
        self.folder = tempfile.TemporaryDirectory(prefix="weir-smb-")
        self.top = Path(self.folder.name)
        self.data = self.top / "data"
        self.data.mkdir()
        self.process = None
        # Of the server alone; None: as here.
        self.environment = None
        self.config = self.top / "smb.conf"
        for name in ("lock", "state", "cache", "private"):
            (self.top / name).mkdir()
        self.config.write_text(
            "[global]\nclient max protocol = SMB3_11\nclient min protocol = SMB2_10\n"
            f"lock directory = {self.top}/lock\nstate directory = {self.top}/state\n"
            f"cache directory = {self.top}/cache\nprivate dir = {self.top}/private\nload printers = no\n")

    def users(self, *args, password=PASSWORD):
        return subprocess.run([WEIR, "users", *args, "--data", self.data], input=password + "\n", text=True,
                              capture_output=True, timeout=30)

    def start(self):
        ready = self.top / "ready"
        ready.unlink(missing_ok=True)
        with open(self.top / "log", "ab") as log:
            self.process = subprocess.Popen(
                [WEIR, "serve", "--data", self.data, "--nfs", "127.0.0.1:0", "--memory", "256M",
                 "--no-rpcbind", "--ready-file", ready, *self.options], stdout=log, stderr=log,
                env=self.environment)
        deadline = time.monotonic() + 60
        while not (ready.exists() and "smb" in ready.read_text()):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("the server did not start:\n" + self.log())
            time.sleep(0.05)
        lines = dict(reversed(line.rsplit(" ", 1)) if " " in line else (line, "nfs")
                     for line in ready.read_text().splitlines())
        found = re.findall(r"API on (\S+)", self.log())
        self.api = found[-1] if found else None
        self.port = next(address for address, what in lines.items() if what == "smb").rsplit(":", 1)[1]

    def start_with_user(self):
        self.start()
        made = self.users("create", "mouse", "--uid", "0")
        if made.returncode != 0:
            raise AssertionError(made.stderr)

    def nfs_port(self):
        return int(re.findall(r"listening on 127\.0\.0\.1:(\d+)", self.log())[-1])

    def open_root(self):
        """The volume's root is root's; lets everybody write there, over NFS."""
        client = attacker.Client(self.nfs_port(), timeout=60)
        try:
            results = client.call(MOUNT, 3, 1, opaque(b"/vol1"), attacker.auth_sys())
            root = results[8:8 + int.from_bytes(results[4:8], "big")]
            chmod = opaque(root) + struct.pack(">II", 1, 0o777) + bytes(4 * 6)
            if client.call(NFS, 3, 2, chmod, attacker.auth_sys())[:4] != bytes(4):
                raise AssertionError("the root's mode cannot be set")
        finally:
            client.close()

    def symlink(self, name, target):
        """Makes a symbolic link in the volume's root, over NFS."""
        client = attacker.Client(self.nfs_port(), timeout=60)
        try:
            results = client.call(MOUNT, 3, 1, opaque(b"/vol1"), attacker.auth_sys())
            root = results[8:8 + int.from_bytes(results[4:8], "big")]
            made = client.call(NFS, 3, 10, opaque(root) + opaque(name.encode()) + bytes(4 * 6) + opaque(target.encode()), attacker.auth_sys())
            if made[:4] != bytes(4):
                raise AssertionError(f"no link {name}")
        finally:
            client.close()

    def readlink(self, *names):
        """The target of a symbolic link, by the names of its path, over NFS."""
        client = attacker.Client(self.nfs_port(), timeout=60)
        try:
            at = client.call(MOUNT, 3, 1, opaque(b"/vol1"), attacker.auth_sys())
            at = at[8:8 + int.from_bytes(at[4:8], "big")]
            for name in names:
                found = client.call(NFS, 3, 3, opaque(at) + opaque(name.encode()), attacker.auth_sys())
                if found[:4] != bytes(4):
                    raise AssertionError(f"nothing is called {name}")
                at = found[8:8 + int.from_bytes(found[4:8], "big")]
            read = client.call(NFS, 3, 5, opaque(at), attacker.auth_sys())
            if read[:4] != bytes(4):
                raise AssertionError(f"{names} is no link")
            # Behind attributes of 84 bytes, which may be there.
            read = read[8 + 84 * int.from_bytes(read[4:8], "big"):]
            return read[4:4 + int.from_bytes(read[:4], "big")].decode()
        finally:
            client.close()

    def log(self):
        return (self.top / "log").read_text()

    def stop(self, how=signal.SIGTERM):
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def close(self):
        try:
            self.stop()
        finally:
            self.folder.cleanup()

    def smbclient(self, commands, user="mouse", password=PASSWORD, share="vol1", options=(), protocol="SMB3_11"):
        """Runs smbclient's commands; what it printed, and whether it succeeded."""
        args = ["smbclient", "-s", self.config, "-p", self.port, "-m", protocol, "-U", f"{user}%{password}", *options,
                f"//127.0.0.1/{share}", "-c", commands]
        done = subprocess.run(args, capture_output=True, text=True, timeout=120, cwd=self.top)
        return done.returncode == 0, done.stdout + done.stderr

    def with_ticket(self, commands, cache, host, options=(), protocol="SMB3_11"):
        """The same as the user of a ticket, and nothing else to log on by. smbclient takes no ticket for an address, or for localhost."""
        args = ["smbclient", "-s", self.config, "-p", self.port, "-m", protocol, "--use-kerberos=required", *options, f"//{host}/vol1",
                "-c", commands]
        done = subprocess.run(args, capture_output=True, text=True, timeout=120, cwd=self.top, env={**os.environ, "KRB5CCNAME": cache})
        return done.returncode == 0, done.stdout + done.stderr

    def rpcclient(self, commands):
        """Runs rpcclient's commands over a named pipe; what it printed."""
        args = ["rpcclient", "-s", self.config, "-p", self.port, "-U", f"mouse%{PASSWORD}", "127.0.0.1", "-c", commands]
        done = subprocess.run(args, capture_output=True, text=True, timeout=120, cwd=self.top)
        return done.stdout + done.stderr

    def smbtorture(self, test, share="vol1"):
        """Runs one test of smbtorture; what it printed."""
        args = ["smbtorture", "-s", self.config, "-p", self.port, "-m", "SMB3_11", "-U", f"mouse%{PASSWORD}", "--client-protection=sign",
                f"//127.0.0.1/{share}", test]
        done = subprocess.run(args, capture_output=True, text=True, timeout=120, cwd=self.top)
        return done.stdout + done.stderr


class SmbTest(unittest.TestCase):
    OPTIONS = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.OPTIONS)
        cls.addClassCleanup(cls.server.close)
        cls.server.start_with_user()

    def run_ok(self, commands, **more):
        ok, out = self.server.smbclient(commands, **more)
        self.assertTrue(ok, out + "\n" + self.server.log()[-2000:])
        return out


class InRealm(unittest.TestCase):
    """Tests whose programs, and the servers that they start, are in a realm of the class's own."""

    @classmethod
    def enter(cls, realm):
        """Has it end with the class, and the environment be as before; returns it."""
        cls.addClassCleanup(realm.close)
        before = dict(os.environ)
        cls.addClassCleanup(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.update(realm.environment)
        return realm
