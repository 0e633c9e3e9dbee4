"""Errors of structured claims. Each has a one-line message that the user can act on."""

from __future__ import annotations

from devicemanager.core.errors import RequestError

_MAX_TEXT = 300
"""Default length limit of a text in a message, in characters."""


class ClaimsError(RequestError):
    """Error for a failed operation on structured claims."""


class ClaimsUnavailable(ClaimsError):
    """Error for a CEL expression if the optional CEL libraries are not installed."""


class CompileError(ClaimsError):
    """Error for a CEL constraint that cannot be evaluated on any device."""


class EvaluationError(ClaimsError):
    """Error for a CEL constraint whose evaluation fails on a device. The device does not match."""


class InvalidObject(ClaimsError):
    """Error for an invalid object. ``lines`` has one text per broken rule: object, field and
    rule."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        self.lines = lines
        super().__init__("; ".join(lines))


class DoesNotFit(ClaimsError):
    """Error for claims that do not fit now. They may fit after releases or changes of pools."""


class TryAgain(ClaimsError):
    """Error for a search for devices that reached its limits before it had a result.

    The claims may fit. ``unexamined`` has a text for each part of the search that was not
    finished, such as "all combinations of devices for default/train, claims[0]".
    """

    def __init__(self, message: str, unexamined: tuple[str, ...] = ()) -> None:
        self.unexamined = unexamined
        super().__init__(message)


def one_line(text: str, most: int = _MAX_TEXT) -> str:
    """Return a user's text on one line, without control characters.

    Cut the text after ``most`` characters.
    """
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= most else f"{plain[:most]}..."
