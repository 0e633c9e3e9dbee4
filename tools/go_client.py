"""``python -m tools.go_client``: write clients/go/types.go from docs/openapi.json."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
FILE = _ROOT / "clients" / "go" / "types.go"
_DOCUMENT = _ROOT / "docs" / "openapi.json"
_INITIALS = {"id", "uid", "rpc", "oci", "cdi", "numa", "pci", "url", "cpu"}
_PLAIN = {"string": "string", "integer": "int64", "number": "float64", "boolean": "bool"}


def source() -> str:
    """Return the contents of clients/go/types.go."""
    schemas = json.loads(_DOCUMENT.read_text())["components"]["schemas"]
    lines = [
        "// Code generated from docs/openapi.json by tools/go_client.py. DO NOT EDIT.",
        "",
        "package mockkubelet",
        "",
    ]
    for name, schema in sorted(schemas.items()):
        lines += [*_declaration(name, schema), ""]
    return "\n".join(lines)


def _declaration(name: str, schema: Mapping[str, Any]) -> Iterator[str]:
    yield from _comment(f"{name}: {schema.get('description', 'see docs/openapi.json.')}", "")
    if schema.get("type") != "object" or "properties" not in schema:
        yield f"type {name} {_type(schema)}"
        if "enum" in schema:
            yield from _constants(name, schema["enum"])
        return
    required = set(schema.get("required", ()))
    yield f"type {name} struct {{"
    fields = []
    for field, value in schema["properties"].items():
        option = "" if field in required else ",omitempty"
        kind = _type(value)
        # A field with a default can be left out. Only a pointer distinguishes a zero from an absent
        # field.
        if option and kind in _PLAIN.values():
            kind = f"*{kind}"
        fields.append((value.get("description"), _name(field), kind, f'`json:"{field}{option}"`'))
    # gofmt aligns consecutive fields that have no comment between them.
    run: list[tuple[str, str, str]] = []
    for description, *cells in fields:
        if description:
            yield from _aligned(run)
            run = []
            yield from _comment(description, "\t")
        run.append((cells[0], cells[1], cells[2]))
    yield from _aligned(run)
    yield "}"


def _constants(kind: str, values: Sequence[str]) -> Iterator[str]:
    """Yield a constant for each value of an enumeration, such as ``ClaimStatePrepared``."""
    names = {kind + _name(each): each for each in values}
    width = max(map(len, names))
    yield ""
    yield f"// The values of {kind}."
    yield "const ("
    for name, value in names.items():
        yield f'\t{name:{width}} {kind} = "{value}"'
    yield ")"


def _aligned(run: list[tuple[str, str, str]]) -> Iterator[str]:
    if not run:
        return
    widths = [max(len(cells[place]) for cells in run) for place in (0, 1)]
    for name, kind, tag in run:
        yield f"\t{name:{widths[0]}} {kind:{widths[1]}} {tag}"


def _comment(text: str, indent: str) -> Iterator[str]:
    for line in text.splitlines():
        yield f"{indent}// {line}".rstrip()


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        others = [each for each in schema["anyOf"] if each.get("type") != "null"]
        if len(others) != 1:
            return "any"
        kind = _type(others[0])
        return kind if kind.startswith(("[]", "map")) else f"*{kind}"
    if "enum" in schema:
        return "string"
    match schema.get("type"):
        case "array":
            return f"[]{_type(schema.get('items', {}))}"
        case "object" if isinstance(schema.get("additionalProperties"), Mapping):
            return f"map[string]{_type(schema['additionalProperties'])}"
        case "object":
            return "map[string]any"
        case str(kind) if kind in _PLAIN:
            return _PLAIN[kind]
    return "any"


def _name(field: str) -> str:
    return "".join(
        word.upper() if word in _INITIALS else word.capitalize()
        for word in field.replace("-", "_").split("_")
    )


if __name__ == "__main__":
    FILE.write_text(source())
    sys.exit(0)
