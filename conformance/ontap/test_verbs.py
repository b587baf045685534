"""Every verb of SnapMirror in ONTAP's words, and what each is refused with: state unchanged."""

import re
import time
import unittest

from node import SVM, Case


class Verbs(Case):
    def fine(self, line):
        code, text = self.line(line)
        self.assertEqual(code, 0, (line, text))
        return text

    def state(self):
        code, text = self.line("snapmirror show -fields state,status,policy,schedule,throttle,tries,newest-snapshot")
        return text + self.fine("snapshot show -fields snapmirror-label") + self.fine("volume show -fields type")

    def refused(self, line, words):
        before = self.state()
        code, text = self.line(line)
        self.assertEqual((code, text[:8]), (1, "\nError: "), (line, text))
        self.assertIn(words, text, line)
        self.assertEqual(self.state(), before, line)

    def mirror(self, source, destination, more="-policy MirrorLatest"):
        self.create_volume(destination, "DP")
        ends = f"-source-path {SVM}:{source} -destination-path {SVM}:{destination}"
        self.fine(f"snapmirror create {ends} {more}")
        self.fine(f"snapmirror initialize -destination-path {SVM}:{destination}")
        self.settled(f"{SVM}:{destination}", state="Snapmirrored")
        return f"-destination-path {SVM}:{destination}"

    def end(self, *destinations):
        for destination in destinations:
            self.fine(f"snapmirror delete -destination-path {SVM}:{destination}")
            self.fine(f"snapmirror release -destination-path {SVM}:{destination}")
            self.fine(f"volume delete -vserver {SVM} -volume {destination}")

    def test_unknown_paths_loops_sizes_and_words(self):
        self.mirror("vol_test", "bad_b")
        self.create_volume("bad_c", "DP")
        self.fine(f"volume create -vserver {SVM} -volume bad_small -size 8GB -type DP")
        create = "snapmirror create -source-path {} -destination-path {}"
        for source, destination, words in (
                ("none", "bad_c", f'Failed to find source volume "{SVM}:none"'),
                ("vol_test", "none", f'Failed to find destination volume "{SVM}:none"'),
                ("vol_test", "vol_test", "must be different volumes"),
                ("vol_test", "bad_small", "Destination volume size is smaller than the source volume size."),
                ("bad_c", "bad_b", "already exists"),
                ("bad_c", "vol_test", f'Destination volume "{SVM}:vol_test" must be a data-protection volume.'),
                ("bad_b", "vol_test", "would make a loop")):
            self.refused(create.format(f"{SVM}:{source}", f"{SVM}:{destination}"), words)
        to = f"-destination-path {SVM}:bad_b"
        for line, words in (
                (create.format("nonsense", f"{SVM}:bad_c"), '"nonsense" is an invalid value for field "-source-path'),
                (create.format(f"far://{SVM}/x", f"{SVM}:bad_c"), 'Cluster "far" is not peered with this one.'),
                (create.format(f"{SVM}:vol_test", f"{SVM}:bad_c") + " -type DP", '"DP" is an invalid value for field "-type'),
                (create.format(f"{SVM}:vol_test", f"{SVM}:bad_c") + " -policy X", 'Policy lookup for "X" failed'),
                (create.format(f"{SVM}:vol_test", f"{SVM}:bad_c") + " -schedule X", 'Schedule "X" not found.'),
                (create.format(f"{SVM}:vol_test", f"{SVM}:bad_c") + " -throttle 3", '"3" is an invalid value for field'),
                (f"snapmirror modify {to} -throttle 2147483649", '"2147483649" is an invalid value for field'),
                (f"snapmirror modify {to} -throttle fast", '"fast" is an invalid value for field'),
                (f"snapmirror initialize {to}", "already initialized"),
                (f"snapmirror update {to} -source-snapshot none", '"none" is not present on source volume'),
                (f"snapmirror abort {to}", "No transfer to abort"),
                (f"snapmirror update -destination-path {SVM}:none", "There are no entries matching your query."),
                (f"snapmirror release -destination-path {SVM}:none", "There are no entries matching your query."),
                (f"snapmirror resync {to} -quick-resync maybe", '"maybe" is an invalid value for field "-quick-resync'),
                (f"snapmirror restore -source-path {SVM}:bad_b -destination-path {SVM}:vol_test -file-list a",
                 "is not the path of a file"),
                ("snapmirror policy create -policy S -type sync-mirror", '"sync-mirror" is an invalid value'),
                ("snapmirror policy delete -policy MirrorLatest", "is a system policy"),
                ("snapmirror policy add-rule -policy MirrorLatest -snapmirror-label x -keep 1", "is a system policy"),
                ("job schedule delete -name daily", "cannot be deleted"),
                ("job schedule cron create -name X -minute 61", "61"),
                ("snapmirror \"update", "Unbalanced quotes in command."),
                ("snapmirror up -destination-path", 'missing value for "-destination-path"')):
            self.refused(line, words)
        for volume in ("bad_c", "bad_small"):
            self.fine(f"volume delete -vserver {SVM} -volume {volume}")
        self.end("bad_b")

    def test_quiesce_abort_and_a_throttle(self):
        to = self.mirror("vol_test", "q_b")
        self.fine(f"snapmirror quiesce {to}")
        self.settled(f"{SVM}:q_b", "Quiesced")
        self.refused(f"snapmirror update {to}", "is quiesced")
        self.fine(f"snapmirror resume {to}")
        self.fine(f"snapmirror modify {to} -throttle 4 -tries 3 -schedule hourly -policy MirrorAllSnapshots")
        self.assertRegex(self.fine(f"snapmirror show {to} -fields throttle,tries,schedule,policy"),
                         r"hourly +MirrorAllSnapshots +3 +4|MirrorAllSnapshots +hourly +3 +4|4")
        self.end("q_b")

    def test_break_resync_and_what_both_have(self):
        to = self.mirror("vol_test", "r_b")
        self.fine(f"snapmirror break {to}")
        self.settled(f"{SVM}:r_b", state="Broken-off")
        self.refused(f"snapmirror update {to}", f'Destination volume "{SVM}:r_b" must be a data-protection volume.')
        self.refused(f"snapmirror break {to}", f'Destination volume "{SVM}:r_b" must be a data-protection volume.')
        self.fine(f"snapmirror resync {to} -quick-resync true")
        self.settled(f"{SVM}:r_b", state="Snapmirrored")
        # Turned round, and back.
        self.fine(f"snapmirror break {to}")
        self.settled(f"{SVM}:r_b", state="Broken-off")
        self.fine(f"snapmirror resync -source-path {SVM}:r_b -destination-path {SVM}:vol_test")
        self.settled(f"{SVM}:vol_test", state="Snapmirrored")
        self.fine(f"snapmirror break -destination-path {SVM}:vol_test")
        self.fine(f"snapmirror delete -destination-path {SVM}:vol_test")
        self.fine(f"snapmirror release -destination-path {SVM}:vol_test")
        self.fine(f"snapmirror resync {to}")
        self.settled(f"{SVM}:r_b", state="Snapmirrored")
        # Without a snapshot that both have there is no way back.
        self.fine(f"snapmirror break {to}")
        self.settled(f"{SVM}:r_b", state="Broken-off")
        self.fine(f"snapmirror delete {to}")
        self.fine(f"snapmirror release {to}")
        # Those of the relationship go with it; the one that the turn has brought is nobody's now.
        end = time.monotonic() + 30
        while True:
            shown = self.line(f"snapshot show -vserver {SVM} -volume vol_test -fields snapshot")[1]
            left = re.findall(r"snapmirror\.\S+", shown)
            if not left:
                break
            self.line(f"snapshot delete -vserver {SVM} -volume vol_test -snapshot {left[0]}")
            self.assertLess(time.monotonic(), end, shown)
        self.refused(f"snapmirror resync -source-path {SVM}:vol_test {to}", "No common Snapshot copy found between")
        self.fine(f"volume delete -vserver {SVM} -volume r_b")

    def test_fan_out_cascade_policies_and_schedules(self):
        self.fine("snapmirror policy create -policy Mine -type mirror-vault -comment own")
        self.fine("snapmirror policy add-rule -policy Mine -snapmirror-label mine -keep 2")
        here = "snapmirror policy add-rule -policy Mine -snapmirror-label here -keep 2"
        self.refused(f"{here} -schedule never", 'Schedule "never" not found')
        self.refused(f"{here} -prefix sv", "has no schedule")
        self.fine(f"{here} -schedule 5min -prefix sv")
        self.fine("snapmirror policy remove-rule -policy Mine -snapmirror-label here")
        self.fine("job schedule interval create -name twice -hours 12")
        self.fine("job schedule cron create -name night -minute 5 -hour 2,3")
        first = self.mirror("vol_test", "f_b", "-policy Mine -schedule twice")
        second = self.mirror("vol_test", "f_c", "-policy MirrorAllSnapshots -schedule night")
        last = self.mirror("f_b", "f_d")  # a cascade
        for n in range(4):
            self.fine(f"snapshot create -vserver {SVM} -volume vol_test -snapshot mine.{n} -snapmirror-label mine")
            self.fine(f"snapmirror update {first}")
            self.settled(f"{SVM}:f_b", state="Snapmirrored")
        kept = self.fine(f"snapshot show -vserver {SVM} -volume f_b -fields snapshot")
        self.assertEqual(re.findall(r"mine\.\d", kept), ["mine.2", "mine.3"])
        for to, name in ((last, "f_d"), (second, "f_c")):
            self.fine(f"snapmirror update {to}")
            self.settled(f"{SVM}:{name}", state="Snapmirrored")
        listed = self.fine(f"snapmirror list-destinations -source-path {SVM}:vol_test")
        for destination in ("f_b", "f_c"):
            self.assertIn(f"{SVM}:{destination}", listed)
        self.refused("snapmirror policy delete -policy Mine", "is in use by one or more SnapMirror relationships")
        self.refused("job schedule delete -name night", "is in use")
        # What they need stays.
        self.refused(f"volume delete -vserver {SVM} -volume vol_test", "is the source endpoint of one or more SnapMirror")
        self.refused(f"volume delete -vserver {SVM} -volume f_b", "is the destination endpoint of one or more SnapMirror")
        own = self.fine(f"snapshot show -vserver {SVM} -volume f_c -fields snapshot")
        newest = re.findall(r"snapmirror\.\S+", own)[-1]
        for verb in ("delete", "rename -new-name x"):
            verb, _, more = verb.partition(" ")
            self.refused(f"snapshot {verb} -vserver {SVM} -volume vol_test -snapshot {newest} {more}",
                         "currently used as a reference Snapshot copy by one or more SnapMirror relationships")
        self.refused(f"snapshot restore -vserver {SVM} -volume vol_test -snapshot mine.0",
                     "because one or more newer Snapshot copies are currently used as a reference Snapshot copy")
        self.refused(f"snapshot restore -vserver {SVM} -volume f_c -snapshot mine.0", "data-protection volume")
        # A copy of a snapshot goes back into its source.
        self.fine(f"snapmirror restore -source-path {SVM}:f_c -destination-path {SVM}:vol_test -source-snapshot mine.3")
        end = time.monotonic() + 60
        while self.line(f"snapmirror show -destination-path {SVM}:vol_test")[0] == 0:
            self.assertLess(time.monotonic(), end)
            time.sleep(0.05)
        self.end("f_d", "f_b", "f_c")
        self.fine("snapmirror policy remove-rule -policy Mine -snapmirror-label mine")
        self.fine("snapmirror policy delete -policy Mine")
        self.fine("job schedule delete -name night")
        self.fine("job schedule delete -name twice")


if __name__ == "__main__":
    unittest.main()
