"""NetApp's own Python client."""

import time
import unittest

try:
    from netapp_ontap import HostConnection, NetAppRestError
    from netapp_ontap.resources import (
        CLI, Cluster, Schedule, SnapmirrorPolicy, SnapmirrorRelationship, SnapmirrorTransfer, Snapshot, Svm, Volume)
except ImportError as why:
    raise unittest.SkipTest(f"NetApp's Python client could not be installed: {why}") from why

from node import Case


class Client(Case):
    def setUp(self):
        connection = HostConnection("127.0.0.1", username="admin", password="x", scheme="http",
                                    port=self.server.port, poll_interval=1)
        connection.__enter__()
        self.addCleanup(connection.__exit__, None, None, None)

    def wait(self, relationship, **wanted):
        end = time.monotonic() + 60
        while True:
            relationship.get()
            transfer = getattr(getattr(relationship, "transfer", None), "state", None)
            state = relationship.state
            if state == wanted["state"] and transfer not in ("queued", "transferring"):
                return
            self.assertLess(time.monotonic(), end, relationship.to_dict())
            time.sleep(0.05)

    def test_a_relationship_from_beginning_to_end(self):
        made = Volume(name="client_dst", svm={"name": "SVM"}, size=16 << 30, type="dp")
        made.post(poll=True)
        self.assertEqual(len(list(Volume.get_collection(**{"svm.name": "SVM", "name": "client_dst"}))), 1)
        r = SnapmirrorRelationship(source={"path": "SVM:vol_test"}, destination={"path": "SVM:client_dst"},
                                   policy={"name": "MirrorAllSnapshots"}, throttle=8192)
        r.post(poll=True)
        self.assertTrue(r.uuid)
        r.get()
        self.assertEqual((r.state, r.throttle), ("uninitialized", 8192))

        SnapmirrorTransfer(r.uuid).post(poll=True)  # initialize
        self.wait(r, state="snapmirrored")

        change = SnapmirrorRelationship(uuid=r.uuid)
        change.throttle = 4096
        change.patch(poll=True)
        CLI().execute("options modify", body={"option_value": "4096"},
                      option_name="replication.throttle.incoming.max_kbs")
        shown = CLI().execute("options show", fields="option-value").http_response.json()
        self.assertIn({"vserver": shown["records"][0]["vserver"], "option_value": 4096,
                       "option_name": "replication.throttle.incoming.max_kbs"}, shown["records"])
        CLI().execute("options modify", body={"option_value": "unlimited"},
                      option_name="replication.throttle.incoming.max_kbs")
        r.get()
        self.assertEqual(r.throttle, 4096)

        volume = Volume.find(name="vol_test", **{"svm.name": "SVM"})
        snapshot = Snapshot(volume.uuid, name="client.1", snapmirror_label="daily")
        snapshot.post(poll=True)
        self.assertTrue(snapshot.uuid)

        transfer = SnapmirrorTransfer(r.uuid)  # update
        transfer.post(poll=True)
        self.assertTrue(transfer.uuid)
        self.wait(r, state="snapmirrored")
        last = list(SnapmirrorTransfer.get_collection(r.uuid, fields="*"))
        self.assertEqual(last[0].state, "success")

        # What it needs stays.
        used = [s for s in Snapshot.get_collection(volume.uuid) if s.name.startswith("snapmirror.")]
        for call, words in ((volume.delete, "is the source endpoint of one or more SnapMirror relationships"),
                            (made.delete, "is the destination endpoint of one or more SnapMirror relationships")):
            with self.assertRaises(NetAppRestError) as refused:
                call(poll=True)
            self.assertEqual(refused.exception.status_code, 409)
            self.assertIn(words, refused.exception.response_body["error"]["message"])
        # ONTAP finds this in the job.
        with self.assertRaises(NetAppRestError) as failed:
            used[-1].delete(poll=True)
        self.assertIn("currently used as a reference Snapshot copy", str(failed.exception))

        for wish, state in (("paused", "paused"), ("snapmirrored", "snapmirrored"), ("broken_off", "broken_off"),
                            ("snapmirrored", "snapmirrored")):  # quiesce, resume, break, resync
            change = SnapmirrorRelationship(uuid=r.uuid)
            change.state = wish
            change.patch(poll=True)
            self.wait(r, state=state)
        r.delete(poll=True)
        self.assertEqual(SnapmirrorRelationship.count_collection(), 0)

    def test_policies_schedules_and_the_rest(self):
        self.assertEqual(Cluster().get().http_response.json()["version"]["generation"], 9)
        p = SnapmirrorPolicy(name="P", type="async", retention=[{"label": "daily", "count": 7}])
        p.post(poll=True)
        p.get()
        self.assertEqual(p.retention[0].label, "daily")
        change = SnapmirrorPolicy(uuid=p.uuid)
        change.comment = "c"
        change.patch(poll=True)
        p.get()
        self.assertEqual(p.comment, "c")
        change = SnapmirrorPolicy(uuid=p.uuid)
        change.retention = [{"label": "daily", "count": 7},
                            {"label": "here", "count": 2, "creation_schedule": {"name": "hourly"}, "prefix": "sv"}]
        change.patch(poll=True)
        p.get()
        here = p.retention[1]
        self.assertEqual((here.creation_schedule.name, here.prefix), ("hourly", "sv"))
        p.delete(poll=True)
        self.assertIn("weekly", [s.name for s in Schedule.get_collection()])
        self.assertIn("SVM", [s.name for s in Svm.get_collection()])

    def test_refusals_carry_codes(self):
        with self.assertRaises(NetAppRestError) as refused:
            SnapmirrorRelationship(source={"path": "SVM:none"}, destination={"path": "SVM:none2"}).post()
        self.assertGreaterEqual(refused.exception.status_code, 400)
        self.assertTrue(refused.exception.response_body["error"]["code"].isdigit())
        with self.assertRaises(NetAppRestError) as refused:
            SnapmirrorRelationship(uuid="none").get()
        self.assertEqual(refused.exception.response_body["error"]["code"], "4")
