"""``devicemanager check --client``: run the conformance checks on a PodResources client."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli.check_repeat import repeating_command
from devicemanager.cli.checking import list_checks, print_verdict, report_or_end, run_until_signal
from devicemanager.cli.options import CommandError

if TYPE_CHECKING:
    import argparse

    from devicemanager.conformance import Verdict

# Options of `check` that only make sense for a plugin or driver.
_PLUGIN_OPTIONS = (
    "hook",
    "thorough",
    "kubelet_version",
    "feature_gates",
    "numa",
    "dev",
    "sys",
    "cdi",
    "write_tests",
    "driver",
    "private_root",
    "rootfs",
    "previous",
    "nri",
    "reboot",
)


def run_client(args: argparse.Namespace) -> int:
    """Run the checks on the client that the command line names, and return the exit status.

    Raises CommandError for an option that does not apply to clients, and CheckError for an invalid
    value.
    """
    from devicemanager.conformance import Waivers
    from devicemanager.conformance.clients import (
        ClientLimits,
        ClientRuns,
        ClientUnderTest,
        client_checks,
        run_client_checks,
        select_client_checks,
        write_client_report,
    )
    from devicemanager.conformance.clients.client_report import check_form
    from devicemanager.conformance.limit_values import overridden
    from devicemanager.conformance.outcomes import Outcome
    from devicemanager.conformance.reports import check_place
    from devicemanager.conformance.reports.text import explain
    from devicemanager.observe.terminal.progress import Work

    chosen = select_client_checks(args.only, args.skip)
    if args.list:
        return list_checks(args, chosen)
    for name in _PLUGIN_OPTIONS:
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise CommandError(f"{option} is for plugins and drivers: omit it with --client")
    # Tested apart from the other options, because its default is not empty.
    if args.restart != "never":
        raise CommandError("--restart is for plugins and drivers: omit it with --client")
    if not args.command:
        raise CommandError(
            "the client's command is missing: use `devicemanager check --client -- COMMAND`"
        )
    # Checked before the conformance checks run, which takes minutes.
    for form, path in args.report:
        check_form(form)
        check_place(form, Path(path))
    client = ClientUnderTest(
        command=args.command,
        env=dict(args.env),
        at_node_paths=args.at_node_paths,
        metrics=args.metrics,
        resources=tuple(args.resource),
    )
    waivers = None
    if args.waivers is not None:
        # With the IDs of all checks, because a file can have waivers for checks that this run
        # skips.
        waivers = Waivers.read(Path(args.waivers), [each.id for each in client_checks()])
    limits = overridden(ClientLimits(), args.limit)
    runs = ClientRuns()
    with Work("check of a client", len(chosen)) as work:

        def on_verdict(verdict: Verdict) -> None:
            if args.output == "text":
                print_verdict(verdict, work)
            work.advance(doing=f"{verdict.check.id} {verdict.check.title}")

        result = run_until_signal(
            partial(
                run_client_checks,
                client,
                chosen,
                limits=limits,
                jobs=args.jobs,
                waivers=waivers,
                on_verdict=on_verdict,
                reproduce=lambda check: repeating_command(args, check),
                runs=runs,
            ),
            runs.close,
        )
    report = report_or_end(result)
    for form, path in args.report:
        write_client_report(report, form, Path(path))
    # In the other profiles, a failed check of severity SHOULD does not set the exit status.
    should = args.profile == "complete"
    if args.output == "json":
        print(json.dumps(report.data(), indent=2))
    else:
        warned = [each for each in report.verdicts if each.outcome is Outcome.WARN]
        for verdict in (*warned, *report.failed()):
            print(f"\n{explain(verdict)}")
        print(f"\n{report.summary}")
    return report.exit_status(should=should)
