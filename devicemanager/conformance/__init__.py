"""Certify a device plugin: checks of all it owes to the kubelet and to the people who run it.

What belongs here: the checks (``families``, a module for each), what carries them out
(``runner``, ``trial``), the plugin under test (``subject``), and the forms of a report
(``reports``). What never does: a rule of the kubelet's; the kubelet here is the one of
``devicemanager.kubelet``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.conformance.limits import Limits
    from devicemanager.conformance.model import Check, Verdict
    from devicemanager.conformance.outcomes import (
        CheckError,
        Failed,
        Outcome,
        Profile,
        Scene,
        Severity,
        Skipped,
        Warned,
    )
    from devicemanager.conformance.plugin_under_test import PluginUnderTest
    from devicemanager.conformance.pytest import pytest_checks
    from devicemanager.conformance.registry import all_checks, check, select
    from devicemanager.conformance.report import Report
    from devicemanager.conformance.reports import write
    from devicemanager.conformance.runner import run
    from devicemanager.conformance.waivers import Waiver, Waivers

__all__ = [
    "Check",
    "CheckError",
    "Failed",
    "Limits",
    "Outcome",
    "PluginUnderTest",
    "Profile",
    "Report",
    "Scene",
    "Severity",
    "Skipped",
    "Verdict",
    "Waiver",
    "Waivers",
    "Warned",
    "all_checks",
    "check",
    "pytest_checks",
    "run",
    "select",
    "write",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Check": "model",
        "CheckError": "outcomes",
        "Failed": "outcomes",
        "Limits": "limits",
        "Outcome": "outcomes",
        "Profile": "outcomes",
        "Report": "report",
        "Scene": "outcomes",
        "Severity": "outcomes",
        "Skipped": "outcomes",
        "PluginUnderTest": "plugin_under_test",
        "Verdict": "model",
        "Waiver": "waivers",
        "Waivers": "waivers",
        "Warned": "outcomes",
        "check": "registry",
        "all_checks": "registry",
        "pytest_checks": "pytest",
        "run": "runner",
        "select": "registry",
        "write": "reports",
    },
)
