"""Users who log on by tickets of Kerberos, with a realm of the tests' own (MIT krb5's KDC)."""

import os
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

from weirsmb import InRealm, Server

sys.path.insert(0, str(Path(__file__).parent.parent / "krb5"))
from kdc import PATHS, Kdc  # noqa: E402

MISSING = [name for name in ("kinit", "krb5kdc", "kadmin.local") if not shutil.which(name, path=PATHS)]


@unittest.skipIf(MISSING, f"no {' '.join(MISSING)} here (Debian: krb5-user, krb5-kdc, krb5-admin-server)")
class Kerberos(InRealm):
    @classmethod
    def setUpClass(cls):
        cls.kdc = cls.enter(Kdc())
        # A user that every machine has, and one that none has.
        cls.daemon = cls.kdc.ticket("daemon")
        cls.stranger = cls.kdc.ticket("nobody-knows-me")
        cls.server = Server("--krb5-keytab", cls.kdc.keytab("cifs/server"))
        cls.addClassCleanup(cls.server.close)
        cls.server.start_with_user()
        cls.server.open_root()
        port = cls.server.nfs_port()
        cls.nfs = f"nfs://127.0.0.1/vol1?version=3&nfsport={port}&mountport={port}"

    def client(self, commands, cache, server=None, options=(), **more):
        return (server or self.server).with_ticket(commands, cache, "server", options=["-I", "127.0.0.1", *options], **more)

    def test_a_ticket_is_enough_in_every_dialect_and_cipher(self):
        big = os.urandom(1_000_001)
        (self.server.top / "big").write_bytes(big)
        kinds = [(protocol, "sign", None) for protocol in ("SMB2_10", "SMB3_00", "SMB3_02", "SMB3_11")]
        kinds += [("SMB3_00", "encrypt", "aes-128-ccm")]
        kinds += [("SMB3_11", "encrypt", c) for c in ("aes-128-gcm", "aes-128-ccm", "aes-256-gcm", "aes-256-ccm")]
        for protocol, protection, cipher in kinds:
            with self.subTest(protocol=protocol, protection=protection, cipher=cipher):
                options = [f"--client-protection={protection}"]
                if cipher:
                    options.append(f"--option=client smb3 encryption algorithms={cipher}")
                ok, out = self.client("put big file; get file back; del file", self.daemon, options=options, protocol=protocol)
                self.assertTrue(ok, out + self.server.log()[-2000:])
                self.assertEqual((self.server.top / "back").read_bytes(), big)

    def test_files_are_the_user_s(self):
        (self.server.top / "f").write_text("hello")
        ok, out = self.client("put f mine; ls mine", self.daemon)
        self.assertTrue(ok, out)
        listed = subprocess.run(["nfs-ls", self.nfs], capture_output=True, text=True, timeout=60).stdout
        line = next(line for line in listed.splitlines() if line.endswith(" mine"))
        own = [int(subprocess.check_output(["id", which, "daemon"])) for which in ("-u", "-g")]
        self.assertEqual([int(field) for field in line.split()[2:4]], own)

    def test_who_is_no_user_here_is_refused(self):
        ok, out = self.client("ls", self.stranger)
        self.assertFalse(ok, out)
        self.assertIn("NT_STATUS_LOGON_FAILURE", out)
        for what in ("SMB logon refused: no user of this machine", "nobody-knows-me@WEIR.TEST"):
            self.assertIn(what, self.server.log())

    def test_passwords_go_on_being_taken(self):
        ok, out = self.server.smbclient("ls")
        self.assertTrue(ok, out)

    def test_it_is_offered_only_with_a_key_of_this_service(self):
        server = Server("--krb5-keytab", self.kdc.keytab("nfs/server"))
        self.addCleanup(server.close)
        server.start_with_user()
        ok, out = self.client("ls", self.daemon, server)
        self.assertFalse(ok, out)
        ok, out = server.smbclient("ls")
        self.assertTrue(ok, out)
