"""``devicemanager check``: certify a device plugin."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli import files, settings_options
from devicemanager.cli.options import CommandError, add_format, command
from devicemanager.cli.output import clean, print_json, print_table

if TYPE_CHECKING:
    import signal
    from collections.abc import Callable, Sequence

    from devicemanager.cli.options import Subparsers
    from devicemanager.conformance import Check, Limits, PluginUnderTest, Report, Verdict, Waivers
    from devicemanager.conformance.check_run import Stages
    from devicemanager.kubelet.settings import Settings
    from devicemanager.observe.terminal.progress import Work

_DESCRIPTION = """\
Run a device plugin on mock kubelets and check what it owes to the kubelet: registration,
restarts, lists, allocations, its process. The plugin's command comes after --; {plugin_dir}
stands for the directory where it finds kubelet.sock.
"""
_EVERY = "all"
_PROFILES = ("core", "resilient", "complete")


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager check`` and its options."""
    parser = command(
        subparsers, "check", _run, "certify a device plugin", _DESCRIPTION, complete=_complete
    )
    parser.usage = "%(prog)s [options] -- COMMAND [ARG ...]"
    parser.takes_command = True


def _complete(parser: argparse.ArgumentParser) -> None:
    from devicemanager.conformance.plugin_under_test import HOOKS
    from devicemanager.conformance.reports import FORMS

    add = parser.add_argument
    add("command", nargs="*", metavar="COMMAND", help="the plugin's command, after --")
    add(
        "--profile",
        choices=_PROFILES,
        default="complete",
        help="which checks decide: core (the contract), resilient (and restarts), complete (and "
        "every SHOULD; the default)",
    )
    add(
        "--only",
        action="append",
        default=[],
        metavar="ID",
        help="only this check or family, such as K09 or K; may be repeated",
    )
    add("--skip", action="append", default=[], metavar="ID", help="not this check or family")
    add("--list", action="store_true", help="list the checks and end")
    add(
        "--report",
        action="append",
        default=[],
        metavar="FORM=FILE",
        type=_report,
        help="also write a report: " + ", ".join(FORMS),
    )
    add(
        "--hook",
        action="append",
        default=[],
        metavar="NAME=COMMAND",
        type=_pair,
        help="a shell command with {id}, {pid}, {plugin_dir}: "
        + "; ".join(f"{name} {what}" for name, what in HOOKS.items()),
    )
    add(
        "--env",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        type=_pair,
        help="a variable for the plugin",
    )
    add(
        "--resource",
        action="append",
        default=[],
        metavar="NAME",
        type=settings_options.device_resource,
        help="what the plugin serves (default: what it registers at first)",
    )
    add(
        "--at-node-paths",
        action="store_true",
        help="the plugin finds the kubelet at /var/lib/kubelet, in a private mount namespace",
    )
    add(
        "--restart",
        choices=("never", "always"),
        default="never",
        help="always: start the plugin again when it ends, as a DaemonSet does",
    )
    add(
        "--waivers",
        metavar="FILE",
        type=files.file_name,
        help="failures that are accepted until a day (YAML)",
    )
    add(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=NUMBER",
        help="another limit, such as recover_seconds=20; may be repeated. An unknown name lists "
        "them",
    )
    add("--thorough", action="store_true", help="with long waits: some minutes")
    number = settings_options.number
    add("--seed", type=number(int), default=1, help="of random inputs (default: 1)")
    add(
        "--jobs",
        type=number(int, 1),
        default=4,
        metavar="N",
        help="how many of the plugin run at a time (default: 4)",
    )
    settings_options.add_version(parser, _EVERY)
    add_format(parser, "text", "json")


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"write NAME=VALUE: not {text!r}")
    return name, value


def _report(text: str) -> tuple[str, str]:
    from devicemanager.conformance.reports import FORMS

    form, path = _pair(text)
    if form not in FORMS:
        raise argparse.ArgumentTypeError(
            f"there is no report {form!r}: choose from {', '.join(FORMS)}"
        )
    return form, path


def _run(args: argparse.Namespace) -> int:
    from devicemanager.conformance import Profile, all_checks, select, write
    from devicemanager.conformance.reports import check_place

    chosen = select(args.only, args.skip)
    if args.list:
        return _list(args, chosen)
    if not args.command:
        raise CommandError("the plugin's command is missing: devicemanager check -- COMMAND …")
    for form, path in args.report:
        check_place(form, Path(path))
    subject = _subject(args)
    waivers = _waivers(args, [each.id for each in all_checks()])
    if args.kubelet_version == _EVERY:
        return _on_every_version(args, subject, chosen, waivers)
    settings = settings_options.version_settings(args, durability="process")
    show = _Progress(args.output == "text")
    report = _report_of(args, subject, chosen, waivers, settings, show.verdict)
    for form, path in args.report:
        write(report, form, Path(path))
    profile = Profile(args.profile)
    if args.output == "json":
        print(json.dumps(report.data(), indent=2))
    else:
        show.end(report)
    return report.exit_status(profile)


def _list(args: argparse.Namespace, chosen: Sequence[Check]) -> int:
    if args.output == "json":
        print_json("check-list", {"checks": [each.data() for each in chosen]})
        return 0
    for each in chosen:
        print(f"{each.id}  {each.severity.value:6}  {each.title}")
    return 0


def _report_of(
    args: argparse.Namespace,
    subject: PluginUnderTest,
    chosen: Sequence[Check],
    waivers: Waivers | None,
    settings: Settings,
    show: Callable[[Verdict, Work], None],
) -> Report:
    from devicemanager.conformance import run
    from devicemanager.conformance.check_run import Stages
    from devicemanager.observe.terminal.progress import Work

    stages = Stages()
    with Work(f"check on {settings.kubelet_version}", len(chosen)) as work:

        def told(verdict: Verdict) -> None:
            show(verdict, work)
            work.advance(doing=f"{verdict.check.id} {verdict.check.title}")

        limits = _limits(args)
        outcome = _until_a_signal(
            lambda: run(
                subject,
                chosen,
                limits=limits,
                seed=args.seed,
                jobs=args.jobs,
                waivers=waivers,
                settings=settings,
                on_verdict=told,
                reproduce=lambda check: _again(args, check, settings.kubelet_version),
                on_wait=work.note,
                stages=stages,
            ),
            stages,
        )
    if isinstance(outcome, int):
        from devicemanager.plugin.processes.supervisor import end_as

        end_as(outcome)
    return outcome


def _until_a_signal(run: Callable[[], Report], stages: Stages) -> Report | signal.Signals:
    """The report, or the signal to stop that came before: then nothing of the run is left but
    threads that wait for what is there no more."""
    import threading
    from concurrent.futures import Future

    from devicemanager.cli.stopping import StopSignals

    outcome: Future[Report] = Future()

    def carry_out() -> None:
        try:
            outcome.set_result(run())
        except BaseException as error:
            outcome.set_exception(error)
        signals.give_up()

    with StopSignals() as signals:
        threading.Thread(target=carry_out, name="checks", daemon=True).start()
        if (number := signals.wait()) is not None:
            stages.close()
            return number
    return outcome.result()


def _on_every_version(
    args: argparse.Namespace,
    subject: PluginUnderTest,
    chosen: Sequence[Check],
    waivers: Waivers | None,
) -> int:
    """The checks on the kubelet of each anchor, as one table."""
    from devicemanager.conformance import Profile
    from devicemanager.core.versions.version import ANCHORS

    if args.report:
        raise CommandError("--report needs one --kubelet-version")
    reports = []
    for version in ANCHORS:
        args.kubelet_version = version
        settings = settings_options.version_settings(args, durability="process")
        reports.append(_report_of(args, subject, chosen, waivers, settings, _no_verdict))
        if args.output == "text":
            print(f"kubelet {version}: {_counted(reports[-1])}", flush=True)
    if args.output == "json":
        print_json("check-versions", {"reports": [report.data() for report in reports]})
    else:
        rows = [
            [check.id, check.title, *(each.verdicts[place].outcome.value for each in reports)]
            for place, check in enumerate(chosen)
        ]
        print_table(["check", "", *ANCHORS], rows)
    profile = Profile(args.profile)
    return max(report.exit_status(profile) for report in reports)


def _subject(args: argparse.Namespace) -> PluginUnderTest:
    from devicemanager.conformance import PluginUnderTest

    return PluginUnderTest(
        command=args.command,
        env=dict(args.env),
        at_node_paths=args.at_node_paths,
        restart=args.restart,
        hooks=dict(args.hook),
        resources=tuple(args.resource),
    )


def _limits(args: argparse.Namespace) -> Limits:
    from devicemanager.conformance import Limits

    return (Limits.thorough() if args.thorough else Limits()).overridden(args.limit)


def _waivers(args: argparse.Namespace, known: list[str]) -> Waivers | None:
    from devicemanager.conformance import Waivers

    return None if args.waivers is None else Waivers.read(Path(args.waivers), known)


def _again(args: argparse.Namespace, check: Check, version: str) -> str:
    """The command for this check alone, in the same way."""
    words = ["devicemanager", "check", "--only", check.id, "--seed", str(args.seed)]
    for name in ("hook", "env"):
        for key, value in getattr(args, name):
            words += [f"--{name}", f"{key}={value}"]
    for name in ("resource", "limit"):
        for value in getattr(args, name):
            words += [f"--{name}", value]
    words += ["--kubelet-version", version] if args.kubelet_version is not None else []
    words += ["--at-node-paths"] if args.at_node_paths else []
    words += ["--restart", args.restart] if args.restart != "never" else []
    words += ["--thorough"] if args.thorough else []
    return shlex.join([*words, "--", *args.command])


def _no_verdict(verdict: Verdict, work: Work) -> None:
    """Of many versions only the table is shown."""


class _Progress:
    """Verdicts on standard output as they come; on a terminal in colour."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted

    def verdict(self, verdict: Verdict, work: Work) -> None:
        if not self._wanted:
            return
        check = verdict.check
        outcome = verdict.outcome.value
        seen = f": {verdict.seen}" if verdict.seen else ""
        line = f"{check.id}  {outcome:6}  {check.severity.value:6}  {check.title}{seen}"
        work.print(clean(line), _STYLES[outcome])

    def end(self, report: Report) -> None:
        from devicemanager.conformance.reports.text import told
        from devicemanager.conformance.runner import FIRST

        for verdict in report.failed():
            print(f"\n{told(verdict)}")
        reached = "none" if report.profile is None else report.profile.value
        print(f"\n{_counted(report)}; profile {reached}")
        for verdict in report.failed():
            if verdict.check.id == FIRST:
                print(clean(f"the plugin does not register: {verdict.seen}"))


def _counted(report: Report) -> str:
    counts = ", ".join(f"{count} {outcome.value}" for outcome, count in report.counts.items())
    return f"{counts} in {report.seconds:.0f} s"


_STYLES = {
    "pass": "green",
    "fail": "bold red",
    "warn": "yellow",
    "skip": "dim",
    "waived": "dim yellow",
    "error": "bold magenta",
}
