"""``python -m tools.architecture_page``: write the generated parts of docs/architecture.md.

The diagram and the tables come from the layers contract and the table of rooms in pyproject.toml,
and from the first sentence of each package's docstring.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

__all__ = ["PAGE", "page"]

_ROOT: Final = Path(__file__).parents[1]
PAGE: Final = _ROOT / "docs" / "architecture.md"
_PART = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end of generated part -->)", re.DOTALL)
_WIDTH: Final = 60
_BASE: Final = (("checkpoint", "podresources"), ("protos",))
"""Packages that are installed beside ``devicemanager``, from the upper layer to the lower one. They
never import ``devicemanager``."""


def page(text: str) -> str:
    """Return the text of the page with its generated parts replaced."""
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text())
    layers = [*_layers(project), *_BASE]
    parts = {
        "diagram": _diagram(layers),
        "wings": _wings(layers),
        "rooms": _rooms(project["tool"]["rooms"]),
    }
    return _PART.sub(lambda part: "\n".join([part[1], *parts[part[2]], "", part[3]]), text)


def _layers(project: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = [each["layers"] for each in contracts if each["type"] == "layers"]
    for layer in layers:
        if layer != "__main__":
            yield tuple(layer.split(" | "))


def _diagram(layers: Iterable[tuple[str, ...]]) -> Iterator[str]:
    line = f"+{'-' * _WIDTH}+"
    yield "```text"
    yield line
    for layer in layers:
        # The first cell also gets the remainder of the division.
        width, rest = divmod(_WIDTH - (len(layer) - 1), len(layer))
        cells = [name.center(width + (0 if index else rest)) for index, name in enumerate(layer)]
        yield f"|{'|'.join(cells)}|"
        yield line
    yield "```"


def _wings(layers: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "| package | purpose |"
    yield "|---|---|"
    for layer in layers:
        for name in layer:
            folder = _ROOT / name if (_ROOT / name).is_dir() else _ROOT / "devicemanager" / name
            yield f"| [`{name}`](../{folder.relative_to(_ROOT)}) | {_purpose(folder)} |"


def _rooms(rooms: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield "| room | may import | never uses |"
    yield "|---|---|---|"
    for name, room in sorted(rooms.items()):
        imports = ", ".join(f"`{each}`" for each in room["imports"]) or "nothing"
        yield f"| `{name}` | {imports} | {', '.join(room.get('never', ()))} |"


def _purpose(package: Path) -> str:
    """Return the first paragraph of a package's docstring as one line of Markdown."""
    docstring = ast.get_docstring(ast.parse((package / "__init__.py").read_text()))
    if not docstring:
        raise SystemExit(f"{package}: the package has no docstring: add one to its __init__.py")
    return " ".join(docstring.split("\n\n")[0].split()).replace("``", "`")


if __name__ == "__main__":
    fresh = page(PAGE.read_text())
    sys.stdout.write(f"{PAGE}\n")
    PAGE.write_text(fresh)
