"""openapi/weir-v1.json against a server: every path of it is served, and every reply has the shape that it states."""

import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "upgrade"))
import fixture  # noqa: E402
import weirtest  # noqa: E402

DOCUMENT = os.path.join(HERE, "..", "..", "openapi", "weir-v1.json")
VOLUME = "projects/weir/locations/local/volumes/vol1"
TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "object": dict, "array": list}


class Shape:
    """A schema of the document."""

    def __init__(self, document):
        self.document = document

    def faults(self, value, schema, at="reply"):
        """What `value` has that `schema` does not state, and the other way round."""
        if "$ref" in schema:
            return self.faults(value, self.document["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], at)
        kinds = schema.get("type")
        if kinds is None:
            return []
        kinds = kinds if isinstance(kinds, list) else [kinds]
        wrong = not any(isinstance(value, TYPES[kind]) for kind in kinds) or (isinstance(value, bool) and "boolean" not in kinds)
        if wrong:
            return [f"{at} is {value!r}, not {kinds}"]
        if isinstance(value, list):
            return [f for n, item in enumerate(value) for f in self.faults(item, schema.get("items", {}), f"{at}[{n}]")]
        if not isinstance(value, dict):
            return []
        properties = schema.get("properties", {})
        out = [f"{at} lacks {name}" for name in schema.get("required", []) if name not in value]
        for name, inner in value.items():
            if name in properties:
                out += self.faults(inner, properties[name], f"{at}.{name}")
            elif schema.get("additionalProperties") is False:
                out.append(f"{at}.{name} is not in the document")
        return out


class OpenApi(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        with open(DOCUMENT) as file:
            cls.document = json.load(file)
        cls.shape = Shape(cls.document)
        cls.server = weirtest.Server()
        cls.addClassCleanup(cls.server.close)
        cls.port = fixture.nfs_port(cls.server)

    def ask(self, method, path, body=None, /, **query):
        status, reply = self.server.ask(method, f"/v1/{path}", body, query)
        self.assertEqual(status, 200, reply)
        return reply

    def check(self, template, method, reply):
        operation = self.document["paths"][template][method]
        (content,) = operation["responses"]["200"]["content"].values()
        self.assertEqual(self.shape.faults(reply, content["schema"], operation["operationId"]), [])
        return template, method

    def test_the_served_document_is_the_committed_one(self):
        status, served = self.server.ask("GET", "/openapi/weir-v1.json")
        self.assertEqual((status, served), (200, self.document))

    def test_every_path_replies_in_its_shape(self):
        fixture.put(self.port, "/vol1/file", b"contents\n")
        self.benchmark("run")
        self.ask("POST", f"{VOLUME}/snapshots", {}, snapshotId="s1")
        place = "/v1/projects/{project}/locations/{location}/volumes/{volume}"
        checked = {
            self.check("/v1/tokens", "post", self.ask("POST", "tokens", {"role": "VIEWER", "ttl": "3600s"}, tokenId="t1")),
            self.check("/v1/tokens", "get", self.ask("GET", "tokens")),
            self.check("/v1/tokens/{token}", "delete", self.ask("DELETE", "tokens/t1")),
            self.check("/v1/auditEntries", "get", self.ask("GET", "auditEntries")),
            self.check("/v1/conditions", "get", self.ask("GET", "conditions")),
            self.check("/v1/headline", "get", self.ask("GET", "headline?page=pools")),
            self.check("/v1/pair", "get", self.ask("GET", "pair")),
            self.check("/v1/server", "get", self.ask("GET", "server")),
            self.check("/v1/history", "get", self.ask("GET", "history", volume=VOLUME)),
            self.check("/v1/latency", "get", self.ask("GET", "latency", volume=VOLUME)),
            self.check("/v1/limitChanges", "get", self.ask("GET", "limitChanges", volume=VOLUME)),
            self.check("/v1/benchmarks", "get", self.ask("GET", "benchmarks")),
            self.check("/v1/benchmarks/{benchmark}", "get", self.ask("GET", "benchmarks/run")),
            self.check(f"{place}:findFile", "get", self.ask("GET", f"{VOLUME}:findFile", path="file")),
            self.check(f"{place}:restoreFile", "post",
                       self.ask("POST", f"{VOLUME}:restoreFile", {"snapshot": "s1", "path": "file"})),
            self.check(f"{place}/snapshots/{{snapshot}}:rename", "post",
                       self.ask("POST", f"{VOLUME}/snapshots/s1:rename", {"newSnapshotId": "s2"})),
            self.check("/v1/live", "get", self.first_frame()),
        }
        got = self.server.ask("GET", f"/v1/{VOLUME}/snapshots/s2:download", None, {"path": "file"})
        self.assertEqual(got, (200, "contents\n"))
        checked.add((f"{place}/snapshots/{{snapshot}}:download", "get"))
        status, report = self.server.ask("GET", "/v1/benchmarks/run:report")
        self.assertEqual(status, 200)
        self.assertIn("<!doctype html>", report.lower())
        checked.add(("/v1/benchmarks/{benchmark}:report", "get"))
        # Only a node of a pair switches; the console's tests have one.
        self.assertEqual(self.server.ask("POST", "/v1/pair:switch", {})[0], 400)
        checked.add(("/v1/pair:switch", "post"))
        # Those of instances are the same actions.
        rest = {(template, method) for template, methods in self.document["paths"].items() for method in methods
                if "/instances/" not in template}
        self.assertEqual(checked, rest)

    def benchmark(self, name):
        """Measures a small part of a published table into the server's folder of benchmarks."""
        subprocess.run(
            [weirtest.WEIR, "bench", "matrix", "--preset", "netapp-extreme", "--only", "4 KiB random",
             f"nfs://127.0.0.1:{self.port}/vol1", "--max-size", "4m", "--measure", "1", "--warmup", "0", "--repetitions", "1",
             "--clients", "1", "--jobs", "1", "--depth", "2", "--quiet", "--out", os.path.join(self.server.data, "benchmarks", name)],
            check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=120)

    def first_frame(self):
        connection = self.server.connect()
        self.addCleanup(connection.close)
        connection.request("GET", "/v1/live")
        reply = connection.getresponse()
        self.assertEqual(reply.headers["Content-Type"].split(";")[0], "text/event-stream")
        while True:
            line = reply.readline().decode()
            if line.startswith("data: "):
                return json.loads(line[len("data: "):])

    def test_what_a_reply_must_not_be(self):
        schema = {"$ref": "#/components/schemas/Caller"}
        good = {"name": "n", "role": "ADMIN", "mayChange": True}
        self.assertEqual(self.shape.faults(good, schema), [])
        for wrong in ({**good, "more": 1}, {**good, "mayChange": "yes"}, {"name": "n", "role": "r"}):
            self.assertEqual(len(self.shape.faults(wrong, schema)), 1, wrong)


if __name__ == "__main__":
    unittest.main()
