"""``devicemanager dra prepare``: make DRA drivers prepare or unprepare claims, without a pod."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from devicemanager.cli.options import CommandError, add_format, command, needs_extra
from devicemanager.cli.output import clean, print_json

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.control.client import MockKubeletClient
    from devicemanager.core.dra.report import ClaimResult

_DESCRIPTION = """\
Call NodePrepareResources or NodeUnprepareResources of the drivers of claims, without a pod. The
kubelet's state does not change. Use it to test how a driver handles repeated calls. The kubelet is
a mock kubelet that was started with `devicemanager run --control`. The exit status is 1 if a driver
returns an error for a claim, else 0.
"""


def add(actions: Subparsers) -> None:
    """Add the command ``devicemanager dra prepare``."""
    command(
        actions,
        "prepare",
        _run,
        "call a driver to prepare or unprepare claims, without a pod",
        _DESCRIPTION,
        _complete,
    )


def _complete(parser: argparse.ArgumentParser) -> None:
    # Imported here, because the modules of the control API are slow to import.
    with needs_extra("dra prepare", "control"):
        from devicemanager.cli.ctl_action import add_where

    parser.add_argument(
        "claims", nargs="+", metavar="CLAIM", help="NAME or NAMESPACE/NAME of a ResourceClaim"
    )
    parser.add_argument("--unprepare", action="store_true", help="call NodeUnprepareResources")
    parser.add_argument(
        "--driver", metavar="NAME", help="name of the driver (default: those of the claims)"
    )
    parser.add_argument(
        "--endpoint",
        metavar="SOCKET",
        help="socket of an instance (default: the instance that the kubelet would call)",
    )
    add_format(parser, "text", "json")
    add_where(parser, None)


def _run(args: argparse.Namespace) -> int:
    from devicemanager.cli.ctl_client import connected

    # As with kubectl, a name without a namespace is in the namespace ``default``.
    names = [each if "/" in each else f"default/{each}" for each in args.claims]
    with connected(args) as kubelet:
        by_driver = _by_driver(kubelet, names, args.driver)
        call = kubelet.unprepare_claims if args.unprepare else kubelet.prepare_claims
        results = {
            # One call for all claims of a driver, as a kubelet makes it for the claims of a pod.
            driver: call(driver, claims, endpoint=args.endpoint)
            for driver, claims in by_driver.items()
        }
    if args.output == "json":
        import attrs

        found = {
            driver: {uid: attrs.asdict(each) for uid, each in claims.items()}
            for driver, claims in results.items()
        }
        print_json("dra-prepare", {"drivers": found})
    else:
        done = "unprepared" if args.unprepare else "prepared"
        for driver, claims in results.items():
            for uid, each in claims.items():
                print(clean(f"{driver}: claim {uid}: {each.error or _text(each, done)}"))
    return int(any(each.error for claims in results.values() for each in claims.values()))


def _by_driver(
    kubelet: MockKubeletClient, claims: list[str], driver: str | None
) -> dict[str, list[str]]:
    """Return the claims to prepare or unprepare, by driver. Raises CommandError for a claim without
    a driver."""
    # With --driver, a claim need not be allocated: a test can then check the driver's error.
    if driver is not None:
        return {driver: claims}
    found: dict[str, list[str]] = {}
    for claim in claims:
        drivers = kubelet.claim_info(*claim.split("/", 1)).drivers
        if not drivers:
            raise CommandError(
                f"claim {claim} is not allocated: allocate it, or select a driver with --driver"
            )
        for each in drivers:
            found.setdefault(each, []).append(claim)
    return found


def _text(result: ClaimResult, done: str) -> str:
    devices = [f"{each.pool}/{each.device} {' '.join(each.cdi_devices)}" for each in result.devices]
    return f"{done} {', '.join(devices)}".rstrip()
