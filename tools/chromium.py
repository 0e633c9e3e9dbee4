"""Find Chromium for tests and pictures of the live page."""

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
MISSING: Final = "Chromium not found: install it, or set CHROMIUM to its path"
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def chromium() -> str | None:
    """Return the path of Chromium; None if it is not installed."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, _NAMES)), None)
