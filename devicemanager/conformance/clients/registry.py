"""Definition of a check of PodResources clients: a row of ``checks.toml`` and its function."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.conformance.outcomes import Scene, Severity
from devicemanager.conformance.registry import Check, addresses

if TYPE_CHECKING:
    from devicemanager.conformance.clients.client_run import ClientRun

__all__ = ["client_check", "client_check_ids"]

_TABLE = Path(__file__).with_name("checks.toml")


def client_check(run: Callable[[ClientRun], str | None]) -> Check:
    """Return a Check that runs the decorated function. The Check's texts are in ``checks.toml``.

    The function's name must be the check's ID in lower case, such as ``c01``.
    """
    id_ = run.__name__.upper()
    # A copy, because the rows are cached, and ``pop`` changes the row.
    row = dict(_rows()[id_])
    return Check(
        id=id_,
        severity=Severity(row.pop("severity")),
        links=addresses(row.pop("links")),
        scene=Scene.OWN,
        hooks=(),
        needs_registration=False,
        run=run,
        **row,
    )


@cache
def _rows() -> Mapping[str, Mapping[str, Any]]:
    return tomllib.loads(_TABLE.read_text(encoding="utf-8"))


def client_check_ids() -> tuple[str, ...]:
    """Return the IDs of the checks of PodResources clients, in the order of ``checks.toml``."""
    return tuple(_rows())
