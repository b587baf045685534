"""NetApp Harvest: the requests that its poller (7a7ba3dfd of 2026-08, default templates) sends to private/cli, and what its
metrics are made of. Its templates ask for every field that some release of ONTAP has, with ignore_unknown_fields=true."""

import re
import unittest
import urllib.parse

from node import SVM, Case

VOLUME = (
    "aggr_list,autosize_grow_threshold_percent,autosize_mode,autosize_shrink_threshold_percent,available,clone_parent_name,"
    "clone_parent_vserver,clone_volume,compression_space_saved,compression_space_saved_percent,dedupe_space_saved,"
    "dedupe_space_saved_percent,expected_available,files,files_used,filesystem_size,instance_uuid,is_encrypted,is_sis_volume,"
    "is_space_enforcement_logical,is_space_reporting_logical,junction_path,logical_available,logical_used,logical_used_by_afs,"
    "logical_used_by_snapshots,logical_used_percent,max_autosize,min_autosize,nodes,overwrite_reserve,overwrite_reserve_used,"
    "percent_snapshot_space,percent_used,performance_tier_inactive_user_data,performance_tier_inactive_user_data_percent,"
    "sis_space_saved,sis_space_saved_percent,size,size_available_for_snapshots,size_used_by_snapshots,snaplock_type,"
    "snapshot_count,snapshot_policy,snapshot_reserve_available,snapshot_reserve_size,snapshot_space_used,space_mgmt_try_first,"
    "state,tags,tiering_minimum_cooling_days,tiering_policy,total,type,used,virtual_used,virtual_used_percent,volume,"
    "volume_style_extended,vserver,vsroot")
SNAPMIRROR = (
    "break_failed_count,break_successful_count,cg_item_mappings,destination_path,destination_volume,destination_volume_node,"
    "destination_vserver,fl_pending_work_task_count,fl_pull_byte_count,fl_push_byte_count,fl_status,healthy,lag_time,"
    "last_transfer_duration,last_transfer_end_timestamp,last_transfer_size,last_transfer_type,newest_snapshot_timestamp,"
    "policy_type,relationship_group_type,relationship_id,relationship_type,resync_failed_count,resync_successful_count,schedule,"
    "source_path,source_volume,source_vserver,state,status,total_transfer_bytes,total_transfer_time_secs,unhealthy_reason,"
    "update_failed_count,update_successful_count")
WORKLOAD = "class,file,is_adaptive,lun,max_throughput,min_throughput,policy_group,qtree,uuid,volume,vserver,wid,workload"

# Lists of which nothing is here, and those whose filter nothing matches.
EMPTY = (
    "aggr?fields=aggregate,node,root,state,uuid&root=true&ignore_unknown_fields=true",
    'aggr/show-space?fields=aggregate_name,bin_num,object_store_logical_used,object_store_physical_used,tier_name'
    '&tier_name=!" "|""',
    "fabriclink?fields=direction,link_uuid",
    "lun?fields=lun,node,path,qtree,serial_hex,size,size_used,state,uuid,volume,vserver&ignore_unknown_fields=true",
    "node?fields=health&health=false",
    "qos/adaptive-policy-group?fields=absolute_min_iops,expected_iops,uuid,vserver&ignore_unknown_fields=true",
    "security/certificate?fields=cert_name,expiration,public_cert,serial,type,uuid,vserver&ignore_unknown_fields=true",
    "snapshot?fields=afs_used,create_time,owners,snapmirror_label,snapshot,tags,volume,vserver&ignore_unknown_fields=true"
    "&privilege_level=diagnostic&snapmirror_label=anti-ransomware-main-backup",
    "storage/failover?fields=mode,partner_name,state_description,partner_state,possible&possible=!true",
    "storage/shelf?fields=error_severity,error_text,error_type",
    "system/controller/fru?fields=fru_name,node,serial_number,status,subsystem&ignore_unknown_fields=true",
    "system/health/subsystem?fields=health,outstanding_alert_count&ignore_unknown_fields=true",
    "volume/efficiency/stat?fields=num_compress_attempts,num_compress_fail,volume,vserver&ignore_unknown_fields=true",
    "volume/snaplock?fields=autocommit_period,type,volume,vserver&ignore_unknown_fields=true",
    "volume/snapshot/autodelete?fields=enabled,volume,vserver&ignore_unknown_fields=true",
    "vserver/cifs/server/security?fields=lm_compatibility_level,vserver&ignore_unknown_fields=true",
    "vserver/object-store-server/bucket/policy?fields=action,bucket,effect&ignore_unknown_fields=true",
)


class Harvest(Case):
    @classmethod
    def furnish(cls):
        super().furnish()
        cls.create_volume("vol_dst", "DP")
        for line in (
                f"qos policy-group create -policy-group gold -vserver {SVM} -max-throughput 100MB/s",
                f"volume modify -vserver {SVM} -volume vol_test -qos-policy-group gold -percent-snapshot-space 10",
                f"snapshot create -vserver {SVM} -volume vol_test -snapshot s1",
                f"snapmirror create -source-path {SVM}:vol_test -destination-path {SVM}:vol_dst -policy MirrorLatest",
                f"snapmirror initialize -destination-path {SVM}:vol_dst"):
            code, text = cls.line(line)
            assert code == 0, (line, text)

    def records(self, path):
        """The records, as the poller asks for them."""
        path, query = path.split("?")
        pairs = [tuple(one.split("=", 1)) for one in query.split("&")]
        pairs += [("max_records", "500"), ("return_records", "true")]
        status, answer = self.server.ask("GET", f"/api/private/cli/{path}?{urllib.parse.urlencode(pairs)}")
        self.assertEqual(status, 200, (path, answer))
        return answer["records"]

    def test_volumes_have_numbers_where_metrics_are_made_of_them(self):
        found = self.records(f"volume?fields={VOLUME}&ignore_unknown_fields=true&is_constituent=*")
        self.assertEqual({(r["vserver"], r["volume"]) for r in found}, {("weir", "vol1"), (SVM, "vol_test"), (SVM, "vol_dst")})
        one = next(r for r in found if r["volume"] == "vol_test")
        gib = 1 << 30
        self.assertEqual(
            (one["size"], one["filesystem_size"], one["snapshot_reserve_size"], one["total"]),
            (16 * gib, 16 * gib, 16 * gib // 10, 16 * gib - 16 * gib // 10))
        for number in ("available", "used", "percent_used", "percent_snapshot_space", "snapshot_count", "snapshot_space_used",
                       "size_used_by_snapshots", "virtual_used", "logical_used_percent", "sis_space_saved"):
            self.assertIsInstance(one[number], int, number)
        self.assertEqual((one["percent_snapshot_space"], one["snapshot_count"] >= 1), (10, True))
        self.assertEqual(
            (one["aggr_list"], one["state"], one["volume_style_extended"], one["snaplock_type"], one["vsroot"], one["is_encrypted"]),
            ("pool", "online", "flexvol", "non_snaplock", False, False))
        self.assertNotIn("tags", one)
        self.assertEqual(self.records("volume?fields=volume&is_constituent=true"), [])
        foot = self.records("volume/footprint?fields=total_footprint,volume_blocks_footprint_bin0,volume,vserver"
                            "&volume=vol_test&ignore_unknown_fields=true")
        self.assertIsInstance(foot[0]["total_footprint"], int)

    def test_relationships_have_times_and_durations_that_programs_read(self):
        self.settled(f"{SVM}:vol_dst", state="Snapmirrored")
        one, = self.records(f"snapmirror?expand=true&fields={SNAPMIRROR}&ignore_unknown_fields=true")
        for name in ("lag_time", "last_transfer_duration"):
            self.assertRegex(one[name], r"^PT(\d+H)?(\d+M)?(\d+S)?$")
        for name in ("last_transfer_end_timestamp", "newest_snapshot_timestamp"):
            self.assertRegex(one[name], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")
        self.assertIsInstance(one["last_transfer_size"], int)
        self.assertEqual(
            (one["destination_path"], one["policy_type"], one["relationship_type"], one["relationship_group_type"], one["healthy"]),
            (f"{SVM}:vol_dst", "async-mirror", "extended_data_protection", "none", True))
        self.assertTrue(one["destination_volume_node"])

    def test_machines_nodes_limits_and_the_clock(self):
        found = self.records("vserver?fields=anti_ransomware_default_volume_state,is_space_enforcement_logical,"
                             "is_space_reporting_logical,operational_state,type,uuid,vserver&ignore_unknown_fields=true")
        one = next(r for r in found if r["vserver"] == SVM)
        self.assertEqual((one["operational_state"], one["type"], one["is_space_reporting_logical"]), ("running", "data", False))
        self.assertEqual(one["uuid"], self.ok("GET", f"/api/svm/svms?name={SVM}")["records"][0]["uuid"])
        node, = self.records("node?fields=cpu_busy_time,health,max_aggr_size,max_node_vvols,max_vol_size,node,vendor"
                             "&ignore_unknown_fields=true")
        self.assertIs(node["health"], True)
        date, = self.records("cluster/date?fields=date")
        self.assertRegex(date["date"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00$")
        group, = self.records("qos/policy-group?class=user_defined&fields=class,is_shared,num_workloads,policy_group,"
                              "throughput_policy,uuid,vserver&ignore_unknown_fields=true")
        self.assertEqual((group["class"], group["num_workloads"], group["throughput_policy"]), ("user_defined", 1, "0-100MB/s"))
        self.assertEqual(group["uuid"], self.ok("GET", "/api/storage/qos/policies?name=gold")["records"][0]["uuid"])
        self.assertEqual(self.records("qos/policy-group?class=system_defined&fields=class"), [])
        loads = {r["volume"]: r for r in self.records(f"qos/workload?fields={WORKLOAD}&ignore_unknown_fields=true")}
        self.assertEqual((loads["vol_test"]["policy_group"], loads["vol_test"]["max_throughput"]), ("gold", "100MB/s"))
        self.assertEqual(loads["vol_dst"]["max_throughput"], "INF")
        lif = self.records("network/interface?fields=address,data_protocol,lif,vserver&ignore_unknown_fields=true")
        self.assertIn((SVM, "127.0.0.1"), {(r["vserver"], r["address"]) for r in lif})
        space = self.records("aggr/show-space?fields=aggregate_name,used_including_snapshot_reserve")
        self.assertIn("pool", {r["aggregate_name"] for r in space})

    def test_what_is_not_here_is_an_empty_list(self):
        for path in EMPTY:
            self.assertEqual(self.records(path), [], path)
        self.ok("GET", "/api/storage/volumes?anti_ransomware.attack_probability=low|moderate|high&anti_ransomware.state=enabled")
        self.ok("GET", "/api/storage/volumes?is_constituent=false&fields=name,clone.split_estimate,is_object_store,"
                       "snapmirror.is_protected,snapmirror.destinations.is_ontap,snapmirror.destinations.is_cloud,"
                       "anti_ransomware.dry_run_start_time,anti_ransomware.state")

    def test_what_nobody_knows_is_refused_unless_it_may_be_passed_over(self):
        for query in ("fields=colour", "colour=red", "fields=volume&is_purple=*"):
            status, answer = self.server.ask("GET", f"/api/private/cli/volume?{query}")
            self.assertEqual((status, answer["error"]["code"]), (400, "262197"), query)
            self.assertTrue(self.records(f"volume?{query}&ignore_unknown_fields=true"), query)
        for path in ("statistics?colour=red", "cluster/identity?colour=red"):
            self.assertEqual(self.server.ask("GET", f"/api/private/cli/{path}")[0], 400, path)

    def test_short_names_are_written_out_on_a_line_too(self):
        code, text = self.line("aggr show -fields size")
        self.assertEqual(code, 0, text)
        self.assertTrue(text.startswith("  (storage aggregate show)\n"), text)
        code, text = self.line("node show")
        self.assertTrue(re.search(r"true +true +Weir", text), text)
        # What monitors ask for is shown to people only if they ask.
        self.assertNotIn("Snapshot Reserve Left", self.line(f"volume show -vserver {SVM} -volume vol_test")[1])
        self.assertEqual(self.line(f"volume show -vserver {SVM} -volume vol_test -fields total")[0], 0)


if __name__ == "__main__":
    unittest.main()
