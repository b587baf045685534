"""The manifests and the chart, which have one source."""

import os
import shutil
import subprocess
import unittest

import yaml

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "packaging", "kubernetes")


def objects(text):
    return {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(text)}


class Kubernetes(unittest.TestCase):
    maxDiff = None

    def test_what_is_committed_is_rendered_from_the_source(self):
        subprocess.run([os.path.join(FOLDER, "render"), "--check"], check=True)

    def test_ports_volumes_and_flags_agree(self):
        with open(os.path.join(FOLDER, "weir.yaml")) as file:
            made = objects(file)
        pod = made["StatefulSet", "weir"]["spec"]["template"]["spec"]
        container = pod["containers"][0]
        ports = {p["name"] for p in container["ports"]}
        for _, o in made.items():
            if o["kind"] == "Service" and "targetPort" in o["spec"]["ports"][0]:
                self.assertLessEqual({p["targetPort"] for p in o["spec"]["ports"]}, ports)
        self.assertLessEqual({m["name"] for m in container["volumeMounts"]}, {v["name"] for v in pod["volumes"]} | {"data"})
        flags = [a.split("=")[0] for a in container["args"] if a.startswith("--")]
        known = subprocess.run([os.environ["WEIR"], "serve", "--help"], check=True, text=True, capture_output=True).stdout
        for flag in flags + ["--" + e["name"][5:].lower().replace("_", "-") for e in container["env"]]:
            self.assertIn(f" {flag}", known)

    def test_the_csi_driver_has_what_its_manifests_name(self):
        with open(os.path.join(FOLDER, "csi.yaml")) as file:
            made = objects(file)
        with open(os.path.join(FOLDER, "csi-examples.yaml")) as file:
            examples = objects(file)
        program = os.path.join(os.path.dirname(os.environ["WEIR"]), "weir-csi")
        known = subprocess.run([program, "--help"], check=True, text=True, capture_output=True).stdout
        for kind, name in (("Deployment", "weir-csi-controller"), ("DaemonSet", "weir-csi-node")):
            pod = made[kind, name]["spec"]["template"]["spec"]
            self.assertIn(("ServiceAccount", pod["serviceAccountName"]), made)
            driver = pod["containers"][0]
            self.assertEqual((driver["name"], driver["command"]), ("driver", ["/usr/bin/weir-csi"]))
            for flag in driver["args"]:
                self.assertIn(f" {flag.split('=')[0]}", known)
            for variable in driver["env"]:
                self.assertIn(f"[env: {variable['name']}=", known)
            volumes = {v["name"] for v in pod["volumes"]}
            for container in pod["containers"]:
                self.assertLessEqual({m["name"] for m in container["volumeMounts"]}, volumes)
        name = next(name for kind, name in made if kind == "CSIDriver")
        for (kind, _), one in examples.items():
            if kind != "PersistentVolumeClaim":
                self.assertEqual(one.get("provisioner") or one.get("driver") or one.get("driverName"), name)

    @unittest.skipUnless(shutil.which("helm"), "no helm here")
    def test_the_chart_gives_the_same_objects(self):
        def chart(*options):
            return subprocess.run(["helm", "template", "weir", os.path.join(FOLDER, "chart"), *options], check=True, text=True,
                                  capture_output=True).stdout
        subprocess.run(["helm", "lint", "--strict", os.path.join(FOLDER, "chart")], check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(FOLDER, "weir.yaml")) as file:
            self.assertEqual(objects(chart()), objects(file))
        other = objects(chart("--set", "name=files,smb=true,monitoring=true,storage.className=fast,service.external=true"))
        self.assertIn(("PodMonitor", "files"), other)
        service = other["Service", "files"]["spec"]
        self.assertEqual(([p["name"] for p in service["ports"]], service["externalTrafficPolicy"]), (["nfs", "api", "smb"], "Local"))
        claim = other["StatefulSet", "files"]["spec"]["volumeClaimTemplates"][0]
        self.assertEqual(claim["spec"]["storageClassName"], "fast")


if __name__ == "__main__":
    unittest.main()
