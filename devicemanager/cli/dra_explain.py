"""``devicemanager dra explain``: why a pod with ResourceClaims is Pending or cannot end."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from devicemanager.cli.options import add_format, command, needs_extra
from devicemanager.cli.output import clean

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.core.dra.report import ClaimsExplanation

_DESCRIPTION = """\
Show what each ResourceClaim of a pod waits for, the error of the last attempt, and when the kubelet
tries again. The kubelet is a mock kubelet that was started with `devicemanager run --control`. The
exit status is 1 if the pod waits for something, else 0.
"""


def add(actions: Subparsers) -> None:
    """Add ``devicemanager dra explain``."""
    command(
        actions,
        "explain",
        _run,
        "show why a pod with ResourceClaims is Pending or cannot end",
        _DESCRIPTION,
        _complete,
    )


def _complete(parser: argparse.ArgumentParser) -> None:
    # Imported here, because the modules of the control API are slow to import.
    with needs_extra("dra explain", "control"):
        from devicemanager.cli.ctl_action import POD_HELP, add_where

    parser.add_argument("pod", metavar="POD", help=POD_HELP)
    add_format(parser, "text", "json")
    add_where(parser, None)


def _run(args: argparse.Namespace) -> int:
    from devicemanager.cli.ctl_client import connected, pods_named

    with connected(args) as kubelet:
        [pod] = pods_named(kubelet, [args.pod])
        found = kubelet.explain_claims(pod.uid)
    if args.output == "json":
        import attrs

        from devicemanager.cli.output import print_json

        print_json("pod-claims", attrs.asdict(found))
    else:
        for line in _lines(found):
            print(clean(line))
    return int(not found.sandbox or found.ending)


def _lines(found: ClaimsExplanation) -> Iterator[str]:
    if found.ending:
        yield f"pod {found.pod} ends when its claims are unprepared"
    elif found.sandbox:
        yield f"pod {found.pod} is {found.phase}: its claims were prepared"
    else:
        yield f"pod {found.pod} is {found.phase}: its sandbox was not created"
    for claim in found.claims:
        name = f"claim {claim.entry}" if claim.entry else "claim of extended resources"
        of = "" if claim.claim is None else f" (ResourceClaim {claim.claim})"
        yield f"{name}{of}: {claim.state}: {claim.text}"
    if found.error:
        yield f"last error: {found.error}"
    if found.retry_in is not None:
        yield f"next try in {found.retry_in:.0f} s"
