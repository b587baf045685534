"""A domain of its own: Samba's domain controller, users, groups, keytabs, tickets. For the namespaces of conformance/ad/run."""

import os
import subprocess
import tempfile
import time

REALM, DOMAIN = "WEIR.TEST", "WEIR"
PASSWORD = "Correct-horse-1"
# What samba-tool does a thousand times in a minute, done in one process.
GROUPS = """
import sys
from samba.auth import system_session
from samba.param import LoadParm
from samba.samdb import SamDB
lp = LoadParm(); lp.load(sys.argv[1])
db = SamDB(session_info=system_session(), lp=lp)
user, count = sys.argv[2], int(sys.argv[3])
db.transaction_start()
for n in range(count):
    db.newgroup(f"many-{n}")
db.transaction_commit()
db.transaction_start()
for n in range(count):
    db.add_remove_group_members(f"many-{n}", [user])
db.transaction_commit()
"""


class Dc:
    """A domain controller in a temporary folder, on the addresses of the loopback; without SMB, whose port is the server's."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="weir-dc-")
        self.config = self.path("etc/smb.conf")
        self.run("samba-tool", "domain", "provision", f"--targetdir={self.folder.name}", f"--realm={REALM}", f"--domain={DOMAIN}",
                 "--server-role=dc", "--host-name=dc", "--host-ip=127.0.0.1", "--dns-backend=SAMBA_INTERNAL", "--use-rfc2307",
                 f"--adminpass={PASSWORD}", f"--option=posix:eadb={self.path('eadb.tdb')}", "--option=interfaces=lo",
                 "--option=bind interfaces only=yes", f"--option=log file={self.path('log')}")
        self.krb5("krb5.conf")
        self.environment = {**os.environ, "KRB5_CONFIG": self.path("krb5.conf"), "KRB5RCACHEDIR": self.folder.name}
        with open(self.path("out"), "wb") as out:
            self.process = subprocess.Popen(["samba", "-F", "--no-process-group", "-M", "single", "-s", self.config,
                                             "--option=server services=-s3fs,-dns,-dnsupdate"], env=self.environment,
                                            stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        end = time.monotonic() + 60
        while True:
            try:
                self.ticket("Administrator")
                break
            except RuntimeError:
                if self.process.poll() is not None or time.monotonic() > end:
                    self.close()
                    raise
                time.sleep(0.1)

        # What the service for dynamic DNS would have registered; LDAP's clients ask for it.
        self.tool("spn", "add", "ldap/dc.weir.test", "dc$")

    def krb5(self, name, more=""):
        """Writes a krb5.conf; its path."""
        with open(self.path(name), "w") as file:
            file.write(f"""
[libdefaults]
 {more}
 default_realm = {REALM}
 dns_lookup_kdc = false
 dns_lookup_realm = false
 rdns = false
 dns_canonicalize_hostname = false
[realms]
 {REALM} = {{
  kdc = 127.0.0.1
 }}
[domain_realm]
 .weir.test = {REALM}
""")
        return self.path(name)

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def run(self, *command, input=None):
        environment = getattr(self, "environment", None)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, input=input, timeout=300)
        if done.returncode != 0:
            raise RuntimeError(f"{command}: {done.stdout}{done.stderr}")
        return done.stdout

    def tool(self, *command):
        return self.run("samba-tool", *command, "-s", self.config)

    def user(self, name, *groups):
        self.tool("user", "create", name, PASSWORD)
        for group in groups:
            self.tool("group", "addmembers", group, name)

    def many_groups(self, user, count):
        self.run("/usr/bin/python3", "-c", GROUPS, self.config, user, str(count))

    def sid(self, name):
        """The identifier of a user or group."""
        for kind in ("user", "group"):
            try:
                out = self.tool(kind, "show", name)
            except RuntimeError:
                continue
            return next(line.split()[1] for line in out.splitlines() if line.startswith("objectSid:"))
        raise KeyError(name)

    def keytab(self, machine, *services):
        """The keys of a new machine, which has these services."""
        self.tool("computer", "create", machine)
        self.tool("user", "setpassword", f"{machine}$", f"--newpassword={PASSWORD}")
        for service in services:
            self.tool("spn", "add", service, f"{machine}$")
        path = self.path(f"{machine}.keytab")
        self.tool("domain", "exportkeytab", path, f"--principal={machine}$")
        return path

    def computer(self, name):
        """What the directory has of a computer, by attribute; None: there is none."""
        if f"{name}$" not in self.tool("computer", "list").split():
            return None
        found = {}
        for line in self.tool("computer", "show", name).splitlines():
            attribute, _, value = line.partition(": ")
            found.setdefault(attribute, []).append(value)
        return found

    def ticket(self, user):
        """A cache with a user's ticket."""
        cache = self.path(f"{user}.cache")
        self.run("kinit", "-c", cache, f"{user}@{REALM}", input=PASSWORD + "\n")
        return cache

    def close(self):
        self.process.terminate()
        self.process.wait(60)
        self.folder.cleanup()
