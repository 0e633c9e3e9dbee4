"""``devicemanager record``: record all calls between a kubelet and its plugins."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING

from devicemanager.cli import files
from devicemanager.cli.files import add_directory
from devicemanager.cli.options import CommandError, add_repeated, command
from devicemanager.cli.output import clean
from devicemanager.core.printable import counted

if TYPE_CHECKING:
    from devicemanager.cli.options import Subparsers
    from devicemanager.cli.stopping import StopSignals
    from devicemanager.plugin.recording import Recorder

_DESCRIPTION = """\
Proxy between a kubelet and its plugins and record all calls. With COMMAND, record this plugin
only: it finds the recorder at the kubelet's path. With --plugin-dir, record plugins that register
in that directory. With neither, record all plugins of the node: the recorder's socket replaces
kubelet.sock until it stops. With --registrar-dir, record DRA drivers instead: the recorder's
sockets replace those of the drivers. Stops at SIGTERM, at Ctrl-C, or when the command exits.
"""

_NODE_PLUGIN_DIR = "/var/lib/kubelet/device-plugins"


def add(subparsers: Subparsers) -> None:
    """Add the command ``devicemanager record`` and its options."""
    parser = command(
        subparsers, "record", _run, "record calls between a kubelet and plugins", _DESCRIPTION
    )
    parser.usage = "%(prog)s [options] [-- COMMAND [ARG ...]]"
    parser.takes_command = True
    add_directory(
        parser,
        "--kubelet-dir",
        "the kubelet's plugin directory (default: %(default)s)",
        default=_NODE_PLUGIN_DIR,
    )
    add_directory(
        parser,
        "--plugin-dir",
        "directory in which the plugins to record register (default: the kubelet's)",
    )
    add_directory(
        parser,
        "--registrar-dir",
        "record the DRA drivers that register in this directory, such as "
        "/var/lib/kubelet/plugins_registry",
    )
    parser.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        type=files.file_name,
        default=files.STANDARD_INPUT,
        help="new file for the recording (default: -, standard output)",
    )
    add_repeated(parser, "--resource", "NAME", "record only this resource")
    add_repeated(parser, "--driver", "NAME", "with --registrar-dir: record only this driver")
    add_repeated(
        parser,
        "--redact-env",
        "REGEX",
        "do not record values of environment variables with a matching name",
    )
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="plugin to run, after --")


def _run(args: argparse.Namespace) -> int:
    if args.registrar_dir is not None:
        return _record_drivers(args)
    if args.driver:
        raise CommandError("--driver selects drivers of --registrar-dir: add --registrar-dir DIR")
    from devicemanager.cli.stopping import Stopped, StopSignals
    from devicemanager.plugin.recording import Recorder

    # The output of both would be mixed, and the recording would be unreadable.
    if args.command and args.output == files.STANDARD_INPUT:
        raise CommandError("a recording with COMMAND cannot use standard output: use --output FILE")
    status = 0
    # From here on, a signal stops the recorder: it restores the sockets and completes the file.
    with StopSignals() as signals:
        recorder = Recorder(
            _file(args),
            args.kubelet_dir,
            args.plugin_dir,
            in_place=not args.command and args.plugin_dir is None,
            resources=args.resource,
            redact_env=args.redact_env,
            report=_report,
        )
        with recorder, contextlib.suppress(Stopped):
            if args.command:
                status = _run_command(args, recorder, signals)
            else:
                with signals.interruptible():
                    signals.wait()
    _report(f"recorded {counted(recorder.calls, 'line')}: calls, lists and ends of streams")
    return status


def _file(args: argparse.Namespace) -> str | IO[str]:
    return sys.stdout if args.output == files.STANDARD_INPUT else args.output


def _record_drivers(args: argparse.Namespace) -> int:
    if args.command or args.plugin_dir is not None or args.resource or args.redact_env:
        raise CommandError(
            "--registrar-dir records DRA drivers: omit COMMAND, --plugin-dir, --resource and "
            "--redact-env"
        )
    from devicemanager.cli.stopping import Stopped, StopSignals
    from devicemanager.driver.recording import DriverRecorder

    with StopSignals() as signals:
        recorder = DriverRecorder(
            _file(args), args.registrar_dir, drivers=args.driver, report=_report
        )
        with recorder, contextlib.suppress(Stopped), signals.interruptible():
            signals.wait()
    _report(f"recorded {counted(recorder.calls, 'line')}: calls, reports and ends of streams")
    return 0


def _run_command(args: argparse.Namespace, recorder: Recorder, signals: StopSignals) -> int:
    from devicemanager.plugin.processes.namespace import Bind
    from devicemanager.plugin.processes.run import SupervisedRun

    plugin_dir = recorder.plugin_dir
    words = [word.replace("{plugin_dir}", str(plugin_dir)) for word in args.command]
    # A plugin that gets the directory as an argument needs no private mounts. Others may have the
    # path of --kubelet-dir, or the fixed path of a node.
    targets = {Path(args.kubelet_dir).absolute(), Path(_NODE_PLUGIN_DIR)}
    is_fixed = words == args.command
    binds = tuple(Bind(plugin_dir, each) for each in sorted(targets)) if is_fixed else ()
    # Plugins based on `devicemanager.plugin` read this variable.
    environment = os.environ | {"DEVICE_PLUGIN_DIRECTORY": str(plugin_dir)}
    run = SupervisedRun(words, environment, None, binds, None)
    # The exit of the command ends the wait below, as a signal does.
    run.start(signals.give_up)
    try:
        with signals.interruptible():
            signals.wait()
        status = run.status or 0
        # Death by a signal is reported as a shell does.
        return status if status >= 0 else 128 - status
    finally:
        # The recorder stops first, so that the plugin's shutdown is not recorded.
        try:
            recorder.stop()
        finally:
            run.end()


def _report(line: str) -> None:
    # A closed or missing standard error must not stop the recording.
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"devicemanager record: {clean(line)}\n")
