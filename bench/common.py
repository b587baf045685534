"""What the measuring scripts share."""

import argparse
import json
import os
import resource
import shlex
import signal
import socket
import statistics
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def executable(text):
    """An argument that names a program, which is started from other folders later."""
    path = Path(text).resolve()
    if not os.access(path, os.X_OK):
        raise argparse.ArgumentTypeError(f"{text} is no program")
    return path


class Failure(Exception):
    """Something under test did not do what it should."""


def measured(command, out):
    """The result of a generator's command, which writes it to the file `out`."""
    done = subprocess.run([*command, "--json", str(out)], capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"{shlex.join(command)}: {(done.stderr or done.stdout).strip()}")
    return json.loads(out.read_text())


def raise_limits():
    """Both servers get the limit of open files that packaged services usually get."""
    want = 1048576
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (want, want))
    except (ValueError, OSError):
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def wait_for(condition, process, seconds=60):
    """Waits until the condition holds, for as long as the process lives."""
    deadline = time.monotonic() + seconds
    while not condition():
        if process.poll() is not None:
            raise Failure(f"ended with {process.returncode} before it served")
        if time.monotonic() > deadline:
            raise Failure(f"does not serve after {seconds} s")
        time.sleep(0.02)


def wait_for_port(port, process):
    def listens():
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False
    wait_for(listens, process)


def wait_for_log(log, process, seconds=60):
    """Waits until a Weir has said in its log that its intent log is preallocated, which it does beside the first requests: what is
    measured is a server at work. The second text is that of Weir before 2026-11-28."""
    said = ("intent log preallocated", "ring is prepared")
    wait_for(lambda: any(text in log.read_text(errors="replace") for text in said), process, seconds)


def stop(process, seconds=20):
    """Ends a process of ours: politely, then not."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def shell(command):
    """Standard output of a shell command."""
    return subprocess.run(command, shell=True, capture_output=True, text=True).stdout.strip()


def weir_command(binary, data, port, ready, memory="", more=""):
    """The command line of a Weir under test."""
    command = [str(binary), "serve", "--data", str(data), "--nfs", f"127.0.0.1:{port}",
               "--no-rpcbind", "--api", "off", "--ready-file", str(ready)]
    if memory:
        command += ["--memory", memory]
    return command + shlex.split(more)


def create_root(weir, data, password, log):
    """Makes the SMB user root of a Weir under test; `password`: a file."""
    with open(password) as line:
        subprocess.run([str(weir), "users", "create", "root", "--uid", "0", "--data", str(data)], check=True, stdin=line,
                       stdout=log, stderr=log)


def smb_target(port, password):
    """What tells the generator of SMB where the server is, and who it is; `password`: a file."""
    return ["smb", "--server", f"127.0.0.1:{port}", "--user", "root", "--password-file", str(password)]


def preconditioning(passes):
    """What a report says of `precondition`."""
    return f"Before it is measured, each new server has written {passes} GiB to a set of 1 GiB, and removed it."


def value_of(result, unit):
    """The rate of a generator's result, in operations or MiB a second."""
    return result["ops_per_s"] if unit == "ops/s" else result["mib_per_s"]


def spread(values, form="{:,.0f}"):
    """The median for a table, with the least and the greatest of several."""
    if not values:
        return "–"
    middle = form.format(statistics.median(values))
    if len(values) == 1:
        return middle
    return f"{middle} ({form.format(min(values))}–{form.format(max(values))})"


def precondition(generator, passes, *more):
    """Has a new server write 1 GiB so many times and remove it, by the generator's command with its target; `more`: options of it.
    SNIA's test specification has devices written twice before they are measured. The first touch of a page costs a virtual
    machine 2 to 9 µs, since its host has to find it, and blocks that a file has never had cost the host's file system a third of
    its speed: a server that has been at work has both."""
    load = f"write -p sequential -b 256k -c 8 -d 4 -s 1g --files 8 --dir before -n {passes << 12} --warmup 0"
    command = [*generator, *shlex.split(load), *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise Failure(f"{shlex.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    os.sync()


def disk_latency(work):
    """Median and 99th percentile of 4 KiB O_DSYNC writes into a preallocated,
    zero-written file, in µs: what the disk charges for durability."""
    path = work / "dsync-probe"
    fd = os.open(path, os.O_CREAT | os.O_RDWR | os.O_DSYNC, 0o600)
    try:
        os.write(fd, bytes(4 << 20))
        times = []
        block = os.urandom(4096)
        for i in range(300):
            start = time.perf_counter()
            os.pwrite(fd, block, (i % 1000) * 4096)
            times.append((time.perf_counter() - start) * 1e6)
    finally:
        os.close(fd)
        path.unlink()
    times.sort()
    return times[150], times[297]


def machine_facts(work):
    """What a reader of the figures needs to know about the machine and the source."""
    p50, p99 = disk_latency(work)
    return {
        "cpu": shell("grep -m1 'model name' /proc/cpuinfo | cut -d: -f2-"),
        "cores": os.cpu_count(),
        "memory": shell("grep MemTotal /proc/meminfo | tr -s ' ' | cut -d' ' -f2-"),
        "kernel": shell("uname -sr"),
        "system": shell(". /etc/os-release; echo $PRETTY_NAME"),
        "file system": shell(f"findmnt -n -o FSTYPE,OPTIONS -T {shlex.quote(str(work))}"),
        "4 KiB O_DSYNC write, p50 / p99": f"{p50:.0f} / {p99:.0f} µs",
        "load average at the start": shell("cut -d' ' -f1-3 /proc/loadavg"),
        "commit": shell(f"git -C {shlex.quote(str(ROOT))} rev-parse HEAD") + (
            " with local changes" if shell(f"git -C {shlex.quote(str(ROOT))} status --porcelain "
                                           "--untracked-files=no") else ""),
    }
