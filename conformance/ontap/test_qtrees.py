"""Qtrees: made, limited, renamed and deleted through ONTAP's REST interface and command line, felt over NFS."""

import re
import signal
import struct
import subprocess
import time

from node import SVM, Case
from nfs3 import NFS, Nfs, opaque
from weirtest import WEIR

MIB, BLOCK = 1 << 20, 4096
ACCES, XDEV, ROFS, DQUOT = 13, 18, 30, 69


class Qtrees(Case):
    arguments = ("--export-options", "rw,no_root_squash")

    def mount(self, path, uid=0):
        port = int(re.findall(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[-1])
        nfs = Nfs(port, path, uid, 100)
        self.addCleanup(nfs.close)
        return nfs

    def change(self, method, path, body=None):
        code, answer = self.server.ask(method, "/api/" + path, body)
        self.assertEqual(code, 202, (path, answer))
        job = self.server.ask("GET", f"/api/cluster/jobs/{answer['job']['uuid']}")[1]
        self.assertEqual(job["state"], "success", job)

    def records(self, path):
        code, answer = self.server.ask("GET", "/api/" + path)
        self.assertEqual(code, 200, answer)
        return answer["records"]

    def write(self, nfs, file, at, count):
        """The status of writing blocks, FILE_SYNC."""
        data = b"q" * BLOCK * count
        return nfs.ask(NFS, 3, 7, opaque(file) + struct.pack(">QII", at * BLOCK, len(data), 2) + opaque(data))[0]

    def fill(self, nfs, file, mib):
        for at in range(0, mib * MIB // BLOCK, 64):
            self.assertEqual(self.write(nfs, file, at, 64), 0, at)

    def space(self, nfs):
        """The total and the free bytes that FSSTAT tells."""
        result = nfs.call(NFS, 18, opaque(nfs.root))
        return struct.unpack_from(">QQ", result, 4 + 84)

    def test_a_qtree_from_beginning_to_end(self):
        of = {"svm": {"name": SVM}, "volume": {"name": "vol_test"}}
        self.change("POST", "storage/qtrees", {**of, "name": "pvc", "unix_permissions": 777, "security_style": "unix",
                                               "export_policy": {"name": "default"}})
        one, = self.records("storage/qtrees?volume.name=vol_test&name=pvc&fields=*")
        self.assertEqual((one["unix_permissions"], one["nas"]["path"]), (777, "/vol_test/pvc"))
        here = f"storage/qtrees/{one['volume']['uuid']}/{one['id']}"
        self.change("POST", "storage/quota/rules", {**of, "type": "tree", "qtree": {"name": "pvc"},
                                                    "space": {"hard_limit": 4 * MIB}})
        self.change("POST", "storage/quota/rules", {**of, "type": "tree", "qtree": {"name": ""},
                                                    "files": {"hard_limit": 100}})
        root, user = self.mount("/vol_test/pvc"), self.mount("/vol_test/pvc", 7)
        file = root.put(b"file", b"")
        self.fill(root, file, 3)
        self.assertEqual(self.space(user), (4 * MIB, MIB))
        self.assertGreater(self.space(self.mount("/vol_test"))[0], 1 << 30)
        below = root.mkdir(b"below")
        other = root.put(b"other", b"", of=below, mode=0o666)
        self.fill(user, other, 1)
        # Everyone is held, root as well.
        self.assertEqual((self.write(user, other, 256, 1), self.write(root, other, 256, 1)), (DQUOT, DQUOT))
        top = self.mount("/vol_test")
        self.fill(top, top.put(b"outside", b""), 6)
        renamed = [opaque(of) + opaque(name) for of, name in ((root.root, b"file"), (top.root, b"file"))]
        self.assertEqual(top.ask(NFS, 3, 14, b"".join(renamed))[0], XDEV)
        self.assertEqual(top.ask(NFS, 3, 15, opaque(file) + opaque(top.root) + opaque(b"link"))[0], XDEV)
        self.crash()
        report, = self.records("storage/quota/reports?type=tree&qtree.name=pvc&fields=*")
        self.assertEqual((report["space"]["used"]["total"], report["files"]["used"]["total"]), (4 * MIB, 4))
        self.assertEqual(report["space"]["used"]["hard_limit_percent"], 100)
        root = self.mount("/vol_test/pvc")
        self.assertEqual(self.write(root, root.lookup(b"file"), 768, 1), DQUOT)
        # Enlarged online, and renamed as a folder; the rule stays with it.
        rule, = self.records("storage/quota/rules?qtree.name=pvc&type=tree")
        self.change("PATCH", f"storage/quota/rules/{rule['uuid']}", {"space": {"hard_limit": 8 * MIB}})
        self.assertEqual(self.write(root, root.lookup(b"file"), 768, 1), 0)
        self.change("PATCH", here, {"name": "deleted"})
        self.assertEqual(self.mount("/vol_test/deleted").stat(root.root)[0] & 0o777, 0o777)
        self.says("volume quota policy rule show -type tree -fields disk-limit,file-limit", f"""\
vserver policy-name volume   type target qtree disk-limit file-limit
------- ----------- -------- ---- ------ ----- ---------- ----------
{SVM}     default     vol_test tree              -          100
{SVM}     default     vol_test tree deleted
                                               8MB        -
2 entries were displayed.
""")
        # A copy has the qtrees of its source, and counts them by itself.
        self.create_volume("copy", "DP")
        for line in (f"snapmirror create -source-path {SVM}:vol_test -destination-path {SVM}:copy -policy MirrorLatest",
                     f"snapmirror initialize -destination-path {SVM}:copy"):
            self.assertEqual(self.line(line)[0], 0, line)
        self.settled(f"{SVM}:copy", state="Snapmirrored")
        copied, = self.records("storage/qtrees?volume.name=copy&name=deleted")
        self.assertEqual(copied["id"], one["id"])
        self.assertEqual(self.line(f"snapmirror delete -destination-path {SVM}:copy")[0], 0)
        self.rebuild()
        kept = self.records("storage/quota/rules?qtree.name=deleted&type=tree&fields=*")
        self.assertEqual([rule["space"] for rule in kept], [{"hard_limit": 8 * MIB}])
        # Deleted with all that is in it, and with its rule.
        self.change("DELETE", here)
        self.assertEqual([q["id"] for q in self.records("storage/qtrees?volume.name=vol_test")], [0])
        self.assertEqual(self.records("storage/quota/rules?qtree.name=deleted&type=tree"), [])
        self.assertEqual(self.server.ask("GET", "/api/" + here)[0], 404)
        self.server.stop()
        checked = subprocess.run([WEIR, "check", self.server.data], capture_output=True, text=True, timeout=120)
        self.assertEqual(checked.returncode, 0, checked.stdout + checked.stderr)
        self.server.start()

    def crash(self):
        """Kills the server, starts it again, and waits until it has read what is used."""
        self.server.stop(signal.SIGKILL)
        self.server.start()
        end = time.monotonic() + 60
        while self.records("storage/volumes?name=vol_test&fields=quota")[0]["quota"]["state"] != "on":
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)

    def rebuild(self):
        """Makes the catalog anew from what the engine has."""
        self.server.stop()
        rebuilt = subprocess.run([WEIR, "catalog", "rebuild", self.server.data], capture_output=True, text=True, timeout=120)
        self.assertEqual(rebuilt.returncode, 0, rebuilt.stdout + rebuilt.stderr)
        self.server.start()

    def test_qtrees_by_lines(self):
        at = f"-vserver {SVM} -volume vol_test -qtree"
        self.says(f"volume qtree create {at} q1", "")
        code, said = self.line(f"volume qtree create {at} q1")
        self.assertEqual(code, 1)
        self.assertIn("that name is in use", said)
        for name in ("a/b", "..", ".snapshot", "n" * 65):
            code, said = self.line(f"volume qtree create {at} {name}")
            self.assertIn("Invalid qtree name", said)
        self.says(f"volume qtree modify {at} q1 -unix-permissions 700", "")
        self.says(f"volume qtree rename {at} q1 -newname q2", "")
        self.says("volume qtree show -qtree q2 -fields unix-permissions,export-policy", f"""\
vserver volume   qtree unix-permissions export-policy
------- -------- ----- ---------------- -------------
{SVM}     vol_test q2    ---rwx------     default
""")
        self.says(f"volume qtree delete {at} q2 -force true", "")
        code, said = self.line(f"volume qtree delete {at} q2")
        self.assertEqual((code, said), (1, "\nError: There are no entries matching your query.\n"))

    def test_the_rule_that_decides_on_a_client_is_named(self):
        """As mounts of this very client meet it."""
        at = f"-vserver {SVM} -volume vol_test"
        for policy, rules in (("closed", ["10.0.0.0/8 -rorule sys -rwrule sys -ruleindex 2"]),
                              ("reads", ["127.0.0.1 -rorule sys -rwrule never -ruleindex 5"])):
            self.says(f"vserver export-policy create -vserver {SVM} -policyname {policy}", "")
            for rule in rules:
                self.says(f"vserver export-policy rule create -vserver {SVM} -policyname {policy} -clientmatch {rule}", "")
            self.says(f"volume qtree create {at} -qtree {policy} -unix-permissions 777 -export-policy {policy}", "")
        check = f"vserver export-policy check-access {at} -authentication-method sys -protocol nfs3 -client-ip"
        self.says(f"{check} 127.0.0.1 -access-type read -qtree reads", """\
                                         Policy    Policy     Rule
Path                          Policy     Owner     Owner Type Index  Access
----------------------------- ---------- --------- ---------- ------ ----------
/vol_test                     default    vol_test  volume     1      read
/vol_test/reads               reads      reads     qtree      5      read
2 entries were displayed.
""")
        reads = self.mount("/vol_test/reads")
        self.assertTrue(reads.stat(reads.root))
        for access, qtree, index in (("read-write", "reads", 5), ("read", "closed", 0)):
            checked = self.line(f"{check} 127.0.0.1 -access-type {access} -qtree {qtree}")[1]
            self.assertRegex(checked, rf"/vol_test/{qtree} +{qtree} +{qtree} +qtree +{index} +denied\n")
        with self.assertRaisesRegex(OSError, f"status {ROFS}"):
            reads.mkdir(b"none")
        closed = self.mount("/vol_test/closed")
        with self.assertRaisesRegex(OSError, f"status {ACCES}"):
            closed.stat(closed.root)
        self.assertIn(" 2      read-write\n", self.line(f"{check} 10.1.2.3 -access-type read-write -qtree closed")[1])
        asked = {"vserver": SVM, "volume": "vol_test", "client_ip": "127.0.0.1", "authentication_method": "sys", "protocol": "nfs4",
                 "access_type": "read-write"}
        code, answer = self.server.ask("POST", "/api/private/cli/vserver/export-policy/check-access?fields=access", asked)
        self.assertEqual((code, answer["records"]), (200, [{"path": "/vol_test", "access": "read_write"}]))
