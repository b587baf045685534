"""The server as a service: settings file and environment, messages to the service manager, SIGHUP."""

import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile

WEIR = os.path.abspath(sys.argv[1])


def serve(*words, **variables):
    """Runs `weir serve`, which is to end by itself; returns its exit status and what it printed."""
    ran = subprocess.run([WEIR, "serve", *words], env={**os.environ, **variables}, text=True,
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
    return ran.returncode, ran.stdout


def settings_are_checked(folder):
    good = os.path.join(folder, "good.toml")
    with open(good, "w") as f:
        f.write('data = "never-made"\nmemory = "256M"\nlookup-groups = true\n')
    status, out = serve("--config", good, "--check-config")
    assert (status, out) == (0, "the settings are valid\n"), out
    assert not os.path.exists("never-made")
    # The environment counts more than the file, the command line more than either.
    status, out = serve("--config", good, "--check-config", WEIR_MEMORY="1M")
    assert status == 2 and "cannot use --memory 1 MiB: it must be 64 MiB to " in out, out
    status, out = serve("--config", good, "--check-config", "--memory=256M", WEIR_MEMORY="1M")
    assert status == 0, out
    status, out = serve("--check-config", WEIR_SERVE_CONFIG=good, WEIR_LOOKUP_GROUPS="maybe")
    assert status == 2 and "--lookup-groups" in out, out
    bad = os.path.join(folder, "bad.toml")
    for text, fault in [
        ("data = 'd'\nmemry = 1\n", "bad.toml:2: unknown key 'memry'"),
        ("data = 'd'\n\nnfs = 'nowhere'\n", "bad.toml:3: invalid value 'nowhere' for '--nfs"),
        ("data = 'd'\nlog = '=,'\n", "bad.toml:2: invalid value"),
        ("data = \n", "bad.toml:1: "),
    ]:
        with open(bad, "w") as f:
            f.write(text)
        status, out = serve("--config", bad, "--check-config")
        assert status == 2 and fault in out and "panic" not in out, out
    status, out = serve("--config", os.path.join(folder, "none.toml"))
    assert status == 2 and "cannot read configuration file" in out, out


def the_manager_is_told(folder):
    name = f"weir-test-{os.getpid()}"
    told = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    told.bind("\0" + name)
    told.settimeout(60)

    def until(words):
        while True:
            message = told.recv(4096).decode().split("\n")
            if words in message:
                return message

    config, data = os.path.join(folder, "weir.toml"), os.path.join(folder, "data")
    ready, log = os.path.join(folder, "ready"), os.path.join(folder, "log")

    def configure(*more):
        with open(config, "w") as f:
            f.write("\n".join([f'data = "{data}"', f'ready-file = "{ready}"', 'nfs = "127.0.0.1:0"',
                               'api = "127.0.0.1:0"', 'api-tls = "generate"', 'memory = "256M"',
                               "no-rpcbind = true", 'log-format = "json"', *more, ""]))

    configure()
    with open(log, "wb") as out:
        environment = {**os.environ, "NOTIFY_SOCKET": "@" + name, "WATCHDOG_USEC": "2000000"}
        server = subprocess.Popen([WEIR, "serve", "--config", config], env=environment,
                                  stdout=out, stderr=out)
    lines = lambda: open(log).read()
    try:
        assert any(m.startswith("STATUS=") for m in until("EXTEND_TIMEOUT_USEC=60000000"))
        until("READY=1")
        address = open(ready).readline().strip()
        assert socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1])))
        until("WATCHDOG=1")
        until("WATCHDOG=1")
        api = ("127.0.0.1", int(re.search(r"https://127\.0\.0\.1:(\d+)", lines()).group(1)))
        first = ssl.get_server_certificate(api)

        # Another certificate, and more in the log.
        subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                        "-nodes", "-days", "9", "-subj", "/CN=another", "-keyout", f"{data}/api-key.pem",
                        "-out", f"{data}/api-cert.pem"], check=True, capture_output=True)
        assert ssl.get_server_certificate(api) == first
        configure('log = "debug"')
        server.send_signal(signal.SIGHUP)
        until("RELOADING=1")
        until("READY=1")
        second = ssl.get_server_certificate(api)
        assert second != first

        # What cannot be read changes nothing.
        with open(f"{data}/api-key.pem", "w") as f:
            f.write("no key\n")
        server.send_signal(signal.SIGHUP)
        until("RELOADING=1")
        until("READY=1")
        assert ssl.get_server_certificate(api) == second
        assert "cannot reload: TLS for the API" in lines()
        server.terminate()
        until("STOPPING=1")
        assert server.wait(60) == 0
    finally:
        server.kill()
    logged = [json.loads(line) for line in lines().splitlines() if line.startswith("{")]
    assert logged and all({"timestamp", "level", "message"} <= line.keys() for line in logged)
    assert any(line["level"] == "DEBUG" for line in logged)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        settings_are_checked(folder)
        the_manager_is_told(folder)
    print("service: settings, messages to the manager, SIGHUP: ok")
