#!/usr/bin/env python3
"""Writes google.binpb: the descriptors of the public APIs, out of Google's own Python libraries.

Usage: make.py [--check]      with the packages of conformance/api/requirements.txt

The libraries have messages as descriptors, but a service as Python code: its methods stand in the gRPC transport, the
HTTP rule of each (google.api.http) in the REST transport. The behaviour of a field (google.api.field_behavior) is the first
words of its documentation. This puts them together again. The rules of Operations and Locations are those of the services
that serve them, as their service configurations have it. --check compares only.
"""

import importlib
import json
import pathlib
import re
import sys

import google.cloud.netapp_v1
import google.cloud.filestore_v1
import grpc
import proto
from google.api import annotations_pb2, field_behavior_pb2
from google.auth.credentials import AnonymousCredentials
from google.cloud.common.types import operation_metadata
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import descriptor_pb2, empty_pb2
from google.rpc import error_details_pb2, status_pb2

FILE = pathlib.Path(__file__).with_name("google.binpb")
SERVICES = (
    (google.cloud.netapp_v1, "net_app", "NetApp", "google.cloud.netapp.v1"),
    (google.cloud.filestore_v1, "cloud_filestore_manager", "CloudFilestoreManager", "google.cloud.filestore.v1"),
)
# Methods that every service may have; the value is the service that they belong to.
SHARED = {"google.longrunning.Operations": ("ListOperations", "GetOperation", "DeleteOperation", "CancelOperation"),
          "google.cloud.location.Locations": ("ListLocations", "GetLocation")}
# A method that REST does not have; it has no rule.
WAIT = "WaitOperation"
# A field in the documentation of a message's class: its name, its type, and the first words about it.
BEHAVIOURS = "Optional|Output only|Input only|Required|Immutable|Identifier"
DOCUMENTED = re.compile(rf"^        (\w+) \(.*\):\n            ((?:(?:{BEHAVIOURS})\. ?)+)", re.M)


class Recorder(grpc.Channel):
    """A channel that notes the methods that a transport makes stubs for."""

    def __init__(self):
        self.methods = []

    def unary_unary(self, method, request_serializer=None, response_deserializer=None, **_):
        self.methods.append((method, request_serializer, response_deserializer))

    def unary_stream(self, *_, **__):
        raise NotImplementedError

    stream_unary = stream_stream = subscribe = unsubscribe = unary_stream

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def descriptor(serializer):
    """The descriptor of the message that a stub's serializer or deserializer belongs to."""
    kind = getattr(serializer, "__self__", None)
    if kind is None:  # A method of a message class without proto-plus, not bound to anything.
        kind = getattr(importlib.import_module(serializer.__module__), serializer.__qualname__.split(".")[0])
    return kind.pb(kind()).DESCRIPTOR if hasattr(kind, "pb") else kind.DESCRIPTOR


def rule(options, http):
    """Fills google.api.http from what the REST transport has."""
    for binding, place in zip(options, [http] + [http.additional_bindings.add() for _ in options[1:]]):
        setattr(place, binding["method"], binding["uri"])
        place.body = binding.get("body", "")


def http_options(base, name):
    return getattr(base, f"_Base{name}")._get_http_options()


def services():
    """The two services as files of their own, the messages that they use, and the rules of the shared methods."""
    files, used, shared = [], [], {}
    for package, folder, name, proto in SERVICES:
        transports = importlib.import_module(f"{package.__name__}.services.{folder}.transports")
        base = getattr(importlib.import_module(transports.__name__ + ".rest_base"), f"_Base{name}RestTransport")
        metadata = json.loads(pathlib.Path(package.__file__).with_name("gapic_metadata.json").read_text())
        methods = metadata["services"][name]["clients"]["grpc"]["rpcs"]
        channel = Recorder()
        transport = getattr(transports, f"{name}GrpcTransport")(channel=channel, credentials=AnonymousCredentials())
        transport._logged_channel = channel  # In place of one that makes stubs only when they are called.
        transport._stubs.clear()
        file = descriptor_pb2.FileDescriptorProto(
            name=proto.replace(".", "/") + "/service.proto", package=proto, syntax="proto3",
            dependency=["google/api/annotations.proto"])
        service = file.service.add(name=name)
        for method, python in sorted(methods.items()):
            channel.methods.clear()
            getattr(transport, python["methods"][0])
            (path, request, response), = channel.methods
            if path != f"/{proto}.{name}/{method}":
                raise SystemExit(f"{path}: not a method of {proto}.{name}")
            made = service.method.add(name=method)
            for field, serializer in (("input_type", request), ("output_type", response)):
                message = descriptor(serializer)
                used.append(message.file)
                setattr(made, field, "." + message.full_name)
                if message.file.name not in file.dependency:
                    file.dependency.append(message.file.name)
            rule(http_options(base, method), made.options.Extensions[annotations_pb2.http])
        files.append(file)
        for names in SHARED.values():
            for method in names:
                options = http_options(base, method)
                if shared.setdefault(method, options) != options:
                    raise SystemExit(f"{method}: not the same rule in both services")
    return files, used, shared


def behaviours(kinds, into):
    """Adds what the fields of these classes, and of those nested in them, are documented to be, by message and field."""
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, proto.Message) and kind is not proto.Message:
            found = DOCUMENTED.findall(kind.__doc__ or "")
            into[kind.pb(kind()).DESCRIPTOR.full_name] = {name.rstrip("_"): words for name, words in found}
            behaviours(vars(kind).values(), into)


def annotate(message, name, documented):
    """Gives the fields of a message, and of those nested in it, google.api.field_behavior."""
    for field in message.field:
        for word in re.findall(BEHAVIOURS, documented.get(name, {}).get(field.name, "")):
            behaviour = field_behavior_pb2.FieldBehavior.Value(word.upper().replace(" ", "_"))
            field.options.Extensions[field_behavior_pb2.field_behavior].append(behaviour)
    for nested in message.nested_type:
        annotate(nested, f"{name}.{nested.name}", documented)


def collect(file, into):
    """Adds a file behind those that it imports."""
    if file.name in into:
        return
    for dependency in sorted(file.dependencies, key=lambda dependency: dependency.name):
        collect(dependency, into)
    proto = descriptor_pb2.FileDescriptorProto()
    file.CopyToProto(proto)
    proto.dependency.sort()  # proto-plus has them in a set.
    for message in proto.message_type:
        plain(message)
    into[file.name] = proto


def plain(message):
    """Undoes what proto-plus does to names that are Python's own (`type_`)."""
    for field in message.field:
        field.name = field.name.rstrip("_")
    for nested in message.nested_type:
        plain(nested)


def make():
    own, used, shared = services()
    files = {}
    metadata = operation_metadata.OperationMetadata.pb(operation_metadata.OperationMetadata()).DESCRIPTOR
    others = [package.OperationMetadata.pb(package.OperationMetadata()).DESCRIPTOR.file
              for package, *_ in SERVICES if hasattr(package, "OperationMetadata")]
    for file in [annotations_pb2.DESCRIPTOR, field_behavior_pb2.DESCRIPTOR, operations_pb2.DESCRIPTOR,
                 locations_pb2.DESCRIPTOR, status_pb2.DESCRIPTOR, error_details_pb2.DESCRIPTOR, empty_pb2.DESCRIPTOR,
                 metadata.file, *others, *used]:
        collect(file, files)
    documented = {}
    for package, *_ in SERVICES:
        behaviours(vars(importlib.import_module(f"{package.__name__}.types")).values(), documented)
    for file in files.values():
        if file.package in {service[-1] for service in SERVICES}:
            file.dependency.append(field_behavior_pb2.DESCRIPTOR.name)
            for message in file.message_type:
                annotate(message, f"{file.package}.{message.name}", documented)
        for service in file.service:
            names = SHARED[f"{file.package}.{service.name}"]
            kept = [method for method in service.method if method.name in (*names, WAIT)]
            del service.method[:]
            for method in kept:
                method.options.ClearExtension(annotations_pb2.http)
                if method.name == WAIT:
                    continue
                rule(shared[method.name], method.options.Extensions[annotations_pb2.http])
            service.method.extend(kept)
    every = descriptor_pb2.FileDescriptorSet(file=[*files.values(), *own])
    return every.SerializeToString(deterministic=True)


def main():
    made = make()
    if "--check" not in sys.argv[1:]:
        FILE.write_bytes(made)
    elif FILE.read_bytes() != made:
        raise SystemExit(f"{FILE}: not what these libraries define; run {__file__}")


if __name__ == "__main__":
    main()
