"""``devicemanager check``: run the conformance checks on a device plugin or a DRA driver."""

from __future__ import annotations

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from devicemanager.cli import grpc_engine, settings_options
from devicemanager.cli.check_repeat import repeating_command
from devicemanager.cli.checking import list_checks, print_verdict, report_or_end, run_until_signal
from devicemanager.cli.files import add_directory, add_file
from devicemanager.cli.options import CommandError, add_format, add_repeated, command
from devicemanager.cli.output import clean, print_json, print_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from devicemanager.cli.options import Subparsers
    from devicemanager.conformance import (
        Check,
        Limits,
        Profile,
        Report,
        Verdict,
    )
    from devicemanager.kubelet.settings import Settings
    from devicemanager.observe.terminal.progress import Work

_DESCRIPTION = """\
Run a device plugin or a DRA driver on mock kubelets and check that it meets the kubelet's
requirements: registration, restarts, device lists or ResourceSlices, allocations or claims, and
process behaviour. Put its command after --. {plugin_dir} in the command is replaced by the
directory of kubelet.sock. For drivers, {kubeconfig}, {node_name}, {registrar_dir}, {plugins_dir},
{cdi_dir} and {pod_uid} are replaced. With --client, the command is a PodResources client, such as
an exporter, and {socket} in it is replaced by the path of the PodResources socket.
"""
_EVERY_VERSION = "all"
_PROFILES = ("core", "resilient", "complete")


def add(subparsers: Subparsers) -> None:
    """Add ``devicemanager check`` and its options."""
    parser = command(
        subparsers,
        "check",
        _run,
        "run conformance checks on a device plugin or DRA driver",
        _DESCRIPTION,
        complete=_complete,
    )
    # argparse's own usage would not show the -- before the command.
    parser.usage = "%(prog)s [options] -- COMMAND [ARG ...]"
    parser.takes_command = True


def _complete(parser: argparse.ArgumentParser) -> None:
    # First, because the conformance checks import gRPC. The plugin has a process of its own.
    grpc_engine.use_calling_threads()
    from devicemanager.conformance import FORMS, HOOKS

    add = parser.add_argument
    add("command", nargs="*", metavar="COMMAND", help="the command of the program, after --")
    add(
        "--driver",
        action="store_true",
        help="check a DRA driver (default: what the program registers as)",
    )
    add(
        "--client",
        action="store_true",
        help="check a PodResources client instead of a plugin: does it exit, hang, leak or call "
        "too often?",
    )
    add(
        "--metrics",
        metavar="URL",
        help="with --client: address of the client's Prometheus page; checks that the page is "
        "valid and changes with the pods; {port} here and in the command is a free port",
    )
    add(
        "--profile",
        choices=_PROFILES,
        default="complete",
        help="checks that set the exit status: core (the contract with the kubelet), resilient "
        "(also restarts), complete (also every SHOULD; default)",
    )
    add_repeated(parser, "--only", "ID", "run only this check or family, such as K09 or K")
    add_repeated(parser, "--skip", "ID", "skip this check or family")
    add("--list", action="store_true", help="list the checks and exit")
    add_repeated(
        parser,
        "--report",
        "FORMAT=FILE",
        "also write a report; formats: " + ", ".join(FORMS),
        type=_report,
    )
    add(
        "--write-tests",
        metavar="DIR",
        help="write a test for each failed check into this directory, for the fixture "
        "plugin_process or the package clients/go",
    )
    add(
        "--language",
        choices=("python", "go"),
        default="python",
        help="language of --write-tests (default: python)",
    )
    add_repeated(
        parser,
        "--hook",
        "NAME=COMMAND",
        "shell command, with placeholders {id}, {pid}, {plugin_dir} and {root}: "
        + "; ".join(f"{name} {purpose}" for name, purpose in HOOKS.items()),
        type=_pair,
    )
    add_repeated(parser, "--env", "NAME=VALUE", "environment variable for the plugin", type=_pair)
    add_repeated(
        parser,
        "--resource",
        "NAME",
        "resource of the plugin (default: what it registers)",
        type=settings_options.device_resource,
    )
    add(
        "--at-node-paths",
        action="store_true",
        help="run the plugin in a private mount namespace, with the kubelet at /var/lib/kubelet",
    )
    _add_hardware(parser)
    _add_driver(parser)
    add(
        "--restart",
        choices=("never", "always"),
        default="never",
        help="always: start the plugin again when it exits, like a DaemonSet (default: never)",
    )
    add_file(parser, "--waivers", "YAML file of accepted failures with expiry dates")
    add_repeated(
        parser,
        "--limit",
        "NAME=NUMBER",
        "set a limit, such as recover_seconds=20; an unknown name lists all",
    )
    add("--thorough", action="store_true", help="wait longer: the run takes several minutes")
    number = settings_options.number
    add(
        "--seed",
        type=number(int),
        default=1,
        metavar="N",
        help="seed for random inputs (default: 1)",
    )
    add(
        "--jobs",
        type=number(int, 1),
        default=4,
        metavar="N",
        help="number of plugin instances to run in parallel (default: 4)",
    )
    settings_options.add_settings(parser, "version", every=_EVERY_VERSION)
    add_format(parser, "text", "json")


_DIRECTORIES = {
    "dev": "/dev; its files may be regular files in place of device nodes",
    "sys": "/sys",
    "cdi": "/etc/cdi and /var/run/cdi",
}
"""Directory that an option replaces, by option name."""


def _add_hardware(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("hardware that this machine does not have")
    group.add_argument(
        "--numa",
        metavar="NODES|host|FILE",
        help="NUMA nodes that devices may have: IDs such as 0,1 or 0-3, `host`, or a file as for "
        "`run` (default: the nodes in --sys)",
    )
    for name, replaced in _DIRECTORIES.items():
        add_directory(group, f"--{name}", f"directory to mount for the plugin at {replaced}")


def _add_driver(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("DRA drivers")
    group.add_argument(
        "--private-root",
        action="store_true",
        help="run the driver in a private mount namespace, with the kubelet at /var/lib/kubelet, "
        "its own /etc/cdi and /var/run/cdi, and the files and variables of a pod for the API "
        "server",
    )
    group.add_argument(
        "--rootfs",
        metavar="DIR",
        help="run the driver in the file system of its container image, which is unpacked in this "
        "directory; implies --private-root",
    )
    group.add_argument(
        "--previous",
        metavar="COMMAND",
        help="command of an earlier version, as one argument, to check an upgrade and a downgrade",
    )
    group.add_argument(
        "--nri",
        action="store_true",
        help="the driver is an NRI plugin: also run an NRI runtime, at /var/run/nri/nri.sock; "
        "implies --private-root",
    )
    group.add_argument(
        "--reboot",
        action="store_true",
        help="also simulate a reboot: the driver sees another boot ID",
    )


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"invalid value {text!r}: expected NAME=VALUE")
    return name, value


def _report(text: str) -> tuple[str, str]:
    from devicemanager.conformance import FORMS

    form, path = _pair(text)
    if form not in FORMS:
        raise argparse.ArgumentTypeError(
            f"unknown report format {form!r}: use one of {', '.join(FORMS)}"
        )
    return form, path


def _run(args: argparse.Namespace) -> int:
    from devicemanager.cli.check_subject import (
        chosen_checks,
        known_ids,
        program_of,
        report_one_instance,
        report_unused_hooks,
    )
    from devicemanager.conformance import Profile, Waivers, run, write
    from devicemanager.conformance.reports import check_place
    from devicemanager.conformance.suite import PLUGINS

    if args.client:
        from devicemanager.cli.check_client import run_client

        return run_client(args)
    if args.metrics is not None:
        raise CommandError("--metrics needs --client")
    # Checked first, because --list needs no program.
    chosen = chosen_checks(args)
    if args.list:
        return list_checks(args, chosen)
    if not args.command:
        of, option = ("driver", " --driver") if args.driver else ("plugin", "")
        raise CommandError(
            f"the {of}'s command is missing: use `devicemanager check{option} -- COMMAND`"
        )
    # Checked before the conformance checks run, which takes minutes.
    for form, path in args.report:
        check_place(form, Path(path))
    if args.kubelet_version == _EVERY_VERSION:
        _check_options_of_one_version(args)
    if args.write_tests is not None and not Path(args.write_tests).is_dir():
        raise CommandError(f"--write-tests: {args.write_tests} is not a directory: create it first")
    # Also read before anything runs, so that mistakes are reported immediately.
    waivers = None
    if args.waivers is not None:
        # With the IDs of all checks, because a file can have waivers for checks that this run
        # skips.
        waivers = Waivers.read(Path(args.waivers), known_ids())
    # After the cheap checks, because this can start the program to see what it registers.
    program, limits, suite = program_of(args)
    # The written tests start a plugin, with the fixture plugin_process or the package clients/go.
    if args.write_tests is not None and suite is not PLUGINS:
        raise CommandError("--write-tests is for plugins: omit it for a DRA driver")
    # Selected again: only now it is certain whether the program is a plugin or a driver.
    chosen = chosen_checks(args, suite)
    report_unused_hooks(program, suite, chosen)
    report_one_instance(args, program)
    options = {
        "limits": limits,
        "seed": args.seed,
        "jobs": args.jobs,
        "waivers": waivers,
        "suite": suite,
    }
    start = partial(run, program, chosen, **options)
    profile = Profile(args.profile)
    if args.kubelet_version == _EVERY_VERSION:
        return _on_every_version(args, start, chosen, profile)
    # The files of these kubelets need not survive a power failure, and flushing them would slow
    # down each admission.
    settings = settings_options.version_settings(args, durability="process")
    show = _Progress(args.output == "text")
    report = _report_of(args, start, len(chosen), settings, show.verdict)
    for form, path in args.report:
        write(report, form, Path(path))
    if args.write_tests is not None:
        _write_tests(report, limits, Path(args.write_tests), args.language)
    if args.output == "json":
        print(json.dumps(report.data(), indent=2))
    else:
        show.end(report)
    return report.exit_status(profile)


def _write_tests(report: Report, limits: Limits, directory: Path, language: str) -> None:
    """Write the tests of failed checks to a new file. Print its name on standard error."""
    from devicemanager.cli.files import write_new
    from devicemanager.conformance.written_tests import package_in, written_tests

    tests = written_tests(report, language, limits, package_in(directory))
    if not tests.ids:
        print("check: no check failed, so there are no tests to write", file=sys.stderr)
        return
    path = directory / tests.name
    write_new(str(path), tests.text.encode())
    # Standard output may contain the report as JSON.
    text = f"check: {path}: tests of {', '.join(tests.ids)}"
    print(clean(text), file=sys.stderr)


def _report_of(
    args: argparse.Namespace,
    start: Callable[..., Report],
    count: int,
    settings: Settings,
    show: Callable[[Verdict, Work], None],
) -> Report:
    """Run the checks, show progress on standard error, and return the report. A signal ends the
    process."""
    from devicemanager.conformance import Stages
    from devicemanager.observe.terminal.progress import Work

    stages = Stages()
    with Work(f"check on {settings.kubelet_version}", count) as work:

        def on_verdict(verdict: Verdict) -> None:
            show(verdict, work)
            work.advance(doing=f"{verdict.check.id} {verdict.check.title}")

        result = run_until_signal(
            partial(
                start,
                settings=settings,
                on_verdict=on_verdict,
                reproduce=lambda check: repeating_command(args, check, settings.kubelet_version),
                on_wait=work.note,
                stages=stages,
            ),
            stages.close,
        )
    return report_or_end(result)


def _check_options_of_one_version(args: argparse.Namespace) -> None:
    # Each version has a report of its own, and all of them would be written to the same file.
    for name in ("report", "write_tests"):
        if getattr(args, name):
            option = f"--{name.replace('_', '-')}"
            raise CommandError(
                f"{option} cannot be used with --kubelet-version all: use one version"
            )


def _on_every_version(
    args: argparse.Namespace,
    start: Callable[..., Report],
    chosen: Sequence[Check],
    profile: Profile,
) -> int:
    """Run the checks on each anchor version of the kubelet, print one table, and return the exit
    status."""
    from devicemanager.core.versions.version import ANCHORS

    reports = []
    for version in ANCHORS:
        args.kubelet_version = version
        settings = settings_options.version_settings(args, durability="process")
        # Verdicts are not printed one by one, because the table shows them.
        reports.append(_report_of(args, start, len(chosen), settings, lambda *_: None))
        if args.output == "text":
            summary, profile_text = reports[-1].summary, reports[-1].profile_text
            print(clean(f"kubelet {version}: {summary}; {profile_text}"), flush=True)
    if args.output == "json":
        print_json("check-versions", {"reports": [report.data() for report in reports]})
    else:
        rows = [
            [check.id, check.title, *(each.verdicts[index].outcome.value for each in reports)]
            for index, check in enumerate(chosen)
        ]
        print_table(["check", "", *ANCHORS], rows)
    # The exit status is 0 only if the checks pass on every version.
    return max(report.exit_status(profile) for report in reports)


class _Progress:
    """Printer that shows each verdict as soon as it is known, in color on a terminal."""

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled

    def verdict(self, verdict: Verdict, work: Work) -> None:
        if self._enabled:
            print_verdict(verdict, work)

    def end(self, report: Report) -> None:
        from devicemanager.conformance import Outcome, Severity
        from devicemanager.conformance.reports.text import explain, name_cause

        severities = list(Severity)
        failed, warned = (
            # A failed MUST first: a failed SHOULD counts only in the profile ``complete``.
            sorted(verdicts, key=lambda each: severities.index(each.check.severity))
            for verdicts in (report.failed(), report.of(Outcome.WARN))
        )
        for verdict in (*failed, *warned):
            print(f"\n{explain(verdict)}")
        if report.causes:
            print("\ncauses of the failures, the most severe first:")
        for number, cause in enumerate(report.causes, 1):
            print("\n".join(clean(line) for line in name_cause(number, cause).splitlines()))
        if report.lacking:
            print("\nskipped checks that would run with:")
        for need, checks in report.lacking.items():
            print(f"  {need}: {' '.join(checks)}")
        print()
        print(clean(f"{report.summary}; {report.profile_text}"))
