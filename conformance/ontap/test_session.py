"""The session of a published walk through SnapMirror's throttles (Amazon FSx for NetApp ONTAP, May 2023), line by line.

What depends on the moment (progress, sizes, times) is compared in form; all else, character by character.
"""

import re
import unittest

from node import Case

TIME = r"\d\d/\d\d \d\d:\d\d:\d\d"
SIZE = r"\d+(\.\d+)?[KMG]?B"
ENDS = "-source-path SVM:vol_test -destination-path"


def padded(text, width):
    return text.ljust(width)


class Session(Case):
    def form(self, line, pattern):
        code, text = self.line(line)
        self.assertEqual(code, 0, text)
        # A raw string keeps the line end after its first backslash.
        pattern = pattern.removeprefix("\\\n")
        self.assertRegex(text, re.compile(f"\\A{pattern}\\Z"), line)

    def test_the_session(self):
        for name in ("vol_test_dst", "vol_test_1_dst"):
            self.create_volume(name, "DP")
        for name, policy in (("vol_test_dst", "MirrorAllSnapshots"), ("vol_test_1_dst", "XDPDefault")):
            self.says(
                f"snapmirror create {ENDS} SVM:{name} -type XDP -schedule weekly -policy {policy}",
                f'Operation succeeded: snapmirror create for the relationship with destination "SVM:{name}".\n')
            self.says(f"snapmirror initialize -destination-path SVM:{name}",
                      f'Operation is queued: snapmirror initialize of destination "SVM:{name}".\n')
            self.settled(f"SVM:{name}", state="Snapmirrored")
            self.says(f"snapmirror quiesce {ENDS} SVM:{name}",
                      f'Operation succeeded: snapmirror quiesce for destination "SVM:{name}".\n')
            self.settled(f"SVM:{name}", "Quiesced")

        head = """\
                                                                       Progress
Source            Destination Mirror  Relationship   Total             Last
Path        Type  Path        State   Status         Progress  Healthy Updated
----------- ---- ------------ ------- -------------- --------- ------- --------
"""
        self.form("snapmirror show", re.escape(head) + re.escape("""\
SVM:vol_test
            XDP  SVM:vol_test_dst
                              Snapmirrored
                                      Quiesced       -         """) + "false" + re.escape("""   -
                 SVM:vol_test_1_dst
                              Snapmirrored
                                      Quiesced       -         """) + "false" + re.escape("""   -
2 entries were displayed.
"""))
        self.says("snapmirror show -fields throttle", """\
source-path  destination-path throttle
------------ ---------------- ---------
SVM:vol_test SVM:vol_test_dst unlimited
SVM:vol_test SVM:vol_test_1_dst
                              unlimited
2 entries were displayed.
""")
        self.says(f"snapmirro modify {ENDS} SVM:vol_test_dst -schedule 5min", """\
  (snapmirror modify)
Operation succeeded: snapmirror modify for the relationship with destination "SVM:vol_test_dst".
""")
        self.says(f"snapmirro modify {ENDS} SVM:vol_test_1_dst -schedule weekly", """\
  (snapmirror modify)
Operation succeeded: snapmirror modify for the relationship with destination "SVM:vol_test_1_dst".
""")
        self.says(f"snapmirro modify {ENDS} SVM:vol_test_dst -schedule weekly", """\
  (snapmirror modify)
Operation succeeded: snapmirror modify for the relationship with destination "SVM:vol_test_dst".
""")
        for name in ("vol_test_dst", "vol_test_1_dst"):
            self.says(f"snapmirror resume {ENDS} SVM:{name}",
                      f'Operation succeeded: snapmirror resume for destination "SVM:{name}".\n')
        self.says("snapmirror show -fields status, schedule", """\
source-path  destination-path schedule status
------------ ---------------- -------- ------
SVM:vol_test SVM:vol_test_dst weekly   Idle
SVM:vol_test SVM:vol_test_1_dst
                              weekly   Idle
2 entries were displayed.
""")
        self.says(f"snapmirror update {ENDS} SVM:vol_test_dst",
                  'Operation is queued: snapmirror update of destination "SVM:vol_test_dst".\n')
        self.settled("SVM:vol_test_dst")
        self.form("snapmirror show -source-path SVM:vol_test -fields last-transfer-size, last-transfer-duration", rf"""\
source-path  destination-path last-transfer-size last-transfer-duration
------------ ---------------- ------------------ ----------------------
SVM:vol_test SVM:vol_test_dst {SIZE} +0:0:\d+
SVM:vol_test SVM:vol_test_1_dst
                              (-|{SIZE}) +(-|0:0:\d+)
2 entries were displayed\.
""")
        for throttle in (8192, 4096):
            self.says(
                f"snapmirror modify {ENDS} SVM:vol_test_dst -throttle {throttle}",
                'Operation succeeded: snapmirror modify for the relationship with destination "SVM:vol_test_dst".\n')
            self.says(f"snapmirror show {ENDS} SVM:vol_test_dst -fields throttle", f"""\
source-path  destination-path throttle
------------ ---------------- --------
SVM:vol_test SVM:vol_test_dst {throttle}
""")
        for name in ("0957", "1027", "1039", "1057"):
            self.says(
                f"snapshot create -vserver SVM -volume vol_test -snapshot daily.2023-0504_{name} -snapmirror-label daily",
                "")
        self.says(f"snapmirror update {ENDS} SVM:vol_test_1_dst",
                  'Operation is queued: snapmirror update of destination "SVM:vol_test_1_dst".\n')
        self.settled("SVM:vol_test_1_dst")
        self.form(f"snapmirror show {ENDS} SVM:vol_test_1_dst -fields last-transfer-size, last-transfer-duration", rf"""\
source-path  destination-path   last-transfer-size last-transfer-duration
------------ ------------------ ------------------ ----------------------
SVM:vol_test SVM:vol_test_1_dst {SIZE} +0:0:\d+
""")
        code, text = self.line("options -option-name replication.throttle.enable on")
        self.assertEqual((code, text), (1, "\nError: There are no entries matching your query.\n"))
        for value, shown in (("4096", "4096     "), ("unlimited", "unlimited")):
            self.says(f"options -option-name replication.throttle.incoming.max_kbs {value}",
                      "1 entry was modified.\n")
            self.form("options", rf"""
\S+
    replication\.throttle\.incoming\.max_kbs
                                      {shown}            -
    replication\.throttle\.outgoing\.max_kbs
                                      -                    -
2 entries were displayed\.
""")
        self.form(f"snapmirror show -source-path SVM:vol_test -fields last-transfer-end-timestamp", rf"""\
source-path  destination-path last-transfer-end-timestamp
------------ ---------------- ---------------------------
SVM:vol_test SVM:vol_test_dst {TIME}
SVM:vol_test SVM:vol_test_1_dst
                              {TIME}
2 entries were displayed\.
""")

    def test_a_pipe_of_lines(self):
        code, out, err = self.weir("ontap", stdin="::> version\n\n# no line\nsnapmirror frobnicate\nquit\nversion\n")
        self.assertEqual((code, err), (1, ""))
        self.assertRegex(out, r'\AWeir [^\n]+\n\nError: "frobnicate" is not a recognized command\n\Z')

    def test_what_is_refused(self):
        for line, reply in (
                ("snapmirror modify -destination-path SVM:none -throttle 8",
                 "\nError: There are no entries matching your query.\n"),
                (f"snapmirror create {ENDS} SVM:none", None),
                ("snapmirror create -source-path SVM:none -destination-path SVM:vol_test", None),
                ("snapmirror create -source-path SVM:vol_test -destination-path SVM:vol_test", None),
                ("options -option-name replication.throttle.incoming.max_kbs 3",
                 '\nError: "3" is an invalid value for field "-option-value <throttleType>" (valid: 0 or unlimited, or 4 to 2147483648 KB/s)\n')):
            code, text = self.line(line)
            self.assertEqual(code, 1, text)
            self.assertTrue(text.startswith("\nError: "), text)
            if reply:
                self.assertEqual(text, reply)


if __name__ == "__main__":
    unittest.main()
