"""``python -m tools.openapi_document``: write the OpenAPI documents of the control APIs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from devicemanager.control import operations
from devicemanager.control.nodes import operations as nodes

__all__ = ["FILES", "text"]

_DOCS: Final = Path(__file__).parents[1] / "docs"
FILES: Final[Mapping[Path, Callable[[], dict[str, Any]]]] = {
    _DOCS / "openapi.json": lambda: operations.TABLE.document,
    _DOCS / "openapi-nodes.json": lambda: nodes.TABLE.document,
}
"""Each file, and what returns its document."""


def text(document: Mapping[str, Any]) -> str:
    """Return the contents of a file."""
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for file, make in FILES.items():
        file.write_text(text(make()))
