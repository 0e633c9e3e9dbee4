"""``devicemanager dra validate``: check objects by the rules of the API server, offline."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli import dra_files
from devicemanager.cli.options import CommandError, add_format, add_repeated, command
from devicemanager.cli.output import clean, print_json

if TYPE_CHECKING:
    from devicemanager.apiserver.offline import Report
    from devicemanager.apiserver.resources import ResourceRules
    from devicemanager.cli.options import Subparsers

_DESCRIPTION = """\
Check ResourceSlices, ResourceClaims, their templates, DeviceClasses and DeviceTaintRules by the
rules and limits of the API server of Kubernetes 1.37. Errors have the texts of this API server. The
exit status is 0 if it would accept all objects, else 1.
"""


def add(actions: Subparsers) -> None:
    """Add the command ``devicemanager dra validate``."""
    parser = command(
        actions, "validate", _run, "check objects as the API server does, offline", _DESCRIPTION
    )
    dra_files.add_source(parser)
    add_repeated(parser, "--feature-gate", "NAME", "enable a feature gate of the API server")
    add_format(parser, "text", "json")


def _run(args: argparse.Namespace) -> int:
    from devicemanager.apiserver.offline import check_objects

    if dra_files.has_files(args):
        where, found = ", ".join(args.paths), dra_files.read_objects(args.paths)
        advice = "name other files"
    else:
        advice = "create some first, or name files"
        where = "the mock kubelet" if dra_files.is_mock(args) else "the API server"
        found = [value for _, value in dra_files.served_objects(args, dra_files.SERVED)]
    report = check_objects(found, _rules(args.feature_gate))
    # "0 objects are valid" would hide that the user named the wrong files or an empty server.
    if not report.checked:
        raise CommandError(f"{where}: no objects of resource.k8s.io to validate: {advice}")
    _print(args.output, report)
    return 1 if report.problems else 0


def _rules(gates: list[str]) -> ResourceRules:
    from devicemanager.apiserver.resources import ResourceRules
    from devicemanager.objects.dra import GATES

    # ``ResourceRules`` ignores unknown gates, so a misspelled name would have no effect.
    for each in gates:
        if each not in GATES:
            raise CommandError(f"unknown feature gate {each!r}: use {', '.join(sorted(GATES))}")
    return ResourceRules(gates)


def _print(form: str, report: Report) -> None:
    if form == "json":
        problems = [
            {"kind": each.kind, "name": each.name, "field": each.field, "text": each.text}
            for each in report.problems
        ]
        facts = {"valid": not problems, "problems": problems, "notes": report.notes}
        print_json("dra-validate", facts)
        return
    count = report.checked
    valid = "1 object is valid" if count == 1 else f"{count} objects are valid"
    for line in [str(each) for each in report.problems] or [valid]:
        print(clean(line))
    for note in report.notes:
        print(f"note: {clean(note)}")
