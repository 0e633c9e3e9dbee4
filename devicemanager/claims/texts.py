"""Texts that come from users, made fit for one line."""

from __future__ import annotations

MOST = 300
"""Characters."""


def one_line(text: str, most: int = MOST) -> str:
    """``text`` without line breaks and control characters, cut when it is long."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= most else f"{plain[:most]}..."
