"""``devicemanager top``: show the devices of a kubelet and their containers in a live view."""

from __future__ import annotations

import argparse
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from devicemanager.cli import live
from devicemanager.cli.files import add_socket, check_socket
from devicemanager.cli.options import add_format, command
from devicemanager.cli.output import console, print_json

if TYPE_CHECKING:
    from types import TracebackType

    from devicemanager.cli.options import Subparsers
    from devicemanager.observe.view import NodeView, PodResourcesView
    from podresources import PodResourcesClient

_DESCRIPTION = """\
Show the devices of a node and the containers they are allocated to. The source is the PodResources
API of any kubelet. On a terminal the view is live; otherwise, and with --plain or -o json, it is
printed once. The API has no unhealthy devices, plugins or events; for a mock kubelet, use
`devicemanager run` to see them.
"""
_WIDTH = 80


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager top`` and its options."""
    parser = command(subparsers, "top", _run, "show a kubelet's devices live", _DESCRIPTION)
    add_socket(parser)
    parser.add_argument(
        "--interval",
        type=_seconds,
        default=2.0,
        metavar="SECONDS",
        help="refresh interval (default: 2)",
    )
    parser.add_argument("--once", action="store_true", help="print once and exit")
    add_format(parser, "text", "json")
    live.add_live(parser)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(
            f"invalid interval {text!r}: use a number of seconds from 0.1 to 3600"
        )
    return seconds


def _run(args: argparse.Namespace) -> int:
    from devicemanager.observe.terminal.session import is_live_terminal
    from devicemanager.observe.view import PodResourcesView
    from podresources import PodResourcesClient

    check_socket(args.socket)
    view = PodResourcesView(f"PodResources at {args.socket}")
    # Retries, because all clients of a kubelet share its rate limit.
    with PodResourcesClient(args.socket, rate_limit_attempts=8) as client:
        if args.once or args.plain or args.output == "json" or not is_live_terminal():
            return _print(_fetch(client, view), args)
        return _show(client, view, args)


def _fetch(client: PodResourcesClient, view: PodResourcesView) -> NodeView:
    """Request the state of the node, and return its view. Raises PodResourcesError."""
    from podresources import MethodUnavailable

    pods = client.list()
    # Old kubelets do not have GetAllocatableResources, and newer ones can disable it.
    try:
        return view.refresh(pods, client.get_allocatable())
    except MethodUnavailable:
        return view.refresh(pods, None)


def _print(shown: NodeView, args: argparse.Namespace) -> int:
    from devicemanager.observe.terminal.live import glyphs_for
    from devicemanager.observe.terminal.screen import whole

    if args.output == "json":
        print_json("top", _data(shown))
        return 0
    # Not False: for None, rich reads the variable NO_COLOR.
    written = console(no_color=args.no_color or None, highlight=False)
    # A file gets a fixed width, so that the output is the same everywhere.
    width = written.width if sys.stdout.isatty() else _WIDTH
    for line in whole(shown, width, glyphs_for(sys.stdout.encoding)):
        written.print(line, no_wrap=True, overflow="ignore", crop=False)
    return 0


def _data(shown: NodeView) -> dict[str, object]:
    """Return a view of a node as data for JSON, as docs/json.md describes it."""
    return {
        "numa_nodes": list(shown.numa_nodes),
        "resources": [
            {
                "resource_name": resource.name,
                "allocatable": resource.allocatable,
                "devices": [
                    {
                        "device_id": device.id,
                        "state": device.state.value,
                        "numa_nodes": list(device.numa or ()),
                        "holders": [
                            {"pod": each.pod, "container": each.container}
                            for each in device.holders
                        ],
                    }
                    for device in map(resource.device, range(len(resource.states)))
                ],
            }
            for resource in shown.resources
        ],
        "pods": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "containers": [
                    {
                        "name": container.name,
                        "devices": [
                            {"resource_name": name, "device_ids": list(ids)}
                            for name, ids in container.devices.items()
                        ],
                        "claims": {
                            name: list(ids) for name, ids in container.claim_devices.items()
                        },
                    }
                    for container in pod.containers
                ],
            }
            for pod in shown.pods
        ],
        "notes": list(shown.notes),
    }


def _show(client: PodResourcesClient, view: PodResourcesView, args: argparse.Namespace) -> int:
    from devicemanager.cli.stopping import Stopped, StopSignals
    from devicemanager.observe.terminal.session import TerminalSignals

    with StopSignals() as signals, _Poller(client, view, args.interval) as poller:
        failures: list[BaseException] = []

        def ended(error: BaseException | None) -> None:
            # The main thread raises the error after the terminal is restored.
            failures.extend([] if error is None else [error])
            signals.give_up()

        shown = live.live_view(args, lambda: poller.latest, ended)
        # Set after both exist: the view reads from the poller, and the poller reports to the view.
        poller.changed = shown.say
        signals.first = shown.end
        try:
            with TerminalSignals(shown):
                shown.start()
                try:
                    with signals.interruptible():
                        signals.wait()
                # A signal is a normal end, so an error of the view at the same time is ignored.
                except Stopped:
                    failures.clear()
        finally:
            shown.close()
    if failures:
        raise failures[0]
    return 0


class _Poller:
    """Thread that reads the kubelet's state periodically."""

    def __init__(self, client: PodResourcesClient, view: PodResourcesView, interval: float) -> None:
        # Fetched on the caller's thread, so that a wrong socket is reported before the view starts.
        self.latest: NodeView = _fetch(client, view)
        """The latest view of the node."""
        self.changed: Callable[[str], None] = lambda notice: None
        """Function to call after each request. Its argument is the error of the request, or an
        empty text if the request succeeded."""
        self._client = client
        self._view = view
        self._interval = interval
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="poller", daemon=True)

    def _work(self) -> None:
        from podresources import PodResourcesError

        since = ""
        while not self._closing.wait(self._interval):
            try:
                self.latest = _fetch(self._client, self._view)
                since = notice = ""
            except PodResourcesError as error:
                # The last view stays, and the notice says since when it is out of date.
                since = since or time.strftime("%H:%M:%S")
                notice = f"since {since}: {error}"
            self.changed(notice)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._closing.set()
        # Closed first, because this aborts a request in flight that the join would wait for.
        self._client.close()
        self._thread.join()
