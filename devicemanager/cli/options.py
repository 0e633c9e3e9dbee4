"""Parsers, errors and options that the subcommands share."""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

    Subparsers: TypeAlias = argparse._SubParsersAction["CommandParser"]

Run = Callable[[argparse.Namespace], int]
"""Runs a subcommand; returns the exit status."""


class CommandError(Exception):
    """A mistake that the user can fix. The text is one line."""


def not_installed(error: ModuleNotFoundError, extra: str) -> str:
    """Return the error text for a module that an extra provides."""
    return f"{error.name} is not installed: pip install 'kubelet-devicemanager[{extra}]'"


@contextlib.contextmanager
def rejected_server(flag: str) -> Iterator[None]:
    """Convert errors about the server of ``--control`` or ``--http`` to CommandError.

    The extra that the server needs has the name of the flag.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(f"--{flag}: {not_installed(error, flag)}") from None
    except ValueError as error:
        # Loaded by now: the error comes from there.
        from devicemanager.control.access import NotLoopback

        more = f"; or add --{flag}-allow-remote" if isinstance(error, NotLoopback) else ""
        raise CommandError(f"--{flag}: {error}{more}") from None


class CommandParser(argparse.ArgumentParser):
    """Parser of a subcommand.

    ``complete`` adds arguments when the subcommand is called. It can import modules that are too
    slow for ``devicemanager --help``.
    """

    complete: Callable[[argparse.ArgumentParser], None] | None = None
    takes_command = False
    """True if another command, with its options, follows after ``--``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """Create a parser without abbreviations: ``--simulate`` is not ``--simulate-pools``."""
        super().__init__(*args, **options)
        self.allow_abbrev = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Complete the parser and parse; reject unknown arguments.

        The base class leaves that to the main parser, which would print its own usage.
        """
        # Reset first: a parser can parse twice, but can add an argument only once.
        complete, self.complete = self.complete, None
        if complete is not None:
            complete(self)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            # A forgotten -- shows as unknown options of the other command.
            hint = self.takes_command and "--" not in (sys.argv[1:] if args is None else args)
            more = "; put the command to run after --" if hint else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{more}")
        return found, unknown

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """Print the help. Raises OSError, which the base class ignores; a broken pipe is fine."""
        # print_help of the base class ignores errors, so a full disk would look like success.
        stream = sys.stdout if file is None else file
        if stream is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        with contextlib.suppress(BrokenPipeError):
            stream.write(self.format_help())


def command(
    subparsers: Subparsers,
    name: str,
    run: Run,
    help_: str,
    description: str | None = None,
    complete: Callable[[argparse.ArgumentParser], None] | None = None,
) -> CommandParser:
    """Add a subcommand. The default description is its help text."""
    sentence = description or f"{help_[0].upper()}{help_[1:]}."
    parser = subparsers.add_parser(name, help=help_, description=sentence)
    parser.set_defaults(run=run)
    parser.complete = complete
    return parser


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    """Add ``-o``; the first format is the default."""
    parser.add_argument(
        "-o",
        "--output",
        choices=formats,
        default=formats[0],
        help=f"output format (default: {formats[0]})",
    )


def add_repeated(
    parser: argparse._ActionsContainer, name: str, metavar: str, help_: str, **options: Any
) -> None:
    """Add an option that can be repeated; its value is a list."""
    parser.add_argument(
        name,
        action="append",
        default=[],
        metavar=metavar,
        help=f"{help_}; can be repeated",
        **options,
    )
