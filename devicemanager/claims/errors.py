"""What goes wrong with structured claims: always one line, for the user to act on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devicemanager.core.errors import RequestError

if TYPE_CHECKING:
    from devicemanager.claims.core.inventory import Inventory
    from devicemanager.claims.core.model import Infeasible


class ClaimsError(RequestError):
    """What was asked of structured claims cannot be done."""


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
    """The claims cannot be satisfied now; they may once others are released or pools change."""

    def __init__(self, text: str, outcome: Infeasible, inventory: Inventory) -> None:
        super().__init__(text)
        self.outcome = outcome
        self.inventory = inventory
        """What the sets of devices in ``outcome`` are numbered by."""


class TryAgain(ClaimsError):
    """The search was cut off before it knew."""
