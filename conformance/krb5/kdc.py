"""A realm of its own: a key distribution centre on loopback, keytabs, tickets."""

import os
import socket
import subprocess
import tempfile
import time

REALM = "WEIR.TEST"
PATHS = os.environ.get("PATH", "") + ":/usr/sbin:/sbin"


class Kdc:
    """MIT krb5's KDC in a temporary folder."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-kdc-")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.write("krb5.conf", f"""
[libdefaults]
 default_realm = {REALM}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 dns_canonicalize_hostname = false
 default_rcache_name = dfl:
[realms]
 {REALM} = {{
  kdc = 127.0.0.1:{port}
 }}
""")
        self.write("kdc.conf", f"""
[kdcdefaults]
 kdc_listen = 127.0.0.1:{port}
 kdc_tcp_listen = 127.0.0.1:{port}
[realms]
 {REALM} = {{
  database_name = {self.path("principal")}
  key_stash_file = {self.path("stash")}
  acl_file = {self.path("acl")}
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
                socket.create_connection(("127.0.0.1", port), 1).close()
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
