"""The browser that tests and pictures of the live page are made with; it has to be there."""

from __future__ import annotations

import os
import shutil
from typing import Final

ARGUMENTS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
)
MISSING: Final = "there is no Chromium: install one, or name it in CHROMIUM"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Its path, or None."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
