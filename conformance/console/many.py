#!/usr/bin/env python3
"""Makes 500 volumes and keeps each of them a little busy, until it is killed: many.py API-URL NFS-PORT."""

import os
import sys
import urllib.parse

HERE = os.path.dirname(os.path.abspath(__file__))
for folder in ("attack", "api"):
    sys.path.insert(0, os.path.join(HERE, "..", folder))
import http.client  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402

from attacker import NFS, Client, auth_sys, opaque  # noqa: E402

COUNT = 500
PLACE = "/v1/projects/weir/locations/local"
# Looks a second at each volume; the machine is shared with the browser.
RATE = 2


def main():
    api, port = urllib.parse.urlsplit(sys.argv[1]), int(sys.argv[2])
    connection = http.client.HTTPConnection(api.hostname, api.port, timeout=120)

    def ask(path, body):
        connection.request("POST", PLACE + path, json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = reply.read()
        assert reply.status == 200, answer

    for pool in range(5):
        ask(f"/storagePools?storagePoolId=pool{pool}", {"capacityGib": "10240", "serviceLevel": "PREMIUM", "network": "n"})
    for n in range(COUNT):
        ask(f"/volumes?volumeId=v{n:03}", {"storagePool": f"pool{n % 5}", "capacityGib": "100", "shareName": f"v{n:03}", "protocols": ["NFSV3"]})
    client = Client(port, timeout=120)
    roots = [client.mount(f"/v{n:03}".encode()) for n in range(COUNT)]
    begun = time.monotonic()
    for turn in range(1 << 62):
        for at, root in enumerate(roots):
            # A number of its own for each, so that every row changes every second.
            for _ in range(1 + (turn + at) % 3):
                client.call(NFS, 3, 3, opaque(root) + opaque(b"nothing"), auth_sys())
        time.sleep(max(0.0, begun + (turn + 1) / RATE - time.monotonic()))


if __name__ == "__main__":
    main()
