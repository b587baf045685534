#!/usr/bin/env python3
"""Writes csi.binpb: the descriptors of CSI, out of the csi.proto of its specification (1.12.0).

Usage: make.py CSI.PROTO [--check]      with grpcio-tools, which has a compiler for it

--check compares only.
"""

import pathlib
import sys
import tempfile

from grpc_tools import protoc

FILE = pathlib.Path(__file__).with_name("csi.binpb")


def make(proto):
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "csi.binpb"
        own = pathlib.Path(protoc.__file__).parent / "_proto"
        proto = pathlib.Path(proto).resolve()
        arguments = ["protoc", f"-I{own}", f"-I{proto.parent}", "--include_imports", f"--descriptor_set_out={out}", proto.name]
        if protoc.main(arguments) != 0:
            raise SystemExit(1)
        return out.read_bytes()


def main():
    proto, *rest = sys.argv[1:]
    made = make(proto)
    if "--check" not in rest:
        FILE.write_bytes(made)
    elif FILE.read_bytes() != made:
        raise SystemExit(f"{FILE}: not what {proto} defines; run {__file__}")


if __name__ == "__main__":
    main()
