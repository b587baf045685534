"""The API of a cluster at each of its nodes, for clients that know no aggregates: gcloud, Terraform, plain HTTP."""

import json
import os
import shutil
import subprocess
import tempfile

from ceph import Ceph
from cluster import POOL_BODY, POOLS, VOLUMES, OnNodes, pool_in
from terraform import Terraform, missing


def volume_body(pool, share):
    return {"storagePool": pool, "capacityGib": "100", "shareName": share, "protocols": ["NFSV3"]}


class ApiOfTheCluster(OnNodes):
    def refused(self, status, word, node, method, path, body=None, **more):
        found, answer = node.ask(method, path, body, **more)
        self.assertEqual((found, answer["error"]["status"]), (status, word), answer)
        return answer["error"]["message"]

    def complete(self, nodes, **more):
        """Whether each of these nodes reaches all aggregates."""
        answers = [node.ask("GET", VOLUMES, **more) for node in nodes]
        return all(status == 200 and "unreachable" not in answer for status, answer in answers)

    def names(self, node, path, **query):
        answer = self.ok(node, "GET", path, **query)
        self.assertNotIn("unreachable", answer)
        return [one["name"].rsplit("/", 1)[1] for one in answer.get(path.rsplit("/", 1)[1], [])]

    def aggregate_of(self, path):
        """The aggregate whose own server has a resource."""
        node = self.cluster.up()[0]
        found = [name for name in self.cluster.AGGREGATES if node.ask("GET", f"/aggregates/{name}/v1/{path}")[0] == 200]
        self.assertEqual(len(found), 1, found)
        return found[0]

    def tidy(self, volumes=(), pools=()):
        node = self.cluster.up()[0]
        for name in volumes:
            self.ok(node, "DELETE", f"{VOLUMES}/{name}", force="true")
        for name in pools:
            self.ok(node, "DELETE", f"{POOLS}/{name}")

    def test_made_at_one_node_listed_at_another_and_changed_at_a_third(self):
        n1, n2, n3 = self.cluster.nodes
        made = self.ok(n3, "POST", POOLS, POOL_BODY, storagePoolId="first")
        # The operation is found by its name at a node that has not seen it.
        self.assertTrue(self.ok(n1, "GET", made["name"])["done"])
        self.ok(n2, "POST", POOLS, POOL_BODY, storagePoolId="second")
        # What one has promised makes the other one the roomiest.
        self.assertNotEqual(self.aggregate_of(f"{POOLS}/first"), self.aggregate_of(f"{POOLS}/second"))
        for pool in ("first", "second"):
            volume = self.ok(n3, "POST", VOLUMES, volume_body(pool, f"in-{pool}"), volumeId=f"in-{pool}")
            self.assertIn("response", volume)
            self.assertEqual(self.aggregate_of(f"{VOLUMES}/in-{pool}"), self.aggregate_of(f"{POOLS}/{pool}"))
        message = self.refused(409, "ALREADY_EXISTS", n1, "POST", POOLS,
                               pool_in(self.aggregate_of(f"{POOLS}/second")), storagePoolId="first")
        self.assertIn("already exists", message)
        self.assertEqual(self.names(n1, VOLUMES), ["in-first", "in-second"])
        first = self.ok(n1, "GET", VOLUMES, pageSize="1", orderBy="name desc")
        self.assertEqual([one["name"] for one in first["volumes"]], [f"{VOLUMES}/in-second"])
        rest = self.ok(n2, "GET", VOLUMES, pageSize="1", orderBy="name desc", pageToken=first["nextPageToken"])
        self.assertEqual([one["name"] for one in rest["volumes"]], [f"{VOLUMES}/in-first"])
        # The node that owns it dies with its daemon: another one serves, and is asked.
        owner = self.cluster.owner(self.aggregate_of(f"{VOLUMES}/in-first"))
        others = [node for node in self.cluster.nodes if node is not owner]
        owner.kill()
        Ceph.until("all are listed again", lambda: self.complete(others))
        for node in others:
            self.assertEqual(self.names(node, VOLUMES), ["in-first", "in-second"])
        self.ok(others[1], "PATCH", f"{VOLUMES}/in-first", {"description": "after"}, updateMask="description")
        self.assertEqual(self.ok(others[0], "GET", f"{VOLUMES}/in-first")["description"], "after")
        Ceph.until("the rows follow", lambda: self.cluster.is_left(owner))
        owner.start()
        self.cluster.well()
        self.assertEqual(self.ok(owner, "GET", f"{VOLUMES}/in-first")["description"], "after")
        self.tidy(("in-first", "in-second"), ("first", "second"))

    def test_each_aggregate_begins_with_a_location_of_its_own(self):
        node = self.cluster.nodes[2]
        listed = self.ok(node, "GET", "projects/weir/locations/-/volumes")["volumes"]
        self.assertEqual([one["name"] for one in listed],
                         [f"projects/weir/locations/{name}/volumes/vol1" for name in self.cluster.AGGREGATES])
        locations = self.ok(node, "GET", "projects/weir/locations")["locations"]
        self.assertEqual([one["locationId"] for one in locations], [*self.cluster.AGGREGATES, "local"])

    def test_postgres_stopped(self):
        n1, n2, n3 = self.cluster.nodes
        self.ok(n1, "POST", POOLS, POOL_BODY, storagePoolId="kept")
        self.cluster.postgres.stop()
        try:
            Ceph.until("it is noticed", lambda: not n2.show()["database"]["reached"])
            self.assertEqual(self.names(n2, POOLS), ["kept"])
            self.ok(n2, "PATCH", f"{POOLS}/kept", {"description": "without"}, updateMask="description")
            self.ok(n2, "POST", VOLUMES, volume_body("kept", "without"), volumeId="without")
            message = self.refused(503, "UNAVAILABLE", n2, "POST", POOLS, POOL_BODY, storagePoolId="new")
            self.assertRegex(message, r"PostgreSQL has not answered for \d+ s")
            self.assertIn("weir-aggregate", message)
        finally:
            self.cluster.postgres.start()
        self.cluster.well()
        self.assertEqual(self.names(n3, VOLUMES), ["without"])
        self.tidy(("without",), ("kept",))

    def test_tokens_are_valid_at_every_node(self):
        nodes = self.cluster.nodes
        made = self.ok(nodes[0], "POST", "tokens", {"role": "EDITOR"}, tokenId="ops")
        token = made["token"]
        viewer = self.ok(nodes[0], "POST", "tokens", {"role": "VIEWER"}, tokenId="looks")["token"]
        for node in nodes:
            node.kill_daemon()
        for node in nodes:
            node.start("--api", f"{node.address}:{self.cluster.api_port}", "--api-tls", "generate")
        self.cluster.well()
        try:
            Ceph.until("the nodes know each other's certificates", lambda: self.complete(nodes, token=token))
            for node in nodes:
                listed = self.ok(node, "GET", "projects/weir/locations/-/volumes", token=token)
                self.assertEqual(len(listed["volumes"]), len(self.cluster.AGGREGATES))
                self.refused(401, "UNAUTHENTICATED", node, "GET", VOLUMES)
                self.refused(403, "PERMISSION_DENIED", node, "POST", POOLS, POOL_BODY, token=viewer, storagePoolId="x")
            self.ok(nodes[2], "POST", POOLS, POOL_BODY, token=token, storagePoolId="signed")
            # The server's own audit log names the holder.
            name = next(one for one in self.cluster.AGGREGATES
                        if nodes[0].ask("GET", f"/aggregates/{one}/v1/{POOLS}/signed", token=token)[0] == 200)
            admin = self.make_admin(nodes)
            log = self.ok(nodes[1], "GET", f"/aggregates/{name}/v1/auditEntries", token=admin)["auditEntries"]
            self.assertIn(("ops", f"{POOLS}/signed"), [(one["actor"], one["resource"]) for one in log])
            self.ok(nodes[1], "DELETE", f"{POOLS}/signed", token=token)
            self.ok(nodes[0], "DELETE", "tokens/ops", token=admin)
            self.refused(401, "UNAUTHENTICATED", nodes[0], "GET", VOLUMES, token=token)
            Ceph.until("all nodes have heard", lambda: all(node.ask("GET", VOLUMES, token=token)[0] == 401 for node in nodes))
        finally:
            for node in nodes:
                node.kill_daemon()
            for node in nodes:
                node.start()
            Ceph.until("the nodes know each other's addresses", lambda: self.complete(nodes))
        self.cluster.well()

    def make_admin(self, nodes):
        """A token of an administrator, which only a node without tokens gives to one who has none: a daemon is restarted for it."""
        node = nodes[0]
        node.kill_daemon()
        node.start()
        made = self.ok(node, "POST", "tokens", {"role": "ADMIN"}, tokenId="chief")
        node.kill_daemon()
        node.start("--api", f"{node.address}:{self.cluster.api_port}", "--api-tls", "generate")
        self.cluster.well()
        Ceph.until("the nodes know each other's certificates", lambda: self.complete(nodes, token=made["token"]))
        return made["token"]

    def test_ontap_shows_and_relocates(self):
        node = self.cluster.nodes[2]
        listed = self.ok(node, "GET", "/api/cluster/nodes", fields="state,ha")
        self.assertEqual([(one["name"], one["state"]) for one in listed["records"]], [(f"n{number}", "up") for number in (1, 2, 3)])

        def pools_are_at_their_owners():
            pools = self.ok(node, "GET", "/api/storage/aggregates", fields="node.name")["records"]
            return {one["node"]["name"] for one in pools} == {self.cluster.owner(name).name for name in self.cluster.AGGREGATES}

        Ceph.until("pools are at their owners", pools_are_at_their_owners)
        owner = self.cluster.owner("a")
        to = next(one for one in self.cluster.nodes if one is not owner)
        status, answer = node.ask("POST", "/aggregates/a/api/private/cli/storage/aggregate/relocation/start",
                                  {"node": owner.name, "destination": to.name, "aggregate-list": "a"})
        self.assertLess(status, 300, answer)
        Ceph.until("it is there", lambda: self.cluster.aggregate("a")["owner"] == to.name)
        self.cluster.well()
        status, answer = node.ask("POST", "/aggregates/a/api/private/cli/storage/failover/takeover", {"ofnode": to.name})
        self.assertLess(status, 300, answer)
        Ceph.until("it is drained", lambda: not to.servers())
        Ceph.until("the node knows who serves", lambda: self.complete([node]))
        shown = self.ok(node, "GET", "/aggregates/a/api/private/cli/cluster", fields="eligibility")["records"]
        self.assertEqual([one["node"] for one in shown if not one["eligibility"]], [to.name])
        status, answer = node.ask("POST", "/aggregates/a/api/private/cli/storage/failover/giveback", {"ofnode": to.name})
        self.assertLess(status, 300, answer)
        self.cluster.well()

    def test_conditions(self):
        n1, n2, n3 = self.cluster.nodes
        Ceph.until("nothing is wrong", lambda: not self.kinds(n1, "/v1/conditions"))
        n3.kill()
        Ceph.until("the node is missed", lambda: ("NODE_DOWN", "nodes/n3") in self.kinds(n1, "/v1/conditions"))
        # The servers of the other nodes show it as well, and so do their consoles.
        Ceph.until("a server shows it", lambda: ("NODE_DOWN", "nodes/n3") in self.kinds(n2, "/aggregates/a/v1/conditions"))
        self.assertIn('weir_condition{kind="NODE_DOWN",severity="WARNING",resource="nodes/n3"} 1', n1.ask("GET", "/metrics")[1])
        Ceph.until("the rows follow", lambda: self.cluster.is_left(n3))
        n3.start()
        self.cluster.well()
        Ceph.until("nothing is wrong any more", lambda: not self.kinds(n1, "/v1/conditions"))
        self.cluster.postgres.stop()
        Ceph.until("PostgreSQL is missed", lambda: ("CLUSTER_TABLES", "cluster") in self.kinds(n1, "/v1/conditions"))
        self.cluster.postgres.start()
        self.cluster.well()

    def kinds(self, node, path):
        """Kinds and resources of conditions about the cluster."""
        status, answer = node.ask("GET", path)
        own = {"NODE_DOWN", "AGGREGATE_NOT_SERVED", "STANDBY_MISSING", "CLUSTER_TABLES"}
        return {(one["kind"], one["resource"]) for one in answer["conditions"] if one["kind"] in own} if status == 200 else set()

    def test_gcloud(self):
        if not shutil.which("gcloud"):
            self.skipTest("gcloud is not installed")
        config = tempfile.TemporaryDirectory(prefix="weir-gcloud-")
        self.addCleanup(config.cleanup)

        def gcloud(node, *words):
            environment = {**os.environ, "CLOUDSDK_CONFIG": config.name, "CLOUDSDK_API_ENDPOINT_OVERRIDES_NETAPP": node.url + "/netapp/",
                           "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true", "CLOUDSDK_CORE_PROJECT": "p1",
                           "CLOUDSDK_CORE_DISABLE_PROMPTS": "1", "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
                           "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true", "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true"}
            done = subprocess.run(["gcloud", "netapp", *words, "--location=us-central1", "--format=json"], env=environment,
                                  capture_output=True, text=True, timeout=180, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            return json.loads(done.stdout or "null")

        n1, n2, n3 = self.cluster.nodes
        gcloud(n3, "storage-pools", "create", "gp", "--service-level=premium", "--capacity=2048", "--network=name=default")
        gcloud(n3, "volumes", "create", "gv", "--storage-pool=gp", "--capacity=100", "--share-name=gv", "--protocols=nfsv3")
        self.assertEqual([one["name"] for one in gcloud(n1, "volumes", "list")], [f"{VOLUMES}/gv"])
        owner = self.cluster.owner(self.aggregate_of(f"{VOLUMES}/gv"))
        owner.kill()
        others = [node for node in self.cluster.nodes if node is not owner]
        Ceph.until("it is served again", lambda: self.complete(others))
        gcloud(others[0], "volumes", "update", "gv", "--description=changed")
        self.assertEqual(gcloud(others[1], "volumes", "describe", "gv")["description"], "changed")
        Ceph.until("the rows follow", lambda: self.cluster.is_left(owner))
        owner.start()
        self.cluster.well()
        gcloud(n2, "volumes", "delete", "gv")
        gcloud(n1, "storage-pools", "delete", "gp")

    def test_terraform(self):
        if missing("google"):
            self.skipTest(missing("google"))
        nodes = self.cluster.nodes
        place = {"location": "us-central1", "project": "p1"}
        pool = {**place, "name": "tfpool", "service_level": "PREMIUM", "capacity_gib": "2048", "network": "default"}
        volume = {**place, "name": "tfvolume", "capacity_gib": "100", "share_name": "tfshare", "protocols": ["NFSV3"],
                  "storage_pool": "${google_netapp_storage_pool.pool.name}", "deletion_policy": "FORCE"}
        resources = {"google_netapp_storage_pool": {"pool": pool}, "google_netapp_volume": {"volume": volume}}
        terraform = Terraform(self, "hashicorp/google", {})
        for node, description in zip((nodes[2], nodes[1]), ("first", "second")):
            terraform.settings = {"project": "p1", "region": "us-central1", "access_token": "any-text", "user_project_override": False,
                                  "netapp_custom_endpoint": node.url + "/netapp/v1/"}
            volume["description"] = description
            terraform.apply(resources)
        self.assertEqual(self.ok(nodes[0], "GET", f"{VOLUMES}/tfvolume")["description"], "second")
        terraform.destroy()
