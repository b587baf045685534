"""README.md and docs/: what they say to type is typed.

Each fenced block is one of four: a list of commands, a session (`$ command`, with what it prints), something else that is
checked by a function of its own (a screen, a file), or it stands in NOT_RUN with the reason. A command that cannot be run
as it stands there (a machine's name, a port) is changed by REPLACED; one that cannot be run at all stands in NOT_RUN.
Commands of one document run in its order, against a server of the document's own, in a folder of its own.
"""

import glob
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

import terraform
from blocks import ROOT, blocks, documents, inline, words
from weirtest import WEIR, Server

PICTURE = "a picture of how it works, no command"
KUBERNETES = "needs a cluster; conformance/packages/test_kubernetes.py checks the objects"
TRIDENT = "needs a cluster; conformance/ontap and conformance/api send Trident's requests"
TERRAFORM = "Terraform's configuration; its provider's requests are sent by conformance/api/test_terraform.py"

# What is not run, by the document and the first line of the block, or a command's whole line: the reason.
NOT_RUN = {
    ("README.md", " client     ── TCP ──▶  event loop, one a core: read all calls, run them, one writev for all replies"): PICTURE,
    ("docs/internals/format.md", "superblock ─┬─ aggregate tree ── volumes' trees ── file data"): PICTURE,
    ("README.md", "sudo apt install ./weir_0.1.0-1_amd64.deb"):
        "changes this machine; conformance/packages/run installs the package in a Debian of its own",
    ("README.md", "sudo systemctl enable --now weir"):
        "needs systemd; conformance/packages/run serves as the unit does",
    ("README.md", "sudo mount -t nfs -o vers=4.2 127.0.0.1:/vol1 /mnt"): "needs a kernel with NFS",
    ("README.md", "make serve"): "builds the program in another profile; what it starts is what is tested here",
    ("README.md", "make tools"): "builds the programs in another profile; they are run by other documents",
    ("README.md", "make dist"): "packages are made and tried by conformance/packages",
    ("README.md", "make test"): "this test is a part of it",
    ("docs/start/getting-started.md", "make serve"): "builds the program in another profile; README.md's screen is compared",
    ("docs/start/getting-started.md", "sudo mount -t nfs -o vers=4.2 127.0.0.1:/vol1 /mnt"): "needs a kernel with NFS",
    ("docs/reference/api.md", 'provider "google" {'): TERRAFORM,
    ("docs/start/trident.md", "apiVersion: trident.netapp.io/v1"): TRIDENT,
    ("docs/start/harvest.md", "Pollers:"): "Harvest's configuration; conformance/ontap/test_harvest.py sends its poller's requests",
    ("docs/start/google-libraries.md",
     "weir tokens create app --role editor --service-account app.json --server https://storage.example.com:8049"):
        "needs TLS and an administrator's token; conformance/api/test_service_accounts.py runs it and its programs",
    ("docs/start/google-libraries.md", "roots := x509.NewCertPool()"):
        "conformance/api/test_go.py has a program with these options",
    ("docs/start/google-libraries.md", "from google.cloud import netapp_v1, filestore_v1"):
        "needs a service account; conformance/api/test_service_accounts.py has one",
    ("docs/operating/live.md", "id: 1764385000.1764385921"): "an event; conformance/attack/test_live.py reads streams of them",
    ("docs/operating/backups.md", "weir volumes restore-backup-files home --backup=BACKUP "
                                  "--file-list=/mouse/letter.txt,/mouse/cheese.jpg --restore-destination-path=/mouse/back"):
        "needs a backup with these files; conformance/api/test_backup_policies.py has one",
    ("docs/operating/replication.md", "weir peers join near.example.com:8051"):
        "takes another node; crates/weir/tests/replication.rs has two",
    ("docs/reference/cli.md", "gcloud netapp storage-pools create mq --location=l --capacity=40960 --service-level=premium "
                    "--qos-type=manual --network=name=default"):
        "makes the pool that the line below it makes; conformance/api/test_gcloud.py runs it",
    ("docs/operating/server.md", "kadmin -q 'addprinc -randkey nfs/server.example.com' "
                          "-q 'ktadd -k /etc/weir.keytab nfs/server.example.com'"):
        "needs a realm; conformance/krb5/run has one of its own",
    ("docs/operating/server.md", "weir serve --data DIR --nfs-tls-cert server.pem --nfs-tls-key server.key "
                          "--export-options rw,root_squash,xprtsec=tls"):
        "needs a certificate; crates/weir/tests/tls.rs makes its own",
    ("docs/reference/smb.md", "smbclient -p 4450 -U NAME //127.0.0.1/docs -c 'put README.md'"):
        "asks for a password; conformance/smb/run gives it one",
    ("docs/reference/smb.md", "sudo mount -t cifs -o vers=3.1.1,port=4450,username=NAME //127.0.0.1/docs /mnt"):
        "needs a kernel with cifs",
    ("docs/reference/smb.md", "sudo mount -t cifs -o vers=3.1.1,port=4450,username=NAME,hard //127.0.0.1/data /mnt"):
        "needs a kernel with cifs; conformance/guest/smb-crash.sh mounts so",
    ("docs/operating/provisioning.md", "weir catalog rebuild DIR"):
        "needs a folder whose catalog is lost; crates/weir/tests/catalog.rs runs it on one",
    ("docs/operating/doctor.md", "weir doctor --fix"):
        "changes this machine's /etc; crates/doctor/tests/repaired.rs does it to copies of three distributions",
    ("docs/operating/kubernetes.md", "apiVersion: v1"): KUBERNETES,
    ("docs/operating/bench.md", "weir bench ceph weir --ceph-conf /etc/ceph/ceph.conf"):
        "needs a Ceph; conformance/ceph/run has one of its own",
    ("docs/start/kubernetes.md", "apiVersion: storage.k8s.io/v1"): KUBERNETES,
    ("docs/operating/bench.md", "weir bench compare RUN-A RUN-B --published netapp-extreme --html compare.html"):
        "needs two finished runs, which take minutes; conformance/lab/run compares two of its own",
}

for first in ("weir pair show --data DIR", "weir pair takeover --data DIR --force", "weir pair delete --data DIR", "weir pair create … --address 10.0.0.100/24@eth0",
              "weir pair create … --log-dir /mnt/local/weir", "weir serve … --log-dir /mnt/local/weir --log-ephemeral",
              'weir ontap "snapmirror create -source-path weir:vol1 -destination-path b://weir/vol1 -policy StrictSync"'):
    NOT_RUN["docs/operating/mirror.md", first] = "needs two nodes and a witness; crates/weir/tests/pair*.rs have them"

for first in ("apt install librados2                        # on each machine that serves; the build and other servers need nothing of Ceph",
              "weir serve --data /var/lib/weir --aggregate rados:weir/agg1 --standby --nfs 0.0.0.0:2049 --address 10.0.0.100/24@eth0",
              "weir upgrade --data /var/lib/weir --aggregate rados:weir/agg1 --dry-run",
              "weir backup /srv/agg1-monday --data /var/lib/weir --aggregate rados:weir/agg1",
              "weir restore /srv/agg1-monday --data /var/lib/weir --aggregate rados:weir/agg1",
              """ceph auth get-or-create client.weir mon 'profile simple-rados-client-with-blocklist' osd 'allow rwx pool=weir'"""):
    NOT_RUN["docs/operating/cluster.md", first] = "needs a Ceph; conformance/ceph/run has one of its own"

for first in ("sudo -u postgres createuser --pwprompt weir", "sudo -u postgres createdb --owner weir weircluster",
              "sudo install -d -o weir -g weir -m 0700 /var/lib/weir-node", "weir tokens create ops --role admin",
              "gcloud netapp storage-pools create fast --location=local --service-level=premium --capacity=2048 --network=name=default",
              "gcloud netapp volumes create db --location=local --storage-pool=fast --capacity=1024 --share-name=db --protocols=nfsv3",
              "gcloud netapp storage-pools create wide --location=local --service-level=flex --capacity=3072 --network=name=default "
              "--labels=weir-aggregates=3",
              "weir aggregate create agg1 --on rados:weir --nfs 10.0.0.101:2049 --address 10.0.0.101/24@eth0 --memory 4G --data /var/lib/weir-node",
              "weir volumes move projects/p/locations/l/volumes/db --to fast-b",
              "weir volumes move projects/p/locations/l/volumes/db --show", "weir volumes move projects/p/locations/l/volumes/db --abort",
              "weir cluster show --data /var/lib/weir-node", "cluster     3 nodes, 2 aggregates; n1 leads, in term 1"):
    NOT_RUN["docs/operating/cluster.md", first] = "needs three machines and a Ceph; conformance/cluster/run has both"

NOT_RUN["docs/operating/large-volumes.md", "gcloud netapp volumes create scratch --location=local --storage-pool=pool-a --capacity=30720 "
        "--share-name=scratch --protocols=nfsv3 --large-capacity=true --multiple-endpoints=true"] = (
    "needs a cluster of three aggregates; conformance/cluster/run test_large has one")

for first in ("weir ad join example.com --user Administrator --data ./weir-data", "weir ad testjoin", "weir ad leave --user Administrator",
              "weir storage-pools update default --active-directory=ad",
              "weir active-directories create ad --domain=example.com --dns=10.0.0.53 --net-bios-prefix=files --username=Administrator",
              "weir active-directories update ad --password-file=FILE", "weir active-directories delete ad"):
    NOT_RUN["docs/reference/smb.md", first] = "needs a domain; conformance/ad/run has one of its own"

# Commands that need other words here: (document or "*", pattern, what takes its place).
REPLACED = [
    ("docs/operating/backups.md", r"/var/lib/weir --backup-bucket \S+ --backup-credentials FILE",
     "{folder}/weir-data --backup-bucket {folder}/bucket"),
    ("docs/reference/cli.md", r" … ", " --storage-pool=p --capacity=100 --protocols=nfsv3 --share-name=v1 "),
    ("docs/reference/smb.md", r"^weir users create NAME", "echo 'correct horse' | weir users create NAME --uid 1000"),
    ("docs/operating/doctor.md", r"--server nas1", "--from {captured} --server filer"),
    ("docs/operating/doctor.md", r"ping nas1 nas2:2049", "ping {nfs} 127.0.0.1:{nfs_port}"),
    ("docs/operating/bench.md", r"nfs://server/vol1\?version", "nfs://127.0.0.1/vol1?nfsport={nfs_port}&version"),
    ("docs/operating/bench.md", r"(NoMirror=|Mirror=|)nfs://server/\w+", r"\1'nfs://127.0.0.1/vol1?nfsport={nfs_port}&mountport={nfs_port}'"),
    ("docs/operating/bench.md", r"/mnt/share", "{folder}"),
    ("docs/operating/bench.md", r"^weir bench log .*", "weir bench log here={folder} --rounds 1 --seconds 0.02 --size 1m"),
    ("docs/operating/bench.md", r"^(?!weir bench log)(.*)$", r"\1 --dry-run"),
    ("docs/operating/large-volumes.md", r"^(weir bench matrix .*)$", r"\1 --dry-run"),
    ("docs/operating/replication.md", r"(create far .*)SHA256", r"\g<1>" + "fa" * 32),
    ("docs/operating/replication.md", r"(create near .*)SHA256", r"\g<1>" + "ea" * 32),
    # The provider is one that was built here, which needs no `init`.
    ("docs/start/terraform.md", r"^terraform init$", "true"),
    ("*", r"\bWEIR_PORT=8049", "WEIR_PORT={port}"),
    ("*", r"(?<=nfsport=)2049|(?<=mountport=)2049", "{nfs_port}"),
    ("*", r"http://127\.0\.0\.1:8049", "{url}"),
    ("docs/start/google-libraries.md", r"127\.0\.0\.1:8049", "{api}"),
]

# Nodes that pair listen for peers.
ALWAYS = {"docs/operating/replication.md": ("--replication", "127.0.0.1:0")}


def ontap_venv():
    """The folder with NetApp's Python client and Ansible, if conformance/ontap/run has made one."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found = sorted(target.glob("ontap-venv-*/ansible"))
    return str(found[-1].parent.resolve()) if found else ""


# Where programs are looked for: .ci/prometheus puts Debian's below target/.
PROMETHEUS = f"{pathlib.Path(os.environ.get('CARGO_TARGET_DIR', ROOT / 'target')).resolve()}/prometheus/usr/bin:{os.environ['PATH']}"

# Programs that are not everywhere, and why their lines are not run here; where they are, they are run.
LACKING = {
    "gcloud": "" if shutil.which("gcloud") else "gcloud is not installed here",
    "terraform": terraform.missing("google"),
    "ansible-playbook": "" if ontap_venv() else "conformance/ontap/run has not installed Ansible here",
    "python3": "" if ontap_venv() else "conformance/ontap/run has not installed NetApp's client here",
    "promtool": "" if shutil.which("promtool", path=PROMETHEUS) else "promtool is not installed here, nor has .ci/prometheus put it below target/",
}

# Exit codes that are no failure besides 0.
EXITS = {"weir doctor": (0, 1)}


class Place:
    """Where a document's commands run."""

    def __init__(self, case, document):
        self.case, self.document = case, document
        # Removed with the document: a server keeps a gigabyte for its log, and there are many documents.
        self.temporary = tempfile.TemporaryDirectory(prefix="weir-docs-")
        self.folder = self.temporary.name
        bin = os.path.join(self.folder, "bin")
        os.mkdir(bin)
        os.symlink(WEIR, os.path.join(bin, "weir"))
        self.env = {"PATH": f"{bin}:{os.environ['PATH']}", "HOME": self.folder, "LANG": "C.UTF-8"}
        self.server, self.plain = None, False
        # What every server of the document is started with.
        self.always = ALWAYS.get(document, ())
        self.data = os.path.join(self.folder, "weir-data")
        try:
            self.serve()
        except BaseException:
            self.temporary.cleanup()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *failed):
        self.stop()
        self.temporary.cleanup()

    def serve(self, *arguments, data=None):
        """Starts a server, or another one in place of the one that runs."""
        self.stop()
        self.plain = not arguments and data in (None, self.data)
        self.server = Server(*arguments, *self.always, data=data or self.data)
        said = self.server.output()
        self.nfs = re.search(r"listening on (\S+)", said)[1]
        self.env["WEIR_SERVER"] = self.server.url
        if self.server.scheme == "https":
            self.env["WEIR_CA_CERT"] = os.path.join(data or self.data, "api-cert.pem")

    def stop(self, how=signal.SIGTERM):
        if self.server and self.server.process.poll() is None:
            self.server.stop(how)
        self.server = None

    def replaced(self, text):
        for document, pattern, to in REPLACED:
            if document in ("*", self.document):
                text = re.sub(pattern, to, text)
        values = {
            "url": self.env.get("WEIR_SERVER", ""),
            "port": str(self.server.port) if self.server else "",
            "api": self.env.get("WEIR_SERVER", "").partition("//")[2],
            "nfs": self.nfs,
            "nfs_port": self.nfs.rsplit(":", 1)[1],
            "folder": self.folder,
            "captured": str(ROOT / "crates/doctor/tests/captured/ubuntu-22.04-linux-5.15"),
        }
        for name, value in values.items():
            text = text.replace("{" + name + "}", value)
        return text

    def run(self, text):
        """What a command prints. It is a shell's, but for servers, which are this test's own."""
        if text.startswith("export "):
            for word in words(self.replaced(text))[1:]:
                name = word.partition("=")[0]
                self.env[name] = self.shell(f'{self.replaced(text)} && printf %s "${name}"', stderr=subprocess.DEVNULL)
            return ""
        said = ""
        for part in re.split(r"; (?=weir serve|weir check)", text):
            if re.fullmatch(r"kill -9 \$\(pidof weir\)", part):
                self.stop(signal.SIGKILL)
            elif part == "kill %1":
                self.stop()
            elif part.startswith("weir serve "):
                said += self.start(part)
            else:
                said += self.shell(self.replaced(part))
        return said

    def start(self, text):
        given = words(text.removesuffix("&"))[2:]
        data = given.pop(given.index("--data") + 1)
        given.remove("--data")
        # Ports are the system's, and tests listen on the loopback address only.
        if "--api" in given:
            given.pop(given.index("--api") + 1)
            given.remove("--api")
        data = os.path.normpath(os.path.join(self.folder, data))
        self.serve(*given, data=data)
        return self.server.output()

    def shell(self, text, stderr=subprocess.STDOUT):
        done = subprocess.run(["bash", "-c", text], cwd=self.folder, env=self.env, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=stderr, text=True, timeout=120)
        allowed = next((codes for start, codes in EXITS.items() if text.startswith(start)), (0,))
        self.case.assertIn(done.returncode, allowed, f"{text}\n{done.stdout}")
        return done.stdout


def masked(text):
    """Text without what differs from run to run: ports, sums, counts, the width of columns of counts."""
    text = re.sub(r"(127\.0\.0\.1|0\.0\.0\.0):\d+", "ADDRESS", text)
    text = re.sub(r"port=\d+", "port=PORT", text)
    # NFSv4's port is named where it is another than the registered one.
    text = re.sub(r"(vers=4\.2,\S*),port=PORT", r"\1", text)
    sums = {}
    text = re.sub(r"\b[0-9a-f]{64}\b", lambda m: sums.setdefault(m[0], f"SUM{len(sums)}"), text)
    return [re.sub(r"\s+", " ", line).strip() for line in text.strip().split("\n")]


class Docs(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        cls.used = set()
        for program, why in LACKING.items():
            if why:
                print(f"docs: lines of {program} are not run: {why}", file=sys.stderr)

    def not_run(self, document, text):
        """Whether something is listed as not run."""
        key = (document, text)
        if key in NOT_RUN:
            self.used.add(key)
        return key in NOT_RUN

    def test_commands(self):
        """Every block of commands, in its document's order; every other block is checked or listed."""
        for path in documents():
            document = str(path.relative_to(ROOT))
            all = blocks(path)
            if not all:
                continue
            with self.subTest(document), Place(self, document) as place:
                prepare = PREPARED.get(document)
                if prepare:
                    prepare(place)
                for block in all:
                    if not place.plain and not any(c.text.startswith("weir serve") for c in block.commands):
                        place.serve()
                    check = CHECKED.get((document, block.lines[0]))
                    if block.commands:
                        self.commands(place, block)
                    elif check:
                        check(place, block)
                    elif block.lines[0].startswith("crates/"):
                        # A picture of modules, which `tidy` compares with the code.
                        continue
                    elif not self.not_run(document, block.lines[0]):
                        self.fail(f"{block} is neither run nor listed: {block.lines[0]}")
        self.assertEqual(set(NOT_RUN) - self.used, set(), "listed as not run, and not there any more")

    def commands(self, place, block):
        for command in block.commands:
            if self.not_run(block.document, command.text) or LACKING.get(command.text.split()[0]):
                continue
            try:
                said = place.run(command.text)
            except (AssertionError, RuntimeError, OSError, ValueError) as error:
                self.fail(f"{block.document}:{command.line}: {command.text}\n{error}")
            if command.shown:
                self.shown(block, command, said)

    def shown(self, block, command, said):
        """What a session shows is what the command prints; of a server's many lines, it is among them."""
        for wanted, line in zip(masked("\n".join(command.shown)), command.shown):
            there = masked(said)
            pattern = re.escape(wanted)
            # Counts of what was stored follow from timing: a number for a number.
            if "checkpoint" in wanted:
                pattern = re.sub(r"\d+", r"\\d+", pattern)
            self.assertTrue(any(re.fullmatch(pattern, one) for one in there),
                            f"{block.document}:{command.line}: {line!r} is not what is printed:\n{said}")

    def test_inline_commands(self):
        """`weir …` in running text: the command is there, and so are its flags."""
        helped = {}

        def help(path):
            if path not in helped:
                done = subprocess.run([WEIR, *path, "--help"], capture_output=True, text=True, timeout=30)
                helped[path] = done.stdout if done.returncode == 0 else None
            return helped[path]

        def alternatives(text):
            """`weir volumes clone|split` is two."""
            match = re.search(r"(?<= )([a-z-]+(?:\|[a-z-]+)+)", text)
            if not match:
                return [text]
            before, after = text[:match.start()], text[match.end():]
            return [before + one + after for one in match[1].split("|")]

        for path in documents():
            for number, code in inline(path):
                for text in alternatives(code):
                    where = f"{path.relative_to(ROOT)}:{number}: {text}"
                    given = words(text)[1:]
                    command = ()
                    for word in given:
                        # A flag of every command may stand before it.
                        if not command and word.startswith("--"):
                            continue
                        below = help(command) or ""
                        commands = below.partition("Commands:")[2].partition("\n\n")[0]
                        if not re.fullmatch("[a-z0-9-]+", word):
                            break
                        if not re.search(rf"^  {re.escape(word)}( |$)", commands, re.M):
                            # `weir netapp` is hidden; a word of a command that has none below it is its argument.
                            if commands and help((*command, word)) is None:
                                self.fail(f"{where}: no such command")
                            if not commands:
                                break
                        command = (*command, word)
                    said = help(command)
                    self.assertIsNotNone(said, where)
                    for flag in re.findall(r"(?<!\S)\[?(--[a-z][a-z0-9-]*)", text):
                        self.assertIn(flag, said + OWN_FLAGS.get(command[:1], ""), where)

    def test_nothing_is_forgotten(self):
        """The reader of blocks sees them: those of this test's own."""
        from blocks import Block
        block = Block("x", 1, "", ["weir a \\", "  --b  # c", "", "# only a comment", "weir d '#'"])
        self.assertEqual([c.text for c in block.commands], ["weir a --b", "weir d '#'"])
        session = Block("x", 1, "", ["$ weir a", "out", "$ weir b"])
        self.assertEqual([(c.text, c.shown) for c in session.commands], [("weir a", ["out"]), ("weir b", [])])
        self.assertEqual(Block("x", 1, "", ["some", "listing"]).commands, [])
        self.assertEqual(Block("x", 1, "python", ["weir a"]).commands, [])


# Flags that commands take out of a line by themselves.
OWN_FLAGS = {("snapmirror",): "--wait --destination-path"}


# --- what documents need before their first command

def big_file(place):
    """The file of README's session."""
    with open(os.path.join(place.folder, "big.iso"), "wb") as file:
        block = bytes(range(250)) * 400
        for _ in range(1000):
            file.write(block)


def relationship(place):
    """A copy of a volume, and lines to be read from a file."""
    for line in ("volume create -vserver weir -volume small -size 1GB",
                 "volume create -vserver weir -volume vol1_dst -size 1GB -type DP",
                 "snapmirror create -source-path weir:small -destination-path weir:vol1_dst"):
        place.shell(f"weir ontap '{line}'")
    place.shell("weir snapmirror initialize --destination-path weir:vol1_dst --wait")
    pathlib.Path(place.folder, "lines.txt").write_text("# a comment\n\n::> version\nsnapmirror show\n")


def of_ontap(place):
    """Ansible with its collection and NetApp's Python client, where conformance/ontap/run has put them."""
    venv = ontap_venv()
    if venv:
        place.env["PATH"] = f"{venv}/bin:{place.env['PATH']}"
        place.env["ANSIBLE_COLLECTIONS_PATH"] = f"{venv}/collections"
        place.env["ANSIBLE_PYTHON_INTERPRETER"] = f"{venv}/bin/python"


def prometheus(place):
    """promtool, where .ci/prometheus has put it."""
    place.env["PATH"] = f"{place.env['PATH']}:{PROMETHEUS}"


def terraform_provider(place):
    """Terraform takes the provider from the folder TERRAFORM_PROVIDERS."""
    path = pathlib.Path(place.folder, "terraformrc")
    path.write_text(f'provider_installation {{\n  dev_overrides {{ "hashicorp/google" = "{terraform.PROVIDERS}" }}\n  direct {{}}\n}}\n')
    place.env.update(TF_CLI_CONFIG_FILE=str(path), CHECKPOINT_DISABLE="1", TF_IN_AUTOMATION="1")


def bucket(place):
    """A bucket, and a volume to back up."""
    bucket = os.path.join(place.folder, "bucket")
    os.mkdir(bucket)
    place.always += ("--backup-bucket", bucket)
    place.serve()
    place.shell("weir storage-pools create pool --capacity=2TiB --service-level=premium")
    place.shell("weir volumes create home --storage-pool=pool --capacity=100 --protocols=nfsv3 --share-name=home")


def pool(place):
    """A pool for the volumes."""
    place.shell("weir storage-pools create p --capacity=2TiB --service-level=premium")


PREPARED = {"docs/operating/backups.md": bucket, "docs/start/prometheus.md": prometheus, "docs/start/ansible.md": of_ontap, "docs/start/ontap.md": of_ontap, "docs/start/terraform.md": terraform_provider, "README.md": big_file, "docs/reference/ontap.md": relationship, "docs/reference/cli.md": pool}


# --- blocks that are no commands

def announcement(place, block):
    """What `make serve` prints at its first start is what the server prints."""
    data = os.path.join(place.folder, "first")
    place.serve("--smb", "127.0.0.1:0", data=data)

    def sizes(text):
        return masked(re.sub(r"[\d.]+ [KMGT]iB", "SIZE", text))
    said = place.server.output().replace(data, "./weir-data")
    screen = said[said.index("listening on"):]
    place.case.assertEqual(sizes(block.text), sizes(screen)[:len(block.text.strip().splitlines())], str(block))


def screen(place, block):
    """The screen of `weir top` is the captured one, without the empty rows of its tables."""
    captured = (ROOT / "crates/cli/src/top/captured/screen-120x24.txt").read_text()
    rows = [line for line in captured.splitlines() if not re.fullmatch(r"│ *│", line)]
    place.case.assertEqual(block.text.splitlines(), rows, str(block))


def levels(place, block):
    """A server takes the service levels."""
    path = os.path.join(place.folder, "levels.toml")
    pathlib.Path(path).write_text(block.text)
    place.serve("--service-levels", path)


def expression(place, block):
    """The filter is one."""
    place.shell(place.replaced(f"weir volumes list --filter='{block.lines[0]}'"))


def python_client(place, block):
    """Google's library takes it, where conformance/api/run has put one."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    found = sorted(glob.glob(str(target / "api-venv-*/bin/python")))
    place.case.assertTrue(found, "conformance/api/run installs the library; run it first")
    path = pathlib.Path(place.folder, "client.py")
    path.write_text(place.replaced(block.text)
                    + "print(len(list(client.list_volumes(parent='projects/weir/locations/local'))))\n")
    place.case.assertEqual(place.shell(f"{found[-1]} {path}").split()[-1], "1", str(block))


def file(name, change=lambda text: text):
    """The block is a file of that name, which the commands below it read."""
    return lambda place, block: pathlib.Path(place.folder, name).write_text(change(place.replaced(block.text)))


def with_rules(text):
    """The alert rules are this checkout's, where the packages are not installed."""
    return text.replace("/usr/share/weir/alerts", str(ROOT / "packaging/prometheus"))


CHECKED = {
    ("docs/start/terraform.md", 'provider "google" {'): file("main.tf"),
    ("docs/start/ansible.md", "- hosts: localhost"): file("volume.yml"),
    ("docs/start/prometheus.md", "scrape_configs:"): file("prometheus.yml", with_rules),
    ("docs/start/ontap.md", "import os"): file("volumes.py"),
    ("README.md", "listening on 127.0.0.1:2049"): announcement,
    ("docs/operating/qos.md", (ROOT / "crates/cli/src/top/captured/screen-120x24.txt").read_text().split("\n")[0]): screen,
    ("docs/operating/provisioning.md", "[[pool-level]]"): levels,
    ("docs/reference/api.md", "labels.team=geo AND (capacityGib>=1024 OR serviceLevel=EXTREME) AND NOT name:test"): expression,
    ("docs/reference/api.md", "from google.cloud import netapp_v1"): python_client,
    ("docs/start/google-libraries.md", "import grpc"): python_client,
}

