"""``devicemanager dra explain``: why a pod with ResourceClaims is Pending or cannot terminate."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING

from devicemanager.cli import dra_files
from devicemanager.cli.options import CommandError, add_format, command, needs_extra
from devicemanager.cli.output import clean, print_json

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.core.dra.report import ClaimsExplanation

_DESCRIPTION = """\
On a mock kubelet that was started with `devicemanager run --control`: show what each ResourceClaim
of a pod waits for, the error of the last attempt, and when the kubelet tries again. With files or
--kubeconfig: show the devices that the scheduler would allocate on a node, or the request, selector
and devices for which the claims do not fit. The exit status is 1 if the pod waits for something,
else 0.
"""


def add(actions: Subparsers) -> None:
    """Add the command ``devicemanager dra explain``."""
    parser = command(
        actions,
        "explain",
        _run,
        "show why a pod with ResourceClaims is Pending or cannot end",
        _DESCRIPTION,
    )
    parser.add_argument("pod", metavar="POD", help="a pod: its name, NAMESPACE/NAME, or UID")
    dra_files.add_source(parser)
    parser.add_argument(
        "--node",
        metavar="NAME",
        help="name of the node (default: that of the pod, or the only one)",
    )
    add_format(parser, "text", "json")


def _run(args: argparse.Namespace) -> int:
    if args.paths or args.kubeconfig:
        return _run_offline(args)
    if not dra_files.is_mock(args):
        raise CommandError(
            "nothing to read: give files, --kubeconfig, or --control DIR (the --root of "
            f"`devicemanager run`), or set {dra_files.CONTROL}"
        )
    return _run_on_kubelet(args)


def _run_offline(args: argparse.Namespace) -> int:
    from devicemanager.cli.dra_objects import DraObjects
    from devicemanager.cli.dra_pods import explain_pod

    objects = DraObjects.load(args)
    # Read separately, because ``DraObjects.load`` requests only objects of resource.k8s.io from a
    # server.
    if not args.paths:
        objects.pods += dra_files.pods_of_server(args.kubeconfig)
    pod = objects.pod(args.pod)
    found = explain_pod(objects, pod, objects.node(args.node or pod["spec"].get("nodeName")))
    if args.output == "json":
        print_json("dra-explain", found.as_dict())
    else:
        for line in found.text().splitlines():
            print(clean(line))
    return int(not found.fits)


def _run_on_kubelet(args: argparse.Namespace) -> int:
    with needs_extra("dra explain", "control"):
        from devicemanager.cli.ctl_client import connected, pods_named

    with connected(args) as kubelet:
        try:
            [pod] = pods_named(kubelet, [args.pod])
        except CommandError as error:
            # The scheduler has not bound it to the node, so only the API server has it.
            raise CommandError(
                f"{error}. The kubelet does not know a pod that is not bound to a node: to read "
                "the pod from the API server, use --kubeconfig FILE (for `run --api-server`: the "
                "file kubeconfig in the --root)"
            ) from None
        found = kubelet.explain_claims(pod.uid)
    if args.output == "json":
        import attrs

        print_json("pod-claims", attrs.asdict(found))
    else:
        for line in _lines(found):
            print(clean(line))
    # A pod that has ended, or whose sandbox exists, no longer waits for its claims.
    return int(found.ending or not (found.sandbox or _has_ended(found)))


def _has_ended(found: ClaimsExplanation) -> bool:
    from devicemanager.core.podstatus.phase import Phase

    return Phase(found.phase).is_terminal


def _lines(found: ClaimsExplanation) -> Iterator[str]:
    if found.ending:
        yield f"pod {found.pod} ends when its claims are unprepared"
    elif _has_ended(found):
        yield f"pod {found.pod} is {found.phase}: it no longer needs its claims"
    elif found.sandbox:
        yield f"pod {found.pod} is {found.phase}: its claims were prepared"
    elif found.phase == "Pending":
        yield f"pod {found.pod} is {found.phase}: its sandbox was not created"
    else:
        yield (
            f"pod {found.pod} is {found.phase}, but it lost its sandbox, for example in a reboot: "
            "the kubelet creates a new one before it starts a container"
        )
    for claim in found.claims:
        name = f"claim {claim.entry}" if claim.entry else "claim of extended resources"
        of = "" if claim.claim is None else f" (ResourceClaim {claim.claim})"
        yield f"{name}{of}: {claim.state}: {claim.text}"
    # The line of a claim can have the error.
    if found.error and not any(found.error in each.text for each in found.claims):
        yield f"last error: {found.error}"
    if found.retry_in is not None:
        yield f"next try in {found.retry_in:.0f} s"
