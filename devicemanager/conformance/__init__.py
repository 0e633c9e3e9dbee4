"""Conformance checks: does a device plugin meet the kubelet's requirements?

Theory of operation. The suite plays the kubelet: it starts mock kubelets, starts the plugin on
them as a process, disturbs both, and compares what the plugin does with what a kubelet and a
node's operator need.

In:  a ``PluginUnderTest`` (command, environment, hooks for its devices), a selection of checks,
     ``Limits``, ``Waivers``, a seed for random inputs.
Out: a ``Report`` with a ``Verdict`` per check: outcome, what was seen, a timeline and the command
     to repeat it; ``write`` makes JSON, JUnit XML, HTML, Markdown or a badge from it.

Parts, from the outside in:

* ``runner`` selects the order and runs checks in parallel; ``stage`` is a kubelet with a plugin.
* ``checks.toml`` has one row per check: what it requires, does and expects.
* ``checks`` has their functions, one module per family; ``check_run`` is what they work with.
* ``report`` and ``reports`` are the result.

Invariants:

* A check fails only for what the plugin does. If a precondition is not met, it is skipped.
* No check sees what another one has left behind: after a bad verdict the stage is replaced.
* The kubelet's behaviour is that of ``devicemanager.kubelet``; no rule of it is repeated here.
* Everything that a plugin prints or sends is untrusted, and is escaped before it is shown.
* Close ``Stages`` at any moment, from any thread, and no process or directory is left.

Start reading with ``runner.run``, then ``checks/restarts.py`` and ``check_run.py``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.conformance.check_run import CheckRun
    from devicemanager.conformance.checks import all_checks, select
    from devicemanager.conformance.client import CallFailed, ListStream, PluginClient
    from devicemanager.conformance.limits import Limits
    from devicemanager.conformance.observations import Observations, Timeline
    from devicemanager.conformance.outcomes import (
        CheckError,
        Failed,
        Line,
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
    from devicemanager.conformance.report import Report, Verdict
    from devicemanager.conformance.reports import FORMS, write
    from devicemanager.conformance.runner import OnVerdict, run
    from devicemanager.conformance.running_plugin import RunningPlugin
    from devicemanager.conformance.stage import OnWait, Stage, Stages
    from devicemanager.conformance.waivers import Waiver, Waivers

__all__ = [
    "FORMS",
    "HOOKS",
    "CallFailed",
    "Check",
    "CheckError",
    "CheckFunction",
    "CheckRun",
    "ConformanceWarning",
    "Failed",
    "Hook",
    "Limits",
    "Line",
    "ListStream",
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
        "Check": "registry",
        "CheckError": "outcomes",
        "CheckFunction": "registry",
        "CheckRun": "check_run",
        "ConformanceWarning": "pytest",
        "FORMS": "reports",
        "Failed": "outcomes",
        "HOOKS": "plugin_under_test",
        "Hook": "plugin_under_test",
        "Limits": "limits",
        "Line": "outcomes",
        "ListStream": "client",
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
