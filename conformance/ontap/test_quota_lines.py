"""Quotas in ONTAP's command line: rules, their state and the report, with what a client has written over NFS."""

import re
import struct

from node import SVM, Case
from nfs3 import NFS, Nfs, opaque

MIB, DQUOT = 1 << 20, 69
RULE = "volume quota policy rule"
AT = f"-vserver {SVM} -policy-name default -volume vol_test"


class Quotas(Case):
    arguments = ("--export-options", "rw,no_root_squash")

    def write(self, nfs, file, at, count):
        """The status of writing blocks of 4 KiB, FILE_SYNC."""
        data = b"q" * 4096 * count
        return nfs.ask(NFS, 3, 7, opaque(file) + struct.pack(">QII", at * 4096, len(data), 2) + opaque(data))[0]

    def test_a_rule_made_by_a_line_holds_and_is_reported(self):
        self.says(f"volume modify -vserver {SVM} -volume vol_test -unix-permissions 777",
                  f"Volume modify successful on volume vol_test of Vserver {SVM}.\n")
        self.says(f'{RULE} create {AT} -type user -target "" -qtree "" -disk-limit 2MB', "")
        self.says(f'{RULE} create {AT} -type user -target 7 -qtree "" -user-mapping off -disk-limit 1MB -file-limit 10', "")
        code, said = self.line(f'{RULE} create {AT} -type user -target 7 -qtree "" -disk-limit 3MB')
        self.assertEqual((code, said), (1, "\nError: command failed: duplicate entry\n"))
        port = int(re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1])
        user, other = (Nfs(port, "/vol_test", uid, 100) for uid in (7, 8))
        self.addCleanup(user.close)
        self.addCleanup(other.close)
        file, more = user.put(b"file", b""), other.put(b"more", b"")
        self.assertEqual([self.write(user, file, at, 64) for at in (0, 64, 128, 192, 256)], [0, 0, 0, 0, DQUOT])
        self.assertEqual(self.write(other, more, 0, 128), 0)
        self.says("quota report -quota-type user", f"""\
  (volume quota report)
Vserver: {SVM}
                                    ----Disk----  ----Files-----   Quota
Volume   Tree      Type    ID        Used  Limit    Used   Limit   Specifier
-------  --------  ------  -------  -----  -----  ------  ------   ---------
vol_test           user    *           0B    2MB       0       -   *
vol_test           user    root        0B      -       1       -   -
vol_test           user    7          1MB    1MB       1      10   7
vol_test           user    8        512KB    2MB       1       -   *
4 entries were displayed.
""")
        status, answer = self.server.ask(
            "GET", "/api/private/cli/volume/quota/report?quota_target=7&fields=disk_used,disk_limit,file_limit")
        one, = answer["records"]
        self.assertEqual((status, one["disk_used"], one["disk_limit"], one["file_limit"]), (200, MIB, MIB, 10))
        # The rules are those of REST.
        listed = self.server.ask("GET", "/api/storage/quota/rules?users.id=7&fields=*")[1]["records"]
        self.assertEqual([(r["space"], r["files"]) for r in listed], [({"hard_limit": MIB}, {"hard_limit": 10})])
        # Off, on again and resized: the first lets the user write.
        done = 'Operation succeeded: "quota {}" performed for quota policy "default" on volume "vol_test" in Vserver "SVM".\n'
        switch = f"-vserver {SVM} -volume vol_test -foreground true"
        self.says(f"volume quota off {switch}", done.format("off"))
        self.assertEqual(self.write(user, file, 256, 64), 0)
        code, said = self.line(f"volume quota resize -vserver {SVM} -volume vol_test")
        self.assertEqual(code, 1)
        self.assertIn('Quotas are off for volume "vol_test"', said)
        self.says(f"volume quota modify {switch} -state on", done.format("on"))
        self.assertEqual(self.write(user, file, 320, 64), DQUOT)
        self.says(f"{RULE} modify {AT} -type user -target 7 -disk-limit 2MB", "")
        self.says(f"volume quota resize {switch}", done.format("resize"))
        self.assertEqual(self.write(user, file, 320, 64), 0)
        self.says("volume quota show -volume vol_test -fields state", """\
vserver volume   state
------- -------- -----
SVM     vol_test on
""")
        for target in ('""', "7"):
            self.says(f"{RULE} delete {AT} -type user -target {target}", "")
        self.says(f"{RULE} show", "This table is currently empty.\n")
        self.assertEqual(self.server.ask("GET", "/api/storage/quota/rules")[1]["records"], [])
