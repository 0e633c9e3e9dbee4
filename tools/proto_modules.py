"""Render Python modules and type stubs for a compiled .proto file. Its comments become
docstrings."""

import re
import textwrap
from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    ServiceDescriptorProto,
)

Path = tuple[int, ...]
"""Location of a declaration in its file: field numbers and indexes, as in protoc's source info."""

# Field numbers of descriptor.proto that occur in paths.
_SYNTAX, _FILE_MESSAGE, _FILE_SERVICE = 12, 4, 6
_MESSAGE_FIELD, _SERVICE_METHOD = 2, 2

_SCALARS = {
    FieldDescriptorProto.TYPE_STRING: "str",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_INT32: "int",
    FieldDescriptorProto.TYPE_INT64: "int",
    FieldDescriptorProto.TYPE_UINT64: "int",
    FieldDescriptorProto.TYPE_ENUM: "int",
}

# Imports that a stub may need, by module. Each stub imports only the names that it uses.
_STUB_IMPORTS = {
    "collections.abc": ("Iterable", "Mapping"),
    "typing": ("Literal",),
    "google.protobuf.descriptor": ("FileDescriptor",),
    "google.protobuf.internal.containers": (
        "MessageMap",
        "RepeatedCompositeFieldContainer",
        "RepeatedScalarFieldContainer",
        "ScalarMap",
    ),
    "google.protobuf.internal.enum_type_wrapper": ("EnumTypeWrapper",),
    "google.protobuf.message": ("Message",),
}


def render(file: FileDescriptorProto) -> dict[str, str]:
    """Return the generated files of a .proto file: contents by the end of the file name."""
    writer = _Writer(file)
    messages = {".py": writer.messages(), ".pyi": writer.message_stubs()}
    if not file.service:
        return messages
    return {**messages, "_grpc.py": writer.services(), "_grpc.pyi": writer.service_stubs()}


class _Writer:
    def __init__(self, file: FileDescriptorProto) -> None:
        self.file = file
        self.name = file.name.rpartition("/")[2]
        self.module = self.name.removesuffix(".proto")
        self.comments: dict[Path, str] = {
            tuple(location.path): textwrap.dedent(location.leading_comments).strip()
            for location in file.source_code_info.location
        }

    def messages(self) -> str:
        kinds = {message.name: "message" for message in self.file.message_type}
        kinds |= {enum.name: "enum" for enum in self.file.enum_type}
        names = sorted(kinds)
        return "\n".join(
            [
                *self._header((_SYNTAX,)),
                f"from protos._pool import {', '.join(sorted({'file', *kinds.values()}))}",
                "",
                *_exports([*names, "DESCRIPTOR"]),
                "",
                f'DESCRIPTOR = file("{self.name}")',
                "",
                *(f'{name} = {kinds[name]}("{self.file.package}.{name}")' for name in names),
                "",
            ]
        )

    def services(self) -> str:
        names = [service.name for service in self.file.service]
        lines = [
            *self._header(None),
            "from protos import _service",
            f"from protos.{self.module} import DESCRIPTOR",
            "",
            *_exports(self._service_names()),
            "",
            *(f'{constant} = "{path}"' for constant, path in self._paths()),
        ]
        for name in names:
            lines += [
                "",
                f'_{name} = DESCRIPTOR.services_by_name["{name}"]',
                f"{name}Stub = _service.stub(_{name}, __name__)",
                f"{name}Servicer = _service.servicer(_{name}, __name__)",
                f"add_{name}Servicer_to_server = _service.adder(_{name})",
            ]
        return "\n".join([*lines, ""])

    def message_stubs(self) -> str:
        enums = [f"{enum.name}: EnumTypeWrapper" for enum in self.file.enum_type]
        body = "\n".join(["DESCRIPTOR: FileDescriptor", *enums, *self._message_classes()])
        return "\n".join([*self._header((_SYNTAX,)), *_imports(body), "", body, ""])

    def service_stubs(self) -> str:
        streams = any(m.server_streaming for s in self.file.service for m in s.method)
        return "\n".join(
            [
                *self._header(None),
                *(["from collections.abc import Iterator"] if streams else []),
                "from typing import Final",
                "",
                "import grpc",
                "",
                f"from protos import {self.module} as _pb",
                "",
                *(f'{constant}: Final = "{path}"' for constant, path in self._paths()),
                *(line for i, s in enumerate(self.file.service) for line in self._service(s, i)),
                "",
            ]
        )

    def _header(self, path: Path | None) -> Iterator[str]:
        if path is None:
            yield f'"""Stubs, servicers and method paths of {self.name}."""'
        else:
            yield from _docstring(self.comments[path])
        yield ""
        yield f"# Generated from {self.name} by tools/generate_protos.py: edit that file instead."
        yield ""

    def _paths(self) -> Iterator[tuple[str, str]]:
        for service in self.file.service:
            for method in service.method:
                path = f"/{self.file.package}.{service.name}/{method.name}"
                yield re.sub(r"(?<=[a-z])(?=[A-Z])", "_", method.name).upper(), path

    def _service_names(self) -> list[str]:
        names = [constant for constant, _ in self._paths()]
        for service in self.file.service:
            names += [f"{service.name}{kind}" for kind in ("Servicer", "Stub")]
            names.append(f"add_{service.name}Servicer_to_server")
        return names

    def _message_classes(self) -> Iterator[str]:
        for index, message in enumerate(self.file.message_type):
            path = (_FILE_MESSAGE, index)
            yield f"\nclass {message.name}(Message):"
            yield from _docstring(self.comments.get(path, ""), indent=4)
            for number, field in enumerate(message.field):
                yield from self._field(message, field, (*path, _MESSAGE_FIELD, number))
            yield from self._init(message)
            yield from _which(message)

    def _field(
        self, message: DescriptorProto, field: FieldDescriptorProto, path: Path
    ) -> Iterator[str]:
        type_, _ = self._types(message, field)
        doc = self.comments.get(path, "")
        if type_ in _SCALARS.values():
            yield f"    {field.name}: {type_}"
            yield from _docstring(doc, indent=4)
            return
        # Protobuf does not allow assignments to containers and sub-messages, so they are
        # properties.
        yield "    @property"
        yield from _fitting(f"    def {field.name}(self) -> ", type_, ":" if doc else ": ...")
        yield from _docstring(doc, indent=8)

    def _init(self, message: DescriptorProto) -> Iterator[str]:
        if not message.field:
            yield "    def __init__(self) -> None: ..."
            return
        yield "    def __init__("
        yield "        self,"
        yield "        *,"
        for field in message.field:
            yield f"        {field.name}: {self._types(message, field)[1]} | None = ...,"
        yield "    ) -> None: ..."

    def _types(self, message: DescriptorProto, field: FieldDescriptorProto) -> tuple[str, str]:
        """Return the type of a field, and the type of its constructor argument."""
        for nested in message.nested_type:
            if field.type_name.endswith(f".{message.name}.{nested.name}"):
                key, value = (_element(entry) for entry in nested.field)
                kind = "ScalarMap" if nested.field[1].type in _SCALARS else "MessageMap"
                return f"{kind}[{key}, {value}]", f"Mapping[{key}, {value}]"
        scalar = _SCALARS.get(field.type)
        element = _element(field)
        if field.label != FieldDescriptorProto.LABEL_REPEATED:
            return element, element
        container = "RepeatedScalarField" if scalar else "RepeatedCompositeField"
        return f"{container}Container[{element}]", f"Iterable[{element}]"

    def _service(self, service: ServiceDescriptorProto, index: int) -> Iterator[str]:
        stub: list[str] = []
        servicer: list[str] = []
        for number, method in enumerate(service.method):
            doc = self.comments[(_FILE_SERVICE, index, _SERVICE_METHOD, number)]
            request = f"_pb.{method.input_type.rpartition('.')[2]}"
            response = f"_pb.{method.output_type.rpartition('.')[2]}"
            kind = "UnaryStream" if method.server_streaming else "UnaryUnary"
            callable_ = f"grpc.{kind}MultiCallable[{request}, {response}]"
            stub += _fitting(f"    {method.name}: ", callable_)
            stub += _docstring(doc, indent=4)
            result = f"Iterator[{response}]" if method.server_streaming else response
            servicer += [f"    def {method.name}("]
            servicer += [f"        self, request: {request}, context: grpc.ServicerContext"]
            servicer += [f"    ) -> {result}:", *_docstring(doc, indent=8)]
        doc = self.comments[(_FILE_SERVICE, index)]
        yield f"\nclass {service.name}Stub:"
        yield from _docstring(doc, indent=4)
        yield "    def __init__(self, channel: grpc.Channel) -> None: ..."
        yield from stub
        yield f"\nclass {service.name}Servicer:"
        yield from _docstring(doc, indent=4)
        yield from servicer
        yield f"\ndef add_{service.name}Servicer_to_server("
        yield f"    servicer: {service.name}Servicer, server: grpc.Server"
        yield ") -> None: ..."


def _element(field: FieldDescriptorProto) -> str:
    """Return the type of a field's value; for a repeated field, the type of one value."""
    return _SCALARS.get(field.type) or field.type_name.rpartition(".")[2]


def _which(message: DescriptorProto) -> Iterator[str]:
    for index, oneof in enumerate(message.oneof_decl):
        members = [
            f'"{field.name}"'
            for field in message.field
            if field.HasField("oneof_index") and field.oneof_index == index
        ]
        # Skip optional fields: protoc represents them as a oneof whose name starts with "_".
        if not oneof.name.startswith("_"):
            result = f"Literal[{', '.join(members)}] | None"
            yield f"    def WhichOneof(self, oneof_group: str) -> {result}: ..."


def _docstring(text: str, indent: int = 0) -> Iterator[str]:
    if not text:
        return
    pad = " " * indent
    if "\n" not in text:
        yield f'{pad}"""{text}"""'
        return
    first, *rest = text.splitlines()
    yield f'{pad}"""{first}'
    yield from (f"{pad}{line.removeprefix(' ')}".rstrip() for line in rest)
    yield f'{pad}"""'


def _fitting(before: str, annotation: str, after: str = "") -> Iterator[str]:
    """Render a declaration on one line, or on three lines if it would be too long."""
    if len(line := before + annotation + after) <= 100:
        yield line
        return
    outer, _, inner = annotation.removesuffix("]").partition("[")
    yield from (f"{before}{outer}[", f"        {inner}", f"    ]{after}")


def _exports(names: list[str]) -> Iterator[str]:
    yield "__all__ = ["
    # Sort constants, classes and functions in the order that ruff requires.
    rank = sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    yield from (f'    "{name}",' for name in rank)
    yield "]"


def _imports(body: str) -> Iterator[str]:
    words = set(re.findall(r"\w+", body))
    previous = ""
    for module, names in _STUB_IMPORTS.items():
        used = [name for name in names if name in words]
        if not used:
            continue
        if previous and module.startswith("google") and not previous.startswith("google"):
            yield ""
        previous = module
        line = f"from {module} import {', '.join(used)}"
        if len(line) <= 88:
            yield line
        else:
            yield from (f"from {module} import (", *(f"    {name}," for name in used), ")")
