"""Safe output of text from other programs.

Device IDs, error messages of plugins and names in manifests can contain anything, including
terminal control sequences. Use ``printable`` wherever such text is shown to a person. Data
formats such as JSON keep the original text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

LONGEST = 2048
"""Longest text, in characters, that is shown uncut. The kubelet's messages are far shorter."""

# Control characters (C0, DEL, C1), line and paragraph separators, surrogates (they cannot be
# encoded), and invisible characters: Unicode's bidirectional controls (they reorder the
# text around them), zero-width characters, byte order marks, and tags (they can hide a text).
# Compiled at first use, because few texts need it and compiling slows down the import.
_UNSAFE = (
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def printable(text: str, longest: int = LONGEST) -> str:
    """Return ``text`` on one line, with unsafe characters escaped, such as ``\\x1b``.

    A newline becomes a space. If the text has more than ``longest`` characters, the rest is
    replaced by the number of omitted characters.
    """
    if text.isascii() and text.isprintable() and len(text) <= longest:
        return text  # most texts need no regular expression
    left_out = len(text) - longest
    if left_out > 0:
        text = text[:longest]
    text = re.sub(_UNSAFE, _escaped, text)
    return f"{text}... ({counted(left_out, 'more character')})" if left_out > 0 else text


def is_printable(text: str) -> bool:
    """True if ``printable`` would escape nothing. The text can have any length and several
    lines."""
    return (text.isascii() and text.isprintable()) or not re.search(_UNSAFE, text.replace("\n", ""))


def one_line(text: str) -> str:
    """Return a text of any length on one line, with unsafe characters escaped."""
    return printable(text, len(text))


def listed(texts: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the texts, joined with ``separator``, but at most ``most`` of them.

    If N texts are left out, the result ends with ``and N more``.
    """
    more = f" and {len(texts) - most} more" if len(texts) > most else ""
    return separator.join(texts[:most]) + more


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, such as ``1 device`` or ``2 devices``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _escaped(match: re.Match[str]) -> str:
    character = match[0]
    if character == "\n":
        return " "
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
