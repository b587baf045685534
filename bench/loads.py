"""Loads that several measuring scripts put on servers: arguments of `weir bench nfs3`, `nfs4` and `smb`, by name.

A load with `--reuse` leaves its working set to the next measurement."""


def folder_of(name):
    """The folder of a load's own files, from its name."""
    return name.replace(", ", "-").replace(" ", "-")


NFS = {
    "randread-4k": "read -p random -b 4k -c 8 -d 16 -s 256m --files 8 --dir data --reuse",
    "seqread-64k": "read -p sequential -b 64k -c 8 -d 8 -s 256m --files 8 --dir data --reuse",
    "randwrite-4k-sync": "write -p random -b 4k -c 8 -d 8 -s 64m --files 8 --stability file_sync --dir sync --reuse",
    "seqwrite-64k": "write -p sequential -b 64k -c 4 -d 8 -s 256m --files 8 --dir data --reuse",
    "create-4k-commit": "create-write-commit -b 4k -c 8 -d 4 --dir new",
    "lookup": "lookup -c 8 -d 16 --files 10000 --dir names --reuse",
    "getattr": "getattr -c 8 -d 16 --files 10000 --dir names --reuse",
    "access": "access -c 8 -d 16 --files 10000 --dir names --reuse",
    "readdirplus": "readdirplus -b 32k -c 8 -d 1 --files 10000 --dir names --reuse",
    "rename": "rename -c 8 -d 4 --files 2000 --dir renamed",
}

# `{data}` and `{small}` are sizes of working sets.
SMB = {
    "randread-4k": "read -p random -b 4k -c 8 --clients 8 -d 16 -s {data}",
    "randread-4k, 4 channels": "read -p random -b 4k -c 4 --clients 1 -d 16 -s {data} --files 8",
    "randread-4k, encrypted": "read -p random -b 4k -c 8 --clients 8 -d 16 -s {data} --protection encrypt",
    "randread-4k, unsigned": "read -p random -b 4k -c 8 --clients 8 -d 16 -s {data} --protection none",
    "seqread-64k": "read -p sequential -b 64k -c 8 --clients 8 -d 8 -s {data}",
    "seqread-64k, unsigned": "read -p sequential -b 64k -c 8 --clients 8 -d 8 -s {data} --protection none",
    "seqread-64k, encrypted": "read -p sequential -b 64k -c 8 --clients 8 -d 8 -s {data} --protection encrypt",
    "seqwrite-64k": "write -p sequential -b 64k -c 4 --clients 4 -d 8 -s {data}",
    "seqwrite-64k, encrypted": "write -p sequential -b 64k -c 4 --clients 4 -d 8 -s {data} --protection encrypt",
    "seqwrite-64k, unsigned": "write -p sequential -b 64k -c 4 --clients 4 -d 8 -s {data} --protection none",
    "randwrite-8k, write-through": "write -p random -b 8k -c 8 --clients 8 -d 8 -s {small} --files 8 --write-through",
    "create-close": "create -c 8 --clients 8 -d 4",
    "create-write-close": "create-write -b 4k -c 8 --clients 8 -d 4",
    "stat": "stat -c 8 --clients 8 -d 8 --files 5000",
    "list": "list -c 8 --clients 8 -d 1 --files 5000",
}
