"""A check, and what came of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import attrs

from devicemanager.conformance.outcomes import Line, Outcome, Profile, Scene, Severity

if TYPE_CHECKING:
    from devicemanager.conformance.check_run import CheckRun

__all__ = ["LEVELS", "Check", "Verdict"]


LEVELS: Mapping[Profile, str] = {
    Profile.CORE: "every MUST of R, W, T, O, A, P and S",
    Profile.RESILIENT: "core, and every MUST of K and L",
    Profile.COMPLETE: "every MUST and every SHOULD",
}
"""What each profile asks for, for people."""

_RESILIENCE = frozenset("KL")


@attrs.frozen
class Check:
    """One check. Made by the decorator ``check`` of ``registry``."""

    id: str
    """A letter for the family and two digits, as in ``K01``."""
    severity: Severity
    title: str
    """What must hold, in one line."""
    does: str
    """What the suite does."""
    expects: str
    """What must be seen, with its limits."""
    production: str
    """What a failure looks like on a node."""
    links: tuple[str, ...]
    """Sources: addresses of public threads, and where the rule stands."""
    scene: Scene
    hooks: tuple[str, ...]
    """The hooks it cannot do without."""
    unregistered: bool
    """Whether it says something of a plugin that does not register, too."""
    run: Callable[[CheckRun], str | None] = attrs.field(eq=False, repr=False)
    """Carries it out. Returns what it measured, if that is worth telling; raises ``Failed``,
    ``Warned`` or ``Skipped``."""

    @property
    def family(self) -> str:
        return self.id[0]

    def belongs_to(self, profile: Profile) -> bool:
        """Whether a plugin of this profile has to pass it."""
        match self.severity, profile:
            case Severity.MUST, Profile.CORE:
                return self.family not in _RESILIENCE
            case Severity.MUST, _:
                return True
            case Severity.SHOULD, Profile.COMPLETE:
                return True
        return False

    def data(self) -> dict[str, Any]:
        """As plain data for JSON; its shape stands in docs/json.md."""
        return {
            "id": self.id,
            "severity": self.severity.value,
            "title": self.title,
            "does": self.does,
            "expects": self.expects,
            "production": self.production,
            "links": list(self.links),
            "hooks": list(self.hooks),
        }


@attrs.frozen
class Verdict:
    """What came of one check, and what a reader needs to understand it."""

    check: Check
    outcome: Outcome
    seen: str = ""
    """What was seen; of a skip, why; of a waiver, its reason."""
    seconds: float = 0.0
    timeline: tuple[Line, ...] = ()
    """What the suite did, what the kubelet saw, the calls; for a failure, a warning and an
    error."""
    output: tuple[str, ...] = ()
    """The plugin's last lines in that time."""
    reproduce: str = ""
    """A command that carries out this check alone, in the same way."""

    def data(self) -> dict[str, Any]:
        """As plain data for JSON; its shape stands in docs/json.md."""
        check = self.check
        return {
            "id": check.id,
            "severity": check.severity.value,
            "title": check.title,
            "outcome": self.outcome.value,
            "seen": self.seen,
            "does": check.does,
            "expects": check.expects,
            "production": check.production,
            "links": list(check.links),
            "seconds": round(self.seconds, 3),
            "timeline": [attrs.asdict(line) for line in self.timeline],
            "output": list(self.output),
            "reproduce": self.reproduce,
        }
