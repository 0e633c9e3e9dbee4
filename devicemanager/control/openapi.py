"""An OpenAPI 3.1 document, from a table of operations and the shapes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from http import HTTPStatus
from typing import Any, Final

import attrs
import msgspec

from devicemanager.control.operation import Body, Kind, Operation
from devicemanager.control.shapes import Problem

__all__ = ["About", "build"]

_REF: Final = "#/components/schemas/{name}"


@attrs.frozen
class About:
    """What a document says of its API as a whole."""

    title: str
    description: str
    """In Markdown."""


def build(operations: Sequence[Operation], about: About) -> dict[str, Any]:
    """The document of a table, as plain data."""
    types = list(dict.fromkeys(_types(operations)))
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    of = dict(zip(types, schemas, strict=True))
    paths: dict[str, Any] = {}
    for each in operations:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": about.title,
            "version": "1",
            "description": about.description,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://localhost", "description": "on <root>/control.sock"}],
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


def _plain(schema: Any) -> Any:
    """Without titles, which are names again, and with descriptions in Markdown."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: _plain(value)
        for key, value in schema.items()
        if key != "title" or not isinstance(value, str)
    }
    if isinstance(text := found.get("description"), str):
        found["description"] = inspect.cleandoc(text).replace("``", "`")
    return found


def _types(operations: Sequence[Operation]) -> Iterator[Any]:
    yield Problem
    for each in operations:
        if each.answer is not None:
            yield each.answer
        if each.body is not None and not isinstance(each.body, Body):
            yield each.body


def _operation(row: Operation, of: dict[Any, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"operationId": row.name, "summary": row.summary}
    if parameters := [*_path_parameters(row), *_query_parameters(row)]:
        found["parameters"] = parameters
    if row.body is not None:
        found["requestBody"] = _body(row.body, of)
    found["responses"] = {
        str(row.status.value): _answer(row, of),
        "default": {
            "description": "why not",
            "content": {"application/problem+json": {"schema": of[Problem]}},
        },
    }
    return found


def _answer(row: Operation, of: dict[Any, Any]) -> dict[str, Any]:
    if row.answer is None:
        return {"description": HTTPStatus(row.status).phrase}
    if row.kind is Kind.STREAM:
        text = "one JSON object a line"
        return {
            "description": text,
            "content": {"application/x-ndjson": {"schema": of[row.answer]}},
        }
    content = {"application/json": {"schema": of[row.answer]}}
    return {"description": HTTPStatus(row.status).phrase, "content": content}


def _body(body: type | Body, of: dict[Any, Any]) -> dict[str, Any]:
    if isinstance(body, Body):
        schema = {"type": "object", "description": body.value}
        kinds = ("application/json", "application/yaml")
        return {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}
    required = any(field.required for field in msgspec.structs.fields(body))
    return {"required": required, "content": {"application/json": {"schema": of[body]}}}


def _path_parameters(row: Operation) -> Iterator[dict[str, Any]]:
    for name in row.parameters:
        yield {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}


def _query_parameters(row: Operation) -> Iterator[dict[str, Any]]:
    if row.query is None:
        return
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
