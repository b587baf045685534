"""Every list in pages, while records are deleted and made between the pages: what stays is shown once."""

import itertools
import re
import unittest

from node import SVM, Case

PLACE = f"projects/{SVM}/locations/local"


class Lists(Case):
    """Each test fills a list with records 10 .. 21, reads it in pages of three, and after each page deletes the page's first
    and last record and makes others before, between and behind."""

    arguments = ()

    def run_line(self, text):
        status, answer = self.server.ask("POST", "/api/private/cli", {"input": text})
        self.assertEqual(status, 200, f"{text}: {answer}")

    def pages(self, first, records, link):
        """Generator of the records of each page."""
        query = first
        for _ in range(100):
            answer = self.ok("GET", query) if isinstance(query, str) else self.ok("GET", query[0], **query[1])
            yield records(answer)
            query = link(answer)
            if query is None:
                return
        self.fail(f"no end of {first}")

    def walk(self, pages, name, make, delete):
        """`name` is a record's name as `make` and `delete` take it."""
        stays = {f"n{i}" for i in range(10, 22)}
        for one in sorted(stays):
            make(one)
        seen, fresh = [], iter(range(100, 1000))
        for turn, page in enumerate(pages()):
            # Others, such as policies of the server's own, are not of this test.
            shown = [n for n in map(name, page) if re.match("[anz][0-9]", n)]
            seen += shown
            old = [n for n in shown if n in stays]
            if turn < 6:
                for gone in {*old[:1], *old[-1:]}:
                    delete(gone)
                    stays.discard(gone)
                    seen.remove(gone)
                ahead = sorted(stays - set(seen))
                if len(ahead) > 3:
                    delete(ahead[1])
                    stays.discard(ahead[1])
                n = next(fresh)
                for new in (f"a{n}", f"n{10 + turn}x{n}", f"z{n}"):
                    make(new)
        self.assertEqual(len(seen), len(set(seen)), f"shown twice: {seen}")
        self.assertLessEqual(stays, set(seen), f"hidden: {stays - set(seen)}")
        self.assertGreater(turn, 2)

    # NetApp Volumes, Filestore: pageSize and nextPageToken.

    def cloud(self, path, collection, make, delete, **query):
        def link(answer):
            token = answer.get("nextPageToken")
            return (path, {"pageSize": 3, "pageToken": token, **query}) if token else None

        def own(record):
            # Those that make() made: operations are named otherwise.
            return record.get("name", record.get("resource", "")).rsplit("/", 1)[-1]
        first = (path, {"pageSize": 3, **query})
        self.walk(lambda: self.pages(first, lambda a: a.get(collection, []), link), own, make, delete)

    def volume(self, name, place=PLACE):
        self.done("POST", f"{place}/volumes?volumeId={name}", {
            "storagePool": "pool", "shareName": name, "capacityGib": "1", "protocols": ["NFSV3"]})

    def drop(self, path):
        self.ok("DELETE", path)

    def test_cloud_lists(self):
        sub = "projects/pages/locations/local"
        self.done("POST", f"{sub}/storagePools?storagePoolId=pool",
                  {"serviceLevel": "FLEX", "capacityGib": "1024", "network": "default"})
        flex = {"serviceLevel": "FLEX", "capacityGib": "1024", "network": "default"}
        shares = itertools.count()

        def share():
            """An instance with a share name of its own."""
            return {"tier": "BASIC_HDD", "fileShares": [{"name": f"s{next(shares)}", "capacityGb": "1024"}],
                    "networks": [{}]}

        self.volume("of", sub)
        self.done("POST", f"{sub}/instances?instanceId=of", share())
        lists = [
            ("storagePools", "storagePools", "storagePoolId", lambda: flex),
            ("volumes/of/snapshots", "snapshots", "snapshotId", dict),
            ("instances", "instances", "instanceId", share),
            ("instances/of/snapshots", "snapshots", "snapshotId", dict),
        ]
        for under, collection, parameter, body in lists:
            path = f"{sub}/{under}"
            for query in ({}, {"orderBy": "createTime desc"}):
                with self.subTest(path, **query):
                    self.cloud(path, collection,
                               lambda n, path=path, p=parameter, b=body: self.done("POST", f"{path}?{p}={n}", b()),
                               lambda n, path=path: self.drop(f"{path}/{n}"), **query)
                    for left in self.ok("GET", path).get(collection, []):
                        if not left["name"].endswith("/of") and not left["name"].endswith("/pool"):
                            self.drop(left["name"])
        for query in ({}, {"orderBy": "capacityGib desc"}):
            with self.subTest("volumes", **query):
                self.cloud(f"{sub}/volumes", "volumes", lambda n: self.volume(n, sub),
                           lambda n: self.drop(f"{sub}/volumes/{n}"), **query)
                for left in self.ok("GET", f"{sub}/volumes")["volumes"]:
                    if not left["name"].endswith("/of"):
                        self.drop(left["name"])

    def test_operations(self):
        """Operations are deleted by their own names; new ones are made by the way."""
        def listed(path, collection, name):
            first = self.ok("GET", path, pageSize=1000)[collection]
            return [name(r) for r in first]
        for i in range(12):
            self.volume(f"op{i}")
        path = f"{PLACE}/operations"
        before = listed(path, "operations", lambda o: o["name"])
        seen, token, gone = [], "", set()
        while True:
            answer = self.ok("GET", path, pageSize=3, **({"pageToken": token} if token else {}))
            page = [o["name"] for o in answer.get("operations", [])]
            seen += page
            self.drop(page[-1])
            gone.add(page[-1])
            if len(gone) < 5:
                self.volume(f"more{len(gone)}")
            token = answer.get("nextPageToken")
            if not token:
                break
        self.assertEqual(len(seen), len(set(seen)))
        self.assertLessEqual(set(before) - gone, set(seen))

    def test_audit(self):
        """The audit log only grows, at its beginning."""
        for i in range(8):
            self.volume(f"au{i}")
        before = self.ok("GET", "auditEntries", pageSize=500)["auditEntries"]
        seen, token, turn = [], "", 0
        while True:
            answer = self.ok("GET", "auditEntries", pageSize=3, **({"pageToken": token} if token else {}))
            seen += answer["auditEntries"]
            turn += 1
            if turn < 5:
                self.volume(f"av{turn}")
            token = answer.get("nextPageToken")
            if not token:
                break
        times = [e["time"] + e["method"] + e["resource"] for e in seen]
        self.assertEqual(len(times), len(set(times)))
        self.assertLessEqual({e["time"] + e["method"] + e["resource"] for e in before}, set(times))

    # ONTAP: max_records and a link.

    def ontap(self, path, name, make, delete, **query):
        def link(answer):
            following = answer["_links"].get("next") if "_links" in answer else None
            return following and following["href"]
        first = (f"/api/{path}", {"max_records": 3, **query})
        self.walk(lambda: self.pages(first, lambda a: a["records"], link), name, make, delete)

    def rest(self, method, path, body=None):
        status, answer = self.server.ask(method, f"/api/{path}", body, {"return_timeout": 20})
        self.assertIn(status, (200, 201), f"{method} {path}: {answer}")

    def by_name(self, path, name, field="name"):
        key = "uuid"
        found = self.ok("GET", f"/api/{path}", **{field: name, "fields": "*"})["records"]
        if found and key not in found[0]:
            key = "id"
        self.assertEqual(len(found), 1, f"{path} {name}")
        self.rest("DELETE", f"{path}/{found[0][key]}")

    def test_ontap_rest(self):
        svm = {"svm": {"name": SVM}}
        self.run_line(f"volume create -vserver {SVM} -volume holder -size 1GB -aggregate pool")
        self.run_line(f"volume create -vserver {SVM} -volume source -size 1GB -aggregate pool")
        holder = self.ok("GET", "/api/storage/volumes", name="holder")["records"][0]["uuid"]
        lists = [
            ("storage/volumes", lambda n: {"name": n, **svm, "aggregates": [{"name": "pool"}], "size": 1 << 30}),
            (f"storage/volumes/{holder}/snapshots", lambda n: {"name": n}),
            ("svm/svms", lambda n: {"name": n}),
            ("protocols/nfs/export-policies", lambda n: {"name": n, **svm}),
            ("storage/qos/policies", lambda n: {"name": n, **svm, "fixed": {"max_throughput_iops": 100}}),
            ("storage/snapshot-policies", lambda n: {
                "name": n, "enabled": True, "copies": [{"count": 2, "schedule": {"name": "hourly"}}]}),
            ("snapmirror/policies", lambda n: {"name": n, "type": "async"}),
            ("cluster/schedules", lambda n: {"name": n, "cron": {"minutes": [5]}}),
        ]
        for path, body in lists:
            for query in ({}, {"order_by": "name desc"}):
                with self.subTest(path, **query):
                    self.ontap(path, lambda r: r["name"],
                               lambda n, path=path, body=body: self.rest("POST", path, body(n)),
                               lambda n, path=path: self.by_name(path, n), **query)
                    for left in self.ok("GET", f"/api/{path}")["records"]:
                        if left["name"][0] in "anz" and left["name"][1].isdigit():
                            self.by_name(path, left["name"])

    def test_ontap_relationships(self):
        self.run_line(f"volume create -vserver {SVM} -volume src -size 1GB -aggregate pool")

        def make(name):
            self.rest("POST", "snapmirror/relationships", {
                "source": {"path": f"{SVM}:src"}, "destination": {"path": f"{SVM}:{name}"},
                "create_destination": {"enabled": True}})

        def delete(name):
            self.by_name("snapmirror/relationships", f"{SVM}:{name}", "destination.path")
        for query in ({}, {"order_by": "destination.path desc"}):
            with self.subTest(**query):
                self.ontap("snapmirror/relationships", lambda r: r["destination"]["path"].split(":")[1],
                           make, delete, fields="destination.path", **query)
                for left in self.ok("GET", "/api/snapmirror/relationships", fields="destination.path")["records"]:
                    delete(left["destination"]["path"].split(":")[1])
                for left in self.ok("GET", "/api/storage/volumes")["records"]:
                    if left["name"][0] in "anz" and left["name"][1].isdigit():
                        self.by_name("storage/volumes", left["name"])

    def test_export_rules(self):
        self.rest("POST", "protocols/nfs/export-policies", {"name": "rules", "svm": {"name": SVM}})
        policy = self.ok("GET", "/api/protocols/nfs/export-policies", name="rules")["records"][0]["id"]
        path = f"protocols/nfs/export-policies/{policy}/rules"
        for i in range(1, 13):
            self.rest("POST", path, {"clients": [{"match": f"10.0.0.{i}"}], "ro_rule": ["any"],
                                     "rw_rule": ["any"], "superuser": ["any"], "index": i})
        seen = []
        answer = self.ok("GET", f"/api/{path}", max_records=3, fields="clients")
        while True:
            page = [(r["index"], r["clients"][0]["match"]) for r in answer["records"]]
            seen += [match for _, match in page]
            self.rest("DELETE", f"{path}/{page[-1][0]}")
            following = answer["_links"].get("next")
            if not following:
                break
            answer = self.ok("GET", following["href"])
        self.assertEqual(sorted(seen), sorted(f"10.0.0.{i}" for i in range(1, 13)))

    def test_private_cli(self):
        self.run_line(f"volume create -vserver {SVM} -volume kept -size 1GB -aggregate pool")
        v = f"-vserver {SVM}"
        lists = [
            ("volume", "volume", f"volume create {v} -volume {{}} -size 1GB -aggregate pool",
             f"volume offline {v} -volume {{}}; volume delete {v} -volume {{}}"),
            ("snapshot", "snapshot", f"snapshot create {v} -volume kept -snapshot {{}}",
             f"snapshot delete {v} -volume kept -snapshot {{}}"),
            ("volume/snapshot/policy", "policy",
             f"volume snapshot policy create {v} -policy {{}} -enabled true -schedule1 hourly -count1 2",
             f"volume snapshot policy delete {v} -policy {{}}"),
            ("qos/policy-group", "policy_group",
             f"qos policy-group create {v} -policy-group {{}} -max-throughput 100iops",
             f"qos policy-group delete {v} -policy-group {{}}"),
            ("snapmirror/policy", "policy", f"snapmirror policy create {v} -policy {{}} -type async-mirror",
             f"snapmirror policy delete {v} -policy {{}}"),
            ("job/schedule", "name", "job schedule interval create -name {} -minutes 7",
             "job schedule delete -name {}"),
        ]
        for path, field, create, delete in lists:
            def lines(text, name):
                for line in text.format(name, name).replace("{}", name).split("; "):
                    self.run_line(line)
            for query in ({}, {"order_by": f"{field} desc"}):
                with self.subTest(path, **query):
                    self.ontap(f"private/cli/{path}", lambda r, field=field: r[field],
                               lambda n, text=create: lines(text, n), lambda n, text=delete: lines(text, n), **query)
                    for left in self.ok("GET", f"/api/private/cli/{path}")["records"]:
                        if left[field][0] in "anz" and left[field][1].isdigit():
                            lines(delete, left[field])

    def test_private_cli_logs(self):
        """Jobs come newest first; new ones are made between the pages."""
        for path, key in (("job", "id"),):
            with self.subTest(path):
                fields = "*"
                before = self.ok("GET", f"/api/private/cli/{path}", fields=fields)["records"]
                seen, turn = [], 0
                answer = self.ok("GET", f"/api/private/cli/{path}", fields=fields, max_records=4)
                while True:
                    seen += answer["records"]
                    turn += 1
                    if turn < 5:
                        self.volume(f"{key}{turn}")
                    following = answer["_links"].get("next")
                    if not following:
                        break
                    answer = self.ok("GET", following["href"])
                seen = [str(r[key]) + str(r.get("time")) for r in seen]
                for record in before:
                    want = str(record[key]) + str(record.get("time"))
                    self.assertIn(want, seen)


if __name__ == "__main__":
    unittest.main()
