"""Volumes and what they have by name: NetApp's Python client, the fields that other clients ask for, the requests of
Terraform's netapp-ontap provider and of Trident, and the same in ONTAP's command line."""

import re
import shutil
import subprocess
import unittest

from node import SVM, Case

try:
    from netapp_ontap import HostConnection, NetAppRestError
    from netapp_ontap.resources import (
        Aggregate, ExportPolicy, ExportRule, QosPolicy, Snapshot, SnapshotPolicy, Svm, Volume)
except ImportError:
    HostConnection = None

# The fields of one reading of each client.
FIELDS = {
    "Ansible": ("storage/volumes?name=vol_test&svm.name=SVM", (
        "encryption.enabled,tiering.policy,tiering.object_tags,nas.export_policy.name,aggregates.name,aggregates.uuid,uuid,"
        "nas.path,style,type,comment,qos.policy.name,nas.security_style,nas.gid,nas.unix_permissions,nas.uid,snapshot_policy,"
        "space.snapshot.reserve_percent,space.size,guarantee.type,state,efficiency.compression,snaplock,files.maximum,"
        "space.logical_space.enforcement,space.logical_space.reporting,efficiency.policy.name,tiering.min_cooling_days,"
        "analytics,activity_tracking,_tags,access_time_enabled,snapshot_directory_access_enabled,space.snapshot.autodelete,"
        "space.nearly_full_threshold_percent,space.full_threshold_percent,space.large_size_enabled,snapshot_locking_enabled,"
        "granular_data,movement.state,clone.is_flexclone,efficiency")),
    "Trident": ("storage/volumes?type=rw", (
        "name,svm.name,svm.uuid,size,type,state,comment,aggregates,nas.path,guarantee,snapshot_policy,"
        "snapshot_directory_access_enabled,space.snapshot.used,space.snapshot.reserve_percent,space.logical_space.used,"
        "nas.export_policy.name,nas.unix_permissions,autosize.mode,encryption.enabled,quota,tiering.policy,"
        "qos.policy.name")),
    "Terraform": ("storage/volumes?name=vol_test", (
        "name,svm.name,svm.uuid,space.size,space.snapshot.reserve_percent,space.logical_space.enforcement,"
        "space.logical_space.reporting,state,type,nas.export_policy.name,nas.path,nas.security_style,nas.unix_permissions,"
        "nas.uid,nas.gid,aggregates,comment,encryption.enabled,guarantee.type,efficiency.policy.name,efficiency.compression,"
        "snaplock.type,language,qos.policy.name,snapshot_policy.name,tiering.policy,tiering.min_cooling_days,"
        "analytics.state,uuid")),
    "Trident's SVM": ("svm/svms", "name,uuid,state,aggregates"),
    "Ansible's SVM": ("svm/svms?name=SVM", (
        "subtype,aggregates,language,snapshot_policy,ipspace,comment,nfs,cifs,fcp,iscsi,nvme,state,s3,max_volumes,ndmp,"
        "auto_enable_analytics,auto_enable_activity_tracking,storage")),
    "Trident's aggregates": ("storage/aggregates", (
        "name,block_storage.primary.disk_type,space.footprint,space.block_storage.size,space.block_storage.used")),
    "Ansible's aggregate": ("storage/aggregates?name=pool", (
        "uuid,state,block_storage.primary.disk_count,data_encryption,snaplock_type,block_storage.primary.raid_type,_tags")),
    "export policies": ("protocols/nfs/export-policies/?svm.name=SVM&name=default", "name,id,rules"),
    "snapshot policies": ("storage/snapshot-policies?scope=cluster", (
        "enabled,svm.uuid,comment,copies.snapmirror_label,copies.count,copies.prefix,copies.schedule.name,scope,"
        "copies.retention_period")),
    "QoS policies": ("storage/qos/policies?svm.name=SVM", "name,svm,fixed,adaptive"),
    "the cluster": ("cluster", "version"),
    "Terraform's nodes": ("cluster/nodes", "management_interfaces,name"),
}


class Fields(Case):
    def test_what_clients_ask_for_is_known(self):
        for client, (path, fields) in FIELDS.items():
            path += ("&" if "?" in path else "?") + "fields=" + fields
            status, answer = self.server.ask("GET", "/api/" + path)
            self.assertEqual(status, 200, (client, answer))
        status, answer = self.server.ask("GET", "/api/cluster?fields=version,san_optimized")
        self.assertEqual((status, answer["error"]["code"]), (400, "262197"))
        status, answer = self.server.ask("GET", "/api/cluster?fields=version,san_optimized&ignore_unknown_fields=true")
        self.assertEqual((status, [answer["version"][part] for part in ("generation", "major", "minor")]),
                         (200, [9, 15, 1]))
        node = self.server.ask("GET", "/api/cluster/nodes?fields=management_interfaces")[1]["records"][0]
        self.assertEqual(node["management_interfaces"], [{"ip": {"address": "127.0.0.1"}}])

    def test_fields_of_queries_are_shown(self):
        """Trident looks for the clones that a busy snapshot has, to split them, and reads by what it found them."""
        for line in (f"snapshot create -vserver {SVM} -volume vol_test -snapshot busy",
                     f"volume clone create -vserver {SVM} -flexclone standing -parent-volume vol_test -parent-snapshot busy"):
            self.assertEqual(self.line(line)[0], 0, line)
        status, answer = self.server.ask(
            "GET", "/api/storage/volumes?clone.parent_snapshot.name=busy&clone.parent_volume.name=vol_test&fields=name")
        self.assertEqual(status, 200, answer)
        one, = answer["records"]
        self.assertEqual((one["name"], one["clone"]["parent_snapshot"]["name"], one["clone"]["parent_volume"]["name"]),
                         ("standing", "busy", "vol_test"))

    def test_what_has_nothing_is_there(self):
        status, answer = self.server.ask(
            "POST", "projects/bare/locations/local/storagePools?storagePoolId=unused",
            {"serviceLevel": "PREMIUM", "capacityGib": "2048", "network": "default"})
        self.assertEqual(status, 200, answer)
        svm = self.server.ask("GET", "/api/svm/svms?name=bare")[1]["records"][0]
        self.assertEqual([pool["name"] for pool in svm["aggregates"]], ["unused"])
        pool = self.server.ask("GET", "/api/storage/aggregates?name=unused")[1]["records"][0]
        space = pool["space"]["block_storage"]
        # As far as the disk reaches.
        available = space.pop("available")
        self.assertTrue(0 < available <= 2048 << 30, available)
        self.assertEqual(space, {"size": 2048 << 30, "used": 0, "used_percent": 0, "physical_used": 0})

    def test_tridents_way_through_a_volumes_life(self):
        ask = self.server.ask
        svm = ask("GET", "/api/svm/svms?name=SVM&fields=uuid")[1]["records"][0]["uuid"]

        def change(method, path, body=None, status=202):
            code, answer = ask(method, "/api/" + path, body)
            if "export-policies" in path:
                # ONTAP makes these at once, without a job.
                self.assertEqual(code, 201 if method == "POST" else 200, (path, answer))
                return
            self.assertEqual(code, status, (path, answer))
            job = ask("GET", f"/api/cluster/jobs/{answer['job']['uuid']}")[1]
            self.assertEqual(job["state"], "success")

        def shown(name, fields):
            return ask("GET", f"/api/storage/volumes?name={name}&svm.uuid={svm}&fields={fields}")[1]["records"][0]

        change("POST", "protocols/nfs/export-policies", {"name": "trident", "svm": {"uuid": svm}})
        policy = ask("GET", "/api/protocols/nfs/export-policies?name=trident&svm.name=SVM")[1]["records"][0]["id"]
        rules = f"protocols/nfs/export-policies/{policy}/rules"
        rule = {"clients": [{"match": "10.0.0.0/8"}], "protocols": ["nfs"], "ro_rule": ["any"], "rw_rule": ["any"],
                "superuser": ["any"]}
        change("POST", rules, rule)
        change("POST", rules, {**rule, "clients": [{"match": "10.1.0.0/16"}]})
        self.assertEqual([r["index"] for r in ask("GET", f"/api/{rules}")[1]["records"]], [1, 2])
        change("PATCH", f"{rules}/2?new_index=1", {})
        self.assertEqual([r["clients"][0]["match"] for r in ask("GET", f"/api/{rules}?fields=clients")[1]["records"]],
                         ["10.1.0.0/16", "10.0.0.0/8"])
        change("POST", "storage/volumes?return_records=true", {
            "name": "pvc", "svm": {"uuid": svm}, "aggregates": [{"name": "pool"}], "size": 2 << 30, "comment": "c",
            "guarantee": {"type": "none"}, "snapshot_policy": {"name": "none"}, "state": "online", "style": "flexvol",
            "space": {"snapshot": {"reserve_percent": 0}}, "tiering": {"policy": "none"}, "encryption": {"enabled": False},
            "nas": {"export_policy": {"name": "trident"}, "security_style": "unix", "unix_permissions": 777}})
        volume = shown("pvc", "state,nas")
        self.assertEqual((volume["state"], volume["nas"]["unix_permissions"], volume["nas"]["export_policy"]["name"]),
                         ("online", 777, "trident"))
        here = f"storage/volumes/{volume['uuid']}"
        change("PATCH", here, {"snapshot_directory_access_enabled": False})
        change("PATCH", here, {"nas": {"path": "/trident/pvc"}})
        change("PATCH", here, {"size": 3 << 30})
        after = shown("pvc", "nas.path,size,snapshot_directory_access_enabled")
        self.assertEqual((after["nas"]["path"], after["size"], after["snapshot_directory_access_enabled"]),
                         ("/trident/pvc", 3 << 30, False))
        change("POST", f"{here}/snapshots", {"name": "snap", "svm": {"uuid": svm}})
        change("POST", "storage/volumes?return_records=true", {
            "name": "pvc_copy", "svm": {"uuid": svm},
            "clone": {"parent_volume": {"name": "pvc"}, "parent_snapshot": {"name": "snap"}, "is_flexclone": True}})
        copy = shown("pvc_copy", "clone,nas")
        self.assertEqual((copy["clone"]["is_flexclone"], copy["clone"]["parent_snapshot"]["name"]), (True, "snap"))
        # What a copy has not been told is as with its parent.
        self.assertEqual(copy["nas"]["export_policy"]["name"], "trident")
        change("PATCH", f"storage/volumes/{copy['uuid']}", {"comment": "a copy"})
        change("PATCH", f"storage/volumes/{copy['uuid']}", {"clone": {"split_initiated": True}})
        self.assertFalse(shown("pvc_copy", "clone")["clone"]["is_flexclone"])
        change("PATCH", f"{here}?restore_to.snapshot.name=snap")
        # Its policy is in use, by its path in the NetApp Volumes API as well.
        code, answer = ask("DELETE", f"/api/protocols/nfs/export-policies/{policy}")
        self.assertEqual((code, answer["error"]["code"]), (409, "1703945"))
        other = ask("GET", "/v1/projects/SVM/locations/local/volumes/pvc")[1]
        self.assertEqual([rule["allowedClients"] for rule in other["exportPolicy"]["rules"]],
                         ["10.1.0.0/16", "10.0.0.0/8"])
        change("DELETE", f"storage/volumes/{copy['uuid']}?force=true")
        change("DELETE", f"{here}?force=true")
        change("DELETE", f"protocols/nfs/export-policies/{policy}")

    @unittest.skipUnless(shutil.which("nfs-ls"), "needs nfs-ls (Debian: libnfs-utils)")
    def test_a_qtrees_export_policy_admits_clients_of_nfs(self):
        """As Trident's ontap-nas-economy publishes: a policy for each qtree, and one for the volume of all of them."""
        port = re.search(r"listening on 127\.0\.0\.1:(\d+)", self.server.output())[1]

        def listed(path):
            url = f"nfs://127.0.0.1/{path}?version=3&nfsport={port}&mountport={port}&auto-traverse-mounts=0"
            return subprocess.run(["nfs-ls", url], capture_output=True, timeout=60).returncode == 0

        def does(line):
            code, said = self.line(line)
            self.assertEqual(code, 0, (line, said))

        at = "-vserver SVM -volume vol_test -qtree"
        policies = "/api/protocols/nfs/export-policies"
        ids = {}
        for name, clients in (("here", "127.0.0.0/8"), ("elsewhere", "10.99.0.0/16")):
            rule = {"clients": [{"match": clients}], "ro_rule": ["any"], "rw_rule": ["any"], "superuser": ["any"]}
            code, answer = self.server.ask("POST", policies, {"name": name, "svm": {"name": SVM}, "rules": [rule]})
            self.assertEqual(code, 201, answer)
            ids[name] = self.server.ask("GET", f"{policies}?name={name}&svm.name={SVM}")[1]["records"][0]["id"]
        does(f"volume qtree create {at} q_own -export-policy elsewhere")
        does(f"volume qtree create {at} q_plain")
        self.assertEqual([listed("vol_test"), listed("vol_test/q_plain"), listed("vol_test/q_own")], [True, True, False])
        does(f"volume qtree modify {at} q_own -export-policy here")
        self.assertTrue(listed("vol_test/q_own"))
        # The qtree follows its policy.
        rule = f"{policies}/{ids['here']}/rules/1"
        self.assertEqual(self.server.ask("PATCH", rule, {"clients": [{"match": "10.98.0.0/16"}]})[0], 200)
        self.assertFalse(listed("vol_test/q_own"))
        code, answer = self.server.ask("DELETE", f"{policies}/{ids['here']}")
        self.assertEqual((code, answer["error"]["code"]), (409, "1703945"), answer)
        does(f'volume qtree modify {at} q_own -export-policy ""')
        self.assertTrue(listed("vol_test/q_own"))
        does(f"volume qtree modify {at} q_own -export-policy elsewhere")
        for name in ("q_own", "q_plain"):
            does(f"volume qtree delete {at} {name}")
        for policy in ids.values():
            self.assertEqual(self.server.ask("DELETE", f"{policies}/{policy}")[0], 200)

    def test_what_is_not_served_is_refused_with_ontaps_codes(self):
        ask = self.server.ask
        volume = ask("GET", "/api/storage/volumes?name=vol_test&svm.name=SVM")[1]["records"][0]
        here = f"/api/storage/volumes/{volume['uuid']}"
        svm = {"svm": {"name": SVM}}
        rule = {"clients": [{"match": "*"}], "ro_rule": ["any"], "rw_rule": ["any"]}
        policy = {"name": "refused", **svm}
        for method, path, body, status, code in (
                ("PATCH", here, {"encryption": {"enabled": True}}, 400, "262196"),
                ("PATCH", here, {"efficiency": {"dedupe": "background"}}, 400, "262196"),
                ("PATCH", here, {"files": {"maximum": 1000}}, 400, "262196"),
                ("PATCH", here, {"colour": "red"}, 400, "262179"),
                ("PATCH", here, {"state": "restricted"}, 400, "262197"),
                ("PATCH", here, {"nas": {"unix_permissions": 888}}, 400, "262197"),
                ("PATCH", here, {"nas": {"export_policy": {"name": "none"}}}, 404, "1703954"),
                ("PATCH", here, {"clone": {"split_initiated": True}}, 400, "262196"),
                ("PATCH", here, {"restore_to": {"snapshot": {"name": "none"}}}, 404, "1638515"),
                ("PATCH", here, {"size": 1 << 50}, 400, "917534"),
                ("PATCH", here, {"size": 4096 << 30}, 409, "917534"),
                ("PATCH", "/api/storage/volumes/none", {}, 404, "4"),
                ("POST", "/api/storage/volumes", {"name": "x", "svm": {"name": "none"}, "size": 1 << 30}, 404, "2621462"),
                ("POST", "/api/storage/volumes", {"name": "vol_test", **svm, "size": 1 << 30}, 409, "1"),
                ("POST", "/api/storage/volumes", {"name": "x", **svm, "size": 1 << 30, "style": "flexgroup"}, 400, "262196"),
                ("POST", "/api/protocols/nfs/export-policies", {**policy, "rules": [
                    {**rule, "clients": [{"match": "10.0.0.0/33"}]}]}, 400, "1704039"),
                ("POST", "/api/protocols/nfs/export-policies", {**policy, "rules": [{**rule, "ro_rule": ["krb5"]}]},
                 400, "262196"),
                ("POST", "/api/storage/qos/policies", {**policy, "fixed": {"min_throughput_iops": 5}}, 400, "262196"),
                ("POST", "/api/storage/qos/policies", {**policy, "adaptive": {"peak_iops": 5}}, 400, "262196"),
                ("POST", "/api/storage/snapshot-policies", {**policy, "copies": [
                    {"schedule": {"name": "none"}, "count": 1}]}, 404, "1638408"),
                ("POST", "/api/storage/snapshot-policies", {**policy, "copies": [
                    {"schedule": {"name": "5min"}, "count": 1}]}, 400, "1638532"),
                ("POST", "/api/svm/svms", {"name": SVM}, 409, "1"),
                ("GET", "/api/storage/qos/policies/none", None, 404, "4")):
            got, answer = ask(method, path, body)
            self.assertEqual((got, answer["error"]["code"]), (status, code), (method, path, body, answer))


@unittest.skipIf(HostConnection is None, "NetApp's Python client could not be installed")
class Client(Case):
    def setUp(self):
        connection = HostConnection("127.0.0.1", username="admin", password="x", scheme="http",
                                    port=self.server.port, poll_interval=1)
        connection.__enter__()
        self.addCleanup(connection.__exit__, None, None, None)

    def test_policies_and_a_volume_that_has_them(self):
        svm = {"name": SVM}
        exports = ExportPolicy(name="py", svm=svm, rules=[
            {"clients": [{"match": "127.0.0.1"}], "ro_rule": ["sys"], "rw_rule": ["sys"], "superuser": ["sys"]}])
        exports.post(poll=True)
        rule = ExportRule(exports.id, clients=[{"match": "127.0.0.2"}], ro_rule=["any"], rw_rule=["never"])
        rule.post(poll=True)
        self.assertEqual([r.index for r in ExportRule.get_collection(exports.id)], [1, 2])
        qos = QosPolicy(name="py", svm=svm, fixed={"max_throughput_mbps": 50})
        qos.post(poll=True)
        schedule = SnapshotPolicy(name="py", svm=svm, enabled=True, copies=[{"schedule": {"name": "daily"}, "count": 3}])
        schedule.post(poll=True)

        volume = Volume(name="py", svm=svm, size=4 << 30, nas={"path": "/py", "export_policy": {"name": "py"}},
                        qos={"policy": {"uuid": qos.uuid}}, snapshot_policy={"uuid": schedule.uuid})
        volume.post(poll=True)
        volume.get(fields="**")
        self.assertEqual((volume.nas.path, volume.nas.export_policy.name, volume.qos.policy.name,
                          volume.snapshot_policy.name, volume.space.size),
                         ("/py", "py", "py", "py", 4 << 30))
        change = Volume(uuid=volume.uuid)
        change.name, change.comment, change.state = "py2", "renamed", "offline"
        change.patch(poll=True)
        volume.get(fields="name,comment,state")
        self.assertEqual((volume.name, volume.comment, volume.state), ("py2", "renamed", "offline"))
        change = Volume(uuid=volume.uuid)
        change.state = "online"
        change.patch(poll=True)
        # By the other API it has what the policies say.
        other = self.server.ask("GET", "/v1/projects/SVM/locations/local/volumes/py2")[1]
        self.assertEqual([r["allowedClients"] for r in other["exportPolicy"]["rules"]], ["127.0.0.1", "127.0.0.2"])
        self.assertEqual(int(other["snapshotPolicy"]["dailySchedule"]["snapshotsToKeep"]), 3)

        taken = Snapshot(volume.uuid, name="before")
        taken.post(poll=True)
        with self.assertRaises(NetAppRestError) as refused:
            schedule.delete(poll=True)
        self.assertEqual(refused.exception.response_body["error"]["code"], "1638415")
        volume.delete(poll=True)
        for policy in (exports, qos, schedule):
            policy.delete(poll=True)
        self.assertEqual(QosPolicy.count_collection(), 0)

    def test_machines_and_aggregates(self):
        made = Svm(name="py-empty", comment="nothing yet")
        made.post(poll=True)
        made.get(fields="**")
        self.assertEqual((made.state, made.comment), ("running", "nothing yet"))
        change = Svm(uuid=made.uuid)
        change.comment = "still nothing"
        change.patch(poll=True)
        made.get()
        self.assertEqual(made.comment, "still nothing")
        made.delete(poll=True)
        self.assertNotIn("py-empty", [s.name for s in Svm.get_collection()])
        pool = Aggregate.find(name="pool")
        pool.get(fields="**")
        self.assertEqual(pool.space.block_storage.size, 1024 << 30)


class Lines(Case):
    def fine(self, line):
        code, text = self.line(line)
        self.assertEqual(code, 0, (line, text))
        return text

    def refused(self, line, reply):
        self.assertEqual(self.line(line), (1, reply), line)

    def test_what_an_administrator_types_first(self):
        self.assertRegex(self.fine("version"), r"\AWeir [^\n]+\n\Z")
        self.assertRegex(self.fine("cluster show"), r"""\A\
Node                  Health  Eligibility
--------------------- ------- ------------
\S+ +true    true
\Z""".replace("\\\n", "", 1))
        self.assertIn("""\
                               Admin      Operational Root
Vserver     Type    Subtype    State      State       Volume     Aggregate
----------- ------- ---------- ---------- ----------- ---------- ----------
SVM         data    default    running    running     -          pool
""", self.fine("vserver show"))
        self.assertRegex(self.fine("storage aggregate show -aggregate poo* -vserver SVM"), r"""\A\
Aggregate     Size Available Used% State   #Vols  Nodes            RAID Status
--------- -------- --------- ----- ------- ------ ---------------- ------------
pool           1TB +\S+B +\d+% online  +\d+ \S+ +normal
(Physical space of \S+: \S+B, \S+B available\. Overcommitted: \S+B were provisioned\.
)?\Z""".replace("\\\n", "", 1))
        self.assertRegex(self.fine("df -volume vol_test -vserver SVM"), r"""\A\
Filesystem               kbytes       used      avail capacity Mounted on               Vserver
/vol/vol_test/         16777216 +\d+ +\d+       \d% /vol_test                SVM
/vol/vol_test/.snapshot\n +0 +0          0       0% /vol_test/.snapshot      SVM
2 entries were displayed.
\Z""".replace("\\\n", "", 1))
        self.assertRegex(self.fine("job show -vserver SVM"), r"(?m)^\d+ +volume create +SVM +- +Success$")
        self.assertRegex(self.fine("event log show -severity NOTICE"), r"audit\.create: projects/SVM/\S+ by local: done")
        self.assertIn("volume modify", self.fine("help volume"))
        self.assertIn("-max-throughput <throughput>", self.fine("qos policy-group create ?"))

    def test_a_volume_beyond_the_disk_is_warned_of(self):
        """Both figures are named; the change is made."""
        here = "-vserver SVM -volume beyond"
        code, text = self.line(f"volume create {here} -size 1000GB -aggregate pool")
        if "Overcommitted" not in self.fine("storage aggregate show"):
            self.skipTest("this machine has more than a TB of free disk")
        self.assertEqual(code, 0, text)
        self.assertRegex(text, r"(?m)^Warning: volumes have \S+ \wiB in all, and this server has \S+ \wiB of physical space")
        shown = self.server.ask("GET", "/api/private/cli/storage/aggregate?fields=physical_size,physical_avail")[1]["records"]
        self.assertTrue(all(0 < r["physical_avail"] <= r["physical_size"] for r in shown), shown)
        self.fine(f"volume offline {here}")
        self.fine(f"volume delete {here}")

    def test_a_volumes_life(self):
        here = "-vserver SVM -volume lines"
        self.fine(f"volume create {here} -size 16GB -junction-path /lines/one -comment first")
        self.assertRegex(self.fine("volume show -volume lin*"), r"""\A\
Vserver   Volume       Aggregate    State      Type       Size  Available Used%
--------- ------------ ------------ ---------- ---- ---------- ---------- -----
SVM       lines        pool         online     RW         16GB +\d+\.\d\dGB    0%
\Z""".replace("\\\n", "", 1))
        self.says(f"volume size {here}", 'vol size: Volume "SVM:lines" has size 16g.\n')
        self.says(f"volume size {here} -new-size +4g", 'vol size: Volume "SVM:lines" size set to 20g.\n')
        self.says(f"vol mod {here} -comment second -unix-permissions ---rwxrwx--- -snapdir-access false",
                  "  (volume modify)\nVolume modify successful on volume lines of Vserver SVM.\n")
        self.says(f"volume show {here} -fields comment,unix-permissions,snapdir-access,junction-path", """\
vserver volume junction-path unix-permissions comment snapdir-access
------- ------ ------------- ---------------- ------- --------------
SVM     lines  /lines/one    ---rwxrwx---     second  false
""")
        self.says(f"volume unmount {here}", "")
        self.says(f"volume show {here} -fields junction-path",
                  "vserver volume junction-path\n------- ------ -------------\nSVM     lines  -\n")
        self.says(f"volume mount {here} -junction-path /lines/two", "")
        self.says(f"volume offline {here}", 'Volume "SVM:lines" is now offline.\n')
        self.assertRegex(self.fine(f"volume show -state offline -fields state"), r"SVM +lines +offline")
        self.says(f"volume online {here}", 'Volume "SVM:lines" is now online.\n')
        self.fine("qos policy-group create -policy-group g -vserver SVM -max-throughput 500iops,100MB/s")
        self.fine(f"volume modify {here} -qos-policy-group g")
        self.says("qos policy-group show", """\
Name             Vserver     Class        Wklds Throughput
---------------- ----------- ------------ ----- ------------
g                SVM         user-defined 1     0-500IOPS,100MB/s
""")
        for what, figures in (("latency", r"\S+s +\S+s +\S+s"), ("performance", r"\d+ +\S+B/s +\S+s")):
            shown = self.fine(f"qos statistics volume {what} show")
            self.assertRegex(shown, rf"(?m)^-total- +- +{figures}$")
            self.assertRegex(shown, rf"(?m)^lines-wid(\d+) +\1 +{figures}$")
        self.assertRegex(self.fine("statistics volume show -volume lines"), r"(?m)lines")
        self.assertRegex(self.fine("statistics show -object volume -instance lines -counter read_ops|avg_latency"), r"""\A
Object: volume
Instance: lines
Elapsed-time: 1s
Scope: SVM

    Counter                                                     Value
    -------------------------------- --------------------------------
    avg_latency +\S+s
    read_ops +\d+
\Z""")
        self.assertIn("invalid value", self.line("statistics show -object lun")[1])
        self.fine("qos policy-group modify -policy-group g -vserver SVM -max-throughput 50MB/s")
        limits = self.server.ask("GET", "/v1/projects/SVM/locations/local/volumes/lines")[1]["throughputStatus"]
        self.assertIn("QoS policy: 50 MiB/s", str(limits))
        self.fine("volume snapshot policy create -policy mine -vserver SVM -enabled true -schedule1 hourly -count1 6 "
                  "-schedule2 daily -count2 2 -comment ours")
        self.fine("volume snapshot policy remove-schedule -policy mine -vserver SVM -schedule hourly")
        self.says("volume snapshot policy show -vserver SVM", """\
Vserver: SVM
                         Number of Is
Policy Name              Schedules Enabled Comment
------------------------ --------- ------- ----------------------------------
mine                             1 true    ours
    Schedule               Count     Prefix                 SnapMirror Label
    ---------------------- -----     ---------------------- -------------------
    daily                      2     daily                  daily
""")
        self.fine(f"volume modify {here} -snapshot-policy mine")
        self.refused("volume snapshot policy delete -policy mine -vserver SVM",
                     "\nError: command failed: projects/SVM/snapshotPolicies/mine is in use by volume lines\n")
        self.refused("volume snapshot policy modify -policy default -enabled false",
                     "\nError: command failed: snapshot policy default cannot be changed: every server has it\n")
        self.fine("snapshot create -vserver SVM -volume lines -snapshot s")
        self.fine("volume clone create -vserver SVM -flexclone lines_copy -parent-volume lines -parent-snapshot s "
                  "-junction-path /lines/copy")
        self.says("volume rename -vserver SVM -volume lines -newname renamed",
                  'Volume rename successful: Vserver "SVM", volume "renamed".\n')
        self.assertRegex(self.fine("volume show -volume lines_copy -vserver SVM -fields clone-parent-name"),
                         r"lines_copy renamed")
        self.refused("volume size -vserver SVM -volume lines", "\nError: There are no entries matching your query.\n")
        self.refused("volume size -vserver SVM -volume renamed -new-size much",
                     '\nError: "much" is an invalid value for field "-new-size <[+|-]{<integer>[KB|MB|GB|TB|PB]}>"\n')
        self.fine("volume delete -vserver SVM -volume lines_copy")
        self.fine("volume delete -vserver SVM -volume renamed")
        self.fine("volume snapshot policy delete -policy mine -vserver SVM")
        self.fine("qos policy-group delete -policy-group g -vserver SVM")


if __name__ == "__main__":
    unittest.main()
