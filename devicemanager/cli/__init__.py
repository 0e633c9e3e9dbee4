"""The command ``devicemanager``: one module per subcommand.

A subcommand's module has ``add(subparsers)`` and imports what it works with only when it
runs: asking for help loads no gRPC, no protobuf and no kubelet. Nothing here decides
anything, and nothing outside imports it.
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
    "any kubelet, also a real one": ("pods", "resources", "top"),
    "why, and what is wrong": ("explain", "claims", "snapshot", "checkpoint"),
    "the shell": ("completion",),
}
"""The subcommands, in the groups and the order in which help lists them."""

_MODULES = {"checkpoint": "checkpoints"}
"""Where the module with ``add`` is not called as the subcommand."""

_COMMANDS = {
    name: f"devicemanager.cli.{_MODULES.get(name, name)}"
    for names in _GROUPS.values()
    for name in names
}

_KNOWN_ERRORS = (
    ("devicemanager.core.errors", "DeviceManagerError"),
    ("devicemanager.plugin.errors", "PluginError"),
    ("podresources.errors", "PodResourcesError"),
    ("checkpoint.errors", "CheckpointError"),
)
"""Roots of the errors whose text is meant for the user, by module."""

_STDOUT = "standard output"
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_TROUBLE = 2
_INTERRUPTED = 130
_BROKEN_PIPE = 141
"""What a shell reports for a process that SIGINT or SIGPIPE ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status.

    0: done. 1: the answer is no. 2: wrong usage or trouble, with one line on stderr.
    130: interrupted. 141: the reader of the output went away.
    """
    _be_lenient(sys.stdout)
    _be_lenient(sys.stderr)
    # gRPC writes a line about each peer that ends in the middle of a call ("Got goaway").
    # What that means here is an event or an error; set this to see gRPC's own words.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    debug = False
    try:
        args = _parser(sys.argv[1:] if argv is None else argv).parse_args(argv)
        debug = args.debug
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), _STDOUT)
        status = _run(args)
        sys.stdout.flush()
        return status
    except SystemExit as exit_:
        # argparse has said what there is to say, on one of the two streams.
        broken = _silence_if_broken(sys.stdout)
        if broken is not None and not isinstance(broken, BrokenPipeError):
            _complain(broken)
            return _TROUBLE
        return exit_.code if isinstance(exit_.code, int) else _TROUBLE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        _silence(sys.stdout)
        return _BROKEN_PIPE
    except Exception as error:
        if debug:
            raise
        _silence_if_broken(sys.stdout)
        _complain(error)
        return _TROUBLE


def _run(args: argparse.Namespace) -> int:
    run: Run = args.run
    return run(args)


def _parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    """A parser of the subcommand that ``argv`` names; of all if it names none, for help."""
    parser = _Parser(
        prog="devicemanager",
        description="The kubelet's device manager, without a cluster.",
        epilog="Exit status: 0: done; 1: the answer is no; 2: wrong usage or trouble. "
        "`devicemanager COMMAND --help` shows more about a command.",
    )
    parser.add_argument("--version", action=_Version, help="show the version and exit")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error, too")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=CommandParser)
    # Options before the subcommand take no values. To load every subcommand for one takes
    # a tenth of the time until `run` serves.
    options = [*itertools.takewhile(lambda word: word.startswith("-"), argv)]
    wants_help = not {"-h", "--help"}.isdisjoint(options)
    named = "" if wants_help or len(options) == len(argv) else argv[len(options)]
    for name in [named] if named in _COMMANDS else _COMMANDS:
        import_module(_COMMANDS[name]).add(subparsers)
    return parser


def whole_parser() -> argparse.ArgumentParser:
    """The parser of all subcommands."""
    return _parser()


class _Parser(argparse.ArgumentParser):
    """Its help lists the subcommands in groups."""

    def format_help(self) -> str:
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, [])
        formatter.add_text(self.description)
        options: list[argparse.Action] = []
        for action in self._actions:
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
    """``--version``, which looks the version up only when asked."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib.metadata import version

        print(f"devicemanager {version('kubelet-devicemanager')}")
        parser.exit()


def _complain(error: Exception) -> None:
    """One line, whatever the error is."""
    if isinstance(error, OSError):
        # Whatever else is written to says which file it is.
        unnamed = _STDOUT if error.errno in _CANNOT_WRITE else None
        where = unnamed if error.filename is None else error.filename
        text = f"{f'{where}: ' if where is not None else ''}{error.strerror or error}"
    elif isinstance(error, (CommandError, *_known_errors())):
        text = str(error)
    else:
        text = f"unexpected {type(error).__name__}: {error} (a bug; --debug shows where)"
    # Without stderr, print would take stdout.
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"devicemanager: error: {clean(' '.join(text.split()))}\n")


def _known_errors() -> Iterator[type[Exception]]:
    # A module that was never loaded cannot have raised.
    for name, error in _KNOWN_ERRORS:
        if (module := loaded(name)) is not None:
            yield getattr(module, error)


def _be_lenient(stream: IO[str] | None) -> None:
    """Write what the terminal's encoding lacks as escapes instead of failing on it."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _silence_if_broken(stream: IO[str] | None) -> OSError | None:
    """What keeps the last words from being written, if anything does."""
    if stream is None:
        return None
    try:
        stream.flush()
    except OSError as error:
        _silence(stream)
        return error
    return None


def _silence(stream: IO[str]) -> None:
    """What is left in the buffer must not fail again when the interpreter ends."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
