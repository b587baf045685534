#!/usr/bin/env python3
"""The commands that the doctor prints, on a tree of files in place of a machine: modprobe, sysctl, mount, umount,
mountpoint, and `reboot`. As strict as the real ones: what they refuse, ends with 1. ROOT names the tree."""
import os
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(os.environ["ROOT"])
INFO, STATS = ROOT / "proc/self/mountinfo", ROOT / "proc/self/mountstats"


def die(text):
    sys.exit(f"{sys.argv[1]}: {text}")


def real(path):
    """The file behind a path of the tree."""
    path, depth = ROOT / path.lstrip("/"), 0
    while path.is_symlink() and depth < 10:
        to = os.readlink(path)
        path, depth = (ROOT / to.lstrip("/") if to.startswith("/") else path.parent / to), depth + 1
    return path


def lines(path):
    file = real(path)
    text = file.read_text() if file.exists() else ""
    return [l.strip() for l in text.splitlines() if l.strip() and l.strip()[0] not in "#;"]


def conf(folder):
    return sorted(f"{folder}/{p.name}" for p in (ROOT / folder.lstrip("/")).glob("*.conf"))


def sysctls(pattern=""):
    """What `sysctl --system` would set, later files over earlier ones."""
    found = {}
    for path in conf("/etc/sysctl.d") + ["/etc/sysctl.conf"]:
        for line in lines(path):
            name, eq, value = line.partition("=")
            if eq and name.strip().startswith(pattern):
                found[name.strip()] = value.strip()
    return found


def set_sysctl(name, value):
    file = ROOT / "proc/sys" / name.replace(".", "/")
    if not file.exists():
        return False
    file.write_text("\t".join(value.split()) + "\n")
    return True


def options(module):
    """What modprobe gives a module; a line in quotation marks is none."""
    found = {}
    for path in conf("/etc/modprobe.d"):
        for line in lines(path):
            words = line.split()
            if words[:2] == ["options", module]:
                found.update(w.partition("=")[::2] for w in words[2:])
    return found


def modprobe(module):
    slots = ROOT / "proc/sys/sunrpc/tcp_max_slot_table_entries"
    if not slots.exists():
        slots.parent.mkdir(parents=True, exist_ok=True)
        slots.write_text(options("sunrpc").get("tcp_max_slot_table_entries", "65536") + "\n")
        if any(l.startswith("install sunrpc") for p in conf("/usr/lib/modprobe.d") for l in lines(p)):
            for name, value in sysctls("sunrpc").items():
                set_sysctl(name, value)
    if module == "nfs":
        session = ROOT / "sys/module/nfs/parameters/max_session_slots"
        if not session.exists():
            session.parent.mkdir(parents=True, exist_ok=True)
            session.write_text(options("nfs").get("max_session_slots", "64") + "\n")


def escape(text):
    return text.replace(" ", "\\040")


def unescape(text):
    return text.replace("\\040", " ")


def mounts():
    found = []
    for line in INFO.read_text().splitlines():
        before, after = line.split(" - ")
        b, a = before.split(), after.split()
        found.append(dict(device=b[2], point=unescape(b[4]), kind=a[0], what=unescape(a[1]),
                          options=dict(w.partition("=")[::2] for w in a[2].split(",")), line=line))
    return found


def blocks():
    return re.findall(r"device .*\n(?:[ \t].*\n)*", STATS.read_text())


def umount(point):
    here = [m for m in mounts() if m["point"] == point]
    here or die(f"{point}: not mounted")
    any(m["point"].startswith(point.rstrip("/") + "/") for m in mounts()) and die(f"{point}: target is busy")
    INFO.write_text("".join(m["line"] + "\n" for m in mounts() if m["point"] != point))
    shutil.rmtree(ROOT / "sys/class/bdi" / here[0]["device"], ignore_errors=True)
    gone = [b for b in blocks() if f" mounted on {escape(point)} " in b]
    STATS.write_text("".join(b for b in blocks() if b not in gone))
    keep = ROOT / "kept"
    keep.mkdir(exist_ok=True)
    for block in gone:
        calls = "".join(l + "\n" for l in block.splitlines() if "GETATTR" in l)
        (keep / point.replace("/", "_")).write_text(calls)


def mount(kind, opts, what, point):
    version = (ROOT / "proc/version").read_text().split()[2]
    given = dict(w.partition("=")[::2] for w in opts.split(",") if w != "defaults")
    if "nconnect" in given and version.startswith("4.18.0-193"):
        die("an incorrect mount option was specified")
    if "multichannel" in given and version.startswith("5.4"):
        die("an incorrect mount option was specified")
    any(m["point"] == point for m in mounts()) and die(f"{point}: already mounted")
    host = what.split(":/")[0] if kind.startswith("nfs") else what.split("/")[2]
    address = (ROOT / "hosts" / host).read_text() if (ROOT / "hosts" / host).exists() else host
    device = f"0:{max([int(m['device'].split(':')[1]) for m in mounts()] + [30]) + 1}"
    read_ahead = "128"
    if kind.startswith("nfs"):
        modprobe("nfs")
        vers = given.get("vers", given.get("nfsvers", "4.2"))
        kind = "nfs" if vers == "3" else "nfs4"
        proto = given.get("proto", "udp" if "udp" in given else "tcp")
        connections = [b for b in blocks() if f"addr={address}\n" in b + "\n" or f"ADDRESS {address} {vers}\n" in b]
        count = connections[0].count("xprt:") if connections else int(given.get("nconnect", 1))
        sizes = {n: str(min(int(given.get(n, 1 << 20)), 1 << 20)) for n in ("rsize", "wsize")}
        shown = {"vers": vers, **sizes, "namlen": "255", "soft" if "soft" in given else "hard": "", "proto": proto,
                 "timeo": given.get("timeo", "600"), "retrans": given.get("retrans", "2"), "sec": "sys"}
        if count > 1:
            shown["nconnect"] = str(count)
        for word in ("sync", "noac", "nolock", "ro"):
            if word in given:
                shown[word] = ""
        if given.get("actimeo") == "0":
            shown.update({w: "0" for w in ("acregmin", "acregmax", "acdirmin", "acdirmax")})
        calls = ROOT / "kept" / point.replace("/", "_")
        text = ",".join(f"{k}={v}" if v else k for k, v in shown.items())
        STATS.write_text(STATS.read_text() + f"device {what} mounted on {escape(point)} with fstype {kind} statvers=1.1\n"
                         f"\topts:\trw,{text}\n\tage:\tADDRESS {address} {vers}\n"
                         + "\txprt:\ttcp 800 1 1 0 0 10 10 0 10 0 2 0 0\n" * count
                         + (calls.read_text() if calls.exists() else ""))
        ahead = [l for l in lines("/etc/nfs.conf.d/read-ahead.conf") if l.startswith(kind + "=")]
        if ahead and (ROOT / "usr/libexec/nfsrahead").exists():
            read_ahead = ahead[0].split("=")[1]
        bdi = ROOT / "sys/class/bdi" / device
        bdi.mkdir(parents=True)
        (bdi / "read_ahead_kb").write_text(read_ahead + "\n")
    else:
        text = ",".join(f"{k}={v}" if v else k for k, v in given.items())
    flags = ",".join(["rw"] + [f for f in ("nosuid", "nodev", "noexec") if f in given])
    INFO.write_text(INFO.read_text() + f"90 1 {device} / {escape(point)} {flags} shared:1 - {kind} {escape(what)} rw,{text},addr={address}\n")


def fstab():
    for line in lines("/etc/fstab"):
        what, point, kind, *rest = line.split()
        if kind in ("nfs", "nfs4", "cifs"):
            yield kind, rest[0] if rest else "defaults", unescape(what), unescape(point).rstrip("/") or "/"


def reboot():
    INFO.write_text("")
    STATS.write_text("")
    shutil.rmtree(ROOT / "sys/class/bdi", ignore_errors=True)
    for module in ("proc/sys/sunrpc/tcp_max_slot_table_entries", "sys/module/nfs/parameters/max_session_slots"):
        (ROOT / module).unlink(missing_ok=True)
    for name, value in sysctls().items():
        set_sysctl(name, value)
    for kind, opts, what, point in fstab():
        mount(kind, opts, what, point)


command, args = sys.argv[1], sys.argv[2:]
if command == "modprobe":
    modprobe(*args)
elif command == "sysctl":
    args[0] == "-w" or die("unknown")
    set_sysctl(*args[1].split("=", 1)) or die(f"cannot stat {args[1]}")
elif command == "umount":
    umount(*args)
elif command == "mountpoint":
    found = [m for m in mounts() if m["point"] == args[1]]
    found or die("not a mountpoint")
    print(found[0]["device"])
elif command == "mount" and len(args) == 1:
    found = [f for f in fstab() if f[3] == args[0]]
    found or die(f"{args[0]}: can't find in /etc/fstab")
    mount(*found[0])
elif command == "mount":
    args[0] == "-t" and args[2] == "-o" and len(args) == 6 or die(f"bad usage: {args}")
    mount(args[1], *args[3:])
elif command == "reboot":
    reboot()
else:
    die("unknown")
