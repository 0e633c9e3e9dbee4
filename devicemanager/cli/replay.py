"""``devicemanager replay``: run plugins that respond as in a recording."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from devicemanager.cli import files
from devicemanager.cli.files import add_directory, add_file
from devicemanager.cli.options import add_format, add_repeated, command
from devicemanager.cli.output import clean, schema_name

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.cli.stopping import StopSignals
    from devicemanager.plugin.recording import Miss, Recording, ReplayPlugin

_DESCRIPTION = """\
Serve the plugins of a recording: they register, and send the recorded lists and responses.
Requests that were not recorded fail and are printed. Stops at SIGTERM or Ctrl-C; the exit status
is 1 if there was such a request.
"""


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager replay`` and its options."""
    parser = command(
        subparsers, "replay", _run, "run plugins that respond as recorded", _DESCRIPTION
    )
    add_file(parser, "file", "recording of `devicemanager record`; - for standard input")
    add_directory(
        parser,
        "--directory",
        "the kubelet's plugin directory (default: the environment variable "
        "DEVICE_PLUGIN_DIRECTORY, then /var/lib/kubelet/device-plugins)",
    )
    add_directory(
        parser,
        "--root",
        "the kubelet's directory for recordings of DRA drivers (default: %(default)s)",
        default="/var/lib/kubelet",
    )
    add_repeated(parser, "--resource", "NAME", "serve only this resource (default: all)")
    add_repeated(parser, "--driver", "NAME", "serve only this DRA driver (default: all)")
    speeds = parser.add_mutually_exclusive_group()
    speeds.add_argument(
        "--speed",
        metavar="N",
        type=_speed,
        default=1.0,
        help="speed: recorded seconds per real second (default: 1)",
    )
    speeds.add_argument(
        "--immediate",
        dest="speed",
        action="store_const",
        const=None,
        help="leave no time between recorded events",
    )
    add_format(parser, "text", "json")


def _speed(text: str) -> float:
    try:
        speed = float(text)
    except ValueError:
        speed = 0.0
    # This also rejects NaN.
    if not 0 < speed < float("inf"):
        raise argparse.ArgumentTypeError(f"invalid speed {text!r}: expected a number above 0")
    return speed


def _run(args: argparse.Namespace) -> int:
    from devicemanager.cli.stopping import Stopped, StopSignals
    from devicemanager.driver.recording.replay import recorded_drivers
    from devicemanager.plugin.recording import Recording, ReplayPlugin
    from devicemanager.plugin.recording.recording import MAX_SIZE

    # Read before signals are handled, so that Ctrl-C ends a read that blocks.
    given = files.given_contents([args.file], MAX_SIZE).get(args.file)
    with StopSignals() as signals:
        recording = Recording.load(args.file) if given is None else Recording.loads(given, "-")
        if drivers := args.driver or recorded_drivers(recording):
            return _replay_drivers(args, recording, drivers, signals)
        plugins: list[ReplayPlugin] = []
        with contextlib.ExitStack() as stack:
            # None makes ReplayPlugin report an empty recording.
            for resource in args.resource or recording.resources or [None]:
                plugin = ReplayPlugin(
                    recording,
                    args.directory,
                    resource=resource,
                    speed=args.speed,
                    on_miss=_Printer(args.output, resource),
                )
                plugins.append(stack.enter_context(plugin))
            with contextlib.suppress(Stopped), signals.interruptible():
                signals.wait()
    # The exit status shows scripts that a request was not in the recording.
    return 1 if any(plugin.misses for plugin in plugins) else 0


def _replay_drivers(
    args: argparse.Namespace, recording: Recording, drivers: Sequence[str], signals: StopSignals
) -> int:
    from devicemanager.cli.stopping import Stopped
    from devicemanager.driver.recording import ReplayDriver

    def report(miss: str) -> None:
        with contextlib.suppress(OSError):  # a broken pipe must not fail the call
            print(clean(miss), flush=True)

    with contextlib.ExitStack() as stack:
        replayed = [
            stack.enter_context(ReplayDriver(recording, args.root, name, on_miss=report))
            for name in drivers
        ]
        with contextlib.suppress(Stopped), signals.interruptible():
            signals.wait()
    return 1 if any(driver.misses for driver in replayed) else 0


class _Printer:
    """Printer for requests to one resource's plugin that were not in the recording."""

    def __init__(self, output: str, resource: str | None) -> None:
        self._as_json = output == "json"
        self._resource = resource

    def __call__(self, miss: Miss) -> None:
        data = {
            "schema": schema_name("replay"),
            "resource": self._resource,
            "rpc": miss.rpc,
            "message": str(miss),
            "request": miss.request,
            "nearest": miss.nearest,
        }
        text = json.dumps(data) if self._as_json else clean(f"{self._resource}: {miss}")
        with contextlib.suppress(OSError):  # a broken pipe must not fail the call
            print(text, flush=True)
