"""CEL functions that use regular expressions, such as ``matches`` and ``find``.

The library RE2 matches in time linear in the length of the text, so no pattern takes exponential
time.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from devicemanager.claims.cel.values import CelError
from devicemanager.claims.errors import ClaimsUnavailable

_MAX_PROGRAM = 8 << 20
"""Maximum memory of a compiled expression, in bytes."""


@lru_cache(maxsize=256)
def compiled(pattern: str) -> Any:
    """Compile a pattern. Raises CelError with the message of Go's package regexp."""
    try:
        re2 = importlib.import_module("re2")
    except ImportError as error:
        raise ClaimsUnavailable(
            "CEL expressions need google-re2:"
            f" pip install 'kubelet-devicemanager[claims]' ({error})"
        ) from None
    if _any_byte(pattern):
        raise CelError(f"error parsing regexp: invalid escape sequence: `{_ANY_BYTE}`")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_PROGRAM
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        raise CelError(f"error parsing regexp: {_go_text(_text(error))}") from None


_ANY_BYTE = "\\C"
"""Escape that matches any byte. RE2 accepts it, Go does not."""
_ESCAPE = re.compile(r"\\Q.*?(?:\\E|\Z)|\\(.)", re.DOTALL)


def _any_byte(pattern: str) -> bool:
    return any(match[1] == "C" for match in _ESCAPE.finditer(pattern))


def _text(error: Exception) -> str:
    (first, *_) = error.args or ("",)
    return first.decode(errors="replace") if isinstance(first, bytes) else str(first)


_GO_TEXTS = {
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid repetition size": "invalid repeat count",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "trailing \\": "trailing backslash at end of expression",
}


def _go_text(text: str) -> str:
    """Translate an error message of RE2 to Go's, which shows the faulty part in back quotes."""
    what, _, part = text.partition(": ")
    return f"{_GO_TEXTS.get(what, what)}: `{part}`"


def matches(text: str, pattern: str) -> bool:
    """Evaluate ``text.matches(pattern)``: True if any part of the text matches."""
    return compiled(pattern).search(text) is not None


def _find(text: str, pattern: str) -> str:
    found = _compiled_for_find(pattern).search(text)
    return "" if found is None else str(found[0])


def _find_all(text: str, pattern: str, count: int = -1) -> list[str]:
    if count == 0:
        _compiled_for_find(pattern)
        return []
    found: list[str] = []
    end = -1
    for match in _compiled_for_find(pattern).finditer(text):
        # Go omits an empty match directly after another match.
        if match.end() > match.start() or match.start() != end:
            found.append(match[0])
            if len(found) == count:
                break
        end = match.end()
    return found


def _compiled_for_find(pattern: str) -> Any:
    try:
        return compiled(pattern)
    except CelError as error:
        raise CelError(f"Illegal regex: {error}") from None


IMPLEMENTATIONS: dict[str, Callable[..., Any]] = {
    "matches": matches,
    "matches_string": matches,
    "string_find_string": _find,
    "string_find_all_string": _find_all,
    "string_find_all_string_int": _find_all,
}
