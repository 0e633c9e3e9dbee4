"""What the subcommands share of the command line."""

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
"""What a subcommand does; returns the exit status."""


class CommandError(Exception):
    """Something the user has to change. The text is one line."""


def not_installed(error: ModuleNotFoundError, extra: str) -> str:
    """What to do about a module that comes with an extra."""
    return f"{error.name} is not installed: pip install 'kubelet-devicemanager[{extra}]'"


@contextlib.contextmanager
def rejected_server(flag: str) -> Iterator[None]:
    """Why there can be no server for ``--control`` or ``--http``, as a CommandError. The extra
    has the flag's name."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise CommandError(f"--{flag}: {not_installed(error, flag)}") from None
    except ValueError as error:
        from devicemanager.control.access import NotLoopback

        more = f"; or give --{flag}-allow-remote, too" if isinstance(error, NotLoopback) else ""
        raise CommandError(f"--{flag}: {error}{more}") from None


class CommandParser(argparse.ArgumentParser):
    """A subcommand's parser; ``complete`` adds arguments once the subcommand is called,
    so that they may come from modules that take time to load."""

    complete: Callable[[argparse.ArgumentParser], None] | None = None
    takes_command = False
    """Whether a command with options of its own comes after ``--``."""

    def __init__(self, *args: Any, **options: Any) -> None:
        """No option can be shortened: ``--simulate`` is not ``--simulate-pools``."""
        super().__init__(*args, **options)
        self.allow_abbrev = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As the base class, after completion; what nobody knows is an error at once, so
        that the usage shown is this subcommand's."""
        complete, self.complete = self.complete, None
        if complete is not None:
            complete(self)
        found, unknown = super().parse_known_args(args, namespace)
        if unknown:
            hint = self.takes_command and "--" not in (sys.argv[1:] if args is None else args)
            more = "; the command that is to be run comes after --" if hint else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{more}")
        return found, unknown

    def print_help(self, file: SupportsWrite[str] | None = None) -> None:
        """As the base class, which passes over an output that cannot be written. Raises
        OSError, but for a reader that has read enough."""
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
    """Add one subcommand; without a description of its own its help text serves as one."""
    sentence = description or f"{help_[0].upper()}{help_[1:]}."
    parser = subparsers.add_parser(name, help=help_, description=sentence)
    parser.set_defaults(run=run)
    parser.complete = complete
    return parser


def add_format(parser: argparse.ArgumentParser, *formats: str) -> None:
    """``-o``; the first format is the default."""
    parser.add_argument(
        "-o",
        "--output",
        choices=formats,
        default=formats[0],
        help=f"how to show it (default: {formats[0]})",
    )
