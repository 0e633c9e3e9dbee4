"""``python -m tools.openapi_document``: write docs/openapi.json from the table of operations."""

from __future__ import annotations

import json
from pathlib import Path

from devicemanager.control.operations import document

__all__ = ["FILE", "text"]

FILE = Path(__file__).parents[1] / "docs" / "openapi.json"


def text() -> str:
    """The file's contents."""
    return json.dumps(document(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    FILE.write_text(text())
