"""Conformance checks: does a device plugin or a DRA driver meet the kubelet's requirements?

Theory of operation. The suite starts mock kubelets and runs the plugin with them, as a process. It
disturbs both, for example by restarts, and compares what the plugin does with what a kubelet and
the operator of a node need.

In:  a ``PluginUnderTest`` (command, environment, hooks for its devices), a selection of checks,
     ``Limits``, ``Waivers``, a seed for random inputs.
Out: a ``Report`` with a ``Verdict`` per check: outcome, what was seen, a timeline and the command
     that repeats the check. ``write`` converts a report to JSON, JUnit XML, HTML, Markdown or a
     badge.

Parts, from the outside in:

* ``runner`` decides the order of checks and runs them in parallel; a ``stage`` is a mock kubelet
  with the plugin on it.
* ``checks.toml`` has one row per check: what it requires, does and expects.
* ``checks`` has the functions of the checks, one module per family. Each function gets a
  ``CheckRun`` (``check_run``), which has the actions and waits that checks use.
* ``report`` has the result of a run, and ``reports`` its formats.
* ``suite`` has the differences between plugins and DRA drivers. ``drivers`` has the checks of
  drivers.

Invariants:

* A check fails only because of the plugin. If a precondition is not met, the check is skipped.
* A check is not affected by a failure of an earlier check: after a failure, the stage is replaced.
* The suite contains no rules of the kubelet; ``devicemanager.kubelet`` has them.
* Everything that a plugin prints or sends is untrusted and is escaped before it is shown.
* ``Stages.close`` can be called at any moment, on any thread. No process or directory remains.

Start reading with ``runner.run``, then ``checks/restarts.py`` and ``check_run.py``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.conformance.check_run import CheckRun
    from devicemanager.conformance.checks import all_checks, select
    from devicemanager.conformance.client import CallFailed, ListStream, PluginClient
    from devicemanager.conformance.hardware import Hardware
    from devicemanager.conformance.limits import Limits
    from devicemanager.conformance.observations import Observations, Timeline
    from devicemanager.conformance.outcomes import (
        CheckError,
        Failed,
        Line,
        Lost,
        Outcome,
        Profile,
        Scene,
        Severity,
        Skipped,
        Warned,
    )
    from devicemanager.conformance.plugin_under_test import HOOKS, Hook, PluginUnderTest
    from devicemanager.conformance.process_checks import Usage
    from devicemanager.conformance.pytest import ConformanceWarning, pytest_checks
    from devicemanager.conformance.registry import Check, CheckFunction, check
    from devicemanager.conformance.report import Cause, Report, Verdict
    from devicemanager.conformance.reports import FORMS, write
    from devicemanager.conformance.runner import OnVerdict, run
    from devicemanager.conformance.running_plugin import RunningPlugin
    from devicemanager.conformance.stage import OnWait, Stage, Stages
    from devicemanager.conformance.suite import Suite
    from devicemanager.conformance.suite_run import SuiteRun
    from devicemanager.conformance.waivers import Waiver, Waivers

__all__ = [
    "FORMS",
    "HOOKS",
    "CallFailed",
    "Cause",
    "Check",
    "CheckError",
    "CheckFunction",
    "CheckRun",
    "ConformanceWarning",
    "Failed",
    "Hardware",
    "Hook",
    "Limits",
    "Line",
    "ListStream",
    "Lost",
    "Observations",
    "OnVerdict",
    "OnWait",
    "Outcome",
    "PluginClient",
    "PluginUnderTest",
    "Profile",
    "Report",
    "RunningPlugin",
    "Scene",
    "Severity",
    "Skipped",
    "Stage",
    "Stages",
    "Suite",
    "SuiteRun",
    "Timeline",
    "Usage",
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
        "CallFailed": "client",
        "Cause": "report",
        "Check": "registry",
        "CheckError": "outcomes",
        "CheckFunction": "registry",
        "CheckRun": "check_run",
        "ConformanceWarning": "pytest",
        "FORMS": "reports",
        "Failed": "outcomes",
        "HOOKS": "plugin_under_test",
        "Hardware": "hardware",
        "Hook": "plugin_under_test",
        "Limits": "limits",
        "Line": "outcomes",
        "ListStream": "client",
        "Lost": "outcomes",
        "Observations": "observations",
        "OnVerdict": "runner",
        "OnWait": "stage",
        "Outcome": "outcomes",
        "PluginClient": "client",
        "PluginUnderTest": "plugin_under_test",
        "Profile": "outcomes",
        "Report": "report",
        "RunningPlugin": "running_plugin",
        "Scene": "outcomes",
        "Severity": "outcomes",
        "Skipped": "outcomes",
        "Stage": "stage",
        "Stages": "stage",
        "Suite": "suite",
        "SuiteRun": "suite_run",
        "Timeline": "observations",
        "Usage": "process_checks",
        "Verdict": "report",
        "Waiver": "waivers",
        "Waivers": "waivers",
        "Warned": "outcomes",
        "all_checks": "checks",
        "check": "registry",
        "pytest_checks": "pytest",
        "run": "runner",
        "select": "checks",
        "write": "reports",
    },
)
