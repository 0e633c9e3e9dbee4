"""The command ``devicemanager``, with one module per subcommand.

Purpose: make the library usable from a shell. A subcommand parses its arguments, calls the
library and prints the result. It decides nothing that a kubelet or a plugin decides.

Inputs: arguments, files that the user names (``-`` is standard input), sockets, and signals.
Outputs: text or JSON on standard output (shapes: docs/json.md), warnings and errors on standard
error, and an exit status: 0 for success, 1 for a negative result (a pod is rejected, a check
fails), 2 for wrong usage or an error, 130 after Ctrl-C, 141 for a broken pipe.

Invariants:
* An error is one line, ``devicemanager: error: …``, that says what is wrong, where, and what to
  do. ``CommandError`` is for mistakes of the user; other known errors print their own text. Any
  other exception is reported as a bug; ``--debug`` shows its traceback.
* ``--help`` loads no gRPC, no protobuf and no kubelet. A subcommand's module is loaded only when
  it is called or listed, and imports inside functions what its ``add`` does not need.
* Text from sockets and files goes through ``output.clean`` before it is printed, so that it
  cannot control the terminal.
* A command that runs until a signal leaves nothing behind: ``stopping`` raises only where the
  program allows it, and context managers undo what was set up.

Start reading in ``main`` below, then ``options`` (parsers and errors) and ``pods``, a short
subcommand. ``run`` and ``join`` are the long ones; they share ``live`` and ``kubelet_log``
(output), ``stopping`` (signals), and ``settings_options`` and ``server_options`` (flags).
``ctl_action`` derives the actions of ``ctl`` from the table of operations of the control API.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import itertools
import os
import sys
from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import IO, Any

from devicemanager.cli.options import CommandError, CommandParser, Run
from devicemanager.cli.output import clean
from devicemanager.io.own_packages import loaded

__all__ = ["main"]

_GROUPS = {
    "a mock kubelet": ("run", "ctl", "join", "podresources"),
    "plugins": ("check", "exec", "simulate", "record", "replay"),
    "any kubelet, including a real one": ("pods", "resources", "top"),
    "troubleshooting": ("explain", "claims", "snapshot", "checkpoint"),
    "shell": ("completion",),
}
"""The subcommands, in the groups and the order of ``--help``."""

_MODULES = {"checkpoint": "checkpoints"}
"""Modules that do not have the name of their subcommand."""

_COMMANDS = {
    name: f"devicemanager.cli.{_MODULES.get(name, name)}"
    for names in _GROUPS.values()
    for name in names
}

# By name: an import for the except clause would load gRPC, also for --help.
_KNOWN_ERRORS = (
    ("devicemanager.core.errors", "DeviceManagerError"),
    ("devicemanager.plugin.errors", "PluginError"),
    ("podresources.errors", "PodResourcesError"),
    ("checkpoint.errors", "CheckpointError"),
)
"""Base classes of errors whose text is meant for the user, with their modules."""

_STDOUT = "standard output"
# Errors of write(2), which have no file name.
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_TROUBLE = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141
"""Exit statuses that a shell reports for processes that SIGINT or SIGPIPE ends."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    0: success. 1: negative result. 2: wrong usage or an error, with one line on standard error.
    130: interrupted. 141: broken pipe.
    """
    # First, because errors about the arguments quote them.
    _be_lenient(sys.stdout)
    _be_lenient(sys.stderr)
    # gRPC logs each peer that exits during a call ("Got goaway"). The kubelet reports this as an
    # event or an error, so the log is off unless the user sets the variable.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # Until the arguments are parsed, every error is about them.
    debug = False
    try:
        args = _parser(sys.argv[1:] if argv is None else argv).parse_args(argv)
        debug = args.debug
        # Closed by the caller (`>&-`): print would discard the output and report success.
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), _STDOUT)
        status = _run(args)
        # Here and not at exit: a full disk or a broken pipe can show only now.
        sys.stdout.flush()
        return status
    except SystemExit as exit_:
        # argparse has printed help or an error. A full disk must not look like success.
        broken = _silence_if_broken(sys.stdout)
        if broken is not None and not isinstance(broken, BrokenPipeError):
            _complain(broken)
            return _TROUBLE
        return exit_.code if isinstance(exit_.code, int) else _TROUBLE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader has what it wants, as `head` does: no message.
        _silence(sys.stdout)
        return _BROKEN_PIPE
    except Exception as error:
        if debug:
            raise
        # After an error, output that cannot be written is not worth a second line.
        _silence_if_broken(sys.stdout)
        _complain(error)
        return _TROUBLE


def _run(args: argparse.Namespace) -> int:
    run: Run = args.run
    return run(args)


def _parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return a parser with the subcommand that ``argv`` names, or with all if it names none."""
    parser = _Parser(
        prog="devicemanager",
        description="Test Kubernetes device plugins against a mock kubelet, without a cluster.",
        epilog="Exit status: 0: success; 1: negative result, such as a rejected pod; 2: wrong "
        "usage or error. Use `devicemanager COMMAND --help` for more about a command.",
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    # CommandParser: unknown arguments are reported with the usage of the subcommand.
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=CommandParser)
    # Only the named subcommand is loaded: loading all takes a tenth of the start of `run`. This
    # works because options before the subcommand have no values.
    options = [*itertools.takewhile(lambda word: word.startswith("-"), argv)]
    wants_help = not {"-h", "--help"}.isdisjoint(options)
    named = "" if wants_help or len(options) == len(argv) else argv[len(options)]
    for name in [named] if named in _COMMANDS else _COMMANDS:
        import_module(_COMMANDS[name]).add(subparsers)
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """Return the parser with all subcommands."""
    return _parser()


class _Parser(argparse.ArgumentParser):
    """Parser whose help lists the subcommands in groups."""

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, [])
        formatter.add_text(self.description)
        options: list[argparse.Action] = []
        for action in self._actions:
            # argparse has no public access to the help lines of subcommands.
            if isinstance(action, argparse._SubParsersAction):
                commands = {each.dest: each for each in action._get_subactions()}
            else:
                options.append(action)
        grouped = {title: [commands[name] for name in names] for title, names in _GROUPS.items()}
        for title, actions in (grouped | {"options": options}).items():
            formatter.start_section(title)
            formatter.add_arguments(actions)
            formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()


class _Version(argparse.Action):
    """``--version``: reads the version only when the flag is given."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib.metadata import version

        print(f"devicemanager {version('kubelet-devicemanager')}")
        parser.exit()


def _complain(error: Exception) -> None:
    """Print any error as one line."""
    if isinstance(error, OSError):
        # Errors of files name the file; without a name, it is standard output.
        unnamed = _STDOUT if error.errno in _CANNOT_WRITE else None
        where = unnamed if error.filename is None else error.filename
        text = f"{f'{where}: ' if where is not None else ''}{error.strerror or error}"
    # Their texts are written for users; all others get their type and a hint.
    elif isinstance(error, (CommandError, *_known_errors())):
        text = str(error)
    else:
        text = f"unexpected {type(error).__name__}: {error} (a bug; --debug shows where)"
    # Not print(file=None): without standard error, it would use standard output.
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"devicemanager: error: {clean(' '.join(text.split()))}\n")


def _known_errors() -> Iterator[type[Exception]]:
    # Not imported: a module that is not loaded cannot have raised the error.
    for name, error in _KNOWN_ERRORS:
        if (module := loaded(name)) is not None:
            yield getattr(module, error)


def _be_lenient(stream: IO[str] | None) -> None:
    """Escape characters that the encoding does not have, instead of failing."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _silence_if_broken(stream: IO[str] | None) -> OSError | None:
    """Flush the stream. If that fails, silence it and return the error."""
    if stream is None:
        return None
    try:
        stream.flush()
    except OSError as error:
        _silence(stream)
        return error
    return None


def _silence(stream: IO[str]) -> None:
    """Discard the buffer, so that it does not fail again when the interpreter exits."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
