"""A report with four findings of a plugin with four faults, as `devicemanager check` makes it."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping

from devicemanager.conformance import (
    Limits,
    Outcome,
    PluginUnderTest,
    Report,
    Verdict,
    all_checks,
)
from tests.conformance.matrix import PLUGIN, RESOURCE
from tests.paths import ROOT

FAULTS: Mapping[str, str] = {
    "never-back": "K01",
    "accept-unknown": "A02",
    "changes": "A06",
    "stubborn": "L01",
}
"""The failed check of each switch of the breakable plugin (``matrix``)."""
TOGETHER = (("never-back", "accept-unknown", "changes"), ("stubborn",))
"""Switches that share a plugin. Each stop of a stubborn plugin takes long, so it has few tests."""
LIMITS = Limits(recover_seconds=5, stop_seconds=1)


def command(*switches: str) -> list[str]:
    program = ["env", f"PYTHONPATH={ROOT}", sys.executable, str(PLUGIN), "--dir", "{plugin_dir}"]
    return [*program, *(word for each in switches for word in ("--switch", each))]


def report(words: list[str], *ids: str, seen: str = "seen by the check") -> Report:
    plugin = PluginUnderTest(command=words)
    verdicts = tuple(
        Verdict(
            check,
            Outcome.FAIL if check.id in ids else Outcome.PASS,
            seen,
            reproduce=shlex.join(["devicemanager", "check", "--only", check.id, "--", *words]),
        )
        for check in all_checks()
    )
    return Report(plugin, verdicts, (RESOURCE,), 1, "1.37", 1.0)
