"""Terraform itself, with a provider, for tests of several suites.

Neither Terraform nor its providers come from a registry that is reachable everywhere. TERRAFORM_PROVIDERS names a folder
with the providers as `go build` makes them from their sources; `terraform` is on the path.
"""

import json
import os
import shutil
import subprocess
import tempfile

PROVIDERS = os.environ.get("TERRAFORM_PROVIDERS", "")
# The exit codes of `plan -detailed-exitcode`.
UNCHANGED, CHANGES = 0, 2
# The provider sleeps for ten seconds or more where an operation has not ended.
PATIENCE_S = 120


def missing(provider):
    """What a test with this provider lacks here, or nothing."""
    if not shutil.which("terraform"):
        return "terraform is not on the path"
    if not os.path.exists(os.path.join(PROVIDERS, f"terraform-provider-{provider}")):
        return f"terraform-provider-{provider} is not in the folder TERRAFORM_PROVIDERS"
    return ""


class Terraform:
    """A folder with a configuration and its state."""

    def __init__(self, case, source, settings):
        self.case = case
        self.provider = source.split("/")[1]
        self.source = source
        self.settings = settings
        folder = tempfile.TemporaryDirectory(prefix="weir-terraform-")
        case.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(self.folder, "terraformrc"), "w", encoding="utf-8") as f:
            f.write(f'provider_installation {{\n  dev_overrides {{ "{source}" = "{PROVIDERS}" }}\n  direct {{}}\n}}\n')

    def run(self, *arguments, expect=0):
        environment = {**os.environ, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1",
                       "TF_CLI_CONFIG_FILE": os.path.join(self.folder, "terraformrc")}
        try:
            done = subprocess.run(["terraform", *arguments, "-no-color"], cwd=self.folder, text=True, timeout=PATIENCE_S,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
        except subprocess.TimeoutExpired as late:
            self.case.fail(f"terraform {arguments[0]} after {PATIENCE_S} s:\n{(late.stdout or b'').decode()}")
        self.case.assertEqual(done.returncode, expect, done.stdout)
        return done.stdout

    def configure(self, resources, data=None):
        """Writes the configuration: by kind and name, what each resource and each data source has."""
        data = data or {}
        files = {
            "terraform": {"required_providers": {self.provider: {"source": self.source}}},
            "provider": {self.provider: self.settings},
            "resource": resources, "data": data,
            "output": {f"{kind}_{name}": {"value": f"${{data.{kind}.{name}}}"}
                       for kind, named in data.items() for name in named},
        }
        with open(os.path.join(self.folder, "main.tf.json"), "w", encoding="utf-8") as f:
            json.dump({key: value for key, value in files.items() if value}, f, indent=1)

    def plan(self, expect):
        return self.run("plan", "-detailed-exitcode", "-input=false", expect=expect)

    def apply(self, resources):
        """Has Terraform make it so, and looks that another plan has nothing to do."""
        self.configure(resources)
        if os.path.exists(os.path.join(self.folder, "terraform.tfstate")):
            # What was made is changed in place.
            self.case.assertIn(" 0 to destroy.", self.plan(CHANGES))
        self.run("apply", "-auto-approve", "-input=false")
        self.plan(UNCHANGED)

    def read(self, data):
        """What the data sources read, as `kind_name`."""
        self.configure({}, data)
        self.run("apply", "-auto-approve", "-input=false")
        return {name: value["value"] for name, value in json.loads(self.run("output", "-json")).items()}

    def destroy(self):
        self.run("destroy", "-auto-approve", "-input=false")
