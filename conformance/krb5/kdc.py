"""A realm of its own: a key distribution centre, keytabs, tickets.

As a program, kdc.py FOLDER ADDRESS: keeps one there for the suite krb5 of conformance/run until it is ended. In FOLDER it leaves krb5.conf,
the keytabs of the server `host` and of a client machine, and the ticket of the user daemon; `ready` when all are there.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

REALM = "WEIR.TEST"
PATHS = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Kdc:
    """MIT krb5's KDC in a temporary folder; `types` are those of its keys, if not the usual ones."""

    def __init__(self, address="127.0.0.1", types=None):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-kdc-")
        with socket.socket() as probe:
            probe.bind((address, 0))
            port = probe.getsockname()[1]
        self.write("krb5.conf", f"""
[libdefaults]
 default_realm = {REALM}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 dns_canonicalize_hostname = false
 default_rcache_name = dfl:
{f" permitted_enctypes = {types}" if types else ""}
[realms]
 {REALM} = {{
  kdc = {address}:{port}
 }}
[domain_realm]
 host = {REALM}
""")
        self.write("kdc.conf", f"""
[kdcdefaults]
 kdc_listen = {address}:{port}
 kdc_tcp_listen = {address}:{port}
[realms]
 {REALM} = {{
  database_name = {self.path("principal")}
  key_stash_file = {self.path("stash")}
  acl_file = {self.path("acl")}
{f"  supported_enctypes = {types}:normal" if types else ""}
{f"  master_key_type = {types}" if types else ""}
 }}
[logging]
 kdc = FILE:{self.path("kdc.log")}
""")
        self.environment = {
            **os.environ, "PATH": PATHS, "KRB5_CONFIG": self.path("krb5.conf"),
            "KRB5_KDC_PROFILE": self.path("kdc.conf"), "KRB5RCACHEDIR": self.folder.name,
        }
        self.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "x")
        self.process = subprocess.Popen(["krb5kdc", "-n"], env=self.environment,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        end = time.monotonic() + 30
        while True:
            try:
                socket.create_connection((address, port), 1).close()
                break
            except OSError:
                if self.process.poll() is not None or time.monotonic() > end:
                    raise RuntimeError("the KDC did not start") from None
                time.sleep(0.02)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)

    def run(self, *command):
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")

    def keytab(self, principal):
        """A new principal's keys, in a file."""
        path = self.path(principal.replace("/", "-") + ".keytab")
        self.run("kadmin.local", "-q", f"addprinc -randkey {principal}")
        self.run("kadmin.local", "-q", f"ktadd -k {path} {principal}")
        return path

    def ticket(self, principal):
        """A new principal with a ticket, in a cache of its own."""
        cache = self.path(principal.replace("/", "-") + ".cache")
        self.run("kinit", "-k", "-t", self.keytab(principal), "-c", cache, principal)
        return cache

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.folder.cleanup()


if __name__ == "__main__":
    folder, address = sys.argv[1:]
    kdc = Kdc(address)
    made = {"krb5.conf": kdc.path("krb5.conf"), "server.keytab": kdc.keytab("nfs/host"),
            "client.keytab": kdc.keytab("nfs/client"), "daemon.cache": kdc.ticket("daemon")}
    for name, path in made.items():
        shutil.copy(path, os.path.join(folder, name))
    with open(os.path.join(folder, "ready"), "w"):
        pass
    kdc.process.wait()
