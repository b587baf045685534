"""Samba's smbclient: files in and out, names, refusals, users."""

import os
import re
import signal
import subprocess
import time
import unittest

from weirsmb import PASSWORD, Server, SmbTest


class Files(SmbTest):
    def test_files_come_back_as_they_were(self):
        big = os.urandom(5_000_001)
        (self.server.top / "big").write_bytes(big)
        (self.server.top / "empty").write_bytes(b"")
        for protocol in ("SMB2_10", "SMB3_00", "SMB3_02", "SMB3_11"):
            with self.subTest(protocol):
                self.run_ok("put big Big.bin; put empty; get big.BIN back; get empty back0", protocol=protocol)
                self.assertEqual((self.server.top / "back").read_bytes(), big)
                self.assertEqual((self.server.top / "back0").read_bytes(), b"")
                out = self.run_ok("ls", protocol=protocol)
                self.assertRegex(out, r"Big\.bin +A +5000001 ")
                self.run_ok("del Big.bin; del empty", protocol=protocol)
                self.assertNotIn("Big.bin", self.run_ok("ls", protocol=protocol))

    def test_encrypted_files_come_back_as_they_were(self):
        big = os.urandom(3_000_001)
        (self.server.top / "big").write_bytes(big)
        for protocol in ("SMB3_00", "SMB3_02", "SMB3_11"):
            for cipher in ("aes-128-gcm", "aes-128-ccm", "aes-256-gcm", "aes-256-ccm"):
                if protocol != "SMB3_11" and cipher != "aes-128-ccm":
                    continue
                with self.subTest(protocol=protocol, cipher=cipher):
                    options = ["--client-protection=encrypt", f"--option=client smb3 encryption algorithms={cipher}"]
                    self.run_ok("put big sealed; get sealed back; del sealed", protocol=protocol, options=options)
                    self.assertEqual((self.server.top / "back").read_bytes(), big)
        for algorithm in ("aes-128-gmac", "aes-128-cmac", "hmac-sha256"):
            with self.subTest(algorithm):
                options = ["--client-protection=sign", f"--option=client smb3 signing algorithms={algorithm}"]
                self.run_ok("put big signed; get signed back; del signed", options=options)
                self.assertEqual((self.server.top / "back").read_bytes(), big)

    def test_directories_and_names(self):
        (self.server.top / "f").write_text("hello")
        self.run_ok("mkdir Tree; cd tree; put f Grüße.txt; rename Grüße.txt 🦀.txt; mkdir sub; rename 🦀.txt sub\\x")
        out = self.run_ok("cd TREE\\SUB; ls; get X got")
        self.assertRegex(out, r" x +A +5 ")
        self.assertEqual((self.server.top / "got").read_text(), "hello")
        ok, out = self.server.smbclient("rmdir Tree")
        self.assertIn("NT_STATUS_DIRECTORY_NOT_EMPTY", out)
        ok, out = self.server.smbclient("put f Tree; cd nothing; get missing; mkdir tree")
        for status in ("FILE_IS_A_DIRECTORY", "OBJECT_NAME_NOT_FOUND", "OBJECT_NAME_COLLISION"):
            self.assertIn(status, out)
        self.run_ok("cd tree; rename sub\\x Y; del y; rmdir sub; cd ..; rmdir tree")
        self.assertNotIn("ree", self.run_ok("ls"))

    def test_a_long_listing_has_every_name_once(self):
        (self.server.top / "one").write_text("1")
        names = [f"file-{n:04}" for n in range(1500)]
        self.run_ok("mkdir many; cd many; " + "; ".join(f"put one {name}" for name in names))
        listed = [line.split()[0] for line in self.run_ok("cd many; ls").splitlines() if line.startswith("  file-")]
        self.assertEqual(sorted(listed), names)
        some = self.run_ok("cd many; ls *-00?7")
        self.assertEqual(sum(line.startswith("  file-00") for line in some.splitlines()), 10)
        self.run_ok("deltree many")

    def test_attributes_times_and_space(self):
        (self.server.top / "f").write_text("hello")
        self.run_ok("put f attr; setmode attr +hr")
        self.assertRegex(self.run_ok("ls"), r" attr +A?HR? ")
        ok, out = self.server.smbclient("del attr")
        self.assertIn("NT_STATUS_CANNOT_DELETE", out)
        self.run_ok("setmode attr -hr; utimes attr -1 -1 2001:02:03-04:05:06 -1")
        self.assertRegex(self.run_ok("ls"), r" attr +A? +5 .* 2001\n")
        self.assertIn("blocks available", self.run_ok("du"))
        self.run_ok("del attr")

    def test_links_of_nfs_are_listed_and_not_followed(self):
        (self.server.top / "linked").write_bytes(b"behind the link")
        self.run_ok("mkdir linked; cd linked; lcd .; put linked file")
        for name, target in (("within", "linked"), ("outside", "../../etc"), ("absolute", "/etc")):
            self.server.symlink(name, target)
            out = self.run_ok("ls")
            # r: FILE_ATTRIBUTE_REPARSE_POINT.
            self.assertRegex(out, rf" {name} +\S*r\S* +{len(target)} ")
            for path in (name, f"{name}\\file", f"{name}\\passwd"):
                ok, out = self.server.smbclient(f'get "{path}" back')
                self.assertFalse(ok)
                self.assertIn("STOPPED_ON_SYMLINK", out)
            self.run_ok(f"del {name}")
            self.assertNotIn(name, self.run_ok("ls"))
        self.run_ok("cd linked; get file back")
        self.assertEqual((self.server.top / "back").read_bytes(), b"behind the link")

    def test_links_are_made_by_reparse_points(self):
        (self.server.top / "behind").write_bytes(b"behind")
        self.run_ok("mkdir made; cd made; put behind file; symlink made\\file link; symlink ..\\file made\\up")
        self.assertEqual(self.server.readlink("link"), "made/file")
        self.assertEqual(self.server.readlink("made", "up"), "../file")
        self.assertRegex(self.run_ok("ls"), r" link +\S*r\S* +9 ")
        ok, out = self.server.smbclient("get link back")
        self.assertFalse(ok)
        self.assertIn("STOPPED_ON_SYMLINK", out)
        # A name that is taken is not replaced, and stays what it is.
        ok, out = self.server.smbclient("symlink other made\\file")
        self.assertIn("OBJECT_NAME_COLLISION", out)
        self.run_ok("cd made; get file back; del file; del up; cd ..; rename link moved")
        self.assertEqual(self.server.readlink("moved"), "made/file")
        self.run_ok("del moved; rmdir made")

    def test_what_was_answered_is_there_after_a_restart(self):
        server = Server()
        self.addCleanup(server.close)
        self.assertNotEqual(server.users("create", "mouse", "--uid", "0").returncode, 0, "no server was there yet")
        server.start_with_user()
        (server.top / "f").write_bytes(os.urandom(300_000))
        ok, out = server.smbclient("mkdir dir; put f gone; del gone")
        self.assertTrue(ok, out)
        server.stop(signal.SIGKILL)
        server.start()
        ok, out = server.smbclient("cd dir; put f kept; cd ..; ls")
        self.assertTrue(ok, out)
        self.assertNotIn("gone", out)
        server.stop(signal.SIGTERM)
        server.start()
        ok, out = server.smbclient("get dir\\kept back")
        self.assertTrue(ok, out)
        self.assertEqual((server.top / "back").read_bytes(), (server.top / "f").read_bytes())


class Encrypted(unittest.TestCase):
    def test_a_server_that_requires_encryption_takes_nothing_else(self):
        server = Server("--smb-require-encryption")
        self.addCleanup(server.close)
        server.start_with_user()
        ok, out = server.smbclient("mkdir sealed; ls")
        self.assertTrue(ok, out)
        for protocol in ("SMB3_00", "SMB3_11"):
            ok, out = server.smbclient("ls", protocol=protocol)
            self.assertTrue(ok, out)
        ok, out = server.smbclient("ls", protocol="SMB2_10")
        self.assertFalse(ok, out)
        self.assertIn("SMB client refused: it cannot encrypt", server.log())


class Unsigned(unittest.TestCase):
    def test_signatures_are_left_out_for_clients_that_want_none(self):
        server = Server("--smb-signing", "offered")
        self.addCleanup(server.close)
        server.start_with_user()
        (server.top / "f").write_bytes(bytes(range(256)) * 4000)
        for n, protection in enumerate(("off", "sign", "encrypt")):
            # At this level it says what it signs.
            options = [f"--client-protection={protection}", "-d", "5"]
            for protocol in ("SMB3_11", "SMB3_00"):
                ok, out = server.smbclient(f"put f f{n}; get f{n} back; ls", options=options, protocol=protocol)
                self.assertTrue(ok, out)
                self.assertEqual((server.top / "back").read_bytes(), (server.top / "f").read_bytes())
                signed = out.count("signed SMB2 message")
                # Where a session or a tree begins, a signature proves what was negotiated.
                if protection == "off":
                    self.assertLessEqual(signed, 2, protocol)
                elif protection == "sign":
                    self.assertGreater(signed, 5, protocol)


class Users(SmbTest):
    def test_shares_are_listed(self):
        out = self.run_ok("help", share="IPC$", options=["-L", "127.0.0.1"])
        self.assertRegex(out, r"vol1 +Disk")
        self.assertRegex(out, r"IPC\$ +IPC")

    def test_identifiers_have_names_and_names_identifiers(self):
        made = self.server.users("create", "Wanda", "--uid", "4321")
        self.assertEqual(made.returncode, 0, made.stderr)
        out = self.server.rpcclient("lookupsids S-1-22-1-4321 S-1-22-1-77 S-1-22-2-77 S-1-1-0 S-1-5-21-1-2-3-500")
        for line in (r"S-1-22-1-4321 Unix User\\Wanda \(1\)", r"S-1-22-1-77 Unix User\\77 \(1\)", r"S-1-22-2-77 Unix Group\\77 \(4\)",
                     r"S-1-1-0 \\?Everyone \(5\)", r"S-1-5-21-1-2-3-500 \*unknown\*\\\*unknown\* \(8\)"):
            self.assertRegex(out, line)
        self.assertRegex(self.server.rpcclient("lookupnames wanda"), r"wanda S-1-22-1-4321 \(User: 1\)")
        # The machine's own users and groups have the names that they have there.
        gid = subprocess.check_output(["id", "-g", "daemon"], text=True).strip()
        name = subprocess.check_output(["id", "-gn", "daemon"], text=True).strip()
        self.assertRegex(self.server.rpcclient(f"lookupsids S-1-22-2-{gid}"), rf"S-1-22-2-{gid} Unix Group\\{name} \(4\)")
        self.assertRegex(self.server.rpcclient(f"lookupnames 'Unix Group\\{name}'"), rf" S-1-22-2-{gid} ")
        self.assertEqual(self.server.users("delete", "wanda").returncode, 0)

    def test_accounts_are_listed_and_found(self):
        for name, uid in (("Wanda", 4321), ("Anton", 77)):
            made = self.server.users("create", name, "--uid", str(uid))
            self.assertEqual(made.returncode, 0, made.stderr)
            self.addCleanup(self.server.users, "delete", name)
        domain = re.search(r"name:\[(?!Builtin)([^]]+)\]", self.server.rpcclient("enumdomains"))[1]
        for command, lines in {
            "enumdomains": (rf"name:\[{domain}\]", r"name:\[Builtin\]"),
            f"lookupdomain {domain}": (rf"Domain Name: {domain} Domain SID: S-1-22-1",),
            "enumdomusers": (r"user:\[mouse\] rid:\[0x0\]", r"user:\[Anton\] rid:\[0x4d\]", r"user:\[Wanda\] rid:\[0x10e1\]"),
            "enumdomgroups": (r"group:\[None\] rid:\[0x201\]",),
            "enumalsgroups builtin": (r"group:\[Users\] rid:\[0x221\]",),
            "enumalsgroups domain": (r"^$",),
            "queryuser 4321": (r"User Name *:\s*Wanda", r"user_rid *:\s*0x10e1", r"group_rid *:\s*0x201", r"acb_info *:\s*0x00000210"),
            "queryusergroups 4321": (r"group rid:\[0x201\] attr:\[0x7\]",),
            "queryuseraliases builtin S-1-22-1-4321": (r"group rid:\[0x221\]",),
            "querygroup 0x201": (r"Group Name:\s*None", r"Num Members:\s*3"),
            "querygroupmem 0x201": (r"rid:\[0x10e1\] attr:\[0x7\]",),
            "queryaliasmem builtin 0x221": (r"sid:\[S-1-5-11\]",),
            "samlookupnames domain wanda": (r"name wanda: 0x10e1 \(1\)",),
            "samlookupnames builtin users": (r"name users: 0x221 \(4\)",),
            "samlookuprids domain 4321 513": (r"rid 0x10e1: Wanda \(1\)", r"rid 0x201: None \(2\)"),
            "querydominfo": (rf"Domain:\s*{domain}", r"Total Users:\s*3", r"Total Groups:\s*1"),
            "querydispinfo": (r"RID: 0x10e1 acb: 0x00000210 Account: Wanda",),
            "querydispinfo2": (r"RID: 0x4d acb: 0x00000210 Account: Anton",),
            "querydispinfo3": (r"RID: 0x0 acb: 0x00000210 Account: mouse",),
            "getdompwinfo": (r"min_password_length: 0",),
            "getusrdompwinfo 4321": (r"min_password_length *: 0x0000",),
            "samquerysecobj 4321": (r"S-1-1-0",),
            "lsaquery": (r"Domain Name: WORKGROUP",),
        }.items():
            out = self.server.rpcclient(command)
            for line in lines:
                self.assertRegex(out, line, command)
            self.assertNotIn("NT_STATUS_", out, command)
        self.assertIn("SOME_UNMAPPED", self.server.rpcclient("samlookupnames domain wanda nobody"))
        for level in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13):
            self.assertNotIn("NT_STATUS_", self.server.rpcclient(f"querydominfo {level}"))
        for level in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 16, 17, 20, 21):
            self.assertNotIn("NT_STATUS_", self.server.rpcclient(f"queryuser 4321 {level}"))
        for command in ("createdomuser eve", "createdomgroup eve", "createdomalias eve", "deletedomuser Wanda", "setuserinfo2 Wanda 24 x",
                        "chgpasswd3 Wanda old new"):
            self.assertRegex(self.server.rpcclient(command), "NT_STATUS_ACCESS_DENIED", command)

    def test_the_machine_says_what_it_is(self):
        for level in (100, 101):
            out = self.server.rpcclient(f"wkssvc_wkstagetinfo {level}")
            self.assertNotRegex(out, "NT_STATUS_|WERR_", level)
        self.assertRegex(self.server.rpcclient("wkssvc_wkstagetinfo 102"), "WERR_ACCESS_DENIED")
        self.assertRegex(self.server.rpcclient("wkssvc_enumerateusers"), "^result was ")

    def test_signing_is_not_an_option(self):
        self.run_ok("ls", options=["--client-protection=sign"])
        self.run_ok("ls", options=["--client-protection=off"])

    def test_nobody_else_gets_in(self):
        for user, password in (("mouse", "wrong"), ("nobody", PASSWORD), ("", "")):
            begun = time.monotonic()
            ok, out = self.server.smbclient("ls", user=user, password=password)
            self.assertFalse(ok, out)
            self.assertRegex(out, "NT_STATUS_(LOGON_FAILURE|ACCESS_DENIED)")
            if user:
                self.assertGreater(time.monotonic() - begun, 1.9, "a wrong password costs time")
        self.assertIn("SMB logon refused", self.server.log())
        ok, out = self.server.smbclient("ls", options=["-N"], user="guest")
        self.assertFalse(ok, out)
        ok, out = self.server.smbclient("ls", share="nothing")
        self.assertIn("NT_STATUS_BAD_NETWORK_NAME", out)
        ok, out = self.server.smbclient("ls", protocol="NT1")
        self.assertFalse(ok, out)

    def test_users_come_and_go_while_it_runs(self):
        made = self.server.users("create", "Ratte", "--uid", "1234", password="käse")
        self.assertEqual((made.returncode, made.stdout.strip()),
                         (0, "Ratte (uid 1234, gid 1234) may log on over SMB"))
        self.run_ok("ls", user="ratte", password="käse")
        # The volume's root is root's.
        (self.server.top / "f").write_text("hello")
        ok, out = self.server.smbclient("put f no", user="ratte", password="käse")
        self.assertIn("NT_STATUS_ACCESS_DENIED", out)
        self.assertIn("Ratte", self.server.users("list").stdout)
        self.assertNotEqual(self.server.users("create", "ratte", "--uid", "1").returncode, 0)
        self.assertEqual(self.server.users("delete", "ratte").returncode, 0)
        ok, out = self.server.smbclient("ls", user="ratte", password="käse")
        self.assertIn("NT_STATUS_LOGON_FAILURE", out)
        self.assertNotEqual(self.server.users("create", "no-such-user-here").returncode, 0)
        for file in self.server.data.iterdir():
            self.assertEqual(file.stat().st_mode & 0o077, 0, file)
