"""Conformance checks of PodResources clients: exporters and agents.

Theory of operation. The suite starts a scripted kubelet, and runs the client as a separate process.
It changes the kubelet's responses, and observes the client only from outside: does it exit, hang,
leak, call too often, or continue? Of what the client publishes, only its metrics page is checked.

In:  a ``ClientUnderTest`` (command, environment, metrics URL), checks, ``ClientLimits``.
Out: a ``ClientReport`` with a ``Verdict`` per check.

Parts, from the outside in:

* ``client_runner`` runs the checks in parallel.
* ``checks.toml`` has one row per check. ``checks`` has a function for each row. The function gets a
  ``ClientRun``, which the module ``client_run`` defines.
* ``kubelet`` serves PodResources and logs calls. ``content`` creates the pods for its responses.
* ``process`` and ``page`` are the client's process and its metrics page.

Invariants:

* A check fails only because of the client.
* Check C01 always runs first, and measures the interval of the client's queries. If it fails, the
  other checks are skipped. The other checks do not depend on each other.
* Everything that a client prints or serves is untrusted and is escaped before it is shown.
* ``ClientRuns.close`` can be called at any moment. No process or directory remains.

Start reading with ``checks``, then ``client_run``.
"""

from __future__ import annotations

from devicemanager.io.lazy import TYPE_CHECKING, lazy_names

if TYPE_CHECKING:
    from devicemanager.conformance.clients.client_report import (
        CLIENT_FORMS,
        ClientReport,
        write_client_report,
    )
    from devicemanager.conformance.clients.client_runner import ClientRuns, run_client_checks
    from devicemanager.conformance.clients.client_under_test import ClientUnderTest
    from devicemanager.conformance.clients.limits import ClientLimits
    from devicemanager.conformance.clients.selection import client_checks, select_client_checks

__all__ = [
    "CLIENT_FORMS",
    "ClientLimits",
    "ClientReport",
    "ClientRuns",
    "ClientUnderTest",
    "client_checks",
    "run_client_checks",
    "select_client_checks",
    "write_client_report",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "CLIENT_FORMS": "client_report",
        "ClientLimits": "limits",
        "ClientReport": "client_report",
        "ClientRuns": "client_runner",
        "ClientUnderTest": "client_under_test",
        "client_checks": "selection",
        "run_client_checks": "client_runner",
        "select_client_checks": "selection",
        "write_client_report": "client_report",
    },
)
