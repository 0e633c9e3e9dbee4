"""Count what scenarios reach: texts of the kubelet, steps, and branches of its decisions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from tools.differential.plain import plain_text
from tools.differential.scenarios import Scenario, kind_of, steps_of

Plain = Mapping[str, Any]


def reached(scenario: Scenario, answer: Plain) -> frozenset[str]:
    """Return the names of everything that the reference reaches in its first run."""
    return frozenset(_reached(scenario, answer))


def _reached(scenario: Scenario, answer: Plain) -> Iterator[str]:
    if error := answer.get("config_error"):
        yield "config error"
        return
    if not answer.get("runs"):
        return
    run = answer["runs"][0]
    if run.get("panic"):
        yield "panic"
    yield "nothing"
