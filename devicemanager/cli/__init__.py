"""The command ``devicemanager``, with one module per subcommand.

Purpose: make the library usable from a shell. A subcommand parses its arguments, calls the
library and prints the result. The decisions of a kubelet or a plugin are made in the library.

Inputs: arguments, files that the user names (``-`` is standard input), sockets, and signals.
Outputs: text or JSON on standard output (docs/json.md describes the JSON), warnings and errors on
standard error, and an exit status. The status is 0 for success, 1 for a negative result (a pod is
rejected, a check fails), and 2 for wrong usage or an error. It is 130 after Ctrl-C and 141 for a
broken pipe.

Invariants:
* An error is one line, ``devicemanager: error: …``, that says what is wrong, where, and what to
  do. ``CommandError`` is raised for mistakes of the user. The text of other known errors is printed
  as it is. Any other exception is reported as a bug; ``--debug`` shows its traceback.
* ``--help`` loads no gRPC, no protobuf and no kubelet. A subcommand's module is loaded only when
  it is called or listed. Imports that its function ``add`` does not need are inside functions.
* Text from sockets and files goes through ``output.clean`` before it is printed, so that it
  cannot control the terminal.
* A command that runs until a signal removes its sockets and files at exit: ``stopping`` raises an
  exception only where the program allows it, and context managers clean up.

Start reading in ``main`` below, then ``options`` (parsers and errors) and ``pods``, a short
subcommand. The longest subcommands, ``run`` and ``join``, share ``live`` and ``kubelet_log``
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

from devicemanager.cli.options import CommandError, CommandParser, Run, SuggestingParser
from devicemanager.cli.output import clean
from devicemanager.io.own_packages import loaded

__all__ = ["main"]

_GROUPS = {
    "a mock kubelet": ("run", "ctl", "join", "apiserver", "podresources"),
    "plugins": ("check", "exec", "simulate", "record", "replay"),
    "any kubelet, including a real one": ("pods", "resources", "top"),
    "troubleshooting": ("explain", "claims", "dra", "snapshot", "rehearse", "fleet", "checkpoint"),
    "shell": ("completion",),
}
"""The subcommands, in the groups and the order of ``--help``."""

_MODULES = {"checkpoint": "checkpoints"}
"""The names of modules that differ from the name of their subcommand."""

_COMMANDS = {
    name: f"devicemanager.cli.{_MODULES.get(name, name)}"
    for names in _GROUPS.values()
    for name in names
}

# Classes by name, because importing them would load gRPC, even for --help.
_KNOWN_ERRORS = (
    ("devicemanager.core.errors", "DeviceManagerError"),
    ("devicemanager.plugin.errors", "PluginError"),
    ("podresources.errors", "PodResourcesError"),
    ("checkpoint.errors", "CheckpointError"),
)
"""Base classes of errors whose text is written for the user, with their modules."""

_STDOUT = "standard output"
# Error numbers of write(2); errors with these numbers have no file name.
_CANNOT_WRITE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
_TROUBLE = 2
_INTERRUPTED = 130
"""Exit status that a shell reports for a process that SIGINT has ended."""
_BROKEN_PIPE = 141
"""Exit status that a shell reports for a process that SIGPIPE has ended."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command ``devicemanager`` and return its exit status.

    0 means success; 1 a negative result; 2 wrong usage or an error, with one line on standard
    error; 130 an interrupt; 141 a broken pipe. ``argv`` defaults to the arguments of the process.
    """
    # Done first, because errors about the arguments quote arguments in any encoding.
    _be_lenient(sys.stdout)
    _be_lenient(sys.stderr)
    # gRPC logs each peer that exits during a call ("Got goaway"). The kubelet reports this as an
    # event or an error, so the log is off unless the user sets the variable.
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    # The value until the arguments are parsed.
    debug = False
    words = sys.argv[1:] if argv is None else argv
    try:
        # Without arguments, the user wants to know what the command can do.
        args = _parser(words).parse_args(words or ["--help"])
        debug = args.debug
        # The caller has closed standard output (`>&-`): print would discard all output silently.
        if sys.stdout is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), _STDOUT)
        status = _run(args)
        # Flushed here, because a full disk or a broken pipe may be noticed only by a flush.
        sys.stdout.flush()
        return status
    except SystemExit as exit_:
        # argparse has printed help or an error. If that failed, do not report success.
        broken = _silence_if_broken(sys.stdout)
        if broken is not None and not isinstance(broken, BrokenPipeError):
            _complain(broken)
            return _TROUBLE
        return exit_.code if isinstance(exit_.code, int) else _TROUBLE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except BrokenPipeError:
        # The reader, such as `head`, has stopped reading. This is normal, so print no error.
        _silence(sys.stdout)
        return _BROKEN_PIPE
    except Exception as error:
        if debug:
            raise
        # Report only the first error, even if the output cannot be written either.
        _silence_if_broken(sys.stdout)
        _complain(error)
        return _TROUBLE


def _run(args: argparse.Namespace) -> int:
    run: Run = args.run
    return run(args)


def _parser(argv: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Return a parser with the subcommand that ``argv`` names. If it names none, return a parser
    with all subcommands."""
    parser = _Parser(
        prog="devicemanager",
        description="Test plugins and DRA drivers against a mock kubelet, without a cluster.",
        epilog="Exit status: 0: success; 1: negative result, such as a rejected pod; 2: wrong "
        "usage or error. Use `devicemanager COMMAND --help` for more about a command.",
    )
    parser.add_argument("--version", action=_Version, help="print the version and exit")
    parser.add_argument("--debug", action="store_true", help="print a traceback with an error")
    # A CommandParser reports unknown arguments with the usage of the subcommand.
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
    """Return the parser of the command line with all subcommands."""
    return _parser()


class _Parser(SuggestingParser):
    """Argument parser whose help lists the subcommands in groups."""

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
    """The flag ``--version``, which reads the version only when it is used."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        from importlib.metadata import version

        print(f"devicemanager {version('kubelet-devicemanager')}")
        parser.exit()


def _complain(error: Exception) -> None:
    """Print an error as one line on standard error."""
    if isinstance(error, OSError):
        # An OSError about a file has its name. These numbers without a name are standard output.
        unnamed = _STDOUT if error.errno in _CANNOT_WRITE else None
        where = unnamed if error.filename is None else error.filename
        text = f"{f'{where}: ' if where is not None else ''}{error.strerror or error}"
    # The texts of these errors are written for users. Other errors get a type and a hint.
    elif isinstance(error, (CommandError, *_known_errors())):
        text = str(error)
    else:
        text = f"unexpected {type(error).__name__}: {error} (a bug; --debug shows where)"
    # print(file=None) would use standard output if standard error is closed.
    with contextlib.suppress(OSError, AttributeError):
        sys.stderr.write(f"devicemanager: error: {clean(' '.join(text.split()))}\n")


def _known_errors() -> Iterator[type[Exception]]:
    # A module that is not loaded cannot have raised the error, so it is not imported.
    for name, error in _KNOWN_ERRORS:
        if (module := loaded(name)) is not None:
            yield getattr(module, error)


def _be_lenient(stream: IO[str] | None) -> None:
    """Make a stream escape characters that its encoding lacks, instead of raising an error."""
    reconfigure = getattr(stream, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")


def _silence_if_broken(stream: IO[str] | None) -> OSError | None:
    """Flush a stream and return None. If that fails, silence the stream and return the error."""
    if stream is None:
        return None
    try:
        stream.flush()
    except OSError as error:
        _silence(stream)
        return error
    return None


def _silence(stream: IO[str]) -> None:
    """Redirect a stream to /dev/null, so that flushing it does not fail again at exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
