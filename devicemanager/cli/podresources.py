"""``devicemanager podresources serve``: run a mock PodResources server."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import TYPE_CHECKING

from devicemanager.cli.files import add_file, given_contents
from devicemanager.cli.options import CommandError, CommandParser, command
from devicemanager.cli.output import clean

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers

_DESCRIPTION = """\
Serve the PodResources API as a kubelet does, with content from files: pods with their devices,
changes over time, faults. A file can also be the output of `devicemanager pods -o json` or
`devicemanager resources -o json`. Stops at SIGTERM or Ctrl-C.
"""


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager podresources`` and its subcommand."""
    parser = subparsers.add_parser(
        "podresources",
        help="run a mock PodResources server",
        description="Serve the PodResources API without a kubelet. To query a kubelet, use "
        "`devicemanager pods` and `devicemanager resources`.",
    )
    below = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=CommandParser)
    serve = command(below, "serve", _serve, "run a mock PodResources server", _DESCRIPTION)
    add_file(serve, "files", "YAML or JSON; - for standard input", nargs="+")
    add_file(
        serve,
        "--socket",
        "path of the socket, at most 107 bytes (default: in a new temporary directory, "
        "which is removed at the end)",
        metavar="PATH",
    )
    serve.add_argument(
        "--kubelet-version",
        metavar="VERSION",
        help="version whose methods, fields and pods are served (default: kubelet_version of the "
        "script, otherwise all)",
    )


def _serve(args: argparse.Namespace) -> int:
    import attrs

    from devicemanager.cli.stopping import Stopped, StopSignals
    from devicemanager.core.versions.version import KubeletVersion, VersionError
    from devicemanager.testing.mock_podresources import MockPodResources, load_script
    from devicemanager.testing.mock_podresources.reading import MOST_BYTES

    # Read before signals are handled, so that Ctrl-C ends a read that blocks.
    contents = given_contents(args.files, MOST_BYTES)
    with StopSignals() as signals:
        script = load_script(*args.files, contents=contents)
        if args.kubelet_version is not None:
            # Checked here, so that the error names the flag.
            try:
                KubeletVersion.parse(args.kubelet_version)
            except VersionError as error:
                raise CommandError(f"--kubelet-version: {error}") from error
            # The flag overrides the script.
            script = attrs.evolve(script, kubelet_version=args.kubelet_version)
        with (
            MockPodResources(script, args.socket, report=_report),
            contextlib.suppress(Stopped),
            signals.interruptible(),
        ):
            signals.wait()
    return 0


def _report(line: str) -> None:
    # A closed or missing standard output must not stop the server.
    with contextlib.suppress(OSError, AttributeError):
        sys.stdout.write(f"{clean(line)}\n")
        sys.stdout.flush()
