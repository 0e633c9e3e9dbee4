"""Check imports for `make lint`, with the table of rooms in pyproject.toml.

A room is a package or a module that the contracts treat as one unit. Every module belongs to the
innermost room that contains it. ``[tool.rooms]`` has one line per room: what its modules may
import, and what they never use.
"""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import attrs
from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output

_ROOT = Path(__file__).resolve().parents[1]
_TOP = ("checkpoint", "devicemanager", "podresources", "protos")
_DYNAMIC = {"__import__", "import_module"}
_ORDER = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@attrs.frozen
class Room:
    """Line of the table of rooms, with full module names."""

    imports: tuple[str, ...]
    """Rooms and single modules that this room may import. A room in this list does not include the
    rooms inside it."""
    never: frozenset[str]
    """Modules of the standard library and of other distributions that the room must not use."""
    alone: bool
    """True if the room has only the module itself, without the modules inside it."""


class RoomsContract(Contract):
    """Contract: every module is in a room, and imports only what the line of its room permits.

    An import that the line does not permit is an error, and so is a permission that is not used.
    """

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Compare the table of rooms with all imports."""
        rooms = _rooms()
        problems = [f"room {name} does not exist" for name in rooms if name not in graph.modules]
        used: set[tuple[str, str]] = set()
        for module in sorted(graph.modules):
            if graph.is_module_squashed(module):
                continue
            name = _room_of(module, rooms)
            if name is None:
                problems.append(f"{module} is in no room: add one to [tool.rooms]")
                continue
            for imported in sorted(graph.find_modules_directly_imported_by(module)):
                if graph.is_module_squashed(imported):
                    if imported.partition(".")[0] in rooms[name].never:
                        problems.append(f"{module} uses {imported}: room {name} must not use it")
                elif (target := _room_of(imported, rooms)) != name:
                    allowed = [
                        each
                        for each in rooms[name].imports
                        if each == target or (each not in rooms and _within(imported, each))
                    ]
                    used.update((name, each) for each in allowed)
                    if not allowed:
                        problems.append(f"{module} imports {imported}: room {name} may not")
        problems += [
            f"room {name} does not use its permission to import {each}"
            for name, room in rooms.items()
            for each in room.imports
            if (name, each) not in used
        ]
        return ContractCheck(kept=not problems, metadata={"problems": problems})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line per problem."""
        _render(check)


class SourceContract(Contract):
    """Contract about the source text: imports by name, and comparisons of kubelet versions.

    ``dynamic_imports`` lists the modules that may import a module by its name. ``versions`` is the
    only room that may compare kubelet versions.
    """

    dynamic_imports = fields.ListField(subfield=fields.StringField())
    versions = fields.StringField()

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Search the source text of all modules."""
        allowed = {str(module) for module in cast(list[str], self.dynamic_imports)}
        problems, used = [], set()
        for module in sorted(graph.modules):
            if graph.is_module_squashed(module):
                continue
            for line, what in _findings(ast.parse(_source(module))):
                if what == "import by name" and module in allowed:
                    used.add(module)
                elif what == "comparison of versions" and _within(module, str(self.versions)):
                    pass
                else:
                    problems.append(f"{module}:{line}: {what}")
        problems += [
            f"{module} imports nothing by name: remove it from dynamic_imports"
            for module in sorted(allowed - used)
        ]
        return ContractCheck(kept=not problems, metadata={"problems": problems})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print one line per problem."""
        _render(check)


def _render(check: ContractCheck) -> None:
    for problem in check.metadata["problems"]:
        output.print_error(f"- {problem}")


def _rooms() -> dict[str, Room]:
    """Return the rooms of the table by their full names."""
    tool = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]
    libraries: dict[str, list[str]] = tool["libraries"]

    def room(line: dict[str, Any]) -> Room:
        never = line.get("never", [])
        return Room(
            tuple(map(_full_name, line["imports"])),
            frozenset(module for name in never for module in libraries.get(name, [name])),
            line.get("alone", False),
        )

    return {_full_name(name): room(line) for name, line in tool["rooms"].items()}


def _full_name(name: str) -> str:
    return name if name.partition(".")[0] in _TOP else f"devicemanager.{name}"


def _room_of(module: str, rooms: dict[str, Room]) -> str | None:
    """Return the name of the innermost room that contains the module; None if there is none."""
    found = [
        name
        for name, room in rooms.items()
        if module == name or (_within(module, name) and not room.alone)
    ]
    return max(found, key=len, default=None)


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _source(module: str) -> str:
    path = _ROOT.joinpath(*module.split("."))
    return (path / "__init__.py" if path.is_dir() else path.with_suffix(".py")).read_text()


def _findings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and _name(node) in _DYNAMIC:
            yield node.lineno, "import by name"
        elif isinstance(node, ast.Compare):
            operands = [node.left, *node.comparators]
            ordered = any(isinstance(operator, _ORDER) for operator in node.ops)
            if any(map(_is_release, operands)) or (ordered and any(map(_is_version, operands))):
                yield node.lineno, "comparison of versions"


def _name(node: ast.expr) -> str:
    if isinstance(node, ast.Call):
        return _name(node.func)
    return str(getattr(node, "id", getattr(node, "attr", "")))


def _is_version(node: ast.expr) -> bool:
    return _name(node) in {"kubelet_version", "KubeletVersion", "minor", "patch"}


def _is_release(node: ast.expr) -> bool:
    """True if the expression is a text such as '1.36'."""
    value = getattr(node, "value", None)
    return isinstance(value, str) and value.startswith("1.") and value[2:].isdigit()
