"""An OpenAPI 3.1 document, generated from a table of operations.

msgspec generates the schemas of the types, but without descriptions for the fields of attrs
classes. This module adds them: they are the docstrings below the fields. It also marks every field
of an attrs class as required in responses.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import attrs
import msgspec

from devicemanager.control.operation import Operation, OperationTable, Text
from devicemanager.control.shapes import Problem

__all__ = ["document", "field_docs"]

_REF: Final = "#/components/schemas/{name}"


@cache
def document(table: OperationTable) -> dict[str, Any]:
    """Return the OpenAPI document of a table of operations, as plain data. Callers must not change
    the result, because it is cached."""
    # Every operation can fail and then returns a problem.
    answers = [Problem, *(each.answer for each in table if each.answer is not None)]
    bodies = [each.body for each in table if isinstance(each.body, type)]
    types = list(dict.fromkeys([*answers, *bodies]))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    _complete(components, answers, bodies)
    refs = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in table:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, refs)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": table.title,
            "version": "1",
            "description": table.description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        # OpenAPI cannot describe a unix socket. With one, curl and other clients accept any host.
        "servers": [{"url": "http://localhost", "description": "on <root>/control.sock"}],
        # The unix socket needs no token, TCP does.
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {name: _plain(components[name]) for name in sorted(components)},
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "over TCP only: the token in <root>/control.token",
                }
            },
        },
    }


# -- schemas -----------------------------------------------------------------------------


def _complete(components: dict[str, Any], answers: list[Any], bodies: list[Any]) -> None:
    in_bodies = set(_attrs_classes(bodies))
    for cls in _attrs_classes(answers):
        schema = components[cls.__name__]
        # Sorted as in the class, because msgspec puts fields without a default first.
        names = [each.name for each in attrs.fields(cls)]
        schema["properties"] = {name: schema["properties"][name] for name in names}
        for name, text in field_docs(cls).items():
            schema["properties"][name]["description"] = text
        if cls not in in_bodies:
            # msgspec also encodes fields that have a default in Python.
            schema["required"] = list(schema["properties"])
            for each in schema["properties"].values():
                each.pop("default", None)


def _attrs_classes(types: list[Any]) -> Iterator[type]:
    """Yield the attrs classes among the types, and among the types of all their fields."""
    # Types can refer to themselves, so each class is visited once.
    seen: set[type] = set()
    pending: list[Any] = list(msgspec.inspect.multi_type_info(types))
    while pending:
        info = pending.pop()
        cls = getattr(info, "cls", None)
        if cls in seen:
            continue
        if cls is not None:
            seen.add(cls)
        if isinstance(info, msgspec.inspect.DataclassType):
            yield info.cls
        for name in ("fields", "types", "item_types"):
            pending += getattr(info, name, ())
        for name in ("type", "item_type", "value_type"):
            if hasattr(info, name):
                pending.append(getattr(info, name))


def field_docs(cls: type) -> dict[str, str]:
    """Return the docstrings below the fields of a class, by field name."""
    # Python does not store docstrings of fields, so they are read from the source.
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(cls))).body
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        match field, text:
            case (
                ast.AnnAssign(target=ast.Name(name)),
                ast.Expr(value=ast.Constant(value=str(doc))),
            ):
                docs[name] = " ".join(doc.split())
    return docs


def _plain(schema: Any) -> Any:
    """Return a schema without titles, which repeat the names, and with its descriptions as
    Markdown."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: _plain(value)
        for key, value in schema.items()
        # A property can have the name "title"; its value is then a schema, not a string.
        if key != "title" or not isinstance(value, str)
    }
    if isinstance(text := found.get("description"), str):
        found["description"] = inspect.cleandoc(text).replace("``", "`")
    return found


# -- operations --------------------------------------------------------------------------


def _operation(row: Operation[Any], refs: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": row.name, "summary": row.summary}
    if parameters := [*_path_parameters(row), *_query_parameters(row)]:
        found["parameters"] = parameters
    if row.body is not None:
        found["requestBody"] = _body(row.body, refs)
    found["responses"] = {
        str(row.status.value): _answer(row, refs),
        "default": {
            "description": "why the request failed",
            "content": {"application/problem+json": {"schema": refs[Problem]}},
        },
    }
    return found


def _answer(row: Operation[Any], refs: dict[Any, Any]) -> dict[str, Any]:
    if row.answer is None:
        return {"description": HTTPStatus(row.status).phrase}
    kind = "application/x-ndjson" if row.is_stream else "application/json"
    text = "one JSON object per line" if row.is_stream else HTTPStatus(row.status).phrase
    return {"description": text, "content": {kind: {"schema": refs[row.answer]}}}


def _body(body: type[msgspec.Struct] | Text, refs: dict[Any, Any]) -> dict[str, Any]:
    if isinstance(body, Text):
        schema = {"type": "object", "description": body.value}
        kinds = ("application/json", "application/yaml")
        return {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}
    # A body is optional if all its fields have defaults: no body is read as `{}`.
    required = any(field.required for field in msgspec.structs.fields(body))
    return {"required": required, "content": {"application/json": {"schema": refs[body]}}}


def _path_parameters(row: Operation[Any]) -> Iterator[dict[str, Any]]:
    for name in row.parameters:
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(row: Operation[Any]) -> Iterator[dict[str, Any]]:
    if row.query is None:
        return
    # msgspec describes a query as one object, OpenAPI as a list of parameters.
    schema = msgspec.json.schema_components([row.query], ref_template=_REF)[1]
    properties = schema[row.query.__name__]
    for name, value in properties["properties"].items():
        given = {key: each for key, each in value.items() if key != "description"}
        yield {
            "name": name,
            "in": "query",
            "required": name in properties.get("required", ()),
            "description": value.get("description", ""),
            "schema": given,
        }
