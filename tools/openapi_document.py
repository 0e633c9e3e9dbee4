"""``python -m tools.openapi_document``: write the OpenAPI documents of the control APIs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from devicemanager.control import operations
from devicemanager.control.nodes import operations as nodes
from devicemanager.control.openapi import document
from devicemanager.control.operation import OperationTable

_DOCS: Final = Path(__file__).parents[1] / "docs"
FILES: Final = {
    _DOCS / "openapi.json": operations.TABLE,
    _DOCS / "openapi-nodes.json": nodes.TABLE,
}
"""Table of operations that each OpenAPI document describes."""


def text(table: OperationTable) -> str:
    """Return the OpenAPI document of a table of operations as JSON text."""
    return json.dumps(document(table), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    for file, table in FILES.items():
        file.write_text(text(table))
