"""Planted bugs in structured claims, and in the objects of users that claims refer to."""

from __future__ import annotations

from tools.harness.planted import planted, set_to


@planted("constraints have no bound")
def _constraints() -> None:
    from devicemanager.claims.cel import limits, running

    set_to(running, "MAX_COST", 1 << 60)
    set_to(limits, "MAX_WORK", 1 << 60)


@planted("claims of a state file are trusted")
def _state() -> None:
    from devicemanager.claims import state_file

    set_to(state_file, "_MALFORMED", ())
