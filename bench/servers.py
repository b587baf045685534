"""Weir and its peers under test: one server on a fresh data folder, from start to end."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from common import Failure, raise_limits, stop, wait_for, wait_for_log, wait_for_port, weir_command

# NFS and MOUNT of each, in a network namespace of their own.
PORTS = {"ganesha": (22049, 22050), "weir": (22051, 22051), "knfsd": (22052, 22053)}
NAMESPACE_FLAG = "WEIR_BENCH_NAMESPACE"

# What each has made durable when it answers a write that asked for it. Ganesha: observed
# with strace (fsync on FILE_SYNC and COMMIT, none on namespace changes). Weir: its promise
# (docs/reference/semantics.md). knfsd: exported with `sync` on a file system whose fsync is.
STABLE_WRITE = {"ganesha": "local disk (fsync)", "weir": "local log", "knfsd": "local disk (fsync)"}


def in_namespace():
    """Whether this process is the one in a namespace of its own."""
    return bool(os.environ.get(NAMESPACE_FLAG))


def enter_namespace(script):
    """Runs the script again in a network and mount namespace of its own."""
    if in_namespace():
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
        os.makedirs("/run/rpcbind", exist_ok=True)
        os.makedirs("/run/ganesha", exist_ok=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        return
    if os.geteuid() != 0:
        sys.exit(f"{Path(script).name}: run as root (Ganesha needs it)")
    os.environ[NAMESPACE_FLAG] = "1"
    os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, str(Path(script).resolve()),
                          *sys.argv[1:]])


def install_ganesha():
    if all(shutil.which(x, path=os.environ["PATH"] + ":/usr/sbin:/sbin")
           for x in ("ganesha.nfsd", "rpcbind")) and list(Path("/usr/lib").glob("*/ganesha/libfsalvfs.so")):
        return
    print("installing nfs-ganesha, nfs-ganesha-vfs, rpcbind", flush=True)
    env = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
    subprocess.run(["apt-get", "install", "-y", "-q", "--no-install-recommends",
                    "nfs-ganesha", "nfs-ganesha-vfs", "rpcbind"],
                   check=True, env=env, stdout=subprocess.DEVNULL)


def have_knfsd():
    """Why the kernel's server cannot be run here; empty when it can."""
    if shutil.which("modprobe"):
        subprocess.run(["modprobe", "nfsd"], capture_output=True)
    if "nfsd" not in Path("/proc/filesystems").read_text().split():
        return "this kernel has no nfsd"
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    missing = [x for x in ("rpc.nfsd", "rpc.mountd", "exportfs") if not shutil.which(x, path=path)]
    return f"{', '.join(missing)} missing (apt-get install nfs-kernel-server)" if missing else ""


GANESHA_CONFIG = """# Debian's default but for: one version and TCP only, fixed ports, no lock manager, no
# quota service (none of which the loads use), and no grace period for clients of before.
NFS_CORE_PARAM {{
    Protocols = {version};
    NFS_Port = {nfs};
    MNT_Port = {mount};
    Enable_NLM = false;
    Enable_RQUOTA = false;
    mount_path_pseudo = true;
    Plugins_Dir = {plugins};
}}
NFSv4 {{ Graceless = true; }}
EXPORT {{
    Export_Id = 1;
    Path = {data};
    Pseudo = /vol1;
    Access_Type = RW;
    Squash = No_Root_Squash;
    SecType = sys;
    Protocols = {version};
    Transports = TCP;
    FSAL {{ Name = VFS; }}
}}
LOG {{ Default_Log_Level = EVENT; }}
"""


class Server:
    """One server on one data folder, from start to end."""

    def __init__(self, kind, folder, weir, memory="", weir_args="", version=3):
        self.kind, self.folder, self.version = kind, folder, version
        self.nfs, self.mount = PORTS[kind]
        self.helpers = []
        data = folder / "data"
        data.mkdir(parents=True)
        log = open(folder / "server.log", "w")
        if kind == "knfsd":
            self.start_knfsd(data, log)
            return
        if kind == "ganesha":
            plugins = next(Path("/usr/lib").glob("*/ganesha/libfsalvfs.so")).parent
            config = folder / "ganesha.conf"
            config.write_text(GANESHA_CONFIG.format(nfs=self.nfs, mount=self.mount, data=data,
                                                    plugins=plugins, version=version))
            self.helpers.append(subprocess.Popen(["rpcbind", "-f", "-w"], stdout=log, stderr=log))
            wait_for_port(111, self.helpers[0])
            command = ["ganesha.nfsd", "-F", "-L", str(folder / "ganesha.log"), "-f", str(config),
                       "-p", str(folder / "ganesha.pid"), "-N", "NIV_EVENT"]
        else:
            ready = folder / "ready"
            command = weir_command(weir, data, self.nfs, ready, memory, weir_args)
        self.command = command
        self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder,
                                        preexec_fn=raise_limits)
        try:
            wait_for_port(self.nfs, self.process)
            if version == 3:
                wait_for_port(self.mount, self.process)
            if kind == "ganesha":
                # It listens a moment before it serves, and says so in its log only.
                wait_for(lambda: "NFS SERVER INITIALIZED" in (folder / "ganesha.log").read_text(),
                         self.process)
            else:
                wait_for(ready.exists, self.process)
                wait_for_log(folder / "server.log", self.process)
        except Failure:
            self.stop()
            raise

    def start_knfsd(self, data, log):
        """The kernel's server, in this network namespace. It has no process to watch;
        rpc.mountd stands for it."""
        run = lambda *command: subprocess.run(command, check=True, stdout=log, stderr=log)
        self.helpers.append(subprocess.Popen(["rpcbind", "-f", "-w"], stdout=log, stderr=log))
        wait_for_port(111, self.helpers[0])
        run("mount", "-t", "nfsd", "nfsd", "/proc/fs/nfsd")
        os.makedirs("/run/lib/nfs", exist_ok=True)
        run("mount", "-t", "tmpfs", "tmpfs", "/var/lib/nfs")
        for name in ("etab", "rmtab", "xtab", "state"):
            Path("/var/lib/nfs", name).touch()
        os.makedirs("/var/lib/nfs/v4recovery", exist_ok=True)
        run("exportfs", "-o", "rw,sync,no_root_squash,insecure,no_subtree_check,fsid=1",
            f"*:{data}")
        self.command = ["rpc.mountd", "-F", "-p", str(self.mount)]
        self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        run("rpc.nfsd", "-N", "4", "-p", str(self.nfs), "8")
        try:
            wait_for_port(self.nfs, self.process)
            wait_for_port(self.mount, self.process)
        except Failure:
            self.stop()
            raise

    def export(self):
        """The path that clients mount."""
        return str(self.folder / "data") if self.kind == "knfsd" else "/vol1"

    def target(self):
        """What tells the generator of this version where the server is."""
        mount = ["--mount-port", str(self.mount)] if self.version == 3 else []
        return ["--server", f"127.0.0.1:{self.nfs}", *mount, "--export", self.export()]

    def stop(self):
        if self.kind == "knfsd":
            for command in (["rpc.nfsd", "0"], ["exportfs", "-ua"], ["umount", "/proc/fs/nfsd"],
                            ["umount", "/var/lib/nfs"]):
                subprocess.run(command, capture_output=True)
        for process in [self.process, *self.helpers]:
            stop(process)

    def log_tail(self):
        out = ""
        for name in ("server.log", "ganesha.log"):
            path = self.folder / name
            if path.exists():
                out += "\n".join(path.read_text(errors="replace").splitlines()[-8:])
        return out
