"""A server that joins a domain by a user's password: from the command line, and through the API."""

import json
import os
import re
import stat
import subprocess
import sys
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from dc import PASSWORD as DOMAIN_PASSWORD
from dc import Dc

sys.path[:0] = [str(Path(__file__).parent.parent / "smb"), str(Path(__file__).parent.parent / "api")]
from terraform import Terraform, missing  # noqa: E402
from weirsmb import PASSWORD, WEIR, InRealm, Server  # noqa: E402

PLACE = "projects/weir/locations/local"
CONTROLLER = "dc.weir.test"


class Join(InRealm):
    @classmethod
    def setUpClass(cls):
        cls.dc = cls.enter(Dc())
        cls.dc.user("alice")
        cls.dc.tool("ou", "create", "OU=Storage")
        cls.ticket = cls.dc.ticket("alice")

    def setUp(self):
        self.server = Server("--smb", "127.0.0.1:445", "--api", "127.0.0.1:0")
        self.addCleanup(self.server.close)
        self.server.start_with_user()
        self.server.open_root()

    def ad(self, *words, password=DOMAIN_PASSWORD, fails=False, environment=None):
        done = subprocess.run([WEIR, "ad", *words, "--data", self.server.data], input=password + "\n", text=True, capture_output=True,
                              timeout=240, env=environment)
        self.assertEqual(done.returncode != 0, fails, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def join(self, **more):
        return self.ad("join", "weir.test", "--user", "Administrator", "--domain-controller", CONTROLLER, "--computer-name", "files",
                       "--host-fqdn", "weir.weir.test", **more)

    def logs_on(self, host="weir.weir.test"):
        """Whether alice may, with her ticket."""
        return self.server.with_ticket("ls", self.ticket, host)[0]

    def ask(self, method, path, body=None):
        request = urllib.request.Request(f"{self.server.api}/v1/{path}", method=method, data=body and json.dumps(body).encode(),
                                         headers={"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=240) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error)

    def ended(self, operation):
        """An operation at its end."""
        for _ in range(200):
            if operation.get("done"):
                return operation
            operation = self.ask("GET", operation["name"])
        raise AssertionError(operation)

    def test_a_running_server_joins_and_leaves(self):
        self.assertIn("a member of no domain", self.ad("show"))
        self.assertFalse(self.logs_on())
        out = self.join()
        self.assertIn("joined weir.test; users log on with tickets of WEIR.TEST", out)
        self.assertTrue(self.logs_on(), self.server.log()[-2000:])
        shown = self.ad("show")
        for line in (r"domain +weir\.test", r"realm +WEIR\.TEST", r"computer +FILES", r"host +weir\.weir\.test"):
            self.assertRegex(shown, line)
        self.assertIn("weir.test knows the keys of FILES", self.ad("testjoin"))
        names = self.dc.computer("FILES")["servicePrincipalName"]
        for service in ("cifs", "nfs", "host"):
            self.assertIn(f"{service}/weir.weir.test", names)
        for file in ("ad-keytab", "ad-domain"):
            self.assertEqual(stat.S_IMODE((self.server.data / file).stat().st_mode), 0o600)
        # It is a member after its next start, and tickets of before are good after it has another password.
        self.server.stop()
        self.server.start()
        self.assertTrue(self.logs_on())
        self.join()
        self.assertTrue(self.logs_on(), self.server.log()[-2000:])
        out = self.ad("leave", "--user", "Administrator")
        self.assertIn("its account is deleted; tickets are not accepted any more", out)
        self.assertIsNone(self.dc.computer("FILES"))
        self.assertFalse(self.logs_on())
        ok, out = self.server.smbclient("ls", password=PASSWORD)
        self.assertTrue(ok, out)
        self.assertIn("a member of no domain", self.ad("testjoin", fails=True))

    def test_what_goes_wrong_is_said_and_changes_nothing(self):
        out = self.join(password="wrong", fails=True)
        self.assertIn("name or password are not right", out)
        out = self.ad("join", "nowhere.test", "--user", "Administrator", fails=True)
        self.assertIn("nowhere.test", out)
        self.assertIn("no name of a computer account",
                      self.ad("join", "weir.test", "--user", "Administrator", "--computer-name", "longer-than-fifteen", fails=True))
        without = {**os.environ, "PATH": "/nonexistent"}
        self.assertIn("install it", self.join(fails=True, environment=without))
        self.assertFalse((self.server.data / "ad-keytab").exists())
        self.assertIn("a member of no domain", self.ad("show"))
        # The passwords are nowhere on the server.
        for file in self.server.data.rglob("*"):
            if file.is_file() and file.stat().st_size < 64 << 20:
                self.assertNotIn(DOMAIN_PASSWORD.encode(), file.read_bytes(), file)

    def test_leaving_without_a_user_leaves_the_account(self):
        self.join()
        self.assertIn("FILES stays in the domain", self.ad("leave"))
        self.assertFalse(self.logs_on())
        self.assertIsNotNone(self.dc.computer("FILES"))
        # Joining again takes the account over. Tickets of before are of keys that the server has not kept.
        self.join()
        type(self).ticket = self.dc.ticket("alice")
        self.assertTrue(self.logs_on(), self.server.log()[-2000:])
        self.ad("leave", "--user", "Administrator")

    def test_terraform_s_requests_join(self):
        """google_netapp_active_directory: create, a clean second plan, changes in place, destroy."""
        directories = f"{PLACE}/activeDirectories"
        wanted = {"domain": "weir.test", "netBiosPrefix": "TF", "dns": "127.0.0.1", "username": "Administrator", "aesEncryption": False,
                  "kdcHostname": CONTROLLER, "kdcIp": "127.0.0.1", "ldapSigning": False, "description": "tf",
                  "labels": {"goog-terraform-provisioned": "true"}}
        made = self.ended(self.ask("POST", f"{directories}?activeDirectoryId=tf", {**wanted, "password": DOMAIN_PASSWORD}))
        self.assertNotIn("error", made)
        got = self.ask("GET", f"{directories}/tf")
        self.assertEqual({name: got[name] for name in wanted}, wanted)
        # Output of the server alone.
        self.assertEqual(set(got) - set(wanted), {"name", "state", "createTime"})
        # The body has all that can change, the mask what has changed.
        changed = {**wanted, "description": "tf2", "password": DOMAIN_PASSWORD}
        self.assertNotIn("error", self.ended(self.ask("PATCH", f"{directories}/tf?updateMask=description", changed)))
        self.assertEqual(self.ask("GET", f"{directories}/tf")["description"], "tf2")
        self.assertNotIn("error", self.ended(self.ask("DELETE", f"{directories}/tf")))
        self.assertEqual(self.ask("GET", f"{directories}/tf")["error"]["code"], 404)

    @unittest.skipIf(missing("google"), missing("google"))
    def test_terraform_joins(self):
        """The provider itself: a domain, a pool in it, and volumes of both worlds."""
        # The provider asks for the user's address, and asks again for minutes where a name service does not answer.
        with open("/etc/hosts", "a") as hosts:
            hosts.write("127.0.0.1 openidconnect.googleapis.com\n")
        place = {"project": "weir", "location": "local"}
        terraform = Terraform(self, "hashicorp/google", {
            "project": "weir", "access_token": "any-text-at-all", "netapp_custom_endpoint": self.server.api + "/v1/"})
        directory = {**place, "name": "tf", "domain": "weir.test", "net_bios_prefix": "TF", "dns": "127.0.0.1",
                     "username": "Administrator", "password": DOMAIN_PASSWORD, "kdc_hostname": CONTROLLER, "kdc_ip": "127.0.0.1"}
        pool = {**place, "name": "tfpool", "service_level": "PREMIUM", "capacity_gib": "2048",
                "network": "projects/weir/global/networks/default",
                "active_directory": "${google_netapp_active_directory.domain.id}"}
        volume = {**place, "storage_pool": "${google_netapp_storage_pool.pool.name}", "capacity_gib": "100", "deletion_policy": "FORCE"}
        share = {**volume, "name": "tfshare", "share_name": "tfshare", "protocols": ["SMB"],
                 "smb_settings": ["ENCRYPT_DATA", "ACCESS_BASED_ENUMERATION"]}
        both = {**volume, "name": "tfboth", "share_name": "tfboth", "protocols": ["NFSV4", "SMB"], "security_style": "UNIX",
                "unix_permissions": "0777"}
        resources = {"google_netapp_active_directory": {"domain": directory}, "google_netapp_storage_pool": {"pool": pool},
                     "google_netapp_volume": {"share": share, "both": both}}
        terraform.apply(resources)
        got = self.ask("GET", f"{PLACE}/volumes/tfboth")
        self.assertEqual((got["protocols"], got["securityStyle"]), (["NFSV4", "SMB"], "UNIX"))
        self.assertEqual(got["activeDirectory"], f"{PLACE}/activeDirectories/tf")
        directory["description"] = "ours"
        share["smb_settings"] = ["ENCRYPT_DATA", "NON_BROWSABLE"]
        both["unix_permissions"] = "0770"
        terraform.apply(resources)
        self.assertEqual(self.ask("GET", f"{PLACE}/activeDirectories/tf")["state"], "READY")
        terraform.destroy()
        self.assertEqual(self.ask("GET", f"{PLACE}/activeDirectories"), {})

    def directories(self, *words, password="", fails=False):
        """What `weir active-directories` prints."""
        done = subprocess.run([WEIR, "active-directories", *words, "--quiet", "--server", self.server.api], input=password + "\n", text=True,
                              capture_output=True, timeout=240)
        self.assertEqual(done.returncode != 0, fails, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_the_api_joins(self):
        directories = f"{PLACE}/activeDirectories"
        failed = self.directories("create", "ad", "--domain=weir.test", "--net-bios-prefix=nas", "--dns=127.0.0.1", "--username=Administrator",
                                  f"--kdc-hostname={CONTROLLER}", "--organizational-unit=OU=Storage,DC=weir,DC=test", password="wrong", fails=True)
        self.assertIn("password are not right", failed)
        self.assertRegex(self.directories("list"), r"(?m)^ad +local +weir\.test +nas +Administrator +ERROR$")
        file = self.server.top / "password"
        file.write_text(DOMAIN_PASSWORD + "\n")
        self.directories("update", "ad", f"--password-file={file}")
        file.unlink()
        shown = self.directories("describe", "ad")
        self.assertIn("state: READY", shown)
        self.assertNotIn("password", shown)
        account = re.search(r"^account +CN=(NAS-[0-9A-F]{4}),OU=Storage,DC=weir,DC=test$", self.ad("show"), re.M)
        self.assertTrue(account, self.ad("show"))
        # The name that the account has is one of the server's, too.
        self.assertIn(f"cifs/{account[1].lower()}.weir.test", [n.lower() for n in self.dc.computer(account[1])["servicePrincipalName"]])
        pool = self.ask("PATCH", f"{PLACE}/storagePools/default?updateMask=activeDirectory", {"activeDirectory": f"{directories}/ad"})
        self.assertNotIn("error", self.ended(pool))
        volume = {"storagePool": "default", "shareName": "s", "capacityGib": "1", "protocols": ["SMB"], "unixPermissions": "0777"}
        made = self.ended(self.ask("POST", f"{PLACE}/volumes?volumeId=s", volume))
        self.assertEqual(made["response"]["activeDirectory"], f"{directories}/ad")
        with open("/etc/hosts", "a") as hosts:
            hosts.write(f"127.0.0.1 {account[1].lower()}.weir.test\n")
        self.assertTrue(self.logs_on(f"{account[1].lower()}.weir.test"), self.server.log()[-2000:])
        self.server.stop()
        self.server.start()
        self.assertTrue(self.logs_on(f"{account[1].lower()}.weir.test"))
        self.assertEqual(self.ask("GET", f"{directories}/ad")["state"], "READY")
        self.assertIn("storage pool default", self.directories("delete", "ad", fails=True))
        self.ended(self.ask("DELETE", f"{PLACE}/volumes/s"))
        self.ended(self.ask("PATCH", f"{PLACE}/storagePools/default?updateMask=activeDirectory", {"activeDirectory": ""}))
        self.directories("delete", "ad")
        self.assertIn("a member of no domain", self.ad("show"))
        self.assertFalse(self.logs_on(f"{account[1].lower()}.weir.test"))
        self.assertNotIn(DOMAIN_PASSWORD, self.server.log())
        ok, out = self.server.smbclient("ls", password=PASSWORD)
        self.assertTrue(ok, out)
