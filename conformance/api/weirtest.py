"""The server under test, and plain HTTP to it."""

import http.client
import json
import os
import re
import signal
import ssl
import subprocess
import tempfile
import time
import unittest
import urllib.parse

WEIR = os.environ.get("WEIR", "weir")
PLACE = "projects/p1/locations/us-central1"
GIB_PER_TIB = 1024


class Server:
    """`weir serve` on a folder of its own, with its API on a port that the system picks."""

    def __init__(self, *arguments, api="127.0.0.1:0", data=None, scheme="http", memory="512M"):
        self.folder = None if data else tempfile.TemporaryDirectory(prefix="weir-api-")
        self.data = data or os.path.join(self.folder.name, "data")
        self.arguments = arguments
        self.api = api
        self.scheme = scheme
        self.memory = memory
        self.process = None
        self.start()

    def start(self):
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [WEIR, "serve", "--data", self.data, "--nfs", "127.0.0.1:0", "--memory", self.memory,
             "--no-rpcbind", "--api", self.api, *self.arguments],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=subprocess.STDOUT)
        end = time.monotonic() + 60
        while True:
            found = re.search(r"API on (https?)://(\S+):(\d+)", self.output())
            if found:
                self.scheme, self.port = found[1], int(found[3])
                break
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("the server did not start:\n" + self.output())
            time.sleep(0.05)
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"

    def output(self):
        self.log.seek(0)
        return self.log.read()

    def stop(self, how=signal.SIGTERM):
        self.process.send_signal(how)
        code = self.process.wait(30)
        if how == signal.SIGTERM and code != 0:
            raise RuntimeError(f"the server ended with {code}:\n" + self.output())
        self.log.close()

    def close(self):
        if self.process.poll() is None:
            self.stop()
        if self.folder:
            self.folder.cleanup()

    def connect(self, certificate=None):
        if self.scheme == "https":
            context = ssl.create_default_context(cafile=certificate)
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=60, context=context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def ask(self, method, path, body=None, query=None, headers=None, certificate=None):
        """The status and the body of an answer. `body` is text, bytes, or what becomes JSON."""
        if not path.startswith("/"):
            path = "/v1/" + path
        if query:
            path += "?" + urllib.parse.urlencode(query)
        if body is not None and not isinstance(body, (str, bytes)):
            body = json.dumps(body)
        headers = dict(headers or {})
        if body is not None:
            headers.setdefault("Content-Type", "application/json")
        connection = self.connect(certificate)
        try:
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode()


class Case(unittest.TestCase):
    """Tests that share a server; each class has its own."""

    maxDiff = None
    arguments = ()

    @classmethod
    def setUpClass(cls):
        cls.server = Server(*cls.arguments)
        cls.addClassCleanup(cls.server.close)

    def ok(self, method, path, /, body=None, **query):
        status, answer = self.server.ask(method, path, body, query)
        self.assertEqual(status, 200, answer)
        return answer

    def done(self, method, path, body=None, **query):
        """The response of an operation that has to have ended at once."""
        operation = self.ok(method, path, body, **query)
        self.assertIs(operation.get("done"), True, operation)
        self.assertNotIn("error", operation, operation)
        self.assertEqual(self.ok("GET", operation["name"])["done"], True)
        return operation["response"]

    def refused(self, code, status, method, path, /, body=None, headers=None, **query):
        """The error of a request that is refused, in the shape that clients parse."""
        answer = self.server.ask(method, path, body, query, headers)
        self.assertEqual(answer[0], code, answer)
        error = answer[1]["error"]
        self.assertEqual((error["code"], error["status"]), (code, status), error)
        self.assertTrue(error["message"])
        self.assertEqual(error["details"][0]["@type"], "type.googleapis.com/google.rpc.ErrorInfo")
        self.assertRegex(error["details"][0]["reason"], "^[A-Z][A-Z0-9_]*$")
        return error

    def everything(self):
        """All that a mutation could have changed: not the space that is left on the host."""
        place = "projects/p1/locations/-"
        lists = [self.ok("GET", f"{place}/{c}") for c in ("storagePools", "volumes", "instances")]
        for resource in (r for answer in lists for kind in answer.values() if isinstance(kind, list) for r in kind):
            resource.pop("spaceStatus", None)
        return lists


def gcloud_environment(case):
    """What gcloud runs in for a class of tests: its server, no accounts, no questions, a configuration of its own."""
    config = tempfile.TemporaryDirectory(prefix="weir-gcloud-")
    case.addClassCleanup(config.cleanup)
    return {
        **os.environ,
        "CLOUDSDK_CONFIG": config.name,
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_NETAPP": case.server.url + "/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_FILE": case.server.url + "/",
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_CORE_PROJECT": "p1",
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "true",
        "CLOUDSDK_CORE_DISABLE_FILE_LOGGING": "true",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "true",
        "CLOUDSDK_SURVEY_DISABLE_PROMPTS": "true",
    }
