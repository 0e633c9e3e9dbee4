"""``devicemanager rehearse``: what a restart, a reboot or an upgrade would do to a node's pods."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from devicemanager.cli.files import add_file
from devicemanager.cli.options import CommandError, add_format, command
from devicemanager.cli.output import clean, failures, print_json, print_table
from devicemanager.cli.settings_options import CHOICES, number
from devicemanager.cli.snapshot_files import load_snapshot

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.rehearsal import Rehearsal, Step

_DESCRIPTION = """\
Rebuild the node of a snapshot in memory, run the steps in the order of the command line, and show
which pods stay and which the kubelet rejects. Changes of version and topology apply from the next
restart or reboot on; if none follows, the kubelet restarts directly after the last change. The exit
status is 1 if a pod would be lost or be without its devices, or if the kubelet would not start,
else 0.
"""
_EPILOG = """\
examples:
  %(prog)s node.tar.gz --reboot
  %(prog)s node.tar.gz --kubelet-version 1.37 --policy restricted
  %(prog)s node.tar.gz --drain --devices vendor.com/gpu=4 --reboot --admit pod.yaml
"""


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager rehearse`` and its options."""
    parser = command(
        subparsers,
        "rehearse",
        _run,
        "show what a restart, reboot or upgrade would do",
        _DESCRIPTION,
    )
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.usage = "%(prog)s FILE STEP... [options]"
    add_file(parser, "file", "snapshot archive; - for standard input")
    add_format(parser, "table", "json", "markdown")
    add_steps(parser, repeat=100)


def add_steps(parser: argparse.ArgumentParser, repeat: int) -> None:
    """Add the options for the steps of a rehearsal, such as ``--reboot``. Also add ``--repeat`` and
    ``--seed``.

    The steps are stored in ``args.steps``. After a kubelet starts, plugins and pods can return in
    many orders. If there are too many orders to try all, ``--repeat`` is the number of orders to
    try, and ``--seed`` selects them. ``repeat`` is the default of ``--repeat``.
    """
    steps = parser.add_argument_group("steps")
    _add_step(steps, "--restart", "restart the kubelet", _restart)
    _add_step(steps, "--reboot", "reboot the node", _reboot)
    _add_step(
        steps,
        "--drain",
        "delete all pods with devices, exclusive CPUs or memory, or claims",
        _drain,
    )
    _add_step(steps, "--kubelet-version", "upgrade the kubelet to VERSION", _version, "VERSION")
    _add_step(steps, "--policy", "policy of the topology manager", _policy, "POLICY")
    _add_step(steps, "--scope", "alignment scope", _scope, "SCOPE")
    _add_step(steps, "--option", "topology policy option", _option, "NAME=VALUE")
    _add_step(
        steps,
        "--without-plugin",
        "stop the plugin of a resource; it does not return",
        _without_plugin,
        "RESOURCE",
    )
    _add_step(
        steps,
        "--devices",
        "let a plugin advertise N devices, or devices with NUMA nodes such as 8@0,1",
        _devices,
        "RESOURCE=N",
    )
    _add_step(steps, "--admit", "admit the pod of a manifest", _admit, "FILE")
    orders = parser.add_argument_group("orders of plugins and pods after a start")
    orders.add_argument(
        "--repeat",
        type=number(int, 2),
        default=repeat,
        metavar="N",
        help=f"orders in a sample, if there are too many to try all (default: {repeat})",
    )
    orders.add_argument(
        "--seed", type=number(int, 0), default=0, help="seed of the sample (default: 0)"
    )


class _AddStep(argparse.Action):
    """Append the step of an option to ``steps``, so that the order of the options is kept."""

    def __init__(
        self, option_strings: Sequence[str], dest: str, make: Callable[[str], Step], **options: Any
    ) -> None:
        super().__init__(option_strings, "steps", default=[], **options)
        self._make = make

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        try:
            step = self._make(values or "")
        # argparse converts these errors only if the parser of a ``type`` raises them.
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise argparse.ArgumentError(self, str(error)) from None
        # A new list, because argparse shares the default between all parsers.
        namespace.steps = [*namespace.steps, step]


def _add_step(
    group: argparse._ArgumentGroup,
    name: str,
    help_: str,
    make: Callable[[str], Step],
    metavar: str | None = None,
) -> None:
    # An option without a value has nargs=0, and ``make`` gets an empty text.
    value: dict[str, Any] = {"nargs": 0} if metavar is None else {"metavar": metavar}
    group.add_argument(name, action=_AddStep, make=make, help=help_, **value)


# -- steps -------------------------------------------------------------------------------


def _restart(_: str) -> Step:
    # Each function imports its step, because `devicemanager --help` imports this module.
    from devicemanager.rehearsal import Restart

    return Restart()


def _reboot(_: str) -> Step:
    from devicemanager.rehearsal import Reboot

    return Reboot()


def _drain(_: str) -> Step:
    from devicemanager.rehearsal import Drain

    return Drain()


def _version(text: str) -> Step:
    from devicemanager.core.versions.version import KubeletVersion
    from devicemanager.rehearsal import Configure

    # Only checked here: an invalid version is an error of its option, before the snapshot is read.
    KubeletVersion.parse(text)
    return Configure(kubelet_version=text)


def _policy(text: str) -> Step:
    from devicemanager.rehearsal import Configure

    return Configure(policy=_choice("policy", text, CHOICES["topology_policy"]))


def _scope(text: str) -> Step:
    from devicemanager.rehearsal import Configure

    return Configure(scope=_choice("scope", text, CHOICES["topology_scope"]))


def _choice(what: str, text: str, choices: Sequence[str]) -> str:
    if text not in choices:
        raise ValueError(f"unknown {what} {text!r}: use one of {', '.join(choices)}")
    return text


def _option(text: str) -> Step:
    from devicemanager.rehearsal import Configure

    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"invalid topology option {text!r}: expected NAME=VALUE")
    return Configure(options={name: value})


def _without_plugin(text: str) -> Step:
    from devicemanager.rehearsal import WithoutPlugin

    return WithoutPlugin(text)


def _devices(text: str) -> Step:
    from devicemanager.kubelet.inmemory.devices import places
    from devicemanager.rehearsal import SetDevices

    resource, equals, devices = text.partition("=")
    if not equals or not resource:
        raise ValueError(f"invalid devices {text!r}: expected RESOURCE=N")
    count = len(places(devices))  # raises ValueError for an invalid text
    return SetDevices(resource, count if devices.isdecimal() else devices)


def _admit(text: str) -> Step:
    from devicemanager.objects.manifests import ManifestError, parse
    from devicemanager.rehearsal import Admit

    try:
        # Read while the command line is parsed, so that the error names the option.
        return Admit(parse(Path(text)))
    except (ManifestError, OSError) as error:
        raise ValueError(str(error)) from None


# -- output ------------------------------------------------------------------------------


def _run(args: argparse.Namespace) -> int:
    if not args.steps:
        raise CommandError("no step is given: add one, such as --restart or --reboot")
    with failures(args.output, "rehearsal", file=args.file):
        # Read first, because this reports a missing extra that the imports below need.
        snapshot = load_snapshot(args.file)
        from devicemanager.rehearsal import report
        from devicemanager.rehearsal.rehearsing import rehearse

        result = rehearse(snapshot, args.steps, repeat=args.repeat, seed=args.seed)
    if args.output == "json":
        print_json("rehearsal", {"file": args.file, **report.as_data(result)})
    elif args.output == "markdown":
        for line in report.markdown(result):
            print(clean(line))
    else:
        _print_text(result)
    return 1 if result.loses_pods else 0


def _print_text(result: Rehearsal) -> None:
    from devicemanager.rehearsal import report

    print_table(report.HEADER, report.rows(result))
    for resource, id_, old, new in ((*device, *owners) for device, owners in result.moved.items()):
        print(clean(f"{resource} {id_} moves from {old} to {new}"))
    print(clean(report.summary(result)))
    for said in result.statements:
        print(clean(f"- {said.text}"))
        print(clean(f"  -> {said.advice}"))
        print(clean(f"  basis: kubelet {said.basis}"))
    for text in result.assumptions:
        print(clean(f"assumed: {text}"))
