"""Crates that the binaries are linked with: `crates.py copyright` for Debian's copyright file, `crates.py sbom` for CycloneDX."""

import glob
import hashlib
import json
import os
import re
import subprocess
import sys
import time
import tomllib

CONSOLE = "console/dist/licences.txt"
TEXTS = re.compile(r"(LICEN[CS]E|COPYING|NOTICE|COPYRIGHT)", re.IGNORECASE)


def crates():
    """Crates in the binaries, without Weir's own, as packages of `cargo metadata`, in order."""
    tree = subprocess.run(["cargo", "tree", "--locked", "--offline", "-p", "weir", "-p", "weir-bench", "-p", "weir-csi", "-p", "weir-doctor", "-e", "normal", "--prefix", "none",
                           "--format", "{p}"], check=True, capture_output=True, text=True).stdout
    used = {tuple(line.split()[:2]) for line in tree.splitlines() if line.strip()}
    metadata = subprocess.run(["cargo", "metadata", "--locked", "--offline", "--format-version=1"],
                              check=True, capture_output=True, text=True).stdout
    packages = json.loads(metadata)["packages"]
    linked = [p for p in packages if p["source"] and (p["name"], "v" + p["version"]) in used]
    return sorted(linked, key=lambda p: (p["name"], p["version"]))


def copyright_file(linked):
    print("Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/")
    print("Upstream-Name: weir\n\nFiles: *\nCopyright: 2026 Weir's authors\nLicense: Apache-2.0")
    print(" On Debian systems: /usr/share/common-licenses/Apache-2.0\n")
    texts = {}
    print("Comment: The binaries contain these crates, under the licences that they name:")
    for p in linked:
        print(f" {p['name']} {p['version']}: {p['license'] or 'see its text'}")
        for path in sorted(glob.glob(os.path.join(os.path.dirname(p["manifest_path"]), "*"))):
            if TEXTS.match(os.path.basename(path)) and os.path.isfile(path):
                text = open(path, errors="replace").read().strip()
                # Two licences that differ in their line breaks are one.
                texts.setdefault(" ".join(text.split()), (text, []))[1].append(p["name"])
    # What the web console is made of besides, with its texts.
    if os.path.exists(CONSOLE):
        texts[CONSOLE] = (open(CONSOLE).read().strip(), ["the web console"])
    for text, names in sorted(texts.values(), key=lambda entry: sorted(entry[1])):
        # Apache's text is on every Debian.
        if "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text:
            continue
        print(" .\n Text of " + ", ".join(sorted(set(names))) + ":")
        for line in text.splitlines():
            line = re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", line.rstrip())
            print(f" {line}" if line else " .")


def sbom(linked):
    lock = tomllib.load(open("Cargo.lock", "rb"))
    sums = {(p["name"], p["version"]): p.get("checksum") for p in lock["package"]}
    version = tomllib.load(open("Cargo.toml", "rb"))["workspace"]["package"]["version"]
    parts = []
    for p in linked:
        purl = f"pkg:cargo/{p['name']}@{p['version']}"
        part = {"type": "library", "bom-ref": purl, "name": p["name"], "version": p["version"], "purl": purl}
        if p["license"]:
            part["licenses"] = [{"expression": p["license"].replace("/", " OR ")}]
        if sums.get((p["name"], p["version"])):
            part["hashes"] = [{"alg": "SHA-256", "content": sums[p["name"], p["version"]]}]
        parts.append(part)
    if os.path.exists(CONSOLE):
        for name, release, terms in re.findall(r"^(\S+) (\d\S*): (\S+)$", open(CONSOLE).read(), re.MULTILINE):
            purl = f"pkg:npm/{name}@{release}"
            parts.append({"type": "library", "bom-ref": purl, "name": name, "version": release, "purl": purl,
                          "licenses": [{"expression": terms}]})
    digest = hashlib.sha256(json.dumps([version, parts]).encode()).hexdigest()
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"])))
    json.dump({"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
               "serialNumber": f"urn:uuid:{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}",
               "metadata": {"timestamp": stamp, "component": {"type": "application", "bom-ref": f"pkg:cargo/weir@{version}",
                                                             "name": "weir", "version": version}},
               "components": parts}, sys.stdout, indent=1)


if __name__ == "__main__":
    {"copyright": copyright_file, "sbom": sbom}[sys.argv[1]](crates())
