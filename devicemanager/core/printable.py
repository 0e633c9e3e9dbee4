"""Texts for people that contain what others wrote.

Device ids, error texts of plugins and names in manifests are data: they may hold anything,
also sequences that a terminal obeys. They are shown by way of ``printable``; where they are
data they stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["LONGEST", "listed", "printable"]

LONGEST = 2048
"""Characters of one text that are shown; the kubelet's own texts are far shorter."""

# Controls (C0, DEL, C1), what reorders the text around it (Unicode's bidirectional
# controls), line and paragraph separators, and surrogates, which no terminal can take.
# Compiled when a text needs it: few do, and that takes longer than to load all else here.
_UNSAFE = "[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


def printable(text: str, longest: int = LONGEST) -> str:
    """``text`` on one line, with every unsafe character as its escape, such as ``\\x1b``.

    A line end becomes a space. Of more than ``longest`` characters the first are shown,
    with the number of those left out.
    """
    if text.isascii() and text.isprintable() and len(text) <= longest:
        return text  # the usual case, at the cost of a look
    left_out = len(text) - longest
    if left_out > 0:
        text = text[:longest]
    text = re.sub(_UNSAFE, _escaped, text)
    return f"{text}... ({left_out} more characters)" if left_out > 0 else text


def listed(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """The texts one after another; of more than ``most`` the first, with the number of those
    left out."""
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character == "\n":
        return " "
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
