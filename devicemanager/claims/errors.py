"""Errors of structured claims: each one line, for the user to act on."""

from __future__ import annotations

from devicemanager.core.errors import RequestError

_MAX_TEXT = 300
"""Characters."""


class ClaimsError(RequestError):
    """A request about structured claims cannot be met."""


class ClaimsUnavailable(ClaimsError):
    """The optional library that constraints need is not installed."""


class CompileError(ClaimsError):
    """A constraint that cannot be evaluated on any device."""


class EvaluationError(ClaimsError):
    """A constraint that fails on a device; the device does not match."""


class InvalidObject(ClaimsError):
    """An object breaks rules. ``lines`` has one text for each: object, field, rule."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self.lines = lines
        super().__init__("; ".join(lines))


class DoesNotFit(ClaimsError):
    """The claims do not fit now; they may after releases or changes of pools."""


class TryAgain(ClaimsError):
    """The search was cut off before it had an answer."""


def one_line(text: str, most: int = _MAX_TEXT) -> str:
    """Return a user's text without line breaks and control characters, cut if it is long."""
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= most else f"{plain[:most]}..."
