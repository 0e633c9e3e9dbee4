"""What ``devicemanager ctl wait`` does."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from devicemanager.cli.ctl_client import pods_named
from devicemanager.cli.ctl_records import _print
from devicemanager.cli.output import clean

if TYPE_CHECKING:
    from devicemanager.control.client import MockKubeletClient


def resource(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl wait resource``."""
    return _until(lambda: client.wait_for_resource(args.resource, args.count, timeout=args.timeout))


def event(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl wait event``."""
    from devicemanager.control import convert

    def wait() -> None:
        found = client.wait_for_event(
            *args.kinds, resource=args.resource, after=args.after, timeout=args.timeout
        )
        _print(convert.event(found), args.output)

    return _until(wait)


def call(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl wait call``."""
    from devicemanager.control import convert
    from devicemanager.events.calls.matching import Mark

    def wait() -> None:
        found = client.wait_for_call(
            args.resource,
            rpc=args.rpc,
            code=args.code,
            since=None if args.after is None else Mark(0, args.after),
            timeout=args.timeout,
        )
        _print(convert.call(found, with_bytes=args.output == "text"), args.output)

    return _until(wait)


def pod(client: MockKubeletClient, args: argparse.Namespace) -> int:
    """``ctl wait pod``."""
    from devicemanager.cli.options import CommandError

    def phase() -> str:
        try:
            (found,) = pods_named(client, [args.pod])
        except CommandError:
            return "Deleted"
        return found.phase.value

    if args.phase != "Deleted":
        pods_named(client, [args.pod])  # to be told at once of a name that is wrong
    what = f"pod {args.pod} to be {args.phase}"
    return _until(lambda: client.wait_for(lambda: phase() == args.phase, args.timeout, what))


def _until(wait: Callable[[], None]) -> int:
    from devicemanager.kubelet.waits import WaitTimeout

    try:
        wait()
    except WaitTimeout as error:
        for line in str(error).splitlines():
            print(clean(line), file=sys.stderr)
        return 1
    return 0
