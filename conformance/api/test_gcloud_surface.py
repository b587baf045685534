"""Every command of `gcloud netapp` and `gcloud filestore`, with every flag: each is carried out, or refused by name.

Commands and flags are those of the installed gcloud. A line here with a flag that it does not have is passed over; a command
or a flag of it that no line has fails the test.
"""

import os
import shlex
import shutil
import subprocess
import tempfile
import unittest

from weirtest import Case, Server, gcloud_environment

# What gcloud does by itself with what it has got; and a part of another flag, which is none by itself.
ITS_OWN = {"--async", "--filter", "--limit", "--page-size", "--sort-by", "--uri", "--backup_vault"}
# What gcloud 528 says without sending it.
UNSENT = {"netapp storage-pools update --active-directory", "beta netapp storage-pools update --active-directory"}
PLACE = "projects/p1/locations/us-central1"
DOMAIN = "--domain=gcloud.invalid --dns=127.0.0.1 --net-bios-prefix=gc --username=nobody --password=none"
POOL = "netapp storage-pools create x --capacity=2048 --network=name=default --service-level"
VOLUME = "netapp volumes create x --storage-pool=p --capacity=100 --share-name=x --protocols"
NEW_POOL = f"{PLACE}/storagePools/p"
SNAPSHOT = f"{PLACE}/volumes/v/snapshots/s"
VAULT = f"{PLACE}/backupVaults/bv"
POLICY = f"{PLACE}/backupPolicies/bp"
LABELS = "--update-labels=c=d --remove-labels=a"
DIRECTORY = "netapp active-directories"
REPLICATIONS = "netapp volumes replications"
# What to do instead.
DISK = "encrypt the disk below it"
USERS = "Users are the numbers that NFS clients send"
MAKE = "Make an instance from it"
INSTANCE = "filestore instances create x --tier=BASIC_HDD --network=name=default --file-share=name=x,capacity=1TB"

# Lines, without the location; with what gcloud says of the refusal, where it is one.
LINES = [
    # Pools.
    ("netapp storage-pools create p --capacity=8192 --service-level=premium --network=name=default --zone=us-central1-a"
     " --description=d --labels=a=b --allow-auto-tiering=false --enable-ldap=false", None),
    ("netapp storage-pools create flex --capacity=2048 --service-level=flex --network=name=default"
     " --custom-performance-enabled=true --total-throughput=200MiB/s --total-iops=4000", None),
    (f"{POOL}=premium --allow-auto-tiering=true", "there is one tier"),
    (f"{POOL}=premium --enable-ldap=true", "ldapEnabled"),
    (f"{POOL}=premium --kms-config=k", DISK),
    (f"{POOL}=flex --zone=us-central1-a --replica-zone=us-central1-b", "replicate its volumes to another one"),
    (f"{POOL}=premium --active-directory=none", "there is no Active Directory none"),
    (f"beta {POOL}=premium --hot-tier-size=1024 --enable-hot-tier-auto-resize=true", "there is one tier"),
    ("netapp storage-pools update p --capacity=9216 --description=e " + LABELS, None),
    ("netapp storage-pools update p --clear-labels", None),
    ("netapp storage-pools update flex --total-throughput=300MiB/s --total-iops=5000", None),
    ("netapp storage-pools update flex --zone=us-central1-b --replica-zone=us-central1-c", "replicate its volumes"),
    ("netapp storage-pools update p --allow-auto-tiering=true", "there is one tier"),
    ("beta netapp storage-pools update p --hot-tier-size=1024 --enable-hot-tier-auto-resize=true", "there is one tier"),
    ("netapp storage-pools switch flex", None),
    ("netapp storage-pools validate-directory-service p --directory-service-type=ACTIVE_DIRECTORY", "Users and groups are those that NFS clients send"),
    ("netapp storage-pools list", None),
    ("netapp storage-pools describe p", None),
    # Keys.
    ("netapp kms-configs list", None),
    ("netapp kms-configs create k --kms-location=us --kms-keyring=r --kms-key=k --kms-project=p --description=d --labels=a=b", "LUKS"),
    ("netapp kms-configs describe k", "kmsConfigs/k' was not found"),
    ("netapp kms-configs update k --kms-location=us --kms-keyring=r --kms-key=k --kms-project=p --description=e", "kmsConfigs/k' was not found"),
    ("netapp kms-configs update k " + LABELS, "kmsConfigs/k' was not found"),
    ("netapp kms-configs update k --clear-labels", "kmsConfigs/k' was not found"),
    ("netapp kms-configs encrypt k", "LUKS"),
    ("netapp kms-configs verify k", "LUKS"),
    ("netapp kms-configs delete k", "kmsConfigs/k' was not found"),
    # Directories: there is no domain to join here (conformance/ad/run has one).
    (f"{DIRECTORY} create ad {DOMAIN} --enable-aes=true --enable-ldap-signing=true --encrypt-dc-connections=true"
     " --kdc-hostname=kdc --kdc-ip=1.2.3.4 --organizational-unit=CN=Computers --description=d --labels=a=b", "adcli|join"),
    (f"{DIRECTORY} create x {DOMAIN} --site=s", "site"),
    (f"{DIRECTORY} create x {DOMAIN} --nfs-users-with-ldap=true", "nfsUsersWithLdap"),
    (f"{DIRECTORY} create x {DOMAIN} --administrators=a", "administrators"),
    (f"{DIRECTORY} create x {DOMAIN} --backup-operators=a", "backupOperators"),
    (f"{DIRECTORY} create x {DOMAIN} --security-operators=a", "securityOperators"),
    (f"{DIRECTORY} update ad {DOMAIN} --enable-aes=true --enable-ldap-signing=true --encrypt-dc-connections=true"
     " --kdc-hostname=kdc --kdc-ip=1.2.3.4 --organizational-unit=CN=Computers --description=e " + LABELS, "adcli|join"),
    (f"{DIRECTORY} update ad {DOMAIN} --site=s", "site"),
    (f"{DIRECTORY} update ad {DOMAIN} --nfs-users-with-ldap=true", "nfsUsersWithLdap"),
    (f"{DIRECTORY} update ad {DOMAIN} --administrators=a", "administrators"),
    (f"{DIRECTORY} update ad {DOMAIN} --backup-operators=a", "backupOperators"),
    (f"{DIRECTORY} update ad {DOMAIN} --security-operators=a", "securityOperators"),
    (f"{DIRECTORY} update ad {DOMAIN} --clear-labels", "adcli|join"),
    (f"{DIRECTORY} list", None),
    (f"{DIRECTORY} describe ad", None),
    (f"{DIRECTORY} delete ad", None),
    # Volumes.
    ("netapp volumes create v --storage-pool=p --capacity=1024 --share-name=v --protocols=nfsv3,nfsv4 --description=d --labels=a=b"
     " --unix-permissions=0750 --snap-reserve=10 --snapshot-directory=false --security-style=unix"
     " --export-policy=allowed-clients=10.0.0.0/8,has-root-access=true,access-type=READ_WRITE,nfsv3=true,nfsv4=true"
     " --snapshot-hourly=snapshots-to-keep=2,minute=1 --snapshot-daily=snapshots-to-keep=2,hour=1"
     " --snapshot-weekly=snapshots-to-keep=2,day=Monday --snapshot-monthly=snapshots-to-keep=2,day=1", None),
    ("netapp volumes create m --storage-pool=p --capacity=100 --share-name=m --protocols=smb --smb-settings=encrypt_data"
     " --restricted-actions=delete", None),
    (f"{VOLUME}=nfsv3 --smb-settings=encrypt_data", "a volume with SMB among its protocols"),
    (f"{VOLUME}=nfsv3 --large-capacity=true", "15 TiB"),
    (f"{VOLUME}=nfsv4 --enable-kerberos=true", "kerberos5ReadWrite"),
    (f"{VOLUME}=nfsv3 --multiple-endpoints=true", "nconnect=16"),
    (f"{VOLUME}=nfsv3 --tiering-policy=tier-action=ENABLED", "there is one tier"),
    (f"{VOLUME}=nfsv3 --hybrid-replication-parameters=peer-cluster-name=c,peer-svm-name=s,peer-volume-name=v,"
     "peer-ip-addresses=1.2.3.4,replication=r", "start it with --replication"),
    ("netapp volumes update v --capacity=1100 --description=e --unix-permissions=0700 --snap-reserve=5 --snapshot-directory=true"
     " --security-style=unix --protocols=nfsv3 --storage-pool=p " + LABELS, None),
    ("netapp volumes update v --clear-labels --export-policy=allowed-clients=11.0.0.0/8,access-type=READ_ONLY,nfsv3=true"
     " --snapshot-hourly=snapshots-to-keep=3,minute=1 --snapshot-daily=snapshots-to-keep=3,hour=1"
     " --snapshot-weekly=snapshots-to-keep=3,day=Monday --snapshot-monthly=snapshots-to-keep=3,day=1", None),
    ("netapp volumes update m --restricted-actions=delete", None),
    ("netapp volumes update m --smb-settings=encrypt_data,access_based_enumeration", None),
    ("netapp volumes update v --share-name=w", "cannot be changed"),
    ("netapp volumes update v --enable-kerberos=true", "kerberos5ReadWrite"),
    ("netapp volumes update v --tiering-policy=tier-action=ENABLED", "there is one tier"),
    ("netapp volumes update v --source-snapshot=s", "cannot be changed"),
    ("netapp volumes update v --source-backup=b", "cannot be changed"),
    ("netapp volumes list", None),
    ("netapp volumes describe v", None),
    # Snapshots.
    ("netapp volumes snapshots create s --volume=v --description=d --labels=a=b", None),
    ("netapp volumes snapshots update s --volume=v --description=e " + LABELS, None),
    ("netapp volumes snapshots update s --volume=v --clear-labels", None),
    ("netapp volumes snapshots list --volume=v", None),
    ("netapp volumes snapshots describe s --volume=v", None),
    (f"netapp volumes create c --storage-pool=p --capacity=1100 --share-name=c --protocols=nfsv3 --source-snapshot={SNAPSHOT}", None),
    ("netapp volumes delete c --force", None),
    ("netapp volumes revert v --snapshot=s", None),
    ("netapp volumes snapshots create t --volume=v", None),
    ("netapp volumes snapshots delete t --volume=v", None),
    # Quotas.
    ("netapp volumes quota-rules create q --volume=v --type=INDIVIDUAL_USER_QUOTA --target=1001 --disk-limit-mib=100"
     " --description=d --labels=a=b", None),
    ("netapp volumes quota-rules update q --volume=v --disk-limit-mib=200 --description=e " + LABELS, None),
    ("netapp volumes quota-rules update q --volume=v --clear-labels", None),
    ("netapp volumes quota-rules list --volume=v", None),
    ("netapp volumes quota-rules describe q --volume=v", None),
    ("netapp volumes quota-rules delete q --volume=v", None),
    # Replications.
    (f"{REPLICATIONS} create r --volume=v --replication-schedule=HOURLY --description=d --labels=a=b"
     f" --destination-volume-parameters=storage_pool={NEW_POOL},volume_id=rv,share_name=rv", None),
    (f"{REPLICATIONS} create x --volume=v --replication-schedule=HOURLY --cluster-location=x"
     f" --destination-volume-parameters=storage_pool={NEW_POOL},volume_id=x", "Name the peer when its volume is made"),
    (f"{REPLICATIONS} update r --volume=v --replication-schedule=DAILY --description=e {LABELS}", None),
    (f"{REPLICATIONS} update r --volume=v --clear-labels", None),
    (f"{REPLICATIONS} update r --volume=v --cluster-location=x", "Name the peer when its volume is made"),
    (f"{REPLICATIONS} list --volume=v", None),
    (f"{REPLICATIONS} describe r --volume=v", None),
    (f"{REPLICATIONS} sync r --volume=v", None),
    (f"{REPLICATIONS} establish-peering r --volume=v --peer-cluster-name=c --peer-svm-name=s --peer-volume-name=v"
     " --peer-ip-addresses=1.2.3.4", "The replication copies"),
    (f"{REPLICATIONS} stop r --volume=v --force", None),
    (f"{REPLICATIONS} resume r --volume=v", None),
    (f"{REPLICATIONS} stop r --volume=v --force", None),
    (f"{REPLICATIONS} reverse r --volume=v", None),
    (f"{REPLICATIONS} stop r --volume=v --force", None),
    (f"{REPLICATIONS} delete r --volume=v", None),
    # Backups.
    ("netapp backup-vaults create bv --description=d --labels=a=b", None),
    ("netapp backup-vaults create x --backup-retention-policy=backup-minimum-enforced-retention-days=2", "the bucket's own retention"),
    ("beta netapp backup-vaults create x --backup-vault-type=CROSS_REGION --backup-region=us-east1", "the bucket has its own place"),
    ("netapp backup-vaults update bv --description=e " + LABELS, None),
    ("netapp backup-vaults update bv --clear-labels", None),
    ("netapp backup-vaults update bv --backup-retention-policy=backup-minimum-enforced-retention-days=2", "the bucket's own retention"),
    ("netapp backup-vaults list", None),
    ("netapp backup-vaults describe bv", None),
    (f"netapp backup-vaults backups create b --backup-vault=bv --source-volume={PLACE}/volumes/v --description=d --labels=a=b", None),
    # An older snapshot than that of the backup before.
    (f"netapp backup-vaults backups create b2 --backup-vault=bv --source-volume={PLACE}/volumes/v --source-snapshot={SNAPSHOT}", None),
    ("netapp backup-vaults backups update b --backup-vault=bv --description=e " + LABELS, None),
    ("netapp backup-vaults backups update b --backup-vault=bv --clear-labels", None),
    ("netapp backup-vaults backups list --backup-vault=bv", None),
    ("netapp backup-vaults backups describe b --backup-vault=bv", None),
    (f"netapp volumes create rb --storage-pool=p --capacity=1100 --share-name=rb --protocols=nfsv3 --source-backup={VAULT}/backups/b", None),
    (f"netapp volumes restore-backup-files v --backup={VAULT}/backups/b --file-list=/none --restore-destination-path=/back", "none|back"),
    ("netapp backup-policies create bp --daily-backup-limit=3 --weekly-backup-limit=2 --monthly-backup-limit=1 --enabled=true"
     " --description=d --labels=a=b", None),
    ("netapp backup-policies update bp --daily-backup-limit=4 --weekly-backup-limit=3 --monthly-backup-limit=2 --enabled=false"
     " --description=e " + LABELS, None),
    ("netapp backup-policies update bp --clear-labels", None),
    ("netapp backup-policies list", None),
    ("netapp backup-policies describe bp", None),
    ("netapp volumes create bc --storage-pool=p --capacity=100 --share-name=bc --protocols=nfsv3"
     f" --backup-config=backup-vault={VAULT}", None),
    (f"netapp volumes update v --backup-config=backup-policies={POLICY},backup-vault={VAULT},enable-scheduled-backups=true", None),
    ("netapp backup-policies delete bp", "change its backupConfig first"),
    ("netapp backup-vaults backups delete b2 --backup-vault=bv", None),
    ("netapp backup-vaults delete bv", "change its backupConfig first"),
    # The rest.
    ("netapp operations list", None),
    ("netapp operations describe none", "was not found"),
    ("netapp locations list", None),
    ("netapp locations describe us-central1", None),
    ("netapp storage-pools delete p", "FAILED_PRECONDITION"),
    # Filestore.
    ("filestore instances create i --tier=BASIC_HDD --network=name=default --file-share=name=i,capacity=1TB --description=d --labels=a=b"
     " --deletion-protection --deletion-protection-reason=r --protocol=nfs-v3", None),
    ("filestore instances create z --tier=ZONAL --network=name=default --file-share=name=z,capacity=1TB"
     " --performance=max-iops-per-tb=9000", None),
    (f"{INSTANCE} --kms-key=k --kms-keyring=r --kms-location=us --kms-project=p", DISK),
    (f"{INSTANCE} --source-instance={PLACE}/instances/i", "Replicate volumes of NetApp Volumes"),
    (f"{INSTANCE} --tags=tagKeys/1=tagValues/2", None),
    (f"beta {INSTANCE} --managed-ad=domain=projects/p/locations/global/domains/d,computer=c", USERS),
    ("filestore instances update i --description=e --deletion-protection --deletion-protection-reason=s"
     " --file-share=name=i,capacity=2TB " + LABELS, None),
    ("filestore instances update i --no-deletion-protection", None),
    ("filestore instances update i --clear-labels", None),
    ("filestore instances update i --clear-nfs-export-options --file-share=name=i,capacity=2TB", None),
    ("filestore instances update z --performance=max-iops-per-tb=10000", None),
    ("beta filestore instances update i --managed-ad=domain=projects/p/locations/global/domains/d,computer=c", USERS),
    # gcloud's own words: the instance has none.
    ("beta filestore instances update i --disconnect-managed-ad", "must be used when"),
    ("filestore instances list", None),
    ("filestore instances describe i", None),
    ("filestore instances snapshots create s --instance=i --instance-location=us-central1 --description=d --labels=a=b", None),
    ("filestore instances snapshots update s --instance=i --instance-location=us-central1 --description=e " + LABELS, None),
    ("filestore instances snapshots update s --instance=i --instance-location=us-central1 --clear-labels", None),
    ("filestore instances snapshots list --instance=i --instance-location=us-central1", None),
    ("filestore instances snapshots describe s --instance=i --instance-location=us-central1", None),
    ("filestore instances revert i --target-snapshot=s", None),
    ("filestore instances snapshots delete s --instance=i --instance-location=us-central1", None),
    ("filestore backups create b --region=us-central1 --instance=i --instance-location=us-central1 --file-share=i --description=d"
     " --labels=a=b", None),
    ("filestore backups create x --region=us-central1 --instance=i --instance-location=us-central1 --file-share=i --kms-key=k", DISK),
    ("filestore backups create t --region=us-central1 --instance=i --instance-location=us-central1 --file-share=i"
     " --tags=tagKeys/1=tagValues/2", None),
    ("filestore backups update b --region=us-central1 --description=e " + LABELS, None),
    ("filestore backups update b --region=us-central1 --clear-labels", None),
    ("filestore backups list", None),
    ("filestore backups describe b --region=us-central1", None),
    ("filestore instances restore i --zone=us-central1 --file-share=i --source-backup=b --source-backup-region=us-central1", MAKE),
    ("beta filestore instances restore i --location=us-central1 --file-share=i --source-backup=b --source-backup-region=us-central1", MAKE),
    ("filestore instances promote-replica i --peer-instance=j", "Replicate volumes"),
    ("filestore backups delete b --region=us-central1", None),
    ("filestore operations list", None),
    ("filestore operations describe none", "was not found"),
    ("filestore operations cancel none", "was not found"),
    ("filestore locations list", None),
    ("filestore locations describe us-central1", None),
    ("filestore regions list", None),
    ("filestore zones list", None),
    ("filestore instances delete i --force", None),
]
# Other words for the location.
PLACES = {"--location", "--zone", "--region", "--instance-zone", "--instance-region", "--instance-location"}


def surface():
    """The commands below `netapp` and `filestore` in two tracks, with their flags."""
    root = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("gcloud"))))
    found = {}
    with open(os.path.join(root, "data/cli/gcloud_completions.py"), encoding="utf-8") as file:
        exec(file.read(), found)
    out = {}

    def walk(node, path):
        commands = node.get("commands", {})
        if not commands:
            out[" ".join(path)] = set(node.get("flags", {})) - ITS_OWN
        for name, below in commands.items():
            walk(below, [*path, name])

    for track in ([], ["beta"]):
        top = found["STATIC_COMPLETION_CLI_TREE"]
        for name in track:
            top = top["commands"][name]
        for name in ("netapp", "filestore"):
            walk(top["commands"][name], [*track, name])
    return out


def parted(line, commands):
    """The command of a line, and its flags."""
    words = shlex.split(line)
    count = max(n for n in range(1, len(words) + 1) if any(c.split()[:n] == words[:n] for c in commands))
    flags = {word.split("=")[0].replace("--no-", "--") for word in words if word.startswith("--")}
    return " ".join(words[:count]), flags


@unittest.skipUnless(shutil.which("gcloud"), "gcloud is not installed")
class Surface(Case):
    @classmethod
    def setUpClass(cls):
        cls.bucket = tempfile.mkdtemp(prefix="weir-bucket-")
        cls.addClassCleanup(shutil.rmtree, cls.bucket, ignore_errors=True)
        cls.server = Server("--backup-bucket", cls.bucket)
        cls.addClassCleanup(cls.server.stop)
        cls.environment = gcloud_environment(cls)
        cls.commands = surface()

    def test_no_command_and_no_flag_is_left_out(self):
        said = {}
        for line, _ in LINES:
            command, flags = parted(line, self.commands)
            said.setdefault(command, set()).update(flags)
        missing = []
        for command, flags in self.commands.items():
            # What beta has besides is said there; the rest is the same.
            plain = command.removeprefix("beta ")
            have = said.get(command, set()) | said.get(plain, set())
            if command not in said and plain not in said:
                missing.append(command)
            missing += [f"{command} {flag}" for flag in sorted(flags - have - PLACES) if f"{command} {flag}" not in UNSENT]
        self.assertEqual(missing, [])

    def test_each_is_carried_out_or_refused_by_name(self):
        wrong = []
        for line, refusal in LINES:
            command, flags = parted(line, self.commands)
            has = self.commands.get(command)
            if has is None or not {f for f in flags if f not in PLACES} <= has:
                continue
            known = {"--location", "--zone"} if "filestore" in command.split() else {"--location"}
            place = ["--location=us-central1"] if "--location" in has and not flags & known else []
            ran = subprocess.run(["gcloud", *shlex.split(line), *place, "--quiet"], env=self.environment, capture_output=True,
                                 text=True, timeout=180)
            said = " ".join(ran.stderr.replace("\\\n", "").split())
            # YAML breaks long lines within quotation marks.
            said = said.replace("\\ ", "")
            ok = ran.returncode == 0 if refusal is None else ran.returncode == 1 and self.names(refusal, said)
            if not ok:
                wrong.append(f"{line}: {ran.returncode} {said[-600:]}")
        self.assertEqual(wrong, [], "\n".join(wrong))

    @staticmethod
    def names(refusal, said):
        """Whether a refusal is one by name: not of a path that does not exist."""
        return "NO_SUCH" not in said and any(part in said for part in refusal.split("|"))


if __name__ == "__main__":
    unittest.main()
